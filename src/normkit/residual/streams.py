"""A residual stream of several vectors, and sublayers that read and write it by weights of each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.residual.wiring import At, Connection, Form, NormMaker, Own, Part
from normkit.statistics import accurate, full_precision


def expand(x: Tensor, streams: int) -> Tensor:
    """Return the streams (..., streams, dim) that a model begins with: as many copies of its embedding (..., dim).

    >>> expand(torch.zeros(2, 3, 8), 4).shape
    torch.Size([2, 3, 4, 8])
    """
    check.floating("expand", x)
    copies = check.size("expand", "streams", streams)
    return x.unsqueeze(-2).expand(*x.shape[:-1], copies, x.shape[-1]).contiguous()


def collapse(x: Tensor) -> Tensor:
    """Return the sum of the streams (..., streams, dim) as one (..., dim), as hyper-connections end."""
    check.floating("collapse", x)
    if x.dim() < 2:
        raise ValueError(f"collapse: x must be (..., streams, dim), but its shape is {tuple(x.shape)}")
    return x.sum(-2)


@dataclass(frozen=True)
class Several(Form):
    """As many vectors as the placement's option ``streams`` says: (..., streams, dim).

    start: builds what makes them of the embedding, of their size and number; None: they are copies of it.
    head: builds what makes one of them after the last layer, likewise; None: it is their sum.
    norm_each: the model's last norm is for each stream, before they are one.
    """

    start: Callable[[int, int], nn.Module] | None = None
    head: Callable[[int, int], nn.Module] | None = None
    norm_each: bool = False

    def check(self, owner: object, stream: Any, place: At, leading: tuple[None, ...] | None = None) -> Tensor:
        """Require the streams."""
        return self.check_part(owner, "x", stream, (place.options["streams"], place.dim), leading)

    def expansion(self, place: At) -> nn.Module | None:
        """Build the start."""
        return None if self.start is None else self.start(place.dim, place.options["streams"])

    def expand(self, x: Tensor, place: At, expansion: nn.Module | None = None) -> Any:
        """Return what the start makes of the embedding, or copies of it."""
        return expand(x, place.options["streams"]) if expansion is None else expansion(x)

    def collapse(self, place: At, make: NormMaker) -> nn.Module | None:
        """Build the head."""
        return None if self.head is None else self.head(place.dim, place.options["streams"])

    def end(self, stream: Any, collapse: nn.Module | None, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """Return one vector, normalized."""
        join = _sum if collapse is None else collapse
        return join(norm(stream)) if self.norm_each else norm(join(stream))


def _sum(x: Tensor) -> Tensor:
    return x.sum(-2)


@dataclass(frozen=True)
class Connected(Connection):
    """A sublayer that reads a weighted sum of the streams, while these mix, and whose output goes to each by a weight.

        u = sum_s read[s] H[s],    H[t] <- sum_s mix[s, t] H[s] + write[t] F(norm(u))

    weights: the class of the module ``connection`` that works the three out, of H: read (..., n), mix (..., n, n) and
    write (..., n). It is built of the layer's place, the sublayer's number and a maker of norms.
    """

    weights: Callable[[At, int, NormMaker], nn.Module]
    number: int = 0

    def at(self, place: At) -> Connection:
        """Return the connection of one sublayer, which knows its number."""
        check.size("placement", "streams", place.options["streams"])
        return replace(self, number=place.number)

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build the weights and the sublayer's norm."""
        return {"connection": self.weights(place, self.number, make), "norm": make()}

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the streams with their weights."""
        with full_precision(held):
            read, mix, write = (weight.to(accurate(held).dtype) for weight in own("connection")(held))
            u = weighted_sums(read.unsqueeze(-2), held).squeeze(-2)
        return own("norm")(u), (held, mix, write)

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the streams, mixed, with the output added."""
        held, mix, write = kept
        with full_precision(held):
            added = write.unsqueeze(-1) @ accurate(y.to(held.dtype)).unsqueeze(-2)
            n, dim = held.shape[-2:]
            total = torch.baddbmm(  # the backward pass keeps the streams, which are kept anyway, and y
                added.reshape(-1, n, dim), mix.mT.reshape(-1, n, n), accurate(held).reshape(-1, n, dim)
            )
            # no view: FSDP2 watches what a layer returns
            return torch.ops.aten._unsafe_view(total, held.shape).to(held.dtype)


def weighted_sums(weights: Tensor, streams: Tensor) -> Tensor:
    """Return sums of streams (..., n, dim), one for each row of ``weights`` (..., m, n)."""
    held = accurate(streams)
    return (weights.to(held.dtype) @ held).to(streams.dtype)


def parts(a: Tensor, sizes: list[int], scale: Tensor, bias: Tensor) -> list[Tensor]:
    """Cut ``a`` and ``bias`` along the last axis into parts; each part has a number of ``scale``."""
    cut = zip(a.split(sizes, -1), scale, bias.split(sizes), strict=True)
    return [part * factor + shift for part, factor, shift in cut]


def favour(number: int, streams: int, value: float, others: float) -> Tensor:
    """Return ``others`` for all streams but that of the sublayer's number, which has ``value``."""
    start = torch.full((streams,), others)
    start[number % streams] = value
    return start


SMALL = 0.02


def small_normal(*shape: int) -> nn.Parameter:
    """Return a matrix that starts normal, with a deviation of 0.02."""
    return nn.Parameter(torch.empty(shape).normal_(std=SMALL))
