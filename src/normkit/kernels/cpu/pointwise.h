/* The pointwise template: y = scale * f(alpha * x + shift) * gain + bias, entry by entry. Included once per element type.
 *
 * A row is `width` entries; its gain is one per entry (features last) or one for the row (channels first, by_row).
 * ELN is the member whose parameter is not a factor: f = x / sqrt(beta + x^2), with alpha's place taken by beta.
 * Arithmetic is float. Gradients of scalars are summed per chunk of rows in double, then over chunks in order.
 */

typedef struct {
    const PointPlan *plan;
    int64_t rows, chunk;
    const ELEM *x, *grad;
    ELEM *out;
    const float *gain, *bias;
    float alpha, shift, scale;
    float *dgain, *dbias;                   /* a row of sums per chunk, or by_row one number per row */
    double *dalpha, *dshift;
    int streaming;
} T(PointJob);

/* f of a block; `u` is alpha * x + shift, or x itself for ELN. */
static void T(values)(int function, const float *x, float alpha, float shift, float *f, int n)
{
#define EACH(expression)                                                                                             \
    do {                                                                                                             \
        _Pragma("omp simd") for (int i = 0; i < n; i++) {                                                            \
            float u = alpha * x[i] + shift;                                                                          \
            f[i] = expression;                                                                                       \
        }                                                                                                            \
        return;                                                                                                      \
    } while (0)
    switch (function) {
    case ERF: EACH(erf_of(u));
    case TANH: EACH(tanh_of(u));
    case ISRU: EACH(u / sqrtf(u * u + 1));
    case ARCTAN: EACH(0.636619772f * arctan_of(u));
    case EXPSIGN: EACH(expsign_of(u));
    case SATURSIN: EACH(sine_of(u));
    }
#undef EACH
#pragma omp simd
    for (int i = 0; i < n; i++) f[i] = x[i] / sqrtf(alpha + x[i] * x[i]);
}

/* f and its slope, NaN where f is. For ELN q = (beta + x^2)^(-1/2) is in its place: its cube would overflow for small x. */
static void T(values_and_slopes)(int function, const float *x, float alpha, float shift, float *f, float *d, int n)
{
#define EACH(statements)                                                                                             \
    do {                                                                                                             \
        _Pragma("omp simd") for (int i = 0; i < n; i++) {                                                            \
            float u = alpha * x[i] + shift;                                                                          \
            statements;                                                                                              \
        }                                                                                                            \
        return;                                                                                                      \
    } while (0)
    switch (function) {
    case ERF: EACH(f[i] = erf_of(u); d[i] = erf_slope(u));
    case TANH: EACH(float v = tanh_of(u); f[i] = v; d[i] = 1 - v * v);
    case ISRU: EACH(float q = 1 / sqrtf(u * u + 1); f[i] = u * q; d[i] = q * q * q + 0 * f[i]);
    case ARCTAN: EACH(f[i] = 0.636619772f * arctan_of(u); d[i] = 0.636619772f / (1 + u * u));
    case EXPSIGN: EACH(float v = expsign_of(u); f[i] = v; d[i] = u == 0 ? 0 : 1 - fabsf(v));
    case SATURSIN: EACH(f[i] = sine_of(u); d[i] = sine_slope(u));
    }
#undef EACH
#pragma omp simd
    for (int i = 0; i < n; i++) {
        float q = 1 / sqrtf(alpha + x[i] * x[i]);
        f[i] = x[i] * q;
        d[i] = q + 0 * f[i];
    }
}

/* dx of ELN, t beta q^3, and its terms of -2 dbeta, t x q^3, in this order for what beta = 0 and small x leave finite. */
static void T(eln_block)(const float *f, const float *g, const float *gain, float factor, float beta, float *d, float *o, int n)
{
    if (gain) {
#pragma omp simd
        for (int i = 0; i < n; i++) {
            float s = d[i] * d[i], t = g[i] * gain[i] * factor;
            o[i] = beta * s * d[i] * t, d[i] = s * f[i] * t;
        }
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++) {
            float s = d[i] * d[i], t = g[i] * factor;
            o[i] = beta * s * d[i] * t, d[i] = s * f[i] * t;
        }
    }
}

