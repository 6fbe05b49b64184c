// Finds a function's text by its code object's file and line, without `inspect`.
//
// Files are read once per process; what has no file (notebooks, REPL, exec) is asked from
// linecache, then from lang/_inspect/typed_source.py (archives, typed and passed programs). The end
// of a function is found by a light scan of its logical lines: brackets, strings and comments are
// skipped, and the first line that is not indented deeper than the `def` ends it. Cost: one pass
// over the function's text.

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>

#include <cctype>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unordered_map>

#include "cpython/names.h"
#include "frontend/source/ast.h"

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

bool is_utf8(const std::string& text) {
    if (std::ranges::none_of(text, [](char c) { return c & 0x80; })) return true;
    const Ref decoded = Ref::steal_or_null(
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "strict"));
    forget_error();
    return bool(decoded);
}

// Whether a comment in the first two lines names an encoding other than UTF-8 (PEP 263). Bytes of
// many encodings are valid UTF-8 too, and mean something else. A cookie that is none costs some
// time only.
bool names_other_encoding(const std::string& text) {
    size_t begin = 0;
    for (int k = 0; k < 2 && begin < text.size(); ++k) {
        const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
        const std::string_view line = std::string_view(text).substr(begin, end - begin);
        const size_t at = std::min(line.find("coding:"), line.find("coding="));
        if (at != std::string_view::npos && line.find('#') < at) {
            std::string name;
            for (const char c : line.substr(at + 7))
                if (std::isalnum(static_cast<unsigned char>(c)))
                    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
                else if (!name.empty() && c != '-' && c != '_')
                    break;
            if (!name.starts_with("utf8")) return true;
        }
        begin = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
    }
    return false;
}

double seconds(const timespec& t) {
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double clock_seconds(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return seconds(t);
}

// When this process began, in seconds since the epoch; a file as old as that may have changed
// since.
double process_start() {
    static const double start = [] {
        std::string text;
        if (!read_file("/proc/self/stat", text)) return 0.0;
        size_t at = text.rfind(')');  // the program's name may hold anything
        for (int field = 2; at != std::string::npos && field < 22; ++field)
            at = text.find(' ', at + 1);
        if (at == std::string::npos) return 0.0;
        const double ticks = std::strtod(text.c_str() + at, nullptr);
        const double age =
            clock_seconds(CLOCK_BOOTTIME) - ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
        return clock_seconds(CLOCK_REALTIME) - age - 0.05;
    }();
    return start;
}

// A forked child has what its parent imported.
[[maybe_unused]] const bool start_is_known_to_children =
    pthread_atfork([] { process_start(); }, nullptr, nullptr) == 0;

uint64_t stamp_of(const struct stat& info) {
    const auto nanoseconds = [](const timespec& t) {
        return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
    };
    uint64_t stamp = nanoseconds(info.st_mtim);
    for (const uint64_t part : {nanoseconds(info.st_ctim), static_cast<uint64_t>(info.st_size),
                                static_cast<uint64_t>(info.st_ino)})
        stamp = stamp * 31 + part;
    return stamp + 1;
}

// Whether a link on the way was set, or a folder renamed, while this process was running: files as
// old as they like may stand behind the path since then (releases/7 behind `current`). What is
// made in a folder changes both of its times, a new name for it changes one.
bool leads_elsewhere(std::string path) {
    for (int links = 0; links < 40; ++links) {
        size_t at = 0;
        bool followed = false;
        while (!followed && (at = path.find('/', at + 1)) != std::string::npos) {
            const std::string part = path.substr(0, at);
            struct stat info;
            if (::lstat(part.c_str(), &info) != 0) return true;
            const bool renamed = seconds(info.st_ctim) >= process_start();
            if (S_ISDIR(info.st_mode) && renamed && seconds(info.st_mtim) < process_start())
                return true;
            if (!S_ISLNK(info.st_mode)) continue;
            if (renamed) return true;
            char target[PATH_MAX];
            const ssize_t n = ::readlink(part.c_str(), target, sizeof target);
            if (n <= 0) return true;
            const std::string to(target, static_cast<size_t>(n));
            path = (to[0] == '/' ? to : part.substr(0, part.rfind('/') + 1) + to) + path.substr(at);
            followed = true;
        }
        if (!followed) return false;
    }
    return true;
}

void list_functions(CompiledText& all, PyObject* code) {
    const Ref consts = Ref::steal(PyObject_GetAttrString(code, "co_consts"));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(consts.get()); ++k) {
        PyObject* o = PyTuple_GET_ITEM(consts.get(), k);  // kept alive by its code object
        if (!PyCode_Check(o)) continue;
        all.functions[reinterpret_cast<PyCodeObject*>(o)->co_firstlineno].push_back(o);
        list_functions(all, o);
    }
}

