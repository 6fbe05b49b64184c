// See entry.h.

#include "cpython/entry.h"

#include <exception>
#include <new>

#include "cpython/cpython.h"

namespace qd::cpython {

void raise_in_python() noexcept {
    try {
        throw;
    } catch (const PyError&) {  // is set
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& e) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, e.what());
    } catch (...) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "internal error");
    }
    // Or was kept: lack of memory is no answer to the question that met it first.
    if (!(errors_kept && raise_kept_error()) && !PyErr_Occurred()) PyErr_NoMemory();
}

}  // namespace qd::cpython
