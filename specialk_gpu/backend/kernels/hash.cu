// A 64-bit hash of each row's bits: multiplied by odd factors, one for each column, and summed
// modulo 2^64, so that the order of summation does not matter. One warp per row.
//
// X        (m, d)  row-major; -0 counts as 0
// factors  (d,)
// out      (m,)

__device__ unsigned long long bits_of(float x) { return __float_as_uint(x + 0.0f); }

__device__ unsigned long long bits_of(double x)
{
    const unsigned long long bits = __double_as_longlong(x + 0.0);
    return bits ^ (bits >> 32);
}

template <typename T>
__device__ void row_hashes(const T* X, long long m, long long d, const unsigned long long* factors,
                           unsigned long long* out)
{
    const int lane = threadIdx.x & 31;
    const long long row = blockIdx.x * (long long)(blockDim.x / 32) + threadIdx.x / 32;
    if (row >= m) return;
    unsigned long long sum = 0;
    for (long long i = lane; i < d; i += 32) sum += bits_of(X[row * d + i]) * factors[i];
    for (int half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
    if (lane == 0) out[row] = sum;
}

extern "C" __global__ void row_hashes_float32(const float* X, long long m, long long d,
                                              const unsigned long long* factors,
                                              unsigned long long* out)
{
    row_hashes(X, m, d, factors, out);
}

extern "C" __global__ void row_hashes_float64(const double* X, long long m, long long d,
                                              const unsigned long long* factors,
                                              unsigned long long* out)
{
    row_hashes(X, m, d, factors, out);
}
