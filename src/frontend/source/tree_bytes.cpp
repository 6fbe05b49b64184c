// Syntax trees as bytes.
//
//   values (a tuple, by marshal) | number of nodes | statements
//   node: kind, what it has, [operator] [name: a value] [place] [a] [b] [c] [lists]
//
// Numbers are LEB128. Names and constants are written once for a tree. Places, of statements and
// calls alone, count from the line where the function begins, so a function may move in its file.
// Cost: about 20 ns a node to read, a fiftieth of parsing it.

#include <Python.h>
#include <marshal.h>

#include <unordered_map>

#include "frontend/source/ast.h"
#include "frontend/source/stack.h"
#include "support/error.h"

namespace qd::frontend {
namespace {

using K = NodeKind;

enum Has : uint8_t {
    kA = 1,
    kB = 2,
    kC = 4,
    kList = 8,
    kList2 = 16,
    kName = 32,
    kOp = 64,
    kPlace = 128
};
constexpr uint8_t kNoNode = 0xFF;  // in a list, where a kind would be

struct Writer {
    const FunctionSource& source;
    std::vector<uint8_t> out;
    std::vector<PyObject*> values;
    std::unordered_map<PyObject*, uint32_t> known;

    void number(uint64_t v) {
        for (; v >= 128; v >>= 7) out.push_back(static_cast<uint8_t>(v | 128));
        out.push_back(static_cast<uint8_t>(v));
    }
    void list(std::span<Node* const> nodes) {
        number(nodes.size());
        for (const Node* n : nodes) {
            if (n)
                node(*n);
            else
                out.push_back(kNoNode);
        }
    }
    void node(const Node& n) {
        need_stack();
        const auto has = [](bool yes, Has bit) { return yes ? static_cast<int>(bit) : 0; };
        out.push_back(static_cast<uint8_t>(n.kind));
        out.push_back(static_cast<uint8_t>(has(n.a, kA) | has(n.b, kB) | has(n.c, kC) |
                                           has(!n.list.empty(), kList) |
                                           has(!n.list2.empty(), kList2) | has(n.name, kName) |
                                           has(n.op, kOp) | has(keeps_place(n), kPlace)));
        if (n.op) out.push_back(n.op);
        if (n.name) {
            const auto [at, fresh] = known.try_emplace(n.name, static_cast<uint32_t>(known.size()));
            if (fresh) values.push_back(n.name);
            number(at->second);
        }
        if (keeps_place(n)) {
            number(static_cast<uint64_t>(n.line - source.first_line));
            number(static_cast<uint64_t>(n.end_line - n.line));
            number(static_cast<uint64_t>(n.col));
            number(static_cast<uint64_t>(n.end_col));
        }
        if (n.kind == K::Compare) {
            number(n.ops.size());
            out.insert(out.end(), n.ops.begin(), n.ops.end());
        }
        for (const Node* child : {n.a, n.b, n.c})
            if (child) node(*child);
        if (!n.list.empty()) list(n.list);
        if (!n.list2.empty()) list(n.list2);
    }
};

struct Reader {
    FunctionSource& source;
    const uint8_t* at;
    const uint8_t* end;

    [[noreturn]] [[gnu::cold]] static void bad() { throw support::Error("syntax tree: damaged"); }
    uint8_t byte() {
        if (at == end) bad();
        return *at++;
    }
    uint64_t number() {
        uint64_t v = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const uint8_t b = byte();
            v |= static_cast<uint64_t>(b & 127) << shift;
            if (b < 128) return v;
        }
        bad();
    }
    size_t count() {  // of things that take a byte at least
        const uint64_t n = number();
        if (n > static_cast<uint64_t>(end - at)) bad();
        return static_cast<size_t>(n);
    }
    int small() {
        const uint64_t n = number();
        if (n > INT32_MAX / 2) bad();
        return static_cast<int>(n);
    }
    void values() {
        const size_t size = count();
        const Ref all = Ref::steal(PyMarshal_ReadObjectFromString(reinterpret_cast<const char*>(at),
                                                                  static_cast<Py_ssize_t>(size)));
        at += size;
        if (!PyTuple_CheckExact(all.get())) bad();
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all.get()); ++k)
            source.values.push_back(Ref::borrow(PyTuple_GET_ITEM(all.get(), k)));
    }
    PyObject* value(K kind) {
        const uint64_t k = number();
        if (k >= source.values.size()) bad();
        PyObject* found = source.values[static_cast<size_t>(k)].get();
        if (kind == K::Constant || !PyUnicode_CheckExact(found)) return found;
        PyObject* name = Py_NewRef(found);  // what was interned is read as such: the same object
        PyUnicode_InternInPlace(&name);
        if (name == found)
            Py_DECREF(name);
        else
            source.values.push_back(Ref::steal(name));
        return name;
    }
    std::span<Node*> list() {
        const size_t n = count();
        Node** data = source.arena.array<Node*>(n);
        for (size_t k = 0; k < n; ++k) {
            if (at != end && *at == kNoNode)
                ++at;
            else
                data[k] = node();
        }
        return {data, n};
    }
    Node* node() {
        need_stack();
        Node* n = source.arena.make<Node>();
        n->number = source.nodes++;
        const uint8_t kind = byte(), has = byte();
        if (kind >= static_cast<uint8_t>(K::count_)) bad();
        n->kind = static_cast<K>(kind);
        if (has & kOp) n->op = byte();
        if (has & kName) n->name = value(n->kind);
        if (has & kPlace) {
            n->line = source.first_line + small();
            n->end_line = n->line + small();
            n->col = small();
            n->end_col = small();
        }
        if (n->kind == K::Compare) {
            const size_t ops = count();
            uint8_t* data = source.arena.array<uint8_t>(ops);
            for (size_t k = 0; k < ops; ++k) data[k] = byte();
            n->ops = {data, ops};
        }
        if (has & kA) n->a = node();
        if (has & kB) n->b = node();
        if (has & kC) n->c = node();
        if (has & kList) n->list = list();
        if (has & kList2) n->list2 = list();
        return n;
    }
};

}  // namespace

std::vector<uint8_t> write_tree(const FunctionSource& source) {
    Writer w{source, {}, {}, {}};
    w.number(source.nodes);
    w.list(source.body);
    const Ref all = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(w.values.size())));
    for (size_t k = 0; k < w.values.size(); ++k)
        PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(k), Py_NewRef(w.values[k]));
    const Ref bytes = Ref::steal(PyMarshal_WriteObjectToString(all.get(), Py_MARSHAL_VERSION));
    const auto* begin = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(bytes.get()));
    const auto size = static_cast<size_t>(PyBytes_GET_SIZE(bytes.get()));
    std::vector<uint8_t> body;
    body.swap(w.out);
    w.number(size);
    w.out.insert(w.out.end(), begin, begin + size);
    w.out.insert(w.out.end(), body.begin(), body.end());
    return std::move(w.out);
}

void read_tree(FunctionSource& source, std::span<const uint8_t> bytes) {
    Reader r{source, bytes.data(), bytes.data() + bytes.size()};
    r.values();
    const uint64_t nodes = r.number();
    const std::span<Node*> body = r.list();
    if (r.at != r.end || source.nodes != nodes) Reader::bad();
    source.body = body;
}

}  // namespace qd::frontend
