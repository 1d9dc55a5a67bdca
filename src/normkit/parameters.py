"""What each parameter of a model is: a norm's gain, a bias, a matrix, an embedding, a head; one rule for all who ask.

It is read off the modules that hold a parameter, what they are and what they do, and not off names. Who treats
parameters apart, an optimizer of matrices, weight decay, a rule for widths, asks :func:`roles`.
"""

from __future__ import annotations

import contextlib
import copy
import fnmatch
import itertools
import math
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import batchnorm, conv, instancenorm
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._pytree import tree_map_only

from normkit.columns import aligned
from normkit.threads import processor_by_default, uncompiled

# roles, and what they mean
ROLES = {
    "matrix": "a matrix inside the model",
    "conv": "a kernel",
    "experts": "a stack of matrices, one an expert",
    "lora": "one of two thin matrices that are trained beside a large one, which rests",
    "embedding": "rows that are looked up or added: tokens, positions",
    "head": "the matrix that makes scores of the last features",
    "gain": "what a norm multiplies by",
    "bias": "a shift",
    "vector": "other numbers in a row: a scale, a token, a gate",
}
MATRICES = ("matrix", "conv", "experts", "lora")  # both axes of which are features
DECAYING = (*MATRICES, "embedding", "head")

BATCH_NORMS = (batchnorm._BatchNorm, instancenorm._InstanceNorm)  # which also take off what a bias adds
NORMS = (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
WEIGHTS = ("weight", "weight_v", "weight_orig")  # as torch's older weight and spectral norms call it, too
Owner = tuple[nn.Module, str]


@dataclass(frozen=True)
class Row:
    """A parameter and what it is: the first name that it has, its role, and why.

    ``scale_invariant``: multiplying it changes nothing that the model returns; None where that was not found out.
    ``depthwise``: it is a kernel a channel, whose rows do not meet.
    """

    name: str
    parameter: nn.Parameter
    role: str
    why: str
    scale_invariant: bool | None = None
    depthwise: bool = False

    @property
    def decays(self) -> bool:
        """Whether weight decay is for it."""
        return self.role in DECAYING


class Roles(list[Row]):
    """The rows of a model, which print as a table."""

    def __str__(self) -> str:
        """Write the table."""
        known = {True: "yes", False: "no", None: "?"}
        head = ("parameter", "shape", "role", "scale-invariant", "decays", "why")
        rows = [
            (r.name, "x".join(map(str, r.parameter.shape)), r.role, known[r.scale_invariant], known[r.decays], r.why)
            for r in self
        ]
        return "\n".join(aligned([head, *rows]))

    __repr__ = __str__

    def of(self, *roles: str) -> list[nn.Parameter]:
        """The parameters of some roles."""
        return [row.parameter for row in self if row.role in roles]


def roles(
    model: nn.Module,
    *inputs: Any,
    override: Mapping[Any, str] | None = None,
) -> Roles:
    """Tell what each trained parameter of a model is.

    With ``inputs`` the model runs once, in the mode that it is in: then the head is what makes its output, and
    scale-invariant weights are those along which gradients of random sums of the output have no share. Without, the
    head is the last matrix that is not part of a repeated layer, nor of a list's only one. A matrix that a module holds
    itself, beside layers, counts as an embedding, as positions do, unless it is one of a thin pair; ``override`` can
    say otherwise.

    Args:
        model: any model.
        inputs: what it is called with.
        override: roles that a user knows better, by a parameter's name, which may be a pattern (``"blocks.*.gate"``),
            by a parameter, or by the class of a module that holds parameters.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 9))
    >>> [row.role for row in roles(model)]
    ['embedding', 'matrix', 'bias', 'gain', 'bias', 'head', 'bias']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"roles: model must be a module, not {type(model).__name__}")
    owners = holders(model)
    names = {name: p for name, p in model.named_parameters() if p.requires_grad}
    norms = {id(module) for module in model.modules() if is_norm(module)}
    rows = [
        Row(name, p, *_role(p, owners[id(p)], norms), depthwise=_depthwise(owners[id(p)])) for name, p in names.items()
    ]
    rows = _with_lengths(_with_lora(rows, model), model)
    ran = _ran(model, inputs, [row.parameter for row in rows]) if inputs else None
    rows = _with_head(rows, model, ran)
    normed = _before_norms(model)
    rows = [replace(row, scale_invariant=_invariant(row, owners[id(row.parameter)], normed, ran)) for row in rows]
    return Roles(_overridden(rows, owners, override or {}))


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the matrices inside a model: trained 2-D weights, but for embeddings' and the head's.

    What looks rows up, or turns the last features into scores, is a matrix by its shape alone: its rows belong to
    tokens and classes, and an optimizer that makes all directions of a step alike, such as Muon, is not for it.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 9))
    >>> [tuple(matrix.shape) for matrix in hidden_matrices(model)]
    [(8, 4)]
    """
    return [p for p in roles(model).of(*MATRICES) if p.dim() == 2]


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a norm: torch's, one of the catalogue, or any whose output does not grow with its input.

    >>> is_norm(nn.RMSNorm(4)), is_norm(nn.Linear(4, 4)), is_norm(nn.PReLU(4))
    (True, False, False)
    """
    kind = getattr(getattr(type(module), "card", None), "kind", None)
    if isinstance(module, NORMS) or getattr(kind, "name", None) == "norm":
        return True
    own = list(module.parameters())
    narrow = own and all(p.dim() == 1 and p.shape == own[0].shape for p in own)
    return bool(narrow) and _forgets_scale(module, len(own[0]))


def _forgets_scale(module: nn.Module, width: int) -> bool:
    """Try it: on random vectors, with its parameters as if just built, whole and without hooks where it is sharded."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), processor_by_default(), uncompiled():
            twin = _just_built(module).float().cpu().eval()
            torch.manual_seed(0)
            x = torch.randn(3, 5, width)
            one, other = twin(x), twin(8 * x)
        return one.shape == x.shape and bool(one.abs().max() > 0) and torch.allclose(one, other, rtol=1e-2)
    except Exception:  # whatever it wants, vectors alone it does not take
        return False


def _just_built(module: nn.Module) -> nn.Module:
    """A copy with ones for gains and zeros for biases, as plain tensors, which no hook of a plan or of FSDP calls."""
    memo = {
        id(p): nn.Parameter(torch.full(p.shape, 0.0 if name.endswith("bias") else 1.0))
        for name, p in module.named_parameters()
    }
    twin = copy.deepcopy(module, memo)
    for part in twin.modules():
        part._forward_pre_hooks.clear()
        part._forward_hooks.clear()
    return twin


def computed_weights(model: nn.Module) -> dict[int, Tensor]:
    """Return copies of the weights that torch's older norms of weights compute anew at each call, by identity.

    As the memo of ``copy.deepcopy``, which does not take them as they are: they have a history.

    >>> layer = torch.nn.utils.spectral_norm(nn.Linear(2, 2))
    >>> _ = layer(torch.ones(1, 2))
    >>> copy.deepcopy(layer, computed_weights(layer)).weight.requires_grad
    False
    """
    hooks = [(part, hook) for part in model.modules() for hook in part._forward_pre_hooks.values()]
    weights = [getattr(part, hook.name) for part, hook in hooks if isinstance(hook, WeightNorm | SpectralNorm)]
    return {id(weight): weight.detach().clone() for weight in weights}


@torch.inference_mode(False)
def copy_model(model: nn.Module) -> nn.Module:
    """Copy a model, whatever torch's older norms of weights have computed in it; evaluation stays evaluation.

    A part that is built anew where it is copied, such as a layer of einops, would be in train mode. The copy can be
    trained, also where it is made within inference mode.
    """
    resting = {name for name, part in model.named_modules() if not getattr(part, "training", True)}
    twin = copy.deepcopy(model, computed_weights(model))
    for name, part in twin.named_modules():
        if name in resting and part.training:
            part.training = False
    return twin


def holders(model: nn.Module) -> dict[int, list[Owner]]:
    """Return who holds each parameter, by its identity: all where it is tied; of a parametrized weight, the layer."""
    owners: dict[int, list[Owner]] = {}
    layers = {
        id(own): (module, name)
        for module in model.modules()
        for name, own in getattr(module, "parametrizations", {}).items()
    }
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is not None:
                owner = layers.get(id(module), (module, name))
                owners.setdefault(id(p), []).append(owner)
    return owners


def _role(p: nn.Parameter, owners: Sequence[Owner], norms: set[int]) -> tuple[str, str]:
    """The role that a parameter has for those that hold it, and why."""
    candidates = [_role_for(p, module, name, norms) for module, name in owners]
    kinds = " and ".join(dict.fromkeys(type(module).__name__ for module, _ in owners))
    first = next((role for role in candidates if role == "embedding"), candidates[0])
    return first, f"of {kinds}" + (", tied" if len(owners) > 1 else "")


def _role_for(p: nn.Parameter, module: nn.Module, name: str, norms: set[int]) -> str:
    if _is_bias(p, name):
        return "bias"
    if id(module) in norms:
        return "gain"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    if _axes(p) < 2:
        return "vector"
    if isinstance(module, conv._ConvNd):
        return "conv"
    holds_layers = any(True for child in module.children() if any(True for _ in child.parameters()))
    if isinstance(module, nn.Linear | nn.Bilinear | nn.MultiheadAttention) or not holds_layers:
        return {2: "matrix", 3: "experts"}.get(_axes(p), "conv")
    return "experts" if p.dim() == 3 and min(p.shape) > 1 else "embedding"


def _is_bias(p: Tensor, name: str) -> bool:
    return name == "bias" or (name.endswith("bias") and _axes(p) < 2)


def _depthwise(owners: Sequence[Owner]) -> bool:
    """Whether a parameter is the weight of convolutions that each have one channel."""
    return any(
        isinstance(module, conv._ConvNd) and name == "weight" and 1 < module.groups == module.in_channels
        for module, name in owners
    )


def _axes(p: Tensor) -> int:
    """How many axes are longer than 1; of a matrix with one row or column, two."""
    return p.dim() if p.dim() <= 2 else sum(size > 1 for size in p.shape)


def _with_lora(rows: list[Row], model: nn.Module) -> list[Row]:
    """Find pairs of thin trained matrices beside a large one that rests: (r, in) and (out, r) beside (out, in)."""
    thin: set[int] = set()
    trained = {id(row.parameter): row.role for row in rows}
    for module in model.modules():
        own = [p for p in module.parameters() if p.dim() == 2]
        resting = [p for p in own if not p.requires_grad]
        if len(resting) == 1:
            held = [p for p in module._parameters.values() if p is not None and p.dim() == 2]
            for candidates, role in ((own, "matrix"), (held, "embedding")):
                thin |= _pair([p for p in candidates if trained.get(id(p)) == role], resting[0].shape)
    return [
        replace(row, role="lora", why="thin, beside a matrix that rests") if id(row.parameter) in thin else row
        for row in rows
    ]


def _with_lengths(rows: list[Row], model: nn.Module) -> list[Row]:
    """Call the lengths that torch's weight norms keep beside directions, a column for a linear, vectors."""
    lengths: set[int] = set()
    for module in model.modules():
        older = [hook.name for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm)]
        lengths |= {id(module._parameters[f"{name}_g"]) for name in older}
        if isinstance(module, ParametrizationList) and isinstance(module[0], _WeightNorm):
            lengths.add(id(module.original0))
    return [
        replace(row, role="vector", why="the lengths of a weight norm") if id(row.parameter) in lengths else row
        for row in rows
    ]


