/* The row template: everything that is worked out within one row. Included once per element type.
 *
 *   z = x - mean (or x),  n = z * r,  y = n * gain + bias,      r by the plan's statistic and the place of its eps
 *   dx = r * (h - pull * t - shift),                            h = g * gain,  t = how each entry moves the statistic
 *
 * with pull = dot(h, n) / (how much of r the statistic makes), shift = the mean of the rest (only when centered). All of it is in
 * units of n, so that rows of 1e-20 or 6e4 are as safe as rows of 1.
 *
 * ELEM is the type in memory, REAL that of the arithmetic, T(name) the name for this type. Sums run in REAL over a stretch and in
 * double over stretches, so a long row costs no accuracy. A mean is kept as its pivot (see moments.h) and what that leaves of it, so
 * that an offset costs none either.
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
    int64_t together;
} T(RowJob);

typedef struct { REAL mean, left; double raw, r; } T(RowState);

/* A sum over a row of z, its square or its magnitude. Four sums run side by side, so that none waits for the last addition. */
INLINE V T(term)(const ELEM *x, V mean, V left, int term, int n)
{
    V z = (GET(x, n) - mean) - left;
    if (n < LANES) z = T(select)(T(first)(n), z, (V){0});
    return term == SUM ? z : term == SQUARES ? z * z : T(magnitude)(z);
}

INLINE double T(add_up)(const ELEM *x, int64_t dim, REAL mean, REAL left, int term)
{
    double sum = 0;
    V m = T(all)(mean), l = T(all)(left);
    for (int64_t at = 0; at < dim;) {
        int64_t end = dim - at < STRETCH ? dim : at + STRETCH;
        V a = {0}, b = {0}, c = {0}, d = {0};
        for (; at + 4 * LANES <= end; at += 4 * LANES) {
            a += T(term)(x + at, m, l, term, LANES);
            b += T(term)(x + at + LANES, m, l, term, LANES);
            c += T(term)(x + at + 2 * LANES, m, l, term, LANES);
            d += T(term)(x + at + 3 * LANES, m, l, term, LANES);
        }
        for (; at + LANES <= end; at += LANES) a += T(term)(x + at, m, l, term, LANES);
        if (at < end) b += T(term)(x + at, m, l, term, (int)(end - at)), at = end;
        sum += T(across)((a + b) + (c + d));
    }
    return sum;
}

/* The largest magnitude; a NaN anywhere is the result, which a comparison alone would lose. */
INLINE V T(larger)(V most, V a) { return T(select)((M)(a > most) | (M)(a != a), a, most); }

static double T(largest)(const ELEM *x, int64_t dim, REAL mean, REAL left)
{
    V a = {0}, b = {0}, m = T(all)(mean), l = T(all)(left);
    int64_t at = 0;
    for (; at + 2 * LANES <= dim; at += 2 * LANES) {
        a = T(larger)(a, T(term)(x + at, m, l, MAGNITUDES, LANES));
        b = T(larger)(b, T(term)(x + at + LANES, m, l, MAGNITUDES, LANES));
    }
    for (; at < dim; at += LANES) a = T(larger)(a, T(term)(x + at, m, l, MAGNITUDES, dim - at < LANES ? (int)(dim - at) : LANES));
    a = T(larger)(a, b);
    REAL most = a[0];
    for (int i = 1; i < LANES; i++) most = a[i] > most || a[i] != a[i] ? a[i] : most;
    return most;
}

/* r, from the raw statistic. */
INLINE double T(reciprocal)(const RowPlan *p, double raw)
{
    if (p->statistic == ABSOLUTE) return 1 / (p->constant * (raw / p->dim) + p->eps);
    if (p->statistic == MAXIMUM) return 1 / (raw + p->eps);
    if (p->statistic == ZERO_SUM) return 1 / sqrt(raw / (p->dim + 1) + p->eps);
    if (p->place == INSIDE) return 1 / sqrt(raw / p->part + p->eps);
    if (p->place == OUTSIDE) return 1 / (sqrt(raw / p->part) + p->eps);
    return 1 / (sqrt(raw) < p->eps ? p->eps : sqrt(raw));
}

/* What the statistic is taken about: a pivot, where there is a mean; the sum, ZERO_SUM. Here and below `statistic` and `center` are
 * the plan's, constants where speed counts. */
