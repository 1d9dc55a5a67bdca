"""On two processes a watch gives the numbers of the whole tensors, not of a process's part."""

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F

import normkit as nk
from processes import over_processes

STEPS = 3
WHATS = ("gradient", "weight", "radial", "update", "spectral", "stable_rank")


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 30), nn.Tanh(), nn.Linear(30, 30), nn.LayerNorm(30), nn.Linear(30, 2))


def watched(wrap=lambda model: model, mine=slice(None)):
    """The numbers of the parameters after some steps, by column."""
    model = wrap(made())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    chance = torch.Generator().manual_seed(1)
    with nk.watch(model, optimizer, every=1) as seen:
        for _ in range(STEPS):
            x = torch.randn(16, 8, generator=chance)
            F.cross_entropy(model(x[mine]), (x[:, 0] > 0).long()[mine]).backward()
            optimizer.step()
            optimizer.zero_grad()
    history = seen.history()
    found = {column: torch.tensor(history.series(*column)) for column in history.columns if column[1] in WHATS}
    return found, history.columns, seen.notes


def work(way):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    def sharded(model):
        for part in (model[0], model[2], model[4]):
            fully_shard(part)
        return fully_shard(model)

    wrap = sharded if way == "fsdp2" else DistributedDataParallel
    rank = distributed.get_rank()
    return watched(wrap, slice(8 * rank, 8 * rank + 8))


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_numbers_are_those_of_the_whole_tensors(tmp_path, way):
    ranks = over_processes(work, 2, tmp_path, way)
    whole, columns, _ = watched()
    for rank, (found, there, notes) in enumerate(ranks):
        assert notes == []
        assert sorted(there) == sorted(columns), "nothing is left out"
        assert list(found) == list(whole)
        for column, series in whole.items():
            torch.testing.assert_close(found[column], series, rtol=1e-3, atol=1e-5, msg=str((rank, column)))
