"""Contract of optimizers: resume, groups, maximize, types, and what they must refuse."""

import copy
import io

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import normkit as nk
from normkit.contract.subject import counting, methods
from normkit.contract.values import over
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
    for a, b in zip(got, want, strict=True):  # a step that is NaN in half precision is so again
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resumed(card, broken, state, dtype):
    """An optimizer over the values that another one has reached, with a state that was saved."""
    subject = card.kind.subject(card, dtype=dtype)
    with torch.no_grad():
        for p, value in zip(subject.learned.values(), broken.learned.values(), strict=True):
            p.copy_(value)
    subject.made.load_state_dict(state)
    return subject


@pytest.mark.line("resume")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_an_unbroken_one_to_the_last_bit(name, dtype):
    card = nk.card(name)
    unbroken, broken = (card.kind.subject(card, dtype=dtype) for _ in range(2))
    steps = gradients(unbroken, 5, dtype)
    want = run(unbroken, steps)
    for done in range(len(steps)):
        other = resumed(card, broken, through_a_file(broken.made.state_dict()), dtype)
        same(run(other, steps[done:]), want)
        run(broken, steps[done : done + 1])


@pytest.mark.line("older")
@pytest.mark.parametrize("name", METHODS)
def test_an_older_state_goes_on_to_the_same_bits(name):
    card = nk.card(name)
    unbroken, broken = card.kind.subject(card), card.kind.subject(card)
    steps = gradients(unbroken, 4)
    want = run(unbroken, steps)
    run(broken, steps[:2])
    state = through_a_file(broken.made.state_dict())
    for group in state["param_groups"]:
        group.pop("maximize"), group.pop("foreach", None)
    for own in state["state"].values():
        if "step" in own:
            own["step"] = float(own["step"])
    other = resumed(card, broken, state, torch.float64)
    same(run(other, steps[2:]), want)
    assert all(torch.is_tensor(own["step"]) for own in other.made.state.values() if "step" in own)


@pytest.mark.line("foreign")
@pytest.mark.parametrize("other", ["AdamW", "SGD", "RMSprop", "Adagrad"])
@pytest.mark.parametrize("name", METHODS)
def test_a_state_of_another_optimizer_is_refused(name, other):
    card = nk.card(name)
    subject, donor = card.kind.subject(card), card.kind.subject(card)
    steps = gradients(subject, 3)
    options = {"momentum": 0.9} if other == "SGD" else {}
    optimizer = getattr(torch.optim, other)(list(donor.learned.values()), **options)
    for p, grad in zip(donor.learned.values(), steps[0], strict=True):
        p.grad = grad
    optimizer.step()
    with pytest.raises(ValueError, match=rf"^{card.entry.__name__}: the state that is loaded"):
        subject.made.load_state_dict(optimizer.state_dict())
    same(run(subject, steps), run(card.kind.subject(card), steps))


@pytest.mark.line("numbers")
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_parameters_of_one_number_or_none(name, foreach):
    card = nk.card(name)
    _, options = card.kind.arguments(card)
    if "foreach" in card.signature.parameters:
        options["foreach"] = foreach
    shapes = [(0, 3), (3, 0), (4, 3), *([(), (0,), (1,)] if "..." in card.shape.axes else [])]
    parameters = [torch.nn.Parameter(torch.full(shape, 2.0)) for shape in shapes]
    made = card.entry(parameters, **options)
    for step in range(3):
        for p in parameters:
            p.grad = torch.full_like(p, 1.0 + step)
        made.step()
    for p, shape in zip(parameters, shapes, strict=True):
        assert p.shape == shape
        assert p.isfinite().all()
    assert not any((p == 2.0).any() for p in parameters if p.dim() == 0)
    made.load_state_dict(through_a_file(made.state_dict()))


@pytest.mark.line("named")
@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_names_and_a_learning_rate_as_a_tensor_change_nothing(name, shape):
    card = nk.card(name)
    plain = card.kind.subject(card)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in plain.learned.values()]
    _, options = card.kind.arguments(card, dtype=torch.float64)
    rate = torch.full(shape, plain.made.param_groups[0]["lr"], dtype=torch.float64)
    named = [(f"layer.{i}", p) for i, p in enumerate(parameters)]
    made = card.entry(iter(named), **{**options, "lr": rate})
    for step, grads in enumerate(gradients(plain, 4)):
        want = plain.call(*grads)
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad.clone()
        made.step()
        if step == 1:
            made.load_state_dict(through_a_file(made.state_dict()))
            rate = made.param_groups[0]["lr"]
        rate.mul_(0.5)
        plain.made.param_groups[0]["lr"] *= 0.5
    assert made.param_groups[0]["param_names"] == [key for key, _ in named]
    for p, value in zip(parameters, want, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match=r"\blr\b"):
        card.entry(parameters, **{**options, "lr": torch.tensor([0.1, 0.2])})


