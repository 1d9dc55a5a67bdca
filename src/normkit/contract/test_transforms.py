"""Contract, transforms: compile, export, autocast, functorch."""

import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.testing import CompileCounterWithBackend

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import FLOATING, METHODS, build, draw, outputs


@pytest.fixture(autouse=True)
def _fresh_compiler(monkeypatch):
    monkeypatch.setattr(torch._dynamo.guards, "profile_guard_manager", lambda *given: 0.0, raising=False)  # for its log
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


FIRST = {nk.card(name).kind.name: name for name in reversed(METHODS)}.values()  # a method of each kind


def reads_mode(name):
    """Whether a call asks if it is in training; if not, one compiled graph serves both modes."""
    module = build(name)
    for part in module.modules():
        del part.training
    try:
        module(*draw(name))
    except AttributeError as error:
        return "training" in str(error)
    return False


class Graphs:
    """A backend that counts its graphs; the second, of any batch size, gets a backward as in training if asked to."""

    def __init__(self, train):
        self.train, self.count = train, 0

    def __call__(self, graph, inputs):
        self.count += 1
        return lookup_backend("aot_eager" if self.train and self.count == 2 else "eager")(graph, inputs)


@pytest.mark.line("compile", "batches")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", METHODS)
def test_compiles_to_one_graph_for_all_batch_sizes(name, mode):
    """And for all instances; where several inputs differ in size, symbols below stand for widths."""
    if mode == "eval" and name not in FIRST and not reads_mode(name):
        pytest.skip("evaluation is the same graph")
    train = mode == "train"
    graphs = Graphs(train)
    first, second = build(name, train=train), build(name, train=train)

    @torch.compile(backend=graphs, fullgraph=True)
    def call(module, *inputs):
        return module(*inputs)

    def agrees(module, width, batch):
        own, inputs = subject.fresh(module), draw(name, width, batch=batch)
        got, want = subject.run(Called(call, module), inputs), subject.run(own, inputs)
        subject.close(got[:2], want[:2])
        subject.close({n.removeprefix("module."): g for n, g in got[2].items()}, want[2])
        subject.close(subject.state(module), subject.state(own))

    agrees(first, 8, 4)
    agrees(second, 8, 4)
    assert graphs.count == 1, "another instance makes a new graph"
    widens = train and not nk.card(name).inputs
    agrees(build(name, 12, train=train) if widens else second, 12 if widens else 8, 6)
    for module, batch in [(second, 6), (first, 7), (second, 9)]:
        agrees(module, 8, batch)
    assert graphs.count <= (3 if widens else 2), "a new batch size makes a new graph, or a new width several"


class Called(torch.nn.Module):
    """A module that is called by a function."""

    def __init__(self, call, module):
        super().__init__()
        self.call, self.module = call, module

    def forward(self, *inputs):
        return self.call(self.module, *inputs)


@pytest.mark.line("compile", "symbols")
@pytest.mark.parametrize("name", METHODS)
def test_compiles_for_inputs_whose_sizes_are_symbols_from_the_start(name):
    if not nk.card(name).inputs:
        pytest.skip("has one input, of whose sizes no check compares two")
    module, inputs = build(name, train=False), draw(name)
    compiled = torch.compile(module, backend="eager", fullgraph=True, dynamic=True)
    subject.close(outputs(compiled(*inputs)), outputs(module(*inputs)))


@pytest.mark.line("compile", "instances")
@pytest.mark.parametrize("name", FIRST)
def test_instances_of_several_widths_share_graphs(name):
    """Fifty of one method of each kind; the others' share theirs where batch sizes are tested."""
    counter = CompileCounterWithBackend("eager")
    widths = [4, 8, 12, 16, 20, 24, 28, 32]

    @torch.compile(backend=counter, fullgraph=True)
    def call(module, *inputs):
        return module(*inputs)

    for index in range(50):
        width = widths[index % len(widths)]
        call(build(name, width, train=False), *draw(name, width))
    assert counter.frame_count <= len(widths)


@pytest.mark.line("export")
@pytest.mark.parametrize("name", METHODS)
def test_exports(name):
    module, inputs = build(name, train=False), draw(name)
    program = torch.export.export(module, tuple(inputs))
    subject.close(outputs(program.module()(*inputs)), outputs(module(*inputs)))


@pytest.mark.parametrize("name", METHODS)
def test_autocast_keeps_the_type_and_the_numbers(name):
    module = build(name, dtype=torch.float32, train=False)
    inputs = draw(name, dtype=torch.float32)
    want = outputs(module(*inputs))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = outputs(module(*inputs))
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        # a layer with a matrix product or convolution inside runs it in bfloat16
        subject.close(a, b, rtol=2**-5, atol=2**-5 * b.abs().max().item())


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", METHODS)
def test_a_trace_gives_the_same_numbers(name):
    module, inputs = build(name, train=False), draw(name)
    traced = torch.jit.trace(module, tuple(inputs), check_trace=False)
    subject.close(outputs(traced(*inputs)), outputs(module(*inputs)))


@pytest.mark.line("vmap", "loop")
@pytest.mark.parametrize("name", FLOATING)
def test_vmap_equals_a_loop(name):
    module = build(name, train=False)
    several = [torch.stack(same) for same in zip(*(draw(name, seed=s) for s in range(3)), strict=True)]
    if any(not s.is_floating_point() for s in several):
        several = [s if s.is_floating_point() else s[:1].expand_as(s) for s in several]
    axes = tuple(0 if s.is_floating_point() else None for s in several)
    given = [s if s.is_floating_point() else s[0] for s in several]
    got = outputs(torch.func.vmap(module, in_dims=axes)(*given))
    for index in range(3):
        want = outputs(module(*(s[index] if a == 0 else s for s, a in zip(given, axes, strict=True))))
        for a, b in zip(got, want, strict=True):
            subject.close(a[index], b)


@pytest.mark.line("vmap", "gradient")
@pytest.mark.parametrize("name", FLOATING)
def test_functional_gradient_and_jvp(name):
    module = build(name, train=False)
    inputs = draw(name)
    first = subject.first_floating(inputs)
    x = inputs[first]

    def loss(x):
        given = [*inputs[:first], x, *inputs[first + 1 :]]
        return sum((o.double() ** 2).sum() for o in outputs(module(*given)))

    variable = x.clone().requires_grad_(True)
    (want,) = torch.autograd.grad(loss(variable), variable)
    subject.close(torch.func.grad(loss)(x), want)
    direction = torch.ones_like(x)
    _, tangent = torch.func.jvp(loss, (x,), (direction,))
    subject.close(tangent, (want * direction).sum())
