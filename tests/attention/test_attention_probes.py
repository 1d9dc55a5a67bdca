"""Entropy, separation and expressivity of attention: the mathematics, with no training."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import normkit as nk
from normkit.attention.attention_entropy import attention_entropy, entropy_lower_bound, spectral_bound
from normkit.attention.attention_separation import attention_separation as separation
from normkit.attention.attention_separation import jacobian_norm, sensitivity
from normkit.attention.unselectable_keys import projection_fraction, unselectable_keys


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_entropy_counts_zeros_as_zero_with_no_gradient():
    weights = torch.tensor([[[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]]], dtype=torch.float64, requires_grad=True)
    rows = attention_entropy(weights, reduce=False)
    close(rows, torch.tensor([[[math.log(2), 0.0]]], dtype=torch.float64))
    close(attention_entropy(weights), rows.mean(-1))
    rows.sum().backward()
    wanted = torch.tensor([[[[math.log(2) - 1, math.log(2) - 1, 0.0], [-1.0, 0.0, 0.0]]]], dtype=torch.float64)
    close(weights.grad, wanted)
    assert torch.autograd.gradcheck(attention_entropy, (torch.softmax(draw(1, 2, 3, 4), -1).requires_grad_(),))


@pytest.mark.parametrize("length", [2, 5, 64])
@pytest.mark.parametrize("sigma", [0.0, 0.3, 2.0, 20.0])
def test_the_entropy_bound_is_reached_and_never_broken(length, sigma):
    bound = entropy_lower_bound(torch.tensor(sigma, dtype=torch.float64), length)
    tight = torch.full((length,), -sigma / math.sqrt(length * (length - 1)), dtype=torch.float64)
    tight[0] = sigma * math.sqrt((length - 1) / length)
    rows = torch.softmax(torch.cat([tight[None], sigma * torch.nn.functional.normalize(draw(500, length), dim=-1)]), -1)
    entropy = attention_entropy(rows[None, None], reduce=False)[0, 0]
    close(entropy[0], bound)
    assert (entropy >= bound - 1e-12).all()


def test_the_entropy_bound_takes_lengths_of_any_shape():
    sigma, lengths = draw(3, 4).abs().requires_grad_(), torch.tensor([1, 2, 7, 100])
    bounds = entropy_lower_bound(sigma, lengths)
    assert bounds.shape == sigma.shape
    assert (bounds[:, 0] == 0).all()
    for column, length in enumerate([1, 2, 7, 100]):
        close(bounds[:, column], entropy_lower_bound(sigma[:, column], length))
    close(torch.vmap(entropy_lower_bound, (1, 0), 1)(sigma, lengths), bounds)
    bounds.sum().backward()
    assert torch.isfinite(sigma.grad).all()
    close(entropy_lower_bound(torch.tensor([1e4]), 128), torch.zeros(1))


def test_the_spectral_bound_holds_for_the_rows_of_attention():
    x, query, key = draw(3, 6, 5), draw(4, 5, seed=1) / 4, draw(4, 5, seed=2) / 4
    scores = (x @ query.T) @ (x @ key.T).mT
    sigma = spectral_bound(x, query, key)
    want = torch.linalg.svdvals(query.T @ key)[0] * torch.linalg.svdvals(x @ x.mT)[:, 0]
    close(sigma, want)
    assert (torch.linalg.svdvals(scores)[:, 0] <= sigma).all()
    entropy = attention_entropy(torch.softmax(scores, -1)[:, None], reduce=False)[:, 0]
    assert (entropy >= entropy_lower_bound(sigma, 6)[:, None]).all()


@pytest.mark.parametrize("top", [1, 3, 8])
def test_separation_is_its_equations(top):
    weights, values = torch.softmax(2 * draw(4, 8), -1), draw(4, 8, 3, seed=1)
    found = separation(weights, values, top=top)
    for n in range(4):
        a, x = weights[n], values[n]
        inside = sorted(range(8), key=lambda j: -a[j])[:top]
        outside = [j for j in range(8) if j not in inside]
        s = sum(a[i] * x[i] for i in inside)
        apart = [(s - a[j] * x[j]).norm().item() for j in range(8)]
        mass = sum(a[i] for i in inside)
        farthest = max(((x[j] - x[i]).norm() for i in inside for j in outside), default=0)
        nearest = min((apart[j] for j in outside), default=math.inf)
        close(found.distance[n].item(), float(sum(apart[j] for j in outside)))
        close(found.fraction[n].item(), sum(apart[i] <= nearest for i in inside) / top)
        bound = (1 - mass) * farthest + ((8 - top + 1) * mass - 1) * max(x[i].norm() for i in inside)
        close(found.bound[n], bound)
    assert (found.distance <= found.bound + 1e-12).all()


def test_separation_keeps_its_bound_for_long_rows_of_unit_tokens():
    weights = torch.softmax(3 * draw(20, 200), -1)
    values = torch.nn.functional.normalize(draw(20, 200, 16, seed=1), dim=-1)
    distances = [separation(weights, values, top=top) for top in (1, 10, 50, 100, 199)]
    for found in distances:
        assert (found.distance <= found.bound).all()
        assert ((found.fraction >= 0) & (found.fraction <= 1)).all()
    assert distances[-1].distance.mean() < 0.1 * distances[0].distance.mean()


def test_the_jacobian_norm_bounds_the_sensitivity_and_is_at_most_half_the_inverse_temperature():
    logits, direction = draw(50, 12), torch.nn.functional.normalize(draw(50, 12, seed=1), dim=-1)
    for temperature in (0.1, 1.0, 3.0):
        norm = jacobian_norm(logits, temperature=temperature)
        assert (sensitivity(logits, direction, temperature=temperature, step=1e-7) <= norm * (1 + 1e-5)).all()
        assert (norm <= 0.5 / temperature + 1e-12).all()
        tied = torch.tensor([[50.0, 50.0, 0.0, 0.0]], dtype=torch.float64)
        close(jacobian_norm(tied, temperature=temperature).item(), 0.5 / temperature, rtol=1e-6, atol=0)
    close(sensitivity(logits, direction), sensitivity(logits, direction, temperature=1.0), rtol=0, atol=0)
    jacobian = torch.autograd.functional.jacobian(lambda z: torch.softmax(z / 0.7, -1), logits[0])
    close(jacobian_norm(logits[:1], temperature=0.7)[0], torch.linalg.svdvals(jacobian)[0])


def test_a_projection_off_the_ones_leaves_uniform_attention_to_a_query_along_them():
    x = draw(5, 7, 6) + 3
    assert (projection_fraction(x) > 0.5).any()
    norm = nk.create("layernorm", 6, affine=False).double()
    close(projection_fraction(norm(x)), torch.zeros(5, 7, dtype=torch.float64))
    weights = torch.softmax(torch.full((6,), 2.5, dtype=torch.float64) @ norm(x).mT, -1)
    close(weights, torch.full_like(weights, 1 / 7))


def hull(points):
    """The corners of a planar convex hull, by the turns of a walk around it."""

    def half(order):
        chain = []
        for p in order:
            while len(chain) > 1 and turn(points[chain[-2]], points[chain[-1]], points[p]) <= 0:
                chain.pop()
            chain.append(p)
        return chain

    def turn(a, b, c):
        return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])

    order = sorted(range(len(points)), key=lambda i: tuple(points[i].tolist()))
    return set(half(order)) | set(half(order[::-1]))


@pytest.mark.parametrize("seed", range(5))
def test_the_keys_inside_the_hull_are_the_unselectable_ones(seed):
    keys = draw(60, 2, seed=seed)
    found = unselectable_keys(keys)
    assert set((~found).nonzero().flatten().tolist()) == hull(keys)


def test_a_lattice_has_only_its_corners():
    keys = torch.tensor(list(itertools.product(range(4), repeat=3)))
    corners = ((keys == 0) | (keys == 3)).all(-1)
    assert (unselectable_keys(keys.double()) == ~corners).all()
    line = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None] * torch.tensor([1.0, 2.0, 3.0])
    assert unselectable_keys(line).tolist() == [False, *[True] * 7, False]


def test_equal_keys_tie_and_a_single_key_wins():
    assert unselectable_keys(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).tolist() == [True, True, False]
    assert unselectable_keys(torch.ones(1, 3)).tolist() == [False]
    assert unselectable_keys(torch.ones(0, 3)).shape == (0,)
    assert unselectable_keys(torch.zeros(4, 3)).all()


def widest(keys, bound):
    """The best radius of each key, by another solver."""
    found = []
    for i, key in enumerate(keys):
        apart = np.delete(keys, i, 0) - key
        table = np.concatenate([apart, np.linalg.norm(apart, axis=1, keepdims=True)], 1)
        limits = [(-bound, bound)] * keys.shape[1] + [(None, None)]
        goal = [0.0] * keys.shape[1] + [-1.0]
        found.append(-linprog(goal, A_ub=table, b_ub=np.zeros(len(table)), bounds=limits).fun)
    return torch.tensor(found)


@pytest.mark.parametrize("dim, bound", [(1, 100.0), (2, 100.0), (3, 1.0), (5, 0.1)])
def test_a_key_is_unselectable_whose_best_radius_is_below_the_tolerance(dim, bound):
    keys = draw(24, dim, seed=dim)
    best = widest(keys.numpy(), bound)
    sizes = best.sort().values.unique()
    for tolerance in [1e-6, *((sizes[1:] + sizes[:-1]) / 2)[-6:].tolist()]:
        if (best / tolerance - 1).abs().min() > 1e-6:
            assert torch.equal(unselectable_keys(keys, bound=bound, tolerance=tolerance), best < tolerance)


def test_a_selectable_key_is_selected_by_some_query_and_an_unselectable_one_by_none_tried():
    keys = draw(50, 4)
    hidden = unselectable_keys(keys)
    winners = (draw(200_000, 4, seed=1) @ keys.T).argmax(-1).unique()
    assert not hidden[winners].any()
    assert 0 < hidden.sum() < 50


@pytest.mark.parametrize("name, dim", [("rmsnorm", 2), ("rmsnorm", 5), ("layernorm", 4), ("layernorm", 6)])
def test_scaling_makes_every_key_selectable(name, dim):
    """Keys on a sphere; a gain makes it an ellipsoid and a shift moves it, both stay convex."""
    keys = draw(60, dim)
    assert unselectable_keys(keys).any()
    keys = nk.create(name, dim).double()(keys).detach()
    gain = torch.rand(dim, generator=torch.Generator().manual_seed(2)) + 1
    assert not unselectable_keys(keys).any()
    assert not unselectable_keys(keys * gain + 3).any()


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: attention_entropy(torch.ones(3, 4)), "weights"),
        (lambda: entropy_lower_bound(torch.ones(2), 0), "length"),
        (lambda: spectral_bound(torch.ones(2, 3, 4), torch.ones(2, 5), torch.ones(2, 4)), "query_weight"),
        (lambda: separation(torch.ones(2, 3), torch.ones(2, 3, 4), top=4), "top"),
        (lambda: separation(torch.ones(2, 3), torch.ones(2, 4, 4), top=1), "values"),
        (lambda: sensitivity(torch.ones(2, 3), torch.ones(2, 4)), "direction"),
        (lambda: jacobian_norm(torch.ones(2, 3), temperature=0.0), "temperature"),
        (lambda: unselectable_keys(torch.ones(2, 3, 4)), "keys"),
        (lambda: unselectable_keys(torch.ones(2, 3), tolerance=-1.0), "tolerance"),
        (lambda: projection_fraction(torch.ones(2, 3, dtype=torch.long)), "x"),
    ],
)
def test_mistakes_are_named(call, word):
    with pytest.raises((ValueError, TypeError), match=rf"\b{word}\b"):
        call()
