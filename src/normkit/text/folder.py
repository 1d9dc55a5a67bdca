"""A normalizer as a folder: JSON for settings and vocabulary, arrays for what was indexed; nothing in it is run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from normkit import catalog
from normkit.families import Family
from normkit.files import check_replaceable, folder_beside, require_place, restore
from normkit.kinds import Text
from normkit.text.decide.fusion import Fusion
from normkit.text.rewrite.fold import fold

if TYPE_CHECKING:
    from normkit.text.normalizer import Normalizer

FORMAT, VERSION = "normkit.text.Normalizer", 1
SETTINGS, VOCABULARY = "normalizer.json", "vocabulary.json"
STEPS = Family("text-step", "STEP", "text/rewrite", "text/candidates", "text/rescore", "text/decide")
ROLES = ("rewrite", "candidates", "rescore", "decide", "fuse")


def _steps() -> dict[str, Any]:
    """The steps by the names of their classes, as folders have them."""
    return {step.__name__: step for step in STEPS.values()}


def save(norm: Normalizer, path: Path) -> None:
    """Write a fitted normalizer; an earlier one in the folder is replaced, and other files there stay."""
    names, earlier = norm._fit(), _earlier_files(path)
    parts = {role: [_description(part, path) for part in _parts(norm, role)] for role in ROLES}
    with folder_beside(path) as folder:
        files = {VOCABULARY: json.dumps(names).encode()}
        (folder / VOCABULARY).write_bytes(files[VOCABULARY])
        for at, part in enumerate(norm.candidates):
            if type(part).__name__ in _steps() and hasattr(part, "arrays"):
                name = f"candidates-{at}.npz"
                np.savez(folder / name, **part.arrays())
                files[name] = (folder / name).read_bytes()
        settings: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "parts": parts,
            "fusion": None if norm.fusion is None else norm.fusion.settings(),
            "tuned": norm.tuned,
            "nothing": sorted(norm.nothing),
            "decided": norm._decided,
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        }
        settings["files"][SETTINGS] = _seal(settings)
        (folder / SETTINGS).write_text(json.dumps(settings, indent=1), encoding="utf-8")
        if path.exists():
            own = {*earlier, *settings["files"]}
            shutil.copytree(
                path, folder, symlinks=True, ignore=lambda at, _: own if at == str(path) else (), dirs_exist_ok=True
            )


def require_writable(path: Path) -> None:
    """Refuse a folder that no normalizer can be written into, before long work."""
    _earlier_files(path)
    check_replaceable(path)
    require_place(path)


def _earlier_files(path: Path) -> Iterable[str]:
    """Return the names of the files of the normalizer that is to be replaced; what is none is refused."""
    restore(path)
    try:
        return _settings(path).get("files", ()) if path.exists() else ()
    except ValueError as error:
        raise ValueError(f"{error}; it stays as it is") from None


def _seal(settings: Mapping[str, Any]) -> str:
    """A checksum of all settings, which stands among those of the other files."""
    others = {name: seal for name, seal in settings["files"].items() if name != SETTINGS}
    return hashlib.sha256(json.dumps({**settings, "files": others}, sort_keys=True).encode()).hexdigest()


def load(kind: type[Normalizer], path: Path, parts: Mapping[str, Any]) -> Normalizer:
    """Read a folder; ``parts`` are those that it could not hold."""
    unknown = sorted(set(parts) - set(ROLES))
    if unknown:
        raise TypeError(f"load takes {', '.join(ROLES)}, not {', '.join(unknown)}")
    restore(path)
    settings = _settings(path)
    try:
        _check_whole(path, settings)
        return _read_folder(kind, path, parts, settings)
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"{path / SETTINGS} is damaged: {type(error).__name__}: {error}") from error


def _check_whole(path: Path, settings: Mapping[str, Any]) -> None:
    """Require that settings are what this version wrote; those of before they had a checksum name files alone."""
    if settings.get("version") != VERSION:
        raise ValueError(
            f"{path} is of version {settings.get('version')} of its format, and this normkit reads {VERSION}; "
            "fit it again, or take the normkit that wrote it"
        )
    seal = settings["files"].get(SETTINGS)
    missing = [name for name in settings["files"] if not (path / name).is_file()]
    if missing:
        raise ValueError(f"{path} is damaged: {missing[0]} is missing")
    if seal is not None and seal != _seal(settings):
        raise ValueError(f"{path / SETTINGS} is damaged: it is not what was written")


def _read_folder(
    kind: type[Normalizer], path: Path, parts: Mapping[str, Any], settings: Mapping[str, Any]
) -> Normalizer:
    names = json.loads(_content(path, VOCABULARY, settings))
    by_role: dict[str, Any] = {
        role: parts.get(role) or [_read(one, role, path) for one in settings["parts"][role]] for role in ROLES
    }
    decide, fuse = (
        by_role[role][0] if isinstance(by_role[role], list) else by_role[role] for role in ("decide", "fuse")
    )
    norm = kind(by_role["candidates"], by_role["rescore"], decide, by_role["rewrite"], fuse)
    norm._take(names)
    for at, part in enumerate(norm.candidates):
        name = f"candidates-{at}.npz"
        if "candidates" not in parts and name in settings["files"]:
            part.restore(norm._rewritten, _arrays(path, name, settings))
        else:
            part.fit(norm._rewritten)
    norm._fit_rescorers()  # of which a folder holds nothing but settings
    fusion = settings["fusion"]
    columns = len(norm.candidates) + len(norm.rescore)
    if fusion is not None and len(fusion["weights"]) != 2 * columns:
        raise ValueError(f"{path}: weights were fitted for {len(fusion['weights']) // 2} parts, not {columns}")
    norm.fusion = None if fusion is None else Fusion(**fusion)
    norm.tuned, norm.nothing = settings["tuned"], set(settings["nothing"])
    norm._decided = settings.get("decided", {})  # folders of before have none
    return norm


def _parts(norm: Normalizer, role: str) -> list[Any]:
    parts = getattr(norm, role)
    return parts if isinstance(parts, list) else [parts]


def _description(part: Any, path: Path) -> dict[str, Any]:
    """A part by its name, settings, and where its model lies seen from the folder; one not ours by its name alone."""
    if part is fold:
        return {"function": "fold"}
    if isinstance(part, Text):
        arguments = {key: value for key, value in vars(part).items() if not key.startswith("_")}
        return {"method": part.card.name, "settings": arguments}
    if _steps().get(type(part).__name__) is type(part):
        settings = part.settings()
        kept = getattr(part, "_kept_in", None)
        seen = {"model": {kept: os.path.relpath(settings[kept], path)}} if kept else {}
        return {"part": type(part).__name__, "settings": settings, **seen}
    return {"yours": getattr(part, "__qualname__", type(part).__qualname__)}


def _read(one: Mapping[str, Any], role: str, path: Path) -> Any:
    if "function" in one:
        return fold
    if "method" in one:
        return catalog.create(one["method"], **one["settings"])
    step = _steps().get(one.get("part", ""))
    if step is not None:
        moved = {key: os.path.normpath(path.absolute() / place) for key, place in one.get("model", {}).items()}
        settings = one["settings"]
        moved = {key: place for key, place in moved.items() if os.path.isdir(place) > os.path.isdir(settings[key])}
        return step(**{**settings, **moved})
    mine = one.get("yours", one.get("part"))
    raise ValueError(
        f"{path}: {role} has the part {mine!r}, which is not of normkit; hand it in: load(..., {role}=...)"
    )


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ValueError(f"{path} is no normalizer: there is no {SETTINGS} in it") from None
    except ValueError:
        raise ValueError(f"{path / SETTINGS} is damaged: it is not JSON") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise ValueError(f"{path} is no normalizer: {SETTINGS} does not say so")
    return settings


def _content(path: Path, name: str, settings: Mapping[str, Any]) -> bytes:
    try:
        content = (path / name).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is damaged: {name} is missing") from None
    if hashlib.sha256(content).hexdigest() != settings["files"].get(name):
        raise ValueError(f"{path} is damaged: {name} is not what was written")
    return content


def _arrays(path: Path, name: str, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    _content(path, name, settings)
    try:
        with np.load(path / name, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is damaged: {name}: {error}") from None
