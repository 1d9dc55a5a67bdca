"""Ask the search of a built site what people type: ``python -m tests.search SITE``.

Each line of ``queries.tsv`` is a query and the pages that answer it. The wanted page must be first in 90 %, and among
the first three in 98 %.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FIRST, THREE = 0.9, 0.98


def ranks(site: str, queries: list[list[str]]) -> list[float]:
    """Return the rank of the wanted page for each query; infinite beyond the tenth."""
    typed = "\n".join(query for query, _ in queries)
    command = ["node", str(HERE / "search.js"), site]
    answers = subprocess.run(command, input=typed, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        next((rank for rank, page in enumerate(json.loads(answer), 1) if plain(page) in wanted.split()), float("inf"))
        for (_, wanted), answer in zip(queries, answers, strict=True)
    ]


def plain(page: str) -> str:
    """Return the address of a page without what tells how its file is called."""
    return page.removesuffix("index.html").replace(".html", "/")


def main(site: str) -> int:
    """Print what is not answered first, and the shares; return 1 where they are too low."""
    if shutil.which("node") is None:
        print("node is not installed: the search was not tried")
        return 0
    queries = [line.split("\t") for line in (HERE / "queries.tsv").read_text(encoding="utf-8").splitlines()]
    places = ranks(site, queries)
    for (query, _), place in zip(queries, places, strict=True):
        if place > 1:
            print(f"{place:>4}  {query}")
    first, three = (sum(place <= most for place in places) / len(places) for most in (1, 3))
    print(f"{len(queries)} queries: the wanted page is first in {first:.0%}, among the first three in {three:.0%}")
    return int(first < FIRST or three < THREE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
