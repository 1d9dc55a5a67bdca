"""REPAIR: the layer's variants, and the procedure on merged networks."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.activation.batch.repair import Repair
from normkit.surgery.statistics import federated
from normkit.surgery.statistics.repair import average, interpolate, measure


def close(got, want, **tolerance):
    torch.testing.assert_close(got, want, **tolerance)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("variant", ["repair", "rescale", "reshift"])
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 2)], ids=str)
def test_the_layer_follows_its_equations(variant, shape):
    module = Repair(3, variant=variant, eps=0.1).double()
    module.weight.data, module.bias.data = draw(3, seed=8), draw(3, seed=9)
    weight, bias = module.weight.detach(), module.bias.detach()
    found = []

    def formula(values, mean, var):
        return {
            "repair": weight * (values - mean) / (var + 0.1).sqrt() + bias,
            "rescale": weight * values / (var + 0.1).sqrt(),
            "reshift": values - mean + bias,
        }[variant]

    for seed in range(3):
        x = draw(*shape, seed=seed) * (1 + seed) + seed
        values = x.movedim(1, -1)
        flat = values.reshape(-1, 3)
        found.append((flat.mean(0), flat.var(0)))
        close(
            module(x).movedim(1, -1), formula(values, flat.mean(0), flat.var(0, correction=int(variant == "rescale")))
        )
    mean, var = (torch.stack(part).mean(0) for part in zip(*found, strict=True))
    if variant != "rescale":
        close(module.running_mean, mean)
    if variant != "reshift":
        close(module.running_var, var)
    close(module.eval()(x).movedim(1, -1), formula(values, mean, var))


def test_one_value_a_channel_is_refused():
    with pytest.raises(ValueError, match="one value a channel"):
        nk.create("repair", 3)(torch.randn(1, 3))


def networks(norm=nn.Identity):
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(
            nn.Sequential(
                nn.Conv2d(2, 5, 3, padding=1),
                norm(5) if norm is not nn.Identity else norm(),
                nn.ReLU(),
                nn.Conv2d(5, 4, 3),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(64, 3),
            ).double()
        )
    return models


def merged_of(models, data, **options):
    return average(models, data, **options).model


def batches():
    return [draw(n, 2, 6, 6, seed=n) + 0.5 for n in (16, 8, 12)]


def test_interpolation_averages_every_entry():
    a, b = networks(nn.BatchNorm2d)
    a(batches()[0]), b(batches()[1]), b(batches()[1])
    mid = interpolate([a, b], [0.25, 0.75])
    close(mid[0].weight, 0.25 * a[0].weight + 0.75 * b[0].weight)
    close(mid[1].running_var, 0.25 * a[1].running_var + 0.75 * b[1].running_var)
    assert mid[1].num_batches_tracked.dtype == torch.int64
    close(interpolate([a, b])[6].bias, (a[6].bias + b[6].bias) / 2)


@pytest.mark.parametrize("mean", [interpolate, lambda models: federated.average([m.state_dict() for m in models])])
@pytest.mark.parametrize("count", [3, 6, 7])
def test_an_average_keeps_tables_of_places_and_complex_numbers(mean, count):
    """Three thirds of 7 are a little less than 7."""
    model = nn.Linear(1, 1)
    model.register_buffer("places", torch.arange(200))
    model.spectrum = nn.Parameter(torch.tensor([1 + 2j]))
    merged = mean([model] * count)
    state = merged if isinstance(merged, dict) else merged.state_dict()
    assert torch.equal(state["places"], model.places)
    close(state["spectrum"], model.spectrum.detach())


def test_interpolation_adds_up_in_double():
    """In float32 the third network would be lost beside the first two, which cancel."""
    models = [nn.Linear(1, 1, bias=False) for _ in range(3)]
    for model, value in zip(models, (1e8, 1.0, -1e8), strict=True):
        nn.init.constant_(model.weight, value)
    close(interpolate(models, [1.0, 1.0, 1.0]).weight.item(), 1.0)


def test_measuring_averages_over_batches_and_changes_nothing():
    model = networks(nn.BatchNorm2d)[0]
    before = copy.deepcopy(model.state_dict())
    found = measure(model, ["0"], batches())
    outputs = [model[0](b).detach() for b in batches()]
    close(found["0"].mean, torch.stack([o.mean((0, 2, 3)) for o in outputs]).mean(0))
    close(found["0"].std, torch.stack([o.var((0, 2, 3)) for o in outputs]).mean(0).sqrt())
    close(dict(model.state_dict()), dict(before), rtol=0, atol=0)
    assert model.training


@pytest.mark.parametrize("variant", ["repair", "rescale", "reshift"])
def test_the_merged_network_meets_its_goals(variant):
    models, data = networks(), [torch.cat(batches())]
    parents = [measure(m, ["0"], data)["0"] for m in models]
    found = measure(merged_of(models, data, weights=[0.3, 0.7], layers=["0"], repair=variant, eps=0.0), ["0"], data)[
        "0"
    ]
    mean, std = (0.3 * p + 0.7 * q for p, q in zip(*parents, strict=True))
    if variant != "rescale":
        close(found.mean, mean)
    if variant != "reshift":
        close(found.std, std)


def test_the_repairing_layers_are_folded_away():
    merged = merged_of(networks(), batches())
    assert not any(isinstance(m, Repair) for m in merged.modules())
    assert not merged.training


def test_folding_changes_no_number():
    plain, folded = (merged_of(networks(nn.BatchNorm2d), batches(), folded=f) for f in (False, True))
    assert sum(isinstance(m, Repair) for m in plain.modules()) == 2
    x = draw(5, 2, 6, 6, seed=77)
    close(folded(x), plain(x))


def test_collapsed_variance_comes_back():
    """Between two unrelated networks the variance falls by half; repaired it does not."""
    models, data = networks(), batches()
    parents = [measure(m, ["0", "3"], data)["3"].std for m in models]
    goal = (parents[0] + parents[1]) / 2
    plain = measure(interpolate(models), ["3"], data)["3"].std
    repaired = measure(merged_of(models, data), ["3"], data)["3"].std
    assert (plain / goal).mean() < 0.75
    close(repaired, goal, rtol=0.02, atol=0)


def test_average_and_factor_change_the_goals():
    models, data = networks(), batches()
    parents = [measure(m, ["0"], data)["0"] for m in models]
    mean, std = ((p + q) / 2 for p, q in zip(*parents, strict=True))
    merged = merged_of(models, data, layers=["0"], uniform=True, factor=2.0, folded=False)
    close(merged[0][1].weight.data, (2 * std.mean()).expand(5))
    close(merged[0][1].bias.data, 2 * mean.sign() * mean.abs().mean())


def test_without_a_variant_only_the_networks_own_statistics_are_renewed():
    models, data = networks(nn.BatchNorm2d), batches()
    merged = merged_of(models, data, repair=None)
    outputs = [merged[0](b).detach() for b in data]
    close(merged[1].running_mean, torch.stack([o.mean((0, 2, 3)) for o in outputs]).mean(0))
    close(merged[0].weight, (models[0][0].weight + models[1][0].weight) / 2)


def test_linear_networks_name_their_layers():
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double() for _ in range(2)]
    data = [draw(20, 3)]
    with pytest.raises(ValueError, match="name the layers"):
        merged_of(models, data)
    with pytest.raises(ValueError, match="1, a ReLU"):
        merged_of(models, data, layers=["1"])
    with pytest.raises(ValueError, match=r"average: layers names 9, and the model has no such layer"):
        average(models, data, layers=["9"])
    with pytest.raises(ValueError, match="weights must give each of the 2"):
        merged_of(models, data, weights=[1.0], layers=["0"])
    merged = merged_of(models, data, layers=["0"])
    goal = sum(measure(m, ["0"], data)["0"].std for m in models) / 2
    close(measure(merged, ["0"], data)["0"].std, goal, rtol=0.05, atol=0)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("way", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm])
def test_convolutions_with_a_norm_of_their_weights_are_repaired_and_those_with_hooks_named(way):
    made = []
    for folded in (True, False):
        models = networks()
        for model in models:
            way(model[0])
            model[0](batches()[0])
        made.append(merged_of(models, batches(), folded=folded))
    assert type(made[0][0]) is nn.Conv2d
    x = draw(5, 2, 6, 6, seed=77)
    close(made[0](x), made[1](x))
    for model in models:
        model[0].register_forward_hook(lambda *_: None)
    left = average(models, batches())[-1]
    assert (left.site, left.became) == ("0", None)
    assert left.why_not.startswith("it has hooks")
    with pytest.raises(ValueError, match=r"average: layers names 0, a \w*Conv2d: it has hooks"):
        average(models, batches(), layers=["0"])
    for model in models:
        model[3].register_forward_hook(lambda *_: None)
    assert [change.became for change in average(models, batches())] == ["the average of 2", None, None]


def test_a_layer_that_is_compiled_on_its_own_is_repaired_as_it_would_be():
    x, data, made = draw(5, 2, 6, 6, seed=77), batches(), []
    for wrap in (lambda layer: layer, lambda layer: torch.compile(layer, backend="eager")):
        models = networks()
        for model in models:
            model[0] = wrap(model[0])
        made.append(average(models, data).model.eval()(x))
    close(made[1], made[0])


def test_the_report_tells_what_had_become_of_each_deviation():
    models, data = networks(), batches()
    before = [copy.deepcopy(model.state_dict()) for model in models]
    report = average(models, data)
    assert [(change.site, change.was) for change in report] == [("0", "Conv2d"), ("3", "Conv2d")]
    fallen = float(report[1].became.rpartition(" ")[2])
    goal = sum(measure(model, ["3"], data)["3"].std for model in models) / 2
    halfway = copy.deepcopy(report.model)
    halfway[3] = interpolate(models)[3]
    found = measure(halfway, ["3"], data)["3"].std
    assert fallen == pytest.approx(float((found / goal).median()), abs=0.02)
    for model, state in zip(models, before, strict=True):
        close(dict(model.state_dict()), dict(state), rtol=0, atol=0)


class Branches(nn.Module):
    """A convolution and a batch norm that each call reaches, and a branch that one reaches where it is told to."""

    def __init__(self, reaches=lambda model: False):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.deep, self.last = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.gate, self.reaches = nn.Parameter(torch.zeros(1)), reaches

    def forward(self, x):
        y = self.norm(self.conv(x))
        return self.last(self.deep(y)) if self.reaches(self) else y


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("reaches", [lambda model: False, lambda model: model.gate.abs() > 1])
def test_layers_that_no_batch_reaches_are_averaged_alone_and_reported_as_left(reaches, folded, inplace):
    """The second time the branch is for large gates, which the parents have and their average has not."""
    models = [Branches(reaches).double() for _ in range(2)]
    for model, shift in zip(models, (5.0, -5.0), strict=True):
        nn.init.constant_(model.deep.bias, shift)
        nn.init.constant_(model.gate, shift)
        model.last.running_mean.fill_(7)
    want = (models[0].deep.weight + models[1].deep.weight).detach() / 2
    report = average(models, batches(), folded=folded, inplace=inplace)
    why = "no batch of data reaches it in train mode"
    assert [(change.site, change.why_not) for change in report] == [("conv", None), ("deep", why), ("last", why)]
    close(report.model.deep.weight.detach(), want)
    close(report.model.deep.bias.detach(), torch.zeros(4, dtype=torch.float64))
    assert report.model.last.running_mean.eq(7).all()


def test_the_first_network_takes_the_average_where_that_is_asked_for():
    models, data = networks(nn.BatchNorm2d), batches()
    x = draw(5, 2, 6, 6, seed=77)
    wanted = merged_of(models, data)(x)
    assert merged_of(models, data, inplace=True) is models[0]
    close(models[0](x), wanted)
    with pytest.raises(ValueError, match="repair must be one of"):
        average(models, data, repair="rescaled")


def test_data_that_can_be_gone_over_once_alone_are_refused():
    models = [nn.Linear(2, 2), nn.Linear(2, 2)]
    with pytest.raises(TypeError, match="average: data must be a list or a loader, which can be gone over again"):
        average(models, iter([torch.randn(3, 2)]))


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("tokens", [8, 5])
def test_a_linear_of_tokens_is_repaired_by_features_as_one_of_rows(tokens, folded):
    """With as many tokens as features the axes could be taken for each other without an error."""
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).double() for _ in range(2)]
    data = [draw(16, tokens, 8, seed=seed) for seed in range(3)]
    rows = [batch.flatten(0, 1) for batch in data]
    x, options = draw(4, tokens, 8, seed=9), {"layers": ["0", "2"], "folded": folded}
    of_tokens = average(models, data, **options)
    close(of_tokens.model(x), merged_of(models, rows, **options)(x.flatten(0, 1)).view_as(x))
    std = measure(of_tokens.model, ["0"], data)["0"].std if folded else of_tokens.model[0](torch.cat(rows)).std(0)
    close(std, sum(measure(model, ["0"], rows)["0"].std for model in models) / 2, rtol=0.01, atol=0)


class Twice(nn.Module):
    """One convolution under two names, which is called by both."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 2, 3, padding=1)
        self.second = self.first

    def forward(self, x):
        return self.second(self.first(x).relu())


@pytest.mark.parametrize("layers", [None, ["second"], ["first", "second"]])
def test_a_convolution_of_two_names_is_repaired_under_both_by_all_its_calls(layers):
    torch.manual_seed(0)
    models, data = [Twice().double() for _ in range(2)], batches()
    outputs = [(models[0].first(b), models[0].second(models[0].first(b).relu())) for b in data]
    want = torch.stack([y.mean((0, 2, 3)) for pair in outputs for y in pair]).mean(0)
    close(measure(models[0], ["first"], data)["first"].mean, want.detach())
    x, site = draw(5, 2, 6, 6, seed=77), "second" if layers == ["second"] else "first"
    report = average(models, data, layers=layers)
    assert [change.site for change in report] == [site]
    assert report.model.first is report.model.second
    for options in ({"folded": False}, {"folded": False, "inplace": True}):
        again = merged_of(copy.deepcopy(models), data, layers=layers, **options)
        assert again.first is again.second
        close(again(x), report.model(x))
    close(merged_of(models, data, layers=layers, inplace=True)(x), report.model(x))


def test_a_sample_without_a_batch_is_refused_by_its_number():
    models = [nn.Sequential(nn.Linear(8, 8)) for _ in range(2)]
    with pytest.raises(ValueError, match=r"^average: batch 1 of data: "):
        average(models, [torch.randn(4, 8), torch.randn(8)], layers=["0"])


def test_errors_name_what_was_called_and_its_argument():
    models = [nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))]
    for wrong, why in (
        ({"eps": -1}, r"average: eps must lie in \[0"),
        ({"factor": float("nan")}, "average: factor must lie in"),
        ({"data": []}, "average: data holds no batch"),
        ({"data": [torch.randn(3, 5)]}, "average: batch 0 of data: "),
    ):
        with pytest.raises(ValueError, match=f"^{why}"):
            average(models, **{"data": [torch.randn(3, 2)], "layers": ["0"], **wrong})


def test_without_data_the_states_alone_are_averaged():
    models = networks(nn.BatchNorm2d)
    report = average(models, weights=[0.25, 0.75])
    close(report.model[0].weight, 0.25 * models[0][0].weight + 0.75 * models[1][0].weight)
    assert [change.became for change in report] == ["the average of 2"]
    close(average(models, weights=[1, 3]).model[0].weight, report.model[0].weight)
    with pytest.raises(ValueError, match="average: models must hold at least one network"):
        nk.average([])
    with pytest.raises(ValueError, match="weights must have a sum above 0, which shares are taken of; it is 0"):
        average(models, weights=[1, -1])
