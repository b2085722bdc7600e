// The places of at least the n smallest scores of each row, a score being a product plus its
// column's offset. One block of 256 threads per row.
//
// Each thread keeps the minimum of its stride of columns. The n-th smallest of these 256 minima is
// an upper bound of the row's n-th smallest score, so a second pass that collects what does not
// exceed it finds them all, and few others. For a large n the minima are of more groups, and are
// sorted between two kernels.
//
// products  (t, m)      row-major
// offsets   (m,)
// places    (t, width)  filled with -1 beforehand; the order within a row is not determined
// limits    (t,)        no score outside of the places is smaller; -inf where more than `width` tie
// minima    (t, groups) of the columns group, group + groups, ...

template <typename T>
__device__ T minimum(const T* product, const T* offsets, long long m, long long group,
                     long long groups)
{
    T smallest = (T)__int_as_float(0x7f800000);
    for (long long j = group; j < m; j += groups) smallest = min(smallest, product[j] + offsets[j]);
    return smallest;
}

template <typename T>
__device__ void collect(const T* product, const T* offsets, long long m, int width,
                        long long* places, T limit, T* limits)
{
    __shared__ int count;
    const long long row = blockIdx.x;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    for (long long j = threadIdx.x; j < m; j += blockDim.x) {
        if (product[j] + offsets[j] <= limit) {
            const int position = atomicAdd(&count, 1);
            if (position < width) places[row * width + position] = j;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) limits[row] = count <= width ? limit : -(T)__int_as_float(0x7f800000);
}

template <typename T>
__device__ void select_smallest(const T* products, const T* offsets, long long m, int n, int width,
                                long long* places, T* limits)
{
    const int threads = 256;
    __shared__ T minima[threads];
    const int thread = threadIdx.x;
    const T* product = products + blockIdx.x * m;
    minima[thread] = minimum(product, offsets, m, thread, threads);
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
    collect(product, offsets, m, width, places, minima[n - 1], limits);
}

template <typename T>
__device__ void group_minima(const T* products, const T* offsets, long long m, long long groups,
                             T* minima)
{
    for (long long group = threadIdx.x; group < groups; group += blockDim.x) {
        const long long place = blockIdx.x * groups + group;
        minima[place] = minimum(products + blockIdx.x * m, offsets, m, group, groups);
    }
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

extern "C" __global__ void group_minima_float32(const float* products, const float* offsets,
                                                long long m, long long groups, float* minima)
{
    group_minima(products, offsets, m, groups, minima);
}

extern "C" __global__ void collect_float32(const float* products, const float* offsets, long long m,
                                           int width, long long* places, float* limits)
{
    const float limit = limits[blockIdx.x];
    collect(products + blockIdx.x * m, offsets, m, width, places, limit, limits);
}

extern "C" __global__ void group_minima_float64(const double* products, const double* offsets,
                                                long long m, long long groups, double* minima)
{
    group_minima(products, offsets, m, groups, minima);
}

extern "C" __global__ void collect_float64(const double* products, const double* offsets,
                                           long long m, int width, long long* places,
                                           double* limits)
{
    const double limit = limits[blockIdx.x];
    collect(products + blockIdx.x * m, offsets, m, width, places, limit, limits);
}
