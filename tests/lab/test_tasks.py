"""Models and data of every kind learn, and their batches are what they should be."""

import copy
import math
import os
import re
import sys
from types import SimpleNamespace

import numpy
import pytest
import torch
import transformers
from helpers import settings, trained
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import normkit as nk
from normkit import cli
from normkit.lab import course
from normkit.lab.plan import data, measures, models, optimizers, samples, tasks
from normkit.lab.plan.plan import Run
from normkit.lab.plan.variants import Variant
from normkit.lab.training import single


def learns(tmp_path, variant, lr=0.01, **given):
    given = {"steps": 10, "batch": 8, "eval_every": 10, **given}
    one = Run(variant, lr, 1, "final", given["steps"])
    events = trained(tmp_path, one, **given)
    assert events[-1]["status"] == "done", events[-1]
    evals = [e for e in events if e["event"] == "eval"]
    assert evals[-1]["loss"] < evals[0]["loss"]
    return evals


PLACEMENTS = ["pre-norm", "post-norm", "peri-norm", "mix-ln", "deepnorm", "hybridnorm", "ngpt"]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_vit_learns_digits_with_any_placement(placement, tmp_path):
    variant = Variant("v", placement=placement)
    evals = learns(tmp_path, variant, model="vit:dim=16,depth=2,heads=2", data="digits", steps=40)
    assert 0 <= evals[-1]["accuracy"] <= 1


@pytest.mark.parametrize("norm", ["batchnorm", "groupnorm:num_groups=4", "dyt", "frn"])
def test_a_resnet_learns_digits_with_any_image_norm(norm, tmp_path):
    learns(tmp_path, Variant("v", norm=norm), model="resnet:dim=8", data="digits", steps=30)


@pytest.mark.parametrize("attention", ["softmax", "qk-norm:scale=8", "flow-attention"])
def test_a_decoder_takes_any_causal_core(attention, tmp_path):
    learns(tmp_path, Variant("v", attention=attention))


@pytest.mark.parametrize("linear", ["zero-mean-linear", "zero-mean-linear:bias=False"])
def test_a_decoder_takes_linear_maps_of_the_catalogue(linear, tmp_path):
    given = settings()
    learns(tmp_path, Variant("v", linear=linear))
    other, plain = (tasks.load(given).build(Variant("v", linear=name), 1) for name in (linear, "linear"))
    name = "layers.0.feedforward.up.weight"
    assert torch.equal(other.get_parameter(name), plain.get_parameter(name))
    assert type(other.layers[0].feedforward.up) is not type(plain.layers[0].feedforward.up)


@pytest.mark.parametrize("optimizer", ["adamw", "SGD", "adamp", "muon", "muon:momentum=0.9", "adamw:betas=(0.9,0.95)"])
def test_optimizers_are_those_of_torch_and_of_the_catalogue(optimizer, tmp_path):
    learns(tmp_path, Variant("v", optimizer=optimizer))


@pytest.mark.parametrize("name", ["lbfgs", "optimizer", "rmsnorm"])
def test_what_cannot_step_alone_is_no_optimizer(name):
    with pytest.raises(ValueError, match=f"no optimizer '{name}'; .*there are .*adamw"):
        optimizers.optimizer_for(name)


@pytest.mark.parametrize("name, norm", [("resnet18", "groupnorm:num_groups=8"), ("vit_tiny_patch16_224", "dyt")])
def test_timm_models_take_digits(name, norm, tmp_path):
    learns(tmp_path, Variant("v", norm=norm), lr=3e-4, model=f"timm:{name}", data="digits", steps=8, batch=32)


def saved(kind, tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config, auto = {
        "causal": (transformers.LlamaConfig(vocab_size=300, **sizes), transformers.AutoModelForCausalLM),
        "masked": (transformers.BertConfig(vocab_size=300, **sizes), transformers.AutoModelForMaskedLM),
        "image": (
            transformers.ViTConfig(image_size=8, patch_size=4, num_channels=3, **sizes),
            transformers.AutoModelForImageClassification,
        ),
        "image beside text": (
            transformers.CLIPConfig(vision_config={"image_size": 8, "patch_size": 4, **sizes}, text_config=sizes),
            transformers.AutoModelForImageClassification,
        ),
    }[kind]
    auto.from_config(config).save_pretrained(tmp_path / "model")
    return f"hf:{tmp_path / 'model'}"


@pytest.mark.parametrize(
    "kind, source", [("causal", "text"), ("masked", "text"), ("image", "digits"), ("image beside text", "digits")]
)
def test_models_of_hugging_face_are_trained_from_a_folder(kind, source, tmp_path):
    (tmp_path / "words.txt").write_text("the cat sat on the mat and the dog did not. " * 60)
    source = str(tmp_path / "words.txt") if source == "text" else source
    for norm in ("original", "dyt"):
        learns(tmp_path / norm, Variant(norm, norm=norm), model=saved(kind, tmp_path), data=source, steps=25, batch=32)


def test_a_changed_folder_is_refused_by_what_it_is(tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved("causal", tmp_path).removeprefix("hf:"))
    nk.swap(model, "dyt")
    nk.save(model, tmp_path / "swapped")
    with pytest.raises(ValueError, match="swapped' was changed by normkit: name what it was"):
        tasks.load(settings(model=f"hf:{tmp_path / 'swapped'}", data="python-docs"))


def test_a_config_without_architecture_is_masked_unless_it_decodes():
    """BERT as a causal model would read the tokens that it is to predict."""
    for config, kind in [
        (transformers.BertConfig(), "masked"),
        (transformers.BertConfig(is_decoder=True), "next"),
        (transformers.LlamaConfig(), "next"),
        (transformers.ViTConfig(), "image"),
    ]:
        assert tasks._head(transformers, config, "here")[1] == kind
    with pytest.raises(ValueError, match="no causal or masked language model and no image classifier"):
        tasks._head(transformers, transformers.Wav2Vec2Config(), "here")


def own(monkeypatch, **parts):
    """Enter a user's module ``own``."""
    module = type(sys)("own")
    vars(module).update(parts)
    monkeypatch.setitem(sys.modules, "own", module)
    tasks.load_task.cache_clear()


def small(norm):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), norm(8), torch.nn.Linear(8, 3))


