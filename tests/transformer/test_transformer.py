"""The reference transformer: equal to `transformers` with shared weights, with a cache, in every combination."""

import copy
import functools
import itertools
import pickle

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.contract.subject import export
from normkit.ops.rope import Frequencies, rotate, turns
from normkit.optional import let_torchvision_load
from normkit.residual.stream import placements, wiring_of
from normkit.transformer.attention import cores, goes_on, reads_others
from normkit.transformer.gate import gated

WIRINGS = {**placements(), "hybridnorm*": wiring_of("the tests", "hybridnorm*")}
TINY = {"vocab": 17, "dim": 16, "depth": 3, "heads": 4, "hidden": 24}
TOKENS = torch.randint(17, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def transformers():
    let_torchvision_load()
    return pytest.importorskip("transformers", reason="transformers is not installed")


def linear(theirs, transpose=False):
    found = {"weight": theirs.weight.mT if transpose else theirs.weight}
    return found | ({"bias": theirs.bias} if theirs.bias is not None else {})


def attention_of(theirs):
    names = {
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "output": "o_proj",
        "query_norm": "q_norm",
        "key_norm": "k_norm",
    }
    return {own: linear_or_norm(getattr(theirs, name)) for own, name in names.items() if hasattr(theirs, name)}


def linear_or_norm(theirs):
    return linear(theirs) if isinstance(theirs, nn.Linear) else {"weight": theirs.weight}


def gated_state(theirs):
    up = torch.cat([theirs.up_proj.weight, theirs.gate_proj.weight])
    return {"up": {"weight": up}, "down": linear(theirs.down_proj)}


def flat(tree, prefix=""):
    """Join nested names: {"a": {"b": t}} to {"a.b": t}."""
    found = {}
    for name, value in tree.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value.detach()}
    return found


def gpt2_state(theirs):
    layers = {}
    for index, block in enumerate(theirs.transformer.h):
        weight, bias = block.attn.c_attn.weight.mT.chunk(3), block.attn.c_attn.bias.chunk(3)
        attention = {
            n: {"weight": w, "bias": b} for n, w, b in zip(("query", "key", "value"), weight, bias, strict=True)
        }
        layers[str(index)] = {
            "attention": attention | {"output": linear(block.attn.c_proj, transpose=True)},
            "feedforward": {
                "up": linear(block.mlp.c_fc, transpose=True),
                "down": linear(block.mlp.c_proj, transpose=True),
            },
            "attention_norm": linear(block.ln_1),
            "feedforward_norm": linear(block.ln_2),
        }
    body = theirs.transformer
    return {
        "embedding": linear_or_norm(body.wte),
        "positions": linear_or_norm(body.wpe),
        "layers": layers,
        "norm": linear(body.ln_f),
    }


def state_of(theirs, norms):
    layers = {}
    for index, block in enumerate(theirs.model.layers):
        own = {name: {"weight": getattr(block, their).weight} for name, their in norms.items()}
        layers[str(index)] = {"attention": attention_of(block.self_attn), "feedforward": gated_state(block.mlp), **own}
    found = {
        "embedding": linear_or_norm(theirs.model.embed_tokens),
        "layers": layers,
        "norm": linear_or_norm(theirs.model.norm),
    }
    return found if theirs.config.tie_word_embeddings else found | {"head": linear(theirs.lm_head)}


COMMON = {
    "vocab_size": 17,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}
