"""Files and folders that are written beside their place and then moved there, so that nobody ever sees half of one.

What is written has a name of its own, such as ``names.json.partial-1f0c2a9b``, and is locked while its writer lives, so
that writers at the same time do not meet and the next one deletes what a dead one left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL, OLD = "partial", "old"  # being written; moved aside for what takes its place
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a disk, or what one user or file may have of it
AT_ONCE = 2  # renameat2 and renamex_np: swap both
FROM_HERE = -100  # renameat2: paths as they are


class Unwritable(OSError):
    """A file cannot be written: the disk is full, or gone. No fault of what is written."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of an error inside that it is of writing ``path``."""
    try:
        yield
    except OSError as error:
        raise Unwritable(error.errno, error.strerror or str(error), str(path)) from error


def cache_folder() -> Path:
    """Return the folder for what may be deleted at any time, of this user; an OSError where the user has no home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "normkit"
    except RuntimeError as error:  # neither HOME nor an entry of the system's, as for a container's arbitrary user
        raise FileNotFoundError(errno.ENOENT, "the user has no home folder; XDG_CACHE_HOME can name another") from error


def leftovers(path: Path, kind: str = PARTIAL) -> list[Path]:
    """Return what stands beside ``path`` because its writer has not ended, or has died."""
    own = re.compile(rf"{re.escape(path.name)}\.{kind}-[0-9a-f]{{8}}")
    try:
        return sorted(one for one in path.parent.iterdir() if own.fullmatch(one.name))
    except OSError:
        return []


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Give a place beside ``path`` to write to, which then takes its place; after an error, nothing has changed.

    A link to a file stays one: what it leads to is written.
    """
    place = Path(os.path.realpath(path))
    with writing(path), _side(place, folder=False) as temp_path:
        with _mode_of(place, temp_path):
            yield temp_path
        os.replace(temp_path, place)


