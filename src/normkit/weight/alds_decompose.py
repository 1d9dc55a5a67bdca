"""ALDS's decomposition: a layer as a grouped map to few features, and a dense one back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Estimator
from normkit.weight._fold import as_kernel, fold, unfold


@method(
    "alds-decompose",
    paper="Compressing Neural Networks: Towards Determining the Optimal Layer-wise Decomposition (Liebenwein et al., "
    "2021), arXiv 2107.11442",
    shape="C I",
    over="C I",
    example={"rank": 2},
)
class ALDSDecompose(Estimator):
    """Cut a weight to a low rank, block by block of its input channels.

    For smaller layers: a grouped map, the encoder, and a dense one, the decoder, hold fewer numbers than the weight.
    How far each layer is cut is decided by ``alds-allocate``.

    The input channels are cut into ``splits`` groups, each folded as ``alds-error`` has it, and with U S V^T its
    singular values,

        decoder_g = U sqrt(S),    encoder_g = sqrt(S) V^T          of the first ``rank``
        y = decoder(encoder(x))

    Args:
        rank: kept of each group.
        splits: number of groups.
        scheme: which axes of the kernel the decoder has: 0 none, 1 rows, 2 columns, 3 both; the encoder has the rest.

    ``decompose(weight)`` returns the weight that the two maps amount to, and the decoder's and encoder's shapes; they
    are kept as ``decoder`` and ``encoder``. :meth:`project` applies them. Where they hold no fewer numbers than the
    weight, leave the layer alone.

    Compressing Neural Networks (Liebenwein, Maalouf, Feldman, Rus, 2021), arXiv 2107.11442.
    """

    def __init__(self, *, rank: int, splits: int = 1, scheme: int = 0):
        self.rank = check.size(self, "rank", rank)
        self.splits = check.size(self, "splits", splits)
        self.scheme = check.choice(self, "scheme", scheme, (0, 1, 2, 3))
        self.encoder: Tensor | None = None
        self.decoder: Tensor | None = None

    @torch.no_grad()
    def __call__(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Decompose a weight (out, in) or (out, in, kh, kw)."""
        kernel = as_kernel(self, weight).double()
        check.divides(self, "splits", self.splits, "input channels of weight", kernel.shape[1])
        groups = kernel.chunk(self.splits, 1)
        most = min(fold(groups[0], self.scheme).shape)
        if self.rank > most:
            raise ValueError(f"{type(self).__name__}: rank must be at most {most}, not {self.rank}")
        parts = [self._parts(group) for group in groups]
        approximated = torch.cat(
            [unfold(d @ e, self.scheme, group.shape) for (d, e), group in zip(parts, groups, strict=True)], 1
        )
        self.encoder, self.decoder = (self._shape(map_, weight) for map_ in self._maps(parts, kernel.shape))
        shapes = [torch.tensor(map_.shape, device=weight.device) for map_ in (self.decoder, self.encoder)]
        return approximated.view(weight.shape).to(weight.dtype), shapes[0], shapes[1]

    def _parts(self, group: Tensor) -> tuple[Tensor, Tensor]:
        left, values, right = torch.linalg.svd(fold(group, self.scheme), full_matrices=False)
        root = values[: self.rank].sqrt()
        return left[:, : self.rank] * root, root.unsqueeze(1) * right[: self.rank]

    def _maps(self, parts: list[tuple[Tensor, Tensor]], shape: torch.Size) -> tuple[Tensor, Tensor]:
        """Unfold the encoders, stacked along their output, and the decoders, joined along their input."""
        out, ins, high, wide = shape
        of_decoder = {0: (1, 1), 1: (high, 1), 2: (1, wide), 3: (high, wide)}[self.scheme]
        kh, kw = high // of_decoder[0], wide // of_decoder[1]
        folds = {0: (ins // self.splits, kh, kw), 1: (kw, ins // self.splits), 2: (kh, ins // self.splits)}
        encoders = [e.reshape(self.rank, *folds.get(self.scheme, (ins // self.splits,))) for _, e in parts]
        encoders = [e.movedim(-1, 1) if self.scheme in (1, 2) else e for e in encoders]
        encoder = torch.cat([e.reshape(self.rank, ins // self.splits, kh, kw) for e in encoders])
        decoder = torch.cat([d.reshape(out, *of_decoder, self.rank).movedim(-1, 1) for d, _ in parts], 1)
        return encoder, decoder

    def _shape(self, kernel: Tensor, like: Tensor) -> Tensor:
        return (kernel if like.dim() == 4 else kernel.flatten(1)).to(like.dtype)

    def project(
        self, x: Tensor, bias: Tensor | None = None, *, stride: tuple[int, int] | int = 1, padding: tuple | int = 0
    ) -> Tensor:
        """Apply the two maps of the last weight to ``x``; stride and padding go where the kernel's axis is."""
        if self.encoder is None or self.decoder is None:
            raise ValueError(f"{type(self).__name__}: call it with a weight before project")
        check.floating(self, x)
        if bias is not None:
            check.values(self, "bias", bias, self.decoder.shape[:1], x)
        if self.encoder.dim() == 2:
            check.features_last(self, x, self.splits * self.encoder.shape[1])
            blocks = x.unflatten(-1, (self.splits, -1)).unsqueeze(-2)
            inner = (blocks @ self.encoder.unflatten(0, (self.splits, -1)).mT).flatten(-3)
            return F.linear(inner, self.decoder, bias)
        steps, pads = (value if isinstance(value, tuple) else (value, value) for value in (stride, padding))
        last = [self.scheme in (1, 3), self.scheme in (2, 3)]  # the axes that are the decoder's
        first = [not decodes for decodes in last]
        inner = F.conv2d(
            x, self.encoder, stride=_where(first, steps, 1), padding=_where(first, pads, 0), groups=self.splits
        )
        return F.conv2d(inner, self.decoder, bias, stride=_where(last, steps, 1), padding=_where(last, pads, 0))


def _where(mine: Sequence[bool], values: Sequence[int], other: int) -> list[int]:
    return [value if own else other for own, value in zip(mine, values, strict=True)]
