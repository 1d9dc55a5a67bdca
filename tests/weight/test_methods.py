"""What the pages of the weight room promise beside the numbers of their goldens."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normkit as nk
from normkit.weight.fixup_block import FixupBlock
from normkit.weight.ibp_init import ibp_init_
from normkit.weight.nf_block import nf_betas
from normkit.weight.selu import lecun_normal_
from normkit.weight.simplex_classifier import hoc_loss, simplex
from normkit.weight.spectral_regularizer import norm_penalty


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def test_selu_has_torchs_slopes_at_zero_and_far_out():
    x, other = (torch.tensor([-1e3, -1.0, 0.0, 1e3], requires_grad=True) for _ in range(2))
    nk.SELU()(x).sum().backward()
    torch.nn.functional.selu(other).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_spectral_norm_is_torchs_own_through_training():
    theirs = parametrizations.spectral_norm(nn.Conv2d(3, 8, 3).double())
    ours = nn.Conv2d(3, 8, 3).double()
    nk.weight.apply(ours, "spectral-norm")
    with torch.no_grad():
        ours.parametrizations.weight.original.copy_(theirs.parametrizations.weight.original)
        own, other = ours.parametrizations.weight[0], theirs.parametrizations.weight[0]
        own.u.copy_(other._u), own.v.copy_(other._v)
        ours.bias.copy_(theirs.bias)
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    for layers in ((ours, theirs),) * 3:
        for layer in layers:
            layer(x).square().mean().backward()
            with torch.no_grad():
                for p in layer.parameters():
                    p.sub_(0.1 * p.grad)
        torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


@pytest.mark.parametrize("variant", ["torch", "sngan"])
def test_the_largest_singular_value_is_found(variant):
    raw = torch.randn(6, 4, dtype=torch.float64)
    norm = nk.SpectralNorm((6, 4), variant=variant, factor=2.0).double()
    for _ in range(200):
        weight = norm(raw)
    assert torch.linalg.matrix_norm(weight, 2).item() == pytest.approx(2.0, rel=1e-6)


def test_sigma_reparam_starts_as_it_was_or_at_a_number():
    raw = torch.randn(6, 4)
    for start, size in ((None, torch.linalg.matrix_norm(raw, 2)), (1.0, torch.tensor(1.0))):
        made = nk.SigmaReparam((6, 4), gamma_init=start)
        made.reset(raw)
        torch.testing.assert_close(torch.linalg.matrix_norm(made(raw), 2), size)


def test_a_pass_in_evaluation_survives_a_later_one_in_training():
    made, raw = nk.SpectralNorm((6, 4)), torch.randn(6, 4, requires_grad=True)
    weight = made.eval()(raw)
    made.train()(raw)
    weight.sum().backward()
    assert torch.isfinite(raw.grad).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: nk.WeightStandardization((4,)), "2 axes"),
        (lambda: nk.WeightStandardization((4, 1)), "unbiased=False"),
        (lambda: nk.SpectralNorm((4, 4), dim=2), "dim"),
        (lambda: nk.SpectralNorm((4, 0)), "shape"),
        (lambda: nk.WeightCompander((4, 4), b=0.0), "b must"),
        (lambda: nk.GroupOrthogonality(2)(torch.ones(3, 5)), "min_num_filters"),
        (lambda: nk.GroupOrthogonality(2, min_num_filters=2)(torch.ones(5, 5)), "does not divide"),
        (lambda: nk.SparseETFClassifier(4, 6, steps=0), "must not exceed"),
        (lambda: nk.SparseETFClassifier(4, 3, sparsity=0.9, steps=0), "without any"),
        (lambda: nk.FixupBlock(4, out_channels=6), "out_channels must be 8"),
        (lambda: nk.FixupBlock(4)(torch.ones(4, 3, 3)), "^FixupBlock: x must"),
        (lambda: nk.FixupBlock(4)(torch.ones(2, 4, 3, 3, 3)), "^FixupBlock: x must"),
        (lambda: nk.IBPRegularizer(terms=()), "terms"),
        (lambda: nk.AlphaDropout(p=1.0), "p must"),
        (lambda: nk.farms(torch.ones(5, 5)), "no window"),
        (lambda: nk.alds_allocate(torch.ones(4, 4), keep=0.1), "no fewer than"),
        (lambda: nk.alds_allocate(torch.ones(4, 4), keep=0.0), r"keep must lie in \(0"),
        (lambda: nk.create("alds-decompose", rank=9)(torch.ones(4, 4)), "at most 4"),
        (lambda: nk.create("alds-decompose", rank=1).project(torch.ones(4)), "before project"),
        (lambda: nk.create("alds-decompose", rank=1, scheme=4), "^ALDSDecompose: scheme must be one of 0, 1, 2, 3"),
        (lambda: nk.create("alds-decompose", rank=1, splits=3)(torch.ones(4, 4)), "^ALDSDecompose: splits=3 does not"),
        (lambda: nk.global_magnitude_pruning(torch.ones(4, 4), sparsity=0.9, minimum=8), "minimum=8"),
        (lambda: nk.filter_normalization(torch.ones(2, 2), torch.ones(2, 2), norm="rows"), "norm"),
    ],
)
def test_what_cannot_be_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("rows, cols", [(6, 4), (4, 6)])
def test_lambda_orthogonality_is_the_distance_beyond_a_threshold(rows, cols):
    weight = torch.randn(rows, cols, dtype=torch.float64)
    values = torch.linalg.svdvals(weight)
    far = (values.square() - 1).square().sum().sqrt()
    torch.testing.assert_close(nk.LambdaOrthogonality(threshold=0.1)(weight), far)
    assert nk.LambdaOrthogonality(threshold=float(far) + 1)(weight) == 0
    smooth = nk.LambdaOrthogonality(threshold=1.0, sharpness=2.0)(weight)
    torch.testing.assert_close(smooth, torch.sigmoid(2 * (far - 1)) * far)


def test_the_loss_of_norms_is_zero_at_their_start():
    assert norm_penalty(torch.ones(3), torch.zeros(3)) == norm_penalty(None, None) == 0


def test_a_basis_becomes_equiangular():
    head = nk.EquiangularBasis(6, 8)
    before = head._largest()
    assert head.generate(threshold=0.35, steps=3000, lr=0.05) < min(0.36, before)
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(8))
    assert nk.EquiangularBasis(8, 6).generate() < 1e-5


def test_a_sparse_classifier_has_its_zeros_and_comes_to_its_length():
    head = nk.SparseETFClassifier(10, 5, steps=1500)
    assert (head.weight == 0).sum() == 30
    assert (head.weight.norm(dim=1) - 0.1).abs().max() < (1 - 0.1) * 0.9
    assert head.objective(head.weight) < head.objective(head.generate(0))


@pytest.mark.parametrize("build", [lambda: nk.EquiangularBasis(6, 8), lambda: nk.SparseETFClassifier(10, 5, steps=0)])
def test_vectors_are_brought_apart_where_they_lie_whatever_the_default_device_is(build):
    head = build()
    with torch.device("meta"):
        result = head.generate(steps=2)
    assert torch.as_tensor(result).isfinite().all()


def test_a_simplex_has_equal_angles():
    weight = nk.SimplexClassifier(5, dtype=torch.float64).weight.double()
    want = torch.full((5, 5), -0.25, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(weight @ weight.mT, want, rtol=0, atol=1e-6)
    torch.testing.assert_close(simplex(5) @ simplex(5).mT, want, rtol=0, atol=5e-8)  # as near to 1 as the authors' 1e-8


@pytest.mark.parametrize(
    ("scales", "sparsity", "minimum", "kept"),
    [
        ([(10, 1e-3), (40, 1e-2), (100, 1.0)], 0.5, 10, 75),  # the first two lose what they may
        ([(40, 1e-3), (100, 1.0)], 0.25, 20, 105),  # only the first would lose any
    ],
)
def test_what_a_minimum_keeps_others_lose(scales, sparsity, minimum, kept):
    torch.manual_seed(0)
    weights = [scale * (1 + torch.rand(size)) for size, scale in scales]
    masks = nk.global_magnitude_pruning(*weights, sparsity=sparsity, minimum=minimum)
    assert all(
        mask.sum() >= min(minimum, len(mask)) for mask, (size, _) in zip(masks, scales, strict=True) if size > 10
    )
    assert kept <= sum(mask.sum() for mask in masks) <= kept + 2 * len(scales)  # thresholds stay


def test_the_companion_loss_falls_as_new_features_come_to_the_old_ones():
    old = nn.functional.normalize(torch.randn(6, 4))
    target = torch.arange(6)
    assert hoc_loss(old, old, target) < hoc_loss(nn.functional.normalize(torch.randn(6, 4)), old, target)


def test_fixup_begins_small_and_as_its_shortcut():
    x = torch.randn(2, 64, 5, 5).relu()
    block = FixupBlock(64, num_layers=16)
    torch.testing.assert_close(block(x), x)
    assert block.conv1.weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 64)) / 4, rel=0.05)
    deep = FixupBlock(64, bottleneck=True, num_layers=16)
    assert deep.conv2.weight.std().item() == pytest.approx(math.sqrt(2 / (9 * 16)) / 2, rel=0.1)


def test_the_variance_of_a_normalizer_free_stage_follows_its_prediction():
    betas, x = nf_betas([6], alpha=0.3)[0], torch.randn(8, 64, 10, 10)
    for at, beta in enumerate(betas):
        assert x.var().item() == pytest.approx(1 / beta**2, rel=0.35), at
        block = nk.NFBlock(64, alpha=0.3, beta=beta, bottleneck_ratio=0.5, kernel_size=1)
        nn.init.ones_(block.skip_gain)
        x = block(x).detach()


def test_squeeze_excite_and_stochastic_depth_are_there():
    block = nk.NFBlock(8, se_ratio=0.5, stochdepth_rate=1.0)
    nn.init.ones_(block.skip_gain)
    x = torch.randn(2, 8, 4, 4)
    torch.testing.assert_close(block(x), x)
    assert not torch.equal(block.eval()(x), x)


def test_the_deviation_of_ibps_centres_is_penalized_up_to_the_tolerance():
    low, high = torch.tensor([[-1.0, 0.0, 1.0]]), torch.tensor([[0.0, 1.0, 2.5]])
    loss = nk.IBPRegularizer(terms=("std",), tol=2.0)(low, high, low, high)
    centre = torch.tensor([-0.5, 0.5, 1.75])
    torch.testing.assert_close(loss, (2.0 - centre.std()) / 2.0)
    assert nk.IBPRegularizer(terms=("std",), tol=0.5)(low, high, low, high) == 0


def test_units_that_are_off_and_do_not_spread_are_penalized_in_full():
    """Centres 1, -1 and -3 of units on, off and neither: the means are even, and the spread of those off is 0."""
    low, high = torch.tensor([[0.5, -1.5, -7.0]]), torch.tensor([[1.5, -0.5, 1.0]])
    assert nk.IBPRegularizer(terms=("relu",), tol=0.5)(low, high, low, high) == 1


def test_bounds_keep_their_width_under_ibps_start():
    net = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(400, 400, bias=False), nn.ReLU())])
    ibp_init_(net)
    last = net[6].weight.std()
    ibp_init_(net[6].weight)
    assert net[6].weight.std() < last / 2  # the last one was left alone
    low, high = torch.full((1, 400), -0.01), torch.full((1, 400), 0.01)
    for layer in net[::2]:
        centre, radius = (low + high) / 2 @ layer.weight.T, (high - low) / 2 @ layer.weight.abs().T
        low, high = (centre - radius).relu(), (centre + radius).relu()
        assert (high - low).mean().item() == pytest.approx(0.02, rel=0.15)


def test_bounds_of_units_that_are_all_on_pass_no_gradient_that_is_none():
    bounds = [
        t.requires_grad_() for t in (torch.rand(4, 3), 1 + torch.rand(4, 3), torch.rand(4, 5), 1 + torch.rand(4, 5))
    ]
    loss = nk.create("ibp-regularizer", terms=("relu",))(*bounds)
    loss.backward()
    assert loss == 0
    assert not bounds[2].grad.any()
    assert not bounds[3].grad.any()


def test_starts_have_their_variance():
    weight = lecun_normal_(torch.empty(300, 200))
    assert weight.var().item() == pytest.approx(1 / 200, rel=0.05)
    for nu in (0.5, 1.0, 2.0):
        start = nk.GeneralizedGaussianInit((400, 300), shape_parameter=nu)
        start.init_(weight := torch.empty(400, 300))
        assert weight.var().item() == pytest.approx(1 / 300, rel=0.05)
        assert start.fit(weight)[0].item() == pytest.approx(nu, rel=0.1)


def test_a_generator_alone_decides_a_start():
    start, drawn = nk.GeneralizedGaussianInit((4, 8)), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        start.init_(weight := torch.empty(4, 8), generator=torch.Generator().manual_seed(7))
        drawn.append(weight)
    assert torch.equal(*drawn)
    assert 0 < (drawn[0] > 0).sum() < 32


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3, 5)])
def test_a_compander_bends_a_weight_of_any_number_of_axes(shape):
    raw = torch.randn(shape, dtype=torch.float64)
    want = 0.7 * (raw / 0.4).atan()
    torch.testing.assert_close(nk.WeightCompander(shape, a=0.7, b=0.4).double()(raw), want)
    fixed = nk.WeightCompander(shape, a=0.7, b=0.4, learnable=False)  # numbers, of no type
    torch.testing.assert_close(fixed(raw), want, rtol=1e-14, atol=0)


def test_alpha_dropout_keeps_mean_and_variance():
    x = torch.randn(100_000)
    for p in (0.05, 0.5):
        y = nk.AlphaDropout(p=p)(x)
        assert y.mean().item() == pytest.approx(0, abs=0.02)
        assert y.var().item() == pytest.approx(1, abs=0.03)


def test_random_features_estimate_an_exponential():
    x, w = 0.5 * torch.randn(2, 1, 4)
    ones, projection = torch.ones(200_000), torch.randn(200_000, 4)
    product = nk.snnk_exponential(x, projection, ones, ones) @ nk.snnk_exponential(w, projection, ones, ones).mT
    assert product.item() == pytest.approx(torch.exp(x @ w.mT).item(), rel=0.05)


def test_weight_norm_starts_from_a_batch_through_a_whole_model():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))
    nk.weight.apply(net, "weight-norm")
    x = 5 + 3 * torch.randn(16, 3, 6, 6)
    nk.weight.data_init(net, x)
    first, last = net[0](x), net(x)
    for y in (first.transpose(0, 1).flatten(1), last.T):
        torch.testing.assert_close(y.mean(1), torch.zeros(len(y)), atol=1e-4, rtol=0)
        torch.testing.assert_close(y.std(1, correction=0), torch.ones(len(y)), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "net, x, error, message",
    [
        (nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)), torch.randn(8, 3), RuntimeError, "8x4 and 5x2"),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(5, 2)), torch.randn(8, 3), RuntimeError, "8x4"),
        (nn.Linear(3, 4), torch.randn(3), ValueError, "of each output of the model, not 1"),
        (nn.Sequential(nn.Conv1d(3, 4, 3), nn.Flatten(), nn.Linear(8, 2)), torch.randn(1, 3, 4), ValueError,
         "data_init: inputs must give 2 values or more of each output of 2, not 1"),
    ],
)  # fmt: skip
def test_a_start_from_a_batch_that_fails_changes_no_layer(net, x, error, message):
    nk.weight.apply(net, "weight-norm")
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(error, match=message):
        nk.weight.data_init(net, x)
    torch.testing.assert_close(dict(net.state_dict()), dict(before), rtol=0, atol=0)


def test_a_start_from_a_batch_passes_norms_that_get_their_sizes_by_it():
    net = nn.Sequential(nn.Linear(4, 6), nn.LazyBatchNorm1d(), nn.Linear(6, 2))
    nk.weight.apply(net, "weight-norm")
    assert nk.weight.data_init(net, torch.randn(8, 4)) == ["0", "2"]


def test_a_start_from_a_batch_is_finite_in_half_precision_where_an_output_is_constant():
    layer = nn.Linear(3, 4).half()
    nk.weight.apply(layer, "weight-norm")
    nk.weight.data_init(layer, torch.zeros(8, 3, dtype=torch.float16))
    assert layer.weight.isfinite().all()
    assert layer.bias.tolist() == [0] * 4


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x @ self.weight.T + self.bias


@pytest.mark.parametrize(
    "layer, x, axis, dim",
    [
        (nn.Linear(3, 4), 5 + torch.randn(16, 3), 1, None),
        (nn.Linear(4, 4), 5 + torch.randn(16, 4), 1, 1),
        (Rows(), 5 + torch.randn(16, 6, 3), 2, 0),
        (nn.Conv1d(3, 4, 2), 5 + torch.randn(3, 20), 0, 0),
        (nn.ConvTranspose1d(4, 6, 2, groups=2), 5 + torch.randn(8, 4, 20), 1, 1),
    ],
)
def test_a_start_from_a_batch_leaves_each_output_of_any_layer_the_mean_0(layer, x, axis, dim):
    nk.weight.apply(layer, "weight-norm", where="*", dim=dim)
    nk.weight.data_init(layer, x)
    y = layer(x).movedim(axis, 0).flatten(1)
    torch.testing.assert_close(y.mean(1), torch.zeros(len(y)), atol=1e-4, rtol=0)
    if dim == 0:
        torch.testing.assert_close(y.std(1, correction=0), torch.ones(len(y)), atol=1e-3, rtol=0)


def test_relevance_decay_is_the_penalty_in_one_pass():
    weights = [nn.Parameter(torch.randn(4, 3, dtype=torch.float64)) for _ in range(1)]
    twin = [nn.Parameter(w.detach().clone()) for w in weights]
    decay = nk.create("relevance-decay", weights, lr=0.1, gamma=0.2, alpha=0.5)
    plain = torch.optim.SGD(twin, lr=0.1)
    for _ in range(3):
        for params in (weights, twin):
            params[0].grad = None
            (params[0][:2] - 1).square().sum().backward()
        nk.RelevancePenalty(gamma=0.2, alpha=0.5)(twin[0], twin[0].grad.clone()).backward()
        decay.step(), plain.step()
    torch.testing.assert_close(weights[0], twin[0])


@pytest.mark.parametrize("scheme", [0, 1, 2, 3])
@pytest.mark.parametrize("splits", [1, 2])
def test_the_two_maps_of_alds_are_the_convolution_that_they_amount_to(scheme, splits):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 4, 3, 2, generator=generator, dtype=torch.float64)
    x = torch.randn(2, 4, 7, 6, generator=generator, dtype=torch.float64)
    made = nk.create("alds-decompose", rank=2, splits=splits, scheme=scheme)
    together, decoder, encoder = made(weight)
    how = {"stride": (2, 3), "padding": (1, 2)}
    want = torch.nn.functional.conv2d(x, together, torch.arange(5).double(), **how)
    torch.testing.assert_close(made.project(x, torch.arange(5).double(), **how), want)
    assert (tuple(decoder), tuple(encoder)) == (made.decoder.shape, made.encoder.shape)
    errors = nk.alds_error(weight, splits=1, scheme=scheme)
    folded = weight.permute(*{0: (0, 1, 2, 3), 1: (0, 2, 1, 3), 2: (0, 3, 1, 2), 3: (0, 2, 3, 1)}[scheme])
    rows = {0: 5, 1: 15, 2: 10, 3: 30}[scheme]
    values = torch.linalg.svdvals(folded.reshape(rows, -1))
    torch.testing.assert_close(errors[: len(values)], values / values[0])


def test_a_scheme_that_is_none_and_a_weight_of_another_shape_are_named():
    with pytest.raises(ValueError, match="scheme must be one of 0, 1, 2, 3, not 4"):
        nk.alds_error(torch.ones(4, 4), scheme=4)
    with pytest.raises(ValueError, match=r"^SpectralNorm: raw must have shape"):
        nk.SpectralNorm((4, 3)).reset(torch.ones(3, 4))
