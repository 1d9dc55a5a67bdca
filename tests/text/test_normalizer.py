"""The normalizer as a user has it: what texts are taken for, whatever is written in them, and how it is fitted."""

import json
import pathlib
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas
import polars
import pytest

import normkit as nk
from normkit import text
from normkit.text import samples, tuning
from normkit.text.candidates import dense
from normkit.text.candidates._names import NameIndex, owned
from normkit.text.decide.fusion import Fusion
from normkit.text.decide.threshold import best_threshold
from normkit.text.measures.evaluation import evaluate
from normkit.text.models import loaded
from normkit.text.vocabulary import read_table, read_vocabulary

COUNTRIES = {"DEU": ["Germany", "Federal Republic of Germany"], "AUT": ["Austria", "Österreich"], "SAU": ["السعودية"]}
STRANGE = ["", "   ", "...", "\U0001f1e9\U0001f1ea", "\ud800", "\x00", "e\u0301" * 40, "x" * 5000, "שלום"]


@pytest.fixture(scope="module")
def norm():
    return text.Normalizer().fit(COUNTRIES)


@pytest.fixture(scope="module")
def task():
    pytest.importorskip("pycountry")
    return samples.countries()


def ids(matches):
    return [match.id for match in matches]


def test_names_that_share_triples_are_candidates_as_the_defaults_are():
    [found, none] = nk.create("ngram-candidates", min_df=1)(COUNTRIES, ["Germny", "?"])
    assert [id for id, _ in found] == ["DEU"]
    assert 0 < found[0][1] < 1
    assert none == []


def test_the_page_s_first_example():
    parts = [text.NGrams(min_df=1), text.Aliases()]
    norm = text.Normalizer(candidates=parts, decide=text.Threshold(0.5))
    norm.fit({"DEU": ["Germany", "Federal Republic of Germany"], "AUT": ["Austria", "Österreich"]})
    matches = norm.normalize(["Germny", "Republic of Österreich", "Narnia"])
    assert ids(matches)[::2] == ["DEU", None]
    assert matches[0].candidates == (("DEU", pytest.approx(12 / 13), ("ngrams", "aliases")),)
    assert round(dict(parts[0](["germny"])[0])["DEU"], 2) == 0.76
    assert matches[2].score < 0.5


def test_one_in_one_out_and_alone_as_in_company(norm):
    texts = [*STRANGE, "Germny", "austria", "Germny", None, float("nan")]
    matches = norm.normalize(texts)
    assert [match.text for match in matches] == ["" if one is None or one != one else one for one in texts]
    assert matches == [norm.normalize([one])[0] for one in texts]
    assert ids(matches)[:9] == [None] * 9
    assert ids(matches)[9:] == ["DEU", "AUT", "DEU", None, None]


def test_names_in_another_form_or_direction_are_found(norm):
    assert ids(norm.normalize(["O\u0308sterreich", "".join(chr(ord(c) + 0xFEE0) for c in "GERMANY"), "السعوديه"])) == [
        "AUT",
        "DEU",
        "SAU",
    ]


@pytest.mark.parametrize("wrong", [b"Germany", 3, ["Germany"]])
def test_what_is_no_text_is_refused_by_name(norm, wrong):
    with pytest.raises(TypeError, match=r"texts must be strings.*not"):
        norm.normalize(["Germany", wrong])


@pytest.mark.parametrize("wrong", [None, 3, b"Germany", {"a": 1}, pandas.DataFrame({"a": ["Germany"]})])
def test_what_are_no_texts_is_refused_by_name(norm, wrong):
    with pytest.raises(TypeError, match="texts must be a string or several, not"):
        norm.normalize(wrong)
    with pytest.raises(TypeError, match="cells must not be bytes"):
        norm.map(pandas.DataFrame({"a": [b"Germany"]}), "a")


def test_equal_scores_are_in_the_order_of_the_vocabulary():
    names = {"z": ["springfield"], "a": ["springfield"], "m": ["springfeild"]}
    assert [one.id for one in text.Normalizer().fit(names)("Springfield").candidates] == ["z", "a", "m"]
    turned = dict(reversed(names.items()))
    assert [one.id for one in text.Normalizer().fit(turned)("Springfield").candidates] == ["a", "z", "m"]


def test_a_name_that_rewriting_leaves_nothing_of_makes_no_text_of_an_empty_cell():
    norm = text.Normalizer().fit({"A": ["Alpha"], "B": [" ", "Beta"], "C": [" "]})
    assert all(map(norm.is_empty, ["", " ", "n/a"]))
    assert ids(norm.normalize(["", " ", "beta"])) == [None, None, "B"]
    assert "2 entries have a name that is empty as texts are compared, such as 'B'" in norm.report()
    assert "empty" not in text.Normalizer().fit({"A": ["Alpha"]}).report()


def test_two_entries_of_one_name_are_named():
    norm = text.Normalizer().fit({"1": ["San Jose"], "2": ["SAN  JOSE"], "3": ["Oslo"]})
    assert "a name is of several entries, such as 'san jose'" in norm.report()
    assert norm("san jose").id == "1"
    both = text.Normalizer().fit({"1": ["San Jose", "Oslo"], "2": ["SAN  JOSE", "oslo"]})
    assert "2 names are of several entries, such as 'san jose'" in both.report()


