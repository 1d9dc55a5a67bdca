"""What varies: the slots of a variant, each a field of :class:`Variant` that says how its names are checked and used.

>>> [v.name for v in cross(norm=["layernorm", "rmsnorm"], placement=["pre-norm", "peri-norm"])]
['layernorm+pre-norm', 'layernorm+peri-norm', 'rmsnorm+pre-norm', 'rmsnorm+peri-norm']
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.choice import parsed
from normkit.columns import number_of
from normkit.lab.plan.settings import OWN, spell

if TYPE_CHECKING:
    from torch import nn

ORIGINAL = "original"  # the norm that leaves a model as it is
FEDBN = "fedbn"  # the norm that is a batchnorm, and with --federated stays with its client


@dataclass(frozen=True)
class Slot:
    """A choice that a variant makes by a name of the catalogue, with arguments behind it or not.

    help: what the command says of it.
    check: refuses a name that the catalogue lacks, or that stands for something else.
    argument: what a transformer of normkit takes for it, whose parts are names.
    exchanged: whether it can be found in any model, and another put in its place.
    put: changes a model that is built, and has been given its first weights.
    count: says of a built model how many of its layers have it.

    What is neither an argument nor put is used where a run is trained, as an optimizer is.
    """

    help: str
    check: Callable[[str], Any]
    argument: Callable[[str], Mapping[str, Any]] | None = None
    exchanged: bool = False
    put: Callable[[nn.Module, str], Any] | None = None
    count: Callable[[nn.Module, str], str] | None = None


def slot(default: str, *row: Any, **rest: Any) -> Any:
    """Return a field of a variant that is a slot."""
    return field(default=default, metadata={"slot": Slot(*row, **rest)})


def _norm(text: str) -> None:
    from normkit import catalog

    if text not in (ORIGINAL, FEDBN):
        catalog.find(text)


def _norm_argument(text: str) -> Mapping[str, Any]:
    from normkit.surgery.replacement.fits import maker

    return {"norm": maker(text)}


def _count_norms(model: nn.Module, text: str) -> str:
    from normkit.surgery.replacement.swapping import sites

    return number_of(len(sites(model)), "norm")


def _placement(text: str) -> None:
    from normkit.residual.stream import wiring_of

    wiring_of(spell("placement"), text)


def _attention(text: str) -> None:
    from normkit import catalog
    from normkit.kinds import CORE

    catalog.find(text)  # names the nearest of all where there is no such method
    catalog.choose(spell("attention"), "attention", text, CORE)


def _linear(text: str) -> None:
    from normkit import catalog

    if text != Variant.linear:
        catalog.find(text)


def _weight(text: str) -> None:
    from normkit import catalog
    from normkit.kinds import PARAMETRIZATION

    if text != Variant.weight:
        catalog.find(text)  # names the nearest of all where there is no such method
        catalog.choose(spell("weight"), "weight", text, PARAMETRIZATION)


def _put_weights(model: nn.Module, text: str) -> None:
    from normkit import weight

    if text == Variant.weight:
        return
    if any(getattr(part, "on_a_sphere", False) for part in model.modules()):
        raise ValueError(f"weight {text!r}: the placement keeps weights on a sphere of its own")
    weight.apply(model, text)


def _count_weights(model: nn.Module, text: str) -> str:
    from torch.nn.utils import parametrize

    done = sum(parametrize.is_parametrized(part) for part in model.modules())
    return f"on {number_of(done, 'layer')}" if text != Variant.weight else ""


def _flow(text: str) -> None:
    from normkit import check, density  # which import torch, and help must not

    check.choice(spell("flow"), "name", parsed(text)[0], tuple(density.FLOWS))


def _optimizer(text: str) -> None:
    from normkit.lab.plan.optimizers import optimizer_for

    optimizer_for(text)


def _loss(text: str) -> None:
    from normkit.lab.plan.losses import loss_for

    loss_for(text)


def _aggregation(text: str) -> None:
    from normkit import check
    from normkit.federated import plans

    name, options = parsed(text)
    if not any(name in (method, *plan.parts) for method, plan in plans.PLANS.items()):
        here = [one for one in plans.PLANS if _trained_here(plans.PLANS[one])]
        check.choice("compare", spell("aggregation"), name, here)
    try:
        strategy = plans.declared(spell("aggregation"), "method", name, options)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if not _trained_here(strategy):
        raise ValueError(
            f"{spell('aggregation')} {name}: its clients train in a way of their own, which is the strategy's alone"
        )
    if set(options) & set(strategy.needs):
        raise ValueError(f"{spell('aggregation')} {text!r}: {', '.join(strategy.needs)} are the lab's to give")


def _trained_here(plan: Any) -> bool:
    """Whether clients of a federated method train as the lab's do."""
    own = plan.local is None and (plan.own or any(plan.wanted[:4]) or plan.told or plan.asks)
    return not own and {"loss", "batches", "parameters"}.issuperset(plan.needs)


