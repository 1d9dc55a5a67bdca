"""Norms that adapt by matrices of their own or by vectors that they are handed, found by what they compute.

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
    match_of,
    named_so,
    plain_numbers,
    result,
    worst,
)
from normkit.surgery.recognition.conditions import (
    ByNumber,
    Condition,
    Draw,
    FirstTokens,
    Handed,
    LastTokens,
    Masked,
    OfAll,
    OfImages,
    OfTokens,
    OfTwoStreams,
    Shared,
    WithTable,
)
from normkit.surgery.recognition.match import Match

PARTS, MOST = 7, 2**24  # modules, and numbers of a matrix
EPSILONS = (1e-6, 1e-5)
Way = Callable[..., Any]


class Kind(NamedTuple):
    """A method: the vectors that its matrix makes, the arguments that are tried, and how it is handed its condition.

    matrices: how many it has; without one the vectors are handed in, and where it makes one vector each of both has its
    own. table: its matrix has a row for each vector.
    """

    name: str
    pieces: int
    choices: Mapping[str, Sequence[Any]] = {}
    condition: Condition = Condition()
    matrices: int = 1
    table: bool = False


class Sizes(NamedTuple):
    """The width of a norm, the features of its condition, and how many vectors stand between two matrices."""

    dim: int
    features: int
    rank: int | None = None


BOTH = (False, True)
CONTINUOUS = {"norm": ("layernorm", "rmsnorm"), "affine": BOTH, "bias": BOTH, "activation": BOTH}
ORDERED = {**CONTINUOUS, "scale_first": (True, False)}
STREAMS = {"sublayers": (2,), "affine": BOTH, "interleaved": BOTH, "activation": BOTH}
GATED = {"norm": ("layernorm", "rmsnorm"), "condition_bias": BOTH}
OWN_TABLE, NO_TABLE = {"table": (True,), "affine": BOTH}, {"table": (False,), "affine": BOTH}
KINDS = (
    Kind("adaptive-layernorm", 2, {"scale_first": (False,), "affine": BOTH}),
    Kind("adaln-continuous", 2, ORDERED),
    *(Kind("adaln-continuous", 2, ORDERED, condition) for condition in (OfTokens(), OfAll(), ByNumber())),
    Kind("adaln-zero", 6, {"sublayers": (2,)}),
    Kind("adaln-zero", 3, {"sublayers": (1,)}),
    Kind("adaln-zero", 6, {"sublayers": (2,)}, FirstTokens()),
    Kind("adaln-zero", 3, {"sublayers": (1,)}, FirstTokens()),
    Kind("adaln-zero-two-stream", 6, {"affine": BOTH}, OfTwoStreams()),
    Kind("adaln-zero-two-stream", 12, STREAMS, OfTwoStreams()),
    Kind("adaln-zero-dual", 9),
    Kind("adaptive-rmsnorm-zero", 4, {"affine": BOTH}),
    Kind("adaln-single", 6, table=True),
    Kind("adaln-single", 3, {"sublayers": (1,)}, table=True),
    *(
        Kind("adaln-single", 3 * n, {"table": (False,), "sublayers": (n,)}, Handed(apart), matrices=0)
        for n in (2, 1)
        for apart in BOTH
    ),
    *(Kind("adaln-single-last", 2, OWN_TABLE, one, table=True) for one in (Condition(), OfTokens(), LastTokens())),
    *(
        Kind("adaln-single-last", 2, NO_TABLE, one, matrices=0)
        for one in (Handed(), Handed(True), WithTable(), WithTable(True))
    ),
    *(Kind("adaln-lora", 3 if n else 2, {"gated": (n,)}, Shared(k), 2) for n in BOTH for k in (None, 3 if n else 2, 0)),
    *(Kind("adaln-alphafold3", 1, GATED, condition, 2) for condition in (OfTokens(), Masked(), Condition())),
    Kind("film", 2, condition=OfImages()),
    Kind("adaptive-groupnorm", 2, {"affine": BOTH, "activation": BOTH}, OfImages()),
    *(
        Kind("adaln-continuous", 1, {**CONTINUOUS, "vectors": ("scale", "shift")}, condition)
        for condition in (Condition(), OfTokens())
    ),
)


def may_be(module: nn.Module) -> bool:
    """Whether it takes a condition, has few parts, and as many matrices as one of the methods."""
    if specimen.has_more_parts(module, PARTS) or not specimen.further(module)[1]:
        return False
    tensors = specimen.tensors(module).values()
    matrices = [t for t in tensors if _is_matrix(t)]
    if not matrices and next(module.buffers(), None) is not None:  # as rotary angles
        return False
    if any(specimen.long_axes(t) > 2 for t in tensors):  # as the matrices of all experts
        return False
    if any(t.is_meta or t.numel() > MOST for t in matrices):
        return False
    rows = max((_flat(t)[0] for t in matrices), default=MOST)
    vectors = [t for t in tensors if t.dim() and not _is_matrix(t)]
    return all(t.numel() <= max(rows, t.shape[-1]) for t in vectors) and any(_sizes(kind, module) for kind in KINDS)


def _matrices(tensors: Mapping[str, Tensor]) -> list[str]:
    return [name for name, tensor in tensors.items() if _is_matrix(tensor)]


def _is_matrix(tensor: Tensor) -> bool:
    return specimen.long_axes(tensor) == 2


def _flat(matrix: Tensor) -> torch.Size:
    """The shape of a matrix without axes of one number."""
    return torch.Size(n for n in matrix.shape if n > 1)


def _sizes(kind: Kind, module: nn.Module) -> Sizes | None:
    """The sizes of a norm of a kind; None where the module's matrices are of another."""
    matrices = [_flat(t) for t in specimen.tensors(module).values() if _is_matrix(t)]
    if len(matrices) != kind.matrices:
        return None
    if not matrices:
        width = next(_widths(module), 0)
        return Sizes(width, width) if 1 < width <= specimen.WIDEST else None
    return (_of_table if kind.table else _of_matrices)(kind, matrices)


