// Element-wise functions: arithmetic by name, elementary functions, conversions, bits, select.
//
// Numbers known at compile time are computed here in double precision, as Python code on the host
// would; anything else becomes IR. Most come from the op table's rows.

#include <cmath>

#include "frontend/values/builtins.h"

namespace qd::frontend {
namespace {

Ref python_float(double v) { return Ref::steal(PyFloat_FromDouble(v)); }

double number_as_double(PyObject* o) {
    const double v = PyFloat_AsDouble(o);
    if (v == -1 && PyErr_Occurred()) throw PyError{};
    return v;
}

// --- functions of one real number ---------------------------------------------------------------
namespace host {
using namespace std;
double rsqrt(double x) { return 1 / sqrt(x); }
}  // namespace host

// A compile-time integer or bool as Python's int; null if it is none.
Ref whole_number(PyObject* x) {
    if (!is_static_number(x)) return {};
    const Ref item = numpy_item(x);
    PyObject* number = item ? item.get() : x;
    return PyLong_Check(number) ? Ref::steal(PyNumber_Index(number)) : Ref();
}

// To whole numbers: of any type.
template <Op op, class Host>
Ref rounding(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"x", "dtype"};
    const auto p = parameters(a, ir::info(op).name, names, 1);
    const bool converts = p[1] && p[1] != Py_None;
    const Ref whole = whole_number(p[0]);  // stays one, for indices and ranges
    if (whole) return converts ? cast(whole.get(), prim_argument(p[1], ir::info(op).name)) : whole;
    if (is_static_number(p[0]) && !converts) return python_float(Host{}(number_as_double(p[0])));
    const Ref r = float_op(op, p[0], false);
    return converts ? cast(r.get(), prim_argument(p[1], ir::info(op).name)) : r;
}

template <Op op, class Host>
Ref real(Lowering&, const CallArgs& a) {
    PyObject* x = single(a, ir::info(op).name);
    if (is_static_number(x)) return python_float(Host{}(number_as_double(x)));
    return float_op(op, x, ir::info(op).promotes);
}

// --- functions of two numbers -------------------------------------------------------------------
Parameters<2> two(const ir::OpInfo& row, const CallArgs& a, const char* function) {
    Parameters<2> p;
    bind_parameters(a, function, row.names, 2, 2, p.value);
    return p;
}

[[noreturn]] void refuse(const char* name, const char* kind, Type given) {
    raise(Kind::type, std::string("'") + name + "' takes " + kind + " inputs only, however '" +
                          type::to_user_string(given) + "' is provided.");
}

template <Op op, class Host>
Ref real_pair(Lowering&, const CallArgs& a) {
    const ir::OpInfo& row = ir::info(op);
    const auto p = two(row, a, row.python);
    if (is_static_number(p[0]) && is_static_number(p[1]))
        return python_float(Host{}(number_as_double(p[0]), number_as_double(p[1])));
    Pair v = promoted(p[0], p[1], row.python, row.promotes);
    if (type::is_int(v.a->type.prim)) refuse(row.python, "real", v.a->type);
    if (row.widens && v.a->type.prim == Prim::f16)
        v = {builder().cast(v.a, Prim::f32), builder().cast(v.b, Prim::f32)};
    return make_value(builder().op(op, {v.a, v.b}));
}

template <Op op>
Ref pair(Lowering&, const CallArgs& a) {
    const ir::OpInfo& row = ir::info(op);
    const auto p = two(row, a, row.python);
    const Pair v = promoted(p[0], p[1], *row.symbol ? row.symbol : row.python);
    if (row.takes == ir::Takes::ints && type::is_float(v.a->type.prim))
        refuse(row.python, "integral", v.a->type);
    return make_value(builder().op(op, {v.a, v.b}));
}

template <Op op>
Ref operation(Lowering&, const CallArgs& a) {
    const auto p = two(ir::info(op), a, "operator");
    return binary(op, p[0], p[1]);
}

// --- bits ---------------------------------------------------------------------------------------
Value* integral(PyObject* x, const char* name) {
    Value* v = to_value(x);
    if (type::is_float(v->type.prim)) refuse(name, "integral", v->type);
    return v;
}
template <Op op>
Ref of_integer(Lowering&, const CallArgs& a) {
    const char* name = ir::info(op).python;
    return make_value(builder().op(op, {integral(single(a, name), name)}));
}

// --- from rows of the op table ------------------------------------------------------------------
// Of what a row says everything of; rows of kRows go before.
template <Op op, class Host>
void add_row(std::vector<Builtin>& all, Host) {
    constexpr const ir::OpInfo& row = ir::kOps[static_cast<int>(op)];
    if constexpr (row.kind != ir::Kind::elementwise || !*row.python || row.rule == ir::Rule::given)
        return;
    else if constexpr (*row.method && row.operands == 2)
        all.push_back({row.python, operation<op>});
    else if constexpr (row.whole)
        all.push_back({row.python, rounding<op, Host>});
    else if constexpr (row.elementary && row.operands == 1)
        all.push_back({row.python, real<op, Host>});
    else if constexpr (row.elementary)
        all.push_back({row.python, real_pair<op, Host>});
    else if constexpr (row.operands == 2)
        all.push_back({row.python, pair<op>});
    else if constexpr (row.takes == ir::Takes::ints)
        all.push_back({row.python, of_integer<op>});
}

// --- what has a meaning of its own --------------------------------------------------------------
template <UnOp op>
Ref operation1(Lowering&, const CallArgs& a) {
    return unary(op, single(a, "operator"));
}

Ref absolute(Lowering&, const CallArgs& a) {
    PyObject* x = single(a, "abs");
    if (is_static_number(x)) return Ref::steal(PyNumber_Absolute(x));
    return unary_op(Op::abs, x);
}

// C's division; of floats plain division.
Ref raw_div(Lowering&, const CallArgs& a) {
    const auto p = two(ir::info(Op::raw_div), a, "raw_div");
    const Pair v = promoted(p[0], p[1], "/");
    return make_value(
        builder().op(type::is_float(v.a->type.prim) ? Op::div : Op::raw_div, {v.a, v.b}));
}

Ref shift_logical(Lowering&, const CallArgs& a) {
    const auto p = two(ir::info(Op::lshr), a, "bit_shr");
    if (PyLong_Check(p[0]) && PyLong_Check(p[1]))  // which have no width
        return binary(Op::shr, p[0], p[1]);
    Value* x = to_value(p[0]);
    Value* y = to_value(p[1]);
    if (type::is_float(x->type.prim) || type::is_float(y->type.prim) ||
        (x->type.rank && y->type.rank && x->type.count() != y->type.count()))
        unsupported_operands(">>>", p[0], p[1]);
    const Type shape = x->type.rank ? x->type : y->type;
    return make_value(builder().op(
        Op::lshr, {broadcast(x, shape), broadcast(builder().cast(y, x->type.prim), shape)}));
}

// `and` / `or` as element-wise operations: 0 or 1 in the promoted type.
template <Op op>
Ref logical(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"a", "b"};
    const auto p = parameters(a, "operator", names);
    const char* symbol = op == Op::bit_and ? "&&" : "||";
    if (is_static_number(p[0]) && is_static_number(p[1])) {
        const int x = PyObject_IsTrue(p[0]), y = PyObject_IsTrue(p[1]);
        if (x < 0 || y < 0) throw PyError{};
        return Ref::borrow((op == Op::bit_and ? x && y : x || y) ? Py_True : Py_False);
    }
    const Pair v = promoted(p[0], p[1], symbol);
    const Prim prim = v.a->type.prim;
    if (type::is_float(prim)) unsupported_operands(symbol, p[0], p[1]);
    ir::Builder& b = builder();
    return make_value(b.cast(b.op(op, {b.cast(v.a, Prim::u1), b.cast(v.b, Prim::u1)}), prim));
}

