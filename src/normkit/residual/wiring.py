"""How a placement is written down: where norms and scales stand between a sublayer F and the residual stream x.

Every wiring is this formula with parts left out, x being the stream before the sublayer:

    out = sum_norm( residual * x + branch * scale * output_norm( F( gain * norm(x - shift) ) ) )

    >>> Wiring(Branch(norm="input", output_norm=True), embedding_norm=True).attention
    Branch(norm='input', output_norm=True)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

QKV = ("query", "key", "value")


class At(NamedTuple):
    """Where in a model a layer stands (``layer`` counts from 0), and the placement's options.

    sublayers: how many a layer has; three where it reads an encoder. other_depth: how many layers the other stack of an
    encoder-decoder has.
    """

    layer: int
    depth: int
    dim: int
    options: Mapping[str, Any]
    sublayers: int = 2
    other_depth: int = 0

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


@dataclass(frozen=True, repr=False)
class Branch:
    """How one sublayer is wired to the stream. Numbers may be functions of the layer's place, :class:`At`.

    norm: where the sublayer's norm stands: ``"input"``, before the sublayer; ``"stream"``, likewise, and the stream
        goes on normalized; ``"sum"``, after the sum; None, nowhere.
    output_norm: a norm on the sublayer's output, before the sum; its gain starts at ``output_start``.
    sum_norm: a second norm, after the sum, beside one on the input.
    gain, residual, branch: constants on the norm's output, on the stream, and on the sublayer's output.
    shift, scale: where learned numbers, subtracted from the input and multiplied to the output, start; None: there
        are none.
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

    def at(self, place: At) -> Branch:
        """Return the branch of one layer, its numbers worked out."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return Branch(**{name: value(place) if callable(value) else value for name, value in values.items()})

    def __repr__(self) -> str:
        set_ = [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if getattr(self, f.name) != f.default]
        return f"Branch({', '.join(f'{name}={value!r}' for name, value in set_)})"


@dataclass(frozen=True)
class Wiring:
    """One placement: a branch for attention, one for the feedforward (the same if not given), what lies inside them.

    options: the placement's own arguments and their defaults.
    defaults: what its authors use of the arguments that all have: ``{"norm": "rmsnorm"}``.
    needs: what must be told of the layer's place: ``layer``, ``depth``.
    early, early_wiring: how many of the first layers are wired in another way, and how.
    head_norms: which of query, key and value each head normalizes. head_scale: a learned number for each head.
    hidden: what acts on the feedforward's hidden features: ``"norm"``, ``"shift"`` or ``"scale"``.
    activation: the only one that the placement takes.
    init: how the sublayers' matrices start, called with their names and At; None leaves them alone.
    embedding_norm, final_norm: whether a model normalizes before its first and after its last layer.
    """

    attention: Branch
    feedforward: Branch | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    early: int | Callable[[At], int] = 0
    early_wiring: Wiring | None = None
    head_norms: tuple[str, ...] = ()
    head_scale: bool = False
    hidden: str | None = None
    activation: str | None = None
    init: Callable[[Matrices, At], None] | None = None
    embedding_norm: bool = False
    final_norm: bool = True

    def branches(self, place: At) -> dict[str, Branch]:
        """Return the branches of one layer, their numbers worked out; cross-attention is wired as attention is."""
        attention = self.attention.at(place)
        crossed = {"cross_attention": attention} if place.sublayers == 3 else {}
        return {"attention": attention, **crossed, "feedforward": (self.feedforward or self.attention).at(place)}

    def of(self, place: At) -> Wiring:
        """Return the wiring of one layer: the early layers' may differ."""
        early = self.early(place) if callable(self.early) else self.early
        return self.early_wiring if self.early_wiring is not None and place.layer < early else self

    @property
    def needs_a_layer(self) -> bool:
        """Whether it reaches inside attention or feedforward, so that it cannot go around sublayers of any kind."""
        return bool(self.head_norms or self.head_scale or self.hidden)

    @property
    def normalizes(self) -> bool:
        """Whether there is a norm anywhere."""
        branches = (branch for branch in (self.attention, self.feedforward) if branch is not None)
        around = any(branch.norm or branch.output_norm or branch.sum_norm for branch in branches)
        return bool(around or self.head_norms or self.hidden == "norm")
