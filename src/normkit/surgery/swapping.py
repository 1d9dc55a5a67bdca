"""Other norms in a model, by what the old ones compute and not by what they are called."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.catalog import Card
from normkit.norm import Norm
from normkit.surgery import fits, matching, proof
from normkit.surgery.changes import Change, Report, replaced, unrecognized
from normkit.surgery.recognition import specimen
from normkit.surgery.recognition.recognize import Followed, Match, Recognized, sized_table
from normkit.where import Where, chosen

__all__ = ["swap"]


def swap(
    model: nn.Module,
    norms: str | Mapping[str, str],
    *,
    where: Where = None,
    example: object = None,
    match: bool = False,
    inplace: bool = True,
) -> Report:
    """Put other norms where a model's are, found by what they compute; all sites or, after an error, none.

    A gain and a shift go over where the new norm has them as well. What a module did besides, such as the activation in
    timm's norms, stays behind the new norm.

    Args:
        model: any model.
        norms: what becomes what, ``{"layernorm": "derf", "batchnorm": "groupnorm:num_groups=8"}``, by names of the
            catalogue; one name alone replaces all norms.
        where: only sites whose name fits a pattern (``"*.attn.*"``), is in a list, or is let by a function of name
            and module.
        example: an input of the model, which tells the widths of norms without parameters.
        match: fit the new norms' parameters to what the old ones make of the example, so that a trained model goes on
            from near where it was; the report's difference is what is left, relative to the old results.
        inplace: change the model; else a copy, which is the report's ``model``.

    >>> model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    >>> report = swap(model, {"layernorm": "rmsnorm"})
    >>> model[1]  # doctest: +ELLIPSIS
    RMSNorm(8, eps=1e-06, p=1.0, affine=True, bias=False, offset=0.0, ...)
    """
    wanted: dict[str | None, str] = {}
    if isinstance(norms, Mapping):
        wanted = {catalog.find(old).card.name: new for old, new in norms.items()}
    if match and example is None:
        raise ValueError("swap: match=True needs an example, on which the new norms are fitted to the old ones")
    sizes = proof.sizes_of("swap", model, example)
    model = model if inplace else copy.deepcopy(model)
    found = sized_table(model, sizes)
    sites = {
        name: match
        for name, match in found.found.items()
        if chosen(where, name, model.get_submodule(name)) and (not wanted or match.name in wanted)
    }
    if not sites:
        asked = " or ".join(map(str, wanted)) or "norm"
        raise ValueError(f"swap: the model has no {asked} to replace{_there(model, found)}")
    made = {name: _replacement(model, name, match, wanted.get(match.name, norms)) for name, match in sites.items()}
    far: dict[str, float] = {}
    for name, (x, y) in (matching.seen(model, example, sites) if match else {}).items():
        far[name] = matching.match(made[name][0], x, y)
    changes = [
        Change(name, str(sites[name]).partition(": ")[2], _called(module), carried, far.get(name))
        for name, (module, carried) in made.items()
    ]
    return Report(replaced("swap", model, {name: module for name, (module, _) in made.items()}, inplace), changes)


def _there(model: nn.Module, found: Recognized) -> str:
    names = sorted({match.name for match in found.found.values() if match.name})
    if names or found.rest:
        return f" there; it has {', '.join(names) or 'none'}{unrecognized(found.rest)}"
    kinds = sorted({type(part).__name__ for part in model.modules() if not list(part.children())})
    return f"; nothing in it was recognized as one; its layers are {', '.join(kinds)}"


def _called(module: nn.Module) -> str:
    return str(module.norm if isinstance(module, Followed | fits.Laid) else module).split("\n")[0]


def _replacement(model: nn.Module, name: str, match: Match, text: object) -> tuple[nn.Module, tuple[str, ...]]:
    """Build what comes into one place, with the old one's gain and shift, type, device and mode."""
    old = model.get_submodule(name)
    card = catalog.card(match.name)  # type: ignore[arg-type]
    width = match.kwargs.get(card.width.name) if card.width is not None else None
    if not match.sized:
        raise ValueError(f"swap: the width of {name} is not known; hand in an example")
    if not isinstance(width, int):
        raise ValueError(f"swap: {name} normalizes {width!r}, and only norms of one axis are replaced")
    new = fits.maker(str(text), _channels_first(card, match.kwargs))(width)
    spare = specimen.further(old)[1] - specimen.further(new)[1]
    if spare > 0:
        takes = ", ".join(list(inspect.signature(old.forward).parameters)[-spare:])
        raise ValueError(f"swap: {name} may be called with {takes}, which {text} does not take; leave it out by where")
    like = next(iter(specimen.tensors(old).values()), None)
    if like is not None:
        new = new.to(device=like.device, dtype=like.dtype)
    carried = _carry(specimen.tensors(new), match, old)
    layers = [old.get_submodule(layer) for layer in match.behind]
    return (Followed(new, layers) if layers else new).train(old.training), carried


def _channels_first(card: Card, arguments: Mapping[str, object]) -> bool:
    return not card.shape.features_last and not arguments.get("channels_last")


def sites(model: nn.Module) -> dict[str, bool]:
    """Return the names of a model's norms, and of each whether channels are its second axis, not the last.

    The library's own are known; others are recognized.
    """
    own = {name: part for name, part in model.named_modules() if isinstance(part, Norm)}
    own = {name: part for name, part in own.items() if not any(name.startswith(f"{other}.") for other in own)}
    found = {name: _channels_first(part.card, part.arguments) for name, part in own.items() if _of_channels(part.card)}

    def others(name: str, part: nn.Module) -> bool:
        inside = any(name == known or name.startswith(f"{known}.") for known in own)
        return not inside and not isinstance(part, Followed | fits.Laid)  # which hold one of the library's own

    for name, match in sized_table(model, {}, others).found.items():
        found[name] = _channels_first(catalog.card(match.name), match.kwargs)  # type: ignore[arg-type]
    return found


def _of_channels(card: Card) -> bool:
    return card.shape.image or card.shape == "... C"


def places(model: nn.Module) -> set[fits.Place]:
    """Return where a model's norms stand."""
    return {fits.Place(fits.IMAGES if first else fits.STREAM) for first in sites(model).values()}


@torch.no_grad()
def _carry(ours: Mapping[str, Tensor], match: Match, old: nn.Module) -> tuple[str, ...]:
    """Let gain and shift go over where both mean the same: they are called so, and begin at the same number."""
    theirs, carried = specimen.tensors(old), []
    begun = specimen.tensors(catalog.find(match.name).create(**match.kwargs))  # type: ignore[arg-type]
    for name, source in match.carried.items():
        target = next((t for n, t in ours.items() if n.rpartition(".")[2] == name), None)
        fits = target is not None and name in ("weight", "bias") and target.numel() == theirs[source].numel()
        if fits and torch.equal(target.float().reshape(-1).cpu(), begun[name].float().reshape(-1).cpu()):  # type: ignore[union-attr]
            target.copy_(theirs[source].reshape(target.shape))  # type: ignore[union-attr]
            carried.append(source)
    return tuple(carried)
