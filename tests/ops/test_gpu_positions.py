"""The GPU's kernel for vectors of channels that lie across memory, run by Triton's interpreter, a few at a time."""

import pytest
import torch

from normkit.kernels import cuda

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
SAMPLES, CHANNELS, SPACE = 2, 11, 7
ROWS, BLOCK = 4, 4  # three steps over the channels, two programs a sample, and neither is full
EPS = 1e-3


@pytest.mark.usefixtures("within")
def test_walking_along_the_channels_gives_the_numbers_of_float64():
    from normkit.kernels.cuda.templates import interpreter, position

    g = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(SAMPLES, CHANNELS, SPACE, generator=g) for _ in range(2))
    x = 2 * x + 100
    weight, bias = (torch.randn(CHANNELS, generator=g) for _ in range(2))
    blocks = -(-SPACE // BLOCK)
    y, dx, dgains, dbiases = (torch.full(s, torch.nan) for s in (x.shape, x.shape, *[(SAMPLES * blocks, CHANNELS)] * 2))
    sizes, constants = (CHANNELS, SPACE, blocks, EPS), {"ROWS": ROWS, "BLOCK": BLOCK}
    grid = (SAMPLES * blocks,)
    interpreter.interpret(position.forward, grid, (x, weight, bias, y, *sizes), constants)
    interpreter.interpret(position.backward, grid, (x, grad, weight, dx, dgains, dbiases, *sizes), constants)

    exact = [t.double().requires_grad_() for t in (x, weight, bias)]
    rows = exact[0].movedim(1, -1)
    want = torch.nn.functional.layer_norm(rows, (CHANNELS,), exact[1], exact[2], EPS).movedim(-1, 1)
    wanted = torch.autograd.grad(want, exact, grad.double())
    for a, b in zip((y, dx, dgains.sum(0), dbiases.sum(0)), (want, *wanted), strict=True):
        torch.testing.assert_close(a.double(), b.detach(), rtol=1e-4, atol=2e-5)
