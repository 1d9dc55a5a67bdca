"""Contract, processes: two processes with unequal batches equal one process with the joined batch.

Real ones first, then two threads in their place, whose sums need no starting and no sending, and which are of a group
that must be named wherever something is added up.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import normkit as nk
from normkit import statistics
from normkit.contract import subject
from normkit.contract.elsewhere import Elsewhere
from normkit.contract.subject import METHODS, build, draw
from normkit.kinds.kind import layouts

SHARES = (3, 1)
STEPS = 2
BUILDING = threading.Lock()  # threads draw from one generator


# arguments that give sync something to join, where the defaults take no statistic over samples
JOINED = {
    "instancenorm": {"track_running_stats": True},
    "sawn": {"norm": "batch"},
    "softmax-free": {"norm": "symmetric"},
    "spade": {"norm": "batch"},
}


def takes_sync(name):
    return "sync" in nk.card(name).signature.parameters


def spans_samples(name):
    return "N" in nk.card(name).over.axes or takes_sync(name)


def made(name, inputs, **sync):
    """Build the method; one whose statistics are fitted is set from the first input's features."""
    with BUILDING:
        module = build(name, **JOINED.get(name, {}), **(sync if takes_sync(name) else {}))
    fitted = takes_sync(name) and hasattr(module, "fit")
    return module.fit(inputs[0].movedim(1, -1).flatten(0, -2)) if fitted else module


def shard(name, inputs, rank):
    """The rank's part of every input, cut along the axis of the samples."""
    start = sum(SHARES[:rank])
    cut = []
    for layout, value in zip(layouts(nk.card(name)), inputs, strict=True):
        axis = layout.samples
        cut.append(value if axis is None else value.narrow(axis, start, SHARES[rank]))
    return cut


def work(name, **group):
    rank = torch.distributed.get_rank()
    parts = [shard(name, draw(name, batch=4, seed=s), rank) for s in range(STEPS)]
    module = made(name, parts[0], sync=True, **group)
    return [subject.run(module, part, seed=s) for s, part in enumerate(parts)], subject.state(module)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    pair = Elsewhere(work, tmp_path_factory.mktemp("processes"), count=len(SHARES))
    yield pair
    pair.stop()


class Threads:
    """Ranks that are threads; outside of their group each is alone."""

    def __init__(self, count):
        self.barrier, self.given, self.own = threading.Barrier(count, timeout=60), [None] * count, threading.local()

    def there(self):
        return True

    def size(self, group=None):
        return len(self.given) if group is self else 1

    def rank(self, group=None):
        return self.own.rank

    def all_reduce(self, x, group):
        self.given[self.own.rank] = x.detach()
        self.barrier.wait()
        total = torch.stack(self.given).sum(0, dtype=x.dtype)
        self.barrier.wait()
        return total

    def ask(self, name):
        """What each gives; one that fails leaves no other waiting."""
        with ThreadPoolExecutor(len(self.given)) as pool:
            return list(pool.map(lambda rank: self._work(name, rank), range(len(self.given))))

    def _work(self, name, rank):
        self.own.rank = rank
        try:
            return work(name, process_group=self)
        except BaseException:
            self.barrier.abort()
            raise


@pytest.fixture
def threads(monkeypatch):
    group = Threads(len(SHARES))
    monkeypatch.setattr(statistics, "_all_reduce", group.all_reduce)
    for name, own in {"is_initialized": group.there, "get_world_size": group.size, "get_rank": group.rank}.items():
        monkeypatch.setattr(torch.distributed, name, own)
    return group


SPANNING = [name for name in METHODS if spans_samples(name)]


@pytest.mark.line("processes")
@pytest.mark.parametrize("name", SPANNING)
def test_two_processes_equal_one(name, processes):
    equal_one(name, processes.ask(name))


@pytest.mark.line("processes")
@pytest.mark.parametrize("name", SPANNING)
def test_two_threads_equal_one(name, threads):
    equal_one(name, threads.ask(name))


def equal_one(name, shards):
    module = made(name, draw(name, batch=4, seed=0))
    axis = nk.card(name).shape.samples
    for step in range(STEPS):
        inputs = draw(name, batch=4, seed=step)
        got = [shards[rank][0][step] for rank in range(len(SHARES))]
        want = joined_run(module, name, inputs, step)
        for index, output in enumerate(want[0]):
            subject.close(torch.cat([g[0][index] for g in got], axis), output)
        subject.close(torch.cat([g[1][0] for g in got], axis), want[1][0])
        for parameter, gradient in want[2].items():
            if gradient is not None:
                subject.close(sum(g[2][parameter] for g in got), gradient)
    for rank in range(len(SHARES)):
        subject.close(shards[rank][1], subject.state(module))


def joined_run(module, name, inputs, seed):
    """The joined batch, with the gradient that the shards sent, joined likewise."""
    axis = nk.card(name).shape.samples
    inputs = [i.detach().clone().requires_grad_(i.is_floating_point()) for i in inputs]
    module.zero_grad(set_to_none=True)
    given = subject.outputs(module(*inputs))
    generators = [subject.gradient_source(seed) for _ in SHARES]
    sent = []
    for output in given:
        lies = axis is not None and output.shape[axis : axis + 1] == (sum(SHARES),)
        assert lies, (
            f"a result of {tuple(output.shape)} has no axis of samples; if it is of the whole batch, write "
            'exempt={"processes": "join the batch before the call"}'
        )
        parts = []
        for rank, share in enumerate(SHARES):
            shape = list(output.shape)
            shape[axis] = share
            parts.append(torch.randn(shape, generator=generators[rank], dtype=torch.float64))
        sent.append(torch.cat(parts, axis))
    torch.autograd.backward(given, sent)
    return (
        [o.detach() for o in given],
        [i.grad for i in inputs if i.is_floating_point()],
        {n: p.grad for n, p in module.named_parameters()},
    )
