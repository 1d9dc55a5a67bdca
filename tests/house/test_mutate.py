"""Deliberate mistakes are made one at a time, and those that no test sees are reported."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "mutate.py"
PACKAGE = '''
import functools
import inspect

LIMIT = 3


def bound(function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return function(*given.args, **given.kwargs)

    return called


class Counter:
    """Up to a limit."""

    @bound
    def __init__(self, start=0, *, quick=False):
        self.at, self.quick = start, quick

    def up(self):
        if self.at >= LIMIT:
            raise ValueError(f"no further than {LIMIT}")
        self.at = self.at + 1
        return self.at


def unused(x):
    return x * 2


def read(x):
    return x - 7


def twice(x):
    return divmod(x, x)
'''
TESTS = """
import inspect
import pytest
from normkit import Counter, read

SCRIPT = '''
from test_counter import Counter
'''

def test_counts():
    import normkit.ahead
    counter = Counter()
    assert [counter.up() for _ in range(3)] == [1, 2, 3]

def test_stops():
    with pytest.raises(ValueError):
        Counter(3).up()

def test_fails_anyway():
    assert Counter().up() == 7

def test_reads():
    scope = {}
    exec(inspect.getsource(read), scope)
    assert scope["read"](9) == 2
"""


@pytest.fixture
def toy(tmp_path):
    return made(tmp_path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What is printed of the toy as it is."""
    return hunted(made(tmp_path_factory.mktemp("toy")))


def made(tmp_path):
    for path, text in {
        "src/normkit/__init__.py": PACKAGE,
        "src/normkit/ahead.py": "import gc\n\ngc.freeze()\n",  # what is frozen is not among the objects to look at
        "tests/test_counter.py": TESTS,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "tests/conftest.py").write_text("import gc\n\n\ndef pytest_collection_finish():\n    gc.freeze()\n")
    (tmp_path / "src/normkit/contract").mkdir()
    (tmp_path / "tools").mkdir()
    for tool in (TOOL, TOOL.with_name("traced.py")):
        shutil.copy(tool, tmp_path / "tools")
    shutil.copytree(TOOL.with_name("children"), tmp_path / "tools" / "children")
    return tmp_path


def environment(toy):
    """Where the toy is the package; pytest would look in it for the plugin of the one that is installed."""
    return {**os.environ, "PYTHONPATH": str(toy / "src"), "PYTEST_ADDOPTS": "-p no:normkit.contract.plugin"}


def hunted(toy, *options):
    command = [sys.executable, "tools/mutate.py", "--all", *options]
    return subprocess.run(command, cwd=toy, env=environment(toy), capture_output=True, text=True)


def tried(run):
    """The mistakes that were made anew, without their lines."""
    lines = [
        line.partition("__init__.py:")[2]
        for line in run.stdout.partition("cannot be made in a process")[0].splitlines()
    ]
    return [line.partition(" in ")[2] for line in lines if line]


def test_mistakes_are_made_and_what_no_test_sees_is_reported(run):
    told, _, survivors = run.stdout.partition("not seen:\n")
    assert run.returncode == 1, run.stdout + run.stderr
    assert "66.7% of 12 mistakes are seen by tests, 66.7% by tests or types (of 13, seed 0)" in told
    assert sorted(line.partition("__init__.py:")[2] for line in survivors.splitlines()) == [
        "14:8 in bound.called: given.apply_defaults()  ->  pass",
        "24:41 in Counter.__init__: False  ->  True",
        "35:11 in unused: x * 2  ->  x / 2",
        "35:15 in unused: 2  ->  3",
    ]
    assert "5:8 in the module: 3  ->  4\n    seen by tests/test_counter.py::test_stops" in told


def test_a_default_that_a_wrapper_keeps_and_source_that_a_test_reads_have_the_mistake(run):
    told = run.stdout
    assert "in Counter.__init__: 0  ->  1\n    seen by tests/test_counter.py::test_counts" in told
    assert "in read: x - 7  ->  x + 7\n    seen by tests/test_counter.py::test_reads" in told


