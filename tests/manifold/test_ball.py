"""The ball of Poincaré: what its norms promise, and the Fréchet mean."""

import math

import pytest
import torch

import normkit as nk
from normkit.manifold import _ball, _frechet
from sizes import Largest

F64 = torch.float64


def points(count=7, dim=3, length=0.8, seed=0):
    drawn = torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return length * drawn / (1 + drawn.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("c", [1.0, 0.4])
def test_the_frechet_mean_is_where_tangent_vectors_cancel_and_moves_as_it_should(c):
    x = points()
    center = _frechet.mean(x, c)
    assert _ball.log0(_ball.add(-center, x, c), c).mean(0).abs().max() < 1e-10
    assert torch.autograd.gradcheck(lambda x: _frechet.mean(x, c), x.requires_grad_(), atol=1e-6)


@pytest.mark.parametrize("gap", [1e-6, 1e-9, 1e-12])
def test_the_frechet_mean_of_one_point_at_the_edge_is_that_point(gap):
    for x in torch.nn.functional.normalize(points(60, 5), dim=1) * (1 - gap):
        torch.testing.assert_close(_frechet.mean(x.expand(3, 5), 1.0), x, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype, distance", [(torch.float32, 12.0), (F64, 12.0), (F64, 28.0)])
def test_the_frechet_mean_of_far_points_does_not_depend_on_their_order(dtype, distance):
    drawn = torch.nn.functional.normalize(points(10), dim=1)
    means = [_frechet.mean((drawn[order] * math.tanh(distance / 2)).to(dtype), 1.0) for order in (slice(None), ORDER)]
    torch.testing.assert_close(*means, rtol=0, atol=1e-5)
    assert means[0].norm() < 0.5  # all are as far from the origin


ORDER = torch.arange(9, -1, -1)


def test_gyrobn_gives_a_mean_at_the_origin_and_a_variance_of_one():
    y = nk.create("gyrobn", 3, eps=0.0, dtype=F64)(points())
    torch.testing.assert_close(_frechet.mean(y, 1.0), torch.zeros(3, dtype=F64), rtol=0, atol=1e-8)
    origin = torch.zeros(3, dtype=F64)
    torch.testing.assert_close(_ball.distance(origin, y, 1.0).square().mean(), torch.ones((), dtype=F64))


def test_gyrobn_refuses_points_outside_and_other_geometries():
    with pytest.raises(ValueError, match=r"a point has 1\.5 times"):
        nk.create("gyrobn", 2)(torch.tensor([[1.5, 0.0]]))
    with pytest.raises(ValueError, match="curvature must be below 0"):
        nk.create("gyrobn", 2, curvature=1.0)
    with pytest.raises(ValueError, match="no points"):
        nk.create("gyrobn", 2)(torch.zeros(0, 2))


@pytest.mark.parametrize("name", ["mobius-linear", "radius-scaling", "poincare-distance-matrix", "gyrobn"])
def test_points_outside_of_the_ball_are_refused_and_rounded_ones_are_not(name):
    edge = torch.nn.functional.normalize(points(40, 4), dim=1) / nk.card(name).example.get("c", 1.0) ** 0.5
    call = nk.card(name).small(4)
    others = [0.5 * edge] * len(nk.card(name).inputs)
    assert call(edge.bfloat16().double(), *others).isfinite().all()
    with pytest.raises(ValueError, match=r"must lie in the ball.*, but a point has 1\.5 times its radius"):
        call(1.5 * edge, *others)


def test_the_running_variance_is_a_plain_average():
    norm = nk.create("gyrobn", 3, momentum=0.3, dtype=F64)
    found = []
    for seed in range(3):
        x = points(seed=seed)
        found.append(_ball.distance(_frechet.mean(x, 1.0), x, 1.0).square().mean())
        norm(x)
    torch.testing.assert_close(norm.running_var, torch.stack(found).mean().reshape(1))


def test_the_midpoint_is_near_to_the_frechet_mean_and_both_give_the_variance_wanted():
    x = 0.3 * points(20)
    one, other = (
        nk.create("poincare-midpoint-batchnorm", 3, use_midpoint=m, eps=0.0, dtype=F64)(x) for m in (True, False)
    )
    torch.testing.assert_close(one, other, rtol=0.1, atol=0.05)
    with torch.no_grad():
        moved = _ball.exp0(other, 1.0)
    torch.testing.assert_close(_ball.distance(torch.zeros(3, dtype=F64), moved, 1.0).square().mean().item(), 1.0)
    for midpoint in (True, False):
        assert nk.create("poincare-midpoint-batchnorm", 3, use_midpoint=midpoint)(torch.ones(0, 3)).shape == (0, 3)
    with pytest.raises(ValueError, match="use_midpoint"):
        nk.create("poincare-midpoint-batchnorm", 3, use_midpoint=False, sync=True)


def test_layers_start_near_to_the_identity_and_a_kernel_of_one_is_a_linear_layer():
    small = 1e-4 * points()
    torch.testing.assert_close(nk.create("poincare-linear", 3, 3, dtype=F64)(small), small, rtol=1e-6, atol=0)
    linear = nk.create("poincare-linear", 3, 5, id_init=False, dtype=F64)
    conv = nk.create("poincare-conv2d", 3, 5, 1, dtype=F64)
    conv.load_state_dict(linear.state_dict())
    image = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    torch.testing.assert_close(conv(image).movedim(1, -1), linear(image.movedim(1, -1)))
    with pytest.raises(ValueError, match="kernel_size"):
        nk.create("poincare-conv2d", 3, 5, 6)(torch.zeros(1, 3, 4, 5))


def test_a_multiple_of_the_identity_multiplies_the_radius():
    layer = nk.create("radius-scaling", 3, dtype=F64)
    with torch.no_grad():
        layer.weight.mul_(0.6)
    torch.testing.assert_close(layer.radius(layer(points())), 0.6 * layer.radius(points()))
    torch.testing.assert_close(layer.radius(points()[:1]), layer.radius(points())[:1])
    assert layer(torch.zeros(1, 3, dtype=F64)).abs().max() == 0


def test_distances_are_those_of_the_ball_up_to_the_bounds_of_the_code():
    x = points()
    want = _ball.distance(x.unsqueeze(1), x.unsqueeze(0), 0.5)
    torch.testing.assert_close(nk.poincare_distance_matrix(x, x, c=0.5), want, rtol=1e-4, atol=1e-4)
    moved = nk.to_poincare(5 * torch.ones(1, 4, dtype=F64), c=1.0, clip=1.0)
    torch.testing.assert_close(moved.norm(), torch.tensor(1.0, dtype=F64).tanh(), rtol=1e-4, atol=0)


def test_a_matrix_of_distances_says_which_of_its_inputs_is_wrong():
    x, distances = points(), nk.poincare_distance_matrix
    for key, given in {"x": (x[0], x), "y": (x, x[:, :2])}.items():
        with pytest.raises(ValueError, match=f"^poincare-distance-matrix: {key} must have shape"):
            distances(*given, c=0.5)
    with pytest.raises(ValueError, match=r"^poincare-distance-matrix: y must have shape \(any, 3\)"):
        distances(x, x[0], c=0.5)
    with pytest.raises(ValueError, match=r"^poincare-distance-matrix: c must lie in \(0.0, inf\], not 0"):
        distances(x, x, c=0.0)


@pytest.mark.parametrize("blocks", [1, 4])
def test_many_points_are_scaled_by_one_matrix_without_a_copy_of_it_for_each(blocks):
    layer, x = nk.create("radius-scaling", 32, blocks=blocks, dtype=F64), points(100, 32).requires_grad_()
    torch.nn.init.normal_(layer.weight, std=0.2)
    with Largest() as seen:
        layer(x).square().sum().backward()
    assert seen.numbers == x.numel()
    whole = torch.block_diag(*layer.weight)
    torch.testing.assert_close(layer(x), _ball.multiply(x, x @ whole.T, 1.0))


@pytest.mark.parametrize("length", [0.8, 1 - 1e-6])
def test_the_distances_of_pairs_are_those_of_sums_of_mobius_without_one_for_each_pair(length):
    x, y = points(30, 16, length).requires_grad_(), points(20, 16, length, seed=1)
    y[:3] = x[:3].detach()
    with Largest() as seen:
        got = nk.poincare_distance_matrix(x, y, c=1.0)
        slope = torch.autograd.grad(got.sum(), x)[0]
    assert seen.numbers == 30 * 20
    sums = _ball.Clamped.add(-x.unsqueeze(1), y.unsqueeze(0), 1.0)
    want = 2 * _ball.Clamped.artanh(_ball.norm(sums)).squeeze(-1)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(slope, torch.autograd.grad(want.sum(), x)[0])


def test_views_in_the_ball_are_compared_without_a_sum_of_mobius_for_each_pair():
    features = points(40, 64).requires_grad_()
    with Largest() as seen:
        nk.create("hyperbolic-contrastive", c=0.5)(features).backward()
    assert seen.numbers == features.numel()
