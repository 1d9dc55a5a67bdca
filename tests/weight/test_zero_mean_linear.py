"""Zero-mean linear: a residual stream without mean, and the training of the transformer that it stands for."""

import pytest
import torch
from torch import nn

import normkit as nk


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


@pytest.mark.parametrize("bias", [True, False])
def test_every_output_has_mean_zero_and_starts_as_torchs_linear(bias):
    torch.manual_seed(0)
    module = nk.create("zero-mean-linear", 5, 7, bias=bias)
    torch.manual_seed(0)
    plain = nn.Linear(5, 7, bias=bias)
    close(dict(module.state_dict()), dict(plain.state_dict()), rtol=0, atol=0)
    x = torch.randn(2, 3, 5)
    y = module(x)
    close(y.mean(-1), torch.zeros(2, 3), rtol=0, atol=1e-6)
    close(y, plain(x) - plain(x).mean(-1, keepdim=True))


def test_a_layernorm_after_it_is_an_rmsnorm():
    module = nk.create("zero-mean-linear", 5, 8).double()
    y = module(torch.randn(4, 5, dtype=torch.float64))
    close(nn.functional.rms_norm(y, (8,), eps=1e-5), nn.functional.layer_norm(y, (8,), eps=1e-5))


class Stream(nn.Module):
    """A small Pre-LN network, plain or with centered writers and RMSNorm."""

    def __init__(self, centered):
        super().__init__()
        write = (lambda i, o: nk.create("zero-mean-linear", i, o)) if centered else nn.Linear
        norm = (
            (lambda: nn.RMSNorm(8, eps=1e-5, elementwise_affine=False))
            if centered
            else (lambda: nn.LayerNorm(8, elementwise_affine=False))
        )
        self.embed, self.norms = write(3, 8), nn.ModuleList(norm() for _ in range(4))
        self.read = nn.ModuleList(nn.Linear(8, 16) for _ in range(3))
        self.write = nn.ModuleList(write(16, 8) for _ in range(3))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        stream = self.embed(x)
        for norm, read, write in zip(self.norms, self.read, self.write, strict=False):
            stream = stream + write(torch.relu(read(norm(stream))))
        return self.head(self.norms[-1](stream))


def test_training_is_that_of_the_pre_ln_network():
    torch.manual_seed(0)
    plain, centered = Stream(False).double(), Stream(True).double()
    centered.load_state_dict(plain.state_dict())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, centered)]
    for _ in range(20):
        x, target = torch.randn(16, 3, dtype=torch.float64), torch.randn(16, 2, dtype=torch.float64)
        losses = []
        for model, optimizer in zip((plain, centered), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append((model(x) - target).square().mean())
            losses[-1].backward()
            optimizer.step()
        close(losses[1], losses[0], rtol=1e-10, atol=0)
    close(dict(centered.state_dict()), dict(plain.state_dict()), rtol=1e-8, atol=1e-10)
