"""Record a golden: run the authors' code, and write down what went in, what came out, and every gradient and state."""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from normkit.contract.goldens import places
from normkit.files import beside

KINDS = ("module", "block", "layer", "flow")
SUBLAYERS = ("attention.weight", "feedforward.weight")
View = Callable[[Tensor], Tensor]
Sample = tuple[int, Sequence[tuple[str, str, float]]]


class Recording:
    """What all kinds share: how our method is built, where the numbers come from, and the steps so far.

    Args:
        name: the method, as in `normkit.create(name, *args, **kwargs)`, or the flow, as in `normkit.density.flow`.
        case: what this golden shows, the name of its file.
        source: the code or equations that gave the numbers, with repository and file.
        args, kwargs: what builds our method; plain values that JSON holds.
        note: whatever surprises.
        rtol, atol: how near is equal.
    """

    kind: str
    suffix = ".npz"

    def __init__(
        self,
        name: str,
        case: str,
        *,
        source: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        note: str = "",
        rtol: float = 1e-9,
        atol: float = 1e-12,
    ):
        if not source.strip():
            raise ValueError("source is empty: say which code or which equations gave the numbers")
        if not re.fullmatch(r"[\w.+=-]+", case):
            raise ValueError(f"case must be the name of a file on any system, letters, digits and .+=_-, not {case!r}")
        self.place = pathlib.Path(name, case + self.suffix)
        self.meta = {"name": name, "kind": self.kind, "args": list(args), "kwargs": dict(kwargs or {})}
        self.meta |= {"source": source, "note": note, "rtol": rtol, "atol": atol}
        self.steps: list[dict[str, Any]] = []
        self.arrays: dict[str, np.ndarray] = {}

    def keep(self, key: str, value: Tensor) -> None:
        """Copy a tensor; all that have a fraction must be of one type."""
        array = value.detach().cpu().numpy().copy()
        others = {a.dtype for a in self.arrays.values() if a.dtype.kind == "f"}
        if array.dtype.kind == "f" and others - {array.dtype}:
            raise ValueError(f"{key} is {array.dtype}, what was recorded before {others.pop()}; record all in float64")
        self.arrays[key] = array

    def write(self, folder: str | os.PathLike | None = None) -> pathlib.Path:
        """Write the file, whole or not at all, and return its path.

        folder: by default the folder `goldens` beside the module of the method, or one of a package around it.
        """
        if not self.steps:
            raise ValueError(f"{self.place} has no step")
        home = places.folder_of(self.place.parent.name, self.kind) if folder is None else pathlib.Path(folder)
        path = home / self.place
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside(path) as partial, open(partial, "wb") as file:
            self.save(file)
        return path

    def save(self, file: BinaryIO) -> None:
        """Write arrays, and `meta` among them as JSON."""
        meta = json.dumps({**self.meta, "steps": self.steps}, ensure_ascii=False)
        np.savez_compressed(file, meta=np.array(meta), **self.arrays)


