"""The watch where other people keep their numbers: TensorBoard, Weights & Biases, Lightning."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from trainings import points

import normkit as nk
from normkit.optional import library
from normkit.watching.callbacks import lightning_callback, trainer_callback, watch_accelerated
from normkit.watching.sample import Row
from normkit.watching.store import LEAST, MEAN, MISSING
from normkit.watching.writers import TensorBoard, WandB, scalars

close = torch.testing.assert_close


def handed(writer):
    """Train three steps, and hand every sample to a writer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nk.watch(model, optimizer, every=1, to=writer) as seen:
        for step in range(3):
            x, y = points(step)
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert seen.notes == []
    return seen


def test_tensorboard_has_every_number(tmp_path):
    seen = handed(TensorBoard(tmp_path))
    library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(tmp_path))
    board.Reload()
    read = board.Scalars("rms/0")
    assert [event.step for event in read] == [1, 2, 3]
    torch.testing.assert_close([event.value for event in read], seen.history().series("0", "rms").tolist())
    [told] = board.Tensors("diagnosis/text_summary")
    assert seen.diagnosis().seen in told.tensor_proto.string_val[0].decode()


def test_wandb_has_every_number(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = library("wandb").init(mode="offline", dir=tmp_path)
    seen = handed(WandB(run))
    assert run.summary["watch/step"] == 3
    assert run.summary["watch/rms/0"] == seen.history().series("0", "rms")[-1]
    assert run.summary["watch/diagnosis"] == str(seen.diagnosis())
    run.finish()
    assert list(tmp_path.glob("wandb/offline-run-*"))


def test_what_was_not_read_is_no_number_of_a_board():
    row = Row()
    row.add([("0", "dead"), ("0", "rms"), ("0", "mean")], [LEAST, MEAN, MEAN], torch.tensor([MISSING, 2.0, math.nan]))
    assert str(dict(scalars(row, row.values()))) == "{'rms/0': 2.0, 'mean/0': nan}"


def test_of_several_processes_the_first_alone_writes(tmp_path):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for is_first in (True, False):
        state = SimpleNamespace(global_step=0, optimizers=[optimizer], is_global_zero=is_first)
        state.is_world_process_zero = state.is_main_process = is_first
        state.unwrap_model = lambda model: model
        for made in (trainer_callback(to=tmp_path), lightning_callback(to=tmp_path)):
            if hasattr(made, "on_train_start"):
                made.on_train_start(state, model)
            else:
                made.on_train_begin(None, state, None, model=model, optimizer=optimizer)
            made.seen.stop()
            assert len(made.seen.writers) == is_first
        assert len(watch_accelerated(state, model, optimizer, to=tmp_path).writers) == is_first


@pytest.mark.parametrize("scaled", [False, True])
def test_within_lightning(scaled):
    lightning = library("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(8, 2)

        def training_step(self, batch, place):
            if self.global_step == 5:
                raise RuntimeError("broken off")
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            losses.append(loss.item())
            return loss

        def on_before_optimizer_step(self, optimizer):
            slopes.append(self.net.weight.grad.norm().item())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    losses, slopes = [], []
    watching = lightning_callback(every=2)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    options = {"max_epochs": 9, "accumulate_grad_batches": 2, "accelerator": "cpu"}
    if scaled:
        scaler = torch.amp.GradScaler("cpu")
        options["plugins"] = [lightning.pytorch.plugins.MixedPrecision("16-mixed", "cpu", scaler)]
    trainer = lightning.Trainer(callbacks=[watching], **options, **quiet)
    data = torch.utils.data.TensorDataset(*points(0))
    with pytest.raises(RuntimeError, match="broken off"):
        trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=32))
    history = watching.seen.history()
    assert history.steps == [1, 2, 4]
    assert history.names("rms") == ["net"]
    close(history.series("net.weight", "gradient").tolist(), [slopes[step - 1] for step in (1, 2, 4)])
    means = [sum(losses[before:after]) / (after - before) for before, after in ((0, 2), (2, 4), (4, 8))]
    close(history.series("loss", "loss").tolist(), means)
    assert watching.seen.handles == [], "it ended with the training"
