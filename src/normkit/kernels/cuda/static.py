"""Kernels compiled ahead of time, for GPUs that are not here, and what their machine code tells.

Registers, spills and shared memory are the assembler's word; loads, stores and instructions are counted in its listing,
without what pads it and what quotients and roots of subnormal numbers call.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

TARGETS = {  # name -> Triton's backend, architecture, threads of a warp
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
REGISTERS, THREADS = 65536, 2048  # of a multiprocessor
SHARED, SYSTEM = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_100": 228 << 10}, 1024  # its bytes; a program's overhead
MOST_PROGRAMS = 32  # on a multiprocessor at a time
VECTORS, WAVES, LOCAL = 512, 8, 65536  # of AMD's: registers of a lane, waves of a SIMD, shared memory of four SIMDs
BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "": 32, "64": 64, "128": 128, "256": 256}


class Paper(NamedTuple):
    """What a GPU has on paper: bytes a second, and how many threads start an instruction in a second."""

    bandwidth: float
    issue: float
    multiprocessors: int
    seconds: float | None  # of a load from memory that is idle, where that is published


PAPER = {
    "sm_80": Paper(2.04e12, 108 * 128 * 1.41e9, 108, 466.3 / 1.41e9),  # A100; both latencies: arXiv:2402.13499
    "sm_90": Paper(3.35e12, 132 * 128 * 1.98e9, 132, 478.8 / 1.98e9),  # H100
    "sm_100": Paper(8.0e12, 148 * 128 * 1.98e9, 148, None),  # B200
    "gfx942": Paper(5.3e12, 304 * 64 * 2.1e9, 304, None),  # MI300X: a wave takes four cycles of each of four SIMDs
}


@dataclass(frozen=True)
class Code:
    """What a compiled kernel is made of; loop: instructions of its innermost loops."""

    target: str
    registers: int
    spills: int
    shared: int
    loads: dict[int, int]  # bits a thread -> instructions, of global memory
    stores: dict[int, int]
    instructions: int
    loop: int
    warps: int

    @property
    def programs(self) -> dict[str, int]:
        """How many programs run at once on a multiprocessor, by what there is of each thing."""
        used = max(-(-self.registers // 8) * 8, 8)
        if TARGETS[self.target][0] == "cuda":
            registers, threads = REGISTERS // (used * 32 * self.warps), THREADS // (32 * self.warps)
            shared = SHARED[self.target] // (self.shared + SYSTEM)
        else:
            registers, threads = 4 * min(VECTORS // used, WAVES) // self.warps, 4 * WAVES // self.warps
            shared = LOCAL // self.shared if self.shared else threads
        return {"threads": threads, "registers": registers, "programs": MOST_PROGRAMS, "shared": shared}

    @property
    def occupancy(self) -> float:
        """The share of a multiprocessor's threads that registers and shared memory let run at once."""
        return min(self.programs.values()) / self.programs["threads"]

    @property
    def limit(self) -> str:
        """What keeps it from being full, if anything does."""
        return min(self.programs, key=self.programs.__getitem__) if self.occupancy < 1 else ""

    def hidden(self, loaded: float) -> float:
        """How many seconds a load may take for memory to be kept busy by all that is under way at a time.

        loaded: bytes a thread waits for at once.
        """
        paper = PAPER[self.target]
        return self.occupancy * THREADS * loaded * paper.multiprocessors / paper.bandwidth

    def best(self, loaded: float, needed: float, each: float) -> float:
        """The share of a copy's speed that a kernel can reach, were all that it reads again in the cache.

        By what is under way at a time, to the latency of memory where that is known, and by how many instructions are
        started. loaded: bytes a thread waits for at once. needed: bytes an entry must move. each: instructions of it.
        """
        paper = PAPER[self.target]
        kept_busy = 1.0 if paper.seconds is None else self.hidden(loaded) / paper.seconds
        return min(1.0, kept_busy, paper.issue / each * needed / paper.bandwidth)

    def row(self) -> dict[str, Any]:
        """All of it, for a table or a file."""
        return {**asdict(self), "occupancy": self.occupancy, "limit": self.limit}


