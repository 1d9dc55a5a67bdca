"""Modules with sublayers on a residual stream: the wiring of a placement, carried out."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from normkit import catalog, check
from normkit.catalog import Card, Choice
from normkit.depth import check_layer
from normkit.kinds import BLOCK, Kind, Method
from normkit.kinds.arguments import near
from normkit.kinds.module import MODULE_LINES, ModuleKind
from normkit.layers import Linear
from normkit.residual.norms import NormName, make_norm
from normkit.residual.wiring import ONE, At, Connection, Form, Wiring

Sublayer = Callable[[Tensor], Tensor]
LAYER = "transformer-layer"  # the method that builds the placements which come as a whole layer


def square(dim: int) -> nn.Module:
    """A smallest sublayer."""
    return Linear(dim, dim, bias=False)


# what the cards show as an example, of blocks and of whole layers
SUBLAYERS = {"attention": square, "feedforward": square}
SIZES = {"heads": 2, "hidden": 12}


@dataclass(frozen=True)
class WholeKind(ModuleKind):
    """A placement that another method builds, the transformer layer."""

    def prepare(self, entry: Any, card: Card) -> None:
        """Let the class know its card; that other method takes ``device`` and ``dtype``."""
        entry.card = card

    def takes(self, card: Card) -> list[str]:
        """The names of what the layer is called with."""
        layer = catalog.card(LAYER)
        return layer.kind.takes(layer)


WHOLE = WholeKind("whole layer", "layer", "residual", MODULE_LINES)
PLACEMENTS = (BLOCK, WHOLE)


def placements() -> dict[str, Wiring]:
    """Return the wirings of all placements by name."""
    return {card.name: card.entry.wiring for card in catalog.members(*PLACEMENTS)}


def wiring_of(owner: object, name: str) -> Wiring:
    """Return the wiring of a placement by name."""
    return catalog.choose(owner, "placement", name, *PLACEMENTS).card.entry.wiring


def refuse_unknown(
    owner: object, placement: str, known: Iterable[str], options: Iterable[str], kin: list[type]
) -> None:
    """Refuse options that a placement does not have, with names like theirs among the arguments of ``kin``."""
    for option in options:
        if option not in known:
            has = f"has the options {', '.join(known)}" if known else "has no options"
            names = dict.fromkeys(name for cls in kin for name in inspect.signature(cls).parameters)
            close = near(option, [name for name in names if name not in known])
            meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
            whose = f"{check.whose(owner)} takes no argument {option!r}"
            raise TypeError(f"{whose}, nor does its placement {placement!r}, which {has}{meant}")


class Stream(Method):
    """A residual stream of ``dim`` features that sublayers read from and write to, each by its :class:`Connection`.

    Norms and learned numbers are registered flat, under the sublayer's name: ``attention_norm``, ``feedforward_scale``.
    """

    placement: str
    place: At
    form: Form = ONE
    branches: dict[str, Connection]

    def __init__(
        self,
        choice: Choice,
        dim: int,
        layer: int,
        depth: int,
        options: Mapping[str, Any],
        sublayers: int = 2,
        other_depth: int = 0,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.placement = choice.card.name
        check_layer(self, layer, depth)
        check.size(self, "other_depth", other_depth, least=0)
        options = self._options(choice.card.entry.wiring.options, choice.with_arguments(options).arguments)
        self.place = At(layer, depth, dim, options, sublayers, other_depth)
        self.form = choice.card.entry.wiring.of(self.place).form
        self.branches = {}

    def _options(self, known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """Check the placement's options by name, and fill in the defaults."""
        refuse_unknown(self, self.placement, known, options, [type(self)])
        return {**known, **options}

    @property
    def own_wiring(self) -> Wiring:
        """How this layer is wired; the early layers may be in another way than the others."""
        return wiring_of(self, self.placement).of(self.place)

    def wire(self, name: str, branch: Connection, norm: NormName) -> None:
        """Register what a connection has of its own: norms and learned numbers."""
        self.branches[name] = branch
        for part, module in branch.parts(self.place, functools.partial(self._build_norm, norm)).items():
            attribute = part if part in branch.shares else _join(name, part)
            if not hasattr(self, attribute):
                setattr(self, attribute, module)

    def _build_norm(self, norm: NormName, start: float = 1.0) -> nn.Module:
        module = make_norm(self, norm, self.dim)
        self._start_gain(module, start)
        return module

    def _start_gain(self, norm: nn.Module, start: float) -> None:
        if start == 1:
            return
        weight = getattr(norm, "weight", None)
        if not isinstance(weight, Tensor):
            raise ValueError(
                f"{type(self).__name__}: this placement starts the norm's gain at {start:.3g}, "
                f"but norm={type(norm).__name__} has no weight"
            )
        nn.init.constant_(weight, start - getattr(norm, "offset", 0.0))

    def _start_gains(self) -> None:
        """Let the gains of its norms start as the placement wants them."""
        for name, branch in self.branches.items():
            for part, start in branch.parts(self.place, lambda start=1.0: start).items():
                if isinstance(start, float):
                    self._start_gain(self.own(name, part), start)

    def own(self, name: str, part: str) -> Any:
        """A part of the connection ``name``: its norm, its scale; None where it has none."""
        return getattr(self, part if part in self.branches[name].shares else _join(name, part), None)

    def connect(self, name: str, held: Any, sublayer: Sublayer) -> Any:
        """Run a sublayer on the stream, as its form holds it, and return the stream held so."""
        branch, own = self.branches[name], functools.partial(self.own, name)
        inner, kept = branch.read(own, held)
        y = sublayer(inner)
        check.shape(self, f"the result of {name or 'the sublayer'}", y, inner.shape)
        return branch.write(own, kept, y)

    def carry(self, stream: Any, sublayers: Mapping[str, Sublayer]) -> Any:
        """Pass a stream through the sublayers one after the other."""
        held = self.form.open(stream)
        for name, sublayer in sublayers.items():
            held = self.connect(name, held, sublayer)
        return self.form.close(held)


