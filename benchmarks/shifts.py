"""What adapting gains over the source on shifted digits and signals, by norm, stream and method.

    python benchmarks/shifts.py digits|mnist1d [--seeds 5] [--out FOLDER] [--write]

Small convolutional networks with batch, group and layer norms are trained on half of scikit-learn's digits, or on
MNIST-1D (`pip install mnist1d`). Then they are shown 63 other samples with each corruption of severity 3: each alone in
batches of 32, or all mixed in batches of 4. A layer norm is a group norm of one group. Tent, eata, sar and deyo train
the gains and shifts of all norms by SGD at one rate, 0.005, which was not tuned; the others have their defaults. A
method that a network or its inputs do not fit is left out: delta, note and rotta move batch norms alone. A run with
`--out` that is broken off goes on there.
"""

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

import normkit as nk
from normkit.lab.plan.findings import LEVEL, Interval, compare_pairs, holm, interval
from normkit.lab.report.shift import points

HERE = Path(__file__).parent / "results"
HELD, BATCH = 63, 63
NORMS = {"batchnorm": "original", "groupnorm": "groupnorm:num_groups=4", "layernorm": "groupnorm:num_groups=1"}
OF_ALL = "norms=['1','5']"
METHODS = {
    "tent": f"tent:optimizer=sgd,lr=0.005,{OF_ALL}",
    **{name: f"{name}:lr=0.005,{OF_ALL}" for name in ("eata", "sar", "deyo")},
    **{name: name for name in ("delta", "cotta", "note", "rotta", "memo", "t3a", "lame")},
}
STREAMS = {"iid": "one shift, batches of 32", "mixed:batch=4": "mixed, batches of 4"}


