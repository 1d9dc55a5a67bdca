"""Shifted streams of a comparison: corruptions, orders, what adapters make of them, and what is refused."""

import copy
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import normkit as nk
from normkit import cli
from normkit.kinds import Guard
from normkit.lab.plan import corruptions, shift
from normkit.lab.plan.corruptions import BOX, IMAGES, MOVED, NOISE, RATES, TEXT, TINT
from normkit.lab.plan.settings import Settings
from normkit.lab.report import page
from normkit.lab.training import shifted

G = torch.Generator


def pictures(count=6, channels=2, side=8):
    return torch.randn(count, channels, side, side, generator=G().manual_seed(0))


def words(text="The quick brown fox jumps over the lazy dog again and again. "):
    return torch.tensor(list(text.encode())).repeat(6, 8)


def read(tokens):
    return bytes(tokens.tolist()).decode()


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("shape", [(5, 3, 12, 12), (5, 1, 40), (5, 2, 7, 9)])
def test_images_and_signals_are_further_off_with_every_severity(name, shape):
    x = torch.randn(shape, generator=G().manual_seed(1))
    for axis in range(2, x.dim()):
        x = x.cumsum(axis)  # as pictures are: neighbours are alike
    x = torch.cat([x] * 8)
    far = [float((IMAGES[name](x, s, G().manual_seed(2)) - x).square().mean()) for s in range(1, 6)]
    assert all(b > 0.95 * a for a, b in itertools.pairwise(far))
    assert far[0] > 0
    assert far[4] > 1.3 * far[0]
    again = IMAGES[name](x, 3, G().manual_seed(2))
    assert torch.equal(again, IMAGES[name](x, 3, G().manual_seed(2)))


@pytest.mark.parametrize("severity", range(1, 6))
def test_each_corruption_of_images_does_what_it_says(severity):
    x, at = pictures(400), severity - 1
    added = corruptions.noise(x, severity, G().manual_seed(0)) - x
    assert float(added.std()) == pytest.approx(NOISE[at] * float(x.std()), rel=0.02)
    tinted = corruptions.tint(x, severity, G()) - x
    torch.testing.assert_close(tinted[:, 0], torch.full_like(x[:, 0], TINT[at] * float(x.std())))
    torch.testing.assert_close(tinted[:, 1], -tinted[:, 0])
    low = corruptions.contrast(x, severity, G())
    torch.testing.assert_close(low.mean((1, 2, 3)), x.mean((1, 2, 3)))
    hidden = corruptions.occlusion(x, severity, G().manual_seed(0)) != x
    assert (hidden.sum((2, 3)) == max(1, round(8 * BOX[at])) ** 2).all()
    shown = corruptions.occlusion(x, severity, G().manual_seed(0))[hidden].view(400, -1)
    torch.testing.assert_close(shown, x.mean((1, 2, 3)).unsqueeze(1).expand_as(shown))


def test_of_a_small_image_one_pixel_is_hidden():
    x = pictures(side=2)
    assert ((corruptions.occlusion(x, 1, G().manual_seed(0)) != x).sum((2, 3)) == 1).all()


def test_blur_is_a_binomial_kernel_that_keeps_a_constant():
    dot = torch.zeros(1, 1, 9)
    dot[..., 4] = 16.0
    assert corruptions.blur(dot, 1, G()).flatten().tolist() == [0, 0, 0, 4, 8, 4, 0, 0, 0]
    assert corruptions.blur(dot, 2, G()).flatten().tolist() == [0, 0, 1, 4, 6, 4, 1, 0, 0]
    torch.testing.assert_close(corruptions.blur(torch.full((1, 1, 4, 4), 3.0), 5, G()), torch.full((1, 1, 4, 4), 3.0))


def test_a_translation_moves_a_sample_one_way_or_the_other_and_repeats_its_edge():
    x = torch.arange(8.0).view(1, 1, 8).expand(64, 1, 8)
    ways = {tuple(one.flatten().tolist()) for one in corruptions.translation(x, 3, G().manual_seed(0))}
    assert ways == {(2, 3, 4, 5, 6, 7, 7, 7), (0, 0, 0, 1, 2, 3, 4, 5)}  # ceil(3 * 8 / 16) = 2 steps


