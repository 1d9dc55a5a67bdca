"""What the contract tests share: a method built small, with parameters that are not at rest, and inputs for it."""

import contextlib
import copy
import functools
from unittest import mock

import torch

import normkit as nk
from normkit.contract import asked
from normkit.kinds.kind import layouts
from normkit.kinds.module import ModuleKind


def methods(fits):
    """The methods whose kind ``fits``: of those that were asked for, or of all."""
    return [name for name in asked.names(asked.METHOD) if fits(nk.card(name).kind)]


METHODS = methods(lambda kind: isinstance(kind, ModuleKind))
SMALL = {"trailing": (3, 2)}


def floating(name):
    """Whether some input of a method is of real numbers; a look-up by number has none."""
    return any(layout.floating for layout in layouts(nk.card(name)))


FLOATING = [name for name in METHODS if floating(name)]


def build(name, features=8, dtype=torch.float64, train=True, **overrides):
    """Build a method whose parameters were moved off their initial values, so that no gradient is zero by chance."""
    torch.manual_seed(0)
    module = nk.card(name).small(features, **overrides).to(dtype).train(train)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.rand(parameter.shape, dtype=torch.float64).to(dtype))
    return module


def draw(name, features=8, batch=4, dtype=torch.float64, optional=True, seed=0, **shape):
    options = {**SMALL, "optional": optional, "dtype": dtype, "seed": seed, **shape}
    return nk.card(name).draw(features, batch, **options)


def outputs(returned):
    return [o for o in (returned if isinstance(returned, tuple | list) else (returned,)) if torch.is_tensor(o)]


def first_floating(inputs):
    """Where the first floating-point input is: not always at 0, a graph's edges may come first."""
    return next(i for i, value in enumerate(inputs) if value.is_floating_point())


def gradient_source(seed):
    """Random numbers for gradients; not the inputs' own: a norm's gradient for its input itself is nearly zero."""
    return torch.Generator().manual_seed(1000 + seed)


def run(module, inputs, seed=0):
    """Forward and backward with a fixed random gradient; return outputs, input gradients and parameter gradients."""
    inputs = [i.detach().clone(memory_format=torch.preserve_format) for i in inputs]
    inputs = [i.requires_grad_(i.is_floating_point()) for i in inputs]
    module.zero_grad(set_to_none=True)
    given = outputs(module(*inputs))
    differentiable = [o for o in given if o.requires_grad]
    generator = gradient_source(seed)
    sent = [torch.randn(o.shape, generator=generator, dtype=torch.float64).to(o) for o in differentiable]
    if differentiable:
        torch.autograd.backward(differentiable, sent)
    return (
        [o.detach() for o in given],
        [i.grad for i in inputs if i.is_floating_point()],
        {n: p.grad for n, p in module.named_parameters()},
    )


def counting(backend):
    """Make a backend of torch.compile that counts its graphs; who only collects tests does not load the compiler."""
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend(backend)


@functools.cache
def _operators():
    """How torch asks for the operators of libraries in C++, where it does; what they are is asked once."""
    ask = getattr(torch._export.utils, "_materialize_cpp_cia_ops", None)
    return {} if ask is None else {"_materialize_cpp_cia_ops": functools.cache(ask)}


def export(module, inputs, sizes=None):
    """Export a module, for ``sizes`` that vary, as torch does, which would ask for all operators anew each time."""
    same = _operators()
    with mock.patch.multiple(torch._export.utils, **same) if same else contextlib.nullcontext():
        return torch.export.export(module, tuple(inputs), dynamic_shapes=sizes)


def state(module):
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def fresh(module):
    return copy.deepcopy(module)


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, equal_nan=True, **tolerance)
