"""EBFlow: a flow of linear layers that is trained by its score, so that no determinant is needed."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import linear
from normkit.kinds import Loss
from normkit.statistics import accurate, reals


@method(
    "ebflow",
    paper="Training Energy-Based Normalizing Flow with Score-Matching Objectives (Chao et al., 2023), arXiv 2305.15267",
    shape="N C",
    inputs={"probe": "N C"},
)
class EBFlow(Loss):
    """Match the score of a flow of linear layers and monotone curves to the data's.

    For flows of full linear layers in many dimensions, where maximum likelihood costs the cube of the dimension a step:
    here it is the square. Couplings have cheap determinants, and need none of this. The density itself, ``log_prob``,
    still takes the determinants.

    The determinants of the weights do not depend on x, so that score matching never works them out. With z the last
    layer, curves a u + (1 - a) softplus(u) between layers, and s the gradient of

        neg_energy(x) = -|z|^2 / 2 - D/2 log 2 pi + sum log(a + (1 - a) sigmoid(u))

    the objectives are, as means over the samples with a probe v,

        ssm    |s|^2 / 2 + v^T (ds/dx) v
        dsm    |s(x + std v) + v / std|^2 / 2
        fdssm  ((E(x+d) - E(x-d))^2 / 8 - E(x+d) - E(x-d) + 2 E(x)) D / eps^2,  d = eps v / sqrt(|v|^2 + 1e-8)

    with E = -neg_energy.

    Args:
        dim: D.
        layers: how many linear layers.
        slope: a.
        objective: ``"ssm"``, whose probe is of signs, ``"dsm"`` or ``"fdssm"``, whose probes are normal.
        std: of the noise of "dsm".
        eps: the step of "fdssm".

    A call is ``objective(x, probe)``, a single number: samples (N, D), and probes (N, D), drawn if left out.
    ``log_prob(x)`` adds the determinants, ``neg_energy(x)`` does not; both (N,). State: ``layers.i.weight`` and
    ``layers.i.bias``.

    Training Energy-Based Normalizing Flow (Chao et al., 2023), arXiv 2305.15267.

    Differs from the authors' code in: the factor D of "fdssm" is that of their small examples; for images they have
    none, and divide the others by D.
    """

    def __init__(
        self,
        dim: int,
        *,
        layers: int = 2,
        slope: float = 0.3,
        objective: str = "ssm",
        std: float = 0.1,
        eps: float = 0.1,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.slope = check.number(self, "slope", slope, 0.0, 1.0, open_low=True)
        self.matching = check.choice(self, "objective", objective, ("ssm", "dsm", "fdssm"))
        self.std = check.number(self, "std", std, 0.0, open_low=True)
        self.eps = check.eps(self, eps)
        if objective == "fdssm" and not self.eps:
            raise ValueError(f"{type(self).__name__}: eps must be above 0 with objective='fdssm'")
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(check.size(self, "layers", layers)))

    def forward(self, x: Tensor, probe: Tensor | None = None) -> Tensor:
        """Return the objective at samples (N, D), a single number."""
        wide = reals(self, "x", x, (None, self.dim))
        v = self._draw_probe(wide) if probe is None else reals(self, "probe", probe, x.shape, x).to(wide.dtype)
        loss = {"ssm": self._sliced_score, "dsm": self._denoising_score, "fdssm": self._differences}[self.matching]
        return loss(wide, v).mean().to(x.dtype)

    def objective(self, x: Tensor, probe: Tensor | None = None) -> Tensor:
        """Return the objective at samples (N, D), a single number."""
        return self(x, probe)

    def neg_energy(self, x: Tensor) -> Tensor:
        """Return what of the log density depends on x, (N,)."""
        return self._neg_energy(reals(self, "x", x, (None, self.dim))).to(x.dtype)

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log density of each sample (N, D)."""
        part = self._neg_energy(reals(self, "x", x, (None, self.dim)))
        dets = [torch.linalg.slogdet(accurate(layer.weight).to(part.dtype))[1] for layer in self._linear]
        return (part + torch.stack(dets).sum()).to(x.dtype)

    @property
    def _linear(self) -> list[nn.Linear]:
        return cast(list[nn.Linear], list(self.layers))

    def _draw_probe(self, x: Tensor) -> Tensor:
        return torch.randint_like(x, 2) * 2 - 1 if self.matching == "ssm" else torch.randn_like(x)

    def _sliced_score(self, x: Tensor, v: Tensor) -> Tensor:
        return self._score(x).square().sum(1) / 2 + self._curvature(x, v)

    def _denoising_score(self, x: Tensor, v: Tensor) -> Tensor:
        return (self._score(x + self.std * v) + v / self.std).square().sum(1) / 2

    def _differences(self, x: Tensor, v: Tensor) -> Tensor:
        d = self.eps * v / (v.square().sum(1, keepdim=True) + 1e-8).sqrt()
        after, before, here = (-self._neg_energy(at) for at in (x + d, x - d, x))
        return ((after - before).square() / 8 - after - before + 2 * here) * (self.dim / self.eps**2)

    def _layer_outputs(self, x: Tensor) -> list[Tensor]:
        """What each layer returns, before its curve."""
        outputs = [linear(x, self._linear[0])]
        for layer in self._linear[1:]:
            u = outputs[-1]
            outputs.append(linear(self.slope * u + (1 - self.slope) * F.softplus(u), layer))
        return outputs

    def _rise(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The curve's first, second and third derivative."""
        up = torch.sigmoid(u)
        second = (1 - self.slope) * up * (1 - up)
        return self.slope + (1 - self.slope) * up, second, second * (1 - 2 * up)

    def _neg_energy(self, x: Tensor) -> Tensor:
        *inner, z = self._layer_outputs(x)
        part = -z.square().sum(1) / 2 - self.dim / 2 * math.log(2 * math.pi)
        return part + sum(self._rise(u)[0].log().sum(1) for u in inner)

    def _score(self, x: Tensor) -> Tensor:
        """The gradient of the negative energy, layer by layer from the last."""
        *inner, z = self._layer_outputs(x)
        gradient = -z
        for layer, u in zip(self._linear[:0:-1], reversed(inner), strict=True):
            first, second, _ = self._rise(u)
            gradient = gradient @ layer.weight.to(x.dtype) * first + second / first
        return gradient @ self._linear[0].weight.to(x.dtype)

    def _curvature(self, x: Tensor, v: Tensor) -> Tensor:
        """The second derivative of the negative energy along v: two orders carried through the layers."""
        weights = [layer.weight.to(x.dtype) for layer in self._linear]
        *inner, z = self._layer_outputs(x)
        one, two, curvature = F.linear(v, weights[0]), torch.zeros_like(x), torch.zeros_like(x)
        for u, weight in zip(inner, weights[1:], strict=True):
            first, second, third = self._rise(u)
            ratio = second / first
            curvature = curvature + (third / first - ratio.square()) * one.square() + ratio * two
            one, two = F.linear(first * one, weight), F.linear(second * one.square() + first * two, weight)
        return (curvature - one.square() - z * two).sum(1)
