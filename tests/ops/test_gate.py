"""The gate between Python and C: what C refuses, plans that outlive their module and process, and the paths told."""

import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch

import normkit as nk
from normkit import kernels, ops
from normkit.ops import paths
from normkit.ops.rope import turns_of

live = pytest.mark.skipif(not kernels.status().live, reason=str(kernels.status().reason))
F32, BF16, F64 = 1, 2, 4


def numbers(*shape):
    return torch.linspace(-1, 2, steps=torch.Size(shape).numel()).view(shape)


def row(rows=3, x=24, weight=8, y=24, stats=3, **changed):
    plan = {"center": 0, "statistic": 0, "place": 0, "early": 0, "x_type": F32, "weight_type": F32, "bias_type": 0}
    plan |= {"shared": 0, "dim": 8, "part": 8, "eps": 1e-6, "constant": 1.0, "offset": 0.0, "scale": 1.0} | changed
    arrays = numbers(x), None, numbers(weight) if weight else None, None, None, numbers(y), numbers(stats)
    return "row_forward", kernels.ROW.pack(*plan.values()), rows, *arrays


def row_back(rows=3, grad=24, stats=3, dbias=None, dweight=8):
    plan, rows, x, _, weight = row(rows)[1:6]
    made = numbers(24), numbers(dweight), dbias
    return "row_backward", plan, rows, x, numbers(grad), None, weight, numbers(stats), *made


def turned(x=48, angle=12, y=48, weight=None, sizes=(1, 2, 3), strides=(48, 24, 8), angles=(0, 0, 4), **changed):
    plan = {
        **dict.fromkeys(["center", "statistic", "place", "early"], 0),
        "x_type": F32,
        "weight_type": 0,
        "bias_type": 0,
    }
    plan |= {"shared": 0, "dim": 8, "part": 8, "eps": 1e-6, "constant": 1.0, "offset": 0.0, "scale": 1.0} | changed
    turning = kernels.TURNING.pack(1, 0, *sizes, *strides * 3, *angles)
    return (
        "rotate_forward",
        kernels.ROW.pack(*plan.values()),
        turning,
        numbers(x),
        weight,
        None,
        numbers(angle),
        numbers(angle),
        numbers(y),
        None,
    )


def point(rows=3, x=24, alpha=1, weight=8, y=24, **changed):
    plan = {"function": 1, "x_type": F32, "alpha_type": F32, "shift_type": 0, "weight_type": F32, "bias_type": 0}
    plan |= {"by_row": 0, "dim": 8, "width": 8, "scale": 1.0} | changed
    arrays = numbers(x), numbers(alpha), None, numbers(weight), None, numbers(y)
    return "point_forward", kernels.POINT.pack(*plan.values()), rows, *arrays


def channel(samples=2, x=48, weight=4, moments=8, state=None, y=48, **changed):
    plan = {"statistic": 1, "activation": 0, "over_samples": 0, "last": 0, "x_type": F32, "weight_type": F32}
    plan |= {
        "bias_type": 0,
        "extra_type": 0,
        "channels": 4,
        "groups": 2,
        "space": 6,
        "eps": 1e-5,
        "decay": 0.0,
    } | changed
    arrays = numbers(x), numbers(weight), None, None, numbers(moments).double(), state, numbers(y)
    return "channel_forward", kernels.CHANNEL.pack(*plan.values()), samples, *arrays


def channel_back(samples=2, dweight=4, grad=48):
    plan, samples, x, weight = channel(samples)[1:5]
    given = x, numbers(grad), weight, None, None, numbers(8).double(), None
    return "channel_backward", plan, samples, *given, numbers(48), numbers(dweight), None, None, None


