// See code.h.

#include "runtime/cuda/code.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <string>
#include <utility>

#include "runtime/cuda/pool.h"
#include "support/clock.h"
#include "support/error.h"

namespace qd::runtime::cuda {
namespace {

constexpr size_t kRecursiveStack = 8192;  // of each thread that the device can run at a time
constexpr int kErrorLog = 5, kErrorLogBytes = 6;  // CU_JIT_ERROR_LOG_BUFFER and its size
constexpr int kLevel = 7;                         // CU_JIT_OPTIMIZATION_LEVEL
constexpr int kSharedBytes = 8;                   // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kMemoryType = 2, kOrdinal = 9;      // CU_POINTER_ATTRIBUTE_*
constexpr unsigned kOnDevice = 2;                 // CU_MEMORYTYPE_DEVICE

std::atomic<bool> may_be_in_drivers_cache = true;

// The driver's cache is by text, and its own switch is read when it starts: text that no other
// process has is not in it (chapter 51, section 1.1).
const std::string& nonce() {
    static const std::string line = [] {
        std::random_device random;
        std::string out = "\n// quadrants-session-nonce: " + std::to_string(getpid());
        for (int k = 0; k < 4; ++k) out += "-" + std::to_string(random());
        return out + "\n";
    }();
    return line;
}

// With its end.
std::string text_of(std::span<const uint8_t> object) {
    std::string text(object.begin(), object.end());
    if (text.starts_with("\177ELF") || may_be_in_drivers_cache) return text;
    while (text.ends_with('\0')) text.pop_back();
    return text + nonce();
}

}  // namespace

void allow_driver_cache(bool allowed) { may_be_in_drivers_cache = allowed; }

Code::~Code() {
    replays.clear();
    const Driver* d = modules.empty() ? nullptr : use_if_possible();
    if (!d) return;
    for (const Handle m : modules) (void)d->cuModuleUnload(m);
}

std::shared_ptr<const Code> load_code(std::span<const std::span<const uint8_t>> objects,
                                      std::span<const LoadedTask> tasks, bool recursive) {
    const Driver& d = use();
    if (recursive) need_stack(kRecursiveStack);
    std::string log(8192, '\0');
    int options[] = {kErrorLog, kErrorLogBytes, kLevel};
    // NVIDIA's assembler (13.0) makes code of functions that call themselves in branches that hangs
    // or gives other numbers, but on its lowest level.
    const size_t level = recursive ? 0 : 4;
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size()),
                      reinterpret_cast<void*>(level)};
    auto code = std::make_shared<Code>();
    for (const std::span<const uint8_t> object : objects) {
        Handle module = nullptr;
        const std::string text = text_of(object);
        if (const Result r = d.cuModuleLoadDataEx(&module, text.c_str(), 3, options, values)) {
            const std::string said = log.c_str();
            check(r, ("assembling code" + (said.empty() ? said : " (" + said + ")")).c_str());
        }
        code->modules.push_back(module);
    }
    const auto find = [&](const std::string& name) {
        Handle found = nullptr;
        Result r = 0;
        for (const Handle m : code->modules)
            if (r = d.cuModuleGetFunction(&found, m, name.c_str()); r == 0) return found;
        check(r, "finding a task");
        return found;
    };
    for (size_t k = 0; k < tasks.size(); ++k) {
        Code::Entry e{};
        const std::string number = std::to_string(k);
        e.task = find("task" + number);
        if (tasks[k].partial_bytes) e.finish = find("finish" + number);
        const uint32_t shared = tasks[k].shared_bytes;
        if (shared > uint32_t(d.shared_bytes))
            throw support::Error("the shared arrays of a loop have " + std::to_string(shared) +
                                 " bytes; a block of this device has " +
                                 std::to_string(d.shared_bytes) +
                                 ": make them smaller or let them live in different loops");
        if (shared)
            check(d.cuFuncSetAttribute(e.task, kSharedBytes, int(shared)),
                  "asking for shared memory");
        e.held = 1;
        if (!tasks[k].iterations)
            check(d.cuOccupancyMaxActiveBlocksPerMultiprocessor(&e.held, e.task, tasks[k].block_dim,
                                                                shared),
                  "asking how many blocks fit");
        code->entries.push_back(e);
    }
    return code;
}

void wait_for_idle(int64_t most_ns) {
    constexpr timespec kNap{0, 200000};
    const int64_t until = support::now_ns() + most_ns;
    while (use().cuStreamQuery(nullptr) == kNotReady && support::now_ns() < until)
        nanosleep(&kNap, nullptr);
}

HostCopy::HostCopy(void* host, size_t bytes) : host_(host), bytes_(bytes) {
    const Driver& d = use();
    device_ = must_take_memory(d, bytes ? bytes : 1, "copying an argument to the device");
    if (bytes) check(d.cuMemcpyHtoD_v2(device_, host, bytes), "copying an argument to the device");
}
HostCopy::HostCopy(HostCopy&& other) noexcept
    : host_(other.host_), bytes_(other.bytes_), device_(std::exchange(other.device_, 0)) {}
HostCopy::~HostCopy() {
    const Driver* d = device_ ? use_if_possible() : nullptr;
    if (d) give_back_memory(*d, device_);
}
void HostCopy::write_back() const {
    if (bytes_)
        check(use().cuMemcpyDtoH_v2(host_, device_, bytes_), "copying an argument to the host");
}

void wait_for_stream(uint64_t stream) {
    check(use().cuStreamSynchronize(reinterpret_cast<Handle>(stream)), "waiting for a stream");
}

bool is_on_device(const void* address) {
    const Driver& d = use();
    unsigned type = 0;
    int device = 0;
    int attributes[] = {kMemoryType, kOrdinal};
    void* values[] = {&type, &device};
    if (d.cuPointerGetAttributes(2, attributes, values, reinterpret_cast<Address>(address)) != 0 ||
        type != kOnDevice)
        return false;
    if (device != d.device)
        throw support::Error(
            "an array lies on GPU " + std::to_string(device) + ", and kernels run on GPU " +
            std::to_string(d.device) +
            ": move it there, or choose the GPU with CUDA_VISIBLE_DEVICES or torch.cuda.set_device "
            "before qd.init");
    return true;
}

}  // namespace qd::runtime::cuda
