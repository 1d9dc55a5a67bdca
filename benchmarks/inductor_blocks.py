"""What Inductor writes for a decoder's and a ResNet's block on an H100, with norms as formulas and as kernels apart.

No GPU is needed, nothing is run: launches and bytes are counted, bytes of matrix products and convolutions too. A
kernel apart is an op that Inductor does not see into and fuses nothing with; it is given the launches that normkit's
has.
`--write` writes benchmarks/results/inductor-blocks.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

import normkit as nk
from normkit import ops
from normkit.kernels.cuda import inductor
from normkit.ops import paths

ROWS, WIDTH, HIDDEN = 16384, 1024, 2816
IMAGES, CHANNELS, SIDE = 64, 256, 28
HALF = torch.bfloat16
FORMS = ("formula", "kernel apart")


@torch.library.custom_op("blocks::attention", mutates_args=())
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Stand for attention's core, which is a kernel apart in any case."""
    return q + k + v


@torch.library.custom_op("blocks::rows", mutates_args=())
def rows(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Stand for the row kernel: y, and what its backward pass needs of each row."""
    return x * w, x[:, 0].float()


@torch.library.custom_op("blocks::rows_back", mutates_args=())
def rows_back(x: Tensor, grad: Tensor, w: Tensor, stats: Tensor) -> tuple[Tensor, Tensor]:
    """Stand for its backward pass."""
    return x * grad, w.clone()


@torch.library.custom_op("blocks::channels", mutates_args=())
def channels(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Stand for the channel kernels."""
    return x.clone(), x.new_empty(2 * len(w), dtype=torch.float32)


@torch.library.custom_op("blocks::channels_back", mutates_args=())
def channels_back(x: Tensor, grad: Tensor, w: Tensor, moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Stand for their backward pass."""
    return x * grad, w.clone(), w.clone()


@triton.jit
def doubled(x, y, size, BLOCK: tl.constexpr):
    """Double each entry."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < size), mask=at < size)


@torch.library.triton_op("blocks::double", mutates_args={})
def double(x: Tensor) -> Tensor:
    """A kernel that Inductor is given."""
    y = torch.empty_like(x)
    torch.library.wrap_triton(doubled)[(x.numel() // 1024,)](x, y, x.numel(), BLOCK=1024)
    return y


attention.register_fake(lambda q, k, v: torch.empty_like(q))
rows.register_fake(lambda x, w: (torch.empty_like(x), x.new_empty(len(x), dtype=torch.float32)))
rows_back.register_fake(lambda x, grad, w, stats: (torch.empty_like(x), torch.empty_like(w)))
channels.register_fake(lambda x, w, b: (torch.empty_like(x), x.new_empty(2 * len(w), dtype=torch.float32)))
channels_back.register_fake(lambda x, g, w, m: (torch.empty_like(x), torch.empty_like(w), torch.empty_like(w)))
attention.register_autograd(lambda ctx, grad: (grad, grad, grad))
rows.register_autograd(
    lambda ctx, grad, _: rows_back(ctx.saved_tensors[0], grad, *ctx.saved_tensors[1:]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs, output[1]),
)
channels.register_autograd(
    lambda ctx, grad, _: channels_back(ctx.saved_tensors[0], grad, *ctx.saved_tensors[1:]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2], output[1]),
)


def decoder(form: str) -> tuple[Callable, list]:
    """A block of a decoder: norm, attention, addition, norm, SwiGLU, addition."""

    def norm(x: Tensor, w: Tensor) -> Tensor:
        return ops.rms_norm(x, (WIDTH,), w) if form == "formula" else rows(x, w)[0]

    def block(x, first, qkv, out, second, up, down):
        q, k, v = (norm(x, first) @ qkv).chunk(3, -1)
        x = x + attention(q.contiguous(), k.contiguous(), v.contiguous()) @ out
        a, b = (norm(x, second) @ up).chunk(2, -1)
        return x + (functional.silu(a) * b) @ down

    matrices = [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 2 * HIDDEN), (HIDDEN, WIDTH)]
    gain = ((WIDTH,), torch.float32)
    first, second, third, fourth = ((shape, HALF) for shape in matrices)
    return block, [((ROWS, WIDTH), HALF), gain, first, second, gain, third, fourth]


def resnet(form: str) -> tuple[Callable, list]:
    """A basic block of a ResNet: convolution, norm, ReLU, convolution, norm, addition, ReLU."""

    def norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return ops.batch_norm(x, w, b)[0] if form == "formula" else channels(x, w, b)[0]

    def block(x, first, w1, b1, second, w2, b2):
        y = norm(functional.conv2d(x, first, padding=1), w1, b1).relu()
        return (x + norm(functional.conv2d(y, second, padding=1), w2, b2)).relu()

    kernel, vector = ((CHANNELS, CHANNELS, 3, 3), HALF), ((CHANNELS,), torch.float32)
    return block, [((IMAGES, CHANNELS, SIDE, SIDE), HALF), kernel, vector, vector, kernel, vector, vector]


# op -> its launches, and how many arrays it reads a second time, which Inductor does not know
APART = {"attention": (1, 0), "rows": (1, 0), "rows_back": (2, 0), "channels": (3, 1), "channels_back": (3, 2)}


def counted() -> list[str]:
    """Lines of a table: for each block, form and pass the launches beside matrix products, and what all of it moves."""
    lines = []
    for name, build, size in (("decoder", decoder, ROWS * WIDTH), ("ResNet", resnet, IMAGES * CHANNELS * SIDE * SIDE)):
        for form in FORMS:
            block, shapes = build(form)
            with paths.formula_only():
                passes = inductor.generate(block, shapes, learning=True)
            for way, graph in zip(("forward", "backward"), passes, strict=True):
                apart = [APART[call.split(".")[1]] for call in graph.calls if call.startswith("blocks.")]
                launches = len(graph.sources) + sum(number for number, _ in apart)
                moved = graph.moved + sum(again for _, again in apart) * size * HALF.itemsize
                arrays = moved / (size * HALF.itemsize)
                lines.append(f"| {name} | {form} | {way} | {launches} | {moved / 1e6:.0f} | {arrays:.1f} |")
    return lines


def between() -> int:
    """How many kernels two pointwise functions and a kernel between them become, by `torch.library.triton_op`."""
    [graph] = inductor.generate(lambda x: double(x * 3).relu() + 1, [((ROWS, WIDTH), HALF)], learning=False)
    return len(graph.sources)


def main() -> None:
    """Count, print and write."""
    told = (
        f"python benchmarks/inductor_blocks.py --write: torch {torch.__version__}, normkit {nk.__version__}\n\n"
        f"{str(__doc__).splitlines()[0]}\n"
        f"A decoder's block has {ROWS} rows of {WIDTH}, a ResNet's {IMAGES} images of {CHANNELS} x {SIDE} x {SIDE},\n"
        "in bfloat16 with gains in float32. What channels read a second time is counted.\n\n"
        "| block | norms | pass | launches but for products | MB moved | arrays of the input's size |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
    )
    text = told + "\n".join(counted()) + "\n"
    text += f"\nTwo pointwise functions with a kernel of `torch.library.triton_op` between them: {between()} kernels.\n"
    print(text)
    if "--write" in sys.argv:
        Path(__file__).parent.joinpath("results", "inductor-blocks.md").write_text(text)


if __name__ == "__main__":
    main()
