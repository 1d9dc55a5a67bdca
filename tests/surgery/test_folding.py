"""`nk.fold`: norms go into the layers beside them where the graph says so; outputs stay; what stays is told."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import normkit as nk
from normkit.optional import library
from normkit.surgery.exact import folding
from sizes import calls


def settled(model, seed=0):
    """A model in evaluation, in float64, whose norms are not at rest, with gains of both signs."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("running_var", "running_phi")):
                tensor.copy_(torch.rand(tensor.shape, generator=g) + 0.3)
            elif tensor.is_floating_point() and tensor.dim() == 1:
                tensor.copy_(torch.randn(tensor.shape, generator=g))
    return model.double().eval()


def image(*shape):
    return torch.randn(shape or (2, 3, 6, 6), dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def digest(model):
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return [(name, t.clone()) for name, t in tensors], [type(part) for part in model.modules()]


def unchanged(model, before):
    (tensors, kinds), (old, old_kinds) = digest(model), before
    equal = all(n == m and torch.equal(t, o) for (n, t), (m, o) in zip(tensors, old, strict=True))
    return equal and kinds == old_kinds


def folded(model, x, **options):
    wanted = model(x)
    report = nk.fold(model, x, **options)
    torch.testing.assert_close(report.model(x), wanted, rtol=1e-9, atol=1e-9)
    return {change.site: change.became or change.why_not for change in report}


class Net(nn.Module):
    """Norms after and before layers, two in a row, behind a sum, on a shared layer and on a layer with two readers."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.second_norm = nn.BatchNorm2d(4)
        self.first, self.first_norm = nn.Conv2d(4, 4, 3, padding=1), nk.create("batchnorm", 4)
        self.sum_norm, self.reader = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.shared, self.shared_norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.seen, self.seen_norm = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.head, self.head_norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        x = self.relu(self.second_norm(self.stem_norm(self.stem(x))))
        x = x + self.first_norm(self.first(x))
        x = self.reader(self.sum_norm(x))
        x = self.shared(self.shared_norm(self.shared(x)).relu())
        seen = self.seen(x)
        x = self.seen_norm(seen) * seen
        return self.head_norm(self.head(x.mean((2, 3))))


@pytest.mark.parametrize("by", ["export", "fx"])
def test_a_model_is_folded_where_that_is_exact_and_says_where_not(by, monkeypatch):
    if by == "fx":
        monkeypatch.setattr(torch.export, "export", lambda *_, **__: 1 / 0)
    model = settled(Net())
    told = folded(model, image())
    assert told.pop("shared_norm").startswith("shared is called 2 times")
    assert told.pop("seen_norm").startswith("seen, which it reads, is read elsewhere too")
    assert told == {
        "stem_norm": "into stem",
        "second_norm": "into stem",
        "first_norm": "into first",
        "sum_norm": "into reader",
        "head_norm": "into head",
    }
    assert sum(isinstance(part, nn.BatchNorm2d) for part in model.modules()) == 2


class Read(nn.Module):
    """A norm that several layers read, each in its way."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.conv, self.wide = nn.Conv2d(3, 5, 3, groups=1, bias=False), nn.Linear(3 * 6 * 6, 4)
        self.mean, self.last = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x):
        x = self.norm(x)
        wide, mean, last = self.wide(x.flatten(1)), self.mean(x.mean((2, 3))), self.last(x.permute(0, 2, 3, 1))
        return self.conv(x).sum((1, 2, 3))[:, None] + wide + mean + last.sum((1, 2))


def test_a_norm_goes_into_all_who_read_it_through_what_only_moves_numbers():
    assert folded(settled(Read()), image()) == {"norm": "into wide, mean, last, conv"}


def test_one_reader_of_another_kind_keeps_it():
    class Also(Read):
        def forward(self, x):
            return super().forward(x) + self.norm(x).sum((1, 2, 3))[:, None]

    model = settled(Also())
    assert folded(model, image()) == {"norm": "norm is called 2 times"}
    assert isinstance(model.norm, nn.BatchNorm2d)


