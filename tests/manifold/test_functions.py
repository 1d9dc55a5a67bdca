"""What the functions of manifolds promise beyond the recorded numbers."""

import itertools
import math

import pytest
import torch

import normkit as nk

F64 = torch.float64


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def uniform(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


@pytest.mark.parametrize("retraction", ["project", "chart", "euclidean"])
def test_a_step_in_charts_that_are_functions_is_that_in_affine_ones(retraction):
    matrix, shift, point, target = normal(3, 4, 2), normal(3, 4, seed=1), normal(4, seed=2), normal(4, seed=3)
    weights = torch.tensor([0.7, 0.3, 1e-7], dtype=F64)
    encoders = [lambda x, k=k: torch.linalg.pinv(matrix[k]) @ (x - shift[k]) for k in range(3)]
    decoders = [lambda z, k=k: matrix[k] @ z + shift[k] for k in range(3)]
    step = nk.create("chart-step", step_size=0.2, retraction=retraction)
    got = step.descend(point, weights, encoders, decoders, lambda x: (x - target).square().sum() / 2)
    torch.testing.assert_close(got, step(point, matrix, shift, weights, target))


@pytest.mark.parametrize("retraction", ["project", "chart", "euclidean"])
def test_functions_in_bfloat16_get_points_in_bfloat16(retraction):
    encoder, decoder = torch.nn.Linear(3, 2).bfloat16(), torch.nn.Linear(2, 3).bfloat16()
    descend = nk.create("chart-step", step_size=0.1, retraction=retraction).descend
    one, other = (
        descend(normal(3).to(dtype), torch.ones(1), [f.to(dtype)], [g.to(dtype)], lambda x: x.square().sum())
        for dtype, f, g in ((torch.bfloat16, encoder, decoder), (torch.float32, encoder, decoder))
    )
    assert one.dtype is torch.bfloat16
    torch.testing.assert_close(one.float(), other, rtol=0.05, atol=0.05)


def test_responsibilities_are_logarithms_on_demand_and_refuse_wrong_weights():
    losses = normal(5, 3)
    logarithms = nk.chart_responsibility(losses, weights=[1, 2, 3], log=True)
    torch.testing.assert_close(logarithms.exp(), nk.chart_responsibility(losses, weights=[1, 2, 3]))
    with pytest.raises(ValueError, match="weights must be 3 numbers, not 2"):
        nk.chart_responsibility(losses, weights=[1, 2])


def test_partial_correlations_do_not_depend_on_the_scale_of_rows_or_the_order_of_parts():
    x = uniform(30, 5) + 0.1
    correlation, variance = nk.compositional_partial_correlation(x)
    scaled, _ = nk.compositional_partial_correlation(x * uniform(30, 1, seed=1))
    torch.testing.assert_close(scaled, correlation)
    order = torch.tensor([4, 2, 0, 1, 3])
    turned, spread = nk.compositional_partial_correlation(x[:, order])
    torch.testing.assert_close((turned, spread), (correlation[order][:, order], variance[order]))
    one, _ = nk.compositional_partial_correlation(x[:, :2])
    torch.testing.assert_close(one, torch.ones(2, 2, dtype=F64))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("at", [0, -1])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_part_that_follows_from_others_is_named(dtype, at, share):
    x = uniform(30, 4).to(dtype) + 0.1
    x[:, at] = 3 * x[:, 1] ** share * x[:, 2] ** (1 - share)
    with pytest.raises(ValueError, match="x must have no part that follows from others"):
        nk.compositional_partial_correlation(x)


def test_zero_parts_and_few_samples_are_refused():
    with pytest.raises(ValueError, match="positive parts, but 0"):
        nk.compositional_partial_correlation(torch.zeros(9, 3))
    with pytest.raises(ValueError, match="more than D - 1 samples"):
        nk.compositional_partial_correlation(torch.ones(2, 3))


@pytest.mark.parametrize("group", ["gl2", "sl2"])
def test_what_is_drawn_of_a_group_has_its_inverse_and_coordinates(group):
    v, share = normal(6, 3 if group == "gl2" else 2), uniform(6)
    g, inverse = nk.lie_sample(v, share, group=group, variance=0.3, alpha=0.5)
    torch.testing.assert_close(g @ inverse, torch.eye(2, dtype=F64).expand(6, 2, 2))
    coordinates = nk.lie_coordinates(g, group=group, alpha=0.5)
    angle = math.pi * (2 * share - 1) % (2 * math.pi)
    torch.testing.assert_close(coordinates[:, 3 if group == "gl2" else 1], angle)
    if group == "sl2":
        torch.testing.assert_close(torch.linalg.det(g), torch.ones(6, dtype=F64))
        torch.testing.assert_close(coordinates[:, [2, 0]], v * math.sqrt(0.3) / 2)


def test_the_polar_factors_multiply_back_and_reflections_are_refused():
    g = torch.eye(3, dtype=F64) + 0.3 * normal(4, 3, 3)
    spd, rotation = nk.polar_decomposition(g)
    torch.testing.assert_close(spd @ rotation, g)
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(3, dtype=F64).expand(4, 3, 3))
    with pytest.raises(ValueError, match="positive determinants, not -1"):
        nk.polar_decomposition(torch.diag(torch.tensor([1.0, -1.0])).unsqueeze(0))


