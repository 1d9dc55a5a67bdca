"""What optimizers of matrices share: many of one shape in one product, and vectors that get Adam."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from normkit import ops
from normkit.gradient._optimizer import Groups, Optimizer, adam, tensors
from normkit.gradient._sharded import like, part_of, shared_out, whole
from normkit.ops.polar import Triple
from normkit.statistics import accurate

BATCH = 1 << 23  # entries that are worked on together at most: more of them only need more memory
LARGE = 1 << 16  # entries of a matrix whose own products are faster than those of a stack, on one thread of a CPU
Work = Callable[[Tensor], Tensor]  # from matrices (..., rows, columns) to as many of the same shape


class MatrixOptimizer(Optimizer):
    """An optimizer of matrices: a method says what is a matrix to it, and moves those; what is none gets Adam.

    With ``sync`` the matrices are shared out over the processes of ``process_group``, which must hold the same
    gradients, as ``DistributedDataParallel`` leaves them: each is worked on by one, and all get the result. Matrices
    that are distributed tensors, those of ``fully_shard`` or of tensor parallelism, are shared out over their mesh.
    """

    sync = False
    process_group = None

    def __init__(self, params: Groups, *, sync: bool = False, process_group: Any = None, **defaults: Any):
        self.sync, self.process_group = sync, process_group
        super().__init__(params, **defaults)

    def __getstate__(self) -> dict:
        return {**super().__getstate__(), "sync": self.sync, "process_group": self.process_group}

    def _own(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group without what all groups share, and not one of torch's ZeRO where matrices are to be shared out."""
        if group.get("sync"):
            raise ValueError(
                f"{type(self).__name__}: a group of params has sync=True, which all groups must share; under torch's "
                "ZeRO, whose processes have parameters of their own, it must be False"
            )
        return super()._own(group)

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether a parameter is a matrix to the method."""
        raise NotImplementedError

    def parts(self, params: list[Tensor], group: dict) -> Iterator[list[Tensor]]:
        """Work on all matrices of a group together, on any device, unless ``foreach`` forbids it."""
        yield from ([p] for p in params) if group["foreach"] is False else [params]

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group, its matrices and the others."""
        for call, matrices in ((self.move, True), (self.move_others, False)):
            own = [i for i, p in enumerate(params) if self.is_matrix(p, group) == matrices]
            if own:
                call([params[i] for i in own], [grads[i] for i in own], [states[i] for i in own], group)

    def move(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move matrices."""
        raise NotImplementedError

    def move_others(self, params: list[Tensor], grads: list[Tensor], states: list[dict], group: dict) -> None:
        """Move what is no matrix, by Adam with decoupled decay."""
        adam(params, grads, states, **{name: group[name] for name in ("lr", "betas", "eps", "weight_decay")})

    def directions(self, matrices: list[Tensor], work: Work, group: dict) -> list[Tensor]:
        """Do some work on matrices (..., rows, columns), whole ones, wherever they lie."""

        def on_some(matrices: list[Tensor]) -> list[Tensor]:
            outputs = batch([as_matrix(x) for x in matrices], work, group["foreach"] is not False)
            return [y.reshape(x.shape) for x, y in zip(matrices, outputs, strict=True)]

        return shared_out(matrices, on_some, sync=self.sync, process_group=self.process_group)


class Hidden(MatrixOptimizer):
    """An optimizer of the matrices inside a model, stacks of them and kernels; groups with ``use_muon=False`` get Adam.

    A matrix without a gradient is left alone.
    """

    # of groups with use_muon=False, where they do not say otherwise
    adam: ClassVar[dict[str, Any]] = {"lr": 3e-4, "weight_decay": 0.0, "betas": (0.9, 0.95), "eps": 1e-10}

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; one with ``use_muon=False`` has Adam's usual learning rate and no decay by default."""
        group = {"use_muon": True, **param_group}
        super().add_param_group(group if group["use_muon"] else {**self.adam, **group})

    def _takes_decay(self, group: dict[str, Any]) -> bool:
        return super()._takes_decay(group) or not group["use_muon"]

    def check(self, group: dict) -> None:
        """Require sound settings of a group, and matrices."""
        super().check(group)
        for p in () if self.takes_any_shape(group) else tensors(group["params"]):
            self.check_shape(p, group)

    def takes_any_shape(self, group: dict) -> bool:
        """Whether a group may have vectors and numbers."""
        return not group.get("use_muon", True)

    def check_shape(self, p: Tensor, group: dict) -> None:
        """Require a matrix, a stack of them or a kernel."""
        if p.dim() < 2:
            raise ValueError(
                f"{type(self).__name__}: params has one of shape {tuple(p.shape)}, and matrices, stacks of them and "
                "kernels are wanted; a group with use_muon=False takes the others"
            )

    def is_matrix(self, p: Tensor, group: dict) -> bool:
        """Whether the group is one of matrices."""
        return group["use_muon"]

    def skips(self, group: dict) -> bool:
        """Whether a matrix without a gradient is left alone."""
        return True

    def moved(self, group: dict) -> list[Tensor]:
        """The parameters that a step moves: all matrices but frozen ones, unless those without a gradient stay."""
        if not self.takes_any_shape(group) and any(p.dim() < 2 for p in group["params"]):
            raise ValueError(
                f"{type(self).__name__}: a vector has replaced matrices in params, as DeepSpeed's ZeRO does; with "
                "torch's fully_shard, or ZeRO stage 0, they stay matrices"
            )
        if not group["use_muon"] or self.skips(group):
            return super().moved(group)
        return [p for p in group["params"] if p.requires_grad or p.grad is not None]


def as_matrix(x: Tensor) -> Tensor:
    """A parameter as a matrix, or as a stack of them: of a kernel (out, in, ...) all but the first axis is one.

    >>> as_matrix(torch.ones(4, 3, 2, 2)).shape, as_matrix(torch.ones(8, 3, 5)).shape
    (torch.Size([4, 12]), torch.Size([8, 3, 5]))
    """
    return x.flatten(1) if x.dim() > 3 else x


def batch(matrices: Sequence[Tensor], work: Work, together: bool = True) -> list[Tensor]:
    """Do some work on every matrix, with those of one shape in one call, unless they are faster alone.

    >>> [x.shape for x in batch([torch.ones(2, 3), torch.ones(3, 2)], lambda x: x / x.norm())]
    [torch.Size([2, 3]), torch.Size([3, 2])]
    """
    outputs = list(matrices)  # those without entries stay
    for places in _of_one_shape(matrices) if together else ([i] for i, x in enumerate(matrices) if x.numel()):
        stacked = torch.stack([matrices[i] for i in places]) if len(places) > 1 else matrices[places[0]][None]
        for i, result in zip(places, work(stacked), strict=True):
            outputs[i] = result
    return outputs


def _of_one_shape(matrices: Sequence[Tensor]) -> Iterator[list[int]]:
    places: dict[object, list[int]] = {}
    for i, x in enumerate(matrices):
        if not x.numel():
            continue
        places.setdefault((x.shape, x.dtype, x.device), []).append(i)
    for own in places.values():
        first = matrices[own[0]]
        most = 1 if _faster_alone(first) else max(1, BATCH // max(1, first.numel()))
        yield from (own[start : start + most] for start in range(0, len(own), most))


def _faster_alone(matrix: Tensor) -> bool:
    return matrix.is_cpu and matrix.numel() >= LARGE and torch.get_num_threads() == 1  # several take a matrix each


def newton_schulz(x: Tensor, coefficients: Sequence[Triple], **options: Any) -> Tensor:
    """Bring the singular values of matrices (..., rows, columns) near 1; options are those of :func:`ops.polar`."""
    stack = x.reshape(-1, *x.shape[-2:])
    if len(stack) > 1 and _faster_alone(stack[0]):
        return torch.stack([ops.polar(y, coefficients, **options) for y in stack]).reshape(x.shape)
    return ops.polar(x, coefficients, **options)


def in_blocks(x: Tensor, heights: Sequence[int], apart: bool, work: Work) -> Tensor:
    """Do some work on blocks of rows, which repeat; those of one kind are one matrix, or with ``apart`` each is one.

    >>> in_blocks(torch.arange(6.0)[:, None], [1, 2], False, lambda x: x.flip(-2)).flatten().tolist()
    [3.0, 5.0, 4.0, 0.0, 2.0, 1.0]
    """
    blocks = x.unflatten(-2, (-1, sum(heights))).split(list(heights), -2)
    if apart:
        done = [work(block) for block in blocks]
    else:
        done = [work(block.flatten(-3, -2)).unflatten(-2, block.shape[-3:-1]) for block in blocks]
    return torch.cat(done, -2).flatten(-3, -2)


def full_matrix(x: Tensor) -> Tensor:
    """A parameter as a matrix or a stack of them, with the parts that other processes hold, in no half precision."""
    return accurate(as_matrix(whole(x)))


def cut_as(x: Tensor, p: Tensor) -> Tensor:
    """A whole matrix in the shape and type of a parameter, of which each process keeps its part."""
    return like(part_of(x.reshape(p.shape).to(p.dtype), p), p)


def matrix_shape(p: Tensor) -> tuple[int, int]:
    """Rows and columns of a parameter as a matrix, or as a stack of them.

    >>> matrix_shape(torch.ones(4, 3, 2, 2)), matrix_shape(torch.ones(8, 3, 5))
    ((4, 12), (3, 5))
    """
    return (p.shape[0], p.shape[1:].numel()) if p.dim() > 3 else (p.shape[-2], p.shape[-1])
