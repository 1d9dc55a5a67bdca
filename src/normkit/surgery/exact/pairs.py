"""Fold batch normalization into the linear or convolution next to it: the same numbers, one layer less."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from normkit import check
from normkit.kinds.kind import sizes
from normkit.layout import Layout
from normkit.norm import Norm
from normkit.parameters import is_hooked, own_parameter
from normkit.surgery.edits.layers import (  # noqa: F401  pickles name them here
    KINDS,
    ConstantPad,
    ThresholdNeuron,
    Zeros,
    as_linear,
    is_conv1d,
    like,
    takes_batch_statistics,
)

FUNCTIONS: dict[Any, Any] = {  # what a layer calls
    nn.Linear: functional.linear,
    nn.Conv1d: functional.conv1d,
    nn.Conv2d: functional.conv2d,
    nn.Conv3d: functional.conv3d,
}
TORCHS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
LARGE = 1e6  # beyond what a norm clamps at


def fold_batchnorm(
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    gain: Tensor,
    shift: Tensor,
    *,
    layer: str = "linear",
    groups: int = 1,
    position: str = "after",
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor]:
    """Return the weight and bias of one layer that does what a layer and a batchnorm in evaluation do.

    The batchnorm is a z + c per channel, a = gain / sqrt(running_var + eps), c = shift - running_mean a. Pass zeros
    for a missing bias, ones and zeros for a batchnorm without gain and shift. Differentiable in everything.

    Args:
        weight: as torch keeps it: (O, I) linear, (O, I/G, *k) conv, (I, O/G, *k) conv-transpose.
        bias: (O,).
        running_mean, running_var, gain, shift: per channel.
        layer: ``"linear"``, ``"conv"`` of any rank, or ``"conv-transpose"``.
        groups: G of a convolution.
        position: ``"after"``, the batchnorm reads the layer, exact for every stride, dilation and padding; or
            ``"before"``, the layer reads the batchnorm, linear and conv only, and for a conv exact only where padding
            commutes with the batchnorm: none, or one that repeats values.
        eps: added to the variance under the root.
    """
    check.choice("fold_batchnorm", "layer", layer, ("linear", "conv", "conv-transpose"))
    check.choice("fold_batchnorm", "position", position, ("after", "before"))
    if layer == "conv-transpose" and position == "before":
        raise ValueError("fold_batchnorm: with position='before' a conv-transpose would need a bias for each position")
    outputs = weight.shape[1] * groups if layer == "conv-transpose" else weight.shape[0]
    channels = outputs if position == "after" else weight.shape[1] * groups
    check.shape("fold_batchnorm", "bias", bias, (outputs,))
    norm = {"running_mean": running_mean, "running_var": running_var, "gain": gain, "shift": shift}
    for name, value in norm.items():
        check.shape("fold_batchnorm", name, value, (channels,))
    scale = gain / (running_var + check.eps("fold_batchnorm", eps)).sqrt()
    offset = shift - running_mean * scale
    if position == "after":
        return _scale_outputs(weight, scale, layer, groups), scale * bias + offset
    inputs = weight.shape[1]
    taps = weight.flatten(2).sum(-1) if weight.dim() > 2 else weight
    own = torch.arange(outputs, device=weight.device).unsqueeze(1) // (outputs // groups) * inputs
    read = own + torch.arange(inputs, device=weight.device)
    along = (outputs, inputs) + (1,) * (weight.dim() - 2)
    return weight * scale[read].view(along), bias + (taps * offset[read]).sum(1)


def _scale_outputs(weight: Tensor, scale: Tensor, layer: str, groups: int) -> Tensor:
    """Multiply each output channel of a weight."""
    if layer != "conv-transpose":
        return weight * scale.view(-1, *[1] * (weight.dim() - 1))
    grouped = weight.unflatten(0, (groups, -1))
    return (grouped * scale.view(groups, 1, -1, *[1] * (weight.dim() - 2))).flatten(0, 1)


@torch.no_grad()
def scale_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Return a and c, in float64, of a norm that is a z + c per channel in evaluation, or raise ValueError.

    torch's own classes are read; every other one, of the library or derived from torch's, is asked: what it makes of
    zeros, of ones and of random numbers, small and large. So an activation inside, a clamp, or a statistic of the
    batch, is found out.

    >>> scale_and_shift(nn.BatchNorm1d(1, eps=0.0).eval())
    (tensor([1.], dtype=torch.float64), tensor([0.], dtype=torch.float64))
    """
    if not takes_batch_statistics(norm):
        raise ValueError(f"scale_and_shift: {type(norm).__name__} is no layer with batch statistics")
    if norm.training:
        raise ValueError("scale_and_shift: the norm is in train mode; fold in evaluation only")
    own: Any = norm
    if type(norm) in TORCHS and own.running_var is not None:
        scale = (own.running_var.double() + own.eps).rsqrt() * (1 if own.weight is None else own.weight.double())
        return scale, (0 if own.bias is None else own.bias.double()) - own.running_mean.double() * scale
    return measure_affine(norm)


