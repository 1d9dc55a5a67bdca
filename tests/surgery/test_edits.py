"""Edits are values: written and read as JSON, applied to another model of the same class, carried by the model."""

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from near_misses import Layer, Rms
from torch import nn

import normkit as nk
from normkit.optional import at_hand
from normkit.surgery import saving
from normkit.surgery.edits import RECORD, Edit, comparison, edit, edits_between, edits_in, replay
from normkit.surgery.edits.changes import Change, Report
from normkit.surgery.exact import fusing
from normkit.surgery.exact.folding import make_plain
from normkit.surgery.exact.racing import Outcome
from sizes import calls


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.up, self.one, self.two = nn.Linear(6, 12), Rms(), Layer()
        self.again, self.down = self.one, nn.Linear(12, 3)
        with torch.no_grad():
            self.two.weight.add_(0.3 * torch.randn(12))

    def forward(self, x):
        return self.down(self.again(self.two(self.one(self.up(x)))))


class Tokens(nn.Module):
    """With a token of the model's own in front of the others."""

    def __init__(self):
        super().__init__()
        self.token, self.up = nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(6, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.norm(torch.cat([self.token.expand(len(x), -1, -1), self.up(x)], 1)))


def images(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    for layer in (model[1], model[4]):
        layer.running_var.uniform_(0.5, 2)
    return model.eval()


def opened(old, new, folder):
    """What a folder gives that a changed model was written into."""
    saving.save(old, new, str(folder))
    return saving.rebuilt(copy.deepcopy(old), str(folder))


def same(one, other, x):
    with torch.no_grad():
        torch.testing.assert_close(one(x), other(x), rtol=0, atol=0)


def test_edits_of_one_model_do_the_same_to_another_of_its_class():
    model, other, third = Net(0), Net(1), Net(1)
    edits = nk.swap(model, {"layernorm": "rmsnorm:bias=True", "rmsnorm": "dyt:alpha=0.7"}).edits
    edits = [Edit.from_dict(values) for values in json.loads(json.dumps([edit.to_dict() for edit in edits]))]
    assert [(edit.site, edit.kind, edit.words["norm"]) for edit in edits] == [
        ("one", "norm", "dyt"),
        ("two", "norm", "rmsnorm"),
    ]
    gain = other.two.weight.clone()
    assert replay(other, edits) is other
    nk.swap(third, {"layernorm": "rmsnorm:bias=True", "rmsnorm": "dyt:alpha=0.7"})
    same(other, third, torch.randn(4, 6))
    assert torch.equal(other.two.weight, gain)
    assert other.one is other.again
    assert edits_in(other) == edits


def test_one_edit_is_applied_alone():
    model = Net()
    edit = Edit("one", "norm", {"norm": "rmsnorm", "arguments": {"dim": 12, "offset": 1.0}})
    assert edit.apply(model) is model
    assert isinstance(model.again, nk.RMSNorm)
    assert model.one is model.again
    assert model.one.arguments["offset"] == 1.0
    norm = Edit("", "norm", {"norm": "dyt", "arguments": {"dim": 4}}).apply(nn.LayerNorm(4))
    assert isinstance(norm, nk.DyT)


def test_a_copy_a_pickle_and_a_part_carry_their_edits():
    model = nn.Sequential(nn.Linear(6, 6), Net())
    nk.swap(model[1], "dyt", where="two")
    (edit,) = edits_in(model)
    assert edit.site == "1.two"
    assert edits_in(copy.deepcopy(model)) == edits_in(pickle.loads(pickle.dumps(model))) == [edit]
    nk.swap(model, "derf", where="1.one")
    assert {edit.site for edit in edits_in(model)} == {"1.one", "1.two"}


@pytest.mark.parametrize(
    ("build", "norms", "shape"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 8), nk.RMSNorm(8)), "rmsnorm:eps=0.5", (4, 6)),
        (lambda: nn.Sequential(nn.Linear(6, 8), nk.GroupNorm(2, 8)), "groupnorm:num_groups=4", (4, 6)),
        (images, "dyt:alpha=0.3", (2, 3, 9, 9)),
        (images, "layernorm", (2, 3, 9, 9)),
        (lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8)), "batchnorm", (4, 5, 6)),
    ],
)
def test_a_swap_is_read_with_its_arguments_and_its_layout(build, norms, shape, tmp_path):
    """A norm of the class that was there, with other arguments, and one whose input is laid out anew."""
    old = build().eval()
    model, x = copy.deepcopy(old), torch.randn(shape)
    nk.swap(model, norms)
    again = opened(old, model, tmp_path / "out")
    same(again, model, x)
    assert not torch.equal(old(x), model(x))
    assert edits_in(again) == edits_in(model)
    del vars(model)[RECORD]  # and where nothing is carried
    same(opened(old, model, tmp_path / "other"), model, x)


