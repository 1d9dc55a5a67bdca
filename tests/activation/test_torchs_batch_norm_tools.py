"""What looks for torch's batch norm by its class takes normkit's for one, and older checkpoints load."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit.running import averaging
from normkit.surgery.statistics.batch_statistics import takes_batch_statistics


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(norm):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), norm(4), nn.ReLU()).double()


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}])
def test_update_bn_estimates_the_statistics_anew(options):
    data = [5 + drawn(4, 3, 6, 6, seed=i) for i in range(3)]
    theirs, ours = (
        AveragedModel(network(lambda n, norm=norm: norm(n, **options))) for norm in (nn.BatchNorm2d, nk.BatchNorm)
    )
    for model in (theirs, ours):
        update_bn(data, model)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=0, atol=1e-12)
    assert ours.module[1].momentum == options.get("momentum", 0.1)


@pytest.mark.parametrize("bias", [True, False])
def test_convert_sync_batchnorm_keeps_numbers(bias):
    model = network(lambda n: nk.BatchNorm(n, bias=bias))
    model(drawn(4, 3, 6, 6))
    converted = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model)).eval()
    assert type(converted[1]) is nn.SyncBatchNorm
    x = drawn(2, 3, 5, 5, seed=1)
    torch.testing.assert_close(converted(x), model.eval()(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("option", [{"channels_last": True}, {"unbiased": False}])
def test_convert_sync_batchnorm_warns_of_what_it_drops(option):
    ((name, value),) = option.items()
    with pytest.warns(UserWarning, match=f"convert_sync_batchnorm drops {name}={value} of BatchNorm: .* sync=True"):
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nk.BatchNorm(4, **option)))


def test_torch_func_takes_its_running_statistics_off():
    model = network(nk.BatchNorm)
    torch.func.replace_all_batch_norm_modules_(model)
    x = drawn(2, 3, 5, 5)
    assert torch.equal(model.eval()(x), model.train()(x))


def test_averages_are_found_by_what_every_batch_norm_has():
    norm = nk.BatchNorm(3)
    assert isinstance(norm, _BatchNorm)
    norm(drawn(4, 3).float())
    norm.reset_running_stats()
    assert not norm.running_mean.any()
    assert norm.num_batches_tracked == 0


def require_same_with_tracking_off(norms, x):
    """Require that ours, the second, gives and keeps what torch's does once tracking is switched off."""
    for norm in norms:
        norm(x)
        norm.track_running_stats = False
    for training in (True, False, True):
        want, got = (norm.train(training)(2 * x) for norm in norms)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(norms[1].state_dict(), norms[0].state_dict())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=["kernel", "formula"])
def test_running_moments_rest_while_tracking_is_switched_off(kind, layout):
    """As in virtual adversarial training, whose passes on changed inputs leave them as they are."""
    norms = nn.BatchNorm2d(3).to(kind), nk.BatchNorm(3).to(kind)
    x = (5 + drawn(8, 3, 5, 5)).to(kind, memory_format=layout)
    require_same_with_tracking_off(norms, x)
    assert norms[1].num_batches_tracked == 1


def test_instance_norm_takes_each_images_own_moments_while_tracking_is_switched_off():
    norms = nn.InstanceNorm2d(3, track_running_stats=True), nk.InstanceNorm(3, track_running_stats=True)
    x = 5 + drawn(8, 3, 5, 5).float()
    require_same_with_tracking_off(norms, x)


@pytest.mark.parametrize("name", ["batchnorm", "instancenorm", "mean-only-batchnorm"])
def test_a_checkpoint_from_before_batches_were_counted_loads(name):
    options = {"track_running_stats": True} if name == "instancenorm" else {}
    norm = nk.create(name, 3, **options)
    state = dict(norm.state_dict())
    assert "num_batches_tracked" in state
    del state["num_batches_tracked"]
    state["running_mean"] = torch.ones(3)
    norm.load_state_dict(state)
    assert norm.running_mean.tolist() == [1, 1, 1]
    with torch.device("meta"):
        empty = nk.create(name, 3, **options)
    empty.load_state_dict(state, assign=True)
    assert empty.num_batches_tracked == 0