@pytest.mark.line("hooks")
@pytest.mark.parametrize("name", METHODS)
def test_hooks_are_called_once(name):
    card = nk.card(name)
    subject, calls = card.kind.subject(card), []
    hooks = [
        register_optimizer_step_pre_hook(lambda *_: calls.append("before")),
        register_optimizer_step_post_hook(lambda *_: calls.append("after")),
    ]
    try:
        run(subject, gradients(subject, 2))
    finally:
        for hook in hooks:
            hook.remove()
    assert calls == ["before", "after"] * 2


@pytest.mark.parametrize("argument", ["capturable", "differentiable", "fused"])
@pytest.mark.parametrize("name", METHODS)
def test_what_only_torchs_optimizers_take_is_named(name, argument):
    card = nk.card(name)
    _, options = card.kind.arguments(card)
    taken = any(kind.kind is kind.VAR_KEYWORD for kind in card.signature.parameters.values())
    if taken and argument != "differentiable":
        pytest.skip("goes to the base, which takes it or names it")
    with pytest.raises((TypeError, ValueError), match=argument):
        card.entry([torch.nn.Parameter(torch.ones(4, 3))], **options, **{argument: True})


@pytest.mark.line("groups")
@pytest.mark.parametrize("name", METHODS)
def test_two_groups_equal_two_optimizers(name):
    card = nk.card(name)
    whole = card.kind.subject(card)
    steps = gradients(whole, 3)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in whole.learned.values()]
    _, options = card.kind.arguments(card, dtype=torch.float64)
    halves = [card.entry(parameters[i::2], **options) for i in (0, 1)]
    joined = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    together = card.entry([{"params": joined[i::2]} for i in (0, 1)], **options)
    for grads in steps:
        for p, q, grad in zip(parameters, joined, grads, strict=True):
            p.grad, q.grad = grad.clone(), grad.clone()
        for optimizer in (*halves, together):
            optimizer.step()
    same(joined, parameters)


@pytest.mark.line("kept-gradients")
@pytest.mark.parametrize("maximize", [False, True], ids=["", "maximize"])
@pytest.mark.parametrize("name", METHODS)
def test_a_step_leaves_gradients_as_they_were(name, maximize):
    card = nk.card(name)
    (parameters,), options = card.kind.arguments(card, dtype=torch.float64)
    made = card.entry(parameters, **options, maximize=maximize)
    for grads in gradients(card.kind.subject(card), 2):
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad.clone()
        made.step()
        same([p.grad for p in parameters], grads)


@pytest.mark.line("maximize")
@pytest.mark.parametrize("name", METHODS)
def test_maximize_mirrors(name):
    card = nk.card(name)
    down = card.kind.subject(card)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in down.learned.values()]
    _, options = card.kind.arguments(card, dtype=torch.float64)
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
@over(dtype=[torch.float32, torch.bfloat16])
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


@pytest.mark.line("finite")
@pytest.mark.parametrize("name", METHODS)
@over(value=["nan", "inf"])
def test_a_gradient_that_is_not_finite_is_refused_and_nothing_moves(name, value):
    card = nk.card(name)
    subject, other = card.kind.subject(card), card.kind.subject(card)
    first, second = gradients(subject, 2)
    run(subject, [first]), run(other, [first])
    broken = [g.clone() for g in second]
    broken[-1].view(-1)[0] = float(value)
    with pytest.raises(FloatingPointError, match="not finite"):
        subject.call(*broken)
    same(subject.call(*second), other.call(*second))