class Golden(Recording):
    """Calls of a module, of a block around two linear maps, a whole transformer layer or a flow; see `Recording`."""

    def __init__(self, name: str, case: str, *, kind: str = "module", **how: Any):
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        self.kind = kind
        super().__init__(name, case, **how)
        self.live: dict[str, tuple[Callable[[], Tensor], View]] = {}

    def state(self, **theirs: Tensor | tuple[Tensor, View] | Callable[[], Tensor]) -> None:
        """Name the authors' parameters and buffers as ours, before the first step.

        `(theirs.qkv.weight, lambda w: w[:8])` is a part of a parameter, or another shape of it. A buffer that their
        code replaces, rather than changes, is given as a function that looks it up. For names with a dot,
        `state(**{"attention.weight": theirs.weight})`.
        """
        if self.steps:
            raise ValueError("state belongs before the first step")
        for name, given in theirs.items():
            value, view = given if isinstance(given, tuple) else (given, lambda whole: whole)
            look = value if callable(value) else lambda value=value: value
            if look().requires_grad and not look().is_leaf:
                raise ValueError(f"state {name} is computed from a parameter; give (parameter, function) instead")
            self.live[name] = look, view
            self.keep(f"state/{name}", view(look()))

    def step(
        self,
        theirs: Callable[..., Any],
        inputs: Mapping[str, Tensor],
        *,
        outputs: Sequence[str] = ("y",),
        mode: str = "train",
        call: str = "__call__",
        gradients: bool = True,
    ) -> tuple[Any, ...]:
        """Call the authors' code with the inputs in their order, send a gradient back, and return what it returned.

        Args:
            theirs: their module or function.
            inputs: our names of the inputs, in the order that our method takes them.
            outputs: our names of what is returned.
            mode: `"train"` or `"eval"`, which `theirs` is also set to if it is a module.
            call: our method in the place of `theirs`.
            gradients: whether to differentiate; a random gradient is sent through every output that has one.
        """
        self._check_sublayers()
        at = f"step{len(self.steps)}/"
        if isinstance(theirs, torch.nn.Module):
            theirs.train(mode == "train")
        given = {name: self._input(f"{at}in/{name}", value, gradients) for name, value in inputs.items()}
        returned = theirs(*given.values())
        results = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        if len(results) != len(outputs):
            raise ValueError(f"{len(results)} outputs came back, {len(outputs)} have a name: {', '.join(outputs)}")
        for name, value in zip(outputs, results, strict=True):
            self.keep(f"{at}out/{name}", value if isinstance(value, Tensor) else torch.from_numpy(np.array(value)))
        if gradients:
            self._differentiate(at, given, dict(zip(outputs, results, strict=True)))
        for name, (look, view) in self.live.items():
            if not look().requires_grad:
                self.keep(f"{at}state/{name}", view(look()))
        self.steps.append({"inputs": list(inputs), "outputs": list(outputs), "mode": mode, "call": call})
        return results

    def _check_sublayers(self) -> None:
        missing = [name for name in SUBLAYERS if name not in self.live]
        if self.kind == "block" and missing:
            raise ValueError(f"a block is recorded around two bias-free linear maps; its state lacks {missing}")

    def _input(self, key: str, value: Tensor, gradients: bool) -> Tensor:
        self.keep(key, value)
        return value.detach().clone().requires_grad_(gradients and value.is_floating_point())

    def _differentiate(self, at: str, inputs: dict[str, Tensor], outputs: dict[str, Any]) -> None:
        moving = {n: v for n, v in outputs.items() if isinstance(v, Tensor) and v.requires_grad}
        if not moving:
            return
        for look, _ in self.live.values():
            look().grad = None
        draw = torch.Generator().manual_seed(len(self.steps))
        sent = {n: torch.randn(v.shape, dtype=v.dtype, generator=draw) for n, v in moving.items()}
        torch.autograd.backward(list(moving.values()), list(sent.values()))
        for name, value in sent.items():
            self.keep(f"{at}gout/{name}", value)
        for name, value in inputs.items():
            if value.grad is not None:
                self.keep(f"{at}grad/in:{name}", value.grad)
        for name, (look, view) in self.live.items():
            if look().grad is not None:
                self.keep(f"{at}grad/{name}", view(look().grad))


class Optimizer(Recording):
    """Steps of an optimizer; see `Recording`.

    Args:
        parameters: the start, by name.
        groups: torch's parameter groups, with names for tensors: `[{"params": ["w"], "kwargs": {"lr": 0.1}}]`.
    """

    kind = "optimizer"

    def __init__(self, *names: str, parameters: Mapping[str, Tensor], groups: Sequence[dict] = (), **how: Any):
        super().__init__(*names, **how)
        if groups:
            self.meta["groups"] = list(groups)
        self.parameters = {n: torch.nn.Parameter(v.detach().clone()) for n, v in parameters.items()}
        for name, value in self.parameters.items():
            self.keep(f"param/{name}", value)

    def build(self, make: Callable[..., torch.optim.Optimizer]) -> None:
        """Hand the parameters, or their groups, to a function that returns the authors' optimizer."""
        self.theirs = make(grouped(self.meta, self.parameters))

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """Put gradients on the parameters, none where there is none, and let the optimizer step."""
        at = f"step{len(self.steps)}/"
        for name, value in gradients.items():
            self.keep(f"{at}grad/{name}", value)
        for name, parameter in self.parameters.items():
            parameter.grad = gradients[name].clone() if name in gradients else None
        self.theirs.step()
        for name, parameter in self.parameters.items():
            self.keep(f"{at}param/{name}", parameter)
        self.steps.append({})


