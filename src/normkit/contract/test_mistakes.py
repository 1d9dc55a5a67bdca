"""Contract, mistakes: each is named, and a failed call leaves the state as it was."""

import functools
import re

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import METHODS, build, draw
from normkit.contract.values import over
from normkit.kinds.kind import example


def arguments(name):
    return nk.card(name).signature.parameters


def fails(module, inputs, kinds=(ValueError, TypeError)):
    before = kept(module)
    with pytest.raises(kinds) as caught:
        module(*inputs)
    after = kept(module)
    subject.close(after[0], before[0], rtol=0, atol=0)
    assert after[1] == before[1]
    assert not re.match(r"\w+: \w+\(", str(caught.value)), "an error begins with whom it is of, not with the argument"
    return str(caught.value)


def refuses(make, said, kinds=(ValueError, TypeError)):
    with pytest.raises(kinds, match=said) as caught:
        make()
    assert not re.match(r"\w+: \w+\(", str(caught.value)), "an error begins with whom it is of, not with the argument"


def kept(module):
    """All that a call might move: parameters, buffers, and plain attributes of every part."""
    tensors = {name: value.clone() for name, value in [*module.named_parameters(), *module.named_buffers()]}
    plain = (int, float, str, tuple, list, dict, type(None))
    return tensors, {
        (name, key): repr(value)
        for name, part in module.named_modules()
        for key, value in vars(part).items()
        if isinstance(value, plain) and key not in ("_parameters", "_buffers", "_modules")
    }


@pytest.mark.parametrize("name", METHODS)
def test_a_wrong_width_is_named(name):
    if not nk.card(name).shape.has("C"):
        pytest.skip("takes any width")
    if nk.card(name).width is None:
        pytest.skip("takes any width")
    module = build(name, 8)
    message = fails(module, draw(name, 9), ValueError)
    assert re.search(rf"\b({'|'.join(called(name))})\b", message)
    assert re.search(r"\d", message)


@pytest.mark.parametrize("name", METHODS)
def test_integers_and_non_tensors_are_named(name):
    module = build(name)
    first, *rest = draw(name)
    wrong = first.long() if first.is_floating_point() else first.double()
    assert str(wrong.dtype).removeprefix("torch.") in fails(module, [wrong, *rest], TypeError)
    assert "list" in fails(module, [first.tolist(), *rest], TypeError)


@pytest.mark.parametrize("name", METHODS)
def test_complex_numbers_are_named(name):
    for position, key in enumerate(called(name)):
        given = draw(name)
        given[position] = given[position].to(torch.complex64)
        message = fails(build(name), given, TypeError)
        assert re.search(rf"\b{key}\b.*complex64", message), f"the message does not name {key}: {message}"


@pytest.mark.parametrize("name", METHODS)
def test_a_single_number_is_no_input(name):
    if nk.card(name).width is None and "..." in nk.card(name).shape.axes:
        pytest.skip("takes any shape")
    first, *rest = draw(name)
    message = fails(build(name), [first.flatten()[0], *rest], ValueError)
    assert re.search(r"\b(shape|axes|entr|vector|must)", message)


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_keyword_gets_the_nearest(name):
    args, kwargs = nk.card(name).arguments(epz=1)
    with pytest.raises(TypeError, match="epz"):
        nk.create(name, *args, **kwargs)


STABILIZERS = [
    (name, key)
    for name in METHODS
    for key, argument in arguments(name).items()
    if key.split("_")[-1] == "eps" and isinstance(argument.default, float)
]


@pytest.mark.parametrize("name, key", STABILIZERS)
@over(value=[-1.0, float("nan"), float("inf")])
def test_a_bad_eps_is_refused(name, key, value):
    refuses(lambda: nk.card(name).small(**{key: value}), rf"\b{key}\b", ValueError)


TOLERANCES = [(name, key) for name in METHODS for key in arguments(name) if key == "epsilon"]


