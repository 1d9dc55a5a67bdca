"""`normkit fold|swap|convert MODEL -o OUT --check`: what is written gives the same numbers when it is read again."""

import argparse
import json
import pickle
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import cli
from normkit.optional import library
from normkit.surgery import commands, saving
from normkit.surgery.exact import fusing
from normkit.surgery.exact.racing import Outcome


@pytest.mark.parametrize("apart, status", [(9e-5, 0), (2e-4, 1), (float("nan"), 1)])
def test_a_model_that_is_another_when_it_is_read_again_is_a_failure(apart, status, monkeypatch, capsys):
    read = []
    monkeypatch.setattr(saving, "load", lambda word: read.append(word) or torch.nn.Identity())
    monkeypatch.setattr(commands.proof, "apart", lambda *given: apart)
    options = argparse.Namespace(model="own:make@in", out="out")
    assert commands._check_saved(options, torch.nn.Identity(), torch.ones(1)) == status
    assert read == ["own:make@out"]
    assert f"differ by {apart:.0e} of the largest number" in capsys.readouterr().err


MINE = """
import torch
from torch import nn

import normkit as nk


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


def stirred(model):
    torch.manual_seed(0)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            tensor.data.copy_(torch.rand(tensor.shape) + 0.2 if "var" in name else torch.randn(tensor.shape))
    return model


def words():
    return stirred(nn.Sequential(nn.Embedding(9, 8), Block(), nn.LayerNorm(8), nn.Linear(8, 9)))


def embedded():
    return stirred(nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), Block(), nn.LayerNorm(8), nn.Linear(8, 9)))


class Beside(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        return self.conv(x) + self.norm(x)


def beside():
    return stirred(Beside())


def half():
    return images().bfloat16()


def spiking():
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)), nk.MembraneBatchNorm(6, steps=4))


def other():
    model = images()
    model[0].weight.data.mul_(-2)
    return model


def batches():
    return [torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(i)) for i in range(2)]


empty = []


def images():
    return stirred(nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(32, 5),
    ))
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fold", "my_models:images", "--input", "2x3x6x6"], "2 of 2 sites changed"),
        (["fold", "my_models:beside", "--input", "2x3x6x6"], "to which it was added"),
        (["fold", "my_models:spiking", "--input", "4x2x8"], "in its thresholds"),
        (["fold", "my_models:half", "--input", "2x3x6x6"], "2 of 2 sites changed"),
        (["convert", "my_models:words", "pre-crmsnorm", "--input", "tokens:2x5"], "crmsnorm"),
        (["convert", "my_models:embedded", "pre-rmsnorm", "--input", "tokens:2x5"], "centred"),
        (["convert", "my_models:embedded", "pre-crmsnorm", "--input", "tokens:2x5"], "centred"),
        (["swap", "my_models:words", "layernorm=derf", "--input", "tokens:2x5"], "Derf(8"),
        (["recalibrate", "my_models:images", "--data", "my_models:batches"], "estimated anew"),
        (
            ["average", "my_models:images", "my_models:other", "--weights", "0.7", "0.3", "--input", "2x3x6x6"],
            "the average of 2",
        ),
        (
            ["average", "my_models:images", "my_models:other", "--data", "my_models:batches"],
            "deviation as its parents'",
        ),
        (["adapt", "my_models:images", "--input", "2x3x6x6", "--weight", "0.3"], "0.3 of it the batch's"),
    ],
)
def test_what_is_written_is_read_again(words, said, here, capsys):
    assert cli.main([*words, "-o", "out", "--check"]) == 0
    told = capsys.readouterr()
    assert said in told.out
    assert "its outputs differ by 0e+00" in told.err
    names = sorted(path.name for path in (here / "out").iterdir())
    assert names == ["model.safetensors", "normkit.json", "normkit.sha256"]
    assert not list(here.glob(".out*"))
    assert cli.main([*words, "-o", "out"]) == 2
    assert "out exists already" in capsys.readouterr().err


ITERATED = """
import torch
from torch import nn

stream = iter([torch.tensor([[value], [value]]) for value in (90.0, 0.0, 6.0)])


def rest():
    return stream


class Anew:  # at each iter(), as NVIDIA DALI's iterators do
    def __iter__(self):
        self.left = [torch.tensor([[value], [value]]) for value in (90.0, 0.0, 6.0)]
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return self.left.pop(0)


anew = Anew()


def net():
    return nn.Sequential(nn.BatchNorm1d(1))
