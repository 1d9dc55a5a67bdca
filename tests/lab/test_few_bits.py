"""Trained models of a comparison in few bits: weights, keys and values, activations, and what is refused."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import cli
from normkit.attention.core import AttentionCore
from normkit.lab.plan import bits as few_bits
from normkit.lab.plan import tasks
from normkit.lab.plan.findings import Interval
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import page, quant
from normkit.lab.report.quant import FewBits, rank_correlation
from normkit.lab.training import quantized
from normkit.quant.kivi import kivi
from normkit.surgery.quantizing import caching
from normkit.surgery.quantizing.weights import quantize

pytest.importorskip("torchao")

SMALL = Settings(model="decoder:dim=16,depth=1,heads=2", length=16, batch=2)
METHODS = ("nearest", "adaquant:steps=3", "norm-tweaking", "kivi", "turboquant", "nsnquant", "activations")


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    given = {"model": SMALL.model, "length": 16, "batch": 2, "threads": 1, "steps": 4, "lr": 0.01, "seeds": 2}
    given |= {"norms": ["layernorm", "dyt"], "quant": METHODS, "bits": [5, 2], "engine": "here"}
    return nk.compare(**given, out=tmp_path_factory.mktemp("bits") / "out")


def test_every_method_has_a_row_for_each_number_of_bits(result):
    rows = {(one.variant, one.method, one.bits): one for one in result.quantized}
    assert len(rows) == 2 * len(METHODS) * 2
    for (variant, method, bits), one in rows.items():
        if (method, bits) == ("nsnquant", 5):
            assert one.why == "nsnquant has 2 bits, not 5"
            continue
        assert (one.why, one.growth.count) == ("", 2)
        assert one.growth.mean == pytest.approx(math.exp(one.after.mean - one.before.mean), rel=0.02)
        assert (one.bytes is None) is (method in ("kivi", "turboquant", "nsnquant", "activations"))
        if bits == 5 and method != "norm-tweaking":
            assert one.growth.mean == pytest.approx(1, abs=0.02), (variant, method)
    two, five = rows["layernorm", "nearest", 2], rows["layernorm", "nearest", 5]
    assert two.bytes < five.bytes
    assert abs(two.growth.mean - 1) > abs(five.growth.mean - 1)


def test_the_report_has_the_table_and_says_which_norm_loses_least(result):
    text, whole = str(result), page.page(result.comparison)
    assert "In few bits" in text
    assert "With weights in 2 bits (nearest)," in text
    assert "With keys and values in 2 bits (kivi)," in text
    assert "With inputs of linears in 2 bits (activations)," in text
    assert "Packed bytes count quantized weights" in whole


def small(norm="layernorm"):
    task = tasks.load(SMALL)
    return task, task.build(Variant(norm, norm=norm), 1)


def test_of_a_single_variant_the_methods_are_compared(monkeypatch):
    def one(method, bits, growth, variant="layernorm"):
        return FewBits(variant, method, bits, *[Interval(growth, 0.0, 3)] * 3, None, 0.0, 3.0, 0.1)

    rows = [one("nearest", 3, 1.2), one("adaquant", 3, 1.1), one("nearest", 2, 1.4), one("kivi", 2, 1.3)]
    monkeypatch.setattr(quant, "in_few_bits", lambda comparison: rows)
    assert [line.replace(" ± 0.000", "") for line in quant.sentences(None)] == [
        "With weights in 3 bits, adaquant loses least: 1.100; nearest most: 1.200."
    ]
    rows.append(one("nearest", 2, 1.5, variant="dyt"))
    assert [line.replace(" ± 0.000", "") for line in quant.sentences(None)] == [
        "With weights in 2 bits (nearest), layernorm loses least: 1.400; dyt most: 1.500."
    ]


def test_a_row_has_the_numbers_that_quantize_gives():
    task, model = small()
    held = task.data.validation()

    def evaluate(made):
        return sum(float(task.loss(made, batch)) for batch in held) / len(held)

    found = quantized.run(model, task, Settings(**{**vars(SMALL), "quant": ("nearest",), "bits": (3,)}), 1, evaluate)
    made = quantize(model, bits=3)
    with torch.no_grad():
        assert found["rows"][0]["loss"] == pytest.approx(evaluate(made.model.eval()))
        assert found["loss"] == pytest.approx(evaluate(model.eval()))
    assert found["rows"][0]["bytes"] == made.packed
    first = quantized.activations(model, task.data.train(1, 1)[:, :-1])
    assert {name: found[name] for name in first} == first
    assert found["bytes"] == sum(4 * p.numel() for p in model.parameters())


def of_batches(batch):
    return SimpleNamespace(data=SimpleNamespace(train=lambda seed, step: batch))


def test_batches_come_to_a_model_where_it_is():
    places = []

    class Placed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(1, device="meta"))

        def forward(self, x):
            places.append(x.device.type)

    for batch in ((torch.zeros(2, 4), torch.zeros(2)), torch.zeros(2, 4), {"x": torch.zeros(2, 4)}):
        settings = SimpleNamespace(quant=("activations",), bits=(4,))
        quantized.run(Placed(), of_batches(batch), settings, 1, lambda model: 0.0)
    assert places == ["meta"] * 3


def test_a_model_of_two_inputs_learns_to_round_on_both():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

        def forward(self, inputs):
            x, z = inputs
            return self.left(x) + self.right(z)

    chance, model = torch.Generator().manual_seed(0), Both()
    batch = ((torch.randn(8, 4, generator=chance), torch.randn(8, 2, generator=chance)), torch.zeros(8, 3))
    settings = SimpleNamespace(quant=("adaquant:steps=3",), bits=(4,))
    found = quantized.run(model, of_batches(batch), settings, 1, lambda made: float(made(batch[0]).mean()))
    assert found["rows"][0]["loss"] == pytest.approx(found["loss"], abs=0.1)
    assert found["rows"][0]["loss"] != found["loss"]


def test_inputs_of_linears_are_rounded_to_a_grid_over_their_range():
    model = nn.Sequential(nn.Linear(4, 4, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4))
    x = torch.tensor([[0.0, 0.4, 2.1, 3.0]])
    with quantized.rounded_inputs(model, 2) as few:
        torch.testing.assert_close(few(x), torch.tensor([[0.0, 0.0, 2.0, 3.0]]))
    torch.testing.assert_close(model(x), x)


@pytest.mark.parametrize("name", ["kivi", "nsnquant", "turboquant"])
def test_attention_reads_keys_and_values_back_from_few_bits(name):
    core = next(part for part in small()[1].modules() if isinstance(part, AttentionCore))
    q, k, v = torch.randn(3, 2, 2, 16, 8, generator=torch.Generator().manual_seed(0))
    with quantized.rounded_cache(nn.ModuleList([core]), name, 2, {}):
        got = core(q, k, v)
    if name == "kivi":
        keys, values = kivi(k, v, bits=2, group_size=8, residual=8)
    elif name == "nsnquant":
        keys, values = (caching.decode(caching.encode(x), x.dtype) for x in (k, v))
    else:
        coder = quantized._turboquant(8, 2, ())
        keys, values = coder(k).y, coder(v).y
    torch.testing.assert_close(got, core(q, keys, values))
    assert not torch.allclose(got, core(q, k, v))


def test_a_model_without_attention_has_no_cache_to_round():
    why = "kivi rounds the keys and values of attention cores, and the model has none"
    with pytest.raises(ValueError, match=why), quantized.rounded_cache(nn.Linear(2, 2), "kivi", 2, {}):
        pass


def test_kurtosis_and_outlier_channels_are_those_of_the_inputs_of_linears():
    model = nn.Sequential(nn.Linear(64, 8))
    x = torch.randn(512, 64, generator=torch.Generator().manual_seed(0))
    plain = quantized.activations(model, x)
    assert plain["kurtosis"] == pytest.approx(3, abs=0.15)
    assert plain["outliers"] == 0
    x = copy.deepcopy(x)
    x[:, :2] *= 30
    odd = quantized.activations(model, x)
    wide = x - x.mean()
    assert odd["kurtosis"] == pytest.approx(float(wide.pow(4).mean() / wide.square().mean() ** 2), rel=1e-4)
    assert odd["kurtosis"] > 30
    assert odd["outliers"] == 2 / 64


def test_a_sign_predicts_by_the_order_of_variants():
    def one(name, growth, kurtosis):
        return FewBits(name, "nearest", 2, *[Interval(growth, 0.0, 3)] * 3, None, 0.0, kurtosis, 0.1)

    many = [one("a", 1.1, 3.0), one("b", 1.3, 9.0), one("c", 1.2, 4.0), one("d", 1.5, 8.0)]
    assert rank_correlation(many, "kurtosis") == pytest.approx(0.8)
    assert rank_correlation(many, "outliers") is None
    assert rank_correlation(many[:3], "kurtosis") is None


REFUSED = [
    (["--quant", "nearst"], "--quant must be one of 'nearest'"),
    (["--quant", "nearest", "--bits", "1"], "--bits must be from 2 to 8, not 1"),
    (["--quant", "nsnquant", "--bits", "4"], "--quant nsnquant has 2 bits: give --bits 2 among others"),
    (["--quant", "nearest", "--federated"], "--quant and --federated exclude each other"),
    (["--bits", "4"], "--bits is of --quant: give --quant as well"),
]


@pytest.mark.parametrize(("typed", "message"), REFUSED, ids=[" ".join(typed) for typed, _ in REFUSED])
def test_what_cannot_be_put_into_few_bits_is_refused_before_anything_is_trained(typed, message, tmp_path, capsys):
    assert cli.main(["compare", "--out", str(tmp_path / "out"), *typed]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("method, needed", [("kivi", []), ("activations", []), ("nearest", ["torchao"])])
def test_weights_in_few_bits_alone_need_torchao(monkeypatch, method, needed):
    asked = []
    monkeypatch.setattr(few_bits, "require_package", asked.append)
    few_bits.require(Settings(quant=(method,)))
    assert asked == needed
