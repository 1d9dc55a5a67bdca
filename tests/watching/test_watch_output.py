"""What is read of the loss by the gradient of the output, and the rules about data, loss, start and optimizer."""

import copy
import math
import pickle
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import decoder, language, mlp, points, run_lines

import normkit as nk
from normkit.watching import load, onset
from normkit.watching.causes import by_cause
from normkit.watching.diagnosis import all_rules, diagnose
from normkit.watching.finding import Finding
from normkit.watching.history import History
from normkit.watching.signals import output
from normkit.watching.store import MEAN, Store


def run(model, make=None, *, steps=80, feed=None, loss=F.cross_entropy, after=None, **options):
    """Train by a plain loop that does not hand over its loss, and return the watch and the losses."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = (make or (lambda p: torch.optim.AdamW(p, lr=3e-3)))(trained)
    losses = []
    with nk.watch(model, optimizer, every=10, **options) as seen:
        for step in range(1, steps + 1):
            x, y = points(step)
            value = loss(model(x if feed is None else feed(step, x)), y)
            value.backward()
            if after:
                after(model)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(value.item())
    return seen, losses


def sgd(rate):
    return lambda parameters: torch.optim.SGD(parameters, lr=rate)


def series(seen, what):
    return seen.history().series("loss", what)


def test_the_loss_is_read_from_the_gradient_of_the_output():
    seen, losses = run(mlp())
    assert seen.history().steps[:3] == [1, 5, 10]
    assert series(seen, "loss") == pytest.approx([losses[step - 1] for step in seen.history().steps], rel=1e-4)
    assert series(seen, "loss_scale") == pytest.approx(1, rel=1e-4)
    assert series(seen, "rescaled") == pytest.approx(1, rel=1e-4)
    assert series(seen, "accuracy")[-1] > 0.8
    assert not seen.diagnosis()


def test_ignored_and_smoothed_targets_are_taken_into_account():
    model = decoder(norm="layernorm")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer) as seen:
        x, y = (part.clone() for part in language(0))
        y[:, :5] = -100
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
    assert series(seen, "cross_entropy")[0] == pytest.approx(loss.item(), rel=1e-4)
    assert series(seen, "loss_scale")[0] == pytest.approx(1, rel=1e-4)
    smooth, _ = run(mlp(), loss=lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1))
    assert not smooth.diagnosis()
    assert series(smooth, "cross_entropy")[0] == pytest.approx(0.69, abs=0.3)


@pytest.mark.parametrize("ignored", [0, 3])
def test_rows_that_are_sure_beyond_rounding_count_as_right(ignored):
    """Their slope is 0, or 0 at the target and tiny beside it; what is ignored has none either, and does not count."""
    model = nn.Linear(12, 12, bias=False)
    y = torch.arange(12)
    scores = torch.where(torch.eye(12) > 0, 30.0, torch.linspace(-150.0, 10.0, 12))  # some of exp underflow
    scores[:4] = torch.linspace(-2.0, 2.0, 12)
    scores[0, 11] = 60.0  # sure and wrong
    model.weight.data = scores.T.contiguous()
    y[12 - ignored :] = -100
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with nk.watch(model, optimizer) as seen:
        loss = F.cross_entropy(model(torch.eye(12)), y)
        loss.backward()
        optimizer.step()
    assert series(seen, "softmax_twice")[0] == 0
    assert series(seen, "loss_scale")[0] == pytest.approx(1, rel=1e-4)
    assert series(seen, "cross_entropy")[0] == pytest.approx(loss.item(), rel=1e-4)
    assert series(seen, "accuracy")[0] == pytest.approx((8 - ignored) / (12 - ignored), rel=1e-4)


@pytest.mark.parametrize("sure, ignored, counted", [(2, 1, 0), (3, 2, 0), (3, 1, 3), (2, 0, 2)])
def test_sure_rows_of_which_half_were_ignored_are_left_out_of_the_loss(sure, ignored, counted):
    """All of them count or none, as each looks like the others: more than half must have counted."""
    scores = torch.cat([torch.tensor([[1.0, 2.0, 0.5], [0.0, 1.0, 3.0], [2.0, 0.0, 1.0]]), torch.zeros(sure, 3)])
    scores[3:, 1] = 300.0
    y = torch.tensor([0, 1, 2, *[1] * sure])
    slope = (scores.softmax(1) - torch.eye(3)[y]) / (3 + sure - ignored)
    target = output._of(scores, slope, 3.0 + sure)
    assert target.live.tolist() == [True] * (3 + counted) + [False] * (sure - counted)


def test_another_loss_is_not_taken_for_one():
    seen, _ = run(mlp(), loss=lambda z, y: F.mse_loss(z, F.one_hot(y, 2).float()))
    assert seen.history().was_read("loss", "cross_entropy").sum() == 0
    assert not seen.diagnosis()


def batch_of(step, x, at=33, value=math.nan):
    if step == at:
        x = x.clone()
        x[3, 2] = value
    return x


def noise(z, y):
    return F.cross_entropy(z, torch.randint(2, y.shape))


def frozen(where):
    model = mlp(4)
    model[where].requires_grad_(False)
    return model


def scaled(factor):
    model = mlp(4)
    for p in model.parameters():
        p.data *= factor if p.dim() > 1 else 1
    return model


def log_of_zero(z, y):
    log_of_zero.calls += 1
    root = (z.sum() * (log_of_zero.calls != 47)).square().sqrt()
    return F.cross_entropy(z, y) + 1e-6 * root


ILL = {
    "double-softmax": lambda: run(mlp(), loss=lambda z, y: F.cross_entropy(z.softmax(-1), y)),
    "scaled-loss": lambda: run(mlp(), sgd(1e-4), loss=lambda z, y: 100 * F.cross_entropy(z, y)),
    "always-clipped": lambda: run(mlp(), sgd(0.1), after=lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1e-3)),
    "data-scale": lambda: run(mlp(), feed=lambda step, x: 50 + x),
    "data-not-finite": lambda: run(mlp(), feed=batch_of),
    "loss-not-finite": lambda: run(mlp(), loss=log_of_zero),
    "frozen-layers": lambda: run(frozen(2)),
    "initial-scale": lambda: run(scaled(20.0), sgd(1e-6)),
    "rate-too-low": lambda: run(mlp(), sgd(1e-4)),
    "labels-apart": lambda: run(mlp(), loss=noise, steps=160),
}


class Adapter(nn.Module):
    """A frozen layer with two low-rank matrices beside it, of which the second one begins at zero."""

    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def test_adapters_that_start_at_zero_do_not_count_as_weights_that_moved():
    """Their first step is as long as they are, however low the rate; and the frozen head's classes are the model's."""
    model = nn.Sequential(*mlp(outputs=5).requires_grad_(False))
    model[2], model[4] = Adapter(model[2]), Adapter(model[4])
    model[6].weight.data *= 0.1
    seen, _ = run(model, lambda p: torch.optim.AdamW(p, lr=1e-5), steps=120)
    diagnosis = seen.diagnosis()
    assert not diagnosis.of("labels-apart")
    [finding] = diagnosis.of("loss-stands")
    assert "equal probabilities of its 5 outputs give 1.61" in finding.evidence


def test_layers_that_all_have_adapters_are_frozen_on_purpose():
    model = nn.Sequential(nn.Embedding(16, 32), *mlp(8, 32, 32, 16)).requires_grad_(False)
    for at in range(1, 17, 2):
        model[at].weight.data.normal_(std=0.2)
        model[at] = Adapter(model[at])
    model[17].weight.data.normal_(std=0.2)
    seen, _ = run(model, feed=lambda step, x: (x[:, 0] > 0).long(), steps=10)
    assert len(seen.facts["frozen"]) < len(seen.facts["shapes"])
    assert not seen.diagnosis().of("frozen-layers")


def sure(factor, gain=1.0):
    """Train a model whose last matrix is drawn larger, and whose norms have a gain."""
    model = mlp(norm="layernorm", outputs=10)
    model[-1].weight.data *= factor
    for norm in (model[1], model[4], model[7]):
        nn.init.constant_(norm.weight, gain)
    return run(model, steps=20)


def test_a_last_matrix_that_is_drawn_too_large_is_named():
    seen, losses = sure(100.0)
    finding = seen.diagnosis()[0]
    assert finding.title == "the last matrix is drawn too large"
    assert finding.where == ("9.weight",)
    assert f"so the first loss is {losses[0]:.3g}, and equal probabilities of 10 classes give 2.3" in finding.evidence
    run_lines(finding, seen)


@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_of_deviation_one_are_named_where_they_are_the_last_matrix_too(tied):
    torch.manual_seed(0)
    hidden = [nn.Linear(64, 64), nn.Linear(64, 64), nn.LayerNorm(64)]
    model = nn.Sequential(nn.Embedding(20, 64), *hidden, nn.Linear(64, 20, bias=False))
    if tied:
        model[4].weight = model[0].weight
    seen, losses = run(model, feed=lambda step, x: (x[:, 0] > 0).long() + 18, steps=5)
    found = seen.diagnosis().of("initial-scale")
    assert [finding.where for finding in found] == [("0.weight",)] * tied
    assert (losses[0] > 3 * math.log(20)) is tied
    for finding in found:
        assert "0.weight multiplies the size of what it is fed by" in finding.evidence
        run_lines(finding, seen)


@pytest.mark.parametrize("factor, gain", [(3.0, 1.0), (100.0, 1.1)])
def test_a_first_loss_near_guessing_or_of_a_trained_model_is_no_start_too_large(factor, gain):
    """Whoever tunes a sure model on other labels begins at such a loss; its norms show that it was trained."""
    assert not sure(factor, gain)[0].diagnosis().of("initial-scale")


def masked(mask, steps=40, hand_over=True, rate=1e-3):
    """Train a decoder on texts of which a mask, by step, leaves out some targets."""
    model = decoder(depth=1, dim=16, norm="layernorm")
    model.embedding.weight.data *= 0.1
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    with nk.watch(model, optimizer, every=5) as seen:
        for step in range(1, steps + 1):
            x, y = language(step)
            y = torch.where(mask(step, y), y, -100)
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            if hand_over:
                seen.loss(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen


def nothing_at(*steps):
    return lambda step, y: torch.full(y.shape, step not in steps)


@pytest.mark.parametrize("hand_over", [True, False])
def test_a_mask_that_leaves_no_target_is_named_before_the_zeros_that_follow(hand_over):
    """The loss is NaN, and torch makes zeros of its gradient."""
    found = masked(nothing_at(*range(41)), hand_over=hand_over).diagnosis()
    assert [f.rule for f in found] == ["no-targets", *["loss-not-finite"] * hand_over, "no-gradient"]
    assert {f.cause for f in found[1:]} == {"no-targets"}
    assert "a step has 128 outputs, and at all 9 samples none gets a gradient other than zero" in found[0].evidence


def test_a_batch_without_targets_makes_a_loss_of_nan_and_no_divergence():
    found = masked(nothing_at(23, 24)).diagnosis()
    assert [f.rule for f in found] == ["loss-not-finite", "loss-diverges"]
    assert found[0].since == 25
    assert found[1].cause == "loss-not-finite"
    assert "by step 25 the data and what the model gives are finite, and the loss is not" in found[0].evidence


def at_guessing(outputs, counted, loss=2.8, accuracy=0.0, classes=16.0):
    """What is found where the weights move and the loss stays at the logarithm of 16 classes for a hundred steps."""
    numbers = {"cross_entropy": loss, "accuracy": accuracy, "classes": classes}
    numbers |= {"outputs": outputs, "counted": counted, "targets": counted}
    columns = [*(("loss", what) for what in numbers), ("w", "update")]
    store = Store()
    for step in range(5, 105, 5):
        store.add(step, columns, [MEAN] * len(columns), torch.tensor([*numbers.values(), 0.01]))
    facts = {"every": 5, "shapes": {"w": [16, 8]}, "groups": [{}], "group_of": {"w": 0}}
    return diagnose(History(store, facts), {"labels-apart": all_rules()["labels-apart"]})


def test_of_few_targets_nobody_knows_whether_labels_follow():
    """Of 20, none is right in a third of all cases where 5 % are learned."""
    assert [f.title for f in at_guessing(16.0, 16.0)] == ["labels do not follow from the inputs"]
    assert [bool(at_guessing(16.0, 16.0, loss)) for loss in (2.5, 5.4, 5.7)] == [False, True, False]  # ln 16 is 2.77
    assert [f.title for f in at_guessing(128.0, 1.0)] == ["the loss counts few of the outputs"]
    assert at_guessing(128.0, 1.0)[0].margin == pytest.approx(0.05 * 128)
    assert (
        "0.781% of the outputs get a gradient; after 100 steps the loss is 2.8, and"
        in at_guessing(128.0, 1.0)[0].evidence
    )
    open_question = "whether labels follow from the inputs: 20 targets in the samples, where 200 are needed"
    assert [at_guessing(outputs, 1.0).unknown for outputs in (1.0, 128.0)] == [(open_question,)] * 2
    assert not at_guessing(1.0, 1.0)


def test_of_two_classes_some_right_answers_speak_against_it_before_all_are_right():
    some = {
        classes: [at_guessing(16.0, 16.0, math.log(classes), right, classes) for right in (0.2, 0.6, 0.7)]
        for classes in (2.0, 16.0)
    }
    assert [[bool(found) for found in every] for every in some.values()] == [[True, True, False], [False] * 3]
    assert "or more than 65% that are right" in some[2.0][0][0].otherwise


def test_a_loss_of_the_last_word_alone_is_no_finding():
    last = lambda step, y: torch.arange(y.shape[1]).expand_as(y) == y.shape[1] - 1  # noqa: E731
    seen = masked(last, steps=80, rate=1e-2)
    assert series(seen, "counted").tolist() == [8] * len(seen.history().steps)
    assert series(seen, "outputs").tolist() == [128] * len(seen.history().steps)
    assert not seen.diagnosis()


@pytest.mark.parametrize("rule", ILL)
def test_the_illness_is_named_first(rule):
    log_of_zero.calls = 0
    torch.manual_seed(0)
    seen, _ = ILL[rule]()
    found = seen.diagnosis()
    assert found[0].rule == rule
    assert found[0].evidence.endswith(".")
    assert found[0].remedies
    run_lines(found[0], seen)


def test_the_step_of_the_first_nan_is_exact_between_two_samples(tmp_path):
    torch.manual_seed(0)
    log_of_zero.calls = 0
    for feed, loss, step in ((batch_of, F.cross_entropy, 33), (None, log_of_zero, 47)):
        seen, _ = run(mlp(), feed=feed, loss=loss, to=tmp_path / str(step))
        for one in (seen, load(tmp_path / str(step) / "watch.jsonl")):
            assert one.diagnosis()[0].since == step
            assert one.diagnosis().of("not-a-number")[0].cause == one.diagnosis()[0].rule


@pytest.mark.parametrize("at", [1, 2, 33])
def test_rules_judge_lost_trainings_without_a_warning(at):
    seen, _ = run(mlp(), feed=lambda step, x: batch_of(step, x, at=at), loss=noise)
    history = seen.history()
    history.table[:, history.store.columns["loss", "loss"]] = torch.linspace(1, 0.1, len(history.steps))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen.diagnosis()
        found = diagnose(history)
    assert found.notes == ()
    assert found.of("data-not-finite")


def test_nan_that_the_model_replaces_is_not_blamed():
    seen, _ = run(nn.Sequential(Imputed(), mlp()), feed=lambda step, x: batch_of(step, x, at=step), steps=20)
    assert not seen.diagnosis()


class Imputed(nn.Module):
    """Puts zeros where numbers are missing."""

    def forward(self, x):
        return x.nan_to_num()


def test_an_infinity_that_shows_only_in_weights_is_named():
    seen, _ = run(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), mlp()), feed=lambda *a: batch_of(*a, value=math.inf))
    assert seen.diagnosis()[0].rule == "data-not-finite"
    assert seen.diagnosis()[0].since == 33


@pytest.mark.parametrize("least", [-math.inf, torch.finfo(torch.float32).min])
def test_a_mask_beside_words_is_no_data(least):
    class Words(nn.Module):
        """Is called with words and a mask."""

        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)

        def forward(self, x, mask):
            return self.head(mask.softmax(-1) @ self.table(x))

    model = Words()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with nk.watch(model, optimizer, every=5) as seen:
        for step in range(10):
            x = torch.randint(16, (4, 8), generator=torch.Generator().manual_seed(step))
            F.cross_entropy(model(x, torch.full((8, 8), least).triu(1)).flatten(0, 1), x.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert not {"data-not-finite", "data-scale"} & {finding.rule for finding in seen.diagnosis()}


@pytest.mark.parametrize("least", [-math.inf, torch.finfo(torch.float32).min])
def test_scores_that_a_mask_hides_are_no_overflow(least):
    class Masked(nn.Linear):
        def forward(self, x):
            return super().forward(x).masked_fill(torch.arange(4) > 1, least)

    seen, _ = run(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), Masked(8, 4)), steps=20)
    assert not seen.diagnosis().of("not-a-number")
    assert seen.history().first_bad("output") == 0
    assert math.isfinite(seen.history().series("2", "rms")[-1])


def test_large_numbers_in_float64_are_finite():
    model = nn.Sequential(nn.Linear(8, 2, dtype=torch.float64), nn.LayerNorm(2, dtype=torch.float64))
    seen, _ = run(model, feed=lambda step, x: x.double() * 1e100, steps=10)
    assert seen.history().first_bad("data") == seen.history().first_bad("output") == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_input_without_a_sum_does_not_end_the_training():
    class Nested(nn.Linear):
        """Is fed sequences of several lengths."""

        def forward(self, x):
            return super().forward(torch.cat(x.unbind()))

    model = Nested(8, 2)
    seen, losses = run(model, feed=lambda step, x: torch.nested.nested_tensor([x[:9], x[9:]]), steps=7)
    assert len(losses) == 7
    assert any("could not be read" in note for note in seen.history().notes)


def test_a_loss_within_the_model_is_not_said_to_have_finite_outputs():
    class Own(nn.Module):
        """Gives its loss alone, of a value that is lost inside."""

        def __init__(self):
            super().__init__()
            self.inside, self.calls = mlp(), 0

        def forward(self, x):
            self.calls += 1
            z = self.inside(x)
            return (z / (self.calls != 7) - z / (self.calls != 7)).sum() + z.square().mean()

    seen, _ = run(Own(), loss=lambda z, y: z, steps=12)
    assert not seen.diagnosis().of("loss-not-finite")
    assert seen.history().first_bad("output") == 7


def test_nan_in_an_evaluation_is_not_the_trainings():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=5) as seen:
        for step in range(5):
            F.cross_entropy(model(points(step)[0]), points(step)[1]).backward()
            with torch.no_grad():
                model.eval()(points(step)[0] * math.nan)
            model.train()
            optimizer.step()
            optimizer.zero_grad()
    assert seen.history().first_bad("data") == seen.history().first_bad("output") == 0


def test_a_copy_of_a_watched_model_is_not_listened_to():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer) as seen:
        for step in range(2):
            F.cross_entropy(model(points(step)[0]), points(step)[1]).backward()
            optimizer.step()
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            twin(points(0)[0])
            [hook] = twin._forward_hooks.values()
            assert hook.act is None
        assert not seen.onset.calls


def test_no_more_sums_wait_than_so_many(monkeypatch):
    monkeypatch.setattr(onset, "WAITING", 9)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=10**9, start=10**8) as seen:
        for step in range(20):
            F.cross_entropy(model(points(step)[0]), points(step)[1]).backward()
            optimizer.step()
            assert len(seen.onset.kept) <= 9


def test_the_deviation_of_data_far_from_zero_is_exact():
    feed = lambda step, x: 1e4 + 0.5 * x  # noqa: E731
    seen, _ = run(mlp(), sgd(1e-9), feed=feed, steps=5)
    [finding] = seen.diagnosis().of("data-scale")
    exact = float(feed(1, points(1)[0].double()).std(correction=0))
    assert float(finding.remedies[0].line.rpartition(" / ")[2]) == pytest.approx(exact, rel=0.1)


def test_a_softmax_in_the_model_is_found_too():
    seen, _ = run(nn.Sequential(mlp(), nn.Softmax(-1)))
    assert seen.diagnosis()[0].rule == "double-softmax"


def test_micro_batches_whose_losses_are_not_divided_are_found():
    def steps(divided):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with nk.watch(model, optimizer, every=5) as seen:
            for step in range(20):
                for part in range(8):
                    x, y = points(8 * step + part)
                    (F.cross_entropy(model(x), y) / (8 if divided else 1)).backward()
                optimizer.step()
                optimizer.zero_grad()
        return seen

    assert series(steps(True), "loss_scale") == pytest.approx(1, rel=1e-4)
    assert series(steps(True), "rescaled") == pytest.approx(1, rel=1e-4)
    assert steps(False).diagnosis()[0].rule == "scaled-loss"


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_a_gradient_scaler_without_float16_is_neither_clipping_nor_a_scaled_loss(kind, bias, smoothing):
    if smoothing and not bias:
        pytest.skip("smoothed labels move the scale, and without a bias nothing tells that it was taken back")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2, bias=bias))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    with nk.watch(model, optimizer, every=5) as seen:
        for step in range(30):
            x, y = points(step)
            with torch.autocast("cpu", kind, enabled=kind is torch.bfloat16):
                loss = F.cross_entropy(model(x), y, label_smoothing=smoothing)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert series(seen, "loss_scale")[0] > 2**15
    assert not {"always-clipped", "scaled-loss"} & {finding.rule for finding in seen.diagnosis()}


@pytest.mark.parametrize("power", [16, 21])
def test_a_fused_step_takes_a_scaler_s_factor_back_by_itself(power):
    """With 2 ** 21 the first gradients overflow; torch calls the step all the same."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    scaler, skipped = torch.amp.GradScaler("cpu", init_scale=2.0**power), []
    with nk.watch(model, optimizer, every=1) as seen:
        for step in range(20):
            x, y = points(step)
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(x).float(), y)
            scaler.scale(loss).backward()
            old = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            skipped.append(scaler.get_scale() < old)
            optimizer.zero_grad()
    history = seen.history()
    assert any(skipped) == (power == 21)
    for what in ("gradient", "update"):
        assert (~history.was_read("0.weight", what)).tolist() == skipped
    assert history.read("0.weight", "gradient").max() < 10
    assert not seen.diagnosis()


