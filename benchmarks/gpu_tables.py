"""Write the tables of the GPU's kernels from what is on file: ``python benchmarks/gpu_tables.py``.

Beside `results/gpu-static*.json` their Markdown, and in docs/gpu.md what is between its marks.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from normkit.bench import gpu, report

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PAGE = HERE.parent / "docs" / "gpu.md"
NAMES = ("gpu-static", "gpu-static-peers")
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
        for width in (1024, 4096):
            names = f"row {way}, {rule}", f"Liger's {rule}_norm, {way}", f"Inductor's {rule}_norm, {way}"
            ours, *others = (known[name, width] for name in names)
            each = " | ".join(f"{row['each']:.1f}" for row in (ours, *others))
            moved = " | ".join(f"{row['loaded'] + row['stored']:.1f}" for row in (ours, others[0]))
            lines.append(f"| {rule} norm {way} | {width} | {each} | {moved} |")
    return lines


def published() -> list[str]:
    """Lines of the table of `h100.py`."""
    spec = importlib.util.spec_from_file_location("h100", HERE / "h100.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return [*module.HEAD, *module.rows()]


def written(page: str, tables: Mapping[str, list[str]]) -> str:
    """A page with each table between its marks."""
    for mark, lines in tables.items():
        place = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- /{mark} -->)", re.DOTALL)
        page, count = place.subn("\n".join(lines) + "\n", page)
        assert count == 1, mark
    return page


def main() -> None:
    """Write all of them."""
    for name in NAMES:
        record = json.loads((RESULTS / f"{name}.json").read_text())
        (RESULTS / f"{name}.md").write_text(report.markdown(record, gpu.COLUMNS, gpu.LEGEND) + "\n")
    PAGE.write_text(written(PAGE.read_text(), {"machine": beside(rows()), "h100": published()}))


if __name__ == "__main__":
    main()
