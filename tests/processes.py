"""Processes of one group, for tests of what is computed over several."""

import functools

import pytest
import torch

from normkit.contract.elsewhere import Elsewhere


def group_of(count, work):
    """A fixture of a file: processes that form a group, each of which calls ``work(*task)`` for what is asked."""

    @pytest.fixture(scope="module")
    def processes(tmp_path_factory):
        group = Elsewhere(work, tmp_path_factory.mktemp("processes"), count)
        yield group
        group.stop()

    return processes


@functools.cache
def mesh_of(shape, names=None):
    """The same one whenever it is asked for: each new one starts groups of its own, with threads of their own."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def laid(x, mesh, places):
    """A tensor that each process has whole, as a DTensor: none sends its part to another."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(x, mesh, places, src_data_rank=None)


def far(a, b):
    """The largest difference, relative to the largest number where that is above 1."""
    return ((a - b).abs().max() / b.abs().max().clamp(min=1)).item() if a.numel() else 0.0


def gap(got, want):
    """The largest difference between this process' part of a DTensor and that of a tensor that each has whole."""
    assert got.shape == want.shape
    if any(place.is_partial() for place in got.placements):
        off = got.full_tensor() - want
    else:
        off = got.to_local() - laid(want.detach(), got.device_mesh, got.placements).to_local()
    return off.abs().nan_to_num(torch.inf, posinf=torch.inf).max().item() if off.numel() else 0.0


def numbers(*shape, seed=0):
    """The same random numbers on each process."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def over_processes(work, count, folder, *task):
    """What ``work(*task)`` gives on each of several processes that form a group of torch.distributed.

    None of them leaves before all have answered: who leaves first may take another's last message with it.
    """
    group = Elsewhere(work, folder, count)
    try:
        return group.ask(*task)
    finally:
        group.stop()
