// Converts CPython's `ast` objects to Nodes: one row per class says which field goes where.
//
// The function's lines are parsed as they stand in the file, under an `if 1:` when they are
// indented, so columns need no correction and multi-line strings keep their text.
// Cost: a few attribute look-ups per node, once per function.

#include "frontend/source/ast.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "cpython/names.h"
#include "frontend/source/stack.h"
#include "support/error.h"

namespace qd::frontend {
namespace {

using K = NodeKind;

struct Row {
    K kind;
    const char* name;
    const char *a = nullptr, *b = nullptr, *c = nullptr, *list = nullptr, *list2 = nullptr,
               *text = nullptr;
};

constexpr Row kRows[] = {
    {.kind = K::FunctionDef, .name = "FunctionDef"},
    {.kind = K::Return, .name = "Return", .a = "value"},
    {.kind = K::Assign, .name = "Assign", .a = "value", .list = "targets"},
    {.kind = K::AugAssign, .name = "AugAssign", .a = "target", .b = "value"},
    {.kind = K::AnnAssign, .name = "AnnAssign", .a = "target", .b = "annotation", .c = "value"},
    {.kind = K::For, .name = "For", .a = "target", .b = "iter", .list = "body", .list2 = "orelse"},
    {.kind = K::While, .name = "While", .a = "test", .list = "body", .list2 = "orelse"},
    {.kind = K::If, .name = "If", .a = "test", .list = "body", .list2 = "orelse"},
    {.kind = K::With, .name = "With", .list = "items", .list2 = "body"},
    {.kind = K::Assert, .name = "Assert", .a = "test", .b = "msg"},
    {.kind = K::Expr, .name = "Expr", .a = "value"},
    {.kind = K::Pass, .name = "Pass"},
    {.kind = K::Break, .name = "Break"},
    {.kind = K::Continue, .name = "Continue"},
    {.kind = K::BoolOp, .name = "BoolOp", .list = "values"},
    {.kind = K::NamedExpr, .name = "NamedExpr", .a = "target", .b = "value"},
    {.kind = K::BinOp, .name = "BinOp", .a = "left", .b = "right"},
    {.kind = K::UnaryOp, .name = "UnaryOp", .a = "operand"},
    {.kind = K::IfExp, .name = "IfExp", .a = "test", .b = "body", .c = "orelse"},
    {.kind = K::Dict, .name = "Dict", .list = "keys", .list2 = "values"},
    {.kind = K::ListComp, .name = "ListComp", .a = "elt", .list = "generators"},
    {.kind = K::DictComp, .name = "DictComp", .a = "key", .b = "value", .list = "generators"},
    {.kind = K::Compare, .name = "Compare", .a = "left", .list = "comparators"},
    {.kind = K::Call, .name = "Call", .a = "func", .list = "args", .list2 = "keywords"},
    {.kind = K::FormattedValue, .name = "FormattedValue", .a = "value", .b = "format_spec"},
    {.kind = K::JoinedStr, .name = "JoinedStr", .list = "values"},
    {.kind = K::Constant, .name = "Constant", .text = "value"},
    {.kind = K::Attribute, .name = "Attribute", .a = "value", .text = "attr"},
    {.kind = K::Subscript, .name = "Subscript", .a = "value", .b = "slice"},
    {.kind = K::Starred, .name = "Starred", .a = "value"},
    {.kind = K::Name, .name = "Name", .text = "id"},
    {.kind = K::List, .name = "List", .list = "elts"},
    {.kind = K::Tuple, .name = "Tuple", .list = "elts"},
    {.kind = K::Slice, .name = "Slice", .a = "lower", .b = "upper", .c = "step"},
    {.kind = K::comprehension, .name = "comprehension", .a = "target", .b = "iter", .list = "ifs"},
    {.kind = K::keyword, .name = "keyword", .a = "value", .text = "arg"},
    {.kind = K::withitem, .name = "withitem", .a = "context_expr", .b = "optional_vars"},
};

struct OpName {
    const char* name;
    uint8_t op;
};
constexpr uint8_t code(auto op) { return static_cast<uint8_t>(op); }
constexpr OpName kOperators[] = {
    {"Add", code(ir::Op::add)},
    {"Sub", code(ir::Op::sub)},
    {"Mult", code(ir::Op::mul)},
    {"Div", code(ir::Op::div)},
    {"FloorDiv", code(ir::Op::floordiv)},
    {"Mod", code(ir::Op::mod)},
    {"Pow", code(ir::Op::pow)},
    {"BitAnd", code(ir::Op::bit_and)},
    {"BitOr", code(ir::Op::bit_or)},
    {"BitXor", code(ir::Op::bit_xor)},
    {"LShift", code(ir::Op::shl)},
    {"RShift", code(ir::Op::shr)},
    {"MatMult", code(ir::Op::matmul)},
    {"Lt", code(ir::Op::lt)},
    {"LtE", code(ir::Op::le)},
    {"Gt", code(ir::Op::gt)},
    {"GtE", code(ir::Op::ge)},
    {"Eq", code(ir::Op::eq)},
    {"NotEq", code(ir::Op::ne)},
    {"Is", kIs},
    {"IsNot", kIsNot},
    {"In", kIn},
    {"NotIn", kNotIn},
    {"USub", code(UnOp::neg)},
    {"UAdd", code(UnOp::pos)},
    {"Invert", code(UnOp::bit_not)},
    {"Not", code(UnOp::logical_not)},
    {"And", 0},
    {"Or", 1},
};

// A row with its field names interned, by ast class.
struct Fields {
    K kind = K::unsupported;
    PyObject *a = nullptr, *b = nullptr, *c = nullptr, *list = nullptr, *list2 = nullptr,
             *text = nullptr;
};

struct Tables {
    std::unordered_map<PyTypeObject*, Fields> classes;
    std::unordered_map<PyTypeObject*, uint8_t> operators;
    PyObject *op, *ops, *conversion, *elt;
};

const char* class_name(PyTypeObject* t) {
    const char* dot = std::strrchr(t->tp_name, '.');
    return dot ? dot + 1 : t->tp_name;
}
PyObject* interned(const char* s) {
    return s ? Ref::steal(PyUnicode_InternFromString(s)).release() : nullptr;
}

Tables& tables() {
    static auto* t = new Tables{
        {}, {}, interned("op"), interned("ops"), interned("conversion"), interned("elt")};
    return *t;
}

const Fields& fields_of(PyTypeObject* type) {
    auto& known = tables().classes;
    if (const auto it = known.find(type); it != known.end()) return it->second;
    Fields fields{};
    for (const Row& r : kRows)
        if (!std::strcmp(r.name, class_name(type)))
            fields = {r.kind,           interned(r.a),     interned(r.b),   interned(r.c),
                      interned(r.list), interned(r.list2), interned(r.text)};
    return known.emplace(type, fields).first->second;
}

uint8_t operator_of(PyObject* op) {
    auto [it, made] = tables().operators.try_emplace(Py_TYPE(op));
    if (made)
        for (const OpName& o : kOperators)
            if (!std::strcmp(o.name, class_name(Py_TYPE(op)))) it->second = o.op;
    return it->second;
}

// Coverage's stores: `_qd_cov[n] = 1`.
bool is_probe(const Node* n) {
    if (!n || n->kind != K::Assign || n->list.size() != 1) return false;
    const Node* target = n->list[0];
    return target->kind == K::Subscript && target->a->kind == K::Name &&
           PyUnicode_CompareWithASCIIString(target->a->name, "_qd_cov") == 0;
}

struct Converter {
    support::Arena& arena;
    std::vector<Ref>& values;
    std::vector<PyObject*>& objects;
    std::vector<Node*> placed;  // whose places are asked for always
    std::unordered_map<const Node*, const Node*> probes;

