// What the command line does to a cache: cache_entries(), cache_read(), cache_write(),
// cache_check_name() and cache_identity(), and cache_may_hold() for the files of Python's own. A
// folder is the option offline_cache_file_path.

#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "cache/kernel_folder.h"
#include "cache/store.h"
#include "cpython/entry.h"
#include "frontend/frontend.h"
#include "python/areas.h"
#include "session/stored_code.h"
#include "session/target.h"
#include "support/abi.h"

namespace qd::python {
namespace {

using namespace session;

using cpython::entry;
using cpython::Ref;

bool is_hash(std::string_view s) {
    return s.size() == 32 && std::ranges::all_of(s, [](char c) {
               return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
           });
}

// "code/T<64 hex>.qdc", "kernels/<hash>/<hash>", "parts/<hash>" or "trees/<hash>".
bool is_entry(std::string_view name) {
    if (name.starts_with("parts/") || name.starts_with("trees/")) return is_hash(name.substr(6));
    if (name.starts_with("code/")) return cache::KernelFolder::is_name(name.substr(5));
    return name.starts_with("kernels/") && name.size() == 8 + 32 + 1 + 32 && name[40] == '/' &&
           is_hash(name.substr(8, 32)) && is_hash(name.substr(41));
}

// Code lies in one of two places (cache/kernel_folder.h), under the same name in it.
struct Places {
    cache::Store native, kept;
    explicit Places(const std::string& path)
        : native(cache::KernelFolder::pending_of(path)), kept(cache::KernelFolder::kept_of(path)) {}

    std::vector<std::string> files(std::string_view name) const {
        std::vector<std::string> out{native.folder() + "/" + std::string(name)};
        if (name.starts_with("code/"))
            out.push_back(kept.folder() + "/" + std::string(name.substr(5)));
        return out;
    }
    std::optional<cache::Bytes> read(std::string_view name) const {
        auto content = native.read(name);
        if (!content && name.starts_with("code/")) content = kept.read(name.substr(5));
        return content;
    }
};

Places places_of(PyObject* folder) {
    const Ref bytes = Ref::steal(PyUnicode_EncodeFSDefault(folder));
    return Places(PyBytes_AS_STRING(bytes.get()));
}

// cache_entries(folder) -> [(name, path, bytes, when it was last used, whether it is whole), ...]
PyObject* cache_entries(PyObject*, PyObject* folder) try {
    const Places places = places_of(folder);
    std::set<std::string> names;
    for (const std::string& name : places.native.list("code")) names.insert("code/" + name);
    for (const std::string& name : places.kept.list("."))
        if (name.ends_with(".qdc")) names.insert("code/" + name);
    for (const char* folder : {"parts", "trees"})
        for (const std::string& name : places.native.list(folder))
            names.insert(std::string(folder) + "/" + name);
    for (const std::string& key : places.native.list("kernels"))
        for (const std::string& name : places.native.list("kernels/" + key))
            names.insert("kernels/" + key + "/" + name);
    Ref list = Ref::steal(PyList_New(0));
    for (const std::string& name : names) {
        if (!is_entry(name)) continue;  // somebody's file
        struct stat info;
        const std::vector<std::string> files = places.files(name);
        const auto file = std::ranges::find_if(
            files, [&](const std::string& f) { return ::lstat(f.c_str(), &info) == 0; });
        if (file == files.end()) continue;
        const auto used = static_cast<long long>(std::max(info.st_atime, info.st_mtime));
        PyObject* whole = places.read(name) ? Py_True : Py_False;
        const Ref item =
            Ref::steal(Py_BuildValue("ssLLO", name.c_str(), file->c_str(),
                                     static_cast<long long>(info.st_size), used, whole));
        if (PyList_Append(list.get(), item.get()) < 0) return nullptr;
    }
    show_cache_messages();  // now, not when somebody's program ends
    return list.release();
} catch (const cpython::PyError&) {
    return nullptr;
}

// cache_index(folder) -> (path, whether it is whole), or None where there is none
PyObject* cache_index(PyObject*, PyObject* folder) try {
    const Places places = places_of(folder);
    const std::string path = places.kept.folder() + "/" + cache::KernelFolder::kIndex;
    struct stat info;
    if (::lstat(path.c_str(), &info)) Py_RETURN_NONE;
    const bool whole = places.kept.read(cache::KernelFolder::kIndex).has_value();
    show_cache_messages();
    return Py_BuildValue("sO", path.c_str(), whole ? Py_True : Py_False);
} catch (const cpython::PyError&) {
    return nullptr;
}

// cache_read(folder, name) -> bytes or None
PyObject* cache_read(PyObject*, PyObject* args) try {
    PyObject* folder;
    const char* name;
    if (!PyArg_ParseTuple(args, "Us", &folder, &name)) return nullptr;
    const auto content = is_entry(name) ? places_of(folder).read(name) : std::nullopt;
    show_cache_messages();
    if (!content) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(content->data()),
                                     static_cast<Py_ssize_t>(content->size()));
} catch (const cpython::PyError&) {
    return nullptr;
}

bool check_name(const char* name) {
    if (!is_entry(name)) PyErr_Format(PyExc_ValueError, "'%s' is no name of a cache entry", name);
    return !PyErr_Occurred();
}

// cache_check_name(name): ValueError if an entry cannot be called so.
PyObject* cache_check_name(PyObject*, PyObject* name) {
    const char* text = PyUnicode_AsUTF8(name);
    if (!text || !check_name(text)) return nullptr;
    Py_RETURN_NONE;
}

// cache_write(folder, name, content) -> whether it is there now
PyObject* cache_write(PyObject*, PyObject* args) try {
    PyObject* folder;
    const char *name, *bytes;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Usy#", &folder, &name, &bytes, &count)) return nullptr;
    if (!check_name(name)) return nullptr;
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes);
    const bool written = places_of(folder).native.write(name, {begin, static_cast<size_t>(count)});
    show_cache_messages();
    return PyBool_FromLong(written);
} catch (const cpython::PyError&) {
    return nullptr;
}

// cache_may_hold(folder, make) -> whether stores may lie in it; `make`: it is made first.
PyObject* cache_may_hold(PyObject*, PyObject* args) try {
    PyObject* folder;
    int make;
    if (!PyArg_ParseTuple(args, "Up", &folder, &make)) return nullptr;
    const Ref bytes = Ref::steal(PyUnicode_EncodeFSDefault(folder));
    const bool may = cache::may_hold_stores(PyBytes_AS_STRING(bytes.get()), make);
    show_cache_messages();
    return PyBool_FromLong(may);
} catch (const cpython::PyError&) {
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
    {"cache_entries", entry<cache_entries>, METH_O,
     "Entries below a folder: name, path, bytes, time of last use, whether it is whole."},
    {"cache_may_hold", entry<cache_may_hold>, METH_VARARGS,
     "Whether nobody else can replace what is in a folder, which can be made first."},
    {"cache_index", entry<cache_index>, METH_O,
     "Path of the file that counts a folder's kernels and whether it can be read; None without."},
    {"cache_read", entry<cache_read>, METH_VARARGS,
     "The content of an entry; None if it is not whole."},
    {"cache_check_name", entry<cache_check_name>, METH_O,
     "Raises unless an entry may be called so."},
    {"cache_write", entry<cache_write>, METH_VARARGS, "Makes an entry of a name and its content."},
    {"cache_identity", entry<cache_identity>, METH_NOARGS,
     "What entries are made for: ABI version, build, features of the CPU."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool add_cache_tool(PyObject* module) { return PyModule_AddFunctions(module, methods) == 0; }

}  // namespace qd::python
