/* The channel template: statistics over samples or space of (N, C, *space), in either memory format. Once per element type.
 *
 *   y = (x - mean) * r * weight + bias                          AFFINE       r = 1 / sqrt(var + eps), per unit
 *   y = max((x - mean) * r * weight + bias, tau)                THRESHOLD
 *   y = x * sigmoid(v x) * r * weight + bias                    SWISH
 *   y = clamp((x - mean) * r * weight + bias, -limit, limit)    CLAMP
 *   dx = g' * weight * r - (x - mean) * r * pull - rest         g' = the gradient behind the activation
 *
 * A unit is what shares a statistic: a channel of all samples, or a group of channels of one. With SHARE the statistic is the
 * length G of a channel, r its reciprocal, and the gain is weight * G / (mean of G over channels + eps) + 1. With ONLINE a unit is a
 * channel of one sample, normalized by moments that run from sample to sample.
 *
 * All that differs between channels is worked out once per sample and channel as seven coefficients (settle). Channels first, a
 * plane is read with its coefficients fixed; channels last, a row of channels is read along the rows of coefficients. In both, the
 * order of every addition depends on the shape alone.
 */

#ifndef CHANNEL_H
#define CHANNEL_H
enum { MEAN, GAIN, SHIFT, EXTRA, RECIPROCAL, PULL, REST, COEFFICIENTS };
enum { TOGETHER = 4 };                  /* channels, of all samples, worked on at once */
enum { RUN = 32 };                       /* lanes of one unit, or channels, that are added up by themselves */

/* How many threads share() would use. */
static inline int thread_count(void)
{
#ifdef _OPENMP
    return omp_in_parallel() ? 1 : omp_get_max_threads();
#else
    return 1;
#endif
}
#endif

INLINE V T(sigmoid)(V x)
{
#if REAL_TYPE_IS_FLOAT
    V t = T(magnitude)(x);
    t = T(select)((M)(t > 87), T(all)(87), t);
    V shifted = t * -1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    V r = (-t - n * 0.693359375f) + n * 2.12194440e-4f;
    V p = (((r * 0.00138146083f + 0.0083687103f) * r + 0.0416683875f) * r + 0.166665207f) * r + 0.499999935f;
    p = p * (r * r) + r + 1;
    V e = (V)((M)p + ((M)shifted << 23));
    return T(select)((M)(x < 0), e, T(all)(1)) / (1 + e);
#else
    V s;
    for (int i = 0; i < LANES; i++) s[i] = 1 / (1 + exp(-x[i]));
    return s;
#endif
}

typedef struct {
    const ChannelPlan *plan;
    int64_t samples, units, group, lanes, stride, chunk, chunks;  /* group: channels of a unit; lanes: channels, repeated to fill a row */
    const ELEM *x, *grad;
    ELEM *out;
    REAL *weight, *bias, *extra;                             /* per channel */
    double *mean, *var, *level;                              /* per unit, per unit, per sample */
    double *own_mean, *own_var;                              /* per unit; ONLINE only, where mean and var are those before a sample */
    double *state;                                           /* per channel: two; ONLINE only: mean, var; backward u, v */
    double *pull, *rest, *part;                              /* per unit; null in a forward pass */
    double *sums;                                            /* per sample and channel: three */
    double *partial;                                         /* per sample, chunk and lane: three; channels last only */
    REAL *coefficients;                                      /* per sample: seven rows of lanes; channels last only */
    int streaming, reduce, failed;
} T(ChannelJob);

typedef T(ChannelJob) T(Job);

static inline int64_t T(unit_of)(const T(Job) *j, int64_t n, int64_t c)
{
    return j->plan->over_samples ? c : n * j->plan->groups + c / j->group;
}

static inline int64_t T(values_of_unit)(const T(Job) *j)
{
    return (j->plan->over_samples ? j->samples : j->group) * j->plan->space;
}

static inline int T(centered)(const T(Job) *j) { return j->plan->statistic == DEVIATION || j->plan->statistic == ONLINE; }

static inline double T(reciprocal_of)(const T(Job) *j, int64_t u)
{
    if (j->plan->statistic == SHARE) return j->var[u] == 0 ? 0 : 1 / j->var[u];
    return 1 / sqrt(j->var[u] + j->plan->eps);
}

static inline double T(finite)(double value) { return value - value == 0 ? value : 0; }

/* What the rounding of a unit's mean to REAL leaves of it; of one that is not finite, nothing. */
static inline double T(left_of)(const T(Job) *j, int64_t u) { return T(finite)(j->mean[u] - (REAL)j->mean[u]); }

/* The mean is stored as REAL; what its rounding leaves is carried in the constants, so that an offset costs no digits. */
static void T(settle)(const T(Job) *j, int64_t n, int64_t c, REAL *to, int64_t stride)
{
    int64_t u = T(unit_of)(j, n, c);
    double r = T(reciprocal_of)(j, u), w = j->weight[c], gain = w * r;
    REAL mean = (REAL)j->mean[u];
    double left = T(left_of)(j, u);
    if (j->plan->statistic == SHARE) gain = w * (j->var[u] / j->level[n]) + 1;
    to[MEAN * stride] = mean;
    to[GAIN * stride] = (REAL)gain;
    to[SHIFT * stride] = (REAL)(j->bias[c] - (j->plan->activation == SWISH ? 0 : T(finite)(left * gain)));
    to[EXTRA * stride] = j->extra[c];
    if (!j->pull) return;
    to[RECIPROCAL * stride] = (REAL)r;
    to[PULL * stride] = (REAL)j->pull[u];
    to[REST * stride] = (REAL)(j->rest[u] - T(finite)(left * r * j->pull[u]));
}

