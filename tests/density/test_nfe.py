"""Entities as distributions: distances that are 0 where they should be, and a small graph that is learned."""

import math

import pytest
import torch

import normkit as nk


@pytest.mark.parametrize("variant", ["normal", "two-sided", "kl"])
def test_a_tail_that_is_the_moved_head_has_the_whole_score(variant):
    torch.manual_seed(0)
    model = nk.NFE(5, 1, 3, variant=variant, gamma=2.0).double()
    with torch.no_grad():
        model.entity.uniform_(0.5, 2.0)
        one = math.log(math.e - 1) if variant == "kl" else 1.0  # softplus of it is 1
        model.relation.copy_(torch.tensor([[0.0] * 3 + [one] * 3]))
        factor = model.relation[0, 3:]
        model.entity[1] = model.entity[0]
        model.entity[1, :3] = factor * model.entity[0, :3]
    scores = model(torch.tensor([0]), torch.tensor([0]))[0].detach()
    assert scores[1] == pytest.approx(2.0, abs=1e-12)
    assert scores[2:].max() < 1.99


def test_a_chain_is_learned():
    torch.manual_seed(0)
    head = torch.arange(7)
    tail, relation = head + 1, torch.zeros(7, dtype=torch.int64)
    model = nk.NFE(8, 1, 8, gamma=4.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        model.loss(model(head, relation), tail).backward()
        optimizer.step()
    assert torch.equal(model(head, relation).argmax(1), tail)


def test_entities_that_are_not_there_are_refused():
    model, zero = nk.NFE(4, 2, 3), torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"head must lie in 0 .. 3"):
        model(zero + 4, zero)
    with pytest.raises(ValueError, match="relation must have shape"):
        model(zero, zero[:1])
    with pytest.raises(ValueError, match="tail must have shape"):
        model.loss(model(zero, zero), zero[:1])
