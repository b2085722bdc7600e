// The nearest centre of every row, for several sets of centres ("runs") at once.
//
// The centres of all runs form one list, and a block takes 128 rows and a group of whole runs. A
// thread multiplies its two rows with 16 centres of the list at a time, in registers; nothing but
// the result is written. Each product is summed in the order of the columns, whatever the batch.
//
// X               (m, d)  column by column
// sq_norms        (m,)
// centers         (R, k, d)
// slots           (F + 1,) the place r k + c of each centre in the list, then R k
// groups          (n_groups + 1,) where the groups begin in the list, then F
// labels          (R, m)  of equal distances the smaller one
// sq_distances    (R, m)

extern "C" __global__ void nearest_center_float64(const double* X, const double* sq_norms,
                                                  long long m, long long d,
                                                  const double* centers, long long k,
                                                  const long long* slots, const long long* groups,
                                                  int n_groups, int* labels, double* sq_distances)
{
    const int threads = 64, rows = 2, panel = 16, columns = 64;
    __shared__ double2 center[columns][panel / 2];  // pairs: half as many loads
    __shared__ double squares[threads];  // those of every panel-th thread are of one centre
    const int thread = threadIdx.x;
    const long long tile = blockIdx.x / n_groups, group = blockIdx.x % n_groups;
    const long long stop = groups[group + 1];
    long long row[rows], place[rows];
    double best[rows];
    int label[rows];
    for (int r = 0; r < rows; ++r) {
        row[r] = (tile * rows + r) * threads + thread;
        place[r] = min(row[r], m - 1);
    }

    for (long long first = groups[group]; first < stop; first += panel) {
        const int count = (int)min((long long)panel, stop - first);
        double product[rows][panel] = {}, square = 0;
        for (long long column = 0; column < d; column += columns) {
            const int width = (int)min((long long)columns, d - column);
            __syncthreads();
            for (int i = thread; i < width * panel; i += threads) {
                const int c = i % panel, j = i / panel;
                const double value = c < count ? centers[slots[first + c] * d + column + j] : 0;
                square += value * value;
                if (c % 2 == 0) center[j][c / 2].x = value;
                else center[j][c / 2].y = value;
            }
            __syncthreads();
#pragma unroll 4
            for (int j = 0; j < width; ++j) {
                const double* x = X + (column + j) * m;
                double value[rows];
                for (int r = 0; r < rows; ++r) value[r] = x[place[r]];
#pragma unroll
                for (int c = 0; c < panel; c += 2) {
                    const double2 pair = center[j][c / 2];
                    for (int r = 0; r < rows; ++r) {
                        product[r][c] += value[r] * pair.x;
                        product[r][c + 1] += value[r] * pair.y;
                    }
                }
            }
        }
        squares[thread] = square;
        __syncthreads();
#pragma unroll
        for (int c = 0; c < panel; ++c) {
            if (c >= count) break;
            double norm = 0;
            for (int i = c; i < threads; i += panel) norm += squares[i];
            const long long slot = slots[first + c], run = slot / k;
            const bool begins = slot % k == 0;
            const bool ends = slots[first + c + 1] / k != run;
            for (int r = 0; r < rows; ++r) {
                const double score = norm - 2 * product[r][c];
                if (begins || score < best[r]) {
                    best[r] = score;
                    label[r] = (int)(slot % k);
                }
                if (ends && row[r] < m) {
                    labels[run * m + row[r]] = label[r];
                    sq_distances[run * m + row[r]] = max(best[r] + sq_norms[row[r]], 0.0);
                }
            }
        }
    }
}
