"""Kinds whose methods are modules: norms, attention cores, blocks, parametrizations of weights, losses, transforms."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from normkit import check
from normkit.kinds.arguments import WIDTHS, bind, rename
from normkit.kinds.kind import (
    MODULE_LINES,
    NORM_LINES,
    PARAMETRIZATION_LINES,
    POINT_LINES,
    TRANSFORM_LINES,
    Kind,
    Subject,
)
from normkit.kinds.start import start_anew

if TYPE_CHECKING:
    from normkit.catalog import Card


CUT = {
    ("...", "C"),
    ("...", "C-1"),
    ("N", "C", "*"),
    ("N", "C", "+"),
    ("N", "C", "H", "W"),
}  # norms of these take DTensors
LEAF = "torch.nn"  # torch.fx asks an instance for its module, and calls those of torch.nn without looking into them


@dataclass(frozen=True)
class ModuleKind(Kind):
    """A module that is called with tensors and holds what it learns and keeps."""

    def prepare(self, entry: type[nn.Module], card: Card) -> None:
        """Give the class its card, and let it take ``device`` and ``dtype`` as torch's modules do."""
        entry.card = card  # type: ignore[attr-defined]
        if "takes_device" not in vars(entry):
            _take_device_and_dtype(entry, card.called)

    def takes(self, card: Card) -> list[str]:
        """The names of what a call takes."""
        return list(inspect.signature(card.entry.forward).parameters)[1:]

    def saved(self, instance: nn.Module) -> dict[str, tuple[Tensor, bool]]:
        """What ``state_dict`` holds."""
        learned = {name for name, _ in instance.named_parameters()}
        return {name: (value, name in learned) for name, value in instance.state_dict().items()}

    def subject(self, card: Card, features: int = 8, dtype: torch.dtype = torch.float64, **drawing: Any) -> Subject:
        """Build a smallest instance in ``dtype``, and draw inputs for it."""
        instance = self.small(card, features).to(dtype)
        inputs = self.draw(card, features, dtype=dtype, **drawing)
        return Subject(instance, inputs, instance, dict(instance.named_parameters()), dict(instance.named_buffers()))


class NormKind(ModuleKind):
    """A module in the place of a LayerNorm."""

    def prepare(self, entry: type[nn.Module], card: Card) -> None:
        """Let one that joins its statistics over processes take a DTensor whose samples are sharded."""
        from normkit.ops.sharded import by_parts_or_refused, by_samples

        super().prepare(entry, card)
        alone = None if card.spans_samples else card.shape.samples
        if card.spans_samples and "sync" in card.signature.parameters:
            entry.forward = by_samples(entry.forward, card.shape.samples)  # type: ignore[arg-type]
        elif card.shape.axes not in CUT or any(not layout.optional for layout in card.inputs.values()):
            entry.forward = by_parts_or_refused(entry.forward, alone)


NORM = NormKind("norm", "norm", "activation", MODULE_LINES | POINT_LINES | NORM_LINES)
LAYER = ModuleKind("layer", "layer", "activation", MODULE_LINES | POINT_LINES)
CORE = ModuleKind("core", "core", "attention", MODULE_LINES)
BLOCK = ModuleKind("block", "block", "residual", MODULE_LINES)
OF_WEIGHTS = {line: text for line, text in MODULE_LINES.items() if line != "empty"}  # a weight has no samples
PARAMETRIZATION = ModuleKind("parametrization", "parametrization", "weight", OF_WEIGHTS | PARAMETRIZATION_LINES)
LOSS = ModuleKind("loss", "loss", "loss", MODULE_LINES)
TRANSFORM = ModuleKind("transform", "transform", "density", MODULE_LINES | TRANSFORM_LINES)


