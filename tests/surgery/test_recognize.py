"""A norm is found by what it computes, in whatever words, what is almost one is not, and nothing is done to either."""

import copy
import hashlib
import math
import os
import random
import signal
import sys
import threading
import warnings

import near_misses_formula
import near_misses_gradients
import near_misses_series
import near_misses_shapes
import near_misses_state
import near_misses_types
import near_misses_values
import norms_in_other_words
import numpy
import pytest
import torch
from near_misses import Layer, Rms
from torch import nn

import normkit as nk
from normkit import threads
from normkit.optional import library
from normkit.surgery import saving
from normkit.surgery.exact import fusing
from normkit.surgery.exact.racing import Outcome
from normkit.surgery.recognition import inputs, search, specimen
from normkit.surgery.recognition.match import Match
from normkit.surgery.recognition.recognize import examine
from normkit.surgery.recognition.solve import smallest
from normkit.surgery.statistics.batch_statistics import feed

LISTS = (
    *(near_misses_values, near_misses_shapes, near_misses_types, near_misses_state),
    *(near_misses_gradients, near_misses_formula, near_misses_series),
)
NEAR = {name: cls for one in LISTS for name, cls in one.NEAR.items()}
TRUE = norms_in_other_words.TRUE | near_misses_series.TRUE


@pytest.mark.parametrize("prove", [False, True])
def test_a_module_that_lies_elsewhere_is_probed_as_a_copy_and_keeps_its_numbers(prove, monkeypatch):
    """As one on a GPU is; what the match holds is the module's own, where the copy's numbers are others."""
    module = nn.LayerNorm(8, eps=1e-3).double()
    module.weight.data.normal_()

    def elsewhere(given):
        copied = copy.deepcopy(given)
        copied.weight.data.fill_(7.0)
        return copied

    monkeypatch.setattr(specimen, "on_processor", elsewhere)
    match = nk.recognize(module, prove=prove)
    assert str(match) == "LayerNorm: layernorm(dim=8, eps=0.001)"
    x = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(match.module(x), module(x))


def test_batches_go_to_where_a_model_is():
    model = nn.Linear(2, 2, device="meta")
    for batch in (torch.ones(1, 2), (torch.ones(1, 2), torch.ones(1)), {"input": torch.ones(1, 2)}):
        assert feed(model, batch).is_meta


def test_a_module_is_probed_on_one_thread(monkeypatch):
    """Several would wait for one another at each small call, for seconds where other processes take the cores."""
    counts, before = [], torch.get_num_threads()
    monkeypatch.setattr(search, "_explain", lambda *_: counts.append(torch.get_num_threads()) or Match("Rms"))
    torch.set_num_threads(3)
    try:
        nk.recognize(norms_in_other_words.TRUE["ByEinsum"][0](), prove=True)
        assert (counts, torch.get_num_threads()) == ([1], 3)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", NEAR)
def test_what_is_almost_a_norm_is_none(name):
    match = examine(NEAR[name]())
    assert not match, match
    assert match.why_not


@pytest.mark.parametrize("name", TRUE)
def test_a_norm_is_found_however_it_is_written(name):
    cls, method, wanted = TRUE[name]
    match = nk.recognize(cls())
    assert match is not None, examine(cls()).why_not
    assert match.name == method
    assert {key: match.module.arguments[key] for key in wanted} == wanted


TORCHS = {
    "layernorm": (nn.LayerNorm(12, eps=1e-3), "layernorm", {"dim": 12, "eps": 1e-3}),
    "no bias": (nn.LayerNorm(12, bias=False), "layernorm", {"bias": False}),
    "several axes": (nn.LayerNorm([3, 5]), "layernorm", {"dim": (3, 5)}),
    "rmsnorm": (nn.RMSNorm(12, eps=1e-5), "rmsnorm", {"eps": 1e-5}),
    "batchnorm": (nn.BatchNorm2d(8, momentum=0.03), "batchnorm", {"momentum": 0.03}),
    "averaging": (nn.BatchNorm1d(8, momentum=None), "batchnorm", {"momentum": None}),
    "groupnorm": (nn.GroupNorm(4, 12, affine=False), "groupnorm", {"num_groups": 4, "affine": False}),
    "instancenorm": (nn.InstanceNorm2d(12, affine=True, track_running_stats=True), "instancenorm", {}),
    "no affine": (nn.InstanceNorm2d(12), "instancenorm", {"num_features": 12}),
}


