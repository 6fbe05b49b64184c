// Arguments to block, block to results. See kernel.h.

#include <algorithm>
#include <cstring>
#include <utility>

#include "cpython/names.h"
#include "cpython/numpy_scalar.h"
#include "data/external.h"
#include "data/objects.h"
#include "data/storage.h"
#include "frontend/facts/contents.h"
#include "frontend/source/stack.h"
#include "frontend/values/structs.h"
#include "ir/ir.h"
#include "launcher/kernel.h"
#include "runtime/cuda/code.h"
#include "support/abi.h"
#include "support/error.h"

namespace qd::launcher {
namespace {

using cpython::NumpyKind;
using data::NdarrayObject;

constexpr int kDeepest = 8;  // nesting of a vector or matrix argument

// Sets the exception; the call it is about is said last.
bool refuse(const PackStep& step, const char* cls, const std::string& text) {
    set_error(cls, text + "\n  argument " + step.name + " of " + step.kernel);
    return false;
}

bool conversion_error(const PackStep& step, PyObject* value) {
    return refuse(
        step, "QuadrantsRuntimeTypeError",
        "Argument (" + std::to_string(step.argument) + ",) (type=" + cpython::type_name(value) +
            ") cannot be converted into required type " + type::to_string(step.type.element()) +
            (PyFloat_Check(value) ? ": that would truncate " + step.name : ""));
}

bool range_error(const PackStep& step, PyObject* value) {
    cpython::forget_error();
    return refuse(step, "TypeError",
                  "Argument " + step.name + ": " + cpython::integer_text(value) +
                      " does not fit type " + type::to_string(step.type.element()));
}

bool is_numpy_number(PyObject* o) {  // its booleans are none here
    const NumpyKind kind = cpython::numpy_kind(o);
    return kind == NumpyKind::integer || kind == NumpyKind::floating;
}

bool write_int(const PackStep& step, PyObject* value, uint8_t* at) {
    if (!PyLong_Check(value)) {
        if (cpython::numpy_kind(value) != NumpyKind::integer) return conversion_error(step, value);
        PyObject* index = PyNumber_Index(value);
        if (!index) return false;
        const bool ok = write_int(step, index, at);
        Py_DECREF(index);
        return ok;
    }
    uint64_t bits;
    if (type::is_signed(step.type.prim)) {
        bits = static_cast<uint64_t>(PyLong_AsLongLong(value));
    } else {
        bits = PyLong_AsUnsignedLongLong(value);
    }
    if (PyErr_Occurred()) return range_error(step, value);
    if (step.type.prim == Prim::u1) bits = bits != 0;
    std::memcpy(at, &bits, static_cast<size_t>(type::bytes(step.type.prim)));
    return true;
}

bool write_float(const PackStep& step, PyObject* value, uint8_t* at) {
    double d;
    if (PyFloat_CheckExact(value)) {
        d = PyFloat_AS_DOUBLE(value);
    } else if (PyFloat_Check(value) || PyLong_Check(value) || is_numpy_number(value)) {
        d = PyFloat_AsDouble(value);
        if (d == -1 && PyErr_Occurred())
            return PyLong_Check(value) ? range_error(step, value) : false;
    } else {
        return conversion_error(step, value);
    }
    const uint64_t bits = ir::bits_of_double(step.type.prim, d);
    std::memcpy(at, &bits, static_cast<size_t>(type::bytes(step.type.prim)));
    return true;
}

bool write_scalar(const PackStep& step, PyObject* value, uint8_t* at) {
    return type::is_float(step.type.prim) ? write_float(step, value, at)
                                          : write_int(step, value, at);
}

bool component_error(const PackStep& step) {
    return refuse(
        step, "QuadrantsRuntimeTypeError",
        "Argument cannot be converted into required type " + type::to_string(step.type.element()));
}

bool has_elements(PyObject* value) {
    PyObject* held = data::unwrap(value);
    return data::is_field(held) || data::is_ndarray(held);
}

// Fields and ndarrays of two dimensions take both indices at once.
bool has_two_indices(PyObject* value) {
    if (!has_elements(value)) return false;
    const Ref shape = Ref::steal_or_null(PyObject_GetAttr(value, cpython::names().shape_));
    if (!shape) cpython::forget_error();
    return shape && PyTuple_Check(shape.get()) && PyTuple_GET_SIZE(shape.get()) == 2;
}

PyObject* rows_of(PyObject* value, int rows, int columns) {
    Ref list = Ref::steal_or_null(PyList_New(0));
    for (int i = 0; list && i < rows; ++i) {
        const Ref row = Ref::steal_or_null(PyList_New(0));
        for (int j = 0; j < columns; ++j) {
            const Ref index = Ref::steal_or_null(Py_BuildValue("(ii)", i, j));
            const Ref item =
                index ? Ref::steal_or_null(PyObject_GetItem(value, index.get())) : Ref{};
            if (!row || !item || PyList_Append(row.get(), item.get()) < 0) return nullptr;
        }
        if (PyList_Append(list.get(), row.get()) < 0) return nullptr;
    }
    return list.release();
}

// What stands at the indices 0 to count - 1, as a list; or a number.
PyObject* items_of(PyObject* value, int count) {
    for (const char* method : {"to_list", "tolist"})
        if (cpython::has_attribute(value, method))
            return PyObject_CallMethod(value, method, nullptr);
    if (PyList_Check(value) || PyTuple_Check(value)) return PySequence_List(value);
    Ref items = Ref::steal_or_null(PyList_New(0));
    for (int k = 0; items && k < count; ++k) {
        const Ref index = Ref::steal_or_null(PyLong_FromLong(k));
        const Ref item = Ref::steal_or_null(PyObject_GetItem(value, index.get()));
        if (!item || PyList_Append(items.get(), item.get()) < 0) return nullptr;
    }
    return items.release();
}

bool too_few(const PackStep& step) {
    return refuse(
        step, "IndexError",
        "Argument " + step.name + " has too few components for " + type::to_user_string(step.type));
}

// Whether an integer is a number of a component's type, where scalars wrap around.
bool fits(const PackStep& step, PyObject* value) {
    const Prim p = step.type.prim;
    if (type::is_float(p) || !PyIndex_Check(value)) return true;
    const Ref whole = Ref::steal_or_null(PyNumber_Index(value));
    if (!whole) return cpython::forget_error(), true;  // write_scalar says why
    int overflow = 0;
    const long long n = PyLong_AsLongLongAndOverflow(whole.get(), &overflow);
    const bool is_signed = type::is_signed(p), wide = type::bits(p) == 64;
    if (overflow) {
        if (wide && !is_signed && overflow > 0) {
            (void)PyLong_AsUnsignedLongLong(whole.get());
            if (!PyErr_Occurred()) return true;
            cpython::forget_error();
        }
    } else if (is_signed ? wide || n == ir::int_of_bits(p, uint64_t(n))
                         : n >= 0 && (wide || !(uint64_t(n) >> type::bits(p)))) {
        return true;
    }
    PyErr_Format(PyExc_OverflowError, "Python integer %s out of bounds for %s",
                 cpython::integer_text(whole.get()).c_str(),
                 ((is_signed ? "int" : "uint") + std::to_string(type::bits(p))).c_str());
    return false;
}

// Vectors and matrices: anything indexable. A matrix is read row by row, the upper left block of
// a larger one; numbers in place of rows fill it in order.
bool write_tensor_items(const PackStep& step, PyObject* value, uint8_t*& at, const uint8_t* end,
                        int depth = 0) {
    if (depth > kDeepest) return component_error(step);  // a text holds texts for ever
    if (PyNumber_Check(value) && !PySequence_Check(value)) {
        if (at >= end) return true;  // surplus components go unnoticed
        if (!type::is_float(step.type.prim) &&
            (PyFloat_Check(value) || cpython::numpy_kind(value) == NumpyKind::floating))
            return component_error(step);
        if (step.type.prim == Prim::u1) {  // a component is converted, where a scalar is checked
            const int truth = PyObject_IsTrue(value);
            if (truth < 0) return false;
            *at = static_cast<uint8_t>(truth);
        } else if (!fits(step, value) || !write_scalar(step, value, at)) {
            return false;
        }
        at += type::bytes(step.type.prim);
        return true;
    }
    const ir::Type& t = step.type;
    const Ref items = Ref::steal_or_null(!depth && t.rank == 2 && has_two_indices(value)
                                             ? rows_of(value, t.n, t.m)
                                             : items_of(value, depth ? t.m : t.n));
    if (!items) return false;
    if (!PyList_Check(items.get()))
        return write_tensor_items(step, items.get(), at, end, depth + 1);
    if (depth >= step.type.rank) return component_error(step);
    if (depth) {  // a row
        if (at >= end) return true;
        const ptrdiff_t row = step.type.m * type::bytes(step.type.prim);
        end = at + std::min(row, end - at);
    }
    bool ok = true;
    for (Py_ssize_t k = 0; ok && k < PyList_GET_SIZE(items.get()); ++k)
        ok = write_tensor_items(step, PyList_GET_ITEM(items.get(), k), at, end, depth + 1);
    return ok && depth && at != end ? too_few(step) : ok;
}

bool write_tensor(const PackStep& step, PyObject* value, uint8_t* at) {
    const uint8_t* end = at + step.type.size_bytes();
    uint8_t* next = at;
    const bool is_one = PyNumber_Check(value) && !PySequence_Check(value);
    if (is_one || PyUnicode_Check(value)) return component_error(step);
    if (step.type.rank == 2 && has_elements(value) && !has_two_indices(value))
        return component_error(step);  // vectors in a row are no matrix
    if (!write_tensor_items(step, value, next, end)) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(PyExc_KeyError)) {
            cpython::forget_error();
            return component_error(step);
        }
        return false;
    }
    return next == end || too_few(step);
}

