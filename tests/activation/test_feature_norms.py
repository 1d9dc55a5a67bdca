"""Features on a sphere: no floor, no eps."""

import pytest
import torch

import normkit as nk


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


@pytest.mark.parametrize(
    "dtype, lengths", [(torch.float32, (1e-37, 1e-20, 1e-6, 1.0, 1e30)), (torch.float64, (1e-300, 1e200))]
)
def test_any_length_is_normalized_fully(dtype, lengths):
    direction = torch.tensor([0.6, -0.8, 0.0], dtype=dtype)
    for length in lengths:
        x = (direction * length).requires_grad_(True)
        y = nk.create("l2-feature-norm", radius=3)(x)
        close(y, direction * 3)
        y[0].backward()
        if length > 1e-30:
            want = 3 * (torch.tensor([1.0, 0, 0], dtype=dtype) - direction[0] * direction) / length
            close(x.grad, want, rtol=1e-5, atol=0)


def test_a_vector_of_zeros_has_no_direction():
    assert nk.create("l2-feature-norm")(torch.zeros(2, 3)).isnan().all()
    x = torch.randn(2, 3)
    assert nk.create("bidirectional-mean-feature-norm")(x, -x).isnan().all()


def test_the_mean_of_two_features_comes_before_the_length():
    a, b = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    module = nk.create("bidirectional-mean-feature-norm")
    close(module(a, b), torch.tensor([[3.0, 1.0]]) / 10**0.5)
    close(module(b, a), module(a, b), rtol=0, atol=0)
    close(module(a * 1e-20, b * 1e-20), module(a, b))
