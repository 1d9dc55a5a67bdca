"""Norms found by what they compute: a module probed, explained by a method of the catalogue, and verified."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from normkit import catalog
from normkit.columns import aligned
from normkit.surgery.recognition import candidates, effects, known, memory, solve, specimen
from normkit.surgery.recognition.candidates import Candidate
from normkit.surgery.recognition.halves import HALVES, OTHER_BITS, Half, half, in_half
from normkit.surgery.recognition.inputs import Shape, draw, shapes
from normkit.surgery.recognition.pair import UNIT, Differs, Final, final
from normkit.surgery.recognition.specimen import Specimen, carry, carry_counts, inputs_of, quiet
from normkit.surgery.recognition.verify import verify
from normkit.where import Where, chosen

__all__ = ["Match", "Recognized", "recognize"]

LIKELY = 5e-3  # a candidate whose constants are still unknown may be this far off where they hardly matter
NEAR = 1e-4  # and this far, where the constants are only stabilizers
SURE = 3e-5
LARGE = 1e3
SMALL_MOVE = 1e-10  # that no float32 holds
CONSTANT = 2.0**-28  # units of what is exact but for constants that were rounded to float32
SQUARED = 1e6  # how large a gain may be whose product with an input is squared, in float32 by some
EXACT = (torch.float64, torch.float32)
FOREIGN = ".*does not match num_features"  # torch's InstanceNorm warns of a size that it was not made for, and goes on
MACHINE = torch.finfo(torch.float64).eps
ANY = ((16,), (64,))  # widths to be tried where a module tells none
BESIDES = ((5,), (12,))  # and then at which it must be the same
SMALL = ("normal", "of many sizes", "samples of many sizes", "channels of many sizes")
LAYERS = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd, nn.Embedding, nn.EmbeddingBag, nn.RNNBase, nn.RNNCellBase)
OTHERS = ("activation", "container", "dropout", "pooling", "padding", "linear", "conv", "sparse", "loss", "rnn")


@dataclass
class Match:
    """What a module was found to be.

    ``name`` and ``kwargs`` build it by :func:`normkit.create`; ``module`` is it, with the parameters carried over.
    ``error`` is the largest difference in each type, relative to the largest number of its row; ``evidence`` says what
    was tried. ``carried`` names each of its tensors and the module's that it took; ``behind`` the module's own layers
    that act on what was normalized, such as timm's activations, which ``module`` has as well, behind the norm. Where
    there is no match, ``name`` is None and ``why_not`` speaks of the nearest candidate. ``how`` says where the verdict
    is from: ``probed``, ``remembered`` of a module of the same source and configuration, or ``known``, of a class of
    the same source that was probed at several sizes before this release.
    """

    kind: str
    name: str | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    module: nn.Module | None = None
    error: dict[str, float] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    why_not: str | None = None
    carried: dict[str, str] = field(default_factory=dict)
    behind: list[str] = field(default_factory=list)
    sized: bool = True
    how: str = "probed"

    def __bool__(self) -> bool:
        return self.name is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the module."""
        names = ("kind", "name", "kwargs", "error", "evidence", "why_not", "carried", "behind", "sized", "how")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        if not self:
            return f"{self.kind}: not recognized: {self.why_not}"
        written = ", ".join(f"{k}={v!r}" for k, v in self.kwargs.items())
        return f"{self.kind}: {' + '.join([f'{self.name}({written})', *self.behind])}"


class Recognized(Mapping[str, Match]):
    """The sites of a model by their modules' names: what is recognized, and what looks like a norm and is not."""

    def __init__(self, sites: Mapping[str, Match]):
        self._sites = dict(sites)

    def __getitem__(self, name: str) -> Match:
        return self._sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    @property
    def found(self) -> dict[str, Match]:
        """The sites that are recognized."""
        return {name: match for name, match in self._sites.items() if match}

    @property
    def rest(self) -> dict[str, Match]:
        """The modules that look like norms and are not recognized."""
        return {name: match for name, match in self._sites.items() if not match}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {name: match.to_dict() for name, match in self._sites.items()}

    def __str__(self) -> str:
        rows = [("site", "class", "what it is", "float32", "half", "how")]
        for name, match in self._sites.items():
            whole = match.error.get("float32", math.nan)
            half = max((match.error[str(h)[6:]] for h in HALVES if str(h)[6:] in match.error), default=math.nan)
            apart = (f"{whole:.0e}", f"{half:.0e}") if match else ("", "")
            rows.append((name, match.kind, str(match).partition(": ")[2], *apart, match.how))
        return "\n".join([*aligned(rows), f"{len(self.found)} recognized, {len(self.rest)} not"])

    __repr__ = __str__


