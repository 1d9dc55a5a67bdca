"""The built-in models, small enough for a laptop's CPU: a decoder, a vision transformer, a ResNet, an SPDNet, flows.

The transformers are those of `normkit.transformer`, in which placement, norm and attention core are names.
"""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normkit import catalog, density, manifold
from normkit.choice import parsed
from normkit.lab.plan.builtin import MODELS
from normkit.lab.plan.data import Images
from normkit.lab.plan.settings import spell
from normkit.lab.plan.variants import ORIGINAL, Variant
from normkit.residual.stream import wiring_of
from normkit.surgery.replacement import fits
from normkit.surgery.replacement.fits import maker
from normkit.transformer.model import Decoder, Encoder
from normkit.weight import spheres


def decoder(variant: Variant, seed: int, length: int, sizes: Mapping[str, int]) -> nn.Module:
    """Build a decoder of bytes: (B, T) to (B, T, 256) scores.

    Embeddings are multiplied by sqrt(dim), which dyt and derf need and no norm suffers from; not on a sphere.
    """
    arguments = variant.arguments()
    scaled = wiring_of("normkit compare", arguments["placement"]).attention.sphere is None
    model = Decoder(vocab=256, length=length, tied=False, scale_embedding=scaled, **arguments, **sizes)
    return same_start(model, seed, variant.placement)