def _pair(matrices: Sequence[Tensor], shape: torch.Size) -> set[int]:
    """Those whose product, in either order, has a shape, or that of the transposed."""
    ids = set()
    for a, b in itertools.permutations(matrices, 2):
        rank = a.shape[1]
        if rank == b.shape[0] and rank < min(shape) and sorted([a.shape[0], b.shape[1]]) == sorted(shape):
            ids |= {id(a), id(b)}
    return ids


def _with_head(rows: list[Row], model: nn.Module, ran: Ran | None) -> list[Row]:
    head = ran.head if ran is not None and ran.head is not None else _last(model)
    fits = {"matrix", "conv"}
    return [
        replace(row, role="head", why=f"{row.why}, the last") if row.parameter is head and row.role in fits else row
        for row in rows
    ]


def _last(model: nn.Module) -> nn.Parameter | None:
    """The last matrix, unless it is part of a layer that comes several times, or shared with an embedding."""
    candidate = None
    for path, module in model.named_modules():
        named = (own_parameter(module, name) for name in WEIGHTS)
        weight = next((own for own in named if own is not None), None)
        if weight is None and "weight" in getattr(module, "parametrizations", {}):
            weight = max(module.parametrizations["weight"].parameters(), key=Tensor.numel)
        if weight is not None and weight.dim() == 2 and weight.requires_grad and not isinstance(module, nn.Embedding):
            candidate = path, weight
    if candidate is None or _is_repeated(model, candidate[0]):
        return None
    return candidate[1]


