"""What is known of a method beside its card: names, models that use it, claims, measurements, citations, tests."""

from __future__ import annotations

import functools
import html
import inspect
import json
import re
import unicodedata
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import lineage
import measured
import pictures
import torch
from races import Bar, Race, raced

import normkit as nk
from normkit import reference
from normkit.catalog import Card
from normkit.claims import engine, shelf
from normkit.ops import paths
from normkit.surgery.exact.pairs import measure_affine, scale_and_shift

ROOT = Path(__file__).parents[1]
ROWS = re.compile(r"^\| (.+) \|$", re.MULTILINE)
ARXIV_ID = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})")
STOP = {"a", "an", "and", "of", "on", "the", "for", "in", "with", "to", "by", "from"}


# Names.


def acronym(card: Card) -> tuple[str, str]:
    """The capitals that a method is called by, and what they stand for, where its names or its paper spell them.

    >>> acronym(nk.card("grn")), acronym(nk.card("rmsnorm")), acronym(nk.card("dyt"))
    (('GRN', 'Global Response Norm'), ('RMS', 'Root Mean Square'), ('', ''))
    """
    short = next(iter(re.findall(r"^[A-Z]{2,}(?![a-z])", card.entry.__name__)), "")
    if not short and re.fullmatch(r"[a-z]{2,4}", card.name):
        short = card.name.upper()
    if short and not card.name.replace("-", "").startswith(short.lower()):
        short = ""
    texts = [re.sub(r"[-_]", " ", reference.CAMEL.sub(" ", name)) for name in (*card.aliases, card.name)]
    texts += [card.paper.partition(" (")[0], card.summary]
    for text in texts if short else ():
        words = re.findall(r"[A-Za-z]+", text)
        for at in range(len(words) - len(short) + 1):
            own = words[at : at + len(short)]
            if "".join(word[0] for word in own).upper() == short and not any(word.lower() in STOP for word in own):
                return short, " ".join(word.capitalize() if word.islower() else word for word in own)
    return "", ""


def other_names(card: Card) -> list[str]:
    """What else it is called, without those that only write the name apart."""
    from normkit.catalog import comparison_key

    known = {comparison_key(card.name)}
    found = []
    for name in (card.entry.__name__, *card.aliases, *reference.synonyms(card)):
        if comparison_key(name) not in known:
            known.add(comparison_key(name))
            found.append(name)
    return found


# The docstring, in parts.


class Parts(NamedTuple):
    """An explanation in parts: for whom, the equation with what leads to it and explains it, differences, state."""

    use: str
    equation: str
    differs: str
    state: str


def parts(card: Card) -> Parts:
    """Cut a docstring where its paragraphs speak of another thing; the paper's own line is left out."""
    use, equation, differs, state = [], [], [], []
    for paragraph in reference.explanation(card).split("\n\n"):
        if paragraph.startswith("    ") or ">>>" in paragraph:
            equation.append(paragraph)
        elif is_paper(paragraph, card):
            continue
        elif re.match(r"Differs? from|From \w+ in|Beside the paper", paragraph):
            differs.append(paragraph)
        elif re.match(r"State( of a parameter)?:", paragraph):
            state.append(re.sub(r"^State: (\w)", lambda first: first[1].upper(), paragraph))
        elif not equation and not use and re.match(r"(For|In|Against|Where|When|Instead|As|With) ", paragraph):
            first, rest = _led(paragraph)
            use.append(first)
            equation += [rest] if rest else []
        else:
            equation.append(paragraph)
    return Parts(*("\n\n".join(filter(None, part)) for part in (use, equation, differs, state)))


def _led(paragraph: str) -> tuple[str, str]:
    """Part a last sentence that leads to the equation from what stands before it."""
    if paragraph.rstrip()[-1] not in ",:":
        return paragraph, ""
    sentences = re.split(r"(?<=[.:;])\s+(?=[A-Z])", paragraph)
    return (" ".join(sentences[:-1]), sentences[-1]) if len(sentences) > 1 else ("", paragraph)


