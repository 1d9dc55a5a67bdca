"""Messy tables made clean, with a language model and without, and columns that join."""

import datetime
import random
import re
import time

import pandas
import polars
import pytest

from normkit import text
from normkit.text.tables import typed
from normkit.text.tables.cleaning import read_answer


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_frame_comes_back_as_one_of_its_library(library):
    frame = library.DataFrame({"City (2024)": ["Bern[1]", "BASEL*", None], "Pop. %": ["1,340", "n/a", "2,100.5"]})
    done = text.normalize_table(frame)
    assert type(done.table) is type(frame)
    assert list(done.table.columns) == ["City_2024", "Pop__"]
    assert list(done.table["City_2024"])[:2] == ["bern", "basel"]
    assert [one if one == one else None for one in done.table["Pop__"]] == [1340.0, None, 2100.5]
    assert "'City (2024)' is now City_2024" in done.notes


@pytest.mark.parametrize(
    "cells, want",
    [
        (["1", "-2", "3"], [1, -2, 3]),
        (["1.5", "2"], [1.5, 2.0]),
        (["$1,200", "- $ 3,000,000", "$-5", "6"], [1200, -3000000, -5, 6]),
        (["$1,200", "€ 3,000,000"], ["$1,200", "€ 3,000,000"]),
        (["12%", "5 %", "n/a"], [12, 5, None]),
        (["1$2", "3"], ["1$2", "3"]),
        (["$5%"], ["$5%"]),
        (["1.200,5", "7"], [1200.5, 7.0]),
        (["12,5", "1,25"], [12.5, 1.25]),
        (["0,126", "0,143", "-0,132"], [0.126, 0.143, -0.132]),
        (["0,126", "1,126"], [0.126, 1.126]),
        (["0.126", "0.143"], [0.126, 0.143]),
        (["007", "008"], ["007", "008"]),
        (["1,2,3", "4"], ["1,2,3", "4"]),
        (["1.200", "3.400"], ["1.200", "3.400"]),
        (["n/a", "-", ""], [None, None, None]),
        (["2024-02-29", "n/a"], [datetime.date(2024, 2, 29), None]),
        (["2 march 2024"], [datetime.date(2024, 3, 2)]),
        (["13/04/2024", "01/02/2024"], [datetime.date(2024, 4, 13), datetime.date(2024, 2, 1)]),
        (["01/02/2024"], ["01/02/2024"]),
        (["+41 31 555", "x"], ["+41 31 555", "x"]),
        (["+41 79 1", "+41 7 91"], ["+41 79 1", "+41 7 91"]),
        (["+33 123 456"], ["+33 123 456"]),
        (["+41446681800", "+12025550175"], ["+41446681800", "+12025550175"]),
        (["+1234567", "+12345678.5", "12345678", "+$12345678"], [1234567.0, 12345678.5, 12345678.0, 12345678.0]),
        (["e10", "e5"], ["e10", "e5"]),
        (["1e3", ".5e1", "-.5"], [1000.0, 5.0, -0.5]),
        (["-007", "5"], ["-007", "5"]),
        (["+01", "-05"], ["+01", "-05"]),
        (["-0.7", "+0"], [-0.7, 0.0]),
        (["5'11", "6'1"], ["5'11", "6'1"]),
        (["1 200", "- 3\u202f000\u00a0000,5 €"], [1200.0, -3000000.5]),
        (["1'200.5", "'7'"], [1200.5, 7.0]),
        (["1-0", "3-1", "0-2"], ["1-0", "3-1", "0-2"]),
        (["2019-20", "2020-21"], ["2019-20", "2020-21"]),
    ],
)
def test_cells_are_what_all_of_them_can_be(cells, want):
    [(ending, found)] = typed.read(cells).columns
    assert (ending, found) == ("", want)
    assert [type(one) for one in found] == [type(one) for one in want]


@pytest.mark.parametrize("library", [pandas, polars])
@pytest.mark.parametrize("decimal", [None, ",", "."])
def test_columns_that_have_a_type_keep_it_and_their_values(library, decimal):
    columns = {
        "three": [1.234, 5.678],
        "endless": [1.5, float("inf")],
        "when": [datetime.datetime(2024, 1, 2, 3, 4), None],
        "sure": [True, False],
    }
    if library is pandas:
        columns["key"] = pandas.array([2**60 + 1, None], dtype="Int64")
    frame = library.DataFrame(columns)
    done = text.normalize_table(frame, decimal=decimal)
    assert list(done.table.dtypes) == list(frame.dtypes)
    assert done.table.equals(frame)
    assert done.notes == ()


