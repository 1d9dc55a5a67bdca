/* All kernels for one instruction set. Built once per set, with ISA naming it and the compiler's flags choosing it. */
#include "normkit.h"
#include "memory.h"
#include "convert.h"
#include "maths.h"

enum { SUM, SQUARES, MAGNITUDES };       /* what of z is added up */

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX2__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#define INLINE static inline __attribute__((always_inline))
#define JOIN(a, b) a##_##b
#define PASTE(a, b) JOIN(a, b)

/* The templates need, of a type: ELEM as it lies in memory (ELEM_TYPE its number), REAL for the arithmetic, T to name things. */
#define REAL float
#define REAL_BITS int32_t
#define REAL_TYPE F32
#define REAL_TYPE_IS_FLOAT 1

#define ELEM float
#define ELEM_TYPE 1
#define ELEM_IS_REAL 1
#define T(name) PASTE(name, f32)
#include "vector.h"
#include "block.h"
#include "moments.h"
#include "row.h"
#include "rotate.h"
#include "channel.h"
#include "pointwise.h"
#undef ELEM
#undef ELEM_TYPE
#undef ELEM_IS_REAL
#undef T

#define ELEM uint16_t
#define ELEM_TYPE 2
#define ELEM_IS_REAL 0
#define T(name) PASTE(name, bf16)
#include "vector.h"
#include "block.h"
#include "moments.h"
#include "row.h"
#include "rotate.h"
#include "channel.h"
#include "pointwise.h"
#undef ELEM_TYPE
#undef T

#define ELEM_TYPE 3
#define T(name) PASTE(name, f16)
#include "vector.h"
#include "block.h"
#include "moments.h"
#include "row.h"
#include "rotate.h"
#include "channel.h"
#include "pointwise.h"
#undef ELEM
#undef ELEM_TYPE
#undef ELEM_IS_REAL
#undef T
#undef REAL
#undef REAL_BITS
#undef REAL_TYPE
#undef REAL_TYPE_IS_FLOAT

#define REAL double
#define REAL_BITS int64_t
#define REAL_TYPE F64
#define REAL_TYPE_IS_FLOAT 0
#define ELEM double
#define ELEM_TYPE 4
#define ELEM_IS_REAL 1
#define T(name) PASTE(name, f64)
#include "vector.h"
#include "block.h"
#include "moments.h"
#include "row.h"
#include "rotate.h"
#include "channel.h"

/* The template for the input's type. */
#define BY_TYPE(name, ...) \
    switch (plan->x_type) { \
    case F32: return name##_f32(__VA_ARGS__); \
    case BF16: return name##_bf16(__VA_ARGS__); \
    case F16: return name##_f16(__VA_ARGS__); \
    default: return name##_f64(__VA_ARGS__); \
    }

static int row_forward(const RowPlan *plan, int64_t rows, const void *x, const void *residual, const void *weight, const void *bias,
                       void *total, void *y, void *stats)
{
    BY_TYPE(row_forward, plan, rows, x, residual, weight, bias, total, y, stats)
}

static int row_backward(const RowPlan *plan, int64_t rows, const void *x, const void *grad, const void *grad_total,
                        const void *weight, const void *stats, void *dx, void *dweight, void *dbias)
{
    BY_TYPE(row_backward, plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias)
}

static int rotate_forward(const RowPlan *plan, int64_t rows, const Turning *turning, const void *x, const void *weight,
                          const void *bias, const void *cos, const void *sin, void *y, void *stats)
{
    BY_TYPE(rotate_forward, plan, rows, turning, x, weight, bias, cos, sin, y, stats)
}

static int rotate_backward(const RowPlan *plan, int64_t rows, const Turning *turning, const void *x, const void *grad,
                           const void *weight, const void *cos, const void *sin, const void *stats, void *dx, void *dweight,
                           void *dbias)
{
    BY_TYPE(rotate_backward, plan, rows, turning, x, grad, weight, cos, sin, stats, dx, dweight, dbias)
}

static int point_forward(const PointPlan *plan, int64_t rows, const void *x, const void *alpha, const void *shift,
                         const void *weight, const void *bias, void *y)
{
    switch (plan->x_type) {
    case F32: return point_forward_f32(plan, rows, x, alpha, shift, weight, bias, y);
    case BF16: return point_forward_bf16(plan, rows, x, alpha, shift, weight, bias, y);
    default: return point_forward_f16(plan, rows, x, alpha, shift, weight, bias, y);
    }
}

static int point_backward(const PointPlan *plan, int64_t rows, const void *x, const void *grad, const void *alpha,
                          const void *shift, const void *weight, void *dx, void *dalpha, void *dshift, void *dweight, void *dbias)
{
    switch (plan->x_type) {
    case F32: return point_backward_f32(plan, rows, x, grad, alpha, shift, weight, dx, dalpha, dshift, dweight, dbias);
    case BF16: return point_backward_bf16(plan, rows, x, grad, alpha, shift, weight, dx, dalpha, dshift, dweight, dbias);
    default: return point_backward_f16(plan, rows, x, grad, alpha, shift, weight, dx, dalpha, dshift, dweight, dbias);
    }
}

static int channel_forward(const ChannelPlan *plan, int64_t samples, const void *x, const void *weight, const void *bias,
                           const void *extra, double *moments, double *state, void *y)
{
    BY_TYPE(channel_forward, plan, samples, x, weight, bias, extra, moments, state, y)
}

static int channel_backward(const ChannelPlan *plan, int64_t samples, const void *x, const void *grad, const void *weight,
                            const void *bias, const void *extra, const double *moments, double *state, void *dx, void *dweight,
                            void *dbias, void *dextra, double *deps)
{
    BY_TYPE(channel_backward, plan, samples, x, grad, weight, bias, extra, moments, state, dx, dweight, dbias, dextra, deps)
}

const Kernels PASTE(normkit, ISA) = {row_forward, row_backward, rotate_forward, rotate_backward, point_forward, point_backward,
                                     channel_forward, channel_backward};
