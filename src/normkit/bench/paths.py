"""Which path a call takes, kernel or formula, and the switch that makes it the formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from normkit import kernels
from normkit.ops import eager


@contextmanager
def _answering(answer: Callable[..., str | None]) -> Iterator[None]:
    """Let ``answer`` decide between kernel and formula: every op asks :func:`normkit.ops.eager.refusal`."""
    asked = eager.refusal
    eager.refusal = answer
    try:
        yield
    finally:
        eager.refusal = asked


def formula_only():
    """Within it no kernel runs."""
    return _answering(lambda *tensors: "the formula is being timed")


def taken(call: Callable[[], Any]) -> str:
    """Call once, and tell the path: the kernels' instruction set, or why the formula ran."""
    answers: list[str | None] = []
    ask = eager.refusal

    def listen(*tensors):
        answers.append(ask(*tensors))
        return answers[-1]

    with _answering(listen):
        call()
    refused = [answer for answer in answers if answer is not None]
    if refused:
        return f"formula: {refused[0]}"
    return f"C kernel, {kernels.status().isa}" if answers else "formula: the method has no kernel"
