"""Where torch.export fails, a model's graph comes from torch.fx: what only moves numbers is seen through there too."""

import pytest
import torch
from test_folding import Read, folded, image, settled
from torch import nn


@pytest.fixture(autouse=True)
def by_fx(monkeypatch):
    monkeypatch.setattr(torch.export, "export", lambda *_, **__: 1 / 0)


class Turned(nn.Module):
    """A layer's channels, brought to the norm by methods, functions and modules that take arguments."""

    def __init__(self, turn, channels):
        super().__init__()
        self.layer, self.norm, self.turn = nn.Linear(6, 4), nn.BatchNorm1d(channels), turn

    def forward(self, x):
        return self.norm(self.turn(self.layer(x)))


TURNS = {
    "a method": lambda x: x.transpose(1, 2),
    "a method with names": lambda x: x.transpose(dim0=1, dim1=2),
    "a function": lambda x: torch.movedim(x, -1, 1),
    "one after the other": lambda x: x.unsqueeze(1).squeeze(1).permute(0, 2, 1).contiguous(),
}


def test_a_norm_goes_into_all_who_read_it():
    assert folded(settled(Read()), image()) == {"norm": "into wide, mean, last, conv"}


@pytest.mark.parametrize("turn", TURNS)
def test_a_norm_goes_into_the_layer_whose_channels_were_moved(turn):
    assert folded(settled(Turned(TURNS[turn], 4)), image(2, 5, 6)) == {"norm": "into layer"}


def test_a_part_of_a_layers_channels_keeps_the_norm():
    told = folded(settled(Turned(lambda x: x.transpose(1, 2).narrow(1, 1, 3), 3)), image(2, 5, 6))
    assert "into" not in told["norm"].split()
