"""Norms of today's models: what their pages promise, against equations written a second time."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normkit as nk

D = torch.float64


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=D)


def moved(module, by=0.5):
    """A module whose parameters are no longer where they start."""
    with torch.no_grad():
        for at, parameter in enumerate(module.parameters()):
            parameter.add_(by * rand(*parameter.shape, seed=100 + at))
    return module.double()


NAMES = {
    "AutoformerLayernorm": "seasonal-layernorm",
    "AutoformerMeanScaler": "mean-scale-norm",
    "TimeSeriesMeanScaler": "mean-scale-norm",
    "InformerStdScaler": "std-scale-norm",
    "PeAudioMaskedGroupNorm": "masked-groupnorm",
    "Gemma3nAudioCumulativeGroupNorm": "cumulative-groupnorm",
    "SD35AdaLayerNormZeroX": "adaln-zero-dual",
    "CogVideoXLayerNormZero": "adaln-zero-two-stream",
    "LuminaRMSNormZero": "adaptive-rmsnorm-zero",
    "CosmosAdaLayerNormZero": "adaln-lora",
    "ChromaAdaLayerNormZeroPruned": "adaln-single",
    "EsmFold2AdaptiveLayerNorm": "adaln-alphafold3",
    "SpatialNorm": "spatial-norm",
    "LigerPolyNorm": "polynorm",
    "LigerModulatedRMSNorm": "modulated-rmsnorm",
}


@pytest.mark.parametrize("typed", NAMES)
def test_class_names_of_other_libraries_find_them(typed):
    assert nk.card(typed).name == NAMES[typed]


def test_adaln_continuous_is_adaptive_layernorm_with_halves_swapped():
    module = moved(nk.create("adaln-continuous", 4, condition_features=6, affine=False, eps=1e-6))
    other = nk.create("adaptive-layernorm", 4, condition_features=6, dtype=D)
    with torch.no_grad():
        other.modulation.weight.copy_(module.modulation.weight.roll(4, 0))
        other.modulation.bias.copy_(module.modulation.bias.roll(4, 0))
    x, condition = rand(2, 5, 4), rand(2, 6, seed=1)
    torch.testing.assert_close(module(x, condition), other(x, condition))


def test_adaln_continuous_without_bias_has_none_anywhere():
    assert set(nk.create("adaln-continuous", 4, bias=False).state_dict()) == {"weight", "modulation.weight"}
    assert set(nk.create("adaln-continuous", 4, norm="rmsnorm", affine=False).state_dict()) == {
        "modulation.weight",
        "modulation.bias",
    }


@pytest.mark.parametrize("each", [(), (5,)])
@pytest.mark.parametrize("activation", [True, False])
@pytest.mark.parametrize("vectors", ["both", "scale", "shift"])
def test_adaln_continuous_takes_scale_or_shift_alone_from_samples_or_tokens(vectors, activation, each):
    options = {"affine": False, "eps": 1e-6, "activation": activation, "vectors": vectors}
    module = moved(nk.create("adaln-continuous", 4, condition_features=6, **options))
    x, condition = rand(2, 5, 4), rand(2, *each, 6, seed=1)
    made = module.modulation(F.silu(condition) if activation else condition)
    made = made if each else made.unsqueeze(1)
    h, zero = F.layer_norm(x, (4,), eps=1e-6), torch.zeros_like(x)
    scale, shift = {"both": made.chunk(2, -1), "scale": (made, zero), "shift": (zero, made)}[vectors]
    torch.testing.assert_close(module(x, condition), h * (1 + scale) + shift)


def test_a_condition_of_each_token_has_as_many_tokens():
    module = nk.create("adaln-continuous", 4, condition_features=6, dtype=D)
    with pytest.raises(ValueError, match="condition"):
        module(rand(2, 5, 4), rand(2, 4, 6))


def test_adaptive_rmsnorm_zero_without_a_gain_takes_any_condition():
    module = moved(nk.create("MochiRMSNormZero", 4, condition_features=6))
    assert set(module.state_dict()) == {"modulation.weight", "modulation.bias"}
    x, condition = rand(2, 5, 4), rand(2, 6, seed=1)
    scale, *rest = module.modulation(F.silu(condition)).chunk(4, -1)
    y, *others = module(x, condition)
    torch.testing.assert_close(y, F.rms_norm(x, (4,), eps=1e-5) * (1 + scale.unsqueeze(1)))
    torch.testing.assert_close(others, rest)


def test_a_block_of_adaln_zero_dual_starts_as_the_identity():
    x = rand(2, 3, 4)
    y, gate, _, _, gate2, y3, gate3 = nk.create("adaln-zero-dual", 4, dtype=D)(x, rand(2, 4, seed=1))
    assert not any(part.any() for part in (gate, gate2, gate3))
    for part in (y, y3):
        torch.testing.assert_close(part, F.layer_norm(x, (4,), eps=1e-6))


def test_the_condition_of_adaptive_rmsnorm_zero_has_at_most_1024_features():
    assert nk.create("adaptive-rmsnorm-zero", 1030, device="meta").modulation.weight.shape == (4 * 1030, 1024)
    assert nk.create("adaptive-rmsnorm-zero", 6).modulation.weight.shape == (24, 6)


def test_two_streams_of_other_sizes_come_out_alike():
    module = nk.create("adaln-zero-two-stream", 8, dtype=D)
    x, context = rand(2, 5, 8), 100 * rand(2, 3, 8, seed=1)
    y, other, _, _ = module(x, context, torch.zeros(2, 8, dtype=D))
    with pytest.raises(ValueError, match="context"):
        module(x, context[:1], torch.zeros(2, 8, dtype=D))
    made = module.modulation.bias.view(6, 8)
    for part, shift, scale in ((y, made[0], made[1]), (other, made[3], made[4])):
        n = (part - shift) / (1 + scale)
        torch.testing.assert_close(n.var(-1, correction=0), torch.ones(part.shape[:2], dtype=D), rtol=1e-4, atol=0)


def test_interleaved_vectors_of_two_streams_are_those_in_blocks_reordered():
    options = {"condition_features": 6, "sublayers": 2, "dtype": D}
    module, other = (nk.create("adaln-zero-two-stream", 4, interleaved=flag, **options) for flag in (False, True))
    with torch.no_grad():
        for ours, theirs in zip(other.modulation.parameters(), module.modulation.parameters(), strict=True):
            ours.copy_(theirs.unflatten(0, (2, 6, 4)).transpose(0, 1).flatten(0, 2))
    given = rand(2, 5, 4), rand(2, 3, 4, seed=1), rand(2, 6, seed=2)
    torch.testing.assert_close(other(*given), module(*given))


def test_without_shared_vectors_adaln_lora_takes_zeros():
    module = nk.create("adaln-lora", 4, condition_features=6, rank=3, dtype=D)
    x, condition, shared = rand(2, 5, 4), rand(2, 6, seed=1), rand(2, 12, seed=2)
    torch.testing.assert_close(module(x, condition), module(x, condition, torch.zeros_like(shared)), rtol=0, atol=0)
    last = nk.create("adaln-lora", 4, condition_features=6, rank=3, gated=False, dtype=D)
    assert torch.equal(last(x, condition, shared)[0], last(x, condition, shared * (torch.arange(12) < 8))[0])
    with pytest.raises(ValueError, match="shared"):
        last(x, condition, shared[:, :8])


def test_a_time_for_both_rows_is_that_time_twice():
    module = nk.create("adaln-single-last", 4, dtype=D)
    x, time = rand(2, 5, 4), rand(2, 5, 4, seed=1)
    torch.testing.assert_close(module(x, time), module(x, torch.cat([time, time], -1)))
    with pytest.raises(ValueError, match="time"):
        module(x, rand(2, 3))


def test_a_spatial_norm_takes_norms_of_images_alone():
    for norm in ("layernorm", "adaptive-groupnorm"):
        with pytest.raises(ValueError, match="norm"):
            nk.create("spatial-norm", 4, map_channels=3, norm=norm)
    with pytest.raises(ValueError, match="map"):
        nk.create("spatial-norm", 4, map_channels=3, norm="groupnorm:num_groups=2")(
            torch.ones(1, 4, 5, 5), torch.ones(1, 3, 5)
        )


SHAPES = [
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (2, 3, 4)),
    ((2, 3, 4), (2, 4)),
    ((6, 4), (2, 4)),
    ((6, 4), (6, 4)),
    ((4,), (4,)),
]


@pytest.mark.parametrize(("shape", "given"), SHAPES)
def test_modulated_rmsnorm_takes_each_shape(shape, given):
    x, scale, shift = rand(*shape), rand(*given, seed=1), rand(*given, seed=2)
    module = moved(nk.create("modulated-rmsnorm", 4, offset=1.0))
    n = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + module.weight)
    rows = x.numel() // 4 // (scale.numel() // 4)
    gain, added = (part.reshape(-1, 4).repeat_interleave(rows, 0) for part in (scale, shift))
    want = n.reshape(-1, 4) * (1 + gain) + added
    torch.testing.assert_close(module(x, scale, shift), want.view(shape))
    torch.testing.assert_close(module(x, scale), (n.reshape(-1, 4) * (1 + gain)).view(shape))


@pytest.mark.parametrize("given", [(3,), (3, 4), (4, 4), (0, 4), (2, 1, 4)])
def test_modulated_rmsnorm_names_a_shape_that_fits_nothing(given):
    module = nk.create("modulated-rmsnorm", 4, dtype=D)
    x = rand(2, 5, 4) if given != (4, 4) else rand(6, 4)
    with pytest.raises(ValueError, match=r"scale must be .* scale \("):
        module(x, torch.zeros(given, dtype=D))
    with pytest.raises(ValueError, match="shift must be"):
        module(x, torch.zeros(4, dtype=D), torch.zeros(given, dtype=D))


def test_scalers_bring_a_forecast_back_and_ignore_what_was_not_observed():
    x, observed = 50 + 10 * rand(3, 6, 2), rand(3, 6, 2, seed=1) > -0.5
    spoiled = torch.where(observed, x, torch.nan)
    for name in ("mean-scale-norm", "std-scale-norm"):
        module = nk.create(name)
        y, location, scale = module(x, observed)
        torch.testing.assert_close(module.denormalize(y, location, scale), x)
        torch.testing.assert_close(module(spoiled, observed)[1:], (location, scale))


def test_mean_scaler_of_nothing_observed_has_the_scale_of_its_neighbours_or_the_floor():
    x, observed = rand(2, 4, 1), torch.ones(2, 4, 1)
    observed[0] = 0
    *_, scale = nk.create("mean-scale-norm")(x, observed)
    torch.testing.assert_close(scale[0], scale[1])
    assert nk.create("mean-scale-norm", default_scale=3.0)(x, observed)[2][0] == 3
    assert (nk.create("mean-scale-norm", minimum_scale=0.25)(x, observed * 0)[2] == 0.25).all()


def test_bhyt_takes_the_variance_that_bhyt_variance_predicts():
    first, second = (moved(nk.create("bhyt", 8), 0.1) for _ in range(2))
    predict = nk.create("bhyt-variance", sequence_length=16, heads=4, key_value_heads=2, gain=True)
    x, value, out = rand(2, 3, 8), rand(4, 8, seed=1), rand(8, 8, seed=2)
    variance, predicted = predict(x, value, out, first.bound, first.weight)
    torch.testing.assert_close(first(x, variance), first(x))
    torch.testing.assert_close(predict.predict(x, predict.factor(value, out), first.bound, first.weight)[1], predicted)
    v = value.view(2, 2, 8).repeat_interleave(2, 0).reshape(8, 8)
    c = (out @ v).square().sum() / (16 * 8)
    want = x.square().mean(-1, keepdim=True) + c * (first.bound * 0.1) ** 2 * first.weight.square().mean()
    torch.testing.assert_close(predicted, want.detach())
    assert not predicted.requires_grad
    y = second.weight * torch.tanh(second.bound * 0.1 * x / (predicted + 1e-6).sqrt())
    torch.testing.assert_close(second(x, predicted), y)


def test_seednorm_starts_as_rmsnorm_and_beta_alone_learns_first():
    module, x = nk.create("seednorm", 8, heads=2, dtype=D), rand(5, 8)
    torch.testing.assert_close(module(x), nk.create("rmsnorm", 8, dtype=D)(x))
    module(x).square().sum().backward()
    assert module.beta.grad.any()
    assert not module.alpha.grad.any()
    with pytest.raises(ValueError, match="heads=3 does not divide dim=8"):
        nk.create("seednorm", 8, heads=3)


def test_polynorm_of_half_precision_does_not_overflow():
    x = torch.tensor([[50.0, -100.0, 300.0, 1000.0]])
    torch.testing.assert_close(nk.create("polynorm")(x.half()).float(), nk.create("polynorm")(x), rtol=2e-3, atol=2e-3)


def test_seasonal_layernorm_has_no_mean_over_time_and_none_for_its_bias():
    module, x = moved(nk.create("seasonal-layernorm", 4)), rand(2, 7, 4) + torch.arange(7, dtype=D)[:, None]
    y = module(x)
    torch.testing.assert_close(y.mean(1), torch.zeros(2, 4, dtype=D), rtol=0, atol=1e-12)
    h = F.layer_norm(x, (4,), module.weight, module.bias)
    torch.testing.assert_close(y, h - h.mean(1, keepdim=True))
    y.sum().backward()
    assert module.bias.grad is None
    assert not module(x[:, :1]).any()


def test_masked_groupnorm_does_not_see_padding():
    module, x = moved(nk.create("masked-groupnorm", 2, 4)), rand(2, 4, 5)
    padded = torch.cat([x, torch.full((2, 4, 3), torch.nan, dtype=D)], 2).requires_grad_()
    mask = torch.arange(8).expand(2, 8) < 5
    y = module(padded, mask)
    torch.testing.assert_close(y[..., :5], F.group_norm(x, 2, module.weight, module.bias))
    torch.testing.assert_close(module(x), y[..., :5])
    assert not y[..., 5:].any()
    y.square().sum().backward()
    assert not padded.grad[..., 5:].any()
    assert padded.grad[..., :5].isfinite().all()
    assert not module(padded, mask * torch.tensor([[0.0], [1.0]]))[0].any()


def test_masked_groupnorm_learns_without_eps_from_a_batch_where_a_sample_has_no_valid_step():
    module, x = moved(nk.create("masked-groupnorm", 2, 4, eps=0.0)), rand(2, 4, 5).requires_grad_()
    wrt, mask = (x, module.weight, module.bias), torch.tensor([[1.0], [0.0]]).expand(2, 5)
    grads = torch.autograd.grad(module(x, mask).square().sum(), wrt)
    assert grads[1].abs().min() > 0.1
    torch.testing.assert_close(grads, torch.autograd.grad(module(x[:1]).square().sum(), wrt))


@pytest.mark.parametrize("cuts", [(3, 4), (1, 1, 5), (0, 7), (7, 0)])
def test_cumulative_groupnorm_gives_a_stream_what_it_gives_the_whole(cuts):
    module, x = moved(nk.create("cumulative-groupnorm", 4)), 1e3 + rand(2, 7, 3, 4)
    whole, past, pieces = module(x), None, []
    for piece in x.split(list(cuts), 1):
        y, past = module.stream(piece, past)
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, 1), whole)
    torch.testing.assert_close(module(x[:, :5]), whole[:, :5])


def test_cumulative_groupnorm_keeps_its_digits_far_from_zero():
    module, x = nk.create("cumulative-groupnorm", 4), (rand(2, 300, 3, 4) + 1e4).float()
    exact = nk.create("cumulative-groupnorm", 4)(x.double())
    torch.testing.assert_close(module(x).double(), exact, rtol=1e-5, atol=1e-5)


def tapered():
    torch.manual_seed(0)
    norm = moved(nk.create("tapernorm", 6, decay=0.9), 0.1)
    for seed in range(3):
        norm.observe(rand(20, 6, seed=seed))
    norm.calibrate()
    return norm


def test_tapernorm_is_an_rmsnorm_that_becomes_a_scaling():
    norm, x = tapered(), rand(4, 6, seed=9)
    n = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), n)
    torch.testing.assert_close(norm(x, 0.0), norm.scale * x * norm.weight)
    torch.testing.assert_close(norm(x, torch.tensor([0.25])), 0.25 * n + 0.75 * norm.scale * x * norm.weight)
    norm.gate.fill_(0.5)
    torch.testing.assert_close(norm(x), norm(x, 0.5))


def test_the_scale_of_tapernorm_is_that_of_least_squares():
    norm, x = nk.create("tapernorm", 6, dtype=D), rand(40, 6)
    norm.observe(x)
    norm.calibrate()
    n = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm.scale, (n * x).sum() / x.square().sum())


def test_tapernorm_without_a_batch_is_not_calibrated():
    norm = nk.create("tapernorm", 6)
    norm.observe(torch.zeros(0, 6))
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    with pytest.raises(RuntimeError, match="calibrate needs batches in observe"):
        norm.calibrate()
    with pytest.raises(ValueError, match=r"TaperNorm: x must .*\(2, 5\)"):
        norm.observe(rand(2, 5))
    assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())
    for gate in (1.5, -0.1, float("nan")):
        with pytest.raises(ValueError, match="gate must lie in"):
            norm(torch.ones(2, 6), gate)
    with pytest.raises(ValueError, match="gate must have shape"):
        norm(torch.ones(2, 6), torch.ones(2))


def test_the_gate_of_tapernorm_goes_down_half_a_cosine():
    assert [nk.TaperNorm.gate_at(step, 100, 200) for step in (0, 100, 150, 200, 900)] == [1, 1, 0.5, 0, 0]
    assert [nk.TaperNorm.gate_at(step, 30, 200) for step in (0, 30, 115, 200)] == [1, 1, 0.5, 0]
    assert [nk.TaperNorm.gate_at(step, 50, 150) for step in (0, 50, 100, 150)] == [1, 1, 0.5, 0]
    with pytest.raises(ValueError, match="end must be at least 201"):
        nk.TaperNorm.gate_at(5, 200, 200)


def test_anchor_of_tapernorm_pulls_lengths_to_a_target():
    norm, x = nk.create("tapernorm", 6, dtype=D), rand(4, 6)
    r = (x.square().mean(-1) + 1e-6).sqrt()
    torch.testing.assert_close(norm.anchor(x, 2.0), (r - 2).square().mean())


class Residual(nn.Module):
    """Two branches behind one norm, whose input is read elsewhere too."""

    def __init__(self, norm):
        super().__init__()
        self.norm, self.left, self.right = norm, nn.Linear(6, 6, dtype=D), nn.Linear(6, 6, bias=False, dtype=D)

    def forward(self, x):
        h = self.norm(x)
        return x + self.left(h) * self.right(h)


def test_a_tapered_norm_folds_into_its_readers():
    model, x = Residual(tapered()).eval(), rand(4, 6, seed=9)
    [open_still] = nk.fold(model, x)
    assert "not a scale and a shift" in open_still.why_not
    model.norm.gate.zero_()
    want = model(x)
    [change] = nk.fold(model, x)
    assert change.became == "into left, right"
    assert isinstance(model.norm, nn.Identity)
    torch.testing.assert_close(model(x), want)


def test_the_factor_of_bhyt_variance_names_the_weight_that_is_no_matrix():
    predict = nk.create("bhyt-variance", sequence_length=16, heads=4, key_value_heads=2)
    with pytest.raises(ValueError, match="value_weight must have shape"):
        predict.factor(torch.ones(8), torch.ones(8, 8))
