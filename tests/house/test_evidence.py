"""What a card says of the numbers that its method is compared with agrees with its goldens."""

import json
import re

import numpy as np
import pytest

import normkit as nk
from normkit import catalog, cli
from normkit.contract.goldens.places import OURS

UNREAD = re.compile(r"\babstract\b|recalled|reconstruction|could not be read|read in part|through a review")
THEIRS = re.compile(r"(?<!no )authors?'s? |[\w.-]+/[\w.-]+[,)]|SPDNetBN")


def sources(name):
    """Where each golden of a method is from."""
    for path in (OURS / name).glob("*"):
        if path.suffix == ".json":
            yield json.loads(path.read_text(encoding="utf-8"))["source"]
        elif path.suffix == ".npz":
            with np.load(path) as file:
                yield json.loads(str(file["meta"]))["source"]


@pytest.mark.parametrize("name", nk.methods(), ids=str)
def test_evidence_is_what_the_goldens_say(name):
    card, origins = nk.card(name), set(sources(name))
    assert card.evidence in catalog.EVIDENCE
    if card.evidence == "authors":
        assert any(map(THEIRS.search, origins)), f"no golden is of the authors' code: {origins}; say evidence="
        assert not all("equations" in source for source in origins), f"{origins}: say evidence="
    elif card.evidence == "library" and not origins:
        assert card.peer or card.called, "another library's code is neither recorded nor its peer"
    if UNREAD.search(card.provenance):
        assert card.evidence == "abstract", card.provenance


def test_methods_of_others_claim_nothing_and_an_unknown_word_is_refused(monkeypatch):
    monkeypatch.setattr(catalog, "_cards", {**catalog._cards})

    @catalog.method("a-strangers-norm", shape="... C")
    class Stranger(nk.Norm):
        """Do nothing."""

    assert nk.card("a-strangers-norm").evidence == ""
    with pytest.raises(ValueError, match="evidence must be one of 'authors'"):
        catalog.method("another-strangers-norm", evidence="hearsay")(Stranger)


def test_list_and_show_say_it(capsys):
    assert cli.main(["list", "evonorm-b1"]) == 0
    out = capsys.readouterr().out
    assert "  evonorm-b1  library " in out
    assert "library: recorded from another library's code" in out
    assert cli.main(["show", "evonorm-b1"]) == 0
    assert "Evidence\n  recorded from another library's code: no authors' code; as in timm" in capsys.readouterr().out
