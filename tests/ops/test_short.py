"""The short ways into the row kernel: the bits of the ordinary way, and None to all that is not plainly their own."""

import copy
import gc
import pickle
import random
import struct
import sys
from contextlib import ExitStack

import pytest
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import normkit as nk
from normkit import kernels, ops
from normkit.ops import eager, node, paths
from normkit.ops.row import Row

eager.refusal(torch.ones(1))  # the first look loads the library
pytestmark = pytest.mark.skipif(
    eager.short_row is None, reason="no short way: no kernels, no Python.h, or an old torch"
)

RULES = {
    "layer norm": Row(center=True, eps=1e-5),
    "RMS norm": Row(),
    "Gemma's": Row(offset=1.0),
    "Llama's": Row(cast="early"),
    "partial": Row(part=3),
    "a length": Row(eps_place="floor", scale=2.0),
    "magnitudes": Row(center=True, statistic="absolute", constant=1.25),
    "the largest": Row(statistic="maximum"),
    "of zero sum": Row(statistic="zero-sum"),
}
TYPES = torch.float32, torch.bfloat16, torch.float16, torch.float64


NODE, C = "autograd's node", "C"
way = C


@pytest.fixture(autouse=True, params=[C, NODE])
def _each_way(request, monkeypatch):
    if request.param == NODE and eager.node is None:
        pytest.skip("no node was built for this torch")
    monkeypatch.setitem(globals(), "way", request.param)


def enter(*call):
    return eager.node.row(*call, Row().pull) if way == NODE else eager.short_row(*call)


def short(x, weight=None, bias=None, rule=RULES["layer norm"], shape=None):
    with torch.no_grad():
        return enter(x, weight, bias, rule.bare_plan, shape)


def ordinary(*call):
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(eager, "short_row", None)
        patch.setattr(eager, "node", None)
        return ops.row_norm(*call)


