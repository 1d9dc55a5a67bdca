/* The same source for several vector widths, the widest that runs here chosen once; and the gate. */
#include "special.h"

extern const Special special_baseline;
#ifdef NORMKIT_X86
extern const Special special_avx2, special_avx512;
#endif

static const Special *chosen = &special_baseline;

/* Takes the widest instruction set of those that are asked for and run here: 0 baseline, 1 avx2, 2 avx512; tells which. */
int normkit_special_use(int widest)
{
    chosen = &special_baseline;
#ifdef NORMKIT_X86
    __builtin_cpu_init();
    if (widest > 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512vl"))
        return chosen = &special_avx512, 2;
    if (widest > 0 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) /* and f16c, which clang 16 cannot ask about */
        return chosen = &special_avx2, 1;
#endif
    return 0;
}

__attribute__((constructor)) static void choose(void) { normkit_special_use(2); }

/* Sizes of the records, in the order of `special/__init__.py`, which packs them. */
const int64_t normkit_special_records[] = {sizeof(Eigen), sizeof(Symmetric), sizeof(Cholesky), sizeof(CholeskyBackward),
                                           sizeof(Product), sizeof(ProductBackward), sizeof(Spline), sizeof(SplineBackward),
                                           sizeof(States), sizeof(Encode), sizeof(Decode), sizeof(Sinkhorn),
                                           sizeof(SinkhornBackward)};

/* The bytes of so many entries; -1 where that overflows or a factor is negative. */
static int64_t bytes_of(int64_t type, int64_t count, int64_t each)
{
    int64_t product;
    if (count < 0 || __builtin_mul_overflow(count, each, &product)) return -1;
    return __builtin_mul_overflow(product, type == F64 ? 8 : 4, &product) ? -1 : product;
}

static int fits(Array array, int64_t bytes) { return array.at && array.bytes == bytes; }

static int fits_or_absent(Array array, int64_t bytes) { return !array.at || array.bytes == bytes; }

static int wrong_matrices(const MatrixPlan *p, int64_t count)
{
    if (p->type != F32 && p->type != F64) return WRONG_TYPE;
    if (p->logged < 0 || p->logged > 1) return WRONG_RULE;
    if (p->n < 1 || p->n > MOST_SIDE || count < 1) return WRONG_SIZE;
    return bytes_of(p->type, count, p->n * p->n) < 0 ? WRONG_SIZE : DONE;
}

int normkit_eigen(const Eigen *c)
{
    const MatrixPlan *p = &c->plan;
    int wrong = wrong_matrices(p, c->count);
    if (wrong) return wrong;
    int64_t square = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->x, square)) return ARRAY;
    if (!fits(c->values, bytes_of(p->type, c->count, p->n))) return ARRAY + 1;
    if (!fits_or_absent(c->vectors, square)) return ARRAY + 2;
    return chosen->eigen(p, c->count, c->x.at, c->values.at, c->vectors.at);
}

int normkit_symmetric(const Symmetric *c)
{
    const MatrixPlan *p = &c->plan;
    int wrong = wrong_matrices(p, c->count);
    if (wrong) return wrong;
    int64_t square = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->x, square)) return ARRAY;
    if (!fits(c->y, square)) return ARRAY + 1;
    return chosen->symmetric(p, c->count, c->x.at, c->y.at);
}

int normkit_cholesky(const Cholesky *c)
{
    const MatrixPlan *p = &c->plan;
    int wrong = wrong_matrices(p, c->count);
    if (wrong) return wrong;
    int64_t square = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->x, square)) return ARRAY;
    if (!fits_or_absent(c->factor, square)) return ARRAY + 1;
    if (!fits(c->notes, bytes_of(F64, c->count, 3))) return ARRAY + 2;
    return chosen->cholesky(p, c->count, c->x.at, c->factor.at, c->notes.at);
}

int normkit_cholesky_backward(const CholeskyBackward *c)
{
    const MatrixPlan *p = &c->plan;
    int wrong = wrong_matrices(p, c->count);
    if (wrong) return wrong;
    int64_t square = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->factor, square)) return ARRAY;
    if (!fits(c->grad, square)) return ARRAY + 1;
    if (!fits(c->dx, square)) return ARRAY + 2;
    return chosen->cholesky_backward(p, c->count, c->factor.at, c->grad.at, c->dx.at);
}

