"""Notebooks: run their cells, keep what they show, and make pages of them; ``python docs/notebooks.py`` runs all anew.

A cell shows what it prints, and its last line if that is an expression, as in Jupyter.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "notebooks"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?")


def paths() -> list[Path]:
    """All notebooks, by name."""
    return sorted(HERE.glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """Return a notebook's content."""
    return json.loads(path.read_text(encoding="utf-8"))


def run(notebook: dict[str, Any], name: str) -> list[str]:
    """Run the cells of code in a scope that they share; return what each shows."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for at, cell in enumerate(cell for cell in notebook["cells"] if cell["cell_type"] == "code"):
        printed = io.StringIO()
        tree = ast.parse("".join(cell["source"]), f"cell {at} of {name}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(tree, f"cell {at} of {name}", "exec"), scope)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"cell {at} of {name}", "eval"), scope)
                print(*([repr(value)] if value is not None else []), sep="", end="\n" if value is not None else "")
        shown.append("\n".join(line.rstrip() for line in printed.getvalue().splitlines()))
    return shown


def kept(notebook: dict[str, Any]) -> list[str]:
    """What each cell of code showed when the notebook was written."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join(text for output in cell["outputs"] for text in output["text"]).rstrip("\n") for cell in cells]


def alike(now: str, before: str, part: float = 0.15, least: float = 0.02) -> bool:
    """Whether two outputs have the same words, and numbers that differ by rounding on another machine at most.

    >>> alike("loss 0.512 after 60", "loss 0.513 after 60"), alike("loss 0.5", "loss 0.9")
    (True, False)
    """

    def words(text: str) -> str:
        return " ".join(re.sub("─+", "─", NUMBER.sub("0", text)).split())

    pairs = zip(NUMBER.findall(now), NUMBER.findall(before), strict=False)
    return words(now) == words(before) and all(
        abs(float(a) - float(b)) <= max(least, part * abs(float(b))) for a, b in pairs
    )


def page(path: Path) -> str:
    """A notebook as a page: its words, its code, and what each cell showed."""
    notebook = read(path)
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        output = "".join(text for output in cell["outputs"] for text in output["text"]).rstrip("\n")
        parts += [f"```\n{output}\n```"] if output else []
    parts.insert(
        1, f"*A notebook: [take the file]({path.name}){{ download }}. It runs in half a minute on a processor.*"
    )
    return "\n\n".join(parts) + "\n"


def write(path: Path) -> None:
    """Run a notebook and keep what its cells show."""
    notebook = read(path)
    shown = iter(run(notebook, path.name))
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"
        if cell["cell_type"] == "code":
            text = next(shown)
            outputs = [{"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}]
            cell |= {"execution_count": None, "outputs": outputs if text else []}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for path in [p for p in paths() if not sys.argv[1:] or p.stem in sys.argv[1:]]:
        write(path)
