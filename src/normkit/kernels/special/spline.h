/* Rational-quadratic splines, from what a network returns: each lane bends a number of its own, in double.
 *
 * With s = h / w, t = (x - x_k) / w, c = t (1 - t), N = s t^2 + d_k c, D = s + (d_k + d_k+1 - 2 s) c and
 * A = d_k+1 t^2 + 2 s c + d_k (1 - t)^2 the curve is y_k + h N / D, and the logarithm of its slope log(s^2 A) - 2 log D. */
typedef struct {
    const SplinePlan *plan;
    int64_t count;
    const void *x, *widths, *heights, *slopes, *dy, *dlog;
    void *y, *log_slope, *dx, *dwidths, *dheights, *dslopes;
    int answer;
} SplineJob;

/* Along one side: softmax numerators and one over their sum; where knots begin, steps of the least bin, what is shared out. */
typedef struct { Lanes *e, inverse; double low, high, step, shared; } Side;

/* Of the bin that holds a number: its two knots, and the sums of shares before them. */
typedef struct { Lanes low, high, before, upto; } Ends;

/* A slope at a knot, and its derivative by the number it was made of: 1 and 0 where it is held. */
typedef struct { Lanes value, rate; } Slope;

typedef struct {
    Mask inside, bin;
    Ends x, y;
    Slope left, right;
    Lanes w, h, s, t, c, bend, n, d, a;
} Curve;

INLINE double read(int64_t type, const void *from, int64_t at)
{
    return type == F32 ? ((const float *)from)[at] : ((const double *)from)[at];
}

INLINE void write(int64_t type, void *to, int64_t at, double value)
{
    if (type == F32) ((float *)to)[at] = (float)value;
    else ((double *)to)[at] = value;
}

/* Numbers `size` a row, into lanes and out of them; a lane without a row has the last one. */
INLINE void enter_rows(int64_t type, const void *from, int64_t first, int64_t count, int64_t size, Lanes *to)
{
    for (int lane = 0; lane < LANES; lane++) {
        int64_t row = first + lane < count ? first + lane : count - 1;
        for (int64_t k = 0; k < size; k++) to[k][lane] = read(type, from, row * size + k);
    }
}

INLINE void leave_rows(int64_t type, const Lanes *from, int64_t first, int64_t count, int64_t size, void *to)
{
    for (int lane = 0; lane < LANES && first + lane < count; lane++)
        for (int64_t k = 0; k < size; k++) write(type, to, (first + lane) * size + k, from[k][lane]);
}

INLINE Side side_of(Lanes *e, int64_t bins, double low, double high, double least)
{
    Lanes most = e[0], sum = {0};
    for (int64_t k = 1; k < bins; k++) most = pick(e[k] > most, e[k], most);
    for (int64_t k = 0; k < bins; k++) {
        e[k] = exp_of(e[k] - most);
        sum += e[k];
    }
    return (Side){e, 1 / sum, low, high, (high - low) * least, (high - low) * (1 - least * bins)};
}

/* Goes along the knots inside of a side, up to `place` or to the bin that is known. */
INLINE Ends ends_of(const Side *side, int64_t bins, int search, Lanes place, Mask *bin)
{
    Ends found = {all_lanes(side->low), all_lanes(side->high), {0}, all_lanes(1)};
    Mask at = {0}, past = {0};
    Lanes sum = {0};
    for (int64_t k = 1; k < bins; k++) {
        sum += side->e[k - 1] * side->inverse;
        Lanes knot = side->low + side->step * k + side->shared * sum;
        Mask below = search ? knot <= place : *bin >= k, first = ~(below | past);
        at -= below;
        found.low = pick(below, knot, found.low), found.before = pick(below, sum, found.before);
        found.high = pick(first, knot, found.high), found.upto = pick(first, sum, found.upto);
        past |= ~below;
    }
    if (search) *bin = at;
    return found;
}

/* The least slope and a softplus, linear from 20 as torch's is. */
INLINE Slope slope_of(Lanes raw, Mask held, double least)
{
    Mask linear = raw > 20;
    Lanes u = pick(linear, (Lanes){0}, exp_of(-magnitude(raw))), sum = 1 + u;
    Lanes log = pick(sum == 1, u, log_of(sum) * u / pick(sum == 1, all_lanes(1), sum - 1));
    Slope slope = {least + pick(raw < 0, log, raw + log), pick(raw < 0, u, all_lanes(1)) / sum};
    return (Slope){pick(held, all_lanes(1), slope.value), pick(held, (Lanes){0}, slope.rate)};
}

