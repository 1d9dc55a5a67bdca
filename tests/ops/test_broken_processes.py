"""A process that dies, or does not come, ends what the others wait for with an error within the group's timeout."""

import datetime
import os
import re
import time

import pytest
import torch

import normkit as nk
from normkit import statistics
from normkit.contract.elsewhere import FRESH, PRELOADED

TIMEOUT = 1  # seconds of the group, once both have come
PATIENCE = 90  # seconds that the test waits: what hangs longer than the group's timeout is seen


def process(rank, folder, how):
    """The first process writes down the errors of a norm and of an optimizer; the second one leaves."""
    import torch._dynamo  # collectives import it; the clock of the group should not run meanwhile
    from torch import distributed

    statistics._Sizes.patience /= 10  # which would be most of the test, and is much less than the test's own
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    distributed.barrier()
    distributed.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=TIMEOUT))
    if rank == 1:
        time.sleep(0 if how == "dies" else PATIENCE)
        os._exit(3)
    errors = []
    parameters = [torch.nn.Parameter(torch.randn(3, 3)) for _ in range(2)]
    for p in parameters:
        p.grad = torch.randn(3, 3)
    for work in (lambda: nk.BatchNorm(3, sync=True)(torch.randn(4, 3)), nk.Muon(parameters, sync=True).step):
        try:
            work()
        except RuntimeError as error:
            errors.append(str(error))
    torch.save(errors, f"{folder}/errors")
    os._exit(0)


@pytest.mark.parametrize("how, words", [("dies", "Connection (closed|reset) by peer"), ("does not come", "Timed out")])
def test_an_error_names_what_happened_within_the_timeout(how, words, tmp_path):
    context = torch.multiprocessing.get_context(FRESH)
    if FRESH == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    both = [context.Process(target=process, args=(rank, str(tmp_path), how), daemon=True) for rank in range(2)]
    for each in both:
        each.start()
    both[0].join(PATIENCE)
    both[1].kill()
    assert both[0].exitcode == 0
    assert statistics._Sizes.patience.total_seconds() < PATIENCE - TIMEOUT  # of which a tenth was waited here
    norm, optimizer = torch.load(tmp_path / "errors")
    assert re.search(words, norm), norm
    assert re.search(f"closed|closure|reset|{words}", optimizer), optimizer


def unequal(rank, folder):
    """What a process says to norms whose channels are not as many on all; each writes it down."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    errors = []
    for norm, channels in ((True, 3), (True, 5 + rank), (False, 7 + rank)):
        try:
            if norm:
                nk.BatchNorm(channels, sync=True)(torch.randn(4, channels))
            parameter = torch.nn.Parameter(torch.randn(2, channels))
            parameter.grad = torch.randn(2, channels)
            nk.Muon([parameter], sync=True).step()
        except ValueError as error:
            errors.append(str(error))
    torch.save(errors, f"{folder}/errors{rank}")
    os._exit(0)


def test_unequal_features_are_named_and_abort_nothing(tmp_path):
    context = torch.multiprocessing.get_context(FRESH)
    both = [context.Process(target=unequal, args=(rank, str(tmp_path)), daemon=True) for rank in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(PATIENCE)
        assert each.exitcode == 0
    for rank in range(2):
        of_norm, of_optimizer = torch.load(tmp_path / f"errors{rank}")
        assert "of one size on all processes of its group, but process 0 has 11, process 1 has 13" in of_norm
        assert "of one size on all processes of its group, but process 0 has 14, process 1 has 16" in of_optimizer
