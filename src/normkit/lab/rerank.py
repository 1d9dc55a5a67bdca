"""Find the best items of a gallery for each query with normalized scores; tell how uneven that was before and after.

Tables are .npy files of shape (rows, features), or .parquet files with a column of lists of numbers. The matrix of all
similarities is never held: a gallery of a million vectors takes little more memory than the vectors.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normkit import catalog, check
from normkit.columns import aligned
from normkit.files import beside, name_replaced
from normkit.inference.hubness import Hubness, counted
from normkit.inference.retrieval import BANKS, retrieve
from normkit.lab.files import native
from normkit.optional import require
from normkit.safe import say

METHODS = [name for name in BANKS if name]
KS = (1, 5, 10)
TABLES = ("a table of other queries", "one of other items")  # that a softmax takes beside, in its order
MEASURES = {
    "skewness": "skewness over the items that were found",
    "full_skewness": "skewness over all items",
    "antihubs": "share of items never found",
    "largest": "how often the most frequent item is found",
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe what ``rerank`` takes."""
    command.add_argument("queries", metavar="QUERIES", help="a table of queries, .npy or .parquet")
    command.add_argument("gallery", metavar="GALLERY", help="a table of what is searched")
    command.add_argument(
        "--method",
        default="inverted-softmax",
        metavar="NAME",
        help=f"{', '.join(METHODS)}; with arguments: inverted-softmax:beta=30 (inverted-softmax)",
    )
    command.add_argument(
        "--bank",
        nargs="+",
        default=[],
        metavar="TABLE",
        help="what the method takes beside: a bank of queries, then one of gallery items, or a background",
    )
    command.add_argument("--count", type=int, default=10, metavar="N", help="items of each query (10)")
    command.add_argument("--cosine", action="store_true", help="divide every vector by its length first")
    command.add_argument("--column", metavar="NAME", help="the column of a .parquet file (the only one of lists)")
    command.add_argument(
        "-o",
        "--out",
        "--output",
        dest="output",
        metavar="FILE",
        help="write scores and index, (queries, N) each, to an .npz",
    )
    command.add_argument(
        "--truth", metavar="FILE", help="an .npy of the right items' places, (queries) or (queries, M), -1 for none"
    )
    command.add_argument("--json", action="store_true", help="print the measures as JSON")
    command.set_defaults(run=run_rerank)


def run_rerank(options: argparse.Namespace) -> int:
    """Retrieve twice, by plain and by normalized scores, and print the measures of both."""
    choice = catalog.find(options.method)
    method = check.choice("rerank", "--method", choice.card.name, METHODS)
    choice.create()  # names an argument that it does not take, such as one of the command's own
    names = [options.queries, options.gallery, *options.bank]
    for name in names:
        if not Path(name).is_file():
            raise ValueError(f"rerank: there is no file {name}")
    if options.column and not any(name.endswith(".parquet") for name in names):
        raise ValueError("rerank: --column is of a .parquet file, and no table is one")
    if len(options.bank) != BANKS[method]:
        expected = "a background" if method == "score-normalization" else " and ".join(TABLES[: BANKS[method]])
        raise ValueError(
            f"rerank: --bank must name {BANKS[method]} for {method}, {expected}, but names {len(options.bank)}"
        )
    if options.output and not options.output.endswith(".npz"):
        raise ValueError(f"rerank: --output must end in .npz, not {options.output!r}")
    tables = [table(name, options.column) for name in names]
    if options.cosine:
        tables = [torch.nn.functional.normalize(x, dim=1) for x in tables]
    truth = None if options.truth is None else right_items(options.truth, *map(len, tables[:2]))
    with beside(Path(options.output)) if options.output else nullcontext() as place:  # refused before the work
        before = retrieve(*tables[:2], count=options.count)
        after = retrieve(*tables, method=method, count=options.count, **choice.arguments)
        if place:
            over = name_replaced(Path(options.output))
            write(place, after.scores, after.index)
    moved = float((before.index[:, 0] != after.index[:, 0]).double().mean())
    measures = [counted(retrieval.index, len(tables[1])) for retrieval in (before, after)]
    recalls = {} if truth is None else recall(truth, before.index, after.index)
    say(summary(measures[0], measures[1], moved, options.json, recalls))
    if options.output:
        say(f"written to {options.output}{over}", file=sys.stderr)
    risen = [float(one.full_skewness) for one in measures]
    if risen[1] > risen[0]:
        say(
            f"the hubs grew with {method}: skewness over all items rose from {risen[0]:.4g} to {risen[1]:.4g}; "
            "plain scores, another method or another bank are better here",
            file=sys.stderr,
        )
    return 0


