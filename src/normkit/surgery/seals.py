"""Checksums of a model's folder, by which a damaged file is named and never read as another model."""

from __future__ import annotations

import hashlib
from pathlib import Path

SEALS = "normkit.sha256"  # in the form of sha256sum: `sha256sum -c normkit.sha256` checks it too
READ = (
    *("model.safetensors", "model-*.safetensors", "model.safetensors.index.json", "normkit.safetensors"),
    *("config.json", "original/config.json", "original/generation_config.json", "normkit.json"),
)
SEALED = (*READ, "*.safetensors", "*.safetensors.index.json", "*config.json")  # others may be put beside them later
AT_ONCE = 1 << 20


def seal_lines(folder: Path) -> str:
    """Return the lines of a folder's checksums: of weights, configuration, and what says what is where."""
    files = sorted({file for pattern in SEALED for file in folder.glob(pattern)})
    return "".join(f"{_checksum(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)


def check_seals(folder: str) -> None:
    """Require that a folder's files are what was written; those of before there were checksums have none."""
    seals = Path(folder, SEALS)
    if not seals.is_file():
        return
    sealed: set[str] = set()
    for line in seals.read_bytes().decode(errors="replace").splitlines():
        checksum, spaces, name = line.partition("  ")
        if not spaces or not (file := Path(folder, name)).is_file():
            raise ValueError(f"{seals} is damaged, or a file that it names is missing: {line!r}")
        if _checksum(file) != checksum:
            raise ValueError(
                f"{file} is damaged: it is not what was written, by {seals}; delete the latter if a change was meant"
            )
        sealed.add(name)
    read = {file.relative_to(folder).as_posix() for pattern in READ for file in Path(folder).glob(pattern)}
    if not sealed or (read := read - sealed):
        lacks = f"no line for {min(read)}" if read else "no lines"
        raise ValueError(f"{seals} is damaged: it has {lacks}; delete it if a change was meant")


def _checksum(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while part := content.read(AT_ONCE):
            digest.update(part)
    return digest.hexdigest()