def grouped(meta: Mapping[str, Any], parameters: Mapping[str, Tensor]) -> list[Any]:
    """Return the parameters as an optimizer takes them, in their groups where a golden has such."""
    groups = [
        {"params": [parameters[name] for name in group["params"]], **group.get("kwargs", {})}
        for group in meta.get("groups", [])
    ]
    return groups or list(parameters.values())


class Plain(Recording):
    """What JSON holds; see `Recording`."""

    suffix = ".json"

    def save(self, file: BinaryIO) -> None:
        """Write JSON, a line a step."""
        head = [f' "{key}": {json.dumps(value, ensure_ascii=False)},' for key, value in self.meta.items()]
        steps = ",\n".join(f"  {json.dumps(step, ensure_ascii=False)}" for step in self.steps)
        file.write("\n".join(["{", *head, ' "steps": [', steps, " ]", "}", ""]).encode())


class Text(Plain):
    """Calls with strings, numbers and records, on one object: a method's, or with `kind="text-step"` a step's."""

    def __init__(self, name: str, case: str, *, kind: str = "text", **how: Any):
        if kind not in ("text", "text-step"):
            raise ValueError(f"kind must be text or text-step, not {kind!r}")
        self.kind = kind
        super().__init__(name, case, **how)

    def step(self, theirs: Callable[..., Any], *inputs: Any, call: str = "__call__", **keywords: Any) -> Any:
        """Call the authors' code, and write down what it returns or the class of what it raises."""
        step = {"call": call, "inputs": to_json(inputs), **({"kwargs": to_json(keywords)} if keywords else {})}
        try:
            returned = theirs(*inputs, **keywords)
        except Exception as error:
            self.steps.append({**step, "raises": type(error).__name__})
            return None
        self.steps.append({**step, "output": to_json(returned)})
        return returned


class Rule(Plain):
    """What a rule of the watch finds in samples of a training; see `Recording`."""

    kind = "rule"

    def __init__(self, name: str, case: str, *, rtol: float = 1e-6, **how: Any):  # samples are kept in float32
        super().__init__(name, case, rtol=rtol, **how)

    def step(self, samples: Sequence[Sample], findings: Sequence[Mapping[str, Any]], **facts: Any) -> None:
        """Write down what is to be found.

        Args:
            samples: the steps at which the model was looked at, each with what was read: where, what, the number.
            findings: of each finding what it is to be, such as its title; what is left out may be anything.
            facts: what else the rule looks at in `history.facts`.
        """
        self.steps.append({"samples": to_json(samples), "facts": to_json(facts), "output": to_json(findings)})


def to_json(value: Any) -> Any:
    """Turn what a call returned into what JSON holds: tensors, arrays, tuples and records become lists and dicts."""
    if isinstance(value, Tensor):
        return value.detach().tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, (list, tuple)) else value


def described(path: str | os.PathLike) -> str:
    """Say what a golden holds: how it is built, where from, and every array."""
    path = pathlib.Path(path)
    if path.suffix == Plain.suffix:
        return path.read_text(encoding="utf-8").rstrip()
    with np.load(path, allow_pickle=False) as file:
        lines = [f"{key}: {json.dumps(value)}" for key, value in json.loads(str(file["meta"])).items()]
        for key in file.files:
            if key != "meta":
                values = np.array2string(file[key].ravel()[:4], precision=4, separator=", ")
                lines.append(f"{key:28} {file[key].dtype} {file[key].shape} {values}")
    return "\n".join(lines)
