"""Trials: a GPU's kernel is compared with its formula before its first use, on a small input of the same kind.

A kernel that nobody has run on this GPU with these versions is not believed. Before the first use of a variant (an op,
what it computes, types and widths) kernel and formula run on few rows of random numbers, the formula in float64. Where
they differ, a warning says so once, and the formula runs from then on. What has passed is kept in a file, under
the versions that it holds for. `NORMKIT_TRIAL=off` in the environment leaves trials out; `always` makes them for the
interpreter too, and reads no file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import files, kernels, switches
from normkit.kernels import cuda
from normkit.ops import paths

STEPS = 32  # between whole numbers: of such numbers a sum of two has no rounding in bfloat16 either
ROWS = 9  # vectors, samples or heads of a trial: more than one program's, and an odd number
LIMITS = {torch.float32: 1e-4, torch.float16: 2.0**-8, torch.bfloat16: 2.0**-5}  # of the largest number there is
ROUNDINGS = 16  # times what the formula is off by in the tensors' own types, where a result cancels or overflows


class Call(NamedTuple):
    """How an op is called in a trial, and what of its tensors a trial needs."""

    run: Callable
    keep: Callable[[tuple], int]
    along: bool
    most: int | None


_calls: dict[str, Call] = {}
_verdicts: dict[tuple, str | None] = {}
_under_way: ContextVar[bool] = ContextVar("normkit.ops.trial", default=False)


def call(
    op: str, keep: Callable[[tuple], int], *, along: bool = False, most: int | None = None
) -> Callable[[Callable], Callable]:
    """Enter how an op is called in a trial, with its kind and its tensors.

    keep: how many of x's last axes a trial leaves as they are. along: what broadcasts with x is cut as x is. most: how
    many positions there are to be behind the second axis, where that many are of no other kind than more.
    """

    def enter(function: Callable) -> Callable:
        _calls[op] = Call(function, keep, along, most)
        return function

    return enter


def verdict(op: str, kind: tuple, tensors: tuple[Tensor | None, ...]) -> str | None:
    """What speaks against a variant, or None; the trial is made if it has not been yet."""
    x = tensors[0]
    assert x is not None
    if kind and 0 < getattr(kind[0], "eps", 0.0) < cuda.SMALLEST:
        return "eps is below the normal numbers of float32, which a GPU may take for 0"
    if x.shape[-1] == 1 and getattr(kind[0], "center", None) is True and x.shape[-kind[1] :].numel() == 1:
        return "a centered vector of one entry has a gradient of 0, of which a kernel leaves what it rounds"
    if _under_way.get():
        return None
    variant = _variant(op, kind, x, tensors)
    if _verdicts.get(variant, "not tried") is None or not _applies(x):  # it is asked at each call
        return None
    if variant not in _verdicts:
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            return "it was not tried out before this CUDA graph: run it once beforehand"
        _verdicts[variant] = _examine(variant, tensors)
    return _verdicts[variant]


def _variant(op: str, kind: tuple, x: Tensor, tensors: tuple[Tensor | None, ...]) -> tuple:
    """What one trial answers for: all that a kernel is compiled by."""
    learning = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    width = x.shape[-1] if _calls[op].most is None else None
    return op, kind, x.device, learning, tuple(None if t is None else t.dtype for t in tensors), width


def _applies(x: Tensor) -> bool:
    return not switches.is_off("NORMKIT_TRIAL") and (x.is_cuda or switches.word_of("NORMKIT_TRIAL") == "always")


def _examine(variant: tuple, tensors: tuple[Tensor | None, ...]) -> str | None:
    op, _, device, *_ = variant
    passed = _remembered(device)
    name = repr(variant)
    if name in passed:
        return None
    try:
        wrong = _compare(variant, tensors)
    except Exception as error:
        wrong = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    if wrong is None:
        _remember(device, {*passed, name})
        return None
    warnings.warn(
        f"normkit: on {_device_name(device)} the GPU kernel of {op} does not do what its formula does ({wrong}). The "
        f"formula runs instead. Please report this with the output of `normkit doctor` and: {name}",
        RuntimeWarning,
        stacklevel=2,
    )
    return f"it failed its trial: {wrong}"


def _compare(variant: tuple, tensors: tuple[Tensor | None, ...]) -> str | None:
    """How kernel and formula differ, in one sentence, or None."""
    op, kind, _, learning, *_ = variant
    rounded: dict[str, Tensor] = {}
    with torch.inference_mode(False), torch.set_grad_enabled(learning), _trying(), paths.unwatched():
        small = _small(op, kind, tensors)
        actual = _run(op, kind, small, learning)
        with paths.formula_only():
            exact = [None if t is None else t.detach().double().requires_grad_(t.requires_grad) for t in small]
            expected = _run(op, kind, exact, learning)
            for name, tensor in actual.items():
                want = expected[name]
                terms = small[0].numel() / max(want.numel(), 1)  # type: ignore[union-attr]
                usual = 0.1 * math.sqrt(terms) if terms > 1 else 0.0  # of a sum, whose terms may cancel
                size = max(want.abs().max().item(), usual)
                off = _apart(tensor, want)
                if off <= LIMITS[tensor.dtype] * max(size, 1e-3):
                    continue
                rounded = rounded or _run(op, kind, small, learning)
                if not off <= ROUNDINGS * _apart(rounded[name], want):  # NaN is off too
                    return f"{name} is off by {off:.3g}, the largest being {size:.3g}"
    return None


def _apart(tensor: Tensor, exact: Tensor) -> float:
    return (tensor.double() - exact).abs().max().item()


def _run(op: str, kind: tuple, tensors: list[Tensor | None], learning: bool) -> dict[str, Tensor]:
    """Outputs and gradients, for gradients that hang on nothing but the shape."""
    outputs = _calls[op].run(kind, tensors)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    results = {f"output {i}": output.detach() for i, output in enumerate(outputs)}
    leaves = {i: t for i, t in enumerate(tensors) if t is not None and t.requires_grad}
    if learning:
        sent = [_wave(output) for output in outputs]
        grads = torch.autograd.grad(outputs, list(leaves.values()), sent)
        results |= {f"gradient {i}": grad for i, grad in zip(leaves, grads, strict=True)}
    return results


def _wave(like: Tensor) -> Tensor:
    numbers = torch.linspace(-2, 3, like.numel(), dtype=torch.float64, device="cpu").sin()
    return numbers.to(torch.bfloat16).to(like.dtype).to(like.device).view(like.shape)


def _small(op: str, kind: tuple, tensors: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """Random numbers in the place of each tensor, few rows of what has rows, in the same order of memory."""
    generator, call = torch.Generator().manual_seed(0), _calls[op]
    x = tensors[0]
    assert x is not None
    short = _cut(x.shape, call.keep(kind))
    if call.most is not None:
        short = _fewer(short, call.most)
    drawn: list[Tensor | None] = []
    for like in tensors:
        if like is None:
            drawn.append(None)
        elif like.shape == x.shape:
            drawn.append(_draw(like, short, generator))
        else:
            shape = _align(like.shape, short) if call.along else tuple(like.shape)
            parameter = _draw(like, shape, generator)
            parameter.data.abs_().add_(0.1)  # some stand under a root
            drawn.append(parameter)
    return drawn


def _cut(shape: torch.Size, keep: int) -> tuple[int, ...]:
    """The shape with its first axes, all but the last `keep` of at least one, cut to ROWS in all."""
    first = max(1, len(shape) - keep) if len(shape) > 1 else 0
    left, cut = ROWS, []
    for size in shape[:first]:
        cut.append(min(size, left))
        left = max(1, left // cut[-1])
    return (*cut, *shape[first:])


def _fewer(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The shape with no more than `most` positions, and few samples where these are many."""
    left, space = most, []
    for size in reversed(shape[2:]):
        space.append(min(size, left))
        left = max(1, left // space[-1])
    samples = 3 if math.prod(space) * shape[1] > most else shape[0]
    return (min(samples, shape[0]), shape[1], *reversed(space))


def _align(shape: torch.Size, short: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts with x's, cut as x's is; but for its last axis."""
    if len(shape) < 2:
        return tuple(shape)
    return (*(min(pair) for pair in zip(shape[:-1], short[-len(shape) : -1], strict=True)), shape[-1])


def _draw(like: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    numbers = torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu") * 0.5 + 1
    numbers = (numbers * STEPS).round() / STEPS
    order = sorted(range(like.dim()), key=like.stride, reverse=True)
    laid = torch.empty([shape[axis] for axis in order], dtype=like.dtype, device=like.device)
    laid = laid.permute(sorted(range(like.dim()), key=order.__getitem__)).copy_(numbers)
    return laid.requires_grad_(like.requires_grad and torch.is_grad_enabled())


@contextlib.contextmanager
def _trying() -> Iterator[None]:
    token = _under_way.set(True)
    try:
        yield
    finally:
        _under_way.reset(token)


# What has passed.


def _file(device: torch.device) -> Path:
    return files.cache_folder() / f"trials-{hashlib.sha256(_mark(device).encode()).hexdigest()[:12]}.json"


@cache
def _mark(device: torch.device) -> str:
    """All that a verdict hangs on: the kernels' source, versions, and the GPU."""
    import triton

    files = sorted(Path(kernels.__file__).parent.joinpath("cuda").rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    about = digest, torch.__version__, triton.__version__, torch.version.cuda, torch.version.hip, _device_name(device)
    return " ".join(map(str, about))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "Triton's interpreter"


def _remembered(device: torch.device) -> set[str]:
    if device.type == "cpu":
        return set()
    try:
        return set(json.loads(_file(device).read_text(encoding="utf-8"))["passed"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _remember(device: torch.device, passed: set[str]) -> None:
    """Write the file; nothing depends on it."""
    if device.type == "cpu":
        return
    file = _file(device)
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(file, json.dumps({"for": _mark(device), "passed": sorted(passed)}))
