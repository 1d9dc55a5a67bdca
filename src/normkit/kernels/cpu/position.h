/* The position template: (N, C, *space), channels first, the vector of channels at each position normalized. Once per element type.
 *
 *   y = (x - mean) * r * weight + bias,    dx = r (h - mean(h) - n * mean(h n)),    h = g * weight,    n = (x - mean) * r
 *
 * A block is all channels of a few neighbouring positions, copied so that its passes stay in the cache whatever the distance
 * between channels. Nothing is kept for the backward pass: the moments are worked out anew. Sums for weight and bias are taken
 * per chunk of blocks, then over chunks in order.
 */

#ifndef POSITION_H
#define POSITION_H
enum { BLOCK_VECTORS = 4, BLOCKS_OF_CHUNK = 32 };
#endif

typedef struct {
    const ChannelPlan *plan;
    int64_t samples, per_sample, blocks, chunks;
    const ELEM *x, *grad;
    ELEM *out;
    REAL *weight, *bias;
    double *partial;                        /* per chunk: the sums of g n, then of g, per channel */
    int streaming, failed;
} T(PositionJob);

/* A block in the cache: rows of BLOCK_VECTORS vectors, one a channel, and its moments. */
typedef struct { V mean[BLOCK_VECTORS], left[BLOCK_VECTORS], r[BLOCK_VECTORS]; } T(PositionMoments);

enum { T(POSITIONS) = BLOCK_VECTORS * (WIDTH / sizeof(REAL)) };

#define EACH_CHANNEL for (int64_t c = 0; c < channels; c++)
#define EACH_OF_BLOCK for (int i = 0; i < BLOCK_VECTORS; i++)

/* Copies `n` positions of every channel; the rest of the rows are zeros. */
static void T(copy_block)(const ELEM *from, int64_t space, int64_t channels, int64_t n, V *to)
{
    if (n == T(POSITIONS)) {
        EACH_CHANNEL EACH_OF_BLOCK to[c * BLOCK_VECTORS + i] = T(load)(from + c * space + i * LANES);
        return;
    }
    EACH_CHANNEL EACH_OF_BLOCK {
        int64_t left = n - i * LANES;
        const ELEM *at = from + c * space + i * LANES;
        to[c * BLOCK_VECTORS + i] = left >= LANES ? T(load)(at) : left > 0 ? T(load_some)(at, (int)left) : (V){0};
    }
}

/* Sums about a pivot for each position. */
typedef struct {
    REAL pivot[T(POSITIONS)] __attribute__((aligned(64)));
    double sum[T(POSITIONS)], square[T(POSITIONS)];
} T(BlockTaken);

#define EACH_POSITION for (int k = 0; k < T(POSITIONS); k++)

static void T(find_block_pivots)(const V *x, int64_t channels, T(BlockTaken) *t)
{
    EACH_OF_BLOCK {
        V sum = {0};
        for (int k = 0; k < 4; k++) sum += x[k * (channels - 1) / 3 * BLOCK_VECTORS + i] * (REAL)0.25;
        T(save_real)(t->pivot + i * LANES, sum);
    }
}

static void T(take_block)(const V *x, int64_t channels, T(BlockTaken) *t)
{
    V pivot[BLOCK_VECTORS];
    EACH_OF_BLOCK pivot[i] = T(load_real)(t->pivot + i * LANES);
    EACH_POSITION t->sum[k] = t->square[k] = 0;
    for (int64_t begin = 0; begin < channels; begin += DEPTH) {
        int64_t end = channels - begin < DEPTH ? channels : begin + DEPTH;
        V sum[BLOCK_VECTORS] = {{0}}, square[BLOCK_VECTORS] = {{0}};
        REAL sums[T(POSITIONS)], squares[T(POSITIONS)];
        for (int64_t c = begin; c < end; c++) EACH_OF_BLOCK {
            V d = x[c * BLOCK_VECTORS + i] - pivot[i];
            sum[i] += d, square[i] += d * d;
        }
        EACH_OF_BLOCK T(save_real)(sums + i * LANES, sum[i]), T(save_real)(squares + i * LANES, square[i]);
        EACH_POSITION t->sum[k] += sums[k], t->square[k] += squares[k];
    }
}

