"""What a watch costs: processor time of a training step with and without it, side by side, and the memory it keeps.

python benchmarks/watch.py             # a table; the machine may be busy, processor time is not what others take
python benchmarks/watch.py --compiled  # of a decoder under torch.compile, with the price of the steps in between
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

import normkit as nk
from normkit.lab.plan import models
from normkit.lab.plan.variants import Variant
from normkit.optional import library
from normkit.watching.sample import FAMILIES
from normkit.watching.signals.parameters import entries


def decoder(width=768):
    """A decoder, and its batch."""
    model = models.decoder(Variant("v", norm="layernorm"), 0, 128, {"dim": width, "depth": 4, "heads": width // 64})
    text = torch.randint(256, (8, 129))
    return model, text[:, :-1], text[:, 1:]


def resnet18():
    """A ResNet of 18 layers, and its batch."""
    return (
        library("timm").create_model("resnet18", num_classes=10),
        torch.randn(8, 3, 128, 128),
        torch.randint(10, (8,)),
    )


def seconds(model, x, y, optimizer):
    """The processor time of a step."""
    began = time.process_time()
    F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.process_time() - began


def measure(make, repeats, signals):
    """Return the time of a plain and of a sampled step, taken in turn, and the numbers kept by a watch."""
    torch.manual_seed(0)
    model, x, y = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    plain, sampled = [], []
    seconds(model, x, y, optimizer)
    for _ in range(repeats):
        plain.append(seconds(model, x, y, optimizer))
        with nk.watch(model, optimizer, every=1, signals=signals) as seen:
            sampled.append(seconds(model, x, y, optimizer))
    updates = sum(entries(p).numel() for p in model.parameters())  # held over the optimizer's step
    vectors = sum(v.numel() for v in seen.spectra.vectors.values())
    kept = 4 * (updates + vectors + seen.store.keep * len(seen.history().columns))
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return statistics.median(plain), statistics.median(sampled), kept / size


def compiled(width, steps):
    """Print the time of a step of a compiled decoder, and with a watch that of its sampled steps and of the others."""
    twins = []
    for _ in range(2):
        torch.manual_seed(0)
        model, x, y = decoder(width)
        twins.append((torch.compile(model), x, y, torch.optim.AdamW(model.parameters(), lr=1e-4)))
    watched = twins[1]
    times = {"plain": [], "sampled": [], "in between": []}
    with nk.watch(watched[0], watched[3], every=20) as seen:
        for step in range(1, steps + 1):
            own, other = (seconds(*twin) for twin in twins)
            if step > 2:  # both graphs of the watched one have been compiled
                times["plain"].append(own)
                times["sampled" if step in seen.history().steps else "in between"].append(other)
    own, sampled, between = (statistics.median(series) for series in times.values())
    print(f"compiled decoder of width {width}: {own:.2f} s a step; sampled {sampled / own - 1:+.2%}, ", end="")
    print(f"in between {between / own - 1:+.2%}, every=20 {(sampled + 19 * between) / 20 / own - 1:+.2%}")


def main():
    """Print a line a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--compiled", action="store_true", help="of a decoder under torch.compile")
    parser.add_argument("--width", type=int, default=512, help="of the compiled decoder")
    parser.add_argument("--steps", type=int, default=60, help="of the compiled decoder")
    options = parser.parse_args()
    if options.compiled:
        return compiled(options.width, options.steps)
    repeats = options.repeats
    print(f"{'model':10} {'signals':11} {'plain step':>11} {'sampled step':>13} {'every=20':>9} {'kept memory':>12}")
    for make in (decoder, resnet18):
        for what, signals in (("but spectra", FAMILIES[:-1]), ("all", FAMILIES)):
            plain, sampled, kept = measure(make, repeats, signals)
            share = f"{(sampled / plain - 1) / 20:9.2%} {kept:12.2%}"
            print(f"{make.__name__:10} {what:11} {plain:9.2f} s {sampled:11.2f} s {share}")


if __name__ == "__main__":
    main()
