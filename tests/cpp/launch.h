// Runs modules and plans by the interpreter on memory of the test's own, as a launcher would.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ir/interpreter.h"
#include "ir/ir.h"
#include "pass/pass.h"
#include "support/abi.h"

namespace qd::test {

struct Machine {
    std::vector<uint8_t> args, results, temps, partials;
    std::vector<uint64_t> tape = std::vector<uint64_t>(abi::kTapeHeader / 8);  // and its header
    std::vector<std::vector<uint64_t>> buffers;  // 8-byte aligned storage of fields and arrays
    std::vector<void*> bindings;
    int64_t bounds[2 * abi::kMaxDims];  // of the running task
    std::string printed;                // what print and a failed assert_ delivered
    uint64_t launch_key = 42;
    int64_t tile = 0;  // 0: the whole inner extent
    int64_t units_per_chunk = 3;
    int64_t folding_threads = 1;  // of targets whose threads have iterations of their own

    uint8_t* buffer(size_t bytes) {
        buffers.emplace_back(bytes / 8 + 1);
        return reinterpret_cast<uint8_t*>(buffers.back().data());
    }

    explicit Machine(const ir::Module& m, size_t bytes_each = 1024) {
        buffers.reserve(64);
        size_t args_bytes = 8;
        for (const ir::Param& p : m.params) {
            const size_t size =
                p.type.is_array() ? ir::array_desc_bytes(p.type.ndim) : size_t(p.type.size_bytes());
            args_bytes = std::max(args_bytes, p.offset + size);
        }
        args.resize(args_bytes);
        results.resize(m.result_bytes() + 8);
        for (size_t k = 0; k < m.fields.size(); ++k) bindings.push_back(buffer(bytes_each));
    }
    template <class T>
    void set_arg(const ir::Module& m, size_t k, T v) {
        std::memcpy(args.data() + m.params[k].offset, &v, sizeof v);
    }
    uint8_t* set_array(const ir::Module& m, size_t k, const std::vector<int32_t>& shape) {
        size_t cells = 1;
        for (const int32_t n : shape) cells *= size_t(n);
        const size_t bytes = cells * size_t(m.params[k].type.value().size_bytes());
        ir::ArrayDesc d{buffer(bytes), buffer(bytes)};
        std::memcpy(args.data() + m.params[k].offset, &d, sizeof d);
        std::memcpy(args.data() + m.params[k].offset + sizeof d, shape.data(), 4 * shape.size());
        return static_cast<uint8_t*>(d.data);
    }

    struct Record : abi::Runtime {};
    static std::string*& sink() {
        thread_local std::string* s = nullptr;
        return s;
    }
    const abi::Runtime& runtime() {
        static const abi::Runtime r = {
            [](abi::Thread*, uint32_t, const abi::Cell* c) {
                *sink() += "print " + std::to_string(c->i) + "\n";
            },
            [](abi::Thread*, uint32_t, const abi::Cell*) { *sink() += "fail\n"; },
            []() -> int64_t { return 7; },
            [](abi::Thread*) -> int32_t { return 1; },
        };
        sink() = &printed;
        return r;
    }
    abi::Context context() {
        abi::Context c{};
        c.runtime = &runtime();
        c.bindings = bindings.data();
        c.args = args.data();
        c.results = results.data();
        c.launch_key = launch_key;
        return c;
    }

    bool run(const ir::Module& m) {
        const abi::Context c = context();
        return ir::interpret(
            m, c, {.tape = tape_begin(), .tape_bytes = tape_bytes(), .max_steps = 10'000'000});
    }

    void set_tape(size_t bytes) { tape.assign((abi::kTapeHeader + bytes) / 8, 0); }
    uint8_t* tape_begin() { return reinterpret_cast<uint8_t*>(tape.data()) + abi::kTapeHeader; }
    int64_t tape_bytes() const { return int64_t(tape.size() * 8) - abi::kTapeHeader; }
    uint32_t recorded_again() {
        return reinterpret_cast<abi::TapeCounts*>(tape_begin())[-1].recorded_again;
    }

    int64_t bound(const abi::Bound& b) const {
        if (b.kind == abi::BoundKind::constant) return b.value;
        return abi::read_bound(b, b.kind == abi::BoundKind::arg ? args.data() : temps.data());
    }

    bool run(const pass::Plan& plan) {
        temps.assign(plan.temps_bytes + 8, 0xcd);
        abi::Context c = context();
        c.temps = temps.data();
        abi::Thread thread{};
        thread.context = &c;
        thread.tape = tape_begin();
        thread.tape_bytes = tape_bytes();
        const ir::InterpretOptions options{.max_steps = 10'000'000};
        const std::vector<pass::Turns> turns = pass::turns_in_order(plan);
        const auto is_set = [&](int32_t flag) {
            int32_t value;
            std::memcpy(&value, temps.data() + flag, 4);
            return value != 0;
        };
        for (size_t k = 0; k < plan.tasks.size();) {
            if (turns[k].gate >= 0 && !is_set(turns[k].gate)) {
                k = turns[k].behind;
                continue;
            }
            c.task = uint32_t(k);
            if (!run(plan, plan.tasks[k], c, thread, options)) return false;
            if (turns[k].again >= 0 && is_set(turns[k].again)) {
                k = turns[k].from;
                c.launch_key = abi::key_of_next_turn(c.launch_key);
            } else {
                ++k;
            }
        }
        return true;
    }

