"""Spatial norms: what their recordings leave open, in float64 from the equations."""

import pytest
import torch

import normkit as nk

D = torch.float64


def rand(*shape, seed=0):
    return torch.randn(*shape, dtype=D, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize("affine", ["sub", "all", "none"])
@pytest.mark.parametrize("dim", [2, 3, -1])
def test_subspectralnorm_normalizes_every_band_by_itself(norm, affine, dim):
    channels, groups = 3, 2
    module = nk.create("subspectralnorm", channels, num_groups=groups, affine=affine, norm=norm, dim=dim, dtype=D)
    for index, parameter in enumerate(module.parameters()):
        parameter.data = rand(*parameter.shape, seed=index)
    x = rand(2, channels, 4, 6) if dim == 2 else rand(2, channels, 6, 4)
    y = module(x)
    for c in range(channels):
        for g in range(groups):
            at = slice(2 * g, 2 * g + 2)
            band, got = (t[:, c, at] if dim == 2 else t[:, c, :, at] for t in (x, y))
            mean = band.mean() if norm == "batch" else band.mean((1, 2), keepdim=True)
            var = (band - mean).square()
            var = var.mean() if norm == "batch" else var.mean((1, 2), keepdim=True)
            want = (band - mean) / (var + 1e-5).sqrt()
            if affine != "none":
                entry = c * groups + g if affine == "sub" else c
                want = want * module.weight[entry] + module.bias[entry]
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_ibn_splits_at_every_ratio(ratio):
    module, x = nk.create("ibn", 10, ratio=ratio, dtype=D), rand(3, 10, 4, 5)
    k = int(10 * ratio)
    instance = torch.nn.functional.instance_norm(x[:, :k]) if k else x[:, :0]
    batch = torch.nn.functional.batch_norm(x[:, k:], None, None, training=True) if k < 10 else x[:, :0]
    torch.testing.assert_close(module(x), torch.cat([instance, batch], 1))
    assert module.running_mean.shape == (10 - k,)


def test_region_norm_leaves_the_valid_region_alone_whatever_is_in_the_hole():
    module, x, mask = nk.create("regionnorm-basic", 3, dtype=D), rand(2, 3, 6, 5), rand(2, 1, 6, 5, seed=1) > 0
    filled = torch.where(mask, x, float("nan"))
    valid = mask.expand_as(x)
    torch.testing.assert_close(module(filled, mask)[valid], module(x, mask)[valid], rtol=0, atol=0)
    torch.testing.assert_close(module(x, mask.to(D)), module(x, mask), rtol=0, atol=0)


def test_a_region_norm_takes_images_alone():
    for shape in ((2, 3, 6), (2, 3, 6, 5, 4)):
        with pytest.raises(ValueError, match="x must have 4 axes and 3 channels"):
            nk.create("regionnorm-basic", 3)(torch.ones(shape), torch.ones(2, 1, 6, 5))


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_region_passes_without_eps(whole):
    module, x = nk.create("regionnorm-basic", 3, eps=0.0, dtype=D), rand(2, 3, 4, 5).requires_grad_()
    y = module(x, torch.full((2, 1, 4, 5), whole))
    y.square().sum().backward()
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
    torch.testing.assert_close(y, (x - mean) / var.sqrt())
    assert torch.isfinite(x.grad).all()


def test_scnorm_with_its_gate_at_the_raw_amplitude_is_the_identity():
    module, x = nk.create("scnorm", 3, dtype=D), rand(2, 3, 5, 6)
    module.gate.data = torch.tensor([-30.0, 30.0], dtype=D)
    torch.testing.assert_close(module(x), x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_the_gate_of_ccnorm_does_not_learn(dtype):
    module, x = nk.create("ccnorm", 3, dtype=dtype), rand(4, 3, 5, 6).to(dtype)
    module.gate.data = torch.tensor([1e-7, 0.0], dtype=dtype)
    before = module(x).detach()
    (module(x) * rand(4, 3, 5, 6, seed=1)).sum().backward()
    assert module.gate.grad.tolist() == [0, 0]
    torch.optim.Adam([module.gate], lr=0.01).step()
    assert torch.equal(module(x), before)


@pytest.mark.nightly  # its imports take seconds
def test_gdn_of_tiny_images_is_compiled_for_all_sizes(monkeypatch):
    """Up to its code in C++, which would take seconds."""
    from torch._inductor.graph import GraphLowering

    class Lowered(Exception): ...

    def lowered(graph):
        raise Lowered

    monkeypatch.setattr(GraphLowering, "codegen", lowered)
    monkeypatch.setattr("torch._inductor.config.fx_graph_cache", False)
    monkeypatch.setattr("torch._functorch.config.enable_autograd_cache", False)
    with pytest.raises(Exception, match="Lowered"):
        torch.compile(nk.GDN(8), dynamic=True)(torch.randn(4, 8, 3, 2))


def test_gdn_parametric_starts_as_gdn():
    x = rand(2, 4, 3, 5)
    torch.testing.assert_close(nk.create("gdn-parametric", 4, dtype=D)(x), nk.create("gdn", 4, dtype=D)(x))


def test_gdn_parametric_has_no_gradient_at_zero_responses():
    module, x = nk.create("gdn-parametric", 3, dtype=D), torch.zeros(2, 3, dtype=D, requires_grad=True)
    module.alpha.data.fill_(0.5)  # an infinite slope of |z|^alpha at 0
    module(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))
    torch.testing.assert_close(module.alpha.grad, torch.zeros(3, 3, dtype=D))


@pytest.mark.parametrize("fusion", [("mul", "add"), ("add", "mul")])
def test_gcblock_multiplies_first_whatever_the_order_of_its_names(fusion):
    module, x = nk.create("gcblock", 4, ratio=0.5, fusion=fusion, dtype=D), rand(2, 4, 3, 3)
    module.add_expand.bias.data.fill_(3.0)
    torch.testing.assert_close(module(x), x / 2 + 3)


def test_a_broadcast_residual_that_fails_moves_no_state():
    module = nk.create("broadcast-residual", 2, out_channels=3, num_groups=5)
    with pytest.raises(ValueError, match=r"num_groups=5.*frequencies=8"):
        module(torch.randn(2, 2, 8, 4))
    with pytest.raises(ValueError, match="one time"):
        module(torch.randn(1, 2, 5, 1))
    assert all((b == 0).all() or (b == 1).all() for b in module.buffers())
    with pytest.raises(ValueError, match="stride"):
        nk.create("broadcast-residual", 2, stride=(2, 1), num_groups=2)(torch.randn(2, 2, 8, 4))


@pytest.mark.parametrize("stride", [2, (2,), (1, 1, 1), (1, 0)])
def test_a_stride_of_a_broadcast_residual_is_a_pair_of_sizes(stride):
    with pytest.raises(ValueError, match="BroadcastResidual: stride must be"):
        nk.create("broadcast-residual", 2, stride=stride)


def test_a_broadcast_residual_keeps_all_times():
    """The part over time is added to one that has all times: a stride there failed in the sum, at the first call."""
    module = nk.create("broadcast-residual", 2, out_channels=3, num_groups=2, stride=(2, 1))
    assert module(torch.randn(2, 2, 7, 5)).shape == (2, 3, 4, 5)
    with pytest.raises(ValueError, match=r"stride over time must be 1, not 2"):
        nk.create("broadcast-residual", 2, out_channels=3, stride=(1, 2))


@pytest.mark.parametrize("name, shape", [("instancenorm", (2, 3, 1)), ("ibn", (1, 3, 1)), ("pcnorm", (1, 3, 1, 1))])
def test_one_value_has_no_spread_to_train_on(name, shape):
    module = nk.create(name, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"one (value|position)"):
        module(rand(*shape))
    assert torch.isfinite(module.eval()(rand(*shape))).all()


def test_the_learned_eps_of_frn_starts_at_1e_4():
    x = rand(2, 3, 5) * 1e-3
    module = nk.create("frn", 3, learnable_eps=True, apply_act=False, dtype=torch.float64)
    torch.testing.assert_close(module(x), x / (x.square().mean(2, keepdim=True) + 1e-4).sqrt())


def test_groups_that_do_not_divide_are_refused_when_the_norm_is_built():
    with pytest.raises(ValueError, match=r"^GroupNorm: num_groups=4 does not divide num_features=6"):
        nk.create("groupnorm", 6, num_groups=4)


def test_a_sample_of_other_channels_is_named_by_the_shape_that_it_has():
    with pytest.raises(ValueError, match=r"x must have 4 axes and 4 channels on axis 1, but its shape is \(2, 4, 5\)"):
        nk.InstanceNorm2d(4)(torch.randn(2, 4, 5))
