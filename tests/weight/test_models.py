"""Reparametrizations, projections and regularizers of whole models."""

import copy

import pytest
import torch
from torch import distributed, nn
from torch.nn.utils import parametrizations, parametrize

import normkit as nk
from normkit import catalog
from normkit.kinds import PARAMETRIZATION
from processes import group_of, mesh_of
from sizes import calls


def model(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.ConvTranspose2d(8, 6, 3), nn.Flatten(), nn.Linear(6 * 36, 5)]
    return nn.Sequential(*layers, nn.LayerNorm(5), nn.Linear(5, 4))


X = torch.randn(2, 3, 6, 6)


@pytest.mark.parametrize(
    "where, done",
    [
        (None, ["0", "2", "4", "6"]),
        (nn.Linear, ["4", "6"]),
        ((nn.Conv2d, "6"), ["0", "6"]),
        ("[46]", ["4", "6"]),
        (lambda name, layer: getattr(layer, "out_features", 0) == 4, ["6"]),
    ],
)
def test_layers_are_chosen_by_type_name_pattern_or_function(where, done):
    net = model()
    table = nk.weight.apply(net, "sigma-reparam", where=where)
    assert table.done == done
    assert [n for n, m in net.named_modules() if parametrize.is_parametrized(m)] == done
    assert set(table.left) == {"0", "2", "4", "5", "6"} - set(done)
    assert f"{len(done)} of 5 layers" in str(table)


def test_a_model_starts_as_it_was_and_bakes_to_what_it_computes():
    net = model().eval()
    plain, want = {n: p.shape for n, p in net.state_dict().items()}, net(X)
    for name in ("weight-norm", "sigma-reparam", "weight-compander"):
        nk.weight.apply(net, name)
        torch.testing.assert_close(net(X), want, rtol=1e-4, atol=1e-5)
        before = net(X)
        assert nk.weight.bake(net).done == ["0", "2", "4", "6"]
        assert torch.equal(net(X), before)
    assert {n: p.shape for n, p in net.state_dict().items()} == plain


@pytest.mark.parametrize(
    "put",
    [
        lambda net: nk.weight.apply(net, "weight-norm") and (lambda: net(X).square().sum()),
        lambda net: nk.weight.regularize(net, "spectral-regularizer"),
    ],
    ids=["apply", "regularize"],
)
def test_what_is_put_on_a_model_within_inference_mode_can_be_trained(put):
    net = model()
    with torch.inference_mode():
        loss = put(net)
    loss().backward()
    assert all(p.grad.abs().sum() > 0 for name, p in net[6].named_parameters() if "bias" not in name)


def test_what_is_put_on_a_parametrized_weight_starts_at_the_weight_that_is_computed():
    net = nn.Sequential(nn.Linear(5, 4)).eval()
    nk.weight.apply(net, "sigma-reparam")
    before = net[0].weight.detach().clone()
    assert nk.weight.apply(net, "weight-norm").done == ["0"]
    assert [type(part).__name__ for part in net[0].parametrizations.weight] == ["SigmaReparam", "WeightNorm"]
    torch.testing.assert_close(net[0].weight, before)


@pytest.mark.parametrize(
    "name", ["weight-norm", "sigma-reparam", "scaled-weight-standardization", "weight-compander", "learned-rounding"]
)
@pytest.mark.parametrize("before", [None, "weight-conditioning"])
def test_what_is_put_on_a_frozen_layer_is_frozen_but_for_what_is_learned_beside_a_weight(name, before):
    """Of learned rounding the weight never moves, so that to freeze it says nothing about the rounding."""
    net = model()
    if before:
        nk.weight.apply(net, before, where="4")
    net[4].requires_grad_(False)
    nk.weight.apply(net, name, where=["4", "6"])
    trained = [any(p.requires_grad for p in layer.parametrizations.parameters()) for layer in (net[4], net[6])]
    assert trained == [name == "learned-rounding", True]
    nk.weight.bake(net)
    assert [layer.weight.requires_grad for layer in (net[4], net[6])] == [False, True]


def test_a_transposed_convolution_counts_its_outputs_on_its_second_axis():
    net = model()
    assert nk.weight.apply(net, "weight-norm").done == ["0", "2", "4", "6"]
    assert net[2].parametrizations.weight[0].g.shape == (6,)
    nk.weight.bake(net)
    assert nk.weight.apply(net, "weight-standardization").left == {"2": "its outputs are on axis 1", "5": "a vector"}


