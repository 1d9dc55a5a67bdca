"""A flow as a file, which holds tensors and plain values only."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from normkit.density._flow import Flow
from normkit.density._named import flow
from normkit.files import beside, check_archive

PARTS = {"flow", "state"}


def save(path: str | Path, model: Flow, recipe: Mapping[str, Any], **more: Any) -> None:
    """Write a flow with what :func:`flow` was handed to build it, and tensors and plain values beside it."""
    file = io.BytesIO()
    torch.save({"flow": dict(recipe), "state": model.state_dict(), **more}, file)
    with beside(Path(path)) as temporary:
        temporary.write_bytes(file.getvalue())


def load(path: str | Path) -> Flow:
    """Return a flow that ``normkit fit`` has written to ``path``; a file that is damaged is named.

    >>> nk.density.load("normkit-fit/spline-coupling.pt").sample(3).shape  # doctest: +SKIP
    torch.Size([3, 2])
    """
    return read(path)[0]


def read(path: str | Path) -> tuple[Flow, dict[str, Any]]:
    """Return a flow, and what was written beside it."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    try:
        check_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, dict) or not content.keys() >= PARTS:
            raise ValueError("it has not the parts of one")
        model = flow(**content.pop("flow"))
        model.load_state_dict(content.pop("state"))
    except Exception as error:  # a damaged archive can raise nearly anything
        why = str(error).partition("\n")[0] or type(error).__name__
        raise ValueError(f"{path} is no flow, or is damaged: {why}") from error
    return model, content
