"""Adaptive norms in rarer forms, AltUp and LAuReL are found by what they compute, with their numbers."""

import importlib
import math
from types import SimpleNamespace

import near_misses_altup
import near_misses_maps
import near_misses_modulated
import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import let_torchvision_load
from normkit.surgery.recognition import search, wholes
from normkit.surgery.recognition.adaptive import _far
from normkit.surgery.recognition.wholes import examine_whole

N, L, C, F = 3, 7, near_misses_modulated.DIM, near_misses_modulated.FEATURES
X, CONDITION, OF_TOKENS = torch.randn(N, L, C), torch.randn(N, F), torch.randn(N, L, F)
SIX, TIMES, TABLE = torch.randn(N, 6, C), torch.randn(N, L, C), torch.randn(2, C)
CONTEXT, SECOND, MASK = torch.randn(N, 4, C), torch.randn(N, F), torch.rand(N, L)
NUMBERS, SHARED = torch.randint(4, (L,)), torch.randn(N, 3 * C)
IMAGE, MAP = torch.randn(N, C, 4, 5), torch.randn(N, 3, 2, 3)


def in_turn(made):
    """Both streams of a method, each with its vectors."""
    y, context, *rest = made
    return (y, *rest[:4], context, *rest[4:])


def first_tokens(method):
    """A method's results where the first two tokens have the second condition."""
    (y, *rest), (other, *others) = method(X, CONDITION), method(X, SECOND)
    return (torch.cat([other[:, :2], y[:, 2:]], 1), *rest, *others)


def twelve(module):
    return module(X, CONTEXT, CONDITION), lambda m: in_turn(m(X, CONTEXT, CONDITION))


def handed(pieces):
    return lambda module: (module(X, emb=SIX[:, :pieces]), lambda m: m(X, SIX[:, :pieces].flatten(1)))


def firsts(module):
    return module(X, CONDITION, SECOND, 2), first_tokens


def of_image(module):
    return module(IMAGE, MAP), lambda m: m(IMAGE, MAP)


# what somebody's module returns, and what the method's makes of the same
CALLS = {
    "Twelve": twelve,
    "TwelveInPairs": twelve,
    "OfOneCondition": lambda module: (module(X, temb=SECOND[0]), lambda m: m(X, SECOND[:1].expand(N, -1))),
    "RowsByNumber": lambda module: (
        module(X[0], SECOND, NUMBERS % N),
        lambda m: m(X[:1], SECOND[NUMBERS % N][None])[0],
    ),
    "FirstTokensByAnother": firsts,
    "FirstTokensByAnotherInBoth": firsts,
    "Handed": handed(6),
    "HandedForOne": handed(3),
    "Thin": lambda module: (module(X, CONDITION, SHARED[:, : 2 * C]), lambda m: m(X, CONDITION, SHARED)[0]),
    "ThinZero": lambda module: (module(X, CONDITION, SHARED), lambda m: m(X, CONDITION, SHARED)),
    "Last": lambda module: (module(X, TIMES), lambda m: m(X, TIMES)),
    "LastOfLastTokens": lambda module: (module(X, TIMES, 3), lambda m: m(X, TIMES)[:, -3:]),
    "TableHanded": lambda module: (module(X, TIMES[:, 0], TABLE), lambda m: m(X, (TIMES[:, :1] + TABLE).flatten(1))),
    "BothHanded": lambda module: (module(X, SIX[:, :2]), lambda m: m(X, SIX[:, :2].flatten(1))),
    "Spatial": of_image,
    "SpatialOfVideos": lambda module: (
        module(IMAGE[:, :, None], MAP[:, :, None]),
        lambda m: m(IMAGE[:, :, None], MAP[:, :, None]),
    ),
    "Gated": lambda module: (module(X, OF_TOKENS, MASK), lambda m: m(X, OF_TOKENS) * MASK[..., None]),
    "GatedRms": lambda module: (
        module(OF_TOKENS, -OF_TOKENS, MASK),
        lambda m: m(OF_TOKENS, -OF_TOKENS) * MASK[..., None],
    ),
    "GatedUnmasked": lambda module: (module(X, OF_TOKENS), lambda m: m(X, OF_TOKENS)),
}
NORMS = near_misses_modulated.TRUE | near_misses_maps.TRUE


def moved(cls):
    """One whose numbers are drawn."""
    torch.manual_seed(0)
    module = cls()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape))
    return module


@pytest.mark.parametrize("name", NORMS)
def test_norms_are_found_with_their_numbers(name):
    cls, method, wanted = NORMS[name]
    module = moved(cls)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    match = examine_whole(module)
    assert match.name == method
    assert {key: match.kwargs[key] for key in wanted} == wanted
    theirs, ours = CALLS[name](module)
    ours = ours(match.module)
    if isinstance(theirs, tuple):
        theirs = tuple(a.reshape(b.shape) for a, b in zip(theirs, ours, strict=True))
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())


