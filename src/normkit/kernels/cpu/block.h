/* Blocks: an element type seen as arrays of the arithmetic's type, for loops that the compiler vectorizes. Once per type. */

#if ELEM_IS_REAL
static inline const REAL *T(read)(const ELEM *from, REAL *room, int n) { (void)room, (void)n; return from; }
#else
static inline const REAL *T(read)(const ELEM *from, REAL *room, int n) { T(widen)(from, room, n); return room; }
#endif

/* Where a block of results is made: in place if it is stored as it is, else in `room`. */
static inline REAL *T(place)(ELEM *to, REAL *room, int streaming)
{
#if ELEM_IS_REAL
    return streaming ? room : to;
#else
    (void)to, (void)streaming;
    return room;
#endif
}

static inline void T(store)(ELEM *to, const REAL *block, int n, int streaming)
{
#if ELEM_IS_REAL
    if (streaming) stream(to, block, n * sizeof(ELEM));
#else
    ELEM half[BLOCK] __attribute__((aligned(64)));
    T(narrow)(block, streaming ? half : to, n);
    if (streaming) stream(to, half, n * sizeof(ELEM));
#endif
}

/* Starts loading what comes a block after these entries, and the memory that its results go to, so that they come meanwhile. */
static inline void T(fetch_next)(const ELEM *x, const ELEM *grad, ELEM *out, int streaming, int n)
{
    for (int i = BLOCK; i < BLOCK + n; i += 64 / (int)sizeof(ELEM)) {
        fetch(x + i);
        if (grad) fetch(grad + i);
        if (!streaming) fetch_to(out + i);
    }
}

#define EACH_BLOCK(dim) for (int64_t at = 0, n = 0; n = (dim) - at < BLOCK ? (dim) - at : BLOCK, at < (dim); at += BLOCK)
/* The odd size keeps the arrays of one function from falling on the same places of the cache. */
#define ROOM(name) REAL name[BLOCK + 16] __attribute__((aligned(64)))

/* The dot product of two arrays; three sums run side by side, so that none waits for the last addition. */
static double T(dot)(const REAL *restrict a, const REAL *restrict b, int n)
{
    V s = {0}, t = {0}, u = {0};
    int i = 0;
    for (; i + 3 * LANES <= n; i += 3 * LANES) {
        s += T(load_real)(a + i) * T(load_real)(b + i);
        t += T(load_real)(a + i + LANES) * T(load_real)(b + i + LANES);
        u += T(load_real)(a + i + 2 * LANES) * T(load_real)(b + i + 2 * LANES);
    }
    for (; i + LANES <= n; i += LANES) s += T(load_real)(a + i) * T(load_real)(b + i);
    if (i < n) t += T(load_real_some)(a + i, n - i) * T(load_real_some)(b + i, n - i);
    return T(across)(s + t + u);
}

static double T(total)(const REAL *a, int n)
{
    V s = {0}, t = {0};
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) s += T(load_real)(a + i), t += T(load_real)(a + i + LANES);
    if (i + LANES <= n) s += T(load_real)(a + i), i += LANES;
    if (i < n) t += T(load_real_some)(a + i, n - i);
    return T(across)(s + t);
}

/* o = b * r * gain + bias; either may be absent. */
static inline void T(affine)(const REAL *b, REAL r, const REAL *gain, const REAL *bias, REAL *o, int n)
{
    if (gain && bias) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = b[i] * r * gain[i] + bias[i];
    } else if (gain) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = b[i] * r * gain[i];
    } else if (bias) {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = b[i] * r + bias[i];
    } else {
#pragma omp simd
        for (int i = 0; i < n; i++) o[i] = b[i] * r;
    }
}

/* Adds up the chunks' partial sums, in order, into a gradient of any type. */
static void T(add_partials)(const REAL *partial, int64_t chunks, int64_t dim, int type, void *out)
{
    double sums[BLOCK];
    EACH_BLOCK(dim) {
        for (int i = 0; i < (int)n; i++) sums[i] = 0;
        for (int64_t c = 0; c < chunks; c++) {
            const REAL *row = partial + c * dim + at;
#pragma omp simd
            for (int i = 0; i < (int)n; i++) sums[i] += row[i];
        }
        put_elements(type, out, at, sums, n);
    }
}

/* Weight or bias in the arithmetic's type, the offset added: the tensor itself where that is what it is. */
static const REAL *T(as_real)(int type, const void *from, int64_t n, double offset, REAL **room)
{
    if (!from || (type == REAL_TYPE && offset == 0)) return from;
    REAL *to = *room, add = (REAL)offset;
    const uint16_t *half = from;
    switch (type) {
    case F32: for (int64_t i = 0; i < n; i++) to[i] = add + (REAL)((const float *)from)[i]; break;
    case F64: for (int64_t i = 0; i < n; i++) to[i] = add + (REAL)((const double *)from)[i]; break;
    case BF16: for (int64_t i = 0; i < n; i++) to[i] = add + (REAL)from_bf16(half[i]); break;
    default: for (int64_t i = 0; i < n; i++) to[i] = add + (REAL)from_f16(half[i]);
    }
    *room += n;
    return to;
}
