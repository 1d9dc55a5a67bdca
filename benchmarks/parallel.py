"""What norms of DTensors send: `python benchmarks/parallel.py` writes the table of docs/parallel.md.

Every norm of vectors and of images is called on a mesh of two processes (gloo), with one axis of its input sharded, and
its collectives are counted by torch's CommDebugMode, forward and backward; its numbers are held against one process'.
Norms with a statistic of samples are called in training too, with ``sync=True`` and unequal batches. Counts hold for
any machine; no time is taken.
"""

import sys
import tempfile
from pathlib import Path

import torch

import normkit as nk
from normkit.contract.elsewhere import Elsewhere
from normkit.contract.subject import build, draw, outputs
from normkit.contract.test_ranks import made as with_sync
from normkit.contract.test_ranks import shard, takes_sync

PAGE = Path(__file__).parents[1] / "docs" / "parallel.md"
LAYOUTS = {  # of an input, the axes that are sharded, by their names in the table
    ("...", "C"): {"samples": 0, "positions": 1, "entries": -1},
    ("...", "C-1"): {"samples": 0, "positions": 1, "entries": -1},
    ("N", "C", "*"): {"samples": 0, "channels": 1, "space": 2},
    ("N", "C", "+"): {"samples": 0, "channels": 1, "space": 2},
    ("N", "C", "H", "W"): {"samples": 0, "channels": 1, "space": 2},
}
PEERS = {
    "torch.nn.LayerNorm": ("layernorm", 8),
    "torch.nn.RMSNorm": ("rmsnorm", 8),
    "torch.nn.GroupNorm": ("groupnorm", 2, 8),
    "torch.nn.BatchNorm2d": ("batchnorm", 8),
}
NEAR = 1e-9  # in float64
SENT = {
    "all_reduce": "sum",
    "all_gather_into_tensor": "gather",
    "reduce_scatter_tensor": "scattered sum",
    "all_to_all_single": "exchange",
}


def work(name, axis, train=False):
    """What one norm sends with an axis of its input sharded, or what it says to that; with None, plain and in sync."""
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode

    if axis is None:
        return plain(name)
    mesh = init_device_mesh("cpu", (2,))
    own = PEERS.get(name, (name,))[0]
    x = nk.card(own).draw(8, 4, leading=(4, 6), trailing=(6, 4), dtype=torch.float64)[0]
    axis %= x.dim()
    one, many = made(name, train), distribute_module(made(name, train), mesh)
    whole, cut = x.clone().requires_grad_(), distribute_tensor(x, mesh, [Shard(axis)]).requires_grad_()
    want = outputs(one(whole))[0]
    sent = torch.sin(torch.arange(want.numel(), dtype=want.dtype)).view(want.shape)
    want.backward(sent)
    try:
        with CommDebugMode() as forward:
            got = outputs(many(cut))[0]
        sent = distribute_tensor(sent, mesh, got.placements)
        with CommDebugMode() as backward:
            got.backward(sent)
    except Exception as error:
        return f"refused: {type(error).__name__}"
    pairs = [(got, want), (cut.grad, whole.grad)]
    pairs += [(a.grad, b.grad) for a, b in zip(many.parameters(), one.parameters(), strict=True) if b.grad is not None]
    off = max((a.full_tensor() - b).abs().max().item() / max(1, b.abs().max().item()) for a, b in pairs)
    placed = "" if got.placements == cut.placements == cut.grad.placements else "; placed otherwise"
    counts = " / ".join(words(mode) for mode in (forward, backward)) + placed
    return counts if off < NEAR else f"wrong numbers ({counts})"


def plain(name):
    """What one norm sends in training with plain tensors, of which each process has other samples."""
    from torch.distributed.tensor.debug import CommDebugMode

    inputs = shard(name, draw(name), torch.distributed.get_rank())
    module = with_sync(name, inputs, sync=True)
    inputs = [x.requires_grad_(x.is_floating_point()) for x in inputs]
    with CommDebugMode() as forward:
        y = outputs(module(*inputs))[0]
    with CommDebugMode() as backward:
        y.sin().sum().backward()
    return f"{words(forward)} / {words(backward)}"


def made(name, train=False):
    """A norm in float64, of 8 features."""
    if name not in PEERS:
        return build(name, train=train)
    return getattr(torch.nn, name.removeprefix("torch.nn."))(*PEERS[name][1:]).double()


def words(mode):
    """What was sent, "nothing", "1 sum", "3 gathers"."""
    counts = []
    for op, count in mode.get_comm_counts().items():
        noun = SENT.get(str(op).rsplit(".", 1)[-1], str(op))
        counts.append(f"{count} {noun}{'s' * (count > 1)}")
    return ", ".join(counts) or "nothing"


def subjects():
    """The norms that take one input of a layout of the table, and keep no statistic of samples."""
    for name in nk.methods(room="activation"):
        card = nk.card(name)
        required = [layout for layout in card.inputs.values() if not layout.optional]
        if card.shape.axes in LAYOUTS and not required and not card.spans_samples and card.kind.name == "norm":
            yield name, LAYOUTS[card.shape.axes]
    for name, (own, *_) in PEERS.items():
        if not nk.card(own).spans_samples:
            yield name, LAYOUTS[nk.card(own).shape.axes]


def joined():
    """The norms with a statistic of samples, and whether they take no other input."""
    for name in nk.methods(room="activation"):
        card = nk.card(name)
        if "N" in card.over.axes and takes_sync(name) and card.kind.name == "norm":
            yield name, not any(not layout.optional for layout in card.inputs.values()), card.shape.samples
    yield "torch.nn.BatchNorm2d", True, 0


def table():
    """The lines of the table, one group of norms after the other."""
    columns = {"vectors": ("samples", "positions", "entries"), "images": ("samples", "channels", "space")}
    rows = {kind: [] for kind in columns}
    with tempfile.TemporaryDirectory() as folder:
        processes = Elsewhere(work, folder, 2)
        for name, axes in subjects():
            cells = [processes.ask(name, axis)[0] for axis in axes.values()]
            kind = next(kind for kind, names in columns.items() if tuple(axes) == names)
            rows[kind].append(f"| `{name}` | {' | '.join(cells)} |")
            print(rows[kind][-1], file=sys.stderr, flush=True)
        over_samples = []
        for name, alone, axis in joined():
            cells = ["" if name in PEERS else processes.ask(name, None)[0]]
            cells.append(processes.ask(name, axis, True)[0] if alone else "")
            over_samples.append(f"| `{name}` | {' | '.join(cells)} |")
            print(over_samples[-1], file=sys.stderr, flush=True)
        processes.stop()
    lines = []
    for kind, names in columns.items():
        lines += [
            f"| norms of {kind} | {' | '.join(f'{n} sharded' for n in names)} |",
            "| --- " * 4 + "|",
            *rows[kind],
            "",
        ]
    head = [
        "| norms over samples, in training | plain tensors, `sync=True` | DTensors, samples sharded |",
        "| --- | --- | --- |",
    ]
    return "\n".join([*lines, *head, *over_samples, "", *reasons(), ""])


def reasons():
    """The norms that send more than one message in a pass, or gather, and what their cards say to that."""
    rows = [f"| `{n}` | {nk.card(n).messages} |" for n in nk.methods(room="activation") if nk.card(n).messages]
    return ["| more than one message, or a gather | because |", "| --- | --- |", *rows]


def main():
    """Write the table into the page, or print it."""
    from marked import print_or_put  # beside this file

    print_or_put(__doc__, PAGE, "counts", table)


if __name__ == "__main__":
    main()
