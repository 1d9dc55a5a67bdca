"""Reading modules inside of torch.compile: hooks that are traced into the graph as an operator of their own.

A compiled model has two graphs: one for the steps that are looked at, with a tap behind each watched module, and one
for all others, which is the graph of a model that is not watched. ``sampling`` chooses between them, as dynamo guards
on it. A tap is opaque to the compiler, so that no graph is broken, and what it reads is computed as in eager mode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from normkit.watching.hook import Hook
from normkit.watching.signals import attention, routing
from normkit.watching.signals.signal import STATE, first_tensor, local_tensors

CALL, ATTENTION, SOFTMAXES = "call", "attention", "softmaxes"
KEY = "_watch_key"  # a number in a tensor, so that modules of one class share a graph, and each has its own number
LATE = (
    "{count} modules inside of torch.compile were compiled before the watch began, and are not seen: begin to watch "
    "first, or call torch.compiler.reset()"
)
Read = Callable[[list[Tensor], list[Tensor], Mapping[str, Tensor], bool], None]

sampling = False  # whether a step is looked at now
readers: dict[tuple[int, str], list[Read]] = {}
tapped: WeakKeyDictionary[nn.Module, dict[str, tuple[int, list[Any]]]] = WeakKeyDictionary()  # how often, and the hooks
numbers = itertools.count(1)


@torch.library.custom_op(
    "normkit::tap",
    mutates_args=("key",),  # it is not changed; a graph leaves out what has no effect
    schema="(Tensor(a!) key, Tensor[] x, Tensor[] y, Tensor[] state, str names, str what, bool data) -> ()",
)
def tap(key: Tensor, x: list[Tensor], y: list[Tensor], state: list[Tensor], names: str, what: str, data: bool) -> None:
    """Hand tensors to whoever reads a module now; in a backward pass, where a forward is done again, nothing is.

    data: no gradient reaches ``x``, which a graph does not tell of its tensors.
    """
    if torch._C._current_graph_task_id() == -1:
        for read in readers.get((int(key), what), ()):
            read(x, y, dict(zip(names.split(), state, strict=True)), data)


@tap.register_fake
def _(key: Tensor, x: list[Tensor], y: list[Tensor], state: list[Tensor], names: str, what: str, data: bool) -> None:
    return None


def begin(reads: Mapping[tuple[int, str], Read]) -> None:
    """From now on a step is looked at."""
    global sampling
    for key, read in reads.items():
        readers.setdefault(key, []).append(read)
    sampling = bool(readers)


def end(reads: Mapping[tuple[int, str], Read]) -> None:
    """The step is over."""
    global sampling
    for key, read in reads.items():
        own = readers.get(key, [])
        if read in own:
            own.remove(read)
        if not own:
            readers.pop(key, None)
    sampling = bool(readers)


@contextmanager
def rest(model: nn.Module) -> Iterator[None]:
    """Have the watches of a model see nothing, as of passes that are none of the training."""
    keys = {key_of(module) for module in model.modules()}
    reads = [(key, read) for key, own in readers.items() if key[0] in keys for read in own]
    acts = [(hook, hook.act) for hook in _hooks_on(model)]
    for key, read in reads:
        end({key: read})
    for hook, _ in acts:
        hook.act = None
    try:
        yield
    finally:
        for hook, act in acts:
            hook.act = act
        for key, read in reads:
            begin({key: read})


def _hooks_on(model: nn.Module) -> Iterator[Hook]:
    """The hooks that watches have on a model; taps, which are a part of graphs, are none of them."""
    for module in model.modules():
        hooks: list[Any] = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
        call = getattr(module, "_compiled_call_impl", None)
        while isinstance(call, Around):
            hooks += [call.before, call.after]
            call = call.inner
        yield from (hook for hook in hooks if isinstance(hook, Hook) and not isinstance(hook, _Tap))


def key_of(module: nn.Module) -> int:
    """Return the number of a module that is tapped, 0 of another: a copy has that of its original in it."""
    return int(getattr(module, KEY)) if module in tapped else 0


def attach(modules: Iterable[nn.Module], attends: Iterable[nn.Module], mixes: Iterable[nn.Module]) -> Iterator[Any]:
    """Put taps on modules that are compiled, and return their handles.

    attends, mixes: whose scores are heard, of torch's functions that are looked up by ``F.`` or ``torch.``.
    """
    for what, own in ((CALL, modules), (ATTENTION, attends), (SOFTMAXES, mixes)):
        yield from (_Tapped(module, what) for module in own)


class _Tap(Hook):
    """A hook that is a part of a graph."""


class _Tapped:
    """The handle of a module's number and hooks, which watches share: the last one takes them off."""

    def __init__(self, module: nn.Module, what: str):
        self.module, self.what = module, what
        own = tapped.setdefault(module, {})
        if not own:
            setattr(module, KEY, torch.tensor(next(numbers)))
        count, hooks = own.get(what) or (0, _put_hooks(module, what))
        own[what] = count + 1, hooks

    def remove(self) -> None:
        own = tapped[self.module]
        count, hooks = own.pop(self.what)
        if count > 1:
            own[self.what] = count - 1, hooks
        else:
            for hook in hooks:
                hook.remove()
        if not own:
            del tapped[self.module], self.module.__dict__[KEY]