    bool run(const pass::Plan& plan, const pass::Task& t, abi::Context& c, abi::Thread& thread,
             const ir::InterpretOptions& options) {
        if (t.kind == abi::TaskKind::serial)
            return ir::interpret_task(*plan.module, *t.body, thread, 0, 1, 0, options);
        int64_t units = 1;
        for (int d = 0; d < t.dims; ++d) {
            bounds[2 * d] = bound(t.bounds[2 * d]);
            bounds[2 * d + 1] = bound(t.bounds[2 * d + 1]);
            const int64_t extent = std::max<int64_t>(0, bounds[2 * d + 1] - bounds[2 * d]);
            if (d + 1 < t.dims || t.dims == 1) {
                units *= extent;
            } else {
                thread.tile = tile ? tile : std::max<int64_t>(1, extent);
                thread.tiles = (extent + thread.tile - 1) / thread.tile;
                units *= thread.tiles;
            }
        }
        c.bounds = bounds;
        if (plan.target.threads) return run_by_threads(plan, t, c, thread, options);
        const int64_t chunks = (units + units_per_chunk - 1) / units_per_chunk;
        partials.assign(size_t(chunks) * t.partial_bytes + 8, 0xcd);
        c.partials = partials.data();
        for (int64_t n = 0; n < chunks; ++n) {
            const int64_t end = std::min(units, (n + 1) * units_per_chunk);
            if (!ir::interpret_task(*plan.module, *t.body, thread, n * units_per_chunk, end, n,
                                    options))
                return false;
        }
        if (t.finish && chunks) {
            if (!ir::interpret_task(*plan.module, *t.finish, thread, 0, chunks, 0, options))
                return false;
        }
        return true;
    }

    // Threads that wait for each other: one works at a time, up to where they meet.
    struct Meeting {
        std::mutex lock;
        std::condition_variable changed;
        int64_t turn = 0, threads;
        std::vector<bool> gone;
        std::vector<int> votes;  // by meeting

        explicit Meeting(int64_t n) : threads(n), gone(size_t(n)) {}
        void wait_for(int64_t thread) {
            std::unique_lock guard(lock);
            changed.wait(guard, [&] { return turn == thread; });
        }
        void pass_on() {
            const std::lock_guard guard(lock);
            do turn = (turn + 1) % threads;
            while (gone[size_t(turn)] && std::ranges::count(gone, false));
            changed.notify_all();
        }
    };
    static bool run_together(const pass::Plan& plan, const pass::Task& t, const abi::Thread& like,
                             int64_t threads, ir::InterpretOptions options) {
        struct One {
            Meeting& all;
            int64_t number;
            size_t met = 0;
        };
        Meeting all(threads);
        std::vector<One> ones;
        for (int64_t n = 0; n < threads; ++n) ones.push_back({all, n, 0});
        options.meet = [](void* data, bool condition) {
            One& me = *static_cast<One*>(data);
            std::vector<int>& votes = me.all.votes;
            votes.resize(std::max(votes.size(), me.met + 1));
            votes[me.met] += condition;
            me.all.pass_on();
            me.all.wait_for(me.number);
            return votes[me.met++];
        };
        std::vector<char> well(static_cast<size_t>(threads), 0);
        std::vector<std::thread> workers;
        for (int64_t n = 0; n < threads; ++n)
            workers.emplace_back([&, n] {
                abi::Thread thread = like;
                ir::InterpretOptions mine = options;
                mine.meet_data = &ones[static_cast<size_t>(n)];
                all.wait_for(n);
                try {
                    well[static_cast<size_t>(n)] =
                        ir::interpret_task(*plan.module, *t.body, thread, n, threads, 0, mine);
                } catch (const std::exception& e) {
                    ADD_FAILURE() << e.what();
                }
                all.gone[static_cast<size_t>(n)] = true;
                all.pass_on();
            });
        for (std::thread& w : workers) w.join();
        return std::ranges::count(well, 1) == threads;
    }

    // One thread after the other; under a reduction `folding_threads`, each a block.
    bool run_by_threads(const pass::Plan& plan, const pass::Task& t, abi::Context& c,
                        abi::Thread& thread, const ir::InterpretOptions& options) {
        int64_t threads = 1;
        for (int d = 0; d < t.dims; ++d)
            threads *= std::max<int64_t>(0, bounds[2 * d + 1] - bounds[2 * d]);
        if (threads == 0) return true;
        if (t.finish) threads = folding_threads;
        ir::InterpretOptions with = options;
        if (t.iterations > 1) {  // whole blocks
            with.block_dim = t.block_dim;
            const int64_t each = int64_t(t.block_dim) * t.iterations;
            threads = (threads + each - 1) / each * t.block_dim;
        }
        partials.assign(size_t(threads) * t.partial_bytes + 8, 0xcd);
        c.partials = partials.data();
        bool meets = false;
        ir::walk(*t.body->body, [&](const ir::Inst& i) {
            meets |= i.op == ir::Op::block_sync || i.op == ir::Op::block_vote;
        });
        if (meets) return run_together(plan, t, thread, threads, with);
        for (int64_t n = 0; n < threads; ++n)
            if (!ir::interpret_task(*plan.module, *t.body, thread, n, threads, n / with.block_dim,
                                    with))
                return false;
        bounds[0] = threads;
        return !t.finish || ir::interpret_task(*plan.module, *t.finish, thread, 0, 1, 0, options);
    }
};

}  // namespace qd::test
