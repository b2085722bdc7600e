// out = alpha (A X - shift X) + beta out, for a sparse A in CSR: a step of the Chebyshev recurrence.
//
// One warp per row and panel of 64 columns; panels are the slow index of the grid, so that a panel
// of X stays in the L2 cache while all rows pass over it. No atomics: results repeat bit by bit.
//
// X, out  (m, width)  row-major

template <typename T>
__device__ void spmm(const int* indptr, const int* indices, const T* data, const T* X, T* out,
                     int m, int width, T alpha, T shift, T beta)
{
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const int first = blockIdx.y * 64 + threadIdx.x;
    const int second = first + 32;
    if (row >= m || first >= width) return;
    const bool both = second < width;
    const int stop = indptr[row + 1];
    T sum_first = 0, sum_second = 0;
    for (int entry = indptr[row]; entry < stop; ++entry) {
        const T weight = data[entry];
        const T* x = X + (long long)indices[entry] * width;
        sum_first += weight * x[first];
        if (both) sum_second += weight * x[second];
    }
    const long long base = (long long)row * width;
    T result = alpha * (sum_first - shift * X[base + first]);
    if (beta != 0) result += beta * out[base + first];
    out[base + first] = result;
    if (both) {
        result = alpha * (sum_second - shift * X[base + second]);
        if (beta != 0) result += beta * out[base + second];
        out[base + second] = result;
    }
}

extern "C" __global__ void spmm_float32(const int* indptr, const int* indices, const float* data,
                                        const float* X, float* out, int m, int width, float alpha,
                                        float shift, float beta)
{
    spmm(indptr, indices, data, X, out, m, width, alpha, shift, beta);
}

extern "C" __global__ void spmm_float64(const int* indptr, const int* indices, const double* data,
                                        const double* X, double* out, int m, int width,
                                        double alpha, double shift, double beta)
{
    spmm(indptr, indices, data, X, out, m, width, alpha, shift, beta);
}