def test_own_batches_are_numbers(tmp_path, monkeypatch):
    def pairs(seed):
        chance = torch.Generator().manual_seed(seed)
        return ((x := torch.randn(8, 4, generator=chance), x[:, :3]) for _ in range(5))

    own(monkeypatch, pairs=pairs, val=lambda: pairs(99), model=small)
    evals = learns(tmp_path, Variant("v"), model="own:model", data="own:pairs", val="own:val", steps=30)
    assert "accuracy" not in evals[-1]
    stream = samples.own_data("own:pairs", "own:val", None, 2)
    assert torch.equal(stream.train(7, 1)[0], next(pairs(7))[0])
    assert torch.equal(stream.train(7, 7)[0], stream.train(7, 2)[0])
    assert torch.equal(stream.train(7, 2)[0], list(pairs(7))[1][0])


class Scored(torch.nn.Module):
    """A model of a mapping that returns its loss and its scores."""

    def __init__(self, norm):
        super().__init__()
        self.body = small(norm)

    def forward(self, inputs, labels):
        logits = self.body(inputs)
        return type("Output", (), {"logits": logits, "loss": torch.nn.functional.cross_entropy(logits, labels)})


def test_a_model_that_takes_a_norm_is_built_as_it_is_with_its_own(monkeypatch):
    rows = [(torch.randn(4), 0) for _ in range(20)]
    own(monkeypatch, loader=rows, model=lambda norm=torch.nn.RMSNorm: small(norm))
    build = tasks.load(settings(model="own:model", data="own:loader", batch=None)).build
    assert any(isinstance(part, torch.nn.RMSNorm) for part in build(Variant("v", norm="original"), 1).modules())
    own(monkeypatch, loader=rows, model=small)
    build = tasks.load(settings(model="own:model", data="own:loader", batch=None)).build
    with pytest.raises(ValueError, match="own:model takes a norm and has none by default: name some"):
        build(Variant("v", norm="original"), 1)


class Plain(Scored):
    """The same as a plain dictionary."""

    def forward(self, inputs, labels):
        output = super().forward(inputs, labels)
        return {"loss": output.loss, "logits": output.logits}


@pytest.mark.parametrize("kind", [Scored, Plain])
def test_own_models_return_their_loss_as_an_attribute_or_a_key(kind):
    model = kind(torch.nn.LayerNorm)
    x, y = torch.randn(4, 4), torch.tensor([0, 1, 2, 0])
    output = model(inputs=x, labels=y)
    assert tasks.scores(output).shape == (4, 3)
    assert tasks.own_loss(output) == torch.nn.functional.cross_entropy(tasks.scores(output), y)
    with pytest.raises(ValueError, match="must return its loss, as 'loss', not dict"):
        tasks.own_loss({"logits": x})


@pytest.mark.parametrize("kind", ["pairs", "mappings", "encodings"])
def test_own_classifiers_show_their_accuracy(kind, tmp_path, monkeypatch):
    inputs = torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
    wanted = inputs[:, :3].argmax(1)
    rows = list(zip(inputs, wanted, strict=True))
    mapping = transformers.BatchEncoding if kind == "encodings" else dict  # as tokenizers and their collators give
    mappings = [mapping({"inputs": x, "labels": y}) for x, y in rows]
    loader = torch.utils.data.DataLoader(rows if kind == "pairs" else mappings, batch_size=16, shuffle=True)
    own(monkeypatch, loader=loader, model=small if kind == "pairs" else Scored)
    given = {"model": "own:model", "data": "own:loader", "batch": None}
    evals = learns(tmp_path, Variant("v"), lr=0.05, steps=60, **given)
    task = tasks.load(settings(**given))
    model = task.build(Variant("v"), 1)
    batch = task.data.validation()[0]
    scores = model(batch[0]) if kind == "pairs" else model(**batch).logits
    classes = batch[1] if kind == "pairs" else batch["labels"]
    assert task.accuracy(model, batch) == (scores.argmax(1) == classes).float().mean()
    assert 0.6 < evals[-1]["accuracy"] <= 1