static void T(point_forward_rows)(void *job, int64_t begin, int64_t end)
{
    const T(PointJob) *j = job;
    const PointPlan *p = j->plan;
    ROOM(room); ROOM(room_o); ROOM(f);
    for (int64_t row = begin; row < end; row++) {
        float gain = j->scale, bias = 0;
        if (p->by_row && j->gain) gain *= j->gain[row % p->dim];
        if (p->by_row && j->bias) bias = j->bias[row % p->dim];
        EACH_BLOCK(p->width) {
            int64_t start = row * p->width + at;
            T(fetch_next)(j->x + start, 0, j->out + start, j->streaming, (int)n);
            const float *b = T(read)(j->x + start, room, n);
            float *o = T(place)(j->out + start, room_o, j->streaming);
            T(values)(p->function, b, j->alpha, j->shift, f, n);
            if (p->by_row) {
#pragma omp simd
                for (int i = 0; i < (int)n; i++) o[i] = f[i] * gain + bias;
            } else {
                T(affine)(f, gain, j->gain ? j->gain + at : 0, j->bias ? j->bias + at : 0, o, n);
            }
            T(store)(j->out + start, o, n, j->streaming);
        }
    }
    if (j->streaming) finish_stream();
}

typedef struct { double alpha, shift, gain, bias; } T(PointSums);

/* One block of the backward pass: dx, and the sums. `gain` is an array, or absent and then `factor` is all the gain there is. */
static void T(point_block)(const T(PointJob) *j, const float *b, const float *g, const float *gain, float factor, float *o,
                           float *dgain, float *dbias, T(PointSums) *sums, int n)
{
    ROOM(f); ROOM(d);
    T(values_and_slopes)(j->plan->function, b, j->alpha, j->shift, f, d, n);
    float alpha = j->alpha, scale = j->scale;
    if (dgain && dbias) {
#pragma omp simd
        for (int i = 0; i < n; i++) dgain[i] += scale * (g[i] * f[i]), dbias[i] += g[i];
    } else if (dgain) {
#pragma omp simd
        for (int i = 0; i < n; i++) dgain[i] += scale * (g[i] * f[i]);
    } else if (dbias) {
#pragma omp simd
        for (int i = 0; i < n; i++) dbias[i] += g[i];
    }
    if (j->plan->by_row && j->dgain) sums->gain += T(dot)(g, f, n);
    if (j->plan->by_row && j->dbias) sums->bias += T(total)(g, n);
    if (j->plan->function == ELN) {
        T(eln_block)(f, g, gain, factor, alpha, d, o, n);
        if (j->dalpha) sums->alpha += T(total)(d, n);
        return;
    }
    if (gain) {
#pragma omp simd
        for (int i = 0; i < n; i++) d[i] *= g[i] * gain[i] * factor, o[i] = d[i] * alpha;
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++) d[i] *= g[i] * factor, o[i] = d[i] * alpha;
    }
    if (j->plan->function == SATURSIN) {                         /* what is clipped takes nothing, not even NaN */
#pragma omp simd
        for (int i = 0; i < n; i++) {
            int clipped = !(fabsf(alpha * b[i] + j->shift) <= 1.57079633f);
            d[i] = clipped ? 0 : d[i], o[i] = clipped ? 0 : o[i];
        }
    }
    if (j->dalpha) sums->alpha += T(dot)(d, b, n);
    if (j->dshift) sums->shift += T(total)(d, n);
}

static void T(point_backward_row)(const T(PointJob) *j, int64_t row, float *dgain, float *dbias, T(PointSums) *sums)
{
    const PointPlan *p = j->plan;
    float factor = j->scale * (p->by_row && j->gain ? j->gain[row % p->dim] : 1);
    int64_t start = row * p->width;
    ROOM(room_x); ROOM(room_g); ROOM(room_o);
    sums->gain = sums->bias = 0;
    EACH_BLOCK(p->width) {
        T(fetch_next)(j->x + start + at, j->grad + start + at, j->out + start + at, j->streaming, (int)n);
        const float *b = T(read)(j->x + start + at, room_x, n), *g = T(read)(j->grad + start + at, room_g, n);
        float *o = T(place)(j->out + start + at, room_o, j->streaming);
        const float *gain = !p->by_row && j->gain ? j->gain + at : 0;
        T(point_block)(j, b, g, gain, factor, o, dgain ? dgain + at : 0, dbias ? dbias + at : 0, sums, n);
        T(store)(j->out + start + at, o, n, j->streaming);
    }
    if (p->by_row && j->dgain) j->dgain[row] = (float)(sums->gain * j->scale);
    if (p->by_row && j->dbias) j->dbias[row] = (float)sums->bias;
}

