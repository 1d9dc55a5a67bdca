"""Gyro batch norms: every geometry centers and scales as it says, and subspaces as the text wants it."""

import math

import pytest
import torch

import normkit as nk
from normkit.manifold import _curved, _frechet, _subspaces

F64 = torch.float64
close = torch.testing.assert_close


def seen(count=9, dim=3, k=1.0):
    """Stereographic coordinates of points, well inside of the ball, or of a half of the sphere."""
    drawn = torch.randn(count, dim, generator=torch.Generator().manual_seed(0), dtype=F64)
    return 0.8 * drawn / (1 + drawn.norm(dim=1, keepdim=True)) / max(abs(k), 1) ** 0.5


@pytest.mark.parametrize("name, space", _curved.GEOMETRIES.items())
@pytest.mark.parametrize("size", [0.3, 1.0, 2.5])
def test_every_geometry_gives_a_mean_at_the_origin_the_variance_asked_for_and_its_own_gradient(name, space, size):
    k = space.sign * size
    norm = nk.create("gyrobn", 3, geometry=name, curvature=k, eps=0.0, dtype=F64)
    norm.scale.data.fill_(0.4)  # so that points of the sphere stay within a half of it
    points = seen(k=k)
    close(space.to(space.back(points, k), k), points)
    found = space.to(norm(space.back(points, k)), k)
    mean = _frechet.mean(found, -k)
    close(mean, torch.zeros(3, dtype=F64), rtol=0, atol=1e-10)
    close(_curved.squared_distance(mean, found, k).mean().item(), 0.16, rtol=1e-9, atol=0)
    origin = space.back(torch.zeros(1, 3, dtype=F64), k)
    assert norm.running_mean.shape == origin.shape[1:]
    for given in (points, torch.zeros(2, 3, dtype=F64)):  # where all points are one, too
        assert torch.autograd.gradcheck(
            lambda y: nk.create("gyrobn", 3, geometry=name, curvature=k, eps=0.1, dtype=F64)(space.back(y, k)),
            given.clone().requires_grad_(),
            atol=1e-6,
        )


def test_the_three_pictures_of_hyperbolic_space_are_one_norm():
    found = []
    for name in ("poincare", "klein", "hyperboloid"):
        space = _curved.GEOMETRIES[name]
        norm = nk.create("gyrobn", 3, geometry=name, dtype=F64)
        with torch.no_grad():
            norm.bias.copy_(torch.tensor([0.2, -0.1, 0.3], dtype=F64) * 2 / space.unit)
            norm.scale.fill_(0.7)
        first = space.to(norm(space.back(seen(), -1.0)), -1.0)
        found.append(torch.cat([first, space.to(norm.eval()(space.back(seen(), -1.0)), -1.0)]))
    close(found[1], found[0])
    close(found[2], found[0])


def test_plain_space_is_a_batch_norm_of_vectors():
    x = seen()
    y = nk.create("gyrobn", 3, geometry="euclidean", eps=0.0, dtype=F64)(x)
    off = x - x.mean(0)
    close(y, off / off.square().sum(1).mean().sqrt())


def test_the_mean_on_the_sphere_is_turned_with_its_points():
    space = _curved.GEOMETRIES["sphere"]
    x = space.back(0.5 * seen(), 1.0)
    q = torch.linalg.qr(torch.eye(4, dtype=F64) + 0.1 * seen(4, 4))[0]
    q = q * torch.linalg.det(q).sign()
    mean, turned = (space.back(_frechet.mean(space.to(v, 1.0), -1.0), 1.0) for v in (x, x @ q.mT))
    close(mean @ q.mT, turned)


