"""Contract of norms and layers of points of manifolds: they stay there, turn with their input, and reach their goal."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

import normkit as nk
from normkit.contract.subject import close, methods
from normkit.contract.values import over
from normkit.kinds.module import LAYER, NORM

F64 = torch.float64
SIZE, COUNT, PLACES, SCALE = 4, 12, 2, 1e-2


def definite_at(v):
    return torch.linalg.matrix_exp(v)


def definite_seen(y):
    values, vectors = torch.linalg.eigh(y)
    return vectors * values.log().unsqueeze(-2) @ vectors.mT


def definite_far(v):
    """Eigenvalues from 1e-4 to 1e4, along axes of each matrix's own."""
    return torch.linalg.eigh(v)[1] * torch.logspace(-4, 4, SIZE, dtype=F64) @ torch.linalg.eigh(v)[1].mT


def definite_off(y):
    least = -torch.linalg.eigvalsh(y.double()).amin(-1)
    return (torch.maximum((y - y.mT).abs().amax((-2, -1)).double(), least) / y.abs().amax((-2, -1))).max()


def ball_at(v):
    length = v.norm(dim=-1, keepdim=True)
    return (length / 2).tanh() * v / length


def ball_seen(y):
    length = y.norm(dim=-1, keepdim=True)
    return 2 * length.atanh() * y / length


def frame_at(v):
    """The tangent vector (n - p, p) at the first p axes, as columns."""
    left, angles, right = torch.linalg.svd(v, full_matrices=False)
    angles = angles.unsqueeze(-1)
    first = torch.eye(v.shape[-1], dtype=F64) - right.mT @ ((1 - angles.cos()) * right)
    return torch.cat([first, left @ (angles.sin() * right)], -2)


def frame_seen(y):
    p = y.shape[-1]
    left, tangents, right = torch.linalg.svd(y[..., p:, :] @ torch.linalg.inv(y[..., :p, :]), full_matrices=False)
    return left @ (tangents.atan().unsqueeze(-1) * right)


def vectors_at(v):
    return v.unflatten(0, (-1, PLACES)).movedim(-1, 1)


def vectors_seen(y):
    return y.movedim(1, -1).flatten(0, -2)


class Space(NamedTuple):
    """Points of a kind: as tangent vectors at the neutral one and back, some at the edge, and how far others are off.

    ``turned`` is what an isometry that keeps the neutral point makes of tangent vectors, by two rotations.
    """

    at: Callable
    seen: Callable
    far: Callable
    off: Callable
    turned: Callable


SPACES = {
    "definite": Space(definite_at, definite_seen, definite_far, definite_off, lambda v, q, r: q @ v @ q.mT),
    "ball": Space(
        ball_at,
        ball_seen,
        lambda v: (1 - 1e-6) * torch.nn.functional.normalize(v, dim=-1),
        lambda y: (y.double().norm(dim=-1) - 1).max(),
        lambda v, q, r: v @ q.mT,
    ),
    "frame": Space(
        frame_at,
        frame_seen,
        lambda v: frame_at(1.57 * v / torch.linalg.matrix_norm(v, 2, keepdim=True)),
        lambda y: (y.double().mT @ y.double() - torch.eye(y.shape[-1], dtype=F64)).abs().max(),
        lambda v, q, r: torch.linalg.qr(q[: v.shape[-2], : v.shape[-2]])[0] @ v @ r,
    ),
    "": Space(  # vectors (N, C, L) that are tangent themselves
        vectors_at,
        vectors_seen,
        lambda v: vectors_at(1e3 * v),
        lambda y: (~y.isfinite()).double().max(),
        lambda v, q, r: v @ q.mT,
    ),
}

NORMS = [name for name in methods(lambda kind: kind is NORM) if nk.card(name).room == "manifold"]
BATCH = [name for name in NORMS if nk.card(name).over.has("N")]
LAYERS = [name for name in methods(lambda kind: kind is LAYER) if nk.card(name).room == "manifold"]
OF_POINTS = NORMS + [name for name in LAYERS if nk.card(name).shape.kind]


def space(name):
    return SPACES[nk.card(name).shape.kind]


