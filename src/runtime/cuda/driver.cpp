// See driver.h.

#include "runtime/cuda/driver.h"

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "runtime/cuda/pool.h"
#include "support/clock.h"
#include "support/error.h"

namespace qd::runtime::cuda {
namespace {

constexpr int kStackLimit = 0;           // CU_LIMIT_STACK_SIZE
constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
constexpr int kSharedBytes = 97;         // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
constexpr int kBlockThreads = 1;         // CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
constexpr int kBlocksHeld = 106;         // CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR
constexpr int kClockRate = 13;           // CU_DEVICE_ATTRIBUTE_CLOCK_RATE
constexpr int kProvidesPages = 89;       // CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
constexpr int kMultiprocessors = 16;     // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kLeastCapability = 75;     // what PTX here is assembled for at least
constexpr int kLeastVersion = 12010;     // of the driver: PTX 8.1

struct Opened {
    Driver driver{};
    std::string problem;
    pid_t process = getpid();

    Opened() {
        void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            problem = "no NVIDIA driver (libcuda.so.1) is installed";
            return;
        }
        bool whole = true;
        const auto find = [&](auto& to, const char* name) {
            void* at = dlsym(library, name);
            whole &= at != nullptr;
            to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(at);
        };
#define QD_FIND(name) find(driver.name, #name)
        QD_FIND(cuInit);
        QD_FIND(cuDriverGetVersion);
        QD_FIND(cuDeviceGetCount);
        QD_FIND(cuDeviceGet);
        QD_FIND(cuDeviceGetName);
        QD_FIND(cuDeviceGetAttribute);
        QD_FIND(cuDevicePrimaryCtxRetain);
        QD_FIND(cuCtxSetCurrent);
        QD_FIND(cuCtxGetLimit);
        QD_FIND(cuCtxSetLimit);
        QD_FIND(cuMemGetInfo_v2);
        QD_FIND(cuMemAlloc_v2);
        QD_FIND(cuMemAllocManaged);
        QD_FIND(cuMemAdvise);
        QD_FIND(cuMemFree_v2);
        QD_FIND(cuMemPoolCreate);
        QD_FIND(cuMemPoolSetAttribute);
        QD_FIND(cuMemPoolTrimTo);
        QD_FIND(cuMemAllocFromPoolAsync);
        QD_FIND(cuMemFreeAsync);
        QD_FIND(cuCtxSynchronize);
        QD_FIND(cuMemHostAlloc);
        QD_FIND(cuMemFreeHost);
        QD_FIND(cuMemcpyDtoH_v2);
        QD_FIND(cuMemcpyHtoD_v2);
        QD_FIND(cuMemsetD8Async);
        QD_FIND(cuMemsetD16Async);
        QD_FIND(cuMemsetD32Async);
        QD_FIND(cuModuleLoadDataEx);
        QD_FIND(cuModuleUnload);
        QD_FIND(cuModuleGetFunction);
        QD_FIND(cuOccupancyMaxActiveBlocksPerMultiprocessor);
        QD_FIND(cuFuncSetAttribute);
        QD_FIND(cuLaunchKernel);
        QD_FIND(cuGraphCreate);
        QD_FIND(cuGraphDestroy);
        QD_FIND(cuGraphAddKernelNode_v2);
        QD_FIND(cuGraphAddDependencies);
        QD_FIND(cuGraphInstantiateWithFlags);
        QD_FIND(cuGraphExecDestroy);
        QD_FIND(cuGraphExecKernelNodeSetParams_v2);
        QD_FIND(cuGraphNodeSetEnabled);
        QD_FIND(cuGraphLaunch);
        QD_FIND(cuStreamCreate);
        QD_FIND(cuStreamDestroy_v2);
        QD_FIND(cuStreamWaitEvent);
        QD_FIND(cuEventQuery);
        QD_FIND(cuEventSynchronize);
        QD_FIND(cuEventDestroy_v2);
        QD_FIND(cuGraphAddEmptyNode);
        QD_FIND(cuStreamQuery);
        QD_FIND(cuStreamSynchronize);
        QD_FIND(cuEventCreate);
        QD_FIND(cuEventRecord);
        QD_FIND(cuEventElapsedTime);
        QD_FIND(cuPointerGetAttributes);
        QD_FIND(cuCtxGetDevice);
        QD_FIND(cuGetErrorName);
        QD_FIND(cuGetErrorString);
        const bool has_all = whole;
        QD_FIND(cuGraphAddDependencies_v2);
        QD_FIND(cuGraphAddNode);
        QD_FIND(cuGraphConditionalHandleCreate);
#undef QD_FIND
        if (!has_all) {
            problem = "the NVIDIA driver is too old: update it to CUDA 12.1 or later";
            return;
        }
        (void)driver.cuDriverGetVersion(&driver.version);
        if (driver.version < kLeastVersion) {
            problem = "the NVIDIA driver speaks CUDA " + std::to_string(driver.version / 1000) +
                      "." + std::to_string(driver.version % 1000 / 10) +
                      ": update it to CUDA 12.1 or later";
            return;
        }
        int count = 0, major = 0, minor = 0;
        if (const Result r = driver.cuInit(0); r != 0 || driver.cuDeviceGetCount(&count) != 0) {
            const char* text = nullptr;
            (void)driver.cuGetErrorString(r, &text);
            problem = std::string("the NVIDIA driver does not start: ") + (text ? text : "?");
            return;
        }
        // Torch's current device, say.
        const bool chosen = count && driver.cuCtxGetDevice(&driver.device) == 0;
        if (count == 0 || (!chosen && driver.cuDeviceGet(&driver.device, 0) != 0)) {
            problem = "there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it";
            return;
        }
        (void)driver.cuDeviceGetAttribute(&major, kMajor, driver.device);
        (void)driver.cuDeviceGetAttribute(&minor, kMinor, driver.device);
        (void)driver.cuDeviceGetAttribute(&driver.shared_bytes, kSharedBytes, driver.device);
        (void)driver.cuDeviceGetAttribute(&driver.multiprocessors, kMultiprocessors, driver.device);
        (void)driver.cuDeviceGetAttribute(&driver.blocks_held, kBlocksHeld, driver.device);
        (void)driver.cuDeviceGetAttribute(&driver.block_threads, kBlockThreads, driver.device);
        (void)driver.cuDeviceGetAttribute(&driver.clock_khz, kClockRate, driver.device);
        (void)driver.cuDeviceGetAttribute(&driver.provides_pages, kProvidesPages, driver.device);
        driver.capability = 10 * major + minor;
        if (driver.capability < kLeastCapability)
            problem = "the NVIDIA GPU has compute capability " + std::to_string(major) + "." +
                      std::to_string(minor) + "; 7.5 or later is needed";
    }
};

Opened& opened() {
    static auto* const all = new Opened;  // never destroyed: threads may launch during exit
    return *all;
}

constexpr const char* kForked =
    "CUDA cannot be used in a process that was forked after qd.init(arch=qd.cuda): start processes "
    "with multiprocessing's method \"spawn\", or fork first";

constexpr const char* kAbandoned =
    "a kernel that was interrupted still runs on the GPU, which cannot be used before it ends: "
    "start a "
    "new process, if it never does. Other architectures, such as qd.cpu, still work";

std::atomic<bool> abandoned = false, is_patient = false;
std::atomic<Handle> end_of_abandoned =
    nullptr;  // an event on the default stream, behind all own ones

bool abandoned_still_runs(const Driver& d) {
    constexpr int64_t kPatienceNs = 2000000000;
    constexpr timespec kNap{0, 1000000};
    if (!abandoned) return false;
    const int64_t until = is_patient.exchange(false) ? support::now_ns() + kPatienceNs : 0;
    while (d.cuEventQuery(end_of_abandoned) == kNotReady) {
        if (support::now_ns() > until) return true;
        nanosleep(&kNap, nullptr);
    }
    abandoned = false;
    return false;
}

bool has_failed(const Driver& d) {
    const Result r = d.cuStreamQuery(nullptr);
    return r != 0 && r != kNotReady;
}

}  // namespace

