/* The row template: everything that is worked out within one row. Included once per element type.
 *
 *   z = x - mean (or x),  n = z * r,  y = n * gain + bias,      r by the plan's statistic and the place of its eps
 *   dx = r * (h - pull * t - shift),                            h = g * gain,  t = how each entry moves the statistic
 *
 * with pull = dot(h, n) / (how much of r the statistic makes), shift = the mean of the rest (only when centered). All of it is in
 * units of n, so that rows of 1e-20 or 6e4 are as safe as rows of 1.
 *
 * ELEM is the type in memory, REAL that of the arithmetic, T(name) the name for this type. Sums run in REAL over a block and in
 * double over blocks, so a long row costs no accuracy.
 */

typedef struct {
    const RowPlan *plan;
    int64_t rows, chunk;
    const ELEM *x, *residual, *grad, *grad_total;
    ELEM *total, *out;
    const REAL *gain, *bias;
    REAL shared;
    REAL *stats;
    REAL *dgain, *dbias;
    double *dshared;
    int streaming, stat_size;
} T(RowJob);

typedef struct { REAL mean; double raw, r; } T(RowState);

#if ELEM_IS_REAL
static inline const REAL *T(read)(const ELEM *from, REAL *room, int n) { (void)room, (void)n; return from; }
static inline void T(round)(REAL *block, int n) { (void)block, (void)n; }
#else
static inline const REAL *T(read)(const ELEM *from, REAL *room, int n) { T(widen)(from, room, n); return room; }
static inline void T(round)(REAL *block, int n) { ELEM half[BLOCK]; T(narrow)(block, half, n); T(widen)(half, block, n); }
#endif

/* Where a block of results is made: in place if it is stored as it is, else in `room`. */
static inline REAL *T(place)(ELEM *to, REAL *room, int streaming)
{
#if ELEM_IS_REAL
    return streaming ? room : to;
#else
    (void)to, (void)streaming;
    return room;
#endif
}

static inline void T(store)(ELEM *to, const REAL *block, int n, int streaming)
{
#if ELEM_IS_REAL
    if (streaming) stream(to, block, n * sizeof(ELEM));
#else
    ELEM half[BLOCK] __attribute__((aligned(64)));
    T(narrow)(block, streaming ? half : to, n);
    if (streaming) stream(to, half, n * sizeof(ELEM));
#endif
}

#define EACH_BLOCK(dim) for (int64_t at = 0, n = 0; n = (dim) - at < BLOCK ? (dim) - at : BLOCK, at < (dim); at += BLOCK)
#define ROOM(name) REAL name[BLOCK] __attribute__((aligned(64)))

/* Adds term(i), i < n, to `sum`, in four streams so that one addition need not wait for the last. */
#define ADD_UP(sum, n, term)                                                                                         \
    do {                                                                                                             \
        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                                         \
        int q = (int)(n) / 64 * 16, rest = 4 * q, end = (int)(n);                                                    \
        _Pragma("omp simd reduction(+ : s0, s1, s2, s3)") for (int i = 0; i < q; i++)                                \
            s0 += term(i), s1 += term(i + q), s2 += term(i + 2 * q), s3 += term(i + 3 * q);                          \
        _Pragma("omp simd reduction(+ : s0)") for (int i = rest; i < end; i++) s0 += term(i);                        \
        (sum) += (double)(s0 + s1) + (double)(s2 + s3);                                                              \
    } while (0)

static double T(sum)(const ELEM *x, int64_t dim)
{
    double sum = 0;
    ROOM(room);
    EACH_BLOCK(dim) {
        const REAL *b = T(read)(x + at, room, n);
#define TERM(i) b[i]
        ADD_UP(sum, n, TERM);
#undef TERM
    }
    return sum;
}

static double T(sum_of_squares)(const ELEM *x, int64_t dim, REAL mean)
{
    double sum = 0;
    ROOM(room);
    EACH_BLOCK(dim) {
        const REAL *b = T(read)(x + at, room, n);
#define TERM(i) (b[i] - mean) * (b[i] - mean)
        ADD_UP(sum, n, TERM);
#undef TERM
    }
    return sum;
}

static double T(sum_of_magnitudes)(const ELEM *x, int64_t dim, REAL mean)
{
    double sum = 0;
    ROOM(room);
    EACH_BLOCK(dim) {
        const REAL *b = T(read)(x + at, room, n);
#define TERM(i) FABS(b[i] - mean)
        ADD_UP(sum, n, TERM);
#undef TERM
    }
    return sum;
}

