"""Bring what people wrote to the entries of a vocabulary: fit it once, then map columns of files.

normkit text fit names.csv -o countries          a row a name, columns id and name (or name alone)
normkit text map countries addresses.csv --column country
normkit text evaluate countries known.csv        columns text and id, id empty where there is no entry
normkit text table messy.csv                     names, cells and types that SQL can use
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import itertools
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normkit.columns import number_of, quoted
from normkit.files import beside, name_replaced, replace_file, require_writable
from normkit.safe import say

if TYPE_CHECKING:
    from normkit.text.match import Answer
    from normkit.text.measures.evaluation import Evaluation
    from normkit.text.normalizer import Normalizer

RIGHT = "right_id"
PROPOSED = ("text", "count", "why", *(f"{name}{end}" for name in ("id", "name", "score") for end in ("", "_2")))
NONE = "-"  # in a review, of what has no entry
SHOWN = 5
SQL = {str: "varchar", int: "bigint", float: "double", datetime.date: "date"}


def add_commands(command: argparse.ArgumentParser) -> None:
    """Describe what ``normkit text`` takes."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = command.add_subparsers(dest="step", metavar="STEP", required=True)
    _describe_fit(commands.add_parser("fit", help="make a normalizer of a list of names", description=run_fit.__doc__))
    _describe_map(commands.add_parser("map", help="bring a column to its entries", description=run_map.__doc__))
    entry = commands.add_parser("evaluate", help="measure on mentions that are known", description=run_evaluate.__doc__)
    _describe_evaluate(entry)
    _describe_table(commands.add_parser("table", help="clean a table for SQL", description=run_table.__doc__))
    _describe_train(
        commands.add_parser("train", help="train an encoder or a lexical model", description=run_train.__doc__)
    )


def _describe_fit(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "vocabulary", metavar="NAMES", type=Path, help="a .csv, .tsv, .json or .parquet, or a fitted normalizer"
    )
    command.add_argument(
        "-o", "--out", "--output", dest="output", metavar="DIR", type=Path, required=True, help="the folder to write"
    )
    _describe_names(command)
    command.add_argument("--encoder", metavar="DIR", help="also propose by an encoder, such as 'text train' writes")
    command.add_argument("--cross-encoder", metavar="DIR", help="also score by a model that reads text and name")
    command.add_argument(
        "--legal-forms", action="store_true", help="leave out Inc, GmbH, Ltd and their like at the end of names"
    )
    command.add_argument(
        "--tune", metavar="FILE", type=Path, help="mentions that are known, to fit weights and threshold"
    )
    command.add_argument(
        "--aim", choices=("accuracy", "nil_f1"), help="with --tune: what the threshold is to be best for (accuracy)"
    )
    command.add_argument(
        "--reviewed", metavar="FILE", type=Path, nargs="+", default=[], help="reviews, as further names"
    )
    _describe_known(command)
    _describe_encoding(command)
    command.set_defaults(run=run_fit)


def _describe_encoding(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--encoding", default="utf-8-sig", metavar="NAME", help="of the files that are read, such as cp1252 (UTF-8)"
    )


def _describe_names(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--id", default="id", metavar="COLUMN", help="the column of ids (id); without it, names are ids"
    )
    command.add_argument("--name", default="name", metavar="COLUMN", help="the column of names (name)")


def _describe_known(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--text", default="text", metavar="COLUMN", help="of known mentions, the column of texts (text)"
    )
    command.add_argument("--gold", default="id", metavar="COLUMN", help="the column of their ids, empty for none (id)")


def _describe_map(command: argparse.ArgumentParser) -> None:
    command.add_argument("normalizer", metavar="DIR", type=Path, help="what 'normkit text fit' wrote")
    command.add_argument("file", metavar="FILE", type=Path, help="a table with a header")
    command.add_argument("--column", required=True, metavar="COLUMN", help="the column to map")
    command.add_argument(
        "-o", "--out", "--output", dest="output", metavar="FILE", type=Path, help="where to (FILE-mapped.csv)"
    )
    command.add_argument("--review", metavar="FILE", type=Path, help="where what is unsure goes (FILE-review.csv)")
    _describe_encoding(command)
    command.set_defaults(run=run_map)


