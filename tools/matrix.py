"""Write down which versions normkit was tried with: ``docs/matrix.tsv``, and the table of ``docs/matrix.md``.

    python tools/matrix.py RESULT.json ...      # what tools/trial.py printed in each environment becomes a row

An environment is made by hand, as no two are to be had in the same way, and holds normkit from a wheel:

    PYTHON tools/trial.py tests/goldens > RESULT.json

A row is told from another by its versions and its machine; a new result takes the place of the old one.
"""

import csv
import datetime
import io
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS, PAGE = ROOT / "docs/matrix.tsv", ROOT / "docs/matrix.md"
WHERE = ("python", "machine", "torch", "numpy", "transformers", "timm", "accelerate")
COLUMNS = (*WHERE, "kernels", "goldens", "others", "date", "commit")
BEGIN, END = "<!-- matrix -->", "<!-- /matrix -->"


def row(result: dict, date: str, commit: str) -> dict[str, str]:
    """Return what a trial found, as the table has it."""
    goldens = result.get("goldens", {"good": 0, "wrong": {}, "missing": {}})
    problems = result["failed"] | goldens["wrong"] | goldens["missing"]
    others = [f"{name}: {why}" for name, why in problems.items()]
    short = "; no short way for small calls" if result["live"] and not result["short way"] else ""
    return {
        **{name: result[name] or "-" for name in WHERE},
        "kernels": result["doctor"]["C kernels"] + short,
        "goldens": f"{goldens['good']:,} of {sum(map(len, (goldens['wrong'], goldens['missing'])), goldens['good']):,}",
        "others": "; ".join(others) or "-",
        "date": date,
        "commit": commit,
    }


def merged(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return all rows, the new ones in the place of old ones of the same versions."""
    rows = {tuple(one[name] for name in WHERE): one for one in [*old, *new]}

    def place(key: tuple[str, ...]) -> list[list[int]]:
        return [[int(number) for number in part.split(".") if number.isdigit()] for part in key]

    return [rows[key] for key in sorted(rows, key=place)]


def table(rows: list[dict[str, str]]) -> str:
    """Return the rows in Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS), *([one[name] for name in COLUMNS] for one in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def written(page: str, rows: list[dict[str, str]]) -> str:
    """Return the page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{table(rows)}\n{END}{rest.partition(END)[2]}"


def read(text: str) -> list[dict[str, str]]:
    """Return the rows of a file."""
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))


def main() -> None:
    """Add what trials found, and write table and page."""
    commit = subprocess.check_output(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, text=True).strip()
    date = datetime.date.today().isoformat()
    new = [row(json.loads(pathlib.Path(path).read_text()), date, commit) for path in sys.argv[1:]]
    rows = merged(read(ROWS.read_text()) if ROWS.exists() else [], new)
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    ROWS.write_text(file.getvalue())
    PAGE.write_text(written(PAGE.read_text(), rows))


if __name__ == "__main__":
    main()
