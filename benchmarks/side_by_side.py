"""Small networks that are trained side by side: those of all seeds and all rates are one batched program.

A network alone spends its time between operations; ``torch.func.vmap`` takes dozens of them through each at once. Beds:

    text     a decoder of one layer and width 24 on bytes of CPython's documentation, 8 pieces of 16 a step
    signals  two hidden layers of 48 with a layer norm each, on MNIST-1D, 32 samples a step
    images   three convolutions of 6, 12 and 12 channels with group norms, on scikit-learn's digits, 32 a step
    classes  two hidden layers of 48, on 64 Gaussian classes, as frequent as each other or by Zipf's law

What was trained is kept in results/side-by-side.json, one line each, and is not trained again.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import itertools
import json
import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional as F

import normkit as nk
from normkit.choice import parsed
from normkit.claims import pages, shelf
from normkit.files import replace_file
from normkit.lab.plan.data import images_of, signals_of, text_of
from normkit.lab.plan.models import permute_outputs, same_start
from normkit.lab.plan.optimizers import optimizer_for, usual_rate
from normkit.transformer import Encoder

KEPT = Path(__file__).parent / "results/side-by-side.json"
PAGE = Path(__file__).parents[1] / "docs/trust.md"
CHARACTERS, VOCAB, LENGTH = 400_000, 128, 16
CLASSES, FEATURES, NOISE = 64, 32, 1.3
REST = 1e-2  # Adam's rate of what is no hidden matrix, where another optimizer has those
STEP, RATES, DECAY = 3.0, (0, 1, 2, 3), 0.3  # rates are the usual one times powers of STEP
SEEDS, SEARCH = tuple(range(6)), (100,)
Trial = tuple[float, float]  # a learning rate and a weight decay


class Arm(NamedTuple):
    """What is trained: a bed, and what differs from its usual.

    optimizer: of all that is trained; ``hidden``: of hidden matrices alone, and AdamW has the rest.
    lr: a rate that is not searched for. warmup, share: of the steps, of the training data. twin: another start.
    norm, placement, width, depth: of the network. qk: ``"head"`` normalizes queries and keys.
    law: of the classes, ``"even"`` or ``"zipf"``.
    score: what a network is worth: its ``"loss"``; its loss on the rarer half of the classes, ``"tail"``; or
    ``"saturated"``, the share of the inputs of dyt that are beyond 2 when multiplied by alpha.
    """

    bed: str
    optimizer: str = "adamw"
    steps: int = 60
    batch: int = 0
    norm: str = ""
    placement: str = "pre-norm"
    qk: str = ""
    width: int = 0
    depth: int = 0
    hidden: bool = False
    lr: float = 0.0
    warmup: float = 0.1
    share: float = 1.0
    law: str = "even"
    twin: bool = False
    score: str = "loss"

    def __str__(self) -> str:
        usual = self._field_defaults
        return ", ".join([self.bed] + [f"{k}={v}" for k, v in self._asdict().items() if k in usual and v != usual[k]])


class Kept(NamedTuple):
    """What an arm came to: what it is worth for each seed, at which rate and decay, and the mean of each trial."""

    values: list[float]
    trial: Trial
    trials: list[tuple[float, float, float]]

    @property
    def edge(self) -> bool:
        """Whether the best rate was the first or the last that was tried."""
        rates = [lr for lr, _, _ in self.trials]
        return len(rates) > 1 and self.trial[0] in (min(rates), max(rates))


class Data(NamedTuple):
    """Inputs and targets: what is trained on, and what is held out."""

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor


@functools.cache
def data(bed: str, law: str) -> Data:
    """The data of a bed."""
    if bed == "text":
        raw = text_of("python-docs")[:CHARACTERS].encode()[:CHARACTERS]
        pieces = torch.frombuffer(bytearray(raw), dtype=torch.uint8).long().clamp(max=VOCAB - 1)
        pieces = pieces.unfold(0, LENGTH + 1, 1)
        cut = len(pieces) * 9 // 10
        held = pieces[cut:][:: len(pieces[cut:]) // 128][:128]
        return Data(pieces[: cut - LENGTH, :-1], pieces[: cut - LENGTH, 1:], held[:, :-1], held[:, 1:])
    chance = torch.Generator().manual_seed(0)
    if bed == "classes":
        means = torch.randn(CLASSES, FEATURES, generator=chance)
        share = torch.ones(CLASSES) if law == "even" else 1 / torch.arange(1, CLASSES + 1)
        labels = torch.multinomial(share, 20_000, replacement=True, generator=chance)
        x = means[labels] + NOISE * torch.randn(len(labels), FEATURES, generator=chance)
        return Data(x[2000:], labels[2000:], x[:2000], labels[:2000])
    samples = images_of("digits", None) if bed == "images" else signals_of("mnist1d")
    x, labels = samples.images.float(), samples.labels
    x = x if bed == "images" else x.flatten(1)
    order, held = torch.randperm(len(x), generator=chance), 400 if bed == "images" else 1000
    x = (x - x.mean()) / x.std()
    return Data(x[order[held:]], labels[order[held:]], x[order[:held]], labels[order[:held]])


class Text(nn.Module):
    """A decoder of bytes: (B, T) to (B, T, VOCAB) scores."""

    def __init__(self, width: int, **options: Any):
        super().__init__()
        self.embedding, self.output = nn.Embedding(VOCAB, width), nn.Linear(width, VOCAB, bias=False)
        self.encoder = Encoder(vocab=None, dim=width, hidden=2 * width, heads=2, causal=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        """Score the byte after each position; embeddings are multiplied by sqrt(width), which dyt and derf need."""
        return self.output(self.encoder(self.embedding(x) * self.encoder.dim**0.5))


class Convolutions(nn.Module):
    """Three convolutions with norms; classify from the mean."""

    def __init__(self, norm: str, width: int):
        super().__init__()
        layers: list[nn.Module] = []
        for place, (ins, outs) in enumerate(((1, width), (width, 2 * width), (2 * width, 2 * width))):
            layers.append(nn.Conv2d(ins, outs, 3, stride=1 + (place == 1), padding=1, bias=False))
            layers += [made(norm, outs), nn.ReLU()]
        self.layers, self.output = nn.Sequential(*layers), nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Score the digits."""
        return self.output(self.layers(x).mean((2, 3)))