@pytest.mark.parametrize("values", [[1.5, 1.5, 1.5], [2.0, 2.0, 0.5], [2.0, 2.000002, 0.5]])
def test_the_gradient_of_the_polar_factors_is_right_where_singular_values_are_equal(values):
    turn = nk.polar_decomposition(torch.eye(3, dtype=F64) + 0.3 * normal(2, 3, 3))[1]
    g = (turn * torch.tensor(values, dtype=F64) @ turn[[1, 0]]).requires_grad_()
    assert torch.autograd.gradcheck(nk.polar_decomposition, g)
    assert torch.autograd.gradcheck(nk.create("polar-decomposition").log, g)


@pytest.mark.parametrize("scale", [1.0, 1e-15])
@pytest.mark.parametrize("dtype, condition", [(torch.float32, 1e6), (F64, 1e13)])
def test_the_polar_factors_of_nearly_singular_and_of_tiny_matrices_are_exact(dtype, condition, scale):
    turn = nk.polar_decomposition(torch.eye(4, dtype=F64) + 0.3 * normal(6, 4, 4))[1]
    spd = scale * turn[:3] * torch.logspace(0, -math.log10(condition), 4, dtype=F64) @ turn[:3].mT
    bound = 8 * torch.finfo(dtype).eps
    stretch, rotation = (part.double() for part in nk.polar_decomposition((spd @ turn[3:]).to(dtype)))
    torch.testing.assert_close(stretch, spd, atol=scale * bound, rtol=0)
    torch.testing.assert_close(rotation @ rotation.mT, torch.eye(4, dtype=F64).expand(3, 4, 4), atol=bound, rtol=0)


@pytest.mark.parametrize("least", [0.1, 1e-4])
def test_the_angle_of_a_nearly_singular_matrix_is_that_of_its_rotation(least):
    angle = 0.1 + 6 * uniform(400)
    turn, other = (torch.stack([a.cos(), -a.sin(), a.sin(), a.cos()], 1).view(-1, 2, 2) for a in (angle, angle.flip(0)))
    g = (other * torch.tensor([1e4, least], dtype=F64) @ other.mT @ turn).float()
    sound = torch.linalg.slogdet(g).sign > 0  # rounding makes reflections of the others
    assert sound.sum() > 300
    torch.testing.assert_close(nk.lie_coordinates(g[sound])[:, 3].double(), angle[sound], atol=1e-5, rtol=0)


def test_rotations_that_agree_leave_nothing_and_smooth_gradients():
    zero = torch.zeros(2, 3, dtype=F64)
    assert nk.rotation_residual(zero, zero, zero).abs().max() == 0
    given = [value.requires_grad_() for value in (zero.clone(), zero + 1e-7, zero.clone())]
    assert torch.autograd.gradcheck(nk.rotation_residual, given)
    turn = normal(2, 3)
    torch.testing.assert_close(nk.rotation_residual(zero, turn, turn), zero, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    "spread", [[0.0, 0.0, 0.0], [1e-6, 1e-6, 0.0], [1e-6, 1e-6, -1e-6], [1e-6, 1e-6, 1e-14], [1e-6, 1e-6, torch.nan]]
)
def test_a_covariance_that_has_no_inverse_is_named(spread):
    turn = normal(2, 3).float()
    with pytest.raises(ValueError, match="rotation-residual: covariance must hold positive definite matrices"):
        nk.rotation_residual(turn, turn, turn, torch.diag(torch.tensor(spread)).expand(2, 3, 3))