def right_items(name: str, queries: int, items: int) -> Tensor:
    """Read the places of the items that are right for each query, (queries, M), -1 where there are fewer."""
    if not name.endswith(".npy") or not Path(name).is_file():
        raise ValueError(f"rerank: --truth must be an .npy that is there, not {name}")
    indices = _npy(name)
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2) or len(indices) != queries:
        raise ValueError(
            f"rerank: --truth must hold whole numbers for each of {queries} queries, but has {indices.dtype} of shape "
            f"{indices.shape}"
        )
    places = torch.from_numpy(indices.astype(np.int64)).reshape(queries, -1)
    if not places.numel() or places.min() < -1 or places.max() >= items:
        raise ValueError(f"rerank: --truth must lie in -1 .. {items - 1}")
    if not (places >= 0).any():
        raise ValueError("rerank: --truth names no right item")
    return places


def recall(truth: Tensor, *indices: Tensor) -> dict[str, tuple[float, ...]]:
    """Return, by k, the share of the queries that have a right item which find one among their first k."""
    asked = (truth >= 0).any(1)
    count = indices[0].shape[1]
    recalls = {}
    for k in sorted({k for k in KS if k < count} | {count}):
        hits = [(index[asked, :k, None] == truth[asked][:, None]).any(2).any(1) for index in indices]
        recalls[f"recall@{k}"] = tuple(hit.double().mean().item() for hit in hits)
    return recalls


def summary(
    before: Hubness, after: Hubness, moved: float, as_json: bool, recalls: Mapping[str, tuple[float, ...]] = {}
) -> str:
    """Write the measures."""
    both = {name: (float(getattr(before, name)), float(getattr(after, name))) for name in MEASURES}
    both |= {name: (a, b) for name, (a, b) in recalls.items()}
    if as_json:
        return json.dumps({**{k: {"before": a, "after": b} for k, (a, b) in both.items()}, "best_changed": moved})
    rows = [("", "before", "after")] + [(MEASURES.get(k, k), f"{a:.4g}", f"{b:.4g}") for k, (a, b) in both.items()]
    return "\n".join([*aligned(rows), f"another best item for {moved:.1%} of the queries"])


def table(name: str, column: str | None = None) -> Tensor:
    """Read a table of vectors; nothing in it is unpickled."""
    suffix = Path(name).suffix
    if suffix not in (".npy", ".parquet"):
        raise ValueError(f"rerank: {name} must be .npy or .parquet")
    values: Any = _npy(name) if suffix == ".npy" else _parquet(name, column)
    if values.ndim != 2 or not len(values) or values.dtype.kind not in "fiu":
        raise ValueError(f"rerank: {name} must hold rows of numbers, but has {values.dtype} of shape {values.shape}")
    values = torch.from_numpy(values if values.dtype.kind == "f" else values.astype(np.float32))
    return values if values.dtype == torch.float64 else values.float()


def _npy(name: str) -> np.ndarray:
    try:
        values = np.load(name, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"rerank: {name} must be an array of numbers as numpy.save writes it: {error}") from error
    if not isinstance(values, np.ndarray):
        raise ValueError(f"rerank: {name} must be an array of numbers as numpy.save writes it, not an archive")
    return native(values)


def _parquet(name: str, column: str | None) -> np.ndarray:
    require("pyarrow")
    arrow: Any = importlib.import_module("pyarrow")
    read = importlib.import_module("pyarrow.parquet").read_table(name)
    lists = [field.name for field in read.schema if _is_list(arrow, field.type)]
    if column is None and len(lists) != 1:
        raise ValueError(f"rerank: {name} has the columns of lists {lists}; --column says which")
    column = lists[0] if column is None else check.choice("rerank", "--column", column, lists)
    rows = read.column(column)
    lengths = importlib.import_module("pyarrow.compute").list_value_length(rows).unique().to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise ValueError(f"rerank: the vectors of {name} in {column} must have one length, not {lengths}")
    flat = np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in rows.chunks])
    return flat.reshape(len(rows), -1)


def _is_list(arrow: Any, kind: Any) -> bool:
    return arrow.types.is_list(kind) or arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind)


def write(path: Path, scores: Tensor, index: Tensor) -> None:
    """Write an .npz of whatever name."""
    with path.open("wb") as file:
        np.savez(file, scores=scores.numpy(), index=index.numpy())
