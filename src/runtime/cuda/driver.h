// NVIDIA's driver, opened at run time: the same build works where there is none.
//
// Declarations of our own, for the functions that are used (docs.nvidia.com, CUDA Driver API).
// Contexts belong to threads: each entry into the driver begins with `use`.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace qd::runtime::cuda {

using Result = int;  // CUresult; 0: success
inline constexpr Result kNotReady = 600, kOutOfMemory = 2;
using Address = uint64_t;  // CUdeviceptr
using Handle = void*;      // CUcontext, CUmodule, CUfunction, CUstream

struct KernelNode {  // CUDA_KERNEL_NODE_PARAMS_v2
    Handle function;
    unsigned grid[3], block[3], shared_bytes;
    void** parameters;
    void** extra;
    Handle kernel, context;
};
struct GraphNode {  // CUgraphNodeParams
    int type;
    int reserved[3];
    union {
        struct {  // CUDA_CONDITIONAL_NODE_PARAMS
            uint64_t handle;
            unsigned kind, count;
            Handle* bodies;  // filled in
            Handle context;
        } conditional;
        int64_t room[29];
    };
    int64_t end;
};

struct Edge {  // CUgraphEdgeData
    uint8_t from_port, to_port, type, reserved[5];
};

struct Driver {
    Result (*cuInit)(unsigned flags);
    Result (*cuDriverGetVersion)(int* version);
    Result (*cuDeviceGetCount)(int* count);
    Result (*cuDeviceGet)(int* device, int number);
    Result (*cuDeviceGetName)(char* name, int size, int device);
    Result (*cuDeviceGetAttribute)(int* value, int attribute, int device);
    Result (*cuDevicePrimaryCtxRetain)(Handle* context, int device);
    Result (*cuCtxSetCurrent)(Handle context);
    Result (*cuCtxGetLimit)(size_t* value, int limit);
    Result (*cuCtxSetLimit)(int limit, size_t value);
    Result (*cuMemGetInfo_v2)(size_t* free, size_t* total);
    Result (*cuMemAlloc_v2)(Address* at, size_t bytes);
    Result (*cuMemAllocManaged)(Address* at, size_t bytes, unsigned flags);
    Result (*cuMemAdvise)(Address at, size_t bytes, int advice, int device);
    Result (*cuMemFree_v2)(Address at);
    Result (*cuMemPoolCreate)(Handle* pool, const void* properties);
    Result (*cuMemPoolSetAttribute)(Handle pool, int attribute, void* value);
    Result (*cuMemPoolTrimTo)(Handle pool, size_t bytes);
    Result (*cuMemAllocFromPoolAsync)(Address* at, size_t bytes, Handle pool, Handle stream);
    Result (*cuMemFreeAsync)(Address at, Handle stream);
    Result (*cuCtxSynchronize)();
    Result (*cuMemHostAlloc)(void** at, size_t bytes, unsigned flags);
    Result (*cuMemFreeHost)(void* at);
    Result (*cuMemcpyDtoH_v2)(void* to, Address from, size_t bytes);
    Result (*cuMemcpyHtoD_v2)(Address to, const void* from, size_t bytes);
    Result (*cuMemsetD8Async)(Address at, unsigned char value, size_t count, Handle stream);
    Result (*cuMemsetD16Async)(Address at, unsigned short value, size_t count, Handle stream);
    Result (*cuMemsetD32Async)(Address at, unsigned value, size_t count, Handle stream);
    Result (*cuModuleLoadDataEx)(Handle* module, const void* image, unsigned count, int* options,
                                 void** values);
    Result (*cuModuleUnload)(Handle module);
    Result (*cuModuleGetFunction)(Handle* function, Handle module, const char* name);
    Result (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, Handle function, int threads,
                                                          size_t shared_bytes);
    Result (*cuFuncSetAttribute)(Handle function, int attribute, int value);
    Result (*cuLaunchKernel)(Handle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, Handle stream, void** parameters, void** extra);
    Result (*cuGraphCreate)(Handle* graph, unsigned flags);
    Result (*cuGraphDestroy)(Handle graph);
    Result (*cuGraphAddKernelNode_v2)(Handle* node, Handle graph, const Handle* after, size_t count,
                                      const KernelNode*);
    Result (*cuGraphAddDependencies)(Handle graph, const Handle* from, const Handle* to,
                                     size_t count);
    Result (*cuGraphInstantiateWithFlags)(Handle* executable, Handle graph,
                                          unsigned long long flags);
    Result (*cuGraphExecDestroy)(Handle executable);
    Result (*cuGraphExecKernelNodeSetParams_v2)(Handle executable, Handle node, const KernelNode*);
    Result (*cuGraphNodeSetEnabled)(Handle executable, Handle node, unsigned is_enabled);
    Result (*cuGraphLaunch)(Handle executable, Handle stream);
    Result (*cuGraphAddEmptyNode)(Handle* node, Handle graph, const Handle* after, size_t count);
    Result (*cuStreamCreate)(Handle* stream, unsigned flags);
    Result (*cuStreamDestroy_v2)(Handle stream);
    Result (*cuStreamWaitEvent)(Handle stream, Handle event, unsigned flags);
    Result (*cuEventQuery)(Handle event);
    Result (*cuEventSynchronize)(Handle event);
    Result (*cuEventDestroy_v2)(Handle event);
    // Null in older drivers; from 12.4 on they are there.
    Result (*cuGraphAddDependencies_v2)(Handle graph, const Handle* from, const Handle* to,
                                        const Edge* edges, size_t count);
    Result (*cuGraphAddNode)(Handle* node, Handle graph, const Handle* after, size_t count,
                             GraphNode*);
    Result (*cuGraphConditionalHandleCreate)(uint64_t* handle, Handle graph, Handle context,
                                             unsigned value, unsigned flags);
    Result (*cuStreamQuery)(Handle stream);
    Result (*cuStreamSynchronize)(Handle stream);
    Result (*cuEventCreate)(Handle* event, unsigned flags);
    Result (*cuEventRecord)(Handle event, Handle stream);
    Result (*cuEventElapsedTime)(float* ms, Handle from, Handle to);
    Result (*cuPointerGetAttributes)(unsigned count, int* attributes, void** values, Address at);
    Result (*cuCtxGetDevice)(int* device);
    Result (*cuGetErrorName)(Result, const char** name);
    Result (*cuGetErrorString)(Result, const char** text);

