/* One library for every processor: the same source compiled for several vector widths, the widest that runs here chosen once. */
#include "normkit.h"

extern const Kernels normkit_baseline;
#ifdef NORMKIT_X86
extern const Kernels normkit_avx2, normkit_avx512;
#endif

static const Kernels *chosen = &normkit_baseline;
static const char *chosen_name = "baseline";

__attribute__((constructor)) static void choose(void)
{
#ifdef NORMKIT_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl")) {
        chosen = &normkit_avx512;
        chosen_name = "avx512";
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
        chosen = &normkit_avx2;
        chosen_name = "avx2";
    }
#endif
}

/* Names the instruction set in use. */
const char *normkit_isa(void) { return chosen_name; }

/* Whether rows are shared among threads. */
int normkit_threaded(void)
{
#ifdef _OPENMP
    return 1;
#else
    return 0;
#endif
}

/* Takes another instruction set, for tests; 0 if there is none of that name here. */
int normkit_use(const char *name)
{
    const Kernels *table = 0;
    if (name[0] == 'b') table = &normkit_baseline, chosen_name = "baseline";
#ifdef NORMKIT_X86
    if (name[0] == 'a' && name[3] == '2' && __builtin_cpu_supports("avx2")) table = &normkit_avx2, chosen_name = "avx2";
    if (name[0] == 'a' && name[3] == '5' && __builtin_cpu_supports("avx512f")) table = &normkit_avx512, chosen_name = "avx512";
#endif
    if (table) chosen = table;
    return table != 0;
}

int normkit_row_forward(const RowPlan *plan, int64_t rows, const void *x, const void *residual, const void *weight, const void *bias,
                        void *total, void *y, void *stats)
{
    return chosen->row_forward(plan, rows, x, residual, weight, bias, total, y, stats);
}

int normkit_row_backward(const RowPlan *plan, int64_t rows, const void *x, const void *grad, const void *grad_total,
                         const void *weight, const void *stats, void *dx, void *dweight, void *dbias)
{
    return chosen->row_backward(plan, rows, x, grad, grad_total, weight, stats, dx, dweight, dbias);
}

int normkit_rotate_forward(const RowPlan *plan, int64_t rows, const Turning *turning, const void *x, const void *weight,
                           const void *bias, const void *cos, const void *sin, void *y, void *stats)
{
    return chosen->rotate_forward(plan, rows, turning, x, weight, bias, cos, sin, y, stats);
}

int normkit_rotate_backward(const RowPlan *plan, int64_t rows, const Turning *turning, const void *x, const void *grad,
                            const void *weight, const void *cos, const void *sin, const void *stats, void *dx, void *dweight,
                            void *dbias)
{
    return chosen->rotate_backward(plan, rows, turning, x, grad, weight, cos, sin, stats, dx, dweight, dbias);
}

int normkit_point_forward(const PointPlan *plan, int64_t rows, const void *x, const void *alpha, const void *shift,
                          const void *weight, const void *bias, void *y)
{
    return chosen->point_forward(plan, rows, x, alpha, shift, weight, bias, y);
}

int normkit_point_backward(const PointPlan *plan, int64_t rows, const void *x, const void *grad, const void *alpha,
                           const void *shift, const void *weight, void *dx, void *dalpha, void *dshift, void *dweight, void *dbias)
{
    return chosen->point_backward(plan, rows, x, grad, alpha, shift, weight, dx, dalpha, dshift, dweight, dbias);
}

int normkit_channel_forward(const ChannelPlan *plan, int64_t samples, const void *x, const void *weight, const void *bias,
                            const void *extra, double *moments, double *state, void *y)
{
    return chosen->channel_forward(plan, samples, x, weight, bias, extra, moments, state, y);
}

int normkit_channel_backward(const ChannelPlan *plan, int64_t samples, const void *x, const void *grad, const void *weight,
                             const void *bias, const void *extra, const double *moments, double *state, void *dx, void *dweight,
                             void *dbias, void *dextra, double *deps)
{
    return chosen->channel_backward(plan, samples, x, grad, weight, bias, extra, moments, state, dx, dweight,
                                    dbias, dextra, deps);
}
