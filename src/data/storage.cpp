// See storage.h. DLPack's structs are those of its specification, version 1.0.

#include "data/storage.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cpython/cpython.h"
#include "data/objects.h"
#include "ir/ir.h"
#include "session/session.h"

namespace qd::data {
namespace {

using namespace cpython;
using namespace session;
using session::session;

using type::Prim;

// --- the buffer protocol ------------------------------------------------------------------------
struct ViewObject {
    PyObject_HEAD
    Window* window;  // holds its storage
};

const char* format_of(Prim p) {
    // NumPy has two types of 64 bits; torch knows the one that int64 and uint64 name.
    static const bool long_is_64 = sizeof(long) == 8;
    static const char* const i64 = long_is_64 ? "l" : "q";
    static const char* const u64 = long_is_64 ? "L" : "Q";
    static const char* const table[] = {"?", "b", "h", "i", i64, "B", "H", "I", u64, "e", "f", "d"};
    return table[static_cast<int>(p)];
}

int view_getbuffer(PyObject* self, Py_buffer* out, int flags) {
    Window& w = *reinterpret_cast<ViewObject*>(self)->window;
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
        PyErr_SetString(PyExc_BufferError, "this memory is strided");
        return -1;
    }
    out->obj = Py_NewRef(self);
    out->buf = w.data;
    out->itemsize = type::bytes(w.prim);
    out->len = out->itemsize;
    for (Py_ssize_t n : w.shape) out->len *= n;
    out->readonly = 0;
    out->ndim = static_cast<int>(w.shape.size());
    out->format = flags & PyBUF_FORMAT ? const_cast<char*>(format_of(w.prim)) : nullptr;
    out->shape = w.shape.data();
    out->strides = w.strides.data();
    out->suboffsets = nullptr;
    out->internal = nullptr;
    return 0;
}

void view_dealloc(PyObject* self) {
    Window* w = reinterpret_cast<ViewObject*>(self)->window;
    if (w) drop(w->storage);
    delete w;
    Py_TYPE(self)->tp_free(self);
}

PyBufferProcs view_buffer = {view_getbuffer, nullptr};

PyTypeObject View_Type = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0).tp_name = "quadrants._lib.core.StorageView",
    .tp_basicsize = sizeof(ViewObject),
    .tp_dealloc = view_dealloc,
    .tp_as_buffer = &view_buffer,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A window into the memory of a field or ndarray.",
};

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
    t.device = {1, 0};  // kDLCPU
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

