"""Gradients that vanish on their way to the first layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from normkit.watching import proposals
from normkit.watching.finding import Finding, Remedy, number
from normkit.watching.history import History
from normkit.watching.trials import Trial

FEWEST = 4
RATIO = 1e3
"""Of the last block's gradient to the first's. Healthy trainings stay far below; at 1000 plain descent moves the
first layers a thousand times slower, and the smallest entries leave float16's range."""


def find(history: History) -> Iterator[Finding]:
    """Compare the gradients of the first block, and of what lies before it, with that of the last."""
    by_block = gradients_by_block(history)
    if len(by_block) < FEWEST:
        return
    (first, low), (last, high) = next(iter(by_block.items())), list(by_block.items())[-1]
    if 0 < RATIO * low < high and not any(RATIO * before >= high for before in _before(history, first)):
        yield Finding(
            "gradients vanish towards the input",
            4.0 + math.log10(high / low) / 10,
            (first,),
            f"{first} has a gradient of {number(low)}, {last} one of {number(high)}, {number(high / low)} times as "
            "much.",
            leads="first layers that learn nothing, whether or not the optimizer moves them",
            otherwise=f"a ratio below {RATIO:g}",
            margin=high / (RATIO * low),
            remedies=_remedies(history),
        )


def _before(history: History, block: str) -> list[float]:
    """Return the gradients of what lies before a block: where one is large, the block's is small by a scale of its own.

    Embeddings are left out, since the head may share theirs.
    """
    parts = itertools.takewhile(lambda part: not f"{part}.".startswith(f"{block}."), history.names("rms"))
    starts = tuple(f"{part}." for part in parts if history.facts["classes"].get(part) != "Embedding")
    return [value for name, value in history.late("gradient").items() if name.startswith(starts)]


def _remedies(history: History) -> tuple[Remedy, ...]:
    """Propose norms where there are none, and another function where one that shrinks is a module."""
    functions = tuple(name for name, kind in history.facts["classes"].items() if kind in ("Sigmoid", "Tanh"))
    if not functions:
        return (Remedy("a residual path", "x + layer(norm(x)) in the place of layer(x)", runs=False),)
    relu = Remedy("a function that does not shrink", proposals.replacement(history, functions, "nn.ReLU()"))
    return (relu,) if proposals.has_norm(history) else (_norms(history, functions), relu)


def _norms(history: History, functions: tuple[str, ...]) -> Remedy:
    lines = [proposals.norms_before(history, name)[:1] for name in functions]
    kinds = {history.facts["classes"][name] for name in functions}
    norms = {remedy.line.partition("nn.Sequential(")[2].partition(", ")[0] for one in lines for remedy in one}
    if len(norms) == len(kinds) == 1:
        line = (
            f"[model.set_submodule(name, nn.Sequential({norms.pop()}, m)) for name, m in list(model.named_modules()) "
            f'if type(m).__name__ == "{kinds.pop()}"]'
        )
    else:
        line = "; ".join(remedy.line for one in lines for remedy in one)
    return Remedy("batchnorm", line)


def gradients_by_block(history: History) -> dict[str, float]:
    """Return the length of each block's gradient, in order of depth."""
    late = history.late("gradient")
    norms = {}
    for block in history.facts["blocks"]:
        own = [value for name, value in late.items() if name.startswith(f"{block}.") and math.isfinite(value)]
        if own:
            norms[block] = math.sqrt(sum(value**2 for value in own))
    return norms


def _ratio(history: History) -> float:
    by_block = [value for value in gradients_by_block(history).values() if value > 0]
    return by_block[-1] / by_block[0] if len(by_block) > 1 else math.nan


TRIAL = Trial(
    what=lambda history, finding: "the gradient of the last block over that of the first",
    read=lambda history, finding: _ratio(history),
)
