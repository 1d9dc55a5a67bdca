"""Training batch normalization and only batch normalization: freeze the rest of a model."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from normkit import check
from normkit.norm import Norm
from normkit.surgery.edits.layers import takes_batch_statistics

STARTS = {
    "uniform": (0.0, 1.0, 0.0),
    "positivenegative": (-1.0, 1.0, 0.0),
    "fixed": (1.0, 1.0, 0.0),
    "oneone": (1.0, 1.0, 1.0),
}


def train_only(
    model: nn.Module, selection: str = "batchnorm", *, output: bool = False, exceptions: str | Sequence[str] = ()
) -> list[str]:
    """Freeze every parameter but the norms' gain and shift; return the names of those left to train.

    Sets ``requires_grad`` of all parameters. Modes do not change: in train mode the running statistics still move. A
    norm that is used in two places is counted once.

    Args:
        model: the model.
        selection: ``"batchnorm"``, the layers with batch statistics, or ``"norm"``, all normalizations of torch and of
            the library.
        output: train the last linear layer too.
        exceptions: names of further parameters to train, one or several, wildcards understood.

    Training BatchNorm and Only BatchNorm: On the Expressive Power of Random Features in CNNs (Frankle, Schwab, Morcos,
    2020), arXiv 2003.00152. That the output stays frozen by default is from memory of the paper.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    >>> train_only(model)
    ['1.weight', '1.bias']
    """
    check.choice("train_only", "selection", selection, ("batchnorm", "norm"))
    predicate = takes_batch_statistics if selection == "batchnorm" else _normalizes
    trained = {id(p) for m in model.modules() if predicate(m) for p in (_own(m, "weight"), _own(m, "bias"))}
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if output and linears:
        trained |= {id(p) for p in linears[-1].parameters()}
    named = dict(model.named_parameters(remove_duplicate=False))
    for pattern in (exceptions,) if isinstance(exceptions, str) else exceptions:
        further = {id(p) for name, p in named.items() if fnmatch.fnmatchcase(name, pattern)}
        if not further:
            raise ValueError(f"train_only: exceptions has {pattern!r}, which fits no parameter of {', '.join(named)}")
        trained |= further
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trained)
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


@torch.no_grad()
def start(model: nn.Module, norms: str = "uniform", generator: torch.Generator | None = None) -> None:
    """Give a model the initial values of that paper: random features, and gains spread over an interval.

    Weights of convolutions and linears are Kaiming-normal, their biases 0. Batch norms' gain and shift by ``norms``:

        uniform             gain in [0, 1), shift 0
        positivenegative    gain in [-1, 1), shift 0
        fixed               gain 1, shift 0
        oneone              gain 1, shift 1
    """
    low, high, shift = STARTS[check.choice("start", "norms", norms, tuple(STARTS))]
    for module in model.modules():
        weight, bias = _own(module, "weight"), _own(module, "bias")
        if isinstance(module, nn.Linear | _ConvNd) and weight is not None:
            nn.init.kaiming_normal_(weight, generator=generator)
            low_bias = 0.0
        elif takes_batch_statistics(module) and weight is not None:
            weight.uniform_(low, high, generator=generator)
            low_bias = shift
        else:
            continue
        if bias is not None:
            bias.fill_(low_bias)


def _own(module: nn.Module, name: str) -> nn.Parameter | None:
    return dict(module.named_parameters(recurse=False)).get(name)


def _normalizes(module: nn.Module) -> bool:
    torchs = isinstance(module, _NormBase | nn.LayerNorm | nn.GroupNorm | nn.RMSNorm)
    return torchs or isinstance(module, Norm)
