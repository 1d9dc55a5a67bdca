"""AdaQuant: the weight, bias and ranges of one layer, tuned on its own float outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit import check
from normkit.catalog import method
from normkit.quant._grid import PAPER, bounds, quantize
from normkit.statistics import accurate

NAME = "adaquant"
RATES = {"weight": 1e-5, "bias": 1e-3, "weight_range": 1e-3, "weight_zero_point": 1e-3}
RATES |= {"input_range": 1e-1, "input_zero_point": 1e-1}


class Tuned(NamedTuple):
    """What was tuned, the weight on its grid, and the loss on the test inputs before and after."""

    weight: Tensor
    bias: Tensor | None
    weight_range: Tensor
    weight_zero_point: Tensor
    input_range: Tensor
    input_zero_point: Tensor
    quantized_weight: Tensor
    before: Tensor
    after: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="K I",
    over="N I",
    inputs={
        "bias": "K",
        "weight_range": "K : unit",
        "weight_zero_point": "K",
        "input_range": "1 : unit",
        "input_zero_point": "1",
        "x": "N I",
        "y": "N K",
        "order": "3 2 : index N",
        "test_x": "N I",
        "test_y": "N K",
    },
    aliases=("layerwise-calibration",),
    exempt={"gradcheck": "what was tuned carries no gradient"},
)
def adaquant(
    weight: Tensor,
    bias: Tensor | None,
    weight_range: Tensor,
    weight_zero_point: Tensor,
    input_range: Tensor,
    input_zero_point: Tensor,
    x: Tensor,
    y: Tensor,
    order: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    *,
    bits: int = 4,
    input_bits: int | None = None,
    relu: bool = False,
    stride: int = 1,
    padding: int = 0,
) -> Tuned:
    """Tune the weight, the bias and the ranges of one quantized layer until it gives what the float layer gave.

    For quantization after training to 4 bits, from a few hundred inputs without labels. ``learned-rounding`` only
    chooses between up and down for each entry.

    With Q the grid of 2^bits points over a range that begins at a zero point, each iteration lowers, on a batch of x
    and y,

        mean (layer(Q(x); Q(weight), bias) - y)²

    by four Adams: rates 1e-5 for the weight, 1e-3 for the bias and for the weight's range and zero point, 1e-1 for the
    input's. Rounding passes gradients through, clamping does not. The bias is rounded to twice the bits.

    Args:
        weight: (K, I) of a linear layer, or (K, I, h, w) of a convolution.
        bias: (K,), or None.
        weight_range, weight_zero_point: (K,), as ``measured-range`` gives them with ``per_channel``.
        input_range, input_zero_point: (1,), as ``measured-range`` gives them.
        x: inputs of the layer, in the float network (parallel) or in the one quantized so far (sequential).
        y: outputs of the float layer.
        order: rows of x for each iteration, (iterations, batch).
        test_x, test_y: what ``before`` and ``after`` are measured on.
        bits: of a number.
        input_bits: of an input's number; None: as many; 0: inputs stay as they are, and so do their range and zero
            point.
        relu: compare behind a ReLU.
        stride, padding: of a convolution.

    In the released runs: 1000 iterations of batches of 50. ``after`` may be above ``before`` with few iterations.

    Improving Post Training Neural Quantization (Hubara et al., 2021), arXiv 2006.10518.
    """
    check.size(NAME, "bits", bits, most=16)
    check.size(NAME, "stride", stride), check.size(NAME, "padding", padding, least=0)
    input_bits = bits if input_bits is None else check.size(NAME, "input_bits", input_bits, least=0, most=16)
    rows = _check(weight, bias, weight_range, weight_zero_point, input_range, input_zero_point)
    for name, value in {"x": x, "y": y, "test_x": test_x, "test_y": test_y}.items():
        check.floating(NAME, value, name)
        if not value.numel():
            raise ValueError(f"{NAME}: {name} must not be empty, but its shape is {tuple(value.shape)}")
    check.values(NAME, "y", y, (len(x), *y.shape[1:]), x)
    check.index(NAME, "order", order, (None, None), len(x), x)
    layer = _Layer(rows, bits, input_bits, relu, stride, padding)
    with torch.no_grad():
        before = layer.loss(test_x, test_y)
    layer.tune(x, y, order)
    with torch.no_grad():
        state: dict[str, Any] = {"bias": None, **{name: p.detach().to(weight.dtype) for name, p in layer.tuned.items()}}
        return Tuned(
            **state, quantized_weight=layer.weight().to(weight.dtype), before=before, after=layer.loss(test_x, test_y)
        )


def _check(weight: Tensor, bias: Tensor | None, *ranges: Tensor) -> dict[str, Tensor]:
    """What is tuned, by name, as copies in the accurate type."""
    check.floating(NAME, weight, "weight")
    if weight.dim() not in (2, 4):
        raise ValueError(f"{NAME}: weight must be (K, I) or (K, I, h, w), but its shape is {tuple(weight.shape)}")
    rows = {"weight": weight} | ({} if bias is None else {"bias": bias})
    rows |= dict(zip(list(RATES)[2:], ranges, strict=True))
    shapes = {"bias": weight.shape[:1], "weight_range": weight.shape[:1], "weight_zero_point": weight.shape[:1]}
    for name, value in list(rows.items())[1:]:
        check.values(NAME, name, value, shapes.get(name, (1,)), weight)
    return {name: accurate(value).detach().clone().requires_grad_() for name, value in rows.items()}


class _Layer:
    """A quantized linear layer or convolution whose numbers are tuned."""

    def __init__(self, tuned: dict[str, Tensor], bits: int, input_bits: int, relu: bool, stride: int, padding: int):
        self.tuned, self.bits, self.input_bits, self.relu = tuned, bits, input_bits, relu
        self.geometry = {"stride": stride, "padding": padding}

    @torch.enable_grad()
    def tune(self, x: Tensor, y: Tensor, order: Tensor) -> None:
        """Lower the loss, a batch of rows each step."""
        optimizers = [torch.optim.Adam([p], lr=RATES[name]) for name, p in self.tuned.items()]
        for batch in order:
            loss = self.loss(x[batch], y[batch])
            grads = torch.autograd.grad(loss, list(self.tuned.values()), allow_unused=True)
            for optimizer, p, grad in zip(optimizers, self.tuned.values(), grads, strict=True):
                p.grad = grad
                optimizer.step()

    def weight(self) -> Tensor:
        """The weight on its grid, one for each output."""
        weight = self.tuned["weight"]
        rows = (-1, *(1,) * (weight.dim() - 1))
        span, zero_point = (self.tuned[f"weight_{name}"].view(rows) for name in ("range", "zero_point"))
        return quantize(weight, span, zero_point, self.bits)

    def bias(self) -> Tensor | None:
        """The bias on the grid of its own values, with the gradient of the identity."""
        bias = self.tuned.get("bias")
        if bias is None:
            return None
        with torch.no_grad():
            span, low = bounds(bias.amin(), bias.amax())
            scale = span / (2 ** (2 * self.bits) - 1)
            grid = ((bias - low) / scale).round() * scale + low
        return bias + (grid - bias).detach()

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean squared distance from what the float layer gave."""
        x, y = accurate(x), accurate(y)
        if self.input_bits:
            x = quantize(x, self.tuned["input_range"], self.tuned["input_zero_point"], self.input_bits)
        weight, bias = self.weight(), self.bias()
        out = F.linear(x, weight, bias) if weight.dim() == 2 else F.conv2d(x, weight, bias, **self.geometry)
        return F.mse_loss(out.relu(), y.relu()) if self.relu else F.mse_loss(out, y)
