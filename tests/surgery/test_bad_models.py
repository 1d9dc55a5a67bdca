"""Models that cannot be changed, or not everywhere: refused by name and left as they were, or changed where it goes."""

import contextlib
import io

import pytest
import torch
from torch import distributed, nn
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import normkit as nk
from normkit.surgery.exact import fusing
from normkit.surgery.exact.racing import Outcome
from normkit.watching import checkup, inspect

TOKENS = torch.arange(10).view(2, 5) % 9


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 9), nn.Linear(9, 8)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Untraced(Block):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class Raises(nn.LayerNorm):
    def forward(self, x):
        raise RuntimeError("not today")


class Counts(nn.LayerNorm):
    def __init__(self, dim):
        super().__init__(dim)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        print("here")
        self.calls += 1
        return super().forward(x)


def model(last=nn.LayerNorm, block=Block):
    torch.manual_seed(0)
    made = nn.Sequential(nn.Embedding(9, 8), block(), last(8), nn.Linear(8, 9))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.eval()


def twice():
    made = model()
    made[1].norm = made[2]
    return made


def hooked():
    made = model()
    for norm in (made[1].norm, made[2]):
        norm.register_forward_hook(lambda *_: None)
    return made


def mixed():
    made = model()
    made[1].norm.bfloat16()
    return made


def sharded():
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    made, mesh = model(), init_device_mesh("cpu", (1,))
    for part in made.modules():
        for name, parameter in list(part._parameters.items()):
            part._parameters[name] = nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)]))
    return made


@pytest.fixture(scope="module", autouse=True)
def alone():
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


CALLS = {
    "fuse": lambda made, x: nk.fuse(made, x),
    "fold": lambda made, x: nk.fold(made, x),
    "convert": lambda made, x: nk.convert(made, "pre-rmsnorm", x),
    "swap": lambda made, x: nk.swap(made, {"layernorm": "rmsnorm"}, example=x),
    "remove": lambda made, x: nk.remove(made, [x], steps=9, start=1, gaps=(1, 1, 1)),
    "recalibrate": lambda made, x: nk.recalibrate(made, [x]),
    "quantize": lambda made, x: nk.quantize(made, [x]),
}
NO_FIT, HOOKS, META = "does not take the example", "it has hooks", "on the meta device"
REFUSED = [
    ("fuse fold convert swap remove recalibrate quantize", lambda: model().to("meta"), META),
    ("fuse fold convert swap remove", lambda: model(Raises), f"{NO_FIT}: RuntimeError: not today"),
    ("fuse fold convert swap remove", mixed, NO_FIT),
    ("fuse fold convert swap remove", sharded, NO_FIT),
    (
        "convert swap remove",
        hooked,
        f"1.norm, a LayerNorm, is not recognized: {HOOKS}, .*, and 1 more",
    ),
    ("fold convert remove", lambda: model(block=Untraced), "cannot be traced with this example: torch.export"),
    ("remove", twice, "1.norm is called 2 times"),
    ("fold convert", lambda: model().train(), "train mode"),
]


def tensors(made):
    held = [*made.named_parameters(remove_duplicate=False), *made.named_buffers(remove_duplicate=False)]
    whole = [t.full_tensor() if hasattr(t, "full_tensor") else t for _, t in held]
    return [t if t.is_meta else t.detach().clone() for t in whole], [id(t) for _, t in held]


def unchanged(made, before, modules):
    now, (old, names) = tensors(made), before
    equal = all(t.is_meta or torch.equal(t, o) for t, o in zip(now[0], old, strict=True))
    return equal and now[1] == names and [id(part) for part in made.modules()] == modules


@pytest.mark.parametrize(("calls", "build", "why"), REFUSED)
def test_what_is_refused_is_named_and_left_as_it_was(calls, build, why):
    for call in calls.split():
        made, said = build(), io.StringIO()
        before, modules, state = tensors(made), [id(part) for part in made.modules()], torch.get_rng_state()
        with contextlib.redirect_stdout(said), pytest.raises(ValueError, match=why) as error:
            CALLS[call](made, TOKENS)
        assert str(error.value).startswith((f"{call}: ", "the model cannot be traced"))
        assert unchanged(made, before, modules)
        assert torch.equal(state, torch.get_rng_state())
        assert not said.getvalue()


@pytest.mark.parametrize("call", CALLS)
def test_layers_without_a_size_are_refused(call):
    made = nn.Sequential(nn.Embedding(10, 8), nn.LazyLinear(4)).eval()
    with pytest.raises(ValueError, match=f"{call}: the model has layers that take their size from a first input"):
        CALLS[call](made, TOKENS)
    assert made[1].has_uninitialized_params()