def require_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before long work."""
    place = Path(os.path.realpath(path))
    with writing(path), _side(place, folder=False):
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def require_place(path: Path) -> None:
    """Refuse a place where no file or folder can be written, before long work; folders above it may be missing."""
    whole = Path(os.path.realpath(path))
    above = next((one for one in whole.parents if os.path.exists(one)), whole)
    try:
        with _side(above / ".normkit", folder=True) as trial:
            _name(trial / "root" / whole.relative_to(above), PARTIAL).mkdir(parents=True)  # the root has no name
    except OSError as error:
        raise Unwritable(error.errno, f"{above}: {error.strerror}", str(path)) from error


def name_replaced(path: Path) -> str:
    """Return what to say behind the name of a file or folder that is about to be written: whether it replaces one."""
    return ", in place of an earlier one" if path.exists() else ""


def replace_file(path: Path, text: str) -> None:
    """Write a file beside its place, then move it there."""
    with beside(path) as temp_path:
        temp_path.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Give an empty folder beside ``path``, which then takes its place; after an error, nothing has changed.

    The two are swapped in one step where the system can do that. Elsewhere a process that is killed between two renames
    leaves the old folder under another name, and :func:`restore` puts it back.
    """
    path = Path(os.path.realpath(path))
    check_replaceable(path)
    require_place(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        restore(path)
        with _side(path, folder=True) as temp_folder:
            with _mode_of(path, temp_folder):
                yield temp_folder
            _take_place(temp_folder, path)


def check_replaceable(path: Path) -> None:
    """Refuse the working directory: once another folder has its place, a process in it is nowhere."""
    same = False
    with contextlib.suppress(OSError):  # there is none, or another writer has moved it aside by now
        same = path.samefile(".")
    if same:
        raise ValueError(f"{path} is the working directory; name a new folder")


def restore(path: Path) -> None:
    """Put back a folder whose writer died between moving it aside and putting another in its place."""
    for old in leftovers(path, OLD):
        with _lock(old) as owner:
            if owner is not False:
                _settle(old, path)


def _settle(old: Path, path: Path) -> None:
    """Put a folder that was moved aside back, or delete it where another one has its place."""
    with contextlib.suppress(OSError):
        if not path.exists():
            os.rename(old, path)
            return
        gone = _name(path, PARTIAL)  # one that is half deleted must not be put back
        os.rename(old, gone)
        _delete(gone)


def _take_place(source: Path, path: Path) -> None:
    """Move a folder to its place; what was there ends under the folder's old name, or is deleted."""
    while not _move(source, path) and not _swap(source, path):
        old = _name(path, OLD)
        with _lock(path):
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.rename(path, old)
                if _move(source, path):
                    return
            finally:
                _settle(old, path)


def _move(source: Path, path: Path) -> bool:
    """Whether a folder could be moved; False where another writer's stands there by now."""
    try:
        os.rename(source, path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) or path.is_dir():
            return False  # which a third writer may have moved aside since
        raise
    return True


def _swap(one: Path, other: Path) -> bool:
    """Let two folders take each other's place in one step; False where the system or its disk does not do that."""
    if sys.platform not in ("linux", "darwin"):
        return False
    library, names = ctypes.CDLL(None), (os.fsencode(one), os.fsencode(other))
    if hasattr(library, "renameat2"):
        return library.renameat2(FROM_HERE, names[0], FROM_HERE, names[1], AT_ONCE) == 0
    return hasattr(library, "renamex_np") and library.renamex_np(*names, AT_ONCE) == 0


def _name(path: Path, kind: str) -> Path:
    return path.with_name(f"{path.name}.{kind}-{secrets.token_hex(4)}")


@contextmanager
def _side(path: Path, folder: bool) -> Iterator[Path]:
    """Make an empty file or folder of a name of its own, locked; what stands there at the end is deleted."""
    for left in leftovers(path):
        with _lock(left) as owner:
            if owner:
                _delete(left)
    owner = False
    while owner is False:  # another writer took it for a dead one's before it was locked
        temp_path = _name(path, PARTIAL)
        try:
            temp_path.mkdir() if folder else temp_path.touch()
            with _lock(temp_path) as owner:
                if owner is not False:
                    yield temp_path
        finally:
            _delete(temp_path)


@contextmanager
def _mode_of(path: Path, temp_path: Path) -> Iterator[None]:
    """Let nobody read or change what is written who may not do so with what it replaces, not even meanwhile."""
    mode = None
    with contextlib.suppress(FileNotFoundError):  # another writer may have moved it aside
        mode = stat.S_IMODE(path.stat().st_mode)
    if mode is not None:
        temp_path.chmod(mode | stat.S_IRWXU)
    yield
    if mode is not None:
        temp_path.chmod(mode)


@contextmanager
def _lock(path: Path) -> Iterator[bool | None]:
    """Lock a file or folder until the end, or the death of the process; None where the system has no such locks.

    False where another process has it, or has deleted it.
    """
    try:
        import fcntl
    except ImportError:
        yield None
        return
    handle = None
    try:
        handle = os.open(path, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        owner: bool | None = os.path.exists(path)
    except (BlockingIOError, FileNotFoundError):
        owner = False
    except OSError:
        owner = None
    try:
        yield owner
    finally:
        if handle is not None:
            os.close(handle)


def _delete(path: Path) -> None:
    """Delete a file or folder, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(path)
        except (IsADirectoryError, PermissionError):  # which of them depends on the system
            shutil.rmtree(path, ignore_errors=True)


def check_archive(path: Path) -> None:
    """Require that each part of an archive, such as torch and NumPy write, is what its checksum says."""
    with zipfile.ZipFile(path) as archive:
        torn = archive.testzip()
    if torn is not None:
        raise ValueError(f"its part {torn} is not what was written")


class Tail:
    """Follows a file that others write, reading only what was added."""

    def __init__(self, path: Path):
        self.path, self.place, self.file = path, 0, 0

    def added(self) -> tuple[bool, list[bytes]]:
        """Return whether the file was begun anew, and its whole lines since the last call, then from its beginning."""
        try:
            with self.path.open("rb") as file:
                stat = os.fstat(file.fileno())
                anew = stat.st_ino != self.file or stat.st_size < self.place
                self.file, self.place = stat.st_ino, 0 if anew else self.place
                file.seek(self.place)
                content = file.read()
        except FileNotFoundError:
            return False, []
        whole = content[: content.rfind(b"\n") + 1]
        self.place += len(whole)
        return anew, [line for line in whole.split(b"\n") if line]
