"""mHC in plain PyTorch, written as transformers' DeepSeek-V4 has it, around the same sublayers: what ours races."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.residual.streams import Connected
from normkit.residual.wiring import Own
from normkit.transformer.model import Transformer


class Plain(Connected):
    """A connection with the parts of ours, and no kernel of ours between them."""

    def read(self, own: Own, held: Any) -> tuple[Tensor, Any]:
        """Return the sublayer's input, and the streams with their weights."""
        connection = own("connection")
        n, eps = connection.streams, connection.eps
        flat = held.flatten(-2).float()
        flat = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
        read, write, mix = F.linear(flat, connection.weight).split([n, n, n * n], -1)
        bias, scale = connection.bias.split([n, n, n * n]), connection.scale
        read = torch.sigmoid(read * scale[0] + bias[0]) + eps
        write = 2 * torch.sigmoid(write * scale[1] + bias[1])
        m = torch.softmax((mix * scale[2] + bias[2]).unflatten(-1, (n, n)), -1) + eps
        m = m / (m.sum(-2, keepdim=True) + eps)
        for _ in range(connection.iterations - 1):
            m = m / (m.sum(-1, keepdim=True) + eps)
            m = m / (m.sum(-2, keepdim=True) + eps)
        return own("norm")((read.unsqueeze(-1) * held).sum(-2).to(held.dtype)), (held, m, write)

    def write(self, own: Own, kept: Any, y: Tensor) -> Any:
        """Return the streams, mixed, with the output added."""
        held, m, write = kept
        return write.to(y.dtype).unsqueeze(-1) * y.unsqueeze(-2) + m.to(held.dtype).mT @ held


def plain(model: nn.Module) -> nn.Module:
    """Let a model of mhc have plain connections."""
    assert isinstance(model, Transformer)
    for at in range(len(model.layers)):
        layer = model.layer(at)
        layer.branches = {
            name: Plain(branch.weights, branch.number) if isinstance(branch, Connected) else branch
            for name, branch in layer.branches.items()
        }
    return model
