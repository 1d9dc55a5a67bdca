"""AdaQuant's table on a small network: weights and activations in 4 bits, with its steps and without, on digits.

    python benchmarks/four_bits.py [--seeds 5] [--write]

A convolutional network with batch norms, that of benchmarks/adaptation.py, is trained on half of scikit-learn's digits.
Its norms are folded, and every layer has weights and inputs in few bits, the first and the last too. Ranges are
measured on 500 training images, and AdaQuant takes 200 steps of 50 of them a layer: in parallel on the inputs that a
layer has in the float network, in sequence on those that it has behind the layers quantized so far; the norms are then
tuned on the same images. Mixed: 8, 4, 3 or 2 bits a layer, as allocate-bits puts them within the size of 3 bits for
all, from the loss of one layer lowered at a time.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import normkit as nk
from adaptation import classifier
from normkit.lab.plan.findings import interval
from normkit.lab.report.shift import points
from normkit.quant._grid import quantize

HERE = Path(__file__).parent / "results" / "four-bits.md"
LOWER, SIZE, IMAGES, STEPS, BATCH = (4, 3, 2), 3, 500, 200, 50
Ranges = tuple[Tensor, Tensor]


class Layer(NamedTuple):
    """A convolution or the last linear: its numbers, the norm that was folded into it, and what follows it."""

    weight: Tensor
    bias: Tensor
    norm: nn.BatchNorm2d | None
    after: nn.Sequential

    def product(self, x: Tensor) -> Tensor:
        return (
            F.linear(x, self.weight, self.bias) if self.norm is None else F.conv2d(x, self.weight, self.bias, padding=1)
        )


class Grids(NamedTuple):
    """The ranges of a layer's weight and input, and their bits."""

    weight: Ranges
    input: Ranges
    bits: int


def folded(model: nn.Sequential) -> list[Layer]:
    """The layers, without norms."""
    parts, layers = list(model), []
    starts = [i for i, part in enumerate(parts) if isinstance(part, nn.Conv2d | nn.Linear)]
    for start, end in zip(starts, [*starts[1:], len(parts)], strict=True):
        layer: Any = parts[start]
        norm: Any = parts[start + 1] if isinstance(layer, nn.Conv2d) else None
        if norm is None:
            layers.append(Layer(layer.weight.detach(), layer.bias.detach(), None, nn.Sequential()))
            continue
        gain = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
        bias = norm.bias.detach() - norm.running_mean * gain
        after = nn.Sequential(*parts[start + 2 : end])
        layers.append(Layer(layer.weight.detach() * gain.view(-1, 1, 1, 1), bias, norm, after))
    return layers


def grids(layer: Layer, x: Tensor, bits: int) -> Grids:
    """The measured ranges of a layer."""
    return Grids(nk.MeasuredRange(per_channel=True)(layer.weight), nk.MeasuredRange()(x), bits)


def outputs(layer: Layer, grid: Grids | None, x: Tensor) -> Tensor:
    """A layer's product, of numbers on its grids where there are any."""
    if grid is None:
        return layer.product(x)
    rows = (-1, *(1,) * (layer.weight.dim() - 1))
    span, low = (value.view(rows) for value in grid.weight)
    weight = quantize(layer.weight, span, low, grid.bits)
    return layer._replace(weight=weight).product(quantize(x, *grid.input, grid.bits))


def forward(layers: list[Layer], at: list[Grids | None], x: Tensor) -> Tensor:
    for layer, grid in zip(layers, at, strict=True):
        x = layer.after(outputs(layer, grid, x))
    return x


def tuned(layer: Layer, grid: Grids, x: Tensor, y: Tensor, g: torch.Generator) -> tuple[Layer, Grids]:
    """A layer behind AdaQuant."""
    order = torch.randint(len(x), (STEPS, BATCH), generator=g)
    made = nk.adaquant(
        *(layer.weight, layer.bias, *grid.weight, *grid.input, x, y, order, x, y),
        bits=grid.bits,
        padding=0 if layer.norm is None else 1,
    )
    new = Grids((made.weight_range, made.weight_zero_point), (made.input_range, made.input_zero_point), grid.bits)
    return layer._replace(weight=made.weight, bias=made.bias), new


