// Sums of weights by bin, added where they are: for weights whose sums are exact in any order.
//
// bins     (n,)  int64, in 0, ..., the number of bins - 1
// weights  (n,)
// sums     (number of bins,), zero at first

extern "C" __global__ void add_to_bins_float64(const long long* bins, const double* weights,
                                               long long n, double* sums)
{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sums[bins[i]], weights[i]);
}
