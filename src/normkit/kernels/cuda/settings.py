"""How many rows a program takes, and on how many warps: a small fixed table by width; nothing is searched.

Forward a warp has rows of up to 512 entries for itself, so that nothing goes through shared memory. Backward a program
keeps sums as well, which somebody adds up: few programs have several rows at a time, on four warps. In longer rows a
thread holds sixteen entries, two loads of 128 bits in half precision, or more where the row is so cut into tiles that
are all full. Past the widest block a row is walked along. The numbers are those that were quickest on an H100.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST_FORWARD, LONGEST_BACKWARD = 32768, 8192  # entries of a row that a program holds in registers
MOST_FORWARD, MOST_BACKWARD = 40, 24  # entries of a row that a thread holds
HALF_FULL = 16384  # entries of a row for which sixteen warps have registers enough
KNOWN = 128  # widths that it divides are compiled for one by one
STEP = 4096  # entries at a time of a row that is walked along
ENTRIES, MOST_ROWS = 1024, 256  # of a program that has whole rows; rows of it
SUMMED = 2048  # entries of a program's short rows where it keeps sums of them

TILE, LINE = 1024, 512  # entries of a tile of channels, and of one channel in it
LAST, CHANNELS = 2048, 32  # where channels are last: entries of a tile, channels of it
SMALL, MOST_SIDE = 256, 16  # entries of a program's small matrices; rows of one
WHOLE = 4096  # entries of a tile that has a unit of channels whole, if that has fewer
FILLING, FILLING_LAST = 8, 4  # programs a multiprocessor
MOST_STEPS, MOST_PIECES = 64, 4096  # tiles a program; programs a plane
POSITIONS = 2048  # entries of a tile of positions


class Setting(NamedTuple):
    """What a kernel is compiled for."""

    rows: int
    block: int
    warps: int
    long: bool = False


def forward(dim: int) -> Setting:
    """For the forward pass over rows of `dim` entries.

    >>> forward(64).rows, forward(768).rows, forward(4096).rows
    (16, 4, 1)
    """
    block = power_of_two(dim)
    if dim > LONGEST_FORWARD or block > ENTRIES:
        return _one_row(dim, LONGEST_FORWARD, MOST_FORWARD)
    if block == ENTRIES:
        return Setting(4, block, 4 if dim == block else 1)  # of four warps the last would have few entries
    return Setting(min(MOST_ROWS, ENTRIES // block), block, 1)


def backward(dim: int) -> Setting:
    """For the backward pass."""
    block = power_of_two(dim)
    if dim > LONGEST_BACKWARD or block > ENTRIES:
        return _one_row(dim, LONGEST_BACKWARD, MOST_BACKWARD)
    return Setting(max(1, min(MOST_ROWS, SUMMED // block)), block, 4)


def _one_row(dim: int, longest: int, most: int) -> Setting:
    if dim > longest:
        return Setting(1, STEP, 8, True)
    block = power_of_two(dim)
    return Setting(1, block, _warps(dim, block, most))


def _warps(dim: int, block: int, most: int) -> int:
    """Sixteen entries a thread, or up to `most` where tiles, of eight entries a thread each, are then all full.

    >>> _warps(4096, 4096, 40), _warps(5120, 8192, 40), _warps(5000, 8192, 40)
    (8, 4, 16)
    """
    usual = min(16, max(4, 2 * block // ENTRIES)) if block <= HALF_FULL else 32
    fewer = (usual >> i for i in range(3))
    return next((warps for warps in fewer if dim % (256 * warps) == 0 and dim <= 32 * warps * most), usual)


def compiled_width(dim: int) -> int:
    """The width that a kernel of whole rows is compiled for, so that it has no masks it does not need; 0 for any.

    >>> compiled_width(768), compiled_width(1000)
    (768, 0)
    """
    return 0 if dim % KNOWN else dim


def heads(dim: int) -> Setting:
    """For turned heads: the pairs of each are a block."""
    block = power_of_two(dim // 2)
    return Setting(max(1, ENTRIES // (2 * block)), block, 4)


def points(width: int) -> Setting:
    """For entry by entry: a tile of rows, and of columns where rows are long, which are all there if that can be.

    >>> points(384).block, points(200).block
    (128, 256)
    """
    even = width & -width
    block = min(ENTRIES, even if even >= KNOWN else power_of_two(width))
    return Setting(min(MOST_ROWS, ENTRIES // block), block, 4)


def points_backward(width: int) -> Setting:
    """For their gradients: several short rows at a time, whose sums few programs keep."""
    block = min(ENTRIES, power_of_two(width))
    return Setting(max(1, min(MOST_ROWS, SUMMED // block)) if block >= width else 1, block, 4)


def matrices(side: int) -> Setting:
    """For small matrices of `side` rows, which a program holds whole, several at once: eight entries a thread."""
    block = power_of_two(side)
    rows = max(1, SMALL // block**2)
    return Setting(rows, block, max(1, rows * block**2 // 256))


class Pieces(NamedTuple):
    """How channels are shared out: tiles of rows by a block, `steps` of them a piece, `pieces` of a plane or sample."""

    rows: int
    block: int
    steps: int
    pieces: int
    warps: int = 4


def channels(samples: int, channels: int, space: int, last: bool, processors: int) -> Pieces:
    """For channels first or last, on a GPU of so many multiprocessors.

    A unit is cut into pieces where its whole would not fill the GPU, and where it would be added up over many steps.
    """
    tile, filling = (LAST, FILLING_LAST) if last else (TILE, FILLING)
    block = min(CHANNELS, power_of_two(channels)) if last else min(LINE, power_of_two(space))
    rows = max(1, min(MOST_ROWS, tile // block))
    beside = samples * -(-channels // block) if last else -(-samples * channels // rows)
    tiles = -(-space // (rows if last else block))
    pieces = min(tiles, MOST_PIECES, max(-(-filling * processors // beside), -(-tiles // MOST_STEPS)))
    steps = -(-tiles // pieces)
    return Pieces(rows, block, steps, -(-tiles // steps))


def unit(group: int, space: int) -> Setting | None:
    """For a group of channels that one program holds; None where it is too large.

    It goes by the bits of `space`, as the kinds do that are tried out: images of like sizes go the same way.
    """
    if power_of_two(group) << space.bit_length() > WHOLE:
        return None
    rows, block = power_of_two(group), power_of_two(space)
    return Setting(rows, block, min(8, max(1, rows * block // 512)))


def positions(channels: int, space: int) -> Setting:
    """For vectors of channels across memory: some neighbouring ones, some channels at a time."""
    block = min(64, power_of_two(space))
    return Setting(max(1, min(POSITIONS // block, power_of_two(channels))), block, 4)


def sum_sizes(units: int, members: int) -> tuple[int, int]:
    """How many units a program adds up, and how many of their cells at a time."""
    many = min(256, power_of_two(members))
    return min(power_of_two(units), max(1, 512 // many)), many


GAINS = Setting(16, 128, 4, True)  # of rows that are walked along: columns by rows of a tile
SUMS = Setting(128, 16, 4)  # of the programs' sums: programs by columns of a tile


def power_of_two(dim: int) -> int:
    """The smallest that is no smaller.

    >>> power_of_two(768), power_of_two(1)
    (1024, 1)
    """
    return 1 << max(0, dim - 1).bit_length()


def programs(rows: int, setting: Setting, processors: int) -> tuple[int, int]:
    """How many programs share the rows of a backward pass, and how many rows each takes.

    Each makes a partial sum of the gains' gradient, so there are no more than fill the GPU: on an H100 eight a
    multiprocessor where tiles are small, one where they are large.
    """
    tile = setting.block if setting.long else setting.rows * setting.block
    most = processors * max(1, min(8, LONGEST_BACKWARD // tile))
    chunk = -(-rows // most)
    chunk = -(-chunk // setting.rows) * setting.rows
    return -(-rows // chunk), chunk