def is_scripted(module: nn.Module) -> bool:
    """Whether ``torch.jit`` made it, from a module whose code it hides; it takes no hooks."""
    return isinstance(module, torch.jit.ScriptModule)


def hooks_on(module: nn.Module) -> Iterator[Any]:
    """The hooks that a module has, of all kinds."""
    return itertools.chain(*((getattr(module, hooks, None) or {}).values() for hooks in HOOKS))


def is_hooked(module: nn.Module) -> bool:
    """Whether a module has hooks that do something; those that a watch has left on a copy do not."""
    return any(not getattr(hook, "idle", False) for hook in hooks_on(module))


def has_own_forward(module: nn.Module) -> bool:
    """Whether it computes by what was put on the instance; that may be its class's, where a hook was taken off."""
    own = [vars(module)[name] for name in ("forward", "__call__") if name in vars(module)]
    return any(call != types.MethodType(type(module).forward, module) for call in own)


AROUND_ITS_FORWARD: tuple[tuple[Callable[[nn.Module], bool], str], ...] = (
    (is_hooked, "has hooks, which may change what it computes: take them off before, and put them on afterwards"),
    (
        lambda part: "_hf_hook" in vars(part),
        "has a hook of accelerate's, as device_map puts it: take it off before, by "
        "accelerate.hooks.remove_hook_from_submodules(model), and dispatch the model afterwards",
    ),
    (has_own_forward, "has a forward of its own, put on the instance"),
)  # what a module computes besides what its class does, of which another in its place would know nothing