/* Below, `k` holds the coefficients of a vector of values. */

INLINE V T(bend)(int activation, V b, const V *k)
{
    if (activation == SWISH) return b * T(sigmoid)(k[EXTRA] * b) * k[GAIN] + k[SHIFT];
    V z = (b - k[MEAN]) * k[GAIN] + k[SHIFT];
    if (activation == THRESHOLD) return T(select)((M)(z >= k[EXTRA]) | (M)(z != z), z, k[EXTRA]);     /* NaN if either is */
    if (activation == AFFINE) return z;
    z = T(select)((M)(z > k[EXTRA]), k[EXTRA], z);
    return T(select)((M)(z < -k[EXTRA]), -k[EXTRA], z);
}

/* The gradient that passes an activation. A tie with the threshold lets half of it through, one with the limit all of it. */
INLINE V T(passed)(int activation, V b, V g, const V *k)
{
    if (activation == AFFINE) return g;
    V z = (b - k[MEAN]) * k[GAIN] + k[SHIFT];
    if (activation == CLAMP) return T(select)((M)(T(magnitude)(z) <= k[EXTRA]), g, (V){0});
    return T(select)((M)(z < k[EXTRA]), (V){0}, T(select)((M)(z == k[EXTRA]), g / 2, g));
}

INLINE V T(unbend)(int activation, V b, V g, const V *k)
{
    V pulled = (b - k[MEAN]) * k[RECIPROCAL] * k[PULL];
    V remainder = T(select)((M)(k[PULL] == 0), (V){0}, pulled) + k[REST];      /* nothing pulls at given moments, not even infinity */
    if (activation != SWISH) return T(passed)(activation, b, g, k) * k[GAIN] - remainder;
    V z = k[EXTRA] * b, s = T(sigmoid)(z);
    return g * (s + z * s * (1 - s)) * k[GAIN] - remainder;
}

/* What a gradient needs to be summed over: g', g' times what the gain multiplies, and the derivative of the extra. */
INLINE void T(terms)(int activation, V b, V g, const V *k, V *to)
{
    if (activation == SWISH) {
        V s = T(sigmoid)(k[EXTRA] * b), t = g * b;
        to[0] = g, to[1] = t * s, to[2] = t * (s * (1 - s)) * b;          /* in this order no large b overflows */
        return;
    }
    V h = T(passed)(activation, b, g, k);
    to[0] = h, to[1] = h * (b - k[MEAN]);
    if (activation != THRESHOLD) return;
    V z = (b - k[MEAN]) * k[GAIN] + k[SHIFT];                    /* NaN passes to both, as torch.maximum has it */
    to[2] = T(select)((M)(z > k[EXTRA]), (V){0}, T(select)((M)(z == k[EXTRA]), g / 2, g));
}

/* Adds the terms of n values; those beyond are 0, but 0 times an infinite mean or slope would not be. */
INLINE void T(sum_up)(int activation, V b, V g, const V *k, V *sums, int n)
{
    V more[3];
    int count = activation == AFFINE || activation == CLAMP ? 2 : 3;
    T(terms)(activation, b, g, k, more);
    for (int i = 0; i < count; i++) sums[i] += n < LANES ? T(select)(T(first)(n), more[i], (V){0}) : more[i];
}

/* Calls `work` with the activation as a constant, so that its loop has no branches. */
#define BY_ACTIVATION(activation, work, ...)                                                                         \
    switch (activation) {                                                                                            \
    case AFFINE: work(AFFINE, __VA_ARGS__); break;                                                                   \
    case THRESHOLD: work(THRESHOLD, __VA_ARGS__); break;                                                             \
    case CLAMP: work(CLAMP, __VA_ARGS__); break;                                                                     \
    default: work(SWISH, __VA_ARGS__);                                                                               \
    }

INLINE void T(put)(ELEM *to, V v, int past, int n)
{
    if (n < LANES) T(save_some)(to, v, n);
    else if (past) T(save_past)(to, v);
    else T(save)(to, v);
}

/* ONLINE: the sample is normalized by the running moments as they are; then they take in its own, be its squares too large to add
 * up or not: an infinite variance would stay for ever. */
static void T(run_on)(const T(Job) *j, int64_t u)
{
    double *mean = j->state + u % j->plan->channels, *var = mean + j->plan->channels, keep = j->plan->decay;
    double off = j->mean[u] - *mean, most = REAL_TYPE_IS_FLOAT ? FLT_MAX : DBL_MAX;
    j->own_mean[u] = j->mean[u], j->own_var[u] = j->var[u] > most ? most : j->var[u];
    j->mean[u] = *mean, j->var[u] = *var;
    *var = keep * *var + (1 - keep) * (j->own_var[u] + keep * off * off);
    *mean += (1 - keep) * off;
}

/* ONLINE: from the means of g' and g' h over space, h the normalized values; the pulls are u and v, which then move. */
static void T(control)(const T(Job) *j, int64_t n, double total, double along)
{
    double *u = j->state + n % j->plan->channels, *v = u + j->plan->channels, share = 1 - j->plan->decay;
    double r = T(reciprocal_of)(j, n), off = (j->own_mean[n] - j->mean[n]) * r, square = off * off + j->own_var[n] * r * r;
    j->pull[n] = share * *v * r, j->rest[n] = share * *u;
    *u += (total - share * *v * off) * r - j->rest[n];
    *v += along * r - share * *v * square;
}

