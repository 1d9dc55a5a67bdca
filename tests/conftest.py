"""Workers that share the cores must not each start a thread for every core: they would wait for one another."""

import os

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def isa(request):
    """One instruction set, on which the kernels run until the test ends."""
    from normkit import kernels

    library, before = kernels.cpu(), kernels.status().isa
    if not library.use(request.param.encode()):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    library.use(before.encode())
