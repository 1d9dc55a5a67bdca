"""Whether a changed model still gives the same numbers: on fresh and smaller inputs, to what rounding allows."""

from __future__ import annotations

import contextlib
import copy
import random
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from normkit.parameters import is_scripted, require_whole, tensors_in
from normkit.surgery.edits import bits, comparison, edits_since, load_numbers, replay
from normkit.surgery.edits.layers import without_history
from normkit.surgery.flow import DEPTH, arguments
from normkit.surgery.recognition.pair import signs
from normkit.surgery.recognition.specimen import has_no_numbers, inputs_of, quiet, tensors

CLOSE = 1e-9  # of the largest number, where weights are float64
ROUNDING = 4.0  # times what the model itself rounds off, where its weights are rounded


class Unequal(ValueError):
    """How far two models are apart, or why that cannot be measured."""


def fresh(example: Any, seed: int) -> Any:
    """An example like the one given: other numbers of the same size, and other rows of the integers that it has.

    Integers keep their column, since each may be read from a table of its own size. NaN, infinities and the largest
    numbers of a type stay, since they mask.

    >>> fresh(torch.tensor([[3, 199], [5, 102], [4, 150]]), 0)
    tensor([[  5, 102],
            [  4, 150],
            [  3, 199]])
    """
    if isinstance(example, Mapping):
        return {name: fresh(part, seed + i) for i, (name, part) in enumerate(example.items())}
    if isinstance(example, tuple | list):
        return _like(example, (fresh(part, seed + i) for i, part in enumerate(example)))
    if not torch.is_tensor(example) or example.dtype is torch.bool or example.numel() < 2:
        return example
    g = torch.Generator().manual_seed(seed)
    if example.is_floating_point():
        drawn = example.abs() < torch.finfo(example.dtype).max
        if drawn.sum() < 2:
            return example
        noise, own = torch.randn(example.shape, generator=g, device="cpu").to(example), example[drawn]
        return torch.where(drawn, noise * own.std().clamp(min=1e-3) + own.mean(), example)
    for axis in range(example.ndim):
        if (example != example.narrow(axis, 0, 1)).any():
            order = torch.rand(example.shape, generator=g, device="cpu").argsort(axis)
            places = torch.arange(order.numel(), device="cpu").view(order.shape).gather(axis, order)
            return example.flatten()[places.to(example.device)]
    return example


def _examples(model: nn.Module, example: Any, smaller: bool = True) -> Iterator[tuple[str, Any]]:
    """What two models are compared on: an example, and a fresh input like it, smaller where the model takes that.

    Each comes with how an error names it. Whether a size is taken is asked of a copy in the model's own type, which
    costs less than one in float64. It is asked on a CPU alone: on CUDA an index out of range ends the process's work.
    """
    yield "in float64", example
    other = fresh(example, 100)
    smaller = smaller and all(t.is_cpu for t in (*model.parameters(), *model.buffers(), *tensors_in(example, DEPTH)))
    cuts = ((2, None), (1, -1)) if smaller else ()
    inputs = (*(_smaller(other, first, last) for first, last in cuts), other)
    each = {tuple(t.shape for t in tensors_in(x, DEPTH)): x for x in inputs}
    taken = (("on a smaller input", x) for x in each.values() if x is not other and _is_taken(model, x))
    yield next(taken, ("on an input like the example", other))


