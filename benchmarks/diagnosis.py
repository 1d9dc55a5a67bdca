"""An exam of the watch: trainings made ill on purpose and healthy ones, on the 8 x 8 digits of scikit-learn.

Every run is drawn by its seed: model, size, optimizer, illness. Even seeds are for tuning rules, odd ones for judging
them. Printed are which finding came first for each illness, and the shares that are right.

    python benchmarks/diagnosis.py tuning --runs 60
    python benchmarks/diagnosis.py judging --runs 60 --out benchmarks/results/diagnosis.md
"""

from __future__ import annotations

import argparse
import collections
import platform
import random
import time
from pathlib import Path

import sklearn.datasets
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk

STEPS, BATCH, CLASSES, SIDE = 150, 64, 10, 8
HEALTHY = "healthy"


class Digits:
    """Batches of digits, as pictures of mean zero."""

    def __init__(self, seed: int):
        x, y = sklearn.datasets.load_digits(return_X_y=True)
        self.x, self.y = (torch.tensor(x, dtype=torch.float32) - 4.9) / 6.0, torch.tensor(y)
        self.chance = torch.Generator().manual_seed(seed)

    def batch(self):
        places = torch.randint(len(self.y), (BATCH,), generator=self.chance)
        return self.x[places], self.y[places]


class Transformer(nn.Module):
    """A small encoder over the rows of a digit."""

    def __init__(self, dim: int, depth: int):
        super().__init__()
        self.rows = nn.Linear(SIDE, dim)
        self.places = nn.Parameter(0.02 * torch.randn(SIDE, dim))
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, x):
        x = self.rows(x.unflatten(1, (SIDE, SIDE))) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class Block(nn.Module):
    """Pre-norm attention and a perceptron."""

    def __init__(self, dim: int):
        super().__init__()
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.second(x))))


def perceptron(draw, depth, function=nn.ReLU, norm=None):
    width = draw.choice([32, 64, 96])
    parts = []
    for layer in range(depth):
        parts += [nn.Linear(SIDE * SIDE if layer == 0 else width, width), *([norm(width)] if norm else []), function()]
        if function is nn.ReLU:
            nn.init.kaiming_normal_(parts[-2 - bool(norm)].weight)
    return nn.Sequential(*parts, nn.Linear(width, CLASSES))


def convolutional(draw, depth):
    width = draw.choice([8, 16])
    parts = [nn.Unflatten(1, (1, SIDE, SIDE))]
    for layer in range(depth):
        norm = [nn.BatchNorm2d(width)] if draw.random() < 0.5 else []
        parts += [nn.Conv2d(1 if layer == 0 else width, width, 3, padding=1), *norm, nn.ReLU()]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, CLASSES))


def transformer(draw, depth):
    return Transformer(draw.choice([32, 48]), depth)


MODELS = {"perceptron": perceptron, "convolutional": convolutional, "transformer": transformer}
RATES = {
    "adam": {"perceptron": (1e-3, 3e-3), "convolutional": (1e-3, 3e-3), "transformer": (1e-3, 2e-3)},
    "momentum": {"perceptron": (0.01, 0.03), "convolutional": (0.01, 0.03), "transformer": (0.01, 0.03)},
}


def optimizer_of(parameters, name, rate):
    if name == "adam":
        return torch.optim.AdamW(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0)


class Run:
    """One training; an illness changes it before it begins."""

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        self.data = Digits(seed)
        self.kind = self.draw.choice(sorted(MODELS))
        self.depth = self.draw.randint(2, 5)
        self.optimizer = self.draw.choice(sorted(RATES))
        self.rate = self.draw.choice(RATES[self.optimizer][self.kind])
        self.model = None
        self.each = lambda step, x, y: (x, y)
        self.parameters = lambda model: model.parameters()

    def build(self) -> nn.Module:
        if self.model is None:
            self.model = MODELS[self.kind](self.draw, self.depth)
        return self.model

    def diagnosis(self):
        model = self.build()
        optimizer = optimizer_of(self.parameters(model), self.optimizer, self.rate)
        with nk.watch(model, optimizer, every=20) as seen:
            for step in range(STEPS):
                x, y = self.each(step, *self.data.batch())
                loss = F.cross_entropy(model(x), y)
                seen.loss(loss)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return seen.diagnosis()


def rate_too_high(run):
    # what each of these models does not bear, from the outcome of plain runs
    run.optimizer, run.rate = run.draw.choice([("adam", 1.0), ("momentum", 10.0), ("plain", 100.0), ("adam", 0.3)])


def dead_units(run):
    run.kind, run.model = "perceptron", perceptron(run.draw, run.depth)
    for place in run.draw.sample(range(0, 2 * run.depth, 2), 1):
        run.model[place].bias.data -= 12


