"""What follows from what: findings in the order of cause and effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from normkit.watching.certainty import RANK
from normkit.watching.finding import Finding

LOSS = ("loss-diverges", "loss-spikes", "loss-stands", "labels-apart")
STOPPED = ("no-gradient", "stalled-weights", "rate-too-low", "vanishing-gradient", "loss-stands", "labels-apart")
BLOWN = (
    *("not-a-number", "half-headroom", "gradient-spikes", "residual-growth", "massive-activations", "effective-step"),
    *("entropy-collapse", "score-growth", "saturated-function", "saturated-squash", "dead-units", "tokens-alike"),
    *("idle-blocks", "running-statistics", "eps-dominates", "loss-not-finite"),
)
STEP = ("no-warm-up", "rate-too-high", "large-updates")  # ends with these: what its forward pass shows came before
FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "strong-decay": (*STEP, *BLOWN, "lost-gains", *STOPPED, *LOSS),
    "zero-output": (*BLOWN, *STOPPED, *LOSS),
    "kept-gradients": (*STEP, *BLOWN, "always-clipped", *STOPPED, *LOSS),
    "outlying-batch": ("large-updates", "rate-too-high", *BLOWN, *STOPPED, *LOSS),
    "samples-alike": (*BLOWN, *STOPPED, *LOSS),
    "strong-dropout": ("dead-units", "gradient-spikes", *STOPPED, *LOSS),
    "target-scale": (*STEP, *BLOWN, *STOPPED, *LOSS),
    "evaluation-mode": ("gradient-spikes", "residual-growth", "dead-units", *STOPPED),
    "data-scale": ("initial-scale", *STEP, *BLOWN, *STOPPED, *LOSS),
    "data-not-finite": (*BLOWN, *STOPPED, *LOSS),
    "no-targets": ("loss-not-finite", *STOPPED, *LOSS),
    "loss-not-finite": ("not-a-number", "dead-units", *STOPPED, *LOSS),
    "eps-underflow": (*STEP, *BLOWN, *STOPPED, *LOSS),
    "scaled-loss": (*STEP, *BLOWN, "always-clipped", *STOPPED, *LOSS),
    "initial-scale": (*STEP, *BLOWN, *STOPPED, *LOSS),
    "no-warm-up": ("large-updates", *BLOWN, *STOPPED, *LOSS),
    "rate-too-high": ("no-warm-up", "large-updates", *BLOWN, *STOPPED, *LOSS),
    "large-updates": (*BLOWN, *STOPPED, *LOSS),
    "not-a-number": (*STOPPED, *LOSS, "dead-units"),
    "dead-units": STOPPED,
    "saturated-function": STOPPED,
    "score-growth": ("entropy-collapse", *STOPPED, *LOSS),
    "entropy-collapse": (*STOPPED, *LOSS),
    "router-collapse": ("dead-units", "no-gradient", "stalled-weights"),
    "router-bias": ("router-collapse", "dead-units", "no-gradient", "stalled-weights"),
    "router-double-softmax": ("router-collapse", "loss-stands"),
    "residual-growth": (
        *("half-headroom", "massive-activations", "gradient-spikes", "not-a-number", "entropy-collapse"),
        *("score-growth", *LOSS),
    ),
    "half-headroom": ("not-a-number",),
    "small-batch": ("gradient-spikes", "running-statistics", *LOSS),
    "double-softmax": ("vanishing-gradient", "rate-too-low", *LOSS),
    "always-clipped": STOPPED,
    "frozen-layers": ("left-out", *LOSS),
    "gradient-spikes": ("loss-spikes", "loss-diverges"),
    "vanishing-gradient": ("stalled-weights", "rate-too-low", "loss-stands", "labels-apart"),
    "eps-dominates": ("residual-growth", "vanishing-gradient", "tokens-alike", "loss-stands"),
    "lost-gains": STOPPED,
    "running-statistics": ("labels-apart", "loss-stands"),
    "left-out": ("stalled-weights", "loss-stands"),
    "no-gradient": ("loss-stands", "labels-apart"),
    "stalled-weights": ("loss-stands", "rate-too-low"),
    "rate-too-low": ("loss-stands",),
    "labels-apart": ("loss-stands",),
}
"""What each finding may lead to, near or far, if it came first. What a rule says of it is in its ``leads``."""


def by_cause(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings, the surest first and of those the gravest, each with its effects right behind it.

    A cause is as sure as the surest of its effects, and as grave as the gravest, where that is more. A rule may name a
    cause that its numbers point at, which holds where that was found as well.
    """
    heavy = sorted(findings, key=lambda finding: (RANK[finding.certainty], -finding.weight))
    first = [dataclasses.replace(finding, cause=_root(finding, heavy)) for finding in heavy]
    roots = [finding for finding in first if not finding.cause]
    below = {root.rule: [finding for finding in first if finding.cause == root.rule] for root in roots}
    groups = [(root, *below.pop(root.rule, [])) for root in roots]
    groups.sort(key=lambda group: (min(RANK[f.certainty] for f in group), -max(f.weight for f in group)))
    return [finding for group in groups for finding in group]


def _root(finding: Finding, findings: list[Finding]) -> str:
    """Return the rule at the beginning of the chain that leads to a finding, or nothing: at each link the earliest."""
    causes = [*_behind(finding, findings)]
    if not causes:
        return ""
    cause = min(causes, key=lambda cause: (cause.since is None, cause.since or 0, -cause.weight))
    return _root(cause, findings) or cause.rule


def _behind(effect: Finding, findings: list[Finding]) -> Iterator[Finding]:
    for cause in findings:
        leads = effect.rule in FOLLOWS.get(cause.rule, ()) or effect.cause == cause.rule
        may_lead = effect.causes is None or cause.rule in effect.causes
        if leads and may_lead and not cause.slight and _came_first(cause, effect):
            yield cause


def _came_first(cause: Finding, effect: Finding) -> bool:
    if cause.since is None or effect.since is None:
        return True
    late = cause.rule in STEP and effect.rule not in STEP
    return cause.since < effect.since if late else cause.since <= effect.since