INLINE T(RowState) T(locate)(const RowPlan *p, const ELEM *x, int statistic, int center)
{
    T(RowState) s = {0, 0, 0, 0};
    if (center) s.mean = T(pilot)(x, p->dim, 1, 0);
    else if (statistic == ZERO_SUM) s.raw = T(add_up)(x, p->dim, 0, 0, SUM), s.mean = (REAL)s.raw, s.raw *= s.raw;
    return s;
}

/* The mean, and the statistic about it. */
INLINE void T(spread)(const RowPlan *p, const ELEM *x, double share, T(RowState) *s, int statistic, int center)
{
    if (center) {
        T(Taken) t = T(taken_of_run)(x, p->dim, share, s->mean);
        s->mean = t.pivot, s->left = (REAL)(t.sum * share), s->raw = T(squares_of)(t, share);
    }
    switch (statistic) {
    case ABSOLUTE: s->raw = T(add_up)(x, p->dim, s->mean, s->left, MAGNITUDES); break;
    case MAXIMUM: s->raw = T(largest)(x, p->dim, s->mean, s->left); break;
    case ZERO_SUM: s->raw += T(add_up)(x, p->dim, 0, 0, SQUARES); break;
    default: if (!center) s->raw = T(add_up)(x, p->part, 0, 0, SQUARES);
    }
    s->raw = (REAL)s->raw;                   /* as the backward pass will find it, which matters where it overflows */
}

INLINE T(RowState) T(measure)(const RowPlan *p, const ELEM *x)
{
    T(RowState) s = T(locate)(p, x, p->statistic, p->center);
    T(spread)(p, x, 1.0 / p->dim, &s, p->statistic, p->center);
    s.r = T(reciprocal)(p, s.raw);
    return s;
}

/* Keeps what the backward pass needs of a row: the raw statistic and, where there is one, the mean in two parts, or the sum. */
static void T(keep)(const T(RowJob) *j, int64_t row, T(RowState) s)
{
    if (!j->stats) return;
    REAL *stats = j->stats + row * j->stat_size;
    stats[0] = (REAL)s.raw;
    if (j->stat_size > 1) stats[1] = s.mean;
    if (j->stat_size > 2) stats[2] = s.left;
}

static T(RowState) T(recall)(const T(RowJob) *j, int64_t row)
{
    const REAL *stats = j->stats + row * j->stat_size;
    T(RowState) s = {j->stat_size > 1 ? stats[1] : 0, j->stat_size > 2 ? stats[2] : 0, stats[0], 0};
    s.r = T(reciprocal)(j->plan, s.raw);
    return s;
}

/* total = x + residual, rounded as it is stored. */
static void T(add_row)(const ELEM *x, const ELEM *residual, ELEM *total, int64_t dim)
{
    int64_t at = 0;
    for (; at + LANES <= dim; at += LANES) {
        fetch(x + dim + at), fetch(residual + dim + at), fetch_to(total + dim + at);
        T(save)(total + at, T(load)(x + at) + T(load)(residual + at));
    }
    int n = (int)(dim - at);
    if (n) T(save_some)(total + at, T(load_some)(x + at, n) + T(load_some)(residual + at, n), n);
}

/* y of up to LANES entries; `left` in units of y. `gained` and `biased` are constants where this is called, so the loop has no
 * branches. */
INLINE void T(write)(const T(RowJob) *j, const ELEM *x, ELEM *y, int64_t at, V mean, V left, V r, int gained, int biased, int early, int n)
{
    V v = (GET(x + at, n) - mean) * r - left;
    if (early) {
        ELEM half[LANES];
        T(save)(half, v);
        v = T(load)(half) * j->shared;
    }
    if (gained) v *= GET_REAL(j->gain + at, n);
    if (biased) v += GET_REAL(j->bias + at, n);
    if (n < LANES) T(save_some)(y + at, v, n);
    else if (j->streaming) T(save_past)(y + at, v);
    else T(save)(y + at, v);
}

/* The job is taken by value, since a pointer's fields would be read anew after every store. */
INLINE void T(write_all)(T(RowJob) j, const ELEM *x, ELEM *y, const T(RowState) *s, int center, int gained, int biased, int early)
{
    int64_t dim = j.plan->dim, at = 0;
    REAL scale = (REAL)s->r * (early ? 1 : j.shared);
    V mean = T(all)(center ? s->mean : 0), r = T(all)(scale), left = T(all)(center ? s->left * scale : 0);
    for (; at + LANES <= dim; at += LANES) {
        if (!j.residual) fetch(x + j.together * dim + at);
        if (!j.streaming) fetch_to(y + j.together * dim + at);
        T(write)(&j, x, y, at, mean, left, r, gained, biased, early, LANES);
    }
    if (at < dim) T(write)(&j, x, y, at, mean, left, r, gained, biased, early, (int)(dim - at));
}

