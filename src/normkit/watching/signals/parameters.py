"""What is read of the parameters around a step of the optimizer: sizes, gradients, spectra, and how far a step goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from normkit.ops.sharded import whole
from normkit.parameters import own_parameter
from normkit.watching.signals.signal import stride_past
from normkit.watching.store import MEAN, MISSING

WHOLE = 4096  # entries of a parameter that is compared whole
SHARE = 512  # of a larger one, one entry in so many is kept over the step: 0.2 % of the memory
TINY = 1e-30
FEW = 4  # matrices whose momentum is compared with the gradient
HALVES = (torch.float16, torch.bfloat16)
MOMENTS = ("exp_avg_sq", "momentum_buffer", "exp_avg")  # of an optimizer, which stay zero where no gradient came
WAY = MEAN  # in which readings of them become one
NUMBERS = ("gradient", "weight", "radial", "update", "still", "unseen", "carried", "spectral", "stable_rank")

Named = Mapping[str, nn.Parameter]
Read = tuple[list[str], str, Tensor]  # of which parameters, what, and the numbers


def norms(tensors: list[Tensor]) -> Tensor:
    """Return the length of each tensor, whole where it is spread over processes."""
    dense = [x.coalesce().values() if x.is_sparse else x for x in tensors]
    return torch.stack([whole(norm.float()) for norm in torch._foreach_norm(dense)])


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the sum of products, in float32, of float32 tensors without a third one of their size."""
    alike = x.dtype == y.dtype == torch.float32 and not y.is_sparse and not hasattr(x, "full_tensor")
    if alike and x.is_contiguous() and y.is_contiguous():
        return torch.dot(x.view(-1), y.view(-1))
    return (x * y).sum(dtype=torch.float32)


def gradients(parameters: Named) -> list[Read]:
    """Return the length of each gradient, and for matrices the cosine between weight and gradient.

    That cosine is 0 of a weight that a norm follows, whose scale then changes nothing.
    """
    having = {name: p for name, p in parameters.items() if p.grad is not None}
    if not having:
        return []
    slopes = [p.grad.detach() for p in having.values() if p.grad is not None]
    lengths = norms(slopes)
    weights = norms([p.detach() for p in having.values()])
    along = [
        (name, whole(dot(p.detach(), slope)) / (size * length).clamp(min=TINY))
        for (name, p), slope, size, length in zip(having.items(), slopes, weights, lengths, strict=True)
        if p.dim() > 1
    ]
    readings: list[Read] = [(list(having), "gradient", lengths), (list(having), "weight", weights)]
    if along:
        readings.append(([name for name, _ in along], "radial", torch.stack([value for _, value in along])))
    return readings


def as_stepped(reads: Iterable[Read], optimizer: Any) -> Iterator[Read]:
    """Return readings as a fused step goes by them, which takes a gradient scaler's factor back by itself.

    torch calls it even where a gradient is infinite: it then moves nothing, and nothing was read.
    """
    infinite = getattr(optimizer, "found_inf", None)
    for names, what, values in reads:
        read = values / factor_of(optimizer, values.device) if what == "gradient" else values
        yield names, what, read if infinite is None else read.masked_fill(infinite.to(read.device) > 0, MISSING)


def factor_of(optimizer: Any, device: torch.device) -> Tensor | float:
    """Return by what a gradient scaler has multiplied the gradients that a fused step is about to take."""
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else scale.to(device)


def joined(reads: Iterable[Read], order: Iterable[str]) -> list[Read]:
    """Make one reading of those that were taken optimizer by optimizer, with the parameters in the model's order.

    >>> joined([(["b"], "update", torch.ones(1)), (["a"], "update", torch.zeros(1))], ["a", "b"])
    [(['a', 'b'], 'update', tensor([0., 1.]))]
    """
    kinds: dict[str, list[Read]] = {}
    for read in reads:
        kinds.setdefault(read[1], []).append(read)
    return [alike[0] if len(alike) == 1 else _one_of(alike, order) for alike in kinds.values()]


