/* Keys and values in two bits a number, and back: each lane of a vector holds a token of its own, so that sizes, the rotation and the
 * search for the nearest code word need nothing from a neighbour.
 *
 * Eight numbers share a byte of signs and a byte that names a code word. The word's number takes the place of the last bits of its
 * product with the sizes, which is not below 0, so that one maximum finds it, as in the formula. */
typedef float Floats __attribute__((vector_size(WIDTH)));
typedef int32_t Marks __attribute__((vector_size(WIDTH)));
enum { TOKENS = WIDTH / 4, EIGHT = 8 };

typedef struct {
    const CodesPlan *plan;
    const float *x, *table;
    uint8_t *signs, *words;
    float *scale1, *shift, *scale2, *y;
    int answer;
} CodesJob;

INLINE Floats all_floats(float value) { return value - (Floats){0}; }
INLINE Floats choose_floats(Marks where, Floats yes, Floats no) { return (Floats)((where & (Marks)yes) | (~where & (Marks)no)); }

INLINE Floats root_of_floats(Floats x)
{
#if defined(__AVX512F__)
    return (Floats)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (Floats)_mm256_sqrt_ps((__m256)x);
#else
    for (int lane = 0; lane < TOKENS; lane++) x[lane] = __builtin_sqrtf(x[lane]);
    return x;
#endif
}

/* Sylvester's matrix over the root of its order, by its factors. */
static void turn(Floats *z, int64_t width)
{
    for (int64_t half = 1; half < width; half *= 2)
        for (int64_t at = 0; at < width; at += 2 * half)
            for (int64_t i = at; i < at + half; i++) {
                Floats a = z[i], b = z[i + half];
                z[i] = a + b, z[i + half] = a - b;
            }
    Floats scale = all_floats((float)(1 / __builtin_sqrt((double)width)));
    for (int64_t i = 0; i < width; i++) z[i] *= scale;
}

/* Divides tokens by their sizes, and tells these. */
static Floats even_sizes(Floats *z, int64_t width, double least)
{
    Floats sum = {0}, floor = all_floats((float)least);
    for (int64_t i = 0; i < width; i++) sum += z[i] * z[i];
    sum /= all_floats((float)width);
    Floats size = root_of_floats(choose_floats(sum < floor, floor, sum));
    for (int64_t i = 0; i < width; i++) z[i] /= size;
    return size;
}

/* The numbers of the code words that are nearest to eight sizes of each token. */
INLINE Marks nearest(const Floats *z, const float *directions)
{
    Floats size[EIGHT];
    for (int i = 0; i < EIGHT; i++) size[i] = (Floats)((Marks)z[i] & INT32_MAX);
    Marks best = {0};
    for (int32_t word = 0; word < CODE_WORDS; word++) {
        const float *direction = directions + word * EIGHT;
        Floats product = size[0] * direction[0];
        for (int i = 1; i < EIGHT; i++) product += size[i] * direction[i];
        Marks found = ((Marks)product & -CODE_WORDS) | word;
        Marks more = found > best;
        best = (found & more) | (best & ~more);
    }
    return best & (CODE_WORDS - 1);
}