def measure_affine(norm: Any) -> tuple[Tensor, Tensor]:
    """The scale and shift of a norm by what it makes of numbers, or a ValueError where it has none."""
    name, exact, layout = type(norm).__name__, copy.deepcopy(norm).double(), _layout(norm)
    channels = getattr(norm, "num_features", None) or next(iter(norm.arguments.values()))
    shape = layout.shape(sizes(channels), trailing=(2, 3))
    axis = layout.axes.index("C")
    random = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    if getattr(norm, "channels_last", False):
        random, axis = random.movedim(axis, -1), -1
    random = random.to(next((t.device for t in [*exact.buffers(), *exact.parameters()]), random.device))
    try:
        zeros, ones, *moved = (exact(x).movedim(axis, -1) for x in (random * 0, random * 0 + 1, random, LARGE * random))
    except (TypeError, ValueError, RuntimeError) as error:
        shape = tuple(random.shape)
        raise ValueError(f"scale_and_shift: {name} does not take one input of shape {shape}: {error}") from error
    shift = zeros.flatten(0, -2)[0]
    scale = ones.flatten(0, -2)[0] - shift
    affine = (scale * size * random.movedim(axis, -1) + shift for size in (1, LARGE))
    if not all(_same(got, want, 1e-9) for got, want in zip(moved, affine, strict=True)):
        raise ValueError(f"scale_and_shift: {name} is not a scale and a shift of each channel in evaluation")
    return scale, shift


def _same(got: Tensor, other: Tensor, tolerance: float) -> bool:
    """Tell whether two results agree relative to the largest number; NaN never does."""
    largest = other.abs().max() if other.numel() else 0
    return got.shape == other.shape and bool(((got - other).abs() <= tolerance * largest).all())


def _layout(norm: nn.Module) -> Layout:
    if isinstance(norm, Norm):
        return norm.card.shape
    axes = next((rank for rank, kind in enumerate(TORCHS[:3], 1) if isinstance(norm, kind)), 2)
    return Layout("N C " + {1: "", 2: "H W", 3: "H W L"}[axes])


class _Caught(TorchFunctionMode):
    """Notes the calls of linears and convolutions within it: what they were given, and gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], Any]] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Let it be called."""
        result = func(*args, **(kwargs or {}))
        if func in FUNCTIONS.values():
            self.calls.append((func, (*args, *(kwargs or {}).values()), result))
        return result


@torch.no_grad()
def plain_layer(layer: nn.Module) -> nn.Module | None:
    """The plain layer that one derived from it is, if it only computes its weight anew at every call; else None."""
    kind: Any = next((k for k in FUNCTIONS if isinstance(layer, k) and type(layer).forward is not k.forward), None)
    own: Any = layer
    if kind is None or own_parameter(own, "weight") is None or getattr(own, "padding_mode", "zeros") != "zeros":
        return None
    first, second = (_only_call(own, FUNCTIONS[kind], seed, size) for seed, size in enumerate((32, 33)))
    if first is None or second is None:
        return None
    (weight, bias, *numbers), (again, bias_again, *_) = first, second
    if not torch.equal(weight, again) or (bias is not None and not torch.equal(bias, bias_again)):
        return None
    return _with(kind, own, weight, bias, numbers).train(layer.training)


