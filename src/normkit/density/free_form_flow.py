"""The free-form flow: an autoencoder of any architecture, trained by maximum likelihood."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.density._inputs import linear
from normkit.kinds import Method
from normkit.statistics import reals

SURROGATE = "the gradient is that of the log-determinant, estimated; the loss' own is another"


class _Network(nn.Module):
    """One hidden layer with SiLU, and its derivative along directions."""

    def __init__(self, inputs: int, hidden: int, outputs: int):
        super().__init__()
        self.hidden, self.output = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return linear(F.silu(linear(x, self.hidden)), self.output)

    def along(self, x: Tensor, directions: Tensor) -> Tensor:
        """Derivatives at ``x`` (N, I) along directions (N, K, I)."""
        inner = linear(x, self.hidden)
        up = torch.sigmoid(inner)
        rise = up * (1 + inner * (1 - up))
        moved = F.linear(directions, self.hidden.weight.to(x.dtype)) * rise.unsqueeze(1)
        return F.linear(moved, self.output.weight.to(x.dtype))


@method(
    "free-form-flow",
    paper="Lifting Architectural Constraints of Injective Flows (Sorrenson et al., 2023), arXiv 2306.01843",
    shape="N C",
    inputs={"probes": "N latent 1"},
    example={"latent": 2, "hidden": 4},
    exempt={"gradcheck": SURROGATE, "higher-derivatives": SURROGATE},
)
class FreeFormFlow(Method):
    """Train an encoder f and a decoder g as a flow: likelihood by probes of both, and reconstruction.

    For data near a manifold of fewer dimensions, and for encoders of any architecture. It gives no likelihood that
    could be reported; for that take a flow that is invertible by construction, such as ``tarflow-block`` for images.

    No layer has to be invertible, and the latents may be fewer than the data, which learns a manifold and the density
    on it at once. With z = f(x), probes v whose mean v v^T is the identity, and no gradient through g'(z) v,

        loss = beta |x - g(z)|^2 + |z|^2 / 2 + latent/2 log 2 pi - mean over probes of v^T f'(x) g'(z) v

    the gradient of whose last term estimates that of the log-determinant, where g is near the inverse of f; its value
    is no log-determinant.

    Args:
        dim: D.
        latent: how many numbers z has.
        hidden: the width of the default networks, of one hidden layer each.
        beta: the weight of the reconstruction.
        probes: how many are drawn.
        encode, decode: other f and g, callables of a batch; a module's parameters are learned.

    ``forward(x, probes)``: samples (N, D) and probes (N, latent, K), orthonormal columns times sqrt(latent), drawn if
    left out. Returns the loss of each sample, (N,). State: ``encoder`` and ``decoder``, ``hidden`` and ``output`` each.

    Lifting Architectural Constraints of Injective Flows (Sorrenson et al., 2023), arXiv 2306.01843.
    """

    def __init__(
        self,
        dim: int,
        *,
        latent: int,
        hidden: int = 64,
        beta: float = 10.0,
        probes: int = 1,
        encode: Callable[[Tensor], Tensor] | None = None,
        decode: Callable[[Tensor], Tensor] | None = None,
    ):
        super().__init__()
        self.dim, self.latent = check.size(self, "dim", dim), check.size(self, "latent", latent)
        self.beta = check.number(self, "beta", beta, 0.0)
        self.probes = check.size(self, "probes", probes, most=latent)
        hidden = check.size(self, "hidden", hidden)
        self.encoder = _Network(dim, hidden, latent) if encode is None else encode
        self.decoder = _Network(latent, hidden, dim) if decode is None else decode

    def forward(self, x: Tensor, probes: Tensor | None = None) -> Tensor:
        """Return the loss of each sample (N, D)."""
        wide = reals(self, "x", x, (None, self.dim))
        v = self.draw(wide) if probes is None else reals(self, "probes", probes, (len(x), self.latent, None), x)
        if not 0 < v.shape[2] <= self.latent:
            raise ValueError(f"{type(self).__name__}: probes must be 1 to latent={self.latent}, not {v.shape[2]}")
        v = v.mT.to(wide.dtype)
        z = self.encoder(wide)
        back = self.decoder(z)
        change = (v * _along(self.encoder, wide, _along(self.decoder, z, v).detach())).sum((1, 2)) / v.shape[1]
        plain = z.square().sum(1) / 2 + self.latent / 2 * math.log(2 * math.pi)
        return (self.beta * (wide - back).square().sum(1) + plain - change).to(x.dtype)

    @torch.no_grad()
    def draw(self, x: Tensor) -> Tensor:
        """Draw probes for samples (N, D): (N, latent, probes), orthonormal columns times sqrt(latent)."""
        drawn = torch.randn(len(x), self.latent, self.probes, dtype=x.dtype, device=x.device)
        return torch.linalg.qr(drawn)[0] * self.latent**0.5


def _along(network: Callable[[Tensor], Tensor], x: Tensor, directions: Tensor) -> Tensor:
    """Derivatives of a network at ``x`` (N, I) along directions (N, K, I)."""
    if isinstance(network, _Network):
        return network.along(x, directions)
    x = x.contiguous()  # torch.func.jvp writes in the layout of x, and one row expanded has no memory for that
    return torch.stack([torch.func.jvp(network, (x,), (each,))[1] for each in directions.unbind(1)], 1)
