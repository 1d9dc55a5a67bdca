"""Norms across the batch: their equations a second time, in float64."""

import pytest
import torch

import normkit as nk
from normkit.optional import let_torchvision_load

D = torch.float64


def rand(*shape, seed=0):
    return torch.randn(shape, dtype=D, generator=torch.Generator().manual_seed(seed))


def moved(module):
    for index, parameter in enumerate(module.parameters()):
        parameter.data = parameter.data + 0.3 * rand(*parameter.shape, seed=index)
    return module


def column(v):
    return v[:, None, None]


@pytest.mark.parametrize("batch", [True, False])
def test_switchable_norm_mixes_three_moments(batch):
    module, x = moved(nk.create("switchable-norm", 3, batch=batch, dtype=D)), rand(4, 3, 2, 5)
    own_mean, own_var = x.mean((2, 3)), x.var((2, 3))
    square = own_var + own_mean**2
    means = [own_mean, own_mean.mean(1, keepdim=True)]
    variances = [own_var, square.mean(1, keepdim=True) - means[1] ** 2]
    if batch:
        means.append(own_mean.mean(0, keepdim=True))
        variances.append(square.mean(0, keepdim=True) - means[2] ** 2)

    def want(means, variances):
        mean = sum(w * m for w, m in zip(module.mean_weight.softmax(0), means, strict=True))
        var = sum(w * v for w, v in zip(module.var_weight.softmax(0), variances, strict=True))
        y = (x - mean[:, :, None, None]) / (var[:, :, None, None] + 1e-5).sqrt()
        return y * column(module.weight) + column(module.bias)

    torch.testing.assert_close(module(x), want(means, variances))
    if batch:
        torch.testing.assert_close(module.running_mean, 0.1 * means[2][0])
        torch.testing.assert_close(module.running_var, 0.1 * variances[2][0])
        means[2], variances[2] = module.running_mean[None], module.running_var[None]
    torch.testing.assert_close(module.eval()(x), want(means, variances))


def test_switchable_norm_of_vectors():
    module, x = moved(nk.SwitchNorm1d(6, momentum=0.003, dtype=D)), rand(5, 6)
    (a, b), (c, d) = module.mean_weight.softmax(0), module.var_weight.softmax(0)
    mean = a * x.mean(1, keepdim=True) + b * x.mean(0)
    var = c * x.var(1, keepdim=True) + d * x.var(0)
    torch.testing.assert_close(module(x), (x - mean) / (var + 1e-5).sqrt() * module.weight + module.bias)
    torch.testing.assert_close(module.running_var, 0.003 * x.var(0))
    with pytest.raises(ValueError, match="2 axes"):
        module(rand(5, 6, 2, 2))


def test_switchable_norm_is_exact_far_from_zero():
    x = rand(4, 3, 5, 5) + 1e4
    exact = nk.create("switchable-norm", 3, dtype=D)(x)
    torch.testing.assert_close(nk.create("switchable-norm", 3)(x.float()).double(), exact, rtol=0, atol=2e-3)


def test_batch_instance_norm_is_a_gate_between_torchs_norms():
    module, x = moved(nk.create("batch-instance-norm", 3, dtype=D)), rand(4, 3, 2, 5)
    running = torch.zeros(3, dtype=D), torch.ones(3, dtype=D)
    for training in (True, False):
        batch = torch.nn.functional.batch_norm(x, *running, module.weight * module.gate, module.bias, training)
        instance = torch.nn.functional.instance_norm(x, weight=module.weight * (1 - module.gate))
        torch.testing.assert_close(module.train(training)(x), batch + instance)
    torch.testing.assert_close((module.running_mean, module.running_var), running)
    module.clip_gate()
    assert module.gate.min() >= 0
    assert module.gate.max() <= 1


