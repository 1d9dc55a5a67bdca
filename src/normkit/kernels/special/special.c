/* All kernels for one instruction set, which ISA names. */
#include "special.h"
#include "../cpu/memory.h"

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX2__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#define INLINE static inline __attribute__((always_inline))
#define JOIN(a, b) a##_##b
#define PASTE(a, b) JOIN(a, b)

#include "eigen.h"
#include "lanes.h"
#include "triangle.h"
#include "spline.h"
#include "sums.h"
#include "codes.h"
#include "sinkhorn.h"

const Special PASTE(special, ISA) = {eigen, symmetric, cholesky, cholesky_backward, product, product_backward, spline,
                                     spline_backward, states, encode, decode, sinkhorn, sinkhorn_backward};
