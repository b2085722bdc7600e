// The largest entries of segments of a vector. A block of 128 threads takes one segment; a segment
// without entries is a matter of the caller.
//
// x           (n,)
// start, end  (s,)   of the segments
// out         (s,)

extern "C" __global__ void segment_max_float64(const double* x, const long long* start,
                                               const long long* end, double* out)
{
    const int threads = 128;
    __shared__ double largest[threads];
    const long long first = start[blockIdx.x], stop = end[blockIdx.x];
    double own = x[first];
    for (long long i = first + threadIdx.x; i < stop; i += threads) own = fmax(own, x[i]);
    largest[threadIdx.x] = own;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            largest[threadIdx.x] = fmax(largest[threadIdx.x], largest[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = largest[0];
}
