"""Keys and values in two bits a number, in a real ``generate``."""

import pickle
import subprocess
import sys

import pytest
import torch

import normkit as nk
from normkit.optional import library
from normkit.surgery.quantizing import caching
from normkit.surgery.quantizing.caching import decode, encode


@pytest.fixture(scope="module")
def model():
    pytest.importorskip("transformers")
    transformers = library("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 256}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).eval()


PROMPT = torch.randint(1, 32, (2, 40), generator=torch.Generator().manual_seed(0))


def generated(model, cache, **options):
    fixed = {"do_sample": False, "max_new_tokens": 8, "min_new_tokens": 8, "pad_token_id": 0}
    return model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), past_key_values=cache, **fixed, **options)


@torch.no_grad()
def test_generate_takes_it_and_what_is_not_rounded_is_the_same(model):
    cache = nk.nsnquant_cache(chunk=64)
    assert torch.equal(generated(model, cache), generated(model, None))
    assert cache.get_seq_length() == 47
    cache = nk.nsnquant_cache(chunk=8)
    plain = model(PROMPT, past_key_values=cache)
    assert torch.equal(plain.logits, model(PROMPT).logits)  # the first pass sees the tokens themselves
    assert cache.get_seq_length() == 40
    token = torch.ones(2, 1, dtype=torch.int64)
    got, want = model(token, past_key_values=cache).logits, model(torch.cat([PROMPT, token], 1)).logits[:, -1:]
    assert 0 < (got - want).norm() < 0.2 * (want - want.mean(-1, keepdim=True)).norm()


def test_beams_and_batches_are_followed(model):
    found = generated(model, nk.nsnquant_cache(chunk=64), num_beams=3)
    assert torch.equal(found, generated(model, None, num_beams=3))
    cache = nk.nsnquant_cache(chunk=8)
    assert generated(model, cache, num_beams=3).shape == (2, 48)
    before = decode(cache.layers[0].coded[0][0], torch.float32)
    order = torch.tensor([5, 4, 3, 2, 1, 0])
    cache.reorder_cache(order)
    assert torch.equal(decode(cache.layers[0].coded[0][0], torch.float32), before[order])
    with pytest.raises(ValueError, match="cannot be cropped"):
        cache.crop(1)


def test_an_encoder_decoder_takes_two():
    transformers = library("transformers")
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0)).eval()
    two = transformers.EncoderDecoderCache(nk.nsnquant_cache(), nk.nsnquant_cache())
    assert torch.equal(generated(model, two), generated(model, None))


def test_states_of_linear_attention_are_refused():
    transformers = library("transformers")
    config = transformers.Mamba2Config(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        state_size=8,
        num_heads=4,
        head_dim=8,
        n_groups=2,
        chunk_size=8,
    )
    model = transformers.Mamba2ForCausalLM(config).eval()
    with pytest.raises(ValueError, match="nsnquant_cache: a cache in codes holds keys and values, not the states"):
        model(PROMPT, cache_params=nk.nsnquant_cache(), use_cache=True)


def test_tokens_may_come_in_any_pieces():
    x = torch.randn(1, 2, 70, 16, generator=torch.Generator().manual_seed(1))
    whole, pieces = nk.nsnquant_cache(chunk=16), nk.nsnquant_cache(chunk=16)
    whole.update(x, -x, 0)
    for part in x.split([1, 5, 33, 31], 2):
        pieces.update(part, -part, 0)
    new = torch.ones(1, 2, 1, 16)
    for a, b in zip(whole.update(new, new, 0), pieces.update(new, new, 0), strict=True):
        assert a.shape == (1, 2, 71, 16)
        assert torch.equal(a, b)
    assert whole.bytes() == pieces.bytes()


READ = """
import pickle, sys, torch
cache = pickle.load(open(sys.argv[1], "rb"))
new = torch.ones(1, 2, 1, 16)
torch.save(cache.update(new, new, 0), sys.argv[1])
"""


def test_a_prompt_in_a_file_goes_on_in_another_process(tmp_path):
    cache, new = nk.nsnquant_cache(chunk=16), torch.ones(1, 2, 1, 16)
    cache.update(*torch.randn(2, 1, 2, 70, 16, generator=torch.Generator().manual_seed(1)), 0)
    file = tmp_path / "prompt"
    file.write_bytes(pickle.dumps(cache))
    subprocess.run([sys.executable, "-c", READ, file], check=True)
    for got, want in zip(torch.load(file), cache.update(new, new, 0), strict=True):
        assert torch.equal(got, want)
    with pytest.raises(AttributeError, match="caching' has no attribute 'Cache'"):
        _ = caching.Cache


def test_two_bits_and_the_scales_are_what_is_held():
    x = torch.randn(1, 4, 1024, 128, generator=torch.Generator().manual_seed(2)).half()
    cache = nk.nsnquant_cache()
    cache.update(x, x, 0)
    held = 2 * (x.numel() // 4 + 2 * (2 * 4 * 1024 + 4 * 16 * 128))
    assert cache.bytes() == held < 0.16 * 2 * 2 * x.numel()


def test_channels_of_all_sizes_lose_less_than_in_plain_groups_of_two_bits():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(256, 64, generator=generator)
    x[:, ::16] += 12 * torch.randn(4, generator=generator).sign()  # heavy channels, as keys have
    error = (decode(encode(x.split(64)[0][None]), x.dtype)[0] - x[:64]).square().mean()
    low, high = x[:64].amin(-1, keepdim=True), x[:64].amax(-1, keepdim=True)
    step = (high - low) / 3
    plain = (((x[:64] - low) / step).round() * step + low - x[:64]).square().mean()
    assert error < 0.15
    assert error < 0.1 * plain


def test_heads_of_other_widths_are_refused():
    with pytest.raises(ValueError, match="a power of two of features, at least 8, not 12"):
        nk.nsnquant_cache(chunk=4).update(torch.ones(1, 1, 4, 12), torch.ones(1, 1, 4, 12), 0)
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        nk.nsnquant_cache(chunk=0)


def test_keys_in_half_precision_are_rounded_as_in_float32():
    x = torch.randn(1, 2, 32, 16, generator=torch.Generator().manual_seed(4)).bfloat16()
    for got, want in zip(encode(x), encode(x.float()), strict=True):
        assert torch.equal(got, want)


def test_a_transformers_without_caches_of_layers_is_named(monkeypatch):
    transformers = library("transformers")
    monkeypatch.delattr(transformers.cache_utils, "DynamicLayer")
    with pytest.raises(ValueError, match=f"transformers {transformers.__version__} has no caches made of layers"):
        caching._classes.__wrapped__()