@pytest.mark.parametrize("dof", [3, 4, 9])
@pytest.mark.parametrize("inverse", [False, True])
def test_the_derivatives_of_the_robust_loss_are_its_own(dof, inverse):
    s = (torch.linspace(0.2, 6, 7, dtype=F64)).requires_grad_()
    rho, first, second = nk.magsac_loss(s, sigma=1.0, dof=dof, inverse=inverse)
    h = 1e-5
    above, below = (nk.magsac_loss(s.detach() + d, sigma=1.0, dof=dof, inverse=inverse) for d in (h, -h))
    torch.testing.assert_close((above[0] - below[0]) / (2 * h), first, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close((above[1] - below[1]) / (2 * h), second, rtol=1e-6, atol=1e-8)
    (slope,) = torch.autograd.grad(rho.sum(), s, create_graph=True)
    torch.testing.assert_close(slope, first)
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), s)[0], second)


def test_outliers_count_alike_and_push_a_little():
    rho, first, second = nk.magsac_loss(torch.tensor([20.0, 50.0], dtype=F64), sigma=1.0)
    assert rho[0] == rho[1]
    assert (first.tolist(), second.tolist()) == ([1e-5, 1e-5], [0, 0])


@pytest.mark.parametrize("dof", [3, 4, 9])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 7.0])
def test_an_outlier_has_the_largest_loss_of_the_kind_without_a_bound(dof, dtype, sigma):
    rho = nk.magsac_loss(sigma**2 * torch.linspace(0, 50, 200, dtype=dtype), sigma=sigma, dof=dof, inverse=True)[0]
    assert (rho.diff() >= 0).all()
    assert 1e6 * sigma < rho[-1] < torch.inf


def test_a_dictionary_is_found_from_sparse_codes():
    generator = torch.Generator().manual_seed(0)
    wanted, start = (torch.linalg.qr(normal(8, 8, seed=s))[0] for s in (1, 2))
    codes = normal(8, 3000) * (torch.rand(8, 3000, generator=generator) < 0.1)
    step = nk.create("lp-dictionary")
    data, atoms = step.whiten(wanted @ codes), start
    objectives = []
    for _ in range(30):
        atoms, objective = step(atoms, data)
        objectives.append(objective.item())
    assert step.error(atoms, wanted) < 0.01
    assert all(b > a - 1e-6 for a, b in itertools.pairwise(objectives))


@pytest.mark.parametrize(
    "data",
    [
        torch.diag(torch.tensor([1.0, 2.0, 3.0, 0.0], dtype=F64)),
        *((normal(4, 2, seed=s) @ normal(2, 9, seed=9)).to(dtype) for s in range(4) for dtype in (F64, torch.float32)),
    ],
)
def test_data_that_misses_one_direction_cannot_be_whitened(data):
    with pytest.raises(ValueError, match="lp-dictionary: data of rank below 4 cannot be whitened"):
        nk.create("lp-dictionary").whiten(data)


def test_the_connection_laplacian_of_no_turns_is_the_plain_one_on_each_axis():
    edges = (uniform(5, 5) > 0.4).double().triu(1)
    a = edges + edges.mT
    eye = torch.eye(2, dtype=F64)
    turns = torch.kron((a + torch.eye(5)).sign(), eye)
    plain = torch.diag(a.sum(1)) - a
    torch.testing.assert_close(nk.connection_laplacian(a, turns), torch.kron(plain, eye))
    x = torch.ones(5, 2, dtype=F64)
    torch.testing.assert_close(nk.vector_diffusion(x, torch.kron(plain, eye), plain, t=0.7), x)
    with pytest.raises(ValueError, match=r"^connection-laplacian: the number of nodes must be at least 1, not 0"):
        nk.connection_laplacian(a[:0, :0], turns[:0, :0])


