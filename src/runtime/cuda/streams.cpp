// See streams.h.

#include "runtime/cuda/streams.h"

#include <time.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "runtime/cuda/late.h"
#include "runtime/cuda/pool.h"
#include "support/clock.h"
#include "support/error.h"

namespace qd::runtime::cuda {
namespace {

Handle handle(uint64_t number) { return reinterpret_cast<Handle>(number); }
uint64_t number(Handle h) { return reinterpret_cast<uint64_t>(h); }

struct Own {
    std::mutex lock;
    std::unordered_set<Handle> streams;
    Handle mark = nullptr;  // an event, for order_behind_default
};
Own& own() {
    static auto* const all = new Own;  // never destroyed
    return *all;
}

constexpr unsigned kNoTiming = 2;  // CU_EVENT_DISABLE_TIMING

uint64_t new_stream() {
    constexpr unsigned kBlocking = 0;
    Handle made = nullptr;
    check(use().cuStreamCreate(&made, kBlocking), "making a stream");
    const std::lock_guard guard(own().lock);
    own().streams.insert(made);
    return number(made);
}

// Waits until `is_over` says no more that it is not, or for `most_ns`.
template <typename Query>
Wait wait_until(Query query, int64_t most_ns) {
    constexpr int64_t kSpinNs = 1000000;
    constexpr timespec kNap{0, 50000};
    try {
        (void)use();
        const int64_t began = support::now_ns();
        for (;;) {
            const Result state = query();
            if (state != kNotReady) {
                check(state, "waiting for the device");
                if (!any_late_failure()) return {};
                std::optional<std::string> text = take_late_failure();
                return {.over = true, .problem = text.value_or(""), .is_check = text.has_value()};
            }
            const int64_t waited = support::now_ns() - began;
            if (waited > most_ns) return {.over = false, .problem = {}};
            if (waited > kSpinNs) nanosleep(&kNap, nullptr);
        }
    } catch (const support::Error& e) {
        return {.over = true, .problem = e.what()};
    }
}

Wait wait_for_stream_of(uint64_t stream, int64_t most_ns) {
    return wait_until([&] { return use().cuStreamQuery(handle(stream)); }, most_ns);
}
Wait wait_for_event(uint64_t event, int64_t most_ns) {
    return wait_until([&] { return use().cuEventQuery(handle(event)); }, most_ns);
}

void destroy_stream(uint64_t stream) {
    {
        const std::lock_guard guard(own().lock);
        if (own().streams.erase(handle(stream)) == 0) return;
    }
    const Driver* d = use_if_possible();
    if (!d) return;
    (void)d->cuStreamSynchronize(handle(stream));
    forget_stream(handle(stream));
    (void)d->cuStreamDestroy_v2(handle(stream));
}

uint64_t new_event() {
    Handle made = nullptr;
    check(use().cuEventCreate(&made, kNoTiming), "making an event");
    return number(made);
}

void destroy_event(uint64_t event) {
    const Driver* d = use_if_possible();
    if (!d) return;
    (void)d->cuEventSynchronize(handle(event));
    (void)d->cuEventDestroy_v2(handle(event));
}

void record_event(uint64_t event, uint64_t stream) {
    check(use().cuEventRecord(handle(event), handle(stream)), "recording an event");
}

void let_wait(uint64_t stream, uint64_t event) {
    check(use().cuStreamWaitEvent(handle(stream), handle(event), 0), "waiting for an event");
}

}  // namespace

const Queues queues = {
    .new_stream = new_stream,
    .destroy_stream = destroy_stream,
    .wait_for_stream = wait_for_stream_of,
    .new_event = new_event,
    .destroy_event = destroy_event,
    .wait_for_event = wait_for_event,
    .record = record_event,
    .let_wait = let_wait,
};

void order_behind_default(Handle stream) {
    Own& o = own();
    {
        const std::lock_guard guard(o.lock);
        if (o.streams.contains(stream)) return;
    }
    others_take_part();
    const Driver& d = use();
    if (!o.mark) check(d.cuEventCreate(&o.mark, kNoTiming), "making an event");
    check(d.cuEventRecord(o.mark, nullptr), "recording an event");
    check(d.cuStreamWaitEvent(stream, o.mark, 0), "waiting for an event");
}

}  // namespace qd::runtime::cuda