REFUSED = {
    "an unknown type": (row(x_type=5), "an element type"),
    "no type": (row(x_type=0), "an element type"),
    "an unknown type of weight": (row(weight_type=-1), "an element type"),
    "an unknown statistic": (row(statistic=4), "the rule"),
    "an unknown place of eps": (row(place=3), "the rule"),
    "rounding at every step": (row(early=3), "the rule"),
    "a part of a maximum": (row(statistic=2, part=4), "the rule"),
    "no entries a row": (row(dim=0, part=0), "a size"),
    "fewer than no rows": (row(rows=-3), "a size"),
    "a part beyond the row": (row(part=9), "a size"),
    "rows that overflow": (row(rows=2**62), "a size"),
    "no rows of a length that overflows": (row(rows=0, x=0, weight=0, y=0, stats=0, dim=2**62, part=8), "a size"),
    "no samples of channels that overflow": (channel(samples=0, x=0, y=0, channels=2**62, groups=4), "a size"),
    "no rows of features that overflow": (point(rows=0, x=0, y=0, dim=2**62, width=8, by_row=1), "a size"),
    "rows beyond memory": (row(rows=2**50), "a size"),
    "fewer entries than rows": (row(x=23), "x of 92 bytes"),
    "a short weight": (row(weight=7), "weight of 28 bytes"),
    "a weight of a type, but none": (row(weight=0), "weight of 0 bytes"),
    "a weight of no type": (row(weight_type=0), "weight of 32 bytes"),
    "a short single weight": (row(shared=1), "weight of 32 bytes"),
    "a short result": (row(y=23), "y of 92 bytes"),
    "a result of too many": (row(y=25), "y of 100 bytes"),
    "too few statistics": (row(center=1), "stats of 12 bytes"),
    "a short gradient": (row_back(grad=16), "grad of 64 bytes"),
    "no statistics": (row_back(stats=0), "stats of 0 bytes"),
    "a gradient for no bias": (row_back(dbias=numbers(8)), "dbias of 32 bytes"),
    "a short gradient of weight": (row_back(dweight=1), "dweight of 4 bytes"),
    "an odd head": (turned(dim=7, part=7), "a size"),
    "a head beyond the block": (turned(dim=514, part=514), "a size"),
    "no heads": (turned(sizes=(1, 0, 3)), "a size"),
    "fewer than no heads": (turned(sizes=(-1, 2, -3)), "a size"),
    "heads beyond x": (turned(x=47), "x of 188 bytes"),
    "strides beyond x": (turned(strides=(48, 25, 8)), "x of 192 bytes"),
    "strides back": (turned(strides=(48, -24, 8)), "x of 192 bytes"),
    "strides that overflow": (turned(strides=(2**62, 2**62, 2**62)), "x of 192 bytes"),
    "angles that end": (turned(angle=11), "cos of 44 bytes"),
    "floats that are no halves": (row(x_type=BF16), "x of 96 bytes"),
    "floats that are no doubles": (row(x_type=F64), "x of 96 bytes"),
    "a gain of another type": (row(weight_type=F64), "weight of 32 bytes"),
    "a turn of a maximum": (turned(statistic=2), "the rule"),
    "a short turned result": (turned(y=47), "y of 188 bytes"),
    "an unknown function": (point(function=7), "the rule"),
    "a function of doubles": (point(x_type=F64), "an element type"),
    "no width": (point(width=0, dim=0), "a size"),
    "a width that is not the features": (point(width=4), "a size"),
    "rows that are no whole images": (point(by_row=1), "the number of groups"),
    "two alphas": (point(alpha=2), "alpha of 8 bytes"),
    "a short gain of features": (point(weight=7), "weight of 28 bytes"),
    "groups that do not divide": (channel(groups=3), "the number of groups"),
    "no groups": (channel(groups=0), "the number of groups"),
    "fewer than no groups": (channel(groups=-1), "the number of groups"),
    "more groups than channels": (channel(groups=8), "the number of groups"),
    "groups over samples": (channel(over_samples=1), "the number of groups"),
    "samples over channels last": (channel(over_samples=1, groups=4, last=1), "the rule"),
    "groups of shares": (channel(statistic=3), "the number of groups"),
    "an unknown activation": (channel(activation=4), "the rule"),
    "a threshold without one": (channel(activation=1), "the rule"),
    "no channels": (channel(channels=0, groups=0), "a size"),
    "no space": (channel(space=0), "a size"),
    "space that overflows": (channel(space=2**62), "a size"),
    "too few moments": (channel(moments=4), "moments of 32 bytes"),
    "moments of positions": (channel(statistic=4), "moments of 64 bytes"),
    "running moments without a state": (channel(statistic=5, groups=4, moments=32), "state of 0 bytes"),
    "a short channel gain": (channel(weight=3), "weight of 12 bytes"),
    "a short channel gradient": (channel_back(grad=47), "grad of 188 bytes"),
    "a short gradient of gains": (channel_back(dweight=3), "dweight of 12 bytes"),
}
TAKEN = [
    row(),
    row(weight_type=0, weight=0),
    row_back(),
    turned(),
    point(),
    channel(),
    channel(groups=4, moments=16),
    channel_back(),
]
TAKEN += [
    row(rows=0, x=0, y=0, stats=0),
    row(center=1, stats=9),
    row(statistic=3, stats=6),
    row(shared=1, weight=1),
    point(by_row=1, dim=3, weight=3),
]


