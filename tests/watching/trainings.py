"""Tiny trainings, of which some are ill on purpose; a fraction of a second each."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.transformer import Decoder

WORDS, LENGTH = 16, 16


def train(model, batches, *, steps=24, lr=3e-3, every=6, make=torch.optim.AdamW, watched=True, loss=F.cross_entropy):
    """Train, and return the losses and what was seen."""
    optimizer = make(model.parameters(), lr=lr)
    seen = nk.watch(model, optimizer, every=every)
    if watched:
        seen.start()
    losses = []
    for step in range(steps):
        x, y = batches(step)
        found = loss(model(x).flatten(0, -2), y.flatten())
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(found.item())
    seen.stop()
    return losses, seen


def run_lines(finding, seen):
    """Run each line that a finding prints on a copy of the model, and of what a training loop holds."""
    for remedy in finding.remedies:
        if remedy.runs:
            model, optimizers = copy.deepcopy((seen.model, seen.optimizers))
            x = seen.batch.args[0]
            scores = model(x)
            scope = {"model": model, "optimizer": optimizers[0], "scores": scores, "x": x, "y": scores.argmax(-1)}
            scope |= {"nk": nk, "nn": nn, "torch": torch, "F": F, "loss": scores.float().square().mean()}
            scope["loader"] = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, scope["y"]))
            with torch.autograd.set_detect_anomaly(False):
                exec(remedy.line, scope | {"batches": [x]})


def language(step, batch=8):
    """Texts in which every word follows from the one before."""
    chance = torch.Generator().manual_seed(step)
    words = [torch.randint(WORDS, (batch,), generator=chance)]
    for _ in range(LENGTH):
        words.append((3 * words[-1] + 1 + torch.randint(2, (batch,), generator=chance)) % WORDS)
    text = torch.stack(words, 1)
    return text[:, :-1], text[:, 1:]


def points(step, batch=64, width=8):
    """Points that are told apart by the sign of a product."""
    chance = torch.Generator().manual_seed(step)
    x = torch.randn(batch, width, generator=chance)
    return x, (x[:, 0] * x[:, 1] > 0).long()


def pictures(step, batch=32, size=8):
    """Noise with a bright quarter, whose place is the class."""
    chance = torch.Generator().manual_seed(step)
    x = torch.randn(batch, 1, size, size, generator=chance)
    y = torch.randint(4, (batch,), generator=chance)
    half = size // 2
    for picture, place in zip(x, y.tolist(), strict=True):
        row, column = half * (place // 2), half * (place % 2)
        picture[:, row : row + half, column : column + half] += 3
    return x, y


def decoder(depth=2, dim=32, std=1.0, **options):
    """Embeddings of deviation one, which are the head too, begin at a loss that is named itself at this width."""
    torch.manual_seed(0)
    made = Decoder(vocab=WORDS, dim=dim, depth=depth, heads=4, length=LENGTH, **options)
    nn.init.normal_(made.embedding.weight, std=std)
    return made


def mlp(depth=3, width=32, inputs=8, outputs=2, function=nn.ReLU, norm=None, gain=2**0.5, seed=0):
    """Linear maps with functions between, and norms where one is named."""
    torch.manual_seed(seed)
    parts = []
    for layer in range(depth):
        parts.append(nn.Linear(inputs if layer == 0 else width, width))
        nn.init.normal_(parts[-1].weight, std=gain * parts[-1].in_features ** -0.5)
        parts += [nk.create(norm, width)] if norm else []
        parts.append(function())
    return nn.Sequential(*parts, nn.Linear(width, outputs))
