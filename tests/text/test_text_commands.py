"""``normkit text`` as it is typed: from a list of names to a mapped column, a review, and back."""

import csv
import datetime
import json
import os
import random
import re
import subprocess
import sys
import time
import warnings

import pandas
import pytest

from normkit import cli, text
from normkit.text import commands

NAMES = "id;name\nCH-BE;Bern\nCH-BE;Berne\nCH-GE;Genève\nCH-GE;Geneva\nCH-ZH;Zürich\nCH-VD;Lausanne\n"
VISITS = (
    "\ufeffcity;visitors;when;budget\nGeneve;1.200;03.02.2024;10-20\nzurich ;300;12.02.2024;n/a\nBerne;;;5-7\n"
    '"Lauzanne, VD";77;01.03.2024;1-2\nAtlantis;1;;\n;;;\nTotal;1.578;;\n'
)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "names.csv").write_text(NAMES, encoding="utf-8")
    (tmp_path / "visits.csv").write_text(VISITS, encoding="utf-8")
    return tmp_path


def run(capsys, line, status=0):
    assert cli.main(["text", *line.split()]) == status
    found = capsys.readouterr()
    return found.out if status == 0 else found.err


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_column_is_mapped_reviewed_and_mapped_again(desk, capsys):
    assert "4 entries with 6 names" in run(capsys, "fit names.csv -o swiss")
    out = run(capsys, "map swiss visits.csv --column city")
    assert "7 cells: 3 mapped, 3 without an entry, 1 empty" in out
    assert "'Lauzanne, VD' (1x): nearly fits" in out
    mapped = rows(desk / "visits-mapped.csv")
    assert [row["city_id"] for row in mapped] == ["CH-GE", "CH-ZH", "CH-BE", "", "", "", ""]
    assert [row["city_name"] for row in mapped][:3] == ["Genève", "Zürich", "Bern"]
    assert [row["visitors"] for row in mapped][:2] == ["1.200", "300"]
    review = rows(desk / "visits-review.csv")
    assert [(row["text"], row["id"], row["right_id"]) for row in review] == [
        ("Lauzanne, VD", "CH-VD", ""),
        ("Atlantis", "", ""),
        ("Total", "", ""),
    ]
    review[0]["right_id"], review[1]["right_id"] = "CH-VD", "-"
    with (desk / "visits-review.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, review[0])
        writer.writeheader()
        writer.writerows(review)
    told = run(capsys, "fit swiss --reviewed visits-review.csv -o swiss")
    assert "from reviews: 1 further name, and 1 text that means no entry" in told
    run(capsys, "map swiss visits.csv --column city -o again.csv --review rest.csv")
    assert [row["city_id"] for row in rows(desk / "again.csv")] == ["CH-GE", "CH-ZH", "CH-BE", "CH-VD", "", "", ""]
    assert [row["text"] for row in rows(desk / "rest.csv")] == ["Total"], "what was said to be none is not asked again"


def test_a_review_may_have_ids_with_spaces_around_them_where_the_vocabulary_has(desk, capsys):
    (desk / "spaced.csv").write_text("id,name\n A ,Springfield\nB,Shelby\n")
    (desk / "review.csv").write_text("text,right_id\nSprngfld, A \nShlb, B \nZz, - \nY, \n")
    told = run(capsys, "fit spaced.csv --reviewed review.csv -o spaced")
    assert "from reviews: 2 further names, and 1 text that means no entry" in told
    assert text.Normalizer.load(desk / "spaced").names == {" A ": ["Springfield", "Sprngfld"], "B": ["Shelby", "Shlb"]}


@pytest.mark.parametrize(
    "line, place",
    [
        ("fit names.csv -o swiss", "swiss"),
        ("map swiss visits.csv --column city", "visits-mapped.csv"),
        ("map swiss visits.csv --column city -o own.csv", "own.csv"),
        ("table visits.csv", "visits-clean.csv"),
        ("evaluate swiss known.csv --picture confusion.svg", "confusion.svg"),
    ],
)
def test_what_is_written_over_an_earlier_one_is_named(desk, capsys, line, place):
    (desk / "known.csv").write_text("text,id\nBern,CH-BE\n", encoding="utf-8")
    run(capsys, "fit names.csv -o swiss" if line.startswith(("map", "evaluate")) else "table names.csv")
    ends = []
    for _ in range(2):
        assert cli.main(["text", *line.split()]) == 0
        lines = "".join(capsys.readouterr()).splitlines()
        ends += [one.partition(f" to {place}")[2] for one in lines if f" to {place}" in one]
    assert ends == ["", ", in place of an earlier one"]


def write(path, table):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)


