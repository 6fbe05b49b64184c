// Runs a small concurrent program under every interleaving of its accesses to shared memory.
//
// Threads are fibers. At each access one of them is chosen to go on; a depth-first search replays
// the program with every sequence of choices, and gives up where it meets a state again: the same
// memory, and every thread having seen the same since it was last at rest. Stores that are not
// sequentially consistent wait in their thread's buffer and reach memory at a moment of their own
// (what x86 does). Plain memory is checked for races under the rules of acquire and release: for
// each thread and each value that was stored it is known which plain accesses happened before.
// Time passes at any moment. Found are wrong results (`check`), races, and states in which nobody
// can go on. Where that is too much, the number of preemptions is bounded.
//
// A program keeps what it remembers in Atomic, Plain, List or Tally, and what it knows on its stack
// must follow from what it saw; it allocates nothing, because a run may be left in the middle.
// (Not explored: a condition variable's waking for no reason. All waits must be in loops.)

#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace qd::explore {

inline uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
    return a ^ (a >> 33);
}

class Explorer;
inline Explorer* now = nullptr;

constexpr size_t kMostThreads = 4;
constexpr int kAnyNumber = 1000;
constexpr int64_t kNever = INT64_MAX;

class Explorer {
  public:
    // `program` sets its memory up anew and gives the bodies of its threads; `end` looks at what
    // they left.
    struct Program {
        std::vector<std::function<void()>> threads;
        std::function<void()> end;
    };
    bool buffers = true;           // of stores; without them: sequential consistency
    int preemptions = kAnyNumber;  // at most so many times is a thread stopped that could go on
    int64_t most_time = 0;         // to which the clock may run while others could go on
    size_t states = 0, runs = 0;

    // What goes wrong and how; "" if nothing does.
    std::string explore(const std::function<Program()>& program) {
        now = this;
        do {
            run_once(program);
            ++runs;
        } while (failure_.empty() && next_path());
        now = nullptr;
        states = seen_.size();
        return failure_.empty() ? "" : failure_ + "; " + trace();
    }

