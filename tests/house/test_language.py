"""Pages and docstrings are for who did not write them: short sentences, and no word of a list that stops a reader."""

import importlib
import importlib.util
import inspect
import pathlib
import re

import pytest

import normkit as nk
from normkit import families

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")} - {ROOT / "CHANGELOG.md"})
MOST = 30  # words of a sentence
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
AVOIDED = re.compile(
    r"\b(told|stands|stood|finds? itself|find themselves|numbers that are none|which is none|that is none)\b"
    r"|^(refused|returned|named|held up|held out|left out|taken|kept) (is|are)\b|\brefused is what\b",
    re.IGNORECASE,
)
NAMES = re.compile(r"(?:[\w-]+, ){5,}[\w-]+")  # a list of names counts as one word
ARGUMENT = re.compile(r"^(?: {4}[\w*`, ]+|[a-z_]+): ", re.MULTILINE)


def blocks(text):
    """Paragraphs, items of lists and cells of tables, without code."""
    if text.startswith("---\n"):
        text = text.partition("\n---\n")[2]
    text = re.sub(r"<!--.*?-->", " ", FENCE.sub("\n\n", text), flags=re.DOTALL)
    text = re.sub(r"\n\n(?: {4}.*\n)+\n(?=[A-Z#])", "\n\n", text)  # code that is set in, not run
    found, lines = [], []
    for line in [*map(str.strip, text.splitlines()), ""]:
        item = re.match(r"(\d+\.|[-*]) ", line)
        if lines and (not line or item or line[0] in "#|"):
            found.append(" ".join(lines))
            lines = []
        if line.startswith("|"):
            found += [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]
        elif line and not line.startswith("#"):
            lines.append(line[item.end() :] if item else line)
    return found


def sentences(block):
    """The sentences of a block, code in backticks and the addresses of links left out; a semicolon parts them too."""
    block = re.sub(r"`+[^`]*`+", "CODE", block)
    block = re.sub(r"<[^>]*>", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block))
    block = NAMES.sub("NAMES", re.sub(r"\b(vs|et al)\.", r"\1", block))
    return [part for part in re.split(r"(?<=[.!?:;])[\"')*]*\s+", block) if part]


def faults(text):
    """What a reader would stop at: long sentences, and words of the list."""
    every = [sentence for block in blocks(text) for sentence in sentences(block)]
    long = [s for s in every if len(re.findall(r"[\w][\w'.,%/-]*", s)) > MOST]
    return [
        *(f"more than {MOST} words: {s}" for s in long),
        *(f"{m[0]}: {s}" for s in every for m in AVOIDED.finditer(s)),
    ]


def prose(docstring):
    """A docstring without its equations, tables and examples; each argument is a paragraph."""
    kept = []
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if not paragraph.startswith("    ") and ">>>" not in paragraph:
            lines = [line for line in paragraph.splitlines() if not re.search(r"\S {2,}\S", line)]
            kept.append(ARGUMENT.sub("\n\n", "\n".join(lines)))
    return "\n\n".join(re.sub(r"(?m)^ +", "", text) for text in kept)


def shown():
    """The docstrings that the page of the Python reference shows, by name."""
    for path in re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE):
        try:
            thing = importlib.import_module(path)
        except ModuleNotFoundError:
            place, _, name = path.rpartition(".")
            thing = getattr(importlib.import_module(place), name)
        yield path, thing.__doc__ or ""
        for inner, member in vars(thing).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inner[0] != "_" and callable(function) and getattr(function, "__module__", "").startswith("normkit"):
                yield f"{path}.{inner}", function.__doc__ or ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_plain(page):
    assert faults(page.read_text(encoding="utf-8")) == []


def test_notebooks_are_plain():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs/notebooks.py")
    notebooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebooks)
    assert {path.stem: found for path in NOTEBOOKS if (found := faults(notebooks.page(path)))} == {}


def test_what_pages_of_methods_say_is_plain():
    found = {}
    for name in nk.methods():
        card = nk.card(name)
        texts = [prose(card.entry.__doc__ or ""), card.summary, card.provenance or "", *card.exempt.values()]
        found[name] = [fault for text in texts for fault in faults(text)]
    for kind in families.KINDS:
        family = families.family(kind)
        found |= {f"{kind} {name}": faults(prose(family.about(name))) for name in family}
    assert {name: own for name, own in found.items() if own} == {}


def test_what_the_python_reference_says_is_plain():
    assert {name: own for name, text in shown() if (own := faults(prose(text)))} == {}


@pytest.mark.parametrize(
    "text, count",
    [
        ("A norm. " * 40, 0),
        ("word " * 31 + ".", 1),
        ("word " * 20 + "; " + "word " * 20, 0),
        ("word " * 28 + "`a b c d e f`", 0),
        ("| " + "word " * 31 + "| short |", 1),
        ("- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("```\n" + "word " * 40 + "\n```", 0),
        ("It is told which stands.", 2),
        ("Refused are numbers that are none.", 2),
        ("one, two, three, four, five, six, seven, " * 6, 0),
    ],
)
def test_long_sentences_and_words_of_the_list_are_seen(text, count):
    assert len(faults(text)) == count