def test_the_mean_over_held_out_batches_counts_samples(tmp_path, monkeypatch):
    """The last batch, which is shorter, would count for too much."""
    x = torch.randn(10, 4)
    y = torch.tensor([0] * 8 + [1] * 2)
    apart = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)

    class Always(torch.nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.norm, self.scores = norm(4), torch.nn.Parameter(torch.tensor([5.0, 0.0]))

        def forward(self, x):
            return self.scores + 0 * self.norm(x)[:, :2]

    own(monkeypatch, loader=apart, val=list(apart), model=Always)
    given = {"model": "own:model", "data": "own:loader", "val": "own:val", "batch": None, "steps": 1}
    events = trained(tmp_path, Run(Variant("v"), 1e-9, 1, "final", 1), **given)
    first = next(e for e in events if e["event"] == "eval")
    assert first["accuracy"] == pytest.approx(0.8)


class Labelled(torch.nn.Module):
    """A model of tokens whose labels may be hidden."""

    def __init__(self, norm=torch.nn.LayerNorm):
        super().__init__()
        self.embed, self.norm, self.out = torch.nn.Embedding(8, 4), norm(4), torch.nn.Linear(4, 8)

    def forward(self, input_ids, labels=None):
        logits = self.out(self.norm(self.embed(input_ids)))
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def labelled(form, counts):
    """Batches of four rows of six tokens, so many of which have labels."""
    chance, batches = torch.Generator().manual_seed(0), []
    for count in counts:
        x, y = (torch.randint(8, (4, 6), generator=chance) for _ in range(2))
        y.view(-1)[count:] = -100
        batches.append({"input_ids": x, "labels": y} if form == "mapping" else (x, y))
    return batches


@pytest.mark.parametrize("form", ["mapping", "pair"])
@pytest.mark.parametrize("owners", [{}, {"federated": True, "clients": 2, "split": "even"}], ids=["one", "owners"])
def test_the_mean_over_held_out_batches_counts_labels(form, owners, tmp_path, monkeypatch):
    """Batches of many labels count for more than those of few, and one of none for nothing."""
    rows = [row for batch in labelled("pair", [24] * 5) for row in zip(*batch, strict=True)]
    rows = [{"input_ids": x, "labels": y} for x, y in rows] if form == "mapping" else rows
    loader = torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True)
    val = labelled(form, [24, 1, 0, 5])
    own(monkeypatch, loader=loader, val=val, model=Labelled)
    given = {"model": "own:model", "data": "own:loader", "val": "own:val", "batch": None, "steps": 1, "eval_batches": 4}
    events = trained(tmp_path, Run(Variant("v"), 1e-9, 1, "final", 1), **given, **owners)
    model = tasks.load(settings(**given)).build(Variant("v"), 1)
    x, y = (torch.cat(parts) for parts in zip(*(b.values() if form == "mapping" else b for b in val), strict=True))
    want = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    assert [event["loss"] for event in events if event["event"] == "eval"] == pytest.approx([want] * 2, rel=1e-6)


def test_a_causal_model_of_transformers_learns_no_first_label(monkeypatch):
    class TinyForCausalLM(Labelled):
        loss_type = "ForCausalLM"

    batches = labelled("mapping", [24, 1])
    own(monkeypatch, train=batches, val=list(batches))
    task = tasks.own_batches(samples.own_data("own:train", "own:val", None, 5), small)
    assert [task.weigh(Labelled(), batch) for batch in batches] == [24, 1]
    assert [task.weigh(TinyForCausalLM(), batch) for batch in batches] == [20, 0]


def test_hidden_tokens_are_weighed_by_how_many_there_are():
    task = tasks.masked_token(None, None, mask=7)
    batch, model = torch.arange(48).view(4, 12) % 7, Labelled()
    _, labels = task.scored(model, batch)
    assert task.weigh(model, batch) == int((labels != -100).sum()) not in (0, 48)


@pytest.mark.parametrize(
    "which, words", [("train", "the batch of step [1-4] has no label"), ("val", "no held-out label")]
)
def test_what_has_no_label_is_named(which, words, tmp_path, monkeypatch):
    batches = {"loader": labelled("pair", [24, 0 if which == "train" else 6])}
    batches["val"] = labelled("pair", [24 if which == "train" else 0])
    own(monkeypatch, **batches, model=Labelled)
    given = {"model": "own:model", "data": "own:loader", "val": "own:val", "batch": None}
    end = trained(tmp_path, Run(Variant("v"), 0.01, 1, "final", 4), **given)[-1]
    assert end["status"] == "crashed"
    assert re.search(words, end["error"])


def test_a_clients_batch_without_a_label_is_named(tmp_path, monkeypatch):
    rows = [row for batch in labelled("pair", [24, 24, 0, 0]) for row in zip(*batch, strict=True)]
    loader = torch.utils.data.DataLoader(rows, batch_size=1, shuffle=True)
    own(monkeypatch, loader=loader, val=labelled("pair", [24]), model=Labelled)
    given = {"model": "own:model", "data": "own:loader", "val": "own:val", "batch": None}
    owners = {"federated": True, "clients": 2, "split": "even"}
    end = trained(tmp_path, Run(Variant("v"), 0.01, 1, "final", 4), **given, **owners)[-1]
    assert end["status"] == "crashed"
    assert "has no label to learn" in end["error"]