def is_paper(paragraph: str, card: Card) -> bool:
    """Whether a paragraph is the paper's line, which the page has from the card."""
    said = " ".join(paragraph.split())
    ids = ARXIV_ID.findall(said)
    title = card.paper.partition(" (")[0][:30].lower()
    first = re.match(r"[^\s:,(]+", card.paper)
    when = lineage.year(card) or "20"
    if first and re.match(rf"{re.escape(first[0])}\b[^.]*\([^)]*{when}\)", said) and len(said) < 160:
        return True
    return len(said) < 260 and (
        (bool(ids) and set(ids) <= set(ARXIV_ID.findall(card.paper)))
        or (bool(title) and said.lower().startswith(title))
    )


# Where the guide names it.


@functools.cache
def guide() -> dict[str, list[tuple[str, str, str, str]]]:
    """What ``which.md`` says of each method: its section, with the section's anchor, because, and the evidence."""
    found: dict[str, list[tuple[str, str, str, str]]] = {}
    title = ""
    for line in (ROOT / "docs/which.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            title = line[3:]
        if line.startswith("| ") and "[[" in line:
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            for name in re.findall(r"\[\[([\w-]+)\]\]", cells[0]):
                because, evidence = (*cells[1:], "", "")[:2]
                found.setdefault(name, []).append((title, anchor(title), because, evidence.strip("| ")))
    return found


def anchor(title: str) -> str:
    """The anchor of a heading, as Markdown makes it."""
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower())).strip("-")


# What was measured.


