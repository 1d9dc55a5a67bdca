"""The coordinate check: activations' change in the first steps, over widths."""

import json
import sys
import types

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import cli
from normkit.optional import let_torchvision_load, library
from normkit.watching import coordinate_check
from normkit.watching.widths import FLAT, CoordinateCheck, builder

let_torchvision_load()
WIDTHS = [32, 64, 128, 256]


def mlp(width):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 5))


def decoder(width):
    return nk.Decoder(vocab=64, dim=width, depth=2, heads=width // 16, tied=False)


@pytest.mark.parametrize("optimizer, lr", [("adamw", 3e-3), ("sgd", 0.1), ("muon", 0.02)])
@pytest.mark.parametrize("parametrization", ["mup", "spectral"])
def test_rates_by_width_keep_changes_flat_and_one_rate_does_not(optimizer, lr, parametrization):
    found = coordinate_check(mlp, WIDTHS, optimizer=optimizer, lr=lr, parametrization=parametrization)
    assert found.flat(parametrization)
    assert abs(found.worst(parametrization)[1]) < 0.15
    assert not found.flat("standard")
    site, power = found.worst("standard")
    assert power > 0.45
    assert site == "4"


def test_a_decoder_is_flat_under_mup_and_grows_with_one_rate():
    found = coordinate_check(decoder, [32, 64, 128], optimizer="adamw", lr=3e-3, seeds=1)
    assert list(found.changes["mup"]) == ["embedding", "layers.0", "layers.1", "head"]
    assert found.flat("mup")
    assert found.worst("standard")[1] > 0.5


def test_changes_are_root_mean_squares_since_the_start():
    """One linear layer under gradient descent by hand, without the dropout: the model is an embedding's rows."""
    build = lambda width: nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 2), nn.Dropout(0.5))  # noqa: E731
    tokens = torch.tensor([[0, 1]])
    found = coordinate_check(build, [1, 2], batches=[tokens], optimizer="sgd", lr=0.5, steps=2, seeds=1)
    torch.manual_seed(0)
    model, outputs = build(1).eval(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    classes = torch.randint(2, (2,), generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        outputs.append(model(tokens).detach())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), classes).backward()
        optimizer.step()
    want = [float((y - outputs[0]).square().mean().sqrt()) for y in outputs[1:]]
    assert found.changes["standard"]["1"][0].tolist() == pytest.approx(want, rel=1e-5)


def test_powers_and_verdicts():
    changes = {"standard": {"a": torch.tensor([[1.0], [2.0], [4.0]]), "b": torch.ones(3, 1)}}
    changes["mup"] = {"a": torch.tensor([[1.0], [float("nan")], [1.0]]), "b": torch.ones(3, 1)}
    found = CoordinateCheck([8, 16, 32], "mup", "by hand", changes)
    assert found.power("standard", "a") == pytest.approx(1.0)
    assert found.power("standard", "b") == pytest.approx(0.0)
    assert found.worst("mup") == ("a", float("inf"))
    assert "standard: not flat: width^+1.00 at a" in str(found)
    assert found.table()[1] == ("a", "standard", "1", "2", "4", "+1.00")
    assert FLAT < 0.3


def test_a_site_that_does_not_change_is_flat_and_hides_no_other():
    def frozen(width):
        model = mlp(width)
        model[0].requires_grad_(False)
        return model

    found = coordinate_check(frozen, WIDTHS, lr=3e-3)
    named = coordinate_check(mlp, WIDTHS, lr=3e-3)
    assert found.changes["mup"]["0"].count_nonzero() == 0
    assert found.power("mup", "0") == 0
    assert found.flat("mup")
    assert found.worst("standard")[0] == named.worst("standard")[0] == "4"

    def from_zero(width):
        model = mlp(width)
        nn.init.zeros_(model[4].weight)
        return model

    first = coordinate_check(from_zero, WIDTHS, lr=3e-3, steps=1, parametrization="standard")
    assert [first.power("standard", site) for site in ("0", "2")] == [0, 0]
    assert first.worst("standard") == ("4", pytest.approx(1.0, abs=0.3))