def _of_table(kind: Kind, matrices: Sequence[torch.Size]) -> Sizes | None:
    """The sizes of a kind whose one matrix has a row for each piece."""
    ((rows, columns),) = matrices
    features = rows * columns if kind.name == "adaln-single" else columns
    return Sizes(columns, features) if rows == kind.pieces else None


def _of_matrices(kind: Kind, matrices: Sequence[torch.Size]) -> Sizes | None:
    """The sizes of a kind that makes all pieces by one matrix, or by two with a rank between them."""
    last, first = max(matrices), min(matrices)
    (rows, rank), columns = last, first[1]
    dim = rows // kind.pieces
    free = "condition_features" in catalog.card(kind.name).signature.parameters
    fits = rows % kind.pieces == 0 and dim > 1 and (free or columns == dim)
    if len(matrices) == 1 or kind.pieces == 1:
        return Sizes(dim, columns) if fits and first == last else None
    return Sizes(dim, columns, rank) if fits and first[0] == rank else None


def _widths(module: nn.Module) -> Iterator[int]:
    """The widths that the norms or the vectors of a module without matrices have."""
    shapes = [getattr(part, "normalized_shape", None) for part in module.modules()]
    yield from (shape[-1] for shape in shapes if isinstance(shape, tuple) and len(shape) == 1)
    yield from (t.numel() for t in specimen.tensors(module).values())


def find(module: nn.Module, work: nn.Module) -> Match | None:
    """Return what norm a module is; ``work`` is a copy in float64 with drawn numbers."""
    matrices = _matrices(specimen.tensors(work))
    further = specimen.further(work)[1]
    for kind in KINDS:
        sizes = _sizes(kind, work)
        if sizes is None or (kind.condition == Shared(0) and further > 1):
            continue
        first = next(_inputs(kind, sizes, torch.float64))
        for way in _ways(work, kind.condition.theirs(first)):
            output = _call(way, work.eval(), kind, first)
            if output is None:
                continue
            for kwargs, carried in _candidates(kind, module, matrices, sizes):
                ours = build(kind.name, kwargs, carried, work)
                if ours is None or _far(kind, ours, output, first) > NEAR[torch.float64]:
                    continue
                error = _agree(kind, way, work, ours, sizes)
                if error:
                    how = " ".join(["as a whole", *kind.condition.words.split()])
                    return match_of(module, kind.name, kwargs, carried, error, how=how)
    return None


def _ways(work: nn.Module, inputs: Sequence[Any]) -> Iterator[Way]:
    """The ways of calling a module with a condition: by its place, or by one of the names that may be left out."""
    yield lambda module, *inputs: module(*inputs)
    takes = list(inspect.signature(work.forward).parameters.values())[len(inputs) - 1 :]
    for p in takes:
        if p.default is None and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            yield lambda module, *inputs, name=p.name: module(*inputs[:-1], **{name: inputs[-1]})