INLINE void T(write_row)(const T(RowJob) *j, const ELEM *x, ELEM *y, const T(RowState) *s, int center)
{
    int kind = 2 * (j->gain != 0) + (j->bias != 0);
    if (j->plan->early) T(write_all)(*j, x, y, s, center, j->gain != 0, j->bias != 0, 1);
    else if (kind == 3) T(write_all)(*j, x, y, s, center, 1, 1, 0);
    else if (kind == 2) T(write_all)(*j, x, y, s, center, 1, 0, 0);
    else if (kind == 1) T(write_all)(*j, x, y, s, center, 0, 1, 0);
    else T(write_all)(*j, x, y, s, center, 0, 0, 0);
}

/* Short rows go a few at a time, so that the processor works on one while another's root and quotients are under way. */
INLINE void T(forward_as)(const T(RowJob) *j, int64_t begin, int64_t end, int statistic, int center)
{
    const RowPlan *p = j->plan;
    int64_t dim = p->dim, together = j->together;
    const ELEM *x = j->residual ? j->total : j->x;
    double share = 1.0 / dim;
    T(RowState) s[MOST_AT_ONCE];
    for (int64_t row = begin; row < end; row += together) {
        int64_t stop = row + together < end ? row + together : end;
        for (int64_t i = row; i < stop; i++) {
            if (j->residual) T(add_row)(j->x + i * dim, j->residual + i * dim, j->total + i * dim, dim);
            s[i - row] = T(locate)(p, x + i * dim, statistic, center);
        }
        for (int64_t i = row; i < stop; i++) T(spread)(p, x + i * dim, share, &s[i - row], statistic, center);
        for (int64_t i = row; i < stop; i++) s[i - row].r = T(reciprocal)(p, s[i - row].raw), T(keep)(j, i, s[i - row]);
        for (int64_t i = row; i < stop; i++) T(write_row)(j, x + i * dim, j->out + i * dim, &s[i - row], center);
    }
}

static void T(forward_rows)(void *job, int64_t begin, int64_t end)
{
    const T(RowJob) *j = job;
    const RowPlan *p = j->plan;
    if (p->statistic != SQUARE) T(forward_as)(j, begin, end, p->statistic, p->center);
    else if (p->center) T(forward_as)(j, begin, end, SQUARE, 1);
    else T(forward_as)(j, begin, end, SQUARE, 0);
    if (j->streaming) finish_stream();
}

/* Sums of a row that its gradient needs: of h, of h * n, of t, and how many entries tie for the maximum. */
typedef struct { double h, hn, t, ties; } T(RowSums);

/* t, how an entry moves the statistic; for SQUARE that is n itself. */
INLINE V T(direction)(int statistic, V z, V n, V r, V sum, V most)
{
    if (statistic == SQUARE) return n;
    if (statistic == ZERO_SUM) return (z + sum) * r;
    V sign = T(select)((M)(z > 0), T(all)(1), (V){0}) - T(select)((M)(z < 0), T(all)(1), (V){0});
    return statistic == MAXIMUM ? T(select)((M)(T(magnitude)(z) >= most), sign, (V){0}) : sign;
}

/* What the passes over a row have in common. */
typedef struct { V mean, left, r, sum, most; } T(RowVectors);

INLINE T(RowVectors) T(spread_state)(const T(RowState) *s, int center)
{
    V mean = T(all)(s->mean), none = {0};
    return (T(RowVectors)){center ? mean : none, center ? T(all)(s->left) : none, T(all)((REAL)s->r), mean, T(all)((REAL)s->raw)};
}

INLINE V T(centred)(const T(RowVectors) *s, V x, int center) { return center ? (x - s->mean) - s->left : x; }

typedef struct { V h, hn, t, ties; } T(Sums);

INLINE void T(gather_some)(const T(RowJob) *j, const ELEM *x, const ELEM *grad, int64_t at, const T(RowVectors) *s, T(Sums) *sums,
                           int statistic, int center, int gained, int n)
{
    V h = GET(grad + at, n), z = T(centred)(s, GET(x + at, n), center);
    if (n < LANES) z = T(select)(T(first)(n), z, (V){0});
    V v = z * s->r;
    if (gained) h *= GET_REAL(j->gain + at, n);
    sums->hn += h * v;
    if (center) sums->h += h;
    if (statistic == ABSOLUTE || statistic == MAXIMUM) {
        V t = T(direction)(statistic, z, v, s->r, s->sum, s->most);
        sums->t += t;
        sums->ties += T(magnitude)(t);
    }
}

