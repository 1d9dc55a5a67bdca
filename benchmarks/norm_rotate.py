"""Time the norm and the turn of queries and keys in one pass, apart, and as transformers' Qwen3 does them.

``python benchmarks/norm_rotate.py`` prints the table and writes it to results/norm-rotate.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from normkit import ops
from normkit.bench import report, timing
from normkit.bench.timing import Entrant
from normkit.ops.rope import norm_rotate, rotate, turns
from normkit.optional import library

SHAPES = ((4, 12, 512, 64), (1, 16, 1024, 64))  # samples, heads, tokens, features
RULE = ops.Row(eps=1e-6)
RESULTS = Path(__file__).parent / "results" / "norm-rotate.md"
HEAD = ("shape", "type", "pass", "one pass", "apart", "transformers", "apart / one", "transformers / one")
Pair = tuple[Tensor, Tensor]


def contenders(length: int, dim: int, dtype: torch.dtype) -> dict[str, tuple[Callable[[Tensor, Tensor], Pair], list]]:
    """What is raced, each a function of queries and keys, and the parameters that it learns."""
    library("transformers")
    qwen = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    gains = [torch.nn.Parameter(torch.ones(dim)) for _ in range(2)]
    norms = [qwen.Qwen3RMSNorm(dim).to(dtype) for _ in range(2)]
    angles = turns(torch.arange(length), dim)
    cos, sin = (torch.cat([a, a], -1)[None].to(dtype) for a in angles)

    def one(*pair: Tensor) -> Pair:
        q, k = (norm_rotate(x, w, None, angles, rule=RULE) for x, w in zip(pair, gains, strict=True))
        return q, k

    def apart(*pair: Tensor) -> Pair:
        q, k = (rotate(ops.row_norm(x, w, None, RULE), angles) for x, w in zip(pair, gains, strict=True))
        return q, k

    def theirs(q: Tensor, k: Tensor) -> Pair:
        return qwen.apply_rotary_pos_emb(norms[0](q), norms[1](k), cos, sin)

    return {
        "one pass": (one, gains),
        "apart": (apart, gains),
        "transformers": (theirs, [norm.weight for norm in norms]),
    }


def race(shape: tuple[int, ...], dtype: torch.dtype, training: bool) -> list[float]:
    """The median seconds of each, in the order of :func:`contenders`."""
    samples, heads, length, dim = shape
    drawn = [torch.randn(samples, length, heads, dim).to(dtype).transpose(1, 2) for _ in range(4)]
    pair, sent = [x.requires_grad_(training) for x in drawn[:2]], drawn[2:]

    def call(turned: Callable[..., Pair], learned: list) -> Callable[[], object]:
        if not training:
            return torch.no_grad()(lambda: turned(*pair))
        return lambda: torch.autograd.grad(turned(*pair), [*pair, *learned], sent)

    entrants = {name: Entrant(call(*what), nullcontext) for name, what in contenders(length, dim, dtype).items()}
    return [time.median for time in timing.race(entrants, repeats=25).values()]


def rows() -> list[tuple[str, ...]]:
    """The table, without its head."""
    found = []
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            for training in (False, True):
                seconds = race(shape, dtype, training)
                about = ("x".join(map(str, shape)), str(dtype)[6:], "training" if training else "forward")
                times = [report.duration(s) for s in seconds]
                found.append((*about, *times, *(f"{s / seconds[0]:.2f}" for s in seconds[1:])))
    return found


if __name__ == "__main__":
    where = {"machine": report.machine()}
    lines = [HEAD, ("---",) * len(HEAD), *rows()]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "".join(f"\n\n{line}" for line in report.busy(where["machine"]))
    RESULTS.write_text(f"{report.headline(where)}\n\n{table}{notes}\n")
    print(RESULTS.read_text())
