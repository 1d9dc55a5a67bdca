"""Time steps of optimizers over the parameters of GPT-2, and tell what state they keep.

Each runs beside its yardstick, in turn, over the same parameters and gradients: methods that keep Adam's moments beside
``torch.optim.AdamW(foreach=True)``, those of matrices beside ``torch.optim.Muon``, which gets the matrices inside the
model, and that AdamW for the rest. Where pytorch_optimizer is installed, its version of a method runs as well, and the
table says how far its numbers lie from ours, which are those of the authors' code.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.bench import cases, report, timing
from normkit.bench.timing import Entrant
from normkit.gradient import param_groups
from normkit.parameters import hidden_matrices
from normkit.transformer.presets import preset

SIZES = ((12, 768),)  # GPT-2 small
LENGTH = 1024
STEPS = 5
RATE = 1e-6  # so small that hundreds of steps leave the weights what they are
LIBRARY = "pytorch_optimizer"
YARDSTICK = "torch AdamW(foreach=True)"
OF_MATRICES = {"muon": "torch Muon", "normuon": "normkit muon"}
NAMES = ("adamp", "blockwise-lr", "conda", "grams", "muon", "normuon", "sgdp", "sinkgd", "stable-spam")
THEIRS = {
    "adamp": "AdamP",
    "sgdp": "SGDP",
    "grams": "Grams",
    "muon": "Muon",
    "conda": "Conda",
    "stable-spam": "StableSPAM",
}

COLUMNS: dict[str, Callable[[Any], str]] = {
    "method": lambda row: row["method"],
    "of": lambda row: row["entrant"],
    "size": lambda row: row["size"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "step": lambda row: report.duration(row["seconds"]),
    "over yardstick": lambda row: f"{row['relative']:.3f}",
    "state": lambda row: f"{row['state_bytes'] / 2**20:.1f} MiB",
    "numbers": lambda row: "" if row["apart"] is None else f"{row['apart']:.0e} apart",
}
LEGEND = {
    "size": "layers x width",
    "step": "median time of a step; one that works out the bases of conda anew is not among them",
    "over yardstick": "its time over that of the first row of its method, above 1 where it is slower",
    "state": "what is kept from step to step",
    "numbers": f"how far the way of {STEPS} steps with our settings lies from ours, over the longest of ours",
}
Step = Callable[[], object]


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race every method at every size, telling on stderr how far they are."""
    sizes = cases.sizes(options.sizes) if options.sizes else SIZES
    rows: list[dict[str, Any]] = []
    for size in sizes:
        if len(size) != 2:
            raise ValueError(f"--sizes: an optimizer's size is layers x width, such as 12x768, not {size}")
        model = with_gradients(*size, cases.VOCAB if options.vocab is None else options.vocab)
        for name in options.names or NAMES:
            print(f"stepping {name} {size[0]}x{size[1]}", file=sys.stderr, flush=True)
            rows += race(name, model, f"{size[0]}x{size[1]}", options.repeats, clock)
    return {"rows": rows, "failed": {}}


