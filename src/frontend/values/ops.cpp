// Conversions of Python objects to IR values, promotion, and the operators of the language.
//
// Compile-time operands never reach IR: Python computes with them. A compile-time number that meets
// a run-time value becomes a constant of default_ip or default_fp first (spec 10 section 6).

#include <cmath>
#include <cstring>

#include "frontend/source/stack.h"
#include "frontend/specialise.h"
#include "frontend/values/structs.h"
#include "frontend/values/values.h"

namespace qd::frontend {
namespace {

// What Python makes of two objects of its own.
PyObject* python_operator(Op op, PyObject* a, PyObject* b) {
    const auto compared = [&](int how) { return PyObject_RichCompare(a, b, how); };
    switch (op) {
        case Op::add:
            return PyNumber_Add(a, b);
        case Op::sub:
            return PyNumber_Subtract(a, b);
        case Op::mul:
            return PyNumber_Multiply(a, b);
        case Op::div:
            return PyNumber_TrueDivide(a, b);
        case Op::floordiv:
            return PyNumber_FloorDivide(a, b);
        case Op::mod:
            return PyNumber_Remainder(a, b);
        case Op::pow:
            return PyNumber_Power(a, b, Py_None);
        case Op::bit_and:
            return PyNumber_And(a, b);
        case Op::bit_or:
            return PyNumber_Or(a, b);
        case Op::bit_xor:
            return PyNumber_Xor(a, b);
        case Op::shl:
            return PyNumber_Lshift(a, b);
        case Op::shr:
            return PyNumber_Rshift(a, b);
        case Op::matmul:
            return PyNumber_MatrixMultiply(a, b);
        case Op::lt:
            return compared(Py_LT);
        case Op::le:
            return compared(Py_LE);
        case Op::gt:
            return compared(Py_GT);
        case Op::ge:
            return compared(Py_GE);
        case Op::eq:
            return compared(Py_EQ);
        case Op::ne:
            return compared(Py_NE);
        default:
            QD_CHECK(false, ir::info(op).name);
            return nullptr;
    }
}

PyTypeObject* host_matrix_type() {
    static PyTypeObject* type;
    if (!type) {
        PyObject* modules = PyImport_GetModuleDict();
        PyObject* module = PyDict_GetItemString(modules, "quadrants.lang.matrix");
        if (!module) return nullptr;
        type = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module, "Matrix"));
        if (!type) forget_error();
    }
    return type;
}

Value* number_constant(PyObject* o) {
    if (PyBool_Check(o)) return builder().int_const(Prim::u1, o == Py_True);
    if (PyLong_Check(o)) return integer_literal(o, default_int(), "default_ip");
    if (PyFloat_Check(o)) return const_of(default_float(), PyFloat_AS_DOUBLE(o));
    return nullptr;
}

Value* host_matrix_value(PyObject* o) {
    const Ref list = Ref::steal(PyObject_CallMethod(o, "to_list", nullptr));
    // An element keeps no width of its own: integers and bools are default_ip, floats default_fp.
    std::vector<Ref> items;
    for (Py_ssize_t k = 0; k < PyList_Size(list.get()); ++k)
        items.push_back(Ref::borrow(PyList_GET_ITEM(list.get(), k)));
    return tensor_of_items(items);
}

bool is_sequence_literal(PyObject* o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); }

}  // namespace

void invalid_scalar(PyObject* o, std::string hint) {
    PyTypeObject* type = is_format(o) ? &PyUnicode_Type : Py_TYPE(o);  // an f-string is a string
    raise(Kind::type,
          "Invalid constant scalar data type: " + text_of(reinterpret_cast<PyObject*>(type)),
          std::move(hint));
}

