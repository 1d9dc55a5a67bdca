"""What every attention core refuses, by name, and what it gives where there is nothing to see."""

import pytest
import torch

import normkit as nk
from normkit.kinds import CORE

CORES = [name for name in nk.methods(room="attention") if nk.card(name).kind is CORE]
MASKED = [name for name in CORES if "mask" in nk.card(name).inputs]
LENGTH = 16  # of softmax-free's grid


def build(name, **overrides):
    return nk.card(name).small(8, dtype=torch.float64, **overrides)


def draw(name, length=LENGTH, batch=2):
    """The inputs that must be given, by name; tokens are the axis before the last."""
    card = nk.card(name)
    layouts = {"q": card.shape, **{key: layout for key, layout in card.inputs.items() if not layout.optional}}
    sized = {"N": batch, "C": 8, "heads": card.example["heads"]}
    given = {}
    for place, (key, layout) in enumerate(layouts.items()):
        generator = torch.Generator().manual_seed(place)
        given[key] = layout.sized(-2, length).draw(sized, generator, dtype=torch.float64)
    return given


def refused(core, inputs, word, error=(ValueError, TypeError), **more):
    with pytest.raises(error, match=rf"^{type(core).__name__}: {word}\b"):
        core(**inputs, **more)


@pytest.mark.parametrize("name", [name for name in CORES if len(nk.card(name).entry.forms) == 1])
def test_a_form_that_is_not_there_is_refused_with_the_cores_that_have_it(name):
    missing = not nk.card(name).entry.forms[0]
    others = [other for other in CORES if missing in nk.card(other).entry.forms]
    with pytest.raises(ValueError, match=rf"causal must be {not missing}; .*: {', '.join(others)}"):
        build(name, causal=missing)


OF_ANY_WIDTH = {"v", "gate"}  # values have a width of their own; one gate may stand for a whole head


@pytest.mark.parametrize("name", CORES)
def test_each_input_of_a_wrong_shape_is_named(name):
    core, right = build(name), draw(name)
    for key in right:
        if key not in OF_ANY_WIDTH:
            refused(core, {**right, key: right[key][..., :1]}, key, ValueError)
        if key != "v":
            refused(core, {**right, key: right[key][:1]}, "k" if key == "q" else key, ValueError)
        refused(core, {**right, key: right[key][0]}, key, ValueError)
        refused(core, {**right, key: right[key].long()}, key, TypeError)
        refused(core, {**right, key: right[key].tolist()}, key, TypeError)
    refused(core, {**right, "k": right["k"][:, :1]}, "k", ValueError)
    refused(core, {**right, "v": right["v"][:1]}, "v", ValueError)
    refused(core, {**right, "v": right["v"][:, :, :5]}, "v", ValueError)


def outcome(core, inputs, **more):
    try:
        return f"{core(**inputs, **more).shape[-1]} features"
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("name", CORES)
def test_values_of_another_width_are_refused_or_give_that_width(name):
    core, inputs = build(name), draw(name)
    found = outcome(core, {**inputs, "v": inputs["v"][..., :3]})
    assert found == "3 features" or found.startswith(f"{type(core).__name__}: v must have shape")


@pytest.mark.parametrize("name", CORES)
def test_a_mask_of_a_wrong_shape_type_or_device_is_named(name):
    core, inputs = build(name), draw(name)
    if name not in MASKED:
        refused(core, inputs, "mask must be None", ValueError, mask=torch.ones(LENGTH, dtype=torch.bool))
        return
    seen = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool)
    refused(core, inputs, "mask must be a boolean tensor", TypeError, mask=seen.double())
    refused(core, inputs, "mask must be a boolean tensor", TypeError, mask=True)
    refused(core, inputs, "mask must broadcast to", ValueError, mask=seen[..., :-1])
    refused(core, inputs, "mask must broadcast to", ValueError, mask=seen.expand(2, 3, 1, LENGTH))
    refused(core, inputs, "mask must broadcast to", ValueError, mask=seen[None])
    refused(core, inputs, "mask is on meta, but q is on cpu", ValueError, mask=seen.to("meta"))


@pytest.mark.parametrize("name", MASKED)
def test_fewer_keys_than_queries_are_taken_or_refused_whatever_the_mask(name):
    core, inputs = build(name), draw(name)
    fewer = {**inputs, "k": inputs["k"][:, :, :5], "v": inputs["v"][:, :, :5]}
    plain, name = outcome(core, fewer), type(core).__name__
    for mask in (torch.ones(5, dtype=torch.bool), torch.ones(LENGTH, 5, dtype=torch.bool)):
        wanted = f"{name}: k must have shape" if plain.startswith(name) else plain
        assert outcome(core, fewer, mask=mask).startswith((wanted, f"{name}: mask must"))


@pytest.mark.parametrize("name", MASKED)
def test_where_no_key_is_seen_the_result_is_zero_and_no_gradient_is_nan(name):
    core, inputs = build(name), {key: x.requires_grad_() for key, x in draw(name).items()}
    seen = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool)
    seen[1] = False
    y = core(**inputs, mask=seen)
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y[1], torch.zeros_like(y[1]))
    y.square().sum().backward()
    for x in inputs.values():
        assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in core.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", MASKED)
def test_a_hidden_key_touches_nothing_whatever_is_in_it(name):
    core, inputs = build(name), draw(name)
    seen = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool)
    seen[0, ..., 3] = seen[1, ..., 11:] = False
    y = core(**inputs, mask=seen)
    other = {
        key: torch.where(seen.mT if x.dim() == 4 else seen.mT[:, 0], x, 1e6) for key, x in inputs.items() if key != "q"
    }
    again = core(q=inputs["q"], **other, mask=seen)
    kept = seen.mT.expand(2, y.shape[1], LENGTH, 1)[..., 0]
    torch.testing.assert_close(again[kept], y[kept])


@pytest.mark.parametrize("name", CORES)
def test_no_tokens_give_no_tokens(name):
    if name == "softmax-free":
        refused(build(name), draw(name, 0), "q must have shape", ValueError)
        return
    core, inputs = build(name), {key: x.requires_grad_() for key, x in draw(name, 0).items()}
    y = core(**inputs)
    assert y.shape[2] == 0
    y.sum().backward()