@pytest.mark.parametrize("name, key", TOLERANCES)
@over(value=["nan", "inf", "-inf"])
def test_a_tolerance_that_is_not_finite_is_refused(name, key, value):
    refuses(lambda: nk.card(name).small(**{key: float(value)}), rf"\b{key}\b", ValueError)


@pytest.mark.parametrize("name, key", STABILIZERS)
@over(value=[True, "1e-5", None])
def test_an_eps_that_is_no_number_is_refused(name, key, value):
    if value is None and "None" in str(arguments(name)[key].annotation):
        pytest.skip("None is one of its values")
    refuses(lambda: nk.card(name).small(**{key: value}), rf"\b{key}\b", TypeError)


@pytest.mark.parametrize("name, key", STABILIZERS)
def test_eps_of_zero_is_honoured(name, key):
    module = nk.card(name).small(**{key: 0.0}).double()
    assert module.arguments[key] == 0.0
    for output in subject.outputs(module(*draw(name))):
        assert not torch.isnan(output).any()


@pytest.mark.parametrize("name", METHODS)
@over(value=[0, -3, 2.5, "8", None])
def test_a_bad_feature_count_is_refused(name, value):
    card = nk.card(name)
    width = card.width
    if width is None:
        pytest.skip("takes no feature count")
    args, named = ((), {width.name: value}) if width.kind is width.KEYWORD_ONLY else ((value,), {})
    refuses(lambda: nk.create(name, *args, **named, **example(card, 8)), width.name)


@pytest.mark.parametrize("name", METHODS)
def test_further_inputs_of_the_wrong_shape_are_named(name):
    card = nk.card(name)
    module = build(name)
    given = draw(name)
    for position, key in enumerate(card.inputs, start=1):
        wrong = list(given)
        wrong[position] = torch.cat([torch.atleast_1d(given[position])] * 2, dim=0)[..., None]
        message = fails(module, wrong, (ValueError, TypeError))
        assert key in message, f"the message does not name {key}: {message}"


def called(name):
    """The names that the method's forward gives its inputs."""
    card = nk.card(name)
    return card.kind.takes(card)[: 1 + len(card.inputs)]


def takes_its_device_from_its_input(name):
    return not nk.card(name).inputs and not [*build(name).parameters(), *build(name).buffers()]


@pytest.mark.parametrize("name", METHODS)
def test_an_input_on_another_device_is_named(name):
    if takes_its_device_from_its_input(name):
        pytest.skip("has no tensors of its own, and one input")
    for position, key in enumerate(called(name)):
        given = draw(name)
        given[position] = given[position].to("meta")
        message = fails(build(name), given, ValueError)
        assert "meta" in message
        assert position == 0 or re.search(rf"\b{key}\b", message)


@pytest.mark.parametrize("name", METHODS)
def test_a_sparse_input_is_named(name):
    for position, key in enumerate(called(name)):
        given = draw(name)
        given[position] = given[position].to_sparse()
        message = fails(build(name), given, TypeError)
        assert re.search(rf"\b{key}\b.*torch.sparse_coo", message)


@pytest.mark.parametrize("name", METHODS)
def test_further_inputs_of_another_type_are_taken_or_named(name):
    """A result has the type of the first input, or of the one whose shape it has."""
    module, inputs = build(name), draw(name)
    for position, key in enumerate(called(name)[1:], start=1):
        given = list(inputs)
        given[position] = given[position].float() if given[position].is_floating_point() else given[position].double()
        try:
            got = subject.outputs(subject.fresh(module)(*given))
        except TypeError:
            assert re.search(rf"\b{key}\b.*{given[position].dtype}", fails(module, given, TypeError))
        else:
            assert all(o.dtype in {torch.float64, *(i.dtype for i in given if i.shape == o.shape)} for o in got)


