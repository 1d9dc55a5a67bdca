"""Norms of which a user takes a part away, under autocast, on batches of nothing and of one."""

import pytest
import torch

import normkit as nk
from normkit import ops


@pytest.mark.parametrize("name", ["iternorm", "decorrelated-batchnorm", "graph-norm", "graph-layernorm", "revin"])
def test_a_gain_acts_without_a_shift_and_a_shift_without_a_gain(name):
    x = torch.randn(4, 16, 2, generator=torch.Generator().manual_seed(0))
    x = x if name == "revin" else x.flatten(0, 1)
    module = nk.create(name, 2)
    plain = module(x)
    module.weight.data.fill_(7.0), module.bias.data.fill_(3.0)
    gain, shift = module.weight, module.bias
    module.bias = None
    torch.testing.assert_close(module(x), 7 * plain)
    module.weight, module.bias = None, shift
    torch.testing.assert_close(module(x), plain + 3)
    module.weight = gain
    torch.testing.assert_close(module(x), 7 * plain + 3)


def test_a_forecast_comes_back_by_what_is_left():
    module, x = nk.create("revin", 2), torch.randn(3, 8, 2, generator=torch.Generator().manual_seed(0))
    module.weight.data.fill_(7.0), module.bias.data.fill_(3.0)
    for part in ("weight", "bias"):
        setattr(module, part, None)
        torch.testing.assert_close(module.denormalize(*module.normalize(x)), x)


def test_moments_of_tasks_and_of_groups_do_not_overflow_under_autocast():
    x = torch.randn(1024, 2, generator=torch.Generator().manual_seed(0)) * 10
    by_cast, plain = nk.create("adab2n", 2, num_tasks=2), nk.create("adab2n", 2, num_tasks=2)
    with torch.autocast("cpu", torch.float16):
        y = by_cast(x)
    torch.testing.assert_close(y, plain(x))
    torch.testing.assert_close(by_cast.running_var, plain.running_var)
    module = nk.create("gdwct", 8, num_groups=2)
    image, style = torch.randn(2, 8, 64, 64, generator=torch.Generator().manual_seed(1)) * 4, torch.randn(2, 8)
    with torch.autocast("cpu", torch.float16):
        covariance = module(image, style)[1]
    torch.testing.assert_close(covariance, module(image, style)[1])


@pytest.mark.parametrize("name", ["gdn", "graph-transformer-layer"])
def test_products_of_features_do_not_overflow_under_autocast(name):
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)) * 500
    inputs = (x,) if name == "gdn" else (x, torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]]))
    torch.manual_seed(0)
    module = nk.create(name, 8, **({} if name == "gdn" else {"heads": 2})).eval()
    with torch.autocast("cpu", torch.float16):
        y = module(*inputs)
    torch.testing.assert_close(y, module(*inputs), rtol=0.01, atol=0.01)


def test_a_loss_of_entropy_is_no_nan_under_autocast():
    torch.manual_seed(0)
    module = nk.create("tpe-2d", 4, heads=2)
    module.down.weight.data.mul_(60)
    q, hidden, places = torch.randn(2, 2, 6, 4), torch.randn(2, 6, 8) * 3, torch.arange(6).expand(2, 6)
    given = q, q, q, hidden, places, places, torch.ones(2, 6, dtype=torch.bool)
    with torch.autocast("cpu", torch.float16):
        entropy = module(*given)[1]
    torch.testing.assert_close(entropy, module(*given)[1], rtol=0.05, atol=1e-4)


@pytest.mark.parametrize("method", ["macenko", "reinhard"])
def test_a_reference_of_stains_is_taken_under_autocast(method):
    image = 240 * torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    by_cast, plain = nk.create("stain-norm", method=method), nk.create("stain-norm", method=method).fit(image)
    with torch.autocast("cpu", torch.bfloat16):
        by_cast.fit(image)
    for one, other in zip(by_cast.buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, other)


NEEDS_MORE = {
    "batchnorm": lambda: nk.create("batchnorm", 3, sync=True)(torch.randn(1, 3)),
    "repair": lambda: nk.create("repair", 3, sync=True)(torch.randn(1, 3)),
    "conditional-batchnorm": lambda: nk.create("conditional-batchnorm", 3, num_classes=2, sync=True)(
        torch.randn(1, 3), torch.tensor([1])
    ),
    "subspectralnorm": lambda: nk.create("subspectralnorm", 3, num_groups=1, sync=True)(torch.randn(1, 3, 1, 1)),
}


@pytest.mark.parametrize("name", NEEDS_MORE)
def test_one_process_joins_nothing_and_needs_more_than_one_value(name):
    with pytest.raises(ValueError, match=r"one value .*training needs more"):
        NEEDS_MORE[name]()


def test_batches_of_nothing_move_nothing():
    module = nk.create("instancenorm", 2, track_running_stats=True)
    module.running_mean.fill_(5.0)
    assert module(torch.zeros(0, 2, 4, 4)).shape == (0, 2, 4, 4)
    assert torch.equal(module.running_mean, torch.full((2,), 5.0))
    assert torch.equal(module.running_var, torch.ones(2))
    ghosts = nk.create("ghost-batchnorm", 3)
    before = [value.clone() for value in ghosts.buffers()]
    assert ghosts(torch.zeros(0, 3)).shape == (0, 3)
    assert all(map(torch.equal, ghosts.buffers(), before))
    with pytest.raises(ValueError, match="the last has one value a channel"):
        ghosts(torch.zeros(1, 3))


def test_a_width_without_a_deviation_is_refused():
    with pytest.raises(ValueError, match="dim must be at least 2"):
        nk.create("mixstyle-layernorm", 1)


def test_numbers_that_are_negated_as_they_are_read_are_read_so():
    x, other = torch.randn(2, 64, 32, generator=torch.Generator().manual_seed(0))
    wanted = ops.add_row_norm(x, -other, rule=ops.Row())
    for got, want in zip(ops.add_row_norm(x, torch._neg_view(other), rule=ops.Row()), wanted, strict=True):
        assert torch.equal(got, want)
    cos, sin = other[:, :16].contiguous(), other[:, 16:].contiguous()
    assert torch.equal(ops.rotate(x, (cos, torch._neg_view(sin))), ops.rotate(x, (cos, -sin)))
