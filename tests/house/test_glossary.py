"""The glossary: a page uses each of its words, and what a person reads has no other word for the same thing."""

import ast
import re

import pytest
from test_language import FENCE, PAGES, ROOT

GLOSSARY = ROOT / "docs/glossary.md"
ROWS = re.findall(
    r"^\| \[([\w -]+)\]\(([\w.-]+\.md)(?:#([\w-]+))?\) \| [^|]+ \|([^|]*)\|$", GLOSSARY.read_text(), re.MULTILINE
)
OTHERS = [other for *_, words in ROWS for other in words.strip().split(", ") if other]
ELSEWHERE = re.compile(rf"\b(?:{'|'.join(map(re.escape, OTHERS))})s?\b", re.IGNORECASE)
READ = [*(page for page in PAGES if page != GLOSSARY), *sorted((ROOT / "tests/house/commands").glob("*.json"))]


def stem(word):
    """What a word begins with in any of its forms."""
    return rf"\b{word.rstrip('ey')}"


def test_each_row_is_read_and_the_words_are_in_order():
    words = [word for word, *_ in ROWS]
    assert len(words) == GLOSSARY.read_text().count("\n| ") - 2
    assert words == sorted(set(words))
    assert len(words) >= 40


@pytest.mark.parametrize("word, page, heading", [row[:3] for row in ROWS], ids=[word for word, *_ in ROWS])
def test_a_word_is_used_on_its_page(word, page, heading):
    text = FENCE.sub("", (ROOT / "docs" / page).read_text())
    if heading:
        named = [
            part for part in re.split(r"^#+ ", text, flags=re.MULTILINE) if slug(part.partition("\n")[0]) == heading
        ]
        assert len(named) == 1, f"{page} has no heading {heading}"
        text = named[0]
    assert re.search(stem(word), text, re.IGNORECASE)


def slug(heading):
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


@pytest.mark.parametrize("path", READ, ids=lambda path: path.name)
def test_pages_and_help_have_one_word_for_one_thing(path):
    assert [m[0] for m in ELSEWHERE.finditer(FENCE.sub("", path.read_text()))] == []


def errors(path):
    """What a file says in its errors and warnings; a single word may be the name of an argument."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warn"):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_errors_have_one_word_for_one_thing():
    paths = [path for path in (ROOT / "src/normkit").rglob("*.py") if "contract" not in path.parts]
    slips = [
        (path.name, m[0]) for path in paths for text in errors(path) for m in ELSEWHERE.finditer(text) if " " in m[0]
    ]
    assert slips == []


def test_a_slip_would_be_seen():
    assert ELSEWHERE.findall("The running moments move, and the Skip connection.") == [
        "running moments",
        "Skip connection",
    ]
