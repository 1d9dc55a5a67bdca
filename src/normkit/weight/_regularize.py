"""Regularizers of weights, collected over a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.kinds import LOSS
from normkit.ops.sharded import is_sharded, whole
from normkit.parameters import buffers_apart, own_parameter
from normkit.weight._apply import check_model
from normkit.weight._layers import LAZY, Table, Where, options_for, row_of, selects
from normkit.weight._penalty import Penalty
from normkit.where import require_known


class Regularizer(nn.Module):
    """The sum of a loss over the weights of a model, times a strength: ``regularizer()``; ``table`` tells which."""

    def __init__(self, table: Table, parts: list[tuple[nn.Module, str, Penalty]], strength: float):
        super().__init__()
        self.table, self.strength = table, strength
        self.parts = nn.ModuleList(penalty for _, _, penalty in parts)
        # a tuple: they are not parts of this module
        self.places = tuple([(module, tensor) for module, tensor, _ in parts])

    def forward(self) -> Tensor:
        """Return the loss, a single number; of sharded weights, which are gathered, on every process."""
        total: list[Tensor] = []
        taken: dict[int, Tensor] = {}
        for penalty, (module, tensor) in zip(self.parts, self.places, strict=True):
            inputs = penalty.inputs(module, tensor)  # type: ignore[operator]
            if inputs is not None:
                if penalty.beside:
                    inputs = (inputs[0], *(x for x in inputs[1:] if id(x) not in taken))
                    taken |= {id(x): x for x in inputs[1:]}  # kept: no other tensor gets the id of one
                total.append(penalty(*map(whole, inputs)))
        return self.strength * torch.stack(total).sum() if total else torch.zeros(())


@torch.inference_mode(False)
def regularize(
    model: nn.Module, name: str, *, where: Where = None, strength: float = 1.0, **options: Any
) -> Regularizer:
    """Collect a loss on weights over a model; call what comes back in every step, and add it to the loss.

    A tensor that several layers share counts once. In training each reading of a weight that spectral norm makes moves
    its singular vectors, so also a call of the loss. ``torch.nn.utils.parametrize.cached()`` around both lets the model
    and the loss share one reading.

    Args:
        model: the model.
        name: ``"group-orthogonality"``, ``"lambda-orthogonality"``, ``"spectral-regularizer"``,
            ``"wasserstein-init-regularizer"`` or ``"relevance-penalty"``, which is called after ``backward()``.
        where: which layers, as for :func:`apply`. None: linear layers and convolutions; of the last two losses all
            parameters of all layers.
        strength: what the sum is multiplied by.
        **options: arguments of the loss; one that is a function is called with the layer's name and weight.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> penalty = regularize(model, "group-orthogonality", num_groups=2)
    >>> print(penalty.table)
    0.weight  Linear  8x4  group-orthogonality
    2.weight  Linear  2x8  needs at least min_num_filters=4 filters
    group-orthogonality: 1 of 2 layers
    >>> loss = penalty()
    """
    check_model("regularize", model)
    require_known("regularize", where, model)
    check.number("regularize", "strength", strength)
    choice = catalog.choose("regularize", "name", name, LOSS).with_arguments(options)
    if not issubclass(choice.card.entry, Penalty):
        known = [card.name for card in catalog.members(LOSS) if issubclass(card.entry, Penalty)]
        raise ValueError(f"regularize: {choice.card.name} is no loss on weights; those are {', '.join(known)}")
    rows, parts = [], []
    first: dict[int, str] = {}  # where a parameter counts
    for layer, module in model.named_modules():
        if not (selects(where, layer, module) or (where is None and choice.card.entry.everywhere)):
            continue
        for tensor in choice.card.entry.tensors(module):
            with buffers_apart(module):  # a weight of spectral norm moves its vectors where it is read
                value = getattr(module, tensor)
            penalty, path = _make(choice, module, layer, value), f"{layer}.{tensor}".lstrip(".")
            if isinstance(penalty, Penalty):
                own = own_parameter(module, tensor)
                counted = path if own is None else first.setdefault(id(own), path)
                penalty.shared = counted != path
                if not penalty.shared or penalty.beside:
                    parts.append((module, tensor, penalty))
                penalty = f"shared with {counted}" if penalty.shared else penalty
            rows.append(row_of(path, module, value, penalty))
    if not parts:
        raise ValueError(f"regularize: {choice.card.name} fits no layer that where={where!r} chooses")
    return Regularizer(Table(choice.card.name, rows), parts, strength)


def _make(choice: catalog.Choice, module: nn.Module, name: str, value: Tensor) -> Penalty | str:
    options = LAZY if nn.parameter.is_lazy(value) else options_for(choice, module, name, value)
    if isinstance(options, str):
        return options
    penalty = choice.card.kind.create(choice.card, **options, device=value.device, dtype=value.dtype)
    why = penalty.misfit(value, options)
    if why:
        return why
    _share(penalty, value)
    penalty.reset(whole(value.detach()))
    return penalty


def _share(penalty: Penalty, value: Any) -> None:
    """Let the processes of a sharded weight begin with what the first of them has drawn."""
    if is_sharded(value):
        from torch.distributed.tensor import Replicate, distribute_tensor

        for drawn in penalty.buffers():
            drawn.copy_(distribute_tensor(drawn, value.device_mesh, [Replicate()] * value.device_mesh.ndim).to_local())