// --- min, max, select ---------------------------------------------------------------------------
// As op min and max: a number wins over NaN, and -0 is less than +0.
bool comes_first(PyObject* a, PyObject* b, bool want_max) {
    if (PyFloat_Check(a) && PyFloat_Check(b) && PyFloat_AS_DOUBLE(a) == PyFloat_AS_DOUBLE(b))
        return std::signbit(PyFloat_AS_DOUBLE(a)) != want_max;
    if (PyFloat_Check(b) && std::isnan(PyFloat_AS_DOUBLE(b))) return true;
    const int first = PyObject_RichCompareBool(a, b, want_max ? Py_GE : Py_LE);
    if (first < 0) throw PyError{};
    return first;
}

// One of two constants, of the type that both have in common; inside qd.static as it is.
Ref one_of(PyObject* chosen, PyObject* other) {
    const auto is_float = [](PyObject* o) {
        return PyFloat_Check(o) || cpython::numpy_kind(o) == cpython::NumpyKind::floating;
    };
    if (current()->static_depth) return Ref::borrow(chosen);
    if (is_float(other) && !is_float(chosen)) return Ref::steal(PyNumber_Float(chosen));
    if (PyBool_Check(chosen) && !PyBool_Check(other)) return Ref::steal(PyNumber_Long(chosen));
    return Ref::borrow(chosen);
}

