// Rows drawn with probability in proportion to their weights: sums of pieces of consecutive rows,
// then one block of 256 threads per run, which finds the piece and the row.
//
// The running sum at a row is that of the threads before, in their order, plus that of the thread's
// pieces before and of the piece up to the row. It never falls, and each target from zero to the
// total lies in the pieces of exactly one thread, which looks it up.
//
// weights  (R, m)                not negative
// draws    (R, n_draws)          in [0, 1)
// rows     (R, n_draws)
// pieces   (R, 256 per_thread)   sums of `size` rows each

extern "C" __global__ void sum_pieces_float64(const double* weights, long long m, long long size,
                                              long long n_pieces, double* pieces)
{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long run = i / n_pieces, piece = i % n_pieces;
    const long long start = min(m, piece * size), stop = min(m, start + size);
    double sum = 0;
    for (long long row = start; row < stop; ++row) sum += weights[run * m + row];
    pieces[i] = sum;
}

extern "C" __global__ void draw_rows_float64(const double* weights, long long m,
                                             const double* draws, int n_draws, long long* rows,
                                             const double* pieces, int per_thread, long long size)
{
    const int threads = 256;
    __shared__ double sums[threads];
    const int thread = threadIdx.x;
    const long long run = blockIdx.x;
    const double* weight = weights + run * m;
    const double* piece = pieces + (run * threads + thread) * per_thread;
    double sum = 0;
    for (int i = 0; i < per_thread; ++i) sum += piece[i];
    sums[thread] = sum;
    __syncthreads();
    double before = 0, total = 0;
    for (int other = 0; other < threads; ++other) {
        if (other == thread) before = total;
        total += sums[other];
    }
    for (int draw = 0; draw < n_draws; ++draw) {
        const double target = draws[run * n_draws + draw] * total;
        if (!(target <= before + sum) || !(thread == 0 || before < target)) continue;
        double own = 0;  // of the thread's pieces before
        int i = 0;
        for (; i < per_thread - 1; ++i) {
            if (before + (own + piece[i]) >= target) break;
            own += piece[i];
        }
        const long long start = min(m, ((long long)thread * per_thread + i) * size);
        const long long stop = min(m, start + size);
        double running = 0;
        long long row = start;
        for (; row < stop - 1; ++row) {
            running += weight[row];
            if (before + (own + running) >= target) break;
        }
        rows[run * n_draws + draw] = row;
    }
}
