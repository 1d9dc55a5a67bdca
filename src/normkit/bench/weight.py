"""Train whole models side by side, with each reparametrization on every layer that it fits: what it costs in a step.

A step is what a training loop does: forward pass, cross-entropy, backward pass, AdamW. The models are timm's ResNet-18,
without which it is left out, and a decoder of four layers; torch's own weight and spectral norm run beside ours. All of
one model run in one process, in turn.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from normkit import catalog, weight
from normkit.bench import cases, report, timing
from normkit.bench.residual import own, read_size
from normkit.bench.timing import Entrant
from normkit.kinds import PARAMETRIZATION

IMAGES, TOKENS = (8, 3, 224, 224), (4, 256, 384)
VOCAB = 4096  # a larger one would cost most of the step, and no method touches it
CLASSES = 1000
YARDSTICK = "plain"
THEIRS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "torch weight_norm": parametrizations.weight_norm,
    "torch spectral_norm": parametrizations.spectral_norm,
}

TAKES = ("names", "sizes")
COLUMNS: dict[str, Callable[[Any], str]] = {
    "model": lambda row: row["model"],
    "size": lambda row: row["size"],
    "of": lambda row: row["entrant"],
    "layers": lambda row: str(row["layers"]),
    "parameters": lambda row: f"{row['parameters']:,}",
    "step": lambda row: report.duration(row["seconds"]),
    "over plain": lambda row: f"{row['relative']:.3f}",
}
LEGEND = {
    "size": "batch, channels, height, width; of the decoder batch, length, width",
    "layers": "how many have it",
    "step": "median time of forward pass, cross-entropy, backward pass and AdamW; numbers too small for a processor's "
    "fast way are taken as 0 (torch.set_flush_denormal): standardized weights without a norm behind them make many",
    "over plain": "its time over that of the model as it is, above 1 where it is slower",
}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race every reparametrization, or those named, on models of every size."""
    names = options.names or [card.name for card in catalog.members(PARAMETRIZATION) if card.room == "weight"]
    rows: list[dict[str, Any]] = []
    torch.set_flush_denormal(True)  # before the first threads are made, which have it from here
    try:
        for size in cases.sizes(options.sizes) if options.sizes else [IMAGES, TOKENS]:
            print(f"training {'x'.join(map(str, size))}", file=sys.stderr)
            rows += race(size, names, VOCAB if options.vocab is None else options.vocab, options.repeats, clock)
    finally:
        torch.set_flush_denormal(False)
    return {"rows": rows, "failed": {}}


def race(size: tuple[int, ...], names: list[str], vocab: int, repeats: int, clock: timing.Clock) -> list[dict]:
    """Hold one race, and return a row for each model that ran."""
    title, model, inputs, truth = images(size) if len(size) == 4 else tokens(size, vocab)
    if model is None:
        return []
    models = line_up(model, names)
    calls = {name: Entrant(step(net, inputs, truth)) for name, (net, _) in models.items()}
    times = timing.race(calls, repeats, clock, progress=lambda what: print(f"  {what}", file=sys.stderr))
    return [
        {
            "model": title,
            "entrant": name,
            "size": "x".join(map(str, size)),
            "layers": layers,
            "parameters": sum(p.numel() for p in net.parameters()),
            "seconds": times[name].median,
            "low": times[name].low,
            "high": times[name].high,
            "rounds": times[name].rounds,
            "relative": times[name].median / times[YARDSTICK].median,
            "absent": {},
        }
        for name, (net, layers) in models.items()
    ]


def images(size: tuple[int, ...]) -> tuple[str, nn.Module | None, Tensor, Tensor]:
    """A ResNet-18, pictures and their classes."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(size, generator=generator), torch.randint(CLASSES, size[:1], generator=generator)
    if importlib.util.find_spec("timm") is None:
        print("timm is not installed; pip install -c constraints.txt '.[bench]' brings it", file=sys.stderr)
        return "resnet18", None, x, y
    from normkit.optional import library

    torch.manual_seed(0)
    return "resnet18", library("timm").create_model("resnet18", in_chans=size[1], num_classes=CLASSES), x, y


def tokens(size: tuple[int, ...], vocab: int) -> tuple[str, nn.Module, Tensor, Tensor]:
    """A decoder as Llama's, tokens and those that come next."""
    whole = read_size(size, vocab)
    torch.manual_seed(0)
    rows = torch.randint(vocab, (whole.batch, whole.length + 1), generator=torch.Generator().manual_seed(0))
    return "decoder", own("llama", whole, "pre-norm"), rows[:, :-1], rows[:, 1:]


def line_up(model: nn.Module, names: list[str]) -> dict[str, tuple[nn.Module, int]]:
    """Return copies of a model, each with a reparametrization, and the number of layers that have it."""
    models: dict[str, tuple[nn.Module, int]] = {YARDSTICK: (model, 0)}
    layers: list[str] = []
    for name in names:
        net = copy.deepcopy(model)
        table = weight.apply(net, name)
        layers = max(layers, table.done, key=len)
        models[name] = net, len(table.done)
    for title, wrap in THEIRS.items():
        if title.split()[1].replace("_", "-") in names:
            net = copy.deepcopy(model)
            for layer in layers:
                wrap(net.get_submodule(layer))
            models[title] = net, len(layers)
    return models


def step(model: nn.Module, inputs: Tensor, truth: Tensor) -> Callable[[], object]:
    """Return a whole step of training."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def train() -> Tensor:
        loss = F.cross_entropy(model(inputs).flatten(0, -2), truth.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return train
