// What the rooms that speak CPython's C API share: owned references, exceptions that are set or
// forgotten, lines of the log, texts of objects.

#pragma once

#include <Python.h>

#include <string>
#include <string_view>
#include <utility>

namespace qd::cpython {

struct PyError {};  // thrown when a Python exception is set

// Clears the Python exception that is set, if any: for questions whose failure is an answer. An
// interrupt, an exit, lack of memory or of stack is none, nor is anything that a signal handler
// raised; it is kept, and raised by the kernel call in progress (kept_error.cpp). Nothing else
// clears exceptions (tools/check_forget.py).
void forget_error();
// Clears it if it is of this very type: raised by us, for none else.
void drop_own_error(PyObject* type);
// A line of the log, by quadrants._logging.<level>, which clients may have replaced. False: it
// raised.
[[nodiscard]] bool log_line(const char* level, const std::string& text);
// The same where nobody can be told, and while a kernel is lowered: throws PyError.
void try_to_log(const char* level, const std::string& text);
void log_or_throw(const char* level, const std::string& text);
bool has_attribute(PyObject* o, const char* name);  // PyObject_HasAttr swallows all exceptions
// By its traceback.
bool raised_by_handler(PyObject* trace);
// Whether a signal handler runs in this thread, begun after the frame `until`.
bool amid_handler(PyObject* until);
// Runs signal handlers that are due, if this is the main thread. Throws what one raises or raised.
void let_handlers_raise();
// Sets this thread's kept exception in place of any other; false if there is none.
bool raise_kept_error();
extern int errors_kept;  // by how many threads, under the GIL: worth asking

class Ref {  // owned reference
  public:
    Ref() = default;
    static Ref steal(PyObject* o) {
        if (!o) throw PyError{};
        return Ref(o);
    }  // new reference, null -> PyError
    static Ref steal_or_null(PyObject* o) { return Ref(o); }
    static Ref borrow(PyObject* o) {
        Py_XINCREF(o);
        return Ref(o);
    }
    Ref(const Ref& r) : p_(r.p_) { Py_XINCREF(p_); }
    Ref(Ref&& r) noexcept : p_(r.p_) { r.p_ = nullptr; }
    Ref& operator=(Ref r) noexcept {
        std::swap(p_, r.p_);
        return *this;
    }
    ~Ref() { Py_XDECREF(p_); }
    PyObject* get() const { return p_; }
    PyObject* release() {
        PyObject* p = p_;
        p_ = nullptr;
        return p;
    }
    explicit operator bool() const { return p_ != nullptr; }

  private:
    explicit Ref(PyObject* p) : p_(p) {}
    PyObject* p_ = nullptr;
};

// Sets a Python exception of class `name` in quadrants.lang.exception (or a builtin).
void set_error(const char* name, const std::string& text);
void set_error(const char* name, const char* text) noexcept;  // for handlers: needs no memory

std::string text(PyObject* o);              // str(o), never fails
bool is_own_module(std::string_view name);  // of this package
// Of a class, without asking code of the user; "" where the class does not say.
std::string module_of_class(PyObject* cls);
std::string name_of_class(PyObject* cls);  // qualified
// A name in the globals of a frame's module, as text that lives as long as they; "" if it has none.
std::string_view module_of(PyObject* frame);
std::string integer_text(PyObject* o);  // an int; a long one by its size
std::string type_name(PyObject* o);

}  // namespace qd::cpython
