"""A copy of a user's module that may be probed: other parameters, another type, and nothing of it comes back."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import itertools
import math
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy
import torch
from torch import Tensor, distributed, nn

from normkit.ops.sharded import is_sharded
from normkit.parameters import AROUND_ITS_FORWARD, copy_model, is_scripted
from normkit.surgery.recognition.effects import attributes
from normkit.threads import Turns

Refusals = tuple[tuple[Callable[[Any], Any], str], ...]
OF_A_PART: Refusals = (
    (lambda part: is_scripted(part), "is scripted: hand in the model as it was before torch.jit"),
    (lambda part: is_lazy(part), "is lazy: call the model once, so that it has its sizes"),
    *AROUND_ITS_FORWARD,
)
OF_A_TENSOR: Refusals = (
    (lambda t: t._backward_hooks, "has hooks, which may change its gradient"),
    (lambda t: getattr(t, "_post_accumulate_grad_hooks", None), "has hooks, which may change its gradient"),
    (is_sharded, "is a {}: hand in the model as it was before it was sharded"),
    (lambda t: type(t) not in (Tensor, nn.Parameter, nn.Buffer), "is a {}, not a plain tensor"),
    (lambda t: t.is_quantized, "is a quantized tensor"),
    (lambda t: t.layout is not torch.strided, "is a sparse tensor"),
    (lambda t: t.is_complex(), "holds complex numbers"),
)
WIDEST = 2**17  # numbers of a vector that may be a norm's
SPREAD = 1e12  # how much larger parameters are drawn to find what is cut off

_one_thread = Turns()  # what quiet() exchanges and puts back is the process's


def locate(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Return the module that holds a tensor or a part by a dotted name, and what it is called there."""
    path, _, last = name.rpartition(".")
    return model.get_submodule(path), last


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Let nothing of what a module does besides computing be seen: its random numbers, its prints, its warnings.

    One thread at a time is within it.
    """
    silence = io.StringIO()
    with _one_thread, torch.random.fork_rng(), warnings.catch_warnings(), torch.enable_grad():
        python, numbers, usual = random.getstate(), numpy.random.get_state(), torch.get_default_dtype()
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            try:
                yield
            finally:
                torch.set_default_dtype(usual)
                random.setstate(python)
                numpy.random.set_state(numbers)


@contextlib.contextmanager
def ungrouped() -> Iterator[None]:
    """Within it a module that asks torch.distributed is alone: no other process may take part in probing.

    It is of this thread, and entered within :func:`quiet`. Who sends without asking waits for the others.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        yield
        return
    here = threading.get_ident()

    def answer(asked: Callable[..., Any], alone: int) -> Callable[..., Any]:
        return lambda *of, **named: alone if threading.get_ident() == here else asked(*of, **named)

    answers = {"is_initialized": False, "get_world_size": 1, "get_rank": 0}
    own: dict[str, Any] = {name: answer(getattr(distributed, name), alone) for name, alone in answers.items()}
    with mock.patch.multiple(distributed, **own):
        yield


def kind(module: nn.Module) -> str:
    """The name of its class, of a scripted one that of the class it was."""
    return module.original_name if is_scripted(module) else type(module).__name__  # type: ignore[return-value]


def is_lazy(module: nn.Module) -> bool:
    """Whether a module waits for its first input to have its sizes."""
    return any(
        t is not None and nn.parameter.is_lazy(t) for t in (*module._parameters.values(), *module._buffers.values())
    )


