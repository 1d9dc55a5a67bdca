"""What the recordings of the modules for text leave out."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import normkit as nk


@pytest.fixture
def phrases():
    torch.manual_seed(0)
    return torch.randn(3, 5, 4), torch.tensor([5, 2, 1])


def test_states_are_those_of_torch_for_packed_phrases(phrases):
    words, lengths = phrases
    module = nk.create("phrase-to-node", 4, 6, hidden=3)
    lstm = nn.LSTM(4, 3, batch_first=True, bidirectional=True)
    lstm.load_state_dict(module.lstm.state_dict())
    states = lstm(pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False))[1][0]
    torch.testing.assert_close(module(words, lengths), module.out(torch.cat([states[0], states[1]], 1)))


def test_linear_reads_the_mean_of_the_words_that_are_there(phrases):
    words, lengths = phrases
    module = nk.create("phrase-to-node", 4, 6, kind="linear")
    torch.testing.assert_close(module(words, lengths)[1], module.out(words[1, :2].mean(0)))


def test_one_node_for_many_phrases_is_refused_by_the_loss_and_not_compared_with_each():
    module, predicted = nk.create("phrase-to-node", 4, 6), torch.randn(3, 6)
    assert module.loss(predicted, -2 * predicted).item() == pytest.approx(2)
    with pytest.raises(ValueError, match=r"node must have shape \(3, 6\), but its shape is \(1, 6\)"):
        module.loss(predicted, predicted[:1])


def test_a_span_without_tokens_is_left_out_of_the_loss():
    torch.manual_seed(0)
    module = nk.create("span-subtype-classifier", 4, 3, {"part": 2}, adjacent=True)
    h = torch.randn(2, 5, 4, requires_grad=True)
    masks = torch.ones(2, 3, 5, dtype=torch.bool)
    masks[0, 0] = False
    there = masks.any(-1)
    ones = torch.ones(2, 3, dtype=torch.int64)
    entity, part = module(h, masks, ones)
    module.loss(entity, ones, there, ones.unsqueeze(-1), part).backward()
    assert module.entity.in_features == 3 * 4 + 25
    assert torch.isfinite(h.grad).all()


@pytest.mark.parametrize("autocast", [False, True])
def test_a_span_without_tokens_spoils_no_gradient_in_float16(autocast):
    torch.manual_seed(0)
    made = torch.float32 if autocast else torch.float16
    module = nk.create("span-subtype-classifier", 4, 3, {"part": 2}, dropout=0.0).to(made)
    h = torch.randn(1, 5, 4, dtype=made, requires_grad=True)
    masks = torch.eye(5, dtype=torch.bool)[None, [0, 1]] & torch.tensor([True, False])[:, None]
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        entity, part = module(h, masks, masks.sum(-1))
        loss = module.loss(entity, torch.ones(1, 2, dtype=torch.int64), masks.any(-1), torch.ones(1, 2, 1).long(), part)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in [h, *module.parameters()])


@pytest.mark.parametrize("name", ["", "type", "training", "a.b"])
def test_a_layer_of_subtypes_whose_name_torch_refuses_is_named(name):
    with pytest.raises(ValueError, match=f"subtypes must not be named '{name}', which torch refuses"):
        nk.create("span-subtype-classifier", 4, 3, {name: 2})


def test_a_phrase_must_be_as_long_as_the_widest_filter():
    module, words = nk.create("phrase-to-node", 4, 6, kind="cnn", hidden=3), torch.randn(5, 3, 4)
    assert module(words, torch.tensor([3, 2, 1, 0, 3])).shape == (5, 6)
    with pytest.raises(ValueError, match="words must have at least 3 on axis 1, not 2"):
        module(words[:, :2], torch.tensor([2, 2, 1, 0, 2]))
    with pytest.raises(ValueError, match="words must have at least 1 on axis 1, not 0"):
        nk.create("phrase-to-node", 4, 6, hidden=3)(words[:, :0], torch.tensor([0, 0, 0, 0, 0]))
