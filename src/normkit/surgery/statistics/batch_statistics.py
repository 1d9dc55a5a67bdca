"""Find the layers that take statistics over the batch, and estimate these statistics anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from normkit.parameters import copy_model, remove_after
from normkit.running import Running, averaging
from normkit.statistics import accurate
from normkit.surgery import proof
from normkit.surgery.edits.changes import Change, Report
from normkit.surgery.edits.layers import takes_batch_statistics
from normkit.threads import processor_by_default

__all__ = ["recalibrate"]

UNREACHED = "no batch of data reaches it in train mode"


def batch_norms(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of ``model`` that take batch statistics, by name; a shared one under each of its names."""
    return {name: m for name, m in model.named_modules(remove_duplicate=False) if takes_batch_statistics(m)}


def feed(model: nn.Module, batch: Any) -> Any:
    """Call the model, where it is, on a batch: a tensor, a tuple whose first entry is the input, or named arguments."""
    args, named = arguments_in(model, batch)
    return model(*args, **named)


def arguments_in(model: nn.Module, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what :func:`feed` calls a model with, where the model is."""
    places = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    if len(places) == 1:
        (place,) = places
        named = dict(batch) if isinstance(batch, Mapping) else batch  # a tokenizer's is a class of its own
        batch = tree_map_only(Tensor, lambda tensor: tensor.to(place), named)
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (batch[0] if isinstance(batch, tuple | list) else batch,), {}


def field_of(output: Any, name: str) -> Any:
    """Return a field of what a model returns, such as its loss, by key or attribute; None where there is none."""
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def scores_of(output: Any) -> Any:
    """Return the logits of what a model returns, or the first of several results; of one, itself.

    >>> scores_of({"logits": 1, "loss": 2}), scores_of((1, 2)), scores_of(1)
    (1, 1, 1)
    """
    logits = field_of(output, "logits")
    return logits if logits is not None else output[0] if isinstance(output, tuple | list) else output


@torch.no_grad()
def recalibrate(model: nn.Module, data: Iterable[Any], *, inplace: bool = True) -> Report:
    """Estimate all batch statistics of a model anew, from one pass over ``data``, and leave it in evaluation.

    After its weights were changed: averaged, pruned, quantized, or brought to other data. The running estimates start
    afresh and become plain averages over the batches, all layers in the same pass, with the model in train mode and
    without gradients. What a layer keeps besides (a task's number) stays. Other layers that change their state in
    training do so: a spectral norm goes on with its vectors. A layer that no batch reaches keeps its estimates, as does
    one that the model holds in evaluation. A pass that fails leaves all buffers and modes as they were. The report says
    how far those of each layer moved, relative to the largest that they are now.

    Args:
        model: a model with layers that take statistics over the batch.
        data: batches as the model takes them: tensors, tuples that begin with one, or dictionaries of arguments.
        inplace: change the model; else a copy, which is the report's ``model``.

    >>> model = nn.Sequential(nn.BatchNorm1d(1))
    >>> report = recalibrate(model, [torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])])
    >>> model[0].running_mean
    tensor([3.])
    """
    proof.check_model("recalibrate", model)
    model = model if inplace else copy_model(model)
    return Report(model, estimate("recalibrate", model, data))


@torch.no_grad()
def estimate(owner: str, model: nn.Module, batches: Iterable[Any]) -> list[Change]:
    """Do what :func:`recalibrate` does, for a function whose name errors begin with; return how far layers moved."""
    named = batch_norms(model)
    layers = list(dict.fromkeys(named.values()))
    if not layers:
        raise ValueError(f"{owner}: the model has no layer with batch statistics")
    with _undone_on_error(model) as before, _plain_means(layers), averaging(model.buffers()):
        old = {layer: {name: before[buffer] for name, buffer in layer.named_buffers()} for layer in layers}
        model.train()
        with _afresh_at_first_call(old) as reached:
            number = -1
            for number, batch in enumerate(batches):
                _take(owner, model, number, batch)
            if number < 0:
                raise ValueError(f"{owner}: data holds no batch")
        _require_finite(owner, {name: layer for name, layer in named.items() if layer in reached})
    model.eval()
    return [_change(name, layer, old[layer], layer in reached) for name, layer in named.items()]


def _change(name: str, layer: nn.Module, old: Mapping[str, Tensor], reached: bool) -> Change:
    """What became of a layer."""
    if reached and old:
        return Change(name, type(layer).__name__, "estimated anew", (), _largest_change(old, layer))
    why = UNREACHED if old else "it keeps no statistics"
    return Change(name, type(layer).__name__, why_not=why)


def _largest_change(old: Mapping[str, Tensor], layer: nn.Module) -> float:
    """The largest change of a buffer's numbers, relative to the largest that it has now."""
    floats = [(new, old[name]) for name, new in layer.named_buffers() if new.is_floating_point()]
    return max((float((n - o).abs().max() / n.abs().max().clamp(min=1e-30)) for n, o in floats), default=0.0)