void write_descriptor(uint8_t* at, char* data, char* grad, const int32_t* shape, int ndim) {
    const ir::ArrayDesc desc{data, grad};
    std::memcpy(at, &desc, sizeof desc);
    std::memcpy(at + sizeof desc, shape, sizeof(int32_t) * static_cast<size_t>(ndim));
}

// Foreign: an array of others, whose memory is theirs.
enum class Written : uint8_t { yes, foreign, no, error };

// Told apart for statistics, which no launch of ndarrays alone pays for.
[[gnu::noinline]] bool takes_ndarray(PackStep& step) {
    if (step.foreign & PackStep::kOnlyForeign) return false;
    step.foreign = 0;
    return true;
}

Written write_ndarray(PackStep& step, const NdarrayObject& a, uint8_t* at) {
    if (a.generation != session().generation || !a.data) {
        refuse(step, "QuadrantsRuntimeError",
               "Argument " + step.name + " is an ndarray of a runtime that has been reset");
        return Written::error;
    }
    if (a.elem.word() != step.type.value().word() || a.ndim != step.type.ndim ||
        a.layout != step.layout)
        return Written::no;
    if (step.foreign && !takes_ndarray(step)) [[unlikely]]
        return Written::no;
    char* grad = nullptr;
    if (step.needs_grad) {
        if (!a.grad) return Written::no;
        grad = reinterpret_cast<NdarrayObject*>(a.grad)->data;
    } else if (step.refuses_grad && a.grad) {
        return Written::no;
    }
    write_descriptor(at, a.data, grad, a.shape, a.ndim);
    return Written::yes;
}