def _inputs(kind: Kind, sizes: Sizes, dtype: torch.dtype) -> Iterator[list[Tensor]]:
    """Tokens or images, and what goes with them, of several lengths and sizes."""
    for i, ((n, length), size) in enumerate(itertools.product(LENGTHS, SIZES)):
        own = sizes.dim, kind.pieces, sizes.features
        yield kind.condition.inputs(Draw(10 * i, n + 1, length, *own, size, (1.0, 3.0, 0.3)[i % 3], dtype))


def _candidates(
    kind: Kind, module: nn.Module, matrices: Sequence[str], sizes: Sizes
) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """The arguments that a method may have, and whose numbers it takes; all that the module has are taken."""
    card = catalog.card(kind.name)
    takes, theirs = card.signature.parameters, specimen.tensors(module)
    groups = [g for g in named_so(plain_numbers(module, int), "group", 32) if g > 0 and sizes.dim % g == 0]
    may_vary = {"num_groups": groups, "eps": epsilons(module, *EPSILONS)}
    known = {getattr(card.width, "name", ""): sizes.dim, "condition_features": sizes.features, "rank": sizes.rank}
    choices = {**kind.choices, **{name: values for name, values in may_vary.items() if name in takes}}
    fixed = {name: size for name, size in known.items() if name in takes}
    for values in itertools.product(*choices.values()):
        kwargs = {**fixed, **dict(zip(choices, values, strict=True))}
        with torch.device("meta"):
            ours = specimen.tensors(catalog.create(kind.name, **kwargs))
        orders = (1, -1) if kind.pieces == 1 and len(matrices) > 1 else (1,)
        for order in orders:
            carried = _carry(ours, dict([*theirs.items()][::order]), matrices)
            if carried is not None:
                yield kwargs, carried


def _carry(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor], matrices: Sequence[str]) -> dict[str, str] | None:
    """Give each tensor one of its size, by its last name where there are several; None where some are left.

    Of two of one name the matrix's own bias is the one beside it.
    """
    left, mapping = dict(theirs), {}
    own, homes = ({name.rpartition(".")[0] for name in names} for names in (_matrices(ours), matrices))
    for name, tensor in sorted(ours.items(), key=lambda item: -item[1].dim()):
        fitting = [key for key, t in left.items() if t.numel() == tensor.numel() and _alike(t, tensor)]
        place, _, last = name.rpartition(".")
        beside = place in own
        fitting.sort(key=lambda key: (key.rpartition(".")[2] != last, (key.rpartition(".")[0] in homes) != beside))
        if not fitting:
            return None
        mapping[name] = fitting[0]
        del left[fitting[0]]
    return mapping if not left else None


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether both are no matrices, or matrices of one shape."""
    if not (_is_matrix(one) and _is_matrix(other)):
        return _is_matrix(one) == _is_matrix(other)
    return _flat(one) == _flat(other)


def _call(way: Way, work: nn.Module, kind: Kind, inputs: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...] | None:
    """What a module returns: a tensor, or a tuple of several; None where it takes no such input, or changes it."""
    output = result(lambda *inputs: way(work, *kind.condition.theirs(inputs)), *inputs)
    several = isinstance(output, tuple) and all(isinstance(t, Tensor) for t in output)
    return output if several or isinstance(output, Tensor) else None


def _far(kind: Kind, ours: nn.Module, output: Tensor | tuple[Tensor, ...], inputs: Sequence[Tensor]) -> float:
    """How far a method's results are apart from the user's, whose gates may have an axis of one token."""
    with torch.no_grad():
        want = kind.condition.ours(ours, inputs)
    if isinstance(want, Tensor) or isinstance(output, Tensor):
        return apart([output], [want]) if isinstance(want, Tensor) and isinstance(output, Tensor) else math.inf
    if len(want) != len(output):
        return math.inf
    flat = [a.squeeze(1) if a.dim() == b.dim() + 1 else a for a, b in zip(output, want, strict=True)]
    return apart(flat, want)


def _agree(kind: Kind, way: Way, work: nn.Module, ours: nn.Module, sizes: Sizes) -> dict[str, float]:
    """How far both are apart, in both exact types and modes; {} where they are not the same."""

    def rounds(dtype: torch.dtype, mode: bool) -> Iterator[float]:
        theirs, mine = (copy.deepcopy(one).to(dtype).train(mode) for one in (work, ours))
        for inputs in _inputs(kind, sizes, dtype):
            output = _call(way, theirs, kind, inputs)
            yield math.inf if output is None else _far(kind, mine, output, inputs)

    return worst(NEAR, rounds)
