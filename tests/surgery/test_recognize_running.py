"""What becomes of running estimates when a batch is not finite tells norms apart, unless they take no share of any."""

import pytest
import torch
from torch import nn

import normkit as nk


class Own(nn.Module):
    """A batch norm written by hand; ``skips`` what would make its estimates infinite or NaN."""

    def __init__(self, momentum, skips):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(6))
        self.register_buffer("running_var", torch.ones(6))
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))
        self.momentum, self.skips = momentum, skips

    def forward(self, x):
        mean, var = self.running_mean, self.running_var
        if self.training:
            mean, var = x.mean(0), x.var(0, unbiased=False)
            self.update(mean.detach(), x.var(0).detach())
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.weight + self.bias

    def update(self, *moments):
        for running, moment in zip((self.running_mean, self.running_var), moments, strict=True):
            new = running + self.momentum * (moment - running)
            if not self.skips or new.isfinite().all():
                running.copy_(new)


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("momentum", [0.1, 0.0])
def test_estimates_that_skip_a_batch_are_not_those_of_batch_norm(momentum, skips):
    match = nk.recognize(Own(momentum, skips), torch.randn(8, 6))
    if momentum and skips:
        assert match is None
    else:
        assert (match.name, match.kwargs.get("momentum", 0.1)) == ("batchnorm", momentum)


class OfImages(nn.Module):
    """A batch norm of images alone: of rows it makes the square of its width."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.mean, self.var = nn.Buffer(torch.zeros(width)), nn.Buffer(torch.ones(width))
        self.sizes = set()

    def __deepcopy__(self, memo):
        copied = OfImages(len(self.weight)).to(self.weight.dtype).train(self.training)
        copied.load_state_dict(self.state_dict())
        copied.sizes = self.sizes
        return copied

    def forward(self, x):
        mean, var = self.mean, self.var
        if self.training:
            var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
            count = x.numel() / x.shape[1]
            with torch.no_grad():
                self.mean.lerp_(mean, 0.1), self.var.lerp_(var * count / (count - 1), 0.1)
        mean, var, weight, bias = (t.view(1, -1, 1, 1) for t in (mean, var, self.weight, self.bias))
        y = (x - mean) * torch.rsqrt(var + 1e-5) * weight + bias
        self.sizes.add(y.numel())
        return y


def test_what_makes_squares_of_rows_is_not_asked_for_those_of_many():
    """It was a gigabyte for 512 channels, and most of the time that recognition took."""
    norm = OfImages(128)
    assert nk.recognize(norm).name == "batchnorm"
    assert max(norm.sizes) < 2**20
