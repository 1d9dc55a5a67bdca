"""GradNorm: weights of several tasks' losses, so that none of them trains alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from normkit import check
from normkit.catalog import method
from normkit.kinds import Method
from normkit.statistics import accurate

LEAST = 1e-3  # floor of a weight


@method(
    "gradnorm",
    paper="GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep Multitask Networks (Chen et al., "
    "2018), arXiv 1711.02257",
    evidence="library",
    shape="T",
    example={"num_tasks": 5},
    exempt={
        "gradients": "weight is moved by update(), not by the loss",
        "moves": "initial_losses is set by the first update(), not by the forward pass",
        "gradcheck": "no gradient reaches weight, by definition",
        "higher-derivatives": "no gradient reaches weight, by definition",
    },
)
class GradNorm(Method):
    """Weight the losses of several tasks, and move the weights so that all tasks train at one pace.

    For one network that learns several tasks, where the loss of the largest scale would take over the shared layers. It
    needs the gradient of each task at the last of them, so a backward pass a task. To balance two teachers take
    ``mtard-balance``.

    Let n_i be the length of task i's own gradient at the last shared layer, G_i = w_i n_i, and G their mean. With r_i
    how much of its first loss task i still has, over the mean of that,

        gradnorm loss = sum_i |G_i - c_i|,    c_i = G r_i^alpha held constant
        w <- w - lr sign(G_i - c_i) n_i,    then w <- w T / sum(w)

    ``gradnorm(losses)`` returns sum_i w_i losses_i, whose gradient does not reach w. After the backward passes of the
    tasks, ``gradnorm.update(losses, grad_norms)`` moves w. ``gradnorm.gradnorm_loss`` is for an optimizer of your own.

    Args:
        num_tasks: T.
        alpha: how strongly tasks that are behind are pulled; 1.5 in the paper's largest experiment.
        lr: of the weights.

    State: ``weight`` (T,), ones at first; ``initial_losses`` (T,), zeros until the first update.

    GradNorm (Chen et al., 2018), arXiv 1711.02257. Differs from the paper in: a weight that a step takes below 0.001 is
    0.001 before the sum is T again, as a negative one would have its task unlearned.
    """

    initial_losses: Tensor

    def __init__(self, num_tasks: int, alpha: float = 1.5, lr: float = 0.025):
        super().__init__()
        self.num_tasks = check.size(self, "num_tasks", num_tasks)
        self.alpha = check.number(self, "alpha", alpha)
        self.lr = check.number(self, "lr", lr, 0.0)
        self.weight = nn.Parameter(torch.ones(num_tasks))
        self.register_buffer("initial_losses", torch.zeros(num_tasks))

    def forward(self, losses: Tensor) -> Tensor:
        """Return the weighted sum of the losses (T,)."""
        check.values(self, "losses", losses, (self.num_tasks,), losses)
        return (self.weight.detach() * accurate(losses)).sum().to(losses.dtype)

    def gradnorm_loss(self, losses: Tensor, grad_norms: Tensor) -> Tensor:
        """Return the loss of the weights, given the tasks' losses and the lengths of their own gradients, (T,) each."""
        check.values(self, "losses", losses, (self.num_tasks,), losses)
        check.values(self, "grad_norms", grad_norms, (self.num_tasks,), losses)
        losses, norms = accurate(losses.detach()), accurate(grad_norms.detach())
        self._remember(losses)
        pace = losses / self.initial_losses
        lengths = self.weight.abs() * norms
        targets = lengths.detach().mean() * (pace / pace.mean()) ** self.alpha
        return (lengths - targets).abs().sum()

    @torch.no_grad()
    def _remember(self, losses: Tensor) -> None:
        """Take the losses as the first ones if there were none."""
        self.initial_losses.copy_(torch.where((self.initial_losses == 0).all(), losses, self.initial_losses))

    def update(self, losses: Tensor, grad_norms: Tensor) -> Tensor:
        """Move the weights by one step, make their sum T again, and return them."""
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(self.gradnorm_loss(losses, grad_norms), self.weight)
        with torch.no_grad():
            moved = (self.weight - self.lr * grad).clamp(min=LEAST)
            self.weight.copy_(moved * (self.num_tasks / moved.sum()))
        return self.weight.detach().clone()