INLINE T(RowSums) T(gather)(const T(RowJob) *j, const ELEM *x, const ELEM *grad, T(RowVectors) s, int statistic, int center, int gained)
{
    int64_t dim = j->plan->dim;
    T(RowSums) total = {0, 0, 0, 0};
    for (int64_t at = 0; at < dim;) {
        int64_t end = dim - at < STRETCH ? dim : at + STRETCH;
        T(Sums) a = {{0}, {0}, {0}, {0}}, b = a;
        for (; at + 2 * LANES <= end; at += 2 * LANES) {
            T(gather_some)(j, x, grad, at, &s, &a, statistic, center, gained, LANES);
            T(gather_some)(j, x, grad, at + LANES, &s, &b, statistic, center, gained, LANES);
        }
        for (; at + LANES <= end; at += LANES) T(gather_some)(j, x, grad, at, &s, &a, statistic, center, gained, LANES);
        if (at < end) T(gather_some)(j, x, grad, at, &s, &b, statistic, center, gained, (int)(end - at)), at = end;
        total.hn += T(across)(a.hn + b.hn);
        if (center) total.h += T(across)(a.h + b.h);
        if (statistic == ABSOLUTE || statistic == MAXIMUM) total.t += T(across)(a.t + b.t), total.ties += T(across)(a.ties + b.ties);
    }
    return total;
}

/* The factor of t in dx / r; zero where the statistic does not move r (a row of zeros or of an infinite sum under a root, a norm
 * below its floor). */
static double T(pull)(const RowPlan *p, T(RowState) s, T(RowSums) sums)
{
    double root = sqrt(s.raw);
    switch (p->statistic) {
    case ABSOLUTE: return sums.hn * p->constant / p->dim;
    case MAXIMUM: return sums.ties > 0 ? sums.hn / sums.ties : 0 * sums.hn;
    case ZERO_SUM: return sums.hn / (p->dim + 1);
    }
    if (p->place == INSIDE) return sums.hn / p->part;
    if (root == 0) return 0;
    if (isinf(root)) return 0 * sums.hn;      /* NaN where an entry is infinite, and not the sum alone */
    if (p->place == OUTSIDE) return sums.hn / (s.r * root * sqrt(p->part));
    return root < p->eps ? 0 : sums.hn / (s.r * root);
}

/* A row's gradients on their way: dx = r * (h - pull * t - shift), and the shares in those of gain and bias. */
typedef struct {
    const ELEM *x, *grad, *more;
    ELEM *dx;
    REAL *dgain, *dbias;
    T(RowState) state;
    REAL pull, shift;
} T(RowFlow);

INLINE void T(flow_some)(const T(RowJob) *j, const T(RowFlow) *f, int64_t at, const T(RowVectors) *s, int statistic, int center,
                         int gained, int dgain, int dbias, int pulled, int n)
{
    V g = GET(f->grad + at, n), z = T(centred)(s, GET(f->x + at, n), center), v = z * s->r, h = g * j->shared;
    if (gained) h = g * GET_REAL(j->gain + at, n);
    if (dgain) PUT_REAL(f->dgain + at, GET_REAL(f->dgain + at, n) + g * v, n);
    if (dbias) PUT_REAL(f->dbias + at, GET_REAL(f->dbias + at, n) + g, n);
    V d = center ? h - f->shift : h;
    if (pulled) d -= f->pull * T(direction)(statistic, z, v, s->r, s->sum, s->most);
    d *= s->r;
    if (f->more) d = T(rounded)(d) + GET(f->more + at, n); /* as a sum of its own would be, which short calls take */
    if (n < LANES) T(save_some)(f->dx + at, d, n);
    else if (j->streaming) T(save_past)(f->dx + at, d);
    else T(save)(f->dx + at, d);
}

