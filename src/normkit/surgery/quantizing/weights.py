"""Weights of linears in few bits: rounded, their rounding learned, and norms tweaked behind it."""

from __future__ import annotations

import copy
import functools
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from normkit import check
from normkit.columns import number_of
from normkit.optional import library
from normkit.parameters import holders, mode, remove_after, require_whole, tensors_in
from normkit.quant.learned_rounding import LearnedRounding
from normkit.quant.norm_tweaking_loss import NormTweakingLoss
from normkit.quant.reconstruction_loss import ReconstructionLoss
from normkit.quant.rounding_regularizer import RoundingRegularizer
from normkit.statistics import accurate
from normkit.surgery import proof
from normkit.surgery.edits import Edit, all_places, edits_in, guard, inside
from normkit.surgery.edits import bits as few
from normkit.surgery.edits.edit import note, put
from normkit.surgery.edits.layers import as_linear
from normkit.surgery.quantizing.allocating import allocate, describe, mean_bits
from normkit.surgery.quantizing.tuning import tune
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.recognition.specimen import first
from normkit.surgery.statistics.batch_statistics import feed, field_of, scores_of
from normkit.where import Where, require_known, selects

__all__ = ["perplexity", "quantize"]

KEEPING = {  # what says something of a weight, or gives the same in another type, which torchao has as well
    *("shape", "dtype", "device", "requires_grad", "grad", "ndim", "is_cuda", "is_meta", "layout", "is_sparse", "size"),
    *("dim", "numel", "stride", "is_floating_point", "is_contiguous", "to", "type_as", "float", "detach", "clone"),
}
PACKED_GROUPS, PACKED_ROWS = (32, 64, 128), 16  # what torchao's kernel takes on a CPU
METHODS = (
    "nearest",
    "learned-rounding",
    "norm-tweaking",
    "learned-rounding+norm-tweaking",
    "adaquant",
    "adaquant+norm-tweaking",
)
LEARNED = ("learned-rounding", "adaquant")  # those that take steps
AUTO = "auto"
NOTABLE = 0.05  # the share of all numbers above which a class of modules that are no linears is noted


@dataclass(frozen=True)
class Quantized:
    """What :func:`quantize` made: the model, its layers, and what was measured before and after.

    ``notes`` tell of linears that were left, or on which nothing was learned, and of modules with many weights that are
    no linear's, such as experts. ``bytes`` are those that parameters and buffers take; ``packed`` what they would take
    if every number of a quantized weight took its bits alone; ``perplexity`` is on the held-out data, if there were
    any; ``tweaked`` the loss of each block as its norms were trained, of the first and of the last quarter; ``bits``
    those of each linear.
    """

    model: nn.Module
    layers: list[str]
    notes: dict[str, str]
    bytes: tuple[int, int]
    packed: int
    seconds: float
    perplexity: tuple[float, float] | None = None
    tweaked: dict[str, tuple[float, float]] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)

    @property
    def edits(self) -> list[Edit]:
        """What was done to the model so far, as values."""
        return edits_in(self.model)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the model."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "model"}

    def __str__(self) -> str:
        linears, (before, after) = number_of(len(self.layers), "linear"), self.bytes
        lines = [f"{linears} quantized in {self.seconds:.1f} s; bytes {before} to {after}"]
        lines[0] += f", {self.packed} if packed"
        if len(set(self.bits.values())) > 1:
            sizes = {name: self.model.get_parameter(f"{name}.weight").numel() for name in self.bits}
            lines.append(describe(self.bits, sizes))
        if self.perplexity is not None:
            lines.append("perplexity {:.4g} to {:.4g}".format(*self.perplexity))
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.notes.items())])


