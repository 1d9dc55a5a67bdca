"""The watch: its numbers are those that one would take by hand, and a training does not notice it."""

import contextlib
import copy
import json

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization
from torch.utils.checkpoint import checkpoint
from trainings import decoder, language, mlp, pictures, points, train

import normkit as nk
from normkit.optional import library
from normkit.watching import load
from normkit.watching.sample import Sample
from normkit.watching.signals.parameters import Spectra, Updates, entries
from normkit.watching.signals.signal import Signal, some
from normkit.watching.sites import SIGNALS, blocks, children
from normkit.watching.store import BESIDE, LARGEST, MEAN, Store
from normkit.watching.watching import number_names
from sizes import calls

close = torch.testing.assert_close


def last(seen, where, what):
    return float(seen.history().series(where, what)[-1])


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.map = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.relu(self.map(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Block() for _ in range(3))
        self.output = nn.Linear(8, 2)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.output(x)


def test_numbers_are_those_taken_by_hand():
    model, (x, y) = Net(), points(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1) as seen:
        F.cross_entropy(model(x), y).backward()
        slope = model.layers[1].map.weight.grad.clone()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer.step()
    for layer in range(3):
        with torch.no_grad():
            linear = F.linear(x, before[f"layers.{layer}.map.weight"], before[f"layers.{layer}.map.bias"])
            out = x + linear.relu()
        place = f"layers.{layer}"
        for where, value in ((f"{place}.map", linear), (place, out)):
            assert last(seen, where, "mean") == pytest.approx(value.mean().item(), rel=1e-4)
            assert last(seen, where, "rms") == pytest.approx(value.square().mean().sqrt().item(), rel=1e-5)
            assert last(seen, where, "largest") == pytest.approx(value.abs().max().item())
            assert last(seen, where, "channel") == value.abs().amax(0).argmax()
            assert last(seen, where, "token") == 0
            spread = value - value.mean()
            kurtosis = spread.pow(4).mean() / spread.square().mean() ** 2
            assert last(seen, where, "kurtosis") == pytest.approx(kurtosis.item(), rel=1e-4)
        assert last(seen, place, "input_rms") == pytest.approx(x.square().mean().sqrt().item(), rel=1e-5)
        assert last(seen, place, "cosine") == pytest.approx(F.cosine_similarity(x.ravel(), out.ravel(), 0).item(), 1e-5)
        x = out
    name = "layers.1.map.weight"
    now, old = model.get_parameter(name).detach(), before[name]
    assert last(seen, name, "gradient") == pytest.approx(slope.norm().item(), rel=1e-5)
    assert last(seen, name, "weight") == pytest.approx(old.norm().item(), rel=1e-5)
    assert last(seen, name, "radial") == pytest.approx(F.cosine_similarity(slope.ravel(), old.ravel(), 0).item(), 1e-4)
    assert last(seen, name, "update") == pytest.approx(((now - old).norm() / now.norm()).item(), rel=1e-5)
    assert last(seen, "group 0", "lr") == pytest.approx(0.1)
    assert seen.history().facts["blocks"] == ["layers.0", "layers.1", "layers.2"]


@pytest.mark.parametrize(
    "signals, read",
    [
        (["activations"], {"rms"}),
        (["attention"], set()),
        (["gradients"], {"gradient", "weight"}),
        (["updates"], {"update"}),
        (["spectra"], {"spectral", "stable_rank"}),
        ([], set()),
    ],
)
def test_only_signals_that_are_asked_for_are_read(signals, read):
    model = nn.Linear(2, 2)
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1, signals=signals) as seen:
        model(torch.ones(3, 2)).sum().backward()
        seen.optimizers[0].step()
    whats = {what for _, what in seen.history().columns}
    assert "lr" in whats
    assert whats & {"rms", "gradient", "weight", "update", "spectral", "stable_rank"} == read


def test_spectra_converge_to_singular_values():
    torch.manual_seed(0)
    matrix, spectra = nn.Parameter(torch.randn(40, 12)), Spectra()
    for _ in range(30):
        (_, _, largest), (_, _, rank) = spectra.read({"w": matrix})
    values = torch.linalg.svdvals(matrix.detach())
    close(largest[0], values[0], rtol=1e-3, atol=0)
    close(rank[0], values.square().sum() / values[0] ** 2, rtol=2e-3, atol=0)