def test_held_out_data_without_a_label_is_named_where_clients_train(tmp_path, monkeypatch):
    loader = torch.utils.data.DataLoader(
        [row for batch in labelled("pair", [24] * 4) for row in zip(*batch, strict=True)]
    )
    own(monkeypatch, loader=loader, val=labelled("pair", [0]), model=Labelled)
    given = {"model": "own:model", "data": "own:loader", "val": "own:val", "batch": None}
    owners = {"federated": True, "clients": 2, "split": "even"}
    end = trained(tmp_path, Run(Variant("v"), 0.01, 1, "final", 4), **given, **owners)[-1]
    assert end["error"] == "ValueError: no held-out label is to be learned: all are -100"


def test_rows_of_one_process_without_a_label_are_named_by_all_where_the_loss_is_not_a_number():
    rows = torch.full((2, 4, 6), 3)
    rows[1, 1::2] = -100
    asked = []

    def train(seed, number):
        asked.append((seed, number))
        return rows[0], rows[1]

    task = SimpleNamespace(weigh=lambda model, batch: int((batch[1] != -100).sum()))
    accelerator = SimpleNamespace(num_processes=2, reduce=lambda values, how: values)
    own = SimpleNamespace(accelerator=accelerator, task=task, plain=None, run=SimpleNamespace(seed=7))
    source = SimpleNamespace(train=train)
    losses = math.nan, 1.0, math.nan, math.nan
    recent = [(step, source, step + 10, torch.tensor(loss)) for step, loss in enumerate(losses, 3)]
    with pytest.raises(ValueError, match="the batch of step 5 has no label to learn in the rows of process 1"):
        single.Training._require_labels(own, recent)
    rows[1, 1, 0] = 2
    single.Training._require_labels(own, recent)
    assert asked == [(7, 15)] * 2


def joined(form, x, y):
    parts = {
        "pair": ((x, x), y),
        "dict": ({"x": x, "z": x}, y),
        "list of images": (list(x), y),
        "graphs": (x.repeat(3, 1), y),
    }
    maps = {"mapping": {"scale": torch.ones(()), "x": (x, x)}, "labels": {"x": list(x), "labels": y}}
    return {**parts, **maps}[form]


@pytest.mark.parametrize("form", ["pair", "dict", "list of images", "graphs", "mapping", "labels"])
def test_the_size_of_a_batch_is_that_of_its_samples_however_its_inputs_are_put_together(form, monkeypatch):
    batches = [joined(form, torch.zeros(count, 2), torch.arange(count) + 0.5) for count in (16, 1, 5)]
    own(monkeypatch, train=batches, val=list(batches))
    task = tasks.own_batches(samples.own_data("own:train", "own:val", None, 5), small)
    assert [task.size(batch) for batch in task.data.validation()] == [16, 1, 5]


def test_a_batch_without_an_axis_counts_as_one_sample(monkeypatch):
    own(monkeypatch, train=[{"x": torch.ones(()), "text": ["a"]}] * 4, val=[{"x": torch.zeros(())}])
    task = tasks.own_batches(samples.own_data("own:train", "own:val", None, 5), small)
    assert task.size(task.data.train(1, 1)) == 1


def test_too_few_own_batches_are_named(monkeypatch):
    own(monkeypatch, batches=[torch.zeros(1, 2)])
    with pytest.raises(ValueError, match="has 1 batches; at least 2 are needed"):
        samples.own_data("own:batches", None, None, 5)


