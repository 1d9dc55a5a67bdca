"""What lies on the processor is worked on there, whatever device is the default: a script often sets its GPU."""

import copy
import re

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import watching

with torch.random.fork_rng(devices=[]):
    torch.manual_seed(0)
    X, CLASSES = torch.randn(64, 1, 6, 6), torch.randint(0, 4, (64,))
    BATCHES = [(X, CLASSES)] * 3
    MODEL = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
        *(nn.Linear(32, 16), nn.LayerNorm(16), nn.Linear(16, 4)),
    )
    DECODER = nk.Decoder(vocab=20, dim=8, depth=1, heads=2, placement="pre-norm", norm="layernorm").eval()
    TOKENS = torch.arange(12).view(2, 6)


def model():
    return copy.deepcopy(MODEL)


def watched():
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    with nk.watch(trained, optimizer, every=2) as seen:
        for _ in range(12):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(X), CLASSES)
            loss.backward()
            optimizer.step()
            seen.loss(loss)
    return seen.diagnosis()


USES = {
    "watch": watched,
    "recognize": lambda: nk.recognize(model(), X),
    "inspect": lambda: watching.inspect(model(), BATCHES),
    "checkup": lambda: watching.checkup(model(), BATCHES).mend,
    "curvature": lambda: watching.curvature(model(), BATCHES, top=1, draws=1, steps=3),
    "eigenspectra": lambda: watching.eigenspectra(model()),
    "swap": lambda: nk.swap(model(), {"layernorm": "rmsnorm", "batchnorm": "groupnorm:num_groups=4"}, example=X),
    "fold": lambda: nk.fold(model().eval(), X),
    "convert": lambda: nk.convert(copy.deepcopy(DECODER), "pre-rmsnorm", TOKENS),
    "average": lambda: nk.average([model(), model()], [X, X]),
    "recalibrate": lambda: nk.recalibrate(model(), BATCHES),
    "adapt": lambda: nk.adapt(model(), method="tent")(X).tolist(),
    "quantize": lambda: nk.quantize(model(), [X], bits=4, method="learned-rounding", steps=2),
    "ready": lambda: nk.ready(model().eval(), "int4", X),
    "param_groups": lambda: nk.param_groups(model(), "muon"),
}


@pytest.mark.parametrize("use", USES)
def test_another_default_device_changes_nothing(use):
    results = []
    for device in ("cpu", "meta"):
        torch.manual_seed(0)
        with torch.device(device):
            results.append(re.sub(r"[\d.]+ m?s\b|\d+ to \d+ µs|0x\w+", "", str(USES[use]())))
    assert results[0] == results[1]