// By line and, if one there has it, name.
PyObject* code_at(const CompiledText& text, PyObject* name, int line) {
    const auto it = text.functions.find(line);
    if (it == text.functions.end()) return nullptr;
    for (PyObject* o : it->second)
        if (PyUnicode_Compare(reinterpret_cast<PyCodeObject*>(o)->co_name, name) == 0) return o;
    return it->second.front();
}

// While it lives, compiling warns of nothing: who imported the text was told, and warnings that are
// errors do not make it another text. No Python code runs for it, so no other thread sees it.
class Hushed {
  public:
    Hushed()
        : module_(Ref::steal(PyImport_ImportModule("warnings"))),
          old_(Ref::steal_or_null(PyObject_GetAttrString(module_.get(), "filters"))),
          mine_(Ref::steal(
              Py_BuildValue("[(sOOOi)]", "ignore", Py_None, PyExc_Warning, Py_None, 0))) {
        if (!old_ || PyObject_SetAttrString(module_.get(), "filters", mine_.get()) < 0)
            forget_error();
    }
    ~Hushed() {
        const Ref now = Ref::steal_or_null(PyObject_GetAttrString(module_.get(), "filters"));
        if (old_ && now.get() == mine_.get())
            PyObject_SetAttrString(module_.get(), "filters", old_.get());
        forget_error();
    }
    Hushed(const Hushed&) = delete;
    Hushed& operator=(const Hushed&) = delete;

  private:
    Ref module_, old_, mine_;
};

// The text of a file as code; null if it is none. `flags`: of __future__.
const CompiledText* compiled(const SourceFile& file, int flags, int optimize) {
    CompiledText& all = file.compiled[{flags, optimize}];
    if (!all.code) {
        PyCompilerFlags how{};
        how.cf_flags = flags | PyCF_IGNORE_COOKIE;  // the text is UTF-8, whatever the file was
        how.cf_feature_version = PY_MINOR_VERSION;
        const Hushed hushed;
        CompiledText made{
            .code = Ref::steal_or_null(Py_CompileStringExFlags(file.text.c_str(), file.name.c_str(),
                                                               Py_file_input, &how, optimize))};
        if (!made.code) return forget_error(), nullptr;
        list_functions(made, made.code.get());
        if (!all.code) all = std::move(made);  // finalisers may have asked meanwhile
    }
    return &all;
}

// `mine` may have been given a name of its own: code.replace(co_name=...).
bool equal_but_for_names(PyObject* now, PyCodeObject* mine) {
    const Ref renamed = Ref::steal(PyObject_GetAttrString(now, "replace"));
    const Ref none = Ref::steal(PyTuple_New(0));
#if PY_VERSION_HEX >= 0x030B0000
    const Ref names = Ref::steal(
        Py_BuildValue("{sOsO}", "co_name", mine->co_name, "co_qualname", mine->co_qualname));
#else
    const Ref names = Ref::steal(Py_BuildValue("{sO}", "co_name", mine->co_name));
#endif
    const Ref same = Ref::steal(PyObject_Call(renamed.get(), none.get(), names.get()));
    return PyObject_RichCompareBool(same.get(), reinterpret_cast<PyObject*>(mine), Py_EQ) == 1;
}

