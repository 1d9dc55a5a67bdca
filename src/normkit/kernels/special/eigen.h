/* Eigenvalues and eigenvectors of many small symmetric matrices: each lane of a vector holds a matrix of its own.
 *
 * Reflections of Householder make a matrix tridiagonal, and implicitly shifted QL steps make that diagonal, as in LAPACK. All
 * lanes take the same steps: one that is done, or not yet at its block, is turned by 0, and so does not depend on its
 * neighbours. Arithmetic is in double; a matrix is scaled by a power of 2, so that squares neither overflow nor vanish. */
typedef double Lanes __attribute__((vector_size(WIDTH)));
typedef int64_t Mask __attribute__((vector_size(WIDTH)));
enum { LANES = WIDTH / 8, MOST_STEPS = 50 };
#define VANISHING 1e-280                 /* of a sum of squares of a matrix whose largest entry is about 1 */

typedef struct {
    const MatrixPlan *plan;
    int64_t count;
    const void *x;
    void *values, *vectors;
    int answer;
} EigenJob;

/* Room for one group: a triangle of matrices, turned vectors as rows, and five rows beside. */
typedef struct { Lanes *a, *z, *d, *e, *v, *w, *beta; } EigenRoom;

INLINE Lanes pick(Mask where, Lanes yes, Lanes no) { return (Lanes)((where & (Mask)yes) | (~where & (Mask)no)); }
INLINE Lanes all_lanes(double value) { return value - (Lanes){0}; }
INLINE Lanes magnitude(Lanes x) { return (Lanes)((Mask)x & INT64_MAX); }

INLINE Lanes root_of(Lanes x)
{
#if defined(__AVX512F__)
    return (Lanes)_mm512_sqrt_pd((__m512d)x);
#elif defined(__AVX2__)
    return (Lanes)_mm256_sqrt_pd((__m256d)x);
#else
    for (int lane = 0; lane < LANES; lane++) x[lane] = __builtin_sqrt(x[lane]);
    return x;
#endif
}

INLINE int any(Mask where)
{
    int64_t found = 0;
    for (int lane = 0; lane < LANES; lane++) found |= where[lane];
    return found != 0;
}

/* The lower triangle of one matrix into a lane. */
static void enter(Lanes *a, int lane, const MatrixPlan *plan, const void *x, int64_t at)
{
    int64_t n = plan->n;
    if (plan->type == F32) {
        const float *from = (const float *)x + at * n * n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) a[i * n + j][lane] = from[i * n + j];
    } else {
        const double *from = (const double *)x + at * n * n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) a[i * n + j][lane] = from[i * n + j];
    }
}

/* Scales matrices so that their largest entries are about 1, and tells by which exponents; 0 if not all is finite. */
INLINE int even_out(Lanes *a, int64_t n, int *exponents)
{
    Lanes most = {0}, sum = {0}, scale = {0};
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            Lanes size = magnitude(a[i * n + j]);
            most = pick(size > most, size, most);
            sum += size * 0;
        }
    if (any(sum != 0)) return 0;         /* it is a NaN */
    for (int lane = 0; lane < LANES; lane++) {
        __builtin_frexp(most[lane], exponents + lane);
        if (exponents[lane] < -1000) exponents[lane] = -1000;
        scale[lane] = __builtin_ldexp(1, -exponents[lane]);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) a[i * n + j] *= scale;
    return 1;
}

