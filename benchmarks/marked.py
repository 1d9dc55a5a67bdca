"""Tables that a measurement writes into a page, between two marks."""

import argparse
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def put(page: Path, name: str, text: str) -> None:
    """Put a text between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    mark, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = page.read_text(encoding="utf-8").split(mark)
    page.write_text(f"{before}{mark}{text}{end}{rest.split(end)[1]}", encoding="utf-8")


def print_or_put(about: str | None, page: Path, name: str, table: Callable[[], str]) -> None:
    """Print a table, or put it into a page where ``--write`` is given."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--write", action="store_true", help=f"put the table in {page.relative_to(ROOT)}")
    write, made = parser.parse_args().write, table()
    put(page, name, f"\n{made}") if write else print(made)