def test_channels_that_are_mixed_or_others_than_the_layers_keep_it():
    behind_a_sequence = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    assert "not those of 0" in folded(settled(behind_a_sequence), image(2, 5, 3))["1"]
    mixed = nn.Sequential(nn.BatchNorm2d(4), nn.Flatten(2), nn.Linear(36, 2))
    assert "mixed" in folded(settled(mixed), image(2, 4, 6, 6))["0"]
    split = nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (4, 2)), nn.BatchNorm1d(4))
    assert folded(settled(split), image(5, 3)) == {"2": "into 0"}


class Gemma(nn.Module):
    """A norm as Gemma writes it, whose cast of float32 to float32 is what the residual sum then reads."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (y * (1.0 + self.weight.float())).type_as(x)


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(5, 6), Gemma(), nn.Linear(6, 6)

    def forward(self, x):
        x = self.up(x)
        return x + self.down(self.norm(x))


def test_a_cast_that_does_nothing_is_no_second_reader():
    model, x = settled(Casts()).float(), image(3, 5).float()
    wanted = model(x)
    assert [change.became for change in nk.fold(model, x)] == ["without gain and shift, which are in down"]
    torch.testing.assert_close(model(x), wanted)


def test_a_frozen_norm_is_gone():
    model = settled(nn.Sequential(nn.Conv2d(3, 4, 3), nk.create("frozen-batchnorm", 4)))
    with torch.no_grad():
        model[1].running_mean.copy_(torch.arange(4))
    assert folded(model, image()) == {"1": "into 0"}


GAIN = "without gain and shift, which are in 2"


@pytest.mark.parametrize(
    ("name", "options", "became"),
    [
        ("unifiednorm", {}, "into 0"),
        ("powernorm", {"group_num": 2}, GAIN),
        ("alpha-batchnorm", {"target_weight": 0.0}, "into 0"),
        ("alpha-batchnorm", {"target_weight": 0.3}, GAIN),
    ],
)
def test_norms_that_keep_running_estimates_go_as_far_as_they_are_linear(name, options, became):
    norm = nk.create(name, 6, **options)
    model = nn.Sequential(nn.Linear(5, 6, bias=False), norm, nn.Linear(6, 4)).double()
    x = torch.randn(7, 3, 5, dtype=torch.float64) if name != "alpha-batchnorm" else image(7, 5)
    for seed in range(2):
        model(x * (seed + 1) + seed)
    assert folded(settled(model), x) == {"1": became}
    assert isinstance(model[1], nn.Identity) == (became != GAIN)


def test_a_norm_of_a_potential_is_in_the_thresholds_of_its_neuron():
    model = nn.Sequential(nn.Linear(5, 6), nk.create("membrane-batchnorm", 6, steps=4, decay=0.5), nn.Linear(6, 2))
    x = image(4, 9, 5)
    model.double()(x)
    settled(model)
    with torch.no_grad():
        model[1].weight[:3].abs_().neg_()
        model[1].weight[3:].abs_()
        model[1].weight[5] = 0
    spikes = model[:2](x)
    assert 0.1 < spikes.mean() < 0.9
    assert folded(model, x) == {"1": "in its thresholds"}
    assert torch.equal(model[:2](x), spikes)
    assert not any("Norm" in type(part).__name__ for part in model.modules())
    assert model[1].threshold.shape == (6,)


class Doubled(nn.Linear):
    """A weight that is computed at every call; what may be in the way."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight * 2, self.bias)


class Dependent(Doubled):
    def forward(self, x):
        return nn.functional.linear(x, self.weight * x.mean(), self.bias)


class Behind(Doubled):
    def forward(self, x):
        return super().forward(x).relu()


