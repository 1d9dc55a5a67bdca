"""Data: batches that are a function of the seed and the step alone, so that every variant sees the same ones.

That is also why a run needs no more than its step to go on where it stopped.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import os
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy
import torch
from torch import Tensor

from normkit import manifold
from normkit.lab.files import native
from normkit.lab.plan import handed
from normkit.lab.plan.settings import spell
from normkit.optional import hub_once, library, require
from normkit.surgery.models import import_object

TEXT_FILES = (".txt", ".md", ".rst", ".py", ".json", ".jsonl", ".csv", ".html", ".tex")
IMAGE_FILES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif")
OF_TRAINING, OF_A_SPLIT = (
    re.compile(rf"(^|[-._ 0-9])({names})($|[-._ 0-9])")  # what datasets takes for the name of a split's folder
    for names in ("train|training", "train|training|validation|valid|dev|val|test|testing|eval|evaluation")
)
SAVED = ("state.json", "dataset_dict.json")  # one of these lies in a folder that datasets.save_to_disk has written
HELD_OUT = 0.1
MOST_HELD_OUT = 1000  # samples, or twenty batches if that is more: what every evaluation passes through the model


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


def held_out(count: int, batch: int, labels: Tensor | None = None) -> Tensor:
    """Return which of ``count`` samples are held out: a tenth, at least one batch if possible, drawn once for ever.

    With labels the draw is stratified.
    """
    share = min(int(count * HELD_OUT), max(MOST_HELD_OUT, 20 * batch))
    size = max(1, share, min(batch, count // 4))
    return spread_order(count, labels)[:size].sort().values


def spread_order(count: int, labels: Tensor | None = None) -> Tensor:
    """Return ``count`` samples in an order drawn once for ever, whose beginnings have as much of each class as all.

    Of n samples of a class, the i-th in a random order stands at (i + 1/2) / n.
    """
    order = torch.randperm(count, generator=generator(0))
    if labels is None:
        return order
    stands = torch.empty(count, dtype=torch.float64)
    for label in labels.unique():
        rows = order[labels[order] == label]
        stands[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
    return order[stands[order].argsort(stable=True)]


def all_but(rows: Tensor, count: int) -> Tensor:
    """Return the numbers below ``count`` that are not among ``rows``."""
    kept = torch.ones(count, dtype=torch.bool)
    kept[rows] = False
    return kept.nonzero().flatten()


class Tokens:
    """A long row of tokens; a batch is (batch, length + 1) of it, cut at random places.

    The last tenth is held out, or all of ``apart``.
    """

    unit = "tokens"

    def __init__(self, tokens: Tensor, batch: int, length: int, batches: int, source: str, apart: Tensor | None = None):
        if apart is None:
            _require_tokens(int(len(tokens) * HELD_OUT), len(tokens), length, HELD_OUT, source)
            tokens, apart = tokens.tensor_split([len(tokens) - int(len(tokens) * HELD_OUT)])
        _require_tokens(len(tokens), len(tokens), length, 1.0, source)
        _require_tokens(len(apart), len(apart), length, 1.0, "held out")
        self.tokens, self.held_out = tokens, apart
        self.batch, self.length, self.batches = batch, length, batches

    def train(self, seed: int, step: int) -> Tensor:
        """Cut a batch at places that seed and step choose."""
        places = torch.randint(len(self.tokens) - self.length, (self.batch,), generator=generator(seed, step))
        return self._cut(self.tokens, places)

    def validation(self) -> list[Tensor]:
        """Cut batches at even distances from the part held out."""
        rows = self.batch * self.batches
        places = torch.linspace(0, len(self.held_out) - self.length - 1, rows, dtype=torch.float64).long()
        return list(self._cut(self.held_out, places).split(self.batch))

    def part(self, rows: Tensor) -> Tokens:
        """Return the same with some of the tokens to train on."""
        subset = copy.copy(self)
        _require_tokens(len(rows), len(rows), self.length, 1.0, "of a client")
        subset.tokens = self.tokens[rows]
        return subset

    def _cut(self, tokens: Tensor, places: Tensor) -> Tensor:
        return tokens[places[:, None] + torch.arange(self.length + 1)]


def _require_tokens(usable: int, count: int, length: int, share: float, source: str) -> None:
    if usable < length + 2:
        need = int((length + 2) / share) + (share < 1)
        raise ValueError(f"data {source!r} has {count} tokens; at least {need} are needed for sequences of {length}")


class Images:
    """Labelled images, in a new order every epoch; some of each class are held out, or all of ``apart``."""

    unit = "images"

    def __init__(
        self, images: Tensor, labels: Tensor, batch: int, source: str, apart: tuple[Tensor, Tensor] | None = None
    ):
        if len(images) < 10:
            raise ValueError(f"data {source!r} has {len(images)} images; at least 10 are needed")
        rows = held_out(len(images), batch, labels)
        kept = all_but(rows, len(images)) if apart is None else torch.arange(len(images))
        self.images, self.labels = images[kept], labels[kept]
        self.held_out = (images[rows], labels[rows]) if apart is None else apart
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

    def part(self, rows: Tensor) -> Images:
        """Return the same with some of the images to train on."""
        subset = copy.copy(self)
        subset.images, subset.labels, subset.batch = self.images[rows], self.labels[rows], min(self.batch, len(rows))
        subset.epoch = ((-1, -1), torch.empty(0))
        return subset


class Matrices(Images):
    """Labelled positive definite matrices, held and drawn as images are."""

    unit = "matrices"


class Rows(Images):
    """Samples without labels: rows of a table, each column with mean 0 and deviation 1, or images.

    whole: whether the numbers were bytes, and are now even noise above them, in [0, 1).
    offset: what is added to the bits of each number: of bytes, those of a byte as it was read.
    """

    unit = "samples"

    def __init__(self, values: Tensor, batch: int, source: str, apart: Tensor | None = None, whole: bool = False):
        self.offset = 8.0 if whole else 0.0
        if values.dim() == 2:
            deviation, mean = torch.std_mean(values if apart is None else torch.cat([values, apart]), 0)
            self.offset += deviation.log2().mean().item() if whole else 0.0
            values = (values - mean) / deviation
            apart = None if apart is None else (apart - mean) / deviation
        none = torch.zeros(len(values), dtype=torch.int64)
        held = None if apart is None else (apart, torch.zeros(len(apart), dtype=torch.int64))
        super().__init__(values, none, batch, source, held)


def text_of(source: str) -> str:
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
        return "\n\n".join(rows["text" if "text" in texts else texts[0]])
    path = Path(source)
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if f.suffix.lower() in TEXT_FILES)
    text = "\n\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    if not text.strip():
        raise ValueError(f"data {source!r} is empty")
    return text


def require_folder(role: str, name: str) -> None:
    """Refuse a path of Hugging Face at once where it is none, rather than look for it in the network again and again.

    ``owner/name`` is a path only if there is a folder ``owner``.
    """
    parts = Path(name).parts
    path = name[:1] in ("/", ".", "~") or len(parts) > 2 or (len(parts) == 2 and Path(parts[0]).is_dir())
    if path and not Path(name).expanduser().exists():
        raise ValueError(f"{role} 'hf:{name}': there is no folder {name!r}")


def hugging_face(source: str) -> Any:
    """Load a data set: ``hf:NAME`` or ``hf:NAME:CONFIG``, a folder of parquet or JSON, or one that datasets has saved.

    ``hf:NAME@SPLIT`` is one of its splits; without, of several the one to train on.
    """
    datasets = library("datasets")
    whole, split = split_of(source)
    name, _, config = whole.removeprefix("hf:").partition(":")
    require_folder("data", name)
    saved = any((Path(name) / file).is_file() for file in SAVED)
    try:
        with hub_once(name):
            splits = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config or None)
    except Exception as error:  # datasets raises its own kinds, and those of the network below it
        raise ValueError(f"data {source!r} cannot be loaded: {error}") from error
    if not hasattr(splits, "values"):
        splits = {"train": splits}
    if split and split not in splits:
        raise ValueError(f"data {whole!r} has no split {split!r}; it has {', '.join(splits)}")
    return splits[split] if split else splits.get("train", next(iter(splits.values())))


def split_of(source: str) -> tuple[str, str]:
    """Take the split's name from a Hugging Face data set's.

    >>> split_of("hf:imdb@test"), split_of("hf:imdb:plain")
    (('hf:imdb', 'test'), ('hf:imdb:plain', ''))
    """
    whole, _, split = source.rpartition("@")
    return (whole, split) if whole and split.isidentifier() else (source, "")


class Pictures(NamedTuple):
    """Images (N, C, H, W) or signals (N, C, L), their classes, and what the classes are called."""

    images: Tensor
    labels: Tensor
    names: list[str]


def images_of(source: str, size: int | None) -> Pictures:
    """Read labelled images: scikit-learn's digits, a folder with a folder for each class, or ``hf:NAME``."""
    if source == "digits":
        table = torch.from_numpy(numpy.loadtxt(_digits(), delimiter=","))
        images = table[:, :-1].float().reshape(-1, 1, 8, 8) / 8 - 1
        return Pictures(_resize(images, size), table[:, -1].long(), list("0123456789"))
    if not source.startswith("hf:"):
        return _image_folder(source, size)
    rows = hugging_face(source)
    image = next((n for n, kind in rows.features.items() if type(kind).__name__ == "Image"), None)
    label = next((n for n, kind in rows.features.items() if type(kind).__name__ == "ClassLabel"), None)
    if image is None or label is None:
        raise ValueError(f"data {source!r} must have an image and a class label; its columns are {rows.column_names}")
    kind, stored = rows.features[image], rows.cast_column(image, library("datasets").Image(decode=False))[image]
    read = [_read(f"{at} of data {source!r}", kind, cell, size or 32) for at, cell in enumerate(stored)]
    return Pictures(torch.stack(read), torch.tensor(rows[label], dtype=torch.int64), rows.features[label].names)


