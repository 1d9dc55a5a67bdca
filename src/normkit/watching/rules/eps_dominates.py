"""Norms that divide by their eps instead of by what they are fed."""

from __future__ import annotations

from collections.abc import Iterator

from normkit.watching.finding import Finding, Remedy
from normkit.watching.history import History
from normkit.watching.store import Sign
from normkit.watching.trials import Trial, reading

SHARE = 0.5
"""Of eps in the variance plus eps: from there on the norm's output is smaller than 0.7 of what it promises, and falls
with its input. An eps is to guard zeros: healthy layers have below 0.05."""
SIGN = Sign("eps_share", SHARE)
TRIAL = Trial(
    what=lambda history, finding: f"the share of eps in what {finding.where[0]} divides by",
    read=lambda history, finding: reading(history, finding.where[0], "eps_share"),
    write="{:.0%}".format,
    shows=lambda share: share > SHARE,
)


def find(history: History) -> Iterator[Finding]:
    """Look at the share of eps in what norms divide by."""
    late, eps = history.late("eps_share"), history.facts["eps"]
    order = sorted((name for name, share in late.items() if share > SHARE), key=lambda name: -late[name])
    if order:
        name = order[0]
        yield Finding(
            "eps outweighs what norms are fed",
            2.9,
            tuple(order),
            f"{late[name]:.0%} of what {name} divides by is its eps of {eps.get(name, 0.0):g}: its input is too small "
            "for it.",
            since=history.since(name, SIGN),
            leads="a norm that does not normalize, and a scale that it was to take away",
            otherwise=f"below {SHARE:.0%}; below 5% in healthy layers",
            margin=late[name] / SHARE,
            remedies=(
                Remedy(
                    "a smaller eps",
                    f'[setattr(m, "eps", 1e-12) for n, m in model.named_modules() if n in {tuple(order)!r}]',
                ),
            ),
        )
