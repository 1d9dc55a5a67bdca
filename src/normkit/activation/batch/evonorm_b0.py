"""EvoNorm-B0."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit.activation.batch._evonorm import EvoNormB
from normkit.catalog import method


def _timm(features: int) -> nn.Module:
    from timm.layers import EvoNorm2dB0 as Peer

    return Peer(features, eps=1e-5)


@method(
    "evonorm-b0",
    paper="Evolving Normalization-Activation Layers (Liu et al., 2020), arXiv 2004.02967",
    evidence="equations",
    shape="N C +",
    over="N *",
    aliases={"EvoNorm2dB0": {"eps": 1e-3, "unbiased": True}},
    replaces=("batchnorm",),
    dialects={"unbiased": (False, True)},
    provenance="the authors' TensorFlow code, restated",
    peer=_timm,
)
class EvoNormB0(EvoNormB):
    """Divide each channel by the larger of the batch's standard deviation and a line through the sample's own.

    In place of norm and activation both. With small batches take ``evonorm-s0``. Unlike ``batchnorm`` it does not fold
    into the layer beside it.

    With s_b² the biased variance over batch and space and s_i² that over space, per sample, eps added to each,

        y = weight * x / max(s_b, v x + s_i) + bias

    Neither x is centered nor is there a ReLU: the maximum is the non-linearity. In evaluation s_b comes from
    ``running_var``; s_i is always the input's.

    Args:
        num_features: C, the number of channels.
        eps: added to the variances under the roots.
        momentum: share of the NEW batch in ``running_var``.
        affine: learn ``weight`` and ``bias``; ``v`` belongs to the non-linearity and stays.
        apply_act: without it the layer is only weight * x + bias, as in the authors' code, and has no ``v``.
        unbiased: track the variance that is divided by n - 1, as timm's does.
        sync: join the batch's variance over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C, *space)`` with at least one axis of space.

    Evolving Normalization-Activation Layers (Liu, Brock, Simonyan, Le, 2020), arXiv 2004.02967.

    The biased variance is tracked, as in the authors' code, unless ``unbiased``. A batch with NaN or infinity
    enters ``running_var``, as in torch's BatchNorm.
    """

    v: Tensor
    least_axes = 3

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        apply_act: bool = True,
        unbiased: bool = False,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(
            num_features, eps=eps, momentum=momentum, apply_act=apply_act, sync=sync, process_group=process_group
        )
        self.affine, self.unbiased = bool(affine), bool(unbiased)
        if not affine:
            self.weight = self.bias = None
        if apply_act:
            self.v = nn.Parameter(torch.ones(num_features))
        else:
            self.running_var = None

    def _rival(self, x: Tensor) -> Tensor:
        space = tuple(range(2, x.dim()))
        mean = x.mean(space, keepdim=True)
        deviation = ((x - mean).square().mean(space, keepdim=True) + self.eps).sqrt()
        return x * self.v.reshape(-1, *[1] * (x.dim() - 2)) + deviation