def _only_call(layer: Any, function: Callable[..., Tensor], seed: int, size: int) -> Sequence[Any] | None:
    """What a layer calls a function with besides its own input, if it does nothing else; else None."""
    exact, wide = copy.deepcopy(layer).double().eval(), layer.weight.shape[1] * getattr(layer, "groups", 1)
    shape = (2, wide, *[size] * (layer.weight.dim() - 2))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu").to(
        layer.weight.device
    )
    try:
        with _Caught() as caught:
            result = exact(x)
    except Exception:  # it takes another input
        return None
    if len(caught.calls) != 1:
        return None
    called, (first, *rest), returned = caught.calls[0]
    whole = called is function and first is x and returned is result
    return rest if whole and not any(isinstance(part, str) for part in rest) else None


def _with(kind: Any, own: nn.Module, weight: Tensor, bias: Tensor | None, numbers: Sequence[Any]) -> nn.Module:
    """A plain layer with the numbers that a function was given: stride, padding, dilation and groups."""
    like: Any = own.weight
    outputs, inputs = weight.shape[:2]
    if kind is nn.Linear:
        new = kind(inputs, outputs, bias is not None, device=like.device, dtype=like.dtype)
    else:
        names = dict(zip(("stride", "padding", "dilation", "groups"), numbers, strict=False))
        wide = inputs * names.get("groups", 1)
        where = {"bias": bias is not None, "device": like.device, "dtype": like.dtype}
        new = kind(wide, outputs, tuple(weight.shape[2:]), **names, **where)
    new.weight.copy_(weight).requires_grad_(like.requires_grad)
    if bias is not None:
        new.bias.copy_(bias).requires_grad_(_learned(own))
    return new