class ViT(nn.Module):
    """Classify an image from the mean of its patches' features."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, patch: int, dim: int, **options: Any):
        super().__init__()
        channels, height, width = shape
        if height % patch or width % patch:
            raise ValueError(f"vit: patch={patch} does not divide images of {height} x {width}")
        length = (height // patch) * (width // patch)
        self.patches = nn.Conv2d(channels, dim, patch, patch)
        self.encoder = Encoder(vocab=None, dim=dim, positions="learned", length=length, **options)
        self.output = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Score every class of images (B, C, H, W)."""
        return self.output(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def vit(variant: Variant, seed: int, images: Images, sizes: Mapping[str, int]) -> nn.Module:
    """Build a vision transformer for small images."""
    model = ViT(images.shape, images.classes, **variant.arguments(), **sizes)
    same_start(model, seed, variant.placement)
    nn.init.zeros_(model.encoder.positions.weight)  # type: ignore[union-attr]
    return model


def convolutions(shape: tuple[int, ...]) -> Callable[..., nn.Conv2d]:
    """Return what makes square convolutions for images (C, H, W), and for signals (C, 1, L) such along their length."""

    def make(channels: int, outputs: int, side: int = 3, stride: int = 1) -> nn.Conv2d:
        high, down = (side, stride) if len(shape) == 3 else (1, 1)
        return nn.Conv2d(channels, outputs, (high, side), (down, stride), (high // 2, side // 2), bias=False)

    return make


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with norms around the sum, as in ResNet."""

    def __init__(
        self,
        channels: int,
        outputs: int,
        stride: int,
        norm: Callable[[int], nn.Module],
        conv: Callable[..., nn.Conv2d],
    ):
        super().__init__()
        self.conv1 = conv(channels, outputs, stride=stride)
        self.norm1 = norm(outputs)
        self.conv2 = conv(outputs, outputs)
        self.norm2 = norm(outputs)
        self.shortcut = conv(channels, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add what the convolutions find to the image."""
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.shortcut(x) + self.norm2(self.conv2(h)))


class ResNet(nn.Module):
    """Three stages of residual blocks, each smaller and deeper than the one before; classify from the mean.

    A signal is an image of one row, so that norms of images stand in it.
    """

    def __init__(self, shape: tuple[int, ...], classes: int, *, norm: str, dim: int = 16, depth: int = 1):
        super().__init__()
        make, conv = maker(norm, channels_first=True), convolutions(shape)
        widths = [dim, dim, 2 * dim, 4 * dim]
        self.stem = nn.Sequential(conv(shape[0], dim), make(dim), nn.ReLU())
        self.layers = nn.Sequential(
            *(
                ResidualBlock(
                    widths[stage] if block == 0 else widths[stage + 1],
                    widths[stage + 1],
                    2 if stage and block == 0 else 1,
                    make,
                    conv,
                )
                for stage in range(3)
                for block in range(depth)
            )
        )
        self.output = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Score every class of images (N, C, H, W) or signals (N, C, L)."""
        x = x.unsqueeze(2) if x.dim() == 3 else x
        return self.output(self.layers(self.stem(x)).mean((2, 3)))


def resnet(variant: Variant, seed: int, images: Images, sizes: Mapping[str, int]) -> nn.Module:
    """Build a ResNet for small images or signals."""
    return same_start(ResNet(images.shape, images.classes, norm=variant.norm, **sizes), seed)


class BiMap(nn.Module):
    """Take matrices x (N, n, n) to W x Wᵀ, where the rows of W are those of a weight made orthonormal."""

    def __init__(self, into: int, out: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, into))

    def forward(self, x: Tensor) -> Tensor:
        """Return smaller positive definite matrices."""
        turned = torch.linalg.qr(self.weight.mT).Q.to(x.dtype)
        return turned.mT @ x @ turned


class Exponential(nn.Module):
    """A positive definite parameter as the exponential of a symmetric one, which any optimizer may step."""

    def forward(self, raw: Tensor) -> Tensor:
        """Return the parameter."""
        return manifold.exp((raw + raw.mT) / 2)

    def right_inverse(self, point: Tensor) -> Tensor:
        """Return what it is the exponential of."""
        return manifold.log(point)


class SPDNet(nn.Module):
    """Classify positive definite matrices, as SPDNet does (Huang and Van Gool, 2017), with norms as in SPDNetBN.

    Each stage makes them smaller, normalizes them and lifts small eigenvalues; the last takes the logarithm, whose
    entries a linear layer reads.
    """

    LEAST = 1e-4  # eigenvalues below it are lifted to it

    def __init__(
        self, size: int, classes: int, *, norm: Callable[[int], nn.Module] | None, dim: int | None, depth: int
    ):
        super().__init__()
        dim = min(6, size) if dim is None else dim
        if not 1 <= dim <= size:
            raise ValueError(f"spdnet: dim must be from 1 to {size}, the size of the matrices, not {dim}")
        widths = [round(size + (dim - size) * stage / depth) for stage in range(depth + 1)]
        self.maps = nn.ModuleList(BiMap(*pair) for pair in itertools.pairwise(widths))
        self.norms = nn.ModuleList(nn.Identity() if norm is None else norm(width) for width in widths[1:])
        for part in self.norms:
            for name, value in list(part.named_parameters()):
                if value.dim() > 1:
                    parametrize.register_parametrization(part, name, Exponential())
        self.output = nn.Linear(dim * (dim + 1) // 2, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Score every class of matrices (N, n, n)."""
        for stage, (smaller, norm) in enumerate(zip(self.maps, self.norms, strict=True)):
            x = norm(smaller(x))
            last = stage == len(self.maps) - 1
            x = manifold.log(x) if last else manifold.spectral(x, self._lift, self._slope)
        rows, columns = torch.triu_indices(*x.shape[1:], device=x.device)
        return self.output(x[:, rows, columns])

    def _lift(self, e: Tensor) -> Tensor:
        return e.clamp(min=self.LEAST)

    def _slope(self, e: Tensor) -> Tensor:
        return (e > self.LEAST).to(e.dtype)


def spdnet(variant: Variant, seed: int, matrices: Images, sizes: Mapping[str, int]) -> nn.Module:
    """Build an SPDNet, without a norm for "original"."""
    place = MODELS["spdnet"].place
    norm = None
    if variant.norm != ORIGINAL:
        choice = catalog.find(variant.norm)
        norm = functools.partial(fits.build, choice, fits.require(choice, place))
    return same_start(SPDNet(matrices.shape[-1], matrices.classes, norm=norm, **sizes), seed)


class Likelihood(nn.Module):
    """A flow that gives log densities when it is called, as training in several processes wants it."""

    def __init__(self, flow: density.Flow):
        super().__init__()
        self.flow = flow

    def forward(self, x: Tensor) -> Tensor:
        """Return the log densities (N,) of samples."""
        return self.flow.log_prob(x)


def flow(variant: Variant, seed: int, rows: Images, sizes: Mapping[str, int]) -> nn.Module:
    """Build the density that a variant names, its norms set from what is learned from."""
    if variant.norm != ORIGINAL:
        raise ValueError(f"norm {variant.norm!r}: a flow has no norms to exchange; {spell('flow')} names densities")
    name, own = parsed(variant.flow)
    return Likelihood(density.flow(name, rows.shape, **{**sizes, **own}).initialize(rows.images[:4096]))


def same_start(model: nn.Module, seed: int, placement: str = "pre-norm") -> nn.Module:
    """Draw every layer's weights from the seed and the layer's own name, so that variants start with the same numbers.

    Matrices start normal with a variance of 1 / inputs, biases at 0: every layer's output is as large as its input.
    Torch's own start shrinks it, which a norm makes good and a variant without statistics cannot.

    A placement with a start of its own (DeepNorm, Fixup, nGPT) keeps it in its layers: it is part of the method.
    """
    own = wiring_of("normkit compare", placement).init is not None
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.dim() > 1 and not (own and "layers." in name):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
                nn.init.normal_(weight, std=weight[0].numel() ** -0.5)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)
    for module in spheres(model):
        module.normalize_weights()  # type: ignore[operator]
    return model


def permute_outputs(model: nn.Module, seed: int) -> nn.Module:
    """Permute the outputs of every layer's weights, and of its bias with them: other numbers of the same law.

    What is trained from there differs from what the model itself would become by chance alone.
    """
    done: set[int] = set()
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if not isinstance(weight, nn.Parameter) or weight.dim() < 2 or id(weight) in done:
            continue
        done.add(id(weight))
        order = torch.randperm(
            len(weight), generator=torch.Generator().manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
        )
        bias = getattr(module, "bias", None)
        with torch.no_grad():
            weight.copy_(weight[order])
            if isinstance(bias, nn.Parameter) and bias.shape == order.shape:
                bias.copy_(bias[order])
    return model
