"""What all optimizers share: the loop over groups, the checks, and a state that is saved as torch's own are."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import Card
from normkit.gradient._sharded import is_any, is_sharded, local, placed_as, together
from normkit.statistics import accurate

MOMENTS = frozenset({"step", "exp_avg", "exp_avg_sq"})  # what Adam keeps of a parameter
LATER = frozenset({"maximize", "foreach", "differentiable"})  # settings that torch's older groups lack as well
# what a state holds in the shape of its parameter: torch's step in one pass would write past the end of a smaller one
LIKE_PARAMETERS = frozenset({"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "momentum"})
Groups = Iterable[Any]  # parameters, or groups of them as torch's optimizers take them


class Optimizer(torch.optim.Optimizer):
    """A real ``torch.optim.Optimizer``; a method says what one group does with its gradients (:meth:`update`).

    Parameters without a gradient are left alone. Complex parameters, sparse gradients, with :attr:`finite` gradients
    that hold a NaN or an infinity, and with :attr:`squares` those that are too long, are refused before anything moves;
    a loss scaler, which leaves such steps out, comes before. A gradient of another type than its parameter's is cast to
    that.

    A state that is loaded must be of the same optimizer in the same dialect (:meth:`dialect`), and one of another is
    refused before anything changes. Rates, decay and momenta are those of the state. A state that lacks ``maximize`` or
    ``foreach`` keeps those that this optimizer was built with.

    Every optimizer takes ``maximize``, and ``foreach``: whether the parameters of a group are worked on together; None
    lets the device decide. The numbers are the same to the last rounding.

    Args:
        params: parameters, or groups of them as torch takes them.
        **defaults: what a group has that does not say otherwise: the options of the method.
    """

    card: ClassVar[Card]
    finite = True  # whether each step looks for NaN and infinities first, which waits for an accelerator
    squares = 0.0  # the most by which a gradient's length is multiplied before it is squared; 0: overflow does no harm
    state_names: ClassVar[frozenset[str] | None] = None  # what a parameter's state may hold; None: not checked
    exact: frozenset[str] = frozenset()  # of those, what stays in float32 where the parameter is of half precision
    free: ClassVar[frozenset[str]] = frozenset({"foreach", "differentiable", "capturable", "fused"})  # for one result
    later: ClassVar[frozenset[str]] = frozenset()  # settings that groups saved by earlier versions do not have

    def __init__(self, params: Groups, **defaults: Any):
        super().__init__(params, {"maximize": False, "foreach": None, **defaults})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, its own settings checked as the others' are."""
        group = {key: check.plain(value) for key, value in param_group.items()}
        group["params"] = listed(group["params"])
        if not group["params"]:
            raise ValueError(f"{type(self).__name__}: params has a group without parameters")
        for p in tensors(group["params"]):
            if not isinstance(p, Tensor):
                raise TypeError(f"{type(self).__name__}: params must be tensors, not {type(p).__name__}")
        if group.get("weight_decay") and not self._takes_decay(group):
            raise ValueError(
                f"{type(self).__name__}: a group of params has weight_decay={group['weight_decay']}, which is not "
                f"among its settings: {', '.join(self.defaults)}"
            )
        group = self._own(group)
        self.check({**self.defaults, **group})
        super().add_param_group(group)

    def _takes_decay(self, group: dict[str, Any]) -> bool:
        return "weight_decay" in self.defaults

    def _own(self, group: dict[str, Any]) -> dict[str, Any]:
        """A group without what all groups share, which it may repeat, as those of torch's ZeRO do."""
        whole = inspect.signature(type(self).__init__).parameters.keys() - self.defaults.keys() - {"params"}
        others = [name for name in whole & group.keys() if group[name] != getattr(self, name, whole)]
        if others:
            names = ", ".join(sorted(others))
            raise ValueError(f"{type(self).__name__}: a group of params has {names}, which all groups must share")
        return {name: value for name, value in group.items() if name not in whole}

    def check(self, group: dict[str, Any]) -> None:
        """Require sound settings of a group; a method adds its own."""
        check.number(self, "lr", plain_rate(self, group["lr"]), 0.0)
        for name in ("weight_decay", "eps"):
            if name in group:
                check.eps(self, group[name], name)
        betas = group.get("betas", (0.0, 0.0))
        if not isinstance(betas, Sequence) or len(betas) != 2:
            raise ValueError(f"{type(self).__name__}: betas must be two numbers, not {betas!r}")
        for beta in betas:
            if not 0.0 <= check.number(self, "betas", beta) < 1.0:
                raise ValueError(f"{type(self).__name__}: betas must lie in [0, 1), not {tuple(group['betas'])}")
        if group.get("momentum") is not None:
            below_one(self, "momentum", group["momentum"])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state if "defaults" in state else self.read(state))  # a copy brings its defaults

    def read(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a file in this optimizer's words; that of another is refused, and nothing has changed."""
        groups = list(map(self.complete, state["param_groups"], self.param_groups))
        self._refuse_dialect(groups)
        for group in groups:
            self.check({**self.defaults, **group})
        for p, own in state["state"].items():
            self._fit(p, own)
        return {"state": state["state"], "param_groups": groups}

    def complete(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        """Return a group that is loaded, with settings that may be missing as this optimizer's ``own`` group has them.

        Groups of another optimizer lack settings that this one needs, and are refused.
        """
        group = {**{name: own[name] for name in (LATER | self.later) & own.keys()}, **group}
        missing = ({"use_muon", *self.defaults} & own.keys()) - group.keys()
        if missing:
            raise ValueError(
                f"{type(self).__name__}: the state that is loaded is of another optimizer: "
                f"its groups have no {', '.join(sorted(missing))}"
            )
        return group

    def dialect(self, group: dict[str, Any]) -> dict[str, Any]:
        """The settings of a group that say what a step is, and that no schedule moves.

        They are words, flags and lists, and the numbers of Muon's polynomial; other numbers are rates.

        >>> optimizer = Optimizer([torch.ones(2)], lr=0.1, betas=(0.9, 0.99), ns_steps=5, nesterov=True)
        >>> optimizer.dialect(optimizer.param_groups[0])
        {'maximize': False, 'ns_steps': 5, 'nesterov': True}
        """
        names = [name for name in ("use_muon", *self.defaults) if name in group and name not in self.free]
        rates = {name for name in names if _is_rate(group[name]) or isinstance(self.defaults.get(name), tuple)}
        return {name: plain_word(group[name]) for name in names if name.startswith("ns_") or name not in rates}

    def _refuse_dialect(self, groups: Sequence[dict[str, Any]]) -> None:
        for place, (group, own) in enumerate(zip(groups, self.param_groups, strict=True)):
            saved, present = self.dialect(group), self.dialect(own)
            names = [name for name in own if saved.get(name) != present.get(name)]
            if names:
                theirs, ours = (", ".join(f"{name}={g[name]!r}" for name in names) for g in (group, own))
                raise ValueError(
                    f"{type(self).__name__}: the state that is loaded is of another dialect: its group {place} has "
                    f"{theirs}, and this optimizer {ours}; nothing has changed. Build the optimizer with the words "
                    "of the state, or write those of this optimizer into the state's param_groups"
                )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch's optimizers do; what is kept in float32 stays so, for the same bits as before."""
        adapted: list[dict[str, Any]] = []  # by hooks of users, which come before
        handle = self.register_load_state_dict_pre_hook(lambda _, state: adapted.append(state))
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        (state_dict,) = adapted
        places = (place for group in state_dict["param_groups"] for place in group["params"])
        own = (p for group in self.param_groups for p in group["params"])
        for place, p in zip(places, own, strict=True):
            saved = state_dict["state"].get(place, {})
            for name in self.exact & saved.keys():
                self.state[p][name] = saved[name].to(p.device, accurate(p.new_empty(0)).dtype, copy=True)

    def _fit(self, p: Any, state: dict) -> None:
        if self.state_names is not None and (strange := state.keys() - self.state_names):
            raise ValueError(
                f"{type(self).__name__}: the state that is loaded is of another optimizer: it has "
                f"{', '.join(sorted(map(str, strange)))}; this one keeps {', '.join(sorted(self.state_names))}"
            )
        if "step" in (self.state_names or ()) and "exp_avg" in state and "step" not in state:
            raise ValueError(f"{type(self).__name__}: the state that is loaded has exp_avg, but no step")
        if isinstance(state.get("step"), int | float):
            state["step"] = step_number(float(state["step"]))
        for name in LIKE_PARAMETERS & set(state):
            if isinstance(p, Tensor) and state[name].shape != p.shape:
                raise ValueError(
                    f"{type(self).__name__}: the state that is loaded has {name} of shape {tuple(state[name].shape)} "
                    f"for a parameter of shape {tuple(p.shape)}"
                )

    def update(self, params: Sequence[Tensor], grads: Sequence[Tensor], states: Sequence[dict], group: dict) -> None:
        """Move the parameters of a group."""
        raise NotImplementedError

    def moved(self, group: dict) -> list[Tensor]:
        """The parameters of a group that a step moves."""
        return [p for p in group["params"] if p.grad is not None]

    def prepare(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        """Do what comes before all groups; the gradients have been checked."""

    def parts(self, params: list[Tensor], group: dict) -> Iterator[list[Tensor]]:
        """Divide the parameters of a group into those that are worked on together."""
        together = group["foreach"] or (group["foreach"] is None and not any(p.is_cpu for p in params))
        yield from [params] if together else ([p] for p in params)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; ``closure`` works out the loss anew, as torch's optimizers have it."""
        loss, work = self._start_step(closure)
        for params, group in work:
            for part in self.parts(params, group) if params else ():
                self._update(part, group)
        return loss

    def _start_step(self, closure: Callable[[], Any] | None) -> tuple[Any, list[tuple[list[Tensor], dict]]]:
        """Work out the loss, and prepare the work of a step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = self.work()
        self.prepare(work)
        return loss, work

    def work(self) -> list[tuple[list[Tensor], dict]]:
        """The parameters of each group that a step moves; what cannot be moved is refused."""
        for group in self.param_groups:
            if isinstance(group["lr"], Tensor) and group["lr"].dim():
                group["lr"] = group["lr"].view(())  # the same memory, so that who holds the tensor still sets the rate
        work = [(self.moved(group), group) for group in self.param_groups]
        for params in (params for params, _ in work if is_sharded(params)):
            for p in params:
                if p.grad is not None:
                    p.grad = placed_as(p.grad, p)
        self._refuse(work)
        return work

    def _update(self, params: list[Tensor], group: dict) -> None:
        grads, states = gradients(params, group), [self.state[p] for p in params]
        if torch.compiler.is_compiling():  # what follows is a graph of its own, which new places of gradients leave be
            torch._dynamo.graph_break()
        self.update(params, grads, states, group)

    def _refuse(self, work: Sequence[tuple[list[Tensor], dict]]) -> None:
        params = [p for own, _ in work for p in own]
        for p in params:
            if p.is_complex() or (p.grad is not None and p.grad.layout is not torch.strided):
                what = "complex parameter" if p.is_complex() else "sparse gradient"
                raise TypeError(
                    f"{type(self).__name__}: params has a {what} of shape {tuple(p.shape)}; dense real ones are wanted"
                )
        if self.finite and not all_finite([p.grad for p in params if p.grad is not None]):
            raise FloatingPointError(f"{type(self).__name__}: {self._where(work)}; nothing has moved")
        if self.squares:
            self._refuse_long([p for p in params if p.grad is not None])

    def _refuse_long(self, params: Sequence[Tensor]) -> None:
        squares = [(together([p.grad]) * self.squares).square() for p in params]  # type: ignore[list-item]
        if not all_finite(squares):
            p = next(p for p, square in zip(params, squares, strict=True) if not square.isfinite())
            raise FloatingPointError(
                f"{type(self).__name__}: the gradient of a parameter of shape {tuple(p.shape)} is so long that its "
                "square is not finite; nothing has moved"
            )

    def _where(self, work: Sequence[tuple[list[Tensor], dict]]) -> str:
        for place, (params, _) in enumerate(work):
            for p in params:
                if p.grad is not None and not all_finite([local(p.grad)]):
                    return f"the gradient of a parameter of shape {tuple(p.shape)}, group {place}, is not finite"
        return "a gradient on another process is not finite"


def settings(scope: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor, given its ``locals()``.

    >>> settings({"self": None, "params": [], "lr": 0.1, "__class__": Optimizer})
    {'params': [], 'lr': 0.1}
    """
    return {name: value for name, value in scope.items() if name not in ("self", "__class__")}


def plain_rate(owner: object, lr: Any) -> Any:
    """The number of a learning rate, which may be a tensor of one entry."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError(f"{type(owner).__name__}: lr must be one number, not a tensor of shape {tuple(lr.shape)}")
    return lr.item() if isinstance(lr, Tensor) else lr


def _is_rate(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | Tensor) and not isinstance(value, bool))


def plain_word(value: Any) -> Any:
    """A setting as it compares: types by their names, lists as tuples.

    >>> plain_word(torch.float32), plain_word([[1, 2.0], [3, 4]])
    ('float32', ((1, 2.0), (3, 4)))
    """
    if isinstance(value, list | tuple):
        return tuple(map(plain_word, value))
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


def below_one(owner: object, name: str, value: Any) -> None:
    """Require a share of an old value: a number in [0, 1)."""
    if not 0.0 <= check.number(owner, name, value) < 1.0:
        raise ValueError(f"{type(owner).__name__}: {name} must lie in [0, 1), not {value}")


def listed(params: Any) -> list[Any]:
    """The parameters of a group: one tensor, several, or several with their names."""
    return [params] if isinstance(params, Tensor) else list(params)


def tensors(params: Any) -> list[Tensor]:
    """The parameters of a group without their names."""
    return [p[1] if isinstance(p, tuple) else p for p in listed(params)]


def gradients(params: Sequence[Tensor], group: dict) -> list[Tensor]:
    """The gradients to go down along, in the types of the parameters; where there is none, zeros."""
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.to(p.dtype) for p in params]
    return list(torch._foreach_neg(grads)) if group["maximize"] else grads


def all_finite(grads: Sequence[Tensor]) -> bool:
    """Whether no gradient has a NaN or an infinity, those that other processes hold a part of included.

    >>> all_finite([torch.ones(2), torch.tensor([3e38, 3e38])]), all_finite([torch.tensor(float("nan"))])
    (True, False)
    """
    if not grads:
        return True
    own = [local(g) for g in grads]
    total = torch.stack([g.sum().to(own[0].device, torch.float32) for g in own])
    wrong = ~total.isfinite().all()
    if not is_sharded(grads) and not wrong:
        return True
    if wrong:  # a sum overflows where its terms do not
        wrong = ~torch.stack([g.isfinite().all().to(own[0].device) for g in own]).all()
    return not is_any(wrong, grads)


BLOCK = 1 << 16  # entries: what a few tensors have of them stays in the cache of a core


def by_rows(*xs: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Blocks of as many rows of each, so small that what is written in between stays in cache on CPU.

    >>> [(a.shape[0], b.shape[0]) for a, b in by_rows(torch.ones(3, BLOCK * torch.get_num_threads()), torch.ones(3, 1))]
    [(1, 1), (1, 1), (1, 1)]
    """
    if not all(x.is_cpu for x in xs) or torch.compiler.is_compiling():
        return [xs]
    rows = max(1, _entries() // max(1, xs[0][:1].numel()))
    return zip(*(x.split(rows) for x in xs), strict=True)


def _entries() -> int:
    return BLOCK * torch.get_num_threads()  # a block for each: torch does not divide less


def entrywise(work: Callable[..., None], *lists: Sequence[Any]) -> None:
    """Call ``work`` with lists of tensors whose entries do not know each other, and of numbers: one a parameter.

    On CPU it is called for blocks of one parameter after the other, so that what it writes in between stays in cache;
    elsewhere once.
    """
    lists = tuple([local(x) if isinstance(x, Tensor) and x.dim() else x for x in xs] for xs in lists)
    if not all(isinstance(x, Tensor) and x.is_cpu for x in lists[0]) or torch.compiler.is_compiling():
        return work(*lists)
    for own in zip(*lists, strict=True):
        for block in _blocks(own):
            work(*([x] for x in block))


def _blocks(own: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    entries = _entries()
    if own[0].numel() <= 2 * entries or not all(x.is_contiguous() for x in own if isinstance(x, Tensor) and x.dim()):
        return [tuple(own)]
    cut = (x.view(-1).split(entries) if isinstance(x, Tensor) and x.dim() else itertools.repeat(x) for x in own)
    return zip(*cut, strict=False)


def step_number(steps: float = 0.0) -> Tensor:
    """How many steps were taken, as torch's optimizers keep it."""
    return torch.full((), steps, dtype=torch.float32, device="cpu")


def keep(params: Sequence[Tensor], states: Sequence[dict], *names: str) -> list[list[Tensor]]:
    """The tensors of a state, by name, zeros like the parameters at first; ``step`` is a number."""
    for p, state in zip(params, states, strict=True):
        for name in names:
            if name not in state:
                state[name] = (
                    step_number() if name == "step" else torch.zeros_like(p, memory_format=torch.preserve_format)
                )
    return [[state[name] for state in states] for name in names]


def count(steps: Sequence[Tensor]) -> list[Any]:
    """Count a step, and return the numbers that the steps now have."""
    for step in steps:
        step += 1
    return [step.double() if torch.compiler.is_compiling() else step.item() for step in steps]


def multiply(xs: Sequence[Tensor], factor: Any) -> None:
    """Multiply tensors in place; on CPU torch's own product of lists rounds a number to half precision first.

    >>> p = torch.tensor([1.5], dtype=torch.bfloat16)
    >>> multiply([p], 0.998); p
    tensor([1.5000], dtype=torch.bfloat16)
    """
    if any(x.is_cpu for x in xs):
        for x in xs:
            x.mul_(factor)
    else:
        torch._foreach_mul_(list(xs), factor)


def move_moments(grads: Sequence[Tensor], firsts: list[Tensor], seconds: list[Tensor], betas: tuple) -> None:
    """Move both moments of Adam."""
    torch._foreach_lerp_(firsts, list(grads), 1 - betas[0])
    multiply(seconds, betas[1])
    torch._foreach_addcmul_(seconds, list(grads), list(grads), 1 - betas[1])


def adam(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[dict],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    amsgrad: bool = False,
    change: Callable[[Sequence[Tensor], Sequence[Any]], Sequence[Tensor]] | None = None,
    marks: Sequence[Any] = (),
) -> None:
    """Take a step of AdamW, as ``torch.optim.AdamW`` does.

    ``change`` makes of gradients, or of blocks of them, those that count, each with a mark of its own.
    """
    names = ("step", "exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if amsgrad else []))
    steps, firsts, *squares = keep(params, states, *names)
    numbers = count(steps)
    rates = [-lr / (1 - betas[0] ** t) for t in numbers]
    roots = [(1 - betas[1] ** t) ** 0.5 for t in numbers]
    settings = {"lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": weight_decay}

    def work(params, grads, steps, rates, roots, marks, firsts, seconds, *most):
        grads = grads if change is None else change(grads, marks)
        if _in_one_pass(params, grads, firsts, seconds, *most):
            known = [*most] or [[]]
            torch._fused_adamw_(  # type: ignore[call-overload]
                params, grads, firsts, seconds, *known, steps, **settings, amsgrad=amsgrad, maximize=False
            )
            return
        if weight_decay:
            multiply(params, 1 - lr * weight_decay)
        move_moments(grads, firsts, seconds, betas)
        if most:
            torch._foreach_maximum_(most[0], seconds)
        below = torch._foreach_sqrt(most[0] if most else seconds)
        torch._foreach_div_(below, roots)
        torch._foreach_add_(below, eps)
        add_quotients(params, firsts, below, rates)

    entrywise(work, params, grads, steps, rates, roots, marks or rates, firsts, *squares)


def _in_one_pass(*lists: Sequence[Tensor]) -> bool:
    """Whether torch's own step of AdamW, which reads and writes everything once, takes the tensors, on CPU."""
    exact = all(x.is_cpu and x.dtype in (torch.float32, torch.float64) for x in lists[0])
    return exact and all(x.is_contiguous() for xs in lists for x in xs) and not torch.compiler.is_compiling()


def add_quotients(params: list[Tensor], above: Sequence[Tensor], below: Sequence[Tensor], rates: list[Any]) -> None:
    """Add ``above / below``, times a rate each, to the parameters."""
    if any(isinstance(rate, Tensor) for rate in rates):  # as they are in a graph, and where the learning rate is one
        torch._foreach_add_(params, torch._foreach_mul(torch._foreach_div(list(above), list(below)), rates))
    else:
        torch._foreach_addcdiv_(params, list(above), list(below), rates)
