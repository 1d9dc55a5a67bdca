"""Mix-style layer normalization: a style's gain and shift, mixed with another sample's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, ops, statistics
from normkit.activation.conditional._map import run
from normkit.catalog import method
from normkit.norm import Norm


@method(
    "mixstyle-layernorm",
    paper="GenerSpeech: Towards Style Transfer for Generalizable Out-Of-Domain Text-to-Speech (Huang et al., 2022), "
    "arXiv 2205.07211",
    shape="N T C",
    over="C",
    inputs={"condition": "N 1 C", "permutation?": "N : permutation", "mix?": "N : unit"},
    exempt={"batches rows": "each sample is mixed with another's statistics"},
)
class MixStyleLayerNorm(Norm):
    """Give each frame a style's gain and shift, mixed with another sample's; in evaluation pass x on as it is.

    For speech models whose content representation shall not tell the speaker. With s the UNBIASED standard deviation
    over the features of a frame,

        h = (x - mean) / (s + eps),        [b, g] = affine(condition)
        y = (mix g + (1 - mix) g[permutation]) * h + (mix b + (1 - mix) b[permutation])

    Without ``permutation`` and ``mix`` the layer passes x on with probability 1 - p, one draw a call. Otherwise it
    draws a random permutation, and a mix from Beta(alpha, alpha) for every sample. Evaluation returns x itself, not
    normalized.

    Args:
        dim: C.
        p: probability of being active.
        alpha: of the Beta distribution.
        eps: added to the standard deviation.

    Input x ``(N, T, C)``, condition ``(N, 1, C)``, permutation ``(N,)`` int64 and mix ``(N,)``, either both or neither.

    GenerSpeech: Towards Style Transfer for Generalizable Out-Of-Domain Text-to-Speech (Huang et al., 2022),
    arXiv 2205.07211. MixStyle: Domain Generalization with MixStyle (Zhou et al., 2021), arXiv 2104.02008.

    Differs from the authors' code in: the gradient through the deviation of a constant frame is 0, not NaN.
    """

    def __init__(self, dim: int, *, p: float = 0.5, alpha: float = 0.1, eps: float = 1e-6):
        super().__init__()
        self.dim = check.size(self, "dim", dim, least=2)
        self.p = check.number(self, "p", p, 0, 1)
        self.alpha = check.number(self, "alpha", alpha, 0, open_low=True)
        self.rule = ops.Row(center=True, eps=check.eps(self, eps), eps_place="outside").unbiased(dim)
        self.affine = nn.Linear(dim, 2 * dim)
        nn.init.xavier_uniform_(self.affine.weight)

    def forward(
        self, x: Tensor, condition: Tensor, permutation: Tensor | None = None, mix: Tensor | None = None
    ) -> Tensor:
        """Normalize ``x`` in training and modulate it with mixed styles."""
        self._check(x, condition, permutation, mix)
        if not self.training:
            return x
        if permutation is not None and mix is not None:
            return self._mix(x, condition, permutation, mix)
        active = torch.rand((), dtype=torch.float32, device=x.device) < self.p
        permutation = torch.randperm(x.shape[0], device=x.device)
        return torch.where(active, self._mix(x, condition, permutation, self._draw(x)), x)

    def _check(self, x: Tensor, condition: Tensor, permutation: Tensor | None, mix: Tensor | None) -> None:
        check.values(self, "x", x, (None, None, self.dim), x)
        check.values(self, "condition", condition, (x.shape[0], 1, self.dim), x)
        if (permutation is None) != (mix is None):
            missing = "permutation" if permutation is None else "mix"
            raise ValueError(f"MixStyleLayerNorm: permutation and mix come together, but {missing} is missing")
        if permutation is not None:
            check.index(self, "permutation", permutation, x.shape[:1], x.shape[0], x)
            check.values(self, "mix", mix, x.shape[:1], x)

    def _draw(self, x: Tensor) -> Tensor:
        """One share per sample from Beta(alpha, alpha)."""
        alpha = torch.full(x.shape[:1], self.alpha, dtype=torch.float32, device=x.device)
        return torch.distributions.Beta(alpha, alpha, validate_args=False).sample()

    def _mix(self, x: Tensor, condition: Tensor, permutation: Tensor, mix: Tensor) -> Tensor:
        h = ops.row_norm(statistics.accurate(x), rule=self.rule)
        style = run(self.affine, condition).to(h.dtype)
        shift, gain = torch.lerp(style[permutation], style, mix.to(h.dtype)[:, None, None]).chunk(2, dim=-1)
        return (gain * h + shift).to(x.dtype)
