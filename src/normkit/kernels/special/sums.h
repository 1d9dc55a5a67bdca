/* What a server does with the states of its clients, gone through once: their sum by shares, and the square of each one's distance
 * from what was sent.
 *
 * Sums are in double and client after client, in the order of the table; pieces are a function of the length alone, so that no
 * bit depends on the threads. */
enum { STATE_BLOCK = 1024 };             /* entries whose sum stays in first-level cache while all clients are added */

typedef float Narrow __attribute__((vector_size(WIDTH / 2), aligned(4)));
typedef double Unaligned __attribute__((vector_size(WIDTH), aligned(8)));

typedef struct {
    const StatesPlan *plan;
    int64_t count, piece;
    const Array *table;
    const double *shares;
    const void *sent;
    void *total;
    double *squares;                     /* of each piece, client by client */
} StatesJob;

INLINE Lanes widened(int64_t type, const void *from, int64_t i)
{
    if (type == F32) return __builtin_convertvector(*(const Narrow *)((const float *)from + i), Lanes);
    return *(const Unaligned *)((const double *)from + i);
}

INLINE double one_widened(int64_t type, const void *from, int64_t i)
{
    return type == F32 ? ((const float *)from)[i] : ((const double *)from)[i];
}

/* Adds a block of one client to the sum; returns the square of its distance from what was sent. */
INLINE double add_state(int64_t type, const void *from, int64_t n, double share, const double *sent, double *sum, int measured)
{
    const int64_t size = type == F32 ? 4 : 8;
    Lanes first = {0}, second = {0};
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        Lanes a = widened(type, from, i), b = widened(type, from, i + LANES);
        for (int64_t line = 0; line < 2 * LANES * size; line += 64)
            __builtin_prefetch((const char *)from + (i + STATE_BLOCK) * size + line, 0, 2);  /* of this client's next block */
        *(Lanes *)(sum + i) += share * a;
        *(Lanes *)(sum + i + LANES) += share * b;
        if (measured) {
            a -= *(const Lanes *)(sent + i), b -= *(const Lanes *)(sent + i + LANES);
            first += a * a, second += b * b;
        }
    }
    first += second;
    double square = 0;
    for (int lane = 0; lane < LANES; lane++) square += first[lane];
    for (; i < n; i++) {
        double x = one_widened(type, from, i);
        sum[i] += share * x;
        if (measured) square += (x - sent[i]) * (x - sent[i]);
    }
    return square;
}

INLINE void add_pieces(const StatesJob *job, int64_t type, int measured, int64_t begin, int64_t end)
{
    const int64_t size = type == F32 ? 4 : 8, clients = job->plan->clients;
    _Alignas(64) double sum[STATE_BLOCK], sent[STATE_BLOCK] = {0};
    _Alignas(64) float narrow[STATE_BLOCK];
    const int past = (size_t)(job->count * size) >= STREAM_FROM;
    for (int64_t piece = begin; piece < end; piece++) {
        double *squares = job->squares + piece * clients;
        int64_t last = (piece + 1) * job->piece < job->count ? (piece + 1) * job->piece : job->count;
        for (int64_t at = piece * job->piece; at < last; at += STATE_BLOCK) {
            int64_t n = last - at < STATE_BLOCK ? last - at : STATE_BLOCK;
            memset(sum, 0, sizeof sum);
            if (measured && job->sent)
                for (int64_t i = 0; i < n; i++) sent[i] = one_widened(type, job->sent, at + i);
            for (int64_t k = 0; k < clients; k++) {
                const char *from = (const char *)job->table[k].at + at * size;
                double square = add_state(type, from, n, job->shares[k], sent, sum, measured);
                if (measured) squares[k] += square;
            }
            char *to = (char *)job->total + at * size;
            if (type == F32)
                for (int64_t i = 0; i < n; i++) narrow[i] = (float)sum[i];
            const void *made = type == F32 ? (const void *)narrow : sum;
            if (past) stream(to, made, n * size);
            else memcpy(to, made, n * size);
        }
    }
    if (past) finish_stream();
}

static void state_pieces(void *of, int64_t begin, int64_t end)
{
    const StatesJob *job = of;
    if (job->plan->type == F32) {
        if (job->squares) add_pieces(job, F32, 1, begin, end);
        else add_pieces(job, F32, 0, begin, end);
    } else {
        if (job->squares) add_pieces(job, F64, 1, begin, end);
        else add_pieces(job, F64, 0, begin, end);
    }
}

static int states(const StatesPlan *plan, int64_t count, const Array *table, const double *shares, const void *sent, void *total, double *squares)
{
    int64_t clients = plan->clients, even = (count + MOST_CHUNKS - 1) / MOST_CHUNKS;
    StatesJob job = {plan, count, (even + STATE_BLOCK - 1) / STATE_BLOCK * STATE_BLOCK, table, shares, sent, total, NULL};
    int64_t pieces = (count + job.piece - 1) / job.piece;
    if (squares && !(job.squares = calloc((size_t)(pieces * clients), sizeof(double)))) return NO_MEMORY;
    expect_writes(total, (size_t)count * (plan->type == F32 ? 4 : 8));
    share(state_pieces, &job, pieces, count * clients);
    for (int64_t k = 0; squares && k < clients; k++) {
        squares[k] = 0;
        for (int64_t piece = 0; piece < pieces; piece++) squares[k] += job.squares[piece * clients + k];
    }
    free(job.squares);
    return DONE;
}