    // --- what the memory's types call --------------------------------------------------------
    using Accesses = unsigned __int128;  // of plain memory, a bit each
    struct Location {
        uint64_t value = 0;
        Accesses known = 0;  // plain accesses that happened before the store
    };
    size_t new_location(uint64_t value) {
        memory_.push_back({value, 0});
        return memory_.size() - 1;
    }
    uint64_t load(size_t at, std::memory_order order) {
        step();
        Thread& t = self();
        for (auto s = t.buffer.rbegin(); s != t.buffer.rend(); ++s)
            if (s->at == at) return saw(s->value);
        if (order != std::memory_order_relaxed) t.known |= memory_[at].known;
        return saw(memory_[at].value);
    }
    void store(size_t at, uint64_t value, std::memory_order order) {
        const Accesses known = order == std::memory_order_relaxed ? 0 : self().known;
        if (order == std::memory_order_seq_cst || !buffers) {
            step_alone();
            memory_[at] = {value, known};
        } else {
            step();
            self().buffer.push_back({at, value, known});
        }
    }
    // Reads, and writes what `change` answers if it answers anything.
    template <class F>
    uint64_t modify(size_t at, std::memory_order order, F change) {
        step_alone();
        Thread& t = self();
        Location& l = memory_[at];
        const uint64_t old = l.value;
        uint64_t changed = old;
        const bool writes = change(changed);
        const bool acquires =
            order != std::memory_order_relaxed && order != std::memory_order_release;
        const bool releases =
            order != std::memory_order_relaxed && order != std::memory_order_acquire;
        if (acquires) t.known |= l.known;
        if (writes) {
            l.value = changed;
            if (releases) l.known |= t.known;
        }
        return old;
    }
    uint64_t saw(uint64_t value) {
        self().history = mix(self().history, value + 1);
        return value;
    }
    // What is no access of its own: it happens with the step before.
    uint64_t& note(size_t at) { return memory_[at].value; }
    size_t new_plain() {
        if (child_) return kUnchecked;
        check(++plains_ <= sizeof(Accesses), "too much plain memory");
        return plains_ - 1;
    }
    // An access of plain memory: all earlier writes must be known, and for a write all reads.
    void access(size_t plain, bool writes) {
        if (plain == kUnchecked) return;
        const size_t u = running_;
        for (size_t other = 0; other < kMostThreads; ++other) {
            if (other == u) continue;
            const Accesses needed =
                bit(plain, other, true) | (writes ? bit(plain, other, false) : 0);
            if (const Accesses happened = happened_ & needed; happened & ~self().known)
                check(false, "plain memory is accessed by two threads at once");
        }
        const Accesses mine = bit(plain, u, writes);
        happened_ |= mine;
        for (Location& l : memory_) l.known &= ~mine;
        for (Thread& t : threads_) {
            t.known &= ~mine;
            for (Buffered& s : t.buffer) s.known &= ~mine;
        }
        self().known |= mine;
    }
    void wait(size_t at, uint64_t expected, uint32_t mask) {
        step_alone();
        if (memory_[at].value != expected) {
            saw(0);
            return;
        }
        go_to_sleep(at, mask);
        saw(1);
    }
    void wake(size_t at, int count, uint32_t mask) {
        step_alone();
        for (size_t k = 0; k < sleepers_.size() && count > 0;) {
            Thread& t = threads_[sleepers_[k]];
            if (t.sleeps_at != at || !(t.mask & mask)) {
                ++k;
                continue;
            }
            t.asleep = false;
            sleepers_.erase(sleepers_.begin() + static_cast<std::ptrdiff_t>(k));
            --count;
        }
    }
    // --- mutexes, condition variables, time, fork ----------------------------------------------
    void lock(size_t at) {
        self().wants = at;
        step_alone();
        take(at);
    }
    // Others see it at once: what they could do in between, they can do before.
    void unlock(size_t at) {
        if (!self().buffer.empty()) step_alone();
        check(memory_[at].value == running_ + 1, "a lock is given back by who does not hold it");
        memory_[at] = {0, self().known};
    }
    void wait_for_notice(size_t condition, size_t mutex, int64_t deadline) {
        unlock(mutex);
        self().deadline = deadline;
        self().wants = mutex;
        go_to_sleep(condition, ~0u);
        if (self().asleep) {  // its time is over
            self().asleep = false;
            std::erase(sleepers_, running_);
        }
        self().deadline = kNever;
        take(mutex);
    }
    int64_t time() { return static_cast<int64_t>(saw(static_cast<uint64_t>(time_))); }
    // Memory, but for one location, and the time; and waiting until that differs from a picture.
    uint64_t picture(size_t but) const {
        uint64_t h = 0;
        for (size_t k = 0; k < memory_.size(); ++k)
            if (k != but) h = mix(h, memory_[k].value);
        return mix(h, uint64_t(time_));
    }
    void wait_for_change(uint64_t picture, size_t but, int64_t deadline) {
        Thread& t = self();
        t.dozes = true;
        t.but = but;
        t.picture = picture;
        t.deadline = deadline;
        step_alone();
        t.dozes = false;
        t.deadline = kNever;
    }
    void sleep_for_ever() {
        self().gone = true;
        leave();
    }
    size_t thread() const { return running_; }
    // A process that has this thread only, and `newborn`, which has not begun.
    void become_child(size_t newborn = kMostThreads) {
        child_ = true;
        happened_ = 0;  // what others did is done
        for (size_t k = 0; k < threads_.size(); ++k) {
            if (k == running_ || k == newborn) continue;
            threads_[k].gone = true;
            threads_[k].buffer.clear();
            std::erase(sleepers_, k);
        }
    }
    // Only what is in shared memory and `where` it stands matter from here on.
    void at_rest(uint64_t where) { self().history = mix(17, where); }
    // Others may go on here.
    void step() { yield(false); }
    void check(bool good, const char* what) {
        if (!good && failure_.empty()) failure_ = what;
        if (!good) leave();
    }

