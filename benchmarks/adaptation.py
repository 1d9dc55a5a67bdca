"""Adapting at test time on digits: accuracy before and after, by corruption, order of the stream, and source norm.

    python benchmarks/adaptation.py [--seeds 5] [--write]

A small convolutional network is trained on half of scikit-learn's digits (20 epochs of Adam), then shown the other half
corrupted, in batches of 64, mixed or sorted by class. All methods have one rate, which is not tuned; those that move
batch norms alone are left out where the network has group norms.
"""

import argparse
import statistics
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import normkit as nk
from normkit.surgery.statistics.streaming import run_stream

HERE = Path(__file__).parent / "results" / "adaptation.md"
METHODS = ("tent", "eata", "sar", "deyo", "delta", "cotta", "note", "rotta")
RATE, BATCH = 1e-3, 64


def noise(x: Tensor, g: torch.Generator) -> Tensor:
    return x + 0.2 * torch.randn(x.shape, generator=g)


def blur(x: Tensor, g: torch.Generator) -> Tensor:
    return nn.functional.avg_pool2d(nn.functional.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)


def contrast(x: Tensor, g: torch.Generator) -> Tensor:
    return 0.5 * x + 0.3


def haze(x: Tensor, g: torch.Generator) -> Tensor:
    return 0.5 * x.mean((1, 2, 3), keepdim=True) + 0.6 * x


CORRUPTIONS = {"noise": noise, "blur": blur, "contrast": contrast, "haze": haze}


def network(norm: str) -> nn.Sequential:
    def norm_of(width: int) -> nn.Module:
        return nn.BatchNorm2d(width) if norm == "batchnorm" else nn.GroupNorm(4, width)

    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1, bias=False), norm_of(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, padding=1, bias=False), norm_of(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 3, padding=1, bias=False), norm_of(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(32, 10)),
    )


def classifier(norm: str, x: Tensor, y: Tensor, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    model = network(norm)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(20):
        for rows in torch.randperm(len(x)).split(BATCH):
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def rows(seeds: int) -> dict[tuple[str, str, str, str], list[tuple[float, float, float]]]:
    """Accuracy as it was and adapting, and the worst batch's change, of each seed."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    found: dict[tuple[str, str, str, str], list[tuple[float, float, float]]] = {}
    for seed in range(seeds):
        g = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(x), generator=g)
        train, test = order[: len(x) // 2], order[len(x) // 2 :]
        for norm in ("batchnorm", "groupnorm"):
            model = classifier(norm, x[train], y[train], seed)
            for corruption, corrupt in CORRUPTIONS.items():
                shifted = corrupt(x[test], g)
                for stream in ("mixed", "by class"):
                    places = torch.arange(len(test)) if stream == "mixed" else y[test].argsort(stable=True)
                    batches = [(shifted[rows], y[test][rows]) for rows in places.split(BATCH)]
                    for method in METHODS:
                        try:
                            adapter = nk.adapt(model, method=method, inplace=False, lr=RATE)
                        except ValueError:  # it moves batch norms, and the network has none
                            continue
                        row = run_stream(model, adapter, batches, method).to_dict()
                        cell = found.setdefault((norm, corruption, stream, method), [])
                        cell.append((row["accuracy_before"], row["accuracy"], row["worst_batch"]))
    return found


def table(found: dict, seeds: int) -> str:
    lines = [
        f"{seeds} seeds; accuracy in %, over {', '.join(CORRUPTIONS)}; gain ± half of a 95 % interval "
        "over seeds; worst: the largest loss of a batch.",
        "",
        "| norm | stream | method | as it was | adapting | gain | worst batch |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    keys = list(dict.fromkeys((norm, stream, method) for norm, _, stream, method in found))
    for norm, stream, method in keys:
        cells = [values for (n, _, s, m), values in found.items() if (n, s, m) == (norm, stream, method)]
        by_seed = [
            [statistics.fmean(column) for column in zip(*seed, strict=True)] for seed in zip(*cells, strict=True)
        ]
        gains = [100 * (after - before) for before, after, _ in by_seed]
        t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}.get(seeds, 2.0)
        half = t * statistics.stdev(gains) / seeds**0.5 if seeds > 1 else float("nan")
        before, after = (100 * statistics.fmean(row[i] for row in by_seed) for i in (0, 1))
        worst = 100 * min(value for values in cells for *_, value in values)
        gain = f"{statistics.fmean(gains):+.1f} ± {half:.1f}"
        lines.append(f"| {norm} | {stream} | {method} | {before:.1f} | {after:.1f} | {gain} | {worst:+.0f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/adaptation.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = table(rows(options.seeds), options.seeds)
    print(text)
    if options.write:
        HERE.write_text(
            f"# Adapting at test time, on digits\n\n`python benchmarks/adaptation.py --write`: {text}", encoding="utf-8"
        )
