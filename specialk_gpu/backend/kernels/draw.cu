// Rows drawn with probability in proportion to their weights. One block of 256 threads per run.
//
// Each thread sums a piece of consecutive rows; the running sum at a row is that of the pieces
// before, in their order, plus that of the piece up to the row. It never falls, and each target
// from zero to the total lies in the piece of exactly one thread, which looks it up.
//
// weights  (R, m)         not negative
// draws    (R, n_draws)   in [0, 1)
// rows     (R, n_draws)

extern "C" __global__ void draw_rows_float64(const double* weights, long long m,
                                             const double* draws, int n_draws, long long* rows)
{
    const int threads = 256;
    __shared__ double sums[threads];
    const int thread = threadIdx.x;
    const long long run = blockIdx.x, size = (m + threads - 1) / threads;
    const long long start = min(m, thread * size), stop = min(m, start + size);
    const double* weight = weights + run * m;
    double sum = 0;
    for (long long row = start; row < stop; ++row) sum += weight[row];
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
        double running = 0;
        long long row = start;
        for (; row < stop - 1; ++row) {
            running += weight[row];
            if (before + running >= target) break;
        }
        rows[run * n_draws + draw] = row;
    }
}
