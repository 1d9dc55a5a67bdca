"""The ground of matrices: means that converge, numbers of pyRiemann and spd_learn, parameters for geoopt."""

import math

import pytest
import torch

import normkit as nk
from normkit.contract.subject import build, methods
from normkit.contract.values import over
from normkit.kinds import NORM
from normkit.manifold import _symmetric, gbw_batchnorm
from normkit.surgery.edits.layers import takes_batch_statistics

F64 = torch.float64
close = torch.testing.assert_close


def written():
    """Four matrices that can be written down."""
    odd = torch.tensor([[0.2, 0.1, 0], [0.1, 0.3, -0.1], [0, -0.1, 0.4]], dtype=F64)
    i = torch.arange(1.0, 4.0, dtype=F64)
    return torch.stack([torch.diag(i ** (k - 1) / 2) + 0.1 * k + (k % 2) * odd for k in range(4)])


# the upper triangles of pyriemann 0.12's means with weights 1, 2, 3, 4, and of the second of spd_learn 0.2.1's outputs
PYRIEMANN = {
    "affine-invariant": [
        0.7940974908993659,
        0.21043141242436134,
        0.14885100828488185,
        1.3152203193050698,
        0.09875225226013383,
        1.8909870222096745,
    ],
    "bures-wasserstein": [
        0.8096408956464023,
        0.24271720122329588,
        0.1884079662108527,
        1.4702120925061353,
        0.12573461214781748,
        2.3829847426072033,
    ],
    "log-euclidean": [
        0.7958285012598905,
        0.2140325461665465,
        0.15553133040234457,
        1.3152752072763922,
        0.09963742153414665,
        1.8918740391526798,
    ],
}
SPD_LEARN = {
    "AIM": [
        1.0745058769522913,
        0.03903552377419883,
        0.0021871988117650037,
        0.975144227999622,
        -0.03711424361318556,
        0.9399796403167062,
    ],
    "LEM": [
        1.0637611919012788,
        0.04615459831351082,
        0.009294964033792048,
        0.9854388770591491,
        -0.032963399638579416,
        0.9398787358874897,
    ],
    "LCM": [
        1.1304351067329446,
        0.010888619635670338,
        -0.06978230402254744,
        0.9600628017491097,
        -0.08473301070565475,
        0.9008534936899584,
    ],
}


def upper(x):
    rows, columns = torch.triu_indices(3, 3)
    return x[..., rows, columns]


@pytest.mark.parametrize("metric", PYRIEMANN)
def test_means_are_those_of_pyriemann(metric):
    found = nk.manifold.mean(written(), metric, weights=torch.arange(1.0, 5.0, dtype=F64))
    close(upper(found), torch.tensor(PYRIEMANN[metric], dtype=F64), rtol=0, atol=1e-10)


