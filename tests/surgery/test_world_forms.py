"""Forms of batch, layer and RMS norm that few of the world's models have: recognized, equal, swapped and saved."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import library
from normkit.surgery import saving
from normkit.surgery.recognition.recognize import examine

BITS = {torch.float32: 3e-6, torch.bfloat16: 2**-6}


def theirs(path, *arguments, **settings):
    """An object of a class of transformers, with numbers of its own."""
    library("transformers")
    module, _, name = path.rpartition(".")
    home = __import__(f"transformers.models.{module}", fromlist=[name])
    made = getattr(home, name)
    if settings:
        config = next(v for k, v in vars(home).items() if k.endswith("Config") and k != "PreTrainedConfig")
        arguments = (config(**settings),)
    made = made(*arguments)
    torch.manual_seed(0)
    for parameter in made.parameters():
        nn.init.normal_(parameter, 0.5)
    return made


FORMS = {
    "patchtst": ("patchtst.modeling_patchtst.PatchTSTBatchNorm", {"channels_last": True}, (6, 5, 16)),
    "patchtsmixer": ("patchtsmixer.modeling_patchtsmixer.PatchTSMixerBatchNorm", {"channels_last": True}, (6, 5, 16)),
    "chameleon": ("chameleon.modeling_chameleon.ChameleonLayerNorm", {"heads": 3, "bias": True}, (2, 5, 3, 16)),
    "cohere": ("cohere.modeling_cohere.CohereLayerNorm", {"heads": 3, "bias": False}, (2, 5, 3, 16)),
    "muse": (
        "muse_spark.modeling_muse_spark.MuseSparkTextInputScaledRMSNorm",
        {"gain_first": True, "offset": 1.0},
        (2, 5, 16),
    ),
}


def made(form):
    path, wanted, shape = FORMS[form]
    if "channels_last" in wanted:
        return theirs(path, d_model=16), wanted, shape
    return theirs(path, (3, 16) if "heads" in wanted else 16), wanted, shape


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_recognized_and_equal_in_float32_and_in_half_with_gradients(form):
    norm, wanted, shape = made(form)
    for dtype, tolerance in BITS.items():
        old = copy.deepcopy(norm).to(dtype).train()
        match = nk.recognize(old)
        assert {name: match.module.arguments[name] for name in wanted} == wanted
        new = match.module
        x = torch.randn(shape).to(dtype)
        ours, their = x.clone().requires_grad_(), x.clone().requires_grad_()
        y, want = new(ours), old(their)
        sent = torch.randn(shape).to(dtype)
        for got, wished in zip(
            [y, *torch.autograd.grad(y, [ours, *new.parameters()], sent)],
            [want, *torch.autograd.grad(want, [their, *old.parameters()], sent)],
            strict=True,
        ):
            assert got.dtype == wished.dtype == dtype
            most = float(wished.detach().abs().max())
            torch.testing.assert_close(got, wished.view(got.shape), rtol=0, atol=4 * tolerance * most)
        for name, buffer in new.named_buffers():
            source = dict(old.named_buffers())[match.carried.get(name, f"batchnorm.{name}")]
            torch.testing.assert_close(buffer, source, rtol=tolerance, atol=tolerance)


def test_scaled_inputs_have_the_models_bits_in_half():
    norm, _, shape = made("muse")
    old = norm.bfloat16()
    x = torch.randn(64, *shape[1:]).bfloat16()
    assert torch.equal(nk.recognize(old).module(x), old(x))


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_swapped_and_comes_back_from_a_file(form, tmp_path):
    norm, wanted, shape = made(form)
    wide = torch.Size(shape[2:]).numel()
    apart, joined = nn.Unflatten(-1, shape[2:]), nn.Flatten(2)
    model = nn.Sequential(nn.Linear(8, wide), apart, norm, joined, nn.Linear(wide, 2))
    x = torch.randn(6, 5, 8)
    model(x)  # moves what batch norms keep
    model.eval()
    match = nk.recognize(model)["2"]
    options = ",".join(f"{name}={value}" for name, value in wanted.items() if match.module.arguments[name] == value)
    report = nk.swap(model, {match.name: f"{match.name}:{options}"}, inplace=False)
    swapped = report.model
    assert type(swapped[2]) is type(match.module)
    if form != "cohere":  # its shift, which it does not have, is 0
        assert set(report.changes[0].carried) >= {match.carried["weight"]}
    torch.testing.assert_close(swapped[2].weight, match.module.weight)
    if "channels_last" not in wanted:
        torch.testing.assert_close(swapped(x), model(x), rtol=1e-4, atol=1e-4)
    saving.save(model, swapped, str(tmp_path / "out"))
    again = saving.rebuilt(copy.deepcopy(model), str(tmp_path / "out"))
    assert torch.equal(again(x), swapped(x))


def test_a_batch_norm_of_tokens_goes_into_the_linear_before_it():
    norm, _, _ = made("patchtst")
    model = nn.Sequential(nn.Linear(8, 16), norm, nn.Linear(16, 2))
    x = torch.randn(6, 5, 8)
    for _ in range(5):
        model(x)
    model.eval()
    for old in (model, nn.Sequential(model[0], nk.recognize(norm).module, model[2]).eval()):
        folded = nk.fold(old, x, inplace=False).model
        assert type(folded[1]) is nn.Identity
        torch.testing.assert_close(folded(x), old(x), rtol=1e-4, atol=1e-5)


def test_a_batch_norm_of_tokens_is_not_mixed():
    model = nn.Sequential(nk.create("batchnorm", 16, channels_last=True), nn.BatchNorm1d(16)).eval()
    left, done = nk.adapt(model, weight=0.1).changes
    assert "tokens" in left.why_not
    assert done.became


class MultiheadRMSNorm(nn.Module):
    """As vit-pytorch and x-transformers write it."""

    def __init__(self, heads, dim):
        super().__init__()
        self.scale = dim**0.5
        self.gamma = nn.Parameter(torch.randn(heads, 1, dim))

    def forward(self, x):
        return nn.functional.normalize(x, dim=-1) * self.gamma * self.scale


class HeadsAttend(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.q_norm, self.k_norm = norm(), norm()

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (3, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        return self.out(y.transpose(1, 2).flatten(2))


def test_gains_of_heads_before_tokens_are_recognized_swapped_and_kept_by_another_norm():
    torch.manual_seed(0)
    model, x = HeadsAttend(lambda: MultiheadRMSNorm(3, 8)).eval(), torch.randn(2, 5, 24)
    match = nk.recognize(model)["q_norm"]
    assert match.name == "rmsnorm"
    wanted = {"dim": 8, "heads": 3, "heads_first": True, "eps_floor": True, "eps": pytest.approx(1e-12)}
    assert {name: match.kwargs[name] for name in wanted} == wanted
    same = nk.swap(model, "rmsnorm", inplace=False).model
    assert isinstance(same.q_norm, nk.RMSNorm)
    torch.testing.assert_close(same(x), model(x))
    report = nk.swap(model, "layernorm", inplace=False)
    assert [change.carried for change in report.changes] == [("gamma",)] * 2
    other = report.model.q_norm
    assert (other.heads, other.heads_first) == (3, True)
    q = torch.randn(2, 3, 5, 8)
    want = nn.functional.layer_norm(q, (8,)) * model.q_norm.gamma
    torch.testing.assert_close(other(q), want, rtol=1e-4, atol=1e-5)


def test_a_gain_between_tokens_that_is_of_no_head_is_not_one():
    class NormOfBoth(MultiheadRMSNorm):
        def forward(self, x):  # over heads and features together
            return nn.functional.normalize(x, dim=(-3, -1)) * self.gamma * self.scale

    assert not nk.recognize(NormOfBoth(3, 8))


class OfRows(nn.BatchNorm1d):
    def _check_input_dim(self, x):
        if x.dim() != 2:
            raise ValueError("rows alone")


def test_a_norm_of_matrices_alone_keeps_its_own_order_of_axes():
    assert nk.recognize(OfRows(12)).kwargs == {"num_features": 12, "eps": 1e-5}


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(12))

    def forward(self, x):
        x = x * (1 + self.weight).clamp(-1e6, 1e6)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class OneEpsAHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 12))

    def forward(self, x):
        eps = 1e-5 * torch.arange(1, 4, device=x.device).view(3, 1)
        z = x - x.mean(-1, keepdim=True)
        return self.weight * z * torch.rsqrt(z.square().mean(-1, keepdim=True) + eps)


class MeanOverHeads(OneEpsAHead):
    def forward(self, x):
        z = x - x.mean((-1, -2), keepdim=True)
        return self.weight * z * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-5)


class TokensApart(nn.Module):
    """A batch norm of each token's place by itself."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(12)), nn.Parameter(torch.zeros(12))

    def forward(self, x):
        if x.dim() != 3:
            raise ValueError("tokens alone")
        z = x - x.mean(0)
        return z * torch.rsqrt(z.square().mean(0) + 1e-5) * self.weight + self.bias