def test_jitter_shows_a_neighbours_value():
    x = torch.arange(400.0).view(1, 1, 400)
    steps = (corruptions.jitter(x, 2, G().manual_seed(0)) - x).abs().flatten()
    assert set(steps.tolist()) == {0.0, 1.0}
    assert float((steps > 0).float().mean()) == pytest.approx(MOVED[1] * 2 / 3, abs=0.05)
    grid = (10.0 * torch.arange(9).view(9, 1) + torch.arange(9)).view(1, 1, 9, 9)
    moved = corruptions.jitter(grid, 5, G().manual_seed(0)) - grid
    assert set(moved.flatten().tolist()) <= {a * 10.0 + b for a in (-1, 0, 1) for b in (-1, 0, 1)}


@pytest.mark.parametrize("name", TEXT)
def test_a_share_of_letters_is_changed_and_nothing_else(name):
    tokens = words()
    for severity, rate in enumerate(RATES, 1):
        other = TEXT[name](tokens, severity, G().manual_seed(severity))
        differs = other != tokens
        letters = torch.tensor([chr(t).isalpha() for t in tokens.flatten()]).view_as(tokens)
        assert not (differs & ~letters).any()
        share = float(differs.sum() / letters.sum())
        assert 0.4 * rate < share < 2 * rate
    assert torch.equal(TEXT[name](torch.full((2, 5), 46), 5, G()), torch.full((2, 5), 46))


def test_typos_exchange_neighbours_case_flips_it_and_keyboards_hit_the_next_key():
    tokens = words()
    swapped = corruptions.typos(tokens, 5, G().manual_seed(0))
    assert torch.equal(swapped.sort(1).values, tokens.sort(1).values)
    alphabet = torch.arange(ord("a"), ord("a") + 8).expand(40, 8)
    moved = corruptions.typos(alphabet, 5, G().manual_seed(0)) - alphabet
    assert moved.any()
    assert moved.abs().max() <= 1  # the last of a row has none behind it
    flipped = corruptions.case(tokens, 5, G().manual_seed(0))
    assert read(flipped[0]).lower() == read(tokens[0]).lower()
    hit = corruptions.keyboards(tokens, 5, G().manual_seed(0))
    pairs = {(chr(a), chr(b)) for a, b in zip(tokens.flatten().tolist(), hit.flatten().tolist(), strict=True) if a != b}
    rows = [*corruptions.ROWS, *(row.upper() for row in corruptions.ROWS)]
    assert pairs <= {pair for row in rows for a, b in itertools.pairwise(row) for pair in ((a, b), (b, a))}
    assert {("T", "R"), ("T", "Y"), ("p", "o")} <= pairs
    left = corruptions._neighbours(-1)
    assert [chr(left[ord(key)]) for key in "wqe"] == ["q", "w", "w"]


def digits_like(count=96):
    """Images whose class is which channel is high."""
    g = G().manual_seed(3)
    y = torch.arange(count) % 4
    return 2.0 * nn.functional.one_hot(y, 4)[..., None, None] + torch.randn(count, 4, 4, 4, generator=g), y


def batches(x, y, size=16):
    return list(zip(x.split(size), y.split(size), strict=True))


def found(x, y):
    return shift.Samples(x, y, IMAGES, y)


def test_streams_show_every_sample_once_for_each_corruption_in_their_order():
    x, y = digits_like()
    given = Settings(
        shift=("tint:severity=1", "contrast"), stream=("iid", "class:batch=5", "mixed", "recurring:batch=8")
    )
    made = list(shift.streams(found(x, y), given, 1))
    assert [(order, s.shift, len(s.batches)) for order, s in made] == [
        ("iid", "tint 1", 3),
        ("iid", "contrast 3", 3),
        ("class:batch=5", "tint 1", 20),
        ("class:batch=5", "contrast 3", 20),
        ("mixed", "tint 1 + contrast 3", 6),
        ("recurring:batch=8", "tint 1 + contrast 3", 24),
    ]
    tinted, low = IMAGES["tint"](x, 1, G()), IMAGES["contrast"](x, 3, G())
    shown = [torch.cat([b for b, _ in s.batches]) for _, s in made]
    for inputs, wanted in zip(shown, (tinted, low, tinted, low, None, None), strict=True):
        wanted = torch.cat([tinted, low]) if wanted is None else wanted
        assert sorted(inputs.sum((1, 2, 3)).tolist()) == pytest.approx(sorted(wanted.sum((1, 2, 3)).tolist()), abs=1e-3)
    by_class = torch.cat([labels for _, labels in made[2][1].batches])
    assert by_class.tolist() == sorted(y.tolist())
    back = [float(b.mean((1, 2, 3)).std()) for b, _ in made[5][1].batches]
    blocks = [max(back[at : at + 4]) < min(back[at + 4 : at + 8]) for at in (0, 8, 16)]
    assert len(set(blocks)) == 1  # tint, contrast, tint, contrast, ...
    means = [torch.cat([b for b, _ in made[5][1].batches[at : at + 4]])[:, 0].mean() for at in range(0, 24, 4)]
    assert all(means[at] > means[at + 1] for at in (0, 2, 4))


