// Errors: from a Diag or a Python exception to the exception that the user sees.
//
// While an error unwinds, each Body leaves a frame (file, line, source with carets). At the
// boundary the frames are joined, kernel first, and put in front of the message; with
// print_full_traceback the exception passes unchanged and the frames travel as a note. Runs on
// failure only.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <new>

#include "cpython/entry.h"
#include "frontend/body/body.h"
#include "frontend/source/stack.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

constexpr size_t kWidth = 80;  // columns of a piece of code
constexpr size_t kTab = 4;
constexpr size_t kShown = 30;  // frames at either end of a long chain of calls

struct Failure {
    std::vector<std::string> frames;  // innermost first
    std::string within;               // the function of ours that the innermost shown one called
    bool full_traceback = false;
    bool argument = false;  // the error in flight is about an argument
};
Failure& failure() {
    static thread_local Failure f;
    return f;
}

void forget_frames() {
    failure().frames.clear();
    failure().within.clear();
}

struct Span {
    int line, col, end_line, end_col;
};

int number(PyObject* node, PyObject* name, int otherwise) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(node, name));
    if (!v || !PyLong_Check(v.get())) {
        forget_error();
        return otherwise;
    }
    return static_cast<int>(PyLong_AsLong(v.get()));
}

Span span_in_slice(PyObject* node) {
    const int line = number(node, names().lineno_, 1), col = number(node, names().col_offset_, 0);
    return {line, col, number(node, names().end_lineno_, line),
            number(node, names().end_col_offset_, col)};
}

// Cuts a statement behind the colon that ends its header: the first one outside of brackets,
// strings and comments. Lines count from 1.
void end_at_colon(Span& p, const std::vector<std::string_view>& lines) {
    int depth = 0;
    for (int line = p.line; line <= p.end_line && static_cast<size_t>(line) <= lines.size();
         ++line) {
        const std::string_view code = lines[static_cast<size_t>(line) - 1];
        size_t k = line == p.line ? static_cast<size_t>(p.col) : 0;
        for (; k < code.size() && code[k] != '#'; ++k) {
            const char c = code[k];
            depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
            if (c == '"' || c == '\'')
                k = std::min(code.find(c, k + 1), code.size());
            else if (c == ':' && depth == 0 && (k + 1 == code.size() || code[k + 1] != '=')) {
                p.end_line = line;
                p.end_col = static_cast<int>(k) + 1;
                return;
            }
        }
    }
}

// Columns here are bytes of the line.
Span span_of(const Node* n, const FunctionSource& s) {
    PyObject* node = ast_of(s, *n);
    Span p = span_in_slice(node);
    const bool indented = !s.text.empty() && (s.text[0] == ' ' || s.text[0] == '\t');
    const int shift = s.first_line - 1 - (indented ? 1 : 0);
    p.line += shift;
    p.end_line += shift;
    // A compound statement shows its header.
    const Ref body = Ref::steal_or_null(PyObject_GetAttr(node, names().body_));
    forget_error();
    const std::string_view kind = Py_TYPE(node)->tp_name;
    const bool headed = kind.ends_with("For") || kind.ends_with("While") || kind.ends_with("If") ||
                        kind.ends_with("With") || kind.ends_with("FunctionDef");
    if (headed && body && PyList_Check(body.get())) end_at_colon(p, s.file->lines);
    return p;
}

// One source line with its carets, tabs expanded, cut into pieces.
void show_line(std::string& out, std::string_view line, size_t from, size_t to) {
    std::string code, carets;
    for (size_t k = 0; k < line.size(); ++k) {
        const char mark = k >= from && k < to ? '^' : ' ';
        if (line[k] == '\t') {
            do {
                code += ' ';
                carets += mark;
            } while (code.size() % kTab);
        } else if ((line[k] & 0xC0) == 0x80) {
            code += line[k];  // rest of a character: no column of its own
        } else {
            code += line[k];
            carets += mark;
        }
    }
    if (code.size() != carets.size())
        carets.resize(code.size(), ' ');  // non-ASCII text stays whole
    for (size_t at = 0; at < code.size(); at += kWidth) {
        out += code.substr(at, kWidth);
        out += '\n';
        std::string piece = carets.substr(at, kWidth);
        piece.erase(piece.find_last_not_of(' ') + 1);
        if (!piece.empty()) out += piece + '\n';
    }
}

std::string block_text(const std::string& file, const std::vector<std::string_view>& lines,
                       const std::string& function, const Span& p) {
    std::string out =
        "File \"" + file + "\", line " + std::to_string(p.line) + ", in " + function + ":\n";
    for (int line = p.line; line <= p.end_line && static_cast<size_t>(line) <= lines.size();
         ++line) {
        const std::string_view code = lines[static_cast<size_t>(line) - 1];
        const size_t begin = line == p.line ? static_cast<size_t>(p.col)
                                            : std::min(code.find_first_not_of(" \t"), code.size());
        const size_t end =
            line == p.end_line ? static_cast<size_t>(p.end_col) : code.find_last_not_of(" \t") + 1;
        if (begin < end || line == p.line) show_line(out, code, begin, end);
    }
    return out;
}

