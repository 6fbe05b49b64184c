// See storage.h. DLPack's structs are those of its specification, version 1.0.

#include "data/storage.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "cpython/cpython.h"
#include "cpython/entry.h"
#include "data/objects.h"
#include "ir/ir.h"
#include "session/session.h"

namespace qd::data {
namespace {

using namespace cpython;
using namespace session;
using session::session;

using type::Prim;

// --- DLPack
// ---------------------------------------------------------------------------------------
struct DLDevice {
    int32_t device_type, device_id;
};
struct DLDataType {
    uint8_t code, bits;
    uint16_t lanes;
};
struct DLTensor {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};
struct DLManagedTensor {
    DLTensor tensor;
    void* context;
    void (*deleter)(DLManagedTensor*);
};
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void* context;
    void (*deleter)(DLManagedTensorVersioned*);
    uint64_t flags;
    DLTensor tensor;
};

template <class Managed>
struct Export {
    Managed managed{};
    Storage* storage = nullptr;
    std::vector<int64_t> shape, strides;
};

template <class Managed>
void delete_export(Managed* m) {
    auto* e = static_cast<Export<Managed>*>(m->context);
    drop(e->storage);
    delete e;
}

// A consumer renames the capsule and then owns the tensor.
template <class Managed>
void capsule_destructor(PyObject* capsule, const char* name) {
    if (!PyCapsule_IsValid(capsule, name)) return;
    auto* m = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
    m->deleter(m);
}
void destroy_plain(PyObject* c) { capsule_destructor<DLManagedTensor>(c, "dltensor"); }
void destroy_versioned(PyObject* c) {
    capsule_destructor<DLManagedTensorVersioned>(c, "dltensor_versioned");
}

template <class Managed>
Managed* make_export(const Window& w) {
    auto e = std::make_unique<Export<Managed>>();
    const int size = type::bytes(w.prim);
    e->shape.assign(w.shape.begin(), w.shape.end());
    for (Py_ssize_t s : w.strides) e->strides.push_back(s / size);
    e->storage = hold(w.storage);
    DLTensor& t = e->managed.tensor;
    t.data = w.data;
    t.device = {w.storage->device->dlpack_type, 0};
    t.ndim = static_cast<int32_t>(w.shape.size());
    const uint8_t code = w.prim == Prim::u1        ? 6
                         : type::is_float(w.prim)  ? 2
                         : type::is_signed(w.prim) ? 0
                                                   : 1;
    t.dtype = {code, static_cast<uint8_t>(8 * size), 1};
    t.shape = e->shape.data();
    t.strides = e->strides.data();
    t.byte_offset = 0;
    e->managed.context = e.get();
    e->managed.deleter = delete_export<Managed>;
    return &e.release()->managed;
}

}  // namespace

static uint64_t storages = 0;
static std::atomic<uint64_t> freed = 0;

// --- launches without the GIL -------------------------------------------------------------------
namespace {

// Lists without memory of their own: to begin and end a launch, and to let go, never fails.
struct OpenLaunches {
    std::mutex mutex;  // views may be dropped without the GIL
    OpenLaunch* open = nullptr;
    Storage* waiting = nullptr;
};
OpenLaunches& launches = *new OpenLaunches;
std::atomic<uint64_t> begun{0};
std::atomic<size_t> open_count{0};

void free_now(Storage* s) {
    freed.fetch_add(1, std::memory_order_relaxed);
    s->device->release(s->memory);
    delete s;
}

}  // namespace

bool OpenLaunch::uses(const Storage& s) const { return s.made < number_ && number_ <= s.gone; }

bool OpenLaunch::any_uses(const Storage& s) {
    const OpenLaunch* launch = launches.open;
    while (launch && !launch->uses(s)) launch = launch->next_;
    return launch;
}

void OpenLaunch::begin() {
    if (number_) return;
    const std::lock_guard lock(launches.mutex);
    number_ = ++begun;
    thread_ = std::this_thread::get_id();
    next_ = std::exchange(launches.open, this);
    ++open_count;
}