@torch.inference_mode(False)
def quantize(
    model: nn.Module,
    data: Iterable[Any] = (),
    *,
    method: str = "nearest",
    bits: int | str = 4,
    budget: str | None = None,
    group: int | None = None,
    where: Where = None,
    held: Iterable[Any] | None = None,
    inplace: bool = False,
    pack: bool = False,
    steps: int = 500,
    lr: float = 0.01,
    rows: int = 4096,
    parallel: bool = False,
    norm_lr: float = 1e-4,
    norm_growth: float = 1.0,
    seed: int = 0,
) -> Quantized:
    """Put the weights of a model's linears on a grid of few bits, as quantized tensors of ``torchao``.

    Grids are from the least to the largest number of each row, or of each group in a row, 0 among them. With learned
    rounding each layer's rounding is set by Adam so that the layer's outputs change least on inputs that it gets behind
    what was quantized before. Norm tweaking then trains the norms of each block, in order, in one pass, so that every
    channel of its output has the float model's mean and deviation. AdaQuant tunes each layer's weight, bias and grid by
    Adam on its outputs; a layer whose outputs on rows held back are no closer for it is rounded to the nearest.

    Args:
        model: any with ``torch.nn.Linear``, or the ``Conv1D`` of GPT-2 in transformers, of which linears are made; one
            whose weight is also an embedding's stays as it is.
        data: batches for what is learned, gone over several times: tensors, tuples that begin with the input, or
            mappings of named arguments.
        method: ``"nearest"``, ``"learned-rounding"``, ``"adaquant"``, ``"norm-tweaking"`` behind nearest rounding, or
            ``"learned-rounding+norm-tweaking"``, ``"adaquant+norm-tweaking"``.
        bits: of a number, 2 to 8; ``"auto"``: 2 to 6 or 8, of each linear its own, with ``budget``. Each is measured
            alone, rounded to the nearest, on the first 8 batches; an integer program takes the allocation of the least
            error that the budget allows.
        budget: with ``bits="auto"``: ``"4.5 bits"``, the mean over numbers of quantized weights, or ``"300 kB"``, the
            packed bytes of the model.
        group: inputs that share a grid; None: a grid a row.
        where: only linears whose name fits a pattern, or whose class is the one given, or any of a list of such; or
            those for which a function of name and module is true.
        held: batches on which :func:`perplexity` is taken before and after; None: it is not taken.
        inplace: change the model, else a copy.
        pack: put two numbers of 4 bits in a byte, in the form that torchao's kernel on a CPU multiplies by without
            making floats of them first; for 4 bits and groups of 32, 64 or 128.
        steps, rows: of learned rounding and AdaQuant: Adam's steps, and how many rows of inputs are kept of a layer.
        parallel: these learn on the inputs that a layer has in the float model; else, in sequence, on those that it
            has behind the blocks that were quantized before.
        lr: of learned rounding; AdaQuant has its paper's rates.
        norm_lr, norm_growth: the rate of norm tweaking, and how it grows with depth: of n blocks, the first being 0,
            block i has the rate norm_lr * (1 + norm_growth * i / n).
        seed: of what is drawn.

    Returns the model with layers, bytes, seconds and perplexities. ``torch.save`` of its ``state_dict`` holds the
    quantized tensors; ``load_state_dict(..., assign=True)`` puts them into a model of the same layers.

    >>> found = quantize(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)), bits=8)
    >>> found.layers, type(found.model[0].weight).__name__
    (['0', '2'], 'IntxUnpackedToInt8Tensor')

    Gradient-Based Post-Training Quantization (2023), arXiv 2308.07662; Norm Tweaking (2024), arXiv 2309.02784;
    Improving Post Training Neural Quantization (2021), arXiv 2006.10518.
    """
    proof.check_model("quantize", model)
    require_whole("quantize", model)
    require_known("quantize", where, model)
    bits, group, steps, rows = map(check.plain, (bits, group, steps, rows))
    lr, norm_lr, norm_growth = map(check.plain, (lr, norm_lr, norm_growth))
    seed = check.size("quantize", "seed", seed, 0, 2**64 - 1)
    _check(method, bits, budget, group, pack, steps=steps, rows=rows, lr=lr, norm_lr=norm_lr, norm_growth=norm_growth)
    batches, held = _batches(data, held, method, bits)
    layers, notes = _linears(model, group, where, batches[:1])
    library("torchao")
    start = time.perf_counter()
    work = copy.deepcopy(model)
    turned, tuned = _turn(work, layers), ("bias",) if "adaquant" in method else ()
    _part(work, layers, ("weight", *tuned))
    mean = 0.0 if budget is None else _mean_bits(work, layers, group, budget)
    before = perplexity(model, held) if held else None
    learned = _learning(method, steps, lr, rows, parallel, seed)
    tweaking = _Tweaking(norm_lr, norm_growth) if "norm-tweaking" in method else None
    widths = _widths(work, layers, batches, bits, mean, group)
    tweaked, as_nearest = _by_blocks(model, work, layers, batches, (widths, group), learned, tweaking)
    packed = _packed_bytes(work, widths)
    notes |= as_nearest | (_pack(work, layers) if pack else {}) | dict.fromkeys(turned, "a Conv1D, now a Linear")
    size = _bytes(model)
    quantized = _with_edits(_carry(work, model, layers, tuned) if inplace else work, layers)
    measured = None if held is None or before is None else (before, perplexity(quantized, held))
    seconds = time.perf_counter() - start
    return Quantized(quantized, layers, notes, (size, _bytes(quantized)), packed, seconds, measured, tweaked, widths)


