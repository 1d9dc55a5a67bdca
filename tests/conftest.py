"""One thread a worker, and the instruction sets; exempt cases of the contract as in the contract itself."""

import io
import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: waiting takes no core
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # in the process itself: a pool is a second torch
os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")  # of thousands of graphs, each twentieth time among all

import pytest
import torch
from _pytest.runner import runtestprotocol

from changed import pytest_addoption, pytest_sessionstart  # noqa: F401  which tests a change reaches
from normkit.contract.conftest import *  # noqa: F403  exempt cases, and what may not skip

os.environ["NORMKIT_CACHE"] = "off"  # no test depends on what an earlier one recognized, but those that ask for it
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # workers that share the cores would wait for one another


AT_LENGTH = {"peers", "nightly"}  # marks of what takes minutes: left out, unless pytest is asked for it by -m


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    left = {item for item in items for mark in AT_LENGTH if item.get_closest_marker(mark)}
    if left and not any(mark in config.option.markexpr for mark in AT_LENGTH):
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config):
    config.option.maxschedchunk = 500  # that one worker takes at once: the last tests, too, are for all of them


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    """A worker sends one report a test: of six messages, those of a start and an end that pass at once tell nothing."""
    if not hasattr(item.config, "workerinput") or item.config.option.xmlpath:
        return None  # as pytest does it
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.duration > 0.01:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture
def windows_lines(monkeypatch):
    """Text ends lines as on Windows, where a file is not opened with an end of its own."""
    plain = io.open

    def opened(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None):
        ending = "\r\n" if newline is None and not {"r", "b"} & {*mode} else newline
        return plain(file, mode, buffering, encoding, errors, ending)

    monkeypatch.setattr(io, "open", opened)


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def isa(request):
    """One instruction set, on which the kernels run until the test ends."""
    from normkit import kernels

    library, before = kernels.cpu(), kernels.status().isa
    if not library.use(request.param.encode()):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    library.use(before.encode())
