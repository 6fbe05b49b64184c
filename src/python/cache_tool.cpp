// What the command line does to a cache: cache_entries(), cache_read(), cache_write() and
// cache_identity(). A folder is the option offline_cache_file_path.

#include <sys/stat.h>

#include <algorithm>

#include "cache/store.h"
#include "frontend/frontend.h"
#include "python/areas.h"
#include "python/target.h"
#include "support/abi.h"

namespace qd::python {
namespace {

using frontend::Ref;

bool is_hash(std::string_view s) {
    return s.size() == 32 && std::ranges::all_of(s, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

// "code/<hash>" or "kernels/<hash>/<hash>".
bool is_entry(std::string_view name) {
    if (name.starts_with("code/")) return is_hash(name.substr(5));
    return name.starts_with("kernels/") && name.size() == 8 + 32 + 1 + 32 && name[40] == '/' &&
           is_hash(name.substr(8, 32)) && is_hash(name.substr(41));
}

cache::Store store_of(PyObject* folder) {
    const Ref bytes = Ref::steal(PyUnicode_EncodeFSDefault(folder));
    return cache::Store(std::string(PyBytes_AS_STRING(bytes.get())) + "/native");
}

// cache_entries(folder) -> [(name, bytes, when it was last used, whether it is whole), ...]
PyObject* cache_entries(PyObject*, PyObject* folder) try {
    const cache::Store store = store_of(folder);
    std::vector<std::string> names;
    for (const std::string& name : store.list("code")) names.push_back("code/" + name);
    for (const std::string& key : store.list("kernels"))
        for (const std::string& name : store.list("kernels/" + key))
            names.push_back("kernels/" + key + "/" + name);
    Ref list = Ref::steal(PyList_New(0));
    for (const std::string& name : names) {
        struct stat info;
        if (::lstat((store.folder() + "/" + name).c_str(), &info) != 0) continue;
        const auto used = std::max(info.st_atime, info.st_mtime);
        const bool whole = is_entry(name) && store.read(name);
        const Ref item =
            Ref::steal(Py_BuildValue("sLLO", name.c_str(), static_cast<long long>(info.st_size),
                                     static_cast<long long>(used), whole ? Py_True : Py_False));
        if (PyList_Append(list.get(), item.get()) < 0) return nullptr;
    }
    return list.release();
} catch (const frontend::PyError&) {
    return nullptr;
}

// cache_read(folder, name) -> bytes or None
PyObject* cache_read(PyObject*, PyObject* args) try {
    PyObject* folder;
    const char* name;
    if (!PyArg_ParseTuple(args, "Us", &folder, &name)) return nullptr;
    const auto content = is_entry(name) ? store_of(folder).read(name) : std::nullopt;
    if (!content) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(content->data()),
                                     static_cast<Py_ssize_t>(content->size()));
} catch (const frontend::PyError&) {
    return nullptr;
}

// cache_write(folder, name, content) -> whether it is there now
PyObject* cache_write(PyObject*, PyObject* args) try {
    PyObject* folder;
    const char *name, *bytes;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Usy#", &folder, &name, &bytes, &count)) return nullptr;
    if (!is_entry(name))
        return PyErr_Format(PyExc_ValueError, "'%s' is no name of a cache entry", name);
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes);
    return PyBool_FromLong(store_of(folder).write(name, {begin, static_cast<size_t>(count)}));
} catch (const frontend::PyError&) {
    return nullptr;
}

// cache_identity() -> (ABI version, hash of the build, the CPU's features)
PyObject* cache_identity(PyObject*, PyObject*) {
    const std::string& build = build_identity();
    return Py_BuildValue(
        "ks#s", static_cast<unsigned long>(abi::kAbiVersion),
        cache::hex({reinterpret_cast<const uint8_t*>(build.data()), build.size()}).c_str(),
        Py_ssize_t(2 * build.size()), host_features().c_str());
}

PyMethodDef methods[] = {
    {"cache_entries", cache_entries, METH_O,
     "Entries below a folder: name, bytes, time of last use, whether it is whole."},
    {"cache_read", cache_read, METH_VARARGS, "The content of an entry; None if it is not whole."},
    {"cache_write", cache_write, METH_VARARGS, "Makes an entry of a name and its content."},
    {"cache_identity", cache_identity, METH_NOARGS,
     "What entries are made for: ABI version, build, features of the CPU."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_cache_tool(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace qd::python
