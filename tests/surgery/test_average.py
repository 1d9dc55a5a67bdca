"""FedBN, its aggregation, adaptive selection, and recalibration: torch's batch norms and the library's."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import statistics
from normkit.surgery.statistics.batch_statistics import batch_norms, recalibrate, takes_batch_statistics
from normkit.surgery.statistics.federated import average, local_entries, pool
from normkit.surgery.statistics.selection import select

TORCHS = [lambda: nn.BatchNorm1d(4), lambda: nn.BatchNorm2d(4), lambda: nn.BatchNorm3d(4), lambda: nn.SyncBatchNorm(4)]
OTHERS = [lambda: nn.InstanceNorm2d(4, track_running_stats=True), lambda: nn.LayerNorm(4), lambda: nn.Linear(4, 4)]
BATCH = ["batchnorm", "powernorm", "unifiednorm", "l1-batchnorm", "ghost-batchnorm", "evonorm-b0", "repair"]


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(norm=lambda: nn.BatchNorm1d(4)):
    """A model whose norm's name does not tell what it is."""
    return nn.ModuleDict({"body": nn.Linear(3, 4), "shortcut": norm(), "head": nn.Linear(4, 2)})


@pytest.mark.parametrize("make", TORCHS)
def test_torchs_batch_norms_are_found(make):
    assert takes_batch_statistics(make())


@pytest.mark.parametrize("name", BATCH)
def test_the_librarys_batch_norms_are_found(name):
    assert takes_batch_statistics(nk.create(name, 4))


@pytest.mark.parametrize("make", OTHERS)
def test_other_layers_are_not(make):
    assert not takes_batch_statistics(make())


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "groupnorm", "instancenorm", "phi-s", "point-norm"])
def test_the_librarys_other_methods_are_not(name):
    example = {"num_groups": 2} if name == "groupnorm" else {}
    assert not takes_batch_statistics(nk.create(name, 4, **example))


def test_local_entries_are_those_of_the_class_not_of_the_name():
    model = nn.Sequential(nn.Linear(3, 4), network(), network(lambda: nk.create("batchnorm", 4)), nn.LayerNorm(4))
    own = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert local_entries(model) == [f"{i}.shortcut.{entry}" for i in (1, 2) for entry in own]
    assert local_entries(model, "statistics") == [f"{i}.shortcut.{entry}" for i in (1, 2) for entry in own[2:]]
    assert local_entries(nn.BatchNorm1d(4)) == list(own)
    with pytest.raises(ValueError, match="keep must be one of"):
        local_entries(model, "none")


def test_of_a_block_only_the_norms_inside_are_local():
    block = nk.card("broadcast-residual").small()
    assert all("norm" in entry for entry in local_entries(block))
    assert local_entries(block)


def test_a_shared_norm_is_local_under_each_name():
    norm = nn.BatchNorm1d(4, affine=False, track_running_stats=True)
    model = nn.ModuleDict({"a": norm, "b": norm})
    assert len(local_entries(model)) == 6


def test_the_average_weighs_by_samples_and_leaves_local_entries():
    models = [network().double() for _ in range(3)]
    states = [m.state_dict() for m in models]
    for k, state in enumerate(states):
        state["shortcut.num_batches_tracked"].fill_(k)
    local = local_entries(models[0])
    server = average(states, [1, 2, 5], local)
    assert set(server) == set(states[0]) - set(local)
    want = (states[0]["body.weight"] + 2 * states[1]["body.weight"] + 5 * states[2]["body.weight"]) / 8
    close(server["body.weight"], want)
    close(average(states)["head.bias"], sum(s["head.bias"] for s in states) / 3)
    close(average(states[:1]), states[0])
    whole = average(states, [1, 2, 5])
    assert whole["shortcut.num_batches_tracked"] == 2  # 12 / 8, rounded to the nearest even
    assert whole["shortcut.num_batches_tracked"].dtype == torch.int64
    before = copy.deepcopy(models[0].shortcut.state_dict())
    models[0].load_state_dict(server, strict=False)
    close(dict(models[0].shortcut.state_dict()), dict(before), rtol=0, atol=0)
    close(models[0].body.weight.data, want)


