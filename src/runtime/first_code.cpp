// See first_code.h.

#include "runtime/first_code.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/compiler.h"
#include "runtime/cuda/assembler.h"
#include "runtime/fork.h"
#include "runtime/stage.h"
#include "support/error.h"
#include "support/own_thread.h"

namespace qd::runtime {
namespace {

constexpr uint32_t kOptimiseAtOnceUs = 2500;  // cheaper than a second look at the kernel later
// What takes more than some 30 to 100 ms is long. The passes are a fifth of it: a module is judged
// by its size before them, by the compiler's estimate of optimising it after them.
constexpr size_t kLongBytes = 100'000;
constexpr uint32_t kLongUs = 100'000;
constexpr std::chrono::milliseconds kAsk{20};

struct Work {
    const FirstCodeRequest request;
    const uint64_t watched = watched_compilation;  // of who asks
    int32_t unwanted = 0;                          // atomic
    Compiler::Compilation compilation;             // once the passes have run
    FirstCode code;
    std::exception_ptr failure;

    std::mutex lock;  // guards ended
    std::condition_variable changed;
    bool ended = false;

    explicit Work(FirstCodeRequest r) : request(std::move(r)) {}

    abi::CompileOptions options() const {
        abi::CompileOptions o{};
        o.cpu = request.cpu.c_str();
        o.time_passes = request.time_passes;
        const int64_t cpus = std::thread::hardware_concurrency();
        o.threads = int32_t(std::clamp<int64_t>(request.threads, 1, std::max<int64_t>(cpus, 1)));
        o.unwanted = &unwanted;
        o.on_stage = stage_observer();
        o.parts = request.parts ? request.parts->face() : nullptr;
        return o;
    }

    bool for_gpu() const { return request.cpu.starts_with("sm_"); }

    void begin() {
        const Compiling alone_with_fork;
        alone_with_fork.need();
        if (!Compiler::loaded()) {
            const Stage stage("loading the compiler", request.name, code.loading_ns);
            (void)Compiler::get();
        }
        const Compiler& compiler = Compiler::get();
        const Stage stage("passes", request.name, code.passes_ns);
        compilation = compiler.begin(request.ir, options());
        for (const EditedTask& e : request.edited)
            compiler.replace(compilation.get(), e.task, e.file, e.llvm);
    }

    void emit() {
        const Compiling alone_with_fork;
        alone_with_fork.need();
        const Compiler& compiler = Compiler::get();
        const Stage stage("code generation", request.name, code.emission_ns);
        abi::CompileOptions o = options();
        const bool chosen = request.tier < 0 && request.edited.empty() && !for_gpu();
        const bool quick =
            !for_gpu() &&
            (request.tier == 0 || (chosen && compiler.cost(compilation.get()) > kOptimiseAtOnceUs));
        o.tier = quick ? 0 : 1;
        try {
            code.artefact = compiler.emit(compilation.get(), o);
        } catch (const support::Error& e) {
            if (quick || !chosen || __atomic_load_n(&unwanted, __ATOMIC_RELAXED)) throw;
            o.tier = 0;
            code.artefact = compiler.emit(compilation.get(), o);
            code.complaint = e.what();
        }
    }

    void assemble() {
        const Stage stage("assembling", request.name, code.assembling_ns);
        code.artefact = cuda::assembled(code.artefact, request.tier, &unwanted);
    }

    void run() {
        try {
            if (!compilation) begin();
            emit();
            if (for_gpu()) assemble();
        } catch (...) {
            failure = std::current_exception();
        }
        const std::lock_guard guard(lock);
        ended = true;
        changed.notify_all();
    }

    bool has_ended() {
        std::unique_lock guard(lock);
        return changed.wait_for(guard, kAsk, [&] { return ended; });
    }

    bool takes_long() const {
        if (!compilation) return request.ir.size() > kLongBytes;
        return Compiler::get().cost(compilation.get()) > kLongUs;
    }
};

// The passes recurse as deeply as the front end did. The thread may be forgotten, and the process
// may end while it works.
bool start(const std::shared_ptr<Work>& work) {
    auto own = std::make_unique<std::shared_ptr<Work>>(work);
    const auto body = [](void* data) -> void* {
        const std::unique_ptr<std::shared_ptr<Work>> mine(
            static_cast<std::shared_ptr<Work>*>(data));
        name_traced_thread("compiler");
        watched_compilation = (*mine)->watched;
        (*mine)->run();
        return nullptr;
    };
    pthread_t thread;
    const bool started = support::start_thread(thread, true, body, own.get());
    if (started) (void)own.release();
    return started;
}

}  // namespace

std::optional<FirstCode> make_first_code(FirstCodeRequest request, Impatience impatience) {
    auto work = std::make_shared<Work>(std::move(request));
    bool away = work->takes_long();
    if (!away) {
        work->begin();
        away = work->takes_long();
    }
    if (!away || !start(work)) {
        work->run();
    } else {
        const pid_t me = getpid();
        while (!work->has_ended()) {
            if (impatience.leave(impatience.data)) {
                __atomic_store_n(&work->unwanted, 1, __ATOMIC_RELAXED);
                return {};
            }
            // A signal handler forked, and this is the child: the other thread is its parent's.
            if (getpid() != me) return make_first_code(work->request, impatience);
        }
    }
    if (work->failure) std::rethrow_exception(work->failure);
    return std::move(work->code);
}

}  // namespace qd::runtime