def test_a_loss_summed_over_a_batch_of_a_power_of_two_is_clipped_all_the_same():
    clip = lambda m: nn.utils.clip_grad_norm_(m.parameters(), 5.0)  # noqa: E731
    seen, _ = run(mlp(), sgd(0.1), loss=lambda z, y: 256 * F.cross_entropy(z, y), after=clip, steps=40)
    assert seen.diagnosis().of("always-clipped")


@pytest.mark.parametrize("bias", [True, False])
def test_a_scaled_loss_is_said_to_reach_the_optimizer_only_where_that_was_read(bias):
    model = mlp()
    model[-1] = nn.Linear(32, 2, bias=bias)
    seen, _ = run(model, sgd(1e-4), loss=lambda z, y: 100 * F.cross_entropy(z, y), steps=10)
    [finding] = seen.diagnosis().of("scaled-loss")
    assert ("the optimizer's step" in finding.evidence) is bias


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_layers_that_are_trained_from_a_later_step_on_are_neither_frozen_nor_left_out(frozen, added, tmp_path):
    model = mlp()
    model[0].requires_grad_(not frozen)
    optimizer = torch.optim.AdamW(model[2:].parameters(), lr=1e-3)
    with nk.watch(model, optimizer, every=5, to=tmp_path) as seen:
        for step in range(30):
            if step == 12:
                model[0].requires_grad_(True)
                if added:
                    optimizer.add_param_group({"params": list(model[0].parameters())})
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    for one in (seen, load(tmp_path / "watch.jsonl")):
        assert one.history().steps == [1, 5, 10, 15, 20, 25, 30]
        rules = {finding.rule for finding in one.diagnosis()}
        assert {"frozen-layers", "left-out"} & rules == (set() if added else {"left-out"})
    assert seen.notes == []


