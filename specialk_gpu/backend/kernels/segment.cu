// The sums of the rows of each label, and of their squares, for several labellings at once.
//
// A block takes a part of the rows, one labelling, 64 columns and as many labels as fit. A thread
// owns a column and adds row after row to sums in shared memory; a second kernel adds the parts in
// their order. No atomics: results repeat bit by bit, and do not depend on the other labellings.
// A last column of ones, which X does not hold, gives the counts.
//
// X        (m, d)    row-major
// labels   (R, m)    others than 0, ..., k - 1 count for nothing
// partial  (n_parts, size), size = R n_powers k (d + 1): sums, then with n_powers = 2 of squares
// total    (size,)

template <typename T>
__device__ void segment_sum(const T* X, long long m, long long d, const int* labels, long long R,
                            long long k, int n_powers, long long n_rows, double* partial)
{
    const int threads = 64, slots = 48, ahead = 4;
    __shared__ double sum[slots][threads];
    const int thread = threadIdx.x, panel = slots / n_powers;
    const long long run = blockIdx.x % R, part = blockIdx.x / R;
    const long long first = (long long)blockIdx.z * panel;
    const long long column = (long long)blockIdx.y * threads + thread;
    const int width = (int)min((long long)panel, k - first);
    for (int slot = 0; slot < slots; ++slot) sum[slot][thread] = 0;

    const long long stop = min(m, (part + 1) * n_rows);
    for (long long row = part * n_rows; row < stop; row += ahead) {
        double x[ahead];
        long long label[ahead];
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            const bool inside = row + i < stop;
            label[i] = inside ? labels[run * m + row + i] - first : -1;
            x[i] = inside && column < d ? (double)X[(row + i) * d + column] : 1;
        }
#pragma unroll
        for (int i = 0; i < ahead; ++i) {
            if (label[i] < 0 || label[i] >= width) continue;
            sum[label[i]][thread] += x[i];
            if (n_powers == 2) sum[panel + label[i]][thread] += x[i] * x[i];
        }
    }
    if (column > d) return;
    for (int power = 0; power < n_powers; ++power) {
        double* out = partial + ((part * R + run) * n_powers + power) * k * (d + 1);
        for (int c = 0; c < width; ++c) {
            out[(first + c) * (d + 1) + column] = sum[power * panel + c][thread];
        }
    }
}

extern "C" __global__ void segment_sum_float32(const float* X, long long m, long long d,
                                               const int* labels, long long R, long long k,
                                               int n_powers, long long n_rows, double* partial)
{
    segment_sum(X, m, d, labels, R, k, n_powers, n_rows, partial);
}

extern "C" __global__ void segment_sum_float64(const double* X, long long m, long long d,
                                               const int* labels, long long R, long long k,
                                               int n_powers, long long n_rows, double* partial)
{
    segment_sum(X, m, d, labels, R, k, n_powers, n_rows, partial);
}

extern "C" __global__ void add_parts_float64(const double* partial, long long n_parts,
                                             long long size, double* total)
{
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= size) return;
    double sum = 0;
    for (long long part = 0; part < n_parts; ++part) sum += partial[part * size + i];
    total[i] = sum;
}
