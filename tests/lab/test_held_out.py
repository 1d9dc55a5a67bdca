"""Held-out samples are never trained on: every sample carries its own number, and the numbers are counted."""

import itertools
import sys

import numpy
import pytest
import torch
from helpers import losses, run, settings, trained
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from normkit.lab.plan import data, samples, tasks

COUNT, BATCH = 80, 8
SEEDS = (0, 1, 2)
NUMBERS = torch.arange(COUNT)
NUMBERED = TensorDataset(NUMBERS[:, None].float(), NUMBERS // 8)  # sorted by class: ten classes of eight


class Plain(Dataset):
    """A data set that has nothing but what it must."""

    def __len__(self):
        return COUNT

    def __getitem__(self, number):
        return torch.tensor([float(number)]), number // 8


class Own(Sampler):
    """A sampler that nobody else knows."""

    def __len__(self):
        return COUNT

    def __iter__(self):
        return iter(torch.randperm(COUNT).tolist())


class Flowing(IterableDataset):
    def __init__(self, shuffle):
        self.shuffle = shuffle

    def __iter__(self):
        order = torch.randperm(COUNT) if self.shuffle else NUMBERS
        return ((torch.tensor([float(number)]), int(number) // 8) for number in order)


def loader(dataset=NUMBERED, **given):
    return DataLoader(dataset, **{"batch_size": BATCH, **given})


def seeded(seed):
    return loader(shuffle=True, generator=torch.Generator().manual_seed(seed))


def listed():
    return list(loader())


BY_SAMPLE = {
    "shuffled": loader(shuffle=True),
    "in order": loader(),
    "short last batch": loader(batch_size=7, shuffle=True),
    "full batches alone": loader(batch_size=7, shuffle=True, drop_last=True),
    "own generator": loader(shuffle=True, generator=torch.Generator().manual_seed(7)),
    "workers": loader(shuffle=True, num_workers=2),
    "drawn twice": loader(sampler=RandomSampler(NUMBERED, replacement=True, num_samples=200)),
    "by weight": loader(sampler=WeightedRandomSampler(torch.ones(COUNT), 120)),
    "of some": loader(sampler=SubsetRandomSampler(list(range(5, 70)))),
    "batch sampler": DataLoader(NUMBERED, batch_sampler=BatchSampler(SequentialSampler(NUMBERED), BATCH, False)),
    "a part": loader(Subset(NUMBERED, [*range(40), *range(20)]), shuffle=True),
    "parts joined": loader(ConcatDataset([NUMBERED, NUMBERED]), shuffle=True),
    "no batching": DataLoader(TensorDataset(NUMBERS.view(10, 8, 1).float(), NUMBERS.view(10, 8) // 8), batch_size=None),
    "a data set": NUMBERED,
    "a plain data set": Plain(),
    "a list of batches": listed(),
    "two tensors": (NUMBERS[:, None].float(), NUMBERS // 8),
    "a function": lambda: loader(shuffle=True),
    "a function of the seed": seeded,
    "a class": Plain,
    "a function that yields": lambda: iter(loader()),
    "a flowing data set": loader(Flowing(shuffle=False)),
}


@pytest.fixture
def own(monkeypatch):
    """Return a function that makes ``own:train`` of something, and ``own:val`` of another."""

    def put(train, val=None):
        module = type(sys)("own")
        module.train, module.val = train, val
        monkeypatch.setitem(sys.modules, "own", module)
        return samples.own_data("own:train", None if val is None else "own:val", None, 5)

    return put


def numbers(batches):
    return [int(number) for inputs, _ in batches for number in inputs.flatten()]


def trained_on(found, seed, steps=60):
    return numbers(found.train(seed, step) for step in range(1, steps + 1))


@pytest.mark.parametrize("kind", BY_SAMPLE)
def test_no_held_out_sample_is_ever_trained_on(kind, own):
    found = own(BY_SAMPLE[kind])
    held_out = set(numbers(found.validation()))
    assert held_out
    for seed in SEEDS:
        assert held_out.isdisjoint(trained_on(found, seed))
    again = own(BY_SAMPLE[kind])
    assert numbers(again.validation()) == numbers(found.validation())


@pytest.mark.parametrize("kind", BY_SAMPLE)
def test_all_others_are_trained_on(kind, own):
    found = own(BY_SAMPLE[kind])
    there = set(range(5, 70) if kind == "of some" else range(40) if kind == "a part" else range(COUNT))
    wanted = there - set(numbers(found.validation()))
    seen = set(trained_on(found, 1, steps=300))
    assert seen <= wanted
    assert len(seen) >= 0.98 * len(wanted)


@pytest.mark.parametrize("kind", BY_SAMPLE)
def test_a_batch_is_a_function_of_the_seed_and_the_step_alone(kind, own):
    """So a run that is resumed goes on with the batches that it would have had."""
    found = own(BY_SAMPLE[kind])
    straight = [found.train(1, step)[0] for step in range(1, 31)]
    found.train(2, 3)
    torch.rand(3)
    resumed = own(BY_SAMPLE[kind])
    assert all(torch.equal(straight[step - 1], resumed.train(1, step)[0]) for step in (17, 18, 19, 2, 30))
    assert torch.equal(resumed.train(1, 3)[0], straight[2])
    assert torch.equal(resumed.train(2, 3)[0], own(BY_SAMPLE[kind]).train(2, 3)[0])


@pytest.mark.parametrize(
    "kind", ["shuffled", "own generator", "workers", "a function of the seed", "a list of batches"]
)
def test_another_seed_gives_another_order(kind, own):
    found = own(BY_SAMPLE[kind])
    assert trained_on(found, 1) != trained_on(found, 2)


def test_an_order_that_is_not_shuffled_stays(own):
    found = own(loader())
    held_out = set(numbers(found.validation()))
    assert trained_on(found, 1, steps=9) == [n for n in range(COUNT) if n not in held_out]


def test_a_loader_keeps_its_batch_size_its_collate_function_and_its_last_batch(own):
    def collate(rows):
        return torch.stack([inputs for inputs, _ in rows]), torch.tensor([-1 for _ in rows])

    kept = own(loader(batch_size=7, collate_fn=collate))
    sizes = [len(kept.train(1, step)[1]) for step in range(1, 13)]
    assert sizes == [7] * 10 + [2, 7]
    assert kept.train(1, 1)[1].tolist() == [-1] * 7
    full = own(loader(batch_size=7, drop_last=True))
    assert {len(full.train(1, step)[1]) for step in range(1, 25)} == {7}
    assert len(samples.own_data("own:train", None, 4, 5).train(1, 1)[1]) == 4


def test_workers_make_the_batches_and_their_random_numbers_are_those_of_the_step(own):
    class Noisy(Plain):
        def __getitem__(self, number):
            assert torch.utils.data.get_worker_info() is not None or len(calls) < COUNT
            return torch.tensor([float(number), torch.rand(()), numpy.random.rand()]), 0

    calls = []
    one, two = (own(loader(Noisy(), shuffle=True, num_workers=workers)) for workers in (2, 0))
    calls.extend(range(COUNT))
    first = [one.train(3, step)[0] for step in range(1, 6)]
    calls.clear()
    assert all(torch.equal(first[step - 1], two.train(3, step)[0]) for step in (4, 5, 1))


def test_augmentation_leaves_the_models_random_numbers_alone(own):
    class Noisy(Plain):
        def __getitem__(self, number):
            return torch.rand(1), 0

    found = own(loader(Noisy()))
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    found.train(1, 1)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("kind", ["shuffled", "a plain data set", "a function of the seed"])
def test_every_class_is_held_out_where_data_are_sorted_by_class(kind, own):
    found = own(BY_SAMPLE[kind])
    labels = [int(label) for _, wanted in found.validation() for label in wanted]
    assert len(labels) in (8, 16)
    assert len(set(labels)) >= 8


def test_classes_of_parts_are_known_where_all_of_them_are():
    x, y = torch.zeros(4, 2), torch.tensor([3, 1, 2, 0])
    parts = [TensorDataset(x, y), Subset(TensorDataset(x, y), [3, 1])]
    assert samples._labels(ConcatDataset(parts)).tolist() == [3, 1, 2, 0, 0, 1]
    assert samples._labels(ConcatDataset([*parts, TensorDataset(x, x[:, 0])])) is None


@pytest.mark.parametrize(
    ("targets", "classes"), [([2, 0, 1.0], [2, 0, 1]), (["2", "0", "1"], [2, 0, 1]), ([0.5, 1.25, 2.0], None)]
)
def test_targets_in_a_list_are_classes_where_all_are_whole(targets, classes):
    data = TensorDataset(torch.zeros(3, 2), torch.zeros(3))
    data.targets = targets
    labels = samples._labels(data)
    assert (labels if labels is None else labels.tolist()) == classes


@pytest.mark.parametrize("count, batch", [(50, 16), (400, 64), (5000, 4)])
def test_a_split_has_as_much_of_each_class_as_all_have(count, batch):
    labels = torch.arange(count) % 7 // 3  # 3/7, 3/7 and 1/7 of them
    rows = data.held_out(count, batch, labels)
    held = labels[rows].bincount(minlength=3) / len(rows)
    torch.testing.assert_close(held, labels.bincount() / count, atol=1 / len(rows), rtol=0)
    assert len(rows) == max(int(0.1 * count), min(batch, count // 4))
    assert torch.equal(
        data.all_but(rows, count).sort().values, torch.tensor(sorted({*range(count)} - {*rows.tolist()}))
    )


@pytest.mark.parametrize("kind", ["digits", "text"])
def test_built_in_data_hold_out_what_they_never_train_on(kind):
    if kind == "digits":
        count = 200
        found = data.Images(torch.arange(count).float().view(-1, 1, 1, 1), torch.arange(count) // 20, 16, "here")
        held = [int(n) for images, _ in found.validation() for n in images.flatten()]
        batches = [found.train(seed, step)[0] for seed in SEEDS for step in range(1, 40)]
        assert torch.cat([labels for _, labels in found.validation()]).bincount().tolist() == [2] * 10
    else:
        count = 3000
        found = data.Tokens(torch.arange(count), 4, 16, 5, "here")
        held = [int(n) for rows in found.validation() for n in rows.flatten()]
        batches = [found.train(seed, step) for seed in SEEDS for step in range(1, 200)]
    seen = {int(n) for batch in batches for n in batch.flatten()}
    assert seen.isdisjoint(held)
    assert len(seen) >= 0.85 * count


@pytest.mark.parametrize(
    "made, said",
    [
        (loader(Flowing(shuffle=True)), "in another order each time"),
        (lambda: ((NUMBERS[i : i + 8],) for i in torch.randperm(72)), "in another order each time"),
        (lambda seed: iter(loader()), "takes a seed, by which its order changes"),
        (loader(sampler=Own()), "its sampler, Own, chooses samples in its own way"),
        (DataLoader(NUMBERED, batch_sampler=[[0, 1], [2, 3]]), "its batch sampler, list, chooses"),
        (lambda: itertools.cycle(loader()), "gives a sample that is held out once more, in batch"),
    ],
)
def test_what_cannot_be_split_is_refused_and_says_what_to_hand_in(made, said, own):
    with pytest.raises(ValueError, match=f"data 'own:train'.*{said}.*hand in held-out data with --val"):
        own(made)
    found = own(made, loader(TensorDataset(1000 + NUMBERS[:, None].float(), NUMBERS // 8)))
    assert set(numbers(found.validation())) == set(range(1000, 1000 + COUNT))


def test_batches_that_come_only_once_are_named(own):
    with pytest.raises(ValueError, match="only once; a list or a function gives them again"):
        own(iter(listed()))


def test_of_two_batches_one_is_held_out(own):
    found = own(lambda: iter(listed()[:2]))
    held_out, seen = numbers(found.validation()), trained_on(found, 1)
    assert sorted({*held_out, *seen}) == list(range(16))
    assert set(held_out).isdisjoint(seen)
    with pytest.raises(ValueError, match="gives 1 batches; at least 2 are needed, one to hold out"):
        own(lambda: iter(listed()[:1]))


def test_a_cycle_that_is_longer_than_what_is_looked_at_is_noticed_while_training(own, monkeypatch):
    monkeypatch.setattr(samples, "LOOKED_AT", 8)
    found = own(lambda: itertools.cycle(loader()))
    with pytest.raises(ValueError, match="held out once more, in batch 13"):
        trained_on(found, 1)


@pytest.mark.parametrize("train", [loader(shuffle=True), loader(sampler=Own()), lambda: iter(listed()), listed()])
@pytest.mark.parametrize("kind", ["loader", "data set", "batches"])
def test_held_out_data_may_be_named_apart(train, kind, own):
    apart = TensorDataset(500 + NUMBERS[:, None].float(), NUMBERS // 8)
    val = {"loader": loader(apart), "data set": apart, "batches": lambda: iter(loader(apart))}[kind]
    found = own(train, val)
    assert numbers(found.validation()) == list(range(500, 500 + COUNT))
    assert set(trained_on(found, 1, steps=12)) == set(range(COUNT))
    assert [b[0].tolist() for b in (found.train(1, 2), found.train(1, 9), found.train(1, 2))][::2] == [
        found.train(1, 2)[0].tolist()
    ] * 2


def test_held_out_data_that_are_trained_on_are_refused(own):
    with pytest.raises(ValueError, match="16 of 20 samples are among those that are trained on"):
        own(loader(Subset(NUMBERED, range(60))), loader(Subset(NUMBERED, range(44, 64))))
    with pytest.raises(ValueError, match="'own:train' are those that are trained on"):
        samples.own_data("own:train", "own:train", None, 5)


def test_text_may_have_held_out_text_of_its_own(tmp_path):
    (tmp_path / "a").mkdir()
    for name, letter in (("a/a.txt", "a"), ("b.txt", "b")):
        (tmp_path / name).write_text(letter * 500)
    given = settings(data=str(tmp_path / "a"), val=str(tmp_path / "b.txt"))
    found = tasks.load(given).data
    assert {*torch.cat(found.validation()).flatten().tolist()} == {ord("b")}
    assert {*torch.cat([found.train(1, step) for step in range(1, 99)]).flatten().tolist()} == {ord("a")}
    for val in (tmp_path / "a" / "a.txt", tmp_path / "a", tmp_path):
        with pytest.raises(ValueError, match="are among those that are trained on"):
            tasks.load(settings(data=str(tmp_path / "a"), val=str(val)))


@pytest.mark.parametrize("val", ["test", "hf:{}@test"])
def test_a_split_of_a_data_set_may_be_held_out(val, tmp_path):
    from datasets import Dataset, DatasetDict

    folder = tmp_path / "rows"
    splits = {"train": Dataset.from_dict({"text": ["a" * 500]}), "test": Dataset.from_dict({"text": ["b" * 200]})}
    DatasetDict(splits).save_to_disk(folder)
    found = tasks.load(settings(data=f"hf:{folder}", val=val.format(folder))).data
    assert {*torch.cat(found.validation()).flatten().tolist()} == {ord("b")}
    assert set(found.train(1, 1).flatten().tolist()) == {ord("a")}
    with pytest.raises(ValueError, match="has no split 'dev'; it has train, test"):
        tasks.load(settings(data=f"hf:{folder}", val="dev"))
    with pytest.raises(ValueError, match="are among those that are trained on"):
        tasks.load(settings(data=f"hf:{folder}", val="train"))


def test_a_module_that_draws_its_data_at_random_gives_every_process_the_same(tmp_path, monkeypatch):
    (tmp_path / "drawn_data.py").write_text("import torch, random\nx = torch.rand(3), [random.random()]\n")
    monkeypatch.chdir(tmp_path)
    found = []
    for _ in range(2):
        sys.modules.pop("drawn_data", None)
        torch.rand(1)
        found.append(data.resolve("drawn_data:x", "data"))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_is_stopped_and_resumed_trains_on_nothing_held_out(workers, tmp_path, monkeypatch):
    class Noting(torch.nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.first, self.norm, self.last = torch.nn.Linear(1, 4), norm(4), torch.nn.Linear(4, 10)

        def forward(self, x):
            (seen if self.training else held_out).update(x.flatten().int().tolist())
            return self.last(self.norm(self.first(x / COUNT)))

    seen, held_out = set(), set()
    module = type(sys)("noted")
    module.model, module.train = Noting, loader(shuffle=True, num_workers=workers)
    monkeypatch.setitem(sys.modules, "noted", module)
    tasks.load_task.cache_clear()
    given = {"model": "noted:model", "data": "noted:train", "batch": None, "steps": 30}
    whole = trained(tmp_path / "whole", run(steps=30), **given)
    steps = itertools.count(1)
    stopped = trained(tmp_path / "broken", run(steps=30), stop=lambda: next(steps) == 13, **given)
    assert stopped[-1]["status"] == "interrupted"
    assert losses(trained(tmp_path / "broken", run(steps=30), **given)) == losses(whole)
    for seed in SEEDS:
        trained(tmp_path / str(seed), run(steps=30, seed=seed), **given)
    assert len(held_out) == 8
    assert seen == set(range(COUNT)) - held_out


def test_a_run_whose_data_have_changed_is_not_resumed(tmp_path, monkeypatch):
    module = type(sys)("changing")
    module.model = lambda norm: torch.nn.Sequential(torch.nn.Linear(1, 4), norm(4), torch.nn.Linear(4, 10))
    monkeypatch.setitem(sys.modules, "changing", module)
    given = {"model": "changing:model", "data": "changing:train", "batch": None, "steps": 30}
    for first in (0, 100):
        tasks.load_task.cache_clear()
        module.train = loader(TensorDataset(first + NUMBERS[:, None].float(), NUMBERS // 8))
        steps = itertools.count(1)
        end = trained(tmp_path, run(steps=30), stop=lambda steps=steps: next(steps) == 13, **given)[-1]
    assert end["status"] == "crashed"
    assert "other samples are held out than when this run began" in end["error"]


class Random(Plain):
    """Samples with noise of a generator of their own, others each time."""

    noise = numpy.random.default_rng()

    def __getitem__(self, number):
        return torch.tensor([float(number) + self.noise.normal()]), number // 8


class Packed(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(1, 4), norm(4), torch.nn.Linear(4, 10)

    def forward(self, x, cuts=None):
        scores = self.last(self.norm(self.first(x)))
        return {"loss": scores.square().mean()} if cuts is not None else scores


@pytest.mark.parametrize(
    "make", [Random, lambda: [{"x": torch.full((8, 1), float(n)), "cuts": torch.tensor([0.0, n])} for n in range(9)]]
)
def test_random_data_and_batches_of_tensors_of_several_lengths_are_resumed(make, tmp_path, monkeypatch):
    """In another process, where all is read anew."""
    module = type(sys)("anew")
    module.model, module.train = Packed, make
    monkeypatch.setitem(sys.modules, "anew", module)
    given = {"model": "anew:model", "data": "anew:train", "batch": None, "steps": 30}
    for stop in (13, 0):
        tasks.load_task.cache_clear()
        steps = itertools.count(1)
        end = trained(tmp_path, run(steps=30), stop=lambda steps=steps, stop=stop: next(steps) == stop, **given)[-1]
    assert (end["status"], end["error"]) == ("done", None)
