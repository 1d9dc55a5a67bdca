"""Whether two models are the same: what rounding allows, and what it does not."""

import pytest
import torch
from torch import nn

from normkit.surgery.proof import Unequal, difference, prove


class Scaled(nn.Module):
    """Some layers whose result is off by a share."""

    def __init__(self, inner, share):
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, x):
        return self.inner(x) * (1 + self.share)


def apart(share, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).to(dtype).eval()
    return prove(model, Scaled(model, share), torch.randn(3, 8).to(dtype))


@pytest.mark.parametrize(
    "dtype, allowed, refused",
    [(torch.float64, 1e-10, 1e-8), (torch.float32, 1e-8, 1e-5), (torch.bfloat16, 1e-3, 3e-2)],
)
def test_what_the_models_own_type_rounds_off_is_allowed_and_no_more(dtype, allowed, refused):
    assert apart(allowed, dtype) == pytest.approx(allowed, rel=1e-4)
    with pytest.raises(Unequal, match=f"results differ by {refused:.1e} of the largest number"):
        apart(refused, dtype)


def test_a_difference_is_a_share_of_the_largest_number_of_each_result():
    large, small = torch.tensor([1e6, 1.0]), torch.tensor([2.0, 0.5])
    assert difference([large, small], [large + torch.tensor([0.0, 1.0]), small]) == pytest.approx(1e-6)
    assert difference([large, small], [large, small + 0.5]) == pytest.approx(0.25)
    assert difference([large], [large, small]) == float("inf")
    broken = torch.tensor([1e6, float("nan")])
    assert difference([broken], [broken]) == 0
    assert difference([large], [broken]) == float("inf")
