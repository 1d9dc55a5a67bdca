"""FakeLayerNorm: a LayerNorm on its way to being removed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.running import Running, track


@method(
    "fake-layernorm",
    paper="Transformers Don't Need LayerNorm at Inference Time (Baroni et al., 2025), arXiv 2507.02559",
    shape="N * C",
    over="N * C",
    replaces=("layernorm",),
    invariant=("shift",),
    exempt={
        **dict.fromkeys(("moves fixed_std", "moves is_fake"), "the step that fixes the deviation sets it"),
        "rest": "the deviation is followed in every pass, for the step that fixes it",
        "vmap": "the running deviation moves in every pass",
    },
)
class FakeLayerNorm(Running, Norm):
    """Normalize as LayerNorm does, until asked to divide by a constant instead, which makes the map linear.

    For taking the norms out of a trained pre-norm transformer, one at a time while it is fine-tuned. For RMSNorms take
    ``tapernorm``, which fades them by a gate.

    Every pass, in evaluation too, follows the deviation s = mean over positions of sqrt(v + eps); momentum is the share
    of the old value:

        running_std <- momentum * running_std + (1 - momentum) * s
        real:  y = (x - mu) / sqrt(v + eps) * weight + bias,    mu and v over the last axis, v biased
        fake:  y = (x - mu) / fixed_std * weight + bias

    The procedure: start from measured deviations, and call :meth:`sync_std` and :meth:`remove` at each removal. The
    norms before the feedforward come first, from block 0 upward, a few steps apart, then those before attention, then
    the final one. What is left is linear and folds into the next matrix.

    Args:
        dim: size of the last axis.
        average_std: where both deviations start.
        momentum: the share of the old running deviation.
        bias: learn a shift.
        eps: added to the variance under the root.
        sync: follow the deviation over all processes' positions.
        process_group: the processes to share with; default all.

    State: ``weight``, ``bias`` (dim,); ``running_std``, ``fixed_std``, ``is_fake`` (1,). A NaN batch enters the running
    deviation.

    Transformers Don't Need LayerNorm at Inference Time (Baroni et al., 2025), arXiv 2507.02559.

    Differs from the authors' code in: without a bias the input is centered and divided too (theirs returns x *
    weight, by operator precedence).
    """

    bias: nn.Parameter | None
    running_std: Tensor
    fixed_std: Tensor
    is_fake: Tensor

    def __init__(
        self,
        dim: int,
        *,
        average_std: float = 1.0,
        momentum: float = 0.9,
        bias: bool = True,
        eps: float = 1e-5,
        sync: bool = False,
        process_group: ProcessGroup | None = None,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.momentum = check.number(self, "momentum", momentum, 0.0, 1.0)
        std = check.number(self, "average_std", average_std, 0.0, open_low=True)
        self.eps = check.eps(self, eps)
        self.sync, self.process_group = bool(sync), process_group
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_parameter("bias", nn.Parameter(torch.zeros(dim)) if bias else None)
        self.keep(
            running_std=torch.full((1,), std),
            fixed_std=torch.full((1,), std),
            is_fake=torch.zeros(1, dtype=torch.bool),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Normalize ``x`` (..., dim), truly or not."""
        check.features_last(self, x, self.dim)
        wide = statistics.accurate(x)
        centered = wide - wide.mean(-1, keepdim=True)
        std = (centered.square().mean(-1, keepdim=True) + self.eps).sqrt()
        self._follow(std)
        y = centered / torch.where(self.is_fake, self.fixed_std.to(std.dtype), std) * self.weight
        return (y if self.bias is None else y + self.bias).to(x.dtype)

    def _follow(self, std: Tensor) -> None:
        if std.numel() or self.sync:
            axes = range(std.dim())
            mean = statistics.mean_over(std.detach(), axes, sync=self.sync, group=self.process_group)
            track(self.running_std, mean, 1 - self.momentum)

    @torch.no_grad()
    def sync_std(self) -> None:
        """Fix the deviation at its running value."""
        self.fixed_std.copy_(self.running_std)

    @torch.no_grad()
    def remove(self) -> None:
        """Divide by the fixed deviation from here on."""
        self.is_fake.fill_(True)