def test_a_row_and_a_column_have_one_singular_value_and_are_not_read():
    parameters = {"row": torch.ones(1, 4), "column": torch.ones(4, 1), "matrix": torch.ones(2, 2)}
    assert [names for names, _, _ in Spectra().read(parameters)] == [["matrix"], ["matrix"]]


def test_tokens_of_a_sample_are_compared():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Block(4), Block(4)])

        def forward(self, x):
            return self.layers[1](self.layers[0](x) * 0 + torch.ones(4))

    model = Two()
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)) as seen:
        model(torch.randn(2, 6, 4)).sum().backward()
        seen.optimizers[0].step()
    assert last(seen, "layers.1", "alike") == pytest.approx(1)
    assert last(seen, "layers.1", "rank") == pytest.approx(1)
    assert last(seen, "layers.0", "alike") < 0.9


@pytest.mark.parametrize("kind", ["module", "module without biases", "core", "sdpa"])
def test_attention_is_heard_whoever_computes_it(kind):
    torch.manual_seed(0)

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = Attn()

        def forward(self, x):
            return self.attn(x)

    class Attn(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.map(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
            if kind == "sdpa":
                return F.scaled_dot_product_attention(q, k, v)
            return F.softmax(q @ k.mT / 2, -1) @ v

    x = torch.randn(2, 5, 8)
    if kind.startswith("module"):
        model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0, bias=kind == "module")
        attention = model.self_attn
        if attention.in_proj_bias is not None:
            nn.init.normal_(attention.in_proj_bias)
        q, k, _ = F.linear(x, attention.in_proj_weight, attention.in_proj_bias).unflatten(-1, (3, 2, 4)).unbind(2)
        name, q, k = "self_attn", q.transpose(1, 2), k.transpose(1, 2)
    else:
        model, name = Plain(), "attn"
        q, k, _ = model.attn.map(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    scores = (q @ k.mT / 2).detach()
    weights = scores.softmax(-1)
    entropy = -(weights * weights.log()).sum(-1).mean((0, 2)) / np.log(5)
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)) as seen:
        model(x).sum().backward()
        seen.optimizers[0].step()
    assert seen.notes == []
    assert last(seen, name, "entropy") == pytest.approx(entropy.min().item(), rel=1e-4)
    assert last(seen, name, "entropy_head") == entropy.argmin()
    sinks = weights.mean((0, 2))
    assert last(seen, name, "sink") == pytest.approx(sinks.max().item(), rel=1e-4)
    assert (last(seen, name, "sink_head"), last(seen, name, "sink_key")) == divmod(int(sinks.argmax()), 5)
    if kind != "core":
        assert last(seen, name, "logit") == pytest.approx(scores.abs().max().item(), rel=1e-4)


class Functional(nn.MultiheadAttention):
    """Torch's attention by its function, which is handed the mask as it is; the module adds a mask of truth values."""

    def forward(self, x, _, __, attn_mask, need_weights):
        inner, outer = (self.in_proj_weight, self.in_proj_bias), (self.out_proj.weight, self.out_proj.bias)
        x, fixed = x.transpose(0, 1), (None, None, False, 0.0)
        return F.multi_head_attention_forward(
            x, x, x, 8, 2, *inner, *fixed, *outer, attn_mask=attn_mask, need_weights=need_weights
        )


@pytest.mark.parametrize("kind", ["bool", "added", "of each head", "functional"])
def test_a_mask_of_torchs_attention_hides_keys(kind):
    torch.manual_seed(0)
    made = Functional if kind == "functional" else nn.MultiheadAttention
    attention, x = made(8, 2, batch_first=True), torch.randn(3, 5, 8)
    hidden = torch.zeros(5, 5, dtype=torch.bool)
    hidden[:, 3:] = True
    if kind == "of each head":
        hidden = hidden.expand(6, 5, 5).clone()
        hidden[1] = ~hidden[1]
    mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf) if kind == "added" else hidden
    q, k, _ = F.linear(x[:2], attention.in_proj_weight).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    scores = q @ k.mT / 2
    scores[:] = scores.masked_fill(hidden[:4].unflatten(0, (2, 2)) if kind == "of each head" else hidden, -torch.inf)
    weights = scores.softmax(-1)
    entropy = -torch.xlogy(weights, weights).sum(-1) / (weights > 0).sum(-1).log()
    by_head = entropy.mean((0, 2))
    with nk.watch(attention, torch.optim.SGD(attention.parameters(), lr=0.1)) as seen:
        attention(x, x, x, attn_mask=mask, need_weights=False)[0].sum().backward()
        seen.optimizers[0].step()
    assert last(seen, "", "entropy") == pytest.approx(by_head.min().item(), rel=1e-4)
    assert last(seen, "", "entropy_head") == by_head.argmin()
    assert last(seen, "", "logit") == pytest.approx(scores[scores.isfinite()].abs().max().item(), rel=1e-4)