std::string frame_text(const Lowering& l) {
    if (!l.node) return {};
    const FunctionSource& s = l.body->source;
    return block_text(s.file->name, s.file->lines, s.name, span_of(l.node, s));
}

Ref exception_class(const char* name) {
    Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang.exception"));
    return Ref::steal(PyObject_GetAttrString(module.get(), name));
}

const char* class_name(Kind k) {
    switch (k) {
        case Kind::compilation:
            return "QuadrantsCompilationError";
        case Kind::syntax:
            return "QuadrantsSyntaxError";
        case Kind::name:
            return "QuadrantsNameError";
        case Kind::type:
            return "QuadrantsTypeError";
        case Kind::index:
            return "QuadrantsIndexError";
        case Kind::runtime:
            return "QuadrantsRuntimeError";
        case Kind::runtime_type:
            return "QuadrantsRuntimeTypeError";
        case Kind::plain_runtime:
        case Kind::value:
            return nullptr;  // Python's own
    }
    return nullptr;
}

// What `quadrants.lang._inspect.advice` says; nothing if it fails.
template <class... Args>
std::string ask(const char* function, Args... args) {
    const Ref module = Ref::steal_or_null(PyImport_ImportModule("quadrants.lang._inspect.advice"));
    const Ref name = Ref::steal(PyUnicode_FromString(function));
    const Ref said = Ref::steal_or_null(
        module ? PyObject_CallMethodObjArgs(module.get(), name.get(), args..., nullptr) : nullptr);
    forget_error();
    return said ? text(said.get()) : std::string();
}

std::string as_help(const std::string& advice) {
    return advice.empty() ? "" : "  " + advice + "\n";
}

// Whether the exception came from the package's own Python code, whose lines tell the user nothing.
bool raised_by_package(PyObject* tb) {
    if (!tb || tb == Py_None) return false;
    Ref last = Ref::borrow(tb);
    for (;;) {
        Ref next = Ref::steal(PyObject_GetAttrString(last.get(), "tb_next"));
        if (next.get() == Py_None) break;
        last = next;
    }
    const Ref frame = Ref::steal(PyObject_GetAttrString(last.get(), "tb_frame"));
    return is_own_module(module_of(frame.get()));
}

std::string joined_frames() {
    std::string out;
    const auto& frames = failure().frames;
    for (size_t k = frames.size(); k-- > 0;) {  // kernel first
        if (frames.size() > 2 * kShown && k == frames.size() - kShown - 1) {
            out += "... " + std::to_string(frames.size() - 2 * kShown) + " more calls ...\n";
            k = kShown - 1;
        }
        out += frames[k];
    }
    return out;
}

std::string traceback_text(PyObject* type, PyObject* value, PyObject* tb) {
    Ref module = Ref::steal(PyImport_ImportModule("traceback"));
    Ref lines = Ref::steal(PyObject_CallMethod(module.get(), "format_exception", "OOO", type,
                                               value ? value : Py_None, tb ? tb : Py_None));
    Ref empty = Ref::steal(PyUnicode_FromString(""));
    Ref joined = Ref::steal(PyUnicode_Join(empty.get(), lines.get()));
    return text(joined.get());
}

void add_note(PyObject* value, const std::string& note) {
    if (note.empty() || !has_attribute(value, "add_note")) return;
    Ref r = Ref::steal_or_null(PyObject_CallMethod(value, "add_note", "s", note.c_str()));
    forget_error();
}

// Raises `cls(message)` with no trace of what led to it.
void raise_plain(PyObject* cls, const std::string& message) {
    Ref value = Ref::steal(
        PyObject_CallFunction(cls, "s#", message.data(), static_cast<Py_ssize_t>(message.size())));
    PyException_SetCause(value.get(), nullptr);  // None would break the printing of tracebacks
    Ref yes = Ref::borrow(Py_True);
    PyObject_SetAttrString(value.get(), "__suppress_context__", yes.get());
    PyErr_SetObject(cls, value.get());
}