CASES = {
    "gpt2": (
        "GPT2",
        {"vocab_size": 17, "n_embd": 16, "n_inner": 24, "n_layer": 3, "n_head": 4, "n_positions": 32},
        {"length": 32},
        gpt2_state,
    ),
    "llama": (
        "Llama",
        COMMON | {"num_key_value_heads": 2},
        {"kv_heads": 2},
        lambda m: state_of(m, {"attention_norm": "input_layernorm", "feedforward_norm": "post_attention_layernorm"}),
    ),
    "gemma2": (
        "Gemma2",
        COMMON
        | {"num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4}
        | {"attn_implementation": "eager"},
        {"kv_heads": 2, "head_dim": 8, "window": (4, None)},
        lambda m: state_of(
            m,
            {
                "attention_norm": "input_layernorm",
                "attention_output_norm": "post_attention_layernorm",
                "feedforward_norm": "pre_feedforward_layernorm",
                "feedforward_output_norm": "post_feedforward_layernorm",
            },
        ),
    ),
    "olmo2": (
        "Olmo2",
        COMMON | {"num_key_value_heads": 2, "rms_norm_eps": 1e-6},
        {"kv_heads": 2, "rotary_base": 10000.0},
        lambda m: state_of(
            m,
            {
                "attention_output_norm": "post_attention_layernorm",
                "feedforward_output_norm": "post_feedforward_layernorm",
            },
        ),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def twins(request, transformers):
    """A preset and the model of transformers with the same weights."""
    family, config, changes, state = CASES[request.param]
    torch.manual_seed(0)
    marks = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    config = getattr(transformers, f"{family}Config")(**config, **marks)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # gains and biases too, and scores large enough to be capped
            parameter.add_(0.3 * torch.randn(parameter.shape))
    own = nk.preset(request.param, **TINY, **changes)
    own.load_state_dict(flat(state(theirs)), strict=True)
    return own, theirs


def assert_equal_logits(got, want):
    # float32 through three layers, in another order of sums
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * want.abs().max().item())
    assert want.std() > 0.1


def test_a_preset_equals_the_model_of_transformers(twins):
    own, theirs = twins
    assert_equal_logits(own(TOKENS), theirs(TOKENS).logits)


@pytest.mark.parametrize("hidden", [slice(6, None), slice(0, 3)], ids=["right", "left"])
def test_a_preset_hides_padding_as_transformers_does(twins, hidden):
    own, theirs = twins
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, hidden] = False
    want = theirs(TOKENS, attention_mask=mask.long(), position_ids=torch.arange(9)[None]).logits
    assert_equal_logits(own(TOKENS, mask)[mask], want[mask])


def test_a_preset_in_bfloat16_is_no_further_from_the_truth(twins):
    tokens = torch.randint(17, (64, 9), generator=torch.Generator().manual_seed(2))
    truth = twins[1](tokens).logits
    own, theirs = (copy.deepcopy(model).bfloat16() for model in twins)
    ours, others = ((logits.float() - truth).norm() for logits in (own(tokens), theirs(tokens).logits))
    assert 0 < ours < 1.2 * others < 0.05 * truth.norm()


def test_a_preset_generates_what_transformers_does(twins):
    own, theirs = twins
    want = theirs.generate(TOKENS, attention_mask=torch.ones_like(TOKENS), max_new_tokens=8, do_sample=False)
    torch.testing.assert_close(own.generate(TOKENS, 8, temperature=0), want)


def test_deepnet_is_as_its_authors_say():
    model = nk.preset("deepnet-200", vocab=17, dim=32, heads=2, hidden=128, length=16)
    assert len(model.layers) == 200
    assert model.norm is None
    for layer in (model.layers[0], model.layers[199]):
        assert [branch.residual for branch in layer.branches.values()] == pytest.approx([400**0.25] * 2)
        assert isinstance(layer.attention_norm, nk.LayerNorm)
    values, keys, ups = (
        torch.stack([layer.get_submodule(name).weight for layer in model.layers])
        for name in ("attention.value", "attention.key", "feedforward.up")
    )
    spread = torch.stack([values.std() * 32**0.5, keys.std() * 32**0.5, ups.std() * 80**0.5])
    torch.testing.assert_close(spread, torch.tensor([1600**-0.25, 1.0, 1600**-0.25]), rtol=0.02, atol=0)
    assert model(PAIR).isfinite().all()


def decoder(placement, **changes):
    torch.manual_seed(1)
    model = nk.Decoder(**{**TINY, "placement": placement, **changes}).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("placement", WIRINGS)
def test_the_cache_gives_the_numbers_of_the_full_pass(placement):
    model = decoder(placement, window=(4, None), core="softmax")
    want = model(TOKENS)
    cache = model.empty_cache()
    got = [model(part, cache=cache) for part in TOKENS.split([4, 1, 3, 1], dim=1)]
    torch.testing.assert_close(torch.cat(got, 1), want)


@pytest.mark.parametrize("positions", ["rope", "learned", None])
def test_generation_continues_as_the_full_pass_would(positions):
    model = decoder("pre-norm", positions=positions, length=32, kv_heads=2)
    tokens = model.generate(TOKENS, 5, temperature=0)
    for end in range(9, 14):
        torch.testing.assert_close(tokens[:, end], model(tokens[:, :end])[:, -1].argmax(-1))


def test_a_low_temperature_draws_the_likeliest_and_a_high_one_any():
    model = decoder("pre-norm")
    cold, hot = (model.generate(TOKENS, 8, temperature=t, generator=torch.Generator()) for t in (1e-6, 1e6))
    assert torch.equal(cold, model.generate(TOKENS, 8, temperature=0))
    assert not torch.equal(hot, cold)


@pytest.mark.parametrize("placement", WIRINGS)
def test_a_decoder_sees_nothing_of_the_future(placement):
    model = decoder(placement)
    other = TOKENS.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 17
    torch.testing.assert_close(model(other)[:, :5], model(TOKENS)[:, :5])
    assert not torch.allclose(model(other)[:, 5:], model(TOKENS)[:, 5:])


@pytest.mark.parametrize("placement", WIRINGS)
def test_an_encoder_sees_all_but_what_is_masked(placement):
    torch.manual_seed(0)
    model = nk.Encoder(**TINY, placement=placement).double()
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[:, 6:] = False
    torch.testing.assert_close(model(TOKENS, mask)[:, :6], model(TOKENS[:, :6]))


NORMS = ("layernorm", "rmsnorm", "dyt", "scalenorm")
SQUARE = {"heads": 2, "hidden": 12}


@pytest.mark.parametrize("placement, norm", list(itertools.product(WIRINGS, NORMS)))
def test_any_norm_goes_with_any_placement(placement, norm):
    layer = nk.TransformerLayer(placement=placement, dim=8, norm=norm, **SQUARE).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    after = layer(layer.form.expand(x, layer.place))
    sum(part.square().sum() for part in (after if isinstance(after, tuple) else (after,))).backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().max() > 0


CAUSAL = sorted(name for name, core in cores().items() if True in core.forms)
NEEDS = {
    "qk-norm": {"length": 8},
    "norm-aware-linear": {"size": (2, 4)},
    "softmax-free": {"size": (2, 4), "ratio": 2},
    "softplus-attention": {"power": 3},
}
SMALL = {"dim": 16, "heads": 2, "hidden": 12}
PAIR = TOKENS[:, :8]


def options_of(core, placement):
    return None if WIRINGS[placement].hidden == "scale" else NEEDS.get(core)  # the placement gives what is needed


def fits(kind, placement, core):
    """Whether a placement and a core go together, read off their tables."""
    scaled = WIRINGS[placement].hidden != "scale" or "scale" in nk.card(core).signature.parameters
    return scaled and (kind is nk.Decoder) in cores()[core].forms


def shaken(model):
    """The model with its parameters moved off their start, where some get no gradient."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


# what the first sublayer chooses sources by: it has one, whose share is 1
OF_ONE_SOURCE = ("layers.0.attention_query", "layers.0.attention_source_norm.weight")


def train_a_step(model, *inputs):
    y = model(*inputs)
    loss = (y * torch.randn_like(y)).mean() + y.square().mean()
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0 or name.endswith(OF_ONE_SOURCE), name
    torch.optim.SGD(model.parameters(), lr=0.1).step()


NORMS = ["layernorm", "rmsnorm", "dyt"]


def pairs_of(norms):
    """Every placement with every core, with each norm in turn, and with all norms around the usual core."""
    for kind in (nk.Decoder, nk.Encoder):
        for (turn, placement), (other, core) in itertools.product(enumerate(WIRINGS), enumerate(sorted(cores()))):
            own = norms if core == "softmax" else norms[(turn + other) % len(norms) :][:1]
            yield from ((kind, placement, core, norm) for norm in own)


@pytest.mark.parametrize("kind, placement, core, norm", list(pairs_of(NORMS)))
def test_every_combination_trains_or_says_what_would(kind, placement, core, norm):
    def build(core):
        options = options_of(core, placement)
        return kind(vocab=17, depth=2, **SMALL, placement=placement, core=core, norm=norm, core_options=options)

    torch.manual_seed(0)
    if fits(kind, placement, core):
        model = shaken(build(core))
        train_a_step(model, PAIR)
        model.normalize_weights()
        assert model(PAIR).isfinite().all()
        return
    with pytest.raises(ValueError, match=f"core '{core}' takes no .*; those that do: ") as caught:
        build(core)
    for other in str(caught.value).partition("those that do: ")[2].split(", "):
        assert fits(kind, placement, other)  # it has a case of its own, which builds it


READING_ALL = sorted(name for name, core in cores().items() if False in core.forms and core.masks is not None)


@pytest.mark.parametrize("core", READING_ALL)
def test_an_encoder_of_any_core_reads_no_padding(core):
    options = {"length": 8} if core == "qk-norm" else None
    torch.manual_seed(0)
    model = shaken(nk.Encoder(vocab=17, depth=2, **SMALL, core=core, core_options=options).double())
    seen = torch.arange(9) < torch.tensor([[6], [9]])
    want = torch.cat([model(TOKENS[:1, :6])[0], model(TOKENS)[1]])
    torch.testing.assert_close(model(TOKENS, seen)[seen], want)
    torch.testing.assert_close(model(TOKENS, seen[:, None, None])[seen], want)


@pytest.mark.parametrize("core", sorted(cores()))
def test_groups_of_queries_share_keys_in_any_core(core):
    kind = nk.Decoder if fits(nk.Decoder, "pre-norm", core) else nk.Encoder
    options = {"placement": "pre-norm", "core": core, "core_options": NEEDS.get(core)}
    torch.manual_seed(0)
    model = shaken(kind(vocab=17, depth=1, **SMALL, kv_heads=1, **options).double())
    train_a_step(model, PAIR)
    whole = kind(vocab=17, depth=1, **SMALL, **options).double()
    repeated = {"key.weight", "value.weight"}
    state = {n: t.repeat(2, 1) if n.split("attention.")[-1] in repeated else t for n, t in model.state_dict().items()}
    whole.load_state_dict(state)
    torch.testing.assert_close(whole(PAIR), model(PAIR))


@pytest.mark.parametrize(
    "placement, core", [pair for pair in itertools.product(WIRINGS, CAUSAL) if fits(nk.Decoder, *pair)]
)
def test_generation_with_a_cache_is_that_without(placement, core):
    model = decoder(placement, core=core, core_options=options_of(core, placement), dim=32)
    want = model.generate(PAIR[:, :5], 3, temperature=0, cached=False)
    if goes_on(cores()[core]):
        torch.testing.assert_close(model.generate(PAIR[:, :5], 3, temperature=0), want)
    else:
        with pytest.raises(ValueError, match=f"core '{core}' takes no cache; those that do: .*softmax"):
            model.generate(PAIR[:, :5], 3)


def test_a_core_that_counts_positions_itself_takes_no_cache():
    model = nk.Decoder(**TINY, core="qkv-norm", core_options={"rope_base": 1e4}, positions=None)
    with pytest.raises(ValueError, match=r"'qkv-norm' takes no cache: with rope_base .*rope_base=None does not"):
        model.generate(TOKENS, 1)
    assert model.generate(TOKENS, 1, cached=False).shape == (2, 10)


@pytest.mark.parametrize(
    "core, options", [("rnope", {"window": 3}), ("liger-attention", {}), ("qkv-norm", {"rope_base": 1e4})]
)
def test_queries_are_not_turned_again_before_a_core_that_turns_them(core, options):
    model = decoder("pre-norm", core=core, core_options=options)
    plain = decoder("pre-norm", core=core, core_options=options, positions=None)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(TOKENS), plain(TOKENS), rtol=0, atol=0)


def test_a_full_layer_of_rnope_has_no_positions():
    model = decoder("pre-norm", depth=1, core="rnope", core_options={"period": 1})
    other = TOKENS.flip(1).roll(-1, 1)  # the same tokens before the last
    torch.testing.assert_close(model(other)[:, -1], model(TOKENS)[:, -1])


@pytest.mark.parametrize("core", [core for core in CAUSAL if goes_on(cores()[core])])
def test_the_cache_goes_with_the_cores_that_can(core):
    model = decoder("pre-norm", core=core, core_options=NEEDS.get(core), kv_heads=2)
    mask = torch.ones(2, 9, dtype=torch.bool)
    mask[0, :2] = False
    for seen in (None, mask):
        cache, want = model.empty_cache(), model(TOKENS, seen)
        parts = [(0, 4), (4, 5), (5, 8), (8, 9)]
        got = [model(TOKENS[:, a:b], None if seen is None else seen[:, :b], cache) for a, b in parts]
        torch.testing.assert_close(torch.cat(got, 1), want)


LATENT = {"rank": 5, "head_dim": 4, "shared_dim": 2, "value_dim": 3}
COMPRESSED = {"head_dim": 4, "query_rank": 5, "groups": 2, "output_rank": 3, "window": 3, "rate": 2, "top_k": 2}
COMPRESSED |= {"index_heads": 2, "index_dim": 4, "frequencies": Frequencies((1.0, 0.1))}
PASTS = {
    "softmax": {"kv_heads": 2},
    "window": {"window": (3, None)},
    "shared keys": {"each": [{}, {}, {"keys_of": 0}]},
    "lightning": {"core": "lightning"},
    "rnope": {"core": "rnope"},
    "latent": {"mixer": "latent", "mixer_options": LATENT},
    "delta-net": {"mixer": "delta-net"},
    "compressed": {"mixer": "compressed", "mixer_options": COMPRESSED},
}

PACKED = list(zip(TOKENS, ([2, 7], [3, 6]), strict=True))


def contents(kept):
    """All that a cache holds, in one flat list."""
    if isinstance(kept, torch.Tensor | int | None):
        return [kept]
    return [one for part in (kept if isinstance(kept, list | tuple) else vars(kept).values()) for one in contents(part)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError])
@pytest.mark.parametrize("past", PASTS)
@torch.no_grad()
def test_a_call_that_fails_leaves_the_cache_as_it_was(past, error):
    model = decoder("pre-norm", tied=False, **PASTS[past])
    layer, want = model.layers[1], model(TOKENS)

    def fail(*_):
        raise error("in the middle")

    cache, begun = model.empty_cache(), model.empty_cache()
    model(TOKENS[:, :5], cache=cache)
    for place in (layer.attention.output, layer.feedforward, model.head):
        for tried in (cache, begun):
            before, hook = contents(tried), place.register_forward_hook(fail)
            with pytest.raises(error, match="in the middle"):
                model(TOKENS[:, 5:], cache=tried)
            hook.remove()
            torch.testing.assert_close(contents(tried), before, rtol=0, atol=0)
    torch.testing.assert_close(model(TOKENS[:, 5:], cache=cache), want[:, 5:])
    torch.testing.assert_close(model(TOKENS, cache=begun), want)


@pytest.mark.parametrize("past", [past for past in PASTS if past != "compressed"])
@torch.no_grad()
def test_the_mask_of_the_new_token_alone_is_refused_and_changes_no_cache(past):
    model = decoder("pre-norm", **PASTS[past])
    cache, want = model.empty_cache(), model(TOKENS)
    model(TOKENS[:, :8], cache=cache)
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 9\)"):
        model(TOKENS[:, 8:], torch.ones(2, 1, dtype=torch.bool), cache)
    torch.testing.assert_close(model(TOKENS[:, 8:], cache=cache), want[:, 8:])


@pytest.mark.parametrize("past", ["softmax", "window", "shared keys", "latent"])
@pytest.mark.parametrize("cached", [False, True])
@torch.no_grad()
def test_a_mask_of_three_axes_is_not_taken_for_one_of_heads(past, cached):
    model = decoder("pre-norm", **{"heads": 2, **PASTS[past]})
    text = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1, 1, 1]])
    mask = text[:, :, None] == text[:, None, :]

    def run(mask, tokens=TOKENS):
        return model(tokens, mask, model.empty_cache() if cached else None)

    with pytest.raises(ValueError, match=r"mask of shape \(2, 9, 9\) .* give mask\[:, None\] of a mask \(B, T, S\)"):
        run(mask)
    alone = [torch.cat([run(None, part) for part in row[None].split(sizes, 1)], 1) for row, sizes in PACKED]
    torch.testing.assert_close(run(mask[:, None]), torch.cat(alone))
    torch.testing.assert_close(run(mask[:1]), run(mask[:1, None]))
    torch.testing.assert_close(run(mask[None]), run(mask[None].expand(2, -1, -1, -1)))


MASKED = {name: past for name, past in PASTS.items() if name not in ("delta-net", "compressed")}
NEAR = {name: COMPRESSED[name] for name in ("head_dim", "query_rank", "groups", "output_rank", "window", "frequencies")}
MASKED["near"] = {"mixer": "compressed", "mixer_options": NEAR}
MASKED["differential"] = {"core": "differential", "window": 4}


@pytest.mark.parametrize("past", MASKED)
@pytest.mark.parametrize("cached", [False, True])
@torch.no_grad()
def test_a_mask_of_four_axes_that_does_not_fit_is_named(past, cached):
    model = decoder("pre-norm", **{"heads": 2, **MASKED[past]})
    cache = model.empty_cache() if cached else None
    new = TOKENS[:, 4:] if cached else TOKENS
    if cached:
        model(TOKENS[:, :4], cache=cache)
    with pytest.raises(TypeError, match="mask must be a boolean tensor, True for what is seen, not torch"):
        model(new, torch.ones(2, 1, 1, 9), cache)
    for sizes in ((2, 1, 1, 8), (2, 3, 1, 9), (3, 1, 1, 9), (2, 1, 3, 9), (1, 2, 1, 1, 9)):
        words = (
            rf"mask must broadcast to \(B, heads, T, S\) = \(2, 2, {new.shape[1]}, 9\), but its shape is \({sizes[0]}"
        )
        with pytest.raises(ValueError, match=words):
            model(new, torch.ones(sizes, dtype=torch.bool), cache)


@pytest.mark.parametrize("past", MASKED)
@torch.no_grad()
def test_a_mask_of_four_axes_counts_the_past_too(past):
    model = decoder("pre-norm", **{"heads": 2, **MASKED[past]})
    mask = torch.arange(9) >= torch.tensor([[2], [0]])
    cache, want = model.empty_cache(), model(TOKENS, mask)
    model(TOKENS[:, :4], mask[:, None, None, :4], cache)
    torch.testing.assert_close(model(TOKENS[:, 4:], mask[:, None, None], cache), want[:, 4:])
    everything = torch.ones(2, 1, 1, 1, dtype=torch.bool)
    torch.testing.assert_close(model(TOKENS, everything), model(TOKENS))


@pytest.mark.parametrize("past", PASTS)
@torch.no_grad()
def test_a_cache_of_other_samples_is_refused_by_their_numbers(past):
    model = decoder("pre-norm", **PASTS[past])
    cache, want = model.empty_cache(), model(TOKENS)
    model(TOKENS[:, :4], cache=cache)
    with pytest.raises(ValueError, match=r"(cache|state) is of 2 samples, but \w+ has 1"):
        model(TOKENS[:1, 4:], cache=cache)
    torch.testing.assert_close(model(TOKENS[:, 4:], cache=cache), want[:, 4:])


@pytest.mark.parametrize("core", ["softmax", "lightning", "flow-attention", "transnormer", "softplus-attention"])
@pytest.mark.parametrize("where", ["rope", "learned"])
@torch.no_grad()
def test_padding_before_a_text_is_not_counted_where_positions_say_so(where, core):
    options = NEEDS.get(core)
    model = decoder("pre-norm", positions=where, length=16, core=core, core_options=options, query_key_norm="head")
    mask = torch.ones(2, 14, dtype=torch.bool)
    mask[0, :5] = False
    padded, at = torch.cat([torch.zeros(2, 5, dtype=torch.int64), TOKENS], 1), (mask.cumsum(1) - 1).clamp(min=0)
    want = torch.stack([model(TOKENS)[0, -4:], model(padded)[1, -4:]])
    torch.testing.assert_close(model(padded, mask, positions=at)[:, -4:], want, rtol=1e-6, atol=1e-6)
    cache = model.empty_cache()
    model(padded[:, :10], mask[:, :10], cache, positions=at[:, :10])
    got = model(padded[:, 10:], mask, cache, positions=at[:, 10:])
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    relative = where == "rope" and core.startswith("soft")
    assert relative or (model(padded, mask)[0, -1] - want[0, -1]).abs().max() > 1e-3
    for cached in (True, False):
        tokens = model.generate(padded[:, :12], 2, temperature=0, cached=cached, mask=mask[:, :12])
        assert torch.equal(tokens[0, -2:], model.generate(TOKENS[:1, :7], 2, temperature=0)[0, -2:])
    with pytest.raises(ValueError, match="mask must be True at each text's last token"):
        model.generate(padded, 2, mask=mask.flip(1))
    with pytest.raises(ValueError, match=r"Decoder: positions must lie in 0 \.\. 15, but goes from 9 to 22"):
        model(padded, positions=torch.arange(9, 23).expand(2, -1))


COUNTED = ["transnormer:block=4,activation=relu", "transnormer:block=4,softmax=True"]
COUNTED += ["rnope:window=3", "liger-attention:window=2", "qkv-norm:rope_base=100.0"]


@pytest.mark.parametrize("core", COUNTED)
@torch.no_grad()
def test_positions_that_a_core_counts_otherwise_are_refused(core):
    model, in_blocks = decoder("pre-norm", core=core), "block" in core
    cached = not core.startswith("qkv-norm")
    want = model.generate(TOKENS[:1, :7], 3, temperature=0, cached=cached)[:, -3:]

    def padded(fill):
        tokens = torch.cat([torch.zeros(2, fill, dtype=torch.int64), TOKENS[:, :7]], 1)
        mask = torch.arange(fill + 7) >= torch.tensor([[fill], [0]])
        return tokens, mask, (mask.cumsum(1) - 1).clamp(min=0)

    def agrees(fill):
        tokens, mask, at = padded(fill)
        torch.testing.assert_close(model(tokens, mask, positions=at)[:1, fill:], model(TOKENS[:1, :7]))
        got = model.generate(tokens, 3, temperature=0, mask=mask, cached=cached)
        torch.testing.assert_close(got[:1, -3:], want)

    agrees(4)
    if in_blocks:
        words = "Decoder: positions, and padding before .* by a multiple of 4 .* 'transnormer' .* by 3"
        for call in (lambda x, m, at: model(x, m, positions=at), lambda x, m, at: model.generate(x, 1, mask=m)):
            with pytest.raises(ValueError, match=words):
                call(*padded(3))
    else:
        agrees(3)
        at = torch.arange(9).expand(2, -1)
        for wrong, mask in ((5 * at, None), (at % 6, None), (at % 6, at >= 2)):
            with pytest.raises(ValueError, match=r"Decoder: positions must go up one by one, .* core '\S+' counts"):
                model(TOKENS, mask, positions=wrong)
        model(TOKENS, at >= 6, positions=at % 6)


@torch.no_grad()
def test_packed_texts_begin_at_their_own_positions_where_a_core_counts_itself():
    model = decoder("pre-norm", core="rnope:window=3")
    text = torch.arange(9) // 5
    got = model(TOKENS, (text[:, None] == text)[None, None], positions=(torch.arange(9) - 5 * text).expand(2, -1))
    torch.testing.assert_close(got, torch.cat([model(TOKENS[:, :5]), model(TOKENS[:, 5:])], 1))


OTHERS = {
    "a layer less": ({"depth": 2}, ValueError, "Decoder: cache must be a list of 3 layers, not one of 2"),
    "a layer more": ({"depth": 4}, ValueError, "Decoder: cache must be a list of 3 layers, not one of 4"),
    "fewer heads": ({"kv_heads": 2}, ValueError, "cache has 2 heads of 4 features, but the layer has 4 of 4"),
    "another core": ({"core": "lightning"}, TypeError, r"Attention: cache must be .* own empty_cache\(\).* of State"),
    "latent": ({"mixer": "latent", "mixer_options": LATENT}, ValueError, "cache has 1 heads of 5 features"),
}


@pytest.mark.parametrize("other", OTHERS)
@torch.no_grad()
def test_a_cache_of_another_model_is_named_and_stays_as_it_was(other):
    changes, kind, words = OTHERS[other]
    theirs = decoder("pre-norm", **changes)
    cache = theirs.empty_cache()
    want = theirs(TOKENS)
    theirs(TOKENS[:, :4], cache=cache)
    with pytest.raises(kind, match=words):
        decoder("pre-norm")(TOKENS[:, 4:], cache=cache)
    torch.testing.assert_close(theirs(TOKENS[:, 4:], cache=cache), want[:, 4:])


@pytest.mark.parametrize("past", ["lightning", "rnope", "delta-net"])
@torch.no_grad()
def test_a_state_of_other_heads_is_named(past):
    theirs, own = (decoder("pre-norm", **PASTS[past], heads=heads) for heads in (2, 4))
    cache = theirs.empty_cache()
    theirs(TOKENS, cache=cache)
    with pytest.raises(ValueError, match=r"(state|cache) is of 2 heads, but the \w+ has 4"):
        own(TOKENS, cache=cache)


@pytest.mark.parametrize("mixer", ["attention", "latent", "delta-net", "compressed"])
def test_a_cache_of_another_kind_is_named(mixer):
    model = decoder("pre-norm", **PASTS.get(mixer, {}))
    with pytest.raises(TypeError, match=r"Decoder: cache must be what its own empty_cache\(\) returns, not of dict"):
        model(TOKENS, cache={"keys": None})
    with pytest.raises(ValueError, match="Decoder: cache must be a list of 3 layers, not a LayerCache"):
        model(TOKENS, cache=model.empty_cache()[0])
    with pytest.raises(TypeError, match=r"\w+: cache must be what its own empty_cache\(\) returns, not of LayerCache"):
        model.layers[0].attention(torch.zeros(2, 9, 16, dtype=torch.float64), None, model.layers[0].empty_cache())


def test_a_text_without_tokens_is_not_continued():
    with pytest.raises(ValueError, match=r"inputs must have at least one token .* shape is \(2, 0\)"):
        decoder("pre-norm").generate(TOKENS[:, :0], 3)


@pytest.mark.parametrize("temperature", [1e-40, 1e-320])
def test_a_temperature_of_nearly_nothing_draws_the_likeliest(temperature):
    model = decoder("pre-norm")
    want = model.generate(TOKENS, 4, temperature=0)
    assert torch.equal(model.generate(TOKENS, 4, temperature=temperature), want)
    assert torch.equal(model.float().generate(TOKENS, 4, temperature=temperature), want)


@torch.no_grad()
def test_a_memory_whose_mask_is_refused_is_not_kept():
    model = decoder("pre-norm", cross="softmax")
    cache, memory = model.empty_cache(), torch.randn(2, 2, 5, 16, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 5\)"):
        model(TOKENS, None, cache, memory[0], torch.ones(2, 4, dtype=torch.bool))
    torch.testing.assert_close(model(TOKENS, None, cache, memory[1]), model(TOKENS, memory=memory[1]))


COMBINATIONS = [
    *((placement, "softmax") for placement in WIRINGS),
    *(("pre-norm", core) for core in sorted(cores()) if core != "softmax"),
]


def combined(placement, core, depth=2):
    kind = nk.Decoder if fits(nk.Decoder, placement, core) else nk.Encoder
    options = options_of(core, placement)
    torch.manual_seed(0)
    return shaken(kind(vocab=17, depth=depth, **SMALL, placement=placement, core=core, core_options=options).double())


@pytest.mark.parametrize("placement, core", COMBINATIONS)
def test_a_model_is_saved_and_loaded(placement, core):
    model, other = combined(placement, core), combined(placement, core)
    shaken(other)
    assert not torch.equal(other(PAIR), model(PAIR))
    other.load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(other(PAIR), model(PAIR), rtol=0, atol=0)


def test_a_model_that_was_pickled_before_it_could_have_frequencies_is_used_as_it_was():
    model = combined("pre-norm", "softmax")
    want = model(PAIR)
    del model.__dict__["frequencies"]
    assert torch.equal(pickle.loads(pickle.dumps(model))(PAIR), want)


@pytest.mark.parametrize("placement, core", [("normformer", "softmax"), ("ngpt", "softmax"), ("pre-norm", "lightning")])
def test_a_model_compiles_in_one_graph(placement, core):
    torch._dynamo.reset()
    model = combined(placement, core, depth=1)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(PAIR), model(PAIR))
    inner = [torch.autograd.grad(m(PAIR).square().sum(), list(model.parameters())) for m in (compiled, model)]
    torch.testing.assert_close(*inner, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("past", PASTS)
def test_a_compiled_model_goes_on_from_a_cache_in_one_graph(past):
    torch._dynamo.reset()
    depth = 3 if "each" in PASTS[past] else 1  # a second layer of the same kind is traced as the first is
    model = decoder("pre-norm", depth=depth, **PASTS[past]).eval()
    compiled, cache = torch.compile(model, fullgraph=True, backend="eager"), model.empty_cache()
    got = [compiled(TOKENS[:, a:b], None, cache) for a, b in [(0, 5), (5, 8), (8, 9)]]
    torch.testing.assert_close(torch.cat(got, 1), model(TOKENS))


@pytest.mark.parametrize("placement, core", COMBINATIONS)
def test_a_model_is_exported(placement, core):
    """Layers that differ by the core alone are traced as the first is; a placement may connect them."""
    model = combined(placement, core, depth=2 if core == "softmax" else 1).eval()
    torch.testing.assert_close(export(model, (PAIR,)).module()(PAIR), model(PAIR))


class Continued(nn.Module):
    """Reads a prompt, then what follows it, with a cache."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, prompt, new):
        cache = self.decoder.empty_cache()
        self.decoder(prompt, None, cache)
        return self.decoder(new, None, cache)


@pytest.mark.parametrize("core", ["softmax", "lightning"])
def test_a_prompt_of_any_length_is_continued_by_what_is_exported(core):
    model, sizes = combined("pre-norm", core, depth=1).eval(), ({1: torch.export.Dim.DYNAMIC}, {})
    tokens = torch.randint(17, (2, 9), generator=torch.Generator().manual_seed(2))
    program = export(Continued(model), (tokens[:, :4], tokens[:, 4:6]), sizes).module()
    torch.testing.assert_close(program(tokens[:, :7], tokens[:, 7:]), model(tokens)[:, 7:])


# encoder and decoder


LANGUAGES = {"vocab": 17, "encoder_depth": 3, "decoder_depth": 2, **SMALL}
SOURCE = torch.randint(17, (2, 7), generator=torch.Generator().manual_seed(1))
THERE = torch.ones(2, 7, dtype=torch.bool)
THERE[0, 5:] = False


def torch_state(theirs, names):
    """The state of a layer of torch.nn.Transformer under our names; ``names`` maps its norms."""
    found = {own: linear(getattr(theirs, their)) for own, their in names.items()}
    found["feedforward"] = {"up": linear(theirs.linear1), "down": linear(theirs.linear2)}
    for own, their in (("attention", "self_attn"), ("cross_attention", "multihead_attn")):
        if hasattr(theirs, their):
            part = getattr(theirs, their)
            thirds = zip(
                ("query", "key", "value"), part.in_proj_weight.chunk(3), part.in_proj_bias.chunk(3), strict=True
            )
            found[own] = {name: {"weight": w, "bias": b} for name, w, b in thirds} | {"output": linear(part.out_proj)}
    return found


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("placement", ["pre-norm", "post-norm"])
def test_an_encoder_decoder_equals_torchs_transformer(placement):
    torch.manual_seed(0)
    arguments = {"activation": "relu", "bias": True, "final_norm": True, "positions": None}
    own = nk.EncoderDecoder(**LANGUAGES, placement=placement, **arguments).double()
    theirs = nn.Transformer(
        16, 2, 3, 2, 12, dropout=0.0, activation="relu", batch_first=True, norm_first=placement == "pre-norm"
    ).double()
    shaken(theirs), shaken(own)
    encoder = {
        str(i): torch_state(p, {"attention_norm": "norm1", "feedforward_norm": "norm2"})
        for i, p in enumerate(theirs.encoder.layers)
    }
    norms = {"attention_norm": "norm1", "cross_attention_norm": "norm2", "feedforward_norm": "norm3"}
    decoder = {str(i): torch_state(p, norms) for i, p in enumerate(theirs.decoder.layers)}
    tables = {name: own.get_submodule(f"{name}.embedding").weight for name in ("encoder", "decoder")}
    own.load_state_dict(
        flat(
            {
                "encoder": {
                    "embedding": {"weight": tables["encoder"]},
                    "layers": encoder,
                    "norm": linear(theirs.encoder.norm),
                },
                "decoder": {
                    "embedding": {"weight": tables["decoder"]},
                    "layers": decoder,
                    "norm": linear(theirs.decoder.norm),
                },
            }
        ),
        strict=True,
    )
    want = theirs(
        tables["encoder"][SOURCE],
        tables["decoder"][TOKENS],
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(9, dtype=torch.float64),
        src_key_padding_mask=~THERE,
        memory_key_padding_mask=~THERE,
    )
    torch.testing.assert_close(own(SOURCE, TOKENS, THERE), want @ tables["decoder"].mT)


def languages(placement, **changes):
    torch.manual_seed(0)
    return shaken(nk.EncoderDecoder(**{**LANGUAGES, "placement": placement, **changes}).double())


CROSSED = [name for name, wiring in WIRINGS.items() if wiring.hidden != "scale"]


@pytest.mark.parametrize("placement", CROSSED)
def test_both_stacks_learn_and_padding_is_not_read(placement):
    model = languages(placement)
    train_a_step(model, SOURCE, TOKENS, THERE)
    other = SOURCE.clone()
    other[0, 5:] = (other[0, 5:] + 1) % 17
    torch.testing.assert_close(model(other, TOKENS, THERE), model(SOURCE, TOKENS, THERE), rtol=0, atol=0)
    assert not torch.allclose(model(other, TOKENS), model(SOURCE, TOKENS))
    torch.testing.assert_close(model(SOURCE[:1, :5], TOKENS[:1]), model(SOURCE, TOKENS, THERE)[:1])


@pytest.mark.parametrize("placement", CROSSED)
def test_a_translation_with_a_cache_is_that_without(placement):
    model = languages(placement)
    want = model.generate(SOURCE, TOKENS[:, :1], 6, source_mask=THERE, temperature=0, cached=False)
    torch.testing.assert_close(model.generate(SOURCE, TOKENS[:, :1], 6, source_mask=THERE, temperature=0), want)


@pytest.mark.parametrize("core", sorted(cores()))
def test_any_core_that_can_reads_another_sequence(core):
    if reads_others(cores()[core]):
        model = languages("pre-norm", cross=core, cross_options=NEEDS.get(core))
        torch.testing.assert_close(model(SOURCE[:1, :5], TOKENS[:1]), model(SOURCE, TOKENS, THERE)[:1])
        torch.testing.assert_close(model(SOURCE, TOKENS[:, :-1]), model(SOURCE, TOKENS)[:, :-1])
    else:
        with pytest.raises(ValueError, match=f"cross must be one of .*'softmax'.*not '{core}'"):
            languages("pre-norm", cross=core)


def test_the_stacks_know_of_each_other():
    model = nk.EncoderDecoder(**{**LANGUAGES, "dim": 64, "hidden": 256}, placement="deepnorm")
    constants = nk.deepnorm_constants(3, 2)
    for stack, (alpha, beta) in zip((model.encoder, model.decoder), constants, strict=True):
        for layer in stack.layers:
            assert [b.residual for b in layer.branches.values()] == pytest.approx([alpha] * len(layer.branches))
            for part in filter(None, (layer.attention, layer.cross_attention)):
                torch.testing.assert_close(part.value.weight.std().item(), beta / 8, rtol=0.06, atol=0)
                torch.testing.assert_close(part.key.weight.std().item(), 1 / 8, rtol=0.06, atol=0)
    fixup = nk.EncoderDecoder(**LANGUAGES, placement="fixup-residual")
    for stack in (fixup.encoder, fixup.decoder):  # 2 branches a layer of the encoder, 3 of the decoder: 12
        assert 0.9 < stack.layers[0].feedforward.up.weight.abs().max() / (6 / 28) ** 0.5 * 12**0.5 <= 1
        assert stack.layers[0].attention.output.weight.abs().max() == 0


def test_mistakes_of_an_encoder_decoder_are_named():
    layer = nk.TransformerLayer(placement="pre-norm", dim=8, cross="softmax", **SQUARE)
    x, memory = torch.zeros(2, 3, 8), torch.zeros(2, 5, 8)
    with pytest.raises(TypeError, match="memory must be a tensor"):
        layer(x)
    with pytest.raises(ValueError, match=r"memory must have shape \(2, any, 8\)"):
        layer(x, memory=memory[:1])
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 5\)"):
        layer(x, memory=memory, memory_mask=torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="cross='softmax' reads it"):
        nk.TransformerLayer(placement="pre-norm", dim=8, **SQUARE)(x, memory=memory)
    with pytest.raises(ValueError, match=r"'ngpt' has no cross-attention.*those that do: .*pre-norm"):
        nk.EncoderDecoder(**LANGUAGES, placement="ngpt")
    with pytest.raises(ValueError, match="'soft'"):
        nk.EncoderDecoder(**LANGUAGES, cross="soft")
    with pytest.raises(ValueError, match=r"cross must be one of .*not None"):
        nk.EncoderDecoder(**LANGUAGES, cross=None)