void OpenLaunch::end() {
    Storage* unused = nullptr;
    {
        const std::lock_guard lock(launches.mutex);
        OpenLaunch** at = &launches.open;
        while (*at && *at != this) at = &(*at)->next_;
        if (*at) {
            *at = next_;
            --open_count;
        }
        for (Storage** s = &launches.waiting; *s;) {
            if (any_uses(**s)) {
                s = &(*s)->next;
                continue;
            }
            Storage* const taken = std::exchange(*s, (*s)->next);
            taken->next = std::exchange(unused, taken);
        }
    }
    while (unused) free_now(std::exchange(unused, unused->next));
}

// What the parent's other threads hold, the lock among it, is left to them.
void OpenLaunch::in_forked_child() {
    OpenLaunch* mine = nullptr;
    size_t count = 0;
    for (OpenLaunch *o = launches.open, *next; o; o = next) {
        next = o->next_;
        if (o->thread_ != std::this_thread::get_id()) continue;
        o->next_ = std::exchange(mine, o);
        ++count;
    }
    new (&launches) OpenLaunches;
    launches.open = mine;
    open_count = count;
}

uint64_t storages_made() { return storages; }
uint64_t storages_freed() { return freed.load(std::memory_order_relaxed); }

// What nobody uses is given back: objects in cycles, and what torch keeps for itself.
static void give_back_memory() {
    PyGC_Collect();
    PyObject* torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    PyObject* cuda = torch ? PyObject_GetAttrString(torch, "cuda") : nullptr;
    PyObject* done = cuda ? PyObject_CallMethod(cuda, "empty_cache", nullptr) : nullptr;
    if (!done) cpython::forget_error();
    Py_XDECREF(done);
    Py_XDECREF(cuda);
}

static void raise_no_memory(const runtime::Device& device, size_t bytes) {
    const auto now = device.synchronise ? device.synchronise(0) : runtime::Wait{};
    if (!now.problem.empty()) return raise_problem(now);
    set_error("RuntimeError", "Out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
}

Storage* allocate_storage(size_t bytes, size_t margin, bool sparse) {
    ++storages;
    auto s = std::make_unique<Storage>();
    s->device = session().device;
    s->on_host = s->device->is_host;
    const auto allocate = sparse && s->device->reserve ? s->device->reserve : s->device->allocate;
    const bool possible = bytes <= size_t(1) << 62;
    if (possible) s->memory = allocate(bytes, margin);
    if (!s->memory.data && possible && !s->on_host) {
        give_back_memory();
        s->memory = allocate(bytes, margin);
    }
    if (!s->memory.data) {
        raise_no_memory(*s->device, bytes);
        return nullptr;
    }
    s->made = begun;
    return s.release();
}

void drop(Storage* s) {
    if (!s || s->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (open_count) {
        const std::lock_guard lock(launches.mutex);
        s->gone = begun;
        if (OpenLaunch::any_uses(*s)) {
            s->next = std::exchange(launches.waiting, s);
            return;
        }
    }
    free_now(s);
}

namespace {
std::map<uintptr_t, uintptr_t> shared;  // begin to end
}
void share_field(const Storage* s) {
    const auto begin = reinterpret_cast<uintptr_t>(s->memory.data);
    uintptr_t& end = shared[begin];
    end = std::max(end, begin + s->memory.bytes);
}
bool any_field_shared() { return !shared.empty(); }
bool in_shared_field(uintptr_t begin, uintptr_t end) {
    const auto after = shared.lower_bound(end);  // the first that begins behind the range
    return after != shared.begin() && std::prev(after)->second > begin;
}

bool expose(Storage& s) {
    if (s.on_host) return true;
    if (!s.device->expose) {
        PyErr_Format(PyExc_ValueError,
                     "Zero-copy not available: the memory of device %s is not the host's",
                     s.device->name);
        return false;
    }
    s.device->expose(s.memory);
    return s.on_host = true;
}

PyObject* raise_failure(const runtime::Device& device) {
    runtime::Wait now = device.synchronise(INT64_MAX);
    if (now.problem.empty()) now.problem = "the device's memory could not be read";
    raise_problem(now);
    return nullptr;
}

void raise_problem(const runtime::Wait& w) {
    set_error(w.is_check ? "QuadrantsAssertionError" : "QuadrantsRuntimeError", w.problem);
}

PyObject* load_far_element(const Storage& s, Prim p, const char* at) {
    uint64_t bits = 0;
    if (!s.device->read(&bits, at, static_cast<size_t>(type::bytes(p))))
        return raise_failure(*s.device);
    return load_number(p, reinterpret_cast<const char*>(&bits));
}

PyObject* load_number(Prim p, const char* at) {
    uint64_t bits = 0;
    std::memcpy(&bits, at, static_cast<size_t>(type::bytes(p)));
    if (p == Prim::f32 && !(bits & 0x7f800000)) {  // the conversion would flush a subnormal
        const double size = static_cast<double>(bits & 0x7fffff) * 0x1p-149;
        return PyFloat_FromDouble(bits >> 31 ? -size : size);
    }
    if (type::is_float(p)) return PyFloat_FromDouble(ir::double_of_bits(p, bits));
    if (p == Prim::u1) return PyLong_FromLong(bits != 0);
    return type::is_signed(p) ? PyLong_FromLongLong(ir::int_of_bits(p, bits))
                              : PyLong_FromUnsignedLongLong(bits);
}

// Wraps to what any integer dtype holds; what none does is a mistake.
bool read_integer(Prim p, PyObject* value, uint64_t& bits) {
    int overflow;
    bits = static_cast<uint64_t>(PyLong_AsLongLongAndOverflow(value, &overflow));
    if (overflow > 0) bits = PyLong_AsUnsignedLongLong(value);
    if (overflow >= 0 && !PyErr_Occurred()) return true;
    cpython::forget_error();
    PyErr_Format(PyExc_TypeError,
                 "an integer of at most 64 bits is required for an element of "
                 "type %s, got %s",
                 type::info(p).name, cpython::integer_text(value).c_str());
    return false;
}

bool read_number(Prim p, PyObject* value, uint64_t& bits) {
    if (type::is_float(p)) {
        const double d = PyFloat_AsDouble(value);
        if (d == -1 && PyErr_Occurred()) return false;
        bits = ir::bits_of_double(p, d);
    } else if (PyLong_Check(value)) {
        if (!read_integer(p, value, bits)) return false;
    } else {  // NumPy's numbers, floats among them, are cut to integers; Python's floats are
              // refused
        const PyNumberMethods* number = Py_TYPE(value)->tp_as_number;
        const bool accepted =
            !PyFloat_Check(value) && number && (number->nb_int || number->nb_index);
        PyObject* index = accepted ? PyNumber_Long(value) : nullptr;
        if (!index) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError,
                             "an integer is required for an element of type %s, got %R",
                             type::info(p).name, value);
            return false;
        }
        const bool good = read_integer(p, index, bits);
        Py_DECREF(index);
        if (!good) return false;
    }
    if (p == Prim::u1) bits = bits != 0;
    return true;
}

