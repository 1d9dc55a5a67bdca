"""What WideNet claims of the norms of its passes."""

from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

DEPTH, DIM = 6, 16


def variation(seed, shared=False):
    """The coefficient of variation of gains over the passes, a mean over entries, after 200 steps on a random map."""
    parts = [nn.Sequential(nn.Linear(DIM, 32), nn.GELU(), nn.Linear(32, DIM)) for _ in range(2)]
    model = nk.WideNet(dim=DIM, depth=DEPTH, attention=parts[0], feedforward=parts[1]).double()
    if shared:
        for norms in (model.attention_norms, model.feedforward_norms):
            for index in range(1, DEPTH):
                norms[index] = norms[0]
    x = randn(64, DIM)
    target = torch.tanh(x @ randn(DIM, DIM) / 2) @ randn(DIM, DIM) / 2
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(200):
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gains = torch.stack([norm.weight.detach() for norm in model.attention_norms])
    return (gains.std(0) / gains.mean(0).abs()).mean()


CLAIMS = [
    Measured(
        "gains-diverge",
        says="In training the gains of the passes part, by 5 % of their size or more.",
        measure=variation,
        wanted=above(0.05),
        control=partial(variation, shared=True),
        against="norms that the passes share",
        number="variation over the passes",
        draws=3,
        reach="proxy",
    )
]