[[gnu::noinline]] void note_sharing(PackStep& step, PyObject* array) {
    step.foreign &= uint8_t(~PackStep::kLastShared);
    if (data::may_be_shared(array)) step.foreign |= PackStep::kLastShared;
}

[[gnu::noinline]] bool wait_for(const PackStep& step, uint64_t stream) {
    try {
        runtime::cuda::wait_for_stream(stream);
        return true;
    } catch (const support::Error& e) {
        refuse(step, "QuadrantsRuntimeError", e.what());
        return false;
    }
}

[[gnu::noinline]] Written write_external(PackStep& step, PyObject* value, uint8_t* at) {
    ExternalArray a;
    if (!read_external(value, a)) return Written::error;
    const int elem_rank = step.type.rank;
    if (a.prim != step.type.prim || a.ndim != step.type.ndim + elem_rank || step.layout)
        return Written::no;
    if (elem_rank > 0 && (!step.splits || a.shape[step.type.ndim] != step.type.n))
        return Written::no;
    if (elem_rank > 1 && a.shape[step.type.ndim + 1] != step.type.m) return Written::no;
    if (!a.c_contiguous || (a.on_device && session().device->is_host) ||
        (step.needs_grad && !a.has_grad) || (step.refuses_grad && a.has_grad))
        return Written::no;
    if (step.written && a.read_only) {
        refuse(step, "ValueError",
               "Argument " + step.name +
                   " is a read-only array, and the kernel writes to it: pass a copy, or make it "
                   "writeable");
        return Written::error;
    }
    int32_t shape[12];
    for (int k = 0; k < step.type.ndim; ++k) {
        if (a.shape[k] > INT32_MAX) {
            refuse(step, "QuadrantsRuntimeError",
                   "Argument " + step.name + " has " + std::to_string(a.shape[k]) +
                       " elements along axis " + std::to_string(k) +
                       "; at most 2147483647 are supported");
            return Written::error;
        }
        shape[k] = static_cast<int32_t>(a.shape[k]);
    }
    if (a.stream && !wait_for(step, a.stream)) return Written::error;
    write_descriptor(at, a.data, a.grad, shape, step.type.ndim);
    step.foreign |= PackStep::kLastForeign;
    if (step.asks_shared) [[unlikely]]
        note_sharing(step, value);
    return Written::foreign;
}