static void T(point_backward_chunks)(void *job, int64_t begin, int64_t end)
{
    const T(PointJob) *j = job;
    const PointPlan *p = j->plan;
    for (int64_t c = begin; c < end; c++) {
        float *dgain = j->dgain && !p->by_row ? j->dgain + c * p->dim : 0;
        float *dbias = j->dbias && !p->by_row ? j->dbias + c * p->dim : 0;
        T(PointSums) sums = {0, 0, 0, 0};
        if (dgain) memset(dgain, 0, p->dim * sizeof(float));
        if (dbias) memset(dbias, 0, p->dim * sizeof(float));
        int64_t stop = (c + 1) * j->chunk < j->rows ? (c + 1) * j->chunk : j->rows;
        for (int64_t row = c * j->chunk; row < stop; row++) T(point_backward_row)(j, row, dgain, dbias, &sums);
        if (j->dalpha) j->dalpha[c] = p->function == ELN ? -0.5 * sums.alpha : sums.alpha;
        if (j->dshift) j->dshift[c] = sums.shift;
    }
    if (j->streaming) finish_stream();
}

/* The parts of a job that forward and backward share; 1 if there is no memory. `room` is to be freed. */
static int T(point_job)(T(PointJob) *j, const PointPlan *p, int64_t rows, const void *x, const void *alpha, const void *shift,
                        const void *weight, const void *bias, void *out, float **room)
{
    *room = weight || bias ? scratch(2 * p->dim * sizeof(float)) : 0;
    if ((weight || bias) && !*room) return 1;
    float *next = *room;
    *j = (T(PointJob)){.plan = p, .rows = rows, .x = x, .out = out, .scale = (float)p->scale};
    j->alpha = (float)element(p->alpha_type, alpha, 0);
    j->shift = shift ? (float)element(p->shift_type, shift, 0) : 0;
    j->gain = T(as_real)(p->weight_type, weight, p->dim, 0, &next);
    j->bias = T(as_real)(p->bias_type, bias, p->dim, 0, &next);
    j->streaming = (size_t)rows * p->width * sizeof(ELEM) >= STREAM_FROM;
    expect_writes(out, rows * p->width * sizeof(ELEM));
    return 0;
}

static int T(point_forward)(const PointPlan *p, int64_t rows, const void *x, const void *alpha, const void *shift,
                            const void *weight, const void *bias, void *y)
{
    T(PointJob) job;
    float *room;
    if (T(point_job)(&job, p, rows, x, alpha, shift, weight, bias, y, &room)) return 1;
    share(T(point_forward_rows), &job, rows, rows * p->width);
    free(room);
    return 0;
}

static double T(in_order)(const double *partial, int64_t chunks)
{
    double sum = 0;
    for (int64_t c = 0; c < chunks; c++) sum += partial[c];
    return sum;
}

static int T(point_backward)(const PointPlan *p, int64_t rows, const void *x, const void *grad, const void *alpha,
                             const void *shift, const void *weight, void *dx, void *dalpha, void *dshift, void *dweight, void *dbias)
{
    T(PointJob) job;
    float *room;
    int64_t chunk = chunk_rows(rows, p->width), chunks = (rows + chunk - 1) / chunk, sums = p->by_row ? rows : chunks * p->dim;
    if (T(point_job)(&job, p, rows, x, alpha, shift, weight, 0, dx, &room)) return 1;
    double *partial = scratch(2 * MOST_CHUNKS * sizeof(double) + sums * ((dweight != 0) + (dbias != 0)) * sizeof(float));
    if (!partial) { free(room); return 1; }
    job.grad = grad, job.chunk = chunk;
    if (dalpha) job.dalpha = partial;
    if (dshift) job.dshift = partial + MOST_CHUNKS;
    float *next = (float *)(partial + 2 * MOST_CHUNKS);
    if (dweight) job.dgain = next, next += sums;
    if (dbias) job.dbias = next;
    share(T(point_backward_chunks), &job, chunks, rows * p->width);
    if (dalpha) put_element(p->alpha_type, dalpha, 0, T(in_order)(job.dalpha, chunks));
    if (dshift) put_element(p->shift_type, dshift, 0, T(in_order)(job.dshift, chunks));
    if (dweight) T(add_partials)(job.dgain, sums / p->dim, p->dim, p->weight_type, dweight);
    if (dbias) T(add_partials)(job.dbias, sums / p->dim, p->dim, p->bias_type, dbias);
    free(partial);
    free(room);
    return 0;
}
