"""Docstrings as Markdown: examples become code, roles before names fall away, each argument has a line of its own."""

import re

import griffe

from normkit.reference import ARGUMENT, ROLE

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
SECTION = re.compile(r"^Args:\n(?: .*\n?)+", re.MULTILINE)


def fenced(text: str) -> str:
    """Put fences around every run of example lines, and drop the roles."""
    code = EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
    return ROLE.sub("", code)


def one_by_one(text: str) -> str:
    """Repeat what is said of several arguments together for each of them."""

    def each(found: re.Match) -> str:
        names, meaning = found.groups()
        return "\n".join(f"    {name}: {meaning}" for name in names.split(", "))

    return SECTION.sub(lambda section: ARGUMENT.sub(each, section[0]), text)


class Examples(griffe.Extension):
    """Let mkdocstrings see docstrings in this form."""

    def on_instance(self, *, obj, **kwargs):
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = fenced(one_by_one(obj.docstring.value))
