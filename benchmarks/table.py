"""Write the table of a measurement into the README: ``python benchmarks/table.py [RESULTS.json]``."""

import json
import re
import sys
from pathlib import Path

from normkit.bench import report

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "readme.json"
README = HERE.parent / "README.md"
PLACE = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", re.DOTALL)


SHOWN = {
    "method": ("layernorm", "rmsnorm", "dyt"),
    "size": ("8x768", "4096x768"),
    "dtype": ("float32",),
    "pass": ("training",),
}
COLUMNS = ("method", "size", "type", "time", "torch", "eager", "compiled", "fused add")


def shown(record: dict, wanted: dict) -> dict:
    """The rows that fit a README; the file has all."""
    rows = [row for row in record["rows"] if all(row[key] in values for key, values in wanted.items())]
    return {**record, "rows": rows}


def written(readme: str, record: dict, wanted: dict = SHOWN) -> str:
    """The README with the table of that measurement in its place."""
    table = report.markdown(shown(record, wanted), {name: report.COLUMNS[name] for name in COLUMNS})
    rows, *notes = table.split("\n- ")
    return PLACE.sub(lambda found: f"{rows}\n{'; '.join(notes)}\n", readme)


if __name__ == "__main__":
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    README.write_text(written(README.read_text(), json.loads(results.read_text())))
