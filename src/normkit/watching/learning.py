"""What models can still learn: the plasticity of several checkpoints, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from normkit.columns import aligned, number_of
from normkit.probe.plasticity_probe import Spread, plasticity
from normkit.watching.drawn import Drawn, line, picture
from normkit.watching.finding import number


@dataclass(frozen=True)
class Learning(Drawn):
    """The plasticity of each model, by its name, the mean and the spread over random tasks."""

    found: Mapping[str, Spread]
    how: str
    name = "plasticity"

    def __str__(self) -> str:
        rows = [(name, number(float(one.mean)), number(float(one.spread))) for name, one in self.found.items()]
        return "\n".join(aligned([("model", "plasticity", "spread"), *rows], numbers=True))

    def heading(self) -> tuple[str, str]:
        """Return the title of the page, and a line below it."""
        return "what the models can still learn", self.how

    def pictures(self) -> list[dict[str, Any]]:
        """Draw a point a model."""
        means, spreads = ([float(getattr(one, what)) for one in self.found.values()] for what in ("mean", "spread"))
        trace = line("plasticity", self.found, means, "var(--c0)", spread=spreads)
        caption = f"How far below the best constant the loss of a new random task comes; {self.how}."
        return [picture("Plasticity", caption, [trace], "model", "plasticity", {"type": "category"})]


def learning(models: Mapping[str, nn.Module], inputs: Tensor, *, steps: int = 50, **options: Any) -> Learning:
    """Probe several models, such as checkpoints of one training, by the same random tasks.

    ``inputs``: what the tasks are about; ``steps`` and ``options`` are those of
    :func:`normkit.probe.plasticity_probe.plasticity`, an optimizer among them: compare only under the same.
    """
    if not models:
        raise ValueError("learning: models must name at least one model, and name none")
    spreads = {name: plasticity(model, inputs, steps=steps, **options) for name, model in models.items()}
    return Learning(spreads, f"{number_of(steps, 'step')} on {number_of(len(inputs), 'input')}")
