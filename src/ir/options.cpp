// See options.h.

#include "ir/options.h"

#include <charconv>

namespace qd::ir {
namespace {

using enum OptionKind;
using enum Room;
constexpr bool cfg = false, aside = true;  // OptionRow::aside

constexpr OptionRow kRows[] = {
#define ROW(kind, name, low, high, face, room, doc) \
    {#name,         kind,           room, face,     \
     uint64_t(low), uint64_t(high), doc,  [](Options& o) -> void* { return &o.name; }},
#define MODULE_OPTION(kind, name, value, low, high, face, doc) \
    ROW(kind, name, low, high, face, module, doc)
#define CODE_OPTION(kind, name, value, low, high, face, doc, ...) \
    ROW(kind, name, low, high, face, frontend, doc)
#define OPTION(kind, name, value, low, high, face, room, doc, ...) \
    ROW(kind, name, low, high, face, room, doc)
#include "ir/options.inc"
#undef ROW
};

std::string text_of(bool v) { return v ? "1" : "0"; }
std::string text_of(int64_t v) { return std::to_string(v); }
std::string text_of(const std::string& v) { return v; }

bool read(std::string_view text, bool& v) {
    v = text == "1";
    return v || text == "0";
}
bool read(std::string_view text, int64_t& v) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    return error == std::errc() && end == text.data() + text.size();
}
bool read(std::string_view text, std::string& v) { return v = text, true; }

struct ModuleRow {
    std::string_view name;
    bool is_text;
    std::string (*text)(const ModuleOptions&);
    bool (*set)(ModuleOptions&, std::string_view text);
};
constexpr ModuleRow kModuleRows[] = {
#define MODULE_OPTION(kind, name, ...)                                                        \
    {#name, OptionKind::kind == text, [](const ModuleOptions& o) { return text_of(o.name); }, \
     [](ModuleOptions& o, std::string_view text) { return read(text, o.name); }},
#include "ir/options.inc"
};

void append(std::string& out, const std::string& v) {
    out += std::to_string(v.size());
    out += ' ';
    out += v;
}
template <class T>
void append(std::string& out, const T& v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

#define QD_APPEND(kind, name, ...) append(out, o.name);

}  // namespace

std::span<const OptionRow> option_rows() { return kRows; }

std::vector<Change> changes_of(const ModuleOptions& options) {
    static const ModuleOptions defaults;
    std::vector<Change> out;
    for (const ModuleRow& row : kModuleRows)
        if (std::string text = row.text(options); text != row.text(defaults))
            out.push_back({row.name, std::move(text), row.is_text});
    return out;
}

bool change(ModuleOptions& options, std::string_view name, std::string_view value) {
    for (const ModuleRow& row : kModuleRows)
        if (row.name == name) return row.set(options, value);
    return false;
}

const OptionRow* find_option(std::string_view name) {
    for (const OptionRow& row : kRows)
        if (row.name == name) return &row;
    return nullptr;
}

std::string key_of(const CodeOptions& o) {
    std::string out;
#define MODULE_OPTION QD_APPEND
#define CODE_OPTION QD_APPEND
#include "ir/options.inc"
    return out;
}

std::string kernel_key_of(const Options& o) {
    std::string out;
#define CODE_OPTION(kind, name, value, low, high, face, doc, ...) __VA_OPT__(append(out, o.name);)
#define OPTION(kind, name, value, low, high, face, room, doc, ...) __VA_OPT__(append(out, o.name);)
#include "ir/options.inc"
    return out;
}

}  // namespace qd::ir
