"""``normkit text`` as it is typed: from a list of names to a mapped column, a review, and back."""

import csv
import json
import subprocess
import sys

import pytest

from normkit import cli, text

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


def test_known_mentions_tune_and_measure(desk, capsys):
    known = [("Bearn", "CH-BE"), ("Genva", "CH-GE"), ("Zuerich", "CH-ZH"), ("Lausane", "CH-VD"), ("Oslo", "")] * 2
    lines = "".join(f"{one},{id}\n" for one, id in known)
    (desk / "known.csv").write_text("text,id\n" + lines, encoding="utf-8")
    with pytest.warns(UserWarning, match="only 10 mentions:"):
        out = run(capsys, "fit names.csv -o swiss --tune known.csv")
    assert "10 mentions, 2 of them without an entry" in out
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
    assert "1 empty rows are gone" in out
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


@pytest.mark.parametrize(
    "line, said",
    [
        ("map swiss visits.csv --column city", "swiss is no normalizer"),
        ("fit names.csv -o names.csv", "names.csv is there already and is no normalizer"),
        ("table visits.csv -o nowhere/clean.csv", "nowhere/clean.csv cannot be written: No such file"),
        ("fit nowhere.csv -o v", "nowhere.csv: there is no such file"),
        (
            "fit visits.csv -o v",
            "visits.csv has no column 'name'; its columns are 'city', 'visitors', 'when', 'budget'",
        ),
        ("fit names.csv -o v --reviewed names.csv", "names.csv has no column 'right_id'"),
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
