"""Fold one small model of every timm family that has batch norms: logits before and after, what is gone, time.

python benchmarks/folding.py --page benchmarks/results/folding.md
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import normkit as nk
from normkit.optional import library
from normkit.surgery.batch_statistics import takes_batch_statistics
from normkit.surgery.proof import called, difference, said

TRIED = 6  # models a family, of which the one with the fewest parameters is taken
MOST = 12e6  # parameters
ROUNDS = 7


def families(only: str) -> Iterator[tuple[str, str]]:
    """The family and the name of a small model with batch norms, for each family that has some."""
    timm = library("timm")
    for family in timm.list_modules():
        if only not in family:
            continue
        names = timm.list_models(module=family)
        names = sorted(names, key=lambda name: (not name.startswith("test_"), len(name)))[:TRIED]
        sizes = {}
        for name in names:
            with torch.device("meta"):
                try:
                    model = timm.create_model(name)
                except Exception:  # a family that needs numbers to be built
                    continue
            if any(takes_batch_statistics(part) for part in model.modules()):
                sizes[name] = sum(p.numel() for p in model.parameters())
        if sizes:
            yield family, min(sizes, key=sizes.__getitem__)


@torch.no_grad()
def stirred(model: nn.Module) -> nn.Module:
    """A model in evaluation whose norms are not at rest."""
    torch.manual_seed(0)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2.0)
        elif name.endswith("running_mean"):
            tensor.normal_(0, 0.3)
        elif tensor.is_floating_point() and tensor.dim() == 1:
            tensor.add_(0.2 * torch.randn_like(tensor))
    return model.eval()


def seconds(*models: nn.Module, x: torch.Tensor) -> list[float]:
    """The median time of a call of each, turns about."""
    times: list[list[float]] = [[] for _ in models]
    for _ in range(ROUNDS):
        for model, seen in zip(models, times, strict=True):
            start = time.perf_counter()
            called(model, x)
            seen.append(time.perf_counter() - start)
    return [statistics.median(seen) for seen in times]


def row(family: str, name: str) -> str:
    """Fold one model."""
    timm = library("timm")
    model = stirred(timm.create_model(name))
    if sum(p.numel() for p in model.parameters()) > MOST:
        return f"| {family} | {name} | | | | | too large for this table |"
    config = model.pretrained_cfg
    fixed = config.get("fixed_input_size")
    size = config["input_size"][-1] if fixed else min(128, config["input_size"][-1])
    x = torch.randn(1, config["input_size"][0], size, size)
    norms = sum(takes_batch_statistics(part) for part in model.modules())
    before = copy.deepcopy(model)
    try:
        wanted = called(model, x)
        report = nk.fold(model, x)
    except Exception as error:  # what does not run at this size, and what is refused
        return f"| {family} | {name} | {norms} | 0 | | | {said(error)} |"
    left = sum(takes_batch_statistics(part) for part in model.modules())
    apart = difference(wanted, called(model, x))
    old, new = seconds(before, model, x=x)
    reasons: dict[str, int] = {}
    for change in report:
        if change.became is None:
            reasons[change.why_not or ""] = reasons.get(change.why_not or "", 0) + 1
    why = max(reasons, key=reasons.__getitem__, default="")
    return f"| {family} | {name} | {norms} | {norms - left} | {apart:.0e} | {old / new:.2f} | {why} |"


def main() -> None:
    """Print a line a family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--page", help="write the table here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    head = [
        "| family | model | batch norms | gone | logits, relative | times as fast | most frequent reason to stay |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    print("\n".join(head))
    rows = []
    for family, name in families(options.only):
        rows.append(row(family, name))
        print(rows[-1], flush=True)
    if options.page:
        Path(options.page).write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