namespace {

// What Python's operators answer; the operands they refuse are the user's mistake.
Ref python_result(PyObject* o) {
    if (o || !PyErr_ExceptionMatches(PyExc_TypeError)) return Ref::steal(o);
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    const Ref owned[] = {Ref::steal_or_null(type), Ref::steal_or_null(value),
                         Ref::steal_or_null(traceback)};
    raise(Kind::type, value ? text_of(value) : "unsupported operand types");
}

// A host matrix that a kernel reads is a value of the kernel with the kernel's operators, not
// NumPy's; inside qd.static it stays what Python made of it.
bool both_compile_time(PyObject* a, PyObject* b) {
    return is_left_to_python(a) && is_left_to_python(b);
}

bool is_shape_compatible(Type a, Type b) {
    return a.rank == 0 || b.rank == 0 || (a.rank == b.rank && a.n == b.n && a.m == b.m);
}

Type common_shape(Type a, Type b) { return a.rank ? a : b; }

// NumPy's own class, none derived from it.
static bool is_array(PyObject* o) { return std::strcmp(Py_TYPE(o)->tp_name, "numpy.ndarray") == 0; }

bool is_valueless(PyObject* o) {  // has no place in arithmetic: fields, arrays, strings, None ...
    if (is_expr(o)) return as_expr(o)->kind == ExprKind::array;
    return !is_number(o) && !is_host_matrix(o) && !is_sequence_literal(o) && !is_numpy_scalar(o) &&
           !is_array(o);
}

// Objects of Python's own that are no numbers.
bool is_plain(PyObject* o) {
    return o == Py_None || PyUnicode_Check(o) || PyBytes_Check(o) || PyComplex_Check(o) ||
           PyFunction_Check(o) || PyCFunction_Check(o) || PyModule_Check(o);
}

Value* operand(PyObject* o, const char* symbol, PyObject* a, PyObject* b) {
    if (is_plain(o)) invalid_scalar(o);
    if (is_valueless(o)) {
        const auto name = [](PyObject* x) {  // as Python says it
            const std::string_view whole = is_expr(x) ? "Expr" : Py_TYPE(x)->tp_name;
            return std::string(whole.substr(whole.rfind('.') + 1));
        };
        raise(Kind::type, std::string("unsupported operand type(s) for ") + symbol + ": '" +
                              name(a) + "' and '" + name(b) + "'");
    }
    return to_value(o);
}

// --- pow, matmul ------------------------------------------------------------------------------
std::optional<long long> constant_exponent(PyObject* o) {
    if (is_symbolic(o) || PyFloat_Check(o)) return std::nullopt;
    return static_int(o);
}

// What stands for a u64 exponent: 2^63 more or less is one more or less of 2^62, after which powers
// of odd integers repeat; those of others are zero by then, floats far away. Parity stays.
Value* below_2_63(ir::Builder& out, Value* e) {
    const auto u64 = [&](uint64_t v) {
        return broadcast(out.int_const(Prim::u64, static_cast<int64_t>(v)), e->type);
    };
    Value* high = out.op(Op::shl, {out.op(Op::lshr, {e, u64(63)}), u64(62)});
    return out.op(Op::bit_or, {out.op(Op::bit_and, {e, u64(~uint64_t{0} >> 1)}), high});
}

Ref power(PyObject* a, PyObject* b) {
    ir::Builder& out = builder();
    Value* base = operand(a, "**", a, b);
    Value* exponent = operand(b, "**", a, b);
    if (!is_shape_compatible(base->type, exponent->type)) unsupported_operands("**", a, b);
    const Type shape = common_shape(base->type, exponent->type);
    if (type::is_float(exponent->type.prim)) {
        const Prim p = type::promote(base->type.prim, exponent->type.prim);
        return make_value(out.op(Op::pow, {broadcast(out.cast(base, p), shape),
                                           broadcast(out.cast(exponent, p), shape)}));
    }
    if (const auto constant = constant_exponent(b);
        constant && *constant < 0 && type::is_int(base->type.prim))
        raise(Kind::runtime, "Negative exponent in pow(int, int) is not allowed.");
    const Prim wide = type::bits(exponent->type.prim) == 64 || exponent->type.prim == Prim::u32
                          ? Prim::i64
                          : Prim::i32;
    base = broadcast(base, shape);
    if (exponent->type.prim == Prim::u64) exponent = below_2_63(out, exponent);
    exponent = broadcast(out.cast(exponent, wide), shape);
    Value* r = out.op(Op::powi, {base, exponent});
    report_overflow(Op::pow, base, exponent, r);
    return make_value(r);
}

[[noreturn]] void matmul_mismatch(Type a, Type b) {
    auto text = [](Type t) {
        return t.rank == 2 ? "(" + std::to_string(t.n) + ", " + std::to_string(t.m) + ")"
                           : "(" + std::to_string(t.n) + ",)";
    };
    raise(Kind::compilation, "dimension mismatch between " + text(a) + " and " + text(b) +
                                 " for matrix multiplication");
}

Ref matrix_product(PyObject* a, PyObject* b) {
    ir::Builder& out = builder();
    Value* x = operand(a, "@", a, b);
    Value* y = operand(b, "@", a, b);
    if (!x->type.rank || !y->type.rank) unsupported_operands("@", a, b);
    const Prim p = type::promote(x->type.prim, y->type.prim);
    x = out.cast(x, p);
    y = out.cast(y, p);
    const Type s = x->type, t = y->type;
    if (s.rank == 1 && t.rank == 1) {
        if (s.n != t.n) matmul_mismatch(s, t);
        return make_value(inner_product(x, y));
    }
    if (s.rank == 1) {  // vector x matrix = transposed matrix x vector
        if (s.n != t.n) matmul_mismatch(s, t);
        Value* parts[] = {y};
        y = out.typed(Op::transpose, Type::matrix(p, t.m, t.n), parts);
        return make_value(matrix_times(y, x, Type::vector(p, t.m)));
    }
    if (s.m != t.n) matmul_mismatch(s, t);
    return make_value(
        matrix_times(x, y, t.rank == 1 ? Type::vector(p, s.n) : Type::matrix(p, s.n, t.m)));
}

Ref shift(Op op, PyObject* a, PyObject* b) {
    const char* symbol = ir::info(op).symbol;
    Value* x = operand(a, symbol, a, b);
    Value* y = operand(b, symbol, a, b);
    if (type::is_float(x->type.prim) || type::is_float(y->type.prim) ||
        !is_shape_compatible(x->type, y->type))
        unsupported_operands(symbol, a, b);
    const Type shape = common_shape(x->type, y->type);
    x = broadcast(x, shape);
    y = broadcast(builder().cast(y, x->type.prim), shape);
    Value* r = builder().op(op, {x, y});
    report_overflow(op, x, y, r);
    return make_value(r);
}

}  // namespace

