"""Whole flows by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from torch import nn
from torch.distributions import Distribution

from normkit import catalog, check
from normkit.density._flow import Flow
from normkit.density._parts import (
    ACTIVATIONS,
    AffineCurve,
    Autoregressive,
    Coupling,
    Plain,
    SplineCurve,
    Standard,
    Tokens,
)
from normkit.density._scales import ChannelMix, ImageCoupling, Scaled, Squeeze


class Asked(NamedTuple):
    """What a flow is to be: the shape of a sample, the numbers that its parts see, and labels."""

    event: tuple[int, ...]
    numbers: int
    classes: int
    depth: int
    hidden: int

    @property
    def dim(self) -> int:
        """The length of a vector."""
        return self.event[0]


class Named(NamedTuple):
    """A named flow: what it is, how deep it is unless told, of how many axes, and how its parts are built."""

    help: str
    depth: int
    axes: tuple[int, ...]
    sees: bool
    build: Callable[..., list[nn.Module]]


def _curved(kind: type, curve: Callable[..., nn.Module], least: int = 1) -> Callable[..., list[nn.Module]]:
    def build(asked: Asked, activation: str = "silu", **options: Any) -> list[nn.Module]:
        check.size("flow", "event", asked.dim, least=least)
        check.choice("flow", "activation", activation, tuple(ACTIVATIONS))
        _taken(options, ["activation", *inspect.signature(curve).parameters])
        sizes = {"context": asked.numbers, "hidden": asked.hidden, "activation": activation}
        return [kind(asked.dim, curve(**options), flipped=bool(n % 2), **sizes) for n in range(asked.depth)]

    return build


def _taken(options: Iterable[str], names: Iterable[str]) -> None:
    """Refuse what a flow does not take."""
    for name in options:
        check.choice("flow", "an option", name, tuple(names))


def _affine() -> nn.Module:
    return AffineCurve()


def _spline(bins: int = 8, bound: float = 5.0) -> nn.Module:
    return SplineCurve(bins, bound)


def _ferumal(asked: Asked, num_points: int = 32, kernel: str = "squared-exponential") -> list[nn.Module]:
    made: list[nn.Module] = []
    for _ in range(asked.depth):
        made += [catalog.create("ferumal-coupling", asked.dim, num_points=num_points, kernel=kernel), _Turned()]
    return made


class _Turned(nn.Module):
    """The coordinates in reverse, so that the next coupling bends the other half."""

    def forward(self, x):
        """Return them, and a log-determinant of 0."""
        return x.flip(-1), x.new_zeros(len(x))

    def inverse(self, z):
        """Return what they are the reverse of."""
        return z.flip(-1)


def _patches(asked: Asked, patch: int | None) -> tuple[int, int]:
    """How many tokens there are, and how many numbers are in one."""
    if len(asked.event) == 1:
        return asked.dim, 1
    channels, height, width = asked.event
    patch = check.size("flow", "patch", 2 if patch is None else patch)
    for name, size in (("height", height), ("width", width)):
        check.divides("flow", "patch", patch, name, size)
    return height * width // patch**2, channels * patch**2


def _tarflow(asked: Asked, patch: int | None = None, layers: int = 2, head_dim: int = 16) -> list[nn.Module]:
    number, size = _patches(asked, patch)
    cut = None if len(asked.event) == 1 else patch or 2
    options = {
        "num_patches": number,
        "num_layers": layers,
        "head_dim": min(head_dim, asked.hidden),
        "num_classes": asked.classes,
    }
    orders = ("flip" if n % 2 else "identity" for n in range(asked.depth))
    blocks = (catalog.create("tarflow-block", size, asked.hidden, permutation=order, **options) for order in orders)
    return [Tokens(block, cut, mean=True, labels=bool(asked.classes)) for block in blocks]


def _jet(asked: Asked, patch: int | None = None, layers: int = 2) -> list[nn.Module]:
    number, size = _patches(asked, patch)
    check.divides("flow", "halves of a patch", 2, "numbers", size)
    options = {
        "num_tokens": number,
        "emb_dim": asked.hidden,
        "num_heads": max(1, asked.hidden // 16),
        "depth": layers,
    }
    made = (_Flipped(catalog.create("jet-coupling", size, **options), bool(n % 2)) for n in range(asked.depth))
    return [Tokens(one, patch or 2, mean=False, labels=False) for one in made]


class _Flipped(nn.Module):
    """A transform that sees the numbers of tokens in reverse, where asked to."""

    def __init__(self, transform: nn.Module, flipped: bool):
        super().__init__()
        self.transform, self.flipped = transform, flipped

    def _turned(self, x):
        return x.flip(-1) if self.flipped else x

    def forward(self, x):
        """Return the image, and its log-determinants."""
        z, log_det = self.transform(self._turned(x))
        return self._turned(z), log_det

    def inverse(self, z):
        """Return what it is the image of."""
        return self._turned(self.transform.inverse(self._turned(z)))  # type: ignore[operator]


def _nanoflow(asked: Asked, **options: Any) -> list[nn.Module]:
    channels, height, width = asked.event
    sizes = {"hidden": asked.hidden, "num_flows": asked.depth, "height": height, "width": width}
    return [Plain(catalog.create("nanoflow", channels, **{"embedding_channels": 4, "layers": 3, **sizes, **options}))]


def _glow(asked: Asked, levels: int = 2) -> list[nn.Module]:
    (channels, height, width), made = asked.event, list[nn.Module]()
    for name, size in (("height", height), ("width", width)):
        check.divides("flow", "2 ** levels", 2 ** check.size("flow", "levels", levels, most=16), name, size)
    for level in range(levels):
        channels = channels if not level else channels // 2  # the other half has left
        made.append(Scaled(Squeeze(), (channels, height, width)))
        channels, height, width = 4 * channels, height // 2, width // 2
        for _ in range(asked.depth):
            parts = Standard(channels, 3), ChannelMix(channels), ImageCoupling(channels, asked.hidden)
            made += [Scaled(part, (channels, height, width)) for part in parts]
    return made


def _along(name: str) -> Callable[..., list[nn.Module]]:
    def build(asked: Asked, **options: Any) -> list[nn.Module]:
        return [catalog.create(name, asked.dim, hidden=asked.hidden, **options) for _ in range(asked.depth)]

    return build


FLOWS = {
    "affine-coupling": Named("couplings that shift and scale", 6, (1,), True, _curved(Coupling, _affine, 2)),
    "spline-coupling": Named("couplings of splines", 6, (1,), True, _curved(Coupling, _spline, 2)),
    "affine-autoregressive": Named("each number by those before it", 4, (1,), True, _curved(Autoregressive, _affine)),
    "spline-autoregressive": Named("the same with splines", 4, (1,), True, _curved(Autoregressive, _spline)),
    "ferumal": Named("couplings by kernels, for few data", 6, (1,), False, _ferumal),
    "tarflow": Named("transformers over tokens or patches", 4, (1, 3), False, _tarflow),
    "jet": Named("couplings of patches by transformers", 4, (3,), False, _jet),
    "nanoflow": Named("couplings of images that share a network", 4, (3,), False, _nanoflow),
    "glow": Named("couplings of images at several scales", 4, (3,), False, _glow),
    "cnf": Named("a velocity field", 1, (1,), False, _along("cnf")),
    "to-flow": Named("a velocity field for a learned time", 1, (1,), False, _along("to-flow")),
}


def flow(
    name: str,
    event: int | Sequence[int],
    *,
    depth: int | None = None,
    hidden: int = 64,
    context: int = 0,
    classes: int = 0,
    base: nn.Module | Distribution | None = None,
    memory: str = "kept",
    **options: Any,
) -> Flow:
    """Return a flow by name: a norm that is set from data, then parts that begin at the identity.

    Args:
        name: ``affine-coupling``, ``spline-coupling``, ``affine-autoregressive``, ``spline-autoregressive`` (all with
            ``activation``: ``"silu"``, ``"gelu"``, ``"elu"``, ``"tanh"`` or ``"relu"``, whose densities have edges; the
            splines with ``bins``, ``bound``), ``ferumal`` (``num_points``, ``kernel``), ``cnf``, ``to-flow``
            (``steps``, ``method``) of vectors; ``jet`` (``patch``, ``layers``), ``nanoflow``, ``glow`` (``levels``,
            after each of which half of the numbers leave) of images; ``tarflow`` (``patch``, ``layers``, ``head_dim``)
            of either.
        event: the length of a vector, or (channels, height, width).
        depth: how many parts; of ``glow``, at each level.
        hidden: the width of their networks.
        context: how many numbers the law depends on; of couplings and autoregressive flows.
        classes: how many labels it depends on; of these and tarflow.
        base, memory: as of :class:`Flow`.
        options: of the parts.

    >>> import torch, normkit as nk
    >>> flow = nk.density.flow("tarflow", (1, 4, 4), classes=3, hidden=16)
    >>> law = flow.law(torch.tensor([0, 2]), guidance=1.5)
    >>> law.sample((5,)).shape, law.log_prob(torch.zeros(1, 4, 4)).shape
    (torch.Size([5, 2, 1, 4, 4]), torch.Size([2]))
    """
    named = FLOWS[check.choice("flow", "name", name, tuple(FLOWS))]
    shape = (event,) if isinstance(event, int) else tuple(event)
    if len(shape) not in named.axes:
        wanted = " or ".join({1: "a length", 3: "(channels, height, width)"}[axes] for axes in named.axes)
        raise ValueError(f"flow: event must be {wanted} for {name!r}, not {event}")
    if context and classes:
        raise ValueError("flow: context and classes are not for one flow; append one-hot labels to the context")
    if (context and not named.sees) or (classes and not (named.sees or name == "tarflow")):
        given = "context" if context else "classes"
        raise ValueError(f"flow: {name!r} takes no {given}; couplings and autoregressive flows do")
    found = list(inspect.signature(named.build).parameters.values())[1:]  # the first is what is asked
    if not any(one.kind is one.VAR_KEYWORD for one in found):  # which the parts look at themselves
        _taken(options, [one.name for one in found])
    asked = Asked(
        shape,
        check.size("flow", "context", context, least=0) + check.size("flow", "classes", classes, least=0),
        classes,
        check.size("flow", "depth", named.depth if depth is None else depth),
        check.size("flow", "hidden", hidden),
    )
    parts = [Standard(shape[0], len(shape)), *named.build(asked, **options)]
    return Flow(parts, shape, context=context, classes=classes, base=base, memory=memory)
