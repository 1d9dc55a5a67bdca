"""The probe's numbers are those that one would take by hand, and it leaves nothing behind."""

import timm
import torch
from torch import nn

from normkit.lab.training.probe import Probe, blocks


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(4, 4)

    def forward(self, x):
        return self.map(x).tanh()


def test_numbers_are_those_taken_by_hand():
    model = nn.ModuleDict({"layers": nn.ModuleList(Block() for _ in range(3))})
    x, outputs = torch.randn(5, 4), []
    probe = Probe(model)
    with probe:
        for layer in model["layers"]:
            x = layer(x)
            outputs.append(x.detach())
        x.square().sum().backward()
    for found, layer, output in zip(probe.read(), [layer.map for layer in model["layers"]], outputs, strict=True):
        whole = torch.cat([layer.weight.grad.flatten(), layer.bias.grad])
        torch.testing.assert_close(found["gradient"], whole.norm().item())
        torch.testing.assert_close(found["activation"], output.square().mean().sqrt().item())
    assert [layer["depth"] for layer in probe.read()] == [0, 1, 2]


def test_no_hook_is_left():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with Probe(model):
        model(torch.ones(1, 2)).sum().backward()
    assert not any(m._forward_hooks for m in model.modules())


def test_blocks_of_known_models():
    assert [name for name, _ in blocks(timm.create_model("resnet18"))][:3] == ["layer1.0", "layer1.1", "layer2.0"]
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32)
    assert [name for name, _ in blocks(vit)] == [f"blocks.{i}" for i in range(12)]
