"""Data: batches that are a function of the seed and the step alone, so that every variant sees the same ones.

That is also why a run needs no more than its step to go on where it stopped.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from normkit.optional import library, require

TEXT_FILES = (".txt", ".md", ".rst", ".py", ".json", ".jsonl", ".csv", ".html", ".tex")
IMAGE_FILES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif")
SAVED = ("state.json", "dataset_dict.json")  # one of these lies in a folder that datasets.save_to_disk has written
HELD_OUT = 0.1


class Data(Protocol):
    """What a task needs of its data; ``unit`` is what its size is counted in."""

    unit: str

    def train(self, seed: int, step: int) -> Any:
        """Return the batch of a step, from 1."""

    def validation(self) -> list[Any]:
        """Return batches that are never trained on."""


def generator(*numbers: int) -> torch.Generator:
    """Return random numbers that depend on all of ``numbers``."""
    mixed = 0
    for number in numbers:
        mixed = (mixed * 1_000_003 + number + 1) % (2**63)
    return torch.Generator().manual_seed(mixed)


class Tokens:
    """A long row of tokens; a batch is (batch, length + 1) of it, cut at random places; the last tenth is held out."""

    unit = "tokens"

    def __init__(self, tokens: Tensor, batch: int, length: int, batches: int, source: str):
        held_out = int(len(tokens) * HELD_OUT)
        if held_out < length + 2:
            need = int((length + 2) / HELD_OUT) + 1
            raise ValueError(
                f"data {source!r} has {len(tokens)} tokens; at least {need} are needed for sequences of {length}"
            )
        self.tokens, self.held_out = tokens[:-held_out], tokens[-held_out:]
        self.batch, self.length, self.batches = batch, length, batches

    def train(self, seed: int, step: int) -> Tensor:
        """Cut a batch at places that seed and step choose."""
        places = torch.randint(len(self.tokens) - self.length, (self.batch,), generator=generator(seed, step))
        return self._cut(self.tokens, places)

    def validation(self) -> list[Tensor]:
        """Cut batches at even distances from the part held out."""
        rows = self.batch * self.batches
        places = torch.linspace(0, len(self.held_out) - self.length - 1, rows).long()
        return list(self._cut(self.held_out, places).split(self.batch))

    def _cut(self, tokens: Tensor, places: Tensor) -> Tensor:
        return tokens[places[:, None] + torch.arange(self.length + 1)]


class Images:
    """Labelled images, in a new order every epoch; a tenth, at least one batch if possible, is held out."""

    unit = "images"

    def __init__(self, images: Tensor, labels: Tensor, batch: int, source: str):
        if len(images) < 10:
            raise ValueError(f"data {source!r} has {len(images)} images; at least 10 are needed")
        order = torch.randperm(len(images), generator=generator(0))
        held_out = max(int(len(images) * HELD_OUT), min(batch, len(images) // 4))
        self.images, self.labels = images[order[held_out:]], labels[order[held_out:]]
        self.held_out = images[order[:held_out]], labels[order[:held_out]]
        self.batch = min(batch, len(self.images))
        self.shape, self.classes = tuple(images.shape[1:]), int(labels.max()) + 1
        self.epoch: tuple[tuple[int, int], Tensor] = ((-1, -1), torch.empty(0))

    def train(self, seed: int, step: int) -> tuple[Tensor, Tensor]:
        """Take the next images in the order of this epoch; what is left of an epoch beyond full batches is left out."""
        epoch, at = divmod(step - 1, len(self.images) // self.batch)
        if self.epoch[0] != (seed, epoch):
            self.epoch = (seed, epoch), torch.randperm(len(self.images), generator=generator(seed, epoch))
        rows = self.epoch[1][at * self.batch : (at + 1) * self.batch]
        return self.images[rows], self.labels[rows]

    def validation(self) -> list[tuple[Tensor, Tensor]]:
        """Return all that was held out."""
        images, labels = self.held_out
        return list(zip(images.split(self.batch), labels.split(self.batch), strict=True))


class Batches:
    """A user's iterable of batches; the first ones are held out, and at its end it begins again."""

    unit = "samples"

    def __init__(self, make: Callable[[int], Iterator[Any]], held_out: int, source: str):
        self.make, self.source = make, source
        self.held_out = list(itertools.islice(make(0), held_out))
        if next(itertools.islice(make(0), held_out, None), None) is None:
            raise ValueError(
                f"data {source!r} gives {len(self.held_out)} batches; more than {held_out} are needed, "
                "since that many are held out for validation"
            )
        self.place: tuple[int, int] = (-1, 0)

    def train(self, seed: int, step: int) -> Any:
        """Return the next batch; a step before the last one, or another seed, begins again."""
        if self.place[0] != seed or step <= self.place[1]:
            self.stream, self.place = self._endless(seed), (seed, 0)
        batch = next(itertools.islice(self.stream, step - self.place[1] - 1, None))
        self.place = (seed, step)
        return batch

    def _endless(self, seed: int) -> Iterator[Any]:
        while True:
            yield from itertools.islice(self.make(seed), len(self.held_out), None)

    def validation(self) -> list[Any]:
        """Return the first batches."""
        return self.held_out