/* The largest magnitude; a NaN anywhere is the result, which a comparison alone would lose. */
static double T(largest)(const ELEM *x, int64_t dim, REAL mean)
{
    REAL most = 0;
    int nans = 0;
    ROOM(room);
    EACH_BLOCK(dim) {
        const REAL *b = T(read)(x + at, room, n);
#pragma omp simd reduction(max : most) reduction(+ : nans)
        for (int i = 0; i < (int)n; i++) {
            REAL z = FABS(b[i] - mean);
            most = z > most ? z : most;
            nans += z != z;
        }
    }
    return nans ? NAN : most;
}

/* r, from the raw statistic. */
static double T(reciprocal)(const RowPlan *p, double raw)
{
    if (p->statistic == ABSOLUTE) return 1 / (p->constant * (raw / p->dim) + p->eps);
    if (p->statistic == MAXIMUM) return 1 / (raw + p->eps);
    if (p->statistic == ZERO_SUM) return 1 / sqrt(raw / (p->dim + 1) + p->eps);
    if (p->place == INSIDE) return 1 / sqrt(raw / p->part + p->eps);
    if (p->place == OUTSIDE) return 1 / (sqrt(raw / p->part) + p->eps);
    return 1 / (sqrt(raw) < p->eps ? p->eps : sqrt(raw));
}

static T(RowState) T(measure)(const RowPlan *p, const ELEM *x)
{
    T(RowState) s = {0, 0, 0};
    double sum = p->center || p->statistic == ZERO_SUM ? T(sum)(x, p->dim) : 0;
    if (p->center) s.mean = (REAL)(sum / p->dim);
    switch (p->statistic) {
    case ABSOLUTE: s.raw = T(sum_of_magnitudes)(x, p->dim, s.mean); break;
    case MAXIMUM: s.raw = T(largest)(x, p->dim, s.mean); break;
    case ZERO_SUM: s.raw = T(sum_of_squares)(x, p->dim, 0) + sum * sum, s.mean = (REAL)sum; break;
    default: s.raw = T(sum_of_squares)(x, p->part, s.mean);
    }
    s.r = T(reciprocal)(p, s.raw);
    return s;
}

/* Keeps what the backward pass needs of a row: the raw statistic and, where there is one, the mean (or the sum, ZERO_SUM). */
static void T(keep)(const T(RowJob) *j, int64_t row, T(RowState) s)
{
    if (!j->stats) return;
    j->stats[row * j->stat_size] = (REAL)s.raw;
    if (j->stat_size == 2) j->stats[row * 2 + 1] = s.mean;
}

static T(RowState) T(recall)(const T(RowJob) *j, int64_t row)
{
    T(RowState) s = {j->stat_size == 2 ? j->stats[row * 2 + 1] : 0, j->stats[row * j->stat_size], 0};
    s.r = T(reciprocal)(j->plan, s.raw);
    return s;
}

/* total = x + residual, rounded as it is stored. */
static void T(add_row)(const ELEM *x, const ELEM *residual, ELEM *total, int64_t dim)
{
    ROOM(room_a); ROOM(room_b); ROOM(room_o);
    EACH_BLOCK(dim) {
        const REAL *a = T(read)(x + at, room_a, n), *b = T(read)(residual + at, room_b, n);
        REAL *o = T(place)(total + at, room_o, 0);
#pragma omp simd
        for (int i = 0; i < (int)n; i++) o[i] = a[i] + b[i];
        T(store)(total + at, o, n, 0);
    }
}

/* o = (b - mean) * r * gain + bias; either may be absent. */
static inline void T(affine)(const REAL *b, REAL mean, REAL r, const REAL *gain, const REAL *bias, REAL *o, int n)
{
    if (gain && bias) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = (b[i] - mean) * r * gain[i] + bias[i];
    } else if (gain) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = (b[i] - mean) * r * gain[i];
    } else if (bias) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = (b[i] - mean) * r + bias[i];
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = (b[i] - mean) * r;
    }
}

/* The same, with n rounded to the element type before the gain. */
static void T(affine_early)(const REAL *b, REAL mean, REAL r, REAL shared, const REAL *gain, const REAL *bias, REAL *o, int n)
{
    T(affine)(b, mean, r, 0, 0, o, n);
    T(round)(o, n);
#pragma omp simd
    for (int i = 0; i < n; i++) o[i] *= shared;
    T(affine)(o, 0, 1, gain, bias, o, n);
}

