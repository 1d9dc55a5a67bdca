"""What the contract does not ask of low precision: transforms that go back, grids that are kept, odd inputs."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import nn
from torch.nn.utils import parametrize

import normkit as nk
from normkit.contract.goldens.replay import replay
from normkit.ops.hadamard import hadamard
from normkit.quant import turboquant_codebook as codebook


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("where", ["after", "before", "none"])
def test_nsnquant_goes_back(where):
    module, x = nk.NSNQuant(8, hadamard=where), 3 * numbers(2, 5, 8) + 7
    found = module(x)
    torch.testing.assert_close(found[0].square().mean(-1), torch.ones(2, 5, dtype=torch.float64))
    torch.testing.assert_close(module.inverse(*found), x)


def test_before_and_after_differ_in_the_shift_alone():
    x = numbers(5, 16)
    after, before = nk.NSNQuant(16)(x), nk.NSNQuant(16, hadamard="before")(x)
    torch.testing.assert_close(after[0], before[0])
    torch.testing.assert_close(after[2] @ hadamard(16), before[2])


def test_one_channel_has_nothing_to_rotate():
    x = numbers(5, 1)
    torch.testing.assert_close(nk.NSNQuant(1)(x)[0], nk.NSNQuant(1, hadamard="none")(x)[0])


def test_a_width_that_is_no_power_of_two_has_no_rotation():
    with pytest.raises(ValueError, match="head_dim must be a power of two"):
        nk.NSNQuant(10)
    with pytest.raises(ValueError, match="x must have an axis of tokens"):
        nk.NSNQuant(8)(numbers(8))


def test_one_token_is_its_own_mean():
    found = nk.NSNQuant(4)(numbers(1, 4))
    assert (found[0] == 0).all()
    torch.testing.assert_close(nk.NSNQuant(4).inverse(*found), numbers(1, 4))


@pytest.mark.parametrize("per_channel", [True, False])
def test_learned_rounding_begins_at_the_weight_and_ends_on_the_grid(per_channel):
    layer = nn.Linear(6, 4, dtype=torch.float64)
    weight = layer.weight.detach().clone()
    rounding = nk.LearnedRounding((4, 6), bits=3, per_channel=per_channel).double()
    parametrize.register_parametrization(layer, "weight", rounding)
    step = rounding.scale.view(-1, 1)
    lower = (weight / step).floor() + rounding.zero_point.view(-1, 1)
    inside = (lower >= 0) & (lower < 7)  # what is not clipped
    assert inside.double().mean() > 0.5
    torch.testing.assert_close(layer.weight[inside], weight[inside])
    layer.eval()
    codes = layer.weight / step
    torch.testing.assert_close(codes, codes.round())
    assert (layer.weight - weight).abs().max() <= step.max()


def test_rounding_is_learned_where_the_nearest_is_not_the_best():
    x, weight = numbers(64, 8) + 2, numbers(4, 8, seed=1)
    rounding = nk.LearnedRounding((4, 8), bits=4).double()
    rounding.fit(weight)
    rule, loss = nk.RoundingRegularizer(weight=0.001), nk.ReconstructionLoss()
    optimizer = torch.optim.Adam([rounding.alpha], lr=0.05)
    for step in range(300):
        rule.anneal(step / 300)
        optimizer.zero_grad()
        (loss(x @ rounding(weight).T, x @ weight.T) + rule(rounding.alpha)).backward()
        optimizer.step()
    scale, zero = rounding.scale.view(-1, 1), rounding.zero_point.view(-1, 1)
    nearest = ((weight / scale + zero).round().clamp(0, 15) - zero) * scale
    assert loss(x @ rounding.eval()(weight).T, x @ weight.T) < 0.8 * loss(x @ nearest.T, x @ weight.T)


def test_a_weighted_reconstruction_wants_its_gradient():
    y = numbers(2, 3, 2, 2)
    with pytest.raises(TypeError, match="needs the gradient"):
        nk.ReconstructionLoss(mode="fisher-diag")(y, y)
    with pytest.raises(ValueError, match="y must have four axes"):
        nk.ReconstructionLoss(mode="fisher-full")(y[0], y[0], y[0])


@pytest.mark.parametrize("scale", [0.0, 1e-20, 6e4])
def test_norm_tweaking_has_no_nan_at_the_ends(scale):
    x = (scale * numbers(5, 4)).float().requires_grad_()
    loss = nk.NormTweakingLoss()
    loss(x.detach() * 2, x).backward()
    assert x.grad.isfinite().all()
    assert loss(x[:1], x[:1]) == 0


def test_channels_of_all_sizes_keep_their_digits():
    x = numbers(200, 12) * 10 ** torch.linspace(-3, 0, 12, dtype=torch.float64)
    module = nk.ShiftQuant(12, num_groups=10)
    error = ((module(x) - x).abs().amax(0) / x.abs().amax(0)).max()
    plain = ((nk.ShiftQuant(12, num_groups=1)(x) - x).abs().amax(0) / x.abs().amax(0)).max()
    assert error < 0.15 < plain
    codes, group, scale = module.codes(x)
    assert codes.abs().max() == 7
    torch.testing.assert_close(codes * scale * 2.0**-group, module(x))
    assert not module(torch.zeros(2, 12)).any()


def test_stochastic_rounding_is_right_on_average():
    torch.manual_seed(0)
    x = torch.cat([torch.full((20000, 1), 0.3), torch.ones(20000, 1)], 1).double()
    assert nk.ShiftQuant(2, bits=2, num_groups=1, stochastic=True)(x).mean(0)[0] == pytest.approx(0.3, abs=0.01)


def test_a_shape_without_entries_is_named():
    with pytest.raises(ValueError, match="LearnedRounding: shape must be at least 1, not 0"):
        nk.LearnedRounding((4, 0))


def test_the_least_size_that_an_error_names_is_reached():
    table, sizes = numbers(5, 2).abs(), torch.tensor([9.0, 70.0, 12.0, 3.0, 40.0])
    given = table, torch.tensor(0.0).double(), sizes

    def allocate(target):
        return nk.allocate_bits(*given, precisions=[4, 2], base=8, target=target)

    with pytest.raises(ValueError, match=r"target=0\.01 is not reached by any precisions; the least is") as caught:
        allocate(0.01)
    least = float(str(caught.value).rpartition(" ")[2])
    assert allocate(1.001 * least).bits.tolist() == [2] * 5
    with pytest.raises(ValueError, match="is not reached"):
        allocate(0.99 * least)


@pytest.mark.parametrize("dim", [2, 3, 64, 1024, 65536])
def test_one_bit_of_a_coordinate_is_its_mean_size(dim):
    want = math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)
    accuracy = 1e-13 * max(1, dim / 100)  # of the difference of two large logarithms
    assert codebook.points(dim, 1) == pytest.approx((-want, want), rel=accuracy)


@pytest.mark.parametrize(("dim", "bits"), [(2, 6), (3, 8), (64, 5), (128, 8), (4096, 7)])
def test_every_point_of_a_codebook_is_the_mean_of_its_cell(dim, bits):
    points = np.array(codebook.points(dim, bits))
    cuts = np.concatenate([[-math.pi / 2], np.arcsin((points[1:] + points[:-1]) / 2), [math.pi / 2]])
    for place in (0, 1, len(points) // 3, len(points) // 2):  # the first cell ends where the density has ended
        low, high = max(cuts[place], cuts[place + 1] - 20 / math.sqrt(dim)), cuts[place + 1]
        mass, moment = (
            integrate.quad(
                lambda a, n=n: math.cos(a) ** (dim - 2) * math.sin(a) ** n, low, high, epsabs=0, epsrel=1e-13
            )
            for n in (0, 1)
        )
        assert points[place] == pytest.approx(moment[0] / mass[0], rel=1e-11)
    assert (np.diff(points) > 0).all()
    assert (points == -points[::-1]).all()


@pytest.mark.parametrize("inner", [False, True])
def test_vectors_shorter_than_one_are_coded_as_long_ones(inner):
    module, x = nk.TurboQuant(16, bits=3, inner=inner).double(), numbers(5, 16)
    coded, small = module(x), module(x / 1024)
    assert torch.equal(small.indices, coded.indices)
    torch.testing.assert_close(1024 * small.y, coded.y)


def test_a_codebook_of_eight_bits_takes_few_integrals(monkeypatch):
    calls, cells = [], codebook.cells
    monkeypatch.setattr(codebook, "cells", lambda cuts, dim: calls.append(dim) or cells(cuts, dim))
    for dim, bits in itertools.product((2, 7, 128, 4096), range(1, 9)):
        codebook.points.__wrapped__(dim, bits)
        assert len(calls) < 15, f"{dim}, {bits}"
        calls.clear()


class OpenClamp(torch.overrides.TorchFunctionMode):
    """Torch from 2.14 on: ``clamp`` has no gradient at its bounds."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not torch.Tensor.clamp or kwargs or len(args) != 3:
            return func(*args, **(kwargs or {}))
        x, low, high = args
        return torch.where((x > low) & (x < high), x, x.detach().clip(low, high))


@pytest.mark.parametrize("case", ["conv", "linear", "narrow"])
def test_the_grid_of_adaquant_has_gradients_at_its_ends_on_every_torch(case):
    with OpenClamp():
        x = torch.tensor([0.0, 0.5, 1.0], requires_grad=True)
        (slope,) = torch.autograd.grad(x.clamp(0.0, 1.0).sum(), x)
        assert slope.tolist() == [0.0, 1.0, 0.0]
        replay(Path(__file__).parents[1] / "goldens/adaquant" / f"{case}.npz")
