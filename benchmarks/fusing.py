"""Fuse twelve models of transformers, as wide as published and one layer deep: what it gains, what it could gain.

python benchmarks/fusing.py --page benchmarks/results/fusing.md

What it could gain is told by the same model with every norm an identity. In bfloat16, as such models are trained, where
the machine is not slower at products of such matrices than in float32. 128 tokens, so that the table takes minutes;
norms and products both take time in proportion to tokens: --tokens 1x512 asks what becomes of it.
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normkit as nk
from normkit.bench import report as machine
from normkit.optional import library
from normkit.surgery.edits.changes import Report
from normkit.surgery.exact.racing import MOST as MOST_TURNS
from normkit.surgery.exact.racing import SECONDS as LIMIT
from normkit.surgery.flow import tensors_in
from normkit.surgery.proof import call_model, difference

ROUNDS, MOST, SECONDS = 7, 49, 3.0  # turns about: at least, at most, and for how long
WORDS, LONGEST, PIXELS = 512, 512, 224
GOAL = 1.1  # times as fast in training, where norms are RMS norms
COMMON = {"num_hidden_layers": 1, "vocab_size": WORDS, "max_position_embeddings": LONGEST}


def wide(hidden: int, inner: int, heads: int, **more: Any) -> dict[str, Any]:
    """The arguments that most families call by the same names."""
    return {**COMMON, "hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, **more}


# family -> of which model the widths are, and the arguments; those whose norms are RMS norms first
RMS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("SmolLM2-135M", wide(576, 1536, 9, num_key_value_heads=3)),
    "Qwen3": ("0.6B", wide(1024, 3072, 16, num_key_value_heads=8, head_dim=128)),
    "Gemma2": ("2B", wide(2304, 9216, 8, num_key_value_heads=4, head_dim=256)),
    "Gemma3Text": ("270M", wide(640, 2048, 4, num_key_value_heads=1, head_dim=256)),
    "T5": ("small", {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "num_layers": 1, "vocab_size": WORDS}),
    "Mamba2": (
        "130M",
        {"hidden_size": 768, "num_heads": 24, "head_dim": 64, "state_size": 128, "n_groups": 1, "num_hidden_layers": 1,
         "vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0},
    ),
    "Olmo2": ("1B", wide(2048, 8192, 16)),
    "DeepseekV3": (
        "V2-Lite, 8 experts",
        wide(2048, 10944, 16, num_key_value_heads=16, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64,
             v_head_dim=128, qk_nope_head_dim=128, n_routed_experts=8, num_experts_per_tok=2, n_group=1, topk_group=1,
             moe_intermediate_size=1408, first_k_dense_replace=0),
    ),
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": (
        "124M", {"n_embd": 768, "n_layer": 1, "n_head": 12, "vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0}
    ),
    "Bert": ("base", wide(768, 3072, 12)),
    "ViT": ("base, patches of 16", {"num_hidden_layers": 1}),
    "ConvNext": ("tiny", {"depths": [1, 1, 1, 1]}),
}  # fmt: skip
FAMILIES = {**RMS, **OTHERS}


def made(family: str, device: str, dtype: torch.dtype) -> nn.Module:
    """Build a model from its configuration."""
    transformers = library("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family][1])
    return getattr(transformers, f"{family}Model")(config).to(device=device, dtype=dtype)


def example(family: str, size: tuple[int, int], device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Draw an input."""
    if family in ("ViT", "ConvNext"):
        return {"pixel_values": torch.randn(1, 3, PIXELS, PIXELS).to(device=device, dtype=dtype)}
    tokens = torch.randint(WORDS, size, device=device)
    return {"input_ids": tokens, "decoder_input_ids": tokens} if family == "T5" else {"input_ids": tokens}


