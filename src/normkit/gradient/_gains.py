"""Where gains stand: before a linear map alone, which could take them in, or before anything else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from normkit.gradient._parts import LINEAR, example_inputs
from normkit.parameters import Roles, holders, remove_after, tensors_in, trial

INPUT, OUTPUT = "input gain", "output gain"
MAPS = {*LINEAR, "conv1d", "conv2d", "conv3d", "multi_head_attention_forward"}
# functions that hand on the same numbers
PASSING = {"view", "reshape", "flatten", "unflatten", "transpose", "permute", "contiguous", "unsqueeze", "squeeze"}
PASSING |= {"to", "float", "type", "clone", "detach", "dropout", "expand", "chunk", "split", "unbind", "__getitem__"}
PASSING |= {"type_as", "bfloat16", "half", "double", "__get__"}


class Readers(TorchFunctionMode):
    """Notes what reads the output of each norm: a linear map, or something else."""

    def __init__(self, norms: Sequence[nn.Module]):
        super().__init__()
        self.norms = norms
        self.made: dict[int, tuple[Tensor, nn.Module]] = {}  # the tensor is kept, so that its identity stays its own
        self.reads: dict[nn.Module, set[bool]] = {}  # True: a linear map

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Note what norms return."""
        with remove_after([norm.register_forward_hook(self._note) for norm in self.norms]), self:
            yield

    def _note(self, norm: nn.Module, args: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple | list) else output
        self.reads.setdefault(norm, set())
        if isinstance(tensor, Tensor):
            self.made[id(tensor)] = tensor, norm

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch."""
        result = func(*args, **(kwargs or {}))
        read = [self.made[id(x)][1] for x in tensors_in((args, kwargs or {})) if id(x) in self.made]
        outputs = list(tensors_in(result)) if read else []
        name = getattr(func, "__name__", "").partition(".")[0]
        for norm in read if outputs else ():  # what makes no tensor asks for a shape or a type
            if name in PASSING:
                self.made |= {id(x): (x, norm) for x in outputs}
            else:
                self.reads[norm].add(name in MAPS)
        return result


def places(model: nn.Module, inputs: Sequence[Any], rows: Roles) -> dict[str, str]:
    """By the name of each gain, whether it is an input norm's, which linear maps alone read, or an output norm's.

    The model runs once, on ``inputs`` or on some that are made up.
    """
    owners = holders(model)
    norms = {row.name: [module for module, _ in owners[id(row.parameter)]] for row in rows if row.role == "gain"}
    readers = Readers(list(dict.fromkeys(module for own in norms.values() for module in own)))
    args, kwargs = (list(inputs), {}) if inputs else example_inputs(model)
    with trial(model):
        model.eval()
        try:
            with readers.listening():
                model(*args, **kwargs)
        except Exception as error:
            if inputs:
                raise
            raise ValueError(
                "param_groups: a run shows which gains are input norms' and which output norms', and "
                f"{type(model).__name__} does not take the inputs that were made up; hand in inputs=[...]"
            ) from error
    sides = {}
    for name, own in norms.items():
        reads = {kind for norm in own for kind in readers.reads.get(norm, ())}
        sides[name] = INPUT if reads == {True} else OUTPUT
    return sides