def _batches(
    data: Iterable[Any], held: Iterable[Any] | None, method: str, bits: int | str
) -> tuple[list[Any], list[Any] | None]:
    """The batches to learn from, which there must be where something is learned, and those that are held back."""
    batches, kept = _as_list("data", data), None if held is None else _as_list("held", held)
    why = f'bits="{AUTO}"' if bits == AUTO else f"method={method!r}"
    if (bits == AUTO or method != "nearest") and not batches:
        raise ValueError(f"quantize: data must hold at least one batch for {why}, but it is empty")
    if kept is not None and not kept:
        raise ValueError("quantize: held must hold at least one batch, but it is empty; None takes no perplexity")
    return batches, kept


def _check(method: str, bits: int | str, budget: str | None, group: int | None, pack: bool, **numbers: float) -> None:
    """Refuse a method, a form of weights or a number that there is none of."""
    check.choice("quantize", "method", method, METHODS)
    auto = bits == AUTO
    if isinstance(bits, str) and not auto:
        raise ValueError(f'quantize: bits must be a number or "auto", not {bits!r}')
    if not auto:
        check.size("quantize", "bits", bits, least=2, most=8)
    if auto is (budget is None):
        raise ValueError('quantize: bits="auto" and budget="4.5 bits" are given together, or neither of them')
    if group is not None and "adaquant" in method:
        raise ValueError(f"quantize: adaquant has one grid a row: group must be None, not {group}")
    if group is not None:
        check.size("quantize", "group", group)
    if pack and (bits != few.PACKED_BITS or group not in PACKED_GROUPS):
        raise ValueError(
            f"quantize: pack=True is for bits={few.PACKED_BITS} and a group of {', '.join(map(str, PACKED_GROUPS))}, "
            f"not bits={bits}, group={group}"
        )
    for name, value in numbers.items():
        if name in ("steps", "rows"):
            check.size("quantize", name, value)
        else:
            check.number("quantize", name, value, 0.0)


def _with_edits(model: nn.Module, layers: Sequence[str]) -> nn.Module:
    """Let a quantized model carry what was done to it."""
    note(model, [Edit(name, "bits", few.words_of(model.get_submodule(name)) or {}) for name in layers])
    guard([inside(model)[1], *map(model.get_submodule, layers)])
    return model


@torch.no_grad()
def perplexity(model: nn.Module, batches: Iterable[Any]) -> float:
    """Return a language model's perplexity: the exponential of the mean loss of the tokens that it is to predict.

    ``batches`` are tokens (B, T), or mappings of named arguments; a model returns logits (B, T, V), or has ``logits``
    in what it returns. Each token is predicted from those before it. A mapping's ``labels``, -100 where none counts,
    are predicted where the model's own loss does so: an encoder-decoder's or a masked model's at their own place.
    Without labels the tokens are ``decoder_input_ids`` or else ``input_ids``, but for those that its mask leaves out.
    """
    total, count = 0.0, 0
    with mode(model, False):
        for batch in batches:
            named = batch if isinstance(batch, Mapping) else {"input_ids": batch}
            loss, counted = _loss_and_count(feed(model, batch), named)
            total, count = total + loss, count + counted
    if not count:
        raise ValueError("perplexity: batches must hold at least two tokens in a row, but they are empty")
    return torch.tensor(total / count, dtype=torch.float64, device="cpu").exp().item()  # inf where math.exp raises


