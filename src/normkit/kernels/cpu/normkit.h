/* What the library offers to Python: templates, each with a forward and a backward.
 *
 * Nothing here knows of torch or Python. A call is one record: a plan (what is computed, on which types and sizes) and the arrays,
 * each with its length in bytes. It is read during the call and not kept. `dispatch.c` holds every number of it against the
 * others before a template runs, so that no template divides by, or indexes with, what has not been checked.
 */
#ifndef NORMKIT_H
#define NORMKIT_H

#include <stdint.h>

/* What a call returns: done; no memory for scratch (nothing has been written); or what in the record is wrong, ARRAY + i being the
 * length of its array i. `kernels/__init__.py` has the words. */
enum { DONE, NO_MEMORY, WRONG_TYPE, WRONG_RULE, WRONG_SIZE, WRONG_GROUPS, ARRAY = 16 };

enum { NONE = 0, F32 = 1, BF16 = 2, F16 = 3, F64 = 4 };                      /* element types; NONE: the tensor is absent */
enum { SQUARE = 0, ABSOLUTE = 1, MAXIMUM = 2, ZERO_SUM = 3 };                /* what is taken over a row */
enum { INSIDE = 0, OUTSIDE = 1, FLOOR = 2 };                                 /* where eps stands */
enum { ERF = 0, TANH = 1, ISRU = 2, ARCTAN = 3, EXPSIGN = 4, SATURSIN = 5, ELN = 6 };

typedef struct {
    int32_t center, statistic, place, early;
    int32_t x_type, weight_type, bias_type;
    int32_t shared;                                                          /* one gain for the row, not one an entry */
    int64_t dim, part;                                                       /* row length; entries in the statistic */
    double eps, constant, offset, scale;                                     /* scale: the gain where there is no weight */
} RowPlan;

/* How features turn in pairs after a row's norm, or without one, and where the rows lie: along three axes, the last walked first. */
typedef struct {
    int64_t normed, neighbours;                                              /* pairs are 2i and 2i + 1, not i and i + dim / 2 */
    int64_t size[3];
    int64_t x[3], grad[3], out[3], angle[3];                                 /* entries from a row to the next along each axis */
} Turning;

typedef struct {
    int32_t function;
    int32_t x_type, alpha_type, shift_type, weight_type, bias_type;
    int32_t by_row;                                                          /* channels first: gain of row i is gain[i % dim] */
    int64_t dim, width;                                                      /* gains; entries of a row */
    double scale;
} PointPlan;

/* Channels of (N, C, *space): what a statistic is, and what is done to the normalized values. */
enum { GIVEN = 0, DEVIATION = 1, RESPONSE = 2, SHARE = 3, POSITION = 4, ONLINE = 5 };
/* none; about the mean; about 0; a length over the mean length; over the channels of a position, see position.h; of samples before */
enum { AFFINE = 0, THRESHOLD = 1, SWISH = 2, CLAMP = 3 };                        /* see channel.h */

typedef struct {
    int32_t statistic, activation;
    int32_t over_samples;                                                    /* a unit is a channel of all samples, not of one */
    int32_t last;                                                            /* channels last in memory */
    int32_t x_type, weight_type, bias_type, extra_type;                      /* extra: the threshold, slope or limit */
    int64_t channels, groups, space;                                         /* groups: units of a sample, or of all */
    double eps, decay;                                                       /* decay: share of the old state, ONLINE */
} ChannelPlan;

/* An array as it is handed over; null: absent. The bytes of one that is walked along strides are all that can be reached. */
typedef struct { void *at; int64_t bytes; } Array;

typedef struct { RowPlan plan; int64_t rows; Array x, residual, weight, bias, total, y, stats; } RowForward;
typedef struct { RowPlan plan; int64_t rows; Array x, grad, grad_total, weight, stats, dx, dweight, dbias; } RowBackward;
typedef struct { RowPlan plan; Turning turning; Array x, weight, bias, cos, sin, y, stats; } RotateForward;
typedef struct { RowPlan plan; Turning turning; Array x, grad, weight, cos, sin, stats, dx, dweight, dbias; } RotateBackward;
typedef struct { PointPlan plan; int64_t rows; Array x, alpha, shift, weight, bias, y; } PointForward;
typedef struct { PointPlan plan; int64_t rows; Array x, grad, alpha, shift, weight, dx, dalpha, dshift, dweight, dbias; } PointBackward;
typedef struct { ChannelPlan plan; int64_t samples; Array x, weight, bias, extra, moments, state, y; } ChannelForward;
typedef struct {
    ChannelPlan plan;
    int64_t samples;
    Array x, grad, weight, bias, extra, moments, state, dx, dweight, dbias, dextra, deps;
} ChannelBackward;

/* The templates of one instruction set. */
typedef struct {
    int (*row_forward)(const RowPlan *, int64_t rows, const void *x, const void *residual, const void *weight, const void *bias,
                       void *total, void *y, void *stats);
    int (*row_backward)(const RowPlan *, int64_t rows, const void *x, const void *grad, const void *grad_total, const void *weight,
                        const void *stats, void *dx, void *dweight, void *dbias);
    int (*rotate_forward)(const RowPlan *, int64_t rows, const Turning *, const void *x, const void *weight, const void *bias,
                          const void *cos, const void *sin, void *y, void *stats);
    int (*rotate_backward)(const RowPlan *, int64_t rows, const Turning *, const void *x, const void *grad, const void *weight,
                           const void *cos, const void *sin, const void *stats, void *dx, void *dweight, void *dbias);
    int (*point_forward)(const PointPlan *, int64_t rows, const void *x, const void *alpha, const void *shift, const void *weight,
                         const void *bias, void *y);
    int (*point_backward)(const PointPlan *, int64_t rows, const void *x, const void *grad, const void *alpha, const void *shift,
                          const void *weight, void *dx, void *dalpha, void *dshift, void *dweight, void *dbias);
    int (*channel_forward)(const ChannelPlan *, int64_t samples, const void *x, const void *weight, const void *bias,
                           const void *extra, double *moments, double *state, void *y);
    int (*channel_backward)(const ChannelPlan *, int64_t samples, const void *x, const void *grad, const void *weight,
                            const void *bias, const void *extra, const double *moments, double *state, void *dx, void *dweight,
                            void *dbias, void *dextra, double *deps);
} Kernels;

#endif
