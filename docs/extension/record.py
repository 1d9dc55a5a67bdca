"""Record the goldens of this package: ``python record.py`` once it is installed with ``pip install -e .``.

An example has no authors, so that the equations are written a second time, in other words. Where there is code of the
authors, call that instead.
"""

import math

import torch
from torch import Tensor

from normkit.contract.goldens import Golden, Optimizer, Rule, Text

DRAW = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    """Draw numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=DRAW)


def norm() -> Golden:
    """The median by sorting; of eight numbers it is the fourth."""
    weight = numbers(8).requires_grad_()
    golden = Golden("median-norm", "plain", source="the equations, by sorting", args=[8])
    golden.state(weight=weight)
    golden.step(lambda x: (x - x.sort(-1).values[..., 3:4]) * weight, {"x": numbers(3, 8)})
    return golden


class Bounded(torch.optim.Optimizer):
    """The step entry by entry, in plain Python."""

    def step(self) -> None:
        """Take it."""
        for group in self.param_groups:
            for p in group["params"]:
                averages = self.state[p].setdefault("m", [0.0] * len(p))
                for at, slope in enumerate(p.grad.tolist()):
                    bounded = math.copysign(min(abs(slope), 1.0), slope)
                    averages[at] = 0.9 * averages[at] + 0.1 * bounded
                    p.data[at] -= group["lr"] * averages[at]


def optimizer() -> Optimizer:
    """Three steps."""
    golden = Optimizer(
        "bounded-momentum", "plain", source="the equations", kwargs={"lr": 0.1}, parameters={"w": numbers(5)}
    )
    golden.build(lambda params: Bounded(params, {"lr": 0.1}))
    for _ in range(3):
        golden.step({"w": 2 * numbers(5)})
    return golden


def flow() -> Golden:
    """The curve by logarithms and exponentials; a flow begins with a shift and a scale."""
    state = {name: numbers(3).requires_grad_() for name in ("shift", "log_scale", "skew", "log_tail")}

    def theirs(x: Tensor) -> tuple[Tensor, Tensor]:
        moved = (x + state["shift"]) * state["log_scale"].exp()
        bent = state["log_tail"].exp() * (moved + (moved**2 + 1).sqrt()).log() + state["skew"]
        slope = state["log_tail"].exp() * (bent.exp() + (-bent).exp()) / 2 / (moved**2 + 1).sqrt()
        return (bent.exp() - (-bent).exp()) / 2, (state["log_scale"] + slope.log()).sum(-1)

    golden = Golden("sinh-arcsinh", "plain", kind="flow", source="the equations, by logarithms", args=[3])
    golden.state(**{f"parts.{int(at > 1)}.{name}": value for at, (name, value) in enumerate(state.items())})
    golden.step(theirs, {"x": numbers(4, 3)}, outputs=["z", "log_det"])
    return golden


def step() -> Text:
    """Sign by sign, in plain Python."""

    def theirs(text: str) -> str:
        kept, depth = "", 0
        for sign in text:
            depth += sign == "("
            kept += sign * (depth == 0)
            depth -= sign == ")"
        return " ".join(kept.split())

    golden = Text("no-brackets", "plain", source="the rule, sign by sign", kind="text-step", kwargs={"pairs": "()"})
    for text in ("Paris (France)", "Paris", "(the) Hague (NL) [city]", ""):
        golden.step(theirs, text)
    return golden


def rule() -> Rule:
    """A layer that goes quiet at the third sample, and one that does not."""
    golden = Rule("quiet-layers", "plain", source="the thresholds of its docstring")
    seen = [(at, [("0", "rms", 1.0), ("1", "rms", rms)]) for at, rms in ((10, 1.0), (20, 0.1), (30, 1e-8), (40, 1e-8))]
    golden.step(seen, [{"title": "layers have gone quiet", "where": ["1"], "since": 30, "margin": 100.0}])
    golden.step(seen[:2], [])
    return golden


if __name__ == "__main__":
    for golden in (norm(), optimizer(), flow(), step(), rule()):
        print(golden.write())
