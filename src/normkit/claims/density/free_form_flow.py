"""What free-form flows claim of their gradient."""

import copy
from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, randomized, slope

DIM, COUNTS = 4, (4, 64, 1024)


class Pair(nn.Module):
    """Two affine couplings, whose inverse and determinant are known."""

    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4)) for _ in range(2))

    def forward(self, x):
        """Return the latents."""
        return self.both(x)[0]

    def both(self, x):
        """Return the latents, and the log-determinant."""
        log_det = x.new_zeros(len(x))
        for net in self.nets:
            a, b = x.chunk(2, 1)
            log_scale, shift = net(a).chunk(2, 1)
            x, log_det = torch.cat([b * log_scale.exp() + shift, a], 1), log_det + log_scale.sum(1)
        return x, log_det

    def back(self, z):
        """Return the data."""
        for net in reversed(self.nets):
            b, a = z.chunk(2, 1)
            log_scale, shift = net(a).chunk(2, 1)
            z = torch.cat([a, (b - shift) * (-log_scale).exp()], 1)
        return z


class Case:
    """A flow at one sample: its gradients, and the exact one."""

    def __init__(self, matched=True):
        self.encode = randomized(Pair(), 0.3)
        other = copy.deepcopy(self.encode) if matched else randomized(Pair(), 0.3)
        self.made = nk.FreeFormFlow(DIM, latent=DIM, beta=0.0, encode=self.encode, decode=other.back)
        self.x = randn(1, DIM)
        z, log_det = self.encode.both(self.x)
        self.exact = self.slopes(z.square().sum() / 2 - log_det.sum())

    def slopes(self, loss):
        """The gradient of the encoder, in a row."""
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*self.encode.parameters()])])

    def estimate(self, count, fresh=True):
        """The mean over probes."""
        x = self.x.repeat(count, 1)
        probes = self.made.draw(x) if fresh else self.made.draw(self.x).repeat(count, 1, 1)
        return self.slopes(self.made(x, probes).mean())


def bias(seed, matched=True):
    """The length of the bias in standard errors of 20 estimates of 50 probes: about 1 where there is none."""
    case = Case(matched)
    errors = torch.stack([case.estimate(50) - case.exact for _ in range(20)])
    return errors.mean(0).norm() / (errors.var(0).sum() / len(errors)).sqrt()


def slope_error(seed, fresh=True):
    """How far the slope of the error against the number of probes, both as logarithms, is from -1/2."""
    case = Case()
    errors = [
        torch.stack([(case.estimate(count, fresh) - case.exact).square().sum() for _ in range(16)]).mean().sqrt()
        for count in COUNTS
    ]
    return abs(slope(torch.tensor(COUNTS).double().log(), torch.stack(errors).log()) + 0.5)


CLAIMS = [
    Measured(
        "unbiased",
        says="Where the decoder inverts the encoder, the gradient of the surrogate is the likelihood's in the mean.",
        measure=bias,
        wanted=below(3.0),
        control=partial(bias, matched=False),
        against="another decoder",
        number="bias in standard errors",
        draws=3,
    ),
    Measured(
        "rate",
        says="Its error falls as one over the root of the number of probes.",
        measure=slope_error,
        wanted=below(0.05),
        control=partial(slope_error, fresh=False),
        against="one probe, repeated",
        number="error of the slope",
        draws=2,
    ),
]