def _join(name: str, part: str) -> str:
    return f"{name}_{part}" if name else part


class Block(Stream):
    """A placement around two sublayers of the caller's. A placement is a subclass with a card and a ``wiring``.

    The wiring says which arguments there are: what it needs, its defaults, its options, and a norm where it has one.
    ``depth`` may be left out where it neither needs it nor has a default of it: its numbers do not follow from it.
    """

    kind = BLOCK
    wiring: ClassVar[Wiring]
    attention: Sublayer
    feedforward: Sublayer

    def __init_subclass__(cls, **keywords: Any):
        super().__init_subclass__(**keywords)
        if "wiring" in vars(cls):
            cls.__init__ = bind_wiring(Block.__init__, cls.wiring)  # type: ignore[method-assign]

    def __init__(
        self,
        *,
        dim: int,
        layer: int = 0,
        depth: int | None = None,
        norm: NormName = "layernorm",
        attention: Sublayer,
        feedforward: Sublayer,
        **options: Any,
    ):
        if depth is None and "depth" not in (*self.wiring.needs, *self.wiring.defaults):
            depth = check.size(self, "layer", layer, least=0) + 1
        super().__init__(Choice(self.card), dim, layer, depth, options)  # type: ignore[arg-type]  # None is refused
        for name, branch in self.wiring.of(self.place).branches(self.place).items():
            self.wire(name, branch, norm)
        self.attention = sublayer_of(self, "attention", attention)
        self.feedforward = sublayer_of(self, "feedforward", feedforward)

    def forward(self, x: Tensor, **arguments: Any) -> Tensor:
        """Pass ``x`` (..., dim) through both sublayers; further keyword arguments go to ``attention``."""
        return self.through(x, arguments)

    def through(self, stream: Any, arguments: Mapping[str, Any]) -> Any:
        """Check a stream and pass it through both sublayers."""
        self.form.check(self, stream, self.place)
        attention = functools.partial(self.attention, **arguments)
        return self.carry(stream, {"attention": attention, "feedforward": self.feedforward})


