"""What the kernels compute, written once more, in numbers that know their error: values and all gradients.

Each function takes the tensors of a case in float64 and gives, by name, what the op gives ("y", "total", ...) and, for
every tensor that takes part, its gradient. The forward passes are read from the docstrings of `normkit.ops`, the
backward passes are derived here by hand.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .near import Near, Unit

Found = dict[str, Near]


class Given:
    """The tensors of a case in float64, and the unit that its op is held to."""

    def __init__(self, tensors: dict[str, Tensor | None], cotangents: dict[str, Tensor], unit: Unit, half: torch.dtype):
        self.tensors, self.cotangents, self.unit, self.half = tensors, cotangents, unit, half

    def __getitem__(self, name: str) -> Near:
        return self.exact(self.tensors[name])

    def __contains__(self, name: str) -> bool:
        return self.tensors.get(name) is not None

    def exact(self, tensor: Tensor) -> Near:
        """A number as it is handed over: a float64 is rounded where the arithmetic is float32."""
        held = tensor if self.unit.half < 2.0**-50 else tensor.float().double()
        return Near(tensor, (held - tensor).abs().nan_to_num(0.0), self.unit)

    def number(self, value: float) -> Near:
        """One number, as float64 has it."""
        return Near(torch.tensor(value, dtype=torch.float64), 0.0, self.unit)

    def cotangent(self, name: str) -> Near:
        """What is sent back for an output."""
        return self.exact(self.cotangents[name])


def _spread(found: Near, like: Tensor) -> Near:
    """A sum's gradient in the shape of a tensor; a single number takes the sum of all."""
    return (
        found.view(like.shape)
        if found.value.numel() == like.numel()
        else found.sum(range(found.value.dim())).view(like.shape)
    )


def _by_root(r: Near, dx: Near) -> Near:
    """The gradient r dx; the formula's, which autograd makes with r cubed, where r may have a cube in the type."""
    found = r * dx
    if found.unit.pivoted:
        return found
    lost = (r * r * r).error.isinf().expand_as(found.value)
    return Near(found.value, torch.where(lost, torch.inf, found.error), found.unit)


# Rows.


def row(given: Given, rule: Any, count: int, x: str = "x", grad: Near | None = None) -> Found:
    """Row norm over the last ``count`` axes of ``x``."""
    shape = given[x].value.shape
    dim = math.prod(shape[len(shape) - count :])
    rows = given[x].view(-1, dim)
    g = (given.cotangent("y") if grad is None else grad).view(-1, dim)
    z, r, state = _measured(rows, rule)
    n = z * r
    seen = n.rounded_to(given.half) if rule.cast == "early" else n
    single = "weight" in given and given["weight"].value.numel() == 1
    gain = given["weight"].view(1, -1) + rule.offset if "weight" in given else given.number(rule.scale)
    y = seen * gain
    if "bias" in given:
        y = y + given["bias"].view(1, -1)
    h = g * gain
    if rule.cast == "early":
        h = h.rounded_to(given.half)
    found = {"y": y.view(shape), "d" + x: _row_gradient(h, z, n, r, rule, state).view(shape)}
    depth = _depth(len(rows.value), dim)
    if "weight" in given:
        found["dweight"] = _spread((g * seen).sum((0, 1) if single else (0,), depth), given.tensors["weight"])
    if "bias" in given:
        found["dbias"] = _spread(g.sum((0,), depth), given.tensors["bias"])
    return found