def _describe_evaluate(command: argparse.ArgumentParser) -> None:
    command.add_argument("normalizer", metavar="DIR", type=Path, help="what 'normkit text fit' wrote")
    command.add_argument("file", metavar="FILE", type=Path, help="mentions that are known")
    _describe_known(command)
    command.add_argument("--picture", metavar="FILE", type=Path, help="draw what is taken for what, as SVG")
    command.add_argument("--json", action="store_true", help="print the measures as JSON")
    _describe_encoding(command)
    command.set_defaults(run=run_evaluate)


def _describe_table(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", type=Path, help="a table with a header")
    command.add_argument(
        "-o", "--out", "--output", dest="output", metavar="FILE", type=Path, help="where to (FILE-clean.csv)"
    )
    command.add_argument("--decimal", choices=(".", ","), help="the sign before decimals, where it is not clear")
    command.add_argument("--sql", metavar="QUERY", help="also ask the table, called t, by duckdb")
    _describe_encoding(command)
    command.set_defaults(run=run_table)


def _describe_train(command: argparse.ArgumentParser) -> None:
    command.add_argument("kind", choices=("encoder", "lexical"), help="what is trained")
    _describe_names(command)
    command.add_argument("file", metavar="FILE", type=Path, help="names, or for lexical a file of MultiLexNorm")
    command.add_argument(
        "-o", "--out", "--output", dest="output", metavar="DIR", type=Path, required=True, help="the folder to write"
    )
    command.add_argument("--model", metavar="DIR", help="the model to begin with; without it, a small one from nothing")
    command.add_argument("--mentions", metavar="FILE", type=Path, help="for an encoder: mentions that are known")
    command.add_argument("--steps", type=int, default=500, metavar="N", help="batches (500)")
    command.add_argument("--batch", type=int, default=64, metavar="N", help="pairs of a batch (64)")
    command.add_argument("--lr", type=float, metavar="X", help="learning rate")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="of weights, noise and order (0)")
    _describe_known(command)
    _describe_encoding(command)
    command.set_defaults(run=run_train)


def run_fit(options: argparse.Namespace) -> int:
    """Make a normalizer of a list of names, and write it as a folder.

    With --tune, weights and threshold are fitted on mentions whose ids are known, and measured on others of them. With
    --reviewed, what a review by hand has found becomes further names.
    """
    from normkit.text import folder
    from normkit.text.normalizer import Normalizer

    if options.aim and not options.tune:
        raise ValueError("--aim is of --tune: give --tune as well")
    folder.require_writable(options.output)
    if options.vocabulary.is_dir():
        given = options.parser.find_flags(options, "id", "name", "encoder", "cross_encoder", "legal_forms")
        if given:
            raise ValueError(f"only a list of names takes {' and '.join(given)}; a fitted normalizer has its own")
        norm = Normalizer.load(options.vocabulary)
    else:
        norm = _fresh(options).fit(options.vocabulary, options.id, options.name, options.encoding)
    rows = [row for path in options.reviewed for row in reviewed(path, options.encoding, norm.names or {})]
    if rows:
        none = [text for id, text in rows if id == NONE]
        norm.aliases([row for row in rows if row[0] != NONE], none)
        names, others = number_of(len(rows) - len(none), "further name"), number_of(len(none), "text")
        say(f"from reviews: {names}, and {others} that {'means' if len(none) == 1 else 'mean'} no entry")
    if options.tune:
        with _leave_out_warnings():
            say(norm.tune(*read_mentions(options.tune, options), aim=options.aim or "accuracy"))
    over = name_replaced(options.output)
    norm.save(options.output)
    say(norm.report())
    if not options.tune and norm.fusion is None:
        say(f"how sure is it? --tune FILE, with columns {options.text} and {options.gold}, fits and measures it")
    say(f"written to {options.output}{over}")
    return 0


