/* Moments, taken in one way by every template: sums about a pivot. Once per element type.
 *
 *   d = x - pivot,     mean = pivot + sum(d) / n,     var = sum(d^2) / n - (sum(d) / n)^2
 *
 * One pass. The pivot, the mean of a few values from here and there, is of the values' own size, so that an offset leaves d exact;
 * sums run in REAL over a stretch, at most DEPTH additions a lane, and in double over stretches. Where the pivot turns out to be
 * astray, further from the mean than one deviation, the sums are taken once more about the mean found. That is near enough
 * whatever the values are, since no value, hence no pivot, is further from the mean than sqrt(n) deviations.
 *
 * So d^2 is 2 var on average at most, and with u half the distance from 1 to the next REAL, s = sqrt(var) and c = 2^-52 |mean|,
 * for values of any offset,
 *
 *   |error of mean| <= 120 u s + c,     |error of var| <= 400 u var + 2 c s
 *
 * that is (DEPTH + 9) u of the sum of d^2 at both places where it enters, and what a mean loses as one double. For doubles the sums
 * over stretches are no finer than those within, which adds n / STRETCH + DEPTH to the 120 and four times that to the 400. Numbers
 * are taken to be normal: squares below 1e-38 lose digits in float32, as in any formula.
 */

#ifndef MOMENTS_H
#define MOMENTS_H
enum { DEPTH = 64 };                    /* additions to a lane, before a double takes the sum */
enum { PILOT = 16 };                    /* rows that a lane's pivot is the mean of */
enum { SIDE = 4 };                      /* sums that run side by side, so that none waits for the last addition */
#endif

typedef struct { REAL pivot; double sum, square; } T(Taken);      /* sums of d and of d^2 */

/* `share` is 1 / n. */
static inline int T(astray)(T(Taken) t, double share) { return 2 * t.sum * t.sum * share > t.square; }

static inline double T(mean_of)(T(Taken) t, double share) { return t.pivot + t.sum * share; }

/* The sum of squares about the mean. */
static inline double T(squares_of)(T(Taken) t, double share)
{
    double squares = t.square - t.sum * t.sum * share;
    return squares < 0 ? 0 : squares;
}

/* To begin anew about the mean found. */
static inline T(Taken) T(about_mean)(T(Taken) t, double share) { return (T(Taken)){(REAL)T(mean_of)(t, share), 0, 0}; }

/* The mean of four vectors, from runs of `length` values that lie `apart`; of shares, since a sum may be too large for its type. */
INLINE REAL T(pilot)(const ELEM *x, int64_t length, int64_t runs, int64_t apart)
{
    int n = length < LANES ? (int)length : LANES;
    int64_t step = (length - n) / 3;
    V sum = {0}, share = T(all)(n == LANES ? (REAL)0.25 / LANES : (REAL)0.25 / (REAL)n);
    for (int i = 0; i < 4; i++, x += step) {
        const ELEM *from = x + i * (runs - 1) / 3 * apart;
        sum += GET(from, n) * share;
    }
    return (REAL)T(across)(sum);
}

INLINE void T(take_some)(const ELEM *x, V pivot, int n, V *sum, V *square)
{
    V d = GET(x, n) - pivot;
    if (n < LANES) d = T(select)(T(first)(n), d, (V){0});
    *sum += d, *square += d * d;
}

/* Adds a run of values to the sums. */
INLINE void T(take)(const ELEM *x, int64_t length, T(Taken) *t)
{
    V pivot = T(all)(t->pivot);
    for (int64_t at = 0; at < length;) {
        int64_t end = length - at < STRETCH ? length : at + STRETCH;
        V sum[SIDE] = {{0}}, square[SIDE] = {{0}};
        for (; at + SIDE * LANES <= end; at += SIDE * LANES)
            for (int i = 0; i < SIDE; i++) T(take_some)(x + at + i * LANES, pivot, LANES, &sum[i], &square[i]);
        for (; at + LANES <= end; at += LANES) T(take_some)(x + at, pivot, LANES, &sum[0], &square[0]);
        if (at < end) T(take_some)(x + at, pivot, (int)(end - at), &sum[1], &square[1]), at = end;
        t->sum += T(across)((sum[0] + sum[1]) + (sum[2] + sum[3]));
        t->square += T(across)((square[0] + square[1]) + (square[2] + square[3]));
    }
}

/* What one run adds up to. */
INLINE T(Taken) T(taken_of_run)(const ELEM *x, int64_t length, double share, REAL pivot)
{
    T(Taken) t = {pivot, 0, 0};
    T(take)(x, length, &t);
    if (__builtin_expect(T(astray)(t, share), 0)) {
        t = T(about_mean)(t, share);
        T(take)(x, length, &t);
    }
    return t;
}
