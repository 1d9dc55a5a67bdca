"""What the watch found wrong in the runs of each variant, as the report tells it."""

from __future__ import annotations

from typing import Any

from normkit.columns import number_of
from normkit.lab.report.history import Comparison, Record
from normkit.watching.finding import list_names


def health(comparison: Comparison) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the findings of each variant that was watched, the gravest first, each with the seeds that have it."""
    watched = {
        name: [run for run in comparison.final_runs(name) if run.found is not None] for name in comparison.variants
    }
    return [(name, _of(runs)) for name, runs in watched.items() if runs]


def _of(runs: list[Record]) -> list[dict[str, Any]]:
    by_rule: dict[str, list[tuple[Record, dict[str, Any]]]] = {}
    for run in runs:
        for finding in run.found or []:
            by_rule.setdefault(finding["rule"], []).append((run, finding))
    return [_row_of(cases, len(runs)) for cases in by_rule.values()]


def _row_of(records: list[tuple[Record, dict[str, Any]]], of: int) -> dict[str, Any]:
    """Tell a finding by the first seed that has it."""
    run, finding = records[0]
    since = f", since step {finding['since']}" if finding.get("since") is not None else ""
    count = f"{len(dict.fromkeys(run.seed for run, _ in records))} of {number_of(of, 'run')}"
    return {
        "title": f"{finding['title']}: {list_names(finding['where'])}{since}",
        "evidence": f"{finding['evidence']} Seen in {count}; these are the words of seed {run.seed}.",
        "leads": finding.get("leads", ""),
        "remedies": [tuple(remedy[:2]) for remedy in finding.get("remedies", [])],
    }
