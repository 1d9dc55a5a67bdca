"""Weights in few bits, on a small language model that the lab trains on the spot."""

import copy
import io
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import normkit as nk
from normkit.lab import tiny
from normkit.optional import let_torchvision_load, library
from normkit.surgery.quantizing.weights import perplexity

pytest.importorskip("torchao")
SIZES = {"steps": 150, "lr": 1e-2, "dim": 32, "depth": 2, "heads": 2, "length": 24, "tied": False}


@pytest.fixture(scope="module")
def model():
    return tiny.language_model(**SIZES).model


@pytest.fixture(scope="module")
def data():
    return tiny.language_model(**SIZES).given[:12]


@pytest.fixture(scope="module")
def held():
    return tiny.language_model(**SIZES).held[:2]


def test_eight_bits_change_little_and_are_a_quarter_of_the_bytes(model, held):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = nk.quantize(model, bits=8, held=held)
    assert len(found.layers) == 2 * 6 + 1
    assert found.perplexity[1] == pytest.approx(found.perplexity[0], rel=5e-3)
    assert found.bytes[1] < 0.4 * found.bytes[0]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_perplexity_is_of_real_tokens_alone(model, held):
    """Padding, and what labels leave out, count as little as in the loss that transformers takes."""
    tokens, kept = held[0][:2], torch.ones_like(held[0][:2], dtype=torch.bool)
    kept[0, 10:] = False
    padded = tokens.where(kept, 0)

    class Named(nn.Module):
        def __init__(self, form=lambda logits: logits):
            super().__init__()
            self.inner, self.form = model, form

        def forward(self, input_ids, attention_mask=None, labels=None):
            return self.form(self.inner(input_ids))

    losses = F.cross_entropy(model(padded)[:, :-1].transpose(1, 2), padded[:, 1:], reduction="none")
    want = losses[kept[:, 1:]].mean().exp().item()
    by_mask = {"input_ids": padded, "attention_mask": kept.long()}
    by_labels = {"input_ids": padded, "labels": tokens.masked_fill(~kept, -100)}
    assert perplexity(Named(), [by_mask]) == pytest.approx(want, rel=1e-5)
    for form in (lambda logits: logits, lambda logits: {"logits": logits}, lambda logits: (logits, None)):
        assert perplexity(Named(form), [by_labels]) == pytest.approx(want, rel=1e-5)
    assert perplexity(Named(), [{"input_ids": padded}]) > 1.5 * want
    left = by_mask | {"attention_mask": kept.long().flip(1)}
    assert perplexity(Named(), [left]) == pytest.approx(losses[kept.flip(1)[:, :-1]].mean().exp().item(), rel=1e-5)


@pytest.mark.parametrize("score, wanted", [(-1e5, float("inf")), (float("nan"), float("nan"))])
def test_a_perplexity_that_is_too_large_for_a_number_is_infinite(score, wanted):
    model = nn.Embedding.from_pretrained(score * torch.eye(2))
    assert perplexity(model, [torch.zeros(1, 3, dtype=torch.long)]) == pytest.approx(wanted, nan_ok=True)


def test_perplexity_is_of_the_labels_where_the_models_own_loss_predicts_them():
    """An encoder-decoder and a masked model predict them at their own place, and the former from another text."""
    tf = library("transformers")
    torch.manual_seed(0)
    small = {"num_layers": 1, "num_heads": 2, "d_model": 16, "d_kv": 8, "d_ff": 16, "decoder_start_token_id": 0}
    other = tf.T5ForConditionalGeneration(tf.T5Config(vocab_size=32, **small)).eval()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    masked = tf.BertForMaskedLM(tf.BertConfig(vocab_size=32, **sizes)).eval()
    tokens, labels = torch.randint(32, (4, 9)), torch.randint(32, (4, 5))
    left = tokens.masked_fill(torch.arange(9) % 3 != 0, -100)
    for model, own in ((other, labels), (other, labels[:, :1]), (masked, left)):
        batch = {"input_ids": tokens, "labels": own}
        want = model(**batch).loss.exp().item()
        assert nk.quantize(model, bits=8, held=[batch]).perplexity[0] == pytest.approx(want, rel=1e-4)
    begun = torch.cat([labels.new_zeros(4, 1), labels], 1)  # as the decoder gets them
    want = other(input_ids=tokens, labels=labels).loss.exp().item()
    assert perplexity(other, [{"input_ids": tokens, "decoder_input_ids": begun}]) == pytest.approx(want, rel=1e-4)
    sorts = tf.BertForSequenceClassification(masked.config)
    with pytest.raises(ValueError, match=r"held-out batches must have labels .* torch.int64 \(4,\) and"):
        nk.quantize(sorts, bits=8, held=[{"input_ids": tokens, "labels": torch.ones(4).long()}])


