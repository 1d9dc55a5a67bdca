"""Words of a user's own, such as the names of variants, columns and modules, made safe for where they are shown."""

from __future__ import annotations

import contextlib
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import TextIO

FORMULA = re.compile(r"[=+\-@\t\r\n＝＋－＠]")  # noqa: RUF001  (spreadsheets take the wide signs too)
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
IN_LATEX = {"\\": r"\textbackslash{}", "±": r"$\pm$", "<": "$<$", ">": "$>$", "~": r"\textasciitilde{}"}
IN_LATEX |= {"^": r"\textasciicircum{}", **{sign: f"\\{sign}" for sign in "%&#_${}"}}
NEGATIVE = re.compile(r"(?<![\w.])-(?=\d)")


def _visible(text: str) -> str:
    """Write what moves a cursor, colours a line or turns its direction as an escape of Python."""
    hidden = {sign for sign in text if sign not in "\n\t" and _is_hidden(sign)}
    return text if not hidden else "".join(ascii(sign)[1:-1] if sign in hidden else sign for sign in text)


def _is_hidden(sign: str) -> bool:
    return unicodedata.category(sign) in ("Cc", "Cs") or unicodedata.bidirectional(sign) in DIRECTIONS


DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


def _csv(text: str) -> str:
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def _latex(text: str) -> str:
    return NEGATIVE.sub("$-$", "".join(IN_LATEX.get(sign, sign) for sign in _visible(text)))


def _html(text: str) -> str:
    return html.escape(_visible(text))


WAYS: dict[str, Callable[[str], str]] = {
    "terminal": _visible,
    "csv": _csv,
    "latex": _latex,
    "html": _html,
}


def safe(text: str, where: str) -> str:
    r"""Return a text so that it is shown as it is, and nothing in it is obeyed.

    ``"terminal"`` writes control signs out; ``"csv"`` puts an apostrophe before what a spreadsheet would take for a
    formula; ``"latex"`` and ``"html"`` escape their own signs. Lines and tabs stay. Consoles of rich read no markup.

    >>> safe("a\x1b[31mb", "terminal"), safe("=1+1", "csv"), safe("-1.5", "csv")
    ('a\\x1b[31mb', "'=1+1", '-1.5')
    >>> safe("-1.2% ± 0.3", "latex"), safe("dyt:alpha_0", "latex"), safe("<b>", "html")
    ('$-$1.2\\% $\\pm$ 0.3', 'dyt:alpha\\_0', '&lt;b&gt;')
    """
    if where not in WAYS:
        raise ValueError(f"safe: where must be one of {', '.join(WAYS)}, not {where!r}")
    return WAYS[where](text)


def say(*texts: object, file: TextIO | None = None, flush: bool = False) -> None:
    """Print texts for a terminal, a line each; what a user's words hold is shown and not obeyed."""
    lines = [safe(str(text), "terminal") for text in texts or ("",)]
    with contextlib.nullcontext() if file is not None else printing():
        for line in lines:
            print(line, file=file, flush=flush)


class Unprinted(OSError):
    """Standard output cannot be written, as on a full disk."""


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Say of an error inside that it is of standard output; a reader who has left makes none."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unprinted(error.errno, error.strerror or str(error)) from error