def test_one_kernel_times_a_thousand_hardly_moves_the_normalized_mean():
    kernels = torch.stack([k @ k.mT + torch.eye(5) for k in normal(3, 5, 5)])
    image, scores = kernels[0] + kernels[1], uniform(5) * 0.8 + 0.1
    larger = kernels * torch.tensor([1000.0, 1, 1], dtype=F64)[:, None, None]
    moved = {
        factor: (
            nk.tangent_normalization(larger, image, scores, norm_factor=factor).log()
            - nk.tangent_normalization(kernels, image, scores, norm_factor=factor).log()
        )
        .diagonal()
        .abs()
        .max()
        for factor in ("score", None)
    }
    assert moved["score"] < moved[None]


@pytest.mark.parametrize("scores", [[0.9, 0.0], [0.9, -0.1], [1.1, 0.5], [0.9, torch.nan]])
def test_relevance_that_is_no_share_is_named(scores):
    kernels = torch.eye(2).expand(3, 2, 2)
    with pytest.raises(ValueError, match=r"^tangent-normalization: relevance must lie in \(0, 1\], but goes from"):
        nk.tangent_normalization(kernels, kernels[0], torch.tensor(scores))


def test_points_on_a_line_need_no_second_axis():
    f, x, loss = normal(5, 2), normal(5, seed=1), torch.ones((), dtype=F64)
    torch.testing.assert_close(nk.laplacian_penalty(f, x, t=0.5), nk.laplacian_penalty(f, x[:, None], t=0.5))
    slopes = nk.ManifoldLipschitz(5).double()
    torch.testing.assert_close(slopes(f, x, loss), slopes(f, x[:, None], loss))


def test_the_penalty_is_a_sum_over_pairs():
    f, x = normal(6, 2), normal(6, 3, seed=1)
    near = torch.exp(-torch.cdist(x, x).square() / 2)
    want = (near * torch.cdist(f, f).square()).sum() / 2
    torch.testing.assert_close(nk.laplacian_penalty(f, x, t=0.5), want)
    assert nk.laplacian_penalty(torch.ones(6, 1, dtype=F64), x, t=0.5) == pytest.approx(0, abs=1e-12)


def test_the_penalty_and_its_slope_keep_their_digits_beside_a_large_mean():
    x = normal(6, 3, seed=1)
    both = []
    for f in (normal(6, 2), (normal(6, 2) + 2**10).float()):
        penalty = nk.laplacian_penalty(f.requires_grad_(), x.to(f.dtype), t=0.5)
        penalty.backward()
        both.append((penalty.double(), f.grad.double()))
    torch.testing.assert_close(both[1], both[0], atol=1e-3, rtol=1e-3)


def test_dual_weights_move_to_the_steepest_point_and_the_loss_is_a_sum_over_pairs():
    x = torch.arange(5, dtype=F64).unsqueeze(1)
    f = torch.tensor([[0.0], [0.0], [0.0], [0.0], [4.0]], dtype=F64)
    loss = nk.create("manifold-lipschitz", 5, epsilon=0.5, step=0.1, dtype=F64)
    near = torch.cdist(x, x).square()
    want = 1.5 + (near * f * (f - f.T)).sum() / 5
    torch.testing.assert_close(loss(f, x, torch.tensor(1.5, dtype=F64)), want)
    weights = loss.update(f, x, torch.tensor(1.5, dtype=F64))
    assert weights.sum() == pytest.approx(1)
    assert weights[-1] == weights.max() == weights[-2]
    assert loss.data_weight == pytest.approx(1.1)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_two_points_at_one_place_have_no_slope_between_them(value):
    x = torch.tensor([[0.0], [0.0], [1.0], [3.0]], dtype=F64)
    f = torch.tensor([[0.0], [value], [0.0], [4.0]], dtype=F64)
    loss = nk.create("manifold-lipschitz", 4, step=0.1, dtype=F64)
    steepest = torch.tensor([4 / 3, max(value, (4 - value) / 3), 2.0, 2.0], dtype=F64)
    weights = loss.update(f, x, torch.tensor(1.0, dtype=F64))
    torch.testing.assert_close(weights, (0.25 + 0.1 * steepest) / (1 + 0.1 * steepest.sum()))
