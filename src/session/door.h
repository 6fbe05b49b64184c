// Who may use the session when: kernel calls, what resets it, the end of the process.
//
// All of it happens under the GIL, which Python code that runs in between may give to others at any
// time; who waits gives it away. Who closes the session keeps kernel calls out and waits until no
// thread works on it: a call that has not begun its work by then finds another generation. At the
// end of the process it is closed for good, and the calls of other threads wait for ever. A thread
// never waits for work of its own, and a forked child has only what its one thread does.
//
// `Machine` brings threads and the GIL. tests/cpp/door_test.cpp brings one that runs this very code
// under every interleaving.

#pragma once

#include <cstdint>

namespace qd::session {

template <class Machine>
class Door {
    template <class T>
    using Plain = typename Machine::template Plain<T>;

  public:
    // Around a kernel call, Python code that it runs included.
    void call_begins() {
        calls_ = calls_ + 1;
        if (closed_) [[unlikely]]
            wait_until_open();
    }
    void call_ends() { calls_ = calls_ - 1; }

    // Around what uses the session while others may run.
    void work_begins() {
        working_ = working_ + 1;
        Machine::add_to_my_work(1);
    }
    void work_ends() {
        working_ = working_ - 1;
        Machine::add_to_my_work(-1);
    }

    // Amid work, around code of ours without the GIL.
    void native_begins() { native_ = native_ + 1; }
    void native_ends() { native_ = native_ - 1; }

    // Keeps the other threads' calls out, once their work that has begun is over. Not inside work
    // of this thread's own (a signal handler, a helper that is traced), nor if a signal handler
    // raises, nor at the end of the process, where work that was not over by then never will be,
    // nor if all that work runs Python code for long: it may wait for this very thread.
    enum class Closing { done, inside_own_work, interrupted, never, stands_still };
    Closing close(bool& ours) {
        ours = false;
        if (Machine::my_work()) return Closing::inside_own_work;
        while (closed_ && closer_ != Machine::this_thread()) Machine::doze();
        if (at_end_) return working_ ? Closing::never : Closing::done;
        if (!closed_) {  // else by this thread, of which a signal handler or finaliser runs
            closed_ = ours = true;
            closer_ = Machine::this_thread();
        }
        for (int looks = 0; working_; looks = native_ ? 0 : looks + 1) {
            if (looks == Machine::kMostLooks) return Closing::stands_still;
            Machine::doze_to_look();
            if (Machine::interrupted()) return Closing::interrupted;
        }
        return Closing::done;
    }
    void open() { closed_ = at_end_; }  // whose closing it was

    // No other thread's call goes on from here, and none gets the GIL again. Whether those that had
    // begun are over within this time; if not, the runtime must be left as it is.
    bool end(int64_t patience_ns) {
        closed_ = at_end_ = true;
        closer_ = Machine::this_thread();
        const int64_t end_ns = Machine::now_ns() + patience_ns;
        while (calls_ > 0 && Machine::now_ns() < end_ns) Machine::doze(end_ns);
        interpreter_ends_ = true;
        return calls_ <= 0;
    }
    // Without the GIL, before it is taken. CPython before 3.14 ends threads that ask for it then by
    // unwinding their stacks, which C++ frames do not survive; ours sleep for ever, as all do
    // since.
    void before_gil() {
        if (interpreter_ends_ && closer_ != Machine::this_thread()) Machine::sleep_for_ever();
    }

    bool interpreter_ends() { return interpreter_ends_; }  // any thread

    // True if threads worked that the child does not have.
    bool in_forked_child() {
        const bool others = working_ > Machine::my_work();
        working_ = Machine::my_work();
        calls_ = native_ = 0;
        if (closer_ != Machine::this_thread()) closed_ = at_end_ = interpreter_ends_ = false;
        return others;
    }

  private:
    void wait_until_open() {
        while (closed_ && !Machine::my_work() && closer_ != Machine::this_thread()) {
            if (at_end_) {
                calls_ = calls_ - 1;
                Machine::give_gil_away();
                Machine::sleep_for_ever();
            }
            Machine::doze();
        }
    }

    Plain<int> working_{0};  // threads that use the session while others may run
    Plain<int> native_{0};   // those of them that are in code of ours, without the GIL
    Plain<int> calls_{0};    // of kernels in progress, by all threads
    Plain<bool> closed_{false}, at_end_{false};
    typename Machine::template Atomic<bool> interpreter_ends_{false};
    Plain<uint64_t> closer_{0};  // the thread that closed it
};

}  // namespace qd::session
