"""Trained on generated data, models are better on mentions that they have not seen than they were before."""

import random
import re
from string import ascii_lowercase
from types import SimpleNamespace

import pytest
import torch

import normkit as nk
from normkit import cli, text
from normkit.optional import let_torchvision_load
from normkit.text import samples
from normkit.text.training import encoder, lexical

let_torchvision_load()
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentence_transformers")


def made_up(count, seed):
    generator = random.Random(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    return sorted({"".join(generator.choices(syllables, k=3)) for _ in range(count)})


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, line, status=0):
    assert cli.main(["text", *line.split()]) == status
    found = capsys.readouterr()
    return found.out if status == 0 else found.err


def test_an_encoder_learns_which_names_are_meant_and_is_used(desk, capsys):
    names = {word: [word] for word in made_up(40, 0)}
    generator = random.Random(1)
    mentions = [samples.mistype(word, generator, 3) for word in names for _ in range(4)]
    gold = [word for word in names for _ in range(4)]

    def accuracy(encode):
        norm = text.Normalizer([text.Dense(encode)], decide=text.Threshold(0)).fit(names)
        return norm.evaluate(mentions, gold)["accuracy@1"]

    (desk / "names.csv").write_text("word\n" + "".join(f"{word}\n" for word in names))
    (desk / "known.csv").write_text(f"text,id\n{mentions[0]},{gold[0]}\nnothing,\n")
    told = run(capsys, "train encoder names.csv --name word --mentions known.csv -o after --steps 40 --batch 32")
    share, first = map(int, re.findall(r"(\d+)%", told))
    assert share >= first
    assert "--encoder after" in told
    assert sorted(path.name for path in desk.iterdir()) == ["after", "known.csv", "names.csv"]
    assert not (desk / "after/README.md").exists()
    fresh = encoder.fresh_encoder(0)
    before, after = accuracy(lambda texts: fresh.encode(texts, show_progress_bar=False)), accuracy("after")
    assert after > before + 0.05
    assert "dense: every name compared" in run(capsys, "fit names.csv --name word --encoder after -o v")
    norm = text.Normalizer.load("v")
    assert "dense" in norm(gold[0]).candidates[0].by
    assert text.Normalizer.load("v").normalize(mentions[:9]) == norm.normalize(mentions[:9])
    (desk / "u.norm").write_text("u\tyou\n")
    assert "only an encoder takes --id and --text" in run(capsys, "train lexical u.norm --id a --text b -o model", 2)
    assert "reads and does not write" in run(capsys, "train lexical u.norm --model after -o model", 2)
    assert "v is there already and is no model" in run(capsys, "train encoder names.csv --name word -o v", 2)


def test_a_lexical_model_learns_normal_forms(desk, capsys):
    words, generator = made_up(6, 2), random.Random(3)

    def sentences(count):
        gold = [[generator.choice(words) for _ in range(2)] for _ in range(count)]
        return [[samples.mistype(word, generator, 1) for word in own] for own in gold], gold

    lines = ["\n".join(map("\t".join, zip(*own, strict=True))) for own in zip(*sentences(400), strict=True)]
    (desk / "train.norm").write_text("\n\n".join(lines))
    for steps in (1, 60):  # the second in place of the first
        assert "LexicalModel('model')" in run(capsys, f"train lexical train.norm -o model --steps {steps} --batch 32")
    held, meant = sentences(30)
    said = text.LexicalModel("model", beams=1)(held)
    assert nk.create("lexical-evaluation")(held, meant, said)["error_reduction"] > 0.3


