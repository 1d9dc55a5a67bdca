"""What flows, samplers, strategies, steps of text, signals and rules keep, those of installed packages among them."""

import inspect

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import families
from normkit.contract.asked import names
from normkit.watching.history import History
from normkit.watching.signals.signal import Call, Place, first_tensor
from normkit.watching.sites import LAYER, NORMED
from normkit.watching.store import BESIDE, LARGEST, LEAST, MEAN
from normkit.watching.watching import number_names

FLOWS, SAMPLERS, PLANS, STEPS, SIGNALS, RULES = map(families.family, families.KINDS)
F64 = torch.float64
LINES = {line for own in families.LINES.values() for line in own}
EVENTS = {1: 3, 3: (2, 4, 4)}
close = torch.testing.assert_close


def cases(recipe):
    """Each shape of an event, alone and with what a law may depend on."""
    depends = [{}, *([{"context": 2}] if recipe.context else []), *([{"classes": 4}] if recipe.labels else [])]
    return [(EVENTS[axes], given) for axes in recipe.axes for given in depends]


FLOW_CASES = [(name, *case) for name in names("flow") for case in cases(FLOWS[name])]


def build(name, event, given):
    torch.manual_seed(0)
    flow = nk.density.flow(name, event, **{"hidden": 8, "depth": 2, **FLOWS[name].small, **given}).double()
    with torch.no_grad():
        for value in flow.parameters():
            value.add_(0.1 * torch.rand_like(value))
    x = torch.randn(5, *flow.event, dtype=F64)
    context = torch.randn(5, 2, dtype=F64) if flow.context else torch.randint(0, 4, (5,)) if flow.classes else None
    return flow, x, context


@pytest.mark.parametrize("kind", families.KINDS)
def test_everything_of_a_kind_is_loaded_and_described(kind):
    family = families.family(kind)
    assert len(family) == len(set(family)) > 0
    for name in names(kind):
        assert family[name] is not None
        assert family.summary(name).endswith("."), name
        unknown = {key.split()[0] for key in family.exempt(name)} - LINES
        assert not unknown, f"{name}: EXEMPT names no line of the contract: {unknown}"


@pytest.mark.line("flow-inverse")
@pytest.mark.parametrize("name, event, given", FLOW_CASES)
def test_a_flow_is_inverted_and_has_its_determinant(name, event, given):
    flow, x, context = build(name, event, given)
    z, log_det = flow(x, context)
    close(flow.inverse(z, context), x, rtol=1e-6, atol=1e-6)
    one = None if context is None else context[:1]
    jacobian = torch.autograd.functional.jacobian(lambda x: flow(x, one)[0], x[:1]).reshape(x[0].numel(), -1)
    close(log_det[0], torch.linalg.slogdet(jacobian)[1], rtol=1e-6, atol=1e-7)


@pytest.mark.line("flow-memory")
@pytest.mark.parametrize("name, event, given", FLOW_CASES)
def test_a_flow_gives_the_same_gradient_where_inputs_are_recomputed(name, event, given):
    flow, x, context = build(name, event, given)
    gradients = []
    for memory in ("kept", "recomputed"):
        flow.memory, leaf = memory, x.clone().requires_grad_()
        gradients.append(torch.autograd.grad(flow.log_prob(leaf, context).sum(), [leaf, *flow.parameters()]))
    close(*gradients, rtol=1e-5, atol=1e-6)


@pytest.mark.line("flow-saved")
@pytest.mark.parametrize("name, event, given", FLOW_CASES)
def test_what_a_flow_depends_on_moves_it_and_a_saved_one_gives_the_same_bits(name, event, given):
    flow, x, context = build(name, event, given)
    z, _ = flow.initialize(x, context)(x, context)
    other = nk.density.flow(name, event, **{"hidden": 8, "depth": 2, **FLOWS[name].small, **given}).double()
    other.load_state_dict(flow.state_dict())
    close(other(x, context)[0], z, rtol=0, atol=0)
    if context is not None:
        assert (flow(x, context + 1 if flow.context else (context + 1) % 4)[0] != z).any()


@pytest.mark.line("flow-options")
@pytest.mark.parametrize("name", names("flow"))
def test_a_flow_refuses_an_option_that_it_does_not_take(name):
    with pytest.raises((TypeError, ValueError), match="nonesuch"):
        nk.density.flow(name, EVENTS[FLOWS[name].axes[0]], nonesuch=1)


PROPOSES = {
    "": lambda: None,
    "Flow": lambda: nk.density.flow("affine-coupling", 2, depth=1, hidden=4).double(),
    "Diffusion": lambda: nk.density.Diffusion(2, lambda t, x: -x * t[:, None], steps=4),
}


