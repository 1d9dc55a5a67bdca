"""What a module is: candidates of the catalogue tried on it, until one is verified or none is left."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from normkit.surgery.recognition import calls, candidates, effects, known, memory, specimen
from normkit.surgery.recognition.candidates import Candidate
from normkit.surgery.recognition.constants import LIKELY, NEAR, choose_rounding, find_constants, momentum
from normkit.surgery.recognition.halves import Half
from normkit.surgery.recognition.inputs import Shape, draw, shapes
from normkit.surgery.recognition.match import Match, again, own_arguments
from normkit.surgery.recognition.own import by_class, is_special
from normkit.surgery.recognition.pair import UNIT, Differs, Final, final
from normkit.surgery.recognition.probe import Probe, accepted_shapes
from normkit.surgery.recognition.specimen import Specimen, carry, quiet, ungrouped
from normkit.surgery.recognition.verify import perturb, verify
from normkit.threads import processor_by_default, threads

SMALL_MOVE = 1e-10  # that no float32 holds
CONSTANT = 2.0**-28  # units of what is exact but for constants that were rounded to float32
SQUARED = 1e6  # how large a gain may be whose product with an input is squared, in float32 by some
MACHINE = torch.finfo(torch.float64).eps
FOREIGN = ".*does not match num_features"  # torch's InstanceNorm warns of a size that it was not made for, and goes on
TAKES_NONE = "it takes no input of the shapes that were tried"
ANY = ((16,), (64,))  # widths to be tried where a module tells none
BESIDES = ((5,), (12,))  # and then at which it must be the same


class Nearest(NamedTuple):
    """How far off the candidate is that came nearest, and what differs there."""

    far: float
    why: str


def examine(module: nn.Module, size: tuple[int, ...] | None = None, prove: bool = False) -> Match:
    """Return what a module is, or why it is nothing that the catalogue has; ``prove`` probes what was probed before.

    size: the shape of an input that the module is given in its model.
    """
    match = _probed(module, size, prove)
    return match or (None if is_special(module) else by_class(module)) or match


def _probed(module: nn.Module, size: tuple[int, ...] | None, prove: bool) -> Match:
    kind, why_not = specimen.kind(module), specimen.refusal(module)
    if why_not is not None:
        return Match(kind, why_not=why_not)
    try:
        here = specimen.on_processor(module)
    except Exception as error:
        return Match(kind, why_not=f"it cannot be copied: {error}")
    key = memory.key(here, size)
    match = None if prove or key is None else _recall(kind, key)
    if match is not None:
        return again(match, module)
    try:
        with _disable_current_modes(), quiet(), ungrouped(), threads(1), processor_by_default(), effects.undone(module):
            warnings.filterwarnings("error", message=FOREIGN)
            if other := effects.differs_as_copy(module, Specimen(here, torch.float64, drawn=False).module):
                raise Differs(f"a copy is not the same: {other}")
            match = _explained_with(here, size or ())
    except Differs as difference:
        match = Match(kind, why_not=str(difference))
    except Exception as error:  # what the user's module raises while it is probed, and may not raise again
        message = next(iter(str(error).splitlines()), "")
        return Match(kind, why_not=f"it raises {type(error).__name__}: {message}")
    if key is not None and not _rests_on_threads(match):
        memory.remember(key, match)
    return match if here is module else again(match, module)


def _rests_on_threads(match: Match) -> bool:
    """Whether it was another thread that may have drawn random numbers."""
    return any(calls.ANOTHER in words for words in (*match.evidence, match.why_not or ""))


def _recall(kind: str, key: memory.Key) -> Match | None:
    """The verdict on a class that was proven before, or on a module like this; None where there is neither."""
    proven = known.claim(key.source, key.config) if key.usual else None
    return memory.recall(key, Match) if proven is None else Match(kind, **proven, how="known")


def behind(module: nn.Module) -> list[str]:
    """A module's own layers without parameters, which may act on what was normalized."""
    children = dict(module.named_children())
    bare = all(not specimen.tensors(child) and not isinstance(child, nn.Dropout) for child in children.values())
    return [name for name, child in children.items() if not isinstance(child, nn.Identity)] if bare else []


def without(module: nn.Module, layers: Sequence[str]) -> nn.Module:
    """A copy of a module that leaves out some of its layers."""
    bare = copy.deepcopy(module)
    for name in layers:
        setattr(bare, name, nn.Identity())
    return bare


