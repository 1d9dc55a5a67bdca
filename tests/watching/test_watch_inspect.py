"""A look at a model from outside of a training, and the watch inside of other people's trainers."""

import functools
import json
import re

import pytest
import torch
from torch import nn
from trainings import decoder, mlp, points

from normkit import cli
from normkit.optional import library
from normkit.watching import coordinate_check, curvature, inspect, landscape
from normkit.watching.callbacks import trainer_callback, watch_accelerated
from normkit.watching.checkup import checkup
from normkit.watching.inspecting import known_loss


def tiny():
    transformers = library("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=4, n_head=4, n_positions=32)
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


def test_a_model_is_left_as_it_was():
    model = nn.Sequential(mlp(norm="batchnorm"), nn.Dropout(0.5)).eval()
    model[0][0].weight.grad = torch.ones_like(model[0][0].weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    chance = torch.get_rng_state()
    found = inspect(model, [points(0), points(1)])
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert torch.equal(chance, torch.get_rng_state())
    assert torch.equal(model[0][0].weight.grad, torch.ones_like(model[0][0].weight))
    assert model[0][1].weight.grad is None
    assert not any(module.training for module in model.modules())
    assert found.history().steps == [1, 2]
    assert found.history().late("gradient")["0.0.weight"] > 0


@pytest.mark.parametrize("register", [torch.Tensor.register_post_accumulate_grad_hook, torch.Tensor.register_hook])
def test_an_optimizer_that_steps_in_the_backward_pass_rests_meanwhile(register):
    model, (x, y) = classifier(), points(0)
    steps = []

    def step(p):
        steps.append(p)
        p.data -= 1

    for p in model.parameters():
        register(p, lambda _, p=p: step(p))
    before = [p.detach().clone() for p in model.parameters()]
    found = inspect(model, [(x, y)])
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert not steps
    assert found.history().late("gradient")["0.weight"] > 0
    nn.functional.cross_entropy(model(x), y).backward()
    assert len(steps) == 4, "in the training it steps as before"


class Caching(nn.Module):
    """Counts its calls in a buffer that grows, and keeps what it works out once, as rotary angles are."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        if not hasattr(self, "scale"):
            self.register_buffer("scale", torch.ones(()), persistent=False)
        self.calls = torch.cat([self.calls, torch.ones(1)])
        return self.linear(x) * self.scale


def test_buffers_that_a_model_makes_or_replaces_as_it_is_called_are_as_before():
    model = Caching()
    calls, names = model.calls, dict(model.named_buffers()).keys()
    inspect(model, [torch.randn(3, 4), torch.randn(3, 4)])
    assert dict(model.named_buffers()).keys() == names
    assert model.calls is calls
    assert torch.equal(calls, torch.zeros(1))
    model(torch.randn(3, 4))
    assert list(model.state_dict()) == ["calls", "linear.weight", "linear.bias"]


def test_a_model_in_evaluation_is_looked_at_as_in_training():
    """Half of what comes out of the dropout is zero; a batch norm is fed by its own batch."""
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 2)).eval()
    modes = []
    model[1].register_forward_hook(lambda part, *_: modes.append(part.training))
    inspect(model, [points(0)])
    assert modes == [True]
    assert not model[1].training


def test_samples_of_one_token_are_not_called_alike():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    rows, tokens = (inspect(model, [torch.randn(shape)]).table()[0] for shape in ((6, 4), (2, 6, 4)))
    assert "cosine" in rows
    assert "alike" not in rows
    assert {"cosine", "alike"} <= set(tokens)


def test_a_table_of_blocks_and_what_is_wrong_with_them():
    model = decoder()
    model.layers[1].attention.query.weight.data *= 1000
    model.layers[1].attention.key.weight.data *= 1000
    found = inspect(model)
    titles, first, second = found.table()
    assert titles == ("block", "rms", "largest", "kurtosis", "dead", "cosine", "alike", "gradient", "entropy")
    assert (first[0], second[0]) == ("layers.0", "layers.1")
    assert float(second[-1]) < 0.05 < float(first[-1])
    assert "1. attention has collapsed" in str(found)
    assert "try: qk-norm" in str(found)


def test_batches_are_made_up_for_what_the_model_takes():
    assert "Nothing found" in str(inspect(tiny()))
    timm = library("timm")
    fresh = inspect(timm.create_model("test_resnet"), passes=1)
    assert "Nothing found in one sample" in str(fresh), "blocks that start as the identity are no illness"
    assert "Nothing found" in str(inspect(nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU())))
    with pytest.raises(ValueError, match="no batch can be made up"):
        inspect(nn.Sequential(nn.LayerNorm(3)))
    with pytest.raises(ValueError, match="must hold at least one batch"):
        inspect(mlp(), [])


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 2), nn.Linear(4, 2)

    def forward(self, x, y):
        return self.one(x) + self.two(y)


def test_for_a_model_of_two_inputs_the_way_to_feed_it_is_named():
    model = Two()
    with pytest.raises(ValueError, match=r"Two fails on random numbers .* name them: --data package.module:loader"):
        inspect(model)
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(ValueError, match=r"Two fails on the batch .*its forward does not take it"):
        inspect(model, [torch.ones(2, 3)])
    found = inspect(model, [{"x": torch.ones(2, 3), "y": torch.ones(2, 4)}])
    assert [row[0] for row in found.table()[1:]] == ["one", "two"]


def test_the_command(tmp_path, monkeypatch, capsys):
    (tmp_path / "inspected.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def model():\n    torch.manual_seed(0)\n    return nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))\n"
        "def data():\n    return [1e-6 * torch.randn(8, 4) for _ in range(3)]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["inspect", "inspected:model"]) == 0
    assert "Nothing found" in capsys.readouterr().out
    assert cli.main(["inspect", "inspected:model", "--data", "inspected:data", "--passes", "3", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["findings"][0]["rule"] == "eps-dominates"
    assert told["seen"].startswith("3 samples")
    assert cli.main(["inspect", "inspected:model", "--data", "inspected"]) == 2
    assert "data must be built-in data or package.module:name" in capsys.readouterr().err


def test_within_the_trainer_of_transformers(tmp_path):
    transformers = library("transformers")
    data = [
        {"input_ids": (x := torch.randint(64, (16,))), "labels": x.where(x < 8 * part, -100)} for part in range(1, 17)
    ]
    options = {"max_steps": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "report_to": []}
    options["logging_steps"] = 1
    arguments = transformers.TrainingArguments(tmp_path, use_cpu=True, save_strategy="no", disable_tqdm=True, **options)
    watching = trainer_callback(every=2)
    trainer = transformers.Trainer(tiny(), arguments, train_dataset=data, callbacks=[watching])
    trainer.train()
    history = watching.seen.history()
    assert history.steps == [1, 2, 4]
    losses = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert history.series("loss", "loss") == pytest.approx([losses[step] for step in history.steps], rel=1e-3)
    assert history.facts["blocks"] == [f"transformer.h.{i}" for i in range(4)]
    assert watching.seen.notes == []
    assert len(history.names("entropy")) == 4
    assert history.late("update")["transformer.wte.weight"] > 0


def test_a_training_of_transformers_that_was_broken_off_is_not_watched_in_the_next(tmp_path):
    transformers = library("transformers")
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watching = trainer_callback(every=1, to=tmp_path)
    watches = []
    for steps, ends in ((3, False), (2, True), (1, True)):
        state, control = transformers.TrainerState(), transformers.TrainerControl()
        watching.on_train_begin(None, state, control, model=model, optimizer=optimizer)
        watches.append(watching.seen)
        for step in range(steps):
            x, y = points(step)
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        if ends:  # else it is broken off without a word, as by ctrl-C
            watching.on_train_end(None, state, control)
    assert [watch.step for watch in watches] == [3, 2, 1]
    assert [watch.handles for watch in watches] == [watch.notes for watch in watches] == [[], [], []]
    lines = (tmp_path / "watch.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines if '"event": "end"' in line] == [3, 2, 1]


def test_with_accelerate(tmp_path):
    accelerate = library("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = mlp()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with watch_accelerated(accelerator, model, optimizer, every=2, to=tmp_path / "watch.jsonl") as seen:
        for step in range(4):
            x, y = points(step)
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
    assert seen.history().steps == [1, 2, 4]
    assert (tmp_path / "watch.jsonl").is_file()


def classifier():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


LOSSES = {
    "cross entropy of classes": points(0),
    "squared distance to the targets": (points(0)[0], torch.randn(64, 2)),
    "mean square of the outputs, as a batch has no targets": points(0)[0],
    "mean square of the outputs, as a batch has targets that do not fit the outputs": (points(0)[0], torch.randn(64)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_that_gradients_are_of_is_printed(name):
    assert str(inspect(classifier(), [LOSSES[name]])).splitlines()[1] == f"loss: {name}"


def test_each_loss_is_printed_once_and_a_model_s_own_is_called_so():
    lines = str(inspect(classifier(), [points(0), points(1), points(0)[0]], passes=3)).splitlines()
    assert lines[1] == "loss: cross entropy of classes; mean square of the outputs, as a batch has no targets"
    assert str(inspect(tiny())).splitlines()[1] == "loss: the model's own"


@pytest.mark.parametrize("shape", [(64,), (64, 1)])
@pytest.mark.parametrize("look", [inspect, checkup])
def test_classes_as_floats_are_refused(look, shape):
    x, y = points(0)
    message = (
        f"targets of shape {shape} are whole numbers below 2, the number of outputs, but torch.float32: "
        "hand in classes as integers, target.long(), or numbers in the shape of the outputs, (64, 2)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        look(classifier(), [(x, y.float().view(shape))])


@pytest.mark.parametrize("numbers", [[0.0, 2.0, 1.0], [0.0, 0.5, 1.0], [-1.0, 0.0, 1.0]])
def test_numbers_that_are_no_classes_of_so_many_outputs_are_not_taken_for_such(numbers):
    assert known_loss(torch.zeros(3, 2), (torch.ones(3, 4), torch.tensor(numbers))) is None


@pytest.mark.parametrize("look", [inspect, checkup])
@pytest.mark.parametrize(
    "outputs, targets, message",
    [
        (
            1,
            [0, 1],
            "targets of shape (2,) are integers, and classes need two outputs or more, not 1: hand in numbers as "
            "floats, target.float()",
        ),
        (3, [0, 3], "targets of shape (2,) must be classes from 0 to 2, or -100, not 3: the model has 3 outputs"),
        (3, [-1, 0], "targets of shape (2,) must be classes from 0 to 2, or -100, not -1: the model has 3 outputs"),
    ],
    ids=["one output", "too high", "negative"],
)
def test_integers_that_are_no_classes_of_so_many_outputs_are_refused(look, outputs, targets, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        look(nn.Linear(4, outputs), [(torch.ones(2, 4), torch.tensor(targets))])


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool])
def test_classes_are_integers_of_any_type(dtype):
    scores, classes = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    want = nn.functional.cross_entropy(scores, classes)
    assert known_loss(scores, (None, classes.to(dtype)))[1] == want


def test_classes_that_are_left_out_are_no_part_of_the_loss():
    scores = torch.randn(3, 2)
    want = nn.functional.cross_entropy(scores[:2], torch.tensor([0, 1]))
    assert known_loss(scores, (None, torch.tensor([0, 1, -100])))[1] == pytest.approx(want.item())


@pytest.mark.parametrize("target", [torch.tensor([0, 1, 1]), torch.ones(3, 2)], ids=["classes", "numbers"])
def test_targets_are_brought_to_where_the_outputs_are(target):
    assert known_loss(torch.zeros(3, 2, device="meta"), (None, target))[1].is_meta


def test_next_tokens_are_brought_to_where_the_outputs_are():
    assert known_loss(torch.zeros(2, 3, 4, device="meta"), torch.tensor([[0, 1, 3], [2, 2, 0]]))[1].is_meta


def test_integers_do_not_fit_outputs_without_an_axis_of_classes():
    assert known_loss(torch.zeros(3), (None, torch.tensor([0, 1, 1]))) is None
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    found = inspect(model, [(torch.ones(3, 4), torch.tensor([0, 1, 1]))])
    assert found.losses == ("mean square of the outputs, as a batch has targets that do not fit the outputs",)


class Detached(nn.Linear):
    def forward(self, x):
        return super().forward(x).detach()


@pytest.mark.parametrize(
    "model, why",
    [
        (nn.Linear(8, 2).requires_grad_(False), "no parameter requires one"),
        (Detached(8, 2), "its outputs are detached from its parameters"),
    ],
    ids=["frozen", "detached"],
)
def test_a_model_whose_loss_has_no_gradient_is_refused(model, why):
    with pytest.raises(ValueError, match=f"^inspect: the loss of {type(model).__name__} has no gradient: {why}$"):
        inspect(model, [points(0)])
    assert not model._forward_hooks


LOOKS = {
    "inspect": inspect,
    "checkup": functools.partial(checkup, seconds=1e-9),
    "curvature": functools.partial(curvature, top=1, draws=1, steps=2),
    "landscape": functools.partial(landscape, points=3),
    "coordinate_check": lambda model, batches: coordinate_check(lambda width: classifier(), [8, 16], batches=batches),
}


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("look", LOOKS)
def test_a_look_takes_gradients_wherever_it_is_called(look, around):
    want = str(LOOKS[look](classifier(), [points(0)]))
    model = classifier()
    with around():
        assert str(LOOKS[look](model, [points(0)])) == want


@pytest.mark.parametrize("look", ["inspect", "checkup", "curvature", "landscape"])
def test_a_table_with_sparse_gradients_is_looked_at_as_another(look):
    def table(sparse):
        torch.manual_seed(0)
        return nn.Sequential(nn.Embedding(50, 8, sparse=sparse), nn.Flatten(), nn.Linear(32, 2))

    x = torch.arange(20).view(5, 4)
    seen, want = (str(LOOKS[look](table(sparse), [(x, x[:, 0] % 2)])) for sparse in (True, False))
    assert seen == want


@pytest.mark.parametrize("look", [curvature, landscape])
def test_a_batch_that_the_model_does_not_take_is_named_by_each(look):
    message = rf"^{look.__name__}: Sequential fails on the batch \(RuntimeError: mat1 .*; its forward does not take it$"
    with pytest.raises(ValueError, match=message):
        look(classifier(), [(torch.ones(2, 9), torch.tensor([0, 1]))])
