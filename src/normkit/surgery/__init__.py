"""Changes to whole models. Import what is needed from its files.

``recognition`` says what a module computes; ``edits`` are what is done to a model, as values. The verbs that make them
are in ``exact``, ``replacement``, ``removal``, ``statistics`` and ``quantizing``. ``proof`` compares a model with what
it was, ``saving`` writes and opens folders, ``commands`` are the verbs on the command line.
"""

import importlib
import importlib.abc
import importlib.util
import sys

MOVED = {  # where files are that lay here: models that were pickled then, and code that was written then, name them so
    **{name: f"edits.{name}" for name in ("adding", "changes", "forms", "layers", "renaming", "rewriting")},
    **{name: f"edits.{name}" for name in ("source", "turning")},
    **{name: f"exact.{name}" for name in ("converting", "folding", "fusing", "racing")},
    "fold": "exact.pairs",
    "caching": "quantizing.caching",
    **{name: f"removal.{name}" for name in ("fading", "order", "removing", "weaning")},
    **{name: f"replacement.{name}" for name in ("fits", "matching", "swapping")},
    **{name: f"statistics.{name}" for name in ("adapting", "batch_statistics", "federated", "freeze", "repair")},
    **{name: f"statistics.{name}" for name in ("selection", "streaming")},
}


class _Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a file by the name that it had: the same module, and not a second one."""

    def find_spec(self, name, path=None, target=None):
        """Know the names of old."""
        parent, _, last = name.rpartition(".")
        return importlib.util.spec_from_loader(name, self) if parent == __name__ and last in MOVED else None

    def exec_module(self, module):
        """Let the module of today stand under the name."""
        last = module.__name__.rpartition(".")[2]
        sys.modules[module.__name__] = importlib.import_module(f"{__name__}.{MOVED[last]}")


sys.meta_path.append(_Moved())