def test_pooling_has_the_variance_between_clients():
    models = [network().double() for _ in range(2)]
    data = [draw(10, 4), draw(30, 4, seed=1) * 3 + 5]
    for model, x in zip(models, data, strict=True):
        found = statistics.moments(x, (0,))
        model.shortcut.running_mean.copy_(found.mean)
        model.shortcut.running_var.copy_(found.var)
    pooled = pool([m.state_dict() for m in models], [10, 30])
    joined = torch.cat(data)
    close(pooled["shortcut.running_mean"], joined.mean(0))
    close(pooled["shortcut.running_var"], joined.var(0, correction=0))
    close(pooled["body.weight"], (models[0].body.weight.data + 3 * models[1].body.weight.data) / 4)
    assert (average([m.state_dict() for m in models], [10, 30])["shortcut.running_var"] < joined.var(0) - 1).all()


def test_states_on_another_device_are_joined_as_well():
    states = [{name: value.to("meta") for name, value in network().state_dict().items()}] * 2
    pooled = pool(states, [10, 30])
    assert {name: (value.shape, value.device.type) for name, value in pooled.items()} == {
        name: (value.shape, "meta") for name, value in states[0].items()
    }


@pytest.mark.parametrize("samples", [[1, 2, 3], [0, 0], [-1, 2], []])
def test_counts_that_do_not_fit_are_named(samples):
    states = [network().state_dict() for _ in range(2)]
    with pytest.raises(ValueError, match="samples must give each of the 2 states"):
        average(states, samples)


@pytest.mark.parametrize("of", [average, pool])
def test_an_average_of_no_states_is_refused_by_their_name(of):
    with pytest.raises(ValueError, match=f"{of.__name__}: states must hold at least one"):
        of([])


def test_states_that_differ_are_named():
    a, b = network().state_dict(), network(lambda: nn.BatchNorm1d(5)).state_dict()
    with pytest.raises(ValueError, match=r"differ in shortcut\.weight"):
        average([a, b])


# recalibration


def batches(*sizes):
    return [draw(n, 4, 3, seed=n) * n + n for n in sizes]


@pytest.mark.parametrize(
    "make", [lambda: nn.BatchNorm1d(4), lambda: nk.create("batchnorm", 4), lambda: nk.create("repair", 4)]
)
def test_recalibrated_statistics_are_plain_averages_from_a_fresh_start(make):
    norm = make().double()
    norm.train()
    norm(draw(5, 4, 3) * 100)
    momentum = norm.momentum
    model = nn.Sequential(nn.Identity(), norm)
    assert recalibrate(model, iter(batches(5, 2, 8))).model is model
    close(norm.running_mean, torch.stack([b.mean((0, 2)) for b in batches(5, 2, 8)]).mean(0))
    close(norm.running_var, torch.stack([b.var((0, 2)) for b in batches(5, 2, 8)]).mean(0))
    assert norm.num_batches_tracked == 3
    assert norm.momentum == momentum
    assert not any(m.training for m in model.modules())


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(4), nk.create("batchnorm", 4), nk.create("repair", 4)])
def test_late_batches_count_as_early_ones_do_in_half_precision(norm):
    data = [draw(8, 4, 3, seed=n).float() + n / 64 for n in range(256)]
    recalibrate(nn.Sequential(norm.bfloat16()), [batch.bfloat16() for batch in data])
    for name, of in (("running_mean", torch.mean), ("running_var", torch.var)):
        want = torch.stack([of(batch, (0, 2)) for batch in data]).mean(0)
        torch.testing.assert_close(getattr(norm, name).float(), want, rtol=0.005, atol=0)


def estimates(norm):
    """The buffers but the length of a warm-up, which recalibration leaves."""
    return {name: value for name, value in norm.named_buffers() if name != "iters"}