static void T(write_row)(const T(RowJob) *j, const ELEM *x, ELEM *y, T(RowState) s)
{
    const RowPlan *p = j->plan;
    REAL mean = p->center ? s.mean : 0, r = (REAL)s.r;
    ROOM(room); ROOM(room_o);
    EACH_BLOCK(p->dim) {
        const REAL *b = T(read)(x + at, room, n);
        const REAL *gain = j->gain ? j->gain + at : 0, *bias = j->bias ? j->bias + at : 0;
        REAL *o = T(place)(y + at, room_o, j->streaming);
        if (p->early) T(affine_early)(b, mean, r, j->shared, gain, bias, o, n);
        else T(affine)(b, mean, r * j->shared, gain, bias, o, n);
        T(store)(y + at, o, n, j->streaming);
    }
}

static void T(forward_rows)(void *job, int64_t begin, int64_t end)
{
    const T(RowJob) *j = job;
    int64_t dim = j->plan->dim;
    for (int64_t row = begin; row < end; row++) {
        const ELEM *x = j->x + row * dim;
        if (j->residual) {
            T(add_row)(x, j->residual + row * dim, j->total + row * dim, dim);
            x = j->total + row * dim;
        }
        T(RowState) s = T(measure)(j->plan, x);
        T(keep)(j, row, s);
        T(write_row)(j, x, j->out + row * dim, s);
    }
    if (j->streaming) finish_stream();
}

/* Sums of a row that its gradient needs: of h, of h * n, of t, and how many entries tie for the maximum. */
typedef struct { double h, hn, t, ties; } T(RowSums);

/* t, how each entry moves the statistic, for all statistics but SQUARE, where it is n. */
static void T(direction)(const RowPlan *p, T(RowState) s, const REAL *b, REAL *t, int n)
{
    REAL mean = p->center ? s.mean : 0, sum = s.mean, r = (REAL)s.r, most = (REAL)s.raw;
    if (p->statistic == ZERO_SUM) {
#pragma omp simd
        for (int i = 0; i < n; i++) t[i] = (b[i] + sum) * r;
    } else {
        REAL least = p->statistic == MAXIMUM ? most : 0;
#pragma omp simd
        for (int i = 0; i < n; i++) {
            REAL z = b[i] - mean;
            t[i] = FABS(z) >= least ? (REAL)((z > 0) - (z < 0)) : 0;
        }
    }
}

static T(RowSums) T(gather)(const T(RowJob) *j, const ELEM *x, const ELEM *grad, T(RowState) s)
{
    const RowPlan *p = j->plan;
    T(RowSums) sums = {0, 0, 0, 0};
    REAL mean = p->center ? s.mean : 0, r = (REAL)s.r;
    ROOM(room_x); ROOM(room_g); ROOM(t);
    EACH_BLOCK(p->dim) {
        const REAL *b = T(read)(x + at, room_x, n), *g = T(read)(grad + at, room_g, n);
        const REAL *gain = j->gain ? j->gain + at : 0;
#define N(i) (b[i] - mean) * r
        if (j->gain && p->center) {
#define TERM(i) g[i] * gain[i]
            ADD_UP(sums.h, n, TERM);
#undef TERM
        } else if (p->center) {
#define TERM(i) g[i]
            ADD_UP(sums.h, n, TERM);
#undef TERM
        }
        if (j->gain) {
#define TERM(i) g[i] * gain[i] * (N(i))
            ADD_UP(sums.hn, n, TERM);
#undef TERM
        } else {
#define TERM(i) g[i] * (N(i))
            ADD_UP(sums.hn, n, TERM);
#undef TERM
        }
#undef N
        if (p->statistic == ABSOLUTE || p->statistic == MAXIMUM) {
            T(direction)(p, s, b, t, n);
#define TERM(i) t[i]
            ADD_UP(sums.t, n, TERM);
#undef TERM
#define TERM(i) FABS(t[i])
            ADD_UP(sums.ties, n, TERM);
#undef TERM
        }
    }
    return sums;
}

/* The factor of t in dx / r; zero where the statistic does not move r (a row of zeros under a root, a norm below its floor). */
static double T(pull)(const RowPlan *p, T(RowState) s, T(RowSums) sums)
{
    double root = sqrt(s.raw);
    switch (p->statistic) {
    case ABSOLUTE: return sums.hn * p->constant / p->dim;
    case MAXIMUM: return sums.ties > 0 ? sums.hn / sums.ties : 0;
    case ZERO_SUM: return sums.hn / (p->dim + 1);
    }
    if (p->place == INSIDE) return sums.hn / p->part;
    if (root == 0) return 0;
    if (p->place == OUTSIDE) return sums.hn / (s.r * root * sqrt(p->part));
    return root < p->eps ? 0 : sums.hn / (s.r * root);
}

