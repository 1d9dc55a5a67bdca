"""Inside of torch.compile a watch gives the numbers of eager mode, breaks no graph, and leaves other steps alone."""

import copy

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F
from trainings import points

import normkit as nk
from normkit.watching import inspect, taps
from normkit.watching.checkup import checkup
from normkit.watching.history import NOISE

STEPS = 6


class Attention(nn.Module):
    """Attention of one's own; the scores are heard of torch's function or of a softmax."""

    def __init__(self, fused):
        super().__init__()
        self.fused, self.qkv, self.out = fused, nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(8), Attention(fused)
        self.map, self.act = nn.Linear(8, 8), nn.ReLU()

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.act(self.map(x))


class TopKRouter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)

    def forward(self, x):
        return F.softmax(self.gate(x), -1).topk(2, -1)


class MoE(nn.Module):
    """A mixture that says how many tokens it has dropped."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = TopKRouter(), nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.dropped = None

    def forward(self, x):
        weights, chosen = self.router(x)
        self.dropped = (weights < 0.3).float().mean()
        parts = [(weights * (chosen == i)).sum(-1, keepdim=True) * e(x) for i, e in enumerate(self.experts)]
        return x + torch.stack(parts).sum(0)


class Net(nn.Module):
    """What has every kind of signal: blocks, norms of features and of batches, functions, attention, a mixture."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inputs, self.batch_norm, self.tanh = nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh()
        self.blocks = nn.ModuleList([Block(True), Block(False)])
        self.mixture, self.head = MoE(), nn.Linear(8, 2)

    def forward(self, x):
        x = self.tanh(self.batch_norm(self.inputs(x))).unflatten(1, (4, 8))
        for block in self.blocks:
            x = block(x)
        return self.head(self.mixture(x).mean(1))


def whole(model, backend):
    return torch.compile(model, backend=backend, fullgraph=True)


def in_place(model, backend):
    model.compile(backend=backend, fullgraph=True)
    return model


def in_parts(model, backend):
    for block in model.blocks:
        block.compile(backend=backend, fullgraph=True)
    return model


def wrapped_parts(model, backend):
    for place, block in enumerate(model.blocks):
        model.blocks[place] = torch.compile(block, backend=backend, fullgraph=True)
    return model


