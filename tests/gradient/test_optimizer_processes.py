"""Optimizers on several processes: what is distributed, or shared out, gives one process' numbers."""

import pytest
import torch
from torch import distributed

import normkit as nk
from processes import laid, mesh_of, over_processes

SHAPES = {"wide": (6, 9), "tall": (9, 4), "square": (8, 8), "stack": (2, 4, 6), "kernel": (4, 3, 2, 2), "bias": (5,)}
SHAPES |= {"row": (1, 6), "column": (6, 1), "token": (1, 1, 6)}  # cut along an axis of 1, they lie on one process
STEPS = 3
MATRICES = {"muon": {"ns_dtype": None}, "normuon": {"ns_dtype": None}, "conda": {"update_proj_gap": 2}, "sinkgd": {}}
OTHERS = {
    "swan": {},
    "adamp": {"weight_decay": 0.1},
    "sgdp": {"momentum": 0.9},
    "grams": {},
    "stable-spam": {},
    "normalized-gd": {"momentum": 0.9},
    "agc": {"clipping": 0.1},
    "lawn": {"free_steps": 1},
    "blockwise-lr": {},
}
KIN = ("muon-plus", "muoneq", "muon2", "dynmuon", "aurora", "muonclip", "dion2", "hyperball", "muown")
ALONE = ("kl-soap", "dion", "pmuon")  # their statistics are on every process
MATRICES |= {name: {"ns_dtype": None} for name in KIN} | {"scion": {"ns_dtype": None}}
OTHERS |= {name: {} for name in ("signum", "lion", "nsgd", "lamb", "stable-adamw", "adafactor", "rmnp")}
OTHERS |= {"lars": {"weight_decay": 0.1}, "soap": {"precondition_frequency": 2}}
OTHERS |= {"cautious": {"weight_decay": 0.1}, "cautious-weight-decay": {"weight_decay": 0.1}}
OTHERS |= {"kl-soap": {}, "dion": {"rank": 2}, "pmuon": {"ns_dtype": None}}
OTHERS |= {f"hyperball {base}": {"base": base, "ns_dtype": None} for base in ("adam", "normuon", "soap")}
OTHERS |= {f"{name} muon": {"base": "muon", "ns_dtype": None} for name in ("cautious", "agc")}
EXAMPLES = {**MATRICES, **OTHERS}
EACH = ("momentum_buffer", "exp_avg")


def parameters(name):
    generator = torch.Generator().manual_seed(0)
    hidden = "muon" in name or name.partition(" ")[0] in (*KIN, *ALONE)
    wanted = [key for key in SHAPES if not hidden or key != "bias"]
    return {key: torch.randn(SHAPES[key], generator=generator, dtype=torch.float64) for key in wanted}


def gradients(step, keys):
    generator = torch.Generator().manual_seed(1 + step)
    return {key: torch.randn(SHAPES[key], generator=generator, dtype=torch.float64) for key in keys}


def trained(name, spread=lambda x, key: x, **options):
    """The parameters after some steps; ``spread`` lays a tensor out."""
    params = {key: torch.nn.Parameter(spread(value, key)) for key, value in parameters(name).items()}
    optimizer = nk.create(name.partition(" ")[0], list(params.values()), lr=0.05, **EXAMPLES[name], **options)
    for step in range(STEPS):
        for key, grad in gradients(step, params).items():
            params[key].grad = spread(grad, key)
        optimizer.step()
    whole = {key: p.detach().full_tensor() if hasattr(p, "full_tensor") else p.detach() for key, p in params.items()}
    return whole, optimizer


def counting(sent):
    """Let the messages that are sent be counted, in bytes."""
    for name in ("broadcast", "all_to_all_single", "all_reduce"):
        plain = getattr(distributed, name)

        def counted(*args, plain=plain, name=name, **kwargs):
            message = args[1] if name == "all_to_all_single" else args[0]
            sent[name] = sent.get(name, 0) + message.numel() * message.element_size()
            sent[f"calls of {name}"] = sent.get(f"calls of {name}", 0) + 1
            return plain(*args, **kwargs)

        setattr(distributed, name, counted)


def layouts(world):
    """How tensors are laid out: by rows as fully_shard does, by columns as tensor parallelism does, on a grid."""
    from torch.distributed.tensor import Replicate, Shard

    line = mesh_of((world,))
    found = {
        "rows": lambda x, key: laid(x, line, [Shard(0)]),
        "columns": lambda x, key: laid(x, line, [Shard(x.dim() - 1 if x.dim() < 3 else 1)]),
        "repeated": lambda x, key: laid(x, line, [Replicate()]),
    }
    if world == 4:
        grid = mesh_of((2, 2), ("replicas", "shards"))
        found = {
            "rows": found["rows"],
            "hybrid": lambda x, key: laid(x, grid, [Replicate(), Shard(0)]),
            "grid": lambda x, key: laid(x, grid, [Shard(0), Shard(1) if x.dim() > 1 else Replicate()]),
            "strided": lambda x, key: laid(x, grid, strided(x)),
        }
    return found


