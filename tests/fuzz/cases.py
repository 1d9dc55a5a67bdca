"""The ops, each drawn with arguments of its own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from normkit import ops
from normkit.ops.row import EPS_PLACES, STATISTICS

from . import families
from .draw import Draw
from .families import Found, Given

Tensors = dict[str, Tensor | None]


@dataclass
class Case:
    """One call: what is called, with which tensors, which of them get gradients, and what ought to come of it."""

    op: str
    call: Callable[[Tensors], dict[str, Tensor]]
    expect: Callable[[Given], Found]
    tensors: Tensors
    options: dict[str, Any] = field(default_factory=dict)
    moving: tuple[str, ...] = ()  # running state, changed in place; in the backward pass too
    after: tuple[str, ...] = ()  # those of them that the backward pass moves
    constant: tuple[str, ...] = ()  # tensors that never get a gradient
    outputs: tuple[str, ...] = ("y",)  # what gets a gradient sent
    wanted: tuple[str, ...] = ()
    cotangents: dict[str, Tensor] = field(default_factory=dict)
    thorough: bool = True  # the formula is judged too, also in float64


CASES: dict[str, Callable[[Draw], Case]] = {}


def op(draw: Callable[[Draw], Case]) -> Callable[[Draw], Case]:
    """Enter a function that draws a call of the op it is named after."""
    CASES[draw.__name__] = draw
    return draw


def drawn(number: int, seed: int = 0, only: str | None = None) -> Case:
    """The case of that number."""
    d = Draw(number, seed)
    name = d.one_of(*CASES) if only is None else only
    case = CASES[name](d)
    x = case.tensors["x"]
    can = [n for n, t in case.tensors.items() if t is not None and n not in case.moving + case.constant]
    case.wanted = tuple(n for n in can if d.chance(0.85)) if d.chance(0.9) else ()
    case.cotangents = {name: d.cotangent(x, x.dtype) for name in case.outputs}
    case.thorough = d.chance(0.25)
    return case


def _unpacked(names: tuple[str, ...], outputs) -> dict[str, Tensor]:
    return dict(zip(names, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))


# Rows.


def _rule(d: Draw) -> ops.Row:
    statistic = d.one_of(*STATISTICS, "square", "square")
    square = statistic == "square"
    place = d.one_of(*EPS_PLACES) if square else "inside"
    center = d.chance(0.5) and statistic != "zero-sum"
    part = d.one_of(1, 2, 5, 17) if square and not center and d.chance(0.15) else None
    return ops.Row(
        center=center,
        statistic=statistic,
        eps=d.eps(),
        eps_place=place,
        part=part,
        constant=d.one_of(1.0, 1.2533),
        offset=d.one_of(0.0, 0.0, 1.0),
        scale=d.one_of(1.0, 1.0, 3.0),
        cast=d.one_of("late", "late", "early"),
    )


def _vector(d: Draw, x: Tensor) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """The argument ``shape``, and the axes it stands for."""
    if x.dim() > 1 and d.chance(0.15):
        return tuple(x.shape[-2:]), tuple(x.shape[-2:])
    return (tuple(x.shape[-1:]) if d.chance(0.3) else None), tuple(x.shape[-1:])


def _row_tensors(d: Draw, bias: bool = True) -> tuple[Tensors, tuple[int, ...] | None, int]:
    dtype = d.dtype()
    x = d.tensor(d.shape(d.one_of(1, 2, 2, 2, 3, 4)), dtype)
    shape, axes = _vector(d, x)
    flat = len(axes) == 1
    weight, shift = d.parameter(axes if flat else (math.prod(axes),), dtype), d.parameter(axes, dtype, absent=0.5)
    if not flat:
        weight = weight.reshape(axes) if weight is not None and weight.numel() == math.prod(axes) else None
        shift = shift.reshape(axes) if shift is not None and shift.numel() == math.prod(axes) else None
    return {"x": x, "weight": weight, "bias": shift if bias else None}, shape, len(axes)


@op
def row_norm(d: Draw) -> Case:
    tensors, shape, count = _row_tensors(d)
    rule = _rule(d)
    return Case(
        "row_norm",
        lambda t: {"y": ops.row_norm(t["x"], t["weight"], t["bias"], rule, shape)},
        lambda given: families.row(given, rule, _count(given, shape, count)),
        tensors,
        {"rule": rule, "shape": shape},
    )


def _count(given: Given, shape, count: int) -> int:
    """How many axes a vector has, where no shape is given: as many as the weight, or the bias."""
    weight, bias = given.tensors["weight"], given.tensors["bias"]
    if shape is not None:
        return len(shape)
    if weight is not None and (weight.dim() > 1 or weight.numel() != 1):
        return weight.dim()
    return count if bias is None else bias.dim()


@op
def add_row_norm(d: Draw) -> Case:
    tensors, shape, count = _row_tensors(d)
    rule = _rule(d)
    x = tensors["x"]
    kind = x.dtype if d.chance(0.9) else d.dtype()
    tensors["residual"] = d.tensor(tuple(x.shape), kind)
    return Case(
        "add_row_norm",
        lambda t: _unpacked(
            ("y", "total"), ops.add_row_norm(t["x"], t["residual"], t["weight"], t["bias"], rule, shape)
        ),
        lambda given: families.add_row(given, rule, _count(given, shape, count)),
        tensors,
        {"rule": rule, "shape": shape},
        outputs=("y", "total"),
    )


@op
def layer_norm(d: Draw) -> Case:
    tensors, _, count = _row_tensors(d)
    shape, eps = tuple(tensors["x"].shape[-count:]), d.eps()
    return Case(
        "layer_norm",
        lambda t: {"y": ops.layer_norm(t["x"], shape, t["weight"], t["bias"], eps)},
        lambda given: families.row(given, ops.Row(center=True, eps=eps), count),
        tensors,
        {"shape": shape, "eps": eps},
    )


@op
def rms_norm(d: Draw) -> Case:
    tensors, _, count = _row_tensors(d, bias=False)
    shape, eps = tuple(tensors["x"].shape[-count:]), d.eps()
    return Case(
        "rms_norm",
        lambda t: {"y": ops.rms_norm(t["x"], shape, t["weight"], eps)},
        lambda given: families.row(given, ops.Row(eps=eps), count),
        tensors,
        {"shape": shape, "eps": eps},
    )


# Pointwise functions.


def _pointwise(d: Draw, name: str) -> tuple[Tensors, bool, int]:
    dtype, last = d.dtype(), d.chance(0.6)
    x = d.tensor(d.shape(d.one_of(1, 2, 2, 3, 4) if last else d.one_of(2, 3, 4)), dtype)
    axis = x.dim() - 1 if last else 1
    one = (1,) if d.chance(0.9) else d.one_of((), (1, 1), (2,))
    alpha = (d.numbers(one).abs() * d.one_of(0.5, 1.0, 3.0)).to(d.parameter_type(dtype))
    if d.chance(0.03):
        alpha = torch.zeros_like(alpha)
    features = (x.shape[axis],)
    tensors = {"x": x, "alpha": alpha, "weight": d.parameter(features, dtype), "bias": d.parameter(features, dtype)}
    if name == "derf" and d.chance(0.7):
        tensors["shift"] = d.numbers((1,)).to(d.parameter_type(dtype))
    return tensors, last, axis


@op
def dyt(d: Draw) -> Case:
    tensors, last, axis = _pointwise(d, "dyt")
    return Case(
        "dyt",
        lambda t: {"y": ops.dyt(t["x"], t["alpha"], t["weight"], t["bias"], channels_last=last)},
        lambda given: families.pointwise(given, "tanh", axis),
        tensors,
        {"channels_last": last},
    )


@op
def derf(d: Draw) -> Case:
    tensors, last, axis = _pointwise(d, "derf")
    function = d.one_of(*families.FUNCTIONS)
    tensors.setdefault("shift", None)
    return Case(
        "derf",
        lambda t: {
            "y": ops.derf(t["x"], t["alpha"], t["shift"], t["weight"], t["bias"], function=function, channels_last=last)
        },
        lambda given: families.pointwise(given, function, axis),
        tensors,
        {"function": function, "channels_last": last},
    )


@op
def eln(d: Draw) -> Case:
    tensors, last, axis = _pointwise(d, "eln")
    return Case(
        "eln",
        lambda t: {"y": ops.eln(t["x"], t["alpha"], t["weight"], t["bias"], channels_last=last)},
        lambda given: families.eln(given, axis),
        tensors,
        {"channels_last": last},
    )


# Turns.


def _turned(d: Draw) -> Tensors:
    dtype = d.dtype()
    shape = d.shape(d.one_of(1, 2, 3, 4, 5))
    dim = shape[-1] if d.chance(0.03) else max(2, shape[-1] // 2 * 2)
    x = d.tensor((*shape[:-1], dim), dtype)
    wide = torch.promote_types(dtype, torch.float32)
    lead = tuple(size if d.chance(0.5) else 1 for size in shape[:-1])[-d.random.randrange(1, len(shape) + 1) :]
    lead = lead[1:] if d.chance(0.1) and lead else lead
    angle = d.numbers((*lead, dim // 2)) * 3
    kind = wide if d.chance(0.8) else d.dtype()
    return {"x": x, "cos": d.laid_out(angle.cos().to(kind)), "sin": d.laid_out(angle.sin().to(kind))}


def _turns(t: Tensors) -> tuple[Tensor, Tensor]:
    assert t["cos"] is not None
    assert t["sin"] is not None
    return t["cos"], t["sin"]


@op
def rotate(d: Draw) -> Case:
    pairing = d.one_of("halves", "pairs")
    return Case(
        "rotate",
        lambda t: {"y": ops.rotate(t["x"], _turns(t), pairing)},
        lambda given: families.rotate(given, pairing),
        _turned(d),
        {"pairing": pairing},
        constant=("cos", "sin"),
    )


@op
def norm_rotate(d: Draw) -> Case:
    pairing, tensors, rule = d.one_of("halves", "pairs"), _turned(d), _rule(d)
    x = tensors["x"]
    if rule.statistic != "square" and d.chance(0.8):
        rule = dataclasses.replace(rule, statistic="square")
    features = tuple(x.shape[-1:])
    tensors |= {"weight": d.parameter(features, x.dtype), "bias": d.parameter(features, x.dtype, absent=0.6)}
    return Case(
        "norm_rotate",
        lambda t: {"y": ops.norm_rotate(t["x"], t["weight"], t["bias"], _turns(t), rule=rule, pairing=pairing)},
        lambda given: families.norm_rotate(given, rule, pairing),
        tensors,
        {"rule": rule, "pairing": pairing},
        constant=("cos", "sin"),
    )


# Small matrices.


@op
def sinkhorn(d: Draw) -> Case:
    n, rounds, eps = d.one_of(1, 2, 3, 4, 4, 4, 5, 8, 9, 17), d.one_of(1, 2, 3), d.eps()  # each round doubles a bound
    leading = [d.one_of(1, 2, 3, 7, 8, 9, 17, 33) for _ in range(d.one_of(0, 1, 1, 2))]
    side = n + 1 if d.chance(0.02) else n
    return Case(
        "sinkhorn",
        lambda t: {"y": ops.sinkhorn(t["x"], rounds, eps)},
        lambda given: families.sinkhorn(given, rounds, eps),
        {"x": d.tensor((*leading, side, n), d.dtype())},
        {"iterations": rounds, "eps": eps},
    )


# Channels.


def _channels(d: Draw, rank: int = 0) -> Tensors:
    dtype = d.dtype()
    x = d.tensor(d.shape(rank or d.one_of(2, 2, 3, 4, 4, 4, 5)), dtype)
    shape = (x.shape[0], x.shape[1]) if d.chance(0.03) else (x.shape[1],)
    return {"x": x, "weight": d.parameter(shape, dtype), "bias": d.parameter(shape, dtype)}


@op
def batch_norm(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()

    def call(t: Tensors) -> dict[str, Tensor]:
        y, found = ops.batch_norm(t["x"], t["weight"], t["bias"], eps=eps)
        return {"y": y, "mean": found.mean, "var": found.var}

    expect = lambda given: families.deviation(given, eps, None, (0, 2, 3))  # noqa: E731
    return Case("batch_norm", call, expect, tensors, {"eps": eps})


@op
def normalize_with(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()
    x = tensors["x"]
    shape = tuple(x.shape[:2]) if d.chance(0.15) else (x.shape[1],)
    kind = d.parameter_type(x.dtype)
    tensors["mean"] = d.values(shape, kind)
    tensors["var"] = (d.numbers(shape).square() + 0.01).to(kind)
    call = lambda t: {"y": ops.normalize_with(t["x"], t["mean"], t["var"], t["weight"], t["bias"], eps=eps)}  # noqa: E731
    constant = () if d.chance(0.1) else ("mean", "var")
    expect = lambda given: families.given_moments(given, eps)  # noqa: E731
    return Case("normalize_with", call, expect, tensors, {"eps": eps}, constant=constant)


@op
def group_norm(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()
    groups = d.groups(tensors["x"].shape[1])
    return Case(
        "group_norm",
        lambda t: {"y": ops.group_norm(t["x"], groups, t["weight"], t["bias"], eps=eps)},
        lambda given: families.deviation(given, eps, groups, (2, 3)),
        tensors,
        {"eps": eps, "groups": groups},
    )


@op
def instance_norm(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()
    return Case(
        "instance_norm",
        lambda t: {"y": ops.instance_norm(t["x"], t["weight"], t["bias"], eps=eps)},
        lambda given: families.deviation(given, eps, None, (3,)),
        tensors,
        {"eps": eps},
    )


@op
def layer_norm2d(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()
    return Case(
        "layer_norm2d",
        lambda t: {"y": ops.layer_norm2d(t["x"], t["weight"], t["bias"], eps=eps)},
        lambda given: families.position(given, eps),
        tensors,
        {"eps": eps},
    )


@op
def global_response_norm(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()
    return Case(
        "global_response_norm",
        lambda t: {"y": ops.global_response_norm(t["x"], t["weight"], t["bias"], eps=eps)},
        lambda given: families.share(given, eps),
        tensors,
        {"eps": eps},
    )


@op
def filter_response_norm(d: Draw) -> Case:
    tensors, eps = _channels(d), d.eps()
    x = tensors["x"]
    tensors["tau"] = d.parameter(tuple(x.shape[1:2]), x.dtype, absent=0.5)
    if tensors["tau"] is not None and d.chance(0.2):  # zeros tie with it
        tensors["tau"], tensors["bias"] = torch.zeros_like(tensors["tau"]), None
    if d.chance(0.4):
        tensors["eps"] = (d.numbers((1,) if d.chance(0.9) else ()).abs() + 1e-3).to(d.parameter_type(x.dtype))
    learned = "eps" in tensors
    return Case(
        "filter_response_norm",
        lambda t: {
            "y": ops.filter_response_norm(
                t["x"],
                t["weight"],
                t["bias"],
                t["tau"],
                eps=t["eps"] if learned else eps,  # type: ignore[arg-type]
            )
        },
        lambda given: families.response(given, eps),
        tensors,
        {"eps": eps},
    )


@op
def evonorm_s(d: Draw) -> Case:
    tensors, eps, center = _channels(d), d.eps(), d.chance(0.5)
    x = tensors["x"]
    groups = d.groups(x.shape[1])
    tensors["slope"] = d.parameter(tuple(x.shape[1:2]), x.dtype, absent=0.5)
    return Case(
        "evonorm_s",
        lambda t: {"y": ops.evonorm_s(t["x"], groups, t["weight"], t["bias"], t["slope"], eps=eps, center=center)},
        lambda given: families.swish(given, eps, groups, center),
        tensors,
        {"eps": eps, "groups": groups, "center": center},
    )


@op
def online_norm(d: Draw) -> Case:
    d.budget = min(d.budget, 3000)
    tensors = _channels(d)
    tensors["x"] = x = tensors["x"][: d.one_of(4, 4, 12)]
    kind = d.one_of(torch.float32, torch.float64, x.dtype)
    channels = (x.shape[1],)
    tensors |= {
        "running_mean": d.numbers(channels).to(kind),
        "running_var": (d.numbers(channels).abs() + 0.5).to(kind),
        "u": (d.numbers(channels) * 0.1).to(kind),
        "v": (d.numbers(channels) * 0.1).to(kind),
    }
    control = ops.Control(d.one_of(1e-5, 1e-3), d.one_of(0.9, 0.99, 0.5), d.one_of(0.9, 0.99))
    limit = d.one_of(None, 1.5)

    def call(t: Tensors) -> dict[str, Tensor]:
        moments, pulls = (t["running_mean"], t["running_var"]), (t["u"], t["v"])
        return {"y": ops.online_norm(t["x"], t["weight"], t["bias"], moments, pulls, control, limit=limit)}

    return Case(
        "online_norm",
        call,
        lambda given: families.online(given, control, limit),
        tensors,
        {"control": control, "limit": limit},
        moving=("running_mean", "running_var", "u", "v"),
        after=("u", "v"),
    )
