// What happens around fork: one list, in the order in which locks are taken.
//
// A child has only the thread that forked. Whatever another thread may hold at that moment is
// listed here: held by the forking thread meanwhile, so that the child finds it whole, or made anew
// in the child. Compilations are the first: LLVM's state in the middle of one is of no use to a
// child, so fork waits until those that run have ended and none begins (Compiling). A child that
// was forked after kForkPatience all the same can launch but not compile.
//
// Not listed, because only threads with the GIL take them and Python forks with the GIL: the
// front end's caches, the store. Python's own compilation lock is renewed by os.register_at_fork
// (launcher/build.cpp). A C program that forks without the GIL is on its own.

#pragma once

#include <chrono>

namespace qd::runtime {

constexpr std::chrono::seconds kForkPatience{20};

enum class AtFork { compile_queue, pools, session, progress, trace_file, guarded_memory, kCount };
struct ForkHandlers {
    void (*before)() = nullptr;
    void (*in_parent)() = nullptr;
    void (*in_child)() = nullptr;
};
// Once for each, while the process has one thread: else a fork could run half of a row. True, for
// the initialisers of objects.
bool at_fork(AtFork which, ForkHandlers handlers);

// Around everything that a compilation does without the GIL.
class Compiling {
  public:
    Compiling();
    ~Compiling();
    Compiling(const Compiling&) = delete;
    // Throws support::Error in a child that was forked in the middle of one.
    void need() const;

  private:
    bool allowed_;
};

}  // namespace qd::runtime