@live
@pytest.mark.parametrize("what", REFUSED)
def test_c_refuses_what_does_not_fit(what):
    (name, *record), words = REFUSED[what]
    with pytest.raises(ValueError, match=f"{name}: the kernel refuses {words}"):
        getattr(kernels.cpu(), name)(*record)


def released(*shape, rows=4):
    x = torch.randn(2 * rows, *shape)[rows:]
    x.untyped_storage().resize_(0)
    return x


@live
def test_a_storage_that_was_released_or_made_smaller_is_named():
    layer, flat = nk.LayerNorm(32), torch.ones(64)
    layer.weight.data = flat[32:]
    short = torch.randn(8, 32)
    short.untyped_storage().resize_(4 * 8 * 31)
    for grad in (torch.enable_grad(), torch.no_grad()):
        with grad:
            for x in (released(32), short):
                with pytest.raises(ValueError, match=r"row_forward: x .* released or made smaller"):
                    layer(x)
                with pytest.raises(ValueError, match=r"residual .* released or made smaller"):
                    ops.add_rms_norm(torch.ones_like(x), x)
            with pytest.raises(ValueError, match="the kernel refuses x"):
                ops.rotate(released(2, 6, 8), turns_of(numbers(6, 8)))
    flat.untyped_storage().resize_(0)
    for grad in (torch.enable_grad(), torch.no_grad()):
        with grad, pytest.raises(ValueError, match="weight has 128 bytes at 128 of a storage that holds 0"):
            layer(torch.ones(4, 32))
    flat.untyped_storage().resize_(256)


@live
@pytest.mark.parametrize("record", TAKEN, ids=lambda record: record[0])
def test_c_takes_what_fits(record):
    name, *record = record
    getattr(kernels.cpu(), name)(*record)


@live
def test_no_number_of_a_plan_can_end_the_process():
    plans = {"row_forward": kernels.ROW, "row_backward": kernels.ROW, "rotate_forward": kernels.ROW}
    plans |= {"point_forward": kernels.POINT, "channel_forward": kernels.CHANNEL, "channel_backward": kernels.CHANNEL}
    refused = 0
    for name, plan, *record in TAKEN:
        good = plans[name].unpack(plan)
        for place, value in enumerate(good):
            for other in (-1, 0, 1, 3, 7, 2**31 - 1, 2**40):
                if isinstance(value, float) or (other > 2**31 and plans[name].format[0] == "8" and place < 8):
                    continue
                try:
                    changed = plans[name].pack(*good[:place], other, *good[place + 1 :])
                except Exception:  # an int32 that 2**40 is too large for
                    continue
                try:
                    getattr(kernels.cpu(), name)(changed, *record)
                except ValueError:
                    refused += 1
    assert refused > 200


MODULES = {
    "rmsnorm": (8, (3, 8)),
    "layernorm": (8, (3, 8)),
    "dyt": (8, (3, 8)),
    "eln": (8, (3, 8)),
    "batchnorm": (8, (3, 8, 5)),
    "groupnorm": (8, (3, 8, 5), {"num_groups": 2}),
    "frn": (8, (3, 8, 4, 4)),
    "onlinenorm": (8, (3, 8, 5)),
    "qkv-norm": (16, (2, 4, 5, 16), {"heads": 4}),
}


def used(name):
    size, shape, *options = MODULES[name]
    module = nk.create(name, size, **(options[0] if options else {})).eval()
    return module, call(module, shape)


def call(module, shape):
    x = numbers(*shape).requires_grad_()
    y = module(x, x, x) if type(module).__name__ == "QKVNorm" else module(x)
    y.square().sum().backward()
    return y.detach(), x.grad


def same(a, b):
    return all(torch.equal(one, other) for one, other in zip(a, b, strict=True))


