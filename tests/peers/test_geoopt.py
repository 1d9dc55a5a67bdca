"""geoopt's ball of Poincaré and its definite matrices beside ours, and its checks of points on what ours give."""

import pytest
import torch

import normkit as nk

geoopt = pytest.importorskip("geoopt")
CURVATURES = (0.3, 1.0)
MANIFOLDS = {"definite": geoopt.SymmetricPositiveDefinite(), "frame": geoopt.Stiefel()}
TO_MANIFOLDS = [
    name
    for name in nk.methods(room="manifold")
    if nk.card(name).kind.name == "norm" and nk.card(name).shape.kind in MANIFOLDS
]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def in_ball(count, c, seed=0):
    x = drawn(count, 5, seed=seed)
    return 0.9 * x / (1 + x.norm(dim=-1, keepdim=True)) / c**0.5


def definite(count=6, seed=0):
    x = drawn(count, 4, 4, seed=seed)
    return x @ x.mT + 0.1 * torch.eye(4, dtype=torch.float64)


@pytest.mark.parametrize("c", CURVATURES)
def test_points_distances_and_maps_of_the_ball_are_geoopts(c):
    ball, x, y = geoopt.PoincareBall(c=c), in_ball(4, c), in_ball(3, c, seed=1)
    tangent = 0.5 * drawn(6, 5)
    torch.testing.assert_close(nk.to_poincare(tangent, c=c), ball.projx(ball.expmap0(tangent)), rtol=0, atol=2e-3)
    want = ball.dist(x[:, None], y[None])
    torch.testing.assert_close(nk.poincare_distance_matrix(x, y, c=c), want, rtol=1e-3, atol=1e-4)
    layer = nk.MobiusLinear(5, 6, c=c, bias_c=None).double()
    want = ball.mobius_add(ball.mobius_matvec(layer.weight, x), ball.expmap0(layer.bias))
    torch.testing.assert_close(layer(x), want, rtol=1e-4, atol=1e-5)
    assert all(ball.check_point_on_manifold(point) for point in layer(x))


def test_functions_of_definite_matrices_are_geoopts():
    x = definite()
    for name, theirs in {"log": "sym_logm", "sqrt": "sym_sqrtm", "rsqrt": "sym_inv_sqrtm1"}.items():
        want = getattr(geoopt.linalg, theirs)(x)
        torch.testing.assert_close(getattr(nk.manifold, name)(x), want, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(nk.manifold.exp(x / 10), geoopt.linalg.sym_expm(x / 10), rtol=1e-9, atol=1e-10)


def test_the_mean_is_where_geoopts_logarithms_cancel():
    space, x = geoopt.SymmetricPositiveDefinite("AIM"), definite()
    mean = nk.manifold.mean(x)
    assert space.logmap(mean.expand_as(x), x).mean(0).abs().max() < 1e-8


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", TO_MANIFOLDS)
def test_what_a_norm_gives_lies_on_geoopts_manifold(name, training):
    card = nk.card(name)
    module = card.small(8).double().train(training)
    y = module(*card.draw(8, dtype=torch.float64)).detach()
    space = MANIFOLDS[card.shape.kind]
    kept, why = space.check_point_on_manifold(y, explain=True, atol=1e-8, rtol=1e-8)
    assert kept, why


def test_distances_between_matrices_stay_where_only_the_mean_moves():
    space, x = geoopt.SymmetricPositiveDefinite("AIM"), definite()
    y = nk.create("riemannian-batchnorm", 4).double()(x)
    torch.testing.assert_close(space.dist(y[1:], y[:-1]), space.dist(x[1:], x[:-1]), rtol=1e-7, atol=1e-8)