/* What the gradients of a unit's values have in common: how they pull at the statistic, and at the mean. */
static void T(settle_unit)(const T(Job) *j, int64_t u)
{
    const ChannelPlan *p = j->plan;
    int64_t first = p->over_samples ? u : u * j->group, step = p->over_samples ? p->channels : 1;
    int64_t planes = p->over_samples ? j->samples : j->group;
    double total = 0, along = 0, r = T(reciprocal_of)(j, u), left = T(left_of)(j, u), values = T(values_of_unit)(j);
    for (int64_t i = 0, at = first; i < planes; i++, at += step) {
        double *sums = j->sums + 3 * at, w = j->weight[at % p->channels];
        if (p->activation != SWISH) sums[1] -= left * sums[0];
        total += w * sums[0];
        along += w * sums[1];
    }
    j->part[u] = along;
    if (p->statistic == ONLINE) { T(control)(j, u, total / values, along / values); return; }
    j->pull[u] = p->statistic == GIVEN ? 0 : r * r * along / values;
    j->rest[u] = p->statistic != DEVIATION || p->activation == SWISH ? 0 : r * total / values;
}

/* SHARE: each length also moves the mean of the lengths, which all channels of the sample are divided by. */
static void T(settle_shares)(const T(Job) *j, int64_t n)
{
    int64_t channels = j->plan->channels, first = n * channels;
    double common = 0, level = j->level[n];
    for (int64_t c = 0; c < channels; c++) common += j->weight[c] * j->sums[3 * (first + c) + 1] * j->var[first + c];
    for (int64_t c = 0; c < channels; c++)
        j->pull[first + c] = common / (level * level * channels) - j->weight[c] * j->sums[3 * (first + c) + 1] / level;
}

static void T(level_of)(const T(Job) *j, int64_t n)
{
    int64_t channels = j->plan->channels;
    double sum = 0;
    for (int64_t c = 0; c < channels;) {
        int64_t end = channels - c < RUN ? channels : c + RUN;
        double run = 0;
        for (; c < end; c++) run += j->var[n * channels + c];
        sum += run;
    }
    j->level[n] = sum / channels + j->plan->eps;
}

/* ---- channels first: planes of one sample and channel ---- */

/* Adds up the units from `begin` to `end`, sample by sample. */
static void T(take_units)(const T(Job) *j, int64_t begin, int64_t end, T(Taken) *taken)
{
    const ChannelPlan *p = j->plan;
    int64_t runs = p->over_samples ? j->samples : 1, length = p->over_samples ? p->space : p->space * j->group;
    for (int64_t i = 0; i < runs; i++)
        for (int64_t u = begin; u < end; u++) T(take)(j->x + (i * p->channels * p->space) + u * length, length, &taken[u - begin]);
}

/* Statistics of the units from `begin` to `end`, at most TOGETHER. */
static void T(measure_together)(const T(Job) *j, int64_t begin, int64_t end)
{
    const ChannelPlan *p = j->plan;
    int64_t runs = p->over_samples ? j->samples : 1, length = p->over_samples ? p->space : p->space * j->group;
    int centered = T(centered)(j);
    double n = (double)runs * length, share = 1 / n;
    T(Taken) taken[TOGETHER] = {{0, 0, 0}};
    for (int64_t u = begin; u < end && centered; u++)
        taken[u - begin].pivot = T(pilot)(j->x + u * length, length, runs, p->channels * p->space);
    T(take_units)(j, begin, end, taken);
    for (int64_t u = begin; u < end; u++) {
        T(Taken) *t = &taken[u - begin];
        if (centered && T(astray)(*t, share)) {
            *t = T(about_mean)(*t, share);
            T(take_units)(j, u, u + 1, t);
        }
        j->mean[u] = centered ? T(mean_of)(*t, share) : 0;
        j->var[u] = p->statistic == SHARE ? sqrt(t->square) : (centered ? T(squares_of)(*t, share) : t->square) / n;
    }
}

static void T(settle_plane)(const T(Job) *j, int64_t n, int64_t c, V *k)
{
    REAL one[COEFFICIENTS] = {0};
    T(settle)(j, n, c, one, 1);
    for (int i = 0; i < COEFFICIENTS; i++) k[i] = T(all)(one[i]);
}

INLINE void T(write_some)(int activation, const T(Job) *j, const ELEM *x, const ELEM *grad, ELEM *out, const V *k, int past, int n)
{
    T(put)(out, j->pull ? T(unbend)(activation, GET(x, n), GET(grad, n), k) : T(bend)(activation, GET(x, n), k), past, n);
}

/* The job is taken by value, since a pointer's fields would be read anew after every store. */
INLINE void T(write_values)(int activation, T(Job) j, const ELEM *x, const ELEM *grad, ELEM *out, const V *k, int past)
{
    int64_t at = 0, space = j.plan->space;
    for (; at + LANES <= space; at += LANES) {
        if (!past) fetch_to(out + at + AHEAD);
        T(write_some)(activation, &j, x + at, grad + at, out + at, k, past, LANES);
    }
    if (at < space) T(write_some)(activation, &j, x + at, grad + at, out + at, k, past, (int)(space - at));
}

