"""A differentiable search among placements of a norm, or any candidates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

TINY = 1e-12
OUTSIDE = "noise must lie in [0, 1)"


@method(
    "placement-search",
    paper="Learning Generalisable Omni-Scale Representations for Person Re-Identification (Zhou et al., 2019), "
    "arXiv 1910.06827",
    shape="3 : unit",
    inputs={"temperature": "1 : unit", "outputs[0]": "N C", "outputs[1]": "N C", "outputs[2]": "N C"},
    example={"candidates": 3},
    exempt={
        "onnx": "torch.onnx takes no variable number of inputs",
        "extremes ones": OUTSIDE,
        "extremes huge": OUTSIDE,
        "extremes offset": OUTSIDE,
    },
)
class PlacementSearch(Method):
    """Mix the outputs of candidates by softmax weights with Gumbel noise, so that gradients find the best one.

    For the choice of a norm's place, learned together with the network (one module a block). With E = 1e-12,

        gumbel = -log(-log(noise + E)),    logits = log(relu(weight) + E) + gumbel
        e = exp(logits / temperature),     y = sum of outputs_i e_i / (sum of e + E)

    The authors draw once a block and step, also in evaluation, at the temperature max(1, 10 * 0.5^(epoch // 20)). Then
    they train the network anew with the candidates that :meth:`chosen` names. A weight that falls to 0 or below gets no
    gradient any more. Small temperatures overflow: nothing is subtracted from the logits.

    Args:
        candidates: how many there are.

    ``module(noise, temperature, *outputs)``: noise (candidates,) uniform in [0, 1 - 1e-7], temperature a single number,
    and the candidates' outputs, tensors of one shape. :meth:`among` wraps modules and draws the noise.

    Learning Generalisable Omni-Scale Representations for Person Re-Identification (Zhou et al., 2019), arXiv
    1910.06827, there OSNet-AIN.
    """

    def __init__(self, candidates: int):
        super().__init__()
        self.candidates = check.size(self, "candidates", candidates)
        self.weight = nn.Parameter(torch.ones(candidates))

    def forward(self, noise: Tensor, temperature: Tensor, *outputs: Tensor) -> Tensor:
        """Mix ``outputs``."""
        check.values(self, "noise", noise, (self.candidates,), noise)
        check.floating(self, temperature, "temperature")
        check.shape(self, "temperature", temperature, (1,) if temperature.dim() else (), noise)
        if len(outputs) != self.candidates:
            raise ValueError(f"PlacementSearch: outputs must be {self.candidates} tensors, not {len(outputs)}")
        self._check_outputs(outputs, noise)
        shares = self.shares(accurate(noise), accurate(temperature))
        mixed = sum(share * accurate(output) for share, output in zip(shares, outputs, strict=True))
        return mixed.to(outputs[0].dtype)

    def _check_outputs(self, outputs: Sequence[Tensor], noise: Tensor) -> None:
        for place, output in enumerate(outputs):
            check.floating(self, output, f"outputs[{place}]")
            check.shape(self, f"outputs[{place}]", output, output.shape, noise)
            if output.shape != outputs[0].shape:
                raise ValueError(
                    f"PlacementSearch: outputs[0] and outputs[{place}] must have one shape, "
                    f"not {tuple(outputs[0].shape)} and {tuple(output.shape)}"
                )

    def shares(self, noise: Tensor, temperature: Tensor) -> Tensor:
        """The weights of a draw."""
        gumbel = -torch.log(-torch.log(noise + TINY))
        logits = torch.log(torch.relu(accurate(self.weight).to(noise.dtype)) + TINY) + gumbel
        e = torch.exp(logits / temperature.to(noise.dtype))
        return e / (e.sum() + TINY)

    def chosen(self) -> int:
        """The candidate with the largest weight."""
        return int(self.weight.argmax())

    @classmethod
    def among(cls, modules: Sequence[nn.Module]) -> SearchedModules:
        """Wrap modules of one result's shape: ``wrapped(*inputs, temperature=...)`` draws the noise and mixes them."""
        return SearchedModules(modules)


class SearchedModules(nn.Module):
    """Candidate modules, and the search among them."""

    def __init__(self, modules: Sequence[nn.Module]):
        super().__init__()
        self.candidates = nn.ModuleList(modules)
        self.search = PlacementSearch(len(self.candidates))

    def forward(self, *inputs: Tensor, temperature: float = 1.0) -> Tensor:
        """Run all candidates and mix their results by a new draw."""
        outputs = [candidate(*inputs) for candidate in self.candidates]
        weight = accurate(self.search.weight)
        noise = torch.rand_like(weight).clamp(max=1 - 1e-7)
        return self.search(noise, weight.new_tensor(temperature), *outputs)

    def chosen(self) -> nn.Module:
        """The candidate with the largest weight."""
        return self.candidates[self.search.chosen()]
