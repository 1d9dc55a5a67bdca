/* Vectors: as many numbers of the arithmetic's type as one register holds, to and from an element type. Once per type.
 *
 * GCC's and Clang's vector extension, so that one source serves every width. Functions ending in `_some` move n < LANES numbers.
 */

#ifndef LANES
#define LANES ((int)(WIDTH / sizeof(REAL)))
#define V T(Vector)
#define M T(Mask)
#endif

typedef REAL V __attribute__((vector_size(WIDTH)));
typedef REAL_BITS M __attribute__((vector_size(WIDTH)));

static inline V T(all)(REAL value) { return value - (V){0}; }
static inline V T(select)(M mask, V a, V b) { return (V)(((M)a & mask) | ((M)b & ~mask)); }
static inline V T(magnitude)(V a) { return (V)((M)a & ~(M)(T(all)((REAL)-0.0))); }

/* A product that stays rounded: the compiler may not contract it with the sum that it enters. */
static inline V T(rounded)(V product)
{
#if defined(__x86_64__)
    __asm__("" : "+x"(product));
#elif defined(__aarch64__)
    __asm__("" : "+w"(product));
#endif
    return product;
}

static inline V T(load_real)(const REAL *from) { V v; memcpy(&v, from, sizeof v); return v; }
static inline void T(save_real)(REAL *to, V v) { memcpy(to, &v, sizeof v); }

#if ELEM_TYPE == 2
typedef uint16_t T(Halves) __attribute__((vector_size(WIDTH / 2)));
/* One permutation moves all halves to the upper half of their words, or back, where conversion and shift are three steps. */
typedef uint16_t T(Shorts) __attribute__((vector_size(WIDTH)));
typedef uint32_t T(Words) __attribute__((vector_size(WIDTH)));
#endif

static inline V T(load)(const ELEM *from)
{
#if ELEM_IS_REAL
    return T(load_real)(from);
#elif ELEM_TYPE == 2 && WIDTH == 64
    const __m512i twice = (__m512i)(T(Shorts)){0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7,
                                               8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15};
    __m512i halves = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)from));
    return (V)_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, twice, halves);
#elif ELEM_TYPE == 2 && WIDTH == 32
    return (V)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from)), 16);
#elif ELEM_TYPE == 2
    T(Halves) halves;
    memcpy(&halves, from, sizeof halves);
    return (V)(__builtin_convertvector(halves, T(Words)) << 16);
#else
    REAL wide[LANES] __attribute__((aligned(WIDTH)));
    T(widen)(from, wide, LANES);
    return T(load_real)(wide);
#endif
}

static inline void T(save)(ELEM *to, V v)
{
#if ELEM_IS_REAL
    T(save_real)(to, v);
#elif ELEM_TYPE == 2 && WIDTH == 64
    const __m512i upper = (__m512i)(T(Shorts)){1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    __m512i bits = (__m512i)v, odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc00000));
    _mm256_storeu_si256((void *)to, _mm512_castsi512_si256(_mm512_permutexvar_epi16(upper, rounded)));
#elif ELEM_TYPE == 2
    T(Words) bits = (T(Words))v, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, nan = (T(Words))(v != v);
    T(Halves) halves = __builtin_convertvector((rounded & ~nan) | (0x7fc0 & nan), T(Halves));
    memcpy(to, &halves, sizeof halves);
#else
    T(narrow)((const REAL *)&v, to, LANES);
#endif
}

/* The first n lanes. */
static inline M T(first)(int n)
{
    M mask;
    for (int i = 0; i < LANES; i++) mask[i] = i < n ? -1 : 0;
    return mask;
}

/* Some numbers: by the processor's masks where it has them, else by way of a padded array. */
#if WIDTH == 64
#define SOME(n) ((1u << (n)) - 1)
#endif

static inline V T(load_real_some)(const REAL *from, int n)
{
#if WIDTH == 64 && REAL_TYPE_IS_FLOAT
    return (V)_mm512_maskz_loadu_ps(SOME(n), from);
#elif WIDTH == 64
    return (V)_mm512_maskz_loadu_pd(SOME(n), from);
#elif WIDTH == 32 && REAL_TYPE_IS_FLOAT
    return (V)_mm256_maskload_ps(from, (__m256i)T(first)(n));
#elif WIDTH == 32
    return (V)_mm256_maskload_pd(from, (__m256i)T(first)(n));
#else
    REAL padded[LANES] = {0};
    for (int i = 0; i < n; i++) padded[i] = from[i];
    return T(load_real)(padded);
#endif
}

static inline void T(save_real_some)(REAL *to, V v, int n)
{
#if WIDTH == 64 && REAL_TYPE_IS_FLOAT
    _mm512_mask_storeu_ps(to, SOME(n), (__m512)v);
#elif WIDTH == 64
    _mm512_mask_storeu_pd(to, SOME(n), (__m512d)v);
#elif WIDTH == 32 && REAL_TYPE_IS_FLOAT
    _mm256_maskstore_ps(to, (__m256i)T(first)(n), (__m256)v);
#elif WIDTH == 32
    _mm256_maskstore_pd(to, (__m256i)T(first)(n), (__m256d)v);
#else
    for (int i = 0; i < n; i++) to[i] = v[i];
#endif
}

static inline V T(load_some)(const ELEM *from, int n)
{
#if ELEM_IS_REAL
    return T(load_real_some)(from, n);
#else
    ELEM padded[LANES] = {0};
#if WIDTH == 64
    _mm256_storeu_si256((void *)padded, _mm256_maskz_loadu_epi16(SOME(n), from));
#else
    for (int i = 0; i < n; i++) padded[i] = from[i];
#endif
    return T(load)(padded);
#endif
}

static inline void T(save_some)(ELEM *to, V v, int n)
{
#if ELEM_IS_REAL
    T(save_real_some)(to, v, n);
#else
    ELEM padded[LANES];
    T(save)(padded, v);
#if WIDTH == 64
    _mm256_mask_storeu_epi16(to, SOME(n), _mm256_loadu_si256((const void *)padded));
#else
    for (int i = 0; i < n; i++) to[i] = padded[i];
#endif
#endif
}

/* A store past the cache; `can_stream` says where it may be used. */
static inline void T(save_past)(ELEM *to, V v)
{
#if ELEM_IS_REAL
    V *past = &v;
#else
    ELEM past[LANES] __attribute__((aligned(WIDTH)));
    T(save)(past, v);
#endif
    stream(to, past, LANES * sizeof(ELEM));
}

static inline int T(can_stream)(const void *to, int64_t dim)
{
    size_t unit = LANES * sizeof(ELEM);
    return (uintptr_t)to % unit == 0 && dim * sizeof(ELEM) % unit == 0;
}

static inline double T(across)(V v)
{
#if WIDTH == 64 && REAL_TYPE_IS_FLOAT
    return _mm512_reduce_add_ps((__m512)v);
#else
    double sum = 0;
    for (int i = 0; i < LANES; i++) sum += v[i];
    return sum;
#endif
}

#ifndef GET
#define GET(p, n) ((n) == LANES ? T(load)(p) : T(load_some)(p, n))
#define GET_REAL(p, n) ((n) == LANES ? T(load_real)(p) : T(load_real_some)(p, n))
#define PUT_REAL(p, v, n) ((n) == LANES ? T(save_real)(p, v) : T(save_real_some)(p, v, n))
#endif
