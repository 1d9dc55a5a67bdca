"""AltUp: several residual streams of which a layer computes one, and predicts and corrects the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.residual.laurel import SANDWICH, STEEP, Augmented
from normkit.residual.stream import SUBLAYERS, Block
from normkit.residual.streams import SMALL, Several, small_normal
from normkit.residual.wiring import ONE, At, Connection, NormMaker, Own, Part, Wiring
from normkit.statistics import accurate, full_precision, root

LEAST = 1e-5  # of the mean square that is divided by


def rescaled(y: Tensor, like: Tensor) -> Tensor:
    """Return ``y`` with the root mean square of ``like``, each over the last axis."""
    size = root(accurate(like).square().mean(-1, keepdim=True))
    return (accurate(y) * (size * accurate(y).square().mean(-1, keepdim=True).clamp(min=LEAST).rsqrt())).to(y.dtype)


class Maps(nn.Module):
    """A map for each stream but the first."""

    def __init__(self, dim: int, streams: int):
        super().__init__()
        self.weight = small_normal(streams - 1, dim, dim)

    def reset_parameters(self) -> None:
        """Draw the maps anew."""
        nn.init.normal_(self.weight, std=SMALL)


class Expansion(Maps):
    """The streams that a model begins with: its embedding, and maps of it that have its size."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the streams (..., n, dim) of the embedding (..., dim)."""
        others = F.linear(x, self.weight.flatten(0, 1).to(x.dtype)).unflatten(-1, (-1, x.shape[-1]))
        first = x.unsqueeze(-2)
        return torch.cat([first, rescaled(others, first)], -2)


class Collapse(Maps):
    """The mean of the first stream and of maps of the others that have its size."""

    def forward(self, streams: Tensor) -> Tensor:
        """Return one vector (..., dim) of the streams (..., n, dim)."""
        first, weight = streams[..., :1, :], self.weight.to(streams.dtype)
        others = torch.einsum("...ni,noi->...no", streams[..., 1:, :], weight)
        return torch.cat([first, rescaled(others, first)], -2).mean(-2)


class Updates(nn.Module):
    """What a layer predicts of all streams, and how it corrects them by what became of the first."""

    def __init__(self, place: At, make: NormMaker):
        super().__init__()
        n = self.streams = check.size("altup", "streams", place.options["streams"], least=2)
        self.norm = make()
        self.router = small_normal(n, place.dim)
        self.prediction, self.correction = small_normal(n * n, n), small_normal(n, n)

    def predict(self, streams: Tensor) -> Tensor:
        """Return the streams (..., n, dim) with a mixture of them added, by weights of the first."""
        with full_precision(streams):
            held = accurate(streams)
            route = self._route(streams[..., 0, :])
            mixing = (route @ self.prediction.to(route.dtype).mT).unflatten(-1, (-1, self.streams))
            return (held + mixing @ held).to(streams.dtype)

    def correct(self, predicted: Tensor, x: Tensor) -> Tensor:
        """Move all streams by the error of the first one's prediction, that became ``x`` (..., dim)."""
        with full_precision(x):
            route = self._route(x)
            gain = 1 + route @ self.correction.to(route.dtype).mT
            error = accurate(x) - accurate(predicted[..., 0, :])
            return (accurate(predicted) + gain.unsqueeze(-1) * error.unsqueeze(-2)).to(predicted.dtype)

    def _route(self, x: Tensor) -> Tensor:
        normed = accurate(self.norm(x))
        return torch.tanh(normed @ self.router.to(normed.dtype).mT / x.shape[-1])


