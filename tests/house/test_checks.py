"""What is asked of arguments, by itself: what is at the edge of what is taken."""

import ast
import pathlib
import re

import pytest
import torch

from normkit import check

SOURCE = pathlib.Path(check.__file__).parent
OWNERS = {"self", "owner", "NAME", "type(self).__name__"}


def test_one_vector_has_features_last_and_so_many_axes_as_are_asked_for():
    check.features_last("Here", torch.ones(3), 3)
    check.features_last("Here", torch.ones(2, 3), 3, least=2)
    with pytest.raises(ValueError, match=r"^Here: x must have at least 2 axes and end in 3 features, .*\(3,\)"):
        check.features_last("Here", torch.ones(3), 3, least=2)
    with pytest.raises(ValueError, match=r"^Here: x must end in 4 features, .*\(3,\)"):
        check.features_last("Here", torch.ones(3), 4)


def calls_of_check():
    """Every call of a check in the package, as its words: where, the owner, and all that stands behind."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("check.") and len(node.args) > 1:
                owner, *others = map(ast.unparse, node.args)
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", owner, others


def test_an_error_begins_with_whose_argument_it_is_and_then_names_the_argument():
    calls = list(calls_of_check())
    assert len(calls) > 1000
    for place, owner, others in calls:
        assert not OWNERS & set(others), f"{place}: who asks comes first"
        argument = rf"(\w+\.|\w+\[')?{owner[1:-1]}('\])?"
        asked = owner.startswith("'") and any(re.fullmatch(argument, other) for other in others)
        assert not asked, f"{place}: {owner} is an argument, and who asks comes first"
