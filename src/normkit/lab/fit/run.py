"""Fit densities to data: train one flow or several side by side on the same samples, and measure held-out bits.

DATA is a CSV or parquet table, or an array of NumPy: (rows, columns), or images (N, C, H, W), of bytes or real numbers.
With --score it may be a flow that was fitted before, FLOW.pt.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import shlex
import statistics
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from normkit import density
from normkit.choice import parsed
from normkit.columns import aligned, number_of
from normkit.density._saved import read as load_flow
from normkit.density._saved import save as save_flow
from normkit.files import beside, name_replaced, replace_file, require_writable, writing
from normkit.lab.fit.table import Choice, Observations, few, listed, numbered, numbering, read, read_more
from normkit.lab.fit.training import Fitted, bits_of, fit, normal_law, numbers_of, require_spread_of, split, unlikely
from normkit.lab.logs import nan_to_none
from normkit.optional import require_group
from normkit.safe import say

OUT, SAVED, SCORES, RESULTS, PAGE = "normkit-fit", ".pt", "scores.csv", "results.json", "index.html"
SAMPLES = ("samples.csv", "samples.npy")
OF_DATA = ("flow", "columns", "drop", "categories", "patience", "depth", "hidden", "seeds", "steps", "batch", "lr")
CRASHED, REFUSED = 1, 2  # the command's status where some flows were not fitted, and where none was
EXAMPLES = """examples:
  normkit fit measurements.csv
  normkit fit measurements.csv --drop id site --score new.csv
  normkit fit normkit-fit/spline-autoregressive.pt --score newer.csv
  normkit fit measurements.csv --flow spline-coupling affine-autoregressive --seeds 3
  normkit fit measurements.csv --flow spline-coupling spline-coupling:bins=16,activation=tanh
  normkit fit digits.npy --flow tarflow jet --steps 3000
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Describe what ``fit`` takes."""
    command.description, command.epilog = __doc__, EXAMPLES
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_argument("data", metavar="DATA", help="FILE.csv, FILE.parquet, FILE.npy or FILE.npz; FLOW.pt")
    names = ", ".join(density.FLOWS)
    command.add_argument(
        "--flow",
        nargs="+",
        metavar="NAME",
        help=f"{names} (spline-autoregressive; tarflow of images); arguments follow a colon: spline-coupling:bins=16",
    )
    command.add_argument("--columns", nargs="+", default=[], metavar="NAME", help="columns of a table to take (all)")
    command.add_argument("--drop", nargs="+", default=[], metavar="NAME", help="columns of a table to leave out")
    command.add_argument(
        "--categories", nargs="+", default=[], metavar="NAME", help="columns of categories that are numbers"
    )
    command.add_argument("--sep", metavar="SIGN", help="what separates the columns of a CSV (recognized)")
    command.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each flow (1)")
    command.add_argument("--steps", type=int, default=1000, metavar="N", help="steps of a run (1000)")
    command.add_argument(
        "--patience",
        type=int,
        metavar="N",
        help="steps without fewer bits after which a run ends, 0 for never (a quarter of --steps)",
    )
    command.add_argument("--batch", type=int, default=256, metavar="N", help="samples of a step (256)")
    command.add_argument("--lr", type=float, default=2e-3, metavar="X", help="learning rate at the start (0.002)")
    command.add_argument("--depth", type=int, metavar="N", help="parts of a flow (its own)")
    command.add_argument("--hidden", type=int, metavar="N", help="width of the networks (64)")
    command.add_argument("--samples", type=int, default=1000, metavar="N", help="samples of the best flow (1000)")
    command.add_argument(
        "--score", metavar="FILE", help="new samples, whose densities under the best flow go to scores.csv"
    )
    command.add_argument(
        "-o", "--out", "--output", default=OUT, metavar="DIR", help=f"folder for what is found ({OUT})"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train, tell and write."""
    require_group("lab")
    if options.data.endswith(SAVED):
        return score_by_saved(options)
    require_counts(options)
    data, new = _read(options)
    how = {"steps": options.steps, "batch": options.batch, "lr": options.lr, "patience": options.patience}
    how |= {"patience": options.steps // 4} if options.patience is None else {}
    asked = {key: getattr(options, key) for key in ("depth", "hidden") if getattr(options, key) is not None}
    named = options.flow or ["tarflow" if data.values.ndim == 4 else "spline-autoregressive"]
    require_spread_of(split(data), data)
    event = data.values.shape[1:]
    for text in named:  # a flow that does not fit is named before hours of others
        name, own = parsed(text)
        try:
            density.flow(name, event, **{**asked, **own})
        except ValueError as error:
            if event != (1,) and "event" not in str(error):
                raise
            raise ValueError(f"{options.data} holds {_kind(data)}: {error}") from error
    folder = writable(options)
    if replaces := (folder / RESULTS).exists():
        written = {SAMPLES[data.values.ndim != 2], *map(_saved_as, named)}
        say(_replaced(folder, written | ({SCORES} if new else set())))
    elif (folder / PAGE).exists():
        raise ValueError(f"{folder / PAGE} exists already, and is of no fit; name another folder with --out")
    warn(data)
    fits: list[Fitted] = []
    runs = [(name, seed) for name in dict.fromkeys(named) for seed in range(options.seeds)]
    try:
        for name, seed in runs:
            try:
                fits.append(fit(data, name, seed=seed, **how, **asked))
            except ValueError as error:  # the other flows may well be fitted
                say(f"normkit fit: {error}", file=sys.stderr)
                continue
            if not replaces and best_of_each(fits)[name] is fits[-1]:  # a kill of the process leaves it
                _save(folder, data, fits[-1])
            best, last = fits[-1].steps
            say(
                f"{name}, seed {seed}: {fits[-1].bits.mean():.4f} held-out bits per dimension, "
                f"best at step {best} of {last}{_end(best, last, options.steps)}{_without_density(fits[-1])}",
                flush=True,
            )
    finally:  # also after Ctrl-C
        if fits:
            conclude(folder, options, data, new, fits, runs)
    return 0 if len(fits) == len(runs) else CRASHED if fits else REFUSED


def _end(best: int, last: int, steps: int) -> str:
    """Say why a run ended before all of its steps; nothing where it did not."""
    if last == steps:
        return ""
    return f"; it ended as {number_of(last - best, 'step')} brought no fewer bits, and --patience 0 takes all {steps}"


def _without_density(one: Fitted) -> str:
    """Say of how many held-out rows a flow has no finite density; nothing where it has one of each."""
    count = int(one.bits.isinf().sum())
    has = "has" if count == 1 else "have"
    return f"; {count} of {len(one.bits)} held-out rows {has} no finite density" if count else ""


def conclude(
    folder: Path,
    options: argparse.Namespace,
    data: Observations,
    new: Observations | None,
    fits: Sequence[Fitted],
    runs: Sequence[tuple[str, int]],
) -> None:
    """Write and print what was fitted of the runs that were asked for."""
    done = {(one.name, one.seed) for one in fits}
    table = rows(data, fits, [run for run in runs if run not in done])
    write(folder, Path(options.data).name, data, fits, options.samples, table)
    say()
    say("\n".join(aligned(table)))
    older = {_saved_as(name) for name, _ in runs} - {_saved_as(one.name) for one in fits}
    for place in sorted(folder / name for name in older):
        if place.exists():
            say(f"{place} is of the earlier fit")
    say(f"\n{folder / PAGE}")
    if new is not None:
        winner = min(fits, key=lambda one: one.bits.mean().item())
        say(score(folder, new, winner.flow, winner.bits))


def _kind(data: Observations) -> str:
    """Name what one sample of data is."""
    if data.values.ndim == 4:
        return f"images of {'x'.join(map(str, data.values.shape[1:]))}"
    return f"{number_of(len(data.names), 'column')}, {listed(data.names)}"


def require_counts(options: argparse.Namespace) -> None:
    """Refuse what cannot be counted out, and a learning rate that is none."""
    for name in ("seeds", "steps", "batch", "samples"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1, not {getattr(options, name)}")
    if (options.patience or 0) < 0:
        raise ValueError(f"--patience must be at least 0, not {options.patience}")
    if not 0 < options.lr < math.inf:
        raise ValueError(f"--lr must be above 0, not {options.lr}")


def _read(options: argparse.Namespace) -> tuple[Observations, Observations | None]:
    """Read what a density is fitted to, and new samples if there are any."""
    sep = separator_of(options.sep)
    data = read(options.data, Choice(options.columns, options.drop, sep, options.categories))
    return data, None if options.score is None else read_more(options.score, data, sep)


def separator_of(word: str | None) -> str | None:
    """Return the sign that --sep means."""
    sep = {"\\t": "\t", "tab": "\t"}.get(word or "", word)
    if sep is not None and len(sep) != 1:
        raise ValueError(f"--sep must be one sign, or tab, not {word!r}")
    return sep


def score_by_saved(options: argparse.Namespace) -> int:
    """Score new samples by a flow that was fitted before."""
    if given := options.parser.find_flags(options, *OF_DATA, "samples"):
        raise ValueError(f"{given[0]} is for data; {options.data} is a flow that was fitted before")
    if options.score is None:
        raise ValueError(f"{options.data} is a flow that was fitted before; --score FILE names what it is to score")
    model, more = load_flow(options.data)
    if not more.keys() >= {"data", "held"}:
        raise ValueError(f"{options.data} does not say of which columns it is; fit it again with this normkit")
    shape = tuple(more["data"].pop("shape"))
    data = Observations(np.empty((0, *shape), np.uint8 if more["data"]["bytes"] else np.float64), **more["data"])
    new = read_more(options.score, data, separator_of(options.sep))
    say(score(writable(options), new, model, more["held"]))
    return 0


def writable(options: argparse.Namespace) -> Path:
    """Make the folder, or refuse it before the work, where a file that is read has the name of one that is written."""
    folder = Path(options.out)
    for path in map(Path, filter(None, (options.data, options.score))):
        if path.name in (*SAMPLES, SCORES) and path.resolve().parent == folder.resolve():
            raise ValueError(f"{path} would be written over; name another folder with --out")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        require_writable(folder / PAGE)
    return folder


def _replaced(folder: Path, names: Collection[str]) -> str:
    """Say what a fit to the folder of another one does to that."""
    patterns = (f"*{SAVED}", SCORES, *SAMPLES)
    kept = sorted({path.name for pattern in patterns for path in folder.glob(pattern)} - {*names})
    stays = f"; {', '.join(kept)} of it stay" if kept else ""
    return f"{folder} holds an earlier fit, which is written over{stays}"


def _saved_as(name: str) -> str:
    return f"{name.replace(':', '_')}{SAVED}"


def warn(data: Observations) -> None:
    """Print what of a table's columns makes bits tell little, which are categories, and names that are numbers."""
    names = [name for name in data.names if name]
    if names == numbered(len(names)):
        say(f"columns are named {listed(names)}: a first row of 0, 1, 2 and so on is read as a header, not as data")
    for name, words in data.categories.items():
        say(
            f"column {name!r} has {len(words)} categories, {listed(words)}: they are 0 to {len(words) - 1} and even "
            "noise up to the next number, so that bits are at least those of the categories"
        )
    for name in numbering(data):
        say(f"column {name!r} numbers the rows, and says nothing of them; leave it out: --drop {shlex.quote(name)}")
    for name in few(data):
        say(
            f"column {name!r} has few values: its density has no bound, and bits tell little; leave it out, or read it "
            f"as categories: --categories {shlex.quote(name)}"
        )


def score(folder: Path, new: Observations, flow: density.Flow, held: Tensor) -> str:
    """Write for each new sample its bits, and how many of the held-out samples are less likely than it."""
    held = unlikely(held).sort().values
    bits = bits_of(flow, numbers_of(new, torch.Generator().manual_seed(0)), new)
    share = (len(held) - torch.searchsorted(held, bits, right=True)) / len(held)
    text = io.StringIO()
    head = ("row", "bits_per_dimension", "share_less_likely")
    columns = (column.float().numpy() for column in (bits, share))  # whose numbers are as short as float32's can be
    lines = zip(range(1, len(bits) + 1), *columns, strict=True)
    csv.writer(text, lineterminator="\n").writerows([head, *lines])
    place = folder / SCORES
    over = name_replaced(place)
    replace_file(place, text.getvalue())
    beyond = int((bits > held[-1]).sum())
    count = number_of(len(bits), "new sample")
    return f"{place}{over}: {count}, {beyond} of them less likely than all of the {len(held)} held-out ones"


def rows(data: Observations, fits: Sequence[Fitted], missing: Sequence[tuple[str, int]] = ()) -> list[list[str]]:
    """Return the table: flows by their bits, and a normal law; the error is that of the mean over held-out samples.

    missing: names and seeds of runs that brought no flow.
    """
    law, plain = normal_law(split(data), data)
    lines = [(law, plain.mean().item(), plain - plain, [0.0], 0.0)]
    for name in dict.fromkeys(one.name for one in fits):
        runs = [one for one in fits if one.name == name]
        each = torch.stack([one.bits for one in runs]).mean(0)
        means = [one.bits.mean().item() for one in runs]
        lines.append((name, statistics.mean(means), each - plain, means, statistics.mean(one.seconds for one in runs)))
    head = ["flow", "bits per dimension", "span of seeds", "less than a normal law", "seconds"]
    return (
        [head]
        + [
            [
                name,
                f"{mean:.4f}" if mean < 1e9 else f"{mean:.4g}",  # as of one row that is far from all others
                f"{max(means) - min(means):.4f}" if len(means) > 1 and mean < math.inf else "-",
                f"{-off.mean():.4f} ± {1.96 * off.std() / math.sqrt(len(off)):.4f}"
                if name != law and mean < math.inf
                else "-",
                "-" if name == law else f"{seconds:.1f}",
            ]
            for name, mean, off, means, seconds in sorted(lines, key=lambda line: line[1])
        ]
        + [[f"{name}, seed {seed}", "not fitted", "-", "-", "-"] for name, seed in missing]
    )


def write(
    folder: Path, title: str, data: Observations, fits: Sequence[Fitted], samples: int, table: Sequence[Sequence[str]]
) -> None:
    """Write the report, the best flow of each name, and samples of the best of all.

    What takes long comes first, so that who stops it leaves an earlier fit as it was.
    """
    from normkit.lab.fit import page

    ordered = sorted(fits, key=lambda one: one.bits.mean().item())
    text = page.page(f"Densities of {title}", data, split(data), ordered, table)
    _write_samples(folder, data, ordered[0], samples)
    for one in best_of_each(fits).values():
        _save(folder, data, one)
    results = [
        {"flow": one.name, "seed": one.seed, "bits": one.bits.mean().item(), "seconds": one.seconds, "curve": one.curve}
        for one in fits
    ]
    replace_file(folder / RESULTS, json.dumps(nan_to_none(results), indent=2))
    replace_file(folder / PAGE, text)


def best_of_each(fits: Sequence[Fitted]) -> dict[str, Fitted]:
    """Return the run with the fewest bits of each flow."""
    best: dict[str, Fitted] = {}
    for one in sorted(fits, key=lambda one: one.bits.mean().item()):
        best.setdefault(one.name, one)
    return best


def _save(folder: Path, data: Observations, one: Fitted) -> None:
    save_flow(folder / _saved_as(one.name), one.flow, one.built, data=_describe(data), held=one.bits)


def _write_samples(folder: Path, data: Observations, best: Fitted, count: int) -> None:
    torch.manual_seed(0)
    samples: Any = best.flow.sample(count).numpy()
    if data.bytes:
        samples = np.clip(samples * 256, 0, 255).astype(np.uint8)
    if samples.ndim == 2:
        text, columns = io.StringIO(), [*samples.T]
        for place, name in enumerate(data.names):
            if name in data.categories:
                columns[place] = _words(samples[:, place], data.categories[name])
        csv.writer(text, lineterminator="\n").writerows([data.names, *zip(*columns, strict=True)])
        replace_file(folder / SAMPLES[0], text.getvalue())
    else:
        with beside(folder / SAMPLES[1]) as temp_path, temp_path.open("wb") as file:
            np.save(file, samples)


def _words(numbers: np.ndarray, categories: Sequence[str]) -> list[str]:
    """Return the category that each number lies in, the nearest one of those beyond all."""
    places = np.clip(np.floor(numbers), 0, len(categories) - 1).astype(int)
    return [categories[place] for place in places]


def _describe(data: Observations) -> dict[str, Any]:
    """What must be known of data to read more of it, as plain values."""
    categories = {name: list(words) for name, words in data.categories.items()}
    return {"names": data.names, "bytes": data.bytes, "categories": categories, "shape": list(data.values.shape[1:])}
