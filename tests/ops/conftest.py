"""What tests of several kernels take."""

import pytest

from normkit.kernels import special


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def widest(request):
    """Let each instruction set that runs here be the widest that the kernels of matrices take."""
    if special.library() is None:
        pytest.skip(special.absent())
    if special.library().use(wanted := ("baseline", "avx2", "avx512").index(request.param)) != wanted:
        pytest.skip(f"{request.param} does not run here")
    yield
    special.library().use(2)
