"""Norms of torch_geometric beside ours, on a batch of graphs of unequal sizes."""

import pytest
import torch

import normkit as nk

pytestmark = pytest.mark.peers
PAIRS = {
    "GraphNorm": (lambda: nk.create("graph-norm", 6), (6,)),
    "GraphSizeNorm": (lambda: nk.create("graph-size-norm"), ()),
    "PairNorm": (lambda: nk.create("pair-norm"), ()),
}
BATCH = torch.tensor([0] * 5 + [1] * 3 + [2] * 7)


@pytest.mark.parametrize("name", PAIRS)
def test_numbers_of_a_batch_of_graphs(name):
    norms = pytest.importorskip("torch_geometric.nn.norm")
    ours, arguments = PAIRS[name]
    x = torch.randn(15, 6, dtype=torch.float64)
    theirs, module = getattr(norms, name)(*arguments).double(), ours().double()
    torch.testing.assert_close(module(x, BATCH), theirs(x, BATCH), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(module(x), theirs(x), rtol=1e-4, atol=1e-6)
