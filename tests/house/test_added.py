"""Things of each kind are added to a copy of the repository: by file, goldens and a line of the change log alone.

The norm is the one of docs/adding.md; the others lie in the folder `added`, each where it belongs in the repository.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.nightly
ROOT, HERE = pathlib.Path(__file__).parents[2], pathlib.Path(__file__).parent / "added"
NORM = "src/normkit/activation/token/middle_norm.py"  # the page is run too, and so its name is taken
FILES = [NORM, *sorted(str(path.relative_to(HERE)) for path in (HERE / "src").rglob("*.py"))]
NAMES = [pathlib.Path(file).stem.replace("_", "-") for file in FILES]
LIBRARIES = ("*.so", "*.pyi")  # built, and so in no commit
ELSEWHERE = {  # tests of the house that are not run of the copy
    "test_added.py": "this one",
    "test_answers.py": "it is run of what is added",
    "test_release.py": "it builds wheels, which no method changes",
    "test_screens.py": "it opens a browser",
    "test_extension.py": "its package has a flow and a rule of the names that are added",
    "test_onnx.py::test_gives_the_same_numbers[middle-norm]": "torch cannot turn a median into ONNX",
    "test_notebooks.py::test_a_notebook_shows_what_it_showed[mend]": "the rule that is added speaks in it",
    "test_docs.py::test_the_python_of_a_page_runs[watch.md]": "and in this",
}


def run(place, *words):
    """Run Python in the copy, and return what it prints."""
    env = {**os.environ, "PYTHONPATH": str(place / "src"), "NORMKIT_CACHE": "off"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, cwd=place)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def pytest_in(place, *words):
    return run(place, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)


def files_of(root):
    """What belongs to the repository, by its path."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return [name for name in out.stdout.split("\0") if name and (root / name).is_file()]


def prints(root):
    return {name: hashlib.sha256((root / name).read_bytes()).hexdigest() for name in files_of(root)}


@pytest.fixture(scope="module")
def added(tmp_path_factory):
    """A copy of the repository to which all of them are added as docs/adding.md says, and its prints before."""
    place = tmp_path_factory.mktemp("copy")
    built = [str(path.relative_to(ROOT)) for kind in LIBRARIES for path in (ROOT / "src").rglob(kind)]
    for name in [*files_of(ROOT), *built]:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / name)
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    before = prints(place)
    page = (ROOT / "docs/adding.md").read_text(encoding="utf-8")
    norm = re.search(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    (place / NORM).write_text(norm.replace("median-norm", "middle-norm").replace("MedianNorm", "MiddleNorm"))
    for name in FILES[1:]:
        shutil.copyfile(HERE / name, place / name)
    with open(place / "CHANGELOG.md", "a", encoding="utf-8") as log:
        log.write(f"\n- Added: {', '.join(NAMES)}.\n")
    run(place, str(HERE / "record.py"))
    run(place, "tools/answers.py")
    run(place, "tools/stub.py")
    return place, before


def test_nothing_is_touched_but_their_files_their_goldens_and_the_change_log(added):
    place, before = added
    touched = {name for name, print_of in prints(place).items() if before.get(name) != print_of}
    goldens = {name for name in touched if name.startswith("tests/goldens/")}
    assert touched - goldens == {*FILES, "CHANGELOG.md"}
    assert {name.split("/")[2] for name in goldens} <= {*NAMES}
    assert not before.keys() - prints(place).keys()


def test_a_norm_an_optimizer_a_loss_a_placement_a_flow_a_rule_a_text_and_two_of_owners_are_there(added):
    kinds = {"flow": "sinh-arcsinh", "rule": "quiet-layers", "strategy": "trimmed"}
    lists = {kind: run(added[0], "-m", "normkit", "list", "--kind", kind) for kind in kinds}
    assert all(name in lists[kind] for kind, name in kinds.items())
    methods = run(added[0], "-m", "normkit", "list")
    assert [name for name in NAMES if name not in kinds.values() and f" {name} " not in methods] == []


def test_they_give_their_goldens_and_keep_the_contract(added):
    some = " or ".join(NAMES)
    assert "failed" not in pytest_in(added[0], "tests/test_goldens.py", "tests/house/test_answers.py", "-k", some)
    kept = run(added[0], "-m", "normkit", "check", *NAMES)
    assert [name for name in NAMES if f"{name} keeps the contract of" not in kept] == []


def test_the_house_takes_them(added):
    run(added[0], "-m", "ruff", "check", "src")
    run(added[0], "-m", "ruff", "format", "--check", "src")
    pytest_in(added[0], "tests/house", *(f"--deselect=tests/house/{name}" for name in ELSEWHERE))