def _one_of(reads: list[Read], order: Iterable[str]) -> Read:
    values = {name: value for names, _, several in reads for name, value in zip(names, several.unbind(), strict=True)}
    names = [name for name in order if name in values]
    return names, reads[0][1], torch.stack([values[name] for name in names])


def unseen_rows(model: nn.Module, optimizers: Sequence[Optimizer]) -> list[Read]:
    """Return the share of each embedding's rows that never had a gradient, by the moments that an optimizer keeps."""
    shares = {}
    for name, module in model.named_modules():
        table = own_parameter(module, "weight")  # not by getattr: to read a parametrized weight may change it
        if isinstance(module, nn.Embedding) and table is not None:
            states = [optimizer.state.get(table, {}) for optimizer in optimizers]
            kept = [state[key] for state in states for key in MOMENTS if isinstance(state.get(key), Tensor)]
            if kept and kept[0].shape == table.shape and not hasattr(kept[0], "full_tensor"):
                shares[f"{name}.weight" if name else "weight"] = (kept[0].abs().amax(1) == 0).float().mean()
    return [(list(shares), "unseen", torch.stack(list(shares.values())))] if shares else []


def carried(model: nn.Module, optimizers: Sequence[Optimizer]) -> list[Read]:
    """Return the share of a momentum that does not come of the last gradient, for a few matrices with averages of them.

    0: it began anew at this step. Missing where the gradient is infinite, as of a step that a scaler leaves out.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    shares: dict[str, Tensor] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups if any(map(_averages, type(optimizer).__mro__)) else ():
            for p in group["params"]:
                b, m = optimizer.state.get(p, {}).get("momentum_buffer"), group.get("momentum", 0.0)
                usable = isinstance(b, Tensor) and p.grad is not None and p.dim() > 1 and id(p) in names and m > 0
                if usable and len(shares) < FEW and not hasattr(b, "full_tensor") and b.shape == p.grad.shape:
                    alone = p.grad.detach().float() * (1 - m)
                    shares[names[id(p)]] = (b.float() - alone).norm() / b.float().norm().clamp(min=TINY)
    if not shares:
        return []
    values = torch.stack(list(shares.values()))
    return [(list(shares), "carried", values.masked_fill(~values.isfinite(), MISSING))]


def rounds(optimizer: Optimizer) -> bool:
    """Whether what an optimizer adds to a half-precision weight is rounded to the nearest, and what is lost is lost.

    Others' may round by chance, or keep what was lost or the whole weight beside it.
    """
    return type(optimizer).__module__.startswith(("torch.optim.", "normkit."))


def _averages(kind: type) -> bool:
    """Whether a class is a Muon, whose momentum is an average; its kin may keep a sum, and are left out."""
    return kind.__name__ == "Muon"


class Updates:
    """Compares parameters before and after a step by entries that stand for the whole."""

    def __init__(self) -> None:
        self.before: dict[str, Tensor] = {}
        self.pulled: dict[str, Tensor] = {}  # which entries of a half-precision weight have a gradient
        self.reached: dict[str, Tensor] = {}  # whether any entry of those kept of a large parameter has one
        self.seen: set[str] = set()

    def keep(self, parameters: Named) -> None:
        """Remember before the first step."""
        new = {name: p for name, p in parameters.items() if p.requires_grad and name not in self.seen}
        self.before |= {name: entries(p).clone() for name, p in new.items()}
        self.seen.update(new)

    def pull(self, parameters: Named, is_rounded: bool) -> None:
        """Remember which entries have a gradient at the first step; is_rounded: what is lost in rounding is lost."""
        for name, p in parameters.items():
            grad, is_half = p.grad if name in self.before else None, is_rounded and p.dtype in HALVES
            if grad is None or not (is_half or p.numel() > WHOLE):
                continue
            if grad.is_sparse:
                self.reached[name] = torch.zeros((), dtype=torch.bool, device=p.device)
            elif grad.stride() == p.stride():
                pulled = entries(grad) != 0
                self.reached[name] = pulled.any()
                self.pulled |= {name: pulled} if is_half else {}

    def read(self, parameters: Named) -> list[Read]:
        """Return the length of each step over that of the weight, which is 0 of a weight that nothing moves.

        It is missing where all entries kept of a large one rest and none has a gradient, as of a table's rare rows.
        Of half-precision weights also the share of entries that have a gradient, and that the step leaves as they are.
        """
        kept = {name: self.before.pop(name) for name in [*self.before] if name in parameters}
        if not kept:
            return []
        now = [entries(parameters[name]) for name in kept]
        still = {
            name: ((here == kept[name]) & pulled).sum() / pulled.sum().clamp(min=1)
            for name, here in zip(kept, now, strict=True)
            if (pulled := self.pulled.pop(name, None)) is not None
        }
        moved = torch.stack([m.float() for m in torch._foreach_norm(torch._foreach_sub(now, list(kept.values())))])
        sizes = torch.stack([n.float() for n in torch._foreach_norm(now)])
        spread = [p for name in kept if hasattr(p := parameters[name], "full_tensor")]
        if spread:
            moved, sizes = _of_all(torch.stack([moved, sizes]), spread[0])
        share: list[Read] = [(list(still), "still", torch.stack([*still.values()]))] if still else []
        moves = torch.ones((), dtype=torch.bool, device=moved.device)
        known = (moved > 0) | torch.stack([self.reached.pop(name, moves) for name in kept])
        return [(list(kept), "update", torch.where(known, moved / sizes.clamp(min=TINY), MISSING)), *share]


def _of_all(lengths: Tensor, spread: nn.Parameter) -> Tensor:
    """Put together the lengths that processes found of their parts; what each has whole counts often in both."""
    squares = lengths.square()
    for group in spread.device_mesh.get_all_groups():  # type: ignore[attr-defined]
        torch.distributed.all_reduce(squares, group=group)
    return squares.sqrt()


def entries(parameter: Tensor) -> Tensor:
    """Return a parameter, or evenly chosen entries of a large one, in the order that they lie in memory."""
    p = parameter.detach()
    p = p.to_local() if hasattr(p, "to_local") else p
    if p.numel() <= WHOLE:
        return p.reshape(-1)
    step = stride_past(p.numel(), SHARE)
    if p.is_contiguous() or (p.dim() == 4 and p.is_contiguous(memory_format=torch.channels_last)):
        return p.as_strided((-(-p.numel() // step),), (step,))
    return p.reshape(-1)[::step]


class Spectra:
    """Follows the largest singular value of each matrix by power iteration, a step a sample from where it was."""

    FIRST = 4  # steps at the first sample

    def __init__(self) -> None:
        self.vectors: dict[str, Tensor] = {}

    def read(self, parameters: Named) -> list[Read]:
        """Return largest singular values, and stable ranks: the sum of all squared ones over the largest's."""
        pairs = {name: self._one(name, whole(p.detach())) for name, p in parameters.items() if self._is_matrix(p)}
        if not pairs:
            return []
        spectral, stable = (torch.stack([pair[i] for pair in pairs.values()]) for i in (0, 1))
        return [(list(pairs), "spectral", spectral), (list(pairs), "stable_rank", stable)]

    @staticmethod
    def _is_matrix(p: Tensor) -> bool:
        return p.dim() > 1 and min(len(p), p.numel() // max(len(p), 1)) > 1

    def _one(self, name: str, weight: Tensor) -> tuple[Tensor, Tensor]:
        matrix = weight.flatten(1).float()
        size = torch.linalg.vector_norm(matrix)
        matrix = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT  # so that the shorter vector is kept
        v = self.vectors.get(name)
        times = 1
        if v is None or v.shape != matrix.shape[1:] or v.device != matrix.device:
            chance = torch.Generator().manual_seed(0)
            v = torch.randn(matrix.shape[1], generator=chance, dtype=torch.float32, device="cpu").to(matrix.device)
            times = self.FIRST
        for _ in range(times):
            u = matrix @ v
            v = matrix.mT @ (u / u.norm().clamp(min=TINY))
            largest = v.norm()
            v = v / largest.clamp(min=TINY)
        self.vectors[name] = v
        return largest, (size / largest.clamp(min=TINY)).square()
