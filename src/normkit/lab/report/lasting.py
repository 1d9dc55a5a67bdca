"""How often findings like those of a comparison were found again at four times the steps, in normkit's own small runs.

The counts are those of ``benchmarks/lasting.py``; docs/trust.md says what was trained.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from normkit.lab.plan.findings import BETTER, WORSE
from normkit.lab.plan.variants import OF_A_VARIANT
from normkit.lab.report.factor import variants_of
from normkit.lab.report.history import Comparison
from normkit.lab.report.ranking import Row

KEPT = Path(__file__).with_name("lasting.json")
KINDS, TIMES = ("optimizer", "norm"), 4


@functools.cache
def counts() -> Mapping[str, Mapping[str, int]]:
    """Return by kind how many findings held, of how many."""
    return json.loads(KEPT.read_text(encoding="utf-8"))


def kind(comparison: Comparison) -> str:
    """Return the one choice in which all variants but twins differ; empty where there are several, or none."""
    variants = [variant for variant in variants_of(comparison) if variant.name not in comparison.twins]
    varied = [name for name in OF_A_VARIANT if len({str(getattr(variant, name)) for variant in variants}) > 1]
    return varied[0] if len(varied) == 1 else ""


def headline(comparison: Comparison, rows: Sequence[Row]) -> str:
    """Say how often such findings held; nothing where nothing was found, or a ladder tells it of these themselves.

    Nor below a training loop of the user's own, which those runs say nothing of.
    """
    if comparison.settings.get("train"):
        return ""
    decided = any(row.finding and row.finding.word in (BETTER, WORSE) and not row.is_twin for row in rows)
    known = counts().get(kind(comparison)) if decided and not comparison.rungs else None
    if not known:
        return ""
    return (
        f"In normkit's own small runs, findings between {kind(comparison)}s held at four times the steps in "
        f"{known['held']} of {known['of']} cases"
    )
