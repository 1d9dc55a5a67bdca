"""What a comparison is: its variants and settings, as ``plan.json`` keeps them."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normkit.lab.files import Damaged, Folder
from normkit.lab.plan import handed
from normkit.lab.plan.variants import SLOTS, Variant, safe

VERSION = 1
SEARCH_SEED = 0  # of the trials of a learning rate; the runs that count have others
FREE = ("workers", "engine", "checkpoint_seconds")  # change no number, so that a resumed run may differ in them
SCHEDULED = ("steps", "seconds", "seeds", "lrs", "trials", "search")  # decide which runs there are, and for how long
JUDGED = ("higher", "margin", "until_decided")  # decide what is said of the runs
MARGIN = 0.01
SPLITS = {
    "even": "as many to each",
    "dirichlet": "each class by shares from a Dirichlet law, the less alike the smaller: dirichlet:0.3",
    "classes": "to each so many classes: classes:2",
    "looks": "even, inputs with a gain and an offset of each client's own, of that deviation: looks:0.5",
}
NEEDED = ("model", "data", "seeds")
BUILT_IN: dict[str, dict[str, Any]] = {
    "decoder": {"dim": 64, "depth": 4, "heads": 4},
    "vit": {"dim": 48, "depth": 4, "heads": 4, "patch": 2},
    "resnet": {"dim": 16, "depth": 1},
    "spdnet": {"dim": None, "depth": 2},  # 6, or what the matrices have
    "flow": {"depth": None, "hidden": 64},
}


@dataclass(frozen=True)
class Settings:
    """What all variants have in common.

    train: a training loop of the user's own, which takes the place of model, data and all that follows from them.
    val: where held-out data come from; None holds out a part of ``data``.
    batch: None is a user's own loader's.
    steps, seconds: how long a run trains; with ``seconds``, the clock decides and ``steps`` is None.
    lrs: the learning rates to search, one for no search; None searches around the optimizer's usual rate.
    trials: the most trials of such a search: two, and further ones while the best rate is the lowest or highest.
    search: the share of a run's length that a trial of the search gets; a short trial favours a rate too high for the
        whole run, most of all for a variant that is easily shaken.
    metric, higher: what variants are compared by, loss if None, and whether more of it is better.
    margin: the difference that counts as none, as a share of the baseline's mean.
    until_decided: add seeds until each variant is decided, ``seeds`` at most.
    allow_leak: let norms whose statistics take in later tokens stand in a model that predicts these.
    federated, clients, split, local_steps: divide the data among clients; a step is then a round, in which each takes
        so many steps of its own before their states are put together.
    warmup: the share of a run in which the learning rate grows from 0; it then falls along a cosine to a tenth.
    workers, threads: how many runs train side by side, and with how many threads each.
    """

    model: str = "decoder:depth=2"
    data: str = "python-docs"
    train: str | None = None
    val: str | None = None
    steps: int | None = 160
    seconds: float | None = None
    batch: int | None = 8
    length: int = 64
    seeds: int = 5
    lrs: tuple[float, ...] | None = None
    trials: int = 5
    search: float = 1.0
    metric: str | None = None
    higher: bool = False
    margin: float = MARGIN
    until_decided: bool = False
    allow_leak: bool = False
    federated: bool = False
    clients: int = 8
    split: str = "dirichlet:0.3"
    local_steps: int = 5
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

    def sources(self) -> list[str]:
        """Return what the runs need from elsewhere: modules, files, or what a script has handed in."""
        return [source for source in (self.model, self.data, self.val, self.metric, self.train) if source]

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
        code = handed.code_of(getattr(self.variant, name) for name in SLOTS)
        return json.loads(json.dumps({**found, "settings": shared, **({"code": code} if code else {})}))


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


def there_in(folder: Folder) -> dict[str, Any] | None:
    """Return the plan that a folder holds, None where it is lost or damaged."""
    try:
        return read(folder.plan) if folder.plan.is_file() else None
    except Damaged:
        return None


def same(there: Any, here: Mapping[str, Any]) -> bool:
    """Whether a recipe is that of the run which is to be trained; what it is older than, it has at its default."""
    if not isinstance(there, Mapping) or not all(isinstance(there.get(k), Mapping) for k in ("variant", "settings")):
        return False
    shared = {k: v for k, v in _defaults(Settings).items() if k not in FREE + SCHEDULED + JUDGED}
    return {**there, "variant": full(Variant, there["variant"]), "settings": {**shared, **there["settings"]}} == here


def full(of: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a variant or of settings; what was written before there was a field has its default."""
    return {**_defaults(of), **given}


def _defaults(of: type) -> dict[str, Any]:
    found = {f.name: f.default for f in dataclasses.fields(of) if f.default is not dataclasses.MISSING}
    return json.loads(json.dumps(found))
