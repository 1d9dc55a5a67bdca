"""The loss of a residual energy model: real texts against those of the language model."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from normkit.catalog import method
from normkit.inference._pit import fill
from normkit.inference._scores import scores


@method(
    "residual-ebm-loss",
    paper="Residual Energy-Based Models for Text Generation (Deng et al., 2020), arXiv 2004.11714",
    evidence="abstract",
    shape="N",
    over="N",
    inputs={"fake_energy": "B"},
    provenance="the paper's equation as recalled; no code of the authors for it",
)
def residual_ebm_loss(real_energy: Tensor, fake_energy: Tensor) -> Tensor:
    """Teach an energy to be low on real texts and high on a frozen language model's own.

    For a frozen language model whose texts are to become better as a whole: an energy of whole texts learns what it
    lacks. Texts are then drawn by ``residual-ebm-resample``, and the perplexity is between ``residual-ebm-bounds``.

    P(x) ~ P_LM(x) exp(-E(x)), and -E is the logit of "real".

        mean softplus(E(real)) + mean softplus(-E(fake))

    Args:
        real_energy: E of real texts, (N,).
        fake_energy: E of samples of the language model that go on from the same prefixes, (M,).

    Residual Energy-Based Models for Text Generation (Deng et al., 2020), arXiv 2004.11714.
    """
    real = scores("residual-ebm-loss", "real_energy", real_energy, (None,))
    fake = scores("residual-ebm-loss", "fake_energy", fake_energy, (None,), real_energy)
    for name, energy in (("real_energy", real), ("fake_energy", fake)):
        fill("residual-ebm-loss", name, energy)
    return (F.softplus(real).mean() + F.softplus(-fake).mean()).to(real_energy.dtype)
