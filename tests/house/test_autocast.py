"""Autocast, within which a model gives its features: what is no learned layer multiplies in full precision."""

import copy

import pytest
import torch

import normkit as nk

ROOMS = ("loss", "manifold")
NAMES = (
    *("csls", "dual-inverted-softmax", "gaussian-normality", "hubness", "lame", "nearest-mean"),
    *("relative-representations", "t3a", "rotation-fold", "turboquant"),
    *("loss-plane", "norm-transfer", "phi-s", "principal-gradient", "shuffling-distortion"),
)


@pytest.mark.parametrize("name", [*(name for room in ROOMS for name in nk.methods(room=room)), *NAMES])
def test_autocast_takes_no_digits(name):
    card = nk.card(name)
    built = card.kind.subject(card, dtype=torch.float32)
    results = []
    for enabled in (False, True):
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            results.append(copy.deepcopy(built.call)(*built.inputs))
    torch.testing.assert_close(*results, rtol=0, atol=0, equal_nan=True)
