"""PowerNorm: batch statistics without a mean, for transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.derivatives import once_differentiable
from normkit.running import Running, is_averaging, move_finite, once, track

GROUP_EPS = 1e-5  # fixed in the authors' code; the eps argument does not reach it


@method(
    "powernorm",
    paper="PowerNorm: Rethinking Batch Normalization in Transformers (Shen et al., 2020), arXiv 2003.07845",
    shape="T N C",
    over="T N",
    inputs={"pad_mask?": "N T : bool"},
    replaces=("layernorm", "batchnorm"),
    invariant=(),
    exempt={
        "gradcheck train": "training uses the authors' backward pass, which is not the derivative of the forward pass",
        "higher-derivatives": "training uses the authors' backward pass, which has no derivative of its own",
    },
)
class PowerNorm(Running, Norm):
    """Divide each feature by a running root mean square over all tokens of the batch.

    For transformers whose statistics over tokens shall be fixed numbers at inference; the division of each token by its
    groups' root mean square stays, so that it does not fold. Where a token must not depend on the batch, take
    ``rmsnorm``.

    With phi the mean of x² over all tokens that are not padding, per feature,

        y = weight * x / sqrt(phi + eps) + bias

    where phi is the batch's during the first ``warmup_iters`` steps and the running one afterwards and in evaluation.
    The backward pass replaces the derivative of phi by a running average of the gradient's projection, ``ema_gz``,
    which takes padding in.
    Before all this, each of ``group_num`` groups of features is divided by its own root mean square.

    Args:
        num_features: C, the size of the last axis.
        eps: added to phi under the root.
        alpha_fwd: share of the old value in ``running_phi``.
        alpha_bkw: share of the old value in ``ema_gz``.
        warmup_iters: steps that use the batch's own phi.
        group_num: number of feature groups, a divisor of C.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(T, N, C)``, time first, or ``(N, C)``; ``pad_mask`` ``(N, T)`` is True at padding.

    PowerNorm: Rethinking Batch Normalization in Transformers (Shen et al., 2020), arXiv 2003.07845.

    Differs from the paper, as the authors' code does, in: the gradient is divided by the batch's phi also after the
    warm-up, and ``running_phi`` moves twice a step during the warm-up. A batch with NaN or infinity enters the running
    averages, as in torch's BatchNorm; an empty one leaves them as they are. ``ema_gz`` is in units of the loss scale,
    where there is one; a gradient that overflows leaves it as it is.
    """

    running_phi: Tensor
    ema_gz: Tensor
    iters: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        alpha_fwd: float = 0.9,
        alpha_bkw: float = 0.9,
        warmup_iters: int = 10000,
        group_num: int = 1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        self.eps = check.eps(self, eps)
        self.alpha_fwd = check.number(self, "alpha_fwd", alpha_fwd, 0, 1)
        self.alpha_bkw = check.number(self, "alpha_bkw", alpha_bkw, 0, 1)
        self.warmup_iters = check.size(self, "warmup_iters", warmup_iters, 0)
        self.group_num = check.size(self, "group_num", group_num)
        check.divides(self, "group_num", group_num, "num_features", num_features)
        self.sync, self.process_group = sync, process_group
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep(
            running_phi=torch.ones(num_features),
            ema_gz=torch.zeros(num_features),
            iters=torch.zeros(1, dtype=torch.int64),
        )

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """Normalize ``x``; in training move the running averages."""
        valid = self._valid(x, pad_mask)
        scaled = self._scale_groups(statistics.accurate(x))
        if not self.training:
            y = self.weight * scaled * (self.running_phi + self.eps).rsqrt() + self.bias
            return y.to(x.dtype)
        with once(self, x):
            phi, batch_phi = self._step(scaled, valid)
        return _PowerStep.apply(scaled, self.weight, self.bias, phi, batch_phi, self.ema_gz, self).to(x.dtype)

    def _valid(self, x: Tensor, pad_mask: Tensor | None) -> Tensor | None:
        check.features_last(self, x, self.num_features)
        if x.dim() not in (2, 3):
            raise ValueError(f"PowerNorm: x must have shape (T, N, C) or (N, C), but its shape is {tuple(x.shape)}")
        if pad_mask is None:
            return None
        check.mask(self, "pad_mask", pad_mask, (x.shape[-2], x.shape[0] if x.dim() == 3 else 1), x)
        valid = ~pad_mask.T.unsqueeze(-1)
        return valid if x.dim() == 3 else valid[0]

    def _scale_groups(self, x: Tensor) -> Tensor:
        groups = x.unflatten(-1, (self.group_num, -1))
        return (groups / (groups.square().mean(-1, keepdim=True) + GROUP_EPS).sqrt()).flatten(-2)

    @torch.no_grad()
    def _step(self, x: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the phi to divide by and the batch's, and move the counter and ``running_phi``."""
        batch_phi, count = statistics.mean_and_count(
            x.square(), range(x.dim() - 1), mask=valid, group=self.process_group, sync=self.sync
        )
        some, old, anew = count > 0, self.running_phi.to(batch_phi.dtype, copy=True), is_averaging(self.running_phi)
        if not anew:
            self.iters += some.any()
        t = self.iters.to(batch_phi.dtype)
        batch_phi = torch.where(some, batch_phi, old)
        kept = torch.where(t < self.warmup_iters, (t - 1) / t.clamp(min=1), 1)
        track(self.running_phi, batch_phi, torch.where(some, 1 - self.alpha_fwd * kept, 0))
        return torch.where((t <= self.warmup_iters) | anew, batch_phi, old), batch_phi


class _PowerStep(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, phi, batch_phi, ema_gz, norm):
        return x * (phi + norm.eps).rsqrt() * weight + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _, phi, batch_phi, ctx.ema_gz, ctx.norm = inputs
        ctx.save_for_backward(x, weight, phi, batch_phi)
        ctx.joined = {"group": ctx.norm.process_group, "sync": ctx.norm.sync}

    @staticmethod
    @once_differentiable("PowerNorm: in training its backward pass has no derivative")
    def backward(ctx, saved, grad):
        (x, weight, phi, batch_phi), norm = saved, ctx.norm
        z = x * (phi + norm.eps).rsqrt()
        tokens = tuple(range(grad.dim() - 1))
        projected = grad * weight - (1 - norm.alpha_bkw) * ctx.ema_gz * z
        moved = statistics.mean_over(projected * z, tokens, **ctx.joined)
        move_finite(ctx.ema_gz, ctx.ema_gz + moved)
        dx = projected * (batch_phi + norm.eps).rsqrt()
        dweight, dbias = (grad * z).sum(tokens), grad.sum(tokens)
        return dx, dweight.to(weight.dtype), dbias.to(weight.dtype), None, None, None, None