Written write_array(PackStep& step, PyObject* value, uint8_t* at) {
    value = data::unwrap(value);
    if (data::is_ndarray(value))
        return write_ndarray(step, *reinterpret_cast<NdarrayObject*>(value), at);
    if (!step.only_own && data::is_external(value)) return write_external(step, value, at);
    return Written::no;
}

// Structs whose vectors are of other sizes are other structs, though their class may be the same.
[[gnu::noinline]] bool has_shape(PyObject* value, ir::Type type) {
    const auto attribute = [&](PyObject* name) {
        const Ref o = Ref::steal_or_null(PyObject_GetAttr(value, name));
        if (o && PyLong_Check(o.get())) return PyLong_AsLong(o.get());
        cpython::forget_error();
        return -1L;
    };
    return attribute(cpython::names().ndim_) == type.rank &&
           attribute(cpython::names().n_) == type.n &&
           (type.rank == 1 || attribute(cpython::names().m_) == type.m);
}

Written write_step(PackStep& step, PyObject* value, uint8_t* at) {
    switch (step.kind) {
        case PackStep::Kind::scalar:
            return write_scalar(step, value, at) ? Written::yes : Written::error;
        case PackStep::Kind::tensor:
            if (step.asks_struct(step.attributes.size() - 1) && !has_shape(value, step.type))
                return Written::no;
            return write_tensor(step, value, at) ? Written::yes : Written::error;
        case PackStep::Kind::array:
            return write_array(step, value, at);
        case PackStep::Kind::graph_state:
            break;
    }
    return Written::no;
}

bool same_value(PyObject* a, PyObject* b);

// Tuples, and dataclasses that compare by their fields.
bool same_items(PyObject* a, PyObject* b) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b) || frontend::is_stack_short()) return false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(a); ++k)
        if (!same_value(PyTuple_GET_ITEM(a, k), PyTuple_GET_ITEM(b, k))) return false;
    return true;
}

bool same_fields(PyObject* a, PyObject* b, PyObject* fields) {
    PyObject *name, *field;
    for (Py_ssize_t at = 0; PyDict_Next(fields, &at, &name, &field);) {
        const Ref x = Ref::steal_or_null(PyObject_GetAttr(a, name)),
                  y = Ref::steal_or_null(PyObject_GetAttr(b, name));
        if (!x || !y) return cpython::forget_error(), false;
        if (!same_value(x.get(), y.get())) return false;
    }
    return true;
}

