"""`nk.convert`: Pre-LN transformers become Pre-RMSNorm and Pre-CRMSNorm, exactly; post-norm ones are refused."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from near_misses import Layer
from torch import nn
from torch.nn import functional

import normkit as nk
from normkit.optional import library
from normkit.surgery import saving

TOKENS = torch.arange(10).view(2, 5)


class Block(nn.Module):
    def __init__(self, dim, post=False, peri=False):
        super().__init__()
        self.norm, self.post, self.peri = Layer(dim), post, peri
        self.up, self.down = nn.Linear(dim, 9), nn.Linear(9, dim)
        self.last = nn.LayerNorm(dim) if peri else nn.Identity()

    def forward(self, x):
        if self.post:
            return self.norm(x + self.down(self.up(x).relu()))
        return x + self.last(self.down(self.up(self.norm(x)).relu()))


class Model(nn.Module):
    """Tokens, positions and a class token; two blocks, a last norm and a head, perhaps tied to the embedding."""

    def __init__(self, *, tied=False, embedding_norm=False, dim=8, **block):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(12, dim), nn.Parameter(torch.randn(6, dim))
        self.first = nn.Parameter(torch.randn(1, 1, dim))
        self.embedding_norm = nn.LayerNorm(dim) if embedding_norm else nn.Identity()
        self.blocks = nn.Sequential(Block(dim, **block), Block(dim, **block))
        self.norm, self.head = nn.LayerNorm(dim, eps=1e-3), nn.Linear(dim, 12, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.embedding_norm(self.tokens(tokens))
        first = self.first.flatten().expand(len(x), 1, -1)  # as einops repeats a token
        x = torch.cat([first, x], 1) + self.positions
        return self.head(self.norm(self.blocks(x)))


def stirred(model):
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=g) + 0.3)
    return model.double().eval()


def layer_norms(model):
    return sum(isinstance(part, nn.LayerNorm | Layer) for part in model.modules())


@pytest.mark.parametrize(("to", "tied"), [("pre-rmsnorm", True), ("pre-crmsnorm", False)])
def test_a_pre_norm_model_gives_the_same_numbers_without_a_layer_norm(to, tied):
    model = stirred(Model(tied=tied))
    wanted = model(TOKENS)
    report = nk.convert(model, to, TOKENS)
    torch.testing.assert_close(model(TOKENS), wanted, rtol=1e-10, atol=1e-10)
    assert not layer_norms(model)
    told = {change.site: change.became for change in report}
    assert told["norm"] == told["blocks.0.norm"] == to.removeprefix("pre-")
    assert told["first"] == told["positions"] == told["blocks.1.down"] == "centred"
    assert told["tokens"] == ("centred, not tied to head.weight any more" if tied else "centred")
    assert model.tokens.weight.shape == (12, 8 if to == "pre-rmsnorm" else 7)
    stream = model.tokens(TOKENS)
    if to == "pre-rmsnorm":
        torch.testing.assert_close(stream.sum(-1), torch.zeros(2, 5, dtype=torch.float64))


def test_a_block_in_two_places_is_not_tied_to_itself():
    model = stirred(Model())
    model.blocks[1] = model.blocks[0]
    wanted = model(TOKENS)
    report = nk.convert(model, "pre-rmsnorm", TOKENS)
    torch.testing.assert_close(model(TOKENS), wanted, rtol=1e-10, atol=1e-10)
    assert {change.site: change.became for change in report}["blocks.0.down"] == "centred"


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("to", ["pre-rmsnorm", "pre-crmsnorm"])
def test_what_was_frozen_stays_so_and_what_was_trained_too(to, frozen):
    model = stirred(Model()).requires_grad_(not frozen)
    nk.convert(model, to, TOKENS)
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad is frozen} == set()


@pytest.mark.parametrize("trained", ["weight", "bias"])
@pytest.mark.parametrize("to", ["pre-rmsnorm", "pre-crmsnorm"])
def test_each_parameter_is_trained_afterwards_where_it_was_before(to, trained):
    model = stirred(Model(embedding_norm=True))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith(trained))
    nk.convert(model, to, TOKENS)
    flags = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    new = {"head.bias"} if to == "pre-crmsnorm" else set()  # the last norm's shift, trained as the head's weight is
    assert {"tokens.weight", "blocks.0.down.bias", "embedding_norm.norm.bias", *new} <= set(flags)
    wanted = {name: (trained == "weight" if name in new else name.endswith(trained)) for name in flags}
    assert flags == wanted


class Constant(nn.Module):
    """A layer norm whose shift is no parameter."""

    def __init__(self, wide):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(wide))
        self.register_buffer("beta", torch.zeros(wide))

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:], self.gamma, self.beta)


@pytest.mark.parametrize("by", [lambda m, x: nk.convert(m, "pre-rmsnorm", x), lambda m, x: nk.swap(m, "layernorm")])
def test_a_shift_that_was_a_buffer_is_not_trained_afterwards(by):
    model = nn.Sequential(nn.Linear(6, 8), Constant(8), nn.Linear(8, 4)).eval()
    by(model, torch.randn(2, 6))
    assert {name: p.requires_grad for name, p in model[1].named_parameters()} == {"weight": True, "bias": False}


def test_layers_that_lose_a_feature_are_named():
    changes = nk.convert(stirred(Model()), "pre-crmsnorm", TOKENS).changes
    assert [change.site for change in changes if change.became == "one feature less"] == [
        "blocks.0.up",
        "blocks.1.up",
        "head",
    ]


class Placed(nn.Module):
    """A model whose positions are no parameter."""

    def __init__(self):
        super().__init__()
        self.tokens, self.norm, self.head = nn.Embedding(12, 8), nn.LayerNorm(8), nn.Linear(8, 12)
        self.register_buffer("positions", torch.randn(5, 8))

    def forward(self, tokens):
        return self.head(self.norm(self.tokens(tokens) + self.positions))


@pytest.mark.parametrize("to", ["pre-rmsnorm", "pre-crmsnorm"])
def test_positions_that_were_a_buffer_stay_one_and_are_saved(to, tmp_path):
    model = stirred(Placed())
    wanted = model(TOKENS)
    new = nk.convert(model, to, TOKENS, inplace=False).model
    assert [name for name, _ in new.named_buffers()] == ["positions"]
    nk.save(new, tmp_path / "converted", original=model)
    again = saving.rebuilt(model, str(tmp_path / "converted"))
    torch.testing.assert_close(again(TOKENS), wanted, rtol=1e-9, atol=1e-9)


def test_a_model_that_was_converted_within_inference_mode_can_be_trained():
    model = stirred(Model())
    with torch.inference_mode():
        nk.convert(model, "pre-rmsnorm", TOKENS)
    assert not any(tensor.is_inference() for tensor in model.state_dict().values())


def test_weights_in_half_precision_are_centred_as_exactly_as_they_are_held():
    model = stirred(Model()).bfloat16()
    wanted = {name: model.get_parameter(name).double() for name in ("blocks.0.down.weight", "blocks.1.down.bias")}
    nk.convert(model, "pre-rmsnorm", TOKENS)
    for name, weight in wanted.items():
        assert torch.equal(model.get_parameter(name), (weight - weight.mean(0)).bfloat16())


@pytest.mark.parametrize(("to", "kind", "wide"), [("pre-rmsnorm", nk.RMSNorm, 8), ("pre-crmsnorm", nk.CRMSNorm, 7)])
@pytest.mark.parametrize("options", [{"embedding_norm": True}, {"peri": True}])
def test_a_norm_that_writes_to_the_stream_is_centred(options, to, kind, wide):
    model = stirred(Model(tied=to == "pre-rmsnorm", **options))
    wanted, copied = model(TOKENS), nk.convert(model, to, TOKENS, inplace=False).model
    torch.testing.assert_close(copied(TOKENS), wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model(TOKENS), wanted, rtol=0, atol=0)
    assert isinstance(copied.norm, kind)
    assert not any(part.training for part in copied.modules())
    if "embedding_norm" in options:
        stream = copied.embedding_norm(copied.tokens(TOKENS))
        assert copied.tokens.embedding_dim == 8
    else:
        stream = copied.tokens(TOKENS)
    assert stream.shape[-1] == wide
    if to == "pre-rmsnorm" and "embedding_norm" in options:
        assert copied.tokens.weight is copied.head.weight


class Scaled(Model):
    def forward(self, tokens):
        x = self.tokens(tokens) * 3.0 + self.positions[:5] * 0.5
        return self.head(self.norm(self.blocks(x)))


def test_a_stream_that_is_scaled_by_a_number_stays_centred():
    model = stirred(Scaled())
    wanted = model(TOKENS)
    nk.convert(model, "pre-rmsnorm", TOKENS)
    torch.testing.assert_close(model(TOKENS), wanted, rtol=1e-10, atol=1e-10)


class Leaks(Model):
    """The stream itself is read: by what the model returns, by a layer, or by a number that is added."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def forward(self, tokens):
        x = self.blocks(self.tokens(tokens) + (1.0 if self.how == "number" else 0) + self.positions[:5])
        y = self.head(self.norm(x))
        if self.how == "activation":
            return y + self.head(self.norm(functional.gelu(x)))
        if self.how == "read":
            return y + self.head(x)
        return (y, x) if self.how == "returned" else y