def recognize(module: nn.Module, example: Any = None, *, prove: bool = False) -> Match | Recognized | None:
    """Find norms by what they compute.

    A module of the size of a norm, which holds vectors and no matrices, gives a :class:`Match`, or None if it is no
    norm of the catalogue. A model gives the table of all its sites. Nothing is done to either: copies are probed. What
    was probed before, of the same source and configuration, is not probed again, nor are classes that are known; each
    match says how it was recognized.

    Args:
        module: a module, or a model.
        example: an input of the whole model: a tensor, a tuple of arguments or a dictionary of named ones; it tells the
            widths of norms that have no parameters.
        prove: probe all, whatever was probed before.

    >>> print(recognize(nn.LayerNorm(8, eps=1e-6)))
    LayerNorm: layernorm(dim=8, eps=1e-06)
    >>> recognize(nn.Softmax(-1)) is None
    True
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"recognize: module must be a torch.nn.Module, not {type(module).__name__}")
    return table(module, example, prove) if is_model(module) else examine(module, prove=prove) or None


def table(model: nn.Module, example: Any = None, prove: bool = False) -> Recognized:
    """Return the sites of a model, of whatever size it is."""
    return sized_table(model, {} if example is None else inputs_of(model, example), prove=prove)


def sized_table(
    model: nn.Module, inputs: Mapping[str, tuple[int, ...]], where: Where = None, prove: bool = False
) -> Recognized:
    """Return the sites of a model, where the shapes of its modules' inputs are known; only ``where`` asked for.

    The last axis is the width of norms without vectors alone: an image's is none.
    """
    open_ = [
        name for name, part in model.named_modules() if all(t.numel() < 2 for t in specimen.tensors(part).values())
    ]
    return Recognized(_sites(model, {name: inputs[name][-1] for name in open_ if inputs.get(name)}, where, prove))


def is_model(module: nn.Module) -> bool:
    """Whether a module is made of several layers: it cannot be called, or it holds matrices."""
    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        return True
    tensors = specimen.tensors(module).values()
    wide = any(sum(n > 1 for n in t.shape) > 1 for t in tensors)
    return any(_is_layer(part) for part in module.modules()) or (wide and bool(list(module.children())))


def _is_layer(part: nn.Module) -> bool:
    """Whether a module is one of torch's layers with matrices, which the quantized ones hold packed."""
    return isinstance(part, LAYERS) or hasattr(part, "_packed_params")


def _sites(model: nn.Module, told: Mapping[str, int], where: Where, prove: bool) -> dict[str, Match]:
    verdicts: dict[Any, Match] = {}
    found: dict[str, Match] = {}

    def look(name: str, module: nn.Module) -> None:
        if chosen(where, name, module) and _may_be(module):
            key = (specimen.same_kind(module), told.get(name), specimen.refusal(module))
            match = verdicts[key] = (
                _again(verdicts[key], module) if key in verdicts else examine(module, told.get(name), prove)
            )
            if match:
                found[name] = match
                return
            if _looks_so(module):
                found[name] = match
        for child, part in module.named_children():
            look(f"{name}.{child}" if name else child, part)

    look("", model)
    return found


def _again(match: Match, module: nn.Module) -> Match:
    """The same verdict for another module of the same kind, with its own numbers."""
    if match.name is None:
        return match
    return dataclasses.replace(match, module=_carried(match, module))


def _may_be(module: nn.Module) -> bool:
    """Whether it is worth a look: something with a forward of its own that holds vectors at most."""
    home = type(module).__module__
    if home.startswith("torch.nn.modules.") and home.rpartition(".")[2] in OTHERS:
        return False
    if is_model(module) or inspect.getattr_static(type(module), "forward") is nn.Module.forward:
        return False
    needed, _ = specimen.further(module)
    return needed == 0 or (needed == 1 and any(True for _ in module.parameters()))


