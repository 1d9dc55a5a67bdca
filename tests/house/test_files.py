"""A file or folder that is written beside its place: whole, old or new, wherever its writer is stopped."""

import contextlib
import itertools
import os
import shutil
import signal
import stat
import sys
import threading

import pytest

from normkit import files
from normkit.surgery import saving

CALLS = ("mkdir", "rename", "replace", "rmdir", "unlink", "open", "close", "scandir", "utime", "stat", "lstat")


class Stopped(BaseException):
    """Ctrl-C."""


@pytest.fixture(params=["swap", "two renames"], autouse=True)
def way(request, monkeypatch):
    """Where the system swaps two folders in one step, and where it cannot."""
    if request.param == "two renames":
        monkeypatch.setattr(files, "_swap", lambda one, other: False)
    return request.param


def save(path, text):
    with files.folder_beside(path) as there:
        (there / "a").write_text(text)
        (there / "b").write_text(text)


def whole(path):
    """The text of a folder that was saved whole."""
    assert sorted(one.name for one in path.iterdir()) == ["a", "b"]
    texts = {one.read_text() for one in path.iterdir()}
    assert len(texts) == 1
    return texts.pop()


def stopping(monkeypatch, count, stop):
    """Stop at a system call: ``stop`` is called in place of the one with this number. Returns how many there were."""
    counter = itertools.count()
    seen = []

    def wrapped(call):
        def called(*given, **options):
            seen.append(call.__name__)
            if next(counter) == count:
                stop()
            return call(*given, **options)

        return called

    for name in CALLS:
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    return seen


def calls_of_a_save(path):
    with pytest.MonkeyPatch.context() as patch:
        seen = stopping(patch, -1, None)
        save(path, "new")
    return len(seen)


def raised():
    raise Stopped


def test_stopped_at_any_system_call_the_folder_is_the_old_or_the_new_one(tmp_path):
    path = tmp_path / "names"
    save(path, "old")
    for count in range(calls_of_a_save(path)):
        save(path, "old")
        with pytest.MonkeyPatch.context() as patch:
            stopping(patch, count, raised)
            with contextlib.suppress(Stopped):
                save(path, "new")
        assert whole(path) in ("old", "new")
        save(path, "later")
        assert whole(path) == "later"
        assert [one.name for one in tmp_path.iterdir()] == ["names"]


