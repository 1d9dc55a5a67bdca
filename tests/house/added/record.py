"""Record goldens of the methods beside this file, by their equations in other words."""

import math

import torch
from torch import Tensor

from normkit.contract.goldens import Golden, Optimizer, Rule, Text

DRAW = torch.Generator().manual_seed(0)


def numbers(*shape: int) -> Tensor:
    """Draw numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64, generator=DRAW)


def middle_norm() -> Golden:
    """Of eight numbers the median is the fourth."""
    weight = numbers(8).requires_grad_()
    golden = Golden("middle-norm", "plain", source="the equation, by sorting", args=[8])
    golden.state(weight=weight)
    golden.step(lambda x: weight * (x - x.sort(-1).values[..., 3:4]), {"x": numbers(3, 8)})
    return golden


class Clipped(torch.optim.Optimizer):
    """The step entry by entry."""

    def step(self) -> None:
        """Take it."""
        for group in self.param_groups:
            for p in group["params"]:
                averages = self.state[p].setdefault("m", [0.0] * len(p))
                for at, slope in enumerate(p.grad.tolist()):
                    averages[at] = 0.9 * averages[at] + 0.1 * math.copysign(min(abs(slope), 1.0), slope)
                    p.data[at] -= group["lr"] * averages[at]


def clipped_momentum() -> Optimizer:
    """Three steps."""
    how = {"source": "the equations, entry by entry", "kwargs": {"lr": 0.1}, "parameters": {"w": numbers(5)}}
    golden = Optimizer("clipped-momentum", "plain", **how)
    golden.build(lambda params: Clipped(params, {"lr": 0.1}))
    for _ in range(3):
        golden.step({"w": 2 * numbers(5)})
    return golden


def log_cosh() -> Golden:
    """By cosines."""
    golden = Golden("log-cosh", "plain", source="the equation, by cosh", kwargs={"scale": 2.0})
    golden.step(
        lambda x, target: 4 * ((x - target) / 2).cosh().log().mean(), {"x": numbers(3, 5), "target": numbers(3, 5)}
    )
    return golden


def half_sandwich() -> Golden:
    """Around two linear maps."""
    names = ("attention_norm.weight", "feedforward_norm.weight", "feedforward_output_norm.weight")
    norms = {name: numbers(6).requires_grad_() for name in names}
    maps = {f"{name}.weight": numbers(6, 6).requires_grad_() for name in ("attention", "feedforward")}

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.square().sum(-1, keepdim=True) / 6 + 1e-6).sqrt() * norms[f"{name}.weight"]

    def theirs(x: Tensor) -> Tensor:
        x = x + norm(x, "attention_norm") @ maps["attention.weight"].T
        return x + norm(norm(x, "feedforward_norm") @ maps["feedforward.weight"].T, "feedforward_output_norm")

    how = {"dim": 6, "layer": 0, "depth": 2, "norm": "rmsnorm"}
    golden = Golden("half-sandwich", "plain", kind="block", source="the equations", kwargs=how)
    golden.state(**maps, **norms)
    golden.step(theirs, {"x": numbers(2, 5, 6)})
    return golden


def sinh_arcsinh() -> Golden:
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


def quiet_layers() -> Rule:
    """A layer that goes quiet at the third sample, and one that does not."""
    golden = Rule("quiet-layers", "plain", source="the threshold of its docstring")
    seen = [(at, [("0", "rms", 1.0), ("1", "rms", rms)]) for at, rms in ((10, 1.0), (20, 0.1), (30, 1e-8), (40, 1e-8))]
    golden.step(seen, [{"title": "layers have gone quiet", "where": ["1"], "since": 30, "margin": 100.0}])
    golden.step(seen[:2], [])
    return golden


def ligatures() -> Text:
    """By one replacement after another."""
    golden = Text("ligatures", "plain", source="the docstring")

    def theirs(texts: list[str]) -> list[str]:
        return [text.replace("\ufb01", "fi").replace("\ufb03", "ffi") for text in texts]

    golden.step(theirs, ["the \ufb01rst o\ufb03ce", "plain", ""])
    return golden


def trimmed_average() -> Golden:
    """By what is left of a sum."""
    golden = Golden("trimmed-average", "plain", source="the equation, by a sum", kwargs={"entries": ["w", "b"]})

    def theirs(*states: Tensor) -> list[Tensor]:
        return [(x.sum(0) - x.amin(0) - x.amax(0)) / (len(x) - 2) for x in states]

    golden.step(theirs, {"w": numbers(5, 2, 3), "b": numbers(5, 3)}, outputs=["w", "b"], gradients=False)
    return golden


ALL = (
    middle_norm, clipped_momentum, log_cosh, half_sandwich, sinh_arcsinh, quiet_layers, ligatures, trimmed_average,
)  # fmt: skip

if __name__ == "__main__":
    for record in ALL:
        print(record().write())
