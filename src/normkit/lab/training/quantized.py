"""A trained model in few bits, and what its activations are like."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normkit.attention.core import AttentionCore
from normkit.choice import parsed
from normkit.lab.plan.bits import ACTIVATIONS, CACHES, OF_TWO
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.tasks import Task
from normkit.parameters import copy_model, remove_after
from normkit.quant.kivi import kivi
from normkit.quant.turboquant import TurboQuant
from normkit.statistics import accurate
from normkit.surgery.quantizing import caching
from normkit.surgery.quantizing.weights import quantize
from normkit.surgery.statistics.batch_statistics import feed

BATCHES = 16  # of the training data, that methods learn from
OUTLIER = 6.0  # times the root mean square of all, from which a channel's largest size is an outlier

Evaluate = Callable[[nn.Module], float]


def run(model: nn.Module, task: Task, settings: Settings, seed: int, evaluate: Evaluate) -> dict[str, Any]:
    """Return the loss and the bytes of a model as it is, what few bits make of them, and its activations."""
    model = copy_model(model).eval()
    with torch.no_grad():
        loss = evaluate(model)
    metrics: dict[str, Any] = {"loss": loss, "bytes": sum(p.nbytes for p in model.parameters())}
    batches = [_inputs(task.data.train(seed, step)) for step in range(1, BATCHES + 1)]
    metrics |= activations(model, batches[0])
    rows = []
    for text in settings.quant or ():
        for bits in settings.bits:
            row = {"method": text, "bits": bits}
            try:
                rows.append(row | _measure(model, text, bits, batches, evaluate))
            except (ValueError, RuntimeError) as error:
                rows.append(row | {"why": str(error)})
    return {**metrics, "rows": rows}


def _measure(model: nn.Module, text: str, bits: int, batches: list[Any], evaluate: Evaluate) -> dict[str, Any]:
    name, options = parsed(text)
    changed: Any
    size: int | None = None
    begun = time.process_time()
    if name == ACTIVATIONS:
        changed = rounded_inputs(model, bits)
    elif name in CACHES:
        changed = rounded_cache(model, name, bits, options)
    else:
        report = quantize(model, batches, method=name, bits=bits, **options)
        changed, size = contextlib.nullcontext(report.model), report.packed
    seconds = time.process_time() - begun
    with changed as few, torch.no_grad():
        return {"loss": evaluate(few.eval()), "bytes": size, "seconds": seconds}


@contextlib.contextmanager
def rounded_inputs(model: nn.Module, bits: int) -> Iterator[nn.Module]:
    """Within it, the inputs of linears are rounded to a grid from their least number to their largest."""

    def round_input(_: nn.Module, inputs: Any) -> Any:
        x = accurate(inputs[0])
        low, high = x.aminmax()
        scale = ((high - low) / (2**bits - 1)).clamp(min=torch.finfo(x.dtype).tiny)
        return ((x - low).div(scale).round() * scale + low).to(inputs[0].dtype), *inputs[1:]

    hooks = [part.register_forward_pre_hook(round_input) for part in model.modules() if isinstance(part, nn.Linear)]
    with remove_after(hooks):
        yield model


@contextlib.contextmanager
def rounded_cache(model: nn.Module, name: str, bits: int, options: dict[str, Any]) -> Iterator[nn.Module]:
    """Within it, attention reads keys and values back from few bits."""
    if name == "nsnquant" and bits != OF_TWO:
        raise ValueError(f"nsnquant has {OF_TWO} bits, not {bits}")
    cores = [part for part in model.modules() if isinstance(part, AttentionCore)]
    if not cores:
        raise ValueError(f"{name} rounds the keys and values of attention cores, and the model has none")

    def read_back(_: nn.Module, inputs: Any) -> Any:
        query, key, value, *rest = inputs
        return query, *_read_back(name, bits, options, key, value), *rest

    hooks = [core.register_forward_pre_hook(read_back) for core in cores]
    with remove_after(hooks):
        yield model


def _read_back(name: str, bits: int, options: dict[str, Any], key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    if name == "kivi":
        size = min(key.shape[-1], 32)
        cache = kivi(key, value, bits=bits, **{"group_size": size, "residual": size, **options})
        return cache.keys, cache.values
    if name == "turboquant":
        coder = _turboquant(key.shape[-1], bits, tuple(options.items())).to(key.device)
        return coder(key).y, coder(value).y
    key, value = (caching.decode(caching.encode(x), x.dtype) for x in (key, value))
    return key, value


@functools.cache
def _turboquant(dim: int, bits: int, options: tuple[tuple[str, Any], ...]) -> TurboQuant:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TurboQuant(dim, bits=bits, **dict(options))


@torch.no_grad()
def activations(model: nn.Module, batch: Any) -> dict[str, float]:
    """Return of the inputs of linears their kurtosis and the share of channels that are outliers, means over layers.

    A channel is an outlier where its largest size is above 6 root mean squares of the whole input.
    """
    measures: list[tuple[float, float]] = []

    def look(_: nn.Module, inputs: Any) -> None:
        x = accurate(inputs[0]).flatten(0, -2)
        centered = x - x.mean()
        kurtosis = centered.pow(4).mean() / centered.square().mean().square().clamp(min=1e-30)
        outliers = x.abs().amax(0) > OUTLIER * x.square().mean().sqrt()
        measures.append((float(kurtosis), float(outliers.float().mean())))

    hooks = [part.register_forward_pre_hook(look) for part in model.modules() if isinstance(part, nn.Linear)]
    with remove_after(hooks):
        feed(model, batch)
    kurtoses, outliers = zip(*measures, strict=True) if measures else ((float("nan"),), (float("nan"),))
    return {"kurtosis": sum(kurtoses) / len(kurtoses), "outliers": sum(outliers) / len(outliers)}


def _inputs(batch: Any) -> Any:
    """Return what :func:`feed` takes of a batch."""
    if isinstance(batch, Tensor):
        return batch[:, :-1]
    return {key: value for key, value in batch.items() if key != "labels"} if isinstance(batch, Mapping) else batch
