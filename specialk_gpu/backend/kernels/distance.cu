// Squared distances of rows, in float64, in a fixed order of summation: 32 interleaved lanes, then
// pairwise over the lanes. No contraction to fused multiply-add, so that the result has the same
// bits as on the host.
//
// X  (m, d)  row-major

// The squared distance of two rows by one warp; lane 0 has it.
template <typename T>
__device__ double sq_distance(const T* x, const T* y, long long d, int lane)
{
    double sum = 0;
    for (long long i = lane; i < d; i += 32) {
        const double difference = __dsub_rn((double)x[i], (double)y[i]);
        sum = __dadd_rn(sum, __dmul_rn(difference, difference));
    }
    for (int half = 16; half > 0; half /= 2) {
        sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffu, sum, half));
    }
    return sum;
}

// Of given pairs of rows, one warp for each.
//
// rows, columns  (p,)
// out            (p,)
template <typename T>
__device__ void pair_sq_distances(const T* X, long long d, const long long* rows,
                                  const long long* columns, long long n_pairs, double* out)
{
    const int lane = threadIdx.x & 31;
    const long long pair = blockIdx.x * (long long)(blockDim.x / 32) + threadIdx.x / 32;
    if (pair >= n_pairs) return;
    const double sq = sq_distance(X + rows[pair] * d, X + columns[pair] * d, d, lane);
    if (lane == 0) out[pair] = sq;
}

// The k nearest of the rows proposed to each row, ties to the smaller number: one block for each.
// A candidate's place in the list is the number of candidates before it, so nothing is sorted.
//
// rows       (t,)        the rows' own numbers
// places     (t, width)  the numbers proposed, all different; negative ones and the own are skipped
// sq         (t, width)  work space
// out_sq     (t, k)      squared distances, ascending
// out_index  (t, k)
template <typename T>
__device__ void rank_candidates(const T* X, long long d, const long long* rows,
                                const long long* places, int width, int k, double* sq,
                                double* out_sq, long long* out_index)
{
    const long long own = rows[blockIdx.x];
    const long long base = blockIdx.x * (long long)width;
    const double infinity = (double)__int_as_float(0x7f800000);
    places += base;
    sq += base;
    for (int c = threadIdx.x / 32; c < width; c += blockDim.x / 32) {
        const int lane = threadIdx.x & 31;
        double distance = infinity;
        if (places[c] >= 0 && places[c] != own) {
            distance = sq_distance(X + own * d, X + places[c] * d, d, lane);
        }
        if (lane == 0) sq[c] = distance;
    }
    __syncthreads();
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
        if (sq[c] == infinity) continue;
        int rank = 0;
        for (int other = 0; other < width; ++other) {
            rank += sq[other] < sq[c] || (sq[other] == sq[c] && places[other] < places[c]);
        }
        if (rank < k) {
            out_sq[blockIdx.x * (long long)k + rank] = sq[c];
            out_index[blockIdx.x * (long long)k + rank] = places[c];
        }
    }
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

extern "C" __global__ void rank_candidates_float32(const float* X, long long d,
                                                   const long long* rows, const long long* places,
                                                   int width, int k, double* sq, double* out_sq,
                                                   long long* out_index)
{
    rank_candidates(X, d, rows, places, width, k, sq, out_sq, out_index);
}

extern "C" __global__ void rank_candidates_float64(const double* X, long long d,
                                                   const long long* rows, const long long* places,
                                                   int width, int k, double* sq, double* out_sq,
                                                   long long* out_index)
{
    rank_candidates(X, d, rows, places, width, k, sq, out_sq, out_index);
}
