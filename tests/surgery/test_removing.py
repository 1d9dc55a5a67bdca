"""`nk.remove`: the layer norms of a pre-norm transformer go one by one, and what is left is folded."""

import copy
import io
import itertools
import json
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import normkit as nk
from normkit import cli
from normkit.optional import library
from normkit.surgery.edits import load_numbers, replay
from normkit.surgery.flow import Graph
from normkit.surgery.removal.fading import REST, Fading, Fixed, Tokens
from normkit.surgery.removal.order import parts
from normkit.surgery.removal.weaning import Run, Weaning, mean_loss, next_token
from normkit.watching.inspecting import known_loss

DIM, WORDS = 8, 11


class Attention(nn.Module):
    """Queries, keys and values from one layer or from three; the scores by torch or by hand."""

    def __init__(self, fused, by_hand):
        super().__init__()
        self.fused, self.by_hand = fused, by_hand
        if fused:
            self.qkv = nn.Linear(DIM, 3 * DIM)
        else:
            self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in range(3))
        self.out = nn.Linear(DIM, DIM)

    def forward(self, x):
        found = self.qkv(x).split(DIM, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in found)
        if self.by_hand:
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            y = (q @ k.mT / 2).masked_fill(future, -1e9).softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, fused, by_hand):
        super().__init__()
        self.before, self.attention = nn.LayerNorm(DIM), Attention(fused, by_hand)
        self.norm, self.up, self.down = nn.LayerNorm(DIM), nn.Linear(DIM, 16), nn.Linear(16, DIM)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.down(self.up(self.norm(x)).relu())


class Decoder(nn.Module):
    def __init__(self, fused=True, by_hand=False, blocks=2, dropout=0.0):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, DIM), nn.Embedding(16, DIM)
        self.blocks = nn.Sequential(*(Block(fused, by_hand) for _ in range(blocks)))
        self.dropout = nn.Dropout(dropout)
        self.last, self.head = nn.LayerNorm(DIM, eps=1e-6), nn.Linear(DIM, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.last(self.blocks(self.dropout(x))))


def texts(count, seed=0):
    """Numbers that count up, from anywhere: something to be learned."""
    g = torch.Generator().manual_seed(seed)
    begins = torch.randint(WORDS, (count, 16, 1), generator=g)
    return list((begins + torch.arange(8) * torch.randint(1, 3, (count, 16, 1), generator=g)) % WORDS)


