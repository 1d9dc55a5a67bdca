"""Parameters that are no dense real matrices, and states of another dialect, in the hands of optimizers of matrices."""

import copy
import json
import re

import pytest
import torch
from torch import nn

import normkit as nk

OF_MATRICES = {"muon": {}, "normuon": {}, "muon-plus": {}, "dion": {"rank": 2}, "hyperball": {}, "muown": {}}
ANY = ("soap", "lion", "signum", "lamb", "lars", "adafactor", "stable-adamw", "scion")


def matrix():
    return nn.Parameter(torch.arange(6.0).reshape(2, 3).sin())


def test_a_group_without_parameters_is_refused():
    with pytest.raises(ValueError, match=r"^Lion: params has a group without parameters"):
        nk.Lion([{"params": [matrix()]}, {"params": [], "lr": 0.1}])


@pytest.mark.parametrize("name", OF_MATRICES)
def test_numbers_are_no_matrices(name):
    with pytest.raises(ValueError, match=r"of shape \(\).*use_muon=False"):
        nk.create(name, [matrix(), nn.Parameter(torch.tensor(1.0))], **OF_MATRICES[name])


@pytest.mark.parametrize("name", OF_MATRICES)
def test_a_vector_that_replaces_matrices_is_named_and_nothing_moves(name):
    """As a trainer does that flattens the parameters of a group, and hands its optimizer a part of them."""
    optimizer = nk.create(name, [matrix(), matrix()], **OF_MATRICES[name])
    vector = nn.Parameter(torch.ones(12))
    vector.grad = torch.ones(12)
    optimizer.param_groups[0]["params"] = [vector]
    with pytest.raises(ValueError, match=r"a vector has replaced matrices in params.*fully_shard"):
        optimizer.step()
    assert vector.tolist() == [1.0] * 12
    assert not optimizer.state[vector]


@pytest.mark.parametrize("name", ANY)
def test_numbers_and_empty_parameters_step_where_any_shape_does(name):
    params = [nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.ones(0, 3)), matrix()]
    optimizer = nk.create(name, params, lr=0.1)
    before = [p.detach().clone() for p in params]
    for _ in range(2):  # the first step of soap begins its statistics
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert params[0].item() < 2.0
    assert params[1].shape == (0, 3)
    assert not torch.equal(params[2], before[2])


@pytest.mark.parametrize("name", [*OF_MATRICES, *ANY])
@pytest.mark.parametrize("what", ["complex", "sparse"])
def test_complex_parameters_and_sparse_gradients_are_named_and_nothing_moves(name, what):
    sound, wrong = matrix(), nn.Parameter(torch.ones(2, 3, dtype=torch.complex64 if what == "complex" else None))
    optimizer = nk.create(name, [sound, wrong], **OF_MATRICES.get(name, {}))
    before = sound.detach().clone()
    sound.grad, wrong.grad = torch.ones_like(sound), torch.ones_like(wrong)
    if what == "sparse":
        wrong.grad = wrong.grad.to_sparse()
    with pytest.raises(TypeError, match=rf"{what}.*\(2, 3\)"):
        optimizer.step()
    assert torch.equal(sound, before)
    assert not optimizer.state[sound]


@pytest.mark.parametrize("name", ["soap", "kl-soap", "pmuon", "hyperball:base=soap"])
def test_a_gradient_too_long_for_its_square_is_named_and_nothing_moves(name):
    params = [matrix(), matrix()]
    optimizer = nk.create(name, params)
    for p, size in zip(params, (1.0, 1e20), strict=True):
        p.grad = torch.full_like(p, size)
    with pytest.raises(FloatingPointError, match=r"of shape \(2, 3\) is so long .* nothing has moved"):
        optimizer.step()
    assert all(torch.equal(p, matrix()) and not optimizer.state[p] for p in params)


