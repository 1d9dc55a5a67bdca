"""What is raced: a method at a size, in a type, in a memory layout, forward or in training."""

from __future__ import annotations

import copy
import re
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from normkit import reference
from normkit.bench import cost, timing
from normkit.bench.timing import Entrant
from normkit.catalog import Card
from normkit.layout import Fit
from normkit.ops import paths

TOKENS = ((256, 768), (4096, 768))
IMAGES = ((32, 64, 56, 56),)
MAPS = ((32, 64, 64, 64),)  # spectrograms, neighbourhoods of points
LISTS = ((65536,),)
OWN = {  # sizes of methods whose step at the usual ones takes a minute or more, or more memory than a laptop has
    "fedlog-classifier": (256, 64),
    "gyrobn": (256, 64),
    "h-calibration": (256, 64),
    "hyperbolic-contrastive": (256, 64),
    "memo": (3, 32, 32),
    "poincare-conv2d": (4, 8, 14, 14),
    "radius-scaling": (256, 768),
    "smooth-mixture": (256, 64),
}
VOCAB = 50257  # GPT-2's
PASSES = ("forward", "training")
ADDED = ("add_norm", "add, norm")  # raced with each other alone, undisturbed by what others allocate
WEIGHED = ("normkit", "torch", "layer_norm", "eager")  # whose memory is measured too
DTYPES = {
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16),
    "float64": (torch.float64, torch.float64),
    "mixed": (torch.bfloat16, torch.float32),  # half input, float32 parameters: the state of mixed-precision training
}


@dataclass(frozen=True)
class Case:
    """One race. ``dtype`` names types of input and parameters, ``strides`` the memory layout of the input."""

    card: Card
    size: tuple[int, ...]
    dtype: str
    strides: str
    which: str

    def __str__(self) -> str:
        """Name the race as the progress line does."""
        return " ".join([self.card.name, "x".join(map(str, self.size)), self.dtype, self.strides, self.which])

    @property
    def fitted(self) -> Fit:
        """The sizes that draw the input."""
        fit = self.card.shape.fit(self.size)
        if fit is None:
            raise ValueError(f"{self.card.name} takes ({self.card.shape}), which no input of size {self.size} is")
        return fit


def sizes(text: str) -> list[tuple[int, ...]]:
    """Read ``256x768,32x64x56x56``."""
    for word in text.split(","):
        if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", word):
            raise ValueError(f"--sizes: {word!r} is no size such as 256x768 or 32x64x56x56")
    return [tuple(map(int, word.split("x"))) for word in text.split(",")]


def dtypes(text: str) -> list[str]:
    """Read ``float32,mixed``."""
    for word in text.split(","):
        if word not in DTYPES:
            raise ValueError(f"--dtypes: {word!r} is none of {', '.join(DTYPES)}")
    return text.split(",")


def cases(
    cards: Sequence[Card], sizes: Sequence[tuple[int, ...]] | None, types: Sequence[str], passes: Sequence[str]
) -> list[Case]:
    """Return every race of the cards; a size that a card's layout cannot have is passed over."""
    return [
        Case(card, size, dtype, strides, which)
        for card in cards
        for size in (sizes or default_sizes(card))
        if card.shape.fit(size) is not None
        for dtype in types
        for strides in (("contiguous", "channels-last") if is_image(card, size) else ("contiguous",))
        for which in passes
    ]


def one_size(races: Sequence[Case]) -> list[Case]:
    """Return the races of each method's last size, in the contiguous layout."""
    last = {case.card.name: case.size for case in races}
    return [case for case in races if case.size == last[case.card.name] and case.strides == "contiguous"]


def default_sizes(card: Card) -> tuple[tuple[int, ...], ...]:
    """Return a method's own, or the first that fits of images, where space follows the channels, tokens and so on."""
    if card.name in OWN:
        return (OWN[card.name],)
    order = (IMAGES, TOKENS, LISTS) if card.shape.axes[-1] in ("*", "+", "W") else (TOKENS, MAPS, LISTS)
    fixed = [tuple(map(card.shape.with_fixed, sizes)) for sizes in order]
    return next((sizes for sizes in fixed if card.shape.fit(sizes[0]) is not None), ())


def is_image(card: Card, size: tuple[int, ...]) -> bool:
    """Whether the input has a channels-last memory layout beside the contiguous one."""
    return len(size) == 4 and card.shape.image


@dataclass(frozen=True)
class Bout:
    """A case made real: the module, its inputs, and the gradient that is sent back."""

    module: nn.Module
    inputs: list[Tensor]
    sent: list[Tensor]
    case: Case


def make(case: Case) -> Bout:
    """Build the module and draw the inputs."""
    dtype, kept = DTYPES[case.dtype]
    fitted = case.fitted
    features = fitted.named.get("C", 8)
    torch.manual_seed(0)
    module = case.card.small(features).to(kept).train(case.which == "training")
    inputs = case.card.draw(features, fitted.named.get("N", case.size[0]), dtype=dtype, **fitted._asdict())
    if case.strides == "channels-last":
        inputs = [i.contiguous(memory_format=torch.channels_last) if i.dim() == 4 else i for i in inputs]
    inputs = [i.requires_grad_(case.which == "training" and i.is_floating_point()) for i in inputs]
    sent = [torch.randn_like(o) for o in _outputs(module(*inputs))]
    return Bout(module, inputs, sent, case)


def _outputs(returned: Any) -> list[Tensor]:
    return [o for o in (returned if isinstance(returned, tuple | list) else (returned,)) if isinstance(o, Tensor)]


