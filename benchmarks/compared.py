"""Keep what a comparison found, for the guide: ``python benchmarks/compared.py NAME FOLDER``."""

import json
import shlex
import sys
import time
from pathlib import Path

from normkit.lab.report.exports import records
from normkit.lab.result import Result

RESULTS = Path(__file__).parent / "results"


def kept(folder: str) -> dict:
    """What is kept: the command, the machine, the table, and what it comes to in words."""
    result = Result(folder)
    plan = result.comparison.plan
    words = [Path(plan["command"][0]).name, *plan["command"][1:]]
    words = words[: words.index("--out")] if "--out" in words else words
    found = {"command": shlex.join(words), "date": time.strftime("%Y-%m-%d"), "machine": plan["environment"]}
    return {**found, "headline": result.headline, "answer": result.answer, "rows": records(result.rows)}


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    (RESULTS / f"compare-{name}.json").write_text(json.dumps(kept(folder), indent=1) + "\n")
