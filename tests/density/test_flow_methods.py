"""Methods that take any flow: fairness, treatment, chains, and alignment, against other ways to the same numbers."""

import math

import pytest
import torch

import normkit as nk
from normkit.density._flows import Affine

close = torch.testing.assert_close


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def affine(scale, shift):
    flow = Affine(1).double()
    with torch.no_grad():
        flow.matrix.fill_(scale)
        flow.shift.fill_(shift)
    return flow


def log_normal(x, mean=0.0, scale=1.0):
    return torch.distributions.Normal(mean, scale).log_prob(x).sum(-1)


def test_the_divergence_of_a_fair_flow_is_the_integral_of_its_codes_laws_and_bounds_who_can_tell():
    # codes of group 0 have the law N(0.5, 4), of group 1 N(0, 0.25)
    loss = nk.create("fair-flow", flow0=affine(2.0, 0.5), flow1=affine(0.5, 0.0), gamma=0.8)
    x0, x1 = normal(40_000, 1), normal(40_000, 1, seed=1)
    found = loss(x0, log_normal(x0), x1, log_normal(x1), torch.tensor(2.0, dtype=torch.float64))
    z = torch.linspace(-30, 30, 60_001, dtype=torch.float64)
    p0, p1 = log_normal(z[:, None], 0.5, 2.0), log_normal(z[:, None], 0.0, 0.5)
    close(loss.log_prob(0, z[:, None]), p0)
    want = torch.trapezoid((p0.exp() - p1.exp()) * (p0 - p1), z) / 2
    close(found.kl, want, rtol=0.03, atol=0.0)
    close(found.loss, 0.8 * found.kl + 0.4)
    best = (1 + torch.trapezoid((p0.exp() - p1.exp()).abs(), z).item() / 2) / 2
    bound = loss.bound(x0, x1)
    assert best < bound < best + 0.02


def test_groups_with_one_law_cannot_be_distinguished():
    loss = nk.create("fair-flow", flow0=1, flow1=1).double()
    x = normal(5000, 1)
    assert loss(x, log_normal(x), x, log_normal(x), torch.zeros((), dtype=torch.float64)).kl.abs() < 1e-12
    assert loss.bound(x, x) == pytest.approx(0.5 + math.sqrt(math.log(40) / 8 * 2 / 5000) / 2)


@pytest.mark.parametrize("wrong", ["density", "propensity"])
def test_the_interventional_loss_is_right_where_one_nuisance_is_wrong(wrong):
    # the outcome is x + noise for treated units of chance pi(x): E[-log q] over all x is known
    x = normal(200_000)
    chance = torch.sigmoid(1.5 * x)
    treated = torch.rand(x.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) < chance
    y = x + normal(200_000, seed=1)
    told = x if wrong == "propensity" else 0 * x  # the mean of the outcome as the first model has it
    cross = 0.5 * math.log(2 * math.pi) + (told.square() + 1) / 2  # of q, standard normal
    given = chance if wrong == "density" else torch.full_like(chance, 0.5)
    found = nk.create("interventional-flow-loss", clip=0.0)(log_normal(y[:, None]), cross, cross.mean(), treated, given)
    want = 0.5 * math.log(2 * math.pi) + 1.0  # E y^2 = 2
    assert abs(found - want) < 0.03
    assert wrong == "propensity" or abs(cross.mean() - want) > 0.4


def test_units_below_the_clip_are_left_out():
    one, half = torch.ones(2, dtype=torch.float64), torch.tensor([0.5, 0.01], dtype=torch.float64)
    loss = nk.create("interventional-flow-loss", clip=0.05)
    found = loss(-3 * one, one, one[0], torch.tensor([True, True]), half)
    close(found, torch.tensor(1 + (1 / 0.5) * 2 / 2, dtype=torch.float64))
    log_q = torch.tensor([-3.0, -math.inf], dtype=torch.float64, requires_grad=True)
    found = loss(log_q, one, one[0], torch.tensor([True, True]), half)
    close(found, torch.tensor(3.0, dtype=torch.float64))
    close(torch.autograd.grad(found, log_q)[0], torch.tensor([-1.0, 0.0], dtype=torch.float64))


def test_simflow_is_the_evidence_bound_up_to_constants():
    loss = nk.create("simflow-objective", 3, decoder=5, variance=0.25, weight=2.0).double()
    x, mean, noise = normal(4, 5), normal(4, 3, seed=1), normal(4, 3, seed=2)
    found = loss(x, mean, noise)
    h = mean + 0.5 * noise
    decoded = h @ loss.decoder.weight.mT + loss.decoder.bias
    nll = -log_normal(h).mean() / 3
    close(found.loss, (x - decoded).square().mean() + 2 * nll)
    with pytest.raises(ValueError, match="decoder must be a module"):
        nk.create("simflow-objective", Affine(3), decoder=5)
    with pytest.raises(ValueError, match=r"what decoder returns must have shape \(4, 5\), but its shape is \(4, 1\)"):
        nk.create("simflow-objective", 3, decoder=1)(torch.ones(4, 5), torch.ones(4, 3), torch.ones(4, 3))


