"""The choice between kernel and formula, given as a reason, and what a kernel is handed.

A refusal is not an error: the plain PyTorch formula runs instead, and is the definition. What is an error is one on
both paths, and is found before one is chosen. The checks are few and cheap, since on eight rows of 768 torch's own
layer norm takes five microseconds in all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext

from normkit import kernels
from normkit.kernels import cuda
from normkit.ops import gpu, paths, trial
from normkit.ops import node as built

__all__ = [
    "CODES",
    "code",
    "dense",
    "derived_again",
    "differentiate",
    "library",
    "needs_grad",
    "on_gpu",
    "own_stands_in",
    "pack",
    "refusal",
    "runs_formula",
    "storage_order",
]

# Element types as the C code numbers them; 0 is an absent tensor.
CODES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3, torch.float64: 4}

_PLAIN = frozenset((Tensor, torch.nn.Parameter))
_STRIDED = torch.strided
_is_tracing = torch._C._is_tracing
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch_active = torch._C._are_functorch_transforms_active
_is_batched = torch._C._functorch.is_legacy_batchedtensor
_library: kernels.Library | None = None
_absent: str | None = "not looked for yet"

# `row` of kernels/python.c, once the library is loaded: the whole of a small call in C, or None, for the ordinary way.
short_row: Callable[..., Tensor | None] | None = None
# `kernels/node.cpp`, which does so with gradients as well, where `build_node` has built it; then it is asked first.
node: Any = None


def library(x: Tensor) -> Any:
    """The kernels for a tensor, C's or Triton's; to be asked for only after `refusal` has said None."""
    if not x.is_cpu or _is_interpreted():
        return cuda.library(x.is_cpu)
    if _library is None:
        raise RuntimeError(f"the C kernels are not there: {_absent}")
    return _library


def refusal(x: Tensor, *others: Tensor | None) -> str | None:
    """None if the kernels for these tensors' device take them, else why the formula runs, in a user's words.

    >>> isinstance(refusal(torch.ones(2, 3, dtype=torch.complex64)), str)
    True
    """
    if torch.compiler.is_compiling():
        return "torch.compile is tracing"
    if x.is_cuda or _is_interpreted():
        return _situation() or gpu.refusal(x, *others)
    if _absent is not None and (reason := _look()) is not None:
        return reason
    if _dispatch_modes() or _functorch_active() or _is_tracing() or _function_modes() or _is_dual():
        reason = _situation()
        if reason is not None:
            return reason
    for tensor in others:
        if tensor is not None and (type(tensor) not in _PLAIN or not tensor.is_cpu or tensor.dtype not in CODES):
            return _tensor(tensor)
    if type(x) in _PLAIN and x.is_cpu and x.dtype in CODES and x.layout is _STRIDED:
        lazy = x.is_neg() or x._is_zerotensor() or _is_batched(x)
        return None if x.numel() and not lazy else _tensor(x)
    return _tensor(x)


def runs_formula(
    op: str,
    but: str | Callable[[], str | None] | None,
    *tensors: Tensor | None,
    kind: Any = None,
    own: Callable[[], Any] | None = None,
) -> bool:
    """Whether the formula runs: what an op asks, once a call; :mod:`normkit.ops.paths` records it.

    but: what else this op has against its kernel, for this call; a function of sizes, which tracing must not ask.
    kind: what the op computes beside what its tensors tell, or a function that says it: by it a GPU's kernel is tried
    out before its first use. A backward pass, which was tried out with its forward pass, has none.
    own: what computes the same by torch's own function where that may stand in for a kernel, or gives None.
    """
    why = refusal(*tensors) or (but() if callable(but) else but)  # type: ignore[arg-type]
    x: Tensor = tensors[0]  # type: ignore[assignment]
    if why is not None:
        if torch.compiler.is_compiling():
            return True
        _on_one_device(op, x, *tensors[1:])
    watch = paths.watching()
    forced = watch is not None and watch.forced
    if why is None and kind is not None and not forced and (x.is_cuda or _is_interpreted()):
        why = trial.verdict(op, kind() if callable(kind) else kind, tensors)
    if watch is not None:
        why = watch.decide(op, why, lambda: _name(x), own)
    return why is not None


def on_gpu(x: Tensor) -> bool:
    """Whether a tensor's kernels are those of GPUs."""
    return x.is_cuda or _is_interpreted()


def own_stands_in(x: Tensor, *same: Tensor | None, kind: torch.dtype | None = None) -> bool:
    """Whether torch's own function may take the place of a kernel: on a GPU without Triton, or too old for it.

    same: what must be there in the type of x, or in `kind`, as torch's own has it.
    """
    if torch.compiler.is_compiling() or not gpu.lacking(x):
        return False
    watch = paths.watching()
    kind = x.dtype if kind is None else kind
    return not (watch is not None and watch.forced) and all(t is None or t.dtype == kind for t in same)


def _is_interpreted() -> bool:
    """Whether CPU tensors go to the GPU's kernels."""
    watch = paths.watching()
    return watch is not None and watch.interpreted


def _name(x: Tensor) -> str:
    """What the kernel is called that takes a tensor."""
    kernel = library(x)
    return f"C kernel, {kernel.isa().decode()}" if isinstance(kernel, kernels.Library) else kernel.name


