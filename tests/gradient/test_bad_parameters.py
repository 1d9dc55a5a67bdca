"""Parameters that are no dense matrices of real numbers, in the hands of optimizers of matrices."""

import pytest
import torch
from torch import nn

import normkit as nk

OF_MATRICES = {"muon": {}, "normuon": {}, "muon-plus": {}, "dion": {"rank": 2}, "hyperball": {}, "muown": {}}
ANY = ("soap", "lion", "signum", "lamb", "lars", "adafactor", "stable-adamw", "scion")


def matrix():
    return nn.Parameter(torch.arange(6.0).reshape(2, 3).sin())


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
    with pytest.raises(ValueError, match=r"blocks of \[3, 3\] rows do not divide|momentum_buffer of shape"):
        other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["blocks"] is None
    assert not other.state


def test_a_state_of_another_dialect_goes_on_as_that():
    """The settings are in the groups, as with torch's: what is loaded is the run that was saved."""
    p, q = matrix(), matrix()
    one = nk.Muon.like("moonlight", [p], ns_dtype=None)
    other = nk.Muon.like("keller-jordan", [q], ns_dtype=None)
    for step in range(3):
        p.grad = torch.full_like(p, step + 1.0).cos()
        one.step()
        if step == 0:
            q.data.copy_(p)
            other.load_state_dict(one.state_dict())
        else:
            q.grad = p.grad.clone()
            other.step()
    torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)
    assert other.param_groups[0]["adjust_lr"] == "match_rms_adamw"
