"""What the contract cannot ask of flows: solves on a fine grid, the sphere's Jacobian, means, guidance, plans."""

import importlib.util
import math
import warnings

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.contract.subject import build
from normkit.density import ot_cfm
from sizes import Largest

close = torch.testing.assert_close


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slogdet(function, x):
    """The log-determinant of a map of one sample."""
    jacobian = torch.autograd.functional.jacobian(function, x)
    return torch.linalg.slogdet(jacobian.reshape(x.numel(), x.numel()))[1]


@pytest.mark.parametrize("name", ["cnf", "to-flow"])
def test_a_fine_grid_is_inverted_and_has_the_determinant_of_its_jacobian(name):
    flow, x = build(name, 3, steps=40), normal(1, 3)
    z, log_det = flow(x)
    close(flow.inverse(z), x, rtol=1e-6, atol=1e-6)
    close(log_det.sum(), slogdet(lambda x: flow(x)[0], x), rtol=1e-6, atol=1e-6)


def test_the_adjoint_gives_the_gradient_of_a_fine_grid():
    plain, x = build("cnf", 3, steps=40), normal(5, 3)
    adjoint = build("cnf", 3, steps=40, adjoint=True)
    adjoint.load_state_dict(plain.state_dict())
    found = []
    for flow in (plain, adjoint):
        given = x.clone().requires_grad_()
        z, log_det = flow(given)
        (z.square().sum() + (log_det * torch.arange(5.0)).sum()).backward()
        found.append([given.grad, *(p.grad for p in flow.parameters())])
    close(*found, rtol=1e-5, atol=1e-6)


class Stretch(nn.Module):
    """A field whose solution is known, with a number that it does not use."""

    def __init__(self):
        super().__init__()
        self.rate, self.unused = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(7.0))

    def forward(self, t, x):
        return self.rate * x, (self.rate * x.shape[1]).expand(len(x))


def test_the_adjoint_takes_a_field_that_uses_no_more_than_a_part_of_what_it_learns():
    flow, x = nk.create("cnf", 3, field=Stretch(), steps=10, end_time=1.0, adjoint=True), normal(5, 3).float()
    z, log_det = flow(x)
    close(z, x * math.exp(0.5))
    close(log_det, torch.full((5,), 1.5))
    (z.sum() + log_det.sum()).backward()
    close(flow.given.rate.grad, x.sum() * math.exp(0.5) + 15, rtol=1e-4, atol=1e-4)
    assert flow.given.unused.grad is None or not flow.given.unused.grad


def test_the_adjoint_sees_parameters_that_stand_in_for_a_flows_own():
    flow, x = build("cnf", 3, steps=20), normal(5, 3)
    gradients = []
    for flow.adjoint in (False, True):
        step = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        others = {name: value.detach() + step for name, value in flow.named_parameters()}
        z, log_det = torch.func.functional_call(flow, others, (x,))
        (z.square().sum() + log_det.sum()).backward()
        gradients.append(step.grad)
    close(*gradients, rtol=1e-5, atol=1e-6)
    assert gradients[0].abs() > 0.1


def test_the_adjoint_refuses_a_field_whose_parameters_it_does_not_see():
    field = Stretch()
    flow, x = nk.create("cnf", 3, field=lambda t, x: field(t, x), steps=2, adjoint=True), normal(5, 3).float()
    with pytest.raises(ValueError, match=r"^CNF: with adjoint=True .*must be a module"):
        flow(x)
    field.requires_grad_(False)
    z, _ = flow(x.requires_grad_())
    z.sum().backward()
    assert x.grad.all()


def test_a_second_derivative_of_the_adjoint_is_refused():
    flow, x = build("cnf", 3, steps=2, adjoint=True), normal(5, 3).requires_grad_()
    (slope,) = torch.autograd.grad(flow(x)[0].sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"^CNF: with adjoint=True there are no second derivatives"):
        (slope.square().sum() + x.sum()).backward()


@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 2, 3)])
def test_a_path_joins_samples_of_any_rank(shape):
    x0, x1, t = normal(*shape), normal(*shape, seed=1), torch.linspace(0, 1, 4, dtype=torch.float64)
    found = nk.conditional_flow_matching(x0, x1, t)
    close(found.xt, torch.stack([start.lerp(end, at) for start, end, at in zip(x0, x1, t, strict=True)]))
    close(found.ut, x1 - x0)
    with pytest.raises(ValueError, match="x0 must have an axis of samples"):
        nk.conditional_flow_matching(x0.sum(), x1.sum())


