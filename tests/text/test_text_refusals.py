"""Refusals that belong to one part of the text room: each names what came and what was wanted."""

import hashlib
import json
import math
import pathlib

import numpy as np
import pytest
import torch

import normkit as nk
from normkit import cli
from normkit.text import folder, frames, match
from normkit.text.candidates.aliases import Aliases
from normkit.text.candidates.dense import Dense
from normkit.text.candidates.ngrams import NGrams
from normkit.text.decide.threshold import Threshold
from normkit.text.measures import evaluation
from normkit.text.rescore.spelling import Spelling
from normkit.text.rewrite.rules import Rules
from normkit.text.tables.cleaning import normalize_table
from normkit.text.tables.joining import joinable
from normkit.text.training import lexical
from normkit.text.training.encoder import train_encoder
from normkit.text.vocabulary import read_vocabulary


def made(name, *args, **kwargs):
    return nk.create(name, *args, **kwargs)


LOGITS, LABELS = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, dtype=torch.int64)
ROWS, WIDE = torch.ones(3, 2), torch.ones(3, 5)
FUSION, PHRASES = made("multi-aspect-fusion", [2, 2], 2), made("phrase-to-node", 2, 2, hidden=1, k=2)
SETS = made("calibration-set")
NUMERALS = made("lithuanian-numerals")
SUBTYPES = made("span-subtype-classifier", 2, 2, {"site": 4}, size_dim=1, max_size=2)
SPANS = torch.zeros(1, 3, dtype=torch.int64)
KEPT = SPANS == 0


def spans(entity_labels=SPANS, mask=KEPT, subtype_labels=SPANS[..., None], logits=torch.ones(1, 3, 4)):  # noqa: B008
    return SUBTYPES.loss(torch.ones(1, 3, 2), entity_labels, mask, subtype_labels, logits)


def load_changed(**settings):
    """Load a normalizer of before there were seals, whose settings are these, or lack what is None."""
    nk.text.Normalizer([NGrams()]).fit({"a": ["b", "c"]}).save("saved")
    path = pathlib.Path("saved", folder.SETTINGS)
    found = json.loads(path.read_text())
    del found["files"][folder.SETTINGS]
    lacking = [key for key, own in settings.items() if own is None]
    path.write_text(json.dumps({key: own for key, own in (found | settings).items() if key not in lacking}))
    return nk.text.Normalizer.load("saved")


def load_no_archive():
    pathlib.Path("it.npz").write_bytes(b"no archive")
    print_ = hashlib.sha256(b"no archive").hexdigest()
    return folder._arrays(pathlib.Path(), "it.npz", {"files": {"it.npz": print_}})


def mapped():
    """Map a column whose result has a place already."""
    nk.text.Normalizer([NGrams()]).fit({"a": ["b", "c"]}).save("saved")
    pathlib.Path("rows.csv").write_text("city,city_id\nb,1\n")
    options = cli.parser().parse_args(["text", "map", "saved", "rows.csv", "--column", "city"])
    return options.run(options)