def test_every_image_is_seen_once_an_epoch_and_none_that_is_held_out():
    task = tasks.load(settings(model="resnet", data="digits", batch=64))
    images = task.data
    seen = torch.cat([images.train(1, step)[0] for step in range(1, len(images.images) // 64 + 1)]).flatten(1)
    assert len(seen.unique(dim=0)) >= 0.99 * len(seen)
    held_out = torch.cat([batch[0] for batch in images.validation()])
    assert len(held_out) == 179
    assert not {tuple(row.tolist()) for row in seen} & {tuple(row.tolist()) for row in held_out.flatten(1)}


def test_ten_images_are_enough_and_nine_are_named():
    images, labels = torch.zeros(10, 1, 2, 2), torch.arange(10) % 2
    assert len(data.Images(images, labels, 2, "here").images) == 8
    with pytest.raises(ValueError, match="data 'here' has 9 images; at least 10 are needed"):
        data.Images(images[:9], labels[:9], 2, "here")


def test_an_image_folder_is_read_by_class(tmp_path):
    for name, shade in (("dark", 0), ("light", 255)):
        (tmp_path / name).mkdir()
        for i in range(6):
            Image.fromarray(numpy.full((9, 9, 3), shade, numpy.uint8)).save(tmp_path / name / f"{i}.png")
    images, labels, names = data.images_of(str(tmp_path), 8)
    assert names == ["dark", "light"]
    assert data.kind_of(str(tmp_path)) == "images"
    assert images.shape == (12, 3, 8, 8)
    assert torch.equal(images.mean((1, 2, 3)).sign(), labels * 2.0 - 1)


def shades(root, *paths):
    """Write images of one shade each, 0, 10, 20 and so on."""
    for at, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(numpy.full((5, 7, 3), 10 * at, numpy.uint8)).save(root / path)
    return str(root)


def order(pictures):
    """Return the places, among those that were written, of the images that were read."""
    return ((pictures.images.mean((1, 2, 3)) + 1) * 12.75).round().int().tolist()


RECORDED = {  # the files in the order in which datasets 5.2 reads them from a folder, and their classes
    "plain": (
        ["cat/9.png", "cat/10.png", "cat-x/1.png", "cat/b.png", "cat/B.png", "Dog/1.PNG", "cat/.a.png", "__x/1.png"],
        ([5, 2, 1, 0, 4, 3], [0, 2, 1, 1, 1, 1], ["Dog", "cat", "cat-x"]),
    ),
    "parts": (["q/cat/2.png", "p/dog/1.png", "p/cat/3.png", "p.a/cat/1.png"], ([3, 2, 1, 0], [0, 0, 1, 0], None)),
    "splits": (["train/dog/1.png", "train/cat/1.png", "test/cat/1.png", "val/dog/1.png"], ([1, 0], [0, 1], None)),
    "below": (
        ["all/my_training/dog/1.png", "all/val-1/cat/1.png", "all/my_training/cat/2.png"],
        ([2, 0], [0, 1], None),
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_image_folders_are_read_in_the_order_of_stored_comparisons(name, tmp_path):
    paths, (places, labels, names) = RECORDED[name]
    pictures = data.images_of(shades(tmp_path, *paths), 8)
    assert (order(pictures), pictures.labels.tolist()) == (places, labels)
    assert pictures.names == (names or ["cat", "dog"])


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/1-train.png", "a/2.png", "b/1_test.png", "b/2-val.png"], ["a", "b"]),
        (["a/1.png", "test/1.png", "train/1.png", "val/1.png"], ["a", "test", "train", "val"]),
        (["test/1.png", "test/2.png", "train/1.png"], ["test", "train"]),
        (["test/a/1.png", "val/b/1.png"], ["a", "b"]),
        (["more/a/1.png", "train/a/1.png", "train/b/1.png"], ["a", "b"]),
    ],
)
def test_all_images_are_read_whatever_files_and_classes_are_called(paths, names, tmp_path):
    pictures = data.images_of(shades(tmp_path, *paths), 8)
    assert order(pictures) == list(range(len(paths)))
    assert [pictures.names[label] for label in pictures.labels] == [path.split("/")[-2] for path in paths]
    assert pictures.names == names


def test_linked_folders_of_images_are_read(tmp_path):
    shades(tmp_path / "far", "a/1.png", "b/2.png")
    (tmp_path / "near").mkdir()
    for name in "ab":
        (tmp_path / "near" / name).symlink_to(tmp_path / "far" / name)
    assert data.kind_of(str(tmp_path / "near")) == "images"
    assert order(data.images_of(str(tmp_path / "near"), 8)) == [0, 1]


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        (["cat/1.png", "cat/2.png"], "has only one class, 'cat'; at least two are needed"),
        (["cat/1.png", "dog/2.png", "0.png"], "must have a folder for each class, and '0.png' lies in none"),
        (["a/cat/1.png", "b/2.png"], "must have a folder for each class, all equally deep, not 'b' and 'a/cat'"),
    ],
)
def test_image_folders_without_classes_are_refused(paths, told, tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"data {str(tmp_path)!r} {told}")):
        data.images_of(shades(tmp_path, *paths), 8)


def halve(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_a_damaged_image_of_a_folder_is_named_before_anything_is_trained(tmp_path, capsys):
    source = shades(tmp_path / "data", *(f"{name}/{i}.png" for name in ("cat", "dog") for i in range(6)))
    halve(tmp_path / "data" / "dog" / "3.png")
    words = ["--model", "resnet:dim=8", "--data", source, "--out", str(tmp_path / "out")]
    assert cli.main(["compare", *words]) == 2
    assert f"image {str(tmp_path / 'data' / 'dog' / '3.png')!r} cannot be read: " in capsys.readouterr().err


def test_a_damaged_image_of_a_data_set_is_numbered(tmp_path):
    from datasets import ClassLabel, Dataset, Features
    from datasets import Image as Picture

    shades(tmp_path, "0.png", "1.png")
    halve(tmp_path / "1.png")
    cells = [{"bytes": (tmp_path / f"{i}.png").read_bytes(), "path": None} for i in range(2)]
    features = Features({"image": Picture(), "label": ClassLabel(names=["a", "b"])})
    Dataset.from_dict({"image": cells, "label": [0, 1]}, features=features).save_to_disk(tmp_path / "data")
    source = f"hf:{tmp_path / 'data'}"
    with pytest.raises(ValueError, match=f"image 1 of data '{re.escape(source)}' cannot be read: "):
        data.images_of(source, 8)


def test_empty_folders_of_classes_are_reported(tmp_path, capsys):
    source = shades(tmp_path, "cat/1.png", "dog/2.png")
    for name in ("zebra", "ant", "dog/more"):
        (tmp_path / name).mkdir()
    course.print_folders_left_out(SimpleNamespace(settings=settings(model="resnet", data=source, val="digits")))
    assert capsys.readouterr().err.splitlines() == [
        f"data {source!r}: folder {name!r} has no images, and is left out" for name in ("ant", "zebra")
    ]


def test_a_folder_of_a_class_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    source, scandir = shades(tmp_path, "cat/1.png", "dog/2.png"), os.scandir

    def scan(path):
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)  # the system denies nothing to root
    with pytest.raises(ValueError, match=r"folder '.*/dog' of data .* cannot be read: Permission denied"):
        data.images_of(source, 8)