IN_ANOTHER = """
import sys, torch, test_gate
modules, wanted = torch.load(sys.argv[1], weights_only=False)
found = {name: test_gate.call(module, test_gate.MODULES[name][1]) for name, module in modules.items()}
assert all(test_gate.same(found[name], wanted[name]) for name in modules)
print(len(found), "modules")
"""


def test_used_modules_work_in_another_process(tmp_path):
    modules = {name: used(name) for name in MODULES}
    file = tmp_path / "modules.pt"
    torch.save(({n: m for n, (m, _) in modules.items()}, {n: y for n, (_, y) in modules.items()}), file)
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # of this file, which the other process imports
    run = subprocess.run([sys.executable, "-c", IN_ANOTHER, file], capture_output=True, text=True, env=path)
    assert (run.returncode, run.stdout) == (0, f"{len(MODULES)} modules\n"), run.stderr


def in_child(module, shape, queue):
    torch.set_num_threads(1)
    queue.put(pickle.dumps(call(module, shape)))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_used_module_works_in_a_child(start):
    module, wanted = used("rmsnorm")
    context = multiprocessing.get_context(start)
    queue = context.SimpleQueue()
    child = context.Process(target=in_child, args=(module, MODULES["rmsnorm"][1], queue))
    child.start()
    found = pickle.loads(queue.get())
    child.join()
    assert child.exitcode == 0
    assert same(found, wanted)


@pytest.mark.parametrize("name", MODULES)
def test_a_copy_outlives_its_used_original(name):
    module, wanted = used(name)
    twin = copy.deepcopy(module)
    del module
    gc.collect()
    overwritten = [bytearray(size) for size in range(1, 400) for _ in range(20)]  # what was freed is taken again
    assert same(call(twin, MODULES[name][1]), wanted)
    del overwritten


def test_rules_are_plain_values():
    module, _ = used("rmsnorm")
    assert pickle.loads(pickle.dumps(module.rule)) == module.rule
    assert set(vars(copy.deepcopy(module.rule))) == set(ops.Row.__dataclass_fields__)
    assert isinstance(module.rule.plan(8, numbers(3, 8), None, None), bytes)
    assert hash(module.rule) == hash(copy.deepcopy(module.rule))


@live
def test_threads_with_changing_shapes_give_the_bits_of_one():
    """More shapes than any cache of plans holds, so that each is dropped while another thread works with it."""
    threads = torch.get_num_threads()

    def work(number):
        c, space, rows = 1 + number % 37, 2 + number % 41, 1 + number % 5
        x, weight = numbers(rows, c, space), numbers(c)
        results = [ops.instance_norm(x, weight), ops.batch_norm(x, weight)[0], ops.rms_norm(x, (space,))]
        results += [ops.group_norm(x, 1, weight), ops.dyt(x.mT, numbers(1), weight)]
        return results

    jobs = [n * 7919 % 1517 for n in range(1600)]
    try:
        torch.set_num_threads(1)
        wanted = [work(job) for job in jobs]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, jobs))
    finally:
        torch.set_num_threads(threads)
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