// The Python exception that is set, given its frames.
void finish_python_error() {
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    PyErr_NormalizeException(&type, &value, &tb);
    if (tb) PyException_SetTraceback(value, tb);
    if (PyErr_GivenExceptionMatches(type, PyExc_MemoryError)) return PyErr_Restore(type, value, tb);
    Ref type_ref = Ref::steal(type), value_ref = Ref::steal(value), tb_ref = Ref::steal_or_null(tb);
    const std::string frames = joined_frames();
    const bool ordinary = PyObject_IsSubclass(type, PyExc_Exception) == 1 && !failure().argument &&
                          !raised_by_handler(tb);
    const Ref ours = exception_class("QuadrantsCompilationError");
    // What the language itself reports keeps its class; anything else is wrapped, a helper's, too.
    const bool compile_error =
        PyObject_IsSubclass(type, ours.get()) == 1 ||
        (type == exception_class("QuadrantsRuntimeError").get() && (!tb || raised_by_package(tb)));
    const bool advised = text(value).find("\n  ") != std::string::npos;  // a Diag brings it
    std::string help = advised || !ordinary ? "" : as_help(ask("for_exception", value));
    if (!failure().within.empty() && !compile_error)
        help += "  this happened inside of `" + failure().within +
                "` of the package: see which arguments it takes\n";
    if (failure().full_traceback || frames.empty() || !ordinary) {
        add_note(value, frames + help);
        PyErr_Restore(type_ref.release(), value_ref.release(), tb_ref.release());
        return;
    }
    if (raised_by_package(tb)) tb = nullptr;
    const std::string head = "\nquadrants stack trace:\n===\n";
    if (compile_error) {
        raise_plain(type, head + "\nYour code:\n" + frames + text(value) + "\n" + help);
    } else {
        std::string said = traceback_text(type, value, tb);
        // Newer Pythons guess too; one guess is enough.
        if (const size_t at = said.rfind(". Did you mean: "); !help.empty() && at != said.npos)
            said.erase(at, said.find('\n', at) - at);
        const bool of_type = PyObject_IsSubclass(type, PyExc_TypeError) == 1;
        const Ref cls = of_type ? exception_class("QuadrantsTypeError") : ours;
        raise_plain(cls.get(), head + "\nYour code:\n" + frames + said + help);
    }
}

}  // namespace

std::string location_text(const Lowering& low) { return frame_text(low); }

namespace {

// Bytes of a line's first characters.
int bytes_of(const std::vector<std::string_view>& lines, int line, int characters) {
    if (line < 1 || static_cast<size_t>(line) > lines.size()) return characters;
    const std::string_view code = lines[static_cast<size_t>(line) - 1];
    size_t k = 0;
    for (; k < code.size() && (characters > 0 || (code[k] & 0xC0) == 0x80); ++k)
        characters -= (code[k] & 0xC0) != 0x80;
    return static_cast<int>(k);
}

// Whether a compound statement begins there: no expression begins with such a word.
bool begins_block(const std::vector<std::string_view>& lines, const Span& p) {
    if (p.line < 1 || static_cast<size_t>(p.line) > lines.size()) return false;
    const std::string_view code = lines[static_cast<size_t>(p.line) - 1];
    if (static_cast<size_t>(p.col) >= code.size()) return false;
    const std::string_view rest = code.substr(static_cast<size_t>(p.col));
    static constexpr std::string_view kWords[] = {"for", "while", "if", "elif", "with", "def"};
    return std::ranges::any_of(kWords, [&](std::string_view word) {
        return rest.starts_with(word) && rest.size() > word.size() &&
               (rest[word.size()] == ' ' || rest[word.size()] == '(');
    });
}

}  // namespace

std::string site_text(const support::SourceSite& s) {
    const Ref name = Ref::steal_or_null(
        PyUnicode_FromStringAndSize(s.file.data(), static_cast<Py_ssize_t>(s.file.size())));
    const SourceFile* file = nullptr;
    try {
        if (name) file = source_file(name.get());
    } catch (const PyError&) {
    }
    forget_error();
    static const std::vector<std::string_view> none;
    const auto& lines = file ? file->lines : none;
    Span p{s.line, bytes_of(lines, s.line, s.col), s.end_line,
           bytes_of(lines, s.end_line, s.end_col)};
    if (begins_block(lines, p)) end_at_colon(p, lines);
    return block_text(s.file, lines, s.function, p);
}

std::string source_text(const FunctionSource& s, const Node* n) {
    const Span p = span_of(n, s);
    if (p.line < 1 || static_cast<size_t>(p.end_line) > s.file->lines.size()) return {};
    std::string out;
    for (int line = p.line; line <= p.end_line; ++line) {
        std::string_view code = s.file->lines[static_cast<size_t>(line) - 1];
        if (line == p.end_line) code = code.substr(0, static_cast<size_t>(p.end_col));
        if (line == p.line) code.remove_prefix(std::min(code.size(), static_cast<size_t>(p.col)));
        out += (line == p.line ? "" : "\n") + std::string(code);
    }
    return out;
}

void raise(Kind kind, std::string message, std::string hint) {
    throw Diag{kind, std::move(message), std::move(hint)};
}

void raise_at(const Node* n, Kind kind, std::string message, std::string hint) {
    throw Diag{kind, std::move(message), std::move(hint), n};
}