// Equal, and of the same types at any depth: 1, True and 1.0 are equal to Python. -0.0 and 0.0 are
// different constants, NaN is one.
bool same_value(PyObject* a, PyObject* b) {
    if (a == b) return true;
    if (Py_TYPE(a) != Py_TYPE(b)) return false;
    if (PyFloat_CheckExact(a)) {
        const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
        return std::memcmp(&x, &y, sizeof x) == 0;
    }
    if (PyTuple_CheckExact(a)) return same_items(a, b);
    const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal != 1) {
        if (equal < 0) cpython::forget_error();
        return false;
    }
    if (PyTuple_Check(a)) return same_items(a, b);
    // -0.0 among NumPy's numbers and in complex ones; ranges that stop elsewhere; sets of 1 or 1.0.
    if (cpython::is_numpy_scalar(a) || PyComplex_Check(a) || PyRange_Check(a) ||
        PyFrozenSet_Check(a))
        return frontend::have_same_contents(a, b);
    PyObject* fields = _PyType_Lookup(Py_TYPE(a), cpython::names().__dataclass_fields___);
    return !fields || !PyDict_Check(fields) || same_fields(a, b, fields);
}

// Whether an object holds what another held: the same objects, or constants that are alike.
bool same_members(PyObject* o, PyObject* members) {
    const Ref dict = Ref::steal_or_null(PyObject_GetAttr(o, cpython::names().__dict___));
    if (!dict) cpython::forget_error();
    if (!dict || !PyDict_Check(dict.get()) ||
        PyDict_GET_SIZE(dict.get()) != PyDict_GET_SIZE(members))
        return false;
    PyObject *name, *held;
    for (Py_ssize_t at = 0; PyDict_Next(members, &at, &name, &held);) {
        PyObject* now = PyDict_GetItem(dict.get(), name);
        if (now == held) continue;
        const bool constant = PyLong_Check(held) || PyFloat_Check(held) || PyUnicode_Check(held) ||
                              PyTuple_Check(held) || cpython::is_numpy_scalar(held);
        if (!now || !constant || !same_value(now, held)) return false;
    }
    return true;
}

bool same_hash(const IdentityCheck& check, PyObject* value) {
    if (check.hash == -1) return true;
    const Py_hash_t hash = PyObject_Hash(value);
    if (hash == -1) cpython::forget_error();
    return hash == check.hash;
}

bool identity_holds(const IdentityCheck& check, PyObject* value) {
    if (check.of_owner) {
        if (!PyMethod_Check(value)) return false;
        value = PyMethod_GET_SELF(value);
    } else {
        value = identity_of(value);
    }
    if (!check.object)
        return (data::is_ndarray(value) || data::is_external(value)) != check.no_array;
    if (value == check.object && !check.rehash)
        return !check.weak || refers_to(check.weak.get(), value);
    return check.by_value && same_hash(check, value) && same_value(value, check.object) &&
           (!check.members || same_members(value, check.members.get()));
}

bool identities_hold(const Specialisation& s, PyObject* const* args) {
    for (const ClassCheck& check : s.classes)
        if (reinterpret_cast<PyObject*>(Py_TYPE(args[check.argument])) != check.type.get())
            return false;
    for (const IdentityCheck& check : s.identities) {
        PyObject* root = args[check.argument];
        if (check.attributes.empty()) {
            if (!identity_holds(check, root)) return false;
            continue;
        }
        PyObject* value = follow(root, check.attributes);
        if (!value) {
            cpython::forget_error();
            if (check.no_array) continue;
            return false;
        }
        const bool holds = identity_holds(check, value);
        Py_DECREF(value);
        if (!holds) return false;
    }
    return true;
}

// Frozen or not, object.__setattr__ replaces members: the arrays in the block may be gone.
[[gnu::noinline]] bool cached_arrays_live(Specialisation& s) {
    for (const Ref& weak : s.cached_arrays)
        if (refers_to(weak.get(), Py_None)) return false;
    s.cached_at = storages_freed();
    return true;
}

// Whether the arrays under frozen dataclasses are those of the cached block.
bool cache_valid(Specialisation& s, PyObject* const* args) {
    if (s.cached_roots.empty() || s.cached_block.empty()) return false;
    for (const CachedRoot& root : s.cached_roots)
        if (args[root.argument] != root.object || !root.weak ||
            !refers_to(root.weak.get(), root.object))
            return false;
    return s.cached_at == storages_freed() || cached_arrays_live(s);
}

