"""Autograd's node in C++: in training, the bits and the manners of the Python functions that it stands in for."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import normkit as nk
from normkit import kernels, ops
from normkit.ops import eager, node, paths
from normkit.ops.row import Row
from normkit.surgery.recognition import ways

eager.refusal(torch.ones(1))  # the first look loads the library
pytestmark = pytest.mark.skipif(eager.node is None, reason="no node was built for this torch")

ROOT = Path(__file__).parents[2]
NODES = ("_RowNormBackward", "_PointwiseBackward")
RULES = {
    "layer norm": Row(center=True, eps=1e-5),
    "RMS norm": Row(),
    "Llama's": Row(cast="early"),
    "partial": Row(part=3),
    "magnitudes": Row(center=True, statistic="absolute", constant=1.25),
    "of zero sum": Row(statistic="zero-sum"),
}
TYPES = torch.float32, torch.bfloat16, torch.float16, torch.float64


def drawn(*shape, kind=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(kind).requires_grad_()


def row(rule):
    return lambda x, weight, bias: ops.row_norm(x, weight, bias, rule)


CALLS = {
    **{name: row(rule) for name, rule in RULES.items()},
    "derf": lambda x, weight, bias: ops.derf(x, weight[:1] * 0.5, bias[1], weight, bias),
    "dyt": lambda x, weight, bias: ops.dyt(x, weight[:1] * 0.5, weight, bias),
    "eln": lambda x, weight, bias: ops.eln(x, weight[:1].square(), weight, bias),
}


def without(call):
    def run(*inputs):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(eager, "node", None)
            patch.setattr(eager, "short_row", None)
            return call(*inputs)

    return run


def is_node(y):
    """Whether the node in C++ made it; Python's function of the same name has another class."""
    return y.grad_fn.name() in NODES and not isinstance(y.grad_fn, torch.autograd.function.BackwardCFunction)


def inputs(kind=torch.float32, shape=(3, 4, 65)):
    return drawn(*shape, kind=kind), drawn(shape[-1], seed=1), drawn(shape[-1], seed=2)


def gradients(call, given, sent=None):
    y = call(*given)
    wanted = [one for one in given if one is not None and one.requires_grad]
    return [y.detach(), *torch.autograd.grad(y, wanted, sent if sent is not None else drawn(*y.shape, seed=3).to(y))]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_results_and_gradients_have_the_bits_of_the_function_in_python(name, kind):
    for shape in ((7,), (1, 768), (3, 4, 65)):
        given = inputs(kind, shape)
        assert is_node(CALLS[name](*given)) == (
            name in RULES or kind != torch.float64
        )  # for which others have no kernel
        for ours, theirs in zip(gradients(CALLS[name], given), gradients(without(CALLS[name]), given), strict=True):
            assert torch.equal(ours, theirs)
            assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "scalenorm", "srmsnorm", "dyt", "derf", "eln"])
def test_modules_take_it(name):
    module = nk.create(name, 16)
    assert is_node(module(drawn(4, 16)))


@pytest.mark.parametrize("name", CALLS)
def test_absent_and_frozen_parameters(name):
    for weight, bias in ((True, False), (False, True), (False, False)):
        given = inputs()
        given[1].requires_grad_(weight), given[2].requires_grad_(bias)
        pairs = zip(gradients(CALLS[name], given), gradients(without(CALLS[name]), given), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    x = inputs()[0]
    rule = RULES["layer norm"]
    for call in (lambda x: ops.row_norm(x, None, None, rule), lambda x: ops.row_norm(x, x.detach()[0, 0], None, rule)):
        assert is_node(call(x))
        assert all(map(torch.equal, gradients(call, (x,)), gradients(without(call), (x,))))


@pytest.mark.parametrize("name", CALLS)
def test_only_what_is_asked_for_is_given(name):
    given = inputs()
    for one in given:
        sent = torch.ones(3, 4, 65)
        ours, theirs = (torch.autograd.grad(call(*given), one, sent) for call in (CALLS[name], without(CALLS[name])))
        assert torch.equal(ours[0], theirs[0])


@pytest.mark.parametrize(
    "sent", [lambda y: y.new_ones(()).expand_as(y), lambda y: torch.randn(65, 4, 3).permute(2, 1, 0).to(y)]
)
def test_gradients_of_other_strides(sent):
    given = inputs()
    sent = sent(CALLS["layer norm"](*given).detach())
    assert all(
        map(
            torch.equal, *(gradients(call, given, sent) for call in (CALLS["layer norm"], without(CALLS["layer norm"])))
        )
    )


@pytest.mark.parametrize("name", ["layer norm", "RMS norm", "Llama's", "derf", "dyt", "eln"])
def test_second_and_third_derivatives(name):
    def thrice(call):
        given = inputs(shape=(2, 5))
        first = torch.autograd.grad(call(*given).sin().sum(), given, create_graph=True)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), given, create_graph=True)
        third = torch.autograd.grad(sum(one.sin().sum() for one in second), given)
        return [*first, *second, *third]

    assert all(map(torch.equal, thrice(CALLS[name]), thrice(without(CALLS[name]))))


