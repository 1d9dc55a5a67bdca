"""Processes that wait for work: starting them is paid for once, and one that dies fails the test that asked alone."""

import contextlib
import gc
import io
import traceback
from multiprocessing.connection import wait

import torch

# Forked from a process that has done nothing but import these: importing them again took each of them seconds.
FRESH = "forkserver" if "forkserver" in torch.multiprocessing.get_all_start_methods() else "spawn"
PRELOADED = ["pytest", "normkit.contract.subject", "torch.distributed.tensor", "torch._dynamo.backends.common"]
PATIENCE = 120  # seconds that one answer may take


class Elsewhere:
    """Fresh processes that all do ``work(*task)`` when asked; several of them form a group of torch.distributed."""

    def __init__(self, work, folder, count=1):
        self.work, self.folder, self.count = work, folder, count
        self.processes, self.pipes, self.starts = [], [], 0

    def start(self):
        context = torch.multiprocessing.get_context(FRESH)
        if FRESH == "forkserver":
            context.set_forkserver_preload(PRELOADED)
        threads = torch.get_num_threads() if self.count == 1 else 1  # those of several would wait for one another
        self.starts += 1
        for rank in range(self.count):
            near, far = context.Pipe()
            place = (rank, self.count, f"file://{self.folder}/meet{self.starts}") if self.count > 1 else None
            process = context.Process(target=serve, args=(self.work, far, place, threads), daemon=True)
            process.start()
            far.close()
            self.processes.append(process)
            self.pipes.append(near)

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()
        self.processes, self.pipes = [], []

    def ask(self, *task):
        """What each process gives; after a crash or a failure all are started anew for the next task."""
        if not self.processes:
            self.start()
        for pipe in self.pipes:
            pipe.send(task)
        got = {}
        while len(got) < self.count:
            ready = wait([pipe for pipe in self.pipes if pipe not in got], timeout=PATIENCE)
            for pipe in ready:
                got[pipe] = answer(pipe)
            failed = [message for message, done in got.values() if not done] if ready else ["no answer"]
            if failed:
                self.stop()
                raise AssertionError(f"in another process: {failed[0]}")
        return [got[pipe][0] for pipe in self.pipes]


def answer(pipe):
    try:
        return torch.load(io.BytesIO(pipe.recv_bytes()), weights_only=False)
    except EOFError:
        return "it crashed", False


def serve(work, pipe, place, threads):
    torch.set_num_threads(threads)
    gc.freeze()  # what was imported is not garbage, and need not be looked through when a task collects
    if place is not None:
        rank, count, meeting = place
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count)
    with contextlib.suppress(EOFError):  # whoever asks is gone
        while True:
            task = pipe.recv()
            try:
                result = work(*task), True
            except Exception:
                result = traceback.format_exc(), False
            file = io.BytesIO()
            torch.save(result, file)
            pipe.send_bytes(file.getvalue())
