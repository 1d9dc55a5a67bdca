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
from normkit.kinds.guard import DRIFT, LIMIT, RATIO
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


def test_the_evidence_is_what_the_source_loses_beyond_what_the_adapted_model_gains():
    guard = Guard("Mine", "stop")
    assert not guard.look(logits([0.8, 0.1, 0.1], [0.3, 0.6, 0.1]), logits([0.2, 0.5, 0.3], [0.1, 0.7, 0.2]))
    surer = (1 + 0.7) / (1 + 0.6)  # of the second sample both answer the same
    first = (0.8 - 0.1) - RATIO * surer * (0.5 - 0.2) - 2 * DRIFT
    assert guard.evidence == pytest.approx(first)
    assert not guard.look(logits([0.5, 0.4, 0.1]), logits([0.01, 0.98, 0.01]))
    assert guard.evidence == 0  # the adapted model is the surer one
    sure, other = logits([0.98, 0.01, 0.01]), logits([0.3, 0.4, 0.3])
    each = 0.97 - RATIO * surer * 0.1 - DRIFT
    needed = math.floor(LIMIT / each) + 1
    with pytest.warns(UserWarning, match=f"Mine: the adaptation collapses at call {needed + 2}, it stops"):
        assert [guard.look(sure, other) for _ in range(needed)] == [False] * (needed - 1) + [True]
    assert [call for call, _ in guard.alarms] == [needed + 2]
    assert (guard.stopped, guard.evidence) == (True, 0)


def test_a_model_that_is_surer_of_everything_gains_no_more_by_it():
    found = []
    for sure in (0.9, 0.99):
        guard = Guard("Mine", "stop")
        guard.look(logits(*[[0.6, 0.2, 0.2]] * 60), logits(*[[sure, (1 - sure) / 2, (1 - sure) / 2]] * 60))
        guard.look(logits([0.2, 0.6, 0.2]), logits([0.6, 0.2, 0.2]))
        found.append(guard.evidence)
    expected = [max(0.0, 0.4 - RATIO * (1 + 60 * sure) / (1 + 60 * 0.6) * 0.4 - DRIFT) for sure in (0.9, 0.99)]
    assert found == pytest.approx(expected)
    guard.look(logits([0.1, 0.8, 0.1]), logits([0.4, 0.35, 0.25]))
    assert guard.evidence == pytest.approx(0.7 - RATIO * (1 + 60 * 0.99) / (1 + 60 * 0.6) * 0.05 - DRIFT)


def swallowing(source, mine, rows, surer):
    """Whether a guard speaks of 32 answers, behind as many that agree, some of which an adapted model calls class 2."""
    guard = Guard("Mine", "reset")
    assert not guard.look(source, source)
    mine[rows] = torch.tensor([0.0, 0.0, surer / 100, 0.0], dtype=mine.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return guard.look(source, mine), guard


@pytest.mark.parametrize(
    ("rows", "surer", "speaks"),
    [
        (range(0, 4), 0.5, False),  # three answers more than the source's, of 64
        (range(0, 12), 0.5, True),  # nine more, which are above 0.12 of 64
        (range(0, 12), 2.0, False),  # the adapted model is the surer one
        (range(0, 32), 2.0, False),  # 24 more are not above 0.4
    ],
)
def test_a_class_that_swallows_the_others_is_seen_though_nothing_is_sure(rows, surer, speaks):
    source = torch.eye(4, dtype=torch.float64).repeat(8, 1) / 100  # 32 answers, 8 of each class
    spoke, guard = swallowing(source, source.clone(), list(rows), surer)
    assert spoke is speaks
    if spoke:
        [(call, why)] = guard.alarms
        assert call == 2
        assert "39% of the last 64 are class 2, 25% of the source's" in why
    else:
        more = sum(row % 4 != 2 for row in rows)
        assert guard.excess == pytest.approx(more / 64)
    assert not guard.stopped


def test_a_class_that_has_almost_all_answers_is_seen_though_the_adapted_model_is_surer():
    source = torch.eye(4, dtype=torch.float64).repeat(8, 1) / 100
    guard = Guard("Mine", "reset")
    assert not guard.look(source, source)
    swallowed = 2 * source[2:3].expand(32, 4)
    assert not guard.look(source, swallowed)
    assert guard.excess == pytest.approx(40 / 64 - 1 / 4)
    with pytest.warns(UserWarning, match="75% of the last 96 are class 2, 25% of the source's"):
        assert guard.look(source, swallowed)


def test_half_of_what_differs_in_one_class_is_a_collapse_where_the_source_is_the_surer():
    source = torch.eye(4, dtype=torch.float64).repeat(48, 1) / 100  # 192 answers
    spoke = []
    for others in (8, 16):  # classes 0 and 1 go to each other, besides 14 of 0 that become 2
        guard, mine = Guard("Mine", "reset"), source.clone()
        mine[: 4 * 14 : 4] = source[2] / 2
        mine[56 : 56 + 2 * others : 4] = source[1] / 2
        mine[57 : 57 + 2 * others : 4] = source[0] / 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spoke.append(guard.look(source, mine))
    assert spoke == [True, False]  # 14 of 22 and 14 of 30, both below 0.12 of 192


def test_answers_long_ago_are_forgotten():
    source = torch.eye(4, dtype=torch.float64).repeat(8, 1) / 100
    guard = Guard("Mine", "stop")
    for _ in range(9):
        assert not guard.look(source, source)
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
    assert not any("guard" in key or "reference" in key for key in plain.state_dict())


def collapsing(guard, count=12):
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
    assert call == 3  # what it saw is not forgotten with each sample
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