@pytest.mark.parametrize("name", ["save", "inspect", "checkup"])
def test_a_model_without_numbers_is_not_saved_or_looked_at(name, tmp_path):
    made = model().to("meta")
    calls = {
        "save": lambda: nk.save(made, tmp_path / "s", original=model()),
        "inspect": lambda: inspect(made, [TOKENS]),
    }
    with pytest.raises(ValueError, match=f"{name}: the model is {META}"):
        calls.get(name, lambda: checkup(made, [TOKENS]))()


WHERE = {
    "fuse": lambda made, where: nk.fuse(made, where=where),
    "fold": lambda made, where: nk.fold(made, TOKENS, where=where),
    "swap": lambda made, where: nk.swap(made, "dyt", where=where),
    "remove": lambda made, where: nk.remove(made, [TOKENS], steps=9, start=1, gaps=(1, 1, 1), where=where),
    "quantize": lambda made, where: nk.quantize(made, where=where),
    "adapt": lambda made, where: nk.adapt(made, where=where),
    "apply": lambda made, where: nk.weight.apply(made, "weight-norm", where=where),
    "regularize": lambda made, where: nk.weight.regularize(made, "orthogonality", where=where),
    "project": lambda made, where: nk.weight.project(
        made, torch.optim.SGD(made.parameters(), 0.1), "weight-norm", where=where
    ),
}


@pytest.mark.parametrize("name", WHERE)
@pytest.mark.parametrize(
    "where", [(name for name in ["1.norm"]), map(str, ["1.norm"]), 5], ids=lambda x: type(x).__name__
)
def test_a_choice_of_parts_that_can_be_gone_over_once_alone_is_refused(name, where):
    made = model()
    before, modules = tensors(made), [id(part) for part in made.modules()]
    why = f"^{name}: where must be a name, a class, a function, or a list of .*, not {type(where).__name__}"
    with pytest.raises(TypeError, match=why):
        WHERE[name](made, where)
    assert unchanged(made, before, modules)


@pytest.mark.parametrize("name", WHERE)
def test_a_name_that_no_part_has_is_refused_by_name(name):
    made = model()
    before, modules = tensors(made), [id(part) for part in made.modules()]
    with pytest.raises(ValueError, match=f"{name}: where has '1.wrong', which no part of the model is called"):
        WHERE[name](made, ["1.norm", "1.wrong"])
    assert unchanged(made, before, modules)


@pytest.mark.parametrize("call", ["fuse", "fold", "convert", "swap"])
def test_an_example_that_does_not_fit_is_refused(call):
    made = model()
    before, modules = tensors(made), [id(part) for part in made.modules()]
    with pytest.raises(ValueError, match=f"{call}: the model {NO_FIT}: RuntimeError"):
        CALLS[call](made, torch.randn(2, 5))
    assert unchanged(made, before, modules)


@pytest.mark.parametrize("call", ["fuse", "fold"])
def test_hooked_and_shared_norms_are_left_alone_and_named(call):
    report = CALLS[call](hooked(), TOKENS)
    assert [(c.site, c.became) for c in report] == [("1.norm", None), ("2", None)]
    assert all(HOOKS in c.why_not for c in report)
    made = twice()
    report = CALLS["fold"](made, TOKENS)
    assert [(c.site, c.why_not) for c in report] == [("1.norm", "1.norm is called 2 times")]


@pytest.mark.parametrize("call", ["fuse", "fold", "convert", "swap"])
def test_nothing_is_printed_counted_or_drawn_meanwhile(call, capsys):
    made, state = model(Counts), torch.get_rng_state()
    with contextlib.suppress(ValueError):
        CALLS[call](made, TOKENS)
    assert capsys.readouterr().out == ""
    assert torch.equal(state, torch.get_rng_state())
    assert all(not part.calls for part in made.modules() if isinstance(part, Counts))


@pytest.mark.parametrize("call", ["fold", "convert"])
def test_a_model_in_half_precision_gives_the_same_to_what_it_rounds(call):
    made = model().bfloat16()
    wanted = made(TOKENS).float()
    assert CALLS[call](made, TOKENS).done
    assert next(made.parameters()).dtype is torch.bfloat16
    torch.testing.assert_close(made(TOKENS).float(), wanted, rtol=0.05, atol=0.05)


class OneLess(nn.Module):
    """A block whose last copy has one norm less, as Stable Diffusion 3's."""

    def __init__(self, last):
        super().__init__()
        self.first, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)
        self.last, self.second = last, None if last else nn.LayerNorm(8)

    def forward(self, x):
        y = self.linear(self.first(x))
        if not self.last:
            x = x + y
            y = self.linear(self.second(x))
        return x + y


