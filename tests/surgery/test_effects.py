"""What a module keeps besides its tensors is told in words that change when it does, and only then."""

import functools
import random
import threading
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

from normkit.surgery.recognition import effects
from normkit.surgery.recognition.effects import DEEP, FEW, describe


def drawn(generator, draws):
    for _ in range(draws):
        generator.random()
    return generator


def of_torch(draws):
    generator = torch.Generator().manual_seed(3)
    torch.rand(draws, generator=generator)
    return generator


KINDS = {
    "word": lambda n: "abc"[n],
    "number": lambda n: 1.0 + n,
    "type": lambda n: (torch.float32, torch.float64)[n],
    "list": lambda n: [4, n],
    "tuple": lambda n: (4, [n]),
    "values": lambda n: {"calls": n},
    "keys": lambda n: {n: "calls"},
    "set": lambda n: {"a", str(n), "b"},
    "frozen set": lambda n: frozenset(("a", n)),
    "tensor": lambda n: torch.tensor([0.0, n]),
    "tensor's type": lambda n: torch.zeros(2, dtype=(torch.float32, torch.float64)[n]),
    "tensor's shape": lambda n: torch.zeros((2, 1, 2)[n : n + 2]),
    "as many as are read": lambda n: torch.zeros(FEW).index_fill_(0, torch.tensor(7), n),
    "torch's chance": of_torch,
    "python's chance": lambda n: drawn(random.Random(3), n),
    "numpy's chance": lambda n: drawn(numpy.random.default_rng(3), n),
    "object": lambda n: SimpleNamespace(calls=n),
    "call": lambda n: functools.partial(len, n),
    "call's words": lambda n: functools.partial(len, n=n),
    "module": lambda n: nn.Dropout(0.1 * n),
    "else": lambda n: range(n),
}


@pytest.mark.parametrize("kind", KINDS)
def test_two_values_are_reported_alike_where_they_are_alike(kind):
    make = KINDS[kind]
    one, same, other = make(0), make(0), make(1)
    assert describe(one) == describe(same) != describe(other)


def test_classes_of_objects_functions_and_large_tensors_are_distinguished():
    class Other(SimpleNamespace):
        pass

    many = torch.zeros(FEW + 1)
    before = describe(many)
    assert describe(many) == before != describe(many.clone())
    many.add_(1)
    assert describe(many) != before
    assert describe(SimpleNamespace(a=1)) != describe(Other(a=1))
    assert describe(len) == describe(len) != describe(max)
    assert describe(lambda: 1) != describe(lambda: 1)
    assert describe(torch.zeros(3, device="meta"))[:2] == ("torch.float32", (3,))


AROUND = {
    "list": lambda value: [value],
    "tuple": lambda value: (0, value),
    "value": lambda value: {"a": value},
    "key": lambda value: {value: "a"},
    "set": lambda value: {value},
    "call": lambda value: [functools.partial(len, value)],
}


@pytest.mark.parametrize("around", AROUND)
def test_what_lies_too_deep_is_reported_by_its_identity(around):
    steps = {"call": 3}.get(around, 1)  # the list, the tuple of its parts, and that of its arguments
    one, same = tuple(range(2)), tuple(range(2))
    assert one is not same
    wrap = AROUND[around]
    assert describe(wrap(one), steps + 1) == describe(wrap(same), steps + 1)
    assert describe(wrap(one), steps) != describe(wrap(same), steps)
    assert describe(wrap(one), steps) == describe(wrap(one), steps)


def test_the_attributes_of_an_object_count_as_two_steps():
    one, same = tuple(range(2)), tuple(range(2))
    assert describe(SimpleNamespace(a=one), 3) == describe(SimpleNamespace(a=same), 3)
    assert describe(SimpleNamespace(a=one), 2) != describe(SimpleNamespace(a=same), 2)
    inside = SimpleNamespace(a=[1])
    inside.itself = [inside]
    before = describe(inside)
    inside.a.append(2)
    assert describe(inside) != before


def test_as_many_steps_are_taken_as_are_said():
    for steps, alike in ((DEEP - 1, True), (DEEP, False)):
        one, same = (functools.reduce(lambda value, _: [value], range(steps), tuple(range(1))) for _ in range(2))
        assert (describe(one) == describe(same)) is alike


CALLS, SEEN, NOTES = 0, [1], {"a": 1}


def count(n, noted={}, *, more=[]):  # noqa: B006
    global CALLS
    CALLS += n
    SEEN.append(n)
    NOTES["b"] = n
    noted[n], _ = n, more.append(n)


def notes():
    within, items = 0, []

    def note(n):
        nonlocal within
        within += n
        items.append(n)
        return within, items

    return note


class Counts(nn.Module):
    calls, every, some = 0, [], {1}

    note = staticmethod(notes())

    def __init__(self):
        super().__init__()
        self.own = 0

    def forward(self, x):
        count(1)
        self.note(1)
        self.own += 1
        Counts.calls += 1
        Counts.every.append(1)
        Counts.some.add(2)
        return x


OUTSIDE = {
    "CALLS", "SEEN", "NOTES", "within", "items", "Counts.calls", "Counts.every", "Counts.some",
    "default 0 of count", "default 1 of count",
}  # fmt: skip


def test_all_that_a_call_leaves_outside_is_seen_and_put_back():
    module = Counts()
    before = effects.with_classes(module)
    with effects.undone(module):
        module(torch.ones(1))
        now = effects.with_classes(module)
        assert {name for name in now if now[name] != before.get(name)} == OUTSIDE | {".own"}
    assert module.own == 1  # a copy is probed, which has its own
    module.own = 0
    assert effects.with_classes(module) == before
    assert (CALLS, SEEN, NOTES, Counts.calls, Counts.every, Counts.some) == (0, [1], {"a": 1}, 0, [], {1})
    assert (count.__defaults__, count.__kwdefaults__) == (({},), {"more": []})
    assert Counts.note(2) == (2, [2])


LOCK, MANY = {"lock": threading.Lock()}, {"many": torch.ones(FEW + 1)}


class Locked(nn.Module):
    def forward(self, x):
        with LOCK["lock"]:
            return x + MANY["many"][0]


def test_what_a_call_leaves_alone_is_no_copy_afterwards_and_need_not_be_one_that_can_be_copied():
    lock, many = LOCK["lock"], MANY["many"]
    with effects.undone(Locked()):
        Locked()(torch.ones(1))
    assert LOCK["lock"] is lock
    assert MANY["many"] is many


def test_torchs_own_classes_keep_nothing_outside():
    assert effects.with_classes(nn.LayerNorm(3)) == effects.attributes(nn.LayerNorm(3))
    assert set(effects.attributes(nn.LayerNorm(3))) == {".normalized_shape", ".eps", ".elementwise_affine"}


def test_a_copy_that_is_another_is_reported_by_what_became_another():
    class Odd(nn.Dropout):
        pass

    one = nn.Sequential(nn.Dropout(0.1), nn.Identity())
    assert effects.differs_as_copy(one, nn.Sequential(nn.Dropout(0.1), nn.Identity())) is None
    assert effects.differs_as_copy(one, nn.Sequential(nn.Dropout(0.2), nn.Identity())) == "0.p becomes another"
    assert effects.differs_as_copy(one, nn.Sequential(Odd(0.1), nn.Identity())) == "0 becomes a Odd"
    assert effects.differs_as_copy(nn.Dropout(0.1), Odd(0.1)) == "it becomes a Odd"
    assert effects.differs_as_copy(nn.Dropout(0.1), nn.Dropout(0.1).eval()) is None
