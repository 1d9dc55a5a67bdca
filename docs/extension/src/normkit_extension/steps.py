"""Text without what stands in brackets."""

import re


class NoBrackets:
    """Leave out what stands in brackets, and the brackets: "Paris (France)" is "Paris".

    Of brackets inside of brackets it takes the inner ones. Put it into ``rewrite`` of a normalizer.

    Args:
        pairs: how brackets open and close, two signs each.
    """

    def __init__(self, pairs: str = "()[]"):
        if not isinstance(pairs, str) or len(pairs) % 2:
            raise ValueError(f"NoBrackets: pairs must be text of two signs each, not {pairs!r}")
        self.pairs = pairs

    def __call__(self, text: str) -> str:
        """Return the text without them."""
        for start, end in zip(self.pairs[::2], self.pairs[1::2], strict=True):
            inner = f"[^{re.escape(start)}{re.escape(end)}]*"
            text = re.sub(rf"\s*{re.escape(start)}{inner}{re.escape(end)}", "", text)
        return text.strip()

    def settings(self) -> dict[str, str]:
        """What a saved normalizer builds it of."""
        return {"pairs": self.pairs}


STEP = NoBrackets