@pytest.mark.parametrize("kind", ["plain", "bias_k", "padding", "other widths"])
def test_torchs_attention_with_more_than_a_mask_is_not_read_wrongly_but_not_at_all(kind):
    torch.manual_seed(0)
    more = {"add_bias_kv": kind == "bias_k"} | ({"kdim": 6, "vdim": 6} if kind == "other widths" else {})
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True, **more), torch.randn(3, 5, 8)
    keys = x[..., :6] if kind == "other widths" else x
    padding = torch.arange(5).expand(3, 5) > 3 if kind == "padding" else None
    with nk.watch(attention, torch.optim.SGD(attention.parameters(), lr=0.1)) as seen:
        attention(x, keys, keys, key_padding_mask=padding, need_weights=False)[0].sum().backward()
        seen.optimizers[0].step()
    assert (("", "entropy") in seen.store.columns) is (kind == "plain")


def test_of_a_huge_tensor_samples_stand_for_it_and_of_a_small_one_all():
    x = torch.arange(3 * 2**18).view(-1, 4)
    assert torch.equal(some(x), x[::3].float())
    assert torch.equal(some(x[: 2**16]), x[: 2**16].float())
    assert torch.equal(some(x[: 2**16 + 1]), x[: 2**16 + 1 : 2].float())
    assert len(some(x.flatten())) == x.numel()


def test_a_causal_row_is_compared_with_the_keys_that_it_sees():
    model = decoder()
    for layer in model.layers:
        layer.attention.query.weight.data.zero_()
    _, seen = train(model, language, steps=1, lr=0.0)
    assert last(seen, "layers.0.attention", "entropy") == pytest.approx(1, abs=1e-5)


MODELS = {
    "decoder": lambda: (decoder(norm="rmsnorm", query_key_norm="head"), language),
    "own": lambda: (Net(), points),
    "batchnorm": lambda: (library("timm").create_model("test_resnet", in_chans=1, num_classes=4), pictures_of_timm),
    "torch's spectral norm": lambda: (each_weight(Net(), spectral_norm), points),
    "spectral norm of attention": lambda: (each_weight(decoder(tied=False), spectral_norm), language),
    "sigma-reparam": lambda: (each_weight(Net(), lambda layer: nk.weight.apply(layer, "sigma-reparam")), points),
}


def each_weight(model, change):
    """Have the weights of all layers computed of others, which goes on a little at each reading."""
    for layer in [part for part in model.modules() if isinstance(part, nn.Linear | nn.Embedding)]:
        change(layer)
    return model


def pictures_of_timm(step):
    x, y = pictures(step, batch=4, size=32)
    return x, y


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_the_same_to_the_last_bit(name):
    def run(watched):
        torch.manual_seed(0)
        model, batches = MODELS[name]()
        losses, seen = train(model.train(), batches, steps=6, every=2, watched=watched)
        state = {key: value.clone() for key, value in model.state_dict().items()}
        return losses, state, torch.get_rng_state(), seen, model

    plain, watched = run(False), run(True)
    assert plain[0] == watched[0]
    assert all(torch.equal(value, watched[1][key]) for key, value in plain[1].items())
    assert torch.equal(plain[2], watched[2])
    assert watched[3].history().steps == [1, 2, 4, 6]
    assert watched[3].notes == []
    for module in watched[4].modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_without_an_optimizer_calls_are_steps():
    model = Net()
    with nk.watch(model, every=2) as seen:
        for step in range(5):
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            slope = model.output.weight.grad.norm().item()
            model.eval()
            with torch.no_grad():
                model(x)
            model.train()
    assert seen.history().steps == [1, 2, 4]
    assert 0 < last(seen, "output.weight", "gradient") < slope, "they add up over the steps here"


