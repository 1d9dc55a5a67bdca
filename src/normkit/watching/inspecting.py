"""A look at a model that is not being trained: a few passes forward and backward, a health table, and the diagnosis."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check
from normkit.columns import aligned
from normkit.parameters import buffers_apart, copy_model, for_gradients, mode
from normkit.surgery.models import import_object
from normkit.surgery.proof import require_model
from normkit.surgery.statistics.batch_statistics import feed, field_of
from normkit.watching import health, taps
from normkit.watching.diagnosis import Diagnosis
from normkit.watching.history import History
from normkit.watching.seen import Seen
from normkit.watching.signals.signal import first_tensor, local_tensors
from normkit.watching.watching import Watch

TOKENS, SAMPLES, SIDE = 64, 2, 64  # of a batch that is made up
OWN, DISTANCE = "the model's own", "squared distance to the targets"  # losses, as they are printed
IGNORED = -100  # a class that torch's cross entropy leaves out
CLASSES, NEXT = "cross entropy of classes", "cross entropy of the next token"


class Inspection(Seen):
    """What a look has shown; printed as a table of the blocks and the diagnosis."""

    name = "inspect"

    def __init__(self, watch: Watch, losses: Sequence[str]):
        self.seen, self.losses = watch, losses

    def history(self) -> History:
        """Return the numbers."""
        return self.seen.history()

    def diagnosis(self) -> Diagnosis:
        """Return what is wrong, and what would help."""
        return self.seen.diagnosis()

    def table(self) -> list[tuple[str, ...]]:
        """Return a row a block, below the titles of the columns; a column without numbers is left out."""
        return health.table(self.history())

    def __str__(self) -> str:
        head = f"{health.head(self.history())}\nloss: {'; '.join(self.losses)}"
        return "\n\n".join([head, "\n".join(aligned(self.table(), numbers=True)), str(self.diagnosis())])


def inspect(model: nn.Module, batches: Iterable[Any] | None = None, *, passes: int = 2) -> Inspection:
    """Look at a model by a few passes forward and backward: how healthy it is before a training, or after one.

    The model is left as it was: parameters, buffers, gradients, mode, and torch's random state.

    Args:
        model: any model.
        batches: what it is fed: tensors, tuples of inputs and targets, or keyword arguments. Without them a batch of
            random numbers is made up to suit the model's first layer. The loss is printed: the model's own, the cross
            entropy of integer classes or next tokens, the squared distance to float targets, else the outputs' power.
        passes: how many batches are taken.

    >>> print(inspect(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), [torch.ones(3, 4)]).table()[0])
    ('block', 'rms', 'largest', 'kurtosis', 'gradient')
    """
    require_model("inspect", model)
    passes = check.size("inspect", "passes", passes)
    watch = Watch(model, every=1, signals=("activations", "attention", "gradients", "spectra"))
    sample = batches_for("inspect", make_batches(model) if batches is None else batches, passes)
    losses = dict[str, None]()
    with restore_after(model), watch:
        model.train()
        for batch in sample:
            model.zero_grad()
            name, loss = name_loss(feed_to("inspect", model, batch, own=batches is not None), batch)
            losses[name] = None
            require_gradient(model, loss)
            loss.backward()
    return Inspection(watch, tuple(losses))


def feed_to(owner: str, model: nn.Module, batch: Any, own: bool = True) -> Any:
    """Feed a model; say of an error by what it was fed."""
    with errors_named(owner, model, batch, own):
        return feed(model, batch)


@contextmanager
def errors_named(owner: str, model: nn.Module, batch: Any, own: bool = True) -> Iterator[None]:
    """Say of an error by what a model was fed; ``own``: it is the user's, and not made up."""
    try:
        yield
    except Exception as error:
        what = "the batch" if own else "random numbers that were made up for its first layer"
        advice = "its forward does not take it"
        if not own:
            advice = "hand in batches, or name them: --data package.module:loader"
        elif isinstance(batch, Mapping):
            advice = "the entries of a dictionary are its forward's arguments; else hand in (input, target)"
        raise ValueError(
            f"{owner}: {type(model).__name__} fails on {what} ({type(error).__name__}: {error}); {advice}"
        ) from error


def require_gradient(model: nn.Module, loss: Tensor) -> None:
    """Refuse a model whose loss has no gradient."""
    if not loss.requires_grad:
        trained = any(p.requires_grad for p in model.parameters())
        why = "its outputs are detached from its parameters" if trained else "no parameter requires one"
        raise ValueError(f"inspect: the loss of {type(model).__name__} has no gradient: {why}")


