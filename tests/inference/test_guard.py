"""The guard of what adapts at test time: its arithmetic, and what adapters do when it speaks."""

import copy
import io
import math
import warnings

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.kinds import Guard
from normkit.kinds.guard import DRIFT, GAIN, LIMIT, LOSS, MOST, SURER
from normkit.surgery.statistics.streaming import run_stream

ADAPTERS = ("tent", "eata", "sar", "cotta", "note", "rotta", "delta", "deyo")


def logits(*rows):
    """Logits of probabilities."""
    return torch.tensor(rows, dtype=torch.float64).log()


def classifier():
    """A network that is sure of which channel is high, unless a batch norm takes that away."""
    head = nn.Linear(4, 4)
    model = nn.Sequential(nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).double().eval()
    with torch.no_grad():
        head.weight.copy_(6 * torch.eye(4))
        head.bias.zero_()
    return model


def batches(count, size, seed=0):
    g = torch.Generator().manual_seed(seed)
    high = torch.randint(4, (count, size), generator=g)
    noise = torch.randn(count, size, 4, 8, 8, generator=g, dtype=torch.float64)
    return list(nn.functional.one_hot(high, 4)[..., None, None] * 3 + noise)


def silent(adapter, inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [adapter(x) for x in inputs]


def lost(loss, gain, surer=1.0, own=(1, 0), others=(1, 0)):
    """What a sample is expected to lose; ``own`` and ``others`` are a class's answers, and those given by both."""
    doubts = [(count + 1) ** 2 / (common + 0.5) for count, common in (own, others)]
    doubt = max(-MOST, min(MOST, math.log(doubts[0] / doubts[1])))
    return math.tanh((LOSS * loss - GAIN * gain - SURER * math.log(surer) + doubt) / 2)


def test_the_evidence_is_how_many_right_answers_are_expected_to_be_lost():
    guard = Guard("Mine", "stop")
    assert not guard.look(logits([0.8, 0.1, 0.1], [0.3, 0.6, 0.1]), logits([0.2, 0.5, 0.3], [0.1, 0.7, 0.2]))
    surer = (1 + 0.7) / (1 + 0.6)  # of the second sample both answer the same, class 1
    first = lost(0.8 - 0.1, 0.5 - 0.2, surer, own=(2, 1)) - 2 * DRIFT
    assert guard.evidence == pytest.approx(first)
    assert not guard.look(logits([0.5, 0.4, 0.1]), logits([0.01, 0.98, 0.01]))
    assert guard.evidence == 0  # the adapted model is the surer one
    sure, other = logits([0.98, 0.01, 0.01]), logits([0.3, 0.4, 0.3])
    each = [lost(0.97, 0.1, surer, own=(n, 1), others=(n, 0)) - DRIFT for n in range(3, 19)]
    needed = next(n for n in range(16) if sum(each[:n]) > LIMIT)
    with pytest.warns(UserWarning, match=f"Mine: the adaptation collapses at call {needed + 2}, it stops"):
        assert [guard.look(sure, other) for _ in range(needed)] == [False] * (needed - 1) + [True]
    assert [call for call, _ in guard.alarms] == [needed + 2]
    assert (guard.stopped, guard.evidence) == (True, 0)


def test_gains_are_measured_by_how_sure_the_adapted_model_is_where_both_agree():
    found, wanted = [], []
    for sure in (0.5, 0.99):
        guard = Guard("Mine", "stop")
        guard.look(logits(*[[0.6, 0.2, 0.2]] * 60), logits(*[[sure, (1 - sure) / 2, (1 - sure) / 2]] * 60))
        guard.look(logits([0.1, 0.7, 0.2]), logits([0.5, 0.2, 0.3]))
        found.append(guard.evidence)
        surer = (1 + 60 * sure) / (1 + 60 * 0.6)
        wanted.append(max(0.0, lost(0.6, 0.3, surer, own=(61, 60), others=(1, 0)) - DRIFT))
    assert found == pytest.approx(wanted)
    assert found[0] > found[1] > 0  # one that is less sure everywhere gains less


def answers(*classes, sure=0.6):
    """Logits of a model that is equally sure of each of these answers among four classes."""
    rows = torch.full((len(classes), 4), (1 - sure) / 3, dtype=torch.float64)
    rows[range(len(classes)), classes] = sure
    return rows.log()


def test_a_class_that_swallows_others_is_doubted_whichever_model_it_is_of():
    mixed, more = [0, 1, 2, 3] * 8, [0, 1, 2, 3, 0, 1, 2, 3] + [2] * 8
    adapted, source = Guard("Mine", "reset"), Guard("Mine", "reset")
    for guard in (adapted, source):
        assert not guard.look(answers(*mixed), answers(*mixed))
    assert not adapted.look(answers(*mixed[:16]), answers(*more))
    doubted = lost(0.4667, 0.4667, own=(18, 12), others=(12, 10))  # of 48, six that were of 0, 1 and 3 are 2
    assert adapted.evidence == pytest.approx(6 * doubted - 16 * DRIFT, abs=1e-3)
    assert adapted.excess == pytest.approx(6 / 48)
    assert not source.look(answers(*more), answers(*mixed[:16]))
    assert source.evidence == 0
    with pytest.warns(UserWarning, match="44% of the last 64 are class 2, 25% of the source's"):
        assert adapted.look(answers(*mixed[:16]), answers(*more))


def test_a_class_that_the_other_model_confirms_is_doubted_less():
    evidence = []
    for theirs in ([2] * 20, [2] * 10 + [0] * 10):  # of the source's answers, where the adapted model says 2
        guard = Guard("Mine", "reset")
        assert not guard.look(answers(*theirs, 0, 1, 3, sure=0.3), answers(*[2] * 20, 0, 1, 3, sure=0.3))
        guard.evidence = 0.0
        assert not guard.look(answers(1), answers(2))
        evidence.append(guard.evidence)
    wanted = [lost(0.4667, 0.4667, own=(21, both), others=(2, 1)) - DRIFT for both in (20, 10)]
    assert evidence == pytest.approx(wanted, abs=1e-3)
    assert evidence[0] < evidence[1]


def test_a_class_that_has_almost_all_answers_is_seen_however_sure_the_adapted_model_is():
    mixed, swallowed = [0, 1, 2, 3] * 8, [2] * 32
    guard = Guard("Mine", "reset")
    assert not guard.look(answers(*mixed, sure=0.4), answers(*mixed, sure=0.4))
    assert not guard.look(answers(*mixed, sure=0.4), answers(*swallowed, sure=0.99))
    assert guard.excess == pytest.approx(40 / 64 - 1 / 4)
    assert guard.evidence == 0
    with pytest.warns(UserWarning, match="75% of the last 96 are class 2, 25% of the source's"):
        assert guard.look(answers(*mixed, sure=0.4), answers(*swallowed, sure=0.99))


def test_answers_long_ago_are_forgotten():
    guard = Guard("Mine", "stop")
    for _ in range(9):
        assert not guard.look(answers(*[0, 1, 2, 3] * 8), answers(*[0, 1, 2, 3] * 8))
    assert len(guard.answers) == 192


def test_what_is_not_finite_is_not_looked_at():
    guard = Guard("Mine", "stop")
    assert not guard.look(logits([0.9, 0.1]), torch.full((1, 2), math.nan))
    assert (guard.evidence, guard.answers, guard.calls) == (0, [], 1)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_guard_that_is_silent_changes_no_number(name):
    plain, guarded = (nk.create(name, classifier(), guard=guard) for guard in ("off", "stop"))
    assert plain.guard is None
    guarded.guard.look = lambda source, logits: False
    for adapter in (plain, guarded):
        torch.manual_seed(0)
        adapter.out = silent(adapter, batches(4, 8))
    for a, b in zip(plain.out, guarded.out, strict=True):
        assert torch.equal(a, b)
    assert guarded(x=batches(1, 8)[0]).shape == guarded.out[0].shape
    assert not any("guard" in key or "reference" in key for key in plain.state_dict())


def collapsing(guard, count=16):
    """Tent on single samples, of which each is normalized by itself alone."""
    adapter, inputs = nk.Tent(classifier(), lr=0.05, guard=guard), batches(count, 1)
    return adapter, inputs, silent(adapter, inputs)


def test_a_collapse_stops_the_adapter_and_the_source_answers():
    adapter, inputs, got = collapsing("stop")
    [(call, why)] = adapter.guard.alarms
    assert 1 < call < 12
    assert "unsure" in why
    source = classifier()
    for x, y in list(zip(inputs, got, strict=True))[call - 1 :]:
        torch.testing.assert_close(y, source(x))
    _, _, plain = collapsing("off")
    for a, b in zip(got[: call - 1], plain, strict=False):
        assert torch.equal(a, b)
    before = [p.clone() for p in adapter.parameters()]
    silent(adapter, inputs)
    torch.testing.assert_close(adapter(x=inputs[0]), source(inputs[0]))
    assert all(torch.equal(p, old) for p, old in zip(adapter.parameters(), before, strict=True))
    adapter.reset()
    assert not adapter.guard.stopped
    assert torch.equal(adapter(inputs[0]), plain[0])


def test_a_collapse_resets_the_adapter_which_goes_on_from_its_first_numbers():
    adapter, inputs, got = collapsing("reset")
    calls = [call for call, _ in adapter.guard.alarms]
    assert len(calls) > 1
    torch.testing.assert_close(got[calls[0] - 1], classifier()(inputs[calls[0] - 1]))
    fresh = nk.Tent(classifier(), lr=0.05)
    for x, y in list(zip(inputs, got, strict=True))[calls[0] : calls[1] - 1]:
        assert torch.equal(fresh(x), y)


@pytest.mark.parametrize("guard", ["stop", "reset"])
def test_a_guarded_stream_that_is_saved_goes_on_to_the_same_bits(guard):
    whole, inputs, want = collapsing(guard)
    half, file = nk.Tent(classifier(), lr=0.05, guard=guard), io.BytesIO()
    silent(half, inputs[:5])
    torch.save(half.state_dict(), file)
    file.seek(0)
    resumed = nk.Tent(classifier(), lr=0.05, guard=guard)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for adapter in (resumed, copy.deepcopy(half)):
        assert all(torch.equal(a, b) for a, b in zip(silent(adapter, inputs[5:]), want[5:], strict=True))
        assert adapter.guard.alarms == whole.guard.alarms


@pytest.mark.parametrize("name", ADAPTERS)
def test_two_that_go_on_from_one_state_do_not_move_each_other(name):
    first, second = (nk.create(name, classifier(), guard="reset") for _ in range(2))
    inputs = batches(6, 8)
    silent(first, inputs[:3])
    second.load_state_dict(first.state_dict())
    outputs = []
    for adapter in (first, second):
        torch.manual_seed(0)
        outputs.append(silent(adapter, inputs[3:]))
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))


