"""How calls are shared out on a GPU: what is launched for each, with how many programs, warps and which sizes.

    PYTHONPATH=tests:tests/ops python tests/ops/test_gpu_plans.py     # writes it down anew

Numbers are right however the work is shared out, so that only this sees a division that is slower than what was
measured. Nothing is computed: the launches are looked at.
"""

import functools
import json
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from channel_calls import OPERATIONS
from normkit import ops
from normkit.kernels import cuda
from place import forget_plans, interpreter_only, kernels

pytestmark = [pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent())), interpreter_only]
RECORD = Path(__file__).with_name("launches.jsonl")
PROCESSORS = 132  # of an H100
WIDTHS = [1, 16, 96, 128, 768, 1000, 1024, 4096, 5120, 8192, 11008, 32768, 40000]
IMAGES = [(2, 6, 7, 5), (32, 66, 14, 14), (4, 12, 112, 112), (1, 96, 33), (64, 1026, 7, 7), (3, 3, 4000)]
RULES = {
    "layer": ops.Row(center=True, eps=1e-5),
    "rms": ops.Row(eps=1e-6),
    "part": ops.Row(part=3),
    "absolute": ops.Row(center=True, statistic="absolute", eps=1e-5),
    "zero-sum": ops.Row(statistic="zero-sum", eps=1e-5),
    "gemma": ops.Row(offset=1.0),
}


@contextmanager
def looked_at():
    """The launches within it: kernel, grid, which tensors there are, numbers, constants and warps."""
    from normkit.kernels.cuda import channels, engine, launch

    launches = []

    def note(kernel, grid, arguments, constants, warps, kind):
        given = [list(a.shape) if torch.is_tensor(a) else a for a in arguments]
        given = [float(f"{a:.6g}") if isinstance(a, float) else a for a in given]
        constants = {name: int(value) for name, value in constants.items()}
        launches.append([kernel.fn.__name__, list(grid), given, constants, warps])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "_start", note)
        patch.setenv("NORMKIT_TRIAL", "off")
        for module in (channels, engine):
            patch.setattr(module, "processors", lambda x: PROCESSORS)
        forget_plans()
        with kernels():
            yield launches
    forget_plans()


def with_gradients(act, *tensors):
    tensors = [tensor.requires_grad_() for tensor in tensors]
    y = act(*tensors)
    torch.autograd.grad(y, tensors, torch.zeros_like(y), allow_unused=True)


def of_rows(rule, width, rows, dtype=torch.float32):
    x = torch.zeros(rows, width, dtype=dtype)
    with_gradients(lambda x, w, b: ops.row_norm(x, w, b, RULES[rule]), x, torch.ones(width), torch.ones(width))


def of_points(name, width, rows):
    act = ops.eln if name == "eln" else functools.partial(ops.derf, function=name)
    with_gradients(act, torch.zeros(rows, width), torch.ones(1))


def of_images(name, shape, last):
    act, count = OPERATIONS[name]
    x = torch.zeros(shape)
    x = x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x
    with_gradients(act, x, *[torch.ones(shape[1]) for _ in range(min(count, 3))], *[torch.ones(1)] * (count > 3))


def of_heads(rule, head_dim, pairing, *sizes):
    angle = torch.zeros(sizes[-1], head_dim // 2)
    turn = functools.partial(ops.norm_rotate, angles=(angle, angle), rule=RULES[rule], pairing=pairing)
    with_gradients(turn, torch.zeros(*sizes, head_dim), torch.ones(head_dim), torch.ones(head_dim))


def of_matrices(side, count):
    with_gradients(ops.sinkhorn, torch.zeros(count, side, side))


def calls():
    """Every call by its name."""
    some = [(rule, width) for rule in RULES for width in (WIDTHS if rule in ("layer", "rms") else (1000, 40000))]
    for rule, width in some:
        for rows in (7, 5000) if width < 9000 else (7, 300):
            yield f"{rule} of {rows} rows of {width}", functools.partial(of_rows, rule, width, rows)
    yield "rms in bfloat16", functools.partial(of_rows, "rms", 768, 64, torch.bfloat16)
    for width, rows in ((1, 9), (64, 5000), (1000, 7), (1280, 300)):
        for name in ("erf", "eln"):
            yield f"{name} of {rows} rows of {width}", functools.partial(of_points, name, width, rows)
    for name, shape, last in [(name, shape, last) for name in OPERATIONS for shape in IMAGES for last in (0, 1)]:
        yield f"{name} of {shape}{' channels last' * last}", functools.partial(of_images, name, shape, last)
    for dim, pairing in ((64, "halves"), (128, "pairs"), (12, "halves")):
        yield f"heads of {dim} by {pairing}", functools.partial(of_heads, "rms", dim, pairing, 2, 8, 33)
    for side, count in ((4, 1000), (3, 7), (16, 33)):
        yield f"{count} matrices of {side}", functools.partial(of_matrices, side, count)


def launched(call):
    with looked_at() as launches:
        call()
    return json.loads(json.dumps(launches))


@functools.cache
def recorded():
    return dict(map(json.loads, RECORD.read_text().splitlines()))


@pytest.mark.parametrize("kind", ["rows of", "matrices", "heads", "rms in", *OPERATIONS])
def test_a_call_is_shared_out_as_it_was(kind):
    for name, call in calls():
        if name.startswith(f"{kind} of (") or (kind not in OPERATIONS and kind in name):
            assert launched(call) == recorded()[name], name


def tabled(found):
    """What the table of machine code compiles: of each kernel its types, constants, warps and sizes."""
    for one in found:
        if not one.name.startswith("Liger"):
            kept = [one.name, one.type, one.width, one.types, one.constants, one.warps, one.entries, one.known]
            yield [*kept, sorted(one.large), round(one.used, 6)]


def tables():
    from normkit.kernels.cuda import variants

    return {
        "the table": [*tabled(variants.variants(("bf16", "fp32"), (64, 5120, 40000)))],
        "all that is compiled": [*tabled(variants.everything())],
    }


@pytest.mark.parametrize("name", ["the table", "all that is compiled"])
def test_the_table_of_machine_code_has_the_kernels_that_it_had(name):
    assert json.loads(json.dumps(tables()[name])) == recorded()[name]


if __name__ == "__main__":
    lines = [*tables().items(), *((name, launched(call)) for name, call in calls())]
    RECORD.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