def test_micro_batches_are_one_sample_and_evaluations_none():
    def seen_of(batches):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with nk.watch(model, optimizer) as seen:
            for x, y in batches:
                (F.cross_entropy(model(x), y) / len(batches)).backward()
            model.eval()
            with torch.no_grad():
                model(1e6 * x)
            model.train()
            optimizer.step()
        return seen

    x, y = points(0)
    whole, parts = seen_of([(x, y)]), seen_of([(x[:32], y[:32]), (x[32:], y[32:])])
    for where, what in (("layers.1", "mean"), ("layers.1", "largest"), ("layers.0.map.weight", "gradient")):
        assert last(parts, where, what) == pytest.approx(last(whole, where, what), rel=1e-4)
    channel = last(whole, "layers.1", "channel")
    assert last(parts, "layers.1", "channel") == channel, "it goes with the largest value"


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_is_read_once(reentrant, monkeypatch):
    class Checked(Net):
        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=reentrant)
            return self.output(x)

    def run(made):
        def given(step):
            x, y = points(step)
            return x.requires_grad_(), y

        return train(made, given, steps=3, every=1)

    counts = []
    row = Sample.row
    monkeypatch.setattr(
        Sample, "row", lambda self, *given: counts.extend(n for *_, n in self.calls.values()) or row(self, *given)
    )
    (plain, seen), (checked, other) = run(Net()), run(Checked())
    assert set(counts) == {1}, "the second forward, within the backward, is none of its own"
    assert plain == checked
    assert seen.history().columns == other.history().columns
    close(seen.history().table, other.history().table)


@pytest.mark.parametrize("calls", [1, 2])
def test_under_reentrant_checkpointing_dead_inputs_and_noise_are_what_they_are_without(calls):
    class Checked(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.embedding = nn.Linear(4, 8)
            self.block = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
            self.block[1].bias.data[:5] -= 9
            self.reentrant = reentrant

        def forward(self, x):
            x = self.embedding(x)
            return checkpoint(self.block, x, use_reentrant=True) if self.reentrant else self.block(x)

    def run(reentrant):
        torch.manual_seed(0)
        model = Checked(reentrant)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with nk.watch(model, optimizer, every=1) as seen:
            for step in range(3):
                for part in torch.randn(16, 3, 4, generator=torch.Generator().manual_seed(step)).chunk(calls):
                    model(part).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        return seen

    plain, checked = run(False), run(True)
    assert last(plain, "block.3", "dead_inputs") == 5 / 8
    assert checked.history().columns == plain.history().columns
    for where, what in plain.history().columns:
        close(checked.history().series(where, what), plain.history().series(where, what), equal_nan=True)
    assert str(checked.noise_scale()) == str(plain.noise_scale())


def test_a_module_called_several_times_is_read_as_one():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.output = nn.Linear(8, 2)

        def forward(self, x):
            return self.output(self.layer(10 * self.layer(x)))

    torch.manual_seed(0)
    model, (x, y) = Shared(), points(0)
    one = model.layer(x)
    two = model.layer(10 * one)
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)) as seen:
        F.cross_entropy(model(x), y).backward()
        seen.optimizers[0].step()
    rms = [part.detach().square().mean().sqrt().item() for part in (one, two)]
    assert last(seen, "layer", "rms") == pytest.approx(sum(rms) / 2, rel=1e-5)
    assert last(seen, "layer", "largest") == pytest.approx(two.abs().max().item())


def test_mixed_precision_is_read_in_float32():
    model = decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for watched in (False, True):
        model = decoder()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with nk.watch(model, optimizer, every=2) if watched else contextlib.nullcontext() as seen:
            for step in range(4):
                x, y = language(step)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
    assert losses[:4] == losses[4:]
    assert seen.notes == []
    assert seen.history().facts["dtypes"]["layers.0.feedforward.up"] == "bfloat16"


