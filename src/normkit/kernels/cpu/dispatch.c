/* One library for every processor: the same source compiled for several vector widths, the widest that runs here chosen once. */
#include "normkit.h"
#include "memory.h"

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
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) { /* and f16c, which clang 16 cannot ask about */
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

/* ---- the gate: what a call hands over is held against its sizes before anything is divided or indexed ---- */

/* Sizes of the records, in the order of `kernels/__init__.py`, which packs them. */
const int64_t normkit_records[] = {sizeof(RowForward),   sizeof(RowBackward),   sizeof(RotateForward),  sizeof(RotateBackward),
                                   sizeof(PointForward), sizeof(PointBackward), sizeof(ChannelForward), sizeof(ChannelBackward)};

#define MOST ((int64_t)1 << 48)               /* elements: beyond all memory, and no sum of their bytes overflows */

/* What is wanted of an array: so many bytes, or one of these. */
#define ABSENT INT64_MIN                      /* none at all */
#define MAYBE(bytes) (-1 - (bytes))           /* so many if it is there */
#define LEAST(bytes) (MOST * 256 + (bytes))   /* so many or more */

static int within(int64_t value, int64_t last) { return 0 <= value && value <= last; }
static int is_type(int type) { return F32 <= type && type <= F64; }
static int64_t width_of(int type) { return type == F64 ? 8 : type == F32 ? 4 : 2; }
static int wide(int type) { return type == F64 ? F64 : F32; }

/* Elements of a type that may be NONE, and the same of a gradient, which may be absent in any case. */
static int64_t of(int type, int64_t count) { return type ? count * width_of(type) : ABSENT; }
static int64_t maybe(int type, int64_t count) { return type ? MAYBE(count * width_of(type)) : ABSENT; }

/* a * b; -1 where a factor is negative or the product beyond MOST. */
static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product > MOST ? -1 : product;
}

/* Whether there can be so many rows of so many entries; each size alone too, where there are no rows. */
static int possible(int64_t rows, int64_t a, int64_t b)
{
    return rows >= 0 && a > 0 && b > 0 && times(times(rows ? rows : 1, a), b) > 0;
}

static int fits(Array array, int64_t wanted)
{
    if (wanted >= LEAST(0)) return array.at && array.bytes >= wanted - LEAST(0);
    if (!array.at) return wanted <= 0;
    return array.bytes == (wanted < 0 ? -1 - wanted : wanted);
}

/* The code for the first of some arrays that is not as wanted, or DONE. */
static int misfit(const Array *arrays, const int64_t *wanted, int count)
{
    for (int i = 0; i < count; i++)
        if (!fits(arrays[i], wanted[i])) return ARRAY + i;
    return DONE;
}
#define BYTES(...) (const int64_t[]){__VA_ARGS__}
#define MISFIT(first, ...) misfit(&(first), BYTES(__VA_ARGS__), sizeof(BYTES(__VA_ARGS__)) / sizeof(int64_t))

static int wrong_row(const RowPlan *p, int64_t rows)
{
    if (!is_type(p->x_type) || !within(p->weight_type, F64) || !within(p->bias_type, F64)) return WRONG_TYPE;
    if (!within(p->statistic, ZERO_SUM) || !within(p->place, FLOOR) || !within(p->early, 1)) return WRONG_RULE;
    if (!possible(rows, p->dim, 1) || p->part < 1 || p->part > p->dim) return WRONG_SIZE;
    return p->part < p->dim && (p->statistic != SQUARE || p->center) ? WRONG_RULE : DONE;
}

static int64_t gains(const RowPlan *p) { return p->shared ? 1 : p->dim; }

/* The bytes that a backward pass needs of the rows. */
static int64_t kept(const RowPlan *p, int64_t rows)
{
    return of(wide(p->x_type), rows * (p->center ? 3 : p->statistic == ZERO_SUM ? 2 : 1));
}

int normkit_row_forward(const RowForward *c)
{
    const RowPlan *p = &c->plan;
    int64_t all = of(p->x_type, times(c->rows, p->dim));
    int wrong = wrong_row(p, c->rows);
    if (!wrong)
        wrong = MISFIT(c->x, all, MAYBE(all), of(p->weight_type, gains(p)), of(p->bias_type, p->dim), c->residual.at ? all : ABSENT,
                       all, MAYBE(kept(p, c->rows)));
    if (wrong) return wrong;
    return chosen->row_forward(p, c->rows, c->x.at, c->residual.at, c->weight.at, c->bias.at, c->total.at, c->y.at, c->stats.at);
}