@dataclass(frozen=True)
class Alternating(Connection):
    """A connection to one vector, inside a layer whose first sublayer predicts the streams and whose last corrects.

    Between sublayers the predicted streams are held, and the first one as the ``inner`` connection holds it.
    """

    inner: Connection
    first: bool = True
    last: bool = True

    shares = ("altup",)

    def at(self, place: At) -> Connection:
        """Return the connection of one sublayer, which knows whether it is its layer's first or last."""
        ends = {"first": place.sublayer == 0, "last": place.sublayer == place.sublayers - 1}
        return replace(self, inner=self.inner.at(place), **ends)

    def alone(self) -> Connection:
        """Return the connection of a sublayer that is a layer by itself."""
        return replace(self, first=True, last=True)

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build what predicts and corrects, and the inner connection's own."""
        return {"altup": Updates(place, make), **self.inner.parts(place, make)}

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the predicted streams with what the inner connection keeps."""
        if self.first:
            predicted = own("altup").predict(held)
            held = predicted, ONE.open(predicted[..., 0, :])
        predicted, vector = held
        inner, kept = self.inner.read(own, vector)
        return inner, (predicted, kept)

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the streams, corrected where the layer ends."""
        predicted, inner = kept
        vector = self.inner.write(own, inner, y)
        return own("altup").correct(predicted, ONE.close(vector)) if self.last else (predicted, vector)


@dataclass(frozen=True)
class ToOthers(Connection):
    """A sublayer that reads the first stream, scaled, and whose normalized output goes to all others."""

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build the scale, which starts at zero, and the norm."""
        return {"scale": nn.Parameter(torch.zeros(place.dim)), "output_norm": make()}

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the streams."""
        return held[..., 0, :] * own("scale").to(held.dtype), held

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the streams, the output added to all but the first."""
        return torch.cat([kept[..., :1, :], kept[..., 1:, :] + own("output_norm")(y).unsqueeze(-2)], -2)


@method(
    "altup",
    paper="Alternating Updates for Efficient Transformers (Baykal et al., 2023), arXiv 2301.13310",
    evidence="library",
    shape="... streams C",
    over="C",
    aliases=("alternating-updates",),
    example={**SUBLAYERS, "streams": 3},
    exempt=dict.fromkeys(("extremes zeros float16", "extremes tiny float16"), STEEP),
    provenance="transformers' Gemma 3n; no runnable code of the authors is known",
)
class AltUp(Block):
    """Widen the residual stream to several of which a layer computes the first, and predicts and corrects the others.

    For a wider representation at nearly the cost of one stream.

    Per token, H the streams (n, dim), in the form of Gemma 3n:

        r(x) = tanh(router altup_norm(x) / dim)
        P = H + matrix(prediction r(H[0])) H                          matrix: n² numbers as (n, n), row by row
        x = P[0] + attention_output_norm(A(attention_norm(P[0])))
        x = x + feedforward_output_norm(F(feedforward_norm(x)))
        H[s] <- P[s] + (1 + correction r(x))[s] (x - P[0])

    With a ``rank`` the first sublayer is connected as in [laurel](laurel.md). A model begins with its embedding e and,
    for each other stream, W_s e with the root mean square of e, its ``expansion``. It ends with the mean of H[0] and
    V_s H[s], these with the root mean square of H[0], its ``collapse``.

    Args:
        dim: features of each stream.
        layer, depth: the block's place in the model; not used.
        norm: a norm of the catalogue by name, or a function of the width.
        streams: how many streams there are, n.
        rank: of LAuReL's map beside attention, r; None: there is none.
        attention, feedforward: the sublayers A and F, maps of (..., dim) to itself; their parameters stay the caller's.

    ``block(x)``: (..., streams, dim) to the same. State: ``altup`` with ``norm``, ``router`` (n, dim), ``prediction``
    (n², n) and ``correction`` (n, n), normal with deviation 0.02; the norms of both sublayers, ``attention_norm`` and
    ``attention_output_norm``; with a rank, ``attention_laurel``.

    Alternating Updates for Efficient Transformers (Baykal et al., 2023), arXiv 2301.13310; the form of Gemma 3n.

    Differs from the paper in: the weights of predicting and correcting depend on the token, layers compute the same
    stream each, and other streams begin as maps of the embedding. From transformers in: matrices are not clipped to 120
    in training.
    """

    wiring = Wiring(
        Alternating(Augmented()),
        Alternating(SANDWICH),
        form=Several(start=Expansion, head=Collapse),
        options={"streams": 4, "rank": None},
        defaults={"norm": "rmsnorm"},
        layer_input=ToOthers(),
    )
