"""A user's own data, ``module:name``: what is held out is fixed once and never trained on, whatever the order.

A data set whose samples have numbers, or a loader over one, is split by sample, and its batches are then made as the
loader makes them. Bare batches have no numbers and are split by their place, if that stays the same; where neither can
be done, held-out data must be named apart.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from normkit import prints
from normkit.lab.plan.data import Data, all_but, chances, generator, held_out, resolve
from normkit.lab.plan.settings import spell
from normkit.parameters import tensors_in

BATCH = 16  # samples of a batch where neither the loader nor the user says
LOOKED_AT = 100  # batches of a stream that are read twice to see whether their order stays
LABELLED = 2_000  # samples that are read for their labels, where a data set has no list of them
LABELS = ("targets", "labels", "label", "y")
WORKERS = ("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor")

Draw = Callable[[Tensor, torch.Generator], Tensor]


def way_out() -> str:
    """Say what helps where nothing can be held out."""
    return (
        f"hand in held-out data with {spell('val')} module:loader, or a data set or loader whose samples have numbers, "
        "which is split by sample"
    )


class SourceData(NamedTuple):
    """What a source names: the data, and a function of the seed that gives it anew."""

    made: Any
    anew: Callable[[int], Any]
    seeded: bool


@dataclass
class Recipe:
    """How a loader makes batches of a data set.

    batch: samples of a batch; None where each item of the data set is one.
    pool: the numbers of the samples that are drawn from; draw: puts such numbers into the order of an epoch.
    drop_last: whether a short last batch of an epoch is left out where there are others.
    join_lone: whether else a last batch of one sample goes to the batch before it.
    start: what the loader's own generator was seeded with.
    """

    dataset: Any
    batch: int | None
    collate: Callable[[Any], Any]
    draw: Draw
    pool: Tensor
    drop_last: bool = False
    join_lone: bool = False
    start: int = 0
    workers: dict[str, Any] = field(default_factory=dict)

    def fetch(self, rows: Tensor) -> Any:
        """Make the batch of these samples."""
        numbers = rows.tolist()
        if self.batch is None:
            return self.collate(self.dataset[numbers[0]])
        several = getattr(self.dataset, "__getitems__", None)
        return self.collate(several(numbers) if several else [self.dataset[number] for number in numbers])

    def batches(self, rows: Tensor) -> list[Tensor]:
        """Cut rows into batches."""
        batches = list(rows.split(self.batch or 1))
        if len(batches) > 1 and len(batches[-1]) < (self.batch or 1):
            if self.drop_last:
                del batches[-1]
            elif self.join_lone and len(batches[-1]) == 1:
                batches[-2:] = [torch.cat(batches[-2:])]
        return batches


def own_data(source: str, apart: str | None, batch: int | None, batches: int) -> Data:
    """Return the data of ``module:name``: a loader, a data set, batches, or a function that returns such.

    apart: the same for data that are held out; None holds out a part of the first.
    batch: samples of a batch, None for the loader's own; batches: how many of bare ones are held out at most.
    """
    if apart == source:
        raise ValueError(f"held-out data {apart!r} are those that are trained on; {spell('val')} needs others")
    train_data = import_source(source)
    recipe = recipe_of(train_data.made, batch)
    validation = None if apart is None else _read(import_source(apart), apart, batch, recipe)
    if isinstance(recipe, Recipe):
        return BySample(recipe, validation, batches, source)
    if validation is not None:
        return Stream(train_data, validation, source)
    if recipe:
        raise ValueError(f"data {source!r}: {recipe}, and so cannot keep the held-out samples apart; {way_out()}")
    return ByPlace(train_data, batches, source)


def import_source(source: str) -> SourceData:
    """Import what a source names, and call it if it is a function."""
    provider = resolve(source, "data")
    if isinstance(provider, tuple) and provider and all(isinstance(part, Tensor) for part in provider):
        provider = TensorDataset(*provider)
    if not callable(provider) or hasattr(type(provider), "__iter__"):
        return SourceData(provider, lambda seed: provider, False)
    seeded = "seed" in inspect.signature(provider).parameters

    def anew(seed: int) -> Any:
        return provider(seed=seed) if seeded else provider()

    with chances(0):
        return SourceData(anew(0), anew, seeded)


def recipe_of(data: Any, batch: int | None) -> Recipe | str:
    """Return how batches of a data set or a loader are made; if they cannot be made anew, why; empty for a stream."""
    if isinstance(data, list | tuple):
        return Recipe(data, None, as_it_is, shuffle, torch.arange(len(data)))
    if not isinstance(data, DataLoader):
        if isinstance(data, IterableDataset) or not _has_numbers(data):
            return ""
        return Recipe(data, batch or BATCH, default_collate, shuffle, torch.arange(len(data)))
    if isinstance(data.dataset, IterableDataset):
        return ""
    return _recipe_of_loader(data, batch)


def _has_numbers(data: Any) -> bool:
    """Whether samples can be had by number; a mapping has names."""
    kind = type(data)
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and not isinstance(data, Mapping | str)


def _recipe_of_loader(loader: DataLoader, batch: int | None) -> Recipe | str:
    many: Any = loader.batch_sampler
    if many is not None and type(many) is not BatchSampler:
        return f"its batch sampler, {type(many).__name__}, chooses samples in its own way"
    sampler = loader.sampler if many is None else many.sampler
    order = _order_of(sampler, loader.dataset)
    if order is None:
        return f"its sampler, {type(sampler).__name__}, chooses samples in its own way"
    size = None if many is None else batch or many.batch_size
    workers = {name: getattr(loader, name) for name in WORKERS} if loader.num_workers else {}
    own = loader.generator or getattr(sampler, "generator", None)
    start = own.initial_seed() if own is not None else 0
    last = many is not None and many.drop_last
    pool, draw = order
    return Recipe(loader.dataset, size, loader.collate_fn, draw, pool, last, start=start, workers=workers)


def _order_of(sampler: Any, dataset: Any) -> tuple[Tensor, Draw] | None:
    """Return the samples that one of torch's samplers draws from and how; None for any other sampler."""
    kind, every = type(sampler), torch.arange(len(dataset))
    if kind is SequentialSampler or (kind is DistributedSampler and not sampler.shuffle):
        return every, lambda rows, chance: rows
    if kind is DistributedSampler:
        return every, shuffle
    if kind is SubsetRandomSampler:
        return torch.as_tensor(sampler.indices), shuffle
    if kind is RandomSampler:
        return every, some(sampler._num_samples, sampler.replacement)
    if kind is WeightedRandomSampler:
        return torch.arange(len(sampler.weights)), some(sampler.num_samples, sampler.replacement, sampler.weights)
    return None


