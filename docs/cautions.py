"""When a method is not the one to take: each rule reads the card, or runs the method small, and gives its reason."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import facts
import pictures
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode

import normkit as nk
from normkit import reference
from normkit.bench import residual
from normkit.catalog import Card
from normkit.ops import paths

FAILURES = (ValueError, TypeError, RuntimeError, AttributeError, IndexError, KeyError, NotImplementedError)
MIXING = ("norm", "layer", "core", "block", "whole layer", "transform")
MOMENTS = 2.0  # numbers that AdamW keeps of each of a parameter's
OUTSIDE = re.compile(r"these are|the input lies|noise must")  # inputs that are none of the method's
LABELS = {"target", "targets", "label", "labels", "y", "gold_labels"}
DOMAINS = {
    "ball": "points of a ball, shorter than 1,",
    "correlation": "matrices of correlations",
    "definite": "symmetric positive definite matrices",
    "frame": "matrices with orthonormal columns",
    "oriented": "matrices with a positive determinant",
    "permutation": "permutations",
    "simplex": "probabilities that add up to 1",
    "sphere": "vectors of length 1",
    "unit": "numbers from 0 to 1",
}
Rule = Callable[[Card], str]
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    """Enter a rule: of a card it returns a caution, or nothing."""
    RULES.append(function)
    return function


def cautions(card: Card) -> list[str]:
    """Where a method is not for, or what to mind of it."""
    return [words for each in RULES if (words := each(card))]


def reason(card: Card, *lines: str) -> str:
    """Why a line of the contract is not kept, all words of its key named; nothing where it is kept."""
    return next((card.exempt[line] for line in lines if line in card.exempt), "")


# What one small call shows.


class Shown(NamedTuple):
    """What a call does: inputs and parameters without a gradient, buffers that move, and what evaluation reads."""

    carries: bool
    constant: tuple[str, ...]
    unused: tuple[str, ...]
    moved: tuple[str, ...]
    reads: bool


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of real numbers within a result."""
    if isinstance(value, Tensor):
        yield from [value] if value.is_floating_point() else []
    elif isinstance(value, tuple | list):
        yield from itertools.chain.from_iterable(map(tensors, value))
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


@functools.cache
def shown(name: str) -> Shown | None:
    """Call a method small, forward and backward, then in evaluation; None where that is no call of tensors."""
    card = nk.card(name)
    if card.kind.name in ("optimizer", "text", "adapter", "estimator"):
        return None
    with pictures.quiet():
        try:
            return _shown(card)
        except FAILURES:
            return None


def _shown(card: Card) -> Shown:
    subject = card.kind.subject(card, seed=1, optional=True)
    fresh = _answer(card, subject.inputs)
    inputs = [x.clone().requires_grad_() if x.is_floating_point() else x for x in subject.inputs]
    before = {key: value.clone() for key, value in subject.state.items()}
    outputs = [y for y in tensors(subject.call(*inputs)) if y.requires_grad]
    moved = tuple(key for key, value in before.items() if not torch.equal(value, subject.state[key]))
    given = {key: x for key, x in zip(card.kind.takes(card), inputs, strict=False) if x.requires_grad}
    leaves = {**given, **{f".{key}": p for key, p in subject.learned.items() if p.requires_grad}}
    sent = sum((y * torch.randn_like(y)).sum() for y in outputs)
    grads = torch.autograd.grad(sent, list(leaves.values()), allow_unused=True) if outputs else [None] * len(leaves)
    idle = [key for key, grad in zip(leaves, grads, strict=True) if grad is None]
    after = _answer(card, subject.inputs, subject.made) if moved else fresh
    return Shown(
        carries=bool(outputs) or not leaves,
        constant=tuple(key for key in idle if key in given),
        unused=tuple(key[1:] for key in idle if key not in given),
        moved=moved,
        reads=not _same(fresh, after),
    )


def _answer(card: Card, inputs: list[Tensor], made: Any = None) -> list[Tensor]:
    """What it gives in evaluation."""
    if made is None:
        torch.default_generator.manual_seed(0)
        made = card.kind.subject(card, seed=1, optional=True).made
    if not isinstance(made, nn.Module):
        return []
    torch.default_generator.manual_seed(0)
    with torch.no_grad():
        returned = list(tensors(made.eval()(*[x.clone() for x in inputs])))
    made.train()
    return returned


