"""Norms that are found by what they compute are replaced: by another method, or by the same one on the kernels."""

import copy
import functools
import types

import pytest
import torch
from near_misses import Layer, Rms
from norms_in_other_words import ByNormalize
from torch import nn
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit import catalog
from normkit.optional import library
from normkit.surgery import saving
from normkit.surgery.edits import Edit
from normkit.surgery.exact import fusing
from normkit.surgery.exact.racing import Outcome
from normkit.surgery.recognition import candidates
from normkit.surgery.recognition.recognize import sized_table
from normkit.surgery.replacement import matching, swapping
from threads import each_rank


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(6, 12)
        self.one, self.two = Rms(), Layer()
        self.again = self.one
        self.down = nn.Linear(12, 3)

    def forward(self, x):
        return self.down(self.again(self.two(self.one(self.up(x)))))


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return net


def digest(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_swap_takes_gain_and_shift_over_and_keeps_shared_modules_shared(net):
    gain, shift = net.two.weight.clone(), net.two.bias.clone()
    report = nk.swap(net, {"layernorm": "rmsnorm:bias=True", "rmsnorm": "layernorm"})
    assert isinstance(net.two, nk.RMSNorm)
    assert torch.equal(net.two.weight, gain)
    assert torch.equal(net.two.bias, shift)
    assert isinstance(net.one, nk.LayerNorm)
    assert net.one is net.again
    assert [change.site for change in report.done] == ["one", "two"]
    assert report[1].carried == ("weight", "bias")
    assert "2 of 2 sites changed" in str(report)


@pytest.mark.parametrize("match", [False, True])
def test_a_frozen_norm_stays_frozen_and_a_gain_goes_on_as_the_same_parameter(net, match):
    net.requires_grad_(False)
    net.two.weight.requires_grad_(True)
    gain, shift, frozen = net.two.weight, net.two.bias, net.one.weight
    nk.swap(net, {"layernorm": "dyt", "rmsnorm": "dyt"}, example=torch.randn(9, 6), match=match)
    assert net.two.weight is gain
    assert net.two.bias is shift
    assert net.one.weight is frozen
    assert [name for name, p in net.named_parameters() if p.requires_grad] == ["two.weight", "two.alpha"]


def test_a_gain_of_another_shape_stays_frozen():
    class Column(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(8, 1, 1), requires_grad=False)

        def forward(self, x):
            return nn.functional.group_norm(x, 2) * self.weight

    model = nn.Sequential(nn.Conv2d(3, 8, 1), Column())
    nk.swap(model, "groupnorm:num_groups=4,bias=False")
    assert model[1].weight.shape == (8,)
    assert not model[1].weight.requires_grad


def test_two_norms_with_one_gain_have_one_gain_afterwards():
    model = nn.Sequential(nn.RMSNorm(4), nn.Linear(4, 4), nn.RMSNorm(4))
    model[2].weight = model[0].weight
    with pytest.raises(ValueError, match=r"swap: 0 shares a parameter with another module, and match=True would"):
        nk.swap(model, "layernorm:bias=False", example=torch.randn(3, 4), match=True)
    assert type(model[0]) is nn.RMSNorm
    nk.swap(model, "layernorm:bias=False")
    assert model[2].weight is model[0].weight


def test_a_gain_that_is_counted_from_another_number_is_the_same_gain(net):
    gain = net.two.weight.detach().clone()
    report = nk.swap(net, {"layernorm": "rmsnorm:offset=1"})
    torch.testing.assert_close(net.two.weight + 1, gain)
    assert report[0].carried == ("weight",)


def test_what_a_trained_norm_has_learned_and_the_new_one_has_no_place_for_is_named(net):
    net.one = nk.RMSNorm(12, gain_first=True)
    report = nk.swap(net, {"rmsnorm": "layernorm", "layernorm": "scalenorm"})
    assert report[0].became.endswith("without the old weight")
    assert report[1].became.endswith("without the old weight and bias")
    assert "without the old weight and bias" in str(report)
    assert torch.equal(net.one.weight, torch.ones(12))


OFFSET = nk.RMSNorm(6, offset=1.0, cast="early", bias=True)


@pytest.mark.parametrize(
    ("old", "new", "shape"),
    [
        (OFFSET, "rmsnorm", (5, 6)),
        (OFFSET, "rmsnorm:offset=0", (5, 6)),
        (nk.RMSNorm(6, gain_first=True, eps_inside=False), "LlamaRMSNorm", (5, 6)),
        (nk.LayerNorm(6, offset=1.0, unbiased=True), nn.LayerNorm, (5, 6)),
        (nn.GroupNorm(3, 6), "groupnorm", (2, 6, 4)),
        (nk.DyT(6, alpha=0.8, channels_last=False), "dyt", (2, 6, 3, 3)),
        (nk.GRN(6, channels_last=True), "grn", (2, 3, 3, 6)),
        (nn.InstanceNorm2d(6, affine=True, track_running_stats=True), "instancenorm", (2, 6, 3, 3)),
    ],
    ids=lambda part: part if isinstance(part, str) else None,
)
def test_the_same_method_gives_the_same_numbers(old, new, shape):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Identity(), copy.deepcopy(old)).eval(), torch.randn(shape)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = 0.5 + torch.rand_like(tensor) if tensor.is_floating_point() else tensor.data
    half, wanted = copy.deepcopy(model).bfloat16()(x.bfloat16()), model(x)
    nk.swap(model, new)
    torch.testing.assert_close(model(x), wanted)
    if new == "rmsnorm":
        assert torch.equal(model.bfloat16()(x.bfloat16()), half)