def renormed(layer: Layer, grid: Grids, x: Tensor) -> tuple[Layer, Grids]:
    """A convolution behind tune-batchnorm on its outputs in few bits."""
    if layer.norm is None:
        return layer, grid
    gamma, beta = layer.norm.weight.detach(), layer.norm.bias.detach()
    made = nk.tune_batchnorm(layer.weight, layer.bias, gamma, beta, *outputs(layer, grid, x).split(BATCH), rounds=5)
    factor = (gamma.square() + 1e-5).sqrt() / (made.running_var + 1e-5).sqrt()
    span, low = grid.weight
    return layer._replace(weight=made.weight, bias=made.bias), grid._replace(weight=(span * factor, low * factor))


def calibrated(layers: list[Layer], bits: list[int], x: Tensor, how: str, seed: int) -> tuple[list[Layer], list[Grids]]:
    """Layers on their grids: "nearest", "parallel" or "sequential", with "+ norms" behind it or not."""
    new, at, own = [], [], x
    g = torch.Generator().manual_seed(seed)
    for layer, width in zip(layers, bits, strict=True):
        y, given = layer.product(x), own if "sequential" in how else x
        made, grid = layer, grids(layer, x, width)
        if "nearest" not in how:
            made, grid = tuned(layer, grid, given, y, g)
        if "norms" in how:
            made, grid = renormed(made, grid, own)
        new.append(made), at.append(grid)
        x, own = layer.after(y), made.after(outputs(made, grid, own))
    return new, at


def allotted(layers: list[Layer], x: Tensor, y: Tensor, seed: int) -> list[int]:
    """Bits of layers within the size of 3 bits for all."""

    def loss(bits: list[int]) -> Tensor:
        return F.cross_entropy(forward(*calibrated(layers, bits, x, "nearest", seed), x), y)

    base, count = [8] * len(layers), range(len(layers))
    table = [[loss([low if i == at else 8 for i in count]) for low in LOWER] for at in count]
    sizes = torch.tensor([float(layer.weight.numel()) for layer in layers])
    found = nk.allocate_bits(torch.tensor(table), loss(base).view(1), sizes, precisions=LOWER, target=SIZE / 32)
    return found.bits.tolist()


HOWS = ("nearest", "nearest + norms", "parallel", "parallel + norms", "sequential", "sequential + norms")
MIXED = ("nearest", "sequential + norms")


@torch.no_grad()
def accuracies(seed: int, x: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy on the other half by what was done, and of the float network."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    own, other = order[: len(order) // 2], order[len(order) // 2 :]
    with torch.enable_grad():
        layers = folded(classifier("batchnorm", x[own], y[own], seed))
    few, count = own[:IMAGES], len(layers)
    mixed = allotted(layers, x[few], y[few], seed)
    print(seed, "bits", mixed, flush=True)
    asked = [(f"4 bits: {how}", [4] * count, how) for how in HOWS]
    asked += [
        (f"{name}: {how}", bits, how) for name, bits in (("3 bits", [3] * count), ("mixed", mixed)) for how in MIXED
    ]
    made = {"float": (layers, [None] * count)}
    made |= {name: calibrated(layers, bits, x[few], how, seed) for name, bits, how in asked}
    return {name: float((forward(*one, x[other]).argmax(1) == y[other]).float().mean()) for name, one in made.items()}


def table(cells: list[dict[str, float]]) -> str:
    lines = ["| weights and inputs | accuracy, % | over the float network, points |", "| --- | --- | --- |"]
    for name in cells[0]:
        over = points(interval(cell[name] - cell["float"] for cell in cells))
        lines.append(f"| {name} | {100 * statistics.fmean(cell[name] for cell in cells):.1f} | {over} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write results/four-bits.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    text = table([accuracies(seed, x, y) for seed in range(options.seeds)])
    print(text)
    if options.write:
        about = " ".join((__doc__ or "").split("\n\n")[2].split())
        HERE.write_text(
            f"# A network in 4 bits, with AdaQuant and without\n\n`python benchmarks/four_bits.py --seeds "
            f"{options.seeds} --write`: means over seeds, with 95 % intervals.\n\n{about}\n\n{text}",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
