"""Contract of optimizers: resume, groups, maximize, types, and what they must refuse."""

import copy
import io

import pytest
import torch

import normkit as nk
from normkit.contract.subject import methods
from normkit.kinds import OPTIMIZER

METHODS = methods(lambda kind: kind is OPTIMIZER)


def gradients(subject, steps, dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    shapes = [p.shape for p in subject.learned.values()]
    return [[torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes] for _ in range(steps)]


def run(subject, steps):
    for grads in steps:
        values = subject.call(*grads)
    return values


def same(got, want):
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)


@pytest.mark.line("resume")
@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_an_unbroken_one_to_the_last_bit(name):
    card = nk.card(name)
    unbroken, broken = card.kind.subject(card), card.kind.subject(card)
    steps = gradients(unbroken, 6)
    want = run(unbroken, steps)
    run(broken, steps[:3])
    file = io.BytesIO()
    torch.save(broken.made.state_dict(), file)
    file.seek(0)
    resumed = card.kind.subject(card)
    with torch.no_grad():
        for p, value in zip(resumed.learned.values(), broken.learned.values(), strict=True):
            p.copy_(value)
    resumed.made.load_state_dict(torch.load(file, weights_only=True))
    same(run(resumed, steps[3:]), want)


@pytest.mark.line("groups")
@pytest.mark.parametrize("name", METHODS)
def test_two_groups_equal_two_optimizers(name):
    card = nk.card(name)
    whole = card.kind.subject(card)
    steps = gradients(whole, 3)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in whole.learned.values()]
    _, options = card.kind.given(card, dtype=torch.float64)
    halves = [card.entry(parameters[i::2], **options) for i in (0, 1)]
    joined = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    together = card.entry([{"params": joined[i::2]} for i in (0, 1)], **options)
    for grads in steps:
        for p, q, grad in zip(parameters, joined, grads, strict=True):
            p.grad, q.grad = grad.clone(), grad.clone()
        for optimizer in (*halves, together):
            optimizer.step()
    same(joined, parameters)


@pytest.mark.line("maximize")
@pytest.mark.parametrize("name", METHODS)
def test_maximize_mirrors(name):
    card = nk.card(name)
    down = card.kind.subject(card)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in down.learned.values()]
    _, options = card.kind.given(card, dtype=torch.float64)
    up = card.entry(parameters, **options, maximize=True)
    for grads in gradients(down, 3):
        want = down.call(*grads)
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = -grad
        up.step()
    same(parameters, want)


@pytest.mark.line("no-gradient")
@pytest.mark.parametrize("name", METHODS)
def test_a_parameter_without_a_gradient_stays(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    still, *moved = subject.learned.values()
    before = still.detach().clone()
    for p in moved:
        p.grad = torch.ones_like(p)
    subject.made.step()
    assert torch.equal(still, before)
    assert still not in subject.made.state or not subject.made.state[still]


@pytest.mark.line("kept-type")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_keep_their_type(name, dtype):
    card = nk.card(name)
    subject = card.kind.subject(card, dtype=dtype)
    exact = card.kind.subject(card)
    with torch.no_grad():
        for p, q in zip(exact.learned.values(), subject.learned.values(), strict=True):
            p.copy_(q)
    before = [p.detach().clone() for p in exact.learned.values()]
    for grads in gradients(subject, 2, dtype):
        got, want = subject.call(*grads), exact.call(*(g.double() for g in grads))
    for a, b, start in zip(got, want, before, strict=True):
        assert a.dtype == dtype
        # a few roundings of the parameter and of the moments; the step itself is of the size of the change
        tolerance = 8 * torch.finfo(dtype).eps * (b.abs().max() + (b - start).abs().max() * 8)
        torch.testing.assert_close(a.double(), b, rtol=0, atol=float(tolerance))


@pytest.mark.line("sparse")
@pytest.mark.parametrize("name", METHODS)
def test_a_sparse_gradient_is_refused_and_nothing_moves(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    before = [p.detach().clone() for p in subject.learned.values()]
    for p in subject.learned.values():
        p.grad = torch.ones_like(p)
    last = list(subject.learned.values())[-1]
    last.grad = torch.ones_like(last).to_sparse()
    with pytest.raises(TypeError, match="sparse"):
        subject.made.step()
    same(subject.learned.values(), before)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "options, word",
    [({"lr": -1.0}, "lr"), ({"lr": float("nan")}, "lr"), ({"betas": (1.0, 0.9)}, "betas"), ({"eps": -1.0}, "eps")],
)
def test_bad_settings_are_named(name, options, word):
    card = nk.card(name)
    if word not in card.signature.parameters:
        pytest.skip(f"takes no {word}")
    with pytest.raises(ValueError, match=rf"\b{word}\b"):
        card.small(**options)


@pytest.mark.parametrize("name", METHODS)
def test_a_step_calls_its_closure_and_schedulers_work(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    scheduler = torch.optim.lr_scheduler.StepLR(subject.made, 1, 0.5)

    def closure():
        subject.made.zero_grad()
        loss = sum(p.square().sum() for p in subject.learned.values())
        loss.backward()
        return loss

    first = subject.made.step(closure).item()
    scheduler.step()
    assert subject.made.step(closure).item() < first
    assert copy.deepcopy(subject.made).param_groups[0]["lr"] == subject.made.defaults["lr"] / 2
