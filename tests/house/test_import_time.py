"""`import normkit` loads nothing that it does not need."""

import importlib
import subprocess
import sys

import pytest

import normkit as nk


@pytest.fixture(scope="module")
def loaded():
    """The modules that are there after each step, in one fresh process."""
    steps = [
        "import torch, numpy",
        "import normkit",
        "from normkit import check, layout, reference, doctor",
        "normkit.RMSNorm",
    ]
    code = "import sys\n" + "\n".join(f"{step}\nprint(*sys.modules)" for step in steps)
    out = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    return dict(zip(steps, map(set, map(str.split, out)), strict=True))


def test_import_loads_no_method_and_no_heavy_package(loaded):
    extra = loaded["import normkit"] - loaded["import torch, numpy"]
    assert not [name for name in extra if name.startswith(("normkit.activation", "normkit.bench", "normkit.cli"))]
    assert {name.split(".")[0] for name in extra} - set(sys.stdlib_module_names) <= {"normkit", "torch"}
    assert not [name for name in extra if name.startswith(("torch._dynamo", "torch._inductor"))]


def test_public_names_and_cards_load_no_heavy_package():
    names = "[getattr(nk, name) for name in nk.__all__]; [nk.card(name) for name in nk.methods()]"
    code = f"import sys, normkit as nk; {names}; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert {"normkit.quant.nsnquant", "normkit.transformer.score_clip"} <= loaded
    heavy = {"torch._dynamo", "torch._inductor", "torch.distributed.tensor", "sympy", "scipy", "transformers", "timm"}
    assert not loaded & heavy


def test_pytest_rewrites_the_contract_and_no_other_file(pytestconfig):
    """It would rewrite the whole package, at each import where no bytecode is kept, since the package has a plugin."""
    rewrites = type(pytestconfig.pluginmanager.rewrite_hook)
    assert isinstance(importlib.import_module("normkit.contract.subject").__loader__, rewrites)
    assert not isinstance(importlib.import_module("normkit.reference").__loader__, rewrites)


def test_import_waits_for_torch_until_something_is_asked_for():
    code = (
        "import sys, normkit; before = 'torch' in sys.modules; normkit.methods; print(before, 'torch' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "True"]


def test_a_submodule_is_there_without_an_import_of_its_own():
    code = "import normkit as nk; print(nk.ops.__name__, nk.surgery.__name__, nk.Norm.__name__)"
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.split() == ["normkit.ops", "normkit.surgery", "Norm"]
    assert not hasattr(nk, "no_such_module")


def test_importing_a_submodule_loads_no_method(loaded):
    there = loaded["from normkit import check, layout, reference, doctor"]
    assert "normkit.reference" in there
    rooms = ("activation.", "attention", "residual", "transformer", "weight", "gradient")
    assert not [name for name in there if name.startswith(tuple(f"normkit.{room}" for room in rooms))]


def test_a_class_is_found_at_the_first_look(loaded):
    assert "normkit.activation.token.rmsnorm" in loaded["normkit.RMSNorm"]


@pytest.mark.parametrize("name", ["x", "_", "_x", "x_"])
def test_a_short_name_that_is_not_there_is_an_attribute_that_is_missing(name):
    assert not hasattr(nk, name)


def test_what_the_rooms_export_is_found_without_a_list_of_it():
    assert nk.Decoder is importlib.import_module("normkit.transformer.model").Decoder
    for room in nk.catalog.rooms():
        package = importlib.import_module(f"normkit.{room}")
        for name in vars(package).get("__all__", ()):
            assert getattr(nk, name) is getattr(package, name)
            assert name in dir(nk)
    models = ("Decoder", "Encoder", "EncoderDecoder", "Placement", "preset")
    assert {*models, "deepnorm_constants", "projection_fraction"} <= set(dir(nk))
