"""How a placement is written down: what the residual stream is, how a sublayer F reads it and how it writes.

A :class:`Form` says what the stream is, a :class:`Connection` how a sublayer reads and writes. By default the stream is
:class:`OneVector` x, and the connection a :class:`Branch`, this formula with parts left out:

    out = sum_norm( residual * x + branch * scale * output_norm( F( gain * (norm(x) - shift) ) ) )

    >>> Wiring(Branch(norm="input", output_norm=True), embedding_norm=True).attention
    Branch(norm='input', output_norm=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from normkit import check, ops
from normkit.residual.norms import add_then

QKV = ("query", "key", "value")


class At(NamedTuple):
    """A layer's place in a model (``layer`` counts from 0), and the placement's options.

    sublayers: how many a layer has; three where it reads an encoder. other_depth: how many layers the other stack of an
    encoder-decoder has. sublayer: which of the layer's sublayers it is, from 0.
    """

    layer: int
    depth: int
    dim: int
    options: Mapping[str, Any]
    sublayers: int = 2
    other_depth: int = 0
    sublayer: int = 0

    @property
    def number(self) -> int:
        """Which of its stack's sublayers it is, from 0."""
        return self.sublayers * self.layer + self.sublayer

    @property
    def stack(self) -> int:
        """How many residual branches the layer's own stack has."""
        return self.sublayers * self.depth

    @property
    def branches(self) -> int:
        """How many residual branches the whole model has: two in a layer of an encoder, three in one that reads it."""
        return self.stack + (5 - self.sublayers) * self.other_depth

    @property
    def is_read(self) -> bool:
        """Whether the stack is an encoder that a decoder reads."""
        return self.other_depth > 0 and self.sublayers == 2


Number = Any  # a float, or a function of At that gives one
Matrices = Mapping[str, nn.Parameter]
Part = nn.Module | nn.Parameter
Own = Callable[[str], Any]  # a part of the connection by its name; None where it has none
NormMaker = Callable[..., nn.Module]  # builds a norm of the stream's width whose gain starts at ``start``
UNIT = ops.Row(eps=1e-12, eps_place="floor")


