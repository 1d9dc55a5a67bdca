"""Cross-encoder: a model that reads a mention and a name together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from normkit.text.models import loaded, sentence_transformers
from normkit.text.rescore.spelling import best


class CrossEncoder:
    """Score each candidate by its name that a cross-encoder of sentence-transformers likes best.

    Args:
        path: the folder of the model, with one output.
        logits: give the model's number as it is, for ``nil-decision``; else the probability that it means.
    """

    name = "cross-encoder"
    _kept_in = "path"  # the folder of its model

    def __init__(self, path: str, logits: bool = False):
        make = sentence_transformers().CrossEncoder
        self._model = loaded("CrossEncoder", path, lambda where: make(where, local_files_only=True))
        self.path, self.logits = os.path.abspath(path), logits

    def __call__(self, text: str, names: Sequence[Sequence[str]]) -> np.ndarray:
        """Return a score for each candidate, given by its names; one without names gets the least."""
        pairs = [(text, name) for own in names for name in own]
        if not pairs:
            return np.zeros(len(names))
        activation = torch.nn.Identity() if self.logits else torch.nn.Sigmoid()
        predictions = self._model.predict(pairs, activation_fn=activation, show_progress_bar=False)
        scores = np.asarray(predictions, dtype=float)
        if scores.ndim != 1:
            raise ValueError(f"CrossEncoder: {self.path} gives {scores.shape[1]} numbers a pair; one is wanted")
        return best(scores, names, float(scores.min()) if self.logits else 0.0)

    def settings(self) -> dict[str, Any]:
        """What it was built with."""
        return {"path": self.path, "logits": self.logits}


STEP = CrossEncoder
