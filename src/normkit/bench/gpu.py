"""The Triton kernels on a GPU: their numbers first, then their times; or what their machine code is made of.

Every op runs forward and backward beside its formula in float64 before anything is timed, and what is wrong is not
timed. Then all entrants run in turn: normkit, the formula in plain PyTorch and compiled, torch's own function,
Liger and quack where they are installed, and a copy of the input. Each is timed twice: as a call, with its launches
from Python, and on the device alone, where a CUDA graph of calls on more numbers than its cache holds is replayed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from normkit import ops, optional
from normkit.bench import cases, report, timing
from normkit.bench.timing import Entrant
from normkit.ops import machine, paths

TAKES = ("names", "sizes", "dtypes", "forward", "no_compile")
SIZES = {"cuda": "64x256,4096x256,4096x1024,4096x4096,8192x8192,2048x32768", "interpreter": "3x8,5x24"}
WIDTHS = "768,4096,32768"
TARGETS = "sm_90,gfx942"
SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
BEYOND_CACHE = 200e6  # bytes
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}  # of the largest number there is

INTERPRETED = (
    "The interpreter runs a GPU's program step by step in Python: `off` and `path` tell something here, times do not."
)

Call = Callable[..., Any]


def _rms(x, w):
    return ops.rms_norm(x, x.shape[-1:], w)


def _layer(x, w, b):
    return ops.layer_norm(x, x.shape[-1:], w, b)


def _add(x, r, w):
    return ops.add_rms_norm(x, r, w)


def _dyt(x, a, w, b):
    return ops.dyt(x, a, w, b)


def _batch(x, w, b):
    return ops.batch_norm(x, w, b)[0]


def _group(x, w, b):
    return ops.group_norm(x, math.gcd(x.shape[1], 32), w, b)


# op -> its call, the parts of its input, how many arrays of x's size must move in a forward and in a backward pass;
# w and b are one number an entry of the last axis, c is one a channel, which are the second
OPS: dict[str, tuple[Call, str, int, int]] = {
    "rms_norm": (_rms, "xw", 2, 3),
    "layer_norm": (_layer, "xwb", 2, 3),
    "add_rms_norm": (_add, "xrw", 4, 4),
    "dyt": (_dyt, "xawb", 2, 3),
    "batch_norm": (_batch, "xcc", 3, 5),
    "group_norm": (_group, "xcc", 2, 3),
}


def _ratio(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: report.times(_seconds(row)[name] / _seconds(row)["normkit"] if name in _seconds(row) else None)


def _seconds(row: Mapping[str, Any]) -> Mapping[str, float]:
    """On the device alone where that was timed, else of calls."""
    return row["device"] if "normkit" in row.get("device", ()) else row.get("seconds", {})


def _call_ratio(row: Mapping[str, Any]) -> str:
    calls = row.get("seconds", {})
    return report.times(calls["torch"] / calls["normkit"] if "torch" in calls else None)


def _number(name: str, form: str = "") -> Callable[[Mapping[str, Any]], str]:
    return lambda row: format(row[name], form) if name in row else "-"


def _instructions(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: ", ".join(f"{n} x {bits}" for bits, n in sorted(row[name].items())) if name in row else "-"


COLUMNS: dict[str, Callable[[Any], str]] = {
    "kernel": lambda row: row["kernel"],
    "size": _number("size"),
    "width": _number("width"),
    "type": lambda row: row["type"],
    "pass": _number("pass"),
    "off": _number("off", ".1e"),
    "time": lambda row: report.duration(_seconds(row)["normkit"]) if _seconds(row) else "-",
    "GB/s": _number("rate", ".0f"),
    "copy": lambda row: report.times(row.get("copied")),
    **{name: _ratio(name) for name in ("eager", "compiled", "torch", "liger", "quack")},
    "call": lambda row: report.duration(row["seconds"]["normkit"]) if row.get("device") else "-",
    "call, torch": lambda row: _call_ratio(row) if row.get("device") else "-",
    "target": _number("target"),
    "registers": _number("registers"),
    "spills": _number("spills"),
    "shared": _number("shared"),
    "occupancy": _number("occupancy", ".0%"),
    "limit": lambda row: row.get("limit") or "-",
    "loads": _instructions("loads"),
    "stores": _instructions("stores"),
    "needed": _number("needed"),
    "read": _number("loaded", ".1f"),
    "written": _number("stored", ".1f"),
    "instructions": _number("instructions"),
    "loop": _number("loop"),
    "each": _number("each", ".1f"),
    "best": lambda row: "-" if row.get("best") is None else f"{row['best']:.0%}",
    "hidden": lambda row: "-" if row.get("hidden") is None else f"{row['hidden']:.0f} ns",
    "path": _number("path"),
}
LEGEND = {
    "off": "the largest error, over the largest number of the float64 formula",
    "time": "median on the device alone; of the interpreter, of a call",
    "GB/s": "the bytes that must move, over that time",
    "copy": "the share of a device copy's speed in the same run",
    "eager": f"the formula in plain PyTorch: {report.RIVALS}",
    "compiled": f"the formula under torch.compile: {report.RIVALS}",
    "torch": f"torch's own function: {report.RIVALS}",
    "liger": f"Liger's kernel: {report.RIVALS}",
    "quack": f"quack's kernel: {report.RIVALS}",
    "call": "median of a call, with its launches from Python",
    "call, torch": f"a call of torch's own function: {report.RIVALS}",
    "spills": "bytes of registers that go to memory",
    "shared": "bytes of shared memory",
    "occupancy": "the share of a multiprocessor's threads that registers and shared memory let run",
    "limit": "what it runs out of first; registers hold the row, and backward the sums of the parameters' gradients",
    "loads": "instructions that load from global memory, by bits a thread",
    "stores": "the same that store",
    "needed": "bytes an entry has in the arrays of the input's size, each of which must move once",
    "read": "bytes an entry's loads read in one run of the code, parameters and statistics among them",
    "written": "the same of stores",
    "instructions": "of the kernel, without those that only subnormal numbers need",
    "loop": "instructions of its innermost loops, in which the entries are",
    "each": "instructions an entry takes: of the loops, or of all where there are none; what is masked is none",
    "best": "of a copy's speed what occupancy, instructions and needed bytes allow on paper; of sm_100 and gfx942 no "
    "latency of memory is known, and there it is what instructions and bytes allow",
    "hidden": "the latency of memory up to which it can have a copy's speed; an idle A100 has 331 ns, an H100 242 ns",
}


def measure(options: argparse.Namespace, clock: timing.Clock = time.perf_counter) -> dict[str, Any]:
    """Return the rows of the table that the options ask for."""
    if options.static:
        code = static(options)
        return {"rows": code, "failed": {}, "notes": misses(code), "timed": False}
    on_gpu = options.device == "cuda"
    _require(on_gpu)
    sizes, names = cases.sizes(options.sizes or SIZES[options.device]), _ops(options)
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    with nullcontext() if on_gpu else paths.interpreted():
        for size, kind, op in itertools.product(sizes, _types(options), names):
            where = f"{op} {'x'.join(map(str, size))} {kind}"
            print(where, file=sys.stderr)
            try:
                rows += race(op, size, getattr(torch, kind), torch.device("cuda" if on_gpu else "cpu"), options, clock)
            except (ValueError, RuntimeError) as error:
                failed[where] = str(error).split("\n")[0]
    return {"rows": rows, "failed": failed, "notes": [] if on_gpu else [INTERPRETED]}


def _require(on_gpu: bool) -> None:
    """Require a GPU, or that kernels can be interpreted without one."""
    if on_gpu and not torch.cuda.is_available():
        raise ValueError(
            f"--device cuda: torch {torch.__version__} sees no GPU. Two things need none: --device cuda --static reads "
            "the machine code of the kernels, and --device interpreter runs them on this CPU"
        )
    if not on_gpu and (reason := machine.absent()) is not None:
        raise ValueError(f"--device interpreter: {reason}")


def _ops(options: argparse.Namespace) -> list[str]:
    """The ops that are named, or all."""
    for name in options.names:
        if name not in OPS:
            raise ValueError(f"--device {options.device} has no op {name!r}; there are {', '.join(OPS)}")
    return options.names or list(OPS)


def static(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return what the machine code of each kernel is made of."""
    kinds = [SHORT[name] for name in _types(options)]
    widths = (options.sizes or WIDTHS).split(",")
    for word in widths:
        if not re.fullmatch(r"[1-9]\d*", word):
            raise ValueError(f"--sizes: {word!r} is no width such as 768, which is what --static takes")
    rows = []
    for row in machine.machine_code((options.targets or TARGETS).split(","), kinds, list(map(int, widths))):
        print(row["kernel"], row["type"], row["width"], row["target"], file=sys.stderr)
        rows.append({**row, "absent": {}})
    return rows


