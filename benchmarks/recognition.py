"""Which norms the world's models use, and which of them are recognized: every class of transformers, every one in timm.

And every router of experts, form of residual streams, and attention with a gate or a sink in transformers
(``--library wholes``), every class of diffusers (``--library diffusers``), and every norm in its models
(``--library denoisers``), where it is installed.

    python benchmarks/recognition.py --json benchmarks/results/recognition.json --page docs/world.md
    python benchmarks/recognition.py --library timm --only resnet
    python benchmarks/recognition.py --read benchmarks/results/recognition.json --page docs/world.md
    python benchmarks/recognition.py --library diffusers --read OLD.json --json NEW.json

Classes are built from the names of what they take, or from their model's own configuration; those of transformers that
are written and built alike are examined once. Models are built as they are by default, without memory for their
numbers; of each class of norm and what it was built with, one is given numbers and recognized.
"""

from __future__ import annotations

import argparse
import collections
import copy
import datetime
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import pkgutil
import re
import signal
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normkit import catalog
from normkit.optional import let_torchvision_load, library
from normkit.surgery.recognition import effects, gates, specimen
from normkit.surgery.recognition.recognize import Match, examine, is_model, table
from normkit.surgery.recognition.wholes import examine_whole

WIDTHS, SECONDS = (16, 64, (2, 16)), 60
ENOUGH = 32  # numbers of the module that stands for its kind, at least, where there is one
NUMBERS = {
    "eps": 1e-6,
    "layer_norm_eps": 1e-6,
    "num_groups": 4,
    "n_groups": 4,
    "group": 4,
    "groups": 4,
    "group_size": 8,
    "momentum": 0.1,
    "dropout_prob": 0.1,
    "padding_idx": 0,
    "layer_idx": 0,
    "norm_type": "layer_norm",
}
AXES = range(-2, 3)  # a ``dim`` that is such by default is an axis, no width
SIZES = ("num_features", "normalized_shape", "num_channels", "dim")
UNSHOWN = (*SIZES, "eps", "num_groups", "group_size", "momentum", "condition_features", "rank", "map_channels")
SECOND = ("gate", "emb", "condition", "quant_states", "single_states")  # what a norm's gate or condition is called
NAMED = re.compile("norm(?!al(?!i[sz]))")  # a normal estimation is none
FEW = {"num_experts": 8, "num_local_experts": 8, "n_routed_experts": 8, "num_shared_experts": 1}
FEW |= {"num_experts_per_tok": 2, "top_k_experts": 2, "moe_topk": 2, "n_group": 1, "topk_group": 1}
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # of attention
SAYS_SO = re.compile("sinks|sigmoid")  # the source of attention with a gate or a sink
RARE = {"choose_by": "logits", "shared": 2, "input_norm": True, "expert_scale": True, "norm": True, "iterations": 0}
WHOLES = re.compile("router$|topkgate$|moegate$|moev1gate$|hyperconnection$|hyperhead$|altup$|laurelblock$|attention$")
CALLED = ("norm", "evo", "affine", "response", "inplaceabn")
NO_METHOD = "no method of the catalogue gives its numbers"
TIME, GATES = "embeds a time step, and has no tensor to normalize", "makes gates of a condition alone"
# what has the word in its name, and is no norm of one tensor
OTHERS = {
    "mobilebert.NoNorm": "a gain and a shift alone",
    "phi4_multimodal.Phi4MultimodalAudioMeanVarianceNormLayer": "subtracts and divides by what was measured before",
    "timm.models.mlp_mixer.Affine": "a gain and a shift alone",
    "timm.models.hgnet.LearnableAffineBlock": "a gain and a shift alone",
    "hy_v4.HYV4UnweightedRMSNorm": "returns only the factor",
    "zaya.ZayaQKNorm": "takes queries and keys, and returns both",
    "dbrx.DbrxRouter": "a linear map alone",
    "glm5_next.Glm5NextTextHyperHead": "the mean of the streams, without numbers of its own",
    "granite_docling.GraniteDoclingDensityRouter": "estimates how dense an image is; there are no experts",
    "vibevoice.VibeVoiceDiffusionHeadAdaLayerNorm": "a block with a feedforward within",
    "normalization.AdaLayerNormSingle": TIME,
    "transformer_ltx2.LTX2AdaLayerNormSingle": TIME,
    "transformer_sana_wm_refiner.SanaWMLTX2AdaLayerNormSingle": TIME,
    "transformer_hunyuan_video.HunyuanVideoAdaNorm": GATES,
    "transformer_hunyuan_video15.HunyuanVideo15AdaNorm": GATES,
    "transformer_hunyuanimage.HunyuanImageAdaNorm": GATES,
    "transformer_motif_video.MotifVideoAdaNorm": GATES,
    "transformer_minimax_h3.MiniMaxH3AdaLayerNormModulation": "makes vectors of a condition alone",
    "resnet.ResnetBlockCondNorm2D": "a residual block with norms within",
    "autoencoder_same.SoftNormBottleneck": "a gain and a shift, with a running deviation, and no forward",
}

