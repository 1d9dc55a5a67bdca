"""Other norms in a model, by what the old ones compute and not by what they are called."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.catalog import Card
from normkit.norm import Norm
from normkit.parameters import copy_model, holders, require_whole
from normkit.surgery import proof
from normkit.surgery.edits import Edit, forms, inside, replace_parts
from normkit.surgery.edits.changes import Change, Report, name_others, norm_words
from normkit.surgery.edits.layers import joined
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.match import Followed, Match, Recognized, begun
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.replacement import fits, matching, uncalled
from normkit.threads import processor_by_default
from normkit.where import Where, require_known, selects

__all__ = ["swap"]

Exchange = Edit  # as models that were pickled before name it
Name = str | type[nn.Module]
Made = dict[str, list[Any]]  # a tensor of the new norm, the old one that it is made of, and by which number
BATCH = (  # whose running moments mean the same
    "batchnorm",
    "frozen-batchnorm",
    "alpha-batchnorm",
    "ghost-batchnorm",
    "onlinenorm",
    "batch-renorm",
)
SPREADS = {"running_std": "running_var", "running_var": "running_std"}  # the former is the root of the latter and eps
LEARNED = ("weight", "bias")
OF_HEADS = ("heads", "heads_first")


def norm_in(module: Any) -> Any:
    """The norm in what holds it where it stands."""
    return norm_in(module.norm) if isinstance(module, Followed | fits.Laid) else module


@torch.inference_mode(False)
def swap(
    model: nn.Module,
    norms: Name | Mapping[Name, Name],
    *,
    where: Where = None,
    example: object = None,
    match: bool = False,
    inplace: bool = True,
) -> Report:
    """Put other norms where a model's are, found by what they compute; all sites or, after an error, none.

    What looks like a norm and is not recognized is left, and the report says so.
    A gain and a shift go over where the new norm has them as well, as the same parameters where their shape is the
    same; what is frozen stays so. A gain of ``offset + weight`` goes to a norm without an offset as their sum, in a new
    parameter; the report says what does not go over. Between batch norms whose running statistics mean the same
    (``batchnorm``, ``batch-renorm``, ``frozen-batchnorm`` and their kin), these and eps go over too, and within one
    method all that is not named. So does ``sync``, to every norm that takes it. A new norm's other numbers are new:
    build the optimizer afterwards. What a module did besides, such as the activation in timm's norms, stays behind the
    new norm.

    Args:
        model: any model, on the meta device too.
        norms: what becomes what, ``{"layernorm": "derf", "batchnorm": "groupnorm:num_groups=8"}``, by names of the
            catalogue or by classes, ``{nn.LayerNorm: nk.RMSNorm}``; one alone replaces all norms.
        where: only sites whose name fits a pattern (``"*.attn.*"``), or whose class is the one given, or any of a list
            of such; or those for which a function of name and module is true.
        example: an input of the model, which tells widths and ranks that norms do not, and which norms are never
            called. One that rests in it, as in a branch that another input takes, is replaced all the same.
        match: fit the new norms' parameters to what the old ones make of the example, so that a trained model goes on
            from near where it was; the report's difference is what is left, relative to the old results.
        inplace: change the model; else a copy, which is the report's ``model``.

    >>> model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    >>> report = swap(model, {"layernorm": "rmsnorm"})
    >>> model[1]  # doctest: +ELLIPSIS
    RMSNorm(8, eps=1e-06, p=1.0, affine=True, bias=False, offset=0.0, ...)
    """
    if match and example is None:
        raise ValueError("swap: match=True needs an example, on which the new norms are fitted to the old ones")
    require_known("swap", where, model)
    require_whole("swap", model)
    sizes = proof.sizes_of("swap", model, example, with_numbers=False)
    model = model if inplace else copy_model(model)
    findings = sized_table(model, sizes)
    edits = edits_for(model, findings, norms, where, sizes)
    new = new_norms(model, edits, sizes, example)
    _share(model, edits, new)
    for edit in edits:
        if "running_mean" in edit.words.get("carried", {}):
            specimen.carry_counts(new[edit.site], model.get_submodule(edit.site))
    far: dict[str, float] = {}
    fitted: dict[str, nn.Module] = {}  # copies: the model's own parameters change last
    for name, (x, y) in (_record_sites(model, example, new) if match else {}).items():
        fitted[name] = copy.deepcopy(new[name])
        far[name] = matching.match(fitted[name], x, y)
        if not math.isfinite(far[name]):
            raise ValueError(
                f"swap: match=True gives {name} no finite numbers; hand in an example with samples, and none of which "
                "the norm makes NaN or infinite values"
            )
    changes = [
        Change(
            edit.site,
            norm_words(findings[edit.site]),
            _describe(new[edit.site], _left(findings[edit.site], edit, new[edit.site])),
            tuple(_sources(edit)),
            far.get(edit.site),
        )
        for edit in edits
    ]
    changes += [
        Change(name, match.kind, why_not=f"not recognized: {match.why_not}")
        for name, match in findings.rest.items()
        if selects(where, name, model.get_submodule(name))
    ]
    changed = replace_parts("swap", model, new, inplace, edits=edits)
    for name, norm in fitted.items():
        new[name].load_state_dict(norm.state_dict())
    return Report(changed, changes)


def new_norms(
    model: nn.Module, edits: Collection[Edit], sizes: Mapping[str, tuple[int, ...]], example: Any = None
) -> dict[str, nn.Module]:
    """Return the norms that edits make; refuse a place where the model would not call them, or not as the old ones."""
    read = uncalled.first_read(model, example, [edit.site for edit in edits if edit.site not in sizes])
    if read is not None:
        raise ValueError(f"swap: {read} is never called: its block reads its numbers instead; leave it out by where")
    if aside := uncalled.first_aside(model, [edit.site for edit in edits]):
        raise ValueError(
            f"swap: {aside[0]} is held by {aside[1]} too, by which the model may call the old one; make that an "
            "nn.ModuleList or an nn.ModuleDict, or leave the norm out by where"
        )
    new = {edit.site: edit.make(model.get_submodule(edit.site)) for edit in edits}
    if named := uncalled.first_named(model, new):
        raise ValueError(
            f"swap: {named[0]} is called by keyword, {named[1]}=, which {type(new[named[0]]).__name__} does not take; "
            "call it by position, or leave it out by where"
        )
    _require_shapes(new, sizes)
    if example is not None:
        _require_call(model, new, example)
    return new


def _sources(edit: Edit) -> list[str]:
    """The old norm's tensors that go over."""
    made = [*edit.words.get("added", {}).values(), *edit.words.get("spread", {}).values()]
    return [*edit.words.get("carried", {}).values(), *(source for source, _ in made)]


