"""The same numbers, faster: what a model's norms compute, on the library's kernels."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn

from normkit.norm import Norm
from normkit.parameters import copy_model
from normkit.surgery import proof
from normkit.surgery.edits import Edit, adding, all_places, bits, forms, replace_parts, replay, rewriting, turning
from normkit.surgery.edits.changes import Change, Report, norm_words
from normkit.surgery.edits.layers import joined
from normkit.surgery.edits.renaming import rename
from normkit.surgery.edits.source import Source
from normkit.surgery.exact.racing import SURE, Outcome, race, race_addition, race_models, race_turn, takes
from normkit.surgery.recognition.match import Match
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.recognition.specimen import further, quiet
from normkit.where import Where, require_known, selects

__all__ = ["fuse"]

ROWS = 512


@torch.inference_mode(False)
def fuse(
    model: nn.Module, example: Any = None, *, where: Where = None, inplace: bool = True, training: bool | None = None
) -> Report:
    """Put the library's norms where a model has the same ones, and only where they are faster.

    Each kind of site is timed, the old and the new in turn, at the size that it has with the example. Where the new one
    is not faster by 3 % at least, or that is not sure, the site is left alone and the report says so. Names in
    ``state_dict`` stay, so that checkpoints load and save as before.

    With an example, residual additions go into the norms behind them, and the rotary turns of queries and keys into
    their norms. A block's own source must show them one after the other: its class becomes one derived from it, whose
    forward is the same source with these calls in it. Then outputs are compared in float64 and the whole model is
    timed, before anything is changed: where it is no faster, the same is asked of the norms alone, without additions
    and turns, and where they are no faster either, it is left alone.

    A model that is no faster passes for faster once in twenty times at most, both attempts taken together, and so does
    a site. A race takes some seconds, and seven passes of either at least, eight where there are two attempts; what
    stays undecided for two minutes, or 400 passes, is left alone.

    Args:
        model: any model.
        example: an input of the model: a tensor, a tuple of arguments or a dictionary of named ones. With weights in
            few bits nothing is compared in float64, and there is none.
        where: only sites whose name fits a pattern, or whose class is the one given, or any of a list of such; or those
            for which a function of name and module is true.
        inplace: change the model; else a copy, which is the report's ``model``.
        training: time a forward and a backward pass, not a forward pass alone (as the model's mode is).

    >>> fuse(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
    site  was  became  difference  time
    0 of 0 sites changed
    """
    sizes = proof.sizes_of("fuse", model, example)
    if example is not None:
        bits.require_floats("fuse", model, "; its norms alone need no example")
    require_known("fuse", where, model)
    model = model if inplace else copy_model(model)
    plan = _Plan(model, model.training if training is None else training, sizes)
    with quiet():
        plan.put(where)
        if example is not None:
            plan.rewrite()
            plan.hold_to(example)
    replace_parts("fuse", model, plan.made, inplace)
    replay(model, plan.calls(), same=True)
    return Report(plan.made.get("", model), list(plan.changes.values()))


def _leave(change: Change, why: str) -> Change:
    return replace(change, became=None, carried=(), difference=None, why_not=why)


class _Way(NamedTuple):
    """One way to fuse a model: norms and classes of blocks by name, and the line on each site."""

    made: dict[str, nn.Module]
    classes: dict[str, type[nn.Module]]
    changes: dict[str, Change]


class _Plan:
    """What a fusion puts where: norms that are ``made``, classes of blocks; ``able`` are norms that could be put in."""

    def __init__(self, model: nn.Module, training: bool, sizes: Mapping[str, tuple[int, ...]]):
        self.model, self.training, self.sizes = model, training, sizes
        self.able: dict[str, nn.Module] = {}
        self.made: dict[str, nn.Module] = {}
        self.classes: dict[str, type[nn.Module]] = {}
        self.changes: dict[str, Change] = {}
        self.alone = _Way({}, {}, {})  # the norms, before anything was rewritten
        self._timed: dict[Any, Outcome] = {}

    def put(self, where: Where) -> None:
        """Put the library's norms where the model has the same ones, where they are faster."""
        timed: dict[Any, Outcome] = {}
        for name, match in sized_table(self.model, self.sizes).items():
            old = self.model.get_submodule(name)
            if not selects(where, name, old):
                continue
            was = norm_words(match)
            why, new = _replacement(old, match) if match else (f"not recognized: {match.why_not}", None)
            if new is None:
                self.changes[name] = Change(name, was if match else match.kind, why_not=why)
                continue
            shape = self.sizes.get(name) or _shape(old, match)
            if shape is None:
                self.changes[name] = Change(
                    name, was, why_not="the size of its input is not known; an example tells it"
                )
                continue
            key = (was, *_kind(old), shape, match.error.get("float32"))
            if key not in timed:
                timed[key] = race(old, new, shape, self.training)
            outcome = timed[key]
            self.able[name] = new
            difference = max((match.error[t] for t in ("float64", "float32") if t in match.error), default=None)
            carried = tuple(match.carried.values())
            change = Change(name, was, type(new).__name__, carried, difference, outcome.before, outcome.after)
            if outcome.faster:
                self.made[name], self.changes[name] = new, change
            else:
                self.changes[name] = _leave(change, outcome.why_not("it"))

    def rewrite(self) -> None:
        """Take additions and rotary turns into the norms beside them, where that is faster."""
        self.alone = _Way(dict(self.made), {}, dict(self.changes))
        for name, inner in _blocks(self.model, self.changes).items():
            block: Any = self.model.get_submodule(name)
            if "forward" in vars(block):
                continue
            prefix = f"{name}." if name else ""
            try:
                source = Source(type(block))
            except ValueError:
                continue
            words = [*self._turned(prefix, inner, source), *self._added(prefix, inner, source)]
            if words:
                self.classes[name] = rewriting.derived(type(block), tuple(words))

    def _added(self, prefix: str, inner: Collection[str], source: Source) -> Iterator[rewriting.Word]:
        additions: list[Any] = []
        parts = self.model.get_submodule(prefix.removesuffix(".")).modules()
        in_place = any(getattr(part, "inplace", False) for part in parts)
        for own, total in adding.find_sums(source).items():
            if own not in inner or (total.branched and in_place):  # its class has it, and this one may not
                continue
            new, size = self._new(prefix + own), self.sizes.get(prefix + own)
            if size is None or not hasattr(new, "add_norm") or total.addition in additions:
                continue
            now = self._now(prefix + own)
            race = functools.partial(race_addition, now, new, size, self.training)
            if self._faster([prefix + own], "the addition before it", race):
                additions.append(total.addition)
                yield "add", own

    def _turned(self, prefix: str, inner: Collection[str], source: Source) -> Iterator[rewriting.Word]:
        for pair, turn in turning.find_turns(source).items():
            sites = [prefix + own for own in pair]
            sizes = [self.sizes.get(site, ()) for site in sites]
            if not set(pair) <= set(inner) or any(len(size) != 4 for size in sizes):
                continue
            new = [self._new(site) for site in sites]
            if not all(hasattr(norm, "norm_rotate") for norm in new):
                continue
            now = [self._now(site) for site in sites]
            race = functools.partial(race_turn, turn, now, new, sizes, self.training)
            if self._faster(sites, "the turn behind it", race):
                yield "turn", *pair

    def _now(self, site: str) -> nn.Module:
        """What stands at a site when this begins to rewrite."""
        return self.made.get(site, self.model.get_submodule(site))

    def _new(self, site: str) -> Any:
        """The library's norm of a site, put in already or not."""
        known = self.able.get(site, self.model.get_submodule(site))
        return known if isinstance(known, Norm) else None

    def _faster(self, sites: Sequence[str], what: str, race: Callable[[], Outcome]) -> bool:
        """Note a fusion at some sites, if it is faster there."""
        key = what, *((self.changes[site].was, *_kind(self._now(site)), self.sizes[site]) for site in sites)
        outcome = self._timed[key] if key in self._timed else self._timed.setdefault(key, race())
        if not outcome.faster:
            return False
        for site in sites:
            new = self._new(site)
            self.made |= {site: new} if site in self.able and new is not None else {}
            became = f"{type(new).__name__} with {what}"
            row = replace(self.changes[site], before=outcome.before, after=outcome.after)
            self.changes[site] = replace(row, became=became, why_not=None)
        return True

    def hold_to(self, example: Any) -> None:
        """Compare and time the whole model; where it is no faster or gives other numbers, try the norms alone."""
        ways = [_Way(self.made, self.classes, self.changes), *([self.alone] if self.classes else [])]
        ways = [way for way in ways if way.made or way.classes]
        for way in ways:
            self.made, self.classes, self.changes = way
            why = self._refusal(example, SURE * len(ways))
            if not why:
                return
        if ways:
            self._give_up(why)

    def _refusal(self, example: Any, sure: float) -> str:
        """Why the model is not to be changed in this way; else note how far results are apart."""
        before, after = self._twins()
        try:
            far = proof.prove(before.eval(), after.eval(), example)
            proof.prove_edits(before, after, example)
        except Exception as error:
            return proof.why_not(error)
        outcome = race_models(before, after, example, self.training, sure)
        if not outcome.faster:
            return outcome.why_not("the model as a whole")
        rows = self.changes.items()
        self.changes = {name: replace(row, difference=far) if row.became else row for name, row in rows}
        return ""

    def _twins(self) -> tuple[nn.Module, nn.Module]:
        """A copy of the model, and a changed one that holds the same parameters."""
        before, modules = copy.deepcopy((self.model, self.made))
        held = {id(p): p for p in before.parameters()}
        after = replace_parts("fuse", *copy.deepcopy((before, modules), held), False)
        return before, replay(after, self.calls())

    def calls(self) -> list[Edit]:
        """The edits of blocks whose forward was written anew."""
        return [Edit(name, "calls", forms.call_words(own)) for name, own in self.classes.items()]

    def _give_up(self, why: str) -> None:
        self.made, self.classes = {}, {}
        self.changes = {name: _leave(row, why) if row.became else row for name, row in self.changes.items()}


def _kind(module: nn.Module) -> tuple[Any, ...]:
    """What a module's time depends on, beside its kind and size."""
    return type(module), *((t.dtype, t.device, t.requires_grad) for t in (*module.parameters(), *module.buffers()))


def _blocks(model: nn.Module, rows: Collection[str]) -> dict[str, list[str]]:
    """The modules that hold sites as parts of their own, in one place alone, and what they call them."""
    blocks: dict[str, list[str]] = {}
    held = all_places(model)
    for site in rows:
        name, _, own = site.rpartition(".")
        if site and all(len(held.get(model.get_submodule(one), ())) == 1 for one in (site, name)):
            blocks.setdefault(name, []).append(own)
    return blocks


def _shape(old: nn.Module, match: Match) -> tuple[int, ...] | None:
    """A size to be timed at where no example tells one, the first that the module takes: of an image, if it can be."""
    width = next(value for value in match.kwargs.values() if isinstance(value, int | tuple))
    extent = width if isinstance(width, tuple) else (width,)
    last = match.module is None or not match.module.card.shape.image  # type: ignore[union-attr]
    behind = [()] if last else [(14, 14), (196,), (), (4, 7, 7)]
    sizes = ((8 if space else ROWS, *extent, *space) for space in behind)
    return next((size for size in sizes if takes(old, size)), None)


def _replacement(old: nn.Module, match: Match) -> tuple[str, nn.Module | None]:
    """The same norm of the library, with the old one's names; or why there is none."""
    if not match.sized:
        return "its width is not known; an example tells it", None
    if isinstance(old, Norm):
        return "it is the library's already", None
    if joined(old):
        return "it joins its statistics over processes", None
    if match.behind:
        return f"it has its {match.behind[0]} behind the norm", None
    if further(old)[0]:
        return "it is called with more than one tensor", None
    new = match.module
    if new is None:
        return "it holds no numbers", None
    learned = dict(old.named_parameters())
    for ours, theirs in match.carried.items():
        if old.state_dict()[theirs].shape != new.state_dict()[ours].shape:
            return f"its {theirs} has another shape", None
        if theirs in learned:
            setattr(new, ours, learned[theirs])  # the parameter itself: an optimizer holds it
    others = set(old.state_dict()) - set(match.carried.values()) - set(new.state_dict())
    if others:
        return f"its {sorted(others)[0]} would be lost", None
    if any(ours != theirs for ours, theirs in match.carried.items()):
        rename(new, match.carried)
    return "", new
