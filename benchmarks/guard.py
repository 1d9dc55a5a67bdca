"""Whether the guard of adapters speaks before accuracy falls, and is silent where it does not, on digits.

    python benchmarks/guard.py [--first 0] [--each 5] [--write]

Small networks are trained on half of scikit-learn's digits, as in benchmarks/adaptation.py, and shown the other half in
streams of eight kinds. A stream collapses where, at any time, the adapter without a guard has at least 10 right answers
fewer than its source among the last 200: 5 points. Of each kind of collapsing streams the first that do are taken, of
each kind of benign ones the first that do not, over methods and seeds. The guard speaks in time if it does so no later
than with the batch at which those 10 would be lost. It was tuned on streams of seeds 700 to 709 and 800 to 829.
"""

import argparse
import itertools
import statistics
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import normkit as nk
from adaptation import CORRUPTIONS, classifier

HERE = Path(__file__).parent / "results" / "guard.md"
MOST = 10  # seeds that are looked through for streams of a kind
WINDOW, LOST = 200, 10  # answers, and how many more of them are wrong than the source's
MILD = {"clean": lambda x, g: x, "noise": CORRUPTIONS["noise"]}
MILD |= {name: lambda x, g, c=CORRUPTIONS[name]: 0.4 * x + 0.6 * c(x, g) for name in ("blur", "haze")}
DOMAINS = ("noise", "blur", "haze")


class Kind(NamedTuple):
    """A kind of streams: source norm and method with its rate, in turn; the order of samples, and the batch."""

    name: str
    order: str
    batch: int
    methods: tuple[tuple[str, str, float], ...]


BATCH_NORM = tuple(("batchnorm", method, 1e-3) for method in ("tent", "eata", "sar", "deyo", "delta"))
ROBUST = (("batchnorm", "note", 1e-3), ("groupnorm", "sar", 1e-3), ("batchnorm", "rotta", 1e-3))
HARSH = (("groupnorm", "sar", 3e-2), ("groupnorm", "cotta", 1e-3), ("batchnorm", "delta", 1e-3))
COLLAPSING = (
    Kind("one class at a time", "class", 32, BATCH_NORM),
    Kind("batches of one", "mixed", 1, BATCH_NORM),
    Kind("label shift: two classes at a time", "pairs", 32, BATCH_NORM),
    Kind("alternating domains", "domains", 32, HARSH),
)
BENIGN = (
    Kind("one domain, mixed", "mixed", 64, BATCH_NORM[:4]),
    Kind("recurring domains", "domains", 64, BATCH_NORM[:4]),
    Kind("one class at a time, methods for it", "class", 32, ROBUST),
    Kind("batches of one, methods for it", "mixed", 1, ROBUST[:2]),
)