int normkit_row_backward(const RowBackward *c)
{
    const RowPlan *p = &c->plan;
    int64_t all = of(p->x_type, times(c->rows, p->dim));
    int wrong = wrong_row(p, c->rows);
    if (!wrong)
        wrong = MISFIT(c->x, all, all, MAYBE(all), of(p->weight_type, gains(p)), kept(p, c->rows), all,
                       maybe(p->weight_type, gains(p)), maybe(p->bias_type, p->dim));
    if (wrong) return wrong;
    return chosen->row_backward(p, c->rows, c->x.at, c->grad.at, c->grad_total.at, c->weight.at, c->stats.at, c->dx.at,
                                c->dweight.at, c->dbias.at);
}

static int64_t rows_of(const Turning *t) { return times(times(t->size[0], t->size[1]), t->size[2]); }

/* What a walk over rows of some length needs of an array. */
static int64_t reach(const Turning *t, const int64_t *stride, int64_t length, int type)
{
    for (int i = 0; i < 3; i++) {
        int64_t way = times(t->size[i] - 1, stride[i]);
        length += way < 0 ? MOST : way;
    }
    return LEAST(of(type, length));
}

static int wrong_turn(const RowPlan *p, const Turning *t)
{
    int wrong = wrong_row(p, rows_of(t));
    if (wrong) return wrong;
    if (p->statistic != SQUARE || p->part != p->dim) return WRONG_RULE;
    return rows_of(t) < 1 || p->dim % 2 || p->dim > BLOCK ? WRONG_SIZE : DONE;
}

int normkit_rotate_forward(const RotateForward *c)
{
    const RowPlan *p = &c->plan;
    const Turning *t = &c->turning;
    int64_t rows = rows_of(t);
    int wrong = wrong_turn(p, t), type = p->x_type;
    if (!wrong) {
        int64_t angles = reach(t, t->angle, p->dim / 2, wide(type));
        wrong = MISFIT(c->x, reach(t, t->x, p->dim, type), of(p->weight_type, gains(p)), of(p->bias_type, p->dim), angles, angles,
                       reach(t, t->out, p->dim, type), MAYBE(kept(p, rows)));
    }
    if (wrong) return wrong;
    return chosen->rotate_forward(p, rows, t, c->x.at, c->weight.at, c->bias.at, c->cos.at, c->sin.at, c->y.at, c->stats.at);
}

int normkit_rotate_backward(const RotateBackward *c)
{
    const RowPlan *p = &c->plan;
    const Turning *t = &c->turning;
    int64_t rows = rows_of(t);
    int wrong = wrong_turn(p, t), type = p->x_type;
    if (!wrong) {
        int64_t angles = reach(t, t->angle, p->dim / 2, wide(type));
        wrong = MISFIT(c->x, reach(t, t->x, p->dim, type), reach(t, t->grad, p->dim, type), of(p->weight_type, gains(p)), angles,
                       angles, kept(p, rows), reach(t, t->out, p->dim, type), maybe(p->weight_type, gains(p)),
                       maybe(p->bias_type, p->dim));
    }
    if (wrong) return wrong;
    return chosen->rotate_backward(p, rows, t, c->x.at, c->grad.at, c->weight.at, c->cos.at, c->sin.at, c->stats.at, c->dx.at,
                                   c->dweight.at, c->dbias.at);
}

static int wrong_point(const PointPlan *p, int64_t rows)
{
    if (!is_type(p->x_type) || p->x_type == F64 || !is_type(p->alpha_type)) return WRONG_TYPE;
    if (!within(p->shift_type, F64) || !within(p->weight_type, F64) || !within(p->bias_type, F64)) return WRONG_TYPE;
    if (!within(p->function, ELN)) return WRONG_RULE;
    if (!possible(rows, p->width, 1) || !possible(0, p->dim, 1)) return WRONG_SIZE;
    return p->by_row ? rows % p->dim ? WRONG_GROUPS : DONE : p->width == p->dim ? DONE : WRONG_SIZE;
}