OURS = {"row": {"rms": "rms_norm", "layer": "layer_norm"}, "pointwise": {"tanh": "dyt"}}


def misses(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say of each pass where another's code has fewer instructions an entry, or moves fewer bytes, than normkit's."""
    lines = []
    for (op, way, kind, width, target), passes in _passes(rows).items():
        if "normkit" not in passes:
            continue
        have = passes.pop("normkit")
        for what, unit in (("each", "instructions"), ("moved", "bytes")):
            least = min(passes, key=lambda name: passes[name][what], default=None)
            if least is None or round(have[what], 1) <= round(passes[least][what], 1):
                continue
            spilled = f", {passes[least]['spills']} bytes of registers in memory" if passes[least]["spills"] else ""
            lines.append(
                f"{op} {way}, {width}, {kind}, {target}: {have[what]:.1f} {unit} an entry, "
                f"{least}'s {passes[least][what]:.1f}{spilled}"
            )
    return lines or (["nobody's code has fewer instructions an entry or moves fewer bytes"] if rows else [])


def _passes(rows: Sequence[Mapping[str, Any]]) -> dict[tuple, dict[str, dict[str, float]]]:
    """What the kernels of a pass are made of together: op, way, type, width, target -> whose -> each, moved, spills."""
    passes: dict[tuple, dict[str, dict[str, float]]] = {}
    for row in rows:
        name = _pass_of(row["kernel"])
        if name is None or row["best"] is None:  # what only adds up sums reads little
            continue
        whose, op, way = name
        cell = passes.setdefault((op, way, row["type"], row["width"], row["target"]), {})
        total = cell.setdefault(whose, {"each": 0.0, "moved": 0.0, "spills": 0})
        total["each"] += row["each"]
        total["moved"] += row["loaded"] + row["stored"]
        total["spills"] += row["spills"]
    return passes


def _pass_of(kernel: str) -> tuple[str, str, str] | None:
    """Whose, of which op and which pass a kernel is, or None where nobody else has one.

    >>> _pass_of("row gains_long, rms"), _pass_of("Inductor's dyt, backward 3")
    (('normkit', 'rms_norm', 'backward'), ('Inductor', 'dyt', 'backward'))
    """
    if match := re.fullmatch(r"(\w+)'s (\w+), (forward|backward)(?: \d+)?", kernel):
        return match[1], match[2], match[3]
    match = re.fullmatch(r"(\w+) (forward|backward|gains)(?:_long)?, ([\w-]+)", kernel)
    op = OURS.get(match[1], {}).get(match[3]) if match else None
    return ("normkit", op, "forward" if match[2] == "forward" else "backward") if match and op else None


def _types(options: argparse.Namespace) -> list[str]:
    dtypes = cases.dtypes(options.dtypes or "bfloat16,float32")
    for name in dtypes:
        if name not in SHORT:
            raise ValueError(f"--dtypes: the GPU's kernels have no {name!r}, only {', '.join(SHORT)}")
    return dtypes


def race(op: str, size: Sequence[int], kind: torch.dtype, device, options, clock: timing.Clock) -> list[dict[str, Any]]:
    """Hold an op to its formula, then time its forward and its backward pass."""
    call, parts, *arrays = OPS[op]
    inputs = tensors(parts, size, kind, device)
    with paths.watch() as kernels:
        off = _off(call, inputs)
    about = {"kernel": op, "size": "x".join(map(str, size)), "type": SHORT[str(kind).split(".")[1]], "off": off}
    about |= {"path": str(kernels[0])}
    if not off <= LIMITS[kind] * 4:
        raise RuntimeError(f"its numbers are off by {off:.1e} of the largest: it is not timed")
    passes = ("forward",) if options.forward else ("forward", "backward")
    return [
        {**about, "pass": way, **_time_passes(op, call, inputs, way, moved, options, clock)}
        for way, moved in zip(passes, arrays, strict=False)
    ]


def tensors(parts: str, size: Sequence[int], kind: torch.dtype, device) -> list[Tensor]:
    """Return the tensors of an op: x and the residual of a type, parameters in float32."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"x": (tuple(size), kind), "r": (tuple(size), kind), "a": ((1,), torch.float32)}
    shapes["c"] = (tuple(size[1:2]), torch.float32)
    inputs = []
    for part in parts:
        shape, dtype = shapes.get(part, (tuple(size[-1:]), torch.float32))
        inputs.append(torch.randn(shape, generator=generator).to(device, dtype).requires_grad_())
    return inputs


def _gradients(call: Call, inputs: Sequence[Tensor], kind: torch.dtype) -> list[Tensor]:
    """Outputs and gradients, for cotangents that are numbers of a type."""
    outputs = call(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    sent = [torch.linspace(-1, 2, y.numel(), device=y.device).view(y.shape).to(kind).to(y.dtype) for y in outputs]
    return [*(y.detach() for y in outputs), *torch.autograd.grad(outputs, list(inputs), sent)]


def _off(call: Call, inputs: Sequence[Tensor]) -> float:
    """The largest error of outputs and gradients, over the largest number."""
    kind = inputs[0].dtype
    actual = _gradients(call, inputs, kind)
    with paths.formula_only():
        expected = _gradients(call, [t.detach().double().requires_grad_() for t in inputs], kind)
    return max(
        ((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
        for a, b in zip(actual, expected, strict=True)
    )


def _time_passes(
    op: str, call: Call, inputs: list[Tensor], way: str, arrays: int, options, clock: timing.Clock
) -> dict[str, Any]:
    x = inputs[0]
    calls: dict[str, tuple[Call, Any]] = {"normkit": (call, nullcontext), "eager": (call, paths.formula_only)}
    absent = {}
    for name, rival in rivals(op, x, options).items():
        try:
            rival(*inputs)
            calls[name] = rival, nullcontext
        except Exception as error:  # of another library, in any of its versions
            absent[name] = str(error).split("\n")[0]
    entrants = {name: _entrant(rival, inputs, way, around) for name, (rival, around) in calls.items()}
    entrants["copy"] = Entrant(lambda: x.detach().clone())
    times = timing.race(entrants, options.repeats, _clock(x, clock))
    row = {"absent": absent, "seconds": {name: times_of.median for name, times_of in times.items()}}
    if x.is_cuda:
        row["device"] = device_seconds(calls, inputs, way, options.repeats)
    least, seconds = arrays * x.numel() * x.element_size(), _seconds(row)
    rate, copied = least / seconds["normkit"] / 1e9, 2 * x.numel() * x.element_size() / seconds["copy"] / 1e9
    return {**row, "least_bytes": least, "rate": rate, "copied": rate / copied}


def device_seconds(calls: Mapping[str, tuple[Call, Any]], inputs: list[Tensor], way: str, rounds: int) -> dict:
    """Seconds on the device alone of each that can stand in a CUDA graph; backward, what a training step adds."""
    x = inputs[0]
    count = max(1, min(16, math.ceil(BEYOND_CACHE / (x.numel() * x.element_size()))))
    sets = [[t.detach().clone().requires_grad_() for t in inputs] for _ in range(count)]
    copies = itertools.cycle([torch.empty_like(x) for _ in sets])

    def replayed(run: Call, *more: Any) -> float:
        return _replay_seconds(lambda: [run(*more, one) for one in sets], rounds) / count

    seconds = {"copy": replayed(lambda one: next(copies).copy_(one[0].detach()))}
    for name, (call, around) in calls.items():
        with around(), contextlib.suppress(RuntimeError):  # it waits for the GPU
            forward = replayed(_forward, call)
            seconds[name] = forward if way == "forward" else replayed(_step, call) - forward
    return seconds


def _forward(call: Call, inputs: list[Tensor]) -> None:
    with torch.no_grad():
        call(*inputs)


def _step(call: Call, inputs: list[Tensor]) -> None:
    y = call(*inputs)
    torch.autograd.grad(y, inputs, inputs[0].detach() if torch.is_tensor(y) else [inputs[0].detach()] * len(y))


def _replay_seconds(work: Callable[[], Any], rounds: int) -> float:
    """Seconds of the device for the work, captured in a CUDA graph: the median of replays."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(timing.WARM_UP):
            work()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    times = []
    for replay in range(timing.WARM_UP + rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay >= timing.WARM_UP:
            times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def _entrant(call: Call, inputs: list[Tensor], way: str, around) -> Entrant:
    if way == "forward":
        still = [t.detach() for t in inputs]
        return Entrant(lambda: call(*still), around)
    with around():
        y = call(*inputs)
    y = y if isinstance(y, tuple) else (y,)
    sent = [torch.ones_like(one) for one in y]
    return Entrant(lambda: torch.autograd.grad(y, inputs, sent, retain_graph=True), around)


def _clock(x: Tensor, clock: timing.Clock) -> timing.Clock:
    if not x.is_cuda:
        return clock

    def sync_clock() -> float:
        torch.cuda.synchronize()
        return clock()

    return sync_clock


def rivals(op: str, x: Tensor, options: argparse.Namespace) -> dict[str, Call]:
    """Return what else computes an op here: torch's own, the compiled formula, Liger, quack."""
    shape = x.shape[-1:]
    own: dict[str, Call] = {
        "rms_norm": lambda x, w: functional.rms_norm(x, shape, w.to(x.dtype), 1e-6),
        "layer_norm": lambda x, w, b: functional.layer_norm(x, shape, w.to(x.dtype), b.to(x.dtype)),
        "batch_norm": lambda x, w, b: functional.batch_norm(x, None, None, w, b, True),
        "group_norm": lambda x, w, b: functional.group_norm(x, math.gcd(x.shape[1], 32), w.to(x.dtype), b.to(x.dtype)),
    }
    calls = {"torch": own[op]} if op in own else {}
    if not x.is_cuda:
        return calls
    if not options.no_compile:
        torch._dynamo.reset()  # which would give up on a function that it has compiled for other sizes
        calls["compiled"] = torch.compile(OPS[op][0], dynamic=False)
    if op == "rms_norm" and (liger := optional.at_hand("liger_kernel")):
        theirs = optional.library(f"{liger.__name__}.ops.rms_norm").LigerRMSNormFunction
        calls["liger"] = lambda x, w: theirs.apply(x, w, 1e-6, 0.0, "llama", False)
    if op == "rms_norm" and (quack := optional.at_hand("quack")):
        calls["quack"] = lambda x, w: quack.rmsnorm(x, w, eps=1e-6)
    return calls
