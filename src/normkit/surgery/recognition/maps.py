"""Norms that are modulated by a map of the image, found by what they compute."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import NEAR, SIZES, apart, build, match_of, numbers, result, worst
from normkit.surgery.recognition.inner import Within, only_norm
from normkit.surgery.recognition.match import Match

NAME = "spatial-norm"
PARTS, MOST = 5, 2**24  # modules, and numbers
EXTENTS = (((6, 7), (3, 2)), ((4, 4), (4, 4)), ((5, 3), (1, 1)), ((3, 4), (7, 9)), ((1, 9), (1, 4)))  # image and map
FRAMES = ((4, 2), (3, 3), (1, 1), (5, 1), (2, 5))


def may_be(module: nn.Module) -> bool:
    """Whether it takes a map, has few parts, and two convolutions of one pixel that are alike."""
    if specimen.has_more_parts(module, PARTS) or not specimen.further(module)[1]:
        return False
    kernels = list(_kernels(module).values())
    few = len(kernels) == 2 and all(not t.is_meta and t.numel() <= MOST for t in kernels)
    return few and kernels[0].shape == kernels[1].shape and len(kernels[0]) > 1


def _kernels(module: nn.Module) -> dict[str, Tensor]:
    """The kernels of one pixel."""
    tensors = specimen.tensors(module).items()
    return {n: t for n, t in tensors if t.dim() > 3 and t.shape[1] > 1 and t.numel() == t.shape[0] * t.shape[1]}


def find(module: nn.Module, work: nn.Module) -> Match | None:
    """Return what norm a module is; ``work`` is a copy in float64 with drawn numbers."""
    kernels = _kernels(module)
    features, channels = next(iter(kernels.values())).shape[:2]
    norm = only_norm(module, features)
    if norm is None or not norm.card.shape.image:
        return None
    kwargs = {"num_features": features, "map_channels": channels, "norm": norm.words}
    for gain, shift in itertools.permutations(kernels):
        carried = _carry(norm, gain, shift)
        if len(carried) != len(specimen.tensors(module)):
            return None
        ours = build(NAME, kwargs, carried, work)
        for space in (2, 3):
            error = {} if ours is None else _agree(work, ours, (channels, features), space)
            if error:
                return match_of(module, NAME, kwargs, carried, error)
    return None


def _carry(norm: Within, gain: str, shift: str) -> dict[str, str]:
    """Each of our tensors, and the one that it takes."""
    biases = {"gain.bias": gain, "shift.bias": shift}
    carried = {"gain.weight": gain, "shift.weight": shift, **norm.carried("norm")}
    return carried | {ours: f"{theirs.rpartition('.')[0]}.bias" for ours, theirs in biases.items()}


def _inputs(widths: tuple[int, int], space: int, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Images or videos, and maps, of several sizes."""
    channels, features = widths
    for i, (extents, frames, size) in enumerate(zip(EXTENTS * 3, FRAMES * 3, SIZES * 5, strict=True)):
        image, map_ = ([*([many] if space == 3 else []), *own] for own, many in zip(extents, frames, strict=True))
        x = numbers(2 * i, 1 + i % 3, features, *image, size=size, dtype=dtype)
        yield x, numbers(2 * i + 1, 1 + i % 3, channels, *map_, dtype=dtype)


def _agree(work: nn.Module, ours: nn.Module, widths: tuple[int, int], space: int) -> dict[str, float]:
    """How far both are apart, in both exact types and modes; {} where they are not the same."""

    def rounds(dtype: torch.dtype, mode: bool) -> Iterator[float]:
        theirs, mine = (copy.deepcopy(one).to(dtype).train(mode) for one in (work, ours))
        for inputs in _inputs(widths, space, dtype):
            output, want = result(theirs, *inputs), result(mine, *inputs)
            yield apart([output], [want]) if isinstance(output, Tensor) else float("inf")

    return worst(NEAR, rounds)