def digest(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model, data = Decoder(), texts(20)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for batch in itertools.islice(itertools.cycle(data), 120):
        scores = model(batch)
        loss = functional.cross_entropy(scores[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


QUICK = {"steps": 26, "start": 1, "gaps": (1, 1, 1), "lr": 3e-3, "log": lambda progress: None}


def test_a_model_goes_on_without_its_layer_norms_at_little_cost(trained):
    model, data = copy.deepcopy(trained), texts(26, seed=1)
    seen, held_out = [], texts(4, seed=2)
    report = nk.remove(model, data, **{**QUICK, "log": seen.append}, val=held_out, compare=True, separator=3)
    assert report.model is model
    assert not any(isinstance(part, nn.LayerNorm | Fading | Fixed) for part in model.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert [change.became for change in report] == [
        *(f"into blocks.{i}.{layer}" for i in range(2) for layer in ("attention.qkv", "up")),
        "into head",
    ]
    assert model.head.weight is not model.words.weight
    assert model.head.bias is not None
    assert [progress.norms for progress in seen[:9]] == [5, 4, 3, 3, 3, 2, 1, 0, 0]
    assert report.before < 1.2
    assert report.kept < report.after < 1.0  # untrained it is 2.4
    own = [functional.cross_entropy(model(b)[:, :-1].flatten(0, 1), b[:, 1:].flatten()).item() for b in held_out]
    assert sum(own) / 4 == pytest.approx(report.after, rel=1e-5)
    assert json.loads(json.dumps(report.to_dict()))["loss"]["after"] == report.after
    assert str(report).endswith(f"with the norms kept, {report.kept:.4f} after as many")


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.time, self.norm = nn.Linear(4, DIM), nn.Embedding(9, DIM), nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, 4)

    def forward(self, x, t):
        return self.head(self.norm(self.up(x) + self.time(t)[:, None]))


def test_a_batch_of_several_parts_is_the_models_own_to_its_last_argument():
    data = [(torch.randn(2, 5, 4), torch.randint(9, (2,)), torch.randn(2, 5, 4)) for _ in range(3)]
    loss = lambda model, batch: functional.mse_loss(model(*batch[:2]), batch[2])  # noqa: E731
    report = nk.remove(Denoiser(), data, **QUICK, loss=loss)
    assert [change.became for change in report] == ["into head"]
    assert report.done[0].difference < 1e-6


def test_the_rate_falls_by_half_a_cosine_to_half_of_what_it_was():
    plan = Weaning(steps=12, lr=0.8, weight_decay=0.0, auxiliary=0.0)
    assert [plan.rate(step) for step in (0, 4, 6, 8, 12)] == pytest.approx([0.8, 0.7, 0.6, 0.5, 0.4])


def test_an_interrupted_removal_goes_on_to_the_same_end(tmp_path):
    model, data = Decoder(blocks=1, dropout=0.1), texts(26)
    before, numbers = digest(model), torch.get_rng_state()
    whole = nk.remove(model, data, **QUICK, inplace=False)

    def stop(progress):
        if progress.step == 13:
            raise KeyboardInterrupt

    torch.set_rng_state(numbers)
    with pytest.raises(KeyboardInterrupt):
        nk.remove(model, data, **{**QUICK, "log": stop}, folder=tmp_path / "kept")
    assert same(before, digest(model))
    torch.rand(3)
    seen, begun = [], copy.deepcopy(model)
    again = nk.remove(model, data, **{**QUICK, "log": seen.append}, folder=tmp_path / "kept")
    assert [progress.step for progress in seen] == [*range(11, 27)]
    assert again.losses == whole.losses
    assert same(digest(model), digest(whole.model))
    ended = nk.remove(begun, data, **{**QUICK, "log": seen.append}, folder=tmp_path / "kept")
    assert len(seen) == 16, "nothing is trained once more"
    assert ended.losses == whole.losses
    assert same(digest(begun), digest(whole.model))
    with pytest.raises(ValueError, match="is of a removal with other settings"):
        nk.remove(model := Decoder(blocks=1), data, **{**QUICK, "lr": 1e-3}, folder=tmp_path / "kept")


def next_word(model, batch):
    return functional.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())


class Set(nn.Module):
    """A decoder with a setting that no tensor shows."""

    def __init__(self, rate):
        super().__init__()
        self.inner, self.rate = Decoder(blocks=1), rate

    def forward(self, tokens):
        return self.inner(tokens)


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder that holds the end of a removal, and the weights that it began and ended with."""
    torch.manual_seed(0)
    folder, model = tmp_path_factory.mktemp("ended"), Set(0.1)
    begun = digest(model)
    nk.remove(model, texts(26), **QUICK, folder=folder)
    return folder, begun, digest(model)


def begun_with(begun, rate=0.1):
    model = Set(rate)
    model.load_state_dict(begun)
    return model


def frozen(model):
    model.inner.places.requires_grad_(False)
    return model


def flipped(content):
    """Other numbers of one weight, in a file of the same size."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def without_recipe(content):
    torch.save({"model": {}}, kept := io.BytesIO())
    return kept.getvalue()


@pytest.mark.parametrize(
    ("model", "options", "names"),
    [
        (lambda begun: Set(0.1), {}, "model"),
        (lambda begun: begun_with(begun, rate=0.2), {}, "model"),
        (lambda begun: frozen(begun_with(begun)), {}, "model"),
        (lambda begun: begun_with(begun), {"data": texts(26, seed=1)}, "data"),
        (lambda begun: begun_with(begun), {"data": texts(25)}, "data"),
        (lambda begun: begun_with(begun), {"data": DataLoader(torch.cat(texts(26)), 16)}, "data"),
        (lambda begun: begun_with(begun), {"separator": 3}, "separator"),
        (lambda begun: begun_with(begun), {"loss": next_word}, "loss"),
        (lambda begun: begun_with(begun), {"start": 2, "lr": 1e-3}, "lr, start, gaps or which norms go"),
    ],
)
def test_a_folder_gives_its_weights_to_no_other_removal(ended, model, options, names):
    folder, begun, _ = ended
    given = model(begun)
    before = digest(given)
    with pytest.raises(ValueError) as error:
        nk.remove(given, **{"data": texts(26), **QUICK, **options}, folder=folder)
    place = folder / "removal.pt"
    assert str(error.value) == f"remove: {place} is of a removal with other settings ({names}); name another folder"
    assert same(before, digest(given))


def test_a_removal_whose_settings_are_numpys_numbers_goes_on_from_its_folder(tmp_path):
    settings = {"steps": 26, "lr": 3e-3, "weight_decay": 0.25, "auxiliary": 0.5, "separator": 3, "start": 1}
    numpys = {name: np.int64(n) if isinstance(n, int) else np.float64(n) for name, n in settings.items()}
    model, begun = Set(0.1), Set(0.1)
    begun.load_state_dict(model.state_dict())
    whole = nk.remove(model, texts(26), **{**QUICK, **numpys}, folder=tmp_path)
    again = nk.remove(begun, texts(26), **{**QUICK, **settings}, folder=tmp_path)
    assert again.losses == whole.losses
    assert same(digest(model), digest(begun))


@pytest.mark.parametrize("held_out", [None, texts(3, seed=5)])
def test_a_folder_gives_the_same_removal_its_weights_and_measures_them_anew(ended, held_out):
    folder, begun, weights = ended
    model = begun_with(begun)
    report = nk.remove(model, texts(26), **QUICK, folder=folder, val=held_out)
    assert same(digest(model), weights)
    own = [next_word(model.eval(), batch).item() for batch in held_out or texts(26)[:8]]
    assert report.after == pytest.approx(sum(own) / len(own), rel=1e-5)


def test_a_loader_that_shuffles_goes_on_with_its_samples_and_draws_none_for_the_folder(tmp_path):
    torch.manual_seed(0)
    begun, samples = Set(0.1).state_dict(), torch.cat(texts(26))
    ends = []
    for seed, folder in ((1, None), (1, tmp_path), (2, tmp_path)):  # the last would draw other batches
        torch.manual_seed(seed)
        model = begun_with(begun)
        nk.remove(model, DataLoader(TensorDataset(samples), 16, shuffle=True), **QUICK, folder=folder)
        ends.append(digest(model))
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])
    for others, size in ((samples, 8), (samples.flip(1), 16)):
        loader = DataLoader(TensorDataset(others), size, shuffle=True)
        with pytest.raises(ValueError, match=r"other settings \(data\)"):
            nk.remove(begun_with(begun), loader, **QUICK, folder=tmp_path)


