"""How many rows a program takes, and on how many warps: a small fixed table by width; nothing is searched.

A thread holds eight of a program's entries, which is one load of 128 bits in half precision, and more only where rows
are long. Short rows go several to a program. Past the widest block a row is walked along.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST_FORWARD, LONGEST_BACKWARD = 16384, 8192  # entries of a row that a program holds in registers
STEP = 4096  # entries at a time of a row that is walked along
ENTRIES, MOST_ROWS = 1024, 256  # of a program on four warps; rows of it


class Setting(NamedTuple):
    """What a kernel is compiled for."""

    rows: int
    block: int
    warps: int
    long: bool = False


def forward(dim: int) -> Setting:
    """For the forward pass over rows of `dim` entries."""
    return _setting(dim, LONGEST_FORWARD)


def backward(dim: int) -> Setting:
    """For the backward pass."""
    return _setting(dim, LONGEST_BACKWARD)


def _setting(dim: int, longest: int) -> Setting:
    if dim > longest:
        return Setting(1, STEP, 8, True)
    block = power_of_two(dim)
    rows = min(MOST_ROWS, max(1, ENTRIES // block))
    return Setting(rows, block, min(16, max(4, 4 * block // ENTRIES)))


def heads(dim: int) -> Setting:
    """For turned heads: the pairs of each are a block."""
    block = power_of_two(dim // 2)
    return Setting(max(1, ENTRIES // (2 * block)), block, 4)


def points(width: int) -> Setting:
    """For entry by entry: a tile of rows, and of columns where rows are long."""
    block = min(ENTRIES, power_of_two(width))
    return Setting(min(MOST_ROWS, ENTRIES // block), block, 4)


GAINS = Setting(16, 128, 4, True)  # of rows that are walked along: columns by rows of a tile


def power_of_two(dim: int) -> int:
    """The smallest that is no smaller.

    >>> power_of_two(768), power_of_two(1)
    (1024, 1)
    """
    return 1 << max(0, dim - 1).bit_length()


def programs(rows: int, setting: Setting, processors: int) -> tuple[int, int]:
    """How many programs share the rows of a backward pass, and how many rows each takes.

    Each makes a partial sum of the gains' gradient, so there are no more than fill the GPU.
    """
    most = processors * max(1, 16 // setting.warps)
    chunk = -(-rows // most)
    chunk = -(-chunk // setting.rows) * setting.rows
    return -(-rows // chunk), chunk