@dataclass(frozen=True)
class Variant:
    """One way to build and train the model; a slot holds a name of the catalogue or of torch.

    A name may carry arguments: ``groupnorm:num_groups=4``, ``dyt:alpha=0.8``.

    steps, lr, warmup, batch: as in the settings, for this variant alone; None takes theirs.
    start: "own", or "permuted": other first weights of the same law, what makes a control of a method's own twin.
    """

    name: str
    norm: str = slot(
        "layernorm",
        "norms of the catalogue (layernorm rmsnorm dyt derf; where something else is compared, layernorm or the "
        "model's own); arguments follow a colon: groupnorm:num_groups=4; 'original' leaves a model as it is",
        _norm,
        argument=_norm_argument,
        exchanged=True,
        count=_count_norms,
    )
    placement: str = slot("pre-norm", "where norms stand", _placement, argument=lambda text: {"placement": text})
    attention: str = slot("softmax", "attention cores", _attention, argument=lambda text: {"core": text})
    linear: str = slot(
        "linear", "linear maps, as in the room of weights", _linear, argument=lambda text: {"linear": text}
    )
    weight: str = slot(
        "none",
        "reparametrizations of the weights of linear layers and convolutions, whose starts they take over",
        _weight,
        put=_put_weights,
        count=_count_weights,
    )
    flow: str = slot(
        "spline-autoregressive",
        "densities of a table or of images, those of 'normkit fit'; arguments follow a colon: tarflow:depth=2",
        _flow,
    )
    optimizer: str = slot("adamw", "optimizers, the catalogue's and torch's", _optimizer)
    loss: str = slot(
        "cross-entropy",
        "what is trained to be lower, of scores and labels: cross-entropy:label_smoothing=0.1, losses of the "
        "catalogue; all are compared by the plain one",
        _loss,
    )
    aggregation: str = slot(
        "average",
        "with {federated}, what the server makes of the clients' states: average; fedbn, where batch norms stay with "
        "each; fedlaw, where it learns whom to trust; fedld, where it takes what most want; as a norm, fedbn is a "
        "batchnorm that stays",
        _aggregation,
    )
    steps: int | None = None
    lr: float | None = None
    warmup: float | None = None
    batch: int | None = None
    start: str = "own"

    def __post_init__(self) -> None:
        for name, one in NUMBERS.items():
            if (value := getattr(self, name)) is not None and not one.bound.fits(value):
                raise ValueError(f"variant {self.name!r}: {name} must be {one.bound.wanted}, not {value!r}")
        if self.start not in STARTS:
            raise ValueError(f"variant {self.name!r}: start must be one of {', '.join(STARTS)}, not {self.start!r}")

    def check(self) -> None:
        """Refuse a name that the catalogue lacks."""
        for name, one in SLOTS.items():
            one.check(getattr(self, name))

    @property
    def keeps(self) -> bool:
        """Whether a client's batch norms stay with it."""
        return FEDBN in (self.norm, parsed(self.aggregation)[0])

    def with_built_norm(self) -> Variant:
        """Return the variant with the norm that is put into the model."""
        return dataclasses.replace(self, norm="batchnorm") if self.norm == FEDBN else self

    def arguments(self) -> dict[str, Any]:
        """Return what a transformer of normkit takes for its parts."""
        values = ((one.argument, getattr(self, name)) for name, one in SLOTS.items())
        return {key: value for make, text in values if make is not None for key, value in make(text).items()}

    def put(self, model: nn.Module) -> nn.Module:
        """Put into a model that is built what any model takes."""
        for name, one in SLOTS.items():
            if one.put is not None:
                one.put(model, getattr(self, name))
        return model

    def count_layers(self, model: nn.Module) -> dict[str, str]:
        """Say of every slot that counts its layers how many there are in a model."""
        counts = {name: one.count(model, getattr(self, name)) for name, one in SLOTS.items() if one.count is not None}
        return {name: text for name, text in counts.items() if text}

    def require_parts_of(self, model: str) -> None:
        """Refuse parts that a model, which is not built from their names, cannot exchange."""
        for name, one in SLOTS.items():
            fixed = one.argument is not None and not one.exchanged
            if fixed and getattr(self, name) != getattr(Variant, name):
                raise ValueError(f"model {model!r} has its own {name}; only 'decoder' and 'vit' take another")


