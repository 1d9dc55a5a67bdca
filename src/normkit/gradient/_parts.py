"""Parts of fused weights, seen in what a model does with them: queries, keys, values, gates, experts.

The model runs once, with random numbers in the place of what each matrix makes. Where two tensors meet in a product,
queries and keys in attention, or a gate and what it opens, their gradients say of which features of which matrix each
is made. So neither names nor layouts matter.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normkit.gradient._sharded import is_sharded
from normkit.parameters import trial

# functions that take a weight, and where it stands among their arguments
LINEAR = {"linear": 1, "addmm": 2, "matmul": 1, "__matmul__": 1, "mm": 1, "bmm": 1}
LINEAR |= {"_grouped_mm": 1, "grouped_mm": 1, "grouped_mm_fallback": 1}
SCORES = {"matmul", "__matmul__", "bmm", "baddbmm", "einsum"}
PRODUCTS = {"mul", "__mul__", "multiply"}
ATTENTION = "scaled_dot_product_attention"
# the last words of names of weights that no run has shown, and the equal parts that they usually have
NAMES = {
    "qkv": ("Q", "K", "V"),
    "qkv_proj": ("Q", "K", "V"),
    "c_attn": ("Q", "K", "V"),
    "in_proj": ("Q", "K", "V"),
    "query_key_value": ("Q", "K", "V"),
    "gate_up_proj": ("gate", "up"),
}


@dataclass(frozen=True)
class Parts:
    """How the features of a weight divide: labels and heights of blocks, which may repeat.

    ``axis`` is that of the features: -2 for rows, -1 for columns, as a ``Conv1D`` stores them. ``heads`` counts the
    heads of each label, 0 where none were seen; ``why`` tells how all this is known.
    """

    labels: tuple[str, ...]
    heights: tuple[int, ...]
    repeats: int = 1
    axis: int = -2
    heads: tuple[int, ...] = ()
    experts: int = 0
    why: str = "data flow"

    @property
    def fused(self) -> bool:
        """Whether there is more than one part."""
        return len(self.labels) > 1

    def settings(self, by_heads: bool) -> dict[str, Any]:
        """Muon's arguments for it."""
        axis = {"block_axis": "columns"} if self.axis == -1 else {}
        sizes = {
            height * self.repeats // count for height, count in zip(self.heights, self.heads, strict=False) if count
        }
        if by_heads and len(sizes) == 1 and all(self.heads):
            return {"blocks": (sizes.pop(),), "block_repeats": "split", **axis}
        return {"blocks": self.heights, **axis} if self.fused else {}

    def __str__(self) -> str:
        heads = self.heads or (0,) * len(self.labels)
        blocks = [
            f"{label} {height}" + (f" ({count} heads)" if count > 1 else "")
            for label, height, count in zip(self.labels, self.heights, heads, strict=True)
        ]
        text = " | ".join(blocks) + (f", {self.repeats} times" if self.repeats > 1 else "")
        text += ", columns" if self.axis == -1 and self.fused else ""
        text += f", {self.experts} experts" if self.experts else ""
        return f"{text}; {self.why}"


def run_of(model: nn.Module, inputs: Sequence[Any], weights: Mapping[str, nn.Parameter]) -> Run:
    """Run a model once, on ``inputs`` or on some that are made up, which may not be for it, and look at weights."""
    run = Run(list(weights.values()))
    if inputs:
        run.watch(model, inputs, {})
    elif run.weights and all(map(_is_plain, weights.values())):
        with contextlib.suppress(Exception):  # inputs of ours may not be for it
            run.watch(model, *example_inputs(model))
    return run


def parts_of(model: nn.Module, inputs: Sequence[Any], weights: Mapping[str, nn.Parameter]) -> dict[int, Parts]:
    """The parts of weights, by the identity of each: by a run, by the class that holds them, or by their names."""
    run = run_of(model, inputs, weights)
    splits = run.parts()
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
            size, heads = module.embed_dim, module.num_heads
            known = Parts(("Q", "K", "V"), (size,) * 3, heads=(heads,) * 3, why="MultiheadAttention")
            splits[id(module.in_proj_weight)] = known
    for name, weight in weights.items():
        if id(weight) not in splits and (usual := _by_name(name, weight)) is not None:
            splits[id(weight)] = usual
    stacks = {id(w): w.shape[0] for w in weights.values() if w.dim() == 3}
    return {key: replace(parts, experts=stacks.get(key, 0)) for key, parts in splits.items()}