/* The slopes at both ends of each lane's bin; with tails those of the box are not in memory. */
INLINE void enter_slopes(const SplineJob *job, int64_t first, Curve *k)
{
    const SplinePlan *plan = job->plan;
    int64_t tails = plan->tails, size = plan->bins + 1 - 2 * tails;
    Lanes raw[2] = {{0}, {0}};
    Mask held[2] = {{0}, {0}};
    for (int lane = 0; lane < LANES; lane++) {
        int64_t row = first + lane < job->count ? first + lane : job->count - 1, at = k->bin[lane] - tails;
        for (int end = 0; end < 2; end++) {
            if (at + end < 0 || at + end >= size) held[end][lane] = -1;
            else raw[end][lane] = read(plan->type, job->slopes, row * size + at + end);
        }
    }
    k->left = slope_of(raw[0], held[0], plan->least_slope);
    k->right = slope_of(raw[1], held[1], plan->least_slope);
}

INLINE Curve curve_of(const SplineJob *job, int64_t first, Lanes x, Side *across, Side *up)
{
    const SplinePlan *plan = job->plan;
    int64_t bins = plan->bins;
    int inverse = plan->inverse != 0;
    Side *known = inverse ? up : across, *other = inverse ? across : up;
    Curve k;
    k.inside = (x >= known->low) & (x <= known->high);
    Lanes place = pick(k.inside, x, all_lanes(known->low));
    Ends one = ends_of(known, bins, 1, place, &k.bin), two = ends_of(other, bins, 0, place, &k.bin);
    k.x = inverse ? two : one, k.y = inverse ? one : two;
    enter_slopes(job, first, &k);
    Lanes left = k.left.value, right = k.right.value;
    k.w = k.x.high - k.x.low, k.h = k.y.high - k.y.low, k.s = k.h / k.w, k.bend = left + right - 2 * k.s;
    if (inverse) {
        Lanes r = place - k.y.low, a = r * k.bend + k.h * (k.s - left), b = k.h * left - r * k.bend, c = -k.s * r;
        Lanes square = b * b - 4 * a * c;
        k.t = 2 * c / (-b - root_of(pick(square < 0, (Lanes){0}, square)));
    } else {
        k.t = (place - k.x.low) / k.w;
    }
    Lanes t = k.t, rest = 1 - t;
    k.c = t * rest;
    k.n = k.s * t * t + left * k.c;
    k.d = k.s + k.bend * k.c;
    k.a = right * t * t + 2 * k.s * k.c + left * rest * rest;
    return k;
}

/* Reads what makes the knots of a group of numbers; limits are numbers of the arrays' type, as torch compares them. */
INLINE void enter_sides(const SplineJob *job, int64_t first, Lanes *room, Side *across, Side *up)
{
    const SplinePlan *p = job->plan;
    double box[4];
    for (int i = 0; i < 4; i++) box[i] = p->type == F32 ? (float)p->box[i] : p->box[i];
    enter_rows(p->type, job->widths, first, job->count, p->bins, room);
    enter_rows(p->type, job->heights, first, job->count, p->bins, room + p->bins);
    *across = side_of(room, p->bins, box[0], box[1], p->least_width);
    *up = side_of(room + p->bins, p->bins, box[2], box[3], p->least_height);
}

static void spline_groups(void *of, int64_t begin, int64_t end)
{
    SplineJob *job = of;
    const SplinePlan *plan = job->plan;
    Lanes *room = scratch((size_t)(2 * plan->bins) * sizeof(Lanes));
    if (!room) job->answer = NO_MEMORY;
    for (int64_t group = begin; room && group < end; group++) {
        int64_t first = group * LANES;
        Side across, up;
        Lanes x;
        enter_sides(job, first, room, &across, &up);
        enter_rows(plan->type, job->x, first, job->count, 1, &x);
        Curve k = curve_of(job, first, x, &across, &up);
        Lanes log = log_of(k.s * k.s * k.a) - 2 * log_of(k.d);
        Lanes y = plan->inverse ? k.t * k.w + k.x.low : k.y.low + k.h * k.n / k.d;
        y = pick(k.inside, y, x), log = pick(k.inside, plan->inverse ? -log : log, (Lanes){0});
        leave_rows(plan->type, &y, first, job->count, 1, job->y);
        leave_rows(plan->type, &log, first, job->count, 1, job->log_slope);
    }
    free(room);
}

/* From gradients by both knots of a bin to those by what the shares are softmaxes of, in place of the shares. */
INLINE void back_to_shares(const Side *side, int64_t bins, const Ends *ends, const Curve *k, Lanes low, Lanes high)
{
    Lanes zero = {0};
    low = pick(k->inside & (k->bin > 0), low * side->shared, zero);
    high = pick(k->inside & (k->bin < bins - 1), high * side->shared, zero);
    Lanes mean = low * ends->before + high * ends->upto;
    for (int64_t i = 0; i < bins; i++) {
        Lanes sum = pick(k->bin > i, low, zero) + pick(k->bin >= i, high, zero);
        side->e[i] *= side->inverse * (sum - mean);
    }
}

