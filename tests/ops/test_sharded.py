"""DTensors: a norm of parts gives the numbers of the whole, and sends one sum of moments where a vector is cut."""

import pytest
import torch

import normkit as nk
from normkit.contract.subject import build, outputs
from normkit.kernels import status
from normkit.ops import paths
from processes import gap, group_of, laid, mesh_of

COUNT = 4
TOKENS = (6, 5, 10)  # uneven over 2 and over 4
PLACES = {"samples": 0, "positions": 1, "entries": 2}


def work(task, *arguments):
    return globals()[task](*arguments)


processes = group_of(COUNT, work)
pair = group_of(2, work)


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def norm_of(name, width, dtype, **options):
    module = nk.create(name, *([] if width is None else [width]), **options).to(dtype)
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters(), 1):
            parameter.copy_(1 + 0.3 * numbers(*parameter.shape, seed=seed))
    return module


def placed(words):
    from torch.distributed.tensor import Partial, Replicate, Shard

    return [Replicate() if w is None else Partial() if w == "sum" else Shard(w) for w in words]


def measured(name, width, options, shape, words, sizes, dtype=torch.float32, add=False, offset=0.0):
    """How far a norm on a mesh is from one process', what it sent, how all is placed, and which paths ran."""
    from torch.distributed.tensor import distribute_module
    from torch.distributed.tensor.debug import CommDebugMode

    mesh, places = mesh_of(shape), placed(words)
    inputs = [numbers(*sizes, seed=s, dtype=dtype) + offset for s in ((10, 11) if add else (10,))]
    sent = numbers(*sizes, seed=20, dtype=dtype)
    want = run(norm_of(name, width, dtype, **options), [i.clone().requires_grad_() for i in inputs], sent)
    module = distribute_module(norm_of(name, width, dtype, **options), mesh)
    cut = [laid(i, mesh, places).requires_grad_() for i in inputs]
    sent = laid(sent, mesh, places)
    with torch.no_grad(), paths.watch() as taken:
        module(cut[0])
    with CommDebugMode() as forward:
        y, total = call(module, cut)
    with CommDebugMode() as backward:
        torch.autograd.backward([y, total] if add else [y], [sent] * (1 + add))
    placements = {"y": y.placements, "x": cut[0].grad.placements}
    placements |= {n: p.grad.placements for n, p in module.named_parameters()}
    got = [y, total, *(i.grad for i in cut), *(p.grad for p in module.parameters())]
    off = [gap(g.double(), w.double()) for g, w in zip(got, want, strict=True) if g is not None]
    counts = [sent_by(forward), sent_by(backward)]
    return off, counts, {k: [str(p) for p in v] for k, v in placements.items()}, [path.why for path in taken]


def call(module, inputs):
    return module.add_norm(*inputs) if len(inputs) == 2 else (module(*inputs), None)


def run(module, inputs, sent):
    y, total = call(module, inputs)
    torch.autograd.backward([y] if total is None else [y, total], [sent] if total is None else [sent, sent])
    return [y, total, *(i.grad for i in inputs), *(p.grad for p in module.parameters())]


def sent_by(mode):
    return {str(op).rsplit(".", 1)[-1]: count for op, count in mode.get_comm_counts().items()}


SUM = [{"all_reduce": 1}] * 2
NAMES = {
    "rmsnorm": {"bias": True},
    "layernorm": {},
    "scalenorm": {},
    "srmsnorm": {},
    "fixnorm": {},
    "crmsnorm": {},
}
LIMITS = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 0.4}  # of sums over 30 rows; an ulp of 60


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("add", [False, True], ids=["", "added"])
@pytest.mark.parametrize("name", NAMES)
def test_parts_give_the_numbers_of_the_whole_with_one_sum_at_most(name, add, dtype, processes):
    sizes = (*TOKENS[:-1], TOKENS[-1] - (name == "crmsnorm"))
    for where, axis in PLACES.items():
        task = name, TOKENS[-1], NAMES[name], (COUNT,), (axis,), sizes, dtype, add
        for off, counts, places, taken in processes.ask("measured", *task):
            assert max(off) <= LIMITS[dtype], where
            assert counts == (SUM if where == "entries" else [{}, {}]), where
            assert places.pop("y") == places.pop("x") == [f"S({axis})"]
            assert all(place == ["P(sum)"] for place in places.values())
            if where != "entries" and status().live:
                assert set(taken) <= {None, "the input is empty"}