def _on_one_device(op: str, x: Tensor, *others: Tensor | None) -> None:
    """An error where the formula would meet tensors of two devices, such as a module that is still on meta."""
    for other in others:
        if other is not None and other.dim() and other.device != x.device:
            raise ValueError(f"{op}: x is on {x.device}, but a tensor that it meets is on {other.device}")


def derived_again() -> str | None:
    """What a backward pass has against its kernel: that its own derivative may be asked for."""
    return "its derivative may be wanted too" if torch.is_grad_enabled() else None


def _look() -> str | None:
    """Loads the library, once."""
    global _library, _absent, short_row, node
    _library = kernels.cpu()
    _absent = None if _library is not None else kernels.status().reason
    if _library is not None and _library.python is not None:
        with suppress(AttributeError, ImportError):  # a torch of before its table for DLPack
            _library.python.prepare(Tensor, torch.nn.Parameter, torch.empty_like, _UNUSUAL)
            short_row = _library.python.row
    if _library is not None:
        node = load_node()
    return _absent


def load_node() -> Any:
    """Autograd's node in C++, where it was built; it asks torch itself what is around a call, but who watches."""
    with suppress(ImportError, OSError):  # a library of another version; a folder that nobody may read
        file = built.usable()
        return None if file is None or _library is None else _library.node(file, (paths.watching,))


def build_node() -> str | None:
    """Build the node and take it from now on; return why it cannot be, or None."""
    global node
    refusal(torch.ones(1))  # the first look loads the library
    if node is None:
        why = built.build()
        if why is not None:
            return why
        node = load_node()
    return None if node is not None else "what was built cannot be loaded"


def _is_dual() -> bool:
    return forward_ad._current_level >= 0


# What keeps a call from the short way; each says something true where the ordinary way, which asks again, is to decide.
_UNUSUAL = (
    _function_modes,  # first: a mode would see that the others are asked
    torch.is_grad_enabled,
    _dispatch_modes,
    _functorch_active,
    _is_tracing,
    _is_dual,
    paths.watching,
)


def _situation() -> str | None:
    """Whatever is around the call and must see torch operations, which a kernel would hide from it."""
    if _dispatch_modes():
        return "a TorchDispatchMode is active"
    if _functorch_active():
        return "a torch.func transform is active"
    if _is_tracing():
        return "torch.jit is tracing"
    if _is_dual():
        return "forward-mode differentiation is active"
    if _function_modes() and not _only_onlookers():
        return "a TorchFunctionMode is active"
    return None


def _only_onlookers() -> bool:
    """`torch.set_default_device` is a function mode too, and no reason to refuse; nor is one that only looks on."""
    modes = map(torch._C._get_function_stack_at, range(_function_modes()))
    return all(isinstance(mode, DeviceContext) or getattr(mode, "looks_on", False) for mode in modes)


def _tensor(x: Tensor) -> str | None:
    if type(x) not in _PLAIN:
        return f"{type(x).__name__} is a tensor subclass"
    if not x.is_cpu:
        return f"no CPU kernel for a tensor on {x.device.type}"
    if x.dtype not in CODES:
        return f"no CPU kernel for {x.dtype}"
    if x.layout is not torch.strided:
        return f"no CPU kernel for the layout {x.layout}"
    if x.is_neg() or x._is_zerotensor():
        return "a lazily negated or zero tensor has no numbers in memory"
    if _is_batched(x):
        return "gradients are taken in a batch"
    return None if x.numel() else "the input is empty"


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd is to hear of a call on these."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


def dense(x: Tensor, like: Tensor) -> Tensor:
    """`x` laid out exactly as `like`, copied only if it is not, or its numbers are to be negated as they are read."""
    if x.stride() == like.stride() and not x.is_neg():
        return x
    return torch.empty_like(like, dtype=x.dtype).copy_(x)


def storage_order(x: Tensor) -> list[int] | None:
    """The axes in the order of memory if `x` fills its memory without gaps or overlaps, else None."""
    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    return order if x.permute(order).is_contiguous() else None


def differentiate(formula, tensors, rest, grad, wanted) -> tuple:
    """Gradients of `formula(*tensors, *rest)` as autograd makes them, themselves differentiable where grad mode is on.

    The tensors are taken as views: where one of them depends on another, the path between them is not this function's.
    """
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        views = [t if t is None else t.view_as(t) if create else t.detach().requires_grad_() for t in tensors]
        inputs = [view for view, want in zip(views, wanted, strict=False) if want and view is not None]
        grads = iter(torch.autograd.grad(formula(*views, *rest), inputs, grad, create_graph=create, allow_unused=True))
    return tuple(next(grads) if want and t is not None else None for t, want in zip(tensors, wanted, strict=False))


def pack(x: Tensor | None) -> Tensor | None:
    """A gain or shift as it is read by the kernels, without gaps or a lazy sign; copied only if it has one."""
    return x if x is None or (x.is_contiguous() and not x.is_neg()) else x.contiguous().resolve_neg()


def code(x: Tensor | None) -> int:
    """A tensor's element type as the C code numbers it."""
    return 0 if x is None else CODES[x.dtype]
