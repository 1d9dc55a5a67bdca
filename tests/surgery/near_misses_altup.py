"""Modules that are almost Gemma 3n's AltUp or its LAuReL, each wrong in one thing."""

import torch
from near_misses import Rms, lists
from torch import nn

NEAR, TRUE, near, true = lists()
DIM, STREAMS, RANK = 10, 3, 4


@true("altup", dim=DIM, streams=STREAMS, norm="rmsnorm:cast=native")
class Updates(nn.Module):
    """Gemma 3n's, with the streams on the first axis."""

    active, clip = 0, 120.0

    def __init__(self):
        super().__init__()
        n = STREAMS
        self.correct_output_scale = nn.Parameter(torch.zeros(DIM))
        self.correction_coefs = nn.Linear(n, n, bias=False)
        self.prediction_coefs = nn.Linear(n, n * n, bias=False)
        self.modality_router = nn.Linear(DIM, n, bias=False)
        self.router_norm = Rms(DIM)
        self.router_input_scale = nn.Buffer(torch.tensor(1 / DIM), persistent=False)

    def routed(self, x):
        return torch.tanh(self.modality_router(self.router_norm(x) * self.router_input_scale))

    def mixing(self, weights):
        return weights.unflatten(-1, (STREAMS, STREAMS))

    def predict(self, streams):
        if self.training:
            self.prediction_coefs.weight.data.clamp_(-self.clip, self.clip)
        mixing = self.mixing(self.prediction_coefs(self.routed(streams[self.active])))
        return torch.einsum("...st,t...d->s...d", mixing, streams) + streams

    def gain(self, x):
        return 1 + self.correction_coefs(self.routed(x))

    def correct(self, predicted, x):
        error = x - predicted[self.active]
        return predicted + self.gain(x).movedim(-1, 0).unsqueeze(-1) * error

    def forward(self, corrected):
        return corrected * self.correct_output_scale


@near
class OfTheSecondStream(Updates):
    active = 1


@near
class ClippedInTraining(Updates):
    clip = 0.1


@near
class ColumnsForRows(Updates):
    def mixing(self, weights):
        return super().mixing(weights).mT


@near
class CorrectedWithoutTheOne(Updates):
    def gain(self, x):
        return super().gain(x) - 1


@near
class RoutedBySigmoid(Updates):
    def routed(self, x):
        return torch.sigmoid(self.modality_router(self.router_norm(x) * self.router_input_scale))


@near
class RoutedByTheRoot(Updates):
    def routed(self, x):
        return torch.tanh(self.modality_router(self.router_norm(x)) * DIM**-0.5)


@near
class RoutedWithoutNorm(Updates):
    def routed(self, x):
        return torch.tanh(self.modality_router(x * self.router_norm.weight) / DIM)


@near
class PredictedAlone(Updates):
    def predict(self, streams):
        return super().predict(streams) - streams


@near
class CorrectedByThePrediction(Updates):
    def correct(self, predicted, x):
        error = x - predicted[self.active]
        return predicted + self.gain(predicted[self.active]).movedim(-1, 0).unsqueeze(-1) * error


@near
class OneMoreOfTheScale(Updates):
    def forward(self, corrected):
        return corrected * (1 + self.correct_output_scale)


@near
class NormOfTheRoutes(Updates):
    def __init__(self):
        super().__init__()
        self.router_norm = Rms(STREAMS)

    def routed(self, x):
        return torch.tanh(self.router_norm(self.modality_router(x)))


@true("laurel", dim=DIM, rank=RANK, norm="rmsnorm:cast=native")
class LowRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_left, self.linear_right = nn.Linear(DIM, RANK, bias=False), nn.Linear(RANK, DIM, bias=False)
        self.post_laurel_norm = Rms(DIM)

    def thin(self, x):
        return self.linear_right(self.linear_left(x))

    def forward(self, x):
        return x + self.post_laurel_norm(self.thin(x))


@near
class ReluBetween(LowRank):
    def thin(self, x):
        return self.linear_right(self.linear_left(x).relu())


@near
class NormOfTheSum(LowRank):
    def forward(self, x):
        return self.post_laurel_norm(x + self.thin(x))


@near
class NormInFront(LowRank):
    def forward(self, x):
        return x + self.thin(self.post_laurel_norm(x))


@near
class WithoutTheSkip(LowRank):
    def forward(self, x):
        return super().forward(x) - x


@near
class HalvedByTheRoot(LowRank):
    def forward(self, x):
        return super().forward(x) * 0.5**0.5


@near
class DroppedInTraining(LowRank):
    def thin(self, x):
        return super().thin(x) * (0.5 if self.training else 1)


@near
class EpsOfTheRoot(LowRank):
    def forward(self, x):
        made = self.thin(x)
        return x + made / (made.square().mean(-1, keepdim=True).sqrt() + 1e-2) * self.post_laurel_norm.weight


@near
class LateTokensUnmapped(LowRank):
    def forward(self, x):
        return torch.cat([super().forward(x[:, :9]), x[:, 9:]], 1)


@near
class NormOfTheRank(LowRank):
    def __init__(self):
        super().__init__()
        self.post_laurel_norm = Rms(RANK)

    def forward(self, x):
        return x + self.linear_right(self.post_laurel_norm(self.linear_left(x)))


@near
class FeedforwardBehindANorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Rms(DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM, bias=False), nn.Linear(4 * DIM, DIM, bias=False)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())