int normkit_product(const Product *c)
{
    const MatrixPlan *p = &c->plan;
    int wrong = wrong_matrices(p, c->count);
    if (wrong) return wrong;
    int64_t square = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->factor, square)) return ARRAY;
    if (!fits(c->y, square)) return ARRAY + 1;
    return chosen->product(p, c->count, c->factor.at, c->y.at);
}

int normkit_product_backward(const ProductBackward *c)
{
    const MatrixPlan *p = &c->plan;
    int wrong = wrong_matrices(p, c->count);
    if (wrong) return wrong;
    int64_t square = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->factor, square)) return ARRAY;
    if (!fits(c->grad, square)) return ARRAY + 1;
    if (!fits(c->dfactor, square)) return ARRAY + 2;
    return chosen->product_backward(p, c->count, c->factor.at, c->grad.at, c->dfactor.at);
}

static int wrong_spline(const SplinePlan *p, int64_t count, Array x, Array widths, Array heights, Array slopes)
{
    if (p->type != F32 && p->type != F64) return WRONG_TYPE;
    if (p->tails < 0 || p->tails > 1 || p->inverse < 0 || p->inverse > 1) return WRONG_RULE;
    if (p->bins < 1 || p->bins > MOST_BINS || count < 1) return WRONG_SIZE;
    if (count > INT64_MAX / 64 / (p->bins + 1)) return WRONG_SIZE;
    int64_t side = bytes_of(p->type, count, p->bins);
    if (!fits(x, bytes_of(p->type, count, 1))) return ARRAY;
    if (!fits(widths, side)) return ARRAY + 1;
    if (!fits(heights, side)) return ARRAY + 2;
    /* With tails and one bin there are none: nothing is there to point at. */
    if (p->tails && p->bins == 1 ? slopes.bytes != 0 : !fits(slopes, bytes_of(p->type, count, p->bins + 1 - 2 * p->tails)))
        return ARRAY + 3;
    return DONE;
}

int normkit_spline(const Spline *c)
{
    int wrong = wrong_spline(&c->plan, c->count, c->x, c->widths, c->heights, c->slopes);
    if (wrong) return wrong;
    int64_t numbers = bytes_of(c->plan.type, c->count, 1);
    if (!fits(c->y, numbers)) return ARRAY + 4;
    if (!fits(c->log_slope, numbers)) return ARRAY + 5;
    return chosen->spline(c);
}

int normkit_spline_backward(const SplineBackward *c)
{
    int wrong = wrong_spline(&c->plan, c->count, c->x, c->widths, c->heights, c->slopes);
    if (wrong) return wrong;
    int64_t numbers = bytes_of(c->plan.type, c->count, 1);
    if (!fits(c->dy, numbers)) return ARRAY + 4;
    if (!fits(c->dlog, numbers)) return ARRAY + 5;
    if (!fits_or_absent(c->dx, numbers)) return ARRAY + 6;
    if (!fits_or_absent(c->dwidths, c->widths.bytes)) return ARRAY + 7;
    if (!fits_or_absent(c->dheights, c->heights.bytes)) return ARRAY + 8;
    if (!fits_or_absent(c->dslopes, c->slopes.bytes)) return ARRAY + 9;
    return chosen->spline_backward(c);
}

int normkit_states(const States *c)
{
    const StatesPlan *p = &c->plan;
    int64_t each = bytes_of(p->type, c->count, 1), rows = bytes_of(F64, p->clients, 2);
    if (p->type != F32 && p->type != F64) return WRONG_TYPE;
    if (p->clients < 1 || c->count < 1 || each < 0 || rows < 0 || bytes_of(F64, c->count, p->clients) < 0) return WRONG_SIZE;
    if (!fits(c->table, rows)) return ARRAY;
    for (int64_t k = 0; k < p->clients; k++)
        if (!fits(((const Array *)c->table.at)[k], each)) return ARRAY;
    if (!fits(c->shares, bytes_of(F64, p->clients, 1))) return ARRAY + 1;
    if (!fits_or_absent(c->sent, each)) return ARRAY + 2;
    if (!fits(c->total, each)) return ARRAY + 3;
    if (!fits_or_absent(c->squares, bytes_of(F64, p->clients, 1))) return ARRAY + 4;
    return chosen->states(p, c->count, c->table.at, c->shares.at, c->sent.at, c->total.at, c->squares.at);
}