// --- small shared helpers ----------------------------------------------------------------------
Prim default_int() { return current() ? current()->kernel->options.default_ip : Prim::i32; }
Prim default_float() { return current() ? current()->kernel->options.default_fp : Prim::f32; }

std::string text_of(PyObject* o) {
    const Ref text = Ref::steal_or_null(PyObject_Str(o));
    const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (!utf8) forget_error();
    return utf8 ? utf8 : "?";
}

Ref interned(const char* text) { return Ref::steal(PyUnicode_InternFromString(text)); }

namespace {
Py_ssize_t rows_of_host_matrix(PyObject* o) {  // -1: it is none
    PyTypeObject* t = host_matrix_type();
    return t && PyObject_TypeCheck(o, t) ? PyObject_Size(o) : -1;
}
}  // namespace

bool is_host_matrix(PyObject* o) { return rows_of_host_matrix(o) > 0; }
bool is_left_to_python(PyObject* o) {
    return !is_symbolic(o) && (!is_host_matrix(o) || !current() || current()->static_depth);
}
bool is_empty_matrix(PyObject* o) { return rows_of_host_matrix(o) == 0; }

Ref empty_matrix(const char* function) {
    const Ref module = Ref::steal(PyImport_ImportModule("quadrants.lang.matrix"));
    return Ref::steal(PyObject_CallMethod(module.get(), function, "[]"));
}