// Remembers the block for later launches with the same frozen arguments, if the last launch had
// them too and all that it has of them can be watched.
[[gnu::noinline]] void remember(Specialisation& s, PyObject* const* args, const uint8_t* block) {
    s.cached_block.clear();
    s.cached_arrays.clear();
    bool again = true;
    for (CachedRoot& root : s.cached_roots)
        again &= std::exchange(root.object, args[root.argument]) == args[root.argument];
    if (!again) return;
    for (const PackStep& step : s.steps) {
        if (!step.cacheable || step.kind != PackStep::Kind::array) continue;
        const Ref leaf = Ref::steal_or_null(follow(args[step.argument], step.attributes));
        PyObject* array = leaf ? data::unwrap(leaf.get()) : nullptr;
        PyObject* weak =
            array && data::is_ndarray(array) ? PyWeakref_NewRef(array, nullptr) : nullptr;
        if (!weak) return cpython::forget_error();
        s.cached_arrays.push_back(Ref::steal(weak));
    }
    for (CachedRoot& root : s.cached_roots) {
        root.weak = Ref::steal_or_null(PyWeakref_NewRef(root.object, nullptr));
        if (!root.weak) return cpython::forget_error();  // of a class that has none
    }
    s.cached_block.assign(block, block + s.args_bytes);
    s.cached_at = storages_freed();
}

PyObject* result_object(const ResultShape& shape, const uint8_t* results,
                        const std::vector<uint32_t>& offsets);

PyObject* scalar_object(Prim p, const uint8_t* at) {
    return load_number(p, reinterpret_cast<const char*>(at));
}

PyObject* tensor_object(Type t, const uint8_t* at) {
    static PyObject* make;  // quadrants.lang.matrix._from_kernel(list, dtype name)
    if (!make) {
        PyObject* module = PyImport_ImportModule("quadrants.lang.matrix");
        if (!module) return nullptr;
        make = PyObject_GetAttrString(module, "_from_kernel");
        Py_DECREF(module);
        if (!make) return nullptr;
    }
    PyObject* rows = PyList_New(t.n);
    if (!rows) return nullptr;
    const int size = type::bytes(t.prim);
    for (int i = 0; i < t.n; ++i) {
        PyObject* row;
        if (t.rank == 1) {
            row = scalar_object(t.prim, at + i * size);
        } else {
            row = PyList_New(t.m);
            for (int j = 0; row && j < t.m; ++j)
                PyList_SET_ITEM(row, j, scalar_object(t.prim, at + (i * t.m + j) * size));
        }
        PyList_SET_ITEM(rows, i, row);
    }
    PyObject* out = PyObject_CallFunction(make, "Os", rows, type::info(t.prim).name);
    Py_DECREF(rows);
    return out;
}

PyObject* struct_object(const ResultShape& shape, const uint8_t* results,
                        const std::vector<uint32_t>& offsets) {
    PyObject* members = PyTuple_New(static_cast<Py_ssize_t>(shape.members.size()));
    if (!members) return nullptr;
    for (size_t k = 0; k < shape.members.size(); ++k) {
        PyObject* member = result_object(shape.members[k], results, offsets);
        if (!member) {
            Py_DECREF(members);
            return nullptr;
        }
        PyTuple_SET_ITEM(members, static_cast<Py_ssize_t>(k), member);
    }
    PyObject* out = PyObject_CallObject(shape.struct_type.get(), members);
    Py_DECREF(members);
    return out;
}

PyObject* result_object(const ResultShape& shape, const uint8_t* results,
                        const std::vector<uint32_t>& offsets) {
    switch (shape.kind) {
        case ResultShape::Kind::scalar:
            return scalar_object(shape.type.prim,
                                 results + offsets[static_cast<size_t>(shape.result)]);
        case ResultShape::Kind::tensor:
            return tensor_object(shape.type, results + offsets[static_cast<size_t>(shape.result)]);
        case ResultShape::Kind::structure:
            return struct_object(shape, results, offsets);
    }
    return nullptr;
}

}  // namespace

// A member of a struct that is kept as itself: the property that gives it is Python code.
[[gnu::noinline]] static PyObject* plain_member(PyObject* structure, PyObject* name) {
    static PyObject* const word = PyUnicode_InternFromString("_entries");
    const Ref entries = Ref::steal_or_null(PyObject_GetAttr(structure, word));
    if (!entries || !PyDict_Check(entries.get())) return cpython::forget_error(), nullptr;
    PyObject* value = PyDict_GetItemWithError(entries.get(), name);
    if (!value) return cpython::forget_error(), nullptr;
    const bool plain =
        PyFloat_CheckExact(value) || PyLong_CheckExact(value) || frontend::is_host_struct(value);
    return plain ? Py_NewRef(value) : nullptr;
}

