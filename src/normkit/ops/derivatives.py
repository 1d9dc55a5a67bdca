"""Derivatives of the first order alone: one of the second order, which would be a wrong number, is an error.

Torch's own ``once_differentiable`` gives that error where the gradient that comes in can be differentiated. It does not
where that is a constant, as in the penalty on a gradient of a sum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.autograd import forward_ad

from normkit.ops import eager

__all__ = ["are_constants", "once", "once_differentiable", "under_transform"]


def are_constants(*tensors: Tensor) -> bool:
    """Tell whether nobody takes a derivative by these, in either mode."""
    forward = forward_ad._current_level >= 0 or under_transform()
    return not (forward or eager.needs_grad(*tensors))


def under_transform() -> bool:
    """Tell whether a transform of torch.func is at work, which takes no pass that writes its backward by hand."""
    return torch._C._are_functorch_transforms_active()


def once(x: Tensor, source: Tensor, refusal: str) -> Tensor:
    """Return ``x`` with its derivative, in which something that depends on ``source`` is a constant.

    Nothing flows back to ``source``. A compiled graph has no second derivative but by transforms in it, two of which
    are refused, whatever they differentiate.

    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> [slope] = torch.autograd.grad(once(2 * x, x, "no second derivative"), x, create_graph=True)
    >>> slope.backward()
    Traceback (most recent call last):
    NotImplementedError: no second derivative
    """
    if not torch.compiler.is_compiling():
        return _Once.apply(x, source, refusal)
    if _orders() > 1:
        raise NotImplementedError(refusal)
    return x


def _orders() -> int:
    """How many transforms of torch.func around a call take a derivative."""
    kinds = (functorch.TransformType.Grad, functorch.TransformType.Jvp)
    return sum(transform.key() in kinds for transform in functorch.get_interpreter_stack() or ())


_orders._dynamo_marked_constant = True  # type: ignore[attr-defined]  # by torch.compiler it would load the compiler


def once_differentiable(refusal: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a backward pass that has no derivative; it takes the saved tensors after its context."""

    def mark(backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def marked(ctx, *sent: Tensor | None):
            saved = ctx.saved_tensors  # once: a checkpoint works them out when they are asked for
            with torch.no_grad():
                gradients = backward(ctx, saved, *sent)
            if torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return gradients
            sources = [x for x in (*sent, *saved) if x is not None and x.is_floating_point()]
            return tuple(None if x is None else _Last.apply(x, refusal, *sources) for x in gradients)

        return marked

    return mark


class _Once(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, source: Tensor, refusal: str) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, source, ctx.refusal = inputs
        ctx.save_for_backward(source)
        ctx.save_for_forward(source)

    @staticmethod
    def backward(ctx, sent: Tensor):
        return _Last.apply(sent, ctx.refusal, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx, tangent: Tensor, *_):
        return _Last.apply(tangent, ctx.refusal, *ctx.saved_tensors)


class _Last(torch.autograd.Function):
    """A gradient or a tangent that has no derivative by way of its sources."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, refusal: str, *sources: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.refusal = inputs[1]
        ctx.set_materialize_grads(False)  # what has no tangent is told from what has zeros

    @staticmethod
    def backward(ctx, sent: Tensor | None):
        if any(ctx.needs_input_grad[2:]):
            raise NotImplementedError(ctx.refusal)
        return sent, *[None] * (len(ctx.needs_input_grad) - 1)

    @staticmethod
    def jvp(ctx, tangent: Tensor | None, _, *of_sources: Tensor | None):
        if any(x is not None for x in of_sources):
            raise NotImplementedError(ctx.refusal)
        return tangent