def bits(dtype):
    """Norms by name, and whether the results and gradients of samples that processes share have one process' bits."""
    from torch.distributed.tensor import Shard, distribute_module

    mesh, same = mesh_of((COUNT,)), {}
    for name in nk.methods(room="activation"):
        card = nk.card(name)
        alone = all(layout.optional for layout in card.inputs.values())
        if card.kind.name != "norm" or not (card.batch_invariant and alone and "3" not in card.shape.axes):
            continue
        x = card.draw(8, 5, leading=(5, 6), trailing=(6, 4), dtype=dtype)[0]
        one, many = build(name, dtype=dtype), distribute_module(build(name, dtype=dtype), mesh)
        cut = laid(x, mesh, [Shard(0)]).requires_grad_()
        y, got = outputs(one(x.requires_grad_()))[0], outputs(many(cut))[0]
        y.sin().sum().backward()
        got.backward(laid(y.detach().cos(), mesh, [Shard(0)]))
        same[name] = gap(got, y) == gap(cut.grad, x.grad) == 0
    return same


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_have_the_same_bits_on_any_number_of_processes(dtype, processes):
    for same in processes.ask("bits", dtype):
        assert {name for name, bits in same.items() if not bits} == set()
        assert len(same) > 25


CASES = {
    "samples and entries": ("layernorm", {}, (2, 2), (0, 2), SUM),
    "entries twice": ("rmsnorm", {}, (2, 2), (2, 2), SUM),
    "copies": ("layernorm", {}, (2, 2), (None, 1), [{}, {}]),
    "part of the entries": ("rmsnorm", {"p": 0.4}, (4,), (2,), SUM),
    "an offset in the gain": ("rmsnorm", {"offset": 1.0}, (4,), (2,), SUM),
    "eps outside": ("rmsnorm", {"eps_inside": False}, (4,), (2,), SUM),
    "a floor": ("rmsnorm", {"eps_floor": True}, (4,), (2,), SUM),
    "magnitudes": ("l1-layernorm", {}, (4,), (1,), [{}, {}]),
    "magnitudes about a mean": ("l1-layernorm", {}, (4,), (2,), [{"all_reduce": 2}, {"all_reduce": 1}]),
    "dyt": ("dyt", {}, (2, 2), (0, 2), [{}, {}]),
    "derf": ("derf", {}, (2, 2), (1, 2), [{}, {}]),
    "eln": ("eln", {}, (2, 2), (0, 1), [{}, {}]),
}


@pytest.mark.parametrize("case", CASES)
def test_meshes_and_dialects(case, processes):
    name, options, mesh, words, counts = CASES[case]
    for off, sent, places, _ in processes.ask("measured", name, TOKENS[-1], options, mesh, words, TOKENS):
        assert max(off) <= 3e-5
        assert sent == counts
        assert places["y"] == places["x"] == ["R" if word is None else f"S({word})" for word in words]


def apart(name):
    """How far a norm on a mesh of half of the processes is from one process', the other half having other numbers."""
    from torch.distributed.tensor import distribute_module

    whole = mesh_of((2, 2), ("halves", "entries"))
    mesh, x = whole["entries"], numbers(*TOKENS, seed=whole.get_local_rank("halves"))
    norm = norm_of(name, TOKENS[-1], torch.float32)
    want = norm(x)
    got = distribute_module(norm, mesh)(laid(x, mesh, placed([2])))
    return gap(got, want)


def test_a_mesh_of_some_processes_adds_up_theirs_alone(processes):
    assert max(processes.ask("apart", "layernorm")) <= 3e-5


