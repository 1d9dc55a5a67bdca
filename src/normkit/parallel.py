"""A plan for torch's ``parallelize_module``: a transformer over the processes of one axis of a mesh.

Each layer's first maps (queries, keys, values, gate, up) are cut by their outputs and its last ones (output, down) by
their inputs, so that a process has some heads and some hidden features. Between the sublayers the stream is cut by
positions, and norms see their part alone; embedding, last norm and head are whole on every process. A layer sends what
this needs: the positions are gathered before each sublayer, and its results are added up and cut again behind it.

All parameters become DTensors, so that optimizers and clipping take them in one call; those that are whole are plain
tensors while the module that holds them runs.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from normkit.attention.core import AttentionCore

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle

__all__ = ["parallel_plan"]


class Sublayer(NamedTuple):
    """What a sublayer is made of, by name: linears that take the stream and how they are cut, and one that gives."""

    columns: tuple[str, ...]
    row: str
    cut: str  # of PARTS
    norms: tuple[str, ...]
    counts: tuple[tuple[str, str], ...] = ()  # modules, and those of their attributes that count heads
    heads: int = 0


PARTS = {  # the last of some processes' part of the rows of a matrix
    "rows": lambda matrix, among: matrix.chunk(among)[-1],
    "halves": lambda matrix, among: torch.cat([half.chunk(among)[-1] for half in matrix.chunk(2)]),
}
STACKS = (nn.ModuleList, nn.ModuleDict)
COUNTS = re.compile("(^|_|^n)heads?$")  # in attributes that say how many heads there are


def parallel_plan(model: nn.Module, mesh: DeviceMesh) -> dict[str, ParallelStyle]:
    """Plan a transformer for ``parallelize_module(model, mesh, plan)``: linears by column and row, norms by position.

    For :class:`normkit.Decoder`, :class:`normkit.Encoder`, Llama and its kin of ``transformers`` and torchtitan, and
    your own: layers that have an attention, with an attribute ``head_dim``, and another sublayer of linears. The last
    linear of an attention gives to the stream. Which one of another sublayer does, and in what order the rows of fused
    linears lie, is tried in small. Norms of queries and keys see the heads that a process has. All processes of
    ``mesh``, which has one axis, call it. Inputs are the same on all, and so are the logits and the gradients of what
    is not cut. Those of the layers' norms are ``Partial``, as with torch's ``SequenceParallel``.

        >>> from torch.distributed.tensor.parallel import parallelize_module     # doctest: +SKIP
        >>> parallelize_module(model, mesh["tp"], nk.parallel_plan(model, mesh["tp"]))     # doctest: +SKIP

    Raises:
        TypeError: ``mesh`` is no ``DeviceMesh``.
        ValueError: the model has no such layers, or is sharded already; a part of a layer has no place in the plan, or
            the heads cannot be dealt out. The mesh has several axes, or lacks this process. A call of the planned
            model raises it where the processes do not divide the number of positions.
        RuntimeError: the processes run other versions of torch or normkit.
    """
    _check_mesh(mesh)
    plan: dict[str, ParallelStyle] = {}
    layers = dict(_layers(model))
    if not layers:
        raise ValueError(
            f"parallel_plan: {type(model).__name__} has no list of layers that have, each, an attention with an "
            "attribute head_dim and a feedforward, as modules of linears"
        )
    _require_whole(model)
    for name, stack in layers.items():
        keys = [key for key, _ in stack.named_children()]
        for key, layer in stack.named_children():
            plan |= _layer_plan(f"{name}.{key}", layer, mesh.size(), key == keys[0], key == keys[-1])
    inside = {id(module) for stack in layers.values() for module in stack.modules()}
    return {"": _copied()(inside), **plan}


def _check_mesh(mesh: DeviceMesh) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    from normkit import __version__

    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"parallel_plan: mesh must be a DeviceMesh, as init_device_mesh gives, not {mesh!r}")
    if mesh.ndim != 1:
        axis = (mesh.mesh_dim_names or ("tp",))[-1]
        raise ValueError(f"parallel_plan: mesh must have one axis, not {mesh.ndim}; give one of it, as mesh[{axis!r}]")
    if mesh.get_coordinate() is None:
        raise ValueError(
            f"parallel_plan: mesh {mesh.mesh.tolist()} must have process {dist.get_rank()}, which calls it"
        )
    own = f"torch {torch.__version__}, normkit {__version__}"
    every: list[Any] = [None] * mesh.size()
    dist.all_gather_object(every, own, group=mesh.get_group())
    if len(set(every)) > 1:
        versions = "; ".join(f"process {rank} has {version}" for rank, version in enumerate(every))
        raise RuntimeError(f"parallel_plan: all processes must run the same software, but {versions}")


def _require_whole(model: nn.Module) -> None:
    from torch.distributed.tensor import DTensor

    for name, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            raise ValueError(
                f"parallel_plan: {name} is a DTensor already, placed as {parameter.placements}; plan the whole model "
                "once, and before fully_shard"
            )


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The stacks of layers, each of which has an attention and a feedforward."""
    for name, module in model.named_modules():
        if isinstance(module, STACKS) and len(module) and all(map(_is_layer, module.children())):
            yield name, module


