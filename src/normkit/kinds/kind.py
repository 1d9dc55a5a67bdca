"""What every kind answers: how its methods are built and called, and which lines of the contract they keep."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from normkit.kinds.arguments import take_forms
from normkit.layout import Layout

if TYPE_CHECKING:
    from normkit.catalog import Card

GOLDENS = {"goldens": "the numbers of its goldens, where it is of another package"}
MODULE_LINES = {
    **GOLDENS,
    "gradcheck": "gradients are the derivative of the forward pass",
    "higher-derivatives": "second and third derivatives are right, torch's attention on its own formula",
    "half": "bfloat16 and float16 stay close to float64, with parameters in half precision or float32",
    "extremes": "zeros, constants, 1e-20, 6e4 and an offset of 1e4 give no NaN",
    "empty": "an empty batch passes through",
    "one": "one sample with one position passes in evaluation",
    "compile": "one torch.compile graph, no recompile on a new batch size",
    "export": "torch.export gives the same numbers and loads, in training too",
    "vmap": "torch.func.vmap and torch.func.grad work",
    "checkpoint": "activation checkpointing changes nothing",
    "gradients": "every parameter receives a gradient",
    "moves": "every buffer moves in training",
    "padding": "what a mask hides changes nothing and gets no gradient",
    "causal": "what is causal gives a token nothing of later ones",
    "rest": "running averages stand still in evaluation",
    "processes": "two processes with unequal batches equal one with the joined batch",
    "onnx": "the evaluated module exports to ONNX with the same numbers",
    "pickle": "the module survives pickle and deepcopy",
    "copies": "used, then pickled into another process or copied without the original, it gives the same bits",
    "threads": "eight threads with changing shapes give the bits of one",
    "offsets": "values far from zero cost no more digits than rounding them does",
    "units": "an input in other units, with eps in those, gives the same; each use of eps is seen by it",
    "meta": "the module can be built on the meta device, and passes there, forward and backward",
    "device": "on a GPU, where one is asked for, it gives the processor's numbers, forward and backward",
}
NORM_LINES = {
    "batches": "without batch statistics a row has the same bits in any batch, at any place in it and on any threads",
}
POINT_LINES = {
    "on-manifold": "points of a manifold stay on it, also at a condition of 1e8 or its edge, and gradients are finite",
    "turned": "points of a manifold that are turned give the result, turned",
    "centered": "the mean of a normalized batch of points is the neutral one",
    "spread": "the variance of a normalized batch of points is the one asked for",
    "equal": "gradients are right where eigenvalues, angles or points are equal",
}
PARAMETRIZATION_LINES = {
    "removed": "removing the parametrization restores a plain layer with the weight that it last had",
    "baked": "what is baked into a layer is what it computed in evaluation, to the last bit",
    "repeated": "in evaluation the same weight comes out every time",
    "reached": "the gradient reaches the raw weight and everything that is learned beside it",
    "drift": "fifty forward passes without a step leave the weight where it was",
}
TRANSFORM_LINES = {
    "inverse": "the inverse of the forward pass is the input",
    "log-det": "the log-determinant is that of the Jacobian",
    "scales": "numbers of 1e-6 and of 1e6 come back from the inverse, up to the rounding of numbers of 1 or of theirs",
}
OPTIMIZER_LINES = {
    **GOLDENS,
    "resume": "a run that is saved and loaded at any step, in any type, goes on to the same bits",
    "older": "a state without maximize and foreach, its steps plain numbers, goes on to the same bits",
    "foreign": "a state of another optimizer is refused when it is loaded",
    "numbers": "parameters that are one number or have no entry step, together and apart",
    "named": "parameters with their names, and a learning rate that is a tensor of one number, change nothing",
    "hooks": "hooks of all optimizers are called once a step",
    "groups": "two groups equal two optimizers",
    "maximize": "maximize mirrors minimize",
    "no-gradient": "a parameter without a gradient stays where it is",
    "kept-type": "parameters keep their type and place",
    "kept-gradients": "a step leaves gradients as they were",
    "sparse": "a sparse gradient is refused by name",
    "finite": "a gradient with a NaN or an infinity is refused, and neither parameters nor state move",
    "still": "a first gradient of zero moves nothing, without decay",
    "mixed": "a gradient of another type than its parameter's is that gradient, cast",
    "together": "working on parameters together or apart gives the same numbers",
    "compiled": "a compiled step gives the same numbers, and is not compiled anew for new gradients",
    "scaled": "a loss scaler changes nothing, and leaves out a step whose gradients are infinite",
    "copies": MODULE_LINES["copies"],
    "device": "on a GPU, where one is asked for, it takes the processor's steps",
}
FUNCTION_LINES = {
    **GOLDENS,
    "arrays": "NumPy arrays give the same numbers as tensors, and come back as arrays",
    "gallery": "a permutation of the gallery, the axis G, permutes the result",
    "gradcheck": MODULE_LINES["gradcheck"],
    "second-derivatives": "second derivatives are right",
    "forward": "derivatives in forward mode are those of the backward pass",
    "half": MODULE_LINES["half"],
    "pickle": "the function with its options bound survives pickle",
    "copies": MODULE_LINES["copies"],
    "threads": MODULE_LINES["threads"],
}
FITTED_LINES = {
    **GOLDENS,
    "half": MODULE_LINES["half"],
    "state": "what was found is loaded into a module that was never set",
    "arrays": FUNCTION_LINES["arrays"],
    "refused": "NaN is refused by name, and leaves what was found as it was",
}
ADAPTER_LINES = {
    **GOLDENS,
    "reset": "reset gives back the numbers of the first call, and the same answers again",
    "continued": "a stream that is saved and loaded goes on to the same bits",
    "frozen": "what is not adapted stays as it was",
    "learns": "a stream moves what is trained",
    "infinite": "a batch with NaN teaches nothing, and spoils nothing",
    "refused-batch": "a call that fails leaves the model as it was",
    "half-stream": "a model in bfloat16 is adapted in it",
    "copies": MODULE_LINES["copies"],
}
TEXT_LINES = {
    **GOLDENS,
    "again": "asked again, as a copy, or in a process whose hashes are others, it says the same",
    "untouched": "what it is given stays as it was",
    "alone": "one answer for each text, and the same alone as in company",
    "types": "what is of another type is refused by name",
    "any-text": "no text, emoji, right-to-left text and lone surrogates give a result or a named error",
    "unicode": "composed and decomposed text give the same where a Unicode form is stated",
}
CONTRACT = {
    **(MODULE_LINES | NORM_LINES | POINT_LINES | PARAMETRIZATION_LINES | TRANSFORM_LINES | OPTIMIZER_LINES),
    **(FUNCTION_LINES | FITTED_LINES | ADAPTER_LINES | TEXT_LINES),
}


@dataclass
class Subject:
    """A method built small: what was built, the inputs of a call, the call, what is learned, and what else is kept."""

    made: Any
    inputs: list[Any]
    call: Callable[..., Any]
    learned: Mapping[str, Tensor] = field(default_factory=dict)
    state: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of method. ``noun`` is what one is called, ``room`` where it belongs if its file does not say so."""

    name: str
    noun: str
    room: str
    lines: Mapping[str, str] = field(repr=False)

    def entered(self, entry: Any) -> Any:
        """What the decorator makes of a class or function: by default that itself."""
        return entry

    def prepare(self, entry: Any, card: Card) -> None:
        """Let the class or function know its card, and a class name what it cannot take."""
        entry.card = card
        if isinstance(entry, type):
            take_forms(entry, card.called)

    def signature(self, entry: Any) -> inspect.Signature:
        """What :func:`normkit.create` takes after the name."""
        return inspect.signature(entry)

    def create(self, card: Card, *args: Any, **kwargs: Any) -> Any:
        """Build the method."""
        return card.entry(*args, **kwargs)

    def takes(self, card: Card) -> list[str]:
        """The names of what a call takes."""
        return list(inspect.signature(card.entry.__call__).parameters)[1:]

    def use(self, card: Card, arguments: str, inputs: str) -> str:
        """The lines that build and call the method, as they are typed."""
        return f"{self.build_line(card, arguments)}\ny = {self.noun}({inputs})"

    def build_line(self, card: Card, arguments: str) -> str:
        """The line that builds the method, by its class and by its name; two where it is long."""
        named = ", ".join(filter(None, [f'"{card.name}"', arguments]))
        space = "\n" if len(arguments) > 30 else "  "
        return f"{self.noun} = nk.{card.entry.__name__}({arguments}){space}# or nk.create({named})"

    def saved(self, instance: Any) -> dict[str, tuple[Tensor, bool]]:
        """What a checkpoint holds: each tensor, and whether it is learned."""
        return {}

    def width(self, card: Card) -> inspect.Parameter | None:
        """The argument that takes the feature count and must be given, the first or a keyword ``dim``; else None."""
        takes = list(card.signature.parameters.values())
        candidates = [p for p in takes if p.name == "dim" and p.kind is p.KEYWORD_ONLY] + takes[:1]
        return next((p for p in candidates if p.default is p.empty and p.name not in card.example), None)

    def arguments(self, card: Card, features: int = 8, **overrides: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that build a smallest instance: the feature count, the card's example, and ``overrides``."""
        with torch.device(overrides.get("device") or torch.get_default_device()):
            arguments = {**example(card, features), **overrides}
        width = self.width(card)
        if width is None or width.name in overrides:
            return (), arguments
        return (
            ((), {width.name: features, **arguments}) if width.kind is width.KEYWORD_ONLY else ((features,), arguments)
        )

    def small(self, card: Card, features: int = 8, **overrides: Any) -> Any:
        """Build a smallest instance."""
        args, kwargs = self.arguments(card, features, **overrides)
        try:
            return self.create(card, *args, **kwargs)
        except TypeError as error:
            takes = list(card.signature.parameters.values())[len(args) :]
            needs = [p for p in takes if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
            if missing := [p.name for p in needs if p.name not in kwargs]:
                lacks = f"the card's example lacks {', '.join(missing)}, which a smallest instance needs"
                raise TypeError(f"{card.name}: {lacks}") from error
            raise

    def draw(
        self,
        card: Card,
        features: int = 8,
        batch: int = 4,
        *,
        optional: bool = False,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        named: Mapping[str, int] | None = None,
        leading: tuple[int, ...] | None = None,
        trailing: tuple[int, ...] = (6, 7),
    ) -> list[Tensor]:
        """Draw the inputs of one call, the optional ones if asked for; ``named`` gives sizes of named axes."""
        generator = torch.Generator().manual_seed(seed)
        examples = {k: v for k, v in card.example.items() if isinstance(v, int)}
        sized = {**sizes(features, batch), **examples, **(named or {})}
        leading = (batch,) if leading is None else leading
        shape = {"leading": leading, "trailing": trailing}
        return [layout.draw(sized, generator, dtype=dtype, **shape) for layout in layouts(card, optional)]

    def subject(self, card: Card, features: int = 8, dtype: torch.dtype = torch.float64, **drawing: Any) -> Subject:
        """Build a smallest instance and draw inputs for it."""
        instance = self.small(card, features)
        return Subject(instance, self.draw(card, features, dtype=dtype, **drawing), instance)


def exemption(exempt: Mapping[str, str], line: str, *case: str) -> str | None:
    """Return why a case of a line of the contract is not kept, or None.

    A key is a line and any words of its cases, ``"extremes huge float16"``: it covers the cases that have all of its
    words, and a line alone covers all of them.
    """
    for key, reason in exempt.items():
        named, *words = key.split()
        if named == line and set(words) <= set(case):
            return reason
    return None


def layouts(card: Card, optional: bool = True) -> list[Layout]:
    """The layouts of all inputs of a call."""
    return [card.shape, *(layout for layout in card.inputs.values() if optional or not layout.optional)]


def example(card: Card, features: int) -> dict[str, Any]:
    """The card's example arguments; a function among them is called with the feature count."""
    return {key: value(features) if callable(value) else value for key, value in card.example.items()}


def sizes(features: int = 8, batch: int = 4) -> dict[str, int]:
    """Sizes of the named axes; a style or a map of its own size has ``Ls``, ``Hs Ws`` or ``h w``."""
    named = {
        "N": batch,
        "C": features,
        "B": batch,
        "T": 5,
        "L": 5,
        "H": 6,
        "W": 7,
        "E": 16,
        "F": 16,
        "S": 3,
        "K": 4,
        "P": 5,
        "I": 5,
        "G": 6,
    }
    return {**named, "Ls": 7, "Hs": 4, "Ws": 5, "h": 9, "w": 5}
