// The memory of an NVIDIA GPU as a device's (device.h).
//
// All work is on the default stream, in whose order memory is read and written. What fails here is
// said by the next launch or synchronisation: a GPU that failed once fails from then on.

#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/late.h"
#include "runtime/cuda/pool.h"
#include "runtime/cuda/replay.h"
#include "runtime/cuda/streams.h"
#include "runtime/device.h"

namespace qd::runtime::cuda {
namespace {

constexpr size_t kAlignment = 256;  // of what the driver allocates
constexpr size_t kSmall = size_t(64) << 20;
constexpr unsigned kAttachGlobal = 1;  // CU_MEM_ATTACH_GLOBAL
constexpr int kPreferredLocation = 3;  // CU_MEM_ADVISE_SET_PREFERRED_LOCATION

Address address(const void* p) { return reinterpret_cast<Address>(p); }

Memory between(Address at, size_t bytes, size_t before) {
    char* raw = reinterpret_cast<char*>(at);
    return {raw + before, bytes, raw};
}

size_t rounded(size_t margin) { return (margin + kAlignment - 1) & ~(kAlignment - 1); }

// Atomics on small numbers are those of the word around.
size_t whole_words(size_t bytes) { return (bytes + 3) & ~size_t(3); }

Memory allocate(size_t bytes, size_t margin) {
    const Driver* entry = use_if_possible();
    if (!entry) return {};
    const Driver& d = *entry;
    const size_t before = rounded(margin), all = whole_words(before + bytes + margin + 1);
    const Address at = take_memory(d, all);
    if (!at) return {};
    if (d.cuMemsetD8Async(at, 0, all, nullptr) != 0) {
        give_back_memory(d, at);
        return {};
    }
    return between(at, bytes, before);
}

// Pages of the driver's "managed" memory come with their first touch, by reads too, 2 MB at a time
// where there is room; they are zeros, and stay on the device. 64 TB are as good as any. A first
// touch takes some 50 us, so what is small has its pages from the beginning.
Memory reserve(size_t bytes, size_t margin) {
    const Driver* entry = use_if_possible();
    if (!entry || !entry->provides_pages || bytes <= kSmall) return allocate(bytes, margin);
    const size_t before = rounded(margin), all = whole_words(before + bytes + margin + 1);
    Address at = 0;
    if (entry->cuMemAllocManaged(&at, all, kAttachGlobal) != 0) return {};
    (void)entry->cuMemAdvise(at, all, kPreferredLocation, entry->device);
    Memory m = between(at, bytes, before);
    m.mapped = all;
    return m;
}

void release(const Memory& m) {
    const Driver* d = use_if_possible();
    if (!d) return;
    if (m.mapped)
        (void)d->cuMemFree_v2(address(m.raw));
    else
        give_back_memory(*d, address(m.raw));
}

void trim() {
    const Driver* d = use_if_possible();
    if (d && d->cuStreamSynchronize(nullptr) == 0) trim_memory(*d);
}

bool read(void* to, const char* from, size_t bytes) {
    const Driver* d = use_if_possible();
    if (bytes && (!d || d->cuMemcpyDtoH_v2(to, address(from), bytes) != 0)) return false;
    return !any_late_failure();
}

void write(char* to, const void* from, size_t bytes) {
    const Driver* d = use_if_possible();
    if (bytes && d) (void)d->cuMemcpyHtoD_v2(address(to), from, bytes);
}

void fill(char* to, uint64_t bits, size_t size, size_t count) {
    const Driver* entry = use_if_possible();
    if (!entry) return;
    const Driver& d = *entry;
    const Address at = address(to);
    const bool halves_equal = uint32_t(bits) == bits >> 32;
    if (size == 1)
        (void)d.cuMemsetD8Async(at, uint8_t(bits), count, nullptr);
    else if (size == 2)
        (void)d.cuMemsetD16Async(at, uint16_t(bits), count, nullptr);
    else if (size == 4 || halves_equal)
        (void)d.cuMemsetD32Async(at, uint32_t(bits), count * (size / 4), nullptr);
    else
        write(to, std::vector<uint64_t>(count, bits).data(), count * size);
}

Wait synchronise(int64_t most_ns) { return queues.wait_for_stream(0, most_ns); }

void give_up() {
    stop_loops();
    abandon();
}

}  // namespace
}  // namespace qd::runtime::cuda

namespace qd::runtime {

const Device cuda_device = {
    .name = "cuda",
    .dlpack_type = 2,
    .is_host = false,
    .allocate = cuda::allocate,
    .reserve = cuda::reserve,
    .release = cuda::release,
    .discard = nullptr,
    .read = cuda::read,
    .write = cuda::write,
    .fill = cuda::fill,
    .expose = nullptr,
    .share = cuda::others_take_part,
    .trim = cuda::trim,
    .launch_begins = nullptr,
    .launch_ends = nullptr,
    .synchronise = cuda::synchronise,
    .give_up = cuda::give_up,
    .queues = &cuda::queues,
};

}  // namespace qd::runtime