def _depth(rows: int, dim: int) -> float:
    """How many rows the kernels add up in the type before a double takes the sum: chunk_rows of `memory.h`."""
    return min(rows, max(-(-rows // 64), 1 + 16384 // max(dim, 1)))


def _measured(x: Near, rule: Any) -> tuple[Near, Near, tuple]:
    """z, r, and what the gradient needs beside."""
    dim = x.value.shape[-1]
    z, var = x.centered((1,)) if rule.center else (x, None)
    if rule.statistic == "absolute":
        return z, 1 / (z.magnitude().mean((1,)) * rule.constant + rule.eps), ()
    if rule.statistic == "maximum":
        size = z.magnitude()
        most = size.value.amax(1, keepdim=True)
        top = Near(most, size.error.amax(1, keepdim=True), x.unit)
        return z, 1 / (top + rule.eps), (size, top)
    if rule.statistic == "zero-sum":
        total = x.sum((1,))
        return z, ((x.square().sum((1,)) + total.square()) / (dim + 1) + rule.eps).reciprocal_root(), (total,)
    part = rule.part or dim
    if var is not None and x.unit.pivoted:
        square = var * dim
    else:
        square = z.map(lambda t: t[:, :part]).square().sum((1,))
    if rule.eps_place == "inside":
        return z, (square / part + rule.eps).reciprocal_root(), (square,)
    root = square.root()
    if rule.eps_place == "outside":
        return z, 1 / (root / math.sqrt(part) + rule.eps), (square,)
    value = root.value.clamp(min=rule.eps)
    return z, 1 / Near(value, torch.where(root.value + root.error < rule.eps, 0.0, root.error), x.unit), (square,)


def _row_gradient(h: Near, z: Near, n: Near, r: Near, rule: Any, state: tuple) -> Near:
    """dx of y = z r, for h = dy: r (h - pull t) less its mean where there was one."""
    dim = z.value.shape[-1]
    along = (h * n).sum((1,))
    if rule.statistic == "absolute":
        t, pull = z.sign(), along * rule.constant / dim
    elif rule.statistic == "maximum":
        t, pull = _of_the_largest(z, along, *state)
    elif rule.statistic == "zero-sum":
        t, pull = (z + state[0]) * r, along / (dim + 1)
    else:
        t, pull = n, _square_pull(along, r, rule, dim, *state)
        if rule.part is not None:
            inside = torch.arange(dim) < rule.part
            t = t.where(inside, torch.zeros_like(inside))
    dx = h - pull * t
    if rule.center:
        dx = dx - dx.mean((1,))
    return _by_root(r, dx)


def _square_pull(along: Near, r: Near, rule: Any, dim: int, square: Near) -> Near:
    part = rule.part or dim
    if rule.eps_place == "inside":
        return along / part
    root = square.root()
    none = root.value == 0
    safe = Near(torch.where(none, 1.0, root.value), torch.where(none, 0.0, root.error), root.unit)
    if rule.eps_place == "outside":
        return (along / (r * safe * math.sqrt(part))).where(~none, none & (root.error > 0))
    edge = (root.value - rule.eps).abs() <= root.error + root.unit.half * rule.eps
    return (along / (r * safe)).where((root.value >= rule.eps) & ~none, edge | (none & (root.error > 0)))


def _of_the_largest(z: Near, along: Near, size: Near, top: Near) -> tuple[Near, Near]:
    """The sign where an entry is the largest; where several may be, no one knows."""
    largest = size.value >= top.value
    candidates = size.value + size.error >= top.value - top.error
    unsure = (candidates.sum(1, keepdim=True) > largest.sum(1, keepdim=True)) | (
        (largest.sum(1, keepdim=True) > 1) & (size.error.amax(1, keepdim=True) > 0)
    )
    t = z.sign().where(largest, candidates & unsure)
    pull = along / largest.sum(1, keepdim=True)
    return t, Near(pull.value, torch.where(unsure, torch.inf, pull.error), pull.unit)


def add_row(given: Given, rule: Any, count: int) -> Found:
    """The same after an addition, which is made in the type of its operands."""
    total = given["total"]
    found = row(given, rule, count, "total")
    more = given.cotangent("total")
    dx = found.pop("dtotal")
    if not given.unit.pivoted:  # the formula's gradients meet in the type of the total
        dx = (dx.rounded_to(given.half) + more).rounded_to(given.half)
    else:
        dx = dx + more
    return found | {"total": total, "dx": dx, "dresidual": dx}


# Pointwise functions.


def _isru(u: Tensor) -> Tensor:
    return u / (u.square() + 1).sqrt()


FUNCTIONS = {
    "erf": (torch.erf, lambda u: 2 / math.sqrt(math.pi) * torch.exp(-u.square())),
    "tanh": (torch.tanh, lambda u: 1 - torch.tanh(u).square()),
    "isru": (_isru, lambda u: (u.square() + 1) ** -1.5),
    "arctan": (lambda u: 2 / math.pi * torch.atan(u), lambda u: 2 / math.pi / (1 + u.square())),
    "expsign": (lambda u: u.sign() * -torch.expm1(-u.abs()), lambda u: torch.where(u == 0, 0, torch.exp(-u.abs()))),
    "satursin": (
        lambda u: torch.sin(u.clamp(-math.pi / 2, math.pi / 2)),
        lambda u: torch.where(u.abs() > math.pi / 2, 0, torch.cos(u)),
    ),
}


def pointwise(given: Given, function: str, axis: int) -> Found:
    """f(alpha x + shift) weight + bias, the features on ``axis``."""
    x, g = given["x"], given.cotangent("y")
    each = [1] * x.value.dim()
    each[axis] = -1
    alpha = given["alpha"].view(())
    u = alpha * x
    if "shift" in given:
        u = u + given["shift"].view(())
    value, slope = FUNCTIONS[function]
    f = Near(value(u.value), u.error * 1.3 + 8 * u.unit.half * value(u.value).abs() + u.unit.least, u.unit)
    d = u.smooth(slope, 1.0, 12.0)
    if function == "expsign":  # the slope jumps to 0 and back where u is 0
        d.error = torch.where(u.value.abs() <= u.error, 1.0, d.error) * (u.value != 0) + 2 * (u.value == 0) * (
            u.error > 0
        )
    if function == "satursin":  # and here it ends
        d.error = d.error + torch.where((u.value.abs() - math.pi / 2).abs() <= u.error + 1e-6, 1e-3, 0.0)
    return _gained(given, x, g, f, d, alpha, each, axis)


def _gained(given: Given, x: Near, g: Near, f: Near, d: Near, alpha: Near, each, axis: int) -> Found:
    others = tuple(a for a in range(x.value.dim()) if a != axis % x.value.dim())
    y, h = f, g
    if "weight" in given:
        weight = given["weight"].view(each)
        y, h = y * weight, h * weight
    if "bias" in given:
        y = y + given["bias"].view(each)
    du = h * d
    everything = range(x.value.dim())
    found = {"y": y, "dx": du * alpha, "dalpha": (du * x).sum(everything).view(given.tensors["alpha"].shape)}
    if "shift" in given:
        found["dshift"] = du.sum(everything).view(given.tensors["shift"].shape)
    depth = _depth(x.value.numel() // max(x.value.shape[axis], 1), x.value.shape[axis])
    return found | _affine_gradients(given, (g * f).sum(others, depth), g.sum(others, depth))


def _affine_gradients(given: Given, dweight: Near, dbias: Near) -> Found:
    found = {}
    if "weight" in given:
        found["dweight"] = _spread(dweight, given.tensors["weight"])
    if "bias" in given:
        found["dbias"] = _spread(dbias, given.tensors["bias"])
    return found


def eln(given: Given, axis: int) -> Found:
    """sqrt(dim) x / sqrt(beta + x^2) weight + bias."""
    x, g = given["x"], given.cotangent("y")
    each = [1] * x.value.dim()
    each[axis] = -1
    others = tuple(a for a in range(x.value.dim()) if a != axis % x.value.dim())
    beta = given["alpha"].view(())
    q = (beta + x.square()).reciprocal_root()
    scale = math.sqrt(x.value.shape[axis])
    f, cube = x * q * scale, q * q * q * scale
    y, h = f, g
    if "weight" in given:
        y, h = y * given["weight"].view(each), h * given["weight"].view(each)
    if "bias" in given:
        y = y + given["bias"].view(each)
    everything = range(x.value.dim())
    dbeta = (h * x * cube).sum(everything).view(given.tensors["alpha"].shape) * -0.5
    # the formula's own gradient is a difference, beta q^3 = q - x^2 q^3, of which large x leave little
    slope = cube * beta if given.unit.pivoted else q * scale - x * x * cube
    found = {"y": y, "dx": h * slope, "dalpha": dbeta}
    depth = _depth(x.value.numel() // max(x.value.shape[axis], 1), x.value.shape[axis])
    return found | _affine_gradients(given, (g * f).sum(others, depth), g.sum(others, depth))


# Turns.


def _turn(x: Near, cos: Near, sin: Near, pairing: str) -> Near:
    half = x.value.shape[-1] // 2
    if pairing == "halves":
        a, b = x.map(lambda t: t[..., :half]), x.map(lambda t: t[..., half:])
    else:
        a, b = x.map(lambda t: t[..., ::2]), x.map(lambda t: t[..., 1::2])
    p, q = a * cos - b * sin, b * cos + a * sin
    join = (
        (lambda s, t: torch.cat([s, t], -1))
        if pairing == "halves"
        else lambda s, t: torch.stack([s, t], -1).flatten(-2)
    )
    return Near(join(p.value, q.value), join(p.error, q.error), x.unit)


def rotate(given: Given, pairing: str) -> Found:
    """The turn alone."""
    cos, sin = given["cos"], given["sin"]
    return {
        "y": _turn(given["x"], cos, sin, pairing),
        "dx": _turn(given.cotangent("y"), cos, -sin, pairing),
    }


def norm_rotate(given: Given, rule: Any, pairing: str) -> Found:
    """The norm of each row, then the turn."""
    cos, sin = given["cos"], given["sin"]
    found = row(given, rule, 1, grad=_turn(given.cotangent("y"), cos, -sin, pairing))
    return found | {"y": _turn(found["y"], cos, sin, pairing)}


# Small matrices.


def sinkhorn(given: Given, rounds: int, eps: float) -> Found:
    """A softmax of rows plus eps; columns, then rows and columns in turn, over their sums plus eps."""
    x, g = given["x"], given.cotangent("y")
    most = Near(x.value.amax(-1, keepdim=True), x.error.amax(-1, keepdim=True), x.unit)
    e = (x - most).smooth(torch.exp, 1.0, 2.0)
    p = e / e.sum((-1,))
    m, steps = p + eps, []
    for axis in [-2, *[-1, -2] * (rounds - 1)]:
        s = m.sum((axis,)) + eps
        m = m / s
        steps.append((axis, s, m))
    for axis, s, y in reversed(steps):
        g = (g - (g * y).sum((axis,))) / s
    return {"y": m, "dx": p * (g - (g * p).sum((-1,)))}


# Channels.


class Channels:
    """x as (N, groups, channels of a group, space), and what is per channel beside it."""

    def __init__(self, given: Given, groups: int | None, over: tuple[int, ...]):
        x = given.tensors["x"]
        self.shape, self.given = x.shape, given
        groups = x.shape[1] if groups is None else groups
        self.inner = (x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))
        self.x, self.g, self.over = given["x"].view(self.inner), given.cotangent("y").view(self.inner), over

    def each(self, name: str, default: float) -> Near:
        """A parameter, one number a channel (of each sample, if it has two axes), or one for all."""
        if name not in self.given:
            return self.given.number(default).view(1, 1, 1, 1)
        value = self.given[name]
        if value.value.numel() == 1:
            return value.view(1, 1, 1, 1)
        return value.view(-1, *self.inner[1:3], 1)

    def per(self, found: Near, name: str) -> Near:
        """A gradient, in the shape of its parameter."""
        like = self.given.tensors[name]
        if like.numel() == 1:
            return found.sum((0, 1, 2, 3)).view(like.shape)
        return found.sum(
            (3,) if like.dim() > 1 and like.shape[0] == self.inner[0] and like.dim() == 2 else (0, 3)
        ).view(like.shape)

    def back(self, found: Near) -> Near:
        """In the shape of x."""
        return found.view(self.shape)

    def parameters(self, along: Near, total: Near) -> Found:
        """Gradients of weight and bias, from what they multiply."""
        found = {}
        if "weight" in self.given:
            found["dweight"] = self.per(along, "weight")
        if "bias" in self.given:
            found["dbias"] = self.per(total, "bias")
        return found


def deviation(given: Given, eps: float, groups: int | None, over: tuple[int, ...]) -> Found:
    """(x - mean) / deviation over the axes ``over`` of (N, groups, channels, space), weight and bias per channel."""
    c = Channels(given, groups, over)
    z, var = c.x.centered(over)
    r = (var + eps).reciprocal_root()
    h, w = z * r, c.each("weight", 1.0)
    k = c.g * w
    dx = _by_root(r, k - k.mean(over) - h * (k * h).mean(over))
    found = {"y": c.back(h * w + c.each("bias", 0.0)), "dx": c.back(dx)} | c.parameters(c.g * h, c.g)
    if over == (0, 2, 3):
        near = c.x.value
        mean = near[:1, :, :, :1] + (near - near[:1, :, :, :1]).mean(over, keepdim=True)
        off = z.error.amax(over, keepdim=True) if near.numel() else 0.0
        found |= {"mean": Near(mean, off + given.unit.half * mean.abs(), given.unit).view(-1), "var": var.view(-1)}
    return found


def given_moments(given: Given, eps: float) -> Found:
    """(x - mean) / sqrt(var + eps), of given moments."""
    c = Channels(given, None, ())
    m, v, w = c.each("mean", 0.0), c.each("var", 1.0), c.each("weight", 1.0)
    r = (v + eps).reciprocal_root()
    z = c.x - m
    h = z * r
    k = c.g * w
    found = {"y": c.back(h * w + c.each("bias", 0.0)), "dx": c.back(k * r)} | c.parameters(c.g * h, c.g)
    return found | {"dmean": c.per(-(k * r), "mean"), "dvar": c.per(k * h * r * r * -0.5, "var")}


def response(given: Given, eps: float) -> Found:
    """x / root mean square over space, then the greater of that and tau."""
    c = Channels(given, None, (3,))
    learned = given["eps"].view(()) if "eps" in given else given.number(eps)
    r = (c.x.square().mean((3,)) + learned).reciprocal_root()
    h, w = c.x * r, c.each("weight", 1.0)
    y, g = h * w + c.each("bias", 0.0), c.g
    found = {}
    if "tau" in given:
        tau = c.each("tau", 0.0)
        doubt = y.error + tau.error  # of exact numbers a tie is one for certain
        tie = ((y.value - tau.value).abs() <= doubt) & (doubt > 0) | y.value.isnan()
        half = torch.where(y.value == tau.value, 0.5, 1.0)
        passed = (g * half).where(y.value >= tau.value, tie)
        held = (g * half).where(y.value <= tau.value, tie)
        found["dtau"] = c.per(held, "tau")
        y, g = Near(torch.maximum(y.value, tau.value), y.error, y.unit), passed
    k = g * w
    along = (k * h).mean((3,))
    found |= {"y": c.back(y), "dx": c.back(_by_root(r, k - h * along))} | c.parameters(g * h, g)
    if "eps" in given:
        samples, channels, _, space = c.inner
        found["deps"] = (along * r * r * (-0.5 * space)).sum(range(4), samples * channels)
        found["deps"] = found["deps"].view(given.tensors["eps"].shape)
    return found


def share(given: Given, eps: float) -> Found:
    """weight x L / (mean of L + eps) + bias + x, L the length over space."""
    c = Channels(given, None, (3,))
    length = c.x.square().sum((3,)).root()
    level = length.mean((1,)) + eps
    q, w = length / level, c.each("weight", 1.0)
    part = c.x * q
    along = (c.g * w * c.x).sum((3,))
    pull = along / level - (along * length).sum((1,)) / (level * level * c.inner[1])
    none = length.value == 0
    safe = Near(torch.where(none, 1.0, length.value), torch.where(none, 0.0, length.error), length.unit)
    toward = (c.x / safe).where(~none.expand_as(c.x.value), (none & (length.error > 1e-18)).expand_as(c.x.value))
    dx = c.g * (w * q + 1) + toward * pull
    return {"y": c.back(part * w + c.each("bias", 0.0) + c.x), "dx": c.back(dx)} | c.parameters(c.g * part, c.g)


def _sigmoid(v: Near) -> Near:
    value = torch.sigmoid(v.value)
    return Near(value, 0.25 * v.error + 6 * v.unit.half * value + v.unit.least, v.unit)


def swish(given: Given, eps: float, groups: int, center: bool) -> Found:
    """weight x sigmoid(slope x) / deviation + bias."""
    c = Channels(given, groups, (2, 3))
    if center:
        z, var = c.x.centered((2, 3))
    else:
        z, var = c.x, c.x.square().mean((2, 3))
    r = (var + eps).reciprocal_root()
    slope, w = c.each("slope", 1.0), c.each("weight", 1.0)
    s = _sigmoid(slope * c.x)
    bent, k = c.x * s * r, c.g * w
    falling = s * (1 - s)
    direct = k * r * (s + slope * c.x * falling)
    dx = direct - _by_root(r, z * r * (k * bent).mean((2, 3)))
    found = {"y": c.back(bent * w + c.each("bias", 0.0)), "dx": c.back(dx)} | c.parameters(c.g * bent, c.g)
    if "slope" in given:
        found["dslope"] = c.per(c.g * c.x * c.x * falling * (w * r), "slope")
    return found


def position(given: Given, eps: float) -> Found:
    """Over the channels of each position."""
    c = Channels(given, None, (1,))
    z, var = c.x.centered((1,))
    r = (var + eps).reciprocal_root()
    h, w = z * r, c.each("weight", 1.0)
    k = c.g * w
    dx = _by_root(r, k - k.mean((1,)) - h * (k * h).mean((1,)))
    return {"y": c.back(h * w + c.each("bias", 0.0)), "dx": c.back(dx)} | c.parameters(c.g * h, c.g)


def online(given: Given, control: Any, limit: float | None) -> Found:
    """Sample after sample, each by the moments before it; backward the same with u and v."""
    c = Channels(given, None, (3,))
    w, b = c.each("weight", 1.0), c.each("bias", 0.0)
    state = [given[name].view(1, -1, 1, 1) for name in ("running_mean", "running_var", "u", "v")]
    if not given.unit.pivoted:  # the formula has them in its own type
        state = [s * 1.0 for s in state]
    keep, old = control.forward_decay, control.backward_decay
    z, var = c.x.centered((3,))
    own = Near(c.x.value - z.value, z.error, z.unit)
    steps, ys = [], []
    for i in range(c.inner[0]):
        pick = lambda t: t[i : i + 1]  # noqa: B023, E731
        mean = Near(pick(own.value).mean(3, keepdim=True), pick(z.error).mean(3, keepdim=True), z.unit) * 1.0
        r = (state[1] + control.eps).reciprocal_root()
        h = (c.x.map(pick) - state[0]) * r
        y = h * w + b
        off = mean - state[0]
        g, spread = c.g.map(pick), var.map(pick)
        if limit is not None:
            inside = y.value.abs() <= limit
            g = g.where(inside, (y.value.abs() - limit).abs() <= y.error)
            y = Near(y.value.clamp(-limit, limit), y.error, y.unit)
        ys.append(y)
        steps.append((g, h, r, off * r, (off.square() + spread) * r.square()))
        state[1] = state[1] * keep + (spread + off.square() * keep) * (1 - keep)
        state[0] = state[0] + off * (1 - keep)
    found = _control(c, w, steps, state, old)
    y = Near(torch.cat([t.value for t in ys]), torch.cat([t.error for t in ys]), given.unit)
    return found | {"y": c.back(y), "running_mean": state[0].view(-1), "running_var": state[1].view(-1)}


def _control(c: Channels, w: Near, steps: list, state: list[Near], old: float) -> Found:
    u, v, dxs = state[2], state[3], []
    for g, h, r, off, square in steps:
        k = g * w
        total, along = k.mean((3,)), (k * h).mean((3,))
        dxs.append((k - h * (v * (1 - old))) * r - u * (1 - old))
        u = u * old + (total - v * off * (1 - old)) * r
        v = v * (1 - square * (1 - old)) + along
    gather = lambda ts: Near(torch.cat([t.value for t in ts]), torch.cat([t.error for t in ts]), c.x.unit)  # noqa: E731
    g, h = gather([s[0] for s in steps]), gather([s[1].map(lambda t: t.expand(1, *c.inner[1:])) for s in steps])
    return {"dx": c.back(gather(dxs)), "u": u.view(-1), "v": v.view(-1)} | c.parameters(g * h, g)