def test_a_step_that_a_scaler_skips_spoils_nothing():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with nk.watch(model, optimizer, every=1) as seen:
        for step in range(3):
            x, y = points(step)
            loss = F.cross_entropy(model(x), y) * (float("inf") if step == 1 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert seen.history().steps == [1, 2], "steps of the optimizer"
    assert np.isfinite(seen.history().series("output.weight", "gradient")).all()


def test_a_model_compiled_while_it_is_watched_settles_after_the_first_samples():
    torch._dynamo.reset()
    model, counter, frames = Net(), CompileCounter(), []
    compiled = torch.compile(model, backend=counter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=2) as seen:
        for step in range(8):
            x, y = points(step)
            F.cross_entropy(compiled(x), y).backward()
            optimizer.step()
            frames.append(counter.frame_count)
    assert len(set(frames[2:])) == 1
    assert seen.history().steps == [1, 2, 4, 6, 8]


def test_what_was_seen_stays_when_a_training_is_broken_off():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = nk.watch(model, optimizer, every=1)

    def broken():
        with seen:
            for step in range(3):
                x, y = points(step)
                F.cross_entropy(model(x), y).backward()
                if step == 2:
                    raise KeyboardInterrupt
                optimizer.step()

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert seen.history().steps == [1, 2]
    assert not any(module._forward_hooks for module in model.modules())
    assert not optimizer._optimizer_step_post_hooks


def test_an_error_inside_attention_leaves_no_mode_behind():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(8, 8)

        def forward(self, x):
            raise RuntimeError("of the model's own")

    model = nn.Sequential(Attention())
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)), pytest.raises(RuntimeError, match="own"):
        model(torch.ones(2, 8))
    assert torch._C._len_torch_function_stack() == 0


def copied(model, path):
    return copy.deepcopy(model)


def saved(model, path):
    torch.save(model, path)
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize("take", [copied, saved])
@pytest.mark.parametrize("optimizer", [True, False])
def test_a_copy_of_a_model_that_is_looked_at_is_not_watched(take, optimizer, tmp_path):
    model = decoder()
    x, y = language(0)
    own = torch.optim.SGD(model.parameters(), lr=0.1) if optimizer else None
    with nk.watch(model, own, every=1) as seen:
        result = model(x)
        assert any(module._forward_hooks for module in model.modules()), "a step is armed"
        other = take(model, tmp_path / "model.pt")
        before = {key: (values.clone(), count) for key, (values, _, count) in seen.sample.calls.items()}
        assert len(before) > 10
        assert torch.equal(other(x), result)
        other((x + 1) % 16)
        for key, (values, _, count) in seen.sample.calls.items():
            assert torch.equal(values, before[key][0])
            assert count == before[key][1]
        assert seen.step == (0 if optimizer else 1)
        F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
        if optimizer:
            own.step()
    assert seen.notes == []


@pytest.mark.parametrize("take", [copied, saved])
def test_a_copy_of_a_model_that_is_looked_at_can_be_changed(take, tmp_path):
    """As the best model or an average of weights, which is copied while the training goes on."""
    model, x = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()), pictures(0)[0]
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), every=1):
        model(x)
        other = take(model, tmp_path / "model.pt")
        assert any(module._forward_hooks for module in other.modules())
    assert [match.name for match in nk.recognize(other).values()] == ["batchnorm"]
    assert "1 of 1 sites changed" in str(nk.swap(copy.deepcopy(other), "groupnorm:num_groups=2"))
    assert "1 of 1 sites changed" in str(nk.fold(other.eval(), x))


@pytest.mark.parametrize(
    "begins, steps, start, reason",
    [
        (False, 3, 0, "the watch never began"),
        (True, 0, 0, "the optimizer made none"),
        (True, 3, 1001, "none of 3 steps was due"),
    ],
)
def test_a_watch_that_looked_at_nothing_gives_no_good_news(begins, steps, start, reason):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = nk.watch(model, optimizer, every=1000, start=start)
    if begins:
        seen.start()
    for step in range(steps):
        x, y = points(step)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    seen.stop()
    assert "Nothing found" not in str(seen.diagnosis())
    assert reason in str(seen.diagnosis())
    assert "nothing found" not in seen.heading()[0]


def test_two_watches_see_the_same():
    model = decoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1) as one, nk.watch(model, optimizer, every=2) as two:
        for step in range(2):
            x, y = language(step)
            F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            optimizer.step()
    assert (one.history().steps, two.history().steps) == ([1, 2], [1, 2])
    close(one.history().table, two.history().table)


def test_a_module_that_is_replaced_is_seen_from_then_on():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with nk.watch(model, optimizer, every=1) as seen:
        for step in range(3):
            if step == 1:
                model.layers[1] = nn.Sequential(Block())
            F.cross_entropy(model(points(0)[0]), points(0)[1]).backward()
            optimizer.step()
    found = seen.history().series("layers.1.0.map", "rms")
    assert np.isnan(found[0])
    assert np.isfinite(found[1:]).sum() >= 1
    assert not np.isnan(seen.history().series("layers.2.map", "rms")).any()


