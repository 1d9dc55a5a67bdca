"""`nk.fuse` takes a residual addition into the norm behind it, and a rotary turn into the norms before it."""

import copy
import functools
import importlib
import io
import re

import pytest
import torch
from torch import nn
from torch.nn import functional

import normkit as nk
from normkit.optional import library
from normkit.surgery.edits import adding, turning
from normkit.surgery.edits.source import Source
from normkit.surgery.exact import fusing, racing
from normkit.surgery.proof import call_model, difference

HALVED = racing.Outcome(1.0, 0.5, True)


class Block(nn.Module):
    """A sublayer behind each of two norms; what may be in the way."""

    def __init__(self, way=""):
        super().__init__()
        self.way = way
        self.one, self.two, self.up = nk.RMSNorm(6), nk.LayerNorm(6), nn.Linear(6, 6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, mask=None):
        y = self.drop(self.up(self.one(x)))
        x = x + y
        if mask is not None:
            x = x * mask
        residual = x
        return residual + self.two(x).relu()


class Scaled(Block):
    def forward(self, x):
        x = x + self.up(self.one(x))
        x = functional.dropout(x, 0.5, self.training)
        return x + self.two(x)


class InPlace(Block):
    def forward(self, x):
        x = x + self.up(self.one(x))
        if self.way != "no":
            x.mul_(2)
        return x + self.two(x)


class InPlaceByWord(Block):
    def forward(self, x):
        x = x + self.up(self.one(x))
        if self.training:
            functional.relu(x, inplace=True)
        return x + self.two(x)


class InPlaceByAPart(Block):
    def __init__(self):
        super().__init__()
        self.drop.inplace = True

    def forward(self, x):
        x = x + self.up(self.one(x))
        if self.training:
            x = self.drop(x)
        return x + self.two(x)


class Twice(Block):
    def forward(self, x):
        x = x + self.up(self.one(x))
        return self.two(x) + self.two(x + 1)


class Perhaps(Block):
    def forward(self, x):
        x = x + self.up(self.one(x))
        return self.two(x) if self.way == "yes" else x


class Called(Block):
    """The sum has another name by the time it is normed."""

    def forward(self, x):
        total = x + self.up(self.one(x))
        hidden = total
        return total + self.two(hidden)


@pytest.fixture
def fast(monkeypatch):
    for name in ("race", "race_addition", "race_turn", "race_models"):
        monkeypatch.setattr(fusing, name, lambda *_: HALVED)


def model(kind=Block):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), kind(), kind()).eval()