def test_what_was_shared_is_read_as_shared(tmp_path):
    model = Net().eval()
    old = copy.deepcopy(model)
    nk.swap(model, "dyt")
    again = opened(old, model, tmp_path / "out")
    assert again.one is again.again
    same(again, model, torch.randn(4, 6))


def test_a_swap_upon_a_swap_is_read_as_the_second(tmp_path):
    model = images()
    old, x = copy.deepcopy(model), torch.randn(2, 3, 9, 9)
    nk.swap(model, "dyt")
    nk.swap(model, {"dyt": "groupnorm:num_groups=2"})
    assert [edit.words["norm"] for edit in edits_in(model)] == ["dyt"] * 2 + ["groupnorm"] * 2
    same(opened(old, model, tmp_path / "out"), model, x)
    nk.fold(model.eval(), x)


def test_what_was_changed_by_hand_after_a_swap_is_reported_by_what_differs(tmp_path):
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.LayerNorm(8)).eval()
    old, x = copy.deepcopy(model), torch.randn(4, 6)
    nk.swap(model, "dyt")
    model[1] = nn.LayerNorm(8)
    same(opened(old, model, tmp_path / "back"), model, x)
    assert [edit.site for edit in edits_between(old, model)] == ["3"]
    model[1] = nk.RMSNorm(8, eps=0.5)
    assert [edit.words["norm"] for edit in edits_between(old, model)] == ["dyt", "dyt", "rmsnorm"]
    same(opened(old, model, tmp_path / "other"), model, x)
    model[1] = nn.Softmax(-1)
    with pytest.raises(ValueError, match="1 has become a Softmax, which cannot be written in words"):
        saving.save(old, model, str(tmp_path / "odd"))


def test_an_unsaved_buffer_that_became_a_parameter_is_named(tmp_path):
    class Positioned(nn.Module):
        def forward(self, x):
            return x + self.positions

    old, new = Positioned(), Positioned()
    old.register_buffer("positions", torch.ones(4), persistent=False)
    new.positions = nn.Parameter(torch.ones(4))
    why = "the model has a parameter positions by now, before a buffer that it does not save, .*persistent=True"
    with pytest.raises(ValueError, match=why):
        saving.save(old, new, str(tmp_path / "odd"))


def test_a_fold_upon_a_swap_is_read(tmp_path):
    model = images()
    old, x = copy.deepcopy(model), torch.randn(2, 3, 9, 9)
    nk.swap(model, "layernorm", where="4")
    nk.fold(model, x)
    assert [edit.site for edit in edits_in(model)][:1] == ["4"]
    assert isinstance(model[1], nn.Identity)
    same(opened(old, model, tmp_path / "out"), model, x)


def test_a_parameter_of_the_stream_that_lost_a_feature_is_read(tmp_path):
    """A class token is a parameter of the model itself, and is shortened with the layers below it."""
    torch.manual_seed(0)
    model = Tokens().eval()
    x = torch.randn(2, 5, 6)
    new = nk.convert(model, "pre-crmsnorm", x, inplace=False).model
    assert new.token.shape == (1, 1, 7)
    same(opened(model, new, tmp_path / "out"), new, x)


@pytest.fixture
def fast(monkeypatch):
    """Let the library's norms be the faster ones, on whatever machine."""
    for name in ("race", "race_addition", "race_turn", "race_models"):
        monkeypatch.setattr(fusing, name, lambda *_, **__: Outcome(1.0, 0.5, True))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.up(x)
        return self.down(self.norm(x))


def tokens():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), Block(), nn.LayerNorm(8), nn.Linear(8, 9)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return model


WORDS = torch.arange(10).view(2, 5) % 9


IMAGES = [torch.randn(6, 3, 9, 9, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]


def merged(**options):
    """Average two networks of images, and repair what the first convolution gives."""
    return lambda m: nk.average([m, images(1)], IMAGES, layers=["0"], **options)


def padded(normalize=copy.copy):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = normalize(nn.Conv2d(3, 4, (3, 5), padding=(1, 2)))
    model = nn.Sequential(nn.BatchNorm2d(3), layer, nn.ReLU())
    model(IMAGES[0] + 1)
    return model.eval()


def padded_hooked():
    return padded(nn.utils.weight_norm)


def padded_parametrized():
    return padded(nn.utils.parametrizations.spectral_norm)


def hooked():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 4)), nn.ReLU()).eval()


def parametrized():
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.ReLU()).eval()


def vectors():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16)).eval()


def quantized(**options):
    def verb(model):
        pytest.importorskip("torchao")
        return nk.quantize(model, bits=4, **options)

    return verb