// Its item() is Python's number, but for a longdouble, which is its own, and for what arrays of
// objects hold: another array, or themselves.
static Ref item_of(PyObject* o) {
    Ref item = Ref::steal(PyObject_CallMethod(o, "item", nullptr));
    if (is_numpy_scalar(item.get())) return Ref::steal(PyNumber_Float(item.get()));
    return is_array(item.get()) ? Ref{} : std::move(item);
}

Ref numpy_item(PyObject* o) {
    if (is_numpy_scalar(o)) return item_of(o);
    if (!is_array(o)) return {};
    const Ref ndim = Ref::steal(PyObject_GetAttrString(o, "ndim"));
    if (PyLong_AsLong(ndim.get()) != 0)
        raise(Kind::type,
              "Only 0-dimensional numpy array can be used to initialize a scalar expression");
    return item_of(o);
}

bool is_number(PyObject* o) { return PyLong_Check(o) || PyFloat_Check(o) || is_numpy_scalar(o); }

std::optional<long long> static_int(PyObject* o) {
    if (PyLong_Check(o)) {
        const long long v = PyLong_AsLongLong(o);
        if (v == -1 && PyErr_Occurred()) return forget_error(), std::nullopt;
        return v;
    }
    if (is_expr(o)) {
        const Ref number = uncaptured(Ref::borrow(o));
        return is_expr(number.get()) ? std::nullopt : static_int(number.get());
    }
    if (PyFloat_Check(o) || !PyIndex_Check(o)) return std::nullopt;
    const Ref index = Ref::steal_or_null(PyNumber_Index(o));
    if (!index) return forget_error(), std::nullopt;
    return static_int(index.get());
}

std::optional<Prim> prim_of_dtype(PyObject* o) {
    if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return default_int();
    if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return default_float();
    if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return Prim::u1;
    static PyTypeObject* dtype;
    if (!dtype) {
        PyObject* module = PyImport_ImportModule("quadrants.types.primitive_types");
        if (!module) throw PyError{};
        dtype = reinterpret_cast<PyTypeObject*>(PyObject_GetAttrString(module, "DataType"));
        Py_DECREF(module);
        if (!dtype) throw PyError{};
    }
    if (!PyObject_TypeCheck(o, dtype)) return std::nullopt;
    static PyObject* id = PyUnicode_InternFromString("id");
    const Ref number = Ref::steal(PyObject_GetAttr(o, id));
    return static_cast<Prim>(PyLong_AsLong(number.get()));
}

Value* const_of(Prim p, double v) { return builder().float_const(p, v); }

namespace {
bool fits_u64(PyObject* o) {
    const bool fits =
        PyLong_AsUnsignedLongLong(o) != static_cast<unsigned long long>(-1) || !PyErr_Occurred();
    forget_error();
    return fits;
}
}  // namespace

int64_t literal_bits(PyObject* o, Prim p, const char* what) {
    int overflow = 0;
    const long long v = PyLong_AsLongLongAndOverflow(o, &overflow);
    bool fits;
    uint64_t bits;
    const int width = type::bits(p);
    if (overflow > 0 && !type::is_signed(p) && width == 64) {
        bits = PyLong_AsUnsignedLongLong(o);
        fits = !PyErr_Occurred();
        forget_error();
    } else if (overflow) {
        fits = false;
        bits = 0;
    } else {
        bits = static_cast<uint64_t>(v);
        if (type::is_signed(p))
            fits = width == 64 || (v >= -(1LL << (width - 1)) && v < (1LL << (width - 1)));
        else
            fits = v >= 0 && (width == 64 || bits < (uint64_t(1) << width));
    }
    if (!fits) {
        const std::string name = type::info(p).name, literal = integer_text(o);
        if (std::strcmp(what, "default_ip") != 0)
            raise(Kind::type,
                  "Integer literal " + literal + " exceeded the range of specified dtype: " + name);
        const std::string text =
            "Integer literal " + literal + " exceeded the range of default_ip: " + name;
        if (overflow < 0 || (overflow > 0 && !fits_u64(o)))
            raise(Kind::type, text, "no integer type is that wide; write it as a float");
        raise(Kind::type, text + ", please specify the dtype via e.g. `qd.u64(" + literal +
                              ")` or set a different `default_ip` in `qd.init()`");
    }
    return static_cast<int64_t>(bits);
}

