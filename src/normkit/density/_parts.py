"""What flows are chained of: couplings and autoregressive maps, tokens, patches, and a norm that is set from data.

A part is called with samples and with what is given beside them, and returns the image and one log-determinant a
sample; its ``inverse`` returns the input. Curves bend each number by numbers that a network has found for it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import catalog
from normkit.density._inputs import linear


class FlowCondition(NamedTuple):
    """What a law depends on: numbers (N, context), labels (N,), either or neither."""

    numbers: Tensor | None = None
    labels: Tensor | None = None

    def beside(self, x: Tensor) -> Tensor:
        """What a network reads: ``x`` and the numbers, in the type of ``x``."""
        return x if self.numbers is None else torch.cat([x, self.numbers.to(x.dtype)], -1)


class Part(nn.Module):
    """A part of a flow that sees what the law depends on; the base of a part of your own.

    ``forward(x, condition)`` returns the image and a log-determinant for each sample, ``inverse(z, condition)`` the
    samples; ``condition`` is a :class:`FlowCondition`. A transform without that argument needs no base.
    """


class AffineCurve(nn.Module):
    """x exp(a) + b, with a held between -log 1000 and log 1000."""

    size, most = 2, math.log(1000)

    def _parts(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        a, b = raw.unbind(-1)
        return a / torch.add(1, a.abs(), alpha=1 / self.most), b

    def forward(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of numbers, and the logarithm of the slope at each."""
        a, b = self._parts(raw)
        return x * a.exp() + b, a  # addcmul has one more multiplication for each in its backward pass

    def inverse(self, z: Tensor, raw: Tensor) -> Tensor:
        """Return what numbers are the image of."""
        a, b = self._parts(raw)
        return (z - b) * (-a).exp()


