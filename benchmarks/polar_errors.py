"""How far polar factors by products are from those by singular vectors, by condition number and type.

python benchmarks/polar_errors.py            # the table of docs/optimizers.md
python benchmarks/polar_errors.py --write    # writes it there, and docs/optimizers-polar.svg

A matrix of 192 x 64 with singular values from 1 down to 1 / condition, evenly in their logarithm, is brought to its
polar factor in float64 by singular vectors, and in each type by the others. The error is the largest singular value of
the difference, a median over three matrices.
"""

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import normkit as nk
from normkit import ops
from normkit.columns import aligned
from normkit.gradient.polar_factor import exact
from normkit.ops.polar import MUON, polar_express

PAGE = Path(__file__).parents[1] / "docs" / "optimizers.md"
PICTURE = PAGE.with_name("optimizers-polar.svg")
ROWS, COLUMNS, MATRICES = 192, 64, 3
CONDITIONS = (1e1, 1e2, 1e3, 1e4, 1e6)
TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
Method = Callable[[Tensor], Tensor]
METHODS: dict[str, Method] = {
    "newton-schulz, 5 steps": lambda x: ops.polar(x, [MUON] * 5),
    "the same on the Gram matrix": lambda x: ops.polar(x, [MUON] * 5, gram=True),
    "polar-express, 5 steps": lambda x: nk.polar_factor(x, method="polar-express", steps=5),
    "polar-express, 8 steps": lambda x: nk.polar_factor(x, method="polar-express", steps=8),
    "the same on the Gram matrix, 8": lambda x: ops.polar(x, polar_express(10)[:8], safety=1.01, gram=True),
    "cans, 8 steps": lambda x: nk.polar_factor(x, method="cans", steps=8),
    "halley, 4 steps": lambda x: nk.polar_factor(x, method="halley", steps=4),
    "halley, 6 steps, lower 1e-7": lambda x: nk.polar_factor(x, method="halley", steps=6, lower=1e-7),
    "svd": lambda x: nk.polar_factor(x, method="svd"),
}


def matrix(condition: float, seed: int) -> Tensor:
    """Draw a matrix of a condition number."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(ROWS, n, generator=generator, dtype=torch.float64) for n in (COLUMNS, COLUMNS))
    u, v = torch.linalg.qr(left)[0], torch.linalg.qr(right[:COLUMNS])[0]
    return u * torch.logspace(0, -torch.tensor(condition).log10().item(), COLUMNS, dtype=torch.float64) @ v.T


def error(method: str, kind: str, condition: float) -> float:
    """The error of a method in a type."""
    errors = []
    for seed in range(MATRICES):
        x = matrix(condition, seed)
        found = METHODS[method](x.to(TYPES[kind])).double()
        errors.append(float(torch.linalg.matrix_norm(found - exact(x), 2)))
    return statistics.median(errors)


def table(kinds: tuple[str, ...] = tuple(TYPES)) -> list[tuple[str, ...]]:
    """A row a method and type, below the titles of the columns."""
    rows = [("method", "type", *(f"{condition:.0e}" for condition in CONDITIONS))]
    for method in METHODS:
        for kind in kinds:
            rows.append((method, kind, *(f"{error(method, kind, condition):.0e}" for condition in CONDITIONS)))
    return rows


def markdown(rows: list[tuple[str, ...]]) -> str:
    """The table as the page has it."""
    lines = [" | ".join(row) for row in (rows[0], ("---",) * len(rows[0]), *rows[1:])]
    return "\n".join(f"| {line} |" for line in lines)


def draw() -> None:
    """Write the picture: a panel a type, a line a method."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "normkit"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(TYPES), figsize=(10.5, 3.6), sharey=True, layout="constrained")
    for axes, kind in zip(panels, TYPES, strict=True):
        for place, method in enumerate(METHODS):
            errors = [error(method, kind, condition) for condition in CONDITIONS]
            axes.loglog(CONDITIONS, errors, ("-o", "--s", ":^")[place % 3], ms=3.5, label=method)
        axes.set(title=kind, xlabel="condition number")
    panels[0].set_ylabel("largest singular value of the error")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=7, loc="outside right center")
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Print the table, or write it and the picture."""
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--write", action="store_true", help=f"write {PAGE.name} and {PICTURE.name}")
    torch.set_num_threads(1)
    rows = table()
    if command.parse_args().write:
        from marked import put  # beside this file

        put(PAGE, "polar errors", f"\n{markdown(rows)}\n\n")
        draw()
    print("\n".join(aligned(rows)))


if __name__ == "__main__":
    main()
