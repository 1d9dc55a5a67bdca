"""FedBN against plain averaging where clients' digits look different, on Flower's rounds in this process.

Four clients have a quarter of scikit-learn's digits each: as they are, inverted, faded with an offset, and with noise.
An eighth of each client's is held out. ``python benchmarks/fedbn_digits.py`` writes benchmarks/results/fedbn-digits.md;
it needs flwr.
"""

import argparse
import pathlib
import statistics

import torch
from torch import nn
from torch.nn import functional as F

from normkit.federated import keep_local, simulate, strategy
from normkit.surgery.statistics.federated import local_entries

CLIENTS, ROUNDS, PASSES, LR = 4, 15, 1, 0.05
FILE = pathlib.Path(__file__).parent / "results/fedbn-digits.md"
LOOKS = {
    "plain": lambda x, g: x,
    "inverted": lambda x, g: 1 - x,
    "faded": lambda x, g: 0.2 * x + 0.6,
    "noisy": lambda x, g: x + 0.5 * torch.randn(x.shape, generator=g),
}


def clients(seed):
    from sklearn.datasets import load_digits

    found = load_digits()
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(found.target), generator=generator)
    x, y = torch.tensor(found.data, dtype=torch.float32)[order] / 16, torch.tensor(found.target)[order]
    for look, xs, ys in zip(LOOKS.values(), x.chunk(CLIENTS), y.chunk(CLIENTS), strict=True):
        xs, cut = look(xs, generator), len(xs) * 7 // 8
        yield xs[:cut], ys[:cut], xs[cut:], ys[cut:]


def network():
    return nn.Sequential(
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        *(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        nn.Linear(64, 10),
    )


def accuracies(method, seed):
    """Each client's accuracy on its held-out digits after the last round."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    torch.manual_seed(seed)
    data, model, found = list(clients(seed)), network(), {}
    local = local_entries(model) if method == "fedbn" else []
    app, mods = ClientApp(), [keep_local(local)] if local else []

    def loaded(message, context):
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return context.node_config["partition-id"]

    @app.train(mods=mods)
    def train(message, context):
        x, y, *_ = data[loaded(message, context)]
        optimizer = torch.optim.SGD(model.train().parameters(), lr=LR, momentum=0.9)
        for _ in range(PASSES):
            for rows in torch.randperm(len(x)).split(32):
                optimizer.zero_grad()
                F.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
        arrays = ArrayRecord({name: value.clone() for name, value in model.state_dict().items()})
        return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": len(x)})}), reply_to=message)

    @app.evaluate(mods=mods)
    def evaluate(message, context):
        k = loaded(message, context)
        x, y = data[k][2:]
        with torch.no_grad():
            found[k] = float((model.eval()(x).argmax(1) == y).float().mean())
        return Message(RecordDict({"m": MetricRecord({"num-examples": len(x)})}), reply_to=message)

    simulate(app, strategy(method, local=local), model.state_dict(), clients=CLIENTS, rounds=ROUNDS)
    return [found[k] for k in range(CLIENTS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    runs = {method: [accuracies(method, seed) for seed in seeds] for method in ("average", "fedbn")}
    lines = ["# FedBN under feature shift", "", __doc__.split("\n\n")[1].replace("\n", " "), ""]
    lines += [f"{ROUNDS} rounds, {len(seeds)} seeds; held-out accuracy, mean over seeds.", ""]
    lines += [
        "| aggregation | " + " | ".join(LOOKS) + " | mean of clients | its deviation over seeds |",
        "| --- " * 7 + "|",
    ]
    for method, found in runs.items():
        columns = [statistics.mean(run[k] for run in found) for k in range(CLIENTS)]
        means = [statistics.mean(run) for run in found]
        cells = [f"{value:.3f}" for value in (*columns, statistics.mean(means), statistics.stdev(means))]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    better = [statistics.mean(b) - statistics.mean(a) for a, b in zip(*runs.values(), strict=True)]
    error = statistics.stdev(better) / len(better) ** 0.5
    lines += ["", f"fedbn less average, seed by seed: {statistics.mean(better):+.3f} ± {error:.3f} (standard error)."]
    FILE.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