def test_numbers_beside_texts_keep_their_values():
    table = {"n": [1.234, "5,678"], "k": [1.234, "a"], "d": [datetime.date(2024, 1, 2), "2024-03-04"], "t": [True, "A"]}
    assert text.normalize_table(table, decimal=",").table == {
        "n": [1.234, 5.678],
        "k": ["1.234", "a"],
        "d": [datetime.date(2024, 1, 2), datetime.date(2024, 3, 4)],
        "t": ["true", "a"],
    }


def test_accents_go_where_they_are_no_letters():
    others = ["ที่", "ทา", "น้ำ", "हिन्दी", "ガギグ", "서울", "≠"]
    accented = ["Émile", "E\u0323\u0301", "Ἀθῆναι", "Ёлка", "Việt", "ﬁn\u00b4s²", "ﾊﾟ"]
    assert text.normalize_table({"w": others, "v": accented}).table == {
        "w": others,
        "v": ["emile", "e", "αθηναι", "елка", "viet", "fin s2", "パ"],
    }


def test_cells_that_differ_become_one_only_with_a_note():
    table = {
        "b": ["A+", "A", "AB-", "C#", "C", "C++", "Bern +", "Bern[1]#"],
        "t": ["Springfield (IL)", "Springfield (MA)", "springfield (il)", "x", "X", "y*", "Y*", "z"],
    }
    done = text.normalize_table(table)
    assert done.table == {
        "b": ["a+", "a", "ab-", "c#", "c", "c++", "bern", "bern"],
        "t": ["springfield", "springfield", "springfield", "x", "x", "y", "y", "z"],
    }
    assert [note for note in done.notes if "both" in note] == [
        "b: 'Bern +' and 'Bern[1]#' are both 'bern' now",
        "t: 'Springfield (IL)' and 'Springfield (MA)' are both 'springfield' now",
    ]


def test_long_cells_are_noted_by_their_beginning():
    long = "z" * 200
    done = text.normalize_table({"w": [long, f"{long}*"]})
    shown = f"'{'z' * 80}'..."
    assert done.notes[-1] == f"w: {shown} and {shown} are both {shown} now"


def test_what_looks_like_numbers_and_stays_text_is_noted():
    table = {"phone": ["+41 44 268 12 34", None], "score": ["1-2", "3-1"], "years": ["1998-2001", "2002 to 2003"]}
    done = text.normalize_table(table)
    assert done.table == {
        "phone": ["+41 44 268 12 34", None],
        "score": ["1-2", "3-1"],
        "years_from": [1998, 2002],
        "years_to": [2001, 2003],
    }
    assert done.notes == (
        "phone: digits parted by spaces or apostrophes stay text",
        "score: pairs of numbers stay text: 3-1 is not from low to high",
        "years: ranges, in two columns",
    )


def test_telephone_numbers_stay_text_and_are_noted():
    local = ["555-1234", "556 - 1234"]
    table = {"a": ["+41446681800", "'+12025550175"], "Tel": local, "workPhone": local, "hotel": local}
    table |= {"Telefon Nr": ["12-34", "56-78"], "FAX": ["555-1234", "10-20"], "sum": ["5+3", "2"]}
    done = text.normalize_table(table)
    assert done.table == {
        **{name: table[name] for name in ("a", "Tel", "workPhone")},
        **{"hotel_from": [555, 556], "hotel_to": [1234, 1234]},
        **{"Telefon_Nr_from": [12, 56], "Telefon_Nr_to": [34, 78], "FAX_from": [555, 10], "FAX_to": [1234, 20]},
        "sum": ["5+3", "2"],
    }
    assert [note for note in done.notes if "stay" in note] == [
        "a: digits behind a plus, as of telephones, stay text",
        "Tel: pairs of numbers stay text: they are telephone numbers",
        "workPhone: pairs of numbers stay text: they are telephone numbers",
    ]