// Of the text that names an item: equal to it, hashes alike, and is no name of an attribute.
static PyObject* item_text(PyObject* text) {
    static PyObject* const type = [] {
        return PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyType_Type), "s(O){}", "ItemKey",
                                     &PyUnicode_Type);
    }();
    static PyObject* const known = PyDict_New();  // so that equal ones are the same
    PyObject* found = PyDict_GetItemWithError(known, text);
    if (found || PyErr_Occurred()) return Py_XNewRef(found);
    PyObject* made = PyObject_CallOneArg(type, text);
    if (made && PyDict_SetItem(known, text, made) < 0) Py_CLEAR(made);
    return made;
}

Ref key_of(const frontend::Step& step) {
    const bool named =
        step.kind == frontend::Step::Kind::item && PyUnicode_CheckExact(step.key.get());
    return named ? Ref::steal(item_text(step.key.get())) : step.key;
}

PyObject* follow_step(PyObject* at, PyObject* key) {
    return PyUnicode_CheckExact(key) ? PyObject_GetAttr(at, key) : PyObject_GetItem(at, key);
}

PyObject* follow(PyObject* root, const std::vector<Ref>& attributes) {
    PyObject* at = Py_NewRef(root);
    for (const Ref& key : attributes) {
        PyObject* next = follow_step(at, key.get());
        Py_DECREF(at);
        if (!next) return nullptr;
        at = next;
    }
    return at;
}

// As `follow`; `other` is set where an object is of another class than it was. Out of line, as it
// is longer than what surrounds it.
[[gnu::noinline]] static PyObject* follow_checked(PyObject* root, const PackStep& step,
                                                  bool& other) {
    PyObject* at = Py_NewRef(root);
    const Ref* wanted = step.classes.data();
    uint32_t bit = 1;
    for (const Ref& key : step.attributes) {
        PyObject* next = nullptr;
        if (wanted->get() && wanted->get() != reinterpret_cast<PyObject*>(Py_TYPE(at))) [[unlikely]]
            other = true;
        else if (!(step.structs & bit) || !(next = plain_member(at, key.get())))
            next = follow_step(at, key.get());
        Py_DECREF(at);
        if (!next) return nullptr;
        at = next;
        bit <<= 1;
        ++wanted;
    }
    return at;
}

// Whether the arrays lie where those of compared_block lie; a cached block's do once it was
// compared.
static bool arrays_stayed(const Specialisation& s, const uint8_t* block, bool cached) {
    if (s.compared_block.empty()) return false;
    for (const PackStep& step : s.steps) {
        if (step.kind != PackStep::Kind::array || (cached && step.cacheable)) continue;
        const size_t bytes = sizeof(ir::ArrayDesc) + 4 * static_cast<size_t>(step.type.ndim);
        if (std::memcmp(block + step.offset, &s.compared_block[step.offset], bytes) != 0)
            return false;
    }
    return true;
}

