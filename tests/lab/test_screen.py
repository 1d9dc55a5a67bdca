"""What the terminal shows while runs go on."""

import contextvars
import io
import time
from contextlib import nullcontext

import pytest
from helpers import run, settings
from rich.console import Console

from normkit.lab import notebook
from normkit.lab.plan.plan import Plan
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.screen import Screen, clock, describe_end, search_budget, side_by_side
from normkit.lab.training import runs


def shown(screen):
    console = Console(file=io.StringIO(), width=120)
    console.print(screen.picture())
    return console.file.getvalue()


def test_bars_follow_the_logs(tmp_path):
    plan = Plan(settings(seeds=1, lrs=(0.01,)), (Variant("rmsnorm", norm="rmsnorm"),), "rmsnorm")
    screen = Screen(plan, runs.open_folder(plan, tmp_path, []), {})
    screen.console = Console(file=io.StringIO(), width=120)
    screen.note(run(), None)
    assert "starting" in shown(screen)
    log = screen.folder.log(run().name)
    log.write_text(
        '{"event": "step", "step": 3, "loss": 2.5, "seconds": 2.0, "tokens": 400, "unit": "tokens"}\n{"event": "st'
    )
    assert all(words in shown(screen) for words in ("rmsnorm", "lr 0.01, seed 1", "25%", "loss 2.5000", "200 tokens/s"))
    with log.open("a") as file:
        file.write('ep", "step": 9, "loss": 2.25, "seconds": 3.0, "tokens": 900, "unit": "images"}\n')
    assert all(words in shown(screen) for words in ("75%", "loss 2.2500", "300 images/s", "75% of all", "left"))
    result = {"status": "done", "final_loss": 2.0, "tokens_per_second": 310.0, "unit": "images", "seconds": 4.0}
    screen.note(run(), result)
    assert "100% of all" in shown(screen)
    assert "loss 2.0000  310 images/s  4.0 s" in screen.console.file.getvalue()


class Cell:
    """What IPython has of a cell: the texts that stood below it, one after the other."""

    def __init__(self):
        self.texts, self.threads = [], set()

    def display(self, content, raw, display_id):
        assert raw
        assert display_id
        self.update(content, raw)
        return self

    def update(self, content, raw):
        self.texts.append(content["text/plain"])
        self.threads.add(HEADER.get())


HEADER = contextvars.ContextVar("whose cell it is", default="none")


def test_a_notebook_shows_how_far_it_is_and_nothing_when_all_is_done(monkeypatch):
    cell, shares = Cell(), iter(range(1, 1000))
    monkeypatch.setattr("normkit.lab.notebook.at_hand", lambda name: cell if name == "IPython.display" else None)
    HEADER.set("this cell")
    with notebook.animate(lambda: f"{next(shares)} of 9", every=0.001):
        while len(cell.texts) < 4:
            time.sleep(0.001)
    assert cell.texts[:3] == ["1 of 9\n", "2 of 9\n", "3 of 9\n"]
    assert cell.texts[-1] == ""
    assert cell.threads == {"this cell"}


def test_only_a_notebook_is_drawn_in(tmp_path, monkeypatch):
    plan = Plan(settings(seeds=1, lrs=(0.01,)), (Variant("rmsnorm", norm="rmsnorm"),), "rmsnorm")
    screen, drawn = Screen(plan, runs.open_folder(plan, tmp_path, []), {}), []
    monkeypatch.setattr("normkit.lab.notebook.animate", lambda picture: drawn.append(picture) or nullcontext())
    for jupyter in (False, True):
        screen.console = Console(file=io.StringIO(), force_jupyter=jupyter)
        with screen.live():
            pass
    assert drawn == [screen.picture]


def test_a_terminal_shows_no_more_of_a_picture_that_has_ended(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    plan = Plan(settings(seeds=1, lrs=(0.01,)), (Variant("rmsnorm", norm="rmsnorm"),), "rmsnorm")
    screen, terminal = Screen(plan, runs.open_folder(plan, tmp_path, []), {}), io.StringIO()
    screen.console = Console(file=terminal, force_terminal=True)
    with screen.live():
        pass
    assert terminal.getvalue().endswith("\x1b[2K"), "its lines are erased"


def test_a_failure_is_described_as_it_is():
    assert "RuntimeError: a [b]" in describe_end(run(), {"status": "crashed", "error": "RuntimeError: a [b]"}).plain


def test_a_run_that_is_done_has_its_name_its_end_and_its_numbers_in_this_order():
    result = {"status": "done", "final_loss": 2.0, "tokens_per_second": 310.0, "unit": "images", "seconds": 4.0}
    assert describe_end(run(), result).plain == (
        f"{'rmsnorm':24} {'lr 0.01, seed 1':20} done loss 2.0000  310 images/s  4.0 s"
    )


def test_a_run_that_was_lost_is_said_to_go_on():
    assert describe_end(run(), {"status": "interrupted", "error": "killed"}).plain.endswith(
        "killed; the run goes on from its checkpoint"
    )


def test_the_budget_of_the_search_is_said():
    assert search_budget(settings()) == "3 to 5 learning rates tried"
    assert search_budget(settings(trials=2, search=0.5)) == "2 learning rates tried for 50% of that"
    assert search_budget(settings(lrs=(0.1, 0.2), trials=5)) == "2 learning rates tried"
    assert search_budget(settings(lrs=(0.1, 0.1, 0.3), decays=(0.0, 0.0))) == "2 learning rates tried"
    assert search_budget(settings(trials=1)) == search_budget(settings(lrs=(0.1,))) == "no search"


def test_durations():
    assert [clock(s) for s in (5, 75, 3725)] == ["0:05", "1:15", "1:02:05"]


@pytest.mark.parametrize(
    ("engine", "workers", "said"),
    [("here", 2, "one after the other"), ("local", 1, "one after the other"), ("local", 2, "2 side by side")],
)
def test_how_many_runs_go_on_at_once_is_what_the_engine_does(engine, workers, said):
    assert side_by_side(Settings(engine=engine, workers=workers)) == said
