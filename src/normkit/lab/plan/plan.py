"""What a comparison is: its variants and settings, as ``plan.json`` keeps them."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from normkit import __version__
from normkit.lab.files import Damaged, Folder, unseal, writing
from normkit.lab.plan import handed
from normkit.lab.plan.settings import Settings, afterwards, deciding, full
from normkit.lab.plan.variants import SLOTS, Variant, safe

VERSION = 1
SEARCH_SEED = 0  # of the trials of a learning rate; the runs that count have others
NAME = re.compile(
    r"(?P<variant>.+?)(--x(?P<rung>[\d.e+-]+))?--lr(?P<lr>[\d.e+-]+)(--wd(?P<decay>[\d.e+-]+))?--seed(?P<seed>\d+)"
)
RUN_FILE = re.compile(rf"{NAME.pattern}\.(jsonl|pt|lock)(\.damaged|\.shorter|\.partial-[0-9a-f]{{8}})?")
NEEDED = ("model", "data", "seeds")


@dataclass(frozen=True)
class Run:
    """One training: a variant with a learning rate and a seed, for the search of the rate or for the result.

    decay: the weight decay, where several are tried; else that of the settings.
    """

    variant: Variant
    lr: float
    seed: int
    phase: str
    steps: int | None = None
    seconds: float | None = None
    rung: float = 1.0
    decay: float | None = None

    @property
    def name(self) -> str:
        """What its files are called."""
        rung = "" if self.rung == 1 else f"--x{self.rung:g}"
        decay = "" if self.decay is None else f"--wd{self.decay:.6g}"
        return f"{safe(self.variant.name)}{rung}--lr{self.lr:.6g}{decay}--seed{self.seed}"

    def recipe(self, settings: Settings) -> dict[str, Any]:
        """Return plain values that determine every number of the run, under the settings of its rung."""
        values = dataclasses.asdict(self)
        if self.rung == 1:
            del values["rung"]  # as where there is no ladder
        if self.decay is None:
            del values["decay"]
        shared = deciding(dataclasses.asdict(settings))
        if ":" not in (settings.metric or ""):
            shared["metric"] = None  # loss and accuracy are always logged
        shared |= {} if settings.share == 1 else {"share": settings.share}
        shared |= afterwards(vars(settings))
        code = handed.code_of(getattr(self.variant, name) for name in SLOTS)
        return json.loads(json.dumps({**values, "settings": shared, **({"code": code} if code else {})}))


@dataclass(frozen=True)
class Plan:
    """A comparison: what is compared, with which baseline, under which settings, on which rung of a ladder."""

    settings: Settings
    variants: tuple[Variant, ...]
    baseline: str
    rung: float = 1.0

    def variant(self, name: str) -> Variant:
        """Return a variant by name."""
        return next(v for v in self.variants if v.name == name)

    def described(self) -> dict[str, Any]:
        """Return plain values that determine every number of the comparison."""
        description = {
            "version": VERSION,
            "settings": dataclasses.asdict(self.settings),
            "baseline": self.baseline,
            "variants": [dataclasses.asdict(v) for v in self.variants],
        }
        return json.loads(json.dumps(description))


def read_name(name: str, variants: Iterable[str]) -> dict[str, Any]:
    """Return what the name of a run's files tells of it, nothing where it is none of these variants'.

    >>> read_name("dyt_alpha=0.8--lr0.003--seed0", ["dyt", "dyt:alpha=0.8"])
    {'variant': 'dyt:alpha=0.8', 'lr': 0.003, 'seed': 0, 'phase': 'search', 'rung': 1.0}
    """
    match = NAME.fullmatch(name)
    variant = next((v for v in variants if match and safe(v) == match["variant"]), None)
    if match is None or variant is None:
        return {}
    seed, rung = int(match["seed"]), float(match["rung"] or 1)
    phase = "search" if seed == SEARCH_SEED else "final"
    decay = {"decay": float(match["decay"])} if match["decay"] else {}
    return {"variant": variant, "lr": float(match["lr"]), "seed": seed, "phase": phase, "rung": rung, **decay}


def rung_of(start: Mapping[str, Any]) -> float:
    """Return the rung of a run that the first line of its log tells."""
    recipe = start.get("recipe")
    rung = recipe.get("rung", 1.0) if isinstance(recipe, Mapping) else start.get("rung", 1.0)
    return float(rung) if isinstance(rung, int | float) else 1.0


def environment() -> dict[str, Any]:
    """Tell where the numbers come from."""
    import torch

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
        plan = unseal(path.read_bytes())
        names = [variant["name"] for variant in plan["variants"]]
        if plan["baseline"] not in names:
            raise ValueError(f"the baseline {plan['baseline']!r} is not among the variants {', '.join(names)}")
        lacking = [key for key in NEEDED if key not in dict(plan["settings"])]
        if lacking:
            raise ValueError(f"its settings lack {', '.join(lacking)}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise Damaged(
            f"{path} is no plan of a comparison: {why}; delete it, and the same 'normkit compare' writes it again"
        ) from None
    return plan


def plan_in(folder: Folder) -> dict[str, Any] | None:
    """Return the plan that a folder holds, None where it is lost or damaged."""
    try:
        return read(folder.plan) if folder.plan.is_file() else None
    except Damaged:
        return None


def clear(folder: Folder) -> None:
    """Delete what a comparison has written, and nothing else; a plan that is none may be a user's own and stays."""
    written = [
        path
        for place in (folder.runs, folder.checkpoints)
        for path in place.glob("*")
        if RUN_FILE.fullmatch(path.name) and path.is_file()
    ]
    written += [folder.plan] if plan_in(folder) is not None else []
    with writing(folder.root):
        for path in [folder.report, folder.speed, folder.times, *written] if written else []:
            path.unlink(missing_ok=True)


def same(saved: Any, here: Mapping[str, Any]) -> bool:
    """Whether a recipe is that of the run which is to be trained; what it is older than, it has at its default."""
    if not isinstance(saved, Mapping) or not all(isinstance(saved.get(k), Mapping) for k in ("variant", "settings")):
        return False
    shared, ours = {**deciding(full(Settings, {})), **saved["settings"]}, here["settings"]
    code, known = here.get("code", {}), saved.get("code", {})
    if shared.keys() != ours.keys() or not all(handed.alike(shared[key], ours[key]) for key in ours):
        return False
    if code.keys() != known.keys() or any(handed.differ(known[name], code[name]) for name in code):
        return False
    alike = {"settings": ours, "code": code}
    return {**saved, "variant": full(Variant, saved["variant"]), **alike} == {**here, **alike}
