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

#define EACH_BLOCK(dim) for (int64_t at = 0, n = 0; n = (dim) - at < BLOCK ? (dim) - at : BLOCK, at < (dim); at += BLOCK)
#define ROOM(name) REAL name[BLOCK] __attribute__((aligned(64)))

/* Adds term(i), i < n, to `sum`, in four streams so that one addition need not wait for the last. */
#define ADD_UP(sum, n, term)                                                                                         \
    do {                                                                                                             \
        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                                         \
        int q = (int)(n) / 64 * 16, rest = 4 * q, end = (int)(n);                                                    \
        _Pragma("omp simd reduction(+ : s0, s1, s2, s3)") for (int i = 0; i < q; i++)                                \
            s0 += term(i), s1 += term(i + q), s2 += term(i + 2 * q), s3 += term(i + 3 * q);                          \
        _Pragma("omp simd reduction(+ : s0)") for (int i = rest; i < end; i++) s0 += term(i);                        \
        (sum) += (double)(s0 + s1) + (double)(s2 + s3);                                                              \
    } while (0)

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
