"""Hyper-connections: several residual streams, and learned weights of what is read, mixed and written."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit.catalog import method
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.streams import Connected, Several, favour
from normkit.residual.wiring import At, NormMaker, Wiring
from normkit.statistics import accurate


class Weights(nn.Module):
    """What a sublayer reads of each stream, how the streams mix, and what it writes to each."""

    def __init__(self, place: At, number: int, make: NormMaker):
        super().__init__()
        streams, self.tanh = place.options["streams"], bool(place.options["tanh"])
        read = favour(number, streams, 1.0, 0.0)
        self.static_alpha = nn.Parameter(torch.cat([read[:, None], torch.eye(streams)], 1))
        self.static_beta = nn.Parameter(torch.ones(streams))
        self.norm: nn.Module | None = None
        if place.options["dynamic"]:
            self.dynamic_alpha = nn.Parameter(torch.zeros(place.dim, streams + 1))
            self.dynamic_beta = nn.Parameter(torch.zeros(place.dim))
            self.alpha_scale, self.beta_scale = (nn.Parameter(torch.full((1,), 0.01)) for _ in range(2))
            self.norm = make()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights of reading (..., n), mixing (..., n, n) and writing (..., n)."""
        alpha, beta = accurate(self.static_alpha), accurate(self.static_beta)
        if self.norm is None:
            alpha = alpha.expand(*x.shape[:-2], *alpha.shape)
            beta = beta.expand(*x.shape[:-2], *beta.shape)
        else:
            z = accurate(self.norm(x))
            alpha = alpha + self.alpha_scale * self._bound(z @ self.dynamic_alpha.to(z.dtype))
            beta = beta + self.beta_scale * self._bound(z @ self.dynamic_beta.to(z.dtype))
        return alpha[..., 0], alpha[..., 1:], beta

    def _load_from_state_dict(self, state: Any, prefix: str, *further: Any) -> None:
        """Take scales of no axes too, as others have them; FSDP2 shards none such."""
        for name in ("alpha_scale", "beta_scale"):
            scale = state.get(prefix + name)
            if isinstance(scale, Tensor) and scale.dim() == 0:
                state[prefix + name] = scale.view(1)
        super()._load_from_state_dict(state, prefix, *further)

    def _bound(self, z: Tensor) -> Tensor:
        return torch.tanh(z) if self.tanh else z


@method(
    "hyper-connections",
    paper="Hyper-Connections (Zhu et al., 2024), arXiv 2409.19606",
    evidence="library",
    shape="... streams C",
    over="C",
    example={**SUBLAYERS, "streams": 3},
    exempt={
        "extremes huge float16": "a sum of streams of 6e4 overflows",
        "extremes offset float16": "rounded streams are constant; the slopes of two norms at them, 316 each, overflow",
    },
    provenance="another library's code of the paper's Algorithm 2; no runnable code of the authors is known",
)
class HyperConnections(Block):
    """Widen the residual stream to several, and learn what each sublayer reads, how they mix and where it writes.

    For faster pre-training: gradients need not choose between vanishing (post-norm) and layers that do alike
    (pre-norm). Where the mixing grows over depth, ``mhc`` keeps it doubly stochastic.

    For A, then for F with a connection of its own, per token, H the streams (n, dim):

        alpha = static_alpha + alpha_scale * tanh(norm(H) dynamic_alpha)          (n, n + 1)
        beta  = static_beta  + beta_scale  * tanh(norm(H) dynamic_beta)           (n,)
        u = sum_s alpha[s, 0] H[s],    H[t] <- sum_s alpha[s, 1 + t] H[s] + beta[t] F(attention_norm(u))

    A model begins with copies of its embedding (:func:`normkit.residual.streams.expand`) and ends with their sum
    (:func:`normkit.residual.streams.collapse`). At the start it is pre-norm.

    Args:
        dim: features of each stream.
        layer: the block's place in the model, from 0; sublayer 2 layer (A), 2 layer + 1 (F) at first reads the
            stream of its number modulo ``streams``.
        depth: how many layers the model has; not used.
        norm: a norm of the catalogue by name, or a function of the width: of the sublayers and of the connections.
        streams: how many streams there are, n.
        dynamic: the weights depend on the token; False: alpha and beta are the static ones.
        tanh: bound what depends on the token.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(x)``: (..., streams, dim) to the same. State, of each sublayer, in ``attention_connection``:
    ``static_alpha`` (n, n + 1), ``static_beta`` (n,), and if dynamic ``dynamic_alpha`` (dim, n + 1), ``dynamic_beta``
    (dim,), ``alpha_scale``, ``beta_scale`` (1,), ``norm``; ``attention_norm``. The paper does not decay the static
    ones.

    Hyper-Connections (Zhu et al., 2024), arXiv 2409.19606.
    """

    wiring = Wiring(
        Connected(Weights),
        form=Several(),
        options={"streams": 4, "dynamic": True, "tanh": True},
    )