class SplineCurve(nn.Module):
    """A rational-quadratic spline between -bound and bound, which is the identity where the network returns zeros."""

    def __init__(self, bins: int, bound: float):
        super().__init__()
        self.spline = catalog.create("rational-quadratic-spline", bins, tails="linear", tail_bound=bound)
        self.size = 3 * bins - 1
        self.level = math.log(math.expm1(1 - self.spline.min_derivative))

    def _knots(self, raw: Tensor) -> tuple[Tensor, ...]:
        bins = self.spline.num_bins
        widths, heights, slopes = raw.split([bins, bins, bins - 1], -1)
        return widths, heights, slopes + self.level

    def forward(self, x: Tensor, raw: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of numbers, and the logarithm of the slope at each."""
        return self.spline(x, *self._knots(raw))

    def inverse(self, z: Tensor, raw: Tensor) -> Tensor:
        """Return what numbers are the image of."""
        return self.spline.inverse(z, *self._knots(raw))[0]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "elu": F.elu,
    "tanh": torch.tanh,
    "relu": torch.relu_,  # of sums that nothing else sees
}


class Network(nn.Module):
    """Two hidden layers; the last starts at zero, so that a flow starts at the identity."""

    def __init__(self, into: int, out: int, hidden: int, activation: str = "silu"):
        super().__init__()
        self.activation = activation
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in ((into, hidden), (hidden, hidden), (hidden, out)))
        for value in self.layers[-1].parameters():
            nn.init.zeros_(value)

    def forward(self, x: Tensor) -> Tensor:
        """Return numbers for curves."""
        (first, second, last), between = self.layers, ACTIVATIONS[self.activation]
        return linear(between(linear(between(linear(x, first)), second)), last)  # type: ignore[arg-type]


class MaskedNetwork(Network):
    """The same, where what is found for a coordinate depends on those before it alone, and on the context.

    ``order`` are the places of the coordinates, ``degrees`` how many of them, the first, each hidden unit sees.
    """

    def __init__(self, order: Sequence[int], context: int, size: int, degrees: Tensor, activation: str = "silu"):
        dim, hidden = len(order), len(degrees)
        super().__init__(dim + context, dim * size, hidden, activation)
        self.order, self.context, self.size = order, context, size
        for place, mask in enumerate(self._masks(degrees)):
            self.register_buffer(f"mask{place}", mask, persistent=False)
        if hidden < dim:  # which units see what then differs between parts, and a state says it
            self.register_buffer("degrees", degrees)

    def forward(self, x: Tensor) -> Tensor:
        """Return numbers for the curves of all coordinates."""
        between = ACTIVATIONS[self.activation]
        for place, layer in enumerate(self.layers):
            weight, bias, mask = cast(Tensor, layer.weight), cast(Tensor, layer.bias), getattr(self, f"mask{place}")
            if weight.dtype != x.dtype:
                weight, bias, mask = weight.to(x.dtype), bias.to(x.dtype), mask.to(x.dtype)
            x = F.linear(between(x) if place else x, weight * mask, bias)
        return x

    def _masks(self, degrees: Tensor) -> list[Tensor]:
        order = torch.tensor(self.order, device=degrees.device)
        into, out = torch.cat([order + 1, order.new_zeros(self.context)]), order.repeat_interleave(self.size)
        pairs = itertools.pairwise([into, degrees, degrees, out])
        return [(after.unsqueeze(1) >= before).to(torch.float32) for before, after in pairs]

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Read states from before degrees were spread, which do not hold them."""
        spread = self._buffers.get("degrees")
        if spread is not None and f"{prefix}layers.0.weight" in state_dict:
            state_dict = {f"{prefix}degrees": torch.arange(len(spread)), **state_dict}
        super()._load_from_state_dict(state_dict, prefix, *others)
        if spread is not None:
            for place, mask in enumerate(self._masks(self.get_buffer("degrees"))):
                self.get_buffer(f"mask{place}").copy_(mask)


def _degrees(dim: int, hidden: int, place: int, depth: int) -> Tensor:
    """How many coordinates each hidden unit of a part sees; every second part sees them from the last.

    Of fewer units than coordinates those of all parts together are spread evenly. So what is one group to a part is
    kept apart by others, where ``depth`` times ``hidden`` is no less than ``dim``.
    """
    if hidden >= dim:
        return torch.arange(hidden) % dim
    seen = (torch.arange(hidden) * depth + place) * dim // (hidden * depth)
    return -seen % dim if place % 2 else seen


class Coupling(Part):
    """Bend one half of the coordinates by what a network makes of the other half."""

    def __init__(
        self, dim: int, curve: nn.Module, place: int, depth: int, *, context: int, hidden: int, activation: str = "silu"
    ):
        super().__init__()
        self.curve, self.flipped, self.known = curve, bool(place % 2), dim // 2
        out = (dim - self.known) * cast(int, curve.size)
        self.network = Network(self.known + context, out, hidden, activation)

    def _halves(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor, Tensor]:
        turned = x.flip(-1) if self.flipped else x
        known, other = turned.split([self.known, turned.shape[-1] - self.known], -1)
        raw = self.network(condition.beside(known))
        return known, other, raw.reshape(*other.shape, cast(int, self.curve.size))

    def _join(self, known: Tensor, other: Tensor) -> Tensor:
        joined = torch.cat([known, other], -1)
        return joined.flip(-1) if self.flipped else joined

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, D), and its log-determinants."""
        known, other, raw = self._halves(x, condition)
        other, log_slope = self.curve(other, raw)
        return self._join(known, other), log_slope.sum(-1)

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        known, other, raw = self._halves(z, condition)
        return self._join(known, self.curve.inverse(other, raw))  # type: ignore[operator]


class Autoregressive(Part):
    """Bend each coordinate by what a network makes of those before it; the way back goes one by one."""

    def __init__(
        self, dim: int, curve: nn.Module, place: int, depth: int, *, context: int, hidden: int, activation: str = "silu"
    ):
        super().__init__()
        self.dim, self.curve = dim, curve
        self.order = [*reversed(range(dim))] if place % 2 else [*range(dim)]
        degrees = _degrees(dim, hidden, place, depth)
        self.network = MaskedNetwork(self.order, context, cast(int, curve.size), degrees, activation)

    def _raw(self, x: Tensor, condition: FlowCondition) -> Tensor:
        return self.network(condition.beside(x)).reshape(*x.shape, cast(int, self.curve.size))

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, D), and its log-determinants."""
        z, log_slope = self.curve(x, self._raw(x, condition))
        return z, log_slope.sum(-1)

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        x = torch.zeros_like(z)
        for place in self.order:  # which is its own inverse
            raw = self._raw(x, condition)[..., place, :]
            value = self.curve.inverse(z[..., place], raw)  # type: ignore[operator]
            x = torch.cat([x[..., :place], value.unsqueeze(-1), x[..., place + 1 :]], -1)
        return x


