/* Threads and memory: sharing rows, fresh pages, stores that go past the cache. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#ifdef __linux__
#include <sys/mman.h>
#endif
#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

enum { BLOCK = 512 };                   /* entries handled at once where loops share arrays: all of them in first-level cache */
enum { AT_ONCE = 2048, MOST_AT_ONCE = 8 };  /* entries, and rows, of short rows that are worked on together */
enum { STRETCH = 1024 };                /* entries added up in the arithmetic's type, before a double takes the sum */
enum { AHEAD = 512 };                   /* entries by which memory is asked for before it is written */
enum { GRAIN = 32768 };                 /* below this many entries a second thread costs more than it brings (as in torch) */
enum { MOST_CHUNKS = 64 };              /* partial sums of gain gradients; fixed, so that no result depends on the threads */
#define HUGE_FROM ((size_t)4 << 20)     /* bytes from which huge pages pay for the system call */
#define STREAM_FROM ((size_t)24 << 20)  /* bytes from which an output will not be found in the cache anyway */

typedef void (*Work)(void *job, int64_t begin, int64_t end);

/* Calls work on [0, count) in one piece per thread; `cost` is the number of entries behind it all. */
static inline void share(Work work, void *job, int64_t count, int64_t cost)
{
#ifdef _OPENMP
    if (cost > GRAIN && count > 1 && omp_get_max_threads() > 1 && !omp_in_parallel()) {
#pragma omp parallel
        {
            int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
            work(job, count * thread / threads, count * (thread + 1) / threads);
        }
        return;
    }
#endif
    work(job, 0, count);
}

/* How many short rows are worked on together. */
static inline int64_t rows_together(int64_t dim)
{
    int64_t rows = AT_ONCE / dim;
    return rows < 1 ? 1 : rows < MOST_AT_ONCE ? rows : MOST_AT_ONCE;
}

/* Rows per partial sum: a function of the shape alone. */
static inline int64_t chunk_rows(int64_t rows, int64_t dim)
{
    int64_t even = (rows + MOST_CHUNKS - 1) / MOST_CHUNKS, least = 1 + 16384 / dim;
    return even > least ? even : least;
}

/* Asks for huge pages under a big output before it is first written: faults of 4 KB cost more than the arithmetic. */
static inline void expect_writes(void *start, size_t bytes)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = (uintptr_t)2 << 20;
    uintptr_t begin = ((uintptr_t)start + page - 1) & ~(page - 1), end = ((uintptr_t)start + bytes) & ~(page - 1);
    if (start && bytes >= HUGE_FROM && end > begin) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)start, (void)bytes;
#endif
}

static inline void *scratch(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); }

/* Copies past the cache where the processor can: whole vectors at aligned places, the rest as usual. */
static inline void stream(void *restrict to, const void *restrict from, size_t bytes)
{
    size_t i = 0;
#if defined(__AVX512F__)
    if (((uintptr_t)to & 63) == 0)
        for (; i + 64 <= bytes; i += 64)
            _mm512_stream_si512((void *)((char *)to + i), _mm512_loadu_si512((const char *)from + i));
#endif
#if defined(__AVX2__)
    if (((uintptr_t)to & 31) == 0)
        for (; i + 32 <= bytes; i += 32)
            _mm256_stream_si256((void *)((char *)to + i), _mm256_loadu_si256((const void *)((const char *)from + i)));
#endif
    if (i < bytes) memcpy((char *)to + i, (const char *)from + i, bytes - i);
}

/* Starts loading memory that the next row will read, so that it comes while this one is computed; past the end nothing happens. */
static inline void fetch(const void *from) { __builtin_prefetch(from); }

/* The same of memory that is written next: a store to what the cache has not must read it first. */
static inline void fetch_to(void *to) { __builtin_prefetch(to, 1); }

/* Rows along three axes, of which the last is walked first. */
typedef struct { int64_t at[3]; } Place;

static inline Place place_of(int64_t row, const int64_t *size)
{
    return (Place){{row / size[2] / size[1], row / size[2] % size[1], row % size[2]}};
}

static inline void move_on(Place *p, const int64_t *size)
{
    if (++p->at[2] < size[2]) return;
    p->at[2] = 0;
    if (++p->at[1] < size[1]) return;
    p->at[1] = 0, p->at[0]++;
}

static inline int64_t offset_of(const Place *p, const int64_t *stride)
{
    return p->at[0] * stride[0] + p->at[1] * stride[1] + p->at[2] * stride[2];
}

/* Numbers of `size` bytes: the even places of a row become its first half, the odd ones its second; and back. */
#define SPLIT(type, from, to, half) \
    for (int64_t i = 0; i < (half); i++) \
        ((type *)(to))[i] = ((const type *)(from))[2 * i], ((type *)(to))[(half) + i] = ((const type *)(from))[2 * i + 1]
#define MERGE(type, from, to, half) \
    for (int64_t i = 0; i < (half); i++) \
        ((type *)(to))[2 * i] = ((const type *)(from))[i], ((type *)(to))[2 * i + 1] = ((const type *)(from))[(half) + i]

static inline void split(const void *restrict from, void *restrict to, int64_t half, size_t size)
{
    if (size == 2) SPLIT(uint16_t, from, to, half);
    else if (size == 4) SPLIT(uint32_t, from, to, half);
    else SPLIT(uint64_t, from, to, half);
}

static inline void merge(const void *restrict from, void *restrict to, int64_t half, size_t size)
{
    if (size == 2) MERGE(uint16_t, from, to, half);
    else if (size == 4) MERGE(uint32_t, from, to, half);
    else MERGE(uint64_t, from, to, half);
}

/* Makes streamed stores visible to the other threads. */
static inline void finish_stream(void)
{
#if defined(__AVX512F__) || defined(__AVX2__)
    _mm_sfence();
#endif
}

#endif
