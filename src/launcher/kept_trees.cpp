// See kept_trees.h.

#include "launcher/kept_trees.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/store.h"
#include "frontend/source/ast.h"
#include "launcher/encode.h"
#include "launcher/keys.h"
#include "session/session.h"
#include "session/stored_code.h"
#include "session/target.h"

namespace qd::launcher {
namespace {

using namespace session;
using session::session;

using cache::Bytes;
using frontend::FunctionSource;

// What a process must have parsed for it to be worth keeping: about two milliseconds.
constexpr size_t kLeastText = 16 << 10;
// Flushes that a tree outlives without being used, so that edits do not pile up.
constexpr uint8_t kMostAge = 8;

struct Tree {
    Bytes bytes;
    uint8_t age = 0;
};

struct File {
    std::map<Bytes, Tree> kept;  // by hash of the text
    std::vector<FunctionSource*> parsed;
};

std::map<std::string, File>& files() {  // of this session, by path
    static auto* all = new std::map<std::string, File>;
    return *all;
}

Bytes key_of(const FunctionSource& s) {
    const XXH128_hash_t h = XXH3_128bits(s.text.data(), s.text.size());
    Bytes key(sizeof h);
    std::memcpy(key.data(), &h, sizeof h);
    return key;
}

std::string entry_of(const std::string& path) {
    Writer w;
    w.text(build_identity());
    w.text(Py_GetVersion());
    w.text(path);
    return "trees/" + cache::hex(hash_of(w.out));
}

void read_file(const std::string& path, File& file) {
    const auto bytes = store().read(entry_of(path));
    if (!bytes) return;
    try {
        Reader r{*bytes};
        for (uint32_t n = r.count(9); n; --n) {
            const Bytes key = r.bytes();
            Tree& t = file.kept[key];
            t.age = r.number<uint8_t>();
            t.bytes = r.bytes();
        }
    } catch (const support::Error&) {
        file.kept.clear();
    }
}

void write_file(const std::string& path, File& file) {
    for (const FunctionSource* s : file.parsed) file.kept[key_of(*s)] = {write_tree(*s), 0};
    std::erase_if(file.kept, [](const auto& entry) { return entry.second.age > kMostAge; });
    Writer w;
    w.number(uint32_t(file.kept.size()));
    for (const auto& [key, tree] : file.kept) {
        w.bytes(key);
        w.number(tree.age);
        w.bytes(tree.bytes);
    }
    (void)store().write(entry_of(path), w.out);
}

bool keeps() { return keeps_cache(); }

// The file's, read when it is asked for first; null for what is typed.
File* file_of(const FunctionSource& s) {
    if (!keeps() || !s.file->stamp) return nullptr;
    const auto [at, fresh] = files().try_emplace(s.file->name);
    if (fresh) {
        read_file(at->first, at->second);
        for (auto& [key, tree] : at->second.kept) ++tree.age;
    }
    return &at->second;
}

bool find(FunctionSource& s) {
    File* file = file_of(s);
    if (!file || file->kept.empty()) return false;
    const auto at = file->kept.find(key_of(s));
    if (at == file->kept.end()) return false;
    try {
        read_tree(s, at->second.bytes);
    } catch (const support::Error&) {
    } catch (const cpython::PyError&) {
        cpython::forget_error();
    }
    if (s.body.empty()) {  // damaged
        s.values.clear();
        s.nodes = 0;
        file->kept.erase(at);
        return false;
    }
    at->second.age = 0;
    ++session().trees_loaded;
    return true;
}

// Whether CPython may warn while it parses this (of "\\d"), which who finds the tree would miss.
bool may_warn(const std::string& text) {
    for (size_t k = text.find('\\'); k != text.npos; k = text.find('\\', k + 2))
        if (k + 1 == text.size() || !std::strchr("\n\\'\"abfnrtvxNuU", text[k + 1])) return true;
    return false;
}

void parsed(FunctionSource& s) {
    ++session().trees_parsed;
    if (may_warn(s.text)) return;
    if (File* file = file_of(s)) file->parsed.push_back(&s);
}

// For tests: all are kept, however little was parsed.
bool keeps_all() {
    const char* value = std::getenv("QD_KEEP_ALL_TREES");
    return value && !std::strcmp(value, "1");
}

}  // namespace

void use_kept_trees() { frontend::set_kept_trees({find, parsed}); }

void flush_kept_trees() {
    auto all = std::exchange(files(), {});
    size_t text = 0;
    for (const auto& [path, file] : all)
        for (const FunctionSource* s : file.parsed) text += s->text.size();
    if (keeps() && (text >= kLeastText || (text && keeps_all()))) {
        for (auto& [path, file] : all) try {
                if (!file.parsed.empty()) write_file(path, file);
            } catch (const cpython::PyError&) {
                cpython::forget_error();
            } catch (const frontend::Diag&) {  // the stack is short
            }
    }
}

}  // namespace qd::launcher
