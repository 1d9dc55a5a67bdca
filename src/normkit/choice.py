"""A name as a command line and a config write it: with arguments, ``dyt:alpha=0.8``, or that of a file."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from typing import Any

SIGN = re.compile(r"""(?<!\w)('(\\.|[^'\\])*'|"(\\.|[^"\\])*")|[(\[{,}\])]""")  # a text in quotes is one


def parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Split a name and its arguments.

    >>> parsed("groupnorm:num_groups=4"), parsed("adamw:betas=(0.9,0.95)")
    (('groupnorm', {'num_groups': 4}), ('adamw', {'betas': (0.9, 0.95)}))
    >>> parsed("x:a=[1,(2,3)],b='p,q',c={4:(5,)}")
    ('x', {'a': [1, (2, 3)], 'b': 'p,q', 'c': {4: (5,)}})
    >>> parsed("layernorm:affine=false")  # as YAML and JSON write it
    ('layernorm', {'affine': False})
    """
    name, _, rest = text.partition(":")
    arguments = {}
    for part in filter(None, _split(rest)):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{text!r}: an argument is written key=value, not {part!r}")
        arguments[key.strip()] = _value(value.strip())
    return name, arguments


def module_name(path: str) -> str:
    """Return the name by which Python imports a file of the working directory, or of a folder above it.

    >>> module_name("./nets/mine.py"), module_name("../mine.py"), module_name("nets.mine")
    ('nets.mine', 'mine', 'nets.mine')
    """
    return ".".join(re.findall(r"[^./\\]+", os.path.relpath(path or ".").removesuffix(".py")))


def _split(text: str) -> Iterator[str]:
    """Split at commas that are not inside a tuple, a list, a dictionary or quotes."""
    start = depth = 0
    for sign in SIGN.finditer(text):
        depth += (sign[0] in "([{") - (sign[0] in "}])")
        if sign[0] == "," and depth <= 0:
            yield text[start : sign.start()]
            start = sign.end()
    yield text[start:]


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
