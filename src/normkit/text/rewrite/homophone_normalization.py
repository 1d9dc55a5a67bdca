"""Homophone normalization: letters of the Ge'ez script that sound alike, written as one."""

# ruff: noqa: RUF001 (the letters are meant)

from __future__ import annotations

import re
from collections.abc import Sequence

from normkit import check
from normkit.catalog import method
from normkit.kinds import Text

LANGUAGES = ("am", "ti")
LEVELS = ("homophone", "labialized")


def _table(rules: str) -> dict[int, str]:
    """Read "letters>letter ..." for ``str.translate``."""
    pairs = [rule.split(">") for rule in rules.split()]
    return {ord(letter): to for letters, to in pairs for letter in letters}


S = "ሠ>ሰ ሡ>ሱ ሢ>ሲ ሣ>ሳ ሤ>ሴ ሥ>ስ ሦ>ሶ "
TS = "ፀ>ጸ ፁ>ጹ ፂ>ጺ ፃ>ጻ ፄ>ጼ ፅ>ጽ "
A = "ዑ>ኡ ዒ>ኢ ዔ>ኤ ዕ>እ ዖ>ኦ "
ROUND = "ቊ>ቁ ኵ>ኩ"
AMHARIC = _table(f"ሃኀኃሐሓኻዃ>ሀ ሑኁኹዅ>ሁ ኂሒኺ>ሂ ኄኌሔኼዄ>ሄ ሕኅኽ>ህ ኆሖኾ>ሆ {S} ዓኣዐ>አ {A} {TS} {ROUND}")
LABIALIZED = _table(
    f"ሃሐሓኅኻኃ>ሀ ዅኁሑ>ሁ ሗ>ኋ ኂሒ>ሂ ኄዄሔ>ሄ ኆሖኾ>ሆ ሕ>ህ {S} ሼ>ሸ ቼ>ቸ ዬ>የ ዲ>ድ ጄ>ጀ ጸ>ፀ ጹ>ፁ ጺ>ፂ ጻ>ፃ ጼ>ፄ ጽ>ፅ ጾ>ፆ ዓዐኣ>አ {A}"
)
TIGRINYA = _table(f"ኀ>ሀ ኁ>ሁ ኂ>ሂ ኃ>ሃ ኄኌ>ሄ ኅ>ህ ኆ>ሆ {S} {TS} ፆ>ጾ {ROUND}")
PAIRS = dict(zip("ሉሙቱሩሱሹቁቡቹሁኑኙኩዙጉደጡጩጹፉ", "ሏሟቷሯሷሿቋቧቿኋኗኟኳዟጓዷጧጯጿፏ", strict=True))
PAIR = re.compile(f"([{''.join(PAIRS)}])[ዋአ]")
AFTER = _table(ROUND)


@method(
    "homophone-normalization",
    paper="A Case Against Implicit Standards: Homophone Normalization in Machine Translation for Languages that use "
    "the Ge'ez Script (Nigatu et al., 2025), arXiv 2507.15142",
    shape="",
)
class HomophoneNormalization(Text):
    """Write letters of the Ge'ez script that sound alike as one of them.

    For scoring machine translation into Amharic or Tigrinya: a model that was trained on what people write is then not
    punished for their spelling. It is for predictions and references just before BLEU or chrF, never for training data.

    The two levels of Amharic choose opposite letters, so their results must not be mixed; the labialized one also joins
    letters that are no homophones. Tigrinya keeps what it pronounces.

    Args:
        language: ``"am"`` for Amharic, ``"ti"`` for Tigrinya.
        level: ``"homophone"``, or ``"labialized"``, which writes two syllables that become one as one; for Amharic.

    ``method(texts)``; ``prepare(texts)`` first makes of punctuation a space each: what is scored. Code points are taken
    as they come.

    A Case Against Implicit Standards (2025). As in the authors' code, the Amharic letter tso of the second series stays
    as it is at the first level: the rule for it is written there and has no effect.
    """

    calls = {"__call__": (["ሠላም ለዓለም", "ፀሐይ ወጣች፤"],), "prepare": (["ኃይሉ መጣ።"],)}

    def __init__(self, language: str = "am", level: str = "homophone"):
        self.language = check.choice(self, "language", language, LANGUAGES)
        self.level = check.choice(self, "level", level, LEVELS)

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Return the texts with one letter for each sound."""
        if self.language == "am" and self.level == "labialized":
            return [_labialize(text) for text in texts]
        table = AMHARIC if self.language == "am" else TIGRINYA
        return [text.translate(table) for text in texts]

    def prepare(self, texts: Sequence[str]) -> list[str]:
        """Return the texts as they are scored, without punctuation."""
        return self([re.sub(r"[^\w\s]", " ", text).strip() for text in texts])


def _labialize(text: str) -> str:
    joined = PAIR.sub(lambda found: PAIRS[found[1]], text.translate(LABIALIZED))
    return re.sub(r"\s+", " ", joined.translate(AFTER))