def test_weights_that_are_computed_at_every_call_become_plain():
    timm = library("timm").layers
    model = nn.Sequential(
        timm.StdConv2d(3, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        timm.ScaledStdConv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.Flatten(), Doubled(54, 5),
    )  # fmt: skip
    told = folded(settled(model), image())
    assert told == {**dict.fromkeys("036", "a plain weight"), "1": "into 0", "4": "into 3"}
    assert [type(part) for part in model if isinstance(part, nn.Conv2d)] == [nn.Conv2d] * 2


@pytest.mark.parametrize("kind", [Dependent, Behind])
def test_layers_that_do_more_than_compute_a_weight_stay(kind):
    model = settled(nn.Sequential(kind(5, 6), nn.BatchNorm1d(6)))
    assert "0" not in folded(model, image(4, 5))
    assert type(model[0]) is kind


class Gains(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.embed, self.norm = nn.Embedding(9, 6), nn.LayerNorm(6)
        self.one, self.two = nn.Linear(6, 4, bias=False), nn.Linear(6, 4)
        self.last, self.head = nk.RMSNorm(4, offset=1.0), nn.Linear(4, 9)
        if tied:
            self.one.weight = self.two.weight

    def forward(self, x):
        x = self.norm(self.embed(x))
        return self.head(self.last(self.one(x).sigmoid() * self.two(x)))


def test_gain_and_shift_of_a_norm_go_into_all_its_readers():
    model, x = settled(Gains()), torch.arange(9).view(3, 3)
    told = folded(model, x)
    assert told == {
        "norm": "without gain and shift, which are in one, two",
        "last": "without gain and shift, which are in head",
    }
    assert model.norm.weight.tolist() == [1.0] * 6
    assert not model.norm.bias.any()
    assert not model.last.weight.any()
    assert model.one.bias is not None
    assert not nk.fold(model, x).done


class Clip(nn.LayerNorm):
    """CLIP's norm, which computes in float32 whatever the model's type."""

    def forward(self, x):
        return super().forward(x.type(torch.float32)).type(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gain_and_shift_of_a_norm_that_knows_no_float64_are_folded(dtype):
    model = settled(nn.Sequential(nn.Linear(5, 6), Clip(6), nn.Linear(6, 4))).to(dtype)
    model[1].float()
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    wanted = model(x)
    assert nk.fold(model, x)[0].became == "without gain and shift, which are in 2"
    assert model[1].weight.tolist() == [1.0] * 6
    assert (model(x) - wanted).norm() < 2 * torch.finfo(dtype).eps * wanted.norm()


class Kept(nn.Module):
    """A model that drops half of its rows, as SmolVLM drops images that are padding."""

    def __init__(self, rows):
        super().__init__()
        self.first, self.norm, self.head = nn.Linear(3, 6), nn.LayerNorm(6), nn.Linear(rows[1], 4)
        self.batch, self.rows = nn.BatchNorm1d(6), rows

    def forward(self, x):
        x = self.batch(self.first(x))
        return self.head(self.norm(x[x[:, 0] > x[:, 0].median()]).reshape(self.rows))


def test_norms_of_a_model_whose_shapes_depend_on_the_data_are_folded_where_that_can_be_followed():
    x = image(10, 3)
    assert folded(settled(Kept((-1, 6))), x) == {
        "batch": "into first",
        "norm": "without gain and shift, which are in head",
    }
    told = folded(settled(Kept((-1, 5 * 6))), x)
    assert told["batch"] == "into first"
    assert told["norm"].startswith("RuntimeError: shape")


def test_a_tied_reader_keeps_them():
    model = settled(Gains(tied=True))
    told = folded(model, torch.arange(9).view(3, 3))
    assert "is tied to" in told["norm"] or "read elsewhere" in told["norm"]
    assert told["last"].startswith("without")


def test_reparametrized_weights_become_plain_and_then_take_the_norm():
    model = nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4))
    told = folded(settled(model), image())
    assert told == {"0": "a plain weight", "1": "into 0"}
    assert type(model[0]) is nn.Conv2d


def test_a_reparametrized_transposed_convolution_keeps_the_padding_of_its_output():
    layer = nn.ConvTranspose1d(3, 2, 4, stride=3, padding=1, output_padding=1)
    model = settled(nn.Sequential(parametrizations.weight_norm(layer), nn.Tanh()))
    assert folded(model, torch.randn(2, 3, 5, dtype=torch.float64)) == {"0": "a plain weight"}
    assert model[0].output_padding == (1,)


def test_an_activation_behind_a_norm_stays_and_a_copy_is_changed_where_asked_for():
    timm = library("timm")
    model = settled(nn.Sequential(nn.Conv2d(3, 4, 3), timm.layers.BatchNormAct2d(4), nn.Conv2d(4, 2, 1)))
    x = image()
    report = nk.fold(model, x, inplace=False)
    assert [change.became for change in report] == ["into 0"]
    assert isinstance(model[1], timm.layers.BatchNormAct2d)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in report.model.modules())
    torch.testing.assert_close(report.model(x), model(x), rtol=1e-9, atol=1e-9)


