"""What bytes predict beside what was published of an H100: ``python benchmarks/h100.py`` prints the table.

None of it was measured here. It shows how far a count of bytes may be trusted: to a tenth or so on long rows, half way
on short ones, and not at all where a pass is shorter than its launches.
"""

from __future__ import annotations

from typing import NamedTuple

BANDWIDTH = 3.35e12  # bytes a second of an H100 with HBM3, on paper


class Published(NamedTuple):
    """A number that somebody published: its rows and width, bytes an entry moves, launches, and seconds."""

    what: str
    source: str
    rows: int
    width: int
    moved: int
    launches: int
    seconds: float | None = None
    rate: float | None = None

    @property
    def bytes(self) -> int:
        """All that must move."""
        return self.rows * self.width * self.moved

    @property
    def took(self) -> float:
        """Seconds, from the rate where that was published."""
        return self.seconds if self.seconds is not None else self.bytes / self.rate  # type: ignore[operator]

    @property
    def predicted(self) -> float:
        """Seconds that the bytes take at full speed."""
        return self.bytes / BANDWIDTH


PUBLISHED = (
    Published("quack, layer norm forward, bfloat16", "quack #7", 32768, 32768, 4, 1, rate=2988e9),
    Published("torch in the same place", "quack #7", 32768, 32768, 4, 1, rate=2356e9),
    Published("torch, layer norm of short rows, after a change", "pytorch #168335", 2**20, 512, 4, 1, rate=2000e9),
    Published("Liger, RMS norm backward, bfloat16", "Liger's table, v0.8.0", 4096, 1024, 6, 2, seconds=0.30e-3),
)


def rows() -> list[str]:
    """Lines of a table."""
    return [
        f"| {p.what} ({p.source}) | {p.rows} x {p.width} | {p.launches} | {p.predicted * 1e3:.3f} ms | "
        f"{p.took * 1e3:.3f} ms | {p.predicted / p.took:.0%} |"
        for p in PUBLISHED
    ]


HEAD = (
    "| published | rows x width | launches | the bytes alone | published | share |",
    "| --- | --- | --- | --- | --- | --- |",
)

if __name__ == "__main__":
    print("\n".join([*HEAD, *rows()]))
