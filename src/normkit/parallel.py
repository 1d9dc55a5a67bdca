"""A plan for torch's ``parallelize_module``: a transformer over the processes of one axis of a mesh.

Each layer's first maps (queries, keys, values, gate, up) are cut by their outputs and its last ones (output, down) by
their inputs, so that a process has some heads and some hidden features. Between the sublayers the stream is cut by
positions, and norms see their part alone; embedding, last norm and head are whole on every process. A layer sends what
this needs: the positions are gathered before each sublayer, and its results are added up and cut again behind it.

All parameters become DTensors, so that optimizers and clipping take them in one call; those that are whole are plain
tensors while the module that holds them runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import ParallelStyle

__all__ = ["parallel_plan"]


class Sublayer(NamedTuple):
    """How a model names the maps of a sublayer: those that are cut by outputs, and the one cut by inputs."""

    columns: tuple[str, ...]
    row: str
    heads: bool


SUBLAYERS = (
    Sublayer(("query", "key", "value"), "output", True),  # normkit's
    Sublayer(("up",), "down", False),
    Sublayer(("q_proj", "k_proj", "v_proj"), "o_proj", True),  # transformers' Llama and its kin
    Sublayer(("gate_proj", "up_proj"), "down_proj", False),
)
COUNTS = ("heads", "kv_heads", "num_heads", "num_key_value_heads")  # attributes that say how many heads there are


def parallel_plan(model: nn.Module, mesh: DeviceMesh) -> dict[str, ParallelStyle]:
    """Plan a transformer for ``parallelize_module(model, mesh, plan)``: linears by column and row, norms by position.

    For :class:`normkit.Decoder` and :class:`normkit.Encoder`, and for models of ``transformers`` whose layers have the
    parts of Llama's. Norms of queries and keys see the heads that a process has. All processes of ``mesh``, which has
    one axis, call it. Inputs are the same on all, and so are the logits and the gradients of what is not cut. Those of
    the layers' norms are ``Partial``, as with torch's ``SequenceParallel``.

        >>> from torch.distributed.tensor.parallel import parallelize_module     # doctest: +SKIP
        >>> parallelize_module(model, mesh["tp"], nk.parallel_plan(model, mesh["tp"]))     # doctest: +SKIP

    Raises:
        ValueError: the model has no such layers, a part of a layer has no place in the plan, the heads cannot be dealt
            out, or the mesh has several axes; the number of positions of a call does not divide.
        RuntimeError: the processes run other versions of torch or normkit.
    """
    _check_mesh(mesh)
    plan: dict[str, ParallelStyle] = {}
    layers = dict(_layers(model))
    if not layers:
        known = "; ".join(f"{', '.join(s.columns)} and {s.row}" for s in SUBLAYERS)
        raise ValueError(
            f"parallel_plan: {type(model).__name__} has no list of layers with an attention and a feedforward of the "
            f"linears {known}"
        )
    for name, stack in layers.items():
        for index, layer in enumerate(stack):
            plan |= _layer_plan(f"{name}.{index}", layer, mesh.size(), index == 0, index == len(stack) - 1)
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
    own = f"torch {torch.__version__}, normkit {__version__}"
    every: list[Any] = [None] * mesh.size()
    dist.all_gather_object(every, own, group=mesh.get_group())
    if len(set(every)) > 1:
        versions = "; ".join(f"process {rank} has {version}" for rank, version in enumerate(every))
        raise RuntimeError(f"parallel_plan: all processes must run the same software, but {versions}")


def _sublayer(module: nn.Module) -> Sublayer | None:
    """The names of a sublayer's linears, where it has them."""
    children = dict(module.named_children())
    return next((s for s in SUBLAYERS if s.row in children and s.columns[0] in children), None)


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.ModuleList]]:
    """The lists of layers, each of which has an attention and a feedforward."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module):
            kinds = [[_sublayer(child) for child in layer.children()] for layer in module]
            if all({s.heads for s in row if s} == {True, False} for row in kinds):
                yield name, module


def _layer_plan(name: str, layer: nn.Module, among: int, first: bool, last: bool) -> Mapping[str, ParallelStyle]:
    from torch.distributed.tensor.parallel import SequenceParallel

    plan: dict[str, ParallelStyle] = {name: _ends()(first, last)} if first or last else {}
    _require_no_parameter(name, layer, "sublayers")
    sublayers = {key: kind for key, child in layer.named_children() if (kind := _sublayer(child)) is not None}
    for key, kind in sublayers.items():
        plan |= _sublayer_plan(f"{name}.{key}", getattr(layer, key), kind, among)
    width = {getattr(getattr(layer, key), kind.row).out_features for key, kind in sublayers.items()}
    for key, child in layer.named_children():
        sizes = {parameter.numel() for parameter in child.parameters()}
        if key in sublayers or not sizes:
            continue
        if key.endswith("_connection"):
            plan[f"{name}.{key}"] = _streams()()
            continue
        if not sizes <= width | {1} or any(p.ndim > 1 for p in child.parameters()):
            raise ValueError(f"parallel_plan: {name}.{key} is {type(child).__name__}, neither a norm nor a sublayer")
        plan[f"{name}.{key}"] = SequenceParallel(use_local_output=True)
    return plan


def _sublayer_plan(name: str, module: Any, kind: Sublayer, among: int) -> Mapping[str, ParallelStyle]:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

    children: dict[str, Any] = dict(module.named_children())
    columns = [key for key in kind.columns if key in children]
    _require_linears(name, module, kind, columns, among)
    plan: dict[str, ParallelStyle] = {name: _whole()(among)}
    gated = not kind.heads and children[columns[0]].out_features > children[kind.row].in_features
    plan |= {f"{name}.{key}": _halves()() if gated else ColwiseParallel() for key in columns}
    plan[f"{name}.{kind.row}"] = RowwiseParallel(output_layouts=Shard(1))
    for key, child in children.items():
        if key in (*columns, kind.row) or not list(child.parameters()):
            continue
        if not kind.heads or "norm" not in key or any(p.ndim > 1 for p in child.parameters()):
            raise ValueError(f"parallel_plan: {name}.{key} is {type(child).__name__}, which is in no plan")
        plan[f"{name}.{key}"] = SequenceParallel(sequence_dim=2, use_local_output=True)  # heads, or the width of all
    _require_no_parameter(name, module, "linears")
    return plan


def _require_linears(name: str, module: Any, kind: Sublayer, columns: Sequence[str], among: int) -> None:
    """Require linears that can be cut among the processes."""
    children: dict[str, Any] = dict(module.named_children())
    if getattr(module, "quantile", None) is not None:
        raise ValueError(f"parallel_plan: {name} has a sparsity, by statistics of all hidden features, which are cut")
    for key in (*columns, kind.row):
        if not isinstance(children[key], nn.Linear) or parametrize.is_parametrized(children[key]):
            raise ValueError(f"parallel_plan: {name}.{key} must be a Linear, not {type(children[key]).__name__}")
    for key in columns:
        features = children[key].out_features
        head = module.head_dim if kind.heads else features // children[kind.row].in_features
        if features % (among * head):
            what = f"{features // head} heads" if kind.heads else f"{features} hidden features"
            raise ValueError(f"parallel_plan: {name}.{key} has {what}, which {among} processes do not divide")


def _require_no_parameter(name: str, module: nn.Module, beside: str) -> None:
    for parameter, _ in module.named_parameters(recurse=False):
        raise ValueError(f"parallel_plan: {name}.{parameter} is a parameter beside the {beside}, which is in no plan")


def _redistributed(x: Tensor, mesh: DeviceMesh, now: Any, then: Any) -> Tensor:
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
                    args, kwargs, lambda x: _redistributed(_dividing(x, mesh), mesh, Replicate(), Shard(1))
                )

            def join(_, args, result):
                return _redistributed(result, mesh, Shard(1), Replicate())

            if self.first:
                module.register_forward_pre_hook(cut, with_kwargs=True)
            if self.last:
                module.register_forward_hook(join)
            return module

    return Ends


def _whole() -> type:
    """The style of a sublayer: it sees all positions, and has some of the heads."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ParallelStyle

    class Whole(ParallelStyle):
        def __init__(self, among: int):
            self.among = among

        def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            for part in module.modules():
                for name in COUNTS:
                    if isinstance(getattr(part, name, None), int):
                        setattr(part, name, getattr(part, name) // self.among)

            def gather(_, args, kwargs):
                return _on_stream(args, kwargs, lambda x: _redistributed(x, mesh, Shard(1), Replicate()))

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

    class Halves(ParallelStyle):
        def _apply(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
            place = [_StridedShard(0, split_factor=2)]
            for name, value in list(module.named_parameters(recurse=False)):
                halves = [half.chunk(mesh.size())[mesh.get_local_rank()] for half in value.detach().chunk(2)]
                cut = DTensor.from_local(
                    torch.cat(halves), mesh, place, run_check=False, shape=value.shape, stride=value.stride()
                )
                module.register_parameter(name, nn.Parameter(cut, requires_grad=value.requires_grad))

            def forward(x: Tensor) -> Tensor:
                x = DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])
                parameters: dict[str, Any] = dict(module.named_parameters())
                weight, bias = parameters["weight"], parameters.get("bias")
                return nn.functional.linear(x, weight.to_local(), None if bias is None else bias.to_local())

            module.forward = forward
            return module

    return Halves


def _dividing(x: Tensor, mesh: DeviceMesh) -> Tensor:
    if x.shape[1] % mesh.size():
        raise ValueError(
            f"parallel_plan: {x.shape[1]} positions cannot be cut for {mesh.size()} processes; pad them to a multiple"
        )
    return x


def _on_stream(args: tuple, kwargs: dict[str, Any], change: Any) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call with its stream changed: the first one, or the one that transformers names."""
    if args:
        return (change(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}