def small(name, dtype=F64, **options):
    """A method at rest, of a space of curvature -1."""
    if "c" in nk.card(name).example:
        options["c"] = 1.0
    return nk.card(name).small(SIZE, **options).to(dtype)


def tangents(name, seed=0):
    """Tangent vectors of a length of about 1, at no place in particular."""
    shaped = space(name).seen(nk.card(name).draw(SIZE, COUNT, dtype=F64, trailing=(PLACES,))[0]).shape
    drawn = torch.randn(shaped, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return (drawn + drawn.mT) / 2 if nk.card(name).shape.kind == "definite" else drawn


def near(name, spread, seed=0):
    """Points that are near to one another, and not to the neutral one."""
    drawn = tangents(name, seed)
    return space(name).at(0.3 * drawn[:1].expand_as(drawn) + spread * tangents(name, seed + 1))


@pytest.mark.line("on-manifold")
@pytest.mark.parametrize("name", OF_POINTS)
@over(dtype=[F64, torch.float32], place=["inside", "edge"])
def test_points_stay_on_their_manifold_with_finite_gradients(name, dtype, place):
    module, drawn = small(name, dtype), tangents(name)
    x = (space(name).at(drawn) if place == "inside" else space(name).far(drawn)).to(dtype).requires_grad_()
    for y in (module(x), module.eval()(x)):
        assert space(name).off(y.detach()) <= (1e-12 if dtype == F64 else 1e-5)
        given = torch.autograd.grad(y.square().sum(), [x, *module.parameters()], allow_unused=True)
        assert all(value.isfinite().all() for value in given if value is not None)


@pytest.mark.line("turned")
@pytest.mark.parametrize("name", NORMS)
def test_points_that_are_turned_give_the_result_turned(name):
    generator = torch.Generator().manual_seed(5)
    q, r = (torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=F64))[0] for n in (SIZE, 3))
    of, drawn = space(name), 0.4 * tangents(name)
    one, other = (of.seen(small(name)(of.at(v))) for v in (drawn, of.turned(drawn, q, r)))
    close(other, of.turned(one, q, r), rtol=0, atol=2e-6)  # weights may begin a little off the neutral point
    assert (other - one).abs().max() > 1e-2


def tight(name, x):
    """What a norm that is told to keep points near makes of a batch, as tangent vectors at the neutral point."""
    module = small(name, **({"eps": 0.0} if "eps" in nk.card(name).signature.parameters else {}))
    if hasattr(module, "scale"):
        module.scale.data.fill_(SCALE)
    y = module(x)
    return y.detach(), space(name).seen(y.detach())


def deviation(v):
    return (v - v.mean(0)).square().sum().div(len(v)).sqrt()


@pytest.mark.line("centered")
@pytest.mark.parametrize("name", BATCH)
def test_the_mean_of_a_normalized_batch_is_the_neutral_point(name):
    x = near(name, 1e-2)
    before, (_, after) = space(name).seen(x), tight(name, x)
    assert before.mean(0).norm() > 5 * deviation(before)
    # means of one step are off by the cube of the spread
    assert after.mean(0).norm() < 1e-2 * deviation(after)


@pytest.mark.line("spread")
@pytest.mark.parametrize("name", BATCH)
def test_the_variance_of_a_normalized_batch_is_the_one_asked_for(name):
    (y, one), (_, other) = (tight(name, near(name, spread, seed)) for spread, seed in ((3e-2, 0), (9e-2, 4)))
    close(deviation(other), deviation(one), rtol=3e-2, atol=0)
    if "running_var" in dict(small(name).named_buffers()):
        again = small(name, momentum=1.0)
        again(y)
        close(again.running_var, torch.full_like(again.running_var, SCALE**2), rtol=2e-2, atol=0)


@pytest.mark.line("equal")
@pytest.mark.parametrize("name", OF_POINTS)
def test_where_all_points_are_neutral_the_gradient_is_that_of_differences(name):
    module = small(name).eval()
    x = space(name).at(1e-9 * tangents(name)[:2]).requires_grad_()
    assert torch.autograd.gradcheck(module, x, atol=1e-5)
