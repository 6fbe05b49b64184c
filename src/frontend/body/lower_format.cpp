// f-strings, "...".format(...) and "..." % values: texts whose symbolic parts are formatted when
// the kernel runs. Constants are rendered by Python at once, but numbers with a spec follow printf
// like all else.

#include "cpython/entry.h"
#include "frontend/body/body.h"
#include "frontend/facts/contents.h"
#include "frontend/facts/hooks.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

using Body = Lowering::Body;

void free_format(PyObject* self) {
    Py_XDECREF(as_format(self)->pieces);
    Py_TYPE(self)->tp_free(self);
}

// Pieces being collected; neighbouring texts are joined.
struct Pieces {
    Ref list = Ref::steal(PyList_New(0));
    std::string literal;
    bool symbolic = false;
    bool is_static = false;  // a text that is needed while compiling

    void flush() {
        if (literal.empty()) return;
        Ref s = Ref::steal(
            PyUnicode_FromStringAndSize(literal.data(), static_cast<Py_ssize_t>(literal.size())));
        if (PyList_Append(list.get(), s.get()) < 0) throw PyError{};
        literal.clear();
    }
    void add_text(PyObject* s) {
        const char* c = PyUnicode_AsUTF8(s);
        if (!c) throw PyError{};
        literal += c;
    }
    void add(PyObject* value, PyObject* spec, bool ignore_spec = false) {
        if (is_format(value)) {
            flush();
            PyObject* inner = as_format(value)->pieces;
            for (Py_ssize_t k = 0; k < PyList_GET_SIZE(inner); ++k)
                if (PyList_Append(list.get(), PyList_GET_ITEM(inner, k)) < 0) throw PyError{};
            symbolic = true;
            return;
        }
        if (!ignore_spec && spec && !PyUnicode_Check(spec))
            raise(Kind::syntax, "The format of a value must be known while compiling",
                  "it holds a run-time value; write it out, or pass it as a qd.template()");
        const bool has_spec = !ignore_spec && spec && PyUnicode_GetLength(spec) > 0;
        if (!is_static && is_host_matrix(value))
            return add(make_value(to_value(value)).get(), spec, ignore_spec);
        if (!is_symbolic(value) && (is_static || !has_spec || !is_number(value))) {
            Ref s = Ref::steal_or_null(PyObject_Format(value, has_spec ? spec : nullptr));
            if (!s && PyErr_ExceptionMatches(PyExc_ValueError)) {
                forget_error();
                raise(Kind::type,
                      "'" + text(spec) + "' doesn't match '" + Py_TYPE(value)->tp_name + "'.");
            }
            if (!s) throw PyError{};
            return add_text(s.get());
        }
        flush();
        symbolic = true;
        // A variable is read now: the text shows its value at this point.
        Ref now = map_leaves(value, [](PyObject* e) { return to_rvalue(e); });
        Ref piece = Ref::steal(PyTuple_Pack(2, now.get(), has_spec ? spec : Py_None));
        if (PyList_Append(list.get(), piece.get()) < 0) throw PyError{};
    }
    Ref finish() {
        if (!symbolic)
            return Ref::steal(PyUnicode_FromStringAndSize(literal.data(),
                                                          static_cast<Py_ssize_t>(literal.size())));
        flush();
        Ref out = Ref::steal(FormatValue_Type.tp_alloc(&FormatValue_Type, 0));
        as_format(out.get())->pieces = list.release();
        return out;
    }
};

}  // namespace

PyTypeObject FormatValue_Type = {
    .ob_base = {{1, nullptr}, 0},
    .tp_name = "quadrants._lib.core.FormatValue",
    .tp_basicsize = sizeof(FormatObject),
    .tp_dealloc = entry<free_format>,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A text with values that are known when the kernel runs.",
};

Ref Body::joined_string(const Node* n) {
    static const bool ready = PyType_Ready(&FormatValue_Type) == 0;
    if (!ready) throw PyError{};
    Pieces out;
    out.is_static = low.static_depth > 0;
    for (const Node* part : n->list) {
        if (part->kind == NodeKind::Constant) {
            out.add_text(part->name);
            continue;
        }
        Val v = expr(part->a);
        Ref spec = part->b ? joined_string(part->b) : Ref();
        low.node = n;
        const bool pythons = !is_symbolic(v.get()) && !is_format(v.get());
        refuse_at_launch(v.prov);
        if (pythons && part->op) {
            const char* name = part->op == 'r' ? "repr" : part->op == 'a' ? "ascii" : "str";
            const auto run = part->op == 'r'   ? &PyObject_Repr
                             : part->op == 'a' ? &PyObject_ASCII
                                               : &PyObject_Str;
            v = builtin(name, {&v, 1}, [&] { return Ref::steal_or_null(run(v.get())); });
        } else if (pythons && !unit.settle(v.get(), v.prov) && !is_number(v.get())) {
            const bool plain = !spec || PyUnicode_CheckExact(spec.get());
            const Val operands[] = {v, {spec ? spec : Ref::steal(PyUnicode_New(0, 0))}};
            const auto run = [&] {
                return Ref::steal_or_null(PyObject_Format(v.get(), spec.get()));
            };
            v = plain ? builtin("format", operands, run)
                      : recorded("format", nullptr, operands, nullptr, true, run);
            spec = {};
        } else {
            unit.consume(v);
        }
        if (pythons && shows_array(v.get())) unit.opaque("how NumPy prints an array");
        out.add(v.get(), spec.get());
    }
    return out.finish();
}

