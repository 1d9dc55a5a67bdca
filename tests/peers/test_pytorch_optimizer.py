"""Optimizers of pytorch_optimizer beside ours, with arguments that mean the same."""

import pytest
import torch
from steps_side_by_side import step_both

import normkit as nk

peer = pytest.importorskip("pytorch_optimizer")
PAIRS = {
    "AdamP": (nk.AdamP, {}),
    # without nesterov theirs projects a copy of the momentum; the authors' code and ours, the momentum itself
    "SGDP": (nk.SGDP, {"momentum": 0.9, "nesterov": True}),
    "Lion": (nk.Lion, {}),
    "StableSPAM": (nk.StableSPAM, {}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_steps_are_theirs(name):
    ours, options = PAIRS[name]
    shapes = ((4, 3), (6, 2), (4, 3, 3, 3))
    lists = step_both([getattr(peer, name), ours], shapes, **options)
    for p, q in zip(*lists, strict=True):  # eps beside a small second moment is added in another place
        torch.testing.assert_close(p, q, rtol=1e-5, atol=2e-6)


def test_adaptive_gradient_clipping_is_theirs():
    from pytorch_optimizer.optimizer.agc import agc

    from normkit.gradient.agc import clip

    for shape in ((4, 3), (4, 3, 3, 3)):
        p, grad = (torch.randn(shape, dtype=torch.float64) for _ in range(2))
        torch.testing.assert_close(clip(p, grad, 0.01, 1e-3), agc(p, grad, agc_eps=1e-3, agc_clip_val=0.01, eps=1e-6))
