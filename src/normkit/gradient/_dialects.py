"""How projects set Muon: each is a row of arguments."""

from __future__ import annotations

from typing import Any

from normkit import check
from normkit.gradient._muon import CONVERGING

# The Polar Express, for five steps from singular values of 1e-3 at least, with a safety of 1.02 in all but the last
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)
QUINTIC = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
TORCH = {"lr": 1e-3, "weight_decay": 0.1, "ns_eps": 0.0, "skip_missing": True}
# eps_of_sum: added to the length of a momentum that is a sum; ours is an average, 1 - momentum times as long
DIALECTS: dict[str, dict[str, Any]] = {
    "keller-jordan": {},
    "torch": TORCH,
    "torchtitan": TORCH,
    "moonlight": {
        "lr": 1e-3,
        "weight_decay": 0.1,
        "adjust_lr": "match_rms_adamw",
        "skip_missing": True,
        "eps_of_sum": 1e-7,
    },
    "modded-nanogpt": {"lr": 0.025, "weight_decay": 0.05, "ns_coefficients": CONVERGING, "ns_steps": 12},
    "megatron": {
        "nesterov": False,
        "adjust_lr": "match_rms_adamw",
        "ns_coefficients": QUINTIC,
        "ns_eps": 0.0,
        "skip_missing": True,
    },
    "dion": {
        "lr": 0.01,
        "weight_decay": 0.01,
        "nesterov": False,
        "adjust_lr": "rms_to_rms",
        "ns_coefficients": POLAR_EXPRESS,
        "ns_safety": 1.02,
        "skip_missing": True,
        "eps_of_sum": 1e-8,
    },
    "timm": {
        "nesterov": False,
        "adjust_lr": "match_rms_adamw",
        "flatten_shape": True,
        "ns_coefficients": QUINTIC,
        "ns_eps": 0.0,
        "skip_missing": True,
    },
    "pytorch-optimizer": {"flatten_shape": True, "ns_eps": 0.0, "skip_missing": True},
}


def arguments(project: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The arguments that make Muon a project's, under changes of one's own."""
    row = dict(DIALECTS[check.choice("Muon.like", "project", project, tuple(DIALECTS))])
    eps_of_sum = row.pop("eps_of_sum", None)
    if eps_of_sum is not None:
        row["ns_eps"] = float(f"{eps_of_sum * (1 - changes.get('momentum', 0.95)):.12g}")
    return {**row, **changes}


def aliases_for(*names: str) -> dict[str, dict[str, Any]]:
    """Projects' arguments by the names that the catalogue has for their Muon."""
    return {name: arguments(name.removeprefix("muon-"), {}) for name in names}
