"""`nk.fuse` takes a residual addition into the norm behind it, where a block does the same in every mode."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import normkit as nk
from normkit.surgery import adding, fusing


class Block(nn.Module):
    """A sublayer behind each of two norms; what may be in the way."""

    def __init__(self, way=""):
        super().__init__()
        self.way = way
        self.one, self.two, self.up = nk.RMSNorm(6), nk.LayerNorm(6), nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, mask=None):
        y = self.drop(self.up(self.one(x)))
        x = x + y
        if self.way == "mask" and mask is not None:
            x = x * mask
        if self.way == "functional":
            x = functional.dropout(x, 0.5, self.training)
        if self.way == "shape" and x.sum() > 0:
            x = x * 2
        return x + self.two(x).relu() + (self.two(y) if self.way == "twice" else 0)


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setattr(fusing, "race_addition", lambda *_: (1.0, 0.5))


def model(way=""):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), Block(way), Block(way)).eval()


def test_numbers_gradients_and_names_stay(fast):
    net, x = model(), torch.randn(5, 6)
    before = copy.deepcopy(net)
    report = nk.fuse(net, x)
    assert [change.site for change in report.done] == ["1.two", "2.two"]
    assert report.done[0].became == "LayerNorm with the addition before it"
    assert isinstance(net[1], Block)
    assert type(net[1]) is not Block
    assert list(net.state_dict()) == list(before.state_dict())
    for one in (net, copy.deepcopy(net)):
        torch.testing.assert_close(one(x), before(x))
    torch.manual_seed(1)
    net.train()(x).sum().backward()
    torch.manual_seed(1)
    before.train()(x).sum().backward()
    for new, old in zip(net.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(new.grad, old.grad)


def test_the_addition_is_done_in_the_norm(fast, monkeypatch):
    net, x = model(), torch.randn(5, 6)
    nk.fuse(net, x)
    seen = []
    own = nk.LayerNorm.add_norm
    monkeypatch.setattr(nk.LayerNorm, "add_norm", lambda *given: seen.append(1) or own(*given))
    net(x)
    assert seen == [1, 1]


@pytest.mark.parametrize("way", ["mask", "functional", "shape", "twice"])
def test_blocks_that_may_do_otherwise_are_left_alone(way, fast):
    net, x = model(way), torch.randn(5, 6)
    nk.fuse(net, x)
    assert type(net[1]) is Block


def test_what_is_no_faster_is_left_alone(monkeypatch):
    monkeypatch.setattr(fusing, "race_addition", lambda *_: (1.0, 1.0))
    net = model()
    assert not nk.fuse(net, torch.randn(5, 6)).done
    assert type(net[1]) is Block


def test_what_gives_other_numbers_is_not_put_in(fast, monkeypatch):
    monkeypatch.setattr(adding, "added", lambda norm, x, y: (norm(x + y) * 1.01, x + y))
    net = model()
    assert not nk.fuse(net, torch.randn(5, 6)).done
    assert type(net[1]) is Block


def test_sums_of_other_shapes_are_added_as_before():
    norm = nk.LayerNorm(6)
    x, row = torch.randn(5, 6), torch.randn(6)
    y, total = adding.added(norm, x, row)
    torch.testing.assert_close(total, x + row)
    torch.testing.assert_close(y, norm(x + row))