Ref lesser(PyObject* a, PyObject* b, bool want_max, const char* name) {
    if (is_static_number(a) && is_static_number(b))
        return comes_first(a, b, want_max) ? one_of(a, b) : one_of(b, a);
    const Pair v = promoted(a, b, name);
    return make_value(builder().op(want_max ? Op::max : Op::min, {v.a, v.b}));
}

template <bool want_max>
Ref extreme(Lowering&, const CallArgs& a) {
    const char* name = want_max ? "max" : "min";
    if (!a.keywords.empty())
        raise(Kind::type, std::string(name) + "() takes no keyword arguments in a kernel");
    std::vector<Ref> items = a.positional;
    if (items.size() == 1 &&
        (PyList_Check(items[0].get()) || PyTuple_Check(items[0].get()))) {  // Python's min(list)
        PyObject* list = a.positional[0].get();
        items.clear();
        for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(list); ++k)
            items.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(list, k)));
    }
    if (items.empty()) raise(Kind::type, std::string(name) + "() needs at least one argument");
    Ref result = items.back();
    for (size_t k = items.size() - 1; k-- > 0;)
        result = lesser(items[k].get(), result.get(), want_max, name);
    return result;
}

Ref selection(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"cond", "x1", "x2"};
    const auto p = parameters(a, "select", names);
    if (is_static_number(p[0]) && is_static_number(p[1]) && is_static_number(p[2])) {
        const int truth = PyObject_IsTrue(p[0]);
        if (truth < 0) throw PyError{};
        return truth ? one_of(p[1], p[2]) : one_of(p[2], p[1]);
    }
    if (PyFloat_Check(p[0]))
        return select(PyFloat_AS_DOUBLE(p[0]) ? Py_True : Py_False, p[1], p[2]);
    return select(p[0], p[1], p[2]);
}

// --- conversions --------------------------------------------------------------------------------
Ref conversion(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"obj", "dtype"};
    const auto p = parameters(a, "cast", names);
    return cast(p[0], prim_argument(p[1], "cast"));
}

Ref reinterpretation(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"obj", "dtype"};
    const auto p = parameters(a, "bit_cast", names);
    Value* v = to_value(p[0]);
    const Prim to = prim_argument(p[1], "bit_cast");
    if (type::bits(to) != type::bits(v->type.prim))
        raise(Kind::type,
              std::string("bit_cast needs types of equal width, got ") +
                  type::info(v->type.prim).name + " and " + type::info(to).name,
              "`qd.cast` converts a value to a type of another width");
    if (to == v->type.prim) return make_value(v);
    Value* operands[] = {v};
    return make_value(builder().typed(Op::bit_cast, v->type.with(to), operands));
}

