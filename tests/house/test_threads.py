"""The contract sees what a thread overwrites between two lines of another, whatever the threads' luck."""

import inspect
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

from normkit.contract import test_copies


class Kept(nn.Module):
    """What is worked out for one call lies where the next one puts its own."""

    def forward(self, x):
        self.mean = x.mean()
        return x - self.mean


class Passed(nn.Module):
    def forward(self, x):
        mean = x.mean()
        return x - mean


def changed(module):
    torch.manual_seed(0)
    inputs = {batch: [torch.randn(batch, 3)] for batch in test_copies.BATCHES[:2]}
    alone = {batch: test_copies.called(module, inputs[batch]) for batch in inputs}
    with ThreadPoolExecutor(1) as pool:
        return test_copies.interrupted(module, inputs, alone, pool)


def test_the_line_at_which_another_call_changes_what_is_kept_is_named():
    line = inspect.getsourcelines(Kept.forward)[1] + 2
    assert changed(Kept()) == [f"{__file__}:{line}"]
    assert changed(Passed()) == []
