"""What is asked for, on the command line or from Python, made into a plan: every choice checked, what is open decided.

``options`` has an attribute for each option of the command, and None or the default where nothing was given.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.lab import together
from normkit.lab.plan import measures
from normkit.lab.plan.handed import PREFIX, said
from normkit.lab.plan.plan import BUILT_IN, Settings
from normkit.lab.plan.variants import FEDBN, ORIGINAL, SLOTS

if TYPE_CHECKING:
    from normkit.lab.plan.plan import Plan
    from normkit.lab.plan.variants import Variant

NORMS = ["layernorm", "rmsnorm", "dyt", "derf"]
OF_MODEL = {"spdnet": [ORIGINAL, "riemannian-batchnorm", "liebn", "gbw-batchnorm"], "flow": [ORIGINAL]}
WAY_OUT = "name another folder with --out"
CODE = ("model", "data", "val", "metric", "train")  # may name what is imported
WITH_CLIENTS = "resnet:dim=32"  # the model of many owners of data, where none is named; 32 groups divide its channels
ROUNDS = 20  # of a run with many owners of data
MOST = 24  # seeds, where they go on until it is decided
DEFAULTED = (
    "model",
    "length",
    "trials",
    "margin",
    "until_decided",
    "allow_leak",
    "federated",
    "clients",
    "split",
    "local_steps",
    "warmup",
    "clip",
    "weight_decay",
    "precision",
)
OF_CLIENTS = ("clients", "split", "local_steps", "aggregation")
INHERITED = (*DEFAULTED, "train", "data", "val", "steps", "seconds", "batch", "seeds", "lr", "metric", "threads")


def planned(options: Any) -> Plan:
    """Turn the arguments into a plan; what is not given is as in the comparison that is there, to which it adds."""
    from normkit.lab.files import Folder
    from normkit.lab.plan import growth
    from normkit.lab.plan.plan import Plan, there_in

    there = None if options.fresh else there_in(Folder(options.out))
    require_federated(options, bool(there and there["settings"].get("federated")))
    options = filled(options, there["settings"] if there else {})
    before = variants_of(there, options.out) if there else []
    variants = tuple(before) if before and not named(options) else chosen(options)
    variants = growth.joined(before, variants, crossed=not options.variants)
    names = [v.name for v in variants]
    before_it = there["baseline"] if there else names[0]
    baseline = options.baseline or before_it
    if baseline != before_it and any(variant.start != "own" for variant in before):
        raise ValueError(f"--baseline: the control that is there is of {before_it}; {WAY_OUT}")
    if baseline not in names:
        raise ValueError(f"--baseline {baseline!r} is none of the variants: {', '.join(names)}")
    variants = with_twin(variants, baseline) if options.twin else variants
    return Plan(settled(options, len(variants)), variants, baseline)


def require_federated(options: Any, there: bool) -> None:
    """Refuse what is of many owners of data alone, where there is one, and what they cannot have."""
    if not (options.federated or there):
        given = [name for name in OF_CLIENTS if getattr(options, name) is not None]
        if options.metric in (measures.CLIENTS, measures.WORST):
            given.append("metric")
        if given:
            raise ValueError(f"--{given[0].replace('_', '-')} is of many owners of data: give --federated")
        return
    for name in ("train", "sharded"):
        if getattr(options, name):
            raise ValueError(f"--federated and --{name} exclude each other")
    if options.precision == "fp16":
        raise ValueError("--federated and --precision fp16 exclude each other: clients share no loss scale")
    if together.is_spread():
        raise ValueError("--federated trains each run in one process: start it without torchrun")


def variants_of(there: Mapping[str, Any], root: str) -> list[Variant]:
    """Return the variants of a plan that is there."""
    from normkit.lab.files import Folder
    from normkit.lab.plan.variants import Variant

    try:
        return [Variant(**variant) for variant in there["variants"]]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{Folder(root).plan} has a variant that cannot be read: {error}; {WAY_OUT}") from None


def filled(options: Any, there: Mapping[str, Any]) -> Any:
    """Return the options, with what was not given as it is in the settings that are there, or else the default.

    There are never fewer seeds than there are.
    """
    known = {**vars(Settings()), **there}
    known["lr"] = None if any(rate == 0 for rate in known["lrs"] or ()) else known["lrs"]
    if options.model is None and not there and not options.train:
        known["model"] = suited(options)
    if known["train"]:  # it has its own
        known |= {"model": Settings.model, "data": None}
    given = dict(vars(options))
    other = {"steps": "seconds", "seconds": "steps"}
    kept = {
        name: known[name]
        for name in INHERITED
        if given.get(name) is None and given.get(other.get(name, "")) is None and (there or name in DEFAULTED)
    }
    if there and given.get("seeds") is not None:
        kept["seeds"] = max(given["seeds"], known["seeds"])
    if there and given.get("metric_direction") is None and ":" in (kept.get("metric") or ""):
        kept["metric_direction"] = measures.DIRECTIONS[known["higher"]]
    if there and not options.trust:
        require_no_code(kept, Path(options.out))
    return argparse.Namespace(**{**given, **kept})


def require_no_code(kept: Mapping[str, Any], root: Path) -> None:
    """Refuse to import what only a stored plan names: its folder may come from somebody else."""
    for name in CODE:
        if names_code(kept.get(name) or ""):
            raise ValueError(
                f"{root / 'plan.json'} names code to import, {name} {kept[name]!r}; if you know where it comes from, "
                f"give --{name} {kept[name]} here as well, or --trust"
            )


def names_code(source: str) -> bool:
    """Whether a source of a plan is imported, as ``module:name`` is.

    >>> names_code("mine:Net"), names_code("decoder:depth=2"), names_code("hf:gpt2"), names_code("text.txt")
    (True, False, False, False)
    """
    first, colon, _ = source.partition(":")
    return bool(colon) and first not in (*BUILT_IN, "hf", "timm", PREFIX.rstrip(":"))


def suited(options: Any) -> str:
    """Return the model that is meant where none is named: a density with flows, an SPDNet on matrices."""
    from normkit.lab.plan import data

    if options.flow:
        return "flow"
    if data.is_of_matrices(options.data or ""):
        return "spdnet"
    return WITH_CLIENTS if options.federated else Settings.model


def named(options: Any) -> bool:
    """Whether variants were asked for."""
    return bool(options.variants) or any(getattr(options, key) for key in SLOTS)


def with_twin(variants: tuple[Variant, ...], baseline: str) -> tuple[Variant, ...]:
    """Add the baseline from a permuted start."""
    from dataclasses import replace

    from normkit.lab.plan.variants import TWIN, unique

    one = next(variant for variant in variants if variant.name == baseline)
    twin = replace(one, name=TWIN, start="permuted")
    return variants if twin in variants else unique([*variants, twin])


def chosen(options: Any) -> tuple[Variant, ...]:
    """Return the variants that were asked for, names checked."""
    from normkit.lab.plan import variants

    model = (options.model or suited(options)).split(":")[0]
    own = model not in BUILT_IN
    given = {key: getattr(options, key) for key in SLOTS if getattr(options, key)}
    if options.variants and given:
        raise ValueError(f"--variants and --{next(iter(given))} exclude each other")
    if not given:
        given = {"norm": [ORIGINAL, *NORMS[:3]] if own else OF_MODEL.get(model, NORMS)}
    elif own or model in OF_MODEL:
        given.setdefault("norm", [ORIGINAL])
    found = written(options.variants) if options.variants else variants.cross(**given)
    for variant in found:  # all names before anything is imported to look at what they fit
        variant.check()
        if variant.norm == FEDBN and not options.federated:
            raise ValueError(f"--norm {FEDBN} is of many owners of data: give --federated")
    for variant in found:
        require_place(variant, options)
    return found


def written(source: Any) -> tuple[Variant, ...]:
    """Return the variants that are written down: in a file, or from Python in a list."""
    from normkit.lab.plan import variants

    if not isinstance(source, str):
        return variants.listed(source)
    if not Path(source).is_file():
        raise ValueError(f"--variants: there is no file {source!r}")
    return variants.read_variants(Path(source))


def require_place(variant: Variant, options: Any) -> None:
    """Refuse a norm whose card says that it has no place in a built-in model, before anything is built."""
    from normkit import catalog
    from normkit.surgery import fits

    model = (options.model or suited(options)).split(":")[0]
    place = fits.MODELS.get(model)
    if place is not None and variant.norm not in (ORIGINAL, FEDBN) and not options.train:
        fits.require(catalog.find(variant.norm), place, options.allow_leak)
    if variant.flow != type(variant).flow and (options.train or model != "flow"):
        raise ValueError(f"--flow {variant.flow}: {options.train or options.model!r} is no density; leave it out")


def settled(options: Any, variants: int) -> Settings:
    """Return the settings, with what was left open decided."""
    from normkit.lab.plan import clients, tasks

    if options.steps and options.seconds:
        raise ValueError("--steps and --seconds exclude each other")
    for name, least in (
        ("steps", 1),
        ("seconds", 0),
        ("batch", 1),
        ("length", 1),
        ("seeds", 1),
        ("margin", 0),
        ("trials", 1),
        ("clip", 0),
        ("weight_decay", 0),
        ("clients", 2),
        ("local_steps", 1),
        ("workers", 1),
        ("threads", 1),
    ):
        given = getattr(options, name)
        if given is not None and not given >= least:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, not {given}")
    if not 0 <= options.warmup < 1:
        raise ValueError(f"--warmup is a share of the run, from 0 to below 1, not {options.warmup}")
    if options.lr and not all(lr > 0 for lr in options.lr):
        raise ValueError(f"--lr must be above 0, not {min(options.lr)}")
    if options.train:
        require_fit(options)
    model = "" if options.train else options.model or Settings.model
    source = "" if options.train else options.data or tasks.default_data(model)
    if options.federated:
        clients.read(options.split)
    usual = ROUNDS if options.federated else Settings.steps
    steps = options.steps or (None if options.seconds or options.train else usual)
    every = max(1, (steps or 100) // 40)
    device = device_for(options.device)
    workers, threads = places(options, device, variants)
    return Settings(
        model=model,
        data=source,
        train=options.train,
        val=options.val,
        steps=steps,
        seconds=options.seconds,
        batch=options.batch or (None if options.train else usual_batch(model, source, options.federated)),
        length=options.length,
        seeds=seeds_of(options),
        lrs=rates(options),
        trials=options.trials,
        metric=options.metric,
        higher=direction(options),
        margin=options.margin,
        until_decided=options.until_decided,
        allow_leak=options.allow_leak,
        federated=options.federated,
        clients=options.clients,
        split=options.split,
        local_steps=options.local_steps,
        warmup=options.warmup,
        clip=options.clip,
        weight_decay=options.weight_decay,
        device=device,
        precision=options.precision,
        engine=options.engine,
        workers=workers,
        threads=threads,
        sharded=options.sharded,
        log_every=every,
        eval_every=5 * every,
        probe_every=5 * every,
    )


def usual_batch(model: str, source: str, federated: bool = False) -> int | None:
    """Return the samples of a batch where it is left open, less where each client has but few; None for a loader's."""
    from normkit.lab.plan import data, tasks

    if model.split(":")[0] == "flow":
        return tasks.SAMPLES
    images = tasks.IMAGES // 2 if federated else tasks.IMAGES
    return {"images": images, "matrices": images, "batches": None}.get(data.kind_of(source), tasks.TEXT)