@pytest.mark.parametrize("empty", [{}, {"a": []}, {"a": [""]}, []])
def test_a_vocabulary_without_names_is_refused(empty):
    with pytest.raises(ValueError, match="vocabulary has no names"):
        text.Normalizer().fit(empty)


def test_one_that_was_not_fitted_says_so():
    for ask in (lambda n: n("x"), lambda n: n.report(), lambda n: n.tune(["x"], ["y"]), lambda n: n.save("x")):
        with pytest.raises(ValueError, match="call fit first"):
            ask(text.Normalizer())


@pytest.mark.parametrize("wrong", [3, b"names", [("a", "b", "c")], ["ab"], {"a": 3}, {"a": [b"b"]}, [(None, "x")]])
def test_what_is_no_vocabulary_is_refused(wrong):
    with pytest.raises((TypeError, ValueError), match=r"vocabulary"):
        text.Normalizer().fit(wrong)


def test_a_vocabulary_is_read_from_everything(tmp_path):
    pairs = [("DEU", "Germany"), ("DEU", "Deutschland"), ("AUT", "Austria")]
    want = {"DEU": ["Germany", "Deutschland"], "AUT": ["Austria"]}
    table = {"id": [a for a, _ in pairs], "name": [b for _, b in pairs]}
    (tmp_path / "a.csv").write_text("\ufeffid,name\n" + "".join(f"{a},{b}\n" for a, b in pairs), encoding="utf-8")
    (tmp_path / "a.tsv").write_text("name\tid\tseen, by whom, when\n" + "".join(f"{b}\t{a}\n" for a, b in pairs))
    for kind in ("json", "JSON"):
        (tmp_path / f"a.{kind}").write_text(json.dumps(want))
    files = [tmp_path / f"a.{kind}" for kind in ("csv", "tsv", "json", "JSON")]
    for source in (pairs, want, pandas.DataFrame(table), polars.DataFrame(table), *files, str(files[0]), iter(pairs)):
        assert read_vocabulary(source) == want
    assert read_vocabulary(pandas.DataFrame({"name": ["Bern", None, "Oslo"]})) == {"Bern": ["Bern"], "Oslo": ["Oslo"]}


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"),
        (b"sep=;\r\n\r\n", "is empty"),
        (b"id,title\n1,x\n", "has no column 'name'; its columns are 'id', 'title'"),
        (b"id,name\n1,caf\xe9\n", "is not UTF-8 at byte 13"),
        (b"id,name,id\n1,x,2\n", "more than one column 'id'; rename all but one"),
        (b"id,name\n1,x\n1,y,z\n", "row 3"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, said):
    path = tmp_path / "names.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=said) as error:
        text.Normalizer().fit(path)
    assert str(path) in str(error.value)


