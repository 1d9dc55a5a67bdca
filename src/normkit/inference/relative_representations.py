"""Relative representations: a point by its similarities to anchors, the same for all nets."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.inference._scores import scores
from normkit.statistics import full_precision

SIMILARITIES = ("inner", "basis")
NAME = "relative-representations"


@method(
    NAME,
    paper="Relative Representations Enable Zero-Shot Latent Space Communication (Moschella et al., 2022), arXiv "
    "2209.15430",
    shape="N C",
    over="C",
    inputs={"anchors": "C C"},
    invariant=("rotation", "scale"),
)
def relative_representations(
    x: Tensor, anchors: Tensor, *, norm: str | None = "l2", similarity: str = "inner"
) -> Tensor:
    """Describe each point by its cosines to a set of anchors.

    For joining the encoder and the decoder of nets that were trained apart, or for comparing their spaces, without
    training. Both need the same anchors, each by its own encoder. Within one net a point's own coordinates do.

    Two nets that were trained apart give the same codes, up to noise, where their spaces differ by a rotation: the
    decoder of one then reads the encoder of the other. Anchors are samples that went through the same encoder.

        y = x anchorsᵀ of rows of length 1; without norm x anchorsᵀ / sqrt(d)
        basis: the coordinates c of x in the anchors, anchorsᵀ c = x by least squares

    A shift is not undone: centre the spaces first.

    Args:
        x: points, (N, d).
        anchors: (A, d), which get gradients; for ``"basis"`` well-conditioned, mostly d of them.
        norm: ``"l2"`` or None.
        similarity: ``"inner"`` or ``"basis"``.

    Returns (N, A). Relative Representations (Moschella et al., 2022), arXiv 2209.15430.
    """
    wide = scores(NAME, "x", x, (None, None))
    those = scores(NAME, "anchors", anchors, (None, x.shape[1]), x)
    check.choice(NAME, "norm", norm, ("l2", None))
    check.choice(NAME, "similarity", similarity, SIMILARITIES)
    those = those.to(wide.dtype)
    if norm == "l2":
        wide, those = F.normalize(wide, dim=1), F.normalize(those, dim=1)
    if similarity == "basis":
        return torch.linalg.lstsq(those.mT, wide.mT).solution.mT.to(x.dtype)
    with full_precision(x):
        return (wide @ those.mT / (1 if norm else math.sqrt(x.shape[1]))).to(x.dtype)
