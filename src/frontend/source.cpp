// Finds a function's text by its code object's file and line, without `inspect`.
//
// Files are read once per process; what has no file (notebooks, REPL, exec) is asked from
// linecache. The end of a function is found by a light scan of its logical lines: brackets, strings
// and comments are skipped, and the first line that is not indented deeper than the `def` ends it.
// Cost: one pass over the function's text.

#include <cstdio>
#include <unordered_map>

#include "frontend/ast.h"
#include "frontend/names.h"

namespace qd::frontend {
namespace {

std::unordered_map<std::string, std::unique_ptr<SourceFile>>& files() {
    static auto* all = new std::unordered_map<std::string, std::unique_ptr<SourceFile>>;
    return *all;
}

bool read_file(const char* path, std::string& out) {
    std::FILE* f = std::fopen(path, "rb");
    if (!f) return false;
    char buffer[1 << 14];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, f)) > 0;) out.append(buffer, n);
    const bool ok = !std::ferror(f);
    std::fclose(f);
    return ok;
}

bool read_linecache(PyObject* filename, std::string& out) {
    Ref module = Ref::steal(PyImport_ImportModule("linecache"));
    Ref lines = Ref::steal(PyObject_CallMethod(module.get(), "getlines", "O", filename));
    if (!PyList_Check(lines.get()) || PyList_GET_SIZE(lines.get()) == 0) return false;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(lines.get()); ++k) {
        const char* text = PyUnicode_AsUTF8(PyList_GET_ITEM(lines.get(), k));
        if (!text) throw PyError{};
        out += text;
    }
    return true;
}

// In interactive sessions `dill` can know the history that linecache does not.
bool read_through_dill(PyObject* function, std::string& out) {
    Ref module = Ref::steal_or_null(PyImport_ImportModule("dill.source"));
    Ref lines =
        module ? Ref::steal_or_null(PyObject_CallMethod(module.get(), "getsource", "O", function))
               : Ref();
    const char* text = lines ? PyUnicode_AsUTF8(lines.get()) : nullptr;
    if (text) out = text;
    PyErr_Clear();
    return text != nullptr;
}

void split(SourceFile& f) {
    const std::string_view all = f.text;
    size_t at = 0;
    while (at < all.size()) {
        size_t end = all.find('\n', at);
        if (end == std::string_view::npos) end = all.size();
        size_t stop = end;
        if (stop > at && all[stop - 1] == '\r') --stop;
        f.lines.push_back(all.substr(at, stop - at));
        at = end + 1;
    }
}

const SourceFile* keep(std::string name, std::string text) {
    auto f = std::make_unique<SourceFile>();
    f->name = name;
    f->text = std::move(text);
    if (f->text.starts_with("\xEF\xBB\xBF")) f->text.erase(0, 3);
    split(*f);
    return (files()[std::move(name)] = std::move(f)).get();
}

size_t indent_of(std::string_view line) {
    const size_t n = line.find_first_not_of(" \t\f");
    return n == std::string_view::npos ? line.size() : n;
}
bool blank(std::string_view line) {
    const size_t n = line.find_first_not_of(" \t\f");
    return n == std::string_view::npos || line[n] == '#';
}

// Scanner state between physical lines.
struct Scan {
    int depth = 0;
    char quote = 0;       // open triple-quoted string
    bool joined = false;  // line ended in a backslash

    bool inside() const { return depth > 0 || quote != 0 || joined; }

    size_t skip_triple(std::string_view s, size_t k) {
        for (; k < s.size(); ++k) {
            if (s[k] == '\\') {
                ++k;
                continue;
            }
            if (s[k] == quote && s.substr(k, 3) == std::string(3, quote)) {
                quote = 0;
                return k + 3;
            }
        }
        return s.size();
    }
    void feed(std::string_view s) {
        joined = false;
        size_t k = quote ? skip_triple(s, 0) : 0;
        while (k < s.size()) {
            const char c = s[k];
            if (c == '#') return;
            if (c == '\\' && k + 1 == s.size()) {
                joined = true;
                return;
            }
            if (c == '(' || c == '[' || c == '{') ++depth;
            if (c == ')' || c == ']' || c == '}') --depth;
            if (c == '"' || c == '\'') {
                if (s.substr(k, 3) == std::string(3, c)) {
                    quote = c;
                    k = skip_triple(s, k + 3);
                    continue;
                }
                size_t e = k + 1;
                while (e < s.size() && s[e] != c) e += s[e] == '\\' ? 2 : 1;
                if (e >= s.size() && s.ends_with('\\')) joined = true;
                k = e + 1;
                continue;
            }
            ++k;
        }
    }
};