class Twice(Model):
    """Two streams; a norm reads the first and writes to the second."""

    def forward(self, tokens):
        x = self.blocks[0](self.tokens(tokens) + self.positions[:5])
        return self.head(self.norm(self.blocks[1](self.embedding_norm(x))))


@pytest.mark.parametrize(
    ("model", "to", "said"),
    [
        (Leaks("returned"), "pre-rmsnorm", "output reads the residual stream without a layer norm"),
        (Leaks("read"), "pre-rmsnorm", "head reads the residual stream without a layer norm"),
        (Leaks("number"), "pre-rmsnorm", "a number is added to the residual stream"),
        (Leaks("activation"), "pre-rmsnorm", "gelu reads the residual stream"),
        (Model(post=True), "pre-rmsnorm", "post-norm"),
        (Twice(embedding_norm=True), "pre-crmsnorm", "that cannot be converted reads"),
        (Model(), "rmsnorm", "to must be one of 'pre-rmsnorm', 'pre-crmsnorm'"),
        (nn.Sequential(nn.Embedding(12, 4), nk.RMSNorm(4)), "pre-rmsnorm", "it has rmsnorm"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_left(model, to, said):
    stirred(model)
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match=said):
        nk.convert(model, to, TOKENS)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before.parameters(), strict=True))
    assert [type(part) for part in model.modules()] == [type(part) for part in before.modules()]