@pytest.mark.parametrize("metric", SPD_LEARN)
def test_liebn_is_that_of_spd_learn(metric):
    found = nk.create("liebn", 3, metric=metric, dtype=F64)(written())[1]
    close(upper(found), torch.tensor(SPD_LEARN[metric], dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("scale", [1e-6, 1e-10, 1e10])
def test_functions_of_small_matrices_are_those_of_their_eigenvalues(dtype, scale):
    e = scale * torch.tensor([1.0, 2.0, 1e-3], dtype=dtype)
    x = torch.diag(e).requires_grad_()
    ground = nk.manifold
    for function, wanted in ((ground.log, e.log()), (ground.sqrt, e.sqrt()), (ground.rsqrt, e.rsqrt())):
        close(function(x), torch.diag(wanted))
    close(ground.power(x, 0.5), ground.sqrt(x))
    close(torch.autograd.grad(ground.log(x).trace(), x)[0], torch.diag(1 / e))
    close(ground.mean(x.detach().expand(3, 3, 3), "log-euclidean"), x.detach(), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt", "power"])
def test_functions_of_a_singular_matrix_and_their_gradients_are_finite(name):
    g = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    x = (g @ g.mT).requires_grad_()
    y = getattr(nk.manifold, name)(x, *([0.5] if name == "power" else []))
    y.sum().backward()
    assert y.isfinite().all()
    assert x.grad.isfinite().all()
    assert nk.manifold.sqrt(torch.diag(torch.tensor([1.0, 0.0])))[1, 1] < 2e-7


@pytest.mark.parametrize("name", ["log", "sqrt", "rsqrt", "power", "exp", "spectral"])
def test_a_function_of_a_matrix_does_not_read_one_triangle_alone(name):
    others = {"power": [0.5], "spectral": [torch.exp, torch.exp]}.get(name, [])
    function = getattr(nk.manifold, name)
    with pytest.raises(ValueError, match=f"^{name}: x must hold symmetric .* differs from its transpose by 2"):
        function(torch.tensor([[1.0, 2.0], [0.0, 1.0]]), *others)
    with pytest.raises(ValueError, match=f"^{name}: x must have 2 axes and end in matrices"):
        function(torch.ones(3), *others)
    if name not in ("exp", "spectral"):
        with pytest.raises(ValueError, match=f"^{name}: .* the smallest eigenvalue of one is -1"):
            function(-torch.eye(2), *others)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_the_affine_invariant_norm_does_not_see_the_scale_of_small_matrices(dtype):
    x = written().to(dtype)
    want = nk.RiemannianBatchNorm(3).to(dtype)(x)
    close(nk.RiemannianBatchNorm(3).to(dtype)(1e-10 * x), want, rtol=1e-5, atol=1e-5)


def test_the_geometric_mean_is_where_logarithms_cancel_and_turns_with_the_matrices():
    x, turn = written(), torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, -1.0], [0.5, 0.0, 3.0]], dtype=F64)
    mean = nk.manifold.mean(x)
    inverse = nk.manifold.rsqrt(mean)
    close(nk.manifold.log(inverse @ x @ inverse).mean(0), torch.zeros(3, 3, dtype=F64), rtol=0, atol=1e-9)
    close(nk.manifold.mean(turn @ x @ turn.mT), turn @ mean @ turn.mT, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
@pytest.mark.parametrize("spread", [1e2, 1e4])
def test_the_geometric_mean_of_matrices_far_apart_converges(spread, dtype):
    turns = torch.linalg.qr(torch.randn(20, 4, 4, generator=torch.Generator().manual_seed(0), dtype=F64)).Q
    x = (turns * torch.logspace(0, -math.log10(spread), 4, dtype=F64)) @ turns.mT
    x = ((x + x.mT) / 2).to(dtype)
    inverse = nk.manifold.rsqrt(nk.manifold.mean(x).double())
    seen = inverse @ x.double() @ inverse
    slope = nk.manifold.log((seen + seen.mT) / 2).mean(0)
    close(slope, torch.zeros(4, 4, dtype=F64), rtol=0, atol=1e-9 if dtype == F64 else 2e-3)


def test_a_mean_that_does_not_converge_says_how_far_it_came():
    with pytest.raises(
        ValueError, match=r"the last of 1 steps still moved it by a share of 0\.\d+, above the tolerance"
    ):
        nk.manifold.mean(written(), steps=1)
    nk.manifold.mean(written(), steps=1, tolerance=1.0)
    with pytest.raises(ValueError, match=r"mean: tolerance must lie in \(0.0, inf\], not 0.0"):
        nk.manifold.mean(written(), tolerance=0.0)


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_matrices_without_full_rank_whose_mean_is_not_reached_are_named(dtype):
    x = torch.randn(12, 6, 200, dtype=F64, generator=torch.Generator().manual_seed(0))
    x = x - x.mean(1, keepdim=True)
    x = (x @ x.mT / 200).to(dtype)
    x[0] += torch.eye(6, dtype=dtype)
    words = "as 11 of 12 matrices have an eigenvalue of 0, up to rounding; add a small multiple of the identity to each"
    with pytest.raises(ValueError, match=words):
        nk.manifold.mean(x, tolerance=1e-9, steps=30)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: nk.manifold.mean(torch.ones(2, 3, 4)), "end in matrices"),
        (lambda: nk.manifold.mean(-torch.eye(2)[None]), "smallest eigenvalue of one is -1"),
        (lambda: nk.manifold.mean(torch.eye(2)[None], "euclid"), "metric must be one of"),
        (lambda: nk.manifold.mean(torch.eye(2)[None], weights=torch.zeros(1)), "weights must be numbers from 0"),
        (lambda: nk.manifold.mean(torch.empty(0, 2, 2)), "no matrices"),
    ],
)
def test_what_has_no_mean_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_roots_that_are_seen_without_a_decomposition_are_those_with_one(monkeypatch):
    found = []
    for seen in (True, False):
        x, norm = written().requires_grad_(), nk.create("gbw-batchnorm", 3, dtype=F64)
        if not seen:
            monkeypatch.setattr(_symmetric, "is_above_least", lambda s: False)
        y = norm(x)
        y.square().sum().backward()
        found.append([y, x.grad, *(p.grad for p in norm.parameters())])
    close(*found, rtol=1e-9, atol=1e-10)


def test_a_root_of_what_is_not_definite_is_another():
    tangent = torch.diag(torch.tensor([1.0, -6.0], dtype=F64))[None]  # (I + T / 2)^2 = diag(2.25, 4)
    close(gbw_batchnorm._root_at_identity(tangent)[0].diagonal(), torch.tensor([0.5, 1.0], dtype=F64))


@pytest.mark.parametrize("name", ["liebn", "riemannian-batchnorm", "gbw-batchnorm"])
def test_geoopt_steps_parameters_along_the_manifold(name):
    geoopt = pytest.importorskip("geoopt")
    norm, x = nk.create(name, 3, dtype=F64), written()
    before = norm.eval()(x).detach()
    assert nk.manifold.to_geoopt(norm) == len(norm.points)
    close(norm(x), before)
    optimizer = geoopt.optim.RiemannianAdam(norm.parameters(), 0.3)
    target = torch.diag(torch.tensor([5.0, 1.0, 0.02], dtype=F64))
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        losses.append((norm(x).mean(0) - target).square().sum())
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.9 * losses[0]
    for point in norm.points:
        assert torch.linalg.eigvalsh(getattr(norm, point).detach()).min() > 0
    nk.create(name, 3, dtype=F64).load_state_dict(norm.state_dict())