@pytest.mark.parametrize(
    "damage", [lambda content: content[: len(content) // 2], lambda content: b"", flipped, without_recipe]
)
def test_a_damaged_file_of_a_folder_is_named(ended, tmp_path, damage):
    folder, begun, _ = ended
    place, model = tmp_path / "removal.pt", begun_with(begun)
    place.write_bytes(damage((folder / "removal.pt").read_bytes()))
    with pytest.raises(ValueError, match=r"removal\.pt is damaged: .*; delete it, or name another folder") as error:
        nk.remove(model, texts(26), **QUICK, folder=tmp_path)
    assert str(error.value).startswith(f"remove: {place} is damaged")
    assert same(digest(model), begun)


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_the_graph_tells_what_stands_where_and_which_results_are_values(fused, by_hand):
    model = Decoder(fused, by_hand, blocks=1).eval()
    norms = ["blocks.0.before", "blocks.0.norm", "last"]
    layers = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    before, norm, last = parts(Graph(model, texts(1)[0], [*norms, *layers]), norms)
    assert [part.role for part in (before, norm, last)] == ["attention", "feedforward", "final"]
    assert last.readers == ["head"]
    assert not norm.values
    [(name, rows)] = before.values.items()
    if fused:
        assert name == "blocks.0.attention.qkv"
        assert rows.nonzero().flatten().tolist() == list(range(2 * DIM, 3 * DIM))
    else:
        assert name == "blocks.0.attention.v"
        assert rows.all()


def fading(tokens=None, splits=True):
    norm = Fading(DIM, tokens or Tokens(), eps=1e-5, bias=True, splits=splits).double()
    with torch.no_grad():
        norm.weight.copy_(torch.randn(DIM))
        norm.bias.copy_(torch.randn(DIM))
    return norm


def test_a_norm_that_fades_begins_with_the_gain_of_an_offset():
    norm = nk.LayerNorm(DIM, offset=1.0)
    nn.init.normal_(norm.weight)
    fading = Fading.of(nk.recognize(norm), Tokens(), splits=False)
    x = torch.randn(3, DIM)
    torch.testing.assert_close(fading(x), norm(x))


def test_each_kind_of_position_has_its_deviation_until_that_is_dropped():
    tokens = Tokens(separator=7)
    norm = fading(tokens, splits=False)
    tokens.seen = torch.tensor([[7, 1, 7, 2], [1, 2, 3, 4]])
    x = torch.randn(2, 4, DIM, dtype=torch.float64) * 3
    true = functional.layer_norm(x, (DIM,), norm.weight, norm.bias)
    norm.measure()
    torch.testing.assert_close(norm(x), true)
    norm.follow()
    norm.remove()
    std = (x.var(-1, correction=0) + 1e-5).sqrt()
    kinds = torch.tensor([[2, 0, 1, 0], [2, 0, 0, 0]])
    own = torch.stack([std[kinds == kind].mean() for kind in range(3)])

    def divided(deviations):
        return (x - x.mean(-1, keepdim=True)) / deviations[kinds][..., None] * norm.weight + norm.bias

    torch.testing.assert_close(norm(x), divided(own), rtol=1e-6, atol=1e-6)
    norm.drop("separator")
    torch.testing.assert_close(norm(x), divided(own[[0, 0, 2]]), rtol=1e-6, atol=1e-6)
    norm.drop("first")
    torch.testing.assert_close(norm(x), divided(own[[0, 0, 0]]), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(norm.left()(x), norm(x))


def test_a_removal_begins_with_the_deviations_of_its_first_batch():
    norm, x = fading(splits=False), torch.randn(2, 4, DIM, dtype=torch.float64) * 3
    norm(100 * x)  # what it saw before
    plan = Weaning(steps=1, lr=0.1, weight_decay=0.0, auxiliary=0.0)
    run = Run(nn.Sequential(norm), plan, lambda model, batch: model(batch).mean(), print, {"0": norm})
    run._measure(x)
    want = (x[:, 1:].var(-1, correction=0) + 1e-5).sqrt().mean().view(1)  # the first position is of another kind
    torch.testing.assert_close(norm.norms[REST].running_std, want, rtol=1e-6, atol=0)


class Takes(nn.Module):
    def forward(self, **given):
        return given


@pytest.mark.parametrize("dtype", [torch.int32, torch.long])
@pytest.mark.parametrize(
    "names", [("input_ids", "attention_mask", "labels"), ("attention_mask", "labels", "input_ids")]
)
def test_tokens_are_known_in_whatever_order_they_are_given(names, dtype):
    given = {"input_ids": torch.tensor([[5, 3, 3, 5]], dtype=dtype), "attention_mask": torch.ones(1, 4).long()}
    given["labels"] = torch.full((1, 4), -100)
    model, tokens = Takes(), Tokens(3)
    tokens.watch(model)
    model(**{name: given[name] for name in names})
    assert tokens.kinds(torch.zeros(1, 4, 2)).tolist() == [[2, 1, 1, 0]]


def test_tokens_of_32_bits_have_the_loss_of_64():
    model = Decoder()
    assert torch.equal(next_token(model, texts(1)[0]), next_token(model, texts(1)[0].int()))


class Named(NamedTuple):
    logits: torch.Tensor
    loss: torch.Tensor


@pytest.mark.parametrize("kind", [dict, Named])
def test_the_loss_that_a_model_returns_is_read_by_key_and_by_attribute(kind):
    batch = {"tokens": texts(1)[0]}
    output = kind(logits=torch.zeros(1), loss=torch.tensor(2.0))
    assert next_token(Returns(output), batch) == known_loss(output, batch)[1] == 2


@pytest.mark.parametrize("call", [lambda layer, x: layer(x), lambda layer, x: layer(input=x)])
def test_values_keep_the_true_norm_for_longer(call):
    norm, layer = fading(), nn.Linear(DIM, 4).double()
    rows = torch.tensor([False, False, True, True])
    layer.register_forward_hook(norm.values_of(rows))
    x = torch.randn(3, DIM, dtype=torch.float64) * 5
    norm.measure()
    norm(x)
    norm.follow()
    norm.remove()
    true = functional.layer_norm(x, (DIM,), norm.weight, norm.bias)
    fake = (norm(x) @ layer.weight.T + layer.bias).detach()
    want = torch.where(rows, functional.linear(true, layer.weight, layer.bias), fake)
    torch.testing.assert_close(call(layer, norm(x)), want)
    assert not torch.allclose(want, fake)
    assert not norm.gone
    norm.remove_values()
    torch.testing.assert_close(call(layer, norm(x)), fake)
    assert norm.gone


def learned(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_what_is_frozen_stays_so():
    torch.manual_seed(0)
    model, seen = Decoder(blocks=1), set()
    for name, p in model.named_parameters():
        p.requires_grad_(name in ("places.weight", "blocks.0.up.bias"))

    def loss(model, batch):
        seen.update(learned(model))
        return next_token(model, batch)

    nk.remove(model, texts(2), loss=loss, **QUICK)
    assert seen == learned(model) == {"places.weight", "blocks.0.up.bias"}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_a_weight_that_each_call_computes_anew_may_be_in_the_model():
    model, data = Decoder(blocks=1), texts(2)
    nn.utils.weight_norm(model.blocks[0].attention.out)
    model(data[0])
    assert nk.remove(model, data, **QUICK).done


@pytest.mark.parametrize("bias", [True, False])
def test_what_is_left_goes_into_a_layer(bias):
    fixed = Fixed(torch.randn(DIM), torch.randn(DIM) if bias else None).double()
    layer = nn.Linear(DIM, 5, bias=bias).double()
    x = torch.randn(4, DIM, dtype=torch.float64)
    torch.testing.assert_close(fixed.into(layer)(x), layer(fixed(x)))
    assert (fixed.into(layer).bias is None) is not bias


class Returns(nn.Module):
    def __init__(self, output):
        super().__init__()
        self.output = output

    def forward(self, **_):
        return self.output


class Post(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm, self.head = nn.Embedding(WORDS, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, WORDS)

    def forward(self, tokens):
        x = self.norm(self.words(tokens))
        return self.head(x + x.relu())


@pytest.mark.parametrize(
    ("model", "data", "options", "said"),
    [
        (Post(), texts(1), {}, "norm is not read by layers alone"),
        (nn.Sequential(nn.Embedding(WORDS, DIM), nk.RMSNorm(DIM)), texts(1), {}, "no layer norm to remove; it has rms"),
        (Decoder(blocks=1), [], {}, "data holds no batch"),
        (Decoder(blocks=1), iter(texts(1)), {}, "not an iterator"),
        (Decoder(blocks=1), texts(1), {"val": []}, "val holds no batch"),
        (Decoder(blocks=1), texts(1), {"steps": 9}, "the norms are gone after 16 steps, and steps is 9"),
        (Decoder(blocks=1), texts(1), {"start": -1}, "start must be at least 0, not -1"),
        (Decoder(blocks=1), texts(1), {"gaps": (1, 1.5, 1)}, "gaps must be an integer, not 1.5"),
        (Decoder(blocks=1), texts(1), {"gaps": (2, 2)}, "gaps must be three numbers of steps, not"),
        (Decoder(blocks=1), texts(1), {"where": "nowhere"}, "no layer norm to remove"),
        (Decoder(blocks=1), texts(1), {"lr": 0.0}, "lr must lie in"),
        (Decoder(blocks=1).requires_grad_(False), texts(1), {}, "remove: the model is frozen, and is trained while"),
        (
            Decoder(blocks=1),
            texts(2),
            {"loss": lambda model, x: model(x).sum() * float("nan")},
            "the loss is nan at step 0",
        ),
        (Decoder(blocks=1), [{"tokens": texts(1)[0]}], {}, "the model returns no loss of such a batch"),
    ],
)
def test_what_cannot_be_done_is_refused_and_the_model_left(model, data, options, said):
    before, modules = digest(model), list(model.modules())
    with pytest.raises((ValueError, TypeError), match=said):
        nk.remove(model, data, **{**QUICK, **options})
    assert same(before, digest(model))
    assert list(model.modules()) == modules


DATA = """
import torch
data = [torch.randint(11, (4, 6), generator=torch.Generator().manual_seed(i)) for i in range(3)]
"""


def test_a_gpt2_of_transformers_loses_its_norms_by_a_command(tmp_path, monkeypatch, capsys):
    transformers = library("transformers")
    config = transformers.GPT2Config(
        n_embd=8, n_layer=1, n_head=2, vocab_size=11, n_positions=8, bos_token_id=0, eos_token_id=0
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_texts.py").write_text(DATA)
    transformers.GPT2LMHeadModel(config).save_pretrained("gpt")
    words = ["remove", "gpt", "--data", "my_texts:data", "--steps", "48", "-o", "out", "--check"]
    assert cli.main(words) == 0
    told = capsys.readouterr()
    assert "3 of 3 sites changed" in told.out
    assert "after 48 steps" in told.out
    assert "step 40 of 48" in told.err
    assert "its outputs differ by 0e+00" in told.err
    assert cli.main(["recognize", "out"]) == 0
    assert "0 recognized, 0 not" in capsys.readouterr().out


class Doubled(nn.Linear):
    """A weight that is computed at every call."""

    def forward(self, x):
        return functional.linear(x, 2 * self.weight, self.bias)


def test_the_model_has_the_loss_that_is_reported_whatever_it_calls_its_norms_and_however_it_computes_its_weights():
    model, data, norm = Decoder(blocks=1), texts(2), nn.LayerNorm(DIM)
    del model.last
    model.alias, model.last, model.blocks[0].down = norm, norm, Doubled(16, DIM)
    report = nk.remove(model, data, **QUICK)
    assert model.last is model.alias
    assert mean_loss(report.model, data, next_token) == pytest.approx(report.after, rel=1e-5)


@pytest.mark.parametrize("inplace", [True, False])
def test_our_own_decoder_loses_the_norms_of_its_layers(inplace):
    model, tokens = nk.Decoder(vocab=WORDS, dim=DIM, depth=1, heads=2), texts(1)[0]
    removal = nk.remove(model, [tokens], **{**QUICK, "steps": 16}, where="layers.*", inplace=inplace)
    assert [change.became for change in removal] == [
        "into layers.0.attention.query, layers.0.attention.value, layers.0.attention.key",
        "into layers.0.feedforward.up",
    ]
    assert (removal.model is model) is inplace
    assert all(part.training for part in removal.model.modules())
    again = nk.Decoder(vocab=WORDS, dim=DIM, depth=1, heads=2)
    assert list(nk.recognize(removal.model).found) == ["norm"]
    state = removal.model.state_dict()
    load_numbers(replay(again, removal.edits, state), state)
    torch.testing.assert_close(again.eval()(tokens), removal.model.eval()(tokens))