def test_all_is_every_corruption_that_fits_and_a_name_twice_counts_once():
    assert [name for name, _ in shift.corruptions_of(["all:severity=2"], IMAGES)] == list(IMAGES)
    assert shift.corruptions_of(["noise", "all"], TEXT | {"noise": corruptions.noise})[0] == ("noise", 3)
    assert shift.corruptions_of(["blur", "blur:severity=3"], IMAGES) == [("blur", 3)]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4))


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    x, y = digits_like()
    given = {"model": net, "data": batches(x, y), "val": batches(*digits_like(80)), "seeds": 2, "steps": 20, "lr": 0.05}
    given |= {"variants": [{"name": "batch", "norm": "original"}, {"name": "group", "norm": "groupnorm:num_groups=1"}]}
    given |= {"shift": ["tint:severity=5", "noise"], "stream": ["iid:batch=16", "class:batch=4"], "threads": 1}
    given |= {"adapt": ["tent:lr=0.01", "sar"], "engine": "here", "out": tmp_path_factory.mktemp("shift") / "out"}
    return nk.compare(**given)


def test_a_row_has_the_numbers_of_the_same_stream_by_hand():
    x, y = digits_like()
    model, given = net().eval(), Settings(shift=("tint:severity=5",), adapt=("tent:lr=0.01",), stream=("iid:batch=16",))

    class Task:
        data = type("Data", (), {"validation": staticmethod(lambda: batches(x, y))})()

    (row,) = shifted.run(model, Task, given, 3, torch.device("cpu"))
    ((_, stream),) = shift.streams(found(x, y), given, 3)
    adapter = nk.adapt(net().eval(), method="tent", lr=0.01)
    before = torch.cat([model(b).argmax(1) == t for b, t in stream.batches])
    logits = [adapter(b) for b, _ in stream.batches]
    after = torch.cat([out.argmax(1) == t for out, (_, t) in zip(logits, stream.batches, strict=True)])
    assert row["before"] == pytest.approx(float(before.float().mean()))
    assert row["after"] == pytest.approx(float(after.float().mean()))
    assert row["worst"] == pytest.approx(
        min(float(b.sum() - a.sum()) / 32 for a, b in zip(before.split(32), after.split(32), strict=True))
    )
    guard = Guard("x", "stop")
    with torch.no_grad():
        spoke = [guard.look(model(b), out) for (b, _), out in zip(stream.batches, logits, strict=True)]
    assert row["spoke"] == (16 * spoke.index(True) if any(spoke) else None)
    kept = sum(int((adapter_now(adapter, b).argmax(1) == t).sum()) for b, t in shift.clean(found(x, y), 3))
    assert row["clean"] == pytest.approx(kept / 96)
    assert row["guard_right"] is (row["spoke"] is None)


def adapter_now(adapter, batch):
    return copy.deepcopy(adapter)(batch)


LOST_AND_SPOKE = [
    (None, None, True),
    (None, 8, False),
    (40, None, False),
    (40, 39, True),
    (40, 40, True),
    (40, 41, False),
]