X = numbers(2, 4, 3)
MOMENTS, PULLS = (torch.zeros(4), torch.ones(4)), (torch.zeros(4), torch.zeros(4))
CONTROL = ops.Control(1e-5, 0.9, 0.9)
MISTAKES = {
    "groups that do not divide": (lambda: ops.group_norm(X, 5), ValueError, "group_norm: num_groups=5 .*channels=4"),
    "groups of a wide x": (lambda: ops.group_norm(numbers(2, 64, 3), 3), ValueError, "num_groups=3 .*channels=64"),
    "no groups": (lambda: ops.group_norm(X, 0), ValueError, "num_groups must be at least 1, not 0"),
    "negative groups": (lambda: ops.group_norm(X, -1), ValueError, "num_groups must be at least 1, not -1"),
    "groups of True": (lambda: ops.group_norm(X, True), TypeError, "num_groups must be an integer, not True"),
    "groups of 2.0": (lambda: ops.group_norm(X, 2.0), TypeError, "num_groups must be an integer, not 2.0"),
    "groups of evonorm": (lambda: ops.evonorm_s(X, 3), ValueError, "evonorm_s: num_groups=3 .*channels=4"),
    "no groups of evonorm": (lambda: ops.evonorm_s(X, 0), ValueError, "evonorm_s: num_groups must be at least 1"),
    "a short weight": (lambda: ops.group_norm(X, 2, torch.ones(3)), ValueError, r"weight must have shape .*\(3,\)"),
    "a long bias": (lambda: ops.instance_norm(X, None, torch.ones(5)), ValueError, r"bias must have .*\(5,\)"),
    "a column of weights": (lambda: ops.instance_norm(X, torch.ones(4, 1)), ValueError, r"weight .*\(4, 1\)"),
    "a column of taus": (lambda: ops.filter_response_norm(X, tau=torch.ones(4, 1)), ValueError, r"tau .*\(4, 1\)"),
    "a short slope": (lambda: ops.evonorm_s(X, 2, slope=torch.ones(3)), ValueError, r"slope .*\(3,\)"),
    "a short mean": (lambda: ops.normalize_with(X, torch.ones(3), torch.ones(4)), ValueError, r"mean .*\(3,\)"),
    "a long var": (lambda: ops.normalize_with(X, torch.ones(4), torch.ones(5)), ValueError, r"var .*\(5,\)"),
    "a long eps": (lambda: ops.filter_response_norm(X, eps=torch.ones(4)), ValueError, "eps must be a single number"),
    "an eps in words": (lambda: ops.instance_norm(X, eps="1e-5"), TypeError, "eps must be a number, not '1e-5'"),
    "one axis in a batch": (lambda: ops.batch_norm(X[0, 0]), ValueError, r"x must be \(N, C, \*space\).*\(3,\)"),
    "one axis of positions": (lambda: ops.layer_norm2d(X[0, 0]), ValueError, r"layer_norm2d: x must be .*\(3,\)"),
    "one axis of responses": (lambda: ops.global_response_norm(X[0, 0]), ValueError, r"x must be .*\(3,\)"),
    "integers": (lambda: ops.batch_norm(X.long()), TypeError, "batch_norm: x must be a floating-point tensor"),
    "a list": (lambda: ops.row_norm([1.0, 2.0]), TypeError, "row_norm: x must be a tensor, not list"),
    "a threshold of too few": (lambda: ops.threshold(X, torch.ones(3)), ValueError, r"threshold: tau .*\(3,\)"),
    "a column to multiply by": (lambda: ops.affine(X, torch.ones(4, 1)), ValueError, r"affine: weight .*\(4, 1\)"),
    "one axis online": (
        lambda: ops.online_norm(X[0, 0], None, None, MOMENTS, PULLS, CONTROL),
        ValueError,
        r"online_norm: x must be \(N, C, \*space\), but its shape is \(3,\)",
    ),
    "a short online weight": (
        lambda: ops.online_norm(X, torch.ones(3), None, MOMENTS, PULLS, CONTROL),
        ValueError,
        r"online_norm: weight must have shape \(4\), but its shape is \(3,\)",
    ),
    "a short state": (
        lambda: ops.online_norm(X, None, None, (MOMENTS[0][:3], MOMENTS[1]), PULLS, CONTROL),
        ValueError,
        r"online_norm: moments must have shape \(4\), but its shape is \(3,\)",
    ),
    "a column of gains": (lambda: ops.row_norm(X, torch.ones(3, 1), shape=(3,)), ValueError, r"weight .*\(3, 1\)"),
    "two alphas": (lambda: ops.dyt(X, torch.ones(2)), ValueError, r"dyt: alpha .* single number.*\(2,\)"),
    "two shifts": (lambda: ops.derf(X, torch.ones(1), torch.ones(2)), ValueError, "derf: shift must be a single"),
    "a column of features": (
        lambda: ops.dyt(X, torch.ones(1), torch.ones(3, 1)),
        ValueError,
        r"dyt: weight .*\(3, 1\)",
    ),
    "features of two axes": (lambda: ops.dyt(X, torch.ones(1), torch.ones(1, 3)), ValueError, r"weight .* shape \(3\)"),
    "a weight on meta": (lambda: ops.row_norm(X, torch.ones(3, device="meta")), ValueError, "on cpu, .* on meta"),
    "a bias on meta": (lambda: ops.batch_norm(X, None, torch.ones(4, device="meta")), ValueError, "on cpu, .* on meta"),
    "a residual of another shape": (lambda: ops.add_rms_norm(X, X[:1]), ValueError, r"residual .*\(1, 4, 3\)"),
    "an eps of True": (lambda: ops.Row(eps=True), TypeError, "Row: eps must be a number, not True"),
    "a part of 1.5": (lambda: ops.Row(part=1.5), TypeError, "Row: part must be an integer, not 1.5"),
    "a part of none": (lambda: ops.Row(part=0), ValueError, "Row: part must be at least 1, not 0"),
    "odd features": (lambda: ops.rotate(X, turns_of(numbers(4, 4))), ValueError, "even number of features"),
}