def test_the_same_again_is_no_mistake_and_a_test_that_names_the_caller_comes_first(toy, run):
    assert "divmod" not in run.stdout
    examples = [sys.executable, "-m", "doctest", "tools/mutate.py"]
    assert subprocess.run(examples, cwd=toy, capture_output=True).returncode == 0


def test_what_was_said_holds_until_the_file_changes_and_what_was_not_seen_is_tried_when_asked(toy):
    assert len(tried(hunted(toy, "--mutants", "5"))) == 5
    assert len(tried(hunted(toy, "--go-on"))) == 7
    assert tried(hunted(toy, "--go-on")) == []
    assert len(tried(hunted(toy, "--again"))) == 4
    (toy / "src/normkit/__init__.py").write_text(PACKAGE + "\n\nLAST = len([])\n")
    assert len(tried(hunted(toy, "--go-on"))) == 12


def test_the_draw_stays_when_other_code_changes(toy):
    before = tried(hunted(toy, "--mutants", "12"))
    (toy / "src/normkit/__init__.py").write_text(PACKAGE.replace("Counter:", "Counter:\n    PACE = 1\n"))
    after = tried(hunted(toy, "--mutants", "13"))
    assert [mistake for mistake in after if "PACE" not in mistake and "Counter: 1" not in mistake] == before


TYPED = """

def ahead(word: str, times: int) -> str:
    return word + "!" if times else word


def call() -> str:
    return ahead("so", 2)
"""


def test_what_types_refuse_is_counted_apart(toy):
    """The tests call nothing; a condition that is turned round, or another number, is right for both."""
    (toy / "src/normkit/__init__.py").write_text(TYPED)
    (toy / "tests/test_counter.py").write_text("import normkit\n\n\ndef test_call():\n    assert normkit.ahead\n")
    (toy / "pyproject.toml").write_text('[tool.mypy]\nfiles = ["src"]\n')
    out = hunted(toy).stdout
    assert "0.0% of 4 mistakes are seen by tests, 50.0% by tests or types" in out
    _, types, unseen = re.split("by types alone:\n|not seen:\n", out)
    assert [line.partition(": ")[2] for line in types.splitlines()] == [
        "word + '!'  ->  word - '!'",
        "ahead('so', 2)  ->  ahead(2, 'so')",
    ]
    assert len(unseen.splitlines()) == 2


def test_what_cannot_be_made_makes_room_for_the_next(toy):
    """The first function is gone once the package is imported."""
    made_once = "\n\ndef once(x):\n    return x * 5\n\n\nONCE = once(len([]))\ndel once\n"
    (toy / "src/normkit/__init__.py").write_text(PACKAGE + made_once)
    run = hunted(toy, "--mutants", "12")
    assert "2 of 14 mistakes cannot be made" in run.stdout
    assert "66.7% of 12 mistakes are seen by tests" in run.stdout


def test_a_test_that_was_seen_to_run_a_function_is_taken_though_it_does_not_name_it(toy):
    hidden = 'assert getattr(__import__("norm" + "kit"), "un" + "used")(3) == 6'
    cases = "import pytest\n\n\n@pytest.mark.parametrize('case', range(4))\n"
    (toy / "tests/test_hidden.py").write_text(f"{cases}def test_hidden(case):\n    if case == 3:\n        {hidden}\n")
    assert "in unused: x * 2  ->  x / 2\n    NOT SEEN" in hunted(toy).stdout
    subprocess.run([sys.executable, "tools/traced.py"], cwd=toy, env=environment(toy), capture_output=True)
    assert "in unused: x * 2  ->  x / 2\n    seen by tests/test_hidden.py::test_hidden[3]" in hunted(toy).stdout


WALK = """
import subprocess, sys

CODE = '''
import normkit, pathlib
print(normkit.Counter().up(), normkit.unused(3), len([*pathlib.Path(normkit.__file__).parent.rglob("part.py")]))
'''


def test_elsewhere():
    assert subprocess.check_output([sys.executable, "-c", CODE], text=True) == "1 6 1\\n"
"""


