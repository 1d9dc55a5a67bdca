"""What is wrong with a page is seen when the site's screens are looked at; and nothing is where nothing is."""

import doctest
import shutil

import pytest

from screens import __main__ as screens

GOOD = """<!doctype html><html lang="en"><head><title>a</title></head><body><div class="md-content">
<p style="color: #000; background: #fff">Words that can be read, and <a href="a.html">a link</a>.</p>
<pre style="overflow: auto; width: 80px; color: #000; background: #fff">a long line of code that scrolls by itself</pre>
<figure><svg class="pic" role="img" aria-label="a line" viewBox="0 0 100 40" width="100" height="40">
<path d="M0 0h9" stroke="#000"/><text x="2" y="20" font-size="12">one</text>
<text x="50" y="20" font-size="12">two</text>
</svg></figure><math style="font-family: math"><mi>x</mi></math></div></body></html>"""
BAD = {
    "a contrast of 2.32": ("color: #000; background: #fff", "color: #aaa; background: #fff"),
    "the page is 3008 wide": ("<pre", '<div style="width: 3000px">wide</div><pre'),
    "what should fit scrolls": ("<figure>", '<figure style="overflow: auto; width: 60px; margin: 0">'),
    "an empty picture": ('width="100" height="40"', 'width="0" height="0"'),
    "a picture without words": ('aria-label="a line"', 'aria-label=""'),
    "words over others (two)": ('x="50"', 'x="8"'),
    "words that leave their picture": ('x="50"', 'x="95"'),
    "words of 6.0 pixels in a picture": ('width="100" height="40"', 'width="50" height="20"'),
    "a control without a name": ("a link</a>", '</a><button style="width: 9px; height: 9px"></button>'),
    "an equation in a font of words": ("font-family: math", "font-family: sans-serif"),
    "a drawing that is missing": ("<path", '<use href="#none"/><path'),
    "a picture that does not load": ("<figure>", '<img src="none.png" alt="none"><figure>'),
    "an equation of a sheet scrolls": (
        "</div></body>",
        '<div class="sheet"><div class="eq" style="overflow: auto; width: 20px">a_long_word</div></div></div></body>',
    ),
    "an error: Uncaught": ("</body>", "<script>throw new Error('no')</script></body>"),
}
BROWSER = next(filter(None, map(shutil.which, screens.BROWSERS)), None)


def test_pictures_without_words_are_seen_without_a_browser():
    assert doctest.testmod(screens).failed == 0


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_what_is_wrong_with_a_page_is_seen(tmp_path):
    pages = {"good": GOOD} | {f"bad{at}": GOOD.replace(*change) for at, change in enumerate(BAD.values())}
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text)
    (tmp_path / "favicon.ico").write_bytes(b"")
    problems = screens.look(tmp_path, BROWSER, None, tuple(f"{name}.html" for name in pages), (1280,), ("light",))
    seen = {name: [p for p in problems if p.startswith(f"{name}.html")] for name in pages}
    assert seen["good"] == []
    for at, problem in enumerate(BAD):
        assert any(problem in words for words in seen[f"bad{at}"]), (problem, seen[f"bad{at}"])