@pytest.mark.parametrize("path", [nullcontext, paths.formula_only], ids=["kernel", "formula"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_both_paths_refuse_a_mistake_by_name(mistake, path):
    act, error, words = MISTAKES[mistake]
    with path(), pytest.raises(error, match=words):
        act()


@live
def test_the_path_that_is_reported_is_the_one_taken():
    x = torch.randn(4, 6, 8)
    formula = [
        lambda: ops.dyt(x.double(), torch.ones(1)),
        lambda: ops.derf(x.double(), torch.ones(1)),
        lambda: ops.eln(x.double(), torch.ones(1)),
        lambda: ops.add_rms_norm(x, x.double()),
        lambda: ops.group_norm(x, 2, torch.ones(1)),
        lambda: ops.row_norm(x[:0]),
        lambda: ops.normalize_with(x, torch.zeros(4, 6), torch.ones(4, 6)),
    ]
    kernel = [
        lambda: ops.add_rms_norm(x.transpose(0, 1), x.transpose(0, 1)),
        lambda: ops.add_rms_norm(x.movedim(1, -1), x.movedim(1, -1)),
        lambda: ops.rms_norm(x.movedim(1, -1), (6,)),
        lambda: ops.group_norm(x, 2),
    ]
    for calls, by in ((formula, "formula"), (kernel, f"C kernel, {kernels.status().isa}")):
        for act in calls:
            with paths.watch() as taken:
                act()
            assert [path.by for path in taken] == [by]
            assert (taken[0].why is None) == (by != "formula")


@live
def test_a_path_is_what_ran(monkeypatch):
    x, ran = torch.randn(4, 8, requires_grad=True), []
    for name in ("row_forward", "row_backward"):
        run = getattr(kernels.cpu(), name)
        monkeypatch.setattr(kernels.cpu(), name, lambda *a, name=name, run=run: ran.append(name) or run(*a))
    with paths.watch() as taken:
        ops.rms_norm(x, (8,)).sum().backward()
        with paths.formula_only("a test wants it"):
            ops.rms_norm(x, (8,)).sum().backward()
        torch.autograd.grad(ops.rms_norm(x, (8,)).sum(), x, create_graph=True)
    assert ran == ["row_forward", "row_backward", "row_forward"]
    assert [path.op for path in taken] == ["row_norm", "row_norm backward", "row_norm", "row_norm", "row_norm backward"]
    assert [path.why for path in taken][2:4] == ["a test wants it", None]
    assert str(taken[4]) == "formula: its derivative may be wanted too"


def test_within_a_watch_backward_passes_stay_on_its_thread():
    """Autograd has a thread of its own for each GPU, which the watch is not of."""
    assert torch._C._is_multithreading_enabled()
    with paths.watch(), paths.formula_only():
        assert not torch._C._is_multithreading_enabled()
    assert torch._C._is_multithreading_enabled()


@live
def test_watching_is_of_one_thread_and_may_be_nested():
    x = torch.ones(2, 4)
    with paths.watch() as outer:
        ops.rms_norm(x, (4,))
        with paths.watch() as inner:
            ops.rms_norm(x, (4,))
        other = threading.Thread(target=ops.rms_norm, args=(x, (4,)))
        other.start()
        other.join()
    ops.rms_norm(x, (4,))
    assert (len(outer), len(inner)) == (2, 1)


@live
def test_a_lazily_negated_number_is_read_with_its_sign():
    lazy = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert lazy.is_neg()
    x = numbers(3, 2)
    for part in (lazy, lazy[:1]):
        torch.testing.assert_close(ops.row_norm(x, part), ops.row_norm(x, part.clone()))
        torch.testing.assert_close(ops.dyt(x, part[:1], lazy), ops.dyt(x, part[:1].clone(), lazy.clone()))
    torch.testing.assert_close(ops.add_row_norm(x[:1], lazy[None])[1], x[:1] + lazy)
    torch.testing.assert_close(ops.group_norm(x, 1, lazy), ops.group_norm(x, 1, lazy.clone()))
