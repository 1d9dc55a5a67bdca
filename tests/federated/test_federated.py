"""What the contract does not ask of federated functions: the order of clients, one client, bad states, any model."""

import math
import re
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import normkit as nk
from normkit.federated import stack
from sizes import Largest

ENTRIES = ("weight", "bias")
ALIKE = torch.ones(5)
COUNT = torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0])
FUNCTIONS = {  # name -> a call on stacked weights (K, C, D) and biases (K, C), that returns one state
    "fedbn-average": lambda w, b, n: [x[0] for x in nk.fedbn_average(w, b, n, entries=ENTRIES)],
    "classwise-average": lambda w, b, n: nk.classwise_average(w, b, n, n[:, None] + torch.zeros(3), entries=ENTRIES),
    "fedlabel-aggregate": lambda w, b, n: nk.fedlabel_aggregate(w, b, w, b, n, entries=ENTRIES),
    "fedlaw-aggregate": lambda w, b, n: nk.fedlaw_aggregate(w, b, n.log(), torch.zeros(()), entries=ENTRIES),
    "fedselect-aggregate": lambda w, b, n: nk.fedselect_aggregate(w, b, w * 0, entries=ENTRIES, masked=("weight",))[:1],
    "principal-gradient": lambda w, b, n: nk.principal_gradient(w, b, entries=ENTRIES),
    "fedlog-synthetic": lambda w, b, n: [
        nk.fedlog_synthetic((w + b.unsqueeze(2)).unsqueeze(2), n[:, None] + torch.zeros(3))
    ],
    "batchnorm-candidates": lambda w, b, n: nk.batchnorm_candidates(w, w.square(), n, b)[:3],
    "pooled-covariance": lambda w, b, n: nk.pooled_covariance(b, b.unsqueeze(2) * b.unsqueeze(1), n),
}
NO_MEANS = ("pooled-covariance", "principal-gradient", "fedlog-synthetic", "batchnorm-candidates")


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_order_of_the_clients_changes_no_bit(name, dtype):
    given = numbers(5, 3, 7, dtype=dtype), numbers(5, 3, seed=1, dtype=dtype), COUNT
    order = torch.tensor([3, 0, 4, 1, 2])
    for a, b in zip(FUNCTIONS[name](*given), FUNCTIONS[name](*(x[order] for x in given)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NO_MEANS])
def test_one_client_is_the_identity_and_equal_weights_are_the_mean(name):
    w, b = numbers(5, 3, 7), numbers(5, 3, seed=1)
    for found, own in zip(FUNCTIONS[name](w[:1], b[:1], ALIKE[:1]), (w, b), strict=False):
        assert torch.equal(found, own[0])
    for found, own in zip(FUNCTIONS[name](w, b, ALIKE), (w, b), strict=False):
        torch.testing.assert_close(found, own.mean(0))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(name, value):
    given = [numbers(5, 3, 7), numbers(5, 3, seed=1), COUNT]
    given[1][2, 0] = value
    with pytest.raises(ValueError, match=f"{name}: .* NaN or infinities"):
        FUNCTIONS[name](*given)


def test_clients_that_differ_late_are_distinguished_and_empty_entries_pass():
    x = torch.ones(3, 100, dtype=torch.float64)
    x[:, 80] = torch.tensor([0.1, 0.2, 0.3])
    n, order = torch.ones(3), torch.tensor([2, 0, 1])
    [a], [b] = nk.fedbn_average(x, n, entries=("w",)), nk.fedbn_average(x[order], n, entries=("w",))
    assert torch.equal(a, b)
    assert nk.fedbn_average(torch.zeros(3, 0), n, entries=("w",))[0].shape == (3, 0)


def test_whole_numbers_are_rounded_and_local_entries_stay():
    batches, own = torch.tensor([3, 4]), torch.tensor([[1.0], [2.0]])
    shared, kept = nk.fedbn_average(batches, own, torch.tensor([1, 2]), entries=("batches", "own"), local=("own",))
    assert torch.equal(shared, torch.tensor([4, 4]))
    assert torch.equal(kept, own)
    with pytest.raises(ValueError, match="local must be among the entries, but owm"):
        nk.fedbn_average(batches, own, torch.tensor([1, 2]), entries=("batches", "own"), local=("owm",))