@pytest.mark.parametrize(
    ("cls", "shape"), [(nn.InstanceNorm1d, (4, 4)), (nn.InstanceNorm2d, (4, 4, 6)), (nn.InstanceNorm3d, (4, 4, 5, 5))]
)
def test_an_instance_norm_keeps_the_rank_by_which_it_knows_one_sample_alone(cls, shape):
    model, x = nn.Sequential(cls(4, affine=True)), torch.randn(shape)
    for norm in (model[0], cls(8), cls(8, affine=True, track_running_stats=True)):
        assert nk.recognize(norm).kwargs["space"] == len(shape) - 1
    wanted = model(x)
    nk.swap(model, "instancenorm")
    torch.testing.assert_close(model(x), wanted)


def gemma():
    transformers = library("transformers")
    config = transformers.Gemma3TextConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, vocab_size=50, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Gemma3ForCausalLM(config).eval()
    norms = [part for part in model.modules() if type(part).__name__ == "Gemma3RMSNorm"]
    for norm in norms:
        nn.init.normal_(norm.weight, std=0.5)
    return model, norms, torch.arange(12).view(1, 12)


def test_gains_with_an_offset_go_over(tmp_path):
    model, norms, x = gemma()
    norms[0].weight.requires_grad_(False)
    norms[-2].weight = norms[-1].weight
    old = {name: part.weight for name, part in model.named_modules() if part in norms}
    with torch.no_grad():
        same = nk.swap(model, "rmsnorm", inplace=False).model
        torch.testing.assert_close(same(x).logits, model(x).logits)
    centred = nk.swap(copy.deepcopy(model), "layernorm")
    for name, gain in old.items():
        norm = centred.model.get_submodule(name)
        assert torch.equal(norm.weight, gain)
        assert norm.offset == 1
    bounded = nk.swap(model, "dyt")
    new = {name: model.get_submodule(name).weight for name in old}
    assert all(torch.equal(new[name], 1 + gain) for name, gain in old.items())
    assert {change.carried for change in bounded} == {("weight",)}
    assert [p.requires_grad for p in new.values()] == [p.requires_grad for p in old.values()]
    assert len({id(p) for p in new.values()}) == len({id(p) for p in old.values()}) == len(norms) - 1
    nk.save(model, tmp_path / "bounded")
    with torch.no_grad():
        assert torch.equal(nk.load(tmp_path / "bounded")(x).logits, model(x).logits)


def test_an_edit_of_a_gain_with_an_offset_is_applied_to_another_model_with_that_models_numbers():
    one, other = (nn.Sequential(nn.Linear(4, 6), nk.RMSNorm(6, offset=1.0)) for _ in range(2))
    nn.init.normal_(other[1].weight)
    wanted = 1 + other[1].weight
    (edit,) = swapping.edits_for(one, sized_table(one, {}), "derf")
    assert torch.equal(Edit.from_dict(edit.to_dict()).apply(other)[1].weight, wanted)


def test_an_image_does_not_tell_the_width_of_a_norm_that_knows_it():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    nk.swap(model, {"batchnorm": "groupnorm:num_groups=2"}, example=torch.randn(2, 3, 7, 7))
    assert isinstance(model[1], nk.GroupNorm)


@pytest.mark.parametrize("space", [1, 2, 3])
def test_an_example_tells_the_rank_of_the_new_norm(space):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[space - 1]
    model, x = nn.Sequential(conv(3, 8, 1), nn.GroupNorm(2, 8), conv(8, 3, 1)), torch.randn(2, 3, *[5] * space)
    nk.swap(model, "layernorm2d", example=x)
    assert model[1].space == space
    y = model[0](x)
    torch.testing.assert_close(model[1](y), nn.functional.layer_norm(y.movedim(1, -1), [8], eps=1e-6).movedim(-1, 1))


def test_a_norm_that_does_not_take_the_shape_of_its_place_is_refused_by_the_name_of_that_place():
    model = nn.Sequential(nn.Conv3d(3, 8, 1), nn.InstanceNorm3d(8), nn.Conv3d(8, 3, 1))
    words = r"swap: 1 is given inputs of shape \(2, 8, 5, 5, 5\): SubSpectralNorm: x must have 4 axes"
    with pytest.raises(ValueError, match=words):
        nk.swap(model, "subspectralnorm", example=torch.randn(2, 3, 5, 5, 5))
    assert type(model[1]) is nn.InstanceNorm3d


