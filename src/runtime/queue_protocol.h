// How quick code comes to be optimised, once, by whom and when: the protocol of the compile queue,
// without its compiler.
//
// A slot waits, is asked for, and is settled. Who changes it from waiting to asked, under the
// queue's lock, lines it up; one of the queue's threads takes it, compiles it without the lock, and
// settles it under the lock again: so who holds the lock (fork does) finds each slot's module
// either whole or no longer wanted. What is dropped before it began waits again.
//
// A launch that turns out long is asked for before it ends: the first launch that finds its slot
// unwatched has the queue look at it when its patience is over. Who ends the watch says so before
// it asks whether a launch is running, and a launch says that it runs before it asks whether there
// is a watch; one of the two sees the other.
//
// The queue's own fields are under its lock. It is never destroyed: it ends with its threads
// joined, and whoever comes later finds that nothing is optimised any more.
//
// `Machine` brings threads, their means, slots and what compiling is. tests/cpp/queue_test.cpp
// brings one that runs this very code under every interleaving.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>

namespace qd::runtime {

enum class Improving : uint8_t { settled, waiting, asked };

template <class Machine>
struct Progress {  // of a slot
    template <class T>
    using Atomic = typename Machine::template Atomic<T>;

    Atomic<Improving> state{Improving::settled};
    Atomic<int64_t> spent_ns{0};    // by launches that ended
    Atomic<int64_t> entered_ns{0};  // when the last launch began
    Atomic<int64_t> first_ns{0};    // when the first launch began
    Atomic<int32_t> running{0};     // launches
    Atomic<bool> watched{false};    // the queue looks at it when its patience ends
    int64_t patience_ns = 0;
    uint32_t optimise_us = 0;

    bool waits() const { return state.load() == Improving::waiting; }
    bool ask() {
        Improving waiting = Improving::waiting;
        return state.compare_exchange_strong(waiting, Improving::asked);
    }
    int64_t spent(int64_t now_ns) const {
        const int64_t before = spent_ns.load();
        return running.load() ? before + std::max<int64_t>(now_ns - entered_ns.load(), 0) : before;
    }
};

template <class Machine>
class QueueProtocol {
    template <class T>
    using List = typename Machine::template List<T>;
    template <class T>
    using Plain = typename Machine::template Plain<T>;
    using Mutex = typename Machine::Mutex;
    using Lock = std::unique_lock<Mutex>;
    using Slot = typename Machine::Slot;

  public:
    // What runs hot has a thread; what can wait has one or more, as Machine::most_threads() says.
    enum Line { urgent, patient, kLines };
    static Line line_of(int thread) { return thread == 0 ? urgent : patient; }

    // --- the launching threads ------------------------------------------------------------------
    // Around each launch of quick code. False: there is nothing to count, nor to end.
    bool run_begins(const Slot& slot, int64_t now_ns) {
        auto& p = Machine::progress(slot);
        if (p.state.load() == Improving::settled) return false;
        p.entered_ns = now_ns;
        if (!p.first_ns) p.first_ns = now_ns;
        ++p.running;
        if (p.waits() && !p.watched.exchange(true))
            watch(slot, now_ns + std::max<int64_t>(p.patience_ns - p.spent_ns, 0));
        return true;
    }
    void run_ends(const Slot& slot, int64_t took_ns) {
        auto& p = Machine::progress(slot);
        --p.running;
        if (p.spent_ns.fetch_add(took_ns) + took_ns >= p.patience_ns) optimise(slot);
    }

    void optimise(const Slot& slot) {
        if (!Machine::progress(slot).waits()) return;
        const Lock guard(lock_);
        if (open() && Machine::progress(slot).ask()) line_up(slot);
    }

    // --- endings --------------------------------------------------------------------------------
    void finish() {
        Lock guard(lock_);
        while (pending_locked()) changed_.wait(guard);
    }
    void drop() {
        const Lock guard(lock_);
        forget();
        changed_.notify_all();
    }
    size_t pending() {
        const Lock guard(lock_);
        return pending_locked();
    }
    // Ends the threads when they have finished what they are at. For good.
    void stop() {
        int threads;
        {
            const Lock guard(lock_);
            threads = threads_;
            threads_ = 0;
            ended_ = true;
            forget();
            changed_.notify_all();
        }
        for (int k = 0; k < threads; ++k) Machine::join(*this, k);
    }

    // --- fork: the child gets a queue of its own, without threads --------------------------------
    void before_fork() { lock_.lock(); }
    void in_parent() { lock_.unlock(); }
    void in_child() {
        forget();
        for (auto& c : compiling_)
            if (const Slot slot = c) {
                wait_again(slot);
                c = Slot();
            }
        const bool ended = ended_;
        new (this) QueueProtocol;  // the lock is held, and the parent's threads wait for a notice
        ended_ = ended;
    }

