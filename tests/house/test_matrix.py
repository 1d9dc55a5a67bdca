"""The table of what normkit was tried with is that of the file, and a row says what a trial found."""

import matrix
import trial

TRIAL = {
    **{"python": "3.11.2", "machine": "aarch64", "torch": "2.8.0", "numpy": "1.26.4", "transformers": None},
    **{"timm": None, "accelerate": None, "doctor": {"C kernels": "on, baseline"}, "live": True, "short way": True},
    "failed": {"timm": "ValueError: no"},
    "goldens": {"good": 1200, "wrong": {"adamp/plain": "off by 1"}, "missing": {"x/y": "scipy"}},
}


def test_a_row_counts_the_goldens_and_names_those_that_did_not_agree():
    row = matrix.row(TRIAL, "2026-11-26", "abc")
    assert row["goldens"] == "1,200 of 1,202"
    assert row["others"] == "timm: ValueError: no; adamp/plain: off by 1; x/y: scipy"
    assert (row["kernels"], row["transformers"]) == ("on, baseline", "-")
    assert matrix.row({**TRIAL, "short way": False}, "", "")["kernels"].endswith("; no short way for small calls")


def test_a_trial_uses_what_is_installed_and_names_what_fails(monkeypatch):
    calls = []
    uses = {"numpy": lambda: calls.append(1), "torch": lambda: [][1], "no-such-package": lambda: calls.append(2)}
    monkeypatch.setattr(trial, "USES", uses)
    assert trial.used() == {"torch": "IndexError: list index out of range"}
    assert calls == [1]


def test_a_new_result_takes_the_place_of_the_old_one_of_the_same_versions():
    old, again = matrix.row(TRIAL, "1", "a"), matrix.row(TRIAL, "2", "b")
    newer = matrix.row({**TRIAL, "torch": "2.13.0"}, "1", "a")
    older = matrix.row({**TRIAL, "torch": "2.9.1"}, "1", "a")
    assert matrix.merged([newer, old], [again, older]) == [again, older, newer]


def test_the_page_shows_the_rows_of_the_file():
    page = matrix.PAGE.read_text()
    assert page == matrix.written(page, matrix.read(matrix.ROWS.read_text()))
    assert set(matrix.read(matrix.ROWS.read_text())[0]) == set(matrix.COLUMNS)