def refusal(module: nn.Module) -> str | None:
    """Return what forbids that a module is probed, or None."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    parts = [(f"its {name}" if name else "it", part) for name, part in module.named_modules()]
    for things, refusals in ((parts, OF_A_PART), (tensors, OF_A_TENSOR)):
        for name, thing in things:
            for forbids, reason in refusals:
                if forbids(thing):
                    return f"{name} {reason.format(type(thing).__name__)}"
    return None


def on_processor(module: nn.Module) -> nn.Module:
    """The module, or a copy of it on the processor where some of it lies elsewhere: that is where inputs are drawn."""
    if has_no_numbers(module):
        return with_numbers(module)
    held = [*module.parameters(), *module.buffers()]
    return module if all(tensor.is_cpu for tensor in held) else copy.deepcopy(module).to("cpu")


def has_no_numbers(module: nn.Module) -> bool:
    """Whether some of a module lies on the meta device."""
    return any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))


def with_numbers(module: nn.Module) -> nn.Module:
    """A copy of a module of the meta device that holds numbers: those that it begins with, if it can set them, or ones.

    Probing draws its parameters anew; a buffer is what the module's own beginning makes it.
    """
    filled = copy.deepcopy(module).to_empty(device="cpu")
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for parameter in filled.parameters():
            parameter.fill_(1)
        for buffer in filled.buffers():
            buffer.fill_(math.nan if buffer.is_floating_point() else 0)
        for part in filled.modules():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
    if any(buffer.isnan().any() for buffer in filled.buffers()):
        raise ValueError("its buffers are on the meta device, and it has no reset_parameters that fills them")
    return filled


class Specimen:
    """A copy of a module in ``dtype``, its numbers drawn anew: parameters of both signs, buffers positive.

    ``spread`` makes the parameters larger; with ``drawn=False`` the numbers stay what they are.
    """

    def __init__(
        self, module: nn.Module, dtype: torch.dtype, *, drawn: bool = True, spread: float = 1.0, seed: int = 0
    ):
        self._hold(copy.deepcopy(module).to(dtype))
        if drawn:
            self._draw(torch.Generator().manual_seed(seed), spread)

    @classmethod
    def of(cls, module: nn.Module) -> Specimen:
        """A module that was just built for it, itself."""
        specimen = cls.__new__(cls)
        specimen._hold(module)
        return specimen

    def _hold(self, module: nn.Module) -> None:
        self.module, self._tensors = module, tensors(module)
        self._keeps, self._called = next(module.buffers(), None) is not None, False
        for parameter in module.parameters():
            parameter.requires_grad_(True)

    @torch.no_grad()
    def _draw(self, generator: torch.Generator, spread: float) -> None:
        for tensor in self.tensors.values():
            if isinstance(tensor, nn.Parameter):
                most = 0.9 * torch.finfo(tensor.dtype).max
                numbers = ((torch.randn(tensor.shape, generator=generator) + 0.5).double() * spread).clamp(-most, most)
            else:
                numbers = 0.5 + torch.rand(tensor.shape, generator=generator)
            tensor.copy_(numbers)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return what the module makes of the inputs, which must be one tensor: who calls a norm unpacks nothing."""
        self._called = self._keeps
        output = self.module(*inputs)
        if not torch.is_tensor(output):
            raise TypeError(f"it returns a {type(output).__name__}")
        return output

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name; a call may have put new ones in the place of buffers."""
        if self._called:
            self._tensors, self._called = tensors(self.module), False
        return self._tensors

    def keep(self) -> Specimen:
        """Keep a copy of the buffers as they are now, for :meth:`restore`."""
        self.start = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        return self

    def restore(self) -> None:
        """Put the buffers back to where they were."""
        for name, buffer in self.module.named_buffers():
            buffer.data.copy_(self.start[name])

    def train(self, mode: bool) -> Specimen:
        """Set the mode."""
        self.module.train(mode)
        return self


def first(returned: Any) -> Tensor:
    """Return the tensor that a module returned, or the first of several."""
    output = returned
    if isinstance(returned, tuple | list) and returned:
        output = returned[0]
    if not torch.is_tensor(output):
        raise TypeError(f"it returns a {type(returned).__name__}")
    return output


def tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's parameters and buffers of real numbers, a tied one once; none that is still to be made."""
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    initialized = {name: tensor for name, tensor in state.items() if not nn.parameter.is_lazy(tensor)}
    return {name: tensor for name, tensor in initialized.items() if tensor.is_floating_point()}


