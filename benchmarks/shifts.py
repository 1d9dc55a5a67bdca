"""What adapting gains over the source on shifted digits and signals, by norm, stream and method.

    python benchmarks/shifts.py digits|mnist1d [--seeds 5] [--write]

Small convolutional networks with batch, group and layer norms are trained on half of scikit-learn's digits, or on
MNIST-1D (`pip install mnist1d`). Then they are shown 63 other samples with each of seven corruptions of severity 3:
each alone in batches of 32, or all mixed in batches of 4. A layer norm is a group norm of one group. Tent, eata and sar
train the gains and shifts of all norms by SGD at one rate, 0.005, which was not tuned.
"""

import argparse
import statistics
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import normkit as nk
from normkit.lab.plan.findings import interval
from normkit.lab.report.shift import points

HERE = Path(__file__).parent / "results"
HELD, BATCH = 63, 63
NORMS = {"batchnorm": "original", "groupnorm": "groupnorm:num_groups=4", "layernorm": "groupnorm:num_groups=1"}
OF_ALL = "norms=['1','5']"
METHODS = {
    "tent": f"tent:optimizer=sgd,lr=0.005,{OF_ALL}",
    "eata": f"eata:lr=0.005,{OF_ALL}",
    "sar": f"sar:lr=0.005,{OF_ALL}",
    "note": "note",
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


def compared(name: str, seeds: int) -> list:
    x, y = samples(name)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order].long()
    data, val = (
        list(zip(x[at].split(BATCH), y[at].split(BATCH), strict=True)) for at in (slice(HELD, None), slice(HELD))
    )
    data = data[: len(data) // (2 if name == "digits" else 1)]
    spaces = x.dim() - 2
    with tempfile.TemporaryDirectory() as out:
        return nk.compare(
            model=lambda: network(spaces),
            data=data,
            val=val,
            variants=[{"name": variant, "norm": norm} for variant, norm in NORMS.items()],
            **{"steps": 120 if name == "digits" else 240, "lr": 0.01, "seeds": seeds, "threads": 1},
            **{"engine": "here", "out": out, "shift": ["all"]},
            **{"stream": list(STREAMS), "adapt": list(METHODS.values())},
        ).comparison.runs


def table(runs: list) -> str:
    lines = ["| norm | stream | method | before | gain, points | over tent | ECE before | ECE after | guard right |"]
    lines.append("| --- " * 9 + "|")
    for variant in NORMS:
        ends = [run.end["shift"] for run in sorted(runs, key=lambda r: r.seed) if run.variant == variant]
        for stream, words in STREAMS.items():
            gains = {}
            for method, typed in METHODS.items():
                by_seed = [[r for r in end if (r["stream"], r["adapter"]) == (stream, typed)] for end in ends]
                if any("why" in row for rows in by_seed for row in rows):
                    continue

                def mean(key: str, by_seed: list = by_seed) -> list[float]:
                    return [statistics.fmean(row[key] for row in rows) for rows in by_seed]

                gains[method] = [b - a for a, b in zip(mean("before"), mean("after"), strict=True)]
                over = [a - b for a, b in zip(gains[method], gains["tent"], strict=True)]
                guard = [row["guard_right"] for rows in by_seed for row in rows]
                shares = [f"{100 * statistics.fmean(mean(key)):.1f}" for key in ("before", "ece_before", "ece")]
                beside = "" if method == "tent" else points(interval(over))
                cells = [variant, words, method, shares[0], points(interval(gains[method])), beside, *shares[1:]]
                lines.append(f"| {' | '.join(cells)} | {sum(guard)} of {len(guard)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "mnist1d"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/shifts-DATA.md")
    options = parser.parse_args()
    text = table(compared(options.data, options.seeds))
    print(text)
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split())
        (HERE / f"shifts-{options.data}.md").write_text(
            f"# Adapting to shifted {options.data}\n\n`python benchmarks/shifts.py {options.data} "
            f"--seeds {options.seeds} --write`: accuracy in %, with 95 % intervals.\n\n{about}\n\n{text}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
