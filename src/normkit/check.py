"""Checks of what a user hands in. Each error names the argument, what came and what was wanted."""

from __future__ import annotations

import difflib
import itertools
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

STRIDED = torch.strided
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)  # the usual first
LARGEST = sys.float_info.max  # of what must be finite


def plain(value: Any) -> Any:
    """Return a number or truth of numpy's, or a tuple or list that begins with a number, as Python's own.

    Anything else stays as it is.
    """
    if type(value) in (bool, int, float):
        return value
    if type(value) in (tuple, list) and value and isinstance(value[0], Real | tuple | list):
        return type(value)(map(plain, value))
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    return bool(value) if type(value).__name__ in ("bool", "bool_") else value


def size(owner: object, name: str, value: Any, least: int = 1, most: int = 2**31 - 1) -> int:
    """Return ``value`` if it is an integer from ``least`` to ``most``: a width, a channel count, a number of steps."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt):
        raise TypeError(f"{whose(owner)}: {name} must be an integer, not {value!r}")
    if value < least:
        raise ValueError(f"{whose(owner)}: {name} must be at least {least}, not {value}")
    if value > most:
        raise ValueError(f"{whose(owner)}: {name} must be at most {most}, not {value}")
    return int(value)


def number(
    owner: object, name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False
) -> float:
    """Return ``value`` as a float if it lies in [low, high], or in (low, high] with ``open_low``; NaN never does."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{whose(owner)}: {name} must be a number, not {value!r}")
    if not (low < value if open_low else low <= value) or not value <= high:
        bounds = f"{'(' if open_low else '['}{low}, {high}]"
        raise ValueError(f"{whose(owner)}: {name} must lie in {bounds}, not {value}")
    return float(value)


def numbers(
    owner: object, name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, open_low: bool = False
) -> list[float]:
    """Return ``value`` as a list if it is a sequence of numbers that lie where :func:`number` wants them."""
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise TypeError(f"{whose(owner)}: {name} must be a sequence of numbers, not {value!r}")
    return [number(owner, name, one, low, high, open_low=open_low) for one in value]


def eps(owner: object, value: Any, name: str = "eps") -> float:
    """Return a stabilizer: finite and not negative; 0 is honoured."""
    value = number(owner, name, value, 0.0)
    if math.isinf(value):
        raise ValueError(f"{whose(owner)}: {name} must be finite, not {value}")
    return value


