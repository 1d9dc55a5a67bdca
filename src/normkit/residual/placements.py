"""Placements as a table: where norms and scales stand between a sublayer F and the residual stream x.

Every row is this formula with parts left out, x being the stream before the sublayer:

    out = sum_norm( residual * x + branch * scale * output_norm( F( gain * norm(x - shift) ) ) )

    >>> sorted(WIRINGS)[:3]
    ['deepnorm', 'depth-scaled-sandwich', 'fixup-residual']
    >>> WIRINGS["peri-norm"].attention
    Branch(norm='input', output_norm=True)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from normkit import catalog, check
from normkit.depth import check_layer
from normkit.kinds import NORM

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
    gain, residual, branch: constants on the norm's output, on the stream, and on the sublayer's output.
    shift, scale: where learned numbers, subtracted from the input and multiplied to the output, start; None: there
        are none.
    residual_scale: a learned vector multiplies the stream.
    sphere: the stream moves on the unit sphere towards the sublayer's output, by a learned share of the way.
    """

    norm: str | None = None
    output_norm: bool = False
    output_start: Number = 1.0
    gain: Number = 1.0
    residual: Number = 1.0
    branch: Number = 1.0
    shift: float | None = None
    scale: float | None = None
    residual_scale: bool | Callable[[At], bool] = False
    sphere: bool = False

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


@torch.no_grad()
def _deepnorm_init(matrices: Matrices, at: At) -> None:
    beta = 0.87 * (at.depth**4 * at.other_depth) ** (-1 / 16) if at.is_read else (4 * at.stack) ** -0.25
    for name, matrix in matrices.items():
        nn.init.xavier_normal_(matrix, 1.0 if name.startswith(("query", "key")) else beta)


@torch.no_grad()
def _fixup_init(matrices: Matrices, at: At) -> None:
    *inner, last = matrices.values()
    for matrix in inner:
        nn.init.xavier_uniform_(matrix, at.branches ** (-1 / (2 * len(inner))))
    nn.init.zeros_(last)


@torch.no_grad()
def _tiny_init(matrices: Matrices, at: At) -> None:
    for matrix in matrices.values():
        nn.init.normal_(matrix, std=(2 * at.dim * at.depth) ** -0.5)


@torch.no_grad()
def _sphere_init(matrices: Matrices, at: At) -> None:
    *inner, last = matrices.values()
    std = base_scale(at)
    for matrix in inner:
        nn.init.normal_(matrix, std=std)
    nn.init.normal_(last, std=std / math.sqrt(at.branches))


def base_scale(at: At) -> float:
    """nGPT's scale that learned numbers are stored at."""
    given = at.options["base_scale"]
    return at.dim**-0.5 if given is None else check.number("ngpt", "base_scale", given, 0.0, open_low=True)


def _deepnorm_alpha(at: At) -> float:
    given = at.options["alpha"]
    if given is not None:
        return check.number("deepnorm", "alpha", given)
    return 0.81 * (at.depth**4 * at.other_depth) ** (1 / 16) if at.is_read else at.stack**0.25


def _mix_early(at: At) -> int:
    return int(check.number("mix-ln", "alpha", at.options["alpha"], 0.0, 1.0) * at.depth)


def _residual_scaling(at: At) -> float:
    given = at.options["scaling"]
    if not isinstance(given, str):
        return check.number("residual-scaling", "scaling", given)
    return (
        at.branches
        ** {"inverse": -1.0, "root": -0.5}[check.choice("residual-scaling", "scaling", given, ("inverse", "root"))]
    )


def _over_root_depth(option: str) -> Callable[[At], float]:
    return lambda at: check.number("depth-scaled-sandwich", option, at.options[option]) / math.sqrt(at.depth)


PRE, POST = Branch(norm="input"), Branch(norm="sum")
PERI = Branch(norm="input", output_norm=True)

