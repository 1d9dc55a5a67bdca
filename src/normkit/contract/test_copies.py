"""Contract, copies: used, then pickled into a fresh process, copied without the original, or shared by eight threads.

What might crash happens in a process of its own, so that a crash is a failure of the method that it is about.
"""

import copy
import functools
import gc
import sys
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import torch
from torch.utils._pytree import tree_leaves

import normkit as nk
from normkit.contract import subject
from normkit.contract.elsewhere import Elsewhere
from normkit.contract.subject import build, draw, methods, outputs
from normkit.contract.values import over
from normkit.kinds import OPTIMIZER
from normkit.kinds.module import ModuleKind

THREADS, TURNS = 8, 2
SWITCHES = 24  # at most, from a call to one of another thread
BATCHES = (4, 2, 7, 3, 5, 6)
METHODS = methods(lambda kind: "copies" in kind.lines)


def used(name):
    """A method in float32 after a training step and two calls in evaluation, of other shapes."""
    torch.manual_seed(0)  # for what it draws
    if not isinstance(nk.card(name).kind, ModuleKind):
        made = nk.card(name).kind.subject(nk.card(name), dtype=torch.float32)
        made.call(*made.inputs)
        return made.made
    module = build(name, dtype=torch.float32)
    subject.run(module, draw(name, dtype=torch.float32))
    for batch in BATCHES[:2]:
        called(module.eval(), given(name, batch))
    module.zero_grad(set_to_none=True)
    return module


def given(name, batch):
    """Inputs of a size of their own; for an optimizer gradients, which have the size of what it steps."""
    card = nk.card(name)
    if card.kind is OPTIMIZER:
        return card.kind.subject(card, dtype=torch.float32, seed=batch).inputs
    return draw(name, batch=batch, dtype=torch.float32, seed=batch)


def called(made, inputs):
    """Results, and the gradients of the inputs; those of the parameters are left alone, which threads would share."""
    torch.manual_seed(0)  # for what it draws
    if isinstance(made, torch.optim.Optimizer):
        return stepped(made, inputs), []
    inputs = [i.clone().requires_grad_(i.is_floating_point()) for i in inputs]
    results = [o for o in outputs(made(*inputs)) if o.is_floating_point()]
    leaves = [i for i in inputs if i.requires_grad]
    sources = [o for o in results if o.requires_grad]
    sent = [torch.ones_like(o) for o in sources]
    grads = torch.autograd.grad(sources, leaves, sent, allow_unused=True) if leaves else ()
    return [o.detach() for o in results], list(grads)


def stepped(optimizer, gradients):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
    return [p.detach().clone() for p in parameters]


def pickled(name, file):
    """What another process saved after use."""
    return [called(torch.load(file, weights_only=False), given(name, batch)) for batch in BATCHES[:3]]


def copied(name, file):
    """What is left of a copy when the original is gone and its memory has been given to others."""
    original = used(name)
    kept = [copy.deepcopy(original) for _ in BATCHES[:3]]
    del original
    gc.collect()
    others = [used(name) for _ in range(3)]
    results = [called(made, given(name, batch)) for made, batch in zip(kept, BATCHES, strict=False)]
    del others
    return results


def threaded(name, file):
    """The results of threads that are not those of one thread alone: of eight at once, and of one within another."""
    module = used(name)
    inputs = {batch: given(name, batch) for batch in BATCHES}
    alone = {batch: called(module, inputs[batch]) for batch in BATCHES}

    def work(thread):
        turns = [BATCHES[(thread + step) % len(BATCHES)] for step in range(TURNS)]
        return [(thread, batch) for batch in turns if not same(called(module, inputs[batch]), alone[batch])]

    # torch lets a new thread's first product or transform run on all cores, whatever the count was set to
    with ThreadPoolExecutor(THREADS, initializer=torch.set_num_threads, initargs=(torch.get_num_threads(),)) as pool:
        mismatches = [mismatch for every in pool.map(work, range(THREADS)) for mismatch in every]
        return mismatches or interrupted(module, inputs, alone, pool)


def interrupted(module, inputs, alone, pool):
    """The lines of a module at which a call by another thread changes what either call gives.

    Threads that are left to chance seldom meet between two such lines.
    """
    parts = {id(part) for part in module.modules()} if isinstance(module, torch.nn.Module) else set()
    one, other = BATCHES[:2]

    def passed(stop=None):
        """The lines that a call passes, and at one of them the result of the call in between."""
        lines, between = [], []

        def line(frame, event, arg):
            if event == "line":
                lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
                if len(lines) == stop:
                    sys.settrace(None)
                    between.append(pool.submit(called, module, inputs[other]))
                    wait(between, timeout=1)  # for a lock that the first call holds it waits until that ends
            return line

        def call(frame, event, arg):
            outside = id(frame.f_locals.get("self")) not in parts or frame.f_globals["__name__"].startswith("torch.")
            return None if outside else line

        sys.settrace(call)
        try:
            got = called(module, inputs[one])
        finally:
            sys.settrace(None)
        changed = not same(got, alone[one]) or any(not same(each.result(), alone[other]) for each in between)
        return lines, changed

    lines, _ = passed()
    stops = range(1, len(lines) + 1, -(-len(lines) // SWITCHES) or 1)
    return [lines[stop - 1] for stop in stops if passed(stop)[1]]


def same(got, want):
    pairs = zip(tree_leaves(got), tree_leaves(want), strict=True)
    if all(b is None or torch.equal(a, b) for a, b in pairs if a is not b):
        return True
    try:  # what is NaN in both is the same
        subject.close(got, want, rtol=0, atol=0)
    except AssertionError:
        return False
    return True


WAYS = {"pickled": pickled, "copied": copied, "threaded": threaded}


def work(name, way, file):
    return WAYS[way](name, file)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    process = Elsewhere(work, tmp_path_factory.mktemp("copies"))
    yield process
    process.stop()


@functools.lru_cache(maxsize=1)
def uncopied(name):
    """What a copy must give; the ways to copy a method are tried one after the other."""
    return [called(used(name), given(name, batch)) for batch in BATCHES[:3]]


@pytest.mark.line("copies")
@pytest.mark.parametrize("name", METHODS)
@over(way=["pickled", "copied"])
def test_a_used_method_survives_as_a_copy(name, way, elsewhere, tmp_path):
    if way == "pickled":
        torch.save(used(name), tmp_path / "used.pt")
    [got] = elsewhere.ask(name, way, str(tmp_path / "used.pt"))
    subject.close(got, uncopied(name), rtol=0, atol=0)


@pytest.mark.line("threads")
@pytest.mark.parametrize("name", methods(lambda kind: "threads" in kind.lines))
def test_eight_threads_give_the_bits_of_one(name, elsewhere):
    assert elsewhere.ask(name, "threaded", "") == [[]]
