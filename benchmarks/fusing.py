"""Fuse twelve models of transformers, as wide as published and one layer deep: time before and after, turns about.

python benchmarks/fusing.py --page benchmarks/results/fusing.md

In bfloat16, as such models are trained; with --dtype float32 matrix products on a CPU leave less to be gained.
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
from normkit.surgery.flow import tensors_in
from normkit.surgery.proof import called, difference

ROUNDS = 5
WORDS, TOKENS, PIXELS = 512, (1, 128), 224
GOAL = 1.1  # times as fast in training, where norms are RMS norms
COMMON = {"num_hidden_layers": 1, "vocab_size": WORDS, "max_position_embeddings": 512}


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


def example(family: str, device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Draw an input."""
    if family in ("ViT", "ConvNext"):
        return {"pixel_values": torch.randn(1, 3, PIXELS, PIXELS).to(device=device, dtype=dtype)}
    tokens = torch.randint(WORDS, TOKENS, device=device)
    return {"input_ids": tokens, "decoder_input_ids": tokens} if family == "T5" else {"input_ids": tokens}


def now(device: str) -> float:
    """The time when everything is done that was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def raced(models: list[nn.Module], run: Callable[[nn.Module], object], device: str) -> tuple[float, float, float]:
    """The median seconds of a call of each, turns about, and the median of how many times as fast the second is."""
    times: list[list[float]] = [[], []]
    for turn in range(ROUNDS + 1):
        for model, seen in zip(models, times, strict=True):
            start = now(device)
            run(model)
            if turn:
                seen.append(now(device) - start)
    ratio = statistics.median(old / new for old, new in zip(*times, strict=True))
    return statistics.median(times[0]), statistics.median(times[1]), ratio


def step(model: nn.Module, given: dict[str, Tensor]) -> None:
    """A forward and a backward pass."""
    model.zero_grad()
    next(tensors_in(model(**given))).sum().backward()


def measured(family: str, training: bool, device: str, dtype: torch.dtype) -> tuple[list[str], float]:
    """Fuse one model: what became of its norms, how far results are apart, times, and how many times as fast."""
    before, given = made(family, device, dtype).train(training), example(family, device, dtype)
    report = nk.fuse(copy.deepcopy(before), given, training=training)
    apart = difference(called(before.eval(), given), called(report.model.eval(), given))
    pair = [before.train(training), report.model.train(training)]
    run = functools.partial(step, given=given) if training else functools.partial(called, example=given)
    old, new, ratio = raced(pair, run, device)
    kinds = [sum(word in (change.became or "") for change in report) for word in ("addition", "turn")]
    what = f"{len(report.done)} of {len(report)}, {kinds[0]} + {kinds[1]}"
    return [what, f"{apart:.0e}", f"{1e3 * old:.1f}", f"{1e3 * new:.1f}", f"{ratio:.2f}"], ratio


def main() -> None:
    """Print a line a family, and which are below what is wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--page", help="write the table here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    where = {"machine": machine.machine()}
    lines = [
        machine.headline(where),
        "",
        f"One layer as wide as that of the model named, {TOKENS[0]} x {TOKENS[1]} tokens of {WORDS} (images: 1 of "
        f"{PIXELS} x {PIXELS}), {options.dtype} on {options.device}, medians of {ROUNDS} turns about, ms. Fused: norms "
        "of all, and of them with the addition before + the rotary turn behind; 0 where the whole was slower.",
        "",
        "| model | widths | fused, forward | difference | before | after | times as fast "
        "| fused, training | difference | before | after | times as fast |",
        "|" + " --- |" * 12,
    ]
    print("\n".join(lines))
    missed = []
    for family in [name for name in FAMILIES if options.only in name]:
        cells = [family, FAMILIES[family][0]]
        for training in (False, True):
            told, ratio = measured(family, training, options.device, getattr(torch, options.dtype))
            cells += told
            least = GOAL if training and family in RMS else 1.0
            if round(ratio, 2) < least:
                missed.append(f"{family} in {'training' if training else 'a forward pass'}: {ratio:.2f}, not {least:g}")
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    lines += [f"\n{line}" for line in machine.busy(where["machine"])]
    lines += ["", "Missed: " + ("; ".join(missed) or "nothing") + "."]
    print("\n".join(lines[-2:]))
    if options.page:
        Path(options.page).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
