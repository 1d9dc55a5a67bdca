"""SimFlow: a flow in the latent space of an autoencoder, trained with it, at a variance that stays."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.density._flows import flow_of, width
from normkit.density._inputs import gaussian, linear
from normkit.kinds import Loss
from normkit.statistics import reals


class EvidenceBound(NamedTuple):
    """The loss, and its parts."""

    loss: Tensor
    reconstruction: Tensor
    nll: Tensor


@method(
    "simflow-objective",
    paper="SimFlow: Simplified and End-to-End Training of Latent Normalizing Flows (Zhao et al., 2025), arXiv "
    "2512.04084",
    evidence="equations",
    shape="N C",
    inputs={"mean": "N 3", "noise": "N 3"},
    example={"flow": 3, "decoder": lambda features: features},
    provenance="the equations alone; the authors' code and weights of the terms were not to be had",
)
class SimFlowObjective(Loss):
    """Train encoder, decoder and a flow of the latents at once: the noise in the latents keeps one variance.

    Instead of a frozen autoencoder, and of noise that is added to data and taken off samples. With h = mean +
    sqrt(variance) noise and means over samples and numbers,

        reconstruction = |x - decoder(h)|^2,    nll = -log_det - log N(flow(h); 0, I)
        loss = reconstruction + weight nll

    With a variance that the encoder learns, it would shrink the latents to raise their likelihood.

    Args:
        flow: a transform of latents, or their dimension, which is an affine map.
        decoder: a module from latents to data; or the data's dimension D, which is a linear layer; only then is the
            shape of what it returns x's by itself.
        variance: of the noise; 0.5 is the authors'.
        weight: of the flow's term.

    ``loss(x, mean, noise)``: data (N, ...), what the encoder makes of it, and normal numbers like it. Returns ``loss``,
    ``reconstruction`` and ``nll``, the last in nats for each number of a latent. The gradient of both reaches the
    encoder.

    SimFlow: Simplified and End-to-End Training of Latent Normalizing Flows (2025).
    """

    def __init__(self, flow: int | nn.Module, *, decoder: int | nn.Module, variance: float = 0.5, weight: float = 1.0):
        super().__init__()
        self.flow = flow_of(self, "flow", flow)
        if not isinstance(decoder, nn.Module):
            if isinstance(flow, nn.Module):
                raise ValueError("SimFlowObjective: decoder must be a module where flow is one")
            decoder = nn.Linear(flow, check.size(self, "decoder", decoder))
        self.decoder = decoder
        self.variance = check.number(self, "variance", variance, 0.0)
        self.weight = check.number(self, "weight", weight, 0.0)

    def forward(self, x: Tensor, mean: Tensor, noise: Tensor) -> EvidenceBound:  # type: ignore[override]
        """Return the loss and its parts."""
        check.floating(self, x)
        check.floating(self, mean, "mean")
        wide = reals(self, "x", x, (None, *[None] * (x.dim() - 1)))
        dim = width(self.flow)
        if dim is not None:
            check.features_last(self, mean, dim, "mean")
        center = reals(self, "mean", mean, (len(x), *[None] * (mean.dim() - 1)), x)
        h = center + math.sqrt(self.variance) * reals(self, "noise", noise, mean.shape, x)
        decoded = linear(h, self.decoder) if isinstance(self.decoder, nn.Linear) else self.decoder(h)
        check.shape(self, "what decoder returns", decoded, x.shape)
        z, log_det = self.flow(h)
        nll = -(gaussian(z.flatten(1), 0.0, 1.0) + log_det).mean() / math.prod(mean.shape[1:])
        reconstruction = (wide - decoded).square().mean()
        return EvidenceBound(*(v.to(x.dtype) for v in (reconstruction + self.weight * nll, reconstruction, nll)))