bool is_one_index(PyObject* key) {
    if (PyTuple_Check(key) || PyList_Check(key)) return false;
    if (!PySequence_Check(key) || PyBytes_Check(key) || PyByteArray_Check(key) ||
        PyRange_Check(key) || PyUnicode_Check(key))
        return true;
    if (!PyIndex_Check(key) || PySequence_Size(key) >= 0) return false;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    cpython::forget_error();
    return true;
}

bool read_index(PyObject* o, int64_t& out) {
    if (!PyLong_Check(o)) {
        PyObject* index = PyNumber_Index(o);
        if (!index) return false;
        const bool good = read_index(index, out);
        Py_DECREF(index);
        return good;
    }
    int overflow;
    out = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow)
        PyErr_Format(PyExc_IndexError, "index %s lies outside every field and array",
                     cpython::integer_text(o).c_str());
    return !overflow && !(out == -1 && PyErr_Occurred());
}

template <auto destroy, class Managed>
static PyObject* capsule_of(Managed* m, const char* name) {
    PyObject* capsule = PyCapsule_New(m, name, entry<destroy>);
    if (!capsule) m->deleter(m);
    return capsule;
}

PyObject* make_capsule(const Window& w, bool versioned) {
    if (w.storage->device->expose && !expose(*w.storage)) return nullptr;
    if (w.storage->device->share) w.storage->device->share();
    if (!versioned) return capsule_of<destroy_plain>(make_export<DLManagedTensor>(w), "dltensor");
    auto* m = make_export<DLManagedTensorVersioned>(w);
    m->major = 1;
    m->minor = 0;
    m->flags = 0;
    return capsule_of<destroy_versioned>(m, "dltensor_versioned");
}

bool add_storage_types() {
    on_reset([] { shared.clear(); });
    return add_view_type();
}

}  // namespace qd::data
