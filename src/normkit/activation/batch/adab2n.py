"""AdaB²N: batch normalization for continual learning, balanced over tasks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check, statistics
from normkit.activation.batch._channelwise import Channelwise
from normkit.catalog import method
from normkit.ops import channel
from normkit.ops.channel import along
from normkit.running import once, snapshot, track


@method(
    "adab2n",
    paper="Overcoming Recency Bias of Normalization Statistics in Continual Learning (Lyu et al., 2023), "
    "arXiv 2310.08855",
    shape="N C *",
    over="N *",
    inputs={"task_ids?": "N : index 1"},
    example={"num_tasks": 3},
    replaces=("batchnorm",),
    exempt={
        "gradients task_weight": "by the authors' definition, ids have no effect during the first task",
        "moves cur_tasks": "end_task moves it",
        "moves last_eta": "it is kept for a kappa between 0 and 1",
    },
)
class AdaB2N(Channelwise):
    """Normalize each channel by a mean over the batch that weighs the tasks, not the samples, with learned shares.

    For continual learning with replay, where the running statistics forget old tasks. Without tasks in sequence
    ``batchnorm`` is enough.

    From the second task on, with c[t] samples of task t in the batch, over all tasks t met so far,

        p = a / sum(a),   a[t] = exp(task_weight[t]) + c[t],   w[i] = p[task[i]] / c[task[i]]
        mean = sum of w[i] mean_space(x[i]),   var = sum of w[i] mean_space((x[i] - mean)²)
        y = weight * (x - mean) / sqrt(var + eps) + bias

    In the first task, and without ids, w[i] = 1 / N. The running moments, var as above and not unbiased, move at a
    rate eta: ``momentum`` for a ``kappa`` of 1, 1 / step for 0, and in between momentum^kappa at first, then eta /
    (eta + (1 - momentum)^kappa). The loss mean (mean - running_mean)² + mean (var - running_var)², with the moved
    running values as constants, is for the model's loss, times a factor, from the second task on. Evaluation is batch
    normalization.

    Args:
        num_features: C, the number of channels.
        num_tasks: how many tasks there will be.
        eps: added to the variance under the root.
        momentum: the rate's base, a share of the NEW batch.
        affine: learn ``weight`` and ``bias``.
        kappa: from 0 (all batches weigh alike) to 1 (the rate is ``momentum``).
        init_weight: initial value of ``task_weight``.
        sync: join the statistics over the processes of ``process_group``.
        process_group: the processes to join, default all.

    Input ``(N, C)`` or ``(N, C, *space)``; ``task_ids`` int64 ``(N,)``, the task of each sample, 0 to ``cur_tasks``.
    Call :meth:`end_task` after each task.

    Overcoming Recency Bias of Normalization Statistics in Continual Learning: Balance and Adaptation (Lyu et al.,
    2023), arXiv 2310.08855.

    As in the authors' code, tasks that the batch lacks keep their share of p, so that the w[i] may add up to less
    than 1. Differs from it in: the rate of the last step, ``last_eta``, is saved. A batch with NaN or infinity enters
    the running moments, as in torch's BatchNorm; an empty one leaves them as they are.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    cur_tasks: Tensor
    last_eta: Tensor
    loss: Tensor | None

    def __init__(
        self,
        num_features: int,
        *,
        num_tasks: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        kappa: float = 1.0,
        init_weight: float = 0.0,
        sync: bool = False,
        process_group=None,
    ):
        super().__init__(num_features, eps, momentum, affine, sync, process_group)
        self.num_tasks = check.size(self, "num_tasks", num_tasks)
        self.kappa = check.number(self, "kappa", kappa, 0, 1)
        init_weight = check.number(self, "init_weight", init_weight)
        self.task_weight = nn.Parameter(torch.full((num_tasks,), init_weight))
        self.keep_moments(num_features)
        self.keep(cur_tasks=torch.tensor(0), last_eta=torch.zeros(1))
        self.loss = None

    def forward(self, x: Tensor, task_ids: Tensor | None = None) -> Tensor:
        """Normalize ``x``; in training move the running moments and leave the loss in ``self.loss``."""
        return self.forward_with_loss(x, task_ids)[0]

    def forward_with_loss(self, x: Tensor, task_ids: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the result and the loss; the loss is 0 in evaluation."""
        check.channels_first(self, x, self.num_features)
        if task_ids is not None:
            self._check_ids(task_ids, x)
        if not self.training:
            y = channel.normalize_with(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
            return y, statistics.accurate(x).new_zeros(())
        wide = statistics.accurate(x)
        moments = self._weighted_moments(wide, task_ids)
        with once(self, wide):
            self.loss = self._step(moments)
        y = channel.normalize_with(wide, moments.mean, moments.var, self.weight, self.bias, eps=self.eps)
        return y.to(x.dtype), self.loss

    @torch.no_grad()
    def end_task(self) -> None:
        """Tell that the task is over and the next one begins."""
        if self.cur_tasks + 1 >= self.num_tasks:
            raise ValueError(f"AdaB2N: num_tasks={self.num_tasks}, and the last of them is under way")
        self.cur_tasks += 1

    def __getstate__(self):
        # the loss is a part of the last step's graph, which neither pickle nor deepcopy takes
        return {**self.__dict__, "loss": None}

    def _check_ids(self, task_ids: Tensor, x: Tensor) -> None:
        known = self.num_tasks
        if not (torch.compiler.is_compiling() or self.cur_tasks.is_meta):
            known = int(self.cur_tasks) + 1
        check.index(self, "task_ids", task_ids, (x.shape[0],), known, x)

    def _weighted_moments(self, x: Tensor, task_ids: Tensor | None) -> statistics.Moments:
        of_tasks = self._moments_of_tasks(x, task_ids)
        count = of_tasks.count[:, 0]
        share = count / count.sum().clamp(min=1)
        if task_ids is not None:
            share = torch.where(self.cur_tasks > 0, self._balanced(count), share)
        share = share.unsqueeze(1)
        mean = (share * of_tasks.mean).sum(0)
        var = (share * (of_tasks.var + (of_tasks.mean - mean).square())).sum(0)
        return statistics.Moments(mean, var, count.sum() * x.shape[2:].numel())

    def _moments_of_tasks(self, x: Tensor, task_ids: Tensor | None) -> statistics.Moments:
        """Moments of each task's samples, (tasks, C), and their number, joined in one message; without ids of all."""
        with statistics.full_precision(x):
            return self._sums_of_tasks(x, task_ids)

    def _sums_of_tasks(self, x: Tensor, task_ids: Tensor | None) -> statistics.Moments:
        tasks = torch.arange(self.num_tasks, device=x.device)
        member = x.new_ones(x.shape[0], 1) if task_ids is None else (task_ids.unsqueeze(1) == tasks).to(x.dtype)
        count = member.sum(0).unsqueeze(1)

        def mean_of(values: Tensor) -> Tensor:
            return member.mT @ channel.mean_over_space(values).flatten(1) / count.clamp(min=1)

        mean = mean_of(x)
        centered = x - along(member @ mean, x)
        rest, square = mean_of(centered.detach()), mean_of(centered.square())
        return statistics.joined_moments(mean, rest, square, count, self.process_group, sync=self.sync)

    def _balanced(self, count: Tensor) -> Tensor:
        """The shares of the tasks that the batch has."""
        met = torch.arange(self.num_tasks, device=count.device) <= self.cur_tasks
        a = torch.where(met, statistics.accurate(self.task_weight).to(count.dtype).exp() + count, 0)
        return torch.where(count > 0, a / a.sum(), 0)

    def _step(self, moments: statistics.Moments) -> Tensor:
        """Move the running state; return the distance of the batch's moments from it."""
        self.num_batches_tracked.add_(1)
        eta = self._rate() * (moments.count > 0).to(moments.mean.dtype)
        return self._move(self.running_mean, moments.mean, eta) + self._move(self.running_var, moments.var, eta)

    def _move(self, running: Tensor, value: Tensor, eta: Tensor) -> Tensor:
        """Move a running estimate; return the mean square of ``value`` about it."""
        moved = torch.lerp(snapshot(running).to(value.dtype), value.detach(), eta.to(value.dtype))
        track(running, value, eta)
        return (value - moved).square().mean()

    def _rate(self) -> Tensor | float:
        if self.kappa == 1:
            return self.momentum
        if self.kappa == 0:
            return 1 / self.num_batches_tracked.to(statistics.accurate(self.last_eta).dtype)
        last = snapshot(self.last_eta)
        later = last / (last + (1 - self.momentum) ** self.kappa)
        eta = torch.where(last > 0, later, self.momentum**self.kappa)
        self.last_eta.copy_(eta)
        return eta