static void leave_slopes(const SplineJob *job, int64_t first, const Curve *k, Lanes left, Lanes right)
{
    int64_t tails = job->plan->tails, size = job->plan->bins + 1 - 2 * tails;
    for (int lane = 0; lane < LANES && first + lane < job->count; lane++) {
        int64_t row = (first + lane) * size, at = k->bin[lane] - tails;
        for (int64_t i = 0; i < size; i++) write(job->plan->type, job->dslopes, row + i, 0);
        if (at >= 0) write(job->plan->type, job->dslopes, row + at, left[lane]);
        if (at + 1 < size) write(job->plan->type, job->dslopes, row + at + 1, right[lane]);
    }
}

/* The gradients by x, or by what the curve is to be where it is inverted, and by all that makes the curve. */
static void spline_back_groups(void *of, int64_t begin, int64_t end)
{
    SplineJob *job = of;
    const SplinePlan *plan = job->plan;
    int64_t bins = plan->bins;
    Lanes *room = scratch((size_t)(2 * bins) * sizeof(Lanes));
    if (!room) job->answer = NO_MEMORY;
    for (int64_t group = begin; room && group < end; group++) {
        int64_t first = group * LANES;
        Side across, up;
        Lanes x, dy, dlog;
        enter_sides(job, first, room, &across, &up);
        enter_rows(plan->type, job->x, first, job->count, 1, &x);
        enter_rows(plan->type, job->dy, first, job->count, 1, &dy);
        enter_rows(plan->type, job->dlog, first, job->count, 1, &dlog);
        Curve k = curve_of(job, first, x, &across, &up);
        Lanes t = k.t, rest = 1 - t, across_rate = rest - t, left = k.left.value, right = k.right.value, one = all_lanes(1);
        Lanes bent = 2 * (right * t + k.s * across_rate - left * rest), dx = (Lanes){0}, sent = dy;
        if (plan->inverse) {             /* at x(z) the curve stays z: what is sent to x goes on, against the slope */
            Lanes slope = k.s * k.s * k.a / (k.d * k.d), curving = (bent / k.a - 2 * k.bend * across_rate / k.d) / k.w;
            dlog = -dlog;
            dx = (dy + dlog * curving) / slope;
            sent = -dx;
        }
        Lanes dn = sent * k.h / k.d, dd = -(dn * k.n + 2 * dlog) / k.d, da = dlog / k.a;
        Lanes dt = dn * (2 * k.s * t + left * across_rate) + dd * k.bend * across_rate + da * bent;
        Lanes ds = dn * t * t + dd * (one - 2 * k.c) + 2 * (da * k.c + dlog / k.s);
        Lanes dw = -(dt * t + ds * k.s) / k.w, dh = sent * k.n / k.d + ds / k.w;
        dx = pick(k.inside, plan->inverse ? dx : dt / k.w, dy);
        if (job->dx) leave_rows(plan->type, &dx, first, job->count, 1, job->dx);
        if (job->dslopes) {
            Lanes dleft = (dn + dd) * k.c + da * rest * rest, dright = dd * k.c + da * t * t, zero = {0};
            leave_slopes(job, first, &k, pick(k.inside, dleft * k.left.rate, zero), pick(k.inside, dright * k.right.rate, zero));
        }
        if (job->dwidths) {
            back_to_shares(&across, bins, &k.x, &k, -dt / k.w - dw, dw);
            leave_rows(plan->type, across.e, first, job->count, bins, job->dwidths);
        }
        if (job->dheights) {
            back_to_shares(&up, bins, &k.y, &k, sent - dh, dh);
            leave_rows(plan->type, up.e, first, job->count, bins, job->dheights);
        }
    }
    free(room);
}

static int spline(const Spline *c)
{
    const SplinePlan *p = &c->plan;
    SplineJob job = {.plan = p, .count = c->count, .x = c->x.at, .widths = c->widths.at, .heights = c->heights.at,
                     .slopes = c->slopes.at, .y = c->y.at, .log_slope = c->log_slope.at, .answer = DONE};
    share(spline_groups, &job, (c->count + LANES - 1) / LANES, c->count * p->bins * 4);
    return job.answer;
}

static int spline_backward(const SplineBackward *c)
{
    const SplinePlan *p = &c->plan;
    SplineJob job = {.plan = p, .count = c->count, .x = c->x.at, .widths = c->widths.at, .heights = c->heights.at,
                     .slopes = c->slopes.at, .dy = c->dy.at, .dlog = c->dlog.at, .dx = c->dx.at, .dwidths = c->dwidths.at,
                     .dheights = c->dheights.at, .dslopes = c->dslopes.at, .answer = DONE};
    share(spline_back_groups, &job, (c->count + LANES - 1) / LANES, c->count * p->bins * 4);
    return job.answer;
}
