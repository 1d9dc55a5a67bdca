"""Batch statistics over processes: one sum a layer, and the numbers of one process, however the batch is shared out."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.contract.subject import build
from normkit.contract.test_ranks import takes_sync
from processes import gap, group_of, laid, mesh_of, numbers

COUNT = 2
SHARES = (5, 2)  # samples of each process
OVER_SAMPLES = [
    name
    for name in nk.methods(room="activation")
    if nk.card(name).kind.name == "norm" and nk.card(name).spans_samples and takes_sync(name)
    if all(layout.optional for layout in nk.card(name).inputs.values())
]
SUM = [{"all_reduce": 1}] * 2


def work(task, *arguments):
    return globals()[task](*arguments)


processes = group_of(COUNT, work)
four = group_of(4, work)


def own_samples():
    rank = torch.distributed.get_rank()
    return slice(sum(SHARES[:rank]), sum(SHARES[: rank + 1]))


def sent_by(mode):
    return {str(op).rsplit(".", 1)[-1]: count for op, count in mode.get_comm_counts().items()}


def model(sync):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), nk.BatchNorm(6, sync=sync), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 9, 8)]
    return nn.Sequential(*layers, nk.BatchNorm(8, sync=sync), nn.Linear(8, 2)).double()


def batches(steps):
    """Two microbatches a step, images and targets."""
    chance = torch.Generator().manual_seed(5)
    draw = lambda *shape: torch.randn(*shape, generator=chance, dtype=torch.float64)  # noqa: E731
    return [[(draw(sum(SHARES), 3, 5, 5), draw(sum(SHARES), 2)) for _ in range(2)] for _ in range(steps)]


def trained(way=None):
    """A model that is trained with accumulated gradients, and what was sent in its first step."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.nn.parallel import DistributedDataParallel

    whole = model(sync=way is not None)
    own, share = (own_samples(), COUNT / sum(SHARES)) if way else (slice(None), 1 / sum(SHARES))
    trainee = DistributedDataParallel(whole, broadcast_buffers=False) if way == "ddp" else whole
    trainee = fully_shard(trainee) if way == "fsdp2" else trainee
    optimizer = torch.optim.SGD(trainee.parameters(), lr=0.05, momentum=0.9)
    counts = []
    for micro in batches(steps=2):
        for last, (x, target) in enumerate(micro):
            if way == "ddp":
                trainee.require_backward_grad_sync = bool(last)
            if way == "fsdp2":
                trainee.set_requires_gradient_sync(bool(last))
            with CommDebugMode() as forward:
                y = trainee(x[own])
            with CommDebugMode() as backward:
                ((y - target[own]).square().sum() * share).backward()
            counts.append([sent_by(forward).get("all_reduce", 0), sent_by(backward).get("all_reduce", 0)])
        optimizer.step()
        optimizer.zero_grad()
    values = {name: v.detach() for name, v in [*whole.named_parameters(), *whole.named_buffers()]}
    return {name: v.full_tensor() if hasattr(v, "full_tensor") else v for name, v in values.items()}, counts


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_unequal_batches_train_as_one_process_with_accumulated_gradients(way, processes):
    want, _ = trained()
    for values, counts in processes.ask("trained", way):
        assert counts[0] == [2, 2], "one sum a norm, forward and backward"
        assert list(values) == list(want)
        for name, value in want.items():
            torch.testing.assert_close(values[name], value, rtol=1e-10, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def extremes():
    """How far the result and the gradient of a tensor's extremes are from one process', and what was sent."""
    from torch.distributed.tensor.debug import CommDebugMode

    x, grad = numbers(sum(SHARES), 3), numbers(sum(SHARES), 3, seed=9)
    own, whole = x[own_samples()].requires_grad_(), x.clone().requires_grad_()
    with CommDebugMode() as forward:
        y = nk.create("tensor-minmax-norm", sync=True)(own)
    with CommDebugMode() as backward:
        y.backward(grad[own_samples()])
    want = nk.create("tensor-minmax-norm")(whole)
    want.backward(grad)
    off = max((a - b[own_samples()]).abs().max().item() for a, b in [(y, want), (own.grad, whole.grad)])
    return off, [sent_by(forward), sent_by(backward)]


def test_both_extremes_of_a_tensor_are_one_message(processes):
    for off, sent in processes.ask("extremes"):
        assert off < 1e-12
        assert sent == SUM


PLACED = {  # by the mesh and what it shards: sums of the statistics, forward and backward
    "samples": ((4,), (0,), SUM),
    "channels": ((4,), (1,), [{}, {}]),
    "space": ((4,), (2,), SUM),
    "samples and channels": ((2, 2), (0, 1), SUM),
    "samples and space": ((2, 2), (0, 2), SUM),
    "copies": ((4,), (None,), [{}, {}]),
}


def placed(name, mesh, axes, sync):
    """How far a norm of a DTensor is from one process', in training and evaluation, and what it sent."""
    from torch.distributed.tensor import Replicate, Shard, distribute_module
    from torch.distributed.tensor.debug import CommDebugMode

    mesh = mesh_of(mesh)
    places = [Replicate() if axis is None else Shard(axis) for axis in axes]
    one = nk.create(name, 5, **({"sync": True} if sync else {})).double()
    with torch.no_grad():
        for seed, parameter in enumerate(one.parameters(), 1):
            parameter.copy_(1 + 0.3 * numbers(*parameter.shape, seed=seed))
    many = distribute_module(copy.deepcopy(one), mesh)
    one.sync = False
    x, grad = 3 + numbers(6, 5, 7), numbers(6, 5, 7, seed=9)
    cut, whole = laid(x, mesh, places).requires_grad_(), x.clone().requires_grad_()
    spread = laid(grad, mesh, places)
    with CommDebugMode() as forward:
        y = many(cut)
    with CommDebugMode() as backward:
        y.backward(spread)
    want = one(whole)
    want.backward(grad)
    pairs = [(y, want), (cut.grad, whole.grad)]
    pairs += [(a.grad, b.grad) for a, b in zip(many.parameters(), one.parameters(), strict=True)]
    pairs += list(zip(many.buffers(), one.buffers(), strict=True))
    pairs.append((many.eval()(cut), one.eval()(whole)))
    kept = [str(buffer.placements) for buffer in many.buffers() if buffer.ndim]
    off = max(gap(a, b) for a, b in pairs)
    return off, [sent_by(forward), sent_by(backward)], [y.placements == cut.placements, *kept]


@pytest.mark.parametrize("sync", [False, True], ids=["", "sync"])
@pytest.mark.parametrize("case", PLACED)
def test_samples_of_a_dtensor_are_normalized_together(case, sync, four):
    mesh, axes, counts = PLACED[case]
    copies = "(Replicate(),)" if len(mesh) == 1 else "(Replicate(), Replicate())"
    gathered = {"all_gather_into_tensor": 2} if 1 in axes else {}  # of the running moments, which are whole
    for off, sent, places in four.ask("placed", "batchnorm", mesh, axes, sync):
        assert off < 1e-12
        assert sent == [counts[0] | gathered, counts[1]]
        assert places == [True, copies, copies]


def by_samples(name, mesh, axes):
    """How far a norm of a DTensor's samples is from one process' after two steps, and whether it keeps its place."""
    from torch.distributed.tensor import Replicate, Shard, distribute_module

    samples = nk.card(name).shape.samples
    mesh = mesh_of(mesh)
    places = [Replicate() if axis is None else Shard(samples) for axis in axes]
    one = build(name)
    many, off = distribute_module(copy.deepcopy(one), mesh), []
    for seed in range(2):
        x = nk.card(name).draw(8, 6, trailing=(6, 4), dtype=torch.float64, seed=seed)[0]
        cut, whole = laid(x, mesh, places).requires_grad_(), x.clone().requires_grad_()
        y, want = many(cut), one(whole)
        y.backward(laid(want.detach().sin(), mesh, places))
        want.backward(want.detach().sin())
        off += [(y, want.detach()), (cut.grad, whole.grad)]
    off += [(a.grad, b.grad) for a, b in zip(many.parameters(), one.parameters(), strict=True) if b.grad is not None]
    off += list(zip(many.buffers(), one.buffers(), strict=True))
    gaps = [gap(a, b) / b.abs().max().clamp(min=1).item() for a, b in off]
    return max(gaps), y.placements == cut.placements == cut.grad.placements, bool(getattr(many, "sync", False))


@pytest.mark.parametrize("mesh, axes", [((4,), (0,)), ((2, 2), (None, 0))], ids=["uneven", "copies"])
@pytest.mark.parametrize("name", OVER_SAMPLES)
def test_every_norm_over_samples_takes_those_of_a_dtensor(name, mesh, axes, four):
    for off, kept, sync in four.ask("by_samples", name, mesh, axes):
        assert off < 1e-9
        assert kept
        assert not sync, "it is as it was before the call"


def beyond(named):
    """Each pair of processes has a mesh for its channels, and the pairs have other samples."""
    from torch.distributed.tensor import Shard, distribute_module

    mesh = mesh_of((2, 2), ("samples", "channels"))
    line = mesh["channels"]
    group = mesh["samples"].get_group() if named == "samples" else line.get_group() if named == "channels" else None
    norm = distribute_module(nk.BatchNorm(4, sync=True, process_group=group).double(), line)
    x = numbers(6, 4, 3)
    own = slice(2) if mesh.get_local_rank(0) == 0 else slice(2, 6)
    try:
        y = norm(laid(x[own], line, [Shard(1)]))
    except ValueError as error:
        return str(error)
    want = nk.BatchNorm(4).double()
    off = y.full_tensor() - want(x)[own]
    return max(off.abs().max().item(), (norm.running_var.full_tensor() - want.running_var).abs().max().item())


def test_samples_beyond_the_mesh_are_joined_by_their_group(four):
    assert max(four.ask("beyond", "samples")) < 1e-12
    for named in ("channels", None):
        for error in four.ask("beyond", named):
            assert error.startswith("batch_norm: with sync, x on the mesh 2 ["), error
            assert "needs a process_group" in error


def far():
    """How far the joined variance is from that of the joined values, a million deviations from 0 in float32."""
    x = (1e6 + numbers(sum(SHARES), 9, 64)).float()
    joined = nk.statistics.moments(x[own_samples()], (0, 1), sync=True)
    want = x.double().var((0, 1), correction=0)
    return ((joined.var - want) / want).abs().max().item()


def test_an_offset_costs_the_joined_variance_few_digits(processes):
    """The offset squared is rounded by 1e-4 in float64; the mean of a process in float32 by more than 1e-2, squared."""
    assert max(processes.ask("far")) < 3e-4


def averaged():
    """Plain averages of the moments of DTensors, by two norms of one width."""
    from torch.distributed.tensor import Shard, distribute_module

    from normkit.running import averaging

    mesh = mesh_of((4,))
    norms = [distribute_module(nk.BatchNorm(3).double(), mesh) for _ in range(2)]
    batches = [numbers(8, 3, seed=seed) for seed in range(4)]
    with averaging():
        for batch in batches:
            for factor, norm in enumerate(norms, 1):
                norm(laid(factor * batch, mesh, [Shard(0)]))
    mean = torch.stack([batch.mean(0) for batch in batches]).mean(0)
    return [(norm.running_mean.full_tensor() - f * mean).abs().max().item() for f, norm in enumerate(norms, 1)]


def test_averages_of_dtensors_are_kept_apart(four):
    for off in four.ask("averaged"):
        assert max(off) < 1e-12


def of_one_value(name):
    rank = torch.distributed.get_rank()
    module = nk.create(name, 4, sync=True, dtype=torch.float64)
    return module(torch.full((1, 4, 1, 1), 2.0 * rank - 1, dtype=torch.float64)).flatten().tolist()


@pytest.mark.parametrize("name", ["batchnorm", "repair", "ibn", "pcnorm"])
def test_one_value_is_enough_where_other_processes_have_more(processes, name):
    lower, upper = processes.ask("of_one_value", name)
    of_batch = slice(2, 4) if name == "ibn" else slice(0, 4)  # the first half has statistics of an instance
    assert all(-1 <= value < -0.9 for value in lower[of_batch]), lower
    assert all(0.9 < value <= 1 for value in upper[of_batch]), upper


def of_first(name):
    """The running estimates after a batch that the first process has whole."""
    module, x = nk.create(name, 3, sync=True), nk.card(name).draw(3, 4)[0]
    module(x if torch.distributed.get_rank() == 0 else x[:0])
    return [buffer.tolist() for buffer in module.buffers()]


@pytest.mark.parametrize("name", ["batchnorm", "riemannian-batchnorm", "liebn", "gbw-batchnorm"])
def test_estimates_of_a_process_without_samples_are_those_of_the_others(processes, name):
    first, second = processes.ask("of_first", name)
    assert first == second
