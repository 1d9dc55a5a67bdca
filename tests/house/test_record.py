"""What is recorded is replayed: the numbers of another's code, through the catalogue's method."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from normkit.contract.goldens import Golden, Optimizer, Rule, Text, places, record
from normkit.contract.goldens.replay import functions, replay

DRAW = torch.Generator().manual_seed(0)


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=DRAW)


def batchnorm(case="plain", **how):
    theirs = nn.BatchNorm1d(3, momentum=0.3).double()
    golden = Golden("batchnorm", case, source="torch", args=[3], kwargs={"momentum": 0.3}, **how)
    golden.state(weight=theirs.weight, bias=theirs.bias, running_mean=theirs.running_mean)
    golden.state(running_var=lambda: theirs.running_var)
    for mode in ("train", "train", "eval"):
        golden.step(theirs, {"x": numbers(5, 3)}, mode=mode)
    return golden


def block():
    attention, feedforward = (nn.Linear(4, 4, bias=False, dtype=torch.float64) for _ in range(2))
    norms = [nn.LayerNorm(4, dtype=torch.float64) for _ in range(2)]

    def theirs(x):
        x = x + attention(norms[0](x))
        return x + feedforward(norms[1](x))

    golden = Golden("pre-norm", "plain", kind="block", source="the equations", kwargs={"dim": 4, "norm": "layernorm"})
    golden.state(**{"attention.weight": attention.weight, "feedforward.weight": feedforward.weight})
    golden.state(**{"attention_norm.weight": norms[0].weight, "feedforward_norm.weight": norms[1].weight})
    golden.step(theirs, {"x": numbers(2, 3, 4)})
    return golden


def layer():
    theirs = nn.TransformerEncoderLayer(
        4, 2, 6, dropout=0.0, activation="relu", bias=False, norm_first=True, batch_first=True
    )
    theirs.double()
    fused = theirs.self_attn.in_proj_weight
    options = {"dim": 4, "heads": 2, "hidden": 6, "activation": "relu", "placement": "pre-norm", "causal": False}
    golden = Golden("transformer-layer", "plain", kind="layer", source="torch", kwargs=options)
    golden.state(
        **{
            "attention.query.weight": (fused, lambda w: w[:4]),
            "attention.key.weight": (fused, lambda w: w[4:8]),
            "attention.value.weight": (fused, lambda w: w[8:]),
            "attention.output.weight": theirs.self_attn.out_proj.weight,
            "feedforward.up.weight": theirs.linear1.weight,
            "feedforward.down.weight": theirs.linear2.weight,
        }
    )
    golden.step(theirs, {"x": numbers(2, 3, 4)})
    return golden


def optimizer():
    start = {"a": numbers(3), "b": numbers(5)}
    groups = [{"params": ["a"], "kwargs": {"lr": 0.1}}, {"params": ["b"]}]
    golden = Optimizer("adamp", "plain", source="torch's Adam, for vectors", parameters=start, groups=groups)
    golden.build(lambda given: torch.optim.Adam(given, lr=1e-3))
    for _ in range(3):
        golden.step({"a": numbers(3), "b": numbers(5)})
    golden.step({"b": numbers(5)})
    return golden


@dataclasses.dataclass
class Match:
    id: str
    score: float


class Shout:
    def __call__(self, text):
        return text.upper()

    def match(self, text, among=()):
        if not among:
            raise KeyError("nothing to match")
        return [Match(word, 1 / (1 + abs(len(word) - len(text)))) for word in among]


def text():
    theirs, golden = Shout(), Text("shout", "plain", source="this file")
    golden.step(theirs, "größe")
    golden.step(theirs.match, "ab", call="match", among=["ab", "abcd"])
    golden.step(theirs.match, "ab", call="match")
    return golden


def flow():
    """A flow begins with a shift and a scale, and what follows changes nothing at first."""
    shift, log_scale = (numbers(3).requires_grad_() for _ in range(2))

    def theirs(x):
        return (x + shift) * log_scale.exp(), log_scale.sum().expand(len(x))

    golden = Golden("affine-coupling", "plain", kind="flow", source="the equations", args=[3], kwargs={"depth": 1})
    golden.state(**{"parts.0.shift": shift, "parts.0.log_scale": log_scale})
    golden.step(theirs, {"x": numbers(5, 3)}, outputs=["z", "log_det"])
    return golden


def step():
    golden = Text("legal-forms", "plain", source="this file", kind="text-step")
    golden.step(lambda name: name.removesuffix(", Inc."), "Acme, Inc.")
    return golden


def rule():
    golden = Rule("tokens-alike", "plain", source="this file")
    seen = [[("0", "alike", alike), ("0", "rank", 1.0), ("0", "entropy", 1.0)] for alike in (0.1, 0.9999, 0.9999)]
    golden.step([*enumerate(seen, 1)], [{"title": "tokens have become alike", "where": ["0"], "since": 2}], heads=2)
    golden.step([(1, seen[0])], [])
    return golden


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "functions.py").write_text("FUNCTIONS = {}\n")
    monkeypatch.setitem(functions(tmp_path), "shout", Shout)
    return tmp_path


@pytest.mark.parametrize("kind", [batchnorm, block, layer, flow, optimizer, text, step, rule])
def test_what_is_recorded_is_replayed(kind, folder):
    path = kind().write(folder)
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    replay(path)


PARTS = {
    batchnorm: ["out/y", "grad/in:x", "grad/weight", "state/running_mean", "state/running_var"],
    block: ["out/y", "grad/in:x", "grad/attention.weight", "grad/feedforward_norm.weight"],
    flow: ["out/z", "out/log_det", "grad/parts.0.log_scale"],
    layer: ["out/y", "grad/in:x", "grad/attention.key.weight", "grad/feedforward.down.weight"],
    optimizer: ["param/a", "param/b"],
}


@pytest.mark.parametrize("kind, part", [(kind, part) for kind, parts in PARTS.items() for part in parts])
def test_a_number_that_differs_is_found(kind, part, folder):
    golden = kind()
    for key in [k for k in golden.arrays if k.startswith("step") and k.endswith(f"/{part}")]:
        before = golden.arrays[key]
        golden.arrays[key] = before + 1e-6
        path = golden.write(folder)
        with pytest.raises(AssertionError, match=key.rpartition("/")[2].removeprefix("in:")):
            replay(path)
        golden.arrays[key] = before


@pytest.mark.parametrize(
    "step, wrong", [(0, {"output": "GROSSE"}), (1, {"output": []}), (2, {"raises": "ValueError"}), (0, {"output": 3})]
)
def test_a_string_that_differs_is_found(step, wrong, folder):
    golden = text()
    golden.steps[step] |= wrong
    path = golden.write(folder)
    with pytest.raises(AssertionError):
        replay(path)


@pytest.mark.parametrize("wrong", [{"since": 3}, {"where": ["1"]}, {"weight": 0.5}])
def test_a_finding_that_differs_is_found(wrong, folder):
    golden = rule()
    golden.steps[0]["output"][0] |= wrong
    with pytest.raises(AssertionError, match=f"step0.*{next(iter(wrong))}"):
        replay(golden.write(folder))
    golden.steps[0]["output"] = []
    with pytest.raises(AssertionError, match="tokens have become alike"):
        replay(golden.write(folder))


def test_a_golden_goes_to_the_folder_of_its_method(tmp_path, monkeypatch):
    (tmp_path / "a_package/norms").mkdir(parents=True)
    (tmp_path / "a_package/__init__.py").touch()
    for place in ("norms/mine.py", "norms/__init__.py"):
        (tmp_path / "a_package" / place).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(places, "module_of", lambda name, kind: "a_package.norms.mine" if name == "mine" else None)
    __import__("a_package.norms.mine")
    beside, above = tmp_path / "a_package/norms/goldens", tmp_path / "a_package/goldens"
    assert [*places.beside("a_package.norms.mine")] == [beside, above]
    golden = Golden("mine", "plain", source="torch", args=[3])
    golden.step(torch.sin, {"x": numbers(2, 3)})
    assert golden.write() == beside / "mine/plain.npz"
    assert places.cases("mine", "a_package.norms.mine") == {"plain": beside / "mine/plain.npz"}
    (beside / "mine/plain.npz").unlink()
    (beside / "mine").rmdir()
    beside.rmdir()
    above.mkdir()
    assert golden.write() == above / "mine/plain.npz"
    monkeypatch.setattr(places, "OURS", tmp_path / "nowhere")
    assert places.cases("yours", "a_package.norms.mine") == {}
    golden.place = golden.place.parents[1] / "yours/plain.npz"
    with pytest.raises(ValueError, match=r"no method 'yours' yet, .* or name a folder"):
        golden.write()


def test_goldens_of_the_catalogue_go_to_the_repository():
    assert places.folder_of("rmsnorm", "module") == places.OURS
    assert places.folder_of("fold-batchnorm", "module") == places.OURS, "of no method, but with goldens already"
    assert places.module_of("glow", "flow") == "normkit.density.flows.glow"
    assert places.module_of("rmsnorm", "flow") is None


@pytest.mark.parametrize("name, kind, thing", [("medain-norm", "module", "method"), ("glwo", "flow", "flow")])
def test_a_golden_of_an_unknown_name_is_not_put_into_the_repository(name, kind, thing):
    golden = Golden(name, "plain", source="a slip", kind=kind)
    golden.step(torch.sin, {"x": numbers(2, 3)})
    with pytest.raises(ValueError, match=f"no {thing} '{name}' yet, .*: import the module before, or name a folder"):
        golden.write()


def test_strings_are_one_line_a_step(folder):
    lines = text().write(folder).read_text().splitlines()
    assert '  {"call": "__call__", "inputs": ["größe"], "output": "GRÖSSE"},' in lines
    assert any('"kwargs": {"among": ["ab", "abcd"]}' in line and '"score": 0.3333' in line for line in lines)
    assert json.loads("\n".join(lines))["steps"][2]["raises"] == "KeyError"


def test_the_file_is_the_same_each_time(tmp_path):
    golden = batchnorm()
    assert golden.write(tmp_path / "a").read_bytes() == golden.write(tmp_path / "b").read_bytes()


def test_what_a_golden_holds_is_printed(folder):
    told = record.described(batchnorm(note="odd").write(folder))
    assert 'note: "odd"' in told
    assert "step2/in/x" in told
    assert "float64 (5, 3)" in told


def test_a_step_without_gradients_sends_none():
    golden = Golden("rmsnorm", "plain", source="torch", args=[3])
    golden.step(lambda x: x / x.square().mean(-1, keepdim=True).sqrt(), {"x": numbers(2, 3)}, gradients=False)
    assert sorted(golden.arrays) == ["step0/in/x", "step0/out/y"]


def test_what_cannot_be_replayed_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"case must be the name of a file on any system, .* not 'eps:1e-3'"):
        batchnorm("eps:1e-3")
    with pytest.raises(ValueError, match="source is empty"):
        Golden("rmsnorm", "plain", source=" ")
    with pytest.raises(ValueError, match="no step"):
        Golden("rmsnorm", "plain", source="torch").write(tmp_path)
    with pytest.raises(ValueError, match="kind must be one of"):
        Golden("rmsnorm", "plain", source="torch", kind="modul")
    golden = Golden("rmsnorm", "plain", source="torch")
    with pytest.raises(ValueError, match="2 outputs came back, 1 have a name: y"):
        golden.step(lambda x: (x, x), {"x": numbers(2)})
    with pytest.raises(ValueError, match=r"in/x is float32, .* float64; record all in float64"):
        golden.step(lambda x: x, {"x": torch.ones(2)})
    with pytest.raises(ValueError, match="give \\(parameter, function\\)"):
        golden.state(weight=nn.Parameter(torch.ones(2)) * 2)
    with pytest.raises(ValueError, match=r"lacks \['attention.weight', 'feedforward.weight'\]"):
        Golden("pre-norm", "plain", source="torch", kind="block").step(lambda x: x, {"x": numbers(2)})


def test_an_optimizer_is_recorded_in_the_order_of_its_steps():
    golden = optimizer()
    assert golden.meta["groups"][0] == {"params": ["a"], "kwargs": {"lr": 0.1}}
    assert "step3/grad/a" not in golden.arrays
    np.testing.assert_array_equal(golden.arrays["step3/param/a"], golden.arrays["step2/param/a"])
    first = golden.arrays["param/b"] - golden.arrays["step0/param/b"]
    np.testing.assert_allclose(first, 1e-3 * np.sign(golden.arrays["step0/grad/b"]), rtol=1e-5)
