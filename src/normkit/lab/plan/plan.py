"""What a comparison is: its variants and settings, as ``plan.json`` keeps them.

>>> [v.name for v in cross(norm=["layernorm", "rmsnorm"], placement=["pre-norm", "peri-norm"])]
['layernorm+pre-norm', 'layernorm+peri-norm', 'rmsnorm+pre-norm', 'rmsnorm+peri-norm']
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normkit.lab.files import Damaged

VERSION = 1
SEARCH_SEED = 0  # of the trials of a learning rate; the runs that count have others
FREE = ("workers", "engine", "checkpoint_seconds")  # change no number, so that a resumed run may differ in them
SCHEDULED = ("steps", "seconds", "seeds", "lrs", "trials", "search")  # decide which runs there are, and for how long
JUDGED = ("higher", "margin", "until_decided")  # decide what is said of the runs
MARGIN = 0.01
NEEDED = ("model", "data", "seeds")


@dataclass(frozen=True)
class Variant:
    """One way to build and train the model; norm to optimizer are names of the catalogue or of torch.

    A name may carry arguments: ``groupnorm:num_groups=4``, ``dyt:alpha=0.8``.

    steps, lr, warmup, batch: as in the settings, for this variant alone; None takes theirs.
    start: "own", or "permuted": other first weights of the same law, what makes a control of a method's own twin.
    """

    name: str
    norm: str = "layernorm"
    placement: str = "pre-norm"
    attention: str = "softmax"
    linear: str = "linear"
    optimizer: str = "adamw"
    steps: int | None = None
    lr: float | None = None
    warmup: float | None = None
    batch: int | None = None
    start: str = "own"

    def __post_init__(self) -> None:
        for field, (_, fits, wanted) in NUMBERS.items():
            if (value := getattr(self, field)) is not None and not fits(value):
                raise ValueError(f"variant {self.name!r}: {field} must be {wanted}, not {value!r}")
        if self.start not in STARTS:
            raise ValueError(f"variant {self.name!r}: start must be one of {', '.join(STARTS)}, not {self.start!r}")


CHOICES = ("norm", "placement", "attention", "linear", "optimizer")
STARTS = ("own", "permuted")
TWIN = "twin"  # what the command calls the baseline from a permuted start
NUMBERS: dict[str, tuple[type, Callable[[Any], bool], str]] = {
    "steps": (int, lambda value: value >= 1, "at least 1"),
    "lr": (float, lambda value: value > 0, "above 0"),
    "warmup": (float, lambda value: 0 <= value < 1, "a share of the run, from 0 to below 1"),
    "batch": (int, lambda value: value >= 1, "at least 1"),
}
OF_A_VARIANT = (*CHOICES, *NUMBERS, "start")


@dataclass(frozen=True)
class Settings:
    """What all variants have in common.

    val: where held-out data come from; None holds out a part of ``data``.
    batch: None is a user's own loader's.
    steps, seconds: how long a run trains; with ``seconds``, the clock decides and ``steps`` is None.
    lrs: the learning rates to search, one for no search; None searches around the optimizer's usual rate.
    trials: the most trials of such a search: three, and further ones while the best rate is the lowest or highest.
    search: the share of a run's length that a trial of the search gets; a short trial favours a rate too high for the
        whole run, most of all for a variant that is easily shaken.
    metric, higher: what variants are compared by, loss if None, and whether more of it is better.
    margin: the difference that counts as none, as a share of the baseline's mean.
    until_decided: add seeds until each variant is decided, ``seeds`` at most.
    warmup: the share of a run in which the learning rate grows from 0; it then falls along a cosine to a tenth.
    workers, threads: how many runs train side by side, and with how many threads each.
    """

    model: str = "decoder"
    data: str = "python-docs"
    val: str | None = None
    steps: int | None = 120
    seconds: float | None = None
    batch: int | None = 16
    length: int = 64
    seeds: int = 5
    lrs: tuple[float, ...] | None = None
    trials: int = 5
    search: float = 1.0
    metric: str | None = None
    higher: bool = False
    margin: float = MARGIN
    until_decided: bool = False
    warmup: float = 0.2
    clip: float = 1.0
    weight_decay: float = 0.1
    device: str = "cpu"
    precision: str = "no"
    engine: str = "local"
    workers: int = 1
    threads: int = 1
    sharded: bool = False
    log_every: int = 5
    eval_every: int = 40
    eval_batches: int = 5
    probe_every: int = 40
    checkpoint_seconds: float = 10.0

    def of(self, variant: Variant) -> Settings:
        """Return the settings with what a variant has of its own."""
        own = {name: value for name in ("batch", "warmup") if (value := getattr(variant, name)) is not None}
        return dataclasses.replace(self, **own)


@dataclass(frozen=True)
class Run:
    """One training: a variant with a learning rate and a seed, for the search of the rate or for the result."""

    variant: Variant
    lr: float
    seed: int
    phase: str
    steps: int | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """What its files are called."""
        return f"{safe(self.variant.name)}--lr{self.lr:.6g}--seed{self.seed}"

    def recipe(self, settings: Settings) -> dict[str, Any]:
        """Return plain values that determine every number of the run."""
        found = dataclasses.asdict(self)
        shared = {k: v for k, v in dataclasses.asdict(settings).items() if k not in FREE + SCHEDULED + JUDGED}
        if ":" not in (settings.metric or ""):
            shared["metric"] = None  # loss and accuracy are always logged
        return json.loads(json.dumps({**found, "settings": shared}))


@dataclass(frozen=True)
class Plan:
    """A comparison: what is compared, with which baseline, under which settings."""

    settings: Settings
    variants: tuple[Variant, ...]
    baseline: str

    def variant(self, name: str) -> Variant:
        """Return a variant by name."""
        return next(v for v in self.variants if v.name == name)

    def described(self) -> dict[str, Any]:
        """Return plain values that determine every number of the comparison."""
        found = {
            "version": VERSION,
            "settings": dataclasses.asdict(self.settings),
            "baseline": self.baseline,
            "variants": [dataclasses.asdict(v) for v in self.variants],
        }
        return json.loads(json.dumps(found))


def cross(**choices: Sequence[Any]) -> tuple[Variant, ...]:
    """Combine every norm with every placement, attention and optimizer; names tell what varies, or the norm."""
    unknown = set(choices) - set(OF_A_VARIANT)
    if unknown:
        raise ValueError(f"a variant has no {', '.join(sorted(unknown))}; it has {', '.join(OF_A_VARIANT)}")
    varying = [key for key, values in choices.items() if len(values) > 1] or ["norm"]
    made = []
    for values in itertools.product(*choices.values()):
        parts = {key: typed(key, value) for key, value in zip(choices, values, strict=True)}
        named = [called(key, parts.get(key) or getattr(Variant, key)) for key in varying]
        made.append(Variant("+".join(named), **parts))
    return unique(made)


def typed(field: str, value: Any) -> Any:
    """Return a variant's field as the type it has.

    >>> typed("steps", "100"), typed("norm", "dyt"), typed("lr", 1)
    (100, 'dyt', 1.0)
    """
    if field not in NUMBERS:
        return str(value)
    kind, _, wanted = NUMBERS[field]
    try:
        found = kind(value)
        if found != float(value):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"a variant's {field} must be {wanted}, not {value!r}") from None
    return found


def called(field: str, value: Any) -> str:
    """Return what a name says of a field: a number needs its name."""
    return f"{field}={value:g}" if field in NUMBERS else str(value)


def unique(variants: Sequence[Variant]) -> tuple[Variant, ...]:
    """Require variants, each with a name, as a file too, of its own."""
    if not variants:
        raise ValueError("there is no variant to train")
    names = [safe(variant.name).lower() for variant in variants]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two variants have the name {name!r}; give each a name of its own")
    return tuple(variants)


def read_variants(path: Path) -> tuple[Variant, ...]:
    """Read variants from a YAML file: a list of mappings under ``variants``, or lists to be crossed.

    A mapping has any of a variant's fields; without a name, its values make one.
    """
    import yaml

    content = yaml.safe_load(path.read_text())
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: the file must hold a mapping, with 'variants' or lists to cross, not {content!r}")
    if "variants" not in content:
        return cross(**{key: value if isinstance(value, list) else [value] for key, value in content.items()})
    return unique([_variant(path, entry) for entry in content["variants"]])


def _variant(path: Path, entry: Any) -> Variant:
    if isinstance(entry, str):
        return Variant(entry, norm=entry)
    if not isinstance(entry, Mapping) or set(entry) - {"name", *OF_A_VARIANT} or not entry:
        raise ValueError(f"{path}: a variant is a mapping of {', '.join(('name', *OF_A_VARIANT))}, not {entry!r}")
    parts = {key: typed(key, value) for key, value in entry.items()}
    named = "+".join(called(key, value) for key, value in parts.items() if key != "name")
    return Variant(**{"name": named, **parts})


def safe(name: str) -> str:
    """Turn a name into one that any file system takes.

    >>> safe("dyt:alpha=0.8")
    'dyt_alpha=0.8'
    """
    return re.sub(r"[^\w.+=-]+", "_", name)


def told_by_name(name: str, variants: Iterable[str]) -> dict[str, Any]:
    """Return what the name of a run's files tells of it, nothing where it is none of these variants'.

    >>> told_by_name("dyt_alpha=0.8--lr0.003--seed0", ["dyt", "dyt:alpha=0.8"])
    {'variant': 'dyt:alpha=0.8', 'lr': 0.003, 'seed': 0, 'phase': 'search'}
    """
    stem, _, rest = name.rpartition("--lr")
    lr, _, seed = rest.partition("--seed")
    variant = next((v for v in variants if safe(v) == stem), None)
    if variant is None or not seed.isdigit():
        return {}
    phase = "search" if int(seed) == SEARCH_SEED else "final"
    return {"variant": variant, "lr": float(lr), "seed": int(seed), "phase": phase}


def environment() -> dict[str, Any]:
    """Tell where the numbers come from."""
    import torch

    from normkit import __version__

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "normkit": __version__,
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def read(path: Path) -> dict[str, Any]:
    """Read a ``plan.json``; what is no plan is :class:`Damaged`."""
    try:
        found = json.loads(path.read_bytes().decode())
        names = [variant["name"] for variant in found["variants"]]
        if found["baseline"] not in names:
            raise ValueError(f"the baseline {found['baseline']!r} is not among the variants {', '.join(names)}")
        lacking = [key for key in NEEDED if key not in dict(found["settings"])]
        if lacking:
            raise ValueError(f"its settings lack {', '.join(lacking)}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise Damaged(
            f"{path} is no plan of a comparison: {why}; delete it, and the same 'normkit compare' writes it again"
        ) from None
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in words where two descriptions differ; what one is older than, it has at its default."""
    there, here = ({**_defaults(Settings), **side["settings"]} for side in (old, new))
    changed = [
        f"{key}: {there.get(key)!r} there, {here.get(key)!r} here"
        for key in {**there, **here}
        if key not in FREE and there.get(key) != here.get(key)
    ]
    names = [", ".join(v["name"] for v in side["variants"]) for side in (old, new)]
    if [_full(v) for v in old["variants"]] != [_full(v) for v in new["variants"]]:
        changed.append(f"variants: {names[0]} there, {names[1]} here")
    if old["baseline"] != new["baseline"]:
        changed.append(f"baseline: {old['baseline']} there, {new['baseline']} here")
    return changed


def same(there: Any, here: Mapping[str, Any]) -> bool:
    """Whether a recipe is that of the run which is to be trained; what it is older than, it has at its default."""
    if not isinstance(there, Mapping) or not all(isinstance(there.get(k), Mapping) for k in ("variant", "settings")):
        return False
    shared = {k: v for k, v in _defaults(Settings).items() if k not in FREE + SCHEDULED + JUDGED}
    return {**there, "variant": _full(there["variant"]), "settings": {**shared, **there["settings"]}} == here


def _full(variant: Mapping[str, Any]) -> dict[str, Any]:
    return {**_defaults(Variant), **variant}


def _defaults(of: type) -> dict[str, Any]:
    found = {f.name: f.default for f in dataclasses.fields(of) if f.default is not dataclasses.MISSING}
    return json.loads(json.dumps(found))
