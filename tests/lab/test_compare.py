"""The command as it is typed: what it writes, how it goes on after a kill, what it says to bad input."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from helpers import TINY, all_numbers, plan_of

import forked
import normkit
from normkit import cli
from normkit.lab import course, request
from normkit.lab.files import Folder
from normkit.lab.plan.settings import Settings

SMALL = ["--model", TINY, "--length", "16", "--batch", "4", "--steps", "8", "--seeds", "2", "--trials", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def command(root, *words):
    return [sys.executable, "-m", "normkit.cli", "compare", "--out", str(root), *SMALL, *words]


def compare(root, *words, **given):
    return forked.run(*command(root, *words)[1:], env=ENVIRONMENT, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "out"
    done = compare(root, "--norm", "layernorm", "dyt", "--workers", "2", "--threads", "1")
    assert done.returncode == 0, done.stderr
    return root, done


def test_a_comparison_trains_all_and_ends_with_a_table_and_a_page(whole):
    root, done = whole
    names = set(all_numbers(root))
    assert len(names) == 2 * (2 + 2)
    assert "dyt--lr0.003--seed0.jsonl" in names
    assert "2 variants of decoder" in done.stderr
    assert "2 learning rates tried, 2 seeds" in done.stderr
    assert all(word in done.stdout for word in ("layernorm", "dyt", "baseline", "index.html"))
    assert (root / "index.html").is_file()
    assert plan_of(root)["baseline"] == "layernorm"
    assert not list((root / "checkpoints").glob("*.pt"))


def test_the_same_command_again_trains_nothing(whole, capsys):
    root, _ = whole
    before = {path: path.stat().st_mtime_ns for path in (root / "runs").iterdir()}
    assert cli.main(["compare", "--out", str(root), *SMALL, "--norm", "layernorm", "dyt", "--engine", "here"]) == 0
    assert "8 runs had ended before" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in (root / "runs").iterdir()}


@pytest.mark.parametrize("group", [True, False])
def test_killed_and_resumed_gives_the_same_numbers(whole, tmp_path, group):
    """Killed with its workers, or alone; these then notice that nobody waits for them, and leave."""
    words = ["--norm", "layernorm", "dyt", "--workers", "2", "--threads", "1"]
    process = subprocess.Popen(
        command(tmp_path / "out", *words), env=ENVIRONMENT, stderr=subprocess.DEVNULL, start_new_session=True
    )
    logs = tmp_path / "out" / "runs"
    deadline = time.monotonic() + 100
    while len(list(logs.glob("*.jsonl"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.wait()
    assert 4 <= len(list(logs.glob("*.jsonl"))) < 8
    while alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(process.pid)
    resumed = compare(tmp_path / "out", *words)
    assert resumed.returncode == 0, resumed.stderr
    assert all_numbers(tmp_path / "out") == all_numbers(whole[0])


def alive(group):
    """The processes of a session that have not ended."""
    found = (p for p in psutil.process_iter(["status"]) if p.info["status"] != psutil.STATUS_ZOMBIE)
    return [p.pid for p in found if _session(p.pid) == group]


def _session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


LONG = ["--norm", "layernorm", "--lr", "0.01", "--seeds", "1", "--steps", "400", "--threads", "1"]


def started(root, words, until):
    """The command in a session of its own, at the moment when ``until`` holds."""
    process = subprocess.Popen(
        command(root, *words), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 100
    while not until(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert process.poll() is None
    return process


def logged(root, event="step"):
    """Whether a run has logged such an event."""
    return lambda process: any(f'"event": "{event}"' in log.read_text() for log in Folder(root).logs())


def has_children(process):
    return psutil.Process(process.pid).children()


def stopped(process, number, group):
    """The exit status, what was said, and which processes of the session live on when the command has left."""
    below = psutil.Process(process.pid).children(recursive=True)
    (os.killpg if group else os.kill)(process.pid, number)
    errors, deadline = process.communicate(timeout=60)[1], time.monotonic() + 1
    while (left := living(below).union(alive(process.pid))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return process.returncode, errors, sorted(left)


def living(processes):
    """Those that run; one that has ended may stay in the list for seconds, until it is collected."""
    listed = psutil.process_iter(["status"])
    return {p.pid for p in listed if p in processes and p.info["status"] != psutil.STATUS_ZOMBIE}


@pytest.mark.parametrize("group", [False, True], ids=["the command", "all its processes"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_saves_leaves_no_process_and_the_same_command_goes_on(number, status, group, tmp_path):
    """Ctrl-C reaches all processes of a terminal; a scheduler may send its SIGTERM to one or to all."""
    log = Folder(tmp_path).log("layernorm--lr0.01--seed1")
    returned, errors, left = stopped(started(tmp_path, LONG, logged(tmp_path)), number, group)
    assert (returned, left) == (status, [])
    assert errors.endswith(f"\nstopped; the same command goes on from {tmp_path}\n")
    assert "Traceback" not in errors
    assert '"interrupted"' in log.read_text()
    assert [path.name for path in (tmp_path / "checkpoints").glob("*.pt")] == [f"{log.stem}.pt"]
    if (number, group) == (signal.SIGTERM, True):
        began = log.read_text().splitlines()[0]
        assert compare(tmp_path, *LONG).returncode == 0
        assert log.read_text().splitlines()[0] == began
        steps = [e["step"] for e in all_numbers(tmp_path)[log.name] if e["event"] == "step"]
        assert steps == list(range(10, 401, 10))


@pytest.mark.ray
def test_a_stop_leaves_no_process_of_ray(tmp_path):
    """Ray would abort at a SIGTERM, with a trace."""
    pytest.importorskip("ray")
    words = [*LONG, "--engine", "ray", "--workers", "1", "--steps", "20000"]
    returned, errors, left = stopped(started(tmp_path, words, logged(tmp_path)), signal.SIGTERM, False)
    assert (returned, left) == (143, [])
    assert errors.endswith(f"\nstopped; the same command goes on from {tmp_path}\n")


def test_a_stop_while_workers_still_start_leaves_no_process(tmp_path):
    """Their fork server would go through with its imports, and speak of what it no longer finds."""
    returned, errors, left = stopped(started(tmp_path, LONG, has_children), signal.SIGTERM, False)
    assert (returned, left) == (143, [])
    assert "Traceback" not in errors


@pytest.fixture
def disk(tmp_path):
    """A disk with little more room than the command asks for."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_midway_stops_the_command_which_later_goes_on(whole, disk):
    words = ["--norm", "layernorm", "dyt", "--workers", "2", "--threads", "1"]
    process = started(disk / "out", words, logged(disk / "out"))
    with suppress(OSError), (disk / "ballast").open("wb") as ballast:
        while True:
            ballast.write(bytes(2**16))
    errors = process.communicate(timeout=100)[1]
    assert process.returncode == 3, errors
    assert "cannot be written: No space left on device; the same command goes on once this is mended" in errors
    assert "crashed" not in errors
    (disk / "ballast").unlink()
    resumed = compare(disk / "out", *words)
    assert resumed.returncode == 0, resumed.stderr
    assert all_numbers(disk / "out") == all_numbers(whole[0])