static void T(write_plane)(const T(Job) *j, int64_t n, int64_t c)
{
    int64_t from = (n * j->plan->channels + c) * j->plan->space;
    V k[COEFFICIENTS];
    T(settle_plane)(j, n, c, k);
    if (j->streaming) BY_ACTIVATION(j->plan->activation, T(write_values), *j, j->x + from, (j->grad ? j->grad + from : 0), j->out + from, k, 1)
    else BY_ACTIVATION(j->plan->activation, T(write_values), *j, j->x + from, (j->grad ? j->grad + from : 0), j->out + from, k, 0)
}

INLINE void T(sum_values)(int activation, const ELEM *x, const ELEM *grad, int64_t space, const V *k, double *sums)
{
    int64_t at = 0;
    while (at < space) {
        V even[3] = {{0}}, odd[3] = {{0}};
        int64_t stop = space - at > DEPTH * LANES ? at + DEPTH * LANES : space;
        for (; at + 2 * LANES <= stop; at += 2 * LANES) {
            T(sum_up)(activation, T(load)(x + at), T(load)(grad + at), k, even, LANES);
            T(sum_up)(activation, T(load)(x + at + LANES), T(load)(grad + at + LANES), k, odd, LANES);
        }
        for (; at < stop; at += LANES) {
            int n = stop - at < LANES ? (int)(stop - at) : LANES;
            T(sum_up)(activation, GET(x + at, n), GET(grad + at, n), k, even, n);
        }
        for (int i = 0; i < 3; i++) sums[i] += T(across)(even[i] + odd[i]);
    }
}

static void T(reduce_plane)(const T(Job) *j, int64_t n, int64_t c)
{
    int64_t plane = n * j->plan->channels + c, from = plane * j->plan->space;
    double *sums = j->sums + 3 * plane;
    V k[COEFFICIENTS];
    T(settle_plane)(j, n, c, k);
    sums[0] = sums[1] = sums[2] = 0;
    BY_ACTIVATION(j->plan->activation, T(sum_values), j->x + from, (j->grad ? j->grad + from : 0), j->plan->space, k, sums)
}

/* Calls `work` on the planes of units, in the order of memory. */
static void T(each_plane)(const T(Job) *j, int64_t begin, int64_t end, void (*work)(const T(Job) *, int64_t, int64_t))
{
    int64_t channels = j->plan->channels;
    if (j->plan->over_samples) {
        for (int64_t n = 0; n < j->samples; n++)
            for (int64_t u = begin; u < end; u++) work(j, n, u);
    } else {
        for (int64_t i = begin * j->group; i < end * j->group; i++) work(j, i / channels, i % channels);
    }
}

static void T(measure_units)(void *job, int64_t begin, int64_t end)
{
    T(Job) *j = job;
    if (j->pull) T(each_plane)(j, begin, end, T(reduce_plane));
    else for (int64_t u = begin; u < end; u++) T(measure_together)(j, u, u + 1);
}

/* With given moments every plane is on its own: in the order of memory. */
static void T(finish_planes)(void *job, int64_t begin, int64_t end)
{
    T(Job) *j = job;
    for (int64_t i = begin; i < end; i++) {
        if (j->pull && j->reduce) T(reduce_plane)(j, i / j->plan->channels, i % j->plan->channels);
        if (j->out) T(write_plane)(j, i / j->plan->channels, i % j->plan->channels);
    }
    if (j->streaming) finish_stream();
}

/* Units that need nothing of each other: a few at a time, so that the second pass finds the values in the cache. Units that reach
 * over samples go together, sample by sample, since a plane alone is too short a read. */
static void T(finish_units)(void *job, int64_t begin, int64_t end)
{
    T(Job) *j = job;
    int64_t together = j->plan->over_samples ? TOGETHER : 1;
    for (int64_t u = begin; u < end; u += together) {
        int64_t stop = u + together < end ? u + together : end;
        if (!j->pull) T(measure_together)(j, u, stop);
        else T(each_plane)(j, u, stop, T(reduce_plane));
        for (int64_t i = u; i < stop && j->pull; i++) T(settle_unit)(j, i);
        if (j->out) T(each_plane)(j, u, stop, T(write_plane));
    }
    if (j->streaming) finish_stream();
}

/* ONLINE: the samples of a channel in their order. */
static void T(finish_channels)(void *job, int64_t begin, int64_t end)
{
    T(Job) *j = job;
    for (int64_t n = 0; n < j->samples; n++)
        for (int64_t c = begin; c < end; c++) {
            int64_t u = n * j->plan->channels + c;
            T(measure_units)(j, u, u + 1);
            if (j->pull) T(settle_unit)(j, u);
            else T(run_on)(j, u);
            if (j->out) T(write_plane)(j, n, c);
        }
    if (j->streaming) finish_stream();
}

/* ---- channels last: rows of channels ---- */

/* A chunk of a sample: its values from `begin` to `end`, whole rows of lanes but for the sample's last. */
typedef struct { int64_t begin, end; const ELEM *x, *grad; ELEM *out; double *partial; const REAL *k; } T(Chunk);

static T(Chunk) T(chunk_of)(const T(Job) *j, int64_t index)
{
    int64_t n = index / j->chunks, i = index % j->chunks, size = j->plan->channels * j->plan->space;
    T(Chunk) chunk = {i * j->chunk, (i + 1) * j->chunk < size ? (i + 1) * j->chunk : size};
    chunk.x = j->x + n * size;
    chunk.grad = j->grad ? j->grad + n * size : 0;
    chunk.out = j->out ? j->out + n * size : 0;
    chunk.partial = j->partial + index * 3 * j->stride;
    chunk.k = j->coefficients + n * COEFFICIENTS * j->stride;
    return chunk;
}

