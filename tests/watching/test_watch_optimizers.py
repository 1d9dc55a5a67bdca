"""Several optimizers: the gradients and steps of each are read, and a step counts when all have made one."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import mlp, points

import normkit as nk
from normkit.watching.rounds import PATIENCE, Rounds

close = torch.testing.assert_close


def parts(*names):
    """A model of parts that are trained by an optimizer each, and the optimizers."""
    model = nn.ModuleDict({name: mlp(2, seed=seed) for seed, name in enumerate(names)})
    return model, [torch.optim.SGD(part.parameters(), lr=0.01) for part in model.values()]


def step_on(part, optimizer, step):
    x, y = points(step)
    F.cross_entropy(part(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


def step_and_clear(p):
    p.owner.step()
    p.owner.zero_grad()


def of_all(seen, what):
    return {name: float(series[-1]) for name, series in seen.history().of(what).items()}


@pytest.mark.parametrize("first", [0, 1])
def test_an_actor_and_a_critic_that_step_in_turn_both_have_gradients_and_steps(first):
    model, optimizers = parts("actor", "critic")
    with nk.watch(model, optimizers, every=5) as seen:
        for step in range(30):
            for number in (first, 1 - first):
                step_on([*model.values()][number], optimizers[number], step)
    history = seen.history()
    names = [name for name, _ in model.named_parameters()]
    assert history.steps[-1] == 30
    for what in ("gradient", "weight", "update"):
        assert history.names(what) == names
        assert all((series > 0).all() for series in history.of(what).values())
    assert not seen.diagnosis()


def test_two_optimizers_of_one_pass_are_read_as_one_is():
    """Column by column: the order is the model's, whichever optimizer holds which parameter."""
    histories = []
    for shared in (True, False):
        model = mlp()
        matrices, vectors = ([p for p in model.parameters() if (p.dim() > 1) is own] for own in (True, False))
        groups = [matrices + vectors] if shared else [matrices, vectors]
        optimizers = [torch.optim.SGD(group, lr=0.01) for group in groups]
        with nk.watch(model, optimizers, every=2) as seen:
            for step in range(6):
                x, y = points(step)
                F.cross_entropy(model(x), y).backward()
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        histories.append(seen.history())
    one, two = histories
    assert two.steps == one.steps
    assert [column for column in two.columns if column != ("group 1", "lr")] == one.columns
    for column in one.columns:
        close(two.series(*column), one.series(*column), rtol=1e-6, atol=0, equal_nan=True)


def test_an_update_is_that_of_one_step_where_a_critic_makes_three():
    model, (generator, critic) = parts("generator", "critic")
    with nk.watch(model, [generator, critic], every=1) as seen:
        weight = model["critic"][0].weight
        before = weight.detach().clone()
        step_on(model["critic"], critic, 0)
        first = ((weight - before).norm() / weight.norm()).item()
        for step in (1, 2):
            step_on(model["critic"], critic, step)
        step_on(model["generator"], generator, 0)
    assert of_all(seen, "update")["critic.0.weight"] == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize("listed", [["generator", "critic"], ["critic", "generator"]])
def test_three_steps_of_a_critic_for_one_of_the_generator_are_one_step(listed):
    model, optimizers = parts(*listed)
    own = dict(zip(listed, optimizers, strict=True))
    with nk.watch(model, optimizers, every=5) as seen:
        for step in range(40):
            for part in ("critic", "critic", "critic", "generator"):
                step_on(model[part], own[part], step)
    assert seen.step == 40
    assert seen.history().steps == [1, *range(5, 41, 5)]
    assert not np.isnan(list(seen.history().of("gradient").values())).any()
    assert not seen.diagnosis().of("gradient-spikes")


@pytest.mark.parametrize("unused", [False, True])
def test_an_optimizer_a_parameter_counts_a_step_a_pass(unused):
    model = mlp()
    model.register_parameter("unused", nn.Parameter(torch.ones(3)) if unused else None)
    for p in model.parameters():
        optimizer = torch.optim.SGD([p], lr=0.01)
        p.owner = optimizer
        p.register_post_accumulate_grad_hook(step_and_clear)
    with nk.watch(model, [p.owner for p in model.parameters()], every=5) as seen:
        for step in range(20):
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
    history = seen.history()
    assert seen.step == 20
    assert history.steps == [1, 5, 10, 15, 20]
    assert not np.isnan(list(history.of("gradient").values())).any()
    assert not np.isnan(history.series("loss", "cross_entropy")).any()
    assert {name for finding in seen.diagnosis() for name in finding.where} == ({"unused"} if unused else set())