def test_only_the_sites_asked_for_are_folded():
    model = settled(Net())
    assert set(folded(model, image(), where="head_*")) == {"head_norm"}
    assert isinstance(model.stem_norm, nn.BatchNorm2d)


class Looks(nn.Sequential):
    """What it gives depends on whether its layer has a bias."""

    def forward(self, x):
        return super().forward(x) * (1 if self[0].bias is None else 2)


class Branches(nn.Sequential):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def conv(kind=nn.Sequential):
    return settled(kind(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)))


@pytest.mark.parametrize(
    ("model", "x", "said"),
    [
        (conv(Looks), image(), "refused, and the model is as it was: once changed, results differ by"),
        (conv(Branches), image(), "cannot be traced with this example: torch.export"),
        (conv(), image(2, 5, 6, 6), "does not take the example: RuntimeError"),
        (conv(), image()[:0], "fold: the example is empty; hand in one with samples"),
        (conv().train(), image(), "train mode"),
    ],
)
def test_what_is_refused_leaves_the_model_as_it_was(model, x, said):
    before, state = digest(model), torch.random.get_rng_state()
    with pytest.raises(ValueError, match=said):
        nk.fold(model, x)
    assert unchanged(model, before)
    assert torch.equal(state, torch.random.get_rng_state())


