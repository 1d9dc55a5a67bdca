"""Where the time of a comparison went is kept by part, in the logs and beside them, and stands in the report."""

import time

import pytest
from helpers import TINY

import normkit as nk
from normkit.lab import clock, logs
from normkit.lab.files import Folder
from normkit.lab.report import page, times


def test_a_second_is_of_the_innermost_part(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found = clock.Clock()
    with found.part("building"):
        now[0] = 2.0
        with found.part("recognition"):
            now[0] = 5.0
        now[0] = 6.0
    now[0] = 9.0
    assert found.read() == {"building": 3.0, "recognition": 3.0}
    assert found.read() == {}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    given = {"model": TINY, "length": 16, "batch": 4, "steps": 4, "seeds": 1, "lr": 0.01, "engine": "here"}
    given |= {"norms": ["layernorm", "dyt"], "out": tmp_path_factory.mktemp("times") / "out"}
    return nk.compare(**given), given


def test_a_run_and_a_call_tell_their_parts(result):
    folder = Folder(result[0].folder)
    for path in folder.logs():
        end = logs.read(path).end
        parts = end["parts"]
        assert set(parts) == {
            *(clock.BUILDING, clock.RECOGNITION, clock.TRAINING, clock.EVALUATION, clock.REST),
        }
        assert parts[clock.TRAINING] == pytest.approx(end["seconds"], abs=0.05, rel=0.1)
    (call,) = times.calls(folder.root)
    assert set(call["parts"]) == {clock.START, clock.RECOGNITION, clock.RUNS, clock.RACE, clock.REPORT}
    own = times.add_up(logs.read(path).end["parts"] for path in folder.logs())
    assert sum(own.values()) < call["parts"][clock.RUNS]


def test_the_report_says_where_it_went_and_a_call_that_trains_nothing_adds_nothing(result):
    before = Folder(result[0].folder).times.read_text()
    again = nk.compare(**result[1])
    assert Folder(again.folder).times.read_text() == before
    lists = dict(page.content(again.comparison)["times"])
    parts = [clock.START, clock.RECOGNITION, clock.RUNS, clock.RACE, clock.REPORT]
    assert [name for name, _ in lists["All calls"]] == parts
    assert times.OF_WORKERS in dict(lists["All runs"])
    assert "Where the time went" in again.report.read_text()


def test_a_file_that_cannot_be_read_tells_nothing(result):
    path = Folder(result[0].folder).times
    path.write_text('[{"parts": 3}]')
    assert times.calls(result[0].folder) == []
    assert "All calls" not in dict(times.time_shares(result[0].comparison))