def _loss_and_count(output: Any, batch: Mapping[str, Any]) -> tuple[float, int]:
    """The summed loss of the tokens of a batch that are to be predicted, and how many these are."""
    logits, labels, loss = scores_of(output), batch.get("labels"), field_of(output, "loss")
    decoder = "decoder_" if field_of(output, "encoder_last_hidden_state") is not None else ""
    tokens = _tokens(batch, decoder) if labels is None else labels
    right = isinstance(tokens, Tensor) and tokens.dtype is torch.int64 and tokens.dim() == 2
    if not right or not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        kinds = [f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__ for x in (tokens, logits)]
        raise ValueError(
            f"perplexity: held-out batches must have labels or {decoder}input_ids, int64 (B, T), for which the model "
            f"returns logits (B, T, V), not {' and '.join(kinds)}"
        )
    next_ones = _sum(logits[:, :-1], tokens[:, 1:])
    if labels is None or loss is None:
        return next_ones
    # the loss of some models moves labels by one and that of others does not: its value alone says which
    both = [next_ones, _sum(logits, tokens)]
    return min(both, key=lambda each: abs(each[0] / each[1] - float(loss)) if each[1] else math.inf)


def _tokens(batch: Mapping[str, Any], decoder: str) -> Any:
    """The tokens of a batch, -100 where one is not to be predicted from the one before."""
    tokens, mask = batch.get(f"{decoder}input_ids"), batch.get(f"{decoder}attention_mask")
    tokens = tokens[0] if isinstance(tokens, tuple | list) else tokens
    if not isinstance(tokens, Tensor) or mask is None or mask.dim() != 2:
        return tokens
    real = mask.bool()
    return tokens.masked_fill(~(real & real.roll(1, 1)), -100)  # the first is predicted from none


def _sum(logits: Tensor, tokens: Tensor) -> tuple[float, int]:
    """The summed loss of tokens, and how many count."""
    tokens = tokens.to(logits.device)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten(), reduction="sum")
    return float(loss), int((tokens != -100).sum())


def _as_list(name: str, batches: Iterable[Any]) -> list[Any]:
    """Batches as a list."""
    if isinstance(batches, (str, bytes)) or not hasattr(batches, "__iter__"):
        raise TypeError(f"quantize: {name} must be batches, tensors or mappings of them, not {type(batches).__name__}")
    return list(batches)