def saturated(run):
    run.kind, run.optimizer, run.rate = "perceptron", "adam", 1e-3
    run.model = perceptron(run.draw, run.depth, nn.Tanh)
    for part in run.model[:-1:2]:
        part.weight.data *= run.draw.choice([30, 60])


def vanishing(run):
    run.kind, run.optimizer, run.rate = "perceptron", "momentum", 0.01
    run.model = perceptron(run.draw, run.draw.randint(7, 9), nn.Sigmoid)


def not_a_number(run):
    begins = run.draw.randint(10, 120)
    run.each = lambda step, x, y: (x * float("nan") if step >= begins else x, y)


def left_out(run):
    run.parameters = lambda model: [p for n, p in model.named_parameters() if not n.startswith(f"{first(model)}.")]


def first(model):
    return next(name for name, p in model.named_parameters() if p.dim() > 1 and "." in name).rpartition(".")[0]


def detached(run):
    place = dict(run.build().named_modules())[first(run.build())]
    place.register_forward_hook(lambda module, x, y: y.detach())


def collapsed(run):
    run.kind, run.model = "transformer", transformer(run.draw, run.depth)
    for block in run.model.blocks:
        block.attention.in_proj_weight.data[: 2 * block.attention.embed_dim] *= 30


def stalled(run):
    run.rate = 1e-12


def faint(run):
    run.kind, run.model = "perceptron", perceptron(run.draw, run.depth, norm=nn.LayerNorm)
    run.model.insert(0, nn.LayerNorm(SIDE * SIDE))
    run.each = lambda step, x, y: (1e-4 * x, y)


def growing(run):
    run.kind, run.model = "transformer", transformer(run.draw, 5)
    for block in run.model.blocks:
        block.first, block.second = nn.Identity(), nn.Identity()
        block.up.weight.data *= 3
        block.down.weight.data *= 3
    run.optimizer, run.rate = "adam", 1e-4


ILL = {
    rate_too_high: {"rate-too-high"},
    dead_units: {"dead-units"},
    saturated: {"saturated-function"},
    vanishing: {"vanishing-gradient"},
    not_a_number: {"not-a-number"},
    left_out: {"left-out"},
    detached: {"no-gradient"},
    collapsed: {"entropy-collapse"},
    stalled: {"stalled-weights"},
    faint: {"eps-dominates"},
    growing: {"residual-growth"},
}
"""Each illness, and the rules whose findings name it."""

PLANS = [*ILL, rate_too_high, rate_too_high, rate_too_high, *[None] * 7]
"""What the runs go through in turn: of 21, four have too high a rate, and seven are healthy."""


def examine(seeds):
    """Return (illness, what names it, the rules in order) for each seed."""
    for number, seed in enumerate(seeds):
        plant, run = PLANS[number % len(PLANS)], Run(seed)
        if plant is not None:
            plant(run)
        found = [finding.rule for finding in run.diagnosis()]
        yield (
            plant.__name__ if plant else HEALTHY,
            ILL[plant] if plant else set(),
            found,
            f"{run.kind} {run.optimizer} {run.rate:g} depth {run.depth}",
        )


def table(results):
    """Return the confusions and the shares as lines of Markdown."""
    firsts = collections.defaultdict(collections.Counter)
    ill = [(names, found) for plant, names, found, _ in results if plant != HEALTHY]
    well = [found for plant, _, found, _ in results if plant == HEALTHY]
    for plant, _, found, _ in results:
        firsts[plant][found[0] if found else "nothing"] += 1
    yield "| planted | runs | first in the list |"
    yield "| --- | ---: | --- |"
    for plant, counts in firsts.items():
        said = ", ".join(f"{rule} {count}" for rule, count in counts.most_common())
        yield f"| {plant.replace('_', ' ')} | {counts.total()} | {said} |"
    yield ""
    first = sum(bool(names & set(found[:1])) for names, found in ill)
    three = sum(bool(names & set(found[:3])) for names, found in ill)
    yield f"The planted cause came first in {first} of {len(ill)} ill runs, and among the first three in {three}."
    yield f"Of {len(well)} healthy runs {sum(map(bool, well))} had a finding."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", choices=["tuning", "judging"])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--each", action="store_true", help="print each run")
    options = parser.parse_args()
    began = time.perf_counter()
    results = []
    for number, result in enumerate(examine(range(options.half == "judging", 2 * options.runs, 2))):
        results.append(result)
        if options.each:
            print(number, result[0], result[3], ", ".join(result[2]) or "nothing", flush=True)
    lines = [*table(results)]
    print("\n".join(lines))
    print(f"{time.perf_counter() - began:.0f} s")
    if options.out:
        command = f"python benchmarks/diagnosis.py {options.half} --runs {options.runs}"
        head = f"`{command}`, torch {torch.__version__}, {platform.machine()}; {STEPS} steps a run."
        options.out.write_text("\n".join(["# An exam of the watch", "", head, "", *lines, ""]))


if __name__ == "__main__":
    main()