def test_rows_of_features_are_no_images():
    model, x = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)), torch.randn(6, 4)
    with pytest.raises(ValueError, match=r"'layernorm2d' does not fit rows of features, \(N, C\)"):
        nk.swap(model, "layernorm2d", example=x)
    nk.swap(model, "graph-norm", example=x)
    y = model[0](x)
    torch.testing.assert_close(model[1](y), nn.functional.batch_norm(y, None, None, training=True))


def test_only_the_sites_that_are_asked_for_change(net):
    nk.swap(net, "dyt", where="two")
    assert isinstance(net.two, nk.DyT)
    assert isinstance(net.one, Rms)
    nk.swap(net, "dyt", where=lambda name, module: name == "one")
    assert isinstance(net.again, nk.DyT)


@pytest.mark.parametrize("old", [nn.LayerNorm, nk.LayerNorm, nk.OlmoLayerNorm, "ln"])
@pytest.mark.parametrize("new", [nk.RMSNorm, nn.RMSNorm, nk.LlamaRMSNorm])
def test_norms_are_named_by_classes_too(old, new):
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.BatchNorm1d(6))
    report = nk.swap(model, {old: new})
    assert [(change.site, change.why_not) for change in report] == [("1", None)]
    assert type(model[1]) is nk.RMSNorm
    assert type(nk.swap(model, nk.DyT).model[1]) is nk.DyT


def test_what_is_no_name_of_a_norm_is_refused_as_such():
    with pytest.raises(TypeError, match=r"swap: norms must be a name .* not Identity"):
        nk.swap(nn.Sequential(nn.LayerNorm(6)), nn.Identity())


def test_a_swap_that_cannot_be_done_leaves_the_model_as_it_was(net):
    before, modules = digest(net), dict(net.named_modules())
    for norms, where, words in (
        ({"layernorm": "spade", "rmsnorm": "rmsnorm"}, None, "spade"),
        ({"batchnorm": "layernorm"}, None, "the model has no batchnorm to replace; it has layernorm, rmsnorm"),
        ("no-such-norm", None, "no method"),
        ({nn.LayerNorm: nn.Identity}, None, "swap: norms has the class Identity, which is no method of the catalogue"),
        ({nn.Linear: "rmsnorm"}, None, "swap: norms has the class Linear"),
        ("dyt", "nowhere", "the model has no norm to replace among what where chooses; it has layernorm, rmsnorm"),
        ({}, None, "norms must map a norm at least, and is empty"),
    ):
        with pytest.raises(ValueError, match=words):
            nk.swap(net, norms, where=where)
        assert same(before, digest(net))
        assert dict(net.named_modules()) == modules


def test_a_norm_that_is_turned_is_called_by_its_own_name():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    report = nk.swap(model, "layernorm", example=torch.randn(1, 3, 8, 8))
    assert report[0].became == str(nk.LayerNorm(8))


def test_a_copy_is_changed_where_that_is_asked_for(net):
    report = nk.swap(net, "derf", inplace=False)
    assert isinstance(net.two, Layer)
    assert isinstance(report.model.two, nk.Derf)


def test_a_norm_that_is_compiled_on_its_own_is_called_as_it_was_replaced():
    torch.manual_seed(0)
    plain, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), torch.randn(3, 4)
    model = nn.Sequential(plain[0], torch.compile(copy.deepcopy(plain[1]), backend="eager"))
    model(x)
    for part in (plain, model):
        nk.swap(part, "dyt")
    torch.testing.assert_close(model(x), plain(x))
    model(x).square().sum().backward()
    assert all(p.grad.any() for p in model[1].parameters())


def test_an_activation_behind_a_norm_stays():
    timm = library("timm")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), timm.layers.BatchNormAct2d(8))
    nk.swap(model, {"batchnorm": "groupnorm:num_groups=2"})
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(model(x), torch.relu(nn.functional.group_norm(model[0](x), 2)))


@pytest.mark.parametrize("norm", ["groupnorm", "batch-channel-norm", "evonorm-s1"])
def test_groups_of_one_number_are_refused_in_a_stream_and_not_in_images(norm):
    stream = nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32))
    with pytest.raises(ValueError, match=r"has num_groups=32 of 32 features: .* take fewer, such as .*:num_groups=4"):
        nk.swap(stream, norm)
    assert type(stream[1]) is nn.LayerNorm
    nk.swap(stream, f"{norm}:num_groups=4")
    assert stream(torch.randn(3, 5, 4)).std() > 0.1
    nk.swap(nn.Sequential(nn.Conv2d(3, 32, 1), nn.BatchNorm2d(32)), norm)


def test_new_norms_begin_as_the_old_ones_were_where_that_is_asked_for(net):
    x = torch.randn(40, 6)
    wanted = net(x)
    apart = {}
    for match in (False, True):
        report = nk.swap(net, "derf", example=x, match=match, inplace=False)
        apart[match] = (report.model(x) - wanted).norm() / wanted.norm()
    assert apart[True] < 0.6 * apart[False]
    assert all(0 < change.difference < 0.5 for change in report)
    report = nk.swap(net, {"rmsnorm": "rmsnorm:offset=1"}, example=x, match=True, inplace=False)
    assert report[0].difference < 1e-4
    bare = nk.swap(net, "layernorm:affine=False", example=x, match=True, inplace=False)  # has nothing to fit
    assert all(change.difference > 1e-2 for change in bare.done)
    torch.testing.assert_close(report.model(x), wanted, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="match=True needs an example"):
        nk.swap(net, "derf", match=True)


