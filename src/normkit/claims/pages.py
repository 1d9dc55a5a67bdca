"""What stored claims come to, as pages of the site have it between two marks: tables, counts, and beds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from normkit.claims import engine, shelf
from normkit.claims.engine import SPENT, UNTRIED, WORDS, Verdict
from normkit.columns import number_of
from normkit.files import replace_file
from normkit.optional import require


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
    """Say in a line what is stored of a method's claims, or what is missing to judge it; empty where there is none."""
    if method not in shelf.methods():
        return ""
    try:
        require("scipy")
    except ValueError as error:
        return f"not shown: {error}"
    stored = [entry for entry in shelf.claims_of(method) if entry.claim is None or shelf.stored(entry) is not None]
    groups: dict[str, list[str]] = {}
    for verdict in engine.verdicts(stored):
        groups.setdefault(verdict.spoken, []).append(verdict.name)
    left = len(groups.pop(UNTRIED, []))
    words = [f"{word}: {', '.join(names)}" for word, names in groups.items()]
    return "; ".join([*words, *([f"not tried: {left}"] if left else [])]) + f" ('normkit claim {method}')"


def write(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Put what a page has marks for into it: ``claims``, ``counts`` or ``beds``."""
    page = path.read_text(encoding="utf-8")
    marks = [mark for mark in PARTS if f"<!-- {mark} -->" in page]
    if not marks:
        raise ValueError(f"--page: {path} has no lines <!-- claims --> and <!-- /claims -->")
    for mark in marks:
        page = with_part(page, mark, PARTS[mark](verdicts))
    replace_file(path, page)


def with_part(page: str, mark: str, text: str) -> str:
    """Return a page with a text between the two lines of a mark."""
    between = re.compile(f"(?<=<!-- {mark} -->\n).*(?=<!-- /{mark} -->)", re.DOTALL)
    return between.sub(lambda _: text, page)


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
    says += " Alone, not among so many." if verdict.alone else ""
    says += f" The paper: {verdict.paper}." if verdict.paper else ""
    cells = (
        verdict.method,
        says,
        f"{verdict.measured} {verdict.number:.3g}",
        verdict.wanted,
        f"{verdict.control:.3g}, {verdict.against}",
    )
    return f"| {' | '.join(cell.replace('|', ESCAPED) for cell in cells)} |"


KINDS = {
    "identity": "exact: is it so?",
    "property": "what does it do, without training or in short training?",
    "training": "is a model better that was trained with it?",
}


def tally(verdicts: Sequence[Verdict]) -> str:
    """Return how often a small experiment decided, by the kind of the question."""
    lines = ["| question | holds | does not hold | undecided | not tried |", "| --- | --- | --- | --- | --- |"]
    for kind, question in KINDS.items():
        words = Counter(verdict.word for verdict in verdicts if verdict.kind == kind)
        cells = (words[word] for word in (engine.HOLDS, engine.FAILS, engine.UNDECIDED, UNTRIED))
        lines.append(f"| {kind}: {question} | {' | '.join(map(str, cells))} |")
    tried = [verdict for verdict in verdicts if verdict.word != UNTRIED]
    small = [verdict for verdict in tried if verdict.reach == "proxy"]
    held = sum(verdict.word == engine.HOLDS for verdict in small)
    alone = sum(verdict.alone for verdict in tried)
    trained = [v for v in tried if v.kind == "training" and re.match(r"at least [^-]", v.wanted)]
    signs = sum(verdict.number > 0 for verdict in trained)
    rest = f" {number_of(alone, 'verdict')} would not be kept where all claims are judged at once." if alone else ""
    lines += [
        "",
        f"{len(small)} of these {len(tried)} put a small model in the place of a large one, and {held} of them hold at "
        f"this scale.{rest}",
    ]
    if trained:
        lines += [
            "",
            f"Of {number_of(len(trained), 'claim')} that a model is better, {signs} came out so in sign.",
        ]
    return "\n".join(lines) + "\n"


def beds(verdicts: Sequence[Verdict]) -> str:
    """Return a part for each bed: what it is, what it saw, its smallest effect, and what was asked of it."""
    from normkit.claims.beds import BEDS

    return "\n\n".join(
        "\n".join([
            f"### {bed.name.capitalize().replace('-', ' ')}\n\n{bed.what}\n",
            *(sight(entry) for entry in shelf.beds() if entry.method == bed.name),
            *outcomes([verdict for verdict in verdicts if verdict.bed == bed.name]),
            f"- It is blind to: {bed.blind}",
        ])
        for bed in BEDS
    ) + "\n"  # fmt: skip


def sight(entry: shelf.Entry) -> str:
    """Say whether a bed saw what is known."""
    kept = shelf.stored(entry)
    if kept is None:
        return f"- Not asked: {entry.says}"
    verdict = engine.verdict(entry, kept)
    saw = "It saw" if verdict.word == engine.HOLDS else "It did not see"
    return f"- {saw}: {entry.says} ({verdict.measured} {verdict.number:.2f}; {verdict.against}: {verdict.control:.2f})"


def outcomes(verdicts: Sequence[Verdict]) -> list[str]:
    """Say what came of the claims of a bed, and how small an effect it would have seen."""
    words = Counter(verdict.word for verdict in verdicts)
    least: dict[str, list[float]] = {}
    for verdict in verdicts:
        if verdict.least == verdict.least:
            least.setdefault(verdict.measured, []).append(verdict.least)
    if not least:
        return []
    ranges = {unit: sorted({f"{min(own):.2g}", f"{max(own):.2g}"}, key=float) for unit, own in sorted(least.items())}
    seen = [f"{' to '.join(own)} {unit}" for unit, own in ranges.items()]
    return [
        f"- Smallest effects that it would see four times in five, by claim: {'; '.join(seen)}.",
        f"- Verdicts: {', '.join(f'{word} {words[word]}' for word in WORDS[2::-1] if words[word])}.",
    ]


PARTS = {"claims": marked, "counts": tally, "beds": beds}
