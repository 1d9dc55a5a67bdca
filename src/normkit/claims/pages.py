"""The table of claims as a page of the site has it, between two marks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from normkit.claims import engine, shelf
from normkit.claims.engine import SPENT, UNTRIED, WORDS, Verdict
from normkit.columns import number_of
from normkit.files import replace_file

MARKED = re.compile("(?<=<!-- claims -->\n).*(?=<!-- /claims -->)", re.DOTALL)


def ordered(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return those that were tried, by verdict, then method."""
    tried = [verdict for verdict in verdicts if verdict.word != UNTRIED]
    return sorted(tried, key=lambda verdict: (WORDS.index(verdict.word), verdict.method))


def counts(verdicts: Sequence[Verdict]) -> list[str]:
    """Say how many claims have each word, and why the others were not tried."""
    words = Counter(verdict.word for verdict in verdicts)
    lines = [", ".join(f"{words[word]:,} {word}" for word in (*WORDS[2::-1], UNTRIED) if words[word])]
    for kind, reason in {**shelf.NEEDS, "": SPENT}.items():
        left = sum(v.word == UNTRIED and (v.why == SPENT if not kind else v.kind == kind and v.why != SPENT)
                   for v in verdicts)  # fmt: skip
        lines += [f"not tried: {number_of(left, 'claim')}: {reason}"] if left else []
    return lines


def line(method: str) -> str:
    """Say in a line what is stored of a method's claims; empty where there is none."""
    if method not in shelf.methods():
        return ""
    stored = [entry for entry in shelf.claims_of(method) if entry.claim is None or shelf.stored(entry) is not None]
    found: dict[str, list[str]] = {}
    for verdict in engine.verdicts(stored):
        found.setdefault(verdict.spoken, []).append(verdict.name)
    left = len(found.pop(UNTRIED, []))
    words = [f"{word}: {', '.join(names)}" for word, names in found.items()]
    return "; ".join([*words, *([f"not tried: {left}"] if left else [])]) + f" ('normkit claim {method}')"


def write(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Put the table into a page."""
    page = path.read_text(encoding="utf-8")
    if not MARKED.search(page):
        raise ValueError(f"--page: {path} has no lines <!-- claims --> and <!-- /claims -->")
    replace_file(path, MARKED.sub(lambda _: marked(verdicts), page))


def marked(verdicts: Sequence[Verdict]) -> str:
    """Return the table, a part a verdict."""
    parts = ["\n".join(f"- {line}" for line in counts(verdicts))]
    for word in WORDS[:3]:
        own = [verdict for verdict in ordered(verdicts) if verdict.word == word]
        if own:
            parts.append(f"## {word.capitalize()}\n\n" + "\n".join([*HEAD, *map(row, own)]))
    return "\n\n".join(parts) + "\n"


ESCAPED = chr(92) + "|"
HEAD = ("| method | claim | number | must be | control |", "| --- | --- | --- | --- | --- |")


def row(verdict: Verdict) -> str:
    """A row of the table."""
    says = verdict.says + (" At this scale." if verdict.reach == "proxy" else "")
    cells = (
        verdict.method,
        says,
        f"{verdict.measured} {verdict.number:.3g}",
        verdict.wanted,
        f"{verdict.control:.3g}, {verdict.against}",
    )
    return f"| {' | '.join(cell.replace('|', ESCAPED) for cell in cells)} |"