def _looks_so(module: nn.Module) -> bool:
    """Whether somebody would call it a norm: to say why it was not recognized."""
    return "norm" in type(module).__name__.lower() and not any(
        "norm" in type(c).__name__.lower() for c in module.children()
    )


def examine(module: nn.Module, width: int | None = None, prove: bool = False) -> Match:
    """Return what a module is, or why it is nothing that the catalogue has; ``prove`` probes what was probed before."""
    why_not = specimen.refusal(module)
    if why_not is not None:
        return Match(type(module).__name__, why_not=why_not)
    key = memory.key(module, width)
    match = None if prove or key is None else _recalled(type(module).__name__, key)
    if match is not None:
        return _again(match, module)
    match = Match(type(module).__name__)
    try:
        with quiet(), effects.undone(module):
            if other := effects.differs_as_copy(module, Specimen(module, torch.float64, drawn=False).module):
                raise Differs(f"a copy is not the same: {other}")
            match = _explained_with(module, match, width)
    except Differs as difference:
        match.why_not = str(difference)
    except Exception as error:  # what somebody's module raises while it is probed, and may not raise again
        match.why_not = f"it raises {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        return match
    if key is not None:
        memory.remember(key, match)
    return match


def _recalled(kind: str, key: memory.Key) -> Match | None:
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


def _explained_with(module: nn.Module, match: Match, width: int | None) -> Match:
    """Explain a module, first as a norm with layers behind it, where it has such."""
    if layers := behind(module):
        try:
            if _explained(module, match, width, layers):
                return match
        except Final:
            raise
        except Exception:
            match.why_not = None  # it may not go without them
    return _explained(module, match, width)


def _explained(module: nn.Module, match: Match, width: int | None, behind: Sequence[str] = ()) -> Match:
    bare = without(module, behind) if behind else module
    nearest = (math.inf, "it takes no input of the shapes that were tried")
    needed, possible = specimen.further(module)
    own = [(width,)] if width else specimen.extents(module)
    if not needed and _is_linear(bare):
        match.why_not = "it is a linear layer"
        return match
    for extent in [*own, *ANY]:
        for further in range(needed, min(possible, 1) + 1) if needed else (1, 0) if possible else (0,):
            taken = _taken(bare, shapes(extent), further)
            for last in (True, False):
                there = [shape for shape in taken if shape.last == last]
                if not _whole(there, taken):
                    continue
                probe = _Probe(bare, there, further, module, behind, open_=extent not in own)
                far, why = _try_all(probe, match)
                if match:
                    match.sized = extent in own
                    return match
                if far <= nearest[0]:
                    nearest = far, why
        if extent in own and nearest[0] < math.inf and specimen.tensors(module):
            break
    match.why_not = nearest[1]
    return match


@torch.no_grad()
def _is_linear(module: nn.Module) -> bool:
    """Whether what holds matrices only adds and scales, in training as well, as no norm with matrices does."""
    matrices = [t.shape for t in specimen.tensors(module).values() if sum(n > 1 for n in t.shape) > 1]
    for width in sorted({width for shape in matrices for width in shape}):
        try:
            theirs = Specimen(module, torch.float64).train(True)
            x, y = (draw(Shape((3, width), True, (width,)), seed=seed) for seed in (1, 2))
            one, other, both = (theirs(given) - theirs(0 * x) for given in (x, y, x - 3 * y))
        except Exception:  # it takes no such vectors, or does not go in this type
            continue
        if torch.allclose(both, one - 3 * other, rtol=1e-9, atol=1e-9 * one.abs().max().item()):
            return True
    return False


def _whole(there: Sequence[Shape], taken: Sequence[Shape]) -> bool:
    """Whether shapes with the vector on one side are what a module is for: not matrices alone, where it takes more."""
    return bool(there) and max(len(s.sizes) for s in there) >= min(3, max(len(s.sizes) for s in taken))