def test_layers_that_are_frozen_in_the_course_of_a_training_are_meant():
    model = mlp(4)

    def feed(step, x):
        model[2].requires_grad_(step < 12)
        return x

    seen, _ = run(model, feed=feed, steps=30)
    assert not seen.diagnosis()
    assert seen.notes == []


def test_a_frozen_trunk_is_meant():
    model = mlp(5)
    for p in model[:8].parameters():
        p.requires_grad_(False)
        p.data += 0.1 * torch.randn_like(p) ** 3
    assert not run(model)[0].diagnosis().of("frozen-layers")


def test_a_frozen_recurrent_layer_is_found():
    model = nn.Sequential(nn.LSTM(8, 16), Last(), nn.Linear(16, 2))
    model[0].requires_grad_(False)
    found = run(model, steps=10)[0].diagnosis().of("frozen-layers")
    assert found[0].where == ("0.weight_ih_l0", "0.weight_hh_l0")


class Last(nn.Module):
    """Takes what a recurrent layer gives."""

    def forward(self, x):
        return x[0]


def test_an_eps_below_float16_is_found():
    model = mlp().half()
    make = lambda p: torch.optim.AdamW(p, lr=1e-3)  # noqa: E731
    seen, _ = run(model, make, feed=lambda step, x: x.half(), loss=lambda z, y: F.cross_entropy(z.float(), y), steps=20)
    assert seen.diagnosis()[0].rule == "eps-underflow"


