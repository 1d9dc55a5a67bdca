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
from typing import Any

import torch
from torch import nn

import normkit as nk
from normkit.bench import report as machine
from normkit.optional import library
from normkit.surgery.proof import call_model, describe_error, difference
from normkit.surgery.statistics.batch_statistics import takes_batch_statistics

TRIED = 12  # models a family, of which the one with the fewest parameters is taken
CLOSE = 1e-4  # how far logits may be apart, of the largest
ROUNDS, PIXELS = 7, 128
SMALLER: dict[str, dict[str, Any]] = {  # arguments with which the smallest model of a family has fewer parameters
    "nasnet": {"stem_size": 32, "num_features": 1056},  # NASNet-A for mobile phones
}


def families(only: str) -> Iterator[tuple[str, str]]:
    """The family and the name of a small model with batch norms, for each family that has some."""
    timm = library("timm")
    for family in timm.list_modules():
        if not any(word in family for word in only.split(",")):
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
    """The median processor time of a call of each, turns about."""
    times: list[list[float]] = [[] for _ in models]
    for _ in range(ROUNDS):
        for model, seen in zip(models, times, strict=True):
            start = time.process_time()
            call_model(model, x)
            seen.append(time.process_time() - start)
    return [statistics.median(seen) for seen in times]


def example(model: Any) -> torch.Tensor:
    """Draw a small image, or one of the model's own size where it takes no other."""
    config = model.pretrained_cfg
    channels, _, own = config["input_size"]
    if not config.get("fixed_input_size") and own > PIXELS:
        x = torch.randn(1, channels, PIXELS, PIXELS)
        try:
            call_model(model, x)
            return x
        except Exception:  # windows of its own size do not fit
            pass
    return torch.randn(1, channels, own, own)


def row(family: str, name: str) -> list[str]:
    """Fold one model: the cells of its line."""
    model = stirred(library("timm").create_model(name, **SMALLER.get(family, {})))
    norms = sum(takes_batch_statistics(part) for part in model.modules())
    before = copy.deepcopy(model)
    try:
        x = example(model)
        wanted = call_model(model, x)
        report = nk.fold(model, x)
    except Exception as error:  # what does not run, and what is refused
        return [family, name, f"{norms}", "0", "", "", "", describe_error(error)]
    left = sum(takes_batch_statistics(part) for part in model.modules())
    apart = difference(wanted, call_model(model, x))
    old, new = seconds(before, model, x=x)
    reasons: dict[str, int] = {}
    for change in report:
        if change.became is None:
            reasons[change.why_not or ""] = reasons.get(change.why_not or "", 0) + 1
    why = max(reasons, key=reasons.__getitem__, default="")
    return [family, name, f"{norms}", f"{norms - left}", f"{apart:.0e}", f"{old / new:.2f}", f"{x.shape[-1]}", why]


def ending(rows: list[list[str]], where: dict[str, Any]) -> list[str]:
    """What stands under the table: what it comes to, on how busy a machine, and what was missed."""
    ran = [cells for cells in rows if cells[4]]
    norms, gone = (sum(int(cells[i]) for cells in ran) for i in (2, 3))
    whole = sum(cells[2] == cells[3] for cells in ran)
    apart = max((float(cells[4]) for cells in ran), default=0.0)
    missed = [f"{cells[0]} was not run" for cells in rows if not cells[4]]
    missed += [f"{cells[0]} is {cells[4]} off" for cells in ran if float(cells[4]) > CLOSE]
    return [
        *[f"\n{line}" for line in machine.busy(where["machine"])],
        "",
        f"Of {len(rows)} families {len(ran)} were run; of their {norms} batch norms {gone} are gone, all of them in "
        f"{whole} families; logits differ by {apart:.0e} of the largest at most. Missed, every family run and logits "
        f"within {CLOSE:.0e} of the largest: {'; '.join(missed) or 'nothing'}.",
    ]


def main() -> None:
    """Print a line a family, and what was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="parts of names of families, between commas")
    parser.add_argument("--page", help="write the table here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    where = {"machine": machine.machine()}
    smaller = "; ".join(f"{family} with {arguments}" for family, arguments in SMALLER.items())
    lines = [
        "# Batch norms folded, a model of each timm family",
        "",
        machine.headline(where),
        "",
        f"`python benchmarks/folding.py`, timm {library('timm').__version__}: of each family with batch norms the "
        f"smallest of {TRIED} models ({smaller}), one image of {PIXELS} x {PIXELS} or, where a model takes no such, of "
        f"its own size, random weights with statistics that are not at rest, medians of {ROUNDS} turns about, "
        "processor time of one thread. The last column has the most frequent reason of what stayed, other norms than "
        "batch norms too.",
        "",
        "| family | model | batch norms | gone | logits, relative | times as fast | pixels "
        "| most frequent reason to stay |",
        "|" + " --- |" * 8,
    ]
    print("\n".join(lines))
    rows = []
    for family, name in families(options.only):
        rows.append(row(family, name))
        lines.append("| " + " | ".join(rows[-1]) + " |")
        print(lines[-1], flush=True)
        if options.page:  # after each, so that a run that is broken off leaves what it measured
            Path(options.page).write_text("\n".join([*lines, *ending(rows, where)]) + "\n")
    print("\n".join(ending(rows, where)))


if __name__ == "__main__":
    main()
