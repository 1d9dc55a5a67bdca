"""Write the tables of the GPU's kernels from what is on file: ``python benchmarks/gpu_tables.py``.

Beside `results/gpu-static*.json` and `h100-*.json` their Markdown, and in docs/gpu.md what is between its marks.
``--compile sm_90`` compiles one kernel of each rule, function and form instead, and counts those that keep numbers
outside of registers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from normkit.bench import gpu, report
from normkit.kernels.cuda import static, variants

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "gpu.md"
NAMES = ("gpu-static", "gpu-static-peers")
MEASURED = ("h100-rows", "h100-float32", "h100-channels")
WIDTHS, TARGETS = (768, 1024, 4096, 5120), ("sm_80", "sm_90", "sm_100", "gfx942")
PASSES = ("rms", "forward"), ("rms", "backward"), ("layer", "forward"), ("layer", "backward")


def rows() -> list[dict[str, Any]]:
    """All rows on file."""
    return [row for name in NAMES for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]]


def beside(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines of a table: our rows in bfloat16 on sm_90, Liger's and Inductor's."""
    known = {(row["kernel"], row["width"]): row for row in found if (row["target"], row["type"]) == ("sm_90", "bf16")}
    lines = [
        "| pass | width | normkit | Liger | Inductor | bytes, normkit | bytes, Liger |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for rule, way in PASSES:
        for width in WIDTHS:
            names = f"row {way}, {rule}", f"Liger's {rule}_norm, {way}", f"Inductor's {rule}_norm, {way}"
            ours, *others = (known[name, width] for name in names)
            each = " | ".join(f"{row['each']:.1f}" for row in (ours, *others))
            moved = " | ".join(f"{row['loaded'] + row['stored']:.1f}" for row in (ours, others[0]))
            lines.append(f"| {rule} norm {way} | {width} | {each} | {moved} |")
    return lines


def targets(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines of a table: instructions an entry takes in our rows in bfloat16 and in Liger's, for each GPU."""
    known = {(row["kernel"], row["target"], row["width"]): row["each"] for row in found if row["type"] == "bf16"}
    lines = ["| GPU | width | " + " | ".join(f"{rule} norm {way}" for rule, way in PASSES) + " |", "| --- " * 6 + "|"]
    for target in TARGETS:
        for width in (1024, 4096):
            pairs = ((f"row {way}, {rule}", f"Liger's {rule}_norm, {way}") for rule, way in PASSES)
            each = (" / ".join(f"{known[name, target, width]:.1f}" for name in pair) for pair in pairs)
            lines.append(f"| {target} | {width} | " + " | ".join(each) + " |")
    return lines


def misses(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Lines of a list: where another's code has less than ours."""
    once = {(row["kernel"], row["type"], row["width"], row["target"]): row for row in found}
    return [f"- {line}" for line in gpu.misses(list(once.values()))]


def published() -> list[str]:
    """Lines of the table of `h100.py`."""
    spec = importlib.util.spec_from_file_location("h100", HERE / "h100.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return [*module.HEAD, *module.rows()]


def measured(name: str) -> list[str]:
    """Lines of a table: times on the device alone, and over them those of others; last, of calls beside torch's."""
    record = json.loads((RESULTS / f"{name}.json").read_text())
    shown = {key: gpu.COLUMNS[key] for key in ("time", "copy", "torch", "liger", "compiled", "call", "call, torch")}
    kept = {key: cell for key, cell in shown.items() if any(cell(row) != "-" for row in record["rows"])}
    lines = ["| pass | size | " + " | ".join(kept) + " |", "| --- " * (2 + len(kept)) + "|"]
    for row in record["rows"]:
        cells = " | ".join(cell(row) for cell in kept.values())
        lines.append(f"| {row['kernel']} {row['pass']} | {row['size']} | {cells} |")
    return lines


def tables() -> dict[str, list[str]]:
    """The tables of the page, by their marks."""
    found = rows()
    timed = {name: measured(name) for name in MEASURED}
    return {**timed, "machine": beside(found), "targets": targets(found), "misses": misses(found), "h100": published()}


def written(page: str, tables: Mapping[str, list[str]]) -> str:
    """A page with each table between its marks."""
    for mark, lines in tables.items():
        place = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", re.DOTALL)
        page, count = place.subn("\n".join(lines) + "\n", page)
        assert count == 1, mark
    return page


def spilled(target: str) -> str:
    """Of all that is compiled for a GPU how much keeps numbers outside of registers."""
    kernels = list(variants.everything())
    names = [v.name for v in kernels if static.read(v.compiled(target), target, v.warps).spills]
    return f"{target}: of {len(kernels)} kernels {len(names)} keep numbers outside of registers: {', '.join(names)}"


def main() -> None:
    """Write all of them, or compile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", nargs="+", choices=TARGETS, metavar="GPU", help="of " + ", ".join(TARGETS))
    options = parser.parse_args()
    for target in options.compile or ():
        print(spilled(target), flush=True)
    if options.compile:
        return
    for name in (*NAMES, *MEASURED):
        record = json.loads((RESULTS / f"{name}.json").read_text())
        (RESULTS / f"{name}.md").write_text(report.markdown(record, gpu.COLUMNS, gpu.LEGEND) + "\n")
    PAGE.write_text(written(PAGE.read_text(), tables()))


if __name__ == "__main__":
    main()