@pytest.mark.parametrize("size", [3, 4])
def test_the_determinant_of_the_double_moebius_map_is_that_of_the_sphere(size):
    transform = nk.create("double-moebius")
    x = torch.nn.functional.normalize(normal(1, size), dim=1)
    w = 0.6 * torch.nn.functional.normalize(normal(1, size, seed=1), dim=1)
    z, log_det = transform(x, w)
    jacobian = torch.autograd.functional.jacobian(lambda x: transform(x, w)[0], x).reshape(size, size)
    tangents = [torch.linalg.svd(point)[2][1:].mT for point in (x, z)]
    close(log_det.sum(), torch.linalg.slogdet(tangents[1].mT @ jacobian @ tangents[0])[1])
    close(transform(-x, w)[0], -z)
    close(transform(x, torch.zeros_like(w))[0], x)
    close(transform.inverse(x, torch.zeros_like(w)), x)


def test_the_way_back_of_the_double_moebius_map_has_its_slope_along_w_and_near_zero():
    transform = nk.create("double-moebius")
    z = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(transform.inverse, (z, 0.5 * z))
    close(slopes[0].reshape(4, 4)[1:, 1:], 0.6 * torch.eye(3, dtype=torch.float64))  # (1 - |w|^2) / (1 + |w|^2)
    w = torch.full((1, 4), 1e-7)
    slope = torch.autograd.functional.jacobian(lambda w: transform.inverse(z.float(), w), w).reshape(4, 4)
    moved = torch.zeros(4, 4)  # of z + 2 <z, w> w - 2 <z, w>^2 z
    moved[1:, 0] = 2e-7
    moved.diagonal()[1:] = 2e-7
    close(slope, moved, rtol=1e-4, atol=1e-12)


def test_tarflow_returns_the_mean_of_the_determinant_and_drops_labels():
    block, x = build("tarflow-block", 3), normal(1, 4, 3)
    _, log_det = block(x)
    close(log_det.sum() * x[0].numel(), slogdet(lambda x: block(x)[0], x))
    dropped = torch.tensor([-1])
    close(block(x, dropped), block(x))
    close(block.inverse(x, dropped), block.inverse(x))


def test_tarflow_inverts_with_both_orders_and_is_guided_from_the_second_token_on():
    y, z = torch.tensor([0, 2]), normal(2, 4, 3)
    for options in ({"permutation": "flip", "num_layers": 2}, {"nvp": False}):
        block = build("tarflow-block", 3, **options)
        close(block(block.inverse(z, y), y)[0], z)
    block = build("tarflow-block", 3)
    plain, guided = block.inverse(z, y), block.inverse(z, y, guidance=2.0, guide_what="b", attn_temp=1.5)
    close(guided[:, 0], plain[:, 0])
    assert (guided[:, 1:] - plain[:, 1:]).abs().min() > 0
    close(block.inverse(z, y, guidance=0.0, attn_temp=3.0), plain)
    rising = block.inverse(z, y, guidance=3.0, annealed_guidance=True)
    close(rising[:, :2], block.inverse(z, y, guidance=1.0)[:, :2])  # the second of four tokens has a third of it


@pytest.mark.parametrize("options", [{"grid": (2, 2)}, {"grid": (1, 4), "inverted": True}, {"depth": 2}])
def test_jet_inverts_a_checkerboard(options):
    coupling, x = build("jet-coupling", 4, kind="spatial", **options), normal(2, 4, 4)
    z, log_det = coupling(x)
    close(coupling.inverse(z), x)
    close(log_det[0], slogdet(lambda x: coupling(x)[0], x[:1]))
    close(nk.create("jet-coupling", 4, num_tokens=4, emb_dim=8)(x.float())[0], x.float())


def test_a_grid_with_an_odd_number_of_columns_is_refused():
    with pytest.raises(ValueError, match="grid"):
        nk.create("jet-coupling", 4, num_tokens=9, kind="spatial", grid=(3, 3), emb_dim=8)


