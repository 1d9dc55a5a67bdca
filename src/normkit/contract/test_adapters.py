"""Contract, adapters: a model that learns at test time can be reset, saved in the middle, and is not spoiled."""

import copy
import io
import warnings

import pytest
import torch

import normkit as nk
from normkit.contract.subject import close, methods
from normkit.contract.values import over
from normkit.kinds import ADAPTER

METHODS = methods(lambda kind: kind is ADAPTER)
BATCHES = 4


def subject(name, dtype=torch.float64):
    return nk.card(name).kind.subject(nk.card(name), dtype=dtype).made


def batches(name, count=BATCHES, dtype=torch.float64, first=0):
    return [nk.card(name).draw(dtype=dtype, seed=first + seed)[0] for seed in range(count)]


def stream(adapter, inputs, seed=0):
    """The logits of a stream; views and draws of an adapter's own are the same for the same seed."""
    torch.manual_seed(seed)
    return [adapter(x) for x in inputs]


def numbers(adapter):
    return {name: v.clone() for name, v in adapter.state_dict().items() if torch.is_tensor(v)}


@pytest.mark.line("reset")
@pytest.mark.parametrize("name", METHODS)
def test_reset_gives_back_the_first_numbers(name):
    adapter = subject(name)
    before = numbers(adapter)
    first = stream(adapter, batches(name))
    adapter.reset()
    after = numbers(adapter)
    close({key: after[key] for key in before}, before, rtol=0, atol=0)
    close(stream(adapter, batches(name)), first, rtol=0, atol=0)


@pytest.mark.line("learns")
@pytest.mark.parametrize("name", METHODS)
def test_a_stream_moves_what_is_trained(name):
    adapter = subject(name)
    for parameter in adapter.parameters_trained():  # surer, so that filters let something through
        parameter.data.mul_(1.5)
    adapter.model.head.weight.data.mul_(20)
    before = [p.detach().clone() for p in adapter.parameters_trained()]
    stream(adapter, batches(name, 8))
    assert any(not torch.equal(p, old) for p, old in zip(adapter.parameters_trained(), before, strict=True))


@pytest.mark.line("continued")
@pytest.mark.parametrize("name", METHODS)
def test_a_stream_that_is_saved_goes_on_to_the_same_bits(name):
    whole, file = subject(name), io.BytesIO()
    inputs = batches(name, 2 * BATCHES)
    stream(whole, inputs[:BATCHES])
    torch.save(whole.state_dict(), file)
    file.seek(0)
    resumed = subject(name)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    copied = copy.deepcopy(whole)
    want = stream(whole, inputs[BATCHES:], seed=1)
    for other in (resumed, copied):
        close(stream(other, inputs[BATCHES:], seed=1), want, rtol=0, atol=0)
        other.reset()
    close(numbers(resumed), numbers(copied), rtol=0, atol=0)


@pytest.mark.line("frozen")
@pytest.mark.parametrize("name", METHODS)
def test_what_is_not_trained_stays(name):
    adapter = subject(name)
    frozen = {n: p.detach().clone() for n, p in adapter.model.named_parameters() if n not in adapter.trained}
    stream(adapter, batches(name))
    now = dict(adapter.model.named_parameters())
    close({n: now[n].detach() for n in frozen}, frozen, rtol=0, atol=0)
    assert all(p.grad is None for p in adapter.parameters())


@pytest.mark.line("infinite")
@pytest.mark.parametrize("name", METHODS)
def test_a_batch_with_nan_spoils_nothing(name):
    adapter = subject(name)
    stream(adapter, batches(name, 1))
    parameters = [p.detach().clone() for p in adapter.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stream(adapter, [torch.full_like(batches(name, 1)[0], torch.nan)])
    close([p.detach() for p in adapter.parameters()], parameters, rtol=0, atol=0)
    assert all(y.isfinite().all() for y in stream(adapter, batches(name)))


@pytest.mark.line("refused-batch")
@pytest.mark.parametrize("name", METHODS)
def test_a_call_that_fails_changes_nothing(name):
    adapter = subject(name)
    stream(adapter, batches(name, 2))
    before = numbers(adapter)
    with pytest.raises((ValueError, RuntimeError)):
        adapter(batches(name, 1)[0][..., :-1, :, :][..., :1, :, :].expand(*batches(name, 1)[0].shape[:-3], 3, -1, -1))
    close(numbers(adapter), before, rtol=0, atol=0)


@pytest.mark.line("half-stream")
@pytest.mark.parametrize("name", METHODS)
@over(dtype=[torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_adapted(name, dtype):
    adapter = subject(name, dtype)
    logits = stream(adapter, batches(name, dtype=dtype))
    exact = stream(subject(name), batches(name))
    assert all(y.dtype is dtype for y in logits)
    close([y.double() for y in logits[:1]], exact[:1], rtol=0.1, atol=0.1)
    assert all(p.dtype is dtype and p.isfinite().all() for p in adapter.parameters())


@pytest.mark.parametrize("name", METHODS)
def test_under_no_grad_and_inference_mode_it_learns_as_well(name):
    want = stream(subject(name), batches(name))
    for mode in (torch.no_grad, torch.inference_mode):
        adapter = subject(name)
        with mode():
            got = stream(adapter, batches(name))
        close([y.clone() for y in got], want, rtol=0, atol=0)


@pytest.mark.parametrize("name", METHODS)
def test_a_model_without_norms_or_none_at_all_is_named(name):
    with pytest.raises(TypeError, match="model"):
        nk.create(name, torch.nn.functional.relu)
    if "any parameter" not in nk.card(name).entry.wants:
        with pytest.raises(ValueError, match="model has no parameter"):
            nk.create(name, torch.nn.Sequential(torch.nn.Linear(3, 3)))
    adapter = nk.create(name, torch.nn.Sequential(torch.nn.BatchNorm2d(8)))
    with pytest.raises(ValueError, match="logits"):
        adapter(*nk.card(name).draw()[:1])
