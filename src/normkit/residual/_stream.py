"""Modules with sublayers on a residual stream: the wiring of a placement, carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.kinds.module import BLOCK, Method
from normkit.layers import Linear
from normkit.residual.placements import (
    WIRINGS,
    At,
    Branch,
    Wiring,
    add_then,
    base_scale,
    make_norm,
    place_of,
    wiring_of,
)

NormName = str | Callable[[int], nn.Module]
Sublayer = Callable[[Tensor], Tensor]


def square(dim: int) -> nn.Module:
    """A smallest sublayer."""
    return Linear(dim, dim, bias=False)


SUBLAYERS = {"attention": square, "feedforward": square}  # what the blocks' cards show as an example


UNIT = ops.Row(eps=1e-12, eps_place="floor")


def unit(x: Tensor) -> Tensor:
    """Divide by the length over the last axis; a vector of zeros stays one."""
    return ops.row_norm(x, rule=UNIT)


class Stream(Method):
    """A residual stream of ``dim`` features that sublayers read from and write to, each wired by a :class:`Branch`.

    Norms and learned numbers are registered flat, under the sublayer's name: ``attention_norm``, ``feedforward_scale``.
    """

    kind = BLOCK
    placement: str
    place: At
    branches: dict[str, Branch]

    def __init__(
        self,
        placement: str,
        dim: int,
        layer: int,
        depth: int,
        options: dict[str, Any],
        sublayers: int = 2,
        other_depth: int = 0,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.place = place_of(self, placement, layer, depth, dim, options, sublayers, other_depth)
        self.placement = placement
        self.branches = {}

    @property
    def wiring(self) -> Wiring:
        """The row of the table that this layer is wired by."""
        return wiring_of(self, self.placement).of(self.place)

    def wire(self, name: str, branch: Branch, norm: NormName) -> None:
        """Register what ``branch`` has of its own: norms and learned numbers."""
        self.branches[name] = branch
        if branch.norm:
            self.add_module(_joined(name, "norm"), make_norm(self, norm, self.dim))
        if branch.output_norm:
            self.add_module(_joined(name, "output_norm"), self._started(norm, branch.output_start))
        for number in ("shift", "scale"):
            start = getattr(branch, number)
            if start is not None:
                self.register_parameter(_joined(name, number), nn.Parameter(torch.full((1,), start)))
        if branch.residual_scale:
            self.residual_scale = nn.Parameter(torch.ones(self.dim))
        if branch.sphere:
            self.base_scale = base_scale(self.place)
            alpha = torch.full((self.dim,), self.base_scale)
            self.register_parameter(_joined(name, "alpha"), nn.Parameter(alpha))

    def _started(self, norm: NormName, start: float) -> nn.Module:
        made = make_norm(self, norm, self.dim)
        weight = getattr(made, "weight", None)
        if start != 1:
            if not isinstance(weight, Tensor):
                raise ValueError(
                    f"{type(self).__name__}: this placement starts the norm's gain at {start:.3g}, "
                    f"but norm={norm!r} has no weight"
                )
            offset = getattr(getattr(made, "rule", None), "offset", 0.0)
            nn.init.constant_(weight, start - offset)
        return made

    def own(self, name: str, part: str) -> Any:
        """A part of the branch ``name``: its norm, its scale; None where it has none."""
        return getattr(self, _joined(name, part), None)

    def connect(self, name: str, x: Tensor, pending: Tensor | None, sublayer: Sublayer) -> tuple[Tensor, Tensor | None]:
        """Run a sublayer on the stream ``x + pending``; return the stream and what is still to be added to it.

        The addition is left to the next norm, which does it in the same pass over memory.
        """
        branch = self.branches[name]
        inner, x = self._enter(name, branch, x, pending)
        y = sublayer(inner)
        check.shape(self, f"the result of {name or 'the sublayer'}", y, inner.shape)
        return self._leave(name, branch, x, y)

    def _enter(self, name: str, branch: Branch, x: Tensor, pending: Tensor | None) -> tuple[Tensor, Tensor]:
        """The sublayer's input, and the stream."""
        if branch.norm in ("input", "stream"):
            inner, x = add_then(self.own(name, "norm"), x, pending)
            x = inner if branch.norm == "stream" else x
        else:
            inner = x = x if pending is None else x + pending
        if branch.shift is not None:
            inner = inner - self.own(name, "shift").to(x.dtype)
        return (inner * branch.gain if branch.gain != 1 else inner), x

    def _leave(self, name: str, branch: Branch, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        """The stream, and what the sublayer adds to it."""
        if branch.sphere:
            return self._on_the_sphere(self.own(name, "alpha"), x, y), None
        y = self.own(name, "output_norm")(y) if branch.output_norm else y
        y = y * self.own(name, "scale").to(y.dtype) if branch.scale is not None else y
        y = y * branch.branch if branch.branch != 1 else y
        x = x * branch.residual if branch.residual != 1 else x
        x = x * self.residual_scale.to(x.dtype) if branch.residual_scale else x
        return (add_then(self.own(name, "norm"), x, y)[0], None) if branch.norm == "sum" else (x, y)

    def _on_the_sphere(self, alpha: Tensor, x: Tensor, y: Tensor) -> Tensor:
        rate = (alpha * (0.05 / self.base_scale)).abs().to(x.dtype)
        x, y = unit(x), unit(y.to(x.dtype))
        return unit(x + rate * (y - x))


def _joined(name: str, part: str) -> str:
    return f"{name}_{part}" if name else part


class Block(Stream):
    """A placement around two sublayers of the caller's; the base of the blocks by name."""

    attention: Sublayer
    feedforward: Sublayer

    def __init__(
        self,
        placement: str,
        dim: int,
        layer: int,
        depth: int,
        norm: NormName,
        attention: Sublayer,
        feedforward: Sublayer,
        **options: Any,
    ):
        super().__init__(placement, dim, layer, depth, options)
        for name, branch in self.wiring.branches(self.place).items():
            self.wire(name, branch, norm)
        self.attention = sublayer_of(self, "attention", attention)
        self.feedforward = sublayer_of(self, "feedforward", feedforward)

    def forward(self, x: Tensor, **arguments: Any) -> Tensor:
        """Pass ``x`` (..., dim) through both sublayers; further keyword arguments go to ``attention``."""
        check.features_last(self, x, self.dim)
        x, y = self.connect("attention", x, None, lambda h: self.attention(h, **arguments))
        x, y = self.connect("feedforward", x, y, self.feedforward)
        return x if y is None else x + y


def sublayer_of(owner: object, name: str, sublayer: Any) -> Sublayer:
    """Require something that can be called."""
    if not callable(sublayer):
        raise TypeError(f"{type(owner).__name__}: {name} must be a module or a function, not {sublayer!r}")
    return sublayer


class Placement(Stream):
    """A placement around one sublayer of any kind: a transformer's, a block of a CNN, a user's own.

        >>> around = Placement("peri-norm", 8, norm="rmsnorm")
        >>> around(torch.zeros(2, 8), torch.nn.Linear(8, 8)).shape
        torch.Size([2, 8])

    Args:
        placement: a name of :data:`normkit.residual.placements.WIRINGS` that does not reach inside the sublayer.
        dim: features of the stream.
        layer, depth: where the layer stands, from 0; how many layers of two branches the model has.
        norm: a norm of the catalogue by name, or a function of the width: ``nn.BatchNorm2d`` for images.
        sublayer: ``"attention"`` or ``"feedforward"``, where a placement wires the two in different ways.
        **options: the placement's own.

    Call it with the stream and the sublayer. State: ``norm``, ``output_norm``, ``scale``, ``shift``, where it has them.
    """

    def __init__(
        self,
        placement: str,
        dim: int,
        *,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        sublayer: str = "feedforward",
        **options: Any,
    ):
        super().__init__(placement, dim, layer, depth, options)
        inside = self.wiring.needs_a_layer and self.wiring.hidden != "shift"
        if inside:
            usable = ", ".join(name for name, w in WIRINGS.items() if not w.needs_a_layer)
            raise ValueError(
                f"Placement: {placement!r} reaches inside its sublayers, use TransformerLayer; around any go {usable}"
            )
        check.choice(self, "sublayer", sublayer, ("attention", "feedforward"))
        self.shown = f"{placement!r}, {dim}, layer={layer}, depth={depth}"
        self.wire("", self.wiring.branches(self.place)[sublayer], norm)

    def extra_repr(self) -> str:
        """Name the placement and where it stands."""
        return self.shown

    def initialize(self, sublayer: nn.Module) -> nn.Module:
        """Let the sublayer's matrices start as the placement wants them (Fixup's zeros, DeepNorm's beta); return it.

        Its matrices and kernels are taken in the order of ``parameters()``; DeepNorm spares those named query or key.
        """
        matrices = {name: p for name, p in sublayer.named_parameters() if p.dim() > 1}
        if self.wiring.init is not None and matrices:
            self.wiring.init(matrices, self.place)
        return sublayer

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Pass the stream ``x`` by and through ``sublayer``, a map of its shape to itself."""
        check.floating(self, x)
        x, y = self.connect("", x, None, sublayer_of(self, "sublayer", sublayer))
        return x if y is None else x + y
