"""What an offset does to layer norm: ``python benchmarks/gpu_offset.py``, on the interpreter, where Liger is installed.

Rows of random numbers in float32, plain and about 1e4: the largest error of normkit's kernel and of Liger's, against
float64. Liger's source is read from its package; its root, which the interpreter lacks, is 1 / sqrt here.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported, so that Liger's kernel is interpreted too

import torch
import triton
from torch.nn import functional

from normkit import ops
from normkit.ops import paths

HEAD = """import triton
import triton.language as tl

@triton.jit
def rsqrt(x):
    return 1.0 / tl.sqrt(x)

"""


def liger():
    """Liger's kernel of the forward pass."""
    spec = importlib.util.find_spec("liger_kernel")
    if spec is None or spec.origin is None:
        raise SystemExit("Liger is not installed: pip install liger-kernel")
    source = (Path(spec.origin).parent / "ops" / "layer_norm.py").read_text()
    begin = source.index("@triton.jit\ndef _layer_norm_forward_kernel")
    kernel = source[begin : source.index("@triton.jit", begin + 1)].replace("eps.to(tl.float32)", "eps")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "liger_layer_norm.py"
        file.write_text(HEAD + kernel)
        spec = importlib.util.spec_from_file_location("liger_layer_norm", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found = module._layer_norm_forward_kernel
        found.rewrite()
    return found


def main() -> None:
    """Print the errors, a line for each width and offset."""
    theirs, generator = liger(), torch.Generator().manual_seed(0)
    print("| width | offset | normkit | Liger |\n| --- | --- | --- | --- |")
    for width in (1000, 4096):
        gain, shift = torch.ones(width), torch.zeros(width)
        for offset in (0.0, 1e4):
            x = torch.randn(8, width, generator=generator) + offset
            y, mean, rstd = torch.empty_like(x), torch.empty(8), torch.empty(8)
            block = triton.next_power_of_2(width)
            theirs[(8,)](
                y, width, x, width, gain, 1, shift, 1, mean, 1, rstd, 1, width, 1e-5, BLOCK_SIZE=block
            )  # fmt: skip
            wanted = functional.layer_norm(x.double(), (width,), eps=1e-5)
            with paths.interpreted():
                ours = ops.layer_norm(x, (width,), gain, shift, eps=1e-5)
            errors = " | ".join(f"{(found - wanted).abs().max().item():.0e}" for found in (ours, y))
            print(f"| {width} | {offset:g} | {errors} |")


if __name__ == "__main__":
    main()