def test_gradcheck_to_the_second_order():
    given = inputs(torch.float64, (2, 5))
    given = given[0], given[1].detach().double().requires_grad_(), given[2].detach().double().requires_grad_()
    assert torch.autograd.gradcheck(CALLS["layer norm"], given)
    assert torch.autograd.gradgradcheck(CALLS["layer norm"], given)


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class Onlooker(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class Named(torch.Tensor):
    pass


AROUND = {
    "dispatch": Dispatched,
    "functions": Onlooker,
    "a watch": paths.watch,
    "the formula": paths.formula_only,
    "forward differentiation": forward_ad.dual_level,
    "a default device": lambda: torch.device("cpu"),
}


@pytest.mark.parametrize("mode", AROUND)
def test_a_mode_is_left_to_python_forward_and_backward(mode):
    given, call = inputs(), CALLS["layer norm"]
    wanted = gradients(call, given)
    with AROUND[mode]():
        y = call(*given)
        assert y.grad_fn is None or not is_node(y)
    y = call(*given)
    sent = drawn(*y.shape, seed=3)
    with AROUND[mode]():  # around the backward pass alone
        found = torch.autograd.grad(y, given, sent)
    assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(found, wanted[1:], strict=True))


def test_backward_passes_tell_who_watches_as_before():
    def told(call):
        y = call(*inputs())
        with paths.watch() as taken:
            y.sum().backward()
        return taken

    for name in ("layer norm", "derf"):
        assert told(CALLS[name]) == told(without(CALLS[name]))
        assert len(told(CALLS[name])) == 1


def test_a_dispatch_mode_around_a_backward_pass_sees_operations():
    class Seen(TorchDispatchMode):
        names = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names = {*self.names, str(func)}
            return func(*args, **kwargs or {})

    y = CALLS["layer norm"](*inputs())
    with Seen() as seen:
        y.backward(torch.ones_like(y))
    assert any("rsqrt" in name for name in seen.names)


@pytest.mark.parametrize("name", ["layer norm", "dyt"])
def test_transforms_and_compilers_trace_the_formula(name):
    given, call = inputs(shape=(4, 8)), CALLS[name]
    plain = tuple(one.detach() for one in given)

    def loss(*given):
        return call(*given).sin().sum()

    wanted = torch.autograd.grad(loss(*given), given)
    for found in (
        torch.func.grad(loss, argnums=(0, 1, 2))(*plain),
        torch.autograd.grad(torch.compile(loss, backend="aot_eager", fullgraph=True)(*given), given),
    ):
        assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(found, wanted, strict=True))
    rows = torch.vmap(lambda x: call(x, *plain[1:]))(plain[0])
    assert torch.allclose(rows, call(*plain), atol=1e-6)
    by_jacobian = torch.func.jacrev(lambda x: call(x, *plain[1:]))(plain[0]).shape
    assert by_jacobian == (4, 8, 4, 8)
    _, tangent = torch.func.jvp(lambda x: call(x, *plain[1:]), (plain[0],), (torch.ones(4, 8),))
    step = 1e-3
    assert torch.allclose(tangent, (call(plain[0] + step, *plain[1:]) - call(*plain)) / step, atol=2e-2)


