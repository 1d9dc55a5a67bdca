"""Stain normalization of tissue images."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check, statistics
from normkit.activation.spatial import _colour
from normkit.catalog import method
from normkit.norm import Norm

IO = 240.0  # transmitted light
BETA = 0.15  # optical density from which a pixel is tissue
LEAST_SHARE = 0.01  # of an image that must be tissue, and
LEAST_ANGLE = 1e-3  # radians between the two stains, for an estimate to mean anything


class _Stains(NamedTuple):
    matrix: Tensor
    high: Tensor
    valid: Tensor


@method(
    "stain-norm",
    paper="A Method for Normalizing Histology Slides for Quantitative Analysis (Macenko et al., ISBI 2009); Color "
    "Transfer between Images (Reinhard et al., 2001)",
    evidence="equations",
    shape="... 3 H W : unit",
    over="H W",
    provenance="worked out from the equations; no recording of the authors' code",
    exempt={
        "moves": "fit sets the reference",
        "onnx": "ONNX has no eigenvalue decomposition, aten._linalg_eigh",
    },
)
class StainNorm(Norm):
    """Recolour a tissue image so that its stains, or its mean colour and contrast, are those of a reference image.

    For histology, whose slides differ in colour from laboratory to laboratory.

    Call :meth:`fit` on a reference image, then the module on each image I of 0 .. 255, for itself. Multiply one of
    0 .. 1, as torchvision's ``ToTensor`` makes it, by 255: a call takes it for a nearly black one.

    "macenko", with OD = -log((I + 1) / 240) per pixel and the tissue the pixels whose three OD are at least 0.15:

        V = the two leading eigenvectors of the tissue's covariance, second first, each with its first entry positive
        lo, hi = 1st and 99th percentile of the angles atan2 of V' OD over the tissue
        stains S = V (cos, sin) of lo and hi, the one with more red first
        c = least squares of OD on S, over all pixels;    m = 99th percentile of each row of c
        y = min(255, 240 exp(-S_reference (c m_reference / m)))

    Percentiles are of the nearest rank. An image with too little tissue (less than 1 % or 3 pixels), or of which two
    stains cannot be separated, is returned as it is. Before a fit the reference is that of the authors.

    "reinhard", in Lab colours scaled to 0 .. 255: y = (v - mean) / std * std_reference + mean_reference per channel,
    std unbiased. "reinhard-modified" shifts a and b to the reference's means. It stretches L about its own mean by 1 +
    q, where q = 1 - std / std_reference, or 0.05 if that is not positive.

    Args:
        method: "macenko", "reinhard" or "reinhard-modified".

    Input ``(3, H, W)``, RGB, uint8 or floating point, with any leading axes. Output of the same shape in floating
    point, not rounded.

    Macenko et al., ISBI 2009; Reinhard et al., 2001; studied in Enhancing Whole Slide Pathology Foundation Models
    through Stain Normalization (2024), arXiv 2408.00380.

    Built from the equations, not compared with a recording; what too little tissue is, is normkit's choice.
    """

    stain_matrix: Tensor
    max_concentration: Tensor
    target_mean: Tensor
    target_std: Tensor

    def __init__(self, *, method: str = "macenko"):
        super().__init__()
        self.method = check.choice(self, "method", method, ("macenko", "reinhard", "reinhard-modified"))
        if method == "macenko":
            stains = [[0.5626, 0.2159], [0.7201, 0.8012], [0.4062, 0.5581]]
            self.register_buffer("stain_matrix", torch.tensor(stains))
            self.register_buffer("max_concentration", torch.tensor([1.9705, 1.0308]))
        else:
            self.register_buffer("target_mean", torch.full((3,), math.nan))
            self.register_buffer("target_std", torch.full((3,), math.nan))

    @torch.no_grad()
    def fit(self, image: Tensor) -> StainNorm:
        """Take ``image`` (3, H, W) as the reference; return the module."""
        with statistics.full_precision(image):
            return self._fit(image)

    def _fit(self, image: Tensor) -> StainNorm:
        pixels = self._pixels(image)
        if image.dim() != 3:
            raise ValueError(f"StainNorm: to fit, image must have shape (3, H, W), not {tuple(image.shape)}")
        if image.is_floating_point() and image.numel() and check.readable(image) and 0 < image.amax() <= 1:
            raise ValueError(
                f"StainNorm: to fit, image must be of 0 .. 255, but its largest value is {image.amax().item():.3g}; "
                "multiply an image of 0 .. 1 by 255, here and in each call"
            )
        if self.method == "macenko":
            stains = _stains(_density(pixels))
            if not stains.valid:
                raise ValueError("StainNorm: image has too little tissue, or too little colour, to fit two stains")
            self.stain_matrix.copy_(stains.matrix)
            self.max_concentration.copy_(stains.high)
        else:
            mean, std = _mean_and_std(_colour.lab_of(pixels))
            self.target_mean.copy_(mean.squeeze(-1))
            self.target_std.copy_(std.squeeze(-1))
        return self

    def forward(self, image: Tensor) -> Tensor:
        """Recolour ``image``."""
        pixels = self._pixels(image)
        with statistics.full_precision(image):  # an estimate from bfloat16 products is none
            y = self._macenko(pixels) if self.method == "macenko" else self._reinhard(pixels)
        return y.reshape(image.shape).to(image.dtype if image.is_floating_point() else y.dtype)

    def _pixels(self, image: Tensor) -> Tensor:
        if not (isinstance(image, Tensor) and image.dtype is torch.uint8):
            check.floating(self, image, "image")
        if image.dim() < 3 or image.shape[-3] != 3:
            raise ValueError(f"StainNorm: image must have shape (..., 3, H, W), but its shape is {tuple(image.shape)}")
        return statistics.accurate(image if image.is_floating_point() else image.float()).flatten(-2)

    def _macenko(self, pixels: Tensor) -> Tensor:
        density = _density(pixels)
        own = _stains(density)
        change = self.max_concentration.to(pixels.dtype) / torch.where(own.valid.unsqueeze(-1), own.high, 1)
        amounts = torch.linalg.pinv(own.matrix) @ density * change.unsqueeze(-1)
        light = -self.stain_matrix.to(pixels.dtype) @ amounts
        y = IO * light.clamp(max=math.log(255 / IO)).exp()
        return torch.where(own.valid[..., None, None], y, pixels)

    def _reinhard(self, pixels: Tensor) -> Tensor:
        self._require_fit()
        lab = _colour.lab_of(pixels)
        mean, std = _mean_and_std(lab)
        target, spread = (t.to(lab.dtype).unsqueeze(-1) for t in (self.target_mean, self.target_std))
        if self.method == "reinhard":
            return _colour.rgb_of((lab - mean) / torch.where(std > 0, std, 1) * spread + target)
        stretch = 1 - std / torch.where(spread > 0, spread, std)
        stretch = 1 + torch.where(stretch > 0, stretch, 0.05)
        light = torch.tensor([[True], [False], [False]], device=lab.device)
        return _colour.rgb_of(torch.where(light, mean + (lab - mean) * stretch, lab - mean + target))

    def _require_fit(self) -> None:
        if torch.compiler.is_compiling() or self.target_mean.is_meta:
            return
        if self.target_mean.isnan().any():
            raise RuntimeError(f"StainNorm: method={self.method!r} has no reference yet; call fit(image) first")


def _density(pixels: Tensor) -> Tensor:
    return -((pixels + 1) / IO).log()


def _stains(density: Tensor) -> _Stains:
    """Estimate the two stains (..., 3, 2) of (..., 3, P), their high concentrations (..., 2), and if there are two."""
    tissue = (density >= BETA).all(-2)
    number = tissue.sum(-1)
    vectors = _leading_eigenvectors(density, tissue)
    along, across = (vectors.mT @ density).unbind(-2)
    angles = torch.atan2(across, along)
    lo, hi = _percentile(angles, tissue, 1), _percentile(angles, tissue, 99)
    first, second = (vectors @ torch.stack([a.cos(), a.sin()], -1).unsqueeze(-1) for a in (lo, hi))
    ordered = first[..., :1, :] > second[..., :1, :]
    matrix = torch.cat([torch.where(ordered, first, second), torch.where(ordered, second, first)], -1)
    amounts = torch.linalg.pinv(matrix) @ density
    high = _percentile(amounts, torch.ones_like(amounts, dtype=torch.bool), 99)
    enough = (number >= 3) & (number >= LEAST_SHARE * density.shape[-1])
    return _Stains(matrix, high, enough & (hi - lo > LEAST_ANGLE) & (high > 0).all(-1))


def _leading_eigenvectors(density: Tensor, tissue: Tensor) -> Tensor:
    mask, number = tissue.unsqueeze(-2), tissue.sum(-1)[..., None, None]
    mean = torch.where(mask, density, 0).sum(-1, keepdim=True) / number.clamp(min=1)
    centered = torch.where(mask, density - mean, 0)
    covariance = centered @ centered.mT / (number - 1).clamp(min=1)
    one_colour = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] == 0
    apart = torch.arange(3, dtype=density.dtype, device=density.device).diag()  # equal eigenvalues have a NaN gradient
    covariance = torch.where(one_colour, apart, covariance)
    vectors = torch.linalg.eigh(covariance).eigenvectors[..., 1:]
    return torch.where(vectors[..., :1, :] < 0, -vectors, vectors)


def _percentile(values: Tensor, counts: Tensor, q: float) -> Tensor:
    """The value of nearest rank over the last axis, among those that count; of none, 0."""
    number = counts.sum(-1, keepdim=True)
    rank = (0.01 * q * (number - 1).double()).round().long().clamp(min=0)
    percentile = torch.where(counts, values, math.inf).sort(-1).values.gather(-1, rank)
    return torch.where(number > 0, percentile, 0).squeeze(-1)


def _mean_and_std(values: Tensor) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(values, -1, correction=min(1, values.shape[-1] - 1), keepdim=True)
    return mean, variance.sqrt()
