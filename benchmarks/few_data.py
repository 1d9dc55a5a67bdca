"""What papers of test time and low precision claim, on the smallest real tasks.

``python benchmarks/few_data.py`` writes benchmarks/results/few-data.md; some minutes on two cores.
"""

import math
import pathlib
import statistics

import torch
from sklearn.datasets import load_diabetes, load_digits
from torch.nn import functional as F

import normkit as nk
from normkit.lab import tiny

FILE = pathlib.Path(__file__).parent / "results/few-data.md"
SPLITS, SEEDS = 100, 2


def interval(values):
    """Mean and the half width of its 95 % interval."""
    return statistics.mean(values), 1.96 * statistics.stdev(values) / math.sqrt(len(values))


def shown(values, digits=3):
    mean, half = interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def ridge(x, y, strength):
    x = torch.cat([x, x.new_ones(len(x), 1)], 1)
    return torch.linalg.solve(x.T @ x + strength * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)


def hubs():
    """Digits cut in halves: the right half is looked for by what the left one tells of it."""
    whole = torch.tensor(load_digits().data / 16)
    left, right = whole.reshape(-1, 8, 8).tensor_split(2, 2)
    left, right = left.flatten(1), right.flatten(1)
    options = {"dynamic-inverted-softmax": {}, "inverted-softmax": {}, "dual-dynamic-inverted-softmax": {}}
    found = {name: ([], []) for name in ("inner products", *options)}
    for seed in range(20):
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        train, test = order[:1000], order[1000:]
        map_ = ridge(left[train], right[train], 1.0)
        told = F.normalize(torch.cat([left, left.new_ones(len(left), 1)], 1) @ map_, dim=1)
        items = F.normalize(right, dim=1)
        query, gallery, bank, other = told[test], items[test], told[train], items[train]
        plain = query @ gallery.T
        banks = {1: [bank @ gallery.T], 2: [bank @ gallery.T, other @ gallery.T]}
        for name, (skew, first) in found.items():
            scores = plain if name not in options else nk.create(name)(plain, *banks[1 + name.startswith("dual")])
            skew.append(float(nk.hubness(scores, top=10).full_skewness))
            first.append(float((scores.argmax(1) == torch.arange(len(test))).double().mean()))
    lines = ["## Inverted softmaxes and hubs", "", f"{hubs.__doc__} 20 splits; ± is a 95 % interval of the mean.", ""]
    lines += ["| scores | skewness, 10 best | right one first |", "| --- | --- | --- |"]
    return lines + [f"| {name} | {shown(a)} | {shown(b)} |" for name, (a, b) in found.items()]


def coverage():
    """A ridge regression's quantiles, as if errors were normal, shifted on 100 calibration samples of diabetes."""
    x, y = (torch.tensor(value) for value in load_diabetes(return_X_y=True))
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    before, after = [], []
    for seed in range(SPLITS):
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        train, calibration, test = order[:150], order[150:250], order[250:]
        map_ = ridge(x[train], y[train], 1e-3)
        told = torch.cat([x, x.new_ones(len(x), 1)], 1) @ map_
        spread = (y[train] - told[train]).std()
        quantiles = told.unsqueeze(1) + spread * torch.special.ndtri(levels)
        shifted = nk.conformal_quantiles(y[calibration], quantiles[calibration], levels, quantiles[test])
        for kept, value in ((before, quantiles[test]), (after, shifted)):
            kept.append((y[test].unsqueeze(1) <= value).double().mean(0))
    lines = ["", "## Conformal quantiles", "", f"{coverage.__doc__} {SPLITS} splits; ± as above.", ""]
    lines += ["| level | covered before | covered after |", "| --- | --- | --- |"]
    for i, level in enumerate(levels.tolist()):
        lines.append(f"| {level} | {shown([float(v[i]) for v in before])} | {shown([float(v[i]) for v in after])} |")
    return lines


def few_bits():
    """A decoder of three layers and 64 features on CPython's documentation, its linears in 3 bits, a grid a row."""
    methods = ("nearest", "norm-tweaking", "learned-rounding", "learned-rounding+norm-tweaking")
    rows = {name: [] for name in ("float", *methods)}
    for seed in range(SEEDS):
        model, given, held = tiny.language_model(seed)
        rows["float"].append(nk.perplexity(model, held))
        for name in methods:
            found = nk.quantize(model, given, method=name, bits=3, held=held)
            rows[name].append(found.perplexity[1])
            print(seed, name, found.perplexity, f"{found.seconds:.0f} s", flush=True)
    lines = [
        "",
        "## Norm tweaking and learned rounding after 3 bits",
        "",
        f"{few_bits.__doc__} Held-out perplexity.",
        "",
    ]
    lines += ["| weights | " + " | ".join(f"seed {s}" for s in range(SEEDS)) + " |", "| --- " * (SEEDS + 1) + "|"]
    return lines + [f"| {name} | " + " | ".join(f"{v:.3f}" for v in values) + " |" for name, values in rows.items()]


def main():
    lines = ["# Claims on the smallest real tasks", "", *hubs(), *coverage()]
    print("\n".join(lines), flush=True)
    lines += few_bits()
    FILE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
