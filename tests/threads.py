"""Several processes of a group as threads of one, so that a test of what they tell each other starts none."""

import threading

import torch
from torch import distributed


def each_rank(count, task, *arguments):
    """What a task returns on each rank of a group of threads."""
    from torch.testing._internal.distributed import multi_threaded_pg as threaded

    results, errors, isolate = [None] * count, [], torch._C._distributed_c10d._set_thread_isolation_mode

    def work(rank):
        distributed.init_process_group("threaded", rank=rank, world_size=count, store=store)
        try:
            results[rank] = task(*arguments)
        except BaseException as error:
            errors.append(error)
            threaded.ProcessLocalGroup.exception_handle(error)  # wakes up those who wait for this rank
        finally:
            distributed.destroy_process_group()

    isolate(True)
    try:
        threaded._install_threaded_pg()
        store = distributed.HashStore()
        ranks = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(count)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(60)
    finally:
        threaded._uninstall_threaded_pg()
        threaded.ProcessLocalGroup.reset()
        isolate(False)
    if errors:
        raise errors[0]
    return results