def _taken(module: nn.Module, tried: Sequence[Shape], further: int) -> list[Shape]:
    """The shapes that a module takes and keeps: in both modes, or where there is none such, in either."""
    modes = [
        [shape for shape in tried if any(_call(module, shape, further, dtype, mode) for dtype in EXACT)]
        for mode in (False, True)
    ]
    return [shape for shape in modes[0] if shape in modes[1]] or modes[0] or modes[1]


def _call(module: nn.Module, shape: Shape, further: int, dtype: torch.dtype, mode: bool) -> bool:
    inputs = [draw(shape, seed=i).to(dtype) for i in range(1 + further)]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=FOREIGN)
            return Specimen(module, dtype).train(mode)(*inputs).shape == inputs[0].shape
    except Exception:
        return False


def _try_all(probe: _Probe, match: Match) -> tuple[float, str]:
    """Fill the match if a candidate is verified; else return how near the nearest came, and what differs there."""
    nearest, why = math.inf, "no method of the catalogue computes this"
    if probe.idle:
        return nearest, "it gives what it is given"
    numbers = [v for v in vars(probe.module).values() if type(v) is int]
    shape = probe.there[0]
    matrices = all(len(shape.sizes) == 2 for shape in probe.there)
    for candidate in candidates.candidates(shape.extent, shape.last, probe.further, numbers, matrices):
        for far, carried in probe.screened(candidate):
            if far > (LIKELY if candidate.told else NEAR):
                continue
            try:
                if _complete(match, probe, candidate, carried):
                    return 0.0, ""
            except Final as difference:
                raise Final(f"{candidate.card.name} differs: {difference}") from None
            except Differs as difference:
                if far < nearest:
                    nearest, why = far, f"{candidate.card.name} differs: {difference}"
    return nearest, why


class Followed(nn.Module):
    """A norm, and the layers of somebody's module that act on what it gives."""

    def __init__(self, norm: nn.Module, layers: Sequence[nn.Module]):
        super().__init__()
        self.norm, self.layers = norm, nn.ModuleList(layers)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        """Normalize, then go on."""
        y = self.norm(x, *others)
        for layer in self.layers:
            y = layer(y)
        return y


class _Probe:
    """What a module makes of a few inputs, to be compared with what candidates make of them.

    ``module`` is without the layers ``behind`` that the ``whole`` has; ``open_`` where nothing tells its width.
    """

    def __init__(
        self,
        module: nn.Module,
        there: Sequence[Shape],
        further: int,
        whole: nn.Module,
        behind: Sequence[str] = (),
        open_: bool = False,
    ):
        self.module, self.there, self.further = module, there, further
        self.whole, self.behind, self.open = whole, behind, open_
        self.exact = (
            torch.float64 if _call(module, there[0], further, torch.float64, module.training) else torch.float32
        )
        self.theirs, self.large = Specimen(module, self.exact, seed=1), self._large()
        self.answers = {mode: self._answers(mode) for mode in (False, True)}
        self.modes = [mode for mode, made in self.answers.items() if "normal" in made]

    @property
    def idle(self) -> bool:
        """Whether it changes nothing, as some methods do not either without gain and activation."""
        answers = [self.answers[mode]["normal"] for mode in self.modes]
        return all(torch.equal(inputs[0].to(self.exact).double(), given) for inputs, given in answers)

    def _large(self) -> Specimen:
        """The same with buffers beside which no eps counts: they may be variances."""
        made = Specimen(self.module, self.exact, seed=1)
        with torch.no_grad():
            for tensor in made.tensors.values():
                if not isinstance(tensor, nn.Parameter):
                    tensor.mul_(LARGE**2)
        return made

    def _answers(self, mode: bool) -> dict[str, tuple[list[Tensor], Tensor]]:
        made: dict[str, tuple[list[Tensor], Tensor]] = {}
        for numbers in ("large", *SMALL):
            theirs = (self._large() if numbers == "large" else Specimen(self.module, self.exact, seed=1)).train(mode)
            for shape in self.there:
                inputs = [
                    draw(shape, "normal" if numbers == "large" else numbers, seed=i) for i in range(1 + self.further)
                ]
                if numbers == "large":
                    inputs[0] = inputs[0] * LARGE
                try:
                    with torch.no_grad():
                        made[numbers] = inputs, theirs(*[t.to(self.exact) for t in inputs]).double()
                except Exception:
                    continue
                break
        return made

    def screened(self, candidate: Candidate) -> Iterator[tuple[float, dict[str, str]]]:
        """How far a candidate is off, for each way of carrying the tensors over; constants that are unknown aside."""
        try:
            made = Specimen(candidate.build(), torch.float64, drawn=False)
        except (ValueError, TypeError):
            return
        numbers = "large" if candidate.constants else "normal"
        for carried in candidates.carryings(made.tensors, self.theirs.tensors):
            yield self.far(candidate, carried, {}, (numbers,)), carried

    def explanation(self, candidate: Candidate, carried: Mapping[str, str]) -> tuple[nn.Module, dict[str, str]]:
        """A candidate with the layers that the whole module has behind it, and the names of its tensors there."""
        made = candidate.build()
        if not self.behind:
            return made, dict(carried)
        layers = [copy.deepcopy(self.whole.get_submodule(name)) for name in self.behind]
        return Followed(made, layers), {f"norm.{ours}": theirs for ours, theirs in carried.items()}

    def far(
        self, candidate: Candidate, carried: Mapping[str, str], more: Mapping[str, Any], kinds: Sequence[str]
    ) -> float:
        """The largest difference, relative to the largest number of its row, over some kinds of numbers."""
        worst = 0.0
        for mode in self.modes:
            for numbers in kinds:
                ours = Specimen(candidate.build(**more), torch.float64, drawn=False).train(mode)
                carry(ours.tensors, (self.large if numbers == "large" else self.theirs).tensors, carried)
                if numbers not in self.answers[mode]:
                    continue
                inputs, want = self.answers[mode][numbers]
                try:
                    with torch.no_grad():
                        got = ours(*inputs)
                except (ValueError, TypeError, RuntimeError, IndexError):
                    return math.inf
                worst = max(worst, _far(got, want, self.there[0].axes))
        return worst


