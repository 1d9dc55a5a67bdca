"""SOAP and its kin, Dion, Hyperball and the cautious wrappers, beyond their goldens and the contract."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim.optimizer import register_optimizer_step_post_hook

import normkit as nk
from normkit.gradient import _matrices, conda
from normkit.gradient.dion import first_columns

STEPS = 4
MATRICES = {
    "kl-soap": {},
    "dion": {"rank": 2, "weight_decay": 0.1},
    "pmuon": {"ns_dtype": None, "start": "identity"},
    "muown": {"ns_dtype": None, "row_norm_schedule": (10, 2.0, 1.0)},
    "hyperball": {"ns_dtype": None},
}


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("alone, sizes", [(False, [2, 1]), (True, [1, 1, 1])])
def test_matrices_of_one_shape_are_one_call_unless_they_are_faster_alone(alone, sizes, monkeypatch):
    monkeypatch.setattr(_matrices, "_faster_alone", lambda matrix: alone)
    stacks, matrices = [], [drawn(2, 3), drawn(3, 2), drawn(2, 3, seed=1), drawn(0, 3)]
    doubled = _matrices.batch(matrices, lambda x: stacks.append(len(x)) or 2 * x)
    assert sorted(stacks, reverse=True) == sizes
    assert all(map(torch.equal, doubled, [2 * x for x in matrices]))


def trained(optimizer, params, steps=STEPS):
    for step in range(steps):
        for place, p in enumerate(params):
            p.grad = drawn(*p.shape, seed=100 * step + place + 1).to(p.dtype)
        optimizer.step()
    return [p.detach() for p in params]


@pytest.mark.parametrize("name", MATRICES)
def test_a_stack_moves_as_its_matrices(name):
    stack = nn.Parameter(drawn(2, 5, 5))
    apart = [nn.Parameter(x.clone()) for x in stack.detach()]
    one, each = nk.create(name, [stack], **MATRICES[name]), nk.create(name, apart, **MATRICES[name])
    for step in range(STEPS):
        stack.grad = drawn(2, 5, 5, seed=step)
        for p, g in zip(apart, stack.grad, strict=True):
            p.grad = g.clone()
        one.step(), each.step()
    torch.testing.assert_close(stack.detach(), torch.stack(apart).detach())


@pytest.mark.parametrize("name", MATRICES)
def test_a_kernel_moves_as_its_matrix(name):
    kernel = nn.Parameter(drawn(4, 2, 2, 2))
    matrix = nn.Parameter(kernel.detach().flatten(1).clone())
    options = MATRICES[name] if name != "kl-soap" else {"shampoo_beta": 0.5}
    one, other = nk.create(name, [kernel], **options), nk.create(name, [matrix], **options)
    for step in range(STEPS):
        kernel.grad = drawn(4, 2, 2, 2, seed=step)
        matrix.grad = kernel.grad.flatten(1).clone()
        one.step(), other.step()
    torch.testing.assert_close(kernel.detach().flatten(1), matrix.detach())


@pytest.mark.parametrize("name", MATRICES)
def test_vectors_are_named_and_get_adam_in_a_group_of_their_own(name):
    with pytest.raises(ValueError, match="use_muon=False"):
        nk.create(name, [nn.Parameter(drawn(4))], **MATRICES[name])
    p, q = nn.Parameter(drawn(4)), nn.Parameter(drawn(4))
    mine = nk.create(name, [{"params": [p], "use_muon": False}], **MATRICES[name])
    theirs = torch.optim.AdamW([q], lr=3e-4, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0)
    torch.testing.assert_close(trained(mine, [p]), trained(theirs, [q]))


@pytest.mark.parametrize("base", ["muon", "adam", "normuon", "soap"])
def test_lengths_stay_on_the_ball_and_weights_of_zeros_stay_zeros(base):
    params = [nn.Parameter(drawn(5, 5)), nn.Parameter(torch.zeros(5, 5, dtype=torch.float64))]
    before = params[0].detach().norm()
    options = {} if base in ("adam", "soap") else {"ns_dtype": None}
    moved, still = trained(nk.Hyperball(params, lr=0.1, base=base, **options), params, 10)
    torch.testing.assert_close(moved.norm(), before, rtol=1e-12, atol=0)
    assert not still.any()


def test_with_adam_hyperball_turns_vectors_and_kernels_as_one_row_of_their_entries():
    """Over several steps: a vector moves as a matrix of one row, and a number cannot turn."""
    shaped = [nn.Parameter(drawn(6)), nn.Parameter(drawn(2, 1, 3)), nn.Parameter(drawn(1)[0])]
    rows = [nn.Parameter(p.detach().reshape(1, -1).clone()) for p in shaped]
    optimizers = [nk.Hyperball(params, lr=0.1, base="adam") for params in (shaped, rows)]
    before = [p.detach().clone() for p in shaped]
    for step in range(STEPS):
        for p, q in zip(shaped, rows, strict=True):
            p.grad = drawn(p.numel(), seed=step).reshape(p.shape)
            q.grad = p.grad.reshape(1, -1).clone()
        for optimizer in optimizers:
            optimizer.step()
    for p, q in zip(shaped, rows, strict=True):
        torch.testing.assert_close(p.detach().flatten(), q.detach().flatten())
    assert not torch.equal(shaped[0].detach(), before[0])
    torch.testing.assert_close(shaped[2].detach().abs(), before[2].abs())


def test_a_step_of_hyperball_turns_by_its_rate():
    p = nn.Parameter(drawn(30, 40))
    before = p.detach().clone()
    (after,) = trained(nk.Hyperball([p], lr=0.01, ns_dtype=None), [p], 1)
    angle = torch.acos((before * after).sum() / before.norm() ** 2)
    assert 0.0095 < float(angle) < 0.0105


@pytest.mark.parametrize("shape, means", [((4, 6), (1, 6)), ((6, 4), (6, 1)), ((5, 5), (5, 1))])
def test_normuon_on_the_ball_evens_the_longer_side_and_rows_of_a_square(shape, means):
    p = nn.Parameter(drawn(*shape))
    optimizer = nk.Hyperball([p], base="normuon", ns_dtype=None)
    trained(optimizer, [p], 1)
    assert optimizer.state[p]["second_momentum_buffer"].shape == means


@pytest.mark.parametrize("base, betas", [("adam", (0.9, 0.95)), ("soap", (0.95, 0.9))])
def test_moments_on_the_ball_have_the_shares_of_their_base(base, betas):
    assert nk.Hyperball([nn.Parameter(drawn(3, 3))], base=base).param_groups[0]["betas"] == betas


def test_the_first_call_of_soap_begins_its_statistics():
    p = nn.Parameter(drawn(4, 6))
    optimizer = nk.SOAP([p])
    (after,) = trained(optimizer, [p], 1)
    assert torch.equal(after, drawn(4, 6))
    state = optimizer.state[p]
    assert [tuple(state[name].shape) for name in ("GG0", "Q0", "GG1", "Q1")] == [(4, 4), (4, 4), (6, 6), (6, 6)]
    torch.testing.assert_close(state["Q1"].T @ state["Q1"], torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize("name", ["soap", "kl-soap"])
def test_columns_that_a_batch_does_not_reach_end_no_training(name):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(16, 300))
    optimizer = nk.create(name, [weight], lr=1e-3)
    for _ in range(3):
        weight.grad = torch.zeros_like(weight)
        weight.grad[:, torch.randint(300, (64,))] = 0.01 * torch.randn(16, 64)
        optimizer.step()
    assert weight.isfinite().all()


def test_soap_of_vectors_and_long_axes_is_adam():
    p, q = nn.Parameter(drawn(6)), nn.Parameter(drawn(6))
    mine = nk.SOAP([p], lr=0.1, weight_decay=0.0, eps=0.0)
    p.grad = drawn(6, seed=9)
    mine.step()
    torch.testing.assert_close(
        trained(mine, [p]), trained(torch.optim.Adam([q], lr=0.1, betas=(0.95, 0.95), eps=0.0), [q])
    )
    matrix = nn.Parameter(drawn(3, 4))
    optimizer = nk.SOAP([matrix], max_precond_dim=3)
    trained(optimizer, [matrix], 1)
    assert {"Q0", "Q1"} & optimizer.state[matrix].keys() == {"Q0"}


def test_a_vector_with_a_basis_of_its_own_moves_as_the_matrix_of_one_column():
    options = {"precondition_1d": True, "precondition_frequency": 2, "lr": 0.1}
    start = drawn(4)
    vector, column = nn.Parameter(start.clone()), nn.Parameter(start[:, None].clone())
    optimizers = [nk.create("soap", [p], **options) for p in (vector, column)]
    for step in range(STEPS):
        for p in (vector, column):
            p.grad = drawn(4, seed=step + 1).view(p.shape)
        for optimizer in optimizers:
            optimizer.step()
    assert optimizers[0].state[vector]["Q0"].shape == (4, 4)
    torch.testing.assert_close(vector.detach(), column.detach()[:, 0])


def test_eigenvalues_of_zero_divide_by_no_more_than_a_bound():
    p = nn.Parameter(drawn(4, 6))
    optimizer = nk.create("kl-soap", [p], init_factor=0.0, shampoo_beta=0.5)
    trained(optimizer, [p], 1)
    state = optimizer.state[p]
    p.grad = drawn(4, 6, seed=5)
    h = state["Q0"].T @ p.grad @ state["Q1"]
    optimizer.step()
    want = (4000.0**-2 + (4000 * h).square().mean(-1)) / 2
    torch.testing.assert_close(state["eigenvalues0"], want)


def test_a_zero_momentum_leaves_dion_without_a_direction():
    p = nn.Parameter(drawn(3, 4))
    optimizer = nk.Dion([p], weight_decay=0.5, lr=0.1)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.testing.assert_close(p.detach(), drawn(3, 4) * 0.95)
    torch.testing.assert_close(optimizer.state[p]["Q"], first_columns(p, 768, "random"))  # as it began


def test_dion_steps_each_matrix_of_a_stack_as_alone():
    stack, *alone = [nn.Parameter(w) for w in (drawn(2, 4, 3), *drawn(2, 4, 3))]
    together, apart = nk.Dion([stack]), nk.Dion(alone)
    for step in range(2):
        stack.grad = drawn(2, 4, 3, seed=step) * torch.tensor([1.0, step]).view(2, 1, 1)  # the second begins with zeros
        for p, g in zip(alone, stack.grad, strict=True):
            p.grad = g.clone()
        together.step(), apart.step()
    torch.testing.assert_close(stack.detach(), torch.stack(alone).detach())


@pytest.mark.parametrize("shape, rank, columns", [((3, 5), 768, (5, 3)), ((5, 3), 768, (3, 3)), ((3, 5), 2, (5, 2))])
def test_dion_keeps_no_more_columns_than_a_matrix_has_directions(shape, rank, columns):
    first, again = (first_columns(drawn(*shape), rank, "random") for _ in range(2))
    assert first.shape == columns
    assert torch.equal(first, again)


def test_scheduled_lengths_of_directions_and_rows_of_zeros():
    p = nn.Parameter(drawn(3, 4))
    p.data[1] = 0
    optimizer = nk.Muown([p], lr=0.1, ns_dtype=None, row_norm_schedule=(3, 5.0, 1.0))
    trained(optimizer, [p], 3)
    torch.testing.assert_close(optimizer.state[p]["v_norm"], torch.full((3, 1), 5.0, dtype=torch.float64))
    assert p.isfinite().all()
    one = nk.Muown([p], ns_dtype=None, row_norm_schedule=(1, 2.0, 1.0))
    trained(one, [p], 2)
    torch.testing.assert_close(one.state[p]["v_norm"], torch.full((3, 1), 2.0, dtype=torch.float64))
    with pytest.raises(ValueError, match="row_norm_schedule"):
        nk.Muown([p], row_norm_schedule=(3, 5.0))


@pytest.mark.parametrize("base", ["adamw", "lion", "muon", "sgd", "adamp"])
def test_cautious_steps_keep_the_state_of_the_base_and_mask_what_goes_against_the_gradient(base):
    p, q = nn.Parameter(drawn(5, 4)), nn.Parameter(drawn(5, 4))
    options = {"ns_dtype": None} if base == "muon" else {"momentum": 0.9} if base == "sgd" else {}
    build = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}.get(base) or nk.card(base).entry
    mine, plain = nk.Cautious([p], base=base, lr=0.1, **options), build([q], lr=0.1, **options)
    for step in range(3):
        with torch.no_grad():
            q.copy_(p)
        before = p.detach().clone()
        p.grad = drawn(5, 4, seed=step)
        q.grad = p.grad.clone()
        mine.step(), plain.step()
        decay = 1 - 0.1 * plain.param_groups[0].get("weight_decay", 0.0)
        step, theirs = p.detach() - before * decay, q.detach() - before * decay
        agrees = theirs * p.grad < 0
        torch.testing.assert_close(step, theirs * agrees / agrees.double().mean().clamp(min=1e-3))
    for name, value in plain.state[q].items():
        torch.testing.assert_close(mine.state[p][name], value)


def test_a_base_whose_decay_is_in_its_gradient_is_named():
    p = nn.Parameter(drawn(3))
    with pytest.raises(ValueError, match=r"apart from the gradient.*'adam'"):
        nk.CautiousWeightDecay([p], base="adam", lr=0.1)
    nk.CautiousWeightDecay([p], base="sgd", lr=0.1)
    with pytest.raises(ValueError, match="momentum"):
        nk.CautiousWeightDecay([p], base="sgd", lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="rescale"):
        nk.Cautious([p], lr=0.1, rescale="sum")


@pytest.mark.parametrize(
    "name, options, muons",
    [
        ("pmuon", {"gamma": 0.0}, {"ns_steps": 12, "ns_coefficients": (2.0, -1.5, 0.5)}),
        ("muonclip", {}, {"nesterov": False, "adjust_lr": "match_rms_adamw", "ns_eps": 1e-7 * (1 - 0.95)}),
    ],
)
def test_pmuon_without_a_power_and_muonclip_without_scores_are_muon(name, options, muons):
    p, q = nn.Parameter(drawn(5, 4)), nn.Parameter(drawn(5, 4))
    common = {"lr": 0.1, "weight_decay": 0.1, "ns_dtype": None}
    torch.testing.assert_close(
        trained(nk.create(name, [p], **options, **common), [p]), trained(nk.Muon([q], **muons, **common), [q])
    )


def test_cautious_decay_around_muon_is_that_of_muon():
    p, q = nn.Parameter(drawn(5, 4)), nn.Parameter(drawn(5, 4))
    options = {"lr": 0.1, "weight_decay": 0.5, "ns_dtype": None}
    mine = nk.CautiousWeightDecay([p], base="muon", **options)
    torch.testing.assert_close(trained(mine, [p]), trained(nk.Muon([q], cautious_decay=True, **options), [q]))


class Clip:
    """What is called after a step: it keeps what the parameter is."""

    def __init__(self, p):
        self.p, self.calls = p, []

    def __call__(self):
        self.calls.append(self.p.detach().clone())


@pytest.mark.parametrize("name", ["agc", "cautious"])
def test_what_a_base_takes_beside_its_groups_is_kept(name):
    p = nn.Parameter(drawn(4, 4))
    clip = Clip(p)
    optimizer = nk.create(name, [p], base="muon", lr=0.1, sync=True, qk_clip=clip)
    assert clip.calls == []
    (after,) = trained(optimizer, [p], 1)
    assert len(clip.calls) == 1, "once a step"
    assert torch.equal(clip.calls[0], after), "after it"
    assert pickle.loads(pickle.dumps(optimizer)).inner().sync


@pytest.mark.parametrize("name, options", [("muon", {}), ("agc", {"base": "muon"})])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copied", "pickled"])
def test_a_copy_is_clipped_after_its_steps_too(name, options, again):
    p = nn.Parameter(drawn(4, 4))
    clip = Clip(p)
    optimizer = nk.create(name, [p], lr=0.1, qk_clip=clip, **options)
    q, copied, other = again((p, optimizer, clip))
    (after,) = trained(copied, [q], 1)
    assert clip.calls == []
    assert len(other.calls) == 1
    assert torch.equal(other.calls[0], after)


@pytest.mark.parametrize("base", ["lion", "muon", "adamp", "adam"])
def test_lengths_that_are_held_are_read_from_a_file_whatever_the_base_is(base):
    p, q = (nn.Parameter(drawn(4, 4)) for _ in range(2))
    one, other = (nk.LAWN([x], base=base, lr=lr, free_steps=1) for x, lr in ((p, 0.1), (q, 0.5)))
    trained(one, [p], 2)
    q.data.copy_(p)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert "norm" in other.state[q]
    assert torch.equal(trained(one, [p], 2)[0], trained(other, [q], 2)[0])


def test_a_state_that_the_base_refuses_changes_nothing():
    p, q = nn.Parameter(drawn(4, 4)), nn.Parameter(drawn(4, 4))
    optimizer, adam = nk.LAWN([p], base="lion", lr=0.1, free_steps=1), torch.optim.AdamW([q])
    trained(adam, [q], 1)
    groups = copy.deepcopy(optimizer.state_dict()["param_groups"])
    groups[0]["lr"] = 0.7
    with pytest.raises(ValueError, match="Lion: the state that is loaded is of another optimizer: it has exp_avg_sq"):
        optimizer.load_state_dict({"state": adam.state_dict()["state"], "param_groups": groups})
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert not optimizer.state


def test_weights_in_bfloat16_take_no_longer_cautious_steps_than_in_float64():
    """Where most steps are lost in rounding, the rest is not enlarged for them."""
    longest = []
    for dtype in (torch.float64, torch.bfloat16):
        p = nn.Parameter(drawn(64, 64).bfloat16().to(dtype))
        before = p.detach().clone()
        optimizer = nk.Cautious([p], base="lion", lr=1e-4)
        p.grad = (drawn(64, 64, seed=1) + 1).to(dtype)
        optimizer.step()
        longest.append((p.detach() - before).double().abs().max().item() / 1e-4)
    assert longest[0] == pytest.approx(1, rel=1e-6)
    assert longest[1] < 2


def test_building_a_cautious_optimizer_calls_no_hook():
    calls = []
    hook = register_optimizer_step_post_hook(lambda *_: calls.append(1))
    try:
        nk.Cautious([nn.Parameter(drawn(3))], lr=0.1)
    finally:
        hook.remove()
    assert not calls


def test_around_a_base_without_decay_nothing_decays_and_no_setting_appears():
    p = nn.Parameter(drawn(5, 4))
    optimizer = nk.Cautious([p], base="rprop", lr=0.1)
    trained(optimizer, [p])
    assert not optimizer.decoupled
    assert "weight_decay" not in optimizer.param_groups[0]


def test_entries_that_a_step_leaves_alone_decay_cautiously():
    p = nn.Parameter(drawn(3))
    optimizer = nk.CautiousWeightDecay([p], base="sgd", lr=0.1, weight_decay=0.5)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    torch.testing.assert_close(p.detach(), 0.95 * drawn(3))


@pytest.mark.parametrize("name", ["cautious", "cautious-weight-decay"])
def test_a_base_that_goes_on_without_a_gradient_moves_nothing_that_has_none(name):
    p, q = nn.Parameter(drawn(4, 4)), nn.Parameter(drawn(4, 4))
    optimizer = nk.create(name, [p, q], base="muon", lr=0.1, weight_decay=0.5, ns_dtype=None)
    before, _ = (x.clone() for x in trained(optimizer, [p, q], 1))
    p.grad = None
    optimizer.step()
    assert torch.equal(p, before)


def test_a_row_whose_length_came_to_zero_stays_finite():
    p = nn.Parameter(drawn(3, 4))
    optimizer = nk.Muown([p], ns_dtype=None)
    trained(optimizer, [p], 1)
    with torch.no_grad():
        p[1], optimizer.state[p]["g"][1] = 0.0, 0.0
    trained(optimizer, [p], 1)
    assert p.isfinite().all()


def test_cautious_counts_steps_that_rounding_takes_but_none_without_a_gradient():
    start = torch.tensor([1.0, 1.0, 256.0, 256.0], dtype=torch.bfloat16)
    p = nn.Parameter(start.clone())
    p.grad = torch.tensor([1.0, 1.0, 1e-3, 0.0], dtype=torch.bfloat16)
    nk.Cautious([p], base="sgd", lr=0.125).step()
    assert p.tolist() == (start.double() - torch.tensor([1, 1, 0, 0]) * 0.125 * 4 / 3).bfloat16().tolist()


COUNTING = [
    ("relevance-decay", {"gamma": 0.5, "decay_steps": 10}),
    ("lawn", {"base": "sgd", "free_steps": 3}),
    ("lawn", {"base": "sgd", "free_steps": 1, "warmup_steps": 5, "min_ndim": 3}),
    ("lawn", {"free_steps": 3}),
]


@pytest.mark.parametrize("name, settings", COUNTING)
def test_torchs_checkpoints_which_step_where_a_state_is_empty_leave_the_count_alone(name, settings):
    weights = []
    for saves in (False, True):
        model = nn.Linear(4, 3).double()
        for place, p in enumerate(model.parameters()):
            p.data = drawn(*p.shape, seed=place)
        optimizer = nk.create(name, model.parameters(), lr=0.1, **settings)
        for step in range(STEPS):
            for p in model.parameters():
                p.grad = drawn(*p.shape, seed=step)
            optimizer.step()
            optimizer.zero_grad()
            if saves:
                get_optimizer_state_dict(model, optimizer)
        weights.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *weights))


def test_lawn_loads_a_state_that_has_no_length_yet():
    p, q = nn.Parameter(drawn(4, 3)), nn.Parameter(drawn(4, 3))
    optimizers = [nk.LAWN([x], lr=0.1, free_steps=2) for x in (p, q)]
    trained(optimizers[0], [p], 1)
    state = copy.deepcopy(optimizers[0].state_dict())
    assert state["state"][0].pop("norm") == 0
    optimizers[1].load_state_dict(state)
    q.data = p.detach().clone()
    assert torch.equal(*(trained(optimizer, [x])[0] for optimizer, x in zip(optimizers, (p, q), strict=True)))
    assert optimizers[1].state[q]["norm"] > 0


def test_conda_takes_its_first_basis_of_a_gradient_that_is_not_zero(monkeypatch):
    """LoRA's first matrix begins with zeros, and so does a new optimizer whose state torch's checkpoints fill."""
    made = []
    monkeypatch.setattr(conda, "basis", lambda m, basis=conda.basis: made.append(m) or basis(m))
    p, q = nn.Parameter(drawn(4, 3)), nn.Parameter(drawn(4, 3))
    begun, waiting = nk.Conda([p], lr=0.1), nk.Conda([q], lr=0.1)
    for _ in range(3):
        q.grad = torch.zeros_like(q)
        waiting.step()
    assert len(made) == 1
    assert torch.equal(trained(begun, [p])[0], trained(waiting, [q])[0])
    assert torch.equal(begun.state[p]["projector"], waiting.state[q]["projector"])