def test_matrices_of_another_name_are_reported_and_taken_by_it():
    net = nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 3))
    assert nk.weight.apply(net, "weight-norm").left == {"1": "has no weight; tensor= may be weight_ih_l0, weight_hh_l0"}
    assert nk.weight.apply(net, "weight-norm", where="1", tensor="weight_ih_l0").done == ["1"]
    before = net[1](X[0, 0, :, :4])[0]
    with torch.no_grad():
        net[1].parametrizations.weight_ih_l0[0].g.mul_(2)
    assert not torch.allclose(net[1](X[0, 0, :, :4])[0], before)


def test_they_compose_and_are_saved_with_the_model():
    net = model()
    nk.weight.apply(net, "weight-conditioning", where=nn.Linear, mode="column")
    nk.weight.apply(net, "sigma-reparam", where=nn.Linear)
    assert [type(p).__name__ for p in net[4].parametrizations.weight] == ["WeightConditioning", "SigmaReparam"]
    twin = copy.deepcopy(net).eval()
    assert torch.equal(twin(X), net.eval()(X))
    with torch.no_grad():
        for p in twin.parameters():
            p.mul_(2)
    twin.load_state_dict(net.state_dict())
    assert torch.equal(twin(X), net(X))
    with parametrize.cached():
        assert net[4].weight is net[4].weight


@pytest.mark.parametrize("name", [card.name for card in catalog.members(PARAMETRIZATION)])
def test_a_layer_that_starts_at_zero_stays_finite_and_is_left_where_it_has_no_direction(name):
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    nn.init.zeros_(net[2].weight)
    nn.init.zeros_(net[4].weight[0].data)
    left = nk.weight.apply(net, name).left
    net(torch.ones(1, 8)).sum().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters())
    vectors = {"weight-norm": ("4 of 4", "1 of 3"), "ngpt-weights": ("4 of 4", "1 of 3")}
    if name in vectors:
        why = [f"{which} vectors in weight have length 0, and so no direction" for which in vectors[name]]
        assert left == {"2": why[0], "4": why[1]}
    elif name in ("spectral-norm", "sigma-reparam", "normalize-and-project"):
        assert left == {"2": "weight has length 0, and so no direction"}
    else:
        assert not left


def test_a_tied_weight_is_left():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    net[2].weight = net[0].weight
    table = nk.weight.apply(net, "weight-norm")
    assert table.done == ["1"]
    assert table.left == {"0": "shared with 2", "2": "shared with 0"}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"name": "rmsnorm"}, "must be one of"),
        ({"name": "weight-nrm"}, "weight-norm"),
        ({"name": "weight-norm", "where": "7"}, "fits no layer"),
        ({"name": "weight-norm", "where": nn.LayerNorm}, "a vector"),
        ({"name": "weight-norm", "where": ["0", "5"]}, "does not fit '5': a vector"),
        ({"name": "weight-standardization", "where": "2"}, "axis 1"),
        ({"name": "weight-compander", "where": "0", "a": 0.01}, "larger a"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_done(options, message):
    net = model()
    with pytest.raises(ValueError, match=message):
        nk.weight.apply(net, **options)
    assert not any(parametrize.is_parametrized(m) for m in net.modules())


def test_it_is_put_on_whole_or_not_at_all(monkeypatch):
    net = model()
    before = dict(net.named_parameters())
    reset, calls = nk.SigmaReparam.reset, []

    def fails(self, raw):
        calls.append(raw)
        if len(calls) == 3:
            raise RuntimeError("no singular values")
        reset(self, raw)

    monkeypatch.setattr(nk.SigmaReparam, "reset", fails)
    with pytest.raises(RuntimeError, match="singular"):
        nk.weight.apply(net, "sigma-reparam")
    assert not any(parametrize.is_parametrized(m) for m in net.modules())
    assert {name: id(p) for name, p in net.named_parameters()} == {name: id(p) for name, p in before.items()}


def test_a_layer_that_had_a_map_has_it_alone_where_another_layer_fails(monkeypatch):
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    nk.weight.apply(net, "spectral-norm", where="0")
    before, hooks = copy.deepcopy(net.state_dict()), [len(m._load_state_dict_pre_hooks) for m in net]
    reset = nk.WeightCompander.reset

    def fails(self, weight):
        if weight.shape == (4, 8):
            raise RuntimeError("no arctangent")
        return reset(self, weight)

    monkeypatch.setattr(nk.WeightCompander, "reset", fails)
    with pytest.raises(RuntimeError, match="arctangent"):
        nk.weight.apply(net, "weight-compander")
    torch.testing.assert_close(dict(net.state_dict()), dict(before), rtol=0, atol=0)
    assert [len(m._load_state_dict_pre_hooks) for m in net] == hooks


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["sigma-reparam", "weight-compander", "learned-rounding"])
def test_a_weight_that_is_not_finite_is_left_where_its_map_would_fail(name, number):
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
    net[1].weight.data[0, 0] = number
    assert nk.weight.apply(net, name).left == {"1": "weight has NaN or infinities"}


