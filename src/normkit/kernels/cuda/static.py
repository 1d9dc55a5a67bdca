"""Kernels compiled ahead of time, for GPUs that are not here, and what their machine code tells.

Registers, spills and shared memory are the assembler's word; loads and stores are counted in its listing.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TARGETS = {  # name -> Triton's backend, architecture, threads of a warp
    "sm_80": ("cuda", 80, 32),
    "sm_90": ("cuda", 90, 32),
    "sm_100": ("cuda", 100, 32),
    "gfx942": ("hip", "gfx942", 64),
}
REGISTERS, THREADS, SHARED = 65536, 2048, 102400  # of a multiprocessor; shared memory that all four have, and more
BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "": 32, "64": 64, "128": 128, "256": 256}


@dataclass(frozen=True)
class Code:
    """What a compiled kernel is made of; None where the listing does not tell."""

    target: str
    registers: int
    spills: int
    shared: int
    loads: dict[int, int]  # bits a thread -> instructions, of global memory
    stores: dict[int, int]
    instructions: int
    warps: int

    @property
    def occupancy(self) -> float:
        """The share of a multiprocessor's threads that registers and shared memory let run at once (Nvidia's)."""
        threads = 32 * self.warps
        by_registers = REGISTERS // (max(-(-self.registers // 8) * 8, 8) * threads)
        by_shared = SHARED // self.shared if self.shared else THREADS
        return min(by_registers, by_shared, THREADS // threads) * threads / THREADS

    def row(self) -> dict[str, Any]:
        """All of it, for a table or a file."""
        own = {"occupancy": self.occupancy} if TARGETS[self.target][0] == "cuda" else {}
        return {**asdict(self), **own}


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
    if TARGETS[target][0] == "cuda":
        return _read_cuda(binary, target, warps)
    return _read_amd(binary, target, warps)


def _read_cuda(binary, target: str, warps: int) -> Code:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary.asm["cubin"])
        usage = _tool("cuobjdump", "-res-usage", file.name)
        listing = _tool("nvdisasm", "-c", file.name)
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", usage)}
    code = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?\s*([A-Z][\w.]*)", listing, re.MULTILINE)
    local = sum(name.startswith(("LDL", "STL")) for name in code)
    return Code(
        target, found["REG"], found["STACK"] + found["LOCAL"] + local, binary.metadata.shared,
        _widths(code, "LDG"), _widths(code, "STG"), len(code), warps,
    )  # fmt: skip


def _widths(code: list[str], name: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for instruction in code:
        first, *parts = instruction.split(".")
        if first == name:
            bits = next((BITS[part] for part in parts if part in BITS), 32)
            found[bits] = found.get(bits, 0) + 1
    return found


def _read_amd(binary, target: str, warps: int) -> Code:
    listing = binary.asm["amdgcn"]

    def number(pattern: str) -> int:
        return int(re.search(pattern + r":?\s+(\d+)", listing)[1])  # type: ignore[index]

    code = re.findall(r"^\s+([a-z]\w+)(?:\s|$)", listing, re.MULTILINE)
    widths = {"ubyte": 8, "ushort": 16, "short": 16, "byte": 8, "dword": 32, "dwordx2": 64, "dwordx4": 128}

    def counted(verb: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for name in code:
            match = re.match(rf"(?:global|buffer|flat)_{verb}_(?:short_)?(\w+?)(?:_d16\w*)?$", name)
            if match:
                bits = widths.get(match[1], 16)
                found[bits] = found.get(bits, 0) + 1
        return found

    spills = number(r"\.vgpr_spill_count") + number(r"\.sgpr_spill_count")
    return Code(
        target, number(r"\.vgpr_count"), spills, binary.metadata.shared,
        counted("load"), counted("store"), len(code), warps,
    )  # fmt: skip


def _tool(name: str, *arguments: str) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout
