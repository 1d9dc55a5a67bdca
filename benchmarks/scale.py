"""What a step sends on 8, 64 and 512 processes: `python benchmarks/scale.py` writes the table of docs/parallel.md.

The code runs as the first process of a fake group of torch's, on tensors of the meta device, which have shapes alone.
What it asks for is counted, by calls and by bytes, and a model of latency and bandwidth makes seconds of it. Nothing is
sent, and no time is taken: what is measured is the code, and what is assumed is `NETWORK`.
"""

import math
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import normkit as nk

PAGE = Path(__file__).parents[1] / "docs" / "parallel.md"


class Network(NamedTuple):
    """What is assumed of the machines, per process."""

    node: int = 8  # processes that one machine has
    inside: float = 400e9  # bytes a second between processes of a machine
    across: float = 50e9  # and between machines: one card of 400 Gbit/s each
    latency: float = 10e-6  # seconds of a round; a collective over n processes has log2(n) of them
    peer: float = 1e-6  # seconds that an exchange takes for each process it is with

    def seconds(self, kind: str, size: int, count: int) -> float:
        """How long a collective takes in which a process has ``size`` bytes."""
        speed, rounds = self.inside if count <= self.node else self.across, math.log2(count)
        share = (count - 1) / count
        if kind == "all_reduce":  # a ring: scattered sums, then a gather
            return 2 * share * size / speed + 2 * rounds * self.latency
        if kind == "exchange":
            return share * size / speed + self.latency + count * self.peer
        return share * size / speed + rounds * self.latency  # gather, scattered sum, broadcast: of the whole


NETWORK = Network()


class Decoder(NamedTuple):
    """The sizes of a decoder such as Llama."""

    dim: int
    depth: int
    hidden: int
    keys: int  # features of keys, and of values
    vocab: int = 32000

    def matrices(self) -> list[tuple[int, int]]:
        """The shapes of the matrices inside of it."""
        layer = [(self.dim, self.dim)] * 2 + [(self.keys, self.dim)] * 2
        return (layer + [(self.hidden, self.dim)] * 2 + [(self.dim, self.hidden)]) * self.depth

    def vectors(self) -> list[tuple[int, ...]]:
        """Those of its gains, its embedding and its head."""
        return [(self.dim,)] * self.norms() + [(self.vocab, self.dim)] * 2

    def norms(self) -> int:
        """How many norms it has."""
        return 2 * self.depth + 1


DECODERS = {"7B": Decoder(4096, 32, 11008, 4096), "70B": Decoder(8192, 80, 28672, 1024)}
PROCESSES = (8, 64, 512)
TOKENS = 8192  # of a process and step


class Sent(TorchDispatchMode):
    """Collects what is asked for: the kind of each collective, and the bytes that a process has in it."""

    KINDS = {
        "_c10d_functional.all_reduce": "all_reduce",
        "_c10d_functional.all_gather_into_tensor": "gather",
        "_c10d_functional.reduce_scatter_tensor": "scattered sum",
        "c10d.allreduce_": "all_reduce",
        "c10d.broadcast_": "broadcast",
        "c10d.alltoall_base_": "exchange",
    }

    def __init__(self):
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).rpartition(".")[0]
        if name.startswith(("c10d.", "_c10d_functional.")) and "wait" not in name and "wrap" not in name:
            flat = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
            kind = self.KINDS[name]
            self.calls.append((kind, max(x.numel() * x.element_size() for x in flat)))
        return func(*args, **(kwargs or {}))


def group(count):
    """Be the first of so many processes; the group of before goes."""
    from torch import distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if distributed.is_initialized():
        distributed.destroy_process_group()
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=count)


