"""A model is recognized once a comparison: runs, in whatever process, apply the edits that the check has found."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import normkit as nk
from normkit import catalog, prints
from normkit.lab import clock, logs
from normkit.lab.files import Folder
from normkit.lab.plan import exchanges, handed, tasks
from normkit.lab.plan.settings import Settings
from normkit.lab.plan.variants import Variant
from normkit.lab.report import times
from normkit.lab.training import engines
from normkit.lab.training.own import Build
from normkit.surgery.recognition import recognize


class Own(nn.Module):
    """A norm that no library has, and so is probed."""

    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.gamma * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.up, self.norm, self.last, self.down = nn.Linear(4, dim), Own(dim), Own(dim), nn.Linear(dim, 2)

    def forward(self, x):
        return self.down(self.last(self.norm(self.up(x)).relu()))


@pytest.fixture(autouse=True)
def anew():
    exchanges.forget()
    yield
    exchanges.forget()


@pytest.fixture
def examined(monkeypatch):
    """The modules that are recognized, each as often as it is."""
    seen, examine = [], recognize.examine
    monkeypatch.setattr(recognize, "examine", lambda module, *more: seen.append(module) or examine(module, *more))
    return seen


def test_a_second_model_takes_the_edits_of_the_first(examined):
    torch.manual_seed(0)
    one, other = Net(), Net()
    with torch.no_grad():
        other.norm.gamma.add_(0.5)
    third = copy.deepcopy(other)
    exchanges.exchange(one, "rmsnorm", "my:Net")
    before = len(examined)
    exchanges.exchange(other, "rmsnorm", "my:Net")
    exchanges.exchange(Net(), "dyt", "my:Net")  # of the same model another norm
    assert len(examined) == before > 0
    nk.swap(third, "rmsnorm")
    x = torch.randn(3, 4)
    assert isinstance(other.norm, nk.RMSNorm)
    torch.testing.assert_close(other(x), third(x), rtol=0, atol=0)
    assert other.norm.weight.mean().item() == pytest.approx(1.5)


def test_a_model_that_is_built_otherwise_is_looked_at_itself(examined):
    exchanges.exchange(Net(), "dyt", "my:Net")
    for model, built_by in ((Net(dim=12), "my:Net"), (Net(), "other:Net")):
        before = len(examined)
        assert exchanges.exchange(model, "dyt", built_by).norm.weight.shape == model.up.bias.shape
        assert len(examined) > before


def test_a_class_that_a_training_loop_makes_anew_is_no_other(examined):
    """Its name and sizes say nothing of what it computes."""

    def made(offset):
        class Inner(nn.LayerNorm):
            def forward(self, x):
                return super().forward(x) + offset

        return nn.Sequential(nn.Linear(4, 8), Inner(8))

    build = Build(Variant("dyt", norm="dyt"))
    assert isinstance(build(made(0.0))[1], nk.DyT)
    with pytest.raises(ValueError, match="the model has no norm to replace"):
        build(made(1.0))


def test_what_is_known_goes_to_other_processes(examined):
    exchanges.exchange(Net(), "dyt", "my:Net")
    variant = Variant("dyt", norm="dyt")
    assert exchanges.layers(exchanges.exchange(Net(), "dyt", "my:Net"), variant, "my:Net") == {"norm": "2 norms"}
    packed = handed.pack([])
    exchanges.forget()
    handed.unpack(packed)
    before = len(examined)
    model = exchanges.exchange(Net(), "dyt", "my:Net")
    assert exchanges.layers(model, variant, "my:Net") == {"norm": "2 norms"}
    assert len(examined) == before
    assert isinstance(model.last, nk.DyT)


class Plain(nn.Module):
    """A norm without parameters, whose width its inputs have."""

    def forward(self, x):
        return nn.functional.layer_norm(x, x.shape[-1:])


@pytest.fixture
def compared(monkeypatch):
    """Check a norm in the place of a model's, on pairs of four numbers and a class; count its examples."""
    data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
    monkeypatch.setattr(handed, "_things", {})
    source = handed.hand_in(data)

    def check(make, norm):
        monkeypatch.setattr(tasks, "_example", lambda task, own=tasks._example: asked.append(task) or own(task))
        tasks.load_task.cache_clear()
        given = Settings(model=handed.hand_in(make), data=source, batch=8, lrs=(0.01,))
        model = tasks.load(given).build(Variant(norm, norm=norm), 1)
        tasks.check_variant(Variant(norm, norm=norm), given)
        return model, len(asked)

    asked = []
    return check


