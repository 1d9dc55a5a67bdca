"""What surgery puts into models: plain layers, and modules that torch has none of."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from normkit.activation.batch.membrane_batchnorm import MembraneBatchNorm
from normkit.catalog import Card
from normkit.norm import Norm
from normkit.statistics import accurate

KINDS: dict[type[nn.Module], str] = {
    nn.Linear: "linear",
    nn.Conv1d: "conv",
    nn.Conv2d: "conv",
    nn.Conv3d: "conv",
    nn.ConvTranspose1d: "conv-transpose",
    nn.ConvTranspose2d: "conv-transpose",
    nn.ConvTranspose3d: "conv-transpose",
}
PLAIN, TOKENS, TURNED, CHANNELS_LAST = "plain", "tokens as samples", "time first", "channels last"


def takes_batch_statistics(module: nn.Module) -> bool:
    """Tell, by its class and never by its name in a model, whether a module normalizes over samples and keeps state.

    That is torch's BatchNorm of every rank, SyncBatchNorm and their subclasses, and a method of the catalogue whose
    card has ``N`` among the axes of its statistic, if it holds buffers itself: of a block, the norms inside count.

    >>> takes_batch_statistics(nn.BatchNorm2d(3)), takes_batch_statistics(nn.InstanceNorm2d(3))
    (True, False)
    """
    card = getattr(type(module), "card", None)
    over_samples = isinstance(card, Card) and "N" in card.over.axes
    return isinstance(module, _BatchNorm) or (over_samples and next(module.buffers(recurse=False), None) is not None)


def joined(module: nn.Module) -> dict[str, Any]:
    """The arguments by which a norm joins its statistics over processes; none where it does not.

    >>> joined(nn.SyncBatchNorm(3)), joined(nn.BatchNorm2d(3))
    ({'sync': True, 'process_group': None}, {})
    """
    for part in module.modules():
        if isinstance(part, nn.SyncBatchNorm) or (isinstance(part, Norm) and getattr(part, "sync", False)):
            return {"sync": True, "process_group": part.process_group}
    return {}


class Laid(nn.Module):
    """A norm whose input is laid out as its card wants it, and back."""

    def __init__(self, norm: nn.Module, way: str):
        super().__init__()
        self.norm, self.way = norm, way

    def forward(self, x: Tensor) -> Tensor:
        """Normalize."""
        if self.way == TOKENS:
            return self.norm(x.reshape(-1, x.shape[-1])).view_as(x)
        if self.way == TURNED:
            return self.norm(x.transpose(0, 1)).transpose(0, 1) if x.dim() == 3 else self.norm(x)
        return self.norm(x.movedim(1, -1)).movedim(-1, 1)


class ConstantPad(nn.Module):
    """Pad each channel with a value of its own, where a convolution in front of which a norm stood pads with zeros.

    With the norm a z + c folded into the convolution, padding z with -c / a is what padding a z + c with 0 was.

    Args:
        padding: as torch.nn.functional.pad takes it, the last axis first.
        values: per channel, (C,).
    """

    values: Tensor

    def __init__(self, padding: list[int], values: Tensor):
        super().__init__()
        self.padding = list(padding)
        self.register_buffer("values", values)

    def forward(self, x: Tensor) -> Tensor:
        """Pad ``x`` (N, C, *space)."""
        border = 1 - functional.pad(torch.ones_like(x[:1, :1]), self.padding)
        along = self.values.to(x.dtype).view(-1, *[1] * (x.dim() - 2))
        return functional.pad(x, self.padding) + border * along


class Zeros(nn.Module):
    """Give zeros, where a norm was added to a layer into which it went."""

    def forward(self, x: Tensor) -> Tensor:
        """Give as many zeros as ``x`` has numbers."""
        return torch.zeros_like(x)


class ThresholdNeuron(nn.Module):
    """A spiking neuron that fires where its potential is beyond a threshold of its channel.

    What :class:`~normkit.activation.batch.membrane_batchnorm.MembraneBatchNorm` is in evaluation: its normalization is
    in the thresholds.

    Args:
        channels: C.
        decay: share of the potential that is left after a step.
    """

    threshold: Tensor
    sign: Tensor

    def __init__(self, channels: int, decay: float):
        super().__init__()
        self.decay = decay
        self.register_buffer("threshold", torch.zeros(channels))
        self.register_buffer("sign", torch.ones(channels))

    @classmethod
    @torch.no_grad()
    def of(cls, norm: MembraneBatchNorm) -> ThresholdNeuron:
        """The neuron that a normalizing one is."""
        neuron = cls(norm.num_features, norm.decay).to(norm.weight)
        exact = copy.deepcopy(norm).double()
        neuron.threshold.copy_(exact.folded_threshold())
        neuron.sign.copy_(torch.where(norm.weight < 0, -1.0, 1.0))  # below it where the gain is negative
        return neuron.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Spike: ``x`` (T, N, C) or (T, N, C, *space) gives zeros and ones."""
        sign, threshold = (v.view(-1, *[1] * (x.dim() - 3)) for v in (self.sign, self.threshold))
        potential, spikes = torch.zeros_like(accurate(x[0])), []
        for now in x.unbind(0):
            potential = self.decay * potential + now
            spike = (sign * potential > sign * threshold).to(potential.dtype)
            potential = potential * (1 - spike)
            spikes.append(spike)
        return torch.stack(spikes).to(x.dtype)


class Centred(nn.Module):
    """A norm that writes to the residual stream, its result centred over features, perhaps ``shorter`` by the last."""

    def __init__(self, norm: nn.Module, shorter: bool = False):
        super().__init__()
        self.norm, self.shorter = norm, shorter

    def forward(self, x: Tensor) -> Tensor:
        """Normalize, and take the mean off."""
        y = self.norm(x)
        centred = y - y.mean(-1, keepdim=True)
        return centred[..., :-1] if self.shorter else centred


def is_conv1d(layer: nn.Module) -> bool:
    """Whether it is the linear of GPT-2 in transformers, which keeps its weight the other way round."""
    kind = type(layer)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def as_linear(layer: Any) -> nn.Module:
    """Return a plain layer, GPT-2's as the linear that it is."""
    if not is_conv1d(layer):
        return layer
    inputs, outputs = layer.weight.shape
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.weight, linear.bias = nn.Parameter(layer.weight.T, layer.weight.requires_grad), layer.bias
    return linear


def like(layer: nn.Module, linear: Any) -> nn.Module:
    """Return a linear in the form of the layer that it came from."""
    if not is_conv1d(layer):
        return linear
    new: Any = copy.copy(layer)
    new._parameters = {"weight": nn.Parameter(linear.weight.T.contiguous(), linear.weight.requires_grad)}
    new._parameters["bias"] = linear.bias
    new.nx, new.nf = linear.weight.shape[1], linear.weight.shape[0]
    return new


def hooks_of(part: nn.Module, *kinds: type) -> list[Any]:
    """What torch's normalizations of weights before parametrizations have put on a layer, of some kinds."""
    return [hook for hook in part._forward_pre_hooks.values() if isinstance(hook, kinds)]


def without_history(model: nn.Module) -> None:
    """Take the history off weights that such hooks compute anew at every call: else they cannot be copied."""
    for part in model.modules():
        for hook in hooks_of(part, WeightNorm, SpectralNorm):
            setattr(part, hook.name, getattr(part, hook.name).detach())
