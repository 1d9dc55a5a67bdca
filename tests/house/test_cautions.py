"""When a method is not the one to take: each rule finds a method that it is about, and leaves one alone."""

import importlib
import pathlib
import re

import pytest

import normkit as nk

pytest.importorskip("mkdocs")
ROOT = pathlib.Path(__file__).parents[2]
CASES = {  # the rule: a method that it is about, and one that it is not
    "batch": ("batchnorm", "layernorm"),
    "order": ("onlinenorm", "batchnorm"),
    "later_tokens": ("attentive-batchnorm", "cumulative-groupnorm"),
    "half": ("deepnorm", "layernorm"),
    "zeros": ("weight-norm", "placement-search"),
    "single": ("alpha-batchnorm", "batchnorm"),
    "far_values": ("af-kan", "layernorm"),
    "bits": ("adaln-continuous", "layernorm"),
    "pairs": ("alignment-uniformity", "nkd"),
    "no_gradient": ("el2n", "csls"),
    "constants": ("cema-loss", "nkd"),
    "other_gradient": ("powernorm", "batchnorm"),
    "second_derivatives": ("gyrobn", "powernorm"),
    "idle_parameters": ("layernorm-tuning", "layernorm"),
    "functional": ("delta-tbr", "fedrap"),
    "running": ("batchnorm", "fake-layernorm"),
    "restless": ("fake-layernorm", "batchnorm"),
    "remembers": ("ps-kd", "nkd"),
    "learned": ("sigmoid-loss", "nkd"),
    "accumulation": ("conr", "nkd"),
    "domain": ("gyrobn", "csls"),
    "spellings": ("column-text", "lithuanian-numerals"),
    "fitting": ("gaussian-normality", "csls"),
    "further_inputs": ("adain", "groupnorm"),
    "labels": ("ausuc", "csls"),
    "bank": ("csls", "hubness"),
    "processes": ("sigmoid-loss", "gdwct"),
    "export": ("stain-norm", "layernorm"),
    "kernel": ("adalin", "layernorm"),
    "forms": ("differential-integral", "softmax"),
    "masks": ("softmax-free", "softmax"),
    "crossed": ("differential-integral", "softmax"),
    "length": ("softmax-free", "softmax"),
    "scores": ("attention-sinks", "softmax"),
    "activations": ("hyper-connections", "deepnorm"),
    "place": ("deepnorm", "pre-norm"),
    "new_weight": ("spectral-norm", "weight-norm"),
    "computed_anew": ("weight-norm", "layernorm"),
    "before_sharding": ("weight-norm", "layernorm"),
    "inexact": ("cnf", "ferumal-coupling"),
    "slow_inverse": ("cinc-conv", "ferumal-coupling"),
    "memory": ("kl-soap", "lion"),
    "whole_matrix": ("lamb", "lion"),
    "matrices": ("muon", "lion"),
    "all_groups": ("nsgd", "lion"),
    "without_gradient": ("muon", "lion"),
    "trained_parts": ("tent", "memo"),
    "calls": ("memo", "tent"),
}


@pytest.fixture(autouse=True)
def docs(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")


def of(module):
    return importlib.import_module(module)


def test_every_rule_has_a_case():
    assert {rule.__name__ for rule in of("cautions").RULES} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_rule_is_about_one_method_and_not_about_another(name):
    rule = getattr(of("cautions"), name)
    about, alone = map(nk.card, CASES[name])
    words = rule(about)
    assert words
    assert rule(alone) == ""
    assert not words[0].isupper()
    assert words[-1] not in ".:"
    assert len(words.split()) <= 30


@pytest.mark.parametrize(
    "name, words",
    [
        ("batchnorm", "evaluation reads `running_mean`, `running_var`"),
        ("evonorm-b0", "and it does not fold into the layer beside it"),
        ("kl-soap", "of a square matrix it keeps 6.0 numbers for each entry, AdamW 2"),
        ("sigmoid-loss", "it learns `log_scale`, `bias`: give its parameters to the optimizer"),
        ("cema-loss", "no gradient reaches `teacher_logits`: the teacher is a constant"),
        ("memo", "a call runs the model 33 times on each sample"),
        ("tent", "is refused: that is what it trains"),
        ("gated-linear", "it has a causal form alone"),
    ],
)
def test_a_caution_names_what_is_meant(name, words):
    assert any(words in caution for caution in of("cautions").cautions(nk.card(name)))


def test_numbers_beyond_1_are_a_caution_only_where_they_are_refused():
    refuses = of("cautions").refuses_more_than_one
    assert refuses(nk.card("pit-entropy"))
    assert not refuses(nk.card("magsac-loss"))


def test_a_page_lists_its_cautions():
    page = of("generate").page(nk.card("spectral-norm"))
    assert len(re.findall(r"^- Mind: ", page, re.MULTILINE)) == len(of("cautions").cautions(nk.card("spectral-norm")))
    assert "- Mind: on a trained layer it changes the weight at once" in page