def test_a_batch_of_gradients():
    given = inputs(shape=(4, 8))
    sent = torch.eye(32).view(32, 4, 8)
    found, wanted = (
        torch.autograd.grad(call(*given), given, sent, is_grads_batched=True)
        for call in (CALLS["layer norm"], without(CALLS["layer norm"]))
    )
    assert all(torch.allclose(ours, theirs, atol=1e-6) for ours, theirs in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", ["layer norm", "RMS norm", "derf"])
@pytest.mark.parametrize("compiler", [lambda graph: graph, torch.compile(backend="eager")], ids=["traced", "compiled"])
def test_compiled_autograd(name, compiler):
    from torch._dynamo import compiled_autograd

    def run(call, rows):
        given = inputs(shape=(rows, 8))
        y = (call(*given) * 2).sin().sum()
        with compiled_autograd._enable(compiler):
            y.backward()
        return [one.grad for one in given]

    for rows in (4, 4, 5):
        given = inputs(shape=(rows, 8))
        wanted = torch.autograd.grad((CALLS[name](*given) * 2).sin().sum(), given)
        assert all(map(torch.allclose, run(CALLS[name], rows), wanted))


def test_export():
    module = nk.LayerNorm(8)
    program = torch.export.export(module, (torch.randn(4, 8),))
    assert all("normkit" not in str(node.target) for node in program.graph.nodes)


def test_fake_tensors_and_subclasses():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        y = nk.LayerNorm(8)(torch.empty(4, 8, requires_grad=True))
        y.sum().backward()
    assert tuple(y.shape) == (4, 8)
    x = drawn(4, 8).detach().as_subclass(Named).requires_grad_()
    assert not is_node(nk.LayerNorm(8)(x))


def test_dtensors(tmp_path):
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/meeting")
    try:
        mesh = init_device_mesh("cpu", (1,))
        x = drawn(4, 8)
        spread = distribute_tensor(x.detach(), mesh, [Shard(0)]).requires_grad_()
        module = nk.LayerNorm(8, elementwise_affine=False)
        y = module(spread)
        assert isinstance(y, DTensor)
        y.sin().sum().backward()
        module(x).sin().sum().backward()
        assert torch.allclose(spread.grad.full_tensor(), x.grad, atol=1e-6)
    finally:
        distributed.destroy_process_group()


def test_hooks_on_tensors_and_nodes():
    def seen(call):
        given, order = inputs(), []
        y = call(*given)
        y.retain_grad()
        y.register_hook(lambda grad: order.append("tensor") or grad * 2)
        y.grad_fn.register_prehook(lambda grads: order.append("before"))
        y.grad_fn.register_hook(lambda ours, theirs: order.append(("after", len(ours), len(theirs))))
        given[1].register_post_accumulate_grad_hook(lambda one: order.append("accumulated"))
        y.sum().backward()
        return order[:2] + order[3:], y.grad, *(one.grad for one in given)

    (order, *found), (wanted_order, *wanted) = seen(CALLS["layer norm"]), seen(without(CALLS["layer norm"]))
    assert order == wanted_order
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("name", ["layer norm", "derf"])
def test_hooks_on_saved_tensors(name):
    def saved(call):
        packed, unpacked = [], []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x: packed.append((tuple(x.shape), x.dtype)) or x.clone(),
            lambda x: unpacked.append(tuple(x.shape)) or x,
        )
        given = inputs()
        with hooks:
            y = call(*given)
        y.sum().backward()
        return packed, unpacked, [one.grad for one in given]

    ours, theirs = saved(CALLS[name]), saved(without(CALLS[name]))
    assert ours[:2] == theirs[:2]
    assert all(map(torch.equal, ours[2], theirs[2]))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(reentrant):
    given, call = inputs(), CALLS["layer norm"]
    wanted = gradients(call, given)
    y = checkpoint(call, *given, use_reentrant=reentrant)
    y.backward(drawn(*y.shape, seed=3).detach())
    assert all(map(torch.equal, [one.grad for one in given], wanted[1:]))


def test_saved_tensors_on_disk_or_moved():
    given = inputs()
    with torch.autograd.graph.save_on_cpu():
        y = CALLS["layer norm"](*given)
    y.sum().backward()
    assert all(
        map(torch.equal, [one.grad for one in given], gradients(CALLS["layer norm"], given, torch.ones(3, 4, 65))[1:])
    )


def test_anomaly_mode_names_the_call():
    given = inputs()
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        y = CALLS["layer norm"](*given)
        assert any("test_node" in line for line in y.grad_fn.metadata["traceback_"])
        y.register_hook(lambda grad: grad * float("nan"))
        y = y.sum()
        with pytest.warns(UserWarning, match="RowNormBackward"), pytest.raises(RuntimeError, match="_RowNormBackward"):
            y.backward()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_autocast(kind):
    def run(call):
        given = inputs()
        with torch.autocast("cpu", kind):
            y = call(given[0] @ given[0].transpose(1, 2) @ given[0], *given[1:])
        y.float().sin().sum().backward()
        return [y, *(one.grad for one in given)]

    assert all(map(torch.equal, run(CALLS["layer norm"]), run(without(CALLS["layer norm"]))))
    assert run(CALLS["layer norm"])[0].dtype == kind


def test_inference_mode():
    given = inputs()
    with torch.inference_mode():
        y = CALLS["layer norm"](*given)
        x = given[0] + 0
    assert y.is_inference()
    assert torch.equal(y, CALLS["layer norm"](*given))
    with pytest.raises(RuntimeError, match="nference tensors cannot be saved for backward"):
        CALLS["layer norm"](x, *given[1:])