# routers whose numbers no method of the catalogue gives
UNGIVEN = {
    "nllb_moe.NllbMoeTop2Router": "drops tokens beyond an expert's capacity, which it changes when it is called",
    "phimoe.PhimoeTopKRouter": "takes the softmax anew for each of its two experts, and draws them in training",
    "switch_transformers.SwitchTransformersTop1Router": "drops tokens beyond an expert's capacity",
    "zaya.ZayaRouter": "a network of several layers, which also reads what the router before it had inside",
}


def classes(only: str, named: re.Pattern[str] = NAMED) -> Iterator[tuple[str, type[nn.Module], object]]:
    """Every class called a norm under ``transformers.models``, and the module that it is written in."""
    models = importlib.import_module("transformers.models")
    for found in pkgutil.iter_modules(models.__path__):
        if only not in found.name:
            continue
        folder = Path(models.__path__[0], found.name)
        for path in sorted(folder.glob("modeling_*.py")):
            if "_tf_" in path.name or "_flax_" in path.name or (named is NAMED and "orm" not in path.read_text()):
                continue
            try:
                module = importlib.import_module(f"transformers.models.{found.name}.{path.stem}")
            except Exception as error:
                print(f"{found.name}: cannot be imported: {error!r:.100}")
                continue
            for name, cls in list(vars(module).items()):  # reading sources may add names
                own = isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__ == module.__name__
                if own and named.search(name.lower()) and not name.endswith(("Model", "PreTrainedModel")):
                    yield f"{found.name}.{name}", cls, module


def built(cls: type[nn.Module], module: object) -> nn.Module:
    """Build a class from the names of its arguments, in the first of some widths and configurations that it takes."""
    errors: list[Exception] = []
    config = _named(cls).get("config")
    sizes = SMALL if cls.__name__.endswith("Attention") else FEW
    for part in configurations(config, module, sizes) if config else [None]:
        for width in WIDTHS:
            try:
                return _built(cls, part, width)
            except Exception as error:
                errors.append(error)
    raise errors[0]


def _built(cls: type[nn.Module], config: object, width: object) -> nn.Module:
    arguments: dict[str, Any] = {}
    homes = [c for c in cls.__mro__ if "__init__" in vars(c)]
    home = next(c for c in homes if any(p.default is p.empty for p in _named(c).values()) or c is homes[-1])
    for parameter in {**_named(home), **_named(cls)}.values():
        name = parameter.name
        if name == "config":
            arguments[name] = config
        elif parameter.default is parameter.empty or (
            name in ("hidden_size", "dim", "layer_idx", "hidden_features") and parameter.default not in AXES
        ):
            if name in NUMBERS:
                arguments[name] = NUMBERS[name]
            elif parameter.annotation in ("float", float):
                arguments[name] = 1e-6
            elif parameter.annotation in ("bool", bool):
                arguments[name] = True
            else:
                arguments[name] = (4,) if "Sequence" in str(parameter.annotation) else width
    return cls(**arguments)


def _named(cls: type) -> dict[str, inspect.Parameter]:
    """The arguments of a class that have names."""
    several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return {p.name: p for p in found if p.kind not in several}


def configurations(parameter: inspect.Parameter, module: object, numbers: Mapping[str, int] = FEW) -> Iterator[object]:
    """The configuration that a class is annotated with, or the first that its module knows, then that one's parts."""
    wanted = str(parameter.annotation)
    found = [v for v in vars(module).values() if isinstance(v, type) and v.__name__.endswith("Config")]
    found.sort(key=lambda cls: cls.__name__ not in wanted)
    for cls in (cls for cls in found if cls.__name__ != "PreTrainedConfig"):
        whole = cls()
        for config in [whole, *(part for name, part in vars(whole).items() if name.endswith("_config"))]:
            for name, number in numbers.items():
                if numbers is SMALL or vars(config).get(name, 0) in (None, 1):
                    setattr(config, name, number)  # it leaves the number of experts open, or has one alone
            yield config


