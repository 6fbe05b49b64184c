// Whose kernels run: those of one thread at a time.
//
// A long launch gives up the GIL; what other threads launch, read and write of fields and ndarrays
// waits until it is over, as it would for the GIL. All of it happens under the GIL, and who waits
// gives it away. A launch that keeps the GIL only looks whether it has to wait; one that gives it
// up takes the turn first. While signal handlers run amid a launch, its turn is set aside: they may
// wait for what other threads launch.
//
// Who has waited goes first for a slice of time and keeps the GIL in shorter launches: handing
// over after each would cost more than they do.
//
// `Machine` brings threads and the GIL. tests/cpp/turn_test.cpp brings one that runs this very code
// under every interleaving.

#pragma once

#include <cstdint>

namespace qd::session {

constexpr int64_t kSliceNs = 1000000;

template <class Machine>
class Turn {
    template <class T>
    using Plain = typename Machine::template Plain<T>;

  public:
    bool is_asked_for() const { return owner_ || waiting_; }  // else nobody has to wait

    bool is_mine() const { return is_of(Machine::this_thread()); }
    bool is_of(uint64_t thread) const { return owner_ == thread; }
    bool must_wait() const { return others_come_first(Machine::this_thread()); }
    // Until the turn is free or this thread's. False if a signal handler raises.
    bool wait() {
        const uint64_t me = Machine::this_thread();
        bool waited = false;
        while (others_come_first(me)) {
            doze();
            waited = true;
            if (!Machine::interrupted()) continue;
            wake_others();  // who would not go before this one
            return false;
        }
        if (!waited) return true;
        slice_ = Machine::now_ns();
        goes(me);
        return true;
    }

    bool in_slice() const {
        return last_ == Machine::this_thread() && !Machine::slice_is_over(slice_);
    }

    // After `wait`, with the GIL kept since. False if it is this thread's already.
    bool take() {
        const uint64_t me = Machine::this_thread();
        if (owner_ == me) return false;
        owner_ = me;
        return true;
    }
    void leave() {
        owner_ = 0;
        goes(Machine::this_thread());
    }

    void set_aside() { owner_ = 0; }
    void resume() {  // or take it, whatever signals come
        const uint64_t me = Machine::this_thread();
        while (owner_ && owner_ != me && !Machine::interpreter_ends()) doze();
        owner_ = me;
    }

    // Whether the turn is this thread's.
    bool in_forked_child() {
        waiting_ = 0;
        if (owner_ != Machine::this_thread()) owner_ = 0;
        return owner_ != 0;
    }

  private:
    // Who went last lets those go who wait, once its slice is over. Threads that the end of the
    // process caught never do.
    bool others_come_first(uint64_t me) const {
        const bool first =
            owner_ ? owner_ == me : waiting_ == 0 || last_ != me || !Machine::slice_is_over(slice_);
        return !first && !Machine::interpreter_ends();
    }
    void goes(uint64_t me) {
        last_ = me;
        wake_others();
    }
    void wake_others() {
        if (waiting_) Machine::wake();
    }
    void doze() {
        waiting_ = waiting_ + 1;
        Machine::doze_for_turn();
        waiting_ = waiting_ - 1;
    }

    Plain<uint64_t> owner_{0};  // the thread whose launch or copy has given up the GIL; 0: none
    Plain<uint64_t> last_{0};   // the one that had the turn last
    Plain<int64_t> slice_{0};   // when one had last waited for it
    Plain<int> waiting_{0};     // threads
};

}  // namespace qd::session