@pytest.mark.parametrize("x", [torch.tensor([[torch.nan] * 6, [1.0] * 6]), torch.ones(0, 6)], ids=["NaN", "empty"])
def test_an_example_to_which_nothing_can_be_fitted_is_refused(net, x):
    before = digest(net)
    with pytest.raises(ValueError, match=r"swap: match=True gives one no finite numbers; hand in an example"):
        nk.swap(net, "derf", example=x, match=True)
    assert same(before, digest(net))


def always(*_):
    return Outcome(1.0, 0.5, True)


def test_fusing_changes_neither_numbers_nor_names_nor_the_optimizers_parameters(net, monkeypatch):
    monkeypatch.setattr(fusing, "race", always)
    monkeypatch.setattr(fusing, "race_models", always)
    before, x, parameters = digest(net), torch.randn(5, 6), dict(net.named_parameters())
    wanted = net(x)
    report = nk.fuse(net, x)
    assert isinstance(net.one, nk.RMSNorm)
    assert net.again is net.one
    torch.testing.assert_close(net(x), wanted)
    assert same(before, digest(net))
    assert all(parameter is parameters[name] for name, parameter in net.named_parameters())
    assert [(c.before, c.after) for c in report.done] == [(1.0, 0.5)] * 2
    assert max(c.difference for c in report.done) < 1e-5


def test_a_model_that_is_no_faster_as_a_whole_is_left_alone(net, monkeypatch):
    monkeypatch.setattr(fusing, "race", always)
    monkeypatch.setattr(fusing, "race_models", lambda *_: Outcome(1.0, 1.1, False))
    report = nk.fuse(net, torch.randn(5, 6))
    assert not report.done
    assert {change.why_not for change in report} == {"the model as a whole is no faster"}
    assert isinstance(net.two, Layer)


def test_checkpoints_keep_the_names_that_they_had(monkeypatch):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma = nn.Parameter(torch.rand(12))
            self.beta = nn.Parameter(torch.rand(12))

        def forward(self, x):
            return nn.functional.layer_norm(x, (12,), self.gamma, self.beta)

    monkeypatch.setattr(fusing, "race", always)
    monkeypatch.setattr(fusing, "race_models", always)
    model = nn.Sequential(nn.Linear(12, 12), Named())
    before, other = digest(model), copy.deepcopy(model).state_dict()
    nk.fuse(model)
    assert same(before, digest(model))
    other["1.gamma"] = torch.full((12,), 5.0)
    model.load_state_dict(other)
    assert model[1].weight.tolist() == [5.0] * 12


def test_a_site_that_is_no_faster_is_left_alone(net, monkeypatch):
    monkeypatch.setattr(fusing, "race", lambda *_: Outcome(1.0, 1.0, False))
    report = nk.fuse(net)
    assert not report.done
    assert {change.why_not for change in report} == {"it is no faster"}
    assert isinstance(net.two, Layer)


def test_a_model_on_the_meta_device_is_swapped_and_takes_the_weights_of_one_that_was(net):
    new = {"rmsnorm": "dyt", "layernorm": "rmsnorm"}
    with torch.device("meta"):
        empty = Net()
    changes = nk.swap(empty, new).done
    assert {tensor.device.type for tensor in empty.state_dict().values()} == {"meta"}
    assert str(changes) == str(nk.swap(net, new).done)
    empty.load_state_dict(net.state_dict(), assign=True)
    x = torch.randn(5, 6)
    assert torch.equal(empty(x), net(x))


def test_a_norm_without_a_width_asks_for_an_example():
    model = nn.Sequential(nn.Linear(4, 6), ByNormalize(), nn.Linear(6, 2))
    assert nk.fuse(model)[0].why_not == "its width is not known; an example tells it"
    with pytest.raises(ValueError, match="the width of 1 is not known; hand in an example"):
        nk.swap(model, "scalenorm")
    nk.swap(model, "rmsnorm", example=torch.randn(2, 4))
    assert model[1].weight.numel() == 6


def test_a_norm_without_parameters_is_as_wide_as_its_input_in_the_example_whatever_it_says():
    library("transformers")
    weightless = library("transformers.models.falcon_mamba.modeling_falcon_mamba").FalconMambaWeightlessRMSNorm
    model, x = nn.Sequential(nn.Linear(4, 6), weightless(12), nn.Linear(6, 2)), torch.randn(3, 4)
    wanted = model(x)
    nk.swap(model, "rmsnorm:affine=True", example=x)
    assert model[1].weight.numel() == 6
    torch.testing.assert_close(model(x), wanted)