def train(model, watched=True, every=2, steps=STEPS, between=None, **options):
    """Return the losses and the watch; ``between``: called with the number of each step before it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = nk.watch(model, optimizer, every=every, **options)
    if watched:
        seen.start()
    losses = []
    for step in range(steps):
        if between is not None:
            between(step)
        x, y = points(step)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    seen.stop()
    return losses, seen


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()
    assert not taps.sampling
    assert not taps.readers
    assert F.softmax is taps._PLAIN["softmax"]
    assert F.scaled_dot_product_attention is taps._PLAIN["attend"]
    assert torch.softmax is taps._PLAIN["own"]


@pytest.fixture(scope="module")
def eager():
    losses, seen = train(Net())
    return losses, {column: seen.history().series(*column) for column in seen.history().columns}


@pytest.mark.parametrize(
    "way, name", [(whole, "aot_eager"), (in_place, "eager"), (in_parts, "eager"), (wrapped_parts, "eager")]
)
def test_numbers_are_those_of_eager_mode(way, name, eager):
    backend = CompileCounterWithBackend(name)
    losses, seen = train(way(Net(), backend))
    history, (plain, numbers) = seen.history(), eager
    assert losses == pytest.approx(plain, abs=1e-6)
    assert history.notes == []
    assert [column for column in history.columns if column not in numbers] == []
    missing = [column for column in numbers if column not in history.columns]
    assert missing == [column for column in numbers if column[0] == NOISE] or way is not whole
    for column in history.columns:
        got, want = torch.tensor(history.series(*column)), torch.tensor(numbers[column])
        torch.testing.assert_close(got, want, rtol=2e-4, atol=1e-6, equal_nan=True, msg=str(column))
    kinds = {"entropy", "logit", "load", "dropped", "softmax_twice", "variance_ratio", "loss", "rms", "eps_share"}
    assert kinds <= {what for _, what in history.columns}
    if way in (whole, in_place):
        assert backend.frame_count == 2, "a graph for the steps that are looked at, and one for the others"


def test_losses_are_the_same_to_the_last_bit():
    losses = [train(whole(Net(), "eager"), watched=watched, every=3)[0] for watched in (True, False)]
    assert losses[0] == losses[1]


def test_what_was_compiled_before_the_watch_is_not_seen_and_that_is_noted():
    model = whole(Net(), "eager")
    train(model, watched=False, steps=1)
    _, seen = train(model, steps=2)
    attentions = 2  # which hold layers, and have no numbers of their own
    assert seen.notes == [taps.LATE.format(count=len(seen.history().facts["kinds"]) + attentions)]
    assert seen.history().names("rms") == []
    assert seen.history().names("update")
    assert "compiled before the watch began" in str(seen.diagnosis())


def test_a_copy_is_not_tapped_and_nothing_stays_behind():
    model = Net()
    model.compile(backend="eager", fullgraph=True)
    inner = model._compiled_call_impl
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1) as seen:
        model(points(0)[0])
        other = copy.deepcopy(model)
        other(points(1)[0])
        assert seen.sample.calls["head", "activation"][2] == 1
    assert model._compiled_call_impl is inner
    assert not any(hasattr(module, taps.KEY) or module._forward_hooks for module in model.modules())


def test_each_call_is_a_step_without_an_optimizer():
    model = Net()
    model.compile(backend="eager", fullgraph=True)
    with nk.watch(model, every=1) as seen:
        for step in range(3):
            model(points(step)[0]).sum().backward()
    assert seen.history().steps == [1, 2, 3]
    assert seen.history().names("rms")


def test_two_watches_of_a_compiled_model_read_each_call_once_and_the_first_goes_on_alone(eager):
    model = whole(Net(), "eager")
    others = [nk.watch(model, every=1), nk.watch(model, every=1)]

    def begin_and_end(step):
        if step in (1, 2):
            others[step - 1].start()
        if step in (2, 4):
            others[step // 2 - 1].stop()

    _, seen = train(model, between=begin_and_end)
    assert [watch.history().steps for watch in others] == [[1], [1, 2]]
    assert [watch.notes for watch in (seen, *others)] == [[], [], []]
    for what in ("rms", "load", "entropy"):
        for watch, steps in ((seen, slice(None)), (others[0], [1])):
            names = watch.history().names(what)
            assert names == seen.history().names(what) != []
            for name in names:
                want = torch.tensor(eager[1][name, what])[steps]
                torch.testing.assert_close(torch.tensor(watch.history().series(name, what)), want, rtol=2e-4, atol=1e-6)
    assert not any(hasattr(module, taps.KEY) or module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("way", [lambda model, backend: model, whole, in_place, in_parts])
@pytest.mark.parametrize("look", [inspect, checkup])
def test_a_look_from_outside_leaves_the_numbers_of_a_watch_alone(way, look):
    def look_at(step):
        if step == 3:
            looks.append(look(model, [(1000 * points(0)[0], points(0)[1])], **options))

    options = {"passes": 1} if look is inspect else {"seconds": 1e-9}
    looks, histories, losses = [], [], []
    for between in (None, look_at):
        torch.compiler.reset()
        model = way(Net(), "eager")
        course, seen = train(model, every=1, between=between)
        assert seen.notes == []
        losses.append(course)
        histories.append({column: seen.history().series(*column).tolist() for column in seen.history().columns})
    assert losses[0] == losses[1]
    assert histories[0].keys() == histories[1].keys()
    for column, want in histories[0].items():
        assert histories[1][column] == pytest.approx(want, nan_ok=True), column
    history = looks[0].history() if look is inspect else looks[0].history
    assert history.late("rms")["inputs"] > 100


def test_calls_of_a_look_from_outside_are_no_steps_of_a_training():
    model = Net()
    with nk.watch(model, every=1) as seen:
        for step in range(2):
            inspect(model, [points(0)], passes=1)
            model(points(step)[0]).sum().backward()
    assert seen.history().steps == [1, 2]