    Node* child(PyObject* o, PyObject* field) {
        if (!field) return nullptr;
        Ref v = Ref::steal(PyObject_GetAttr(o, field));
        return v.get() == Py_None ? nullptr : node(v.get());
    }
    std::span<Node*> children(PyObject* o, PyObject* field) {
        if (!field) return {};
        Ref v = Ref::steal(PyObject_GetAttr(o, field));
        return list(v.get());
    }
    std::span<Node*> list(PyObject* v) {
        const size_t n = static_cast<size_t>(PyList_GET_SIZE(v));
        Node** data = arena.array<Node*>(n);
        size_t kept = 0;
        Node* probe = nullptr;
        for (size_t k = 0; k < n; ++k) {
            PyObject* item = PyList_GET_ITEM(v, k);
            Node* made = item == Py_None ? nullptr : node(item);
            if (is_probe(made)) {
                probe = made;
                continue;
            }
            if (probe) probes.emplace(made, std::exchange(probe, nullptr));
            data[kept++] = made;
        }
        if (probe) {  // in the place of a missing `else`
            Node* nothing = arena.make<Node>(*probe);
            nothing->kind = K::Pass;
            probes.emplace(nothing, probe);
            data[kept++] = nothing;
        }
        return {data, kept};
    }
    Node* node(PyObject* o) {
        need_stack();
        Node* n = arena.make<Node>();
        n->number = static_cast<uint32_t>(objects.size());
        objects.push_back(o);
        const Fields f = fields_of(Py_TYPE(o));
        n->kind = f.kind;
        if (keeps_place(*n)) placed.push_back(n);
        n->a = child(o, f.a);
        n->b = child(o, f.b);
        n->c = child(o, f.c);
        n->list = children(o, f.list);
        n->list2 = children(o, f.list2);
        if (f.text) {
            Ref v = Ref::steal(PyObject_GetAttr(o, f.text));
            if (f.kind != K::Constant && v.get() != Py_None) {
                PyObject* s = v.release();
                PyUnicode_InternInPlace(&s);
                v = Ref::steal(s);
            }
            n->name = v.get();
            values.push_back(std::move(v));
        }
        read_operators(*n, o);
        return n;
    }
    void read_operators(Node& n, PyObject* o) {
        if (n.kind == K::BinOp || n.kind == K::UnaryOp || n.kind == K::BoolOp ||
            n.kind == K::AugAssign) {
            n.op = operator_of(Ref::steal(PyObject_GetAttr(o, tables().op)).get());
        } else if (n.kind == K::FormattedValue) {
            Ref v = Ref::steal(PyObject_GetAttr(o, tables().conversion));
            const long conversion = PyLong_AsLong(v.get());
            n.op = conversion < 0 ? 0 : static_cast<uint8_t>(conversion);
        } else if (n.kind == K::Compare) {
            Ref v = Ref::steal(PyObject_GetAttr(o, tables().ops));
            const size_t count = static_cast<size_t>(PyList_GET_SIZE(v.get()));
            uint8_t* data = arena.array<uint8_t>(count);
            for (size_t k = 0; k < count; ++k) data[k] = operator_of(PyList_GET_ITEM(v.get(), k));
            n.ops = {data, count};
        }
    }
};

bool is_indented(const FunctionSource& s) {
    return !s.text.empty() && (s.text[0] == ' ' || s.text[0] == '\t');
}

// What is added to lines of the tree.
int line_shift(const FunctionSource& s) { return s.first_line - 1 - (is_indented(s) ? 1 : 0); }

Ref first_of(PyObject* tree) {
    Ref body = Ref::steal(PyObject_GetAttr(tree, names().body_));
    if (PyList_GET_SIZE(body.get()) == 0) return {};
    return Ref::borrow(PyList_GET_ITEM(body.get(), 0));
}

// The module that CPython makes of the function's text.
Ref parse(const FunctionSource& s) {
    const std::string text = is_indented(s) ? "if 1:\n" + s.text : s.text;
    PyCompilerFlags flags{};
    flags.cf_flags = PyCF_ONLY_AST;
    flags.cf_feature_version = PY_MINOR_VERSION;
    return Ref::steal(
        Py_CompileStringFlags(text.c_str(), s.file->name.c_str(), Py_file_input, &flags));
}

// The function in it; null if the text is none.
Ref function_in(const FunctionSource& s, PyObject* tree) {
    Ref top = first_of(tree);
    return is_indented(s) && top ? first_of(top.get()) : top;
}

std::span<Node*> convert_body(Converter& c, PyObject* function) {
    const Ref body = Ref::steal(PyObject_GetAttr(function, names().body_));
    return c.list(body.get());
}

int number(PyObject* o, PyObject* name) {
    Ref v = Ref::steal(PyObject_GetAttr(o, name));
    return static_cast<int>(PyLong_AsLong(v.get()));
}

// Columns count UTF-8 bytes in `ast`, characters in Node.
int column(const SourceFile& file, int line, int bytes) {
    if (line < 1 || static_cast<size_t>(line) > file.lines.size()) return bytes;
    const std::string_view s = file.lines[static_cast<size_t>(line) - 1];
    int n = 0;
    for (int k = 0; k < bytes && static_cast<size_t>(k) < s.size(); ++k)
        n += (s[static_cast<size_t>(k)] & 0xC0) != 0x80;
    return n;
}

KeptTrees kept_trees{};

}  // namespace

void set_kept_trees(const KeptTrees& trees) { kept_trees = trees; }

PyObject* ast_of(const FunctionSource& s, const Node& n) {
    if (s.objects.empty()) {  // parsed again: its nodes are in the same order
        Ref tree = parse(s);
        const Ref function = function_in(s, tree.get());
        support::Arena arena;
        std::vector<Ref> values;
        std::vector<PyObject*> objects;
        Converter c{arena, values, objects};
        if (function) (void)convert_body(c, function.get());
        QD_CHECK(objects.size() == s.nodes, "a syntax tree is of another text");
        s.tree = std::move(tree);
        s.objects = std::move(objects);
    }
    return s.objects[n.number];
}

void locate(const FunctionSource& s, Node& n) {
    if (n.line) return;
    PyObject* o = ast_of(s, n);
    const int shift = line_shift(s);
    n.line = number(o, names().lineno_) + shift;
    n.end_line = number(o, names().end_lineno_) + shift;
    n.col = column(*s.file, n.line, number(o, names().col_offset_));
    n.end_col = column(*s.file, n.end_line, number(o, names().end_col_offset_));
}

bool measures_coverage() {
    const char* value = std::getenv("QD_KERNEL_COVERAGE");
    return value && !std::strcmp(value, "1");
}

static Ref coverage_module() {
    return Ref::steal(PyImport_ImportModule("quadrants.lang._kernel_coverage"));
}

// With QD_KERNEL_COVERAGE=1 a Python module puts probes into the tree.
void add_probes(FunctionSource& s, PyObject* tree, int offset) {
    if (!measures_coverage()) return;
    Ref::steal(PyObject_CallMethod(coverage_module().get(), "instrument", "Osi", tree,
                                   s.file->name.c_str(), offset));
}

bool parse_function(FunctionSource& s) {
    const bool keeps = kept_trees.find && !measures_coverage();
    if (keeps && kept_trees.find(s)) return false;
    s.tree = parse(s);
    const Ref top = function_in(s, s.tree.get());
    if (top && !std::strcmp(class_name(Py_TYPE(top.get())), "AsyncFunctionDef"))
        raise(Kind::syntax, "Unsupported node \"AsyncFunctionDef\"");
    if (!top || std::strcmp(class_name(Py_TYPE(top.get())), "FunctionDef")) {
        PyErr_Format(PyExc_OSError, "Cannot find source code for Object: %s (\"%s\", line %d)",
                     s.name.c_str(), s.file->name.c_str(), s.first_line);
        throw PyError{};
    }
    add_probes(s, top.get(), line_shift(s));
    Converter c{s.arena, s.values, s.objects};
    s.body = convert_body(c, top.get());
    s.probes = std::move(c.probes);
    s.nodes = static_cast<uint32_t>(s.objects.size());
    // CPython's objects are many, and its garbage collector would walk them in vain: two thirds of
    // what a front end costs beside a large heap. Who wants to see one parses again, which would
    // lose probes.
    if (measures_coverage()) return false;
    for (Node* n : c.placed) locate(s, *n);
    s.objects = {};
    s.tree = {};
    return keeps;
}

// One text may be run in several modules.
void lend_probes(const FunctionSource& s, PyObject* function) {
    if (s.probes.empty()) return;
    Ref::steal(PyObject_CallMethod(coverage_module().get(), "lend_field", "O",
                                   PyFunction_GetGlobals(function)));
}

void tell_parsed(FunctionSource& s) { kept_trees.parsed(s); }

static bool is_part_of(const Node* target, const PyObject* name) {
    while (target->kind == K::Attribute || target->kind == K::Subscript) target = target->a;
    if (target->kind == K::Name) return target->name == name;
    return std::ranges::any_of(target->list, [&](Node* t) { return is_part_of(t, name); });
}

static bool assigns(const Node& n, const PyObject* name) {
    const auto is_target = [&](const Node* t) { return is_part_of(t, name); };
    if (n.kind == K::Assign && std::ranges::any_of(n.list, is_target)) return true;
    if ((n.kind == K::AugAssign || n.kind == K::AnnAssign || n.kind == K::NamedExpr) &&
        is_target(n.a))
        return true;
    const auto inside = [&](const Node* child) { return child && assigns(*child, name); };
    return inside(n.a) || inside(n.b) || inside(n.c) || assigns(n.list, name) ||
           assigns(n.list2, name);
}

bool assigns(std::span<Node* const> statements, const PyObject* name) {
    return std::ranges::any_of(statements, [&](const Node* n) { return n && assigns(*n, name); });
}

}  // namespace qd::frontend