int64_t default_literal(PyObject* o) { return literal_bits(o, default_int(), "default_ip"); }

Value* integer_literal(PyObject* o, Prim p, const char* what) {
    return builder().int_const(p, literal_bits(o, p, what));
}

std::string type_text(PyObject* o) {
    if (is_expr(o))
        return as_expr(o)->kind == ExprKind::array ? "ndarray" : type::to_user_string(type_of(o));
    if (PyBool_Check(o)) return "u1";
    if (PyLong_Check(o)) return type::info(default_int()).name;
    if (PyFloat_Check(o)) return type::info(default_float()).name;
    if (is_host_matrix(o) || is_sequence_literal(o)) return type::to_user_string(to_value(o)->type);
    return text_of(reinterpret_cast<PyObject*>(Py_TYPE(o)));
}

void unsupported_operands(const char* symbol, PyObject* a, PyObject* b) {
    raise(Kind::type, std::string("unsupported operand type(s) for '") + symbol + "': '" +
                          type_text(a) + "' and '" + type_text(b) + "'");
}

Type shaped(Type shape, Prim p) {
    Type t = shape.value();
    t.prim = p;
    return t;
}

Value* broadcast(Value* v, Type shape) {
    if (v->type.rank || !shape.rank) return v;
    return builder().splat(v, shaped(shape, v->type.prim));
}

Value* component(Value* tensor, int flat) {
    return builder().op(Op::extract, {tensor}, static_cast<uint64_t>(flat));
}

std::vector<Value*> components(Value* v) {
    if (!v->type.rank) return {v};
    std::vector<Value*> parts;
    for (int k = 0; k < v->type.count(); ++k) parts.push_back(component(v, k));
    return parts;
}

Value* build(Type t, std::span<Value* const> parts) { return builder().typed(Op::build, t, parts); }
Ref index_tensor(std::vector<Value*> indices) {
    for (Value*& v : indices) v = builder().cast(v, Prim::i32);
    return make_value(build(Type::vector(Prim::i32, static_cast<int>(indices.size())), indices));
}

// --- values ------------------------------------------------------------------------------------
// One of the containers around what is looked at; another one each time that their number doubles.
// What is met again holds itself (Brent, "An improved Monte Carlo factorization algorithm", 1980).
struct Around {
    PyObject* mark = nullptr;
    size_t depth = 0, next = 1;
    Around inside(PyObject* o) const {
        if (depth + 1 < next) return {mark, depth + 1, next};
        return {o, depth + 1, 2 * next};
    }
};

static bool holds_symbols(PyObject* o, const Around& around) {
    if (is_expr(o) || is_struct(o)) return true;
    const bool dict = PyDict_CheckExact(o);
    if (!dict && !PyTuple_CheckExact(o) && !PyList_CheckExact(o)) return false;
    if (o == around.mark) return false;
    need_stack();
    const Around inner = around.inside(o);
    if (!dict) {
        PyObject** items = PySequence_Fast_ITEMS(o);
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            if (holds_symbols(items[k], inner)) return true;
        return false;
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);)
        if (holds_symbols(value, inner)) return true;
    return false;
}
bool is_symbolic(PyObject* o) { return holds_symbols(o, {}); }