def test_a_map_is_put_on_a_layer_of_the_meta_device():
    for card in catalog.members(PARAMETRIZATION):
        assert nk.weight.apply(nn.Linear(4, 8, device="meta"), card.name).done == [""]


def test_baking_is_done_whole_or_not_at_all():
    class Trains(nn.Module):
        def forward(self, raw):
            assert self.training, "has no evaluation"
            return raw

    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    nk.weight.apply(net, "weight-norm")
    parametrize.register_parametrization(net[1], "bias", Trains())
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(AssertionError, match="has no evaluation"):
        nk.weight.bake(net)
    torch.testing.assert_close(dict(net.state_dict()), dict(before), rtol=0, atol=0)
    assert net.training


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("wrap", [nn.utils.weight_norm, parametrizations.weight_norm])
@pytest.mark.parametrize("dim", [0, None])
def test_checkpoints_of_torchs_weight_norm_load(wrap, dim):
    theirs = nn.Sequential(wrap(nn.Linear(4, 8), dim=dim), nn.ReLU(), wrap(nn.Conv1d(8, 3, 1), dim=dim))
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.rand_like(p))
    ours = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Conv1d(8, 3, 1))
    nk.weight.apply(ours, "weight-norm", dim=dim)
    ours.load_state_dict(theirs.state_dict())
    for at in (0, 2):
        torch.testing.assert_close(ours[at].weight, _computed(theirs[at]))
    nk.weight.bake(ours)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours[0].weight, _computed(theirs[0]))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
@pytest.mark.parametrize("wrap", [nn.utils.weight_norm, parametrizations.weight_norm])
def test_a_layer_that_has_torchs_weight_norm_loads_it_beside_a_map_and_after_one(wrap):
    after = nn.Linear(4, 8)
    nk.weight.apply(after, "spectral-norm")
    nk.weight.bake(after)
    wrap(after)
    beside = parametrizations.weight_norm(nn.Linear(4, 8))
    nk.weight.apply(beside, "spectral-norm")
    for layer in (after, beside):
        saved = {key: value + 1 for key, value in layer.state_dict().items()}
        layer.load_state_dict(saved)
        torch.testing.assert_close(dict(layer.state_dict()), saved, rtol=0, atol=0)


def test_a_checkpoint_of_torchs_weight_norm_is_the_raw_weight_of_another_map():
    theirs, ours = parametrizations.weight_norm(nn.Linear(4, 8)), nn.Linear(4, 8)
    nk.weight.apply(ours, "weight-standardization")
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours.parametrizations.weight.original, theirs.weight)


def _computed(layer):
    for hook in layer._forward_pre_hooks.values():  # the old weight norm computes its weight before a pass
        hook(layer, None)
    return layer.weight


def test_weights_are_projected_after_every_step():
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    lengths = [net[at].weight.norm().item() for at in (0, 2)]
    projection = nk.weight.project(net, optimizer, "normalize-and-project")
    assert projection.table.left["4"] == "the last layer"
    assert projection.table.did == "normalize-and-project"
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
        assert [net[at].weight.norm().item() for at in (0, 2)] == pytest.approx(lengths, rel=1e-6)
    projection.remove()
    optimizer.step()
    assert net[0].weight.norm().item() != pytest.approx(lengths[0], rel=1e-4)


def test_a_weight_of_zeros_is_not_projected():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    nn.init.zeros_(net[0].weight)
    projection = nk.weight.project(net, torch.optim.SGD(net.parameters(), lr=0.1), "normalize-and-project")
    assert projection.table.left == {"0": "weight has length 0, and so no direction", "2": "the last layer"}
    assert not net[0].weight.any()