def _far(got: Tensor, want: Tensor, axes: tuple[int, ...]) -> float:
    if got.shape != want.shape:
        return math.inf
    most = want.abs().amax(axes, keepdim=True).clamp(min=1e-300)
    apart = float(((got - want).abs() / most).max())
    return apart if math.isfinite(apart) else math.inf


def _complete(match: Match, probe: _Probe, candidate: Candidate, carried: dict[str, str]) -> bool:
    """Solve for the constants, and settle them where they hold; an eps that is float64's own may be each type's."""
    solved = _solved(probe, candidate, carried)
    arguments = {**candidate.arguments, **solved, **_momentum(probe, candidate, carried, solved)}
    eps = candidate.card.signature.parameters.get("eps")
    if eps is not None and "None" in str(eps.annotation) and math.isclose(solved.get("eps", 0.0), MACHINE, rel_tol=0.1):
        try:
            return _verify_and_round(match, probe, candidate, carried, {**arguments, "eps": None})
        except Differs:
            pass
    return _verify_and_round(match, probe, candidate, carried, arguments)


def _verify_and_round(
    match: Match, probe: _Probe, candidate: Candidate, carried: dict[str, str], arguments: dict[str, Any]
) -> bool:
    """Verify, and settle the rounding of half precision."""
    benign = probe.far(Candidate(candidate.card, arguments), carried, {}, ("normal",))
    unit = UNIT[torch.float64]
    if benign > 1e-11:
        unit = CONSTANT if _follows(probe, Candidate(candidate.card, arguments), carried) else UNIT[torch.float32]
    there = _of_several(candidate, probe.there)
    explained, names = probe.explanation(Candidate(candidate.card, arguments), carried)
    verdict = verify(probe.whole, explained, names, there, probe.further, unit, spread=_spread(probe, arguments))
    if probe.behind:
        verify(probe.module, candidate.build(**arguments), carried, there, probe.further, unit)
    needed, possible = specimen.further(probe.whole)
    with final():
        for fewer in range(needed, probe.further):
            if _taken(probe.whole, there, fewer):
                verify(probe.whole, explained, names, there, fewer, unit, spread=_spread(probe, arguments))
        _other_widths(probe, candidate, arguments, carried, unit)
        arguments, halves = _rounded(probe, candidate, arguments, carried)
    if possible > probe.further:
        verdict.evidence.append(f"what it takes besides was left out: {possible - probe.further} of its arguments")
    match.name, match.kwargs = candidate.card.name, _told(candidate, arguments)
    match.carried, match.behind, match.why_not = carried, list(probe.behind), None
    match.module = _carried(match, probe.whole)
    match.error = {**verdict.error, **{str(h.dtype)[6:]: h.units * UNIT[h.dtype] for h in halves}}
    match.evidence = verdict.evidence + [
        f"{str(h.dtype)[6:]}: {h.other:.1%} of the results have other bits; theirs are at most {h.units:.1f} units off"
        for h in halves
    ]
    return True