/* Reflections, kept below the diagonal, and what they leave: d on the diagonal, e beside it. */
INLINE void to_tridiagonal(const EigenRoom *r, int64_t n)
{
    Lanes *a = r->a, *v = r->v, *w = r->w, zero = {0};
    for (int64_t k = 0; k + 2 < n; k++) {
        Lanes rest = zero, first = a[(k + 1) * n + k];
        for (int64_t i = k + 2; i < n; i++) rest += a[i * n + k] * a[i * n + k];
        Mask flat = rest < VANISHING;
        Lanes norm = root_of(first * first + rest), size = magnitude(first);
        Lanes beta = pick(flat, zero, 1 / pick(flat, all_lanes(1), norm * (norm + size)));
        r->e[k] = pick(flat, first, pick(first > 0, -norm, norm));
        r->beta[k] = beta;
        v[k + 1] = pick(flat, zero, first + pick(first > 0, norm, -norm));
        for (int64_t i = k + 2; i < n; i++) v[i] = a[i * n + k];
        Lanes dot = zero;
        for (int64_t i = k + 1; i < n; i++) {
            Lanes one = zero, two = zero;
            for (int64_t j = k + 1; j <= i; j++) one += a[i * n + j] * v[j];
            for (int64_t j = i + 1; j < n; j++) two += a[j * n + i] * v[j];
            w[i] = (one + two) * beta;
            dot += w[i] * v[i];
        }
        dot *= beta / 2;
        for (int64_t i = k + 1; i < n; i++) w[i] -= dot * v[i];
        for (int64_t i = k + 1; i < n; i++) {
            for (int64_t j = k + 1; j <= i; j++) a[i * n + j] -= v[i] * w[j] + w[i] * v[j];
            a[i * n + k] = v[i];
        }
    }
    for (int64_t i = 0; i < n; i++) r->d[i] = a[i * n + i];
    if (n > 1) r->e[n - 2] = a[(n - 1) * n + n - 2];
    r->e[n - 1] = zero;
}

/* The product of all reflections, transposed. */
INLINE void gather_reflections(const EigenRoom *r, int64_t n)
{
    Lanes *z = r->z, *v = r->v;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) z[i * n + j] = all_lanes(i == j);
    for (int64_t k = n - 3; k >= 0; k--) {
        for (int64_t i = k + 1; i < n; i++) v[i] = r->a[i * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            Lanes *row = z + i * n, dot = {0};
            for (int64_t j = k + 1; j < n; j++) dot += row[j] * v[j];
            dot *= r->beta[k];
            for (int64_t j = k + 1; j < n; j++) row[j] -= dot * v[j];
        }
    }
}

/* Where the block that begins at l ends in each lane, and d there: beside it e is within the rounding of `most`. */
INLINE Mask end_of(const EigenRoom *r, int64_t n, int64_t l, Lanes most, Lanes *last)
{
    Mask end = (Mask){0} + (n - 1);
    *last = r->d[n - 1];
    for (int64_t i = n - 2; i >= l; i--) {
        Mask small = magnitude(r->e[i]) <= most;
        end = (small & i) | (~small & end);
        *last = pick(small, r->d[i], *last);
    }
    return end;
}

/* One shifted QL step on the blocks that begin at l. */
INLINE void step(const EigenRoom *r, int64_t n, int64_t l, Mask end, Mask on, Lanes last, int64_t top, int turns)
{
    Lanes *d = r->d, *e = r->e, one = all_lanes(1), zero = {0};
    Lanes g = (d[l + 1] - d[l]) / pick(on, 2 * e[l], one), root = root_of(g * g + 1);
    g = last - d[l] + e[l] / (g + pick(g < 0, -root, root));
    Lanes s = one, c = one, p = zero;
    for (int64_t i = top - 1; i >= l; i--) {
        Mask here = on & (end > i);
        Lanes f = s * e[i], b = c * e[i], size = root_of(f * f + g * g);
        Mask lost = here & (size == 0);  /* the block has come apart: it is begun anew */
        e[i + 1] = pick(here, pick(end == i + 1, zero, size), e[i + 1]);
        d[i + 1] = pick(lost, d[i + 1] - p, d[i + 1]);
        on &= ~lost, here &= ~lost;
        Lanes inverse = 1 / pick(here, size, one);
        s = pick(here, f * inverse, s), c = pick(here, g * inverse, c);
        Lanes from = d[i + 1] - p, change = (d[i] - from) * s + 2 * c * b;
        p = pick(here, s * change, p);
        d[i + 1] = pick(here, from + p, d[i + 1]);
        g = pick(here, c * change - b, g);
        if (!turns) continue;
        Lanes *row = r->z + i * n, *next = row + n, by = pick(here, s, zero), stay = pick(here, c, one);
        for (int64_t k = 0; k < n; k++) {
            Lanes upper = row[k], lower = next[k];
            next[k] = by * upper + stay * lower;
            row[k] = stay * upper - by * lower;
        }
    }
    d[l] = pick(on, d[l] - p, d[l]);
    e[l] = pick(on, g, e[l]);
}

