"""What is asked for, on the command line or from Python, made into a plan: every choice checked, what is open decided.

``options`` has an attribute for each option of the command, and None or the default where nothing was typed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.lab import together
from normkit.lab.plan import builtin, measures, variants
from normkit.lab.plan.handed import PREFIX, in_words
from normkit.lab.plan.settings import (
    BATCHES,
    DIRECTIONS,
    FIELDS,
    HANDED,
    LATER_OF,
    MANY,
    MOST,
    OWN,
    ROUNDS,
    Settings,
    another_folder,
    fields,
    paces,
    spell,
)
from normkit.lab.plan.variants import FEDBN, ORIGINAL, SLOTS, TWIN, Variant, lets_leak, unique

if TYPE_CHECKING:
    from normkit.lab.plan.plan import Plan

WITH_CLIENTS = "resnet:dim=32"  # the model of many owners of data, where none is named; 32 groups divide its channels
LISTS = ("ladder", "factor", *(name for group in LATER_OF for name in group))
TYPED = {field: one.name for field, one in FIELDS.items() if one.group}  # the settings that can be typed


def plan_from(options: Any) -> Plan:
    """Turn the arguments into a plan; what is not typed is as in the folder's comparison, to which it adds."""
    from normkit.lab.files import Folder
    from normkit.lab.plan import factor, growth, ladder
    from normkit.lab.plan.plan import Plan, plan_in

    saved = None if options.fresh else plan_in(Folder(options.out))
    require_federated(options, bool(saved and saved["settings"].get("federated")))
    request, options = options, with_defaults(options, saved["settings"] if saved else {})
    require_wholes(request, options)
    if options.train:
        require_fit(request, options.train)
    before = saved_variants(saved, options.out) if saved else []
    asked = tuple(before) if before and not names_variants(options) else variants_from(options)
    joined = growth.join_variants(before, asked, crossed=not options.variants)
    baseline = baseline_of(options, saved, [variant.name for variant in joined], before)
    joined = with_twin(joined, baseline) if options.twin else joined
    if options.factor:
        factor.require(options.factor, joined)
    plan = Plan(settings_from(options, len(joined)), joined, baseline)
    ladder.plans(plan)  # so that a rung that cannot be is refused now
    return plan


def baseline_of(options: Any, saved: Any, names: Sequence[str], before: Sequence[Variant]) -> str:
    """Return the variant that others are compared with: the one named, the saved one, else the first."""
    saved_baseline = saved["baseline"] if saved else names[0]
    baseline = options.baseline or saved_baseline
    if baseline != saved_baseline and any(variant.start != "own" for variant in before):
        raise ValueError(f"{spell('baseline')}: the control that is there is of {saved_baseline}; {another_folder()}")
    if baseline not in names:
        raise ValueError(f"{spell('baseline')} {baseline!r} is none of the variants: {', '.join(names)}")
    return baseline


def require_wholes(request: Any, options: Any) -> None:
    """Refuse what is typed of a ladder, or of a later test, where there is none."""
    of = request.ladder_of
    if of and not options.ladder:
        raise ValueError(f"{spell('ladder_of')} {of} is of a ladder: give {spell('ladder')} as well, such as 1,2,4")
    for first, *more in LATER_OF:
        for name in more:
            if getattr(request, name) and not getattr(options, first):
                raise ValueError(f"{spell(name)} is of {spell(first)}: give {spell(first)} as well")


def require_federated(options: Any, is_federated: bool) -> None:
    """Refuse what is of many owners of data alone, where there is one, and what they cannot have."""
    federated = spell("federated")
    if not (options.federated or is_federated):
        of_many = [name for name, one in OWN.items() if one.group == MANY] + ["aggregation"]
        names = [name for name in of_many if getattr(options, name) not in (None, False)]
        if options.metric in (measures.CLIENTS, measures.WORST):
            names.append("metric")
        if names:
            raise ValueError(f"{spell(names[0])} is of many owners of data: give {federated}")
        return
    for name in ("train", "sharded"):
        if getattr(options, name):
            raise ValueError(f"{federated} and {spell(name)} exclude each other")
    if options.precision == "fp16":
        raise ValueError(f"{federated} and {spell('precision')} fp16 exclude each other: clients share no loss scale")
    if together.is_spread():
        raise ValueError(f"{federated} trains each run in one process: start it without torchrun")


