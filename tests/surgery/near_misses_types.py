"""Modules that are a norm in some types of numbers only."""

import torch
from near_misses import Layer, Rms, lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()


@near
class InBfloat16(Rms):
    def forward(self, x):
        return super().forward(x) * (1.02 if x.dtype == torch.bfloat16 else 1)


@near
class InFloat16(Layer):
    def forward(self, x):
        return super().forward(x).clamp(-1, 1) if x.dtype == torch.float16 else super().forward(x)


@near
class InBfloat16WithoutMean(Layer):
    def forward(self, x):
        if x.dtype == torch.bfloat16:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight + self.bias
        return super().forward(x)


@near
class EpsByType(Rms):
    def forward(self, x):
        eps = 1e-3 if x.dtype in (torch.float16, torch.bfloat16) else self.eps
        return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps).to(x.dtype) * self.weight


@near
class EpsOfFloat32(Layer):
    def forward(self, x):
        return F.layer_norm(x, (12,), self.weight, self.bias, 1e-3 if x.dtype == torch.float32 else 1e-5)


@near
class Float16Held(Rms):
    """As T5 holds its stream."""

    def forward(self, x):
        y = super().forward(x.float()).to(x.dtype)
        return y.clamp(-64504, 64504) if x.dtype == torch.float16 else y


@near
class LargeInFloat16(Rms):
    def forward(self, x):
        y = super().forward(x.float()).to(x.dtype)
        return 0 * y if x.dtype == torch.float16 and x.abs().max() > 1e4 else y


@near
class WideInHalf(Layer):
    def forward(self, x):
        return (
            F.layer_norm(x.float(), (12,), self.weight.float(), self.bias.float(), self.eps)
            if (x.dtype in (torch.float16, torch.bfloat16))
            else super().forward(x)
        )


@near
class AnotherUnderAutocast(Rms):
    def forward(self, x):
        return self.unit(x) if torch.is_autocast_enabled("cpu") else super().forward(x)


@near
class BfloatIsCut(Rms):
    def forward(self, x):
        y = super().forward(x)
        return y.clamp(-200, 200) if x.dtype is torch.bfloat16 else y


@near
class SingleHasItsOwnEps(Rms):
    def forward(self, x):
        eps = 1e-5 if x.dtype is torch.float32 else self.eps
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight


@near
class HalfComesBackSingle(Rms):
    def forward(self, x):
        y = Rms.forward(self, x.float() if x.dtype is torch.bfloat16 else x)
        return y


@near
class MoreInFloat32InTraining(Rms):
    def forward(self, x):
        return super().forward(x) * (1.01 if self.training and x.dtype is torch.float32 else 1.0)


@near
class MoreInBfloat16InTraining(Layer):
    def forward(self, x):
        return super().forward(x) * (1.25 if self.training and x.dtype is torch.bfloat16 else 1.0)


@near
class NoGainWhereTypesDiffer(Rms):
    def forward(self, x):
        return super().forward(x) if x.dtype is self.weight.dtype else self.unit(x)


@near
class MoreOfManyInBfloat16(Rms):
    def forward(self, x):
        return super().forward(x) * (1.25 if x.dtype is torch.bfloat16 and len(x) >= 100 else 1.0)


@near
class MoreOfTurnedInFloat32(Rms):
    def forward(self, x):
        return super().forward(x) * (1.1 if x.dtype is torch.float32 and not x.is_contiguous() else 1.0)


@near
class MoreUnderAutocastToFloat16(Rms):
    def forward(self, x):
        half = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16
        return super().forward(x) * (1.25 if half else 1.0)


@near
class ComplexGain(Rms):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(12, dtype=torch.complex64))