class Standard(Part):
    """Shift and scale coordinates, or the channels of images: by what data have at first, which stays, then learned.

    What is learned is in units of the data's deviations, so that a step is the same whatever the data's units.
    """

    initialized: Tensor
    center: Tensor
    spread: Tensor

    def __init__(self, size: int, dims: int = 1):
        super().__init__()
        shape = (size, *[1] * (dims - 1))
        self.shift, self.log_scale = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))
        self._add_units()
        self.register_buffer("initialized", torch.tensor(False))

    @torch.no_grad()
    def initialize(self, x: Tensor) -> None:
        """Let what leaves have mean 0 and deviation 1 on these samples, unless that was done before."""
        if self.initialized:
            return
        axes = [axis for axis in range(x.dim()) if axis != 1]
        deviation, mean = torch.std_mean(x.double(), axes, correction=0)
        deviation = torch.where(deviation > 0, deviation, 1.0)
        self.center.copy_(mean.reshape(self.center.shape))
        self.spread.copy_(deviation.reshape(self.center.shape))
        self.shift.zero_(), self.log_scale.zero_()
        self.initialized.fill_(True)

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        mean, deviation, log_scale, shift = self._numbers(x)
        places = x[0].numel() // log_scale.numel() if len(x) else 1
        log_det = places * (log_scale - deviation.log()).sum()
        return ((x - mean) / deviation + shift) * log_scale.exp(), log_det.expand(len(x))

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        mean, deviation, log_scale, shift = self._numbers(z)
        return (z * (-log_scale).exp() - shift) * deviation + mean

    def _numbers(self, like: Tensor) -> list[Tensor]:
        return [value.to(like.dtype) for value in (self.center, self.spread, self.log_scale, self.shift)]

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read pickles from before there were a center and a spread: all was in what is learned."""
        super().__setstate__(state)
        if "center" not in self._buffers:
            self._add_units()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Read states from then."""
        before = {f"{prefix}center": torch.zeros_like(self.center), f"{prefix}spread": torch.ones_like(self.spread)}
        super()._load_from_state_dict({**before, **state_dict}, prefix, *others)

    def _add_units(self) -> None:
        self.register_buffer("center", torch.zeros_like(self.shift.detach()))
        self.register_buffer("spread", torch.ones_like(self.shift.detach()))


class Plain(Part):
    """A transform of the catalogue, or of the user's, that nothing is given to."""

    def __init__(self, transform: nn.Module):
        super().__init__()
        self.transform = transform

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        image = self.transform(x)
        if not (isinstance(image, tuple | list) and len(image) == 2):
            name, kind = type(self.transform).__name__, type(image).__name__
            raise TypeError(f"Flow: a part must return (z, log_det), but {name} returns a {kind}")
        z, log_det = image
        return z, log_det.flatten(1).sum(1) if log_det.dim() > 1 else log_det

    def inverse(self, z: Tensor, condition: FlowCondition) -> Tensor:
        """Return what ``z`` is the image of."""
        preimage = self.transform.inverse(z)  # type: ignore[operator]
        return preimage[0] if isinstance(preimage, tuple) else preimage


class Tokens(Part):
    """A transform of tokens (N, T, C), of vectors with a token for each coordinate or of images cut into patches."""

    def __init__(self, transform: nn.Module, patch: int | None, mean: bool, labels: bool):
        super().__init__()
        self.transform, self.patch, self.mean, self.labels = transform, patch, mean, labels

    def _others(self, condition: FlowCondition) -> list[Tensor]:
        return [condition.labels] if self.labels and condition.labels is not None else []

    def forward(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        """Return the image, and its log-determinants."""
        z, log_det = self.transform(tokens(x, self.patch), *self._others(condition))
        return whole(z, x.shape[1:], self.patch), log_det * x[0].numel() if self.mean and len(x) else log_det

    def inverse(self, z: Tensor, condition: FlowCondition, **options: Any) -> Tensor:
        """Return what ``z`` is the image of; ``options`` are those of the transform's own inverse."""
        preimage = self.transform.inverse(tokens(z, self.patch), *self._others(condition), **options)  # type: ignore[operator]
        return whole(preimage, z.shape[1:], self.patch)


def tokens(x: Tensor, patch: int | None) -> Tensor:
    """Cut images (N, C, H, W) into patches (N, T, C patch^2), or vectors into numbers."""
    if patch is None:
        return x.unsqueeze(-1)
    height, width = x.shape[2] // patch, x.shape[3] // patch  # torch's pixel_unshuffle does not cut images of no sample
    cut = x.unflatten(3, (width, patch)).unflatten(2, (height, patch))
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def whole(patches: Tensor, shape: Sequence[int], patch: int | None) -> Tensor:
    """Join what was cut."""
    if patch is None:
        return patches.squeeze(-1)
    channels, height, width = shape
    cut = patches.unflatten(2, (channels, patch, patch)).unflatten(1, (height // patch, width // patch))
    return cut.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