@pytest.mark.parametrize(("lost", "spoke", "right"), LOST_AND_SPOKE)
def test_the_guard_is_right_where_it_speaks_no_later_than_the_collapse(lost, spoke, right, monkeypatch):
    x, y = digits_like()
    monkeypatch.setattr(shifted, "collapse", lambda hits, own: lost)
    monkeypatch.setattr(shifted, "alarm", lambda logits, mine, batches: spoke)
    logits, labels, _ = shifted._answers(net().eval(), batches(x, y))
    row = shifted._adapt(net().eval(), "tent", batches(x, y), logits, labels, batches(x, y))
    assert (row["lost"], row["spoke"], row["guard_right"]) == (lost, spoke, right)


def test_clean_data_are_answered_by_the_adapter_as_the_stream_left_it():
    x, y = digits_like()
    adapter = nk.adapt(net().eval(), method="tent", lr=0.5)
    adapter(x)
    held = shifted._AsItIs(adapter)
    by_hand = [adapter_now(adapter, b) for b, _ in batches(x, y)]
    for _ in range(2):  # a batch that was answered changes no later answer
        assert all(torch.equal(held(b), out) for (b, _), out in zip(batches(x, y), by_hand, strict=True))
    other = copy.deepcopy(adapter)
    assert not all(torch.equal(other(b), out) for (b, _), out in zip(batches(x, y), by_hand, strict=True))


def test_a_row_has_the_accuracy_on_clean_data_without_learning_from_them():
    model, (x, y) = net(), digits_like()
    with torch.no_grad():
        model[4].weight.copy_(3 * torch.eye(4))
    order = y.argsort(stable=True)
    shown, clean = batches(x, y), batches(x[order], y[order])  # from one class at a time tent learns wrong answers
    logits, labels, _ = shifted._answers(model.eval(), shown)
    row = shifted._adapt(model, "tent:lr=0.5", shown, logits, labels, clean)
    moved = nk.adapt(model, method="tent", lr=0.5, inplace=False)
    for b, _ in shown:
        moved(b)
    kept = sum(int((adapter_now(moved, b).argmax(1) == t).sum()) for b, t in clean)
    assert row["clean"] == pytest.approx(kept / 96)
    assert kept != sum(int((moved(b).argmax(1) == t).sum()) for b, t in clean)


def test_the_table_has_the_mean_over_corruptions_and_an_interval_over_seeds(result):
    rows = {(one.variant, one.adapter, one.stream): one for one in result.adapted}
    assert set(rows) == set(
        itertools.product(("batch", "group"), ("tent:lr=0.01", "sar"), ("iid:batch=16", "class:batch=4"))
    )
    for name in ("batch", "group"):
        ends = [run.end["shift"] for run in result.comparison.final_runs(name)]
        of = [[r for r in end if (r["adapter"], r["stream"]) == ("sar", "class:batch=4")] for end in ends]
        one = rows[name, "sar", "class:batch=4"]
        assert one.shifts == ("tint 5", "noise 3")
        assert one.after.count == 2
        assert one.after.mean == pytest.approx(sum(r["after"] for end in of for r in end) / 4)
        assert one.gain.mean == pytest.approx(one.after.mean - one.before.mean)
        assert one.worst == min(r["worst"] for end in of for r in end)
        assert (one.right, one.of) == (sum(r["guard_right"] for end in of for r in end), 4)
        assert one.times > 1
    worst = rows["batch", "tent:lr=0.01", "class:batch=4"]
    assert worst.gain.mean < -0.2  # one class at a time, normalized by itself
    assert worst.guarded.mean > worst.after.mean
    assert rows["group", "tent:lr=0.01", "class:batch=4"].why.endswith("weight or bias of a batch norm")


def test_the_report_says_which_norm_is_safe_and_which_adapter_does_not_fit(result):
    text = str(result)
    assert "Adapting to shifted data: tint 5, noise 3" in text
    assert "Adapting is safest with group: at worst" in text
    assert "tent:lr=0.01 does not fit group: Tent: model has no parameter that this method trains" in text
    whole = page.page(result.comparison)
    assert "calibration" in whole
    assert "batch, tent:lr=0.01, class:batch=4" in whole


def test_a_comparison_that_goes_on_keeps_its_shift_and_refuses_another(result):
    root = result.folder
    plan = page.load(root).plan["settings"]
    assert plan["shift"] == ["tint:severity=5", "noise"]
    common = {"model": net, "data": batches(*digits_like()), "val": batches(*digits_like(80)), "out": root}
    with pytest.raises(ValueError, match=r"shift: \['tint:severity=5', 'noise'\] there, \['blur'\] here"):
        nk.compare(**common, shift=["blur"], engine="here")