@torch.no_grad()
def fold_pair(layer: nn.Module, norm: nn.Module, position: str = "after") -> nn.Module:
    """Return a new layer that does what ``layer`` and ``norm``, one after the other, do in evaluation.

    In front of a linear that reads flattened images each channel's numbers are repeated. Raises ValueError, with the
    reason, where the two cannot be one: see :func:`fold_scale`, and a norm that is no scale and shift.
    """
    check_plain("fold_pair", layer)
    scale, offset = scale_and_shift(norm)
    wide = width(layer, position)
    if position == "before" and type(layer) is nn.Linear and wide % len(scale) == 0:
        scale, offset = (v.repeat_interleave(wide // len(scale)) for v in (scale, offset))
    return fold_scale(layer, scale, offset, position)


def check_plain(owner: str, layer: nn.Module) -> None:
    """Refuse what is no plain linear or convolution: a subclass, a parametrization, a layer with a hook."""
    if not is_layer(layer) or is_hooked(layer) or "forward" in vars(layer):
        raise ValueError(f"{owner}: {type(layer).__name__} is no plain linear or convolution, or has a hook")


def is_layer(module: nn.Module) -> bool:
    """Whether its class is one of torch's linears and convolutions."""
    return type(module) in KINDS or is_conv1d(module)


def is_plain(layer: nn.Module) -> bool:
    """Whether it is a plain linear or convolution, without a hook."""
    try:
        check_plain("is_plain", layer)
    except ValueError:
        return False
    return True


def width(layer: nn.Module, position: str) -> int:
    """How many channels a plain layer gives (``"after"``) or reads (``"before"``)."""
    own: Any = as_linear(layer)
    groups, turned = getattr(own, "groups", 1), KINDS[type(own)] == "conv-transpose"
    outputs, inputs = (own.weight.shape[1], own.weight.shape[0]) if turned else own.weight.shape[:2]
    if position == "after":
        return outputs * groups if turned else outputs
    return inputs if turned else inputs * groups


@torch.no_grad()
def fold_scale(layer: nn.Module, scale: Tensor, offset: Tensor, position: str = "after") -> nn.Module:
    """Return a new layer that does what ``layer`` and z scale + offset, per channel of one of its sides, do.

    Computed in float64 and rounded once; the result shares no parameter with its origin, and has a bias if one is
    needed. In front of a convolution that pads with zeros the result is a :class:`ConstantPad` and the convolution
    without padding. Raises ValueError, with the reason, where that cannot be.
    """
    check_plain("fold_scale", layer)
    new: Any = copy.deepcopy(as_linear(layer))
    kind = KINDS[type(new)]
    weight, groups = new.weight.double(), getattr(new, "groups", 1)
    scale, offset = (v.to(weight) for v in (scale, offset))
    outputs, channels = width(layer, "after"), width(layer, position)
    if len(scale) != channels:
        raise ValueError(
            f"fold_scale: the norm has {len(scale)} channels, the layer {channels} {position} which it stands"
        )
    bias = weight.new_zeros(outputs) if new.bias is None else new.bias.double()
    moments = (torch.zeros_like(scale), torch.ones_like(scale), scale, offset)
    weight, bias = fold_batchnorm(weight, bias, *moments, layer=kind, groups=groups, position=position, eps=0.0)
    if new.bias is not None or offset.any():
        new.bias = nn.Parameter(bias.to(new.weight.dtype), _learned(new))
    new.weight = nn.Parameter(weight.to(new.weight.dtype), new.weight.requires_grad)
    padding = list(getattr(new, "_reversed_padding_repeated_twice", []))
    if position == "after" or not any(padding) or new.padding_mode != "zeros" or not offset.any():
        return like(layer, new)
    if (scale == 0).any():
        raise ValueError("fold_scale: a gain of 0 in front of a convolution that pads with zeros cannot be padded for")
    new.padding, new._reversed_padding_repeated_twice = (0,) * (weight.dim() - 2), [0] * len(padding)
    return nn.Sequential(ConstantPad(padding, (-offset / scale).to(new.weight.dtype)), new)


@torch.no_grad()
def fold_beside(layer: nn.Module, scale: Tensor, offset: Tensor) -> nn.Module:
    """Return a new layer that gives what ``layer`` gives of z, and z scale + offset, per channel, besides.

    The middle of each channel's own kernel takes the scale, so there must be one, as many channels behind as before,
    and a result at each place of z; else a ValueError says what is missing.
    """
    check_plain("fold_beside", layer)
    new: Any = copy.deepcopy(as_linear(layer))
    outputs, groups = width(new, "after"), getattr(new, "groups", 1)
    if KINDS[type(new)] == "conv-transpose" or not outputs == width(new, "before") == len(scale):
        raise ValueError(
            f"fold_beside: the norm has {len(scale)} channels, the layer does not give as many as it reads"
        )
    taps = new.weight.shape[2:]
    reach = [
        size for tap, far in zip(taps, getattr(new, "dilation", ()), strict=True) for size in [far * (tap - 1) / 2] * 2
    ]
    padded = list(reversed(getattr(new, "_reversed_padding_repeated_twice", [])))
    if any(step != 1 for step in getattr(new, "stride", ())) or any(tap % 2 == 0 for tap in taps) or padded != reach:
        raise ValueError("fold_beside: the layer does not give a result at each place of what it reads")
    weight, own = new.weight.double(), torch.arange(outputs, device=new.weight.device)
    middle = (own, own % (outputs // groups), *[tap // 2 for tap in taps])
    weight[middle] += scale.to(weight)
    bias = weight.new_zeros(outputs) if new.bias is None else new.bias.double()
    new.bias = nn.Parameter((bias + offset.to(weight)).to(new.weight.dtype), _learned(new))
    new.weight = nn.Parameter(weight.to(new.weight.dtype), new.weight.requires_grad)
    return like(layer, new)


def _learned(layer: nn.Module) -> bool:
    """Whether the bias of a layer is trained; one that it does not have yet is where its weight is."""
    own: Any = layer
    return (own.weight if own.bias is None else own.bias).requires_grad
