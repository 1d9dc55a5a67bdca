/* Sinkhorn's steps on many small matrices: each lane of a vector holds a matrix of its own, in double.
 *
 * Rows become softmaxes, plus eps; then columns, and rows and columns in turn, are divided by their sums plus eps. The backward pass
 * keeps the divisors alone: what was divided is what it multiplies back, and with y = x / s, s = eps + sum x, dx = (dy - sum dy y) / s. */
typedef struct {
    const SinkhornPlan *plan;
    int64_t count;
    const void *x, *grad;
    void *out;
    int answer;
} SinkhornJob;

INLINE void softmax_rows(Lanes *m, int64_t n)
{
    for (int64_t i = 0; i < n; i++, m += n) {
        Lanes most = m[0], sum = {0};
        for (int64_t j = 1; j < n; j++) most = pick(m[j] > most, m[j], most);
        for (int64_t j = 0; j < n; j++) {
            Lanes below = m[j] - most;
            sum += m[j] = pick(below <= -708, (Lanes){0}, exp_of(below));
        }
        Lanes inverse = 1 / sum;
        for (int64_t j = 0; j < n; j++) m[j] *= inverse;
    }
}

/* Divides each line by its sum plus eps: lines begin `line` apart, and their entries lie `next` apart. */
INLINE void divide_lines(Lanes *m, int64_t n, int64_t line, int64_t next, double eps, Lanes *divisors)
{
    for (int64_t i = 0; i < n; i++) {
        Lanes sum = m[i * line];
        for (int64_t j = 1; j < n; j++) sum += m[i * line + j * next];
        sum += eps;
        Lanes inverse = 1 / sum;
        for (int64_t j = 0; j < n; j++) m[i * line + j * next] *= inverse;
        if (divisors) divisors[i] = sum;
    }
}

/* Sends the gradient g of lines back to what they were divided from, and multiplies them back. */
INLINE void multiply_lines(Lanes *m, Lanes *g, int64_t n, int64_t line, int64_t next, const Lanes *divisors)
{
    for (int64_t i = 0; i < n; i++) {
        Lanes along = {0}, inverse = 1 / divisors[i];
        for (int64_t j = 0; j < n; j++) along += g[i * line + j * next] * m[i * line + j * next];
        for (int64_t j = 0; j < n; j++) {
            int64_t at = i * line + j * next;
            g[at] = (g[at] - along) * inverse;
            m[at] *= divisors[i];
        }
    }
}

/* Step 0 is of columns, step 1 of rows, and so on. */
INLINE void walk_steps(const SinkhornPlan *p, Lanes *m, int64_t n, Lanes *divisors)
{
    for (int64_t step = 0; step < 2 * p->rounds - 1; step++) {
        Lanes *kept = divisors ? divisors + step * n : 0;
        if (step & 1) divide_lines(m, n, n, 1, p->eps, kept);
        else divide_lines(m, n, 1, n, p->eps, kept);
    }
}

INLINE void sinkhorn_of(SinkhornJob *job, int64_t begin, int64_t end, int64_t n)
{
    const SinkhornPlan *plan = job->plan;
    int64_t entries = n * n;
    Lanes *m = scratch((size_t)entries * sizeof(Lanes));
    if (!m) job->answer = NO_MEMORY;
    for (int64_t group = begin; m && group < end; group++) {
        enter_rows(plan->type, job->x, group * LANES, job->count, entries, m);
        softmax_rows(m, n);
        for (int64_t k = 0; k < entries; k++) m[k] += plan->eps;
        walk_steps(plan, m, n, 0);
        leave_rows(plan->type, m, group * LANES, job->count, entries, job->out);
    }
    free(m);
}

INLINE void sinkhorn_back_of(SinkhornJob *job, int64_t begin, int64_t end, int64_t n)
{
    const SinkhornPlan *plan = job->plan;
    int64_t entries = n * n, steps = 2 * plan->rounds - 1;
    Lanes *m = scratch((size_t)(3 * entries + steps * n) * sizeof(Lanes));
    if (!m) job->answer = NO_MEMORY;
    for (int64_t group = begin; m && group < end; group++) {
        Lanes *shares = m + entries, *g = shares + entries, *divisors = g + entries;
        enter_rows(plan->type, job->x, group * LANES, job->count, entries, shares);
        enter_rows(plan->type, job->grad, group * LANES, job->count, entries, g);
        softmax_rows(shares, n);
        for (int64_t k = 0; k < entries; k++) m[k] = shares[k] + plan->eps;
        walk_steps(plan, m, n, divisors);
        for (int64_t step = steps - 1; step >= 0; step--) {
            if (step & 1) multiply_lines(m, g, n, n, 1, divisors + step * n);
            else multiply_lines(m, g, n, 1, n, divisors + step * n);
        }
        for (int64_t i = 0; i < n; i++) {
            Lanes along = {0};
            for (int64_t j = 0; j < n; j++) along += g[i * n + j] * shares[i * n + j];
            for (int64_t j = 0; j < n; j++) g[i * n + j] = (g[i * n + j] - along) * shares[i * n + j];
        }
        leave_rows(plan->type, g, group * LANES, job->count, entries, job->out);
    }
    free(m);
}

static void sinkhorn_groups(void *of, int64_t begin, int64_t end)
{
    SinkhornJob *job = of;
    if (job->plan->n == 4) sinkhorn_of(job, begin, end, 4);
    else sinkhorn_of(job, begin, end, job->plan->n);
}

static void sinkhorn_back_groups(void *of, int64_t begin, int64_t end)
{
    SinkhornJob *job = of;
    if (job->plan->n == 4) sinkhorn_back_of(job, begin, end, 4);
    else sinkhorn_back_of(job, begin, end, job->plan->n);
}

static int sinkhorn(const SinkhornPlan *p, int64_t count, const void *x, void *y)
{
    SinkhornJob job = {.plan = p, .count = count, .x = x, .out = y, .answer = DONE};
    share(sinkhorn_groups, &job, (count + LANES - 1) / LANES, count * p->n * p->n * p->rounds);
    return job.answer;
}

static int sinkhorn_backward(const SinkhornPlan *p, int64_t count, const void *x, const void *grad, void *dx)
{
    SinkhornJob job = {.plan = p, .count = count, .x = x, .grad = grad, .out = dx, .answer = DONE};
    share(sinkhorn_back_groups, &job, (count + LANES - 1) / LANES, count * p->n * p->n * p->rounds * 2);
    return job.answer;
}