def _require_finite(owner: str, layers: Mapping[str, nn.Module]) -> None:
    for name, layer in layers.items():
        if not all(buffer.isfinite().all() for buffer in layer.buffers()):
            raise ValueError(f"{owner}: what {name or 'the model'} takes of data has NaN or infinite statistics")


def _take(owner: str, model: nn.Module, number: int, batch: Any) -> None:
    try:
        feed(model, batch)
    except (ValueError, RuntimeError, IndexError) as error:  # torch's own of shapes and indices are of the latter kinds
        raise ValueError(f"{owner}: batch {number} of data: {error}") from error


@contextmanager
def _undone_on_error(model: nn.Module) -> Iterator[dict[Tensor, Tensor]]:
    """Give a model its buffers and modes back where something goes wrong; meanwhile, what each buffer was."""
    modes = {module: module.training for module in model.modules()}
    held = [(part, name, b) for part in model.modules() for name, b in part._buffers.items() if b is not None]
    before = {b: b.clone() for _, _, b in held}
    try:
        yield before
    except BaseException:
        for part, name, b in held:
            part._buffers[name] = b.copy_(before[b])
        for module, mode in modes.items():
            module.training = mode
        raise


@contextmanager
def _plain_means(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Let torch's layers take the plain mean over batches, and have their momentum back behind it.

    Those of half precision are made to keep the last batch, and added up: beside a mean so short the share of a late
    batch is lost.
    """
    momenta = {layer: layer.momentum for layer in layers if isinstance(layer, _BatchNorm)}
    hooks = []
    try:
        for layer in momenta:
            layer.momentum = None
            mean = layer.running_mean
            if not isinstance(layer, Running) and mean is not None and accurate(mean) is not mean:
                layer.momentum = 1.0
                hooks.append(layer.register_forward_hook(_adding_up({})))
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer, momentum in momenta.items():
            layer.momentum = momentum


def _adding_up(sums: dict[str, Tensor]) -> Callable[[Any, Any, Any], None]:
    """A hook by which what a layer took of a batch becomes the mean over all batches since it was reset."""

    def add(layer: Any, inputs: Any, output: Any) -> None:
        for name in ("running_mean", "running_var"):
            taken = getattr(layer, name)
            sums[name] = taken.double() + (sums[name] if layer.num_batches_tracked > 1 else 0)
            taken.copy_(sums[name] / layer.num_batches_tracked)

    return add


@contextmanager
def _afresh_at_first_call(old: Mapping[nn.Module, Mapping[str, Tensor]]) -> Iterator[set[nn.Module]]:
    """Reset each layer before its first call in train mode; meanwhile, those that were called.

    old: what the buffers of each layer are before.
    """
    reached: set[nn.Module] = set()

    def start(layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if layer.training and layer not in reached:
            reached.add(layer)
            _start_afresh(layer, old[layer], inputs, named)

    with remove_after([layer.register_forward_pre_hook(start, with_kwargs=True) for layer in old]):
        yield reached


def _start_afresh(
    layer: nn.Module, old: Mapping[str, Tensor], inputs: tuple[Any, ...], named: Mapping[str, Any]
) -> None:
    """Reset the buffers that a call in train mode moves; the others are settings."""
    if isinstance(layer, _BatchNorm):
        layer.reset_running_stats()
        return
    with averaging(layer.buffers()):
        layer.forward(*inputs, **named)
    with processor_by_default():
        new = dict(type(layer)(**layer.arguments).named_buffers())  # type: ignore[arg-type]
    for name, buffer in layer.named_buffers():
        if not torch.equal(buffer, old[name]):
            buffer.copy_(new[name])
