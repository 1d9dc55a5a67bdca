"""What ViT-22B claims of normalized queries and keys."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import randn, randomized, relative

DIM, HEADS = 12, 3


def layer(placement):
    """A transformer layer with RMS norms."""
    sizes = {"dim": DIM, "heads": HEADS, "hidden": 16, "norm": "rmsnorm"}
    return randomized(nk.TransformerLayer(placement=placement, **sizes), 0.3)


def share(seed, placement="qk-norm-layer"):
    """The largest score as a share of sqrt(dim / heads) times the largest product of gains."""
    module, outputs = layer(placement), []
    module.attention.core.register_forward_pre_hook(lambda core, args: outputs.extend(args[:2]))
    module(100 * randn(2, 7, DIM))
    scores = outputs[0] @ outputs[1].mT / (DIM / HEADS) ** 0.5
    if placement != "qk-norm-layer":
        return scores.abs().max() / (DIM / HEADS) ** 0.5
    gains = module.attention.query_norm.weight * module.attention.key_norm.weight
    return scores.abs().max() / ((DIM / HEADS) ** 0.5 * gains.abs().max())


def moved(seed, placement="qk-norm-layer"):
    """The relative change of the output when the weights of queries and keys are multiplied by 100."""
    module, x = layer(placement), 10 * randn(2, 7, DIM)
    before = module(x)
    with torch.no_grad():
        for projection in (module.attention.query, module.attention.key):
            projection.weight.mul_(100)
    return relative(module(x), before)


SOFTMAX = partial(share, placement="pre-norm"), partial(moved, placement="pre-norm")
CLAIMS = [
    Identity(
        "bounded",
        says="Scores are bounded by sqrt(dim / heads) and the largest product of gains.",
        measure=share,
        bound=1.0,
        breaks=SOFTMAX[0],
        against="pre-norm with gains of 1",
        number="share of the bound",
    ),
    Identity(
        "weights",
        says="A hundred times the weights of queries and keys change nothing.",
        measure=moved,
        bound=1e-5,
        breaks=SOFTMAX[1],
        against="pre-norm",
        number="relative change",
    ),
]
