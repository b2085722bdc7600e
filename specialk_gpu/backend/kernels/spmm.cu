// out = alpha (A X - shift X) + beta out + source weights, for a sparse A in CSR: a step of the
// Chebyshev recurrence.
//
// One warp per row and panel of 128 columns in float32 or 64 in float64, `per_lane` to a lane; panels are the slow index of the grid, so that a panel of X stays in the L2 cache while all
// rows pass over it. No atomics: results repeat bit by bit.
//
// X, out, source  (m, width)  row-major
// weights         (width,)
// A source is read only if has_source.

template <typename T, int per_lane>
__device__ void spmm(const int* indptr, const int* indices, const T* data, const T* X, T* out,
                     int m, int width, T alpha, T shift, T beta, const T* source,
                     const T* weights, int has_source)
{
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const int first = blockIdx.y * 32 * per_lane + threadIdx.x;
    if (row >= m || first >= width) return;
    T sum[per_lane];
#pragma unroll
    for (int i = 0; i < per_lane; ++i) sum[i] = 0;
    const int stop = indptr[row + 1];
#pragma unroll 4
    for (int entry = indptr[row]; entry < stop; ++entry) {
        const T weight = data[entry];
        const T* x = X + (long long)indices[entry] * width + first;
#pragma unroll
        for (int i = 0; i < per_lane; ++i) {
            if (first + 32 * i < width) sum[i] += weight * x[32 * i];
        }
    }
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        const int column = first + 32 * i;
        if (column >= width) return;
        const long long place = (long long)row * width + column;
        T result = alpha * (sum[i] - shift * X[place]);
        if (beta != 0) result += beta * out[place];
        if (has_source) result += source[place] * weights[column];
        out[place] = result;
    }
}

extern "C" __global__ void spmm_float32(const int* indptr, const int* indices, const float* data,
                                        const float* X, float* out, int m, int width, float alpha,
                                        float shift, float beta, const float* source,
                                        const float* weights, int has_source)
{
    spmm<float, 4>(indptr, indices, data, X, out, m, width, alpha, shift, beta, source, weights,
                   has_source);
}

extern "C" __global__ void spmm_float64(const int* indptr, const int* indices, const double* data,
                                        const double* X, double* out, int m, int width,
                                        double alpha, double shift, double beta,
                                        const double* source, const double* weights,
                                        int has_source)
{
    spmm<double, 2>(indptr, indices, data, X, out, m, width, alpha, shift, beta, source, weights,
                    has_source);
}
