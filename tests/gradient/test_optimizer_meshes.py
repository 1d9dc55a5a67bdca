"""Optimizers on meshes: gradients that are still to be summed, parts in several pieces, and states that are saved."""

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.contract.elsewhere import Elsewhere
from processes import gap, group_of, laid, mesh_of, numbers

COUNT = 4
STEPS = 2


def work(task, *arguments):
    return globals()[task](*arguments)


processes = group_of(COUNT, work)


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


SUMMED = {
    "muon": {"ns_dtype": None},
    "normuon": {"ns_dtype": None},
    "lion": {},
    "adamp": {},
    "soap": {"precondition_frequency": 1},
    "cautious": {},
    "agc": {"clipping": 0.01},
}


def summed(name):
    """How far a step is from one process', where each process has a term of the gradients of parameters it repeats."""
    from torch.distributed.tensor import DTensor, Partial, Replicate

    mesh = mesh_of((COUNT,))
    values, terms = numbers(6, 8), [numbers(6, 8, seed=1 + rank) for rank in range(COUNT)]
    one = nn.Parameter(values.clone())
    many = nn.Parameter(laid(values, mesh, [Replicate()]))
    one.grad = sum(terms)
    many.grad = DTensor.from_local(terms[torch.distributed.get_rank()], mesh, [Partial()])
    for p in (one, many):
        nk.create(name, [p], lr=0.1, **SUMMED[name]).step()
    return gap(many, one), (many.to_local() - one).abs().max().item()


@pytest.mark.parametrize("name", SUMMED)
def test_terms_of_a_gradient_are_added_up_before_a_step(name, processes):
    for off in processes.ask("summed", name):
        assert max(off) < 1e-12


def alone(shape):
    """How far Conda is from one process' with a single matrix, whose basis all get from one process."""
    from torch.distributed.tensor import Shard

    mesh = mesh_of(shape)
    places = [Shard(axis) for axis in range(mesh.ndim)]
    one = nn.Parameter(numbers(6, 8))
    many = nn.Parameter(laid(one.detach(), mesh, places))
    optimizers = [nk.Conda([p], lr=0.1, update_proj_gap=1) for p in (one, many)]
    for step in range(1 + STEPS):
        one.grad = step * numbers(6, 8, seed=step)  # at first zero
        many.grad = laid(one.grad, mesh, places)
        for optimizer in optimizers:
            optimizer.step()
    return gap(many, one)


@pytest.mark.parametrize("shape", [(COUNT,), (2, 2)], ids=str)
def test_the_basis_of_a_single_matrix_reaches_all_processes(shape, processes):
    assert max(processes.ask("alone", shape)) < 1e-12


def pieces(case):
    """How far a step of Muon is from one process', and what is sent, as a share of twice the numbers."""
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    line, grid = mesh_of((COUNT,)), mesh_of((2, 1, 2))
    named = mesh_of((2, 1, 2), ("a", "b", "c"))
    meshes = {
        "two halves": (line, [_StridedShard(0, split_factor=2)]),
        "three axes": (grid, [Shard(0), Replicate(), Shard(1)]),
        "three names": (named, [Shard(1), Replicate(), Shard(0)]),
    }
    mesh, places = meshes[case]
    values, grad = numbers(16, 8), numbers(16, 8, seed=1)

    def spread(x):
        if case != "two halves":
            return laid(x, mesh, places)
        rank = torch.distributed.get_rank()
        own = torch.cat([half.chunk(COUNT)[rank] for half in x.chunk(2)])
        return DTensor.from_local(own, mesh, places, run_check=False, shape=x.shape, stride=x.stride())

    sent, plain = [], torch.distributed.all_to_all_single
    torch.distributed.all_to_all_single = lambda out, own, *a, **k: (sent.append(own.numel()), plain(out, own, *a, **k))
    one, many = nn.Parameter(values.clone()), nn.Parameter(spread(values))
    one.grad, many.grad = grad, spread(grad)
    for p in (one, many):
        nk.Muon([p], lr=0.1, ns_dtype=None).step()
    torch.distributed.all_to_all_single = plain
    return (spread(one.detach()).to_local() - many.to_local()).abs().max().item(), sum(sent)


