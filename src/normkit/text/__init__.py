"""From what people wrote to what they meant: normal form = decide(rescore(candidates(rewrite(text))))."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from normkit.text.candidates.aliases import Aliases as Aliases
    from normkit.text.candidates.dense import Dense as Dense
    from normkit.text.candidates.ngrams import NGrams as NGrams
    from normkit.text.decide.threshold import Threshold as Threshold
    from normkit.text.match import Answer as Answer
    from normkit.text.match import Candidate as Candidate
    from normkit.text.measures.evaluation import Evaluation as Evaluation
    from normkit.text.normalizer import Normalizer as Normalizer
    from normkit.text.rescore.cross_encoder import CrossEncoder as CrossEncoder
    from normkit.text.rescore.spelling import Spelling as Spelling
    from normkit.text.rewrite.fold import fold as fold
    from normkit.text.rewrite.legal_forms import LegalForms as LegalForms
    from normkit.text.rewrite.rules import Rules as Rules
    from normkit.text.tables.cleaning import normalize_table as normalize_table
    from normkit.text.tables.joining import joinable as joinable
    from normkit.text.training.lexical import LexicalModel as LexicalModel

HERE = {  # imported at the first look, so that help needs no torch
    "Aliases": "candidates.aliases",
    "Answer": "match",
    "Candidate": "match",
    "CrossEncoder": "rescore.cross_encoder",
    "Dense": "candidates.dense",
    "Evaluation": "measures.evaluation",
    "LegalForms": "rewrite.legal_forms",
    "LexicalModel": "training.lexical",
    "Match": "match",
    "NGrams": "candidates.ngrams",
    "Normalizer": "normalizer",
    "Rules": "rewrite.rules",
    "Spelling": "rescore.spelling",
    "Threshold": "decide.threshold",
    "fold": "rewrite.fold",
    "joinable": "tables.joining",
    "normalize_table": "tables.cleaning",
}


def __getattr__(name: str):
    if name == "__all__":  # for `from normkit.text import *`; written down, its names would be those of normkit too
        return list(HERE)
    if name not in HERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(f"{__name__}.{HERE[name]}"), name))


def __dir__():
    return sorted({*globals(), *HERE})