def _by_name(name: str, weight: Tensor) -> Parts | None:
    """Equal parts that a name suggests, where the shape does not speak against them."""
    labels = NAMES.get(name.removesuffix(".weight").removesuffix("_weight").rpartition(".")[2])
    if labels is None or weight.dim() > 2:
        return None
    rows, columns = weight.shape
    if len(labels) == 2:
        axis = -2 if rows % 2 == 0 else None
    else:
        axis = -2 if rows == 3 * columns else -1 if columns == 3 * rows else None
    if axis is None:
        return None
    return Parts(labels, (weight.shape[axis] // len(labels),) * len(labels), axis=axis, why="by its name only")


def example_inputs(model: nn.Module) -> tuple[Sequence[Any], dict[str, Any]]:
    """Arguments to try a model with: tokens, pictures or features."""
    generator = torch.Generator().manual_seed(0)
    config, picture = getattr(model, "config", None), getattr(model, "default_cfg", None) or {}
    first = next(model.parameters())
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    size = getattr(config, "vocab_size", None) or (max(tables) if tables else 0)
    if picture.get("input_size"):
        own = (getattr(module, "img_size", None) for module in model.modules())
        sides = next((size for size in own if isinstance(size, tuple)), picture["input_size"][1:])
        return [torch.randn(1, picture["input_size"][0], *sides, generator=generator, device="cpu").to(first)], {}
    if size:
        tokens = torch.randint(size, (2, 8), generator=generator, device="cpu").to(first.device)
        return ([], {"input_ids": tokens}) if config is not None else ([tokens], {})
    width = next((m.in_features for m in model.modules() if isinstance(m, nn.Linear)), 1)
    return [torch.randn(2, 8, width, generator=generator, device="cpu").to(first)], {}


@dataclass(frozen=True)
class Reach:
    """The features of an output that a tensor is made of; ``straight``: by shifts alone, as what a gate opens."""

    features: frozenset[int]
    straight: bool

    @classmethod
    def by(cls, gradient: Tensor, sent: Tensor) -> Reach:
        """Read it off a gradient, and what was sent back."""
        own = gradient.flatten(0, -2).abs().amax(0).nonzero().flatten()
        part = gradient[..., own]
        same = part.numel() == sent.numel() and torch.equal(part.flatten().sort().values, sent.flatten().sort().values)
        return cls(frozenset(own.tolist()), same)


@dataclass
class Output:
    """What a weight has made, and what each of its features turned out to be."""

    weight: nn.Parameter
    axis: int
    leaf: Tensor
    labels: dict[int, str] = field(default_factory=dict)
    head: dict[str, int] = field(default_factory=dict)  # the size of a label's heads


class Run(TorchFunctionMode):
    """Replaces what matrices make, and looks at products of it."""

    def __init__(self, weights: Sequence[nn.Parameter]):
        super().__init__()
        self.weights = {w.untyped_storage().data_ptr(): w for w in weights if _is_plain(w)}
        self.outputs: list[Output] = []

    def watch(self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Run a model, leaving it as it was."""
        with trial(model):
            model.eval()
            with self:
                model(*args, **kwargs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").partition(".")[0]
        output = self._replace(name, func, args, kwargs) if name in LINEAR else None
        if output is not None:
            return output
        if name == ATTENTION or name in SCORES or name in PRODUCTS:
            listed = [*args, *kwargs.values()]
            flat = itertools.chain(*(x if isinstance(x, list | tuple) else [x] for x in listed))
            self._look(name, [x for x in flat if isinstance(x, Tensor) and x.requires_grad and x.dim() > 1])
        return func(*args, **kwargs)

    def _replace(self, name: str, func: Any, args: Any, kwargs: Any) -> Tensor | None:
        """Random numbers in the place of what a weight makes."""
        place = LINEAR[name]
        view = args[place] if place < len(args) else kwargs.get("weight", kwargs.get("mat2"))
        weight = self.weights.get(view.untyped_storage().data_ptr()) if isinstance(view, Tensor) else None
        if weight is None or view is None or view.dim() < 2:
            return None
        output = func(*args, **kwargs)
        stride = view.stride(-2 if name == "linear" else -1)
        axis = -2 if weight.stride(-2) == stride else -1
        if weight.shape[axis] != output.shape[-1]:
            return output
        leaf = torch.randn_like(output).detach().requires_grad_()
        self.outputs.append(Output(weight, axis, leaf))
        return leaf.clone()  # which may be written into

    def _look(self, name: str, operands: Sequence[Tensor]) -> None:
        """See which features of which weights the operands of a product are made of."""
        if len(operands) < 2 or (name in PRODUCTS and operands[0].shape != operands[1].shape):
            return
        operands = operands[:3] if name == ATTENTION else operands[:2]
        reached = [self._reach(operand) for operand in operands]
        if not all(reached):
            return
        if name in PRODUCTS:
            self._gates(operands, reached)
        else:
            self._scores(name, operands, reached)

    def _reach(self, operand: Tensor) -> dict[int, Reach]:
        """By the place of each output, its features that an operand is made of."""
        leaves = [output.leaf for output in self.outputs]
        if operand.grad_fn is None or not leaves:
            return {}
        sent = torch.randn_like(operand)
        grads = torch.autograd.grad(operand, leaves, sent, retain_graph=True, allow_unused=True)
        return {i: own for i, g in enumerate(grads) if g is not None and (own := Reach.by(g, sent)).features}

    def _scores(self, name: str, operands: Sequence[Tensor], reached: list[dict[int, Reach]]) -> None:
        """Queries and keys, or what comes of them and values."""
        known = any(f in self.outputs[i].labels for i, own in reached[0].items() for f in own.features)
        labels = ("Q", "K", "V") if name == ATTENTION else ("", "V") if known else ("Q", "K")
        for i, output in enumerate(self.outputs):
            sets = [own[i].features if i in own else frozenset() for own in reached]
            if any(a & b for a, b in itertools.combinations(sets, 2)):  # a layer before
                continue
            for label, own, operand in zip(labels, sets, operands, strict=True):
                if label and not any(f in output.labels for f in own):
                    output.labels |= dict.fromkeys(own, label)
                    output.head |= _head_size(name, label, operand)

    def _gates(self, operands: Sequence[Tensor], reached: list[dict[int, Reach]]) -> None:
        """A gate and what it opens, of one weight or of one each."""
        if any(len(own) != 1 for own in reached):
            return
        sides = [(self.outputs[i], part) for own in reached for i, part in own.items()]
        (one, gate), (other, opened) = sides
        known = any(f in output.labels for output, part in sides for f in part.features)
        if known or (one is other and gate.features & opened.features):
            return
        labels = ("up", "gate") if gate.straight and not opened.straight else ("gate", "up")
        for label, (output, part) in zip(labels, sides, strict=True):
            output.labels |= dict.fromkeys(part.features, label)

    def parts(self) -> dict[int, Parts]:
        """What is known of each weight."""
        outputs: dict[int, Output] = {}
        for output in self.outputs:
            if len(output.labels) > len(outputs[id(output.weight)].labels if id(output.weight) in outputs else ()):
                outputs[id(output.weight)] = output
        return {key: parts for key, output in outputs.items() if (parts := _parts(output)) is not None}


def _head_size(name: str, label: str, operand: Tensor) -> dict[str, int]:
    """The size of a head in an operand, by its label, where it is cut into heads; a matrix product has keys turned."""
    if name == "einsum" or operand.dim() < 3:
        return {}
    return {label: operand.shape[-2 if label == "K" and name != ATTENTION else -1]}


def _is_plain(w: Tensor) -> bool:
    """Whether a weight has numbers, all here, and a memory of its own."""
    return not is_sharded([w]) and not w.is_meta and w.untyped_storage().nbytes() == w.numel() * w.element_size() > 0


def _parts(output: Output) -> Parts | None:
    """The blocks of a weight, if they repeat in one order."""
    width = output.leaf.shape[-1]
    # a rectifier is deaf to a feature that is negative throughout
    other = "gate" if set(output.labels.values()) == {"gate", "up"} else "rest"
    labels = [output.labels.get(f, other) for f in range(width)]
    runs = [(label, len(list(own))) for label, own in itertools.groupby(labels)]
    for count in range(1, len(runs) + 1):
        period = runs[:count]
        if len(runs) % count == 0 and period * (len(runs) // count) == runs:
            names = tuple(label for label, _ in period)
            if len(set(names)) < count:
                return None
            sizes = [labels.count(name) // output.head.get(name, width + 1) for name in names]
            heads = tuple(sizes) if any(sizes) else ()
            heights = tuple(height for _, height in period)
            return Parts(names, heights, len(runs) // count, output.axis, heads)
    return None
