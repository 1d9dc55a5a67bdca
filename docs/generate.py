"""Pages of the methods, made from their cards and docstrings while the site is built; none of them is a file."""

from __future__ import annotations

import functools
import html
import importlib
import json
import math
import re
from collections import Counter
from pathlib import Path

import docstrings
import measured
from mkdocs.structure.files import File

import normkit as nk
from normkit import families, reference
from normkit.catalog import Card
from normkit.gradient._dialects import DIALECTS, arguments

BOX, GAP, TOP = 64, 8, 24
LINK = re.compile(r"\[\[([\w-]+)\]\]")
BESIDE = re.compile(r"<!-- axes: (.*?) -->")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")
ARXIV = re.compile(r"arXiv (\d\d)\d\d\.")
COMPARED = re.compile(r"<!-- compared: (.*?) -->")
DIALECTS_MARK = re.compile(r"<!-- dialects -->")
BENCH = re.compile(r"<!-- bench -->.*<!-- /bench -->", re.DOTALL)
TABLE = Path(__file__).with_name("table.html")
README = Path(__file__).parents[1] / "README.md"
SEARCH = Path(__file__).with_name("search.js")
SEARCHED = {
    name: words.split("; ")
    for name, words in (line.split("\t") for line in Path(__file__).with_name("searched.tsv").read_text().splitlines())
}  # what people look for: the page or method that answers, and their words


def cards() -> list[Card]:
    """All cards, by folder."""
    return [nk.card(name) for name in nk.methods()]


def on_config(config):
    """Add the methods to the table of contents."""
    groups = [
        {place: [{card.name: address(card)} for card in found]} for place, found in reference.rooms(cards()).items()
    ]
    if not any("Methods" in entry for entry in config.nav):
        whole = {"Flows, samplers and others": [{kind: f"kinds/{kind}.md"} for kind in families.KINDS]}
        first = ["methods/index.md", {"All in one table": "methods/table.md"}, whole]
        config.nav.insert(1, {"Methods": [*first, *groups]})
    return config