def test_what_was_freed_or_changed_is_an_error():
    given = inputs()
    y = CALLS["layer norm"](*given)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    y = CALLS["layer norm"](*given)
    with torch.no_grad():
        given[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = CALLS["layer norm"](*given)
    given[0].untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="released or made smaller"):
        y.sum().backward()


def test_no_gradient_is_one_of_zeros():
    given = inputs()

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return None

    for call in (CALLS["layer norm"], without(CALLS["layer norm"])):
        grads = torch.autograd.grad(Nothing.apply(call(*given)), given, torch.ones(3, 4, 65), allow_unused=True)
        assert [None if one is None else float(one.abs().sum()) for one in grads] == [0.0] * 3


def test_results_may_be_changed_in_place():
    given = inputs()
    y = CALLS["layer norm"](*given)
    y.mul_(3)
    y.sum().backward()
    wanted = torch.autograd.grad(CALLS["layer norm"](*given), given, torch.full((3, 4, 65), 3.0))
    assert all(map(torch.equal, [one.grad for one in given], wanted))


def test_threads():
    given = inputs(shape=(64, 65))
    wanted = gradients(CALLS["layer norm"], given)
    right = []

    def run():
        for _ in range(50):
            right.append(all(map(torch.equal, gradients(CALLS["layer norm"], given), wanted)))

    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert right == [True] * 200


def test_nothing_is_held_once_a_graph_is_gone():
    import gc
    import weakref

    given = inputs()
    x, rule = given[0] * 1, Row(eps=3e-3)
    y = ops.row_norm(x, *given[1:], rule)
    held = weakref.ref(x)
    count = sys.getrefcount(rule)
    y.sum().backward()
    del x, y
    gc.collect()
    assert held() is None
    assert sys.getrefcount(rule) < count


SCRIPT = """
import pathlib, torch, normkit as nk
from normkit import kernels
from normkit.ops import eager, node
{patch}
x, norm = torch.ones(2, 8).cumsum(1).requires_grad_(), nk.LayerNorm(8)
norm(x).backward(torch.eye(2, 8))
y = norm(x)
y.backward(torch.eye(2, 8))
print(eager.node is not None, type(y.grad_fn).__module__ == "torch.autograd.function")
print(y.tolist(), x.grad.tolist(), norm.weight.grad.tolist(), norm.bias.grad.tolist())
"""
PATCHES = {
    "no file": "node.path = lambda: pathlib.Path('nowhere/node.so')",
    "a file that is no library": f"node.path = lambda: pathlib.Path({__file__!r})",
    "no kernels": "kernels.LIBRARY = pathlib.Path('nowhere')",
}


def run(patch):
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(patch=patch)], capture_output=True, text=True)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("patch", PATCHES)
def test_where_none_fits_python_takes_its_place(patch):
    (loaded, numbers), (wanted, wanted_numbers) = run(PATCHES[patch]), run("")
    assert wanted == "True False"
    if patch == "no kernels":  # the formula, whose last bits differ
        assert loaded == "False False"
    else:
        assert (loaded, numbers) == ("False True", wanted_numbers)


def test_kernels_of_another_version_are_refused(monkeypatch):
    library = kernels.cpu()
    monkeypatch.setitem(library._records, "row_forward", library._records["row_backward"])
    with pytest.raises(ImportError, match="another version"):
        library.node(node.usable(), ())


def test_recognition_sees_that_a_backward_pass_is_written_by_hand():
    assert ways._by_hand(nk.LayerNorm(8)(drawn(4, 8)) * 2)
    assert not ways._by_hand(torch.nn.LayerNorm(8)(drawn(4, 8))[0].view(2, 4) * 2)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_small_addition_before_the_norm_has_the_bits_of_both_in_one_call(rule, kind):
    """In half precision a sum of gradients would be rounded twice: there one call does both."""
    x, residual = drawn(4, 65, kind=kind, seed=1), drawn(4, 65, kind=kind, seed=2)
    gains = drawn(65, seed=3), drawn(65, seed=4)

    def call(*inputs):
        return ops.add_row_norm(*inputs, RULES[rule])

    results = [run(x, residual, *gains) for run in (call, without(call))]
    slopes = [
        torch.autograd.grad(ys, (x, residual, *gains), [torch.ones_like(y) * y.detach() for y in ys]) for ys in results
    ]
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    for one, other in zip(*slopes, strict=True):
        assert torch.equal(one, other)
    by_node = kind not in (torch.bfloat16, torch.float16)
    assert (results[0][1].grad_fn.name() == "AddBackward0") == by_node
    assert (results[0][0].grad_fn.name() == NODES[0]) == by_node
