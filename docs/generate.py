"""Pages of the methods, made from their cards and docstrings while the site is built; none of them is a file."""

from __future__ import annotations

import functools
import html
import importlib
import json
import math
import re
import textwrap
from collections import Counter
from pathlib import Path

import cautions
import docstrings
import examples
import facts
import lean
import lineage
import measured
import notebooks
import notices
import pictures
import races
import records
import typeset
from lineage import year
from mkdocs.structure.files import File

import normkit as nk
from normkit import bench, families, reference
from normkit.catalog import Card
from normkit.gradient._dialects import DIALECTS, arguments

LINK = re.compile(r"\[\[([\w-]+)\]\]")
NAME = re.compile(r"``([\w-]+)``")  # in a docstring
EVIDENCE = re.compile(r"^(\| \[\[.*?) \|$", re.MULTILINE)  # a row of a table that is about methods
BESIDE = re.compile(r"<!-- axes: (.*?) -->")
COMPARED = re.compile(r"<!-- compared: (.*?) -->")
DIALECTS_MARK = re.compile(r"<!-- dialects -->")
MAP_MARK = re.compile(r"<!-- map -->")
TIMELINE_MARK = re.compile(r"<!-- timeline -->")
COUNT_MARK = re.compile(r"<!-- count -->")
NOTICES_MARK = re.compile(r"<!-- notices -->")
RESULT_MARK = re.compile(r"<!-- result -->")
PAPER_LINK = re.compile(r"\[(?:arXiv|doi)[^\]]*\]\([^)]*\)")
BENCH = re.compile(r"<!-- bench -->.*<!-- /bench -->", re.DOTALL)
ICON = re.compile(r'<svg xmlns="http://www.w3.org/2000/svg" viewBox="([^"]*)">(<path [^>]*/>)</svg>')
SCOPE = re.compile(r"<script>(__md_scope=.*?)</script>", re.DOTALL)
START = re.compile(r'<input class="md-toggle" data-md-toggle="drawer".*?(?=<article)', re.DOTALL)
HEADER = re.compile(r"<header.*?</header>", re.DOTALL)
END = re.compile(r"(?<=</article>).*", re.DOTALL)
STYLED = re.compile(r'<link rel="stylesheet" href="[^"]*_mkdocstrings.css">')
UNSTYLED = re.compile(r'<span class="(?:n|nn|p|w)">([^<]*)</span>')  # of code, in the colour that it has without
PALETTE = re.compile(r"<script>(var palette=.*?)</script>", re.DOTALL)
PLOTLY = re.compile(r"<script>(/\*\*\n\* plotly\.js.*?)</script>", re.DOTALL)
TABLE = Path(__file__).with_name("table.html")
README = Path(__file__).parents[1] / "README.md"
SEARCH = Path(__file__).with_name("search.js")
SEARCHED = {
    name: words.split("; ")
    for name, words in (line.split("\t") for line in Path(__file__).with_name("searched.tsv").read_text().splitlines())
}  # what people look for: the page or method that answers, and their words
UNSEARCHED = " { data-search-exclude }"  # a heading whose part the search does not read
icons: dict[str, str] = {}


def cards() -> list[Card]:
    """All cards, by folder."""
    return list(lineage.cards())


def on_config(config):
    """Add the methods to the table of contents."""
    if not any("Methods" in entry for entry in config.nav):
        whole = {"Flows, samplers and others": [{kind: f"kinds/{kind}.md"} for kind in families.KINDS]}
        first = ["methods/index.md", {"All in one table": "methods/table.md"}, {"By year": "methods/years.md"}]
        rooms = {"On one page": [{place: sheet_address(place)} for place in reference.rooms(cards())]}
        config.nav.insert(1, {"Methods": [*first, rooms, whole]})
    return config