def text_of(source: str, column: str = "text") -> str:
    """Read all text of a source: CPython's documentation, a file, a folder, or ``hf:NAME``, a Hugging Face data set."""
    if source == "python-docs":
        from pydoc_data import topics  # CPython's language reference by topic; a part of every installation

        return "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
    if source.startswith("hf:"):
        rows = hugging_face(source)
        texts = [
            name for name, kind in rows.features.items() if getattr(kind, "dtype", None) in ("string", "large_string")
        ]
        if not texts:
            raise ValueError(f"data {source!r} has no column of text; its columns are {', '.join(rows.column_names)}")
        return "\n\n".join(rows[column if column in texts else texts[0]])
    path = Path(source)
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix.lower() in TEXT_FILES)
    text = "\n\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    if not text.strip():
        raise ValueError(f"data {source!r} is empty")
    return text


def hugging_face(source: str) -> Any:
    """Load a data set: ``hf:NAME`` or ``hf:NAME:CONFIG``, a folder of parquet or JSON, or one that datasets has saved.

    Of several splits, the one to train on.
    """
    datasets = library("datasets")
    name, _, config = source.removeprefix("hf:").partition(":")
    saved = any((Path(name) / file).is_file() for file in SAVED)
    try:
        found = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config or None)
    except Exception as error:  # datasets raises its own kinds, and those of the network below it
        raise ValueError(f"data {source!r} cannot be loaded: {error}") from error
    return found.get("train", next(iter(found.values()))) if hasattr(found, "values") else found


def images_of(source: str, size: int | None) -> tuple[Tensor, Tensor]:
    """Read labelled images: scikit-learn's digits, a folder with a folder for each class, or ``hf:NAME``."""
    if source == "digits":
        require("sklearn")
        from sklearn.datasets import load_digits

        found = load_digits()
        images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 8 - 1
        return _resized(images, size), torch.tensor(found.target, dtype=torch.int64)
    rows = hugging_face(source) if source.startswith("hf:") else _image_folder(source)
    image = next((n for n, kind in rows.features.items() if type(kind).__name__ == "Image"), None)
    label = next((n for n, kind in rows.features.items() if type(kind).__name__ == "ClassLabel"), None)
    if image is None or label is None:
        raise ValueError(f"data {source!r} must have an image and a class label; its columns are {rows.column_names}")
    images = torch.stack([_pixels(picture, size or 32) for picture in rows[image]])
    return images, torch.tensor(rows[label], dtype=torch.int64)


def _image_folder(source: str) -> Any:
    return library("datasets").load_dataset("imagefolder", data_dir=source, split="train")


def _pixels(picture: Any, size: int) -> Tensor:
    import numpy

    pixels = numpy.asarray(picture.convert("RGB").resize((size, size)), dtype=numpy.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1


def _resized(images: Tensor, size: int | None) -> Tensor:
    if size is None or size == images.shape[-1]:
        return images
    return torch.nn.functional.interpolate(images, (size, size), mode="bilinear", align_corners=False)


def batches_of(source: str, held_out: int) -> Batches:
    """Take batches from ``module:iterable``: an iterable, or a function that returns one, given a seed or nothing."""
    found = resolve(source, "data")
    seeded = callable(found) and "seed" in getattr(getattr(found, "__code__", None), "co_varnames", ())

    def make(seed: int) -> Iterator[Any]:
        return iter(found(seed=seed) if seeded else found() if callable(found) else found)

    return Batches(make, held_out, source)


def resolve(source: str, role: str) -> Any:
    """Import ``module:name``, with modules of the current folder."""
    module, _, name = source.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{role} {source!r} cannot be imported: {error}") from error


def kind_of(source: str) -> str:
    """Tell ``"text"``, ``"images"`` and a user's ``"batches"`` apart; ``hf:`` may be the first two."""
    path = Path(source)
    if source == "digits":
        return "images"
    if source == "python-docs" or path.is_file():
        return "text"
    if source.startswith("hf:"):
        return "either"
    if path.is_dir():
        inside = [f for f in path.rglob("*") if f.is_file()]
        return "images" if any(f.suffix.lower() in IMAGE_FILES for f in inside) else "text"
    if ":" in source:
        return "batches"
    raise ValueError(
        f"no data {source!r}: neither a file nor a folder is there; data is 'python-docs', 'digits', a path, "
        "'hf:NAME' or 'module:iterable'"
    )
