"""Write the table of a measurement into the README: ``python benchmarks/table.py [RESULTS.json]``."""

import json
import re
import sys
from pathlib import Path

from normkit.bench import report

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "cpu.json"
README = HERE.parent / "README.md"
PLACE = re.compile(r"(?<=<!-- bench -->\n).*?(?=<!-- /bench -->)", re.DOTALL)


def written(readme: str, record: dict) -> str:
    """The README with the table of that measurement in its place."""
    table = report.markdown(record)
    return PLACE.sub(lambda found: f"{table}\n", readme)


if __name__ == "__main__":
    results = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    README.write_text(written(README.read_text(), json.loads(results.read_text())))