def saved_variants(plan: Mapping[str, Any], root: str) -> list[Variant]:
    """Return the variants of a saved plan."""
    from normkit.lab.files import Folder

    try:
        return [Variant(**variant) for variant in plan["variants"]]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{Folder(root).plan} has a variant that cannot be read: {error}; {another_folder()}"
        ) from None


def with_defaults(options: Any, saved: Mapping[str, Any]) -> Any:
    """Return the options, with what was not typed as it is in the saved settings, or else the default.

    There are never fewer seeds than there are.
    """
    known = saved_or_default(options, saved)
    values = dict(vars(options))
    kept = {TYPED[field]: known[field] for field in _left_open(values) if _is_known(field, bool(saved))}
    if saved and values.get("seeds") is not None:
        kept["seeds"] = max(values["seeds"], known["seeds"])
    if saved and values.get("metric_direction") is None and ":" in (kept.get("metric") or ""):
        kept["metric_direction"] = DIRECTIONS[known["higher"]]
    if saved and not options.trust:
        require_no_code(kept, Path(options.out))
    return argparse.Namespace(**{**values, **kept})


def _left_open(values: Mapping[str, Any]) -> list[str]:
    """The settings that were not typed; one of steps and seconds stands for both."""
    other = {"steps": "seconds", "seconds": "steps"}
    return [
        field for field, name in TYPED.items() if values.get(name) is None and values.get(other.get(name, "")) is None
    ]


def _is_known(field: str, saved: bool) -> bool:
    """Whether a folder passes a setting on, or its default depends on no other."""
    return (saved and FIELDS[field].inherited) or not FIELDS[field].depends