@pytest.mark.parametrize("entries", [1, "weight", [1]])
@pytest.mark.parametrize("name", [n for n in nk.methods(room="federated") if "entries" in nk.card(n).example])
def test_entries_are_names(name, entries):
    wanted = f"{name}: entries must be a sequence of names such as ['weight'], not {entries!r}"
    with pytest.raises(TypeError, match=re.escape(wanted)):
        nk.card(name).entry(torch.ones(2), **{**nk.card(name).example, "entries": entries})


def test_names_may_be_those_of_a_model_as_it_hands_them_out():
    own, names = torch.ones(2, 3), torch.nn.Linear(3, 1, bias=False).state_dict().keys()
    assert torch.equal(nk.fedbn_average(own, torch.ones(2), entries=names, local=names)[0], own)
    with pytest.raises(TypeError, match=r"fedbn-average: local must be a sequence of names such as .*, not 'weight'"):
        nk.fedbn_average(own, torch.ones(2), entries=names, local="weight")


@pytest.mark.parametrize("count", [[0, 0], [-1, 2]])
def test_counts_of_nobody_are_refused(count):
    with pytest.raises(ValueError, match="fedbn-average: states count must not be"):
        nk.fedbn_average(torch.zeros(2, 3), torch.tensor(count), entries=("w",))


def test_tensors_that_are_not_those_of_the_entries_are_named():
    with pytest.raises(ValueError, match="states must be w, b, count, but there are 2"):
        nk.fedbn_average(torch.zeros(2, 3), torch.ones(2), entries=("w", "b"))
    with pytest.raises(ValueError, match="states b must have an axis of clients in front"):
        nk.fedbn_average(torch.zeros(2, 3), torch.ones(3), torch.ones(2), entries=("w", "b"))
    with pytest.raises(ValueError, match="states pseudo:w must have shape"):
        nk.fedlabel_aggregate(torch.zeros(2, 3), torch.zeros(2, 4), torch.ones(2), entries=("w",))


def test_states_of_other_names_or_shapes_are_named():
    model = torch.nn.Linear(2, 3).state_dict()
    found = stack([model, model])
    assert {name: tuple(value.shape) for name, value in found.items()} == {"weight": (2, 3, 2), "bias": (2, 3)}
    with pytest.raises(ValueError, match="clients 0 and 1 differ in bias"):
        stack([model, {"weight": model["weight"]}])
    with pytest.raises(ValueError, match="clients 0 and 1 differ in bias"):
        stack([model, {**model, "bias": torch.zeros(4)}])


def test_a_round_of_one_client_moves_the_server_by_its_update():
    update = numbers(1, 5, 3)
    torch.testing.assert_close(nk.principal_gradient(update, entries=("w",))[0], update[0])


