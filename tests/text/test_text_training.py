"""Trained on generated data, models are better on mentions that they have not seen than they were before."""

import random

import pytest
import torch

import normkit as nk
from normkit import text
from normkit.optional import let_torchvision_load
from normkit.text import samples
from normkit.text.training import encoder, lexical

let_torchvision_load()
pytest.importorskip("sentence_transformers")


def made_up(count, seed):
    generator = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return sorted({"".join(generator.choices(syllables, k=3)) for _ in range(count)})


def test_an_encoder_learns_which_names_are_meant(tmp_path):
    names = {word: [word] for word in made_up(40, 0)}
    generator = random.Random(1)
    mentions = [samples.mistyped(word, generator, 3) for word in names for _ in range(4)]
    gold = [word for word in names for _ in range(4)]

    def accuracy(path):
        return (
            text.Normalizer([text.Dense(path)], decide=text.Threshold(0))
            .fit(names)
            .evaluate(mentions, gold)["accuracy@1"]
        )

    torch.manual_seed(0)
    encoder.fresh_encoder().save(str(tmp_path / "before"))
    encoder.train_encoder(names, tmp_path / "after", steps=100, batch=32)
    before, after = accuracy(str(tmp_path / "before")), accuracy(str(tmp_path / "after"))
    assert after > before + 0.05
    assert after > 0.78
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after", "before"]
    norm = text.Normalizer([text.Dense(str(tmp_path / "after"))]).fit(names)
    norm.save(tmp_path / "v")
    assert text.Normalizer.load(tmp_path / "v").normalize(mentions) == norm.normalize(mentions)


def test_a_lexical_model_learns_normal_forms(tmp_path):
    words, generator = made_up(8, 2), random.Random(3)

    def sentences(count):
        gold = [[generator.choice(words) for _ in range(2)] for _ in range(count)]
        return [[samples.mistyped(word, generator, 1) for word in own] for own in gold], gold

    raw, gold = sentences(400)
    lexical.train_lexical(raw, gold, tmp_path / "model", steps=150)
    held, meant = sentences(60)
    said = lexical.LexicalModel(tmp_path / "model", beams=1)(held)
    assert nk.create("lexical-evaluation")(held, meant, said)["error_reduction"] > 0.3


def test_a_file_of_multilexnorm_is_read(tmp_path):
    (tmp_path / "a.norm").write_text("u\tyou\nr\tare\n\ngonna\tgoing to\nlol\t\n", encoding="utf-8")
    raw, gold = lexical.read_multilexnorm(tmp_path / "a.norm")
    assert (raw, gold) == ([["u", "r"], ["gonna", "lol"]], [["you", "are"], ["going to", ""]])
    (tmp_path / "b.norm").write_text("u\tyou\nr\n")
    with pytest.raises(ValueError, match="line 2: a word, a tab"):
        lexical.read_multilexnorm(tmp_path / "b.norm")


@pytest.mark.parametrize(
    "given, said",
    [
        (({"a": ["x"]},), "at least two entries"),
        (({"a": ["x"], "b": ["y"]}, ["x"], []), "gold must be as long"),
        (({"a": ["x"], "b": ["y"]}, ["x"], ["c"]), "gold has 'c', which is not in the vocabulary"),
    ],
)
def test_what_cannot_be_trained_on_is_named(tmp_path, given, said):
    names, *known = given
    with pytest.raises(ValueError, match=said):
        encoder.train_encoder(names, tmp_path / "v", *known)
    with pytest.raises(ValueError, match="a form for each word"):
        lexical.train_lexical([["a"]], [[]], tmp_path / "v")
    assert not list(tmp_path.iterdir())