def strided(x):
    """FSDP over tensor parallelism along one axis where that divides; else along another."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    if x.dim() == 2 and not x.shape[1] % 4:
        return [_StridedShard(1, split_factor=2), Shard(1)]
    return [_StridedShard(0, split_factor=2) if not x.shape[0] % 4 else Shard(0), Shard(x.dim() - 1)]


def work(world):
    found, sent = {}, {}
    counting(sent)
    for name in EXAMPLES if world == 2 else ("muon", "conda"):
        for way, spread in layouts(world).items():
            if way != "repeated" or name in MATRICES:
                sent.clear()
                found[name, way] = trained(name, spread)[0], dict(sent)
        if name in MATRICES:
            sent.clear()
            found[name, "sync"] = trained(name, sync=True)[0], dict(sent)
    if world == 2:
        found["fully_shard"], found["plain"] = sharded_model(distributed.get_rank()), sharded_model(None)
        found["one is not finite"] = refusals()
    return found


def sharded_model(rank):
    """A model under fully_shard, or whole, trained by muon on two halves of a batch."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 6)).double()
    if rank is not None:
        model = fully_shard(model)
    override = {"2.weight": "matrix"}
    optimizer = nk.Muon(nk.param_groups(model, "muon", override=override), ns_dtype=None)
    x = torch.randn(4, 6, dtype=torch.float64)
    for _ in range(STEPS):
        model(x if rank is None else x[2 * rank : 2 * rank + 2]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() if rank is None else p.detach().full_tensor() for p in model.parameters()]


def refusals():
    """What a process says whose own part of the gradient is sound, where another's is not."""
    spread = layouts(2)["rows"]
    p = torch.nn.Parameter(spread(torch.ones(4, 3), ""))
    grad = torch.ones(4, 3)
    grad[0] = torch.nan
    p.grad = spread(grad, "")
    try:
        nk.Muon([p]).step()
    except FloatingPointError as error:
        return str(error)


@pytest.fixture(scope="module", params=[2, 4])
def ran(request, tmp_path_factory):
    return request.param, over_processes(work, request.param, tmp_path_factory.mktemp("processes"), request.param)


def test_several_processes_equal_one(ran):
    _, ranks = ran
    alone = {name: trained(name)[0] for name in EXAMPLES}
    for found in ranks:
        for (name, way), (params, _) in ((k, v) for k, v in found.items() if isinstance(k, tuple)):
            for key, want in alone[name].items():
                torch.testing.assert_close(params[key], want, msg=lambda m, at=(name, way, key): f"{at}: {m}")


def numbers(keys=SHAPES):
    return sum(torch.Size(SHAPES[key]).numel() for key in keys)


def test_what_is_sent(ran):
    """A matrix is sent to one process and its direction back: twice its numbers over all, 8 bytes each, every step."""
    world, ranks = ran
    matrices = [key for key in SHAPES if key != "bias"]
    exchanged = [key for key in matrices if key not in ("stack", "token")]  # whose matrices each process has whole
    sent = sum(found["muon", "rows"][1].get("all_to_all_single", 0) for found in ranks)
    assert sent == 2 * 8 * STEPS * numbers(exchanged)
    assert not ranks[0]["muon", "rows"][1].get("broadcast")
    if world == 4:
        grids = [
            way for way in ("grid", "strided") if sum(f["muon", way][1].get("all_to_all_single", 0) for f in ranks)
        ]
        for way in grids:  # cut over two axes of the mesh: the same, and one expert of the stack is on two processes
            sent = sum(found["muon", way][1]["all_to_all_single"] for found in ranks)
            assert sent == 2 * 8 * STEPS * numbers(matrices)
            assert not ranks[0]["muon", way][1].get("broadcast")
        assert len(grids) == 2
    # of plain tensors each direction is told once, by one process to all
    assert ranks[0]["muon", "sync"][1]["broadcast"] == 8 * STEPS * numbers(matrices)
    # the lengths of all matrices in one message; another says whether all gradients are finite
    assert world == 4 or ranks[0]["normuon", "rows"][1]["calls of all_reduce"] == STEPS * 2
    assert ranks[0]["muon", "rows"][1]["calls of all_to_all_single"] == STEPS * 2
    # the bases of conda alone, every second step
    squares = {"wide": 36, "tall": 16, "square": 64, "row": 1, "column": 1}
    assert ranks[0]["conda", "sync"][1]["broadcast"] == 8 * 2 * sum(squares.values())
    # rows and columns of sinkgd are summed, and no matrix travels
    assert world == 4 or not {"broadcast", "all_to_all_single"} & ranks[0]["sinkgd", "rows"][1].keys()


def test_a_sharded_model_trains_as_a_whole_one(ran):
    world, ranks = ran
    if world == 2:
        for found in ranks:
            for got, want in zip(found["fully_shard"], found["plain"], strict=True):
                torch.testing.assert_close(got, want)


def test_all_processes_refuse_what_one_cannot_take(ran):
    world, ranks = ran
    if world == 2:
        assert "group 0, is not finite" in ranks[0]["one is not finite"]
        assert "another process" in ranks[1]["one is not finite"]
