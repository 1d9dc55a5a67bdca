/* All kernels for one instruction set. Built once per set, with ISA naming it and the compiler's flags choosing it. */
#include "normkit.h"
#include "memory.h"
#include "convert.h"
#include "maths.h"

#define JOIN(a, b) a##_##b
#define PASTE(a, b) JOIN(a, b)

#define ELEM float
#define REAL float
#define REAL_TYPE F32
#define ELEM_IS_REAL 1
#define FABS fabsf
#define T(name) PASTE(name, f32)
#include "row.h"
#include "pointwise.h"
#undef ELEM
#undef T
#undef ELEM_IS_REAL
#define ELEM_IS_REAL 0
#define ELEM uint16_t
#define T(name) PASTE(name, bf16)
#include "row.h"
#include "pointwise.h"
#undef T
#define T(name) PASTE(name, f16)
#include "row.h"
#include "pointwise.h"
#undef ELEM
#undef REAL
#undef REAL_TYPE
#undef ELEM_IS_REAL
#undef FABS
#undef T
#define ELEM double
#define REAL double
#define REAL_TYPE F64
#define ELEM_IS_REAL 1
#define FABS fabs
#define T(name) PASTE(name, f64)
#include "row.h"

static int row_forward(const RowPlan *plan, int64_t rows, const void *x, const void *residual, const void *weight, const void *bias,
                       void *total, void *y, void *stats)
{
    switch (plan->x_type) {
    case F32: return row_forward_f32(plan, rows, x, residual, weight, bias, total, y, stats);
    case BF16: return row_forward_bf16(plan, rows, x, residual, weight, bias, total, y, stats);
    case F16: return row_forward_f16(plan, rows, x, residual, weight, bias, total, y, stats);
    default: return row_forward_f64(plan, rows, x, residual, weight, bias, total, y, stats);
    }
}

static int row_backward(const RowPlan *plan, int64_t rows, const void *x, const void *grad, const void *grad_total,
                        const void *weight, const void *stats, void *dx, void *dweight, void *dbias)
{
    switch (plan->x_type) {
    case F32: return row_backward_f32(plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias);
    case BF16: return row_backward_bf16(plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias);
    case F16: return row_backward_f16(plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias);
    default: return row_backward_f64(plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias);
    }
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

const Kernels PASTE(normkit, ISA) = {row_forward, row_backward, point_forward, point_backward};