Value* to_value(PyObject* o) {
    if (is_expr(o)) {
        const ExprObject& e = *as_expr(o);
        switch (e.kind) {
            case ExprKind::value:
                return is_live_view(o) ? value_of_live(e) : e.value();
            case ExprKind::variable:
            case ExprKind::element:
                return load_place(e.value());
            case ExprKind::array:
                raise(Kind::type, "an ndarray cannot be used as a value", "index it: a[i]");
        }
    }
    if (Value* v = number_constant(o)) return v;
    if (is_sequence_literal(o)) {
        std::vector<Ref> items;
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
            items.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(o, k)));
        return tensor_of_items(items);
    }
    if (is_host_matrix(o)) return host_matrix_value(o);
    if (const Ref item = numpy_item(o)) return to_value(item.get());
    invalid_scalar(o);
}

Value* to_value_as(PyObject* o, Prim p) {
    if (PyBool_Check(o)) return builder().cast(builder().int_const(Prim::u1, o == Py_True), p);
    if (PyLong_Check(o)) {  // default_ip first
        const int64_t v = default_literal(o);
        if (type::is_float(p) && !type::is_signed(default_int()))
            return const_of(p, static_cast<double>(static_cast<uint64_t>(v)));
        return builder().int_const(p, v);
    }
    if (!is_expr(o) && is_numpy_scalar(o)) return to_value_as(numpy_item(o).get(), p);
    return builder().cast(to_value(o), p);  // a float literal has default_fp first
}

Ref to_rvalue(PyObject* o) {
    if (is_expr(o) &&
        (as_expr(o)->kind == ExprKind::variable || as_expr(o)->kind == ExprKind::element))
        return make_value(load_place(as_expr(o)->value()));
    if (is_live_view(o)) return make_value(to_value(o));
    return Ref::borrow(o);
}

Value* to_condition(PyObject* o, const char* what) {
    const bool is_if = std::strcmp(what, "if") == 0 || std::strcmp(what, "while") == 0 ||
                       std::strcmp(what, "assert") == 0;
    Value* v = to_value(o);
    if (v->type.rank || type::is_float(v->type.prim)) {
        const std::string found = type::to_user_string(v->type);
        if (!is_if)
            raise(Kind::type, std::string("'") + what + "' takes integral inputs only, however '" +
                                  found + "' is provided.");
        const std::string name = std::strcmp(what, "assert") == 0 ? "assert" : "if";
        if (v->type.rank)
            raise(Kind::type, "`" + name + "` conditions must be an integer; found " + found +
                                  ". Consider using `any` or `all` to reduce it first");
        raise(Kind::type, "`" + name + "` conditions must be an integer; found " + found +
                              ". Consider using `" + name + " x != 0` instead of `" + name +
                              " x` for float values");
    }
    return builder().cast(v, Prim::u1);
}

Pair promoted(PyObject* a, PyObject* b, const char* symbol, bool divide) {
    Value* x = operand(a, symbol, a, b);
    Value* y = operand(b, symbol, a, b);
    if (!is_shape_compatible(x->type, y->type)) unsupported_operands(symbol, a, b);
    ir::Builder& out = builder();
    if (divide) {  // integers become default_fp first, also beside a wider float
        if (type::is_int(x->type.prim)) x = out.cast(x, default_float());
        if (type::is_int(y->type.prim)) y = out.cast(y, default_float());
    }
    const Prim p = type::promote(x->type.prim, y->type.prim);
    const Type shape = common_shape(x->type, y->type);
    return {broadcast(out.cast(x, p), shape), broadcast(out.cast(y, p), shape)};
}

