// See output.h.

#include "launcher/output.h"

#include <Python.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cpython/cpython.h"
#include "runtime/progress.h"
#include "session/session.h"

namespace qd::launcher {
namespace {

using session::Released;

// sys.stdout is somebody else's object: a notebook, pytest, a redirection.
bool captured(PyObject* out) {
    const char* enabled = std::getenv("QD_ENABLE_PYBUF");
    if (enabled && std::strcmp(enabled, "0") == 0) return false;
    return out != PySys_GetObject("__stdout__");
}

// The first captured text is announced on stderr, since it then comes after a launch as a whole.
bool announce() {
    static bool done = false;
    if (std::exchange(done, true)) return true;
    return cpython::log_line("info", "Graphical python shell detected, using wrapped sys.stdout");
}

// A pipe that others made non-blocking gets its time to empty. Not for ever: its reader may be this
// very thread.
bool wait_for_room() {
    constexpr int kPatienceMs = 5000;
    pollfd out{1, POLLOUT, 0};
    const Released released;
    return ::poll(&out, 1, kPatienceMs) != 0;
}

// How much of what is left goes out at once. Of several threads' text a pipe mixes what is longer
// than PIPE_BUF: pieces are shorter, and end with a line where they can.
size_t next_piece(std::string_view rest) {
    struct stat out;
    if (rest.size() <= PIPE_BUF || ::fstat(1, &out) != 0 || !S_ISFIFO(out.st_mode))
        return rest.size();
    const size_t line = rest.substr(0, PIPE_BUF).rfind('\n');
    return line == std::string_view::npos ? PIPE_BUF : line + 1;
}

}  // namespace

bool write_output(const std::string& text) {
    runtime::hide_progress();
    // Kept: what runs here, or another thread, may put another in its place.
    const auto kept = cpython::Ref::borrow(PySys_GetObject("stdout"));
    PyObject* out = kept.get();
    if (out && out != Py_None && captured(out)) {
        if (!announce()) return false;
        PyObject* r = PyObject_CallMethod(out, "write", "s#", text.data(),
                                          static_cast<Py_ssize_t>(text.size()));
        Py_XDECREF(r);
        return r != nullptr;
    }
    if (out && out != Py_None) {  // what Python printed before comes first
        PyObject* r = PyObject_CallMethod(out, "flush", nullptr);
        if (!r) cpython::forget_error();
        Py_XDECREF(r);
    }
    size_t done = 0;
    while (done <
           text.size()) {  // who reads the other end of a pipe may be a thread of this process
        const size_t piece = next_piece(std::string_view(text).substr(done));
        ssize_t n;
        {
            const Released released;
            n = ::write(1, text.data() + done, piece);
        }
        if (n < 0 && errno == EINTR) {
            if (PyErr_CheckSignals() != 0) return false;
            continue;
        }
        if (n < 0 && errno == EAGAIN && wait_for_room()) {
            if (PyErr_CheckSignals() != 0) return false;
            continue;
        }
        if (n <= 0) break;
        done += static_cast<size_t>(n);
    }
    return true;
}

}  // namespace qd::launcher
