"""Scion: steps of one length in a norm that fits the layer, and weights that stay in its ball."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.gradient._optimizer import Groups, Optimizer, entrywise, keep, multiply, settings, tensors
from normkit.gradient._sharded import is_sharded, like, part_of, shared_out, whole
from normkit.gradient.lmo import AXES, NORMS, lmo


@method(
    "scion",
    paper="Training Deep Learning Models with Norm-Constrained LMOs (Pethick et al., 2025), arXiv 2502.07529",
    shape="...",
    example={"ns_dtype": None},
    replaces=("muon", "adamw"),
    exempt={"still": "weights shrink by the learning rate itself"},
)
class Scion(Optimizer):
    """Step along the steepest direction in a norm of the layer's own, and shrink the weight into that norm's ball.

    For models that are tuned narrow and trained wide: one learning rate is meant for all layers and widths. Heads and
    embeddings need groups of their own. Where those are to stay with AdamW, take ``muon``.

    With g the gradient and lmo that of :func:`normkit.lmo`,

        m <- momentum m + (1 - momentum) g
        w <- w (1 - lr), unless unconstrained,    w <- w - lr scale lmo(m)

    Weights that start in the ball of radius ``scale`` stay in it: decay and radius are one argument. In ``"spectral"``
    they may leave it by a fifth, since Muon's rounds bring singular values to 0.7 to 1.2 only. The authors take
    ``norm="spectral"`` with a scale of 50 inside, ``"sign"`` with 3000 for heads and embeddings that are heads as well,
    and ``"column"`` for the first layer of images; each is a group.

    Args:
        params: parameters, or groups of them.
        lr: the learning rate.
        momentum: the share of the old direction that is kept; the authors' is one minus this.
        norm: ``"auto"``, ``"spectral"``, ``"spectral-conv"``, ``"column"``, ``"row"``, ``"sign"`` or ``"rms"``.
        scale: the radius of the ball.
        unconstrained: let weights leave it: they do not shrink.
        normalized: whether directions are scaled by widths; None: all but those of ``"column"``.
        transpose: take matrices as (in, out), as embeddings are stored.
        at_least_one: let the factor of ``"spectral"`` be no less than 1.
        ns_dtype: the type that singular values are brought to 1 in, as a word; None: that of the parameter.
        sync: share the parameters out over processes that hold the same gradients.
        process_group: the processes, default all.
        maximize: go up instead of down.
        foreach: work on the momenta of a group together; None: not on CPU.

    State of a parameter: ``momentum_buffer``, if momentum is not 0.

    Distributed tensors need no argument: they are shared out over their mesh.

    Norm-Constrained LMOs (Pethick et al., 2025), arXiv 2502.07529.
    """

    state_names = frozenset({"momentum_buffer"})

    sync = False
    process_group = None

    def __init__(
        self,
        params: Groups,
        lr: float = 1e-3,
        momentum: float = 0.9,
        norm: str = "auto",
        scale: float = 1.0,
        unconstrained: bool = False,
        normalized: bool | None = None,
        transpose: bool = False,
        at_least_one: bool = False,
        ns_dtype: str | None = "bfloat16",
        *,
        sync: bool = False,
        process_group: Any = None,
        maximize: bool = False,
        foreach: bool | None = None,
    ):
        options = settings(locals())
        self.sync, self.process_group = options.pop("sync"), options.pop("process_group")
        super().__init__(**options)

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "sync": self.sync, "process_group": self.process_group}

    def check(self, group: dict) -> None:
        """Require sound settings of a group, and a norm that takes its parameters."""
        super().check(group)
        check.number(self, "scale", group["scale"], 0.0)
        norm = check.choice(self, "norm", group["norm"], NORMS)
        for p in tensors(group["params"]):
            most = range(5) if norm == "auto" else AXES.get(norm, range(1, 1 << 10))
            if p.dim() not in most:
                raise ValueError(f"{type(self).__name__}: norm={norm!r} takes no parameter of shape {tuple(p.shape)}")

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        momenta: Sequence[Tensor] = grads
        if group["momentum"]:
            (momenta,) = keep(params, states, "momentum_buffer")
            share = 1 - group["momentum"]
            entrywise(lambda ms, gs: torch._foreach_lerp_(ms, gs, share), momenta, grads)
        names = ("norm", "normalized", "transpose", "at_least_one", "ns_dtype")
        options = {name: group[name] for name in names}
        directions = self.directions(momenta, lambda xs: [lmo(x, **options) for x in xs])

        def work(params, directions):
            if not group["unconstrained"]:
                multiply(params, 1 - group["lr"])
            torch._foreach_add_(params, directions, alpha=-group["lr"] * group["scale"])

        entrywise(work, params, directions)

    def directions(self, momenta: Sequence[Tensor], work: Callable[[list[Tensor]], list[Tensor]]) -> list[Tensor]:
        """Do some work on whole tensors, wherever they lie."""
        stacked = [i for i, m in enumerate(momenta) if m.dim() == 3 and is_sharded([m])]  # no stacks: kernels
        rest = [i for i in range(len(momenta)) if i not in stacked]
        options: dict[str, Any] = {"sync": self.sync, "process_group": self.process_group}
        directions = dict(zip(rest, shared_out([momenta[i] for i in rest], work, **options), strict=True))
        for i in stacked:
            (direction,) = work([whole(momenta[i])])
            directions[i] = like(part_of(direction, momenta[i]), momenta[i])
        return [directions[i] for i in range(len(momenta))]