@pytest.mark.parametrize("offset, limit", [(1e4, 2e-4), (1e6, 3e-3)])
def test_an_offset_costs_few_digits(offset, limit, processes):
    """The mean is squared in float64, so an offset of 1e6 deviations costs 1e-4 of the variance."""
    for off, *_ in processes.ask("measured", "layernorm", 10, {}, (4,), (2,), TOKENS, torch.float32, False, offset):
        assert max(off) <= limit  # against one process' kernel, of the same rounded values


IMAGES = (6, 8, 5, 3)
CHANNELS = {  # by what is sharded: samples, channels, rows of pixels
    "groupnorm": ({"num_groups": 4}, ([{}, {}], [{}, {}], SUM)),
    "instancenorm": ({"affine": True}, ([{}, {}], [{}, {}], SUM)),
    "frn": ({}, ([{}, {}], [{}, {}], SUM)),
    "grn": ({}, ([{}, {}], SUM, SUM)),
    "layernorm2d": ({}, ([{}, {}], SUM, [{}, {}])),
    "evonorm-s0": ({"num_groups": 4}, ([{}, {}], [{}, {}], SUM)),
}


@pytest.mark.parametrize("name", CHANNELS)
def test_images_give_the_numbers_of_the_whole_with_one_sum_at_most(name, processes):
    options, expected = CHANNELS[name]
    for axis, counts in enumerate(expected):
        for off, sent, places, taken in processes.ask("measured", name, 8, options, (4,), (axis,), IMAGES):
            assert max(off) <= 1e-4, axis
            assert sent == counts, axis
            assert places["y"] == places["x"] == [f"S({axis})"]
            if counts != SUM and status().live:
                assert set(taken) <= {None, "the input is empty"}
    for off, sent, *_ in processes.ask("measured", name, 8, options, (2, 2), (0, 2), IMAGES):
        assert max(off) <= 1e-4
        assert sent == expected[2]


EXCHANGE = [{"all_to_all_single": 1}] * 2
NOTHING = [{}, {}]
SUM_BACK = [{}, {"all_reduce": 1}]  # of gradients that a bound looks at
ONCE_BACK = [{"all_reduce": 2}, {"all_reduce": 1}]  # deviations about a mean need it first
WIDE = (5, 8, 6, 7)
CUT = {  # width, arguments, sizes, and what each sharded axis sends
    "polynorm": (None, {}, TOKENS, (NOTHING, NOTHING, SUM)),
    "seednorm": (10, {}, TOKENS, (NOTHING, NOTHING, SUM)),
    "seednorm, heads that are cut": (10, {"heads": 5}, TOKENS, (NOTHING, NOTHING, SUM)),
    "simplenorm": (10, {}, TOKENS, (NOTHING, NOTHING, SUM)),
    "simplenorm, channels first": (10, {"channels_last": False}, (6, 10, 5), (NOTHING, SUM, NOTHING)),
    "l2-feature-norm": (None, {"radius": 3.0}, TOKENS, (NOTHING, NOTHING, SUM)),
    "prenormalized-layernorm": (10, {}, TOKENS, (NOTHING, NOTHING, ONCE_BACK)),
    "feature-norm": (8, {}, WIDE, (NOTHING, SUM, SUM, SUM)),
    "feature-norm, centered": (8, {"center": True, "scale": 2.0}, WIDE, (NOTHING, SUM, SUM, SUM)),
    "csnorm": (8, {}, WIDE, (NOTHING, SUM, SUM, SUM)),
    "iln": (8, {}, WIDE, (NOTHING, SUM, SUM, SUM)),
    "gcblock, the mean": (
        8,
        {"ratio": 0.5, "pooling": "avg", "fusion": ("mul", "add")},
        WIDE,
        (NOTHING, SUM, SUM, SUM),
    ),
    "gcblock": (8, {"ratio": 0.5}, WIDE, (NOTHING, SUM, SUM, SUM)),
    "gcblock, two branches": (8, {"ratio": 0.5, "fusion": ("mul", "add")}, WIDE, (NOTHING, SUM, SUM, SUM)),
    "gdn": (8, {}, WIDE, (SUM_BACK, [{"all_reduce": 1}, {"all_reduce": 2}], SUM_BACK, SUM_BACK)),
    "gdn-parametric": (8, {}, WIDE, (NOTHING, SUM, NOTHING, NOTHING)),
    "phi-s": (8, {}, WIDE, (NOTHING, SUM, NOTHING, NOTHING)),
    "phi-s, of tokens": (8, {}, (5, 8), (NOTHING, SUM)),
    "scnorm": (8, {}, WIDE, (NOTHING, NOTHING, None, None)),
    "divisive-norm": (8, {}, WIDE, (NOTHING, SUM, EXCHANGE, EXCHANGE)),
    "divisive-norm, far": (8, {"center_window": 7, "scale_window": 9}, WIDE, (NOTHING, SUM, EXCHANGE, EXCHANGE)),
    "local-response-norm": (4, {"alpha": 1.0}, WIDE, (NOTHING, EXCHANGE, NOTHING, NOTHING)),
    "local-response-norm, far": (7, {"alpha": 1.0}, (5, 5, 6, 7), (NOTHING, EXCHANGE, NOTHING, NOTHING)),
}