// A file's text in the encoding that it names. Not by linecache, which knows an edited file by its
// size and time only. False if Python can't decode it.
bool read_encoded(PyObject* filename, std::string& out) {
    const Ref module = Ref::steal(PyImport_ImportModule("tokenize"));
    const Ref file = Ref::steal_or_null(PyObject_CallMethod(module.get(), "open", "O", filename));
    const Ref text =
        file ? Ref::steal_or_null(PyObject_CallMethod(file.get(), "read", nullptr)) : Ref();
    const char* decoded = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (decoded) out = decoded;
    forget_error();
    if (file) Ref::steal_or_null(PyObject_CallMethod(file.get(), "close", nullptr));
    forget_error();
    return decoded != nullptr;
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

// Text and first line of a function that no file holds: lang/_inspect/typed_source.py.
bool read_typed(PyObject* function, std::string& out, int& first) {
    Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang._inspect.typed_source"));
    Ref found = Ref::steal(PyObject_CallMethod(module.get(), "find", "O", function));
    if (found.get() == Py_None) return false;
    const char* text = nullptr;
    if (!PyArg_ParseTuple(found.get(), "si", &text, &first)) throw PyError{};
    out = text;
    return true;
}

void split(SourceFile& f) {
    const std::string_view all = f.text;
    size_t at = 0;
    while (at < all.size()) {
        const size_t end = std::min(all.find_first_of("\r\n", at), all.size());
        f.lines.push_back(all.substr(at, end - at));
        at = end + (all.substr(end, 2) == "\r\n" ? 2 : 1);
    }
}

// `key` says which file it is, `name` is what messages call it.
const SourceFile* keep(std::string key, std::string name, std::string text,
                       const struct stat* info = nullptr) {
    auto f = std::make_unique<SourceFile>();
    f->name = std::move(name);
    f->text = std::move(text);
    if (f->text.starts_with("\xEF\xBB\xBF")) f->text.erase(0, 3);
    if (info) {
        f->stamp = stamp_of(*info);
        // A copy that keeps times, or a file moved here, shows an old time of writing.
        // A relative name may have meant another file before os.chdir.
        f->suspect = !f->name.starts_with('/') || files().contains(key) ||
                     std::max(seconds(info->st_mtim), seconds(info->st_ctim)) >= process_start() ||
                     leads_elsewhere(f->name);
    }
    split(*f);
    static auto* retired = new std::vector<std::unique_ptr<SourceFile>>;  // functions refer to them
    if (auto& old = files()[key]) {
        f->older = old.get();
        retired->push_back(std::move(old));
    }
    return (files()[std::move(key)] = std::move(f)).get();
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
    char single = 0;      // open string of one line that a backslash continues
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
    // Behind the end of a string of one line; k: behind its first quote.
    size_t skip_single(std::string_view s, size_t k, char c) {
        while (k < s.size() && s[k] != c) k += s[k] == '\\' ? 2 : 1;
        joined = k >= s.size() && s.ends_with('\\');
        single = joined ? c : 0;
        return k + 1;
    }
    void feed(std::string_view s) {
        joined = false;
        size_t k = quote ? skip_triple(s, 0) : single ? skip_single(s, 0, single) : 0;
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
                k = skip_single(s, k + 1, c);
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

[[noreturn]] void changed_source(const FunctionSource& s) {
    const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang.exception"));
    const Ref cls = Ref::steal(PyObject_GetAttrString(module.get(), "QuadrantsRuntimeError"));
    PyErr_Format(cls.get(),
                 "File \"%s\", line %d, in %s:\nthe source has changed on disk since it was "
                 "imported; import it again, or start the program again",
                 s.file->name.c_str(), s.first_line, s.name.c_str());
    throw PyError{};
}

}  // namespace

// Whether the text compiles to this code; `now`: what it has in its place.
static bool gives(const SourceFile& file, PyObject* code, PyObject*& now) {
    auto* mine = reinterpret_cast<PyCodeObject*>(code);
    // -1: as this interpreter was started; who compiles a text by hand may have asked for others.
    for (const int optimize : {-1, 0, 1, 2}) {
        const CompiledText* whole = compiled(file, mine->co_flags & PyCF_MASK, optimize);
        if (!whole) return now = nullptr, false;
        now = code_at(*whole, mine->co_name, mine->co_firstlineno);
        if (now && equal_but_for_names(now, mine)) return true;
    }
    return false;
}

// What `path` stands for now.
static const SourceFile* newest(const char* path, PyObject* filename) {
    struct stat info;
    const bool exists = path[0] != '<' && ::stat(path, &info) == 0;
    const auto it = files().find(path);
    const SourceFile* known = it == files().end() ? nullptr : it->second.get();
    // A pipe has been read to its end by who compiled it, and may block who reads on.
    if (exists && !S_ISREG(info.st_mode)) return known;
    if (exists && known && known->stamp == stamp_of(info)) return known;
    std::string text;
    if (exists && read_file(path, text)) {
        std::string decoded;
        if ((names_other_encoding(text) || !is_utf8(text)) && read_encoded(filename, decoded))
            text = std::move(decoded);
        return keep(path, path, std::move(text), &info);
    }
    // Texts that programs put there under made-up names may be replaced under the same name.
    if (read_linecache(filename, text) && !(known && known->text == text))
        known = keep(path, path, std::move(text));
    return known;
}

const SourceFile* source_file(PyObject* filename, PyObject* code) {
    const char* path = PyUnicode_AsUTF8(filename);
    if (!path) throw PyError{};
    const SourceFile* now = newest(path, filename);
    PyObject* found = nullptr;
    if (code && now && now->older && !(now->stamp && is_source_of(*now, code)))
        for (const SourceFile* f = now; f; f = f->older)
            if (gives(*f, code, found)) return f;
    return now;
}

bool is_source_of(const SourceFile& file, PyObject* code) {
    PyObject* now = nullptr;
    if (!file.suspect || gives(file, code, now)) return true;
    // Tests whose asserts were rewritten have code that no compilation of their text gives.
    const Ref variables = Ref::steal(PyObject_GetAttrString(code, "co_varnames"));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(variables.get()); ++k)
        if (PyUnicode_ReadChar(PyTuple_GET_ITEM(variables.get(), k), 0) == '@')
            return now != nullptr;
    return false;
}

std::string slice_of(const SourceFile& file, int first, int last) {
    std::string out;
    for (int k = first; k <= last && static_cast<size_t>(k) <= file.lines.size(); ++k) {
        out += file.lines[k - 1];
        out += '\n';
    }
    return out;
}

// ast.cpp. True: those who keep trees are to be told of it.
bool parse_function(FunctionSource& s);
void lend_probes(const FunctionSource& s, PyObject* function);
void tell_parsed(FunctionSource& s);

FunctionSource& source_of(PyObject* function) {
    static auto* all = new std::unordered_map<PyObject*, std::unique_ptr<FunctionSource>>;
    Ref code = Ref::steal(PyObject_GetAttr(function, names().__code___));
    if (const auto it = all->find(code.get()); it != all->end()) {
        FunctionSource& known = *it->second;
        lend_probes(known, function);
        return known;
    }
    auto s = std::make_unique<FunctionSource>();
    s->code = code;
    Ref name = Ref::steal(PyObject_GetAttr(code.get(), names().co_name_));
    Ref filename = Ref::steal(PyObject_GetAttr(code.get(), names().co_filename_));
    Ref line = Ref::steal(PyObject_GetAttr(code.get(), names().co_firstlineno_));
    s->name = PyUnicode_AsUTF8(name.get());
    s->first_line = static_cast<int>(PyLong_AsLong(line.get()));
    s->file = source_file(filename.get(), code.get());
    if (s->file && !is_source_of(*s->file, code.get())) changed_source(*s);
    s->last_line = s->file ? block_end(*s->file, s->first_line) : 0;
    if (!s->last_line) {
        const char* path = PyUnicode_AsUTF8(filename.get());
        std::string text;
        if (!read_typed(function, text, s->first_line)) no_source(function);
        s->file = keep(std::string(path) + ":" + s->name, path, std::move(text));
        s->last_line = block_end(*s->file, s->first_line);
        if (!s->last_line) no_source(function);
    }
    s->text = slice_of(*s->file, s->first_line, s->last_line);
    const bool parsed = parse_function(*s);
    lend_probes(*s, function);
    // Python ran meanwhile: what another thread made stays, since it walks that tree.
    auto& slot = (*all)[code.get()];
    if (slot) return *slot;
    slot = std::move(s);
    if (parsed) tell_parsed(*slot);  // who keeps it until the process ends
    return *slot;
}

}  // namespace qd::frontend
