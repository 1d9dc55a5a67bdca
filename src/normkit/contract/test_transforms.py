"""Contract, transforms: compile, export, autocast, functorch."""

import collections
import copy
import io
import operator

import pytest
import torch
from torch.utils._pytree import tree_leaves

import normkit as nk
from normkit.contract import subject
from normkit.contract.subject import FLOATING, METHODS, build, counting, draw, outputs


@pytest.fixture
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


SEEN = set()  # what the graphs of earlier methods call
OWN = torch._ops.OperatorBase, torch._ops.OpOverloadPacket
MANY = 8  # calls of a graph that are traced together in the time of one by itself


def derived(graph, inputs):
    """Trace the backward pass of each call that no earlier graph of this process makes.

    Torch derives one call after the other, so calls of the same function of torch's are traced once. What is none of
    torch's has a backward pass of its own, which may go other ways each time: its graph is traced whole, and always. So
    is one in which something is written over for the first time, or in which a call by itself cannot be traced, or is
    given sizes of which some are fixed: each would become a size that may change.
    """
    calls = [node for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    first = [*{node.target: node for node in reversed(calls) if node.target not in SEEN}.values()]
    SEEN.update(node.target for node in calls)
    own = any(isinstance(node.target, OWN) for node in calls)
    if own or any(map(writes, first)) or any(map(takes_fixed_sizes, first)) or MANY * len(first) > len(calls):
        return traced(graph, inputs)
    try:
        return apart(graph, [node for node in first if tensors(node)])
    except Exception:
        return traced(graph, inputs)


def traced(graph, inputs):
    return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)


def writes(node):
    """Whether a call changes what it is given, or how torch goes on."""
    name = getattr(node.target, "__name__", node.target)
    return (
        name == "setitem"
        or name.startswith("_")
        or name.endswith("_")
        or not {"out", "inplace"}.isdisjoint(node.kwargs)
    )


def tensors(node):
    return [value for value in tree_leaves(node.meta["example_value"]) if torch.is_tensor(value)]


def takes_fixed_sizes(node):
    """Whether a call is given sizes of which some are fixed."""
    given = tree_leaves([value.meta["example_value"] for value in node.all_input_nodes])
    return any(not x.node.expr.free_symbols if isinstance(x, torch.SymInt) else isinstance(x, int) for x in given)


def apart(graph, nodes):
    """A copy of a graph of which some calls are traced, each by itself."""
    graph, names = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph)), {node.name for node in nodes}
    for node in [node for node in graph.graph.nodes if node.name in names]:
        graph.add_submodule(f"traced_{node.name}", Alone(node))
        with graph.graph.inserting_before(node):
            call = graph.graph.call_module(f"traced_{node.name}", tuple(node.all_input_nodes))
        call.meta = node.meta
        node.replace_all_uses_with(call)
        graph.graph.erase_node(node)
    graph.recompile()
    return graph


class Alone(torch.nn.Module):
    """A call, traced by itself."""

    def __init__(self, node):
        super().__init__()
        inner, result = torch.fx.Graph(), node.meta["example_value"]
        own = {value: inner.placeholder(value.name) for value in node.all_input_nodes}
        call = inner.node_copy(node, own.__getitem__)
        self.several = isinstance(result, tuple | list)
        parts = range(len(result)) if self.several else ()
        inner.output(tuple(inner.call_function(operator.getitem, (call, at)) for at in parts) or (call,))
        given = [value.meta["example_value"] for value in own]
        given = [x.detach().requires_grad_(x.requires_grad) if torch.is_tensor(x) else x for x in given]
        self.call = traced(torch.fx.GraphModule({}, inner), given)

    def forward(self, *inputs):
        results = self.call(*inputs)
        return results if self.several else results[0]


ANY_SIZE = ("... C", "N C *", "N C H W")
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


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.line("compile", "batches")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", METHODS)
def test_compiles_to_one_graph_for_all_batch_sizes(name, mode):
    """And for all instances, with the gradients of training.

    Sizes are symbols from the start: those that another batch changes, and all of several inputs, which checks compare.
    """
    if mode == "eval" and name not in FIRST and not reads_mode(name):
        pytest.skip("evaluation is the same graph")
    train = mode == "train"
    whole = name in FIRST or any(line.split()[0] == "compile" for line in nk.card(name).exempt)
    graphs = counting("eager" if not train else "aot_eager" if whole else derived)
    inputs = draw(name)
    every = [[*range(x.dim())] for x in inputs]
    compiled = Compiled(graphs, every if nk.card(name).inputs else differing(inputs, draw(name, batch=6)))
    first, second = build(name, train=train), build(name, train=train)
    for module, batch in [(first, 4), (second, 4), (second, 6), (first, 7), (second, 9)]:
        compiled.agrees(module, draw(name, batch=batch))
    assert graphs.frame_count == 1, "another instance or batch size makes a new graph"


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.line("compile", "widens")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", FIRST)
def test_a_graph_of_one_batch_size_is_followed_by_one_of_all(name, mode):
    """As where nobody says which sizes will change; a new width may make one more."""
    train = mode == "train"
    graphs = counting("eager")
    compiled, module = Compiled(graphs), build(name, train=train)
    wide, width = (module, 8) if nk.card(name).inputs else (build(name, 12, train=train), 12)
    compiled.agrees(module, draw(name))
    compiled.agrees(wide, draw(name, width, batch=6))
    for batch in (6, 7, 9):
        compiled.agrees(module, draw(name, batch=batch))
    assert graphs.frame_count <= (2 if wide is module else 3), "a new batch size makes a new graph"


