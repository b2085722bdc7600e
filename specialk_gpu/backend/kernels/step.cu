// What an iteration of k-means needs beside labels and sums. 128 threads per block.
//
// Sums are taken by each thread in rising order, then of the threads in their order: results repeat
// bit by bit, and do not depend on the other runs.

// Add what the threads hold, in their order; for thread 0 only.
__device__ double sum_of_threads(const double* sums, int threads)
{
    double total = 0;
#pragma unroll 8
    for (int other = 0; other < threads; ++other) total += sums[other];
    return total;
}

// A block takes a part of the rows of a run, and every n_parts-th of its clusters.
//
// sq       (R, m)         squared distances to the nearest centres
// labels   (R, m)         and `before`, those of the last iteration
// total    (R, k, d + 1)  sums of the clusters, and counts
// centers  (R, k, d)
// means    (R, k, d)      of the clusters, or the centres of those without rows
// partial  (n_parts, 3, R) the inertia, the number of rows that changed, and of clusters with rows

extern "C" __global__ void finish_step_float64(const double* sq, const int* labels,
                                               const int* before, long long m, long long R,
                                               long long n_rows, long long n_parts,
                                               const double* total, const double* centers,
                                               long long k, long long d, double* means,
                                               double* partial)
{
    const int threads = 128;
    __shared__ double inertias[threads], changes[threads];
    const int thread = threadIdx.x;
    const long long run = blockIdx.x % R, part = blockIdx.x / R;
    const long long stop = min(m, (part + 1) * n_rows);
    double inertia = 0;
    int changed = 0;
#pragma unroll 4
    for (long long row = part * n_rows + thread; row < stop; row += threads) {
        const long long i = run * m + row;
        inertia += sq[i];
        changed += labels[i] != before[i];
    }
    inertias[thread] = inertia;
    changes[thread] = changed;
    int filled = 0;
    for (long long c = part; c < k; c += n_parts) {
        const double* sum = total + (run * k + c) * (d + 1);
        const long long place = (run * k + c) * d;
        const double count = sum[d];
        filled += count > 0;
        for (long long j = thread; j < d; j += threads) {
            means[place + j] = count > 0 ? sum[j] / count : centers[place + j];
        }
    }
    __syncthreads();
    if (thread > 0) return;
    partial[part * 3 * R + run] = sum_of_threads(inertias, threads);
    partial[(part * 3 + 1) * R + run] = sum_of_threads(changes, threads);
    partial[(part * 3 + 2) * R + run] = filled;
}

// The sum over all columns of the smaller of two numbers, a block for each pair of rows.
//
// first   (C, m)
// second  (P n, m)  n rows for each of P owners
// owner   (C,)      of the rows of `first`
// sums    (C, n)

extern "C" __global__ void sums_of_minima_float64(const double* first, const double* second,
                                                  long long m, const long long* owner, int n,
                                                  double* sums)
{
    const int threads = 128;
    __shared__ double partial[threads];
    const int thread = threadIdx.x;
    const long long row = blockIdx.x / n;
    const double* a = first + row * m;
    const double* b = second + (owner[row] * n + blockIdx.x % n) * m;
    double sum = 0;
#pragma unroll 4
    for (long long i = thread; i < m; i += threads) sum += min(a[i], b[i]);
    partial[thread] = sum;
    __syncthreads();
    if (thread == 0) sums[blockIdx.x] = sum_of_threads(partial, threads);
}