def test_a_model_that_is_moved_while_a_step_is_looked_at_ends_no_training(monkeypatch):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    keep = Updates.keep

    def elsewhere(self, parameters):  # as after model.to(device)
        keep(self, parameters)
        self.before = {name: old.to("meta") for name, old in self.before.items()}

    with nk.watch(model, optimizer, every=1) as seen:
        for step in range(4):
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            monkeypatch.setattr(Updates, "keep", elsewhere if step == 1 else keep)
            if step == 2:
                model.double()
                model(x.double())
                model.float()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.history().steps[-1] == 4, "later steps are seen again"
    assert len(seen.notes) == 1
    assert np.isfinite(seen.history().series("output.weight", "update")[-1])


def test_what_cannot_be_read_is_a_note(monkeypatch):
    class Odd(nn.Linear):
        def forward(self, x):
            return super().forward(x).to(torch.complex64).real

    from normkit.watching.signals import activation

    monkeypatch.setattr(activation, "stride_over", lambda *_: 1 / 0)
    losses, seen = train(nn.Sequential(Odd(8, 2)), points, steps=3, every=1)
    assert seen.notes == ["activation of 0 could not be read: division by zero"]
    assert len(losses) == 3
    assert "Not seen: activation of 0" in str(seen.diagnosis())


@pytest.mark.parametrize(
    "owner, name, note",
    [
        ("noise.Noise", "_take", "the noise of 1 could not be read: no"),
        ("output", "_counts", "the gradient of the output could not be read: no"),
        ("parameters", "norms", "the gradient of 0.weight could not be read: no"),
    ],
)
def test_what_cannot_be_read_in_a_backward_pass_is_a_note(owner, name, note, monkeypatch):
    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(f"normkit.watching.signals.{owner}.{name}", fail)
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    x, y = points(0)
    with nk.watch(model) as seen:
        F.cross_entropy(model(x), y).backward()
    assert note in seen.notes


@pytest.mark.parametrize("values", [torch.tensor(0.5), torch.ones(2), 0.5], ids=["a number", "two", "no tensor"])
def test_a_signal_of_another_number_of_values_is_named_and_hides_no_other(values):
    SIGNALS["ones"] = Signal("ones", {"one_share": MEAN}, lambda call: values)
    try:
        _, seen = train(nn.Linear(8, 2), points, steps=3, every=1)
    finally:
        del SIGNALS["ones"]
    (note,) = seen.notes
    assert note.startswith("ones of the model could not be read: a vector of 1 was wanted")
    assert note.endswith(f"not {values!r}" if isinstance(values, float) else f"not shape {tuple(values.shape)}")
    assert seen.history().steps == [1, 2, 3]
    assert np.isfinite(seen.history().series("", "rms")).all()


@pytest.mark.parametrize("given", ["no parameters", "other parameters", "no model", "no optimizer", "every", "signal"])
def test_what_is_handed_in_is_checked(given):
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused = {
        "no parameters": (lambda: nk.watch(nn.ReLU()), ValueError, "model ReLU has no parameters"),
        "other parameters": (lambda: nk.watch(Net(), optimizer), ValueError, "SGD holds none of the parameters of Net"),
        "no model": (lambda: nk.watch(3), TypeError, "model must be a torch.nn.Module, not int"),
        "no optimizer": (lambda: nk.watch(model, 3), TypeError, "optimizer must be a torch.optim.Optimizer, not int"),
        "every": (lambda: nk.watch(model, optimizer, every=0), ValueError, "every must be at least 1, not 0"),
        "signal": (lambda: nk.watch(model, signals=["loss"]), ValueError, "signals must be one of"),
    }
    make, kind, message = refused[given]
    with pytest.raises(kind, match=message):
        make()


def test_a_run_of_any_length_takes_no_more_room():
    store = Store(keep=16)
    peak = 700
    for step in range(1, 2001):
        values = torch.tensor([float(step), 9.0 if step == peak else 1.0, float(step)])
        store.add(step, [("a", "rms"), ("a", "largest"), ("a", "channel")], [MEAN, LARGEST, BESIDE], values)
    table = store.table()
    assert len(store.steps) <= 16
    assert store.steps[0] == 1
    assert store.steps[-4:] == [1997, 1998, 1999, 2000]
    assert store.steps == sorted(store.steps)
    [row] = table[table[:, 1] == 9]
    assert row[2] == peak, "the channel goes with its value"


