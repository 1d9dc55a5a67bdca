"""TaperNorm: an RMSNorm that becomes a fixed scaling during training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.catalog import method
from normkit.norm import Norm
from normkit.statistics import accurate

OUTSIDE = "observe and calibrate move it"


@method(
    "tapernorm",
    paper="Gated Removal of Normalization in Transformers Enables Stable Training and Efficient Inference "
    "(Kanavalau et al., 2026), arXiv 2602.10408",
    evidence="abstract",
    shape="... C",
    over="C",
    inputs={"gate?": "1 : unit"},
    replaces=("rmsnorm",),
    provenance="the equations as two public write-ups give them, which agree; decay and eps differ between them",
    exempt={
        "batches gains": "the gradient of a few numbers is torch's sum over all entries, a part on each thread",
        "moves scale": OUTSIDE,
        "moves gate": "the training loop sets it",
        "moves running_product": OUTSIDE,
        "moves running_square": OUTSIDE,
        "compile batches train": "torch compiles a graph twice that takes a single float64 number, not one of float32",
    },
)
class TaperNorm(Norm):
    """Mix an RMSNorm with a fixed scaling by a gate that closes during training, until no norm is left.

    For transformers that are trained with an RMSNorm and shall run without: it fades while training goes on. A model
    that is not trained further keeps ``rmsnorm``; one that needs no norm from the start takes ``dyt``.

    What is left folds into a linear layer beside it, by ``nk.fold`` once the buffer ``gate`` is 0. Over the last axis,
    with r = sqrt(mean(x²) + eps),

        y = gate * x / r * weight + (1 - gate) * scale * x * taper_weight

    Training begins with the gate at 1. Before it moves, :meth:`observe` takes some batches in and :meth:`calibrate`
    sets ``scale`` so that the two branches are near in least squares, and ``taper_weight`` to ``weight``. Then the gate
    goes down, :meth:`gate_at`, one for the whole model. Where the last norm of a model is tapered too, add
    :meth:`anchor` to the loss, or the logits grow without end.

    Args:
        dim: size of the last axis.
        decay: of the running averages that :meth:`observe` keeps.
        eps: added to the mean square under the root.

    ``norm(x, gate)``, gate a number or a tensor of one number in [0, 1]; without it the buffer ``gate`` counts, which
    starts at 1. ``scale`` is fixed after the calibration; ``taper_weight`` is learned further.

    Gated Removal of Normalization in Transformers Enables Stable Training and Efficient Inference (2026), arXiv
    2602.10408.
    """

    scale: Tensor
    gate: Tensor
    running_product: Tensor
    running_square: Tensor

    def __init__(self, dim: int, *, decay: float = 0.99, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.decay = check.number(self, "decay", decay, 0.0, math.nextafter(1.0, 0.0))
        self.rule = ops.Row(eps=check.eps(self, eps))
        self.weight = nn.Parameter(torch.ones(dim))
        self.taper_weight = nn.Parameter(torch.ones(dim))
        for name, start in (("scale", 1.0), ("gate", 1.0), ("running_product", 0.0), ("running_square", 0.0)):
            self.register_buffer(name, torch.tensor(start))

    def forward(self, x: Tensor, gate: Tensor | float | None = None) -> Tensor:
        """Normalize ``x`` as far as ``gate`` is open."""
        check.features_last(self, x, self.dim)
        z = accurate(x)
        opened = self._gate(gate, z)
        plain = z * (self.scale.to(z.dtype) * self.taper_weight.to(z.dtype))
        return (opened * ops.row_norm(z, self.weight, rule=self.rule) + (1 - opened) * plain).to(x.dtype)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Take one batch into the averages that :meth:`calibrate` uses; an empty one counts for nothing."""
        check.features_last(self, x, self.dim)
        if x.numel() == 0:
            return
        e = (accurate(x) * self.weight).square().sum(-1, keepdim=True)
        product, square = (e / self.root(x)).mean(), e.mean()
        self.running_product.lerp_(product.to(self.running_product.dtype), 1 - self.decay)
        self.running_square.lerp_(square.to(self.running_square.dtype), 1 - self.decay)

    @torch.no_grad()
    def calibrate(self) -> None:
        """Set ``scale`` and ``taper_weight`` so that the scaling without a norm is nearest to the norm."""
        scale = self.running_product / self.running_square
        if not torch.isfinite(scale):
            raise RuntimeError(
                "TaperNorm: calibrate needs batches in observe before, with finite values that are not all 0; the "
                f"averages are {float(self.running_product)} and {float(self.running_square)}"
            )
        self.scale.copy_(scale)
        self.taper_weight.copy_(self.weight)

    def root(self, x: Tensor) -> Tensor:
        """r, the root mean square of each vector, (..., 1)."""
        check.features_last(self, x, self.dim)
        return (accurate(x).square().mean(-1, keepdim=True) + self.rule.eps).sqrt()

    def anchor(self, x: Tensor, target: Tensor | float) -> Tensor:
        """The mean of (r - target)²: what keeps the length of ``x`` near an average of :meth:`root` taken before."""
        if not isinstance(target, Tensor):
            target = check.number(self, "target", target)
        return (self.root(x) - target).square().mean()

    @staticmethod
    def gate_at(step: int, start: int, end: int) -> float:
        """The gate at a step of training: 1 up to ``start``, half a cosine down, 0 from ``end`` on.

        >>> TaperNorm.gate_at(150, 100, 200)
        0.5
        """
        now = check.number("TaperNorm", "step", step)
        start = check.size("TaperNorm", "start", start, 0)
        check.size("TaperNorm", "end", end, start + 1)
        passed = (min(max(now, start), end) - start) / (end - start)
        return round((1 + math.cos(math.pi * passed)) / 2, 15)

    def _gate(self, gate: Tensor | float | None, z: Tensor) -> Tensor | float:
        if gate is None:
            return self.gate.to(z.dtype)
        if not isinstance(gate, Tensor):
            return check.number(self, "gate", gate, 0.0, 1.0)
        check.values(self, "gate", gate, gate.shape if gate.numel() == 1 else (1,), z)
        return gate.to(z.dtype).reshape(())
