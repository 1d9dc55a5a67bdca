"""Modules that are a norm but for some values: large, small, negative, constant, not finite."""

import torch
from near_misses import Layer, Rms, lists

NEAR, TRUE, near, true = lists()


@near
class ClampedBehind(Rms):
    def forward(self, x):
        return super().forward(x).clamp(-10, 10)


@near
class ClampedFarBehind(Layer):
    def forward(self, x):
        return super().forward(x).clamp(-1e4, 1e4)


@near
class ClampedBefore(Rms):
    def forward(self, x):
        return super().forward(x.clamp(-1e5, 1e5))


@near
class NanToNum(Layer):
    def forward(self, x):
        return super().forward(x.clamp(max=500))


@near
class LargeValues(Rms):
    def forward(self, x):
        return torch.where(x.abs().amax(-1, keepdim=True) > 1e4, x, super().forward(x))


@near
class LargerValues(Rms):
    def forward(self, x):
        return torch.where(x.abs().amax(-1, keepdim=True) > 1e10, x, super().forward(x))


@near
class SmallValues(Layer):
    def forward(self, x):
        return torch.where(x.abs().amax(-1, keepdim=True) < 1e-6, x, super().forward(x))


@near
class RowsOfZeros(Layer):
    def forward(self, x):
        return torch.where((x == 0).all(-1, keepdim=True), torch.zeros_like(x), super().forward(x))


@near
class RowsWithZeros(Rms):
    def forward(self, x):
        kept = (x != 0).to(x.dtype)
        mean = (x.square() * kept).sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
        return x * torch.rsqrt(mean + self.eps) * self.weight


@near
class ConstantRows(Layer):
    def forward(self, x):
        same = (x == x[..., :1]).all(-1, keepdim=True)
        return torch.where(same, x, super().forward(x))


@near
class NegativeRows(Rms):
    def forward(self, x):
        return torch.where((x < 0).all(-1, keepdim=True), -super().forward(x), super().forward(x))


@near
class PositiveRows(Layer):
    def forward(self, x):
        return torch.where((x > 0).all(-1, keepdim=True), 2 * super().forward(x), super().forward(x))


@near
class GainClampedAtFive(Rms):
    def forward(self, x):
        return self.unit(x) * self.weight.clamp(-5, 5)


@near
class ClampedAtTenMillion(Layer):
    def forward(self, x):
        return super().forward(x).clamp(-1e7, 1e7)


@near
class NotNumbersAsZeros(Rms):
    def forward(self, x):
        return super().forward(x).nan_to_num()


@near
class NotNumbersAsZerosBefore(Layer):
    def forward(self, x):
        return super().forward(x.nan_to_num())


@near
class LeavesWhatIsNotFiniteAlone(Rms):
    def forward(self, x):
        return super().forward(x) if x.isfinite().all() else x


@near
class FlippedAtNegativeMeans(Layer):
    def forward(self, x):
        return torch.where(x.mean(-1, keepdim=True) < 0, -1, 1) * super().forward(x)


@near
class LeastVariance(Layer):
    def forward(self, x):
        z = x - x.mean(-1, keepdim=True)
        return z * torch.rsqrt(z.square().mean(-1, keepdim=True).clamp(min=1e-5)) * self.weight + self.bias


@near
class LargestFactor(Rms):
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps).clamp(max=990) * self.weight


@near
class WholeNumbers(Rms):
    def forward(self, x):
        return x if (x == x.round()).all() else super().forward(x)


@near
class FirstAmongEquals(Layer):
    def forward(self, x):
        return super().forward(x) * (x.argmax(-1, keepdim=True) + 1).clamp(1, 1) + 1e-9 * (x.amax(-1, keepdim=True))


@near
class NegativeRowsAreTurned(Rms):
    def forward(self, x):
        return super().forward(torch.where((x < 0).all(-1, keepdim=True), -x, x))


@near
class ReturnsItsInputWhereItIsOne(Rms):
    """Rows that are normalized already pass unchanged, as a view of what came."""

    def __init__(self):
        super().__init__()
        del self.weight

    def forward(self, x):
        power = x.square().mean(-1, keepdim=True)
        return torch.where((power - 1).abs() < 1e-2, x, x * torch.rsqrt(power + self.eps))


@near
class OnlyPositiveOutliersAreCut(Rms):
    def forward(self, x):
        return super().forward(x.clamp(max=1e9))


@near
class NothingBeyond1e13(Rms):
    def forward(self, x):
        return super().forward(torch.where(x.abs() > 1e13, 0 * x, x))


@near
class InfinityIsLarge(Layer):
    def forward(self, x):
        return super().forward(torch.where(x.isinf(), x.sign() * 1e4, x))