"""


@pytest.mark.parametrize("name", ["stream", "rest", "anew"])
def test_an_iterator_is_gone_over_from_its_first_batch(name, here, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "iterated", raising=False)
    (here / "iterated.py").write_text(ITERATED)
    data = ["--data", f"iterated:{name}"]
    assert cli.main(["recalibrate", "iterated:net", *data, "-o", "out", "--check"]) == 0
    assert nk.load("iterated:net@out")[0].running_mean.item() == pytest.approx(32)
    module = sys.modules.pop("iterated")
    assert nk.recalibrate(module.net(), module.Anew()).model[0].running_mean.item() == pytest.approx(32)
    assert cli.main(["average", *2 * ["iterated:net"], *data]) == 2
    assert "data must be a list or a loader" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["fold"], ["convert"], ["swap"], ["average"], ["recalibrate"], ["adapt"], ["remove"], ["quantize", "--bits", "4"]],
    ids=lambda words: words[0],
)
def test_a_folder_that_cannot_be_written_is_refused_before_a_model_is_loaded(words, here, capsys):
    more = {"convert": ["pre-rmsnorm"], "swap": ["layernorm=derf"], "average": ["nowhere:too"]}.get(words[0], [])
    data = ["--data", "nowhere:batches"] * (words[0] in ("recalibrate", "remove"))
    assert cli.main([*words, "nowhere:model", *more, *data, "-o", "my_models.py/out"]) == 2
    said = f"normkit {words[0]}: my_models.py/out cannot be written: {here / 'my_models.py'}: Not a directory\n"
    assert capsys.readouterr().err == said


def test_a_model_of_transformers_stays_one(here, capsys):
    transformers = library("transformers")
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=2, vocab_size=9, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    transformers.GPT2LMHeadModel(config).save_pretrained("gpt")
    assert cli.main(["convert", "gpt", "pre-rmsnorm", "-o", "out", "--check", "--json"]) == 0
    told = capsys.readouterr()
    assert {change["became"] for change in json.loads(told.out)} >= {"rmsnorm", "centred"}
    assert "differ by 0e+00" in told.err
    again = saving.load("out")
    assert isinstance(again, transformers.GPT2LMHeadModel)
    assert not torch.equal(again.lm_head.weight, again.transformer.wte.weight)


@pytest.mark.parametrize("given", [[], ["--input", "tokens:2x5"]])
def test_an_encoder_decoder_is_given_tokens_for_both(given, here, capsys):
    transformers = library("transformers")
    config = transformers.T5Config(
        d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=50, decoder_start_token_id=0
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained("t5")
    assert cli.main(["recognize", "t5", "--check", *given]) == 0
    assert cli.main(["swap", "t5", "rmsnorm=dyt", "-o", "out", "--check", *given]) == 0
    printed = capsys.readouterr()
    assert "7 of 7 sites changed" in printed.out
    assert "read again, its outputs differ by 0e+00" in printed.err
    x = commands.example(transformers.T5EncoderModel(config))
    assert list(x) == ["input_ids"]


@pytest.mark.parametrize(
    ("of", "shape"),
    [
        ({"image_size": 8}, (1, 3, 8, 8)),
        ({"image_size": [6, 8], "num_channels": 1}, (1, 1, 6, 8)),
    ],
)
def test_an_example_of_images_is_what_the_configuration_has(of, shape):
    model = nn.Conv2d(3, 2, 1)
    model.config, model.main_input_name = SimpleNamespace(**of), "pixel_values"
    given = commands.example(model)
    assert {name: x.shape for name, x in given.items()} == {"pixel_values": shape}
    model.main_input_name = "input_values"
    with pytest.raises(ValueError, match="what the model takes is not known: give --input"):
        commands.example(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_an_example_of_numbers_is_of_the_type_of_the_model(dtype):
    model = nn.Linear(2, 2).to(dtype)
    assert commands.example(model, "1x2").dtype is dtype
    assert commands.example(model, "tokens:1x2").dtype is torch.int64
    mixed = nn.Sequential(model, nn.Linear(2, 2, dtype=torch.float32))
    assert commands.example(mixed, "1x2").dtype is torch.float32
    model.pretrained_cfg = {"input_size": (1, 2, 2)}
    assert commands.example(model).dtype is dtype
    model.main_input_name, model.config = "pixel_values", SimpleNamespace(image_size=2)
    del model.pretrained_cfg
    assert commands.example(model)["pixel_values"].dtype is dtype


def test_transformers_refuses_a_changed_model_that_it_would_open_as_the_old_one(here, capsys):
    transformers = library("transformers")
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9, n_positions=16)
    transformers.GPT2LMHeadModel(config).save_pretrained("gpt")
    assert cli.main(["swap", "gpt", "layernorm=rmsnorm:bias=True", "-o", "out", "--check"]) == 0
    assert "differ by 0e+00" in capsys.readouterr().err
    for kind in (transformers.AutoConfig, transformers.AutoModel, transformers.AutoModelForCausalLM):
        with pytest.raises(ValueError, match=r"nk\.load opens its folder"):
            kind.from_pretrained("out")
    with pytest.raises(OSError, match="no file named"):
        transformers.GPT2LMHeadModel.from_pretrained("out")
    assert cli.main(["recognize", "hf:out"]) == 2
    assert "nk.load opens its folder" in capsys.readouterr().err
    assert isinstance(saving.load("out"), transformers.GPT2LMHeadModel)


@pytest.mark.parametrize("pretrained", [True, False])
def test_timm_refuses_it_as_well(pretrained, here):
    timm = library("timm")
    model = timm.create_model("test_vit", num_classes=3).eval()
    saving.save(model, nk.swap(model, "rmsnorm:bias=True", inplace=False).model, "out")
    with pytest.raises(RuntimeError, match=r"nk\.load opens its folder"):
        timm.create_model("local-dir:out", pretrained=pretrained)
    x = torch.randn(1, 3, 160, 160)
    again = saving.load("out")
    assert type(again.norm) is nk.RMSNorm
    assert again(x).shape == (1, 3)


LLAMA = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 50,
}  # fmt: skip


@pytest.fixture
def fast(monkeypatch):
    """Let the library's norms be the faster ones, on whatever machine."""
    for name in ("race", "race_addition", "race_turn", "race_models"):
        monkeypatch.setattr(fusing, name, lambda *_, **__: Outcome(1.0, 0.5, True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_fused_is_read_by_transformers_too(dtype, here, fast, capsys):
    transformers = library("transformers")
    made = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**LLAMA, head_dim=16)).eval().to(dtype)
    made.save_pretrained("qwen")
    assert cli.main(["fuse", "qwen", "-o", "out", "--check"]) == 0
    told = capsys.readouterr()
    assert "5 of 5 sites changed" in told.out
    assert "differ by 0e+00" in told.err
    edits = json.loads((here / "out" / "normkit.json").read_text())["edits"]
    calls = {edit["site"]: edit["words"]["calls"] for edit in edits if edit["kind"] == "calls"}
    assert calls["model.layers.0"] == [["add", "post_attention_layernorm"]]
    assert calls["model.layers.0.self_attn"] == [["turn", "q_norm", "k_norm"]]
    tokens = torch.arange(14).view(2, 7)
    made, again = (transformers.AutoModelForCausalLM.from_pretrained(place) for place in ("qwen", "out"))
    torch.testing.assert_close(again(tokens).logits, made(tokens).logits, rtol=0, atol=0)
    fused = saving.load("out")
    assert type(fused.model.norm).__name__ == "RMSNorm"
    assert {t.dtype for t in fused.state_dict().values()} == {dtype}