@pytest.mark.parametrize("rows, ill", [(1000, True), (256, False)])
def test_rows_that_are_never_seen(rows, ill):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(rows, 16), nn.Flatten(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with nk.watch(model, optimizer, every=5) as seen:
        for _ in range(40):
            x = torch.randint(40, (32, 4))
            F.cross_entropy(model(x), x[:, 0] % 4).backward()
            optimizer.step()
            optimizer.zero_grad()
    found = seen.diagnosis().of("unseen-rows")
    assert bool(found) == ill
    if ill:
        assert "96% of the 1000 rows of 0.weight" in found[0].evidence
        assert found[0].margin == pytest.approx(0.96 / 0.3)


def test_scores_that_grow():
    model = decoder(norm="layernorm")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    names = [name for name, _ in model.named_parameters() if "query" in name or "key" in name or "qkv" in name]
    assert names
    with nk.watch(model, optimizer, every=5) as seen:
        for step in range(60):
            x, y = language(step)
            F.cross_entropy(model(x).flatten(0, -2), y.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
            for name in names:
                model.get_parameter(name).data *= 1.08
    assert {"score-growth", "entropy-collapse"} & {finding.rule for finding in seen.diagnosis()}


def on_digits(optimizer, steps=120):
    """Train a perceptron on digits, and return its diagnosis."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = optimizer(model.parameters())
    with nk.watch(model, optimizer, every=5) as seen:
        for _ in range(steps):
            rows = torch.randint(len(x), (32,))
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen.diagnosis()


def test_a_layer_that_is_never_called_hides_no_low_rate_and_is_no_reason_for_the_loss():
    model = mlp()
    model[0].unused = nn.Linear(3, 3)
    seen, _ = run(model, sgd(1e-4))
    low, unused = seen.diagnosis()
    assert [low.rule, unused.rule] == ["rate-too-low", "no-gradient"]
    stands = Finding("the loss does not fall", 1.0, (), "", rule="loss-stands", certainty="likely")
    assert [finding.cause for finding in by_cause([unused, stands])] == ["", ""]
    assert by_cause([replace(unused, slight=False), stands])[1].cause == "no-gradient"
    assert (unused.cause, unused.where) == ("", ("0.unused.weight", "0.unused.bias"))


def test_short_steps_after_long_ones_are_no_rate_that_is_too_low():
    rules = [finding.rule for finding in on_digits(lambda p: torch.optim.SGD(p, lr=10, momentum=0.9))]
    assert rules[0] == "rate-too-high"
    assert "rate-too-low" not in rules


def test_a_lower_rate_that_comes_too_late_says_to_begin_anew(monkeypatch):
    monkeypatch.setattr("normkit.watching.trials.SECONDS", math.inf)
    first = on_digits(lambda p: torch.optim.AdamW(p, lr=1.0))[0]
    assert first.rule == "rate-too-high"
    assert "begin anew, or from a checkpoint" in first.remedies[0].tried
