"""The tables of ``docs/third-party.md``: whose code the recorded numbers are from, and under which licence.

Licences are kept in ``docs/third-party.tsv``, a row a repository, written by hand. Which methods have numbers from
which is read from the ``source`` of their goldens. A release asks for a row of each repository:

    python docs/notices.py
"""

from __future__ import annotations

import collections
import csv
import json
import pathlib
import re
from collections.abc import Iterator

import numpy as np

import normkit as nk

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROWS, GOLDENS = ROOT / "docs/third-party.tsv", ROOT / "tests/goldens"
COLUMNS = ("repository", "licence", "holder", "read", "at", "note")
PERMISSIVE = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Clear"}
SPDX = {*PERMISSIVE, "GPL-2.0-only", "GPL-3.0-only", "AGPL-3.0-only", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0"}
NEITHER = {"none", "unknown"}

OWNER_AND_NAME = re.compile(r"(?<![\w./-])([A-Za-z0-9][\w-]*/[\w.-]*\w)(?![\w/])")
WITHIN = re.compile(  # two names and a slash that are a file, a folder of the repository named before, or words
    r"\.(?:py|m|md|lua|cpp|cu|ipynb)$|^models/|^(?:method/\w+|online-norm/pytorch|src_lla/hessian)$"
    r"|^(?:Domain/Office-Home|Results/Filter|linear/leaky-softplus)$"
)
PACKAGES = {
    "diffusers": "huggingface/diffusers",
    "dit": "dit/dit",
    "pytorch_optimizer": "kozistr/pytorch_optimizer",
    "rapidfuzz": "rapidfuzz/RapidFuzz",
    "scikit-learn": "scikit-learn/scikit-learn",
    "scipy": "scipy/scipy",
    "scispacy": "allenai/scispacy",
    "timm": "huggingface/pytorch-image-models",
    "torch": "pytorch/pytorch",
    "transformers": "huggingface/transformers",
    "verl": "volcengine/verl",
}
PACKAGE = re.compile(rf"^(?:HF )?({'|'.join(PACKAGES)})\b|\b({'|'.join(PACKAGES)})(?= \d|\.[a-z]|')")
WORDS = {"SimpleRMSNormTorch": "OpenNLPLab/lightning-attention", "STORM": "STORM"}  # of sources without an address


def sources(folder: pathlib.Path = GOLDENS) -> Iterator[tuple[str, str]]:
    """Return each golden's method and where it is from."""
    for path in sorted(folder.glob("*/*")):
        if path.suffix == ".json":
            yield path.parent.name, json.loads(path.read_text(encoding="utf-8"))["source"]
        elif path.suffix == ".npz":
            with np.load(path) as file:
                yield path.parent.name, json.loads(str(file["meta"]))["source"]


def repositories(source: str) -> set[str]:
    """Return the repositories that a golden's source names, a package by its repository."""
    named = {name for name in OWNER_AND_NAME.findall(source) if not WITHIN.search(name)}
    packages = {PACKAGES[first or later] for first, later in PACKAGE.findall(source)}
    return named | packages | {name for word, name in WORDS.items() if re.search(rf"\b{word}\b", source)}


def methods() -> dict[str, list[str]]:
    """Return the methods with numbers from each repository."""
    names = collections.defaultdict(set)
    for method, source in sources():
        for repository in repositories(source):
            names[repository].add(method)
    return {repository: sorted(those) for repository, those in names.items()}


def rows() -> list[dict[str, str]]:
    """Return what is known of each repository."""
    return list(csv.DictReader(ROWS.read_text(encoding="utf-8").splitlines(), delimiter="\t"))


def missing() -> list[str]:
    """Name the repositories whose licence nobody has noted."""
    return sorted(set(methods()) - {row["repository"] for row in rows()})


def line(row: dict[str, str], names: list[str], known: set[str]) -> str:
    """Return a row in Markdown."""
    owner, slash, _ = row["repository"].partition("/")
    address = f"[{row['repository']}](https://github.com/{row['repository']})" if slash else owner
    file = f"`{row['read']}`" if row["read"] != "-" else "nothing"
    place = file if row["at"] == "-" else f"{file} at {row['at']}"
    note = "" if row["note"] == "-" else f"; {row['note']}"
    of = ", ".join(f"[[{name}]]" if name in known else f"`{name}`" for name in names)
    return f"| {address} | {row['licence']} | {row['holder']} | {place}{note} | {of} |"


def tables() -> str:
    """Return how many repositories have which licence, and the repositories."""
    found, names, known = rows(), methods(), set(nk.methods())
    counts = collections.Counter(row["licence"] for row in found)
    return "\n".join(
        [
            "| licence | repositories |",
            "| --- | ---: |",
            *(f"| {licence} | {count} |" for licence, count in counts.most_common()),
            "",
            "| repository | licence | copyright | read in | methods |",
            "| --- | --- | --- | --- | --- |",
            *(line(row, names.get(row["repository"], []), known) for row in found),
        ]
    )


if __name__ == "__main__":
    if without := missing():
        raise SystemExit(f"no row in {ROWS.relative_to(ROOT)}: {', '.join(without)}")
