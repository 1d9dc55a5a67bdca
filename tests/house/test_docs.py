"""What the README, the pages and the docstrings say can be typed."""

import argparse
import contextlib
import doctest
import importlib
import importlib.util
import io
import itertools
import json
import pathlib
import pkgutil
import re
import shlex
import subprocess
from types import SimpleNamespace

import pytest
import tomllib

import normkit
from normkit import catalog, cli
from normkit.contract.subject import build
from normkit.kinds.module import ModuleKind
from normkit.lab import request
from normkit.optional import let_torchvision_load

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GROUPS = PROJECT["optional-dependencies"]
PAGES = sorted(
    [*ROOT.glob("*.md"), ROOT / "benchmarks/README.md", ROOT / "tests/goldens/README.md", *DOCS.glob("*.md")]
)
FOUND = [found.name for found in pkgutil.walk_packages(normkit.__path__, "normkit.")]
LEFT_OUT = ("__main__", "._flower_classes")  # the command itself, and what only Flower's own environment imports
MODULES = sorted(name for name in FOUND if not name.endswith(LEFT_OUT))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["normkit", *MODULES])
def test_the_examples_of_the_docstrings(name):
    module = importlib.import_module(name)
    if ">>>" in pathlib.Path(module.__file__).read_text():  # to look through a module that has none takes time too
        assert doctest.testmod(module, optionflags=OPTIONS).failed == 0


@pytest.fixture
def own_catalogue():
    """A method that an example enters is forgotten; those of files stay, as their modules do."""
    yield
    for name in set(catalog._cards) - set(catalog._files()):
        del catalog._cards[name]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_the_python_of_a_page_runs(page, own_catalogue, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    let_torchvision_load()  # for the pages that import transformers
    scope = {"__name__": "__main__"}
    for code, output in shown(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(page), "exec"), scope)
        assert output is None or alike(printed.getvalue(), output), f"{code}\nprints\n{printed.getvalue()}"


def fences(page):
    """All fences of a page in order: the language, the block, and whether it follows right below the one before."""
    end = 0
    for found in re.finditer(r"^```([^\n]*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        yield found[1], found[2], found.start() - end <= 2
        end = found.end()


def shown(page):
    """The code of a page in Python, with what is shown right below it; None where nothing is."""
    every = [*fences(page), ("", "", False)]
    for (language, code, _), (below, output, close) in itertools.pairwise(every):
        if language == "python":
            yield code, output if close and not below else None


def alike(now, before):
    """Whether two outputs have the same words; numbers differ from one machine to another, and times by their units."""
    one, other = (
        re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?|\b(µs|ms|s)\b", "0", " ".join(text.split())) for text in (now, before)
    )
    return one == other


def test_the_page_of_the_worlds_norms_is_what_its_record_says_and_its_sums_are_those_of_its_tables():
    known = json.loads((ROOT / "benchmarks/results/recognition.json").read_text())
    page = load(ROOT / "benchmarks/recognition.py").page(known)
    assert page == (DOCS / "world.md").read_text()
    part = page.partition("## timm")[0]
    alone, more = re.search(r"(\d+) of \d+ recognized .* The tables count (\d+) more", part).groups()
    dialects, eps = (
        sum(int(row) for row in re.findall(r"^\| [^|]+ \| (\d+) \|", table, re.MULTILINE))
        for table in part.partition("\n| eps ")[::2]
    )
    assert dialects == eps == int(alone) + int(more)


def test_python_is_marked_as_such():
    """What is Python has the word, so that it is run; ``py`` and ``text`` would let it pass."""
    for page in PAGES:
        for language, block, _ in fences(page):
            assert language not in ("py", "pycon", "python3", "Python"), f"{page.name}: {block}"
            if (page.name, language) == ("federated.md", "text"):  # of Flower, which has an environment of its own
                for place, names in re.findall(r"^from (normkit[\w.]*) import ([\w, ]+)$", block, re.MULTILINE):
                    assert all(hasattr(importlib.import_module(place), name) for name in names.split(", ")), block
                continue
            unmarked = language in ("", "text") and re.search(r"^(import \w|from [\w.]+ import )", block, re.MULTILINE)
            assert not unmarked, f"{page.name}: {block}"


def commands(page):
    """Every simple command in the shell blocks of a page."""
    texts = [block.replace("\\\n", "") for block in blocks(page, "bash")]
    lines = [f" {line}".partition(" #")[0].strip() for text in texts for line in text.splitlines()]
    return [command.strip() for line in lines for command in line.split("&&") if command.strip()]


def test_the_readme_and_the_first_page_of_the_site_agree_on_how_to_get_it():
    readme, first = (blocks(page, "bash")[0] for page in (ROOT / "README.md", DOCS / "index.md"))
    assert readme == first
    assert readme.startswith("# git clone ")


ALL_COMMANDS = [(page.name, command) for page in PAGES for command in commands(page)]


@pytest.mark.parametrize("page, command", ALL_COMMANDS)
def test_the_commands_of_a_page_exist(page, command):
    program, *words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]  # no variables
    assert program in CHECKS, f"{program} is no program that the pages may ask for"
    CHECKS[program](words)


