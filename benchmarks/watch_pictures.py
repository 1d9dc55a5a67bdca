"""Draw the pictures of docs/watch.md: five runs that are ill, and what the watch says of each.

python benchmarks/watch_pictures.py            # all of them, into docs/
python benchmarks/watch_pictures.py -k rate-too-high --out rate.svg
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import ill_runs
from ill_runs import Run
from normkit.watching.drawn import draw

DOCS = Path(__file__).parents[1] / "docs"
RUNS = {
    "rate-too-high": (ill_runs.rate_too_high, 2, "Update over weight"),
    "dead-units": (partial(ill_runs.dead_units, kind="mlp"), 2, "Dead channels"),
    "vanishing-gradient": (partial(ill_runs.vanishing, kind="mlp"), 10, "Gradient"),
    "entropy-collapse": (ill_runs.logit_growth, 16, "Attention entropy"),
    "data-not-finite": (ill_runs.nan_data, 40, "Size of what layers give"),
}
"""Each illness: how it is planted, the seed, and the picture that shows it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", dest="name", choices=RUNS, help="only this one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in [options.name] if options.name else RUNS:
        plant, seed, title = RUNS[name]
        run = Run(seed)
        plant(run)
        run.every, run.tries = 5, True
        print(run.diagnosis(), "\n")
        chosen = [picture for picture in run.seen.pictures() if picture["title"] == title]
        draw(options.out or DOCS / f"watch-{name}.svg", chosen)


if __name__ == "__main__":
    main()
