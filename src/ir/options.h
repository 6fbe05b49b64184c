// The options of `qd.init` as values: options.inc has their table.
//
// What changes code is apart from the rest: a Module carries ModuleOptions, a lowering CodeOptions.
// Keys are made from the rows, so an option that a pass comes to read is in them by its room alone;
// others are in them by their row's last column.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "type/type.h"

#define OPTION_INT_MIN (-2147483647 - 1)
#define OPTION_INT_MAX 2147483647
#define OPTION_U64_MAX UINT64_MAX  // such values are kept in the integer's bits

namespace qd::ir {

enum class OptionKind : uint8_t { flag, integer, real, text, type };
enum class Room : uint8_t {
    module,  // passes and code generation
    frontend,
    compile,
    launch,
    cache,
    log,
    dump,
    gpu,
    gradient,
    quant,
    mesh,
    inert
};

namespace option {
using flag = bool;
using integer = int64_t;
using real = double;
using text = std::string;
using type = qd::type::Prim;
}  // namespace option

#define QD_DEFAULT_flag(v) v
#define QD_DEFAULT_integer(v) v
#define QD_DEFAULT_real(v) v
#define QD_DEFAULT_text(v) v
#define QD_DEFAULT_type(v) qd::type::Prim::v
#define QD_MEMBER(kind, name, value, ...) option::kind name = QD_DEFAULT_##kind(value);

struct ModuleOptions {
#define MODULE_OPTION QD_MEMBER
#include "ir/options.inc"

    bool check_indices() const { return debug || check_out_of_bound; }
};

struct CodeOptions : ModuleOptions {
#define CODE_OPTION QD_MEMBER
#include "ir/options.inc"
};

struct Options : CodeOptions {
#define OPTION QD_MEMBER
#include "ir/options.inc"
};

#undef QD_MEMBER

struct OptionRow {
    std::string_view name;
    OptionKind kind;
    Room room;
    bool aside;  // no attribute of `qd.cfg`
    uint64_t low,
        high;  // bits of an integer (all 64 if high is beyond OPTION_INT_MAX), or whole numbers
    const char* documentation;
    void* (*in)(Options&);  // where its value is, of the kind's type
};
std::span<const OptionRow> option_rows();
const OptionRow* find_option(std::string_view name);  // null: there is none

// What a module's options change, as text: how IR is printed and kept.
struct Change {
    std::string_view name;
    std::string value;
    bool is_text;  // of kind text
};
std::vector<Change> changes_of(const ModuleOptions& options);
// False for an unknown name or what is no value of it.
bool change(ModuleOptions& options, std::string_view name, std::string_view value);

// Bytes that are equal only for equal options.
std::string key_of(const CodeOptions& options);
// The same of the rows that are `keyed`.
std::string kernel_key_of(const Options& options);

}  // namespace qd::ir