    // --- the queue's threads
    // ----------------------------------------------------------------------
    void work(int thread) {
        const Line line = line_of(thread);
        Lock guard(lock_);
        while (!ended_) {
            Machine::at_rest(thread);
            look_at_watches();
            start_others();
            if (!asked_[line].empty()) {
                const Slot slot = take_best(asked_[line]);
                compiling_[thread] = slot;
                guard.unlock();
                Machine::compile(slot);
                guard.lock();
                Machine::drop_module(slot);
                Machine::progress(slot).state = Improving::settled;
                compiling_[thread] = Slot();
                changed_.notify_all();
            } else if (!watches_.empty()) {
                int64_t due_ns = INT64_MAX;
                for (const Watch& w : watches_) due_ns = std::min(due_ns, w.due_ns);
                Machine::wait_until(changed_, guard, due_ns);
            } else {
                changed_.wait(guard);
            }
        }
    }

  private:
    // What runs for half of the time since its first launch is what the program is about:
    // optimising it is worth a share of the cores like any other thread's.
    static constexpr int64_t kUrgentShare = 2;

    struct Watch {  // of launches that may turn out long
        int64_t due_ns;
        Slot slot;
    };

    void watch(const Slot& slot, int64_t due_ns) {
        const Lock guard(lock_);
        if (!open()) return;
        // Who waits for an earlier watch finds this one then. To wake threads takes microseconds.
        const bool soonest = std::none_of(watches_.begin(), watches_.end(),
                                          [&](const Watch& w) { return w.due_ns <= due_ns; });
        try {
            watches_.push_back({due_ns, slot});
        } catch (const std::bad_alloc&) {
            Machine::progress(slot).watched = false;  // the next launch brings one
            return;
        }
        if (soonest) changed_.notify_all();
    }

    // All of these under the lock. A system without room for more threads gets by with what it has.
    bool open() {
        if (!started_ && !ended_) {
            started_ = true;
            threads_ = Machine::start(*this, 0);  // which starts the others
        }
        return threads_ > 0;
    }

    // The second thread at once, more when there is more to do than they are.
    void start_others() {
        while (!ended_ && threads_ > 0 && threads_ < Machine::most_threads() &&
               (threads_ < kLines || asked_[patient].size() > idle_patient()) &&
               Machine::start(*this, threads_))
            threads_ = threads_ + 1;
    }
    size_t idle_patient() const {
        size_t n = 0;
        for (int k = 1; k < threads_; ++k) n += Slot(compiling_[k]) ? 0 : 1;
        return n;
    }

    void line_up(const Slot& slot) {
        const auto& p = Machine::progress(slot);
        const int64_t now_ns = Machine::now_ns(), first_ns = p.first_ns;
        const bool often = first_ns && p.spent(now_ns) * kUrgentShare > now_ns - first_ns;
        try {
            asked_[often || threads_ == 1 ? urgent : patient].push_back(slot);
        } catch (const std::bad_alloc&) {
            return wait_again(slot);  // a later launch asks once more
        }
        changed_.notify_all();
    }

    // Asks for what has run long enough; what runs still is looked at again.
    void look_at_watches() {
        if (watches_.empty()) return;
        const int64_t now_ns = Machine::now_ns();
        erase_if(watches_, [&](Watch& w) {
            if (w.due_ns > now_ns) return false;
            auto& p = Machine::progress(w.slot);
            p.watched = false;  // a launch that begins from here on brings a watch
            if (!p.waits()) return true;
            const int64_t left = p.patience_ns - p.spent(now_ns);
            if (left <= 0) {
                if (p.ask()) line_up(w.slot);
                return true;
            }
            if (!p.running || p.watched.exchange(true)) return true;
            w.due_ns = now_ns + left;
            return false;
        });
    }

    // What has run longest for what it costs.
    static Slot take_best(List<Slot>& asked) {
        const auto gain = [](const Slot& s) {
            const auto& p = Machine::progress(s);
            return double(p.spent_ns) / std::max(1u, p.optimise_us);
        };
        const auto best =
            std::max_element(asked.begin(), asked.end(),
                             [&](const Slot& a, const Slot& b) { return gain(a) < gain(b); });
        Slot taken = *best;
        asked.erase(best);
        return taken;
    }

    static void wait_again(const Slot& slot) { Machine::progress(slot).state = Improving::waiting; }

    // Who calls it tells the waiting threads, if there are any: in a forked child there are none,
    // and to notify a condition variable that the parent's threads wait for never returns.
    void forget() {
        for (List<Slot>& line : asked_) {
            for (const Slot& s : line) wait_again(s);
            line.clear();
        }
        for (const Watch& w : watches_) Machine::progress(w.slot).watched = false;
        watches_.clear();
    }

    size_t pending_locked() const {
        size_t n = 0;
        for (const List<Slot>& line : asked_) n += line.size();
        for (const auto& c : compiling_) n += Slot(c) ? 1 : 0;
        return n;
    }

    Mutex lock_;  // guards everything here
    typename Machine::Condition changed_;
    List<Slot> asked_[kLines];
    List<Watch> watches_;
    Plain<Slot> compiling_[Machine::kMostThreads]{};  // by thread
    Plain<int> threads_{0};
    Plain<bool> started_{false}, ended_{false};
};

}  // namespace qd::runtime