def cross_encoder(path, outputs=1):
    """A folder as a user has one, of a small model with random weights."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ascii_lowercase, *("##" + one for one in ascii_lowercase)]
    path.mkdir()
    (path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(path / "vocab.txt")).save_pretrained(path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(
        vocab_size=len(words), num_labels=outputs, max_position_embeddings=64, initializer_range=1.0, **sizes
    )
    transformers.BertForSequenceClassification(config).save_pretrained(path)


class Every:
    """A part that proposes all entries."""

    def fit(self, vocabulary):
        self.ids = list(vocabulary)

    def __call__(self, texts):
        return [[(id, 0.5) for id in self.ids] for _ in texts]


NAMES = {"DEU": ["Germany", "Deutschland"], "AUT": ["Austria", "Osterreich"], "ARM": ["Armenia"]}


def test_a_cross_encoder_scores_and_may_say_none(desk, capsys):
    cross_encoder(desk / "model")
    tokenizer = transformers.BertTokenizer.from_pretrained("model")
    model = transformers.BertForSequenceClassification.from_pretrained("model").eval()

    def logit(one, name):
        with torch.no_grad():
            return model(**tokenizer(one, name, return_tensors="pt")).logits.item()

    def logits(one):
        return {id: max(logit(one, name.lower()) for name in names) for id, names in NAMES.items()}

    rescore = text.CrossEncoder("model")
    norm = text.Normalizer([Every()], rescore, text.Threshold(0)).fit(NAMES)
    found = {one.id: one.score for one in norm("germania").candidates}
    want = torch.tensor([logits("germania")[id] for id in found]).sigmoid().tolist()
    assert [*found.values()] == pytest.approx(want, abs=1e-5)
    assert norm("germania").id == max(found, key=found.get)

    few = rescore("germania", [["Austria"], [], ["Germany"]])
    assert few[1] == 0
    assert (few[[0, 2]] > 0).all()

    nil = nk.create("nil-decision")
    norm = text.Normalizer(norm.candidates, text.CrossEncoder("model", logits=True), nil).fit(NAMES)
    norm.save("v")
    norm = text.Normalizer.load("v", candidates=[Every()])
    seen = set()
    for one in ("germania", "austra", "arm", "osterreich", "deutsch", "menia"):
        chances = dict(nil.ranked([*NAMES, "none"], [*logits(one).values(), logit(one, "[NIL]")]))
        match = norm(one)
        assert match.id == max(chances, key=chances.get)
        assert {each.id: each.score for each in match.candidates} == pytest.approx(
            {id: chance for id, chance in chances.items() if id}, abs=1e-4
        )
        seen.add(match.id is None)
    assert seen == {True, False}, "some are none and some are not, or this tests little"
    assert norm("").id is None
    (desk / "names.csv").write_text("id,name\n" + "".join(f"{id},{one}\n" for id in NAMES for one in NAMES[id]))
    assert "3 entries" in run(capsys, "fit names.csv -o w --cross-encoder model")
    cross_encoder(desk / "three", 3)
    with pytest.raises(ValueError, match="three gives 3 numbers a pair; one is wanted"):
        text.CrossEncoder("three")("a", [["b"]])
    with pytest.raises(ValueError, match=r"nil-decision, which needs rescore: .*'\[NIL\]'"):
        text.Normalizer([text.NGrams()], decide=nil)


@pytest.mark.parametrize("make", [text.Dense, text.CrossEncoder, text.LexicalModel])
def test_what_is_no_folder_of_a_model_is_named(tmp_path, make):
    with pytest.raises(ValueError, match="nowhere is no folder of a model"):
        make(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="holds no model of the kind that is wanted"):
        make(str(tmp_path))


def test_a_file_of_multilexnorm_is_read(tmp_path):
    (tmp_path / "a.norm").write_text("u\tyou\nr\tare\n\ngonna\tgoing to\nlol\t\n", encoding="utf-8")
    raw, gold = lexical.read_multilexnorm(tmp_path / "a.norm")
    assert (raw, gold) == ([["u", "r"], ["gonna", "lol"]], [["you", "are"], ["going to", ""]])
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "c.norm").write_text("u\u2028\tyou\n", encoding=encoding)
        assert lexical.read_multilexnorm(tmp_path / "c.norm", encoding) == ([["u\u2028"]], [["you"]])
    assert lexical.read_multilexnorm(tmp_path / "a.norm") == (raw, gold)
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


@pytest.mark.parametrize(
    "files, message",
    [
        ({"config.json": '{"port": 8080}', "results.csv": ""}, "model is there already and is no model; it stays"),
        ({"config.json": "[]"}, "model is there already and is no model; it stays"),
        (
            {"config.json": '{"model_type": "t5"}', "tokenizer.json": "", "results.csv": ""},
            "model has results.csv beside",
        ),
    ],
)
def test_a_folder_with_files_of_somebody_else_is_not_replaced_by_a_model(tmp_path, files, message):
    (tmp_path / "model").mkdir()
    for name, content in files.items():
        (tmp_path / "model" / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        encoder.train_encoder({"a": ["x"], "b": ["y"]}, tmp_path / "model")
    with pytest.raises(ValueError, match=message):
        lexical.train_lexical([["a"]], [["a"]], tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == sorted(files)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["rank-calibration-loss", "unlikelihood-calibration-loss"])
def test_padded_words_reach_no_gradient(name, bad):
    torch.manual_seed(0)
    logits, labels = torch.randn(1, 4, 6, 9), torch.randint(9, (1, 4, 6))
    labels[0, 1, 3:] = labels[0, 2, 4:] = -100

    def gradient(x):
        loss = nk.create(name)(x.requires_grad_(), labels)
        return torch.autograd.grad(sum(loss) if isinstance(loss, tuple) else loss, x)[0]

    padded = (labels == -100).unsqueeze(-1)
    torch.testing.assert_close(gradient(torch.where(padded, bad, logits)), gradient(logits.clone()))


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_tokens_of_no_span_reach_neither_logits_nor_gradient(bad):
    torch.manual_seed(0)
    module = nk.create("span-subtype-classifier", 5, 3, {"a": 4}, dropout=0.0)
    masks = torch.zeros(1, 2, 6, dtype=torch.bool)
    masks[0, 0, 1:3] = masks[0, 1, 3] = True

    def numbers(h):
        logits = module(h.requires_grad_(), masks, masks.sum(-1))
        return *logits, torch.autograd.grad(sum(each.sum() for each in logits), h)[0]

    h = torch.randn(1, 6, 5)
    beside = torch.cat([h[:, :4], torch.full((1, 2, 5), bad)], 1)
    torch.testing.assert_close(numbers(beside), numbers(h))


class Echo:
    """A tokenizer and a model that give back what they are given."""

    def __call__(self, texts, **own):
        return {"texts": texts}

    def generate(self, texts, **own):
        return SimpleNamespace(sequences=texts)

    def batch_decode(self, sequences, **own):
        return sequences


def test_words_of_more_sentences_than_one_batch_holds_keep_their_places():
    model = object.__new__(text.LexicalModel)
    model.tokenizer = model.model = Echo()
    model.beams, model.decide = 1, lambda word, proposals: proposals[0]
    sentences = [[f"one{at}", f"two{at}"] for at in range(100)]
    assert model(sentences) == [[(marked, 0.0) for marked in lexical.mark(own)] for own in sentences]