@pytest.mark.parametrize("case", TORCHS)
def test_torchs_own_are_found_with_their_arguments_and_parameters(case):
    module, name, wanted = TORCHS[case]
    module = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_()
    match = nk.recognize(module, prove=True)
    assert (match.name, {key: match.kwargs[key] for key in wanted}) == (name, wanted)
    x = torch.randn(6, 12, 3, 5) if "group" in name or "instance" in name else torch.randn(6, 8, 4, 4)
    x = torch.randn(6, 4, 12) if match.module.card.shape == "... C" else x
    x = torch.randn(6, 3, 5) if case == "several axes" else x[..., 0] if case == "averaging" else x
    torch.testing.assert_close(match.module(x), module(x), rtol=2e-5, atol=2e-5)
    assert max(match.error.values()) < 0.02
    assert any(row.startswith("equal in float64 on") and "with gradients" in row for row in match.evidence)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("channels", [3, 8, 24])
def test_a_group_for_each_channel_is_no_instance_norm_which_takes_less(channels, affine):
    """An instance norm refuses one position in training, and inputs without space."""
    module = nn.GroupNorm(channels, channels, affine=affine)
    match = nk.recognize(module, prove=True)
    assert (match.name, match.kwargs["num_groups"]) == ("groupnorm", channels)
    assert match.module.training
    for shape in ((4, channels, 1, 1), (4, channels, 1), (4, channels), (4, channels, 5, 3)):
        x = torch.randn(shape)
        rounding = 5 * 2**-24 / module.eps**0.5  # of numbers up to 5 less themselves, over the least deviation
        torch.testing.assert_close(match.module(x), module(x), rtol=1e-5, atol=2 * rounding)


def whole(module):
    """Everything that probing could change."""
    state = {k: v.clone() for k, v in module.state_dict().items()}
    numbers = hashlib.sha256(b"".join(v.contiguous().numpy().tobytes() for v in state.values())).hexdigest()
    plain = {k: repr(v) for k, v in vars(module).items()}
    return numbers, plain, [m.training for m in module.modules()], [p.grad for p in module.parameters()]


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.BatchNorm1d(6, momentum=0.3)

    def forward(self, x):
        return self.inner(x)


def test_a_norm_that_was_used_is_found_with_the_number_of_batches_that_it_saw():
    norm = Wrapped()
    for _ in range(3):
        norm(torch.randn(4, 6))
    found = nk.recognize(norm)
    assert found.name == "batchnorm"
    assert found.kwargs["momentum"] == 0.3
    assert found.module.num_batches_tracked == 3
    x = torch.randn(4, 6)
    norm(x), found.module(x)
    torch.testing.assert_close(found.module.running_mean, norm.inner.running_mean)


@pytest.mark.parametrize("name", ["RemembersTheLast", "AfterSomeCalls", "MovingGain", "RunningMeanAlone", "Noise"])
def test_nothing_is_done_to_the_module_or_to_random_numbers(name, capsys):
    module = NEAR[name]().train()
    before = whole(module), torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    nk.recognize(module)
    after = whole(module), torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])
    assert before[2:] == after[2:]


