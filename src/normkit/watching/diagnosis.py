"""What goes wrong in a training: every rule is asked, and findings come in order of weight."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from normkit.columns import number_of
from normkit.families import Family
from normkit.watching.causes import by_cause
from normkit.watching.certainty import certainty, unknown
from normkit.watching.finding import Finding
from normkit.watching.history import History
from normkit.watching.store import Sign

WIDTH = 110
NO_SAMPLE = "no sample"
INNER = ("weight", "margin", "causes", "slight")  # of a finding: what it is ranked and ordered by
Rule = Callable[[History], Iterator[Finding]]


RULES = Family("rule", "find", "watching/rules")


def all_rules() -> dict[str, Rule]:
    """Return every rule by its name: the files of the folder are the list."""
    return dict(RULES)


def all_signs() -> tuple[Sign, ...]:
    """Return the signs that the files of the rules name."""
    files = [vars(sys.modules[rule.__module__]) for rule in all_rules().values()]
    return tuple(dict.fromkeys(value for file in files for value in file.values() if isinstance(value, Sign)))


def beside(rule: Rule, name: str) -> Any:
    """Return what stands beside a rule in its file, as its trial; None where nothing does."""
    return getattr(sys.modules.get(rule.__module__), name, None)


@dataclass(frozen=True)
class Diagnosis(Sequence[Finding]):
    """Findings, the surest first and of those the gravest; printed as text.

    seen: how much was looked at. notes: what could not be read. unknown: what cannot be decided, and why.
    """

    findings: tuple[Finding, ...]
    seen: str
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __getitem__(self, place: Any) -> Any:
        return self.findings[place]

    def __len__(self) -> int:
        return len(self.findings)

    def of(self, rule: str) -> list[Finding]:
        """Return what one rule has found."""
        return [finding for finding in self.findings if finding.rule == rule]

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        findings = [{key: value for key, value in asdict(f).items() if key not in INNER} for f in self.findings]
        return {"seen": self.seen, "findings": findings, "notes": list(self.notes), "unknown": list(self.unknown)}

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = WIDTH) -> str:
        """Return the findings in words, in lines of so many characters at most."""
        width = min(width, WIDTH)
        count = len(self.findings)
        nothing = "Nothing was looked at" if self.seen == NO_SAMPLE else f"Nothing found in {self.seen}"
        head = f"{number_of(count, 'finding')} in {self.seen}" if count else nothing
        titles = {finding.rule: finding.title for finding in self.findings}
        pairs = enumerate(self.findings, 1)
        parts = [
            head,
            *(write_finding(number, finding, width, titles.get(finding.cause, "")) for number, finding in pairs),
        ]
        parts += ["\n".join(textwrap.wrap(f"Cannot tell {question}.", width)) for question in self.unknown]
        return "\n\n".join([*parts, *(f"Not seen: {note}" for note in self.notes)])


def write_finding(number: int, finding: Finding, width: int = WIDTH, cause: str = "") -> str:
    """Tell a finding in some lines, and the title of its cause."""
    since = f"since step {finding.since}" if finding.since is not None else ""
    marks = ", ".join(filter(None, (finding.certainty, since)))
    lines = [f"{number}. {finding.title}{f'  ({marks})' * bool(marks)}", *_wrap(finding.evidence, width)]
    lines += _wrap(f"otherwise: {finding.otherwise}", width) if finding.otherwise else []
    lines += _wrap(f"follows from: {cause}", width) if cause else []
    lines += _wrap(f"leads to: {finding.leads}", width) if finding.leads else []
    longest = max((len(remedy.name) for remedy in finding.remedies), default=0)
    for remedy in finding.remedies:
        lines.append(f"   {'try' if remedy.runs else 'or'}: {remedy.name:{longest}}   {remedy.line}")
        lines += _wrap(f"tried on a copy: {remedy.tried}", width, 8) if remedy.tried else []
    return "\n".join(lines)


def _wrap(text: str, width: int, indent: int = 3) -> list[str]:
    space = " " * indent
    return textwrap.wrap(text, width, initial_indent=space, subsequent_indent=space, break_long_words=False)


def diagnose(history: History, asked: Mapping[str, Rule] | None = None) -> Diagnosis:
    """Ask all rules, or some; a rule that fails is named, and does not hide the others."""
    findings: list[Finding] = []
    notes = list(history.notes)
    rules = asked or all_rules()
    for name, rule in rules.items():
        try:
            findings += [
                replace(finding, rule=name, certainty=certainty(finding, history.steps)) for finding in rule(history)
            ]
        except Exception as error:
            notes.append(f"rule {name} could not judge: {type(error).__name__}: {error}")
    needs = [needs for rule in rules.values() if (needs := beside(rule, "NEEDS")) is not None]
    return Diagnosis(tuple(by_cause(findings)), span(history), tuple(notes), tuple(unknown(history, needs)))


def span(history: History) -> str:
    """Say how much was looked at.

    >>> from normkit.watching.store import Store
    >>> span(History(Store(), {"every": 20}))
    'no sample'
    """
    if not history.steps:
        return NO_SAMPLE
    layers = number_of(len(history.names("rms")), "layer")
    if len(history.steps) == 1:
        return f"one sample of {layers}, at step {history.steps[0]}"
    return f"{len(history.steps)} samples of {layers}, steps {history.steps[0]} to {history.steps[-1]}"


def join_titles(findings: Iterable[Finding]) -> str:
    """Name findings in one line.

    >>> join_titles([]), join_titles([Finding("units are dead", 1.0, ("0",), "")])
    ('nothing found', 'units are dead: 0')
    """
    return "; ".join(f"{f.title}: {f.places()}" for f in findings) or "nothing found"