def require_whole(owner: str, model: Any) -> None:
    """Refuse a model in what has noted its parameters: a replica, which averages no gradient of new ones, or FSDP2.

    After a forward pass in the latter its own parameters are plain tensors for a while.
    """
    sharded: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())  # nobody has one without it
    for name, part in model.named_modules() if isinstance(model, nn.Module) else ():
        whole = name or "the model"
        if isinstance(part, nn.parallel.DistributedDataParallel):
            raise ValueError(
                f"{owner}: {whole} is a DistributedDataParallel, which averages no gradients of new parameters: hand "
                "in its module, and wrap that again"
            )
        if isinstance(part, sharded):
            raise ValueError(f"{owner}: {whole} is sharded by fully_shard: hand in the model as it was before")


def own_parameter(module: nn.Module, name: str) -> nn.Parameter | None:
    """A parameter that a module, one of ``torch.jit`` too, holds itself; None where there is none of that name."""
    return next((parameter for own, parameter in module.named_parameters(recurse=False) if own == name), None)


def _is_repeated(model: nn.Module, path: str) -> bool:
    """Whether a module is inside one of several layers of a list that are built alike, or inside the only one."""
    parts = path.split(".")
    for depth in range(1, len(parts) - 1):
        above, rest = model.get_submodule(".".join(parts[:depth])), ".".join(parts[depth + 1 :])
        if isinstance(above, nn.ModuleList | nn.Sequential):
            own = type(above.get_submodule(parts[depth]))
            layers = [layer for layer in above if type(layer) is own]
            alike = sum(1 for layer in layers if any(name == rest for name, _ in layer.named_modules()))
            if alike > 1 or (isinstance(above, nn.ModuleList) and len(above) == 1):
                return True
    return False


@dataclass
class Ran:
    """What a run of the model has shown: which weight makes its output, and how far gradients lean on each weight."""

    head: nn.Parameter | None
    cosines: dict[int, float]


DRAWS = 4  # random sums of the output; one leans on a weight of n entries by about 1 / sqrt(n) by chance
UPRIGHT = 0.05  # times 1 / sqrt(n)