def test_what_is_kept_is_a_hundredth_of_the_parameters():
    model = nn.Sequential(nn.Conv2d(3, 200, 3), nn.Flatten(), nn.Linear(200, 6000))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    sizes = []
    with nk.watch(model, optimizer, every=1) as seen:
        optimizer.register_step_pre_hook(
            lambda *_: sizes.append(sum(old.numel() for old in seen.sample.updates.before.values()))
        )
        for _ in range(3):
            model(torch.ones(1, 3, 3, 3)).sum().backward()
            optimizer.step()
        kept = sum(v.numel() for v in seen.spectra.vectors.values()) + max(sizes)
        kept += seen.store.keep * len(seen.history().columns)
    assert seen.store.keep > 64
    assert kept < 0.01 * sum(p.numel() for p in model.parameters())


def test_numbers_are_the_same_where_tensors_are_float64_by_default(tmp_path):
    def look(default):
        torch.set_default_dtype(default)
        try:
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).double()
            x, y = points(0, batch=8)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with nk.watch(model, optimizer, every=1) as seen:
                for _ in range(3):
                    F.cross_entropy(model(x.double()), y).backward()
                    optimizer.step()
            return seen.history(), load(seen.save(tmp_path / "watch.jsonl"))
        finally:
            torch.set_default_dtype(torch.float32)

    seen, want = look(torch.float64), look(torch.float32)
    for history, other in zip(seen, want, strict=True):
        assert history.columns == other.columns
        assert np.isnan(history.series("1", "dead")).all(), "of few samples nobody knows"
    assert seen[0].notes == []


def test_numbers_survive_a_file(tmp_path):
    path = tmp_path / "watch.jsonl"
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1, to=path) as seen:
        for step in range(4):
            x, y = points(step)
            F.cross_entropy(model(x) * (float("nan") if step == 3 else 1), y).backward()
            optimizer.step()
            if step == 2:
                assert load(path).steps == [1, 2], "what was written so far can be read"
    history = seen.history()
    other = load(path)
    for read in (other, load(seen.save(tmp_path / "again.jsonl"))):
        assert read.steps == history.steps
        assert read.columns == history.columns
        close(read.table, history.table, rtol=1e-5, atol=0, equal_nan=True)
        assert str(read.diagnosis()) == str(seen.diagnosis())
    assert all(json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines())
    assert json.loads(json.dumps(seen.to_dict()))["steps"] == [1, 2, 3, 4]
    with path.open("a") as file:
        file.write('{"event": "sample", "step"')
    assert load(path).steps == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="was not written by a watch"):
        load(__file__)


def test_a_training_goes_on_from_a_checkpoint_with_what_was_seen():
    def run(breaks):
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = nk.watch(model, optimizer, every=2).start()
        for step in range(8):
            if step == breaks:
                seen.stop()
                kept = seen.state_dict()
                seen = nk.watch(model, optimizer, every=2)
                seen.load_state_dict(kept)
                seen.start()
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        seen.stop()
        return seen.history()

    whole, broken = run(None), run(5)
    assert broken.steps == whole.steps == [1, 2, 4, 6, 8]
    assert broken.columns == whole.columns
    close(broken.table, whole.table, rtol=0, atol=0)


def test_a_state_kept_in_memory_stays_as_it_was_and_is_gone_back_to_more_than_once():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = nk.watch(model, optimizer, every=1)

    def go_on(steps):
        with seen:
            for step in steps:
                x, y = points(step)
                seen.loss(loss := F.cross_entropy(model(x), y))
                loss.backward()
                optimizer.step()
        seen.note(f"until {steps[-1]}")

    go_on(range(3))
    kept = seen.state_dict()
    before = copy.deepcopy(kept)
    for last_step in (8, 6):
        seen.loss(1000.0)  # of a step that is gone back behind before it ends
        seen.load_state_dict(kept)
        assert seen.history().steps == [1, 2, 3]
        go_on(range(3, last_step))
        assert seen.history().steps == [*range(1, last_step + 1)]
        assert float(seen.history().series("loss", "loss_peak").max()) < 100
        assert seen.notes == ["until 2", f"until {last_step - 1}"]
    for name in ("table", "vectors"):
        close(kept.pop(name), before.pop(name), rtol=0, atol=0, equal_nan=True)
    assert kept == before


