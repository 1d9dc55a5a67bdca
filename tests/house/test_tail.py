"""A file that others write is followed: only what was added is read, and a file that was begun anew from its start."""

import os

import pytest

from normkit.files import Tail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log"


def test_only_whole_lines_that_were_added_are_read(path):
    tail = Tail(path)
    assert tail.added() == (False, [])
    path.write_bytes(b"one\ntwo\nth")
    assert tail.added() == (True, [b"one", b"two"])
    assert tail.added() == (False, [])
    with path.open("ab") as file:
        file.write(b"ree\n\n")
    assert tail.added() == (False, [b"three"])


@pytest.mark.parametrize("text", [b"a", b"another, and longer\n"])
def test_a_file_in_its_place_is_read_from_its_start(path, text):
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.added()
    other = path.with_name("other")
    other.write_bytes(b"new\n" + text)
    os.replace(other, path)
    assert tail.added() == (True, [line for line in (b"new\n" + text).split(b"\n")[:-1] if line])


def test_a_file_that_was_cut_is_read_from_its_start(path):
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.added()
    path.write_bytes(b"new\n")
    assert tail.added() == (True, [b"new"])