def _ran(model: nn.Module, inputs: Sequence[Any], parameters: Sequence[nn.Parameter]) -> Ran:
    """Run the model, leaving it as it was."""
    makers: dict[int, nn.Module] = {}
    kept: list[Any] = []

    def remember(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            makers[id(output)] = module
            kept.append(output)

    hooks = [
        m.register_forward_hook(remember)
        for m in model.modules()
        if own_parameter(m, "weight") is not None and not is_scripted(m)
    ]
    with remove_after(hooks), trial(model):
        outputs = [o for o in tensors_in(model(*for_gradients(inputs))) if o.requires_grad]
        cosines = _cosines(outputs, parameters)
    last = [makers[id(o)]._parameters["weight"] for o in outputs if id(o) in makers]
    return Ran(last[-1] if last else None, cosines)


@contextlib.contextmanager
def trial(model: nn.Module) -> Iterator[None]:
    """Seed random numbers for a run of a model, which compiles nothing; then give it its buffers and modes back.

    Torch gets its random state back, too.

    >>> layer, before = nn.BatchNorm1d(2), torch.get_rng_state()
    >>> with trial(layer):
    ...     _ = layer(torch.randn(3, 2)), layer.eval()
    >>> layer.training, int(layer.num_batches_tracked), torch.equal(torch.get_rng_state(), before)
    (True, 0, True)
    """
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        mode(model),
        buffers_apart(model),
        torch.random.fork_rng(),
        uncompiled(),
    ):
        torch.manual_seed(0)
        yield


@contextlib.contextmanager
def mode(model: nn.Module, training: bool | None = None) -> Iterator[None]:
    """Put a model into training or evaluation, if either is named; in the end every part has its own mode again.

    >>> model = nn.Sequential(nn.Dropout(), nn.Dropout().eval())
    >>> with mode(model, False):
    ...     print([part.training for part in model])
    [False, False]
    >>> [part.training for part in model]
    [True, False]
    """
    before = [(part, part.training) for part in model.modules()]
    if training is not None:
        model.train(training)
    try:
        yield
    finally:
        for part, own in before:
            part.training = own


@contextlib.contextmanager
def buffers_apart(model: nn.Module) -> Iterator[None]:
    """Have a model compute on copies of its buffers; it has its own, untouched, back in the end, and no others.

    A graph that was recorded inside holds the copies, so that its backward pass goes through afterwards.

    >>> layer = nn.BatchNorm1d(2)
    >>> with buffers_apart(layer):
    ...     _ = layer(torch.ones(3, 2))
    >>> layer.running_mean
    tensor([0., 0.])
    """
    held = [(part, dict(part._buffers.items())) for part in model.modules()]
    copies = {id(b): b.clone() for b in model.buffers()}  # one of a buffer that several modules share
    for part, own in held:
        for name, b in own.items():
            part._buffers[name] = copies.get(id(b))
    try:
        yield
    finally:
        for part, own in held:
            for name in part._buffers.keys() - own.keys():  # made as the model was called
                delattr(part, name)
            for name, b in own.items():
                part._buffers[name] = b