def test_a_fused_model_of_transformers_gives_its_numbers_and_loads_its_checkpoint(monkeypatch):
    monkeypatch.setattr(fusing, "race", always)
    monkeypatch.setattr(fusing, "race_models", always)
    transformers = library("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.arange(12).reshape(1, 12)
    with torch.no_grad():
        wanted, before = model(tokens).logits, digest(model)
        report = nk.fuse(model, {"input_ids": tokens})
        assert len(report.done) == 5
        torch.testing.assert_close(model(tokens).logits, wanted, rtol=1e-5, atol=1e-5)
    assert same(before, digest(model))


def test_a_model_that_is_itself_the_norm_is_replaced_in_the_report_alone(monkeypatch):
    monkeypatch.setattr(fusing, "race", always)
    monkeypatch.setattr(fusing, "race_models", always)
    norm, x = Layer(), torch.randn(3, 12)
    for change in (nk.fuse, functools.partial(nk.swap, norms="layernorm")):
        with pytest.raises(ValueError, match="pass inplace=False and go on with the report's model"):
            change(norm)
        new = change(norm, inplace=False).model
        assert isinstance(new, nk.LayerNorm)
        torch.testing.assert_close(new(x), norm(x))


def test_a_norm_of_several_axes_is_named():
    model = nn.Sequential(nn.LayerNorm((3, 4)), nn.Flatten(), nn.Linear(12, 2))
    with pytest.raises(ValueError, match=r"swap: 0 normalizes .*3, 4.*only norms of one axis"):
        nk.swap(model, "rmsnorm", example=torch.randn(2, 3, 4))
    assert type(model[0]) is nn.LayerNorm


def test_the_groups_tried_are_those_named_and_up_to_64():
    """A width has up to some dozens of divisors, each of which costs a comparison."""
    assert candidates.divisors(130) == (1, 130, 2, 5, 10, 13, 26)
    assert candidates.divisors(130, [65, 7]) == (65, 1, 130, 2, 5, 10, 13, 26)
    assert candidates.divisors(128) == (1, 128, 2, 4, 8, 16, 32, 64)


def test_how_far_a_fit_is_left_is_reported_as_a_share():
    x, wanted = torch.randn(5, 4), torch.randn(5, 4)
    fixed = nn.LayerNorm(4, elementwise_affine=False)  # has nothing to be fitted
    share = (fixed(x) - wanted).norm() / wanted.norm()
    assert matching.match(fixed, x, wanted) == pytest.approx(share.item(), rel=1e-5)
    assert matching.match(fixed, x, 1e6 * fixed(x)) == pytest.approx(1 - 1e-6, rel=1e-9)


@pytest.mark.parametrize("match", [False, True])
@pytest.mark.parametrize("family", ["GPT2", "Bert"])
def test_dropout_in_training_stays_as_active_as_it_was(family, match):
    transformers = library("transformers")
    small = {"GPT2": {"n_embd": 8, "n_layer": 1, "n_head": 2}, "Bert": {"hidden_size": 8, "num_hidden_layers": 1}}
    more = {"num_attention_heads": 2, "intermediate_size": 8, "layer_norm_eps": 1e-5} if family == "Bert" else {}
    config = getattr(transformers, f"{family}Config")(**small[family], **more, vocab_size=9)
    model = getattr(transformers, f"{family}Model")(config).train()
    tokens = {"input_ids": torch.arange(8).view(2, 4)}
    state = torch.get_rng_state()
    made = nk.swap(model, "layernorm", example=tokens, match=match, inplace=False).model
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in (*model.modules(), *made.modules()))
    assert not any(isinstance(part, nn.LayerNorm) for part in made.modules())
    results = []
    for each in (model, made, made):
        torch.manual_seed(len(results) // 2)
        results.append(each(**tokens).last_hidden_state)
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)
    assert (results[2] - results[1]).abs().max() > 0.1


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("new", ["rmsnorm:bias=True", "derf", "layernorm"])
def test_torchs_own_encoder_calls_the_norms_that_it_is_given(new, norm_first, tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)).eval()
    old = copy.deepcopy(model)
    nk.swap(model, new)
    saving.save(old, model, str(tmp_path / "out"))
    x, hidden = torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([[5], [4], [2]])
    for each in (model, saving.rebuilt(old, str(tmp_path / "out"))):
        want = each[0](x, src_key_padding_mask=hidden)[~hidden]
        with torch.no_grad():
            torch.testing.assert_close(each[0](x, src_key_padding_mask=hidden)[~hidden], want, rtol=0, atol=1e-5)
            assert each[0].layers[0].activation_relu_or_gelu == (new == "layernorm")


class Masked(nn.GroupNorm):
    """As in audio models: what a mask leaves out takes no part."""

    def forward(self, x, padding_mask=None):
        return super().forward(x) if padding_mask is None else super().forward(x * padding_mask) * padding_mask


def test_a_norm_that_may_be_called_with_more_than_the_new_one_takes_is_refused():
    model = nn.Sequential(nn.Conv1d(4, 8, 1), Masked(1, 8))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"swap: 1 may be called with padding_mask, which rmsnorm2d does not take"):
        nk.swap(model, {"groupnorm": "rmsnorm2d"})
    assert isinstance(model[1], Masked)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