  private:
    struct Buffered {
        size_t at;
        uint64_t value;
        Accesses known;
    };
    struct Thread {
        std::function<void()> body;
        ucontext_t start;
        jmp_buf at;  // where it goes on, once it has begun
        bool begun = false;
        uint64_t history = 0;
        Accesses known = 0;
        std::deque<Buffered> buffer;
        bool finished = false, asleep = false;
        bool gone = false;          // sleeps for ever, or is no thread of a forked child
        bool needs_memory = false;  // goes on only when its buffer is empty
        size_t wants = kNoLock;     // goes on only when this lock is free
        int64_t deadline = kNever;  // of its sleep
        bool dozes = false;         // until memory differs from `picture`
        uint64_t picture = 0;
        size_t but = 0;
        size_t sleeps_at = 0;
        uint32_t mask = 0;
    };
    struct Choice {
        size_t taken, of;
    };
    static constexpr size_t kNoLock = SIZE_MAX, kUnchecked = SIZE_MAX;

    static Accesses bit(size_t plain, size_t thread, bool write) {
        return Accesses(1) << (plain * 2 * kMostThreads + thread * 2 + write);
    }
    static uint64_t hash_of(Accesses a) { return mix(uint64_t(a), uint64_t(a >> 64)); }
    void take(size_t at) {
        self().wants = kNoLock;
        memory_[at].value = running_ + 1;
        self().known |= memory_[at].known;
    }
    void go_to_sleep(size_t at, uint32_t mask) {
        self().asleep = true;
        self().sleeps_at = at;
        self().mask = mask;
        sleepers_.push_back(running_);
        step();
    }
    bool able(const Thread& t) const {
        return !t.finished && !t.gone && !(t.asleep && t.deadline > time_) &&
               !(t.needs_memory && !t.buffer.empty()) &&
               !(t.wants != kNoLock && memory_[t.wants].value != 0) &&
               !(t.dozes && t.picture == picture(t.but));
    }
    Thread& self() { return threads_[running_]; }
    void step_alone() { yield(true); }
    void yield(bool needs_memory) {
        self().needs_memory = needs_memory;
        self().history = mix(self().history, 0);
        if (_setjmp(self().at) == 0) leave();
    }
    [[noreturn]] void leave() { _longjmp(scheduler_, 1); }

    uint64_t state() const {
        uint64_t h = mix(hash_of(happened_), uint64_t(time_));
        if (preemptions < kAnyNumber) h = mix(mix(h, uint64_t(preempted_)), running_);
        for (const Location& l : memory_) h = mix(mix(h, l.value), hash_of(l.known));
        for (const Thread& t : threads_) {
            h = mix(mix(h, t.history), hash_of(t.known));
            h = mix(h, uint64_t(t.finished) | uint64_t(t.asleep) << 1 | uint64_t(t.gone) << 2 |
                           uint64_t(t.dozes) << 3 | t.sleeps_at << 4);
            if (t.asleep || t.dozes) h = mix(h, uint64_t(t.deadline));
            if (t.dozes) h = mix(h, t.picture);
            for (const Buffered& s : t.buffer)
                h = mix(mix(mix(h, s.at), s.value), hash_of(s.known));
        }
        for (const size_t s : sleepers_) h = mix(h, s);
        return h;
    }

    [[gnu::noinline]] void go_on(Thread& t) {
        if (_setjmp(scheduler_)) return;
        if (t.begun) _longjmp(t.at, 1);
        t.begun = true;
        setcontext(&t.start);
    }

    static void enter() {
        Explorer& e = *now;
        e.self().body();
        e.self().finished = true;
        e.leave();
    }

