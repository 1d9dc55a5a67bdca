"""What lame gains over its source on digits, by the order of the stream, the samples of a batch and the affinity.

    python benchmarks/lame.py [--seeds 5] [--write]

The networks with batch norms and the streams are those of benchmarks/guard.py, clean and with three mild corruptions,
from seed 400 on. In an i.i.d. stream a batch of 32 has three samples of each of ten classes.
"""

import argparse
import statistics
from pathlib import Path

import torch
from torch import Tensor

import guard
import normkit as nk

HERE = Path(__file__).parent / "results" / "lame.md"
FIRST = 400
BATCHES = (16, 32, 64, 256)
VARIANTS = {
    "rbf, 5 (default)": {},
    "rbf, 2": {"neighbours": 2},
    "knn, 5": {"affinity": "knn"},
    "knn, 1": {"affinity": "knn", "neighbours": 1},
    "linear": {"affinity": "linear"},
}


def orders(y: Tensor, g: torch.Generator) -> dict[str, Tensor]:
    """The places of samples in streams."""
    return {
        "i.i.d.": torch.randperm(len(y), generator=g),
        "one class at a time": y.argsort(stable=True),
        "two classes at a time": (y // 2).argsort(stable=True),
    }


def gain(p: Tensor, z: Tensor, y: Tensor, size: int, options: dict) -> float:
    """Points of accuracy over a stream of probabilities and features."""
    batches = zip(p.split(size), z.split(size), strict=True)
    after = torch.cat([nk.lame(each, features, **options).argmax(1) for each, features in batches])
    return 100 * float((after == y).float().mean() - (p.argmax(1) == y).float().mean())


def gains(seeds: int) -> dict[tuple[str, int, str], list[float]]:
    sources, cells = guard.Sources(), {}
    for seed in range(FIRST, FIRST + seeds):
        model, rows = sources.model("batchnorm", seed), sources.halves(seed)[1]
        body, head, x, y = model[:-1], model[-1], sources.x[rows], sources.y[rows]
        g = torch.Generator().manual_seed(seed)
        for corrupt in guard.MILD.values():
            with torch.no_grad():
                z = body(corrupt(x, g))
                p = head(z).softmax(1)
            for order, at in orders(y, g).items():
                for size in BATCHES:
                    for name, options in VARIANTS.items():
                        cells.setdefault((order, size, name), []).append(gain(p[at], z[at], y[at], size, options))
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/lame.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = gains(options.seeds)
    lines = [f"| stream | batch | {' | '.join(VARIANTS)} |", f"| --- | --- |{' --- |' * len(VARIANTS)}"]
    for order, size in dict.fromkeys((order, size) for order, size, _ in cells):
        means = (f"{statistics.fmean(cells[order, size, name]):+.1f}" for name in VARIANTS)
        lines.append(f"| {order} | {size} | {' | '.join(means)} |")
    table = "\n".join(lines) + "\n"
    print(table)
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split())
        HERE.write_text(
            f"# What lame gains, on digits\n\n`python benchmarks/lame.py --seeds {options.seeds} --write`: points of "
            f"accuracy over the source, by affinity and neighbours.\n\n{about}\n\n{table}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
