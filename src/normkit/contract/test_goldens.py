"""Contract, goldens: what other packages enter gives the numbers that lie beside it; ours are in tests/goldens."""

import pytest

from normkit import families
from normkit.contract import asked
from normkit.contract.goldens import places
from normkit.contract.goldens.replay import replay


def goldens():
    """Every golden, with the line that may exempt it."""
    for kind in (asked.METHOD, *families.KINDS):
        line = "goldens" if kind == asked.METHOD else f"{kind}-goldens"
        for name in asked.names(kind):
            module = places.foreign(name, kind)
            for case, path in places.cases(name, module).items() if module else ():
                yield pytest.param(name, case, path, marks=pytest.mark.line(line), id=f"{path.parent.name}/{case}")


@pytest.mark.parametrize("name, case, path", [*goldens()])
def test_agrees_with_its_golden(name, case, path):
    replay(path)