def test_stopped_at_any_line_the_folder_is_the_old_or_the_new_one(tmp_path):
    path, stopped = tmp_path / "names", 0
    for line in itertools.count():
        save(path, "old")
        lines = itertools.count()

        def trace(frame, event, argument, lines=lines, line=line):
            if frame.f_code.co_filename != files.__file__:
                return None
            if event == "line" and next(lines) == line:
                raise Stopped
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            save(path, "new")
        except Stopped:
            stopped += 1
        finally:
            sys.settrace(before)
        files.restore(path)
        assert whole(path) in ("old", "new"), line
        if next(lines) <= line:
            break
    assert stopped > 30
    save(path, "later")
    assert [one.name for one in tmp_path.iterdir()] == ["names"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_killed_at_any_system_call_the_next_save_or_restore_finds_the_folder_whole(tmp_path):
    path = tmp_path / "names"
    save(path, "old")
    for count in range(calls_of_a_save(path)):
        save(path, "old")
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                stopping(pytest.MonkeyPatch(), count, lambda: os.kill(os.getpid(), signal.SIGKILL))
                save(path, "new")
            os._exit(0)
        os.waitpid(child, 0)
        files.restore(path)
        assert whole(path) in ("old", "new")
        save(path, "later")
        assert whole(path) == "later"
        assert [one.name for one in tmp_path.iterdir()] == ["names"]


def test_a_full_disk_after_a_kill_between_the_renames_loses_nothing(tmp_path):
    path = tmp_path / "names"
    save(path, "old")
    os.rename(path, files._name(path, files.OLD))
    with pytest.raises(files.Unwritable, match="No space"), files.folder_beside(path):
        raise OSError(28, "No space left on device")
    assert whole(path) == "old"


def test_savers_at_once_do_not_meet(tmp_path):
    path, failed = tmp_path / "names", []

    def saver(number):
        for turn in range(20):
            try:
                save(path, f"{number}, {turn}")
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=saver, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    whole(path)
    assert [one.name for one in tmp_path.iterdir()] == ["names"]


def test_a_folder_that_another_writer_moves_aside_at_any_system_call_stops_no_save(tmp_path):
    path, rename = tmp_path / "names", os.rename
    save(path, "old")

    def moved_aside():
        if os.path.isdir(path):
            rename(path, tmp_path / "aside")

    for count in range(calls_of_a_save(path) - 1):
        save(path, "old")
        with pytest.MonkeyPatch.context() as patch:
            stopping(patch, count, moved_aside)
            save(path, "new")
        assert not path.exists() or whole(path) in ("old", "new")
        shutil.rmtree(tmp_path / "aside", ignore_errors=True)


def test_files_of_the_users_with_similar_names_stay(tmp_path):
    path = tmp_path / "names"
    for name in ("names.old", "names.partial", "names.partial-1f0c2a9b.txt"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("mine")
    save(path, "old")
    save(path, "new")
    assert len(list(tmp_path.glob("*/mine"))) == 3


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    save(tmp_path / "there", "old")
    (tmp_path / "names").symlink_to(tmp_path / "there")
    save(tmp_path / "names", "new")
    assert (tmp_path / "names").is_symlink()
    assert whole(tmp_path / "there") == "new"


def test_a_link_to_a_file_stays_a_link(tmp_path):
    (tmp_path / "names").symlink_to(tmp_path / "there")
    for text in ("old", "new"):
        files.replace_file(tmp_path / "names", text)
        assert (tmp_path / "names").is_symlink()
        assert (tmp_path / "there").read_text() == text


def test_a_place_that_cannot_be_written_is_refused_with_the_folder_that_is_why_and_nothing_is_made(tmp_path):
    (tmp_path / "mine").write_text("mine")
    for place in ("mine/names", "mine/new/names"):
        for write in (files.require_place, lambda path: save(path, "new")):
            with pytest.raises(files.Unwritable) as error:
                write(tmp_path / place)
            assert str(error.value) == f"{tmp_path / place} cannot be written: {tmp_path / 'mine'}: Not a directory"
    files.require_place(tmp_path / "new/er/names")
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]


@pytest.mark.skipif(os.name == "nt", reason="names may be shorter there")
def test_names_may_be_as_long_as_the_system_takes_them(tmp_path):
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    for name in ("n" * longest + "/names", "new/" + "n" * (longest - len(".partial-12345678"))):
        files.require_place(tmp_path / name)
        save(tmp_path / name, "new")
        assert whole(tmp_path / name) == "new"
    for name in ("n" * (longest + 1) + "/names", "n" * longest, "never/" + "n" * longest):
        with pytest.raises(files.Unwritable, match=f"^{tmp_path / name} cannot be written: {tmp_path}: File name too"):
            files.require_place(tmp_path / name)
    assert sorted(one.name[:3] for one in tmp_path.iterdir()) == ["new", "nnn"]


@pytest.mark.skipif(os.name == "nt", reason="its root has another name")
def test_the_root_is_a_folder_that_exists_already():
    with pytest.raises((ValueError, files.Unwritable), match=r"^/ (exists already; name|cannot be written: /:)"):
        saving.new_folder("/")


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_a_folder_that_takes_no_other_is_named():
    with pytest.raises(files.Unwritable, match=r"^/proc/new/names cannot be written: /proc: No such file"):
        files.require_place(files.Path("/proc/new/names"))


def test_the_working_directory_stays_by_whatever_path_it_is_named(tmp_path, monkeypatch):
    save(tmp_path / "names", "old")
    (tmp_path / "link").symlink_to(tmp_path / "names")
    monkeypatch.chdir(tmp_path / "names")
    for path in (files.Path("."), files.Path("../link"), tmp_path / "names"):
        with pytest.raises(ValueError, match=f"^{tmp_path / 'names'} is the working directory; name a new folder$"):
            save(path, "new")
        assert whole(files.Path(".")) == "old"
    save(files.Path("inside"), "new")
    assert whole(tmp_path / "names/inside") == "new"


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.name == "nt", reason="no modes")
@pytest.mark.parametrize("kept", [0o600, 0o440, 0o664, 0o750])
def test_a_file_keeps_the_mode_of_the_one_that_it_replaces_while_it_is_written_too(kept, tmp_path):
    path = tmp_path / "a.json"
    files.replace_file(path, "first")
    assert mode(path) == 0o666 & ~umask()
    path.chmod(kept)
    with files.beside(path) as partial:
        assert mode(partial) == kept | 0o700
        partial.unlink()  # as a linker does
        partial.write_text("second")
    assert (path.read_text(), mode(path)) == ("second", kept)


@pytest.mark.skipif(os.name == "nt", reason="no modes")
def test_a_folder_keeps_the_mode_of_the_one_that_it_replaces_while_it_is_written_too(tmp_path):
    path = tmp_path / "names"
    save(path, "old")
    assert mode(path) == 0o777 & ~umask()
    path.chmod(0o700)
    with files.folder_beside(path) as partial:
        assert mode(partial) == 0o700
        (partial / "a").write_text("new")
    assert ([one.name for one in path.iterdir()], mode(path)) == (["a"], 0o700)


def umask():
    """The bits that new files lack, which can only be asked for by setting them."""
    now = os.umask(0o022)
    os.umask(now)
    return now


def test_a_file_that_stands_at_the_place_of_a_folder_stays(tmp_path):
    (tmp_path / "names").write_text("mine")
    with pytest.raises(files.Unwritable):
        save(tmp_path / "names", "new")
    assert (tmp_path / "names").read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["names"]


def test_what_a_dead_writer_of_a_file_left_is_deleted_and_of_a_living_one_stays(tmp_path):
    path = tmp_path / "a.json"
    files._name(path, files.PARTIAL).write_text("half")
    with files.beside(path) as living:
        living.write_text("first")
        files.replace_file(path, "second")
        assert path.read_text() == "second"
        assert files.leftovers(path) == [living]
    assert path.read_text() == "first"
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def test_a_file_has_the_same_bytes_on_every_system(tmp_path, windows_lines):
    files.replace_file(tmp_path / "names.csv", "id,name\n1,Bern\n")
    assert (tmp_path / "names.csv").read_bytes() == b"id,name\n1,Bern\n"


def test_a_user_without_a_home_has_no_cache_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(files.Path, "home", homeless)
    with pytest.raises(OSError, match="the user has no home folder"):
        files.cache_folder()


def homeless():
    raise RuntimeError("Could not determine home directory.")
