"""Deliberate mistakes in copies of the GPU's kernels, each of which one small call must show."""

import importlib.util
import pathlib
import sys

import pytest
import torch

from channel_calls import OPERATIONS, draw, run
from normkit import ops
from normkit.kernels import cuda
from normkit.ops import paths
from place import forget_plans

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))


@pytest.fixture(autouse=True)
def on_the_interpreter(monkeypatch):
    from normkit.kernels.cuda import channels, settings

    for name in ("TILE", "LINE", "LAST", "POSITIONS"):
        monkeypatch.setattr(settings, name, 64)
    monkeypatch.setattr(settings, "FILLING", 1)
    monkeypatch.setattr(settings, "FILLING_LAST", 1)
    monkeypatch.setattr(settings, "WHOLE", 0)
    monkeypatch.setattr(settings, "MOST_STEPS", 2)
    monkeypatch.setattr(settings, "ENTRIES", 64)
    monkeypatch.setattr(settings, "SUMMED", 64)
    monkeypatch.setattr(channels, "BLOCK", 4)
    forget_plans()
    with paths.interpreted():
        yield
    forget_plans()


def numbers(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def assert_right(operation, x, parameters, unit=1e-5):
    grad = torch.linspace(-1, 2, x.numel()).view(x.shape)
    with paths.watch() as taken:
        found = run(operation, x, parameters, grad)
    assert {str(path) for path in taken} == {"Triton kernel, interpreted"}
    with paths.formula_only():
        wanted = run(operation, x.double(), [p.double() for p in parameters], grad.double())
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=unit, atol=unit * b.abs().max().item())


def of_channels(name, *shape, offset=0.0, last=False):
    def check():
        x, parameters, _ = draw(shape, OPERATIONS[name][1], torch.float32, last)
        assert_right(OPERATIONS[name][0], x + offset, [p.float() for p in parameters])

    return check


def whole(name, *shape):
    def check():
        from normkit.kernels.cuda import settings

        settings.WHOLE = 4096
        forget_plans()
        try:
            of_channels(name, *shape)()
        finally:
            settings.WHOLE = 0
            forget_plans()

    return check


def tied():
    x = numbers(2, 3, 5).round()
    assert_right(lambda x, t: ops.filter_response_norm(x, None, None, t), x, [torch.zeros(3)])


def pointwise(function, last):
    def check():
        x, axis = numbers(23, 5, 9), 2 if last else 1
        parameters = [torch.tensor([0.7]), torch.tensor([0.2]), numbers(x.shape[axis]), numbers(x.shape[axis])]
        assert_right(lambda x, *p: ops.derf(x, *p, function=function, channels_last=last), x, parameters)

    return check


def turned(pairing, rule):
    def check():
        angle = numbers(2, 5, 1, 4)
        norm = lambda x, w, b: ops.norm_rotate(x, w, b, (angle.cos(), angle.sin()), rule=rule, pairing=pairing)  # noqa: E731
        assert_right(norm, numbers(2, 5, 3, 8) + 1, [numbers(8), numbers(8)])

    return check