def stream():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 9)).eval()


X = torch.linspace(-1, 2, 24).view(4, 6)
VERBS = {
    "swap": (lambda m: nk.swap(m, "dyt:alpha=0.7", inplace=False), "vectors", {"norm"}, X),
    "fold": (lambda m: nk.fold(m, IMAGES[0], inplace=False), "images", {"behind"}, IMAGES[0]),
    "pad": (lambda m: nk.fold(m, IMAGES[0], inplace=False), "padded", {"behind", "padding"}, IMAGES[0]),
    "pad hooked": (lambda m: nk.fold(m, IMAGES[0], inplace=False), "padded_hooked", {"behind", "padding"}, IMAGES[0]),
    "pad parametrized": (
        lambda m: nk.fold(m, IMAGES[0], inplace=False),
        "padded_parametrized",
        {"behind", "padding"},
        IMAGES[0],
    ),
    "fold hooked": (lambda m: nk.fold(m, X, inplace=False), "hooked", {"plain"}, X),
    "fold parametrized": (lambda m: nk.fold(m, X, inplace=False), "parametrized", {"plain"}, X),
    "adapt": (lambda m: nk.adapt(m, inplace=False), "images", {"norm"}, IMAGES[0]),
    "convert": (lambda m: nk.convert(m, "pre-rmsnorm", X[None], inplace=False), "Tokens", {"norm"}, X[None]),
    "shorten": (lambda m: nk.convert(m, "pre-crmsnorm", X[None], inplace=False), "Tokens", {"norm", "sizes"}, X[None]),
    "fuse": (lambda m: nk.fuse(m, WORDS, inplace=False), "tokens", {"norm", "calls"}, WORDS),
    "remove": (
        lambda m: nk.remove(m, [WORDS], steps=16, start=1, gaps=(1, 1, 1), log=print, inplace=False),
        "stream",
        {"behind"},
        WORDS,
    ),
    "average": (merged(), "images", set(), IMAGES[0]),
    "average and keep": (merged(folded=False), "images", {"normed"}, IMAGES[0]),
    "average and keep tokens": (
        lambda m: nk.average([m, vectors()], [X], layers=["0"], folded=False),
        "vectors",
        {"normed"},
        X,
    ),
    "quantize": (quantized(), "vectors", {"bits"}, X),
    "quantize and pack": (quantized(group=32, pack=True, where="3"), "vectors", {"bits"}, X),
}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_gives_edits_that_tell_all_that_it_did(name, fast, tmp_path):
    verb, build, kinds, x = VERBS[name]
    old = globals()[build]().eval()
    report = verb(old)
    assert {edit.kind for edit in report.edits} == kinds
    again = [Edit.from_dict(json.loads(json.dumps(edit.to_dict()))) for edit in report.edits]
    assert [edit.to_dict() for edit in again] == [edit.to_dict() for edit in report.edits]
    assert comparison(replay(copy.deepcopy(old), again, report.model.state_dict()), report.model) == []
    made = opened(old, report.model, tmp_path / "out")
    assert edits_in(made) == again
    same(made, report.model, x)


FRESH = """
import json, sys
import torch
import normkit as nk
torch.set_num_threads(1)
import test_edits
for name, (_, build, _, x) in test_edits.VERBS.items():
    if name in sys.argv[1:]:
        with torch.no_grad():
            torch.save(nk.load(f"test_edits:{build}@{name}")(x), f"{name}.pt")
"""


def test_what_a_verb_made_gives_the_same_numbers_in_a_process_of_its_own(fast, tmp_path):
    wanted = {}
    for name, (verb, build, _, x) in VERBS.items():
        if "quantize" in name and not at_hand("torchao"):
            continue
        old = globals()[build]().eval()
        made = verb(old).model.eval()
        saving.save(old, made, str(tmp_path / name))
        with torch.no_grad():
            wanted[name] = made(x)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    subprocess.run(
        [sys.executable, "-c", FRESH, *wanted], check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    for name, numbers in wanted.items():
        torch.testing.assert_close(torch.load(tmp_path / f"{name}.pt"), numbers, rtol=1e-6, atol=1e-6, msg=name)


def changed(kind, **words):
    """Change the words of the edits of a form."""
    return lambda edits: [replace(edit, words={**edit.words, **words}) if edit.kind == kind else edit for edit in edits]


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("fold", lambda edits: edits[:-1], "its edits leave out what became of 4"),
        ("fold", lambda edits: [replace(edit, site="3") for edit in edits], "its edits leave out what became of 1"),
        ("pad", changed("padding", padding=[1, 1, 2, 2]), "its edits give results that differ by inf"),
        (
            "convert",
            changed("norm", norm="layernorm"),
            "its edits cannot be applied: TypeError: LayerNorm takes no",
        ),
        ("convert", changed("norm", arguments={"dim": 8, "eps": 0.5}), "its edits leave out what became of norm"),
        ("remove", lambda edits: [], "its edits leave out what became of 1"),
    ],
)
def test_a_wrong_edit_is_refused(name, wrong, why, monkeypatch):
    """What is done to the model may be right: it is refused where the edits that tell it would do something else."""
    verb, build, _, _ = VERBS[name]
    model = globals()[build]().eval()
    right = edit.edits_of
    monkeypatch.setattr(edit, "edits_of", lambda *given: wrong(right(*given)))
    with pytest.raises(ValueError, match=rf"refused, and the model is as it was: once changed, {why}"):
        verb(model)


