"""The built-in models, one row each: all that differs between them but how they are built, which `models` tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from normkit.lab.plan.variants import ORIGINAL

TEXT, IMAGES, SIGNALS, MATRICES, SAMPLES = "text", "images", "signals", "matrices", "samples"


@dataclass(frozen=True)
class Model:
    """A built-in model.

    takes: what its data are; data: those it is trained on where none are named, "" where some must be.
    sizes: its arguments with their defaults; width: which of them is its width.
    parts: whether its parts are names, so that variants may differ in them, and not in the norm alone.
    stands: what the input of its norms is, by its name in ``surgery.replacement.fits``.
    causal: whether it predicts what comes.
    signals: whether it takes signals where it takes images.
    original: the norm that it has of its own; norms: those compared where none are named.
    """

    takes: str
    data: str
    sizes: Mapping[str, Any]
    width: str = "dim"
    parts: bool = False
    stands: str = ""
    causal: bool = False
    signals: bool = False
    original: str = ORIGINAL
    norms: tuple[str, ...] = ("layernorm", "rmsnorm", "dyt", "derf")

    @property
    def place(self) -> Any:
        """Where its norms stand; None where it has none."""
        from normkit.surgery.replacement import fits

        return fits.Place(getattr(fits, self.stands), self.causal) if self.stands else None


TRANSFORMER: dict[str, Any] = {"parts": True, "stands": "STREAM", "original": "layernorm"}
ON_MATRICES = (ORIGINAL, "riemannian-batchnorm", "liebn", "gbw-batchnorm")

MODELS = {
    "decoder": Model(TEXT, "python-docs", {"dim": 64, "depth": 4, "heads": 4}, causal=True, **TRANSFORMER),
    "vit": Model(IMAGES, "digits", {"dim": 48, "depth": 4, "heads": 4, "patch": 2}, **TRANSFORMER),
    "resnet": Model(IMAGES, "digits", {"dim": 16, "depth": 1}, stands="IMAGES", signals=True, original="batchnorm"),
    # dim None: 6, or what the matrices have
    "spdnet": Model(MATRICES, "spd", {"dim": None, "depth": 2}, stands="MATRICES", norms=ON_MATRICES),
    "flow": Model(SAMPLES, "", {"depth": None, "hidden": 64}, width="hidden", norms=(ORIGINAL,)),
}
ELSEWHERE = ("hf", "timm")


def row(model: str) -> Model | None:
    """Return the row of a model by what the plan calls it; None for one of the user's, of timm or of transformers.

    >>> row("decoder:depth=2").data, row("timm:resnet18")
    ('python-docs', None)
    """
    return MODELS.get(model.partition(":")[0])


def is_own(model: str) -> bool:
    """Whether a model is the user's own."""
    return model.partition(":")[0] not in (*MODELS, *ELSEWHERE)