@pytest.mark.parametrize("case", CUT)
def test_what_a_statistic_is_over_may_be_cut(case, processes):
    width, options, sizes, sent = CUT[case]
    name = case.split(",")[0]
    for axis, counts in enumerate(sent):
        if counts is None:
            continue
        for mesh, words in (((COUNT,), (axis,)), ((2, 2), (None if axis == 0 else 0, axis))):
            task = name, width, options, mesh, words, sizes, torch.float64
            for off, got, places, _ in processes.ask("measured", *task):
                assert max(off) <= 1e-11, words
                assert got == counts, words
                assert places["y"] == places["x"] == ["R" if word is None else f"S({word})" for word in words]


@pytest.mark.parametrize("name", ["polynorm", "seednorm", "simplenorm", "l2-feature-norm", "prenormalized-layernorm"])
@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-4), (torch.bfloat16, 0.5)], ids=str)
def test_other_types_may_be_cut(name, dtype, limit, processes):
    width, options, sizes, _ = CUT[name]
    for off, *_ in processes.ask("measured", name, width, options, (COUNT,), (2,), sizes, dtype):
        assert max(off) <= limit


def bounded():
    """GDN below its bounds, where gradients pass that would raise a parameter: which ones, all processes decide."""
    from torch.distributed.tensor import Shard, distribute_module

    results = []
    for axis in (None, 0, 1, 2):
        norm = norm_of("gdn", 8, torch.float64)
        with torch.no_grad():
            norm.gamma.mul_(torch.randn(8, 8, generator=torch.Generator().manual_seed(1)).sign() * 1e-7)
            norm.beta.mul_(1e-7)
        x = numbers(6, 8, 5, dtype=torch.float64)
        if axis is not None:
            norm, x = distribute_module(norm, mesh_of((COUNT,))), laid(x, mesh_of((COUNT,)), [Shard(axis)])
        x.requires_grad_()
        norm(x).sin().sum().backward()
        full = [t.full_tensor() if axis is not None else t for t in (x.grad, norm.beta.grad, norm.gamma.grad)]
        results.append(full)
    off = [(a - b).abs().max() / b.abs().max() for got in results[1:] for a, b in zip(got, results[0], strict=True)]
    return max(off).item(), [(g == 0).sum().item() for g in results[0]]


def test_bounded_parameters_get_the_gradients_of_one_process(processes):
    for off, zeros in processes.ask("bounded"):
        assert off < 1e-10
        assert 0 < zeros[2] < 64


def ranges():
    """Lengths of vectors whose squares would leave the range, and of those that lie on one process alone."""
    from torch.distributed.tensor import Shard

    x = torch.tensor([[1e200, 0, 0, 3e200, 1e-300], [1e-200, 2e-200, 0, 0, 0], [0, 0, 0, 0, 7.0]], dtype=torch.float64)
    norm = nk.create("l2-feature-norm")
    return gap(norm(laid(x, mesh_of((COUNT,)), [Shard(1)])), norm(x))