/* Runs `statement` for every vector of every row: `at` is its place in the sample, `col` its lane, n its length. Rows go four by
 * four, so that `before` and `after`, what is per lane, is done once for four; the last row may be shorter. */
#define EACH_ROW_VECTOR(chunk, lanes, before, statement, after)                                                      \
    for (int64_t row = (chunk).begin, many = 0; row < (chunk).end; row += many * (lanes)) {                          \
        int64_t width = (chunk).end - row < (lanes) ? (chunk).end - row : (lanes);                                   \
        many = (chunk).end - row >= 4 * (lanes) ? 4 : 1;                                                             \
        for (int64_t col = 0; col < width; col += LANES) {                                                           \
            int n = width - col < LANES ? (int)(width - col) : LANES;                                                \
            before;                                                                                                  \
            if (many == 4 && n == LANES) {                                                                           \
                _Pragma("GCC unroll 4") for (int q = 0; q < 4; q++) {                                                \
                    int64_t at = row + q * (lanes) + col;                                                            \
                    const int n = LANES;                                                                             \
                    statement;                                                                                       \
                }                                                                                                    \
            } else {                                                                                                 \
                for (int q = 0; q < (int)many; q++) {                                                                \
                    int64_t at = row + q * (lanes) + col;                                                            \
                    statement;                                                                                       \
                }                                                                                                    \
            }                                                                                                        \
            after;                                                                                                   \
        }                                                                                                            \
    }

/* Per lane the mean of a few rows from here and there; where there is less than one row, of that. */
static void T(find_pivots)(T(Chunk) chunk, int64_t lanes, REAL *pivot)
{
    T(Chunk) part = chunk;
    int64_t rows = (chunk.end - chunk.begin) / lanes, few = rows < PILOT ? rows + !rows : PILOT;
    V share = T(all)((REAL)1 / (REAL)few);
    for (int64_t i = 0; i < few; i++) {
        part.begin = chunk.begin + i * rows / few * lanes, part.end = rows ? part.begin + lanes : chunk.end;
        EACH_ROW_VECTOR(part, lanes, V sum = T(load_real)(pivot + col), sum += GET(part.x + at, n) * share, T(save_real)(pivot + col, sum))
    }
}

static void T(flush)(REAL *rows, double *partial, int64_t stride)
{
    for (int64_t i = 0; i < 3 * stride; i++) partial[i] += rows[i], rows[i] = 0;
}

/* Adds up, per lane, a chunk's values less their pivots and the squares of these into its partial sums. */
static void T(take_chunk)(const T(Job) *j, T(Chunk) all, const REAL *pivot, REAL *room)
{
    int64_t lanes = j->lanes, stride = j->stride;
    REAL *sums = room, *squares = room + stride;
    T(Chunk) part = all;
    for (int64_t i = 0; i < 3 * stride; i++) room[i] = 0, all.partial[i] = 0;
    for (; part.begin < all.end; part.begin = part.end) {
        part.end = all.end - part.begin > DEPTH * lanes ? part.begin + DEPTH * lanes : all.end;
        EACH_ROW_VECTOR(part, lanes,
            V p = T(load_real)(pivot + col); V sum = T(load_real)(sums + col); V square = T(load_real)(squares + col),
            T(take_some)(part.x + at, p, n, &sum, &square),
            T(save_real)(sums + col, sum); T(save_real)(squares + col, square))
        T(flush)(sums, all.partial, stride);
    }
}

/* What was added up about a lane's pivot. */
static inline T(Taken) T(taken_of)(const T(Job) *j, T(Chunk) chunk, const REAL *pivot, int64_t lane)
{
    return (T(Taken)){pivot[lane], chunk.partial[lane], chunk.partial[j->stride + lane]};
}

/* Moves pivots that turned out astray to the means found; tells whether there were any. */
static int T(mend_pivots)(const T(Job) *j, T(Chunk) chunk, REAL *pivot)
{
    int64_t size = chunk.end - chunk.begin, rows = size / j->lanes, rest = size % j->lanes;
    int any = 0;
    for (int64_t i = 0; i < (rows ? j->lanes : rest); i++) {
        T(Taken) t = T(taken_of)(j, chunk, pivot, i);
        double share = 1 / (double)(rows + (i < rest));
        if (T(astray)(t, share)) pivot[i] = T(about_mean)(t, share).pivot, any = 1;
    }
    return any;
}

/* Per lane the mean of its values, the sum of squares about it and their number. */
static void T(measure_chunk)(const T(Job) *j, int64_t index, REAL *room)
{
    T(Chunk) chunk = T(chunk_of)(j, index);
    int64_t size = chunk.end - chunk.begin, rows = size / j->lanes, rest = size % j->lanes;
    REAL *pivot = room, *sums = room + j->stride;
    for (int64_t i = 0; i < j->stride; i++) pivot[i] = 0;
    if (T(centered)(j)) T(find_pivots)(chunk, j->lanes, pivot);
    T(take_chunk)(j, chunk, pivot, sums);
    if (!T(centered)(j)) return;
    if (T(mend_pivots)(j, chunk, pivot)) T(take_chunk)(j, chunk, pivot, sums);
    for (int64_t i = 0; i < (rows ? j->lanes : rest); i++) {
        double n = (double)(rows + (i < rest)), share = 1 / n;
        T(Taken) t = T(taken_of)(j, chunk, pivot, i);
        chunk.partial[i] = T(mean_of)(t, share), chunk.partial[j->stride + i] = T(squares_of)(t, share);
        chunk.partial[2 * j->stride + i] = n;
    }
}

