/* Symmetric parts and factors of Cholesky. Factors of many matrices are found at once, one a lane, in double. */

/* The symmetric part of each matrix. */
#define SYMMETRIC(type, name) \
    static void name(int64_t n, const type *restrict x, type *restrict y) \
    { \
        for (int64_t i = 0; i < n; i++) { \
            y[i * n + i] = x[i * n + i]; \
            for (int64_t j = 0; j < i; j++) y[i * n + j] = y[j * n + i] = (x[i * n + j] + x[j * n + i]) / 2; \
        } \
    }
SYMMETRIC(float, symmetric_f32)
SYMMETRIC(double, symmetric_f64)

typedef struct { const MatrixPlan *plan; int64_t count; const void *x, *grad; void *y; double *notes; int answer; } MatrixJob;

static void symmetric_some(void *of, int64_t begin, int64_t end)
{
    MatrixJob *job = of;
    int64_t n = job->plan->n;
    for (int64_t i = begin; i < end; i++)
        if (job->plan->type == F32) symmetric_f32(n, (const float *)job->x + i * n * n, (float *)job->y + i * n * n);
        else symmetric_f64(n, (const double *)job->x + i * n * n, (double *)job->y + i * n * n);
}

static int symmetric(const MatrixPlan *plan, int64_t count, const void *x, void *y)
{
    MatrixJob job = {plan, count, x, 0, y, 0, DONE};
    share(symmetric_some, &job, count, count * plan->n * plan->n);
    return job.answer;
}

/* A lane's matrix out; what is above the diagonal is its mirror image or 0. */
static void leave_lower(const Lanes *a, int lane, const MatrixPlan *plan, void *y, int64_t at, int mirrored)
{
    int64_t n = plan->n;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double entry = j <= i ? a[i * n + j][lane] : mirrored ? a[j * n + i][lane] : 0;
            if (plan->type == F32) ((float *)y)[(at * n + i) * n + j] = (float)entry;
            else ((double *)y)[(at * n + i) * n + j] = entry;
        }
}

/* What is known of a lane's matrix beside its lower triangle: its largest entry, and how far it is from its transpose. */
static void tell(const MatrixPlan *plan, const void *x, int64_t at, double *notes)
{
    int64_t n = plan->n;
    double most = 0, skew = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            int64_t here = (at * n + i) * n + j, there = (at * n + j) * n + i;
            double one = plan->type == F32 ? ((const float *)x)[here] : ((const double *)x)[here];
            double other = plan->type == F32 ? ((const float *)x)[there] : ((const double *)x)[there];
            double size = __builtin_fabs(one + other) / 2, off = __builtin_fabs(one - other);
            most = size > most ? size : most;
            skew = off > skew ? off : skew;
        }
    notes[0] = most, notes[1] = skew;
}

/* The factor in place, and the least of the pivots' signs: 1 where all are above 0. */
INLINE Lanes factor_of(Lanes *a, int64_t n)
{
    Lanes sound = all_lanes(1);
    for (int64_t j = 0; j < n; j++) {
        Lanes pivot = a[j * n + j];
        for (int64_t k = 0; k < j; k++) pivot -= a[j * n + k] * a[j * n + k];
        Mask above = pivot > 0;
        sound = pick(above, sound, all_lanes(0));
        Lanes root = root_of(pick(above, pivot, all_lanes(1))), inverse = 1 / root;
        a[j * n + j] = root;
        for (int64_t i = j + 1; i < n; i++) {
            Lanes sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
            a[i * n + j] = sum * inverse;
        }
    }
    return sound;
}