def test_a_header_of_many_columns_is_read_soon(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{at}" for at in range(30_000)))
    before = time.process_time()
    assert len(read_table(path)) == 30_000
    assert time.process_time() - before < 2


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_column_is_mapped_in_the_frame_that_it_came_in(norm, library):
    frame = library.DataFrame({"country": ["Germny", None, "Narnia", "austria"], "n": [1, 2, 3, 4]})
    if library is pandas:
        frame.index = [5, 5, 6, 7]
    done = norm.map(frame, "country")
    assert type(done) is type(frame)
    cells = {name: ["" if one is None or one != one else one for one in done[name]] for name in done.columns}
    assert list(cells) == ["country", "n", "country_id", "country_name", "country_score"]
    assert cells["country_id"] == ["DEU", "", "", "AUT"]
    assert cells["country_name"] == ["Germany", "", "", "Austria"]
    assert cells["country_score"][0] == pytest.approx(6 / 7)
    assert list(frame.columns) == ["country", "n"], "what is given stays as it was"
    with pytest.raises(ValueError, match="no column 'city'; the columns are 'country', 'n'"):
        norm.map(frame, "city")


@pytest.mark.parametrize("library", [pandas, polars])
def test_a_mapping_replaces_columns_of_the_user_only_with_a_warning(norm, library, recwarn):
    once = norm.map(library.DataFrame({"c": ["Germny"]}), "c")
    assert list(norm.map(once, "c")["c_id"]) == ["DEU"]
    assert not recwarn
    with pytest.warns(UserWarning, match="Normalizer.map: the frame's own 'c_id' is replaced") as seen:
        assert list(norm.map(library.DataFrame({"c": ["Germny"], "c_id": ["mine"]}), "c")["c_id"]) == ["DEU"]
    assert seen[0].filename == __file__


def test_a_column_may_be_called_by_a_number(norm):
    assert list(norm.map(pandas.DataFrame({0: ["Germny"], 1: ["x"]}), 0)["0_id"]) == ["DEU"]


@pytest.mark.parametrize("library", [pandas, polars])
def test_ids_stay_whole_beside_an_empty_row(library):
    frame = library.DataFrame({"id": [1.0, 2.0, None, 2.5], "name": ["one", "two", None, "half"]})
    assert list(read_vocabulary(frame)) == ["1", "2", "2.5"]
    done = (
        text.Normalizer().fit({"x": [1984], "y": [2001.0]}).map(library.DataFrame({"n": [1984.0, None, 2001.0]}), "n")
    )
    assert [one for one in done["n_id"] if one in ("x", "y")] == ["x", "y"]


@pytest.mark.parametrize("written", ["\ufeffGermany", "Ger\u200bmany", "Germany\u2060"])
def test_invisible_spaces_do_not_count(norm, written):
    assert norm(written).score == 1.0
    assert text.normalize_table({"\ufeffcountry": [written]}).table == {"country": ["germany"]}


def test_joiners_that_tell_words_apart_count():
    assert text.fold("a\u200cb") != text.fold("ab") != text.fold("a\u200db")


class Mine:
    """A part of a user's, with no base."""

    name = "mine"

    def fit(self, vocabulary):
        self.first = next(iter(vocabulary))
        return self

    def __call__(self, texts):
        return [[(self.first, 0.7)] for _ in texts]


def test_parts_are_any_objects(tmp_path):
    longest = lambda name, own: [max(map(len, names)) for names in own]  # noqa: E731
    norm = text.Normalizer([Mine(), text.NGrams()], longest, lambda scores: len(scores) - 1).fit(COUNTRIES)
    match = norm("austria")
    assert match.candidates == (("DEU", 27.0, ("mine",)), ("AUT", 10.0, ("ngrams",)))
    assert match.id == "AUT"
    norm.save(tmp_path / "v")
    with pytest.raises(ValueError, match=r"rescore has the part .*lambda.*hand it in"):
        text.Normalizer.load(tmp_path / "v", candidates=norm.candidates)
    again = text.Normalizer.load(
        tmp_path / "v", candidates=[Mine(), text.NGrams()], rescore=longest, decide=norm.decide
    )
    assert again("austria") == match


class Longest:
    """What rescores by the length of names, against the longest of the vocabulary."""

    def fit(self, vocabulary):
        self.most = max(len(name) for names in vocabulary.values() for name in names)
        return self

    def __call__(self, text, names):
        return [max(map(len, own)) / self.most for own in names]


def test_a_rescorer_that_is_handed_in_is_fitted_as_before(tmp_path):
    norm = text.Normalizer([text.NGrams()], Longest(), text.Threshold(0.1)).fit(COUNTRIES)
    norm.save(tmp_path / "v")
    again = text.Normalizer.load(tmp_path / "v", rescore=[Longest()])
    assert again("austria") == norm("austria")
    assert again("austria").candidates == (("AUT", 10 / 27, ("ngrams",)),)


def fused(**parts):
    return text.Normalizer([Mine(), Mine(), text.NGrams()], decide=text.Threshold(0), **parts).fit(COUNTRIES)


def test_parts_are_joined_by_the_ensemble(tmp_path):
    best = fused()("austria").candidates
    assert best == (("AUT", pytest.approx(1), ("ngrams",)), ("DEU", 0.7, ("mine", "mine-2")))
    weighted = fused(fuse={"ngrams": {"weight": 0.5}, "mine": {"threshold": 0.8}})
    assert weighted("austria").candidates == (("DEU", 0.7, ("mine-2",)), ("AUT", pytest.approx(0.5), ("ngrams",)))
    [own] = fused(fuse={"ngrams": {"weight": 0.5}, "mine": {"threshold": 0.8}}).proposed(["Austria"])
    assert (own.plain, own.ids, own.by) == ("austria", ["DEU", "AUT"], [("mine-2",), ("ngrams",)])
    np.testing.assert_allclose(own.table, [[0, 0.7, 0], [0, 0, 1]], rtol=1e-6)
    none = {"mine": {"k": 0}, "mine-2": {"k": 0}}
    assert fused(fuse=none)("austria").candidates == (("AUT", pytest.approx(1), ("ngrams",)),)
    whole = nk.create("candidate-ensemble", {"mine": {"k": 1}, "mine-2": {"k": 0}, "ngrams": {"k": 1, "weight": 0.1}})
    assert fused(fuse=whole)("austria").candidates == (
        ("DEU", 0.7, ("mine",)),
        ("AUT", pytest.approx(0.1), ("ngrams",)),
    )
    norm = text.Normalizer([text.NGrams(), text.Aliases()], decide=text.Threshold(0.1), fuse={"ngrams": {"k": 0}})
    norm.fit(COUNTRIES).save(tmp_path / "v")
    match = text.Normalizer.load(tmp_path / "v")("Germny")
    assert match == norm("Germny")
    assert match.candidates[0].by == ("aliases",)


@pytest.mark.parametrize(
    "told, said",
    [
        ([[("XXX", 0.7)]], "mine proposed 'XXX', which is not in the vocabulary"),
        ([], r"candidates\[0\], mine, gave 0 lists for 1 texts"),
    ],
)
def test_what_a_part_says_wrongly_is_named(told, said, monkeypatch):
    monkeypatch.setattr(Mine, "__call__", lambda self, texts: told)
    with pytest.raises(ValueError, match=said):
        text.Normalizer([Mine()]).fit(COUNTRIES)("x")
    for scores in ([1, 2, 3], [float("nan")]):
        with pytest.raises(ValueError, match=r"must give 1 numbers for 'austria', not \["):
            text.Normalizer([text.NGrams()], lambda name, own, scores=scores: scores).fit(COUNTRIES)("austria")
    with pytest.raises(TypeError, match="rewrite must give strings, and builtin_function_or_method gave 7"):
        text.Normalizer(rewrite=len).fit(COUNTRIES)


@pytest.mark.parametrize(
    "parts, said",
    [
        ({"fuse": {"ngram": {"k": 1}}}, "name in fuse must be one of .* did you mean 'ngrams'"),
        ({"fuse": {"ngrams": {"n": 1}}}, "setting of generators"),
        ({"fuse": 3}, "fuse must be settings by a part's name, or callable"),
        ({"candidates": [len]}, r"candidates\[0\] must have fit"),
        ({"candidates": []}, "at least one part"),
        ({"rescore": 3}, "rescore must be callable"),
        ({"rewrite": "fold"}, "rewrite must be callable"),
    ],
)
def test_what_is_no_part_is_refused(parts, said):
    with pytest.raises((TypeError, ValueError), match=said):
        text.Normalizer(**parts)


def test_methods_of_the_catalogue_rewrite(tmp_path):
    rules = text.Rules([(r"\bSt\.", "saint")])
    norm = text.Normalizer(rewrite=[nk.create("homophone-normalization", language="am"), rules, text.fold])
    norm.fit({"1": ["ሰላም"], "2": ["Saint Moritz"]})
    assert [(m.id, m.score) for m in norm.normalize(["ሠላም", "St. Moritz"])] == [("1", 1.0), ("2", 1.0)]
    norm.save(tmp_path / "v")
    assert ids(text.Normalizer.load(tmp_path / "v").normalize(["ሠላም", "St. Moritz"])) == ["1", "2"]


@pytest.fixture(scope="module")
def tuned(task):
    norm = text.Normalizer().fit(task.vocabulary)
    return norm, norm.tune(task.mentions, task.gold)


@pytest.fixture(scope="module")
def matches(task, tuned):
    return tuned[0].normalize(task.mentions)


def test_tuned_on_other_mentions_it_is_as_good_as_was_asked_for(task, tuned):
    norm, found = tuned
    assert (found.mentions, found.unlinkable, len(norm.names)) == (531, 106, 249)
    assert found["accuracy@1"] >= 0.96
    assert found["accuracy"] >= 0.90
    assert found["nil_f1"] > 0.75
    low, high = found.intervals["accuracy"]
    assert low < found["accuracy"] < high
    assert 0.02 < high - low < 0.08
    with pytest.raises(ValueError, match="aim must be one of 'accuracy', 'nil_f1'"):
        norm.tune(task.mentions, task.gold, aim="f1")


def test_the_threshold_may_be_for_those_without_an_entry(task, tuned):
    norm = text.Normalizer().fit(task.vocabulary)
    found = norm.tune(task.mentions, task.gold, aim="nil_f1")
    assert norm.decide.least > tuned[0].decide.least
    assert found["nil_f1"] > tuned[1]["nil_f1"]
    assert found["accuracy@1"] == tuned[1]["accuracy@1"]


def test_loaded_again_it_says_the_same(task, tuned, matches, tmp_path):
    tuned[0].save(tmp_path / "v")
    again = text.Normalizer.load(tmp_path / "v")
    assert again.normalize(task.mentions[::3]) == matches[::3]
    assert again.tuned == tuned[0].tuned
    assert not list(tmp_path.glob("*.*"))


def test_a_low_chance_is_doubted(tuned, matches):
    sure = [match.score for match in matches if match.id and not tuned[0].doubt(match)]
    unsure = [match.score for match in matches if match.id and tuned[0].doubt(match) == "fits barely"]
    assert min(sure) >= 0.8 > max(unsure)


def test_a_name_itself_is_not_doubted_however_high_the_threshold():
    norm = text.Normalizer(decide=text.Threshold(0.9)).fit({"CH-BE": ["Bern"], "CH-SG": ["Sankt Gallen"]})
    assert norm.doubt(norm("Bern")) == ""
    assert norm.doubt(norm("Sankt Galen")) == "fits barely"


def test_measures_are_those_of_the_catalogue(task, matches):
    found = evaluate(matches, task.gold)
    measure = nk.create("retrieval-measures", k=(1, 5, 10))
    ranking = measure(task.gold, [[one.id for one in match.candidates] for match in matches])
    decided = measure(task.gold, [[match.id] if match.id else [] for match in matches])
    for name in ("accuracy@1", "accuracy@5", "accuracy@10", "mrr"):
        assert found[name] == pytest.approx(ranking[name], abs=1e-12)
    for name in ("accuracy", "nil_precision", "nil_recall", "nil_f1"):
        assert found[name] == pytest.approx(decided[name], abs=1e-12)
    assert len(found.mistakes) == round((1 - found["accuracy"]) * 531)
    assert sum(count for *_, count in found.confusions(1000)) == len(found.mistakes)


def test_what_there_is_nothing_of_is_not_measured():
    norm = text.Normalizer().fit({"BE": ["Bern"], "GE": ["Geneva"]})
    linked, unlinked = norm.evaluate(["Bern", "Genva"], ["BE", "GE"]), norm.evaluate(["Oslo"], [None])
    assert list(linked) == ["accuracy@1", "accuracy@5", "accuracy@10", "mrr", "accuracy"]
    assert list(unlinked) == ["accuracy", "nil_precision", "nil_recall", "nil_f1"]
    assert "every mention has an entry" in str(linked)
    assert str(unlinked).startswith("1 mention, 1 of them")
    with pytest.raises(KeyError, match=r"nil_f1; there are accuracy@1, .*: every mention has an entry"):
        linked["nil_f1"]


class Jealous:
    """Weights that refuse what they were fitted on."""

    def __init__(self, tables):
        self.fitted = {id(table) for table in tables}

    def __call__(self, table):
        assert id(table) not in self.fitted
        return table[:, 0]


def test_no_mention_is_measured_by_what_was_fitted_on_it(monkeypatch):
    monkeypatch.setattr(tuning.Fusion, "fit", classmethod(lambda kind, tables, right: Jealous(tables)))
    norm = text.Normalizer().fit(COUNTRIES)
    mentions = [f"{word} {at}" for at in range(60) for word in ("germany", "austria", "narnia")]
    found = norm.tune(mentions, ["DEU", "AUT", None] * 60)
    assert found["accuracy"] > 0.9


def test_a_text_is_in_one_fold_only():
    texts = [f"{at % 7}" for at in range(50)]
    folds = tuning.split(texts, np.array([at % 7 < 2 for at in range(50)]), 3, 0)
    assert all(len({fold for t, fold in zip(texts, folds, strict=True) if t == one}) == 1 for one in set(texts))
    assert set(folds) == {0, 1, 2}


def test_too_little_is_warned_of_and_unknown_ids_are_named(norm):
    fresh = text.Normalizer().fit(COUNTRIES)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = fresh.tune(["Germny", "Austra", "Narnia", "Germani", "Osterreich"], ["DEU", "AUT", None, "DEU", "AUT"])
    assert [str(one.message)[:30] for one in told] == [
        "Normalizer.tune: only 5 mentio",
        "Normalizer.tune: only 1 mentio",
    ]
    assert told[0].filename == __file__
    assert "may be chance" in str(found)
    with pytest.raises(ValueError, match="not in the vocabulary: 'FRA'; what has no entry is None"):
        norm.tune(["x"], ["FRA"])
    with pytest.raises(ValueError, match="as long as"):
        norm.tune(["x", "y"], ["DEU"])
    with pytest.raises(ValueError, match="1 mentions cannot be fitted on and measured on"):
        norm.tune(["x"], ["DEU"])
    numbered = text.Normalizer().fit({1: ["Bern"]}).evaluate(["bern", "x"], [1, float("nan")])
    assert numbered["accuracy"] == 1, "as the columns of a data frame have them"


@pytest.mark.parametrize("library", [pandas, polars])
def test_columns_of_a_data_frame_are_measured_and_tuned_on(library):
    """An empty cell makes floats of whole numbers, and the first row has not always the label 0."""
    frame = library.DataFrame({"text": ["x", "bern", "geneve", None, "genf"], "id": [None, 1, 2, None, 2]})[1:]
    norm = text.Normalizer().fit({1: ["Bern"], 2: ["Genf"]}).aliases([(2, "Genève")])
    assert norm.evaluate(frame["text"], frame["id"])["accuracy"] == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert norm.tune(frame["text"], frame["id"], folds=2).mentions == 4
        assert norm.evaluate(frame["text"], frame["id"]).notes


def test_ids_that_the_vocabulary_lacks_are_named_where_they_count_as_mistakes():
    norm = text.Normalizer().fit({"BE": ["Bern"]})
    with pytest.warns(UserWarning, match="not in the vocabulary: 'GE'; each counts as a mistake, .* is None"):
        found = norm.evaluate(["Bern", "Genf"], ["BE", "GE"])
    assert found["accuracy"] == 0.5
    assert "'GE'" in str(found)


def test_one_text_that_means_nothing_needs_no_list():
    norm = text.Normalizer().fit({"BE": ["Bern", "B"]}).aliases([], none="Berne")
    assert [norm(word).id for word in ("Berne", "b")] == [None, "BE"]
    with pytest.raises(ValueError, match="k must be at least 1"):
        norm.evaluate(["x"], [None], k=(0,))


def test_a_threshold_is_the_best_there_is():
    generator = np.random.default_rng(0)
    for _ in range(30):
        count = int(generator.integers(1, 12))
        scores = generator.integers(0, 5, count) / 5
        none = generator.random(count) < 0.4
        right = (generator.random(count) < 0.6) & ~none

        def decided(least, scores=scores, right=right, none=none):
            return np.where(scores >= least, right, none).sum()

        def nil_f1(least, scores=scores, none=none):
            said = scores < least
            return 2 * (said & none).sum() / max(said.sum() + none.sum(), 1)

        every = [*scores, *(scores + 0.1), 2.0]
        assert decided(best_threshold(scores, right, none)) == max(map(decided, every))
        assert nil_f1(best_threshold(scores, right, none, "nil_f1")) == max(map(nil_f1, every))


def test_weights_see_the_lead_and_not_the_order():
    generator = np.random.default_rng(0)
    tables = [generator.random((4, 2)) for _ in range(100)]
    right = [table[:, 0] == table[:, 0].max() for table in tables]
    model = Fusion.fit(tables, right)
    fresh = generator.random((4, 2))
    assert model(fresh).argmax() == fresh[:, 0].argmax()
    np.testing.assert_allclose(model(fresh[::-1]), model(fresh)[::-1])


def test_reviewed_aliases_are_names_from_then_on(tmp_path):
    fresh = text.Normalizer().fit(COUNTRIES)
    assert fresh("Krautland").id is None
    fresh.aliases([("DEU", "Krautland")])
    assert fresh("krautland").id == "DEU"
    with pytest.raises(ValueError, match="alias 'x' is of 'FRA'"):
        fresh.aliases([("FRA", "x")])
    assert fresh("Germania").id == "DEU"
    fresh.aliases([], none=["GERMANIA"]).save(tmp_path / "v")
    again = text.Normalizer.load(tmp_path / "v")
    for norm in (fresh, again.aliases([("AUT", "Ostmark")])):
        assert norm("germania").id is None
        assert norm("germania").candidates[0].id == "DEU"
        assert norm.doubt(norm("germania")) == ""
    assert again.aliases([("AUT", "Germania")])("germania").id == "AUT", "the last word counts"


@pytest.mark.parametrize("own", ["Georgia", "State of Georgia"])
def test_what_was_reviewed_is_known_though_another_entry_has_that_name(tmp_path, own):
    fresh = text.Normalizer().fit({"GEO": ["Georgia"], "US-GA": [own], "FRA": ["France"]})
    fresh.aliases([("US-GA", "Georgia"), ("FRA", ""), ("FRA", "Gaul"), ("GEO", "Gaul")]).save(tmp_path / "v")
    for norm in (fresh, text.Normalizer.load(tmp_path / "v").aliases([("FRA", "Frankreich")])):
        match = norm("GEORGIA")
        assert (match.id, match.candidates[0].id, match.score, norm.doubt(match)) == ("US-GA", "US-GA", 1.0, "")
        assert norm.doubt(norm("Gaul")) == "two entries fit alike", "where two were named"
        assert "a name is of several entries, such as 'gaul'" in norm.report()
        assert norm("").id is None
    assert fresh.aliases([("GEO", "Georgia")])("georgia").id == "GEO", "the last word counts"
    assert fresh.aliases([], none=["Georgia"])("georgia").id is None
    assert fresh.aliases([("US-GA", "Georgia")])("georgia").id == "US-GA"
    assert fresh.fit({"GEO": ["Georgia"]})("georgia").id == "GEO"


def test_a_text_of_an_entry_and_of_none_in_one_call_decides_nothing():
    norm = text.Normalizer().fit({"A": ["Springfield"], "B": ["Shelby"]}).aliases([("B", "Sprngfld")])
    said = "Normalizer.aliases: 'Sprngfld' is given both as 'A' and as no entry, so it decides nothing"
    with pytest.warns(UserWarning, match=said) as seen:
        norm.aliases([("A", "Sprngfld"), ("A", "Spring")], ["SPRNGFLD", "zz"])
    assert seen[0].filename == __file__
    assert norm.names == {"A": ["Springfield", "Spring"], "B": ["Shelby", "Sprngfld"]}
    assert (norm.nothing, ids(norm.normalize(["spring", "zz", "sprngfld"]))) == ({"zz"}, ["A", None, "B"])
    norm.fit({"A": ["Springfield"]})
    with pytest.warns(UserWarning, match=said):
        norm.aliases([("A", "Sprngfld")], ["sprngfld"])
    match = norm("Sprngfld")
    assert norm.doubt(match, margin=0.3) == "fits barely"


def test_an_alias_may_be_a_number_and_texts_of_no_entry_stay():
    norm = text.Normalizer().fit(COUNTRIES).aliases([], none=["zz"])
    norm.aliases([("DEU", 49), ("AUT", 43.0), ("AUT", None)])
    assert norm.nothing == {"zz"}
    assert ids(norm.normalize(["49", "43", ""])) == ["DEU", "AUT", None]
    assert norm.names == {**COUNTRIES, "DEU": [*COUNTRIES["DEU"], "49"], "AUT": [*COUNTRIES["AUT"], "43"]}


@pytest.mark.parametrize("pairs, none", [([("DEU", b"49")], []), ([("DEU", "49")], [5])])
def test_aliases_that_are_refused_change_nothing(pairs, none):
    norm = text.Normalizer().fit(COUNTRIES).aliases([], none=["zz"])
    with pytest.raises(TypeError, match=r"Normalizer: (cells|texts) must "):
        norm.aliases(pairs, none=none)
    assert (norm.names, norm.nothing) == (COUNTRIES, {"zz"})
    assert norm("49").id is None


def test_a_fit_that_fails_leaves_what_was_fitted_as_it_was():
    def encode(texts):
        if "limit" in texts:
            raise MemoryError
        return np.array([[len(one), 1] for one in texts])

    known = text.Normalizer([text.NGrams(), text.Dense(encode)]).fit(COUNTRIES).aliases([], none=["zz"])
    matches, names = known.normalize(["Germny", "austria", "limits", "zz"]), known.names
    for change in (lambda: known.fit({"x": ["limit"]}), lambda: known.aliases([("DEU", "limit")])):
        with pytest.raises(MemoryError):
            change()
        assert known.names == names
        assert known.normalize(["Germny", "austria", "limits", "zz"]) == matches


def damage(path, name, change):
    found = json.loads((path / "normalizer.json").read_text())
    change(found)
    (path / name).write_text(json.dumps(found))


@pytest.mark.parametrize(
    "harm, said",
    [
        (lambda p: (p / "normalizer.json").unlink(), "is no normalizer"),
        (lambda p: (p / "normalizer.json").write_text("{"), "is damaged: it is not JSON"),
        (lambda p: (p / "normalizer.json").write_text("[]"), "is no normalizer"),
        (lambda p: damage(p, "normalizer.json", lambda f: f.update(version=2)), "of version 2 .* reads 1"),
        (lambda p: damage(p, "normalizer.json", lambda f: f.update(format="else")), "is no normalizer"),
        (lambda p: (p / "vocabulary.json").write_text("{}"), "vocabulary.json is not what was written"),
        (lambda p: (p / "candidates-0.npz").write_bytes(b"x"), "candidates-0.npz is not what was written"),
        (lambda p: (p / "candidates-0.npz").unlink(), "candidates-0.npz is missing"),
    ],
)
def test_a_folder_that_is_another_s_or_damaged_is_named(norm, tmp_path, harm, said):
    path = tmp_path / "v"
    norm.save(path)
    harm(path)
    with pytest.raises(ValueError, match=said) as error:
        text.Normalizer.load(path)
    assert str(path) in str(error.value)


def test_nothing_else_is_overwritten_and_a_failed_save_changes_nothing(norm, tmp_path):
    (tmp_path / "mine").mkdir()
    for content in (None, "{}"):
        if content:
            (tmp_path / "mine/normalizer.json").write_text(content)
        with pytest.raises(ValueError, match=r"is no normalizer: .*; it stays"):
            norm.save(tmp_path / "mine")
    norm.save(tmp_path / "v")
    before = {file.name: file.read_bytes() for file in (tmp_path / "v").iterdir()}
    unsaved = text.Normalizer(rewrite=text.Rules([("a", lambda found: "b")])).fit(COUNTRIES)
    with pytest.raises(ValueError, match="has a function, which cannot be saved"):
        unsaved.save(tmp_path / "v")
    assert {file.name: file.read_bytes() for file in (tmp_path / "v").iterdir()} == before
    norm.save(tmp_path / "v")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine", "v"]


def test_files_of_the_user_stay_in_a_folder_that_is_saved_again(norm, tmp_path):
    path = tmp_path / "v"
    text.Normalizer([text.NGrams(), text.Aliases(), text.NGrams(k=2)]).fit(COUNTRIES).save(path)
    (path / "review.csv").write_text("text,right_id\n")
    (path / "older").mkdir()
    (path / "older/vocabulary.json").write_text("{}")
    norm.save(path)
    names = ["candidates-0.npz", "normalizer.json", "older", "review.csv", "vocabulary.json"]
    assert sorted(file.name for file in path.iterdir()) == names
    assert (path / "older/vocabulary.json").read_text() == "{}"
    assert text.Normalizer.load(path).names == COUNTRIES


def test_dense_vectors_are_searched_exactly_or_by_an_index_that_tells_its_recall(tmp_path):
    pytest.importorskip("usearch")
    generator = np.random.default_rng(0)
    known = {f"{at}": generator.standard_normal(16) for at in range(500)}

    def encoder(texts):
        return np.stack([known[one] for one in texts])

    names = {one: [one] for one in known}
    exact, index = text.Dense(encoder, k=5).fit(names), text.Dense(encoder, k=5, exact=0).fit(names)
    assert exact.report() == "every name compared"
    assert "usearch's index, recall@5 " in index.report()
    assert index.recall > 0.9
    found = exact(["7", "8"])
    cosines = {one: known[one] @ known["7"] / np.linalg.norm(known[one]) / np.linalg.norm(known["7"]) for one in known}
    assert [one for one, _ in found[0]] == sorted(cosines, key=cosines.get, reverse=True)[:5]
    assert [own[0][0] for own in index(["7", "8"])] == ["7", "8"]
    again = text.Dense(encoder, k=5, exact=0).restore(names, {**index.arrays(), "recall": np.array(0.25)})
    assert again(["7", "8"]) == index(["7", "8"])
    assert "recall@5 0.250" in again.report()
    with pytest.raises(ValueError, match="encoder is a function, which cannot be saved"):
        text.Normalizer([exact]).fit(names).save(tmp_path / "v")


SHORT = {"DEU": ["germany"], "AUT": ["austria"], "A": ["plan a"]}  # with four letters a run, " a " is a shorter one


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A folder of a model, in place of one of sentence-transformers: what is written into it turns all vectors."""

    def read(path):
        def encode(texts):
            turn = (pathlib.Path(path) / "turn").read_text()
            seeds = [[*f"{turn} {one}".encode()] for one in texts]
            return np.stack([np.random.default_rng(seed).standard_normal(16) for seed in seeds])

        return loaded("Dense", path, lambda _: encode)

    monkeypatch.setattr(dense, "sentence_encoder", read)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "enc").mkdir()
    (tmp_path / "enc/turn").write_text("1")
    return tmp_path / "enc"


def test_an_encoder_that_was_trained_again_in_its_place_encodes_the_names_anew(model, recwarn):
    text.Normalizer([text.Dense("enc")], decide=text.Threshold(0.9)).fit(COUNTRIES).save("v")
    assert text.Normalizer.load("v")("germany").id == "DEU"
    assert not recwarn
    (model / "turn").write_text("2")
    with pytest.warns(UserWarning, match="Dense: the model in .*enc is another than when .* encoded anew"):
        norm = text.Normalizer.load("v")
    assert norm("germany").id == "DEU"
    norm.save("v")
    assert text.Normalizer.load("v")("germany").id == "DEU"
    assert not recwarn, "what was saved again is of the new model"


def test_an_encoder_is_known_in_any_folder_and_beside_a_normalizer_that_was_moved(model, monkeypatch):
    text.Normalizer([text.Dense("enc")]).fit(COUNTRIES).save("v")
    elsewhere = model.parent / "else"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert text.Normalizer.load("../v")("germany").id == "DEU"
    (model.parent / "v").rename("v")
    assert text.Normalizer.load("v")("germany").id == "DEU"
    model.rename("../enc moved")
    with pytest.raises(ValueError, match="enc is no folder of a model"):
        text.Normalizer.load("v")


def test_an_encoder_is_known_where_a_whole_project_was_moved(model, monkeypatch):
    project = model.parent / "project"
    (project / "norms").mkdir(parents=True)
    model.rename(project / "enc")
    monkeypatch.chdir(project)
    text.Normalizer([text.Dense("enc")]).fit(COUNTRIES).save("norms/v")
    monkeypatch.chdir(project.parent)
    project.rename("moved")
    assert text.Normalizer.load("moved/norms/v")("germany").id == "DEU"


@pytest.mark.parametrize("n", [1, 3, 4, 7])
def test_runs_of_any_length_are_loaded_as_they_were_saved(n, tmp_path):
    norm = text.Normalizer(candidates=[text.NGrams(n=n)]).fit(SHORT)
    norm.save(tmp_path / "v")
    asked = ["germany", "austrian", "plan a", "a"]
    assert ids(norm.normalize(asked[::2])) == ["DEU", "A"]
    assert text.Normalizer.load(tmp_path / "v").normalize(asked) == norm.normalize(asked)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("names", [SHORT, {"A": ["an", "a b"]}, {"A": ["?"]}])
def test_runs_that_were_saved_without_their_lengths_are_searched_as_before(names, n):
    fitted = text.NGrams(n=n).fit(names)
    saved = {name: array for name, array in fitted.arrays().items() if name != "lengths"}
    asked = ["germany", "an", "a b", "a"]
    assert text.NGrams(n=n).restore(names, saved)(asked) == fitted(asked)


def test_names_of_several_entries_have_their_best_score():
    named = NameIndex({"a": ["x", "y"], "b": ["y"]})
    assert owned(named, [1, 0], [0.9, 0.4]) == [("a", 0.9), ("b", 0.9)]
    assert named.shared() == {"y": ["a", "b"]}


def test_importing_the_package_does_not_import_the_room():
    code = """
import sys, normkit as nk
nk.RMSNorm
print(*(name for name in sys.modules if name.startswith("normkit.text")))
nk.text.Normalizer
print(*{"sklearn", "rapidfuzz", "narwhals", "regex", "pandas"} & {*sys.modules})
"""
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_one_text_is_asked_for_by_a_call_and_several_by_normalize():
    fitted = text.Normalizer().fit({"DE": ["Germany"]})
    with pytest.raises(TypeError, match="one text is wanted, not list; normalize takes several"):
        fitted(["germany"])


def test_a_star_brings_the_rooms_names():
    there: dict = {}
    exec("from normkit.text import *", there)
    assert {"Normalizer", "Rules", "joinable", "normalize_table"} <= set(there)
    assert "text" not in nk.__all__
    assert nk.fold.__module__.startswith("normkit.surgery")


@pytest.mark.parametrize(
    "names", [[["germany"], []], [[], ["germany"]], [[], ["germany"], [], ["france", "germany"], []]]
)
def test_a_candidate_without_names_scores_nothing(names):
    scores = text.Spelling("edits")("germany", names)
    assert scores.tolist() == [1.0 if own else 0.0 for own in names]
    assert text.Spelling("edits")("germany", [[], []]).tolist() == [0.0, 0.0]


def test_the_progress_of_many_texts_is_reported_up_to_the_last(norm, monkeypatch):
    seen = []
    monkeypatch.setattr("normkit.text.normalizer.AT_ONCE", 2)
    norm.normalize(["France", "Spain", "Italy", "Spain"], progress=lambda *given: seen.append(given))
    assert seen == [(2, 3), (3, 3)]
