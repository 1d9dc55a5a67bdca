"""A look before a long training: planted faults are named, a healthy model has nothing to mend, and stays as it was."""

import copy
import json
import math

import pytest
import torch
from torch import nn
from trainings import mlp, points

from normkit import cli
from normkit.watching.checkup import checkup
from normkit.watching.inspecting import known_loss
from normkit.watching.watching import Watch


def batches():
    return [points(step) for step in range(4)]


def norms():
    return mlp(norm="layernorm")


def test_a_healthy_model_has_nothing_to_mend_and_stays_as_it_was():
    model = norms().eval()
    kept, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = checkup(model, batches())
    assert not found.mend
    assert str(found).endswith("Nothing to mend")
    assert found.losses[1] < 0.9 * found.losses[0]
    assert found.limit > 1e-3
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert not model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert "noise scale" in found.noise


def dead():
    model = norms()
    model[4].bias.data -= 90
    return model


def detached():
    model = norms()
    model[3].register_forward_hook(lambda module, x, y: y.detach())
    return model


def huge():
    model = mlp(4)
    for p in model.parameters():
        p.data *= 60 if p.dim() > 1 else 1
    return model


class Other(nn.Module):
    """Is another function in evaluation."""

    def forward(self, x):
        return x if self.training else -3 * x


FAULTS = {
    "dead-units": (dead, {}, "nn.LeakyReLU(0.1)"),
    "no-gradient": (detached, {}, ""),
    "initial-scale": (huge, {}, "nn.init.kaiming_normal_(p)"),
    "rate-range": (norms, {"rate": 3.0}, "lr="),
    "train-eval-gap": (lambda: nn.Sequential(mlp(), Other()), {}, "nk.recalibrate(model, batches)"),
    "half-overflow": (huge, {}, "dtype=torch.bfloat16"),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_named_with_what_would_help(rule):
    make, options, line = FAULTS[rule]
    ranked = {finding.rule: finding.remedies for finding in checkup(make(), batches(), **options).mend[:3]}
    assert [line in remedy.line for remedy in ranked[rule][:1]] == [True] * bool(line)


def test_the_parameters_without_a_gradient_are_named():
    found = checkup(detached(), batches())
    assert "0.weight" in found.without_gradient
    assert "9.weight" not in found.without_gradient


def numbers(shape):
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    return [(x, (3 * x[:, 0] + 100).view(shape))]


@pytest.mark.parametrize("shape", [(64, 1), (64,)])
def test_numbers_are_judged_by_their_squared_distance(shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    found = checkup(model, numbers(shape))
    assert found.losses[0] == pytest.approx(1e4, rel=0.05)
    assert not found.mend.of("rate-too-low"), "nobody planned the rate"
    slow = checkup(model, numbers(shape), rate=1e-7)
    assert [finding.rule for finding in slow.mend.of("rate-too-low")] == ["rate-too-low"]


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_batches_whose_losses_differ_are_no_rate_that_is_too_high(seed):
    torch.manual_seed(seed)
    model, truth = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)), torch.randn(8, 1)
    data = [(x := torch.randn(16, 8), x @ truth + 0.5 * torch.randn(16, 1)) for _ in range(32)]
    found = checkup(model, data, rate=1e-3)
    assert not found.mend
    assert 0.03 < found.limit < 1


def test_data_that_hold_nan_are_no_rate_that_is_too_high():
    ill = [points(0), points(1)]
    ill[1][0][0, 0] = math.nan
    found = checkup(norms(), ill)
    assert found.limit > 1e-3
    assert found.highest > 0  # the rates were tried, on the batch that has numbers
    assert found.mend[0].rule == "data-not-finite"
    bound = "rate that the loss does not bear"
    assert checkup(norms(), ill[1:]).to_dict()["numbers"][bound] == "none tried: the loss is not finite before a step"


def test_a_batch_that_the_model_does_not_take_is_named():
    message = r"checkup: Sequential fails on the batch \(TypeError: .*'image'\); the entries of a dictionary"
    with pytest.raises(ValueError, match=message):
        checkup(norms(), [{"image": points(0)[0]}])


@pytest.mark.parametrize("side", [8, 6])
def test_the_classes_of_an_images_points_stand_second(side):
    scores, classes = torch.randn(2, 8, side, side), torch.randint(8, (2, side, side))
    want = nn.functional.cross_entropy(scores, classes)
    torch.testing.assert_close(known_loss(scores, (None, classes))[1], want)


class Words(nn.Module):
    """Scores of 40 tokens, or their loss."""

    def __init__(self, own=False):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head, self.own = nn.Embedding(40, 16), nn.Linear(16, 40), own

    def forward(self, input_ids):
        scores = self.head(self.table(input_ids))
        return nn.functional.cross_entropy(scores.flatten(0, 1), input_ids.flatten()) if self.own else scores


@pytest.mark.parametrize("named", [False, True], ids=["a tensor", "by name"])
def test_tokens_alone_are_judged_by_the_next_one(named):
    tokens = torch.randint(40, (8, 16), generator=torch.Generator().manual_seed(0))
    found = checkup(Words(), [{"input_ids": tokens} if named else tokens])
    assert found.losses[0] == pytest.approx(math.log(40), rel=0.1)


def test_the_next_token_is_the_one_behind_and_features_are_no_scores():
    tokens = torch.randint(40, (8, 16), generator=torch.Generator().manual_seed(0))
    scores = torch.randn(8, 16, 40, generator=torch.Generator().manual_seed(1))
    want = -scores.log_softmax(-1)[:, :-1].gather(-1, tokens[:, 1:, None]).mean()
    torch.testing.assert_close(known_loss(scores, tokens)[1], want)
    tokens[0, 0] = 40
    assert known_loss(scores, tokens) is None


