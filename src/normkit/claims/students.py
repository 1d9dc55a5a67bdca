"""A small network of digits that learns from a large one, or from itself."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, Trained, above
from normkit.claims.trained import TWIN, case, passed, started
from normkit.claims.training import TWIN as TWIN_OF
from normkit.claims.training import Bed

SIZES, STEPS, RATE, WARMTH, SMOOTH = (64, 12, 10), 60, 1e-2, 4.0, 0.1
WAYS = {"nd": 2.0, "kd": 1.0}


class Run(NamedTuple):
    """What a student is told beside the labels: "labels", "smooth", "kd", "nkd", "nd", "uskd" or "ps-kd"."""

    way: str = "labels"
    share: float = 1.0
    permute: bool = False


def distilled(logits: Tensor, other: Tensor) -> Tensor:
    """The divergence from the teacher's softmax at a temperature of 4."""
    own, wanted = (part / WARMTH for part in (logits, other))
    return WARMTH**2 * F.kl_div(own.log_softmax(1), wanted.log_softmax(1), reduction="batchmean", log_target=True)


@functools.cache
def accuracy(run: Run, seed: int) -> float:
    """The held-out accuracy of a student that was trained by Adam on all digits of the training."""
    own, steps = case(seed), int(STEPS * run.share)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed + TWIN * (3 + run.permute))
        weights = [weight.requires_grad_() for weight in started(SIZES)]
        features, taught = (passed(own.weights, own.x)[place] for place in (-2, -1))
        project = torch.randn(SIZES[-2], features.shape[1]).double() / SIZES[-2] ** 0.5
        extra = losses(run, own.labels, features, steps)
        learned = [*weights, *([project.requires_grad_()] if run.way == "nd" else []), *extra.parameters()]
        optimizer = torch.optim.Adam(learned, lr=RATE)
        for step in range(steps):
            optimizer.zero_grad()
            _, hidden, logits = passed(weights, own.x)
            plain = F.cross_entropy(logits, own.labels, label_smoothing=SMOOTH * (run.way == "smooth"))
            if run.way == "nkd":
                plain = plain + extra(logits, taught, own.labels)
            elif run.way == "uskd":
                plain = plain + extra(hidden, logits, own.labels)
            elif run.way == "ps-kd":
                plain = extra(logits, own.labels, torch.arange(len(logits)), step)
            elif run.way in WAYS:
                plain = plain + distilled(logits, taught)
                plain = plain + extra(hidden @ project, features, own.labels) if run.way == "nd" else plain
            plain.backward()
            optimizer.step()
        return 100 * (passed(weights, own.held)[-1].argmax(1) == own.right).double().mean().item()


def losses(run: Run, labels: Tensor, features: Tensor, steps: int) -> torch.nn.Module:
    """The loss of a way, with its state."""
    if run.way == "nd":
        loss = nk.NDLoss(features.shape[1], 10, loss_weight=WAYS["nd"]).double()
        loss.set_centers(features, labels)
        return loss
    made = {"nkd": lambda: nk.NKD(), "uskd": lambda: nk.USKD(SIZES[-2], 10),
            "ps-kd": lambda: nk.PSKD(len(labels), 10, epochs=steps)}  # fmt: skip
    return made[run.way]().double() if run.way in made else torch.nn.Identity()


def ahead(seed: int, run: Run, over: Run) -> float:
    """By how many points a run is ahead of another one."""
    return accuracy(run, seed) - accuracy(over, seed)


def better(name: str, says: str, way: str, over: str, by: float) -> Trained:
    """The claim that a way is better by so much; the control is a twin of the other one."""
    other = Run(over)
    return Trained(
        name,
        says=says,
        measure=functools.partial(ahead, run=Run(way), over=other),
        wanted=above(by),
        control=functools.partial(ahead, run=other._replace(permute=True), over=other),
        against=TWIN_OF,
        number="points",
        bed="students",
    )


PLAIN = Run()
STUDENTS = Bed(
    "students",
    "A hidden layer of 12 units that learns 500 of scikit-learn's digits in 60 steps of Adam on all of them at 0.01, "
    "from labels and from a teacher of 96, 64 and 32 units; the accuracy is that on the other 1,297.",
    (
        Measured(
            "half",
            says="Half of the steps cost a point or more.",
            measure=functools.partial(ahead, run=PLAIN, over=Run(share=0.5)),
            wanted=above(1.0),
            control=functools.partial(ahead, run=PLAIN._replace(permute=True), over=PLAIN),
            against="its twin, which starts from other numbers",
            number="points",
            draws=8,
            rule="mean",
            null=0.0,
        ),
    ),
    "Teachers that know more than their student could, large networks, and long training.",
)
