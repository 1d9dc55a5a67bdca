"""Norms that adapt by a matrix of their own, found by what they compute.

The rows of the matrix say how wide the norm is, by how many vectors each method makes of its condition.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.agreement import (
    LENGTHS,
    NEAR,
    SIZES,
    apart,
    build,
    epsilons,
    is_matrix,
    match_of,
    named_so,
    numbers,
    plain_numbers,
    result,
    worst,
)
from normkit.surgery.recognition.match import Match

PARTS, MOST = 5, 2**24  # modules, and numbers
EPSILONS = (1e-6, 1e-5)
Way = Callable[..., Any]


class Kind(NamedTuple):
    """A method: the vectors that its matrix makes, what it is called with, and the arguments that are tried.

    image: it takes images, channels first, not tokens. each: it takes a condition of each token.
    """

    name: str
    pieces: int
    takes: tuple[str, ...] = ("condition",)
    choices: Mapping[str, Sequence[Any]] = {}
    image: bool = False
    each: bool = False


BOTH = (False, True)
CONTINUOUS = {"norm": ("layernorm", "rmsnorm"), "affine": BOTH, "bias": BOTH, "activation": BOTH}
KINDS = (
    Kind("adaptive-layernorm", 2, choices={"scale_first": (False,), "affine": BOTH}),
    Kind("adaln-continuous", 2, choices=CONTINUOUS),
    Kind("adaln-continuous", 2, choices=CONTINUOUS, each=True),
    Kind("adaln-zero", 6, choices={"sublayers": (2,)}),
    Kind("adaln-zero", 3, choices={"sublayers": (1,)}),
    Kind("adaln-zero-two-stream", 6, ("context", "condition"), {"affine": BOTH}),
    Kind("adaln-zero-dual", 9),
    Kind("adaptive-rmsnorm-zero", 4, choices={"affine": BOTH}),
    Kind("adaln-single", 6, ("shared",)),
    Kind("film", 2, image=True),
    Kind("adaptive-groupnorm", 2, choices={"affine": BOTH, "activation": BOTH}, image=True),
    *(Kind("adaln-continuous", 1, choices={**CONTINUOUS, "vectors": ("scale", "shift")}, each=each) for each in BOTH),
)


def may_be(module: nn.Module) -> bool:
    """Whether it takes a condition, has few parts, and one matrix that makes several vectors."""
    if sum(1 for _ in itertools.islice(module.modules(), PARTS + 1)) > PARTS or not specimen.further(module)[1]:
        return False
    tensors = specimen.tensors(module).values()
    matrices = [t for t in tensors if is_matrix(t)]
    if len(matrices) != 1 or matrices[0].is_meta or matrices[0].numel() > MOST:
        return False
    rows = len(matrices[0])
    return all(t.numel() <= rows for t in tensors if not is_matrix(t)) and any(
        _sizes(kind, matrices[0]) for kind in KINDS
    )


def _sizes(kind: Kind, matrix: Tensor) -> tuple[int, int] | None:
    """The width of the norm, and how many features its condition has; None where the matrix is of another kind."""
    rows, columns = matrix.shape
    if kind.name == "adaln-single":
        return (columns, rows * columns) if rows == kind.pieces else None
    dim = rows // kind.pieces
    free = "condition_features" in catalog.card(kind.name).signature.parameters
    fits = rows % kind.pieces == 0 and dim > 1 and (free or columns == dim)
    return (dim, columns) if fits else None


def find(module: nn.Module, work: nn.Module) -> Match | None:
    """Return what norm a module is; ``work`` is a copy in float64 with drawn numbers."""
    tensors = specimen.tensors(work)
    ((name, matrix),) = ((name, t) for name, t in tensors.items() if is_matrix(t))
    for kind in KINDS:
        sizes = _sizes(kind, matrix)
        if sizes is None:
            continue
        first = next(_inputs(kind, *sizes, torch.float64))
        for way in _ways(work, len(kind.takes)):
            made = _call(way, work.eval(), first)
            if made is None:
                continue
            for kwargs, carried in _candidates(kind, module, name, *sizes):
                ours = build(kind.name, kwargs, carried, work)
                if ours is None or _far(ours, made, first) > NEAR[torch.float64]:
                    continue
                error = _agree(kind, way, work, ours, sizes)
                if error:
                    return match_of(module, kind.name, kwargs, carried, error)
    return None


def _ways(work: nn.Module, further: int) -> Iterator[Way]:
    """The ways of calling a module with a condition: by its place, or by one of the names that may be left out."""
    yield lambda module, *given: module(*given)
    takes = list(inspect.signature(work.forward).parameters.values())[further:]
    for p in takes:
        if p.default is None and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            yield lambda module, *given, name=p.name: module(*given[:-1], **{name: given[-1]})


def _inputs(kind: Kind, dim: int, features: int, dtype: torch.dtype) -> Iterator[list[Tensor]]:
    """Tokens or images, and what goes with them, of several lengths and sizes."""
    for i, ((n, length), size) in enumerate(itertools.product(LENGTHS, SIZES)):
        n, seed = n + 1, 10 * i
        own = (n, dim, 3, length) if kind.image else (n, length, dim)
        made = [numbers(seed + 1, *own, size=size, dtype=dtype)]
        if "context" in kind.takes:
            made.append(numbers(seed + 2, n, length + 2, dim, size=2.0, dtype=dtype))
        samples = (n, length) if kind.each else (n,)
        yield [*made, numbers(seed + 3, *samples, features, size=(1.0, 3.0, 0.3)[i % 3], dtype=dtype)]


def _candidates(
    kind: Kind, module: nn.Module, matrix: str, dim: int, features: int
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The arguments that a method may have, and whose numbers it takes; all that the module has are taken."""
    card = catalog.card(kind.name)
    takes = card.signature.parameters
    theirs = specimen.tensors(module)
    choices = dict(kind.choices)
    if "num_groups" in takes:
        groups = named_so(plain_numbers(module, int), "group", 32)
        choices["num_groups"] = [g for g in groups if 0 < g <= dim and dim % g == 0]
    choices |= {"eps": epsilons(module, *EPSILONS)} if "eps" in takes else {}
    fixed = {card.width.name: dim} if card.width is not None else {}
    fixed |= {"condition_features": features} if "condition_features" in takes else {}
    for values in itertools.product(*choices.values()):
        kwargs = {**fixed, **dict(zip(choices, values, strict=True))}
        with torch.device("meta"):
            ours = specimen.tensors(catalog.create(kind.name, **kwargs))
        carried = _carried(ours, theirs, matrix)
        if carried is not None:
            yield kwargs, carried


