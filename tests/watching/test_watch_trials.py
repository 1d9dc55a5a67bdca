"""Remedies are tried on a copy: with the numbers that one would count by hand, and without a trace in the training."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import decoder, language, mlp, points, train

import normkit as nk
from normkit.watching import trials
from normkit.watching.trials import STEPS


def killed(**options):
    model = mlp(**options)
    model[2].bias.data -= 9
    return model


def remedies(seen, rule):
    [finding] = seen.diagnosis().of(rule)
    return finding.remedies


def state(model, optimizer):
    """Everything that a trial could have changed."""
    slots = optimizer.state_dict()
    hooks = [
        (kind, number, id(hook))
        for module in model.modules()
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
        for number, hook in getattr(module, kind).items()
    ]
    return copy.deepcopy(
        {
            "weights": model.state_dict(),
            "gradients": [p.grad for p in model.parameters()],
            "slots": slots,
            "modes": [module.training for module in model.modules()],
            "hooks": hooks,
            "classes": [type(module) for module in model.modules()],
            "chance": (torch.get_rng_state(), random.getstate(), np.random.get_state()),
            "optimizer hooks": [id(hook) for hook in optimizer._optimizer_step_pre_hooks.values()],
        }
    )


def same(one, other):
    if isinstance(one, torch.Tensor | np.ndarray):
        return bool((one == other).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def test_a_trial_leaves_everything_as_it_was():
    model = nn.Sequential(*killed(norm=None)[:-1], nn.Dropout(0.3), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = points(0)
    _, seen = train(model, points, make=lambda p, lr: optimizer)
    with seen:
        F.cross_entropy(model(x), y).backward()
        before, counted = state(model, optimizer), dict(seen.sample.calls) if seen.sample else None
        assert remedies(seen, "dead-units")[0].tried
        assert same(before, state(model, optimizer))
        assert counted is None or counted.keys() == seen.sample.calls.keys()


def dead(model, x, place):
    """The share of dead channels that the first layers of a model give."""
    with torch.no_grad():
        return float((model[: place + 1](x).abs().amax(0) == 0).float().mean())


def test_the_numbers_are_those_counted_by_hand():
    model = killed()
    _, seen = train(model, points)
    [finding] = seen.diagnosis().of("dead-units")
    assert finding.where[0] == "3"
    x = seen.batch.args[0]
    for remedy in finding.remedies:
        helped = copy.deepcopy(model)
        exec(remedy.line, {"model": helped, "nn": nn, "nk": __import__("normkit")})
        shares = [f"{dead(each, x, 3):.0%}" for each in (model, helped)]
        assert remedy.tried == f"the share of dead units of 3 falls from {shares[0]} to {shares[1]}"
    assert "      tried on a copy: the share" in str(seen.diagnosis())


def test_a_rate_is_tried_by_steps_on_the_last_batch():
    model = decoder(std=0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.3)
    _, seen = train(model, language, make=lambda p, lr: optimizer)
    [remedy] = remedies(seen, "rate-too-high")
    losses = {}
    for line in ("", remedy.line):
        twin, own = copy.deepcopy((model, optimizer))
        exec(line, {"optimizer": own})
        x, y = seen.batch.args[0], language(23)[1]
        for _ in range(STEPS + 1):
            loss = F.cross_entropy(twin(x).flatten(0, -2), y.flatten())
            losses.setdefault(line, []).append(loss.item())
            own.zero_grad()
            loss.backward()
            own.step()
    first, last, plain = losses[""][0], losses[remedy.line][STEPS], losses[""][STEPS]
    words = remedy.tried.replace(",", "").replace(";", "").split()
    found = [float(word) for word in words if word.replace(".", "").isdigit()]
    assert found == pytest.approx([STEPS, first, last, plain], rel=0.01)


def test_of_several_calls_in_a_step_a_batch_has_its_own_target():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer) as seen:
        losses = [F.cross_entropy(model(points(part)[0]), points(part)[1]) for part in range(2)]
        with torch.no_grad():
            model(points(2)[0])
        sum(losses).backward()
        optimizer.step()
    (x,), target = seen.batch.args, seen.batch.target
    [part] = [part for part in range(3) if torch.equal(x, points(part)[0])]
    assert torch.equal(target.classes, points(part)[1])


def test_a_line_that_fails_on_the_model_is_not_printed():
    class Pairs(nn.Sequential):
        def forward(self, x):
            assert isinstance(self[3], nn.ReLU), "no other module will do"
            return super().forward(x)

    _, seen = train(Pairs(*killed()), points)
    assert remedies(seen, "dead-units") == ()


@pytest.mark.parametrize("reason", ["hooks", "size", "time"])
def test_what_would_cost_or_show_is_not_tried(reason, monkeypatch):
    model, heard = killed(), []
    if reason == "hooks":
        model[0].register_forward_hook(lambda *_: heard.append(1))
    elif reason == "size":
        monkeypatch.setattr(trials, "LARGEST", 1000)
    else:
        monkeypatch.setattr(trials, "SECONDS", 0.0)
    _, seen = train(model, points)
    count = len(heard)
    found = remedies(seen, "dead-units")
    assert [remedy.name for remedy in found] == ["batchnorm", "layernorm"]
    assert not any(remedy.tried for remedy in found)
    assert len(heard) == count


def test_remedies_are_tried_on_a_model_whose_weights_have_a_history():
    model = killed()
    nn.utils.spectral_norm(model[-1])
    _, seen = train(model, points)
    assert "falls from 100% to" in remedies(seen, "dead-units")[0].tried