def check_normkit(words):
    options = cli.parser().parse_args(words)
    if options.command == "compare":
        request.variants_from(request.with_defaults(options, {}))
    if options.command != "text":  # whose names are of columns
        for name in [*getattr(options, "names", []), *([options.name] if getattr(options, "name", None) else [])]:
            catalog.card(name)


def check_torchrun(words):
    at = words.index("-m")
    assert words[at + 1] == "normkit.cli"
    check_normkit(words[at + 2 :])


def check_pip(words):
    assert words[:3] == ["install", "-c", "constraints.txt"]
    for groups in re.findall(r"\.\[(.*?)\]", " ".join(words)):
        assert set(groups.split(",")) <= set(GROUPS)


def check_files(words):
    parser = argparse.ArgumentParser()
    (
        parser.add_argument("-n"),
        parser.add_argument("-k"),
        parser.add_argument("--log"),
        parser.add_argument("--normkit-check"),
    )
    _, rest = parser.parse_known_args(words)
    for word in rest:
        module = word.startswith("normkit.") and importlib.util.find_spec(word)
        assert module or not set("/.") & set(word) or (ROOT / word).exists(), f"there is no {word}"


CHECKS = {
    "normkit": check_normkit,
    "torchrun": check_torchrun,
    "pip": check_pip,
    "pytest": check_files,
    "python": check_files,
    "ruff": lambda words: None,
    "mypy": lambda words: None,
    "mkdocs": lambda words: None,
    "git": lambda words: None,
    "cd": lambda words: None,
}


def test_continuous_integration_runs_the_commands_of_the_readme():
    readme, script = (ROOT / "README.md").read_text(), (ROOT / ".ci/run").read_text()
    installs = [line for line in readme.splitlines() if line.startswith("pip install ")]
    typed = re.findall(r'^ *typed "([^"]*)"', script, re.MULTILINE)
    found = [subprocess.check_output([ROOT / ".ci/readme", word], text=True).splitlines() for word in typed]
    assert sorted(found) == sorted([line] for line in installs)
    assert {word for line in installs for word in shlex.split(line) if "&&" in line} > {"compare", "pytest"}


def test_every_tested_version_is_exact():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in lines)
    wanted = [*PROJECT["dependencies"], *itertools.chain.from_iterable(GROUPS.values())]
    names = {re.match(r"[\w-]+", word).group() for word in wanted}
    assert names - {"normkit"} <= {line.partition("==")[0] for line in lines}


def test_the_page_on_processes_names_the_methods_that_fully_shard_does_not_take():
    known = re.search(
        r"takes no parameter without axes;.*?They are in (.*?)\.\n", (DOCS / "parallel.md").read_text(), re.S
    )
    named = re.sub(r"\(by `.*?`\)", "", known[1])
    modules = [name for name in catalog.methods() if isinstance(catalog.card(name).kind, ModuleKind)]
    have = {name for name in modules if any(p.dim() == 0 for p in build(name).parameters())}
    assert set(re.findall(r"`(.*?)`", named)) == have


def test_rows_whose_bits_depend_on_their_batch_are_in_the_table_of_why():
    table = re.search(r"\| not so \| because \|\n(.*?)\n\n", (DOCS / "parallel.md").read_text(), re.S)[1]
    depend = {card.name for card in catalog.members() if card.by_row and not card.batch_invariant}
    assert {name for row in table.splitlines() for name in re.findall("`(.*?)`", row.split("|")[1])} == depend