@pytest.mark.line("sampler-repeats")
@pytest.mark.parametrize("name", names("sampler"))
def test_a_sampler_says_what_it_needs_and_repeats_itself_from_a_seed(name):
    sampler, start = SAMPLERS[name], torch.zeros(6, 2, dtype=F64)
    law = torch.distributions.MultivariateNormal(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    flow = PROPOSES[sampler.proposes]()
    with pytest.raises(ValueError, match="flow"):
        nk.density.walk(name, law.log_prob, start, steps=1, flow=PROPOSES["Flow"]() if flow is None else None)
    runs = [nk.density.walk(name, law.log_prob, start, steps=4, warmup=4, flow=flow, seed=1) for _ in range(2)]
    close(runs[0].draws, runs[1].draws, rtol=0, atol=0)
    assert runs[0].draws.shape == (4, 6, 2)
    assert (runs[0].step_size is not None) == sampler.scaled


@pytest.mark.line("sampler-law")
@pytest.mark.parametrize("name", names("sampler"))
def test_a_sampler_keeps_the_law_that_it_samples(name):
    torch.manual_seed(0)
    mean, covariance = torch.tensor([1.0, -1.0], dtype=F64), torch.tensor([[1.0, 0.5], [0.5, 2.0]], dtype=F64)
    law = torch.distributions.MultivariateNormal(mean, covariance)
    start, flow = law.sample((2000,)), PROPOSES[SAMPLERS[name].proposes]()
    draws = nk.density.walk(name, law.log_prob, start, steps=40, flow=flow, seed=1).draws[-1]
    assert (draws != start).any()
    close(draws.mean(0), mean, rtol=0, atol=0.1)  # of 2000 chains: 3 standard errors and more
    close(draws.mT.cov(), covariance, rtol=0, atol=0.2)


@pytest.mark.line("strategy-parts")
@pytest.mark.parametrize("name", names("strategy"))
def test_the_parts_of_a_strategy_are_methods(name):
    for part in PLANS[name].parts:
        nk.card(part)
    with pytest.raises(TypeError, match="nonesuch"):
        nk.federated.strategy(name, nonesuch=1)


@pytest.mark.line("step-built")
@pytest.mark.parametrize("name", names("text-step"))
def test_a_step_of_text_says_how_it_is_built_again(name):
    takes = inspect.signature(STEPS[name]).parameters
    if any(p.default is p.empty for p in takes.values()):  # perhaps the folder of a model, so nothing is built
        step = STEPS[name].__new__(STEPS[name])
        vars(step).update({key: "" if p.default is p.empty else p.default for key, p in takes.items()})
    else:
        step = STEPS[name]()
        assert STEPS[name](**step.settings()).settings() == step.settings()
    assert set(step.settings()) == set(takes), "a saved normalizer builds it of these"
    assert STEPS[name].__name__ not in {STEPS[other].__name__ for other in STEPS if other != name}


PLACES = [
    (Place(nn.Linear(8, 5), LAYER), torch.randn(4, 6, 8), -1),
    (Place(nn.Linear(8, 8), LAYER, block=True), torch.randn(4, 6, 8), -1),
    (Place(nn.Embedding(9, 8), LAYER), torch.randint(0, 9, (4, 6)), -1),
    (Place(nn.Conv2d(3, 4, 3), LAYER), torch.randn(4, 3, 6, 7), 1),
    (Place(nk.RMSNorm(8), NORMED), torch.randn(4, 6, 8), -1),
    (Place(nn.BatchNorm1d(8), NORMED), torch.randn(4, 8), 1),
    (Place(nn.Tanh(), "function"), torch.randn(4, 6, 8), -1),
    (Place(nk.Router(8, 4, top_k=2), ""), torch.randn(64, 8), -1),
]


@pytest.mark.line("signal-read")
@pytest.mark.parametrize("name", names("signal"))
def test_a_signal_reads_as_many_numbers_as_it_names(name):
    signal = SIGNALS[name]
    assert set(signal.numbers.values()) <= {MEAN, LARGEST, LEAST, BESIDE}
    for place, x, axis in PLACES:
        output = place.module(x)
        y = first_tensor(output)
        call = Call(place.module, first_tensor(x), y, axis, output)
        before = [part.clone() for part in (x, y)]
        read = signal.read(call) if signal.fits(place) else None
        assert read is None or (read.shape == (len(signal.numbers),) and not read.requires_grad), place
        for part, kept in zip((x, y), before, strict=True):
            close(part, kept, rtol=0, atol=0)


@pytest.mark.line("signal-names")
@pytest.mark.parametrize("name", names("signal"))
def test_no_other_signal_reads_numbers_of_the_same_name(name):
    others = {number for other in SIGNALS if other != name for number in SIGNALS[other].numbers}
    assert not others & set(SIGNALS[name].numbers)


@pytest.mark.line("rule-silent")
@pytest.mark.parametrize("name", names("rule"))
def test_a_rule_is_silent_where_nothing_was_seen(name):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), nk.LayerNorm(4), torch.nn.ReLU())
    with nk.watch(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)) as watched:
        assert list(RULES[name](watched.history())) == []


class Asked(History):
    """Keeps which numbers it is asked for."""

    def __init__(self, history):
        super().__init__(history.store, history.facts)
        self.asked = set()

    def names(self, what):
        self.asked.add(what)
        return super().names(what)

    def series(self, where, what):
        self.asked.add(what)
        return super().series(where, what)


@pytest.mark.line("rule-numbers")
@pytest.mark.parametrize("name", names("rule"))
def test_a_rule_asks_for_numbers_that_are_read(name):
    model = nn.Sequential(nn.Linear(4, 4), nk.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1) as watched:
        for _ in range(3):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    history = Asked(watched.history())
    list(RULES[name](history))
    unknown = history.asked - number_names()
    assert not unknown, f"{name}: {unknown} are read by nothing, of {sorted(number_names())}"
