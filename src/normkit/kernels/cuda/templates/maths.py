"""Bounded functions and their slopes: the polynomials of `kernels/cpu/maths.h` near 0, and what is left of 1 elsewhere.

What is left comes from a GPU's own power of two, within 2^-22, and its quotient, within two units of the last place:
both make errors of what is smaller than the value. Everything else is as the interpreter shows it. NaN in gives NaN
out, infinities give the limits.
"""

from __future__ import annotations

import triton.language as tl

from normkit.kernels.cuda.templates.language import jit, over, root

ERF = tl.constexpr(0)
TANH = tl.constexpr(1)
ISRU = tl.constexpr(2)
ARCTAN = tl.constexpr(3)
EXPSIGN = tl.constexpr(4)
SATURSIN = tl.constexpr(5)
ELN = tl.constexpr(6)
HALF_PI = tl.constexpr(1.57079633)


@jit
def exp_within(x):
    """e^x for x in [-87, 80]; the caller keeps to it."""
    shifted = x * 1.44269504 + 12582912.0
    n = shifted - 12582912.0
    r = (x - n * 0.693359375) + n * 2.12194440e-4
    p = r * 0.00138146083 + 0.0083687103
    p = p * r + 0.0416683875
    p = p * r + 0.166665207
    p = p * r + 0.499999935
    p = p * (r * r) + r + 1.0
    return (p.to(tl.int32, bitcast=True) + (shifted.to(tl.int32, bitcast=True) << 23)).to(tl.float32, bitcast=True)


@jit
def exp_roughly(x):
    """e^x by the GPU's power of two: as exact as x times log2(e) is rounded."""
    return tl.exp2(x * 1.44269504)


@jit
def at_most(x, limit):
    """The smaller, NaN kept."""
    return tl.where(x > limit, limit, x)


@jit
def tanh_of(x):
    """tanh."""
    t = at_most(tl.abs(x), 9.1)
    s = t * t
    p = s * -0.00571702582 + 0.0206505685
    p = p * s - 0.0537434917
    p = p * s + 0.133314912
    p = p * s - 0.333332839
    small = t + t * (s * p)
    large = 1.0 - 2.0 / (tl.exp2(t * 2.88539008) + 1.0)
    y = tl.where(t < 0.625, small, large)
    return tl.where(x < 0, -y, y)


@jit
def erf_of(x):
    """erf."""
    t = at_most(tl.abs(x), 4.0)
    s = t * t
    p = s * 8.31013312e-05 - 0.000812906052
    p = p * s + 0.00519989091
    p = p * s - 0.0268589699
    p = p * s + 0.112836885
    p = p * s - 0.376126333
    p = p * s + 0.128379167
    small = t + t * p
    q = t * -2.10951629e-05 + 0.000434463848
    q = q * t - 0.00417106867
    q = q * t + 0.0251194414
    q = q * t - 0.10828011
    q = q * t - 0.633346889
    q = q * t - 1.12951494
    q = q * t + 0.000174686043
    y = tl.where(t < 0.93, small, 1.0 - exp_roughly(q))
    return tl.where(x < 0, -y, y)


@jit
def erf_slope(x):
    """2 / sqrt(pi) e^(-x^2)."""
    t = at_most(tl.abs(x), 9.3)
    return tl.where(t > 9.2, 0.0, 1.12837917 * exp_within(-t * t))


@jit
def arctan_of(x):
    """atan."""
    t = tl.abs(x)
    u = tl.where(t > 1.0, over(1.0, tl.where(t > 1.0, t, 1.0)), t)
    s = u * u
    p = s * 0.00113485568 - 0.00742252537
    p = p * s + 0.0227601044
    p = p * s - 0.0449461706
    p = p * s + 0.0675955283
    p = p * s - 0.0881883996
    p = p * s + 0.110602424
    p = p * s - 0.142801304
    p = p * s + 0.199996926
    p = p * s - 0.333333274
    a = u + u * (s * p)
    y = tl.where(t > 1.0, HALF_PI - a, a)
    return tl.where(x < 0, -y, y)


@jit
def expsign_of(x):
    """sign(x) (1 - e^(-|x|))."""
    t = at_most(tl.abs(x), 87.0)
    p = t * 0.000160247216 - 0.00136413716
    p = p * t + 0.00832528143
    p = p * t - 0.0416653322
    p = p * t + 0.166666565
    p = p * t - 0.499999997
    small = t + t * (t * p)
    y = tl.where(t < 0.5, small, 1.0 - exp_roughly(-t))
    return tl.where(x < 0, -y, y)


@jit
def sine_of(x):
    """The sine of x clipped to [-pi/2, pi/2]."""
    t = at_most(tl.abs(x), HALF_PI)
    s = t * t
    p = s * 2.60893183e-06 - 0.000198111123
    p = p * s + 0.00833308816
    p = p * s - 0.166666605
    y = t + t * (s * p)
    return tl.where(x < 0, -y, y)


@jit
def sine_slope(x):
    """Its slope: 0 where x is clipped, and at NaN, which a clip does not let through either."""
    t = tl.abs(x)
    s = t * t
    p = s * -2.60770989e-07 + 2.47618858e-05
    p = p * s - 0.00138884035
    p = p * s + 0.0416666407
    p = p * s - 0.499999995
    return tl.where(t <= HALF_PI, 1.0 + s * p, 0.0)


@jit
def value_and_slope(x, alpha, shift, FUNCTION: tl.constexpr):
    """f and its slope at u = alpha x + shift, NaN where f is; for ELN at x, its beta being alpha.

    The slope of ELN is (beta + x^2)^(-3/2), which serves x (times beta) and beta (times -x/2).
    """
    u = alpha * x + shift
    if FUNCTION == ERF:
        return erf_of(u), erf_slope(u)
    elif FUNCTION == TANH:
        v = tanh_of(u)
        return v, 1.0 - v * v
    elif FUNCTION == ISRU:
        q = over(1.0, root(u * u + 1.0))
        v = u * q
        return v, q * q * q + 0.0 * v
    elif FUNCTION == ARCTAN:
        return 0.636619772 * arctan_of(u), over(0.636619772, 1.0 + u * u)
    elif FUNCTION == EXPSIGN:
        v = expsign_of(u)
        return v, tl.where(u == 0, 0.0, 1.0 - tl.abs(v))
    elif FUNCTION == SATURSIN:
        return sine_of(u), sine_slope(u)
    else:
        q = over(1.0, root(alpha + x * x))
        v = x * q
        return v, q * q * q + 0.0 * v