def test_numbers_gradients_and_names_stay(fast):
    net, x = model(), torch.randn(5, 6)
    before = copy.deepcopy(net)
    report = nk.fuse(net, x)
    assert [change.site for change in report.done] == ["1.two", "2.two"]
    assert report.done[0].became == "LayerNorm with the addition before it"
    assert isinstance(net[1], Block)
    assert type(net[1]) is type(net[2]) is not Block
    assert list(net.state_dict()) == list(before.state_dict())
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for one in (net, copy.deepcopy(net), torch.load(file, weights_only=False)):
        torch.testing.assert_close(one(x), before(x))
        mask = torch.rand(5, 1)
        torch.testing.assert_close(one[1](x, mask), before[1](x, mask))
    torch.manual_seed(1)
    net.train()(x).sum().backward()
    torch.manual_seed(1)
    before.train()(x).sum().backward()
    for new, old in zip(net.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(new.grad, old.grad)


def test_the_addition_is_done_in_the_norm_until_a_hook_wants_to_see_it(fast, monkeypatch):
    net, x = model(), torch.randn(5, 6)
    nk.fuse(net, x)
    seen = []
    own = nk.LayerNorm.add_norm
    monkeypatch.setattr(nk.LayerNorm, "add_norm", lambda *given: seen.append("added") or own(*given))
    net(x)
    net[2].two.register_forward_hook(lambda *_: seen.append("hook"))
    net(x)
    assert seen == ["added", "added", "added", "hook"]


def test_a_sum_is_found_by_its_other_name(fast):
    net, x = model(Called), torch.randn(5, 6)
    before = copy.deepcopy(net)
    assert [change.site for change in nk.fuse(net, x).done] == ["1.two", "2.two"]
    torch.testing.assert_close(net(x), before(x))


@pytest.mark.parametrize("kind", [Scaled, InPlace, InPlaceByWord, InPlaceByAPart, Twice, Perhaps])
def test_blocks_that_may_do_otherwise_are_left_alone(kind, fast):
    net = model(kind)
    nk.fuse(net, torch.randn(5, 6))
    assert type(net[1]) is kind


def test_what_is_no_faster_is_left_alone(fast, monkeypatch):
    monkeypatch.setattr(fusing, "race_addition", lambda *_: racing.Outcome(1.0, 1.0, False))
    net = model()
    assert not nk.fuse(net, torch.randn(5, 6)).done
    assert type(net[1]) is Block


def test_what_gives_other_numbers_is_not_put_in(fast, monkeypatch):
    monkeypatch.setattr(adding, "add_then", lambda norm, x, y: (norm(x + y) * 1.01, x + y))
    net = model()
    report = nk.fuse(net, torch.randn(5, 6))
    assert not report.done
    assert report[1].why_not.startswith("once changed, results differ by")
    assert type(net[1]) is Block


def test_sums_of_other_shapes_are_added_as_before():
    norm = nk.LayerNorm(6)
    x, row = torch.randn(5, 6), torch.randn(6)
    y, total = adding.added(norm, x, row)
    torch.testing.assert_close(total, x + row)
    torch.testing.assert_close(y, norm(x + row))
    assert torch.equal(adding.added(norm, x, 1.0)[1], x + 1)


FOUND = {  # what the source of a block of transformers shows
    "llama.LlamaDecoderLayer": ["post_attention_layernorm"],
    "qwen3.Qwen3DecoderLayer": ["post_attention_layernorm"],
    "qwen3.Qwen3Attention": [("q_norm", "k_norm")],
    "gemma2.Gemma2DecoderLayer": ["pre_feedforward_layernorm"],
    "gemma3.Gemma3DecoderLayer": ["pre_feedforward_layernorm"],
    "gemma3.Gemma3Attention": [("q_norm", "k_norm")],
    "olmo2.Olmo2Attention": [],
    "deepseek_v3.DeepseekV3DecoderLayer": ["post_attention_layernorm"],
    "gpt2.GPT2Block": ["ln_2"],
    "bert.BertOutput": ["LayerNorm"],
    "vit.ViTLayer": ["layernorm_after"],
    "t5.T5LayerFF": [],
    "mamba2.Mamba2Block": [],
    "convnext.ConvNextLayer": [],
}


@pytest.mark.parametrize("path", FOUND)
def test_what_blocks_of_transformers_show(path):
    module, _, name = path.partition(".")
    library("transformers")
    source = Source(getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), name))
    assert [*adding.find_sums(source), *turning.find_turns(source)] == FOUND[path]


WIDE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 50}
GROUPED = {**WIDE, "num_key_value_heads": 2, "head_dim": 8}
FEW = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0}
TURNED = {"self_attn.q_norm": "turn", "self_attn.k_norm": "turn"}
ADDED = ("embeddings.LayerNorm", "attention.output.LayerNorm", "output.LayerNorm")
FAMILIES = {  # what is fused in a block, besides the norms themselves
    "Gemma3Text": (GROUPED, {"pre_feedforward_layernorm": "addition", **TURNED}),
    "GPT2": (FEW, {"ln_2": "addition"}),
    "Bert": (WIDE, dict.fromkeys(ADDED, "addition")),
}