def with_gradients(layers: int, width: int, vocab: int) -> nn.Module:
    """Build GPT-2, each parameter with a random gradient."""
    torch.manual_seed(0)
    heads = max(1, width // 64)
    model = preset("gpt2", vocab=vocab, length=LENGTH, dim=width, depth=layers, heads=heads, hidden=4 * width)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    return model


def race(name: str, model: nn.Module, size: str, repeats: int, clock: timing.Clock) -> list[dict[str, Any]]:
    """Hold one race, and return a row for each optimizer that ran; the first is the yardstick."""
    entrants = line_up(name, model)
    times = timing.race({key: Entrant(stepped(own)) for key, own in entrants.items()}, repeats, clock)
    first = next(iter(times.values())).median
    missing = name in THEIRS and importlib.util.find_spec(LIBRARY) is None
    absent = {LIBRARY: f"it is not installed; pip install {LIBRARY} brings it"} if missing else {}
    distance = apart(name)
    return [
        {
            "method": name,
            "entrant": key,
            "size": size,
            "parameters": sum(p.numel() for p in model.parameters()),
            "seconds": time.median,
            "low": time.low,
            "high": time.high,
            "rounds": time.rounds,
            "relative": time.median / first,
            "state_bytes": state_bytes(entrants[key]),
            "apart": distance if key.startswith(LIBRARY) else None,
            "absent": absent,
        }
        for key, time in times.items()
    ]


def line_up(name: str, model: nn.Module) -> dict[str, list[torch.optim.Optimizer]]:
    """The optimizers of a race, each in its parts."""
    weights = list(model.parameters())
    own = [catalog.create(name, param_groups(model, name), lr=RATE)]
    found = {OF_MATRICES.get(name, YARDSTICK): yardstick(name, model), f"normkit {name}": own}
    theirs = of_library(name)
    if theirs is not None:
        found[f"{LIBRARY} {THEIRS[name]}"] = [theirs(their_groups(name, model, weights), lr=RATE)]
    return found


def of_library(name: str) -> Any:
    """pytorch_optimizer's version of a method, if there is one."""
    if name not in THEIRS or importlib.util.find_spec(LIBRARY) is None:
        return None
    return getattr(importlib.import_module(LIBRARY), THEIRS[name], None)


def apart(name: str) -> float | None:
    """How far pytorch_optimizer's version goes from ours in a few steps, with the settings that both know."""
    theirs = of_library(name)
    if theirs is None:
        return None
    model = with_gradients(1, 64, 11)
    start = [p.detach().clone() for p in model.parameters()]
    twin = copy.deepcopy(model)
    ours = catalog.create(name, param_groups(model, name), lr=1e-3)
    known = {key: value for key, value in ours.defaults.items() if key in inspect.signature(theirs).parameters}
    groups = their_groups(name, twin, list(twin.parameters()))
    generator = torch.Generator().manual_seed(0)
    rivals = [(ours, model), (theirs(groups, **known | {"lr": 1e-3}), twin)]
    for _ in range(STEPS):
        gradients = [torch.randn(p.shape, generator=generator) for p in start]
        for optimizer, net in rivals:
            for p, gradient in zip(net.parameters(), gradients, strict=True):
                p.grad = gradient.clone()
            optimizer.step()
    ways = [[(p - s).detach() for p, s in zip(net.parameters(), start, strict=True)] for _, net in rivals]
    longest = max(way.abs().max() for way in ways[0])
    return max(float((a - b).abs().max() / longest) for a, b in zip(*ways, strict=True))


def their_groups(name: str, model: nn.Module, weights: Sequence[Tensor]) -> Any:
    """The parameters as pytorch_optimizer's version of a method wants them."""
    if name != "muon":
        return weights
    return [{"params": group["params"], "use_muon": group["use_muon"]} for group in param_groups(model, name)]


def yardstick(name: str, model: nn.Module) -> list[torch.optim.Optimizer]:
    """What a method is held against."""
    if name == "normuon":
        return [catalog.create("muon", param_groups(model, "muon"), lr=RATE)]
    if name not in OF_MATRICES:
        return [torch.optim.AdamW(model.parameters(), lr=RATE, foreach=True)]
    matrices = hidden_matrices(model)
    inside = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in inside]
    return [torch.optim.Muon(matrices, lr=RATE), torch.optim.AdamW(rest, lr=RATE, foreach=True)]


def stepped(parts: Sequence[torch.optim.Optimizer]) -> Step:
    """The call to time."""

    def step() -> None:
        for part in parts:
            part.step()

    return step


def state_bytes(parts: Sequence[torch.optim.Optimizer]) -> int:
    """What optimizers keep of all parameters."""
    kept = [value for part in parts for state in part.state.values() for value in state.values()]
    return sum(value.nbytes for value in kept if isinstance(value, Tensor))
