// The places of at least the n smallest scores of each row, a score being a product plus its
// column's offset. One block of 256 threads per row.
//
// Each thread keeps the minimum of its stride of columns. The n-th smallest of these 256 minima is
// an upper bound of the row's n-th smallest score, so a second pass that collects what does not
// exceed it finds them all, and few others.
//
// products  (t, m)      row-major
// offsets   (m,)
// places    (t, width)  filled with -1 beforehand; the order within a row is not determined
// limits    (t,)        no score outside of the places is smaller; -inf where more than `width` tie

template <typename T>
__device__ void select_smallest(const T* products, const T* offsets, long long m, int n, int width,
                                long long* places, T* limits)
{
    const int threads = 256;
    __shared__ T minima[threads];
    __shared__ int count;
    const T infinity = (T)__int_as_float(0x7f800000);
    const long long row = blockIdx.x;
    const int thread = threadIdx.x;
    const T* product = products + row * m;

    T smallest = infinity;
    for (long long j = thread; j < m; j += threads) {
        smallest = min(smallest, product[j] + offsets[j]);
    }
    minima[thread] = smallest;
    if (thread == 0) count = 0;
    __syncthreads();

    for (int size = 2; size <= threads; size *= 2) {  // bitonic sort
        for (int stride = size / 2; stride > 0; stride /= 2) {
            const int other = thread ^ stride;
            if (other > thread) {
                const bool ascending = (thread & size) == 0;
                const T a = minima[thread], b = minima[other];
                if ((a > b) == ascending) {
                    minima[thread] = b;
                    minima[other] = a;
                }
            }
            __syncthreads();
        }
    }
    const T limit = minima[n - 1];

    for (long long j = thread; j < m; j += threads) {
        if (product[j] + offsets[j] <= limit) {
            const int position = atomicAdd(&count, 1);
            if (position < width) places[row * width + position] = j;
        }
    }
    __syncthreads();
    if (thread == 0) limits[row] = count <= width ? limit : -infinity;
}

extern "C" __global__ void select_smallest_float32(const float* products, const float* offsets,
                                                   long long m, int n, int width,
                                                   long long* places, float* limits)
{
    select_smallest(products, offsets, m, n, width, places, limits);
}

extern "C" __global__ void select_smallest_float64(const double* products, const double* offsets,
                                                   long long m, int n, int width,
                                                   long long* places, double* limits)
{
    select_smallest(products, offsets, m, n, width, places, limits);
}
