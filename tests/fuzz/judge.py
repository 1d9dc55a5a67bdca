"""The verdict on one case: the same refusals, numbers within their bounds, the same bits on any number of threads."""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from normkit.ops.paths import formula_only, watch

from .cases import Case, Tensors, drawn
from .draw import HUGE
from .families import Found, Given
from .near import Near, Unit
from .placed import placed

THREADS, GRAIN = (2, 8), 32768  # below that many entries one thread does it all: GRAIN of `memory.h`
SINGLE, DOUBLE = (2.0**-24, 2.0**-149, 3e38), (2.0**-53, 2.0**-1074, 1e308)


@dataclass(frozen=True)
class Refused:
    """An error, by its type and by when it came."""

    kind: type[BaseException]
    when: str
    said: str

    def same(self, other: object) -> bool:
        """Whether a caller would see the same."""
        return isinstance(other, Refused) and (self.kind, self.when) == (other.kind, other.when)


Outcome = dict[str, Tensor | None] | Refused


def run(case: Case, *, formula: bool = False, double: bool = False) -> Outcome:
    """All that a call and its backward pass give, or how it was refused."""
    with formula_only() if formula else nullcontext():
        leaves = _leaves(case, double)
        try:
            outputs = case.call(leaves)
        except Exception as error:
            return Refused(type(error), "forward", str(error))
        sent = [name for name in case.outputs if outputs[name].requires_grad]
        cotangents = [placed(case.cotangents[name].double() if double else case.cotangents[name]) for name in sent]
        try:
            wanted = [leaves[name] for name in case.wanted] if sent else []
            grads = (
                torch.autograd.grad([outputs[n] for n in sent], wanted, cotangents, allow_unused=True) if wanted else ()
            )
        except Exception as error:
            return Refused(type(error), "backward", str(error))
    found: dict[str, Tensor | None] = {name: tensor.detach() for name, tensor in outputs.items()}
    found |= dict(zip((f"d{name}" for name in case.wanted), grads, strict=False))
    still = case.after if not sent or not wanted else ()  # what only a backward pass moves
    found |= {name: leaves[name] for name in case.moving if name not in still}
    return {name: None if tensor is None else tensor.cpu() for name, tensor in found.items()}


def _leaves(case: Case, double: bool) -> Tensors:
    leaves: Tensors = {}
    for name, tensor in case.tensors.items():
        if tensor is not None:
            tensor = placed(tensor.double() if double else tensor)
            tensor = tensor.clone() if name in case.moving else tensor.detach().view(tensor.shape)
            tensor.requires_grad_(name in case.wanted)
        leaves[name] = tensor
    return leaves


def judge(number: int, seed: int = 0, only: str | None = None) -> tuple[list[str], bool]:
    """What is wrong with a case, and whether a kernel took part in it; an error in here is wrong too."""
    try:
        return _judge(drawn(number, seed, only), number)
    except Exception:
        return [traceback.format_exc(limit=-4)], False


def _judge(case: Case, number: int) -> tuple[list[str], bool]:
    with watch() as taken:
        kernel = _on_threads(case, 1)
    formula = run(case, formula=True)
    live = any(path.why is None for path in taken)
    wrong = _compare(case, kernel, formula, live) if not isinstance(kernel, Refused) else _refusals(kernel, formula)
    x = case.tensors["x"]
    if live and not isinstance(kernel, Refused) and x is not None and x.numel() > GRAIN:
        other = THREADS[number % len(THREADS)]
        wrong += _bits(kernel, _on_threads(case, other), other)
    if live and not isinstance(kernel, Refused) and not case.moving:
        wrong += _without_gradients(kernel, case)
    return wrong, live


def _without_gradients(kernel: dict[str, Tensor | None], case: Case) -> list[str]:
    """Where inference, which may take a shorter way, gives other bits."""
    with torch.no_grad():
        outputs = case.call(_leaves(case, False))
    outputs = {name: y.cpu() for name, y in outputs.items()}
    return [f"{name} has other bits without gradients" for name, y in outputs.items() if not _same(y, kernel[name])]


def _on_threads(case: Case, threads: int) -> Outcome:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        return run(case)
    finally:
        torch.set_num_threads(before)


def _refusals(kernel: Refused, formula: Outcome) -> list[str]:
    if not kernel.same(formula):
        other = (
            f"{formula.kind.__name__} ({formula.when}): {formula.said}" if isinstance(formula, Refused) else "nothing"
        )
        return [f"the kernel's way raises {kernel.kind.__name__} ({kernel.when}): {kernel.said}; the formula's {other}"]
    if kernel.kind not in (ValueError, TypeError):
        return [f"both raise {kernel.kind.__name__}, which is no named refusal: {kernel.said}"]
    return []


def _bits(one: Outcome, many: Outcome, threads: int) -> list[str]:
    assert isinstance(one, dict)
    if isinstance(many, Refused):
        return [f"{threads} threads raise {many.kind.__name__}: {many.said}"]
    differ = [name for name, a in one.items() if a is not None and not _same(a, many[name])]
    return [f"{name} has other bits on {threads} threads" for name in differ]