def test_lengths_of_cut_vectors_stay_in_range(processes):
    assert max(processes.ask("ranges")) <= 1e-15


TWICE_CUT = {  # width, arguments, sizes, mesh and axes; the last processes have little or nothing
    "local-response-norm": (7, {"alpha": 1.0}, (5, 5, 6, 7), (2, 2), (1, 1), EXCHANGE),
    "divisive-norm": (8, {}, (2, 8, 9, 3), (2, 2), (2, 2), EXCHANGE),
    "divisive-norm, far": (8, {"center_window": 7, "scale_window": 9}, (2, 8, 9, 3), (2, 2), (2, 2), EXCHANGE),
    "divisive-norm, both axes": (8, {}, WIDE, (2, 2), (3, 2), [{"all_to_all_single": 2}] * 2),
    "divisive-norm, about another axis": (8, {}, (4, 8, 9, 3), (2, 1, 2), (2, None, 2), EXCHANGE),
}


@pytest.mark.parametrize("case", TWICE_CUT)
def test_neighbours_are_exchanged_along_an_axis_that_is_cut_twice(case, processes):
    width, options, sizes, mesh, words, sent = TWICE_CUT[case]
    task = case.split(",")[0], width, options, mesh, words, sizes, torch.float64
    for off, got, places, _ in processes.ask("measured", *task):
        assert max(off) <= 1e-11
        assert got == sent
        assert places["y"] == places["x"] == ["R" if word is None else f"S({word})" for word in words]


def neighbours_on_some(shape):
    """How far a norm with neighbours is from one process', on a mesh of two axes that has half of the processes."""
    from torch.distributed.tensor import distribute_module

    mesh = mesh_of((2, *shape), ("halves", "a", "b"))["a", "b"]
    norm, x = norm_of("divisive-norm", 8, torch.float64), numbers(*WIDE, dtype=torch.float64)
    want = norm(x)
    got = distribute_module(norm, mesh)(laid(x, mesh, placed([2, 2])))
    return gap(got, want)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2)])
def test_a_mesh_of_some_processes_exchanges_among_them(shape, processes):
    assert max(processes.ask("neighbours_on_some", shape)) <= 1e-11


def heads(shape, words):
    """Queries that are normalized and turned: how far off, and what was sent."""
    from torch.distributed.tensor import distribute_module
    from torch.distributed.tensor.debug import CommDebugMode

    mesh, x, results = mesh_of(shape), numbers(3, 4, 5, 8), []
    angles = nk.ops.rope.turns(torch.arange(5), 8)
    for norm, q in ((norm_of("rmsnorm", 8, torch.float32), x.requires_grad_()), (None, None)):
        if norm is None:
            norm = distribute_module(norm_of("rmsnorm", 8, torch.float32), mesh)
            q = laid(x.detach(), mesh, placed(words)).requires_grad_()
        with CommDebugMode() as mode:
            y = norm.norm_rotate(q, angles)
            z = nk.ops.rotate(q, angles)
            (y.square().sum() + (y * z).sum()).backward()
        results.append([y, z, q.grad, norm.weight.grad])
    off = [gap(a, b) for a, b in zip(results[1], results[0], strict=True)]
    return off, mode.get_total_counts(), [str(p) for p in y.placements]


@pytest.mark.parametrize("words", [(1, 2), (0, 1)])
def test_heads_are_normalized_and_turned_where_they_are(words, processes):
    for off, _, places in processes.ask("heads", (2, 2), words):
        assert max(off) <= 1e-4
        assert places == [f"S({word})" for word in words]


