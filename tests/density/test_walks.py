"""Chains: each sampler in one form samples its target, and what is told of them is what others tell."""

import math

import pytest
import torch

import normkit as nk
from normkit.density import _convergence
from normkit.density._inputs import DoubleWell
from normkit.density._sampler import Sampler, State

F64 = torch.float64
close = torch.testing.assert_close


def slow(chains=4, steps=400, keep=0.8, apart=0.0):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(steps, chains, 2, generator=generator, dtype=F64)
    x = [noise[0]]
    for row in noise[1:]:
        x.append(keep * x[-1] + (1 - keep**2) ** 0.5 * row)
    return torch.stack(x) + apart * torch.arange(chains, dtype=F64)[:, None]


def test_the_force_of_a_double_well_is_minus_its_slope_for_samples_of_any_rank():
    well, x = DoubleWell(0.3, -0.7, 0.5), torch.randn(2, 3, 4, dtype=F64).requires_grad_()
    close(well.force(x), -torch.autograd.grad(well(x).sum(), x)[0])


@pytest.mark.parametrize("draws", [slow(), slow(keep=0.0), slow(apart=0.5), slow(keep=-0.5), slow().round()])
def test_what_chains_report_is_what_arviz_reports(draws):
    arviz = pytest.importorskip("arviz")
    for place in (0, 1):
        one = draws[..., place].mT.numpy()
        close(_convergence.rhat(draws)[place].item(), float(arviz.rhat(one)), rtol=1e-10, atol=0.0)
        close(_convergence.ess(draws)[place].item(), float(arviz.ess(one)), rtol=1e-8, atol=0.0)


@pytest.mark.parametrize("steps", [4, 5, 6, 7])
def test_a_few_draws_are_worth_at_most_what_the_largest_worth_of_their_number_allows(steps):
    draws = slow(steps=steps)
    count = draws.shape[1] * (steps // 2 * 2)
    close(_convergence.ess(draws), torch.full((2,), count * math.log10(count), dtype=F64))
    chains = nk.density._walk.Chains(draws, torch.ones(steps, 4), None)
    assert chains.summary().startswith(f"{4 * steps} draws of 4 chains, worth {count * math.log10(count):.0f} at least")


def test_a_median_is_that_of_torch_and_has_no_largest_size():
    for count in (5, 6):
        rows = torch.randn(count, 3, dtype=F64)
        close(_convergence._median(rows), rows.quantile(0.5, 0))
    many = torch.arange(18_000_000, dtype=F64).view(3, -1)
    assert torch.equal(_convergence._median(many), many[1])


def test_chains_apart_and_a_chain_that_is_stuck_are_seen():
    assert _convergence.rhat(slow(keep=0.0)).max() < 1.01
    assert _convergence.rhat(slow(keep=0.0, apart=0.5)).min() > 1.05
    # a process that keeps 0.8 of itself is worth (1 - 0.8) / (1 + 0.8) of its steps
    assert 100 < _convergence.ess(slow(steps=1000))[0] < 1000


class Same(torch.nn.Module):
    """The identity, as a transform."""

    def forward(self, x):
        return x, x.new_zeros(len(x))

    def inverse(self, z):
        return z


def target(x):
    return -2 * (x[:, 0] - 1).square() - (x[:, 1] - x[:, 0].square()).square() / 2


def proposal():
    torch.manual_seed(0)
    flow = nk.density.flow("affine-coupling", 2, depth=2, hidden=8).double()
    with torch.no_grad():
        flow.parts[0].shift.copy_(torch.tensor([-1.0, -1.25], dtype=F64))
        flow.parts[0].log_scale.copy_(-torch.tensor([0.6, 1.6], dtype=F64).log())
    return flow


def pushed(t, x):
    return torch.stack([1 - x[:, 0], 1.25 - x[:, 1]], 1) * t[:, None]


@pytest.mark.parametrize("name", nk.density._walk.SAMPLERS)
def test_every_sampler_samples_a_users_density(name):
    fitted = nk.density._walk.SAMPLERS[name].fitted
    start = torch.tensor([1.0, 1.25], dtype=F64) + 0.1 * torch.randn(
        300, 2, dtype=F64, generator=torch.Generator().manual_seed(0)
    )
    made = nk.density.Diffusion(2, pushed, sigma=2.0, steps=4) if name == "dgfs" else proposal()
    options = {"flow": made} if fitted else {"step_size": 0.02} if name == "langevin" else {"step_size": 0.5}
    chains = nk.density.walk(name, target, start, steps=20, warmup=25, seed=1, **options)
    x = chains.draws[[-1, -12]].flatten(0, 1)
    # x_0 ~ N(1, 1/4), x_1 given x_0 ~ N(x_0^2, 1): means 1 and 1.25, of some 400 independent draws
    assert abs(x[:, 0].mean() - 1) < 0.15
    assert abs(x[:, 1].mean() - 1.25) < 0.4
    assert abs(x[:, 0].var() - 0.25) < 0.09
    assert chains.accepted.shape == (20, 300)
    assert 0.05 < chains.accepted.mean() <= 1


def test_a_warm_up_ends_at_the_mean_step_size_and_not_at_the_last_one():
    def step(x, log_prob, size, flow):
        return State(x, x.new_tensor([float(size < 1)]))  # one chain, so that each step is accepted or not

    sampler = Sampler(step, scaled=True, share=0.574)
    for warmup in range(60, 70):
        chains = nk.density._walk._run(sampler, target, torch.zeros(1, 2), 1, warmup, 0.1, None)
        assert chains.step_size == pytest.approx(1, abs=0.06)


def test_trajectories_do_not_end_where_they_began_after_a_warm_up():
    flow = nk.density.Flow([Same()], 2)
    start = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
    chains = nk.density.walk(
        "flow-hmc", lambda x: -x.square().sum(-1) / 2, start, steps=40, warmup=40, seed=0, flow=flow
    )
    assert _convergence.ess(chains.draws.square()).min() > 80
    assert chains.rhat.max() < 1.06


def test_a_diffusion_without_a_drift_has_the_normal_law_of_its_end():
    torch.manual_seed(0)
    x, ratio = nk.density.Diffusion(2, sigma=1.5, steps=7).draw(50, torch.empty(0, dtype=F64))
    want = torch.distributions.Normal(0.0, 1.5).log_prob(x).sum(1)
    close(ratio, want)
    close(nk.density.Diffusion(2, sigma=1.5, steps=3).bridge(x), want)
    x, ratio = nk.density.Diffusion(3, steps=2).draw(4)
    assert (x.shape, ratio.shape, x.dtype) == ((4, 3), (4,), torch.get_default_dtype())


def test_a_bridge_goes_straight_from_0_to_a_sample_and_is_widest_halfway():
    torch.manual_seed(0)
    seen = []

    def drift(time, x):
        seen.append([float(time[0]), float(x.mean()), float(x.std())])
        return torch.zeros_like(x)

    nk.density.Diffusion(1, drift, sigma=2.0, steps=4).bridge(torch.full((4000, 1), 10.0))
    wanted = [[t, 10 * t, 2 * (t * (1 - t)) ** 0.5] for t in (0.75, 0.5, 0.25, 0.0)]
    close(torch.tensor(seen), torch.tensor(wanted), rtol=0, atol=0.1)


def test_a_seed_gives_the_same_chains_and_leaves_torchs_own_numbers(monkeypatch):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("numbers of all GPUs are set anew"))
    one, two = (nk.density.walk("mala", target, torch.ones(3, 2, dtype=F64), steps=5, seed=7) for _ in range(2))
    close(one.draws, two.draws, rtol=0, atol=0)
    assert torch.equal(before, torch.get_rng_state())


