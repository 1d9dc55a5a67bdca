"""Docstrings as Markdown: examples become code, roles before names fall away."""

import re

import griffe

from normkit.reference import ROLE

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """Put fences around every run of example lines, and drop the roles."""
    code = EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
    return ROLE.sub("", code)


class Examples(griffe.Extension):
    """Let mkdocstrings see docstrings in this form."""

    def on_instance(self, *, obj, **kwargs):
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