def test_what_lacks_more_is_still_named():
    state = dict(nk.BatchNorm(3).state_dict())
    del state["running_var"], state["num_batches_tracked"]
    with pytest.raises(RuntimeError, match="running_var"):
        nk.BatchNorm(3).load_state_dict(state)


METHODS = [card for card in map(nk.card, nk.methods()) if card.kind.name == "norm" and "N" in card.over.axes]
BATCH_NORMS = [card.name for card in METHODS if takes_batch_statistics(card.small(8)) and card.name != "batchnorm"]


def get_bn_modules(model):
    """As fvcore's, which is not installed."""
    torchs = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return [module for module in model.modules() if module.training and isinstance(module, torchs)]


@pytest.mark.parametrize("name", BATCH_NORMS)
def test_batch_norms_that_tools_pass_over_are_warned_of(name):
    norm = nk.card(name).small(8)
    model, before = nn.Sequential(norm), copy.deepcopy(norm.state_dict())
    for tool in (lambda: update_bn([], model), lambda: get_bn_modules(model)):
        with pytest.warns(
            UserWarning, match=rf"passes over {type(norm).__name__}: .* normkit.recalibrate\(model, data\)"
        ):
            tool()
    with pytest.warns(UserWarning, match=rf"convert_sync_batchnorm passes over {type(norm).__name__}: .* sync=True"):
        assert nn.SyncBatchNorm.convert_sync_batchnorm(model)[0] is norm
    for key, value in before.items():
        assert torch.equal(norm.state_dict()[key], value)


def test_what_is_named_in_the_warning_estimates_the_averages():
    model, data = network(nk.GhostBatchNorm), [5 + drawn(4, 3, 6, 6, seed=i) for i in range(3)]
    with pytest.warns(UserWarning, match="update_bn passes over GhostBatchNorm"):
        update_bn(data, model)
    nk.recalibrate(model, data)
    seen = torch.stack([model[0](batch).mean((0, 2, 3)) for batch in data]).mean(0)
    torch.testing.assert_close(model[1].running_mean, seen.detach())


def test_others_are_not_warned_of_and_fvcores_tool_does_not_find_batchnorm():
    model = network(nk.BatchNorm)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        update_bn([drawn(4, 3, 6, 6)], model)
        nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(model))
        others = nn.Sequential(nk.InstanceNorm(4, track_running_stats=True), nk.GhostBatchNorm(4), nk.LayerNorm(4))
        dict(others.named_modules()), others.train(), list(others.parameters())
        nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nk.BatchRenorm(4, sync=True)))
    with pytest.warns(UserWarning, match="get_bn_modules passes over BatchNorm"):
        get_bn_modules(model)


@pytest.mark.parametrize("momentum", [0.3, None])
def test_running_moments_are_torchs_over_several_batches(momentum):
    ours, theirs = nk.BatchNorm(3, momentum=momentum), nn.BatchNorm1d(3, momentum=momentum)
    for seed in range(3):
        x = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed)) * 2 + 1
        ours(x), theirs(x)
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_pass_that_is_repeated_and_one_that_averages_move_as_they_should(reentrant):
    x, other = torch.randn(7, 3, requires_grad=True), torch.randn(7, 3) + 5
    once, norm = nk.BatchNorm(3), nk.BatchNorm(3)
    once(x)
    checkpoint(norm, x, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(dict(norm.state_dict()), dict(once.state_dict()), rtol=0, atol=0)
    with averaging():
        norm(x.detach()), norm(other)
    torch.testing.assert_close(norm.running_mean, (x.detach().mean(0) + other.mean(0)) / 2)


def test_a_module_without_a_shift_names_its_device_as_well():
    with pytest.raises(ValueError, match="x is on meta, but the module is on cpu"):
        nk.BatchNorm(3, bias=False)(torch.ones(4, 3, device="meta"))


def test_one_that_was_pickled_before_there_was_a_choice_keeps_the_running_variance_of_torch():
    x, ours, theirs = 5 + drawn(4, 3), nk.BatchNorm(3).double(), nn.BatchNorm1d(3).double()
    del vars(ours)["unbiased"]
    ours(x), theirs(x)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