def differing(some, others):
    """The axes, by input, in which inputs differ in size."""
    pairs = zip(some, others, strict=True)
    return [[axis for axis in range(a.dim()) if a.shape[axis] != b.shape[axis]] for a, b in pairs]


class Compiled:
    """A compiled call of any module, whose inputs may change in some axes from the start."""

    def __init__(self, backend, axes=()):
        self.axes = axes
        self.call = torch.compile(lambda module, *inputs: module(*inputs), backend=backend, fullgraph=True)

    def agrees(self, module, inputs):
        """Compare outputs, gradients and what is kept with those of the module itself."""
        own = subject.fresh(module)
        got, want = subject.run(Called(self, module), inputs), subject.run(own, inputs)
        subject.close(got[:2], want[:2])
        subject.close({n.removeprefix("module."): g for n, g in got[2].items()}, want[2])
        subject.close(subject.state(module), subject.state(own))

    def __call__(self, module, *inputs):
        for x, axes in zip(inputs, self.axes or [[]] * len(inputs), strict=True):
            torch._dynamo.maybe_mark_dynamic(x, axes)
        return self.call(module, *inputs)


class Called(torch.nn.Module):
    """A module that is called by a function."""

    def __init__(self, call, module):
        super().__init__()
        self.call, self.module = call, module

    def forward(self, *inputs):
        return self.call(self.module, *inputs)


@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.line("compile", "instances")
@pytest.mark.parametrize("name", FIRST)
def test_instances_of_several_widths_share_graphs(name):
    """Fifty of one method of each kind; the others' share theirs where batch sizes are tested."""
    counter = counting("eager")
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
    free = free_axes(name, inputs)
    program = subject.export(module, inputs, (dict.fromkeys(free, torch.export.Dim.DYNAMIC),) if free else None)
    subject.close(outputs(program.module()(*inputs)), outputs(module(*inputs)))
    if free:
        larger = inputs[0].repeat([1 + (axis in free) for axis in range(inputs[0].dim())])
        subject.close(outputs(program.module()(larger)), outputs(module(larger)))
    if is_saved(name, program):
        subject.close(outputs(loaded(program).module()(*inputs)), outputs(module(*inputs)))


@pytest.mark.line("export", "train")
@pytest.mark.parametrize("name", METHODS)
def test_its_export_in_training_loads_and_moves_the_same_buffers(name):
    module, inputs = build(name), draw(name)
    if name not in FIRST and not [*module.buffers()]:
        pytest.skip("training is the same graph")
    program = subject.export(subject.fresh(module), inputs)
    again = (loaded(program) if is_saved(name, program) else program).module()
    subject.close(outputs(again(*inputs)), outputs(module(*inputs)))
    subject.close(subject.state(again), subject.state(module))


def is_saved(name, program):
    """Whether a program is read from a file: the first of a kind, or a graph that calls graphs, some of which do not
    load. torch saves no named tuple.
    """
    if program.call_spec.out_spec.type is collections.namedtuple:
        return False
    return name in FIRST or any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in program.graph.nodes)


def loaded(program):
    """A program as its file has it."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def free_axes(name, inputs):
    """All axes but the channels where a norm has rows or images for its only input: one export is for all sizes."""
    card = nk.card(name)
    if card.kind.name != "norm" or card.inputs or not any(card.shape == shape for shape in ANY_SIZE):
        return []
    return [axis for axis in range(inputs[0].dim()) if axis != (inputs[0].dim() - 1 if card.shape.features_last else 1)]


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


@pytest.mark.parametrize("name", FLOATING)
def test_functional_gradient_and_jvp_of_parameters(name):
    """The gradient of training, which moves the buffers that are passed; the derivative in evaluation."""
    module, inputs = build(name), tuple(draw(name))
    trained, moved = subject.fresh(module), subject.state(module)

    def loss(parameters, buffers, of=module):
        returned = torch.func.functional_call(of, (parameters, buffers), inputs)
        return sum((o.double() ** 2).sum() for o in outputs(returned))

    learned = {key: value for key, value in trained.named_parameters() if value.requires_grad}
    torch.manual_seed(0)
    value = loss({}, {}, trained)
    if not learned or not value.requires_grad:
        pytest.skip("nothing is learned")
    want = torch.autograd.grad(value, [*learned.values()], allow_unused=True, materialize_grads=True)
    parameters = {key: value.detach() for key, value in learned.items()}
    torch.manual_seed(0)
    got = torch.func.grad(loss)(parameters, moved)
    subject.close([*got.values()], [*want])
    subject.close(moved, subject.state(trained))

    module.eval()
    slopes = torch.func.grad(loss)(parameters, subject.state(module))
    ones = {key: torch.ones_like(value) for key, value in parameters.items()}
    _, tangent = torch.func.jvp(lambda p: loss(p, subject.state(module)), (parameters,), (ones,))
    subject.close(tangent, sum(slope.sum() for slope in slopes.values()))
