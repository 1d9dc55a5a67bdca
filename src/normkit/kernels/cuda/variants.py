"""Which kernels the table of machine code shows: each family, forward and backward, for types and widths."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from normkit.kernels.cuda import settings, static
from normkit.kernels.cuda.launch import warps_of

RULES = {  # name -> statistic, centered, place of eps, cast early
    "rms": (0, 0, 0, 0),
    "layer": (0, 1, 0, 0),
    "outside": (0, 0, 1, 0),
    "length": (0, 0, 2, 0),
    "absolute": (1, 1, 0, 0),
    "maximum": (2, 0, 0, 0),
    "zero-sum": (3, 0, 0, 0),
    "llama": (0, 0, 0, 1),
}
FUNCTIONS = ("erf", "tanh", "isru", "arctan", "expsign", "satursin", "eln")
CHANNELS = {  # name -> statistic, activation, over samples
    "batch": (1, 0, 1),
    "given": (0, 0, 1),
    "group": (1, 0, 0),
    "response": (2, 1, 0),
    "share": (3, 0, 0),
    "swish": (1, 2, 0),
    "online": (5, 3, 0),
}
BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
LARGE = ("x", "y", "dx", "grad", "more", "residual", "total")  # arrays of the input's type and size


@dataclass(frozen=True)
class Build:
    """A kernel and what it is compiled for; entries: of a program's tile; used: the share of them that there is."""

    name: str
    kernel: Any
    type: str
    width: int
    types: dict[str, str]
    constants: dict[str, Any]
    warps: int
    entries: int
    known: dict[str, int] = field(default_factory=dict)  # sizes, of which those that 16 divides let loads be wide
    large: frozenset[str] = frozenset(LARGE)  # its arguments that are as large as the input
    used: float = 1.0

    def compiled(self, target: str):
        """The kernel, compiled for a target; sizes are known to be divisible by 16 where they are."""
        half = self.width // 2
        sizes = {"dim": self.width, "width": self.width, "half": half}
        sizes |= {f"{array}{axis}": half for array in "sgoa" for axis in range(3)}  # strides are multiples of it
        sizes |= self.known
        aligned = [name for name, kind in self.types.items() if kind[0] == "*" or sizes.get(name, 1) % 16 == 0]
        return static.compiled(self.kernel, self.types, self.constants, self.warps_on(target), target, aligned)

    def warps_on(self, target: str) -> int:
        """How many warps it has on a target."""
        return warps_of(self.warps, static.TARGETS[target][0] != "cuda")

    def row(self, target: str) -> dict[str, Any]:
        """What its machine code tells, how many bytes and instructions that is an entry, and what this leaves of speed.

        needed: bytes of the arrays that are as large as the input, each of which moves once.
        """
        warps = self.warps_on(target)
        code = static.read(self.compiled(target), target, warps)
        share = static.TARGETS[target][2] * warps / self.entries  # threads an entry
        loaded, stored = (sum(bits // 8 * n for bits, n in accesses.items()) for accesses in (code.loads, code.stores))
        needed = sum(BYTES[kind[1:]] for name, kind in self.types.items() if kind[0] == "*" and name in self.large)
        each = (code.loop or code.instructions) * share / self.used
        metrics = {"kernel": self.name, "type": self.type, "width": self.width, "needed": needed}
        metrics |= {"loaded": loaded * share, "stored": stored * share, "each": each}
        best = code.best(loaded * self.used, needed, each) if needed else None  # what only adds up sums reads little
        hidden = code.hidden(loaded * self.used) * 1e9 if needed else None
        return {**metrics, "best": best, "hidden": hidden, **code.row()}


def filled_share(width: int, block: int) -> float:
    """The share of the blocks of a row that is within it.

    >>> filled_share(768, 1024), filled_share(5000, 1000)
    (0.75, 1.0)
    """
    return width / (-(-width // block) * block)


def variants(types=("bf16", "fp32"), widths=(64, 768, 4096, 8192, 32768), rules=("rms", "layer")) -> Iterator[Build]:
    """All of them for these types and widths."""
    for kind in types:
        for width in widths:
            for rule in rules:
                yield from rows(rule, kind, width)
            yield from points("tanh", kind, width)
            if width <= 512:
                yield from heads(kind, width)
            for last in (False, True):
                yield from channels("batch", last, kind, width)
            if width < settings.WHOLE:
                yield from units("group", kind, 8, width // 8)
            yield from liger(kind, width)


def _types(kernel, kind: str, absent: tuple[str, ...] = ()) -> dict[str, str]:
    """Types of arguments: arrays of the input's type, parameters and what is kept in float32, sizes and numbers."""
    single = ("share", "portion", "eps", "constant", "offset", "scale", "values", "keep", "most")
    arrays = {"weight", "bias", "stats", "alpha", "shift", "cos", "sin", "dgain", "dbias", "dalpha", "dshift"}
    arrays |= {"extra", "sums", "dweight", "dextra"}
    double = ("moments", "found", "pulled", "state", "parts")
    signature = {}
    for name in kernel.arg_names:
        if name in absent or name.isupper():
            continue
        in_memory = kind if name in LARGE else "fp32" if name in arrays else "fp64" if name in double else None
        signature[name] = f"*{in_memory}" if in_memory else "fp32" if name in single else "i32"
    return signature


def rows(rule: str, kind: str, width: int) -> Iterator[Build]:
    """The row template with a gain in float32, and a shift for layer norm."""
    from normkit.kernels.cuda.templates import row

    names = ("STATISTIC", "CENTER", "PLACE", "EARLY")
    constants = {**dict(zip(names, RULES[rule], strict=True)), "SHARED": 0, "PART": 0}
    shift = ("offset",) if rule == "layer" else ("offset", "bias", "dbias")
    forward, backward, gains = settings.forward(width), settings.backward(width), settings.GAINS
    made = [(row.forward_long if forward.long else row.forward, forward, ("residual", "total", *shift))]
    made.append((row.backward_long if backward.long else row.backward, backward, ("more", *shift)))
    if backward.long:
        made.append((row.gains_long, gains, shift))
    for kernel, s, absent in made:
        shape = {**constants, "FULL": int(width % s.block == 0), "ROWS": s.rows, "BLOCK": s.block}
        if not s.long:
            shape["WIDTH"] = settings.compiled_width(width)
        name = f"row {kernel.__name__}, {rule}"
        types, used = _types(kernel, kind, absent), filled_share(width, s.block)
        yield Build(name, kernel, kind, width, types, shape, s.warps, s.rows * s.block, used=used)


def points(function: str, kind: str, width: int) -> Iterator[Build]:
    """The pointwise template with features last; tanh as DyT has it, the others with all their parameters."""
    from normkit.kernels.cuda.templates import pointwise

    about = {"FUNCTION": FUNCTIONS.index(function), "BY_ROW": 0}
    absent = ("shift", "dshift", "scale") if function == "tanh" else ()
    passes = (pointwise.forward, settings.points(width)), (pointwise.backward, settings.points_backward(width))
    for kernel, s in passes:
        shape = {**about, "FULL": int(width % s.block == 0), "ROWS": s.rows, "BLOCK": s.block}
        name = f"pointwise {kernel.__name__}, {function}"
        types, used = _types(kernel, kind, absent), filled_share(width, s.block)
        yield Build(name, kernel, kind, width, types, shape, s.warps, s.rows * s.block, used=used)


def heads(kind: str, width: int) -> Iterator[Build]:
    """Norm and turn of heads, the pairs in halves."""
    from normkit.kernels.cuda.templates import rotate

    s = settings.heads(width)
    shape = {"NORM": 1, "PAIRS": 0, "CENTER": 0, "PLACE": 0, "EARLY": 0, "SHARED": 0, "ROWS": s.rows, "BLOCK": s.block}
    for kernel in (rotate.forward, rotate.backward):
        types = _types(kernel, kind, ("bias", "dbias"))
        name = f"norm and turn, {kernel.__name__}"
        used = filled_share(width // 2, s.block)
        yield Build(name, kernel, kind, width, types, shape, s.warps, 2 * s.rows * s.block, used=used)


def channels(rule: str, last: bool, kind: str, width: int, *, joins: bool = False) -> Iterator[Build]:
    """The channel template, of planes of `width` entries, or of `width` channels that are last.

    joins: also what adds up the sums of the others, which is little.
    """
    from normkit.kernels.cuda.templates import channel

    statistic, activation, over = CHANNELS[rule]
    many, space = (width, 3136) if last else (256, width)
    s = settings.channels(1 if last and over else 32, many, space, last, 132)
    shape = {"LAST": int(last), "ROWS": s.rows, "BLOCK": s.block}
    whole = {"STATISTIC": statistic, "ACTIVATION": activation, "OVER": int(over and not last), **shape}
    single = {"CENTER": statistic == 1, "SINGLE": 0, **shape}
    made = [(channel.measure, single)] if statistic else []
    made += [(kernel, whole) for kernel in (channel.write, channel.reduce, channel.write_back)]
    extra = ("learned", *(("extra",) if activation == 0 else ()))
    order = f"channels {'last' if last else 'first'}"
    sizes = {"channels": many, "space": space}
    for kernel, constants in made:
        types = _types(kernel, kind, extra)
        name = f"{order}, {rule}, {kernel.__name__}"
        used = filled_share(width, s.block)
        yield Build(name, kernel, kind, width, types, constants, s.warps, s.rows * s.block, sizes, used=used)
    if joins:
        yield from _joins(rule, order, kind, width, s)


def _joins(rule: str, order: str, kind: str, width: int, s: settings.Pieces) -> Iterator[Build]:
    from normkit.kernels.cuda.templates import channel

    statistic, activation, over = CHANNELS[rule]
    units, many = settings.sum_sizes(256, 256)
    shape = {"UNITS": units, "MEMBERS": many}
    about = {"STATISTIC": statistic, "ACTIVATION": activation}
    step = {"CENTER": statistic == 1, "LENGTH": statistic == 3, "STEP": s.block}
    made: list[tuple[Any, dict[str, int]]] = [(channel.parameters, {**about, **shape})]
    if statistic:
        made.append((channel.join, {**step, **shape}))
    if statistic == 3:
        made += [(channel.level, {"BLOCK": 256}), (channel.share_pulls, {"BLOCK": 256})]
    elif statistic == 5:
        made += [(channel.run_on, {"BLOCK": 256}), (channel.control, {"BLOCK": 256})]
    if statistic not in (0, 3):
        made.append((channel.pulls, {**about, "ALONE": over, "EXTRA": activation in (1, 2), **shape}))
    for kernel, constants in made:
        absent = "learned", "parts", "means", "variances", "rate", "bessel"
        types = _types(kernel, kind, (*absent, "dextra") if activation in (0, 3) else absent)
        yield Build(f"{order}, {rule}, {kernel.__name__}", kernel, kind, width, types, constants, 4, units * many)


def units(rule: str, kind: str, group: int, space: int) -> Iterator[Build]:
    """The unit template, of groups of channels with `space` entries each."""
    from normkit.kernels.cuda.templates import unit

    statistic, activation, _ = CHANNELS[rule]
    s = settings.unit(group, space)
    assert s is not None
    shape = {"STATISTIC": statistic, "ACTIVATION": activation, "MEMBERS": s.rows, "BLOCK": s.block}
    absent = ("learned", "parts", *(("extra",) if activation == 0 else ()))
    for kernel in (unit.forward, unit.backward):
        name, sizes = f"unit, {rule}, {kernel.__name__}", {"group": group, "space": space}
        types = _types(kernel, kind, absent)
        entries, used = s.rows * s.block, group * space / (s.rows * s.block)
        yield Build(name, kernel, kind, group * space, types, shape, s.warps, entries, sizes, used=used)


def positions(kind: str, width: int) -> Iterator[Build]:
    """Norms of the vector of channels at each position, channels first."""
    from normkit.kernels.cuda.templates import position

    s = settings.positions(width, 3136)
    for kernel in (position.forward, position.backward):
        shape = {"ROWS": s.rows, "BLOCK": s.block}
        sizes = {"channels": width, "space": 3136}
        name = f"positions, {kernel.__name__}"
        yield Build(name, kernel, kind, width, _types(kernel, kind), shape, s.warps, s.rows * s.block, sizes)


def matrices(side: int) -> Iterator[Build]:
    """Sinkhorn's steps on small matrices, which are in float32."""
    from normkit.kernels.cuda.templates import sinkhorn

    s = settings.matrices(side)
    for kernel in (sinkhorn.forward, sinkhorn.backward):
        name, shape = f"sinkhorn, {kernel.__name__}", {"MATRICES": s.rows, "SIDE": s.block}
        yield Build(name, kernel, "fp32", side, _types(kernel, "fp32"), shape, s.warps, s.rows * s.block**2)


def liger(kind: str, width: int) -> Iterator[Build]:
    """Liger's kernels for rows where Liger is installed, with its own settings and a gain in float32 as ours have."""
    if importlib.util.find_spec("liger_kernel") is None or width > 65536:
        return
    rms = importlib.import_module("liger_kernel.ops.rms_norm")
    layer = importlib.import_module("liger_kernel.ops.layer_norm")
    torch_to_triton = importlib.import_module("liger_kernel.ops.utils").torch_to_triton_dtype
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    block, warps = importlib.import_module("liger_kernel.ops.utils").calculate_settings(width)
    shape = {"BLOCK_SIZE": block, "casting_mode": 0, "elementwise_affine": True, "rows_per_program": 8}
    shape |= {"X_dtype": torch_to_triton[types[kind]], "COMPUTE_DW": True, "COMPUTE_DB": True}
    for module, rule in ((rms, "rms_norm"), (layer, "layer_norm")):
        for way in ("forward", "backward"):
            kernel = getattr(module, f"_{rule}_{way}_kernel")
            signature, known = {}, {"n_cols": width}
            for name in kernel.arg_names:
                if name in shape and not (name == "rows_per_program" and rule == "rms_norm"):
                    continue
                if name.endswith("_ptr"):
                    signature[name] = f"*{kind if name[:-4].lower() in ('x', 'y', 'dx', 'dy') else 'fp32'}"
                else:
                    signature[name] = "fp32" if name in ("eps", "offset") else "i32"
                    if "stride" in name and not name.startswith(("RSTD", "Mean")) and name[-4:] not in ("mean", "rstd"):
                        known[name] = width
            large = frozenset(name for name in signature if name[:-4].lower() in ("x", "y", "dx", "dy"))
            name, used = f"Liger's {rule}, {way}", filled_share(width, block)
            yield Build(name, kernel, kind, width, signature, shape, warps, block, known, large, used)
    yield from _liger_dyt(kind, width)


def _liger_dyt(kind: str, width: int) -> Iterator[Build]:
    """Liger's kernels for DyT, with the first of the settings that it tries out on a GPU."""
    dyt = importlib.import_module("liger_kernel.ops.dyt")
    for way in ("forward", "backward"):
        tuner = getattr(dyt, f"_dyt_{way[0]}wd_kernel")
        config, kernel = tuner.configs[0], tuner.fn
        shape = {"N": width, "HAVE_BETA": True, **config.kwargs}
        large = frozenset(("X", "Y", "DX", "DY"))
        types = {name: f"*{kind if name in large else 'fp32'}" for name in kernel.arg_names if name not in shape}
        types |= {"M": "i32"} if "M" in types else {}
        block = config.kwargs["BLOCK_N"]
        name, used = f"Liger's dyt, {way}", filled_share(width, block)
        yield Build(name, kernel, kind, width, types, shape, config.num_warps, block, {}, large, used)


def everything() -> Iterator[Build]:
    """One of each rule, function and form that the kernels are ever compiled for, to see that all of them compile."""
    for rule in RULES:
        for width in (768, 32768):
            yield from rows(rule, "bf16", width)
    for function in FUNCTIONS:
        for variant in points(function, "bf16", 768):
            yield variant
            yield replace(variant, name=f"{variant.name}, by row", constants={**variant.constants, "BY_ROW": 1})
    for variant in heads("bf16", 128):
        yield variant
        for changed in ({"PAIRS": 1}, {"CENTER": 1}, {"NORM": 0}):
            yield replace(variant, name=f"{variant.name}, {changed}", constants={**variant.constants, **changed})
    for rule in CHANNELS:
        for last in (False, True):
            yield from channels(rule, last, "bf16", 256, joins=True)
        if CHANNELS[rule][0] in (1, 2):
            yield from units(rule, "bf16", 8, 49)
    yield from positions("bf16", 256)
    for side in (4, 8, 16):
        yield from matrices(side)