BATCH, GROUP, UNIT = of_channels("batch", 2, 3, 150), of_channels("group", 2, 6, 7, 3), whole("group", 2, 6, 7, 3)
MISTAKES = {
    "channel: what is outside counts": (
        "channel",
        "off = tl.where(inside, v - mean, 0.0)",
        "off = v - mean",
        of_channels("batch", 2, 3, 100),
    ),
    "sums: the last program is left out": (
        "sums",
        "(row < programs)",
        "(row < programs - 1)",
        lambda: assert_right(lambda x, w: ops.rms_norm(x, (21,), w), numbers(40, 21), [numbers(21)]),
    ),
    "sums: what all share, but for its last number": (
        "sums",
        "first + at < count",
        "first + at < count - 1",
        lambda: assert_right(lambda x, a: ops.dyt(x, a), numbers(40, 21), [numbers(1)]),
    ),
    "channel: running on": ("channel", "mean += share * off", "mean += off", of_channels("online", 3, 6, 5, 4)),
    "channel: a wrong count": ("channel", "outer.to(tl.float64) * space", "outer.to(tl.float64) * space - 1", BATCH),
    "channel: the pivot is forgotten": (
        "channel",
        "pivot.to(tl.float64) + middle.to(tl.float64)",
        "middle.to(tl.float64)",
        of_channels("batch", 2, 3, 150, offset=5.0),
    ),
    "channel: the pieces' means": ("channel", "more += count * off * off", "more += 0.0 * off", BATCH),
    "channel: the lanes' means": ("channel", "square += each * (off * off)", "square += 0.0 * off", BATCH),
    "channel: the mean's rounding is forgotten": (
        "channel",
        "finite((at - mean.to(tl.float64)).to(tl.float32))",
        "0.0 * mean",
        of_channels("batch", 2, 3, 150, offset=3e5 / 7),
    ),
    "channel: sums in float16": ("channel", "add_up(second, AXIS)", "add_up(second.to(tl.float16), AXIS)", GROUP),
    "channel: one sample's units for all": ("channel", "n * groups + c // group", "c // group", GROUP),
    "channel: another piece's positions": ("channel", "begin = piece * steps * STEP", "begin = 0 * piece", BATCH),
    "channel: nothing pulls": ("channel", "(d - h * pull - rest) * r", "(d - rest) * r", GROUP),
    "channel: a tie passes all": ("channel", "tl.where(z == e, g * 0.5, g)", "g", tied),
    "channel: the gate's slope is left out": (
        "channel",
        "(s + z * s * (1.0 - s))",
        "s",
        of_channels("swish", 2, 6, 7),
    ),
    "channel: the mean length does not move": (
        "channel",
        "all_of_it - along / mean",
        "0.0 - along / mean",
        of_channels("share", 2, 6, 7),
    ),
    "unit: what is outside counts": ("unit", "tl.where(inside, v - mean, 0.0)", "v - mean", UNIT),
    "unit: a wrong count": ("unit", "values = (group * space) * 1.0", "values = (group * space + 1) * 1.0", UNIT),
    "unit: one sample's channels": ("unit", "(unit % groups) * group + m", "unit * group + m", UNIT),
    "unit: nothing pulls": ("unit", "d -= h * (pulled / values)", "d -= 0.0 * h * (pulled / values)", UNIT),
    "unit: no shift": ("unit", "d -= (add_up(total", "d -= 0.0 * (add_up(total", UNIT),
    "unit: the gain is left out of the pull": (
        "unit",
        "add_up(along.to(tl.float64) * gain, 0)",
        "add_up(along, 0)",
        UNIT,
    ),
    "unit: the gate's slope is left out": ("unit", "(s + (e * v) * s * (1.0 - s))", "s", whole("swish", 2, 6, 7)),
    "position: what the pivot leaves": (
        "position",
        "((v - pivot[None, :]) - middle[None, :]) * r[None, :]\n        out",
        "(v - pivot[None, :]) * r[None, :]\n        out",
        of_channels("layer2d", 2, 21, 7),
    ),
    "pointwise: each program takes the first rows": (
        "pointwise",
        "row = program * chunk + first",
        "row = first",
        pointwise("tanh", True),
    ),
    "pointwise: only the last tile": ("pointwise", "gains += through", "gains = through", pointwise("erf", True)),
    "pointwise: the gain of another feature": (
        "pointwise",
        "numbers + row % dim",
        "numbers + row // dim",
        pointwise("tanh", False),
    ),
    "pointwise: alpha is left out of dx": ("pointwise", "(d * a)", "d", pointwise("isru", True)),
    "rotate: turned the other way": ("rotate", "a * c - b * s", "a * c + b * s", turned("halves", ops.Row())),
    "rotate: the gradient is not turned back": (
        "rotate",
        "ha = ga * c + gb * s",
        "ha = ga * c - gb * s",
        turned("pairs", ops.Row()),
    ),
    "rotate: neighbours for halves": (
        "rotate",
        "return pair, 2 * pair, 2 * pair + 1",
        "return pair, 2 * pair, pair + half",
        turned("pairs", ops.Row()),
    ),
    "rotate: no pull": ("rotate", "da = ha - pull[:, None] * a", "da = ha", turned("halves", ops.Row())),
    "rotate: no shift": ("rotate", "db -= shift[:, None]", "db -= 0.0", turned("halves", ops.Row(center=True))),
}


@pytest.mark.parametrize("mistake", {id(row[3]): name for name, row in MISTAKES.items()}.values())
def test_the_calls_are_right_as_the_kernels_are_and_stay_within_what_they_are_handed(mistake, within):
    MISTAKES[mistake][3]()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_kernel_is_caught(mistake, monkeypatch, tmp_path):
    from normkit.kernels.cuda import templates

    template, right, wrong, check = MISTAKES[mistake]
    name = f"{templates.__name__}.{template}"
    source = pathlib.Path(importlib.import_module(name).__file__).read_text()
    assert right in source
    copy = tmp_path / "mistaken.py"
    copy.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("mistaken", copy)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(templates, template, module)
    monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises((AssertionError, RuntimeError)):
        check()


def test_running_moments_are_those_of_the_formula_when_programs_share_the_channels():
    def moved():
        moments = numbers(6), numbers(6).exp()
        pulls = torch.zeros(6), torch.zeros(6)
        ops.online_norm(x, None, None, moments, pulls, ops.Control(1e-5, 0.9, 0.8), limit=1.5)
        return moments

    x = numbers(3, 6, 5)
    found = moved()
    with paths.formula_only():
        torch.testing.assert_close(found, moved())
