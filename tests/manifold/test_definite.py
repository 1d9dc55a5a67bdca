"""Norms of positive definite matrices: their claims, what they refuse, and gradients at equal eigenvalues."""

import pytest
import torch

import normkit as nk
from normkit.manifold import _symmetric

F64 = torch.float64
NORMS = ["riemannian-batchnorm", "liebn", "gbw-batchnorm"]


def matrices(count=8, n=4, seed=0, spread=0.4):
    drawn = torch.randn(count, n, n, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return _symmetric.exp(spread * (drawn + drawn.mT))


def turned(x):
    g = torch.randn(x.shape[-1], x.shape[-1], generator=torch.Generator().manual_seed(9), dtype=F64)
    return g @ x @ g.mT


@pytest.mark.parametrize("metric", ["LEM", "LCM", "AIM"])
@pytest.mark.parametrize("theta", [1.0, 0.5])
def test_the_mean_of_a_normalized_batch_is_the_identity_and_its_variance_one(metric, theta):
    norm = nk.create("liebn", 4, metric=metric, theta=theta, karcher_steps=30, eps=0.0, dtype=F64)
    again = nk.create("liebn", 4, metric=metric, theta=theta, karcher_steps=30, momentum=1.0, dtype=F64)
    again(norm(matrices()))
    mean = torch.eye(4, dtype=F64) if metric == "AIM" else torch.zeros(4, 4, dtype=F64)
    torch.testing.assert_close(again.running_mean, mean, rtol=0, atol=1e-10)
    torch.testing.assert_close(again.running_var, torch.ones(1, dtype=F64))


def test_one_karcher_step_brings_the_mean_near_to_the_identity():
    y = nk.create("riemannian-batchnorm", 4, dtype=F64)(matrices(spread=0.2))
    assert _symmetric.log(y).mean(0).abs().max() < 1e-2


def test_the_affine_invariant_norms_give_a_turned_batch_the_same_eigenvalues():
    x = matrices(spread=0.2)
    for norm in (nk.create("riemannian-batchnorm", 4, dtype=F64), nk.create("liebn", 4, dtype=F64)):
        one, other = norm(x), norm(turned(x))
        torch.testing.assert_close(torch.linalg.eigvalsh(one), torch.linalg.eigvalsh(other), rtol=1e-11, atol=0)


@pytest.mark.parametrize(
    "name, options", [("riemannian-batchnorm", {}), ("gbw-batchnorm", {}), ("liebn", {"metric": "LEM"})]
)
def test_a_rotated_batch_gives_what_the_batch_gives_rotated(name, options):
    x, around = matrices(), torch.linalg.qr(matrices(1, seed=3)[0])[0]
    found = []
    for batch in (x, around @ x @ around.mT):
        norm = nk.create(name, 4, dtype=F64, **options)
        with torch.no_grad():
            norm.weight.copy_(norm.weight.round())  # the authors' start is a little off the identity, or from zero
        found.append(norm(batch))
    torch.testing.assert_close(around @ found[0] @ around.mT, found[1], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "name, options",
    [("riemannian-batchnorm", {}), ("gbw-batchnorm", {}), *(("liebn", {"metric": m}) for m in ("AIM", "LEM", "LCM"))],
)
@pytest.mark.parametrize("dtype, bound", [(F64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("axes", [1, 6])
def test_batches_of_condition_1e8_stay_symmetric_and_positive(name, options, dtype, bound, axes):
    u = torch.linalg.qr(torch.randn(axes, 4, 4, generator=torch.Generator().manual_seed(0), dtype=F64))[0]
    x = _symmetric.symmetric(u * torch.logspace(-4, 4, 4, dtype=F64) @ u.mT).expand(6, 4, 4)
    norm = nk.create(name, 4, dtype=dtype, **options)
    for y in (norm(x.to(dtype)), norm.eval()(x.to(dtype))):
        assert (y - y.mT).abs().max() <= bound * y.abs().max()
        assert (torch.linalg.eigvalsh(y.double()).amin(-1) > -bound * y.abs().amax((-2, -1))).all()
        y.square().sum().backward()
        assert all(value.grad.isfinite().all() for value in norm.parameters())


@pytest.mark.parametrize("name", NORMS)
def test_equal_eigenvalues_have_the_gradient_of_differences(name):
    norm = nk.create(name, 3, dtype=F64).eval()
    parameters = dict(norm.named_parameters())
    values = [2 * torch.eye(3, dtype=F64).repeat(2, 1, 1), *(p.detach().round() for p in parameters.values())]

    def call(x, *given):
        return torch.func.functional_call(norm, dict(zip(parameters, given, strict=True)), (x,))

    assert torch.autograd.gradcheck(call, [value.requires_grad_() for value in values], atol=1e-6)


def test_the_authors_gradient_of_a_power_differs_and_the_values_do_not():
    exact, theirs = (nk.create("gbw-batchnorm", 4, power=0.5, exact_gradient=e, dtype=F64) for e in (True, False))
    x, other = (matrices().requires_grad_() for _ in range(2))
    one, two = exact(x), theirs(other)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    one.square().sum().backward()
    two.square().sum().backward()
    assert (x.grad - other.grad).abs().max() > 0.1 * x.grad.abs().max()


@pytest.mark.parametrize("name", NORMS)
def test_what_is_not_positive_definite_is_refused_with_its_smallest_eigenvalue(name):
    norm = nk.create(name, 2)
    with pytest.raises(ValueError, match="smallest eigenvalue of one is -2"):
        norm(torch.diag(torch.tensor([1.0, -2.0])).unsqueeze(0))
    with pytest.raises(ValueError, match="differs from its transpose by 1"):
        norm(torch.tensor([[[2.0, 1.0], [0.0, 2.0]]]))
    with pytest.raises(ValueError, match="but 1 of 2 hold nan or inf"):
        norm(torch.stack([torch.eye(2), torch.full((2, 2), torch.nan)]))


@pytest.mark.parametrize(
    "name, options", [("gbw-batchnorm", {}), ("liebn", {"metric": "AIM"}), ("liebn", {"metric": "LCM"})]
)
@pytest.mark.parametrize("least", [-0.5, -1e-6, float("nan")])
def test_a_weight_that_has_left_the_manifold_is_refused(name, options, least):
    norm = nk.create(name, 2, **options)
    norm.weight.data[1, 1] = least
    with pytest.raises(ValueError, match=f"^{type(norm).__name__}: weight must stay positive definite"):
        norm(torch.eye(2).expand(3, 2, 2))
    assert norm.running_var == 1


def test_a_singular_matrix_has_no_log_cholesky_factor_and_other_metrics_take_it():
    g = torch.randn(6, 5, 3, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"^LieBN: x must hold matrices without an eigenvalue of 0 under metric='LCM'"):
        nk.LieBN(5, metric="LCM")(g @ g.mT)
    for metric in ("AIM", "LEM"):
        assert nk.LieBN(5, metric=metric)(g @ g.mT).abs().max() < 3


@pytest.mark.parametrize(
    "wrong, word", [({"theta": 0.0}, "theta"), ({"beta": -0.25}, "beta"), ({"alpha": 0.0}, "alpha")]
)
def test_metrics_that_are_none_are_refused(wrong, word):
    with pytest.raises(ValueError, match=word):
        nk.create("liebn", 4, **wrong)


def test_channels_have_statistics_of_their_own():
    x = torch.stack([matrices(), matrices(seed=1)], 1)
    both = nk.create("liebn", 4, channels=2, dtype=F64)
    alone = nk.create("liebn", 4, dtype=F64)
    torch.testing.assert_close(both(x)[:, 1], alone(x[:, 1]))
    with pytest.raises(ValueError, match="2 channels"):
        both(x[:, :1])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_hundredth_of_skew_is_refused_and_what_rounding_leaves_is_not(dtype):
    x = torch.eye(4, dtype=dtype).repeat(2, 1, 1)
    x[1, 0, 1] += 1e-4
    nk.require_definite("norm", x)
    x[1, 0, 1] += 1e-2
    with pytest.raises(ValueError, match=r"norm: the matrices .* differs from its transpose by 0.0101"):
        nk.require_definite("norm", x)
