// What each task reads of its launch: arguments, base addresses of fields, words of the context.
//
// A device hands a task no more than that: of a kernel with hundreds of arguments a task reads a
// few. An array counts with its whole descriptor, and what is passed to a callee counts as read;
// fields and words count through callees.
//
// Tasks find it in a record of their own. Functions that they call look into the record too, for
// fields and for arrays that are always one of the kernel's: these lie first in the records of all
// tasks that call any.
//
// Needs: a finished plan.
// Cost:  O(instructions + calls x fields / 64), once more for each level of recursion.

#include <algorithm>
#include <unordered_map>

#include "pass/passes.h"
#include "support/error.h"

namespace qd::pass {
namespace {

using namespace ir;

struct Bits {
    std::vector<uint64_t> words;
    void set(size_t k) {
        if (k / 64 >= words.size()) words.resize(k / 64 + 1);
        words[k / 64] |= uint64_t(1) << k % 64;
    }
    bool has(size_t k) const { return k / 64 < words.size() && (words[k / 64] >> k % 64 & 1); }
    bool join(const Bits& other) {  // whether that brought any
        bool grown = false;
        if (words.size() < other.words.size()) words.resize(other.words.size());
        for (size_t k = 0; k < other.words.size(); ++k) {
            grown |= (other.words[k] & ~words[k]) != 0;
            words[k] |= other.words[k];
        }
        return grown;
    }
};

struct Reads {
    Bits bindings, words, parameters;  // its own, by index
    std::vector<const Function*> calls;
};

struct Finder {
    const Module& m;
    std::unordered_map<const Field*, size_t> bindings;
    std::unordered_map<const Function*, Reads> reads;

    Reads own(const Function& f) {
        Reads out;
        walk(*f.body, [&](Inst& i) {
            const OpInfo& row = info(i.op);
            if (row.refers == Refers::field) out.bindings.set(bindings.at(i.field()));
            if (row.refers == Refers::function) out.calls.push_back(i.callee());
            if (row.word != Word::none) out.words.set(size_t(row.word));
            if (is_launch_key(i)) out.words.set(size_t(Word::launch_key));
            for (int k = 0; k < i.operand_count; ++k) {
                const Value* v = i.operand(k);
                if (v->owner == f.body) out.parameters.set(v->index);
            }
        });
        return out;
    }

    bool join(Reads& r) {
        bool grown = false;
        for (const Function* callee : r.calls) {
            const Reads& c = reads[callee];
            grown |= r.bindings.join(c.bindings) | r.words.join(c.words);
        }
        return grown;
    }

    std::vector<Input> inputs(const Task& task) const {
        std::vector<Input> out;
        Bits words;
        const auto add = [&](const Function& f) {
            const Reads& r = reads.at(&f);
            words.join(r.words);
            for (size_t k = 0; k < m.params.size(); ++k) {
                if (!r.parameters.has(k)) continue;
                out.push_back({Input::Kind::argument, m.params[k].offset, bytes_of(m.params[k])});
            }
            for (size_t k = 0; k < m.fields.size(); ++k)
                if (r.bindings.has(k))
                    out.push_back({Input::Kind::binding, static_cast<uint32_t>(k), 8});
        };
        add(*task.body);
        if (task.finish) add(*task.finish);
        for (int k = 0; k < 2 * task.dims; ++k) {
            const abi::Bound& b = task.bounds[k];
            if (b.kind == abi::BoundKind::arg)
                out.push_back({Input::Kind::argument, static_cast<uint32_t>(b.value), b.bytes});
            if (b.kind == abi::BoundKind::temp) words.set(size_t(Word::temps));
        }
        for (uint32_t k = 0; k < 64; ++k)
            if (words.has(k)) out.push_back({Input::Kind::word, k, 8});
        std::ranges::sort(out, [](const Input& a, const Input& b) {
            return a.kind != b.kind   ? a.kind < b.kind
                   : a.from != b.from ? a.from < b.from
                                      : a.bytes > b.bytes;
        });
        const auto within = [](const Input& a, const Input& b) {  // b in a
            return a.kind == b.kind &&
                   (a.kind == Input::Kind::argument ? b.from + b.bytes <= a.from + a.bytes
                                                    : a.from == b.from);
        };
        out.erase(std::unique(out.begin(), out.end(), within), out.end());
        return out;
    }