def _put_hooks(module: nn.Module, what: str) -> list[Any]:
    if what == CALL:
        return [module.register_forward_hook(_Tap(_tap_call), with_kwargs=True)]
    enter, leave = {ATTENTION: (_enter_attention, _leave_attention), SOFTMAXES: (_enter_mixture, _leave_mixture)}[what]
    return [module.register_forward_pre_hook(_Tap(enter)), module.register_forward_hook(_Tap(leave), always_call=True)]


def _looks(module: nn.Module) -> bool:
    return sampling and (module.training or torch.is_grad_enabled())


def _tap_call(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
    if _looks(module):
        x = first_tensor(args)
        x = first_tensor(kwargs) if x is None else x
        state = {name: value for name in STATE if isinstance(value := getattr(module, name, None), Tensor)}
        with torch.no_grad():
            tap(
                getattr(module, KEY),
                [] if x is None else [x.detach()],
                [y.detach() for y in local_tensors(output)],
                [value.detach() for value in state.values()],
                " ".join(state),
                CALL,
                x is None or not x.requires_grad,
            )


_heard: list[Tensor] = []  # the numbers of the modules that are heard, the innermost last
_PLAIN: dict[str, Callable[..., Any]] = {
    "attend": F.scaled_dot_product_attention,
    "softmax": F.softmax,
    "own": torch.softmax,
}


def _hear(x: Tensor | None, what: str) -> None:
    if x is not None:
        tap(_heard[-1], [x], [], [], "", what, False)


def _attend(*args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        _hear(attention.scores(*args, **kwargs), ATTENTION)
    return _PLAIN["attend"](*args, **kwargs)


def _attend_softmax(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        _hear(attention.scores_of_softmax(input), ATTENTION)
    return _PLAIN["softmax"](input, *args, **kwargs)


def _mix_softmax(input: Tensor, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        _hear(routing.scores_of_softmax(input), SOFTMAXES)
    return _PLAIN["softmax"](input, *args, **kwargs)


def _enter_attention(module: nn.Module, args: Any) -> None:
    if _looks(module):
        _heard.append(getattr(module, KEY))
        F.scaled_dot_product_attention = _attend
        F.softmax = torch.softmax = _attend_softmax


def _leave_attention(module: nn.Module, args: Any, output: Any) -> None:
    if _looks(module):
        _heard.pop()
        F.scaled_dot_product_attention = _PLAIN["attend"]
        F.softmax, torch.softmax = _PLAIN["softmax"], _PLAIN["own"]


def _enter_mixture(module: nn.Module, args: Any) -> None:
    if _looks(module):
        _heard.append(getattr(module, KEY))
        F.softmax = torch.softmax = _mix_softmax


def _leave_mixture(module: nn.Module, args: Any, output: Any) -> None:
    if _looks(module):
        _heard.pop()
        F.softmax, torch.softmax = _PLAIN["softmax"], _PLAIN["own"]


class Around:
    """The handle of two functions that are called before and after a model that was compiled in place.

    Hooks of such a model are a part of its graph; these are not.
    """

    def __init__(self, model: nn.Module, before: Hook | None, after: Hook | None):
        self.model, self.inner = model, model._compiled_call_impl
        self.before, self.after = before, after
        model._compiled_call_impl = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled model."""
        if self.before is not None:
            self.before(self.model, args)
        output = self.inner(*args, **kwargs)  # type: ignore[misc]
        if self.after is not None:
            self.after(self.model, args, kwargs, output)
        return output

    def remove(self) -> None:
        """Take the functions off, and leave those that were put around since."""
        outer: Any = self.model._compiled_call_impl
        if outer is self:
            self.model._compiled_call_impl = self.inner
        while isinstance(outer, Around) and outer is not self:
            if outer.inner is self:
                outer.inner = self.inner
            outer = outer.inner


def hook_after(model: nn.Module, act: Callable[..., Any]) -> Any:
    """Have ``act(model, args, kwargs, output)`` called after a model, however it is compiled; returns the handle."""
    if getattr(model, "_compiled_call_impl", None) is not None:
        return Around(model, None, Hook(act))
    return model.register_forward_hook(Hook(act), with_kwargs=True)


def hook_before(model: nn.Module, act: Callable[..., Any]) -> Any:
    """Have ``act(model, args)`` called before a model, however it is compiled; returns the handle."""
    if getattr(model, "_compiled_call_impl", None) is not None:
        return Around(model, Hook(act), None)
    return model.register_forward_pre_hook(Hook(act))
