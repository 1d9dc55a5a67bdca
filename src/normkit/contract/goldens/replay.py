"""Replay a golden: build the method, repeat its recorded steps, compare every number.

A golden is ``goldens/METHOD/CASE.npz``: arrays of inputs, outputs, gradients and states, and a JSON text ``meta``
that says how to build the method and what to call. It is compared in the dtype that it was recorded in, with its own
tolerances. One of strings is ``goldens/METHOD/CASE.json``, the text alone. A file ``goldens/functions.py`` may hold
``FUNCTIONS``, by name what builds where ``normkit.create`` does not build in the recording's form.
"""

import functools
import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import normkit as nk
from normkit import families
from normkit.contract import asked
from normkit.contract.goldens.record import grouped, to_json

Functions = Mapping[str, Callable[..., Any]]


class Call(torch.nn.Module):
    """A function, or an object, as a module: arguments fixed, ``named`` functions or its own methods to be called."""

    def __init__(self, function: Callable, named: dict[str, Callable] | None = None, **fixed):
        super().__init__()
        self.function, self.fixed = function, fixed
        for name, other in (named or {}).items():
            setattr(self, name, other)

    def forward(self, *inputs):
        """Call the function."""
        return self.function(*inputs, **self.fixed)

    def __getattr__(self, name: str):
        """Find a method of the object."""
        if name != "function" and hasattr(self.__dict__.get("function"), name):
            return getattr(self.function, name)
        return super().__getattr__(name)


def tensor(array):
    return torch.from_numpy(np.array(array)).to(asked.device())