/* dx for one block, and the block's share of the gain's and the bias's gradient. */
static inline void T(spread)(const REAL *b, const REAL *g, const REAL *gain, const REAL *t, const REAL *more, REAL mean, REAL r,
                             REAL shared, REAL pull, REAL shift, REAL *o, REAL *dgain, REAL *dbias, int n)
{
#define N(i) (b[i] - mean) * r
#define DX(h, t) r * ((h) - pull * (t) - shift)
    if (t) {
        for (int i = 0; i < n; i++) o[i] = DX(g[i] * shared * (gain ? gain[i] : 1), t[i]);
    } else if (gain && dgain && dbias) {
#pragma omp simd
        for (int i = 0; i < n; i++) {
            REAL v = N(i);
            dgain[i] += g[i] * v;
            dbias[i] += g[i];
            o[i] = DX(g[i] * gain[i], v);
        }
        dgain = dbias = 0;
    } else if (gain && dgain) {
#pragma omp simd
        for (int i = 0; i < n; i++) {
            REAL v = N(i);
            dgain[i] += g[i] * v;
            o[i] = DX(g[i] * gain[i], v);
        }
        dgain = 0;
    } else if (gain) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = DX(g[i] * gain[i], N(i));
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = DX(g[i] * shared, N(i));
    }
    if (dgain) {
#pragma omp simd
        for (int i = 0; i < n; i++) dgain[i] += g[i] * (N(i));
    }
    if (dbias) {
#pragma omp simd
        for (int i = 0; i < n; i++) dbias[i] += g[i];
    }
    if (more) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] += more[i];
    }
#undef DX
#undef N
}

static void T(backward_row)(const T(RowJob) *j, int64_t row, REAL *dgain, REAL *dbias, double *dshared)
{
    const RowPlan *p = j->plan;
    int64_t dim = p->dim;
    const ELEM *x = j->x + row * dim, *grad = j->grad + row * dim;
    T(RowState) s = T(recall)(j, row);
    T(RowSums) sums = T(gather)(j, x, grad, s);
    if (dshared) *dshared += sums.hn;
    sums.h *= j->shared, sums.hn *= j->shared;
    double pull = T(pull)(p, s, sums), shift = p->center ? (sums.h - pull * sums.t) / dim : 0;
    REAL mean = p->center ? s.mean : 0, r = (REAL)s.r;
    ROOM(room_x); ROOM(room_g); ROOM(room_m); ROOM(room_o); ROOM(room_t);
    EACH_BLOCK(dim) {
        const REAL *b = T(read)(x + at, room_x, n), *g = T(read)(grad + at, room_g, n);
        const REAL *more = j->grad_total ? T(read)(j->grad_total + row * dim + at, room_m, n) : 0, *t = 0;
        REAL *o = T(place)(j->out + row * dim + at, room_o, j->streaming);
        if (p->statistic != SQUARE) T(direction)(p, s, b, room_t, n), t = room_t;
        int64_t moved = t ? n : p->part - at < 0 ? 0 : p->part - at < n ? p->part - at : n;
        const REAL *gain = j->gain ? j->gain + at : 0;
        REAL *dw = dgain ? dgain + at : 0, *db = dbias ? dbias + at : 0;
        if (moved)
            T(spread)(b, g, gain, t, more, mean, r, j->shared, (REAL)pull, (REAL)shift, o, dw, db, moved);
        if (moved < n)
            T(spread)(b + moved, g + moved, gain ? gain + moved : 0, t, more ? more + moved : 0, mean, r, j->shared, 0, (REAL)shift,
                      o + moved, dw ? dw + moved : 0, db ? db + moved : 0, n - moved);
        T(store)(j->out + row * dim + at, o, n, j->streaming);
    }
}

/* Chunks of rows, each with its own partial sums: the result is the same for any number of threads. */
static void T(backward_chunks)(void *job, int64_t begin, int64_t end)
{
    const T(RowJob) *j = job;
    int64_t dim = j->plan->dim;
    for (int64_t c = begin; c < end; c++) {
        REAL *dgain = j->dgain ? j->dgain + c * dim : 0, *dbias = j->dbias ? j->dbias + c * dim : 0;
        double shared = 0;
        if (dgain) memset(dgain, 0, dim * sizeof(REAL));
        if (dbias) memset(dbias, 0, dim * sizeof(REAL));
        int64_t stop = (c + 1) * j->chunk < j->rows ? (c + 1) * j->chunk : j->rows;
        for (int64_t row = c * j->chunk; row < stop; row++)
            T(backward_row)(j, row, dgain, dbias, j->dshared ? &shared : 0);
        if (j->dshared) j->dshared[c] = shared;
    }
    if (j->streaming) finish_stream();
}