def test_another_python_has_the_mistake_and_goes_through_all_folders(toy):
    (toy / "src/normkit/deeper").mkdir()
    (toy / "src/normkit/deeper/part.py").write_text("")
    (toy / "tests/test_elsewhere.py").write_text(WALK)
    assert "in unused: x * 2  ->  x / 2\n    seen by tests/test_elsewhere.py::test_elsewhere" in hunted(toy).stdout


PROCESSES = """
import multiprocessing, os, pytest, subprocess, sys


def double(x):
    return getattr(__import__("norm" + "kit"), "un" + "used")(x)


def test_another_python():
    code = 'import normkit; print(getattr(normkit, "un" + "used")(3))'
    assert subprocess.check_output([sys.executable, "-c", code]) == b"6" + os.linesep.encode()


def test_a_new_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(double, (3,))
        pool.close(), pool.join()


def test_a_fork_of_a_server():
    with multiprocessing.get_context("forkserver").Pool(1) as pool:
        pool.apply(double, (3,))
        pool.close(), pool.join()


def answer(pipe):
    while True:
        pipe.send(double(pipe.recv()))


@pytest.fixture(scope="module")
def server():
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=answer, args=(theirs,))
    process.start()
    yield ours
    process.kill()


def test_a_process_that_lives_on(server):
    server.send(3)
    assert server.recv() == 6


def test_a_process_that_is_not_asked(server):
    pass
"""


def test_what_the_processes_of_a_test_run_is_traced(toy):
    (toy / "tests/test_processes.py").write_text(PROCESSES)
    subprocess.run([sys.executable, "tools/traced.py"], cwd=toy, env=environment(toy), capture_output=True)
    traces = [json.loads(file.read_text()) for file in toy.glob(".mutate.ran.*")]
    unused = "src/normkit/__init__.py:unused"
    ran = [
        test.partition("test_")[2].partition("::")[2]
        for trace in traces
        for test, (_, _, *numbers) in trace["tests"].items()
        if unused in [trace["functions"][number] for number in numbers]
    ]
    of_a_process = ["a_fork_of_a_server", "a_new_process", "a_process_that_lives_on", "another_python"]
    assert sorted(ran) == [f"test_{name}" for name in of_a_process]


THREADS = """
import torch
from normkit import Counter, unused

ONES = torch.ones(500, 500, dtype=torch.float64)
SUMS = ONES @ ONES


def test_sums():
    assert Counter().at == 0 and (unused(ONES @ ONES) == 2 * SUMS).all()
"""


def test_a_test_of_threads_that_collecting_has_used_is_run_to_its_end(toy):
    """A fork has none of its parent's threads, and would wait for them until it is killed."""
    (toy / "tests/test_threads.py").write_text(THREADS)
    told = hunted(toy, "--seconds", "2").stdout
    assert "in unused: x * 2  ->  x / 2\n    seen by tests/test_threads.py::test_sums" in told


CODE = "import normkit; raise SystemExit(getattr(normkit, 'un' + 'used')(3) != 6)"
ELSEWHERE = {
    "subprocess": f'assert subprocess.run([sys.executable, "-c", """{CODE}"""]).returncode == 0',
    "multiprocessing": f"""
    process = multiprocessing.get_context("spawn").Process(target=exec, args=(\"\"\"{CODE}\"\"\",))
    process.start()
    process.join()
    assert process.exitcode == 0""",
}


@pytest.mark.parametrize("way", ELSEWHERE)
def test_another_python_that_a_test_starts_has_the_mistake_too(toy, way):
    imported = "import multiprocessing, subprocess, sys\nfrom normkit import Counter"
    (toy / f"tests/test_{way}.py").write_text(f"{imported}\n\n\ndef test_elsewhere():\n    {ELSEWHERE[way]}\n")
    told = hunted(toy).stdout
    assert f"in unused: x * 2  ->  x / 2\n    seen by tests/test_{way}.py::test_elsewhere" in told
    assert "in Counter.__init__: False  ->  True\n    NOT SEEN" in told