bool starts_def(std::string_view line) {
    line.remove_prefix(indent_of(line));
    return line.starts_with("def ") || line.starts_with("async def ") || line.starts_with("def\t");
}

// Last line (1-based) of the function that begins at `first`; 0 if there is none.
int block_end(const SourceFile& f, int first) {
    const auto& lines = f.lines;
    if (first < 1 || static_cast<size_t>(first) > lines.size()) return 0;
    const size_t base = indent_of(lines[first - 1]);
    Scan scan;
    bool seen_def = false;
    int last = 0;
    for (size_t k = first - 1; k < lines.size(); ++k) {
        const std::string_view line = lines[k];
        if (!scan.inside()) {
            if (blank(line)) continue;
            if (!seen_def) {
                if (starts_def(line))
                    seen_def = true;
                else if (line[indent_of(line)] != '@')
                    return 0;
            } else if (indent_of(line) <= base) {
                break;
            }
        }
        scan.feed(line);
        last = static_cast<int>(k) + 1;
    }
    return seen_def ? last : 0;
}

[[noreturn]] void no_source(PyObject* function) {
    PyErr_Format(PyExc_OSError, "Cannot find source code for Object: %R", function);
    throw PyError{};
}

}  // namespace

const Names& names() {
    static const Names* all = [] {
        auto* n = new Names;
#define X(name) n->name##_ = PyUnicode_InternFromString(#name);
        QD_NAMES(X)
#undef X
        return n;
    }();
    return *all;
}

const SourceFile* source_file(PyObject* filename) {
    const char* path = PyUnicode_AsUTF8(filename);
    if (!path) throw PyError{};
    if (auto it = files().find(path); it != files().end()) return it->second.get();
    std::string text;
    // Pseudo files such as <ipython-input-3> may be redefined, but never under the same name and
    // line.
    if (path[0] != '<' && read_file(path, text)) return keep(path, std::move(text));
    if (read_linecache(filename, text)) return keep(path, std::move(text));
    return nullptr;
}

std::string slice_of(const SourceFile& file, int first, int last) {
    std::string out;
    for (int k = first; k <= last && static_cast<size_t>(k) <= file.lines.size(); ++k) {
        out += file.lines[k - 1];
        out += '\n';
    }
    return out;
}

void parse_function(FunctionSource& s);  // ast.cpp

FunctionSource& source_of(PyObject* function) {
    static auto* all = new std::unordered_map<PyObject*, std::unique_ptr<FunctionSource>>;
    Ref code = Ref::steal(PyObject_GetAttr(function, names().__code___));
    auto& slot = (*all)[code.get()];
    if (slot) return *slot;
    auto s = std::make_unique<FunctionSource>();
    s->code = code;
    Ref name = Ref::steal(PyObject_GetAttr(code.get(), names().co_name_));
    Ref filename = Ref::steal(PyObject_GetAttr(code.get(), names().co_filename_));
    Ref line = Ref::steal(PyObject_GetAttr(code.get(), names().co_firstlineno_));
    s->name = PyUnicode_AsUTF8(name.get());
    s->first_line = static_cast<int>(PyLong_AsLong(line.get()));
    s->file = source_file(filename.get());
    s->last_line = s->file ? block_end(*s->file, s->first_line) : 0;
    if (!s->last_line) {
        const char* path = PyUnicode_AsUTF8(filename.get());
        std::string text;
        if (path[0] != '<' || !read_through_dill(function, text)) no_source(function);
        s->file = keep(std::string(path) + ":" + s->name, std::move(text));
        s->first_line = 1;
        s->last_line = block_end(*s->file, 1);
        if (!s->last_line) no_source(function);
    }
    s->text = slice_of(*s->file, s->first_line, s->last_line);
    parse_function(*s);
    slot = std::move(s);
    return *slot;
}

}  // namespace qd::frontend
