"""The options of pytest: ``pytest --normkit-check NAME``; nothing heavy is imported here."""

import os
from collections import Counter
from pathlib import Path

import pytest

from normkit.loading import find_in_current_folder

VARIABLES = {
    "normkit_check": "NORMKIT_CHECK",
    "normkit_contract": "NORMKIT_CONTRACT",
    "normkit_device": "NORMKIT_DEVICE",
}
BEFORE = pytest.StashKey[dict[str, str | None]]()


def pytest_addoption(parser, pluginmanager):
    """Let names and a version be given."""
    rewrite_only_the_contract(getattr(pluginmanager, "rewrite_hook", None))
    group = parser.getgroup("normkit")
    group.addoption(
        "--normkit-check",
        action="append",
        metavar="NAME",
        help="hold only this to normkit's contract: a method, a flow or another thing, or all that a package enters",
    )
    group.addoption(
        "--normkit-contract",
        metavar="VERSION",
        help="what normkit's contract asks since a later version may fail",
    )
    group.addoption(
        "--normkit-device",
        metavar="DEVICE",
        help="replay goldens on a device such as cuda, and hold all methods to the processor's numbers there",
    )


def rewrite_only_the_contract(hook):
    """Import the package as Python does: pytest would rewrite all of it, file by file, since it enters a plugin."""
    marked: set[str] = getattr(hook, "_must_rewrite", set())
    if "normkit" in marked:
        marked.remove("normkit")
        marked.add("normkit.contract")
        hook._marked_for_rewrite_cache.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Hand them to the tests, and to the processes that these start, as variables of the environment."""
    config.stash[BEFORE] = {variable: os.environ.get(variable) for variable in VARIABLES.values()}
    for option, variable in VARIABLES.items():
        value = config.getoption(option, None)
        if value:
            os.environ[variable] = value if isinstance(value, str) else ",".join(value)
    if os.environ.get("NORMKIT_CHECK"):
        find_in_current_folder()  # a file of the user's from where pytest was started
    if config.getoption("normkit_check", None) and config.args_source is config.ArgsSource.INVOCATION_DIR:
        config.args = [str(Path(__file__).parent)]  # no tests were named, by words or by a configuration
    if any(config.getoption(option, None) for option in VARIABLES):
        refuse_what_is_not_there()


def refuse_what_is_not_there():
    """Name a wrong name before any test is read."""
    from normkit.contract import asked

    try:
        asked.version()
        asked.device()
        asked.things(os.environ.get(asked.ASKED) or "rmsnorm")
    except ValueError as error:
        raise pytest.UsageError(f"normkit: {error}") from None


def pytest_unconfigure(config):
    """Leave the environment as it was."""
    for variable, value in config.stash.get(BEFORE, {}).items():
        if value is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Let a report name what its case is of, wherever it is read: in another process with ``pytest -n``."""
    report = yield
    name = item.callspec.params.get("name") if hasattr(item, "callspec") else None
    if isinstance(name, str) and os.environ.get(VARIABLES["normkit_check"]):
        report.normkit_name = name
    return report


class Ends:
    """A plugin that keeps how the tests of methods, flows and others end; None is the name where a test has none."""

    def __init__(self):
        self.broken, self.passed = set(), Counter()

    def pytest_runtest_logreport(self, report):
        """Keep the name of a case that fails, and count one that has passed; what was skipped has not."""
        name = getattr(report, "normkit_name", None)
        if report.failed:
            self.broken.add(name)
        self.passed[name] += report.when == "call" and report.passed
