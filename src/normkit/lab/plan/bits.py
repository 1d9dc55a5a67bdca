"""What ``--quant`` names: ways to put a trained model into few bits."""

from __future__ import annotations

from normkit import check
from normkit.choice import parsed
from normkit.lab.plan.settings import Settings, spell
from normkit.optional import require as require_package

CACHES = ("kivi", "turboquant", "nsnquant")  # of keys and values alone
ACTIVATIONS = "activations"
OF_TWO = 2  # bits that nsnquant has


def methods() -> tuple[str, ...]:
    """Return all names."""
    from normkit.surgery.quantizing.weights import METHODS

    return (*METHODS, *CACHES, ACTIVATIONS)


def require(settings: Settings) -> None:
    """Refuse names that there are none of."""
    if not settings.quant:
        return
    name = spell("quant")
    for text in settings.quant:
        method, _ = parsed(text)
        check.choice("compare", name, method, methods())
        if method == "nsnquant" and OF_TWO not in settings.bits:
            raise ValueError(f"{name} nsnquant has {OF_TWO} bits: give {spell('bits')} {OF_TWO} among others")
    if any(parsed(text)[0] not in (*CACHES, ACTIVATIONS) for text in settings.quant):
        require_package("torchao")
