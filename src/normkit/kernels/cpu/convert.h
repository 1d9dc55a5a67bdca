/* Element types: blocks of bfloat16, float16, float or double to and from the type of the arithmetic. */
#ifndef CONVERT_H
#define CONVERT_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif
#include "normkit.h"

static inline uint32_t bits_of(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
static inline float float_of(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }

static inline float from_bf16(uint16_t half) { return float_of((uint32_t)half << 16); }

/* Round to nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t to_bf16(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/* The exponent is moved by a multiplication, which also makes subnormal halves right. */
static inline float from_f16(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t normal = bits_of(float_of(magnitude << 13) * 0x1p112f), special = (magnitude << 13) | 0x7f800000u;
    return float_of((magnitude >= 0x7c00u ? special : normal) | sign);
}

static inline uint16_t to_f16(float value)
{
    uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t half = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? subnormal : normal;
    return (uint16_t)(half | sign);
}

static inline void widen_bf16(const uint16_t *restrict from, float *restrict to, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = from_bf16(from[i]);
}

static inline void narrow_bf16(const float *restrict from, uint16_t *restrict to, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) to[i] = to_bf16(from[i]);
}

/* Compilers of today do not vectorize the processor's own conversion, hence the intrinsics. */
static inline void widen_f16(const uint16_t *restrict from, float *restrict to, int n)
{
    int i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + i))));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + i))));
#endif
    for (; i < n; i++) to[i] = from_f16(from[i]);
}

static inline void narrow_f16(const float *restrict from, uint16_t *restrict to, int n)
{
    int i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) _mm256_storeu_si256((void *)(to + i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), 0));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((void *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), 0));
#endif
    for (; i < n; i++) to[i] = to_f16(from[i]);
}

/* Entry i of an array of any type. */
static inline double element(int type, const void *array, int64_t i)
{
    switch (type) {
    case F32: return ((const float *)array)[i];
    case F64: return ((const double *)array)[i];
    case BF16: return from_bf16(((const uint16_t *)array)[i]);
    default: return from_f16(((const uint16_t *)array)[i]);
    }
}

/* Writes one number as any type, rounding once (a double goes to a half by way of float: the sums written here carry more
 * error than that second rounding). */
static inline void put_element(int type, void *array, int64_t i, double value)
{
    switch (type) {
    case F32: ((float *)array)[i] = (float)value; break;
    case F64: ((double *)array)[i] = value; break;
    case BF16: ((uint16_t *)array)[i] = to_bf16((float)value); break;
    default: ((uint16_t *)array)[i] = to_f16((float)value);
    }
}

/* The same for n numbers from index i on. */
static inline void put_elements(int type, void *array, int64_t i, const double *values, int64_t n)
{
    uint16_t *half = (uint16_t *)array + i;
    switch (type) {
    case F32: for (int64_t k = 0; k < n; k++) ((float *)array)[i + k] = (float)values[k]; break;
    case F64: for (int64_t k = 0; k < n; k++) ((double *)array)[i + k] = values[k]; break;
    case BF16: for (int64_t k = 0; k < n; k++) half[k] = to_bf16((float)values[k]); break;
    default: for (int64_t k = 0; k < n; k++) half[k] = to_f16((float)values[k]);
    }
}

#endif