def test_the_first_batch_tells_the_widths_of_norms_without_parameters(compared):
    def make():
        model = Net()
        model.norm = Plain()
        return model

    model, asked = compared(make, "rmsnorm")
    assert len(model.norm.weight) == 8
    assert asked == 1  # a model that is known asks for no batch
    build = Build(Variant("rmsnorm", norm="rmsnorm"))
    assert len(build(make(), example=torch.randn(2, 4)).norm.weight) == 8


def test_norms_that_a_model_calls_otherwise_than_by_place_are_refused(compared):
    class Named(Net):
        def forward(self, x):
            return self.down(self.norm(input=self.up(x)))

    class Aside(Net):
        def __init__(self):
            super().__init__()
            self.norms = [self.norm, self.last]

        def forward(self, x):
            return self.down(self.norms[0](self.up(x)))

    with pytest.raises(ValueError, match="swap: norm is called by keyword, input=, which RMSNorm does not take"):
        compared(Named, "rmsnorm")
    with pytest.raises(ValueError, match="swap: norm is held by norms too"):
        compared(Aside, "rmsnorm")


@pytest.mark.parametrize("engine", ["here", "local"])
def test_no_run_recognizes_what_the_check_did(engine, tmp_path, examined, monkeypatch):
    make, checked = engines.make, []
    monkeypatch.setattr(engines, "make", lambda *given: checked.append(len(examined)) or make(*given))
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 4), torch.arange(60) % 2)
    given = {"steps": 4, "seeds": 2, "lr": 0.01, "batch": 8, "threads": 1, "norms": ["original", "dyt"]}
    result = nk.compare(model=Net, data=data, engine=engine, out=tmp_path / "out", **given)
    (call,) = times.calls(result.folder)
    runs = [logs.read(path) for path in Folder(result.folder).logs()]
    assert [run.start["layers"] for run in runs] == [{"norm": "2 norms"}] * 4
    assert {run.end["status"] for run in runs} == {logs.DONE}
    assert checked == [len(examined)]
    assert checked[0] > 0
    assert list(call["parts"])[:2] == [clock.START, clock.RECOGNITION]


def test_what_another_clock_measured_within_a_part_is_given_to_its_own():
    one = clock.Clock()
    one.seconds[clock.START] = 3.0
    one.give(clock.START, clock.RECOGNITION, 2.0)
    assert one.read() == {clock.START: 1.0, clock.RECOGNITION: 2.0}


class Needs:
    """What unpacks only once torchvision loads, as a function that imports timm does."""

    loads, tries = False, 0

    def __reduce__(self):
        return _unpacked, ()


def _unpacked():
    Needs.tries += 1
    if not Needs.loads:
        raise RuntimeError("operator torchvision::nms does not exist")
    return Needs


def test_a_worker_unpacks_what_imports_a_torchvision_of_another_torch(monkeypatch):
    monkeypatch.setattr(handed, "_things", {"model": Needs()})
    packed = handed.pack(["model"])
    monkeypatch.setattr(handed, "_things", {})
    monkeypatch.setattr(Needs, "loads", False)
    monkeypatch.setattr(Needs, "tries", 0)
    monkeypatch.setattr(handed, "let_torchvision_load", lambda: None)
    with pytest.raises(RuntimeError, match="torchvision::nms"):
        handed.unpack(packed)
    assert Needs.tries == 1

    def declare():
        Needs.loads = True
        return "declared"

    monkeypatch.setattr(handed, "let_torchvision_load", declare)
    handed.unpack(packed)
    assert handed._things == {"model": Needs}


def test_the_code_of_a_users_own_method_is_on_record_under_any_of_its_names_and_with_options(monkeypatch):
    monkeypatch.setattr(catalog, "others", lambda: [SimpleNamespace(name="own", aliases=("mine",), entry=Own)])
    for word in ("own", "own:eps=1", "mine:eps=1"):
        assert handed.code_of(["rmsnorm:eps=1", word]) == {"own": prints.print_of(Own)}
    assert handed.code_of(["rmsnorm:eps=1", "else:own"]) == {}