def test_one_gradient_a_step_is_summed_however_many_optimizers_step():
    model, optimizers = parts("actor", "critic", "world")
    with nk.watch(model, optimizers, every=1000, start=1001) as seen:
        for step in range(4):
            for part, optimizer in zip(model.values(), optimizers, strict=True):
                step_on(part, optimizer, step)
    assert [place for _, place, _ in seen.onset.kept] == ["gradient"] * 4


@pytest.mark.parametrize("idle", [0, 1])
def test_an_optimizer_that_never_steps_holds_up_nothing(idle):
    model, optimizers = parts("used", "idle") if idle else parts("idle", "used")
    with nk.watch(model, optimizers, every=5) as seen:
        for step in range(40):
            step_on(model["used"], optimizers[1 - idle], step)
    assert seen.step == 40
    assert len(seen.history().steps) >= 6


def test_one_that_is_waited_for_no_longer_is_waited_for_once_it_steps_again():
    rounds = Rounds(2)
    for _ in range(PATIENCE):
        assert rounds.before(0) == 0
        assert not rounds.after(0)
    assert rounds.before(0) == PATIENCE
    assert rounds.after(0), "it is the only one now"
    assert not rounds.after(1)
    assert rounds.after(0)
    assert not rounds.after(0), "the other one is waited for again"
    assert rounds.after(1)


class Deaf(torch.optim.SGD):
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.data.sub_(p.grad, alpha=0.1)


class Sharp(torch.optim.SGD):
    """Sharpness-aware: moves the weights before it calls the closure, and back behind it."""

    def step(self, closure):
        parameters = self.param_groups[0]["params"]
        before = [p.detach().clone() for p in parameters]
        for p in parameters:
            p.data.mul_(1.5)
        with torch.enable_grad():
            closure()
        for p, old in zip(parameters, before, strict=True):
            p.data.copy_(old.sub_(p.grad, alpha=0.1))


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("method", [torch.optim.SGD, torch.optim.LBFGS, Sharp, Deaf])
def test_gradients_of_a_closure_are_those_of_its_own_step(method, by_name):
    model, wanted = mlp(), {"gradient": [], "update": []}
    weight = model[0].weight
    optimizer = method(model.parameters(), lr=0.1)

    def closure(step):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(points(step)[0]), points(step)[1])
        loss.backward()
        wanted["gradient"].append((step, weight.grad.norm().item()))
        return loss

    looks = []
    with nk.watch(model, optimizer, every=1) as seen:
        look, seen.onset.step = seen.onset.step, lambda *given: looks.append(look(*given))
        for step in range(4):
            before, pass_of_step = weight.detach().clone(), partial(closure, step)
            if method is Deaf:
                pass_of_step()
            optimizer.step(closure=pass_of_step) if by_name else optimizer.step(pass_of_step)
            wanted["update"].append(((weight - before).norm() / weight.norm()).item())
    first = dict(reversed(wanted["gradient"]))  # of the calls of a step
    history = seen.history()
    close(history.series("0.weight", "gradient").tolist(), [first[step] for step in range(4)])
    close(history.series("0.weight", "update").tolist(), wanted["update"])
    assert np.isfinite(history.series("loss", "loss")).all()
    assert seen.notes == []
    assert len(looks) == 4, "once a step, however often the closure is called"
    assert history.steps == [1, 2, 3, 4]


class Projected(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        for p in self.param_groups[0]["params"]:
            p.data.mul_(0.9)


@pytest.mark.parametrize("with_closure", [False, True])
def test_a_step_that_calls_that_of_its_base_class_counts_once(with_closure):
    model = mlp()
    torch.optim.SGD(model.parameters())  # from here on torch calls hooks in the base class as well
    optimizer, updates = Projected(model.parameters(), lr=0.1), []

    def closure(step):
        optimizer.zero_grad()
        F.cross_entropy(model(points(step)[0]), points(step)[1]).backward()

    with nk.watch(model, optimizer, every=1) as seen:
        for step in range(3):
            before = model[0].weight.detach().clone()
            if not with_closure:
                closure(step)
            optimizer.step(partial(closure, step) if with_closure else None)
            updates.append(((model[0].weight - before).norm() / model[0].weight.norm()).item())
    history = seen.history()
    assert history.steps == [1, 2, 3]
    assert all(np.isfinite(history.of("gradient")["0.weight"]))
    close(history.series("0.weight", "update").tolist(), updates)
