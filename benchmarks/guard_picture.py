"""Draw docs/adapt-guard.svg: the accuracy of the last 200 answers along two streams of digits.

python benchmarks/guard_picture.py
"""

import warnings
from pathlib import Path

import torch

import guard
import normkit as nk
from normkit.optional import library

PICTURE = Path(__file__).parents[1] / "docs" / "adapt-guard.svg"
LINES = {"source": "0.5", "off": "C3", "stop": "C0"}
LABELS = {"source": "the model as it was", "off": "tent", "stop": 'tent, guard="stop"'}
SEED, STREAMS = 200, {"mixed classes: tent helps": (4, "blur"), "one class at a time: tent collapses": (0, "blur")}


def main() -> None:
    library("matplotlib")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "normkit"
    from matplotlib import pyplot

    torch.set_num_threads(1)
    sources, kinds = guard.Sources(), (*guard.COLLAPSING, *guard.BENIGN)
    figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 3.4), sharey=True)
    for axes, (title, (kind, mild)) in zip(panels, STREAMS.items(), strict=True):
        model, batches = sources.model("batchnorm", SEED), sources.stream(kinds[kind], SEED, mild)
        answers = {
            "source": model,
            **{g: nk.adapt(model, method="tent", guard=g, inplace=False) for g in ("off", "stop")},
        }
        for name, each in answers.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                right = torch.cat([(each(x).argmax(1) == y).float() for x, y in batches]).cumsum(0)
            before = torch.cat([torch.zeros(guard.WINDOW), right])[: len(right)]
            shown = (right - before) / torch.arange(1, len(right) + 1).clamp(max=guard.WINDOW)
            axes.plot(range(20, len(shown)), 100 * shown[20:], color=LINES[name], label=LABELS[name])
        axes.set(title=title, xlabel="samples")
    panels[0].set_ylabel("right of the last 200, %")
    panels[0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