SLOTS: dict[str, Slot] = {f.name: f.metadata["slot"] for f in dataclasses.fields(Variant) if "slot" in f.metadata}
STARTS = ("own", "permuted")
TWIN = "twin"  # what the command calls the baseline from a permuted start
NUMBERS = {name: OWN[name] for name in ("steps", "lr", "warmup", "batch")}  # that it may have of its own
LONGEST = 160  # bytes of a name, of the 255 that a file's may have: a run's has its rate, its seed and endings too
OF_A_VARIANT = (*SLOTS, *NUMBERS, "start")


def cross(**choices: Sequence[Any]) -> tuple[Variant, ...]:
    """Combine every name of one slot with every name of the others; names tell what varies, or the norm."""
    unknown = set(choices) - set(OF_A_VARIANT)
    if unknown:
        raise ValueError(f"a variant has no {', '.join(sorted(unknown))}; it has {', '.join(OF_A_VARIANT)}")
    varying = [key for key, values in choices.items() if len(values) > 1]
    varying = varying or ["flow" if "flow" in choices else "norm"]
    variants = []
    for values in itertools.product(*choices.values()):
        parts = {key: convert_field(key, value) for key, value in zip(choices, values, strict=True)}
        named = [name_field(key, parts.get(key) or getattr(Variant, key)) for key in varying]
        variants.append(Variant("+".join(named), **parts))
    return unique(variants)


def convert_field(field: str, value: Any) -> Any:
    """Return a variant's field as the type it has.

    >>> convert_field("steps", "100"), convert_field("norm", "dyt"), convert_field("lr", 1)
    (100, 'dyt', 1.0)
    """
    if field not in NUMBERS:
        return str(value)
    one = NUMBERS[field]
    try:
        number = one.kind(value)
        if number != float(value):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"a variant's {field} must be {one.bound.wanted}, not {value!r}") from None
    return number


def name_field(field: str, value: Any) -> str:
    """Return what a name says of a field: a number needs its name."""
    return f"{field}={value:g}" if field in NUMBERS else str(value)


def lets_leak() -> str:
    """Say how a norm that sees tokens to come may stand in a model all the same."""
    return f"; {spell('allow_leak')} lets it, for a model that may see them, as an encoder may"


def unique(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Require variants, each with a name, as a file too, of its own."""
    if not variants:
        raise ValueError("there is no variant to train")
    names = [safe(variant.name).lower() for variant in variants]
    for name in names:
        if (size := len(name.encode())) > LONGEST:
            raise ValueError(
                f"variant {name!r}: a name, of which files are called, has at most {LONGEST} bytes, not {size}"
            )
        if names.count(name) > 1:
            raise ValueError(f"two variants have the name {name!r}; give each a name of its own")
    return tuple(variants)


def read_variants(path: Path) -> tuple[Variant, ...]:
    """Read variants from a YAML file: a list under ``variants``, as :func:`listed` takes it, or lists to be crossed."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: it is no YAML in UTF-8: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: the file must hold a mapping, with 'variants' or lists to cross, not {content!r}")
    if "variants" not in content:
        return cross(**{key: value if isinstance(value, list) else [value] for key, value in content.items()})
    return variants_of(content["variants"], f"{path}: ")


def variants_of(entries: Any, where: str = "") -> tuple[Variant, ...]:
    """Return the variants of a list: mappings of any of a variant's fields, or norms by name.

    A mapping without a name is called by its values. ``where`` begins an error.

    >>> [v.name for v in variants_of(["layernorm", {"norm": "dyt", "lr": 0.01}, {"name": "mine", "batch": 8}])]
    ['layernorm', 'dyt+lr=0.01', 'mine']
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise ValueError(f"{where}variants must be a list, not {entries!r}")
    return unique([_variant(where, entry) for entry in entries])


def _variant(where: str, entry: Any) -> Variant:
    if isinstance(entry, str):
        return Variant(entry, norm=entry)
    if not isinstance(entry, Mapping) or set(entry) - {"name", *OF_A_VARIANT} or not entry:
        raise ValueError(f"{where}a variant is a mapping of {', '.join(('name', *OF_A_VARIANT))}, not {entry!r}")
    parts = {key: convert_field(key, value) for key, value in entry.items()}
    named = "+".join(name_field(key, value) for key, value in parts.items() if key != "name")
    return Variant(**{"name": named, **parts})


def safe(name: str) -> str:
    """Turn a name into one that any file system takes.

    >>> safe("dyt:alpha=0.8")
    'dyt_alpha=0.8'
    """
    return re.sub(r"[^\w.+=-]+", "_", name)
