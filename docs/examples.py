"""An example for every method that can be copied and run, and what it prints: it is run while the site is built."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import warnings
from typing import Any, NamedTuple

import torch

import normkit as nk
from normkit import reference
from normkit.catalog import Card
from normkit.kinds.kind import sizes
from normkit.layout import Layout

WIDTH = 8
STEPS = (20, 500)  # of an optimizer; the more where the loss hardly moves
FEW = 12  # numbers that are shown themselves
DRAWN = {
    "": "torch.randn({shape})",
    "unit": "torch.rand({shape})",
    "bool": "torch.rand({shape}) < 0.3",
    "mask": "(torch.rand({shape}) < 0.6).float()",
    "simplex": "torch.randn({shape}).softmax(-1)",
    "sphere": "torch.nn.functional.normalize(torch.randn({shape}), dim=-1)",
    "ball": "0.5 * torch.nn.functional.normalize(torch.randn({shape}), dim=-1)",
    "frame": "torch.linalg.qr(torch.randn({shape})).Q",
}
MODEL = (
    "model = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),\n"
    "                            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 3))"
)


class Example(NamedTuple):
    """Code, and what it prints; empty where it is not run."""

    code: str
    output: str


@functools.cache
def example(name: str) -> Example:
    """Return the code that builds and calls a method small, with what it prints."""
    card = nk.card(name)
    for make in (written, drawn):
        try:
            code = make(card)
            scope, printed = run(code, name)
            if card.kind.name == "optimizer" and scope["losses"][-1] > 0.95 * scope["losses"][0]:
                code = code.replace(f"range({STEPS[0]})", f"range({STEPS[1]})")  # its usual rate is a small one
                scope, printed = run(code, name)
            last = _last(card, scope)
            return Example(code + last, f"{printed}\n{run(last, name, scope)[1]}".strip())
        except Exception:  # what stands for a thing of the user's cannot be run: the lines are shown without output
            continue
    return Example(reference.usage(card), "")


def run(code: str, name: str, scope: dict[str, Any] | None = None) -> tuple[dict[str, Any], str]:
    """Run an example, in a scope of its own unless it goes on in another; return that, and what was printed."""
    scope = {} if scope is None else scope
    printed = io.StringIO()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        exec(compile(code, f"the example of {name}", "exec"), scope)
    return scope, printed.getvalue().rstrip()


def written(card: Card) -> str:
    """The lines of use, with inputs drawn by torch before them."""
    body = reference.usage(card, WIDTH).partition("import normkit as nk\n\n")[2]
    body = re.sub(r"\n(y = [^\n]*?)  # [^\n]*$", r"\n\1", body)
    body = re.sub(r"Linear\(in_features=(\d+), out_features=(\d+)", r"Linear(\1, \2", body)
    body = re.sub(r"\n# or nk\.create\(.{100,}", "", body)
    if card.kind.name == "optimizer":
        return _head(body, _training(body))
    if card.kind.name == "text":
        return _head(body, body)
    inputs = [f"{name} = {_draw(card, layout)}" for name, layout, spare in reference.inputs(card) if not spare]
    model = [MODEL] if card.kind.name == "adapter" else []
    return _head(body, "\n".join(["torch.manual_seed(0)", *model, *inputs, body]))


def drawn(card: Card) -> str:
    """The lines of use, with inputs that the card draws: matrices, rotations and what else has a form."""
    body = reference.usage(card, WIDTH).partition("import normkit as nk\n\n")[2]
    body = re.sub(r"\n(y = [^\n]*?)  # [^\n]*$", r"\n\1", body)
    names = [name for name, _, spare in reference.inputs(card) if not spare]
    return _head(body, f"{', '.join(names)}{',' * (len(names) == 1)} = nk.card({card.name!r}).draw()\n{body}")


def _head(body: str, rest: str) -> str:
    imports = "import torch\n\n" if "torch." in rest else ""
    return f"{imports}import normkit as nk\n\n{rest}"


def _training(body: str) -> str:
    built = body.partition("\noptimizer.step()")[0]
    return (
        "torch.manual_seed(0)\nmodel = torch.nn.Linear(8, 8, bias=False)\nx, target = torch.randn(2, 64, 8)\n"
        f"{built}\nlosses = []\nfor _ in range({STEPS[0]}):\n    optimizer.zero_grad()\n"
        "    loss = (model(x) - target).square().mean()\n"
        "    loss.backward()\n    optimizer.step()\n    losses.append(loss.item())\n"
    )


def _draw(card: Card, layout: Layout) -> str:
    ints = {key: value for key, value in card.example.items() if isinstance(value, int)}
    size = layout.shape({**sizes(WIDTH, 4), **ints}, leading=(4,), trailing=(6, 7))
    shape = ", ".join(map(str, size))
    word, *numbers = layout.kind.split() or [""]
    if word == "index":
        low_high = ", ".join(numbers)
        return f"torch.randint({low_high}, ({shape},))"
    if word == "definite":
        return f"torch.eye({size[-1]}) + torch.cov(torch.randn({size[-1]}, 50)).expand({shape})"
    moved = "3 + 2 * " if card.kind.name == "norm" and layout is card.shape and not word else ""
    return moved + DRAWN[word].format(shape=shape)


def _last(card: Card, scope: dict[str, Any]) -> str:
    """The line that shows what came out: few numbers as they are, of many the shape, the mean and the deviation."""
    if card.kind.name == "optimizer":
        return 'print(f"loss {losses[0]:.3g} -> {losses[-1]:.3g} in {len(losses)} steps")'
    y = scope["y"]
    if isinstance(y, torch.Tensor):
        return "\n" + _tensor(card, y)
    if isinstance(y, tuple | list) and y and all(isinstance(part, torch.Tensor) for part in y):
        few = sum(part.numel() for part in y) <= FEW
        shown = "part.detach()" if few else "tuple(part.shape)"
        if hasattr(y, "_asdict"):
            return f"\nprint({{name: {shown} for name, part in y._asdict().items()}})"
        return f"\nprint([{shown} for part in y])"
    if len(repr(y)) <= (900 if card.kind.name == "text" else 300) and " at 0x" not in repr(y):
        return "\nprint(y)"
    return "\nprint(type(y).__name__)"


def _tensor(card: Card, y: torch.Tensor) -> str:
    if y.numel() == 1:
        return 'print(f"{y.item():.3g}")'
    if y.numel() <= FEW and y.dim() <= 2:
        return "print(y.detach())" if y.requires_grad else "print(y)"
    if not y.is_floating_point():
        return "print(tuple(y.shape))"
    form = ".2f" if card.kind.name == "norm" else ".3g"
    return f'print(tuple(y.shape), f"mean {{y.mean():{form}}}, deviation {{y.std():{form}}}")'