def _explained_with(module: nn.Module, size: tuple[int, ...]) -> Match:
    """Explain a module, first as a norm with layers behind it, where it has such."""
    if layers := behind(module):
        try:
            if match := _explain(module, size, layers):
                return match
        except Final:
            raise
        except Exception:  # it may not go without them
            pass
    return _explain(module, size)


def _explain(module: nn.Module, size: tuple[int, ...], behind: Sequence[str] = ()) -> Match:
    if (row := max(map(_in_one_row, specimen.tensors(module).values()), default=0)) > specimen.WIDEST:
        return Match(type(module).__name__, why_not=f"it holds {row} numbers in one row, more than a norm has")
    bare = without(module, behind) if behind else module
    if not specimen.further(module)[0] and _is_linear(bare):
        return Match(type(module).__name__, why_not="it is a linear layer")
    nearest = Nearest(math.inf, TAKES_NONE)
    own = list(dict.fromkeys([*((width,) for width in (*size[-1:], *size[1:2])), *specimen.extents(module)]))
    for extent in [*own, *ANY]:
        known = extent in own
        for further, valid_shapes in _calls(module, bare, extent):
            answer = _try_all(Probe(bare, valid_shapes, further, module, behind, open_=not known))
            if isinstance(answer, Match):
                if not size or _holds_at(size, answer, module, further):
                    return replace(answer, sized=known)
                answer = Nearest(math.inf, f"{answer.name} differs: of an input of shape {size}")
            nearest = min(answer, nearest, key=lambda one: one.far)
        if known and nearest.far < math.inf and specimen.tensors(module):
            break
    why = nearest.why + (_raised(bare, (*own, *ANY)[0]) if nearest.why == TAKES_NONE else "")
    return Match(type(module).__name__, why_not=why)


@torch.no_grad()
def _raised(module: nn.Module, extent: tuple[int, ...]) -> str:
    """What a module raises of rows of the width that it most likely has, as where its kernel needs a GPU."""
    inputs = [draw(Shape((3, *extent), True, extent)).float() for _ in range(1 + specimen.further(module)[0])]
    try:
        Specimen(module, torch.float32).train(False).module(*inputs)
    except Exception as error:
        return "; rows raise " + next(iter(f"{type(error).__name__}: {error}".splitlines()))
    return ""


@torch.no_grad()
def _holds_at(size: tuple[int, ...], match: Any, module: nn.Module, further: int) -> bool:
    """Whether a match agrees on an input of the shape that the module is given: which axis is its width shows there."""
    g = torch.Generator().manual_seed(0)
    inputs = [torch.randn(size, generator=g, dtype=torch.float32, device="cpu") for _ in range(1 + further)]
    try:
        theirs, ours = (
            Specimen(part, torch.float32, drawn=False).train(False)(*inputs) for part in (module, match.module)
        )
    except Exception:
        return False
    return theirs.shape == ours.shape and torch.allclose(theirs, ours, rtol=1e-2, atol=1e-2)


def _calls(module: nn.Module, bare: nn.Module, extent: tuple[int, ...]) -> Iterator[tuple[int, list[Shape]]]:
    """With how many further arguments a module is called, and the shapes that it takes with the vector on one side."""
    needed, possible = specimen.further(module)
    for further in range(needed, min(possible, 1) + 1) if needed else (1, 0) if possible else (0,):
        all_taken = accepted_shapes(bare, shapes(extent), further)
        for last, apart in ((True, False), (False, False), (True, True)):
            valid_shapes = [shape for shape in all_taken if (shape.last, shape.apart) == (last, apart)]
            if _whole(valid_shapes, all_taken):
                yield further, valid_shapes


def _in_one_row(tensor: torch.Tensor) -> int:
    """How many numbers a vector has; 0 for what has several axes."""
    return tensor.numel() if specimen.long_axes(tensor) == 1 else 0