@contextlib.contextmanager
def _leave_out_warnings() -> Iterator[None]:
    """Leave out warnings of tuning and evaluation, which an evaluation ends with where it is printed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Normalizer\.(tune|evaluate): ", UserWarning)
        yield


def _fresh(options: argparse.Namespace) -> Normalizer:
    from normkit.text.normalizer import Normalizer
    from normkit.text.rewrite.fold import fold
    from normkit.text.rewrite.legal_forms import LegalForms

    rewrite = [fold, LegalForms()] if options.legal_forms else fold
    norm = Normalizer(rewrite=rewrite)
    if options.encoder is None and options.cross_encoder is None:
        return norm
    from normkit.text.candidates.dense import Dense
    from normkit.text.rescore.cross_encoder import CrossEncoder

    proposing = [Dense(options.encoder)] if options.encoder else []
    scoring = [CrossEncoder(options.cross_encoder)] if options.cross_encoder else []
    return Normalizer([*norm.candidates, *proposing], [*norm.rescore, *scoring], rewrite=rewrite)


def run_map(options: argparse.Namespace) -> int:
    """Write a table again with the id, the name and the score of each cell of a column beside it.

    What is unsure, or fits nothing, goes to a second file: write the right id into its column right_id, - for none, and
    hand it to 'normkit text fit --reviewed'.
    """
    from normkit.text.normalizer import Normalizer
    from normkit.text.vocabulary import read_table

    output = options.output or _beside(options.file, "mapped")
    path = options.review or _beside(options.file, "review")
    _check_apart({"FILE": options.file, "--output": output, "--review": path})
    _require_csv({"--output": output, "--review": path})
    require_writable(output)
    if options.review:  # of another nothing may be written
        require_writable(path)
    norm, table = Normalizer.load(options.normalizer), read_table(options.file, options.encoding)
    cells = _column(table, options.column, options.file)
    before = reviewed_before(path, options.encoding)
    with progress("mapping") as callback:
        matches = norm.normalize(cells, callback)
    added = {f"{options.column}_{key}": own for key, own in norm.columns(matches).items()}
    clash = sorted(set(added) & set(table))
    if clash:
        raise ValueError(f"{options.file} has a column {clash[0]!r} already; rename it")
    asked = review(norm, matches)
    rows = merged(asked, before)
    if rows:  # written first: where the mapping stands, its review does too
        write_table(path, {key: [row.get(key, "") for row in rows] for key in dict.fromkeys(itertools.chain(*rows))})
    over = name_replaced(output)
    write_table(output, {**table, **added})
    say(f"written to {output}{over}")
    say(summary(norm, matches, asked))
    if asked:
        say(f"to review: {path}; fill in {RIGHT} ({NONE} for none), then")
        say(f"  normkit text fit {options.normalizer} --reviewed {path} -o {options.normalizer}")
    if before:
        say(
            f"{number_of(len(before), 'row')} that somebody filled in before {'is' if len(before) == 1 else 'are'} kept"
        )
    return 0


def _check_apart(places: Mapping[str, Path]) -> None:
    """Require that no file is written over another one."""
    seen: dict[Path, str] = {}
    for name, path in places.items():
        other = seen.setdefault(path.resolve(), name)
        if other != name:
            raise ValueError(f"{name} must be another file than {other}, {path}")


def _require_csv(places: Mapping[str, Path]) -> None:
    """Refuse a table's place whose name promises another form."""
    for name, path in places.items():
        if path.suffix.lower() in (".parquet", ".json", ".xlsx"):
            raise ValueError(f"{name}: a table is written as CSV, and {path} ends in {path.suffix}")


def reviewed_before(path: Path, encoding: str) -> list[dict[str, str]]:
    """Return the rows of a review that somebody has worked on: with a right id, or a column of their own."""
    if not path.exists():
        return []
    table = _read_review(path, encoding)
    missing = [name for name in ("text", RIGHT) if name not in table]
    if missing:
        raise ValueError(f"--review: {path} is there already and has no column {missing[0]!r}; it stays as it is")
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return [row for row in rows if any(cell.strip() for name, cell in row.items() if name not in PROPOSED)]