    void run_once(const std::function<Program()>& program) {
        memory_.clear();
        threads_.clear();
        sleepers_.clear();
        plains_ = 0;
        happened_ = 0;
        child_ = false;
        time_ = 0;
        depth_ = 0;
        preempted_ = 0;
        running_ = kMostThreads;
        steps_.clear();
        Program p = program();
        threads_.resize(p.threads.size());
        for (size_t k = 0; k < threads_.size(); ++k) {
            Thread& t = threads_[k];
            t.body = p.threads[k];
            getcontext(&t.start);
            t.start.uc_stack.ss_sp = stacks_[k].data();
            t.start.uc_stack.ss_size = stacks_[k].size();
            t.start.uc_link = nullptr;
            makecontext(&t.start, &Explorer::enter, 0);
        }
        for (;;) {
            // A choice: let thread k go on (k), let its oldest store reach memory (n + k), or let
            // time pass (2 n).
            const size_t n = threads_.size();
            size_t open[2 * kMostThreads + 1], count = 0;
            bool all_finished = true, deadlines = false;
            const bool preempts = running_ < n && able(threads_[running_]);
            if (preempts) open[count++] = running_;
            for (size_t k = 0; k < n; ++k) {
                const Thread& t = threads_[k];
                all_finished &= t.finished || t.gone;
                deadlines |= (t.asleep || t.dozes) && t.deadline < kNever && t.deadline > time_;
                if (able(t) && !(preempts && (k == running_ || preempted_ == preemptions)))
                    open[count++] = k;
                if (!t.buffer.empty()) open[count++] = n + k;
            }
            if (time_ < most_time ? !all_finished : count == 0 && deadlines) open[count++] = 2 * n;
            if (count == 0) {
                if (!all_finished) failure_ = "nobody can go on";
                if (all_finished && p.end) p.end();
                return;
            }
            size_t taken = 0;
            if (depth_ < path_.size()) {
                taken = path_[depth_].taken;
            } else {
                if (!seen_.insert(state()).second) return;
                path_.push_back({0, count});
            }
            ++depth_;
            if (depth_ > 5000) {
                failure_ = "endless";
                return;
            }
            const size_t choice = open[taken];
            steps_.push_back(choice);
            if (choice == 2 * n) {
                ++time_;
                continue;
            }
            if (choice >= n) {
                Thread& t = threads_[choice - n];
                memory_[t.buffer.front().at] = {t.buffer.front().value, t.buffer.front().known};
                t.buffer.pop_front();
                continue;
            }
            preempted_ += preempts && choice != running_;
            running_ = choice;
            go_on(self());
            if (!failure_.empty()) return;
        }
    }

    bool next_path() {
        while (!path_.empty() && path_.back().taken + 1 == path_.back().of) path_.pop_back();
        if (path_.empty()) return false;
        ++path_.back().taken;
        return true;
    }

    std::string trace() const {
        std::string text = "threads in order:";
        for (const size_t s : steps_) text += " " + std::to_string(s);
        return text;
    }

    std::vector<Location> memory_;
    std::vector<Thread> threads_;
    std::vector<size_t> sleepers_;  // in the order of their arrival
    size_t plains_ = 0, running_ = 0, depth_ = 0;
    int preempted_ = 0;
    Accesses happened_ = 0;
    int64_t time_ = 0;
    bool child_ = false;  // of a fork: what it makes anew is one thread's
    std::vector<Choice> path_;
    std::vector<size_t> steps_;
    std::unordered_set<uint64_t> seen_;
    std::string failure_;
    jmp_buf scheduler_;
    std::array<std::array<char, 64 << 10>, kMostThreads> stacks_;
};

// --- memory -------------------------------------------------------------------------------------
template <class T>
uint64_t raw(T v) {
    uint64_t bits = 0;
    std::memcpy(&bits, &v, sizeof v);
    return bits;
}
template <class T>
T cooked(uint64_t bits) {
    T v;
    std::memcpy(&v, &bits, sizeof v);
    return v;
}

template <class T>
class Atomic {
  public:
    using Order = std::memory_order;
    Atomic(T value = {}) : at_(now->new_location(raw(value))) {}
    Atomic(const Atomic&) = delete;
    T load(Order o = Order::seq_cst) const { return cooked<T>(now->load(at_, o)); }
    void store(T v, Order o = Order::seq_cst) { now->store(at_, raw(v), o); }
    struct Old {  // what was there: seen by who looks at it
        uint64_t bits;
        operator T() const { return cooked<T>(now->saw(bits)); }
    };
    Old exchange(T v, Order o = Order::seq_cst) {
        return {now->modify(at_, o, [&](uint64_t& x) { return x = raw(v), true; })};
    }
    Old fetch_add(T v, Order o = Order::seq_cst) {
        return {now->modify(
            at_, o, [&](uint64_t& x) { return x = raw(static_cast<T>(cooked<T>(x) + v)), true; })};
    }
    Old fetch_sub(T v, Order o = Order::seq_cst) { return fetch_add(static_cast<T>(-v), o); }
    bool compare_exchange_strong(T& expected, T v, Order o = Order::seq_cst) {
        bool same = false;
        const uint64_t found = now->saw(now->modify(at_, o, [&](uint64_t& x) {
            same = x == raw(expected);
            if (same) x = raw(v);
            return same;
        }));
        expected = cooked<T>(found);
        return same;
    }
    bool compare_exchange_weak(T& expected, T v, Order o, Order) {
        return compare_exchange_strong(expected, v, o);
    }
    void begin_with(T v) { now->note(at_) = raw(v); }  // before there are threads
    operator T() const { return load(); }
    T operator=(T v) { return store(v), v; }
    T operator++() { return static_cast<T>(fetch_add(1) + 1); }
    T operator--() { return static_cast<T>(fetch_sub(1) - 1); }
    size_t location() const { return at_; }