def test_a_block_without_one_of_its_class_s_norms_is_fused_elsewhere():
    model, x = nn.Sequential(OneLess(False), OneLess(True)).eval(), torch.randn(2, 5, 8)
    before = model(x)
    report = nk.fuse(model, x)
    assert {change.site for change in report} == {"0.first", "0.second", "1.first"}
    torch.testing.assert_close(model(x), before)


class Gated(nn.Module):
    """Qwen3-Next's norm, which cannot be called without a gate."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x, gate):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * nn.functional.silu(gate)


class Mixes(Block):
    def __init__(self):
        super().__init__()
        self.gate, self.gated, self.out = nn.Linear(8, 8), Gated(), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.out(self.gated(x, self.gate(self.norm(x))))


@pytest.mark.parametrize("call", ["fuse", "fold"])
def test_a_norm_that_is_called_with_a_gate_is_left_and_the_others_are_changed(call, monkeypatch):
    for race in ("race", "race_models"):
        monkeypatch.setattr(fusing, race, lambda *_: Outcome(1.0, 0.5, True))
    made = model(block=Mixes)
    wanted = made(TOKENS)
    report = CALLS[call](made, TOKENS)
    assert {c.site: c.why_not for c in report} == {
        "1.norm": None,
        "1.gated": "it is called with more than one tensor",
        "2": None,
    }
    torch.testing.assert_close(made(TOKENS), wanted)


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("way", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.parametrize("call", ["fuse", "fold", "convert", "swap", "copy"])
def test_a_weight_with_a_hook_of_before_parametrizations_is_no_obstacle(call, way, monkeypatch):
    monkeypatch.setattr(fusing, "race", lambda *_: Outcome(1.0, 0.5, True))
    monkeypatch.setattr(fusing, "race_models", lambda *_: Outcome(1.0, 0.5, True))
    made = model()
    made[1].up = way(made[1].up)
    wanted = made(TOKENS)  # its weight has a history now
    copied = {"copy": lambda made, x: nk.swap(made, {"layernorm": "layernorm"}, inplace=False)}
    report = (CALLS | copied)[call](made, TOKENS)
    assert report.done
    if call != "swap":  # to RMS norms, which give others
        torch.testing.assert_close(report.model(TOKENS), wanted)


class Rebuilt(nn.Identity):
    """As einops' layers, which are built anew where they are copied."""

    def __getstate__(self):
        return {}

    def __setstate__(self, state):
        self.__init__()


@pytest.mark.parametrize("call", ["swap", "fold"])
def test_a_copy_of_a_model_in_evaluation_is_so_in_all_parts(call):
    made, x = nn.Sequential(Rebuilt(), nn.LayerNorm(4), nn.Linear(4, 2)).eval(), torch.randn(3, 4)
    calls = {"swap": lambda: nk.swap(made, "layernorm", inplace=False), "fold": lambda: nk.fold(made, x, inplace=False)}
    report = calls[call]()
    assert not any(part.training for part in report.model.modules())
    torch.testing.assert_close(nk.fold(report.model, x).model(x), made(x))


def test_a_copy_takes_a_frozen_part_which_has_no_mode():
    made = nn.Sequential(torch.jit.freeze(torch.jit.script(nn.Linear(4, 4).eval())), nn.LayerNorm(4))
    assert nk.recognize(made, torch.randn(3, 4)).found.keys() == {"1"}
    assert nk.swap(made, "rmsnorm", inplace=False).done


ROWS = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


@ROWS
def test_an_example_that_an_encoder_packs_by_its_mask_is_taken():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    hidden = torch.arange(5) >= torch.tensor([[5], [4], [2]])
    example = {"src": torch.randn(3, 5, 8), "src_key_padding_mask": hidden}
    assert len(nk.recognize(encoder, example).found) == 4
    assert not nk.fold(encoder, example).done
    plain = nk.swap(encoder, "rmsnorm:bias=True", inplace=False).model(**example)
    assert torch.equal(nk.swap(encoder, "rmsnorm:bias=True", example=example, inplace=False).model(**example), plain)
    fitted = nk.swap(encoder, "rmsnorm:bias=True", example=example, match=True, inplace=False)
    assert max(change.difference for change in fitted.done) < 0.5
    far, apart = ((y - encoder(**example))[~hidden].square().mean() for y in (fitted.model(**example), plain))
    assert far < apart


@ROWS
def test_norms_that_are_given_rows_of_several_lengths_are_left_where_the_new_ones_take_none():
    rows = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)], layout=torch.jagged)
    made = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    assert nk.recognize(made, rows).found.keys() == {"1"}
    with pytest.raises(ValueError, match=r"swap: 1 is given nested tensors, and norms take dense ones"):
        nk.swap(made, "rmsnorm", example=rows)
