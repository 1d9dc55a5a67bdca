"""Markov chains side by side, of every sampler in one form, on any log density."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.density import _convergence
from normkit.density._diffusion import Diffusion
from normkit.density._flow import Flow
from normkit.density._sampler import LogProb, Sampler
from normkit.families import Family

SAMPLERS = Family("sampler", "SAMPLER", "density/samplers")


class Chains(NamedTuple):
    """Draws (steps, chains, ...) after the warm-up, which steps were accepted (steps, chains), and the step size."""

    draws: Tensor
    accepted: Tensor
    step_size: float | None

    @property
    def acceptance(self) -> Tensor:
        """The share of accepted steps, of each chain: a stuck one shows here."""
        return self.accepted.mean(0)

    @property
    def rhat(self) -> Tensor:
        """How far chains disagree, of each coordinate: 1 is agreement, above 1.01 none."""
        return _convergence.rhat(self.draws)

    @property
    def ess(self) -> Tensor:
        """How many independent samples the draws are worth, of each coordinate."""
        return _convergence.ess(self.draws)

    def summary(self) -> str:
        """Tell all three in a line.

        >>> Chains(torch.randn(50, 4, 1), torch.ones(50, 4), None).summary().split(",")[0]
        '200 draws of 4 chains'
        """
        steps, chains = self.draws.shape[:2]
        return (
            f"{steps * chains} draws of {chains} chains, worth {self.ess.min().item():.0f} at least, "
            f"R-hat {self.rhat.max().item():.3f}, accepted {self.accepted.mean().item():.0%} "
            f"({self.acceptance.min().item():.0%} in the slowest chain)"
        )

    def to_arviz(self) -> Any:
        """Return them as arviz takes them; it must be installed.

        Its plots and summaries are for chains of any origin: ``arviz.summary(chains.to_arviz())``.
        """
        try:
            import importlib

            arviz = importlib.import_module("arviz")
        except ImportError as error:
            raise ValueError("Chains: to_arviz needs arviz: pip install arviz") from error
        accepted = self.accepted.mT.double().cpu().numpy()
        return arviz.from_dict({"x": self.draws.transpose(0, 1).cpu().numpy()}, sample_stats={"accepted": accepted})


def walk(
    name: str,
    log_prob: LogProb,
    start: Tensor,
    *,
    steps: int = 1000,
    warmup: int = 0,
    step_size: float | None = None,
    flow: Flow | Diffusion | None = None,
    seed: int | None = None,
) -> Chains:
    """Run chains side by side, and return their draws with what is to be known of them.

    Args:
        name: of the files in ``density/samplers``: along the force, to any side, of a flow's samples, among a flow's
            latents, of a diffusion's paths; ``normkit list --kind sampler`` has them all.
        log_prob: the log density (chains,) of states, up to a constant; ``law.log_prob`` of any distribution.
        start: the first state of each chain, (chains, D).
        steps: draws of each chain.
        warmup: steps before them, in which the step size is found that gives the sampler's share of accepted steps; not
            of langevin.
        step_size: at the start, 0.1 unless given; of flow-hmc the mean, as each trajectory has half to one and a half.
            None where a sampler has no steps: dgfs, imh and isir.
        flow: what proposes samples.
        seed: of the random numbers; torch's own state stays as it was. None: torch's.

    >>> import torch, normkit as nk
    >>> law = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> chains = nk.density.walk("mala", law.log_prob, torch.randn(8, 2), steps=50, warmup=50, seed=0)
    >>> chains.draws.shape, bool(chains.rhat.max() < 1.3)
    (torch.Size([50, 8, 2]), True)
    """
    sampler = SAMPLERS[check.choice("walk", "name", name, tuple(SAMPLERS))]
    check.floating("walk", start, "start")
    check.shape("walk", "start", start, (None, None))
    check.size("walk", "steps", steps)
    check.size("walk", "warmup", warmup, least=0)
    size = 0.1 if step_size is None else check.number("walk", "step_size", step_size, 0.0, open_low=True)
    if step_size is not None and not sampler.scaled:
        raise ValueError(f"walk: {name!r} has no step_size; it must be None")
    if sampler.fitted is not (flow is not None):
        raise ValueError(f"walk: {name!r} {'needs a flow' if flow is None else 'takes no flow'}")
    if isinstance(flow, Diffusion) is not (sampler.proposes == "Diffusion"):
        raise ValueError(f"walk: {name!r} takes a {sampler.proposes}, not {type(flow).__name__}")
    first = log_prob(start)
    check.shape("walk", "what log_prob returns", first, (len(start),))
    if not first.isfinite().all():
        raise ValueError("walk: start must be where log_prob is finite, but it is not in every chain")
    gpus = [start.get_device()] if start.is_cuda else []
    with torch.random.fork_rng(devices=gpus, enabled=seed is not None), torch.no_grad():
        if seed is not None:  # not by torch.manual_seed, which would change the state of every GPU
            for generator in (torch.default_generator, *(torch.cuda.default_generators[place] for place in gpus)):
                generator.manual_seed(seed)
            if not (start.is_cpu or start.is_cuda):
                torch.get_device_module(start.device).manual_seed(seed)
        return _run(sampler, log_prob, start, steps, warmup, size, flow)


def _run(
    sampler: Sampler,
    log_prob: LogProb,
    x: Tensor,
    steps: int,
    warmup: int,
    size: float,
    flow: Flow | Diffusion | None,
) -> Chains:
    draws, accepted = [], []
    logs: list[float] = []
    for step in range(-warmup, steps):
        if step == 0 and logs:  # the last is as noisy as the share of one step
            size = math.exp(sum(logs) / len(logs))
        x, moved = sampler.step(x, log_prob, size, flow)
        if step < 0 and sampler.share is not None:
            early = step < -warmup // 2
            size *= 2.0 ** ((moved.mean().item() - sampler.share) * (2 if early else 0.5))
            logs += [] if early else [math.log(size)]
        elif step >= 0:
            draws.append(x)
            accepted.append(moved)
    return Chains(torch.stack(draws), torch.stack(accepted), size if sampler.scaled else None)