// --- operators -----------------------------------------------------------------------------------
Ref binary(Op op, PyObject* a, PyObject* b) {
    if (both_compile_time(a, b)) return python_result(python_operator(op, a, b));
    if ((op == Op::add || op == Op::mul) && !is_expr(a) && !is_expr(b) && !is_host_matrix(a) &&
        !is_host_matrix(b) && (is_sequence_literal(a) || is_sequence_literal(b)))
        return python_result(python_operator(op, a, b));  // list + list, list * 2: containers
    switch (op) {
        case Op::pow:
            return power(a, b);
        case Op::matmul:
            return matrix_product(a, b);
        case Op::shl:
        case Op::shr:
            return shift(op, a, b);
        default:
            break;
    }
    const ir::OpInfo& row = ir::info(op);
    const Pair p = promoted(a, b, row.symbol, row.promotes);
    if (row.takes == ir::Takes::ints && type::is_float(p.a->type.prim))
        unsupported_operands(row.symbol, a, b);
    Value* r = builder().op(op, {p.a, p.b});
    report_overflow(op, p.a, p.b, r);
    return make_value(r);
}

Ref unary(UnOp op, PyObject* a) {
    if (is_left_to_python(a)) {
        switch (op) {
            case UnOp::neg:
                return python_result(PyNumber_Negative(a));
            case UnOp::pos:
                return python_result(PyNumber_Positive(a));
            case UnOp::bit_not:
                return python_result(PyNumber_Invert(a));
            case UnOp::logical_not: {
                const int truth = PyObject_Not(a);
                if (truth < 0) throw PyError{};
                return Ref::borrow(truth ? Py_True : Py_False);
            }
        }
    }
    Value* v = to_value(a);
    switch (op) {
        case UnOp::neg:
            return make_value(builder().op(Op::neg, {v}));
        case UnOp::pos:
            return make_value(v);
        case UnOp::bit_not:
            if (type::is_float(v->type.prim))
                raise(Kind::type, "'~' takes integral inputs only, however '" +
                                      type::to_user_string(v->type) + "' is provided.");
            return make_value(builder().op(Op::bit_not, {v}));
        case UnOp::logical_not: {
            if (type::is_float(v->type.prim))
                raise(Kind::type, "'not' takes integral inputs only, however '" +
                                      type::to_user_string(v->type) + "' is provided.");
            Value* zero = broadcast(builder().int_const(v->type.prim, 0), v->type);
            return make_value(builder().op(Op::eq, {v, zero}));
        }
    }
    return {};
}

Ref unary_op(Op op, PyObject* a) { return make_value(builder().op(op, {to_value(a)})); }

Ref float_op(Op op, PyObject* a, bool promote_ints) {
    Value* v = to_value(a);
    if (type::is_int(v->type.prim)) {
        if (!promote_ints)
            raise(Kind::type,
                  std::string("'") + ir::info(op).name + "' takes real inputs only, however '" +
                      type::to_user_string(v->type) + "' is provided.",
                  "write qd.cast(x, qd.f32)");
        v = builder().cast(v, default_float());
    }
    return make_value(builder().op(op, {v}));
}

Ref cast(PyObject* a, Prim p) {
    if (is_struct(a)) raise(Kind::type, "a struct cannot be cast");
    return make_value(to_value_as(a, p));
}

Ref select(PyObject* c, PyObject* a, PyObject* b) {
    Value* condition = to_value(c);
    if (type::is_float(condition->type.prim))
        raise(Kind::type, "`select` conditions must be an integer; found " +
                              type::to_user_string(condition->type));
    const Pair p = promoted(a, b, "select");
    ir::Builder& out = builder();
    condition = out.cast(condition, Prim::u1);
    if (condition->type.rank && p.a->type.rank && !is_shape_compatible(condition->type, p.a->type))
        raise(Kind::type, "Cannot broadcast tensor to tensor");
    const Type shape = common_shape(p.a->type, condition->type);
    return make_value(
        out.op(Op::select, {condition, broadcast(p.a, shape), broadcast(p.b, shape)}));
}

}  // namespace qd::frontend
