"""Corruptions of images, signals and text, of severity 1 to 5.

Each is a function of samples, a severity and a generator of random numbers, and returns new samples of the same shape.
Images are floats (N, C, H, W), signals (N, C, L); text is bytes (N, T), int64. A signal has no color: where an image
is tinted, it drifts.

>>> x = torch.arange(12.0).view(1, 1, 3, 4)
>>> contrast(x, 5, torch.Generator())[0, 0, 0]
tensor([4.6750, 4.8250, 4.9750, 5.1250])
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Corruption = Callable[[Tensor, int, torch.Generator], Tensor]
SEVERITIES = range(1, 6)
NOISE = (0.2, 0.4, 0.6, 0.8, 1.0)  # its deviation, as a share of the data's
CONTRAST = (0.75, 0.6, 0.45, 0.3, 0.15)  # what is left of it
TINT = (0.25, 0.5, 0.75, 1.0, 1.5)  # deviations of the data that a channel moves by
SHIFT = 16  # a side is moved by severity / 16 of its length, rounded up
BOX = (0.2, 0.3, 0.4, 0.5, 0.6)  # sides of what is hidden, as shares of the image's
MOVED = (0.2, 0.4, 0.6, 0.8, 1.0)  # the share of pixels that jitter exchanges for a neighbour
DRIFT = (0.25, 0.5, 0.75, 1.0, 1.5)  # how far the level of a signal drifts, in deviations of the data
STRETCH = (1.1, 1.2, 1.3, 1.4, 1.5)  # how many times faster or slower a signal runs
RATES = (0.02, 0.05, 0.1, 0.2, 0.4)  # the share of letters that are changed
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # of a keyboard


def noise(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Add Gaussian noise."""
    return x + NOISE[severity - 1] * x.std() * torch.randn(x.shape, generator=g).to(x)


