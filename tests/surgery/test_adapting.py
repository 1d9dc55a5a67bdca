"""`nk.adapt`: batch norms mix what they learned with the batch that they are shown."""

import copy

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import catalog
from normkit.cli import main
from normkit.kinds.adapter import Adapter
from normkit.optional import library
from normkit.surgery.statistics.streaming import Stream, run_stream


@pytest.fixture
def model():
    torch.manual_seed(0)
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.BatchNorm2d(4, eps=0.1, affine=False))
    for _ in range(3):
        made(torch.randn(8, 3, 6, 6) * 2 + 1)
    nn.init.normal_(made[1].weight)
    return made.double().eval()


def test_a_batch_norm_mixes_both_statistics(model):
    x = torch.randn(5, 3, 6, 6, dtype=torch.float64) * 3 - 1
    old, hidden = copy.deepcopy(model), model[0](x).detach()
    report = nk.adapt(model, weight=0.3, where="1")
    assert report.model is model
    assert [change.site for change in report] == ["1"]
    mean = 0.7 * old[1].running_mean + 0.3 * hidden.mean((0, 2, 3))
    var = 0.7 * old[1].running_var + 0.3 * hidden.var((0, 2, 3))
    want = nn.functional.batch_norm(hidden, mean, var, old[1].weight, old[1].bias)
    torch.testing.assert_close(model[:2](x), want)
    assert type(model[3]) is nn.BatchNorm2d
    assert isinstance(model[1].weight, nn.Parameter)


def test_a_weight_of_zero_changes_nothing_and_a_copy_is_a_copy(model):
    x = torch.randn(5, 3, 6, 6, dtype=torch.float64)
    wanted = model(x)
    changed = nk.adapt(model, weight=0.0, inplace=False).model
    torch.testing.assert_close(changed(x), wanted)
    assert [type(part).__name__ for part in changed] == ["Conv2d", "AlphaBatchNorm", "ReLU", "AlphaBatchNorm"]
    assert type(model[1]) is nn.BatchNorm2d
    before = copy.deepcopy(changed.state_dict())
    nk.adapt(model, weight=1.0, inplace=False).model(x + 5)
    torch.testing.assert_close(dict(changed.state_dict()), dict(before), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize(
    "options",
    [{"inplace": False}, {"method": "tent:guard=stop"}, {"method": "cotta"}, {"method": "rotta"}],
)
def test_a_weight_that_each_call_computes_anew_is_copied(model, options):
    nn.utils.weight_norm(model[0])
    x = torch.randn(8, 3, 6, 6, dtype=torch.float64)
    model(x)
    adapted = nk.adapt(nn.Sequential(*model[:3], nn.Flatten(), nn.Linear(64, 3).double()), **options)
    assert getattr(adapted, "model", adapted)(x).shape == (8, 3)


def test_an_activation_behind_a_norm_stays():
    timm = library("timm")
    model = nn.Sequential(nn.Conv2d(3, 8, 3), timm.layers.BatchNormAct2d(8)).eval()
    nk.adapt(model)
    assert model(torch.randn(2, 3, 8, 8)).min() == 0


@pytest.mark.parametrize(
    ("parts", "options", "said"),
    [
        ([nn.Linear(3, 3)], {}, "no batch norm with running statistics there"),
        ([nn.BatchNorm1d(3)], {"where": "nowhere"}, "no batch norm"),
        ([nn.BatchNorm1d(3)], {"weight": 1.5}, "weight must lie in"),
        ([nk.BatchNorm(3, channels_last=True)], {}, "adapt: 0 stays: a batch norm of tokens is not mixed"),
    ],
)
def test_what_cannot_be_done_is_refused(parts, options, said):
    with pytest.raises(ValueError, match=said):
        nk.adapt(nn.Sequential(*parts), **options)


@pytest.mark.parametrize("make", [nn.BatchNorm1d, nk.BatchNorm])
@pytest.mark.parametrize("trained", [True, False])
def test_a_norm_with_a_gain_and_no_shift_adapts_with_a_shift_of_zero(make, trained):
    model = nn.Sequential(make(3, bias=False)).double().requires_grad_(trained)
    nn.init.constant_(model[0].weight, 2)
    model(torch.randn(8, 3, dtype=torch.float64))
    x = torch.randn(8, 3, dtype=torch.float64)
    adapted = nk.adapt(model.eval(), weight=0.0, inplace=False).model
    torch.testing.assert_close(adapted(x), model(x))
    assert adapted[0].bias.eq(0).all()
    assert [p.requires_grad for p in adapted.parameters()] == [trained, trained]


@pytest.mark.parametrize("norm", [nn.SyncBatchNorm(4), nk.BatchNorm(4, sync=True)])
def test_one_that_joins_its_statistics_over_processes_joins_the_batch_at_hand_too(norm):
    model = nn.Sequential(copy.deepcopy(norm)).eval()
    nk.adapt(model)
    assert model[0].sync


def test_others_are_left_alone_with_the_reason():
    report = nk.adapt(nn.Sequential(nn.BatchNorm1d(4), nk.create("powernorm", 4)))
    assert [change.became is None for change in report] == [False, True]
    assert report[1].why_not


def stream(batches=4):
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 3, 6, 6, generator=g), torch.randint(2, (8,), generator=g)) for _ in range(batches)]


