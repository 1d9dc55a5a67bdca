"""Symbolic forest: the words of a domain found in a text, each in the place of all that mean the same."""

from __future__ import annotations

from collections.abc import Sequence

from normkit.catalog import method
from normkit.kinds import Text

Piece = tuple[str, str | None]


@method(
    "symbolic-forest",
    paper="Digestion Algorithm in Hierarchical Symbolic Forests: A Fast Text Normalization Algorithm and Semantic "
    "Parsing Framework for Specific Scenarios and Lightweight Deployment (You, 2024), arXiv 2412.14054",
    shape="",
    example={
        "entries": [["open", "keyword", ["open", "launch", "start up"]], ["app", "noun", ["application", "app"]]],
    },
)
class SymbolicForest(Text):
    """Cut a text at the variants of known words, longest first, and put each word's representative there.

    For commands, units, product names: a small domain without a language model.

    The text is one piece; for each variant, longest first, of equals in the order of the entries, every piece that is
    not yet digested is cut at all its occurrences from left to right. What is left are unknown words and data. That is
    not the longest match from left to right: of "ab" and "bab", "abab" gives a + bab. A second forest takes
    representatives as its variants.

    Args:
        entries: (representative, tag, variants) each; a representative is a variant only where it is listed.

    ``digest(text)`` gives [(piece, tag), ...], the tag None of what is not known; ``canonical(word)``, ``tag(word)``
    and ``variants(representative)`` look up the first entry that fits, else None; ``probes()`` and ``generators()``
    list what there is. Code points are taken as they come.

    Digestion Algorithm in Hierarchical Symbolic Forests (2024), arXiv 2412.14054.
    """

    calls = {
        "digest": ("please start up the app",),
        "canonical": ("launch",),
        "tag": ("launch",),
        "variants": ("open",),
        "probes": (),
        "generators": (),
    }

    def __init__(self, entries: Sequence[tuple[str, str, Sequence[str]]]):
        self.entries = entries
        self._by_word: dict[str, tuple[str, str]] = {}
        self._by_name: dict[str, list[str]] = {}
        for name, tag, variants in entries:
            self._by_name.setdefault(name, list(variants))
            for word in variants:
                self._by_word.setdefault(word, (name, tag))
        probes = [(word, name, tag) for name, tag, variants in entries for word in variants]
        self._probes = sorted(probes, key=lambda probe: -len(probe[0]))

    def probes(self) -> list[tuple[str, str]]:
        """Return every (variant, representative), longest variants first."""
        return [(word, name) for word, name, _ in self._probes]

    def generators(self) -> list[tuple[str, list[str]]]:
        """Return (representative, variants) in order."""
        return [(name, list(variants)) for name, _, variants in self.entries]

    def canonical(self, word: str) -> str | None:
        """Return the representative of a word, or None."""
        return self._by_word[word][0] if word in self._by_word else None

    def tag(self, word: str) -> str | None:
        """Return the tag of a word, or None."""
        return self._by_word[word][1] if word in self._by_word else None

    def variants(self, representative: str) -> list[str] | None:
        """Return the variants of a representative, or None."""
        variants = self._by_name.get(representative)
        return None if variants is None else list(variants)

    def digest(self, text: str) -> list[Piece]:
        """Return the pieces in order, each with its tag, or None."""
        pieces: list[str | Piece] = [text]  # what is digested has its tag
        for word, name, tag in self._probes:
            if word in text and word:
                pieces = _cut(pieces, word, (name, tag))
        return [(piece, None) if isinstance(piece, str) else piece for piece in pieces if piece]


def _cut(pieces: list[str | Piece], word: str, known: Piece) -> list[str | Piece]:
    """Cut what is not digested at every occurrence of a word."""
    done: list[str | Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and word in piece:
            first, *rest = piece.split(word)
            done.append(first)
            for other in rest:
                done += (known, other)
        else:
            done.append(piece)
    return done