def _linears(
    model: nn.Module, group: int | None, where: Where, batches: Sequence[Any]
) -> tuple[list[str], dict[str, str]]:
    """The linears to be quantized, and those left with the reason."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    linears = {name: layer for name, layer in model.named_modules() if isinstance(as_linear(layer), nn.Linear)}
    asked = {name: layer for name, layer in linears.items() if selects(where, name, layer)}
    refusals = {name: _refusal(layer, tables, group) for name, layer in asked.items()}
    plain = {name: layer for name, layer in asked.items() if not refusals[name] and as_linear(layer) is layer}
    used = _used_otherwise(model, {id(layer.weight): name for name, layer in plain.items()}, batches)
    refusals |= dict.fromkeys(used, "the model computes with its weight itself")
    left = {name: f"left, {why}" for name, why in refusals.items() if why}
    names = [name for name in refusals if name not in left]
    if not names:
        others = f"where={where!r} chooses none of {', '.join(linears)}" if linears else "there is no torch.nn.Linear"
        reasons = "; ".join(f"{name}: {why}" for name, why in left.items()) or others
        raise ValueError(f"quantize: model has no linear to quantize ({reasons})")
    for name in names:
        if not model.get_parameter(f"{name}.weight").isfinite().all():
            raise ValueError(f"quantize: the weight of {name} has NaN or infinities")
    return names, left | _other_weights(model, linears, where)


def _other_weights(model: nn.Module, linears: Mapping[str, Any], where: Where) -> dict[str, str]:
    """The first module of each class that holds a good part of the model's numbers, but in no linear or embedding."""
    passed = {id(part) for layer in linears.values() for part in layer.modules()}
    sizes: dict[str, dict[str, int]] = {}
    for name, part in model.named_modules():
        asked = not callable(where) and selects(where, name, part)  # a function may ask of linears alone
        if asked and id(part) not in passed and not isinstance(part, nn.Embedding | nn.EmbeddingBag):
            kind = type(part).__name__
            size = sum(p.numel() for p in part.parameters(recurse=False) if p.dim() > 1)
            sizes[kind] = sizes.get(kind, {}) | ({name or kind: size} if size else {})
    total, notes = sum(p.numel() for p in model.parameters()), {}
    for kind, each in sizes.items():
        own, whose = sum(each.values()), f" like all {len(each)} {kind}, their" if len(each) > 1 else ", its"
        if own > NOTABLE * total:
            notes[next(iter(each))] = f"left{whose} weights are no linear's ({own:,} of {total:,} numbers)"
    return notes


class _Uses(TorchFunctionMode):
    """The weights that a call uses otherwise than torchao's are, which stand second in a linear map."""

    def __init__(self, names: Mapping[int, str]):
        super().__init__()
        self.names, self.found = names, dict[str, None]()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [*args, *(kwargs or {}).values()]
        if function is F.linear and len(args) > 1:
            del given[1]
        what = function.__self__.__name__ if function.__name__ == "__get__" else function.__name__
        if what not in KEEPING:
            self.found |= {self.names[id(x)]: None for x in tree_leaves(given) if id(x) in self.names}
        return function(*args, **(kwargs or {}))


@torch.no_grad()
def _used_otherwise(model: nn.Module, names: Mapping[int, str], batches: Sequence[Any]) -> Iterable[str]:
    """The linears, by the identities of their weights, with which a model computes without calling them."""
    with mode(model, False), _Uses(names) as uses:
        for batch in batches:
            try:
                feed(model, batch)
            except Exception as error:
                why = proof.describe_error(error)
                raise ValueError(f"quantize: the model does not take the first batch of data: {why}") from error
    return uses.found


def _refusal(layer: Any, tables: Collection[int], group: int | None) -> str:
    """Why a linear stays as it is; empty where it does not."""
    inputs = as_linear(layer).weight.shape[1]  # type: ignore[index]
    if id(layer.weight) in tables:
        return "its weight is also an embedding's"
    if isinstance(layer, NonDynamicallyQuantizableLinear):
        return "its attention reads its weight itself"
    if type(layer.weight) is Tensor:
        return "its weight is made of other parameters"
    if type(layer.weight) is not nn.Parameter:
        return f"its weight is already of {type(layer.weight).__name__}"
    if layer.weight.dtype is torch.float64:
        return "its weight is in float64, for which torchao has no scale"
    if group is not None and inputs % group:
        return f"groups of {group} do not divide its {inputs} inputs"
    return ""


def _turn(model: nn.Module, layers: Sequence[str]) -> list[str]:
    """Put linears in the place of GPT-2's, which keep their weights the other way round; return which these were."""
    linears: dict[str, Any] = {name: as_linear(model.get_submodule(name)) for name in layers}
    turned = [name for name, linear in linears.items() if linear is not model.get_submodule(name)]
    held = all_places(model)
    for name in turned:
        weight = linears[name].weight
        linears[name].weight = nn.Parameter(weight.detach().contiguous(), weight.requires_grad)
        old = model.get_submodule(name)
        put(model, held[old], linears[name].train(old.training))
    return turned


