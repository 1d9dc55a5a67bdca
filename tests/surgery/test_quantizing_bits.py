"""Layers that AdaQuant tunes, and bits that an integer program allots within a budget."""

import itertools
import json

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.cli import main
from normkit.quant._grid import quantize as on_grid
from normkit.quant.adaquant import adaquant
from normkit.surgery.quantizing import allocating, tuning, weights

pytest.importorskip("torchao")


def layers(*widths):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(widths))).eval()


def rows(count=8, width=16, seed=1):
    """Batches whose features are alike in pairs, so that what one weight loses another can make up for."""
    g = torch.Generator().manual_seed(seed)
    half = torch.randn(count, 32, width // 2, generator=g)
    return list(torch.cat([half, half + 0.1 * torch.randn(half.shape, generator=g)], 2))


def strayed():
    """A layer with one large weight a row, which the grid must reach for, and data that never use it."""
    model, data = layers(16, 8), rows()
    model[0].weight.data[:, 0] = 0.6
    for x in data:
        x[..., 0] = 0
    return model, data


@torch.no_grad()
def error(model, other, batches):
    return float(sum((model(x) - other(x)).square().sum() for x in batches))


def test_adaquant_keeps_a_layers_outputs_better_than_rounding_to_the_nearest():
    model, data = strayed()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    nearest, tuned = (nk.quantize(model, data, method=m, bits=2, steps=300) for m in ("nearest", "adaquant"))
    assert error(model, tuned.model, data) < 0.6 * error(model, nearest.model, data)
    assert (tuned.bits, tuned.notes, tuned.packed) == ({"0": 2}, {}, nearest.packed)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_the_quantized_tensor_holds_the_numbers_that_were_tuned(monkeypatch):
    seen = []
    monkeypatch.setattr(tuning, "adaquant", lambda *given, **how: seen.append(adaquant(*given, **how)) or seen[-1])
    made = nk.quantize(*strayed(), method="adaquant", bits=3, steps=150).model
    [tuned] = seen
    assert tuned.after < tuned.before
    torch.testing.assert_close(made[0].weight.dequantize(), tuned.quantized_weight)
    torch.testing.assert_close(made[0].bias, tuned.bias)
    rows_of = (tuned.weight_range.unsqueeze(1), tuned.weight_zero_point.unsqueeze(1))
    torch.testing.assert_close(made[0].weight.dequantize(), on_grid(tuned.weight, *rows_of, 3))


def test_a_layer_that_tuning_does_not_help_is_rounded_to_the_nearest(monkeypatch):
    worse = lambda *given, **how: (made := adaquant(*given, **how))._replace(after=made.before)  # noqa: E731
    monkeypatch.setattr(tuning, "adaquant", worse)
    model = layers(16, 8)
    made = nk.quantize(model, rows(), method="adaquant", bits=3, steps=5)
    assert made.notes == {"0": "rounded to the nearest: tuned, its outputs were no closer"}
    want = nk.quantize(model, bits=3).model[0]
    assert torch.equal(made.model[0].weight.dequantize(), want.weight.dequantize())
    assert torch.equal(made.model[0].bias, want.bias)


def test_inputs_without_a_grid_are_as_they_are():
    weight, x = torch.eye(3), torch.tensor([[0.1, 0.2, 0.7]])
    one, zero = torch.ones(3), torch.zeros(3)
    given = (weight, None, one, zero, one[:1], zero[:1], x, x, torch.empty(0, 1, dtype=torch.long), x, x)
    assert adaquant(*given, bits=2, input_bits=0).before == 0
    onto = torch.tensor([0.0, 1 / 3, 2 / 3])  # the nearest of 0, 1/3, 2/3, 1
    torch.testing.assert_close(adaquant(*given, bits=2).before, (onto - x).square().mean())


def test_bits_are_allotted_at_the_least_error_that_the_budget_allows(monkeypatch):
    model, seen = layers(16, 12, 10, 8), []

    def kept(table, base_value, sizes, **how):
        seen.append((table, base_value, sizes))
        return own(table, base_value, sizes, **how)

    own = allocating.allocate_bits
    monkeypatch.setattr(allocating, "allocate_bits", kept)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    made = nk.quantize(model, rows(), bits="auto", budget="3.7 bits")
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    [(table, base, sizes)] = seen
    costs = torch.cat([torch.zeros(3, 1), (table - base).clamp(min=1e-6)], 1)
    choices = (8, *allocating.PRECISIONS)
    fits = {
        bits: sum(float(costs[i, choices.index(b)]) for i, b in enumerate(bits))
        for bits in itertools.product(choices, repeat=3)
        if sum(b * n for b, n in zip(bits, sizes.tolist(), strict=True)) <= 3.7 * sizes.sum()
    }
    assert tuple(made.bits.values()) == min(fits, key=fits.__getitem__)
    assert "bits a number" in str(made)
    assert made.packed == sum(n * b // 8 for n, b in zip((192, 120, 80), made.bits.values(), strict=True)) + (
        30 * 4 + 30 * 5  # biases; a scale and a zero point a row
    )


def test_the_table_is_the_error_with_one_layer_lower_and_all_others_at_eight_bits(monkeypatch):
    model, data, seen = layers(16, 12, 8), rows(), []
    own = allocating.allocate_bits
    monkeypatch.setattr(allocating, "allocate_bits", lambda *given, **how: seen.append(given) or own(*given, **how))
    nk.quantize(model, data, bits="auto", budget="4 bits")
    both, lower = nk.quantize(model, bits=8).model, nk.quantize(model, bits=3).model
    lower[0].weight = both[0].weight
    [(table, base, sizes)] = seen
    assert sizes.tolist() == [192, 96]
    ratio = error(model, lower, data) / error(model, both, data)
    assert float(table[1, allocating.PRECISIONS.index(3)] / base) == pytest.approx(ratio, rel=1e-4)


def test_a_budget_of_bytes_is_met_and_the_least_is_named():
    model, data = layers(16, 8), rows()
    made = nk.quantize(model, data, bits="auto", budget="0.12 kB")
    assert made.packed <= 120
    rest, least = 8 * 4 + 8 * 5, 16 * 8 * 2 // 8
    assert nk.quantize(model, data, bits="auto", budget=f"{rest + least} B").packed == rest + least
    with pytest.raises(ValueError, match=f"the least that one meets is {rest + least} B, of which {rest} are not"):
        nk.quantize(model, data, bits="auto", budget=f"{rest + least - 1} B")
    with pytest.raises(ValueError, match=r"no allocation of bits meets budget='1.9 bits'; the least .* is 2 bits"):
        nk.quantize(model, data, bits="auto", budget="1.9 bits")
    assert set(nk.quantize(model, data, bits="auto", budget="2 bits").bits.values()) == {2}
    assert set(nk.quantize(model, data, bits="auto", budget="9 bits").bits.values()) == {8}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": "auto"}, "given together"),
        ({"budget": "4 bits"}, "given together"),
        ({"bits": "many", "budget": "4 bits"}, "bits must be a number or \"auto\", not 'many'"),
        ({"bits": "auto", "budget": "4 pounds"}, "budget must be like \"4.5 bits\" .* not '4 pounds'"),
        ({"bits": "auto", "budget": 4.5}, "budget must be like"),
        ({"method": "adaquant", "group": 4}, "adaquant has one grid a row: group must be None, not 4"),
        ({"method": "ada"}, "method must be one of"),
    ],
)
def test_words_that_do_not_fit_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        nk.quantize(layers(16, 8), rows(), **options)
    with pytest.raises(ValueError, match='at least one batch for bits="auto"'):
        nk.quantize(layers(16, 8), bits="auto", budget="4 bits")