@pytest.mark.parametrize("name", ["batchnorm", "powernorm", "unifiednorm", "onlinenorm", "l1-batchnorm"])
def test_a_norm_called_in_another_thread_is_recalibrated_and_one_that_is_trained_there_is_not(name):
    class Threaded(nn.Module):
        def __init__(self, norm, trained=None):
            super().__init__()
            self.norm, self.trained = norm, (trained,)  # no part of it

        def forward(self, x):
            with ThreadPoolExecutor(1) as pool:
                if self.trained[0] is not None:
                    pool.submit(self.trained[0], x).result()
                return pool.submit(self.norm, x).result()

    plain, threaded, trained, alone = (nk.create(name, 4).double() for _ in range(4))
    data = [draw(6, 4, seed=seed) * 3 + seed for seed in range(3)]
    recalibrate(nn.Sequential(plain), data)
    recalibrate(Threaded(threaded, trained), data)
    for x in data:
        alone(x)
    for one, other in ((threaded, plain), (trained, alone)):
        close(dict(one.named_buffers()), dict(other.named_buffers()))


def test_every_layer_of_the_catalogue_recalibrates_to_what_it_saw():
    """Once more from the same data gives the same statistics, whatever they were."""
    for name in BATCH:
        x = draw(6, 5, 4) if nk.card(name).shape.endswith("C") else draw(6, 4, 5, 3)
        first = nn.Sequential(nk.create(name, 4)).double()
        second = copy.deepcopy(first).train()
        for _ in range(3):
            second(draw(*x.shape, seed=9) * 50)
        for model in (first, second):
            recalibrate(model, [x, x * 2])
        close(estimates(first[0]), estimates(second[0]))


ESTIMATES = [
    ("onlinenorm", {"forward_decay": 0.5}, "running_mean running_var"),
    ("powernorm", {}, "running_phi"),
    ("powernorm", {"warmup_iters": 0}, "running_phi"),
    ("unifiednorm", {}, "running_var"),
    ("unifiednorm", {"warmup_iters": 2, "window_size": 2, "outlier_filtration": True}, "running_var"),
    ("delta-tbr", {}, "running_mean running_std"),
    ("test-batch-renorm", {}, "running_mean running_var"),
]


@pytest.mark.parametrize("name, options, estimates", ESTIMATES)
def test_estimates_by_rules_of_their_own_become_averages_of_what_each_batch_gives_in_every_order(
    name, options, estimates
):
    shape = {"test-batch-renorm": (6, 4, 3, 2), "delta-tbr": (6, 4, 3)}.get(name, (6, 4))
    data = [draw(*shape, seed=seed) * (seed + 1) for seed in range(3)]
    norm = nk.create(name, 4, **options, dtype=torch.float64)
    for _ in range(5):
        norm(data[0] * 9)

    def after(*batches):
        copied = recalibrate(nn.Sequential(norm), batches, inplace=False).model[0]
        return [getattr(copied, estimate) for estimate in estimates.split()]

    alone = [after(batch, batch) for batch in data]
    for order in (data, data[::-1]):
        got = after(*order)
        close(got[0], torch.stack([each[0] for each in alone]).mean(0))
        if name != "onlinenorm":  # the variance of all has that between batches as well
            close(got, [torch.stack(each).mean(0) for each in zip(*alone, strict=True)])


def test_recalibrated_root_mean_squares_are_those_of_the_batch_and_of_the_window_that_goes_on():
    x = draw(64, 4) * 3 + 5
    power = nk.create("powernorm", 4, warmup_iters=0, dtype=torch.float64)
    unified = nk.create("unifiednorm", 4, dtype=torch.float64)
    for norm in (power, unified):
        recalibrate(nn.Sequential(norm), [x] * 5)
    close(unified.running_var, x.square().mean(0))
    close(unified.buffer_x2, unified.running_var.expand(4, 4))
    close(power.running_phi, (x.square() / (x.square().mean(1, keepdim=True) + 1e-5)).mean(0))