def test_an_attention_that_reads_its_own_weight_keeps_it():
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    found = nk.quantize(model, bits=8)
    assert found.layers == ["linear1", "linear2"]
    assert found.notes == {
        "self_attn.out_proj": "left, its attention reads its weight itself",
        "self_attn": "left, its weights are no linear's (3,072 of 8,544 numbers)",
    }
    torch.testing.assert_close(found.model(x), model(x), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("held", [[], torch.empty(0, 8)], ids=["a list", "a tensor"])
def test_held_out_batches_that_are_none_are_refused(model, held):
    with pytest.raises(ValueError, match="held must hold at least one batch"):
        nk.quantize(model, bits=8, held=held)


def test_nearest_is_the_grid_of_each_group():
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Linear(12, 5))
    weight = layer[0].weight.detach().reshape(5, 3, 4)
    low, high = weight.amin(2, True).clamp(max=0), weight.amax(2, True).clamp(min=0)
    step = (high - low) / 7
    zero = (-low / step).round()
    want = ((torch.floor(weight / step + 0.5) + zero).clamp(0, 7) - zero) * step
    got = nk.quantize(layer, bits=3, group=4).model[0].weight.dequantize()
    torch.testing.assert_close(got, want.reshape(5, 12))


@torch.no_grad()
def apart(model, other, held):
    """How far what one model expects is from what another does."""
    logs = [torch.log_softmax(each(held[0]).flatten(0, 1), -1) for each in (other, model)]
    return float(F.kl_div(*logs, log_target=True, reduction="batchmean"))


@torch.no_grad()
def off(model, other, name, held):
    """How far what one layer puts out is from what it does in another model, as a share."""
    puts = []
    for each in (model, other):
        hook = each.get_submodule(name).register_forward_hook(lambda module, given, put: puts.append(put))
        each(held[0])
        hook.remove()
    return float((puts[1] - puts[0]).square().sum() / puts[0].square().sum())


def test_learned_rounding_keeps_what_a_layer_puts_out_at_two_bits(model, data, held):
    """Of one layer, whose inputs stay: what all of them do to so small a model differs from machine to machine."""
    name = "layers.0.feedforward.up"
    nearest, learned = (
        nk.quantize(model, data, method=method, bits=2, where=name, steps=150, lr=0.05).model
        for method in ("nearest", "learned-rounding")
    )
    assert off(model, learned, name, held) < 0.85 * off(model, nearest, name, held)


def test_rounding_is_learned_of_a_model_in_half_precision():
    torch.manual_seed(0)
    layer, x = nn.Sequential(nn.Linear(8, 16)).bfloat16(), (torch.randn(64, 2) @ torch.randn(2, 8)).bfloat16()
    nearest, learned = (
        nk.quantize(layer, [x], method=method, bits=2, steps=150, lr=0.05).model
        for method in ("nearest", "learned-rounding")
    )
    nearest, learned = ((model(x).float() - layer(x).float()).square().mean() for model in (nearest, learned))
    assert learned < 0.9 * nearest


def test_rounding_is_learned_within_inference_mode_as_outside_of_it():
    layer, x = nn.Linear(6, 4), torch.randn(8, 6)
    with torch.inference_mode():
        within = nk.quantize(layer, [x], method="learned-rounding", steps=3).model
    outside = nk.quantize(layer, [x], method="learned-rounding", steps=3).model
    assert torch.equal(within(x), outside(x))


def test_norm_tweaking_helps_at_two_bits(model, data, held):
    nearest, tweaked = (
        nk.quantize(model, data, method=method, bits=2, where="layers.*", norm_lr=3e-3)
        for method in ("nearest", "norm-tweaking")
    )
    assert all(last < 0.97 * first for first, last in tweaked.tweaked.values())
    assert apart(model, tweaked.model, held) < apart(model, nearest.model, held)