/* The length of a channel; of a single value without its square, which may be too large for its type. */
static double T(length_of)(const T(Job) *j, int64_t n, int64_t c, double square)
{
    return j->plan->space > 1 ? sqrt(square) : fabs(element(ELEM_TYPE, j->x, n * j->plan->channels + c));
}

/* Where a run of lanes of one unit ends: a few are added up by themselves, as many small numbers would be rounded by a large sum. */
static inline int64_t T(run_end)(const T(Job) *j, int64_t lane)
{
    int64_t left = j->group - lane % j->group, end = lane + (left < RUN ? left : RUN);
    return end < j->lanes ? end : j->lanes;
}

/* Joins the chunks' lanes into the units of a sample; means by how far they are from the unit's first. */
static void T(join_measures)(const T(Job) *j, int64_t n)
{
    const ChannelPlan *p = j->plan;
    const double *partial = j->partial + n * j->chunks * 3 * j->stride, *start = partial;
    double *mean = j->mean + n * p->groups, *var = j->var + n * p->groups, values = (double)T(values_of_unit)(j);
    for (int64_t u = 0; u < p->groups; u++) mean[u] = var[u] = 0;
    for (int64_t i = 0; i < j->chunks; i++, partial += 3 * j->stride)
        for (int64_t lane = 0; lane < j->lanes && T(centered)(j);) {
            int64_t u = lane % p->channels / j->group, end = T(run_end)(j, lane);
            double run = 0;
            for (; lane < end; lane++) run += (partial[lane] - start[u * j->group]) * partial[2 * j->stride + lane];
            mean[u] += run;
        }
    for (int64_t u = 0; u < p->groups && T(centered)(j); u++) mean[u] = start[u * j->group] + mean[u] / values;
    partial = start;
    for (int64_t i = 0; i < j->chunks; i++, partial += 3 * j->stride)
        for (int64_t lane = 0; lane < j->lanes;) {
            int64_t u = lane % p->channels / j->group, end = T(run_end)(j, lane);
            double run = 0;
            for (; lane < end; lane++) {
                double away = T(centered)(j) ? partial[lane] - mean[u] : 0, count = partial[2 * j->stride + lane];
                run += partial[j->stride + lane] + (count > 0 ? count * away * away : 0);
            }
            var[u] += run;
        }
    for (int64_t u = 0; u < p->groups; u++) var[u] = p->statistic == SHARE ? T(length_of)(j, n, u, var[u]) : var[u] / values;
}

INLINE void T(sum_rows)(int activation, T(Chunk) part, int64_t lanes, int64_t stride, REAL *rows)
{
    EACH_ROW_VECTOR(part, lanes,
        V k[COEFFICIENTS]; V sums[3];
        for (int i = 0; i < COEFFICIENTS; i++) k[i] = T(load_real)(part.k + i * stride + col);
        for (int i = 0; i < 3; i++) sums[i] = T(load_real)(rows + i * stride + col),
        T(sum_up)(activation, GET(part.x + at, n), GET(part.grad + at, n), k, sums, n),
        for (int i = 0; i < 3; i++) T(save_real)(rows + i * stride + col, sums[i]))
}

static void T(reduce_chunk)(const T(Job) *j, int64_t index, REAL *room)
{
    T(Chunk) all = T(chunk_of)(j, index), part = all;
    int64_t lanes = j->lanes, stride = j->stride;
    for (int64_t i = 0; i < 3 * stride; i++) room[i] = 0, all.partial[i] = 0;
    for (; part.begin < all.end; part.begin = part.end) {
        part.end = all.end - part.begin > DEPTH * lanes ? part.begin + DEPTH * lanes : all.end;
        BY_ACTIVATION(j->plan->activation, T(sum_rows), part, lanes, stride, room)
        T(flush)(room, all.partial, stride);
    }
}

static void T(join_sums)(const T(Job) *j, int64_t n)
{
    const double *partial = j->partial + n * j->chunks * 3 * j->stride;
    double *sums = j->sums + 3 * n * j->plan->channels;
    for (int64_t i = 0; i < 3 * j->plan->channels; i++) sums[i] = 0;
    for (int64_t i = 0; i < j->chunks; i++, partial += 3 * j->stride)
        for (int64_t lane = 0; lane < j->lanes; lane++)
            for (int k = 0; k < 3; k++) sums[3 * (lane % j->plan->channels) + k] += partial[k * j->stride + lane];
}

INLINE void T(write_rows)(int activation, T(Chunk) chunk, int64_t lanes, int64_t stride, int backward, int past)
{
    EACH_ROW_VECTOR(chunk, lanes,
        V k[COEFFICIENTS];
        for (int i = 0; i < COEFFICIENTS; i++) k[i] = T(load_real)(chunk.k + i * stride + col),
        V b = GET(chunk.x + at, n);
        T(put)(chunk.out + at, backward ? T(unbend)(activation, b, GET(chunk.grad + at, n), k) : T(bend)(activation, b, k), past, n),)
}