@pytest.mark.parametrize("case", ["two halves", "three axes", "three names"])
def test_matrices_in_pieces_are_made_whole_on_one_process(case, processes):
    found = processes.ask("pieces", case)
    assert max(off for off, _ in found) < 1e-12
    assert sum(sent for _, sent in found) == 2 * 16 * 8


def repeated():
    """A matrix of which some processes of the group hold the same part: one of them sends it, all get the result."""
    from torch.distributed.tensor import Replicate, Shard

    from normkit.gradient._sharded import Parted

    mesh = mesh_of((2, 2))
    x = numbers(6, 4)
    cut = laid(x, mesh, [Replicate(), Shard(0)])
    sent, plain = [], torch.distributed.all_to_all_single
    torch.distributed.all_to_all_single = lambda out, own, *a, **k: (sent.append(own.numel()), plain(out, own, *a, **k))
    (y,) = Parted(mesh, (0, 1)).shared([cut], lambda own: [m @ m.T @ m for m in own], False, None)
    torch.distributed.all_to_all_single = plain
    return gap(y, x @ x.T @ x), sum(sent)


def test_the_first_process_that_holds_a_part_sends_it(processes):
    found = processes.ask("repeated")
    assert max(off for off, _ in found) < 1e-12
    assert sum(sent for _, sent in found) == 24 + 2 * 24


def lengths(case):
    """How far NorMuon's lengths of rows and columns are from one process', as a state that lies on a mesh."""
    from torch.distributed.tensor import Replicate, Shard

    line, grid = mesh_of((COUNT,)), mesh_of((2, 2))
    layouts = {
        "rows": (line, [Shard(0)]),
        "columns": (line, [Shard(1)]),
        "both": (grid, [Shard(0), Shard(1)]),
        "columns twice": (grid, [Shard(1), Shard(1)]),
        "copies": (grid, [Replicate(), Shard(1)]),
    }
    mesh, places = layouts[case]
    off, steps = [], []
    for shape in ((6, 10), (10, 6)):  # of a wide matrix the lengths of columns, of a tall one those of rows
        one = nn.Parameter(numbers(*shape))
        many = nn.Parameter(laid(one.detach(), mesh, places))
        optimizers = [nk.NorMuon([p], lr=0.1, ns_dtype=None) for p in (one, many)]
        for step in range(STEPS):
            one.grad = numbers(*shape, seed=1 + step)
            many.grad = laid(one.grad, mesh, places)
            for optimizer in optimizers:
                optimizer.step()
        states = [optimizer.state[p] for optimizer, p in zip(optimizers, (one, many), strict=True)]
        for key, value in states[0].items():
            if isinstance(value, torch.Tensor):
                assert whole(states[1][key]).shape == value.shape, key
                off.append((whole(states[1][key]) - value).abs().max().item())
        steps.append((whole(many) - one).abs().max().item())
    return off, steps


@pytest.mark.parametrize("case", ["rows", "columns", "both", "columns twice", "copies"])
def test_lengths_of_cut_matrices_are_kept_whole(case, processes):
    for off, steps in processes.ask("lengths", case):
        assert len(off) >= 4
        assert max(off + steps) < 1e-12


ZERO = {"agc": {"base": "adamw"}, "muon": {"ns_dtype": None, "sync": False}, "lawn": {"base": "lion", "free_steps": 1}}


def redundant(name):
    """How far steps under ZeRO, whose groups repeat all that an optimizer is built with, are from one process'."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    apart, together = ([nn.Parameter(numbers(4, 6, seed=seed)) for seed in range(COUNT + 1)] for _ in range(2))
    optimizers = [
        ZeroRedundancyOptimizer(apart, optimizer_class=nk.card(name).entry, lr=0.1, **ZERO[name]),
        nk.create(name, together, lr=0.1, **ZERO[name]),
    ]
    for step in range(STEPS):
        for params, optimizer in zip((apart, together), optimizers, strict=True):
            for seed, p in enumerate(params):
                p.grad = numbers(4, 6, seed=10 * step + seed)
            optimizer.step()
    return max((p - q).abs().max().item() for p, q in zip(apart, together, strict=True))


@pytest.mark.parametrize("name", ZERO)
def test_torchs_zero_repeats_in_its_groups_what_all_of_them_share(name, processes):
    assert max(processes.ask("redundant", name)) < 1e-12


SAVED = {
    "muon": {},
    "normuon": {},
    "muon-plus": {},
    "muoneq": {},
    "muon2": {},
    "dynmuon": {},
    "aurora": {},
    "muonclip": {},
    "dion2": {},
    "hyperball": {},
    "muown": {},
    "scion": {},
    "soap": {"precondition_frequency": 1},
    "kl-soap": {},
    "dion": {"rank": 2},
    "pmuon": {},
    "conda": {"update_proj_gap": 2},
    "lion": {},
    "adafactor": {},
    "lamb": {},
    "lawn": {"free_steps": 1},
}


def trainee(name, world):
    """A model that is sharded over the processes there are, and its optimizer."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 7))
    model = fully_shard(model) if world > 1 else model
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = {"use_muon": False} if name in MATRICES else {}
    groups = [{"params": matrices}, {"params": [p for p in model.parameters() if p.dim() < 2], **others}]
    return model, nk.create(name, groups, lr=0.05, **SAVED[name])


