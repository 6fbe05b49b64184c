// print and assert: formatted text that the running kernel makes.
//
// A text is a list of literal pieces and conversions; a conversion without a spec is the type's
// natural one, which the runtime knows. Specs follow printf and are checked against the type here.

#include <algorithm>
#include <cstring>

#include "frontend/source/stack.h"
#include "frontend/specialise.h"
#include "frontend/values/builtins.h"

namespace qd::frontend {
namespace {

struct Text {
    ir::Format format;
    std::vector<Value*> operands;

    void literal(std::string_view s) {
        if (s.empty()) return;
        if (!format.pieces.empty() && !format.pieces.back().conversion)
            format.pieces.back().text += s;
        else
            format.pieces.push_back({std::string(s), 0});
    }
    void conversion(Value* v, std::string spec, char letter) {
        format.pieces.push_back({std::move(spec), letter});
        operands.push_back(v);
    }
};

std::string utf8(PyObject* s) {
    Py_ssize_t n = 0;
    const char* text = PyUnicode_AsUTF8AndSize(s, &n);
    if (!text) throw PyError{};
    return {text, static_cast<size_t>(n)};
}

// --- specs --------------------------------------------------------------------------------------
struct Spec {
    std::string flags;  // flags, width and precision
    char conversion = '*';
};

constexpr size_t kMostDigits = 6;  // of a width: what is printed is at most a megabyte

bool parse_spec(std::string_view text, Spec& out) {
    size_t at = 0;
    auto skip = [&](std::string_view set, size_t most = std::string_view::npos) {
        const size_t begin = at;
        while (at < text.size() && at - begin < most && set.find(text[at]) != set.npos) ++at;
        return at - begin;
    };
    const auto number = [&] {
        if (skip("0123456789") > kMostDigits)
            raise(Kind::type, "'" + std::string(text) + "' asks for too many characters",
                  "at most 999999 can be printed for a value");
    };
    skip("-+ #0");
    number();
    if (at < text.size() && text[at] == '.') ++at, number();
    out.flags = text.substr(0, at);
    if (!skip("l", 2)) skip("h", 2);  // length modifiers: the value's own width decides
    out.conversion = '*';
    if (at == text.size()) return true;
    constexpr std::string_view letters = "diuoxXfFeEgGaA";
    if (at + 1 != text.size() || letters.find(text[at]) == letters.npos) return false;
    out.conversion = text[at];
    return true;
}

bool fits(char conversion, Prim p) {
    if (conversion == '*') return true;
    if (type::is_float(p)) return std::strchr("fFeEgGaA", conversion) != nullptr;
    return std::strchr(type::is_signed(p) ? "di" : "uoxX", conversion) != nullptr;
}

void add_with_spec(Text& out, Value* v, const std::string& spec) {
    Spec parsed;
    const char* type = type::info(v->type.prim).name;
    if (!parse_spec(spec, parsed) || !fits(parsed.conversion, v->type.prim))
        raise(Kind::type, "'" + spec + "' doesn't match '" + type + "'.");
    out.conversion(v, parsed.flags, parsed.conversion);
}

// The spec of values in the messages of asserts, which have a notation of their own.
const char* const kShortest = "\x01";

// --- values -------------------------------------------------------------------------------------
void add(Text& out, PyObject* o, const std::string& spec);

void add_items(Text& out, PyObject* items, const std::string& spec) {
    out.literal("[");
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(items); ++k) {
        if (k) out.literal(", ");
        add(out, PySequence_Fast_GET_ITEM(items, k), spec);
    }
    out.literal("]");
}

void add_format(Text& out, PyObject* o) {
    PyObject* pieces = as_format(o)->pieces;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(pieces); ++k) {
        PyObject* piece = PyList_GET_ITEM(pieces, k);
        if (PyUnicode_Check(piece)) {
            out.literal(utf8(piece));
            continue;
        }
        PyObject* spec = PyTuple_GET_ITEM(piece, 1);
        add(out, PyTuple_GET_ITEM(piece, 0), spec == Py_None ? std::string() : utf8(spec));
    }
}

void add(Text& out, PyObject* o, const std::string& spec) {
    if (PyUnicode_Check(o)) return out.literal(utf8(o));
    if (is_format(o)) return add_format(out, o);
    if (is_empty_matrix(o)) return out.literal("[]");
    need_stack();
    if (PyList_Check(o) || (PyTuple_Check(o) && !is_number(o))) return add_items(out, o, spec);
    const bool value =
        is_expr(o) ? as_expr(o)->kind != ExprKind::array : is_number(o) || is_host_matrix(o);
    if (!value) invalid_scalar(o, "print its members or elements");
    Value* v = to_value(o);
    if (spec == kShortest)
        out.conversion(v, "", 'r');
    else if (spec.empty())
        out.conversion(v, "", '*');
    else
        add_with_spec(out, v, spec);
}

std::string separator(PyObject* value, const char* fallback, const char* name) {
    if (!value || value == Py_None) return fallback;
    if (!PyUnicode_Check(value))
        raise(Kind::type, std::string("print(): '") + name + "' must be a constant string");
    return utf8(value);
}

void emit(Op op, Text text, Value* condition) {
    std::vector<Value*> operands;
    if (condition) operands.push_back(condition);
    operands.insert(operands.end(), text.operands.begin(), text.operands.end());
    builder().emit(op, operands, {})->ref = own_format(std::move(text.format));
}

Ref print(Lowering& low, const CallArgs& a) {
    PyObject *sep = nullptr, *end = nullptr;
    for (const auto& [key, value] : a.keywords) {
        const std::string name = utf8(key.get());
        if (name == "sep")
            sep = value.get();
        else if (name == "end")
            end = value.get();
        else
            raise(Kind::type, "print() got an unexpected keyword argument '" + name + "'");
    }
    const std::string between = separator(sep, " ", "sep");
    Text text;
    for (size_t k = 0; k < a.positional.size(); ++k) {
        if (k) text.literal(between);
        add(text, a.positional[k].get(), "");
    }
    text.literal(separator(end, "\n", "end"));
    low.kernel->has_print = true;
    emit(Op::print, std::move(text), nullptr);
    return Ref::borrow(Py_None);
}

// assert: the condition is evaluated by the caller in every mode; only debug mode acts on it.
Ref assertion(Lowering& low, const CallArgs& a) {
    static const char* const names[] = {"condition", "message"};
    const auto p = parameters(a, "assert", names);
    Value* condition = to_condition(p[0], "assert");
    PyObject* message = p[1];
    if (message != Py_None && !PyUnicode_Check(message) && !is_format(message))
        raise(Kind::syntax, "assert info must be constant or formatted string");
    if (!low.kernel->options.debug) return Ref::borrow(Py_None);
    Text text;
    if (message == Py_None || PyUnicode_Check(message)) {
        if (message != Py_None) add(text, message, "");
    } else {
        PyObject* pieces = as_format(message)->pieces;
        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(pieces); ++k) {
            PyObject* piece = PyList_GET_ITEM(pieces, k);
            if (PyUnicode_Check(piece))
                text.literal(utf8(piece));
            else  // specs do not count
                add(text, PyTuple_GET_ITEM(piece, 0), kShortest);
        }
    }
    emit(Op::assert_, std::move(text), condition);
    return Ref::borrow(Py_None);
}

const Builtin kRows[] = {
    {"print", print},
    {"assert", assertion},
};

}  // namespace

std::span<const Builtin> print_builtins() { return kRows; }

}  // namespace qd::frontend