def _part(model: nn.Module, layers: Sequence[str], keys: Collection[str]) -> None:
    """Give each of some linears parameters of its own where another module has them too, which stays as it is."""
    owners = holders(model)
    for layer in map(model.get_submodule, layers):
        for key in keys:
            own = layer._parameters.get(key)  # a parametrized bias is none
            if own is not None and len(owners[id(own)]) > 1:
                setattr(layer, key, nn.Parameter(own.detach().clone(), own.requires_grad))


def _pack(model: nn.Module, layers: Sequence[str]) -> dict[str, str]:
    """Put quantized weights into the form of torchao's kernel; return which are left as they are, and why."""
    left = {}
    for name in layers:
        weight: Any = model.get_submodule(name).weight.data
        if len(weight) % PACKED_ROWS or weight.device.type != "cpu":
            left[name] = f"not packed, its {len(weight)} outputs are no multiple of {PACKED_ROWS}, or not on a CPU"
            continue
        model.get_submodule(name).weight = nn.Parameter(few.packed(weight), requires_grad=False)
    return left


def _blocks(model: nn.Module) -> dict[str, nn.Module]:
    """The blocks of a model by name: what its longest list of modules of one class holds."""
    lists = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m)]
    alike = [(name, m) for name, m in lists if len({type(part) for part in m}) == 1 and any(m[0].children())]
    name, blocks = max(alike, key=lambda pair: len(pair[1]), default=("", nn.ModuleList()))
    return {f"{name}.{i}": block for i, block in enumerate(blocks)}


def _parts(layers: Sequence[str], blocks: Mapping[str, nn.Module]) -> dict[str, list[str]]:
    """The linears of each block, in order of depth, and those outside of all, which come last."""
    parts: dict[str, list[str]] = {name: [] for name in (*blocks, "")}
    for name in layers:
        parts[next((block for block in blocks if name.startswith(f"{block}.")), "")].append(name)
    return parts


class _Learning(NamedTuple):
    """How rounding is learned."""

    method: str
    steps: int
    lr: float
    rows: int
    parallel: bool
    generator: torch.Generator


class _Tweaking(NamedTuple):
    """At which rate norms are trained, and by which share of it the last block's is larger."""

    lr: float
    growth: float