def long_axes(tensor: Tensor) -> int:
    """How many of a tensor's axes have more than one number.

    >>> long_axes(torch.ones(5)), long_axes(torch.ones(1, 5, 1)), long_axes(torch.ones(2, 3))
    (1, 1, 2)
    """
    return sum(n > 1 for n in tensor.shape)


def has_more_parts(module: nn.Module, most: int) -> bool:
    """Whether a module has more modules, itself among them, than so many."""
    return sum(1 for _ in itertools.islice(module.modules(), most + 1)) > most


@torch.no_grad()
def carry(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], carried: Mapping[str, str]) -> None:
    """Give one module's tensors the numbers of another's, by the names of both."""
    for name, source in carried.items():
        ours[name].copy_(theirs[source].reshape(ours[name].shape))


@torch.no_grad()
def carry_counts(ours: nn.Module, theirs: nn.Module) -> None:
    """Give one module the integers that both keep, such as the number of batches that it has seen."""
    kept = {name.rpartition(".")[2]: buffer for name, buffer in theirs.named_buffers()}
    for name, buffer in ours.named_buffers():
        source = kept.get(name.rpartition(".")[2])
        if not buffer.is_floating_point() and source is not None and source.dtype == buffer.dtype:
            buffer.copy_(source)


def inputs_of(model: nn.Module, example: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of the first input of each module, as a copy of the model passes the example on."""
    shapes: dict[str, tuple[int, ...]] = {}
    twin = copy_model(model).eval()
    for name, part in twin.named_modules(remove_duplicate=False):

        def note(part: nn.Module, inputs: Any, name: str = name) -> None:
            if inputs and torch.is_tensor(inputs[0]) and not _is_ragged(inputs[0]):
                shapes.setdefault(name, tuple(inputs[0].shape))

        if not is_scripted(part):
            part.register_forward_pre_hook(note)
    with quiet(), torch.no_grad():
        if isinstance(example, Mapping):
            twin(**example)
        else:
            twin(*example) if isinstance(example, tuple | list) else twin(example)
    return shapes


def _is_ragged(x: Tensor) -> bool:
    """Whether a tensor is nested without a shape, as torch's encoder packs rows of several lengths."""
    return x.is_nested and x.layout is torch.strided


def extents(module: nn.Module) -> list[tuple[int, ...]]:
    """Return the shapes of a vector that a module may be made for: of its tensors, then of its numbers."""
    own = [tuple(n for n in t.shape if n != 1) for t in tensors(module).values()]
    values = [getattr(module, name, None) for name in ("normalized_shape", "shape")]
    own += [tuple(t) for t in values if isinstance(t, tuple | list | torch.Size) and all(isinstance(n, int) for n in t)]
    numbers = sorted({v for v in vars(module).values() if type(v) is int and 1 < v <= WIDEST}, reverse=True)
    shapes = sorted({e for e in own if e}, key=lambda e: (len(e), -max(e)))
    if not shapes and 1 in (getattr(module, name, None) for name in ("num_features", "num_channels")):
        shapes = [(1,)]
    return list(dict.fromkeys([*shapes, *((n,) for n in numbers)]))[:6]


def further(module: nn.Module) -> tuple[int, int]:
    """Return how many tensors a module's forward takes besides the first: those that it must have, and can have."""
    try:
        takes = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return 0, 0
    named = [p for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:]
    needed = [p for p in named if p.default is p.empty]
    spare = [p for p in named if p.default is None]
    return len(needed), len(needed) + len(spare)


def same_kind(module: nn.Module) -> Any:
    """Return what two modules share if one verdict is good for both: class, numbers, words, shapes, types, mode."""
    shapes = tuple(
        (name, None if nn.parameter.is_lazy(t) else tuple(t.shape), t.dtype, type(t))
        for name, t in _all(module).items()
    )
    classes = tuple((name, type(part), getattr(part, "training", None)) for name, part in module.named_modules())
    return classes, shapes, tuple(sorted((k, str(v)) for k, v in attributes(module).items()))


def _all(module: nn.Module) -> Mapping[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
