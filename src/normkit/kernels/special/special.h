/* What the library of matrices and curves offers to Python. As in `../cpu/normkit.h` a call is one record: a plan and arrays, each with
 * its length in bytes; `dispatch.c` holds every number of it against the others before anything is read. */
#ifndef SPECIAL_H
#define SPECIAL_H

#include <stdint.h>

/* UNSOLVED: numbers that are not finite, or steps that do not end; nothing of the output counts then. */
enum { DONE, NO_MEMORY, WRONG_TYPE, WRONG_RULE, WRONG_SIZE, UNSOLVED = 6, ARRAY = 16 };
enum { F32 = 1, F64 = 4 };
enum { MOST_SIDE = 64, MOST_BINS = 1024, MOST_WIDTH = 4096, MOST_ROUNDS = 1024 };  /* of a matrix, a spline, a token, of Sinkhorn's */
enum { CODE_WORDS = 256 };

/* logged: a factor of Cholesky has the logarithms of its diagonal in its place. */
typedef struct { int64_t type, n, logged; } MatrixPlan;
/* box: left, right, bottom, top; with tails there are no slopes at the ends of it. */
typedef struct { int64_t type, bins, tails, inverse; double box[4], least_width, least_height, least_slope; } SplinePlan;
typedef struct { int64_t type, clients; } StatesPlan;
typedef struct { int64_t type, n, rounds; double eps; } SinkhornPlan;         /* rounds: how often columns are divided */

typedef struct { int64_t tokens, width; double least; } CodesPlan;           /* least: of a square that a root is taken of */

typedef struct { void *at; int64_t bytes; } Array;
typedef struct { MatrixPlan plan; int64_t count; Array x, values, vectors; } Eigen;
typedef struct { MatrixPlan plan; int64_t count; Array x, y; } Symmetric;
typedef struct { MatrixPlan plan; int64_t count; Array x, factor, notes; } Cholesky;  /* notes: largest entry, skewness, 1 if definite */
typedef struct { MatrixPlan plan; int64_t count; Array factor, grad, dx; } CholeskyBackward;
typedef struct { MatrixPlan plan; int64_t count; Array factor, y; } Product;
typedef struct { MatrixPlan plan; int64_t count; Array factor, grad, dfactor; } ProductBackward;
typedef struct { SplinePlan plan; int64_t count; Array x, widths, heights, slopes, y, log_slope; } Spline;
typedef struct { SplinePlan plan; int64_t count; Array x, widths, heights, slopes, dy, dlog, dx, dwidths, dheights, dslopes; } SplineBackward;
typedef struct { StatesPlan plan; int64_t count; Array table, shares, sent, total, squares; } States;  /* table: an Array a client */
typedef struct { CodesPlan plan; int64_t count; Array x, directions, signs, words, scale1, shift, scale2; } Encode;
typedef struct { CodesPlan plan; int64_t count; Array signs, words, table, scale1, shift, scale2, y; } Decode;
typedef struct { SinkhornPlan plan; int64_t count; Array x, y; } Sinkhorn;
typedef struct { SinkhornPlan plan; int64_t count; Array x, grad, dx; } SinkhornBackward;

typedef struct {
    int (*eigen)(const MatrixPlan *, int64_t count, const void *x, void *values, void *vectors);
    int (*symmetric)(const MatrixPlan *, int64_t count, const void *x, void *y);
    int (*cholesky)(const MatrixPlan *, int64_t count, const void *x, void *factor, double *notes);
    int (*cholesky_backward)(const MatrixPlan *, int64_t count, const void *factor, const void *grad, void *dx);
    int (*product)(const MatrixPlan *, int64_t count, const void *factor, void *y);
    int (*product_backward)(const MatrixPlan *, int64_t count, const void *factor, const void *grad, void *dfactor);
    int (*spline)(const Spline *);
    int (*spline_backward)(const SplineBackward *);
    int (*states)(const StatesPlan *, int64_t count, const Array *table, const double *shares, const void *sent, void *total,
                  double *squares);
    int (*encode)(const CodesPlan *, int64_t count, const Encode *);
    int (*decode)(const CodesPlan *, int64_t count, const Decode *);
    int (*sinkhorn)(const SinkhornPlan *, int64_t count, const void *x, void *y);
    int (*sinkhorn_backward)(const SinkhornPlan *, int64_t count, const void *x, const void *grad, void *dx);
} Special;

#endif