def choice(owner: object, name: str, value: Any, options: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``options``."""
    if value not in options or (isinstance(value, bool) and not any(value is option for option in options)):
        close = difflib.get_close_matches(str(value), [word for word in options if isinstance(word, str)], n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{whose(owner)}: {name} must be one of {', '.join(map(repr, options))}, not {value!r}{meant}")
    return value


def device(owner: object, value: Any) -> torch.device:
    """Return a device on which a tensor can be made."""
    try:
        target = torch.device(value)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{whose(owner)}: device={value!r} cannot be used: {reason}") from None
    return target


def divides(owner: object, name: str, groups: int, whole: str, total: int) -> None:
    """Require that ``groups`` divides ``total``, and offer the nearest numbers that do."""
    if total % groups:
        divisors = sorted((d for d in range(1, total + 1) if total % d == 0), key=lambda d: abs(d - groups))[:3]
        raise ValueError(
            f"{whose(owner)}: {name}={groups} does not divide {whole}={total}; nearest that do: {sorted(divisors)}"
        )


def floating(owner: object, x: Any, name: str = "x") -> None:
    """Require a floating-point tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{whose(owner)}: {name} must be a tensor, not {type(x).__name__}")
    if x.dtype not in FLOATS:
        wide = " of 16 bits or more" if x.dtype.is_floating_point else ""
        raise TypeError(f"{whose(owner)}: {name} must be a floating-point tensor{wide}, not {x.dtype}")
    if not x.is_cpu or x.layout is not STRIDED:
        _usable(owner, x, name)


def _usable(owner: object, x: Tensor, name: str) -> None:
    """Require a dense tensor, on the device of the module where the owner is one."""
    dense(owner, x, name)
    if isinstance(owner, nn.Module):
        near = (t for t in (*owner._parameters.values(), *owner._buffers.values()) if t is not None)
        own = next(itertools.chain(near, owner.parameters(), owner.buffers()), x)
        if own.device != x.device:
            raise ValueError(f"{whose(owner)}: {name} is on {x.device}, but the module is on {own.device}")


def dense(owner: object, x: Tensor, name: str) -> None:
    """Require a tensor that is not sparse."""
    if x.layout is not STRIDED:
        raise TypeError(f"{whose(owner)}: {name} must be a dense tensor, not {x.layout}")


def features_last(owner: object, x: Any, width: int, name: str = "x", least: int = 1) -> None:
    """Require a floating-point tensor of ``least`` axes or more, the last of ``width`` entries."""
    floating(owner, x, name)
    if x.dim() < least or x.shape[-1] != width:
        axes = f"have at least {least} axes and " if least > 1 else ""
        raise ValueError(
            f"{whose(owner)}: {name} must {axes}end in {width} features, but its shape is {tuple(x.shape)}"
        )


def ends_in(owner: object, x: Any, sizes: Sequence[int], name: str = "x") -> None:
    """Require a floating-point tensor whose last axes have ``sizes``."""
    if len(sizes) == 1:
        return features_last(owner, x, sizes[0], name)
    floating(owner, x, name)
    if not 0 < len(sizes) <= x.dim() or tuple(x.shape[-len(sizes) :]) != tuple(sizes):
        raise ValueError(
            f"{whose(owner)}: {name} must end in axes of sizes {tuple(sizes)}, but its shape is {tuple(x.shape)}"
        )


def channels_first(
    owner: object, x: Any, channels: int, least: int = 2, most: int | None = None, name: str = "x"
) -> None:
    """Require a floating-point tensor of shape (N, channels, ...) with ``least`` to ``most`` axes."""
    floating(owner, x, name)
    if x.dim() < least or (most is not None and x.dim() > most) or x.shape[1] != channels:
        axes = f"{least}" if most == least else f"{least} to {most}" if most else f"at least {least}"
        raise ValueError(
            f"{whose(owner)}: {name} must have {axes} axes and {channels} channels on axis 1, "
            f"but its shape is {tuple(x.shape)}"
        )


def shape(owner: object, name: str, tensor: Any, sizes: Sequence[int | None], like: Tensor | None = None) -> None:
    """Require a tensor of exactly these ``sizes`` (None fits any), on the device of ``like``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{whose(owner)}: {name} must be a tensor, not {type(tensor).__name__}")
    dense(owner, tensor, name)
    fits = tensor.dim() == len(sizes) and all(w is None or s == w for s, w in zip(tensor.shape, sizes, strict=True))
    if not fits:
        text = "(" + ", ".join("any" if w is None else str(w) for w in sizes) + ")"
        raise ValueError(f"{whose(owner)}: {name} must have shape {text}, but its shape is {tuple(tensor.shape)}")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{whose(owner)}: {name} is on {tensor.device}, but x is on {like.device}")


def values(owner: object, name: str, tensor: Any, sizes: Sequence[int | None], like: Tensor) -> None:
    """Require a floating-point tensor of these ``sizes`` on the device of ``like``: a style, a flow, a gain."""
    floating(owner, tensor, name)
    shape(owner, name, tensor, sizes, like)


def sizes(owner: object, name: str, value: Any, least: int = 1) -> tuple[int, ...]:
    """Return the sizes of a tensor that is to be made, with at least ``least`` axes.

    >>> sizes("Here", "shape", [8, 5])
    (8, 5)
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"{whose(owner)}: {name} must be a sequence of sizes such as (8, 5), not {value!r}")
    whole = tuple(size(owner, name, each) for each in value)
    if len(whole) < least:
        axes = "one axis" if least == 1 else f"{least} axes"
        raise ValueError(f"{whose(owner)}: {name} must have at least {axes}, not {whole}")
    size(owner, name, math.prod(whole))
    return whole


