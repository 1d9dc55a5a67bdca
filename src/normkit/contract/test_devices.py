"""Contract, devices: on the one that ``--normkit-device`` names, a method gives the processor's numbers."""

import pytest
import torch

import normkit as nk
from normkit.contract import asked, subject
from normkit.contract.subject import METHODS, build, draw, methods
from normkit.contract.values import over
from normkit.kinds import OPTIMIZER

DEVICE = asked.device()
OPTIMIZERS = methods(lambda kind: kind is OPTIMIZER)
LIMITS = {torch.float64: 1e-9, torch.float32: 2e-4}  # of the largest number
elsewhere = pytest.mark.skipif(torch.device("cpu") == DEVICE, reason="none was asked for: --normkit-device cuda")


def held(got, want, limit):
    got, want = list(got), list(want)
    numbers = [b.detach().abs().nan_to_num(0.0, 0.0) for b in want if b is not None and b.is_floating_point()]
    largest = max((b.max().item() for b in numbers if b.numel()), default=0.0)
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.device.type == DEVICE.type
            subject.close(a.detach().cpu().double(), b.detach().double(), rtol=limit, atol=limit * largest)


@pytest.fixture(autouse=True)
def _without_tensorfloat32(monkeypatch):
    """By which convolutions on a GPU keep ten bits of float32's."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@elsewhere
@pytest.mark.line("device")
@pytest.mark.parametrize("name", METHODS)
@over(dtype=LIMITS, mode=["train", "eval"])
def test_a_method_gives_the_processors_numbers(name, dtype, mode):
    module = build(name, 16, train=mode == "train")
    there = subject.fresh(module).to(DEVICE, dtype)
    inputs = draw(name, 16, dtype=dtype)
    exact = [i.double() if i.is_floating_point() else i for i in inputs]
    module.load_state_dict({k: v.cpu() for k, v in there.state_dict().items()})  # rounded as they are there
    got = subject.run(there, [i.to(DEVICE) for i in inputs])
    want = subject.run(module, exact)
    for a, b in zip(got[:2], want[:2], strict=True):
        held(a, b, LIMITS[dtype])
    held(got[2].values(), want[2].values(), LIMITS[dtype])
    held(there.state_dict().values(), module.state_dict().values(), LIMITS[dtype])


@elsewhere
@pytest.mark.line("device")
@pytest.mark.parametrize("name", OPTIMIZERS)
@over(dtype=LIMITS)
def test_an_optimizer_takes_the_processors_steps(name, dtype):
    card = nk.card(name)
    here, there = (card.kind.subject(card, dtype=dtype) for _ in range(2))
    generator = torch.Generator().manual_seed(1)
    for parameter in there.learned.values():
        parameter.data = parameter.data.to(DEVICE)
    for _ in range(3):
        grads = [
            torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype) for p in here.learned.values()
        ]
        want, got = here.call(*grads), there.call(*[grad.to(DEVICE) for grad in grads])
    held(got, want, LIMITS[dtype])