def test_calls_that_overlap_in_two_threads_leave_streams_and_warnings_as_they_were():
    before = sys.stdout, sys.stderr, [*warnings.filters]
    begun, inside, left = (threading.Event() for _ in range(3))

    def first():
        with specimen.quiet():
            begun.set(), inside.wait(0.2)
        left.set()

    def second():
        begun.wait()
        with specimen.quiet():
            inside.set(), left.wait(0.2)

    threads = [threading.Thread(target=one) for one in (first, second)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    after = sys.stdout, sys.stderr, [*warnings.filters]
    sys.stdout, sys.stderr, warnings.filters[:] = before
    assert after == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.parametrize("lock", [specimen._one_thread, threads._counting])
def test_a_process_that_is_forked_while_a_thread_has_its_turn_does_not_wait_for_it(lock):
    has, ended = threading.Event(), threading.Event()

    def hold():
        with lock:
            has.set(), ended.wait()

    holder = threading.Thread(target=hold)
    holder.start(), has.wait()
    child = os.fork()
    if not child:
        signal.alarm(5)
        with lock:
            os._exit(0)
    ended.set(), holder.join()
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_turn_of_the_thread_that_forks_stays_its_own():
    with specimen._one_thread:
        child = os.fork()
        if not child:
            signal.alarm(5)
            with specimen._one_thread:
                pass
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_what_a_module_counts_outside_of_itself_is_as_it_was():
    by_class, calls = near_misses_state.CountsInItsClass, near_misses_state.CALLS
    nk.recognize(by_class())
    nk.recognize(near_misses_state.CountsInAList())
    assert (by_class.calls, calls) == (0, [0])
    assert near_misses_state.CALLS is calls
    nk.recognize(near_misses_state.CountsInADefault())
    assert near_misses_state.counted.__defaults__ == ([0],)


def test_two_of_a_class_that_hold_other_functions_are_looked_at_each():
    class Then(Rms):
        def __init__(self, then):
            super().__init__()
            self.then = then

        def forward(self, x):
            return self.then(super().forward(x))

    found = nk.recognize(nn.Sequential(Then(torch.clone), Then(torch.tanh), nn.Linear(12, 12)))
    assert list(found.found) == ["0"]


def test_what_a_module_prints_while_it_is_probed_is_not_seen(capsys):
    class Talks(Layer):
        def forward(self, x):
            print("here")
            return super().forward(x)

    assert nk.recognize(Talks()).name == "layernorm"
    assert capsys.readouterr().out == ""


def test_hooks_and_a_forward_on_the_instance_are_not_looked_through():
    hooked = nn.LayerNorm(8)
    hooked.register_forward_hook(lambda module, inputs, output: 2 * output)
    patched = nn.LayerNorm(8)
    patched.forward = lambda x: x
    assert nk.recognize(hooked) is None
    assert nk.recognize(patched) is None
    assert "hooks" in examine(hooked).why_not
    assert "instance" in examine(patched).why_not


class BufferNorm(Rms):
    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.tensor(2.0))

    def forward(self, x):
        return self.size * super().forward(x)


class PartlyReset(BufferNorm):
    def reset_parameters(self):
        for parameter in self.parameters():
            nn.init.ones_(parameter)


def test_a_module_on_the_meta_device_is_what_it_is_with_numbers_but_for_buffers_that_it_cannot_fill():
    before = torch.get_rng_state()
    for build in (lambda: nn.LayerNorm(8, eps=1e-6), lambda: nn.BatchNorm1d(8), Rms):
        with torch.device("meta"):
            module = build()
        match = nk.recognize(module)
        assert str(match) == str(nk.recognize(build()))
        assert {tensor.device.type for tensor in match.module.state_dict().values()} == {"meta"}
    for build in (BufferNorm, PartlyReset):
        with torch.device("meta"):
            assert "meta device, and it has no reset_parameters" in examine(build()).why_not
    assert torch.equal(before, torch.get_rng_state())


def test_modules_without_numbers_are_distinguished():
    assert "is lazy: call the model once" in examine(nn.LazyBatchNorm1d()).why_not
    why_not = "it takes no input of the shapes that were tried; rows raise RuntimeError: never"
    assert examine(Raises()).why_not == why_not  # as kernels do on a machine without a GPU
    assert examine(near_misses_formula.NormAndNone()).why_not == "it returns 2 values, and a norm one tensor"
    with pytest.raises(TypeError, match=r"recognize: module must be a torch\.nn\.Module, not Tensor"):
        nk.recognize(torch.ones(3))


class Raises(Rms):
    def forward(self, x):
        raise RuntimeError("never")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.odd = Rms(), nn.LayerNorm(12), NEAR["TwoFewer"]()
        self.three = copy.deepcopy(self.one)
        self.linear = nn.Linear(12, 12)
        self.oddnorm = NEAR["Residual"]()

    def forward(self, x):
        return self.three(self.linear(self.odd(self.two(self.one(x)))))


