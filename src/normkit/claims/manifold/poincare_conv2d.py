"""What the convolution of Poincaré ResNet is said to be."""

import normkit as nk
from normkit.claims.kinds import Identity
from normkit.claims.measures import gap, randn, randomized


def apart(seed, kernel_size=1):
    """How far it is from a Poincaré linear layer at every pixel."""
    convolution = randomized(nk.PoincareConv2d(4, 6, kernel_size, padding=kernel_size // 2), 0.2)
    linear = nk.PoincareLinear(4, 6).double()
    middle = slice(kernel_size**2 // 2, None, kernel_size**2)
    linear.weight.data, linear.bias.data = convolution.weight.data[middle], convolution.bias.data
    x = 0.1 * randn(2, 4, 5, 5)
    return gap(convolution(x), linear(x.movedim(1, -1)).movedim(-1, 1))


def wide(seed):
    """The same of a kernel of 3 by 3, by its tap in the middle."""
    return apart(seed, kernel_size=3)


CLAIMS = [
    Identity(
        "pixel-by-pixel",
        says="With a kernel of 1 by 1 it is the Poincaré linear layer at every pixel.",
        measure=apart,
        bound=1e-10,
        breaks=wide,
        against="a kernel of 3 by 3",
    )
]