def test_one_variant_crashes_and_the_rest_go_on(tmp_path):
    (tmp_path / "own.py").write_text(
        "import os, torch\n"
        "class Fragile(torch.nn.Module):\n"
        "    def __init__(self, norm):\n"
        "        super().__init__()\n"
        "        self.embedding, self.norm = torch.nn.Embedding(256, 8), norm(8)\n"
        "        self.output, self.calls = torch.nn.Linear(8, 256), 0\n"
        "    def forward(self, x):\n"
        "        self.calls += self.training\n"
        "        if self.calls > 3 and type(self.norm).__name__ == 'DyT':\n"
        "            raise RuntimeError('overheated')\n"
        "        if self.calls > 3 and type(self.norm).__name__ == 'Derf':\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return self.output(self.norm(self.embedding(x)))\n"
    )
    words = ["--model", "own:Fragile", "--norm", "layernorm", "dyt", "derf", "--lr", "0.01", "--seeds", "1"]
    done = compare(tmp_path / "out", *words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "2 of 3 runs crashed: derf--lr0.01--seed1, dyt--lr0.01--seed1; the same command with --retry" in done.stderr
    assert "overheated" in done.stderr
    assert "the process was killed (SIGKILL, perhaps for want of memory), 3 times" in done.stderr
    ends = {name: events[-1] for name, events in all_numbers(tmp_path / "out").items()}
    assert ends["layernorm--lr0.01--seed1.jsonl"]["status"] == "done"
    assert ends["dyt--lr0.01--seed1.jsonl"]["error"] == "RuntimeError: overheated"
    assert ends["derf--lr0.01--seed1.jsonl"]["status"] == "crashed"


@pytest.mark.parametrize(
    "words, said",
    [
        (["--norm", "layrnorm"], "did you mean 'layernorm'"),
        (["--norm", "frn"], "'frn' does not fit a stream of vectors"),
        (["--norm", "batchnorm"], "norm 'batchnorm' leaks: its statistic over N *"),
        (["--placement", "upside-down"], "placement must be one of 'altup', 'attention-residuals'"),
        (["--attention", "galerkn"], "did you mean 'galerkin'"),
        (["--linear", "zero-mean-linea"], "did you mean 'zero-mean-linear'"),
        (["--linear", "rmsnorm"], "linear='rmsnorm' is no linear map"),
        (["--model", "resnet", "--linear", "zero-mean-linear"], "has its own linear"),
        (["--optimizer", "adamx"], "no optimizer 'adamx'; did you mean 'adamax'? there are "),
        (["--baseline", "dyt", "--norm", "layernorm"], "--baseline 'dyt' is none of the variants: layernorm"),
        (["--model", "dekoder"], "no model 'dekoder'; models are 'decoder'"),
        (["--model", "decoder:width=3"], "model 'decoder' has no 'width'; it has dim, depth, heads"),
        (["--model", "timm:resnet1888"], "timm has no model 'resnet1888'; nearest: "),
        (["--model", "hf:/nowhere/at/all"], "model 'hf:/nowhere/at/all': there is no folder"),
        (["--model", "no.such.module:make"], "model 'no.such.module:make' cannot be imported"),
        (["--model", "torch.nn:Identity", "--norm", "rmsnorm"], "the model has no norm to replace"),
        (["--data", "nowhere.txt"], "neither a file nor a folder is there"),
        (["--data", "digits"], "learns from text, which data 'digits' is not"),
        (["--model", "resnet", "--placement", "post-norm"], "has its own placement"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--steps", "5", "--seconds", "5"], "exclude each other"),
        (["--lr", "-1"], "--lr must be above 0"),
        (["--sharded"], "torchrun"),
        (["--variants", "nowhere.yaml"], "there is no file 'nowhere.yaml'"),
    ],
)
def test_bad_input_is_named_before_anything_is_written(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text, said", [("", "is empty"), ("too short", "has 9 tokens; at least")])
def test_empty_data_is_named(text, said, tmp_path, capsys):
    (tmp_path / "data.txt").write_text(text)
    assert cli.main(["compare", "--data", str(tmp_path / "data.txt"), "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_missing_gpu_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert cli.main(["compare", "--device", "cuda", "--out", str(tmp_path / "out")]) == 2
    assert "torch sees no GPU" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["compare", *SMALL, "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_full_disk_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 2**20}))
    assert cli.main(["compare", *SMALL, "--out", str(tmp_path)]) == 2
    assert "1 MB free; logs and checkpoints need" in capsys.readouterr().err


def test_two_comparisons_do_not_share_a_folder(tmp_path, capsys):
    from filelock import FileLock

    with FileLock(tmp_path / ".lock"):
        assert cli.main(["compare", *SMALL, "--out", str(tmp_path)]) == 2
    assert "another normkit compare is at work" in capsys.readouterr().err


@pytest.mark.parametrize("why, status", [(KeyboardInterrupt, 130), (course.Stopped, 143)])
def test_a_stop_ends_with_the_status_of_its_signal(why, status, tmp_path, capsys, monkeypatch):
    def stop(*given):
        raise why

    monkeypatch.setattr(course, "compare", stop)
    assert cli.main(["compare", *SMALL, "--out", str(tmp_path)]) == status
    assert f"the same command goes on from {tmp_path}" in capsys.readouterr().err


def test_report_names_a_folder_without_comparison(tmp_path, capsys):
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "holds no comparison" in capsys.readouterr().err


def test_nothing_but_the_command_line_and_claims_imports_the_lab():
    package = Path(normkit.__file__).parent
    outside = [path for path in package.rglob("*.py") if not {package / "lab", package / "claims"} & {*path.parents}]
    importing = [path.name for path in outside if re.search(r"^\s*(from|import) normkit\.lab", path.read_text(), re.M)]
    assert importing == ["cli.py"]


def test_the_steps_of_a_run_are_those_of_the_settings_where_none_are_given():
    options = cli.parser().parse_args(["compare"])
    assert request.settings_from(request.with_defaults(options, {}), 1).steps == Settings().steps == 160


def test_a_training_of_ones_own_has_no_model_and_no_data_of_the_settings(tmp_path, monkeypatch):
    (tmp_path / "a_loop_of_mine.py").write_text("def train(build, seed, log): pass")
    monkeypatch.syspath_prepend(str(tmp_path))
    options = cli.parser().parse_args(["compare", "--train", "a_loop_of_mine:train"])
    settings = request.settings_from(request.with_defaults(options, {}), 1)
    assert (settings.model, settings.data, settings.batch) == ("", "", None)


def test_the_command_line_loads_no_part_of_the_lab_before_it_is_asked():
    code = "from normkit import cli; cli.parser(); import sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"accelerate", "rich", "plotly", "scipy", "transformers", "ray", "normkit.lab.training.loop"} & set(
        loaded
    )