static void factor_groups(void *of, int64_t begin, int64_t end)
{
    MatrixJob *job = of;
    int64_t n = job->plan->n;
    Lanes *a = scratch((size_t)(n * n) * sizeof(Lanes));
    if (!a) job->answer = NO_MEMORY;
    for (int64_t group = begin; a && group < end; group++) {
        int64_t first = group * LANES, last = job->count - 1;
        for (int lane = 0; lane < LANES; lane++) enter(a, lane, job->plan, job->x, first + lane < last ? first + lane : last);
        Lanes sound = factor_of(a, n);
        for (int64_t i = 0; job->plan->logged && i < n; i++) a[i * n + i] = log_of(a[i * n + i]);
        for (int lane = 0; lane < LANES && first + lane <= last; lane++) {
            int64_t at = first + lane;
            tell(job->plan, job->x, at, job->notes + 3 * at);
            job->notes[3 * at + 2] = sound[lane];
            if (job->y) leave_lower(a, lane, job->plan, job->y, at, 0);
        }
    }
    free(a);
}

static int cholesky(const MatrixPlan *plan, int64_t count, const void *x, void *y, double *notes)
{
    MatrixJob job = {plan, count, x, 0, y, notes, DONE};
    share(factor_groups, &job, (count + LANES - 1) / LANES, count * plan->n * plan->n * plan->n);
    return job.answer;
}

/* With P the lower triangle of L'G, half its diagonal: the symmetric part of L^-T P L^-1, L and G in their rooms, into `to`. */
INLINE void factor_gradient(const Lanes *l, const Lanes *g, Lanes *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)          /* S = P + P', which is 2 sym P */
        for (int64_t j = 0; j <= i; j++) {
            Lanes sum = {0};
            for (int64_t k = i; k < n; k++) sum += l[k * n + i] * g[k * n + j];
            to[i * n + j] = to[j * n + i] = sum;
        }
    for (int64_t i = n - 1; i >= 0; i--) {   /* L' X = S, a row at a time, from below */
        Lanes inverse = 1 / l[i * n + i];
        for (int64_t j = 0; j < n; j += 4) {
            int64_t last = j + 4 < n ? j + 4 : n;
            Lanes sum[4] = {{0}};
            for (int64_t k = i + 1; k < n; k++)
                for (int c = 0; c < 4; c++) sum[c] += l[k * n + i] * to[k * n + (j + c < last ? j + c : j)];
            for (int64_t c = j; c < last; c++) to[i * n + c] = (to[i * n + c] - sum[c - j]) * inverse;
        }
    }
    for (int64_t i = 0; i < n; i += 4) {     /* Y L = X / 2, four rows at a time; Y is symmetric */
        Lanes *row[4];
        for (int64_t c = 0; c < 4; c++) row[c] = to + (i + c < n ? i + c : i) * n;
        for (int64_t j = n - 1; j >= 0; j--) {
            Lanes sum[4] = {{0}}, inverse = 1 / l[j * n + j];
            for (int64_t k = j + 1; k < n; k++)
                for (int c = 0; c < 4; c++) sum[c] += row[c][k] * l[k * n + j];
            for (int64_t c = 0; c < 4 && i + c < n; c++) row[c][j] = (row[c][j] - sum[c]) * inverse;
        }
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) to[i * n + j] *= 0.5;
}

static void gradient_groups(void *of, int64_t begin, int64_t end)
{
    MatrixJob *job = of;
    int64_t n = job->plan->n;
    Lanes *room = scratch((size_t)(3 * n * n) * sizeof(Lanes));
    if (!room) job->answer = NO_MEMORY;
    for (int64_t group = begin; room && group < end; group++) {
        int64_t first = group * LANES, last = job->count - 1;
        for (int lane = 0; lane < LANES; lane++) {
            int64_t at = first + lane < last ? first + lane : last;
            enter(room, lane, job->plan, job->x, at);
            enter(room + n * n, lane, job->plan, job->grad, at);
        }
        for (int64_t i = 0; job->plan->logged && i < n; i++) {
            room[i * n + i] = exp_of(room[i * n + i]);
            room[n * n + i * n + i] /= room[i * n + i];
        }
        factor_gradient(room, room + n * n, room + 2 * n * n, n);
        for (int lane = 0; lane < LANES && first + lane <= last; lane++)
            leave_lower(room + 2 * n * n, lane, job->plan, job->y, first + lane, 1);
    }
    free(room);
}