def _follows(probe: _Probe, candidate: Candidate, carried: Mapping[str, str]) -> bool:
    """Whether nothing in a module is rounded to float32: its results follow moves that are smaller than such a step."""
    if probe.exact is torch.float32:
        return False
    mode = probe.modes[0]
    (x, *others), before = probe.answers[mode]["normal"]
    moved = x * (1 + SMALL_MOVE * (torch.arange(x.numel()).reshape(x.shape) % 2).double())
    theirs = Specimen(probe.module, probe.exact, seed=1).train(mode)
    ours = Specimen(candidate.build(), torch.float64, drawn=False).train(mode)
    carry(ours.tensors, theirs.tensors, carried)
    with torch.no_grad():
        went, should = theirs(moved, *others) - before, ours(moved, *others) - ours(x, *others)
    axes = probe.there[0].axes
    apart = (went - should).abs().amax(axes) / should.abs().amax(axes).clamp(min=1e-300)
    return float(apart.median()) < 0.01


def _spread(probe: _Probe, arguments: Mapping[str, Any]) -> float | None:
    """How large parameters are tried."""
    return None if probe.behind else SQUARED if arguments.get("gain_first") else specimen.SPREAD


def _other_widths(
    probe: _Probe, candidate: Candidate, arguments: Mapping[str, Any], carried: Mapping[str, str], unit: float
) -> None:
    """Where nothing tells a module's width, the same of other widths must explain it, if there is such."""
    width = candidate.card.width
    if width is None or not probe.open:
        return
    for extent in BESIDES:
        there = [
            shape for shape in _taken(probe.whole, shapes(extent), probe.further) if shape.last == probe.there[0].last
        ]
        try:
            made, names = probe.explanation(Candidate(candidate.card, {**arguments, width.name: extent[0]}), carried)
        except (ValueError, TypeError):  # its groups do not divide it
            continue
        if there:
            verify(probe.whole, made, names, there[:2], probe.further, unit, spread=_spread(probe, arguments))


def _of_several(candidate: Candidate, there: Sequence[Shape]) -> Sequence[Shape]:
    """Leave matrices out where groups have two entries of a row: normalized, those are 1 and -1, and mere rounding."""
    groups = candidate.arguments.get("num_groups")
    spaces = [shape for shape in there if len(shape.sizes) > 2]
    return spaces if spaces and groups and 2 * groups >= math.prod(there[0].extent) else there


def _solved(probe: _Probe, candidate: Candidate, carried: Mapping[str, str]) -> dict[str, Any]:
    """The constants, as they would be written; what the module itself holds is tried first."""
    held = [getattr(probe.module, name, None) for name in ("eps", "variance_epsilon", "epsilon", "norm_eps")]
    found: dict[str, Any] = {}

    def far(**more: float) -> float:
        return probe.far(candidate, carried, {**found, **more}, SMALL)

    for name in candidate.constants:
        sure = next((value for value in held if isinstance(value, float) and far(**{name: value}) < SURE), None)
        found[name] = _written(functools.partial(_named, far, name)) if sure is None else sure
    if far() > LIKELY:
        raise Differs("no constants explain what it makes of small numbers")
    return found


def _named(far: Callable[..., float], name: str, value: float) -> float:
    return far(**{name: value})


def _written(far: Callable[[float], float]) -> float:
    at = solve.smallest(far)
    limit = max(2 * far(at), SURE)
    return next(value for value in [*solve.written(at), at] if far(value) <= limit)