def test_ngpts_axes_are_given_by_a_function_and_a_model_may_project_itself():
    net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Linear(8, 4, bias=False))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    nk.weight.project(net, optimizer, "ngpt-weights", where=nn.Linear, dim=lambda name, w: list(w.shape).index(4))
    torch.testing.assert_close(net[0].weight.norm(dim=1), torch.ones(8))
    torch.testing.assert_close(net[1].weight.norm(dim=0), torch.ones(8))
    decoder = nk.Decoder(vocab=11, dim=8, depth=1, heads=2, placement="ngpt")
    optimizer = torch.optim.SGD(decoder.parameters(), lr=0.1)
    nk.weight.project(decoder, optimizer)
    decoder(torch.randint(11, (2, 5))).square().sum().backward()
    optimizer.step()
    torch.testing.assert_close(decoder.get_parameter("layers.0.feedforward.up.weight").norm(dim=1), torch.ones(64))


@pytest.mark.parametrize("name", [None, "weight-norm", "rmsnorm"])
def test_what_is_no_projection_is_named(name):
    net = nn.Linear(4, 4)
    with pytest.raises(ValueError, match="project"):
        nk.weight.project(net, torch.optim.SGD(net.parameters(), lr=0.1), name)


def test_regularizers_collect_over_a_model():
    net = model()
    w = [net[at].weight for at in (0, 2, 4, 6)]
    group = nk.weight.regularize(net, "group-orthogonality", num_groups=2, where=nn.Conv2d, strength=0.5)
    torch.testing.assert_close(group(), 0.5 * nk.GroupOrthogonality(2)(w[0]))
    spectral = nk.weight.regularize(net, "spectral-regularizer", n_power_iterations=0)
    want = sum((torch.linalg.matrix_norm(v.flatten(1), 2) ** 2 - 1) ** 2 for v in w)
    torch.testing.assert_close(spectral(), want + sum(net[at].bias.square().sum() ** 2 for at in (0, 2, 4, 6)))
    start = nk.weight.regularize(net, "wasserstein-init-regularizer")
    assert len(start.table.done) == 10
    assert start().item() == 0
    with torch.no_grad():
        net[6].weight.copy_(net[6].weight.flatten()[torch.randperm(20)].view(4, 5))
    assert start().item() == 0
    relevance = nk.weight.regularize(net, "relevance-penalty", gamma=0.1)
    assert float(relevance()) == 0
    net(X).sum().backward()
    want = 0.1 * sum((torch.exp(-p.grad.abs()) * p.square()).sum() for p in net.parameters())
    torch.testing.assert_close(relevance(), want)
    with pytest.raises(ValueError, match="no loss on weights"):
        nk.weight.regularize(net, "nkd")


@pytest.mark.parametrize("groups", [4, lambda name, weight: 4], ids=["number", "function"])
def test_a_layer_whose_filters_make_no_such_groups_is_left(groups):
    net = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 18))
    loss = nk.weight.regularize(net, "group-orthogonality", num_groups=groups)
    assert loss.table.left == {"1.weight": "4 groups do not divide 18 filters"}
    torch.testing.assert_close(loss(), nk.GroupOrthogonality(4)(net[0].weight))


def test_a_tied_tensor_counts_once_in_a_loss_on_weights():
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5), nn.Linear(4, 5))
    net[1].weight, net[2].bias = net[0].weight, net[1].bias
    net[0].weight.grad, net[1].bias.grad, net[2].weight.grad = torch.ones(5, 4), torch.ones(5), torch.ones(5, 4)
    plain = nk.weight.regularize(net, "relevance-penalty", gamma=1.0, alpha=float("inf"))
    torch.testing.assert_close(plain(), sum(p.square().sum() for p in net.parameters()))
    assert plain.table.left == {"1.weight": "shared with 0.weight", "2.bias": "shared with 1.bias"}
    assert len(nk.weight.regularize(net, "wasserstein-init-regularizer").parts) == 3
    spectral = nk.weight.regularize(net, "spectral-regularizer", where="*", n_power_iterations=0)
    want = sum((torch.linalg.matrix_norm(net[at].weight, 2) ** 2 - 1) ** 2 for at in (0, 2))
    torch.testing.assert_close(spectral(), want + net[1].bias.square().sum() ** 2)
    assert spectral.table.left == {"1.weight": "shared with 0.weight"}


