"""What was recognized once is another thing after one change to it, to its class, or to what its forward reads."""

import functools
import types

import pytest
import torch
from near_misses import Rms
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

import normkit as nk
from normkit.surgery.recognition import memory
from normkit.surgery.recognition.recognize import examine

FACTOR = 1.0
TABLE = {"factor": 1.0}


def factor():
    return FACTOR


class ReadsAGlobal(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight * FACTOR


class ReadsThroughAFunction(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight * factor()


class ReadsATable(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight * TABLE["factor"]


class ReadsItsClass(Rms):
    factor = 1.0

    def forward(self, x):
        return self.unit(x) * self.weight * self.factor


class ReadsADefault(Rms):
    def forward(self, x, *, factor=1.0):
        return self.unit(x) * self.weight * factor


class Doubled(ReadsItsClass):
    factor = 2.5


class Holds(Rms):
    def __init__(self):
        super().__init__()
        self.inner = functools.partial(torch.mul, other=1.0)

    def forward(self, x):
        return self.inner(self.unit(x)) * self.weight


def enclosed():
    factor = 1.0

    class ReadsACell(Rms):
        def forward(self, x):
            return self.unit(x) * self.weight * factor

    return ReadsACell


READS_A_CELL = enclosed()


def times(factor):
    def scaled(x):
        return x * factor

    return scaled


once = times(1.0)


class ReadsAFunctionsCell(Rms):
    def forward(self, x):
        return once(self.unit(x) * self.weight)


class HasAMethodOfUnknown(Rms):
    """As timm's blocks have, whose branches are joined before a model is used."""

    def joined(self):
        return globals()["FACTOR"]


class ReadsUnknown(HasAMethodOfUnknown):
    def forward(self, x):
        return self.unit(x) * self.weight * self.joined()


class Clamped(nn.BatchNorm2d):
    def forward(self, x):
        return super().forward(x).clamp(-1, 1)


class Called(nn.BatchNorm2d):
    def __call__(self, x):
        return super().__call__(x).clamp(-1, 1)


class Guarded(nn.BatchNorm2d):
    def __getattr__(self, name):
        value = super().__getattr__(name)
        return value.clamp(-0.1, 0.1) if name == "weight" else value


class Own(torch.Tensor):
    pass


class Squashed(nn.Module):
    def forward(self, w):
        return w.tanh()


def batchnorm():
    return nn.BatchNorm2d(8)


def layernorm():
    return nn.LayerNorm(12)


def clamped(function):
    return lambda *args, **kwargs: function(*args, **kwargs).clamp(-1, 1)


def sharing_its_name(module, patch):
    cls = type("BatchNorm2d", (Clamped,), {"__module__": nn.BatchNorm2d.__module__})
    module.__class__ = cls


def with_another_global(module, patch):
    forward = types.FunctionType(ReadsAGlobal.forward.__code__, {**globals(), "FACTOR": 3.0})
    patch.setattr(ReadsAGlobal, "forward", forward)


def a_hook_on_all(module, patch):
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, y: y.clamp(-1, 1))
    patch.setattr(handle, "unused", None, raising=False)
    return handle.remove


class Clamping(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        y = function(*args, **(kwargs or {}))
        return y.clamp(-1, 1) if function is F.batch_norm else y


def under_a_mode(module, patch):
    mode = Clamping()
    mode.__enter__()
    return lambda: mode.__exit__(None, None, None)


def put(module, name, value):
    setattr(module, name, value)


def no_buffer(module, patch):
    del module._buffers["running_var"]
    module.running_var = torch.ones(8)


def to_clamped(function):
    return lambda module, patch: patch.setattr(*function, clamped(getattr(*function)))


# what is recognized as it is, and how it is changed
MISSES = {
    "a class of the same name and module": (batchnorm, sharing_its_name),
    "another global": (ReadsAGlobal, lambda m, p: p.setitem(globals(), "FACTOR", 3.0)),
    "a forward with other globals": (ReadsAGlobal, with_another_global),
    "another global of a function that it calls": (
        ReadsThroughAFunction,
        lambda m, p: p.setitem(globals(), "FACTOR", 3.0),
    ),
    "another function of that name": (ReadsThroughAFunction, lambda m, p: p.setitem(globals(), "factor", lambda: 3.0)),
    "another entry of a table": (ReadsATable, lambda m, p: p.setitem(TABLE, "factor", 3.0)),
    "another attribute of its class": (ReadsItsClass, lambda m, p: p.setattr(ReadsItsClass, "factor", 3.0)),
    "a subclass with another attribute": (ReadsItsClass, lambda m, p: put(m, "__class__", Doubled)),
    "an attribute of its own before its class's": (ReadsItsClass, lambda m, p: put(m, "factor", 3.0)),
    "another default": (
        ReadsADefault,
        lambda m, p: p.setattr(ReadsADefault.forward, "__kwdefaults__", {"factor": 3.0}),
    ),
    "another cell": (READS_A_CELL, lambda m, p: p.setattr(READS_A_CELL.forward.__closure__[0], "cell_contents", 3.0)),
    "another cell of a function that it calls": (
        ReadsAFunctionsCell,
        lambda m, p: p.setitem(globals(), "once", times(3.0)),
    ),
    "a method that reads what cannot be named": (ReadsUnknown, lambda m, p: p.setitem(globals(), "FACTOR", 3.0)),
    "another code": (ReadsItsClass, lambda m, p: p.setattr(ReadsItsClass.forward, "__code__", far.__code__)),
    "another function that it holds": (Holds, lambda m, p: put(m, "inner", functools.partial(torch.mul, other=3.0))),
    "a method put on the instance": (Rms, lambda m, p: put(m, "unit", lambda x: x)),
    "another method of the class that it inherits": (
        ReadsItsClass,
        lambda m, p: p.setattr(Rms, "unit", lambda s, x: x),
    ),
    "a forward put on the instance": (batchnorm, lambda m, p: put(m, "forward", clamped(m.forward))),
    "a forward hook": (batchnorm, lambda m, p: m.register_forward_hook(lambda m, x, y: y.clamp(-1, 1)) and None),
    "a hook before": (batchnorm, lambda m, p: m.register_forward_pre_hook(lambda m, x: x[0].clamp(-1, 1)) and None),
    "a hook on all modules": (batchnorm, a_hook_on_all),
    "a mode of torch's functions": (batchnorm, under_a_mode),
    "another class": (batchnorm, lambda m, p: put(m, "__class__", Clamped)),
    "a call of its own": (batchnorm, lambda m, p: put(m, "__class__", Called)),
    "a call put on its class": (batchnorm, to_clamped((nn.BatchNorm2d, "__call__"))),
    "a call put on every module": (batchnorm, to_clamped((nn.Module, "__call__"))),
    "attributes that are read otherwise": (batchnorm, lambda m, p: put(m, "__class__", Guarded)),
    "another F.batch_norm": (batchnorm, to_clamped((F, "batch_norm"))),
    "another torch.batch_norm": (batchnorm, to_clamped((torch, "batch_norm"))),
    "another F.layer_norm": (layernorm, to_clamped((F, "layer_norm"))),
    "another torch.layer_norm": (layernorm, to_clamped((torch, "layer_norm"))),
    "another forward of the class that it inherits": (
        batchnorm,
        to_clamped((nn.modules.batchnorm._BatchNorm, "forward")),
    ),
    "another method of tensors": (Rms, to_clamped((torch.Tensor, "mean"))),
    "another operator of tensors": (Rms, to_clamped((torch.Tensor, "__mul__"))),
    "a parametrization": (
        batchnorm,
        lambda m, p: parametrize.register_parametrization(m, "weight", Squashed()) and None,
    ),
    "a buffer of another class": (batchnorm, lambda m, p: put(m, "running_var", torch.ones(8).as_subclass(Own))),
    "a buffer of whole numbers": (batchnorm, lambda m, p: put(m, "running_mean", torch.zeros(8, dtype=torch.int64))),
    "a tensor that is no buffer": (batchnorm, no_buffer),
    "a gain of three axes": (Rms, lambda m, p: put(m, "weight", nn.Parameter(torch.ones(2, 3, 12)))),
}
OF_OURS_TOO = {"a hook on all modules", "a call put on every module"}  # under it both may be equal: it is probed anew


def far(self, x):
    return x * self.weight * self.factor


@pytest.mark.parametrize("name", MISSES)
def test_one_change_to_what_was_recognized_is_seen(name):
    make, spoil = MISSES[name]
    assert examine(make())
    module = make()
    with pytest.MonkeyPatch.context() as patch:
        undo = spoil(module, patch)
        try:
            match = examine(module)
        finally:
            (undo or (lambda: None))()
    assert match.how == "probed" if name in OF_OURS_TOO else not match, match
    assert examine(make())


@pytest.mark.parametrize("cls", [ReadsAGlobal, READS_A_CELL, ReadsAFunctionsCell, HasAMethodOfUnknown])
def test_what_was_probed_is_remembered_with_the_numbers_of_each_until_a_proof_is_asked_for(cls):
    memory._verdicts.clear()
    first, other = examine(cls()), cls()
    nn.init.normal_(other.weight)
    again, proven = examine(other), nk.recognize(other, prove=True)
    assert [match.how for match in (first, again, proven)] == ["probed", "remembered", "probed"]
    assert first.to_dict() | {"how": "remembered"} == again.to_dict()
    assert torch.equal(again.module.weight, other.weight)
    assert not torch.equal(first.module.weight, other.weight)
    again.kwargs["eps"] = 9.0
    assert examine(cls()).kwargs == first.kwargs


def test_what_is_no_norm_is_remembered_as_such():
    memory._verdicts.clear()
    first, again = examine(Clamped(8)), examine(Clamped(8))
    assert (first.how, again.how) == ("probed", "remembered")
    assert first.why_not == again.why_not
