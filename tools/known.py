"""Prove what classes of torch, timm and transformers are, and write `normkit/surgery/recognition/known.json`.

    python tools/known.py              # all that are listed here and installed; rows of other sources are kept
    python tools/known.py BatchNorm2d  # those with such a name
    python tools/known.py --check      # prove again what is written, and change nothing; 1 where anything is otherwise

Each class is built at several widths, in both modes, in half precision, with and without the mark of transformers, with
several stabilizers and momentums, and each of these is probed as a module that nobody has seen. A row is written where
all are found to be the same method, with arguments that can be read off the module; the sizes are the bounds within
which the row holds.
"""

import argparse
import importlib.util
import itertools
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from normkit import catalog
from normkit.optional import library
from normkit.surgery.recognition import known
from normkit.surgery.recognition.fingerprint import Unknown, configuration, fingerprint
from normkit.surgery.recognition.recognize import Match, examine

TRIED = (
    (8, 1e-2, 0.1, torch.float32, True),
    (24, 1e-12, 0.03, torch.bfloat16, False),
)  # width, eps, momentum, type, mode
LAST = (1e-5, 0.1, torch.float32, False)
FEW = 512  # the widest that is probed of forms that are rare
WIDE = 4096  # of networks of images
WIDEST, LONG = 8192, ("layernorm", "rmsnorm")  # of large language models
NO_BIAS = ("LayerNormNoBias", "LayerNorm2dNoBias", "GroupNorm1NoBias")
EXAM = Path(__file__).parents[1] / "benchmarks" / "results" / "recognition.json"
ERRORS = ("float64", "float32", "bfloat16", "float16")


class Case(NamedTuple):
    """A class, what it is built with besides its width, and the widest that is probed."""

    path: str
    options: Mapping[str, Any] = {}
    widest: int = FEW
    groups: int | None = None

    def build(self, width: int, eps: float, momentum: float, dtype: torch.dtype, mode: bool) -> nn.Module:
        """Build one, and give it its numbers."""
        home, _, name = self.path.rpartition(".")
        library(home.partition(".")[0])
        cls = getattr(library(home), name)
        module = cls(*([self.groups] if self.groups else []), width, **self.options)
        for part in module.modules():
            for key in known.NUMBERS:
                if type(vars(part).get(key)) is float:
                    setattr(part, key, momentum if key == "momentum" else eps)
        if not mode:
            vars(module)[known.MARK] = True
        return module.to(dtype).train(mode)

    def all(self) -> list[nn.Module]:
        """Build one of each width."""
        return [self.build(*one) for one in (*TRIED, (self.widest, *LAST))]


def cases() -> list[Case]:
    """What is proven."""
    of_torch = [Case(f"torch.nn.BatchNorm{n}d", {}, WIDE) for n in (1, 2, 3)]
    of_torch += [
        Case(f"torch.nn.BatchNorm{n}d", options)
        for n, options in itertools.product(
            (1, 2), ({"affine": False}, {"track_running_stats": False}, {"momentum": None})
        )
    ]
    of_torch += [Case("torch.nn.LayerNorm", o, WIDEST) for o in ({}, {"bias": False}, {"elementwise_affine": False})]
    of_torch += [Case("torch.nn.RMSNorm", {"eps": 1e-6, **o}, WIDEST) for o in ({}, {"elementwise_affine": False})]
    of_torch += [Case("torch.nn.GroupNorm", {"affine": a}, WIDE, 2) for a in (True, False)]
    of_torch += [
        Case(f"torch.nn.InstanceNorm{n}d", o, 2048)
        for n in (1, 2, 3)
        for o in ({}, {"affine": True, "track_running_stats": True})
    ]
    acts = [{"act_layer": "relu"}, {"act_layer": "silu"}, {"apply_act": False}, {"act_layer": "hard_swish"}]
    of_timm = [Case("timm.layers.BatchNormAct2d", act, WIDE) for act in acts]
    of_timm += [Case(f"timm.layers.{name}", {}, WIDE) for name in ("LayerNorm", "LayerNorm2d", "RmsNorm", "RmsNorm2d")]
    of_timm += [Case(f"timm.layers.{name}", o) for name in ("LayerNorm", "RmsNorm") for o in ({"affine": False},)]
    of_timm += [Case(f"timm.layers.{name}") for name in ("GroupNorm1", "FilterResponseNormTlu2d", "EvoNorm2dS0a")]
    of_timm += [Case("timm.layers.grn.GlobalResponseNorm", {"channels_last": last}, 4096) for last in (False, True)]
    of_timm += [Case("timm.layers.GroupNormAct", {"num_groups": 2, **act}, 2048) for act in acts]
    of_timm += [Case("timm.layers.GroupNorm", {"num_groups": 2}, 2048)]
    of_timm += [Case(f"timm.layers.{name}", act) for name in ("LayerNormAct2d", "RmsNormAct2d") for act in acts]
    of_timm += [Case(f"timm.models.metaformer.{name}") for name in NO_BIAS]
    seen = json.loads(EXAM.read_text(encoding="utf-8"))["transformers"]["verdicts"]
    of_transformers = [
        Case(f"transformers.models.{family}.modeling_{family}.{name}", {}, WIDEST if of in LONG else FEW)
        for (family, _, name), of in ((key.partition("."), one.get("name")) for key, one in seen.items())
        if of
    ]
    cases = {"torch": of_torch, "timm": of_timm, "transformers": of_transformers}
    return [case for package, some in cases.items() if importlib.util.find_spec(package) for case in some]