/* Moves pivots that turned out astray to the means found; tells whether there were any. */
static int T(mend_block_pivots)(int64_t channels, T(BlockTaken) *t)
{
    double share = 1.0 / channels;
    int any = 0;
    EACH_POSITION {
        T(Taken) one = {t->pivot[k], t->sum[k], t->square[k]};
        int astray = T(astray)(one, share);
        t->pivot[k] = astray ? T(about_mean)(one, share).pivot : t->pivot[k];
        any |= astray;
    }
    return any;
}

static void T(measure_block)(const T(PositionJob) *j, const V *x, T(PositionMoments) *m)
{
    int64_t channels = j->plan->channels;
    double share = 1.0 / channels, eps = j->plan->eps;
    T(BlockTaken) t;
    T(find_block_pivots)(x, channels, &t);
    T(take_block)(x, channels, &t);
    if (T(mend_block_pivots)(channels, &t)) T(take_block)(x, channels, &t);
    REAL *means = (REAL *)m->mean, *left = (REAL *)m->left, *r = (REAL *)m->r;
    EACH_POSITION {
        T(Taken) one = {t.pivot[k], t.sum[k], t.square[k]};
        double mean = T(mean_of)(one, share);
        means[k] = (REAL)mean, left[k] = (REAL)(mean - (REAL)mean);
        r[k] = (REAL)(1 / sqrt(T(squares_of)(one, share) * share + eps));
    }
}

static inline V T(normal)(V x, const T(PositionMoments) *m, int i) { return ((x - m->mean[i]) - m->left[i]) * m->r[i]; }

static void T(put_row)(const T(PositionJob) *j, ELEM *to, const V *row, int64_t n)
{
    EACH_OF_BLOCK {
        int64_t left = n - i * LANES;
        if (left >= LANES) T(put)(to + i * LANES, row[i], j->streaming, LANES);
        else if (left > 0) T(save_some)(to + i * LANES, row[i], (int)left);
    }
}

static void T(forward_block)(const T(PositionJob) *j, int64_t from, int64_t n, V *x)
{
    int64_t channels = j->plan->channels, space = j->plan->space;
    T(PositionMoments) m;
    T(copy_block)(j->x + from, space, channels, n, x);
    T(measure_block)(j, x, &m);
    EACH_CHANNEL {
        V row[BLOCK_VECTORS];
        EACH_OF_BLOCK row[i] = T(normal)(x[c * BLOCK_VECTORS + i], &m, i) * j->weight[c] + j->bias[c];
        T(put_row)(j, j->out + from + c * space, row, n);
    }
}

/* `sums` holds two vectors a channel: of g n, and of g. */
static void T(backward_block)(const T(PositionJob) *j, int64_t from, int64_t n, V *x, V *g, V *sums)
{
    int64_t channels = j->plan->channels, space = j->plan->space;
    T(PositionMoments) m;
    V total[BLOCK_VECTORS] = {{0}}, along[BLOCK_VECTORS] = {{0}};
    T(copy_block)(j->x + from, space, channels, n, x);
    T(copy_block)(j->grad + from, space, channels, n, g);
    T(measure_block)(j, x, &m);
    EACH_CHANNEL EACH_OF_BLOCK {
        V *at = x + c * BLOCK_VECTORS + i, *h = g + c * BLOCK_VECTORS + i;
        *at = T(normal)(*at, &m, i);
        if (i * LANES < n) {
            V live = n - i * LANES < LANES ? T(select)(T(first)((int)(n - i * LANES)), *at, (V){0}) : *at;
            sums[2 * c] += *h * live, sums[2 * c + 1] += *h;
        }
        *h *= j->weight[c];
        total[i] += *h, along[i] += *h * *at;
    }
    EACH_OF_BLOCK total[i] /= (REAL)channels, along[i] /= (REAL)channels;
    if (j->out) EACH_CHANNEL {
        V row[BLOCK_VECTORS];
        EACH_OF_BLOCK row[i] = m.r[i] * (g[c * BLOCK_VECTORS + i] - total[i] - x[c * BLOCK_VECTORS + i] * along[i]);
        T(put_row)(j, j->out + from + c * space, row, n);
    }
}

