"""NanoFlow: many flow steps that share one network, told apart by an embedding."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.kinds import Transform
from normkit.statistics import reals


class _Layer(nn.Module):
    """A convolution that all steps share, with its activation norm."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden, inputs, 3, 3))
        nn.init.normal_(self.weight, std=0.05)
        self.norm_bias, self.norm_log_scale = (nn.Parameter(torch.zeros(1, hidden, 1, 1)) for _ in range(2))


class _Projection(nn.Module):
    """What a step makes of the shared network's output; zero at first."""

    def __init__(self, hidden: int, outputs: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(outputs, hidden, 1, 1)), nn.Parameter(torch.zeros(outputs))
        self.log_scale = nn.Parameter(torch.zeros(outputs, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        output = F.conv2d(x, self.weight.to(x.dtype), self.bias.to(x.dtype))
        return output * (3 * self.log_scale.to(x.dtype)).exp()


class _Step(nn.Module):
    """What a step has of its own."""

    def __init__(self, num_features: int, hidden: int, layers: int, embedding: tuple[int, int, int], outputs: int):
        super().__init__()
        self.norm_bias, self.norm_log_scale = (nn.Parameter(torch.zeros(1, num_features, 1, 1)) for _ in range(2))
        self.embedding_norm_bias, self.embedding_norm_log_scale = (
            nn.Parameter(torch.zeros(1, embedding[0], 1, 1)) for _ in range(2)
        )
        self.projection = _Projection(hidden, outputs)
        self.gate = nn.Parameter(torch.zeros(layers, hidden, 1, 1))
        self.embedding = nn.Parameter(torch.randn(1, *embedding))


@method(
    "nanoflow",
    paper="NanoFlow: Scalable Normalizing Flows with Sublinear Parameter Complexity (Lee et al., 2020), "
    "arXiv 2006.06280",
    shape="N C height width",
    example={"hidden": 4, "num_flows": 2, "embedding_channels": 2, "height": 4, "width": 3, "layers": 2},
    exempt={"moves initialized": "initialize sets it"},
)
class NanoFlow(Transform):
    """Chain couplings of images that share one network, so that depth costs few parameters.

    For flows of images with many steps and few parameters. It saves no time, since each step runs the whole network;
    where parameters do not matter, take ``jet-coupling``.

    Each step has an embedding that the network sees, gates on its layers, and its own last projection. A step is an
    activation norm, the channels in reverse, and with x = [x1 | x2], e the embedding and o the network of [x1, e],

        shift, raw = even and odd channels of o,    x2 = (x2 + shift) sigmoid(raw + 2)
        log_det += H W sum norm_log_scale + sum log sigmoid(raw + 2)

    Each layer of the network is relu((conv(h) + norm_bias) exp(norm_log_scale) exp(gate)).

    Args:
        num_features: C, even.
        hidden: channels of the network.
        num_flows: how many steps.
        embedding_channels: E, of an embedding.
        height, width: H and W of the images.
        coupling: ``"affine"`` as above, or ``"additive"``: x2 + o, with no log_det.
        layers: of the network.

    ``forward(x)``, (N, C, H, W), returns ``z`` and ``log_det`` (N,); ``inverse(z)`` returns x. :meth:`initialize` sets
    the activation norms from the first batch; nothing else does. State: ``estimator.k`` is shared, ``steps.i`` is not;
    ``initialized`` says whether the norms were set.

    NanoFlow (Lee et al., 2020), arXiv 2006.06280.

    Differs from the authors' code in: activation norms are set by a call, not by the first forward pass; channels are
    reversed, where they also have learned 1x1 convolutions.
    """

    initialized: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        hidden: int,
        num_flows: int,
        embedding_channels: int,
        height: int,
        width: int,
        coupling: str = "affine",
        layers: int = 6,
    ):
        super().__init__()
        self.num_features = check.size(self, "num_features", num_features)
        check.divides(self, "halves", 2, "num_features", num_features)
        self.height, self.width = check.size(self, "height", height), check.size(self, "width", width)
        self.coupling = check.choice(self, "coupling", coupling, ("affine", "additive"))
        check.size(self, "hidden", hidden)
        embedding = check.size(self, "embedding_channels", embedding_channels), height, width
        inputs = [num_features // 2 + embedding_channels, *[hidden] * (check.size(self, "layers", layers) - 1)]
        self.estimator = nn.ModuleList(_Layer(size, hidden) for size in inputs)
        outputs = num_features if coupling == "affine" else num_features // 2
        self.steps = nn.ModuleList(
            _Step(num_features, hidden, layers, embedding, outputs)
            for _ in range(check.size(self, "num_flows", num_flows))
        )
        self.register_buffer("initialized", torch.tensor(False))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the image of ``x`` (N, C, H, W), and the log-determinant of each sample."""
        check.channels_first(self, x, self.num_features, 4, 4)
        z = reals(self, "x", x, (None, self.num_features, self.height, self.width))
        log_det = z.new_zeros(len(z))
        for step in self._steps:
            z, change = self._step(step, _norm(z, step.norm_bias, step.norm_log_scale))
            area = self.height * self.width
            log_det = log_det + area * step.norm_log_scale.to(z.dtype).sum() + change
        return z.to(x.dtype), log_det.to(x.dtype)

    def inverse(self, z: Tensor) -> Tensor:
        """Return what ``z`` (N, C, H, W) is the image of."""
        check.channels_first(self, z, self.num_features, 4, 4, name="z")
        x = reals(self, "z", z, (None, self.num_features, self.height, self.width))
        for step in reversed(self._steps):
            known, other = x.chunk(2, 1)
            shift, log_scale = self._affine(step, known)
            x = torch.cat([known, other * (-log_scale).exp() - shift], 1).flip(1)
            x = x * (-step.norm_log_scale.to(x.dtype)).exp() - step.norm_bias.to(x.dtype)
        return x.to(z.dtype)

    @torch.no_grad()
    def initialize(self, x: Tensor) -> None:
        """Set every activation norm so that what leaves it has mean 0 and deviation 1 on this batch.

        The shared network's are set in the first step, for all. What was set or loaded before stays.
        """
        z = reals(self, "x", x, (None, self.num_features, self.height, self.width))
        if self.initialized:
            return
        for number, step in enumerate(self._steps):
            _set(z, step.norm_bias, step.norm_log_scale)
            _set(step.embedding, step.embedding_norm_bias, step.embedding_norm_log_scale)
            z = _norm(z, step.norm_bias, step.norm_log_scale)
            if number == 0:
                self._estimate(step, z.flip(1).chunk(2, 1)[0], setting=True)
            z, _ = self._step(step, z)
        self.initialized.fill_(True)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        """Take states that do not say whether they were set for such that were."""
        super()._load_from_state_dict({f"{prefix}initialized": torch.tensor(True), **state_dict}, prefix, *others)

    @property
    def _steps(self) -> list[_Step]:
        return cast(list[_Step], list(self.steps))

    def _step(self, step: _Step, x: Tensor) -> tuple[Tensor, Tensor]:
        """A step behind its activation norm: the image, and what the coupling adds to the log-determinant."""
        known, other = x.flip(1).chunk(2, 1)
        shift, log_scale = self._affine(step, known)
        z = torch.cat([known, (other + shift) * log_scale.exp()], 1)
        return z, log_scale.sum((1, 2, 3))

    def _affine(self, step: _Step, known: Tensor) -> tuple[Tensor, Tensor]:
        parameters = step.projection(self._estimate(step, known))
        if self.coupling == "additive":
            return parameters, torch.zeros_like(parameters)
        return parameters[:, ::2], F.logsigmoid(parameters[:, 1::2] + 2)

    def _estimate(self, step: _Step, known: Tensor, setting: bool = False) -> Tensor:
        """The shared network, with a step's embedding and gates."""
        place = _norm(step.embedding.to(known.dtype), step.embedding_norm_bias, step.embedding_norm_log_scale)
        h = torch.cat([known, place.expand(len(known), -1, -1, -1)], 1)
        for layer, gate in zip(cast(list[_Layer], self.estimator), step.gate.to(h.dtype), strict=True):
            h = F.conv2d(h, layer.weight.to(h.dtype), padding=1)
            if setting:
                _set(h, layer.norm_bias, layer.norm_log_scale)
            h = F.relu(_norm(h, layer.norm_bias, layer.norm_log_scale) * gate.exp())
        return h


def _norm(x: Tensor, bias: Tensor, log_scale: Tensor) -> Tensor:
    return (x + bias.to(x.dtype)) * log_scale.to(x.dtype).exp()


def _set(x: Tensor, bias: Tensor, log_scale: Tensor) -> None:
    """Set an activation norm by the moments of its channels."""
    deviation, mean = torch.std_mean(x, (0, 2, 3), correction=0, keepdim=True)
    bias.copy_(-mean)
    log_scale.copy_(-(deviation + 1e-6).log())
