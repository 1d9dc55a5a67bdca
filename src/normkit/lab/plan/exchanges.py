"""What is known of the models that a comparison trains, so that no run recognizes their norms again.

The check of a plan builds every variant, and so finds the edits that exchange its norms; runs apply them, in other
processes as well. A model that is not like the one that was recognized is recognized itself.

>>> model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
>>> exchange(model, "rmsnorm", "my:model")[1]  # doctest: +ELLIPSIS
RMSNorm(8, ...)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from normkit.surgery.edits import Edit, replay
from normkit.surgery.recognition.effects import PLAIN
from normkit.surgery.recognition.recognize import Recognized, sized_table
from normkit.surgery.recognition.specimen import inputs_of
from normkit.surgery.replacement.swapping import edits_for, new_norms

if TYPE_CHECKING:
    from normkit.lab.plan.variants import Variant

_edits: dict[tuple[Hashable, str, str], Sequence[Edit]] = {}
_layers: dict[tuple[str, str, str], dict[str, str]] = {}
_tables: dict[tuple[Hashable, str], tuple[Recognized, dict[str, tuple[int, ...]], Any]] = {}  # of this process alone


def exchange(model: nn.Module, norm: str, built_by: Hashable, example: Callable[[], Any] = lambda: None) -> nn.Module:
    """Put a norm where a model's are; ``built_by`` is what has built it, which builds such models alone.

    example: gives an input of the model, as :func:`normkit.swap` takes it; left out if the model does not take it.
    """
    form = print_of(model)
    if (built_by, norm, form) not in _edits:
        if (built_by, form) not in _tables:
            sizes, given = _pass_through(model, example())
            _tables[built_by, form] = sized_table(model, sizes), sizes, given
        table, sizes, given = _tables[built_by, form]
        edits = edits_for(model, table, norm, sizes=sizes)
        new_norms(model, edits, sizes, given)
        _edits[built_by, norm, form] = edits
    return replay(model, _edits[built_by, norm, form])


def _pass_through(model: nn.Module, example: Any) -> tuple[dict[str, tuple[int, ...]], Any]:
    """Return the shapes of the modules' inputs and the example; nothing where the model does not take it."""
    try:
        return ({} if example is None else inputs_of(model, example)), example
    except Exception:  # the check passes a batch through the model, and says what does not fit
        return {}, None


def layers(model: nn.Module, variant: Variant, source: str) -> dict[str, str]:
    """Say of every slot that counts its layers how many there are in a model that a source has built for a variant."""
    key = source, variant.name, print_of(model)
    if key not in _layers:
        _layers[key] = variant.count_layers(model)
    return _layers[key]


def snapshot() -> tuple[Any, ...]:
    """Return what is known, for another process to take in."""
    return _edits, _layers


def take_in(other: tuple[Any, ...]) -> None:
    """Know what another process knows."""
    edits, counts = other
    _edits.update(edits)
    _layers.update(counts)


def forget() -> None:
    """Begin anew: under the same names, another comparison may have other models."""
    _edits.clear()
    _layers.clear()
    _tables.clear()


def print_of(model: nn.Module) -> str:
    """Return a short print of a model: its modules' classes and plain attributes, and the sizes of its tensors."""
    words = [
        f"{name} {type(part).__module__}.{type(part).__qualname__} {part.training} {_attributes(part)}"
        for name, part in model.named_modules(remove_duplicate=False)
    ]
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    words += [f"{name} {tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors]
    return hashlib.blake2b("\n".join(words).encode(), digest_size=16).hexdigest()


def _attributes(part: nn.Module) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in sorted(vars(part).items()) if isinstance(value, PLAIN)]