def test_the_command_quantizes_within_a_budget_and_writes_the_model(tmp_path, monkeypatch, capsys):
    (tmp_path / "tiny_nets.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): torch.manual_seed(0); return nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8))\n"
        "def batches(): torch.manual_seed(1); return [torch.randn(8, 16) for _ in range(3)]\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["quantize", "tiny_nets:net", "--data", "tiny_nets:batches", "--bits", "auto"]
    assert main([*words, "--budget", "4 bits", "--json", "-o", "few"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(told["bits"][name] * size for name, size in {"0": 128, "2": 64}.items()) <= 4 * 192
    import tiny_nets

    batches, net = tiny_nets.batches(), tiny_nets.net()
    read = nk.load("tiny_nets:net@few")
    wanted = nk.quantize(net, batches, bits="auto", budget="4 bits").model
    assert type(read[0].weight.data).__name__ == "IntxUnpackedToInt8Tensor"
    assert torch.equal(read(batches[0]), wanted(batches[0]))
    assert main([*words, "--budget", "4 bits", "-o", "few"]) == 2
    assert "few exists already" in capsys.readouterr().err
    assert main([*words, "--budget", "1 bit"]) == 2
    assert "normkit quantize: no allocation of bits meets budget='1 bit'" in capsys.readouterr().err
    assert main(["quantize", "tiny_nets:net", "--bits", "3", "--method", "adaquant", "--steps", "5"]) == 2
    assert "data must hold at least one batch" in capsys.readouterr().err
    assert main([*words[:2], "--method", "norm-tweaking", "--steps", "5", "--parallel"]) == 2
    assert "only --method learned-rounding or adaquant takes --steps and --parallel" in capsys.readouterr().err


class TiedPair(nn.Module):
    """Two linears with one weight and one bias."""

    def __init__(self, tied=True):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.b.load_state_dict(self.a.state_dict())
        if tied:
            self.b.weight, self.b.bias = self.a.weight, self.a.bias

    def forward(self, x):
        return self.b(self.a(x).relu())


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("where", ["a", None])
@pytest.mark.parametrize("options", [{"method": "adaquant", "bits": 3}, {"bits": "auto", "budget": "3 bits"}])
def test_linears_that_share_a_weight_are_quantized_as_two(options, where, inplace):
    made = []
    for tied in (True, False):
        torch.manual_seed(0)
        model = TiedPair(tied)
        model.a.weight.data[:, 0] = model.b.weight.data[:, 0] = 0.6
        made.append(nk.quantize(model, rows(), where=where, steps=100, inplace=inplace, **options))
    for name in ("a", "b"):
        for key in ("weight", "bias"):
            ours, apart = (getattr(each.model.get_submodule(name), key).dequantize() for each in made)
            assert torch.equal(ours, apart)
    assert made[0].bits == made[1].bits


def test_a_budget_of_bytes_is_met_by_linears_that_share_a_weight():
    assert nk.quantize(TiedPair(), rows(), bits="auto", budget="480 B").packed <= 480


class Routed(nn.Module):
    """Two experts, to which rows go by the sign of their first number."""

    def __init__(self, keyword):
        super().__init__()
        self.low, self.high, self.keyword = nn.Linear(16, 8), nn.Linear(16, 8), keyword

    def forward(self, x):
        low, high = x[x[:, 0] < 0], x[x[:, 0] >= 0]
        return torch.cat([self.low(low), self.high(input=high) if self.keyword else self.high(high)])


@pytest.mark.parametrize("method", ["learned-rounding", "adaquant"])
def test_an_expert_that_no_row_comes_to_is_rounded_to_the_nearest_and_one_called_by_keyword_learned(method):
    data, weights = [x.abs() for x in strayed()[1]], {}
    for keyword in (True, False):
        torch.manual_seed(0)
        model = Routed(keyword)
        model.high.weight.data[:, 0] = 0.6
        for how in (method, "nearest"):
            made = nk.quantize(model, data, method=how, bits=2, steps=200, lr=0.1)
            assert made.notes == ({} if how == "nearest" else {"low": "rounded to the nearest: nothing came to it"})
            weights[keyword, how] = [layer.weight.dequantize() for layer in (made.model.low, made.model.high)]
    (low, high), (nearest_low, nearest_high) = weights[True, method], weights[True, "nearest"]
    assert torch.equal(low, nearest_low)
    assert torch.equal(high, weights[False, method][1])
    assert not torch.equal(high, nearest_high)


def test_in_parallel_layers_learn_on_the_inputs_of_the_float_model(monkeypatch):
    torch.manual_seed(0)
    model, data = nk.Decoder(vocab=16, dim=8, depth=2, heads=2), [torch.randint(16, (4, 8)) for _ in range(3)]
    seen, float_rows, last = [], [], "layers.1.feedforward.up"
    up = model.get_submodule(last)
    with up.register_forward_pre_hook(lambda _, given: float_rows.append(given[0].flatten(0, 1))):
        for x in data:
            model(x)
    monkeypatch.setattr(weights, "_learn", lambda rounding, layer, x, how: seen.append(x) or "it was not asked to")
    rows = {}
    for parallel in (False, True):
        seen.clear()
        made = nk.quantize(model, data, method="adaquant", bits=2, parallel=parallel)
        rows[parallel] = dict(zip(made.layers, seen, strict=True))[last].sort(0).values
    expected = torch.cat(float_rows).detach().sort(0).values
    torch.testing.assert_close(rows[True], expected)
    assert not torch.allclose(rows[False], expected, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_half_precision_go_to_the_nearest_point_of_the_grid_that_is_kept(bits, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64, bias=False)).to(dtype)
    with torch.no_grad():
        model[0].weight[:8] *= 1e-6  # rows whose scale a float16 hardly holds
        model[0].weight[8] = 0
    w = model[0].weight.detach().double()
    few = nk.quantize(model, bits=bits).model[0].weight
    scale, zero, half = few.scale.double(), few.zero_point.double(), 2 ** (bits - 1)
    best = (((w / scale).round() + zero).clamp(-half, half - 1) - zero) * scale
    off = ((few.qdata.double() - zero) * scale - w).abs()
    assert (off <= (best - w).abs() + 1e-6 * scale).all()
