"""Imported by the process that workers come from: libraries of models, which each worker would otherwise import."""

import contextlib
import importlib
import os

from normkit.optional import let_torchvision_load

for name in os.environ.pop("NORMKIT_AHEAD", "").split():
    with contextlib.suppress(Exception):  # a worker that needs it has the words
        let_torchvision_load()
        importlib.import_module(name)