def test_what_is_fused_keeps_its_own_names(here, fast, capsys):
    (here / "named.py").write_text(NAMED)
    assert cli.main(["fuse", "named:build", "--input", "4x8", "-o", "out", "--check"]) == 0
    assert "differ by 0e+00" in capsys.readouterr().err
    again = saving.load("named:build@out")
    assert list(again.state_dict()) == ["0.weight", "0.bias", "1.gamma"]
    assert type(again[1]).__name__ == "RMSNorm"
    assert list(pickle.loads(pickle.dumps(again)).state_dict()) == ["0.weight", "0.bias", "1.gamma"]


NAMED = """
import torch
from torch import nn


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.linspace(0.5, 2, 8))

    def forward(self, x):
        return self.gamma * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), Odd())


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(8, 8), Odd()

    def forward(self, x):
        return self.norm(self.up(x)) * self.norm.gamma.sum()
"""


def test_a_pattern_that_fits_no_norm_is_reported(here, capsys):
    (here / "named.py").write_text(NAMED)
    assert cli.main(["fuse", "named:build", "--input", "4x8", "--where", "blocks.*"]) == 1
    assert "no norm of it has a name like 'blocks.*'" in capsys.readouterr().err


def test_a_fold_that_finds_nothing_says_why(here, capsys):
    (here / "fresh.py").write_text(
        "from torch import nn\ndef normed(): return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))\n"
        "def plain(): return nn.Linear(4, 8)\n"
    )
    assert cli.main(["fold", "fresh:normed", "--input", "2x4"]) == 1
    assert "nothing to fold in its norms (layernorm): they have no gain but 1" in capsys.readouterr().err
    assert cli.main(["fold", "fresh:plain", "--input", "2x4"]) == 1
    assert "it has no norm to change" in capsys.readouterr().err


def test_a_class_that_wants_arguments_is_no_model(here, capsys):
    assert cli.main(["fold", "torch.nn:Linear", "--input", "2x4"]) == 2
    error = capsys.readouterr().err
    assert "torch.nn:Linear wants in_features and out_features; write a function without arguments" in error