/* The job and the flow are taken by value, since a pointer's fields would be read anew after every store. */
INLINE void T(flow)(T(RowJob) j, T(RowFlow) f, int statistic, int center, int gained, int dgain, int dbias)
{
    int64_t dim = j.plan->dim, part = j.plan->part, at = 0;
    T(RowVectors) s = T(spread_state)(&f.state, center);
    for (; at + LANES <= part; at += LANES) {
        fetch(f.x + j.together * dim + at), fetch(f.grad + j.together * dim + at);
        if (!j.streaming) fetch_to(f.dx + j.together * dim + at);
        T(flow_some)(&j, &f, at, &s, statistic, center, gained, dgain, dbias, 1, LANES);
    }
    if (at < part) T(flow_some)(&j, &f, at, &s, statistic, center, gained, dgain, dbias, 1, (int)(part - at)), at = part;
    for (; at + LANES <= dim; at += LANES) T(flow_some)(&j, &f, at, &s, statistic, center, gained, dgain, dbias, 0, LANES);
    if (at < dim) T(flow_some)(&j, &f, at, &s, statistic, center, gained, dgain, dbias, 0, (int)(dim - at));
}

/* Sums up a row, which settles its pull and shift. */
INLINE void T(aim)(const T(RowJob) *j, T(RowFlow) *f, double *dshared, int statistic, int center)
{
    const RowPlan *p = j->plan;
    T(RowVectors) s = T(spread_state)(&f->state, center);
    T(RowSums) sums = j->gain ? T(gather)(j, f->x, f->grad, s, statistic, center, 1) : T(gather)(j, f->x, f->grad, s, statistic, center, 0);
    if (dshared) *dshared += sums.hn;
    sums.h *= j->shared, sums.hn *= j->shared;
    double pull = T(pull)(p, f->state, sums);
    f->pull = (REAL)pull;
    f->shift = (REAL)((sums.h - pull * sums.t) / p->dim);
}

/* Both passes over a few rows for a statistic known to the compiler. */
INLINE void T(backward_as)(const T(RowJob) *j, T(RowFlow) *f, int64_t rows, double *dshared, int statistic, int center)
{
    int kind = !j->gain && !f->dbias ? 0 : j->gain && f->dgain ? 2 + (f->dbias != 0) : 1;
    for (int64_t i = 0; i < rows; i++) T(aim)(j, f + i, dshared, statistic, center);
    for (int64_t i = 0; i < rows; i++) {
        if (kind == 3) T(flow)(*j, f[i], statistic, center, 1, 1, 1);
        else if (kind == 2) T(flow)(*j, f[i], statistic, center, 1, 1, 0);
        else if (kind == 1) T(flow)(*j, f[i], statistic, center, j->gain != 0, f->dgain != 0, f->dbias != 0);
        else T(flow)(*j, f[i], statistic, center, 0, 0, 0);
    }
}

static void T(backward_rows)(const T(RowJob) *j, T(RowFlow) *f, int64_t rows, double *dshared)
{
    int center = j->plan->center;
    switch (j->plan->statistic) {
    case ABSOLUTE: T(backward_as)(j, f, rows, dshared, ABSOLUTE, center); break;
    case MAXIMUM: T(backward_as)(j, f, rows, dshared, MAXIMUM, center); break;
    case ZERO_SUM: T(backward_as)(j, f, rows, dshared, ZERO_SUM, 0); break;
    default:
        if (center) T(backward_as)(j, f, rows, dshared, SQUARE, 1);
        else T(backward_as)(j, f, rows, dshared, SQUARE, 0);
    }
}

/* Chunks of rows, each with its own partial sums: the result is the same for any number of threads. */
typedef struct {
    int64_t begin, end;
    REAL *dgain, *dbias;
    double *dshared;
} T(RowChunk);

static T(RowChunk) T(open_chunk)(const T(RowJob) *j, int64_t number)
{
    int64_t dim = j->plan->dim, begin = number * j->chunk;
    T(RowChunk) c = {begin, begin + j->chunk < j->rows ? begin + j->chunk : j->rows, 0, 0, 0};
    if (j->dgain) c.dgain = memset(j->dgain + number * dim, 0, dim * sizeof(REAL));
    if (j->dbias) c.dbias = memset(j->dbias + number * dim, 0, dim * sizeof(REAL));
    if (j->dshared) c.dshared = j->dshared + number, *c.dshared = 0;
    return c;
}

static void T(backward_chunks)(void *job, int64_t begin, int64_t end)
{
    const T(RowJob) *j = job;
    int64_t together = j->together;
    T(RowFlow) flows[MOST_AT_ONCE];
    for (int64_t number = begin; number < end; number++) {
        T(RowChunk) c = T(open_chunk)(j, number);
        for (int64_t row = c.begin; row < c.end; row += together) {
            int64_t rows = row + together < c.end ? together : c.end - row;
            for (int64_t i = 0; i < rows; i++) {
                int64_t start = (row + i) * j->plan->dim;
                const ELEM *more = j->grad_total ? j->grad_total + start : 0;
                flows[i] = (T(RowFlow)){j->x + start, j->grad + start, more, j->out + start, c.dgain, c.dbias, T(recall)(j, row + i), 0, 0};
            }
            T(backward_rows)(j, flows, rows, c.dshared);
        }
    }
    if (j->streaming) finish_stream();
}