def _momentum(
    probe: _Probe, candidate: Candidate, carried: Mapping[str, str], solved: Mapping[str, Any]
) -> dict[str, Any]:
    """The share of the new batch in running estimates, from how far one call moves them."""
    learned = dict(candidate.build().named_parameters())
    kept = [(ours, theirs) for ours, theirs in carried.items() if ours not in learned]
    if "momentum" not in candidate.card.signature.parameters or not kept or True not in probe.modes:
        return {}
    theirs = Specimen(probe.module, probe.exact, seed=1).train(True)
    ours = Specimen(candidate.build(**solved, momentum=1.0), torch.float64, drawn=False).train(True)
    carry(ours.tensors, theirs.tensors, carried)
    before = {name: theirs.tensors[name].double().clone() for _, name in kept}
    inputs, _ = probe.answers[True]["normal"]
    with torch.no_grad():
        theirs(*[t.to(probe.exact) for t in inputs])
        ours(*inputs)
    name, source = kept[0]
    step = theirs.tensors[source].double().reshape(-1) - before[source].reshape(-1)
    whole = ours.tensors[name].reshape(-1) - before[source].reshape(-1)
    share = float((step / whole).median())
    if not 0 <= share <= 1:
        raise Differs(f"{source} moves by {share:.3g} of a batch")
    averages = getattr(probe.module, "momentum", 0) is None
    return {"momentum": None if averages else next(solve.written(share))}


def _rounded(
    probe: _Probe, candidate: Candidate, arguments: dict[str, Any], carried: Mapping[str, str]
) -> tuple[dict[str, Any], list[Half]]:
    """Where the method can round half precision in several ways, the one that gives their bits."""
    casts = candidate.card.dialects.get("cast", ())
    ways = [{**arguments, "cast": cast} for cast in casts] or [arguments]
    tried = []
    for way in ways:
        explained, names = probe.explanation(Candidate(candidate.card, way), carried)
        tries = (half(probe.whole, explained, names, probe.there[0], probe.further, dtype) for dtype in HALVES)
        halves = [found for found in tries if found is not None]
        tried.append((sum(h.other for h in halves), way, halves))
    _, way, halves = min(tried, key=lambda one: one[0])
    for h in halves:
        if h.other > OTHER_BITS and not h.rounded:
            raise Differs(f"in {str(h.dtype)[6:]} it is {h.units:.3g} units off what it is in float64")
        in_half(probe.module, Candidate(candidate.card, way).build(), carried, probe.there[0], probe.further, h)
    other = max(probe.there, key=lambda shape: len(shape.sizes))
    exact = [h for h in halves if h.other <= OTHER_BITS and other is not probe.there[0]]
    for h in exact:  # one that rounds at every step loses as much as its numbers make it lose
        explained, names = probe.explanation(Candidate(candidate.card, way), carried)
        again = half(probe.whole, explained, names, other, probe.further, h.dtype)
        if again is not None and again.other > h.other + OTHER_BITS:
            raise Differs(f"in {str(h.dtype)[6:]} it is rounded otherwise at shape {other.sizes}")
    return way, halves


def _told(candidate: Candidate, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not as they would be by default."""
    takes = candidate.card.signature.parameters
    width = candidate.card.width
    return {
        name: value
        for name, value in arguments.items()
        if (width is not None and name == width.name) or name in candidate.constants or takes[name].default != value
    }


def _carried(match: Match, module: nn.Module) -> nn.Module:
    """Build what a module was found to be, with its numbers, its type, its place and its mode."""
    theirs = specimen.tensors(module)
    made = catalog.find(match.name).create(**match.kwargs)  # type: ignore[arg-type]
    own = next(iter(theirs.values()), None)
    if own is not None:
        made = made.to(device=own.device, dtype=own.dtype)
    ours = specimen.tensors(made)
    carry(ours, theirs, match.carried)
    carry_counts(made, module)
    for name, source in match.carried.items():
        ours[name].requires_grad_(theirs[source].requires_grad)
    layers = [module.get_submodule(name) for name in match.behind]
    return (Followed(made, layers) if layers else made).train(module.training)