def blur(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Average each pixel with its neighbours, ``severity`` times with weights 1, 2, 1 along each axis."""
    for _ in range(severity):
        for axis in _space(x):
            size = x.shape[axis]
            at = torch.arange(size, device=x.device)
            before, after = (x.index_select(axis, (at + step).clamp(0, size - 1)) for step in (-1, 1))
            x = (before + 2 * x + after) / 4
    return x


def contrast(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Bring each sample nearer to its own mean."""
    mean = x.mean((1, *_space(x)), keepdim=True)
    return mean + CONTRAST[severity - 1] * (x - mean)


def tint(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Make the first channel brighter, the second darker, and so on in turn."""
    sign = 1.0 - 2 * (torch.arange(x.shape[1]) % 2)
    return x + TINT[severity - 1] * x.std() * sign.view(-1, *(1 for _ in _space(x))).to(x)


def translation(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Move each sample along every axis, one way or the other; its edge is repeated."""
    for axis in _space(x):
        size = x.shape[axis]
        step = math.ceil(severity * size / SHIFT)
        way = 2 * torch.randint(2, (len(x), 1), generator=g) - 1
        at = (torch.arange(size) + step * way).clamp(0, size - 1).to(x.device)
        x = x.gather(axis, _along(at, axis, x).expand_as(x))
    return x


def occlusion(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Hide a box of each sample behind the sample's mean."""
    hidden = torch.ones(1, dtype=torch.bool, device=x.device)
    for axis in _space(x):
        size = x.shape[axis]
        side = max(1, round(BOX[severity - 1] * size))
        first = torch.randint(size - side + 1, (len(x), 1), generator=g)
        at = torch.arange(size)
        hidden = hidden & _along(((at >= first) & (at < first + side)).to(x.device), axis, x)
    return torch.where(hidden, x.mean((1, *_space(x)), keepdim=True), x)


def jitter(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Let some pixels show their neighbour's value, one step away along each axis."""
    shape = (len(x), 1, *x.shape[2:])
    moved = torch.rand(shape, generator=g) < MOVED[severity - 1]
    flat, index = x.flatten(2), torch.zeros(shape, dtype=torch.int64)
    for axis in _space(x):
        size = x.shape[axis]
        step = moved * (torch.randint(3, shape, generator=g) - 1)
        place = _along(torch.arange(size).unsqueeze(0), axis, x)
        index = index * size + (place + step).clamp(0, size - 1)
    return flat.gather(2, index.flatten(2).to(x.device).expand_as(flat)).view_as(x)


def drift(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Let the level of each signal rise and fall once along it, from a random place on."""
    turn = torch.arange(x.shape[-1]) / x.shape[-1] + torch.rand((len(x), 1, 1), generator=g)
    return x + DRIFT[severity - 1] * x.std() * torch.sin(2 * math.pi * turn).to(x)


def stretch(x: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Play each signal faster or slower about its middle, by linear interpolation; its edge is repeated."""
    size, factor = x.shape[-1], STRETCH[severity - 1]
    speed = torch.where(torch.rand((len(x), 1, 1), generator=g) < 0.5, factor, 1 / factor)
    middle = (size - 1) / 2
    at = (middle + (torch.arange(size) - middle) * speed).clamp(0, size - 1)
    first = at.long().clamp(max=size - 2)
    low, high = (x.gather(2, (first + step).to(x.device).expand_as(x)) for step in (0, 1))
    return torch.lerp(low, high, (at - first).to(x))


def typos(tokens: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Exchange letters with the letter behind them."""
    letter = _letters(tokens)
    first = _draw_places(tokens, severity, g)
    first[:, :-1] &= letter[:, 1:]
    first[:, -1] = False
    for place in range(1, first.shape[1]):  # a letter that has moved does not move again
        first[:, place] &= ~first[:, place - 1]
    second = first.roll(1, 1)
    return torch.where(first, tokens.roll(-1, 1), torch.where(second, tokens.roll(1, 1), tokens))


def case(tokens: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Write small letters large and large ones small."""
    return torch.where(_draw_places(tokens, severity, g), tokens ^ 32, tokens)


def keyboards(tokens: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Hit the key to the left or right of the right one, on a keyboard that begins with q w e r t y."""
    places = _draw_places(tokens, severity, g)
    left, right = (_neighbours(step).to(tokens.device)[tokens.clamp(0, 127)] for step in (-1, 1))
    other = torch.where((torch.rand(tokens.shape, generator=g) < 0.5).to(tokens.device), left, right)
    return torch.where(places, other, tokens)


IMAGES: dict[str, Corruption] = {
    "noise": noise,
    "blur": blur,
    "contrast": contrast,
    "tint": tint,
    "translation": translation,
    "occlusion": occlusion,
    "jitter": jitter,
}
SIGNALS: dict[str, Corruption] = {
    **{name: corruption for name, corruption in IMAGES.items() if name != "tint"},
    "drift": drift,
    "stretch": stretch,
}
TEXT: dict[str, Corruption] = {"typos": typos, "case": case, "keyboards": keyboards}


def _space(x: Tensor) -> range:
    return range(2, x.dim())


def _along(at: Tensor, axis: int, x: Tensor) -> Tensor:
    """Bring a table (N, size) to the shape of ``x``, with its columns along an axis."""
    return at.view(len(at), *(at.shape[1] if place == axis else 1 for place in range(1, x.dim())))


def _draw_places(tokens: Tensor, severity: int, g: torch.Generator) -> Tensor:
    """Draw which letters are changed."""
    return (torch.rand(tokens.shape, generator=g) < RATES[severity - 1]).to(tokens.device) & _letters(tokens)


def _letters(tokens: Tensor) -> Tensor:
    low = tokens | 32
    return (low >= ord("a")) & (low <= ord("z"))


def _neighbours(step: int) -> Tensor:
    """Return for each of 128 bytes the key beside it; at the end of a row, the last but one."""
    table = torch.arange(128)
    for row in ROWS:
        for place, key in enumerate(row):
            other = place + step
            other = other if 0 <= other < len(row) else place - step
            for base in (0, 32):  # small letters and large ones
                table[ord(key) - base] = ord(row[other]) - base
    return table
