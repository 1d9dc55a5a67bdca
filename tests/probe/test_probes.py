"""The probes on live models: against what is worked out whole, and leaving the model as it was."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

import normkit as nk
from normkit.probe.hessian_spectrum import product
from normkit.probe.loss_plane import plane
from normkit.probe.plasticity_probe import _targets, plasticity

close = torch.testing.assert_close


@pytest.fixture
def task():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    x, y = torch.randn(20, 3).double(), torch.randn(20, 1).double()
    parameters = dict(model.named_parameters())
    return parameters, lambda at: (functional_call(model, at, (x,)) - y).square().mean()


def test_products_of_a_model_give_its_spectrum(task):
    parameters, loss = task
    matvec = product(loss, parameters)
    size = sum(p.numel() for p in parameters.values())
    whole = torch.stack([matvec(row) for row in torch.eye(size).double()])
    close(whole, whole.mT)
    start = torch.randint(2, (size,)).double() * 2 - 1
    found = nk.hessian_spectrum(matvec, start, steps=size, window=size, eps=0.0)
    close(found.eigenvalues[[0, -1]], torch.linalg.eigvalsh(whole)[[0, -1]])
    close((found.weights * found.eigenvalues).sum(), start @ whole @ start / size)
    with torch.autocast("cpu", torch.bfloat16):
        given = nk.hessian_spectrum(whole.float(), start.float(), steps=3)
    close(given, nk.hessian_spectrum(whole.float(), start.float(), steps=3), rtol=0, atol=0)
    close(nk.hessian_spectrum(whole, start, steps=size, window=size, eps=0.0), found)


@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-10])
def test_a_small_hessian_has_the_spectrum_of_a_large_one(scale):
    values = torch.linspace(-0.2, 1, 30).double()
    start = torch.randint(2, (30,), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    want, got = (nk.hessian_spectrum(torch.diag(by * values), start, steps=10) for by in (1.0, scale))
    close((got.eigenvalues / scale, got.weights), tuple(want), rtol=1e-4, atol=1e-5)  # eps moves the large one's more


def test_products_are_right_where_a_forward_derivative_of_torch_is_not():
    before, x, along = torch.tensor([-torch.inf]).double(), torch.tensor([0.3, 0.5]).double(), torch.ones(2).double()

    def loss(at):
        return torch.cat([before, at["x"]]).logcumsumexp(0)[1:].exp().square().sum()

    whole = torch.autograd.functional.hessian(lambda x: loss({"x": x}), x)
    close(product(loss, {"x": x})(along), whole @ along)


def test_the_iteration_goes_on_where_nothing_is_left():
    start = torch.tensor([1.0, 0, 0]).double()
    hessian = torch.diag(torch.tensor([3.0, 2.0, 1.0])).double()
    generator = torch.Generator().manual_seed(0)
    found = nk.hessian_spectrum(hessian, start, steps=3, window=3, eps=0.0, generator=generator)
    close(found.eigenvalues, torch.tensor([1.0, 2.0, 3.0]).double())
    close(found.weights, torch.tensor([0.0, 0.0, 1.0]).double())


@pytest.mark.parametrize("dtype, eps", [(torch.float32, 1e-6), (torch.float64, 1e-6), (torch.float64, 0.0)])
@pytest.mark.parametrize("window", [10, 100])
def test_more_steps_than_distinct_eigenvalues_stay_within_the_spectrum(dtype, eps, window):
    torch.manual_seed(0)
    x = torch.randn(60, 3, dtype=dtype) @ torch.randn(3, 40, dtype=dtype)
    for hessian, steps in ((x.mT @ x / 60, 30), (x.mT @ x / 60, 100), (torch.eye(5, dtype=dtype), 100)):
        start = torch.ones(len(hessian), dtype=dtype)
        values, weights = nk.hessian_spectrum(hessian, start, steps=steps, window=window, eps=eps)
        exact = torch.linalg.eigvalsh(hessian)[[0, -1]]
        close(values[[0, -1]], exact, rtol=1e-5, atol=1e-5 * float(exact[1]))
        assert len(values) == min(steps, len(hessian))
        close(weights.sum(), torch.tensor(1.0, dtype=dtype))
        close((weights * values).sum(), start @ hessian @ start / len(start), rtol=1e-5, atol=0)


def test_the_plane_of_a_quadratic_loss_is_that_of_its_matrix():
    point, first, second, hessian, slope, a, b = nk.card("loss-plane").draw(dtype=torch.float64)
    want = nk.loss_plane(point, first, second, hessian, slope, a, b)
    for chunk in (1, 4):
        got = plane(lambda at: at @ hessian @ at / 2 + slope @ at, point, first, second, a, b, chunk=chunk)
        close(got, want)


def test_without_negative_eigenvalues_there_is_no_balance():
    found = nk.hessian_criteria(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.5]]))
    assert found == (0.5, 0)


def test_the_density_has_an_area_of_one_however_narrow():
    values, weights = torch.tensor([[0.0, 10.0]]), torch.tensor([[0.25, 0.75]])
    for variance in (1e-9, 1e-2):
        density, grid = nk.hessian_density(values, weights, bins=7, variance=variance)
        close((density * (grid[1] - grid[0])).sum(), torch.tensor(1.0))


def test_the_full_batch_is_not_distorted():
    x, y, orders = torch.randn(9, 2).double(), torch.randn(9).double(), torch.stack([torch.randperm(9)] * 2)
    assert nk.shuffling_distortion(x, y, orders, batch_size=9).gap < 1e-12
    assert nk.shuffling_distortion(x, y, orders, batch_size=3).gap > 1e-3
    with pytest.raises(ValueError, match="batch_size=4 leaves one"):
        nk.shuffling_distortion(x, y, orders, batch_size=4)


def test_plasticity_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 2)).eval()
    inputs, before, state = torch.randn(32, 3), copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = [plasticity(model, inputs, steps=steps, frequency=1.0) for steps in (0, 100)]
    assert found[0].mean < found[1].mean
    close(plasticity(model, inputs, steps=100, frequency=1.0), found[1], rtol=0, atol=0)
    close(model.state_dict(), before, rtol=0, atol=0)
    close(torch.get_rng_state(), state, rtol=0, atol=0)
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


class Noise(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


def test_plasticity_is_without_dropout_and_draws_other_random_numbers_apart():
    inputs = torch.randn(6, 4, 8)
    model, still = (nn.TransformerEncoderLayer(8, 2, 16, dropout=p, batch_first=True) for p in (0.5, 0.0))
    still.load_state_dict(model.state_dict())
    state = torch.get_rng_state()
    for one, other in ((model, still), (nn.Sequential(still, Noise()), nn.Sequential(model, Noise()))):
        close(plasticity(one, inputs, steps=2), plasticity(other, inputs, steps=2), rtol=0, atol=0)
    close(torch.get_rng_state(), state, rtol=0, atol=0)


def test_a_task_is_to_move_to_another_network_from_the_mean_that_a_network_has():
    model, fresh, x = nn.Linear(2, 1), nn.Linear(2, 1), torch.randn(5, 2, dtype=torch.float64)
    want = torch.sin(3 * copy.deepcopy(fresh).double()(x)) + copy.deepcopy(model).double()(x).mean(0)
    close(_targets(model, fresh, x, 3.0), want)
    fixed = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    with torch.no_grad():
        for parameter in fixed.parameters():
            parameter.copy_(torch.linspace(-1, 4, parameter.numel()).view_as(parameter))
    spread = plasticity(fixed, torch.linspace(-1, 1, 12).view(6, 2), steps=3)
    assert spread.mean.item() == pytest.approx(-7.706952, rel=1e-3)


@pytest.mark.parametrize("floating", [True, False])
def test_plasticity_is_the_same_under_inference_mode(floating):
    model = nn.Sequential(nn.Linear(3, 4) if floating else nn.Embedding(3, 4), nn.Linear(4, 2))
    want = plasticity(model, torch.linspace(-1, 1, 12).view(4, 3) if floating else torch.arange(3), steps=3)
    with torch.inference_mode():
        got = plasticity(model, torch.linspace(-1, 1, 12).view(4, 3) if floating else torch.arange(3), steps=3)
    close(got, want, rtol=0, atol=0)
    assert want.spread > 0


def test_the_probe_of_two_layers_is_the_same_under_inference_mode():
    want = nk.plasticity_probe(*nk.card("plasticity-probe").draw(), steps=3)
    with torch.inference_mode():
        got = nk.plasticity_probe(*nk.card("plasticity-probe").draw(), steps=3)
    close(got, want, rtol=0, atol=0)
    assert want.final_loss < want.initial_loss


@pytest.mark.parametrize("model", [nn.Linear(3, 2).requires_grad_(False), nn.Tanh()])
def test_plasticity_names_a_model_that_cannot_learn(model):
    with pytest.raises(ValueError, match="plasticity: model must have a parameter that requires grad"):
        plasticity(model, torch.randn(4, 3), steps=1)


def test_plasticity_names_what_cannot_be_drawn_anew():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.gain

    with pytest.raises(TypeError, match=r"1 .Scale. has no reset_parameters"):
        plasticity(nn.Sequential(nn.Linear(3, 3), Scale()), torch.randn(4, 3), steps=1)
