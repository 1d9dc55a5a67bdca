"""The router of a mixture of experts, in the dialects of the open models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit import check, ops
from normkit.catalog import method
from normkit.kinds import Method
from normkit.layers import Linear
from normkit.statistics import accurate, full_precision

LOW = -40.0  # below it softplus is exp to the last digit of float64, and later it underflows under the root


def _sqrt_softplus(z: Tensor) -> Tensor:
    """The root of softplus, with a finite slope where softplus underflows."""
    root = F.softplus(z.clamp(min=LOW)).sqrt()
    return torch.where(z > LOW, root, torch.exp(z.clamp(max=LOW) / 2))


SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda z: torch.softmax(z, -1),
    "sigmoid": torch.sigmoid,
    "sqrt-softplus": _sqrt_softplus,
}
MARKS: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda choice: choice.amax(-1),
    "top2": lambda choice: choice.topk(2, -1).values.sum(-1),
}

_SIGMOID = {"score": "sigmoid", "selection_bias": True}
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral-router": {},
    "qwen3-moe-router": {},
    "minimax-router": {},
    "qwen2-moe-router": {"renormalize": False},
    "olmoe-router": {"renormalize": False},
    "gpt-oss-router": {"bias": True},
    "ernie-4.5-router": {"selection_bias": True},
    "longcat-router": {"renormalize": False, "selection_bias": True},
    "deepseek-v2-router": {"renormalize": False, "group_score": "max"},
    "deepseek-v3-router": _SIGMOID,
    "glm-4-router": _SIGMOID,
    "kimi-router": _SIGMOID,
    "minimax-m2-router": _SIGMOID,
    "step-router": _SIGMOID,
    "llama-4-router": {"score": "sigmoid", "renormalize": False, "top_k": 1},
    "deepseek-v4-router": {"score": "sqrt-softplus", "selection_bias": True},
}


@method(
    "router",
    paper="Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer (Shazeer et al., 2017), "
    "arXiv 1701.06538",
    evidence="library",
    provenance="transformers' routers of Mixtral, Qwen2-MoE, gpt-oss and DeepSeek V2, V3 and V4",
    shape="... C",
    over="experts",
    example={"experts": 6, "top_k": 2},
    aliases=FAMILIES,
)
class Router(Method):
    """Score all experts for each token, choose the best few, and say with what weights their results are added.

    For the head of a mixture of experts, also one of the open models, whose dialect is a matter of arguments. Where
    some experts get most of the tokens, ``selection_bias`` and :meth:`balance` even that out without a term in the
    loss.

    With z = weight x [+ bias] and p = softmax(z), sigmoid(z) or sqrt(log(1 + exp(z))), z multiplied by logit_scale
    before,

        choice = p [+ selection_bias]
        experts = the top_k largest of choice, in the kept groups
        w = p[experts] [/ (sum p[experts] + 1e-20)] * scale [* expert_scale[experts]]

    With groups, experts are cut into groups of neighbours, and only those of the best groups can be chosen. A softmax
    over the chosen logits alone is ``score="softmax"`` with ``renormalize=True``. With ``input_norm``, x is first
    gain x / sqrt(mean(x²) + eps).

    Args:
        dim: features of a token.
        experts, top_k: how many experts there are, and how many a token goes to.
        score: ``"softmax"``, ``"sigmoid"`` or ``"sqrt-softplus"``.
        renormalize: divide the weights of the chosen by their sum.
        scale: multiplies the weights.
        bias: learn a shift of z.
        selection_bias: keep a shift that decides which experts are chosen, never with what weight, and that no
            gradient reaches: :meth:`balance` moves it.
        groups, kept_groups: into how many groups the experts are cut, and how many of them are kept.
        group_score: a group's mark is its largest choice, ``"max"``, or the sum of its two largest, ``"top2"``.
        choose_by: choice is of ``"scores"``, p, or of ``"logits"``, z (Kolibri 1).
        logit_scale: multiplies z (Muse Spark).
        input_norm: normalize x by its root mean square first, with a gain (Gemma 4).
        eps: added to the mean square of x.
        expert_scale: learn a factor of each expert's weight (Gemma 4).
        shared: so many experts, the last ones, take every token and are not chosen (Inkling); they count in
            ``experts`` and in ``top_k``.

    ``weights, experts = router(x)`` for x (..., dim): (..., top_k) each, the best first, equal ones by their number,
    the shared behind them; ``experts`` is int64. Scores are worked out in float32 at least, weights have the type of
    ``x``. State: ``weight`` (experts, dim), ``bias`` (experts,), ``selection_bias`` (experts - shared,), zeros, in
    float32 at least, ``gain`` (dim,) and ``expert_scale`` (experts,), ones.

    Of families, by names such as ``nk.create("deepseek-v3-router", ...)``; ``scale`` and ``groups`` are still to be
    given where a config has them. DeepSeek-V4's first layers only ``weigh`` experts. Not here: ZAYA's router, a network
    of several layers.

    Outrageously Large Neural Networks (Shazeer et al., 2017), arXiv 1701.06538; groups: DeepSeek-V2, arXiv 2405.04434;
    sigmoid and selection bias: DeepSeek-V3, arXiv 2412.19437.

    Differs from DeepSeek-V2's code in: experts of the other groups are left out, not set to 0.
    """

    selection_bias: Tensor | None
    gain: nn.Parameter | None
    expert_scale: nn.Parameter | None
    choose_by, logit_scale, shared, eps = "scores", 1.0, 0, 1e-6  # pickles of before have none of these

    def __init__(
        self,
        dim: int,
        experts: int,
        *,
        top_k: int,
        score: str = "softmax",
        renormalize: bool = True,
        scale: float = 1.0,
        bias: bool = False,
        selection_bias: bool = False,
        groups: int = 1,
        kept_groups: int = 1,
        group_score: str = "top2",
        choose_by: str = "scores",
        logit_scale: float = 1.0,
        input_norm: bool = False,
        eps: float = 1e-6,
        expert_scale: bool = False,
        shared: int = 0,
    ):
        super().__init__()
        self.dim = check.size(self, "dim", dim)
        self.experts = check.size(self, "experts", experts)
        self.score = check.choice(self, "score", score, tuple(SCORES))
        self.renormalize = bool(renormalize)
        self.scale = check.number(self, "scale", scale, 0.0, open_low=True)
        self.shared = check.size(self, "shared", shared, least=0, most=experts - 1)
        self._divide(experts - shared, groups, kept_groups, group_score, top_k)
        self.choose_by = check.choice(self, "choose_by", choose_by, ("scores", "logits"))
        self.logit_scale = check.number(self, "logit_scale", logit_scale, 0.0, open_low=True)
        self.eps = check.eps(self, eps)
        plain = Linear(dim, experts, bias=bias)
        self.weight, self.bias = plain.weight, plain.bias
        zeros = accurate(self.weight.new_zeros(experts - shared))
        self.register_buffer("selection_bias", zeros if selection_bias else None)
        self.gain = nn.Parameter(torch.ones(dim)) if input_norm else None
        self.expert_scale = nn.Parameter(torch.ones(experts)) if expert_scale else None

    def _divide(self, routed: int, groups: int, kept_groups: int, group_score: str, top_k: int) -> None:
        """Say in how many groups the routed experts are, and how many experts a token goes to."""
        self.groups = check.size(self, "groups", groups, most=routed)
        check.divides(self, "groups", groups, "experts" if not self.shared else "experts - shared", routed)
        self.kept_groups = check.size(self, "kept_groups", kept_groups, most=groups)
        self.group_score = check.choice(self, "group_score", group_score, tuple(MARKS))
        each = routed // groups
        if groups > 1 and group_score == "top2" and each < 2:
            raise ValueError("Router: group_score='top2' needs two experts a group; use 'max', or fewer groups")
        most = self.shared + (each * kept_groups if groups > 1 else routed)
        self.top_k = check.size(self, "top_k", top_k, least=self.shared + 1, most=most)

    def _apply(self, fn, recurse=True):
        """Cast or move; ``selection_bias`` stays in float32 at least, or half precision would swallow its moves."""
        before = self.selection_bias
        super()._apply(fn, recurse)
        after = self.selection_bias
        if before is not None and after is not None and after.dtype.itemsize < 4:
            self.selection_bias = (after if before.is_meta else before).to(after.device, torch.float32)
        return self

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and numbers of the experts that each token of ``x`` (..., dim) goes to."""
        p, choice = self._scores(x)
        experts = self._choose(choice)
        return self._weights(p, experts).to(x.dtype), experts

    def weigh(self, x: Tensor, experts: Tensor) -> Tensor:
        """Return the weights of ``experts`` (..., any) that something else chose for ``x`` (..., dim)."""
        check.index(self, "experts", experts, (*x.shape[:-1], None), self.experts, self.weight)
        return self._weights(self._scores(x)[0], experts).to(x.dtype)

    def _scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of all experts, and what those that are not shared are chosen by."""
        check.features_last(self, x, self.dim)
        z = accurate(x)
        gain = getattr(self, "gain", None)
        if gain is not None:
            z = ops.row_norm(z, gain.to(z.dtype), None, ops.Row(center=False, eps=self.eps))
        with full_precision(z):
            z = F.linear(z, self.weight.to(z.dtype), None if self.bias is None else self.bias.to(z.dtype))
            z = z if self.logit_scale == 1 else z * self.logit_scale
            p = SCORES[self.score](z)
        if check.readable(p) and p.isnan().any():
            raise ValueError("Router: scores of experts are NaN; x and weight must be finite")
        choice = (p if self.choose_by == "scores" else z).detach()[..., : self.experts - self.shared]
        return p, choice if self.selection_bias is None else choice + self.selection_bias.to(choice.dtype)

    def _weights(self, p: Tensor, experts: Tensor) -> Tensor:
        w = p.gather(-1, experts)
        w = w / (w.sum(-1, keepdim=True) + 1e-20) if self.renormalize else w
        factors = getattr(self, "expert_scale", None)
        return w * self.scale if factors is None else w * self.scale * factors.to(w.dtype)[experts]

    def _choose(self, choice: Tensor) -> Tensor:
        """The numbers of the chosen experts, the best first, and of the shared; of equal ones the first."""
        if self.groups > 1:
            grouped = choice.unflatten(-1, (self.groups, -1))
            kept = _best(MARKS[self.group_score](grouped), self.kept_groups)
            hidden = torch.ones_like(grouped[..., 0], dtype=torch.bool).scatter(-1, kept, False)
            choice = grouped.masked_fill(hidden.unsqueeze(-1), -torch.inf).flatten(-2)
        best = _best(choice, self.top_k - self.shared)
        shared = torch.arange(self.experts - self.shared, self.experts, device=best.device)
        return torch.cat([best, shared.expand(*best.shape[:-1], -1)], -1) if self.shared else best

    @torch.no_grad()
    def balance(self, experts: Tensor, rate: float = 0.001) -> Tensor:
        """Move ``selection_bias`` by ``rate``, up for experts with less than the mean load, down for those with more.

        To be called after each training step with the ``experts`` that its calls returned. Returns the load: the share
        of all choices that each expert got. Over several processes, hand in the experts of all.
        """
        axes = experts.dim() if isinstance(experts, Tensor) else 0
        check.index(self, "experts", experts, (None,) * axes, self.experts, self.weight)
        check.number(self, "rate", rate, 0.0)
        if self.selection_bias is None:
            raise ValueError("Router: balance moves a selection_bias; build it with selection_bias=True")
        load = torch.bincount(experts.flatten(), minlength=self.experts) / max(experts.numel(), 1)
        routed = load[: len(self.selection_bias)]
        self.selection_bias.add_(rate * torch.sign(routed.mean() - routed).to(self.selection_bias.dtype))
        return load


def _best(values: Tensor, count: int) -> Tensor:
    """Where the largest are, in order, the first of equal ones first, which ``topk`` does not promise."""
    return values.sort(dim=-1, descending=True, stable=True).indices[..., :count]
