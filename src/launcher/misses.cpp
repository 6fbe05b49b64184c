// See misses.h.

#include "launcher/misses.h"

#include <sys/stat.h>

#include <map>

#include "cache/store.h"
#include "launcher/keys.h"
#include "launcher/warm.h"
#include "session/stored_code.h"
#include "support/error.h"

namespace qd::launcher {

std::vector<std::string>* asked_misses = nullptr;

namespace {

using frontend::FactKind;
using frontend::Guard;
using frontend::Step;

// A value in a message, cut to a readable length.
std::string shown(PyObject* o) {
    constexpr Py_ssize_t kMost = 60;
    Ref text = Ref::steal_or_null(PyObject_Repr(o));
    if (text && PyUnicode_GetLength(text.get()) > kMost)
        text = Ref::steal_or_null(PyUnicode_FromFormat(
            "%U...", Ref::steal(PyUnicode_Substring(text.get(), 0, kMost)).get()));
    if (!text) return cpython::forget_error(), "?";
    return cpython::text(text.get());
}

std::string type_of(PyObject* o) { return Py_TYPE(o)->tp_name; }

// What a fact says of a value, for people; "" where there is nothing to be said in short.
std::string now_text(FactKind kind, PyObject* now) {
    switch (kind) {
        case FactKind::constant:
            return shown(now);
        case FactKind::type:
        case FactKind::module:
        case FactKind::meaning:
            return type_of(now);
        case FactKind::length: {
            const Py_ssize_t n = PyObject_Size(now);
            if (n < 0) return cpython::forget_error(), "without one";
            return std::to_string(n);
        }
        default:
            return "";
    }
}

// What guards are about, by FactKind; null: values.
constexpr const char* kFacts[] = {
    nullptr,           "the type of ",      "the length of ", "the source of ",
    "the layout of ",  "the module ",       "the array ",     "the contents of ",
    "the meaning of ", "the signature of ", "the object "};

// Recipes by the names of their kernels, newest first. Made at the session's first question.
struct RecipeIndex {
    static constexpr size_t kMostRead = 5000;

    uint32_t generation = 0;
    std::map<std::string, std::vector<std::string>> files;

    // Of the function that this text defines.
    static std::string name_in(std::string_view text) {
        for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size()) + 1) {
            std::string_view line = text.substr(at);
            line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
            if (!line.starts_with("def ")) continue;
            line.remove_prefix(std::min(line.find_first_not_of(' ', 4), line.size()));
            return std::string(line.substr(0, line.find_first_of(" (")));
        }
        return "";
    }

    void make() {
        files.clear();
        std::vector<std::pair<time_t, std::string>> keys;
        for (const std::string& key : store().list("kernels")) {
            struct stat info;
            if (::stat((store().folder() + "/kernels/" + key).c_str(), &info) == 0)
                keys.emplace_back(info.st_mtime, key);
        }
        std::ranges::sort(keys, std::ranges::greater{});
        size_t read = 0;
        for (const auto& [made, key] : keys)
            for (const std::string& name : store().list("kernels/" + key)) {
                const std::string file = "kernels/" + key + "/" + name;
                if (read++ < kMostRead) add(file);
            }
        generation = session().generation;
    }

    void add(const std::string& file) try {
        const auto text = kernel_text(file);
        if (text) files[name_in(*text)].push_back(file);
    } catch (const support::Error&) {
    }
};
RecipeIndex& recipe_index() {
    static RecipeIndex& index = *new RecipeIndex;  // under the GIL
    if (index.generation != session().generation) index.make();
    return index;
}

}  // namespace

std::string describe(const Path& p, const KernelObject& k) {
    static const char* const roots[] = {"argument ", "global ",        "cell ",   "",
                                        "module ",   "annotation of ", "display "};
    std::string out = roots[static_cast<int>(p.root)];
    const auto n = static_cast<size_t>(p.argument);
    const bool numbered = p.root == Path::Root::argument || p.root == Path::Root::annotation;
    if (numbered && n < k.parameters->size())
        out += cpython::text((*k.parameters)[n].name.get());
    else
        out += p.name ? cpython::text(p.name.get()) : "?";
    for (const Step& s : p.steps) {
        if (s.kind == Step::Kind::call)
            out += "(...)";
        else if (s.kind == Step::Kind::attribute)
            out += "." + cpython::text(s.key.get());
        else
            out += "[" + cpython::text(Ref::steal(PyObject_Repr(s.key.get())).get()) + "]";
    }
    return out;
}

bool refuse_guard(const Guard& g, PyObject* now, const KernelObject& k) {
    const char* about = kFacts[static_cast<int>(g.kind)];
    std::string text = (about ? about : "") + describe(g.path, k);
    if (!now) {
        text += " is gone";
    } else if (const std::string is = now_text(g.kind, data::unwrap(now)); is.empty()) {
        text += " changed";
    } else {
        const bool is_text = g.kind == FactKind::type && PyUnicode_Check(g.value.get());
        text += " was " + (is_text ? cpython::text(g.value.get()) : shown(g.value.get())) +
                ", is " + is;
    }
    cpython::forget_error();
    return refuse([&] { return text; });
}

// Constants that a kernel names, types of its arguments and options are part of the key; guards in
// recipes of other keys tell of constants.
void explain_miss(KernelObject& k, PyObject* const* args, size_t count,
                  std::vector<std::string>& misses) {
    constexpr size_t kMostTried = 16;
    const Ref fn = plain_function(k.definition);
    if (!keeps_cache() || !misses.empty() || !fn) return;
    const AskMisses asking(&misses);
    const Ref name = Ref::steal(PyObject_GetAttrString(fn.get(), "__name__"));
    std::vector<std::string>& files = recipe_index().files[cpython::text(name.get())];
    bool other_source = false, all_holds = false;
    for (size_t n = 0; n < files.size() && n < kMostTried; ++n) {
        const Fit fit = fit_of(files[n], k, args, count);
        other_source |= fit == Fit::other_source;
        all_holds |= fit == Fit::whole;
    }
    if (all_holds) refuse("options, the types of arguments or the build differ");
    if (!misses.empty()) return;
    refuse(other_source ? "its source changed, if the cache knows no other kernel of its name"
                        : "nothing of this kernel is there");
}

void note_recipe(const std::string& file) { recipe_index().add(file); }

}  // namespace qd::launcher