CASES = {
    "LexicalDecision: candidates must be at least one": lambda: made("lexical-decision")("a", []),
    "NilDecision: ids and logits must be of one length, not 1 and 2": lambda: made("nil-decision")(["a"], [0.1, 0.2]),
    "NilDecision: keys and ranked": lambda: made("nil-decision").spread(["a"], [["b"], ["c"]]),
    "LexicalEvaluation: predicted must": lambda: made("lexical-evaluation")([["a"]], [["a"]], [["a", "b"]]),
    "RetrievalMeasures: gold and ranked": lambda: made("retrieval-measures")([1], [[1], [2]]),
    "mentions must lie in the text, not from 1 to 9": lambda: made("coreference-normalization")("abc", [(1, 9, "x")]),
    "mentions must lie in the text, not from 2 to 1": lambda: made("coreference-normalization")("abc", [(2, 1, "x")]),
    "ColumnText: values must be at least one": lambda: made("column-text")("a", []),
    "ColumnText: query must be at least one": lambda: made("column-text").joinability([], ["a"]),
    "HeaderPaths: table must have rows": lambda: made("header-paths").top_paths([["a"], ["b", "c"]]),
    "HeaderPaths: table must have at least 3 rows": lambda: made("header-paths", top=3).top_paths([["a"]]),
    "TableNormalization: table must have a header": lambda: made("table-normalization").transpose([[]]),
    "filler must be one character": lambda: made("character-alignment", filler="ab"),
    "CharacterAlignment: picks must be at least 1": lambda: made("character-alignment").corrupt(
        "a", {"a": ["b"]}, 100.0, ["a"], []
    ),
    "dims must have the width of at least one": lambda: made("multi-aspect-fusion", [], 3),
    "gold_logits and gold_labels must be given both": lambda: made("rank-calibration-loss")(LOGITS, LABELS, LOGITS),
    "TypoNoise: draws must be": lambda: made("typo-noise")("word", [0.5]),
    "TypoNoise: draws must be at least": lambda: made("typo-noise")("word", [1.0] * 50),
    "Dense: encoder must be a folder or a function": lambda: Dense(1),
    "Dense: encoder must give a vector": lambda: Dense(lambda texts: [[1.0]]).fit({"a": ["b", "c"]}),
    "a data frame of pandas or polars is wanted, not int": lambda: frames._require(1),
    "there is no such file": lambda: lexical.read_multilexnorm("nowhere"),
    "a vocabulary in JSON is an object": lambda: read_vocabulary("list.json"),
    "is a folder; a file is wanted": lambda: read_vocabulary("there"),
    "load takes": lambda: nk.text.Normalizer.load("there", candidate=[]),
    "normalizer.json is damaged: it is not JSON": lambda: nk.text.Normalizer.load("torn"),
    "is no normalizer: normalizer.json does not say so": lambda: nk.text.Normalizer.load("other"),
    "is of version 0 of its format": lambda: nk.text.Normalizer.load("old"),
    "is damaged: gone is missing": lambda: folder._content(pathlib.Path("old"), "gone", {"files": {}}),
    "is damaged: normalizer.json is not what was": lambda: folder._content(
        pathlib.Path("old"), folder.SETTINGS, {"files": {folder.SETTINGS: "0"}}
    ),
    "gold must hold ids, several of them, or None, not 1.5": lambda: evaluation.as_ids(1.5),
    "decide must return None or a place below 2, not 2": lambda: match.rank(
        "a", ["x", "y"], np.array([0.1, 0.2]), [("b",), ("b",)], lambda scores: 2
    ),
    "gold must be as long as the mentions, 0, not 1": lambda: evaluation.evaluate([], ["a"]),
    "AliasNormalization: threshold must lie in [0.0, 1.0]": lambda: made("alias-normalization", {}, threshold=1.5),
    "AliasNormalization: threshold must lie in [0.0, 1.0], not -": lambda: made("alias-normalization", {}, -0.5),
    "Aliases: k must be at least 1": lambda: Aliases(0),
    "Aliases: threshold must lie in [0.0, 1.0], not 1.5": lambda: Aliases(threshold=1.5),
    "Aliases: threshold must lie in [0.0, 1.0], not -0.5": lambda: Aliases(threshold=-0.5),
    "k of generators['ngrams'] must be at least 0": lambda: made("candidate-ensemble", {"ngrams": {"k": -1}}),
    "CandidateEnsemble: top_k must be at least 0": lambda: made("candidate-ensemble", {})({}, top_k=-1),
    "Dense: k must be at least 1": lambda: Dense(list, k=0),
    "Dense: exact must be at least 0": lambda: Dense(list, exact=-1),
    "NgramCandidates: k must be at least 1": lambda: made("ngram-candidates", k=0),
    "NgramCandidates: min_df must be at least 1": lambda: made("ngram-candidates", min_df=0),
    "NgramCandidates: threshold must lie in [-inf, inf], not nan": lambda: made("ngram-candidates", threshold=math.nan),
    "NGrams: k must be at least 1": lambda: NGrams(k=0),
    "NGrams: n must be at least 1": lambda: NGrams(n=0),
    "NGrams: min_df must be at least 1": lambda: NGrams(min_df=0),
    "NGrams: threshold must be a number": lambda: NGrams(threshold="0.5"),
    "LexicalDecision: keep must be one of 'symbols', 'nothing'": lambda: made("lexical-decision", keep="all"),
    "LexicalDecision: bias must lie in [-inf, inf], not nan": lambda: made("lexical-decision", bias=math.nan),
    "Threshold: least must be a number": lambda: Threshold("0.5"),
    "RetrievalMeasures: k must be at least 1": lambda: made("retrieval-measures", k=(1, 0)),
    "Spelling: by must be one of 'edits'": lambda: Spelling("sound"),
    "HomophoneNormalization: language must be one of": lambda: made("homophone-normalization", language="de"),
    "HomophoneNormalization: level must be one of": lambda: made("homophone-normalization", level="none"),
    "LithuanianNumerals: case must be one of": lambda: NUMERALS.number("1", "ablative", "feminine"),
    "LithuanianNumerals: year must be at least 0": lambda: NUMERALS.date(-1, 1, 1, True),
    "LithuanianNumerals: month must be at least 1": lambda: NUMERALS.date(0, 0, 1, True),
    "LithuanianNumerals: month must be at most 12": lambda: NUMERALS.date(0, 13, 1, True),
    "LithuanianNumerals: day must be at least 1": lambda: NUMERALS.date(0, 1, 0, True),
    "LithuanianNumerals: day must be at most 31": lambda: NUMERALS.date(0, 1, 32, True),
    "LithuanianNumerals: hour must be at least 0": lambda: NUMERALS.time(-1, 0, True),
    "LithuanianNumerals: hour must be at most 24": lambda: NUMERALS.time(25, 0, True),
    "LithuanianNumerals: minute must be at least 0": lambda: NUMERALS.time(0, -1, True),
    "LithuanianNumerals: minute must be at most 59": lambda: NUMERALS.time(0, 60, True),
    "Rules: seconds must lie in (0.0, inf]": lambda: Rules([], seconds=0),
    "normalize_table: decimal must be one of": lambda: normalize_table({"a": ["1"]}, decimal=";"),
    "ColumnText: limit must be at least 1": lambda: made("column-text", limit=0),
    "HeaderPaths: top must be at least 0": lambda: made("header-paths", top=-1),
    "HeaderPaths: left must be at least 0": lambda: made("header-paths", left=-1),
    "joinable: least must lie in [0.0, 1.0], not 1.5": lambda: joinable(["a"], {}, least=1.5),
    "joinable: least must lie in [0.0, 1.0], not -0.5": lambda: joinable(["a"], {}, least=-0.5),
    "TableNormalization: name in columns must be one of 'a'": lambda: made("table-normalization").split([["a"]], ["b"]),
    "CalibrationSet: strategy must be one of 'max_margin'": lambda: SETS.rank_set([], "easy", 1),
    "CalibrationSet: n must be at least 1": lambda: SETS.rank_set([], "max_gap", 0),
    "CalibrationSet: strategy must be one of 'min_margin'": lambda: SETS.contrast_set([], "max_gap", 1, 1),
    "CalibrationSet: positives must be at least 1": lambda: SETS.contrast_set([], "easy", 0, 1),
    "CalibrationSet: negatives must be at least 1": lambda: SETS.contrast_set([], "easy", 1, 0),
    "CalibrationSet: items must have one of sign 'positive'": lambda: SETS.contrast_set([], "easy", 1, 1),
    "CalibrationSet: beam of items must be a number": lambda: SETS.rank_set(
        [{"id": 1, "score": 0.5, "beam": "1"}], "max_gap", 1
    ),
    "CharacterAlignment: match must lie in [-inf, inf], not nan": lambda: made("character-alignment", match=math.nan),
    "CharacterAlignment: mismatch must lie in [-inf, inf], not nan": lambda: made(
        "character-alignment", mismatch=math.nan
    ),
    "CharacterAlignment: gap must lie in [-inf, inf], not nan": lambda: made("character-alignment", gap=math.nan),
    "CharacterAlignment: sources and targets must be of one length, not 1 and 0": lambda: made(
        "character-alignment"
    ).table(["a"], []),
    "train_encoder: batch must be at least 2": lambda: train_encoder({}, "new", batch=1),
    "train_encoder: steps must be at least 1": lambda: train_encoder({"a": ["b", "c"], "d": ["e"]}, "new", steps=0),
    "LexicalModel: beams must be at least 1": lambda: lexical.LexicalModel("nowhere", beams=0),
    "train_lexical: steps must be at least 1": lambda: lexical.train_lexical([], [], "new", steps=0),
    "train_lexical: batch must be at least 1": lambda: lexical.train_lexical([], [], "new", batch=0),
    "InBatchRankingLoss: negatives must have shape (any, 2)": lambda: made("in-batch-ranking-loss")(ROWS, ROWS, WIDE),
    "MultiAspectFusion: title must have shape (any, 2)": lambda: FUSION.score(WIDE, ROWS),
    "MultiAspectFusion: candidate must have shape (3, 2)": lambda: FUSION.score(ROWS, ROWS[:1]),
    "MultiAspectFusion: aspects[1] must have shape (3, 2)": lambda: FUSION(ROWS, ROWS[:1]),
    "PhraseToNode: nodes must have shape (any, 2)": lambda: PHRASES.nearest(ROWS, WIDE),
    "PhraseToNode: nodes must be at least k=2, not 1": lambda: PHRASES.nearest(ROWS, ROWS[:1]),
    "SpanSubtypeClassifier: subtypes['site'] must be at least 1": lambda: made(
        "span-subtype-classifier", 2, 2, {"site": 0}
    ),
    "SpanSubtypeClassifier: mask must have shape (1, 3)": lambda: spans(mask=KEPT[:, :2]),
    "SpanSubtypeClassifier: mask must be a boolean": lambda: spans(mask=KEPT.long()),
    "SpanSubtypeClassifier: subtype_labels must have shape (1, 3, 1)": lambda: spans(subtype_labels=SPANS),
    "SpanSubtypeClassifier: subtype_logits must be 1 tensors, not 0": lambda: SUBTYPES.loss(
        torch.ones(1, 3, 2), SPANS, KEPT, SPANS[..., None]
    ),
    "SpanSubtypeClassifier: logits of site must have shape (1, 3, 4)": lambda: spans(logits=torch.ones(1, 3, 3)),
    "SpanSubtypeClassifier: labels of entity must lie in 0 .. 1": lambda: spans(entity_labels=SPANS + 2),
    "SpanSubtypeClassifier: labels of site must lie in 0 .. 3": lambda: spans(subtype_labels=SPANS[..., None] + 4),
    "SpanSubtypeClassifier: labels of entity must have shape (1, 3)": lambda: spans(entity_labels=SPANS[:, :2]),
    "SpanSubtypeClassifier: labels of entity must be an int64": lambda: spans(entity_labels=KEPT.float()),
    "UnlikelihoodCalibrationLoss: positives must be from 1 to": lambda: made(
        "unlikelihood-calibration-loss", positives=3
    )(LOGITS, LABELS),
    "ContrastiveCalibrationLoss: positives must be from 2 to": lambda: made(
        "contrastive-calibration-loss", positives=3
    )(LOGITS, LABELS),
    "normalizer.json is damaged: KeyError: 'tuned'": lambda: load_changed(tuned=None),
    "saved: weights were fitted for 2 parts, not 1": lambda: load_changed(fusion={"weights": [0.5] * 4}),
    "is damaged: it.npz: ": load_no_archive,
    "rows.csv has a column 'city_id' already; rename it": mapped,
    "Normalizer: folds must be at least 2": lambda: nk.text.Normalizer([NGrams()]).tune([], [], folds=1),
}


@pytest.mark.parametrize("message", CASES)
def test_what_does_not_fit_is_refused(message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[1]")
    whole = {"format": folder.FORMAT, "version": 0}
    for name, text in {"there": "{}", "torn": "{", "other": "{}", "old": json.dumps(whole)}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / folder.SETTINGS).write_text(text)
    with pytest.raises((ValueError, TypeError)) as refused:
        CASES[message]()
    assert message in str(refused.value)