def test_text_is_shifted_too_and_the_right_byte_is_the_one_that_was_meant(tmp_path):
    given = {"model": "decoder:dim=8,depth=1,heads=1", "length": 8, "batch": 2, "threads": 1, "steps": 2, "lr": 0.01}
    given |= {"norms": ["layernorm"], "seeds": 1, "shift": ["keyboards:severity=5"], "stream": ["mixed"]}
    done = nk.compare(**given, adapt=["sar", "tent"], engine="here", out=tmp_path / "out")
    (sar, tent) = done.adapted
    assert sar.of == 1
    assert math.isfinite(sar.after.mean)
    assert "batch norm" in tent.why
    task = shift.tasks.load(Settings(model="decoder:dim=8,depth=1,heads=1", length=8))
    there = shift.samples(task, Settings(shift=("typos",)))
    assert there.x.shape == (128, 8)
    assert torch.equal(there.x[:, 1:], there.y[:, :-1])
    assert torch.equal(there.x[1:, 0], there.y[:-1, -1])


REFUSED = [
    (["--shift", "fog"], "--shift must be one of 'noise', 'blur', 'contrast'"),
    (["--shift", "noise:severity=6"], "severity must be 1, 2, 3, 4 or 5, not 6"),
    (["--shift", "noise:sd=1"], "the only argument is severity, as in noise:severity=5"),
    (["--shift", "noise", "--stream", "sorted"], "--stream"),
    (["--shift", "noise", "--stream", "iid:batch=0"], "the only argument is batch, at least 1, as in iid:batch=8"),
    (["--shift", "noise", "--adapt", "tentt"], "tent"),
    (["--shift", "noise", "--adapt", "rmsnorm"], "--adapt"),
    (["--shift", "noise", "--federated"], "--shift and --federated exclude each other"),
    (["--adapt", "tent"], "--adapt is of --shift: give --shift as well"),
    (["--stream", "mixed"], "--stream is of --shift: give --shift as well"),
    (["--model", "decoder", "--shift", "noise"], "--shift"),
    (["--model", "decoder", "--shift", "case", "--stream", "class"], "samples of text have no classes"),
    (["--model", "spdnet", "--shift", "noise"], "needs images or signals (N, C, ...) with a class each"),
]


@pytest.mark.parametrize(("typed", "message"), REFUSED, ids=[" ".join(typed) for typed, _ in REFUSED])
def test_what_cannot_be_shifted_is_refused_before_anything_is_trained(typed, message, tmp_path, capsys):
    assert cli.main(["compare", "--out", str(tmp_path / "out"), *typed]) == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("*.jsonl"))


def test_a_model_of_two_inputs_is_refused_by_the_name_of_the_option():
    batch = [torch.zeros(2, 3, 4, 4), torch.zeros(2, 5)], torch.tensor([0, 1])
    task = SimpleNamespace(data=SimpleNamespace(validation=lambda: [batch]))
    with pytest.raises(ValueError, match=r"^--shift needs images or signals \(N, C, ...\) with a class each"):
        shift.samples(task, Settings(shift=("noise",)))


def test_calibration_is_zero_where_sureness_is_the_share_that_is_right():
    p = torch.tensor([[0.75, 0.25]] * 4, dtype=torch.float64)
    assert shifted.calibration_error(p.log(), torch.tensor([0, 0, 0, 1])) == pytest.approx(0)
    mixed = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]], dtype=torch.float64)
    assert shifted.calibration_error(mixed.log(), torch.tensor([0, 1, 1, 1])) == pytest.approx((0.4 + 0.4) / 2)


def test_the_least_sure_bin_stands_by_itself():
    p = torch.full((2, 40), 1.0, dtype=torch.float64)
    p[0, 0], p[1, 0] = 0.05, 0.1
    p[:, 1:] = (1 - p[:, :1]) / 39
    assert shifted.calibration_error(p.log(), torch.tensor([1, 0])) == pytest.approx((0.05 + 0.9) / 2)
