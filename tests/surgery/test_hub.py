"""The package for the kernels hub: it loads from a folder, and its layers give the logits of six families of models."""

import ast
import copy
import pathlib
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hub as builder
import normkit as nk
from normkit.optional import let_torchvision_load
from normkit.surgery.exact import hub

TOKENS = torch.randint(17, (2, 12), generator=torch.Generator().manual_seed(0))
MARKS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
SIZES = {
    **{"vocab_size": 17, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"attn_implementation": "eager", **MARKS},
}
FAMILIES = {  # configuration -> what it says beside the sizes, and the layer of its norms
    "Llama": ({}, {"RMSNorm"}),
    "Qwen3": ({"num_key_value_heads": 2, "head_dim": 8}, {"RMSNorm"}),
    "Olmo2": ({}, {"RMSNormLate"}),
    "Gemma2": ({"num_key_value_heads": 2, "head_dim": 8}, {"RMSNormZeroCentered"}),
    "GPTNeoX": ({}, {"LayerNorm"}),
    "Phi": ({}, {"LayerNorm"}),
}


@pytest.fixture(scope="module")
def transformers():
    let_torchvision_load()
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    pytest.importorskip("kernels")
    return builder.build(tmp_path_factory.mktemp("hub") / builder.NAME)


def model_of(transformers, family):
    """A tiny model whose gains are no ones."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES | FAMILIES[family][0])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.3 * torch.randn(value.shape))
    return model


def served(model):
    """The modules whose forward is the package's, by the layer."""
    functions = {name: vars(module).get("forward") for name, module in model.named_modules()}
    return {name: f.__func__.__qualname__.partition(".")[0] for name, f in functions.items() if f is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_of_models_gives_its_logits_by_the_layers_of_its_dialect(family, transformers, package):
    model = model_of(transformers, family)
    with torch.no_grad():
        want = model(TOKENS).logits
    state = copy.deepcopy(model.state_dict())
    sites = hub.kernelize(model, package)
    assert [site.why_not for site in sites if site.layer is None] == []
    assert served(model) == {site.name: site.layer for site in sites}
    assert {site.layer for site in sites} == FAMILIES[family][1]
    with torch.no_grad():
        assert want.std() > 0.1
        torch.testing.assert_close(model(TOKENS).logits, want, rtol=0, atol=1e-5 * want.abs().max().item())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())


def test_gradients_are_the_models_own(transformers, package):
    ours, theirs = model_of(transformers, "Qwen3").train(), model_of(transformers, "Qwen3").train()
    hub.kernelize(ours, package)
    for model in (ours, theirs):
        model(TOKENS, labels=TOKENS).loss.backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=1e-5 * b.grad.abs().max().item(), msg=name)


def test_the_kernels_of_the_package_run_and_not_those_that_are_installed(package):
    norm = nn.LayerNorm(64).eval()
    hub.kernelize(norm, package)
    inner = sys.modules[norm.forward.__func__.__module__].row_norm.__module__
    assert not inner.startswith("normkit")
    status = sys.modules[inner.removesuffix("ops.row") + "kernels"].status()
    assert status.live
    assert pathlib.Path(status.path).is_relative_to(package)
    x = torch.randn(5, 64)
    torch.testing.assert_close(norm(x), F.layer_norm(x, (64,), norm.weight, norm.bias))


def test_a_compiled_model_takes_the_layers_without_a_broken_graph(package):
    torch._dynamo.reset()  # of what an earlier test compiled, no code is left out here
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.RMSNorm(8, eps=1e-6)).eval()
    x = torch.randn(3, 8)
    want = model(x)
    hub.kernelize(model, package, compiled=True)
    assert set(served(model)) == {"1", "2"}
    torch.testing.assert_close(torch.compile(model, backend="aot_eager", fullgraph=True)(x), want)


def unit(x, eps):
    y = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


class Renamed(nn.Module):
    """A dialect that there is a layer for, whose gain has a name that the layer does not read."""

    def __init__(self):
        super().__init__()
        self.gain, self.eps = nn.Parameter(torch.rand(8) + 0.5), 1e-6

    def forward(self, x):
        return self.gain * unit(x, self.eps)


class Hidden(Renamed):
    """One whose eps has no name at all."""

    def __init__(self):
        super().__init__()
        self.weight = self.gain
        del self.gain, self.eps

    def forward(self, x):
        return self.weight * unit(x, 1e-6)


class Activated(nn.LayerNorm):
    """One with an activation of its own behind it, as timm's ``LayerNormAct``."""

    def __init__(self):
        super().__init__(8)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(super().forward(x))


@pytest.mark.parametrize(
    "norm, why",
    [
        (Activated, "behind the norm stand act"),
        (lambda: nk.RMSNorm(8, eps_inside=False), r"no layer of the package computes rmsnorm\(.*eps_inside=False"),
        (Renamed, r"rmsnorm\(.*takes gain, and layers read weight and bias"),
        (Hidden, "has eps=1e-06, which the module holds under no name that layers read"),
        (lambda: nn.GroupNorm(2, 8), "no layer of the package computes groupnorm"),
        (lambda: nk.RMSNorm(8, bias=True), r"no layer of the package computes rmsnorm\(bias=True"),
    ],
)
def test_a_dialect_without_a_layer_is_refused_by_name_and_left_alone(norm, why, package):
    torch.manual_seed(0)
    model = nn.Sequential(norm(), nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    x = torch.randn(3, 8)
    want = model(x)
    refused, done = hub.kernelize(model, package, x)
    assert refused.layer is None
    assert (done.layer, done.why_not) == ("LayerNorm", None)
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(refused.why_not)
    assert set(served(model)) == {"2"}
    torch.testing.assert_close(model(x), want)


def test_classes_bear_no_mark_afterwards(package):
    hub.kernelize(nn.LayerNorm(8).eval(), package)
    assert not {"kernel_layer_name", "kernel_condition"} & set(vars(nn.LayerNorm))


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "kernels", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None)
    with pytest.raises(ValueError, match=r"kernels is not installed: .*'\.\[hub\]'"):
        hub.kernelize(nn.LayerNorm(8), "nowhere")


def test_each_variant_holds_only_what_the_hub_takes(package):
    variants = {path.name.split("-")[-1 if "cuda" in path.name else -3]: path for path in (package / "build").iterdir()}
    assert set(variants) == {"cpu", "cuda"}
    for backend, folder in variants.items():
        assert bool([*folder.rglob("*.so")]) == (backend == "cpu")
        for path in folder.rglob("*.py"):
            tree = ast.parse(path.read_text())
            names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
            names += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
            roots = {name.partition(".")[0] for name in names}
            own = {"torch", "triton"} | ({"numpy"} if path.name == "interpreter.py" else set())  # which is for tests
            assert roots - sys.stdlib_module_names <= own, path


def test_imports_are_made_relative():
    assert builder.relative("from normkit.ops import eager\n", 2) == "from ...ops import eager\n"
    assert builder.relative("    from normkit import check", 0) == "    from . import check"
    assert builder.relative('op("normkit::scan")', 1) == 'op("normkit_norms::scan")'
