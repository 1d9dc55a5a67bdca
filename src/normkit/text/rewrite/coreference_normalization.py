"""Coreference normalization: the written forms of one named entity brought to its fullest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from normkit.catalog import method
from normkit.kinds import Text

TITLES = frozenset(["mr", "mrs", "ms", "dr", "sir", "prof", "president", "senator"])
SMALL = ("of", "the", "and", "for")
POSSESSIVE = re.compile("['\u2019]s$")


class Mention(NamedTuple):
    """Where a mention is, its type, its words as they are compared, and its form without a possessive."""

    start: int
    end: int
    type: str
    key: tuple[str, ...]
    form: str
    tail: str


@method(
    "coreference-normalization",
    paper="Supervised Topical Key Phrase Extraction of News Stories using Crowdsourcing, Light Filtering and "
    "Co-reference Normalization (Marujo et al., 2012), arXiv 1306.4886",
    evidence="abstract",
    shape="",
    provenance="there is no code, and only the abstract could be read: the rule is this library's",
)
class CoreferenceNormalization(Text):
    """Write every mention of a named entity in the longest form that the text has for it.

    For counting names or extracting key phrases, behind any recognizer of named entities, where a full name, a surname
    and initials would count apart. It reads the names and nothing around them, so pronouns stay.

    A mention may take the form of another of its type if its words are the same, or are a part of the other's in a row.
    So it may if it is one word, the initials of the other's. It takes the largest such form, by words, then characters,
    then place, and from there once more the largest that holds that. Titles, case and possessives do not count. Two
    people of one surname in a story become one.

    ``method(text, mentions)``: mentions (start, end, type), in code points; gives text, every mention in its canonical
    form, and canonical, that of each mention. A mention that starts inside an earlier one stays as it is.

    Marujo et al., 2012, arXiv 1306.4886.
    """

    calls = {"__call__": ("Mr. Lee met Ann Lee's sister.", [[0, 7, "PER"], [12, 21, "PER"]])}

    def __call__(self, text: str, mentions: Sequence[tuple[int, int, str]]) -> dict[str, Any]:
        """Return the text and the canonical forms."""
        for start, end, _ in mentions:
            if not 0 <= start <= end <= len(text):
                raise ValueError(f"CoreferenceNormalization: mentions must lie in the text, not from {start} to {end}")
        spans = [_read(text, *mention) for mention in mentions]
        largest = _largest(spans)
        forms = [_canonical(place, spans, largest) for place in range(len(spans))]
        return {"text": _replace(text, spans, forms), "canonical": forms}


def _read(text: str, start: int, end: int, kind: str) -> Mention:
    phrase = text[start:end]
    tail = POSSESSIVE.search(phrase)
    words = [word for word in (word.strip(".,").casefold() for word in phrase.split()) if word]
    while len(words) > 1 and words[0] in TITLES:
        words = words[1:]
    key = tuple(POSSESSIVE.sub("", word) for word in words)
    return Mention(start, end, kind, key, POSSESSIVE.sub("", phrase), tail[0] if tail else "")


def _size(place: int, mentions: list[Mention]) -> tuple[int, int, int]:
    return len(mentions[place].key), len(mentions[place].form), -place


def _largest(mentions: list[Mention]) -> dict[tuple[str, Any], int]:
    """For each type and some words in a row, or initials, the place of the largest mention that has them."""
    lengths = {len(mention.key) for mention in mentions}
    largest: dict[tuple[str, Any], int] = {}
    for place, mention in enumerate(mentions):
        for key in (*_parts(mention.key, lengths), *_initials(mention.key)):
            other = largest.setdefault((mention.type, key), place)
            largest[mention.type, key] = max(other, place, key=lambda at: _size(at, mentions))
    return largest


def _canonical(place: int, mentions: list[Mention], largest: dict[tuple[str, Any], int]) -> str:
    _, _, kind, own, *_ = mentions[place]
    may = [largest[kind, own]]
    if len(own) == 1:
        may.append(largest.get((kind, own[0].replace(".", "")), place))
    first = max(may, key=lambda at: _size(at, mentions))
    return mentions[largest[kind, mentions[first].key]].form


def _parts(key: tuple[str, ...], lengths: set[int]) -> set[tuple[str, ...]]:
    """As many of a mention's words in a row as some mention has; none stand nowhere but in none."""
    counts = [count for count in lengths if 0 < count <= len(key)]
    return {key[at : at + count] for count in counts for at in range(len(key) - count + 1)} or {()}


def _initials(key: tuple[str, ...]) -> list[str]:
    """The initials of several words, where there are any."""
    initials = "".join(word[:1] for word in key if word not in SMALL)
    return [initials] if len(key) > 1 and initials else []


def _replace(text: str, mentions: list[Mention], forms: list[str]) -> str:
    parts, done = [], 0
    for mention, form in sorted(zip(mentions, forms, strict=True), key=lambda pair: pair[0].start):
        if mention.start >= done:
            parts += [text[done : mention.start], form, mention.tail]
            done = mention.end
    return "".join([*parts, text[done:]])