static int cholesky_backward(const MatrixPlan *plan, int64_t count, const void *factor, const void *grad, void *dx)
{
    MatrixJob job = {plan, count, factor, grad, dx, 0, DONE};
    share(gradient_groups, &job, (count + LANES - 1) / LANES, count * plan->n * plan->n * plan->n);
    return job.answer;
}

/* A group's factors into lanes. */
INLINE void enter_factors(const MatrixJob *job, int64_t first, Lanes *to)
{
    int64_t n = job->plan->n;
    for (int lane = 0; lane < LANES; lane++)
        enter(to, lane, job->plan, job->x, first + lane < job->count ? first + lane : job->count - 1);
    for (int64_t i = 0; job->plan->logged && i < n; i++) to[i * n + i] = exp_of(to[i * n + i]);
}

/* K K' of lower factors K. */
static void product_groups(void *of, int64_t begin, int64_t end)
{
    MatrixJob *job = of;
    int64_t n = job->plan->n;
    Lanes *k = scratch((size_t)(2 * n * n) * sizeof(Lanes)), *y = k + n * n;
    if (!k) job->answer = NO_MEMORY;
    for (int64_t group = begin; k && group < end; group++) {
        int64_t first = group * LANES;
        enter_factors(job, first, k);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                Lanes sum = {0};
                for (int64_t c = 0; c <= j; c++) sum += k[i * n + c] * k[j * n + c];
                y[i * n + j] = sum;
            }
        for (int lane = 0; lane < LANES && first + lane < job->count; lane++)
            leave_lower(y, lane, job->plan, job->y, first + lane, 1);
    }
    free(k);
}

/* With G sent to K K': the lower triangle of (G + G') K, the diagonal times that of K where it is of logarithms. */
static void product_back_groups(void *of, int64_t begin, int64_t end)
{
    MatrixJob *job = of;
    int64_t n = job->plan->n;
    Lanes *k = scratch((size_t)(3 * n * n) * sizeof(Lanes)), *g = k + n * n, *to = g + n * n;
    if (!k) job->answer = NO_MEMORY;
    for (int64_t group = begin; k && group < end; group++) {
        int64_t first = group * LANES;
        enter_factors(job, first, k);
        for (int lane = 0; lane < LANES; lane++) {
            int64_t from = (first + lane < job->count ? first + lane : job->count - 1) * n * n;
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j <= i; j++) {
                    int64_t here = from + i * n + j, there = from + j * n + i;
                    double sum = job->plan->type == F32 ? (double)((const float *)job->grad)[here] + ((const float *)job->grad)[there]
                                                        : ((const double *)job->grad)[here] + ((const double *)job->grad)[there];
                    g[i * n + j][lane] = g[j * n + i][lane] = sum;
                }
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                Lanes sum = {0};
                for (int64_t c = j; c < n; c++) sum += g[i * n + c] * k[c * n + j];
                to[i * n + j] = i == j && job->plan->logged ? sum * k[i * n + i] : sum;
            }
        for (int lane = 0; lane < LANES && first + lane < job->count; lane++)
            leave_lower(to, lane, job->plan, job->y, first + lane, 0);
    }
    free(k);
}

static int product(const MatrixPlan *plan, int64_t count, const void *factor, void *y)
{
    MatrixJob job = {plan, count, factor, 0, y, 0, DONE};
    share(product_groups, &job, (count + LANES - 1) / LANES, count * plan->n * plan->n * plan->n);
    return job.answer;
}

static int product_backward(const MatrixPlan *plan, int64_t count, const void *factor, const void *grad, void *dfactor)
{
    MatrixJob job = {plan, count, factor, grad, dfactor, 0, DONE};
    share(product_back_groups, &job, (count + LANES - 1) / LANES, count * plan->n * plan->n * plan->n);
    return job.answer;
}