// qd.f32(x): a typed literal, or a cast of a run-time scalar.
Ref dtype_call(Lowering&, const CallArgs& a) {
    if (a.positional.size() != 2 || !a.keywords.empty())
        raise(Kind::syntax, "A primitive type can only decorate a single expression.");
    const Prim to = prim_argument(a.positional[0].get(), "dtype");
    PyObject* x = a.positional[1].get();
    if (!is_expr(x)) {
        const Ref item = numpy_item(x);  // NumPy's numbers are literals too, of any width
        if (item) x = item.get();
        if (PyFloat_Check(x) && !type::is_float(to))
            raise(Kind::type,
                  "Floating-point literals must be annotated with a floating-point type. For type "
                  "casting, use `qd.cast`.");
        if (PyLong_Check(x)) {
            if (type::is_float(to) && PyBool_Check(x))
                return make_value(const_of(to, x == Py_True ? 1.0 : 0.0));
            if (type::is_float(to))
                raise(Kind::type,
                      "Integer literals must be annotated with a integer type. For type casting, "
                      "use `qd.cast`.");
            return make_value(integer_literal(x, to, "specified dtype"));
        }
        if (PyFloat_Check(x)) return make_value(const_of(to, PyFloat_AS_DOUBLE(x)));
        if (is_host_matrix(x) || PyList_Check(x) || PyTuple_Check(x) || is_struct(x))
            raise(Kind::syntax,
                  "A primitive type cannot decorate an expression with a compound type.");
    } else if (type_of(x).rank) {
        raise(Kind::syntax, "A primitive type cannot decorate an expression with a compound type.");
    }
    return make_value(to_value_as(x, to));
}

// int(x), float(x), bool(x): Python's own on Python values.
template <PyTypeObject* python>
Ref number_class(Lowering&, const CallArgs& a) {
    PyObject* type = reinterpret_cast<PyObject*>(python);
    if (a.positional.size() == 1 && a.keywords.empty()) {
        PyObject* x = a.positional[0].get();
        if (is_expr(x) || is_host_matrix(x) ||
            (is_symbolic(x) && (PyList_Check(x) || PyTuple_Check(x))))
            return cast(x, *prim_of_dtype(type));
    }
    const Ref args = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(a.positional.size())));
    for (size_t k = 0; k < a.positional.size(); ++k)
        PyTuple_SET_ITEM(args.get(), static_cast<Py_ssize_t>(k), Py_NewRef(a.positional[k].get()));
    return Ref::steal(PyObject_CallObject(type, args.get()));
}

Ref find_first_set(Lowering&, const CallArgs& a) {
    Value* v = integral(single(a, "ffs"), "ffs");
    ir::Builder& b = builder();
    const Type t = v->type.with(Prim::i32);
    Value* none = b.op(Op::eq, {v, broadcast(b.int_const(v->type.prim, 0), v->type)});
    Value* position = b.op(Op::add, {b.op(Op::ctz, {v}), broadcast(b.int_const(Prim::i32, 1), t)});
    return make_value(b.op(Op::select, {none, broadcast(b.int_const(Prim::i32, 0), t), position}));
}

