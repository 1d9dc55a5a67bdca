"""The cases of the contract that a card exempts, and what may not skip."""

import os

import pytest

import normkit as nk

__all__ = [
    "_an_exempt_case_must_fail",
    "cases",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_runtest_makereport",
]


def pytest_configure(config):
    config.addinivalue_line("markers", "line(name, *words): a line of the contract, from which a card may exempt cases")


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


def case(item):
    """The line of the contract, the method and the words that a case of a test goes by; None for other tests."""
    marker = item.get_closest_marker("line")
    if marker is None:
        return None
    given = dict(item.callspec.params)
    line, *words = marker.args
    return line, given.pop("name"), [*words, *(str(value).removeprefix("torch.") for value in given.values())]


@pytest.fixture(autouse=True)
def _an_exempt_case_must_fail(request):
    """A reason that has become untrue is found out: the case passes, and that is an error."""
    found = case(request.node)
    if found is not None:
        line, name, words = found
        reason = nk.card(name).exemption(line, *words)
        if reason is not None:
            # how far rounding leads astray is another on another processor
            request.applymarker(pytest.mark.xfail(reason=reason, strict=line != "offsets"))


@pytest.fixture(scope="session")
def cases(request):
    """The cases of the contract that are tested in this run."""
    return [found for found in map(case, request.session.items) if found is not None]