def compared() -> list[Race]:
    """The final losses of the comparisons on file: title, unit, file, bars."""
    charts = []
    for path in sorted(measured.RESULTS.glob("compare-*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        bars = [
            Bar(row["variant"], row["loss"], row["loss"] - row["loss_half"], row["loss"] + row["loss_half"])
            for row in kept["rows"]
            if row.get("loss") is not None and row.get("loss_half") is not None
        ]
        seeds = max((row.get("seeds") or 0) for row in kept["rows"])
        title = f"final loss of `{kept['command']}`, {seeds} seeds, {kept['date']}: mean with its 95 % interval"
        charts.append(Race(title, "", path.stem, bars))
    return charts


def charts(card: Card) -> list[Race]:
    """The charts that a method stands in."""
    lab = [chart for chart in compared() if card.name in [bar.name.partition(":")[0] for bar in chart.bars]]
    return [*raced().get(card.name, []), *lab]


def short(number: float) -> str:
    """Three digits, and never an exponent for what is large.

    >>> short(2561.2), short(28.46), short(0.000123)
    ('2,560', '28.5', '0.000123')
    """
    return f"{number:.3g}" if abs(number) < 1000 else f"{int(float(f'{number:.3g}')):,}"


def chart(bars: list[Bar], unit: str, own: str) -> str:
    """Draw bars with the ends of what was seen."""
    losses = not unit
    low = min(bar.low or bar.middle for bar in bars) if losses else 0.0
    high = max(max(bar.high, bar.middle) for bar in bars)
    low -= 0.1 * (high - low) if losses else 0.0
    left, wide = 8 + 7 * max(len(bar.name) for bar in bars), 210.0

    def x(value: float) -> float:
        return left + (value - low) / (high - low or 1) * wide

    drawn, numbers = [], [f"{short(bar.middle)} {unit}".rstrip() for bar in bars]
    for i, bar in enumerate(bars):
        y = 4 + 20 * i
        kind = "in" if bar.name.split(",")[0] in ("normkit", own) else "other"
        if losses:  # whose axis does not begin at 0
            drawn.append(f'<circle class="dot" cx="{x(bar.middle):.1f}" cy="{y + 7}" r="4"/>')
        else:
            drawn.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{x(bar.middle) - left:.1f}" height="14"/>')
        if bar.high:
            drawn.append(
                f'<path class="wire" d="M{x(bar.low):.1f} {y + 7}H{x(bar.high):.1f}'
                f'M{x(bar.low):.1f} {y + 3}v8M{x(bar.high):.1f} {y + 3}v8"/>'
            )
        drawn.append(pictures._text(left - 4, y + 11, bar.name, "end"))
        drawn.append(pictures._text(max(x(bar.high), x(bar.middle)) + 5, y + 11, numbers[i], "start"))
    label = "; ".join(f"{bar.name} {number}" for bar, number in zip(bars, numbers, strict=True))
    right = 12 + 7 * max(map(len, numbers))
    return pictures.svg(left + wide + right, 20 * len(bars) + 6, label, "".join(drawn))


@functools.cache
def tables() -> list[tuple[str, str, tuple[str, ...], list[tuple[str, ...]]]]:
    """The tables of the records that are pages: file, title, head, rows."""
    found = []
    for path in sorted(measured.RESULTS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].lstrip("# ")
        for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
            rows = [tuple(cell.strip() for cell in line.strip("|\n ").split(" | ")) for line in block.splitlines()]
            if len(rows) > 2:
                found.append((path.name, title, rows[0], rows[2:]))
    return found


def recorded(card: Card, most: int = 6) -> list[tuple[str, str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Rows of recorded tables that are of a method: under a head that says so."""
    found = []
    for file, title, head, rows in tables():
        at = [i for i, word in enumerate(head) if word in ("method", "scores", "norm", "aggregation", "optimizer")]
        own = [row for row in rows if len(row) == len(head) and any(row[i].split(",")[0] == card.name for i in at)]
        if own and not file.startswith("gpu"):
            found.append((file, title, head, own[:most]))
    return found


# Claims, models, tests, citations.


def verdicts(card: Card) -> list[Any]:
    """What came of a method's claims."""
    if card.name not in shelf.methods():
        return []
    return engine.verdicts([e for e in shelf.claims_of(card.name) if e.claim is None or shelf.stored(e) is not None])


@functools.cache
def world() -> dict[str, list[tuple[str, str, str]]]:
    """What ``world.md`` says of each method: the library, the dialect, and where it is used."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    library = ""
    for line in (ROOT / "docs/world.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            library = line[3:]
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        name = re.split(r"[, ]", cells[0])[0] if line.startswith("| ") else ""
        if len(cells) == 3 and name in lineage.known():
            dialect = cells[0].removeprefix(name).lstrip(", ")
            found.setdefault(name, []).append((library, dialect, f"{cells[1]}: {cells[2]}"))
    return found


@functools.cache
def test_words() -> dict[str, frozenset[str]]:
    """The words of every file of tests; those that go over the whole catalogue name no method."""
    return {
        str(path.relative_to(ROOT)): frozenset(re.findall(r"[A-Za-z][\w-]*", path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / "tests").glob("*/test_*.py"))
    }


def files_of_tests(card: Card, most: int = 6) -> list[str]:
    """The files of tests that name a method, those of its room first."""
    own = {card.name, card.entry.__name__}
    found = [path for path, words in test_words().items() if own & words]
    return sorted(found, key=lambda path: (not path.startswith(f"tests/{card.room}/"), path))[:most]


def source(card: Card) -> str:
    """The file that a method is written in."""
    return str(Path(inspect.getfile(inspect.unwrap(card.entry))).relative_to(ROOT)).replace("\\", "/")


def golden(card: Card) -> str:
    """The folder of its recorded numbers."""
    return f"tests/goldens/{card.name}" if (ROOT / "tests/goldens" / card.name).is_dir() else ""


def bibtex(card: Card) -> str:
    """An entry for a bibliography, from the line of the paper.

    >>> print(bibtex(nk.card("rmsnorm")))
    @misc{zhang2019root,
      title = {Root Mean Square Layer Normalization},
      author = {Zhang and Sennrich},
      year = {2019},
      eprint = {1910.07467},
      archivePrefix = {arXiv},
    }
    """
    entries = []
    for text in card.paper.split("; "):
        cited = re.match(r"(.+?) \(((?:[^()]|\([^)]*\))*?)(?:,\s*)?(?:[A-Z]+ )?((?:19|20)\d\d)\)", text)
        if not cited:
            continue
        title, authors, when = cited.groups()
        names = [name.strip() for name in re.split(r",| and ", authors.replace("et al.", "others")) if name.strip()]
        names = [
            word
            for name in names
            for word in (name.removesuffix(" others"), *(["others"] if name.endswith(" others") else []))
        ]
        first = re.sub(r"\W", "", unaccented(names[0].split()[-1].lower())) if names else "anonymous"
        word = next((w for w in re.findall(r"[A-Za-z]+", title) if w.lower() not in STOP), "paper").lower()
        number = ARXIV_ID.search(text)
        lines = [
            f"title = {{{title}}}",
            *([f"author = {{{' and '.join(names)}}}"] if names else []),
            f"year = {{{when}}}",
        ]
        lines += [f"eprint = {{{number[1]}}}", "archivePrefix = {arXiv}"] if number else []
        entries.append(f"@misc{{{first}{when}{word},\n" + "".join(f"  {line},\n" for line in lines) + "}")
    return "\n\n".join(entries)


def unaccented(text: str) -> str:
    """Letters without their accents, which keys of BibTeX must not have.

    >>> unaccented("radovanović")
    'radovanovic'
    """
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


# Ticks of the table.


TICKS = {
    "causal": "no output depends on later tokens or positions",
    "any batch": "no output depends on other samples, in training",
    "folds": "in evaluation it is a gain and a shift, which go into the layer beside it",
    "kernel": "a C kernel runs for it where there is a compiler",
    "half": "bfloat16 and float16 are tested, and stay close to float64",
    "distributed": "two processes give the numbers of one",
}


@functools.cache
def ticks(name: str) -> dict[str, bool | None]:
    """Which ticks a method has; None where the question has no sense for its kind."""
    card = nk.card(name)
    moved = reference.reach(name)
    order = [moved[axis] for axis in ("T", "L") if moved and axis in moved]
    order = order or [moved[axis] for axis in ("*", "+", "H", "W") if moved and axis in moved]
    batch = [moved[axis] for axis in ("N", "B", "...") if moved and axis in moved]
    norm = card.kind.name in ("norm", "layer")
    if card.kind.name not in ("norm", "layer", "core", "block", "whole layer", "transform"):
        order = batch = []
    return {
        "causal": all(way != "whole" for way in order) if order else None,
        "any batch": all(way == "none" for way in batch) if batch else None,
        "folds": folds(card) if card.kind.name == "norm" else None,
        "kernel": kernel(card) if norm else None,
        "half": card.exemption("half") is None if card.held_to("half") else None,
        "distributed": card.exemption("processes") is None if card.held_to("processes") else None,
    }


def folds(card: Card) -> bool:
    """Whether evaluation is a gain and a shift of each channel, also once statistics and parameters have moved."""
    with pictures.quiet(), torch.no_grad():
        try:
            made = card.small()
            made(*card.draw())
            for parameter in made.parameters():
                parameter.uniform_(0.2, 0.8)
            made.eval()
            return (measure_affine if hasattr(made, "running_var") else scale_and_shift)(made) is not None
        except Exception:  # it is not one of those
            return False


def kernel(card: Card) -> bool | None:
    """Whether a kernel of ours runs in a small call."""
    with pictures.quiet():
        try:
            made, inputs = card.small(), card.draw()
            with paths.watch() as taken, torch.no_grad():
                made(*inputs)
        except Exception:  # not called with what the card draws alone
            return None
    return any(path.why is None for path in taken)


def escaped(text: str) -> str:
    """HTML of plain words, code in backticks kept as code."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", html.escape(text))


warnings.filterwarnings("ignore", message=".*lazy.*")
