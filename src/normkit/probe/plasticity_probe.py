"""Plasticity: how well a network, from the weights that it has, still learns something new."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.kinds.start import own_parts
from normkit.parameters import copy_model, for_gradients, trial
from normkit.statistics import accurate

SGD = functools.partial(torch.optim.SGD, lr=0.05)


class Plasticity(NamedTuple):
    """The loss before and after, and how far the latter is below that of the best constant."""

    initial_loss: Tensor
    final_loss: Tensor
    plasticity: Tensor


class Spread(NamedTuple):
    """The mean over several targets, and the deviation, over their number."""

    mean: Tensor
    spread: Tensor


@method(
    "plasticity-probe",
    paper="Understanding Plasticity in Neural Networks (Lyle et al., 2023), arXiv 2303.01486",
    evidence="equations",
    shape="H C",
    inputs={"second": "K H", "probe_first": "H C", "probe_second": "K H", "inputs": "N C"},
    example={"steps": 5, "frequency": 3.0},
    exempt={"gradcheck": "a probe, not a loss: it has no gradient"},
    provenance="No code of the authors; the steps and the rate are ours.",
)
@torch.inference_mode(False)
def plasticity_probe(
    first: Tensor,
    second: Tensor,
    probe_first: Tensor,
    probe_second: Tensor,
    inputs: Tensor,
    *,
    steps: int = 50,
    lr: float = 0.05,
    frequency: float = 1e5,
) -> Plasticity:
    """Train a copy of a two-layer network on a new random task, and tell how far it got.

    For networks trained on one task after another.

    :func:`plasticity` probes any model; here it is f(x) = second relu(first x), f' that of the probe's weights, fresh
    ones, and gradient descent is taken on all inputs at once.

        t_n = sin(frequency f'(x_n)) + mean of f(x),    plasticity = mean (t - mean t)^2 - loss after the steps

    Near the variance of the targets it fits everything; at 0 it learns no more than a constant. The answer depends on
    steps and rate: compare only equal ones.

    Args:
        first: weights of the first layer, (H, D).
        second: of the second, (K, H).
        probe_first: fresh weights of the first layer, (H, D).
        probe_second: of the second, (K, H).
        inputs: a batch, (N, D).
        steps: of gradient descent.
        lr: its rate.
        frequency: how nearly random the targets are.

    Returns ``initial_loss``, ``final_loss`` and ``plasticity``. No gradient.

    Understanding Plasticity in Neural Networks (Lyle et al., 2023), arXiv 2303.01486.
    """
    _check(first, second, probe_first, probe_second, inputs)
    optimizer = functools.partial(torch.optim.SGD, lr=check.number("plasticity_probe", "lr", lr, 0.0))
    steps = check.size("plasticity_probe", "steps", steps, 0)
    frequency = check.number("plasticity_probe", "frequency", frequency)
    wide = accurate(inputs.detach())
    model, fresh = _network(first, second, wide), _network(probe_first, probe_second, wide)
    scores = _learn(model, _targets(model, fresh, wide, frequency), wide, steps, optimizer)
    return Plasticity(*(value.to(first.dtype) for value in scores))


@torch.inference_mode(False)
def plasticity(
    model: nn.Module,
    inputs: Tensor,
    *,
    steps: int = 50,
    optimizer: Callable[[Any], torch.optim.Optimizer] = SGD,
    frequency: float = 1e5,
    targets: int = 3,
    generator: torch.Generator | None = None,
) -> Spread:
    """Return the plasticity of any model: the mean over several random tasks, and their spread.

    A copy is trained, its norms in training and its dropout off, by an optimizer without a past; the model and torch's
    random state stay as they were. The tasks come from ``generator``, by default the same at every call, so that
    checkpoints compare. Modules that hold parameters must know how to draw them, ``reset_parameters``.
    """
    steps, targets = check.size("plasticity", "steps", steps, 0), check.size("plasticity", "targets", targets)
    if not isinstance(model, nn.Module):
        raise TypeError(f"plasticity: model must be a torch.nn.Module, not {model!r}")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("plasticity: model must have a parameter that requires grad, or it learns nothing")
    if not isinstance(inputs, Tensor):
        raise TypeError(f"plasticity: inputs must be a tensor, not {type(inputs).__name__}")
    if not inputs.numel():
        raise ValueError(f"plasticity: inputs must hold at least one sample, but their shape is {tuple(inputs.shape)}")
    generator = generator or torch.Generator().manual_seed(0)
    scores = []
    for _ in range(targets):
        subject = _prepare(model)
        with trial(subject):
            aim = _targets(subject, _fresh(model, generator), inputs, frequency)
            scores.append(_learn(subject, aim, inputs, steps, optimizer).plasticity)
    values = torch.stack(scores)
    return Spread(values.mean(), values.std(correction=0))


def _check(first: Tensor, second: Tensor, probe_first: Tensor, probe_second: Tensor, inputs: Tensor) -> None:
    name = "plasticity_probe"
    check.values(name, "first", first, (None, None), first)
    check.values(name, "second", second, (None, len(first)), first)
    check.values(name, "probe_first", probe_first, (None, first.shape[1]), first)
    check.values(name, "probe_second", probe_second, (len(second), len(probe_first)), first)
    check.values(name, "inputs", inputs, (None, first.shape[1]), first)


def _network(first: Tensor, second: Tensor, like: Tensor) -> nn.Module:
    layers = [nn.utils.skip_init(nn.Linear, *w.shape[::-1], bias=False, dtype=like.dtype) for w in (first, second)]
    for layer, weight in zip(layers, (first, second), strict=True):
        layer.weight = nn.Parameter(weight.detach().to(like.dtype, copy=True))
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


def _prepare(model: nn.Module) -> nn.Module:
    """A copy in training without dropout, at least in float32."""
    own: Any = copy_model(model).train()
    for part in own.modules():
        if isinstance(part, _DropoutNd):
            part.eval()
        elif isinstance(getattr(part, "dropout", None), float):  # of torch's attention and recurrent layers
            part.dropout = 0.0
    return own.float() if any(p.dtype in (torch.float16, torch.bfloat16) for p in own.parameters()) else own


def _fresh(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """A copy with weights newly drawn."""
    own = _prepare(model)
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        started: set[int] = set()
        for name, part in own.named_modules():
            reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
            if reset is not None:
                reset()
                started |= {id(inner) for _, inner in own_parts(part)} if isinstance(part, Method) else set()
            elif id(part) not in started and next(part.parameters(recurse=False), None) is not None:
                raise TypeError(f"plasticity: {name or 'model'} ({type(part).__name__}) has no reset_parameters")
    return own


@torch.no_grad()
def _targets(model: nn.Module, fresh: nn.Module, inputs: Tensor, frequency: float) -> Tensor:
    """In float64, whose sine of a large number is still that number's; the copy's statistics stay out of it."""
    exact = inputs.double() if inputs.is_floating_point() else inputs
    offset = copy_model(model).double()(exact).mean(0, keepdim=True)
    return torch.sin(frequency * fresh.double()(exact)) + offset


def _learn(
    model: nn.Module, targets: Tensor, inputs: Tensor, steps: int, optimizer: Callable[[Any], torch.optim.Optimizer]
) -> Plasticity:
    """Train the model, which is a copy, and measure it before and after."""
    kind = next(model.parameters()).dtype
    x = for_gradients(inputs.to(kind) if inputs.is_floating_point() else inputs)
    update = optimizer(model.parameters())
    losses = []
    with torch.enable_grad():
        for step in range(steps + 1):
            loss = (model(x) - targets).square().mean()
            losses.append(loss.detach())
            if step < steps:
                update.zero_grad()
                loss.backward()
                update.step()
    best = (targets - targets.mean(0)).square().mean()
    return Plasticity(losses[0], losses[-1], best - losses[-1])
