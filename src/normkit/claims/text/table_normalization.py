"""What NormTab claims of SQL on normalized tables."""

import random
import sqlite3
from functools import partial

import normkit as nk
from normkit.claims.kinds import Measured, above

HEADER = ["year", "winner", "country", "team"]
WORDS = ["anna", "bruno", "clara", "diego", "elena", "fabio", "greta", "hugo", "irene", "jonas", "karin", "luca"]
SIGNS = ("{}*", "{} ", "({})", "{}?")
NOTES = ("{} [1]", "{}†", '"{}"', "{} (tie)", "{}  ", "{}.", "{}[note 2]")
QUESTIONS = 40


def table(generator):
    """A clean table of 12 rows, whose winners differ."""
    rows = [[str(1990 + place), *(generator.choice(WORDS) for _ in range(2)), "team " + generator.choice(WORDS)]
            for place in range(12)]  # fmt: skip
    winners = generator.sample(WORDS, len(rows))
    return [[*HEADER], *([row[0], winner, *row[2:]] for row, winner in zip(rows, winners, strict=True))]


def corrupted(clean, generator):
    """The same with signs behind names of columns, and notes, capitals and quotes in half of the cells."""
    header = [generator.choice(SIGNS).format(name) if generator.random() < 0.5 else name for name in clean[0]]
    return [header, *([_noted(cell, generator) for cell in row] for row in clean[1:])]


def _noted(cell, generator):
    if generator.random() < 0.5:
        return cell
    return generator.choice(NOTES).format(generator.choice([str.title, str.upper, str])(cell))


def normalized(rows):
    """The table as the method writes it."""
    method = nk.TableNormalization()
    return [method.column_names(rows[0]), *([method.cell(cell) for cell in row] for row in rows[1:])]


def right(given, clean, generator):
    """The share of questions to a table that SQL answers as on the clean one, case and spaces apart."""
    base = sqlite3.connect(":memory:")
    base.execute("create table t (" + ", ".join(f"[{name}]" for name in given[0]) + ")")
    base.executemany("insert into t values (?, ?, ?, ?)", given[1:])
    hits = 0
    for _ in range(QUESTIONS):
        row, asked = generator.choice(clean[1:]), generator.choice([0, 2, 3])
        try:
            rows = base.execute(f"select [{HEADER[asked]}] from t where [winner] = ?", (row[1],)).fetchall()
        except sqlite3.OperationalError:
            continue
        hits += [own[0].strip().lower() for own in rows] == [row[asked]]
    base.close()
    return hits / QUESTIONS


def gain(seed, clean=False):
    """By how much the share of right answers grows, over 10 tables."""
    generator, total = random.Random(seed), 0.0
    for _ in range(10):
        true = table(generator)
        rows = true if clean else corrupted(true, generator)
        total += right(normalized(rows), true, generator) - right(rows, true, generator)
    return total / 10


def unchanged(seed, clean=True):
    """The share of tables that stay as they are."""
    generator, same = random.Random(seed), 0
    for _ in range(50):
        rows = table(generator) if clean else corrupted(table(generator), generator)
        same += normalized(rows) == rows
    return same / 50


CLAIMS = [
    Measured(
        "answers",
        says="On tables with notes, signs and capitals SQL answers 20 points more questions rightly, or more.",
        measure=gain,
        wanted=above(0.2),
        control=partial(gain, clean=True),
        against="clean tables",
        number="gain of the share of right answers",
        reach="proxy",
    ),
    Measured(
        "clean",
        says="Clean tables stay as they are.",
        measure=unchanged,
        wanted=above(1.0),
        control=partial(unchanged, clean=False),
        against="tables with notes, signs and capitals",
        number="share that stays",
        reach="proxy",
    ),
]
