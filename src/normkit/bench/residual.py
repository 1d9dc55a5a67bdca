"""Train whole decoders side by side: what a placement costs where it is used, and what other libraries take for it.

A step is what a training loop does: logits, cross-entropy, backward pass, AdamW. The decoders are GPT-2's and Llama's
at the width of GPT-2 small and four layers, from normkit with several placements, and from transformers and
x-transformers with the same parts; all run in one process, in turn. Beside mhc races the same decoder with mhc in plain
PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.bench import cases, report, timing
from normkit.bench._plain_mhc import plain
from normkit.bench.timing import Entrant
from normkit.residual.stream import wiring_of
from normkit.transformer.presets import preset

TAKES = ("names", "sizes", "dtypes", "forward")
SIZES = ((4, 512, 768),)  # the width of GPT-2 small
DEPTH, HEAD_DIM = 4, 64
YARDSTICK = "pre-norm"
PLAIN = "mhc"  # the placement that races in plain PyTorch too
PLACEMENTS = (YARDSTICK, "peri-norm", PLAIN)

COLUMNS: dict[str, Callable[[Any], str]] = {
    "decoder": lambda row: row["decoder"],
    "size": lambda row: row["size"],
    "type": lambda row: row["dtype"],
    "of": lambda row: row["entrant"],
    "parameters": lambda row: f"{row['parameters']:,}",
    "step": lambda row: report.duration(row["seconds"]),
    "tokens/s": lambda row: f"{row['tokens_per_second']:.0f}",
    "memory": lambda row: f"{row['kept'] / 2**20:.0f} MiB" if row["kept"] else "",
    "over pre-norm": lambda row: f"{row['relative']:.3f}",
}
LEGEND = {
    "size": "batch, length, width; four layers",
    "step": "median time of forward pass, cross-entropy, backward pass and AdamW; with --forward, of the logits alone",
    "memory": "what the forward pass keeps for the backward pass, without the parameters; nothing with --forward",
    "over pre-norm": "its time over that of normkit's pre-norm decoder, above 1 where it is slower",
}


@dataclass(frozen=True)
class Size:
    """How large a decoder is, and how much it reads in a step."""

    batch: int
    length: int
    dim: int
    vocab: int

    @property
    def heads(self) -> int:
        """Heads of 64 features, as GPT-2 has."""
        return max(1, self.dim // HEAD_DIM)

    @property
    def gated(self) -> int:
        """Hidden features of a gated feedforward, which has three matrices, for the parameters of one with two."""
        return 8 * self.dim // 3

    def __str__(self) -> str:
        """Write it as ``--sizes`` does."""
        return f"{self.batch}x{self.length}x{self.dim}"


HIDDEN: dict[str, Callable[[Size], int]] = {"gpt2": lambda size: 4 * size.dim, "llama": lambda size: size.gated}


def measure(options: argparse.Namespace, clock: timing.Clock) -> dict[str, Any]:
    """Race the decoders of every size and type, telling on stderr how far they are."""
    sizes = [
        read_size(size, cases.VOCAB if options.vocab is None else options.vocab)
        for size in (cases.sizes(options.sizes) if options.sizes else SIZES)
    ]
    placements = dict.fromkeys((YARDSTICK, *(options.names or PLACEMENTS)))
    for name in placements:
        wiring_of("bench", name)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        for dtype in cases.dtypes(options.dtypes or "float32"):
            for decoder in PEERS:
                print(f"training {decoder} {size} {dtype}", file=sys.stderr)
                rows += race(decoder, size, dtype, list(placements), options.forward, options.repeats, clock)
    return {"rows": rows, "failed": {}}


def read_size(size: tuple[int, ...], vocab: int) -> Size:
    """Read batch, length and width."""
    if len(size) != 3:
        raise ValueError(f"--sizes: a decoder's size is batch x length x width, such as 4x512x768, not {size}")
    if vocab < 2:
        raise ValueError(f"--vocab must be at least 2, not {vocab}")
    return Size(*size, vocab)


def race(
    decoder: str, size: Size, dtype: str, placements: list[str], forward: bool, repeats: int, clock: timing.Clock
) -> list[dict[str, Any]]:
    """Hold one race, and return a row for each model that ran."""
    models, absent = line_up(decoder, size, placements)
    tokens = torch.randint(size.vocab, (size.batch, size.length + 1), generator=torch.Generator().manual_seed(0))
    calls = {name: Entrant(step(model, tokens, dtype, forward)) for name, model in models.items()}
    times = timing.race(calls, repeats, clock)
    held = {name: 0 if forward else activation_bytes(model, tokens, dtype) for name, model in models.items()}
    first = times[f"normkit {YARDSTICK}"].median
    return [
        {
            "decoder": decoder,
            "entrant": name,
            "size": str(size),
            "vocab": size.vocab,
            "dtype": dtype,
            "pass": "forward" if forward else "training",
            "parameters": sum(p.numel() for p in models[name].parameters()),
            "seconds": time.median,
            "low": time.low,
            "high": time.high,
            "rounds": time.rounds,
            "tokens_per_second": size.batch * size.length / time.median,
            "relative": time.median / first,
            "kept": held[name],
            "absent": absent,
        }
        for name, time in times.items()
    ]


def line_up(decoder: str, size: Size, placements: list[str]) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Return the models, and why the others are not there."""
    torch.manual_seed(0)
    models: dict[str, nn.Module] = {f"normkit {name}": own(decoder, size, name) for name in placements}
    if PLAIN in placements:
        models[f"plain {PLAIN}"] = plain(own(decoder, size, PLAIN))
    absent = {}
    for library, build in PEERS[decoder].items():
        if importlib.util.find_spec(library.replace("-", "_")) is None:
            absent[library] = "it is not installed; pip install -c constraints.txt '.[bench]' brings it"
        else:
            models[library] = build(size)
    return models, absent