def compiled(
    kernel,
    types: Mapping[str, str | None],
    constants: Mapping[str, Any],
    warps: int,
    target: str,
    aligned: Iterable[str],
):
    """Compile `kernel` for a target: types of its arguments by name, None for an absent one.

    aligned: the arguments that are known to be divisible by 16.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: types.get(name) or "constexpr" for name in kernel.arg_names}
    given = {name: constants.get(name) for name, kind in signature.items() if kind == "constexpr"}
    attrs = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned if types.get(name)}
    source = ASTSource(fn=kernel, signature=signature, constexprs=given, attrs=attrs)
    return triton.compile(source, target=GPUTarget(*TARGETS[target]), options={"num_warps": warps})


def read(binary, target: str, warps: int) -> Code:
    """What the machine code of a compiled kernel tells."""
    code = (_read_cuda if TARGETS[target][0] == "cuda" else _read_amd)(binary, target, warps)
    looping = "scf.for" in binary.asm["ttir"]  # code without a loop may jump back too, from where it stands apart
    return code if looping else replace(code, loop=0)


def _read_cuda(binary, target: str, warps: int) -> Code:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary.asm["cubin"])
        usage = _tool("cuobjdump", "-res-usage", file.name)
        listing = _tool("nvdisasm", "-c", file.name)
    resources = {name: int(number) for name, number in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", usage)}
    code = lines(listing.split("\n        .weak")[0], r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)(.*)")
    code = straight(code)
    names = [line.name for line in code]
    local = sum(name.startswith(("LDL", "STL")) for name in names)
    return Code(
        target, resources["REG"], resources["STACK"] + resources["LOCAL"] + local, binary.metadata.shared,
        _widths(names, "LDG"), _widths(names, "STG"), len(code), looped(code), warps,
    )  # fmt: skip


class Line(NamedTuple):
    """An instruction: its name, the labels before it, and where it jumps to."""

    name: str
    labels: tuple[str, ...]
    to: str | None


def lines(listing: str, instruction: str) -> list[Line]:
    """The instructions of a listing, up to where it is padded; `instruction` matches name and operands.

    >>> lines("a:\\n add 1\\n bra a", r"\\s+(\\w+)(.*)")
    [Line(name='add', labels=('a',), to=None), Line(name='bra', labels=(), to='a')]
    """
    instructions: list[Line] = []
    labels: list[str] = []
    known = set(re.findall(r"^([\w.$]+):", listing, re.MULTILINE))
    for line in listing.split("\n"):
        if label := re.match(r"([\w.$]+):", line):
            labels.append(label[1])
        elif match := re.match(instruction, line):
            name, operands = match[1], re.findall(r"[\w.$]+", match[2])
            to = next((one for one in operands if one in known), None)
            if name in ("NOP", "s_nop", "s_code_end") or to in labels:  # what follows the end jumps to itself
                continue
            instructions.append(Line(name, tuple(labels), to))
            labels = []
    return instructions


def straight(code: list[Line]) -> list[Line]:
    """The instructions without the few that call what is seldom called: a quotient of subnormal numbers.

    >>> code = lines("a:\\n jump c\\n move\\n CALL\\nc:\\n add\\n", r"\\s+(\\w+)(.*)")
    >>> [line.name for line in straight(code)]
    ['jump', 'add']

    A call of a place in the kernel itself, by which sm_80 leaves loops, is a jump.
    """
    blocks: list[list[Line]] = [[]]
    for line in code:
        if line.labels:
            blocks.append([])
        blocks[-1].append(line)
        if line.to is not None:
            blocks.append([])
    seldom = [
        any(line.name.startswith("CALL") and not (line.to or "").startswith(".L") for line in block) for block in blocks
    ]
    return [line for block, left_out in zip(blocks, seldom, strict=True) if not left_out for line in block]


def looped(code: list[Line]) -> int:
    """How many instructions are in loops that load from memory and have no such loop in them.

    >>> code = lines("a:\\n add 1\\nb:\\n LDG 1\\n bra b\\n bra a\\n end", r"\\s+(\\w+)(.*)")
    >>> looped(code)
    2
    """
    begins = {label: i for i, line in enumerate(code) for label in line.labels}
    jumps = {(begins[line.to], i) for i, line in enumerate(code) if line.to in begins and begins[line.to] <= i}
    loads = [i for i, line in enumerate(code) if re.match(r"LDG|(global|buffer|flat)_load", line.name)]
    loops = {(a, b) for a, b in jumps if any(a <= i <= b for i in loads)}
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    return sum(b - a + 1 for a, b in inner)


def _widths(code: list[str], name: str) -> dict[int, int]:
    widths: dict[int, int] = {}
    for instruction in code:
        first, *parts = instruction.split(".")
        if first in (name, f"{name}STS"):  # which goes to shared memory at once
            bits = next((BITS[part] for part in parts if part in BITS), 32)
            widths[bits] = widths.get(bits, 0) + 1
    return widths


def _read_amd(binary, target: str, warps: int) -> Code:
    listing = binary.asm["amdgcn"]

    def number(pattern: str) -> int:
        return int(re.search(pattern + r":?\s+(\d+)", listing)[1])  # type: ignore[index]

    code = lines(listing.split("\n.Lfunc_end")[0], r"\s+([a-z]\w+)(.*)")
    widths = {"ubyte": 8, "ushort": 16, "short": 16, "byte": 8, "dword": 32, "dwordx2": 64, "dwordx4": 128}

    def counted(verb: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for name, *_ in code:
            match = re.match(rf"(?:global|buffer|flat)_{verb}_(?:short_)?(\w+?)(?:_d16\w*)?$", name)
            if match:
                bits = widths.get(match[1], 16)
                counts[bits] = counts.get(bits, 0) + 1
        return counts

    spills = number(r"\.vgpr_spill_count") + number(r"\.sgpr_spill_count")
    return Code(
        target, number(r"\.vgpr_count"), spills, binary.metadata.shared,
        counted("load"), counted("store"), len(code), looped(code), warps,
    )  # fmt: skip


def _tool(name: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
