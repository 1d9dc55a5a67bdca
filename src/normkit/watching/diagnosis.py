"""What goes wrong in a training: every rule is asked, and what they find is told in order of weight."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from normkit.columns import number_of
from normkit.families import Family
from normkit.watching.causes import ordered
from normkit.watching.finding import Finding
from normkit.watching.history import History
from normkit.watching.store import Sign

WIDTH = 110
Rule = Callable[[History], Iterator[Finding]]


RULES = Family("rule", "find", "watching/rules")


def all_rules() -> dict[str, Rule]:
    """Return every rule by its name: the files of the folder are the list."""
    return dict(RULES)


def all_signs() -> tuple[Sign, ...]:
    """Return the signs that the files of the rules name."""
    files = [vars(sys.modules[rule.__module__]) for rule in all_rules().values()]
    return tuple(dict.fromkeys(value for file in files for value in file.values() if isinstance(value, Sign)))


@dataclass(frozen=True)
class Diagnosis(Sequence[Finding]):
    """Findings, the gravest first; printed as text."""

    findings: tuple[Finding, ...]
    seen: str
    notes: tuple[str, ...] = ()

    def __getitem__(self, place: Any) -> Any:
        return self.findings[place]

    def __len__(self) -> int:
        return len(self.findings)

    def of(self, rule: str) -> list[Finding]:
        """Return what one rule has found."""
        return [finding for finding in self.findings if finding.rule == rule]

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        told = [{key: value for key, value in asdict(f).items() if key != "weight"} for f in self.findings]
        return {"seen": self.seen, "findings": told, "notes": list(self.notes)}

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = WIDTH) -> str:
        """Return the findings in words, in lines of so many characters at most."""
        width = min(width, WIDTH)
        count = len(self.findings)
        head = f"{count} finding{'s' * (count != 1)} in {self.seen}" if count else f"Nothing found in {self.seen}"
        titles = {finding.rule: finding.title for finding in self.findings}
        pairs = enumerate(self.findings, 1)
        parts = [head, *(told(number, finding, width, titles.get(finding.cause, "")) for number, finding in pairs)]
        return "\n\n".join([*parts, *(f"Not seen: {note}" for note in self.notes)])


def told(number: int, finding: Finding, width: int = WIDTH, cause: str = "") -> str:
    """Tell a finding in some lines, and the title of its cause."""
    since = f"  (since step {finding.since})" if finding.since is not None else ""
    lines = [f"{number}. {finding.title}{since}", *_wrapped(finding.evidence, width)]
    lines += _wrapped(f"follows from: {cause}", width) if cause else []
    lines += _wrapped(f"leads to: {finding.leads}", width) if finding.leads else []
    longest = max((len(remedy.name) for remedy in finding.remedies), default=0)
    lines += [f"   try: {remedy.name:{longest}}   {remedy.line}" for remedy in finding.remedies]
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent="   ", subsequent_indent="   ", break_long_words=False)


def diagnose(history: History, asked: Mapping[str, Rule] | None = None) -> Diagnosis:
    """Ask all rules, or some; a rule that fails is told, and does not hide the others."""
    found: list[Finding] = []
    notes = list(history.notes)
    for name, rule in (asked or all_rules()).items():
        try:
            found += [finding.named(name) for finding in rule(history)]
        except Exception as error:
            notes.append(f"rule {name} could not judge: {type(error).__name__}: {error}")
    return Diagnosis(tuple(ordered(found)), span(history), tuple(notes))


def span(history: History) -> str:
    """Say how much was looked at.

    >>> from normkit.watching.store import Store
    >>> span(History(Store(), {"every": 20}))
    'no sample'
    """
    if not history.steps:
        return "no sample"
    layers = number_of(len(history.names("rms")), "layer")
    if len(history.steps) == 1:
        return f"one sample of {layers}, at step {history.steps[0]}"
    return f"{len(history.steps)} samples of {layers}, steps {history.steps[0]} to {history.steps[-1]}"


def joined(findings: Iterable[Finding]) -> str:
    """Name findings in one line.

    >>> joined([]), joined([Finding("units are dead", 1.0, ("0",), "")])
    ('nothing found', 'units are dead: 0')
    """
    return "; ".join(f"{f.title}: {f.places()}" for f in findings) or "nothing found"
