// Fork waits until the compilations that run have ended, and none begins meanwhile; a child whose
// parent's compilations took longer than fork's patience knows that it must not compile.
//
// tests/cpp/fork_test.cpp runs this code under every interleaving.

#pragma once

#include <cstdint>
#include <mutex>
#include <new>

namespace qd::runtime {

template <class Machine>
class ForkGate {
    template <class T>
    using Plain = typename Machine::template Plain<T>;
    using Lock = std::unique_lock<typename Machine::Mutex>;

  public:
    // Around a compilation. False: this process cannot compile (the compilation must end all the
    // same).
    bool begins() {
        Lock guard(lock_);
        while (forks_ > 0) changed_.wait(guard);
        compiling_ = compiling_ + 1;
        return !unusable_;
    }
    void ends() {
        const Lock guard(lock_);
        compiling_ = compiling_ - 1;
        changed_.notify_all();
    }

    // The thread that forks: first, then after it has taken all other locks, then on both sides.
    void keep_compilations_out(int64_t patience_ns) {
        Lock guard(lock_);
        forks_ = forks_ + 1;
        const int64_t end_ns = Machine::now_ns() + patience_ns;
        while (compiling_ > 0 && Machine::now_ns() < end_ns)
            Machine::wait_until(changed_, guard, end_ns);
    }
    void before_fork() { lock_.lock(); }
    void in_parent() {
        forks_ = forks_ - 1;
        changed_.notify_all();
        lock_.unlock();
    }
    void in_child() {
        const bool unusable = unusable_ || compiling_ > 0;
        new (this) ForkGate;  // nobody waits here
        unusable_ = unusable;
    }

  private:
    typename Machine::Mutex lock_;  // guards everything here
    typename Machine::Condition changed_;
    Plain<int> compiling_{0}, forks_{0};
    Plain<bool> unusable_{false};
};

}  // namespace qd::runtime