def built(family, own):
    transformers = library("transformers")
    config = getattr(transformers, f"{family}Config")(**own)
    torch.manual_seed(0)
    made = getattr(transformers, f"{family}Model")(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def tokens():
    return {"input_ids": torch.arange(14).view(2, 7)}


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_transformers_give_the_same_with_less(family, fast):
    own, wanted = FAMILIES[family]
    net, given = built(family, own), tokens()
    before, state = copy.deepcopy(net), {name: t.clone() for name, t in net.state_dict().items()}
    report = nk.fuse(net, given)
    assert {c.why_not for c in report if not c.became} <= {None}
    fused = {re.sub(r"^.*?\.0\.", "", c.site): c.became.split()[-3] for c in report if " with " in c.became}
    assert fused == wanted
    assert difference(call_model(before, given), call_model(net, given)) < 3e-6
    assert list(net.state_dict()) == list(state)
    assert all(torch.equal(t, state[name]) for name, t in net.state_dict().items())
    net.load_state_dict(state)
    pairs = []
    for one in (before, net):
        torch.manual_seed(1)
        outputs = one.train()(**given)[0]
        (outputs * torch.randn(outputs.shape, generator=torch.Generator().manual_seed(2))).sum().backward()
        pairs.append({name: p.grad for name, p in one.named_parameters() if p.grad is not None})
    assert pairs[0].keys() == pairs[1].keys()
    largest = max(g.abs().max() for g in pairs[0].values())
    assert max((pairs[0][name] - g).abs().max() for name, g in pairs[1].items()) < 1e-5 * largest


def test_a_fused_decoder_goes_on_from_its_cache(fast):
    transformers = library("transformers")
    config = transformers.Qwen3Config(**GROUPED)
    net = transformers.Qwen3ForCausalLM(config).eval()
    given = tokens()
    wanted = net.generate(**given, max_new_tokens=5, do_sample=False)
    assert any("turn" in c.became for c in nk.fuse(net, given).done)
    assert torch.equal(net.generate(**given, max_new_tokens=5, do_sample=False), wanted)


@pytest.mark.parametrize("training", [False, True])
def test_what_is_raced_runs(training):
    library("transformers")
    qwen = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    [turn] = turning.find_turns(Source(qwen.Qwen3Attention)).values()
    old, new = [qwen.Qwen3RMSNorm(4) for _ in range(2)], [nk.RMSNorm(4) for _ in range(2)]
    for one in (turn, turn._replace(moved=False)):
        times = racing.race_turn(one, old, new, [(2, 3, 6, 4), (2, 3, 2, 4) if one.moved else (2, 1, 6, 4)], training)
        assert min(times[:2]) > 0
    assert min(racing.race_addition(old[0], new[0], (3, 4), training)[:2]) > 0
    assert min(racing.race_models(nn.Linear(4, 4), nn.Linear(4, 4), torch.randn(3, 4), training)[:2]) > 0


def turn_pairs(q, k, cos, sin):
    return q * cos[:, None], k * cos[:, None]


class Attention(nn.Module):
    """Queries and keys that go elsewhere too, or are turned otherwise."""

    def __init__(self, way):
        super().__init__()
        self.way, self.up = way, nn.Linear(8, 8)
        self.q_norm, self.k_norm = nk.RMSNorm(8), nk.RMSNorm(8)


class Elsewhere(Attention):
    def forward(self, x, cos, sin):
        apply = library("transformers").models.qwen3.modeling_qwen3.apply_rotary_pos_emb
        q = self.q_norm(x)
        k = self.k_norm(x)
        extra = q.sum()
        q, k = apply(q, k, cos, sin)
        return q + k + extra


class Otherwise(Attention):
    def forward(self, x, cos, sin):
        q = self.q_norm(self.up(x))
        k = self.k_norm(x)
        q, k = turn_pairs(q, k, cos, sin)
        return q + k


def turn_on_wednesdays(q, k, cos, sin):
    raise ValueError("it is another day")


class Raising(Attention):
    def forward(self, x, cos, sin):
        q = self.q_norm(self.up(x))
        k = self.k_norm(x)
        q, k = turn_on_wednesdays(q, k, cos, sin)
        return q + k


@pytest.mark.parametrize("kind", [Elsewhere, Otherwise, Raising])
def test_other_uses_and_other_turns_are_left_alone(kind, fast):
    state = torch.get_rng_state()
    assert turning.find_turns(Source(kind)) == {}
    assert torch.equal(torch.get_rng_state(), state)


def test_queries_and_keys_are_turned_in_one_pass_by_two_angles_and_by_the_models_own_turn_otherwise():
    calls, g = [], torch.Generator().manual_seed(0)
    q, k, half = (torch.randn(*sizes, generator=g) for sizes in ((2, 3, 5, 4), (2, 1, 5, 4), (2, 5, 2)))
    cos, sin = half.cos().repeat(1, 1, 2), half.sin().repeat(1, 1, 2)

    def turn(q, k, cos, sin, *more, scale=1.0):
        calls.append((more, scale))
        first, second = zip(q.chunk(2, -1), k.chunk(2, -1), strict=True)
        other = (torch.cat([-b, a], -1) for a, b in zip(first, second, strict=True))
        return tuple(x * cos[:, None] + y * sin[:, None] for x, y in zip((q, k), other, strict=True))

    norms = nk.RMSNorm(4), nk.RMSNorm(4)
    want = turn(norms[0](q), norms[1](k), cos, sin)
    calls.clear()
    torch.testing.assert_close(turning.turned(turn, *norms, q, k, cos, sin), want)
    assert not calls
    torch.testing.assert_close(turning.turned(turn, *norms, q, k, cos, sin, "third"), want)
    torch.testing.assert_close(turning.turned(turn, *norms, q, k, cos, sin, scale=2.0), want)
    assert calls == [(("third",), 1.0), ((), 2.0)]


def doubled(forward):
    @functools.wraps(forward)
    def twice(*args):
        return 2 * forward(*args)

    return twice


class Decorated(nn.Module):
    @doubled
    def forward(self, x):
        return x + 1


def test_a_forward_that_is_written_anew_keeps_its_decorators():
    function = Source(Decorated).function()
    assert function(Decorated(), 3) == Decorated()(3) == 8
    assert function.__wrapped__.__code__.co_filename == __file__