def on_files(files, config):
    """Add a page a method, and their index."""
    files.append(File.generated(config, "methods/index.md", content=index()))
    files.append(File.generated(config, "methods/table.md", content=whole_table()))
    for card in cards():
        files.append(File.generated(config, address(card), content=page(card)))
    for kind in families.KINDS:
        files.append(File.generated(config, f"kinds/{kind}.md", content=members(kind)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Fill in a page's marks: the measurements of the README, comparisons, links to methods, and their axes."""
    markdown = BENCH.sub(lambda mark: BENCH.search(README.read_text())[0], markdown)
    markdown = COMPARED.sub(lambda mark: measured.compared(mark[1]), markdown)
    markdown = DIALECTS_MARK.sub(lambda mark: dialects(), markdown)
    markdown = BESIDE.sub(lambda mark: side_by_side(mark[1].split()), markdown)
    return LINK.sub(lambda mark: f"[{mark[1]}]({address(nk.card(mark[1]))})", markdown)


def on_page_content(html, page, config, files):
    """Let the search know what people call a page."""
    page.meta.setdefault("tags", SEARCHED.get(page.file.src_uri, []))


def on_post_page(output, page, config):
    """Leave out the blank lines that the theme writes."""
    parts = re.split(r"(<pre.*?</pre>)", output, flags=re.DOTALL)
    return "".join(re.sub(r"\s*\n\s*", "\n", part) if at % 2 == 0 else part for at, part in enumerate(parts))


def on_post_build(config):
    """Let the search put first what is titled as the query."""
    for worker in Path(config.site_dir, "assets/javascripts/workers").glob("search.*.js"):
        worker.write_text(SEARCH.read_text(encoding="utf-8") + worker.read_text(encoding="utf-8"), encoding="utf-8")


def dialects() -> str:
    """The arguments that make Muon each project's."""
    rows = [
        (name, ", ".join(f"`{key}={value}`" for key, value in arguments(name, {}).items()) or "as usual")
        for name in DIALECTS
    ]
    return table(("project", "arguments"), rows)


def address(card: Card) -> str:
    """Where the page of a method is."""
    return f"methods/{reference.folder(card)}/{card.name}.md"


def members(kind: str) -> str:
    """All flows, all samplers, or all of another kind."""
    family = families.family(kind)
    parts = [f"# Of the kind {kind}", f"{len(family)}, each a file; `normkit list --kind {kind}` prints them."]
    parts += [f"## {name}\n\n{docstrings.fenced(family.about(name))}" for name in family]
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """All methods by folder, a line each."""
    parts = ["# Methods", f"{len(cards())} methods, each a file in the folder it is listed under."]
    for place, found in reference.rooms(cards()).items():
        parts.append(f"## {place}\n\n{reference.meaning_of(place, importlib.import_module)}")
        rows = [
            (f"[{c.name}]({address(c).removeprefix('methods/')})", escaped(c.summary), statistic_over(c)) for c in found
        ]
        parts.append(table(("method", "what it does", "statistic over"), rows))
    return "\n\n".join(parts) + "\n"


def whole_table() -> str:
    """All methods in one table, which a reader narrows by words."""
    head = "".join(
        f"<th>{title}</th>" for title in ("method", "axes", "statistic over", "year", "time", "state", "replaces")
    )
    steps = measured.steps()
    rows = "".join(table_row(card, steps.get(card.name, "")) for card in cards())
    filled = TABLE.read_text(encoding="utf-8").replace("HEAD", head).replace("ROWS", rows)
    return filled.replace("STEP", measured.STEP)


def table_row(card: Card, step: str) -> str:
    """A row: the method and its paper, its axes, the time of a step, what it keeps, what it takes the place of."""
    link = f'<a href="../{reference.folder(card)}/{card.name}/">{card.name}</a>'
    state = ", ".join(f"{entry.name} {entry.shape}" for entry in reference.state(card)) or "none"
    cells = [svg(card), statistic_over(card), year(card), step, state, ", ".join(card.replaces)]
    texts = [cells[0], *(html.escape(text) for text in cells[1:])]
    first = f"<td>{link}<br><small>{html.escape(card.summary)} {html.escape(card.paper)}</small></td>"
    return f"<tr>{first}{''.join(f'<td>{text}</td>' for text in texts)}</tr>\n"


def statistic_over(card: Card) -> str:
    """What a statistic is taken over; "none" where every number is mapped by itself."""
    return reference.over(card) or ("none" if reference.statistic(card) else "")


def year(card: Card) -> str:
    """When a method was published: as its paper says, or the paper's number at arXiv."""
    said, number = YEAR.findall(ARXIV.sub("", card.paper)), ARXIV.search(card.paper)
    return said[0] if said else f"20{number[1]}" if number else ""


def side_by_side(names: list[str]) -> str:
    """The axes of several methods in a row, as one sees at a glance how they differ."""
    boxes = [f"<figure>{svg(nk.card(name))}<figcaption>{name}</figcaption></figure>" for name in names]
    return f'<div class="beside">{"".join(boxes)}</div>'


def page(card: Card) -> str:
    """Everything about one method."""
    arguments = [(f"`{a.name}`", f"`{a.default}`", escaped(a.meaning)) for a in reference.arguments(card)]
    forms = [(owner, escaped(text)) for owner, text in reference.forms(card)]
    names = [(f"`{name}`", f"`{brought}`" if brought else "") for name, brought in reference.aliases(card)]
    state = [(f"`{e.name}`", f"`{e.shape}`", e.kind) for e in reference.state(card)]
    sections = [
        ("", f"{search_words(card)}# {card.name}\n\n**{escaped(card.summary)}**"),
        ("", f"`normkit.{card.entry.__name__}`, in `{reference.folder(card)}`"),
        ("", f"```python\n{reference.usage(card)}\n```"),
        ("", docstrings.fenced(reference.explanation(card))),
        ("Axes", picture(card) if card.shape.axes else ""),
        ("Arguments", table(("argument", "default", "meaning"), arguments)),
        ("Takes the arguments of", table(("class", "its arguments, and ours"), forms) if forms else ""),
        ("Other names", table(("name", "brings"), names) if names else ""),
        ("State", table(("name", "shape", "kind"), state) if state else no_state(card)),
        ("Replaces", ", ".join(linked(name, card) for name in card.replaces)),
        ("Unchanged by", ", ".join(card.invariant)),
        ("Evidence", escaped(reference.evidence(card))),
        ("What it does not keep of the contract", table(("line", "reason"), exemptions(card)) if card.exempt else ""),
        ("Paper", paper(card.paper)),
    ]
    return "\n\n".join((f"## {title}\n\n" if title else "") + body for title, body in sections if body) + "\n"


def search_words(card: Card) -> str:
    """Write what the search reads of a method besides its page: its synonyms, and that the much replaced come first."""
    title = card.paper.partition(" (")[0]
    words = dict.fromkeys([*reference.synonyms(card), *SEARCHED.get(card.name, []), title])
    names = "".join(f"\n  - {json.dumps(name)}" for name in words)
    return f"---\ntags:{names}\nsearch:\n  boost: {1 + math.log2(1 + successors()[card.name]):.2f}\n---\n"


@functools.cache
def successors() -> Counter[str]:
    """How many methods take the place of each."""
    return Counter(name for card in cards() for name in card.replaces)


def no_state(card: Card) -> str:
    """What is said of a small instance that keeps nothing; of an optimizer the docstring tells all."""
    return "" if card.kind.name == "optimizer" else "None: nothing is learned, nothing is kept."


def picture(card: Card) -> str:
    """The axes, what is taken over which in words, and what their names stand for."""
    said = reference.statistic(card)
    return "\n\n".join(filter(None, [svg(card), said and escaped(sentence(said)), legend(card)]))


def svg(card: Card) -> str:
    """Draw a box an axis, filled where a statistic spans it, hatched where it spans a group of it."""
    axes = reference.axes(card)
    width = len(axes) * (BOX + GAP)
    said = reference.statistic(card)
    boxes = "".join(box(axis, 1 + number * (BOX + GAP), bool(said)) for number, axis in enumerate(axes))
    label = html.escape(said or f"axes {card.shape}", quote=True)
    return f'<svg class="axes" role="img" aria-label="{label}" width="{width}" height="{TOP + BOX // 2}">{boxes}</svg>'


def box(axis: reference.Axis, left: int, known: bool) -> str:
    """Draw one axis; with a broken line where nothing is said of statistics."""
    name = f'<text x="{left + BOX // 2}" y="{TOP - 8}" text-anchor="middle">{html.escape(axis.name)}</text>'
    filled = axis.spanned if known else "unsaid"
    return f'{name}<rect class="{filled}" x="{left}" y="{TOP}" width="{BOX}" height="{BOX // 2 - 2}"/>'


def legend(card: Card) -> str:
    """List what the axis names stand for, and the layouts of further inputs."""
    further = [
        f"`{name}` is laid out `{layout}`{', and may be left out' if spare else ''}"
        for name, layout, spare in reference.inputs(card)
    ]
    return "\n".join(
        f"- {line}" for line in [*(f"`{line.replace(': ', '`: ', 1)}" for line in reference.legend(card)), *further]
    )


def sentence(text: str) -> str:
    """Begin with a capital and end with a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def linked(name: str, card: Card) -> str:
    """Link another method, if the catalogue has it."""
    if name not in nk.methods():
        return name
    up = "../" * (reference.folder(card).count("/") + 1)
    return f"[{name}]({up}{address(nk.card(name)).removeprefix('methods/')})"


def paper(text: str) -> str:
    """Link arXiv numbers and DOIs."""
    text = re.sub(r"arXiv[: ](\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)
    return re.sub(r"(?i)\bdoi[: ](10\.\S+?)(?=[,;)]|$|\s)", r"[doi \1](https://doi.org/\1)", text)


def exemptions(card: Card) -> list[tuple[str, ...]]:
    """Say what is not kept, and why, in cells of a table."""
    return [(escaped(line), escaped(reason)) for line, reason in reference.exemptions(card)]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Write a table in Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escaped(text: str) -> str:
    """Keep Markdown from reading signs outside of code as its own."""
    parts = re.split(r"(``.*?``|`[^`]*`)", text)
    plain = [
        re.sub(r"([*_|<>\[\]])", r"\\\1", part) if at % 2 == 0 else part.replace("|", "\\|")
        for at, part in enumerate(parts)
    ]
    return "".join(plain)
