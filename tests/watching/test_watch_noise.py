"""The gradient noise scale, against the exact gradients of single examples."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from trainings import LENGTH, WORDS, language, mlp, pictures, points

import normkit as nk
from normkit.watching import load
from normkit.watching.signals.noise import NUMBERS, NoiseScale, noise_scale

SIZE = 16


class Conv(nn.Module):
    """A convolutional network with group norms and a function that works in place."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.first(x))).mean((2, 3)))


class Words(nn.Module):
    """A decoder with torch's norms, of blocks that torch wrote."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        self.norm, self.head = nn.RMSNorm(16), nn.Linear(16, WORDS)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.norm(self.layer(self.table(x), src_mask=mask, is_causal=True)))


MODELS = {
    "perceptron": (lambda: mlp(norm="layernorm"), lambda step: points(step, SIZE)),
    "convolutional": (Conv, lambda step: pictures(step, SIZE)),
    "decoder": (Words, lambda step: language(step, SIZE)),
}


def exact(model, x, y, norms_only=True):
    """Return the mean of |G_b|² and |G_B|², by torch.func, of the parameters of norms or of all."""
    norms = [name for name, m in model.named_modules() if "norm" in type(m).__name__.lower()]
    own = {name: p.detach() for name, p in model.named_parameters()}
    some = {name: p for name, p in own.items() if not norms_only or name.rpartition(".")[0] in norms}

    def loss(chosen, x, y):
        return F.cross_entropy(functional_call(model, {**own, **chosen}, (x[None],)).flatten(0, -2), y.flatten())

    slopes = vmap(grad(loss), (None, 0, 0))(some, x, y)
    one = sum(slope.flatten(1).square().sum(1).mean() for slope in slopes.values())
    return float(one), float(sum(slope.mean(0).square().sum() for slope in slopes.values()))


def watched(name, steps=1, parts=1, **options):
    make, batches = MODELS[name]
    torch.manual_seed(0)
    model, twin = make(), make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    truth = []
    with nk.watch(model, optimizer, every=1, **options) as seen:
        for step in range(steps):
            x, y = batches(step)
            twin.load_state_dict(model.state_dict())
            truth.append([exact(twin, x, y, norms_only) for norms_only in (True, False)])
            for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
                (F.cross_entropy(model(a).flatten(0, -2), b.flatten()) / parts).backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen, torch.tensor(truth)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_examples_are_exact(name, parts):
    seen, truth = watched(name, steps=3, parts=parts)
    one, batch, examples = (torch.tensor(seen.history().series("noise", what)) for what in NUMBERS)
    assert examples.tolist() == [SIZE] * 3
    torch.testing.assert_close(one, truth[:, 0, 0].double(), rtol=1e-4, atol=0)
    torch.testing.assert_close(batch, truth[:, 0, 1].double(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", MODELS)
def test_norms_tell_the_noise_of_all_parameters_within_a_factor(name):
    seen, truth = watched(name, steps=40)
    one, batch = truth[:, 1].double().T
    whole = ((one - batch) / (1 - 1 / SIZE)).mean() / ((SIZE * batch - one) / (SIZE - 1)).mean()
    found = seen.noise_scale()
    assert found.samples == 40
    assert whole / 3 < found.value < 3 * whole
    assert "your batch of 16 is" in str(found)


@pytest.mark.parametrize("other", [None, 5, 32])
def test_another_call_before_the_backward_pass_changes_nothing(other):
    torch.manual_seed(0)
    model = mlp(norm="layernorm")
    x, y = points(0)
    one, batch = exact(model, x, y)
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.05)) as seen:
        loss = F.cross_entropy(model(x), y)
        if other:
            with torch.no_grad():
                model(x[:other])
        loss.backward()
        seen.optimizers[0].step()
    read = [seen.history().series("noise", what)[0] for what in NUMBERS]
    assert read == pytest.approx([one, batch, len(x)], rel=1e-4)


def test_parts_of_unequal_size_are_told_apart():
    torch.manual_seed(0)
    model = mlp(norm="layernorm")
    x, y = points(0)
    one, batch = exact(model, x, y)
    with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.05)) as seen:
        scores = torch.cat([model(x[:48]), model(x[48:])])
        F.cross_entropy(scores, y).backward()
        seen.optimizers[0].step()
    read = [seen.history().series("noise", what)[0] for what in NUMBERS]
    assert read == pytest.approx([one, batch, len(x)], rel=1e-4)


def test_a_file_has_it_as_well(tmp_path):
    seen, _ = watched("perceptron", steps=3, to=tmp_path)
    assert load(tmp_path / "watch.jsonl").noise_scale().value == pytest.approx(seen.noise_scale().value, rel=1e-3)


def test_a_model_without_such_norms_is_refused():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with nk.watch(model, optimizer) as seen:
        F.cross_entropy(model(points(0)[0]), points(0)[1]).backward()
        optimizer.step()
    with pytest.raises(ValueError, match="must have a norm with a gain"):
        seen.noise_scale()


def test_an_output_that_was_changed_in_place_is_left_out():
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with nk.watch(model, optimizer) as seen:
        F.cross_entropy(model(points(0)[0]), points(0)[1]).backward()
        optimizer.step()
    assert not seen.history().names("one_square")
    assert seen.history().notes == []


def test_a_bias_that_is_a_flag_is_no_shift():
    class RMSNorm(nn.RMSNorm):
        bias = False

    examples = []
    for norm in (RMSNorm(8), nn.RMSNorm(8)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), norm, nn.Linear(8, 2))
        with nk.watch(model, torch.optim.SGD(model.parameters(), lr=0.05)) as seen:
            F.cross_entropy(model(points(0)[0]), points(0)[1]).backward()
            seen.optimizers[0].step()
        examples.append(seen.history().series("noise", "one_square")[0])
    assert examples[0] == examples[1] > 0


@pytest.mark.parametrize(("batch", "times"), [(16.0, "2 times what"), (8.0, "1 times what"), (4.0, "a 2th of what")])
def test_a_batch_is_set_beside_the_noise(batch, times):
    assert f"is {times} the noise asks for" in str(NoiseScale(8.0, batch, 5))


@pytest.mark.parametrize("batch", [1.0, 1.0 + 1e-6])
def test_equal_examples_have_no_noise(batch):
    scale = noise_scale(torch.ones(2), torch.full((2,), batch), torch.full((2,), 8.0))
    assert scale.value == 0
    assert str(scale) == "noise scale 0 examples, of 2 samples: the examples of a batch have one gradient"