class Scaled(nn.LayerNorm):
    def forward(self, x, scale=1.0):
        return super().forward(x) * scale


class ScaledByName(nn.LayerNorm):
    def forward(self, x, *, scale=None):
        return super().forward(x) if scale is None else super().forward(x) * scale


@pytest.mark.parametrize("kind", [Scaled, ScaledByName])
@pytest.mark.parametrize("example", [None, torch.ones(2, 6)])
def test_a_norm_that_may_be_called_with_a_number_is_refused(kind, example):
    model = nn.Sequential(nn.Linear(6, 6), kind(6))
    with pytest.raises(ValueError, match=r"swap: 1 may be called with scale, which rmsnorm does not take"):
        nk.swap(model, "rmsnorm", example=example)


class ReadsAndCalls(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        return self.mix(self.norm(x.to(self.norm.weight.dtype)))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("norm", ["rmsnorm:affine=False", "batchnorm"])
def test_a_model_that_cannot_be_called_with_the_new_norms_is_refused(norm, compiled):
    block = ReadsAndCalls()
    model = torch.compile(block, backend="eager") if compiled else block
    with pytest.raises(ValueError, match=r"swap: with the new norms, the model raises AttributeError: '(None|Laid)"):
        nk.swap(model, norm, example=torch.randn(2, 6))
    assert type(block.norm) is nn.LayerNorm
    nk.swap(model, "rmsnorm", example=torch.randn(2, 6))
    assert type(block.norm) is nk.RMSNorm


class ReadsItsNorm(nn.Module):
    """As blocks with one kernel for a sum and the norm behind it: nothing calls the norm."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x):
        return x + self.mix(nn.functional.layer_norm(x, (6,), self.norm.weight, self.norm.bias, self.norm.eps))


class ReadsElsewhere(ReadsItsNorm):
    def forward(self, x):
        return self.normalized(x)

    def normalized(self, x):
        return nn.functional.layer_norm(x, (6,), eps=self.norm.eps)


class ReadsByAName(ReadsItsNorm):
    def forward(self, x):
        norm = self.norm
        return nn.functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class ReadsOfAHolder(ReadsItsNorm):
    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.norm, self.norm = self.norm, None

    def forward(self, x):
        norm = self.inner.norm
        return nn.functional.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)


class ReadsOfAList(ReadsItsNorm):
    def __init__(self):
        super().__init__()
        self.norm = nn.ModuleList([self.norm])

    def forward(self, x):
        norm = self.norm[0]
        return nn.functional.layer_norm(x, norm.normalized_shape, self.norm[0].weight, norm.bias, norm.eps)


@pytest.mark.parametrize("example", [False, True])
@pytest.mark.parametrize("block", [ReadsItsNorm, ReadsElsewhere, ReadsByAName, ReadsOfAHolder, ReadsOfAList])
def test_a_norm_whose_numbers_the_block_reads_is_not_exchanged_without_effect(block, example):
    model = nn.Sequential(nn.LayerNorm(6), block())
    with pytest.raises(ValueError, match=r"swap: 1\.(inner\.)?norm(\.0)? is never called: its block reads its numbers"):
        nk.swap(model, "rmsnorm", example=torch.randn(2, 6) if example else None)
    assert sum(type(part) is nn.LayerNorm for part in model.modules()) == 2
    assert len(nk.swap(model, "rmsnorm", where="0")) == 1


class ByKeyword(nn.Module):
    def __init__(self, once=False):
        super().__init__()
        self.norm, self.once = nn.LayerNorm(6), once

    def forward(self, x):
        return x + self.norm(input=x)


class ByBoth(ByKeyword):
    """As blocks whose norms take other things by their configuration."""

    def forward(self, x):
        return x + self.norm(x) if self.once else self.norm(x, scale=1)


@pytest.mark.parametrize("example", [None, torch.ones(2, 6)])
def test_a_norm_that_is_called_by_a_keyword_alone_is_refused_where_the_new_one_lacks_it(example):
    model = nn.Sequential(nn.LayerNorm(6), ByKeyword())
    with pytest.raises(ValueError, match=r"swap: 1\.norm is called by keyword, input=, which RMSNorm does not take"):
        nk.swap(model, "rmsnorm", example=example)
    assert type(model[0]) is type(model[1].norm) is nn.LayerNorm
    assert len(nk.swap(nn.Sequential(ByBoth(once=True)), "rmsnorm", example=example)) == 1


class CallsByX(nn.Module):
    def __init__(self, keyword):
        super().__init__()
        self.norm, self.keyword = nk.LayerNorm(6), keyword

    def forward(self, x):
        return x + (self.norm(x=x) if self.keyword else self.norm(x))


def test_a_norm_that_is_called_by_a_keyword_is_matched_as_any():
    x = torch.randn(40, 6)
    swapped = [nk.swap(CallsByX(keyword), "derf", example=x, match=True) for keyword in (True, False)]
    assert torch.equal(*(report.model(x) for report in swapped))
    assert swapped[0][0].difference == swapped[1][0].difference > 0


class RestsInEvaluation(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.auxiliary, self.loss = nn.LayerNorm(6), nn.LayerNorm(6), nn.LayerNorm(6)

    def forward(self, x):
        norm = self.norm
        x = norm.forward(nn.functional.layer_norm(x, norm.normalized_shape))
        return self.rest(x) if not self.training else self.loss(x.to(self.loss.weight.dtype))

    def rest(self, x):
        return self.auxiliary(*[x.to(self.auxiliary.weight.dtype)])


@pytest.mark.parametrize("example", [None, torch.ones(2, 6)])
def test_a_norm_that_rests_in_the_example_or_is_called_in_another_way_is_exchanged(example):
    model = RestsInEvaluation()
    assert len(nk.swap(model, "rmsnorm", example=example).done) == 3
    encoder = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True).eval()
    report = nk.swap(nn.Sequential(encoder), "rmsnorm", example=None if example is None else torch.ones(1, 2, 6))
    assert len(report.done) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (nn.BatchNorm2d(6, eps=1e-2), "frozen-batchnorm"),
        (nn.BatchNorm2d(6, eps=1e-2, momentum=None), nn.SyncBatchNorm),
        (nn.BatchNorm2d(6, eps=1e-2), nk.BatchNorm),
        (nk.FrozenBatchNorm(6, eps=1e-2), "batchnorm"),
        (nn.BatchNorm2d(6, eps=1e-2), "batch-renorm:eps=1e-3"),
        (nk.BatchRenorm(6, eps=1e-2), "batchnorm:eps=1e-3"),
        (nk.BatchNorm(6, eps=1e-2), "ghost-batchnorm:ghost_size=2"),
    ],
)
def test_a_batch_norm_that_was_trained_goes_on_with_its_statistics(old, new):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 6, 1), copy.deepcopy(old)), torch.randn(4, 3, 5, 5)
    model[1].running_mean.normal_()
    getattr(model[1], "running_std" if isinstance(old, nk.BatchRenorm) else "running_var").uniform_(0.2, 1.5)
    counts = isinstance(old, nn.BatchNorm2d)
    if counts:
        model[1].num_batches_tracked.fill_(7)
    wanted = model.eval()(x)
    nk.swap(model, new)
    assert type(model[1]) is (catalog.find(new).card.entry if isinstance(new, str) else nk.BatchNorm)
    torch.testing.assert_close(model(x), wanted)
    if counts and isinstance(model[1], nk.BatchNorm):
        assert model[1].num_batches_tracked == 7
        assert model[1].momentum == old.momentum


def test_statistics_that_mean_something_else_begin_anew():
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6))
    model[1].running_var.fill_(3)
    report = nk.swap(model, "instancenorm:track_running_stats=True")
    assert torch.equal(model[1].running_var, torch.ones(6))
    assert report[0].became.endswith(" without the old running_mean and running_var")


@pytest.mark.parametrize(
    "old", [nn.SyncBatchNorm(6), nk.BatchNorm(6, sync=True), nk.InstanceNorm(6, sync=True, track_running_stats=True)]
)
@pytest.mark.parametrize("new", ["batchnorm", "instancenorm", "batchnorm:sync=false", "groupnorm:num_groups=2"])
def test_what_joins_its_statistics_over_processes_goes_on_to_do_so(old, new):
    model = nn.Sequential(nn.Conv2d(3, 6, 1), copy.deepcopy(old))
    nk.swap(model, new)
    assert getattr(model[1], "sync", None) == {"batchnorm:sync=false": False, "groupnorm:num_groups=2": None}.get(
        new, True
    )


def test_fuse_leaves_what_joins_its_statistics_over_processes(monkeypatch):
    monkeypatch.setattr(fusing, "race", lambda *args: Outcome(2.0, 1.0, True))
    model = nn.Sequential(nn.Conv2d(3, 32, 1), nn.SyncBatchNorm(32)).eval()
    assert nk.fuse(model)[0].why_not == "it joins its statistics over processes"


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (nn.BatchNorm2d(6, affine=False), "batchnorm", ["running_mean", "running_var", "num_batches_tracked"]),
        (nn.GroupNorm(2, 6, affine=False), "groupnorm", []),
        (nn.LayerNorm(6, bias=False), "layernorm", ["weight"]),
        (nn.LayerNorm(6, elementwise_affine=False), "layernorm:affine=True", ["weight", "bias"]),
    ],
)
def test_a_norm_of_the_same_method_has_no_gain_or_shift_that_the_old_one_had_not(old, new, kept):
    model = nn.Sequential(nn.Identity(), copy.deepcopy(old))
    nk.swap(model, new)
    assert list(model[1].state_dict()) == kept


def test_a_norm_of_the_same_method_keeps_its_eps_unless_one_is_named():
    x = 0.1 * torch.randn(5, 4)
    for new, eps in (("layernorm", 1e-2), ("layernorm:eps=1e-3", 1e-3)):
        model = nn.Sequential(nn.Identity(), nn.LayerNorm(4, eps=1e-2))
        nk.swap(model, {"layernorm": new})
        torch.testing.assert_close(model(x), nn.functional.layer_norm(x, (4,), eps=eps))


class ListsItsNorm(nn.Module):
    """Calls its norm by what is no place of a module."""

    def __init__(self, hold):
        super().__init__()
        self.mix, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.steps = hold(self.norm)

    def forward(self, x):
        steps = self.steps["first"][0] if isinstance(self.steps, dict) else self.steps
        return (steps[0] if isinstance(steps, list) else getattr(steps, "first", steps))(self.mix(x))


@pytest.mark.parametrize(
    "hold",
    [
        lambda norm: [norm],
        lambda norm: {"first": (norm,)},
        lambda norm: norm.forward,
        lambda norm: functools.partial(checkpoint, norm, use_reentrant=False),
        lambda norm: lambda x: norm(x),
        lambda norm: types.SimpleNamespace(first=norm),
    ],
    ids=["list", "dict", "method", "partial", "closure", "object"],
)
def test_a_norm_that_a_plain_list_holds_is_not_exchanged_without_effect(hold):
    model = nn.Sequential(nn.LayerNorm(6), ListsItsNorm(hold))
    with pytest.raises(ValueError, match=r"swap: 1\.norm is held by 1\.steps too"):
        nk.swap(model, "dyt")
    assert type(model[0]) is nn.LayerNorm
    assert len(nk.swap(model, "dyt", where="0").done) == 1
    listed = nn.Sequential(nn.LayerNorm(6), ListsItsNorm(lambda norm: nn.ModuleList([norm])))
    nk.swap(listed, "dyt")
    assert type(listed[1].steps[0]) is nk.DyT


@pytest.mark.parametrize("old", [nn.GroupNorm(6, 6), nn.BatchNorm2d(6)])
@pytest.mark.parametrize("new", ["instancenorm", nn.InstanceNorm2d])
def test_an_instance_norm_takes_the_gain_and_the_shift_of_the_norm_before(old, new):
    model, x = nn.Sequential(nn.Conv2d(3, 6, 1), copy.deepcopy(old)), torch.randn(2, 3, 5, 5)
    gain, shift = (nn.init.normal_(p) for p in model[1].parameters())
    bare = nk.swap(model, "instancenorm:affine=False", inplace=False).model[1]
    assert not list(bare.parameters())
    nk.swap(model, new)
    wanted = nn.functional.instance_norm(model[0](x), weight=gain, bias=shift)
    torch.testing.assert_close(model(x), wanted)
    without = nn.Sequential(nn.Conv2d(3, 6, 1), nn.InstanceNorm2d(6))
    nk.swap(without, new)
    assert not list(without[1].parameters())


def test_a_name_in_a_list_that_no_part_has_is_refused(net):
    with pytest.raises(ValueError, match=r"swap: where has 'tow', '\*\.norm', which no part of the model is called"):
        nk.swap(net, "dyt", where=["one", "tow", "*.norm"])
    assert isinstance(net.one, Rms)
    assert len(nk.swap(net, "dyt", where=["again", "t*", nn.GroupNorm]).done) == 1


def sharded(model):
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for part in (model[1], model):
        fully_shard(part, mesh=mesh)
    return model


@pytest.mark.parametrize(
    ("wrap", "why"),
    [(sharded, "sharded by fully_shard"), (nn.parallel.DistributedDataParallel, "a DistributedDataParallel, which")],
    ids=["sharded", "replica"],
)
def test_a_model_of_several_processes_is_refused_after_a_forward_pass_too(wrap, why):
    def swap():
        model = wrap(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)))
        with torch.no_grad():
            model(torch.randn(2, 8))
        model.eval()
        for name, call in (
            ("swap", lambda: nk.swap(model, "rmsnorm", inplace=False)),
            ("fold", lambda: nk.fold(model, torch.randn(2, 8))),
            ("quantize", lambda: nk.quantize(model)),
            ("remove", lambda: nk.remove(model, [torch.randn(2, 8)])),
            ("average", lambda: nk.average([model])),
            ("apply", lambda: nk.weight.apply(model, "weight-norm")),
        ):
            with pytest.raises(ValueError, match=f"{name}: the model is {why}"):
                call()
        return type([*model.modules()][-1]).__name__

    assert each_rank(1, swap) == ["LayerNorm"]


class CappedNorm(nn.Module):
    def forward(self, x):
        return x / (1 + x.abs().amax(-1, keepdim=True))


def test_what_looks_like_a_norm_and_is_none_is_named_among_what_is_left():
    model = nn.Sequential(nn.LayerNorm(8), CappedNorm(), nn.Linear(8, 8), CappedNorm())
    report = nk.swap(model, "dyt", where=["0", "1"])
    assert [(change.site, change.became is None) for change in report] == [("0", False), ("1", True)]
    assert report[1].why_not == "not recognized: no method of the catalogue computes this"
    assert str(report).endswith("1 of 2 sites changed")