def key_of(case: Case) -> tuple[str, str]:
    """What classes share that are written alike: source and form."""
    module = case.build(*TRIED[0])
    return fingerprint(module), json.dumps(known.form(configuration(module)).words, sort_keys=True)


def row(case: Case) -> dict[str, Any]:
    """Probe a case at all its widths; return its row, or refuse what is not one answer."""
    modules = case.all()
    matches = [examine(module, prove=True) for module in modules]
    forms = [known.form(configuration(module)) for module in modules]
    same("form", [form.words for form in forms])
    for what in ("name", "carried", "behind", "sized"):
        same(what, [getattr(match, what) for match in matches])
    if refused := matches[0].why_not or (None if matches[0].sized else "its width is not known"):
        raise ValueError(refused)
    widths = [8, 24, case.widest]
    width = letter(forms, widths)
    found = {
        "class": case.path,
        "source": fingerprint(modules[0]),
        "form": dict(forms[0].words),
        "name": matches[0].name,
        "arguments": dict(read_off(matches, forms)),
        "always": sorted(set.intersection(*(set(match.kwargs) for match in matches))),
        "carried": matches[0].carried,
        "behind": matches[0].behind,
        "widths": [min(widths), max(widths)],
        "width": width,
        "groups": next((other for other in forms[0].sizes if other != width), None),
        "error": {t: max(m.error[t] for m in matches) for t in ERRORS if all(t in m.error for m in matches)},
        "evidence": [f"its source was probed at widths {', '.join(map(str, widths))}", *matches[-1].evidence],
    }
    for module, match in zip(modules, matches, strict=True):
        told = known.read(found, known.form(configuration(module)))
        if told is None or told["kwargs"] != match.kwargs:
            raise ValueError(f"{match} is read as {told and told['kwargs']}")
    return found


def same(what: str, values: Sequence[Any]) -> None:
    """Refuse what is not the same at all widths."""
    if any(value != values[0] for value in values):
        raise ValueError(f"its {what} is {' or '.join(map(str, values))}")


def letter(forms: Sequence[known.Form], widths: Sequence[int]) -> str:
    """The letter of the width in a form."""
    return next(one for one in forms[0].sizes if [form.sizes.get(one) for form in forms] == list(widths))


def read_off(matches: Sequence[Match], forms: Sequence[known.Form]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Where each argument of a method is read: of a size, of a number, or the same for all."""
    card = catalog.card(matches[0].name)
    for name in sorted(set().union(*(match.kwargs for match in matches))):
        values = [match.kwargs.get(name, card.signature.parameters[name].default) for match in matches]
        yield name, read_of(name, values, forms)


def read_of(name: str, values: Sequence[Any], forms: Sequence[known.Form]) -> tuple[str, Any]:
    """Where one argument is read."""
    for kind, numbers in (("size", [form.sizes for form in forms]), ("number", [form.numbers for form in forms])):
        for key in numbers[0]:
            if values == [one.get(key) for one in numbers] and not any(isinstance(v, bool) for v in values):
                return kind, key
    same(name, values)
    return "constant", values[0]


def main() -> int:
    """Prove what was asked for; 1 where something was not."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="only classes with such a name")
    options.add_argument("--check", action="store_true", help="write nothing; compare with what is written")
    asked = options.parse_args()
    written, bad, proven = dict(known.rows()), 0, set()
    for case in cases():
        name = case.path.rpartition(".")[2]
        if asked.names and name not in asked.names:
            continue
        try:
            key = key_of(case)
            if key in proven:
                continue
            found = json.loads(json.dumps(row(case)))
            fits = not asked.check or {**written[key], "error": 0, "evidence": 0} == {
                **found,
                "error": 0,
                "evidence": 0,
            }
            written[key] = found
            proven.add(key)
            why = "" if fits else "it is written otherwise"
        except (ValueError, KeyError, StopIteration, TypeError, AttributeError, Unknown) as error:
            why = f"{type(error).__name__}: {error}"
        bad += bool(why)
        print(f"{name} {dict(case.options)}: {why or found['name']}", flush=True)
        if not asked.check:
            known.FILE.write_text(text(list(written.values())), encoding="utf-8")
    return int(bad > 0)


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The file of rows, one a line."""
    lines = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return "[\n" + ",\n".join(lines) + "\n]\n"


if __name__ == "__main__":
    sys.exit(main())
