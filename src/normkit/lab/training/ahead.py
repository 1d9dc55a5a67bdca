"""Imported by the process that workers come from: what each of them would otherwise import, a model's library too."""

import contextlib
import gc
import importlib
import os

from normkit.optional import let_torchvision_load, uncollected

MODULES = ["normkit.lab.training.loop", "accelerate", "torch._dynamo"]  # torch's optimizers need its compiler

with uncollected():
    for name in [*MODULES, *os.environ.pop("NORMKIT_AHEAD", "").split()]:
        with contextlib.suppress(Exception):  # a worker that needs it has the words
            if name not in MODULES:
                let_torchvision_load()
            importlib.import_module(name)
    gc.freeze()  # nor is it looked through in the workers, which would each copy the memory that it is in
