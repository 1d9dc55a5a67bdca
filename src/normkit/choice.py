"""A name with arguments, as a command line and a config write it: ``dyt:alpha=0.8``."""

from __future__ import annotations

import ast
import re
from typing import Any

OUTER_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # not one inside a tuple, a list or a dictionary


def parsed(text: str) -> tuple[str, dict[str, Any]]:
    """Split a name and its arguments.

    >>> parsed("groupnorm:num_groups=4"), parsed("adamw:betas=(0.9,0.95)")
    (('groupnorm', {'num_groups': 4}), ('adamw', {'betas': (0.9, 0.95)}))
    >>> parsed("layernorm:affine=false")  # as YAML and JSON write it
    ('layernorm', {'affine': False})
    """
    name, _, rest = text.partition(":")
    arguments = {}
    for part in filter(None, OUTER_COMMA.split(rest)):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{text!r}: an argument is written key=value, not {part!r}")
        arguments[key.strip()] = _value(value.strip())
    return name, arguments


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
