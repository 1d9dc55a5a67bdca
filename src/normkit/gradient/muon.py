"""Muon: momentum whose directions are all made equally large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._dialects import aliases_for, arguments
from normkit.gradient._matrices import in_blocks, matrix_shape
from normkit.gradient._muon import FACTORS, Coefficients, Momentum, factor, step, unit
from normkit.gradient._optimizer import Groups, settings


@method(
    "muon",
    paper="Muon: An optimizer for hidden layers in neural networks (Jordan et al., 2024), kellerjordan.github.io",
    shape="N C",
    example={"ns_dtype": None},
    replaces=("adamw",),
    aliases=aliases_for(  # in full: the catalogue looks names up in the text of files
        *("muon-torch", "muon-torchtitan", "muon-moonlight", "muon-modded-nanogpt", "muon-megatron", "muon-dion"),
        *("muon-timm", "muon-pytorch-optimizer"),
    ),
    exempt={"no-gradient": "in the authors' code momentum goes on where there is no gradient"},
)
class Muon(Momentum):
    """Bring the singular values of the momentum of each matrix near 1, then step.

    For the matrices inside a network: a gradient has a few strong directions, and this gives the weak ones as much.
    Embeddings, heads and vectors should get Adam, by ``use_muon=False``. Where it costs too much, take ``dion2`` or
    ``rmnp``.

    With g the gradient of a matrix of r rows and c columns, and NS five rounds of a polynomial that brings singular
    values into about 0.7 to 1.2,

        b <- momentum b + (1 - momentum) g
        u = (1 - momentum) g + momentum b with nesterov, else b
        w <- w (1 - lr weight_decay) - lr sqrt(max(1, r / c)) NS(u)

    A kernel (out, in, h, w) is the matrix (out, in h w), but r and c are its last two axes, as in the authors' code; a
    tensor of three axes is a stack of matrices. With ``flatten_shape`` it is a kernel too, and r and c are those of
    the matrix. A parameter without a gradient is moved as by one of zero.

    Projects that train with Muon each write it a little differently, and the arguments say how. In place of
    sqrt(max(1, r / c)), ``adjust_lr`` takes

        "original"         sqrt(max(1, r / c))
        "match_rms_adamw"  0.2 sqrt(max(r, c)): entries of 0.2, nearly, where NS gives 1
        "match_rms"        0.2 sqrt(entries) / |NS(u)|: of 0.2 exactly, in the root mean square
        "rms_to_rms"       sqrt(r / c), of the spectral condition and muP
        None               1

    :meth:`like` has the arguments of projects by their names.

    Embeddings, heads, gains and biases are not for it: groups of them say ``use_muon=False`` and get Adam, there with
    lr 3e-4 and no decay by default. :func:`normkit.param_groups` makes such groups.

    Args:
        params: matrices, or groups of parameters.
        lr: the learning rate.
        momentum: the share of the old direction that is kept.
        weight_decay: the share of a weight that is taken off a step, times the learning rate.
        nesterov: look ahead along the momentum.
        ns_steps: rounds of the polynomial.
        ns_coefficients: of its odd powers 1, 3 and 5; or a list of such, one a round, of which the last goes on.
        ns_dtype: the type that it is worked out in, as a word; None: that of the parameter.
        betas: of Adam's groups.
        eps: of Adam's groups.
        adjust_lr: the factor for the shape, as above.
        flatten_shape: take r and c of a kernel as those of its matrix (out, in h w), and three axes as a kernel.
        ns_safety: what the length of a matrix is multiplied by before it divides.
        ns_eps: what is added to that.
        gram: work the polynomial out on u u^T where a matrix is not square, the same numbers up to rounding in fewer
            products; those of half precision in float32, as half precision would leave weak directions far too long.
            None: no.
        cautious_decay: decay only entries that the step makes smaller, or does not move.
        skip_missing: leave a parameter without a gradient alone, and its momentum.
        blocks: heights of the blocks of rows of a fused matrix, each of which is orthogonalized and scaled by itself;
            they may repeat down the rows.
        block_repeats: ``"join"``: blocks of one kind are one matrix over all repeats; ``"split"``: each is one.
        block_axis: ``"rows"``, or ``"columns"`` of weights that are stored as (in, out).
        qk_clip: is called after each step; ``nk.ScoreClip(model)`` shrinks heads whose attention scores are too large,
            which with ``nesterov=False`` and ``adjust_lr="match_rms_adamw"`` is MuonClip. A copy of the optimizer
            copies it.
        sync: share the matrices out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on matrices of one shape in one product; None: yes.

    State of a parameter: ``momentum_buffer``; of Adam's: ``step``, ``exp_avg``, ``exp_avg_sq``. A state of
    ``torch.optim.Muon`` loads into ``Muon.like("torch", params)``, and its steps go on; a state of another dialect than
    the optimizer's is refused.

    Distributed tensors need no argument: their matrices are shared out over their mesh.

    Muon (Jordan et al., 2024), https://kellerjordan.github.io/posts/muon.
    """

    free = Momentum.free | {"gram"}
    later = frozenset(
        {"adjust_lr", "flatten_shape", "ns_safety", "ns_eps", "gram", "cautious_decay", "skip_missing"}
        | {"blocks", "block_repeats", "block_axis"}
    )

    def __init__(
        self,
        params: Groups,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        nesterov: bool = True,
        ns_steps: int = 5,
        ns_coefficients: Coefficients = (3.4445, -4.775, 2.0315),
        ns_dtype: str | None = "bfloat16",
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-10,
        *,
        adjust_lr: str | None = "original",
        flatten_shape: bool = False,
        ns_safety: float = 1.0,
        ns_eps: float = 1e-7,
        gram: bool | None = None,
        cautious_decay: bool = False,
        skip_missing: bool = False,
        blocks: Sequence[int] | None = None,
        block_repeats: str = "join",
        block_axis: str = "rows",
        qk_clip: Callable[[], Any] | None = None,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        if qk_clip is not None and not callable(qk_clip):
            raise TypeError(f"Muon: qk_clip must be called after a step, as nk.ScoreClip(model) is, not {qk_clip!r}")
        self.qk_clip = qk_clip
        super().__init__(**{name: value for name, value in settings(locals()).items() if name != "qk_clip"})
        self._clip_after_steps()

    def _clip_after_steps(self) -> None:
        clip = self.qk_clip
        if clip is not None:
            self.register_step_post_hook(lambda *_: clip())

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "qk_clip": self.qk_clip}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "defaults" in state:  # of a copy, which torch leaves without hooks
            self._clip_after_steps()

    @classmethod
    def like(cls, project: str, params: Groups, **changes: Any) -> Muon:
        """Build the Muon of a project, which is another set of arguments; ``changes`` go before them.

        Args:
            project: ``"keller-jordan"``, ``"torch"``, ``"torchtitan"``, ``"moonlight"``, ``"modded-nanogpt"``,
                ``"megatron"``, ``"dion"``, ``"timm"`` or ``"pytorch-optimizer"``.
            params: matrices, or groups of parameters.
            changes: arguments that differ from the project's own.

        >>> import torch
        >>> group = Muon.like("moonlight", [torch.ones(2, 3)], lr=1e-3).param_groups[0]
        >>> group["adjust_lr"], group["weight_decay"], group["lr"]
        ('match_rms_adamw', 0.1, 0.001)
        """
        return cls(params, **arguments(project, changes))

    def complete(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Return a group that is loaded; one of ``torch.optim.Muon`` in this class's words, for the same steps."""
        if "adjust_lr_fn" in group and "algo" not in group:  # timm's has both
            torchs = Muon.like("torch", [torch.empty(1, 1)], adjust_lr=group["adjust_lr_fn"] or "original")
            named = {name: value for name, value in group.items() if name not in ("eps", "adjust_lr_fn")}
            group = {**torchs.param_groups[0], **named}
        return super().complete(group, own)

    def check(self, group: dict) -> None:
        """Require sound settings of a group."""
        super().check(group)
        check.choice(self, "adjust_lr", group["adjust_lr"], FACTORS)
        check.choice(self, "gram", group["gram"], (None, True, False))
        check.choice(self, "block_repeats", group["block_repeats"], ("join", "split"))
        check.choice(self, "block_axis", group["block_axis"], ("rows", "columns"))

    def check_shape(self, p: Tensor, group: dict) -> None:
        """Require a matrix, a stack of them or a kernel; with ``blocks``, rows that they divide."""
        super().check_shape(p, group)
        if group["blocks"] is None:
            return
        heights = [check.size(self, "blocks", height) for height in group["blocks"]]
        sides = group["block_axis"]
        if not heights or p.dim() > 3 or p.shape[-2 if sides == "rows" else -1] % sum(heights):
            raise ValueError(
                f"{type(self).__name__}: blocks of {heights} {sides} do not divide a parameter of shape "
                f"{tuple(p.shape)}; matrices are wanted, or stacks of them, whose {sides} are a multiple of the sum"
            )

    def skips(self, group: dict) -> bool:
        """Whether a matrix without a gradient is left alone."""
        return group["skip_missing"]

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        directions = self.orthogonal(params, grads, states, group)
        step(params, directions, [group["lr"] * self.factor(p, group) for p in params], group)

    def factor(self, p: Tensor, group: dict) -> float:
        """The factor for the shape of a parameter; blocks have had theirs."""
        if group["blocks"] is not None:
            return 1.0
        if group["flatten_shape"]:
            return factor(group["adjust_lr"], p.shape[0], p.shape[1:].numel())
        return factor(group["adjust_lr"], *(matrix_shape(p) if group["adjust_lr"] == "match_rms" else p.shape[-2:]))

    def direction(self, x: Tensor, group: dict) -> Tensor:
        """What is made of the momentum of whole matrices, or of each of their blocks."""
        rule = group["adjust_lr"]
        if group["blocks"] is None:
            flat = x.flatten(2) if group["flatten_shape"] else x
            return unit(self.polar(flat, group), rule).reshape(x.shape)
        apart = group["block_repeats"] == "split"
        scaled = lambda y: unit(self.polar(y, group), rule) * factor(rule, *y.shape[-2:])  # noqa: E731
        if group.get("block_axis") == "columns":
            return in_blocks(x.mT, group["blocks"], apart, lambda y: scaled(y.mT).mT).mT
        return in_blocks(x, group["blocks"], apart, scaled)
