"""Gradient and activation norms by depth, taken by hooks on a few steps.

A reading stays on the device until it is asked for, so a watched step waits for nothing; between watched steps there
is no hook.

    >>> model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    >>> probe = Probe(model)
    >>> with probe: _ = model(torch.ones(1, 3)).sum().backward()
    >>> [layer["name"] for layer in probe.read()]
    ['0', '1']
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from normkit.watching.sites import blocks


class Probe:
    """Watches the blocks of a model while entered; :meth:`read` then gives, block by block,

    activation: the root mean square of the output,
    gradient: the length of the gradient of all the block's parameters.
    """

    def __init__(self, model: nn.Module):
        self.layers = blocks(model)
        self.outputs: dict[str, Tensor] = {}
        self.handles: list[Any] = []

    def __enter__(self) -> Probe:
        self.handles = [m.register_forward_hook(self._hook(name)) for name, m in self.layers]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.gradients = {name: _length([p.grad for p in m.parameters()]) for name, m in self.layers}

    def _hook(self, name: str) -> Any:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            first = output[0] if isinstance(output, tuple | list) else output
            if isinstance(first, Tensor):
                self.outputs[name] = first.detach().float().square().mean().sqrt()

        return keep

    def read(self) -> list[dict[str, Any]]:
        """Return what the last watched step showed; here the device is waited for."""
        return [
            {"name": name, "depth": depth, "gradient": _number(self.gradients[name]), "activation": _number(output)}
            for depth, (name, _) in enumerate(self.layers)
            if (output := self.outputs.get(name)) is not None
        ]


def _length(gradients: list[Tensor | None]) -> Tensor:
    lengths = [torch.linalg.vector_norm(g.detach().float()) for g in gradients if g is not None]
    return torch.linalg.vector_norm(torch.stack([_whole(n) for n in lengths])) if lengths else torch.zeros(())


def _whole(x: Tensor) -> Tensor:
    """Join what FSDP2 has spread over processes."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _number(x: Tensor) -> float:
    return float(x)
