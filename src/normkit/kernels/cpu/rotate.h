/* The rotary turn of queries and keys, after the norm of each row or without one. Included once per element type.
 *
 *   y = turn(n),      turn: (a, b) -> (a cos - b sin, b cos + a sin),      n = norm(x) as in row.h, or x
 *   dx and the gradients of gain and bias as in row.h, from g, the gradient turned back, that is by -sin
 *
 * Rows lie anywhere, as a projection's heads do; only the entries of a row are side by side. They are short, so each waits longer
 * for its square root than for its numbers: a team of rows is measured, then written while it is still in the nearest cache.
 * Below, a pair is entries i and half + i; rows whose pairs are neighbours are split on their way in and merged on their way out.
 */

#ifndef TEAM
#define TEAM 16
#define CROWD (TEAM * BLOCK)
#endif

typedef struct {
    T(RowJob) norm;
    const Turning *turning;
    const ELEM *x, *grad;
    ELEM *out;
    const REAL *cos, *sin;
} T(TurnJob);

/* A row: where its numbers lie, where its results go and where these are made, and what is known of it. */
typedef struct {
    const ELEM *x, *grad;
    ELEM *out, *made;
    const REAL *cos, *sin;
    double raw;
    REAL mean, left, r, pull, shift;                         /* left: of the mean, in units of n */
} T(TurnRow);

typedef struct { V a, b; } T(Pair);

INLINE T(Pair) T(pairs)(const ELEM *x, int64_t half, int n) { return (T(Pair)){GET(x, n), GET(x + half, n)}; }

INLINE void T(put_pairs)(ELEM *y, int64_t half, T(Pair) p, int n)
{
    if (n == LANES) T(save)(y, p.a), T(save)(y + half, p.b);
    else T(save_some)(y, p.a, n), T(save_some)(y + half, p.b, n);
}

INLINE void T(add_pairs)(REAL *sums, int64_t half, V a, V b, int n)
{
    PUT_REAL(sums, GET_REAL(sums, n) + a, n);
    PUT_REAL(sums + half, GET_REAL(sums + half, n) + b, n);
}

INLINE T(Pair) T(turn)(T(Pair) p, V cos, V sin) { return (T(Pair)){p.a * cos - p.b * sin, p.b * cos + p.a * sin}; }

/* Fields are set one by one: a row that is copied whole would wait for them to reach memory. */
INLINE void T(find_row)(const T(TurnJob) *j, const Place *at, T(TurnRow) *row)
{
    const Turning *t = j->turning;
    int64_t angle = offset_of(at, t->angle);
    row->x = j->x + offset_of(at, t->x);
    row->grad = j->grad + offset_of(at, t->grad);
    row->made = row->out = j->out + offset_of(at, t->out);
    row->cos = j->cos + angle, row->sin = j->sin + angle;
    row->raw = 0, row->mean = 0, row->left = 0, row->r = 1;
}

static const ELEM *T(split_row)(const ELEM *x, ELEM *room, int64_t dim)
{
    split(x, room, dim / 2, sizeof(ELEM));
    return room;
}

static void T(merge_team)(const T(TurnRow) *team, int count, int64_t dim)
{
    for (int i = 0; i < count; i++) merge(team[i].made, team[i].out, dim / 2, sizeof(ELEM));
}

INLINE void T(know)(T(TurnRow) *row, const RowPlan *p, T(RowState) s)
{
    row->raw = s.raw, row->r = (REAL)s.r;
    row->mean = p->center ? s.mean : 0, row->left = p->center ? s.left * row->r : 0;
}

INLINE void T(turn_some)(const T(TurnRow) *row, V mean, V left, V r, const T(RowJob) *norm, int64_t at, int64_t half, int n)
{
    T(Pair) p = T(pairs)(row->x + at, half, n);
    p.a = (p.a - mean) * r - left, p.b = (p.b - mean) * r - left;
    if (norm->plan->early) {
        ELEM a[LANES], b[LANES];
        T(save)(a, p.a), T(save)(b, p.b);
        p.a = T(load)(a) * norm->shared, p.b = T(load)(b) * norm->shared;
    }
    if (norm->gain) p.a *= GET_REAL(norm->gain + at, n), p.b *= GET_REAL(norm->gain + half + at, n);
    if (norm->bias) p.a += GET_REAL(norm->bias + at, n), p.b += GET_REAL(norm->bias + half + at, n);
    T(put_pairs)(row->made + at, half, T(turn)(p, GET_REAL(row->cos + at, n), GET_REAL(row->sin + at, n)), n);
}

