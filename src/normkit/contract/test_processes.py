"""Contract, processes: two processes with unequal batches equal one process with the joined batch."""

import pytest
import torch

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import METHODS, build, draw
from normkit.kinds.kind import layouts

SHARES = (3, 1)
STEPS = 2


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


def work(rank, folder, names):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=len(SHARES))
    results = {}
    for name in names:
        parts = [shard(name, draw(name, batch=4, seed=s), rank) for s in range(STEPS)]
        module = made(name, parts[0], sync=True)
        steps = [subject.run(module, part, seed=s) for s, part in enumerate(parts)]
        results[name] = (steps, subject.state(module))
    torch.save(results, f"{folder}/rank{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def shards(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    asked = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    names = [n for n in METHODS if n in asked and spans_samples(n)]
    torch.multiprocessing.spawn(work, args=(str(folder), names), nprocs=len(SHARES))
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(len(SHARES))]


@pytest.mark.line("processes")
@pytest.mark.parametrize("name", [n for n in METHODS if spans_samples(n)])
def test_two_processes_equal_one(name, shards):
    module = made(name, draw(name, batch=4, seed=0))
    axis = nk.card(name).shape.samples
    for step in range(STEPS):
        inputs = draw(name, batch=4, seed=step)
        got = [shards[rank][name][0][step] for rank in range(len(SHARES))]
        want = joined_run(module, name, inputs, step)
        for index, output in enumerate(want[0]):
            subject.close(torch.cat([g[0][index] for g in got], axis), output)
        subject.close(torch.cat([g[1][0] for g in got], axis), want[1][0])
        for parameter, gradient in want[2].items():
            if gradient is not None:
                subject.close(sum(g[2][parameter] for g in got), gradient)
    for rank in range(len(SHARES)):
        subject.close(shards[rank][name][1], subject.state(module))


def joined_run(module, name, inputs, seed):
    """The joined batch, with the gradient that the shards sent, joined likewise."""
    axis = nk.card(name).shape.samples
    inputs = [i.detach().clone().requires_grad_(i.is_floating_point()) for i in inputs]
    module.zero_grad(set_to_none=True)
    given = subject.outputs(module(*inputs))
    generators = [subject.gradient_source(seed) for _ in SHARES]
    sent = []
    for output in given:
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