static void T(write_chunk)(const T(Job) *j, int64_t index)
{
    T(Chunk) chunk = T(chunk_of)(j, index);
    int past = j->streaming;
    if (j->pull) BY_ACTIVATION(j->plan->activation, T(write_rows), chunk, j->lanes, j->stride, 1, past)
    else BY_ACTIVATION(j->plan->activation, T(write_rows), chunk, j->lanes, j->stride, 0, past)
}

/* ---- a sample whose parts need each other, in three steps ---- */

static int64_t T(pieces)(const T(Job) *j) { return j->plan->last ? j->chunks : j->plan->groups; }

/* First step, on pieces counted over all samples: units (channels first) or chunks. */
static void T(measure_pieces)(void *job, int64_t begin, int64_t end)
{
    T(Job) *j = job;
    if (!j->plan->last) T(measure_units)(j, begin, end);
    if (!j->plan->last || !(j->pull ? j->reduce : j->plan->statistic != GIVEN)) return;
    REAL *room = scratch(4 * j->stride * sizeof(REAL));
    if (!room) j->failed = 1;
    for (int64_t i = begin; i < end && room; i++) {
        if (j->pull) T(reduce_chunk)(j, i, room);
        else T(measure_chunk)(j, i, room);
    }
    free(room);
}

static void T(settle_lanes)(const T(Job) *j, int64_t n)
{
    if (!j->plan->last) return;
    for (int64_t lane = 0; lane < j->lanes; lane++)
        T(settle)(j, n, lane % j->plan->channels, j->coefficients + n * COEFFICIENTS * j->stride + lane, j->stride);
}

/* Second step: join the pieces of a sample, work out its coefficients. */
static void T(settle_sample)(T(Job) *j, int64_t n)
{
    const ChannelPlan *p = j->plan;
    if (!j->pull) {
        if (p->last && p->statistic != GIVEN) T(join_measures)(j, n);
        if (p->statistic == SHARE) T(level_of)(j, n);
        for (int64_t u = n * p->channels; u < (n + 1) * p->channels && p->statistic == ONLINE; u++) T(run_on)(j, u);
    } else if (j->reduce) {
        if (p->last) T(join_sums)(j, n);
        for (int64_t u = n * p->groups; u < (n + 1) * p->groups; u++) T(settle_unit)(j, u);
        if (p->statistic == SHARE) T(settle_shares)(j, n);
    }
    T(settle_lanes)(j, n);
}

/* Third step. Backwards: what the first step read last is still in the cache. */
static void T(write_pieces)(void *job, int64_t begin, int64_t end)
{
    T(Job) *j = job;
    if (j->out && !j->plan->last) for (int64_t i = end - 1; i >= begin; i--) T(each_plane)(j, i, i + 1, T(write_plane));
    if (j->out && j->plan->last) for (int64_t i = end - 1; i >= begin; i--) T(write_chunk)(j, i);
    if (j->streaming) finish_stream();
}

static void T(finish_samples)(void *job, int64_t begin, int64_t end)
{
    int64_t pieces = T(pieces)(job);
    for (int64_t n = begin; n < end; n++) {
        T(measure_pieces)(job, n * pieces, (n + 1) * pieces);
        T(settle_sample)(job, n);
        T(write_pieces)(job, n * pieces, (n + 1) * pieces);
    }
}

/* Whole samples to a thread where there are many, the pieces of one sample after another where there are few or where one needs
 * the one before. */
static void T(run_channel)(T(Job) *j)
{
    const ChannelPlan *p = j->plan;
    int64_t pieces = T(pieces)(j), size = p->channels * p->space;
    if (!p->last && p->statistic == GIVEN) {
        share(T(finish_planes), j, j->samples * p->channels, j->samples * size);
    } else if (!p->last && p->statistic == ONLINE) {
        share(T(finish_channels), j, p->channels, j->samples * size);
    } else if (!p->last && p->statistic != SHARE) {
        share(T(finish_units), j, j->units, j->samples * size);
    } else if (j->samples >= 2 * thread_count() && (p->statistic != ONLINE || thread_count() == 1)) {
        share(T(finish_samples), j, j->samples, j->samples * size);
    } else {
        share(T(measure_pieces), j, j->samples * pieces, j->samples * size);
        for (int64_t n = 0; n < j->samples; n++) T(settle_sample)(j, n);
        share(T(write_pieces), j, j->samples * pieces, j->samples * size);
    }
}

/* ---- entry points ---- */

static void T(fill)(REAL *to, int type, const void *from, int64_t n, REAL otherwise)
{
    for (int64_t i = 0; i < n; i++) to[i] = from ? (REAL)element(type, from, i) : otherwise;
}

#include "position.h"