std::string similar_name(PyObject* word, PyObject* names) { return ask("similar", word, names); }

void raise_undefined(PyObject* name, PyObject* function, PyObject* locals, PyObject* cells) {
    PyObject* builtins = PyEval_GetBuiltins();
    PyObject* none = Py_None;
    const Ref empty = Ref::steal(PyTuple_New(0));
    const auto or_empty = [&](PyObject* o) { return o && o != none ? o : empty.get(); };
    raise(Kind::name, "Name \"" + text(name) + "\" is not defined",
          ask("for_name", name, function, locals, PyFunction_GetGlobals(function), or_empty(cells),
              or_empty(builtins)));
}

static Ref nan_repr(std::initializer_list<double> parts) {
    std::string out = "nan";
    for (double part : parts) {
        char bits[20];
        std::snprintf(bits, sizeof bits, " %016llx",
                      static_cast<unsigned long long>(std::bit_cast<uint64_t>(part)));
        out += bits;
    }
    return Ref::steal(PyUnicode_FromString(out.c_str()));
}

Ref constant_repr(PyObject* o) {
    if (PyLong_CheckExact(o)) return Ref::steal(PyNumber_ToBase(o, 16));
    if (PyFloat_CheckExact(o) && std::isnan(PyFloat_AS_DOUBLE(o)))
        return nan_repr({PyFloat_AS_DOUBLE(o)});
    if (PyComplex_CheckExact(o)) {
        const Py_complex c = PyComplex_AsCComplex(o);
        if (std::isnan(c.real) || std::isnan(c.imag)) return nan_repr({c.real, c.imag});
    }
    if (!PyTuple_CheckExact(o)) return Ref::steal(PyObject_Repr(o));
    need_stack();
    std::string parts = "(";
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(o); ++k)
        parts += text(constant_repr(PyTuple_GET_ITEM(o, k)).get()) + ",";
    parts += ")";
    return Ref::steal(
        PyUnicode_DecodeUTF8(parts.data(), static_cast<Py_ssize_t>(parts.size()), "replace"));
}

void set_python_error(const Diag& d) {
    std::string message = d.text;
    const char* name = class_name(d.kind);
    forget_error();
    try {
        const std::string help =
            d.help.empty()
                ? ask("for_message", Ref::steal(PyUnicode_FromString(d.text.c_str())).get())
                : d.help;
        if (!help.empty()) message += "\n  " + help;
        const Ref cls =
            name ? exception_class(name)
                 : Ref::borrow(d.kind == Kind::value ? PyExc_ValueError : PyExc_RuntimeError);
        PyErr_SetObject(cls.get(),
                        Ref::steal(PyUnicode_FromStringAndSize(
                                       message.data(), static_cast<Py_ssize_t>(message.size())))
                            .get());
    } catch (const PyError&) {
    }
}

ArgumentErrors::~ArgumentErrors() {
    if (PyErr_Occurred()) failure().argument = true;
}

void begin_errors(const ir::Options& options) {
    forget_frames();
    failure().argument = false;
    failure().full_traceback = options.print_full_traceback;
}

bool shows_full_tracebacks() { return failure().full_traceback; }

// Library code of ours tells the user nothing: the call of it does.
static bool is_hidden(const Lowering& l) {
    return l.caller && !failure().full_traceback && failure().frames.empty() &&
           is_own_code(l.body->function.get());
}

void set_thrown_error() noexcept {
    try {
        try {
            throw;
        } catch (const Diag& d) {
            set_python_error(d);
        } catch (const HoldsTask&) {
            if (!current()) throw;
            hold_in_python();
        } catch (const std::bad_alloc&) {
            throw;
        } catch (const std::length_error& e) {
            set_python_error(too_large(e));
        } catch (const std::exception& e) {
            set_python_error({Kind::compilation, std::string("internal error: ") + e.what(), {}});
        }
    } catch (...) {
        cpython::raise_in_python();
    }
}

// Called inside a catch block. A Diag becomes a Python exception here, so that only PyError goes
// on.
void add_frame(Lowering& l) {
    try {
        throw;
    } catch (const HoldsTask&) {
        return;
    } catch (const Diag& d) {
        if (d.node) l.node = d.node;
        set_thrown_error();
    } catch (...) {
        set_thrown_error();
    }
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    try {
        if (is_hidden(l))
            failure().within = l.body->source.name;
        else
            failure().frames.push_back(frame_text(l));
    } catch (...) {
        forget_error();
    }
    PyErr_Restore(type, value, tb);
}

void forget_failure() {
    forget_error();
    forget_frames();
}

void raise_python() {
    set_thrown_error();
    try {
        finish_python_error();
    } catch (...) {
        cpython::raise_in_python();
    }
    forget_frames();
}

}  // namespace qd::frontend
