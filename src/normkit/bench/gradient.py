"""Time steps of optimizers over the parameters of GPT-2, and tell what state they keep.

Each runs beside its yardstick, in turn, over the same parameters and gradients: methods that keep Adam's moments beside
``torch.optim.AdamW(foreach=True)``, those of matrices beside ``torch.optim.Muon``, which gets the matrices inside the
model, and that AdamW for the rest; Muon beside AdamW for all as well. Where pytorch_optimizer, timm or Keller Jordan's
muon-optimizer is installed, its version of a method runs as well, and the table says how far its numbers lie from ours,
which are those of the authors' code.
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
from normkit.optional import let_torchvision_load
from normkit.parameters import hidden_matrices
from normkit.transformer.presets import preset

TAKES = ("names", "sizes")
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
            print(f"stepping {name} {size[0]}x{size[1]}", file=sys.stderr)
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
    times = timing.race({key: Entrant(step_of(own)) for key, own in entrants.items()}, repeats, clock)
    first = next(iter(times.values())).median
    missing = name in THEIRS and importlib.util.find_spec(LIBRARY) is None
    absent = {LIBRARY: f"it is not installed; pip install {LIBRARY} brings it"} if missing else {}
    distances = apart(name)
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
            "apart": distances.get(key),
            "absent": absent,
        }
        for key, time in times.items()
    ]


def line_up(name: str, model: nn.Module) -> dict[str, list[torch.optim.Optimizer]]:
    """The optimizers of a race, each in its parts."""
    own = [catalog.create(name, param_groups(model, name), lr=RATE, **needs_of(name))]
    optimizers = {OF_MATRICES.get(name, YARDSTICK): yardstick(name, model), f"normkit {name}": own}
    if name == "muon":
        optimizers[YARDSTICK] = [torch.optim.AdamW(model.parameters(), lr=RATE, foreach=True)]
        optimizers |= {"timm Muon": [of_timm(model)]} if importlib.util.find_spec("timm") is not None else {}
    return optimizers | {key: [build(model, lr=RATE)] for key, build in rivals(name).items()}


def needs_of(name: str) -> dict[str, Any]:
    """What an optimizer must be given besides its rate, as its card's example has it."""
    card = catalog.card(name)
    needed = {name for name, one in card.signature.parameters.items() if one.default is inspect.Parameter.empty}
    return {k: v for k, v in card.example.items() if k != "lr" and k in needed}


def rivals(name: str) -> dict[str, Callable[..., torch.optim.Optimizer]]:
    """Others' versions of a method that are installed; each takes a model, and settings, of which it knows some."""
    builders: dict[str, Callable[..., torch.optim.Optimizer]] = {}
    theirs, authors = of_library(name), of_its_author(name)
    if theirs is not None:
        known = inspect.signature(theirs).parameters

        def of_theirs(model: nn.Module, **settings: Any) -> torch.optim.Optimizer:
            groups = their_groups(name, model, list(model.parameters()))
            return theirs(groups, **{key: value for key, value in settings.items() if key in known})

        builders[f"{LIBRARY} {THEIRS[name]}"] = of_theirs
    if authors is not None:

        def of_authors(model: nn.Module, lr: float, **_: Any) -> torch.optim.Optimizer:
            groups = their_groups(name, model, ())  # what is not for Muon keeps its own rate, which is ours
            return authors([group | ({"lr": lr} if group["use_muon"] else {}) for group in groups])

        builders["Keller Jordan's Muon"] = of_authors
    return builders


def of_timm(model: nn.Module) -> torch.optim.Optimizer:
    """timm's Muon, as timm sets it: its steps have another size, and are not compared."""
    let_torchvision_load()
    theirs = importlib.import_module("timm.optim.muon").Muon
    return theirs(their_groups("muon", model, ()), lr=RATE)


def of_its_author(name: str) -> Any:
    """Keller Jordan's Muon, if his package is installed; another package of that name has no such class."""
    if name != "muon" or importlib.util.find_spec("muon") is None:
        return None
    return getattr(importlib.import_module("muon"), "SingleDeviceMuonWithAuxAdam", None)


def of_library(name: str) -> Any:
    """pytorch_optimizer's version of a method, if there is one."""
    if name not in THEIRS or importlib.util.find_spec(LIBRARY) is None:
        return None
    return getattr(importlib.import_module(LIBRARY), THEIRS[name], None)


def apart(name: str) -> dict[str, float]:
    """How far each rival goes from ours in a few steps, with the settings that both know."""
    builders = rivals(name)
    if not builders:
        return {}
    model = with_gradients(1, 64, 11)
    ours = catalog.create(name, param_groups(model, name), lr=1e-3)
    twins = [copy.deepcopy(model) for _ in builders]
    all_of = [(model, ours)]
    all_of += [
        (twin, build(twin, **ours.defaults | {"lr": 1e-3}))
        for twin, build in zip(twins, builders.values(), strict=True)
    ]
    own, *others = [way(*each) for each in all_of]
    longest = max(moved.abs().max() for moved in own)
    return {
        key: max(float((a - b).abs().max() / longest) for a, b in zip(own, other, strict=True))
        for key, other in zip(builders, others, strict=True)
    }


def way(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """How far the parameters go in a few steps along gradients that are the same for all."""
    start = [p.detach().clone() for p in model.parameters()]
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return [p.detach() - s for p, s in zip(model.parameters(), start, strict=True)]


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


def step_of(parts: Sequence[torch.optim.Optimizer]) -> Step:
    """The call to time."""

    def step() -> None:
        for part in parts:
            part.step()

    return step


def state_bytes(parts: Sequence[torch.optim.Optimizer]) -> int:
    """What optimizers keep of all parameters."""
    kept = [value for part in parts for state in part.state.values() for value in state.values()]
    return sum(value.nbytes for value in kept if isinstance(value, Tensor))
