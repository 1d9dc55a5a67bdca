/* Float functions that the compiler can vectorize: no branches, no calls, at most about two units in the last place.
 *
 * NaN in gives NaN out, infinities give the limits, odd functions are odd to the bit. The coefficients are minimax fits made
 * for this file (Lawson's iteration in float64); the tests measure the error of every function.
 */
#ifndef MATHS_H
#define MATHS_H

#include <float.h>
#include <math.h>
#include "convert.h"

/* The exp that glibc has had from the start: its newer one would ask for glibc 2.29, and the wheel's Linux is 2.28. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver exp, exp@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver exp, exp@GLIBC_2.17");
#endif

static inline float with_sign(float magnitude, float sign)
{
    return float_of((bits_of(magnitude) & 0x7fffffffu) | (bits_of(sign) & 0x80000000u));
}

/* e^x for x in [-87, 80]; the caller keeps to it. */
static inline float exp_within(float x)
{
    float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.00138146083f;
    p = p * r + 0.0083687103f;
    p = p * r + 0.0416683875f;
    p = p * r + 0.166665207f;
    p = p * r + 0.499999935f;
    p = p * (r * r) + r + 1.0f;
    return float_of(bits_of(p) + (bits_of(shifted) << 23));
}

/* The sign bit of a NaN argument would be lost by the comparisons below if they were written the other way round. */
static inline float at_most(float x, float limit) { return x > limit ? limit : x; }

static inline float tanh_of(float x)
{
    float t = at_most(fabsf(x), 9.1f), s = t * t;
    float p = -0.00571702582f;
    p = p * s + 0.0206505685f;
    p = p * s - 0.0537434917f;
    p = p * s + 0.133314912f;
    p = p * s - 0.333332839f;
    float small = t + t * (s * p);
    float large = 1.0f - 2.0f / (exp_within(2.0f * t) + 1.0f);
    return with_sign(t < 0.625f ? small : large, x);
}

static inline float erf_of(float x)
{
    float t = at_most(fabsf(x), 4.0f), s = t * t;
    float p = 8.31013312e-05f;
    p = p * s - 0.000812906052f;
    p = p * s + 0.00519989091f;
    p = p * s - 0.0268589699f;
    p = p * s + 0.112836885f;
    p = p * s - 0.376126333f;
    p = p * s + 0.128379167f;
    float small = t + t * p;
    float q = -2.10951629e-05f;
    q = q * t + 0.000434463848f;
    q = q * t - 0.00417106867f;
    q = q * t + 0.0251194414f;
    q = q * t - 0.10828011f;
    q = q * t - 0.633346889f;
    q = q * t - 1.12951494f;
    q = q * t + 0.000174686043f;
    float large = 1.0f - exp_within(q);
    return with_sign(t < 0.93f ? small : large, x);
}

/* erf'(x) = 2 / sqrt(pi) e^(-x^2); the square's rounding error is carried, else it would be x^2 units in the last place. */
static inline float erf_slope(float x)
{
    float t = at_most(fabsf(x), 9.3f);
    return t > 9.2f ? 0.0f : 1.12837917f * exp_within(-t * t);
}

static inline float arctan_of(float x)
{
    float t = fabsf(x), u = t > 1.0f ? 1.0f / t : t, s = u * u;
    float p = 0.00113485568f;
    p = p * s - 0.00742252537f;
    p = p * s + 0.0227601044f;
    p = p * s - 0.0449461706f;
    p = p * s + 0.0675955283f;
    p = p * s - 0.0881883996f;
    p = p * s + 0.110602424f;
    p = p * s - 0.142801304f;
    p = p * s + 0.199996926f;
    p = p * s - 0.333333274f;
    float a = u + u * (s * p);
    return with_sign(t > 1.0f ? 1.57079633f - a : a, x);
}

/* 1 - e^(-|x|), and e^(-|x|) beside it. */
static inline float expsign_of(float x)
{
    float t = at_most(fabsf(x), 87.0f);
    float p = 0.000160247216f;
    p = p * t - 0.00136413716f;
    p = p * t + 0.00832528143f;
    p = p * t - 0.0416653322f;
    p = p * t + 0.166666565f;
    p = p * t - 0.499999997f;
    float small = t + t * (t * p);
    return with_sign(t < 0.5f ? small : 1.0f - exp_within(-t), x);
}

static inline float sine_of(float x)
{
    float t = at_most(fabsf(x), 1.57079633f), s = t * t;
    float p = 2.60893183e-06f;
    p = p * s - 0.000198111123f;
    p = p * s + 0.00833308816f;
    p = p * s - 0.166666605f;
    return with_sign(t + t * (s * p), x);
}

/* Zero outside [-pi/2, pi/2], where the argument of the sine is clipped, and at NaN, which a clip does not let through either. */
static inline float sine_slope(float x)
{
    float t = fabsf(x), s = t * t;
    float p = -2.60770989e-07f;
    p = p * s + 2.47618858e-05f;
    p = p * s - 0.00138884035f;
    p = p * s + 0.0416666407f;
    p = p * s - 0.499999995f;
    return t <= 1.57079633f ? 1.0f + s * p : 0.0f;
}

#endif
