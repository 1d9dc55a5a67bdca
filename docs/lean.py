"""Pages without what a browser adds by itself, and a search index that says things once.

HTML lets an author leave out quotes around plain values, most end tags and line ends between blocks; a reader sees the
same. Nothing inside of code, scripts and equations is touched but quotes.
"""

from __future__ import annotations

import json
import re

BLOCK = (
    "p|li|ul|ol|dl|dt|dd|table|thead|tbody|tr|td|th|div|h[1-6]|figure|figcaption|pre|section|article|main|nav|header|"
    "footer|form|select|option|meta|link|title|head|body|html|script|blockquote|details|summary|hr"
)
KEPT = re.compile(r"(<pre.*?</pre>|<script.*?</script>|<style.*?</style>)", re.DOTALL)
TAG = re.compile(r"<[a-zA-Z][^<>]*>")
QUOTED = re.compile(r'(\s[\w:-]+=)"([\w.#/:%,;+-]+)"(?=[\s>])')
NEEDLESS = (  # what a browser adds by itself, and what it reads as nothing
    (re.compile(r"\s*\n\s*"), "\n"),
    (re.compile(rf"\n(?=</?(?:{BLOCK})\b)"), ""),
    (re.compile(rf"(</?(?:{BLOCK})\b[^>]*>)\n"), r"\1"),
    (re.compile(r"</p>(?=<(?:p|ul|ol|table|div|h[1-6]|figure|section)\b|</(?:li|td|div|article|figure)>)"), ""),
    (re.compile(r"</t[dh]>(?=<t[dh]\b|</tr>)"), ""),
    (re.compile(r"</tr>(?=<tr\b|</t(?:body|head|able)>)"), ""),
    (re.compile(r"</thead>(?=<tbody>)"), ""),
    (re.compile(r"</tbody>(?=</table>)"), ""),
    (re.compile(r"</li>(?=<li\b|</[uo]l>)"), ""),
    (re.compile(r"</option>(?=<option\b|</select>)"), ""),
)
MARKS = re.compile(r' data-search-exclude(?:="")?|<span></span>|<meta name="generator"[^>]*>\n?')


def lean(page: str) -> str:
    """A page that is read as before.

    >>> lean('<ul>\\n<li class="a">one</li>\\n<li><p>two <em>b</em></p></li>\\n</ul>\\n<pre>c\\n  d</pre>')
    '<ul><li class=a>one<li><p>two <em>b</em></ul><pre>c\\n  d</pre>'
    >>> lean('<svg class="pic"><path d="M0 0h9"/><rect x="1" y="2"/></svg> <img alt="a b" src="c.png">')
    '<svg class=pic><path d="M0 0h9"/><rect x=1 y="2"/></svg> <img alt="a b" src=c.png>'
    """
    parts = KEPT.split(MARKS.sub("", page))
    return "".join(_code(part) if at % 2 else _plain(part) for at, part in enumerate(parts))


def _plain(part: str) -> str:
    for needless, instead in NEEDLESS:
        part = needless.sub(instead, part)
    return _unquoted(part)


def _code(part: str) -> str:
    if part.startswith("<pre"):
        return _unquoted(part)
    tag, rest = part.split(">", 1)
    return _unquoted(tag + ">") + rest


def _unquoted(part: str) -> str:
    return TAG.sub(lambda tag: QUOTED.sub(r"\1\2", tag[0]), part)


def searched(index: str) -> str:
    """A search index in which a page's tags are those of the page, and not of each of its parts.

    >>> searched('{"docs": [{"location": "a", "tags": ["b"]}, {"location": "a#c", "tags": ["b"]}]}')
    '{"docs":[{"location":"a","tags":["b"]},{"location":"a#c"}]}'
    """
    whole = json.loads(index)
    for entry in whole["docs"]:
        if "#" in entry["location"]:
            entry.pop("tags", None)
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