/* A chunk's numbers fit, and so do all smaller things of them. */
static int wrong_codes(const CodesPlan *p, int64_t count)
{
    if (p->width < 8 || p->width > MOST_WIDTH || p->width & (p->width - 1) || p->tokens < 1 || count < 1) return WRONG_SIZE;
    if (p->tokens > INT64_MAX / 64 / MOST_WIDTH) return WRONG_SIZE;
    return bytes_of(F32, count, p->tokens * p->width) < 0 ? WRONG_SIZE : DONE;
}

int normkit_encode(const Encode *c)
{
    const CodesPlan *p = &c->plan;
    int wrong = wrong_codes(p, c->count);
    if (wrong) return wrong;
    int64_t all = bytes_of(F32, c->count, p->tokens * p->width), sizes = bytes_of(F32, c->count, p->tokens);
    if (!fits(c->x, all)) return ARRAY;
    if (!fits(c->directions, bytes_of(F32, CODE_WORDS, 8))) return ARRAY + 1;
    if (!fits(c->signs, all / 32)) return ARRAY + 2;
    if (!fits(c->words, all / 32)) return ARRAY + 3;
    if (!fits(c->scale1, sizes)) return ARRAY + 4;
    if (!fits(c->shift, bytes_of(F32, c->count, p->width))) return ARRAY + 5;
    if (!fits(c->scale2, sizes)) return ARRAY + 6;
    return chosen->encode(p, c->count, c);
}

int normkit_decode(const Decode *c)
{
    const CodesPlan *p = &c->plan;
    int wrong = wrong_codes(p, c->count);
    if (wrong) return wrong;
    int64_t all = bytes_of(F32, c->count, p->tokens * p->width), sizes = bytes_of(F32, c->count, p->tokens);
    if (!fits(c->signs, all / 32)) return ARRAY;
    if (!fits(c->words, all / 32)) return ARRAY + 1;
    if (!fits(c->table, bytes_of(F32, CODE_WORDS, 8))) return ARRAY + 2;
    if (!fits(c->scale1, sizes)) return ARRAY + 3;
    if (!fits(c->shift, bytes_of(F32, c->count, p->width))) return ARRAY + 4;
    if (!fits(c->scale2, sizes)) return ARRAY + 5;
    if (!fits(c->y, all)) return ARRAY + 6;
    return chosen->decode(p, c->count, c);
}

static int wrong_sinkhorn(const SinkhornPlan *p, int64_t count)
{
    if (p->type != F32 && p->type != F64) return WRONG_TYPE;
    if (p->n < 1 || p->n > MOST_SIDE || p->rounds < 1 || p->rounds > MOST_ROUNDS || count < 1) return WRONG_SIZE;
    return bytes_of(p->type, count, p->n * p->n * 2 * p->rounds) < 0 ? WRONG_SIZE : DONE;  /* the work is counted too */
}

int normkit_sinkhorn(const Sinkhorn *c)
{
    const SinkhornPlan *p = &c->plan;
    int wrong = wrong_sinkhorn(p, c->count);
    if (wrong) return wrong;
    int64_t all = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->x, all)) return ARRAY;
    if (!fits(c->y, all)) return ARRAY + 1;
    return chosen->sinkhorn(p, c->count, c->x.at, c->y.at);
}

int normkit_sinkhorn_backward(const SinkhornBackward *c)
{
    const SinkhornPlan *p = &c->plan;
    int wrong = wrong_sinkhorn(p, c->count);
    if (wrong) return wrong;
    int64_t all = bytes_of(p->type, c->count, p->n * p->n);
    if (!fits(c->x, all)) return ARRAY;
    if (!fits(c->grad, all)) return ARRAY + 1;
    if (!fits(c->dx, all)) return ARRAY + 2;
    return chosen->sinkhorn_backward(p, c->count, c->x.at, c->grad.at, c->dx.at);
}