def shuffle(rows: Tensor, chance: torch.Generator) -> Tensor:
    """Put rows into a random order."""
    return rows[torch.randperm(len(rows), generator=chance)]


def some(count: int | None, replacement: bool, weights: Tensor | None = None) -> Draw:
    """Return a way to draw so many rows; without replacement, no more than there are."""
    if count is None and not replacement:
        return shuffle

    def draw(rows: Tensor, chance: torch.Generator) -> Tensor:
        share = torch.ones(len(rows), dtype=torch.float64) if weights is None else weights[rows].double()
        available = len(rows) if replacement else int((share > 0).sum())
        num_samples = len(rows) if count is None else count if replacement else min(count, available)
        return rows[torch.multinomial(share, num_samples, replacement, generator=chance)]

    return draw


def as_it_is(batch: Any) -> Any:
    """Return a batch that needs nothing done."""
    return batch


class BySample:
    """A data set split by sample; every epoch draws anew from what is not held out, as the loader does."""

    unit = "samples"

    def __init__(self, recipe: Recipe, validation: list[Any] | None, batches: int, source: str):
        self.recipe, self.held_out, rows = recipe, validation or [], recipe.pool
        if validation is None:
            held, rows = _split(recipe, batches, source)
            self.held_out = _batches_of(recipe, held)
        if not len(rows):
            raise ValueError(f"data {source!r} has no sample to train on")
        self.order = Order(recipe, rows)
        self.ahead: tuple[tuple[int, int], Iterator[Any]] = ((-1, 0), iter(()))

    def train(self, seed: int, step: int) -> Any:
        """Make the batch of a step; where the loader has workers, they make the next ones meanwhile."""
        if not self.recipe.workers:
            return _fetch(self.recipe, (seed, step), self.order.rows_of(seed, step))
        if self.ahead[0] != (seed, step):
            self.ahead = (seed, step), _worker_batches(self.recipe, self.order, seed, step)
        batch = next(self.ahead[1])
        self.ahead = (seed, step + 1), self.ahead[1]
        return batch

    def validation(self) -> list[Any]:
        """Return all that is held out."""
        return self.held_out

    @property
    def labels(self) -> Tensor | None:
        """Return the class of every sample that is trained on; None where samples have none."""
        labels = None if self.recipe.batch is None else _labels(self.recipe.dataset)
        return None if labels is None else labels[self.order.rows].long()

    def without_lone_samples(self) -> BySample:
        """Return the same, whose parts have no last batch of one sample: no batch norm can train on it."""
        same = copy.copy(self)
        same.recipe = replace(self.recipe, join_lone=True)
        return same

    def part(self, rows: Tensor) -> BySample:
        """Return the same with some of the samples to train on."""
        subset = copy.copy(self)
        subset.order, subset.ahead = Order(self.recipe, self.order.rows[rows]), ((-1, 0), iter(()))
        return subset