def test_the_table_of_the_readme_is_the_measurement_on_file():
    table = load(ROOT / "benchmarks/table.py")
    readme = table.README.read_text()
    assert len(table.PLACE.findall(readme)) == 1
    if table.RESULTS.exists():
        assert readme == table.written(readme, json.loads(table.RESULTS.read_text()))
    else:
        assert "|" not in table.PLACE.search(readme)[0], "the README has a table without a measurement"


def test_the_table_is_written_between_its_marks():
    table = load(ROOT / "benchmarks/table.py")
    row = {
        "method": "a",
        "size": "4x8",
        "dtype": "float32",
        "strides": "contiguous",
        "pass": "forward",
        "path": "C kernel",
    }
    numbers = {
        "seconds": {"normkit": 2e-6, "copy": 1e-6},
        "copied_bytes": 8,
        "least_bytes": 8,
        "peak_bytes": {},
        "absent": {},
    }
    where = dict.fromkeys(("processor", "threads", "system", "torch", "normkit", "C kernels", "date"), "here")
    where |= {"load": 0.0, "cores": 2}
    record = {"machine": where, "rows": [{**row, **numbers}], "failed": {}, "first_seconds": 0.1}
    text = table.written("above\n<!-- bench -->\nold\n<!-- /bench -->\nbelow\n", record, {})
    assert text.startswith("above\n<!-- bench -->\nhere")
    assert text.endswith("<!-- /bench -->\nbelow\n")
    assert "| a | 4x8 | float32 | 2 µs |" in text
    assert "old" not in text


def test_the_site_has_a_page_for_every_method(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(ROOT / "docs")
    generate = load(ROOT / "docs/generate.py")
    index = generate.index()
    for card in generate.cards():
        assert generate.address(card).removeprefix("methods/") in index
    for card in generate.cards()[::12]:
        assert f"---\n# {card.name}\n" in generate.page(card)


def test_the_site_has_a_table_of_all_methods_and_fills_in_the_marks_of_pages(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(DOCS)
    generate = load(DOCS / "generate.py")
    whole = generate.whole_table()
    rows = whole.split("<tr ")[1:]
    assert len(rows) == len(generate.cards())
    assert "<td>2.4 ms, 0.8 x</td>" in next(row for row in rows if ">rmsnorm</a>" in row)
    assert "<td>1200 ms, 390 x</td>" in next(row for row in rows if ">af-kan</a>" in row)
    assert "STEP" not in whole
    assert generate.year(normkit.card("rmsnorm")) == "2019"
    page = SimpleNamespace(url="which/")
    guide = generate.on_page_markdown((DOCS / "which.md").read_text(), page, None, None)
    assert "[[" not in guide
    assert guide.count("*Our own comparison*, of 20") == 1
    assert "<!-- compared" not in guide
    assert "[frn](methods/activation/spatial/frn.md)" in guide
    assert guide.count("<svg") == 4
    dialects = generate.on_page_markdown((DOCS / "optimizers.md").read_text(), page, None, None)
    assert "| moonlight | `lr=0.001`, `weight_decay=0.1`, `adjust_lr=match_rms_adamw`" in dialects
    rows = [line for line in guide.splitlines() if line.startswith("| [")]
    assert len(rows) > 30
    assert [row for row in rows if "https://" not in row.rsplit(" | ", 1)[-1]] == [], "every row's evidence is linked"
    for words in ("small batch", "diverge", "inference", "which norm"):
        assert words in guide.lower(), "the site's search should find the page by it"


def test_examples_in_docstrings_become_code_on_the_site(monkeypatch):
    pytest.importorskip("mkdocs")
    monkeypatch.syspath_prepend(ROOT / "docs")
    fenced = importlib.import_module("docstrings").fenced
    one_by_one = importlib.import_module("docstrings").one_by_one
    assert one_by_one("a, b: c\n\nArgs:\n    d, e: f\n        g\n    h: i") == (
        "a, b: c\n\nArgs:\n    d: f\n        g\n    e: f\n        g\n    h: i"
    )
    assert fenced("See :func:`f`:\n\n>>> 1 + 1\n2\n\nend") == "See `f`:\n\n```pycon\n>>> 1 + 1\n2\n```\n\nend"