    int version = 0;  // 1000 major + 10 minor
    int device = 0;   // what this thread had to do with when the driver was opened, else the first
    int shared_bytes = 0;                       // of a block, at most
    int capability = 0;                         // 10 major + minor
    int multiprocessors = 1, blocks_held = 16;  // by each, at most
    int block_threads = 1024;                   // at most
    int clock_khz = 0;
    int provides_pages = 0;    // of managed memory, where threads touch it
    Handle context = nullptr;  // once `start` has been called
};

// Null where there is no driver or no device; `why_not` says so then. Any thread.
const Driver* driver();
std::string why_not();

// Makes the device ready. Throws support::Error, also if it failed before. Under the GIL.
const Driver& start(size_t stack_bytes = 0);  // of each thread; 0: as it is
// Of each thread, at least.
void need_stack(size_t bytes);
size_t stack_limit();
// The driver, its context current in this thread; after `start`. Throws support::Error in a forked
// child, and while what was abandoned still runs.
const Driver& use();
// The same; null instead.
const Driver* use_if_possible();
// Whatever the device has to do is not waited for any longer but a moment, by whom it concerns
// next: it may never end.
void abandon();
// Throws support::Error that says what was done and what the driver says.
void check(Result result, const char* what);

}  // namespace qd::runtime::cuda