/* Divides one piece of scratch among the arrays of a job; null if there is no memory. */
static void *T(furnish)(T(Job) *j, const ChannelPlan *p, int64_t samples, int backward)
{
    int64_t channels = p->channels, repeat = 1;
    while (repeat < 16 && channels * repeat % 16 && channels < 64) repeat++;
    while (channels * repeat < 64) repeat *= 2;
    j->plan = p, j->samples = samples, j->group = channels / p->groups;
    j->units = p->over_samples ? p->groups : samples * p->groups;
    j->lanes = channels * (p->last ? repeat : 1);
    j->stride = (j->lanes + 15) / 16 * 16;
    int64_t rows = 65536 / j->lanes;
    j->chunk = j->lanes * (rows < DEPTH ? DEPTH : rows);
    j->chunks = p->last ? (channels * p->space + j->chunk - 1) / j->chunk : 0;
    int64_t per_unit = backward ? 3 * j->units : 0, sums = backward ? 3 * samples * channels : 0;
    int64_t partials = samples * j->chunks * 3 * j->stride, levels = p->statistic == SHARE ? samples : 0;
    int64_t coefficients = p->last ? samples * COEFFICIENTS * j->stride : 0;
    double *room = scratch((per_unit + sums + partials + levels) * sizeof(double) + (3 * channels + coefficients) * sizeof(REAL));
    if (!room) return 0;
    double *next = room;
    if (backward) j->pull = next, j->rest = next + j->units, j->part = next + 2 * j->units, next += per_unit;
    j->sums = next, next += sums;
    j->partial = next, next += partials;
    j->level = next, next += levels;
    j->weight = (REAL *)next, j->bias = j->weight + channels, j->extra = j->bias + channels;
    j->coefficients = j->extra + channels;
    return room;
}

/* Per unit: means, variances; ONLINE: then a unit's own of both. */
static void T(set_moments)(T(Job) *j, double *moments)
{
    j->mean = moments, j->var = j->mean + j->units;
    j->own_mean = j->var + j->units, j->own_var = j->own_mean + j->units;
}

static int T(channel_forward)(const ChannelPlan *p, int64_t samples, const void *x, const void *weight, const void *bias,
                              const void *extra, double *moments, double *state, void *y)
{
    if (p->statistic == POSITION) return T(run_position)(&(T(PositionJob)){.x = x, .out = y}, p, samples, weight, bias, 0, 0);
    T(Job) j = {.x = x, .out = y, .state = state};
    size_t bytes = (size_t)samples * p->channels * p->space * sizeof(ELEM);
    void *room = T(furnish)(&j, p, samples, 0);
    if (!room) return 1;
    T(fill)(j.weight, p->weight_type, weight, p->channels, 1);
    T(fill)(j.bias, p->bias_type, bias, p->channels, 0);
    T(fill)(j.extra, p->extra_type, extra, p->channels, 1);
    T(set_moments)(&j, moments);
    j.streaming = bytes >= STREAM_FROM && T(can_stream)(y, p->last ? j.lanes : p->space);
    expect_writes(y, bytes);
    T(run_channel)(&j);
    free(room);
    return j.failed;
}

/* The gradients of the parameters, from the sums over each sample's space; that of eps from how much each unit was pulled. */
static void T(join_parameters)(const T(Job) *j, void *dweight, void *dbias, void *dextra, double *deps)
{
    const ChannelPlan *p = j->plan;
    for (int64_t c = 0; c < p->channels; c++) {
        double sums[3] = {0, 0, 0};
        for (int64_t n = 0; n < j->samples; n++) {
            const double *from = j->sums + 3 * (n * p->channels + c);
            int64_t u = T(unit_of)(j, n, c);
            double r = p->statistic == SHARE ? j->var[u] / j->level[n] : T(reciprocal_of)(j, u);
            sums[0] += from[0];
            sums[1] += from[1] * r;
            sums[2] += from[2] * (p->activation == SWISH ? r * j->weight[c] : 1);
        }
        if (dweight) put_element(p->weight_type, dweight, c, sums[1]);
        if (dbias) put_element(p->bias_type, dbias, c, sums[0]);
        if (dextra) put_element(p->extra_type, dextra, c, sums[2]);
    }
    if (deps) {
        *deps = 0;
        for (int64_t u = 0; u < j->units; u++) {
            double r = T(reciprocal_of)(j, u);
            *deps -= 0.5 * r * r * r * j->part[u];
        }
    }
}

static int T(channel_backward)(const ChannelPlan *p, int64_t samples, const void *x, const void *grad, const void *weight,
                               const void *bias, const void *extra, const double *moments, double *state, void *dx,
                               void *dweight, void *dbias, void *dextra, double *deps)
{
    if (p->statistic == POSITION)
        return T(run_position)(&(T(PositionJob)){.x = x, .grad = grad, .out = dx}, p, samples, weight, bias, dweight, dbias);
    T(Job) j = {.x = x, .grad = grad, .out = dx, .state = state};
    size_t bytes = (size_t)samples * p->channels * p->space * sizeof(ELEM);
    void *room = T(furnish)(&j, p, samples, 1);
    if (!room) return 1;
    T(fill)(j.weight, p->weight_type, weight, p->channels, 1);
    T(fill)(j.bias, p->bias_type, bias, p->channels, 0);
    T(fill)(j.extra, p->extra_type, extra, p->channels, 1);
    T(set_moments)(&j, (double *)moments);
    j.reduce = p->statistic != GIVEN || dweight || dbias || dextra || deps;
    j.streaming = dx && bytes >= STREAM_FROM && T(can_stream)(dx, p->last ? j.lanes : p->space);
    for (int64_t u = 0; u < j.units; u++) j.pull[u] = j.rest[u] = 0;
    for (int64_t n = 0; n < samples; n++) {
        if (p->statistic == SHARE) T(level_of)(&j, n);
        T(settle_lanes)(&j, n);
    }
    expect_writes(dx, bytes);
    T(run_channel)(&j);
    if (j.reduce) T(join_parameters)(&j, dweight, dbias, dextra, deps);
    free(room);
    return j.failed;
}
