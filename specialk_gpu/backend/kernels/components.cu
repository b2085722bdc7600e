// Connected components: a forest over the rows in which every tree has its least row as root.
//
// A warp takes a row, a lane every 32nd of its entries. Where the ends of an entry lie in different
// trees, the larger root is hooked to the smaller (Jaiganesh & Burtscher, HPDC 2018). Whatever the
// order of events, the roots are in the end the least rows of the components.
//
// Threads share `parent` without a barrier. That is right because
//   - parents only fall: parent[i] < i for all but roots, so that there are no cycles;
//   - a root gains a parent by atomicCAS alone, which sees the present value, not a cached one;
//   - what is not a root never becomes one, and plain stores go only to such rows: to a row whose
//     parent was seen, they write an ancestor. If two come at once, either is right.
// Loads are volatile, so that they come from where atomics happen. One that comes late finds an
// ancestor further down; atomicCAS then refuses, and answers with the parent.
//
// indptr  (m + 1,), indices (nnz,): rows next to each other
// parent  (m,)  at first each row itself
// root    (m,)

__device__ int find(volatile int* parent, int row)
{
    int above = parent[row];
    while (above != row) {
        const int next = parent[above];
        if (next == above) break;
        parent[row] = next;  // halves the path for those who come later
        row = above;
        above = next;
    }
    return above;
}

extern "C" __global__ void hook_int32(const long long* indptr, const int* indices, int m,
                                      int* parent)
{
    const long long row = blockIdx.x * (long long)(blockDim.x / 32) + threadIdx.x / 32;
    if (row >= m) return;
    int own = find(parent, (int)row);
    for (long long i = indptr[row] + threadIdx.x % 32; i < indptr[row + 1]; i += 32) {
        int other = find(parent, indices[i]);
        while (own != other) {
            const int low = min(own, other), high = max(own, other);
            const int before = atomicCAS(&parent[high], high, low);
            own = low;
            if (before == high) break;
            other = find(parent, before);  // somebody was faster
        }
    }
}

extern "C" __global__ void find_root_int32(int m, int* parent, int* root)
{
    const long long row = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (row < m) root[row] = find(parent, (int)row);
}