static T(RowJob) T(row_job)(const RowPlan *p, int64_t rows, const void *weight)
{
    return (T(RowJob)){.plan = p, .rows = rows, .shared = weight ? 1 : (REAL)p->scale,
                       .stat_size = p->center ? 3 : p->statistic == ZERO_SUM ? 2 : 1, .together = rows_together(p->dim)};
}

static void T(take_gain)(T(RowJob) *j, const void *weight, REAL **room)
{
    const RowPlan *p = j->plan;
    if (weight && p->shared) j->shared = (REAL)(p->offset + element(p->weight_type, weight, 0));
    else j->gain = T(as_real)(p->weight_type, weight, p->dim, p->offset, room);
}

static int T(row_forward)(const RowPlan *p, int64_t rows, const void *x, const void *residual, const void *weight, const void *bias,
                          void *total, void *y, void *stats)
{
    size_t bytes = (size_t)rows * p->dim * sizeof(ELEM);
    REAL *room = weight || bias ? scratch(2 * p->dim * sizeof(REAL)) : 0, *next = room;
    if ((weight || bias) && !room) return 1;
    T(RowJob) job = T(row_job)(p, rows, weight);
    job.x = x, job.residual = residual, job.total = total, job.out = y, job.stats = stats;
    job.streaming = bytes >= STREAM_FROM && T(can_stream)(y, p->dim);
    T(take_gain)(&job, weight, &next);
    job.bias = T(as_real)(p->bias_type, bias, p->dim, 0, &next);
    expect_writes(y, bytes);
    expect_writes(total, bytes);
    share(T(forward_rows), &job, rows, rows * p->dim);
    free(room);
    return 0;
}

/* Calls `work` on the chunks of `whole`, of which `job` is the part with the norm, and adds up the gradients of gain and bias. */
static int T(backward_all)(T(RowJob) *job, Work work, void *whole, void *dweight, void *dbias)
{
    const RowPlan *p = job->plan;
    int64_t dim = p->dim, rows = job->rows, chunk = chunk_rows(rows, dim), chunks = (rows + chunk - 1) / chunk;
    int gain_sums = dweight && !p->shared, bias_sums = dbias != 0;
    double *dshared = scratch(chunks * dim * (gain_sums + bias_sums) * sizeof(REAL) + MOST_CHUNKS * sizeof(double));
    if (!dshared) return 1;
    REAL *next = (REAL *)(dshared + MOST_CHUNKS);
    job->chunk = chunk;
    if (gain_sums) job->dgain = next, next += chunks * dim;
    if (bias_sums) job->dbias = next;
    if (dweight && p->shared) job->dshared = dshared;
    share(work, whole, chunks, rows * dim);
    if (gain_sums) T(add_partials)(job->dgain, chunks, dim, p->weight_type, dweight);
    if (bias_sums) T(add_partials)(job->dbias, chunks, dim, p->bias_type, dbias);
    if (job->dshared) {
        double sum = 0;
        for (int64_t c = 0; c < chunks; c++) sum += dshared[c];
        put_element(p->weight_type, dweight, 0, sum);
    }
    free(dshared);
    return 0;
}

static int T(row_backward)(const RowPlan *p, int64_t rows, const void *x, const void *grad, const void *grad_total,
                           const void *weight, const void *stats, void *dx, void *dweight, void *dbias)
{
    size_t bytes = (size_t)rows * p->dim * sizeof(ELEM);
    REAL *room = weight ? scratch(p->dim * sizeof(REAL)) : 0, *next = room;
    if (weight && !room) return 1;
    T(RowJob) job = T(row_job)(p, rows, weight);
    job.x = x, job.grad = grad, job.grad_total = grad_total, job.out = dx, job.stats = (REAL *)stats;
    job.streaming = bytes >= STREAM_FROM && T(can_stream)(dx, p->dim);
    T(take_gain)(&job, weight, &next);
    expect_writes(dx, bytes);
    int failed = T(backward_all)(&job, T(backward_chunks), &job, dweight, dbias);
    free(room);
    return failed;
}