@pytest.mark.line("still")
@pytest.mark.parametrize("name", METHODS)
def test_a_first_gradient_of_zero_moves_nothing(name):
    card = nk.card(name)
    without = {"weight_decay": 0.0} if "weight_decay" in card.signature.parameters else {}
    made = card.small(dtype=torch.float64, **without)
    parameters = [p for group in made.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    made.step()
    same(parameters, before)


@pytest.mark.parametrize("name", METHODS)
def test_a_rate_of_zero_moves_nothing(name):
    """As torch's checkpoints step once to make a state."""
    card = nk.card(name)
    subject = card.kind.subject(card)
    for group in subject.made.param_groups:
        group["lr"] = 0.0
    before = [p.detach().clone() for p in subject.learned.values()]
    run(subject, gradients(subject, 2))
    same(subject.learned.values(), before)


@pytest.mark.line("mixed")
@pytest.mark.parametrize("dtype, given", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_a_gradient_of_another_type_is_cast(name, dtype, given):
    if not hasattr(torch.Tensor, "grad_dtype"):
        pytest.skip("this torch keeps gradients in the type of their parameter")
    card = nk.card(name)
    mixed, plain = card.kind.subject(card, dtype=dtype), card.kind.subject(card, dtype=dtype)
    for p in mixed.learned.values():
        p.grad_dtype = given
    for grads in gradients(mixed, 2, given):
        got, want = mixed.call(*grads), plain.call(*(g.to(dtype) for g in grads))
    same(got, want)


@pytest.mark.line("together")
@pytest.mark.parametrize("name", METHODS)
def test_together_or_apart_the_numbers_are_the_same(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in subject.learned.values()]
    _, options = card.kind.arguments(card, dtype=torch.float64)
    saved = None
    for step, grads in enumerate(gradients(subject, 4)):
        want = subject.call(*grads)
        made = card.entry(parameters, **options, foreach=step % 2 == 0)
        if saved is not None:  # a run goes on under the other setting
            saved["param_groups"] = [{**g, "foreach": step % 2 == 0} for g in saved["param_groups"]]
            made.load_state_dict(saved)
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad
        made.step()
        saved = made.state_dict()
    for p, value in zip(parameters, want, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=1e-10, atol=1e-12)


@pytest.mark.line("compiled")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_a_compiled_step_gives_the_same_numbers(name):
    card = nk.card(name)
    torch._dynamo.reset()
    counter = counting("eager")
    plain = card.kind.subject(card)
    parameters = [torch.nn.Parameter(p.detach().clone()) for p in plain.learned.values()]
    _, options = card.kind.arguments(card, dtype=torch.float64)
    step, frames = torch.compile(card.entry(parameters, **options, foreach=True).step, backend=counter), []
    for grads in gradients(plain, 4):
        want = plain.call(*grads)
        for p, grad in zip(parameters, grads, strict=True):
            p.grad = grad.clone()
        step()
        frames.append(counter.frame_count)
    torch._dynamo.reset()
    assert frames[-1] == frames[-2]
    for p, value in zip(parameters, want, strict=True):
        torch.testing.assert_close(p.detach(), value, rtol=1e-9, atol=1e-12)


@pytest.mark.line("scaled")
@pytest.mark.parametrize("name", METHODS)
def test_a_loss_scaler_changes_nothing(name):
    card = nk.card(name)
    plain, scaled = card.kind.subject(card, dtype=torch.float32), card.kind.subject(card, dtype=torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for grads in gradients(plain, 2, torch.float32):
        want = plain.call(*grads)
        for factor in (float("inf"), scaler.get_scale()):
            for p, grad in zip(scaled.learned.values(), grads, strict=True):
                p.grad = grad * factor
            scaler.scale(torch.ones(()))
            scaler.step(scaled.made)
            scaler.update(2.0**10)
    same(scaled.learned.values(), want)


@pytest.mark.parametrize("name", METHODS)
def test_a_group_without_parameters_is_named(name):
    card = nk.card(name)
    (parameters,), options = card.kind.arguments(card)
    with pytest.raises(ValueError, match="params"):
        card.entry([{"params": parameters}, {"params": []}], **options)


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
def test_what_is_no_number_is_named(name):
    card = nk.card(name)
    numbers = [key for key, given in card.signature.parameters.items() if type(given.default) in (int, float)]
    for argument in numbers:
        for wrong in ("nonesuch", float("nan")):
            with pytest.raises((TypeError, ValueError), match=rf"^(?!{argument}:).*\b{argument}\b"):
                card.small(**{argument: wrong})


@pytest.mark.parametrize("name", METHODS)
def test_a_group_heeds_a_setting_or_refuses_it(name):
    card = nk.card(name)
    made = card.small()
    for argument, known in card.signature.parameters.items():
        if type(known.default) in (int, float) or argument not in {"params", *made.defaults}:
            with pytest.raises((TypeError, ValueError), match=rf"^(?!{argument}:).*\b{argument}\b"):
                made.add_param_group({"params": torch.nn.Parameter(torch.ones(4, 3)), argument: "nonesuch"})


@pytest.mark.parametrize("name", METHODS)
def test_a_step_calls_its_closure_and_schedulers_work(name):
    card = nk.card(name)
    subject = card.kind.subject(card)
    scheduler = torch.optim.lr_scheduler.StepLR(subject.made, 1, 0.5)

    def closure():
        subject.made.zero_grad()
        loss = sum((p - 1).square().sum() for p in subject.learned.values())
        loss.backward()
        return loss

    first = subject.made.step(closure).item()
    scheduler.step()
    subject.made.step(closure)  # the first step of some begins their statistics, and moves nothing
    assert subject.made.step(closure).item() < first
    assert copy.deepcopy(subject.made).param_groups[0]["lr"] == subject.made.defaults["lr"] / 2
