"""The loss around the weights of a model, along random directions that are as long as its filters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check
from normkit.parameters import copy_model
from normkit.surgery.statistics.batch_statistics import batch_norms, estimate
from normkit.watching.drawn import Drawn, grid, line, picture
from normkit.watching.inspecting import batches_for, feed_to, loss_of
from normkit.weight.filter_normalization import random_direction

Loss = Callable[[Any, Any], Tensor]  # of a model's output and the batch
SEEDS = -(2**63), 2**64 - 1  # that torch takes
CAPTION = "Random directions, each filter of them as long as the model's own; vectors stand still. "


@dataclass(frozen=True)
class Landscape(Drawn):
    """The loss at ``a`` times one direction, (A,), or at ``a`` and ``b`` times two, (A, B), and how it was taken."""

    a: Tensor
    b: Tensor | None
    loss: Tensor
    how: str
    name = "landscape"

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        return "the loss around the weights", self.how

    def pictures(self) -> list[dict[str, Any]]:
        """Draw a line, or contours."""
        if self.b is None:
            traces = [line("loss", self.a.tolist(), self.loss.tolist(), "var(--c0)")]
            return [picture("Loss along a direction", CAPTION + self.how, traces, "along the direction", "loss")]
        contours = [grid("contour", self.a.tolist(), self.b.tolist(), self.loss.mT.tolist())]
        words = ("along the first direction", "along the second")
        return [picture("Loss on a plane", CAPTION + self.how, contours, *words)]

    def __str__(self) -> str:
        middle, least, most = self.at_weights(), float(self.loss.min()), float(self.loss.max())
        return f"loss {middle:.4g} at the weights, {least:.4g} to {most:.4g} around them; {self.how}"

    def at_weights(self) -> float:
        """Return the loss where nothing was moved."""
        places = [axis.abs().argmin() for axis in (self.a, self.b) if axis is not None]
        return float(self.loss[tuple(places)])


@torch.no_grad()
def landscape(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    axes: int = 1,
    points: int = 21,
    span: float = 1.0,
    recalibrated: bool = True,
    loss: Loss = loss_of,
    seed: int = 0,
) -> Landscape:
    """Take the loss of a model along one or two random directions through its weights.

    For pictures of how sharp a minimum is. The directions are normalized by filters (``filter-normalization``), so that
    models of large and of small weights compare. A copy is evaluated; the model stays as it was.

    Args:
        model: any model.
        batches: what its loss is the mean of: tuples of inputs and classes, or keyword arguments.
        axes: one direction or two.
        points: along each; an odd number has the weights themselves among them.
        span: how far, in lengths of the filters.
        recalibrated: take the running statistics of batch norms anew at every point; those of the middle do not
            belong to weights that were moved, and show cliffs that no training meets.
        loss: of the model's output and the batch; by default the model's own, or that of the batch's classes.
        seed: of the directions, and of dropout where running statistics are taken anew.

    >>> found = landscape(nn.Linear(2, 2), [(torch.eye(2), torch.tensor([0, 1]))], points=5)
    >>> found.loss.shape, found.how
    (torch.Size([5]), 'seed 0')
    """
    axes, points = check.size("landscape", "axes", axes), check.size("landscape", "points", points, 2)
    span = check.number("landscape", "span", span, 0.0, open_low=True)
    if axes > 2:
        raise ValueError(f"landscape: axes must be 1 or 2, not {axes}")
    seed, first = check.size("landscape", "seed", seed, *SEEDS), next(model.parameters(), None)
    if first is None:
        raise ValueError(f"landscape: model must have parameters, and {type(model).__name__} has none")
    batches = batches_for("landscape", batches)
    chance, own = torch.Generator().manual_seed(seed), copy_model(model).eval()
    directions = [random_direction(own.cpu(), generator=chance) for _ in range(axes)]
    own.to(first.device)
    anew = recalibrated and bool(batch_norms(own))
    start = {name: p.clone() for name, p in own.named_parameters()}
    along = torch.linspace(-span, span, points, device="cpu")

    def at(*place: float) -> Tensor:
        for name, p in own.named_parameters():
            moves = (share * way[name].to(p) for share, way in zip(place, directions, strict=True))
            p.copy_(start[name] + sum(moves))
        with torch.random.fork_rng():
            torch.manual_seed(seed)  # every point has the same dropout
            if anew:
                estimate("landscape", own, batches)
            losses = [loss(feed_to("landscape", own, batch), batch) for batch in batches]
        return torch.stack([value.float().cpu() for value in losses]).mean()

    cells = torch.cartesian_prod(*[along] * axes).view(-1, axes)
    losses = torch.stack([at(*cell.tolist()) for cell in cells]).view([points] * axes)
    how = f"seed {seed}" + (", running statistics taken anew at every point" if anew else "")
    return Landscape(along, along if axes == 2 else None, losses, how)
