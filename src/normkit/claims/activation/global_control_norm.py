"""What LongVie claims of one normalization for a whole control video."""

import itertools
from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

STRIDE, CLIPS = 16, 4


def depths():
    """A static scene of smooth depth, seen by a camera that slowly comes nearer; its corner stays as it is."""
    frames = 1 + STRIDE * CLIPS
    scene = torch.nn.functional.avg_pool2d(randn(1, 1, 40, 40), 9, stride=1)[0, 0]
    scene = 5 + 10 * (scene - scene.min())
    video = scene / torch.linspace(1, 2, frames, dtype=torch.float64)[:, None, None]
    video[:, :4, :4] = scene[:4, :4]
    return video


def largest_jump(clips):
    """The largest jump of a static pixel from the last frame of a clip to the first of the next."""
    return max((after[0] - before[-1])[:4, :4].abs().max() for before, after in itertools.pairwise(clips))


def share(seed, whole=True):
    """The jump as a share of that of a normalization of each clip with the same percentiles."""
    video, norm = depths(), nk.GlobalControlNorm(stride=STRIDE)
    cut = [video[start : start + STRIDE + 1] for start in range(0, STRIDE * CLIPS, STRIDE)]
    own = norm.clips(video) if whole else [nk.GlobalControlNorm(low=0, high=100, stride=STRIDE)(clip) for clip in cut]
    return largest_jump(own) / largest_jump([norm(clip) for clip in cut])


CLAIMS = [
    Measured(
        "seams",
        says="One normalization for the whole video leaves a tenth at most of the jumps where clips meet.",
        measure=share,
        wanted=below(0.1),
        control=partial(share, whole=False),
        against="the least and largest value of each clip",
        number="share of the jump with percentiles of each clip",
        reach="proxy",
    )
]