def test_a_state_of_before_answers_had_how_sure_both_are_goes_on():
    guard, other = Guard("Mine", "stop"), Guard("Mine", "stop")
    state = other.get_extra_state() | {"answers": [[0.0, 1.0, 0.5, 0.1]] * 40, "evidence": 0.3, "calls": 9}
    guard.set_extra_state(state)
    other.evidence = 0.3
    for one in (guard, other):
        assert not one.look(logits([0.8, 0.1, 0.1]), logits([0.2, 0.5, 0.3]))
    assert guard.evidence == other.evidence
    assert guard.answers == other.answers
    assert guard.calls == 10


def test_the_reference_stays_the_source_in_training_mode_too():
    adapter = nk.create("note", classifier(), guard="stop", capacity=4)
    adapter.train()
    before = copy.deepcopy(adapter.reference.state_dict())
    silent(adapter, batches(4, 4))
    for name, value in adapter.reference.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_adapter_of_single_samples_is_guarded_over_its_calls():
    adapter = nk.MEMO(classifier(), lr=0.0, prior_strength=0.0, guard="stop")
    adapter.model[3].bias.data[0] = 0.5  # so that it says 0 of samples that are normalized by themselves
    got = silent(adapter, [x[0] for x in batches(12, 1)])
    [(call, _)] = adapter.guard.alarms
    assert call == 6  # what it saw is not forgotten with each sample
    torch.testing.assert_close(got[-1], classifier()(batches(12, 1)[-1])[0])


