"""Where autograd's node is kept, who may have written it, and what a build that fails says."""

import struct
import sys

import pytest
import torch

from normkit.ops import eager, node


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("NORMKIT_CACHE", "NORMKIT_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    eager.refusal(torch.ones(1))  # the first look, which wants the library itself
    monkeypatch.setattr(node.kernels, "cpu", lambda: "some")
    return tmp_path


def compiled(target):
    target.write_bytes(b"a library")


def test_it_is_built_once_for_its_owner_alone(monkeypatch):
    monkeypatch.setattr(node, "_compile", compiled)
    assert node.usable() is None
    assert node.build() is None
    file = node.usable()
    assert file.read_bytes() == b"a library"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    assert list(file.parent.iterdir()) == [file]
    monkeypatch.setattr(node, "_compile", None)
    assert node.build() is None


def test_it_is_named_after_torch_python_and_its_sources(monkeypatch):
    name = node.path().name
    assert torch.__version__ in name
    assert f"{sys.version_info.major}{sys.version_info.minor}" in name
    monkeypatch.setattr(node, "_sources", lambda: "others")
    assert node.path().name != name


@pytest.mark.parametrize("place", ["file", "folder"])
def test_what_others_may_have_written_is_not_loaded(place, monkeypatch):
    monkeypatch.setattr(node, "_compile", compiled)
    node.build()
    file = node.usable()
    (file if place == "file" else file.parent).chmod(0o777)
    assert node.usable() is None
    monkeypatch.setattr(node.os, "getuid", lambda: -1)
    (file if place == "file" else file.parent).chmod(0o700)
    assert node.usable() is None


def test_what_was_cut_is_not_loaded_and_built_anew(monkeypatch):
    """To load half a library is a bus error, at the first norm of every process."""
    whole = struct.pack("<6s34xQ10xHH2x", b"\x7fELF\x02\x01", 64, 64, 2) + bytes(128)
    monkeypatch.setattr(node, "_compile", lambda target: target.write_bytes(whole))
    for size in (len(whole), 191, 100, 63, 7):
        node.build()
        assert node.usable().read_bytes() == whole
        node.usable().write_bytes(whole[:size])
        assert (node.usable() is None) == (size < len(whole))


def test_no_cache_no_node(monkeypatch):
    monkeypatch.setenv("NORMKIT_CACHE", "False")
    assert node.path() is None
    assert node.usable() is None
    assert "NORMKIT_CACHE" in node.build()


def test_a_user_without_a_home_has_no_node(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(node.Path, "home", homeless)
    assert node.path() is None
    assert node.usable() is None
    assert "no home folder" in node.build()


def test_a_compiler_that_fails_or_is_not_there_says_why_and_leaves_nothing(monkeypatch, cache):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert node.obstacle() == node.build() == "there is no C++ compiler no-such-compiler"
    monkeypatch.setattr(node, "SOURCES", (cache / "gone.cpp", cache / "gone.h"))
    monkeypatch.setattr(node, "_sources", lambda: "gone")
    monkeypatch.setenv("CXX", "cc")
    assert "gone.cpp" in node.build()
    assert not [one for one in (cache / "normkit" / "node").iterdir() if one.suffix == ".so"]


def test_a_library_that_cannot_be_loaded_is_left(monkeypatch):
    monkeypatch.setattr(node, "_compile", compiled)
    monkeypatch.setattr(eager, "node", None)
    assert eager.build_node() == "what was built cannot be loaded"
    assert eager.node is None