def classifier():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    return nn.Sequential(*layers).eval()


def test_a_method_learns_at_test_time_as_it_does_by_its_own_name():
    model = classifier()
    adapter = nk.adapt(model, method="tent", lr=0.05, inplace=False)
    twin = nk.Tent(classifier(), lr=0.05)
    for x, _ in stream():
        torch.testing.assert_close(adapter(x), twin(x), rtol=0, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), classifier().parameters(), strict=True))
    assert nk.adapt(model, method="sar").model is model


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "tnt"}, "adapt: method must be one of .*tent.*not 'tnt'"),
        ({"method": "tent", "where": "1"}, "tent has norms= for names of norms"),
        ({"method": "t3a", "where": "1"}, "t3a has no choice of norms"),
        ({"method": "tent", "weight": 0.1}, "weight is for batch norms that mix statistics; tent mixes none by it"),
        ({"method": "memo", "where": "1"}, "memo has no choice of norms"),
        ({"method": "t3a:support=3"}, "t3a takes no argument 'support'; did you mean 'supports'"),
        ({"method": "lame", "near": 3}, "lame takes no argument 'near'; it takes affinity, neighbours, symmetric"),
        ({"method": "memo", "near": 3}, "MEMO takes no argument 'near'"),
        ({"method": "lame", "guard": "halt"}, "lame: guard must be one of 'off', 'stop', 'reset', not 'halt'"),
        ({"lr": 0.1}, "lr is of a method, and none is named"),
    ],
)
def test_words_that_fit_no_method_are_named(options, words):
    model = classifier()
    with pytest.raises((TypeError, ValueError), match=words):
        nk.adapt(model, **options)
    assert type(model[1]) is nn.BatchNorm2d