def summed():
    """The norm of what each process has a share of, and the gradient of a gain that is cut as the entries are."""
    from torch.distributed.tensor import DTensor, Shard

    mesh = mesh_of((COUNT,))
    norm, x = norm_of("rmsnorm", 10, torch.float64), numbers(3, 10, dtype=torch.float64)
    partial = DTensor.from_local(x / COUNT, mesh, placed(["sum"]))
    weight = laid(norm.weight.detach(), mesh, [Shard(0)]).requires_grad_()
    y = nk.ops.row_norm(partial, laid(norm.weight.detach(), mesh, placed([None])), None, norm.rule)
    cut = nk.ops.row_norm(laid(x, mesh, [Shard(1)]), weight, None, norm.rule)
    cut.square().sum().backward()
    want = norm(x)
    want.square().sum().backward()
    off = [a.full_tensor() - b for a, b in ((y, want), (cut, want), (weight.grad, norm.weight.grad))]
    return [o.abs().max().item() for o in off], str(y.placements[0]), str(weight.grad.placements[0])


def test_shares_are_added_up_first_and_a_cut_gain_keeps_its_cut(processes):
    for off, placed_y, placed_gradient in processes.ask("summed"):
        assert max(off) <= 1e-12
        assert (placed_y, placed_gradient) == ("R", "S(0)")