def gated(cls: type[nn.Module]) -> bool:
    """Whether a class takes a gate or a condition beside what it normalizes."""
    return not {*inspect.signature(cls.forward).parameters}.isdisjoint(SECOND)


def late(*_: object) -> None:
    """Give up on a class that takes too long to be built."""
    raise TimeoutError(f"not built in {SECONDS} s")


def transformers_norms(only: str) -> dict[str, dict[str, Any]]:
    """Recognize every class of transformers; a verdict each."""
    library("transformers")
    signal.signal(signal.SIGALRM, late)
    known: dict[str, dict[str, Any]] = {}
    seen: dict[Any, dict[str, Any]] = {}  # a model's family often copies the class of another to the letter
    for name, cls, module in classes(only):
        start = time.perf_counter()
        signal.alarm(SECONDS)
        try:
            made = built(cls, module)
            if is_model(made) and not gated(cls):
                continue
        except Exception as error:
            known[name] = {"built": False, "why_not": f"{type(error).__name__}: {str(error)[:80]}"}
        else:
            text = written(made)
            row = seen[text] if text in seen else verdict(made, name)
            if row["name"]:
                seen[text] = row
            known[name] = {"built": True, "matrices": is_model(made), **row, "kind": cls.__name__}
        finally:
            signal.alarm(0)
        known[name]["gated"] = gated(cls)
        tell(start, name, known[name])
    return known


def diffusers_parts(only: str) -> Iterator[tuple[str, type[nn.Module], object]]:
    """Every module class under ``diffusers.models``, and the file that it is written in."""
    let_torchvision_load()
    models = importlib.import_module("diffusers.models")
    for found in pkgutil.walk_packages(models.__path__, "diffusers.models."):
        if only in found.name and "flax" not in found.name:
            module = importlib.import_module(found.name)
            for name, cls in list(vars(module).items()):
                if isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__ == module.__name__:
                    yield f"{found.name.rpartition('.')[2]}.{name}", cls, module


def diffusers_norms(only: str) -> dict[str, dict[str, Any]]:
    """Recognize every class of diffusers that is called a norm, adaptive ones as wholes; a verdict each."""
    known: dict[str, dict[str, Any]] = {}
    for name, cls, module in diffusers_parts(only):
        if not NAMED.search(name.rpartition(".")[2].lower()):
            continue
        start = time.perf_counter()
        try:
            made = built(cls, module)
        except Exception as error:
            known[name] = {"built": False, "why_not": f"{type(error).__name__}: {str(error)[:80]}", "gated": True}
        else:
            matrices = is_model(made)
            several = matrices or specimen.further(made)[1] > 0
            known[name] = {"built": True, "matrices": matrices, "gated": several, **verdict(made, name)}
        tell(start, name, known[name])
    return known


def diffusers_models(only: str) -> dict[str, dict[str, Any]]:
    """Recognize every kind of norm that occurs in a model of diffusers, as timm_norms does."""
    mixin = importlib.import_module("diffusers.models.modeling_utils").ModelMixin
    kinds: dict[Any, dict[str, Any]] = {}
    for name, cls, _ in diffusers_parts(only):
        if not issubclass(cls, mixin) or cls is mixin:
            continue
        try:
            with torch.device("meta"), torch.no_grad():
                collect(cls(), name, kinds)
        except Exception as error:
            print(f"{name} is not built: {type(error).__name__}: {str(error)[:80]}", flush=True)
    return of_kinds(kinds)