def optimizer_step(make, decoder, count):
    """A step on parameters that fully_shard has cut by rows."""
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    mesh = init_device_mesh("cpu", (count,))

    def cut(shape):
        own = torch.empty(-(-shape[0] // count), *shape[1:], device="meta", dtype=torch.float32)
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(own, mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=stride)

    groups = []
    for shapes in (decoder.matrices(), decoder.vectors()):
        params = [torch.nn.Parameter(cut(shape)) for shape in shapes]
        for p, shape in zip(params, shapes, strict=True):
            p.grad = cut(shape)
        groups.append({"params": params})
    optimizer = make(groups)
    optimizer.finite = False  # a tensor without numbers is not looked at; the look is one number a mesh
    with Sent() as sent:
        optimizer.step()
    return sent.calls


def muon(name):
    return lambda groups: nk.create(name, [groups[0], {**groups[1], "use_muon": False}])


def batch_norms(decoder, count):
    """Batch norms with ``sync`` in the place of all norms, forward and backward."""
    norm = nk.BatchNorm(decoder.dim, sync=True, track_running_stats=False).to("meta")
    x = torch.empty(TOKENS, decoder.dim, device="meta", requires_grad=True)
    with Sent() as sent:
        norm(x).sum().backward()
    return sent.calls * decoder.norms()


def cut_norms(name):
    """Norms whose vectors are cut over the processes of a machine."""

    def calls(decoder, count):
        from torch.distributed.tensor import DTensor, Shard, distribute_module, init_device_mesh

        mesh = init_device_mesh("cpu", (count // NETWORK.node, NETWORK.node), mesh_dim_names=("samples", "tp"))["tp"]
        norm = distribute_module(nk.create(name, decoder.dim).to("meta"), mesh)
        own = torch.empty(1, TOKENS, decoder.dim // NETWORK.node, device="meta")
        x = DTensor.from_local(own, mesh, [Shard(2)], run_check=False).requires_grad_()
        with Sent() as sent:
            norm(x).sum().backward()
        return sent.calls * decoder.norms()

    return calls


def weights(decoder, count):
    """What ``fully_shard`` sends by itself, a layer at a time, in bfloat16: for comparison, by its rule and not run."""
    whole = 2 * sum(map(math.prod, decoder.matrices() + decoder.vectors())) // decoder.depth
    return [("gather", whole), ("gather", whole), ("scattered sum", whole)] * decoder.depth


ROWS = {  # what it is, what is called, and over how many processes, where not over all
    "weights and gradients of `fully_shard`, by its rule": (weights, None),
    "AdamW": (lambda d, n: optimizer_step(lambda g: torch.optim.AdamW(g, foreach=True), d, n), None),
    "`muon`": (lambda d, n: optimizer_step(muon("muon"), d, n), None),
    "`normuon`": (lambda d, n: optimizer_step(muon("normuon"), d, n), None),
    "`batchnorm`, `sync=True`, for each norm": (batch_norms, None),
    "`rmsnorm`, entries cut over 8": (cut_norms("rmsnorm"), NETWORK.node),
    "`layernorm`, entries cut over 8": (cut_norms("layernorm"), NETWORK.node),
}


def cell(calls, count):
    """Calls, bytes and seconds in words."""
    if not calls:
        return "nothing"
    size = sum(own for _, own in calls)
    seconds = sum(NETWORK.seconds(kind, own, count) for kind, own in calls)
    return f"{len(calls)} of {size / len(calls) / 1e6:.3g} MB, {1e3 * seconds:.3g} ms"


def table(decoders=DECODERS, processes=PROCESSES):
    """The lines of the table."""
    lines = []
    for name, decoder in decoders.items():
        head = " | ".join(f"{count} processes" for count in processes)
        lines += [f"| {name}, a step | {head} |", "| --- " * (1 + len(processes)) + "|"]
        rows = {row: [] for row in ROWS}
        for count in processes:
            group(count)
            for row, (calls, over) in ROWS.items():
                rows[row].append(cell(calls(decoder, count), over or count))
                print(name, count, row, rows[row][-1], file=sys.stderr, flush=True)
        lines += [f"| {row} | {' | '.join(cells)} |" for row, cells in rows.items()] + [""]
    return "\n".join(lines)


def main():
    """Write the table into the page, or print it."""
    from marked import print_or_put  # beside this file

    print_or_put(__doc__, PAGE, "scale", table)


if __name__ == "__main__":
    main()