def test_a_model_gives_the_table_of_its_sites():
    model = Block()
    with torch.no_grad():
        model.three.weight.fill_(3.0)
    found = nk.recognize(model)
    assert {name: match.name for name, match in found.found.items()} == {
        "one": "rmsnorm",
        "two": "layernorm",
        "three": "rmsnorm",
    }
    assert found["three"].module.weight.tolist() == [3.0] * 12
    assert "rmsnorm(dim=12, eps=1e-06, cast='native')" in str(found)  # it has no casts of its own
    assert found.to_dict()["two"]["name"] == "layernorm"


def test_an_example_tells_the_width_of_a_norm_without_parameters():
    class Weightless(nn.Module):
        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)

    norm = Weightless()
    model = nn.Sequential(nn.Linear(7, 24), norm, nn.Sequential(norm, nn.Linear(24, 3)))
    found = nk.recognize(model, torch.randn(2, 7))
    assert found["1"].kwargs["dim"] == found["2.0"].kwargs["dim"] == 24


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
def test_a_model_with_a_weight_that_has_a_history_is_called_on_an_example():
    model, x = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)), nn.LayerNorm(4)), torch.randn(2, 4)
    model(x)
    assert list(nk.recognize(model, x).found) == ["1"]


class PixelNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-8)


class GroupsOf(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        return nn.functional.group_norm(x, self.groups, eps=1e-6)


@pytest.mark.parametrize(
    "norm, side, name",
    [
        (PixelNorm(), 8, "rmsnorm2d"),
        (GroupsOf(4), 4, "groupnorm"),
        (GroupsOf(4), 5, "groupnorm"),
    ],
)
def test_an_image_of_the_example_tells_its_channels_and_not_its_width(norm, side, name):
    model, x = nn.Sequential(nn.Conv2d(3, 16, 1), norm, nn.Conv2d(16, 3, 1)), torch.randn(2, 3, side, side)
    match = nk.recognize(model, x)["1"]
    assert (match.name, match.kwargs["num_features"]) == (name, 16)
    nk.swap(model, "rmsnorm2d:eps=1e-8", example=x)
    y = model[0](x)
    torch.testing.assert_close(model[1](y), PixelNorm()(y))


DIALECTS = {
    "llama.modeling_llama.LlamaRMSNorm": ("rmsnorm", {"offset": 0.0, "eps": 1e-6}),
    "gemma.modeling_gemma.GemmaRMSNorm": ("rmsnorm", {"offset": 1.0, "eps": 1e-6}),
    "t5.modeling_t5.T5LayerNorm": ("rmsnorm", {"eps": 1e-6}),
    "nemotron.modeling_nemotron.NemotronLayerNorm1P": ("layernorm", {"offset": 1.0, "eps": 1e-5}),
}


@pytest.mark.parametrize("path", DIALECTS)
def test_the_worlds_dialects_are_read(path):
    module, _, name = path.rpartition(".")
    library("transformers")
    cls = getattr(__import__(f"transformers.models.{module}", fromlist=[name]), name)
    method, wanted = DIALECTS[path]
    match = nk.recognize(cls(16))
    assert match.name == method
    assert {key: match.module.arguments[key] for key in wanted} == wanted
    theirs, x = cls(16).bfloat16(), torch.randn(40, 16).bfloat16()
    ours = nk.recognize(theirs).module
    assert (ours(x) != theirs(x)).double().mean() < 0.02


class Native(Rms):
    """Never leaves the type of its input."""

    def forward(self, x):
        return self.unit(x) * self.weight


class Factor(Rms):
    """As DeepSeek V4 rounds one over the root mean square."""

    def forward(self, x):
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        return self.weight * (x * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps).to(x.dtype))


@pytest.mark.parametrize(("cls", "cast"), [(Native, "native"), (Factor, "factor")])
def test_rounding_at_every_step_is_named_and_kept_by_what_takes_its_place(cls, cast, monkeypatch, tmp_path):
    model = nn.Sequential(nn.Linear(8, 40), cls(40), nn.Linear(40, 3)).bfloat16().eval()
    torch.nn.init.normal_(model[1].weight)
    x = torch.randn(64, 8).bfloat16()
    found = nk.recognize(model)["1"]
    assert found.kwargs == {"dim": 40, "eps": 1e-6, "cast": cast}
    assert "bfloat16: 0.0% of the results have other bits" in " ".join(found.evidence)
    monkeypatch.setattr(fusing, "race", lambda *_: Outcome(1.0, 0.5, True))
    fused = nk.fuse(model, inplace=False).model
    swapped = nk.swap(model, f"rmsnorm:cast={cast}", inplace=False).model
    for new in (fused, swapped):
        assert type(new[1]) is nk.RMSNorm
        assert torch.equal(new(x), model(x))
    saving.save(model, fused, str(tmp_path / "out"))
    again = saving.rebuilt(copy.deepcopy(model), str(tmp_path / "out"))
    assert again[1].arguments["cast"] == cast
    assert torch.equal(again(x), model(x))