def signals_of(source: str) -> Pictures:
    """Make labelled signals: ``mnist1d``, 5,000 of length 40 as Greydanus and Kobak publish them (arXiv 2011.14439)."""
    if source != "mnist1d":
        raise ValueError(f"data {source!r} are no signals; 'mnist1d' are")
    mnist1d = library("mnist1d.data")
    with chances(0):  # it draws from, and seeds, what all draw from
        dataset = mnist1d.make_dataset(mnist1d.get_dataset_args())
    values, classes = (numpy.concatenate([dataset[part], dataset[f"{part}_test"]]) for part in ("x", "y"))
    return Pictures(torch.from_numpy(values).float().unsqueeze(1), torch.from_numpy(classes), list("0123456789"))


def bytes_of(text: str) -> Tensor:
    """Return the bytes of a text, of which each is a token."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()


def own_batches(source: str, batch: int = 64, length: int = 64) -> Iterator[tuple[Tensor, Tensor]] | None:
    """Batches without end of built-in data: inputs and classes, or bytes and those that follow; None of other data."""
    if source == "python-docs":
        tokens = Tokens(bytes_of(text_of(source)), batch, length, 1, source)
        return ((rows[:, :-1], rows[:, 1:]) for rows in (tokens.train(0, step) for step in itertools.count(1)))
    read = {"digits": lambda source: images_of(source, None), "mnist1d": signals_of, "spd": matrices_of}.get(source)
    if read is None:
        return None
    pictures = read(source)
    images = Images(pictures.images, pictures.labels, batch, source)
    return (images.train(0, step) for step in itertools.count(1))


def _digits() -> Path:
    """Where scikit-learn has them; it takes longer to import than to train on them."""
    require("sklearn")
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"


def matrices_of(source: str) -> Pictures:
    """Read labelled positive definite matrices: ``spd``, which are drawn, or a file FILE.npz.

    It holds two arrays: matrices (N, n, n), and whole numbers (N,), the classes from 0.
    """
    if source == "spd":
        return covariances()
    try:
        with numpy.load(source, allow_pickle=False) as file:
            arrays = [torch.as_tensor(native(file[name])) for name in file.files]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"data {source!r} cannot be read as arrays of NumPy: {error}") from error
    points = [part.to(torch.float32) for part in arrays if part.dim() == 3 and part.is_floating_point()]
    labels = [part.long() for part in arrays if part.dim() == 1 and not part.is_floating_point()]
    shapes = ", ".join(f"{tuple(part.shape)} of {str(part.dtype).removeprefix('torch.')}" for part in arrays)
    if len(points) != 1 or len(labels) != 1 or len(points[0]) != len(labels[0]):
        raise ValueError(
            f"data {source!r} must hold matrices (N, n, n) of real numbers and classes (N,) of whole ones, not {shapes}"
        )
    manifold.require_definite(f"data {source!r}", points[0])
    if not len(labels[0]):
        raise ValueError(f"data {source!r} holds no matrices")
    if labels[0].min() < 0:
        raise ValueError(f"data {source!r}: classes must be 0, 1, 2, ..., not {labels[0].min()}")
    return Pictures(points[0], labels[0], [str(label) for label in range(int(labels[0].max()) + 1)])


def covariances(count: int = 900, classes: int = 3, n: int = 10, observations: int = 30) -> Pictures:
    """Draw covariances of so many ``observations`` each, of laws that differ by their class.

    Each comes as through a mixing of its own, as that of electrodes on another head, and the eigenvalues of all span
    two orders of magnitude.
    """
    chance = generator(count, classes, n)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=chance, dtype=torch.float64)

    turned = torch.linalg.qr(normal(n, n)).Q * torch.logspace(-1, 1, n, dtype=torch.float64).sqrt()
    own = torch.stack([torch.matrix_exp(0.08 * (noise + noise.mT)) for noise in normal(classes, n, n)])
    labels = torch.arange(count) % classes
    mixed = torch.matrix_exp(0.15 * normal(count, n, n)) @ turned @ own[labels] @ normal(count, n, observations)
    matrices = (mixed @ mixed.mT / observations).to(torch.float32)
    return Pictures(matrices, labels, [f"law {label}" for label in range(classes)])


def require_apart(source: str, apart: str) -> None:
    """Refuse held-out data that are a part of those trained on."""
    one, other = (Path(split_of(name)[0]).resolve() for name in (source, apart))
    paths = one.exists() and other.exists()
    same = source == apart or (paths and (one.is_relative_to(other) or other.is_relative_to(one)))
    if source.startswith("hf:") and apart.startswith("hf:"):
        same = hugging_face(source)._fingerprint == hugging_face(apart)._fingerprint
    if same:
        raise ValueError(
            f"held-out data {apart!r} are among those that are trained on, {source!r}; {spell('val')} needs others"
        )


def folders_left_out(source: str) -> tuple[list[str], list[str]]:
    """Return the folders that stand where others are classes, and hold no image; and the splits that are not read."""
    places = _image_places(source)
    full = [parts for parts, names in places.items() if names]
    depths = {len(parts) for parts in full}
    empty = ["/".join(parts) for parts, names in places.items() if not names and len(parts) in depths]
    unread = {"/".join(parts[:-1]) for parts in full} - {"/".join(parts[:-1]) for parts in _to_train_on(full)}
    return sorted(empty), sorted(unread)


def _image_folder(source: str, size: int | None) -> Pictures:
    """Read the images of a folder in the order of their paths; a class is called as the folder that its images lie in.

    Where all lie below folders that are named as splits, such as ``train`` and ``test``, those to train on are read.
    """
    places = {parts: names for parts, names in _image_places(source).items() if names}
    shallow, deep = min(places, key=len), max(places, key=len)
    if not shallow:
        raise ValueError(f"data {source!r} must have a folder for each class, and {places[()][0]!r} lies in none")
    if len(shallow) < len(deep):
        raise ValueError(
            f"data {source!r} must have a folder for each class, all equally deep, not {'/'.join(shallow)!r} and "
            f"{'/'.join(deep)!r}"
        )
    classes = sorted({parts[-1] for parts in places})
    if len(classes) == 1:
        raise ValueError(f"data {source!r} has only one class, {classes[0]!r}; at least two are needed")
    files = [Path(source, *parts, name) for parts in _to_train_on(list(places)) for name in places[parts]]
    files.sort(key=Path.as_posix)
    kind, stored = library("datasets").Image(), [{"path": str(file.absolute()), "bytes": None} for file in files]
    images = [_read(repr(str(file)), kind, cell, size or 32) for file, cell in zip(files, stored, strict=True)]
    return Pictures(torch.stack(images), torch.tensor([classes.index(file.parent.name) for file in files]), classes)


def _to_train_on(places: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return those of the folders that are trained on: of splits the one to train on where there is one, else all."""
    are_splits = all(any(map(OF_A_SPLIT.search, parts[:-1])) for parts in places)
    return [parts for parts in places if are_splits and any(map(OF_TRAINING.search, parts[:-1]))] or places