def test_what_is_recognized_is_put_in_its_place_and_compared(here, capsys):
    (here / "named.py").write_text(NAMED)
    assert cli.main(["recognize", "named:build", "--check", "--input", "4x8"]) == 0
    told = capsys.readouterr()
    assert "1 recognized, 0 not" in told.out
    assert "with the 1 that were recognized in their places, outputs differ by" in told.err
    assert cli.main(["recognize", "named:Reads", "--check", "--input", "4x8"]) == 1
    assert "has no attribute 'gamma'" in capsys.readouterr().err
    assert cli.main(["recognize", "named:build", "--check"]) == 2
    assert "what the model takes is not known" in capsys.readouterr().err


WHOLE = """
from torch import nn


class Standardized(nn.Module):
    def forward(self, x):
        return (x - x.mean(-1, True)) / (x.var(-1, False, keepdim=True) + 1e-5).sqrt()


def build():
    return nn.Sequential(nn.Conv1d(3, 8, 5), Standardized())
"""


def test_a_norm_over_all_of_an_axis_is_compared_at_the_length_that_it_was_recognized_at(here, capsys):
    (here / "whole.py").write_text(WHOLE)
    assert cli.main(["recognize", "whole:build", "--check", "--input", "2x3x16"]) == 0
    assert "with the 1 that were recognized in their places, outputs differ by" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["fold", "my_models:words"], 2, "what the model takes is not known: give --input"),
        (["fold", "my_models:words", "--input", "5xx"], 2, "--input must be like"),
        (["fold", "my_models:images", "--input", "2x5x6x6"], 2, "does not take the example"),
        (["fold", "my_models:images", "--input", "2x3x6x6", "--check"], 2, "name a folder with -o"),
        (["fold", "my_models:images", "--input", "2x3x6x6", "--where", "nowhere", "-o", "out"], 1, ""),
        (["convert", "my_models:images", "pre-rmsnorm", "--input", "2x3x6x6"], 2, "no layer norm to convert"),
        (["average", "my_models:images", "my_models:words", "-o", "out"], 2, "no network like models[0]: of 1.bias"),
        (["average", "my_models:images", "my_models:other", "--weights", "1"], 2, "each of the 2 models a share"),
        (
            ["swap", "my_models:words", "layernorm=derf", "--input", "tokens:1x3", "-o", "/proc/o"],
            2,
            "/proc/o cannot be written",
        ),
        (["recalibrate", "my_models:images", "--data", "no:where", "-o", "."], 2, ". exists already; name a new"),
        (["swap", "my_models:words", "layernorm=no-such", "--input", "tokens:1x3"], 2, "no-such"),
        (["swap", "my_models:words", "layernorm=derf", "layernorm=dyt"], 2, "layernorm is named twice"),
        (["swap", "my_models:words", "layrnorm"], 2, "no method 'layrnorm'; did you mean 'layernorm'"),
        (["swap", "my_models:words", "layrnorm=derf"], 2, "no method 'layrnorm'; did you mean 'layernorm'"),
        (["recalibrate", "my_models:images", "--data", "my_models:empty"], 2, "recalibrate: data holds no batch"),
        (["average", *2 * ["my_models:images"], "--data", "my_models:empty"], 2, "average: data holds no batch"),
        (["average", *2 * ["my_models:images"], "--repair", "reshift"], 2, "--repair and --layers go by --data"),
        (["average", *2 * ["my_models:images"], "--layers", "0"], 2, "--repair and --layers go by --data"),
        (
            ["average", *2 * ["my_models:images"], "--data", "my_models:batches", "--repair", "none", "--layers", "0"],
            2,
            "--layers are those to repair, and --repair none repairs none",
        ),
    ],
)
def test_what_goes_wrong_is_reported_and_nothing_is_written(words, status, said, here, capsys):
    assert cli.main(words) == status
    assert said in capsys.readouterr().err
    assert not (here / "out").exists()


def test_the_table_tells_how_each_was_recognized_and_all_can_be_probed(here, capsys):
    (here / "one_norm.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.LayerNorm(8))\n"
    )
    rows = []
    for more in ([], ["--prove"]):
        assert cli.main(["recognize", "one_norm:build", *more]) == 0
        rows.append([line.split()[-1] for line in capsys.readouterr().out.splitlines()[:2]])
    assert rows == [["how", "known"], ["how", "probed"]]


def test_every_command_that_changes_a_model_is_a_row():
    assert list(commands.VERBS) == list(cli.SURGERY)


@pytest.mark.parametrize("name", commands.VERBS)
def test_the_help_of_a_verb_says_what_proves_it(name, capsys):
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    assert " ".join(commands.VERBS[name].proof.split()) in " ".join(capsys.readouterr().out.split())
