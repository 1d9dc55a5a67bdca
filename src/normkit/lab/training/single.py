"""One run while it lasts: the model, its optimizer, its log; plain steps on Accelerate."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from normkit.lab import files, logs, together
from normkit.lab.clock import BUILDING, EVALUATION, OF_A_RUN, RECOGNITION, REST, TRAINING
from normkit.lab.plan import optimizers, tasks
from normkit.lab.plan.exchanges import layers
from normkit.lab.plan.handed import differ
from normkit.lab.plan.plan import Run, same
from normkit.lab.plan.settings import Settings
from normkit.lab.training import checkpoints, quantized, shifted
from normkit.lab.training.memory import peak_memory, reset_peak
from normkit.lab.training.watched import Depths, judge, watch_run
from normkit.ops.sharded import whole
from normkit.prints import print_of_value
from normkit.watching.inspecting import is_finite
from normkit.watching.sites import blocks
from normkit.weight import project, spheres

BLOWN_UP = 3.0  # a validation loss of so many times its start counts as diverged, as NaN does
HOPELESS = 40  # steps left out in a row: so many halvings take a loss scale from its start to float16's smallest number
PROGRESS = (
    *("step", "elapsed", "busy", "tokens", "first_step", "left_out"),
    *("start", "best", "last", "measured", "held_out"),
)
"""What a checkpoint keeps besides weights and chance."""

LEAST_RATE = 0.1  # where the cosine ends, as a share of the learning rate


def shard(model: nn.Module, device: torch.device, precision: str) -> nn.Module:
    """Spread a model's weights over all processes, block by block, with FSDP2.

    Done by hand, since Accelerate's own way needs GPUs, and tests of it should not.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = together.mesh(device.type)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if precision == "bf16" else None)
    model.to(device)
    for _, block in blocks(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def rows_of(batch: Any, first: int, count: int) -> Any:
    """Return the rows of a batch that one of so many processes takes."""
    from accelerate.utils import recursively_apply

    return recursively_apply(lambda t: t[first::count] if t.dim() else t, batch) if count > 1 else batch


class Training:
    """A run while it lasts: the model, its optimizer, its log, and the time spent."""

    def __init__(self, run: Run, settings: Settings, folder: files.Folder, accelerator: Any):
        self.run, self.settings, self.folder, self.accelerator = run, settings.of(run.variant), folder, accelerator
        reset_peak()
        OF_A_RUN.read()
        with OF_A_RUN.part(BUILDING):
            self.task = tasks.load(self.settings)
            self.objective = self.task.objective(run.variant)
            model = self.task.build(run.variant, run.seed)
            with OF_A_RUN.part(RECOGNITION):
                self.layers = layers(model, run.variant, self.settings.model)
        self.parameters = sum(p.numel() for p in model.parameters())
        self._prepare(model)
        self.held_out = print_of_value(self.task.data.validation())
        self.validation = [self._mine(batch) for batch in self.task.data.validation()]
        self.weights = [self.task.weigh(self.plain, batch) for batch in self.validation]
        own = torch.tensor(float(sum(self.weights)), device=self.accelerator.device)
        self.weight = float(self.accelerator.reduce(own, "mean"))  # of a process
        if not self.weight:
            raise ValueError("no held-out label is to be learned: all are -100")
        torch.manual_seed(run.seed)
        self.step, self.elapsed, self.tokens, self.first_step = 0, 0.0, 0, 0.0
        self.busy = 0.0  # seconds that processors have worked for this run, whatever else the machine does
        self.measured: dict[str, float] = {}
        self.left_out = 0  # steps in a row until now, by the loss scale, as their gradients overflow
        self.start = self.best = self.last = math.inf
        self.recent: list[tuple[int, Any, int, Tensor]] = []  # since the last look: step, where a batch is from, loss
        self.recipe = run.recipe(settings)
        self.log = logs.Log(None)  # the first process opens its own
        self.seen = watch_run(self.plain, None if settings.federated else self.optimizer)
        self.notes: list[str] = []
        self.portable: bool | None = None  # whether its state can be read again, once that is known

    def _prepare(self, model: nn.Module) -> None:
        if self.settings.sharded:
            self.model = shard(model, self.accelerator.device, self.settings.precision)
        else:
            self.model = self.accelerator.prepare(model)
        self.plain = self.accelerator.unwrap_model(self.model)
        self.optimizer = self._make_optimizer(self.run.lr)
        if spheres(model):
            project(model, self.optimizer)  # after every step
        if self.settings.precision == "fp16":
            self.optimizer = self.accelerator.prepare(self.optimizer)  # which brings the loss scaling

    def _make_optimizer(self, lr: float) -> Any:
        decay = self.settings.weight_decay if self.run.decay is None else self.run.decay
        return optimizers.make_optimizer(self.run.variant.optimizer, self.model, lr, decay)

    def train(self, stop: Callable[[], bool]) -> dict[str, Any]:
        """Step until the end, a stop or divergence."""
        with OF_A_RUN.part(REST):
            status = self._train(stop)
        return self._end(status)

    def _train(self, stop: Callable[[], bool]) -> str:
        state = self._state_to_go_on_from()
        self.seen.writers.append(Depths(self.log))
        if state is None:
            self._begin()
        else:
            self._resume(state)
        saved, patience = time.monotonic(), self.settings.checkpoint_seconds
        status = logs.DONE
        while status == logs.DONE and self.share < 1:
            self._train_step_timed()
            status = self._look()
            if status == logs.DONE and stop():
                status = logs.INTERRUPTED
            at_a_log_line = self.step % self.settings.log_every == 0
            if status == logs.INTERRUPTED or (at_a_log_line and self._first_value(time.monotonic() - saved) > patience):
                self._save()
                saved = time.monotonic()
        return status

    @property
    def share(self) -> float:
        """How much of the run is done."""
        if self.run.steps is not None:
            return self.step / self.run.steps
        return self._first_value(self.elapsed) / (self.run.seconds or 1)

    @property
    def probed(self) -> bool:
        """Whether the watch looks at this step."""
        return self.step % self.settings.probe_every == 0 or self.step == 1

    def _first_value(self, value: float) -> float:
        """The first process's value, since clocks differ."""
        if self.accelerator.num_processes == 1:
            return value
        from accelerate.utils import broadcast

        return broadcast(torch.tensor(float(value), device=self.accelerator.device)).item()

    def rate(self) -> float:
        """The learning rate of the next step: a linear warm-up, then a cosine."""
        share, warmup = self.share, self.settings.warmup
        first = 1 / self.run.steps if self.run.steps else 0.01
        if share < warmup:
            return self.run.lr * min(1.0, (share + first) / warmup)
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, (share - warmup) / max(1 - warmup, 1e-9))))
        return self.run.lr * (LEAST_RATE + (1 - LEAST_RATE) * fall)

    def _train_step_timed(self) -> None:
        with OF_A_RUN.part(TRAINING):
            began, worked = time.perf_counter(), time.process_time()
            self._train_step()
            spent = time.perf_counter() - began
        self.first_step = self.first_step or spent
        self.elapsed += spent
        self.busy += time.process_time() - worked

    def _train_step(self) -> None:
        source, number = self.task.data, self.step + 1
        batch = source.train(self.run.seed, number)
        rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("share", 1.0)
        self.step += 1
        with self.seen.sampled(self.step) if self.probed else nullcontext():
            self.loss = self._loss_of_batch(batch, source, number)
            self.accelerator.backward(self.loss)
            self.accelerator.unscale_gradients()  # here, as Accelerate's own clipping would do it a second time
            self.seen.gradients()  # before they are clipped
            self.gradient = nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip or math.inf)
            self.optimizer.step()
            if self.accelerator.scaler is not None:
                self._count_left_out()
        self.optimizer.zero_grad()
        self.tokens += self.task.size(batch)

    def _count_left_out(self) -> None:
        """Count a step that the loss scale left out, and let the watch forget its gradients.

        By their length, as Accelerate does not know it of a fused step. That waits for the device here; others have.
        """
        self.left_out = 0 if math.isfinite(float(whole(self.gradient))) else self.left_out + 1
        if self.left_out and self.seen.sample is not None:
            self.seen.sample.reads.clear()

    def _loss_of_batch(self, batch: Any, source: Any, number: int) -> Tensor:
        """What the variant lowers, of this process's rows of a batch: that of a number from some source."""
        loss = self.objective(self.model, self._mine(batch))
        self.recent.append((self.step, source, number, loss.detach()))
        return loss

    def _mine(self, batch: Any) -> Any:
        """This process's rows of a batch, on its device."""
        from accelerate.utils import send_to_device

        rows = rows_of(batch, self.accelerator.process_index, self.accelerator.num_processes)
        return send_to_device(rows, self.accelerator.device)

    def _look(self) -> str:
        """Log what is due, and tell whether the run has diverged; between such steps the device is not waited for."""
        last = self.run.steps == self.step if self.run.steps else self.share >= 1
        if not last and self.step % self.settings.log_every and self.step % self.settings.eval_every:
            return logs.DONE
        recent, self.recent = self.recent, []
        loss, gradient = self._mean(self.loss.detach()), float(whole(self.gradient))
        if math.isnan(loss):
            self._require_labels(recent)
        most = min(self.step, HOPELESS) if last else HOPELESS
        if self.left_out >= most:
            text = f"the loss scale left out the last {self.left_out} steps, as their gradients overflow"
            self.log.write(logs.NOTE, text=text)
        finite = math.isfinite(loss) and (math.isfinite(gradient) or 0 < self.left_out < most)
        self.log.write(
            logs.STEP,
            step=self.step,
            loss=logs.nan_to_none(loss),
            gradient_norm=logs.nan_to_none(gradient),
            **self._spending(),
        )
        self.seen.flush()
        if finite and (last or self.step % self.settings.eval_every == 0):
            room = (BLOWN_UP - 1) * max(abs(self.start), 1e-3)  # the loss of a density may be below 0
            finite = self._evaluate_timed() < self.start + room
        return logs.DONE if finite else logs.DIVERGED

    def _require_labels(self, recent: list[tuple[int, Any, int, Tensor]]) -> None:
        """Name the batch since which losses are NaN, where its own is a mean over no label; all processes alike."""
        count = self.accelerator.num_processes
        since: dict[int, tuple[int, Any, int]] = {}
        losses = self.accelerator.reduce(torch.stack([loss for *_, loss in recent]), "mean").tolist()
        for (step, source, number, _), loss in zip(recent, losses, strict=True):
            if not math.isnan(loss):
                since.pop(id(source), None)
            else:
                since.setdefault(id(source), (step, source, number))
        for step, source, number in since.values():
            batch = source.train(self.run.seed, number)
            for first in range(count):
                if not self.task.weigh(self.plain, rows_of(batch, first, count)):
                    rows = f" in the rows of process {first}" if count > 1 else ""
                    raise ValueError(f"the batch of step {step} has no label to learn{rows}, and its loss is NaN")

    def _spending(self) -> dict[str, Any]:
        return {"seconds": round(self.elapsed, 4), "tokens": self.tokens, "unit": self.task.data.unit}

    def _mean(self, value: Tensor) -> float:
        """The mean over processes."""
        return float(self.accelerator.reduce(value, "mean"))

    def _evaluate_timed(self) -> float:
        with OF_A_RUN.part(EVALUATION):
            return self._evaluate()

    @torch.no_grad()
    def _evaluate(self) -> float:
        self.model.eval()
        metrics = {"loss": self._over_validation(self.task.loss)}
        if self.task.accuracy is not None:
            metrics["accuracy"] = self._over_validation(self.task.accuracy)
        if self.task.metric is not None:
            with self.accelerator.autocast():
                own = float(self.task.metric(self.model, self.validation))
            metrics["metric"] = self._mean(torch.tensor(own, device=self.accelerator.device))
        self.model.train()
        return self._keep(metrics)

    def _keep(self, metrics: dict[str, Any]) -> float:
        """Log what was measured, and return the loss; infinity where it is not finite."""
        self.measured = metrics
        self.log.write(logs.EVAL, step=self.step, **logs.nan_to_none(metrics))
        self.last = metrics["loss"]
        self.best = min(self.best, self.last) if math.isfinite(self.last) else self.best
        return self.last if math.isfinite(self.last) else math.inf

    def _over_validation(self, measure: Callable[[nn.Module, Any], Tensor]) -> float:
        weights = torch.tensor(self.weights, dtype=torch.float32, device=self.accelerator.device)
        with self.accelerator.autocast():
            scores = torch.stack([measure(self.model, batch) for batch in self.validation]).float()
        return self._mean(torch.where(weights > 0, scores, 0.0) @ (weights / self.weight))

    def _state_to_go_on_from(self) -> dict[str, Any] | None:
        """Open the log and return the checkpoint, or None to begin; the first process decides for all."""
        state = self._saved_state() if self.accelerator.is_main_process else None
        if not self._first_value(float(state is not None)):
            return None
        return state or checkpoints.read_at_once(self.folder.checkpoint(self.run.name))

    def _saved_state(self) -> dict[str, Any] | None:
        """Return the checkpoint if it and the log are those of this run; set aside what is damaged."""
        path, log = self.folder.checkpoint(self.run.name), self.folder.log(self.run.name)
        if path.exists():
            try:
                state = checkpoints.load(path)
                if not same(state["recipe"], self.recipe):
                    raise files.Damaged(f"{path} is of another run")
                self.log = logs.Log(log, logs.Mark(*state["log"]))
                return state
            except files.Damaged as error:
                files.set_aside(path)
                self.notes.append(f"{error}; it was set aside, and the run began again")
        existing = logs.read(log)
        if existing.damaged or log.is_dir() or not same(existing.start.get("recipe", self.recipe), self.recipe):
            files.set_aside(log)
            self.notes.append(f"{log} was damaged or of another run; it was set aside, and the run began again")
        self.log = logs.Log(log, logs.BEGINNING)
        return None

    def _begin(self) -> None:
        run = self.run
        facts = {"variant": run.variant.name, "lr": run.lr, "seed": run.seed, "phase": run.phase}
        facts |= {} if run.decay is None else {"decay": run.decay}
        facts |= {"loss": self.task.loss_name} if self.task.loss_name else {}
        facts |= {"steps": run.steps, "parameters": self.parameters, "held_out": self.held_out, "layers": self.layers}
        facts["time"] = time.time()
        self.log.write(logs.START, **facts, recipe=self.recipe)
        for note in self.notes:
            self.log.write(logs.NOTE, text=note)
        self.start = self._evaluate_timed()

    def _resume(self, state: dict[str, Any]) -> None:
        try:
            self.set_state(state["training"])
        except (ValueError, KeyError, RuntimeError) as error:
            path = self.folder.checkpoint(self.run.name)
            raise ValueError(f"{path} does not fit the model as it is built now; delete it: {error}") from error
        known = state["progress"]["held_out"]
        if differ(known, tasks.held_out_print(self.settings, known)):
            raise ValueError("other samples are held out than when this run began: the data must stay the same")
        checkpoints.set_chances(state["chances"])
        for name in PROGRESS:
            setattr(self, name, state["progress"].get(name, getattr(self, name)))
        if "scaler" in state["progress"]:
            self.accelerator.scaler.load_state_dict(state["progress"]["scaler"])
        if "seen" in state["progress"]:
            self.seen.load_state_dict(state["progress"]["seen"])

    def _save(self) -> None:
        progress = {name: getattr(self, name) for name in PROGRESS} | {"seen": self.seen.state_dict()}
        if self.accelerator.scaler is not None:
            progress["scaler"] = self.accelerator.scaler.state_dict()
        training = self.get_state()
        if not self.accelerator.is_main_process or self.portable is False:
            return
        self.log.settle()
        state = {"training": training, "chances": checkpoints.chances(), "progress": progress}
        state |= {"recipe": self.recipe, "log": list(self.log.mark())}
        try:
            checkpoints.save(self.folder.checkpoint(self.run.name), state, prove=self.portable is None)
            self.portable = True
        except checkpoints.Unportable as error:
            self.portable = False
            self.log.write(logs.NOTE, text=f"no checkpoints are kept, a stopped run begins again: {error}")

    def get_state(self) -> Any:
        """Return what training goes on from."""
        return get_state(self.model, self.optimizer, self.accelerator.num_processes > 1)

    def set_state(self, state: Any) -> None:
        """Put back what :meth:`get_state` returned."""
        set_state(self.model, self.optimizer, state, self.accelerator.num_processes > 1)

    def _afterwards(self) -> dict[str, Any]:
        """Put the trained model to shifted streams and few bits, where these are asked for."""
        model, results = self.accelerator.unwrap_model(self.model), dict[str, Any]()
        with OF_A_RUN.part(EVALUATION):
            if self.settings.shift:
                results["shift"] = shifted.run(model, self.task, self.settings, self.run.seed, self.accelerator.device)
            if self.settings.quant:
                results["quant"] = quantized.run(model, self.task, self.settings, self.run.seed, self._loss_of)
        return logs.nan_to_none(results)

    def _loss_of(self, model: nn.Module) -> float:
        return self._over_validation(lambda _, batch: self.task.loss(model, batch))

    def _bad_batch(self) -> int | None:
        """The first step since the look before whose batch has NaN or infinite values; 0: what is held out has them."""
        if not all(map(is_finite, self.validation)):
            return 0
        if self.settings.federated:  # a round has no one batch
            return None
        steps = range(max(1, self.step - self.settings.log_every + 1), self.step + 1)
        with suppress(Exception):  # data that cannot go back
            return next((step for step in steps if not is_finite(self.task.data.train(self.run.seed, step))), None)
        return None

    def _end_of_log(self) -> dict[str, Any]:
        """Return what else the end of the log says."""
        return {}

    def _end(self, status: str) -> dict[str, Any]:
        if status != logs.INTERRUPTED:
            self.log.write(logs.FOUND, **judge(self.seen))
        speed = self.tokens / self.elapsed
        if self.step > 1:  # the first step is slow, and left out
            speed = self.tokens * (self.step - 1) / self.step / max(self.elapsed - self.first_step, 1e-9)
        later = self._afterwards() if status == logs.DONE and self.run.phase == "final" else {}
        summary = {
            "status": status,
            "final_loss": logs.nan_to_none(self.last),
            "best_loss": logs.nan_to_none(self.best),
            "final": logs.nan_to_none(self.measured),
            "seconds": round(self.elapsed, 4),
            "cpu_seconds": round(self.busy, 4),
            "parts": OF_A_RUN.read(),
            "steps": self.step,
            "tokens_per_second": round(speed, 1),
            "unit": self.task.data.unit,
            "peak_memory": peak_memory(self.accelerator.device),
            "error": None,
            **({"bad_batch": self._bad_batch()} if status == logs.DIVERGED else {}),
            **self._end_of_log(),
            **later,
        }
        written = self.log.end(**summary)
        if status != logs.INTERRUPTED and self.accelerator.is_main_process:
            self.folder.forget(self.run.name)
        return written


def get_state(model: nn.Module, optimizer: Any, spread: bool) -> Any:
    """Return the state of model and optimizer; where it is spread over processes, joined."""
    if not spread:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    plain = getattr(optimizer, "optimizer", optimizer)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    states = get_state_dict(model, plain, options=options)
    return dict(zip(("model", "optimizer"), states, strict=True))


def set_state(model: nn.Module, optimizer: Any, state: Any, spread: bool) -> None:
    """Put back what :func:`get_state` returned."""
    if not spread:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    plain = getattr(optimizer, "optimizer", optimizer)
    options = StateDictOptions(full_state_dict=True)
    set_state_dict(model, plain, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=options)