def test_splits_that_are_not_read_are_named(tmp_path, capsys):
    source = shades(tmp_path, "train/cat/1.png", "train/dog/2.png", "test/cat/3.png", "test/dog/4.png")
    course.print_folders_left_out(SimpleNamespace(settings=settings(model="resnet", data=source, val=None)))
    how = "to hold one out, name it with --val and the folder beside it with --data"
    assert capsys.readouterr().err == f"data {source!r}: not read: 'test'; {how}\n"
    inside = f"{source}/train"
    course.print_folders_left_out(SimpleNamespace(settings=settings(model="resnet", data=inside, val=f"{source}/test")))
    assert not capsys.readouterr().err


def test_a_model_with_too_few_outputs_is_refused_with_the_classes():
    images = data.Images(torch.zeros(100, 1, 2, 2), torch.arange(100) % 5, 8, "here")
    given = tasks.image_class(images, lambda variant, seed: nn.Identity())
    for outputs in (5, 6):
        assert given.loss(nn.Sequential(nn.Flatten(), nn.Linear(4, outputs)), images.train(1, 1)).isfinite()
    with pytest.raises(ValueError, match="the data have 5 classes, and the model 3 outputs"):
        given.loss(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), (torch.zeros(2, 1, 2, 2), torch.tensor([0, 1])))


def test_text_of_a_folder_is_joined(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.md").write_text("two")
    (tmp_path / "c.bin").write_bytes(b"\x00")
    assert data.text_of(str(tmp_path)) == "one\n\ntwo"


def test_a_folder_without_text_is_named(tmp_path):
    (tmp_path / "a.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"data '.*' is empty"):
        data.text_of(str(tmp_path))


def test_the_held_out_text_is_never_trained_on():
    task = tasks.load(settings())
    tokens = data.Tokens(torch.arange(1000), 4, 16, 2, "here")
    assert max(tokens.train(1, step).max() for step in range(50)) < 900 <= tokens.validation()[0].min()
    assert task.data.train(1, 1).shape == (4, 17)


@pytest.mark.parametrize("kind", ["saved", "saved-splits", "parquet", "json"])
def test_data_sets_of_hugging_face_are_read_from_a_folder(kind, tmp_path):
    from datasets import Dataset, DatasetDict

    rows = Dataset.from_dict({"number": [1, 2], "text": ["one", "two"]})
    folder = tmp_path / "data"
    folder.mkdir()
    {
        "saved": lambda: rows.save_to_disk(folder),
        "saved-splits": lambda: DatasetDict({"test": rows.select([0]), "train": rows}).save_to_disk(folder),
        "parquet": lambda: rows.to_parquet(folder / "train.parquet"),
        "json": lambda: rows.to_json(folder / "rows.jsonl"),
    }[kind]()
    assert data.text_of(f"hf:{folder}") == "one\n\ntwo"


@pytest.mark.parametrize("word, asked", [("hf:a/b", ("a/b", None)), ("hf:a/b:c@test", ("a/b", "c"))])
def test_a_data_set_is_asked_for_by_its_name_and_configuration(word, asked, monkeypatch):
    import datasets

    calls = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *words: calls.append(words) or {"train": 1, "test": 2})
    assert data.hugging_face(word) == (2 if "@" in word else 1)
    assert calls == [asked]


def test_saved_images_are_read_with_their_classes(tmp_path):
    from datasets import ClassLabel, Dataset, Features, Image

    pictures = [numpy.full((4, 4, 3), 255 * (i % 2), numpy.uint8) for i in range(12)]
    features = Features({"image": Image(), "label": ClassLabel(names=["dark", "light"])})
    rows = Dataset.from_dict({"image": pictures, "label": [i % 2 for i in range(12)]}, features=features)
    rows.save_to_disk(tmp_path / "data")
    images, labels, _ = data.images_of(f"hf:{tmp_path / 'data'}", 8)
    assert torch.equal(images.mean((1, 2, 3)).sign(), labels * 2.0 - 1)


@pytest.mark.parametrize("model", ["decoder", "hugging face"])
def test_known_models_learn_own_rows_of_tokens(model, tmp_path, monkeypatch):
    rows = torch.randint(0, 4, (240, 1)).expand(240, 17)
    own(monkeypatch, rows=torch.utils.data.DataLoader(rows, 8, shuffle=True))
    given = {} if model == "decoder" else {"model": saved("causal", tmp_path)}
    learns(tmp_path, Variant("v"), data="own:rows", steps=30, **given)


def test_a_layer_of_one_output_starts_by_its_inputs_as_others_do():
    model = models.same_start(torch.nn.Sequential(torch.nn.Linear(4096, 1), torch.nn.Linear(4096, 2)), 1)
    assert [layer.weight.std().item() for layer in model] == pytest.approx([1 / 64] * 2, rel=0.05)


def test_a_permuted_start_has_other_numbers_of_the_same_law():
    task = tasks.load(settings())
    own, twin = (dict(task.build(Variant("v", start=start), 3).named_parameters()) for start in ("own", "permuted"))
    matrices = [name for name, p in own.items() if p.dim() > 1]
    for name in matrices:
        assert not torch.equal(own[name], twin[name]), name
        assert torch.equal(own[name].sort(0).values, twin[name].sort(0).values)
    assert all(torch.equal(own[name], twin[name]) for name in own if name not in matrices)
    again = dict(task.build(Variant("v", start="permuted"), 3).named_parameters())
    assert all(torch.equal(twin[name], again[name]) for name in twin)


def test_a_users_measure_is_of_the_model_and_all_that_is_held_out(tmp_path, monkeypatch):
    def largest(model, batches):
        assert not model.training
        assert not torch.is_grad_enabled()
        return max(model(x).abs().max() for x, _ in batches)

    x = torch.randn(80, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :3].argmax(1)), 8)
    own(monkeypatch, loader=loader, model=small, largest=largest)
    given = {"model": "own:model", "data": "own:loader", "batch": None, "metric": "own:largest", "higher": True}
    evals = learns(tmp_path, Variant("v"), **given)
    task = tasks.load(settings(**given))
    with torch.no_grad():
        found = largest(task.build(Variant("v"), 1).eval(), task.data.validation())
    assert evals[0]["metric"] == pytest.approx(float(found))
    assert "accuracy" in evals[0]