MATRICES = set(SAVED) - {"lion", "adafactor", "lamb", "lawn", "soap", "conda", "scion"}


def train(model, optimizer, steps):
    for step in range(steps):
        model(numbers(8, 6, seed=step).float()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def states(model, optimizer):
    """All of a state, whole, by names of parameters."""
    names = {id(p): name for name, p in model.named_parameters()}
    found = {name: whole(p.detach()).clone() for name, p in model.named_parameters()}
    for p, state in optimizer.state.items():
        for key, value in state.items():
            found[f"{names[id(p)]}: {key}"] = whole(value).clone() if isinstance(value, torch.Tensor) else value
    return found


def passed_on(name, folder, world, first):
    """Load what was saved, or train anew, and save; the state."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    model, optimizer = trainee(name, world)
    options = {"no_dist": True} if world == 1 else {}
    if first:
        train(model, optimizer, STEPS)
    else:
        weights, state = get_state_dict(model, optimizer)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder, **options)
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    now = states(model, optimizer)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder, **options)
    train(model, optimizer, 1)
    return now, states(model, optimizer)


def groups_of(*sizes):
    """A fixture of a file: groups of processes by their number."""

    @pytest.fixture(scope="module")
    def worlds(tmp_path_factory):
        groups = {n: Elsewhere(work, tmp_path_factory.mktemp(f"{n}"), n) for n in sizes}
        yield groups
        for group in groups.values():
            group.stop()

    return worlds


worlds = groups_of(4, 2, 1)
more_worlds = groups_of(8, 4, 1)


@pytest.mark.parametrize("name", SAVED)
def test_checkpoints_keep_the_bits_over_4_2_1_and_4_processes(name, worlds, tmp_path):
    check_bits(name, worlds, tmp_path, (4, 2, 1, 4))


@pytest.mark.nightly
@pytest.mark.parametrize("name", SAVED)
def test_checkpoints_keep_the_bits_over_8_4_1_and_8_processes(name, more_worlds, tmp_path):
    check_bits(name, more_worlds, tmp_path, (8, 4, 1, 8))


def check_bits(name, worlds, folder, sizes):
    pytest.importorskip("torch.distributed.checkpoint")
    first, *rest = sizes
    (want, then), *_ = worlds[first].ask("passed_on", name, str(folder), first, True)
    assert len(want) > 6
    for world in rest:
        for got, later in worlds[world].ask("passed_on", name, str(folder), world, False):
            assert list(got) == list(want)
            for key, value in want.items():
                torch.testing.assert_close(
                    got[key], value, rtol=0, atol=0, msg=lambda m, k=key, w=world: f"{w} {k}: {m}"
                )
            for key, value in then.items() if world == first else ():
                torch.testing.assert_close(later[key], value, rtol=0, atol=0)


def test_no_process_has_the_square_matrices_and_another_the_thin_ones():
    """Polar factors cost the entries of a matrix times its shorter side; all of these have as many entries."""
    from normkit.gradient._sharded import shares

    sizes = [(32, 32), (2, 512)] * 4 + [(4, 16, 16), (512, 2)] * 2
    cost = [1024 * min(size[-2:]) for size in sizes]
    owners = shares([torch.Size(size) for size in sizes], 2)
    loads = [sum(c for c, owner in zip(cost, owners, strict=True) if owner == process) for process in (0, 1)]
    assert max(loads) < 1.1 * min(loads)