def test_t3a_and_lame_answer_from_what_goes_into_the_last_linear():
    model = classifier()
    body, last = model[:-1], model[-1]
    t3a = nk.T3A(last.in_features, last.out_features, supports=2)
    t3a.weight.copy_(last.weight), t3a.bias.copy_(last.bias)
    adapter, near = (nk.adapt(model, method=name, inplace=False) for name in ("t3a:supports=2", "lame:affinity=knn"))
    assert "(model): Sequential(" in str(near)
    assert f"head={str(len(body))!r}" in str(near)
    for x, _ in stream():
        with torch.no_grad():
            p, z = model(x).softmax(1), body(x)
        torch.testing.assert_close(adapter(x), t3a(z) * last.weight.norm(dim=1).mean())
        torch.testing.assert_close(near(x), (nk.lame(p, z, affinity="knn") + 1e-10).log())
    assert all(torch.equal(a, b) for a, b in zip(adapter.model.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize("name", ["t3a:supports=3", "lame"])
def test_what_reads_features_is_reset_saved_and_not_spoiled_by_a_batch_with_nan(name):
    whole, inputs = nk.adapt(classifier(), method=name, guard="stop"), [x for x, _ in stream(6)]
    want = [whole(x) for x in inputs]
    half = nk.adapt(classifier(), method=name, guard="stop")
    for x in inputs[:3]:
        half(x)
    spoiled = torch.full_like(inputs[0], float("nan"))
    assert half(spoiled).isnan().all()
    resumed = nk.adapt(classifier(), method=name, guard="stop")
    resumed.load_state_dict(half.state_dict())
    for adapter in (half, resumed):
        for x, y in zip(inputs[3:], want[3:], strict=True):
            assert torch.equal(adapter(x), y)
        adapter.reset()
        assert torch.equal(adapter(inputs[0]), want[0])


@pytest.mark.parametrize("name", ["t3a", "lame"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_reads_features_answers_in_the_type_of_the_model(name, dtype):
    adapter = nk.adapt(classifier().to(dtype), method=name)
    plain = nk.adapt(classifier(), method=name)
    for x, _ in stream(2):
        got, want = adapter(x.to(dtype)), plain(x)
        assert got.dtype is dtype
        torch.testing.assert_close(got.float(), want, rtol=0.05, atol=0.05)


def test_a_head_that_does_not_make_the_answers_is_named():
    body = nn.Sequential(nn.Flatten(), nn.Linear(108, 4), nn.ReLU()).eval()
    x = torch.randn(8, 3, 6, 6)
    with pytest.raises(ValueError, match=r"t3a: the model does not return what its linear '1' returns; name .* head="):
        nk.adapt(body, method="t3a")(x)
    with pytest.raises(ValueError, match=r"lame: the model has no torch.nn.Linear that could be its head"):
        nk.adapt(nn.Sequential(nn.Flatten()), method="lame")
    with pytest.raises(ValueError, match="t3a: head must be one of '1', not '7'"):
        nk.adapt(body, method="t3a", head="7")
    two = nn.Sequential(nn.Flatten(), nn.Linear(108, 6), nn.ReLU(), nn.Linear(6, 4)).eval()
    torch.testing.assert_close(nk.adapt(two, method="lame", head="3")(x), nk.adapt(two, method="lame")(x))
    with pytest.raises(ValueError, match="does not return what its linear '1' returns"):
        nk.adapt(two, method="lame", head="1")(x)


@pytest.mark.parametrize("name", ["tent", "delta", "t3a:supports=3", "lame"])
def test_a_model_that_is_started_anew_begins_another_stream(name):
    adapter, (x, _) = nk.adapt(classifier(), method=name), next(iter(stream(1)))
    begun = copy.deepcopy(adapter.model.state_dict())
    want = [adapter(x), adapter(x)]
    adapter.reset_parameters()
    adapter.model.load_state_dict(begun)
    for y in want:
        torch.testing.assert_close(adapter(x), y)


@pytest.mark.parametrize("name", ["t3a", "lame"])
def test_errors_of_what_reads_features_begin_with_the_method(name):
    adapter = nk.adapt(nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1))).eval(), method=name)
    with pytest.raises(ValueError, match=rf"^{name}: model must return logits \(samples, classes\), not \(8, 3, 1\)"):
        adapter(torch.randn(8, 4))
    assert str(adapter).startswith(f"{name}(")
    with pytest.raises(NotImplementedError, match=f"^{name}: torch.jit.script cannot compile it"):
        torch.jit.script(adapter)


def test_a_method_whose_card_puts_it_around_a_model_is_an_adapter(monkeypatch):
    class Doubling(Adapter):
        def __init__(self, model, *, times=2.0):
            super().__init__(model, torch.optim.SGD)
            self.times = times

        def observe(self, x):
            return self.times * self.logits(self.model, x)

    monkeypatch.setattr(catalog, "_cards", dict(catalog._cards))
    nk.method("doubling-of-logits", around=Doubling)(lambda x: 2 * x)
    x, model = stream(1)[0][0], classifier()
    assert torch.equal(nk.adapt(model, method="doubling-of-logits")(x), 2 * model(x))
    assert torch.equal(nk.adapt(model, method="doubling-of-logits:times=3.0")(x), 3 * model(x))
    with pytest.raises(TypeError, match="doubling-of-logits takes no argument 'time'; did you mean 'times'"):
        nk.adapt(model, method="doubling-of-logits", time=3)
    with pytest.raises(ValueError, match=r"method must be one of .*'doubling-of-logits'.*not 'softmax'"):
        nk.adapt(model, method="softmax")


def test_memo_is_called_as_the_model_is_and_adapts_on_each_sample_alone():
    (x, _), *_ = stream(1)
    adapter, alone = nk.adapt(classifier(), method="memo"), nk.MEMO(classifier())
    del vars(alone)["batched"]  # as one that was pickled before there was such an argument
    torch.manual_seed(0)
    got = adapter(x)
    torch.manual_seed(0)
    assert torch.equal(got, torch.stack([alone(sample) for sample in x]))
    told = run_stream(classifier(), nk.adapt(classifier(), method="memo:guard=stop"), stream(2), "memo").to_dict()
    assert (told["samples"], told["batches"]) == (16, 2)
    with pytest.raises(ValueError, match="MEMO: views are of one sample, which batched=True does not take"):
        adapter(x, views=x.expand(1, 8, 8, 3, 6, 6)[:, 0])


def test_a_stream_tells_what_adapting_did_beside_the_model_as_it_was():
    model = classifier()
    adapter = nk.adapt(model, method="tent", lr=0.5, inplace=False)
    twin = nk.Tent(classifier(), lr=0.5)
    told = run_stream(model, adapter, stream(6), "tent").to_dict()
    before = [(model(x).argmax(-1), y) for x, y in stream(6)]
    after = [twin(x).argmax(-1) for x, _ in stream(6)]
    assert told["accuracy_before"] == sum(int((a == y).sum()) for a, y in before) / 48
    assert told["accuracy"] == sum(int((b == y).sum()) for b, (_, y) in zip(after, before, strict=True)) / 48
    late = sum(int((b == y).sum()) for b, (_, y) in zip(after[4:], before[4:], strict=True)) / 16
    assert (told["accuracy_late"], told["samples"], told["batches"]) == (late, 48, 6)
    assert told["changed"] == sum(int((b != a).sum()) for b, (a, _) in zip(after, before, strict=True)) / 48
    assert "accuracy" not in run_stream(model, adapter, [x for x, _ in stream(2)], "tent").to_dict()
    with pytest.raises(ValueError, match="batch 1 of data has no labels"):
        run_stream(model, adapter, [stream(1)[0], stream(1)[0][0]], "tent")
    with pytest.raises(ValueError, match="batch 1 of data has labels, unlike those before it"):
        run_stream(model, adapter, [stream(1)[0][0], stream(1)[0]], "tent")
    with pytest.raises(ValueError, match="data has no batch"):
        run_stream(model, adapter, [], "tent")


def test_outputs_that_are_not_finite_are_no_answers_whatever_the_labels_and_are_counted():
    (x, _), (other, _) = stream(2)
    x[:3] = torch.nan
    model = classifier()
    model[-1].bias.data[1] = -torch.inf  # a class that is masked: the other is an answer
    for label in (0, -1):  # argmax calls NaN class 0
        labels = torch.full((8,), label)
        told = run_stream(model, nk.adapt(model, method="t3a", inplace=False), [(x, labels), (other, labels)], "t3a")
        assert told.right_before == ([5, 8] if label == 0 else [0, 0])
        assert told.not_finite_before == [3, 0]
        assert told.right_after[0] <= 8 - told.not_finite[0] <= 5
        assert told.to_dict()["not_finite_before"] == 3
        assert str(told).count("not finite") == 1
    assert "not_finite" not in run_stream(model, nk.adapt(model, method="t3a"), [other], "t3a").to_dict()


def test_the_time_of_a_stream_is_reported_a_sample():
    assert Stream("tent", samples=[3, 5], changed=[0, 0], seconds=2.0).to_dict()["ms_a_sample"] == 250


def test_a_stream_that_breaks_off_keeps_what_was_seen_and_says_where():
    def torn(count):
        yield from stream(count)
        raise OSError("a torn file")

    adapter = nk.adapt(classifier(), method="tent", lr=0.5)
    told = run_stream(classifier(), adapter, torn(3), "tent")
    whole = run_stream(classifier(), nk.adapt(classifier(), method="tent", lr=0.5), stream(3), "tent")
    assert told.broken == "data ended with an error at batch 3: OSError: a torn file"
    assert told.broken in str(told)
    assert told.to_dict()["accuracy"] == whole.to_dict()["accuracy"]
    assert "broken" not in whole.to_dict()
    with pytest.raises(ValueError, match="adapt: data ended with an error at batch 0: OSError: a torn file"):
        run_stream(classifier(), adapter, torn(0), "tent")


def test_a_batch_that_model_or_method_cannot_take_is_named():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    batches = [torch.randn(8, 3), torch.randn(1, 3)]
    with pytest.raises(ValueError, match="adapt: batch 1 of data: Tent: a batch of one sample has no statistics"):
        run_stream(model, nk.adapt(model, method="tent", inplace=False), batches, "tent")
    odd = [torch.randn(8, 3), torch.randn(8, 4)]
    with pytest.raises(ValueError, match=r"adapt: batch 1 of data: .*running_mean should contain 4 elements"):
        run_stream(model, nk.adapt(model, method="tent", inplace=False), odd, "tent")
    note, images = nk.adapt(classifier(), method="note:capacity=4"), [torch.randn(n, 3, 6, 6) for n in (8, 1)]
    assert run_stream(classifier(), note, images, "note").samples == [8, 1]


def test_the_command_goes_over_a_stream(tmp_path, monkeypatch, capsys):
    (tmp_path / "shifted.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def net(): torch.manual_seed(0); return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))\n"
        "def batches(): return [(torch.randn(8, 3) + 2, torch.zeros(8, dtype=torch.long))] * 3\n"
        "def torn():\n    yield from batches()\n    raise OSError('a torn file')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["adapt", "shifted:net", "--method", "tent:lr=0.1", "--data", "shifted:batches"]) == 0
    assert "tent:lr=0.1 over 3 batches, 24 samples" in capsys.readouterr().out
    assert main(["adapt", "shifted:net", "--method", "tent", "--data", "shifted:torn"]) == 1
    assert "3 batches, 24 samples" in (told := capsys.readouterr().out)
    assert "data ended with an error at batch 3: OSError: a torn file" in told
    given = ["--data", "shifted:batches"]
    for more in ([], [*given, "--weight", "0.5"], [*given, "--check"], [*given, "--input", "8x3"]):
        assert main(["adapt", "shifted:net", "--method", "tent", *more]) == 2
        why = "--method goes over --data, and takes no -o, --check, --input, --where or --weight"
        assert why in capsys.readouterr().err
    assert main(["adapt", "shifted:net"]) == 0, "no input is needed"
    assert "alpha-batchnorm" in capsys.readouterr().out
