import pytest

import tvstub  # noqa: F401

pytest.importorskip("accelerate", reason="the lab needs normkit[lab]")