static void T(flush_positions)(const T(PositionJob) *j, int64_t chunk, const V *sums)
{
    int64_t channels = j->plan->channels;
    EACH_CHANNEL for (int k = 0; k < 2; k++) j->partial[(2 * chunk + k) * channels + c] = T(across)(sums[2 * c + k]);
}

static void T(position_chunks)(void *job, int64_t begin, int64_t end)
{
    T(PositionJob) *j = job;
    int64_t channels = j->plan->channels, space = j->plan->space, block = channels * BLOCK_VECTORS;
    V *room = scratch((j->grad ? 2 * block + 2 * channels : block) * sizeof(V)), *g = room + block, *sums = g + block;
    if (!room) { j->failed = 1; return; }
    for (int64_t chunk = begin; chunk < end; chunk++) {
        int64_t stop = (chunk + 1) * BLOCKS_OF_CHUNK < j->blocks ? (chunk + 1) * BLOCKS_OF_CHUNK : j->blocks;
        if (j->grad) memset(sums, 0, 2 * channels * sizeof(V));
        for (int64_t b = chunk * BLOCKS_OF_CHUNK; b < stop; b++) {
            int64_t at = b % j->per_sample * T(POSITIONS), from = b / j->per_sample * channels * space + at;
            int64_t n = space - at < T(POSITIONS) ? space - at : T(POSITIONS);
            if (j->grad) T(backward_block)(j, from, n, room, g, sums);
            else T(forward_block)(j, from, n, room);
        }
        if (j->grad) T(flush_positions)(j, chunk, sums);
    }
    if (j->streaming) finish_stream();
    free(room);
}

static int T(run_position)(T(PositionJob) *j, const ChannelPlan *p, int64_t samples, const void *weight, const void *bias,
                           void *dweight, void *dbias)
{
    int64_t channels = p->channels;
    size_t bytes = (size_t)samples * channels * p->space * sizeof(ELEM);
    j->plan = p, j->samples = samples, j->per_sample = (p->space + T(POSITIONS) - 1) / T(POSITIONS);
    j->blocks = samples * j->per_sample, j->chunks = (j->blocks + BLOCKS_OF_CHUNK - 1) / BLOCKS_OF_CHUNK;
    double *room = scratch((j->grad ? 2 * j->chunks * channels : 0) * sizeof(double) + 2 * channels * sizeof(REAL));
    if (!room) return 1;
    j->partial = room, j->weight = (REAL *)(room + (j->grad ? 2 * j->chunks * channels : 0)), j->bias = j->weight + channels;
    T(fill)(j->weight, p->weight_type, weight, channels, 1);
    T(fill)(j->bias, p->bias_type, bias, channels, 0);
    j->streaming = bytes >= STREAM_FROM && T(can_stream)(j->out, p->space);
    expect_writes(j->out, bytes);
    share(T(position_chunks), j, j->chunks, samples * channels * p->space);
    for (int64_t c = 0; c < channels && j->grad; c++) {
        double sums[2] = {0, 0};
        for (int64_t i = 0; i < 2 * j->chunks; i++) sums[i % 2] += j->partial[i * channels + c];
        if (dweight) put_element(p->weight_type, dweight, c, sums[0]);
        if (dbias) put_element(p->bias_type, dbias, c, sums[1]);
    }
    free(room);
    return j->failed;
}