@pytest.mark.parametrize("placement", ["pre-norm", "mhc", "siamese-norm", "attention-residuals"])
@pytest.mark.parametrize("memory", [None, torch.zeros(3, 5, 8), torch.zeros(2, 5, 7)])
def test_a_memory_that_is_refused_leaves_the_cache_as_it_was(placement, memory):
    layer = nk.TransformerLayer(placement=placement, dim=8, cross="softmax", **SQUARE)
    cache, stream = layer.empty_cache(), layer.form.expand(torch.zeros(2, 3, 8), layer.place)
    with pytest.raises((TypeError, ValueError), match="TransformerLayer: memory must"):
        layer(stream, cache=cache, memory=memory)
    assert len(cache) == 0


def test_an_encoder_decoder_is_exported():
    model = languages("pre-norm").eval()
    exported = torch.export.export(model, (SOURCE, TOKENS, THERE)).module()
    torch.testing.assert_close(exported(SOURCE, TOKENS, THERE), model(SOURCE, TOKENS, THERE))


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"placement": "mid-norm"}, ["placement", "'pre-norm'"]),
        ({"heads": 3}, ["heads=3", "dim=8"]),
        ({"kv_heads": 4}, ["kv_heads=4", "heads=2"]),
        ({"layer": 2, "depth": 2}, ["layer=2", "depth=2"]),
        ({"norm": "batchnorm"}, ["batchnorm", "rmsnorm"]),
        ({"norm": "rmsnrm"}, ["rmsnrm", "rmsnorm"]),
        ({"core": "soft"}, ["core", "'softmax'"]),
        ({"core": "galerkin"}, ["causal", "softmax"]),
        ({"core_options": {"temper": 1}}, ["temper", "softmax"]),
        ({"activation": "gluu"}, ["activation", "'swiglu'"]),
        ({"placement": "ngpt", "kv_heads": 1}, ["kv_heads", "ngpt"]),
        ({"placement": "ngpt", "core": "galerkin", "causal": False}, ["galerkin", "scale", "softmax"]),
        ({"placement": "pre-norm", "alpha": 1.0}, ["alpha", "no options"]),
        ({"placement": "deepnorm", "beta": 1.0}, ["beta", "alpha"]),
        ({"placement": "mix-ln", "alpha": 2.0}, ["alpha"]),
        ({"linear": "rmsnorm"}, ["linear", "sdd-linear"]),
        ({"bias": "both"}, ["bias"]),
        ({"window": 0}, ["window"]),
        ({"window": 4, "core": "lightning"}, ["lightning", "window", "softmax"]),
        ({"cross": "galerkin"}, ["galerkin", "another sequence", "softmax"]),
    ],
)
def test_a_wrong_combination_says_what_would_do(arguments, words):
    with pytest.raises((ValueError, TypeError)) as caught:
        nk.TransformerLayer(**{"placement": "pre-norm", "dim": 8, **SQUARE, **arguments})
    for word in words:
        assert word in str(caught.value)