@contextmanager
def restore_after(model: nn.Module) -> Iterator[None]:
    """Give a model its buffers, gradients and modes back, and torch its random state.

    Hooks of parameters rest meanwhile, as an optimizer may step in them; so do other watches of the model.
    """
    before = [(p, p.grad, p._backward_hooks, p._post_accumulate_grad_hooks) for p in model.parameters()]
    try:
        with torch.inference_mode(False), mode(model), buffers_apart(model), torch.random.fork_rng(), taps.rest(model):
            for p, *_ in before:
                p.grad, p._backward_hooks = None, None
                p._post_accumulate_grad_hooks = OrderedDict()  # None would leave torch with those that are on
            yield
    finally:
        for p, slope, hooks, later_hooks in before:
            p.grad, p._backward_hooks = slope, hooks
            p._post_accumulate_grad_hooks = later_hooks


def dense_copy(model: nn.Module) -> nn.Module:
    """Copy a model; the copy's tables get dense gradients, as few optimizers and no second derivatives take others."""
    twin = copy_model(model)
    for part in twin.modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag):
            part.sparse = False
    return twin


def batches_for(owner: str, batches: Iterable[Any], most: int | None = None) -> list[Any]:
    """Return batches as a list, the first ``most``, which must hold one at least."""
    listed = list(itertools.islice(batches, most))
    if not listed:
        raise ValueError(f"{owner}: batches must hold at least one batch, and hold none")
    with torch.inference_mode(False):
        return [for_gradients(batch) for batch in listed]


def is_finite(batch: Any) -> bool:
    """Whether no tensor of a batch has NaN or infinite values; those of -inf are masks.

    >>> is_finite({"x": torch.ones(2), "mask": torch.tensor([0.0, -torch.inf])}), is_finite([torch.tensor(torch.nan)])
    (True, False)
    """
    return not any(bool((x.isnan() | (x == torch.inf)).any()) for x in local_tensors(batch) if x.is_floating_point())


def loss_of(output: Any, batch: Any) -> Tensor:
    """Return the loss of a training, where :func:`known_loss` has one, else the power of what the model gives."""
    return name_loss(output, batch)[1]


def name_loss(output: Any, batch: Any) -> tuple[str, Tensor]:
    """Return what :func:`loss_of` takes, in words, and its value."""
    known = known_loss(output, batch)
    if known is not None:
        return known
    why = "has no targets" if target_of(batch) is None else "has targets that do not fit the outputs"
    return f"mean square of the outputs, as a batch {why}", _scores(output).float().square().mean()


def target_of(batch: Any) -> Tensor | None:
    """Return the target in a pair of inputs and target; None where there is none."""
    target = batch[1] if isinstance(batch, tuple | list) and len(batch) > 1 else None
    return target if isinstance(target, Tensor) else None


def known_loss(output: Any, batch: Any) -> tuple[str, Tensor] | None:
    """Return the loss that a batch tells of, in words, and its value; None where it tells of none.

    It is the model's own; the cross entropy of classes; the squared distance to numbers; of tokens alone, the cross
    entropy of the next one. Floats that can only be classes are refused.
    """
    own = field_of(output, "loss")
    scores = own if isinstance(own, Tensor) else _scores(output)
    if scores is own or not scores.dim():
        return OWN, scores
    target = target_of(batch)
    tokens = batch.get("input_ids") if isinstance(batch, Mapping) else batch
    if target is not None and target.is_floating_point():
        if target.dim() and len(target) == len(scores) and target.numel() == scores.numel():
            return DISTANCE, F.mse_loss(scores.float(), target.to(scores.device).float().view_as(scores))
        refuse_float_classes(scores, target)
        return None
    name = CLASSES
    if target is None and isinstance(tokens, Tensor) and _are_words(tokens, scores):
        name, scores, target = NEXT, scores[:, :-1], tokens[:, 1:].long()
    if target is None or scores.dim() < 2:
        return None
    scores = classes_last(scores, target)
    if target.numel() != scores[..., 0].numel():
        return None
    require_classes(target, scores.shape[-1])
    return name, F.cross_entropy(scores.flatten(0, -2).float(), target.flatten().to(scores.device).long())