INLINE void T(turn_row)(const T(RowJob) *norm, const T(TurnRow) *row)
{
    int64_t half = norm->plan->dim / 2, at = 0;
    REAL shared = norm->plan->early ? 1 : norm->shared;
    V mean = T(all)(row->mean), left = T(all)(row->left * shared), r = T(all)(row->r * shared);
    for (; at + LANES <= half; at += LANES) T(turn_some)(row, mean, left, r, norm, at, half, LANES);
    if (at < half) T(turn_some)(row, mean, left, r, norm, at, half, (int)(half - at));
}

static void T(turn_rows)(void *job, int64_t begin, int64_t end)
{
    const T(TurnJob) *j = job;
    const Turning *t = j->turning;
    int64_t dim = j->norm.plan->dim;
    T(TurnRow) team[TEAM];
    ELEM room[CROWD], made[CROWD];
    Place at = place_of(begin, t->size);
    for (int64_t first = begin; first < end; first += TEAM) {
        int count = end - first < TEAM ? (int)(end - first) : TEAM;
        for (int i = 0; i < count; i++, move_on(&at, t->size)) {
            T(find_row)(j, &at, &team[i]);
            if (t->neighbours) team[i].x = T(split_row)(team[i].x, room + i * dim, dim), team[i].made = made + i * dim;
            if (!t->normed) continue;
            T(RowState) s = T(measure)(j->norm.plan, team[i].x);
            T(keep)(&j->norm, first + i, s);
            T(know)(&team[i], j->norm.plan, s);
        }
        for (int i = 0; i < count; i++) T(turn_row)(&j->norm, &team[i]);
        if (t->neighbours) T(merge_team)(team, count, dim);
    }
}

/* g, h = g * gain and n = z * r. */
typedef struct { T(Pair) g, h, n; } T(TurnedBack);

INLINE T(TurnedBack) T(turn_back)(const T(TurnRow) *row, const REAL *gain, int64_t at, int64_t half, int n)
{
    V mean = T(all)(row->mean), left = T(all)(row->left), r = T(all)(row->r);
    T(Pair) x = T(pairs)(row->x + at, half, n);
    T(Pair) g = T(turn)(T(pairs)(row->grad + at, half, n), GET_REAL(row->cos + at, n), -GET_REAL(row->sin + at, n));
    T(TurnedBack) back = {g, g, {(x.a - mean) * r - left, (x.b - mean) * r - left}};
    if (gain) back.h.a *= GET_REAL(gain + at, n), back.h.b *= GET_REAL(gain + half + at, n);
    return back;
}

INLINE void T(gather_pairs)(const T(TurnRow) *row, const REAL *gain, V *h, V *hn, int64_t at, int64_t half, int n)
{
    T(TurnedBack) b = T(turn_back)(row, gain, at, half, n);
    *h += b.h.a + b.h.b;
    *hn += b.h.a * b.n.a + b.h.b * b.n.b;
}

/* Finds what the gradients of a row need to know of all of it. */
INLINE void T(turn_gather)(const T(RowJob) *norm, T(TurnRow) *row, double *dshared)
{
    const RowPlan *plan = norm->plan;
    const REAL *gain = norm->gain;
    int64_t half = plan->dim / 2, at = 0;
    V h = {0}, hn = {0};
    for (; at + LANES <= half; at += LANES) T(gather_pairs)(row, gain, &h, &hn, at, half, LANES);
    if (at < half) T(gather_pairs)(row, gain, &h, &hn, at, half, (int)(half - at));
    double sum = T(across)(hn);
    if (dshared) *dshared += sum;
    row->pull = (REAL)T(pull)(plan, (T(RowState)){.raw = row->raw, .r = row->r}, (T(RowSums)){.hn = sum * norm->shared});
    row->shift = plan->center ? (REAL)(T(across)(h) * norm->shared / plan->dim) : 0;
}

INLINE void T(flow_pairs)(const T(TurnRow) *row, const REAL *gain, REAL shared, REAL *dgain, REAL *dbias, int64_t at, int64_t half,
                          int n)
{
    T(TurnedBack) b = T(turn_back)(row, gain, at, half, n);
    V r = T(all)(row->r), pull = T(all)(row->pull), shift = T(all)(row->shift);
    if (dgain) T(add_pairs)(dgain + at, half, b.g.a * b.n.a, b.g.b * b.n.b, n);
    if (dbias) T(add_pairs)(dbias + at, half, b.g.a, b.g.b, n);
    T(Pair) d = {(b.h.a * shared - shift - pull * b.n.a) * r, (b.h.b * shared - shift - pull * b.n.b) * r};
    T(put_pairs)(row->made + at, half, d, n);
}

