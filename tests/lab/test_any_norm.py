"""Any norm that can stand in a model is trained in it, and the others are refused at once, by name."""

import subprocess
import sys

import pytest
from helpers import TINY, run, trained

from normkit import cli


@pytest.mark.parametrize(
    ("norm", "allow_leak"), [("groupnorm:num_groups=2", False), ("batchnorm", True), ("powernorm", True)]
)
def test_a_decoder_learns_with_norms_of_other_layouts(norm, allow_leak, tmp_path):
    events = trained(tmp_path, run(norm=norm, name="v"), allow_leak=allow_leak)
    assert events[-1]["status"] == "done", events[-1]
    assert events[-1]["final_loss"] < next(e for e in events if e["event"] == "eval")["loss"]


def test_what_leaks_is_refused_where_the_tokens_to_come_are_learned(tmp_path):
    assert "leaks" in trained(tmp_path / "decoder", run(norm="batchnorm"))[-1]["error"]
    images = {"model": "vit:dim=16,depth=1,heads=2", "data": "digits"}
    assert trained(tmp_path / "vit", run(norm="batchnorm"), **images)[-1]["status"] == "done"


@pytest.mark.parametrize(
    ("model", "there", "absent"),
    [
        ("decoder", "groupnorm", "batchnorm"),
        ("vit", "batchnorm", "spade"),
        ("resnet", "batchnorm", "spade"),
        (TINY, "groupnorm", "batchnorm"),
        ("timm:resnet10t", "batchnorm", "spade"),
    ],
)
def test_what_fits_a_model_is_listed(model, there, absent, capsys):
    assert cli.main(["list", "--fits", model]) == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert {there, "rmsnorm"} <= listed
    assert absent not in listed


def test_a_model_that_there_is_not_is_named(capsys):
    assert cli.main(["list", "rmsnorm", "--fits", "dekoder"]) == 2
    assert "no model 'dekoder'; models are 'decoder'" in capsys.readouterr().err


def test_a_wrong_norm_is_refused_before_anything_heavy_is_imported():
    code = (
        "import sys; from normkit import cli; assert cli.main(['compare', '--norm', 'frn']) == 2; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"accelerate", "scipy", "sklearn", "transformers", "ray", "datasets", "plotly", "jinja2", "rich"}
    assert not heavy & set(done.stdout.split())
    assert "those that do: " in done.stderr
