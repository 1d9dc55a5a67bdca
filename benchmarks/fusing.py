"""Fuse models of transformers, two layers deep: forward and training step before and after, turns about.

python benchmarks/fusing.py --page benchmarks/results/fusing.md
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normkit as nk
from normkit.bench import report as machine
from normkit.optional import library
from normkit.surgery.flow import arguments, tensors_in
from normkit.surgery.proof import called, difference

ROUNDS = 9
WIDTH, LAYERS, WORDS, TOKENS = 512, 2, 512, (2, 128)
COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 8,
    "intermediate_size": 2 * WIDTH,
    "vocab_size": WORDS,
    "max_position_embeddings": 512,
}
# family -> what differs from COMMON; None leaves an argument out
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {"num_key_value_heads": 2},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 64},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 64},
    "Olmo2": {"num_key_value_heads": 2},
    "Bert": {},
    "ViT": {"vocab_size": None, "max_position_embeddings": None, "image_size": 64, "patch_size": 8},
}


def made(family: str) -> nn.Module:
    """Build a model from its configuration."""
    transformers = library("transformers")
    own = {name: value for name, value in {**COMMON, **FAMILIES[family]}.items() if value is not None}
    torch.manual_seed(0)
    return getattr(transformers, f"{family}Model")(getattr(transformers, f"{family}Config")(**own))


def example(family: str) -> dict[str, Tensor]:
    """Draw an input."""
    if family == "ViT":
        return {"pixel_values": torch.randn(4, 3, 64, 64)}
    return {"input_ids": torch.randint(WORDS, TOKENS)}


def raced(models: list[nn.Module], run: Callable[[nn.Module], object]) -> list[float]:
    """The median time of a call of each, turns about."""
    times: list[list[float]] = [[] for _ in models]
    for turn in range(ROUNDS + 1):
        for model, seen in zip(models, times, strict=True):
            start = time.perf_counter()
            run(model)
            if turn:
                seen.append(time.perf_counter() - start)
    return [statistics.median(seen) for seen in times]


def step(model: nn.Module, given: dict[str, Tensor]) -> None:
    """A forward and a backward pass."""
    _, named = arguments(given)
    next(tensors_in(model(**named))).sum().backward()


def row(family: str) -> str:
    """Fuse one model, once for training and once for evaluation."""
    model, given = made(family), example(family)
    cells = [family]
    for training in (False, True):
        before = copy.deepcopy(model).train(training)
        report = nk.fuse(copy.deepcopy(before), given, training=training)
        apart = difference(called(before.eval(), given), called(report.model.eval(), given))
        pair = [before.train(training), report.model.train(training)]

        def run(one: nn.Module, training: bool = training) -> None:
            step(one, given) if training else called(one, given)

        old, new = raced(pair, run)
        cells += [f"{len(report.done)} of {len(report)}", f"{apart:.0e}", f"{old / new:.2f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print a line a family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--page", help="write the table here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    where = {"machine": machine.machine()}
    lines = [
        machine.headline(where),
        "",
        f"{LAYERS} layers of {WIDTH} features, inputs {TOKENS[0]} x {TOKENS[1]} (ViT: 4 images of 64 x 64), one "
        f"thread, medians of {ROUNDS} turns about. The machine was shared with other work: where nothing was changed, "
        "1.00 is what should stand, and what does stand tells how far the other numbers are to be trusted.",
        "",
        "| model | fused, forward | difference | times as fast | fused, training | difference | times as fast |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(lines))
    for family in FAMILIES:
        if options.only in family:
            lines.append(row(family))
            print(lines[-1], flush=True)
    if options.page:
        Path(options.page).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