@pytest.mark.parametrize(
    "measure, said",
    [
        (lambda model: 1.0, "takes 1 positional argument but 2 were given; it is called with the model and a list"),
        (lambda model, batches: math.nan, "gives nan for a model that is not trained"),
        (lambda model, batches: "good", "could not convert string to float"),
        (3, "is no function of a model and its held-out batches"),
    ],
)
def test_a_measure_that_cannot_be_taken_is_named_before_training(measure, said, monkeypatch):
    x = torch.randn(80, 4)
    own(monkeypatch, loader=[(x, x[:, :3].argmax(1))] * 3, model=small, measure=measure)
    given = settings(model="own:model", data="own:loader", batch=None, metric="own:measure")
    monkeypatch.setattr(samples.ByPlace, "_require_new", lambda *_: None)
    with pytest.raises(ValueError, match=f"metric 'own:measure' .*{said}"):
        tasks.check_variant(Variant("v"), given)


def test_a_batch_of_three_is_refused_in_words(monkeypatch):
    x = torch.randn(80, 4)
    own(monkeypatch, loader=TensorDataset(x, x, x[:, :3].argmax(1)), model=small)
    with pytest.raises(
        ValueError, match=r"a batch must be a pair of inputs and targets, such as \(\(x, z\), y\), or a"
    ):
        tasks.check_variant(Variant("v"), settings(model="own:model", data="own:loader", batch=None))


def test_the_direction_of_a_measure_is_said(monkeypatch):
    def score(model, batches):
        return 1.0

    own(monkeypatch, score=score)
    with pytest.raises(ValueError, match="does not say whether more is better: give --metric-direction"):
        measures.is_higher_better("own:score", None)
    assert measures.is_higher_better("own:score", "higher")
    score.higher_is_better = True
    assert measures.is_higher_better("own:score", None)
    assert not measures.is_higher_better("own:score", "lower")
    assert measures.is_higher_better("accuracy", None)
    with pytest.raises(ValueError, match="--metric-direction higher contradicts --metric loss"):
        measures.is_higher_better("loss", "higher")
    with pytest.raises(ValueError, match="metric 'f1' is unknown; it is 'loss', 'accuracy' or 'module:function'"):
        measures.is_higher_better("f1", None)


def test_what_tells_no_classes_has_no_accuracy():
    with pytest.raises(ValueError, match="has no accuracy: it tells no classes"):
        tasks.load(settings(metric="accuracy"))


def test_an_optimizer_of_matrices_steps_those_inside_the_model_and_adamw_the_rest():
    model = tasks.load(settings()).build(Variant("v"), 1)
    found = optimizers.make_optimizer("muon", model, 0.02, 0.1)
    muon, adamw = found.parts
    names = {id(p): name for name, p in model.named_parameters()}
    inside, rest = ({names[id(p)] for g in part.param_groups for p in g["params"]} for part in (muon, adamw))
    assert inside == {name for name, p in model.named_parameters() if "layers." in name and p.dim() == 2}
    assert inside | rest == set(names.values())
    assert "head.weight" in rest
    assert [g["lr"] for g in muon.param_groups] == [0.02]
    assert [g["lr"] for g in adamw.param_groups] == [pytest.approx(0.003)] * 2