def numbers(*shape, kind=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(kind)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_the_bits_are_those_of_the_ordinary_way(rule, kind):
    for shape in ((7,), (1, 768), (2, 1, 5), (3, 4, 65)):
        x, gains = numbers(*shape, kind=kind), numbers(shape[-1])
        for weight, bias in ((None, None), (gains, None), (gains.to(kind), gains), (torch.nn.Parameter(gains), gains)):
            found = short(x, weight, bias, RULES[rule], shape[-1:])
            assert torch.equal(found, ordinary(x, weight, bias, RULES[rule], shape[-1:]))
            assert (found.dtype, found.stride(), type(found)) == (kind, x.stride(), torch.Tensor)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_small_addition_before_the_norm_has_the_bits_of_the_ordinary_way(rule, kind, monkeypatch):
    if way == NODE:
        pytest.skip("it has no part in it")
    x, gains, taken = 3 * numbers(3, 4, 65, kind=kind), numbers(65), []
    residual, run = numbers(4, 3, 65, kind=kind).transpose(0, 1).contiguous(), eager.short_row
    monkeypatch.setattr(eager, "node", None)
    with torch.no_grad():
        monkeypatch.setattr(eager, "short_row", lambda *call: taken.append(run(*call)) or taken[-1])
        found = ops.add_row_norm(x, residual, gains, gains, RULES[rule])
        monkeypatch.setattr(eager, "short_row", None)
        wanted = ops.add_row_norm(x, residual, gains, gains, RULES[rule])
    assert found[0] is taken[-1]
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize(
    "transformed",
    [
        lambda call, x: torch.func.grad(lambda x: call(x, x)[0].square().sum())(x),
        lambda call, x: torch.func.vmap(call, in_dims=(0, None))(x[None], x)[0][0],
        lambda call, x: torch.func.jvp(lambda x: call(x, x)[0], (x,), (x + 1,))[1],
    ],
    ids=["grad", "vmap", "jvp"],
)
@pytest.mark.parametrize("graded", [True, False])
def test_a_small_addition_before_the_norm_goes_through_functorch(transformed, graded):
    """Its tensors have no memory that could be asked for."""
    x = numbers(3, 5)

    def formula(x, residual):
        total = x + residual
        return torch.nn.functional.rms_norm(total, (5,), eps=1e-6), total

    with torch.set_grad_enabled(graded):
        found, wanted = (transformed(call, x) for call in (ops.add_row_norm, formula))
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("watched", [paths.watch, paths.formula_only])
def test_a_small_addition_is_one_call_for_who_watches(watched):
    x = numbers(3, 5)
    with watched(), paths.watch() as taken, torch.no_grad():
        ops.add_row_norm(x, x)
    assert [path.op for path in taken] == ["add_row_norm"]


@pytest.mark.parametrize("weight", [torch.tensor(3.0), torch.tensor([3.0])], ids=["a number", "a vector of one"])
def test_a_single_gain_serves_a_row(weight):
    for x in (numbers(3, 8), numbers(3, 1)):
        assert torch.equal(short(x, weight), ordinary(x, weight, None, RULES["layer norm"]))


@pytest.mark.parametrize("name", ["layernorm", "rmsnorm", "scalenorm", "srmsnorm", "l1-layernorm"])
def test_modules_take_it_in_inference_and_only_there(name, monkeypatch):
    module, x, taken = nk.create(name, 16), numbers(4, 16), []
    wanted = module(x).detach()
    run = eager.short_row
    monkeypatch.setattr(eager, "node", None)
    monkeypatch.setattr(eager, "short_row", lambda *call: taken.append(run(*call)) or taken[-1])
    with torch.inference_mode():
        found = module(x)
    assert taken[-1] is found
    assert found.is_inference()
    assert torch.equal(found, wanted)
    module(x)
    assert taken[-1] is None  # in grad mode


class Named(torch.Tensor):
    pass


class Onlooker(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class Dispatched(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


X, W = numbers(4, 8), numbers(8)
LAZY = torch.view_as_complex(numbers(4, 8, 2)).conj().imag
NOT_ITS_OWN = {
    "a subclass": lambda: short(X.as_subclass(Named)),
    "a subclass as gain": lambda: short(X, W.as_subclass(Named)),
    "no tensor": lambda: short([1.0, 2.0]),
    "a gain that is no tensor": lambda: short(X, 1.0),
    "nothing to normalize": lambda: short(torch.tensor(1.0)),
    "no rows": lambda: short(X[:0]),
    "no entries": lambda: short(X[:, :0]),
    "columns": lambda: short(X.T),
    "every other entry": lambda: short(X[:, ::2]),
    "one row, stretched": lambda: short(X[:1].expand(4, 8)),
    "a gain with gaps": lambda: short(X, numbers(16)[::2]),
    "whole numbers": lambda: short(X.int()),
    "complex numbers": lambda: short(X.to(torch.complex64)),
    "eight bits": lambda: short(X.to(torch.float8_e4m3fn)),
    "a gain of whole numbers": lambda: short(X, W.int()),
    "no memory": lambda: short(X.to("meta")),
    "a gain without memory": lambda: short(X, W.to("meta")),
    "a sparse input": lambda: short(X.to_sparse()),
    "a sparse gain": lambda: short(X, W.to_sparse()),
    "a blocked layout": lambda: short(X.to_mkldnn()),
    "a nested tensor": lambda: short(torch.nested.nested_tensor([X, X[:2]])),
    "zeros that are nowhere": lambda: short(torch._efficientzerotensor((4, 8))),
    "a lazily negated input": lambda: short(LAZY[:1, :1]),
    "a lazily negated gain": lambda: short(X[:, :1], LAZY[0, :1]),
    "a storage that was given back": lambda: short(emptied()),
    "a part of a storage that was given back": lambda: short(emptied(8, start=4)),
    "a gain in a storage that was given back": lambda: short(X, emptied(2, start=1).view(8)),
    "a storage that was made smaller": lambda: short(emptied(4, left=127)),
    "a size that overflows": lambda: short(X, shape=(2**64,)),
    "a long gain": lambda: short(X, numbers(9)),
    "a gain of two axes": lambda: short(X, numbers(1, 8)),
    "a gain of two axes, of one entry": lambda: short(X, numbers(1, 1)),
    "a short bias": lambda: short(X, W, numbers(7)),
    "a bias of one entry": lambda: short(X, W, numbers(1)),
    "a bias without axes": lambda: short(X[:, :1], None, torch.tensor(1.0)),
    "another size": lambda: short(X, shape=(9,)),
    "two axes": lambda: short(X, shape=(4, 8)),
    "no axes": lambda: short(X, shape=()),
    "a size in words": lambda: short(X, shape=("8",)),
    "a list of sizes": lambda: short(X, shape=[8]),
    "a part beyond the row": lambda: short(X, rule=Row(part=9)),
    "a plan that is cut": lambda: planned(RULES["layer norm"].bare_plan[:-1]),
    "a plan that is too long": lambda: planned(RULES["layer norm"].bare_plan + b"\0"),
    "no plan": lambda: planned(None),
    "an unknown statistic": lambda: planned(struct.pack("8i2q4d", 0, 9, *[0] * 8, 1e-6, 1, 0, 1)),
    "too few arguments": lambda: enter(X),
    "too many arguments": lambda: enter(X, None, None, Row().bare_plan, None, None),
    "grad mode": lambda: None if way == NODE else enter(X, W, None, Row().bare_plan, None),
    "one that watches": lambda: within(paths.watch()),
    "the formula asked for": lambda: within(paths.formula_only()),
    "a function mode": lambda: within(Onlooker()),
    "a default device": lambda: within(torch.device("cpu")),
    "a dispatch mode": lambda: within(Dispatched()),
    "forward differentiation": lambda: within(forward_ad.dual_level()),
    "vmap": lambda: torch.vmap(told)(X),
    "functionalization": lambda: torch.func.functionalize(told)(X),
    "a trace": lambda: torch.jit.trace(told, X, check_trace=False)(X),
}


def emptied(rows=4, left=0, start=0):
    x = numbers(rows, 8)[start:]
    x.untyped_storage().resize_(left)
    return x


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_what_a_signal_raises_in_a_call_is_raised(error):
    def struck():
        raise error("struck")

    def prepare(*unusual):
        if way == NODE:
            kernels.cpu().node(node.usable(), unusual)
        else:
            kernels.cpu().python.prepare(torch.Tensor, torch.nn.Parameter, torch.empty_like, unusual)

    prepare(struck)
    try:
        with pytest.raises(error, match="struck"):
            short(X)
    finally:
        prepare(*(eager._UNUSUAL if way == C else (paths.watching,)))
    assert short(X) is not None


def planned(plan):
    with torch.no_grad():
        return enter(X, None, None, plan, None)


def within(around):
    with around:
        return short(X)


def told(x):
    """Nothing, to a transform that wants a tensor, if the short way said None."""
    assert short(x) is None
    return x.new_zeros(x.shape)


@pytest.mark.parametrize("what", NOT_ITS_OWN)
def test_it_leaves_to_the_ordinary_way(what):
    found = NOT_ITS_OWN[what]()
    assert found is None or not found.any()


def test_what_random_calls_get_is_what_the_ordinary_way_gives():
    draw = random.Random(0)
    sizes = (1, 2, 8, 9)
    others = [None, 1.0, "x", (8,), X, X.T, W.as_subclass(Named), LAZY, W.to("meta"), emptied(), X.int(), X[:0]]
    plans = [rule.bare_plan for rule in RULES.values()]
    taken = 0

    def tensor(*shape):
        kind = draw.choice(TYPES)
        return draw.choice(others) if draw.random() < 0.1 else numbers(*shape, kind=kind)

    for _ in range(2000):
        size = draw.choice(sizes)
        x = tensor(*draw.choices(sizes, k=draw.randrange(3)), size)
        weight, bias = (draw.choice([None, tensor(draw.choice([size, size, 1, 3]))]) for _ in "wb")
        rule, shape = draw.choice(list(RULES.values())), draw.choice([None, (size,), (size,), (9,)])
        found = short(x, weight, bias, rule, shape)
        if found is not None:
            taken += 1
            assert torch.equal(found, ordinary(x, weight, bias, rule, shape))
        elif draw.random() < 0.2:  # a plan that is noise is refused, or one of some other norm
            plan = bytearray(draw.choice(plans))
            plan[draw.randrange(len(plan))] = draw.randrange(256)
            planned(bytes(plan))
    assert 300 < taken < 1500


def test_nothing_is_held_after_a_call():
    x, weight, rule, shape = numbers(2, 8), numbers(8), RULES["layer norm"], (8,)
    held = x, weight, rule.bare_plan, shape, eager._UNUSUAL, None
    calls = [(x, weight, None), (x, weight, weight[:3]), (x.T, None, None), (x, "weight", None)]
    gc.collect()
    before = [sys.getrefcount(one) for one in held[:-1]]
    blocks = sys.getallocatedblocks()
    for _ in range(200):
        for call in calls:
            short(*call, rule, shape)
    assert [sys.getrefcount(one) for one in held[:-1]] == before
    assert sys.getallocatedblocks() - blocks < 100


def test_a_used_rule_travels_as_its_fields():
    rule = Row(eps=1e-4)
    assert isinstance(rule.bare_plan, bytes)
    for twin in (pickle.loads(pickle.dumps(rule)), copy.deepcopy(rule)):
        assert set(vars(twin)) == set(Row.__dataclass_fields__)
        assert twin == rule
        assert twin.bare_plan == rule.bare_plan


def test_hooks_see_what_they_saw():
    module, seen = nk.LayerNorm(8).eval(), []
    module.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    module.register_forward_hook(lambda module, given, result: seen.append(result))
    with ExitStack() as around:
        around.enter_context(torch.no_grad())
        result = module(X)
    assert seen[0] is result
    assert torch.equal(result, ordinary(X + 1, module.weight, module.bias, module.rule, (8,)))


def test_the_kernels_are_asked_to_run_where_they_are_loaded():
    told = kernels.status()
    assert told.live == (kernels.cpu() is not None)
    assert (told.isa is None) == (told.reason is not None) == (not told.live)
