"""What a comparison is: its variants and settings, as ``plan.json`` keeps them.

>>> [v.name for v in cross(norm=["layernorm", "rmsnorm"], placement=["pre-norm", "peri-norm"])]
['layernorm+pre-norm', 'layernorm+peri-norm', 'rmsnorm+pre-norm', 'rmsnorm+peri-norm']
"""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSION = 1
OUTER_COMMA = re.compile(r",(?![^(\[]*[)\]])")  # not one inside a tuple or a list
FREE = (
    "workers",
    "engine",
    "checkpoint_seconds",
)  # settings that change no number, so that a resumed run may differ in them


@dataclass(frozen=True)
class Variant:
    """One way to build and train the model; the fields besides ``name`` are names of the catalogue or of torch.

    A name may carry arguments: ``groupnorm:num_groups=4``, ``dyt:alpha=0.8``.
    """

    name: str
    norm: str = "layernorm"
    placement: str = "pre-norm"
    attention: str = "softmax"
    linear: str = "linear"
    optimizer: str = "adamw"


CHOICES = tuple(f.name for f in dataclasses.fields(Variant) if f.name != "name")


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


def cross(**choices: Sequence[str]) -> tuple[Variant, ...]:
    """Combine every norm with every placement, attention and optimizer; names tell what varies, or the norm."""
    unknown = set(choices) - set(CHOICES)
    if unknown:
        raise ValueError(f"a variant has no {', '.join(sorted(unknown))}; it has {', '.join(CHOICES)}")
    varying = [key for key, values in choices.items() if len(values) > 1] or ["norm"]
    made = []
    for values in itertools.product(*choices.values()):
        parts = dict(zip(choices, values, strict=True))
        named = [parts.get(key) or getattr(Variant, key) for key in varying]
        made.append(Variant("+".join(named), **parts))
    return unique(made)


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
        return cross(**{key: [value] if isinstance(value, str) else list(value) for key, value in content.items()})
    return unique([_variant(path, entry) for entry in content["variants"]])


def _variant(path: Path, entry: Any) -> Variant:
    if isinstance(entry, str):
        return Variant(entry, norm=entry)
    if not isinstance(entry, Mapping) or set(entry) - {"name", *CHOICES} or not entry:
        raise ValueError(f"{path}: a variant is a mapping of {', '.join(('name', *CHOICES))}, not {entry!r}")
    parts = {key: str(value) for key, value in entry.items()}
    return Variant(**{"name": "+".join(v for k, v in parts.items() if k != "name"), **parts})


def named_arguments(text: str) -> tuple[str, dict[str, Any]]:
    """Split a name and its arguments.

    >>> named_arguments("groupnorm:num_groups=4"), named_arguments("adamw:betas=(0.9,0.95)")
    (('groupnorm', {'num_groups': 4}), ('adamw', {'betas': (0.9, 0.95)}))
    """
    name, _, rest = text.partition(":")
    arguments = {}
    for part in filter(None, OUTER_COMMA.split(rest)):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{text!r}: an argument is written key=value, not {part!r}")
        arguments[key.strip()] = _value(value.strip())
    return name, arguments


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def safe(name: str) -> str:
    """Turn a name into one that any file system takes.

    >>> safe("dyt:alpha=0.8")
    'dyt_alpha=0.8'
    """
    return re.sub(r"[^\w.+=-]+", "_", name)


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


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say in words where two descriptions differ."""
    settings = {**old["settings"], **new["settings"]}
    changed = [
        f"{key}: {old['settings'].get(key)!r} there, {new['settings'].get(key)!r} here"
        for key in settings
        if key not in FREE and old["settings"].get(key) != new["settings"].get(key)
    ]
    names = [", ".join(v["name"] for v in side["variants"]) for side in (old, new)]
    if old["variants"] != new["variants"]:
        changed.append(f"variants: {names[0]} there, {names[1]} here")
    if old["baseline"] != new["baseline"]:
        changed.append(f"baseline: {old['baseline']} there, {new['baseline']} here")
    return changed


def replace_file(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there, so that a reader never sees half of it."""
    beside = path.with_name(path.name + ".partial")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)