class Sources:
    """The trained networks and held-out digits of each seed, made when they are asked for."""

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        self.x, self.y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
        self.models: dict[tuple[str, int], nn.Module] = {}

    def model(self, norm: str, seed: int) -> nn.Module:
        train, _ = self.halves(seed)
        if (norm, seed) not in self.models:
            self.models[norm, seed] = classifier(norm, self.x[train], self.y[train], seed)
        return self.models[norm, seed]

    def halves(self, seed: int) -> tuple[Tensor, Tensor]:
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(seed))
        return order[: len(order) // 2], order[len(order) // 2 :]

    def stream(self, kind: Kind, seed: int, mild: str) -> list[tuple[Tensor, Tensor]]:
        """Batches and labels in the order of a kind."""
        g = torch.Generator().manual_seed(1000 + seed)
        rows = self.halves(seed)[1]
        x, y = self.x[rows], self.y[rows]
        if kind.order == "class":
            places = y.argsort(stable=True)
        elif kind.order == "pairs":
            pair = torch.randperm(10, generator=g)[y] // 2
            mixed = torch.randperm(len(y), generator=g)
            places = mixed[pair[mixed].argsort(stable=True)]
        else:
            places = torch.arange(len(y))
        batches = [b for b in places.split(kind.batch) if len(b) == kind.batch][: WINDOW + 50]
        if kind.order == "domains":
            return [(CORRUPTIONS[DOMAINS[i // 2 % 3]](x[b], g), y[b]) for i, b in enumerate(batches)]
        shifted = MILD[mild](x, g)
        return [(shifted[b], y[b]) for b in batches]


class Outcome(NamedTuple):
    """Right answers of a stream, the sample at which 5 points were lost, and that at which the guard spoke."""

    accuracy: dict[str, float]
    lost: int | None
    spoke: int | None


def watch(model: nn.Module, method: str, rate: float, batches: list[tuple[Tensor, Tensor]]) -> Outcome:
    """Adapt with and without a guard, beside the model as it was."""
    with torch.no_grad():
        right = {"source": torch.cat([model(x).argmax(1) == y for x, y in batches])}
    spoke = None
    for guard in nk.kinds.guard.GUARDS:
        torch.manual_seed(0)
        adapter = nk.adapt(model, method=method, lr=rate, guard=guard, inplace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            right[guard] = torch.cat([adapter(x).argmax(1) == y for x, y in batches])
        if guard == "stop" and adapter.guard.alarms:
            spoke = sum(len(y) for _, y in batches[: adapter.guard.alarms[0][0] - 1])
    fewer = (right["source"].int() - right["off"].int()).cumsum(0)
    before = torch.cat([fewer.new_zeros(WINDOW), fewer])[: len(fewer)]
    below = (fewer - before >= LOST).nonzero()
    accuracy = {name: float(r.float().mean()) for name, r in right.items()}
    return Outcome(accuracy, int(below[0]) if len(below) else None, spoke)


def outcomes(kind: Kind, collapses: bool, sources: Sources, first: int, each: int) -> list[Outcome]:
    """The first streams of a kind that collapse, or that do not."""
    found: list[Outcome] = []
    tries = itertools.product(range(first, first + MOST), range(2))
    for number, (seed, _) in enumerate(tries):
        norm, method, rate = kind.methods[number % len(kind.methods)]
        mild = list(MILD)[(number + number // len(kind.methods)) % len(MILD)]
        batches = sources.stream(kind, seed, mild)
        outcome = watch(sources.model(norm, seed), method, rate, batches)
        if (outcome.lost is not None) is collapses:
            found.append(outcome)
            print(kind.name, norm, method, seed, outcome, flush=True)
        if len(found) == each:
            break
    return found


def row(kind: Kind, found: list[Outcome], collapses: bool) -> str:
    spoke = [one for one in found if one.spoke is not None]
    if collapses:
        early = [one for one in spoke if one.lost is not None and one.spoke <= one.lost]  # type: ignore[operator]
        verdict = f"{len(early)} of {len(found)} in time"
    else:
        verdict = f"{len(spoke)} of {len(found)} false alarms"
    means = (100 * statistics.fmean(one.accuracy[name] for one in found) for name in ("source", "off", "stop", "reset"))
    methods = ", ".join(dict.fromkeys(method for _, method, _ in kind.methods))
    return f"| {kind.name} | {methods} | {' | '.join(f'{mean:.1f}' for mean in means)} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--each", type=int, default=5, help="streams of a kind")
    parser.add_argument("--write", action="store_true", help="write results/guard.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sources = Sources()
    lines = [
        "| stream | methods | source | no guard | stop | reset | guard |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for collapses, kinds in ((True, COLLAPSING), (False, BENIGN)):
        for kind in kinds:
            lines.append(row(kind, outcomes(kind, collapses, sources, options.first, options.each), collapses))
    table = "\n".join(lines) + "\n"
    print(table)
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split())
        HERE.write_text(
            "# The guard of adapters, on digits\n\n"
            f"`python benchmarks/guard.py --first {options.first} --each {options.each} --write`: accuracy in %.\n\n"
            f"{about}\n\n{table}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