def samples(name: str) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 8, 8) or signals (N, 1, 40), and classes."""
    if name == "digits":
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        return torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    from mnist1d.data import get_dataset_args, make_dataset

    arguments = get_dataset_args()
    arguments.num_samples = 3000
    found = make_dataset(arguments)
    return torch.tensor(found["x"], dtype=torch.float32).unsqueeze(1), torch.tensor(found["y"])


def network(spaces: int) -> nn.Sequential:
    conv, norm = ((nn.Conv1d, nn.BatchNorm1d), (nn.Conv2d, nn.BatchNorm2d))[spaces - 1]
    pool, mean = ((nn.MaxPool1d, nn.AdaptiveAvgPool1d), (nn.MaxPool2d, nn.AdaptiveAvgPool2d))[spaces - 1]
    return nn.Sequential(
        *(conv(1, 16, 3, padding=1, bias=False), norm(16), nn.ReLU(), pool(2)),
        *(conv(16, 32, 3, padding=1, bias=False), norm(32), nn.ReLU(), mean(2), nn.Flatten()),
        nn.Linear(32 * 2**spaces, 10),
    )


def compared(name: str, seeds: int, out: str) -> list:
    x, y = samples(name)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order].long()
    data, val = (
        list(zip(x[at].split(BATCH), y[at].split(BATCH), strict=True)) for at in (slice(HELD, None), slice(HELD))
    )
    data = data[: len(data) // (2 if name == "digits" else 1)]
    spaces = x.dim() - 2
    return nk.compare(
        model=lambda: network(spaces),
        data=data,
        val=val,
        variants=[{"name": variant, "norm": norm} for variant, norm in NORMS.items()],
        **{"steps": 120 if name == "digits" else 240, "lr": 0.01, "seeds": seeds, "threads": 1},
        **{"engine": "here", "out": out, "shift": ["all"]},
        **{"stream": list(STREAMS), "adapt": list(METHODS.values())},
    ).comparison.runs


class Cell(NamedTuple):
    """A method in a stream with a norm: means over corruptions by seed, and in how many streams its guard was right."""

    before: dict[int, float]
    after: dict[int, float]
    ece: tuple[float, float]
    right: int
    of: int

    def gain(self) -> Interval:
        return interval(self.after[seed] - self.before[seed] for seed in self.after)


def cells(runs: list) -> dict[tuple[str, str, str], Cell]:
    found = {}
    for variant, stream, method in itertools.product(NORMS, STREAMS, METHODS):
        rows = {
            run.seed: [r for r in run.end["shift"] if (r["stream"], r["adapter"]) == (stream, METHODS[method])]
            for run in runs
            if run.variant == variant
        }
        every = [row for one in rows.values() for row in one]
        if any("why" in row for row in every):
            continue

        def means(key: str, rows: dict = rows) -> dict[int, float]:
            return {seed: statistics.fmean(row[key] for row in one) for seed, one in rows.items()}

        ece = tuple(statistics.fmean(means(key).values()) for key in ("ece_before", "ece"))
        right = sum(row["guard_right"] for row in every)
        found[variant, stream, method] = Cell(means("before"), means("after"), ece, right, len(every))
    return found


def orders(found: dict[tuple[str, str, str], Cell]) -> dict[tuple[str, str, str], tuple[Interval, float]]:
    """By how much eata and sar are above tent, and p of a paired t-test, corrected for all of a stream (Holm)."""
    compared = {}
    for stream in STREAMS:
        keys = [key for key in found if key[1] == stream and key[2] in ("eata", "sar")]
        pairs = [compare_pairs(found[key].after, found[key[0], stream, "tent"].after) for key in keys]
        corrected = holm(p for _, p in pairs)
        compared |= {key: (over, p) for key, (over, _), p in zip(keys, pairs, corrected, strict=True)}
    return compared


def verdict(over: Interval, p: float) -> str:
    """
    >>> verdict(Interval(0.021, 0.009, 5), 0.012), verdict(Interval(-0.004, 0.02, 5), 0.7)
    ('+2.1 ± 0.9, p = 0.012', '-0.4 ± 2.0, p = 0.7: no difference found')
    """
    return f"{points(over)}, p = {p:.2g}{'' if p < LEVEL else ': no difference found'}"


def table(found: dict[tuple[str, str, str], Cell]) -> str:
    lines = ["| norm | stream | method | before | gain, points | over tent | ECE before | ECE after | guard right |"]
    lines.append("| --- " * 9 + "|")
    order = orders(found)
    for (variant, stream, method), cell in found.items():
        over = verdict(*order[variant, stream, method]) if (variant, stream, method) in order else ""
        shares = [f"{100 * value:.1f}" for value in (statistics.fmean(cell.before.values()), *cell.ece)]
        row = [variant, STREAMS[stream], method, shares[0], points(cell.gain()), over, *shares[1:]]
        lines.append(f"| {' | '.join(row)} | {cell.right} of {cell.of} |")
    return "\n".join(lines) + "\n"


def short(found: dict[tuple[str, str, str], Cell]) -> str:
    """Gains of tent, eata and sar, and the order of the three."""
    lines = ["| norm | stream | before | tent | eata | sar | eata over tent | sar over tent |", "| --- " * 8 + "|"]
    order, three = orders(found), ("tent", "eata", "sar")
    for variant, stream in itertools.product(NORMS, STREAMS):
        before = f"{100 * statistics.fmean(found[variant, stream, 'tent'].before.values()):.1f}"
        gains = [points(found[variant, stream, method].gain()) for method in three]
        over = [verdict(*order[variant, stream, method]) for method in three[1:]]
        lines.append(f"| {' | '.join([variant, STREAMS[stream], before, *gains, *over])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "mnist1d"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", help="a folder, in which a run that was broken off goes on")
    parser.add_argument("--write", action="store_true", help="write results/shifts-DATA.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as own:
        found = cells(compared(options.data, options.seeds, options.out or own))
    print(table(found))
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split())
        (HERE / f"shifts-{options.data}.md").write_text(
            f"# Adapting to shifted {options.data}\n\n`python benchmarks/shifts.py {options.data} "
            f"--seeds {options.seeds} --write`: accuracy in %, with 95 % intervals over seeds; p is that of a paired "
            f"t-test over seeds, corrected for all of a stream (Holm).\n\n{about}\n\n{short(found)}\n{table(found)}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
