"""Which norms the world's models use, and which of them are recognized: every class of transformers and timm.

    python benchmarks/recognition.py [--library transformers|timm] [--only PART] [--json FILE]

Classes are built from the names of what they take, or from their model's own configuration.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from normkit.optional import library
from normkit.surgery.recognition.recognize import examine, is_model

WIDTH, SECONDS = 16, 60
NUMBERS = {
    "eps": 1e-6,
    "layer_norm_eps": 1e-6,
    "num_groups": 4,
    "n_groups": 4,
    "group": 4,
    "groups": 4,
    "group_size": 8,
    "momentum": 0.1,
}


def classes(only: str) -> Iterator[tuple[str, type[nn.Module], object]]:
    """Every class called a norm under ``transformers.models``, and the module that it is written in."""
    models = importlib.import_module("transformers.models")
    for found in pkgutil.iter_modules(models.__path__):
        if only not in found.name:
            continue
        folder = Path(models.__path__[0], found.name)
        for path in sorted(folder.glob("modeling_*.py")):
            if "_tf_" in path.name or "_flax_" in path.name or "orm" not in path.read_text():
                continue
            try:
                module = importlib.import_module(f"transformers.models.{found.name}.{path.stem}")
            except Exception as error:
                print(f"{found.name}: cannot be imported: {error!r:.100}")
                continue
            for name, cls in vars(module).items():
                own = isinstance(cls, type) and issubclass(cls, nn.Module) and cls.__module__ == module.__name__
                if own and "norm" in name.lower() and not name.endswith(("Model", "PreTrainedModel")):
                    yield f"{found.name}.{name}", cls, module


def built(cls: type[nn.Module], module: object) -> nn.Module:
    """Build a class from the names of its arguments."""
    arguments = {}
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        name = parameter.name
        if name == "config":
            arguments[name] = configuration(parameter, module)
        elif parameter.default is parameter.empty or name in ("hidden_size", "dim"):
            if name in NUMBERS:
                arguments[name] = NUMBERS[name]
            elif parameter.annotation in ("float", float):
                arguments[name] = 1e-6
            elif parameter.annotation in ("bool", bool):
                arguments[name] = True
            else:
                arguments[name] = WIDTH
    return cls(**arguments)


def configuration(parameter: inspect.Parameter, module: object) -> object:
    """The configuration that a class is annotated with, or the first that its module knows."""
    wanted = str(parameter.annotation)
    found = [v for v in vars(module).values() if isinstance(v, type) and v.__name__.endswith("Config")]
    found.sort(key=lambda cls: cls.__name__ not in wanted)
    return next(cls for cls in found if cls.__name__ != "PreTrainedConfig")()


def late(*_: object) -> None:
    """Give up on a class that takes too long to be built."""
    raise TimeoutError(f"not built in {SECONDS} s")


def main() -> None:
    """Print a line a class, and the share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", help="write all verdicts here")
    parser.add_argument("--page", help="write the page of the documentation here")
    options = parser.parse_args()
    library("transformers")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, late)
    known: dict[str, dict] = {}
    for name, cls, module in classes(options.only):
        source = inspect.getsource(cls)
        start = time.perf_counter()
        signal.alarm(SECONDS)
        try:
            made = built(cls, module)
            if is_model(made):
                continue
        except Exception as error:
            known[name] = {"built": False, "why_not": f"{type(error).__name__}: {str(error)[:80]}"}
        else:
            match = examine(made)
            known[name] = {"built": True, **match.to_dict(), "source": source}
        row = known[name]
        seconds = time.perf_counter() - start
        print(
            f"{seconds:4.1f} {name:60} {row.get('name') or '-':12} {row.get('kwargs') or row.get('why_not')}",
            flush=True,
        )
    tried = [row for row in known.values() if row["built"]]
    print(f"{sum(bool(row['name']) for row in tried)} of {len(tried)} recognized; {len(known) - len(tried)} not built")
    if options.json:
        Path(options.json).write_text(json.dumps(known, indent=1))
    if options.page:
        Path(options.page).write_text(page(known))


def page(known: dict[str, dict]) -> str:
    """The page: each method in its dialects, how many classes have them and in which families, and what is left."""
    import transformers

    dialects: dict[str, list[str]] = {}
    for name, row in known.items():
        if row.get("name"):
            rest = {k: v for k, v in row["kwargs"].items() if k not in ("dim", "num_features", "eps")}
            written = ", ".join([row["name"], *(f"{k}={v}" for k, v in rest.items())])
            dialects.setdefault(written, []).append(name.partition(".")[0])
    ranked = sorted(dialects.items(), key=lambda one: -len(one[1]))
    counted = [f"| {written} | {len(names)} | {', '.join(sorted(set(names)))} |" for written, names in ranked]
    left = [f"| {name} | {row['why_not']} |" for name, row in known.items() if not row.get("name")]
    tried = sum(row["built"] for row in known.values())
    found = sum(len(names) for names in dialects.values())
    head = [
        "# Which norms do the world's models use?",
        "",
        f'Every class of transformers {transformers.__version__} that has "norm" in its name and holds no matrices, '
        f"built with {WIDTH} features and recognized by what it computes: {found} of {tried}. "
        "`python benchmarks/recognition.py --page docs/world.md` writes this page.",
        "",
        "| method and dialect | classes | families |",
        "| --- | --- | --- |",
    ]
    rest = [
        "",
        "Not recognized, or not built from the names of its arguments alone:",
        "",
        "| class | why |",
        "| --- | --- |",
    ]
    return "\n".join([*head, *counted, *rest, *left]) + "\n"


if __name__ == "__main__":
    main()