@torch.no_grad()
def _is_linear(module: nn.Module) -> bool:
    """Whether what holds matrices only adds and scales, in training as well, as no norm with matrices does."""
    matrices = [t.shape for t in specimen.tensors(module).values() if specimen.long_axes(t) > 1]
    for width in sorted({width for shape in matrices for width in shape}):
        try:
            theirs = Specimen(module, torch.float64).train(True)
            x, y = (draw(Shape((3, width), True, (width,)), seed=seed) for seed in (1, 2))
            one, other, both = (theirs(z) - theirs(0 * x) for z in (x, y, x - 3 * y))
        except Exception:  # it takes no such vectors, or does not go in this type
            continue
        if (both - (one - 3 * other)).abs().max() <= 1e-9 * one.abs().max():
            return True
    return False


def _whole(some: Sequence[Shape], shapes: Sequence[Shape]) -> bool:
    """Whether shapes with the vector on one side are what a module is for: not matrices alone, where it takes more."""
    return bool(some) and max(len(s.sizes) for s in some) >= min(3, max(len(s.sizes) for s in shapes))


def _try_all(probe: Probe) -> Match | Nearest:
    """The match of the candidate that is verified; else how near the nearest came, and what differs there."""
    nearest = Nearest(math.inf, "no method of the catalogue computes this")
    if probe.idle:
        return nearest._replace(why="it gives what it is given")
    for candidate, far, carried in _screen(probe):
        try:
            return _complete(probe, candidate, carried)
        except Final as difference:
            raise Final(f"{candidate.card.name} differs: {difference}") from None
        except Differs as difference:
            if far < nearest.far:
                nearest = Nearest(far, f"{candidate.card.name} differs: {difference}")
        except ValueError as refusal:  # of a shape that the module takes
            if far < nearest.far:
                nearest = Nearest(far, f"{candidate.card.name} refuses what it takes: {refusal}")
    return nearest


def _screen(probe: Probe) -> Iterator[tuple[Candidate, float, dict[str, str]]]:
    """The candidates that a few inputs do not refute, how far off they are, and which tensors they take."""
    numbers = [v for v in vars(probe.module).values() if type(v) is int]
    shape = probe.shapes[0]
    matrices = all(len(shape.sizes) == 2 for shape in probe.shapes)
    fitting = candidates.candidates(shape, probe.further, numbers, matrices)
    for candidate in sorted(fitting, key=lambda candidate: _needs_space(candidate, probe)):
        if _takes_other_ranks(candidate, probe):
            continue
        bound = LIKELY if candidate.of_card else NEAR
        for far, carried in probe.screen(candidate, bound):
            if not far > bound:
                yield candidate, far, carried


def _complete(probe: Probe, candidate: Candidate, carried: dict[str, str]) -> Match:
    """Solve for the constants, and settle them where they hold; an eps that is float64's own may be each type's."""
    constants = find_constants(probe, candidate, carried)
    arguments = {**candidate.arguments, **constants, **momentum(probe, candidate, carried, constants)}
    eps = candidate.card.signature.parameters.get("eps")
    if (
        eps is not None
        and "None" in str(eps.annotation)
        and math.isclose(constants.get("eps", 0.0), MACHINE, rel_tol=0.1)
    ):
        try:
            return _verify(probe, candidate, carried, {**arguments, "eps": None})
        except Differs:
            pass
    return _verify(probe, candidate, carried, arguments)


def _verify(probe: Probe, candidate: Candidate, carried: dict[str, str], arguments: dict[str, Any]) -> Match:
    """Verify, and settle the rounding of half precision."""
    benign = probe.far(Candidate(candidate.card, arguments), carried, {}, ("normal",))
    unit = UNIT[torch.float64]
    if benign > 1e-11:
        unit = CONSTANT if _follows(probe, Candidate(candidate.card, arguments), carried) else UNIT[torch.float32]
    valid_shapes = _of_several(candidate, probe.shapes)
    explained, names = probe.explanation(Candidate(candidate.card, arguments), carried)
    spread = _spread(probe, arguments, carried)
    verdict = verify(probe.whole, explained, names, valid_shapes, probe.further, unit, spread=spread)
    if probe.behind:
        verify(probe.module, candidate.build(**arguments), carried, valid_shapes, probe.further, unit)
    needed, possible = specimen.further(probe.whole)
    with final():
        for fewer in range(needed, probe.further):
            if accepted_shapes(probe.whole, valid_shapes, fewer):
                verify(probe.whole, explained, names, valid_shapes, fewer, unit, spread=spread)
        _other_widths(probe, candidate, arguments, carried, unit)
        arguments, halves = choose_rounding(probe, candidate, arguments, carried)
    match = Match(
        type(probe.whole).__name__,
        candidate.card.name,
        own_arguments(candidate.card, arguments, candidate.constants),
        error={**verdict.error, **{str(h.dtype)[6:]: h.units * UNIT[h.dtype] for h in halves}},
        evidence=[*verdict.evidence, *_besides(possible - probe.further, halves)],
        carried=carried,
        behind=list(probe.behind),
    )
    return again(match, probe.whole)