def test_what_a_person_filled_in_stays_when_a_column_is_mapped_again(desk, capsys):
    run(capsys, "fit names.csv -o swiss")
    run(capsys, "map swiss visits.csv --column city")
    review = rows(desk / "visits-review.csv")
    review[0] |= {"right_id": "CH-VD", "who": "Ann"}
    review[1] |= {"right_id": "-", "who": ""}
    review[2] |= {"right_id": "", "who": ""}
    write(desk / "visits-review.csv", review)
    told = run(capsys, "map swiss visits.csv --column city")
    assert "2 rows that somebody filled in before are kept" in told
    assert rows(desk / "visits-review.csv") == review
    (desk / "other.csv").write_text("city\nOslo\n")
    run(capsys, "map swiss other.csv --column city --review visits-review.csv")
    after = rows(desk / "visits-review.csv")
    assert [(row["text"], row["right_id"], row["who"]) for row in after] == [
        ("Oslo", "", ""),
        ("Lauzanne, VD", "CH-VD", "Ann"),
        ("Atlantis", "-", ""),
    ]


@pytest.mark.parametrize(
    "places, said",
    [
        ("-o x.csv --review x.csv", "--review must be another file than --output, x.csv"),
        ("-o visits.csv", "--output must be another file than FILE"),
        ("--review ./visits.csv", "--review must be another file than FILE"),
        ("--review names.csv", "--review: names.csv is there already and has no column 'text'; it stays"),
    ],
)
def test_no_file_is_written_over_another(desk, capsys, places, said):
    run(capsys, "fit names.csv -o swiss")
    before = {path.name: path.read_bytes() for path in desk.iterdir() if path.is_file()}
    assert said in run(capsys, f"map swiss visits.csv --column city {places}", 2)
    assert "--output must be another file than FILE" in run(capsys, "table visits.csv -o ./visits.csv", 2)
    assert {path.name: path.read_bytes() for path in desk.iterdir() if path.is_file()} == before


SIGNS = ["a", "Z", " ", ";", '"', ",", "\n", "é", "0", ".", "'", "=", "\t", "\u00a0", "7", "-", "\u200b"]


def test_mapping_a_column_changes_no_other_cell(desk, capsys):
    draw = random.Random(0)
    run(capsys, "fit names.csv -o swiss")
    for _ in range(25):
        table = [
            {"city": "Bern", **{name: "".join(draw.choices(SIGNS, k=draw.randrange(9))) for name in ("a", "b")}}
            for _ in range(draw.randrange(1, 8))
        ]
        table[0]["b"] = repr(draw.random() * 10.0 ** draw.randrange(-9, 9))
        write(desk / "mine.csv", table)
        run(capsys, "map swiss mine.csv --column city")
        assert [{name: row[name] for name in table[0]} for row in rows(desk / "mine-mapped.csv")] == table


def test_a_table_keeps_the_digits_of_its_numbers(desk, capsys):
    draw = random.Random(0)
    for _ in range(25):
        scale = draw.randrange(-12, 18)
        table = [
            {
                "float": repr(draw.uniform(-1, 1) * 10.0**scale),
                "fixed": f"{draw.uniform(-5, 5):.{draw.randrange(1, 25)}f}",
                "whole": str(draw.randrange(10**18, 9 * 10**18)),
                "code": f"{draw.randrange(10**25, 10**26)}",
            }
            for _ in range(6)
        ]
        write(desk / "mine.csv", table)
        run(capsys, "table mine.csv --decimal .")
        assert rows(desk / "mine-clean.csv") == table
    write(desk / "mine.csv", [{"x": "0.123456789"}, {"x": "$ 1,200.50"}])
    run(capsys, "table mine.csv")
    assert rows(desk / "mine-clean.csv") == [{"x": "0.123456789"}, {"x": "1200.50"}]