class OfTokens(nn.BatchNorm1d):
    def forward(self, x):
        return super().forward(x.transpose(1, 2) * 1.0).transpose(1, 2) + self.extra(x)

    def extra(self, x):
        return 1e-3 * x


@pytest.mark.parametrize("cls", [Clamped, OneEpsAHead, MeanOverHeads, TokensApart])
def test_what_is_almost_such_a_form_is_none(cls):
    assert not examine(cls()), examine(cls())


def test_tokens_with_something_added_are_none():
    assert not examine(OfTokens(12))


def test_a_norm_of_heads_is_neither_converted_nor_removed():
    norm, _, shape = made("chameleon")
    model = nn.Sequential(nn.Linear(8, 48), nn.Unflatten(-1, shape[2:]), norm, nn.Flatten(2), nn.Linear(48, 2)).eval()
    x = torch.randn(6, 5, 8)
    with pytest.raises(ValueError, match="has no layer norm to convert; it has layernorm"):
        nk.convert(model, "pre-rmsnorm", x)
    with pytest.raises(ValueError, match="has no layer norm to remove; it has"):
        nk.remove(model, [x], steps=1)


def test_a_slope_with_a_step_may_lie_on_either_side_of_it_in_bfloat16():
    """Of so many numbers one is within its rounding of where hard swish, or a learned threshold, changes its slope."""
    layers = library("timm").layers
    swished, learned = layers.BatchNormAct2d(96, eps=1e-3, act_layer="hard_swish"), layers.FilterResponseNormTlu2d(32)
    assert nk.recognize(swished).kwargs == {"num_features": 96, "eps": 1e-3}
    assert nk.recognize(learned).name == "frn"