class Order:
    """Which samples are in the batch of a step; that of the current epoch is kept."""

    def __init__(self, recipe: Recipe, rows: Tensor):
        self.recipe, self.rows = recipe, rows
        self.length = len(recipe.batches(recipe.draw(rows, generator(0))))
        self.epoch: tuple[tuple[int, int], list[Tensor]] = ((-1, -1), [])

    def rows_of(self, seed: int, step: int) -> Tensor:
        """Return the samples of a step, from 1."""
        epoch, at = divmod(step - 1, self.length)
        if self.epoch[0] != (seed, epoch):
            order = self.recipe.draw(self.rows, generator(self.recipe.start, seed, epoch))
            self.epoch = (seed, epoch), self.recipe.batches(order)
        return self.epoch[1][at]


def _worker_batches(recipe: Recipe, order: Order, seed: int, step: int) -> Iterator[Any]:
    """Let a loader's workers make the batches from a step on.

    No method, since workers wait for seconds for a loader that ends as a part of a cycle of references.
    """
    numbers = (((seed, at), order.rows_of(seed, at).tolist()) for at in itertools.count(step))
    return iter(DataLoader(_Batches(recipe), batch_size=None, sampler=numbers, collate_fn=as_it_is, **recipe.workers))


class _Batches(Dataset):
    """Whole batches by step and rows, for the workers of a loader."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe

    def __getitem__(self, key: tuple[tuple[int, int], list[int]]) -> Any:
        return _fetch(self.recipe, key[0], torch.tensor(key[1]))


def _fetch(recipe: Recipe, numbers: tuple[int, int], rows: Tensor) -> Any:
    """Make a batch whose augmentation is random by the seed and the step alone."""
    with chances(recipe.start, *numbers):
        return recipe.fetch(rows)


def _batches_of(recipe: Recipe, rows: Tensor) -> list[Any]:
    return [_fetch(recipe, (-1, at), part) for at, part in enumerate(rows.split(recipe.batch or 1))]


def _split(recipe: Recipe, batches: int, source: str) -> tuple[Tensor, Tensor]:
    """Return the samples held out and those to train on; one that has several numbers is on one side with all."""
    origins = _origins(recipe.dataset)
    together: dict[Any, list[int]] = {}
    for row in recipe.pool.tolist():
        together.setdefault(origins[row], []).append(row)
    numbers = list(together.values())
    if len(numbers) < 2:
        what = "samples" if recipe.batch else "batches"
        raise ValueError(f"data {source!r} has {len(numbers)} {what}; at least 2 are needed, one of them to hold out")
    first = torch.tensor([rows[0] for rows in numbers])
    if recipe.batch is None:
        apart = spread(len(numbers), batches)
    else:
        labels = _labels(recipe.dataset)
        apart = held_out(len(numbers), recipe.batch, None if labels is None else labels[first])
    kept = all_but(apart, len(numbers)).tolist()
    return first[apart], torch.tensor([row for place in kept for row in numbers[place]])


def spread(count: int, batches: int) -> Tensor:
    """Return evenly spaced places of at most so many batches to hold out, no more than a quarter of all.

    >>> spread(20, 5), spread(3, 5)
    (tensor([ 2,  6, 10, 14, 18]), tensor([1]))
    """
    num_batches = max(1, min(batches, count // 4))
    return ((torch.arange(num_batches) + 0.5) * count / num_batches).long()


def _origins(dataset: Any) -> list[Any]:
    """Return for every number which sample it is: a part of a data set may hold one twice."""
    if isinstance(dataset, Subset):
        inner = _origins(dataset.dataset)
        return [inner[number] for number in dataset.indices]
    if isinstance(dataset, ConcatDataset):
        return [origin for part in dataset.datasets for origin in _origins(part)]
    return [(id(dataset), number) for number in range(len(dataset))]


def _labels(dataset: Any) -> Tensor | None:
    """Return the class of every sample; None where samples have none."""
    if isinstance(dataset, Subset):
        inner = _labels(dataset.dataset)
        return None if inner is None else inner[torch.as_tensor(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        parts = [_labels(part) for part in dataset.datasets]
        return None if any(part is None for part in parts) else torch.cat(parts)  # type: ignore[arg-type]
    named = _kept_labels(dataset)
    if not named and len(dataset) <= LABELLED:
        with chances(0):
            named = [[_label_of(dataset[number]) for number in range(len(dataset))]]
    return next((targets for labels in named if (targets := _classes(labels, len(dataset))) is not None), None)


def _kept_labels(dataset: Any) -> list[Any]:
    """What a data set keeps of all its samples that may be their classes."""
    named: list[Any] = [dataset.tensors[-1]] if isinstance(dataset, TensorDataset) else []
    named += [getattr(dataset, name) for name in LABELS if hasattr(dataset, name)]
    columns = getattr(dataset, "column_names", None) or ()
    return named + [dataset[name] for name in LABELS if name in columns]


def _label_of(sample: Any) -> Any:
    if isinstance(sample, Mapping):
        return next((sample[name] for name in LABELS if name in sample), None)
    return sample[-1] if isinstance(sample, tuple | list) and len(sample) > 1 else None


def _classes(labels: Any, count: int) -> Tensor | None:
    try:
        classes = labels if isinstance(labels, Tensor) else torch.tensor([_whole(label) for label in labels])
    except (TypeError, ValueError, RuntimeError):
        return None
    return None if classes.is_floating_point() or classes.shape != (count,) else classes.cpu()


def _whole(label: Any) -> int:
    """Return a whole number, and refuse one with decimals, which is no class."""
    if int(label) != float(label):
        raise ValueError(f"{label!r} is not whole")
    return int(label)


class Stream:
    """Batches one after the other, as they come; at the end it begins again. What is held out is named apart.

    Random numbers that the stream draws are its own: neither the model nor what ran before changes its order.
    """

    unit = "samples"

    def __init__(self, provider: SourceData, validation: list[Any], source: str):
        self.anew, self.held_out, self.source = provider.anew, validation, source
        self.place: tuple[int, int] = (-1, 0)

    def train(self, seed: int, step: int) -> Any:
        """Return the next batch; a step before the last one, or another seed, begins again."""
        if self.place[0] != seed or step <= self.place[1]:
            self.stream, self.place = self._endless(seed), (seed, 0)
        while self.place[1] < step:
            with chances(seed, self.place[1]):
                batch = next(self.stream)
            self.place = (seed, self.place[1] + 1)
        return batch

    def _endless(self, seed: int) -> Iterator[Any]:
        for epoch in itertools.count():
            batches = self.anew(seed)
            for holder in (batches, getattr(batches, "sampler", None), getattr(batches, "batch_sampler", None)):
                if isinstance(own := getattr(holder, "generator", None), torch.Generator):
                    own.manual_seed(generator(seed, epoch).initial_seed())
            empty = True
            for batch in self._epoch(batches):
                empty = False
                yield batch
            if empty:
                raise ValueError(f"data {self.source!r} gives no batch in epoch {epoch + 1}: it must begin again")

    def _epoch(self, batches: Any) -> Iterator[Any]:
        return iter(batches)

    def validation(self) -> list[Any]:
        """Return all that is held out."""
        return self.held_out


class ByPlace(Stream):
    """Batches that come in the same order each time; those at some places are held out."""

    def __init__(self, provider: SourceData, batches: int, source: str):
        if provider.seeded:
            raise ValueError(
                f"data {source!r} takes a seed, by which its order changes, so that a held-out batch would be "
                f"trained on with another seed; {way_out()}"
            )
        first, again = ([[*_prints(batch)] for batch in _looked_at(provider, time)] for time in (1, 2))
        if first and not again:
            raise ValueError(f"data {source!r} gives its batches only once; a list or a function gives them again")
        if first != again:
            raise ValueError(
                f"data {source!r} gives its batches in another order each time, so that a held-out batch would be "
                f"trained on later; {way_out()}"
            )
        if len(first) < 2:
            raise ValueError(f"data {source!r} gives {len(first)} batches; at least 2 are needed, one to hold out")
        places = set(spread(len(first), batches).tolist())
        super().__init__(provider, [b for at, b in enumerate(_looked_at(provider, 0)) if at in places], source)
        self.places = places
        self.prints = {print_ for at in places for print_ in first[at]}
        for at, known in enumerate(first):
            if at not in places:
                self._require_new(known, at)

    def _epoch(self, batches: Any) -> Iterator[Any]:
        for at, batch in enumerate(batches):
            if at in self.places:
                continue
            if at >= LOOKED_AT:
                self._require_new(_prints(batch), at)
            yield batch

    def _require_new(self, prints: Iterable[bytes], at: int) -> None:
        if not self.prints.isdisjoint(prints):
            raise ValueError(
                f"data {self.source!r} gives a sample that is held out once more, in batch {at + 1}; {way_out()}"
            )


def _looked_at(provider: SourceData, time: int) -> Iterator[Any]:
    """Return the first batches, with other random numbers each time."""
    with chances(time):
        yield from itertools.islice(iter(provider.anew(0)), LOOKED_AT)


def _read(provider: SourceData, source: str, batch: int | None, trained: Recipe | str) -> list[Any]:
    """Read all held-out batches, of a stream no more than are looked at."""
    recipe = recipe_of(provider.made, batch)
    if not isinstance(recipe, Recipe):
        batches = list(itertools.islice(iter(provider.made), LOOKED_AT))
    else:
        if isinstance(trained, Recipe):
            _require_apart(recipe, trained, source)
        batches = _batches_of(recipe, recipe.pool) if len(recipe.pool) else []
    if not batches:
        raise ValueError(f"held-out data {source!r} gives no batch")
    return batches


def _require_apart(held: Recipe, trained: Recipe, source: str) -> None:
    one, other = (_source_rows(held), _source_rows(trained))
    if both := len(one & other):
        raise ValueError(f"held-out data {source!r}: {both} of {len(one)} samples are among those that are trained on")


def _source_rows(recipe: Recipe) -> set[Any]:
    origins = _origins(recipe.dataset)
    return {origins[row] for row in recipe.pool.tolist()}


def _prints(batch: Any) -> list[bytes]:
    """Return a short print of every sample of a batch; of all of it where its tensors have no row for each."""
    parts = [part.detach().cpu() for part in tensors_in(batch) if part.dim()]
    if not parts or len({len(part) for part in parts}) > 1:
        return [prints.print_of_value(batch).encode()]
    return [_short(*(_bytes(part[at]) for part in parts)) for at in range(len(parts[0]))]


def _short(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def _bytes(row: Tensor) -> bytes:
    return row.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def print_handed(thing: Any, is_code: bool = False) -> str:
    """Return a short print of what a user hands in: of its code, or of the data that it is."""
    is_code = is_code or inspect.isroutine(thing) or inspect.isclass(thing)
    return prints.print_of(thing) if is_code else sketch(thing)


def sketch(data: Any) -> str:
    """Return a short print of data: how many samples there are, and what the first, the middle and the last are.

    Empty where samples have no numbers, cannot be had, or are others each time.
    """
    try:
        recipe = None if callable(data) and not hasattr(type(data), "__iter__") else recipe_of(data, None)
        if not isinstance(recipe, Recipe) or not len(recipe.dataset):
            return ""
        first, again = (_sketch(recipe) for _ in range(2))
    except Exception:  # of the user's data; whoever trains on them says more
        return ""
    return first if first == again else ""


def print_drawing(data: Any) -> str:
    """Return a short print of a loader's sampler, of its ``collate_fn`` and ``drop_last``; empty for other data."""
    if not isinstance(data, DataLoader):
        return ""
    sampler = getattr(data.batch_sampler, "sampler", data.sampler)
    own = vars(sampler) if type(sampler).__module__.startswith("torch.") else {}  # another's may change as it draws
    chosen = {
        name: value for name, value in own.items() if name not in ("data_source", "dataset", "generator", "epoch")
    }
    return prints.print_of([type(data.batch_sampler), type(sampler), chosen, data.drop_last, data.collate_fn])


def _sketch(recipe: Recipe) -> str:
    count = len(recipe.dataset)
    with chances(0):
        looked_at = [recipe.dataset[at] for at in sorted({0, count // 2, count - 1})]
    return prints.print_of_value([count, recipe.batch, looked_at])