/* Adds up the chunks' partial sums, in order, into a gradient of any type. */
static void T(add_partials)(const REAL *partial, int64_t chunks, int64_t dim, int type, void *out)
{
    double sums[BLOCK];
    EACH_BLOCK(dim) {
        for (int i = 0; i < (int)n; i++) sums[i] = 0;
        for (int64_t c = 0; c < chunks; c++) {
            const REAL *row = partial + c * dim + at;
#pragma omp simd
            for (int i = 0; i < (int)n; i++) sums[i] += row[i];
        }
        for (int i = 0; i < (int)n; i++) put_element(type, out, at + i, sums[i]);
    }
}

/* Weight or bias in the arithmetic's type, the offset added: the tensor itself where that is what it is. */
static const REAL *T(as_real)(int type, const void *from, int64_t n, double offset, REAL **room)
{
    if (!from || (type == REAL_TYPE && offset == 0)) return from;
    for (int64_t i = 0; i < n; i++) (*room)[i] = (REAL)(offset + element(type, from, i));
    *room += n;
    return *room - n;
}

static int T(row_forward)(const RowPlan *p, int64_t rows, const void *x, const void *residual, const void *weight, const void *bias,
                          void *total, void *y, void *stats)
{
    size_t bytes = (size_t)rows * p->dim * sizeof(ELEM);
    REAL *room = weight || bias ? scratch(2 * p->dim * sizeof(REAL)) : 0, *next = room;
    if ((weight || bias) && !room) return 1;
    T(RowJob) job = {.plan = p, .rows = rows, .x = x, .residual = residual, .total = total, .out = y, .stats = stats,
                     .shared = weight ? 1 : (REAL)p->scale};
    job.stat_size = p->center || p->statistic == ZERO_SUM ? 2 : 1;
    job.streaming = bytes >= STREAM_FROM;
    if (weight && p->shared) job.shared = (REAL)(p->offset + element(p->weight_type, weight, 0));
    else job.gain = T(as_real)(p->weight_type, weight, p->dim, p->offset, &next);
    job.bias = T(as_real)(p->bias_type, bias, p->dim, 0, &next);
    expect_writes(y, bytes);
    expect_writes(total, bytes);
    share(T(forward_rows), &job, rows, rows * p->dim);
    free(room);
    return 0;
}

static int T(row_backward)(const RowPlan *p, int64_t rows, const void *x, const void *grad, const void *grad_total,
                           const void *weight, const void *stats, void *dx, void *dweight, void *dbias)
{
    size_t bytes = (size_t)rows * p->dim * sizeof(ELEM);
    int64_t dim = p->dim, chunk = chunk_rows(rows, dim), chunks = (rows + chunk - 1) / chunk;
    int gain_sums = dweight && !p->shared, bias_sums = dbias != 0;
    REAL *room = scratch((dim + chunks * dim * (gain_sums + bias_sums)) * sizeof(REAL) + MOST_CHUNKS * sizeof(double)), *next;
    if (!room) return 1;
    double *dshared = (double *)room;
    next = (REAL *)(dshared + MOST_CHUNKS);
    T(RowJob) job = {.plan = p, .rows = rows, .chunk = chunk, .x = x, .grad = grad, .grad_total = grad_total, .out = dx,
                     .stats = (REAL *)stats, .shared = weight ? 1 : (REAL)p->scale};
    job.stat_size = p->center || p->statistic == ZERO_SUM ? 2 : 1;
    job.streaming = bytes >= STREAM_FROM;
    if (weight && p->shared) job.shared = (REAL)(p->offset + element(p->weight_type, weight, 0));
    else job.gain = T(as_real)(p->weight_type, weight, dim, p->offset, &next);
    if (gain_sums) job.dgain = next, next += chunks * dim;
    if (bias_sums) job.dbias = next;
    if (dweight && p->shared) job.dshared = dshared;
    expect_writes(dx, bytes);
    share(T(backward_chunks), &job, chunks, rows * dim);
    if (gain_sums) T(add_partials)(job.dgain, chunks, dim, p->weight_type, dweight);
    if (bias_sums) T(add_partials)(job.dbias, chunks, dim, p->bias_type, dbias);
    if (job.dshared) {
        double sum = 0;
        for (int64_t c = 0; c < chunks; c++) sum += dshared[c];
        put_element(p->weight_type, dweight, 0, sum);
    }
    free(room);
    return 0;
}
