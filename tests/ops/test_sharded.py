"""DTensors: a norm of parts gives the numbers of the whole, and sends one sum of moments where a vector is cut."""

import pytest
import torch

import normkit as nk
from normkit.contract.elsewhere import Elsewhere
from normkit.kernels import status
from normkit.ops import paths

COUNT = 4
TOKENS = (6, 5, 10)  # uneven over 2 and over 4
PLACES = {"samples": 0, "positions": 1, "entries": 2}


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    group = Elsewhere(work, tmp_path_factory.mktemp("processes"), COUNT)
    yield group
    group.stop()


def work(task, *arguments):
    return globals()[task](*arguments)


def meshes(shape):
    from torch.distributed.tensor import init_device_mesh

    return init_device_mesh("cpu", shape)


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def norm_of(name, width, dtype, **options):
    module = nk.create(name, width, **options).to(dtype)
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters(), 1):
            parameter.copy_(1 + 0.3 * numbers(*parameter.shape, seed=seed))
    return module


def placed(words):
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [Replicate() if w is None else Partial() if w == "sum" else Shard(w) for w in words]


def measured(name, options, shape, words, dtype, add, offset=0.0):
    """How far a norm on a mesh is from one process', what it sent, how all is placed, and which paths ran."""
    from torch.distributed.tensor import distribute_module, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    mesh, places = meshes(shape), placed(words)
    width = TOKENS[-1] - (name == "crmsnorm")
    inputs = [numbers(*TOKENS[:-1], width, seed=s, dtype=dtype) + offset for s in (range(10, 12) if add else [10])]
    sent = numbers(*TOKENS[:-1], width, seed=20, dtype=dtype)
    whole = norm_of(name, TOKENS[-1], dtype, **options)
    want = run(whole, [i.clone().requires_grad_() for i in inputs], sent)
    module = distribute_module(norm_of(name, TOKENS[-1], dtype, **options), mesh)
    cut = [distribute_tensor(i, mesh, places).requires_grad_() for i in inputs]
    with torch.no_grad(), paths.watch() as taken:
        module(cut[0])
    counts = []
    with CommDebugMode() as forward:
        y, total = call(module, cut)
    counts.append(sent_by(forward))
    sent = distribute_tensor(sent, mesh, places)
    with CommDebugMode() as backward:
        torch.autograd.backward([y, total] if add else [y], [sent] * (1 + add))
    counts.append(sent_by(backward))
    placements = {"y": y.placements, "x": cut[0].grad.placements}
    placements |= {n: p.grad.placements for n, p in module.named_parameters()}
    got = [y, total, *(i.grad for i in cut), *(p.grad for p in module.parameters())]
    off = [
        (g.full_tensor().double() - w.double()).abs().max().item() for g, w in zip(got, want, strict=True) if g is not None
    ]
    return off, counts, {k: [str(p) for p in v] for k, v in placements.items()}, [path.why for path in taken]


def call(module, inputs):
    return module.add_norm(*inputs) if len(inputs) == 2 else (module(*inputs), None)


def run(module, inputs, sent):
    y, total = call(module, inputs)
    torch.autograd.backward([y] if total is None else [y, total], [sent] if total is None else [sent, sent])
    return [y, total, *(i.grad for i in inputs), *(p.grad for p in module.parameters())]


def sent_by(mode):
    return {str(op).rsplit(".", 1)[-1]: count for op, count in mode.get_comm_counts().items()}


NAMES = {
    "rmsnorm": {"bias": True},
    "layernorm": {},
    "scalenorm": {},
    "srmsnorm": {},
    "fixnorm": {},
    "crmsnorm": {},
}
LIMITS = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 0.4}  # of sums over 30 rows; an ulp of 60


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("add", [False, True], ids=["", "added"])
@pytest.mark.parametrize("name", NAMES)
def test_parts_give_the_numbers_of_the_whole_with_one_sum_at_most(name, add, dtype, processes):
    for where, axis in PLACES.items():
        for answer in processes.ask("measured", name, NAMES[name], (COUNT,), (axis,), dtype, add):
            off, counts, places, taken = answer
            assert max(off) <= LIMITS[dtype], where
            assert counts == ([{"all_reduce": 1}] * 2 if where == "entries" else [{}, {}]), where
            assert places.pop("y") == places.pop("x") == [f"S({axis})"]
            assert all(place == ["P(sum)"] for place in places.values())
            if where != "entries" and status().live:
                assert set(taken) <= {None, "the input is empty"}