def _by_blocks(
    teacher: nn.Module,
    model: nn.Module,
    layers: Sequence[str],
    batches: Sequence[Any],
    grid: tuple[Mapping[str, int], int | None],
    learned: _Learning | None,
    tweaking: _Tweaking | None,
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Quantize block by block, and train the norms of each behind it; return how that went, and what was not learned.

    grid: the bits of each linear, and how many inputs share a grid.
    """
    blocks = _blocks(model) if learned or tweaking else {}
    norms = list(sized_table(model, {}).found) if tweaking else []
    tweaked: dict[str, tuple[float, float]] = {}
    as_nearest: dict[str, str] = {}
    with mode(model, False), mode(teacher, False):
        for number, (block, names) in enumerate(_parts(layers, blocks).items()):
            as_nearest |= _round(teacher, model, names, batches, *grid, learned)
            own = [norm for norm in norms if norm.startswith(f"{block}.")]
            free = [p for norm in own for p in model.get_submodule(norm).parameters()]
            if tweaking and block and free:
                rate = tweaking.lr * (1 + tweaking.growth * number / len(blocks))
                tweaked[block] = _tweak(teacher, model, block, free, batches, rate)
    if tweaking and not tweaked:
        raise ValueError(
            "quantize: norm tweaking wants blocks, in a ModuleList of the model, that hold norms and linears"
        )
    return tweaked, as_nearest


def _round(
    teacher: nn.Module,
    model: nn.Module,
    names: Sequence[str],
    batches: Sequence[Any],
    bits: Mapping[str, int],
    group: int | None,
    learned: _Learning | None,
) -> dict[str, str]:
    """Quantize some linears, learning on what comes to them; return those that were rounded to the nearest."""
    inputs = _inputs(teacher if learned.parallel else model, names, batches, learned) if learned and names else {}
    tensors: dict[str, Tensor] = {}
    notes: dict[str, str] = {}
    for name in names:
        weight = model.get_parameter(f"{name}.weight").detach()
        width = group or weight.shape[1]
        rounding = few.nearest(weight, bits[name], width)
        why = _learn(rounding, model.get_submodule(name), inputs.get(name), learned) if learned else ""
        notes |= {name: f"rounded to the nearest: {why}"} if why else {}
        tensors[name] = few.round_weight(rounding, weight, width)
    for name, tensor in tensors.items():
        model.get_submodule(name).weight = nn.Parameter(tensor, requires_grad=False)
    return notes


def _learn(rounding: LearnedRounding, layer: Any, x: Tensor | None, how: _Learning) -> str:
    """Learn how one layer is rounded; return why it was not."""
    if x is None or not len(x):
        return "nothing came to it"
    if how.method == "adaquant":
        return "" if tune(rounding, layer, x, how.steps, how.generator) else "tuned, its outputs were no closer"
    _fit_rounding(rounding, layer.weight.detach(), x, how)
    return ""


def _learning(method: str, steps: int, lr: float, rows: int, parallel: bool, seed: int) -> _Learning | None:
    """How rounding is learned; None where it is to the nearest."""
    first = method.partition("+")[0]
    if first not in LEARNED:
        return None
    return _Learning(first, steps, lr, rows, bool(parallel), torch.Generator().manual_seed(seed))


@torch.no_grad()
def _nearest(weight: Tensor, bits: int, group: int | None) -> Tensor:
    """A weight rounded to the nearest point of its grid."""
    width = group or weight.shape[1]
    return few.nearest(weight, bits, width).eval()(weight.reshape(-1, width)).reshape(weight.shape)


def _mean_bits(model: nn.Module, layers: Sequence[str], group: int | None, budget: str) -> float:
    sizes = [model.get_parameter(f"{name}.weight").numel() for name in layers]
    return mean_bits(budget, sizes, _rest(model, layers, group))


def _widths(
    model: nn.Module, layers: Sequence[str], batches: Sequence[Any], bits: int | str, mean: float, group: int | None
) -> dict[str, int]:
    """The bits of each linear: as many for all, or as they are allotted to have that mean."""
    if bits != AUTO:
        return dict.fromkeys(layers, int(bits))
    with mode(model, False):
        return allocate(model, layers, batches, mean, lambda weight, width: _nearest(weight, width, group))


def _packed_bytes(model: nn.Module, bits: Mapping[str, int]) -> int:
    """What a model takes if every number of a quantized weight, which takes a byte, took its bits alone."""
    sizes = {name: model.get_parameter(f"{name}.weight").numel() for name in bits}
    return _bytes(model) - sum(size - math.ceil(size * bits[name] / 8) for name, size in sizes.items())


def _rest(model: nn.Module, layers: Sequence[str], group: int | None) -> int:
    """The bytes of a quantized model without the codes of its weights."""
    total = _bytes(model)
    for name in layers:
        weight: Any = as_linear(model.get_submodule(name)).weight
        grids = weight.numel() // (group or weight.shape[1])
        total += grids * (weight.element_size() + 1) - weight.numel() * weight.element_size()
    return total


def _fit_rounding(rounding: LearnedRounding, weight: Tensor, x: Tensor, how: _Learning) -> None:
    """Set the rounding of one layer by its outputs."""
    regularizer, loss, flat = RoundingRegularizer(), ReconstructionLoss(), weight.float().reshape(rounding.shape)
    optimizer = torch.optim.Adam([rounding.alpha], lr=how.lr)
    with torch.enable_grad():
        for step in range(how.steps):
            regularizer.anneal(step / how.steps)
            rows = x[torch.randint(len(x), (32,), generator=how.generator, device="cpu")].float()
            change = (rounding(flat) - flat).reshape(weight.shape)
            off = F.linear(rows, change)
            optimizer.zero_grad()
            (loss(off, torch.zeros_like(off)) + regularizer(rounding.alpha)).backward()
            optimizer.step()


@torch.no_grad()
def _inputs(model: nn.Module, names: Sequence[str], batches: Sequence[Any], how: _Learning) -> dict[str, Tensor]:
    """Rows that come to some linears, as many of each batch."""
    each = math.ceil(how.rows / len(batches))
    seen: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str, layer: nn.Module, *given: Any) -> None:
        x = next(tensors_in(given))
        rows = x.detach().reshape(-1, x.shape[-1])
        seen[name].append(rows[torch.randperm(len(rows), generator=how.generator, device="cpu")[:each]])

    layers = {name: model.get_submodule(name) for name in names}
    hooks = [layers[n].register_forward_pre_hook(functools.partial(keep, n), with_kwargs=True) for n in names]
    with remove_after(hooks):
        for batch in batches:
            feed(model, batch)
    return {name: torch.cat(chunks)[: how.rows] for name, chunks in seen.items() if chunks}


def _tweak(
    teacher: nn.Module, model: nn.Module, block: str, free: Sequence[nn.Parameter], batches: Sequence[Any], lr: float
) -> tuple[float, float]:
    """Train parameters of one block for a pass; return the mean loss of the first and of the last quarter.

    Half precision is too coarse for the steps, which are taken on copies in float32.
    """
    teacher_block, here = teacher.get_submodule(block), model.get_submodule(block)
    wide = [accurate(p.detach()) for p in free]
    loss, optimizer, losses = NormTweakingLoss(), torch.optim.Adam(wide, lr=lr), []
    flags = {p: p.requires_grad for p in free}
    for parameter in free:
        parameter.requires_grad_(True)
    for batch in batches:
        with torch.no_grad():
            target, (args, kwargs) = _returned(teacher, teacher_block, batch), _arguments(model, here, batch)
        with torch.enable_grad():
            value = loss(target, first(here(*args, **kwargs)))
        for own, grad in zip(wide, torch.autograd.grad(value, free, allow_unused=True), strict=True):
            own.grad = None if grad is None else grad.to(own.dtype)
        optimizer.step()
        for parameter, own in zip(free, wide, strict=True):
            parameter.detach().copy_(own)
        losses.append(float(value.detach()))
    for parameter, flag in flags.items():
        parameter.requires_grad_(flag)
    quarter = max(1, len(losses) // 4)
    return sum(losses[:quarter]) / quarter, sum(losses[-quarter:]) / quarter


class _Reached(Exception):
    """A pass came as far as it was wanted to."""


def _reach(model: nn.Module, register: Callable[..., Any], batch: Any) -> list[Any]:
    """What a hook of a part of a model, registered so, is handed first in a pass, which ends there."""
    calls: list[Any] = []

    def keep(_, *given):
        calls.extend(given)
        raise _Reached

    with remove_after([register(keep, with_kwargs=True)]):
        try:
            feed(model, batch)
        except _Reached:
            return calls
    raise ValueError("quantize: the data never reach a block of the model")


def _arguments(model: nn.Module, part: nn.Module, batch: Any) -> list[Any]:
    """What a part of a model is called with, before it enters keys and values in a cache that it is handed."""
    return _reach(model, part.register_forward_pre_hook, batch)


def _returned(model: nn.Module, part: nn.Module, batch: Any) -> Tensor:
    return first(_reach(model, part.register_forward_hook, batch)[-1])


@torch.no_grad()
def _carry(work: nn.Module, model: nn.Module, layers: Sequence[str], tuned: Collection[str]) -> nn.Module:
    """Let a model have the quantized weights of its copy, and the numbers of what else was changed."""
    _turn(model, layers)
    _part(model, layers, tuned)
    quantized = {f"{name}.weight" for name in layers}
    for name, parameter in work.named_parameters():
        if name in quantized:
            model.get_submodule(name.rpartition(".")[0]).weight = parameter
        else:
            model.get_parameter(name).copy_(parameter)
    return model


def _bytes(model: nn.Module) -> int:
    """What parameters and buffers take, shared ones once."""
    total, pointers = 0, set()
    for tensor in (*model.parameters(), *model.buffers()):
        for part in few.parts(tensor).values() or [tensor]:
            if part.data_ptr() not in pointers:
                pointers.add(part.data_ptr())
                total += part.numel() * part.element_size()
    return total