class Frozen(nn.Module):
    """As DETR freezes its batch norms."""

    def __init__(self, width):
        super().__init__()
        for name, value in {"weight": 1.0, "bias": 0.0, "running_mean": 0.0, "running_var": 1.0}.items():
            self.register_buffer(name, torch.full((width,), value))

    def forward(self, x):
        weight, bias, mean, var = (
            t.view(1, -1, 1, 1) for t in (self.weight, self.bias, self.running_mean, self.running_var)
        )
        scale = weight * (var + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


def test_a_frozen_norm_of_few_channels_is_found():
    assert nk.recognize(Frozen(4)).name == "frozen-batchnorm"


def test_an_eps_as_large_as_the_variances_is_read():
    assert nk.recognize(nn.BatchNorm1d(6, eps=0.1)).kwargs["eps"] == 0.1


def test_an_eps_that_halves_round_one_way_is_recognized():
    """At this width and eps, float16 rounds the variances of the first rows mostly one way."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(16))

        def forward(self, x):
            x = x - x.mean(-1, keepdim=True)
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2) * self.gain

    assert str(nk.recognize(Plain())) == "Plain: layernorm(dim=16, bias=False, eps=0.01)"


def test_what_is_no_norm_but_has_a_sister_that_is_one_is_listed():
    class Sized(nn.Module):
        def __init__(self, more):
            super().__init__()
            self.gain, self.more = nn.Parameter(torch.ones(8)), more

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain + self.more * x.sin()

    table = nk.recognize(nn.Sequential(Sized(0), nn.Linear(8, 8), Sized(1), nn.ReLU()))
    assert [(name, match.name) for name, match in table.items()] == [("0", "rmsnorm"), ("2", None)]
    assert not nk.recognize(nn.Sequential(nn.Linear(8, 8), Sized(1))), "without one it may be anything"


@pytest.mark.parametrize("module", [nn.Flatten(), nn.Sequential(nn.Identity())], ids=["flatten", "identity"])
def test_what_changes_nothing_is_no_norm(module):
    assert examine(module).why_not == "it gives what it is given"


@pytest.mark.parametrize("options", [{}, {"elementwise_affine": False}])
def test_an_eps_that_is_each_types_own_is_recognized(options):
    norm = nn.RMSNorm(8, **options)
    match = nk.recognize(norm, prove=True)
    assert match.name == "rmsnorm"
    assert match.kwargs["eps"] is None
    x = 1e-5 * torch.randn(4, 8)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        want = copy.deepcopy(norm).to(dtype)(x.to(dtype))
        got = copy.deepcopy(match.module).to(dtype)(x.to(dtype))
        torch.testing.assert_close(got, want)


class OwnEps(nn.Module):
    """As torch's, but for half precision, which has its own eps here; with ``fixed`` all types have float64's."""

    def __init__(self, dim, fixed=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.fixed = fixed

    def forward(self, x):
        eps = torch.finfo(torch.float64 if self.fixed else x.dtype).eps
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * self.weight


def test_other_machine_epsilons_are_not_taken_for_it():
    fixed = nk.recognize(OwnEps(8, fixed=True), prove=True)
    assert fixed.kwargs["eps"] == torch.finfo(torch.float64).eps
    assert not nk.recognize(OwnEps(8), prove=True)


@pytest.mark.parametrize("width", [3, 8])
def test_an_instance_norm_without_parameters_is_no_layer_norm(width):
    norm = nn.InstanceNorm1d(width)
    match = nk.recognize(norm, prove=True)
    assert match.name == "instancenorm"
    x = torch.randn(4, width, 11)
    torch.testing.assert_close(match.module(x), norm(x))


class Unbiased(nn.LayerNorm):
    def forward(self, x):
        axes = tuple(range(-len(self.normalized_shape), 0))
        deviation = x - x.mean(axes, keepdim=True)
        return deviation * (x.var(axes, keepdim=True) + self.eps).rsqrt() * self.weight + self.bias


class WithMany(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x) * (1 if len(x) < 8 else 1.001)


def test_long_vectors_are_recognized_from_few_of_them(monkeypatch):
    drawn, honest = [], inputs._normal
    monkeypatch.setattr(inputs, "_normal", lambda sizes, seed: drawn.append(sizes) or honest(sizes, seed))
    assert examine(nn.LayerNorm((24, 24, 16)), prove=True).kwargs == {"dim": (24, 24, 16), "eps": 1e-5}
    assert max(sizes[0] for sizes in drawn) < 64
    assert "layernorm differs: 10.5572888" in examine(Unbiased((24, 24, 16))).why_not
    assert "differs" in examine(WithMany((24, 24, 16))).why_not


def test_a_norm_is_recognized_and_exchanged_within_inference_mode_as_outside_of_it():
    model = nn.Sequential(nn.Linear(8, 16), Unbiased(16), nn.LayerNorm(16))
    outside = str(nk.recognize(model, prove=True))
    with torch.inference_mode():
        assert str(nk.recognize(model, prove=True)) == outside
        nk.swap(model, {"layernorm": "rmsnorm"})
    model(torch.randn(3, 8)).sum().backward()
    assert model[2].weight.grad is not None


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(1), nn.InstanceNorm2d(1, affine=True), nk.BatchNorm(1)], ids=repr)
def test_norms_of_one_channel_are_recognized(norm):
    match = examine(norm, prove=True)
    assert match.name == ("instancenorm" if isinstance(norm, nn.InstanceNorm2d) else "batchnorm"), match.why_not
    assert match.kwargs["num_features"] == 1


def test_a_long_vector_of_small_axes_leaves_sizes_for_the_others():
    assert inputs.shapes((4, 5, 6, 3, 40))[1].sizes == (7, 2, 4, 5, 6, 3, 40)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (nn.LayerNorm(2), "layernorm(dim=2, eps=1e-05)"),
        (nn.LayerNorm(2, elementwise_affine=False), "layernorm(dim=2, affine=False, eps=1e-05)"),
        (nn.RMSNorm(1), "rmsnorm(dim=1, eps=None)"),
        (nn.RMSNorm(2), "rmsnorm(dim=2, eps=None, cast='late')"),
    ],
)
def test_rows_of_so_few_features_that_gradients_cancel_are_recognized(module, name):
    assert str(nk.recognize(module, prove=True)).endswith(name)


class Held(nn.Module):
    """A norm whose statistics are constants in the backward pass."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.centred = norm.weight, isinstance(norm, nn.LayerNorm)

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True) if self.centred else x
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt().detach() * self.weight


