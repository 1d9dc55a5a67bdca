"""A checkpoint of torch's spectral norm goes on with the same numbers."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import normkit as nk


def test_torchs_vectors_load():
    torch.manual_seed(0)
    theirs = spectral_norm(nn.Conv2d(3, 4, 3).double())
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    theirs(x)
    ours = nn.Conv2d(3, 4, 3).double()
    nk.weight.apply(ours, "spectral-norm")
    state = theirs.state_dict()
    ours.load_state_dict(state)
    assert "parametrizations.weight.0._u" in state  # the file's own dictionary stays
    for mode in (True, True, False):
        torch.testing.assert_close(ours.train(mode)(x), theirs.train(mode)(x), rtol=0, atol=1e-12)
    ours.load_state_dict(ours.state_dict())