def test_norms_in_half_precision_are_tweaked_by_steps_below_their_own(model, data):
    """A gain near 1 has steps of 0.004 in bfloat16."""
    model = copy.deepcopy(model).bfloat16()
    found = nk.quantize(model, data, method="norm-tweaking", where="layers.*", norm_lr=1e-3).model
    gain, before = (one.layers[0].attention_norm.weight for one in (found, model))
    assert gain.dtype is torch.bfloat16
    assert not torch.equal(gain, before)


def test_a_layer_that_nothing_comes_to_is_rounded_to_the_nearest(model, data):
    model = copy.deepcopy(model)
    model.spare = torch.nn.Linear(8, 4)
    found = nk.quantize(model, data[:1], method="learned-rounding", where="spare")
    assert found.notes == {"spare": "rounded to the nearest: nothing came to it"}
    want = nk.quantize(model, where="spare").model.spare.weight
    assert torch.equal(found.model.spare.weight.dequantize(), want.dequantize())


def test_a_quantized_model_is_saved_and_loaded_without_pickle(model, held):
    found, file = nk.quantize(model, bits=4).model, io.BytesIO()
    torch.save(found.state_dict(), file)
    file.seek(0)
    other = nk.Decoder(vocab=tiny.VOCAB, dim=32, depth=2, heads=2, tied=False).eval()
    other.load_state_dict(torch.load(file, weights_only=True), assign=True)
    assert torch.equal(other(held[0]), found(held[0]))


@pytest.mark.parametrize(("method", "group"), [("learned-rounding", 4), ("adaquant", None)])
def test_a_model_that_was_quantized_by_numpys_numbers_is_that_of_pythons_and_is_saved(method, group, tmp_path):
    layers, rows = nn.Sequential(nn.Linear(8, 4)), [torch.randn(16, 8)]
    sizes = {"bits": 3, "steps": 20, "rows": 12, "seed": 2} | ({"group": group} if group else {})
    rates = {"lr": 0.5, "norm_lr": 0.25, "norm_growth": 0.5}
    numpys = {name: np.int64(n) for name, n in sizes.items()} | {name: np.float32(n) for name, n in rates.items()}
    wanted = nk.quantize(layers, rows, method=method, **sizes, **rates)
    made = nk.quantize(layers, rows, method=method, **numpys)
    assert torch.equal(made.model[0].weight.dequantize(), wanted.model[0].weight.dequantize())
    assert json.dumps(made.to_dict()["bits"]) == '{"0": 3}'
    nk.save(made.model, tmp_path / "few", original=layers)
    words = json.loads((tmp_path / "few/normkit.json").read_text())["edits"][0]["words"]
    assert words == {"bits": 3, "group": group or 8, "packed": False, "dtype": "float32"}


@pytest.mark.parametrize("seed", [1.5, "1", None])
def test_a_seed_that_is_no_integer_is_named(seed):
    with pytest.raises(TypeError, match=f"quantize: seed must be an integer, not {seed!r}"):
        nk.quantize(nn.Sequential(nn.Linear(8, 4)), seed=seed)


def test_in_place_and_only_where_it_is_asked_for():
    layers = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 4))
    kept, want = layers[0].weight, nk.quantize(layers, where="1").model[1].weight.dequantize()
    found = nk.quantize(layers, where="1", inplace=True)
    assert found.model is layers
    assert layers[0].weight is kept
    assert torch.equal(layers[1].weight.dequantize(), want)
    assert type(layers[1].weight).__name__ == "IntxUnpackedToInt8Tensor"
    with pytest.raises(ValueError, match=r"model has no linear to quantize .*already of Intx"):
        nk.quantize(layers, where="1")
    with pytest.raises(ValueError, match="where='2' chooses none of 0, 1"):
        nk.quantize(layers, where="2")


def test_what_cannot_be_quantized_is_named(model):
    bad = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        bad[0].weight[0, 0] = torch.nan
    for call, word in [
        (lambda: nk.quantize(nn.LayerNorm(3)), "model has no linear"),
        (lambda: nk.quantize(model, bits=1), "bits must be at least 2"),
        (lambda: nk.quantize(model, method="learned-rounding"), "data must hold at least one batch"),
        (lambda: nk.quantize(model, norm_growth=-5.0), "norm_growth must lie in .0.0, inf., not -5.0"),
        (lambda: nk.quantize(model, norm_growth=float("nan")), "norm_growth must lie in .0.0, inf., not nan"),
        (lambda: nk.quantize(bad), "the weight of 0 has NaN"),
        (lambda: nk.quantize(bad, group=3), "groups of 3 do not divide its 2 inputs"),
        (lambda: nk.quantize(nn.Sequential(nn.Linear(2, 2)), [torch.ones(1, 2)], method="norm-tweaking"), "blocks"),
    ]:
        with pytest.raises(ValueError, match=word):
            call()
    for batches in ({"data": "text"}, {"data": None}, {"held": 3}):
        with pytest.raises(TypeError, match=f"quantize: {next(iter(batches))} must be batches"):
            nk.quantize(model, **batches)