@pytest.mark.parametrize("size", [1, 4, 16])
def test_online_moments_become_those_of_all_samples_however_they_are_cut(size):
    x = draw(16, 4) * 3 + 5
    norm, after = nk.create("onlinenorm", 4, dtype=torch.float64), nn.BatchNorm1d(4).double()
    recalibrate(nn.Sequential(norm), x.split(size))
    close(norm.running_mean, x.mean(0))
    close(norm.running_var, x.var(0, correction=0))
    recalibrate(nn.Sequential(norm, after), [x])
    close(after.running_mean, torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["powernorm", "unifiednorm"])
def test_recalibration_leaves_a_warm_up_where_it_was_and_passes_on_what_is_normalized(name):
    x = draw(16, 4) * 300
    norm, after = nk.create(name, 4, warmup_iters=2, dtype=torch.float64), nn.BatchNorm1d(4).double()
    for _ in range(6):
        norm(x)
    recalibrate(nn.Sequential(norm, after), [x, x])
    assert norm.iters == 6
    close(after.running_var, norm(x).var(0))
    norm.train()(x)
    assert norm.iters == 7


@pytest.mark.parametrize("name", ["powernorm", "unifiednorm"])
def test_a_batch_without_tokens_does_not_count_in_a_recalibration(name):
    x, padded = draw(3, 5, 4), torch.ones(5, 3, dtype=torch.bool)
    of_three, of_two = (nk.create(name, 4, dtype=torch.float64) for _ in range(2))
    pad_mask = padded if name == "powernorm" else padded.T
    recalibrate(of_three, [{"x": x}, {"x": x * 5, "pad_mask": pad_mask}, {"x": x * 2}])
    recalibrate(of_two, [{"x": x}, {"x": x * 2}])
    close(dict(of_three.named_buffers()), dict(of_two.named_buffers()))


def test_settings_stay_and_statistics_go():
    norm = nk.create("adab2n", 4, num_tasks=3)
    norm.next_task() if hasattr(norm, "next_task") else norm.cur_tasks.fill_(1)
    task = norm.cur_tasks.clone()
    norm.running_mean.fill_(float("nan"))
    recalibrate(nn.Sequential(norm), [draw(6, 4, 3).float()])
    assert torch.equal(norm.cur_tasks, task)
    assert torch.isfinite(norm.running_mean).all()


def test_recalibration_tells_how_far_each_layer_moved_and_may_take_a_copy():
    model = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.BatchNorm1d(4)).double()
    report = nk.recalibrate(model, [draw(6, 4) * 3 + 2], inplace=False)
    assert model[0].running_mean.eq(0).all()
    assert model.training
    assert [(change.site, change.was, change.became) for change in report] == [
        (site, "BatchNorm1d", "estimated anew") for site in ("0", "2")
    ]
    var = report.model[0].running_var
    assert report[0].difference == pytest.approx(max(1.0, float((var - 1).abs().max() / var.max())))
    assert nk.recalibrate(report.model, [draw(6, 4) * 3 + 2])[0].difference < 1e-12


CHANGES = {
    "recalibrate": lambda model, **options: nk.recalibrate(model, batches(5, 8), **options),
    "adapt": nk.adapt,
    "average": lambda model, **options: nk.average([model, model], batches(5, 8), **options),
    "average of states": lambda model, **options: nk.average([model, model], **options),
}


def convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4)).double()


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_was_changed_within_inference_mode_can_be_trained(name, inplace):
    model = convolution()
    with torch.inference_mode():
        changed = CHANGES[name](model, inplace=inplace).model
    changed.train()(draw(5, 4, 3)).square().sum().backward()
    assert changed[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_was_made_within_inference_mode_is_changed_there_as_outside_of_it(name, inplace):
    x, want = draw(5, 4, 3), CHANGES[name](convolution(), inplace=inplace).model.eval()
    with torch.inference_mode():
        close(CHANGES[name](convolution(), inplace=inplace).model.eval()(x), want(x))


def test_a_failed_pass_leaves_everything():
    model = nn.Sequential(nn.BatchNorm1d(4), nk.create("batchnorm", 4), nn.Dropout()).double()
    model[2].eval()
    model(draw(6, 4))
    before = copy.deepcopy(model.state_dict())
    for bad, why in (
        ([draw(6, 4), draw(6, 5)], "recalibrate: batch 1 of data: "),
        ([draw(6, 5)], "recalibrate: batch 0 of data: "),
        ([], "recalibrate: data holds no batch"),
        ([draw(6, 4), draw(6, 4) / 0], "recalibrate: what 0 takes of data has NaN or infinite statistics"),
    ):
        with pytest.raises(ValueError, match=why):
            recalibrate(model, bad)
        close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
        assert [m.training for m in model] == [True, True, False]
        assert model[0].momentum == 0.1


def test_a_pass_that_fails_leaves_what_other_layers_keep_as_it_was():
    """A spectral norm takes a step of its power iteration at each call in training."""
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.BatchNorm1d(4)).eval()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="batch 1 of data"):
        recalibrate(model, [draw(6, 4).float(), draw(6, 5).float()])
    close(dict(model.state_dict()), dict(before), rtol=0, atol=0)


class TwoDomains(nn.Module):
    """Two batch norms, each for the batches of one domain."""

    def __init__(self, make=lambda: nn.BatchNorm1d(4)):
        super().__init__()
        self.one, self.other = make(), make()

    def forward(self, x, domain=0):
        return self.other(x) if domain else self.one(x)


NORMS = [lambda: nn.BatchNorm1d(4), *(lambda name=name: nk.create(name, 4) for name in ("batchnorm", "powernorm"))]


def of_domains(*domains):
    return [{"x": draw(8, 4, seed=seed) * 3 + 2, "domain": domain} for seed, domain in enumerate(domains)]


@pytest.mark.parametrize("make", NORMS)
def test_a_layer_that_no_batch_reaches_keeps_its_statistics_and_is_reported_as_left(make):
    model = TwoDomains(make).double()
    model(**of_domains(1)[0])
    next(model.other.buffers())[0] = float("inf")
    before = copy.deepcopy(model.other.state_dict())
    report = recalibrate(model, of_domains(0, 0))
    assert [(change.site, change.became) for change in report] == [("one", "estimated anew"), ("other", None)]
    assert report[1].why_not == "no batch of data reaches it in train mode"
    close(dict(model.other.state_dict()), dict(before), rtol=0, atol=0)


@pytest.mark.parametrize("make", NORMS)
def test_a_layer_that_a_late_batch_is_the_first_to_reach_starts_afresh_as_well(make):
    late, alone = TwoDomains(make).double(), TwoDomains(make).double()
    for _ in range(3):
        late.other(draw(8, 4, seed=9) * 50)
    assert len(recalibrate(late, of_domains(0, 0, 1, 1)).done) == 2
    recalibrate(alone, of_domains(0, 0, 1, 1)[2:])
    close(estimates(late.other), estimates(alone.other))


def test_a_layer_that_the_model_holds_in_evaluation_keeps_its_statistics():
    class Held(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[0].eval()
            return self

    model = Held(nn.BatchNorm1d(4), nn.BatchNorm1d(4)).double()
    model[0].running_var.fill_(5)
    report = recalibrate(model, [draw(6, 4)])
    assert [change.became for change in report] == [None, "estimated anew"]
    assert model[0].running_var.eq(5).all()


def test_a_layer_that_keeps_no_statistics_is_reported_as_left():
    model = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False), nn.BatchNorm1d(4)).double()
    assert [change.why_not for change in recalibrate(model, [draw(6, 4)])] == ["it keeps no statistics", None]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x, 0), lambda x: [x], lambda x: {"input": x}])