def test_a_format_of_dates_is_left_at_the_first_cell_that_is_none():
    class Counting(list):
        reads = 0

        def __iter__(self):
            for one in super().__iter__():
                self.reads += 1
                yield one

    cells = Counting(["bern"] * 1000)
    assert typed.dates(cells) == []
    assert cells.reads == len(typed.FORMATS) == 13


@pytest.mark.parametrize("signs", ["*", "[ab]", " ()"])
def test_cells_with_many_signs_that_are_no_notes_are_read_in_passing(signs):
    cell = "a" + signs * 6000 + "x"
    begin = time.process_time()
    assert text.normalize_table({"a": [cell]}).table == {"a": [cell]}
    assert time.process_time() - begin < 1


def test_numbers_of_unlike_signs_stay_text_and_are_noted():
    table = {"share": ["12%", "0.5"], "price": ["$3", "€4"], "from": ["$1-€3", "$2-€4"], "float": ["12%", 0.5]}
    done = text.normalize_table(table)
    assert done.table == {**table, "float": ["12%", "0.5"]}
    assert done.notes == (
        "share: numbers with and without % stay text",
        "price: numbers with $ and € stay text",
        "float: numbers with and without % stay text",
    )
    assert text.normalize_table({"price": ["$3", "4"], "range": ["1-2%", "3-4%"]}).notes == (
        "price: numbers in $",
        "range: ranges in %, in two columns",
    )


def test_raised_digits_are_no_digits_of_a_number():
    table = {
        "n": ["1340¹", "2500"],
        "power": ["10²³", "3"],
        "part": ["1½", "2"],
        "note": ["¹", "2"],
        "w": ["m²", "x₁₂"],
    }
    done = text.normalize_table(table)
    assert done.table == {**table, "w": ["m2", "x12"]}
    assert done.notes[:3] == tuple(
        f"{name}: numbers with raised digits or fractions stay text" for name in ("n", "power", "part")
    )


def test_digits_of_other_scripts_are_written_as_numbers():
    codes = ["\u0660\u0667", "٤"]
    done = text.normalize_table({"n": ["٣", "٤٢"], "code": codes})
    assert done.table == {"n": [3, 42], "code": codes}
    assert done.written == {"n": ["3", "42"], "code": codes}


def test_columns_whose_names_leave_nothing_are_named_by_their_place():
    done = text.normalize_table([[" ", "", "?", "column 1"], ["a", "b", "c", "d"]])
    assert done.table[0] == ["column_1", "column_2", "column_3", "column_11"]


@pytest.mark.parametrize("taken", ["v_from", "V_FROM"])
def test_ends_of_ranges_take_no_name_of_another_column(taken):
    done = text.normalize_table({taken: ["x", "y"], "v": ["1-2", "3-4"]})
    assert done.table == {taken: ["x", "y"], "v_from2": [1, 3], "v_to": [2, 4]}
    assert done.written["v_from2"] == ["1", "3"]
    assert done.notes == ("v: ranges, in two columns", "v_from is a column already, so ends of ranges are in v_from2")


def test_names_have_no_quotes_and_no_space_that_nobody_types():
    done = text.normalize_table([['say "hi"', "“tab\there”", "no\u00a0break", "a  b", "d\u2019or"], ["x"] * 5])
    assert done.table[0] == ["say_hi", "tab_here", "no_break", "a__b", "dor"]


def test_a_cell_that_is_a_note_alone_stays_and_so_does_its_row():
    done = text.normalize_table({"mark": ["[1]", "[2]", "†", "*", ""], "word": [" (X)", "†", "", "-", "n/a"]})
    assert done.table == {"mark": ["[1]", "[2]", "†", "*"], "word": ["(x)", "†", None, None]}
    assert done.notes == ("word: 1 cell in lower case", "1 empty row is gone")
    done = text.normalize_table({"n": ["12", "*", "15[1]"]})
    assert done.table == {"n": [12, None, 15]}
    assert done.notes == ("n: numbers", "n: 1 cell with nothing but notes or signs, and so missing")