  private:
    size_t at_;
};

// Memory that no two threads may access at once.
template <class T>
class Plain {
  public:
    Plain(T value = {}) : plain_(now->new_plain()), at_(now->new_location(raw(value))) {}
    Plain(const Plain&) = delete;
    Plain& operator=(const Plain& other) { return *this = T(other); }
    Plain& operator=(T value) {
        now->access(plain_, true);
        now->note(at_) = raw(value);
        return *this;
    }
    operator T() const {
        now->access(plain_, false);
        return cooked<T>(now->saw(now->note(at_)));
    }

  private:
    size_t plain_, at_;
};

// A short list of small things, of which no two threads may touch it at once.
template <class T>
class List {
  public:
    List() : plain_(now->new_plain()), at_(now->new_location(0)) {}
    const T* begin() const { return read(), items_; }
    const T* end() const { return items_ + count_; }
    size_t size() const { return read(), count_; }
    bool empty() const { return size() == 0; }
    void push_back(T item) {
        now->check(count_ < std::size(items_), "a list is too short for the test");
        items_[count_++] = item;
        written();
    }
    void erase(const T* at) {
        std::copy(at + 1, end(), items_ + (at - items_));
        --count_;
        written();
    }
    void clear() {
        count_ = 0;
        written();
    }
    template <class F>
    friend void erase_if(List& list, F goes) {
        now->access(list.plain_, false);
        size_t kept = 0;
        for (size_t k = 0; k < list.count_; ++k)
            if (!goes(list.items_[k])) list.items_[kept++] = list.items_[k];
        list.count_ = kept;
        list.written();
    }

  private:
    void read() const {
        now->access(plain_, false);
        now->saw(now->note(at_));
    }
    void written() {
        now->access(plain_, true);
        uint64_t h = count_;
        const auto* bytes = reinterpret_cast<const unsigned char*>(items_);
        for (size_t k = 0; k < count_ * sizeof(T); ++k) h = mix(h, bytes[k]);
        now->note(at_) = h;
    }
    size_t plain_, at_, count_ = 0;
    T items_[4];
};

class Mutex {
  public:
    void lock() { now->lock(at_); }
    void unlock() { now->unlock(at_); }
    size_t location() const { return at_; }

  private:
    size_t at_ = now->new_location(0);
};

class Condition {
  public:
    void wait(std::unique_lock<Mutex>& lock) { wait_until(lock, kNever); }
    void wait_until(std::unique_lock<Mutex>& lock, int64_t deadline) {
        now->wait_for_notice(at_, lock.mutex()->location(), deadline);
    }
    void notify_all() { now->wake(at_, INT32_MAX, ~0u); }
    size_t location() const { return at_; }

  private:
    size_t at_ = now->new_location(0);
};

// A number that the test itself keeps: no access that anybody could see.
class Tally {
  public:
    Tally() : at_(now->new_location(0)) {}
    uint64_t operator++() { return ++now->note(at_); }
    uint64_t get() const { return now->note(at_); }
    void set(uint64_t v) { now->note(at_) = v; }

  private:
    size_t at_;
};

// A thread of Python's that does its acts one after the other; both live as long as the program.
template <class World, class Acts>
auto acting(World* w, const Acts& acts) {
    return [w, &acts] {
        w->take_gil();
        for (const auto& a : acts) {
            w->act(a);
            now->at_rest(reinterpret_cast<uint64_t>(&a));
            w->without_gil();
        }
        w->gil.unlock();
    };
}

// What comes at any time: a signal, a tick of the clock.
template <class Cell>
auto setting(Cell& cell) {
    return [&cell] {
        now->step();
        cell.set(1);
    };
}

}  // namespace qd::explore