@pytest.mark.parametrize("name", METHODS)
def test_a_mask_of_numbers_means_the_same_or_is_named(name):
    """Other libraries add masks to scores; a mask of the wrong shape is among the further inputs above."""
    module, inputs = build(name), draw(name)
    for position, (key, layout) in enumerate(nk.card(name).inputs.items(), start=1):
        if layout.kind != "bool":
            continue
        given = list(inputs)
        given[position] = given[position].double()
        try:
            got = subject.outputs(subject.fresh(module)(*given))
        except TypeError:
            assert re.search(rf"\b{key}\b.*float64", fails(module, given, TypeError))
        else:
            subject.close(got, subject.outputs(subject.fresh(module)(*inputs)), rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
@over(value=[2**62, 2**63, 10**30])
def test_absurd_sizes_are_named(name, value):
    """Above what any memory holds; where the argument may be any number, the method runs."""
    card = nk.card(name)
    small, width = example(card, 8), card.width
    for argument, parameter in arguments(name).items():
        given = small.get(argument, parameter.default)
        if parameter is not width and (isinstance(given, bool) or not isinstance(given, int)):
            continue
        try:
            module = card.small(**{argument: value}).double()
        except ValueError:
            with pytest.raises(ValueError, match=rf"\b{argument}\b"):
                card.small(**{argument: value})
        else:
            module(*draw(name))


@pytest.mark.parametrize("name", METHODS)
def test_a_truth_value_is_no_number(name):
    card = nk.card(name)
    small = example(card, 8)
    for argument, parameter in arguments(name).items():
        given = small.get(argument, parameter.default)
        if parameter is card.width or (isinstance(given, int | float) and not isinstance(given, bool)):
            refuses(functools.partial(card.small, **{argument: True}), rf"\b{argument}\b")


@pytest.mark.parametrize("name", METHODS)
def test_a_number_of_zero_is_refused_or_gives_numbers(name):
    card = nk.card(name)
    small = example(card, 8)
    for argument, parameter in arguments(name).items():
        if isinstance(small.get(argument, parameter.default), float):
            try:
                module = card.small(**{argument: 0.0}).double()
            except ValueError:
                with pytest.raises(ValueError, match=rf"\b{argument}\b"):
                    card.small(**{argument: 0.0})
            else:
                assert all(output.isfinite().all() for output in subject.outputs(module(*draw(name)))), argument


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_number_and_another_word_for_a_word_are_named(name):
    card = nk.card(name)
    small = example(card, 8)
    for argument, parameter in arguments(name).items():
        usual = small.get(argument, parameter.default)
        if isinstance(usual, float | str):
            with pytest.raises(ValueError, match=rf"^(?!{argument}:).*\b{argument}\b|no method 'nonesuch'"):
                card.small(**{argument: "nonesuch" if isinstance(usual, str) else float("nan")})
        if isinstance(usual, float | int) and not isinstance(usual, bool):
            for wrong in ("nonesuch", float("nan")):
                with pytest.raises((TypeError, ValueError), match=rf"^(?!{argument}:).*\b{argument}\b"):
                    card.small(**{argument: wrong})


@pytest.mark.parametrize("name", METHODS)
@over(device=["cdua", "xpu"])
def test_a_device_that_does_not_exist_is_named(name, device):
    args, kwargs = nk.card(name).arguments()
    with pytest.raises(ValueError, match=f"device='{device}' cannot be used"):
        nk.create(name, *args, **kwargs, device=device)


@pytest.mark.parametrize("steps", [2**63, 1001])
def test_a_loop_that_would_never_end_is_refused(steps):
    with pytest.raises(ValueError, match="max_iter"):
        nk.create("softmax-free", 8, heads=2, size=(4, 4), ratio=2, max_iter=steps)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'rmsnorm'"):
        nk.create("rmsnrm", 8)
    with pytest.raises(AttributeError, match="RMSNrm"):
        nk.RMSNrm  # noqa: B018


def test_a_wrong_dtype_argument_is_named():
    with pytest.raises(TypeError, match="dtype"):
        nk.create("rmsnorm", 8, dtype=torch.int32)
