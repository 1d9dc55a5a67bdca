"""Methods that put themselves around a model and go on learning from what it is shown at test time."""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from normkit import check
from normkit.kinds.guard import OFF, RESET, is_answer, make_guard
from normkit.kinds.kind import ADAPTER_LINES, Kind
from normkit.kinds.module import Method, ModuleKind
from normkit.parameters import copy_model, for_gradients
from normkit.statistics import accurate

if TYPE_CHECKING:
    from normkit.catalog import Card

OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True)
class AdapterKind(Kind):
    """A module around a model, called as the model is; each call predicts, and learns from what it predicts."""

    prepare, subject = ModuleKind.prepare, ModuleKind.subject

    def takes(self, card: Card) -> list[str]:
        """The names of what a call takes."""
        return list(inspect.signature(card.entry.observe).parameters)[1:]

    def width(self, card: Card) -> None:
        """There is none: the model has its own."""

    def use(self, card: Card, arguments: str, inputs: str) -> str:
        """Around a model."""
        typed = ", ".join(filter(None, ["model", arguments]))
        first = inputs.split(", ")[0]
        return (
            f'adapter = nk.{card.entry.__name__}({typed})  # or nk.create("{card.name}", {typed})\ny = adapter({first})'
        )

    def arguments(self, card: Card, features: int = 8, **overrides: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A small model, and the card's example arguments."""
        _, named = super().arguments(card, features, **overrides)
        return (named.pop("model", None) or small_network(features),), named

    def saved(self, instance: nn.Module) -> dict[str, tuple[Tensor, bool]]:
        """The tensors of ``state_dict``."""
        learned = {name for name, _ in instance.named_parameters()}
        state = instance.state_dict().items()
        return {name: (value, name in learned) for name, value in state if isinstance(value, Tensor)}


ADAPTER = AdapterKind("adapter", "adapter", "inference", ADAPTER_LINES)


def small_network(features: int = 8, classes: int = 4) -> nn.Sequential:
    """A convolution, a batch norm and a head, the same at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = {
            "conv": nn.Conv2d(features, 6, 3, padding=1, bias=False),
            "norm": nn.BatchNorm2d(6),
            "relu": nn.ReLU(),
            "pool": nn.AdaptiveAvgPool2d(1),
            "flat": nn.Flatten(),
            "head": nn.Linear(6, classes),
        }
    network = nn.Sequential()
    for name, layer in layers.items():
        network.add_module(name, layer)
    return network


class Adapter(Method):
    """A model that goes on learning at test time, without labels.

    It takes the model over: the parameters that it trains are named at the start, all others are frozen, and what the
    method changes about norms stays changed. A call takes what the model takes and returns logits. ``reset`` brings
    back the numbers of the first call; ``state_dict`` holds these too, and the optimizer's, so that a stream that is
    saved and loaded goes on to the same bits.

    With ``guard="stop"`` or ``"reset"`` a copy of the model as it was, ``reference``, answers beside it, and a
    :class:`Guard` compares: when the adaptation collapses, the call returns the reference's logits, with a warning.
    From then on the adapter learns no more and the reference answers, or it begins anew.

    A method writes :meth:`observe`. ``remembers`` names the attributes that it sets in :meth:`begin` and moves later.
    """

    kind = ADAPTER
    model: nn.Module
    remembers: ClassVar[tuple[str, ...]] = ()
    every_parameter: ClassVar[bool] = False

    def __init__(self, model: nn.Module, build: Callable[..., torch.optim.Optimizer], guard: str = OFF):
        super().__init__()
        self.guard = make_guard(self, guard)
        self.reference: Any = None if self.guard is None else copy_model(model).eval().requires_grad_(False)
        self.model = model
        self.build = build
        self.trained: tuple[str, ...] = ()  # names of the model's parameters
        self.source: dict[str, Tensor] = {}
        self.optimizer: torch.optim.Optimizer | None = None
        self.copies: dict[int, nn.Parameter] = {}  # of half-precision parameters, by their number
        self.begun = False

    def train_only(self, names: Iterable[str]) -> None:
        """Say which parameters of the model are trained; all others are frozen."""
        every = dict(self.model.named_parameters(remove_duplicate=False))
        first = {id(parameter): name for name, parameter in self.model.named_parameters()}  # of those that are tied
        self.trained = tuple(dict.fromkeys(first[id(every[name])] for name in names))
        if not self.trained:
            raise ValueError(f"{self._get_name()}: model has no parameter that this method trains: {self.wants}")
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in set(self.trained))

    wants: ClassVar[str] = "weight or bias of a norm"

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the logits of a batch, and learn from it."""
        with torch.inference_mode(False), torch.enable_grad():
            call = inspect.signature(self.observe).bind(
                *map(for_gradients, inputs), **{name: for_gradients(value) for name, value in named.items()}
            )
            x = call.args[0]
            self.start()
            if self.guard is not None and self.guard.stopped:
                return self._of_reference(x)
            before = [(buffer, buffer.clone()) for buffer in self.buffers()]
            if not len(x):  # nothing is learned, though momenta would move by gradients of 0
                answers = self.logits(self.model, x).detach()
                self._restore(before)
                return answers
            logits = None
            try:
                logits = self.observe(*call.args, **call.kwargs).detach()
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise ValueError(
                    f"{self._get_name()}: a batch of one sample has no statistics for a batch norm; show it two at "
                    "least, or take a method for single samples: note, rotta"
                ) from error
            finally:
                if logits is None or not is_answer(logits):
                    self._restore(before)
            return logits if self.guard is None else self._fall_back(logits, x)

    def _fall_back(self, logits: Tensor, x: Tensor) -> Tensor:
        """Return the logits, or the reference's where the adaptation has collapsed."""
        source = self._of_reference(x)
        if self.guard is None or not self.guard.look(source, logits):
            return logits
        if self.guard.action == RESET:
            self.forget()
        return source

    @torch.no_grad()
    def _of_reference(self, x: Tensor) -> Tensor:
        """What the model as it was says of a batch."""
        return self.logits(self.reference.eval(), x).detach()

    @torch.no_grad()
    def _restore(self, buffers: list[tuple[Tensor, Tensor]]) -> None:
        """Bring back statistics that a call that failed, or a batch with NaN, has moved."""
        for buffer, value in buffers:
            buffer.copy_(value)

    def observe(self, x: Tensor) -> Tensor:
        """Predict a batch and learn from it."""
        raise NotImplementedError

    def begin(self) -> None:
        """Set what a stream starts with; the model has its first numbers."""

    def start(self) -> None:
        """Keep the numbers of the first call."""
        if not self.begun:
            self.source = {name: value.detach().clone() for name, value in self._moving()}
            self.begun = True
            self.begin()

    @torch.no_grad()
    def reset(self) -> None:
        """Bring back the numbers of the first call, and forget everything since."""
        if self.guard is not None:
            self.guard.clear()
        self.forget()

    def reset_parameters(self) -> None:
        """Forget the stream with what it began from: the next call begins from the numbers that the model then has."""
        if self.guard is not None:
            self.guard.clear()
        self.begun, self.source, self.optimizer, self.copies = False, {}, None, {}

    @torch.no_grad()
    def forget(self) -> None:
        """Do so, but for the guard, which goes on looking."""
        if self.begun:
            self.restore()
            self.optimizer, self.copies = None, {}
            self.begin()

    @torch.no_grad()
    def restore(self, *, buffers: bool = True) -> None:
        """Bring back the model's numbers alone."""
        for name, value in self._moving():
            if buffers or name in self.trained:
                value.copy_(self.source[name])

    def _moving(self) -> list[tuple[str, Tensor]]:
        own = dict(self.model.named_parameters())
        return [*((name, own[name]) for name in self.trained), *self.model.named_buffers()]

    def parameters_trained(self) -> list[nn.Parameter]:
        """The parameters that are trained, in order."""
        own = dict(self.model.named_parameters())
        return [own[name] for name in self.trained]

    def logits(self, model: nn.Module, *inputs: Any, **named: Any) -> Tensor:
        """What a model says of a batch, (N, K), as a tensor in the accurate type."""
        returned = model(*inputs, **named)
        logits = getattr(returned, "logits", returned[0] if isinstance(returned, tuple | list) else returned)
        if not isinstance(logits, Tensor) or logits.dim() != 2:
            what = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(f"{self._get_name()}: model must return logits (samples, classes), not {what}")
        return logits

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """The gradient of a loss by each parameter that is trained; zeros where it does not reach."""
        parameters = self.parameters_trained()
        grads = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, grads, strict=True)]

    def step(self, grads: Sequence[Tensor]) -> bool:
        """Move the parameters that are trained; not by a gradient that is not finite, which would end the model."""
        if not all(bool(g.isfinite().all()) for g in grads):
            self._skip("the gradient of this batch is")
            return False
        parameters = self.parameters_trained()
        self.optimizer = self.optimizer or self.build(self._wide())
        wide = self._agreeing(parameters)
        for parameter, grad in zip(wide, grads, strict=True):
            parameter.grad = grad.to(parameter.dtype)
        self.optimizer.step()
        for parameter in wide:
            parameter.grad = None
        with torch.no_grad():
            for i, own in self.copies.items():
                parameters[i].copy_(own)
        return True

    def _skip(self, what: str = "the logits of this batch are") -> None:
        warnings.warn(f"{self._get_name()}: {what} not finite, so nothing is learned from it", stacklevel=3)

    @torch.no_grad()
    def _wide(self) -> list[nn.Parameter]:
        """What an optimizer is built of: the parameters, or of half precision copies in float32, those kept first."""
        parameters = self.parameters_trained()
        half = {i: p for i, p in enumerate(parameters) if p.dtype is not accurate(p).dtype}
        self.copies = {i: nn.Parameter(self.copies.get(i, p).to(p.device, torch.float32)) for i, p in half.items()}
        return [self.copies.get(i, p) for i, p in enumerate(parameters)]

    @torch.no_grad()
    def _agreeing(self, parameters: Sequence[nn.Parameter]) -> list[nn.Parameter]:
        """What the optimizer steps; copies take the parameters' numbers where they no longer agree."""
        for i, own in self.copies.items():
            own.copy_(torch.where(own.to(parameters[i].dtype) == parameters[i], own, parameters[i].to(own.dtype)))
        return [self.copies.get(i, p) for i, p in enumerate(parameters)]

    def get_extra_state(self) -> dict[str, Any]:
        """What a stream goes on from beside the module's tensors."""
        return {
            "begun": self.begun,
            "source": self.source,
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "copies": {i: own.detach() for i, own in self.copies.items()},
            "remembered": {name: getattr(self, name) for name in self.remembers} if self.begun else {},
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there, with tensors of its own: torch's optimizers keep those that they are given."""
        state = copy.deepcopy(state)
        self.begun, self.source = state["begun"], state["source"]
        self.optimizer, self.copies = None, {i: nn.Parameter(own) for i, own in state["copies"].items()}
        if state["optimizer"] is not None:
            self.optimizer = self.build(self._wide())  # the model's own numbers may come later
            self.optimizer.load_state_dict(state["optimizer"])
        for name, value in state["remembered"].items():
            setattr(self, name, value)

    def _apply(self, function, recurse=True):
        super()._apply(function, recurse)
        self.source = {name: function(value) for name, value in self.source.items()}
        for name in self.remembers if self.begun else ():
            setattr(self, name, tree_map_only(Tensor, function, getattr(self, name)))
        if self.optimizer is not None:
            saved = self.optimizer.state_dict()
            self.optimizer = self.build(self._wide())
            self.optimizer.load_state_dict(saved)  # which takes its tensors to the parameters' type and place
        return self


def optimizer_builder(
    owner: object,
    optimizer: Any,
    *,
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Callable[..., torch.optim.Optimizer]:
    """Return what makes an optimizer of parameters: ``"adam"``, ``"sgd"``, or a function that a user brings."""
    if callable(optimizer):
        return optimizer
    check.choice(owner, "optimizer", optimizer, OPTIMIZERS)
    lr, decay = check.number(owner, "lr", lr, 0.0), check.number(owner, "weight_decay", weight_decay, 0.0)
    momentum = check.number(owner, "momentum", momentum, 0.0, 1.0)
    if optimizer == "adam":
        if momentum == 1:
            raise ValueError(
                f"{check.whose(owner)}: momentum must be below 1 where optimizer is 'adam', not {momentum}"
            )
        return functools.partial(torch.optim.Adam, lr=lr, betas=(momentum, 0.999), weight_decay=decay)
    if nesterov and not momentum:
        raise ValueError(f"{check.whose(owner)}: nesterov=True needs a momentum above 0, not {momentum}")
    return functools.partial(torch.optim.SGD, lr=lr, momentum=momentum, weight_decay=decay, nesterov=bool(nesterov))