@pytest.mark.parametrize("order", ["TL", "TR", "BL", "BR"])
@pytest.mark.parametrize("size", [1, (2, 3), 3])
def test_a_corner_convolution_is_inverted_from_every_corner(order, size):
    layer = build("cinc-conv", 3, kernel_size=size, order=order, unit_diagonal=False, bias=True)
    x = normal(2, 3, 4, 3)
    z, log_det = layer(x)
    close(layer.inverse(z), x)
    close(log_det[0], slogdet(lambda x: layer(x)[0], x[:1]))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 1, 4, 4), (2, 4, 4, 4)])
def test_a_corner_convolution_takes_images_alone(shape):
    layer = build("cinc-conv", 3)
    for name, call in (("x", layer), ("z", layer.inverse)):
        with pytest.raises(ValueError, match=f"^CInCConv: {name} must have 4 axes and 3 channels on axis 1"):
            call(normal(*shape))


def test_nanoflow_starts_with_normed_activations_and_adds_without_a_determinant():
    flow, x = build("nanoflow", 4, coupling="additive"), 3 + 2 * normal(8, 4, 4, 3)
    flow.initialize(x)
    first = flow.steps[0]
    normed = (x + first.norm_bias) * first.norm_log_scale.exp()
    close(normed.mean((0, 2, 3)), torch.zeros(4, dtype=torch.float64))
    close(normed.var((0, 2, 3), correction=0), torch.ones(4, dtype=torch.float64), rtol=1e-5, atol=1e-5)
    place = (first.embedding + first.embedding_norm_bias) * first.embedding_norm_log_scale.exp()
    h = torch.cat([normed.flip(1)[:, :2], place.expand(8, -1, -1, -1)], 1)
    for layer, gate in zip(flow.estimator, first.gate, strict=True):  # of the shared network too, in the first step
        h = (torch.nn.functional.conv2d(h, layer.weight, padding=1) + layer.norm_bias) * layer.norm_log_scale.exp()
        assert h.mean((0, 2, 3)).abs().max() < 1e-8
        close(h.var((0, 2, 3), correction=0), torch.ones(h.shape[1], dtype=torch.float64), rtol=1e-3, atol=0)
        h = (h * gate.exp()).relu()
    z, log_det = flow(x)
    close(flow.inverse(z), x)
    close(log_det[0], slogdet(lambda x: flow(x)[0], x[:1]))


def test_a_step_wider_than_the_circle_is_refused_and_one_wider_than_the_interval_keeps_its_mass():
    x = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    wide = [torch.full((2000, 2), value, dtype=x.dtype) for value in (0.3, -0.5, 1.0, 0.0)]
    with pytest.raises(ValueError, match=r"log_scale must not be negative on the circle, but one is -0\.5"):
        nk.SmoothMixture(2)(x, *wide)
    assert nk.SmoothMixture(2, periodic=False)(x, *wide)[1].exp().mean() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("ramp", ["type1", "type2"])
