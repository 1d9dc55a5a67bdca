"""Steps of ``mala`` among the latents of a flow.

The density there is ``neutra``.
"""

from __future__ import annotations

from torch import Tensor

from normkit import catalog
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler, State, energy
from normkit.density.samplers import mala


def step(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    """Take one step of every chain."""
    pulled = catalog.create("neutra", flow, energy=energy(log_prob))
    new = mala.step(flow(x)[0], lambda z: pulled(z).log_prob, size, None)
    return State(flow.inverse(new.x), new.accepted)


SAMPLER = Sampler(step, proposes="Flow", scaled=True, share=0.574)
