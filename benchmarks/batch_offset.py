"""What an offset does to batch norm, ours and torch's: ``python benchmarks/batch_offset.py [cuda]``.

Images in float32, plain and about 1e2 to 1e4: the largest errors of the result and of the gradients of input and gain,
against float64, over the largest number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from normkit import ops

SHAPE = (32, 256, 28, 28)
HEAD = "| offset | whose | result | input's gradient | gain's gradient |\n| --- | --- | --- | --- | --- |"


def torchs(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Torch's own, which is cuDNN's on a GPU that has it."""
    return torch.nn.functional.batch_norm(x, None, None, w, b, training=True)


def ours(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The library's."""
    return ops.batch_norm(x, w, b)[0]


def outcome(norm: Callable[..., Tensor], tensors: list[Tensor], grad: Tensor, kind: torch.dtype) -> list[Tensor]:
    """The result and two gradients, of inputs in a type."""
    x, w, b = (t.to(kind, copy=True).requires_grad_() for t in tensors)
    y = norm(x, w, b)
    return [y.detach(), *torch.autograd.grad(y, (x, w), grad.to(kind))]


def main() -> None:
    """Print the errors, a line for each offset and norm."""
    device, generator = sys.argv[1] if len(sys.argv) > 1 else "cpu", torch.Generator().manual_seed(0)
    print(HEAD)
    for offset in (0.0, 1e2, 1e3, 1e4):
        x, grad = (torch.randn(SHAPE, generator=generator) for _ in range(2))
        w, b = (torch.randn(SHAPE[1], generator=generator) for _ in range(2))
        tensors, grad = [t.to(device) for t in (x + offset, w, b)], grad.to(device)
        exact = outcome(torchs, tensors, grad, torch.float64)
        for name, norm in (("normkit", ours), ("torch", torchs)):
            pairs = zip(outcome(norm, tensors, grad, torch.float32), exact, strict=True)
            errors = [((a.double() - e).abs().max() / e.abs().max()).item() for a, e in pairs]
            print(f"| {offset:g} | {name} | " + " | ".join(f"{error:.1e}" for error in errors) + " |", flush=True)


if __name__ == "__main__":
    main()
