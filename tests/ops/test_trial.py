"""A GPU's kernel is tried out before it is believed; here the interpreter plays the GPU."""

import warnings

import pytest
import torch

from normkit import ops
from normkit.kernels import cuda
from normkit.ops import paths, trial

pytestmark = pytest.mark.skipif(cuda.absent() is not None, reason=str(cuda.absent()))
X = torch.linspace(-1, 2, 40).view(5, 8)


@pytest.fixture(autouse=True)
def tried(monkeypatch, tmp_path):
    monkeypatch.setenv("NORMKIT_TRIAL", "always")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(trial, "_verdicts", {})
    with paths.interpreted():
        yield


@pytest.fixture
def wrong(monkeypatch):
    """Kernels that are a tenth off, and how often each was called."""
    engine, called = cuda.library(True), []

    def spoil(name, place):
        honest = getattr(engine, name)

        def off(plan, rows, *tensors):
            called.append(name)
            honest(plan, rows, *tensors)
            tensors[place].mul_(1.1)

        monkeypatch.setattr(engine, name, off)

    def also(*names):
        for name in names:
            spoil(name, {"row_forward": 5, "row_backward": 5}[name])
        return called

    return also


def test_a_kernel_that_is_right_is_tried_once_for_each_variant():
    with paths.watch() as taken:
        ops.rms_norm(X, (8,))
        ops.rms_norm(X * 2, (8,))
        ops.rms_norm(X.bfloat16(), (8,))
    assert [path.why for path in taken] == [None] * 3, "whoever watches is not told of trials"
    assert len(trial._verdicts) == 2


def test_a_kernel_that_is_wrong_is_warned_of_once_and_never_used(wrong):
    called = wrong("row_forward")
    with pytest.warns(RuntimeWarning, match="row_norm does not do what its formula does.*report"):
        y = ops.rms_norm(X, (8,))
    before = len(called)
    with warnings.catch_warnings(), paths.watch() as taken:
        warnings.simplefilter("error")
        again = ops.rms_norm(X, (8,))
    assert len(called) == before == 1
    assert "it failed its trial: output 0 is off by" in taken[0].why
    with paths.formula_only():
        want = ops.rms_norm(X, (8,))
    assert torch.equal(y, want)
    assert torch.equal(again, want)


def test_a_wrong_backward_pass_is_found_where_gradients_are_wanted(wrong):
    wrong("row_backward")
    with paths.watch() as taken:
        ops.rms_norm(X, (8,))
        with pytest.warns(RuntimeWarning, match="gradient 0 is off"):
            ops.rms_norm(X.clone().requires_grad_(), (8,))
    assert [path.by for path in taken] == ["Triton kernel, interpreted", "formula"]


@pytest.mark.parametrize("rule", [ops.Row(center=True), ops.Row(center=True, eps=1e-12, eps_place="outside")])
def test_a_gradient_that_cancels_is_held_to_what_the_formula_rounds(rule, wrong):
    x = torch.randn(5, 2).requires_grad_()  # of two centered entries nothing is left but their signs
    with warnings.catch_warnings(), paths.watch() as taken:
        warnings.simplefilter("error")
        ops.row_norm(x, rule=rule)
    assert [path.why for path in taken] == [None]
    trial._verdicts.clear()
    wrong("row_forward")
    with pytest.warns(RuntimeWarning, match="output 0 is off by 0.1"):
        ops.row_norm(x, rule=rule)


def test_a_centered_vector_of_one_entry_has_no_kernel():
    rule = ops.Row(center=True)
    with paths.watch() as taken:
        ops.row_norm(X.view(-1, 1), rule=rule)
        ops.row_norm(X.view(5, 8, 1), rule=rule, shape=(8, 1))
        ops.row_norm(X.view(-1, 1))
    assert [path.by for path in taken] == ["formula", "Triton kernel, interpreted", "Triton kernel, interpreted"]
    assert "one entry" in taken[0].why


def test_a_kernel_that_does_not_even_start_is_not_used(monkeypatch):
    def fails(*arguments):
        raise RuntimeError("out of resources\nand a long trace")

    monkeypatch.setattr(cuda.library(True), "row_forward", fails)
    with pytest.warns(RuntimeWarning, match=r"RuntimeError: out of resources\)"):
        y = ops.rms_norm(X, (8,))
    assert torch.allclose(y.square().mean(1), torch.ones(5), atol=1e-4)


def test_trials_can_be_left_out(monkeypatch, wrong):
    monkeypatch.setenv("NORMKIT_TRIAL", "false")
    called = wrong("row_forward")
    ops.rms_norm(X, (8,))
    assert len(called) == 1
    assert not trial._verdicts


def test_a_trial_leaves_the_random_numbers_and_the_mode_as_they_are():
    state = torch.random.get_rng_state()
    with torch.inference_mode():
        ops.rms_norm(X, (8,))
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_trial_passes_where_new_tensors_are_made_elsewhere():
    with warnings.catch_warnings(), paths.watch() as taken, torch.device("meta"):
        warnings.simplefilter("error")
        ops.rms_norm(X.clone().requires_grad_(), (8,))
    assert [path.why for path in taken] == [None]


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 3, 1, 2), (3, 1, 0, 2)])
def test_a_trial_draws_in_the_order_of_memory_of_what_comes(axes):
    like = torch.empty(5, 6, 7, 8).permute(axes)
    drawn = trial._draw(like, (2, 3, 2, 4), torch.Generator())
    assert drawn.shape == (2, 3, 2, 4)
    assert drawn.dim_order() == like.dim_order()