def now(device: str) -> float:
    """The time when everything is done that was asked for: on a CPU the processor's, which other work takes none of."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def product(device: str, dtype: torch.dtype) -> float:
    """The median seconds of a product of matrices."""
    x, weight = (torch.randn(size, 1024, device=device).to(dtype) for size in (128, 1024))
    times = []
    for _ in range(ROUNDS):
        start = now(device)
        x @ weight
        times.append(now(device) - start)
    return statistics.median(times)


def picked(device: str) -> tuple[str, str]:
    """The type to measure in, and why."""
    half, single = (product(device, dtype) for dtype in (torch.bfloat16, torch.float32))
    took = f"{1e3 * half:.3g} ms, and {1e3 * single:.3g} ms in float32"
    if half > single:
        return "float32", f"In float32, as a product of 128 x 1024 and 1024 x 1024 in bfloat16 takes {took}."
    return "bfloat16", f"In bfloat16, in which a product of 128 x 1024 and 1024 x 1024 takes {took}."


def raced(models: list[nn.Module], run: Callable[[nn.Module], object], device: str) -> tuple[float, list[list[float]]]:
    """The median seconds of a call of the first, and how many times as fast each other is: quartiles of turns about."""
    times: list[list[float]] = [[] for _ in models]
    begun = now(device)
    while len(times[0]) <= ROUNDS or (len(times[0]) <= MOST and now(device) - begun < SECONDS):
        order = list(zip(models, times, strict=True))
        for model, seen in order if len(times[0]) % 2 else reversed(order):
            start = now(device)
            run(model)
            seen.append(now(device) - start)
    first, *others = (seen[1:] for seen in times)
    ratios = [statistics.quantiles(old / new for old, new in zip(first, seen, strict=True)) for seen in others]
    return statistics.median(first), ratios


def step(model: nn.Module, given: dict[str, Tensor]) -> None:
    """A forward and a backward pass."""
    model.zero_grad()
    next(tensors_in(model(**given))).sum().backward()


def twin(model: nn.Module) -> nn.Module:
    """A copy that holds the same parameters, as copies may differ in speed by where they lie in memory."""
    return copy.deepcopy(model, {id(p): p for p in model.parameters()})


def without(model: nn.Module, report: Report) -> nn.Module:
    """A copy in which every norm hands on what it is given, and embeddings are as large as a norm would make them.

    As they are drawn they are small, and of small numbers the scan of Mamba 2 takes less time.
    """
    free = twin(model)
    for part in free.modules():
        if isinstance(part, nn.Embedding):
            size = part.weight.detach().float().square().mean().sqrt()
            part.weight = nn.Parameter((part.weight.detach() / size).to(part.weight))
    for change in report:
        if not (change.why_not or "").startswith("not recognized"):
            free.get_submodule(change.site).forward = lambda x, *others, **named: x
    return free


def measured(
    family: str, training: bool, size: tuple[int, int], device: str, dtype: torch.dtype
) -> tuple[list[str], list[list[float]]]:
    """Fuse one model: what became of its norms, how far results are apart, time, and what is and could be gained."""
    before, given = made(family, device, dtype).train(training), example(family, size, device, dtype)
    report = nk.fuse(twin(before), given, training=training)
    apart = difference(call_model(before.eval(), given), call_model(report.model.eval(), given))
    rivals = [model.train(training) for model in (before, report.model, without(before, report))]
    run = functools.partial(step, given=given) if training else functools.partial(call_model, example=given)
    old, ratios = raced(rivals, run, device)
    kinds = [sum(word in (change.became or "") for change in report) for word in ("addition", "turn")]
    what = f"{len(report.done)} of {len(report)}, {kinds[0]} + {kinds[1]}"
    gains = [f"{middle:.2f} ({low:.2f}-{high:.2f})" for low, middle, high in ratios]
    return [what, f"{apart:.0e}", f"{1e3 * old:.1f}", *gains], ratios


def ending(ran: int, missed: list[str], where: dict[str, Any]) -> list[str]:
    """What stands under the table: how much was run, on how busy a machine, and what was missed."""
    what = f"Missed, the upper quartile below both {GOAL:g} (a forward pass, and other norms: 1) and norms free"
    busy = [f"\n{line}" for line in machine.busy(where["machine"])]
    return [*busy, "", f"{ran} of {len(FAMILIES)} models were run. {what}: " + ("; ".join(missed) or "nothing") + "."]


def main() -> None:
    """Print a line a family, and which are below what is wanted and what could be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="parts of names, between commas")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="the faster at products, if not given")
    parser.add_argument("--tokens", default="1x128", help=f"texts x tokens, at most {LONGEST} of these")
    parser.add_argument("--page", help="write the table here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    texts, tokens = map(int, options.tokens.split("x"))
    if tokens > LONGEST:
        parser.error(f"--tokens: {tokens} are more than {LONGEST}, for which the models have positions")
    dtype, why = (options.dtype, f"In {options.dtype}.") if options.dtype else picked(options.device)
    where = {"machine": machine.machine()}
    clock = "processor time of one thread" if options.device == "cpu" else "wall time"
    lines = [
        machine.headline(where),
        "",
        f"One layer as wide as that of the model named, {texts} x {tokens} tokens of {WORDS} (images: 1 of {PIXELS} x "
        f"{PIXELS}), on {options.device}. {why} ms before, then how many times as fast: medians of at least {ROUNDS} "
        f"turns about and their quartiles, {clock}. "
        "Fused: norms of all, and of them with the addition before + the rotary turn behind; 0 where the whole was "
        f"not found to be faster in {MOST_TURNS} turns or {LIMIT:g} seconds, nor with norms alone. Norms free: the "
        "model with every norm an identity and embeddings of size 1, as a norm would make them, which is what "
        "fusing norms could gain at most; turns and additions, which go into norms, are not free there.",
        "",
        "| model | widths | fused, forward | difference | before | times as fast | norms free "
        "| fused, training | difference | before | times as fast | norms free |",
        "|" + " --- |" * 12,
    ]
    print("\n".join(lines))
    missed = []
    names = [name for name in FAMILIES if any(word in name for word in options.only.split(","))]
    for ran, family in enumerate(names, 1):
        cells = [family, FAMILIES[family][0]]
        for training in (False, True):
            told, ratios = measured(family, training, (texts, tokens), options.device, getattr(torch, dtype))
            cells += told
            (_, gained, high), (_, free, _) = ratios
            wanted = GOAL if training and family in RMS else 1.0
            if high < min(wanted, free):
                passes = "training" if training else "a forward pass"
                missed.append(f"{family} in {passes}: {gained:.2f}, wanted {wanted:g}, could be {free:.2f}")
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
        if options.page:  # after each, so that a run that is broken off leaves what it measured
            Path(options.page).write_text("\n".join([*lines, *ending(ran, missed, where)]) + "\n")
    print("\n".join(ending(len(names), missed, where)))


if __name__ == "__main__":
    main()