def test_the_linears_of_gpt2_are_quantized_too(data, held):
    let_torchvision_load()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=tiny.VOCAB, n_positions=32, n_embd=32, n_layer=1, n_head=2)).eval()
    model.transformer.h[0].ln_1.requires_grad_(False)
    before = model(held[0]).logits
    found = nk.quantize(model, data[:2], bits=8, method="norm-tweaking", held=[{"input_ids": held[0]}])
    assert [found.model.transformer.h[0].get_submodule(n).weight.requires_grad for n in ("ln_1", "ln_2")] == [
        False,
        True,
    ]
    assert all(parameter.grad is None for parameter in found.model.parameters())
    assert found.layers == [
        f"transformer.h.0.{part}" for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    ]
    assert all(found.notes[name] == "a Conv1D, now a Linear" for name in found.layers)
    torch.testing.assert_close(found.model(held[0]).logits, before, rtol=0.1, atol=0.02)
    torch.testing.assert_close(model(held[0]).logits, before)
    assert found.perplexity[1] == pytest.approx(found.perplexity[0], rel=1e-2)
    assert "\nperplexity {:.4g} to {:.4g}\n".format(*found.perplexity) in str(found)
    kept = nk.quantize(model, bits=8, inplace=True)
    assert "perplexity" not in str(kept)
    assert kept.model is model
    torch.testing.assert_close(model(held[0]).logits, before, rtol=0.1, atol=0.02)
    assert model.generate(held[0][:1, :4], max_new_tokens=2, do_sample=False).shape == (1, 6)


def test_a_layer_that_a_model_holds_in_two_places_is_quantized_in_both():
    conv1d = library("transformers").pytorch_utils.Conv1D(8, 8)
    found = nk.quantize(nn.Sequential(conv1d, nn.ReLU(), conv1d), bits=8)
    assert found.layers == ["0"]
    assert found.model[0] is found.model[2]


def test_a_block_that_is_tweaked_sees_each_token_once_whatever_cache_it_is_handed(held):
    transformers = library("transformers")
    config = transformers.LlamaConfig(**SMALL, vocab_size=tiny.VOCAB, intermediate_size=48, attn_implementation="eager")
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).eval()
    assert list(nk.quantize(model, held[:1], method="norm-tweaking").tweaked) == ["model.layers.0"]


def test_the_router_of_a_block_is_not_tweaked_with_its_norms(held):
    transformers = library("transformers")
    config = transformers.MixtralConfig(**SMALL, vocab_size=tiny.VOCAB, intermediate_size=48, num_key_value_heads=1)
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(config).eval()
    found = nk.quantize(model, held[:1], method="norm-tweaking").model
    block, tweaked = (one.model.layers[0] for one in (model, found))
    assert torch.equal(tweaked.mlp.gate.weight, block.mlp.gate.weight)
    assert not torch.equal(tweaked.input_layernorm.weight, block.input_layernorm.weight)


SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64}
OTHERS = {
    "Llama": {**SMALL, "intermediate_size": 48, "num_key_value_heads": 1},
    "OPT": {**SMALL, "ffn_dim": 48, "word_embed_proj_dim": 32},
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_language_models_are_quantized_saved_loaded_and_generate_from_few_bits(name, held):
    transformers = library("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": tiny.VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{name}Config")(**sizes, **OTHERS[name])
    made = getattr(transformers, f"{name}ForCausalLM")
    model, file = made(config).eval(), io.BytesIO()
    found = nk.quantize(model, bits=8, held=[{"input_ids": held[0]}])
    assert found.perplexity[1] == pytest.approx(found.perplexity[0], rel=1e-2)
    assert found.bytes[1] < 0.7 * found.bytes[0]
    torch.save(found.model.state_dict(), file)
    file.seek(0)
    again = made(config).eval()
    again.load_state_dict(torch.load(file, weights_only=True), assign=True)
    again.tie_weights()
    given = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    want = found.model.generate(held[0][:2], past_key_values=nk.nsnquant_cache(chunk=8), **given)
    assert want.shape == (2, held[0].shape[1] + 6)
    assert torch.equal(again.generate(held[0][:2], past_key_values=nk.nsnquant_cache(chunk=8), **given), want)


def test_packed_weights_run_on_torchaos_kernel_and_are_half_a_byte():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    x = torch.randn(5, 64)
    plain, packed = (nk.quantize(model, bits=4, group=32, pack=pack) for pack in (False, True))
    torch.testing.assert_close(packed.model(x), plain.model(x), rtol=1e-2, atol=1e-2)
    assert type(packed.model[0].weight.data).__name__ == "Int4OpaqueTensor"
    assert packed.model[0].weight.data.qdata.nbytes == 64 * 32 // 2
    assert packed.bytes[1] < plain.bytes[1] - 64 * 32 // 4
    assert list(packed.notes) == ["2"]
    assert "10 outputs" in packed.notes["2"]
    file = io.BytesIO()
    torch.save(packed.model.state_dict(), file)
    file.seek(0)
    again = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    again.load_state_dict(torch.load(file, weights_only=True), assign=True)
    assert torch.equal(again(x), packed.model(x))
    for wrong in ({"bits": 3, "group": 32}, {"bits": 4}, {"bits": 4, "group": 16}):
        with pytest.raises(ValueError, match="pack=True is for bits=4"):
            nk.quantize(model, pack=True, **wrong)


def test_experts_and_computed_weights_that_are_left_are_noted():
    tf = library("transformers")
    sizes = {"num_key_value_heads": 1, "num_local_experts": 4, "intermediate_size": 48}
    config = tf.MixtralConfig(vocab_size=16, **(SMALL | sizes | {"num_hidden_layers": 2}))
    left = nk.quantize(tf.MixtralForCausalLM(config), bits=8).notes
    why = "left like all 2 MixtralExperts, their weights are no linear's (36,864 of 44,448 numbers)"
    assert left == {"model.layers.0.mlp.experts": why}
    assert not nk.quantize(tf.MixtralForCausalLM(config), where="*attn*").notes
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), nn.Linear(8, 8))
    assert nk.quantize(normed).notes == {"0": "left, its weight is made of other parameters"}
    model = nn.Sequential(nn.Conv1d(8, 8, 1), nn.Linear(8, 8))
    assert not nk.quantize(model, where=lambda name, linear: linear.out_features > 2).notes


def test_a_linear_in_float64_stays_and_says_so():
    model = nn.Sequential(nn.Linear(8, 8).double(), nn.Linear(8, 8))
    assert nk.quantize(model).layers == ["1"]
    with pytest.raises(ValueError, match=r"no linear to quantize \(0: left, its weight is in float64"):
        nk.quantize(model[:1])


class ByWeight(nn.Module):
    """As BEiT calls its attention's map, and as a LoRA of a subclass and a map in half precision are."""

    def __init__(self):
        super().__init__()
        self.named, self.summed, self.cast, self.plain = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        x = nn.functional.linear(x, weight=self.named.weight, bias=self.named.bias)
        x = nn.functional.linear(x, self.summed.weight + 1, self.summed.bias)
        return self.plain(nn.functional.linear(x, self.cast.weight.to(x.dtype), self.cast.bias))


@pytest.mark.parametrize("method", ["nearest", "learned-rounding"])
def test_a_weight_that_a_model_computes_with_itself_is_left(method):
    done = nk.quantize(ByWeight(), [torch.randn(3, 8)], bits=8, method=method, steps=2)
    assert done.layers == ["cast", "plain"]
    left = {name: note for name, note in done.notes.items() if note.startswith("left")}
    assert left == dict.fromkeys(["named", "summed"], "left, the model computes with its weight itself")
    assert done.model(torch.randn(3, 8)).shape == (3, 8)


def test_a_batch_that_the_model_does_not_take_is_named_and_nothing_is_changed():
    model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"quantize: the model does not take the first batch of data: .*2x5 and 4x4"):
        nk.quantize(model, [torch.randn(2, 5)], bits=8)
    assert type(model[0].weight) is nn.Parameter
