"""A picture of what was taken for what."""

from __future__ import annotations

from collections.abc import Mapping

from normkit.safe import safe
from normkit.text.measures.evaluation import Evaluation

CELL, SIDE, TOP, LETTERS = 26, 190, 170, 24
NO_ENTRY = "no entry"


def picture(evaluation: Evaluation, names: Mapping[str, str] | None = None, most: int = 15) -> str:
    """Return an SVG of the mistakes: a row for what was meant, a column for what was said, darker the more often.

    The pairs that are confused most are shown; ``names`` says what ids are called.
    """
    shown = evaluation.confusions(most)
    called = {**(names or {})}
    rows, columns = [*dict.fromkeys(one for one, _, _ in shown)], [*dict.fromkeys(one for _, one, _ in shown)]
    width, height = SIDE + CELL * len(columns) + CELL, TOP + CELL * len(rows) + CELL
    most_often = max((number for *_, number in shown), default=1)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">']
    parts.append(f"<title>{len(evaluation.mistakes)} of {evaluation.mentions} mentions taken for another</title>")
    parts.append('<g font-family="sans-serif" font-size="12" fill="#888">')
    for at, id in enumerate(rows):
        y = TOP + CELL * at + CELL * 0.65
        parts.append(f'<text x="{SIDE - 8}" y="{y:.0f}" text-anchor="end">{_label(id, called)}</text>')
    for at, id in enumerate(columns):
        x = SIDE + CELL * at + CELL * 0.65
        place = f'x="{x:.0f}" y="{TOP - 8}" transform="rotate(-60 {x:.0f} {TOP - 8})"'
        parts.append(f"<text {place}>{_label(id, called)}</text>")
    for gold, prediction, number in shown:
        x, y = SIDE + CELL * columns.index(prediction), TOP + CELL * rows.index(gold)
        shade = 0.25 + 0.75 * number / most_often
        box = f'x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}"'
        tip = f"{_label(gold, called, 99)} taken for {_label(prediction, called, 99)}: {number}"
        parts.append(f'<rect {box} fill="#c2410c" fill-opacity="{shade:.2f}"><title>{tip}</title></rect>')
        middle = f'x="{x + CELL / 2:.0f}" y="{y + CELL * 0.65:.0f}"'
        parts.append(f'<text {middle} text-anchor="middle" fill="#fff">{number}</text>')
    parts.append(f'<text x="{SIDE - 8}" y="{TOP - 8}" text-anchor="end" font-style="italic">meant / said</text>')
    return "\n".join([*parts, "</g>", "</svg>"]) + "\n"


def _label(id: str | None, names: Mapping[str, str], letters: int = LETTERS) -> str:
    text = NO_ENTRY if id is None else names.get(id, id)
    return safe(text if len(text) <= letters else f"{text[: letters - 1]}…", "html")