@dataclass(frozen=True)
class Form:
    """What the residual stream is: a frozen dataclass of plain values."""

    def check(self, owner: object, stream: Any, place: At, leading: tuple[None, ...] | None = None) -> Tensor:
        """Require a stream of this form, and return a tensor of it that begins with the tokens' axes.

        ``leading`` are these axes, None where they do not matter.
        """
        raise NotImplementedError

    @staticmethod
    def check_part(owner: object, name: str, x: Any, own: tuple[int, ...], leading: tuple[None, ...] | None) -> Tensor:
        """Require a tensor whose last axes have the sizes ``own``, and as many axes before them as ``leading``."""
        check.ends_in(owner, x, own, name)
        if leading is not None:
            check.shape(owner, name, x, (*leading, *own))
        return x

    @staticmethod
    def check_pair(owner: object, names: tuple[str, str], stream: Any) -> tuple[Any, Any]:
        """Require a tuple of two."""
        if not isinstance(stream, tuple) or len(stream) != 2:
            expected = f"two tensors, {' and '.join(names)}"
            raise TypeError(f"{check.whose(owner)}: x must be {expected}, not {type(stream).__name__}")
        return stream

    def expansion(self, place: At) -> nn.Module | None:
        """Build what a model learns to make the stream of its embedding; None: nothing."""
        return None

    def expand(self, x: Tensor, place: At, expansion: nn.Module | None = None) -> Any:
        """Return the stream that a model begins with, of the embedding ``x`` (..., dim)."""
        raise NotImplementedError

    def open(self, stream: Any) -> Any:
        """Return the stream as the connections hold it between sublayers."""
        return stream

    def close(self, held: Any) -> Any:
        """Return the stream that was held."""
        return held

    def collapse(self, place: At, make: NormMaker) -> nn.Module | None:
        """Build what a model learns to make one vector of the stream after its last layer; None: nothing."""
        return None

    def end(self, stream: Any, collapse: nn.Module | None, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """Return one vector, normalized by the model's last norm."""
        raise NotImplementedError


@dataclass(frozen=True)
class OneVector(Form):
    """One vector, (..., dim).

    Between sublayers it is held as two: the last addition is left to the next norm, which does it in the same pass over
    memory.
    """

    def check(self, owner: object, stream: Any, place: At, leading: tuple[None, ...] | None = None) -> Tensor:
        """Require the vector."""
        return self.check_part(owner, "x", stream, (place.dim,), leading)

    def expand(self, x: Tensor, place: At, expansion: nn.Module | None = None) -> Any:
        """Return the embedding."""
        return x

    def open(self, stream: Any) -> Any:
        """Return the vector, and that nothing is to be added."""
        return stream, None

    def close(self, held: Any) -> Any:
        """Return the sum of the two."""
        x, pending = held
        return x if pending is None else x + pending

    def end(self, stream: Any, collapse: nn.Module | None, norm: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the vector, normalized."""
        return norm(stream)


ONE = OneVector()


class Connection:
    """How a sublayer reads the stream and writes to it: a frozen dataclass of plain values.

    shares: parts that all sublayers of a layer have in common. sphere: see :class:`Branch`.
    """

    shares: ClassVar[tuple[str, ...]] = ()
    sphere: Any = None

    @property
    def normalizes(self) -> bool:
        """Whether there is a norm."""
        return True

    def at(self, place: At) -> Any:
        """Return the connection of one sublayer."""
        return self

    def alone(self) -> Any:
        """Return the connection of a sublayer that has no others beside it."""
        return self

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build the norms and learned numbers that belong to it, by name."""
        raise NotImplementedError

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and what :meth:`write` needs of the stream."""
        raise NotImplementedError

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the stream with the sublayer's output ``y`` written to it."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Branch(Connection):
    """How one sublayer is wired to a stream of one vector. Numbers may be functions of the layer's place, :class:`At`.

    norm: the place of the sublayer's norm: ``"input"``, before the sublayer; ``"stream"``, likewise, and the stream
        goes on normalized; ``"sum"``, after the sum; None, nowhere.
    output_norm: a norm on the sublayer's output, before the sum; its gain starts at ``output_start``.
    sum_norm: a second norm, after the sum, beside one on the input.
    gain, residual, branch: constants on the norm's output, on the stream, and on the sublayer's output.
    shift, scale: where learned numbers, subtracted from what the norm gives and multiplied to the output, start; None:
        there are none.
    residual_scale: a learned vector multiplies the stream.
    sphere: the stream moves on the unit sphere towards the sublayer's output, by a learned share of the way; the number
        is what learned numbers are stored at. None: it does not.
    """

    norm: str | None = None
    output_norm: bool = False
    output_start: Number = 1.0
    sum_norm: bool = False
    gain: Number = 1.0
    residual: Number = 1.0
    branch: Number = 1.0
    shift: float | None = None
    scale: float | None = None
    residual_scale: bool | Callable[[At], bool] = False
    sphere: Number | None = None

    shares = ("residual_scale",)

    def __post_init__(self) -> None:
        check.choice("Branch", "norm", self.norm, ("input", "stream", "sum", None))

    @property
    def normalizes(self) -> bool:
        """Whether there is a norm."""
        return bool(self.norm or self.output_norm or self.sum_norm)

    def at(self, place: At) -> Any:
        """Return the branch of one sublayer, its numbers worked out."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return type(self)(**{name: value(place) if callable(value) else value for name, value in values.items()})

    def __repr__(self) -> str:
        set_ = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in set_)})"

    def parts(self, place: At, make: NormMaker) -> dict[str, Part]:
        """Build its norms and learned numbers."""
        parts: dict[str, Part] = {}
        if self.norm:
            parts["norm"] = make()
        if self.output_norm:
            parts["output_norm"] = make(start=self.output_start)
        if self.sum_norm:
            parts["sum_norm"] = make()
        for number in ("shift", "scale"):
            start = getattr(self, number)
            if start is not None:
                parts[number] = nn.Parameter(torch.full((1,), start))
        if self.residual_scale:
            parts["residual_scale"] = nn.Parameter(torch.ones(place.dim))
        if self.sphere is not None:
            parts["alpha"] = nn.Parameter(torch.full((place.dim,), self.sphere))
        return parts

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the stream."""
        x, pending = held
        if self.norm in ("input", "stream"):
            inner, x = add_then(own("norm"), x, pending)
            x = inner if self.norm == "stream" else x
        else:
            inner = x = x if pending is None else x + pending
        if self.shift is not None:
            inner = inner - own("shift").to(x.dtype)
        return (inner * self.gain if self.gain != 1 else inner), x

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the stream, and what is still to be added to it."""
        x = kept
        if self.sphere is not None:
            rate = own("alpha") * (0.05 / self.sphere)
            return on_the_sphere(rate.abs().to(x.dtype), x, y), None
        y = own("output_norm")(y) if self.output_norm else y
        y = y * own("scale").to(y.dtype) if self.scale is not None else y
        y = y * self.branch if self.branch != 1 else y
        x = x * self.residual if self.residual != 1 else x
        x = x * own("residual_scale").to(x.dtype) if self.residual_scale else x
        after = own("norm") if self.norm == "sum" else own("sum_norm") if self.sum_norm else None
        return (x, y) if after is None else (add_then(after, x, y)[0], None)