def _besides(left: int, halves: Sequence[Half]) -> Iterator[str]:
    """What was not tried, and what was in half precision."""
    if left > 0:
        yield f"what it takes besides was left out: {left} of its arguments"
    for h in halves:
        bits = f"{h.other:.1%} of the results have other bits; theirs are at most {h.units:.1f} units off"
        yield f"{str(h.dtype)[6:]}: {bits}"


def _follows(probe: Probe, candidate: Candidate, carried: Mapping[str, str]) -> bool:
    """Whether nothing in a module is rounded to float32: its results follow moves that are smaller than such a step."""
    if probe.exact is torch.float32:
        return False
    mode = probe.modes[0]
    inputs, before = probe.answers[mode]["normal"]
    moved = perturb(inputs, SMALL_MOVE, seed=0)
    theirs = Specimen(probe.module, probe.exact, seed=1).train(mode)
    ours = Specimen.of(candidate.build()).train(mode)
    carry(ours.tensors, theirs.tensors, carried)
    with torch.no_grad():
        went, should = theirs(*moved) - before, ours(*moved) - ours(*inputs)
    axes = probe.shapes[0].axes
    apart = (went - should).abs().amax(axes) / should.abs().amax(axes).clamp(min=1e-300)
    return float(apart.median()) < 0.01


def _spread(probe: Probe, arguments: Mapping[str, Any], carried: Mapping[str, str]) -> float | None:
    """How large parameters are tried: less where they are squared, or where a share of the mean drowns the numbers."""
    less = arguments.get("gain_first") or "mean_scale" in carried
    return None if probe.behind else SQUARED if less else specimen.SPREAD


def _other_widths(
    probe: Probe, candidate: Candidate, arguments: Mapping[str, Any], carried: Mapping[str, str], unit: float
) -> None:
    """Where nothing tells a module's width, the same of other widths must explain it, if there is such."""
    width = candidate.card.width
    if width is None or not probe.open:
        return
    for extent in BESIDES:
        valid_shapes = [
            shape
            for shape in accepted_shapes(probe.whole, shapes(extent), probe.further)
            if shape.last == probe.shapes[0].last
        ]
        try:
            norm, names = probe.explanation(Candidate(candidate.card, {**arguments, width.name: extent[0]}), carried)
        except (ValueError, TypeError):  # its groups do not divide it
            continue
        if valid_shapes:
            verify(
                probe.whole,
                norm,
                names,
                valid_shapes[:2],
                probe.further,
                unit,
                spread=_spread(probe, arguments, carried),
            )


def _takes_other_ranks(candidate: Candidate, probe: Probe) -> bool:
    """Whether a module takes inputs of other ranks than a method of so many axes of space does.

    torch's instance norms know their rank, by which they tell one sample alone from a batch.
    """
    space, alone = candidate.arguments.get("space"), getattr(probe.whole, "_get_no_batch_dim", None)
    if alone is not None and "space" in candidate.arguments:
        return space != alone() - 1
    return space is not None and any(len(shape.sizes) - space not in (1, 2) for shape in probe.shapes)


def _needs_space(candidate: Candidate, probe: Probe) -> bool:
    """Whether a method takes no inputs without space, and a module does, which another method may explain as well.

    So are torch's groups of one channel, which an instance norm computes where there is space.
    """
    return "+" in candidate.card.shape.axes and any(s.axes == (1,) and len(s.sizes) == 2 for s in probe.shapes)


def _of_several(candidate: Candidate, shapes: Sequence[Shape]) -> Sequence[Shape]:
    """Leave matrices out where groups have two entries of a row: normalized, those are 1 and -1, and mere rounding."""
    groups = candidate.arguments.get("num_groups")
    spaces = [shape for shape in shapes if len(shape.sizes) > 2]
    return spaces if spaces and groups and 2 * groups >= math.prod(shapes[0].extent) else shapes