def test_a_client_without_samples_drops_out_though_its_mean_is_nan():
    mean, covariance, count = numbers(3, 4), numbers(3, 4, 4), torch.tensor([5.0, 0.0, 2.0]).double()
    want = nk.pooled_covariance(mean[::2], covariance[::2], count[::2])
    mean[1], covariance[1] = math.nan, math.nan
    for found, expected in zip(nk.pooled_covariance(mean, covariance, count), want, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_class_that_nobody_has_gets_the_average_by_counts():
    w, b, n = numbers(2, 3, 4), numbers(2, 3, seed=1), torch.tensor([1.0, 3.0])
    classes = torch.tensor([[1.0, 0.0, 2.0], [1.0, 0.0, 0.0]])
    [found, _] = nk.classwise_average(w, b, n, classes, entries=ENTRIES)
    torch.testing.assert_close(found[1], (w[0, 1] + 3 * w[1, 1]) / 4)
    torch.testing.assert_close(found[2], w[0, 2])


def test_a_server_learns_the_shares_of_any_model():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    x = numbers(20, 3, dtype=torch.float32)
    y = model(x).detach().argmax(1)
    good = {name: p.detach() for name, p in model.named_parameters()}
    bad = {name: -p for name, p in good.items()}

    def loss(state, batch):
        return F.cross_entropy(torch.func.functional_call(model, dict(state), (batch[0],)), batch[1])

    learn = nk.create("fedlaw", entries=ENTRIES, lr=0.1, epochs=10).learn
    found = learn([good, bad], torch.tensor([1, 1]), loss, [(x, y)])
    assert found.share[0] > 0.6
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(TypeError, match=r"^fedlaw: batches must be a list or a loader, .* not an iterator"):
        learn([good, bad], torch.tensor([1, 1]), loss, iter([(x, y)]))


def test_apfl_trains_any_model_and_its_ends_are_shared_and_alone():
    model = torch.nn.Linear(3, 2, dtype=torch.float64)
    model.unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    w = {name: p.detach() for name, p in model.named_parameters()}
    v = {name: p + 1 for name, p in w.items()}
    batches = [(numbers(4, 3, seed=s), torch.tensor([0, 1, 0, 1])) for s in range(3)]
    train = nk.create("apfl-step", entries=ENTRIES, lr=0.1).train
    forward = partial(torch.func.functional_call, model)
    alone = train(forward, w, v, 1.0, batches)
    plain = train(forward, v, w, 0.0, batches)
    torch.testing.assert_close(alone.personal, plain.shared)
    shared = train(forward, w, v, 0.0, batches)
    torch.testing.assert_close(shared.personal, v)


@pytest.mark.parametrize("norm", ["l1", "l2", "nuclear", "max", "none"])
def test_the_mean_loss_of_no_ratings_is_nan_whatever_the_norm(norm):
    assert nk.FedRAPLoss(norm=norm)(torch.ones(0), torch.ones(0), torch.ones(0, 3), torch.ones(0, 3)).isnan()


def test_nothing_grows_beyond_the_limit_or_without_a_position():
    now, before = numbers(2, 4), numbers(2, 4, seed=1)
    full = torch.ones(2, 4, dtype=torch.float64)
    assert torch.equal(nk.fedselect_grow(now, before, full, entries=("weight",))[0], full)
    assert torch.equal(nk.fedselect_grow(now, before, full, entries=("weight",), limit=1.0)[0], full)
    assert not nk.fedselect_grow(now, before, full * 0, entries=("weight",), rate=0.0)[0].any()
    with pytest.raises(ValueError, match="mask:weight must be 0 for shared and 1 for personal"):
        nk.fedselect_grow(now, before, full / 2, entries=("weight",))


def test_samples_of_a_covariance_without_full_rank():
    x = numbers(2, 3)
    found = nk.geometric_samples(x, torch.zeros(3, 3, dtype=torch.float64), numbers(2, 5, 3))
    torch.testing.assert_close(found, x.unsqueeze(1).expand(2, 5, 3), rtol=0, atol=0.01)
    wide = nk.geometric_samples(x, torch.ones(3, 3, dtype=torch.float64) * 1e9, numbers(2, 5, 3), jitter=1e-12)
    assert wide.isfinite().all()


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 2, 4), (1, 3, 2)])
def test_disparity_adds_up_whatever_the_alphabets(shape):
    joint = numbers(*shape).exp()
    joint[0, 0, 0] = 0
    unique, redundant, masked, whole, local = nk.disparity_decomposition(joint)
    torch.testing.assert_close(unique + redundant, whole)
    torch.testing.assert_close(unique + masked, local)
    assert min(unique, redundant, masked) >= 0
    for a, b in zip(nk.disparity_decomposition(joint.flip(0) * 7), (unique, redundant, masked), strict=False):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-7)


def test_one_client_has_only_unique_disparity():
    found = nk.disparity_decomposition(torch.tensor([[[3.0, 1.0], [1.0, 5.0]]]).double())
    torch.testing.assert_close(found.unique, found.local)
    torch.testing.assert_close(found.masked, torch.zeros((), dtype=torch.float64))
    with pytest.raises(ValueError, match="joint must not be below 0"):
        nk.disparity_decomposition(torch.zeros(2, 2, 2))