def test_a_trainer_that_counts_its_steps_says_which_are_looked_at():
    model, plain = Net(), Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = nk.watch(model, optimizer)
    with nk.watch(plain, torch.optim.SGD(plain.parameters(), lr=0.1), every=1) as other:
        for net, steps in ((model, seen.optimizers), (plain, other.optimizers)):
            with seen.sampled(7) if net is model else contextlib.nullcontext():
                F.cross_entropy(net(points(0)[0]), points(0)[1]).backward()
                steps[0].step()
    assert seen.history().steps == [7]
    assert seen.history().columns == other.history().columns
    close(seen.history().table, other.history().table)
    with pytest.raises(KeyboardInterrupt), seen.sampled(8):
        raise KeyboardInterrupt
    assert not any(module._forward_hooks for module in model.modules())


def test_a_file_stays_bounded(tmp_path):
    path = tmp_path / "watch.jsonl"
    model = nn.Sequential(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with nk.watch(model, optimizer, every=1, to=path, keep=8) as seen:
        for _ in range(60):
            model(torch.ones(1, 1)).sum().backward()
            optimizer.step()
    assert len(path.read_text().splitlines()) < 30
    assert load(path).steps[0] == 1
    assert load(path).steps[-3:] == seen.history().steps[-3:] == [58, 59, 60]


def test_a_disk_that_is_full_ends_the_file_with_a_warning_and_not_the_training(recwarn):
    losses = []
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1, to="/dev/full/watch.jsonl") as seen:
        for step in range(3):
            x, y = points(step)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert len(losses) == 3
    assert ["nothing is written by /dev/full/watch.jsonl" in str(warning.message) for warning in recwarn] == [True]
    assert seen.history().steps == [1, 2, 3]
    assert "nothing is written by /dev/full/watch.jsonl" in seen.notes[0]


def test_entries_of_a_large_parameter_stand_for_it():
    torch.manual_seed(0)
    old = torch.randn(600, 500)
    new = old + 0.01 * torch.randn(600, 500)
    for view in (lambda x: x, lambda x: x.T):
        some, before = entries(view(new)), entries(view(old))
        assert len(some) < old.numel() / 500
        assert ((some - before).norm() / some.norm()).item() == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("columns", [512, 513, 515, 1026])
def test_entries_are_of_all_columns(columns):
    places = entries(torch.arange(64.0 * columns).view(64, columns)) % columns
    assert len(places.unique()) > 0.9 * len(places)


def test_blocks_of_known_models():
    assert [name for name, _ in blocks(library("timm").create_model("resnet18"))][:3] == [
        "layer1.0",
        "layer1.1",
        "layer2.0",
    ]
    vit = library("timm").create_model("vit_tiny_patch16_224", img_size=32)
    assert [name for name, _ in blocks(vit)] == [f"blocks.{i}" for i in range(12)]
    assert [name for name, _ in blocks(mlp())] == ["0", "2", "4", "6"]


class Mask(nn.Module):
    def forward(self, weight):
        return weight * (torch.arange(weight.shape[-1]) < 2)


@pytest.mark.parametrize(
    "change",
    [spectral_norm, weight_norm, lambda layer: register_parametrization(layer, "weight", Mask())],
)
def test_what_computes_a_weight_is_no_layer(change):
    """The places, blocks and classes are those of a model without."""
    plain, changed = mlp(norm="layernorm"), each_weight(mlp(norm="layernorm"), change)
    assert [name for name, _ in blocks(changed)] == [name for name, _ in blocks(plain)] == ["0", "3", "6", "9"]
    (_, one), (_, other) = (train(model, points, every=2) for model in (plain, changed))
    for what in ("kinds", "blocks", "single", "classes"):
        assert one.facts[what] == other.facts[what]
    assert one.history().names("rms") == other.history().names("rms")


def test_every_number_that_is_read_has_its_name_among_those_that_rules_may_ask_for():
    _, seen = train(decoder(), language, steps=6, every=1)
    names = {what for _, what in seen.history().columns}
    assert {"rms", "entropy", "update", "spectral", "one_square", "bad_data", "lr", "loss_peak"} <= names
    assert names <= number_names()
    assert "rmss" not in number_names()


def test_the_parts_of_a_long_list_are_listed_in_one_go():
    few, many = (nn.Sequential(*(nn.Identity() for _ in range(n))) for n in (40, 80))
    assert calls(children, many) < 2.2 * calls(children, few)
