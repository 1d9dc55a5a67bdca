"""The package in docs/extension, built and installed as a stranger's is: what it enters is found, used and held to."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import forked
from normkit import families

ROOT = pathlib.Path(__file__).parents[2]
THEIRS = ROOT / "docs" / "extension"
GOLDENS = THEIRS / "src/normkit_extension/goldens"
NAME = "normkit_extension"
ENTERED = ["median-norm", "bounded-momentum", "sinh-arcsinh", "no-brackets", "zeros", "quiet-layers"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the package in it; nothing is asked of the network."""
    place = tmp_path_factory.mktemp("stranger")
    source = shutil.copytree(THEIRS, place / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *offline, "--target", str(place / "site"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "site"


@pytest.fixture
def site(installed, tmp_path):
    """A copy, of which a test may change files."""
    return shutil.copytree(installed, tmp_path / "site")


def run(site, *words, **variables):
    """Run Python where the package is installed."""
    path = os.pathsep.join([str(site), str(ROOT / "src")])
    env = {**os.environ, "PYTHONPATH": path, "NORMKIT_CACHE": "off", **variables}
    env.pop("NORMKIT_CHECK", None) if "NORMKIT_CHECK" not in variables else None
    return forked.run(*words, env=env, cwd=site)


def python(site, code):
    done = run(site, "-c", textwrap.dedent(code))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def contract(site, *words, **variables):
    plugins = ["-p", "normkit.contract.plugin", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return run(site, "-m", "pytest", "-rA", *plugins, "--pyargs", *words, **variables)


def test_all_that_it_enters_is_there_and_stands_where_ours_do(installed):
    out = python(
        installed,
        """
        import torch, normkit as nk
        from torch import nn
        from normkit.surgery import fits

        print(*nk.methods(room="robust"), nk.card("median-norm").room)
        print("median-norm" in [card.name for card in fits.norms()])
        print(type(nk.Decoder(vocab=7, dim=8, depth=1, heads=2, norm="median-norm").layers[0].attention_norm).__name__)

        class Theirs(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.rand(8) + 0.5)
            def forward(self, x):
                return self.scale * (x - x.median(-1, keepdim=True).values)

        print(*(match.name for match in nk.recognize(nn.Sequential(nn.Linear(8, 8), Theirs())).values()))
        print(nk.BoundedMomentum([nn.Parameter(torch.ones(2))]).defaults["bound"])
        print(tuple(nk.density.flow("sinh-arcsinh", 3).event))
        model = nn.Sequential(nn.Linear(4, 4), nk.MedianNorm(4), nn.Linear(4, 1))
        nn.init.zeros_(model[0].weight), nn.init.zeros_(model[0].bias)
        optimizer = nk.BoundedMomentum(model.parameters(), lr=0.0)
        with nk.watch(model, optimizer, every=1) as seen:
            for _ in range(3):
                model(torch.randn(5, 4)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        print(seen.history().late("zero_share"), [finding.where for finding in seen.diagnosis().of("quiet-layers")])
        """,
    )
    assert out == [
        "bounded-momentum median-norm robust",
        "True",
        "MedianNorm",
        "median-norm",
        "1.0",
        "(3,)",
        "{'1': 1.0} [('0', '1')]",
    ]


def test_a_room_of_its_own_is_listed(installed):
    for words in ([], ["--room", "robust"]):
        done = run(installed, "-m", "normkit.cli", "list", "median", *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[:2] == [
            "robust",
            "  median-norm  equations  Subtract each vector's median, then multiply by a learned gain.",
        ]


def test_what_a_script_assigns_is_described_and_exempt_as_its_module_says(monkeypatch):
    class Mine:
        """Mine, of this file."""

    family = families.Family("flow", "FLOW", "density/flows")
    family.update(mine=Mine, number=3)
    monkeypatch.setattr(sys.modules[__name__], "EXEMPT", {"flow-saved": "it keeps nothing"}, raising=False)
    assert [family.module(name) for name in ("mine", "number")] == [__name__, None]
    assert [family.exempt(name) for name in ("mine", "number")] == [{"flow-saved": "it keeps nothing"}, {}]
    assert family.summary("mine") == "Mine, of this file."


def test_it_is_held_to_the_contract_by_its_name(installed):
    few = "goldens or golden or built_again or inverted or half or resumed or silent or signal"
    done = run(installed, "-m", "normkit.cli", "check", NAME, "-k", few)
    assert done.returncode == 0, done.stdout
    kinds = ["a norm", "an optimizer", "a flow", "a text-step", "a signal", "a rule"]
    kept = [f"{name} keeps the contract of {kind}, version 1" for name, kind in zip(ENTERED, kinds, strict=True)]
    assert sorted(line.partition(", in the ")[0] for line in done.stdout.splitlines()[-7:-1]) == sorted(kept)


def test_an_option_and_the_variable_say_what_is_asked(installed):
    only = "normkit.contract.test_goldens"
    ways = [
        contract(installed, only, "--normkit-check", "median-norm", "--normkit-check", "rule:quiet-layers"),
        contract(installed, only, NORMKIT_CHECK="median-norm,quiet-layers"),
        contract(installed, only, "--normkit-check", "normkit-extension", NORMKIT_CHECK="rmsnorm"),
    ]
    two = {"median-norm/plain", "quiet-layers/plain"}
    whole = {*two, "bounded-momentum/plain", "sinh-arcsinh/plain", "no-brackets/plain"}
    for done, cases in zip(ways, (two, two, whole), strict=True):
        assert done.returncode == 0, done.stdout
        passed = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
        assert {line.rpartition("[")[2].rstrip("]") for line in passed} == cases


def test_a_wrong_name_or_version_is_reported_before_a_test_runs(installed):
    done = contract(installed, "normkit.contract.test_goldens", "--normkit-check", "median-nrm")
    assert "no method 'median-nrm'; did you mean 'median-norm'" in done.stderr
    done = contract(installed, "normkit.contract.test_goldens", "--normkit-contract", "99")
    assert "must be a version of the contract from 1 to 1, not '99'" in done.stderr


def test_goldens_are_what_record_writes(site):
    shutil.rmtree(site / NAME / "goldens")
    done = run(site, str(THEIRS / "record.py"))
    assert done.returncode == 0, done.stderr
    ours, new = ({p.relative_to(base): p for p in base.glob("*/*")} for base in (GOLDENS, site / NAME / "goldens"))
    assert ours.keys() == new.keys()
    for key, path in ours.items():
        if path.suffix == ".json":
            assert path.read_text() == new[key].read_text()
            continue
        with np.load(path) as old, np.load(new[key]) as made:
            assert old.files == made.files
            for name in set(old.files) - {"meta"}:
                np.testing.assert_allclose(old[name], made[name], rtol=1e-12)


def test_what_is_expected_to_fail_has_a_reason_and_fails_where_it_passes(site):
    flows = site / NAME / "flows.py"
    flows.write_text(f'{flows.read_text()}\nEXEMPT = {{"flow-inverse": "found by bisection"}}\n')
    words = ["check", "sinh-arcsinh", "median-norm", "-k", "inverted or golden"]
    done = run(site, "-m", "normkit.cli", *words)
    assert done.returncode == 1
    assert "[XPASS(strict)] found by bisection" in done.stdout
    assert "sinh-arcsinh breaks the contract of a flow" in done.stdout
    assert "median-norm keeps the contract of a norm" in done.stdout
    flows.write_text(flows.read_text().replace("self.skew) *", "self.skew + 1) *"))
    done = run(site, "-m", "normkit.cli", *words)
    assert done.returncode == 0, done.stdout
    flows.write_text(flows.read_text().replace("self.log_tail.exp() * x", "2 * x"))
    assert "golden[sinh-arcsinh/plain]" in run(site, "-m", "normkit.cli", *words).stdout


def test_what_has_no_golden_is_reported(site):
    shutil.rmtree(site / NAME / "goldens/median-norm")
    done = run(site, "-m", "normkit.cli", "check", NAME, "rmsnorm", "-k", "golden or unknown_keyword")
    assert done.stdout.splitlines()[-1] == (
        "zeros has no golden beside normkit_extension.signals; docs/adding.md tells how to record one"
    )
    assert done.stdout.count("has no golden") == 2


def test_an_exemption_of_no_line_is_an_error(site):
    rules = site / NAME / "rules.py"
    rules.write_text(f'{rules.read_text()}\nEXEMPT = {{"swiftness": "slow"}}\n')
    done = run(site, "-m", "normkit.cli", "check", "quiet-layers", "-k", "described")
    assert "quiet-layers: EXEMPT names no line of the contract: {'swiftness'}" in done.stdout


def test_what_cannot_be_loaded_or_has_a_name_that_is_taken_is_left_out(site):
    points = next(site.glob("*.dist-info")) / "entry_points.txt"
    points.write_text(points.read_text().replace("sinh-arcsinh =", "glow =").replace("rules:find", "rules:seek"))
    out = python(
        site,
        """
        import warnings
        from normkit import families
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            flows, rules = (families.family(kind) for kind in ("flow", "rule"))
            print("quiet-layers" in rules, len(rules) > 30, flows.module([*flows][4]))
        print(*(str(warning.message) for warning in seen if "normkit_extension" in str(warning.message)), sep="\\n")
        """,
    )
    assert out[0] == "False True normkit.density.flows.glow", out
    assert any("flows:FLOW could not be loaded: " in line and "'glow' is taken by normkit" in line for line in out)
    assert any("the rule normkit_extension.rules:seek could not be loaded: AttributeError" in line for line in out)
    done = run(site, "-m", "normkit.cli", "check", NAME)
    assert done.returncode == 2
    assert "no flow 'glow' of normkit_extension: the name is taken" in done.stderr
    assert "normkit list: the rule normkit" in run(site, "-m", "normkit.cli", "list", "--kind", "rule").stderr


def test_what_a_later_contract_asks_may_fail(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from normkit.contract import asked\nfrom normkit.contract.conftest import *\nasked.VERSION = 2\n"
    )
    (tmp_path / "test_lines.py").write_text(
        "import pytest\n"
        "@pytest.mark.since(2)\ndef test_new():\n    assert False\n"
        "@pytest.mark.since(1)\ndef test_old():\n    assert False\n"
    )
    ends = [contract(tmp_path, "test_lines.py", *words).stdout for words in (["--normkit-contract", "1"], [])]
    counts = [re.findall(r"\d \w*failed", text.splitlines()[-1]) for text in ends]
    assert counts == [["1 failed", "1 xfailed"], ["2 failed"]]
    assert "XFAIL test_lines.py::test_new - asked since contract 2" in ends[0]


FAULTY = """
    import torch
    import normkit as nk
    from normkit import families
    from normkit.density import Sampler

    KEYS = {"k": "N heads S C", "v": "N heads S C"}

    @nk.method("ahead", shape="N heads T C", over="S", inputs=KEYS, example={"heads": 2})
    class Ahead(nk.AttentionCore):
        def __init__(self, head_dim: int, *, heads: int, causal: bool = False):
            super().__init__(head_dim, heads, causal)

        def forward(self, q, k, v):
            scores = q @ k.mT
            return (scores.tril(1) if self.causal else scores) @ v

    @nk.method("divided", shape="...")
    class Divided(nk.Optimizer):
        def __init__(self, params, *, lr=0.1, maximize=False, foreach=None):
            super().__init__(params, lr=lr, maximize=maximize, foreach=foreach)

        def update(self, params, grads, states, group):
            for p, grad in zip(params, grads):
                p.sub_(grad.div_(2))

    @nk.method("grid", shape="... C", over="C")
    def grid(x, step: float = 0.25):
        return x / step

    def climb(x, log_prob, size, flow):
        new = x + size * torch.randn_like(x)
        better = log_prob(new) > log_prob(x)
        return torch.where(better[:, None], new, x), better.to(x.dtype)

    class Shout:
        def __init__(self, marks=3):
            self.marks = marks

        def settings(self):
            return {}

    def shouting(history):
        yield from history.late("rmss")

    families.family("rule")["shouting"] = shouting
    families.family("sampler")["climb"] = Sampler(climb, scaled=True)
    families.family("text-step")["shout"] = Shout
"""


STRATEGY = """
    import normkit as nk
    from normkit import families
    from normkit.federated.rounds import Strategy, average

    @nk.method("shrunk", shape="N C", room="mine")
    def shrunk(x, *, share: float = 1.0):
        return x * share

    def run(updates, sent, *, share: float = 1.0):
        return {name: value * share for name, value in average(updates, sent).items()}

    families.family("strategy")["shrinking"] = Strategy(run, ("shrunk",), takes=("share",))
"""


def test_the_parts_of_a_strategy_may_be_of_a_room_of_its_own(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(STRATEGY))
    done = run(tmp_path, "-m", "normkit.cli", "check", "mine.shrunk", "shrinking", "-k", "parts_of_a_strategy")
    assert "shrinking keeps the contract of a strategy" in done.stdout, done.stdout
    shown = run(tmp_path, "-m", "normkit.cli", "show", "mine.shrunk").stdout
    assert "  import normkit as nk\n  import mine\n" in shown, "by which nk finds it"


def test_a_named_tuple_keeps_the_contract_which_torch_saves_in_no_file(tmp_path):
    done = run(tmp_path, "-m", "normkit.cli", "check", "neutra", "-k", "test_exports")
    assert done.returncode == 0, done.stdout


def test_what_is_wrong_without_an_error_breaks_the_contract(tmp_path):
    (tmp_path / "faulty.py").write_text(textwrap.dedent(FAULTY))
    lines = "later_token or leaves_gradients or no_input_is_an or keeps_the_law or built_again or numbers_that_are"
    asked = ["faulty.Ahead", "faulty.Divided", "faulty.grid", "climb", "shout", "shouting"]
    done = run(tmp_path, "-m", "normkit.cli", "check", *asked, "-k", lines)
    kinds = {"ahead": "core", "divided": "optimizer", "grid": "function", "climb": "sampler", "shout": "text-step"}
    kinds["shouting"] = "rule"
    broken = re.findall(r"^(\w+) breaks the contract of an? ([\w-]+), version 1$", done.stdout, re.MULTILINE)
    assert dict(broken) == kinds
    assert "grid: ['step'] must be named in the card's inputs, or stand behind a star as options do" in done.stdout