def _is_layer(module: nn.Module) -> bool:
    heads = [_head_dim(child) for child in module.children() if _is_sublayer(child)]
    return len(heads) > 1 and any(heads)


def _is_sublayer(module: nn.Module) -> bool:
    """Whether a part of a layer is made of parts that hold matrices."""
    return any(p.ndim > 1 for child in module.children() for p in child.parameters())


def _head_dim(module: nn.Module) -> int | None:
    """How many features a head of an attention has; None for what is no attention."""
    sizes = (getattr(part, "head_dim", None) for part in module.modules())
    return next((size for size in sizes if isinstance(size, int)), None)


def _layer_plan(name: str, layer: nn.Module, among: int, first: bool, last: bool) -> Mapping[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {name: _ends()(first, last)} if first or last else {}
    _require_no_parameter(name, layer, "sublayers")
    streams = {key: child for key, child in layer.named_children() if key.endswith("_connection")}
    sublayers = {key: child for key, child in layer.named_children() if _is_sublayer(child) and key not in streams}
    width = set()
    for key, child in sublayers.items():
        sublayer = _sublayer(f"{name}.{key}", child, among)
        width.add(child.get_submodule(sublayer.row).out_features)
        plan |= _sublayer_plan(f"{name}.{key}", sublayer, among)
    for key, child in layer.named_children():
        sizes = {parameter.numel() for parameter in child.parameters()}
        if key in sublayers or not sizes:
            continue
        if key in streams:
            plan[f"{name}.{key}"] = _streams()()
            continue
        if not sizes <= width | {1} or any(p.ndim > 1 for p in child.parameters()):
            raise ValueError(f"parallel_plan: {name}.{key} is {type(child).__name__}, neither a norm nor a sublayer")
        plan[f"{name}.{key}"] = _norm()(use_local_output=True)
    return plan


def _sublayer_plan(name: str, sublayer: Sublayer, among: int) -> Mapping[str, ParallelStyle]:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    column = {"rows": ColwiseParallel, "halves": _halves()}[sublayer.cut]
    by_head = {key: _norm()(sequence_dim=2, use_local_output=True) for key in sublayer.norms}  # or the width
    plan = {key: column() for key in sublayer.columns} | by_head
    plan[sublayer.row] = RowwiseParallel(output_layouts=Shard(1))
    return {name: _whole()(among, sublayer), **{f"{name}.{key}": style for key, style in plan.items()}}


def _sublayer(name: str, module: nn.Module, among: int) -> Sublayer:
    """Find out what a sublayer is made of, and require that it can be cut among the processes."""
    head, linears, norms = _head_dim(module), {}, {}
    for key, part in _parts(module):
        if isinstance(part, nn.Linear) and not parametrize.is_parametrized(part):
            linears[key] = part
        elif head is not None and "norm" in key:
            norms[key] = part
        else:
            raise ValueError(f"parallel_plan: {_in_no_plan(name, key, part)}")
    if head is None:
        return _feedforward(name, module, linears, among)
    return _attention(name, module, linears, norms, among)


def _parts(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The parts of a sublayer that are linears, norms, or hold parameters of their own, by name."""
    if list(module.named_parameters(recurse=False)) or parametrize.is_parametrized(module):
        yield prefix, module
    elif "norm" in prefix:
        yield from () if isinstance(module, nn.Identity) else ((prefix, module),)
    else:
        for key, child in module.named_children():
            yield from _parts(child, f"{prefix}.{key}" if prefix else key)


def _in_no_plan(name: str, key: str, part: nn.Module) -> str:
    if not key:
        return f"{name}.{next(part.named_parameters(recurse=False))[0]} is a parameter beside the linears"
    if parametrize.is_parametrized(part) or any(p.ndim > 1 for p in part.parameters()):
        return f"{name}.{key} must be a Linear, not {type(part).__name__}"
    return f"{name}.{key} is {type(part).__name__}, which is in no plan"


def _feedforward(name: str, module: nn.Module, linears: Mapping[str, nn.Linear], among: int) -> Sublayer:
    width = next(iter(linears.values())).in_features
    for row, last in linears.items():
        columns = {key: linear for key, linear in linears.items() if key != row}
        if last.out_features != width or not columns or {c.in_features for c in columns.values()} != {width}:
            continue
        if _cut(module, list(columns.values()), last, 1) is None:
            continue
        if last.in_features % among:
            raise ValueError(
                f"parallel_plan: {name}.{row} takes {last.in_features} hidden features, which {among} processes do not "
                "divide"
            )
        if (cut := _cut(module, list(columns.values()), last, among)) is not None:
            return Sublayer(tuple(columns), row, cut, ())
    raise ValueError(
        f"parallel_plan: {name} is {type(module).__name__}, which cannot be cut: each hidden feature must be computed "
        f"by itself, from the stream alone, between linears that take {width} features and one that gives them"
    )


def _attention(
    name: str, module: nn.Module, linears: Mapping[str, nn.Linear], norms: Mapping[str, nn.Module], among: int
) -> Sublayer:
    head, width = _head_dim(module) or 1, next(iter(linears.values())).in_features
    row = next((key for key in reversed(list(linears)) if linears[key].out_features == width), "")
    columns = {key: linear for key, linear in linears.items() if key != row}
    if not row or not columns or {linear.in_features for linear in columns.values()} != {width}:
        sizes = ", ".join(f"{key} {linear.in_features} to {linear.out_features}" for key, linear in linears.items())
        raise ValueError(
            f"parallel_plan: all linears of {name} but the last must take {width} features, and the last must give "
            f"them, but they are {sizes}"
        )
    for key, linear in columns.items():
        if linear.out_features % (head * among):
            heads = linear.out_features // head
            raise ValueError(f"parallel_plan: {name}.{key} has {heads} heads, which {among} processes do not divide")
    _require_order(name, module, columns, linears[row].in_features, among)
    known = {head, *[linear.out_features for linear in columns.values()], 1}
    for key, norm in norms.items():
        if any(p.ndim > 1 or p.numel() not in known for p in norm.parameters()):
            raise ValueError(f"parallel_plan: {_in_no_plan(name, key, norm)}")
        for part in norm.modules():
            if isinstance(part, nn.LayerNorm | nn.RMSNorm) and part.normalized_shape[-1] != head:
                raise ValueError(
                    f"parallel_plan: {name}.{key} is torch's {type(part).__name__} over {part.normalized_shape[-1]} "
                    f"features, which are cut; over those of a head, {head}, it can be planned, and normkit's over both"
                )
    heads = linears[row].in_features // head
    sublayer = Sublayer(tuple(columns), row, "rows", tuple(norms), tuple(_counts(module, norms)), heads)
    for key, count in sublayer.counts:
        if (number := getattr(module.get_submodule(key), count)) % among:
            where = ".".join(filter(None, (name, key, count)))
            raise ValueError(f"parallel_plan: {where} is {number}, which {among} processes do not divide")
    for key, core in module.named_modules():
        if isinstance(core, AttentionCore) and not _is_apart(core, norms, heads, among):
            raise ValueError(
                f"parallel_plan: {name}.{key} is {type(core).__name__}, which cannot be cut: a head's result must not "
                "follow from the other heads, nor from how many there are"
            )
    return sublayer


def _counts(module: nn.Module, norms: Mapping[str, nn.Module]) -> Iterator[tuple[str, str]]:
    """The attributes of an attention's parts that count its heads; those of a norm count what is in a head."""
    of_norms = {id(part) for norm in norms.values() for part in norm.modules()}
    for key, part in module.named_modules():
        if id(part) not in of_norms:
            yield from ((key, name) for name, count in vars(part).items() if COUNTS.search(name) and type(count) is int)


def _divide(module: nn.Module, counts: Iterable[tuple[str, str]], among: int) -> None:
    for key, name in counts:
        part = module.get_submodule(key)
        setattr(part, name, getattr(part, name) // among)


def _is_apart(core: AttentionCore, norms: Mapping[str, nn.Module], heads: int, among: int) -> bool:
    """Whether a core gives the last process' heads what it gives them among all: tried on a few tokens."""
    is_meta = any(p.is_meta for p in core.parameters())
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        whole = copy.deepcopy(core).eval().float()
        whole = whole.to_empty(device="cpu") if is_meta else whole.cpu()
        for gain in whole.parameters():
            gain.uniform_(1, 2)
        part = copy.deepcopy(whole)
        _divide(part, _counts(core, norms), among)
        given = torch.randn(3, 1, heads, 4, core.head_dim)
        return _is_end([part(*given[:, :, -(heads // among) :])], [whole(*given)])


def _require_order(name: str, module: nn.Module, columns: Mapping[str, nn.Linear], width: int, among: int) -> None:
    """Require three linears at most, none of which makes several of queries, keys and values, but in heads' order."""
    fused = [key for key, linear in columns.items() if linear.out_features > width]
    for key in fused if len(columns) <= 3 else columns:
        owner = module.get_submodule(key.rpartition(".")[0])
        if owner is module or _cut(owner, list(columns.values()), None, among) != "rows":
            raise ValueError(
                f"parallel_plan: {name}.{key} makes {columns[key].out_features} features, and nothing says in which "
                f"order; queries, keys and values must be made by linears of their own, of {width} features at most"
            )


def _cut(module: nn.Module, columns: Sequence[nn.Linear], row: nn.Linear | None, among: int) -> str | None:
    """How linears can be cut so that the last process' part of their rows makes the last part of what comes of them.

    Tried with small linears in their place, of one input; what comes is what the module gives, or what ``row`` takes.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        x = torch.randn(1, 2, 1)
        matrices = [torch.randn(linear.out_features, 1) for linear in columns]

        def results(part: Any) -> list[Tensor]:
            replaced: dict[int, Any] = {}
            if row is not None:
                replaced[id(row)] = _Taking(len(part(torch.empty(row.in_features, 0))))
            for linear, matrix in zip(columns, matrices, strict=True):
                replaced[id(linear)] = _small(part(matrix))
            result = copy.deepcopy(module, replaced).eval()(x)
            return [result] if isinstance(result, Tensor) else list(result)

        for cut, part in PARTS.items():
            try:
                if _is_end(results(lambda matrix, part=part: part(matrix, among)), results(lambda matrix: matrix)):
                    return cut
            except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError):
                continue  # a module that asks for more than the stream, or for other sizes
    return None


class _Taking(nn.Module):
    """In the place of a linear: gives what it takes, of so many features."""

    def __init__(self, features: int):
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.features:
            raise ValueError(f"it takes {self.features} features, not {x.shape[-1]}")
        return x


def _small(matrix: Tensor) -> nn.Linear:
    linear = nn.Linear(1, len(matrix), bias=False, device="cpu")
    linear.weight.copy_(matrix)
    return linear


def _is_end(parts: Sequence[Tensor], wholes: Sequence[Tensor]) -> bool:
    """Whether tensors are the last entries of others along one axis."""
    for part, whole in zip(parts, wholes, strict=True):
        for axis, size in enumerate(part.shape):
            whole = whole.narrow(axis, whole.shape[axis] - size, size)
        if part.numel() == 0 or not torch.allclose(part, whole, rtol=1e-4, atol=1e-6):
            return False
    return True


def _require_no_parameter(name: str, module: nn.Module, beside: str) -> None:
    for parameter, _ in module.named_parameters(recurse=False):
        raise ValueError(f"parallel_plan: {name}.{parameter} is a parameter beside the {beside}, which is in no plan")


def _redistribute(x: Tensor, mesh: DeviceMesh, now: Any, then: Any) -> Tensor:
    from torch.distributed.tensor import DTensor

    x = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [now], run_check=False)
    return x.redistribute(placements=[then]).to_local()


def _ends() -> type:
    """The style of the first and the last layer: the stream is cut by positions from one to the other."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ParallelStyle

    class Ends(ParallelStyle):
        def __init__(self, first: bool, last: bool):
            self.first, self.last = first, last

        def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            def cut(_, args, kwargs):
                return _on_stream(
                    args, kwargs, lambda x: _redistribute(_dividing(x, mesh), mesh, Replicate(), Shard(1))
                )

            def join(_, args, result):
                return _each(result, lambda x: _redistribute(x, mesh, Shard(1), Replicate()))

            if self.first:
                module.register_forward_pre_hook(cut, with_kwargs=True)
            if self.last:
                module.register_forward_hook(join)
            return module

    return Ends


def _norm() -> type:
    """The style of a norm, which sees its part of an axis: torch's, also for a norm that is made of parts."""
    from torch.distributed.tensor.parallel import SequenceParallel

    class OfParts(SequenceParallel):
        def _replicate_module_fn(self, name: str, module: nn.Module, mesh: DeviceMesh) -> None:
            _repeat([module], mesh)

    return OfParts


def _whole() -> type:
    """The style of a sublayer: it sees all positions, and has some of the heads."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ParallelStyle

    class Whole(ParallelStyle):
        def __init__(self, among: int, sublayer: Sublayer):
            self.among, self.sublayer = among, sublayer

        def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            _divide(module, self.sublayer.counts, self.among)

            def own(x: Any) -> Any:
                """Of a mask for each head (samples, heads, queries, keys), that for the heads of this process."""
                by_head = isinstance(x, Tensor) and x.dtype == torch.bool and x.ndim == 4
                whole = by_head and x.shape[1] == self.sublayer.heads
                return x.chunk(self.among, 1)[mesh.get_local_rank()] if whole else x

            def gather(_, args, kwargs):
                args, kwargs = tuple(map(own, args)), {name: own(x) for name, x in kwargs.items()}
                return _on_stream(args, kwargs, lambda x: _redistribute(x, mesh, Shard(1), Replicate()))

            module.register_forward_pre_hook(gather, with_kwargs=True)
            return module

    return Whole


def _copied() -> type:
    """The style of the model: what is outside of its layers is whole on every process."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ParallelStyle

    class Copied(ParallelStyle):
        def __init__(self, inside: set[int]):
            self.inside = inside

        def _apply(self, model: nn.Module, mesh: DeviceMesh) -> nn.Module:
            outside = [part for part in model.modules() if id(part) not in self.inside]
            _repeat(outside, mesh)
            # a tied table is used outside of its module; under fully_shard the module alone has it in time
            for part in outside:
                _lend(part, outside if part is model else [part], mesh, Replicate())
            return model

    return Copied


def _streams() -> type:
    """The style of what weighs the streams of a position: whole on every process, which has some positions."""
    from torch.distributed.tensor import Partial
    from torch.distributed.tensor.parallel import ParallelStyle

    class Streams(ParallelStyle):
        def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            parts = list(module.modules())
            _repeat(parts, mesh)
            _lend(module, parts, mesh, Partial())
            return module

    return Streams


def _repeat(parts: list[nn.Module], mesh: DeviceMesh) -> None:
    """Make the parameters of modules, which may share them, DTensors that are whole on every process."""
    from torch.distributed.tensor import DTensor, Replicate

    copies: dict[nn.Parameter, nn.Parameter] = {}
    for part in parts:
        for name, value in list(part.named_parameters(recurse=False)):
            if value not in copies:
                copy = DTensor.from_local(value.detach(), mesh, [Replicate()], run_check=False)
                copies[value] = nn.Parameter(copy, requires_grad=value.requires_grad)
            part.register_parameter(name, copies[value])


def _lend(module: nn.Module, parts: list[nn.Module], mesh: DeviceMesh, place: Any) -> None:
    """While a module runs, put plain tensors in the place of its parts' parameters, with gradients of that place."""
    from torch.distributed.tensor import DTensor

    kept: list[tuple[nn.Module, str, nn.Parameter]] = []

    def plain(*_):
        for part in parts:
            for name, value in part._parameters.items():
                if isinstance(value, DTensor) and value.device_mesh == mesh:
                    kept.append((part, name, value))
                    part._parameters[name] = value.to_local(grad_placements=[place])

    def back(*_):
        while kept:
            part, name, value = kept.pop()
            part._parameters[name] = value

    module.register_forward_pre_hook(plain)
    module.register_forward_hook(back, always_call=True)


def _halves() -> type:
    """The style of two maps in one matrix, the gate's below the other's: a process has its part of each."""
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.distributed.tensor.parallel import ParallelStyle
    from torch.distributed.tensor.placement_types import _StridedShard

    class OfEachHalf(_StridedShard):
        """Without one place in the whole, which a checkpoint would ask for: torch gives that of the first half."""

        def _local_shard_size_and_offset(self, *given: Any, **named: Any) -> Any:
            all_of_them = getattr(named.get("offset_mode"), "name", "") == "ALL"
            if all_of_them or named.get("return_first_offset") is False:  # as torch asked before 2.13
                raise RuntimeError(
                    "parallel_plan: a process has rows of both halves of a gated matrix, which torch.distributed."
                    "checkpoint can say of a model's state alone; of an optimizer's, and for broadcast_from_rank0, it "
                    "cannot: use full_state_dict=True in StateDictOptions, without broadcast_from_rank0"
                )
            return super()._local_shard_size_and_offset(*given, **named)

    class Halves(ParallelStyle):
        def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            place = [OfEachHalf(0, split_factor=2)]
            for name, value in list(module.named_parameters(recurse=False)):
                halves = [half.chunk(mesh.size())[mesh.get_local_rank()] for half in value.detach().chunk(2)]
                cut = DTensor.from_local(
                    torch.cat(halves), mesh, place, run_check=False, shape=value.shape, stride=value.stride()
                )
                module.register_parameter(name, nn.Parameter(cut, requires_grad=value.requires_grad))

            def place_halves(_, state, prefix, *__):
                for name in module._parameters:
                    kept = state.get(f"{prefix}{name}")
                    if isinstance(kept, DTensor) and kept.device_mesh == mesh:
                        _place_halves(kept, mesh.get_local_rank())

            module.register_state_dict_post_hook(place_halves)

            def forward(x: Tensor) -> Tensor:
                x = DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])
                parameters: dict[str, Any] = dict(module.named_parameters())
                weight, bias = parameters["weight"], parameters.get("bias")
                return nn.functional.linear(x, weight.to_local(), None if bias is None else bias.to_local())

            module.forward = forward
            return module

    return Halves


def _place_halves(kept: Any, rank: int) -> None:
    """Let a DTensor of a state say to a checkpoint where its two blocks of rows lie in the whole."""
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
    from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

    local, rest = kept._local_tensor, kept.shape[1:]
    blocks = {
        torch.Size([begin + rank * len(block), *[0] * len(rest)]): block
        for begin, block in zip((0, len(kept) // 2), local.chunk(2), strict=True)
    }
    chunks = [ChunkStorageMetadata(offset, block.shape) for offset, block in blocks.items()]

    def written(name: str, _: Any) -> list[WriteItem]:
        properties = TensorProperties.create_from_tensor(local)
        data = [TensorWriteData(chunk, properties, kept.shape) for chunk in chunks]
        return [WriteItem(MetadataIndex(name, one.chunk.offsets), WriteItemType.SHARD, tensor_data=one) for one in data]

    local.__create_chunk_list__ = lambda: chunks
    local.__create_write_items__ = written
    local.__get_tensor_shard__ = lambda index: blocks[index.offset]


def _dividing(x: Tensor, mesh: DeviceMesh) -> Tensor:
    if x.shape[1] % mesh.size():
        raise ValueError(
            f"parallel_plan: {x.shape[1]} positions cannot be cut for {mesh.size()} processes; pad them to a multiple"
        )
    return x


def _on_stream(args: tuple, kwargs: dict[str, Any], change: Any) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call with its stream changed: the first one, by place or by name."""
    if args:
        return (_each(args[0], change), *args[1:]), kwargs
    name = next(name for name, value in kwargs.items() if isinstance(value, Tensor) and value.is_floating_point())
    return args, {**kwargs, name: change(kwargs[name])}


def _each(stream: Any, change: Any) -> Any:
    """Change a stream, or each of several; of what a layer returns beside one, nothing."""
    if isinstance(stream, Tensor):
        return change(stream)
    return tuple(change(x) if isinstance(x, Tensor) and x.shape == stream[0].shape else x for x in stream)