class OfTheBatch(nn.Module):
    """Batch norm by the batch at hand, be it all held-out data: running statistics do not go through vmap."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize each channel over the batch."""
        return F.batch_norm(x, None, None, self.weight, self.bias, training=True)


def made(norm: str, width: int) -> nn.Module:
    """A norm by name; ``none`` and ``batchnorm`` too."""
    if norm in ("none", "batchnorm"):
        return nn.Identity() if norm == "none" else OfTheBatch(width)
    name, arguments = parsed(norm)
    return nk.create(name, width, **arguments)


def network(arm: Arm) -> nn.Module:
    """Build a network."""
    if arm.bed == "text":
        norm = functools.partial(made, arm.norm or "layernorm")
        chosen = {"norm": norm, "placement": arm.placement, "query_key_norm": arm.qk or None}
        return Text(arm.width or 24, depth=arm.depth or 1, **chosen)
    if arm.bed == "images":
        return Convolutions(arm.norm or "groupnorm:num_groups=3", arm.width or 6)
    inputs, classes = (40, 10) if arm.bed == "signals" else (FEATURES, CLASSES)
    widths = [inputs] + (arm.depth or 2) * [arm.width or 48]
    layers: list[nn.Module] = []
    for ins, outs in itertools.pairwise(widths):
        layers += [nn.Linear(ins, outs), made(arm.norm or "layernorm", outs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def batches(arm: Arm, seeds: Sequence[int], rows: int) -> Tensor:
    """Rows of the training data (steps, seeds, batch), the same for all trials and variants of a seed."""
    batch = arm.batch or (8 if arm.bed == "text" else 32)
    chances = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    most = max(1, int(rows * arm.share))
    return torch.stack([torch.randint(most, (arm.steps, batch), generator=chance) for chance in chances], 1)


def pace(step: int, steps: int, warmup: float) -> float:
    """The share of the rate at a step: it grows along a line, then falls to 0 along one."""
    begin = round(warmup * steps)
    return (step + 1) / (begin + 1) if step < begin else (steps - step) / (steps - begin)


def takes(arm: Arm, argument: str) -> bool:
    """Whether an arm's optimizer has an argument."""
    return argument in inspect.signature(optimizer_for(arm.optimizer)[0]).parameters


class Weights:
    """The parameters of many networks: for each trial a stack over seeds, matrices and kernels as matrices.

    A tensor of three axes is a stack of matrices to the optimizers; Adam's base of hyperball alone takes it as one, so
    there each matrix is a parameter of its own.
    """

    def __init__(self, arm: Arm, models: Sequence[nn.Module], trials: Sequence[Trial]):
        start, self.buffers = stack_module_state(list(models))
        self.arm, self.trials, self.shapes = arm, trials, {name: w.shape for name, w in start.items()}
        roles = nk.param_groups(models[0], "muon", blocks=False)
        ours = {id(p) for group in roles if group["use_muon"] for p in group["params"]}
        decaying = {row.name for row in roles.roles if row.decays}
        self.hidden = {name for name, p in models[0].named_parameters() if id(p) in ours or not arm.hidden}
        self.decaying = decaying & self.hidden
        apart = "base=adam" in arm.optimizer
        self.leaves = [
            {
                name: [own.clone().requires_grad_() for own in (w if apart and name in self.hidden else [w])]
                for name, w in (
                    (name, w.detach().flatten(2) if w.dim() > 2 else w.detach()) for name, w in start.items()
                )
            }
            for _ in trials
        ]

    def now(self) -> dict[str, Tensor]:
        """The weights by name, (trials times seeds, ...)."""
        return {
            name: torch.cat([own.view(-1, *shape[1:]) for leaves in self.leaves for own in leaves[name]])
            for name, shape in self.shapes.items()
        }

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """One optimizer, and AdamW of what is not its own."""
        build, arguments = optimizer_for(self.arm.optimizer)
        arguments = {**({"ns_dtype": None} if takes(self.arm, "ns_dtype") else {}), **arguments}
        arguments |= {"momentum": 0.9} if build is torch.optim.SGD else {}
        first: dict[tuple, list[Tensor]] = {}
        rest: list[Tensor] = []
        for leaves, (lr, decay) in zip(self.leaves, self.trials, strict=True):
            for name, own in leaves.items():
                key = (lr, decay if name in self.decaying else 0.0)
                (first.setdefault(key, []) if name in self.hidden else rest).extend(own)
        decays = takes(self.arm, "weight_decay")
        groups = [
            {"params": own, "lr": lr, **({"weight_decay": d} if decays else {})} for (lr, d), own in first.items()
        ]
        made = [build(groups, **arguments)]
        return made + ([torch.optim.AdamW(rest, REST, betas=(0.9, 0.95), weight_decay=0.0)] if rest else [])


def train(arm: Arm, trials: Sequence[Trial], seeds: Sequence[int]) -> Tensor:
    """Train a network for each trial and seed: what each is worth (trials, seeds), infinity where it diverged."""
    models = [same_start(network(arm), seed, arm.placement) for seed in seeds]
    if arm.twin:
        models = [permute_outputs(model, seed) for model, seed in zip(models, seeds, strict=True)]
    weights, count = Weights(arm, models, trials), len(trials)
    buffers = {name: value.repeat(count, *[1] * (value.dim() - 1)) for name, value in weights.buffers.items()}
    scores = vmap(lambda w, b, x: functional_call(models[0], (w, b), (x,)), in_dims=(0, 0, 0))
    known, optimizers = data(arm.bed, arm.law), weights.optimizers()
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    peaks, every = [group["lr"] for group in groups], [p for group in groups for p in group["params"]]
    for step, rows in enumerate(batches(arm, seeds, len(known.x))):
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = peak * pace(step, arm.steps, arm.warmup)
            if "p" in group:  # dynmuon's power, on the way of its entry
                group["p"] = 0.25 - 0.5 * step / arm.steps
        x, y = (part[rows].repeat(count, *[1] * part.dim()) for part in known[:2])
        grads = torch.autograd.grad(losses(scores(weights.now(), buffers, x), y).mean(1).sum(), every)
        for p, grad in zip(every, grads, strict=True):
            p.grad = grad.nan_to_num_(0.0, 0.0, 0.0)  # a network that diverged must not stop the others
        for optimizer in optimizers:
            optimizer.step()
    with torch.no_grad():
        found = weights.now()
        if arm.score == "saturated":
            return saturated(models[0], found, buffers, known.held_x).view(count, -1)
        every_one = count * len(seeds)
        out = scores(found, buffers, known.held_x.expand(every_one, *known.held_x.shape))
        worth = losses(out, known.held_y.expand(every_one, *known.held_y.shape)).double()
        worth = worth[:, known.held_y >= CLASSES // 2] if arm.score == "tail" else worth
    return worth.mean(1).nan_to_num(math.inf, math.inf).view(count, len(seeds))


def losses(out: Tensor, y: Tensor) -> Tensor:
    """The loss of each answer of each network."""
    return F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="none").view(len(out), -1)


def saturated(model: nn.Module, weights: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Tensor:
    """The share of the inputs of dyt that are beyond 2 when multiplied by alpha, for each network."""
    shares: list[Tensor] = []

    def note(module: Any, inputs: tuple[Tensor, ...]) -> None:
        shares.append(((module.alpha * inputs[0]).abs() > 2).double().mean())

    hooks = [part.register_forward_pre_hook(note) for part in model.modules() if hasattr(part, "alpha")]
    found = []
    for at in range(len(next(iter(weights.values())))):
        shares.clear()
        functional_call(model, ({k: w[at] for k, w in weights.items()}, {k: b[at] for k, b in buffers.items()}), (x,))
        found.append(torch.stack(shares).mean())
    for hook in hooks:
        hook.remove()
    return torch.stack(found)


def tuned(arm: Arm) -> Kept:
    """Search for a rate and a decay on a seed of its own, five trials for all arms, then train the seeds that count.

    Four rates, then a decay at the best of them, or without a decay a rate between it and its better neighbour.
    """
    if arm.lr:
        return more(arm, Kept([], (arm.lr, 0.0), []), len(SEEDS))
    search = arm if arm.score != "saturated" else arm._replace(score="loss")
    means: dict[Trial, float] = {}

    def attempt(trials: Sequence[Trial]) -> Trial:
        means.update(zip(trials, train(search, trials, SEARCH).mean(1).tolist(), strict=True))
        return min(means, key=means.__getitem__)

    usual = usual_rate(arm.optimizer)
    rates = [usual * STEP**power for power in RATES]
    best, _ = attempt([(rate, 0.0) for rate in rates])
    beside = [rate for rate in rates if 0.9 / STEP < rate / best < 1.1 * STEP and rate != best]
    between = (best * min(beside, key=lambda rate: means[rate, 0.0])) ** 0.5
    chosen = attempt([(best, DECAY) if takes(arm, "weight_decay") else (between, 0.0)])
    trials = [(lr, decay, round(mean, 5)) for (lr, decay), mean in means.items()]
    return more(arm, Kept([], chosen, trials), len(SEEDS))


def stored() -> dict[str, Kept]:
    """What was trained, by arm."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["arms"] if KEPT.is_file() else {}
    return {
        name: Kept(row["values"], tuple(row["trial"]), [tuple(t) for t in row["trials"]]) for name, row in rows.items()
    }


def more(arm: Arm, kept: Kept, seeds: int) -> Kept:
    """Train further seeds of an arm at the rate and decay that it has."""
    values = train(arm, [kept.trial], range(len(kept.values), seeds))[0].tolist()
    return kept._replace(values=kept.values + [round(value, 6) for value in values])


def fill(arms: Sequence[Arm], seconds: float, seeds: int = len(SEEDS)) -> list[Arm]:
    """Train arms and seeds that are not stored until so much processor time is spent; return the arms that are left."""
    torch.set_num_threads(1)
    known = stored()
    missing = list(dict.fromkeys(arm for arm in arms if str(arm) not in known or len(known[str(arm)].values) < seeds))
    end = time.process_time() + seconds
    while missing and time.process_time() < end:
        began, arm = time.process_time(), missing.pop(0)
        kept = known.get(str(arm)) or tuned(arm)
        kept = known[str(arm)] = more(arm, kept, seeds) if len(kept.values) < seeds else kept
        mean = statistics.fmean(kept.values)
        print(f"{time.process_time() - began:6.1f} s  {arm}: {mean:.4f} of {len(kept.values)} seeds", flush=True)
        about = {"normkit": nk.__version__, "commit": shelf._commit(), "torch": torch.__version__,
                 "python": platform.python_version(), "machine": platform.machine()}  # fmt: skip
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one._asdict())}" for name, one in known.items())
        replace_file(KEPT, f'{json.dumps(about)[:-1]}, "arms": {{\n{rows}\n}}}}\n')
    return missing


def command(
    text: str | None, arms: Sequence[Arm], part: str, table: Callable[[], str], seeds: int = len(SEEDS)
) -> bool:
    """Train what is typed, print the table of a part of docs/trust.md, and return whether it was written there."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.0, help="of processor time, for what is not stored (0)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/trust.md")
    options = parser.parse_args()
    left = fill(arms, options.seconds, seeds)
    print(f"{len(left)} of {len(arms)} runs are left" if left else "all are trained")
    made = table()
    if options.write:
        replace_file(PAGE, pages.with_part(PAGE.read_text(encoding="utf-8"), part, made))
    print(made)
    return options.write