int normkit_point_forward(const PointForward *c)
{
    const PointPlan *p = &c->plan;
    int64_t all = of(p->x_type, times(c->rows, p->width));
    int wrong = wrong_point(p, c->rows);
    if (!wrong)
        wrong = MISFIT(c->x, all, of(p->alpha_type, 1), of(p->shift_type, 1), of(p->weight_type, p->dim), of(p->bias_type, p->dim),
                       all);
    if (wrong) return wrong;
    return chosen->point_forward(p, c->rows, c->x.at, c->alpha.at, c->shift.at, c->weight.at, c->bias.at, c->y.at);
}

int normkit_point_backward(const PointBackward *c)
{
    const PointPlan *p = &c->plan;
    int64_t all = of(p->x_type, times(c->rows, p->width));
    int wrong = wrong_point(p, c->rows);
    if (!wrong)
        wrong = MISFIT(c->x, all, all, of(p->alpha_type, 1), of(p->shift_type, 1), of(p->weight_type, p->dim), all,
                       maybe(p->alpha_type, 1), maybe(p->shift_type, 1), maybe(p->weight_type, p->dim),
                       maybe(p->bias_type, p->dim));
    if (wrong) return wrong;
    return chosen->point_backward(p, c->rows, c->x.at, c->grad.at, c->alpha.at, c->shift.at, c->weight.at, c->dx.at, c->dalpha.at,
                                  c->dshift.at, c->dweight.at, c->dbias.at);
}

static int wrong_channel(const ChannelPlan *p, int64_t samples)
{
    int of_channels = p->statistic == SHARE || p->statistic == ONLINE || p->over_samples;
    if (!is_type(p->x_type)) return WRONG_TYPE;
    if (!within(p->weight_type, F64) || !within(p->bias_type, F64) || !within(p->extra_type, F64)) return WRONG_TYPE;
    if (!within(p->statistic, ONLINE) || !within(p->activation, CLAMP)) return WRONG_RULE;
    if ((p->activation == THRESHOLD || p->activation == CLAMP) && !p->extra_type) return WRONG_RULE;
    if (p->over_samples && (p->last || p->statistic > RESPONSE)) return WRONG_RULE;
    if (p->statistic == POSITION && (p->last || p->activation != AFFINE)) return WRONG_RULE;
    if (!possible(samples, p->channels, p->space)) return WRONG_SIZE;
    if (p->groups < 1 || p->channels % p->groups || (of_channels && p->groups != p->channels)) return WRONG_GROUPS;
    return DONE;
}

/* The doubles that describe the statistics of a call, and the state that moves in it. */
static int64_t moments_of(const ChannelPlan *p, int64_t samples)
{
    int64_t units = p->over_samples ? p->groups : samples * p->groups;
    return p->statistic == POSITION ? ABSENT : of(F64, p->statistic == ONLINE ? 4 * units : 2 * units);
}

static int64_t state_of(const ChannelPlan *p) { return p->statistic == ONLINE ? of(F64, 2 * p->channels) : ABSENT; }

int normkit_channel_forward(const ChannelForward *c)
{
    const ChannelPlan *p = &c->plan;
    int64_t channels = p->channels, all = of(p->x_type, times(times(c->samples, channels), p->space));
    int wrong = wrong_channel(p, c->samples);
    if (!wrong)
        wrong = MISFIT(c->x, all, of(p->weight_type, channels), of(p->bias_type, channels), of(p->extra_type, channels),
                       moments_of(p, c->samples), state_of(p), all);
    if (wrong) return wrong;
    return chosen->channel_forward(p, c->samples, c->x.at, c->weight.at, c->bias.at, c->extra.at, c->moments.at, c->state.at,
                                   c->y.at);
}

int normkit_channel_backward(const ChannelBackward *c)
{
    const ChannelPlan *p = &c->plan;
    int64_t channels = p->channels, all = of(p->x_type, times(times(c->samples, channels), p->space));
    int wrong = wrong_channel(p, c->samples);
    if (!wrong)
        wrong = MISFIT(c->x, all, all, of(p->weight_type, channels), of(p->bias_type, channels), of(p->extra_type, channels),
                       moments_of(p, c->samples), state_of(p), MAYBE(all), maybe(p->weight_type, channels),
                       maybe(p->bias_type, channels), maybe(p->extra_type, channels), MAYBE(of(F64, 1)));
    if (wrong) return wrong;
    return chosen->channel_backward(p, c->samples, c->x.at, c->grad.at, c->weight.at, c->bias.at, c->extra.at, c->moments.at,
                                    c->state.at, c->dx.at, c->dweight.at, c->dbias.at, c->dextra.at, c->deps.at);
}