INLINE int to_diagonal(const EigenRoom *r, int64_t n, int turns)
{
    Lanes most = {0};
    for (int64_t i = 0; i < n; i++) {
        Lanes size = (magnitude(r->d[i]) + magnitude(r->e[i])) * 0x1p-53;
        most = pick(size > most, size, most);
    }
    for (int64_t l = 0; l + 1 < n; l++)
        for (int steps = 0;; steps++) {
            Lanes last;
            Mask end = end_of(r, n, l, most, &last), on = end != l;
            if (!any(on)) break;
            if (steps == MOST_STEPS) return 0;
            int64_t top = l;
            for (int lane = 0; lane < LANES; lane++) top = end[lane] > top ? end[lane] : top;
            step(r, n, l, end, on, last, top, turns);
        }
    return 1;
}

/* A lane's values, ascending, and their vectors as rows. */
static void leave(const EigenRoom *r, int lane, const EigenJob *job, int64_t at, int exponent)
{
    int64_t n = job->plan->n, order[MOST_SIDE];
    for (int64_t i = 0; i < n; i++) {
        int64_t place = i;
        for (; place > 0 && r->d[order[place - 1]][lane] > r->d[i][lane]; place--) order[place] = order[place - 1];
        order[place] = i;
    }
    for (int64_t i = 0; i < n; i++) {
        double value = __builtin_ldexp(r->d[order[i]][lane], exponent);
        const Lanes *row = r->z + order[i] * n;
        if (job->plan->type == F32) {
            ((float *)job->values)[at * n + i] = (float)value;
            if (job->vectors)
                for (int64_t k = 0; k < n; k++) ((float *)job->vectors)[(at * n + i) * n + k] = (float)row[k][lane];
        } else {
            ((double *)job->values)[at * n + i] = value;
            if (job->vectors)
                for (int64_t k = 0; k < n; k++) ((double *)job->vectors)[(at * n + i) * n + k] = row[k][lane];
        }
    }
}

static void eigen_groups(void *of, int64_t begin, int64_t end)
{
    EigenJob *job = of;
    int64_t n = job->plan->n;
    Lanes *room = scratch((size_t)(2 * n * n + 5 * n) * sizeof(Lanes));
    if (!room) {
        job->answer = NO_MEMORY;
        return;
    }
    EigenRoom r = {room, room + n * n, room + 2 * n * n};
    r.e = r.d + n, r.v = r.e + n, r.w = r.v + n, r.beta = r.w + n;
    for (int64_t group = begin; group < end && job->answer == DONE; group++) {
        int exponents[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            int64_t at = group * LANES + lane;
            enter(r.a, lane, job->plan, job->x, at < job->count ? at : job->count - 1);
        }
        if (!even_out(r.a, n, exponents)) {
            job->answer = UNSOLVED;
            break;
        }
        to_tridiagonal(&r, n);
        if (job->vectors) gather_reflections(&r, n);
        if (!(job->vectors ? to_diagonal(&r, n, 1) : to_diagonal(&r, n, 0))) job->answer = UNSOLVED;
        for (int lane = 0; lane < LANES && group * LANES + lane < job->count; lane++)
            leave(&r, lane, job, group * LANES + lane, exponents[lane]);
    }
    free(room);
}

static int eigen(const MatrixPlan *plan, int64_t count, const void *x, void *values, void *vectors)
{
    EigenJob job = {plan, count, x, values, vectors, DONE};
    share(eigen_groups, &job, (count + LANES - 1) / LANES, count * plan->n * plan->n * plan->n);
    return job.answer;
}
