// See pool.h. A pool of our own (docs.nvidia.com, "Stream Ordered Memory Allocator"): the device's
// default one is everybody's.

#include "runtime/cuda/pool.h"

#include <atomic>
#include <cstdint>

namespace qd::runtime::cuda {
namespace {

constexpr int kHasPools = 115;        // CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
constexpr int kReleaseThreshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

struct PoolRow {      // CUmemPoolProps
    int kind = 1;     // CU_MEM_ALLOCATION_TYPE_PINNED
    int handles = 0;  // none
    int place = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
    int device = 0;
    uint64_t room[16]{};  // newer members are 0
};

std::atomic<Handle> pool = nullptr;
std::atomic<bool> others = false;

}  // namespace

void make_pool(const Driver& d) {
    int possible = 0;
    if (pool || d.cuDeviceGetAttribute(&possible, kHasPools, d.device) != 0 || !possible) return;
    PoolRow row;
    row.device = d.device;
    Handle made = nullptr;
    if (d.cuMemPoolCreate(&made, &row) != 0) return;
    size_t free = 0, all = 0;  // what is kept from other libraries is little
    (void)d.cuMemGetInfo_v2(&free, &all);
    uint64_t keeps = all / 8;
    (void)d.cuMemPoolSetAttribute(made, kReleaseThreshold, &keeps);
    pool = made;
}

Address take_memory(const Driver& d, size_t bytes) {
    Address at = 0;
    const Handle from = pool;
    if (!from) return d.cuMemAlloc_v2(&at, bytes) == 0 ? at : 0;
    if (d.cuMemAllocFromPoolAsync(&at, bytes, from, nullptr) == 0) return at;
    // Freed pieces may be too small each.
    (void)d.cuStreamSynchronize(nullptr);
    trim_memory(d);
    return d.cuMemAllocFromPoolAsync(&at, bytes, from, nullptr) == 0 ? at : 0;
}

Address must_take_memory(const Driver& d, size_t bytes, const char* what) {
    const Address at = take_memory(d, bytes);
    if (!at) check(kOutOfMemory, what);
    return at;
}

void give_back_memory(const Driver& d, Address at) {
    if (!pool) return (void)d.cuMemFree_v2(at);
    if (others) (void)d.cuCtxSynchronize();
    (void)d.cuMemFreeAsync(at, nullptr);
}

void trim_memory(const Driver& d) {
    if (const Handle of = pool) (void)d.cuMemPoolTrimTo(of, 0);
}

void others_take_part() { others = true; }

}  // namespace qd::runtime::cuda