def test_a_change_at_some_widths_alone_is_not_flat():
    found = CoordinateCheck([8, 16], "standard", "by hand", {"standard": {"a": torch.tensor([[0.0], [1.0]])}})
    assert found.power("standard", "a") == float("inf")
    assert not found.flat("standard")


def test_the_command_prints_draws_and_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "own_models", types.SimpleNamespace(mlp=mlp))
    words = ["inspect", "own_models:mlp", "--widths", "32,64,128", "--lr", "0.003", "--seeds", "1"]
    assert cli.main([*words, "--plot", str(tmp_path / "widths.svg")]) == 0
    out, err = capsys.readouterr()
    assert "mup: flat within width^0.25" in out
    assert "standard: not flat" in out
    assert (tmp_path / "widths.svg").read_text().count("<!-- 4 -->") >= 1
    (tmp_path / "widths.html").touch()
    assert err == f"wrote {tmp_path / 'widths.svg'}\n"
    assert cli.main([*words, "--plot", str(tmp_path / "widths.html")]) == 0
    assert "flat in width" in (tmp_path / "widths.html").read_text()
    assert capsys.readouterr().err == f"wrote {tmp_path / 'widths.html'}, in place of an earlier one\n"
    assert cli.main([*words, "--parametrization", "standard", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["flat"] == {"standard": False}
    assert len(told["changes"]["standard"]["4"]) == 3


@pytest.mark.parametrize(
    "words, message",
    [
        (["--widths", "64"], "at least two different numbers"),
        (["--widths", "64,x"], "whole numbers between commas"),
        (["--widths", "64,128", "--optimizer", "soap"], "not for 'soap'"),
        (["--widths", "64,128", "--optimizer", "adamv"], "adamw"),
        (["--plot", "x.svg"], "--plot goes with --widths"),
    ],
)
def test_wrong_words_are_named(words, message, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "own_models", types.SimpleNamespace(mlp=mlp))
    assert cli.main(["inspect", "own_models:mlp", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name, kind", [("model", "Linear"), ("size", "int")])
def test_a_factory_is_called_with_a_width(name, kind, monkeypatch):
    monkeypatch.setitem(sys.modules, "own_models", types.SimpleNamespace(model=nn.Linear(2, 2), size=64))
    with pytest.raises(ValueError, match=f"own_models:{name} must be a function .* with a width, not {kind}"):
        builder(f"own_models:{name}")


def test_inputs_that_grow_and_models_without_a_width_are_named():
    grows = lambda width: nn.Sequential(nn.Linear(width, 4), nn.Linear(4, 2))  # noqa: E731
    with pytest.raises(ValueError, match="inputs must not grow with the width"):
        coordinate_check(grows, [4, 8])
    with pytest.raises(TypeError, match="gives int, not a"):
        coordinate_check(lambda width: width, [4, 8])


@pytest.mark.filterwarnings("ignore")
def test_models_of_transformers_and_timm_keep_the_size_of_their_heads(tmp_path):
    transformers = library("transformers")
    small = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    small |= {"num_key_value_heads": 2, "intermediate_size": 48, "architectures": ["LlamaForCausalLM"]}
    transformers.LlamaConfig(**small, tie_word_embeddings=True).save_pretrained(tmp_path)
    model = builder(str(tmp_path))(64)
    attention = model.model.layers[0].self_attn
    assert (attention.q_proj.weight.shape, attention.k_proj.weight.shape) == ((64, 64), (32, 64))
    assert model.model.layers[0].mlp.up_proj.weight.shape == (96, 64)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert attention.head_dim == 8
    with pytest.raises(ValueError, match="at width 36 the num_attention_heads"):
        builder(str(tmp_path))(36)
    library("timm")
    vit = builder("timm:vit_tiny_patch16_224")(128)
    assert (vit.embed_dim, vit.blocks[0].attn.num_heads) == (128, 2)
    with pytest.raises(ValueError, match="has no width that can be set"):
        builder("timm:test_resnet")