@pytest.mark.parametrize("cell", [[3], (1, 2), {"a": 1}, {1}])
def test_cells_that_are_several_values_are_refused_by_name(cell):
    said = f"normalize_table: cells must be single values, not {type(cell).__name__}, as {cell!r} is"
    for table in ({"a": [cell, [1, 2]]}, pandas.DataFrame({"a": [cell, "x"]})):
        with pytest.raises(TypeError, match=re.escape(said)):
            text.normalize_table(table)


def test_half_a_character_is_refused_by_column_and_row():
    frame = pandas.DataFrame({"a": [None, "y"], "b": [None, "\ud800Y"]}, dtype=object)
    with pytest.raises(ValueError, match=r"normalize_table: column 'b', row 1: '\\ud800y' has a lone surrogate"):
        text.normalize_table(frame)


def test_the_share_of_questions_that_sql_answers_rises():
    """The claim of NormTab, without a model: clean typed tables, corrupted by rule, and asked again."""
    generator = random.Random(0)
    before = after = 0
    for _ in range(60):
        numbers = [generator.randint(1000, 99999) for _ in range(8)]
        clutter = ["{:,}", "{:,}[1]", " {:,} *", "${:,}", "{:,} (est.)", "'{:,}'"]
        cells = [generator.choice(clutter).format(one) for one in numbers]
        [(_, found)] = text.normalize_table({"Amount ($)": cells}).table.items()
        after += found == numbers
        before += all(cell.isdigit() for cell in cells)
    assert before == 0
    assert after == 60


