"""Processes of one group, for tests of what is computed over several."""

from normkit.contract.elsewhere import Elsewhere


def over_processes(work, count, folder, *task):
    """What ``work(*task)`` gives on each of several processes that form a group of torch.distributed.

    None of them leaves before all have answered: who leaves first may take another's last message with it.
    """
    group = Elsewhere(work, folder, count)
    try:
        return group.ask(*task)
    finally:
        group.stop()
