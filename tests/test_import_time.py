"""`import normkit` loads nothing that it does not need."""

import subprocess
import sys

import pytest


def loaded(code):
    out = subprocess.check_output([sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], text=True)
    return set(out.split())


def test_import_loads_no_method_and_no_heavy_package():
    extra = loaded("import torch, numpy, normkit") - loaded("import torch, numpy")
    assert not [name for name in extra if name.startswith("normkit.activation")]
    assert {name.split(".")[0] for name in extra} - set(sys.stdlib_module_names) <= {"normkit", "torch"}
    assert not [name for name in extra if name.startswith(("torch._dynamo", "torch._inductor", "normkit.bench"))]


@pytest.mark.parametrize("name", ["check", "samples", "reference", "doctor"])
def test_importing_a_submodule_loads_no_method(name):
    assert not [m for m in loaded(f"from normkit import {name}") if m.startswith("normkit.activation.")]


def test_a_class_is_found_at_the_first_look():
    found = loaded("import normkit\nnormkit.RMSNorm")
    assert "normkit.activation.token.rmsnorm" in found
