"""Weights of a small language model in few bits: by method, and by a budget that an integer program spends.

    python benchmarks/budgets.py [--seeds 1] [--write]

A decoder of two layers and 32 features is trained on CPython's documentation for 150 steps; AdaQuant takes 100 steps.
``--write`` writes results/budgets.md and docs/quantize-budgets.svg.
"""

import argparse
import statistics
from pathlib import Path

import normkit as nk
from normkit.lab import tiny
from normkit.optional import library

HERE = Path(__file__).parent / "results" / "budgets.md"
PICTURE = Path(__file__).parents[1] / "docs" / "quantize-budgets.svg"
SIZES = {"steps": 150, "lr": 1e-2, "dim": 32, "depth": 2, "heads": 2, "length": 24, "tied": False}
BITS, METHODS = (4, 3, 2), ("nearest", "norm-tweaking", "adaquant")
BUDGETS, STEPS = (2.25, 2.5, 3.0, 3.5), 100
Cells = dict[tuple[str, float], list[tuple[float, int]]]


def measured(seeds: int) -> Cells:
    """Held-out perplexity over the float model's, and packed bytes, by method or "auto", and bits a number."""
    cells: Cells = {}
    for seed in range(seeds):
        model, data, held = tiny.language_model(seed, **SIZES)
        asked = [(method, bits, {"method": method, "bits": bits}) for bits in BITS for method in METHODS]
        asked += [("auto", mean, {"bits": "auto", "budget": f"{mean} bits"}) for mean in BUDGETS]
        for name, bits, how in asked:
            made = nk.quantize(model, data, held=held[:4], steps=STEPS, norm_lr=5e-4, **how)
            before, after = made.perplexity
            cells.setdefault((name, bits), []).append((after / before, made.packed))
            print(seed, name, bits, after / before, made.packed, flush=True)
    return cells


def table(cells: Cells) -> str:
    lines = ["| weights | bits a number | perplexity over the float model's, by seed | packed bytes |"]
    lines.append("| --- | --- | --- | --- |")
    for (name, bits), values in sorted(cells.items(), key=lambda cell: (-cell[0][1], cell[0][0])):
        ratios = ", ".join(f"{ratio:.3f}" for ratio, _ in values)
        lines.append(f"| {name} | {bits:g} | {ratios} | {statistics.fmean(size for _, size in values):,.0f} |")
    return "\n".join(lines) + "\n"


def draw(cells: Cells) -> None:
    """Draw perplexity by bits a number: the same bits for all, and a budget."""
    library("matplotlib")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "normkit"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.6))
    for name, mark in (("nearest", "o"), ("adaquant", "s"), ("norm-tweaking", "^"), ("auto", "D")):
        points = sorted((bits, statistics.fmean(r for r, _ in v)) for (n, bits), v in cells.items() if n == name)
        label = "auto: a budget" if name == "auto" else f"{name}: the same bits for all"
        axes.plot(*zip(*points, strict=True), marker=mark, label=label)
    axes.set(xlabel="bits a number", ylabel="perplexity over the float model's")
    axes.legend()
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    cells = measured(options.seeds)
    print(table(cells))
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split("``")[0].split())
        HERE.write_text(
            "# Weights in few bits, by method and by budget\n\n"
            f"`python benchmarks/budgets.py --write`: {about} Norms are tweaked at a rate of 5e-4.\n\n{table(cells)}",
            encoding="utf-8",
        )
        draw(cells)


if __name__ == "__main__":
    main()