def again():
    """The second derivative of a norm whose vectors are cut, and that of one process."""
    from torch.distributed.tensor import Shard

    mesh, rule = mesh_of((COUNT,)), nk.ops.Row(center=True, eps=1e-5)
    results = []
    for cut in (False, True):
        x = numbers(3, 10, dtype=torch.float64)
        x = (laid(x, mesh, [Shard(1)]) if cut else x).requires_grad_()
        y = nk.ops.row_norm(x, None, None, rule)
        (dx,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        dx = dx.to_local() if cut else dx
        part = dx.pow(2).sum()
        (ddx,) = torch.autograd.grad(part, x)
        results.append(ddx.full_tensor() if cut else ddx)
    return (results[0] - results[1]).abs().max().item()


def test_the_second_derivative_is_right(processes):
    assert max(processes.ask("again")) <= 1e-10


def mistakes():
    """The errors of what does not fit."""
    from torch.distributed.tensor import Shard, distribute_module

    mesh, other = mesh_of((4,)), mesh_of((2, 2))
    x = laid(numbers(3, 8), mesh, [Shard(0)])
    errors = []
    for norm in (nk.RMSNorm(8), distribute_module(nk.RMSNorm(8), other)):
        try:
            norm(x)
        except (TypeError, ValueError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


def test_what_does_not_fit_is_named(processes):
    for plain, other in processes.ask("mistakes"):
        assert plain.startswith("TypeError: RMSNorm: x is a DTensor, but weight is a plain tensor")
        assert other == "ValueError: RMSNorm: weight must be on the mesh of x, 4 [0, 1, 2, 3], not on 2x2 [0, 1, 2, 3]"


def misfits():
    """Norms whose cut input lacks two channels, and what they say to it, where a whole one is refused otherwise."""
    from torch.distributed.tensor import Shard, distribute_module

    mesh, missed, tried = mesh_of((COUNT,)), {}, 0
    for name in nk.methods(room="activation"):
        card = nk.card(name)
        axis = {"...": -1, "N": 1}.get(card.shape.axes[0])
        if card.kind.name != "norm" or axis is None or any(not layout.optional for layout in card.inputs.values()):
            continue
        x = card.draw(8, 4, leading=(4, 6), trailing=(6, 4), dtype=torch.float64)[0]
        x = x.narrow(axis, 0, x.shape[axis] - 2).contiguous()
        error = error_of(build(name), x)
        for cut in range(x.ndim) if error else ():
            tried += 1
            got = error_of(distribute_module(build(name), mesh), laid(x, mesh, [Shard(cut)]))
            if got != error and not card.spans_samples:
                missed[name, cut] = got
    return missed, tried


def error_of(norm, x):
    try:
        norm(x)
    except Exception as error:
        return f"{type(error).__name__}: {error}".split(", but")[0]  # the shape may be that of a part


def test_sizes_that_do_not_fit_are_refused_as_on_one_process(processes):
    for missed, tried in processes.ask("misfits"):
        assert missed == {}
        assert tried > 50


def compiled(name, width, options, sizes, axis, count=COUNT):
    """A compiled norm of a DTensor: how far off, how it is placed, how many graphs, and what they send."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.distributed.tensor import Shard, distribute_module

    axes = axis if isinstance(axis, tuple) else (axis,)
    mesh, graphs, results = mesh_of((count,) if len(axes) == 1 else (2, 2)), [], []
    x = laid(numbers(*sizes, dtype=torch.float64), mesh, [Shard(a) for a in axes]).requires_grad_()

    def keep(graph, _):
        targets = [str(node.target) for node in graph.graph.nodes]
        assert not any("scalar_dense" in target for target in targets), "inductor does not know a number of the graph"
        graphs.append(sum("_c10d_functional" in target and "wait" not in target for target in targets))
        return graph

    backend = aot_autograd(fw_compiler=keep, partition_fn=min_cut_rematerialization_partition)  # as inductor cuts
    for compile in (lambda norm: norm, lambda norm: torch.compile(norm, fullgraph=True, backend=backend)):
        norm = distribute_module(norm_of(name, width, torch.float64, **options), mesh)
        y = compile(norm)(x)
        grads = torch.autograd.grad(y.sin().sum(), [x, *norm.parameters()])
        results.append([y, *grads, *(b for b in norm.buffers() if b.is_floating_point())])
    off = max((a.full_tensor() - b.full_tensor()).abs().max().item() for a, b in zip(*results, strict=True))
    return off, [place.dim for place in results[1][0].placements] == list(axes), graphs


COMPILED = {  # forward and backward
    "positions": ("rmsnorm", 8, {}, (4, 8, 8), 1, [0, 0]),
    "entries": ("rmsnorm", 8, {}, (4, 8, 8), 2, [1, 1]),
    "moments of several powers": ("polynorm", None, {}, TOKENS, 2, [1, 1]),
    "neighbours": ("divisive-norm", 8, {}, (5, 8, 7, 6), 2, [1, 1]),
    "neighbours along an axis that is cut twice": ("divisive-norm", 8, {}, (5, 8, 7, 6), (2, 2), [1, 1]),
    "samples in sync": ("batchnorm", 8, {"sync": True}, (9, 8, 3), 0, [1, 1]),
    "samples of a norm of norms in sync": ("ibn", 8, {"sync": True}, (9, 8, 3), 0, [1, 1]),
    "channels of a batch norm": ("batchnorm", 8, {}, (4, 8, 3), 1, [2, 0]),
}


@pytest.mark.parametrize("case", COMPILED)
def test_a_compiled_norm_is_one_graph_and_sends_as_little(case, request):
    """On four processes where what is sent depends on how many there are; each of them compiles."""
    *task, sent = COMPILED[case]
    count = COUNT if case.startswith("neighbours") else 2
    processes = request.getfixturevalue("processes" if count == COUNT else "pair")
    for off, kept, graphs in processes.ask("compiled", *task, count):
        assert off < 1e-12
        assert kept
        assert graphs == sent


def compiled_with_nothing():
    """What is said where the last of the processes has nothing of an axis along which neighbours are exchanged."""
    try:
        compiled("divisive-norm", 8, {}, (5, 8, 5, 6), 2)
    except Exception as error:
        return str(error)


def test_a_compiled_exchange_with_a_process_that_has_nothing_is_refused_by_name(processes):
    for error in processes.ask("compiled_with_nothing"):
        assert "axis 2 of x has 5 entries, which leaves some of 4 processes none" in error


def starts(sizes, words, shape):
    """Where this process' part begins, by us and by torch."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    x = laid(numbers(*sizes), mesh_of(shape), placed(words))
    return nk.ops.sharded.parts("test", x).begin, compute_local_shape_and_global_offset(
        sizes, x.device_mesh, x.placements
    )[1]


@pytest.mark.parametrize("words", [(0, 0), (1, 0), (None, 1), (1, 1)])
def test_a_part_begins_where_torch_says(words, processes):
    for own, torchs in processes.ask("starts", (9, 5), words, (2, 2)):
        assert tuple(own) == tuple(torchs)
