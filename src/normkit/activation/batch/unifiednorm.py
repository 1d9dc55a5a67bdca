"""Unified normalization: PowerNorm's place, with a window of batch statistics and a filter for outliers."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.catalog import method
from normkit.norm import Norm
from normkit.ops.derivatives import once_differentiable
from normkit.running import Running, is_averaging, once, track


class _Step(NamedTuple):
    v: Tensor
    ratio: Tensor
    skip: Tensor
    at: Tensor
    early: Tensor


@method(
    "unifiednorm",
    paper="Unified Normalization for Accelerating and Stabilizing Transformers (Yang et al., 2022), arXiv 2208.01313",
    shape="N T C",
    over="N T",
    inputs={"pad_mask?": "N T : bool"},
    replaces=("layernorm",),
    exempt={
        "padding gradients": "the authors' backward pass corrects the gradient of padding as it does any other",
        "moves skip_counter": "it counts batches that lie far off, of which the sample is none",
        "gradcheck train": "training uses the authors' backward pass, which is not the derivative of the forward pass",
        "higher-derivatives": "training uses the authors' backward pass, which has no derivative of its own",
    },
)
class UnifiedNorm(Running, Norm):
    """Divide each feature by the root of the geometric mean of its last few batches' mean squares.

    For transformers whose normalization shall fold into the neighbouring linear at inference. Where a token must not
    depend on the batch, take ``rmsnorm``.

    With v the geometric mean over a window of the batches' means of x², per feature,

        y = weight * x / sqrt(v + eps) + bias

    In evaluation v is ``running_var``, a running average of v. The backward pass smooths its own statistic, which takes
    padding in, by the arithmetic mean over a window, and a running average of that. With ``outlier_filtration`` a batch
    whose statistics stick out of the window is not let into it.

    Args:
        num_features: C, the size of the last axis.
        window_size: batches in the window, or a pair (forward, backward).
        warmup_iters: steps that use the batch's own statistic, as those do that first fill the window.
        outlier_filtration: True for vision, False for text.
        eps: added to v under the root.
        momentum: share of the OLD value in the running averages.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, T, C)`` or ``(N, C)``; ``pad_mask`` ``(N, T)`` is True at padding.

    Unified Normalization for Accelerating and Stabilizing Transformers (Yang et al., 2022), arXiv 2208.01313.

    A batch with NaN or infinity enters the running averages, as in torch's BatchNorm; ``outlier_filtration`` does not
    recognize it. An empty one leaves them as they are. ``ema_gz`` and ``buffer_gz`` are in units of the loss scale,
    where there is one; a gradient that overflows does not enter them.
    """

    running_var: Tensor
    ema_gz: Tensor
    iters: Tensor
    buffer_x2: Tensor
    buffer_gz: Tensor
    skip_counter: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        window_size: int | tuple[int, int] = 4,
        warmup_iters: int = 4000,
        outlier_filtration: bool = False,
        eps: float = 1e-5,
        momentum: float = 0.9,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        pair = tuple(window_size) if isinstance(window_size, tuple | list) else (window_size, window_size)
        if len(pair) != 2:
            raise ValueError(f"UnifiedNorm: window_size must be an integer or a pair, not {window_size!r}")
        self.window = tuple(check.size(self, "window_size", w) for w in pair)
        self.warmup_iters = check.size(self, "warmup_iters", warmup_iters, 0)
        self.outlier_filtration = bool(outlier_filtration)
        self.eps = check.eps(self, eps)
        self.momentum = check.number(self, "momentum", momentum, 0, 1)
        self.sync, self.process_group = sync, process_group
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.keep(
            running_var=torch.ones(num_features),
            ema_gz=torch.zeros(num_features),
            iters=torch.zeros(1, dtype=torch.int64),
            buffer_x2=torch.zeros(self.window[0], num_features),
            buffer_gz=torch.zeros(self.window[1], num_features),
            skip_counter=torch.zeros(1, dtype=torch.int64),
        )

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """Normalize ``x``; in training move the windows and the running averages."""
        check.features_last(self, x, self.num_features)
        if x.dim() not in (2, 3):
            raise ValueError(f"UnifiedNorm: x must have shape (N, T, C) or (N, C), but its shape is {tuple(x.shape)}")
        if pad_mask is not None:
            check.mask(self, "pad_mask", pad_mask, (x.shape[0], x.shape[1] if x.dim() == 3 else 1), x)
        exact = statistics.accurate(x)
        if not self.training:
            return (self.weight * exact * (self.running_var + self.eps).rsqrt() + self.bias).to(x.dtype)
        with once(self, exact):
            step = self._step(exact, pad_mask)
        return _UnifiedStep.apply(exact, self.weight, self.bias, self.buffer_gz, self.ema_gz, step, self).to(x.dtype)

    @torch.no_grad()
    def _step(self, x: Tensor, pad_mask: Tensor | None) -> _Step:
        """Write this batch into the window, choose v, and move ``running_var``."""
        valid = None if pad_mask is None else ~(pad_mask.unsqueeze(-1) if x.dim() == 3 else pad_mask)
        x2, count = statistics.mean_and_count(
            x.square(), range(x.dim() - 1), mask=valid, group=self.process_group, sync=self.sync
        )
        some, width, window = (count > 0).any(), self.window[0], self.buffer_x2
        x2 = torch.where(some, x2, self.running_var.to(x2.dtype))
        if is_averaging(self.running_var):
            return self._average(x2, some)
        self.iters += some
        t = self.iters
        at = (torch.arange(width, device=x.device).unsqueeze(-1) == t % width) & some
        spread = window.sqrt().var() if window.numel() > 1 else window.new_zeros(())
        window.copy_(torch.where(at, x2.to(window.dtype), window))
        skip = torch.full_like(t, width <= 1, dtype=torch.bool) | ~some
        if self.outlier_filtration:
            sticks_out = (window.mean(0) - _geometric_mean(window) > spread * width).any()
            outlier = (t >= self.warmup_iters) & sticks_out
            window.copy_(torch.where(at & outlier, self.running_var, window))
            self.skip_counter += outlier
            skip = skip | outlier
        early = (t <= width) | (t < self.warmup_iters) | skip
        v = torch.where(early, x2, _geometric_mean(window).to(x2.dtype))
        ratio = ((v + self.eps) / (self.running_var + self.eps)).sqrt()
        stable = ~((t <= max(1000, self.warmup_iters)) | skip)
        ratio = torch.where(stable, ratio.clamp(0.2, 5.0), 1.0)
        track(self.running_var, v, 1 - self.momentum)
        back = self.window[1]
        at_back = (torch.arange(back, device=x.device).unsqueeze(-1) == t % back) & some
        return _Step(v, ratio, skip, at_back, (t <= back) | (t < self.warmup_iters) | skip)

    def _average(self, x2: Tensor, some: Tensor) -> _Step:
        """Let ``running_var`` and all of the window become the average over batches, each normalized by its own."""
        for running in (self.running_var, self.buffer_x2):
            track(running, x2.expand_as(running), (1 - self.momentum) * some)
        never = torch.zeros_like(some)
        return _Step(x2, torch.ones_like(x2), never, never, ~never)


def _geometric_mean(window: Tensor) -> Tensor:
    return window.log().mean(0).exp()


class _UnifiedStep(torch.autograd.Function):
    @staticmethod
    def forward(x, weight, bias, buffer_gz, ema_gz, step, norm):
        return x * (step.v + norm.eps).rsqrt() * weight + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _, ctx.buffer_gz, ctx.ema_gz, step, ctx.norm = inputs
        ctx.save_for_backward(x, weight, *step)
        ctx.joined = {"group": ctx.norm.process_group, "sync": ctx.norm.sync}

    @staticmethod
    @once_differentiable("UnifiedNorm: in training its backward pass has no derivative")
    def backward(ctx, saved, grad):
        (x, weight, *rest), norm, ema, window = saved, ctx.norm, ctx.ema_gz, ctx.buffer_gz
        step = _Step(*rest)
        z = x * (step.v + norm.eps).rsqrt()
        tokens = tuple(range(grad.dim() - 1))
        g = grad * weight * step.ratio
        gz, count = statistics.mean_and_count(g * z, tokens, **ctx.joined)
        gz = gz.to(ema.dtype)
        gz = torch.where((count > 0) & gz.isfinite(), gz, ema)  # a loss scale overflows by design
        window.copy_(torch.where(step.at, torch.where(step.skip, ema, gz), window))
        smoothed = torch.where(step.early, gz, window.mean(0))
        ema.copy_(norm.momentum * ema + (1 - norm.momentum) * smoothed)
        dx = (g - torch.where(step.skip, smoothed, ema) * z) * (step.v + norm.eps).rsqrt()
        dweight, dbias = (grad * step.ratio * z).sum(tokens), grad.sum(tokens)
        return dx, dweight.to(weight.dtype), dbias.to(weight.dtype), None, None, None, None