def _same(a: Tensor, b: Tensor | None) -> bool:
    return b is not None and bool(((a == b) | (a.isnan() & b.isnan())).all())


def _compare(case: Case, kernel: dict, formula: Outcome, live: bool) -> list[str]:
    if isinstance(formula, Refused):
        return [f"the formula raises {formula.kind.__name__} ({formula.when}): {formula.said}; the kernel does not"]
    wrong = [
        f"{name}: {_looks(kernel[name])} of the kernel, {_looks(formula[name])} of the formula"
        for name in kernel
        if _looks(kernel[name]) != _looks(formula[name])
    ]
    x = case.tensors["x"]
    assert x is not None
    if wrong or not x.numel():
        return wrong
    if any(not (t.abs() < HUGE).all() for t in case.tensors.values() if t is not None):
        return [f"{name}: {what}" for name in kernel for what in _classes(kernel[name], formula[name])]
    numbers = DOUBLE if x.dtype == torch.float64 else SINGLE
    # for doubles, what is added up over stretches, samples and channels one after another is no finer than the rest
    deep = x.numel() / 1024 + 64 + max(x.shape[:2]) if x.dtype == torch.float64 else 0
    if live:
        wrong += _within("kernel", kernel, _expected(case, Unit(*numbers, 80.0 + deep), x.dtype))
    if not live or case.thorough:
        wrong += _within("formula", formula, _expected(case, Unit(*numbers, 400.0, pivoted=False), x.dtype))
    hollow = [name for name in kernel if _classes(kernel[name], formula[name])]
    return wrong + _in_double(case, kernel, formula, hollow) if hollow or case.thorough else wrong


def _in_double(case: Case, kernel: dict, formula: dict, hollow: list[str]) -> list[str]:
    """The formula in float64 keeps to its bounds; ``hollow`` are numbers of the kernel alone, or of the formula.

    Where a variance is 0 the formula may divide by what rounding leaves of it, and float64 tells.
    """
    exact = run(case, formula=True, double=True)
    if isinstance(exact, Refused):
        return [f"in float64 the formula raises {exact.kind.__name__}: {exact.said}"]
    wrong = [f"{name}: {what}" for name in hollow for what in _classes(kernel[name], formula[name], exact[name])]
    return wrong + _within("float64", exact, _expected(case, Unit(*DOUBLE, 400.0, pivoted=False), torch.float64))


def _looks(tensor: Tensor | None) -> str:
    return "none" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _expected(case: Case, unit: Unit, half: torch.dtype) -> Found:
    tensors = {name: None if t is None else t.double() for name, t in case.tensors.items()}
    if "total" in case.outputs:
        x, residual = case.tensors["x"], case.tensors["residual"]
        assert x is not None
        assert residual is not None
        total = x.double() + residual.double() if half == torch.float64 else (x + residual).to(x.dtype)
        tensors["total"] = total.double()
    return case.expect(Given(tensors, {name: g.double() for name, g in case.cotangents.items()}, unit, half))


def _within(whose: str, got: dict[str, Tensor | None], known: Found) -> list[str]:
    wrong = []
    for name, tensor in got.items():
        if tensor is None:
            continue
        value, allowed = _allowed(known[name], tensor.dtype)
        sure = value.isfinite() & allowed.isfinite() & (value.abs() + allowed < torch.finfo(tensor.dtype).max)
        off = (tensor.double() - value).abs()
        bad = sure & ~(off <= allowed)
        if bad.any():
            at = int(torch.where(bad, (off / allowed).nan_to_num(torch.inf), -1.0).argmax())
            numbers = (t.reshape(-1)[at].item() for t in (tensor.double(), value, allowed))
            text = "{:.13g}, should be {:.13g} within {:.2g}".format(*numbers)
            wrong.append(f"{name} of the {whose} at {at} of {tuple(tensor.shape)} is {text} ({int(bad.sum())} such)")
    return wrong


def _allowed(known: Near, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Twice the bound, since its terms are of first order, and one rounding to the type."""
    info = torch.finfo(kind)
    value = known.value
    return value, 2 * known.error.expand_as(value) + value.abs() * info.eps * 0.51 + info.tiny * info.eps


def _classes(kernel: Tensor | None, formula: Tensor | None, exact: Tensor | None = None) -> list[str]:
    """Where only one of both is finite; with ``exact``, where only the kernel is, and neither of the others."""
    if kernel is None or formula is None:
        return []
    bad = kernel.isfinite() != formula.isfinite()
    if exact is not None:
        bad &= ~formula.isfinite() & ~exact.isfinite()
    if not bad.any():
        return []
    at = int(bad.flatten().nonzero()[0])
    pair = kernel.flatten()[at].item(), formula.flatten()[at].item()
    return [f"{pair[0]} of the kernel is {pair[1]} of the formula, at {at} ({int(bad.sum())} such)"]