def caller(bout: Bout, module: nn.Module | Callable[..., Any]) -> Callable[[], object]:
    """Return the call to time: forward, or forward and all gradients."""
    inputs = bout.inputs
    if bout.case.which == "forward":
        return lambda: module(*inputs)
    learned = [p for p in module.parameters() if p.requires_grad] if isinstance(module, nn.Module) else []
    variables = [i for i in inputs if i.requires_grad] + learned

    def train() -> object:
        pairs = [(o, s) for o, s in zip(_outputs(module(*inputs)), bout.sent, strict=True) if o.requires_grad]
        return torch.autograd.grad([o for o, _ in pairs], variables, [s for _, s in pairs], allow_unused=True)

    return train


def entrants(bout: Bout, compile: bool) -> tuple[dict[str, Entrant], dict[str, str]]:
    """Return who races, and why the others do not."""
    racers, absent = {"normkit": Entrant(caller(bout, bout.module))}, {}
    racers["eager"] = Entrant(caller(bout, copy.deepcopy(bout.module)), paths.formula_only)
    for name, build in BUILDERS.items():
        if name == "compiled" and not compile:
            continue
        try:
            call = build(bout)
            if call is not None:
                _quietly(call)
                racers[name] = Entrant(call)
        except Exception as error:  # another library's code may fail in any way: then it does not race
            absent[name] = str(error).strip().split("\n")[0] or type(error).__name__
    racers["copy"] = Entrant(plain_copy(bout))
    return racers, absent


def _quietly(call: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call()


def peer(bout: Bout) -> Callable[[], object] | None:
    """Call PyTorch's own module for the same numbers."""
    if bout.case.card.peer is None:
        return None
    from normkit.optional import let_torchvision_load

    let_torchvision_load()  # timm, which some peers are from, imports it
    module = bout.case.card.peer(bout.case.fitted.named.get("C", 8))
    return caller(bout, module.to(DTYPES[bout.case.dtype][1]).train(bout.module.training))


def yardstick(bout: Bout) -> Callable[[], object] | None:
    """Call torch's LayerNorm over the last axis, where it could stand: what a method is weighed against in use."""
    same = [sent.shape for sent in bout.sent] == [bout.inputs[0].shape]
    if not bout.case.card.shape.features_last or len(bout.inputs) > 1 or not same:
        return None
    return caller(bout, nn.LayerNorm(bout.inputs[0].shape[-1]).to(DTYPES[bout.case.dtype][1]))


def compiled(bout: Bout) -> Callable[[], object]:
    """Call the method under torch.compile, which sees the formula."""
    torch._dynamo.reset()
    return caller(bout, torch.compile(copy.deepcopy(bout.module), dynamic=False))


class Added(nn.Module):
    """Add a residual, then normalize: at once where ``fused``, else in two steps. The sum is a result too."""

    def __init__(self, module: nn.Module, fused: bool):
        super().__init__()
        self.module, self.fused = module, fused

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return norm and sum."""
        if self.fused:
            return self.module.add_norm(x, residual)  # type: ignore[operator]
        total = x + residual
        return self.module(total), total


def add(bout: Bout, fused: bool) -> Callable[[], object] | None:
    """Call the method with a residual addition before it, where it has one in the same pass."""
    if not hasattr(bout.module, "add_norm"):
        return None
    residual = torch.randn_like(bout.inputs[0]).requires_grad_(bout.inputs[0].requires_grad)
    both = replace(bout, inputs=[bout.inputs[0], residual], sent=[bout.sent[0], torch.randn_like(residual)])
    return caller(both, Added(bout.module, fused))


BUILDERS: dict[str, Callable[[Bout], Callable[[], object] | None]] = {
    "torch": peer,
    "layer_norm": yardstick,
    "compiled": compiled,
    "add_norm": partial(add, fused=True),
    "add, norm": partial(add, fused=False),
}


def plain_copy(bout: Bout) -> Callable[[], object]:
    """Return a copy of the first input into memory that is there already."""
    x = bout.inputs[0].detach()
    target = torch.empty_like(x).copy_(x)
    return lambda: target.copy_(x)


def path_of(call: Callable[[], object], entries: int) -> str:
    """Call once, and tell the path: the kernel, or why something else ran instead of one.

    entries: of the input; torch's operations on as many are a part of the work that is not the kernel's.
    """
    with paths.watch() as steps:
        call()
    other = next((path for path in steps if path.why is not None), None)
    if other or not steps:
        return str(other) if steps else "formula: the method has no kernel"
    return f"{steps[0]}, in part" if cost.computes(call, entries) else str(steps[0])


def run(case: Case, repeats: int, compile: bool, clock: timing.Clock = time.perf_counter) -> dict[str, Any]:
    """Hold one race, and return all that was measured as plain values."""
    bout = make(case)
    with torch.no_grad() if case.which == "forward" else nullcontext():
        racers, absent = entrants(bout, compile)
        path = path_of(racers["normkit"].call, bout.inputs[0].numel())
        heats = [{name: who for name, who in racers.items() if (name in ADDED) is added} for added in (False, True)]
        times = {name: time for heat in heats if heat for name, time in timing.race(heat, repeats, clock).items()}
        peaks = {name: cost.peak_bytes(racers[name]) for name in WEIGHED if name in racers}
    return {
        "method": case.card.name,
        "folder": reference.folder(case.card),
        "size": "x".join(map(str, case.size)),
        "dtype": case.dtype,
        "strides": case.strides,
        "pass": case.which,
        "path": path,
        "seconds": {name: time.median for name, time in times.items()},
        "rounds": times["normkit"].rounds,
        "quartiles": {name: [time.low, time.high] for name, time in times.items()},
        "copied_bytes": 2 * cost.bytes_of(bout.inputs[:1]),
        "least_bytes": cost.least_bytes(bout.inputs, bout.sent, list(bout.module.parameters()), case.which),
        "peak_bytes": peaks,
        "absent": absent,
    }