def test_a_layer_without_a_shape_as_yet_is_left():
    why = "its shape is not known before the first pass"
    net = nn.Sequential(nn.Linear(4, 6), nn.LazyLinear(6), nn.Linear(6, 6), nn.Linear(6, 2))
    optimizer = torch.optim.SGD([net[0].weight], lr=0.1)
    assert nk.weight.regularize(net, "group-orthogonality", num_groups=1, where="[01]").table.left == {"1.weight": why}
    everywhere = nk.weight.regularize(net, "wasserstein-init-regularizer").table
    assert everywhere.left == {"1.weight": why, "1.bias": why}
    assert nk.weight.project(net, optimizer, "ngpt-weights").table.left == {"1": why, "3": "the last layer"}
    assert nk.weight.apply(net, "weight-norm", where="0").left["1"] == "not chosen"
    assert nk.weight.apply(net, "spectral-norm").left == {"1": why}
    with pytest.raises(ValueError, match=f"apply: weight-norm does not fit '1': {why}"):
        nk.weight.apply(net, "weight-norm", where="1")


def test_baking_a_copy_leaves_the_original_and_a_parameter_its_optimizer():
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    nk.weight.apply(net, "weight-standardization")
    x, held = torch.randn(3, 4), net[0].parametrizations.weight.original
    twin, y = copy.deepcopy(net), net(x)
    nk.weight.bake(twin)
    assert torch.equal(net(x), y)
    assert torch.equal(twin(x), y)
    nk.weight.bake(net)
    assert net[0].weight is held
    assert torch.equal(net(x), y)


@pytest.mark.parametrize(
    "remove", [nk.weight.bake, lambda net: nk.fold(net, torch.arange(6), inplace=True)], ids=["bake", "fold"]
)
def test_baking_leaves_a_tied_weight_to_the_other_layer(remove):
    net = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 6, bias=False))
    net[1].weight = net[0].weight
    parametrizations.spectral_norm(net.eval()[1]).eval()
    tokens, before = torch.arange(6), copy.deepcopy(net[0].weight)
    y = net(tokens)
    remove(net)
    assert torch.equal(net[0].weight, before)
    assert torch.equal(net(tokens), y)
    assert isinstance(net[1].weight, nn.Parameter)


def work(*task):
    return trained_when_cut(*task)


processes = group_of(2, work)


def trained_when_cut(call, name, options):
    """How far a model's parameters are from one process' after three steps, with a map or a loss on its weights."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.Linear(10, 8), nn.LayerNorm(8), nn.Linear(8, 4)).double()
    many, batches, rank, mesh = copy.deepcopy(one), torch.randn(3, 4, 6).double(), distributed.get_rank(), mesh_of((2,))
    for part in (many[0], many[2], many):
        fully_shard(part, mesh=mesh)
    torch.manual_seed(rank)
    starts = []
    for net, xs in ((many, batches.chunk(2, 1)[rank]), (one, batches)):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        if call == "project":
            kept = nk.weight.project(net, optimizer, name)
        else:
            kept = nk.weight.regularize(net, name, strength=0.1, **options)
        starts.append({key: value.clone() for key, value in kept.state_dict().items()})
        kept.load_state_dict(starts[0])
        for x in xs:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            (loss if call == "project" else loss + kept()).backward()
            optimizer.step()
    pairs = zip(many.parameters(), one.parameters(), strict=True)
    return max((a.full_tensor() - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize(
    "call, name, options",
    [
        *[("project", name, {}) for name in ("normalize-and-project", "ngpt-weights", "weight-conditioning")],
        ("regularize", "group-orthogonality", {"num_groups": 2}),
        ("regularize", "lambda-orthogonality", {"threshold": 1.0}),
        ("regularize", "spectral-regularizer", {}),
        ("regularize", "wasserstein-init-regularizer", {}),
        ("regularize", "relevance-penalty", {}),
    ],
)
def test_weights_that_fully_shard_has_cut_move_as_those_of_one_process(call, name, options, processes):
    for off in processes.ask(call, name, options):
        assert off < 1e-12


def test_to_collect_a_loss_moves_no_singular_vectors():
    layer = parametrizations.spectral_norm(nn.Linear(8, 6))
    before = layer.parametrizations.weight[0]._u.clone()
    nk.weight.regularize(layer, "group-orthogonality", num_groups=2)
    assert layer.parametrizations.weight[0]._u.tolist() == before.tolist()


def put_on(model):
    nk.weight.apply(model, "weight-standardization")


def project(model):
    nk.weight.project(model, torch.optim.SGD(model.parameters()), "normalize-and-project")


@pytest.mark.parametrize("change", [put_on, project])
def test_twice_the_layers_take_twice_the_work(change):
    few, many = (nn.Sequential(*(nn.Linear(2, 2) for _ in range(n))) for n in (40, 80))
    change(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))  # what is loaded at the first call
    assert calls(change, many) < 2.2 * calls(change, few)
