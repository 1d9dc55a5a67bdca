"""Attentive batch normalization: gain and shift computed from the utterance."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method


@method(
    "attentive-batchnorm",
    paper="Attentive batch normalization for LSTM-based acoustic modeling of speech recognition (Ding et al., 2020), "
    "arXiv 2001.00129",
    evidence="abstract",
    shape="N T C",
    over="N T",
    inputs={"mask?": "N T : bool"},
    example={"hidden_features": 3},
    replaces=("batchnorm",),
    provenance="a reconstruction: sizes, activations and the place of the attention are this project's choice",
)
class AttentiveBatchNorm(Channelwise):
    """Normalize each feature over the batch's frames, then scale and shift it as a small network of the input says.

    For the input-to-hidden product of recurrent acoustic models. Where batches are small take ``layernorm``.

    With mean and biased variance over all real frames,

        h = (x - mean) / sqrt(var + eps)
        z = tanh(hidden(q)),   y = sigmoid(attention(z)) * weight_proj(z) * h + bias_proj(z)

    where q is the frame itself, or with ``level="utterance"`` the mean of the utterance's real frames. At the start
    the layer is a batch norm without gain. Evaluation uses the running moments; gain and shift still come from the
    input.

    Args:
        num_features: C, the size of the last axis.
        hidden_features: R, the width of the small network.
        level: ``"frame"`` or ``"utterance"``.
        eps: added to the variance under the root.
        momentum: share of the NEW batch in the running moments; the variance is the unbiased one.
        sync: join the moments over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, T, C)``; ``mask`` ``(N, T)`` is True at real frames, of which an utterance should have one at least.
    Other frames enter no statistic; they get numbers by the same formula.

    Attentive batch normalization for LSTM-based acoustic modeling of speech recognition (Ding, Guo, Dai, Du, 2020),
    arXiv 2001.00129. A reconstruction: the paper's description fixes that a network computes gain and shift, that
    attention regulates them and that there are two levels; sizes, activations and the place of the attention are
    chosen here.

    A batch with NaN or infinity enters the running moments, as in torch's BatchNorm; an empty one leaves them as they
    are.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        hidden_features: int,
        level: str = "frame",
        eps: float = 1e-5,
        momentum: float = 0.1,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, False, sync, process_group)
        width = check.size(self, "hidden_features", hidden_features)
        self.level = check.choice(self, "level", level, ("frame", "utterance"))
        self.hidden = nn.Linear(num_features, width)
        self.attention = _constant(width, num_features, 0.0)
        self.weight_proj = _constant(width, num_features, 2.0)
        self.bias_proj = _constant(width, num_features, 0.0)
        self.keep_moments(num_features, batches=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalize ``x``; in training move the running moments."""
        real = self._real(x, mask)
        wide = statistics.accurate(x)
        mean, var = self._mean_and_var(wide, real)
        z = torch.tanh(_apply(self.hidden, self._source(wide, real)))
        weight = torch.sigmoid(_apply(self.attention, z)) * _apply(self.weight_proj, z)
        h = (wide - mean) * (var + self.eps).rsqrt()
        return (weight * h + _apply(self.bias_proj, z)).to(x.dtype)

    def _real(self, x: Tensor, mask: Tensor | None) -> Tensor | None:
        check.features_last(self, x, self.num_features)
        if x.dim() != 3:
            raise ValueError(f"AttentiveBatchNorm: x must have shape (N, T, C), but its shape is {tuple(x.shape)}")
        if mask is not None:
            check.mask(self, "mask", mask, x.shape[:2], x)
            return mask.unsqueeze(-1)
        if self.training and self._alone() and x.numel() == self.num_features:
            raise ValueError("AttentiveBatchNorm: one frame in the batch has no variance; training needs more")
        return None

    def _mean_and_var(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        if not self.training:
            return statistics.accurate(self.running_mean), statistics.accurate(self.running_var)
        moments = statistics.moments(x, (0, 1), mask=real, sync=self.sync, group=self.process_group)
        self.follow(moments)
        return moments.mean, moments.var

    def _source(self, x: Tensor, real: Tensor | None) -> Tensor:
        return x if self.level == "frame" else statistics.mean_over(x, (1,), mask=real).unsqueeze(1)


def _constant(width: int, features: int, bias: float) -> nn.Linear:
    """A linear layer that starts as a constant."""
    layer = nn.Linear(width, features)
    nn.init.zeros_(layer.weight)
    nn.init.constant_(layer.bias, bias)
    return layer


def _apply(layer: nn.Linear, x: Tensor) -> Tensor:
    """Apply the layer in the type of ``x``, be its parameters of another."""
    return F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
