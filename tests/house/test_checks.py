"""What is asked of arguments, by itself: what is at the edge of what is taken."""

import ast
import pathlib
import re

import pytest
import torch

import normkit as nk
from normkit import check
from normkit.contract.subject import FLOATING, METHODS, build, draw, outputs

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


WITH_NUMBERS = [name for name in FLOATING if any(i.dtype is torch.int64 for i in draw(name))]


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_labels_and_tokens_may_be_mapped_over_beside_what_they_belong_to(name):
    module = build(name, train=False)
    pairs = [draw(name, seed=seed) for seed in (0, 1)]
    torch.manual_seed(0)
    mapped = outputs(torch.func.vmap(module, randomness="same")(*map(torch.stack, zip(*pairs, strict=True))))
    for at, inputs in enumerate(pairs):
        torch.manual_seed(0)
        for whole, want in zip(mapped, outputs(module(*inputs)), strict=True):
            torch.testing.assert_close(whole[at], want)


def test_gradients_of_each_sample_of_tokens_are_those_of_a_loop():
    model = nk.Decoder(vocab=9, dim=8, depth=1, heads=2)
    parameters, tokens = {name: p.detach() for name, p in model.named_parameters()}, torch.randint(9, (3, 5))

    def loss(parameters, tokens):
        return torch.func.functional_call(model, parameters, (tokens[None],)).logsumexp(-1).mean()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, tokens)
    for at, row in enumerate(tokens):
        want = torch.autograd.grad(loss(dict(model.named_parameters()), row), list(model.parameters()))
        torch.testing.assert_close([gradient[at] for gradient in each.values()], list(want))


@pytest.mark.parametrize("numbers, message", [([0, 4], "from 0 to 4"), ([-1, 2], "from -1 to 2")])
def test_an_index_out_of_range_is_named_with_both_ends(numbers, message):
    with pytest.raises(ValueError, match=rf"^Here: tokens must lie in 0 .. 3, but goes {message}$"):
        check.index("Here", "tokens", torch.tensor(numbers), (2,), 4, torch.ones(1))


def test_an_error_begins_with_whose_argument_it_is_and_then_names_the_argument():
    calls = list(calls_of_checks())
    assert len(calls) > 2000
    for place, owner, others in calls:
        assert not OWNERS & set(others), f"{place}: who asks comes first"
        argument = rf"(\w+\.|\w+\[')?{owner[1:-1]}('\])?"
        asked = owner.startswith("'") and any(re.fullmatch(argument, other) for other in others)
        assert not asked, f"{place}: {owner} is an argument, and who asks comes first"


def test_what_is_true_or_false_takes_no_word_for_it():
    """As in ``layernorm:affine=no``, which would be a yes."""
    tried = 0
    for card in map(nk.card, nk.methods()):
        for name, parameter in card.signature.parameters.items():
            if parameter.annotation in ("bool", bool):
                with pytest.raises(ValueError, match=f": {name} must be True or False, not 'no'$"):
                    card.small(**{name: "no"})
                tried += 1
    assert tried > 300
