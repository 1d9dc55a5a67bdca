"""A flow: a chain of invertible parts, and the laws that it stands for as distributions of torch."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, constraints

from normkit import check
from normkit.density._inputs import bind
from normkit.density._parts import FlowCondition, Part, Plain
from normkit.kinds.module import TRANSFORM
from normkit.ops.derivatives import once_differentiable, under_transform
from normkit.statistics import accurate

MEMORY = ("kept", "recomputed")


def shape_of(event: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a sample that is given by it, or by its length."""
    several = isinstance(event, Iterable) and not isinstance(event, str)
    return check.sizes("Flow", "event", tuple(event) if several else (event,))  # type: ignore[arg-type]


class Flow(nn.Module):
    """A chain of transforms from data to latents of a base law, which may depend on numbers or on labels.

    Args:
        parts: transforms of the catalogue or any module with ``forward(x) -> (z, log_det)`` and ``inverse(z)``; one
            that has :class:`Part` as its base also sees the context.
        event: the shape of a sample, or its length.
        context: how many numbers a law depends on.
        classes: how many labels; 0: none.
        base: a module with ``log_prob(z)`` (N,) and ``sample(n)``, or a distribution whose events are of that shape;
            None: standard normal.
        memory: ``"recomputed"``: the backward pass works out the input of each part from its output, so that memory
            does not grow with depth; it takes one more inverse of each part, and first derivatives are all there is.
            Under a transform of ``torch.func``, as some samplers have, it is as ``"kept"``.

    ``forward(x, context)`` returns ``z`` and ``log_det`` (N,), and ``inverse(z, context)`` the input, as a transform
    does, so that a flow is one: for ``neutra`` or ``flow-hmc``, or in another flow. :meth:`law` is the distribution.

    >>> import torch, normkit as nk
    >>> flow = nk.density.Flow([nk.create("ferumal-coupling", 2, num_points=4)], 2)
    >>> flow.law().log_prob(torch.zeros(2))
    tensor(-1.8379, grad_fn=<ViewBackward0>)
    """

    kind = TRANSFORM

    def __init__(
        self,
        parts: Iterable[nn.Module],
        event: int | Sequence[int],
        *,
        context: int = 0,
        classes: int = 0,
        base: nn.Module | Distribution | None = None,
        memory: str = "kept",
    ):
        super().__init__()
        self.event = torch.Size(shape_of(event))
        self.context = check.size("Flow", "context", context, least=0)
        self.classes = check.size("Flow", "classes", classes, least=0)
        self.memory = check.choice("Flow", "memory", memory, MEMORY)
        if isinstance(base, Distribution) and (base.batch_shape or base.event_shape != self.event):
            raise ValueError(
                f"Flow: base must have the event_shape {tuple(self.event)} and no batch_shape, but has "
                f"{tuple(base.event_shape)} and {tuple(base.batch_shape)}; torch.distributions.Independent(base, axes) "
                "makes batch axes those of an event"
            )
        self.base = base
        self.parts = nn.ModuleList(part if isinstance(part, Part) else Plain(part) for part in parts)

    def law(self, context: Tensor | None = None, **options: Any) -> Law:
        """Return the distribution, given numbers (..., context) or labels (...), whose leading axes are its batch.

        ``options`` are those of the parts' way back, such as ``guidance`` and ``attn_temp`` of tarflow: they change
        what is sampled, not ``log_prob``.
        """
        return Law(self, context, options)

    def forward(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the latents of samples (N, ...), and the log-determinants (N,)."""
        wide = self._samples("x", x)
        condition = self._conditions(context, len(x))
        if self.memory == "recomputed" and torch.is_grad_enabled() and not under_transform():
            learned = list(dict.fromkeys(self.parameters()))
            z, log_det = _Recomputed.apply(self, condition.labels, wide, condition.numbers, *learned)
        else:
            z, log_det = self._through(wide, condition)
        return z.to(x.dtype), log_det.to(x.dtype)

    def inverse(self, z: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        """Return the samples of latents (N, ...)."""
        if options:
            self._refuse_unknown(options)
        x, condition = self._samples("z", z), self._conditions(context, len(z))
        for part in reversed(self.parts):
            further = options if getattr(part, "mean", False) else {}
            x = part.inverse(x, condition, **further)  # type: ignore[operator]
        return x.to(z.dtype)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the log densities (N,) of samples (N, ...), each with a row of the context."""
        z, log_det = self(x, context)
        return self._base(z) + log_det

    def sample(self, n: int, context: Tensor | None = None, **options: Any) -> Tensor:
        """Draw ``n`` samples, each with a row of the context, without a gradient."""
        n = check.size("Flow", "n", n, least=0)
        with torch.no_grad():
            return self.inverse(self._latents((n,)), context, **options)

    @torch.no_grad()
    def initialize(self, x: Tensor, context: Tensor | None = None) -> Flow:
        """Set what starts from data by two finite samples (N, ...) or more, once: what was set, or loaded, stays."""
        wide, condition = self._samples("x", x), self._conditions(context, len(x))
        if len(x) < 2:
            raise ValueError(f"Flow: x must hold at least 2 samples to initialize from, not {len(x)}")
        for name, values in (("x", wide), ("context", condition.numbers)):
            if values is not None and not (finite := values.isfinite().flatten(1).all(1)).all():
                wrong = len(x) - int(finite.sum())
                raise ValueError(
                    f"Flow: {name} must be finite to initialize from, but {wrong} of {len(x)} rows are not"
                )
        for part in self.parts:
            setting = getattr(part.transform if isinstance(part, Plain) else part, "initialize", None)
            if setting is not None:
                setting(wide)
            wide = part(wide, condition)[0]
        return self

    def _through(self, x: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor]:
        log_det: Tensor | None = None
        for part in self.parts:
            x, change = part(x, condition)
            log_det = change if log_det is None else log_det + change
        return x, x.new_zeros(len(x)) if log_det is None else log_det

    def _samples(self, name: str, x: Tensor) -> Tensor:
        check.floating("Flow", x, name)
        check.shape("Flow", name, x, (None, *self.event))
        return accurate(x)

    def _conditions(self, context: Tensor | None, n: int) -> FlowCondition:
        """What the parts see, a row for each of ``n`` samples."""
        if (context is None) is bool(self.context or self.classes):
            form = f"numbers (..., {self.context})" if self.context else f"labels below {self.classes}"
            raise ValueError(f"Flow: {f'context must be {form}' if context is None else 'it depends on no context'}")
        if context is None:
            return FlowCondition()
        if self.context:
            check.values("Flow", "context", context, (n, self.context), context)
            return FlowCondition(accurate(context))
        check.index("Flow", "context", context, (n,), self.classes, context)
        return FlowCondition(nn.functional.one_hot(context, self.classes).to(self._like().dtype), context)

    def _refuse_unknown(self, options: Iterable[str]) -> None:
        """Refuse options that the way back of no part takes."""
        guided: list[Any] = [part.transform for part in self.parts if getattr(part, "mean", False)]
        takes = [name for transform in guided[:1] for name in inspect.signature(transform.inverse).parameters][2:]
        for name in options:
            if not takes:
                raise ValueError(f"Flow: {name} is an option of tarflow's way back, and no part of this flow has one")
            check.choice("Flow", "an option of the way back", name, takes)

    def _base(self, z: Tensor) -> Tensor:
        if self.base is not None:
            density = self.base.log_prob(z)  # type: ignore[operator]
            check.shape(self, "what base.log_prob returns", density, (len(z),))
            return density
        return z.flatten(1).square().sum(-1) * -0.5 - self.event.numel() * math.log(2 * math.pi) / 2

    def _latents(self, shape: tuple[int, ...]) -> Tensor:
        like = self._like()
        if self.base is None:
            return torch.randn(*shape, *self.event, dtype=like.dtype, device=like.device)
        n = torch.Size(shape).numel()
        drawn = self.base.sample((n,)) if isinstance(self.base, Distribution) else self.base.sample(n)  # type: ignore[operator]
        return drawn.to(next(self.parameters(), drawn)).reshape(*shape, *self.event)

    def _like(self) -> Tensor:
        return next(self.parameters(), torch.zeros(()))


class Law(Distribution):
    """The distribution of a flow, given something or nothing: what ``torch.distributions`` are.

    ``rsample`` is differentiable in the flow's parameters and in the context.
    """

    has_rsample = True
    arg_constraints: dict[str, Any] = {}

    def __init__(self, flow: Flow, context: Tensor | None = None, options: dict[str, Any] | None = None):
        self.flow, self.context, self.options = flow, context, options or {}
        if context is not None and not isinstance(context, Tensor):
            raise TypeError(f"Law: context must be a tensor, not {type(context).__name__}")
        if context is not None and flow.context and (context.dim() == 0 or context.shape[-1] != flow.context):
            raise ValueError(
                f"Law: context must end in {flow.context} numbers, but its shape is {tuple(context.shape)}"
            )
        leading = torch.Size() if context is None else context.shape[:-1] if flow.context else context.shape
        flow._refuse_unknown(self.options)
        if context is None:
            flow._conditions(None, 0)
        super().__init__(leading, flow.event, validate_args=False)

    def __repr__(self) -> str:
        shapes = f"batch_shape: {tuple(self.batch_shape)}, event_shape: {tuple(self.event_shape)}"
        return f"Law({shapes})"

    @property
    def support(self) -> constraints.Constraint:
        """All numbers."""
        return constraints.independent(constraints.real, len(self.event_shape))

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Law:
        """Return the same law for more batches."""
        if self.context is None:
            law = Law(self.flow, None, self.options)
            law._batch_shape = torch.Size(batch_shape)
            return law
        return Law(self.flow, self._context(tuple(batch_shape)), self.options)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of samples, whose leading axes go with those of the batch."""
        events = len(self.event_shape)
        if value.dim() < events or value.shape[value.dim() - events :] != self.event_shape:
            raise ValueError(f"Law: value must end in {tuple(self.event_shape)}, but its shape is {tuple(value.shape)}")
        leading = torch.broadcast_shapes(value.shape[: value.dim() - events], self.batch_shape)
        rows = value.expand(*leading, *self.event_shape).reshape(-1, *self.event_shape)
        return self.flow.log_prob(rows, self._rows(leading)).reshape(leading)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw samples with a gradient."""
        leading = (*sample_shape, *self.batch_shape)
        z = self.flow._latents(leading).reshape(-1, *self.event_shape)
        return self.flow.inverse(z, self._rows(leading), **self.options).reshape(*leading, *self.event_shape)

    def _context(self, leading: tuple[int, ...]) -> Tensor:
        last = (self.flow.context,) if self.flow.context else ()
        return self.context.expand((*leading, *last))  # type: ignore[union-attr]

    def _rows(self, leading: Sequence[int]) -> Tensor | None:
        if self.context is None:
            return None
        return self._context(tuple(leading)).reshape(-1, *((self.flow.context,) if self.flow.context else ()))


class _Recomputed(torch.autograd.Function):
    """A pass through a chain that keeps its end alone, and goes back through the inverses."""

    @staticmethod
    def forward(ctx, flow: Flow, labels: Tensor | None, x: Tensor, numbers: Tensor | None, *learned: Tensor):
        """Return latents and log-determinants."""
        z, log_det = flow._through(x, FlowCondition(numbers, labels))
        ctx.labels, ctx.parts, places = labels, [], {value: place for place, value in enumerate(learned)}
        for part in flow.parts:
            own = {name: places[value] for name, value in part.named_parameters(remove_duplicate=False)}
            ctx.parts.append((part, own, dict(part.named_buffers(remove_duplicate=False))))
        ctx.save_for_backward(z, numbers, *learned)
        return z, log_det

    @staticmethod
    @once_differentiable("Flow: with memory='recomputed' there are no second derivatives; memory='kept' has them")
    def backward(ctx, saved: tuple[Tensor, ...], sent: Tensor, sent_log_det: Tensor):
        """Return the gradients of samples, context and parameters."""
        z, numbers, *learned = saved
        context = None if numbers is None else numbers.detach().requires_grad_()
        leaves = [value if value.is_leaf else value.detach().requires_grad_() for value in learned]
        totals: dict[Tensor, Tensor] = {}
        for part, own, buffers in reversed(ctx.parts):
            state = {name: leaves[place] for name, place in own.items()}
            x, image, log_det = _again(part, state | buffers, z, FlowCondition(context, ctx.labels))
            sources = [x, *dict.fromkeys(value for value in state.values() if value.requires_grad)]
            sources += [] if context is None else [context]
            pairs = [(o, g) for o, g in ((image, sent), (log_det, sent_log_det)) if o.requires_grad]
            outputs, gradients = zip(*pairs, strict=True)
            sent, *others = torch.autograd.grad(outputs, sources, gradients, allow_unused=True, materialize_grads=True)
            for value, gradient in zip(sources[1:], others, strict=True):
                totals[value] = totals[value] + gradient if value in totals else gradient
            z = x.detach()
        last = None if context is None else totals[context]
        return None, None, sent, last, *(totals.get(value) for value in leaves)


def _again(
    part: nn.Module, state: dict[str, Tensor], z: Tensor, condition: FlowCondition
) -> tuple[Tensor, Tensor, Tensor]:
    """Work out a part's input from its image, and go through it again, with the parameters and buffers of the first."""
    return bind(_Again(part), {f"part.{name}": value for name, value in state.items()})(z, condition)


class _Again(nn.Module):
    def __init__(self, part: nn.Module):
        super().__init__()
        self.part = part

    def forward(self, z: Tensor, condition: FlowCondition) -> tuple[Tensor, Tensor, Tensor]:
        x = self.part.inverse(z, condition).detach().requires_grad_()  # type: ignore[operator]
        with torch.enable_grad():
            return x, *self.part(x, condition)