def test_batches_come_as_loaders_give_them(wrap):
    model = nn.BatchNorm1d(4).double()
    recalibrate(model, [wrap(draw(6, 4))])
    close(model.running_mean, draw(6, 4).mean(0))


# selection


def pruned(keep, weights):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(weights * keep)
        model[2].weight.fill_(1.0)
        model[2].bias.zero_()
    return model


def test_selection_weighs_devices_and_uses_joined_statistics():
    weights = torch.eye(4, dtype=torch.float64)
    candidates = [pruned(torch.tensor(k, dtype=torch.float64), weights) for k in ([1, 0, 0, 0], [1, 1, 1, 1])]
    data = [draw(12, 4), draw(20, 4, seed=1) * 2 + 3]
    joined = torch.cat(data)
    targets = [((x - joined.mean(0)) / joined.std(0, correction=0)).sum(-1, keepdim=True) for x in data]
    devices = [[(data[0], targets[0])], [(data[1][:10], targets[1][:10]), (data[1][10:], targets[1][10:])]]

    def loss(model, batch):
        return (model(batch[0]) - batch[1]).square().mean()

    found = select(candidates, devices, loss)
    assert found.best == 1
    # by hand: statistics of each device averaged over its batches, joined by samples, then the loss over all samples
    for candidate, got in zip(candidates, found.losses, strict=True):
        hidden = [[candidate[0](x) for x, _ in device] for device in devices]
        mean = torch.stack([torch.stack([h.mean(0) for h in d]).mean(0) for d in hidden])
        var = torch.stack([torch.stack([h.var(0) for h in d]).mean(0) for d in hidden])
        mean, var = statistics.merge(mean, var, torch.tensor([12, 20]))
        close(candidate[1].running_mean, mean)
        close(candidate[1].running_var, var)
        y = torch.cat([(h - mean) / (var + 1e-5).sqrt() for d in hidden for h in d]).sum(-1, keepdim=True)
        close(torch.tensor(got, dtype=torch.float64), (y - torch.cat(targets)).square().mean().detach())
    assert not candidates[0].training


def test_selection_joins_a_layer_over_the_devices_that_reach_it_and_leaves_one_that_none_reaches():
    model = TwoDomains().double()
    model.other.running_mean.fill_(7)
    select([model], [of_domains(0), of_domains(1)], lambda model, batch: model(**batch).square().mean())
    for layer, batch in ((model.one, of_domains(0)[0]), (model.other, of_domains(1)[0])):
        close(layer.running_mean, batch["x"].mean(0))
        close(layer.running_var, batch["x"].var(0))
    model.other.running_mean.fill_(7)
    select([model], [of_domains(0)], lambda model, batch: model(**batch).square().mean())
    assert model.other.running_mean.eq(7).all()


def test_selection_needs_batches_on_every_device():
    with pytest.raises(ValueError, match="every device"):
        select([network()], [[draw(2, 3)], []], lambda model, batch: 0)


def selected(*losses):
    left = iter(losses)
    return select([nn.BatchNorm1d(4).double() for _ in losses], [[draw(4, 4)]], lambda model, batch: next(left))


def test_a_candidate_whose_loss_is_nan_is_not_the_best():
    nan, inf = float("nan"), float("inf")
    assert selected(nan, 2.0, inf, 1.0).best == 3
    with pytest.raises(ValueError, match=r"^select: loss must be finite for at least one candidate; it is .nan, inf."):
        selected(nan, inf)


def test_layers_are_found_in_a_model():
    assert list(batch_norms(nn.Sequential(nn.ReLU(), nn.BatchNorm1d(2)))) == ["1"]


def test_networks_whose_weights_have_a_history_are_averaged():
    models = [nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 2))) for _ in range(2)]
    for model in models:
        model(torch.ones(1, 3)).sum().backward()
    merged = nk.average(models).model
    torch.testing.assert_close(merged[0].weight_v, (models[0][0].weight_v + models[1][0].weight_v) / 2)