def test_a_comma_before_decimals_is_not_lost(desk, capsys):
    (desk / "mine.csv").write_text("price;weight;n\n0,126;1,126;1\n-0,132;2,143;2\n")
    out = run(capsys, "table mine.csv")
    assert "weight: numbers may be read in 2 ways, and stay text" in out, "semicolons go with decimal commas"
    assert rows(desk / "mine-clean.csv") == [
        {"price": "0.126", "weight": "1,126", "n": "1"},
        {"price": "-0.132", "weight": "2,143", "n": "2"},
    ]
    for decimal, number in ((",", "1.126"), (".", "1126")):
        (desk / "mine.csv").write_text("weight;n\n1,126;1\n")
        run(capsys, f"table mine.csv --decimal {decimal}")
        assert rows(desk / "mine-clean.csv")[0]["weight"] == number
    (desk / "mine.csv").write_text('weight,people\n"0,126","1,340"\n')
    run(capsys, "table mine.csv")
    assert rows(desk / "mine-clean.csv") == [{"weight": "0.126", "people": "1340"}]


@pytest.mark.parametrize(
    "content, header, first",
    [
        ('"Price, in EUR, net";n\n1;2\n', ["Price_in_EUR_net", "n"], ["1", "2"]),
        ('"Price\nnet";n\n1;2\n', ["Price_net", "n"], ["1", "2"]),
        ('5" a;6" b\n1;2\n', ["5_a", "6_b"], ["1", "2"]),
        ("\r\n\na;b\n1;2", ["a", "b"], ["1", "2"]),
        ("a\tin 2024, all\n1\t2,5\n", ["a", "in_2024_all"], ["1", "2.5"]),
        ("sep=;\r\na,b;c\r\n1;2\r\n", ["ab", "c"], ["1", "2"]),
        (f"a,b\n1,{'x' * 200_000}\n", ["a", "b"], ["1", "x" * 200_000]),
        ('a,b\n1,"x""\n"', ["a", "b"], ["1", 'x"']),
    ],
)
def test_a_file_is_parted_as_its_header_is_meant(desk, capsys, content, header, first):
    (desk / "mine.csv").write_bytes(content.encode())
    run(capsys, "table mine.csv")
    with (desk / "mine-clean.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [header, first]


def test_a_quote_that_nothing_closes_swallows_no_rows(desk, capsys):
    for content in ('a,b\n1,2\n3,"4\n5,6\n', 'a,b\n1,2\n3,"'):
        (desk / "mine.csv").write_text(content)
        said = "mine.csv, row 3: a cell begins with a quotation mark that nothing closes"
        assert said in run(capsys, "table mine.csv", 2)


def test_a_normalizer_that_is_damaged_names_its_file(desk):
    text.Normalizer().fit(desk / "names.csv").save(desk / "swiss")
    mentions = ["Geneve", "zurich", "Lauzanne", "x"]
    draw, found = random.Random(0), text.Normalizer.load(desk / "swiss").normalize(mentions)
    for path in sorted((desk / "swiss").iterdir()):
        whole = path.read_bytes()
        for turn in range(300):
            at = draw.randrange(len(whole))
            flip = whole[:at] + bytes([whole[at] ^ (1 << draw.randrange(8))]) + whole[at + 1 :]
            path.write_bytes(flip if turn % 2 else whole[:at])
            other, error = None, ""
            try:
                other = text.Normalizer.load(desk / "swiss")
            except ValueError as refusal:
                error = str(refusal)
            assert other or "swiss" in error
            if other:
                assert other.normalize(mentions) == found
                assert json.loads(path.read_bytes()) == json.loads(whole), "blanks alone may differ"
        path.write_bytes(whole)


def test_a_normalizer_of_before_there_were_seals_loads(desk):
    text.Normalizer().fit(desk / "names.csv").save(desk / "swiss")
    path = desk / "swiss" / "normalizer.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "tuned": {}}))
    with pytest.raises(ValueError, match=r"normalizer\.json is damaged"):
        text.Normalizer.load(desk / "swiss")
    del settings["files"]["normalizer.json"], settings["decided"]
    path.write_text(json.dumps(settings))
    assert text.Normalizer.load(desk / "swiss")("Geneve").id == "CH-GE"


def test_known_mentions_tune_and_measure(desk, capsys):
    known = [("Bearn", "CH-BE"), ("Genva", "CH-GE"), ("Zuerich", "CH-ZH"), ("Lausane", "CH-VD"), ("Oslo", "")] * 2
    lines = "".join(f"{one},{id}\n" for one, id in known)
    (desk / "known.csv").write_text("text,id\n" + lines, encoding="utf-8")
    out = run(capsys, "fit names.csv -o swiss --tune known.csv")
    assert "10 mentions, 2 of them without an entry" in out
    assert out.count("only 10 mentions: the weights may be chance") == 1
    out = run(capsys, "evaluate swiss known.csv --picture confusion.svg")
    assert "accuracy@1     1.000" in out
    measures = json.loads(run(capsys, "evaluate swiss known.csv --json"))
    assert measures["accuracy@1"] == [1.0, 1.0, 1.0]
    assert (desk / "confusion.svg").read_text().startswith("<svg")
    (desk / "wrong.csv").write_text("text,id\nBern,CH-GE\nOslo,CH-GE\n", encoding="utf-8")
    out = run(capsys, "evaluate swiss wrong.csv")
    assert "  Genève (CH-GE) taken for Bern (CH-BE): 1x\n" in out
    assert "  Genève (CH-GE) taken for no entry: 1x\n" in out
    (desk / "known.csv").write_text("text,id\nBern,CH-XX\n")
    assert "not in the vocabulary: 'CH-XX'" in run(capsys, "fit names.csv -o x --tune known.csv", 2)


def test_a_table_becomes_one_that_sql_can_ask(desk, capsys):
    pytest.importorskip("duckdb")
    out = run(capsys, "table visits.csv --decimal ,")
    assert "when: dates" in out
    assert "budget: ranges, in two columns" in out
    assert "1 empty row is gone" in out
    assert "the last row, which sums up the others, is gone" in out
    assert cli.main(["text", "table", "visits.csv", "--decimal", ",", "--sql", "select sum(visitors) as s from t"]) == 0
    assert "1578" in capsys.readouterr().out
    clean = rows(desk / "visits-clean.csv")
    assert [row["visitors"] for row in clean] == ["1200", "300", "", "77", "1"]
    assert [row["when"] for row in clean][:2] == ["2024-02-03", "2024-02-12"]
    assert [(row["budget_from"], row["budget_to"]) for row in clean][:2] == [("10", "20"), ("", "")]
    assert cli.main(["text", "table", "visits.csv", "--sql", "select nothing"]) == 2
    assert "--sql: " in capsys.readouterr().err
    assert "visitors: numbers may be read in 2 ways, and stay text" in run(capsys, "table visits.csv")
    assert cli.main(["text", "table", "visits.csv", "--sql", "select typeof(visitors) as k from t limit 1"]) == 0
    assert "VARCHAR" in capsys.readouterr().out, "what stays text is not read as a number by SQL"


def test_sql_has_many_rows_soon_and_columns_of_their_types():
    pytest.importorskip("duckdb")
    day = datetime.date(2024, 2, 29)
    rows = [[2**63 - 1, 1.5, day, "Bern", None], [None] * 5, *([at, 0.25, day, "\0é", None] for at in range(20000))]
    begin = time.process_time()
    shown = commands._query(
        "select count(*) n, count(a) m, max(a) a, sum(b) b, max(c) c, max(d) d, typeof(any_value(e)) e from t",
        ["a", "b", "c", "d", "e"],
        rows,
    )
    assert time.process_time() - begin < 2
    assert re.findall(r"[\w.é-]+", shown.splitlines()[-2]) == [
        *("20002", "20001", "9223372036854775807", "5001.5", "2024-02-29", "Bern", "VARCHAR")
    ]
    assert "0 rows" in commands._query("select * from t", ["a", "b"], [])


@pytest.mark.parametrize(
    "line, said",
    [
        ("map swiss visits.csv --column city", "swiss is no normalizer"),
        ("fit nowhere.csv -o names.csv", "names.csv is no normalizer"),
        ("fit nowhere.csv -o names.csv/v", "names.csv: Not a directory"),
        ("map nowhere visits.csv --column city -o no/m.csv", "no/m.csv cannot be written: No such file"),
        ("map nowhere visits.csv --column city --review no/r.csv", "no/r.csv cannot be written: No such file"),
        ("evaluate nowhere visits.csv --picture no/p.svg", "no/p.svg cannot be written: No such file"),
        ("table visits.csv -o nowhere/clean.csv", "nowhere/clean.csv cannot be written: No such file"),
        ("fit names.csv -o v --aim nil_f1", "--aim is of --tune: give --tune as well"),
        ("fit nowhere.csv -o v", "nowhere.csv: there is no such file"),
        (
            "fit visits.csv -o v",
            "visits.csv has no column 'name'; its columns are 'city', 'visitors', 'when', 'budget'",
        ),
        ("fit names.csv --id code -o v", "names.csv has no column 'code'; its columns are 'id', 'name'"),
        ("fit names.csv -o v --reviewed names.csv", "names.csv has no column 'right_id'"),
        ("map swiss . --column city", ". is a folder; a file is wanted"),
        ("table .", ". is a folder; a file is wanted"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_it(desk, capsys, line, said):
    err = run(capsys, line, 2)
    assert err.startswith("normkit text: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_column_that_is_not_there_is_named(desk, capsys):
    text.Normalizer().fit(desk / "names.csv").save(desk / "swiss")
    assert "no column 'town'; its columns are 'city'" in run(capsys, "map swiss visits.csv --column town", 2)
    assert sorted(path.name for path in desk.iterdir()) == ["names.csv", "swiss", "visits.csv"]


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from normkit import cli\ntry: cli.main(['text', 'map', '--help'])\nexcept SystemExit: pass\n"
        "print({'torch', 'numpy', 'sklearn'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).endswith("set()\n")


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="the system names no open files")
def test_a_file_may_stand_where_nothing_can_be_written_if_nothing_is_left_to_review(desk, capsys):
    run(capsys, "fit names.csv -o swiss")
    read, written = os.pipe()
    os.write(written, b"city\nBern\n"), os.close(written)
    assert "1 mapped" in run(capsys, f"map swiss /dev/fd/{read} --column city -o out.csv")
    os.close(read)


def test_null_words_are_empty_unless_they_are_names(desk, capsys):
    run(capsys, "fit names.csv -o swiss")
    nothing = ["NULL", "n/a", "-", "\u200b", " ", "None", "\ufeff ", "?"]
    write(desk / "mine.csv", [{"city": word, "x": "1"} for word in [*nothing, "Bern"]])
    out = run(capsys, "map swiss mine.csv --column city")
    assert "9 cells: 1 mapped, 0 without an entry, 8 empty" in out
    assert not (desk / "mine-review.csv").exists()
    assert [row["city"] for row in rows(desk / "mine-mapped.csv")][:8] == nothing, "cells stay"
    norm = text.Normalizer().fit({"NA": ["NA", "Namibia"], "NP": ["Nepal"]})
    assert [match.id for match in norm.normalize(["NA", "na", "n/a", "null"])] == ["NA", "NA", None, None]
    assert norm("n/a").candidates == ()


@pytest.mark.parametrize("start", ["", "\n\n", "sep=;\n\n"])
def test_a_blank_line_of_one_column_is_an_empty_cell_and_one_of_several_is_no_row(desk, capsys, start):
    run(capsys, "fit names.csv -o swiss")
    (desk / "mine.csv").write_text(f'{start}city\n\nGeneve\n""\n\nzurich\n\n\n')
    assert "5 cells: 2 mapped, 0 without an entry, 3 empty" in run(capsys, "map swiss mine.csv --column city")
    assert [row["city_id"] for row in rows(desk / "mine-mapped.csv")] == ["", "CH-GE", "", "", "CH-ZH"]
    (desk / "mine.csv").write_bytes(b"city\r\r\nGeneve\r\r\nzurich\r\r\n")
    assert "2 cells: 2 mapped" in run(capsys, "map swiss mine.csv --column city")
    (desk / "mine.csv").write_text(f"{start}city;n\n\nGeneve;1\n\nzurich;2\n\n")
    assert "2 cells: 2 mapped" in run(capsys, "map swiss mine.csv --column city")


def test_what_is_no_text_is_named_and_no_encoding_is_asked_for(desk, capsys):
    said = "{} has NUL bytes, so it is no text; a CSV, TSV or .parquet is wanted, or --encoding utf-16"
    pandas.DataFrame({"city": ["Bern", "Genève"]}).to_parquet(desk / "mine.csv")
    (desk / "bare.csv").write_bytes("city,n\nBern,1\n".encode("utf-16-le"))
    for line in ("table mine.csv", "table mine.csv --encoding cp1252", "fit mine.csv -o v"):
        assert said.format("mine.csv") in run(capsys, line, 2)
    assert said.format("bare.csv") in run(capsys, "table bare.csv", 2)
    run(capsys, "table bare.csv --encoding utf-16-le")
    (desk / "mine.csv").write_bytes("city\nGenève\n".encode("cp1252"))
    assert "mine.csv is not UTF-8 at byte 8; say which it is by --encoding" in run(capsys, "table mine.csv", 2)


def test_parquet_is_read_as_csv_is(desk, capsys):
    pandas.read_csv(desk / "names.csv", sep=";").to_parquet(desk / "names.parquet")
    visits = {"city": ["Geneve", "zurich ", None], "n": [1200, 300, None]}
    visits["when"] = [datetime.date(2024, 2, 3), None, None]
    pandas.DataFrame(visits).to_parquet(desk / "mine.parquet")
    (desk / "mine.csv").write_text("city,n,when\nGeneve,1200,2024-02-03\nzurich ,300,\n,,\n")
    for ending in ("csv", "parquet"):
        assert "4 entries with 6 names" in run(capsys, f"fit names.{ending} -o {ending}")
        run(capsys, f"map {ending} mine.{ending} --column city -o mapped-{ending}.csv")
        run(capsys, f"table mine.{ending} -o clean-{ending}.csv")
    for name in ("mapped", "clean"):
        assert (desk / f"{name}-parquet.csv").read_text() == (desk / f"{name}-csv.csv").read_text()
    assert [row["city_id"] for row in rows(desk / "mapped-parquet.csv")] == ["CH-GE", "CH-ZH", ""]
    pandas.DataFrame({"name": ["Bern", "Oslo"], "id": [1, 2]}).to_parquet(desk / "names.parquet")
    assert text.Normalizer().fit(desk / "names.parquet")("bern").id == "1"


def test_what_is_no_parquet_or_is_to_be_written_as_such_is_refused(desk, capsys):
    (desk / "mine.parquet").write_text("city\nBern\n")
    assert "mine.parquet is no table of parquet: " in run(capsys, "table mine.parquet", 2)
    assert "none.parquet: there is no such file" in run(capsys, "table none.parquet", 2)
    pandas.DataFrame({"a": [["x"]]}).to_parquet(desk / "lists.parquet")
    assert "lists.parquet, column 'a': cells must be single values" in run(capsys, "table lists.parquet", 2)
    said = "--output: a table is written as CSV, and x.parquet ends in .parquet"
    assert said in run(capsys, "table visits.csv -o x.parquet", 2)
    run(capsys, "fit names.csv -o swiss")
    line = "map swiss visits.csv --column city --review x.parquet"
    assert said.replace("--output", "--review") in run(capsys, line, 2)


def test_a_review_is_read_in_the_encoding_of_a_spreadsheet_or_as_it_was_written(desk, capsys):
    (desk / "names.csv").write_bytes(NAMES.encode("cp1252"))
    (desk / "mine.csv").write_bytes("city\nÖslø\n".encode("cp1252"))
    run(capsys, "fit names.csv -o swiss --encoding cp1252")
    run(capsys, "map swiss mine.csv --column city --encoding cp1252")
    filled = (
        (desk / "mine-review.csv").read_text(encoding="utf-8").replace("Öslø,1,,", "Öslø,1,CH-ZH,").replace(",", ";")
    )
    for encoding in ("utf-8", "cp1252"):
        (desk / "mine-review.csv").write_text(filled, encoding=encoding)
        run(capsys, f"fit names.csv -o {encoding} --reviewed mine-review.csv --encoding cp1252")
        assert text.Normalizer.load(desk / encoding)("Öslø").id == "CH-ZH"
    assert "mine-review.csv is not UTF-8 at byte" in run(capsys, "fit swiss -o swiss --reviewed mine-review.csv", 2)
    assert "1 row that" in run(capsys, "map swiss mine.csv --column city --encoding cp1252")
    assert rows(desk / "mine-review.csv")[0]["right_id"] == "CH-ZH"


def test_a_long_text_is_shown_by_its_beginning(desk, capsys):
    run(capsys, "fit names.csv -o swiss")
    long, short = "z" * 5000, "y" * 80
    write(desk / "mine.csv", [{"city": long}, {"city": short}])
    out = run(capsys, "map swiss mine.csv --column city")
    assert f"\n  '{'z' * 80}'... (1x): nothing fits\n  '{short}' (1x): nothing fits\n" in out
    assert [row["text"] for row in rows(desk / "mine-review.csv")] == [long, short]


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "latin-1"])
def test_files_of_another_encoding_are_read(desk, capsys, encoding):
    (desk / "names.csv").write_bytes(NAMES.encode(encoding))
    (desk / "mine.csv").write_bytes("city;x\nZürich;é\n".encode(encoding))
    (desk / "known.csv").write_bytes("text;id\nZürich;CH-ZH\nGenève;CH-GE\n".encode(encoding))
    (desk / "names.json").write_bytes('{"CH-ZH": "Zürich"}'.encode(encoding))
    run(capsys, f"fit names.csv -o swiss --encoding {encoding}")
    run(capsys, f"fit names.json -o other --encoding {encoding}")
    run(capsys, f"map swiss mine.csv --column city --encoding {encoding}")
    assert [(row["city_id"], row["x"]) for row in rows(desk / "mine-mapped.csv")] == [("CH-ZH", "é")]
    assert "accuracy       1.000" in run(capsys, f"evaluate swiss known.csv --encoding {encoding}")
    run(capsys, f"table mine.csv --encoding {encoding}")
    assert "--encoding, such as cp1252" in run(capsys, "map swiss mine.csv --column city", 2)
    assert "--encoding must be one that Python knows" in run(capsys, "table mine.csv --encoding ebcdic-9", 2)


def test_legal_forms_are_left_out_of_names_and_texts(desk, capsys):
    (desk / "firms.csv").write_text(
        "id,name\n1,Acme Inc.\n2,Müller GmbH & Co. KG\n3,AG\n4,Acme Steel Ltd\n", encoding="utf-8"
    )
    run(capsys, "fit firms.csv --legal-forms -o firms")
    norm = text.Normalizer.load(desk / "firms")
    asked = ["ACME, LLC", "Acme", "mueller gmbh", "Müller", "AG", "Acme Steel Incorporated"]
    assert [norm(one).id for one in asked] == ["1", "1", "2", "2", "3", "4"]
    assert [norm(one).score for one in asked if "mu" not in one] == [1.0] * 5
    refused = run(capsys, "fit firms --legal-forms --id firm -o again", 2)
    assert "only a list of names takes --id and --legal-forms" in refused
    forms = text.LegalForms(more=["K.D."])
    assert [
        forms(one) for one in ("Iskra k.d.", "Danfoss A/S", "Tata (Pvt.) Ltd.", "The Limited", "X  Y", "Inc", "")
    ] == ["Iskra", "Danfoss", "Tata", "The", "X  Y", "Inc", ""]
    with pytest.raises(TypeError, match="more must be words"):
        text.LegalForms("GmbH")


def test_legal_forms_of_several_words_are_left_out_whole():
    forms = ("S.A. de C.V.", "SAB de CV", "S. A. P. I. de C. V.", "S. de R.L.", "S. de R. L. de C. V.", "G. m. b. H.")
    forms += ("SC de RL de CV", "S. P. R. de R. L. de C. V.", "S. en C.", "S. en C. de C.V.")
    cut = text.LegalForms()
    assert {cut(f"Aceros de México{sign} {form}") for form in forms for sign in ("", ",")} == {"Aceros de México"}
    assert [cut(name) for name in ("Casa de", "Aceros S. de México")] == ["Casa de", "Aceros S. de México"]


def test_an_evaluation_on_the_mentions_of_tuning_is_warned_of(desk, capsys):
    (desk / "known.csv").write_text("text,id\n" + "Bern,CH-BE\nGeneve,CH-GE\nzurich,CH-ZH\nOslo,\nParis,\n" * 5)
    (desk / "others.csv").write_text("text,id\nBern,CH-BE\nLausane,CH-VD\nRom,\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is printed is not warned of as well
        assert run(capsys, "fit names.csv --tune known.csv -o swiss").count("threshold may be chance") == 1
        assert run(capsys, "evaluate swiss known.csv").count("tuned on these mentions, so new ones go worse") == 1
        assert "tuned on" not in run(capsys, "evaluate swiss others.csv")
    with pytest.warns(UserWarning, match="tuned on these mentions"):
        run(capsys, "evaluate swiss known.csv --json")