class WholeLayer:
    """A placement that reaches inside attention and feedforward; calling it builds a transformer layer wired so.

    A subclass with a card and a ``wiring``, as of :class:`Block`.
    """

    kind: ClassVar[Kind] = WHOLE
    card: ClassVar[Card]
    wiring: ClassVar[Wiring]

    def __init_subclass__(cls, **keywords: Any):
        super().__init_subclass__(**keywords)
        build = bind_wiring(WholeLayer.__new__, cls.wiring)
        cls.__new__ = staticmethod(build)  # type: ignore[method-assign]
        cls.__signature__ = without_first(inspect.signature(build))  # type: ignore[attr-defined]

    def __new__(
        cls,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layer: int = 0,
        depth: int = 1,
        norm: NormName = "layernorm",
        activation: str = "gelu",
        causal: bool = True,
        **further: Any,
    ) -> Any:
        """Build the layer."""
        known = {"dim": dim, "heads": heads, "hidden": hidden, "layer": layer, "depth": depth, "norm": norm, **further}
        return catalog.create(LAYER, placement=cls.card.name, activation=activation, causal=causal, **known)


def bind_wiring(build: Callable[..., Any], wiring: Wiring) -> Callable[..., Any]:
    """Return a base's ``build`` with the arguments that a wiring makes of its own, and the wiring's options by name."""
    needless = {"norm": not wiring.normalizes, "activation": wiring.activation is not None}
    common, last = [], []
    for name, p in inspect.signature(build).parameters.items():
        if p.kind is p.VAR_KEYWORD:
            last = [p] if name == "further" else []
        elif not needless.get(name):
            default = p.empty if name in wiring.needs else wiring.defaults.get(name, p.default)
            annotation = "int" if name == "depth" and default is not None else p.annotation
            common.append(p.replace(default=default, annotation=annotation))
    options = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=v) for n, v in wiring.options.items()]
    signature = inspect.Signature([*common, *options, *last])

    @functools.wraps(build)
    def built(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if needless.get(name):
                raise TypeError(f"got an unexpected keyword argument {name!r}: this placement has no choice of it")
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return build(*bound.args, **bound.kwargs)

    built.__signature__ = signature  # type: ignore[attr-defined]
    return built


def without_first(signature: inspect.Signature) -> inspect.Signature:
    """Leave out what is bound."""
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def sublayer_of(owner: object, name: str, sublayer: Any) -> Sublayer:
    """Require something that can be called."""
    if not callable(sublayer):
        raise TypeError(f"{type(owner).__name__}: {name} must be a module or a function, not {sublayer!r}")
    return sublayer


class Placement(Stream):
    """A placement around one sublayer of any kind: a transformer's, a block of a CNN, a user's own.

        >>> import torch
        >>> around = Placement("peri-norm", 8, norm="rmsnorm")
        >>> around(torch.zeros(2, 8), torch.nn.Linear(8, 8)).shape
        torch.Size([2, 8])

    Args:
        placement: a placement of the catalogue by name that does not reach inside the sublayer.
        dim: features of the stream.
        layer, depth: the layer's place, from 0; how many layers of two branches the model has.
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
        super().__init__(catalog.choose(self, "placement", placement, *PLACEMENTS), dim, layer, depth, options)
        wiring = self.own_wiring
        if wiring.needs_a_layer and wiring.hidden != "shift":
            usable = ", ".join(name for name, w in placements().items() if not w.needs_a_layer)
            raise ValueError(
                f"Placement: {placement!r} reaches inside its sublayers, use TransformerLayer; around any go {usable}"
            )
        check.choice(self, "sublayer", sublayer, ("attention", "feedforward"))
        self.shown = f"{placement!r}, {dim}, layer={layer}, depth={depth}"
        self.wire("", wiring.branches(self.place)[sublayer].alone(), norm)

    def extra_repr(self) -> str:
        """Name the placement and where it stands."""
        return self.shown

    def initialize(self, sublayer: nn.Module) -> nn.Module:
        """Let the sublayer's matrices start as the placement wants them (Fixup's zeros, DeepNorm's beta); return it.

        Its matrices and kernels are taken in the order of ``parameters()``; DeepNorm spares those named query or key.
        """
        matrices = {name: p for name, p in sublayer.named_parameters() if p.dim() > 1}
        init = self.own_wiring.init
        if init is not None and matrices:
            init(matrices, self.place)
        return sublayer

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Pass the stream ``x`` by and through ``sublayer``, a map of its shape to itself."""
        if self.form == ONE:
            check.floating(self, x)  # a norm may be of channels on another axis
        else:
            self.form.check(self, x, self.place)
        return self.carry(x, {"": sublayer_of(self, "sublayer", sublayer)})
