"""Processes of one group: who has answered waits for the others, and a failure of one is the test's."""

import os
import time

import pytest
import torch

from processes import over_processes


def ranks(answer):
    return answer(torch.distributed.get_rank())


def last_sees_first(rank):
    """Whether the first, who has answered, is still alive when the last answers."""
    pids = [None, None]
    torch.distributed.all_gather_object(pids, os.getpid())
    if rank == 0:
        return True
    time.sleep(0.5)
    try:
        os.kill(pids[0], 0)
    except ProcessLookupError:
        return False
    return True


def one_fails(rank):
    if rank == 1:
        raise ValueError("of the second alone")
    torch.distributed.barrier()


def one_dies(rank):
    if rank == 1:
        os._exit(3)
    torch.distributed.barrier()


def test_none_leaves_before_all_have_answered(tmp_path):
    assert over_processes(ranks, 2, tmp_path, last_sees_first) == [True, True]


@pytest.mark.parametrize("answer, words", [(one_fails, "ValueError: of the second alone"), (one_dies, "it crashed")])
def test_a_failure_of_one_process_is_the_tests(tmp_path, answer, words):
    with pytest.raises(AssertionError, match=words):
        over_processes(ranks, 2, tmp_path, answer)