def flow_with(name, **options):
    torch.manual_seed(0)
    flow = nk.density.flow(name, 2, hidden=8, depth=2, **options).double()
    with torch.no_grad():
        for value in flow.parameters():
            value.add_(0.1 * torch.rand_like(value))
    return flow


@pytest.mark.parametrize("name", ["neutra", "flow-hmc", "mala"])
@pytest.mark.parametrize(
    "of, option", [("spline-coupling", {"memory": "recomputed"}), ("cnf", {"steps": 4, "adjoint": True})]
)
def test_a_flow_that_saves_memory_gives_the_same_chains(name, of, option):
    draws = []
    for options in ({key: value for key, value in option.items() if key == "steps"}, option):
        flow = flow_with(of, **options)
        density, more = (flow.law().log_prob, {}) if name == "mala" else (target, {"flow": flow})
        draws.append(nk.density.walk(name, density, torch.ones(3, 2, dtype=F64), steps=4, seed=0, **more).draws)
    close(*draws)
    assert len(draws[0].flatten(0, 1).unique(dim=0)) > 4


def test_arviz_takes_the_chains():
    arviz = pytest.importorskip("arviz")
    chains = nk.density.walk("mala", target, torch.ones(4, 2, dtype=F64), steps=50, seed=0)
    table = arviz.summary(chains.to_arviz(), kind="diagnostics")
    assert len(table) == 2


@pytest.mark.parametrize("name", ["langevin", "mala", "neutra", "flow-hmc"])
def test_a_density_without_a_gradient_is_no_force_of_zero(name):
    def detached(x):
        return target(x.detach())

    start, options = torch.zeros(3, 2, dtype=F64), {"flow": proposal()} if name in ("neutra", "flow-hmc") else {}
    with pytest.raises(ValueError, match=r"^walk: log_prob must have a gradient by x"):
        nk.density.walk(name, detached, start, steps=2, **options)
    assert nk.density.walk("metropolis", detached, start, steps=2).draws.shape == (2, 3, 2)
    with pytest.raises(ValueError, match=r"^energy must have a gradient by x"):
        nk.mala(start, start[None], start[:, 0][None] + 0.5, energy=lambda x: -detached(x), step_size=0.1)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"name": "imh"}, "needs a flow"),
        ({"name": "imh", "flow": nk.density.flow("ferumal", 2), "step_size": 0.5}, "'imh' has no step_size"),
        ({"name": "imh", "flow": nk.density.Diffusion(2)}, "takes a Flow, not Diffusion"),
        ({"name": "dgfs", "flow": nk.density.flow("ferumal", 2)}, "takes a Diffusion, not Flow"),
        ({"name": "mala", "log_prob": lambda x: x.sum()}, "what log_prob returns must have shape"),
        ({"name": "mala", "log_prob": lambda x: x[:, 0].log()}, "finite"),
        ({"name": "mala", "start": torch.zeros(2)}, "start must have shape"),
    ],
)
def test_what_cannot_walk_is_named(options, words):
    given = {"log_prob": target, "start": torch.zeros(3, 2, dtype=F64), **options}
    with pytest.raises(ValueError, match=words):
        nk.density.walk(**given)