def merged(rows: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return what is to be looked at now, with what somebody has filled in before, and their other rows behind."""
    by_text = {row["text"]: row for row in before}
    own = [{**row, **{k: v for k, v in by_text.get(row["text"], {}).items() if k not in PROPOSED}} for row in rows]
    texts = {row["text"] for row in rows}
    return own + [dict(row) for row in before if row["text"] not in texts]


def run_evaluate(options: argparse.Namespace) -> int:
    """Measure on mentions whose ids are known: how often the right entry comes first, or a text without one gets none.

    Use others than those that it was tuned on: 'normkit text fit --tune' measures by cross-validation.
    """
    from normkit.text.measures.picture import picture
    from normkit.text.normalizer import Normalizer

    if options.picture:
        require_writable(options.picture)
    norm = Normalizer.load(options.normalizer)
    texts, gold = read_mentions(options.file, options)
    with contextlib.nullcontext() if options.json else _leave_out_warnings():
        evaluation = norm.evaluate(texts, gold)
    if options.json:
        say(json.dumps({name: [value, *evaluation.intervals[name]] for name, value in evaluation.items()}, indent=2))
    else:
        say(evaluation)
        say(*_lines_of(norm, evaluation))
    if options.picture:
        over = name_replaced(options.picture)
        replace_file(options.picture, picture(evaluation, {id: names[0] for id, names in (norm.names or {}).items()}))
        say(f"drawn to {options.picture}{over}", file=sys.stderr)
    return 0


def run_table(options: argparse.Namespace) -> int:
    """Write a table again with names of columns, cells and types that SQL can use, and tell what was done.

    Texts are then in lower case, without accents, notes, brackets at the end and quotes.
    """
    from normkit.text.tables.cleaning import normalize_table
    from normkit.text.vocabulary import read_rows

    output = options.output or _beside(options.file, "clean")
    _check_apart({"FILE": options.file, "--output": output})
    _require_csv({"--output": output})
    rows, delimiter = read_rows(options.file, options.encoding)
    usual = ".," if delimiter == ";" else None  # where columns are parted so, a comma may stand before decimals
    done = normalize_table(rows, decimal=options.decimal or usual)
    over = name_replaced(output)
    write_table(output, done.written)
    say(*done.notes, f"written to {output}{over}")
    if options.sql:
        header, *rows = done.table
        say(_query(options.sql, header, rows))
    return 0


def run_train(options: argparse.Namespace) -> int:
    """Train an encoder that puts mentions near to the names of what they mean, or a lexical model that mends words.

    An encoder learns from names, mistyped, and from known mentions; a lexical model from a file of MultiLexNorm: a line
    a word, a tab, its normal form. --model is the folder of one of sentence-transformers, or a ByT5.
    """
    over = name_replaced(options.output)
    with progress(f"training {options.kind}") as callback:
        how = {name: getattr(options, name) for name in ("model", "steps", "batch", "lr", "seed")}
        trained = _train_encoder if options.kind == "encoder" else _train_lexical
        lines = trained(options, {**how, "progress": callback})
    say(*lines, f"written to {options.output}{over}")
    return 0


def _train_encoder(options: argparse.Namespace, how: Mapping[str, Any]) -> Iterator[str]:
    from normkit.text.training.encoder import fresh_encoder, load_encoder, nearest_share, train_encoder
    from normkit.text.vocabulary import read_vocabulary

    names = read_vocabulary(options.file, options.id, options.name, options.encoding)
    mentions = read_mentions(options.mentions, options) if options.mentions else ([], [])
    path = train_encoder(names, options.output, *mentions, **how)
    first = fresh_encoder(options.seed) if options.model is None else load_encoder(options.model)
    before, after = (nearest_share(one, names, options.seed) for one in (first, load_encoder(str(path))))
    yield f"of names mistyped anew it finds {after:.0%}, and found {before:.0%} before"
    yield f"to use it: normkit text fit {options.file} --encoder {path} -o NORMALIZER"


def _train_lexical(options: argparse.Namespace, how: Mapping[str, Any]) -> Iterator[str]:
    from normkit.text.training.lexical import read_multilexnorm, train_lexical

    if given := options.parser.find_flags(options, "mentions", "id", "name", "text", "gold"):
        raise ValueError(f"only an encoder takes {' and '.join(given)}; a lexical model learns from FILE")
    path = train_lexical(*read_multilexnorm(options.file, options.encoding), options.output, **how)
    yield f"to use it: normkit.text.LexicalModel({str(path)!r})([['u', 'r', 'late']])"


def _query(query: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Ask duckdb; a column has the type of its cells."""
    from normkit.optional import library

    duckdb = library("duckdb")
    types = [next((SQL[type(row[at])] for row in rows if row[at] is not None), "varchar") for at in range(len(header))]
    columns = ", ".join(f'unnest(?::{kind}[]) as "{name}"' for name, kind in zip(header, types, strict=True))
    try:
        with duckdb.connect() as session:  # a column at a time: filled by rows, 200,000 take a minute
            cells = [[row[at] for row in rows] for at in range(len(header))]
            session.execute(f"create table t as select {columns}", cells)
            return str(session.sql(query))
    except duckdb.Error as error:
        raise ValueError(f"--sql: {error}") from None


def read_mentions(path: Path, options: argparse.Namespace) -> tuple[list[str], list[str | None]]:
    """Read mentions and their ids; an empty id stands for none."""
    from normkit.text.vocabulary import read_table

    table = read_table(path, options.encoding)
    return _column(table, options.text, path), [id or None for id in _column(table, options.gold, path)]


def _read_review(path: Path, encoding: str) -> dict[str, list[str]]:
    """Read a review in UTF-8, as it was written, or in the encoding that a spreadsheet has saved it in."""
    from normkit.text.vocabulary import read_table

    with contextlib.suppress(ValueError):
        return read_table(path)
    return read_table(path, encoding)


def reviewed(path: Path, encoding: str, names: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Read the pairs (id, text) that a review by hand has found; the id of what means no entry is a dash.

    Spaces around an id do not count, unless it is so among those of the names.
    """
    table = _read_review(path, encoding)
    pairs = zip(_column(table, RIGHT, path), _column(table, "text", path), strict=True)
    return [(id if id in names else id.strip(), text) for id, text in pairs if id.strip()]


def review(norm: Normalizer, matches: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return a row for each different text that is unsure or was taken for none, the most frequent first."""
    counts = Counter(match.text for match in matches if not norm.is_empty(match.text))
    distinct = {match.text: match for match in matches if match.text in counts}
    rows = []
    for text, number in counts.most_common():
        why = norm.doubt(distinct[text])
        if why:
            rows.append({"text": text, "count": number, RIGHT: "", "why": why, **_propose(norm, distinct[text])})
    return rows


def _propose(norm: Normalizer, match: Answer) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for place in range(2):
        one = match.candidates[place] if place < len(match.candidates) else None
        names = (norm.names or {})[one.id] if one else [""]
        ending = "" if place == 0 else "_2"
        row |= {f"id{ending}": one.id if one else "", f"name{ending}": names[0]}
        row[f"score{ending}"] = round(one.score, 3) if one else ""
    return row


def summary(norm: Normalizer, matches: Sequence[Answer], rows: Sequence[Mapping[str, Any]]) -> str:
    """Say how many cells were mapped, and how many different texts should be looked at."""
    empty = sum(norm.is_empty(match.text) for match in matches)
    mapped = sum(match.id is not None for match in matches)
    cells, left = number_of(len(matches), "cell"), len(matches) - mapped - empty
    lines = [f"{cells}: {mapped} mapped, {left} without an entry, {empty} empty"]
    if rows:
        lines.append(f"{number_of(len(rows), 'different text')} to look at:")
        lines += [f"  {quoted(row['text'])} ({row['count']}x): {row['why']}" for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        lines.append(f"  and {len(rows) - SHOWN} more")
    return "\n".join(lines)


def _lines_of(norm: Normalizer, evaluation: Evaluation) -> Iterator[str]:
    names = norm.names or {}

    def name_of(id: str | None) -> str:
        return "no entry" if id is None else f"{names[id][0]} ({id})" if names.get(id, [id])[0] != id else id

    confusions = evaluation.confusions(SHOWN)
    if confusions:
        yield "what it gets wrong, most often:"
    for gold, given_id, number in confusions:
        yield f"  {name_of(gold)} taken for {name_of(given_id)}: {number}x"


def _column(table: Mapping[str, list[str]], name: str, path: Path) -> list[str]:
    if name not in table:
        raise ValueError(f"{path} has no column {name!r}; its columns are {', '.join(map(repr, table))}")
    return table[name]


def _beside(path: Path, ending: str) -> Path:
    if path.is_dir():
        raise ValueError(f"{path} is a folder; a file is wanted")
    return path.with_name(f"{path.stem}-{ending}.csv")


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write a file whole; None is an empty cell, and numbers have four digits."""
    with beside(path) as temporary, temporary.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(cell) for cell in row] for row in zip(*columns.values(), strict=True))


def _cell(cell: Any) -> Any:
    return f"{cell:.4g}" if isinstance(cell, float) and 0 <= cell < 1 else cell


@contextlib.contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Draw a bar on a terminal, moved by calls of (done, all); None where there is none."""
    from normkit.optional import at_hand

    if not sys.stderr.isatty() or at_hand("rich") is None:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
