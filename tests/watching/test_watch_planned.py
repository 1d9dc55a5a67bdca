"""A watch of a planned model gives the numbers of the whole tensors, and of a pipeline's stage those of its modules."""

import numpy as np
import pytest
import torch
from torch import nn

import normkit as nk
from processes import mesh_of, over_processes

WHATS = ("gradient", "weight", "radial", "update")
TOKENS = torch.arange(12).view(2, 6) * 5 % 17


def watched(planned):
    from torch.distributed.tensor.parallel import parallelize_module

    torch.manual_seed(0)
    model = nk.Decoder(vocab=17, dim=16, depth=2, heads=4, norm="rmsnorm").double()
    if planned:
        mesh = mesh_of((2,))
        parallelize_module(model, mesh, nk.parallel_plan(model, mesh))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with nk.watch(model, optimizer, every=1) as seen:
        for _ in range(2):
            model(TOKENS).sin().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    history = seen.history()
    return {c: history.series(*c) for c in history.columns if c[1] in WHATS}, seen.notes


def test_a_planned_model_is_watched_as_a_whole_one(tmp_path):
    want, _ = watched(planned=False)
    assert len(want) > 30
    for found, notes in over_processes(watched, 2, tmp_path, True):
        assert notes == []
        assert list(found) == list(want)
        for column, series in want.items():
            np.testing.assert_allclose(found[column], series, rtol=1e-5, atol=1e-7, err_msg=str(column))


MICRO = 4  # microbatches of 3 samples


def parts():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(6, 8), nk.BatchNorm(8), nn.Tanh())
    return [
        p.double() for p in (first, nn.Sequential(nn.Linear(8, 8), nk.LayerNorm(8), nk.BatchNorm(8), nn.Linear(8, 2)))
    ]


def loss(y, target):
    return (y - target).square().mean()


def batch():
    chance = torch.Generator().manual_seed(1)
    return [torch.randn(12, size, generator=chance, dtype=torch.float64) for size in (6, 2)]


def staged(name, shapes):
    """A stage of two of a pipeline, trained and watched; ``shapes`` says whether torch is told them."""
    from torch.distributed import pipelining

    rank = torch.distributed.get_rank()
    part = parts()[rank]
    example = lambda size, learns: torch.empty(3, size, dtype=torch.float64, requires_grad=learns)  # noqa: E731
    known = {"input_args": example((6, 8)[rank], rank == 1), "output_args": example((8, 2)[rank], True)}
    stage = pipelining.PipelineStage(part, rank, 2, torch.device("cpu"), **(known if shapes else {}))
    schedule = getattr(pipelining, name)(stage, n_microbatches=MICRO, loss_fn=loss)
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    x, target = batch()
    with nk.watch(part, optimizer, every=1) as seen:
        for _ in range(2):
            schedule.step(x) if rank == 0 else schedule.step(target=target)
            optimizer.step()
            optimizer.zero_grad()
    history = seen.history()
    return part.state_dict(), {c: history.series(*c) for c in history.columns}, seen.notes


def alone():
    """Both stages on one process, which sees the same microbatches."""
    stages = parts()
    model = nn.Sequential(*stages)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with nk.watch(model, optimizer, every=1) as seen:
        for _ in range(2):
            for x, target in zip(*(whole.chunk(MICRO) for whole in batch()), strict=True):
                (loss(model(x), target) / MICRO).backward()
            optimizer.step()
            optimizer.zero_grad()
    history = seen.history()
    return [stage.state_dict() for stage in stages], {c: history.series(*c) for c in history.columns}


@pytest.mark.parametrize("name, shapes", [("ScheduleGPipe", True), ("Schedule1F1B", True), ("ScheduleGPipe", False)])
def test_stages_of_a_pipeline_have_the_statistics_of_their_microbatches(name, shapes, tmp_path):
    states, series = alone()
    for rank, (state, columns, notes) in enumerate(over_processes(staged, 2, tmp_path, name, shapes)):
        for key, value in states[rank].items():
            if not shapes and key in ("1.running_mean", "1.running_var") and rank == 0:
                assert not torch.allclose(state[key], value)  # torch calls the stage once more, to see its shapes
            elif not shapes and "running" in key:
                pass
            elif not shapes and "batches" in key:
                assert state[key] == value + 1
            else:
                torch.testing.assert_close(state[key], value, rtol=1e-12, atol=1e-12, msg=lambda m, k=key: f"{k}: {m}")
        if shapes:
            assert notes == []
            shared = {c: f"{rank}.{c[0]}" for c in columns if (f"{rank}.{c[0]}", c[1]) in series}
            assert len(shared) > 40
            for (module, what), own in shared.items():
                np.testing.assert_allclose(
                    columns[module, what], series[own, what], rtol=1e-5, atol=1e-7, err_msg=f"{own} {what}"
                )