def test_the_rows_of_one_result_are_not_several_results():
    one = SimpleNamespace(condition=SimpleNamespace(ours=lambda module, inputs: inputs[0]))
    rows = X.unbind()
    assert _far(one, nn.Identity(), X, [X]) == _far(one, nn.Identity(), rows, [rows]) == 0
    assert _far(one, nn.Identity(), rows, [X]) == _far(one, nn.Identity(), X, [rows]) == math.inf


def test_the_evidence_says_how_it_was_handed_its_condition():
    match = examine_whole(moved(near_misses_modulated.TRUE["FirstTokensByAnother"][0]))
    assert match.evidence[0].startswith("as a whole with a second condition of the first tokens, on 15 inputs")


def check_updates(module, match):
    """Whether both predict and correct alike."""
    dim, n = match.kwargs["dim"], match.kwargs["streams"]
    streams, active = torch.randn(2, 5, n, dim), torch.randn(2, 5, dim)
    first = streams.movedim(-2, 0)
    ours = match.module.predict(streams), match.module.correct(streams, active)
    theirs = module.predict(first).movedim(0, -2), module.correct(first, active).movedim(0, -2)
    torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-5)


def check_map(module, match):
    """Whether both map alike."""
    x = torch.randn(2, 5, match.kwargs["dim"])
    torch.testing.assert_close(module(x), match.module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "check"), [("Updates", check_updates), ("LowRank", check_map)])
def test_altup_and_laurel_are_found_with_their_numbers(name, check):
    cls, method, wanted = near_misses_altup.TRUE[name]
    match = examine_whole(module := moved(cls))
    assert match.name == method
    assert {key: match.kwargs[key] for key in wanted} == wanted
    check(module, match)


@pytest.fixture(scope="module")
def gemma():
    let_torchvision_load()
    pytest.importorskip("transformers")
    return importlib.import_module("transformers.models.gemma3n.modeling_gemma3n")


@pytest.mark.parametrize(
    ("cls", "wanted", "check"),
    [
        ("Gemma3nTextAltUp", {"dim": 16, "streams": 3}, check_updates),
        ("Gemma3nTextLaurelBlock", {"dim": 16, "rank": 5}, check_map),
    ],
)
def test_gemma_3n_s_own_are_found(gemma, cls, wanted, check):
    config = gemma.Gemma3nTextConfig(hidden_size=16, laurel_rank=5, altup_num_inputs=3)
    module = moved(lambda: getattr(gemma, cls)(config))
    match = nk.recognize(module)
    assert match.name == ("altup" if "AltUp" in cls else "laurel")
    assert {key: match.kwargs[key] for key in wanted} == wanted
    check(module, match)


def test_a_model_s_table_has_both_and_the_norms_within(gemma):
    config = gemma.Gemma3nTextConfig(hidden_size=16, laurel_rank=5, altup_num_inputs=3)
    layer = nn.ModuleDict({"altup": gemma.Gemma3nTextAltUp(config), "laurel": gemma.Gemma3nTextLaurelBlock(config)})
    assert {site: match.name for site, match in nk.recognize(layer).found.items()} == {
        "altup": "altup",
        "altup.router_norm": "rmsnorm",
        "laurel": "laurel",
        "laurel.post_laurel_norm": "rmsnorm",
    }
    assert {change.site for change in nk.swap(layer, "layernorm").done} == {
        "altup.router_norm",
        "laurel.post_laurel_norm",
    }


class Feedforward(nn.Module):
    """Two thin matrices and no norm."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def test_a_feedforward_is_not_copied(monkeypatch):
    looks = []
    monkeypatch.setattr(wholes, "redraw", looks.append)
    assert not nk.recognize(nn.Sequential(Feedforward(), Feedforward())).found
    assert not looks


class Experts(nn.Module):
    """The matrices of all experts in two tensors, as transformers has them."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.ones(4, 12, 6)), nn.Parameter(torch.ones(4, 6, 12))

    def forward(self, x, index, weights):
        rows = x[:, None] @ self.up[index].mT @ self.down[index].mT
        return (rows * weights).sum(1)


class InOneRow(nn.Module):
    """All matrices of a layer in one row, as those that are sharded have them."""

    def __init__(self):
        super().__init__()
        self.numbers = nn.Parameter(torch.ones(2**17 + 1))

    def forward(self, x, condition):
        return x * condition


@pytest.mark.parametrize("cls", [Experts, InOneRow])
def test_the_matrices_of_experts_are_no_vector_of_a_norm(cls, monkeypatch):
    looks = []
    monkeypatch.setattr(wholes, "redraw", looks.append)
    assert not nk.recognize(nn.Sequential(cls())).found
    assert not looks


def test_a_row_of_all_numbers_of_a_layer_is_refused_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr(search, "Probe", None)
    assert search.examine(InOneRow()).why_not == "it holds 131073 numbers in one row, more than a norm has"