INLINE void T(turn_flow)(const T(RowJob) *norm, const T(TurnRow) *row, REAL *dgain, REAL *dbias)
{
    const REAL *gain = norm->gain, shared = norm->shared;
    int64_t half = norm->plan->dim / 2, at = 0;
    for (; at + LANES <= half; at += LANES) T(flow_pairs)(row, gain, shared, dgain, dbias, at, half, LANES);
    if (at < half) T(flow_pairs)(row, gain, shared, dgain, dbias, at, half, (int)(half - at));
}

/* Sums that were made of split rows. */
static void T(merge_sums)(REAL *sums, int64_t dim)
{
    REAL split[BLOCK];
    if (!sums) return;
    memcpy(split, sums, dim * sizeof(REAL));
    merge(split, sums, dim / 2, sizeof(REAL));
}

static void T(turn_back_chunks)(void *job, int64_t begin, int64_t end)
{
    const T(TurnJob) *j = job;
    const Turning *t = j->turning;
    int64_t dim = j->norm.plan->dim;
    T(TurnRow) team[TEAM];
    ELEM room[CROWD], grads[CROWD], made[CROWD];
    for (int64_t number = begin; number < end; number++) {
        T(RowChunk) c = T(open_chunk)(&j->norm, number);
        Place at = place_of(c.begin, t->size);
        for (int64_t first = c.begin; first < c.end; first += TEAM) {
            int count = c.end - first < TEAM ? (int)(c.end - first) : TEAM;
            for (int i = 0; i < count; i++, move_on(&at, t->size)) {
                T(find_row)(j, &at, &team[i]);
                if (t->neighbours) {
                    team[i].x = T(split_row)(team[i].x, room + i * dim, dim);
                    team[i].grad = T(split_row)(team[i].grad, grads + i * dim, dim);
                    team[i].made = made + i * dim;
                }
                T(know)(&team[i], j->norm.plan, T(recall)(&j->norm, first + i));
                T(turn_gather)(&j->norm, &team[i], c.dshared);
            }
            for (int i = 0; i < count; i++) T(turn_flow)(&j->norm, &team[i], c.dgain, c.dbias);
            if (t->neighbours) T(merge_team)(team, count, dim);
        }
        if (t->neighbours) T(merge_sums)(c.dgain, dim), T(merge_sums)(c.dbias, dim);
    }
}

/* A gain or bias in the order of split rows, in `room`. */
static const REAL *T(split_gain)(const Turning *t, const REAL *gain, int64_t dim, REAL *room)
{
    if (!gain || !t->neighbours) return gain;
    split(gain, room, dim / 2, sizeof(REAL));
    return room;
}

static int T(rotate_forward)(const RowPlan *p, int64_t rows, const Turning *turning, const void *x, const void *weight,
                             const void *bias, const void *cos, const void *sin, void *y, void *stats)
{
    REAL wide[2 * BLOCK], gain[BLOCK], shift[BLOCK], *next = wide;
    T(TurnJob) job = {T(row_job)(p, rows, weight), turning, x, x, y, cos, sin};
    job.norm.stats = stats;
    T(take_gain)(&job.norm, weight, &next);
    job.norm.gain = T(split_gain)(turning, job.norm.gain, p->dim, gain);
    job.norm.bias = T(split_gain)(turning, T(as_real)(p->bias_type, bias, p->dim, 0, &next), p->dim, shift);
    expect_writes(y, (size_t)rows * p->dim * sizeof(ELEM));
    share(T(turn_rows), &job, rows, rows * p->dim);
    return 0;
}

static int T(rotate_backward)(const RowPlan *p, int64_t rows, const Turning *turning, const void *x, const void *grad,
                              const void *weight, const void *cos, const void *sin, const void *stats, void *dx, void *dweight,
                              void *dbias)
{
    REAL wide[BLOCK], gain[BLOCK], *next = wide;
    T(TurnJob) job = {T(row_job)(p, rows, weight), turning, x, grad, dx, cos, sin};
    job.norm.stats = (REAL *)stats;
    T(take_gain)(&job.norm, weight, &next);
    job.norm.gain = T(split_gain)(turning, job.norm.gain, p->dim, gain);
    expect_writes(dx, (size_t)rows * p->dim * sizeof(ELEM));
    return T(backward_all)(&job.norm, T(turn_back_chunks), &job, dweight, dbias);
}