def test_a_fusion_whose_edits_are_wrong_is_given_up(fast, monkeypatch):
    right = edit.edits_of
    monkeypatch.setattr(edit, "edits_of", lambda *given: changed("norm", norm="rmsnorm")(right(*given)))
    report = nk.fuse(tokens(), WORDS, inplace=False)
    assert not report.done
    assert report.changes[0].why_not.startswith(
        "once changed, its edits cannot be applied: TypeError: RMSNorm takes no"
    )


def test_the_edit_of_a_module_that_is_the_whole_model_is_carried():
    made = nk.swap(nn.LayerNorm(4), "dyt", inplace=False)
    assert [(one.site, one.words["norm"]) for one in made.edits] == [("", "dyt")]


def test_words_that_json_does_not_hold_are_named():
    edit = Edit("a.norm", "norm", {"norm": "rmsnorm", "arguments": {"dim": 4, "act": torch.relu}})
    with pytest.raises(ValueError, match=r"a\.norm cannot be written in words: .*not JSON serializable"):
        edit.to_dict()


def locked():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    model.lock = threading.Lock()
    return model


def test_a_model_that_cannot_be_copied_is_saved_by_what_differs(tmp_path):
    model = locked()
    nk.swap(model, "rmsnorm")
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.deepcopy(model)
    nk.save(model, tmp_path / "out", original=locked())
    x = torch.randn(3, 4)
    torch.testing.assert_close(nk.load(f"{__name__}:locked@{tmp_path / 'out'}")(x), model(x), rtol=0, atol=0)


class Standardized(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, self.weight - self.weight.mean(), self.bias)


def chain(count):
    return nn.Sequential(*(nn.Sequential(nn.LayerNorm(2), Standardized(2, 2)) for _ in range(count)))


@pytest.mark.parametrize("work", [replay, lambda model, edits, state: make_plain("fold", model)])
def test_twice_the_edits_take_twice_the_work(work):
    models = [chain(count) for count in (2, 40, 80)]
    words = {"norm": "rmsnorm", "arguments": {"dim": 2}}
    lists = [[Edit(f"{i}.0", "norm", words) for i in range(len(model))] for model in models]
    _, few, many = (calls(work, *each, each[0].state_dict()) for each in zip(models, lists, strict=True))
    assert many < 2.1 * few


def test_an_edit_reads_its_own_part_of_a_state():
    """Of the sites 1, 1.0 and 10, whose names begin alike."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2)) for _ in range(11)))
    state = copy.deepcopy(model)
    state[1][0], state[10][0] = nn.Linear(2, 3), nn.Linear(2, 4)
    replay(model, [Edit("1.0", "sizes", {"sizes": True}), Edit("10.0", "sizes", {"sizes": True})], state.state_dict())
    assert [len(model[i][0].weight) for i in (0, 1, 10)] == [2, 3, 4]


def test_edits_of_what_an_edit_has_put_in_are_made_at_their_own_places():
    """A norm at two places that is wrapped at one, then changed inside; and a norm put in twice at one place."""
    words = {"norm": "rmsnorm", "arguments": {"dim": 12}}
    model = Net()
    replay(model, [Edit("one", "alone", {"alone": True}), Edit("one", "norm", words), Edit("again", "norm", words)])
    assert model.one is not model.again
    assert isinstance(model.one, nk.RMSNorm)
    assert isinstance(model.again, nk.RMSNorm)
    replay(model, [Edit("two", "norm", words), Edit("two", "norm", words | {"norm": "dyt"})])
    assert isinstance(model.two, nk.DyT)


def test_a_time_is_written_where_both_were_measured():
    both, one = Change("1", "a", "b", before=1e-3, after=2e-6), Change("2", "a", "b", before=1e-3)
    assert [line.split()[3:] for line in str(Report(nn.ReLU(), [both, one])).splitlines()[1:3]] == [
        ["1000", "to", "2", "µs"],
        [],
    ]