def _same(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def named(words: Iterable[str], most: int = 3) -> str:
    """Names as code, the first few."""
    words = list(words)
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(f"`{word}`" for word in words[:most]) + more


class Largest(TorchDispatchMode):
    """Keeps the size of the largest tensor that an operation makes."""

    most = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        returned = operation(*args, **(kwargs or {}))
        made = list(tensors(returned))
        self.most = max([self.most, *(y.numel() for y in made if not _is_view(y))])
        return returned


def _is_view(y: Tensor) -> bool:
    return 0 in y.stride() and y.numel() > 1


def largest(card: Card, batch: int, named: dict[str, int]) -> tuple[int, int]:
    """How many numbers the largest input and the largest tensor within a call have."""
    with pictures.quiet(), torch.no_grad():
        subject = card.kind.subject(card, batch=batch, named=named)
        with Largest() as seen:
            subject.call(*subject.inputs)
    return max(x.numel() for x in subject.inputs), seen.most


# Batches, tokens, types.


def reaches(card: Card, how: str, *axes: str) -> bool:
    """Whether an entry reaches so far along one of the axes, in a method that mixes entries."""
    reach = reference.reach(card.name) or {}
    return card.kind.name in MIXING and how in map(reach.get, axes)


@rule
def batch(card: Card) -> str:
    """Whether a sample's result depends on its batch."""
    text = "a sample's result depends on the others of its batch, in training: not for batches of one or two"
    return text if reaches(card, "whole", "N") else ""


@rule
def order(card: Card) -> str:
    """Whether the order of samples counts."""
    text = "a sample's result depends on those before it: another order of the same samples gives other numbers"
    return text if reaches(card, "later", "N") else ""


@rule
def later_tokens(card: Card) -> str:
    """Whether a token sees what comes after it."""
    later = reaches(card, "whole", "T", "L")
    return "a token's result depends on later tokens: not in a causal decoder" if later else ""


@rule
def half(card: Card) -> str:
    """Whether half precision is missing, or float16 alone."""
    every = reason(card, "half")
    if every:
        return f"not in half precision: {every}"
    why = reason(card, "half float16") or next(
        (why for key, why in card.exempt.items() if key.startswith("extremes") and key.endswith("float16")), ""
    )
    wide = any(key.startswith("extremes") and "16" not in key for key in card.exempt)
    return f"take bfloat16 rather than float16: {why}" if why and not wide else ""


@rule
def zeros(card: Card) -> str:
    """Whether an input of zeros, or a constant one, has no finite result."""
    lines = ("zeros", "zeros float32"), ("ones", "ones float32")
    words = ("zeros", "equal numbers")
    for word, keys in zip(words, lines, strict=True):
        why = reason(card, *(f"extremes {key}" for key in keys))
        if why and not OUTSIDE.match(why):
            return f"an input of {word} gives no finite result or gradient: {why}"
    return ""


@rule
def single(card: Card) -> str:
    """Whether one sample with one position fails."""
    why = reason(card, "one")
    return f"not for a single sample with a single position: {why}" if why else ""


@rule
def far_values(card: Card) -> str:
    """Whether values far from zero cost digits."""
    why = next((why for key, why in card.exempt.items() if key.startswith("offsets") and "1e6" not in key), "")
    return f"values far from zero cost digits: {why}" if why else ""


@rule
def bits(card: Card) -> str:
    """Whether the bits of a row depend on its batch."""
    if not card.by_row or card.batch_invariant:
        return ""
    why = next(why for key, why in card.exempt.items() if key.startswith("batches"))
    return f"the bits of a row depend on its batch: {why}"


@rule
def pairs(card: Card) -> str:
    """Whether memory grows with the square of the batch."""
    if card.kind.name not in ("loss", "function", "layer", "norm") or "N" not in card.shape.axes:
        return ""
    try:
        small, large = (largest(card, size, {}) for size in (32, 64))
    except FAILURES:
        return ""
    if large[1] > 3 * small[1] and large[0] < 3 * small[0]:
        return "it makes a table of all pairs of a batch: memory grows with the square of the batch"
    return ""


# Gradients.


@rule
def no_gradient(card: Card) -> str:
    """Whether nothing can be trained through it."""
    seen, why = shown(card.name), reason(card, "gradcheck")
    if seen is None or seen.carries or not why:
        return ""
    return f"nothing can be trained through it: {why}"


@rule
def constants(card: Card) -> str:
    """Which inputs get no gradient."""
    seen, why = shown(card.name), reason(card, "gradcheck")
    if seen is None or not seen.carries or not seen.constant or not why:
        return ""
    return f"no gradient reaches {named(seen.constant)}: {why}"


@rule
def other_gradient(card: Card) -> str:
    """Whether the gradient is not the derivative of the result."""
    seen, why = shown(card.name), reason(card, "gradcheck", "gradcheck train", "gradcheck eval")
    if card.kind.name == "function" or seen is None or not seen.carries or seen.constant or seen.unused or not why:
        return ""
    return f"its gradient is not the derivative of its result: {why}"


@rule
def second_derivatives(card: Card) -> str:
    """Whether gradients of gradients are missing where the gradient itself is right."""
    why = reason(card, "higher-derivatives", "second-derivatives")
    if not why or other_gradient(card) or constants(card) or idle_parameters(card):
        return ""
    return f"not under a gradient penalty, which takes second derivatives: {why}"


@rule
def idle_parameters(card: Card) -> str:
    """Whether distributed training waits for a gradient that never comes."""
    seen = shown(card.name)
    if seen is None or not seen.carries or not seen.unused:
        return ""
    why = next((why for key, why in card.exempt.items() if key.startswith("gradients")), "")
    return (
        f"`DistributedDataParallel` needs `find_unused_parameters=True`: no gradient comes to {named(seen.unused)}"
        f"{f' ({why})' if why else ''}"
    )


@rule
def functional(card: Card) -> str:
    """Whether torch.func cannot map over it."""
    why = reason(card, "vmap")
    return f"not under `torch.func.vmap`: {why}" if why and card.shape.floating else ""


# State, and what is there before a call.


@rule
def running(card: Card) -> str:
    """Whether evaluation reads what training kept."""
    seen = shown(card.name)
    if seen is None or card.kind.name not in ("norm", "layer") or not (seen.moved and seen.reads):
        return ""
    kept = named([key for key in seen.moved if "num_batches" not in key and "iters" not in key])
    fixed = "" if facts.folds(card) else "; and it does not fold into the layer beside it"
    return f"evaluation reads {kept}, which are stale after weights were averaged or data changed{fixed}"


@rule
def restless(card: Card) -> str:
    """Whether evaluation changes it too."""
    why = reason(card, "rest")
    return f"evaluation changes its state as training does, so the order of batches counts: {why}" if why else ""


@rule
def remembers(card: Card) -> str:
    """Whether a loss keeps something from call to call."""
    seen = shown(card.name)
    if card.kind.name != "loss" or seen is None or not seen.moved:
        return ""
    return f"it keeps {named(seen.moved)} from call to call: save its `state_dict` with the model's"


@rule
def learned(card: Card) -> str:
    """Whether a loss has parameters that an optimizer must be given."""
    if card.kind.name != "loss":
        return ""
    with pictures.quiet():
        args, options = card.arguments()
        theirs = {id(p) for p in _parameters([*args, *options.values()])}
        own = [key for key, p in card.kind.create(card, *args, **options).named_parameters() if id(p) not in theirs]
    return f"it learns {named(own)}: give its parameters to the optimizer" if own else ""


def _parameters(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, nn.Module):
            yield from value.parameters()
        elif isinstance(value, tuple | list):
            yield from _parameters(value)
        elif isinstance(value, Tensor):
            yield value


@rule
def accumulation(card: Card) -> str:
    """Whether the loss of a batch is another than that of its parts together."""
    layouts = [card.shape, *(layout for layout in card.inputs.values() if not layout.optional)]
    if card.kind.name != "loss" or any(layout.axes[:1] not in (("N",), ("B",)) for layout in layouts):
        return ""
    with pictures.quiet(), torch.no_grad():
        try:
            subject = card.kind.subject(card, batch=8)
            if isinstance(subject.made, nn.Module):
                subject.made.eval()
            whole, again = (_number(subject, subject.inputs) for _ in range(2))
            parts = [_number(subject, [x[at : at + 4] for x in subject.inputs]) for at in (0, 4)]
        except FAILURES:
            return ""
    if whole != again or any(abs(whole - total) <= 1e-6 * abs(whole) for total in (sum(parts), sum(parts) / 2)):
        return ""
    return (
        "the loss of a batch is not that of its parts together: accumulated gradients are not those of a larger batch"
    )


def _number(subject: Any, inputs: list[Tensor]) -> float:
    torch.default_generator.manual_seed(0)
    return float(sum(y.sum() for y in tensors(subject.call(*inputs))))


@rule
def domain(card: Card) -> str:
    """Whether it takes numbers of one kind alone."""
    words = DOMAINS.get(card.shape.kind)
    if card.shape.kind == "unit" and not refuses_more_than_one(card):
        return ""
    return f"it takes {words} alone: other numbers must be brought there first" if words else ""


def refuses_more_than_one(card: Card) -> bool:
    """Whether numbers beyond 1 are refused, or give none."""
    with pictures.quiet(), torch.no_grad():
        subject = card.kind.subject(card, seed=1)
        try:
            returned = list(tensors(subject.call(3 * subject.inputs[0] + 2, *subject.inputs[1:])))
        except FAILURES:
            return True
    return not all(bool(y.isfinite().all()) for y in returned)


@rule
def spellings(card: Card) -> str:
    """Whether composed and decomposed letters are different to a method of text."""
    if card.kind.name != "text":
        return ""
    call, asked = next(iter(card.entry.calls.items()))
    composed, decomposed = (_spelled(asked, form) for form in ("NFC", "NFD"))
    try:
        with pictures.quiet():
            _, options = card.arguments()
            made = card.kind.create(card, **options)
            answers = [repr(getattr(made, call)(*words)) for words in (composed, decomposed)]
    except FAILURES:
        return ""
    if len({unicodedata.normalize("NFC", answer) for answer in answers}) == 1:
        return ""
    return "it reads code points as they come: bring texts to one Unicode form first, such as NFC"


def _spelled(value: Any, form: str) -> Any:
    """A question whose texts end in a letter with an accent, in a Unicode form."""
    if isinstance(value, str):
        return unicodedata.normalize(form, value + "\N{LATIN SMALL LETTER E WITH ACUTE}")
    if isinstance(value, dict):
        return {key: _spelled(each, form) for key, each in value.items()}
    return type(value)(_spelled(each, form) for each in value) if isinstance(value, tuple | list) else value


@rule
def fitting(card: Card) -> str:
    """Whether data must be seen before the first call."""
    if card.kind.name not in ("fitted", "estimator"):
        return ""
    verbs = [verb for verb in ("fit", "update", "begin_task") if hasattr(card.entry, verb)]
    return f"it says nothing before it has seen data: call `{verbs[0]}` first" if verbs else ""


@rule
def further_inputs(card: Card) -> str:
    """Whether a norm needs more than the activations."""
    needed = [name for name, layout in card.inputs.items() if not layout.optional]
    if card.kind.name != "norm" or not needed or labels(card):
        return ""
    return f"a call needs {named(needed)} as well: it does not take the place of a LayerNorm by itself"


@rule
def labels(card: Card) -> str:
    """Whether labels must be at hand outside of a loss."""
    needed = [name for name, layout in card.inputs.items() if name in LABELS and layout.kind.startswith("index")]
    if card.kind.name not in ("function", "fitted", "layer", "norm") or not needed:
        return ""
    words = "labels" if needed == ["labels"] else f"labels, {named(needed)}"
    return f"it needs {words}: not for data without them"


@rule
def bank(card: Card) -> str:
    """Whether scores of a bank of queries must be at hand."""
    banks = [name for name, layout in card.inputs.items() if name.endswith(("bank", "background"))]
    return f"it needs scores of further queries, {named(banks)}: not for a single query alone" if banks else ""


# Processes, exports, packages.


@rule
def processes(card: Card) -> str:
    """Whether several processes give other numbers than one."""
    why = reason(card, "processes")
    why = why if re.search(r"\bjoin\b|process|batch", why) else ""
    return f"on several processes each sees its own part of the batch: {why}" if why else ""


@rule
def export(card: Card) -> str:
    """Whether ONNX is missing."""
    why = reason(card, "onnx")
    return f"it does not export to ONNX: {why}" if why else ""


@rule
def kernel(card: Card) -> str:
    """Whether a norm of activations runs by its formula alone."""
    if card.kind.name != "norm" or card.room != "activation":
        return ""
    with pictures.quiet(), torch.no_grad(), paths.watch() as asked:
        try:
            card.small()(*card.draw())
        except FAILURES:
            return ""
    return "" if asked else "it has no kernel of ours, neither on a CPU nor on a GPU: it runs operation by operation"


# Attention.


@rule
def forms(card: Card) -> str:
    """Whether a core has no causal form, or only that."""
    own = getattr(card.entry, "forms", (False, True))
    if card.kind.name not in ("core", "layer") or len(own) == 2:
        return ""
    if own == (False,):
        return "it has no causal form: not in a decoder that generates"
    return "it has a causal form alone: not in an encoder"


@rule
def masks(card: Card) -> str:
    """What a mask cannot hide."""
    if card.kind.name != "core" or card.entry.masks == "pairs":
        return ""
    if card.entry.masks is None:
        return "it takes no mask: texts of unequal length cannot share a batch"
    return "a mask hides a key from all queries alike: no packed texts, and no window of attention"


@rule
def crossed(card: Card) -> str:
    """Whether queries and keys must be of one sequence."""
    if card.kind.name == "core" and not card.entry.crossed:
        return "queries and keys must be of one sequence: not for cross-attention"
    return ""


@rule
def length(card: Card) -> str:
    """Whether a core is built for a number of tokens."""
    if card.kind.name == "core" and card.entry.fitting(4096):
        return f"{named(card.entry.fitting(4096))} must fit the number of tokens: another length needs another core"
    return ""


@rule
def scores(card: Card) -> str:
    """Whether a core holds the scores of all pairs at once."""
    if card.kind.name != "core" or getattr(card.entry, "linear", False) is True:
        return ""
    try:
        _, most = largest(card, 1, {"T": 128, "S": 128})
    except FAILURES:
        return ""
    if most < 128 * 128:
        return ""
    return "it holds the scores of all pairs of tokens: memory grows with the square of their number"


# The residual stream.


@functools.cache
def kept_by(placement: str) -> int:
    """How many bytes a small decoder keeps for the backward pass."""
    size = residual.Size(batch=2, length=64, dim=64, vocab=64)
    with pictures.quiet():
        model = residual.own("llama", size, placement)
        return residual.activation_bytes(model, torch.randint(64, (2, 65)), "float32")


@rule
def activations(card: Card) -> str:
    """Whether a placement keeps much more than pre-norm for the backward pass."""
    if card.kind.name not in ("block", "whole layer"):
        return ""
    try:
        times = kept_by(card.name) / kept_by("pre-norm")
    except FAILURES:
        return ""
    if times < 1.15:
        return ""
    return f"training keeps about {times:.1f} times what pre-norm keeps for the backward pass, in a small decoder"


@rule
def place(card: Card) -> str:
    """Whether a layer must know where it is."""
    needed = [n for n in ("layer", "depth") if (p := card.signature.parameters.get(n)) and p.default is p.empty]
    if card.kind.name not in ("block", "whole layer", "norm", "layer", "core") or not needed:
        return ""
    return f"it must know its place, {named(needed)}: layers cannot be added or taken out later without building anew"


# Weights.


@rule
def new_weight(card: Card) -> str:
    """Whether a trained layer computes something else the moment it is put on."""
    if card.kind.name != "parametrization":
        return ""
    with pictures.quiet(), torch.no_grad():
        raw = card.draw(optional=False)[0]
        layer = nn.Linear(raw.shape[1], raw.shape[0])
        layer.weight.copy_(raw)
        try:
            parametrize.register_parametrization(layer, "weight", card.small().eval())
        except FAILURES:
            return ""
        same = torch.allclose(layer.weight, raw, atol=1e-4)
    return "" if same else "on a trained layer it changes the weight at once, and so what the layer computes"


@rule
def computed_anew(card: Card) -> str:
    """What a parametrization costs until it is baked in."""
    if card.kind.name != "parametrization":
        return ""
    return "each forward pass works the weight out anew: `nk.weight.bake` ends that after training"


@rule
def before_sharding(card: Card) -> str:
    """When it must be put on, beside fully_shard."""
    if card.kind.name != "parametrization":
        return ""
    return "put it on before `fully_shard`: a weight that is cut over processes takes no parametrization"


# Flows.


@rule
def inexact(card: Card) -> str:
    """Whether the inverse or the log-determinant is not that of the map."""
    inverse = next((why for key, why in card.exempt.items() if key.startswith("inverse")), "")
    if inverse:
        return f"inverse and density are not exact: {inverse}"
    why = reason(card, "log-det")
    return f"`log_det` is not the plain one of the Jacobian: {why}" if why else ""


class Operations(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


@rule
def slow_inverse(card: Card) -> str:
    """Whether one direction of a flow takes many more operations than the other."""
    if card.kind.name != "transform":
        return ""
    with pictures.quiet(), torch.no_grad():
        subject = card.kind.subject(card, seed=1)
        subject.made.eval()
        try:
            with Operations() as forward:
                y = subject.call(*subject.inputs)[0]
            with Operations() as inverse:
                subject.made.inverse(y, *subject.inputs[1:])
        except FAILURES:
            return ""
    times = inverse.count / forward.count
    return f"its inverse takes {times:.0f} times the operations of the forward pass, here on a small input" * (
        times > 3
    )


# Optimizers.


def stepped(card: Card, grads: list[Tensor], **options: Any) -> tuple[Any, list[Tensor]]:
    """An optimizer after two steps over matrices, and how far these went."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(grad.shape, generator=generator)) for grad in grads]
    before = [p.detach().clone() for p in parameters]
    _, given = card.arguments()
    made = card.kind.create(card, parameters, **{**given, **options})
    for _ in range(2):
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad.clone()
        made.step()
    return made, [p.detach() - b for p, b in zip(parameters, before, strict=True)]


def _matrices(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@rule
def memory(card: Card) -> str:
    """Whether an optimizer keeps more than AdamW."""
    if card.kind.name != "optimizer":
        return ""
    with pictures.quiet():
        try:
            made, [moved] = stepped(card, _matrices((128, 128)))
        except FAILURES:
            return ""
    states = made.state_dict()["state"].values()
    kept = sum(value.numel() for own in states for value in own.values() if isinstance(value, Tensor))
    times = kept / moved.numel()
    if times < 1.25 * MOMENTS:
        return ""
    return f"of a square matrix it keeps {times:.1f} numbers for each entry, AdamW 2: reckon with the memory"


@rule
def whole_matrix(card: Card) -> str:
    """Whether a step of an entry depends on the rest of its tensor."""
    if card.kind.name != "optimizer":
        return ""
    first, second = _matrices((16, 16)), _matrices((16, 16))
    second[0][0, :8] = 0.0
    others = second[0] != 0
    with pictures.quiet():
        try:
            (_, [one]), (_, [other]) = stepped(card, first), stepped(card, second)
        except FAILURES:
            return ""
    same = torch.allclose(one[others], other[others], rtol=1e-3, atol=1e-8)
    if same:
        return ""
    return "not under DeepSpeed's ZeRO, which hands over pieces: the step of an entry depends on others of its tensor"


@rule
def matrices(card: Card) -> str:
    """Whether it is for matrices alone."""
    if card.kind.name != "optimizer" or "..." in card.shape.axes:
        return ""
    return (
        "it is for the matrices inside a model: embeddings, head, gains and shifts go to AdamW, as "
        f'`nk.param_groups(model, "{card.name}")` divides them'
    )


@rule
def all_groups(card: Card) -> str:
    """Whether dividing parameters into groups changes the step."""
    why = reason(card, "groups")
    return f"freezing a layer changes the step of all others: {why}" if why else ""


@rule
def without_gradient(card: Card) -> str:
    """Whether parameters without a gradient move."""
    why = reason(card, "no-gradient")
    return f"a parameter that gets no gradient in a step moves all the same: {why}" if why else ""


# Adapters.


@rule
def trained_parts(card: Card) -> str:
    """Whether a model without norms is refused."""
    if card.kind.name != "adapter":
        return ""
    plain = nn.Sequential(nn.Conv2d(8, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))
    _, given = card.arguments()
    try:
        with pictures.quiet():
            card.entry(plain, **given)
    except FAILURES:
        return f"a model without any {card.entry.wants} is refused: that is what it trains"
    return ""


@rule
def calls(card: Card) -> str:
    """How often the model runs in a call."""
    if card.kind.name != "adapter":
        return ""
    with pictures.quiet():
        subject = card.kind.subject(card, dtype=torch.float32)
        seen = []
        for module in subject.made.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(lambda module, given, output: seen.append(len(output)))
        subject.call(*subject.inputs)
    rows = subject.inputs[0].shape[0] if "N" in card.shape.axes else 1
    times = sum(seen) / rows
    return f"a call runs the model {times:.0f} times on each sample, and learns besides" if times > 1.5 else ""
