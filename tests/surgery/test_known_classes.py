"""Classes that were proven before are what probing finds them to be, whatever their sizes and numbers."""

import json

import pytest
import torch
from torch import nn

import normkit as nk
from normkit.optional import let_torchvision_load, library
from normkit.surgery.recognition import known, memory
from normkit.surgery.recognition.fingerprint import fingerprint
from normkit.surgery.recognition.recognize import examine

KNOWN = {
    "batchnorm": lambda: nn.BatchNorm2d(20, eps=1e-3, momentum=0.02),
    "a momentum of two digits": lambda: nn.BatchNorm2d(8, momentum=0.12),
    "averaging": lambda: nn.BatchNorm1d(9, momentum=None).eval(),
    "no statistics": lambda: nn.BatchNorm2d(12, track_running_stats=False),
    "layernorm": lambda: nn.LayerNorm(33, eps=1e-8, bias=False),
    "half": lambda: nn.LayerNorm(16).bfloat16(),
    "rmsnorm": lambda: nn.RMSNorm(10, eps=1e-3),
    "groupnorm": lambda: nn.GroupNorm(3, 24),
}
OTHERWISE = {  # configurations that no row speaks of
    "few channels": lambda: nn.BatchNorm2d(5),
    "more channels than were probed": lambda: nn.LayerNorm(9000),
    "a momentum of none": lambda: nn.BatchNorm2d(8, momentum=0.0),
    "a large eps": lambda: nn.LayerNorm(12, eps=0.5),
    "an eps of none": lambda: nn.RMSNorm(12, eps=0.0),
    "two axes": lambda: nn.LayerNorm([8, 12]),
    "one group": lambda: nn.GroupNorm(1, 16),
    "a group for each": lambda: nn.GroupNorm(16, 16),
    "groups of two": lambda: nn.GroupNorm(8, 16),
    "float64": lambda: nn.LayerNorm(12).double(),
    "two types": lambda: mixed(),
    "an attribute more": lambda: marked(),
}


def mixed():
    module = nn.BatchNorm2d(8)
    module.running_var = module.running_var.double()
    return module


def marked():
    module = nn.LayerNorm(12)
    module.scale = 2.0
    return module


class RowNorm(nn.Module):
    """Llama's RMSNorm as a stranger copies it: another name, other comments, no type and no decorator."""

    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        # in float32, as the mean of squares of half precision overflows
        input_dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(input_dtype)


class Named(nn.Module):
    """Its class's name counts: what is called otherwise computes something else."""

    def forward(self, x):
        return x * 2 if type(self).__name__ == "Named" else x


class Renamed(Named):
    forward = Named.forward


class Asks(nn.Module):
    def forward(self, x):
        return x * 2 if isinstance(self, Asks) else x


class AsksOther(nn.Module):
    def forward(self, x):
        return x * 2 if isinstance(self, Asks) else x


class Words(nn.Module):
    def forward(self, x):
        return x * len(f"{self}")


class LongerWords(nn.Module):
    def forward(self, x):
        return x * len(f"{self}")


def with_property(number):
    class Has(nn.Module):
        @property
        def factor(self):
            return number

        def forward(self, x):
            return x * self.factor

    return Has()


def claimed(module):
    key = memory.key(module, None)
    return known.claim(key.source, key.config)


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known_is_what_probing_finds(name):
    module = KNOWN[name]()
    match, proven = examine(module), examine(module, prove=True)
    assert (match.how, proven.how) == ("known", "probed")
    for what in ("kind", "name", "kwargs", "carried", "behind", "sized", "why_not"):
        assert getattr(match, what) == getattr(proven, what), what
    assert repr(match.module) == repr(proven.module)
    assert match.error.keys() == proven.error.keys()
    assert match.evidence


@pytest.mark.parametrize("name", OTHERWISE)
def test_nothing_is_known_of_what_was_not_probed(name):
    assert claimed(OTHERWISE[name]()) is None


def test_what_is_known_has_its_own_width_whatever_an_input_suggests():
    """An image's last axis is no width: norms of channels without gains say themselves how many they take."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8))
    match = nk.recognize(model, torch.randn(2, 3, 9, 9))["1"]
    assert (match.name, match.kwargs["num_features"], match.how) == ("instancenorm", 8, "known")
    match = nk.recognize(model, torch.randn(2, 3, 9, 9), prove=True)["1"]
    assert (match.name, match.kwargs["num_features"], match.sized) == ("instancenorm", 8, True)


@pytest.mark.parametrize("kept", [0.99, 0.9997])
def test_a_momentum_that_was_worked_out_is_known(kept):
    """Ports from TensorFlow write 1 - 0.99, which is no number as a person writes one."""
    assert claimed(nn.BatchNorm2d(8, momentum=1 - kept))["kwargs"]["momentum"] == pytest.approx(1 - kept)


def test_under_another_default_type_all_are_probed():
    assert memory.key(nn.LayerNorm(12), None).usual
    torch.set_default_dtype(torch.float64)
    try:
        assert not memory.key(nn.LayerNorm(12).float(), None).usual
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_copy_under_another_name_with_other_comments_is_known():
    row = claimed(RowNorm(12, eps=1e-5))
    assert (row["name"], row["kwargs"]) == ("rmsnorm", {"dim": 12, "eps": 1e-5})
    assert examine(RowNorm(12)).kind == "RowNorm"


@pytest.mark.parametrize(("one", "other"), [(Named, Renamed), (Asks, AsksOther), (Words, LongerWords)])
def test_where_a_class_asks_for_its_name_the_name_counts(one, other):
    assert fingerprint(one()) != fingerprint(other())


def test_what_a_property_computes_counts():
    assert fingerprint(with_property(2)) == fingerprint(with_property(2)) != fingerprint(with_property(3))


@pytest.mark.parametrize(
    ("name", "options", "method"),
    [
        ("BatchNormAct2d", {"act_layer": "relu"}, "batchnorm"),
        ("BatchNormAct2d", {"act_layer": "silu"}, "batchnorm"),
        ("BatchNormAct2d", {"act_layer": "hard_swish"}, "batchnorm"),
        ("LayerNormAct2d", {"act_layer": "silu"}, "layernorm2d"),
        ("GroupNormAct", {"num_groups": 4, "act_layer": "relu"}, "groupnorm"),
        ("grn.GlobalResponseNorm", {"channels_last": True}, "grn"),
    ],
)
def test_norms_of_timm_are_known_with_the_activation_behind_them(name, options, method):
    let_torchvision_load()
    pytest.importorskip("timm")
    module, _, cls = f"timm.layers.{name}".rpartition(".")
    assert claimed(getattr(library(module), cls)(24, **options))["name"] == method


def test_each_row_has_its_proof():
    table = json.loads(known.FILE.read_text(encoding="utf-8"))
    assert len(table) == len(known.rows())
    for row in table:
        assert row["widths"][0] < row["widths"][1]
        assert len(row["source"]) == 64
        assert "float32" in row["error"]
        assert "gradients" in " ".join(row["evidence"])


def test_classes_are_known_after_torch_has_compiled():
    before = claimed(nn.LayerNorm(12))
    torch.compile(nn.LayerNorm(12), backend="eager")(torch.randn(2, 12))
    assert before is not None
    assert claimed(nn.LayerNorm(12)) == before


def test_nothing_is_known_where_all_modules_are_built_otherwise(monkeypatch):
    def otherwise(self, *given, **named):
        build(self, *given, **named)

    build = nn.Module.__init__
    monkeypatch.setattr(nn.Module, "__init__", otherwise)
    assert memory.key(nn.LayerNorm(12), None) is None