static void encode_chunks(void *of, int64_t begin, int64_t end)
{
    CodesJob *job = of;
    const int64_t width = job->plan->width, tokens = job->plan->tokens, groups = (tokens + TOKENS - 1) / TOKENS;
    Floats *room = scratch((size_t)((groups + 1) * width) * sizeof(Floats));
    if (!room) {
        job->answer = NO_MEMORY;
        return;
    }
    Floats *sum = room + groups * width;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const float *x = job->x + chunk * tokens * width;
        float *shift = job->shift + chunk * width;
        memset(sum, 0, (size_t)width * sizeof(Floats));
        for (int64_t group = 0; group < groups; group++) {
            Floats *z = room + group * width;
            for (int64_t lane = 0; lane < TOKENS; lane++) {      /* past the last token are zeros */
                int64_t token = group * TOKENS + lane;
                for (int64_t i = 0; i < width; i++) ((float *)(z + i))[lane] = token < tokens ? x[token * width + i] : 0;
            }
            Floats size = even_sizes(z, width, job->plan->least);
            for (int64_t i = 0; i < width; i++) sum[i] += z[i];
            for (int64_t lane = 0; lane < TOKENS && group * TOKENS + lane < tokens; lane++)
                job->scale1[chunk * tokens + group * TOKENS + lane] = size[lane];
        }
        for (int64_t i = 0; i < width; i++) {
            double mean = 0;
            for (int lane = 0; lane < TOKENS; lane++) mean += sum[i][lane];
            shift[i] = (float)(mean / (double)tokens);
        }
        for (int64_t group = 0; group < groups; group++) {
            Floats *z = room + group * width;
            for (int64_t i = 0; i < width; i++) z[i] -= shift[i];
            Floats size = even_sizes(z, width, job->plan->least);
            turn(z, width);
            for (int64_t i = 0; i < width; i += EIGHT) {
                Marks word = nearest(z + i, job->table), sign = {0};
                for (int bit = 0; bit < EIGHT; bit++) sign |= (Marks)(z[i + bit] >= 0) & 1 << bit;
                for (int64_t lane = 0; lane < TOKENS && group * TOKENS + lane < tokens; lane++) {
                    int64_t at = ((chunk * tokens + group * TOKENS + lane) * width + i) / EIGHT;
                    job->words[at] = (uint8_t)word[lane], job->signs[at] = (uint8_t)sign[lane];
                }
            }
            for (int64_t lane = 0; lane < TOKENS && group * TOKENS + lane < tokens; lane++)
                job->scale2[chunk * tokens + group * TOKENS + lane] = size[lane];
        }
    }
    free(room);
}

static void decode_chunks(void *of, int64_t begin, int64_t end)
{
    CodesJob *job = of;
    const int64_t width = job->plan->width, tokens = job->plan->tokens;
    Floats *z = scratch((size_t)width * sizeof(Floats));
    if (!z) {
        job->answer = NO_MEMORY;
        return;
    }
    for (int64_t chunk = begin; chunk < end; chunk++)
        for (int64_t first = 0; first < tokens; first += TOKENS) {
            const float *shift = job->shift + chunk * width;
            Floats scale1, scale2;
            for (int64_t lane = 0; lane < TOKENS; lane++) {      /* past the last token it is once more */
                int64_t token = chunk * tokens + (first + lane < tokens ? first + lane : tokens - 1);
                scale1[lane] = job->scale1[token], scale2[lane] = job->scale2[token];
                for (int64_t i = 0; i < width; i += EIGHT) {
                    int64_t at = (token * width + i) / EIGHT;
                    const float *word = job->table + job->words[at] * EIGHT;
                    int sign = job->signs[at];
                    for (int bit = 0; bit < EIGHT; bit++) ((float *)(z + i + bit))[lane] = sign >> bit & 1 ? word[bit] : -word[bit];
                }
            }
            turn(z, width);
            for (int64_t i = 0; i < width; i++) z[i] = scale1 * (scale2 * z[i] + shift[i]);
            for (int64_t lane = 0; lane < TOKENS && first + lane < tokens; lane++) {
                float *y = job->y + (chunk * tokens + first + lane) * width;
                for (int64_t i = 0; i < width; i++) y[i] = ((const float *)(z + i))[lane];
            }
        }
    free(z);
}

static int encode(const CodesPlan *plan, int64_t count, const Encode *c)
{
    CodesJob job = {plan, c->x.at, c->directions.at, c->signs.at, c->words.at, c->scale1.at, c->shift.at, c->scale2.at, NULL, DONE};
    share(encode_chunks, &job, count, count * plan->tokens * plan->width);
    return job.answer;
}

static int decode(const CodesPlan *plan, int64_t count, const Decode *c)
{
    CodesJob job = {plan, NULL, c->table.at, c->signs.at, c->words.at, c->scale1.at, c->shift.at, c->scale2.at, c->y.at, DONE};
    share(decode_chunks, &job, count, count * plan->tokens * plan->width);
    return job.answer;
}
