"""PHI-S and its kin: what each makes of the data's covariance, from the definition."""

import pytest
import torch

import normkit as nk
from normkit.ops.hadamard import hadamard

WHITE = ("pca", "zca", "hadamard")


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def data(features=12, samples=200, rank=None):
    generator = torch.Generator().manual_seed(0)
    sources = torch.randn(samples, rank or features, generator=generator, dtype=torch.float64)
    mixing = torch.randn(rank or features, features, generator=generator, dtype=torch.float64)
    return sources @ mixing * torch.logspace(-2, 2, features, dtype=torch.float64) + 50


def fitted(method, x):
    return nk.create("phi-s", x.shape[-1], method=method).double().fit(x)


@pytest.mark.parametrize("method", ["phi-s", "standard", *WHITE])
def test_every_feature_has_mean_zero_and_variance_one(method):
    x = data()
    y = fitted(method, x)(x)
    close(y.mean(0), torch.zeros(12, dtype=torch.float64), atol=1e-9, rtol=0)
    close(y.var(0), torch.ones(12, dtype=torch.float64), rtol=1e-6, atol=0)


@pytest.mark.parametrize("method", WHITE)
def test_white_means_no_covariance(method):
    x = data()
    close(fitted(method, x)(x).T.cov(), torch.eye(12, dtype=torch.float64), rtol=0, atol=1e-6)


def test_phi_s_keeps_the_shape_of_the_data():
    """It is a rotation and one number: distances are all scaled alike, the covariance is not white."""
    x = data()
    module = fitted("phi-s", x)
    ratio = torch.cdist(module(x), module(x))[0, 1:] / torch.cdist(x, x)[0, 1:]
    close(ratio, ratio[:1].expand_as(ratio))
    close(ratio[0] ** -2, x.T.cov().diagonal().mean())
    assert (module(x).T.cov() - torch.eye(12)).abs().max() > 0.1


@pytest.mark.parametrize("method", ["phi-s", "standard", *WHITE])
def test_the_inverse_brings_everything_back(method):
    x = data()
    module = fitted(method, x)
    close(module.inverse(module(x)), x)
    images = x[:48].reshape(3, 4, 4, 12).movedim(-1, 1)
    close(module(images).movedim(1, -1).reshape(48, 12), module(x[:48]))
    close(module.inverse(module(images)), images)
    close(module(x[:6].reshape(2, 3, 12)), module(x[:6]).reshape(2, 3, 12))
    close(module(x[0]), module(x)[0])


def test_phi_s_needs_two_samples_and_takes_two():
    x = data()[:2]
    close(fitted("phi-s", x).inverse(fitted("phi-s", x)(x)), x)
    with pytest.raises(ValueError, match="at least two samples, not 1"):
        fitted("phi-s", x[:1])


def test_phi_s_needs_no_full_rank_and_the_white_ones_refuse():
    flat = data(rank=3)
    flat[:, 5] = 7.0
    module = fitted("phi-s", flat)
    close(module(flat).var(0), torch.ones(12, dtype=torch.float64), rtol=1e-6, atol=0)
    close(module.inverse(module(flat)), flat)
    for method in ("standard", "pca", "zca", "hadamard"):
        other = nk.create("phi-s", 4, method=method)
        before = {name: value.clone() for name, value in other.state_dict().items()}
        with pytest.raises(ValueError, match="divides by their variance"):
            other.fit(
                torch.tensor(
                    [
                        [1.0, 0.0, 2.0, 1.0],
                        [2.0, 0.0, 5.0, 0.0],
                        [3.0, 0.0, 1.0, 0.0],
                        [0.0, 0.0, 1.0, 1.0],
                        [1.0, 0.0, 0.0, 0.0],
                    ]
                )
            )
        close(dict(other.state_dict()), before, rtol=0, atol=0)


def test_the_sign_rule_and_the_order_of_the_directions():
    x = data(6)
    module = fitted("pca", x)
    directions = module.matrix / module.matrix.norm(dim=1, keepdim=True)
    assert (directions.gather(1, directions.abs().argmax(1, keepdim=True)) > 0).all()
    spread = (x @ directions.T).var(0)
    assert (spread.diff() > 0).all()


def test_it_is_the_identity_before_it_is_fitted_and_fits_in_any_type():
    x = data()
    close(nk.create("phi-s", 12).double()(x), x)
    half = nk.create("phi-s", 12).fit(x.bfloat16())
    assert half.matrix.dtype == torch.float32
    exact = fitted("phi-s", x.bfloat16().double())
    close(half(x.bfloat16()).double(), exact(x.bfloat16().double()), rtol=2**-7, atol=2**-6)


@pytest.mark.parametrize("wrong", [torch.zeros(5, 11), torch.zeros(5, 12, 1), [1.0]], ids=["width", "axes", "list"])
def test_what_cannot_be_fitted_is_named(wrong):
    with pytest.raises((ValueError, TypeError), match="x must"):
        nk.create("phi-s", 12).fit(wrong)
    with pytest.raises(ValueError, match="two samples"):
        nk.create("phi-s", 12).fit(torch.zeros(1, 12))
    with pytest.raises(ValueError, match=r"order 9 .* 8 and 12"):
        nk.create("phi-s", 9).fit(torch.randn(20, 9))


@pytest.mark.parametrize("order", [1, 2, 4, 8, 12, 16, 20, 24, 28, 36, 40, 44, 48, 60, 72, 76, 88, 96, 384, 768, 1152])
def test_hadamard_matrices_have_rows_at_right_angles(order):
    h = hadamard(order)
    close(h @ h.T, torch.eye(order, dtype=torch.float64), rtol=0, atol=1e-12)
    close(h.abs(), torch.full_like(h, order**-0.5))


def test_hadamard_matrices_are_built_as_said():
    twelve = hadamard(12) * 12**0.5
    assert (twelve[0] == 1).all()
    assert (twelve[1:, 0] == -1).all()
    squares = {1, 3, 4, 5, 9}  # modulo 11
    for i in range(11):
        for j in range(11):
            assert twelve[i + 1, j + 1] == (1 if (i - j) % 11 in squares or i == j else -1)
    close(hadamard(24) * 24**0.5, torch.cat([torch.cat([twelve, twelve], 1), torch.cat([twelve, -twelve], 1)]))
    second = hadamard(36) * 6  # by the second construction, from the prime 17
    assert second[:2, :4].tolist() == [[1, -1, 1, 1], [-1, -1, 1, -1]]
