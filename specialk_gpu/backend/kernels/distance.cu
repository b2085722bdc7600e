// Squared distances of pairs of rows, in float64, in a fixed order of summation: 32 interleaved
// lanes, then pairwise over the lanes. No contraction to fused multiply-add, so that the result has
// the same bits as on the host. One warp per pair.
//
// X              (m, d)  row-major
// rows, columns  (p,)
// out            (p,)

template <typename T>
__device__ void pair_sq_distances(const T* X, long long d, const long long* rows,
                                  const long long* columns, long long n_pairs, double* out)
{
    const int lane = threadIdx.x & 31;
    const long long pair = blockIdx.x * (long long)(blockDim.x / 32) + threadIdx.x / 32;
    if (pair >= n_pairs) return;
    const T* x = X + rows[pair] * d;
    const T* y = X + columns[pair] * d;
    double sum = 0;
    for (long long i = lane; i < d; i += 32) {
        const double difference = __dsub_rn((double)x[i], (double)y[i]);
        sum = __dadd_rn(sum, __dmul_rn(difference, difference));
    }
    for (int half = 16; half > 0; half /= 2) {
        sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, half));
    }
    if (lane == 0) out[pair] = sum;
}

extern "C" __global__ void pair_sq_distances_float32(const float* X, long long d,
                                                     const long long* rows,
                                                     const long long* columns, long long n_pairs,
                                                     double* out)
{
    pair_sq_distances(X, d, rows, columns, n_pairs, out);
}

extern "C" __global__ void pair_sq_distances_float64(const double* X, long long d,
                                                     const long long* rows,
                                                     const long long* columns, long long n_pairs,
                                                     double* out)
{
    pair_sq_distances(X, d, rows, columns, n_pairs, out);
}
