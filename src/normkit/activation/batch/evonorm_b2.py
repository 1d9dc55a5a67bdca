"""EvoNorm-B2."""

from __future__ import annotations

from torch import Tensor, nn

from normkit.activation.batch._evonorm import EvoNormB
from normkit.catalog import method


def _timm(features: int) -> nn.Module:
    from timm.layers import EvoNorm2dB2 as Peer

    return Peer(features)


@method(
    "evonorm-b2",
    paper="Evolving Normalization-Activation Layers (Liu et al., 2020), arXiv 2004.02967",
    evidence="library",
    shape="N C *",
    over="N *",
    aliases=("EvoNorm2dB2",),
    replaces=("batchnorm",),
    provenance="no authors' code; as in timm",
    peer=_timm,
)
class EvoNormB2(EvoNormB):
    """Divide each channel by the larger of the batch's deviation and the sample's root mean square less x.

    In place of norm and activation both. With small batches take ``evonorm-s0``. Unlike ``batchnorm`` it does not fold
    into the layer beside it.

    With s_b² the biased variance over batch and space and rms² the mean of x² over space, per sample, eps added to
    each,

        y = weight * x / max(s_b, rms - x) + bias

    In evaluation s_b comes from ``running_var``; rms is always the input's.

    Args:
        num_features: C, the number of channels.
        eps: added under the roots.
        momentum: share of the NEW batch in ``running_var``, which averages unbiased variances.
        apply_act: without it the layer is only weight * x + bias.
        sync: join the batch's variance over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``.

    Evolving Normalization-Activation Layers (Liu, Brock, Simonyan, Le, 2020), arXiv 2004.02967, appendix; there is no
    authors' code, timm's is followed. A batch with NaN or infinity enters ``running_var``, as in torch's BatchNorm.
    """

    def _rival(self, x: Tensor) -> Tensor:
        return self._root_mean_square(x) - x
