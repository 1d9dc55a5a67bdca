"""Microsoft's mup beside param_groups: the same function over fifty steps."""

import importlib.util

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk

if importlib.util.find_spec("mup") is None:  # .ci/run has a folder for it
    pytest.skip("mup wants packages for pictures that nothing else needs", allow_module_level=True)

import mup


class Net(nn.Module):
    def __init__(self, width, head=nn.Linear):
        super().__init__()
        self.first, self.inner = nn.Linear(7, width, bias=False), nn.Linear(width, width, bias=False)
        self.head = head(width, 5, bias=False)

    def forward(self, x):
        return self.head(self.inner(self.first(x).relu()).relu())


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_steps_are_theirs(name):
    base, theirs, ours = Net(16).double(), Net(64, mup.MuReadout), Net(64).double()
    mup.set_base_shapes(theirs, Net(16, mup.MuReadout), delta=Net(32, mup.MuReadout))
    theirs.double()
    ours.load_state_dict(theirs.state_dict())
    ours.head.weight.data /= theirs.head.width_mult()
    groups = nk.param_groups(ours, name, parametrization="mup", base=base, lr=0.01, weight_decay=0.1)
    options = {"eps": 1e-30} if name == "adamw" else {}  # theirs has an eps that knows no width
    one = (torch.optim.AdamW if name == "adamw" else torch.optim.SGD)(groups, **options)
    other = (mup.MuAdamW if name == "adamw" else mup.MuSGD)(theirs.parameters(), lr=0.01, weight_decay=0.1, **options)
    x, y = torch.randn(20, 7, dtype=torch.float64), torch.randint(5, (20,))
    for _ in range(50):
        for model, optimizer in ((ours, one), (theirs, other)):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-7, atol=1e-9)
