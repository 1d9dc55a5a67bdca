"""Markov chains side by side, of every sampler in one form, on any log density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from normkit import catalog, check
from normkit.density import _told
from normkit.density._diffusion import Diffusion
from normkit.density._flow import Flow

LogProb = Callable[[Tensor], Tensor]


class State(NamedTuple):
    """Where chains are, (chains, ...), and which of them moved in this step, from 0 to 1."""

    x: Tensor
    accepted: Tensor


class Kernel(NamedTuple):
    """One step of a sampler: the state and the log density in, the new state and what was accepted out.

    ``fitted``: whether it proposes samples of a flow; ``scaled``: whether it has a step size.
    """

    step: Callable[..., State]
    fitted: bool
    scaled: bool


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
        return _told.rhat(self.draws)

    @property
    def ess(self) -> Tensor:
        """How many independent samples the draws are worth, of each coordinate."""
        return _told.ess(self.draws)

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


def _uniform(x: Tensor) -> Tensor:
    return torch.rand(len(x), dtype=x.dtype, device=x.device)


def _energy(log_prob: LogProb) -> LogProb:
    return lambda x: -log_prob(x)


def _mala(x: Tensor, log_prob: LogProb, size: float, flow: Flow | None) -> State:
    mala = catalog.card("mala").entry
    found = mala(x, torch.randn_like(x)[None], _uniform(x)[None], energy=_energy(log_prob), step_size=size)
    return State(found.x, found.accepted[0])


def _langevin(x: Tensor, log_prob: LogProb, size: float, flow: Flow | None) -> State:
    langevin = catalog.card("stochastic-flow-langevin").entry
    noise = torch.randn_like(x)[None]
    return State(langevin(x, noise, energy=_energy(log_prob), step_size=size)[0], x.new_ones(len(x)))


def _metropolis(x: Tensor, log_prob: LogProb, size: float, flow: Flow | None) -> State:
    metropolis = catalog.card("stochastic-flow-metropolis").entry
    draws = torch.randn_like(x)[None], _uniform(x)[None]
    found = metropolis(x, *draws, energy=_energy(log_prob), step_size=size).y
    return State(found, (found != x).flatten(1).any(1).to(x.dtype))


def _imh(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    new = flow.sample(len(x)).to(x.dtype)
    step = catalog.card("imh-step").entry
    found = step(x, log_prob(x), flow.log_prob(x), new, log_prob(new), flow.log_prob(new), _uniform(x))
    return State(found.x, found.accepted)


PARTICLES = 16


def _isir(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    new = flow.sample(len(x) * (PARTICLES - 1)).to(x.dtype)
    rows = torch.cat([x.unsqueeze(1), new.unflatten(0, (len(x), -1))], 1)
    weights = (law(rows.flatten(0, 1)).unflatten(0, (len(x), -1)) for law in (log_prob, flow.log_prob))
    found = catalog.card("isir-step").entry(rows, *weights, _uniform(x))
    return State(found.x, (found.index > 0).to(x.dtype))


def _hmc(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    kernel = catalog.create("flow-hmc", flow, energy=_energy(log_prob), step_size=size, steps=5)
    return State(*kernel(x, torch.randn_like(x), _uniform(x)))


def _neutra(x: Tensor, log_prob: LogProb, size: float, flow: Flow) -> State:
    pulled = catalog.create("neutra", flow, energy=_energy(log_prob))
    found = _mala(flow(x)[0], lambda z: pulled(z).log_prob, size, None)
    return State(flow.inverse(found.x), found.accepted)


def _dgfs(x: Tensor, log_prob: LogProb, size: float, flow: Diffusion) -> State:
    """A path to each state is drawn as a bridge, another is proposed, and the weights of both decide."""
    new, ratio = flow.draw(len(x), x)
    step = catalog.card("imh-step").entry
    found = step(x, log_prob(x), flow.bridge(x), new, log_prob(new), ratio, _uniform(x))
    return State(found.x, found.accepted)


KERNELS = {
    "mala": Kernel(_mala, False, True),
    "langevin": Kernel(_langevin, False, True),
    "metropolis": Kernel(_metropolis, False, True),
    "imh": Kernel(_imh, True, False),
    "dgfs": Kernel(_dgfs, True, False),
    "isir": Kernel(_isir, True, False),
    "flow-hmc": Kernel(_hmc, True, True),
    "neutra": Kernel(_neutra, True, True),
}
WANTED = {"mala": 0.574, "neutra": 0.574, "metropolis": 0.234, "flow-hmc": 0.651}  # shares of accepted steps


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
        name: ``mala`` (along the force), ``langevin`` (the same, all steps taken, and so not exact), ``metropolis``
            (without a force); of a flow's samples ``imh`` (each taken or not) and ``isir`` (one of 16); among a flow's
            latents ``neutra`` (mala) and ``flow-hmc`` (trajectories of 5 steps); of the paths of a ``Diffusion``
            ``dgfs``.
        log_prob: the log density (chains,) of states, up to a constant; ``law.log_prob`` of any distribution.
        start: the first state of each chain, (chains, D).
        steps: draws of each chain.
        warmup: steps before them, in which the step size is found that gives the share of accepted steps which is best
            in many dimensions; not of langevin.
        step_size: at the start, 0.1 unless given.
        flow: what proposes samples.
        seed: of the random numbers; torch's own state stays as it was. None: torch's.

    >>> import torch, normkit as nk
    >>> law = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> chains = nk.density.walk("mala", law.log_prob, torch.randn(8, 2), steps=50, warmup=50, seed=0)
    >>> chains.draws.shape, bool(chains.rhat.max() < 1.3)
    (torch.Size([50, 8, 2]), True)
    """
    kernel = KERNELS[check.choice("walk", "name", name, tuple(KERNELS))]
    check.floating("walk", start, "start")
    check.shape("walk", "start", start, (None, None))
    check.size("walk", "steps", steps)
    check.size("walk", "warmup", warmup, least=0)
    size = 0.1 if step_size is None else check.number("walk", "step_size", step_size, 0.0, open_low=True)
    if kernel.fitted is not (flow is not None):
        raise ValueError(f"walk: {name!r} {'needs a flow' if flow is None else 'takes no flow'}")
    if isinstance(flow, Diffusion) is not (name == "dgfs"):
        raise ValueError(
            f"walk: {name!r} takes a {'Diffusion' if name == 'dgfs' else 'Flow'}, not {type(flow).__name__}"
        )
    first = log_prob(start)
    check.shape("walk", "what log_prob returns", first, (len(start),))
    if not first.isfinite().all():
        raise ValueError("walk: start must be where log_prob is finite, but it is not in every chain")
    with torch.random.fork_rng(devices=[], enabled=seed is not None), torch.no_grad():
        if seed is not None:
            torch.manual_seed(seed)
        return _walked(name, kernel, log_prob, start, steps, warmup, size, flow)


def _walked(
    name: str,
    kernel: Kernel,
    log_prob: LogProb,
    x: Tensor,
    steps: int,
    warmup: int,
    size: float,
    flow: Flow | Diffusion | None,
) -> Chains:
    draws, accepted = [], []
    for step in range(-warmup, steps):
        x, moved = kernel.step(x, log_prob, size, flow)
        if step < 0 and name in WANTED:
            size *= 2.0 ** ((moved.mean().item() - WANTED[name]) * (2 if step < -warmup // 2 else 0.5))
        elif step >= 0:
            draws.append(x)
            accepted.append(moved)
    return Chains(torch.stack(draws), torch.stack(accepted), size if kernel.scaled else None)