def test_meta_and_hooked_and_half_models():
    with pytest.raises(ValueError, match="holds no numbers"):
        nk.fold(conv().to("meta"), image())
    hooked = conv()
    hooked[1].register_forward_hook(lambda *_: None)
    assert "it has hooks" in folded(hooked, image())["1"]
    read = conv()
    read[0].register_forward_hook(lambda *_: None)
    assert folded(read, image())["1"].startswith("0 has hooks, which may change what it computes: ")
    half = conv().bfloat16()
    wanted = copy.deepcopy(half).double()(image())
    assert nk.fold(half, image().bfloat16()).done
    torch.testing.assert_close(half(image().bfloat16()).double(), wanted, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("inplace", [True, False])
def test_a_norm_and_a_layer_that_are_compiled_on_their_own_are_called_as_folded(inplace):
    parts = (nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.Linear(4, 2))
    model = settled(nn.Sequential(*(torch.compile(part, backend="eager") for part in parts)))
    x = image(3, 4)
    made = {"1._orig_mod": "into 0._orig_mod", "2._orig_mod": "without gain and shift, which are in 3._orig_mod"}
    wanted, report = model(x), nk.fold(model, x, inplace=inplace)
    model = report.model
    assert {change.site: change.became for change in report} == made
    torch.testing.assert_close(model(x), wanted)
    model(x).sum().backward()
    assert all(model[at]._orig_mod.weight.grad is not None for at in (0, 3))


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_weight_norms_before_parametrizations_become_plain_weights():
    torch.manual_seed(0)
    layer = torch.nn.utils.weight_norm(nn.Linear(6, 5), dim=0)
    with torch.no_grad():
        layer.weight_g.mul_(1.7)
    model, x = nn.Sequential(layer, nn.BatchNorm1d(5)).double(), torch.randn(4, 6, dtype=torch.float64)
    model(x * 3 + 1)
    wanted = model.eval()(x)
    report = nk.fold(model, x)
    assert [(change.site, change.was) for change in report] == [("0", "WeightNorm"), ("1", "BatchNorm1d")]
    assert sorted(name for name, _ in model.named_parameters()) == ["0.bias", "0.weight"]
    assert not model[0]._forward_pre_hooks
    torch.testing.assert_close(model(x), wanted)


class Beside(nn.Module):
    """A norm and a layer that read the same, whose results are summed; ``sums`` says how."""

    def __init__(self, sums, layer, norm=nn.BatchNorm2d):
        super().__init__()
        self.layer, self.layer_norm, self.norm, self.sums = layer, norm(4), norm(4), sums

    def forward(self, x):
        x = x.relu()
        return self.sums(self.layer_norm(self.layer(x)), self.norm(x), x)


def plus(y, z, x):
    return y + z


def in_turns(y, z, x):
    z = 0 + z
    y = x.sin() - (y + x)
    z += y
    return z


def same(**options):
    return nn.Conv2d(4, 4, 3, **{"padding": 1, "bias": False} | options)


@pytest.mark.parametrize("by", ["export", "fx"])
@pytest.mark.parametrize(
    ("sums", "layer"),
    [
        (plus, same()),
        (plus, same(groups=2, bias=True)),
        (plus, same(groups=4, dilation=2, padding="same", padding_mode="reflect")),
        (plus, nn.Conv2d(4, 4, (1, 5), padding=(0, 2))),
        (lambda y, z, x: y - z, same()),
        (lambda y, z, x: z - y, same()),
        (lambda y, z, x: x + (z - (x - y)), same()),
        (in_turns, same()),
    ],
)
def test_a_norm_goes_into_a_layer_to_which_it_is_added(by, sums, layer, monkeypatch):
    if by == "fx":
        monkeypatch.setattr(torch.export, "export", lambda *_, **__: 1 / 0)
    model = settled(Beside(sums, layer))
    told = folded(model, image(2, 4, 6, 6))
    assert told == {"layer_norm": "into layer", "norm": "into layer, to which it was added"}
    assert not any(isinstance(part, nn.BatchNorm2d) for part in model.modules())
    assert model.layer.weight.requires_grad


def test_a_norm_of_vectors_goes_into_a_linear_to_which_it_is_added():
    model = settled(Beside(plus, nn.Linear(4, 4), nn.BatchNorm1d))
    assert folded(model, image(5, 4))["norm"] == "into layer, to which it was added"


def seen(y, z, x):
    y = y + x
    return (y + z) * y


@pytest.mark.parametrize(
    ("sums", "layer"),
    [
        (plus, same(padding=0)),
        (plus, nn.Conv2d(4, 4, 1, stride=3)),
        (plus, nn.Conv2d(4, 4, 2, padding="same")),
        (plus, same(padding=(1, 0))),
        (plus, nn.ConvTranspose2d(4, 4, 3, padding=1)),
        (seen, same()),
        (lambda y, z, x: (y + z) * y, same()),
        (lambda y, z, x: y + z * x, same()),
        (lambda y, z, x: y + (z + z), same()),
        (lambda y, z, x: (y + z) * z, same()),
        (lambda y, z, x: torch.add(y, z, alpha=2), same()),
        (lambda y, z, x: x + z, same()),
    ],
)
def test_a_norm_beside_a_layer_that_cannot_take_it_stays(sums, layer):
    model = settled(Beside(sums, layer))
    assert folded(model, image(2, 4, 3, 3))["norm"].startswith("it reads the result of relu")
    assert isinstance(model.norm, nn.BatchNorm2d)


def test_only_a_layer_as_wide_behind_as_before_takes_the_norm_beside_it():
    class Narrow(Beside):
        def forward(self, x):
            x = x.relu()
            return self.layer(x) + self.norm(x)

    assert "relu" in folded(settled(Narrow(plus, nn.Conv2d(4, 1, 1))), image(2, 4, 6, 6))["norm"]


class Pooled(nn.Module):
    """A norm that is read through a pool by another one, and both then by layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.query, self.key, self.pool = nn.Conv1d(4, 4, 1), nn.Conv1d(4, 4, 1), nn.AvgPool1d(2)

    def forward(self, x):
        x = self.first(x.relu())
        return self.query(x).sum(-1, True) * self.key(self.second(self.pool(x)))


def test_a_norm_whose_reader_is_a_norm_goes_when_that_is_gone():
    told = folded(settled(Pooled()), image(2, 4, 6))
    assert told == {"first": "into query, key", "second": "into key"}


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x):
        return 0 + self.norm(x)


def test_a_norm_inside_of_one_that_is_gone_is_reported_as_gone_with_it():
    told = folded(settled(nn.Sequential(nn.Conv2d(3, 4, 3), Inner())), image())
    assert told == {"1": "into 0", "1.norm": "with 1"}


class AddedOnce(nn.Module):
    """A norm that is added to a layer, once or to what is added to itself."""

    def __init__(self, twice):
        super().__init__()
        self.layer, self.norm, self.twice = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), twice

    def forward(self, x):
        y = self.layer(x)
        return (y + y if self.twice else y) + self.norm(x)


@pytest.mark.parametrize("twice", [False, True])
def test_a_norm_beside_a_layer_is_folded_once_and_a_second_fold_changes_nothing(twice):
    model, x = settled(AddedOnce(twice)), torch.randn(2, 4, 5, 5, dtype=torch.float64)
    wanted = model(x)
    for done in (0 if twice else 1, 0):
        report = nk.fold(model, x)
        assert len(report.done) == done
        model = report.model
        assert not any(part.training for part in model.modules())
        torch.testing.assert_close(model(x), wanted)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("behind", [True, False])
def test_a_layer_that_takes_a_norm_keeps_which_of_its_parameters_are_trained(frozen, behind):
    norm = nn.LayerNorm(4) if behind else nn.BatchNorm1d(4)
    model = settled(nn.Sequential(norm, nn.Linear(4, 4)) if behind else nn.Sequential(nn.Linear(4, 4), norm))
    layer = "1" if behind else "0"
    model.get_submodule(layer).get_parameter(frozen).requires_grad_(False)
    folded(model, image(5, 4))
    trained = {name: p.requires_grad for name, p in model.get_submodule(layer).named_parameters()}
    assert trained == {name: name != frozen for name in ("weight", "bias")}


def test_a_model_is_folded_within_inference_mode_as_outside_of_it():
    model = settled(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    with torch.inference_mode():
        x = image(5, 4)
        wanted = model(x)
        assert folded(model, x) == {"1": "into 0"}
        torch.testing.assert_close(model(x), wanted, rtol=1e-12, atol=1e-12)
    model(image(5, 4)).sum().backward()
    assert model[0].weight.grad is not None


class Apart(nn.Module):
    """Two layers with a norm behind each; the second's weight is also one's at rest, or read by the model itself."""

    def __init__(self, tied):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.one_norm, self.two_norm = nn.BatchNorm1d(6), nn.BatchNorm1d(6)
        self.tied = tied
        if tied:
            self.three.weight = self.two.weight

    def forward(self, x):
        x = self.two_norm(self.two(self.one_norm(self.one(x))))
        return x if self.tied else x + self.two.weight.sum()


@pytest.mark.parametrize("tied, why", [(True, "two.weight is tied to three.weight"), (False, "two.weight is read")])
def test_only_the_layer_whose_numbers_are_in_use_elsewhere_is_left(tied, why):
    model, x = Apart(tied), torch.randn(9, 6)
    model(x)
    model.eval()
    want = model(x)
    one, two = nk.fold(model, x)
    assert (one.became, two.became) == ("into one", None)
    assert why in two.why_not
    torch.testing.assert_close(model(x), want)


@pytest.mark.parametrize("first", [False, True])
def test_gains_of_heads_stay(first):
    norm, x = nk.RMSNorm(4, heads=2, heads_first=first), torch.randn(3, 2, 5, 4)
    nn.init.normal_(norm.weight)
    model = nn.Sequential(norm, nn.Linear(4, 3)).eval()
    assert folded(model, x if first else x.transpose(1, 2)) == {"0": "its heads have gains of their own"}


def test_twice_the_batch_norms_take_twice_the_looks():
    few, many = (nn.Sequential(*(nn.BatchNorm1d(2) for _ in range(count))).eval() for count in (80, 160))
    folding._sites(few, torch.ones(3, 2), None)  # what is loaded at the first call
    assert calls(folding._sites, many, torch.ones(3, 2), None) < 2.1 * calls(
        folding._sites, few, torch.ones(3, 2), None
    )


def test_a_norm_inside_of_a_folded_one_is_gone_with_it():
    one = torch.ones(2)
    sites = {
        name: folding.Foldable(name, "a norm", 1, one, one, nn.Identity(), name == "1", "")
        for name in ("0", "0.norm", "1", "1.norm", "01.norm")
    }
    changes = {name: folding.Change(name, "a norm", "gone") for name in sites}
    assert {name: row.became for name, row in folding._inside(sites, changes).items()} == {"0.norm": "with 0"}