def test_a_first_gradient_of_zero_moves_nothing_along_a_power_below_zero():
    p = matrix()
    optimizer = nk.DynMuon([p], p=-0.25, ns_eps=0.0, weight_decay=0.0)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert torch.equal(p, matrix())


@pytest.mark.parametrize("name", [*OF_MATRICES, *ANY])
def test_integers_that_cannot_have_a_gradient_stay(name):
    sound, integers = matrix(), nn.Parameter(torch.arange(6).reshape(2, 3), requires_grad=False)
    optimizer = nk.create(name, [sound, integers], **OF_MATRICES.get(name, {}))
    for _ in range(2):
        sound.grad = torch.ones_like(sound)
        optimizer.step()
    assert integers.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not torch.equal(sound, matrix())


def test_a_state_whose_blocks_do_not_divide_is_named_and_nothing_changes():
    p, q = nn.Parameter(torch.ones(6, 4)), nn.Parameter(torch.ones(8, 4))
    one, other = nk.Muon([p], blocks=(3, 3), ns_dtype=None), nk.Muon([q], ns_dtype=None)
    p.grad = torch.ones_like(p)
    one.step()
    with pytest.raises(ValueError, match=r"group 0 has blocks=\(3, 3\), and this optimizer blocks=None"):
        other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["blocks"] is None
    assert not other.state


DIALECTS = {
    "scale": ("muon", {}, {"adjust_lr": "match_rms"}),
    "no scale": ("muon", {}, {"adjust_lr": None}),
    "coefficients": ("muon", {}, {"ns_coefficients": (2.0, -1.5, 0.5)}),
    "rounds": ("muon", {}, {"ns_steps": 7}),
    "decay": ("muon", {}, {"cautious_decay": True}),
    "nesterov": ("muon", {}, {"nesterov": False}),
    "type": ("muon", {"ns_dtype": torch.float32}, {"ns_dtype": "bfloat16"}),
    "safety": ("muon", {}, {"ns_safety": 1.02}),
    "missing": ("muon", {}, {"skip_missing": True}),
    "uphill": ("muon", {}, {"maximize": True}),
    "two words": ("muon", {}, {"ns_eps": 0.0, "flatten_shape": True}),
    "normuon": ("normuon", {}, {"adjust_lr": "match_rms"}),
    "muon-plus": ("muon-plus", {}, {"normalize": "row"}),
    "muoneq": ("muoneq", {}, {"nesterov": False}),
    "muonclip": ("muonclip", {}, {"ns_steps": 7}),
    "hyperball": ("hyperball", {}, {"base": "normuon"}),
    "scion": ("scion", {"norm": "spectral"}, {"norm": "sign"}),
    "dion": ("dion", {}, {"start": "identity"}),
    "soap": ("soap", {}, {"correct_bias": False}),
    "cautious": ("cautious", {"lr": 0.1}, {"amsgrad": True}),
}


@pytest.mark.parametrize("case", DIALECTS)
def test_a_state_of_another_dialect_is_refused_by_its_words_and_nothing_changes(case):
    name, mine, theirs = DIALECTS[case]
    p, q = matrix(), matrix()
    one, other = nk.create(name, [p], **{**mine, **theirs}), nk.create(name, [q], **mine)
    p.grad = torch.ones_like(p)
    one.step()
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"another dialect.*nothing has changed\. Build the") as error:
        other.load_state_dict(one.state_dict())
    saved, present = str(error.value).split(", and this optimizer ")
    words = [word for word in theirs if one.param_groups[0][word] != other.param_groups[0][word]]
    for group, text in ((one.param_groups[0], saved), (other.param_groups[0], present)):
        assert re.findall(r"(\w+)=", text) == [word for word in one.param_groups[0] if word in words]
        assert all(f"{word}={group[word]!r}" in text for word in words)
    assert other.state_dict() == before
    assert torch.equal(q, matrix())
    nk.create(name, [q], **{**mine, **theirs}).load_state_dict(one.state_dict())


