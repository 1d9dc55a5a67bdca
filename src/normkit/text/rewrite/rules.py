"""Rules: regular expressions that rewrite a text one after the other, each once, within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from normkit import check
from normkit.optional import library

Replacement = str | Callable[[Any], str]


class Change(NamedTuple):
    """What a rule did: its number and pattern, the place in the *original* text, and the text before and after."""

    rule: int
    pattern: str
    start: int
    end: int
    before: str
    after: str


class Rules:
    r"""Rewrite texts by an ordered list of regular expressions.

    Each rule is applied once, from left to right, to what the rule before it made; never again until nothing changes,
    which hangs where a replacement contains its own pattern. Code points are taken as they come. A pattern that
    explodes is stopped.

        >>> rules = Rules([(r"(\d+)\s*km\b", r"\1 kilometres"), (r"\bSt\.", "Saint")])
        >>> rules("St. Moritz, 5km")
        'Saint Moritz, 5 kilometres'
        >>> rules.trace("St. Moritz, 5km")[0]
        Change(rule=0, pattern='(\\d+)\\s*km\\b', start=12, end=15, before='5km', after='5 kilometres')

    Args:
        rules: (pattern, replacement) in order; a replacement is a template as of ``re.sub``, or a function of the match
            that returns a string.
        seconds: how long one rule may take on one text.
    """

    def __init__(self, rules: Iterable[tuple[str, Replacement]], seconds: float = 1.0):
        regex = library("regex")
        if isinstance(rules, str) or not isinstance(rules, Iterable):
            raise TypeError(f"Rules: rules must be (pattern, replacement) in order, not {rules!r}")
        self.rules: list[tuple[Any, ...]] = [tuple(rule) for rule in rules]
        self.seconds = check.number(self, "seconds", seconds, 0.0, open_low=True)
        self._compiled = []
        for number, rule in enumerate(self.rules):
            if len(rule) != 2 or not isinstance(rule[0], str) or not (isinstance(rule[1], str) or callable(rule[1])):
                raise TypeError(f"Rules: rule {number} must be (pattern, replacement or function), not {rule!r}")
            try:
                self._compiled.append((regex.compile(rule[0]), _function(number, rule[1])))
            except regex.error as error:
                raise ValueError(f"Rules: rule {number}, {rule[0]!r}, is no regular expression: {error}") from None

    def __call__(self, text: str) -> str:
        """Return the text rewritten."""
        self._require_text(text)
        for number, (pattern, replace) in enumerate(self._compiled):
            parts, last = [], 0
            for match in self._find_all(number, pattern, text):
                parts += [text[last : match.start()], self._written(number, replace, match)]
                last = match.end()
            text = "".join([*parts, text[last:]])
        return text

    def trace(self, text: str) -> list[Change]:
        """Return what each rule did, in the order that it was done."""
        self._require_text(text)
        places = [(at, at + 1) for at in range(len(text))]  # of each letter, where it comes from
        changes: list[Change] = []
        for number, (pattern, replace) in enumerate(self._compiled):
            text, places = self._apply(number, pattern, replace, text, places, changes)
        return changes

    def settings(self) -> dict[str, Any]:
        """What a normalizer writes down of it; functions cannot be."""
        for number, (pattern, replacement) in enumerate(self.rules):
            if not isinstance(replacement, str):
                raise ValueError(f"Rules: rule {number}, {pattern!r}, has a function, which cannot be saved")
        return {"rules": [list(rule) for rule in self.rules], "seconds": self.seconds}

    def _require_text(self, text: Any) -> None:
        if not isinstance(text, str):
            raise TypeError(f"Rules: text must be a string, not {text!r}")

    def _apply(
        self, number: int, pattern: Any, replace: Any, text: str, places: list[tuple[int, int]], changes: list[Change]
    ) -> tuple[str, list[tuple[int, int]]]:
        result, origin, last = "", list[tuple[int, int]](), 0
        for match in self._find_all(number, pattern, text):
            after = self._written(number, replace, match)
            start, end = match.span()
            whence = _span(places, start, end)
            changes.append(Change(number, pattern.pattern, *whence, match[0], after))
            result += text[last:start] + after
            origin += places[last:start] + [whence] * len(after)
            last = end
        return result + text[last:], origin + places[last:]

    def _written(self, number: int, replace: Callable[[Any], str], match: Any) -> str:
        after = replace(match)
        if not isinstance(after, str):
            raise TypeError(f"Rules: the function of rule {number} must return a string, not {after!r}")
        return after

    def _find_all(self, number: int, pattern: Any, text: str) -> Sequence[Any]:
        try:
            return list(pattern.finditer(text, timeout=self.seconds))
        except TimeoutError:
            raise ValueError(
                f"Rules: rule {number}, {pattern.pattern!r}, took more than {self.seconds:g} s on a text of "
                f"{len(text)} characters; write it so that it cannot be read in many ways, or raise seconds"
            ) from None


STEP = Rules


def _function(number: int, replacement: Replacement) -> Callable[[Any], str]:
    if not isinstance(replacement, str):
        return replacement
    error = library("regex").error

    def expanded(match: Any) -> str:
        try:
            return match.expand(replacement)
        except (error, IndexError) as why:
            raise ValueError(f"Rules: rule {number} has the template {replacement!r}, which is wrong: {why}") from None

    return expanded


def _span(places: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """Where letters come from in the original text; of none, the place between its neighbours."""
    if start < end:
        return min(a for a, _ in places[start:end]), max(b for _, b in places[start:end])
    at = places[start][0] if start < len(places) else places[-1][1] if places else 0
    return at, at
