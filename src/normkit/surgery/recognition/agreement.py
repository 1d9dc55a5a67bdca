"""What the ways of finding a whole have in common: copies with drawn numbers, fresh inputs, and how far both are apart.

Candidates are compared on fresh inputs of several lengths and sizes, in both modes and in both exact types.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Match

LENGTHS = ((1, 7), (2, 3), (1, 1), (3, 19), (1, 40))  # the first is what candidates are tried on
SIZES = (1.0, 1e-2, 3.0)
NEAR = {torch.float64: 3e-6, torch.float32: 2e-4}  # of the largest; many round to float32 in every type
Read = Callable[[list[Tensor], Tensor], "list[Tensor] | None"]


class Flat(nn.Module):
    """A module that takes its tokens along one axis."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """Call it with all tokens in a row."""
        return self.module(x.flatten(0, -2))


class Handed(nn.Module):
    """A module that is handed a vector beside the tokens."""

    def __init__(self, module: nn.Module, vector: Tensor):
        super().__init__()
        self.module, self.vector = module, nn.Buffer(vector)

    def forward(self, x: Tensor) -> Any:
        """Call it with the vector."""
        return self.module(x, self.vector)


class Tabled(nn.Module):
    """A module that is handed numbers beside the tokens, by which it looks rows of a table up.

    The table, with its name, is drawn anew: each row has several of ``count`` numbers, each once.
    """

    def __init__(self, module: nn.Module, table: str, count: int):
        super().__init__()
        self.module, self.table = copy.deepcopy(module), table
        rows = self.module.get_buffer(table)
        generator = torch.Generator().manual_seed(0)
        order = torch.rand(len(rows), count, generator=generator).argsort(-1)
        rows.copy_(order[:, : rows.shape[1]])

    def forward(self, x: Tensor) -> Any:
        """Call it with numbers."""
        return self.module(x, self.numbers(x))

    def numbers(self, x: Tensor) -> Tensor:
        """The numbers of tokens, the same for each shape."""
        generator = torch.Generator().manual_seed(x[..., 0].numel())
        return torch.randint(len(self.module.get_buffer(self.table)), x.shape[:-1], generator=generator)

    def rows(self, x: Tensor) -> Tensor:
        """What stands in the table for tokens."""
        return self.module.get_buffer(self.table)[self.numbers(x)]


def is_matrix(tensor: Tensor) -> bool:
    """Whether a tensor has two axes of more than one number."""
    return tensor.dim() == 2 and min(tensor.shape) > 1


def redraw(module: nn.Module) -> nn.Module:
    """A copy in float64 whose numbers all count."""
    work = copy.deepcopy(module).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in specimen.tensors(work).values():
            if tensor.is_floating_point():
                spread = tensor.shape[-1] ** -0.5 if tensor.dim() > 1 else 0.3
                start = 1.0 if tensor.dim() == 1 and tensor.numel() <= 3 else 0.0
                tensor.copy_(start + spread * torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    return work


@torch.no_grad()
def double_numbers(work: nn.Module) -> nn.Module:
    """A copy whose numbers are twice as large."""
    other = copy.deepcopy(work)
    for tensor in specimen.tensors(other).values():
        tensor.mul_(2)
    return other


def numbers(seed: int, *shape: int, size: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, the same for a seed in every type."""
    generator = torch.Generator().manual_seed(seed)
    return (size * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def inputs(own: tuple[int, ...], dtype: torch.dtype, only: int | None = None) -> Iterator[Tensor]:
    """Tokens of several lengths and sizes."""
    for i, (leading, size) in enumerate(itertools.product(LENGTHS, SIZES)):
        if only is not None and i >= only:
            return
        yield numbers(i + 1, *leading, *own, size=size, dtype=dtype)


def result(run: Callable[..., Any], *inputs: Tensor) -> Any:
    """What a call returns; None where it takes no such inputs, or changes them."""
    before = [t.clone() for t in inputs]
    try:
        with torch.no_grad():
            output = run(*inputs)
    except Exception:
        return None
    return output if all(torch.equal(a, b) for a, b in zip(before, inputs, strict=True)) else None


def call(work: nn.Module, x: Tensor) -> list[Tensor] | None:
    """What a module returns, as a list of tensors; None where it takes no such input."""
    output = result(work, x)
    output = list(output) if isinstance(output, tuple | list) else [output]
    return output if output and all(isinstance(t, Tensor) for t in output) else None


def worst(types: Iterable[torch.dtype], rounds: Callable[[torch.dtype, bool], Iterator[float]]) -> dict[str, float]:
    """How far both are apart at most, over all rounds of a type and in both modes; {} where they are not the same."""
    error: dict[str, float] = {}
    for dtype, mode in itertools.product(types, (False, True)):
        for far in rounds(dtype, mode):
            if not far <= NEAR[dtype]:
                return {}
            key = str(dtype)[6:]
            error[key] = max(error.get(key, 0.0), far)
    return error


def agree(
    work: nn.Module, ours: nn.Module, run: Callable, read: Read, own: tuple[int, ...], sure: Callable | None = None
) -> dict[str, float]:
    """How far both are apart, in both exact types and modes, relative to the largest number; {} where they are not.

    A module that computes in float32 alone is compared there.
    """

    def rounds(dtype: torch.dtype, mode: bool) -> Iterator[float]:
        theirs, mine = (copy.deepcopy(one).to(dtype).train(mode) for one in (work, ours))
        return (far_apart(theirs, mine, run, read, x, sure) for x in inputs(own, dtype))

    return worst(types_of(work), rounds)


def types_of(work: nn.Module) -> list[torch.dtype]:
    """The exact types that a copy is compared in: its own and those below."""
    usual = next(iter(specimen.tensors(work).values())).dtype
    return [dtype for dtype in NEAR if torch.finfo(dtype).bits <= torch.finfo(usual).bits]


def far_apart(
    theirs: nn.Module, ours: nn.Module, run: Callable, read: Read, x: Tensor, sure: Callable | None = None
) -> float:
    """How far two modules' results for an input are apart, relative to the largest number; infinity without numbers."""
    returned = call(theirs, x)
    have = None if returned is None else read(returned, x)
    if have is None:
        return math.inf
    with torch.no_grad():
        want = run(ours, x)
        have, want = sure(ours, x, have, want) if sure is not None else (have, want)
    return apart(have, want)


def apart(have: Sequence[Tensor], want: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest number of its tensor."""
    far = 0.0
    for a, b in zip(have, want, strict=True):
        if a.shape != b.shape or not a.isfinite().all():
            return math.inf
        far = max(far, float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)))
    return far


def plain_numbers(module: nn.Module, kind: type) -> dict[str, Any]:
    """The plain numbers that a module, its parts and its configuration hold."""
    constants: dict[str, Any] = {}
    for part in module.modules():
        for holder in (getattr(part, "config", None), part):
            if holder is not None and hasattr(holder, "__dict__"):
                constants |= {k: v for k, v in vars(holder).items() if type(v) is kind}
    return constants


def named_so(constants: Mapping[str, Any], word: str, *usual: Any) -> list[Any]:
    """Each number once, those first whose names have a word in them."""
    ordered = sorted(constants, key=lambda name: word not in name.lower())
    return list(dict.fromkeys([*(constants[name] for name in ordered), *usual]))


def epsilons(module: nn.Module, *usual: float) -> list[float]:
    """The stabilizers that a module may have."""
    return [v for v in named_so(plain_numbers(module, float), "eps", *usual) if 0 <= v < 0.1]


def factors_of(module: nn.Module) -> list[float]:
    """The factors of scores that a module may have: 1, and the numbers that it holds as a scale or a multiplier."""
    held = plain_numbers(module, float)
    return list(dict.fromkeys([1.0, *(v for k, v in held.items() if v > 0 and re.search("scal|multipl", k.lower()))]))


def build(name: str, kwargs: Mapping[str, Any], carried: Mapping[str, str], theirs: nn.Module) -> nn.Module | None:
    """A method with the numbers of a module; None where it takes no such arguments."""
    try:
        method = catalog.create(name, **kwargs)
    except (ValueError, TypeError):
        return None
    own = next(iter(specimen.tensors(theirs).values()), None)
    return carry(method if own is None else method.to(own.dtype), carried, theirs)


@torch.no_grad()
def carry(method: nn.Module, carried: Mapping[str, str], theirs: nn.Module) -> nn.Module:
    """Give a method the numbers of a module, by the names of both; the vector that it is handed is called ''."""
    tensors: dict[str, Tensor] = {}
    while isinstance(theirs, Flat | Handed | Tabled):
        tensors |= {"": theirs.vector} if isinstance(theirs, Handed) else {}
        theirs = theirs.module
    tensors |= specimen.tensors(theirs)
    own = specimen.tensors(method)
    for ours, name in carried.items():
        one = tensors[name].numel() == 1
        own[ours].copy_(tensors[name].reshape(() if one else own[ours].shape))
    return method


def match_of(
    module: nn.Module,
    name: str,
    kwargs: dict[str, Any],
    carried: dict[str, str],
    error: dict[str, float],
    method: nn.Module | None = None,
    how: str = "as a whole",
) -> Match:
    """What a module was found to be, with its own numbers."""
    carried = {ours: theirs for ours, theirs in carried.items() if theirs}
    method = build(name, kwargs, carried, module) if method is None else method
    types = " and ".join(error)
    evidence = [f"{how}, on {len(LENGTHS) * len(SIZES)} inputs in both modes, in {types}"]
    assert method is not None
    return Match(
        type(module).__name__, name, kwargs, method.train(module.training), error, evidence, carried=carried, sized=True
    )