def whitened(x, matrices, groups):
    """Multiply the centered channels of each group, (groups, width, width)."""
    flat = x.movedim(1, 0).reshape(groups, x.shape[1] // groups, -1)
    y = matrices @ (flat - flat.mean(-1, keepdim=True))
    return y.reshape(x.shape[1], x.shape[0], *x.shape[2:]).movedim(0, 1)


def covariance(x, groups):
    flat = x.movedim(1, 0).reshape(groups, x.shape[1] // groups, -1)
    return torch.stack([torch.cov(part, correction=0) for part in flat])


@pytest.mark.parametrize("groups", [1, 2])
def test_decorrelated_batchnorm_leaves_no_correlation(groups):
    module, x = moved(nk.create("decorrelated-batchnorm", 6, num_groups=groups, dtype=D)), rand(7, 6, 3, 2)
    x = x + 2 * x.roll(1, 1)
    spread = covariance(x, groups) + 1e-3 * torch.eye(6 // groups, dtype=D)
    u, s, _ = torch.linalg.svd(spread)
    root = u @ torch.diag_embed(s.rsqrt()) @ u.mT
    want = whitened(x, root, groups) * column(module.weight) + column(module.bias)
    torch.testing.assert_close(module(x), want)
    torch.testing.assert_close(module.running_projection, 0.9 * torch.eye(6 // groups, dtype=D) + 0.1 * root)
    plain = nk.create("decorrelated-batchnorm", 6, num_groups=groups, eps=0.0, affine=False, dtype=D)
    torch.testing.assert_close(covariance(plain(x), groups), torch.eye(6 // groups, dtype=D).expand(groups, -1, -1))


def test_the_inverse_root_has_derivatives_where_eigenvalues_are_equal():
    from normkit.activation.batch.decorrelated_batchnorm import inverse_root

    raw = torch.diag(torch.tensor([2.0, 2.0, 2.0, 5.0], dtype=D)) + 0.0

    def root(a):
        return inverse_root(((a + a.mT) / 2)[None])[0]

    assert torch.autograd.gradcheck(root, raw.requires_grad_())
    assert torch.autograd.gradgradcheck(root, raw)


@pytest.mark.parametrize("groups, iterations", [(1, 5), (3, 2)])
def test_iternorm_iterates(groups, iterations):
    module = nk.create("iternorm", 6, num_groups=groups, iterations=iterations, dtype=D)
    x = rand(7, 6, 3, 2)
    spread = covariance(x, groups) + 1e-5 * torch.eye(6 // groups, dtype=D)
    matrices = []
    for s in spread:
        p, scaled = torch.eye(len(s), dtype=D), s / s.trace()
        for _ in range(iterations):
            p = (3 * p - torch.linalg.matrix_power(p, 3) @ scaled) / 2
        matrices.append(p / s.trace().sqrt())
    want = torch.stack(matrices)
    torch.testing.assert_close(
        moved(module)(x), whitened(x, want, groups) * column(module.weight) + column(module.bias)
    )
    torch.testing.assert_close(module.running_wm, 0.9 * torch.eye(6 // groups, dtype=D) + 0.1 * want)


def test_iternorm_with_many_iterations_is_decorrelated_batchnorm():
    x = rand(9, 4, 5)
    want = nk.create("decorrelated-batchnorm", 4, eps=1e-5, dtype=D)(x)
    torch.testing.assert_close(nk.create("iternorm", 4, iterations=25, dtype=D)(x), want)


def test_a_batch_norms_state_is_frozen():
    trained = torch.nn.BatchNorm2d(3).double()
    trained(rand(4, 3, 5, 5))
    moved(trained)
    frozen = nk.FrozenBatchNorm2d(3, dtype=D)
    frozen.load_state_dict(trained.state_dict())
    torch.testing.assert_close(frozen(rand(2, 3, 4, 4, seed=9)), trained.eval()(rand(2, 3, 4, 4, seed=9)))
    assert not list(frozen.parameters())


def test_frozen_batchnorm_is_torchvisions():
    let_torchvision_load()
    peer = pytest.importorskip("torchvision.ops").FrozenBatchNorm2d(3, 1e-3).double()
    peer.load_state_dict({"weight": rand(3), "bias": rand(3), "running_mean": rand(3), "running_var": rand(3).exp()})
    norm = nk.FrozenBatchNorm(3, 1e-3, dtype=D)
    norm.load_state_dict(peer.state_dict())
    torch.testing.assert_close(norm(rand(2, 3, 4, 5)), peer(rand(2, 3, 4, 5)))


def test_mean_only_batchnorm_leaves_the_scale():
    module, x = moved(nk.create("mean-only-batchnorm", 3, dtype=D)), 3 + 5 * rand(4, 3, 2, 5)
    want = x - column(x.mean((0, 2, 3))) + column(module.bias)
    torch.testing.assert_close(module(x), want)
    torch.testing.assert_close(module.running_mean, 0.1 * x.mean((0, 2, 3)))
    torch.testing.assert_close(module.eval()(x), x - column(module.running_mean) + column(module.bias))


@pytest.mark.parametrize("shape", [(6, 4), (3, 5, 4), (2, 3, 5, 4)])
def test_a_batch_norm_of_tokens_is_the_one_with_its_axes_moved(shape):
    tokens = moved(nk.create("batchnorm", 4, channels_last=True, dtype=D))
    plain = moved(nk.create("batchnorm", 4, dtype=D))
    x = rand(*shape)
    for mode in (True, False):
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, want = tokens.train(mode)(ours), plain.train(mode)(theirs.movedim(-1, 1)).movedim(1, -1)
        assert y.is_contiguous()
        torch.testing.assert_close(y, want)
        sent = rand(*shape, seed=5)
        torch.testing.assert_close(torch.autograd.grad(y, ours, sent), torch.autograd.grad(want, theirs, sent))
    torch.testing.assert_close(tokens.state_dict(), plain.state_dict())
    assert tokens.num_batches_tracked == 1


def test_tokens_that_a_batch_norm_cannot_take_are_reported():
    norm = nk.create("batchnorm", 4, channels_last=True)
    with pytest.raises(ValueError, match=r"BatchNorm: x must have at least 2 axes and end in 4 features, .* \(4,\)"):
        norm(torch.ones(4))
    with pytest.raises(ValueError, match=r"end in 4 features, but its shape is \(2, 4, 5\)"):
        norm(torch.ones(2, 4, 5))


def test_evonorm_by_timms_name_has_timms_defaults():
    let_torchvision_load()
    layers = pytest.importorskip("timm.layers")
    norm, peer = nk.EvoNorm2dB0(3, dtype=D), layers.EvoNorm2dB0(3).double()
    x = 0.05 * torch.randn(4, 3, 5, 6, dtype=D, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(norm(x), peer(x.clone()), rtol=1e-5, atol=1e-7)  # timm's statistics are in float32
    torch.testing.assert_close(norm.running_var, peer.running_var, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(norm.eval()(x), peer.eval()(x.clone()), rtol=1e-5, atol=1e-7)