// frexp by bits; subnormals count as zero, as everywhere.
struct FloatLayout {
    Prim prim, bits;
    int mantissa, bias;  // bias + 1 gives fractions in [0.5, 1)
    int64_t exponent_mask, fraction_mask, half;
};
const FloatLayout kLayouts[] = {
    {Prim::f32, Prim::i32, 23, 126, 0xff, static_cast<int32_t>(0x807fffffu), 0x3f000000},
    {Prim::f64, Prim::i64, 52, 1022, 0x7ff, static_cast<int64_t>(0x800fffffffffffffull),
     0x3fe0000000000000ll},
};
Ref frexp(Lowering&, const CallArgs& a) {
    Value* x = to_value(single(a, "frexp"));
    const FloatLayout* layout = nullptr;
    for (const FloatLayout& l : kLayouts)
        if (l.prim == x->type.prim) layout = &l;
    if (x->type.rank || !layout)
        raise(Kind::type, "'frexp' takes f32 or f64 scalars only, however '" +
                              type::to_user_string(x->type) + "' is provided.");
    ir::Builder& b = builder();
    const Prim ip = layout->bits;
    auto constant = [&](int64_t v) { return b.int_const(ip, v); };
    Value* operands[] = {x};
    Value* bits = b.typed(Op::bit_cast, Type::scalar(ip), operands);
    Value* exponent = b.op(Op::bit_and, {b.op(Op::lshr, {bits, constant(layout->mantissa)}),
                                         constant(layout->exponent_mask)});
    Value* fraction_bits =
        b.op(Op::bit_or,
             {b.op(Op::bit_and, {bits, constant(layout->fraction_mask)}), constant(layout->half)});
    Value* from[] = {fraction_bits};
    Value* fraction = b.typed(Op::bit_cast, Type::scalar(layout->prim), from);
    Value* special = b.op(Op::bit_or, {b.op(Op::eq, {exponent, constant(0)}),
                                       b.op(Op::eq, {exponent, constant(layout->exponent_mask)})});
    Value* power =
        b.op(Op::select, {special, constant(0), b.op(Op::sub, {exponent, constant(layout->bias)})});
    const Ref first = make_value(b.op(Op::select, {special, x, fraction}));
    const Ref second = make_value(b.cast(power, Prim::i32));
    return Ref::steal(PyTuple_Pack(2, first.get(), second.get()));
}

// --- values like another ------------------------------------------------------------------------
template <int value>
Ref like(Lowering&, const CallArgs& a) {
    Value* v = to_value(single(a, value ? "one" : "zero"));
    return make_value(broadcast(builder().int_const(v->type.prim, value), v->type));
}

Ref random(Lowering&, const CallArgs& a) {
    static const char* const names[] = {"dtype"};
    const auto p = parameters(a, "random", names, 0);
    const Prim prim = p[0] ? prim_argument(p[0], "random") : default_float();
    if (prim == Prim::u1 || type::bits(prim) == 8 || (type::is_int(prim) && type::bits(prim) == 16))
        raise(Kind::type,
              std::string("random numbers of type ") + type::info(prim).name + " are not supported",
              "use f16, f32, f64, i32, u32, i64 or u64");
    return make_value(builder().typed(Op::random, Type::scalar(prim), {}));
}

const Builtin kRows[] = {
    {"abs", absolute},
    {"neg", operation1<UnOp::neg>},
    {"bit_not", operation1<UnOp::bit_not>},
    {"logical_not", operation1<UnOp::logical_not>},
    {"matmul", operation<Op::matmul>},
    {"bit_shr", shift_logical},
    {"raw_div", raw_div},
    {"and", logical<Op::bit_and>},
    {"or", logical<Op::bit_or>},
    {"logical_and", logical<Op::bit_and>},
    {"logical_or", logical<Op::bit_or>},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"select", selection},
    {"ifte", selection},
    {"cast", conversion},
    {"bit_cast", reinterpretation},
    {"dtype_call", dtype_call},
    {"int", number_class<&PyLong_Type>},
    {"float", number_class<&PyFloat_Type>},
    {"bool", number_class<&PyBool_Type>},
    {"ffs", find_first_set},
    {"frexp", frexp},
    {"zero", like<0>},
    {"one", like<1>},
    {"random", random},
};

}  // namespace

std::span<const Builtin> math_builtins() {
    static const auto all = [] {
        std::vector<Builtin> rows(std::begin(kRows), std::end(kRows));
#define ELEMENTARY(name, ...) \
    add_row<Op::name>(rows, [](auto... x) -> double { return host::name(x...); });
#define OP(name, ...) add_row<Op::name>(rows, nullptr);
#include "ir/ops.inc"
        return rows;
    }();
    return all;
}

}  // namespace qd::frontend