def _left(match: Match, edit: Edit, new: nn.Module) -> list[str]:
    """The old norm's gain and shift that do not go over, and its running statistics where the new one has its own."""
    running = any(name.startswith("running_") for name, _ in norm_in(new).named_buffers())
    named = [source for name, source in match.carried.items() if name in LEARNED or (running and "running_" in name)]
    return [source for source in named if source not in _sources(edit)]


def _require_shapes(new: Mapping[str, nn.Module], sizes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse norms that do not take an input of the shape that their places have in the example."""
    for name in [name for name in new if name in sizes]:
        if any(isinstance(n, torch.SymInt) for n in sizes[name]):
            raise ValueError(f"swap: {name} is given nested tensors, and norms take dense ones; leave it out by where")
        norm = copy.deepcopy(new[name]).eval()
        own = next(iter(specimen.tensors(norm).values()), torch.zeros(()))
        try:
            with specimen.quiet(), torch.no_grad():
                norm(own.new_zeros(sizes[name]))
        except Exception as error:
            why = f"{name} is given inputs of shape {sizes[name]}: {error}"
            raise ValueError(f"swap: {why}; leave it out by where") from error


def _require_call(model: nn.Module, new: Mapping[str, nn.Module], example: Any) -> None:
    """Refuse norms with which a copy of the model raises, as where its code reads a weight that they do not have."""
    twin = replace_parts("swap", copy_model(model), copy.deepcopy(dict(new)), False, edits=())
    try:
        proof.call_model(inside(twin)[1].eval(), example)
    except Exception as error:
        raise ValueError(f"swap: with the new norms, the model raises {proof.describe_error(error)}") from error


def _share(model: nn.Module, edits: Collection[Edit], new: Mapping[str, nn.Module]) -> None:
    """Let new norms share a gain that was made of one which the old ones share."""
    made: dict[Any, nn.Parameter] = {}
    for edit in edits:
        for name, (source, offset) in edit.words.get("added", {}).items():
            was = specimen.tensors(model.get_submodule(edit.site))[source]
            norm = norm_in(new[edit.site])
            own = norm.get_parameter(name)
            setattr(*specimen.locate(norm, name), made.setdefault((id(was), offset, own.shape), own))


def _record_sites(model: nn.Module, example: Any, sites: Collection[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """What norms are given and make of it; refuse one whose numbers are another's too, and so cannot be fitted."""
    owners = holders(model)
    for name in sites:
        if any(len(owners[id(p)]) > 1 for p in model.get_submodule(name).parameters()):
            raise ValueError(
                f"swap: {name} shares a parameter with another module, and match=True would change both; leave it out "
                "by where"
            )
    return matching.record_sites(model, example, sites)


def edits_for(
    model: nn.Module,
    sites: Recognized,
    norms: Name | Mapping[Name, Name],
    where: Where = None,
    sizes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> list[Edit]:
    """Return the edits that put other norms where a model's are, of those that were recognized in it.

    sizes: the shapes of the modules' inputs, as far as they are known.

    >>> model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    >>> [edit.words["norm"] for edit in edits_for(model, sized_table(model, {}), "rmsnorm")]
    ['rmsnorm']
    """
    replacements: dict[str | None, str] = {}
    if isinstance(norms, Mapping) and not norms:
        raise ValueError("swap: norms must map a norm at least, and is empty")
    if isinstance(norms, Mapping):
        replacements = {catalog.find(_text(old)).card.name: _text(new) for old, new in norms.items()}
    elsewhere = "" if replacements else _text(norms)
    matches = {
        name: match
        for name, match in sites.found.items()
        if selects(where, name, model.get_submodule(name)) and (not replacements or match.name in replacements)
    }
    if not matches:
        asked = " or ".join(map(str, replacements)) or "norm"
        among = "" if where is None else " among what where chooses"
        raise ValueError(f"swap: the model has no {asked} to replace{among}{_list_layers(model, sites)}")
    return [
        _edit(model, name, match, replacements.get(match.name, elsewhere), sizes.get(name))
        for name, match in matches.items()
    ]


def _text(norm: object) -> str:
    """The name of a norm, or that which a class has in the catalogue."""
    if isinstance(norm, type) and issubclass(norm, nn.Module):
        if "card" in vars(norm):
            return vars(norm)["card"].name
        try:
            catalog.find(norm.__name__)
        except ValueError:
            raise ValueError(
                f"swap: norms has the class {norm.__name__}, which is no method of the catalogue; nk.method makes a "
                "class of your own one, and nk.remove takes norms out"
            ) from None
        return norm.__name__
    if not isinstance(norm, str):
        raise TypeError(
            "swap: norms must be a name such as 'rmsnorm', a class such as nk.RMSNorm, or a mapping of old ones to new "
            f"ones, not {type(norm).__name__}"
        )
    return norm


def _list_layers(model: nn.Module, sites: Recognized) -> str:
    names = sorted({match.name for match in sites.found.values() if match.name})
    if names or sites.rest:
        return f"; it has {', '.join(names) or 'none'}{name_others(sites.rest)}"
    kinds = sorted({type(part).__name__ for part in model.modules() if not list(part.children())})
    return f"; nothing in it was recognized as one; its layers are {', '.join(kinds)}"


def _describe(module: nn.Module, without: Sequence[str]) -> str:
    text = str(norm_in(module)).split("\n")[0]
    named = " and ".join(filter(None, [", ".join(without[:-1]), *without[-1:]]))
    return f"{text} without the old {named}" if without else text


def _edit(model: nn.Module, name: str, match: Match, text: str, size: tuple[int, ...] | None) -> Edit:
    """What puts a norm into one place, with the old one's gain and shift and the layers that stand behind it."""
    old = model.get_submodule(name)
    card = catalog.card(match.name)  # type: ignore[arg-type]
    width = match.kwargs.get(card.width.name) if card.width is not None else None
    if not match.sized:
        raise ValueError(f"swap: the width of {name} is not known; hand in an example")
    if not isinstance(width, int):
        raise ValueError(f"swap: {name} normalizes {width!r}, and only norms of one axis are replaced")
    first = _channels_first(card, match.kwargs)
    if size and not match.carried:  # without a gain or a shift, what the module holds may be of another size
        width = size[1 if first and len(size) > 1 else -1]
    choice = _choose(text, match, old, match.kwargs.get("space") or (len(size) - 2 if size and first else None))
    with processor_by_default():
        way = fits.PLAIN
        if not _takes_the_same(choice, match):
            inputs = fits.STREAM if not first else fits.ROWS if size and len(size) == 2 else fits.IMAGES
            way = fits.require(choice, fits.Place(inputs))
        new: Any = fits.build(choice, way, width)
    further, taken = _further(old), len(_further(new))
    if len(further) > taken and not isinstance(
        model.get_submodule(name.rpartition(".")[0]), fits.Laid
    ):  # which hands in one
        takes = ", ".join(further[taken:])
        raise ValueError(f"swap: {name} may be called with {takes}, which {text} does not take; leave it out by where")
    carried, added, spread = _transfers(norm_in(new), match, old)
    made = {"carried": carried, "added": added, "spread": spread}
    words = forms.norm_words(norm_in(new), way, behind=list(match.behind), **made)
    return Edit(name, "norm", words)


def _further(norm: nn.Module) -> list[str]:
    """What a norm's forward takes besides its input."""
    takes = inspect.signature(norm.forward).parameters.values()
    return [p.name for p in takes if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)][1:]


def _choose(text: str, match: Match, old: nn.Module, space: int | None) -> catalog.Choice:
    """What a name stands for, with settings of the old norm that mean the same and were not written with the name.

    space: the axes of space of what the old norm is given, where they are known.
    """
    choice = catalog.find(text)
    takes = choice.card.signature.parameters
    kept: dict[str, Any] = {}
    if choice.card.name == match.name:
        width = choice.card.width
        kept = {name: value for name, value in match.kwargs.items() if not width or name != width.name}
    elif {choice.card.name, match.name} <= {*BATCH}:
        kept = {"eps": match.kwargs["eps"]} if "eps" in match.kwargs else {}
    elif "weight" in match.carried and "offset" in takes and _offset(match.kwargs):
        kept = {"offset": _offset(match.kwargs)}
    if match.carried:
        kept |= {name: match.kwargs[name] for name in OF_HEADS if name in takes and name in match.kwargs}
    if space is not None and "space" in takes and takes["space"].default is not None:
        kept.setdefault("space", space)
    if "weight" in match.carried and "affine" in takes and takes["affine"].default is False:
        kept["affine"] = True
    if "sync" in takes:  # which a probe in one process does not see
        kept |= joined(old)
    return catalog.Choice(choice.card, {**kept, **choice.arguments})


def _takes_the_same(choice: catalog.Choice, match: Match) -> bool:
    """Whether a norm takes its input as the old one did: it is the same method, laid out in the same way."""
    laid = [arguments.get("channels_last") for arguments in (choice.arguments, match.kwargs)]
    return choice.card.name == match.name and laid[0] == laid[1]


def _offset(arguments: Mapping[str, Any]) -> float:
    """What a norm adds to its weight to have its gain."""
    return arguments.get("offset", 0.0)


def _channels_first(card: Card, arguments: Mapping[str, object]) -> bool:
    return not arguments.get("channels_last", card.shape.features_last)


def sites(model: nn.Module) -> dict[str, bool]:
    """Return the names of a model's norms, and of each whether channels are its second axis, not the last.

    The library's own are known; others are recognized.
    """
    own = {name: part for name, part in model.named_modules() if isinstance(part, Norm)}
    own = {name: part for name, part in own.items() if not any(name.startswith(f"{other}.") for other in own)}
    layout = {name: _channels_first(part.card, part.arguments) for name, part in own.items() if _of_channels(part.card)}

    def others(name: str, part: nn.Module) -> bool:
        inside = any(name == known or name.startswith(f"{known}.") for known in own)
        return not inside and not isinstance(part, Followed | fits.Laid)  # which hold one of the library's own

    for name, match in sized_table(model, {}, others).found.items():
        layout[name] = _channels_first(catalog.card(match.name), match.kwargs)  # type: ignore[arg-type]
    return layout


def _of_channels(card: Card) -> bool:
    return card.shape.image or card.shape == "... C"


def places(model: nn.Module) -> set[fits.Place]:
    """Return where a model's norms stand."""
    return {fits.Place(fits.IMAGES if first else fits.STREAM) for first in sites(model).values()}


def _transfers(new: Norm, match: Match, old: nn.Module) -> tuple[dict[str, str], Made, Made]:
    """Tensors that go over as they mean the same: those that begin at the same number, with what is added to them.

    Of another method these are gain and shift alone, and running moments of batch norms. The second are gains of which
    the one norm has another offset than the other, the third running deviations of variances, and the reverse.
    """
    ours, theirs, before = specimen.tensors(new), specimen.tensors(old), begun(match)
    start, same = specimen.tensors(before), new.card.name == match.name
    batch = {new.card.name, match.name} <= {*BATCH}
    names = match.carried.keys() if same else {*LEARNED, *(("running_mean", "running_var") if batch else ())}
    moved = bool(new.arguments.get("gain_first")) != bool(match.kwargs.get("gain_first"))  # the gain's place
    carried, added, spread = {}, {}, {}
    for name, source in match.carried.items():
        if batch and name in SPREADS and SPREADS[name] in ours:
            kept: Any = before if name == "running_var" else new
            spread[SPREADS[name]] = [source, kept.eps]
        own = name if name in ours else next((n for n in ours if n.rpartition(".")[2] == name), None)
        if own is None or name not in names or ours[own].numel() != theirs[source].numel():
            continue
        if name == "weight" and moved:
            continue
        more = _offset(match.kwargs) - _offset(new.arguments) if name == "weight" else 0.0
        if torch.equal(ours[own].reshape(-1), start[name].reshape(-1) + more):
            if more:
                added[own] = [source, more]
            else:
                carried[own] = source
    return carried, added, spread