def test_features_that_already_agree_have_the_least_alignment_loss():
    loss = nk.create("reverse-alignment-loss", 3, 2, hidden=7).double()
    features = normal(4, 5, 3)
    wanted = loss.last(torch.nn.functional.silu(loss.first(features)))
    close(loss(features, 4 * wanted), torch.tensor(-1.0, dtype=torch.float64))
    close(loss(features, -wanted), torch.tensor(1.0, dtype=torch.float64))


def walked(name, rounds, **options):
    """A chain of 4000 on N(1, 1/4), begun from N(0, 1), through a flow that is not quite right."""
    kernel = nk.create(name, affine(1.7, -1.0), energy=lambda x: 2 * (x[:, 0] - 1).square(), **options)
    x, moved = normal(4000, 1), []
    for step in range(rounds):
        uniform = torch.rand(4000, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        found = kernel(x, normal(4000, 1, seed=100 + step), uniform)
        x = found.x.detach()
        moved.append(found.accepted.mean())
    return x, torch.stack(moved).mean().item()


@pytest.mark.parametrize("name, options", [("flow-hmc", {"step_size": 0.4, "steps": 3}), ("flow-imh", {})])
def test_a_chain_through_a_flow_samples_its_target(name, options):
    x, accepted = walked(name, 40, **options)
    # the standard errors of 4000 draws from N(1, 1/4) are 0.008 and 0.0056; five of them
    assert abs(x.mean() - 1) < 0.04
    assert abs(x.var() - 0.25) < 0.028
    assert 0.5 < accepted < 0.999


def test_a_trajectory_goes_back_when_its_momentum_is_turned():
    kernel = nk.create("flow-hmc", 2, energy="double-well", step_size=0.05, steps=7).double()
    z, p = normal(3, 2), normal(3, 2, seed=1)
    end, kicked = kernel._leap(z, p)
    begun, turned = kernel._leap(end, -kicked)
    close(begun, z)
    close(turned, -p)


def test_a_base_of_another_temperature_is_weighed_as_its_energy_says():
    hot = nk.create("flow-imh", 1, energy=lambda x: 2 * x[:, 0].square(), base_energy=lambda z: z[:, 0].square() / 2)
    plain = nk.create("flow-imh", 1, energy=lambda x: 2 * x[:, 0].square())
    x, z = normal(50, 1), normal(50, 1, seed=1)
    uniform = torch.rand(50, dtype=torch.float64)
    close(hot.double()(x, z, uniform).accepted, plain.double()(x, z, uniform).accepted)


def test_a_flow_whose_inverse_gives_points_alone_has_the_same_density():
    both, z = affine(1.7, -1.0), normal(5, 1)

    class Points(torch.nn.Module):
        def forward(self, x):
            return both(x)

        def inverse(self, z):
            return (z - both(0 * z)[0]) / 1.7

    pulled = nk.create("neutra", Points(), energy=lambda x: x.square().sum(1) / 2)(z)
    close(both(pulled.x)[0], z)
    close(pulled.log_prob, -math.log(1.7) - pulled.x.square().sum(1) / 2)


def test_own_networks_of_a_free_form_flow_take_one_row_expanded():
    torch.manual_seed(0)
    flow = nk.FreeFormFlow(3, latent=3, encode=torch.nn.Linear(3, 3), decode=torch.nn.Linear(3, 3))
    row = torch.randn(1, 3)
    losses = []
    for x in (row.expand(5, 3), row.repeat(5, 1)):
        torch.manual_seed(1)
        losses.append(flow(x))
    assert torch.equal(*losses)


@pytest.mark.parametrize("method", ["hill", "moments"])
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_index_of_a_tail_is_that_of_its_definition_also_of_many_values(method, unit):
    x = unit * (1 - torch.rand(300_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))) ** (-1 / 3)
    got = nk.tail_index(x, method=method)
    top = x.sort(descending=True).values
    for k in (2, 100, 30_000, len(x) - 1):
        above = (top[:k] / top[k]).log()
        first, second = above.mean(), above.square().mean()
        want = first if method == "hill" else first + 1 - 0.5 / (1 - first.square() / second)
        close(got[k - (1 if method == "hill" else 2)], want, rtol=1e-7, atol=0.0)
    assert got[30_000].item() == pytest.approx(1 / 3, abs=0.02)


@pytest.mark.parametrize("values", ["many in float32", "nearly equal"])
def test_sums_cost_the_index_of_a_tail_no_digits(values):
    generator = torch.Generator().manual_seed(0)
    if values == "many in float32":
        x = 1e6 * (1 - torch.rand(300_000, generator=generator)) ** (-1 / 3)
        least, rtol = 2, 1e-5
    else:
        x = 1e6 * (1 + 1e-5 * torch.rand(300, dtype=torch.float64, generator=generator))
        least, rtol = 20, 1e-7
    exact = x.double().sort(descending=True).values
    got = nk.tail_index(x, method="moments")
    for k in (least, 100, len(x) - 1):
        above = (exact[:k] / exact[k]).log()
        first, second = above.mean(), above.square().mean()
        close(got[k - 2].double(), first + 1 - 0.5 / (1 - first.square() / second), rtol=rtol, atol=0.0)


def test_no_noise_is_mixed_in_from_the_last_iteration_on():
    method, x = nk.DataMollification(10).train(), torch.ones(3)
    assert method.variance(torch.tensor([10, 11])).tolist() == [0, 0]
    assert method.variance(torch.tensor(9)) > 1e-3
    assert method(x, -x, 10).tolist() == x.tolist()
