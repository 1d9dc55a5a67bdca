"""Kernels of matrices, curves, clients' states and codes: a C library apart, which needs that of norms to be there.

>>> from normkit.kernels import special
>>> reason = special.absent()
>>> reason is None or isinstance(reason, str)
True
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from pathlib import Path

from normkit import kernels

# Beside the other library, in a folder that is no package: in one, what walks modules would take it for one.
LIBRARY = Path(os.environ.get("NORMKIT_SPECIAL_LIBRARY") or Path(kernels.__file__).with_name("cpu") / "libspecial.so")
MOST_SIDE, MOST_BINS, MOST_ROUNDS = 64, 1024, 1024  # of a matrix, of a spline, of Sinkhorn's
MATRIX, STATES = struct.Struct("3q"), struct.Struct("2q")  # plans and records of `special.h`
SPLINE, CODES, SINKHORN = struct.Struct("4q7d"), struct.Struct("2qd"), struct.Struct("3qd")
RECORDS = {
    "eigen": (MATRIX, "q", "x values vectors"),
    "symmetric": (MATRIX, "q", "x y"),
    "cholesky": (MATRIX, "q", "x factor notes"),
    "cholesky_backward": (MATRIX, "q", "factor grad dx"),
    "product": (MATRIX, "q", "factor y"),
    "product_backward": (MATRIX, "q", "factor grad dfactor"),
    "spline": (SPLINE, "q", "x widths heights slopes y log_slope"),
    "spline_backward": (SPLINE, "q", "x widths heights slopes dy dlog dx dwidths dheights dslopes"),
    "states": (STATES, "q", "table shares sent total squares"),
    "encode": (CODES, "q", "x directions signs words scale1 shift scale2"),
    "decode": (CODES, "q", "signs words table scale1 shift scale2 y"),
    "sinkhorn": (SINKHORN, "q", "x y"),
    "sinkhorn_backward": (SINKHORN, "q", "x grad dx"),
}


class Library(kernels.Gate):
    """The loaded library."""

    def __init__(self, path: Path):
        super().__init__(path, RECORDS, "normkit_special_records")
        self.eigen = self._kernel("eigen")
        self.symmetric = self._kernel("symmetric")
        self.cholesky = self._kernel("cholesky")
        self.cholesky_backward = self._kernel("cholesky_backward")
        self.product = self._kernel("product")
        self.product_backward = self._kernel("product_backward")
        self.spline = self._kernel("spline")
        self.spline_backward = self._kernel("spline_backward")
        self.states = self._kernel("states")
        self.encode = self._kernel("encode")
        self.decode = self._kernel("decode")
        self.sinkhorn = self._kernel("sinkhorn")
        self.sinkhorn_backward = self._kernel("sinkhorn_backward")
        self.use = self._function("special_use", [ctypes.c_int])


@cache
def _load() -> tuple[Library | None, str | None]:
    if kernels.cpu() is None:
        return None, kernels.status().reason
    if not LIBRARY.exists():
        return None, "the C kernels of matrices and curves were not built; install normkit again"
    try:
        return Library(LIBRARY), None
    except (OSError, AttributeError, ValueError) as error:
        return None, f"the C kernels of matrices and curves could not be loaded: {error}"


def library() -> Library | None:
    """The kernels, or None; :func:`absent` tells why."""
    return _load()[0]


def require() -> Library:
    """The kernels, which are known to be there."""
    lib = library()
    if lib is None:
        raise RuntimeError(f"the C kernels of matrices and curves are not there: {absent()}")
    return lib


def absent() -> str | None:
    """Why there are no kernels, or None."""
    return _load()[1]