@pytest.mark.parametrize("norm", [nn.LayerNorm(2), nn.RMSNorm(2), nn.RMSNorm(1)])
def test_a_gradient_that_should_cancel_and_does_not_is_seen(norm):
    assert not nk.recognize(Held(norm), prove=True)


class NodesOfOneGraph(nn.Module):
    """torch_geometric's GraphNorm, of one graph."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.mean_scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if x.dim() != 2:
            raise ValueError("x must be (nodes, features)")
        graph = x.new_zeros(len(x), dtype=torch.long)

        def mean(v):
            return v.new_zeros(1, v.shape[1]).index_add_(0, graph, v) / len(v)

        v = x - mean(x).index_select(0, graph) * self.mean_scale
        return self.weight * v / (mean(v.pow(2)) + 1e-5).sqrt().index_select(0, graph) + self.bias


@pytest.mark.parametrize("width", [12, 160])
def test_a_graph_norm_is_recognized_whatever_its_large_share_of_the_mean_rounds_off(width):
    match = nk.recognize(NodesOfOneGraph(width), prove=True)
    assert (match.name, match.kwargs["num_features"]) == ("graph-norm", width)


def test_a_constant_is_solved_wherever_it_lies_between_two_tries():
    for power in range(-60, 12):
        want = 10 ** (power / 7)
        assert smallest(lambda value, bound: abs(math.log(value / want)) if value else 99) == pytest.approx(want, 1e-6)  # noqa: B023
