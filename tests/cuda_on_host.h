// Enough of CUDA C++ on the host to run the kernels as they are: one thread of the host for each
// thread of a block, blocks one after another. Shared memory is static, barriers are real, so that
// missing ones show as wrong results or under a thread sanitizer.
#pragma once

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

inline thread_local dim3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace host {

// A barrier is left for good by threads that end before the others reach it.
inline std::unique_ptr<std::barrier<>> block_barrier;
inline std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
inline std::vector<double> exchange;
inline std::mutex atomic;

inline unsigned rank()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

inline void launch(dim3 grid, dim3 block, const std::function<void()>& kernel)
{
    gridDim = grid;
    blockDim = block;
    const unsigned threads = block.x * block.y * block.z;
    exchange.assign(threads, 0);
    for (unsigned by = 0; by < grid.y; ++by) {
        for (unsigned bx = 0; bx < grid.x; ++bx) {
            block_barrier = std::make_unique<std::barrier<>>(threads);
            warp_barriers.clear();
            for (unsigned first = 0; first < threads; first += 32) {
                warp_barriers.push_back(
                    std::make_unique<std::barrier<>>(std::min(32u, threads - first)));
            }
            std::vector<std::thread> pool;
            for (unsigned t = 0; t < threads; ++t) {
                pool.emplace_back([&, t] {
                    threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
                    blockIdx = {bx, by, 0};
                    kernel();
                    warp_barriers[t / 32]->arrive_and_drop();
                    block_barrier->arrive_and_drop();
                });
            }
            for (auto& thread : pool) thread.join();
        }
    }
}

}  // namespace host

inline void __syncthreads() { host::block_barrier->arrive_and_wait(); }

template <typename T>
T __shfl_down_sync(unsigned, T value, int offset)
{
    const unsigned t = host::rank(), lane = t % 32;
    auto& barrier = *host::warp_barriers[t / 32];
    std::memcpy(&host::exchange[t], &value, sizeof(T));
    barrier.arrive_and_wait();
    T other = value;
    if (lane + offset < 32) std::memcpy(&other, &host::exchange[t + offset], sizeof(T));
    barrier.arrive_and_wait();
    return other;
}

inline int atomicAdd(int* address, int value)
{
    std::lock_guard<std::mutex> guard(host::atomic);
    const int before = *address;
    *address += value;
    return before;
}

inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }

inline float __int_as_float(int bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline unsigned __float_as_uint(float value)
{
    unsigned bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline long long __double_as_longlong(double value)
{
    long long bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

using std::max;
using std::min;