def test_centroids_that_stray_are_stopped_and_the_trained_head_answers():
    torch.manual_seed(0)
    made = {guard: nk.T3A(4, 3, bias=False, guard=guard).double() for guard in ("off", "stop", "reset")}
    weight = 9 * torch.eye(3, 4, dtype=torch.float64)
    eye = torch.eye(3, 4, dtype=torch.float64)
    strays = torch.cat([eye[:1].expand(50, 4), 2 * eye[1:].repeat(12, 1)])
    strays[:, 3] = 30.0  # what all samples share outweighs what sets them apart
    strays[:50, 3] = 300.0
    for t3a in made.values():
        t3a.weight.copy_(weight)
    out = {name: silent(t3a, [strays, strays]) for name, t3a in made.items()}
    head = strays @ weight.T
    assert not torch.equal(out["off"][0].argmax(1), head.argmax(1))
    assert torch.equal(out["stop"][0], head)
    assert torch.equal(out["stop"][1], head)
    assert len(made["stop"].guard.alarms) == 1
    assert len(made["reset"].guard.alarms) == 2
    assert len(made["reset"].features) == 0


def test_a_batch_that_lame_makes_one_class_of_stays_as_it_was():
    p = torch.softmax(torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 1)
    near = torch.ones(40, 5, dtype=torch.float64)
    assert len(set(nk.lame(p, near).argmax(1).tolist())) == 1
    with pytest.warns(UserWarning, match="lame: the adaptation collapses"):
        assert torch.equal(nk.lame(p, near, guard="stop"), p)
    apart = nn.functional.one_hot(p.argmax(1)).double()
    assert torch.equal(nk.lame(p, apart, guard="reset"), nk.lame(p, apart))


def test_a_stream_tells_when_the_guard_spoke():
    model, inputs = classifier(), batches(12, 1)
    adapter = nk.adapt(model, method="tent:guard=stop", lr=0.05, inplace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stream = run_stream(model, adapter, inputs, "tent")
    [(call, why)] = adapter.guard.alarms
    assert stream.to_dict()["alarms"] == [call]
    assert f"the guard spoke at batch {call}: {why}" in str(stream)
    assert "alarms" not in run_stream(model, nk.adapt(model, method="tent", inplace=False), inputs, "tent").to_dict()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="Tent: guard must be one of 'off', 'stop', 'reset', not 'halt'"):
        nk.Tent(classifier(), guard="halt")
    vectors = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    with pytest.raises(ValueError, match=r"Tent: a batch of one sample has no statistics .* note, rotta"):
        nk.Tent(vectors)(torch.ones(1, 3))
    cut = [(torch.ones(4, 4, 8, 8).double(), torch.zeros(4)), (torch.ones(4, 4, 8, 8).double(), torch.zeros(3))]
    with pytest.raises(ValueError, match="adapt: batch 1 of data has 3 labels for 4 inputs"):
        run_stream(classifier(), nk.Tent(classifier()), cut, "tent")