class Model:
    """A language model that says what it is told to."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def __call__(self, asked):
        self.asked.append(asked)
        return self.answers.pop(0)


TABLE = [["name", "born"], ["Ada", "in the year 1815"], ["Alan", "1912 (June)"]]


def test_a_model_mends_the_columns_that_it_names_in_their_places():
    model = Model('["born"]', "```json\n[[1815], [1912]]\n```")
    done = text.normalize_table([["born", "name"], ["in the year 1815", "Ada"], ["1912 (June)", "Alan"]], model)
    assert done.table == [["born", "name"], [1815, "ada"], [1912, "alan"]]
    assert "born | name\nin the year 1815 | Ada" in model.asked[0]
    assert "Ada" not in model.asked[1], "what needs no mending is not sent"
    assert not [note for note in text.normalize_table(TABLE, Model("[]")).notes if "mended" in note]


def test_how_texts_are_rewritten_is_noted_by_column():
    table = {
        "City": ["Köln", "Émile ZOLA ", "ulm", None],
        "Firm": ["Acme (old)", "bell*", '"ibm"', "a  b"],
        "Size": ["1 (EST.)", "2*", "3", "4"],
        "Land": ["a", "b", " c", "서울"],
    }
    assert text.normalize_table(table).notes == (
        "Size: numbers",
        "City: 2 cells in lower case",
        "City: 2 cells without accents, notes, brackets or other signs",
        "Firm: 1 cell in lower case",
        "Firm: 3 cells without accents, notes, brackets or other signs",
    )


@pytest.mark.parametrize(
    "answers, said",
    [
        (["the column is born"], "neither JSON nor a literal: 'the column is born'"),
        (["__import__('os').getcwd()"], "neither JSON nor a literal"),
        (["[" * 5000], "neither JSON nor a literal"),
        (['["age"]'], r"columns of \['name', 'born'\] were asked for"),
        (['["born"]', "[[1815]]"], "2 rows of 1 cells were asked for"),
        (['["born"]', "[[1815, 1], [1912]]"], "2 rows of 1 cells were asked for"),
    ],
)
def test_what_a_model_says_is_parsed_and_never_run(answers, said):
    with pytest.raises(ValueError, match=said):
        text.normalize_table(TABLE, Model(*answers))


def test_answers_are_json_or_literals():
    assert read_answer("[null, 1.5]") == [None, 1.5]
    assert read_answer("[None, 'a']") == [None, "a"]


@pytest.mark.parametrize("wrong", [3, "text", [], [["a"], ["1", "2"]], {"a": ["1"], "b": []}, [["a"], [b"1"]]])
def test_what_is_no_table_is_refused_by_name(wrong):
    with pytest.raises((TypeError, ValueError), match="normalize_table"):
        text.normalize_table(wrong)


def test_columns_may_be_called_by_numbers():
    assert text.normalize_table(pandas.DataFrame({1: ["1"], 2: [float("nan")]})).table.to_dict("list") == {
        "_1": [1],
        "_2": [None],
    }


def test_a_model_is_a_function_from_text_to_text():
    for model in (3, lambda asked: None):
        with pytest.raises(TypeError, match=r"model.* function from text to text"):
            text.normalize_table(TABLE, model)


def test_a_table_without_rows_stays_one():
    assert text.normalize_table([["A b", "A b"]]).table == [["A_b", "A_b1"]]
    for library in (pandas, polars):
        assert text.normalize_table(library.DataFrame({"a": []})).table.shape == (0, 1)


@pytest.mark.parametrize("library", [pandas, polars])
def test_columns_that_join_are_found_by_value_and_by_meaning(library):
    tables = {
        "people": library.DataFrame({"Land": ["GERMANY", "France", None], "n": ["1", "2", "3"]}),
        "cities": library.DataFrame({"country": ["Deutschland", "Österreich"], "city": ["Bonn", "Wien"]}),
    }
    query = (
        library.Series("query", ["Germany", "Austria"]) if library is polars else library.Series(["Germany", "Austria"])
    )
    assert text.joinable(query, tables) == [("people", "Land", 0.5, 1)]
    norm = text.Normalizer().fit({"DEU": ["Germany", "Deutschland"], "AUT": ["Austria", "Österreich"]})
    assert text.joinable(query, tables, norm) == [("cities", "country", 1.0, 2), ("people", "Land", 0.5, 1)]
    with pytest.raises(ValueError, match="query must have at least one value"):
        text.joinable([None], tables)
    for query, given, said in (("text", tables, "query must be"), (["a"], {"t": 3}, r"tables\['t'\]")):
        with pytest.raises(TypeError, match=said):
            text.joinable(query, given)


def test_columns_that_join_are_compared_as_the_normalizer_reads_them():
    capitals = text.Rules([(r"\bUS\b", "United States")])
    norm = text.Normalizer(rewrite=[capitals, text.fold]).fit({"USA": ["United States"]})
    tables = {"t": {"land": ["United States", "united states", "OSLO", " ", None]}}
    assert text.joinable(["US", "Oslo", "oslo"], tables, norm) == [("t", "land", 1.0, 2)]


def test_a_last_row_that_sums_up_others_goes_and_one_that_sums_up_a_single_row_stays():
    done = text.normalize_table({"name": ["a", "b", "Total"], "n": ["1", "2", "3"]})
    assert done.table == {"name": ["a", "b"], "n": [1, 2]}
    alone = text.normalize_table({"name": ["a", "Total"], "n": ["3", "3"]})
    assert alone.table["n"] == [3, 3]


def test_what_a_model_mended_is_reported():
    done = text.normalize_table([["born", "name"], ["in 1815", "Ada"]], Model('["born"]', "[[1815]]"))
    assert "the model mended born" in done.notes


def test_columns_whose_names_sql_takes_for_one_are_distinguished():
    rows = [["Year", "year ", "Year", "Year1"], ["a", "b", "c", "d"]]
    names, cells = text.normalize_table(rows).table
    assert cells == ["a", "b", "c", "d"]
    assert len({name.lower() for name in names}) == 4
    with pytest.raises(ValueError, match=r"columns must have names that differ: .* 'A' 2 times"):
        text.normalize_table(pandas.DataFrame([[1, 2]], columns=["A", "A"]))


def test_labels_that_are_one_text_are_refused_by_name():
    frame = pandas.DataFrame({"k": ["a"], 2024: [1], "2024": [30], "z": [500]})
    norm = text.Normalizer().fit({"a": ["a"]})
    for take in (text.normalize_table, lambda one: norm.map(one, "k"), lambda one: text.joinable(["a"], {"t": one})):
        with pytest.raises(ValueError, match="columns must have names that differ: 2024 and '2024' are one as text"):
            take(frame)


def test_two_tables_are_no_column_and_tables():
    one, other = polars.DataFrame({"a": ["x"]}), polars.DataFrame({"b": ["x"]})
    for given in ((one, {"other": other}), (["x"], other), ({"a": ["x"]}, {"other": other})):
        with pytest.raises(TypeError, match="joinable: a column's values and a mapping, a name to a table, are wanted"):
            text.joinable(*given)
