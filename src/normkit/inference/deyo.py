"""DeYO: Tent on samples whose prediction falls when the shape of the object is destroyed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._norms import Names, entropies, gains_and_shifts, is_norm, norms_of, use_batch_statistics
from normkit.kinds import Adapter
from normkit.kinds.adapter import optimizer_builder
from normkit.kinds.guard import is_answer
from normkit.statistics import accurate

TRANSFORMS = ("patch", "pixel", "occlusion")
NO_FILTER = math.log(1000)  # what the authors' code drops all the same
AUTO: Literal["auto"] = "auto"
Margin = float | Literal["auto"]


@method(
    "deyo",
    paper="Entropy Is Not Enough for Test-Time Adaptation: From the Perspective of Disentangled Factors (Lee et al., "
    "2024), arXiv 2403.07366",
    shape="N C H W",
    example={"entropy_margin": None, "plpd_threshold": None, "patches": 2},
)
class DeYO(Adapter):
    """Adapt norms on samples that are sure, and less so when their shapes are destroyed.

    For images whose colour or background misleads: a prediction that does not hang on shape teaches nothing.

    Of the samples whose entropy H is below ``entropy_margin``, a copy is transformed; the drop is the probability of
    the label, less that of the copy. Those whose drop is above ``plpd_threshold`` give the loss, the mean of
    (exp(weight_margin - H) + exp(drop)) H, weights constant. Without samples there is no step.

    Args:
        model: any model of images (N, C, H, W) with norms; it is taken over. Batch norms use the batch's statistics.
        lr: the learning rate of SGD.
        momentum: of SGD.
        entropy_margin: the least entropy that is unsure; "auto": 0.5 log K of K classes; None: log 1000, as in the
            authors' code.
        weight_margin: the entropy that weighs 1; "auto": 0.4 log K.
        plpd_threshold: the least drop; None: any.
        transform: "patch", tiles in another order in each sample; "pixel", pixels in another order, the same in all;
            or "occlusion", a square of each channel's mean.
        patches: tiles along a side. Sides that they do not divide are resized and back.
        occlusion: row, column and size of the square; None: half of the shorter side, in the middle.
        weight_plpd: add exp(drop) to the weights.
        norms: the names of the norms whose parameters are trained; None: all. The authors leave out the last stage.
        guard: "off"; or, where the adaptation collapses, "stop" or "reset", as :class:`normkit.kinds.Guard` tells.

    ``order`` gives the order of tiles (N, patches²) or pixels (H W,); by default it is drawn. It returns the logits
    from before the step.

    Entropy Is Not Enough for Test-Time Adaptation (Lee et al., 2024), arXiv 2403.07366.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float = 2.5e-4,
        momentum: float = 0.9,
        entropy_margin: Margin | None = AUTO,
        weight_margin: Margin = AUTO,
        plpd_threshold: float | None = 0.2,
        transform: str = "patch",
        patches: int = 4,
        occlusion: Sequence[int] | None = None,
        weight_plpd: bool = True,
        norms: Names = None,
        guard: str = "off",
    ):
        own = norms_of(self, model, is_norm, norms)
        super().__init__(model, optimizer_builder(self, "sgd", lr=lr, momentum=momentum), guard)
        margins = {"entropy_margin": entropy_margin, "weight_margin": weight_margin}
        for name, value in margins.items():
            if value != AUTO and not (value is None and name == "entropy_margin"):
                check.number(self, name, value)
        self.entropy_margin, self.weight_margin = entropy_margin, weight_margin
        self.plpd_threshold = None if plpd_threshold is None else check.number(self, "plpd_threshold", plpd_threshold)
        self.transform = check.choice(self, "transform", transform, TRANSFORMS)
        self.patches = check.size(self, "patches", patches)
        if occlusion is not None and not (isinstance(occlusion, Sequence) and len(occlusion) == 3):
            raise ValueError(f"{type(self).__name__}: occlusion must be row, column and size, not {occlusion!r}")
        least = (0, 0, 1)
        self.occlusion = occlusion and [
            check.size(self, "occlusion", v, least=m) for v, m in zip(occlusion, least, strict=True)
        ]
        self.weight_plpd = bool(weight_plpd)
        self.train_only(gains_and_shifts(own))
        use_batch_statistics(model.modules())

    def observe(self, x: Tensor, order: Tensor | None = None) -> Tensor:
        """Predict ``x``, then learn from what hangs on shape."""
        if x.dim() != 4:
            raise ValueError(f"{type(self).__name__}: x must be images (N, C, H, W), but its shape is {tuple(x.shape)}")
        logits = self.logits(self.model, x)
        wide = accurate(logits)
        unsure, p = entropies(wide), torch.softmax(wide.detach(), 1)
        [sure] = (unsure < self._margin(self.entropy_margin, 0.5, wide)).nonzero(as_tuple=True)
        if not len(sure):
            if not is_answer(wide):
                self._skip()
            return logits
        with torch.no_grad():
            other = self.logits(self.model, self._destroy(x, sure, order))
        label = p[sure].argmax(1, keepdim=True)
        drop = (p[sure].gather(1, label) - torch.softmax(accurate(other), 1).gather(1, label)).squeeze(1)
        kept = torch.ones_like(sure, dtype=torch.bool) if self.plpd_threshold is None else drop > self.plpd_threshold
        if kept.any():
            losses, drop = unsure[sure[kept]], drop[kept]
            weights = torch.exp(self._margin(self.weight_margin, 0.4, wide) - losses.detach())
            self.step(self.gradients(((weights + drop.exp() if self.weight_plpd else weights) * losses).mean()))
        return logits

    def _margin(self, margin: Margin | None, share: float, logits: Tensor) -> float:
        if margin is None:
            return NO_FILTER
        return share * math.log(logits.shape[1]) if isinstance(margin, str) else margin

    def _destroy(self, x: Tensor, sure: Tensor, order: Tensor | None) -> Tensor:
        """Copies of the samples that are sure, without their shapes."""
        kept = x.detach()[sure]
        if self.transform == "occlusion":
            return self._occlude(kept)
        shape = (len(x), self.patches**2) if self.transform == "patch" else (math.prod(x.shape[2:]),)
        if order is None:
            order = torch.rand(shape, dtype=torch.float32, device=x.device).argsort(-1)
        check.index(self, "order", order, shape, shape[-1], x)
        if self.transform == "pixel":
            return kept.flatten(2)[..., order].view_as(kept)
        return _shuffle(kept, order[sure], self.patches)

    def _occlude(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        size = min(height, width) // 2
        row, column, size = self.occlusion or ((height - size) // 2, (width - size) // 2, max(size, 1))
        x = x.clone()
        mean = x.mean((2, 3), keepdim=True)
        x[..., row : row + size, column : column + size] = mean
        return x


def _shuffle(x: Tensor, order: Tensor, patches: int) -> Tensor:
    """Images whose tile i is the tile ``order[i]`` of ``x``."""
    whole = x.shape[-2:]
    sides = [side // patches * patches for side in whole]
    if not all(sides):
        raise ValueError(f"DeYO: patches={patches} is more than the sides of images of {tuple(whole)}")
    if sides != list(whole):
        x = _resize(x, sides)
    n, c, height, width = x.shape
    tiles = x.reshape(n, c, patches, height // patches, patches, width // patches).permute(0, 2, 4, 1, 3, 5)
    tiles = tiles.flatten(1, 2)[torch.arange(n, device=x.device).unsqueeze(1), order]
    tiles = tiles.unflatten(1, (patches, patches)).permute(0, 3, 1, 4, 2, 5).reshape(x.shape)
    return tiles if sides == list(whole) else _resize(tiles, list(whole))


def _resize(x: Tensor, sides: list[int]) -> Tensor:
    return F.interpolate(accurate(x), size=sides, mode="bilinear", antialias=True).to(x.dtype)
