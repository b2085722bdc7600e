// Enough of CUDA C++ on the host to run the kernels as they are: a context of its own for each thread
// of a block, blocks one after another. A thread runs until it meets a barrier or ends, in rising order
// in even blocks and in falling order in odd ones, so that a missing barrier shows as a wrong result,
// every time. Shared memory is static.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

struct alignas(16) double2 {
    double x, y;
};

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace host {

enum class State { ready, at_block_barrier, at_warp_barrier, ended };

struct Thread {
    ucontext_t context;
    dim3 index;
    State state;
    double exchange;  // what it offers to its warp
};

constexpr std::size_t stack_size = 1 << 16;
inline std::vector<Thread> threads;
inline std::vector<char> stacks;
inline ucontext_t scheduler;
inline unsigned current;
inline const std::function<void()>* kernel;

// Leave the current thread until the others have reached the barrier too, or ended.
inline void wait(State barrier)
{
    threads[current].state = barrier;
    swapcontext(&threads[current].context, &scheduler);
}

inline void run()
{
    (*kernel)();
    threads[current].state = State::ended;
}

// Whether no thread from `first` to `stop` is on its way to the barrier; then open it.
inline bool open(State barrier, unsigned first, unsigned stop)
{
    bool some = false;
    for (unsigned t = first; t < stop; ++t) {
        if (threads[t].state == barrier) some = true;
        else if (threads[t].state != State::ended) return false;
    }
    for (unsigned t = first; t < stop; ++t) {
        if (threads[t].state == barrier) threads[t].state = State::ready;
    }
    return some;
}

inline void run_block(bool falling)
{
    const unsigned n = threads.size();
    for (unsigned t = 0; t < n; ++t) {
        Thread& thread = threads[t];
        thread.index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
        thread.state = State::ready;
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = &stacks[t * stack_size];
        thread.context.uc_stack.ss_size = stack_size;
        thread.context.uc_link = &scheduler;
        makecontext(&thread.context, run, 0);
    }
    for (bool going = true; going;) {
        for (unsigned i = 0; i < n; ++i) {
            current = falling ? n - 1 - i : i;
            if (threads[current].state != State::ready) continue;
            threadIdx = threads[current].index;
            swapcontext(&scheduler, &threads[current].context);
        }
        going = false;
        for (unsigned first = 0; first < n; first += 32) {
            going |= open(State::at_warp_barrier, first, std::min(n, first + 32));
        }
        going |= open(State::at_block_barrier, 0, n);
    }
    for (const Thread& thread : threads) {
        if (thread.state != State::ended) {
            std::fputs("threads of a block wait at different barriers\n", stderr);
            std::abort();
        }
    }
}

inline void launch(dim3 grid, dim3 block, const std::function<void()>& function)
{
    gridDim = grid;
    blockDim = block;
    kernel = &function;
    threads.resize(block.x * block.y * block.z);
    stacks.resize(threads.size() * stack_size);
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        run_block(b % 2 == 1);
    }
}

}  // namespace host

inline void __syncthreads() { host::wait(host::State::at_block_barrier); }

template <typename T>
T __shfl_down_sync(unsigned, T value, int offset)
{
    const unsigned t = host::current, other = t + offset;
    std::memcpy(&host::threads[t].exchange, &value, sizeof(T));
    host::wait(host::State::at_warp_barrier);
    if (t % 32 + offset < 32 && other < host::threads.size()) {
        std::memcpy(&value, &host::threads[other].exchange, sizeof(T));
    }
    host::wait(host::State::at_warp_barrier);
    return value;
}

inline int atomicAdd(int* address, int value)
{
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