def saved_or_default(options: Any, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the saved settings, or the defaults of what is compared, as they may be typed again."""
    known = {**vars(Settings()), **saved}
    known["lrs"] = None if any(rate == 0 for rate in known["lrs"] or ()) else known["lrs"]
    if options.model is None and not saved and not options.train:
        known["model"] = default_model(options)
    if known["train"]:  # it has its own
        known |= {"model": Settings.model, "data": None}
    return known


def require_no_code(kept: Mapping[str, Any], root: Path) -> None:
    """Refuse to import what only a stored plan names: its folder may come from another person."""
    for name in HANDED:
        if names_code(kept.get(name) or ""):
            raise ValueError(
                f"{root / 'plan.json'} names code to import, {name} {kept[name]!r}; if you know where it comes from, "
                f"give {spell(name)} {kept[name]} here as well, or {spell('trust')}"
            )


def names_code(source: str) -> bool:
    """Whether a source of a plan is imported, as ``module:name`` is.

    >>> names_code("mine:Net"), names_code("decoder:depth=2"), names_code("hf:gpt2"), names_code("text.txt")
    (True, False, False, False)
    """
    return ":" in source and builtin.is_own(source) and not source.startswith(PREFIX)


def default_model(options: Any) -> str:
    """Return the model that is meant where none is named: a density with flows, an SPDNet on matrices."""
    from normkit.lab.plan import data

    if options.flow:
        return "flow"
    if data.is_of_matrices(options.data or ""):
        return "spdnet"
    return WITH_CLIENTS if options.federated else Settings.model


def names_variants(options: Any) -> bool:
    """Whether variants were asked for."""
    return bool(options.variants) or any(getattr(options, key) for key in SLOTS)


def with_twin(joined: tuple[Variant, ...], baseline: str) -> tuple[Variant, ...]:
    """Add the baseline from a permuted start."""
    one = next(variant for variant in joined if variant.name == baseline)
    twin = replace(one, name=TWIN, start="permuted")
    return joined if twin in joined else unique([*joined, twin])


def variants_from(options: Any) -> tuple[Variant, ...]:
    """Return the variants that were asked for, names checked; the options have their defaults."""
    slots = {key: getattr(options, key) for key in SLOTS if getattr(options, key)}
    if options.variants and slots:
        raise ValueError(f"{spell('variants')} and {spell(next(iter(slots)))} exclude each other")
    asked = read_variants(options.variants) if options.variants else variants.cross(**_with_norms(slots, options))
    for variant in asked:  # all names before anything is imported to look at what they fit
        variant.check()
        require_owners(variant, options)
    model = builtin.row(options.model)
    for variant in asked:
        require_place(variant, model, options)
    return asked


def _with_norms(slots: dict[str, Any], options: Any) -> dict[str, Any]:
    """What varies, with the norms that a model is compared with where none is asked for."""
    model = builtin.row(options.model)
    if not slots:
        return {"norm": [*(model.norms if model else (ORIGINAL, *builtin.Model.norms[:3]))]}
    return {**slots, "norm": slots.get("norm", [ORIGINAL])} if model is None or ORIGINAL in model.norms else slots


def require_owners(variant: Variant, options: Any) -> None:
    """Refuse a norm of many owners of data where there is one."""
    if variant.norm == FEDBN and not options.federated:
        raise ValueError(f"{spell('norm')} {FEDBN} is of many owners of data: give {spell('federated')}")


def read_variants(source: Any) -> tuple[Variant, ...]:
    """Return the variants that are written down: in a file, or from Python in a list."""
    if not isinstance(source, str):
        return variants.variants_of(source)
    if not Path(source).is_file():
        raise ValueError(f"{spell('variants')}: there is no file {source!r}")
    return variants.read_variants(Path(source))


def require_place(variant: Variant, model: builtin.Model | None, options: Any) -> None:
    """Refuse a norm whose card says that it has no place in a built-in model, before anything is built."""
    from normkit import catalog
    from normkit.surgery.replacement import fits

    if model and model.place and variant.norm not in (ORIGINAL, FEDBN) and not options.train:
        fits.require(catalog.find(variant.norm), model.place, bool(options.allow_leak), lets_leak())
    if variant.flow != Variant.flow and (options.train or not model or model.takes != builtin.SAMPLES):
        what = options.train or options.model
        raise ValueError(f"{spell('flow')} {variant.flow}: {what!r} is no density; leave it out")


def settings_from(options: Any, count: int) -> Settings:
    """Return the settings of so many variants, with what was left open decided."""
    from normkit.lab.plan import ladder, later, tasks

    require_values(options)
    model = "" if options.train else options.model
    source = "" if options.train else options.data or tasks.default_data(model)
    steps = steps_of(options)
    device = device_for(options.device or "auto")
    workers, threads = workers_and_threads(options, device, count)
    settings = Settings(**{field: getattr(options, name) for field, name in TYPED.items()})
    lists: dict[str, Any] = {field: tuple(value) for field in LISTS if (value := getattr(options, field))}
    settings = replace(
        settings,
        model=model,
        data=source,
        steps=steps,
        batch=options.batch or (None if options.train else usual_batch(model, source, options.federated)),
        seeds=seeds_of(options),
        **lists,
        lrs=rates(options),
        decays=tuple(options.decay) if options.decay else None,
        higher=direction(options),
        device=device,
        workers=workers,
        threads=threads,
        **paces(steps or 100),
    )
    settings = replace(settings, prints=tuple(prints_of(settings)))
    later.require(settings)
    return ladder.require_ladder(settings)


def prints_of(settings: Settings) -> Iterator[str]:
    """Name the user's code and files, each with a short print of it, as it may change under its name."""
    from normkit.lab.plan import data, samples

    for name in HANDED:
        source = getattr(settings, name) or ""
        if names_code(source):
            yield f"{source}#{samples.print_handed(data.resolve(source, name), FIELDS[name].handed == 'function')}"
        elif name in ("data", "val") and Path(source).is_file():
            yield f"{source}#{hashlib.blake2b(Path(source).read_bytes(), digest_size=4).hexdigest()}"
        if name in ("data", "val") and (names_code(source) or source.startswith(PREFIX)):
            yield f"how {in_words(source)} draws and joins samples#{samples.print_drawing(data.resolve(source, name))}"


def require_values(options: Any) -> None:
    """Refuse a value out of bounds, and what excludes another."""
    from normkit.lab.plan import clients

    if options.steps and options.seconds:
        raise ValueError(f"{spell('steps')} and {spell('seconds')} exclude each other")
    for name, one in OWN.items():
        if getattr(options, name) is not None:
            one.require(getattr(options, name))
    if options.federated:
        clients.read(options.split)


def steps_of(options: Any) -> int | None:
    """Return the steps of a run; None where a clock or a training loop of the user's own says when it ends."""
    usual = ROUNDS if options.federated else Settings.steps
    return options.steps or (None if options.seconds or options.train else usual)


def usual_batch(model: str, source: str, federated: bool = False) -> int | None:
    """Return the samples of a batch where it is left open, less where each client has but few; None for a loader's."""
    from normkit.lab.plan import data

    row = builtin.row(model)
    kind = builtin.SAMPLES if row and row.takes == builtin.SAMPLES else data.kind_of(source)
    if kind == "batches":
        return None
    batch = BATCHES.get(kind, BATCHES[builtin.TEXT])
    return batch // 2 if federated and kind in (builtin.IMAGES, builtin.SIGNALS, builtin.MATRICES) else batch


def require_fit(request: Any, source: str) -> None:
    """Refuse of what was typed what a training loop of the user's own decides itself, or does not take."""
    from normkit.lab.training import own

    train = spell("train")
    for field in fields(of_loop=True):
        value = getattr(request, name := FIELDS[field].name, None)
        if value is not None and value is not False:  # 0 was typed
            raise ValueError(f"{spell(name)} and {train} exclude each other: the training loop decides that itself")
    if request.twin:
        raise ValueError(f"{spell('twin')} and {train} exclude each other: {own.NO_TWIN}")
    arguments = own.takes(own.import_function(source))
    for name, argument in (("steps", "steps"), ("seconds", "seconds"), ("lr", "lr"), ("trials", "lr")):
        unasked = (None, 1) if name == "trials" else (None,)
        if getattr(request, name) not in unasked and argument not in arguments:
            raise ValueError(f"{spell(name)}: {in_words(source)!r} has no argument {argument!r} to be given it by")


def rates(options: Any) -> tuple[float, ...] | None:
    """Return the learning rates to search, None to search around the usual one; 0 stands for a loop's own."""
    from normkit.lab.training import own

    if options.train and "lr" not in own.takes(own.import_function(options.train)):
        return (0.0,)
    return tuple(options.lr) if options.lr else None


def seeds_of(options: Any) -> int:
    """Return how many seeds there may be: more where they go on until it is decided."""
    return options.seeds or (MOST if options.until_decided else Settings.seeds)


def direction(options: Any) -> bool:
    """Return whether more of the measure is better."""
    if options.metric is None and options.metric_direction is not None:
        raise ValueError(
            f"{spell('metric_direction')} is of a measure of your own; name it with {spell('metric')} module:function"
        )
    if options.train and options.metric not in (None, measures.LOSS, measures.ACCURACY):
        return measures.is_named_higher(options.metric, options.metric_direction)
    return measures.is_higher_better(options.metric or measures.LOSS, options.metric_direction)


def device_for(name: str) -> str:
    """Return the device, or say that there is no GPU."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        device = spell("device")
        raise ValueError(f"{device} cuda: torch sees no GPU here; leave it out, or give {device} cpu")
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def workers_and_threads(options: Any, device: str, count: int) -> tuple[int, int]:
    """Return how many runs go on side by side, and the threads of each.

    On a CPU, one run a core: small models gain little from a second thread. A resumed comparison keeps its
    threads, since the last digits of a sum depend on them. Under torchrun, no workers: its processes share each run.
    """
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    spread = together.is_spread()
    if options.sharded and not spread:
        raise ValueError(
            f"{spell('sharded')} spreads a model over processes; start them with: torchrun --nproc-per-node 2 -m "
            "normkit.cli ..."
        )
    room = torch.cuda.device_count() if device == "cuda" else cores
    workers = options.workers or max(1, min(room, count * seeds_of(options)))
    threads = options.threads or max(1, cores // (together.processes() if spread else workers))
    return (0 if spread else workers), threads
