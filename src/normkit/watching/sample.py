"""One sampled step: the hooks that are on a model for as long as it lasts, and what they read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from normkit.running import recomputing
from normkit.watching import taps
from normkit.watching.batch import Batch, copy_call
from normkit.watching.facts import bare_name, shares, trainable
from normkit.watching.history import DATA, LOSS, NOISE
from normkit.watching.hook import Hook
from normkit.watching.signals import attention, data, inputs, mode, noise, parameters, routing
from normkit.watching.signals.listener import Listener
from normkit.watching.signals.noise import Noise
from normkit.watching.signals.output import NUMBERS, Outputs, Target, loss_in, scores_in
from normkit.watching.signals.signal import Call, Signal, first_tensor, local_tensors
from normkit.watching.sites import NORMED, Site, attentions, compiled_modules, has_matrix, sites
from normkit.watching.store import Column, Ways, join

FAMILIES = ("activations", "attention", "gradients", "updates", "spectra")


class Row:
    """What one sample read: columns, how each is joined with others, and the numbers, still on their device."""

    def __init__(self) -> None:
        self.columns: list[Column] = []
        self.words: list[str] = []
        self.parts: list[Tensor] = []

    def add(self, columns: Iterable[Column], words: Iterable[str], values: Tensor) -> None:
        """Append numbers."""
        self.columns += columns
        self.words += words
        self.parts.append(values)

    def values(self) -> Tensor:
        """Return all numbers on the CPU; here the device is waited for."""
        none = torch.zeros(0, dtype=torch.float32, device="cpu")
        return torch.cat([none, *(part.detach().float().cpu() for part in self.parts)])


class Sample:
    """Reads a model for one step. ``failed`` is called with what could not be read: nothing is raised in training."""

    def __init__(
        self,
        model: nn.Module,
        families: Iterable[str],
        failed: Callable[[str], None],
        optimizers: Sequence[Optimizer] = (),
    ):
        self.model, self.families, self.failed, self.optimizers = model, set(families), failed, optimizers
        self.shares: list[dict[str, nn.Parameter]] = []  # what each optimizer moves, from the first step on
        self.handles: list[Any] = []
        self.calls: dict[tuple[str, str], tuple[Tensor, Mapping[str, str], int]] = {}
        self.reads: list[parameters.Read] = []
        self.sloped: set[str] = set()  # the parameters whose gradient was read
        self.caught: dict[str, Tensor] = {}
        self.dtypes: dict[str, str] = {}
        self.listeners: list[Listener] = []
        self.updates = parameters.Updates()
        self.losses: dict[bool, list[Tensor]] = {True: [], False: []}  # the model's own, with a gradient and without
        self.are_shares = False  # of one loss, a micro-batch each
        self.batch: Batch | None = None  # of the last call with a gradient
        self.widths: dict[str, int] = {}
        self.fed: dict[int, Tensor] = {}  # the size of what the first layer of so many numbers is fed
        self.outputs = Outputs()
        self.output: Tensor | None = None
        self.noise = Noise()
        self.blind: dict[str, list[int]] = {}  # calls of the model in which a place was called without gradients
        self.taps: dict[tuple[int, str], taps.Read] = {}
        self.tapped = self.called = False
        self.attach()

    def attach(self) -> None:
        """Put the hooks on; the modules are looked up anew, so one that was replaced is seen."""
        hidden = set(compiled_modules(self.model))
        if "activations" in self.families:
            for site in sites(self.model):
                if site.module in hidden:
                    self.taps[taps.key_of(site.module), taps.CALL] = self._read_compiled(site)
                else:
                    self.handles.append(site.module.register_forward_hook(self._reads(site), with_kwargs=True))
        self.handles.append(taps.hook_after(self.model, self._hears_whole()))
        for what, name, module in listeners(self.model, self.families):
            hears, read, numbers = HEARD[what]
            if module in hidden:
                self.taps[taps.key_of(module), what] = self._tapped_scores(bare_name(name), what, read, numbers)
            else:
                self.handles += self._overhears(bare_name(name), module, what, hears, read, numbers)
        taps.begin(self.taps)

    def catch_gradients(self) -> None:
        """Read gradients as they arrive, where no optimizer says when they are all there."""

        def catches(name: str) -> Callable[[Tensor], None]:
            def catch(p: Tensor) -> None:
                if p.grad is not None:
                    self.caught[name] = parameters.norms([p.grad.detach()])[0]

            return self._backward_hook(f"the gradient of {name}", catch)

        if "gradients" in self.families:
            for name, p in trainable(self.model).items():
                self.handles.append(p.register_post_accumulate_grad_hook(catches(name)))

    def _backward_hook(self, what: str, take: Callable[[Tensor], None]) -> Callable[[Tensor], None]:
        """Return a hook of a tensor that raises nothing in the user's backward pass."""

        def hook(x: Tensor) -> None:
            try:
                with torch.no_grad():
                    take(x)
            except Exception as error:
                self.failed(f"{what} could not be read: {error}")

        return hook

    def detach(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        taps.end(self.taps)
        if self.called and self.taps and not self.tapped:
            self.failed(taps.LATE.format(count=len({key for key, _ in self.taps})))

    def _read_compiled(self, site: Site) -> taps.Read:
        """Read a call inside of torch.compile."""

        def take(x: list[Tensor], y: list[Tensor], state: Mapping[str, Tensor], data: bool) -> None:
            self.tapped = True
            first = first_tensor([part.detach().requires_grad_(not data) for part in x])
            self._read(site, site.module, first, first_tensor(y), y, state)

        return take

    def _tapped_scores(self, name: str, what: str, read: Any, numbers: Any) -> taps.Read:
        def take(x: list[Tensor], *_: Any) -> None:
            self.tapped = True
            try:
                with torch.no_grad(), torch.autocast(x[0].device.type, enabled=False):
                    self._join((name, what), read(x[0]), numbers)
            except Exception as error:
                self.failed(f"{what} of {name} could not be read: {error}")

        return take

    def _reads(self, site: Site) -> Hook:
        late = [signal for signal in site.signals if signal is inputs.SIGNAL]  # it asks whether there is a gradient

        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            again, graded, call = is_made_again(), torch.is_grad_enabled(), len(self.noise.examples)
            if is_skipped(module) and not again:
                return
            calls = self.blind.pop(site.name, []) if graded else self.blind.setdefault(site.name, [])
            x, y = first_tensor(args), first_tensor(output)
            x = first_tensor(kwargs) if x is None else x
            if again:
                if len(calls) != 1 or y is None:  # of several it is not known which is made again
                    return
                call = calls[0]
                self._read_signals(site, Call(module, x, y, site.axis(y.dim()), output), late)
            else:
                calls.append(call)
                self._read(site, module, x, y, output, blind=() if graded else late)
            if y is not None and y.requires_grad and site.what == NORMED and not hasattr(module, "running_var"):
                take = self.noise.listens(module, y, site.axis(y.dim()), call)
                what = f"the noise of {bare_name(site.name) or 'the model'}"
                self.handles.append(y.register_hook(self._backward_hook(what, take)))

        return Hook(hook)

    def _read(
        self,
        site: Site,
        module: nn.Module,
        x: Any,
        y: Any,
        output: Any,
        state: Any = None,
        blind: Collection[Signal] = (),
    ) -> None:
        """Read all signals of one call, but for those that are read when it is made again."""
        name, known = bare_name(site.name), y if y is not None else x
        if known is None:
            return
        call = Call(module, x, y, site.axis(known.dim()), output, state)
        self.dtypes[name] = str(known.dtype).removeprefix("torch.")
        self.widths[name] = known.shape[call.axis]
        with torch._C.DisableTorchFunction(), torch.no_grad(), torch.autocast(known.device.type, enabled=False):
            try:
                is_fed = name and x is not None and x.is_floating_point() and has_matrix(module)
                if is_fed and x.numel() not in self.fed:
                    self.fed[x.numel()] = data.size(x)
            except Exception as error:
                self.failed(f"what {name or 'the model'} is fed could not be read: {error}")
        self._read_signals(site, call, site.signals, blind)

    def _read_signals(self, site: Site, call: Call, signals: Iterable[Signal], blind: Collection[Signal] = ()) -> None:
        name, known = bare_name(site.name), call.y if call.y is not None else call.x
        assert known is not None
        with torch._C.DisableTorchFunction(), torch.no_grad(), torch.autocast(known.device.type, enabled=False):
            for signal in signals:
                if signal in blind:  # it keeps its place among the columns
                    self.calls.setdefault((name, signal.name), (torch.zeros(0, device="cpu"), signal.numbers, 0))
                    continue
                try:
                    self._join((name, signal.name), signal.read(call), signal.numbers)
                except Exception as error:
                    self.failed(f"{signal.name} of {name or 'the model'} could not be read: {error}")

    def _hears_whole(self) -> Callable[..., None]:
        """Take what the model is fed, the loss that it gives, and what a loss makes of its output."""

        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if is_skipped(module):
                return
            self.called = True
            try:
                loss = loss_in(output)
                if loss is not None:
                    self.losses[loss.requires_grad].append(loss.detach().float())
                    self.are_shares = kwargs.get("num_items_in_batch") is not None  # as transformers' Trainer says
                x, scores = data.first_input(args, kwargs), scores_in(output)
                self.noise.called(0 if x is None else len(x))
                first = next(iter(self.fed.values()), None)
                if x is not None:
                    self._join((DATA, "data"), data.read(x), data.NUMBERS)
                    self._join((DATA, "features"), data.features(x), data.FEATURES)
                    self._join((DATA, "fed"), self.fed.get(x.numel(), first), data.FED)
                    self._join((DATA, "mode"), mode.read(module, x), mode.NUMBERS)
                batch = copy_call(args, kwargs) if any(y.requires_grad for y in local_tensors(output)) else None
                self.batch = batch or self.batch
                if scores is not None:
                    take = self.outputs.listens(scores, partial(self._know, batch))
                    hook = self._backward_hook("the gradient of the output", take)
                    self.handles.append(scores.register_hook(hook))
            except Exception as error:
                self.failed(f"what the model is fed and gives could not be read: {error}")
            self.fed = {}

        return hook

    def _know(self, batch: Batch | None, target: Target) -> None:
        """Keep the batch of a call with the target that its own gradient tells."""
        if batch is not None:
            batch.target, self.batch = target, batch

    def _overhears(self, name: str, module: nn.Module, what: str, hears: Any, read: Any, numbers: Any) -> list[Any]:
        """Have a listener entered for as long as each call of a module takes."""

        def take(value: Tensor) -> None:
            self._join((name, what), read(value), numbers)

        def failed(error: Exception) -> None:
            self.failed(f"{what} of {name} could not be read: {error}")

        def enter(called: nn.Module, _: Any) -> None:
            if not is_skipped(called):
                self.listeners.append(Listener(hears, take, failed))
                self.listeners[-1].__enter__()

        def leave(called: nn.Module, _: Any, output: Any) -> None:
            if self.listeners and not is_skipped(called):
                self.listeners.pop().__exit__(None, None, None)

        return [
            module.register_forward_pre_hook(Hook(enter)),
            module.register_forward_hook(Hook(leave), always_call=True),
        ]

    def _join(self, key: tuple[str, str], mine: Tensor | None, numbers: Mapping[str, str]) -> None:
        """Take a reading; further calls in one step, of another micro-batch or place, are joined with it."""
        if mine is None:
            return
        if not isinstance(mine, Tensor) or mine.shape != (len(numbers),):
            what = f"shape {tuple(mine.shape)}" if isinstance(mine, Tensor) else repr(mine)
            raise ValueError(f"a vector of {len(numbers)} was wanted, a value for each name, not {what}")
        old, _, count = self.calls.get(key, (mine, numbers, 0))
        if count:
            mine = join(old, mine, Ways.of(list(numbers.values()), mine.device), count + 1)
        self.calls[key] = (mine, numbers, count + 1)

    def gradients(self, some: parameters.Named | None = None, optimizer: Any = None) -> None:
        """Read the gradients, or those of some parameters as their optimizer takes them, unless they were."""
        if "gradients" in self.families:
            named = trainable(self.model) if some is None else some
            reads = parameters.gradients({name: p for name, p in named.items() if name not in self.sloped})
            self.reads += parameters.as_stepped(reads, optimizer)
            self.sloped.update(name for names, what, _ in reads if what == "gradient" for name in names)

    def keep(self, number: int) -> None:
        """Remember what an optimizer moves, before its step."""
        if "updates" in self.families:
            self.updates.keep(self._share(number))

    def before_step(self, number: int) -> None:
        """Read the gradients that the step of an optimizer goes by, and what else comes of its passes."""
        own, optimizer = self._share(number), self.optimizers[number]
        self.gradients(own, optimizer)
        self.output = self.outputs.values(own, optimizer)
        self.noise.end()
        if "updates" in self.families:
            self.updates.pull(own, parameters.rounds(optimizer))

    def after_step(self, number: int) -> None:
        """Read how far an optimizer has gone: by its first step, where it makes several."""
        if "updates" in self.families:
            reads = self.updates.read(self._share(number))
            self.reads += parameters.as_stepped(reads, self.optimizers[number])

    def _share(self, number: int) -> dict[str, nn.Parameter]:
        self.shares = self.shares or shares(self.model, self.optimizers)
        return self.shares[number]

    def row(self, spectra: parameters.Spectra, rates: list[Tensor]) -> Row:
        """Return all that was read, with what is read after the step."""
        row, model = Row(), trainable(self.model)
        for (where, _), (values, numbers, count) in self.calls.items():
            if count:
                row.add([(where, what) for what in numbers], numbers.values(), values)
        if self.output is not None:
            row.add([(LOSS, what) for what in NUMBERS], NUMBERS.values(), self.output)
        noises = self.noise.values() if self.noise.ended else None
        if noises is not None:
            row.add([(NOISE, what) for what in noise.NUMBERS], noise.NUMBERS.values(), noises)
        updates = self.updates.read(model) if "updates" in self.families else []
        reads = parameters.joined(self.reads + updates, model)
        if self.caught:
            reads.append((list(self.caught), "gradient", torch.stack(list(self.caught.values()))))
        if "spectra" in self.families:
            reads += spectra.read(model)
        if rates:
            reads.append(([f"group {i}" for i in range(len(rates))], "lr", torch.stack([rate.cpu() for rate in rates])))
        for names, what, values in reads:
            row.add([(name, what) for name in names], [parameters.WAY] * len(names), values)
        return row

    @property
    def loss(self) -> Tensor | None:
        """The loss that the model gave, of all calls of the step, or of those with a gradient if there are any."""
        losses = self.losses[True] or self.losses[False]
        if not losses:
            return None
        return torch.stack(losses).sum() if self.are_shares else torch.stack(losses).mean()

    @property
    def empty(self) -> bool:
        """Whether nothing was read so far."""
        return not (self.calls or self.reads or self.caught)


HEARD = {
    taps.ATTENTION: (attention.HEARS, attention.read, attention.NUMBERS),
    taps.SOFTMAXES: (routing.HEARS, routing.shares, routing.TWICE),
}
"""What is heard of torch's functions, and what is read of it."""


def listeners(model: nn.Module, families: Iterable[str]) -> Iterator[tuple[str, str, nn.Module]]:
    """Return whose calls of torch's functions are heard: what for, the name, and the module."""
    if "attention" in families:
        yield from ((taps.ATTENTION, name, module) for name, module in attentions(model))
    if "activations" in families:
        yield from ((taps.SOFTMAXES, name, module) for name, module in routing.mixtures(model))


def taps_on(model: nn.Module, families: Iterable[str]) -> list[Any]:
    """Put taps on what is compiled in a model, and return their handles."""
    hidden = set(compiled_modules(model))
    modules = [site.module for site in sites(model) if site.module in hidden] if "activations" in families else []
    heard = [(what, module) for what, _, module in listeners(model, families) if module in hidden]
    attending, mixing = ([m for what, m in heard if what == kind] for kind in (taps.ATTENTION, taps.SOFTMAXES))
    return list(taps.attach(modules, attending, mixing))


def is_made_again() -> bool:
    """Whether reentrant checkpointing makes a call again, in the backward pass, and this time with gradients."""
    return recomputing() and torch.is_grad_enabled()


def is_skipped(module: nn.Module) -> bool:
    """Whether a call is none of the training: an evaluation, a second forward of checkpointing, a compiler's look."""
    if torch.compiler.is_compiling() or recomputing():
        return True
    return not (module.training or torch.is_grad_enabled())