def transformers_wholes(only: str) -> dict[str, dict[str, Any]]:
    """Recognize every router, residual form, gate and sink of transformers; a verdict each."""
    library("transformers")
    signal.signal(signal.SIGALRM, late)
    known: dict[str, dict[str, Any]] = {}
    for name, cls, module in classes(only, WHOLES):
        start = time.perf_counter()
        signal.alarm(SECONDS)
        try:
            made = built(cls, module)
            if name.endswith("Attention") and not (gates.may_be(made) and SAYS_SO.search(inspect.getsource(cls))):
                continue
            match = examine_whole(made)
        except Exception as error:
            if name.endswith("Attention"):
                continue  # whether it has a gate or a sink is not known
            known[name] = {"built": False, "why_not": f"{type(error).__name__}: {str(error)[:80]}"}
        else:
            why_not = UNGIVEN.get(name, NO_METHOD) if match is None else None
            known[name] = {"built": True, "name": match and match.name, "why_not": why_not}
            if match is not None:
                known[name] |= {"kwargs": match.kwargs, "error": match.error}
            elif name in OTHERS:
                known[name] |= {"other": True, "as": "no router", "why_not": OTHERS[name]}
        finally:
            signal.alarm(0)
        tell(start, name, known[name])
    return known


def written(made: nn.Module) -> Any:
    """What two modules share whose classes are written alike but for their names, and that are built alike."""
    parts, words = list(made.named_modules()), []
    for _, part in parts:
        own = [c for c in type(part).__mro__ if c.__module__.startswith("transformers.")]
        words += [inspect.getsource(c).replace(c.__name__, "") for c in own] or [repr(type(part))]
    shapes = tuple((name, tuple(t.shape), t.dtype) for name, t in specimen.tensors(made).items())
    told = sorted((key, str(value)) for key, value in effects.attributes(made).items())
    return tuple(words), tuple(name for name, _ in parts), shapes, str(told)


def verdict(made: nn.Module, name: str) -> dict[str, Any]:
    """What a module is found to be; where it is none, what its parts are, and whether it is a norm at all."""
    none = Match(type(made).__name__, why_not=NO_METHOD)
    match = examine_whole(made) or (none if is_model(made) else examine(made))
    found = {key: value for key, value in match.to_dict().items() if key not in ("evidence", "sized")}
    if not match and name in OTHERS:
        return {**found, "other": True, "why_not": OTHERS[name]}
    parts = {} if match or not list(made.children()) else table(made).found
    return {**found, "parts": sorted({str(part.name) for part in parts.values()})} if parts else found


def timm_norms(only: str) -> dict[str, dict[str, Any]]:
    """Recognize every kind of norm that occurs in a model of timm; a verdict each, and how often it occurs."""
    timm = library("timm")
    kinds: dict[Any, dict[str, Any]] = {}
    for at, name in enumerate(names := timm.list_models(f"*{only}*")):
        with torch.device("meta"), torch.no_grad():
            collect(timm.create_model(name), name, kinds)
        if at % 100 == 0:
            print(f"{at} of {len(names)} models, {len(kinds)} kinds of norms", flush=True)
    return of_kinds(kinds)