    // Puts in what is not there yet.
    void add(Record& record, const Bits& bindings, const Bits& parameters) const {
        const auto piece = [&](Input::Kind kind, uint32_t from, uint32_t bytes) {
            record.pieces.push_back({kind, from, bytes, record.bytes});
            record.bytes += (bytes + 7) & ~7u;
        };
        const Record before = record;
        for (uint32_t k = 0; k < m.fields.size(); ++k)
            if (bindings.has(k) && !find(before, Input::Kind::binding, k))
                piece(Input::Kind::binding, k, 8);
        for (size_t k = 0; k < m.params.size(); ++k) {
            const Param& p = m.params[k];
            if (parameters.has(k) && !find(before, Input::Kind::argument, p.offset))
                piece(Input::Kind::argument, p.offset, bytes_of(p));
        }
        std::ranges::sort(record.pieces, in_order);
    }

    void lay_out(Plan& plan) const {
        Bits bindings, parameters;
        for (const Function* f : plan.callees) {
            const Reads& r = reads.at(f);
            bindings.join(r.bindings);
            for (const Value* v : f->body->params) {
                if (!r.parameters.has(v->index) || !v->type.is_array()) continue;
                const auto root = plan.arrays.root(v);
                if (root.only && root.parameter >= 0) parameters.set(size_t(root.parameter));
            }
        }
        add(plan.common, bindings, parameters);
        for (Task& t : plan.tasks) {
            const Reads& body = reads.at(t.body);
            if (!body.calls.empty() || (t.finish && !reads.at(t.finish).calls.empty()))
                t.record = plan.common;
            add(t.record, body.bindings, body.parameters);
            if (t.finish) add(t.record, reads.at(t.finish).bindings, reads.at(t.finish).parameters);
        }
    }

    static uint32_t bytes_of(const Param& p) {
        return p.type.is_array() ? array_desc_bytes(p.type.ndim) : uint32_t(p.type.size_bytes());
    }
    static bool in_order(const Record::Piece& a, const Record::Piece& b) {
        return a.kind != b.kind ? a.kind < b.kind : a.from < b.from;
    }
    static const Record::Piece* find(const Record& r, Input::Kind kind, uint32_t from) {
        const auto at =
            std::ranges::lower_bound(r.pieces, Record::Piece{kind, from, 0, 0}, in_order);
        return at != r.pieces.end() && at->kind == kind && at->from == from ? &*at : nullptr;
    }
};

}  // namespace

uint32_t Record::at(Input::Kind kind, uint32_t from) const {
    const Piece* piece = Finder::find(*this, kind, from);
    if (!piece) throw support::Error("a task does not have what it reads");
    return piece->to;
}

uint32_t args_bytes(const ir::Module& m) {
    uint32_t end = 0;
    for (const ir::Param& p : m.params) end = std::max(end, p.offset + Finder::bytes_of(p));
    return (end + 7) & ~7u;
}

void find_inputs(Plan& plan) {
    Finder f{.m = *plan.module, .bindings = {}, .reads = {}};
    for (const Field* field : f.m.fields) f.bindings.emplace(field, f.bindings.size());
    for (const Function* function : f.m.functions) f.reads[function] = f.own(*function);
    // Callees come first, so that one turn is enough where nothing calls itself.
    for (bool grown = true; grown;) {
        grown = false;
        for (const Function* callee : plan.callees) grown |= f.join(f.reads[callee]);
    }
    for (Task& t : plan.tasks) {
        f.join(f.reads[t.body]);
        if (t.finish) f.join(f.reads[t.finish]);
        t.inputs = f.inputs(t);
    }
    f.lay_out(plan);
}

}  // namespace qd::pass