@functools.cache
def functions(folder: Path) -> Functions:
    """What builds the goldens of a folder that `normkit.create` does not build, by name."""
    file = folder / "functions.py"
    if not file.exists():
        return {}
    spec = importlib.util.spec_from_file_location("golden_functions", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FUNCTIONS


def replay(path: Path) -> None:
    """Repeat what a golden recorded, and compare."""
    known = functions(path.parents[1])
    if path.suffix != ".json":
        return Golden(path, known).replay()
    meta = json.loads(path.read_text(encoding="utf-8"))
    return replay_rule(meta) if meta["kind"] == "rule" else replay_text(meta, known)


def make(meta: Mapping[str, Any], known: Functions, **more: Any) -> Any:
    """Build what a golden is of."""
    name, args, kwargs = meta["name"], meta.get("args", []), {**meta.get("kwargs", {}), **more}
    if name in known:
        return known[name](*args, **kwargs)
    if meta["kind"] == "flow":
        return nk.density.flow(name, *args, **kwargs)
    if meta["kind"] == "text-step":
        return families.family("text-step")[name](*args, **kwargs)
    return nk.create(name, *args, **kwargs)


def replay_rule(meta: Mapping[str, Any]) -> None:
    """As many findings as were recorded, each with what was written of it."""
    rule, near = families.family("rule")[meta["name"]], {"rel": meta["rtol"], "abs": meta["atol"], "nan_ok": True}
    for index, step in enumerate(meta["steps"]):
        findings = [to_json(asdict(finding)) for finding in rule(history(step["samples"], step["facts"]))]
        assert len(findings) == len(step["output"]), f"step{index}: {findings}"
        for finding, want in zip(findings, step["output"], strict=True):
            same(f"step{index}", {key: finding[key] for key in want}, want, near)


def history(samples: Sequence[Any], facts: dict[str, Any]) -> Any:
    """What a watch hands to a rule, of samples as `record.Rule` takes them."""
    from normkit.watching.history import History
    from normkit.watching.store import MEAN, Store

    store = Store(keep=max(8, len(samples)))
    for step, read in samples:
        columns = [(where, what) for where, what, _ in read]
        store.add(step, columns, [MEAN] * len(columns), torch.tensor([float(number) for *_, number in read]))
    return History(store, facts)


def replay_text(meta: Mapping[str, Any], known: Functions) -> None:
    """Strings, whole numbers, lengths and keys must be equal, numbers with a fraction within the tolerances."""
    subject, near = make(meta, known), {"rel": meta["rtol"], "abs": meta["atol"], "nan_ok": True}
    for index, step in enumerate(meta["steps"]):
        name = step.get("call", "__call__")
        call = subject if name == "__call__" else getattr(subject, name)
        inputs, keywords = step.get("inputs", []), step.get("kwargs", {})
        if "raises" in step:
            with pytest.raises(Exception) as raised:
                call(*inputs, **keywords)
            assert step["raises"] in {kind.__name__ for kind in raised.type.__mro__}, f"step{index}"
            continue
        returned = to_json(call(*inputs, **keywords))
        if "output" in step:
            same(f"step{index} {name}", returned, step["output"], near)


def same(what, got, want, near):
    if isinstance(want, dict) and isinstance(got, dict):
        assert got.keys() == want.keys(), what
        for key, value in want.items():
            same(f"{what}[{key!r}]", got[key], value, near)
    elif isinstance(want, list) and isinstance(got, list):
        assert len(got) == len(want), what
        for index, value in enumerate(want):
            same(f"{what}[{index}]", got[index], value, near)
    elif isinstance(want, float) and type(got) in (int, float):
        assert got == pytest.approx(want, **near), f"{what}: {got!r}, not {want!r}"
    else:
        assert (type(got), got) == (type(want), want), f"{what}: {got!r}, not {want!r}"


class Golden:
    def __init__(self, path: Path, known: Functions):
        self.known = known
        with np.load(path, allow_pickle=False) as file:
            self.arrays = {key: file[key] for key in file.files}
        self.meta = json.loads(str(self.arrays.pop("meta")))
        double = any(a.dtype == np.float64 for a in self.arrays.values())
        self.dtype = torch.float64 if double else torch.float32

    def part(self, prefix):
        return {k[len(prefix) :]: tensor(v) for k, v in self.arrays.items() if k.startswith(prefix)}

    def check(self, what, got, want):
        assert got is not None, f"{what} is missing"
        got = torch.as_tensor(got).detach().to(want).reshape(want.shape)
        rtol, atol = self.meta.get("rtol", 1e-6), self.meta.get("atol", 1e-8)
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}")

    def replay(self):
        torch.manual_seed(self.meta.get("seed", 0))
        if self.meta["kind"] == "optimizer":
            return self.replay_optimizer()
        module = self.build()
        for index, step in enumerate(self.meta["steps"]):
            self.replay_step(module, step, f"step{index}/")

    def replay_optimizer(self):
        parameters = {name: torch.nn.Parameter(value) for name, value in self.part("param/").items()}
        given = grouped(self.meta, parameters)
        optimizer = nk.create(self.meta["name"], given, **self.meta.get("kwargs", {}))
        for index in range(len(self.meta["steps"])):
            grads = self.part(f"step{index}/grad/")
            for name, parameter in parameters.items():
                parameter.grad = grads.get(name)
            optimizer.step()
            for name, want in self.part(f"step{index}/param/").items():
                self.check(f"step{index} parameter {name}", parameters[name], want)

    def build(self):
        module = make(self.meta, self.known, **self.sublayers())
        module = (module if isinstance(module, torch.nn.Module) else Call(module)).to(asked.device(), self.dtype)
        expected, own = self.part("state/"), module.state_dict()
        assert set(expected) <= set(own), f"state_dict lacks {sorted(set(expected) - set(own))}; it has {sorted(own)}"
        module.load_state_dict({**own, **{k: v.reshape(own[k].shape) for k, v in expected.items()}})
        return module

    def sublayers(self):
        """The linear maps that a block was recorded around."""
        if self.meta["kind"] != "block":
            return {}
        weights = {name: self.arrays[f"state/{name}.weight"] for name in ("attention", "feedforward")}
        return {name: torch.nn.Linear(w.shape[1], w.shape[0], bias=False) for name, w in weights.items()}

    def replay_step(self, module, step, at):
        module.train(step.get("mode", "train") == "train")
        module.zero_grad(set_to_none=True)
        grads, inputs = self.part(f"{at}grad/"), self.part(f"{at}in/")
        inputs = {name: inputs[name] for name in step["inputs"]}
        for name in grads:
            if name.startswith("in:"):
                inputs[name[3:]].requires_grad_(True)
        call = step.get("call", "__call__")
        owner = module.function if isinstance(module, Call) and not hasattr(module, call) else module
        returned = module(*inputs.values()) if call == "__call__" else getattr(owner, call)(*inputs.values())
        returned = returned if isinstance(returned, tuple | list) else (returned,)
        outputs = dict(zip(step["outputs"], returned, strict=False))
        for name, want in self.part(f"{at}out/").items():
            self.check(f"{at}output {name}", outputs.get(name), want)
        sent = self.part(f"{at}gout/")
        if sent:
            torch.autograd.backward([outputs[n] for n in sent], [g.reshape(outputs[n].shape) for n, g in sent.items()])
        parameters = dict(module.named_parameters())
        for name, want in grads.items():
            where = inputs[name[3:]] if name.startswith("in:") else parameters.get(name)
            assert where is not None, f"{at}: no parameter {name}; there are {sorted(parameters)}"
            self.check(f"{at}gradient {name}", where.grad, want)
        after = module.state_dict()
        for name, want in self.part(f"{at}state/").items():
            self.check(f"{at}state {name}", after.get(name), want)