def test_a_test_that_names_the_rule_of_a_file_comes_before_cheaper_ones(toy):
    """As far away by its imports as others; what it names is written with dashes."""
    (toy / "src/normkit/late_rule.py").write_text("def find(x):\n    return x + 1\n")
    asked = 'from normkit import late_rule\n\n\ndef ask(name):\n    return vars(late_rule)["fi" + "nd"](1)\n'
    others = "".join(f"\n\ndef test_{at}():\n    assert ask('rule') == 2\n" for at in range(3))
    (toy / "tests/test_rules.py").write_text(f"{asked}{others}\n\ndef test_last():\n    assert ask('late-rule') == 2\n")
    assert "in find: x + 1  ->  x - 1\n    seen by tests/test_rules.py::test_last" in hunted(toy).stdout


def test_a_case_that_is_called_after_the_file_comes_before_those_that_are_not(toy):
    (toy / "src/normkit/late_rule.py").write_text("def find(x):\n    return x + 1\n")
    cases = "@pytest.mark.parametrize('case', [*(f'other-{at}' for at in range(9)), 'late-rule-first', 'last'])\n"
    body = "def test_rules(case):\n    assert vars(late_rule)['fi' + 'nd'](1) == 2\n"
    (toy / "tests/test_rules.py").write_text(f"import pytest\nfrom normkit import late_rule\n\n\n{cases}{body}")
    found = "in find: x + 1  ->  x - 1\n    seen by tests/test_rules.py::test_rules[late-rule-first]"
    assert found in hunted(toy).stdout
    subprocess.run([sys.executable, "tools/traced.py"], cwd=toy, env=environment(toy), capture_output=True)
    assert found in hunted(toy).stdout  # though all of them were seen to run it


def test_another_seed_is_no_mistake(toy):
    drawing = "\n\ndef draw(generator):\n    return generator.manual_seed(7).rand()\n"
    (toy / "src/normkit/__init__.py").write_text(PACKAGE + drawing)
    assert "in draw" not in hunted(toy).stdout


def test_what_is_compared_has_no_gradient_to_lose(toy):
    comparing = "\n\ndef compare(x):\n    return x.detach() > 1, x.detach() + 1\n"
    (toy / "src/normkit/__init__.py").write_text(PACKAGE + comparing)
    assert hunted(toy).stdout.count("x.detach()  ->  x\n") == 2  # the sum's alone: as it is tried, and at the end


READING = """
import pathlib

import normkit
from normkit import add_nine


def test_text():
    assert add_nine
    assert "return x + 9" in pathlib.Path(normkit.__file__).read_text()
"""


def test_what_a_test_reads_of_the_source_has_the_mistake(toy):
    (toy / "src/normkit/__init__.py").write_text(f"{PACKAGE}\n\ndef add_nine(x):\n    return x + 9\n")
    (toy / "tests/test_text.py").write_text(READING)
    assert "x + 9  ->  x - 9\n    seen by tests/test_text.py::test_text" in hunted(toy).stdout


ASKING = """
import sys
sys.path.insert(0, "tools")
from mutate import Reach, contract_names, drawn, whole
[first, *_] = drawn(whole(), 0)[0]
print(contract_names([first], Reach(whole())))
"""


def test_the_contract_is_asked_of_what_is_found_by_its_file(toy):
    (toy / "src/normkit/__init__.py").write_text('RULES = Family("rule", "find", "rules", "others")\n')
    (toy / "src/normkit/rules").mkdir()
    (toy / "src/normkit/rules/late_rule.py").write_text("def find(x):\n    return x + 1\n")
    run = subprocess.run([sys.executable, "-c", ASKING], cwd=toy, env=environment(toy), capture_output=True, text=True)
    assert run.stdout == "['late-rule']\n", run.stderr