def test_mistakes_of_a_model_are_named():
    with pytest.raises(ValueError, match="length"):
        nk.Decoder(**TINY, positions="learned")
    with pytest.raises(ValueError, match="head_dim=3 is odd"):
        nk.Decoder(**{**TINY, "dim": 12})
    with pytest.raises(ValueError, match=r"window must be a number, None or one or more of them, not \[\]"):
        nk.Decoder(**TINY, window=[])
    for wrong in ([], 1.0, [(1.0,)], Frequencies((1.0,))):
        with pytest.raises(TypeError, match="Decoder: frequencies must be a sequence of one Frequencies or more, not"):
            nk.Decoder(**TINY, frequencies=wrong)
    with pytest.raises(ValueError, match="frequencies turn 3 pairs, but a head has 4 features"):
        nk.Decoder(**TINY, frequencies=[Frequencies((1.0, 0.5, 0.1))])
    with pytest.raises(ValueError, match="positions must be 'rope'"):
        nk.Decoder(**TINY, frequencies=[Frequencies((1.0,))], positions=None)
    model = nk.Decoder(**TINY, positions="learned", length=8)
    with pytest.raises(ValueError, match="length=8"):
        model(TOKENS)
    with pytest.raises(ValueError, match=r"0 \.\. 16"):
        model(TOKENS[:, :3] + 17)
    with pytest.raises(TypeError, match="int64"):
        model(TOKENS[:, :3].int())
    with pytest.raises(ValueError, match="by a rule"):
        nk.Decoder(**TINY, placement="deepnorm", std=0.02)
    with pytest.raises(ValueError, match="'gpt2'"):
        nk.preset("gpt5")