def _carried(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], matrix: str) -> dict[str, str] | None:
    """Give each tensor one of its size, by its last name where there are several; None where some are left.

    Of two of one name the matrix's own bias is the one beside it.
    """
    left, mapping = dict(theirs), {}
    own = {name.rpartition(".")[0] for name, tensor in ours.items() if is_matrix(tensor)}
    home = matrix.rpartition(".")[0]
    for name, tensor in sorted(ours.items(), key=lambda item: -item[1].dim()):
        fitting = [key for key, t in left.items() if t.numel() == tensor.numel() and is_matrix(t) == is_matrix(tensor)]
        place, _, last = name.rpartition(".")
        beside = place in own
        fitting.sort(key=lambda key: (key.rpartition(".")[2] != last, (key.rpartition(".")[0] == home) != beside))
        if not fitting:
            return None
        mapping[name] = fitting[0]
        del left[fitting[0]]
    return mapping if not left else None


def _call(way: Way, work: nn.Module, given: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...] | None:
    """What a module returns: a tensor, or a tuple of several; None where it takes no such input, or changes it."""
    made = result(lambda *given: way(work, *given), *given)
    several = isinstance(made, tuple) and all(isinstance(t, Tensor) for t in made)
    return made if several or isinstance(made, Tensor) else None


def _far(ours: nn.Module, made: Tensor | tuple[Tensor, ...], given: Sequence[Tensor]) -> float:
    """How far a method's results are apart from somebody's, whose gates may have an axis of one token."""
    with torch.no_grad():
        want = ours(*given)
    if isinstance(want, Tensor) or isinstance(made, Tensor):
        return apart([made], [want]) if isinstance(want, Tensor) and isinstance(made, Tensor) else math.inf
    if len(want) != len(made):
        return math.inf
    flat = [a.squeeze(1) if a.dim() == b.dim() + 1 else a for a, b in zip(made, want, strict=True)]
    return apart(flat, want)


def _agree(kind: Kind, way: Way, work: nn.Module, ours: nn.Module, sizes: tuple[int, int]) -> dict[str, float]:
    """How far both are apart, in both exact types and modes; {} where they are not the same."""

    def rounds(dtype: torch.dtype, mode: bool) -> Iterator[float]:
        theirs, mine = (copy.deepcopy(one).to(dtype).train(mode) for one in (work, ours))
        for given in _inputs(kind, *sizes, dtype):
            made = _call(way, theirs, given)
            yield math.inf if made is None else _far(mine, made, given)

    return worst(NEAR, rounds)
