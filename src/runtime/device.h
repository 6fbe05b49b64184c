// Where fields and ndarrays lie, and how the host reaches their numbers.
//
// A Device is plain data: a row of functions, picked by qd.init. Host code reaches its memory by
// `read`, `write` and `fill` alone, unless the device says that the memory is the host's own
// (`is_host`, `expose`): then it may use addresses as pointers. To others they are numbers to
// compute with. Temporaries of a launch, and launching itself, belong to the code that launches:
// code of the CPU is entered directly (cpu/kernel.h), with nothing of this in between.
//
// To come: artefacts, streams, events, failures.
//
// All functions are called on any thread, without a lock held, with the GIL or without.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace qd::runtime {

struct Memory {
    char* data = nullptr;  // an address of the device's, 64-byte aligned; null: there is none left
    size_t bytes = 0;      // from there
    void* raw = nullptr;   // the device's own
    size_t mapped = 0;     // bytes from there, if they were reserved
};

struct Wait {
    bool over = true;
    std::string problem;
    bool is_check = false;  // a check of a kernel failed; the device has not
};

// Streams and events by the device's own handles; 0 is the default stream. What fails throws
// support::Error, or is said by the Wait.
struct Queues {
    uint64_t (*new_stream)();
    void (*destroy_stream)(uint64_t stream);  // waits for it; of somebody else's: nothing
    Wait (*wait_for_stream)(uint64_t stream, int64_t most_ns);
    uint64_t (*new_event)();
    void (*destroy_event)(uint64_t event);
    Wait (*wait_for_event)(uint64_t event, int64_t most_ns);
    void (*record)(uint64_t event, uint64_t stream);
    void (*let_wait)(uint64_t stream, uint64_t event);  // later work of the stream
};

struct Device {
    const char* name;
    int32_t dlpack_type;  // as DLPack numbers devices
    bool is_host;         // all of its memory is the host's own
    // Zeroed; `margin` bytes, a multiple of 64, on either side belong to it too.
    Memory (*allocate)(size_t bytes, size_t margin);
    // The same, of which pages are provided where they are touched. Null: the device cannot.
    Memory (*reserve)(size_t bytes, size_t margin);
    void (*release)(const Memory& m);
    // Makes bytes of reserved memory zeros that take no room again. Null with `reserve`.
    void (*discard)(const Memory& m, size_t offset, size_t bytes);
    // False: the device has failed, or a check of a kernel; `synchronise` says which and how.
    bool (*read)(void* to, const char* from, size_t bytes);
    void (*write)(char* to, const void* from, size_t bytes);
    // `count` numbers of `size` bytes, side by side.
    void (*fill)(char* to, uint64_t bits, size_t size, size_t count);
    // Makes this memory the host's own, for good. Null: the device cannot.
    void (*expose)(const Memory& m);
    // Others use some of its memory, in ways that the device does not see. Null: it need not know.
    void (*share)();
    // What nobody uses goes back to the system. Null: it is there already.
    void (*trim)();
    // Around each launch; null: it need not be told.
    void (*launch_begins)();
    void (*launch_ends)();
    // Waits for all launches, for `most_ns` at most; what failed. Null: launches have ended when
    // they return.
    Wait (*synchronise)(int64_t most_ns);
    // Nobody waits for what runs any longer: loops of tasks on the device end soon, and if anything
    // goes on for long, the device cannot be used. Null with `synchronise`.
    void (*give_up)();
    // Null: launches are in the order of their calls.
    const Queues* queues;
};

extern const Device cpu_device;
extern const Device guarded_device;  // guarded.cpp
extern const Device cuda_device;     // cuda/memory.cpp; after cuda::start

}  // namespace qd::runtime