def test_parameters_that_are_tied_stay_tied_as_parameters_of_geoopt():
    pytest.importorskip("geoopt")
    first, second, other = nk.create("liebn", 3), nk.create("gbw-batchnorm", 3), torch.nn.Module()
    second.weight = other.start = first.weight
    model = torch.nn.Sequential(first, second, other)
    names = list(model.state_dict())
    assert nk.manifold.to_geoopt(model) == 2  # the weight that is tied, and a metric
    assert second.weight is first.weight
    assert other.start is first.weight
    assert type(first.weight).__name__ == "ManifoldParameter"
    assert list(model.state_dict()) == names
    assert len(list(model.parameters())) == 4  # and each norm's scale


@over(name=nk.methods(room="manifold"))
def test_autocast_rounds_no_product(name):
    call, inputs = nk.card(name).small(8), nk.card(name).draw(8, dtype=torch.float32)
    want = call(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        close(call(*inputs), want, rtol=0, atol=0)


@pytest.mark.parametrize("metric", PYRIEMANN)
def test_autocast_rounds_no_mean_and_no_gradient(metric):
    x = written().float().requires_grad_()
    given = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            given += [nk.manifold.mean(x, metric), *torch.autograd.grad(nk.manifold.log(x)[:, 0].sum(), x)]
    close(given[:2], given[2:], rtol=0, atol=0)


NORMS = [name for name in methods(lambda kind: kind is NORM) if nk.card(name).room == "manifold"]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype, bound", [(F64, 1e-12), (torch.float32, 1e-5)])
def test_what_a_norm_returns_is_a_point_of_its_manifold(name, dtype, bound):
    card, norm = nk.card(name), build(name, 4, dtype)
    y = norm(*(value.to(dtype) for value in card.draw(4, 6, dtype=F64))).double()
    if card.shape.kind == "definite":
        assert (y - y.mT).abs().max() <= bound * y.abs().max()
        assert torch.linalg.eigvalsh(y).min() > -bound * y.abs().max()
    elif card.shape.kind == "frame":
        close(y.mT @ y, torch.eye(y.shape[-1], dtype=F64).expand_as(y.mT @ y), rtol=0, atol=10 * bound)
    elif card.shape.kind == "ball":
        assert y.norm(dim=-1).max() < 1


AVERAGED = [(name, {}) for name in NORMS if takes_batch_statistics(build(name, 4, F64))]


@pytest.mark.parametrize("name, options", [*AVERAGED, ("liebn", {"metric": "LCM"})])
@pytest.mark.parametrize("own", [torch.bfloat16, torch.float32, F64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, F64])
def test_a_norm_of_one_type_takes_inputs_of_another(name, options, own, dtype):
    card = nk.card(name)
    norm, wide = (card.small(4, **options).to(each) for each in (own, F64))
    inputs = card.draw(4, 6, dtype=F64)
    for _ in range(2):  # by the batch, and by what the batch left
        y, want = norm(*(x.to(dtype) for x in inputs)), wide(*inputs)
        assert y.dtype is dtype
        close(y.double(), want, rtol=0, atol=0.1 if torch.bfloat16 in (own, dtype) else 1e-4)
        norm, wide = norm.eval(), wide.eval()


def estimates(norm, data):
    """The running mean, of a subspace its projection, and the variance of a copy that was recalibrated on batches."""
    copy = nk.recalibrate(torch.nn.Sequential(norm), data, inplace=False).model[0] if data else norm
    mean = copy.running_mean
    return mean @ mean.mT if norm.card.shape.kind == "frame" else mean, getattr(copy, "running_var", None)


@pytest.mark.parametrize("momentum", [0.1, 0.6])
@pytest.mark.parametrize("name, options", [*AVERAGED, ("liebn", {"metric": "LEM"}), ("gyrobn", {"geometry": "klein"})])
def test_a_recalibrated_mean_is_that_of_equal_batches_and_between_two_in_either_order(name, options, momentum):
    norm, of_one = (nk.card(name).small(4, **{**options, "momentum": m}).double() for m in (momentum, 1.0))
    first, second = nk.card(name).draw(4, 8, dtype=F64)[0].chunk(2)
    of_one(first)
    for _ in range(2):
        norm(second)
    close(estimates(norm, [first] * 20), estimates(of_one, []))
    means = [estimates(norm, data)[0] for data in ([first, second], [second, first], [first], [second])]
    close(means[0], means[1], rtol=0, atol=1e-9)
    assert min((means[0] - mean).abs().max() for mean in means[2:]) > 0.01


@pytest.mark.parametrize("name", ["liebn", "riemannian-batchnorm", "gbw-batchnorm"])
def test_a_batch_of_no_matrices_does_not_count_in_a_recalibrated_mean(name):
    norm = nk.create(name, 3, dtype=F64)
    first, second = written().chunk(2)
    with_none = estimates(norm, [first, first[:0], second])
    close(with_none, estimates(norm, [first, second]))
