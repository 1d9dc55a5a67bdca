"""What is asked of arguments, by itself: what is at the edge of what is taken."""

import ast
import pathlib
import re

import pytest
import torch

from normkit import check
from normkit.contract.subject import METHODS, build, draw

SOURCE = pathlib.Path(check.__file__).parent
OWNERS = {"self", "owner", "NAME", "type(self).__name__"}


def test_one_vector_has_features_last_and_so_many_axes_as_are_asked_for():
    check.features_last("Here", torch.ones(3), 3)
    check.features_last("Here", torch.ones(2, 3), 3, least=2)
    with pytest.raises(ValueError, match=r"^Here: x must have at least 2 axes and end in 3 features, .*\(3,\)"):
        check.features_last("Here", torch.ones(3), 3, least=2)
    with pytest.raises(ValueError, match=r"^Here: x must end in 4 features, .*\(3,\)"):
        check.features_last("Here", torch.ones(3), 4)


@pytest.mark.parametrize("groups, nearest", [(5, r"\[3, 4, 6\]"), (20, r"\[4, 6, 12\]"), (11, r"\[4, 6, 12\]")])
def test_numbers_that_would_divide_are_offered(groups, nearest):
    check.divides("Here", "num_groups", 4, "channels", 12)
    with pytest.raises(ValueError, match=rf"^Here: num_groups={groups} does not divide channels=12; .*: {nearest}$"):
        check.divides("Here", "num_groups", groups, "channels", 12)


@pytest.mark.parametrize(
    "check_one",
    [
        lambda x: check.floating("Here", x),
        lambda x: check.features_last("Here", x, 3),
        lambda x: check.ends_in("Here", x, (3,)),
        lambda x: check.ends_in("Here", x, (3, 3)),
        lambda x: check.channels_first("Here", x, 3),
        lambda x: check.values("Here", "x", x, (3, 3), torch.ones(1)),
    ],
)
def test_a_check_of_numbers_refuses_what_holds_none(check_one):
    check_one(torch.ones(3, 3))
    for x, why in (
        ([[1.0] * 3] * 3, "a tensor, not list"),
        (torch.ones(3, 3, dtype=torch.int64), "a floating-point tensor, not torch.int64"),
        (torch.ones(3, 3).to_sparse(), "a dense tensor, not torch.sparse_coo"),
    ):
        with pytest.raises(TypeError, match=f"^Here: x must be {why}"):
            check_one(x)


@pytest.mark.parametrize("name", METHODS)
def test_a_module_refuses_an_input_in_its_own_name_or_that_of_a_part(name):
    module, inputs = build(name), draw(name)
    owners = tuple(f"{type(part).__name__}: " for part in module.modules())
    for place, x in enumerate(inputs):
        of_another_type = x.to(torch.int32 if x.is_floating_point() else torch.float64)
        for wrong in (x.tolist(), of_another_type, x[..., :-1] if x.dim() else x.repeat(3, 3)):
            refusal = refusal_of(module, *inputs[:place], wrong, *inputs[place + 1 :])
            assert refusal is None or refusal.startswith(owners)


def refusal_of(call, *inputs):
    try:
        call(*inputs)
    except (TypeError, ValueError) as error:
        return str(error)


def of_owners(nodes):
    """The functions of a file that are told first whose argument they check."""
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return {node.name for node in functions if node.args.args and node.args.args[0].arg == "owner"}


def imported(nodes, checks):
    """The names under which a file imports such functions, or the files that have them."""
    for node in nodes:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            name = alias.asname or alias.name
            yield from (f"{name}.{check}" for check in checks.get(f"{node.module}.{alias.name}", ()))
            if alias.name in checks.get(node.module, ()):
                yield name


def name_of(function):
    """What is called, where that is a name or an attribute of one."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def calls_of_checks():
    """Every call of a check in the package, as its words: where, the owner, and all that stands behind."""
    trees = {path: [*ast.walk(ast.parse(path.read_text()))] for path in sorted(SOURCE.rglob("*.py"))}
    modules = {".".join(("normkit", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in trees}
    checks = {module: of_owners(trees[path]) for module, path in modules.items()}
    for module, path in modules.items():
        names = {*checks[module], *imported(trees[path], checks)}
        for node in trees[path]:
            if isinstance(node, ast.Call) and len(node.args) > 1:
                called = name_of(node.func)
                if called.startswith("check.") or called in names:
                    owner, *others = map(ast.unparse, node.args)
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", owner, others


def test_an_error_begins_with_whose_argument_it_is_and_then_names_the_argument():
    calls = list(calls_of_checks())
    assert len(calls) > 2000
    for place, owner, others in calls:
        assert not OWNERS & set(others), f"{place}: who asks comes first"
        argument = rf"(\w+\.|\w+\[')?{owner[1:-1]}('\])?"
        asked = owner.startswith("'") and any(re.fullmatch(argument, other) for other in others)
        assert not asked, f"{place}: {owner} is an argument, and who asks comes first"
