"""Refusals that belong to one part of the text room: each names what came and what was wanted."""

import json
import pathlib

import numpy as np
import pytest
import torch

import normkit as nk
from normkit.text import folder, frames, match
from normkit.text.candidates.dense import Dense
from normkit.text.measures import evaluation
from normkit.text.training import lexical
from normkit.text.vocabulary import read_vocabulary


def made(name, *args, **kwargs):
    return nk.create(name, *args, **kwargs)


LOGITS, LABELS = torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, dtype=torch.int64)
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
