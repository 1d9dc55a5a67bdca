"""What Inductor generates for a GPU that is not here: torch is told of an H100, and its code is read, and never run.

Torch asks a GPU for nothing but its properties while it generates code, so a wheel for a CPU does it too, where it is
answered. That reaches into torch's insides, so what another version lacks is an error, which :func:`generated` names.
"""

from __future__ import annotations

import importlib.util
import linecache
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

from normkit.kernels.cuda import settings
from normkit.kernels.cuda.variants import Build, filled_share


class H100:
    """As `torch.cuda.get_device_properties` has one."""

    name, gcnArchName = "NVIDIA H100", ""
    major, minor, multi_processor_count, warp_size = 9, 0, 132, 32
    max_threads_per_multi_processor, max_threads_per_block, regs_per_multiprocessor = 2048, 1024, 65536
    total_memory, L2_cache_size = 80 << 30, 50 << 20
    shared_memory_per_block, shared_memory_per_block_optin, shared_memory_per_multiprocessor = 49152, 232448, 233472


class Graph(NamedTuple):
    """What becomes of a pass: its kernels' sources by name, the calls of what Inductor does not write, and bytes."""

    sources: dict[str, str]
    calls: tuple[str, ...]
    moved: int


def generate(
    function: Callable, shapes: Sequence[tuple[tuple[int, ...], torch.dtype]], *, learning: bool
) -> list[Graph]:
    """The forward pass of a function of tensors, and with `learning` the backward pass, as torch.compile has them."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode() as mode:
            tensors = [torch.empty(shape, dtype=kind, requires_grad=learning) for shape, kind in shapes]
            traced = list(_trace(function, tensors, learning))  # on a CPU: autograd asks for a GPU's library
            with _pretend_gpu():
                return [_graph(graph, _move(graph, given, mode), mode, not learning) for graph, given in traced]
    except (AttributeError, ImportError, NameError, TypeError) as error:
        raise RuntimeError(
            f"Inductor of torch {torch.__version__} generates nothing for a GPU here: {error}"
        ) from error


def variants(graph: Graph, name: str, kind: str, width: int) -> Iterator[Build]:
    """The kernels of a graph, each with the first of its settings, which is what runs where nothing is tuned."""
    for number, (called, source) in enumerate(graph.sources.items(), 1):
        tuner = _load(called, source)
        config, meta = tuner.configs[0], tuner.triton_meta
        types = {key: dtype for key, dtype in meta["signature"].items() if dtype != "constexpr"}
        entries = math.prod(size for key, size in config.kwargs.items() if key.endswith("BLOCK"))
        if "R0_BLOCK" not in config.kwargs:  # a whole row is a block
            entries *= tuner.size_hints.get("r0_", 1)
        along = tuner.size_hints.get("r0_") == settings.power_of_two(width)
        used = filled_share(width, config.kwargs.get("R0_BLOCK", settings.power_of_two(width))) if along else 1.0
        known = dict.fromkeys(types, 16)
        large = frozenset(key for key, dtype in types.items() if dtype == f"*{kind}")
        constants = {**meta["constants"], **config.kwargs}
        title = name if len(graph.sources) == 1 else f"{name} {number}"
        yield Build(title, tuner.fn, kind, width, types, constants, config.num_warps, entries, known, large, used)


@contextmanager
def _pretend_gpu() -> Iterator[None]:
    from torch._dynamo import device_interface
    from torch._inductor import scheduler
    from torch.utils import _triton

    cuda = device_interface.CudaInterface
    answers: dict[str, Any] = {"is_available": True, "device_count": 1, "current_device": 0, "_lazy_init": None}
    answers |= {"get_device_capability": (9, 0), "get_device_properties": H100, "_get_device_properties": H100}
    of_interface: dict[str, Any] = {"is_available": True, "get_device_properties": H100, "get_compute_capability": 90}
    of_interface |= {"current_device": 0}
    with ExitStack() as stack:
        for owner, given in (
            (torch.cuda, answers),
            (cuda, of_interface),
            (cuda.Worker, {"get_device_properties": H100, "current_device": 0}),
            (_triton, {"triton_hash_with_backend": "none", "has_triton": True}),
            (scheduler, {"has_triton": True}),
        ):
            for name, value in given.items():
                stack.enter_context(mock.patch.object(owner, name, _always(value), create=True))
        yield


def _always(value: Any) -> Any:
    return lambda *_, **__: value


def _trace(function: Callable, tensors: list[Tensor], learning: bool) -> Iterator[tuple[Any, list[Tensor]]]:
    """Graphs of torch's simplest operations, and what each is given."""
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.compilers import nop
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    graphs: list[tuple[Any, list[Tensor]]] = []

    def keep(graph, given):
        graphs.append((graph, list(given)))
        return nop(graph, given)

    made = aot_function(
        function, keep, keep, partition_fn=min_cut_rematerialization_partition, decompositions=select_decomp_table()
    )
    with torch.set_grad_enabled(learning):
        y = made(*tensors)
        if learning:
            torch.autograd.grad(y, tensors, torch.empty_like(y))
    yield from graphs


def _move(graph, given: list[Tensor], mode) -> list[Tensor]:
    """Put a graph on the GPU, and return what it is given there."""
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    for node in graph.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
    inputs = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in given]
    FakeTensorProp(graph, mode).propagate(*inputs)
    return inputs


def _graph(graph, given: list[Tensor], mode, inference: bool) -> Graph:
    from torch._inductor.compile_fx import _recursive_post_grad_passes
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    with V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
        _recursive_post_grad_passes(graph, is_inference=inference)
        lowering = GraphLowering(graph, example_inputs=given, is_inference=inference)
        with V.set_graph_handler(lowering):
            lowering.run(*given)
            code, _ = lowering.codegen()
            moved, *_ = lowering.count_bytes()
    return Graph(*_read(code.value), int(moved))


def _read(code: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """The sources of a module's kernels by name, and which others it calls."""
    sources = dict(re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)'''", code, re.DOTALL))
    calls = re.findall(r"^\s+(?:\w+ = )?(?:extern_kernels\.(\w+)|torch\.ops\.([\w.]+))\(", code, re.MULTILINE)
    return sources, tuple(one or other for one, other in calls)


def _load(name: str, source: str):
    """Run the source of a kernel's module, which compiles nothing yet, and take the kernel out."""
    source = source.replace("triton_helpers.set_driver_to_gpu()", "")
    file = f"<Inductor's {name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    spec = importlib.util.spec_from_loader(name, loader=None)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    module.__file__ = file
    with _pretend_gpu():
        exec(compile(source, file, "exec"), module.__dict__)
    return getattr(module, name)