def names(owner: object, name: str, value: Any, entries: Collection[str] | None = None) -> Collection[str]:
    """Require several names, of these ``entries`` if given: one alone is a sequence of letters to Python."""
    if not isinstance(value, Collection) or isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise TypeError(f"{whose(owner)}: {name} must be a sequence of names such as ['weight'], not {value!r}")
    unknown = [] if entries is None else sorted(set(value) - set(entries))
    if unknown:
        raise ValueError(f"{whose(owner)}: {name} must be among the entries, but {', '.join(unknown)} is not")
    return value


def repeatable(owner: object, name: str, value: Any) -> None:
    """Refuse an iterator, which would have nothing left from the second time on."""
    if isinstance(value, Iterator):
        raise TypeError(
            f"{whose(owner)}: {name} must be a list or a loader, which can be gone over again, not an iterator"
        )


def broadcastable(sizes: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether a shape broadcasts to another one, which stays as it is.

    >>> broadcastable((1, 3), (2, 5, 3)), broadcastable((2, 3), (1, 3)), broadcastable((1, 3), (3,))
    (True, False, False)
    """
    pairs = zip(reversed(sizes), reversed(wanted), strict=False)
    # Compared one by one: a compiled step finds no symbol of a size in a tuple.
    return len(sizes) <= len(wanted) and all(size == 1 or size == want for size, want in pairs)


def broadcasts(owner: object, name: str, tensor: Any, like: Tensor, whole: str = "x") -> None:
    """Require a tensor of real numbers that broadcasts to the shape of ``like``, which an error calls ``whole``."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{whose(owner)}: {name} must be a tensor, not {type(tensor).__name__}")
    flags(owner, name, tensor, (None,) * tensor.dim())
    if not broadcastable(tensor.shape, like.shape):
        raise ValueError(
            f"{whose(owner)}: {name} must broadcast to {whole} of shape {tuple(like.shape)}, "
            f"but its shape is {tuple(tensor.shape)}"
        )


def mask(owner: object, name: str, tensor: Any, sizes: Sequence[int | None], like: Tensor) -> None:
    """Require a boolean tensor of exactly these ``sizes`` on the device of ``like``."""
    shape(owner, name, tensor, sizes, like)
    if tensor.dtype is not torch.bool:
        raise TypeError(f"{whose(owner)}: {name} must be a boolean tensor, not {tensor.dtype}")


def flags(owner: object, name: str, tensor: Any, sizes: Sequence[int | None], like: Tensor | None = None) -> None:
    """Require a tensor of these ``sizes`` that may be boolean or of numbers, 0 for False."""
    shape(owner, name, tensor, sizes, like)
    if tensor.is_complex():
        raise TypeError(f"{whose(owner)}: {name} must be boolean or of real numbers, not {tensor.dtype}")


def index(owner: object, name: str, tensor: Any, sizes: Sequence[int | None], below: int | None, like: Tensor) -> None:
    """Require an int64 tensor of exactly these ``sizes`` with entries in [0, below), or of any size with None.

    The entries are read only in eager mode: under a compiler or a transform the look-up reports one out of range.
    """
    shape(owner, name, tensor, sizes, like)
    if tensor.dtype is not torch.int64:
        raise TypeError(f"{whose(owner)}: {name} must be an int64 tensor, not {tensor.dtype}")
    if tensor.numel() == 0 or type(tensor) is not Tensor or not readable(tensor):
        return
    low, high = torch.stack(tensor.aminmax()).tolist()  # one wait for a GPU, not two
    if low < 0 or (below is not None and high >= below):
        where = "not be negative" if below is None else f"lie in 0 .. {below - 1}"
        raise ValueError(f"{whose(owner)}: {name} must {where}, but goes from {low} to {high}")


def readable(x: Tensor) -> bool:
    """Tell whether the values of a tensor can be looked at: not under a compiler or a transform."""
    return not (torch.compiler.is_compiling() or x.is_meta or torch._C._are_functorch_transforms_active())


def whose(owner: object) -> str:
    """Return the name that an error begins with."""
    return owner if isinstance(owner, str) else type(owner).__name__
