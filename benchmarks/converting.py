"""Convert pre-norm transformers, as wide as published: logits before and after, what became of norms, time.

python benchmarks/converting.py --page benchmarks/results/converting.md

Post-norm models, and those that have no layer norm, are handed in too: they must be refused, with the reason.
"""

from __future__ import annotations

import argparse
import copy
import functools
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import normkit as nk
from folding import stirred
from fusing import PIXELS, ROUNDS, WORDS, raced, wide
from normkit.bench import report as machine
from normkit.optional import library
from normkit.surgery.edits.changes import Report
from normkit.surgery.proof import call_model, difference

LAYERS, TOKENS = 2, 128
CLOSE = 1e-4  # how far logits may be apart, of the largest
TARGETS = ("pre-rmsnorm", "pre-crmsnorm")


def deep(hidden: int, inner: int, heads: int, **more: Any) -> dict[str, Any]:
    """The arguments that most families call by the same names."""
    return wide(hidden, inner, heads, **{"num_hidden_layers": LAYERS, "bos_token_id": 0, "eos_token_id": 0} | more)


# family -> of which model the widths are, the class that has logits, and the arguments; timm's by the name of a model
Families = dict[str, tuple[str, str, dict[str, Any]]]
LANGUAGE, MASKED, IMAGES = "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForImageClassification"
ASKED: Families = {
    "GPT2": (
        "124M",
        LANGUAGE,
        {"n_embd": 768, "n_layer": LAYERS, "n_head": 12, "vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0},
    ),
    "OPT": ("125M", LANGUAGE, deep(768, 3072, 12, ffn_dim=3072, word_embed_proj_dim=768, pad_token_id=1)),
    "ViT": ("base, patches of 16", IMAGES, {"num_hidden_layers": LAYERS}),
    "Bloom": (
        "560M",
        LANGUAGE,
        {"hidden_size": 1024, "n_head": 16, "n_layer": LAYERS, "vocab_size": WORDS, "bos_token_id": 0,
         "eos_token_id": 0},
    ),
    "GPTNeoX": ("Pythia 160M", LANGUAGE, deep(768, 3072, 12)),
    "vit_tiny_patch16_224": ("tiny", "timm", {"depth": LAYERS}),
}  # fmt: skip
MORE: Families = {
    "GPTNeo": (
        "125M",
        LANGUAGE,
        {"hidden_size": 768, "num_layers": LAYERS, "num_heads": 12, "attention_types": [[["global", "local"], 1]],
         "vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0},
    ),
    "CodeGen": (
        "350M",
        LANGUAGE,
        {"n_embd": 1024, "n_layer": LAYERS, "n_head": 16, "rotary_dim": 32, "vocab_size": WORDS, "bos_token_id": 0,
         "eos_token_id": 0},
    ),
    "Phi": ("1", LANGUAGE, deep(2048, 8192, 32)),
    "Falcon": ("RW 1B", LANGUAGE, deep(2048, 8192, 32, alibi=True, multi_query=False, parallel_attn=False, bias=True)),
    "deit3_small_patch16_224": ("small, layer scales", "timm", {"depth": LAYERS}),
}  # fmt: skip
REFUSED: Families = {
    "Bert": ("base", MASKED, deep(768, 3072, 12)),
    "Roberta": ("base", MASKED, deep(768, 3072, 12, max_position_embeddings=514, pad_token_id=1)),
    "OpenAIGPT": ("1", LANGUAGE, {"n_embd": 768, "n_layer": LAYERS, "n_head": 12, "vocab_size": WORDS}),
    "OPT, post-norm": (
        "350M",
        LANGUAGE,
        deep(1024, 4096, 16, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False, pad_token_id=1),
    ),
    "T5": (
        "small",
        "T5ForConditionalGeneration",
        {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_heads": 8, "num_layers": LAYERS, "vocab_size": WORDS},
    ),
}  # fmt: skip
FAMILIES = {**ASKED, **MORE, **REFUSED}


class Logits(nn.Module):
    """A model of transformers that returns its logits and nothing else."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **given: Tensor) -> Tensor:
        return self.model(**given, **({"use_cache": False} if "input_ids" in given else {})).logits


def made(family: str) -> nn.Module:
    """Build a model in evaluation whose norms are not at rest."""
    _, kind, arguments = FAMILIES[family]
    torch.manual_seed(0)
    if kind == "timm":
        return stirred(library("timm").create_model(family, **arguments))
    transformers = library("transformers")
    config = getattr(transformers, f"{family.partition(',')[0]}Config")(**arguments)
    builds = getattr(transformers, kind)
    return stirred(Logits(builds.from_config(config) if kind.startswith("Auto") else builds(config)))


def example(family: str) -> Any:
    """Draw an input."""
    kind = FAMILIES[family][1]
    if kind in (IMAGES, "timm"):
        image = torch.randn(1, 3, PIXELS, PIXELS)
        return image if kind == "timm" else {"pixel_values": image}
    tokens = torch.randint(2, WORDS, (1, TOKENS))
    return {"input_ids": tokens, "decoder_input_ids": tokens} if family == "T5" else {"input_ids": tokens}


def became(report: Report, to: str) -> str:
    """How many norms there were, and how many of them are what was asked for."""
    norms = [change for change in report if change.was.startswith("layernorm")]
    return f"{sum(change.became == to.removeprefix('pre-') for change in norms)} of {len(norms)}"


def row(family: str, to: str) -> tuple[list[str], str]:
    """Convert one model: the cells of its line, and what was missed."""
    before, given = made(family), example(family)
    wanted = call_model(before, given)
    told = [family, FAMILIES[family][0], to]
    try:
        report = nk.convert(copy.deepcopy(before), to, given)
    except ValueError as error:
        why = str(error).removeprefix("convert: ")
        return [*told, "", "", "", "", why], "" if family in REFUSED else f"{family} to {to} is refused"
    apart = difference(wanted, call_model(report.model, given))
    old, [[low, middle, high]] = raced([before, report.model], functools.partial(call_model, example=given), "cpu")
    numbers = [f"{apart:.0e}", f"{1e3 * old:.1f}", f"{middle:.2f} ({low:.2f}-{high:.2f})"]
    missed = f"{family} to {to} is not refused" if family in REFUSED else ""
    if apart > CLOSE:
        missed = f"{family} to {to} is {apart:.0e} off"
    return [*told, became(report, to), *numbers, ""], missed


def ending(ran: Collection[list[str]], missed: Collection[str], where: dict[str, Any]) -> list[str]:
    """What stands under the table: how much was run, on how busy a machine, and what was missed."""
    converted = [float(cells[4]) for cells in ran if cells[4]]
    what = f"{len(converted)} of {len(ran)} were converted"
    if converted:
        what += f", whose logits differ by {max(converted):.0e} of the largest at most"
    busy = [f"\n{line}" for line in machine.busy(where["machine"])]
    wanted = f"Missed, logits within {CLOSE:.0e} of the largest, and the last {len(REFUSED)} models refused"
    return [*busy, "", f"{what}. {wanted}: " + ("; ".join(missed) or "nothing") + "."]


def main() -> None:
    """Print a line for each family and target, and what was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="parts of names, between commas")
    parser.add_argument("--page", help="write the table here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    where = {"machine": machine.machine()}
    versions = ", ".join(f"{name} {library(name).__version__}" for name in ("transformers", "timm"))
    lines = [
        "# Layer norms of pre-norm transformers, converted",
        "",
        machine.headline(where),
        "",
        f"`python benchmarks/converting.py`, {versions}. {LAYERS} layers as wide as those of the model named, 1 x "
        f"{TOKENS} tokens of {WORDS} (images: 1 of {PIXELS} x {PIXELS}), float32, random weights, gains and shifts "
        "that are not at rest. Logits: the largest difference, of the largest number. Norms: how many became what was "
        f"asked for, of all layer norms. ms before, then how many times as fast: medians of at least {ROUNDS} turns "
        "about and their quartiles, processor time of one thread.",
        "",
        "| model | widths | to | norms | logits, relative | before | times as fast | refused |",
        "|" + " --- |" * 8,
    ]
    print("\n".join(lines))
    ran, missed = [], []
    for family in [name for name in FAMILIES if any(word in name for word in options.only.split(","))]:
        for to in TARGETS:
            cells, miss = row(family, to)
            ran.append(cells)
            missed += [miss] if miss else []
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
            if options.page:  # after each, so that a run that is broken off leaves what it measured
                Path(options.page).write_text("\n".join([*lines, *ending(ran, missed, where)]) + "\n")
    print("\n".join(ending(ran, missed, where)))


if __name__ == "__main__":
    main()