def test_gpt2_of_transformers_is_converted_and_keeps_its_names():
    transformers = library("transformers")
    config = transformers.GPT2Config(
        n_embd=12, n_layer=1, n_head=2, vocab_size=12, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    model = stirred(transformers.GPT2LMHeadModel(config))
    names = set(model.state_dict())
    wanted = model(TOKENS).logits
    nk.convert(model, "pre-rmsnorm", {"input_ids": TOKENS})
    torch.testing.assert_close(model(TOKENS).logits, wanted, rtol=1e-9, atol=1e-9)
    assert not layer_norms(model)
    assert set(model.state_dict()) == names
    assert model.config.tie_word_embeddings is False


def test_gpt2_of_transformers_loses_a_feature_and_is_opened_by_another_process(tmp_path):
    transformers = library("transformers")
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=4, vocab_size=97, n_positions=16, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    model, tokens = transformers.GPT2LMHeadModel(config).eval(), torch.randint(0, 97, (1, 13))
    wanted = model(tokens).logits
    nk.convert(model, "pre-crmsnorm", tokens)
    torch.testing.assert_close(model(tokens).logits, wanted)
    for layer, sizes in (
        (model.transformer.h[0].attn.c_attn, (31, 96)),
        (model.transformer.h[0].mlp.c_proj, (128, 31)),
    ):
        assert (layer.nx, layer.nf) == tuple(layer.weight.shape) == sizes
    nk.save(model, tmp_path / "converted")
    torch.save((tokens, model(tokens).logits.detach()), tmp_path / "wanted.pt")
    subprocess.run(
        [sys.executable, "-c", OPENS, tmp_path / "converted", tmp_path / "wanted.pt"],
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(nk.__file__).parents[1])},
    )


OPENS = """
import sys, torch, normkit as nk
tokens, wanted = torch.load(sys.argv[2])
model = nk.load(sys.argv[1])
torch.testing.assert_close(model(tokens).logits, wanted)
assert model.lm_head.weight is not model.transformer.wte.weight
"""


class LayerScaled(nn.Module):
    """Attention of torch, and what a layer scale multiplies, before the sums."""

    def __init__(self, way=""):
        super().__init__()
        self.way = way
        self.embed, self.drop = nn.Embedding(12, 8), nn.Dropout(0.1)
        self.one, self.two, self.last = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up, self.down, self.head = nn.Linear(8, 9), nn.Linear(9, 8), nn.Linear(8, 12)
        self.gamma = nn.Parameter(torch.randn(8))
        if way == "tied":
            self.last.bias = self.gamma

    def forward(self, tokens):
        x = self.embed(tokens)
        y = self.one(x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        z = self.down(self.up(self.two(x)).relu())
        x = x + self.gamma * self.drop(z)
        return self.head(self.last(x * self.gamma if self.way == "twice" else x)) + (
            z.sum() if self.way == "read" else 0
        )


def test_layer_scales_and_torchs_attention_are_centred_too():
    model = stirred(LayerScaled())
    old, before = copy.deepcopy(model), model(TOKENS)
    report = nk.convert(model, "pre-rmsnorm", TOKENS)
    told = {change.site: change.became for change in report}
    assert told["gamma"] == "ones, and in down"
    assert told["attend.out_proj.weight"] == told["attend.out_proj.bias"] == told["down"] == "centred"
    assert model.gamma.tolist() == [1.0] * 8
    assert isinstance(model.two, nk.RMSNorm)
    torch.testing.assert_close(model(TOKENS), before, rtol=1e-9, atol=1e-9)
    exact = old.gamma[:, None] * old.down.weight
    torch.testing.assert_close(model.down.weight, exact - exact.mean(0))


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("tied", "with a weight read elsewhere too"),
        ("twice", "mul"),
        ("read", "read elsewhere"),
    ],
)
def test_scales_that_are_more_than_that_are_refused(way, why):
    model = stirred(LayerScaled(way))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=why):
        nk.convert(model, "pre-rmsnorm", TOKENS)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