def on_files(files, config):
    """Add a page a method, and their index."""
    files.append(File.generated(config, "methods/index.md", content=index()))
    files.append(File.generated(config, "methods/table.md", content=whole_table()))
    files.append(File.generated(config, "methods/years.md", content=years()))
    for place, found in reference.rooms(cards()).items():
        files.append(File.generated(config, sheet_address(place), content=sheet(place, found)))
    for card in cards():
        files.append(File.generated(config, address(card), content=page(card)))
    for kind in families.KINDS:
        files.append(File.generated(config, f"kinds/{kind}.md", content=members(kind)))
    for name in records.names():
        files.append(File.generated(config, f"{records.address(name)}.md", content=records.page(name)))
        if name.endswith(".json"):
            compact = json.dumps(json.loads(records.raw(name)), ensure_ascii=False, separators=(",", ":"))
            files.append(File.generated(config, f"{records.address(name)}.json", content=compact))
    for path in notebooks.paths():
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=notebooks.page(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Fill in a page's marks: the measurements of the README, comparisons, links to methods, and their axes."""
    markdown = records.mentioned(EVIDENCE.sub(evidence_linked, markdown), "../" * page.url.count("/"))
    markdown = BENCH.sub(lambda mark: BENCH.search(README.read_text())[0], markdown)
    markdown = COMPARED.sub(lambda mark: measured.compared(mark[1]), markdown)
    markdown = DIALECTS_MARK.sub(lambda mark: dialects(), markdown)
    markdown = BESIDE.sub(lambda mark: side_by_side(mark[1].split()), markdown)
    markdown = MAP_MARK.sub(lambda mark: figure(lineage.field(lineage.links(""))), markdown)
    markdown = TIMELINE_MARK.sub(lambda mark: figure(lineage.timeline(lineage.links(""))), markdown)
    markdown = COUNT_MARK.sub(lambda mark: str(len(cards())), markdown)
    markdown = NOTICES_MARK.sub(lambda mark: notices.tables(), markdown)
    markdown = RESULT_MARK.sub(lambda mark: result(), markdown)
    return LINK.sub(lambda mark: f"[{mark[1]}]({address(nk.card(mark[1]))})", markdown)


def evidence_linked(row: re.Match) -> str:
    """A row of a table about methods, with links to the papers whose evidence it has."""
    named = [nk.card(name) for name in LINK.findall(row[1].split(" | ")[0])]
    papers = [found[0] for card in named for found in PAPER_LINK.finditer(paper(card.paper))]
    return f"{row[1]} ({', '.join(dict.fromkeys(papers))}) |" if papers else row[0]


def on_page_content(html, page, config, files):
    """Let the search know what people call a page."""
    page.meta.setdefault("tags", SEARCHED.get(page.file.src_uri, []))


def on_post_page(output, page, config):
    """Leave out what every page would repeat: the drawings of icons, the head with its menu, the end of the page."""
    output = UNSTYLED.sub(r"\1", ICON.sub(icon, output))
    if "doc-object" not in output:
        output = STYLED.sub("", output)
    up = "../" * page.url.count("/")

    def common(found: re.Match) -> str:
        return f'<script src="{up}{kept_script(found[1])}"></script>'

    output = SCOPE.sub(common, PALETTE.sub(common, output))
    return lean.lean(output if page.is_homepage else shelled(output, page, up))


def shelled(output: str, page, up: str) -> str:
    """Leave what is around a page's words, but for its own menu, to scripts that pages have in common."""
    bare = "navigation" in page.meta.get("hide", [])
    for part in (START if bare else HEADER, END):
        shell = part.search(output)[0]
        kept = re.sub(rf">\s*{re.escape(html.escape(page.title))}\s*<", ">TITLE<", shell)
        kept = kept.replace(first_id(page.title), 'href="#SKIP"')
        write = f"document.write({json.dumps(lean.lean(kept))}.replace('TITLE', document.title.split(' - ')[0])"
        write += ".replace('SKIP', document.title.split(' - ')[0].toLowerCase().replace(/ /g, '-')))"
        output = output.replace(shell, f'<script src="{up}{kept_script(write)}"></script>', 1)
    return output


def first_id(title: str) -> str:
    """The link to where a page's words begin."""
    return f'href="#{title.lower().replace(" ", "-")}"'


def icon(found: re.Match) -> str:
    """An icon as an empty drawing, which the style sheet fills."""
    name = icons.setdefault(found[0], f"i{len(icons)}")
    return f'<svg class="{name}" viewBox="{found[1]}"></svg>'


scripts: dict[str, str] = {}


def kept_script(text: str) -> str:
    """The address of a script that pages have in common."""
    return scripts.setdefault(text, f"assets/page{len(scripts)}.js")


def on_post_build(config):
    """Write what pages have in common, let the search put titles first, and leave out the unread."""
    site = Path(config.site_dir)
    for worker in site.glob("assets/javascripts/workers/search.*.js"):
        worker.write_text(SEARCH.read_text(encoding="utf-8") + worker.read_text(encoding="utf-8"), encoding="utf-8")
    index = site / "search" / "search_index.json"
    index.write_text(lean.searched(index.read_text(encoding="utf-8")), encoding="utf-8")
    for text, place in scripts.items():
        (site / place).write_text(text, encoding="utf-8")
    with (site / "style.css").open("a", encoding="utf-8") as style:
        for drawing, name in icons.items():
            inside = drawing.replace("<svg ", "<svg fill='black' ").replace('"', "'").replace("#", "%23")
            style.write(
                f"svg.{name}{{background:currentColor;"
                f'mask:url("data:image/svg+xml,{inside}") center/contain no-repeat}}\n'
            )
    for unread in [*site.rglob("*.map"), *site.glob("assets/javascripts/lunr/**/*.js"), site / "sitemap.xml.gz"]:
        unread.unlink(missing_ok=True)  # maps of minified code, stemmers of other languages
    for report in site.glob("example/*.html"):
        report.write_text(packed(report.read_text(encoding="utf-8")), encoding="utf-8")


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
    for name in family:
        drawn = pictures.learned(name) if kind == "flow" else None
        shown = figure(drawn.svg, sentence(drawn.legend)) + "\n\n" if drawn else ""
        parts.append(f"## {name}\n\n{shown}{docstrings.fenced(family.about(name))}")
    return "\n\n".join(parts) + "\n"


def index() -> str:
    """All methods by folder, a line each."""
    parts = ["# Methods", f"{len(cards())} methods, each a file in the folder it is listed under."]
    for place, found in reference.rooms(cards()).items():
        heading = f"## {place}\n\n{reference.meaning_of(place, importlib.import_module)}"
        parts.append(f"{heading} [All on one page, to print]({sheet_address(place).removeprefix('methods/')}).")
        rows = [
            (f"[{c.name}]({address(c).removeprefix('methods/')})", escaped(c.summary), statistic_over(c)) for c in found
        ]
        parts.append(table(("method", "what it does", "statistic over"), rows))
    return "\n\n".join(parts) + "\n"


def years() -> str:
    """The timeline."""
    drawing = figure(lineage.timeline(lineage.links("../")))
    words = (
        "Each point is a method, and a link; hold the pointer over it for its name. The most replaced ones are named."
    )
    return f"---\nhide: [navigation, toc]\n---\n# Methods by year\n\n{words}\n\n{drawing}\n"


def sheet_address(place: str) -> str:
    """Where all methods of a folder are on one page."""
    return f"methods/sheets/{place.replace('/', '-')}.md"


def sheet(place: str, found: list[Card]) -> str:
    """A folder on one page: of each method the picture, the name, what it does, the equation."""
    parts = [
        f"# {place}, on one page",
        f"{reference.meaning_of(place, importlib.import_module)} It prints without the menu.",
    ]
    cells, shared = [], {}
    for card in found:
        drawn = pictures.picture(card.name)
        first = [b for b in facts.parts(card).equation.split("\n\n") if b.startswith("    ")][:1]
        link = f'<a href="../{address(card).removeprefix("methods/").removesuffix(".md")}.html">{card.name}</a>'
        inside = f"<h3>{link} <small>{year(card)}</small></h3>{thumb(card, shared, 100) if drawn else ''}"
        cells.append(f"<div>{inside}<p>{facts.escaped(card.summary)}</p>{''.join(map(equation, first))}</div>")
    parts.append(f'{symbols(shared)}\n<div class="sheet">{"".join(cells)}</div>')
    return "---\nsearch:\n  exclude: true\n---\n" + "\n\n".join(parts) + "\n"


def whole_table() -> str:
    """All methods in one table, which a reader narrows by words, rooms, tasks and ticks."""
    steps = measured.steps()
    thumbs: dict[str, str] = {}
    rows = "".join(table_row(card, steps.get(card.name, ""), thumbs) for card in cards())
    rooms = "".join(f"<option>{place}</option>" for place in reference.rooms(cards()))
    tasks = "".join(
        f"<option>{task}</option>" for task in dict.fromkeys(t for own in facts.guide().values() for t, *_ in own)
    )
    ticks = "".join(
        f'<label title="{words}"><input type="checkbox" value="{at}">{name}</label>'
        for at, (name, words) in enumerate(facts.TICKS.items())
    )
    page = TABLE.read_text(encoding="utf-8")
    meanings = "; ".join(f"*{name}*: {words}" for name, words in facts.TICKS.items())
    for mark, text in (("ROWS", rows), ("ROOMS", rooms), ("TASKS", tasks), ("TICKBOXES", ticks), ("MEANINGS", meanings),
                       ("SYMBOLS", symbols(thumbs)), ("STEP", measured.STEP)):  # fmt: skip
        page = page.replace(mark, text)
    return page


def symbols(drawn: dict[str, str]) -> str:
    """The drawings that several methods have in common, once."""
    inside = "".join(f'<symbol class="pic" id="{name}" {inside}</symbol>' for inside, name in drawn.items())
    return f'<svg class="pic" width="0" height="0" style="position:absolute" aria-hidden="true">{inside}</svg>'


def thumb(card: Card, drawn: dict[str, str], most: float = 72) -> str:
    """A method's picture, small: a reference to a drawing among ``drawn``."""
    found = pictures.picture(card.name)
    if found is None:
        return ""
    box, inside = re.fullmatch(r'<svg .*?(viewBox="[^"]*").*?>(.*)</svg>', found.svg, re.DOTALL).groups()
    name = drawn.setdefault(f"{box}>{inside}", f"d{len(drawn)}")
    wide, tall = (float(size) for size in box.split('"')[1].split()[2:])
    scale = min(1, most / tall, 2.4 * most / wide)
    words = html.escape(reference.statistic(card) or found.legend, quote=True)
    size = f'width="{wide * scale:.0f}" height="{tall * scale:.0f}"'
    return f'<svg class="pic" role="img" aria-label="{words}" {size}><use href="#{name}"/></svg>'


def table_row(card: Card, step: str, thumbs: dict[str, str]) -> str:
    """A row: the method and its paper, its axes, year, ticks, time, state, and what it takes the place of."""
    link = f'<a href="{address(card).removeprefix("methods/").removesuffix(".md")}.html">{card.name}</a>'
    state = ", ".join(f"{entry.name} {entry.shape}" for entry in reference.state(card)) or "none"
    names = facts.other_names(card)
    also = ", ".join(names[:6])
    words = [facts.escaped(card.summary), *([f"Also {html.escape(also)}."] if also else []), html.escape(card.paper)]
    ticked = facts.ticks(card.name)
    signs = "".join("1" if value else "0" for value in ticked.values())
    shown = ", ".join(name for name, value in ticked.items() if value)
    tasks = "; ".join(title for title, *_ in facts.guide().get(card.name, []))
    cells = [statistic_over(card), year(card), shown, step, state, ", ".join(card.replaces)]
    drawn = in_short(card) if card.kind.name == "text" else thumb(card, thumbs)
    first = f"<td>{link}<br><small>{' '.join(words)}</small></td><td>{drawn}</td>"
    data = f'data-room="{reference.folder(card)}" data-ticks="{signs}" data-tasks="{html.escape(tasks, quote=True)}"'
    data += f' data-names="{html.escape(" ".join(names[6:]), quote=True)}"' if names[6:] else ""
    return f"<tr {data}>{first}{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>\n"


def statistic_over(card: Card) -> str:
    """What a statistic is taken over; "none" where every number is mapped by itself."""
    return reference.over(card) or ("none" if reference.statistic(card) else "")


def side_by_side(names: list[str]) -> str:
    """The axes of several methods in a row, as one sees at a glance how they differ."""
    drawn = [(name, pictures.picture(name)) for name in names]
    boxes = [f"<figure>{d.svg}<figcaption>{name}</figcaption></figure>" for name, d in drawn if d]
    letters = dict.fromkeys(words for name in names for words in reference.legend(nk.card(name)) if words[0].isalpha())
    signs = "Filled: the entries of one statistic; ring: an entry that it is for"
    caption = f"{signs}. {'; '.join(letters)}."
    return f'<div class="beside">{"".join(boxes)}</div>\n<p class="signs">{caption}</p>'


def result() -> str:
    """One result of the lab, as the first page shows it."""
    title, unit, _, bars = facts.compared()[0]
    return figure(facts.chart(bars, unit, bars[0].name), facts.escaped(title))


def figure(drawing: str, caption: str = "") -> str:
    """A drawing with what its signs mean."""
    return f"<figure data-search-exclude>{drawing}{f'<figcaption>{caption}</figcaption>' if caption else ''}</figure>"


def page(card: Card) -> str:
    """Everything about one method."""
    parts = facts.parts(card)
    arguments = [(f"`{a.name}`", f"`{a.default}`", escaped(a.meaning)) for a in reference.arguments(card)]
    forms = [(owner, escaped(text)) for owner, text in reference.forms(card)]
    names = [(f"`{name}`", f"`{brought}`") for name, brought in reference.aliases(card) if brought]
    state = [(f"`{e.name}`", f"`{e.shape}`", e.kind) for e in reference.state(card)]
    kept = table(("name", "shape", "kind"), state) if state else no_state(card)
    sections = [
        ("", f"{search_words(card)}# {card.name}\n\n{naming(card)}\n\n**{escaped(card.summary)}**\n\n{picture(card)}"),
        ("Equation" if written(parts.equation) else "What it does", equations(parts.equation)),
        ("Example" + UNSEARCHED, example(card)),
        ("When to use it", when(card, parts.use)),
        ("Measured here" + UNSEARCHED, measurements(card)),
        ("What the paper claims" + UNSEARCHED, claims(card)),
        ("Evidence" + UNSEARCHED, sentence(escaped(reference.evidence(card))) if card.evidence else ""),
        ("In the world's models" + UNSEARCHED, world(card)),
        ("Family" + UNSEARCHED, family(card)),
        (
            "Differences",
            "\n\n".join(
                filter(
                    None,
                    [
                        parts.differs,
                        table(("takes the arguments of", "its arguments, and ours"), forms) if forms else "",
                        table(("name", "brings"), names) if names else "",
                    ],
                )
            ),
        ),
        ("Arguments" + UNSEARCHED, table(("argument", "default", "meaning"), arguments)),
        ("State" + UNSEARCHED, "\n\n".join(filter(None, [kept, parts.state]))),
        ("Unchanged by" + UNSEARCHED, ", ".join(card.invariant)),
        (
            "What it does not keep of the contract" + UNSEARCHED,
            table(("line", "reason"), exemptions(card)) if card.exempt else "",
        ),
        ("Cite" + UNSEARCHED, f"{paper(card.paper)}\n\n```\n{facts.bibtex(card)}\n```"),
        ("Source and tests" + UNSEARCHED, files_of(card)),
    ]
    return "\n\n".join((f"## {title}\n\n" if title else "") + body for title, body in sections if body) + "\n"


def naming(card: Card) -> str:
    """The acronym, the title of the paper with its year, the other names, and where the method is."""
    short, long = facts.acronym(card)
    title = card.paper.partition(" (")[0]
    others = [f"`{name}`" for name in facts.other_names(card) if name != card.entry.__name__][:10]
    place = reference.folder(card)
    sheets = f"[{place}]({'../' * (place.count('/') + 2)}{sheet_address(place)})"
    said = [
        *([f"**{short}**: {long}"] if short and long else []),
        f"*{escaped(title)}*, {year(card)}",
        f"`nk.{card.entry.__name__}`, {article(card.kind.name)} of {sheets}",
        *([f"also {', '.join(others)}"] if others else []),
    ]
    return " · ".join(said)


def article(noun: str) -> str:
    """A word with its article.

    >>> article("optimizer"), article("norm"), article("text"), article("fitted")
    ('an optimizer', 'a norm', 'a method of text', 'a fitted method')
    """
    noun = {"text": "method of text", "fitted": "fitted method"}.get(noun, noun)
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def picture(card: Card) -> str:
    """The drawing, what is taken over which in words, and what the axes' names stand for."""
    if card.kind.name == "text":
        return change(card)
    drawn = pictures.picture(card.name)
    said = reference.statistic(card)
    lines = [sentence(facts.escaped(drawn.legend))] if drawn else []
    if said and not said.startswith("no statistic"):
        lines.append(sentence(facts.escaped(said)))
    shown = figure(drawn.svg, " ".join(lines)) if drawn else ""
    return "\n\n".join(filter(None, [shown, legend(card)]))


def sides_of(card: Card) -> tuple[str, str]:
    """What a method of text is asked, and what it makes of it."""
    return ", ".join(map(repr, next(iter(card.entry.calls.values())))), examples.example(card.name).output


def in_short(card: Card) -> str:
    """What a method of text makes of what it is asked, by its first words."""
    words = [textwrap.shorten(side, 40, placeholder=" …") for side in sides_of(card)]
    return " → ".join(f"<small>{html.escape(side)}</small>" for side in words)


def change(card: Card) -> str:
    """What a method of text makes of what it is asked, before and after."""
    sides = zip(("before", "after"), sides_of(card), strict=True)
    cells = "".join(f"<div><b>{name}</b><pre><code>{html.escape(text)}</code></pre></div>" for name, text in sides)
    return f'<div class="change">{cells}</div>'


def equation(block: str) -> str:
    """An indented block: lines of mathematics, or columns of words as they are."""
    block = textwrap.dedent(block)
    if typeset.is_table(block):
        return f"<pre><code>{html.escape(block)}</code></pre>"
    return f'<div class="eq">{"".join(map(typeset.typeset, block.splitlines()))}</div>'


def written(text: str) -> bool:
    """Whether there is an equation among the words."""
    return any(block.startswith("    ") and not typeset.is_table(block) for block in text.split("\n\n"))


def equations(text: str) -> str:
    """The part of a docstring around its equation."""
    blocks = docstrings.fenced(text).split("\n\n")
    return "\n\n".join(equation(block) if block.startswith("    ") else block for block in blocks)


def example(card: Card) -> str:
    """Code that can be copied, and what it prints."""
    made = examples.example(card.name)
    shown = made.output and card.kind.name != "text"  # whose answer stands above
    printed = f"\n\n```\n{made.output}\n```" if shown else ""
    return f"```python\n{made.code}\n```{printed}"


def when(card: Card, use: str) -> str:
    """For whom it is, in which situations the guide names it, and where it is not for."""
    up = "../" * (reference.folder(card).count("/") + 2)
    others = lineage.known() - {card.name}
    lines = [NAME.sub(lambda mark: linked(mark[1], card) if mark[1] in others else mark[0], use)] if use else []
    lines += [
        f"- [{title}]({up}which.md#{anchor}): {because.replace('](', f']({up}')}{f'; {evidence}' if evidence else ''}"
        for title, anchor, because, evidence in facts.guide().get(card.name, [])
    ]
    lines = [LINK.sub(lambda mark: linked(mark[1], card), line) for line in lines]
    lines += [f"- Mind: {caution}." for caution in cautions.cautions(card)]
    return ("\n\n" if use else "").join([lines[0], "\n".join(lines[1:])]) if use else "\n".join(lines)


def measurements(card: Card) -> str:
    """Charts of races and comparisons, and rows of records, each with its file."""
    parts = []
    for title, unit, file, bars in facts.charts(card):
        where = record(f"{file}.json", card)
        parts.append(figure(linking(facts.chart(bars, unit, card.name), where), f"{facts.escaped(title)}. {where}"))
    rows = [
        f"{title}, {record(file, card)}:\n\n{table(head, rows)}" for file, title, head, rows in facts.recorded(card)
    ]
    if len(rows) > 1:
        rows = [f'<details markdown="1"><summary>{len(rows)} tables of measurements</summary>', *rows, "</details>"]
    parts += rows
    return "\n\n".join(parts) or not_raced(card)


def not_raced(card: Card) -> str:
    """What measures a method of which no time is on file, or why nothing does."""
    command = races.command(card)
    if command:
        return f"Nothing is on file. `{command}` measures it."
    if bench.is_module(card):
        return "Nothing is on file: it takes none of the inputs that `normkit bench` draws."
    return f"Nothing is on file: `normkit bench` times modules, and this is {article(card.kind.name)}."


def record(file: str, card: Card) -> str:
    """Name a record by its file, and lead to it."""
    return records.link(file, "../" * (reference.folder(card).count("/") + 2), card.name)


def linking(drawing: str, link: str) -> str:
    """A chart whose numbers lead to their record."""
    return f"{link.partition('>')[0]}>{drawing}</a>"


def claims(card: Card) -> str:
    """Each claim with its verdict; of those that were tried the number, its bound and the control's."""
    lines = []
    left = Counter()
    for verdict in facts.verdicts(card):
        if verdict.word == "not tried":
            left[verdict.why.partition(":")[0]] += 1
            continue
        numbers = f"{escaped(verdict.measured)}: {verdict.number:.3g}, which must be {verdict.wanted}"
        numbers += f"; for comparison, {escaped(verdict.against)}: {verdict.control:.3g}"
        where = record(f"claims-{verdict.room}.json", card)
        lines.append(f"- **{verdict.spoken.capitalize()}**: {escaped(verdict.says)} ({numbers}; {where})")
    lines += [f"- Not tried: {number} claim{'s' * (number > 1)}; {why}" for why, number in left.items()]
    return "\n".join([*lines, f"\n`normkit claim {card.name}` tells more."]) if lines else ""


def world(card: Card) -> str:
    """Which models of transformers and timm use it, by dialect."""
    up = "../" * (reference.folder(card).count("/") + 2)
    lines = []
    for library, dialect, words in facts.world().get(card.name, []):
        number, _, names = words.partition(": ")
        listed = names.split(", ")
        more = f" and {len(listed) - 14} more" if len(listed) > 14 else ""
        one = number == "1"
        unit = f"norm{'s' * (not one)}, as" if library != "transformers" else "class" if one else "classes"
        lines.append(
            f"- {library}{f', `{dialect}`' if dialect else ''}: {number} {unit}: {', '.join(listed[:14])}{more}"
        )
    return "\n".join([*lines, f"\n[How they were recognized]({up}world.md)."]) if lines else ""


def family(card: Card) -> str:
    """The tree by year, and sisters."""
    up = "../" * (reference.folder(card).count("/") + 2)
    near = [*lineage.ancestors(card), *lineage.descendants(card.name)]
    tree = lineage.tree(card, lineage.links(up, [nk.card(name) for name in near if name in lineage.known()]))
    caption = "A line leads from a method to one that takes its place, by the year of the paper."
    alike = ", ".join(linked(name, card) for name in lineage.sisters(card))
    return "\n\n".join(filter(None, [figure(tree, caption) if tree else "", f"Beside it: {alike}." if alike else ""]))


def files_of(card: Card) -> str:
    """Where its code, its recorded numbers and its tests are."""
    files = [facts.source(card), facts.golden(card), *facts.files_of_tests(card)]
    return (
        ", ".join(f"`{file}`" for file in files if file)
        + ". The contract asks all methods: `normkit check "
        + f"{card.name}`."
    )


def packed(report: str) -> str:
    """Compress the drawing program within a report; a browser takes it out again."""
    import base64
    import gzip

    found = PLOTLY.search(report)
    if found is None:
        return report
    code = base64.b64encode(gzip.compress(found[1].encode(), mtime=0)).decode()
    before, after = (
        report[: found.start()],
        report[found.end() :].replace("<script>", '<script type="text/plain" id="later">', 1),
    )
    return (
        f'{before}<script type="text/plain" id="packed">{code}</script>{after.replace("</body>", "")}'.replace(
            "</html>", ""
        )
        + "<script>(async () => {\n"
        'const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));\n'
        'const text = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();\n'
        'for (const code of [await text, document.getElementById("later").textContent]) {\n'
        'const script = document.createElement("script");\n'
        "script.textContent = code;\ndocument.head.append(script);\n}\n"
        "})();</script>\n</body>\n</html>\n"
    )


def search_words(card: Card) -> str:
    """Write what the search reads of a method besides its page: its synonyms, and that the much replaced come first."""
    title = card.paper.partition(" (")[0]
    words = dict.fromkeys([*reference.synonyms(card), *SEARCHED.get(card.name, []), title])
    names = "".join(f"\n  - {json.dumps(name)}" for name in words)
    boost = f"search:\n  boost: {1 + math.log2(1 + successors()[card.name]):.2f}"
    return f"---\nhide: [navigation, toc, tags]\ntags:{names}\n{boost}\n---\n"


@functools.cache
def successors() -> Counter[str]:
    """How many methods take the place of each."""
    return Counter(name for card in cards() for name in card.replaces)


def no_state(card: Card) -> str:
    """What is said of a small instance that keeps nothing; of an optimizer the docstring tells all."""
    return "" if card.kind.name == "optimizer" else "None: nothing is learned, nothing is kept."


def legend(card: Card) -> str:
    """Say in a line what the axis names stand for, and the layouts of further inputs."""
    if card.kind.name == "optimizer":
        return ""
    further = [
        f"`{name}` is laid out `{layout}`{', and may be left out' if spare else ''}"
        for name, layout, spare in reference.inputs(card)
    ]
    return "; ".join([*(f"`{line.replace(': ', '`: ', 1)}" for line in reference.legend(card)), *further]) + "." * bool(
        further
    )


def sentence(text: str) -> str:
    """Begin with a capital and end with a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def linked(name: str, card: Card) -> str:
    """Link another method, if the catalogue has it."""
    if name not in lineage.known():
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
        re.sub(r"([*_|>\[\]])", r"\\\1", part).replace("<", "&lt;") if at % 2 == 0 else part.replace("|", "\\|")
        for at, part in enumerate(parts)
    ]
    return "".join(plain)