@pytest.mark.parametrize(
    "options, x, words",
    [
        ({"geometry": "sphere"}, [[2.0, 0.0, 0.0]], "must lie on the sphere, but the length of a point is off"),
        ({"geometry": "sphere"}, [[-1.0, 0.0, 0.0]], "opposite"),
        ({"geometry": "hyperboloid"}, [[1.0, 1.0, 0.0]], "must lie on the hyperboloid"),
        ({"geometry": "hyperboloid"}, [[-1.0, 0.0, 0.0]], "on the lower"),
        ({"geometry": "klein"}, [[1.0, 1.0]], "must lie in the ball"),
        ({"geometry": "sphere", "curvature": -1.0}, [[1.0, 0.0, 0.0]], "curvature must be above 0"),
    ],
)
def test_what_is_no_point_of_a_space_is_named(options, x, words):
    with pytest.raises(ValueError, match=words):
        nk.create("gyrobn", 2, **options)(torch.tensor(x))


def frames(count=8, n=5, p=2, spread=0.3):
    drawn = torch.randn(count, 1, n, p, generator=torch.Generator().manual_seed(1), dtype=F64)
    return torch.linalg.qr(torch.eye(n, p, dtype=F64) + spread * drawn)[0]


def omega(tangent):
    rest, p = tangent.shape
    top = torch.cat([torch.zeros(p, p, dtype=F64), -tangent.mT], 1)
    return torch.cat([top, torch.cat([tangent, torch.zeros(rest, rest, dtype=F64)], 1)])


@pytest.mark.parametrize("b", ["apart", "equal", "zero"])
def test_the_maps_of_subspaces_are_those_of_whole_matrices(b):
    tangent = {"apart": 0.7 * frames(1)[0, 0, 2:], "equal": 1.2 * torch.eye(3, 2, dtype=F64)}.get(b)
    tangent = torch.zeros(3, 2, dtype=F64) if tangent is None else tangent
    w, eye, x = omega(tangent), torch.eye(5, dtype=F64), frames(1, spread=1.0)[0, 0]
    for by, want in (
        (_subspaces.EXPM, torch.linalg.matrix_exp(w)),
        (_subspaces.CAYLEY, (eye - w) @ torch.linalg.inv(eye + w)),
        (_subspaces.HALF, torch.linalg.inv(eye - w / 2) @ (eye + w / 2)),
    ):
        close(_subspaces.rotate(tangent, x, by), want @ x)
        close(_subspaces.columns(tangent, by), want[:, :2])
        given = tangent.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda t, by=by: _subspaces.rotate(t, x, by), given, atol=1e-6)


@pytest.mark.parametrize("by", [_subspaces.EXPM, _subspaces.HALF], ids=["exponential", "cayley"])
def test_gradients_of_short_steps_keep_the_digits_of_their_type(by):
    """Eigenvalues of 1e-6 that differ by a third are near each other where functions of them are 1 and more."""
    short = torch.tensor([[1e-3, 2e-4], [-3e-4, 8e-4], [5e-4, 6e-4]])
    found = []
    for given in (short, short.double()):
        given.requires_grad_()
        top = _subspaces.columns(given, by)[:2]
        found.append(torch.autograd.grad((top * torch.tensor([[1.0, 2.0], [-1.0, 3.0]]).to(top)).sum(), given)[0])
    close(found[0].double(), found[1], rtol=1e-4, atol=1e-8)


def test_the_logarithm_has_a_gradient_at_equal_angles_and_does_not_see_the_basis():
    x = _subspaces.columns(0.9 * torch.eye(3, 2, dtype=F64), _subspaces.EXPM)
    close(_subspaces.log0(x), 0.9 * torch.eye(3, 2, dtype=F64))
    turn = torch.linalg.qr(torch.randn(2, 2, generator=torch.Generator().manual_seed(0), dtype=F64))[0]
    close(_subspaces.log0(x @ turn), 0.9 * torch.eye(3, 2, dtype=F64))
    for point in (x, torch.eye(5, 2, dtype=F64), frames(1, spread=1.0)[0, 0]):
        assert torch.autograd.gradcheck(_subspaces.log0, point.clone().requires_grad_(), atol=1e-6)