def test_a_smooth_mixture_has_derivatives_through_its_inverse(periodic, ramp):
    transform = nk.create("smooth-mixture", 3, periodic=periodic, ramp=ramp, min_density=0.1)
    uniform = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given = [uniform[0, :, 0], *uniform[1:], normal(5, 3)]
    inputs = [value.clone().requires_grad_() for value in given]
    z, log_det = transform(*inputs)
    close(transform.inverse(z, *inputs[1:]), inputs[0])
    slope = torch.autograd.functional.jacobian(lambda x: transform(x, *given[1:])[0], given[0]).diagonal()
    close(log_det, slope.log())
    assert torch.autograd.gradcheck(transform.inverse, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(transform.inverse, inputs, fast_mode=True, atol=1e-4, rtol=1e-3)


def test_plans_of_unlike_sizes_and_of_a_small_entropy_are_the_cheapest():
    pytest.importorskip("scipy")
    source, data = normal(4, 2), normal(6, 2, seed=1)
    pairs = nk.create("ot-cfm")
    plan = pairs.plan(source, data)
    close(plan.sum(0), torch.full((6,), 1 / 6, dtype=torch.float64))
    close(plan.sum(1), torch.full((4,), 1 / 4, dtype=torch.float64))
    blurred = nk.create("ot-cfm", method="sinkhorn", reg=0.005).plan(source, data)
    cost = torch.cdist(source, data).square()
    close((blurred * cost).sum(), (plan * cost).sum(), rtol=2e-2, atol=0.0)
    assert [value.shape for value in pairs(source, data)] == [(4, 2), (4, 2)]


def test_points_in_float32_are_paired_by_squares_in_float64():
    """The distances are about 1000, and pairs differ by a billionth of that: the order of points on a line."""
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    source, data = torch.arange(6.0)[:, None] / 1024, 1000 + order[:, None] / 1024
    paired = nk.create("ot-cfm").plan(source, data).argmax(1)
    assert torch.equal(order[paired], torch.arange(6))


def test_the_distances_of_images_take_no_more_memory_than_the_plan():
    pytest.importorskip("scipy")
    source, data = normal(32, 3, 16, 16), normal(32, 3, 16, 16, seed=1)
    with Largest() as seen:
        pairs = nk.create("ot-cfm").plan(source, data)
    assert seen.numbers == source.numel()
    close(pairs.sum(0), torch.full((32,), 1 / 32, dtype=torch.float64))


def test_pairs_of_half_precision_are_drawn_from_a_plan_in_single(monkeypatch):
    asked = []
    monkeypatch.setattr(ot_cfm, "plan", lambda *points, **options: asked.append(points) or torch.eye(4) / 4)
    nk.ot_cfm(*(normal(4, 2, seed=seed).bfloat16() for seed in (0, 1)))
    assert [value.dtype for value in asked[0]] == [torch.float32] * 2


def test_pairs_of_more_points_than_torch_draws_from_at_once_follow_the_plan(monkeypatch):
    plan = torch.eye(4100) / 4100
    plan[0, :2] = 0.25  # half of all pairs start at point 0, and half of those end at point 1
    monkeypatch.setattr(ot_cfm, "plan", lambda *points, **options: plan)
    torch.manual_seed(0)
    points = torch.arange(4100.0)[:, None]
    xt, ut = nk.ot_cfm(points, points, torch.zeros(4100))
    assert (ut[xt > 0] == 0).all()
    assert set(ut[xt == 0].tolist()) == {0.0, 1.0}
    assert (xt == 0).double().mean() == pytest.approx(0.5 / (0.5 + 4099 / 4100), abs=0.03)
    assert ut[xt == 0].mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("reg", [0.5, 0.005, 0.0005])
def test_sinkhorns_plans_use_up_all_points_and_warn_where_they_do_not(reg, monkeypatch):
    pairs = nk.create("ot-cfm", method="sinkhorn", reg=reg)
    source, data = normal(5, 3), normal(7, 3, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = pairs.plan(source, data)
    close(plan.sum(0), torch.full((7,), 1 / 7, dtype=torch.float64))
    close(plan.sum(1), torch.full((5,), 1 / 5, dtype=torch.float64))
    monkeypatch.setattr(ot_cfm, "ROUNDS", 1)
    monkeypatch.setattr(ot_cfm, "FIRST", 1)
    with pytest.warns(UserWarning, match=f"reg={reg}, a point of x0 gives 0.* of its weight too much or too little"):
        pairs.plan(source, data)


def test_points_that_are_all_one_have_a_plan_with_a_cost_divided_by_the_largest():
    pytest.importorskip("scipy")
    points = torch.ones(3, 2)
    plan = nk.create("ot-cfm", normalize_cost=True).plan(points, points)
    assert torch.equal(plan.sum(0), torch.full((3,), 1 / 3))
    assert torch.equal(plan.sum(1), torch.full((3,), 1 / 3))
    even = nk.create("ot-cfm", method="sinkhorn", normalize_cost=True).plan(points, points)
    close(even, torch.full((3, 3), 1 / 9))


def test_a_chain_of_mala_samples_its_target():
    x, steps = normal(2000, 1), 60
    noise, uniform = normal(steps, 2000, 1, seed=1), torch.rand(steps, 2000, dtype=torch.float64)
    walked = nk.create("mala", energy=lambda x: (x[:, 0] - 1).square() / 0.5, step_size=0.1, steps=steps)
    x, accepted = walked(x, noise, uniform)
    # the standard errors of 2000 draws from N(1, 1/4) are 0.011 and 0.008; five of them
    assert abs(x.mean() - 1) < 0.056
    assert abs(x.var() - 0.25) < 0.04
    assert accepted.mean() > 0.8


def test_a_path_gradient_vanishes_where_flow_and_target_are_one():
    loss = nk.create("path-gradient-loss", 3, energy=lambda x: x.square().sum(1) / 2).double()
    loss(normal(7, 3)).backward()
    assert all(p.grad.abs().max() < 1e-12 for p in loss.parameters())


def test_a_base_of_student_tails_integrates_to_one_and_samples_them():
    base = nk.create("tail-adaptive-base", 1, tail_index=[3.0]).double()
    x = torch.linspace(-2000, 2000, 400_001, dtype=torch.float64)
    close(torch.trapezoid(base.log_prob(x[:, None]).exp(), x).item(), 1.0, rtol=1e-5, atol=1e-5)
    assert nk.create("tail-adaptive-base", 3, tail_index=[0, 0, 2.0]).sample(5).shape == (5, 3)


def test_a_matrix_that_is_no_correlation_is_named():
    likelihood = nk.create("dependent-data-likelihood", 2)
    with pytest.raises(ValueError, match="smallest eigenvalue"):
        likelihood.log_prob(torch.ones(2, 2), torch.tensor([[1.0, 9.0], [9.0, 1.0]]))


@pytest.mark.parametrize("objective", ["ssm", "dsm", "fdssm"])
def test_the_objectives_of_ebflow_are_those_of_its_energy(objective):
    flow, x, v = build("ebflow", 3, objective=objective), normal(4, 3), normal(4, 3, seed=1)

    def energy(x):
        return -flow.neg_energy(x)

    def score(x):
        return -torch.func.grad(lambda x: energy(x).sum())(x)

    bend = torch.func.jvp(score, (x,), (v,))[1]
    d = 0.1 * v / (v.square().sum(1, keepdim=True) + 1e-8).sqrt()
    after, before = energy(x + d), energy(x - d)
    want = {
        "ssm": lambda: score(x).square().sum(1) / 2 + (v * bend).sum(1),
        "dsm": lambda: (score(x + 0.1 * v) + v / 0.1).square().sum(1) / 2,
        "fdssm": lambda: 300 * ((after - before).square() / 8 - after - before + 2 * energy(x)),
    }
    close(flow.objective(x, v), want[objective]().mean())


def test_steps_that_fit_themselves_agree_with_a_fine_grid_and_say_where_they_fail():
    pytest.importorskip("torchdiffeq")
    grid, x = build("cnf", 3, steps=60), normal(5, 3)
    adaptive = build("cnf", 3, method="dopri5", tolerance=1e-9)
    adaptive.load_state_dict(grid.state_dict())
    z, log_det = adaptive(x)
    close((z, log_det), grid(x), rtol=1e-6, atol=1e-6)
    close(adaptive.inverse(z), x, rtol=1e-6, atol=1e-6)
    explodes = nk.create("cnf", 1, method="dopri5", end_time=2.0, field=lambda t, x: (x.square(), 2 * x[:, 0])).double()
    with pytest.raises(ValueError, match=r"does not converge at time 1 with a tolerance of 1e-06"):
        explodes(torch.ones(1, 1, dtype=torch.float64))  # 1 / (1 - t)


def test_a_learned_time_has_its_gradient_by_steps_that_fit_themselves():
    pytest.importorskip("torchdiffeq")
    grid, x = build("to-flow", 3, steps=60), normal(5, 3)
    adaptive = build("to-flow", 3, method="dopri5", tolerance=1e-9)
    adaptive.load_state_dict(grid.state_dict())
    found = []
    for flow in (grid, adaptive):
        z, log_det = flow(x)
        (z.square().sum() / 2 - log_det.sum()).backward()
        found.append((z, log_det, flow.inverse(z), *(value.grad for value in flow.parameters())))
    close(*found, rtol=1e-5, atol=1e-6)


def test_steps_that_fit_themselves_have_no_adjoint_and_need_a_library():
    with pytest.raises(ValueError, match="adjoint is of a grid"):
        nk.create("cnf", 2, method="dopri5", adjoint=True)
    if importlib.util.find_spec("torchdiffeq") is None:
        with pytest.raises(ValueError, match="pip install torchdiffeq"):
            nk.create("cnf", 2, method="dopri5")(torch.zeros(1, 2))