def refuse_float_classes(scores: Tensor, target: Tensor) -> None:
    """Refuse floats that fit scores as the numbers of classes alone, as a table's do.

    >>> refuse_float_classes(torch.zeros(3, 2), torch.tensor([0.0, 1.0, 1.0]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: targets of shape (3,) are whole numbers below 2, the number of outputs, but torch.float32: ...
    """
    if not scores.dim():
        return
    by_class = classes_last(scores, target)
    classes = by_class.shape[-1]
    fits = target.numel() == by_class[..., 0].numel()
    if fits and bool(((target == target.round()) & (target >= 0) & (target < classes)).all()):
        raise ValueError(
            f"targets of shape {tuple(target.shape)} are whole numbers below {classes}, the number of outputs, but "
            f"{target.dtype}: hand in classes as integers, target.long(), or numbers in the shape of the outputs, "
            f"{tuple(scores.shape)}"
        )


def require_classes(target: Tensor, count: int) -> None:
    """Refuse integers that are no classes of so many outputs; -100 leaves one out, as torch's cross entropy has it.

    >>> require_classes(torch.tensor([0, -100, 2]), 2)
    Traceback (most recent call last):
    ValueError: targets of shape (3,) must be classes from 0 to 1, or -100, not 2: the model has 2 outputs
    """
    if count < 2:
        raise ValueError(
            f"targets of shape {tuple(target.shape)} are integers, and classes need two outputs or more, not 1: hand "
            "in numbers as floats, target.float()"
        )
    target = target.detach().long()
    wrong = target[(target != IGNORED) & ((target < 0) | (target >= count))]
    if len(wrong):
        raise ValueError(
            f"targets of shape {tuple(target.shape)} must be classes from 0 to {count - 1}, or {IGNORED}, not "
            f"{int(wrong[0])}: the model has {count} outputs"
        )


def classes_last(scores: Tensor, target: Tensor) -> Tensor:
    """Return scores with their classes last, which may stand second, as torch has those of an image's points.

    Where either fits, they are last of tokens (N, T), and second of images.
    """
    last, second = scores.shape[:-1] == target.shape, scores.shape[:1] + scores.shape[2:] == target.shape
    return scores.movedim(1, -1) if second and not (last and target.dim() < 3) else scores


def _are_words(tokens: Tensor, scores: Tensor) -> bool:
    """Whether scores may be those of the words that tokens are numbers of."""
    if tokens.is_floating_point() or tokens.dim() != 2 or tokens.shape[1] < 2 or tokens.shape != scores.shape[:-1]:
        return False
    return bool(tokens.max() < scores.shape[-1])


def _scores(output: Any) -> Tensor:
    scores = first_tensor(output)
    if scores is None:
        raise ValueError(f"inspect: the model gives {type(output).__name__}, in which there is no floating tensor")
    return scores


def make_batches(model: nn.Module) -> Iterator[Any]:
    """Make batches for a model by its first layer: tokens, features or pictures."""
    chance = torch.Generator().manual_seed(0)
    config = getattr(model, "config", None)
    p = next(model.parameters())
    for _ in itertools.count():
        if config is not None and getattr(config, "vocab_size", None):
            length = min(TOKENS, getattr(config, "max_position_embeddings", None) or TOKENS)
            tokens = torch.randint(config.vocab_size, (SAMPLES, length), generator=chance, device="cpu").to(p.device)
            labelled = "ForCausalLM" in type(model).__name__ or "LMHead" in type(model).__name__
            yield {"input_ids": tokens, "labels": tokens} if labelled else {"input_ids": tokens}
            continue
        yield _for_first(model, chance).to(p.device)


def _for_first(model: nn.Module, chance: torch.Generator) -> Tensor:
    cfg = getattr(model, "default_cfg", None) or {}
    dtype = next(model.parameters()).dtype
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            sides = cfg.get("input_size", (0, *(SIDE,) * len(module.kernel_size)))[1:]
            return torch.randn(SAMPLES, module.in_channels, *sides, generator=chance, device="cpu").to(dtype)
        if isinstance(module, nn.Linear) and not tables:
            return torch.randn(16 * SAMPLES, module.in_features, generator=chance, device="cpu").to(dtype)
    if tables:
        length = min(TOKENS, getattr(model, "length", None) or TOKENS)
        return torch.randint(max(tables), (SAMPLES, length), generator=chance, device="cpu")
    raise ValueError("inspect: no batch can be made up for this model; hand in batches, or name them by --data")


def batches_of(word: str) -> Iterable[Any]:
    """Return batches by ``package.module:name``: an iterable, or a function that returns one."""
    if ":" not in word:
        raise ValueError(f"data must be built-in data or package.module:name, batches or a function, not {word!r}")
    batches = import_object(word, "data")
    batches = batches() if callable(batches) and not isinstance(batches, Iterable) else batches
    if not isinstance(batches, Iterable):
        raise ValueError(f"{word} gives {type(batches).__name__}, not batches")
    return batches
