"""The built-in models, small enough for a laptop's CPU: a decoder, a vision transformer and a ResNet.

The transformers are those of `normkit.transformer`, in which placement, norm and attention core are names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit.lab.plan.data import Images
from normkit.lab.plan.variants import Variant
from normkit.residual.stream import wiring_of
from normkit.surgery.swap import maker
from normkit.transformer.model import Decoder, Encoder
from normkit.weight import spheres


def decoder(variant: Variant, seed: int, length: int, sizes: Mapping[str, int]) -> nn.Module:
    """Build a decoder of bytes: (B, T) to (B, T, 256) scores.

    Embeddings are multiplied by sqrt(dim), which dyt and derf need and no norm suffers from; not on a sphere.
    """
    chosen = variant.arguments()
    scaled = wiring_of("normkit compare", chosen["placement"]).attention.sphere is None
    made = Decoder(vocab=256, length=length, tied=False, scale_embedding=scaled, **chosen, **sizes)
    return same_start(made, seed, variant.placement)


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
    made = ViT(images.shape, images.classes, **variant.arguments(), **sizes)
    same_start(made, seed, variant.placement)
    nn.init.zeros_(made.encoder.positions.weight)  # type: ignore[union-attr]
    return made


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with norms around the sum, as in ResNet."""

    def __init__(self, channels: int, outputs: int, stride: int, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut = nn.Conv2d(channels, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Add what the convolutions find to the image."""
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.shortcut(x) + self.norm2(self.conv2(h)))


class ResNet(nn.Module):
    """Three stages of residual blocks, each smaller and deeper than the one before; classify from the mean."""

    def __init__(self, shape: tuple[int, ...], classes: int, *, norm: str, dim: int = 16, depth: int = 1):
        super().__init__()
        make = maker(norm, channels_first=True)
        widths = [dim, dim, 2 * dim, 4 * dim]
        self.stem = nn.Sequential(nn.Conv2d(shape[0], dim, 3, 1, 1, bias=False), make(dim), nn.ReLU())
        self.layers = nn.Sequential(
            *(
                ResidualBlock(
                    widths[stage] if block == 0 else widths[stage + 1],
                    widths[stage + 1],
                    2 if stage and block == 0 else 1,
                    make,
                )
                for stage in range(3)
                for block in range(depth)
            )
        )
        self.output = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Score every class."""
        return self.output(self.layers(self.stem(x)).mean((2, 3)))


def resnet(variant: Variant, seed: int, images: Images, sizes: Mapping[str, int]) -> nn.Module:
    """Build a ResNet for small images."""
    return same_start(ResNet(images.shape, images.classes, norm=variant.norm, **sizes), seed)


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


def permuted(model: nn.Module, seed: int) -> nn.Module:
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
