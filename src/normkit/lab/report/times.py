"""Where the time of a comparison went: its calls', from ``times.json``, and its runs', from their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from normkit.lab.clock import RUNS
from normkit.lab.files import Folder, unseal
from normkit.lab.report.history import Comparison

OF_WORKERS = "start-up of workers, and waiting"


def time_shares(comparison: Comparison) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what calls and runs spent their time on, in words, with the share of the whole."""
    kept = calls(comparison.folder)
    of_calls = add_up(call["parts"] for call in kept)
    of_runs = add_up(run.end.get("parts") or {} for run in comparison.entire.runs)
    lists = [("All calls", _shares(of_calls))] if of_calls else []
    room = sum(call["parts"].get(RUNS, 0.0) * call["workers"] for call in kept)
    rest = {OF_WORKERS: room - sum(of_runs.values())} if room > sum(of_runs.values()) else {}
    return lists + ([("All runs", _shares({**of_runs, **rest}))] if of_runs else [])


def calls(root: str | Path) -> list[dict[str, Any]]:
    """Return the parts of each call and its workers, as the folder keeps them; of a file that cannot be read, none."""
    try:
        kept = unseal(Folder(root).times.read_bytes())
        kept = kept["calls"] if isinstance(kept, dict) else kept  # a list, of before it had a seal
        return [{"parts": add_up([call["parts"]]), "workers": int(call["workers"])} for call in kept]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def add_up(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up seconds by part.

    >>> add_up([{"training": 1.0}, {"training": 2.0, "evaluation": 0.5}])
    {'training': 3.0, 'evaluation': 0.5}
    """
    total: Counter[str] = Counter()
    for parts in several:
        total.update({name: float(value) for name, value in parts.items()})
    return dict(total)


def _shares(parts: Mapping[str, float]) -> list[tuple[str, str]]:
    whole = sum(parts.values()) or 1.0
    return [(name, f"{value:.1f} s, {value / whole:.0%}") for name, value in parts.items()]
