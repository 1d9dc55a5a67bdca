"""Imported by the process that workers come from: what each of them would otherwise import, a model's library too."""

import contextlib
import gc
import importlib
import os

MODULES = ["normkit.lab.training.loop", "accelerate", "torch._dynamo"]  # torch's optimizers need its compiler

gc.disable()  # nothing of what is imported is garbage, and looking takes a quarter of the time
for name in [*MODULES, *os.environ.pop("NORMKIT_AHEAD", "").split()]:
    with contextlib.suppress(Exception):  # a worker that needs it has the words
        if name not in MODULES:
            importlib.import_module("normkit.optional").let_torchvision_load()
        importlib.import_module(name)
gc.freeze()  # nor is it looked through in the workers, which would each copy the memory that it is in
gc.enable()
