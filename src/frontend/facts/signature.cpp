// See signature.h.

#include "frontend/facts/signature.h"

#include "cpython/names.h"
#include "frontend/facts/annotations.h"
#include "frontend/facts/memo.h"

namespace qd::frontend {
namespace {

Ref get(PyObject* o, PyObject* name) { return Ref::steal(PyObject_GetAttr(o, name)); }
bool flag(PyObject* o, PyObject* name) {
    Ref v = Ref::steal_or_null(PyObject_GetAttr(o, name));
    if (!v) forget_error();
    return v && PyObject_IsTrue(v.get()) == 1;
}

}  // namespace

const FuncSignature& signature_of(PyObject* definition) {
    auto& all = memo<FuncSignature>();
    if (const auto it = all.find(definition); it != all.end()) return it->second;
    FuncSignature s;
    s.definition = Ref::borrow(definition);
    s.fn = get(definition, names().fn_);
    s.returns = get(definition, names().returns_);
    s.is_real = flag(definition, names()._is_real_);
    s.top_level_only = flag(definition, names()._qd_requires_top_level_);
    Ref params = get(definition, names().params_);
    Ref list = Ref::steal(PySequence_Tuple(params.get()));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(list.get()); ++k) {
        PyObject* row = PyTuple_GET_ITEM(list.get(), k);
        Param p{Ref::borrow(PyTuple_GetItem(row, 0)), Ref::borrow(PyTuple_GetItem(row, 1)),
                Ref::borrow(PyTuple_GetItem(row, 2))};
        p.has_default = !is_empty(p.default_value.get());
        PyObject* name = p.name.release();
        PyUnicode_InternInPlace(&name);
        p.name = Ref::steal(name);
        s.params.push_back(std::move(p));
    }
    return all[definition] = std::move(s);
}

}  // namespace qd::frontend
