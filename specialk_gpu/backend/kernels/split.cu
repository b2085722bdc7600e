// An exact product of a 0/1 matrix with real numbers on tensor cores that take float16 and sum in
// float32: each number is split into integers of so few bits that no sum of them is ever rounded.
//
// With 2^e above the largest of a column of X, x = 2^e (p_0 2^-b + p_1 2^-2b + ...), |p| <= 2^b.
//
// X, out     (m, width)     row-major
// exponents  (width,)       e
// columns    of X and out, from `first` on: those of this panel
// pieces     (m, n_pieces * columns or more: `stride`)  float16, as its bits
// products   (m, stride)    the 0/1 matrix times the pieces

// The bits of a small integer in float16, which holds it exactly: |x| <= 2048.
__device__ unsigned short half_bits(float x)
{
    const unsigned bits = __float_as_uint(x);
    const unsigned magnitude = bits & 0x7fffffffu;
    if (magnitude == 0) return 0;
    return (bits >> 16 & 0x8000u) | ((magnitude >> 13) - (112u << 10));  // exponents differ by 112
}

template <typename T>
__device__ void split(const T* X, const int* exponents, long long m, int width, int first,
                      int columns, int bits, int n_pieces, int stride, unsigned short* pieces)
{
    const long long element = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long row = element / columns;
    const int column = element % columns;
    if (row >= m) return;
    double rest = ldexp((double)X[row * width + first + column], -exponents[first + column]);
    for (int i = 0; i < n_pieces; ++i) {
        rest = ldexp(rest, bits);
        const double integer = rint(rest);
        pieces[row * stride + (long long)i * columns + column] = half_bits((float)integer);
        rest -= integer;
    }
}

// out = alpha (weight products - shift X) + beta out + source weights, as in spmm.cu, the products
// put together from their pieces.
template <typename T>
__device__ void combine(const float* products, const int* exponents, long long m, int width,
                        int first, int columns, int bits, int n_pieces, int stride, const T* X,
                        T* out, T weight, T alpha, T shift, T beta, const T* source,
                        const T* weights, int has_source)
{
    const long long element = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    const long long row = element / columns;
    const int column = element % columns;
    if (row >= m) return;
    double sum = 0;
    for (int i = n_pieces - 1; i >= 0; --i) {  // the smallest first
        sum = ldexp(sum + products[row * stride + (long long)i * columns + column], -bits);
    }
    const long long place = row * width + first + column;
    const T product = weight * (T)ldexp(sum, exponents[first + column]);
    T result = alpha * (product - shift * X[place]);
    if (beta != 0) result += beta * out[place];
    if (has_source) result += source[place] * weights[first + column];
    out[place] = result;
}

extern "C" __global__ void split_float32(const float* X, const int* exponents, long long m,
                                         int width, int first, int columns, int bits, int n_pieces,
                                         int stride, unsigned short* pieces)
{
    split(X, exponents, m, width, first, columns, bits, n_pieces, stride, pieces);
}

extern "C" __global__ void split_float64(const double* X, const int* exponents, long long m,
                                         int width, int first, int columns, int bits, int n_pieces,
                                         int stride, unsigned short* pieces)
{
    split(X, exponents, m, width, first, columns, bits, n_pieces, stride, pieces);
}

extern "C" __global__ void combine_float32(const float* products, const int* exponents,
                                           long long m, int width, int first, int columns, int bits,
                                           int n_pieces, int stride, const float* X, float* out,
                                           float weight, float alpha, float shift, float beta,
                                           const float* source, const float* weights,
                                           int has_source)
{
    combine(products, exponents, m, width, first, columns, bits, n_pieces, stride, X, out, weight,
            alpha, shift, beta, source, weights, has_source);
}

extern "C" __global__ void combine_float64(const float* products, const int* exponents,
                                           long long m, int width, int first, int columns, int bits,
                                           int n_pieces, int stride, const double* X, double* out,
                                           double weight, double alpha, double shift, double beta,
                                           const double* source, const double* weights,
                                           int has_source)
{
    combine(products, exponents, m, width, first, columns, bits, n_pieces, stride, X, out, weight,
            alpha, shift, beta, source, weights, has_source);
}
