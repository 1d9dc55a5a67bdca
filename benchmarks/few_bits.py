"""Norm tweaking after few bits, by its learning rate.

A decoder of three layers and 64 features is trained on CPython's documentation for 250 steps, its linears are rounded
to the nearest, and the norms of its blocks trained in one pass over 32 batches of 1024 tokens, with rates from the
paper's, 1e-5, upwards. ``python benchmarks/few_bits.py`` writes benchmarks/results/few-bits.md; a minute or two on an
idle core.
"""

import pathlib

import normkit as nk
from normkit.lab import tiny

FILE = pathlib.Path(__file__).parent / "results/few-bits.md"
SEEDS = 2
GRIDS = ((3, None), (2, None), (2, 16))  # bits, and how many inputs share a grid
RATES = (1e-5, 1e-4, 5e-4, 2e-3)


def perplexities(seed):
    """Held-out perplexity of the model, and by grid and rate of what is made of it; the rate 0 is rounding alone."""
    model, given, held = tiny.language_model(seed)
    found = {"float": nk.perplexity(model, held)}
    for bits, group in GRIDS:
        how = {"bits": bits, "group": group, "held": held}
        found[bits, group, 0.0] = nk.quantize(model, given, method="nearest", **how).perplexity[1]
        for rate in RATES:
            made = nk.quantize(model, given, method="norm-tweaking", norm_lr=rate, **how)
            found[bits, group, rate] = made.perplexity[1]
    return found


def table(runs):
    about = " ".join(__doc__.split("\n\n")[1].split("``python")[0].split())
    lines = ["# Norm tweaking by its learning rate", "", f"{about} Held-out perplexity.", ""]
    seeds = " | ".join(f"seed {seed}" for seed in range(len(runs)))
    lines += [f"| bits | inputs a grid | rate | {seeds} |", "| --- " * (3 + len(runs)) + "|"]
    for bits, group in GRIDS:
        for rate in (0.0, *RATES):
            values = [f"{run[bits, group, rate]:.4f}" for run in runs]
            said = f"{rate:g}" if rate else "rounding alone"
            lines.append(f"| {bits} | {group or 'all'} | {said} | {' | '.join(values)} |")
    floats = " and ".join(f"{run['float']:.4f}" for run in runs)
    lines += ["", f"The float models' are {floats}. What is trained is that channels keep their means and deviations,"]
    lines[-1] += " which can be had with worse outputs: so a large rate may raise what rounding made of it."
    return "\n".join(lines) + "\n"


def main():
    FILE.write_text(table([perplexities(seed) for seed in range(SEEDS)]))
    print(FILE.read_text())


if __name__ == "__main__":
    main()