def step(model: nn.Module, tokens: Tensor, dtype: str, forward: bool) -> Callable[[], object]:
    """Return the call to time: the logits, or a whole step of training."""
    model.to(cases.DTYPES[dtype][1]).train(not forward)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    project = getattr(model, "normalize_weights", lambda: None)  # part of a step of nGPT

    def train() -> Tensor:
        loss = loss_of(model, tokens, dtype)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        project()
        return loss.detach()

    return torch.no_grad()(lambda: logits_of(model, tokens, dtype)) if forward else train


def logits_of(model: nn.Module, tokens: Tensor, dtype: str) -> Tensor:
    """Predict each token but the first."""
    type_of, kept = cases.DTYPES[dtype]
    with torch.autocast("cpu", type_of, enabled=type_of != kept):
        output = model(tokens[:, :-1])
    return getattr(output, "logits", output)


def loss_of(model: nn.Module, tokens: Tensor, dtype: str) -> Tensor:
    """Cross-entropy of all but the first token."""
    return F.cross_entropy(logits_of(model, tokens, dtype).flatten(0, 1), tokens[:, 1:].flatten())


def activation_bytes(model: nn.Module, tokens: Tensor, dtype: str) -> int:
    """Count the bytes that the forward pass keeps for the backward pass; each storage once, parameters not."""
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    held: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = loss_of(model, tokens, dtype)  # while it lives no storage is used again
    total = sum(size for at, size in held.items() if at not in own)
    del loss
    return total


def own(decoder: str, size: Size, placement: str) -> nn.Module:
    """Build the preset at that size; matrices start as torch's linears or the placement want it."""
    shape = {"vocab": size.vocab, "length": size.length, "dim": size.dim, "depth": DEPTH, "heads": size.heads}
    return preset(decoder, **shape, hidden=HIDDEN[decoder](size), placement=placement, tied=True, std=None)


def of_transformers(size: Size, family: str, names: dict[str, Any], **options: Any) -> nn.Module:
    """Build a model of transformers on torch's fused attention; ``names`` are the config's words for the size."""
    from normkit.optional import library

    transformers = library("transformers")
    marks = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    shared = {"vocab_size": size.vocab, "use_cache": False, "attn_implementation": "sdpa", "tie_word_embeddings": True}
    config = getattr(transformers, f"{family}Config")(**shared, **marks, **names, **options)
    return transformers.AutoModelForCausalLM.from_config(config)


def gpt2_of_transformers(size: Size) -> nn.Module:
    """GPT-2 without dropout."""
    names = {"n_positions": size.length, "n_embd": size.dim, "n_layer": DEPTH, "n_head": size.heads}
    return of_transformers(size, "GPT2", names, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def llama_of_transformers(size: Size) -> nn.Module:
    """Llama with tied embeddings."""
    names = {"max_position_embeddings": size.length, "hidden_size": size.dim, "num_hidden_layers": DEPTH}
    return of_transformers(size, "Llama", names, num_attention_heads=size.heads, intermediate_size=size.gated)


def of_x_transformers(size: Size, **options: Any) -> nn.Module:
    """Build a model of x-transformers on torch's fused attention; ``options`` are its layers'."""
    from x_transformers import Decoder, TransformerWrapper

    learned = not options.get("rotary_pos_emb", False)
    layers = Decoder(
        dim=size.dim, depth=DEPTH, heads=size.heads, attn_dim_head=size.dim // size.heads, attn_flash=True, **options
    )
    return TransformerWrapper(
        num_tokens=size.vocab, max_seq_len=size.length, attn_layers=layers, tie_embedding=True, use_abs_pos_emb=learned
    )


def gpt2_of_x_transformers(size: Size) -> nn.Module:
    """GPT-2 as far as x-transformers goes: projections of attention and norms have no shift."""
    return of_x_transformers(size, ff_custom_activation=nn.GELU(approximate="tanh"), verbose=False)


def llama_of_x_transformers(size: Size) -> nn.Module:
    """Llama; the gated matrix has a shift."""
    turned = {"rotary_pos_emb": True, "rotary_emb_dim": size.dim // size.heads}
    gated = {"ff_swish": True, "ff_glu": True, "ff_no_bias": True, "ff_mult": size.gated / size.dim}
    return of_x_transformers(size, use_rmsnorm=True, **turned, **gated)


PEERS: dict[str, dict[str, Callable[[Size], nn.Module]]] = {
    "gpt2": {"transformers": gpt2_of_transformers, "x-transformers": gpt2_of_x_transformers},
    "llama": {"transformers": llama_of_transformers, "x-transformers": llama_of_x_transformers},
}