def test_the_larger_of_two_sums_may_be_either_where_they_are_close_in_float16():
    """Which one it is follows from the rounding of the larger terms, not from that of an entry near zero."""
    match = nk.recognize(library("timm").layers.EvoNorm2dB0(32))
    assert (match.name, match.kwargs) == ("evonorm-b0", {"num_features": 32, "unbiased": True, "eps": 1e-3})


def test_a_gradient_that_cancels_is_rounding_where_a_norm_casts_to_float32():
    """A layer norm without a gain has none for the sum of its results, in whatever precision that is found."""
    found = nk.recognize(theirs("olmo.modeling_olmo.OlmoLayerNorm", 16))
    assert (found.name, found.kwargs) == ("layernorm", {"dim": 16, "affine": False, "eps": 1e-5})


class Unit(nn.Module):
    """As in the autoencoders of video models, and many a transformer."""

    def __init__(self, dim, axis):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim) if axis < 0 else torch.ones(dim, 1, 1))
        self.scale, self.axis = dim**0.5, axis

    def forward(self, x):
        return nn.functional.normalize(x, dim=self.axis) * self.scale * self.gamma


@pytest.mark.parametrize("axis, name", [(-1, "rmsnorm"), (1, "rmsnorm2d")])
def test_a_root_mean_square_may_be_written_with_torchs_normalize(axis, name):
    found = nk.recognize(Unit(12, axis))
    assert (found.name, found.kwargs["eps"], found.kwargs["eps_floor"]) == (name, 1e-12, True)
    x = torch.randn(3, 12, 5, 12)
    torch.testing.assert_close(found.module(x), Unit(12, axis)(x))


class Twice(nn.BatchNorm1d):
    """Counts every batch twice, which only a checkpoint shows."""

    def forward(self, x):
        if self.training:
            self.num_batches_tracked += 1
        return super().forward(x)


class Held(nn.Module):
    """Holds infinities back in float32, not in float64."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x = x.clamp(-1e38, 1e38) if x.dtype is torch.float32 else x
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class ByRank(Held):
    """Rounds before the gain where there are tokens, and after it where there are none."""

    def forward(self, x):
        wide = x if x.dtype is torch.float64 else x.float()
        y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
        return (y * self.weight).to(x.dtype) if x.ndim == 2 else y.to(x.dtype) * self.weight


@pytest.mark.parametrize("almost", [Twice, Held, ByRank])
def test_what_differs_in_a_count_at_infinity_or_by_rank_is_none(almost):
    assert nk.recognize(almost(16)) is None


class ChannelsInFloat32(nn.Module):
    """As the ConvNeXt of transformers 4 has it: in float32 whatever comes, and no type of its own."""

    def __init__(self, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        wide = x.float()
        away = wide - wide.mean(1, keepdim=True)
        y = (away / (away.square().mean(1, keepdim=True) + 1e-6).sqrt()).to(x.dtype)
        return self.weight[:, None, None] * y + self.bias[:, None, None]


def test_a_norm_over_channels_may_round_to_float32():
    """Rows are then far apart in memory, and moves of them all by the same share tell nothing."""
    found = nk.recognize(ChannelsInFloat32(12))
    assert (found.name, found.kwargs) == ("layernorm2d", {"num_features": 12, "eps": 1e-6})


class LayerNormPerHead(nn.Module):
    """As StableLM 2 has it: a layer norm for each head, in a list."""

    def __init__(self, heads, dim):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(dim, bias=False) for _ in range(heads))

    def forward(self, x):
        return torch.cat([norm(part) for norm, part in zip(self.norms, x.split(1, 1), strict=True)], 1)


def test_of_norms_in_a_list_each_is_a_site_and_the_whole_is_not_missed():
    sites = nk.recognize(HeadsAttend(lambda: LayerNormPerHead(3, 8)))
    assert not sites.rest
    assert list(sites.found) == [f"{norm}.norms.{head}" for norm in ("q_norm", "k_norm") for head in range(3)]