const Driver* driver() { return opened().problem.empty() ? &opened().driver : nullptr; }
std::string why_not() { return opened().problem; }

void check(Result result, const char* what) {
    if (result == 0) return;
    const Driver& d = opened().driver;
    const char *name = nullptr, *text = nullptr;
    (void)d.cuGetErrorName(result, &name);
    (void)d.cuGetErrorString(result, &text);
    throw support::Error(std::string("CUDA: ") + what + " failed: " + (text ? text : "?") + " (" +
                         (name ? name : std::to_string(result).c_str()) + ")");
}

const Driver& start(size_t stack_bytes) {
    if (!driver()) throw support::Error(why_not());
    Driver& d = opened().driver;
    if (getpid() != opened().process) throw support::Error(kForked);
    if (!d.context)
        check(d.cuDevicePrimaryCtxRetain(&d.context, d.device), "making the device ready");
    if (has_failed(use()))
        throw support::Error(
            "the GPU failed earlier in this process, which cannot use it any more: start a new "
            "one. "
            "Other architectures, such as qd.cpu, still work");
    make_pool(d);
    if (stack_bytes) check(d.cuCtxSetLimit(kStackLimit, stack_bytes), "setting cuda_stack_limit");
    return d;
}

size_t stack_limit() {
    size_t bytes = 0;
    check(use().cuCtxGetLimit(&bytes, kStackLimit), "asking for the size of threads' stacks");
    return bytes;
}

void need_stack(size_t bytes) {
    if (stack_limit() < bytes)
        check(use().cuCtxSetLimit(kStackLimit, bytes), "making threads' stacks larger");
}

const Driver& use() {
    const Driver& d = opened().driver;
    if (const Result r = d.cuCtxSetCurrent(d.context)) {
        if (getpid() != opened().process) throw support::Error(kForked);
        check(r, "entering the device's context");
    }
    if (abandoned_still_runs(d)) throw support::Error(kAbandoned);
    return d;
}

const Driver* use_if_possible() {
    const Driver* d = driver();
    const bool possible = d && d->cuCtxSetCurrent(d->context) == 0 && !abandoned_still_runs(*d);
    return possible ? d : nullptr;
}

void abandon() {
    constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING
    const Driver& d = opened().driver;
    Handle end = end_of_abandoned;
    if (!end && d.cuEventCreate(&end, kNoTiming) != 0) return;
    end_of_abandoned = end;
    if (d.cuEventRecord(end, nullptr) != 0) return;
    is_patient = true;
    abandoned = true;
}

}  // namespace qd::runtime::cuda