def require_fit(options: Any) -> None:
    """Refuse what a training loop of the user's own has itself, or does not take."""
    from normkit.lab.training import own

    for name in ("data", "val", "batch"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} and --train exclude each other: the training loop has its own {name}")
    if options.model != Settings.model:
        raise ValueError("--model and --train exclude each other: the training loop makes its own model")
    taken = own.takes(own.found_at(options.train))
    for name in ("steps", "seconds", "lr"):
        if getattr(options, name) is not None and name not in taken:
            raise ValueError(f"--{name}: {said(options.train)!r} has no argument {name!r} to be given it by")


def rates(options: Any) -> tuple[float, ...] | None:
    """Return the learning rates to search, None to search around the usual one; 0 stands for a loop's own."""
    from normkit.lab.training import own

    if options.train and "lr" not in own.takes(own.found_at(options.train)):
        return (0.0,)
    return tuple(options.lr) if options.lr else None


def seeds_of(options: Any) -> int:
    """Return how many seeds there may be: more where they go on until it is decided."""
    return options.seeds or (MOST if options.until_decided else Settings.seeds)


def direction(options: Any) -> bool:
    """Return whether more of the measure is better."""
    if options.metric is None and options.metric_direction is not None:
        raise ValueError("--metric-direction is of a measure of your own; name it with --metric module:function")
    if options.train and options.metric not in (None, measures.LOSS, measures.ACCURACY):
        return measures.is_named_higher(options.metric, options.metric_direction)
    return measures.is_higher_better(options.metric or measures.LOSS, options.metric_direction)


def device_for(wanted: str) -> str:
    """Return the device, or say that there is no GPU."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no GPU here; leave it out, or give --device cpu")
    return wanted if wanted != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def places(options: Any, device: str, variants: int) -> tuple[int, int]:
    """Return how many runs go on side by side, and the threads of each.

    On a CPU, one run a core: small models gain little from a second thread. A resumed comparison keeps its
    threads, since the last digits of a sum depend on them. Under torchrun, no workers: its processes share each run.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    spread = together.is_spread()
    if options.sharded and not spread:
        raise ValueError(
            "--sharded spreads a model over processes; start them with: torchrun --nproc-per-node 2 -m normkit.cli ..."
        )
    room = torch.cuda.device_count() if device == "cuda" else cores
    workers = options.workers or max(1, min(room, variants * seeds_of(options)))
    threads = options.threads or max(1, cores // (together.processes() if spread else workers))
    return (0 if spread else workers), threads