Match match_and_pack(Specialisation& s, const std::vector<Parameter>& parameters,
                     PyObject* const* args, uint8_t* block, Kept& kept) {
    if (!identities_hold(s, args)) return Match::no;
    const bool cached = cache_valid(s, args);
    if (cached) std::memcpy(block, s.cached_block.data(), s.cached_block.size());
    for (PackStep& step : s.steps) {
        if (cached && step.cacheable) continue;
        if (step.kind == PackStep::Kind::graph_state) {
            const int32_t words[] = {s.graph->state_words()};
            auto* state = reinterpret_cast<char*>(block + s.graph->state_offset);
            write_descriptor(block + step.offset, state, nullptr, words, 1);
            continue;
        }
        PyObject* value = args[step.argument];
        Written written;
        if (step.attributes.empty()) {
            written = write_step(step, value, block + step.offset);
        } else {
            bool other = false;
            value = follow_checked(value, step, other);
            if (other) return Match::no;
            if (!value) {
                // Not a struct of that type, or no view: a new specialisation says so in the right
                // words.
                const Parameter::Kind kind = parameters[step.argument].kind;
                if ((kind != Parameter::Kind::structure && kind != Parameter::Kind::buffer_view) ||
                    !PyErr_ExceptionMatches(PyExc_AttributeError))
                    return Match::error;
                cpython::forget_error();
                return Match::no;
            }
            written = write_step(step, value, block + step.offset);
            // Memory of ndarrays waits for launches: OpenLaunch.
            if (written == Written::foreign ||
                (step.kind == PackStep::Kind::array && Py_REFCNT(value) == 1))
                kept.add(value);
            else
                Py_DECREF(value);
        }
        if (written == Written::no) return Match::no;
        if (written == Written::error) return Match::error;
    }
    if (!cached && !s.cached_roots.empty()) remember(s, args, block);
    if (const uint32_t use = s.array_use()) {
        const bool fields = (use & ~abi::kDistinctArrays) && any_field_shared();
        if (fields || !arrays_stayed(s, block, cached)) {
            s.overlapped = arrays_overlap(s, block, use);
            s.compared_block.assign(block, block + (fields ? 0 : s.args_bytes));
        }
        if (s.overlapped != ((use & abi::kOverlappingArrays) != 0)) return Match::no;
    }
    return Match::yes;
}

bool arrays_overlap(const Specialisation& s, const uint8_t* block, uint32_t use) {
    const bool fields = (use & ~abi::kDistinctArrays) && any_field_shared();
    const bool arrays = use & ~abi::kOwnFields;
    if (!fields && !arrays) return false;
    struct Range {
        uintptr_t begin, end;
    };
    Range small[32];
    std::vector<Range> large;
    Range* ranges = small;
    if (2 * s.steps.size() > std::size(small)) {
        large.resize(2 * s.steps.size());
        ranges = large.data();
    }
    size_t count = 0;
    for (const PackStep& step : s.steps) {
        if (step.kind != PackStep::Kind::array) continue;
        ir::ArrayDesc desc;
        std::memcpy(&desc, block + step.offset, sizeof desc);
        auto bytes = static_cast<uintptr_t>(step.type.value().size_bytes());
        for (int k = 0; k < step.type.ndim; ++k) {
            int32_t extent;
            std::memcpy(&extent, block + step.offset + sizeof desc + 4 * static_cast<size_t>(k), 4);
            bytes *= static_cast<uintptr_t>(extent);
        }
        for (const void* start :
             {static_cast<const void*>(desc.data), static_cast<const void*>(desc.grad)}) {
            const auto begin = reinterpret_cast<uintptr_t>(start);
            if (!start || !bytes) continue;
            if (fields && in_shared_field(begin, begin + bytes)) return true;
            ranges[count++] = {begin, begin + bytes};
        }
    }
    if (!arrays) return false;
    std::sort(ranges, ranges + count,
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    for (size_t k = 1; k < count; ++k)
        if (ranges[k].begin < ranges[k - 1].end)
            return true;  // sorted, and the first overlap is between neighbours
    return false;
}

PyObject* build_results(const Specialisation& s, const uint8_t* results) {
    if (s.results.empty()) Py_RETURN_NONE;
    if (!s.returns_tuple && s.results.size() == 1 && s.results[0].kind == ResultShape::Kind::scalar)
        return scalar_object(s.results[0].type.prim, results);
    std::vector<uint32_t> offsets;
    uint32_t at = 0;
    auto visit = [&](auto&& self, const ResultShape& shape) -> void {
        for (const ResultShape& m : shape.members) self(self, m);
        if (shape.kind != ResultShape::Kind::structure) {
            offsets.push_back(at);
            at += static_cast<uint32_t>((shape.type.size_bytes() + 7) & ~7);
        }
    };
    for (const ResultShape& r : s.results) visit(visit, r);
    if (!s.returns_tuple) return result_object(s.results[0], results, offsets);
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(s.results.size()));
    for (size_t k = 0; tuple && k < s.results.size(); ++k) {
        PyObject* item = result_object(s.results[k], results, offsets);
        if (!item) {
            Py_DECREF(tuple);
            return nullptr;
        }
        PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(k), item);
    }
    return tuple;
}

}  // namespace qd::launcher
