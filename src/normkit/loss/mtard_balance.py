"""MTARD's balance: a clean and a robust teacher, kept from drowning each other out."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.kinds import Loss
from normkit.running import once, snapshot
from normkit.statistics import accurate

SIDES = ("adv", "nat")
CONSTANT = "teachers are constants"


@method(
    "mtard-balance",
    paper="Mitigating the Accuracy-Robustness Trade-off via Multi-Teacher Adversarial Distillation (Zhao et al., "
    "2023), arXiv 2306.16170",
    evidence="equations",
    shape="N C",
    over="C",
    inputs={"student_nat": "N C", "teacher_adv": "N C", "teacher_nat": "N C"},
    invariant=("shift",),
    exempt={
        "gradcheck": CONSTANT,
        "higher-derivatives": CONSTANT,
        "moves weight_adv": "both tasks weigh the same in the first call",
        "moves weight_nat": "both tasks weigh the same in the first call",
        "moves temperature_adv": "it is at its end",
    },
)
class MTARDBalance(Loss):
    """Distill two teachers at once, and keep their temperatures and losses in balance while training.

    For a small robust classifier: one teacher is right on clean images, one on attacked ones. With one teacher take
    ``nkd``.

    With q a teacher's softmax at its temperature, and all means over samples and classes,

        K = mean(q log(q + 1e-5) - q log softmax(student)),    result = weight_adv K_adv + weight_nat K_nat

    Each training call first moves the state: the teacher whose labels are more spread than the other's gets a lower
    temperature, by ``temperature_lr``, and the other a higher one; with l = K / K of the first call, the weights
    move by ``weight_lr`` towards l_adv : l_nat and are scaled to a sum of 1. This call's labels have the old
    temperatures, its loss the new weights.

    Args:
        weight_lr: the step of the weights; the authors lower it tenfold where they lower the learning rate.
        temperature_lr: the step of the temperatures.
        min_temperature, max_temperature: what temperatures lie between.

    ``loss(student_adv, student_nat, teacher_adv, teacher_nat)``: four times (N, C), adv on attacked, nat on clean
    images. Teachers carry no gradient. State: ``weight_``, ``temperature_`` and ``initial_adv``, ``_nat``; the last are
    NaN until the first call. A loss that is not finite moves no weight. In evaluation nothing moves.

    Mitigating the Accuracy-Robustness Trade-off (Zhao et al., 2023), arXiv 2306.16170.
    """

    def __init__(
        self,
        weight_lr: float = 0.025,
        temperature_lr: float = 0.001,
        min_temperature: float = 1.0,
        max_temperature: float = 10.0,
    ):
        super().__init__()
        self.weight_lr = check.number(self, "weight_lr", weight_lr, 0.0)
        self.temperature_lr = check.number(self, "temperature_lr", temperature_lr, 0.0)
        self.min_temperature = check.number(self, "min_temperature", min_temperature, 0.0, open_low=True)
        self.max_temperature = check.number(self, "max_temperature", max_temperature, min_temperature)
        for side in SIDES:  # one axis: torch.compile does not move a float64 buffer without axes
            self.register_buffer(f"weight_{side}", torch.full((1,), 0.5))
            self.register_buffer(f"temperature_{side}", torch.ones(1))
            self.register_buffer(f"initial_{side}", torch.full((1,), torch.nan))

    def forward(self, student_adv: Tensor, student_nat: Tensor, teacher_adv: Tensor, teacher_nat: Tensor) -> Tensor:
        """Return the loss, a single number; in training move the balance."""
        outputs = {"student_adv": student_adv, "student_nat": student_nat}
        outputs |= {"teacher_adv": teacher_adv, "teacher_nat": teacher_nat}
        check.values(self, "student_adv", student_adv, (None, None), student_adv)
        for name, logits in outputs.items():
            check.values(self, name, logits, student_adv.shape, student_adv)
        with once(self):
            students, teachers = torch.stack([student_adv, student_nat]), torch.stack([teacher_adv, teacher_nat])
            weights, temperature = self._state("weight", students), self._state("temperature", students)
            losses, entropies = self._losses(accurate(students), accurate(teachers.detach()), temperature)
            if self.training:
                weights = self._balance(losses.detach(), entropies, weights, temperature)
        return (weights * losses).sum().to(student_adv.dtype)

    def _losses(self, student: Tensor, teacher: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        """The divergence from each teacher, and its negative entropy; (2,) both."""
        q = torch.softmax(teacher / temperature[:, None, None], 2)
        negative_entropy = q * (q + 1e-5).log()
        return (negative_entropy - q * torch.log_softmax(student, 2)).mean((1, 2)), negative_entropy.mean((1, 2))

    def _state(self, name: str, like: Tensor) -> Tensor:
        """Both sides of a state (2,), as they are now."""
        return torch.cat([snapshot(getattr(self, f"{name}_{side}")) for side in SIDES]).to(accurate(like).dtype)

    def _keep(self, name: str, values: Tensor) -> None:
        for side, value in zip(SIDES, values, strict=True):
            getattr(self, f"{name}_{side}").copy_(value)

    @torch.no_grad()
    def _balance(self, losses: Tensor, entropies: Tensor, weights: Tensor, temperature: Tensor) -> Tensor:
        spread = torch.nan_to_num(torch.sign(entropies / entropies.flip(0) - 1))
        temperature = temperature - self.temperature_lr * spread
        self._keep("temperature", temperature.clamp(self.min_temperature, self.max_temperature))
        initial = self._state("initial", losses)
        initial = torch.where(initial.isnan() & losses.isfinite(), losses, initial)
        relative = losses / initial
        share = relative / relative.sum()
        moved = (weights - self.weight_lr * (weights - share)).clamp(min=0)
        moved = moved / moved.sum()
        weights = torch.where(moved.isfinite().all(), moved, weights)
        self._keep("initial", initial)
        self._keep("weight", weights)
        return weights