def test_what_has_passed_is_kept_for_these_versions_alone(monkeypatch):
    device = torch.device("cuda", 0)
    monkeypatch.setattr(trial, "_mark", lambda device: "these versions")
    trial._remember(device, {"a", "b"})
    assert trial._remembered(device) == {"a", "b"}
    monkeypatch.setattr(trial, "_mark", lambda device: "other versions")
    assert trial._remembered(device) == set()


def test_a_file_that_is_broken_or_cannot_be_written_is_no_trouble(monkeypatch, tmp_path):
    device = torch.device("cuda", 0)
    monkeypatch.setattr(trial, "_mark", lambda device: "these versions")
    trial._remember(device, {"a"})
    trial._file(device).write_text("{")
    assert trial._remembered(device) == set()
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    trial._remember(device, {"a"})
    assert trial._remembered(device) == set()


def test_every_op_that_has_a_kernel_can_be_tried():
    q, angles = torch.randn(4, 30, 3, 8), (torch.randn(30, 1, 4), torch.randn(4, 30, 1, 4))
    with paths.watch() as taken:
        ops.add_row_norm(q, q, torch.ones(8))
        ops.row_norm(q, torch.ones(30, 3, 8))
        ops.dyt(q, torch.ones(1), torch.ones(30), channels_last=False)
        ops.derf(q, torch.ones(1), torch.zeros(1), function="satursin")
        ops.eln(q.bfloat16(), torch.ones(1))
        ops.rotate(q, angles)
        ops.norm_rotate(q.requires_grad_(), None, None, angles, rule=ops.Row(), pairing="pairs")
        ops.rms_norm(torch.ones(8), (8,))
    assert [str(path) for path in taken] == ["Triton kernel, interpreted"] * 8
    assert len(trial._verdicts) == 8


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_sum_in_half_precision_which_the_kernel_rounds_passes_its_trial(kind):
    x, w = torch.randn(40, 64).to(kind).requires_grad_(), torch.ones(64, requires_grad=True)
    with paths.watch() as taken:
        ops.add_rms_norm(x, x.detach(), w)
    assert [str(path) for path in taken] == ["Triton kernel, interpreted"]


def test_a_trial_is_small_whatever_it_is_made_for():
    shapes = [(4096, 4096, 8), (7, 1, 8), (8,), (2, 3, 4, 8)]
    assert [trial._cut(torch.Size(shape), 1) for shape in shapes] == [(9, 1, 8), (7, 1, 8), (8,), (2, 3, 1, 8)]
    assert trial._cut(torch.Size((50, 3, 8)), 2) == (9, 3, 8)
    assert trial._align(torch.Size((50, 1, 4)), (3, 9, 1, 8)) == (9, 1, 4)


def test_every_op_of_channels_can_be_tried():
    x, moving, still = torch.randn(4, 6, 5), (torch.zeros(6), torch.ones(6)), (torch.zeros(6), torch.zeros(6))
    with paths.watch() as taken:
        ops.batch_norm(x)
        ops.group_norm(x, 2)
        ops.instance_norm(x.requires_grad_()).sum().backward()
        ops.layer_norm2d(x)
        ops.global_response_norm(x, torch.ones(6))
        ops.filter_response_norm(x, tau=torch.zeros(6), eps=torch.ones(1, requires_grad=True))
        ops.evonorm_s(x, 2, slope=torch.ones(6))
        ops.normalize_with(x.detach(), *moving)
        ops.online_norm(x.detach(), None, None, moving, still, ops.Control(1e-5, 0.9, 0.9), limit=2.0)
    assert {str(path) for path in taken} == {"Triton kernel, interpreted"}
    assert len(trial._verdicts) == 9
    assert len(taken) == 10, "no trial moves what is running, or is told of"


def test_a_trial_of_channels_has_few_positions_of_the_same_kind():
    assert trial._fewer((9, 64, 224, 224), 4224) == (3, 64, 18, 224)
    assert trial._fewer((9, 3, 160000), 4224) == (3, 3, 4224)
    assert trial._fewer((9, 6, 5), 4224) == (9, 6, 5)


def test_images_of_like_sizes_are_tried_once():
    for height, width in [(9, 11), (11, 9), (7, 13), (8, 14)]:
        ops.instance_norm(torch.randn(2, 3, height, width))
    assert len(trial._verdicts) == 2, "that of the last is a multiple of 16"


@pytest.mark.parametrize("off, wrong", [(4e-5, False), (1.0, True)])
def test_a_sum_whose_terms_cancel_is_held_to_the_size_of_such_sums(monkeypatch, off, wrong):
    kernels, exact, rounded = torch.tensor([off]), torch.zeros(1, dtype=torch.float64), torch.tensor([1e-6])
    results = iter([{"gradient 1": numbers} for numbers in (kernels, exact, rounded)])
    monkeypatch.setattr(trial, "_run", lambda *_: next(results))
    against = trial._compare(("row_norm", (ops.Row(), 1), X.device, True), (X, None, None))
    assert (against is not None) == wrong