WIRINGS: dict[str, Wiring] = {
    "pre-norm": Wiring(PRE),
    "post-norm": Wiring(POST, final_norm=False),
    "res-post-norm": Wiring(Branch(output_norm=True)),
    "peri-norm": Wiring(PERI, embedding_norm=True),
    "depth-scaled-sandwich": Wiring(
        dataclasses.replace(PERI, output_start=_over_root_depth("attention_constant")),
        dataclasses.replace(PERI, output_start=_over_root_depth("feedforward_constant")),
        options={"attention_constant": 0.283, "feedforward_constant": 0.432},
        init=_tiny_init,
    ),
    "deepnorm": Wiring(
        dataclasses.replace(POST, residual=_deepnorm_alpha),
        options={"alpha": None},
        init=_deepnorm_init,
        final_norm=False,
    ),
    "layernorm-scaling": Wiring(dataclasses.replace(PRE, gain=lambda at: (at.layer + 1) ** -0.5)),
    "mix-ln": Wiring(PRE, options={"alpha": 0.25}, early=_mix_early, early_wiring=Wiring(POST)),
    "residual-scaling": Wiring(Branch(branch=_residual_scaling), options={"scaling": "inverse"}, final_norm=False),
    "skipinit": Wiring(Branch(scale=0.0), final_norm=False),
    "fixup-residual": Wiring(Branch(shift=0.0, scale=1.0), hidden="shift", init=_fixup_init, final_norm=False),
    "qk-norm": Wiring(PRE, head_norms=("query", "key")),
    "hybridnorm": Wiring(Branch(), Branch(norm="stream"), head_norms=QKV),
    "hybridnorm*": Wiring(
        Branch(), Branch(norm="stream"), head_norms=QKV, early=1, early_wiring=Wiring(PRE, head_norms=QKV)
    ),
    "normformer": Wiring(
        PERI,
        Branch(norm="input", residual_scale=lambda at: bool(at.options["scale_residual"])),
        options={"scale_residual": False},
        head_scale=True,
        hidden="norm",
    ),
    "ngpt": Wiring(
        Branch(sphere=True),
        options={"base_scale": None},
        hidden="scale",
        activation="swiglu",
        init=_sphere_init,
        final_norm=False,
    ),
}


def wiring_of(owner: object, name: str) -> Wiring:
    """Return a row of the table by name."""
    return WIRINGS[check.choice(owner, "placement", name, tuple(WIRINGS))]


def place_of(
    owner: object,
    name: str,
    layer: int,
    depth: int,
    dim: int,
    options: Mapping[str, Any],
    sublayers: int = 2,
    other_depth: int = 0,
) -> At:
    """Check where a layer stands and the options of its placement, and fill in the options' defaults."""
    known = wiring_of(owner, name).options
    for option in options:
        if option not in known:
            has = f"its options are {', '.join(known)}" if known else "it has no options"
            raise TypeError(f"{_name(owner)}: placement {name!r} takes no argument {option!r}; {has}")
    check_layer(owner, layer, depth)
    check.size(owner, "other_depth", other_depth, least=0)
    return At(layer, depth, dim, {**known, **options}, sublayers, other_depth)


def make_norm(owner: object, norm: str | Callable[[int], nn.Module], dim: int) -> nn.Module:
    """Build a norm over ``dim`` features: by its name in the catalogue, or by a function of the width."""
    if not isinstance(norm, str):
        if not callable(norm):
            raise TypeError(
                f"{_name(owner)}: norm must be a name such as 'rmsnorm' or a function of the width, not {norm!r}"
            )
        return norm(dim)
    card = catalog.card(norm)
    if not fits_a_stream(card):
        usable = [name for name in catalog.methods() if fits_a_stream(catalog.card(name))]
        raise ValueError(
            f"{_name(owner)}: norm={norm!r} does not fit a residual stream; those that do: {', '.join(usable)}"
        )
    return catalog.create(norm, dim)


def fits_a_stream(card: catalog.Card) -> bool:
    """Whether a method normalizes (..., C) and is built from its width alone."""
    if card.kind is not NORM or card.shape != "... C":
        return False
    first, *others = card.signature.parameters.values()
    required = [p for p in others if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    alone = not required and all(layout.optional for layout in card.inputs.values())
    return first.default is first.empty and alone


def _name(owner: object) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__


def watched(module: nn.Module) -> bool:
    """Whether hooks of its own want to see the module called."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks)


def add_then(norm: nn.Module, x: Tensor, branch: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return ``norm(x + branch)`` and ``x + branch``, in one pass over memory where the norm can.

    A norm that something watches (a hook) is called as a module, so that the hook sees it.
    """
    if branch is None:
        return norm(x), x
    if hasattr(norm, "add_norm") and not watched(norm):
        return norm.add_norm(x, branch)  # type: ignore[operator]
    total = x + branch
    return norm(total), total
