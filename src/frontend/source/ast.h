// The syntax of one function as plain C++ nodes.
//
// CPython parses; its `ast` objects are then converted once per function, because the body of an
// unrolled loop is walked many times and an attribute of a Python object costs more than a whole
// step here. Every node knows its number in the tree: by it its `ast` object is found, and so its
// place in the file.
//
// A tree follows from the function's text alone, so trees outlive processes (tree_bytes.cpp,
// launcher/kept_trees.cpp). A tree has no `ast` objects any more and the places of statements and
// calls only; the text is parsed again if somebody asks for more, to show a mistake for instance.

#pragma once

#include <Python.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontend/frontend.h"
#include "support/arena.h"

namespace qd::frontend {

enum class NodeKind : uint8_t {
    unsupported,
    // statements
    FunctionDef,
    Return,
    Assign,
    AugAssign,
    AnnAssign,
    For,
    While,
    If,
    With,
    Assert,
    Expr,
    Pass,
    Break,
    Continue,
    // expressions
    BoolOp,
    NamedExpr,
    BinOp,
    UnaryOp,
    IfExp,
    Dict,
    ListComp,
    DictComp,
    Compare,
    Call,
    FormattedValue,
    JoinedStr,
    Constant,
    Attribute,
    Subscript,
    Starred,
    Name,
    List,
    Tuple,
    Slice,
    // parts
    comprehension,
    keyword,
    withitem,
    count_,
};

// Which fields a kind has is the table in ast.cpp; a, b, c are children, lists are in source order.
struct Node {
    NodeKind kind = NodeKind::unsupported;
    uint8_t op = 0;       // ir::Op, UnOp; BoolOp: 0 and, 1 or; FormattedValue: conversion
    uint32_t number = 0;  // in its tree, parents first, children in the order of the fields here
    int line = 0,
        col = 0;  // in the file, 1-based line, 0-based column in characters; set by locate
    int end_line = 0, end_col = 0;
    PyObject* name = nullptr;  // identifier (interned) or the constant's value
    Node *a = nullptr, *b = nullptr, *c = nullptr;
    std::span<Node*> list, list2;
    std::span<uint8_t> ops;  // Compare
};
// Whose place is known at once: statements, for debugging, and calls.
inline bool keeps_place(const Node& n) {
    return (n.kind >= NodeKind::FunctionDef && n.kind <= NodeKind::Continue) ||
           n.kind == NodeKind::Call;
}
// Comparison operators that are no op.
inline constexpr uint8_t kIs = 252, kIsNot = 253, kIn = 254, kNotIn = 255;
static_assert(static_cast<int>(ir::Op::count_) <= kIs);

// One file, read once.
struct CompiledText {
    Ref code;
    // Of functions, outer ones first, by the line that they begin at.
    std::unordered_map<int, std::vector<PyObject*>> functions;
};

struct SourceFile {
    std::string name;
    std::string text;
    std::vector<std::string_view> lines;  // without their line ends
    uint64_t stamp = 0;                   // of the file when it was read; 0: it has no file
    bool suspect = false;                 // may have changed while this process was running
    const SourceFile* older = nullptr;    // what the same name stood for before
    // Of a suspect or replaced file: its text, compiled; by the compiler's flags and level of
    // optimisation.
    mutable std::map<std::pair<int, int>, CompiledText> compiled;
};

// One Python function's text and tree.
struct FunctionSource {
    Ref code;  // code object
    const SourceFile* file = nullptr;
    std::string name;  // of the function
    int first_line = 0, last_line = 0;
    std::string text;  // decorators included
    support::Arena arena;
    std::span<Node*> body;
    std::vector<Ref> values;  // keeps every Node::name alive
    uint32_t nodes = 0;
    // Of coverage, by the statement that each stands before; they store to a global of the
    // function's module. In no list of statements: what is asked of those is asked of the user's.
    std::unordered_map<const Node*, const Node*> probes;
    // CPython's tree and its objects by Node::number; empty while nobody asks (ast_of).
    mutable Ref tree;
    mutable std::vector<PyObject*> objects;
};

// Cached per code object. Sets OSError and throws PyError if there is no source.
FunctionSource& source_of(PyObject* function);
// Whether statements assign to a name, or to a part of what it stands for.
bool assigns(std::span<Node* const> statements, const PyObject* name);
PyObject* ast_of(const FunctionSource& source, const Node& n);  // borrowed from the tree
void locate(const FunctionSource& source, Node& n);  // fills its place: few are ever asked

// Trees that outlive the process, of the functions in one file or of none.
struct KeptTrees {
    bool (*find)(FunctionSource& source);  // fills body, values and nodes
    void (*parsed)(FunctionSource& source);
};
void set_kept_trees(const KeptTrees& trees);
// tree_bytes.cpp: to bytes, and from those that it wrote; bad bytes: support::Error.
std::vector<uint8_t> write_tree(const FunctionSource& source);
void read_tree(FunctionSource& source, std::span<const uint8_t> bytes);
bool measures_coverage();  // QD_KERNEL_COVERAGE=1: functions get probes
// The file as it is now, or, of what was read of it earlier, what gave `code`; null if there
// is none. Texts read earlier stay valid.
const SourceFile* source_file(PyObject* filename, PyObject* code = nullptr);
// False if a function was imported from an earlier version of the file.
bool is_source_of(const SourceFile& file, PyObject* code);
// Text of the lines first..last (1-based).
std::string slice_of(const SourceFile& file, int first, int last);

}  // namespace qd::frontend