def test_a_looser_limit_never_costs():
    joint = numbers(2, 2, 2, seed=3).exp()
    joint[1, 1, 0] = 0
    errors = [float(nk.fairness_frontier(joint, global_limit=x, local_limit=x)) for x in (0.0, 0.01, 0.1, 1.0)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == pytest.approx(0, abs=1e-6)
    p = joint / joint.sum()
    assert errors[0] <= float(torch.minimum(p[:, :, 0].sum(), p[:, :, 1].sum()))
    with pytest.raises(ValueError, match="global_limit"):
        nk.fairness_frontier(joint, global_limit=-1.0, local_limit=0.1)


@pytest.mark.parametrize("rare", [1e-8, 1e-10, 1e-15])
def test_a_rare_cell_changes_the_frontier_as_little_as_it_weighs(rare):
    joint = torch.tensor([[[0, 400.0], [200, 300]], [[300, 200], [100, 400]]], dtype=torch.float64) / 1900
    found = [float(nk.fairness_frontier(joint + rare, global_limit=x, local_limit=x)) for x in (0.05, 1.0)]
    assert found == pytest.approx([0.06975315, 0.0], abs=1e-6)


def test_pgfed_serves_clients_in_any_order():
    w, gradient, risk, count = numbers(5, 3), numbers(5, 3, seed=1), numbers(5, seed=2), COUNT
    alpha, order = numbers(5, 5, seed=3).abs(), torch.tensor([3, 0, 4, 1, 2])
    serve = nk.create("pgfed-server", entries=("w",), mu=0.1)
    state, mean, told, risks = serve(w, gradient, risk, alpha, count)
    moved = serve(w[order], gradient[order], risk[order], alpha[order][:, order], count[order])
    for a, b in zip(moved, (state, mean, told[order], risks[order]), strict=True):
        assert torch.equal(a, b)


def test_pgfed_trains_any_model_and_begins_without_the_others():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    model.unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    state = {name: p.detach() for name, p in model.named_parameters()}
    batches = [(numbers(4, 3, seed=s), torch.tensor([0, 1, 0, 1])) for s in range(2)]
    client = nk.create("pgfed-client", entries=ENTRIES, lr=0.1, alpha_lr=0.01)
    forward = partial(torch.func.functional_call, model)
    first = client.train(forward, state, batches)
    zero = {name: torch.zeros_like(p) for name, p in state.items()}
    told = client.train(forward, state, batches, zero, zero, torch.ones(2).double(), torch.ones(2).double())
    for name in state:
        torch.testing.assert_close(told.state[name], first.state[name])
    assert torch.equal(first.state["unused"], state["unused"])
    torch.testing.assert_close(told.alpha, torch.full((2,), 0.98, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"risks, alpha must be given together or not at all, but \['mean_gradient', "):
        client.train(forward, state, batches, zero, risks=torch.ones(2))
    with pytest.raises(ValueError, match=r"but \['alpha'\] are None"):
        client.train(forward, state, batches, zero, zero, torch.ones(2).double())


def test_one_sample_that_the_clients_own_model_labels_is_all_that_is_used():
    found = nk.fedlabel_select(
        torch.tensor([[0.0, 1.0], [0.0, 0.1]]), torch.tensor([[9.0, 0.0], [0.0, 0.1]]), threshold=0.7
    )
    assert found.label.tolist() == [0, -1]
    assert found.trained_share == 1


def test_the_share_of_the_clients_own_model_has_the_digits_of_its_logits():
    received = torch.tensor([[0.0, 1.0]] * 3).double()
    trained = torch.tensor([[9.0, 0.0], [0.1, 0.0], [0.1, 0.0]]).double()
    share = nk.fedlabel_select(received, trained, threshold=0.5).trained_share
    assert share.dtype == torch.float64
    assert float(share) == pytest.approx(1 / 3, rel=1e-12)


def test_a_client_does_not_learn_from_the_model_that_judges():
    logits = {name: torch.randn(6, 3).requires_grad_() for name in ("strong", "plain", "received", "trained")}
    nk.create("fedlabel-loss", threshold=0.1)(**logits).backward()
    assert [name for name, given in logits.items() if given.grad is not None and given.grad.any()] == [
        "strong",
        "plain",
    ]


def test_without_a_step_there_is_no_state_and_another_count_of_entries_is_named():
    w, mask = numbers(2, 3), torch.ones(2, 3, dtype=torch.float64)
    [found] = nk.fedselect_step(w, mask, w.new_empty(0, 2, 3), entries=("w",), own=())
    assert found.shape == (0, 2, 3)
    with pytest.raises(ValueError, match="entries must name w1, b1, w2, b2"):
        nk.apfl_step(w, entries=("w1", "b1", "w2"), lr=0.1)


def test_what_clients_learn_of_each_other_is_added_up_without_copies_of_all_states_for_each():
    clients, numbers = 20, 50
    states, gradients = torch.randn(2, clients, numbers, dtype=torch.float64)
    risk, alpha, count = torch.rand(clients), torch.rand(clients, clients).double(), torch.rand(clients)
    with Largest() as seen:
        *_, sums, _ = nk.pgfed_server(states, gradients, risk, alpha, count, entries=("weight",), mu=0.1)
    torch.testing.assert_close(sums, 0.1 * alpha @ gradients)
    assert seen.together < clients * clients * numbers