def of_kinds(kinds: dict[Any, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Recognize one norm of each kind, the frequent ones first."""
    known: dict[str, dict[str, Any]] = {}
    for kind in sorted(kinds.values(), key=lambda kind: -kind["sites"]):
        start, module = time.perf_counter(), kind.pop("module")
        cls = f"{type(module).__module__}.{type(module).__qualname__}"
        told = {"class": cls, "built": True, "gated": gated(type(module)), **kind, "models": len(kind["models"])}
        found = {**told, **verdict(numbered(module), cls)}
        known[kind["where"]] = found
        tell(start, f"{type(module).__qualname__}, {kind['sites']} times, {kind['where']}", found)
    return known


def collect(model: nn.Module, name: str, kinds: dict[Any, dict[str, Any]]) -> None:
    """Enter the norms of a model by class and what they were built with; the smallest that is large enough stays."""
    left: list[tuple[str, nn.Module]] = [("", model)]
    while left:
        site, module = left.pop()
        if not (site and is_norm(site, module)):
            left += [(f"{site}.{part}".lstrip("."), child) for part, child in module.named_children()]
            continue
        size = sum(p.numel() for p in module.parameters())
        kind = kinds.setdefault(key(module), {"models": set(), "sites": 0, "size": 0})
        kind["models"].add(name)
        kind["sites"] += 1
        if kind["size"] < ENOUGH < size or ENOUGH < size < kind["size"] or not kind["sites"] > 1:
            kind.update(size=size, where=f"{name}: {site}", module=copy.deepcopy(module))


def is_norm(site: str, module: nn.Module) -> bool:
    """Whether a module is called a norm, by class or by name, and holds vectors of its own and no matrices."""
    cls, last = type(module), site.rpartition(".")[2].lower()
    called = any(word in cls.__name__.lower() for word in CALLED) or last.startswith(("norm", "bn", "ln"))
    parts = any(True for child in module.children() for _ in child.parameters())
    return called and not parts and cls not in (nn.Identity, nn.Sequential) and not is_model(module)


def key(module: nn.Module) -> Any:
    """What two norms share that differ in width alone."""
    told = [(k, v) for k, v in effects.attributes(module).items() if k.rpartition(".")[2] not in SIZES]
    shapes = tuple((name, t.ndim, type(t)) for name, t in specimen.tensors(module).items())
    return tuple((name, type(part)) for name, part in module.named_modules()), str(sorted(told)), shapes


@torch.no_grad()
def numbered(module: nn.Module) -> nn.Module:
    """The same with memory, and with the numbers that norms begin with."""
    made = module.to_empty(device="cpu")
    for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
        tensor.fill_(1 if name.rpartition(".")[2] in ("weight", "running_var", "v") else 0)
    return made


def tell(start: float, name: str, row: dict[str, Any]) -> None:
    """Print a line."""
    what = row.get("kwargs") if row.get("name") else row.get("why_not")
    print(f"{time.perf_counter() - start:4.1f} {name:60} {row.get('name') or '-':12} {what}", flush=True)


WAYS = {
    "transformers": ("transformers", transformers_norms),
    "timm": ("timm", timm_norms),
    "diffusers": ("diffusers", diffusers_norms),
    "denoisers": ("diffusers", diffusers_models),
    "wholes": ("transformers", transformers_wholes),
}


def main() -> None:
    """Print a line a class, and the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=tuple(WAYS), help="one of them alone")
    parser.add_argument("--only", default="", help="classes or models whose name has this")
    parser.add_argument("--json", help="write all verdicts here")
    parser.add_argument("--read", nargs="+", default=[], help="verdicts of before; --library measures its own anew")
    parser.add_argument("--page", help="write the page of the documentation here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known: dict[str, Any] = {}
    for file in options.read:
        known |= json.loads(Path(file).read_text())
    for name, (source, way) in WAYS.items():
        if options.library == name or not (options.library or options.read):
            if source == "diffusers" and importlib.util.find_spec(source) is None:
                print(f"{name}: diffusers is not installed")
                continue
            verdicts = way(options.only)
            version, today = importlib.metadata.version(source), datetime.date.today().isoformat()
            if options.only and known.get(name, {}).get("version") == version:
                verdicts = known[name]["verdicts"] | verdicts
            known[name] = {"version": version, "date": today, "verdicts": verdicts}
    for name, part in known.items():
        print(f"{name}: {share(part['verdicts'])}")
        print(f"{name}, gated and conditional: {gated_share(part['verdicts'])}")
        for missed, row in missed_gated(part["verdicts"]):
            print(f"    {missed}: {why(row)}")
    if options.json:
        Path(options.json).write_text(json.dumps(known, indent=1) + "\n")
    if options.page:
        Path(options.page).write_text(page(known))


def share(verdicts: dict[str, dict[str, Any]]) -> str:
    """How many are recognized, in words."""
    rows = [r for r in verdicts.values() if r["built"] and not r.get("other") and not r.get("matrices")]
    whole, inner = sum(bool(row["name"]) for row in rows), sum(bool(row.get("parts")) for row in rows)
    words = [f"{whole} of {len(rows)} recognized ({whole / max(len(rows), 1):.1%})"]
    words += [f"{inner} more by the norms within ({(whole + inner) / len(rows):.1%})"] if inner else []
    left = sum(not row["built"] for row in verdicts.values())
    return "; ".join(words + ([f"{left} not built"] if left else []))


def gated_share(verdicts: dict[str, dict[str, Any]]) -> str:
    """How many are recognized of those that take a gate or a condition, in words; one not built is a miss."""
    rows = [row for row in verdicts.values() if row.get("gated") and not row.get("other")]
    if not rows:
        return "there are none"
    whole, inner = sum(bool(row.get("name")) for row in rows), sum(bool(row.get("parts")) for row in rows)
    words = f"{whole} of {len(rows)} recognized as a whole ({whole / len(rows):.1%})"
    within = f"{inner} hold matrices, and the norm within is recognized ({(whole + inner) / len(rows):.1%} with them)"
    return f"{words}; {within}" if inner else words


def missed_gated(verdicts: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """The norms with a gate or a condition that are not recognized as a whole."""
    return [(name, row) for name, row in verdicts.items() if row.get("gated") and not row.get("name")]


def dialect(row: dict[str, Any]) -> str:
    """A method and the arguments that are not its own, without sizes and eps."""
    plain = {k: v for k, v in row["kwargs"].items() if k not in UNSHOWN}
    return ", ".join([row["name"], *(f"{k}={v}" for k, v in plain.items())])


def page(known: dict[str, Any]) -> str:
    """The page: each method in its dialects, how many classes have them and in which families, and what is left."""
    lines = [
        "# Which norms do the world's models use?",
        "",
        "Read from what modules compute, not from what they are called: every module is probed by `nk.recognize`, and",
        "counted as what it was proven equal to. `python benchmarks/recognition.py --json",
        "benchmarks/results/recognition.json --page docs/world.md` measures again and writes this page.",
        "",
    ]
    if "transformers" in known:
        lines += of_transformers(**known["transformers"])
    if "timm" in known:
        lines += of_models("timm", **known["timm"])
    if "diffusers" in known:
        lines += of_diffusers(**known["diffusers"])
    if "denoisers" in known:
        lines += of_models("diffusers", **known["denoisers"])
    if "wholes" in known:
        lines += of_wholes(**known["wholes"])
    return "\n".join(lines).rstrip() + "\n"


def families_of(by_dialect: dict[str, list[str]]) -> list[str]:
    """Rows of a table: dialects, the most frequent first, with how many classes have them, and of which families."""
    ranked = sorted(by_dialect.items(), key=lambda one: -len(one[1]))
    return [f"| {what} | {len(names)} | {', '.join(sorted(set(names)))} |" for what, names in ranked]


def reasons(rows: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """A table of classes with the reason why each is not recognized."""
    return ["| class | why |", "| --- | --- |", *(f"| {name} | {why(row)} |" for name, row in rows), ""]


def of_transformers(version: str, date: str, verdicts: dict[str, dict[str, Any]]) -> list[str]:
    """Classes by dialect, by eps, and what is left."""
    found = {name: row for name, row in verdicts.items() if row.get("name")}
    by_dialect, by_eps = collections.defaultdict(list), collections.Counter()
    for name, row in found.items():
        by_dialect[dialect(row)].append(name.partition(".")[0])
        by_eps[f"{row['kwargs']['eps']:g}" if "eps" in row["kwargs"] else "none"] += 1
    families = {name.partition(".")[0] for name in found}
    conditioned = sum(row["matrices"] for row in found.values())
    left = [(name, row) for name, row in verdicts.items() if not row.get("name") and not row.get("gated")]
    return [
        "## transformers",
        "",
        f'Every class of transformers {version} that has "norm" in its name and holds no matrices, of '
        f"{len(families)} families, on {date}: {share(verdicts)}. The tables count {conditioned} more, whose "
        "condition goes through matrices.",
        "",
        "| method and dialect | classes | families |",
        "| --- | ---: | --- |",
        *families_of(by_dialect),
        "",
        "A dialect is what differs from the method's defaults: `offset` is added to the gain; `cast` tells whether",
        "half precision is rounded before the gain (the default), after it, once (`late`), from the factor on",
        "(`factor`), or at every step (`native`).",
        "",
        "The stabilizer, as it was found from small numbers; a class that takes it was built with 1e-06:",
        "",
        "| eps | classes |",
        "| --- | ---: |",
        *(f"| {eps} | {count} |" for eps, count in by_eps.most_common()),
        "",
        "What is left:",
        "",
        *reasons(left),
        f"Of the norms that take a gate or a condition as well, {gated_share(verdicts)}.",
        "One counts as recognized where it is found with its gate, or without a condition that may be left out.",
        "",
        *reasons(missed_gated(verdicts)),
    ]


def of_wholes(version: str, date: str, verdicts: dict[str, dict[str, Any]]) -> list[str]:
    """Routers, residual forms, gates and sinks by dialect, and what is left."""
    by_dialect = collections.defaultdict(list)
    for name, row in verdicts.items():
        if row.get("name"):
            plain = {k: v for k, v in row["kwargs"].items() if k in ("score", "renormalize", "bias", "selection_bias")}
            plain |= {"groups": "some"} if row["kwargs"].get("groups", 1) > 1 else {}
            plain |= {k: v for k, v in RARE.items() if row["kwargs"].get(k) == v}
            what = ", ".join([row["name"], *(f"{k}={v}" for k, v in plain.items())])
            by_dialect[what].append(name.partition(".")[0])
    return [
        "## Routers, residual streams, gates and sinks",
        "",
        f"Every class of transformers {version} that is called a router, a gate of a mixture, a connection or head of",
        "residual streams, AltUp or LAuReL. Attention with a gate or sinks between its four or five projections is",
        "counted too.",
        f"On {date}: {share(verdicts)}.",
        "",
        "| what it is | classes | families |",
        "| --- | ---: | --- |",
        *families_of(by_dialect),
        "",
        "What is left:",
        "",
        *reasons((name, row) for name, row in verdicts.items() if not row.get("name")),
    ]


def of_diffusers(version: str, date: str, verdicts: dict[str, dict[str, Any]]) -> list[str]:
    """Classes by dialect, with their names, and what is left."""
    by_dialect = collections.defaultdict(list)
    for name, row in verdicts.items():
        if row.get("name"):
            takes = catalog.card(row["name"]).signature.parameters
            kwargs = {k: v for k, v in row["kwargs"].items() if k not in UNSHOWN and v != takes[k].default}
            by_dialect[dialect({**row, "kwargs": kwargs})].append(name.rpartition(".")[2])
    alone = {name: row for name, row in verdicts.items() if not row.get("gated")}
    return [
        "## diffusers, by class",
        "",
        f'Every class of diffusers {version} that has "norm" in its name, on {date}: of those that take one tensor and '
        f"hold no matrices {share(alone)}. Of the others, which take a condition or hold matrices, "
        f"{gated_share(verdicts)}.",
        "",
        "| method and dialect | classes | which |",
        "| --- | ---: | --- |",
        *families_of(by_dialect),
        "",
        "What is left:",
        "",
        *reasons((name, row) for name, row in verdicts.items() if not row.get("name")),
    ]


def of_models(source: str, version: str, date: str, verdicts: dict[str, dict[str, Any]]) -> list[str]:
    """Norms by what they are, how many stand in the models, and what is left."""
    rows = list(verdicts.values())
    sites, classes_of = collections.Counter(), collections.defaultdict(set)
    for row in rows:
        if row.get("name"):
            what = " + ".join([dialect(row), *(["an activation"] if row["behind"] else [])])
            sites[what] += row["sites"]
            classes_of[what].add(row["class"].rpartition(".")[2])
    known = sum(row["sites"] for row in rows if row.get("name"))
    every = sum(row["sites"] for row in rows if not row.get("other"))
    left = [(where, row) for where, row in verdicts.items() if not row.get("name")]
    return [
        "## timm" if source == "timm" else f"## {source}, by model",
        "",
        f"Every norm in all models of {source} {version}, on {date}: {every} of them, of {len(rows)} kinds that differ "
        f"in class or in what they were built with besides width. {known} sites ({known / every:.2%}) are recognized; "
        f"of the kinds {share(verdicts)}.",
        "",
        f"| what it is | norms in all models | {source}'s classes |",
        "| --- | ---: | --- |",
        *(f"| {what} | {count} | {', '.join(sorted(classes_of[what]))} |" for what, count in sites.most_common()),
        "",
        "What is left:",
        "",
        "| norm | times | why |",
        "| --- | ---: | --- |",
        *(f"| {row['class']} in {where} | {row['sites']} | {why(row)} |" for where, row in left),
        "",
        f"Of the norms that take a gate or a condition as well, {gated_share(verdicts)}.",
        "",
    ]


def why(row: dict[str, Any]) -> str:
    """Why a module is not recognized, or what its parts are."""
    if row.get("parts") and row.get("matrices"):
        return f"gain and shift come from matrices of its own; the norm within is recognized: {', '.join(row['parts'])}"
    if row.get("parts"):
        return f"recognized by what is within: {', '.join(row['parts'])}"
    other = f"{row.get('as', 'no norm of one tensor')}: " if row.get("other") else ""
    return other + str(row["why_not"]).replace("|", "or")


if __name__ == "__main__":
    main()