def test_a_joint_optimizer_does_what_its_parts_do_and_is_resumed():
    def made():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 2))
        return model, optimizers.make_optimizer("muon", model, 0.02, 0.0)

    def stepped(model, optimizer, steps):
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * (step + 1) * group.get("share", 1.0)
            model(torch.arange(8.0).view(2, 4)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    model, joint = made()
    stepped(model, joint, 2)
    kept = copy.deepcopy((model.state_dict(), joint.state_dict()))
    other, resumed = made()
    other.load_state_dict(kept[0])
    resumed.load_state_dict(kept[1])
    stepped(model, joint, 2)
    stepped(other, resumed, 2)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
    plain, _ = made()
    first = torch.optim.Muon([plain[0].weight, plain[1].weight], lr=0.02, weight_decay=0.0)
    last = torch.optim.AdamW([plain[0].bias, plain[1].bias, *plain[2].parameters()], lr=0.003, weight_decay=0.0)
    for step in range(2):
        first.param_groups[0]["lr"], last.param_groups[0]["lr"] = 0.01 * (step + 1), 0.0015 * (step + 1)
        plain(torch.arange(8.0).view(2, 4)).square().sum().backward()
        for part in (first, last):
            part.step()
            part.zero_grad()
    assert all(torch.allclose(kept[0][name], p) for name, p in plain.named_parameters())


def test_a_model_without_hidden_matrices_is_refused():
    with pytest.raises(ValueError, match="'muon' takes matrices only, and the model has none inside it"):
        optimizers.make_optimizer("muon", torch.nn.Linear(3, 3), 0.1, 0.0)


@pytest.mark.parametrize(("apart", "least"), [(None, 60), (torch.arange(6), 6)])
def test_as_many_tokens_as_an_error_asks_for_are_enough(apart, least):
    data.Tokens(torch.arange(least), 1, 4, 1, "here", apart)
    with pytest.raises(
        ValueError, match=rf"'here' has {least - 1} tokens; at least {least + (apart is None)} are needed"
    ):
        data.Tokens(torch.arange(least - 1), 1, 4, 1, "here", apart)


def test_places_of_held_out_tokens_above_two_to_the_24_end_at_the_last(monkeypatch):
    cuts = []
    monkeypatch.setattr(data.Tokens, "_cut", lambda self, tokens, places: cuts.append(places) or places)
    zeros = torch.zeros(1, dtype=torch.long).expand
    for count in (54_000_071, 2**31 + 131):
        data.Tokens(zeros(1000), 8, 64, 5, "x", zeros(count)).validation()
        assert cuts[-1].tolist() == [place * (count - 65) // 39 for place in range(40)]


class Given:
    """Batches of a user's, for a model that gives what it is given."""

    def __init__(self, batch):
        self.batch = batch

    def validation(self):
        return [self.batch]


def given(preds, target):
    task = tasks.own_batches(Given((preds, target)), lambda variant, seed: nn.Identity())
    return task, task.loss(nn.Identity(), (preds, target))


@pytest.mark.parametrize("shape", [(2, 8, 8, 8), (2, 3, 4, 5), (2, 3, 5)])
def test_the_classes_of_an_image_stand_second(shape):
    preds, target = torch.randn(shape), torch.randint(shape[1], (shape[0], *shape[2:]))
    torch.testing.assert_close(given(preds, target)[1], nn.functional.cross_entropy(preds, target))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
def test_classes_are_integers_of_any_width_and_truth_values(dtype):
    preds, target = torch.randn(6, 2), torch.arange(6) % 2
    torch.testing.assert_close(given(preds, target.to(dtype))[1], nn.functional.cross_entropy(preds, target))


def test_the_classes_of_tokens_stand_last():
    preds, target = torch.randn(2, 5, 5), torch.randint(5, (2, 5))
    torch.testing.assert_close(given(preds, target)[1], nn.functional.cross_entropy(preds.mT, target))


def test_numbers_are_compared_one_by_one_and_never_each_with_all():
    preds, target = torch.randn(6, 1), torch.randn(6)
    torch.testing.assert_close(given(preds, target)[1], nn.functional.mse_loss(preds[:, 0], target))
    for wrong in (torch.randn(6, 2), torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"and those wanted have \(6,\)"):
            given(wrong, target)
    with pytest.raises(ValueError, match=r"^targets of shape \(6,\) are whole .* hand in classes as integers"):
        given(torch.randn(6, 2), torch.tensor([0.0, 1, 1, 0, 1, 0]))
    with pytest.raises(ValueError, match=r"\(6, 2\) do not fit classes of shape \(6, 1\)"):
        given(torch.randn(6, 2), torch.zeros(6, 1).long())


def test_labels_that_are_hidden_count_as_neither_right_nor_wrong():
    preds, target = torch.eye(4), torch.tensor([0, -100, 2, 1])
    task, _ = given(preds, target)
    assert task.accuracy(nn.Identity(), (preds, target)).item() == pytest.approx(2 / 3)


@pytest.mark.parametrize("own, mask", [(7, 7), (0, 0), (None, 299)])
def test_what_is_hidden_is_the_tokenizers_own_mask_or_the_last_token(monkeypatch, own, mask):
    class Tokenizer:
        mask_token_id = own

        def __len__(self):
            return 300

    hub = SimpleNamespace(AutoTokenizer=SimpleNamespace(from_pretrained=lambda name: Tokenizer()))
    monkeypatch.setattr(tasks, "_tokens", lambda encode, settings: "tokens")
    assert tasks._tokenize(hub, "x", SimpleNamespace(vocab_size=300), None) == ("tokens", mask)