def _image_places(source: str) -> dict[tuple[str, ...], list[str]]:
    """Return the images of each folder, by the names of the folders on the way to it."""
    endings = tuple(library("datasets.packaged_modules.imagefolder.imagefolder").ImageFolder.EXTENSIONS)
    return {parts: [name for name in names if name.lower().endswith(endings)] for parts, names in _folders(source)}


def _folders(source: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the names on the way to each folder, and those of its files; links are followed, and nothing hidden."""

    def refuse(error: OSError) -> None:
        raise ValueError(f"folder {str(error.filename)!r} of data {source!r} cannot be read: {error.strerror}")

    for place, inside, names in os.walk(source, onerror=refuse, followlinks=True):
        inside[:] = [name for name in inside if not name.startswith((".", "__"))]
        yield Path(place).relative_to(source).parts, sorted(name for name in names if not name.startswith("."))


def _read(name: str, kind: Any, stored: Any, size: int) -> Tensor:
    try:
        return _pixels(kind.decode_example(stored), size)
    except Exception as error:  # Pillow raises its own kinds, by what is damaged
        raise ValueError(f"image {name} cannot be read: {error}") from error


def _pixels(picture: Any, size: int) -> Tensor:
    pixels = numpy.asarray(picture.convert("RGB").resize((size, size)), dtype=numpy.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1) / 127.5 - 1


def _resize(images: Tensor, size: int | None) -> Tensor:
    if size is None or size == images.shape[-1]:
        return images
    return torch.nn.functional.interpolate(images, (size, size), mode="bilinear", align_corners=False)


def resolve(source: str, role: str) -> Any:
    """Import ``module:name``, with modules of the current folder; what a module draws at random is the same each time.

    Otherwise every process that imports it would have data of its own. What a script hands in is there already.
    """
    if source.startswith(handed.PREFIX):
        return handed.find(source)
    with chances(0):
        return import_object(source, role)


@contextmanager
def chances(*numbers: int) -> Iterator[None]:
    """Within it, what Python, NumPy and torch draw on the CPU depends on ``numbers`` alone; then all is as before."""
    before = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    seed = generator(*numbers).initial_seed()
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        numpy.random.set_state(before[1])
        torch.set_rng_state(before[2])


def is_of_matrices(source: str) -> bool:
    """Whether a source is of positive definite matrices."""
    return source == "spd" or source.endswith(".npz")


def kind_of(source: str) -> str:
    """Tell ``"text"``, ``"images"``, ``"signals"``, ``"matrices"`` and a user's ``"batches"`` apart.

    ``hf:`` may be the first two.
    """
    path = Path(source)
    if source == "digits":
        return "images"
    if source == "mnist1d":
        return "signals"
    if is_of_matrices(source):
        return "matrices"
    if source == "python-docs" or path.is_file():
        return "text"
    if source.startswith("hf:"):
        return "either"
    if path.is_dir():
        files = (name for _, names in _folders(source) for name in names)
        return "images" if any(name.lower().endswith(IMAGE_FILES) for name in files) else "text"
    if ":" in source:
        return "batches"
    raise ValueError(
        f"no data {source!r}: neither a file nor a folder is there; data is 'python-docs', 'digits', 'mnist1d', "
        "'spd', a path, 'hf:NAME' or 'module:loader'"
    )
