"""The cases of the contract that are exempt or newer than what is asked for, and what may not skip."""

import gc
import os

import pytest
import torch

from normkit.contract import asked, values

__all__ = [
    "cases",
    "pytest_collection",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
]


def pytest_configure(config):
    config.addinivalue_line("markers", "line(name, *words): a line of the contract, from which a card may exempt cases")
    config.addinivalue_line("markers", "since(version): the version of the contract that first asked this")
    os.environ.setdefault("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "0")  # sizes that are symbols are not met again
    torch._C._dynamo.guards.profile_guard_manager = lambda *given: 0.0  # for a log: 15 ms for each compiled graph
    for device in (torch.cuda, torch.xpu, torch.mtia):
        if not device.is_available():  # torch would keep every seed for it, with the stack of who gave it
            device.manual_seed_all = lambda seed: None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Thousands of tests are no garbage: none is looked for while they are made, nor among them later.

    Then it is looked for less often: tracing makes many objects, and few circles of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    return _without_excuse(report, report.call)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    return _without_excuse(report, call)


def _without_excuse(report, call):
    """In continuous integration all packages are there: what skips for want of one would be missed by nobody."""
    trace = call.excinfo.traceback if os.environ.get("CI") and report.skipped and call.excinfo else ()
    if any(entry.name == "importorskip" for entry in trace):
        report.outcome, report.longrepr = "failed", f"skipped, though CI is set: {call.excinfo.value}"
    return report


def pytest_runtest_setup(item):
    """An exempt case must fail, for a reason that has become untrue; what is newer than the contract asked for may."""
    mark = item.get_closest_marker("since")
    if mark is not None and mark.args[0] > asked.version():
        item.add_marker(pytest.mark.xfail(reason=f"asked since contract {mark.args[0]}", strict=False))
    if hasattr(getattr(item, "obj", None), "combinations"):
        return  # each of its values is held to that
    for case in values.cases(item):
        reason = values.exemption(*case)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=case[0] not in values.LOOSE))


@pytest.fixture(scope="session")
def cases(request):
    """The cases of the contract that are tested in this run."""
    return [case for item in request.session.items for case in values.cases(item)]