def test_a_single_number_is_the_loss_and_what_tells_of_none_is_refused():
    tokens = torch.randint(40, (8, 16), generator=torch.Generator().manual_seed(0))
    assert checkup(Words(own=True), [tokens]).losses[0] == pytest.approx(math.log(40), rel=0.1)
    with pytest.raises(ValueError, match="inputs and targets that fit what the model gives"):
        checkup(norms(), [points(0)[0]])
    square = lambda scores, batch: scores.square().mean()  # noqa: E731
    found = checkup(norms(), [points(0)[0]], loss=square)
    assert found.losses[1] < 1
    assert dict(found.rows())["loss"] == "yours"
    assert dict(checkup(norms(), batches()).rows())["loss"] == "cross entropy of classes"


def test_steps_and_rates_that_there_was_no_time_for_are_not_claimed():
    whole, short = (checkup(FAULTS["train-eval-gap"][0](), batches(), seconds=time) for time in (60.0, 1e-9))
    assert (whole.steps, short.steps) == (60, 1)
    assert short.highest == pytest.approx(1e-6)
    rows = dict(short.rows())
    assert rows["rate that the loss does not bear"] == "none up to 1e-06"
    assert any(name.startswith("loss of 1 step at") for name in rows)
    assert [f.evidence.endswith("after 60 steps.") for f in whole.mend.of("train-eval-gap")] == [True]
    assert all(f.evidence.endswith("after 1 step.") for f in short.mend.of("train-eval-gap"))


@pytest.mark.parametrize(
    "options, message",
    [({"batches": []}, "batches must hold at least one"), ({"rate": -1.0}, "rate must"), ({"seconds": 0}, "seconds")],
)
def test_what_it_cannot_take_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        checkup(norms(), **{"batches": batches(), **options})


@pytest.mark.parametrize(
    "loss, came",
    [
        (lambda scores, batch: nn.functional.cross_entropy(scores, batch[1], reduction="none"), r"shape \(64,\)"),
        (lambda scores, batch: scores.sum().detach(), "without a gradient"),
        (lambda scores, batch: 1.0, "a float"),
    ],
)
def test_a_loss_that_is_no_single_number_with_a_gradient_is_refused(loss, came):
    with pytest.raises(ValueError, match=f"checkup: loss must give a single number with a gradient, not .*{came}"):
        checkup(norms(), batches(), loss=loss)


def test_the_command_prints_it_and_tells_by_its_status(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doctored.py").write_text(
        "import torch\nfrom torch import nn\n"
        "x = torch.randn(64, 8)\ndata = [(x, (x[:, 0] > 0).long())]\n"
        "def well():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))\n"
        "def seeing():\n    torch.manual_seed(0)\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 10))\n"
        "def ill():\n    model = well()\n    model[1].bias.data -= 90\n    return model\n"
        "def nine(scores, batch):\n    return scores.sum() * 0 + 9\n"
    )
    assert cli.main(["doctor", "doctored:well", "--data", "doctored:data", "--loss", "doctored:nine", "--json"]) in (
        0,
        1,
    )
    assert json.loads(capsys.readouterr().out)["numbers"]["loss in training and evaluation"] == "9 and 9"
    assert cli.main(["doctor", "doctored:well", "--data", "doctored:data"]) == 0
    assert "Nothing to mend" in capsys.readouterr().out
    assert cli.main(["doctor", "doctored:ill", "--data", "doctored:data", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "dead-units"
    assert cli.main(["doctor", "doctored:seeing", "--data", "digits", "--json"]) in (0, 1)
    losses = [v for k, v in json.loads(capsys.readouterr().out)["numbers"].items() if k.startswith("loss of ")]
    assert float(losses[0].split(" to ")[0]) == pytest.approx(math.log(10), abs=0.4)
    assert cli.main(["doctor", "doctored:well", "--data", "numbers"]) == 2
    assert "built-in data or package.module:name" in capsys.readouterr().err
    assert cli.main(["doctor", "doctored:ill"]) == 2
    assert "--data" in capsys.readouterr().err
    assert cli.main(["doctor", "--rate", "3"]) == 2
    assert "--data, --loss and --rate are of a training: name its MODEL" in capsys.readouterr().err
    assert cli.main(["doctor", "doctored:well", "--data", "doctored:data", "--build"]) == 2
    assert "--build goes without a MODEL" in capsys.readouterr().err


def test_where_nothing_could_be_looked_at_it_is_said_and_why(capsys, tmp_path, monkeypatch):
    def broken(watch):
        raise RuntimeError("no room")

    monkeypatch.setattr(Watch, "_look_again", broken)
    report = checkup(norms(), batches())
    assert report.steps == 60
    assert report.losses[1] < 0.9 * report.losses[0]
    assert [name for name, _ in report.rows()] == [
        "loss",
        "rate that the loss does not bear",
        f"loss of 60 steps at {report.rate:g}",
        "loss in training and evaluation",
    ]
    assert "\n\nNothing was looked at\n\nNot seen: at step 1: RuntimeError: no room" in str(report)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blinded.py").write_text(
        "import torch\nx = torch.randn(64, 8)\ndata = [(x, (x[:, 0] > 0).long())]\n"
        "def make():\n    return torch.nn.Linear(8, 2)\n"
    )
    assert cli.main(["doctor", "blinded:make", "--data", "blinded:data"]) == 1
    assert "Nothing was looked at" in capsys.readouterr().out