def test_a_state_with_this_optimizers_words_written_into_it_goes_on():
    p, q = matrix(), matrix()
    one, other = nk.Muon.like("moonlight", [p], ns_dtype=None), nk.Muon.like("keller-jordan", [q], ns_dtype=None)
    p.grad = torch.ones_like(p)
    one.step()
    saved = one.state_dict()
    saved["param_groups"] = [{**g, **other.dialect(other.param_groups[0])} for g in saved["param_groups"]]
    other.load_state_dict(saved)
    assert other.param_groups[0]["adjust_lr"] == "original"
    assert other.param_groups[0]["weight_decay"] == 0.1
    assert torch.equal(other.state[q]["momentum_buffer"], one.state[p]["momentum_buffer"])


RATES = {
    "muon": {"lr": 0.5, "momentum": 0.8, "weight_decay": 0.3, "betas": (0.8, 0.9), "gram": True, "foreach": False},
    "normuon": {"beta2": 0.5},
    "dynmuon": {"p": 0.2},
    "pmuon": {"gamma": 0.1, "beta": 0.9},
    "dion": {"rank": 2},
    "muoneq": {"clip": 3.0},
    "muonclip": {"bound": 50.0},
    "scion": {"scale": 3.0},
    "lamb": {"max_grad_norm": 2.0},
}


@pytest.mark.parametrize("name", RATES)
def test_rates_that_schedules_move_load(name):
    p, q = matrix(), matrix()
    one, other = nk.create(name, [p], **RATES[name]), nk.create(name, [q])
    other.load_state_dict(one.state_dict())
    for word, value in RATES[name].items():
        assert other.param_groups[0][word] == value


def test_the_largest_scores_of_muonclip_are_finite_and_read_in_float32():
    p = nn.Parameter(torch.ones(2, 3, dtype=torch.float16))
    groups = [{"params": [p], "qk_clip": "query_rotary", "largest": [80_000.0, 1.0]}]
    optimizer = nk.MuonClip(groups, bound=40_000.0, lr=0.0)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    assert p.tolist() == [[0.5] * 3, [1.0] * 3]
    optimizer.param_groups[0]["largest"] = [torch.inf, 1.0]
    with pytest.raises(ValueError, match="largest must be a number for each head"):
        optimizer.step()


def test_the_largest_scores_of_muonclip_load():
    p, q = matrix(), matrix()
    one, other = (nk.MuonClip([{"params": [x], "qk_clip": "query"}]) for x in (p, q))
    one.param_groups[0]["largest"] = [200.0, 50.0]
    other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["largest"] == [200.0, 50.0]
    with pytest.raises(ValueError, match="has qk_clip='query', and this optimizer qk_clip=None"):
        nk.MuonClip([matrix()]).load_state_dict(one.state_dict())


def test_a_state_through_json_is_of_the_same_dialect():
    p, q = matrix(), matrix()
    one, other = (nk.Muon.like("dion", [x], ns_dtype=word) for x, word in ((p, "float32"), (q, torch.float32)))
    saved = {**one.state_dict(), "param_groups": json.loads(json.dumps(one.state_dict()["param_groups"]))}
    other.load_state_dict(saved)
    for x in (p, q):
        x.grad = torch.ones_like(x)
    one.step(), other.step()
    assert torch.equal(p, q)


def test_a_group_may_repeat_what_all_groups_share_but_not_share_matrices_out():
    p = nn.Parameter(torch.ones(2, 2))
    optimizer = nk.AGC([{"params": [p], "base": "adamw"}], base="adamw", lr=0.1)
    assert "base" not in optimizer.param_groups[0]
    with pytest.raises(ValueError, match="AGC: a group of params has base, which all groups must share"):
        nk.AGC([{"params": [p], "base": "sgd"}], base="adamw", lr=0.1)
    with pytest.raises(ValueError, match=r"Muon: a group of params has sync=True.* ZeRO"):
        nk.Muon([{"params": [p], "sync": True}], sync=True)