class Method(nn.Module):
    """What all modules of the catalogue share.

    ``arguments`` are the values that the module was built with; ``repr`` prints them all, so that a dialect (where
    eps sits, what the gain is added to) can be read off a printed model.
    """

    kind: ClassVar[Kind] = LAYER
    card: ClassVar[Card]
    arguments: dict[str, Any]

    def extra_repr(self) -> str:
        """Write the arguments as they would be typed."""
        (first, value), *rest = list(self.arguments.items()) or [("", None)]
        takes = next(iter(self.card.signature.parameters.values()), None)
        positional = takes is not None and takes.kind is takes.POSITIONAL_OR_KEYWORD
        shown = [repr(value) if positional else f"{first}={value!r}"] if first else []
        return ", ".join(shown + [f"{key}={self._now(key, value)!r}" for key, value in rest])

    def _now(self, key: str, value: Any) -> Any:
        """The number that an attribute holds by now: eps and momentum may be set."""
        now = getattr(self, key, value)
        return now if type(now) is type(value) is float else value

    def reset_parameters(self) -> None:
        """Start its own parameters and buffers anew, as torch's modules do; modules in it have this method themselves.

        Such a module begins as its own class does: a first value that this one gave it, such as zeros, is not kept.
        """
        torchs = getattr(super(), "reset_parameters", None)  # a subclass may also be one of torch's norms
        if torchs is None:
            start_anew(self)
        else:
            torchs()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take a pickle of when the width had another name."""
        old = next(iter(state.get("arguments", ())), None)
        if old in WIDTHS and (width := next(iter(self.card.signature.parameters))) != old and width in WIDTHS:
            state = {**rename(state, old, width), "arguments": rename(state["arguments"], old, width)}
        super().__setstate__(state)

    def __prepare_scriptable__(self):
        """Refuse what torch.jit.script would fail at, line by line."""
        raise NotImplementedError(
            f"{self._get_name()}: torch.jit.script cannot compile it; "
            "torch.compile, torch.export and torch.jit.trace can"
        )


class Parametrization(Method):
    """A map from a raw weight to the weight that is used, for ``torch.nn.utils.parametrize``.

    One that ``projects`` gives back what it gave, and so may also be done to a stored weight after every step. One
    that is ``per_output`` wants the outputs on the first axis, or on that of its ``dim``. One that is ``finite`` cannot
    take over a weight with NaN or infinities.
    """

    kind = PARAMETRIZATION
    forward: Callable[..., Tensor]
    projects: ClassVar[bool] = False
    per_output: ClassVar[bool] = False
    finite: ClassVar[bool] = False

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take a weight over as the raw one; what ``torch.nn.utils.parametrize`` calls at an assignment."""
        return weight

    def refusal(self, weight: Tensor) -> str:
        """Why a weight cannot be taken over, or an empty string."""
        if self.finite and check.readable(weight) and not weight.isfinite().all():
            return "weight has NaN or infinities"
        return ""

    @torch.no_grad()
    def project_(self, parameter: Tensor) -> Tensor:
        """Put the weight that a stored one gives in its place; the optimizer's state stays as it is."""
        return parameter.copy_(self(parameter))


class Loss(Method):
    """A map from what a model returns, and what it should have, to a single number to be lowered."""

    kind = LOSS
    forward: Callable[..., Tensor]


class Transform(Method):
    """An invertible map: ``forward`` returns the image and the log-determinant of its Jacobian, ``inverse`` the input.

    An ``inverse`` that also returns the log-determinant of its own returns both.
    """

    kind = TRANSFORM
    forward: Callable[..., tuple[Tensor, Tensor]]
    inverse: Callable[..., Tensor | tuple[Tensor, Tensor]]


def _take_device_and_dtype(cls: type[nn.Module], called: Mapping[str, str]) -> None:
    """Wrap ``__init__``: take any form of the arguments, remember them for ``repr``, build on ``device``, in ``dtype``.

    A class that an alias made of ``cls`` says in ``brought`` what it gives where a call does not.
    """
    plain = _init_alone if cls.__init__ is nn.Module.__init__ else cls.__init__
    signature = _with_device_and_dtype(inspect.signature(plain))
    sensible = getattr(cls, "sensible", None)

    @functools.wraps(plain)
    def init(self, *args, **kwargs):
        name = type(self).__name__
        brought = getattr(type(self), "brought", None) if type(self).card.entry is cls else None
        bound = bind(name, signature, args, kwargs, called, brought=brought, sensible=sensible)
        bound.apply_defaults()
        device, dtype = bound.arguments.pop("device"), bound.arguments.pop("dtype")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise TypeError(f"{name}: dtype must be a floating-point torch.dtype, not {dtype!r}")
        if "arguments" not in self.__dict__:
            self.__dict__.update(arguments=_plain_values(bound), __module__=LEAF)
        with contextlib.nullcontext() if device is None else check.device(name, device):
            plain(self, *bound.args, **bound.kwargs)
        if dtype is not None:
            self.to(dtype)

    init.__signature__ = inspect.signature(plain).replace(  # type: ignore[attr-defined]
        parameters=[next(iter(inspect.signature(plain).parameters.values())), *signature.parameters.values()]
    )
    cls.__init__ = init  # type: ignore[method-assign]
    cls.takes_device = True  # type: ignore[attr-defined]


def _init_alone(self: nn.Module) -> None:
    """Take no arguments, as a class without a constructor of its own; torch's names any."""
    nn.Module.__init__(self)


def _with_device_and_dtype(signature: inspect.Signature) -> inspect.Signature:
    """Put ``device`` and ``dtype`` behind the arguments of a constructor, and leave ``self`` out."""
    own = [p for p in list(signature.parameters.values())[1:] if p.name not in ("device", "dtype")]
    extra = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=None) for n in ("device", "dtype")]
    split = len(own) - sum(p.kind is p.VAR_KEYWORD for p in own)
    return inspect.Signature([*own[:split], *extra, *own[split:]])


def _plain_values(bound: inspect.BoundArguments) -> dict[str, Any]:
    values = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            values.update(values.pop(parameter.name))
    return {key: value for key, value in values.items() if not isinstance(value, nn.Module | torch.Tensor)}
