"""What other libraries ask of their own norms and optimizers, asked of ours.

Tests that take long, or need a library that no group of ours has, are marked ``peers`` and left out, unless pytest is
asked for them: ``pytest -m peers`` runs those, and ``pytest tests/peers -m "peers or not peers"`` all. Flower's are run
where a folder with it is in PYTHONPATH, as in .ci/run. What a peer has otherwise is an exception by name, with its
reason. What zuko and nflows ask of a transform, to be undone and to know its Jacobian, are the lines ``inverse`` and
``log-det`` of the contract.
"""

import pytest
import torch

from normkit.optional import let_torchvision_load

let_torchvision_load()


@pytest.fixture(autouse=True)
def _same_numbers():
    torch.manual_seed(0)
