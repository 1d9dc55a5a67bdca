"""Contract, state: saving, copying, meta device, running averages, checkpointing, gradients."""

import functools
import io
import pickle

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import METHODS, build, draw, outputs
from normkit.contract.values import over
from normkit.kinds.kind import example
from normkit.kinds.start import own_parts


def exempted(name, line, known):
    """The parameters or buffers that the card exempts from a line, all of which must be known."""
    named = {key.split()[1] for key in nk.card(name).exempt if key.startswith(f"{line} ")}
    assert named <= set(known)
    return named | {n for n in known if nk.card(name).exemption(line, n)}


NO_GRADIENT = 1e-12  # what a gradient that cancels exactly is rounded to, where the others' are about 1


@pytest.mark.parametrize("name", METHODS)
def test_state_dict_round_trip(name):
    module, inputs = build(name), draw(name)
    subject.run(module, inputs)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = nk.card(name).small().double()
    other.load_state_dict(torch.load(file), strict=True)
    module.eval(), other.eval()
    subject.close(outputs(other(*inputs)), outputs(module(*inputs)), rtol=0, atol=0)


@pytest.mark.line("pickle")
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
@pytest.mark.parametrize("name", METHODS)
def test_copies_are_equal_and_apart(name, how):
    module, inputs = build(name), draw(name)
    subject.run(module, inputs)
    module.zero_grad(set_to_none=True)
    other = subject.fresh(module) if how == "deepcopy" else pickle.loads(pickle.dumps(module))
    subject.close(outputs(other.eval()(*inputs)), outputs(module.eval()(*inputs)), rtol=0, atol=0)
    own = {p.data_ptr() for p in module.parameters()}
    assert own.isdisjoint(p.data_ptr() for p in other.parameters())


@pytest.mark.line("meta")
@pytest.mark.parametrize("name", METHODS)
def test_meta_device_then_to_empty(name):
    module = build(name, train=False)
    ghost = nk.card(name).small(device="meta", dtype=torch.float64)
    assert all(t.is_meta for t in [*ghost.parameters(), *ghost.buffers()])
    ghost.to_empty(device="cpu")
    ghost.load_state_dict(module.state_dict())
    inputs = draw(name)
    subject.close(outputs(ghost.eval()(*inputs)), outputs(module(*inputs)), rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_reset_parameters_starts_each_part_anew(name):
    """No value is left as it was: those by chance are spread as a new module's, the others are the same."""
    made, *new = (nk.card(name).small().double() for _ in range(3))
    for value in tensors(made).values():
        value.fill_(77)
    for part in made.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    assert not [n for n, value in tensors(made).items() if (value == 77).any()]
    for path, _ in own_parts(made):
        again, first, second = (tensors(module.get_submodule(path), recurse=False) for module in (made, *new))
        constant = [n for n in first if torch.equal(first[n], second[n])]
        subject.close([again[n] for n in constant], [first[n] for n in constant], rtol=0, atol=0)
        for n in first.keys() - {*constant}:
            if first[n].numel() >= 16 and not first[n].is_complex():
                assert 0.4 < again[n].std() / first[n].std() < 2.5, n


def tensors(module, recurse=True):
    held = [*module.named_parameters(recurse=recurse), *module.named_buffers(recurse=recurse)]
    return {name: value.detach() for name, value in held}


@pytest.mark.line("meta")
@pytest.mark.parametrize("name", METHODS)
def test_shapes_alone_pass(name):
    """All tensors are made where the input lies: the meta device refuses those of the processor, as a GPU does."""
    for train in (True, False):
        module, inputs = build(name, dtype=torch.float32, train=train), draw(name, dtype=torch.float32)
        expected = [(o.shape, o.dtype) for o in outputs(module(*inputs))]
        given = [i.to("meta").requires_grad_(i.is_floating_point()) for i in inputs]
        got = outputs(module.to("meta")(*given))
        assert [(o.shape, o.dtype) for o in got] == expected
        assert all(o.is_meta for o in got)
        learned = sum(o.sum() for o in got if o.requires_grad)
        if torch.is_tensor(learned):
            learned.backward()


@pytest.mark.parametrize("name", METHODS)
def test_buffers_move_in_training(name):
    module = build(name)
    before = subject.state(module)
    subject.run(module, draw(name))
    after = subject.state(module)
    assert {n for n in before if torch.equal(before[n], after[n])} == exempted(name, "moves", before)


@pytest.mark.line("rest")
@pytest.mark.parametrize("name", METHODS)
def test_buffers_rest_in_evaluation(name):
    module = build(name)
    subject.run(module, draw(name))
    before = subject.state(module.eval())
    subject.run(module, draw(name, seed=1))
    subject.close(subject.state(module), before, rtol=0, atol=0)


@pytest.mark.line("checkpoint")
@pytest.mark.parametrize("name", METHODS)
@over(kind=["saved", "reentrant"])
def test_checkpointing_changes_nothing(name, kind):
    plain = build(name)
    checked = subject.fresh(plain)
    for seed in (0, 1):
        inputs = draw(name, seed=seed)
        want = subject.run(plain, inputs)
        wrapped = Checkpointed(checked, kind == "reentrant")
        got = subject.run(wrapped, inputs)
        # the re-entrant kind runs first without gradients, where another path may round otherwise
        subject.close(got[0], want[0])
        subject.close(got[1], want[1])
        subject.close({n.removeprefix("module."): g for n, g in got[2].items()}, want[2])
        subject.close(subject.state(checked), subject.state(plain), rtol=0, atol=0)


class Checkpointed(torch.nn.Module):
    def __init__(self, module, reentrant):
        super().__init__()
        self.module, self.reentrant = module, reentrant

    def forward(self, *inputs):
        return checkpoint(self.module, *inputs, use_reentrant=self.reentrant)


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_receives_a_gradient(name):
    module = build(name)
    _, _, gradients = subject.run(module, draw(name))
    trained = {n for n, p in module.named_parameters() if p.requires_grad}
    none = {n for n in trained if gradients[n] is None or gradients[n].abs().max() < NO_GRADIENT}
    assert none == exempted(name, "gradients", trained)
    assert all(torch.isfinite(gradients[n]).all() for n in trained - none)


@pytest.mark.parametrize("name", METHODS)
def test_repr_can_be_read_back(name):
    card = nk.card(name)
    module = card.small()
    arguments = module.arguments
    plain = all(isinstance(v, int | float | str | bool | tuple | list | dict | type(None)) for v in arguments.values())
    assert plain, f"arguments hold more than plain values: {arguments}"
    modules = {k: v for k, v in example(card, 8).items() if isinstance(v, torch.nn.Module)}
    made = type(module)  # of a placement that comes as a whole layer, the layer
    known = {made.__name__: functools.partial(made, **modules)}
    again = eval(repr(module) if "\n" not in repr(module) else head(repr(module)), known)
    assert again.arguments == arguments


def head(text):
    """The arguments in the repr of a module that holds other modules: the line after the class name."""
    name, rest = text.split("(", 1)
    return f"{name}({rest.strip().splitlines()[0]})"