def _smaller(example: Any, first: int, last: int | None) -> Any:
    """An example cut to two thirds along axes from one to another, or along the last of two.

    Sizes become odd, so that windows seldom divide them; those up to 3 stay, since 1 would broadcast.

    >>> [_smaller(torch.ones(shape), 2, None).shape[1:] for shape in ((2, 3, 224, 224), (2, 3))]
    [torch.Size([3, 149, 149]), torch.Size([3])]
    """
    if isinstance(example, Mapping):
        return {name: _smaller(part, first, last) for name, part in example.items()}
    if isinstance(example, tuple | list):
        return _like(example, (_smaller(part, first, last) for part in example))
    if not torch.is_tensor(example):
        return example
    for axis in range(example.ndim)[slice(first, last) if example.ndim > 2 else slice(1, None)]:
        if (size := example.shape[axis]) > 3:
            example = example.narrow(axis, 0, (size - size // 3 - 1) | 1).contiguous()
    return example


def _is_taken(model: nn.Module, example: Any) -> bool:
    """Whether a model takes an input, and gives numbers for it."""
    try:
        _require_numbers(call_model(copy.deepcopy(model).eval(), example))
    except Exception:
        return False
    return True


def call_model(model: nn.Module, example: Any, seed: int = 0) -> list[Tensor]:
    """The tensors that a model returns, with random numbers of one seed; complex numbers as pairs of real ones."""
    args, named = arguments(example)
    with quiet(), torch.no_grad():
        torch.manual_seed(seed), random.seed(seed), numpy.random.seed(seed)
        results = [t.detach() for t in tensors_in(model(*args, **named), DEPTH)]
    return [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in results]


def _require_numbers(results: list[Tensor], lead: str = "") -> None:
    """Refuse results by which models cannot be compared."""
    if not results:
        raise Unequal(f"{lead}the model returns no tensor to compare")
    if not any(t.isfinite().any() for t in results):
        raise Unequal(f"{lead}the example gives no finite number to compare")


def sizes_of(owner: str, model: nn.Module, example: Any, *, with_numbers: bool = True) -> dict[str, tuple[int, ...]]:
    """The shape of the first input of each module; refuse what is no model, or an example that it does not take."""
    check_model(owner, model, with_numbers=with_numbers or example is not None)
    if example is None:
        return {}
    try:
        with quiet():
            return inputs_of(model, example)
    except Exception as error:
        raise ValueError(f"{owner}: the model does not take the example: {describe_error(error)}") from error


def check_model(owner: str, model: nn.Module, *, with_numbers: bool = True) -> None:
    """Refuse what is no model, or holds no numbers; let it be copied."""
    require_model(owner, model, with_numbers=with_numbers)
    without_history(model)


def require_model(owner: str, model: nn.Module, *, with_numbers: bool = True) -> None:
    """Refuse what is no model, or holds no numbers."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"{owner}: model must be a torch.nn.Module, not {type(model).__name__}")
    if with_numbers and has_no_numbers(model):
        raise ValueError(f"{owner}: the model is on the meta device and holds no numbers")
    if is_scripted(model):
        raise ValueError(f"{owner}: the model is scripted; hand it in as it was before torch.jit")
    if with_numbers and any(map(is_lazy, model.parameters())):
        raise ValueError(f"{owner}: the model has layers that take their size from a first input; call it once before")


def ready(owner: str, model: nn.Module, example: Any) -> None:
    """Refuse what is no model in evaluation with numbers, and an example that it does not take."""
    check_model(owner, model)
    require_whole(owner, model)
    bits.require_floats(owner, model)
    if any(part.training for part in model.modules()):
        raise ValueError(f"{owner}: the model is in train mode; call model.eval() first")
    try:
        with quiet():
            results = call_model(copy.deepcopy(model), example)
    except Exception as error:
        raise ValueError(f"{owner}: the model does not take the example: {describe_error(error)}") from error
    if (inputs := list(tensors_in(example, DEPTH))) and not any(t.numel() for t in inputs):
        raise ValueError(f"{owner}: the example is empty; hand in one with samples, by which results are compared")
    _require_numbers(results, f"{owner}: ")


def proven(owner: str, before: nn.Module, after: nn.Module, example: Any) -> float:
    """Return how far a changed model is from what it was; refuse one that gives other numbers, or whose edits do."""
    try:
        with quiet():
            far = prove(before, after, example)
            prove_edits(before, after, example)
            return far
    except Exception as error:
        why = why_not(error)
    raise ValueError(f"{owner}: refused, and the model is as it was: {why}")


def why_not(error: Exception) -> str:
    """The words for what a proof raised."""
    return str(error) if isinstance(error, Unequal) else f"once changed, the model raises {describe_error(error)}"


def describe_error(error: Exception) -> str:
    """The kind of an error and its first line, or, of one without words, the last line of code outside of torch.

    >>> describe_error(ValueError("no such norm"))
    'ValueError: no such norm'
    """
    words = str(error).strip().splitlines()
    if words:
        return f"{type(error).__name__}: {words[0]}"
    home, frames = Path(torch.__file__).parent, traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not Path(frame.filename).is_relative_to(home)] or frames
    return f"{type(error).__name__} at {outside[-1].line}" if outside else type(error).__name__


@contextlib.contextmanager
def _unchanged(name: str) -> Iterator[None]:
    """Where the model raises that was not changed, let the error say so, and on what input."""
    try:
        yield
    except Exception as error:
        raise Unequal(f"without the change, the model raises {describe_error(error)} {name}") from error


def prove(before: nn.Module, after: nn.Module, example: Any, *, smaller: bool = True) -> float:
    """Return how far two models are apart in float64, of the largest number; raise :class:`Unequal` if it is far.

    With ``smaller=False`` the second of them need not take other sizes than the example's.
    """
    worst = 0.0
    for name, x in _examples(before, example, smaller):
        with _unchanged(name):
            was = _exact(before, x)
        if x is example:
            _require_numbers(was)
        exact = [was, _exact(after, x)]
        apart = difference(*exact)
        if apart > CLOSE:
            if (again := difference(exact[0], _exact(before, x))) > CLOSE:
                raise Unequal(f"two calls of the model as it was differ by {again:.1e} of the largest number")
            rounded = _rounded(before, x, exact[0])
            if not _within(exact[0], exact[1], rounded) and not _rounds(before, after, x, exact):
                where = "" if x is example else f" {name}"
                raise Unequal(f"once changed, results differ by {apart:.1e} of the largest number{where}")
        worst = max(worst, apart)
    return worst


def prove_edits(before: nn.Module, after: nn.Module, example: Any) -> None:
    """Apply the edits that a changed model carries to a copy of what it was; raise :class:`Unequal` if it is another.

    The copy takes the changed model's numbers. Where something was changed that has no words, nothing is asked: who
    saves the model gets an error.
    """
    try:
        comparison(before, after)
    except ValueError:
        return
    try:
        twin = replay(copy.deepcopy(before), edits_since(before, after), after.state_dict())
        rest = comparison(twin, after)
        if not rest:
            load_numbers(twin, after.state_dict())
    except Exception as error:
        raise Unequal(f"once changed, its edits cannot be applied: {describe_error(error)}") from error
    if rest:
        raise Unequal(f"once changed, its edits leave out what became of {rest[0].site or 'the model'}")
    apart = difference(_exact(after, example), _exact(twin, example))
    if not apart <= CLOSE:
        raise Unequal(f"once changed, its edits give results that differ by {apart:.1e} of the largest number")


def in_double(model: nn.Module, example: Any) -> tuple[nn.Module, Any]:
    """Return a copy of a model, and an example, in float64."""
    return _in(model, torch.float64), cast(example, torch.float64)


def exact(before: nn.Module, after: nn.Module, example: Any) -> float:
    """How far two models are apart where nothing is rounded to float32, on an example and fresh inputs like it."""
    worst = 0.0
    with quiet(), Doubled():
        for name, given in _examples(before, example):
            x = cast(given, torch.float64)
            with _unchanged(name):
                was = call_model(_in(before, torch.float64), x)
            worst = max(worst, difference(was, call_model(_in(after, torch.float64), x)))
    return worst


def apart(one: nn.Module, other: nn.Module, example: Any) -> float:
    """How far two models are apart on an example and a fresh input like it."""
    _require_numbers(call_model(one, example))
    return max(difference(call_model(one, x), call_model(other, x)) for x in (example, fresh(example, 1)))


def difference(others: list[Tensor], got: list[Tensor]) -> float:
    """The largest difference, of the largest number of each result; infinite where NaN, infinities or shapes differ."""
    if [t.shape for t in others] != [t.shape for t in got]:
        return float("inf")
    worst = 0.0
    for want, have in zip(others, got, strict=True):
        want, have = want.double(), have.double()
        known = want.isfinite() & have.isfinite()
        if not torch.allclose(want.masked_fill(known, 0), have.masked_fill(known, 0), 0, 0, equal_nan=True):
            return float("inf")
        if known.any():
            largest = want[known].abs().max().clamp(min=1e-30)
            worst = max(worst, float((want[known] - have[known]).abs().max() / largest))
    return worst


class _Single(TorchDispatchMode):
    """Float32 inside an operation that knows no float64, as the products of a mixture of experts."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = args, kwargs or {}
        try:
            return func(*inputs[0], **inputs[1])
        except RuntimeError:
            if func._schema.is_mutable:
                raise
        single, named = tree_map(lambda x: _with_dtype(x, torch.float64, torch.float32), inputs)
        return tree_map(lambda x: _with_dtype(x, torch.float32, torch.float64), func(*single, **named))


def _with_dtype(x: Any, was: torch.dtype, dtype: torch.dtype) -> Any:
    return x.to(dtype) if torch.is_tensor(x) and x.dtype is was else x


def _exact(model: nn.Module, example: Any, seed: int = 0) -> list[Tensor]:
    """What a model returns in float64, as far as its operations know that."""
    wide, x = _in(model, torch.float64), cast(example, torch.float64)
    try:
        return call_model(wide, x, seed)
    except RuntimeError:
        with _Single():
            return call_model(_in(model, torch.float64), x, seed)


@torch.no_grad()
def _rounded(model: nn.Module, example: Any, exact: list[Tensor]) -> list[Tensor]:
    """What a model returns in its own type.

    Of one that draws random numbers, which are others there: in float64, each of its tensors moved by half a unit.
    """
    if difference(exact, _exact(model, example, seed=1)) <= CLOSE:
        return call_model(copy.deepcopy(model).eval(), example)
    wide, own = _in(model, torch.float64), tensors(model)
    for name, t in tensors(wide).items():
        t.mul_(1 + torch.finfo(own[name].dtype).eps / 2 * signs(t.shape, t.dtype, seed=1).to(t.device))
    return _exact(wide, example)


class Doubled(TorchDispatchMode):
    """Float64 where a model asks for float32 whatever type it has, as transformers' norms and scans do."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if named.get("dtype") is torch.float32:
            named["dtype"] = torch.float64
        return func(*args, **named)


def _rounds(before: nn.Module, after: nn.Module, example: Any, exact: list[list[Tensor]]) -> bool:
    """Whether models differ by what both round to float32 alone, and the changed one is no farther from the truth.

    The truth is what they return where nothing is rounded to float32. Kernels do not run there, so that what they give
    is held to it too.
    """
    try:
        with Doubled():
            true, same = (
                call_model(_in(model, torch.float64), cast(example, torch.float64)) for model in (before, after)
            )
    except Exception:  # a model that holds float32 elsewhere, which does not mix with float64
        return False
    return difference(true, same) <= CLOSE and _within(true, exact[1], exact[0])


def _within(exact: list[Tensor], got: list[Tensor], rounded: list[Tensor]) -> bool:
    """Whether results are about as near to exact ones as rounded ones are; integers apart, which it moves by far."""
    kinds = [
        [[t for t in results if t.is_floating_point() is real] for results in (exact, got, rounded)]
        for real in (True, False)
    ]
    return all(difference(true, now) <= ROUNDING * difference(true, near) for true, now, near in kinds)


def _in(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(model).to(dtype).eval()


def _like(example: Any, parts: Iterable[Any]) -> Any:
    """Parts as a list or a named tuple where an example is one, which some models tell from a tuple."""
    kind = type(example)
    return kind(*parts) if hasattr(kind, "_fields") else list(parts) if isinstance(example, list) else tuple(parts)


def cast(example: Any, dtype: torch.dtype) -> Any:
    """An example whose floating-point tensors are of a type."""
    if isinstance(example, Mapping):
        return {name: cast(part, dtype) for name, part in example.items()}
    if isinstance(example, tuple | list):
        return _like(example, (cast(part, dtype) for part in example))
    return example.to(dtype) if torch.is_tensor(example) and example.is_floating_point() else example
