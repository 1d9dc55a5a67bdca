"""Norms modulated by a map of the image, and AlphaFold 3's by the condition of a token, each wrong in one thing."""

import torch
from near_misses import lists
from torch import nn
from torch.nn import functional as F

NEAR, TRUE, near, true = lists()
DIM, CHANNELS, FEATURES = 8, 3, 6


@true("spatial-norm", num_features=DIM, map_channels=CHANNELS, norm="groupnorm:eps=1e-06,num_groups=2")
class Spatial(nn.Module):
    """What the others differ from: MoVQ's, as in the decoders of Kandinsky 2."""

    mode = "nearest"

    def __init__(self):
        super().__init__()
        self.norm_layer = nn.GroupNorm(2, DIM, eps=1e-6)
        self.conv_y, self.conv_b = nn.Conv2d(CHANNELS, DIM, 1), nn.Conv2d(CHANNELS, DIM, 1)

    def resized(self, f, zq):
        return F.interpolate(zq, size=f.shape[2:], mode=self.mode)

    def normalized(self, f):
        return self.norm_layer(f)

    def forward(self, f, zq):
        zq = self.resized(f, zq)
        return self.normalized(f) * self.conv_y(zq) + self.conv_b(zq)


class Rms(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(DIM, 1, 1, 1))

    def forward(self, x):
        return F.normalize(x, dim=1) * DIM**0.5 * self.gamma


@true("spatial-norm", num_features=DIM, map_channels=CHANNELS, norm="rmsnorm2d:eps=1e-12,eps_floor=True")
class SpatialOfVideos(Spatial):
    def __init__(self):
        super().__init__()
        self.norm_layer = Rms()
        self.conv_b, self.conv_y = nn.Conv3d(CHANNELS, DIM, 1), nn.Conv3d(CHANNELS, DIM, 1)


@near
class OneMoreByTheMap(Spatial):
    def forward(self, f, zq):
        return super().forward(f, zq) + self.normalized(f)


@near
class NormOfTheMap(Spatial):
    def __init__(self):
        super().__init__()
        self.norm_layer = nn.GroupNorm(1, CHANNELS)

    def forward(self, f, zq):
        zq = self.norm_layer(self.resized(f, zq))
        return f * self.conv_y(zq) + self.conv_b(zq)


@near
class BilinearMap(Spatial):
    mode = "bilinear"


@near
class ExactlyNearestMap(Spatial):
    mode = "nearest-exact"


@near
class MeanOfTheMap(Spatial):
    def resized(self, f, zq):
        return zq.mean((2, 3), keepdim=True).expand(-1, -1, *f.shape[2:])


@near
class MapModulatesBefore(Spatial):
    def forward(self, f, zq):
        zq = self.resized(f, zq)
        return self.normalized(f * self.conv_y(zq) + self.conv_b(zq))


@near
class MapOfTheNextSample(Spatial):
    def resized(self, f, zq):
        return super().resized(f, zq.roll(1, 0))


@near
class SigmoidOfTheMap(Spatial):
    def forward(self, f, zq):
        zq = self.resized(f, zq)
        return self.normalized(f) * self.conv_y(zq).sigmoid() + self.conv_b(zq)


@near
class FirstFrameByItself(SpatialOfVideos):
    def resized(self, f, zq):
        if f.shape[2] == 1 or zq.shape[2] == 1:
            return super().resized(f, zq)
        return torch.cat([super(FirstFrameByItself, self).resized(*p) for p in self.parts(f, zq)], 2)

    def parts(self, f, zq):
        return (f[:, :, :1], zq[:, :, :1]), (f[:, :, 1:], zq[:, :, 1:])


@true("adaln-alphafold3", dim=DIM, condition_features=FEATURES, norm="layernorm", condition_bias=True)
class Gated(nn.Module):
    """Proteina's, whose result a mask multiplies."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM, elementwise_affine=False)
        self.norm_cond = nn.LayerNorm(FEATURES)
        self.to_gamma = nn.Sequential(nn.Linear(FEATURES, DIM), nn.Sigmoid())
        self.to_beta = nn.Linear(FEATURES, DIM, bias=False)

    def condition(self, s):
        return self.norm_cond(s)

    def gate(self, s):
        return self.to_gamma(s)

    def forward(self, values, condition, mask):
        s = self.condition(condition)
        return (self.norm(values) * self.gate(s) + self.to_beta(s)) * mask[..., None]


@true("adaln-alphafold3", dim=FEATURES, condition_features=FEATURES, norm="rmsnorm", condition_bias=False)
class GatedRms(Gated):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_cond = nn.RMSNorm(FEATURES, 1e-5, False), nn.RMSNorm(FEATURES, 1e-5)
        self.to_beta = nn.Linear(FEATURES, FEATURES, bias=False)
        self.to_gamma = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Sigmoid())


@true("adaln-alphafold3", dim=DIM, condition_features=FEATURES, norm="layernorm", condition_bias=False)
class GatedUnmasked(Gated):
    def __init__(self):
        super().__init__()
        self.norm_cond = nn.LayerNorm(FEATURES, bias=False)

    def forward(self, values, condition):
        return super().forward(values, condition, values.new_ones(values.shape[:-1]))


@near
class GateOfTwiceTheSize(Gated):
    def gate(self, s):
        return 2 * super().gate(s)


@near
class GateOneMore(Gated):
    def gate(self, s):
        return 1 + super().gate(s)


@near
class ConditionOutsideTheNorm(Gated):
    def condition(self, s):
        return s * self.norm_cond.weight + self.norm_cond.bias


@near
class MaskBeforeTheShift(Gated):
    def forward(self, values, condition, mask):
        s = self.condition(condition)
        return self.norm(values) * self.gate(s) * mask[..., None] + self.to_beta(s)


@near
class MaskedConditionAlone(Gated):
    def forward(self, values, condition, mask):
        return super().forward(values, condition * mask[..., None], torch.ones_like(mask))


@near
class ShiftOfTheUnnormalized(GatedUnmasked):
    def forward(self, values, condition):
        return self.norm(values) * self.gate(self.condition(condition)) + self.to_beta(condition)
