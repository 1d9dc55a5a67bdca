"""SOFT: attention by a Gaussian kernel of low rank, for image tokens."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog, check, statistics
from normkit.attention._linear import LinearCore, accurate, grid, inverse
from normkit.catalog import method

RIDGE = 0.01  # added to the kernel of the landmarks, fixed in the authors' code


@method(
    "softmax-free",
    paper="SOFT: Softmax-free Transformer with Linear Complexity (Lu et al., 2021), arXiv 2110.11945",
    shape="N heads 16 C",
    over="T",
    inputs={"k": "N heads 16 C", "v": "N heads 16 C"},
    example={"heads": 2, "size": (4, 4), "ratio": 2},
)
class SoftmaxFree(LinearCore):
    """Weigh values by a Gaussian kernel of the tokens' distances, through a few landmarks and an iterated inverse.

    For image tokens on a grid: linear in their number for a fixed number of landmarks. With q' = q / head_dim^(1/4),
    and landmarks z, a strided convolution of q' on the grid, a LayerNorm and a GELU,

        A = exp(-|q'_i - z_j|² / 2),    B = exp(-|z_i - z_j|² / 2),    y = A V Aᵀ v

    V is the inverse of ``B + 0.01 I`` by ``max_iter`` Newton steps ``V <- 2V - V P V``. In the backward pass it counts
    as the exact inverse. With ``norm="symmetric"`` V is that of B, ``d V d`` with d the inverse root of the row sums of
    B, and the gradient goes through every step.

    Args:
        head_dim: features of a head.
        heads: number of heads.
        size: (H, W) of the token grid, read row by row, T = H * W.
        ratio: stride of the landmarks' convolution, at least 2; there are floor(H / ratio) * floor(W / ratio) of them.
        norm: None or ``"symmetric"``.
        kernel_size: odd; adds ``conv``, a depthwise convolution of the values on the grid, whose channels are the
            heads.
        max_iter: Newton steps, at most 1000; the error of V is squared in each.
        sync: with ``norm="symmetric"`` the first step's size depends on the whole batch: join those of the processes.
        process_group: the processes to join, default all.
        causal: False; there is no causal form.

    ``core(q, k, v)``: all (N, heads, H * W, head_dim); k is ignored, since the keys are the queries. A mask is refused:
    the grid is full.

    SOFT: Softmax-free Transformer with Linear Complexity (Lu et al., 2021), arXiv 2110.11945; Softmax-free Linear
    Transformers (Lu et al., 2022), arXiv 2207.03341 (symmetric).
    """

    forms = (False,)
    masks = None
    keys_are_queries = True

    def __init__(
        self,
        head_dim: int,
        *,
        heads: int,
        size: tuple[int, int],
        ratio: int,
        norm: str | None = None,
        kernel_size: int | None = None,
        max_iter: int = 20,
        sync: bool = False,
        process_group=None,
        causal: bool = False,
    ):
        super().__init__(head_dim, heads, causal)
        self.size = grid(self, size)
        self.ratio = check.size(self, "ratio", ratio, 2)
        if min(self.size) < ratio:
            raise ValueError(f"SoftmaxFree: ratio={ratio} leaves no landmark on a grid of size={self.size}")
        self.norm = check.choice(self, "norm", norm, (None, "symmetric"))
        self.max_iter = check.size(self, "max_iter", max_iter, 0, 1000)
        self.sync, self.process_group = bool(sync), process_group
        self.landmark = nn.Conv2d(head_dim, head_dim, ratio, ratio, bias=False)
        self.landmark_norm = catalog.create("layernorm", head_dim)
        self.conv = None
        if kernel_size is not None:
            if check.size(self, "kernel_size", kernel_size) % 2 == 0:
                raise ValueError(f"SoftmaxFree: kernel_size must be odd, not {kernel_size}")
            self.conv = nn.Conv2d(heads, heads, kernel_size, padding=kernel_size // 2, groups=heads, bias=False)

    @classmethod
    def fitting(cls, length: int) -> dict[str, Any]:
        """A grid of that many tokens, as square as can be, and the stride that leaves at most 36 landmarks."""
        height = max(d for d in range(1, math.isqrt(length) + 1) if length % d == 0)
        width = length // height
        ratio = next(r for r in range(2, width + 2) if (height // r) * (width // r) <= 36)
        return {"size": (height, width), "ratio": ratio}

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend."""
        self._check(q, k, v, same_length=True)
        check.shape(self, "q", q, (*q.shape[:2], self.size[0] * self.size[1], self.head_dim))
        if mask is not None:
            raise ValueError("SoftmaxFree: mask must be None, since the landmarks need every token of the grid")
        dtype = q.dtype
        q, v = accurate(q, v)
        with statistics.full_precision(q):
            q = q * self.head_dim**-0.25
            z = self._landmarks(q)
            a, b = _kernel(q, z), _kernel(z, z)
            middle = self._symmetric_inverse(b) if self.norm else _ridge_inverse(b, self.max_iter)
            y = (a @ middle) @ (a.mT @ v)
            return (y if self.conv is None else y + self._convolve(v)).to(dtype)

    def _landmarks(self, q: Tensor) -> Tensor:
        image = q.mT.flatten(0, 1).unflatten(-1, self.size)
        z = F.conv2d(image, self.landmark.weight.to(q.dtype), stride=self.ratio).flatten(2).mT
        return F.gelu(self.landmark_norm(z)).unflatten(0, (q.shape[0], self.heads))

    def _convolve(self, v: Tensor) -> Tensor:
        """Convolve the values on the grid, each feature an image with the heads as channels."""
        assert self.conv is not None
        images = v.permute(0, 3, 1, 2).flatten(0, 1).unflatten(-1, self.size)
        weight = self.conv.weight.to(v.dtype)
        convolved = F.conv2d(images, weight, padding=self.conv.padding, groups=self.heads)
        return convolved.flatten(2).unflatten(0, (v.shape[0], self.head_dim)).permute(0, 2, 3, 1)

    def _symmetric_inverse(self, b: Tensor) -> Tensor:
        a = 2 / self._largest(b.sum(-1)).square()
        one = torch.eye(b.shape[-1], dtype=b.dtype, device=b.device)
        for _ in range(10):
            off = self._largest((one - a * (b @ b)).abs().sum(-2).detach())
            a = torch.where(off > 1.01, a / 2, a)
        v = _newton(b, a * b, self.max_iter)
        d = b.sum(-1).rsqrt()
        return d.unsqueeze(-1) * v * d.unsqueeze(-2)

    def _largest(self, x: Tensor) -> Tensor:
        """The largest of the positive values of the whole batch, 1 if there are none."""
        largest = x.amax() if x.numel() else x.new_ones(())
        return statistics.gather_over_processes(largest, self.process_group).amax(0) if self.sync else largest


def _kernel(x: Tensor, z: Tensor) -> Tensor:
    """exp(-|x_i - z_j|² / 2); rounding cannot make a distance negative."""
    square = x.square().sum(-1).unsqueeze(-1) + z.square().sum(-1).unsqueeze(-2) - 2 * x @ z.mT
    return (-square.clamp(min=0) / 2).exp()


def _newton(p: Tensor, v: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        v = 2 * v - v @ p @ v
    return v


def _ridge_inverse(b: Tensor, steps: int) -> Tensor:
    """Invert B + 0.01 I by Newton's iteration, with the derivatives of an exact inverse.

    The iterate V carries no gradient; the first terms of the series of (P + dP)⁻¹ in dP, whose value is 0, do.
    """
    p = b + RIDGE * torch.eye(b.shape[-1], dtype=b.dtype, device=b.device)
    fixed = p.detach()
    a = 1.8 * inverse(b.detach().sum(-1).amax(-1)[..., None, None].square())
    v = _newton(fixed, a * fixed, steps)
    change = (p - fixed) @ v
    return v - v @ (change - change @ (change - change @ change))