Ref Body::format_call(PyObject* format, const CallArgs& args) {
    static const bool ready = PyType_Ready(&FormatValue_Type) == 0;
    if (!ready) throw PyError{};
    const char* c = PyUnicode_AsUTF8(format);
    if (!c) throw PyError{};
    const std::string_view s = c;
    Pieces out;
    out.is_static = low.static_depth > 0;
    size_t automatic = 0, needed = 0;
    std::optional<std::string> missing;
    std::vector<bool> used(args.keywords.size());
    for (size_t k = 0; k < s.size(); ++k) {
        if (s[k] == '{' && k + 1 < s.size() && s[k + 1] == '{') {
            out.literal += '{';
            ++k;
            continue;
        }
        if (s[k] == '}') {
            out.literal += '}';
            if (k + 1 < s.size() && s[k + 1] == '}') ++k;
            continue;
        }
        if (s[k] != '{') {
            out.literal += s[k];
            continue;
        }
        const size_t close = s.find('}', k);
        if (close == s.npos) raise(Kind::value, "Single '{' encountered in format string");
        const std::string_view inside = s.substr(k + 1, close - k - 1);
        const size_t colon = inside.find(':');
        const std::string key(inside.substr(0, colon));
        const std::string spec_text(colon == inside.npos ? std::string_view()
                                                         : inside.substr(colon + 1));
        k = close;
        if (key.find_first_of(".[!") != key.npos)
            raise(Kind::syntax, "'{" + key + "}' is not supported in format().");
        PyObject* value = nullptr;
        if (key.empty() || std::isdigit(static_cast<unsigned char>(key[0]))) {
            const size_t at = key.empty() ? automatic++ : std::stoul(key);
            needed = std::max(needed, at + 1);
            if (at < args.positional.size()) value = args.positional[at].get();
        } else {
            for (size_t i = 0; i < args.keywords.size(); ++i)
                if (!PyUnicode_CompareWithASCIIString(args.keywords[i].first.get(), key.c_str())) {
                    value = args.keywords[i].second.get();
                    used[i] = true;
                }
            if (!value) missing = key;
        }
        Ref spec = Ref::steal(PyUnicode_FromString(spec_text.c_str()));
        if (value && shows_array(value)) unit.opaque("how NumPy prints an array");
        if (value && !is_symbolic(value) && !is_format(value) && may_run("format", value)) {
            user_code_runs();
            unit.opaque("how an object is formatted");
        }
        if (value) out.add(value, spec.get());
    }
    if (needed != args.positional.size())
        raise(Kind::syntax, "Expected " + std::to_string(needed) +
                                " positional argument(s), but received " +
                                std::to_string(args.positional.size()) + " instead.");
    if (missing) raise(Kind::syntax, "Keyword '" + *missing + "' not found.");
    for (size_t i = 0; i < used.size(); ++i)
        if (!used[i])
            raise(Kind::syntax, "Keyword '" + text(args.keywords[i].first.get()) + "' not used.");
    return out.finish();
}

Ref Body::percent_format(PyObject* format, PyObject* values) {
    static const bool ready = PyType_Ready(&FormatValue_Type) == 0;
    if (!ready) throw PyError{};
    if (!is_symbolic(values)) return Ref::steal(PyUnicode_Format(format, values));
    std::vector<PyObject*> items;
    if (PyTuple_Check(values))
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k)
            items.push_back(PyTuple_GET_ITEM(values, k));
    else
        items.push_back(values);
    const std::string_view s = PyUnicode_AsUTF8(format);
    Pieces out;
    size_t next = 0;
    for (size_t k = 0; k < s.size(); ++k) {
        if (s[k] != '%') {
            out.literal += s[k];
            continue;
        }
        if (k + 1 < s.size() && s[k + 1] == '%') {
            out.literal += '%';
            ++k;
            continue;
        }
        size_t e = k + 1;
        while (e < s.size() && !std::isalpha(static_cast<unsigned char>(s[e]))) ++e;
        k = e;
        if (next >= items.size()) raise(Kind::type, "not enough arguments for format string");
        out.add(items[next++], nullptr, true);
    }
    return out.finish();
}

}  // namespace qd::frontend
