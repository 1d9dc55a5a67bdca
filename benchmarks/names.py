"""Print the methods of a record, for the command that makes it anew: ``python benchmarks/names.py cpu-gradient``."""

import json
import sys
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def names(record: str) -> list[str]:
    """The methods of a record's rows and of those that failed; of decoders, normkit's placements."""
    made = json.loads((RESULTS / f"{record}.json").read_text())
    rows = [row["method"] if "method" in row else row["entrant"] for row in made["rows"]]
    ours = [
        row.removeprefix("normkit ") for row in rows if "decoder" not in made["rows"][0] or row.startswith("normkit ")
    ]
    return list(dict.fromkeys([*ours, *(case.split()[0] for case in made["failed"])]))


if __name__ == "__main__":
    print(*names(sys.argv[1]))
