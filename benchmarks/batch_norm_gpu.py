"""Batch norm on a GPU: the kernels' time beside torch's by format and size, and training steps of a ResNet-50.

python benchmarks/batch_norm_gpu.py --page benchmarks/results/h100-batch-norm.md

Times of kernels are those of a CUDA graph, so that calls from Python take none. A step has them: forward, backward, in
bfloat16 by autocast, channels last. `FEW` and `FEW_LAST` of `normkit/ops/channel.py` are read off both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import normkit as nk
from normkit.ops import channel
from normkit.optional import let_torchvision_load

SHAPES = ((128, 256, 56), (128, 64, 112), (128, 512, 28), (128, 64, 56), (128, 1024, 14), (32, 256, 56), (128, 128, 28))
FORMATS = {"first": torch.contiguous_format, "last": torch.channels_last}
STEPS = ((16, 32), (32, 224), (128, 224), (384, 224))  # samples, pixels
ALL, NONE = 2**60, 0


def take(few: int) -> None:
    """Let torch's own take all inputs that are smaller."""
    channel.FEW = channel.FEW_LAST = few


def replayed(run: Callable[[], object], repeats: int = 20) -> float:
    """The median microseconds of a CUDA graph of a call."""
    beside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(beside):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = []
    for _ in range(repeats):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def kernels(shape: tuple[int, int, int], order: str) -> str:
    """A line of the first table."""
    samples, channels, side = shape
    x = torch.randn(samples, channels, side, side, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=FORMATS[order]).requires_grad_()
    grad, cells = torch.randn_like(x), []
    for few in (ALL, NONE):
        take(few)
        norm = nk.BatchNorm(channels).cuda()
        leaves = [x, *norm.parameters()]
        cells.append(replayed(lambda norm=norm: norm(x)))
        cells.append(replayed(lambda norm=norm, leaves=leaves: torch.autograd.grad(norm(x), leaves, grad)))
    size = f"{samples}x{channels}x{side}x{side} | {x.numel() / 2**20:.0f} M | {order}"
    return f"| {size} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |"


def resnet() -> nn.Module:
    """A ResNet-50 with random weights."""
    let_torchvision_load()
    import timm

    torch.manual_seed(0)
    return timm.create_model("resnet50", num_classes=10).cuda().to(memory_format=torch.channels_last)


def with_ours(module: nn.Module) -> nn.Module:
    """Put our batch norm where torch's is, and the activation of timm's behind it."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            ours, act = nk.BatchNorm(child.num_features).cuda(), getattr(child, "act", None)
            setattr(module, name, nn.Sequential(ours, act) if isinstance(act, nn.ReLU) else ours)
        else:
            with_ours(child)
    return module


def step(model: nn.Module, x: Tensor) -> None:
    """A forward and a backward pass."""
    model.zero_grad(set_to_none=True)
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()


def stepped(models: dict[str, nn.Module], sizes: tuple[int, int], rounds: int = 20) -> str:
    """A line of the second table: the median milliseconds of steps, turn about."""
    samples, pixels = sizes
    x = torch.randn(samples, 3, pixels, pixels, device="cuda").to(memory_format=torch.channels_last)
    few = channel.FEW, channel.FEW_LAST
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(rounds + 5):
        for name, model in models.items():
            channel.FEW, channel.FEW_LAST = (NONE, NONE) if name == "kernels alone" else few
            torch.cuda.synchronize()
            begun = time.perf_counter()
            step(model, x)
            torch.cuda.synchronize()
            if turn >= 5:
                times[name].append(1e3 * (time.perf_counter() - begun))
    channel.FEW, channel.FEW_LAST = few
    return f"| {samples} x {pixels} | " + " | ".join(f"{statistics.median(t):.1f}" for t in times.values()) + " |"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", help="write them here")
    options = parser.parse_args()
    lines = [
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, normkit {nk.__version__}, bfloat16",
        "",
        "| step of a ResNet-50, samples x pixels | torch's, ms | normkit's, ms | its kernels alone, ms |",
        "| --- | --- | --- | --- |",
    ]
    ours = with_ours(resnet())
    models = {"torch": resnet(), "normkit": ours, "kernels alone": ours}
    lines += [stepped(models, sizes) for sizes in STEPS]
    columns = "torch forward, µs | with backward | kernels forward, µs | with backward"
    lines += ["", f"| size | entries | channels | {columns} |", "|" + " --- |" * 7]
    few = channel.FEW, channel.FEW_LAST
    lines += [kernels(shape, order) for shape in SHAPES for order in FORMATS]
    channel.FEW, channel.FEW_LAST = few
    print("\n".join(lines))
    if options.page:
        Path(options.page).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