@contextlib.contextmanager
def remove_after(hooks: Sequence[Any]) -> Iterator[None]:
    """Remove hooks in the end.

    >>> layer = nn.ReLU()
    >>> with remove_after([layer.register_forward_hook(lambda module, given, output: -output)]):
    ...     layer(torch.ones(1))
    tensor([-1.])
    >>> layer(torch.ones(1))
    tensor([1.])
    """
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def tensors_in(value: Any, depth: int = 0) -> Iterator[Tensor]:
    """Return the tensors that mappings, tuples and lists hold; down to a depth, those of other objects too.

    >>> from types import SimpleNamespace
    >>> cache = {"keys": [torch.zeros(1)], "more": SimpleNamespace(values=torch.ones(1))}
    >>> list(tensors_in(cache)), list(tensors_in(cache, depth=2))
    ([tensor([0.])], [tensor([0.]), tensor([1.])])
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(part, depth - 1)
    elif depth > 0 and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type):
        for part in vars(value).values():
            yield from tensors_in(part, depth - 1)


def for_gradients(batch: Any) -> Any:
    """Copy a batch that was made under torch.inference_mode, as its tensors cannot be a part of a graph."""
    if not any(x.is_inference() for x in tensors_in(batch)):
        return batch
    return tree_map_only(Tensor, torch.clone, dict(batch) if isinstance(batch, Mapping) else batch)


def _cosines(outputs: Sequence[Tensor], parameters: Sequence[nn.Parameter]) -> dict[int, float]:
    """The largest cosine between each parameter and its gradient, 1 without one; none where outputs have no history."""
    if not outputs or not parameters:
        return {}
    cosines = {id(p): 0.0 for p in parameters}
    for draw in range(DRAWS):
        sent = [torch.randn_like(o) for o in outputs]
        grads = torch.autograd.grad(outputs, parameters, sent, retain_graph=draw < DRAWS - 1, allow_unused=True)
        for p, g in zip(parameters, grads, strict=True):
            cosines[id(p)] = max(cosines[id(p)], 1.0 if g is None else _cosine(p.detach(), g))
    return cosines


def _cosine(p: Tensor, g: Tensor) -> float:
    size = float(g.norm() * p.norm())
    return float((p * g).sum().abs()) / size if size > 0 else 1.0


def _invariant(row: Row, owners: Sequence[Owner], normed: set[int], ran: Ran | None) -> bool | None:
    p = row.parameter
    if row.role not in DECAYING:
        return False
    if any(_parametrized_away(module, name, p) for module, name in owners):
        return True
    if ran is not None and ran.cosines:
        return ran.cosines[id(p)] < UPRIGHT / math.sqrt(p.numel())
    if row.role in ("embedding", "head"):
        return False
    (module, name), *others = owners
    return True if not others and name == "weight" and id(module) in normed else None


def _parametrized_away(module: nn.Module, name: str, p: nn.Parameter) -> bool:
    """Whether a layer's parametrization makes the same weight of a multiple of the parameter."""
    own = getattr(module, "parametrizations", {})
    if name not in own or not isinstance(own[name], ParametrizationList):
        return False
    key = next(key for key, value in own[name]._parameters.items() if value is p)
    made = []
    for factor in (1, 2):
        with torch.no_grad(), buffers_apart(own[name]), contextlib.suppress(Exception):  # some refuse what is too large
            made.append(torch.func.functional_call(own[name], {key: factor * p}, ()))
    return len(made) == 2 and torch.allclose(made[0], made[1], rtol=1e-4)


def _before_norms(model: nn.Module) -> set[int]:
    """The layers whose output goes straight to a norm in a sequence, which takes its scale off."""
    sequences = (module for module in model.modules() if isinstance(module, nn.Sequential))
    pairs = itertools.chain.from_iterable(map(itertools.pairwise, sequences))
    return {
        id(layer)
        for layer, then in pairs
        if isinstance(then, NORMS) and (getattr(layer, "bias", None) is None or isinstance(then, BATCH_NORMS))
    }


def _overridden(rows: Sequence[Row], owners: Mapping[int, list[Owner]], override: Mapping[Any, str]) -> Iterator[Row]:
    if not isinstance(override, Mapping):
        raise TypeError(f"roles: override must be roles by parameter, not {override!r}")
    for key, role in override.items():
        if role not in ROLES:
            raise ValueError(f"roles: override[{key!r}] must be one of {', '.join(ROLES)}, not {role!r}")
        if not any(_matches(key, row, owners) for row in rows):
            raise ValueError(f"roles: override[{key!r}] fits no trained parameter; they are {[r.name for r in rows]}")
    for row in rows:
        mine = [role for key, role in override.items() if _matches(key, row, owners)]
        yield replace(row, role=mine[-1], why="as given") if mine else row


def fits(name: str, pattern: str) -> bool:
    """Whether a pattern is that of a parameter's name, or of its module's.

    >>> fits("blocks.0.qkv.weight", "*.qkv"), fits("blocks.0.qkv.weight", "qkv*")
    (True, False)
    """
    return any(fnmatch.fnmatchcase(own, pattern) for own in (name, name.rpartition(".")[0]))


def _matches(key: Any, row: Row, owners: Mapping[int, list[Owner]]) -> bool:
    if isinstance(key, str):
        return fits(row.name, key)
    if isinstance(key, type):
        return any(isinstance(module, key) for module, _ in owners[id(row.parameter)])
    return row.parameter is key
