"""reset_parameters: what a model holds after to_empty, and after a subclass, a parametrization or a user changed it."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import normkit as nk
from normkit.probe.plasticity_probe import plasticity
from normkit.residual.stream import placements


@pytest.mark.parametrize("placement", placements())
def test_a_decoder_of_the_meta_device_has_numbers_when_each_part_is_started(placement):
    with torch.device("meta"):
        model = nk.Decoder(vocab=9, dim=8, depth=2, heads=2, placement=placement)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            value.fill_(math.nan)
    for part in model.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    assert model(torch.zeros(1, 3, dtype=torch.int64)).isfinite().all()
    new = nk.Decoder(vocab=9, dim=8, depth=2, heads=2, placement=placement)
    for name, value in model.named_parameters():
        first, part = new.get_parameter(name), new.get_submodule(name.rpartition(".")[0])
        by_torch = isinstance(part, nn.Linear | nn.Embedding)
        if first.numel() >= 16 and first.std() > 0 and not by_torch:
            assert 0.4 < value.std() / first.std() < 2.5, name


def test_numbers_of_chance_are_drawn_anew_and_the_others_are_the_first_ones_in_any_type():
    norm = nk.SwitchableNorm(4).half()
    first = {name: value.clone() for name, value in norm.state_dict().items()}
    norm(torch.randn(3, 4, 5, 5).half() + 2).sum().backward()
    with torch.no_grad():
        norm.weight.fill_(3)
    norm.reset_parameters()
    torch.testing.assert_close(norm.state_dict(), first, rtol=0, atol=0)
    layer = nk.create("cosine-norm", 8, 5)
    before, object_of = layer.weight.clone(), layer.weight
    layer.reset_parameters()
    assert layer.weight is object_of
    assert not torch.equal(layer.weight, before)
    assert layer.weight.abs().max() < 8**-0.5


def test_the_sublayers_that_a_block_was_given_stay_as_they_are():
    attention, feedforward = nn.Linear(4, 4), nn.Linear(4, 4)
    block = nk.create("skipinit", dim=4, attention=attention, feedforward=feedforward)
    before = attention.weight.clone()
    with torch.no_grad():
        block.attention_scale.fill_(3)
    block.reset_parameters()
    assert block.attention_scale.item() == 0
    assert torch.equal(attention.weight, before)


def test_a_parametrized_gain_starts_at_what_it_was_and_a_removed_one_stays_removed():
    class Twice(nn.Module):
        def forward(self, raw):
            return 2 * raw

        def right_inverse(self, weight):
            return weight / 2

    norm = nk.LayerNorm(3)
    norm.bias = None
    parametrize.register_parametrization(norm, "weight", Twice())
    with torch.no_grad():
        norm.parametrizations.weight.original.fill_(9)
    norm.reset_parameters()
    assert norm.weight.tolist() == [1, 1, 1]
    assert norm.bias is None


def test_a_parameter_that_is_not_the_methods_own_is_refused_and_nothing_moves():
    class Gated(nk.RMSNorm):
        def __init__(self, dim):
            super().__init__(dim)
            self.gate = nn.Parameter(torch.zeros(2))

    for norm, message in ((Gated(4), "gate of shape .2,.: a new RMSNorm has none"), (nk.RMSNorm(4), "of shape .4,.")):
        with torch.no_grad():
            norm.weight.fill_(3)
        if not hasattr(norm, "gate"):
            norm.weight = nn.Parameter(torch.full((5,), 3.0))
        with pytest.raises(ValueError, match=message):
            norm.reset_parameters()
        assert (norm.weight == 3).all()


def test_a_module_or_buffer_that_a_user_put_in_is_refused_and_stays():
    norm = nk.RMSNorm(4)
    norm.register_buffer("kept", torch.ones(2))
    with pytest.raises(ValueError, match=r"kept of shape .2,.: a new RMSNorm has none"):
        norm.reset_parameters()
    assert norm.kept.tolist() == [1, 1]
    norm = nk.RMSNorm(4)
    norm.extra = nn.ParameterList([torch.ones(2)])
    with pytest.raises(ValueError, match=r"extra.0 of shape .2,.: a new RMSNorm has none"):
        norm.reset_parameters()


def test_plasticity_is_measured_of_models_with_our_norms_and_blocks():
    model = nn.Sequential(nn.Linear(4, 8), nk.RMSNorm(8), nn.Linear(8, 2))
    assert plasticity(model, torch.randn(16, 4), steps=2, targets=1).mean.isfinite()
    for placement in ("hyper-connections", "ngpt"):
        decoder = nk.Decoder(vocab=9, dim=8, depth=1, heads=2, placement=placement)
        assert plasticity(decoder, torch.randint(9, (2, 5)), steps=1, targets=1).mean.isfinite()


def test_a_norm_whose_parameters_are_spread_over_processes_starts_anew(tmp_path):
    from torch import distributed
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        norm = nk.RMSNorm(4)
        norm.weight = nn.Parameter(distribute_tensor(torch.full((4,), 3.0), mesh, [Shard(0)]))
        norm.reset_parameters()
        assert norm.weight.placements == (Shard(0),)
        assert norm.weight.full_tensor().tolist() == [1, 1, 1, 1]
    finally:
        distributed.destroy_process_group()