// Streams over large arrays are bound by page walks: a third of a sum's speed over 256 MB. Only a
// hint, which small arrays go without.
void ask_for_huge_pages(char* data, size_t bytes) {
    constexpr size_t kLeast = size_t(4) << 20, kPage = 4096;
    if (bytes < kLeast) return;
    const uintptr_t first = (reinterpret_cast<uintptr_t>(data) + kPage - 1) & ~(kPage - 1);
    const uintptr_t end = (reinterpret_cast<uintptr_t>(data) + bytes) & ~(kPage - 1);
    (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace

static uint64_t storages = 0;

// --- launches without the GIL -------------------------------------------------------------------
namespace {

struct Open {
    uint64_t number;
    std::thread::id thread;
};
struct Waiting {
    Storage* storage;
    uint64_t gone;  // how many launches had begun when its last holder went
};
struct OpenLaunches {
    std::mutex mutex;  // views may be dropped without the GIL
    std::vector<Open> open;
    std::vector<Waiting> waiting;
};
OpenLaunches* launches = new OpenLaunches;
std::atomic<uint64_t> begun{0};
std::atomic<size_t> open_count{0};

bool is_used(const Waiting& w) {
    return std::ranges::any_of(launches->open, [&](const Open& launch) {
        return w.storage->made < launch.number && launch.number <= w.gone;
    });
}

void free_now(Storage* s) {
    std::free(s->raw);
    delete s;
}

}  // namespace

void OpenLaunch::begin() {
    if (number_) return;
    const std::lock_guard lock(launches->mutex);
    number_ = ++begun;
    launches->open.push_back({number_, std::this_thread::get_id()});
    open_count = launches->open.size();
}

void OpenLaunch::end() {
    std::vector<Storage*> unused;
    {
        const std::lock_guard lock(launches->mutex);
        std::erase_if(launches->open, [&](const Open& o) { return o.number == number_; });
        open_count = launches->open.size();
        std::erase_if(launches->waiting, [&](const Waiting& w) {
            const bool used = is_used(w);
            if (!used) unused.push_back(w.storage);
            return !used;
        });
    }
    for (Storage* s : unused) free_now(s);
}

void OpenLaunch::in_forked_child() {
    auto* mine = new OpenLaunches;  // the parent's may be locked
    for (const Open& o : launches->open)
        if (o.thread == std::this_thread::get_id()) mine->open.push_back(o);
    launches = mine;
    open_count = mine->open.size();
}

uint64_t storages_made() { return storages; }

Storage* allocate_storage(size_t bytes, size_t margin) {
    ++storages;
    auto s = std::make_unique<Storage>();
    s->raw = bytes > (size_t(1) << 62)
                 ? nullptr
                 : std::calloc(
                       1, bytes + 2 * margin + 64);  // large blocks are mapped, hence zeroed lazily
    if (!s->raw) {
        set_error("RuntimeError",
                  "Out of memory: cannot allocate " + std::to_string(bytes) + " bytes");
        return nullptr;
    }
    s->data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(s->raw) + margin + 63) &
                                      ~uintptr_t(63));
    s->bytes = bytes;
    s->made = begun;
    ask_for_huge_pages(s->data, bytes);
    return s.release();
}

void drop(Storage* s) {
    if (!s || s->holders.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (open_count) {
        const std::lock_guard lock(launches->mutex);
        const Waiting w{s, begun};
        if (is_used(w)) return launches->waiting.push_back(w);
    }
    free_now(s);
}

namespace {
std::map<uintptr_t, uintptr_t> shared;  // begin to end
}
void share_field(const Storage* s) {
    const auto begin = reinterpret_cast<uintptr_t>(s->data);
    uintptr_t& end = shared[begin];
    end = std::max(end, begin + s->bytes);
}
bool any_field_shared() { return !shared.empty(); }
bool in_shared_field(uintptr_t begin, uintptr_t end) {
    const auto after = shared.lower_bound(end);  // the first that begins behind the range
    return after != shared.begin() && std::prev(after)->second > begin;
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

bool read_number(Prim p, PyObject* value, uint64_t& bits) {
    if (type::is_float(p)) {
        const double d = PyFloat_AsDouble(value);
        if (d == -1 && PyErr_Occurred()) return false;
        bits = ir::bits_of_double(p, d);
    } else if (PyLong_Check(value)) {
        bits = PyLong_AsUnsignedLongLongMask(value);
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
        bits = PyLong_AsUnsignedLongLongMask(index);
        Py_DECREF(index);
    }
    if (bits == ~uint64_t(0) && PyErr_Occurred()) return false;
    if (p == Prim::u1) bits = bits != 0;
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

PyObject* make_view(const Window& w) {
    auto* v = PyObject_New(ViewObject, &View_Type);
    if (!v) return nullptr;
    v->window = new Window(w);
    hold(w.storage);
    return reinterpret_cast<PyObject*>(v);
}

PyObject* make_capsule(const Window& w, bool versioned) {
    if (!versioned)
        return PyCapsule_New(make_export<DLManagedTensor>(w), "dltensor", destroy_plain);
    auto* m = make_export<DLManagedTensorVersioned>(w);
    m->major = 1;
    m->minor = 0;
    m->flags = 0;
    return PyCapsule_New(m, "dltensor_versioned", destroy_versioned);
}

bool add_storage_types() {
    on_reset([] { shared.clear(); });
    return PyType_Ready(&View_Type) == 0;
}

}  // namespace qd::data