def test_expm_centers_a_batch_and_the_authors_cayley_map_moves_it_away():
    x = frames()
    tangents, lengths = {}, {}
    for mode in ("expm", "cayley", "cayley-half"):
        norm = nk.create("gyrobn-grassmann", 5, p=2, exp_mode=mode, karcher_steps=50, eps=0.0, dtype=F64)
        mean, _ = norm._statistics(x)
        at = _subspaces.log0(_subspaces.rotate(-_subspaces.log0(mean), mean, _MODES[mode]))
        tangents[mode], lengths[mode] = at.norm().item(), _subspaces.log0(mean).norm().item()
        y = norm(x)
        close(y.mT @ y, torch.eye(2, dtype=F64).expand(8, 1, 2, 2))
    assert tangents["expm"] < 1e-8
    assert tangents["cayley"] > 1.5 * lengths["cayley"]
    assert tangents["cayley-half"] < 0.1 * lengths["cayley-half"]


_MODES = {"expm": _subspaces.EXPM, "cayley": _subspaces.CAYLEY, "cayley-half": _subspaces.HALF}


def test_a_centered_batch_of_subspaces_has_its_mean_at_the_first_axes_and_the_variance_asked_for():
    norm = nk.create("gyrobn-grassmann", 5, p=2, exp_mode="expm", karcher_steps=50, eps=0.0, dtype=F64)
    norm.scale.data.fill_(0.4)
    y = norm(frames())
    again = nk.create("gyrobn-grassmann", 5, p=2, exp_mode="expm", karcher_steps=50, momentum=1.0, dtype=F64)
    again(y)
    close(again.running_mean @ again.running_mean.mT, torch.diag(torch.tensor([1.0, 1, 0, 0, 0], dtype=F64))[None])
    close(again.running_var, torch.full((1,), 0.16, dtype=F64))


def test_columns_that_are_not_orthonormal_are_named():
    with pytest.raises(ValueError, match="orthonormal columns, but products of some are 3 off"):
        nk.create("gyrobn-grassmann", 3, p=1)(torch.tensor([2.0, 0, 0]).reshape(1, 1, 3, 1))


def test_columns_that_rounding_made_too_long_give_in_float32_what_they_give_in_float64():
    x = 1.02 * frames(spread=0.05)
    want, got = (nk.create("gyrobn-grassmann", 5, p=2, dtype=dtype)(x.to(dtype)) for dtype in (F64, torch.float32))
    close(got @ got.mT, (want @ want.mT).float(), rtol=0, atol=1e-5)


def test_a_quotient_goes_on_by_its_series_to_the_last_digits():
    y = 0.999 * _frechet.SMALL
    want = [4 * math.asinh(y**0.5) / (y + y * y) ** 0.5, 4 * math.asin(y**0.5) / (y - y * y) ** 0.5]
    got = _frechet._quotient(torch.tensor([y, -y], dtype=torch.float64))
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-14)


def turned(*shape, seed=0):
    return torch.linalg.qr(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)).Q


def test_singular_vectors_by_squares_are_as_good_as_float32_is_also_of_right_angles():
    parts = turned(7, 6, 6)[..., :3].mT @ turned(6, 6, seed=1)[:, :3]
    parts[2] = parts[2] @ torch.diag(torch.tensor([1.0, 0.0, 1e-6], dtype=F64))
    parts[3] = torch.eye(3)
    left, cosines, right = _subspaces._svd(parts.float())
    close((left * cosines.unsqueeze(-2)) @ right, parts.float(), rtol=0, atol=3e-7)
    for vectors in (left, right):
        close(vectors.mT @ vectors, torch.eye(3).expand(7, 3, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("spread", [1e-6, 1e-2, 1.0])
def test_distances_are_the_lengths_of_logarithms(spread):
    base = turned(6, 3)
    points = torch.linalg.qr(base + spread * turned(7, 6, 6, seed=1)[..., :3]).Q
    want = _subspaces.log(base, points).square().sum((-2, -1))
    close(_subspaces.squared_distances(base, points), want, rtol=1e-7, atol=1e-18)
    if spread == 1.0:
        close(_subspaces.squared_distances(base.float(), points.float()), want.float(), rtol=1e-5, atol=0)