def test_all_linear_maps_can_be_of_another_kind():
    model = nk.Decoder(**TINY, placement="post-norm", linear="sdd-linear")
    assert sum(type(m).__name__ == "SDDLinear" for m in model.modules()) == 6 * TINY["depth"]
    assert model(TOKENS).isfinite().all()


ACTS = {
    "swiglu": nn.functional.silu,
    "geglu": nn.functional.gelu,
    "geglu_tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_gate_has_the_derivatives_of_its_definition(name):
    h = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    u, gate = h.chunk(2, -1)
    torch.testing.assert_close(gated(h, name), ACTS[name](gate) * u)
    torch.autograd.gradcheck(lambda x: gated(x, name), h)
    torch.autograd.gradgradcheck(lambda x: gated(x, name), h)
    strided = torch.randn(8, 3, dtype=torch.float64, requires_grad=True).mT
    torch.autograd.gradcheck(lambda x: gated(x, name), strided)
    rows = torch.func.vmap(torch.func.grad(lambda x: gated(x, name).sum()))(h.detach()[0])
    torch.testing.assert_close(rows, torch.autograd.grad(gated(h[0], name).sum(), h)[0][0])


@pytest.mark.parametrize("style", ["halves", "pairs"])
def test_rotary_scores_depend_on_the_distance_alone(style):
    q, k = torch.randn(2, 8, dtype=torch.float64)
    at = torch.arange(12)
    angles = tuple(a.double() for a in turns(at, 8))
    scores = rotate(q.expand(12, 8), angles, style) @ rotate(k.expand(12, 8), angles, style).mT
    for distance in range(-11, 12):
        same = scores.diagonal(distance)
        torch.testing.assert_close(same, same[:1].expand_as(same), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores[0, 0], q @ k)
    assert scores.std() > 0.01


def test_a_head_of_its_own_starts_as_small_as_an_embedding():
    torch.manual_seed(0)
    weight = nk.Decoder(vocab=100, dim=64, depth=1, heads=4, tied=False).head.weight
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert abs(weight.mean().item()) < 0.001


def test_matrices_start_with_std_and_nothing_else_does():
    torch.manual_seed(0)
    layer = {"mixer": "latent", "mixer_options": LATENT, "bias": "feedforward", "feedforward": "moe"}
    layer["router"] = "router:experts=4,top_k=2"
    model = nk.Decoder(**TINY | {"dim": 64}, positions=None, tied=False, std=0.5, scale_outputs=True, **layer)
    for name, parameter in model.named_parameters():
        small = name.endswith(("attention.output.weight", "feedforward.down.weight"))
        want = 0.0 if name.endswith("bias") else 0.5 / 6**0.5 if small else 0.5
        assert "norm" in name or parameter.std().item() == pytest.approx(want, rel=0.2), name
    core = nk.Encoder(**TINY, core="galerkin", std=0.5).layers[0].attention.core
    assert (core.key_norm.weight == 1).all()
    with pytest.raises(ValueError, match=r"Decoder: std must lie in \[0\.0"):
        decoder("pre-norm", std=-1.0)


def test_presets_start_as_documented():
    model = nk.preset("gpt2", vocab=50, dim=64, depth=4, heads=4, hidden=256, length=16)
    layer = model.layers[1]
    assert layer.attention.query.bias.abs().max() == 0
    torch.testing.assert_close(layer.feedforward.up.weight.std().item(), 0.02, rtol=0.05, atol=0)
    torch.testing.assert_close(layer.feedforward.down.weight.std().item(), 0.02 / 8**0.5, rtol=0.05, atol=0)
    with torch.device("meta"):
        sizes = {
            name: sum(p.numel() for p in nk.preset(name).parameters()) for name in ("gpt2", "llama", "gemma2", "olmo2")
        }
    assert sizes["gpt2"] == 124_439_808
    assert sizes["llama"] == 6_738_415_616
    assert sizes["gemma2"] == 2_614_341_888
    assert sizes["olmo2"] == 7_298_617_344


def spread(model):
    return {name: (p.mean().item(), p.std(correction=0).item()) for name, p in model.named_parameters()}


MADE = {
    **{f"placement {name}": functools.partial(nk.Decoder, **TINY, placement=name) for name in placements()},
    "a head and a law": functools.partial(nk.Decoder, **TINY, tied=False, std=0.5, scale_outputs=True, bias=True),
    "learned positions": functools.partial(nk.Encoder, **TINY, positions="learned", length=30),
    "experts": functools.partial(nk.Decoder, **TINY, feedforward="moe", router="router:experts=4,top_k=2"),
    "an input a layer": functools.partial(nk.Decoder, **TINY, layer_inputs=6, std=0.5, placement="laurel"),
    "a layer": functools.partial(
        nk.TransformerLayer, placement="depth-scaled-sandwich", dim=12, heads=2, hidden=40, cross="softmax"
    ),
}


@pytest.mark.parametrize("case", MADE)
def test_weights_start_anew_by_the_law_of_the_constructor(case):
    torch.manual_seed(0)
    with torch.device("meta"):
        model = MADE[case]()
    model.to_empty(device="cpu")
    for held in [*model.parameters(), *model.buffers()]:
        held.detach().fill_(torch.nan)
    model.init_weights()
    first, second, started = spread(MADE[case]()), spread(MADE[case]()), spread(model)
    for name, (mean, deviation) in first.items():
        if second[name] == (mean, deviation):
            assert started[name] == (mean, deviation), name
        elif dict(model.named_parameters())[name].numel() > 60:
            assert started[name][1] == pytest.approx(deviation, rel=0.5), name
    assert all(torch.isfinite(held).all() for held in [*model.parameters(), *model.buffers()])


@pytest.mark.parametrize("causal", [False, True])
def test_a_window_has_two_sides_where_the_future_is_seen(causal):
    """Which inputs reach which results, against the distances."""
    torch.manual_seed(0)
    layer = nk.create("transformer-layer", dim=8, placement="pre-norm", heads=2, hidden=8, window=3, causal=causal)
    jacobian = torch.autograd.functional.jacobian(lambda x: layer.eval()(x).sum(-1), torch.randn(1, 7, 8))
    reached = jacobian.abs().sum((0, 2, 4)) > 0
    lag = torch.arange(7)[:, None] - torch.arange(7)
    assert torch.equal(reached, (lag.abs() < 3) & (lag >= 0) if causal else lag.abs() < 3)


def test_a_low_temperature_takes_the_likeliest_and_a_high_one_anything():
    torch.manual_seed(0)
    model = nk.Decoder(**TINY).eval()
    chance = torch.Generator().manual_seed(0)
    cold = model.generate(TOKENS, 12, temperature=1e-4, generator=chance)
    assert torch.equal(cold, model.generate(TOKENS, 12, temperature=0))
    hot = model.generate(TOKENS[:1].expand(400, -1), 1, temperature=1e4, generator=chance)[:, -1]
    assert hot.bincount(minlength=17).min() > 5  # 23.5 of 400 on average, of each of 17


@torch.no_grad()
@pytest.mark.parametrize("causal, window, seen", [(True, None, 0), (True, 2, 0), (False, None, 3), (False, 2, 1)])
def test_a_token_sees_what_is_behind_it_where_nothing_is_causal(causal, window, seen):
    torch.manual_seed(0)
    layer = nk.TransformerLayer(placement="pre-norm", dim=8, causal=causal, window=window, **SQUARE)
    x = torch.randn(2, 4, 8)
    for later in range(1, 4):
        other = x.clone()
        other[:, later] = torch.randn(2, 8)
        moved = (layer(other) - layer(x)).abs().amax((0, 2)) > 1e-4
        assert moved.tolist()[:later] == [later - at <= seen for at in range(later)]


@torch.no_grad()
def test_cross_attention_sees_all_of_the_memory_and_takes_its_own_options():
    """The scale is 0 in the cross-attention alone: then all of the memory counts alike, whatever its order."""
    torch.manual_seed(0)
    options = {"placement": "pre-norm", "dim": 8, "cross": "softmax", "core_options": {"scale": 1.0}, **SQUARE}
    layer = nk.TransformerLayer(**options)
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    other = memory.clone()
    other[:, -1] += 1
    assert ((layer(x, memory=other) - layer(x, memory=memory)).abs().amax(-1) > 1e-3).all()
    assert not torch.allclose(layer(x, memory=memory.flip(1).roll(1, -1)), layer(x, memory=memory), atol=1e-3)
    even = nk.TransformerLayer(**options, cross_options={"scale": 0.0})
    even.load_state_dict(layer.state_dict())
    mean = memory.mean(1, keepdim=True).expand_as(memory)
    torch.testing.assert_close(even(x, memory=mean), even(x, memory=memory))
    assert not torch.allclose(layer(x, memory=mean), layer(x, memory=memory), atol=1e-3)
    assert not torch.allclose(even(x + x.flip(1), memory=memory), even(x, memory=memory), atol=1e-3)


def test_a_placements_own_option_is_reported_as_it_was_typed():
    layer = nk.create("transformer-layer", placement="deepnorm", dim=8, heads=2, hidden=16, alpha=2.5)
    assert layer.arguments["alpha"] == 2.5
    assert ", alpha=2.5\n" in repr(layer)


def test_a_norm_that_lacks_an_argument_is_no_stranger_to_a_stream():
    options = {"vocab": 9, "dim": 8, "depth": 1, "heads": 2}
    with pytest.raises(ValueError, match="norm='grouped-rmsnorm' has no group_size; write 'grouped-rmsnorm:group_siz"):
        nk.Decoder(**options, norm="grouped-rmsnorm")
    assert isinstance(nk.Decoder(**options, norm="grouped-rmsnorm:group_size=4").norm, nk.GroupedRMSNorm)
    with pytest.raises(ValueError, match=r"norm=.groupnorm. does not fit a residual stream; those that do: .*rmsnorm"):
        nk.Decoder(**options, norm="groupnorm")