def unit(x: Tensor) -> Tensor:
    """Divide by the length over the last axis; a vector of zeros stays one, and gets no gradient.

    That of the division there, 1 / eps, is infinite in float16, where an attention that sees no key gives zeros.
    """
    y = ops.row_norm(x, rule=UNIT)
    if not torch.is_grad_enabled():
        return y
    return y.masked_fill(torch.linalg.vector_norm(y.detach(), dim=-1, keepdim=True) == 0, 0)


def on_the_sphere(rate: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Go a share of the way from the direction of ``x`` to that of ``y``, and return to the unit sphere."""
    x, y = unit(x), unit(y.to(x.dtype))
    return unit(x + rate * (y - x))


@dataclass(frozen=True)
class Wiring:
    """One placement: how attention and feedforward (the same if not given) are connected, and what lies inside them.

    form: what the stream is.
    options: the placement's own arguments and their defaults.
    defaults: what its authors use of the arguments that all have: ``{"norm": "rmsnorm"}``.
    needs: what must be known of the layer's place: ``layer``, ``depth``.
    early, early_wiring: how many of the first layers are wired in another way, and how; a function of At tells how by
        the options.
    head_norms: which of query, key and value each head normalizes. head_scale: a learned number for each head.
    hidden: what acts on the feedforward's hidden features: ``"norm"``, ``"shift"`` or ``"scale"``.
    activation: the only one that the placement takes.
    init: how the sublayers' matrices start, called with their names and At; None leaves them alone.
    layer_input: how what a layer makes of an input of its own, after its feedforward, is connected; None: it has none.
    embedding_norm, final_norm: whether a model normalizes before its first and after its last layer.
    """

    attention: Connection
    feedforward: Connection | None = None
    form: Form = ONE
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    early: int | Callable[[At], int] = 0
    early_wiring: Wiring | Callable[[At], Wiring] | None = None
    head_norms: tuple[str, ...] = ()
    head_scale: bool = False
    hidden: str | None = None
    activation: str | None = None
    init: Callable[[Matrices, At], None] | None = None
    layer_input: Connection | None = None
    embedding_norm: bool = False
    final_norm: bool = True

    def branches(self, place: At) -> dict[str, Connection]:
        """Return the connections of one layer, their numbers worked out; cross-attention is wired as attention is."""
        crossed = ("cross_attention",) if place.sublayers == 3 else ()
        wired = dict.fromkeys(("attention", *crossed), self.attention)
        wired["feedforward"] = self.feedforward or self.attention
        return {name: wire.at(place._replace(sublayer=index)) for index, (name, wire) in enumerate(wired.items())}

    def of(self, place: At) -> Wiring:
        """Return the wiring of one layer: the early layers' may differ."""
        early = self.early(place) if callable(self.early) else self.early
        if self.early_wiring is None or place.layer >= early:
            return self
        return self.early_wiring(place) if callable(self.early_wiring) else self.early_wiring

    @property
    def needs_a_layer(self) -> bool:
        """Whether it reaches inside attention or feedforward, so that it cannot go around sublayers of any kind."""
        return bool(self.head_norms or self.head_scale or self.hidden)

    @property
    def normalizes(self) -> bool:
        """Whether there is a norm anywhere."""
        around = any(wire.normalizes for wire in (self.attention, self.feedforward) if wire is not None)
        return bool(around or self.head_norms or self.hidden == "norm")
