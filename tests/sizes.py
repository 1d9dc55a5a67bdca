"""How much memory a computation takes at once, and how many calls it makes."""

import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Largest(TorchDispatchMode):
    """How many numbers the largest result has, and how many all have that are no views and lie in new memory."""

    numbers = together = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        known = {x.untyped_storage().data_ptr() for x in tree_leaves(args) if isinstance(x, torch.Tensor)}
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor):
                self.numbers = max(self.numbers, x.numel())
                self.together += x.numel() * (x.untyped_storage().data_ptr() not in known)
        return result


def calls(function, *args):
    """How many calls of Python's functions a call makes."""
    count = 0

    def look(frame, event, what):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count
