"""LegalForms: names of companies without what says of which legal form they are."""

from __future__ import annotations

from typing import Any

FORMS = frozenset(
    """
    ab ag aps as asa bv bvba co company corp corporation cv doo ehf ek eg ev gbr gesmbh gie gmbh hf inc incorporated
    kft kg kgaa kk lda limited llc llp lp ltd ltda mbh nv ohg ooo oy oyj oü pc plc pte pty pvt sa sab sabdecv sadecv
    sapidecv sas sasdecv sarl sasu scderldecv sderl sderldecv se senc sencdecv sl slu snc spa sprderldecv sprl spzoo
    srl srldecv sro ug ulc zrt
    """.split()  # noqa: SIM905
)
JOINTS = frozenset(("&", "and", "et", "und", "y"))  # GmbH & Co. KG
SIGNS = str.maketrans("", "", ".,/()-")  # S.A., A/S, (Pty)
LONGEST = 9  # words of one form: S. P. R. de R. L. de C. V.


class LegalForms:
    """Leave out the legal forms at the end of a company's name: Inc, Ltd, GmbH & Co. KG, S.A. and their like.

    Only at the end, and never the whole name: "Limited Brands" and "AG" stay. Put it behind ``fold`` into ``rewrite``.

        >>> forms = LegalForms()
        >>> forms("Acme, Inc."), forms("Müller GmbH & Co. KG"), forms("Kowalski Sp. z o.o."), forms("Limited Brands")
        ('Acme', 'Müller', 'Kowalski', 'Limited Brands')

    Args:
        more: further forms of one word, in any spelling.
    """

    def __init__(self, more: list[str] | tuple[str, ...] = ()):
        if isinstance(more, str) or not all(isinstance(one, str) for one in more):
            raise TypeError(f"LegalForms: more must be words, not {more!r}")
        self.more = list(more)
        self._forms = FORMS.union(map(_spell, more))

    def __call__(self, text: str) -> str:
        """Return the name alone."""
        words = text.split()
        left = len(words)
        while (width := self._ends_with(words[:left])) and left > width:
            left -= width
            while left > 1 and words[left - 1].casefold() in JOINTS:
                left -= 1
        return text if left == len(words) else " ".join(words[:left]).rstrip(" ,")

    def _ends_with(self, words: list[str]) -> int:
        """How many words at the end are a form, 0 where none is."""
        ends = range(min(LONGEST, len(words)), 0, -1)
        return next((width for width in ends if _spell("".join(words[-width:])) in self._forms), 0)

    def settings(self) -> dict[str, Any]:
        """What a normalizer writes down of it."""
        return {"more": self.more}


STEP = LegalForms


def _spell(word: str) -> str:
    return word.casefold().translate(SIGNS)
