// Modules as bytes: what travels to the compiler object, is hashed for the cache, and is stored for
// replays.
//
// Equal modules give equal bytes whatever their addresses: functions, strings, types and locations
// are numbered in the order in which a walk from the kernel meets them. Numbers are LEB128. An
// operand is the distance back to its definition, so most take one byte.
//
//   "QDIR" version flags | strings | types | locations | loops | formats | fields | header |
//   functions instruction: op, form (kHas... bits), [flags] [imm] [ref] [location] [counts]
//   operands, types,
//                regions
//
// Reading checks every count against the bytes left and every number against its table; what it
// returns is well formed (known ops, right numbers of operands and regions, values defined
// earlier), but only verify() knows whether the types fit.
// Cost: O(instructions); about 50 ns each way.

#include <cstring>
#include <unordered_map>

#include "ir/ir.h"
#include "support/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qd::ir {
namespace {

constexpr uint32_t kMagic = 0x52494451;  // "QDIR"
constexpr uint8_t kVersion = 2;

enum Form : uint8_t {
    kHasFlags = 1,
    kHasImm = 2,
    kSameLoc = 4,  // the previous instruction's
    kHasLoc = 8,
};

struct Buffer {
    std::vector<uint8_t> bytes;
    size_t used = 0;

    uint8_t* reserve(size_t n) {
        if (used + n > bytes.size()) bytes.resize((used + n) * 2);
        return bytes.data() + used;
    }
    void byte(uint8_t v) {
        *reserve(1) = v;
        ++used;
    }
    void number(uint64_t v) {
        uint8_t* at = reserve(10);
        while (v >= 128) {
            *at++ = static_cast<uint8_t>(v | 128);
            v >>= 7;
        }
        *at++ = static_cast<uint8_t>(v);
        used = static_cast<size_t>(at - bytes.data());
    }
    void signed_number(int64_t v) {
        number(static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63));
    }
    void raw(const void* data, size_t n) {
        if (n) std::memcpy(reserve(n), data, n);
        used += n;
    }
    void append(const Buffer& b) { raw(b.bytes.data(), b.used); }
};

// --- writing

struct Writer {
    const Module& m;
    SerialiseOptions options;
    Buffer strings, types, locs, loops, formats, fields, code;
    const std::vector<Change> changes = changes_of(m.options);
    std::unordered_map<std::string_view, uint32_t> string_ids;  // views of what outlives this
    std::unordered_map<uint64_t, uint32_t> type_ids;
    std::unordered_map<const Loc*, uint32_t> loc_by_address;
    std::unordered_map<std::string, uint32_t> loc_ids;
    std::unordered_map<const void*, uint32_t> ref_ids;
    uint32_t loop_count = 0, format_count = 0;
    std::vector<Function*> functions;
    Buffer loc_buffer;
    const Loc* last_loc = nullptr;
    uint32_t next_value = 0;
    uint64_t last_type_word = ~uint64_t(0);
    uint32_t last_type = 0;

    uint32_t string(std::string_view text) {
        const auto [found, fresh] =
            string_ids.emplace(text, static_cast<uint32_t>(string_ids.size()));
        if (fresh) {
            strings.number(text.size());
            strings.raw(text.data(), text.size());
        }
        return found->second;
    }

    uint32_t type(Type t) {
        const uint64_t word = t.word();
        if (word == last_type_word) return last_type;
        const auto [found, fresh] = type_ids.emplace(word, static_cast<uint32_t>(type_ids.size()));
        if (fresh) types.raw(&word, 8);
        last_type_word = word;
        return last_type = found->second;
    }

    // Equal locations at different addresses are one; 0 is none.
    uint32_t loc(const Loc* l) {
        if (!l) return 0;
        const auto known = loc_by_address.find(l);
        if (known != loc_by_address.end()) return known->second;
        const uint32_t caller = loc(l->caller);
        Buffer& b = loc_buffer;
        b.used = 0;
        b.number(string(l->file));
        b.number(string(l->function));
        b.signed_number(l->line);
        b.signed_number(l->col);
        b.signed_number(l->end_line);
        b.signed_number(l->end_col);
        b.number(caller);
        const auto [found, fresh] =
            loc_ids.emplace(std::string(reinterpret_cast<char*>(b.bytes.data()), b.used),
                            static_cast<uint32_t>(loc_ids.size() + 1));
        if (fresh) locs.append(b);
        return loc_by_address[l] = found->second;
    }

    uint32_t loop_config(const LoopConfig* c) {
        if (!c) return 0;
        const auto [found, fresh] = ref_ids.emplace(c, loop_count + 1);
        if (!fresh) return found->second;
        ++loop_count;
        loops.byte(static_cast<uint8_t>(c->parallel | c->strictly_serial << 1));
        loops.signed_number(c->block_dim);
        loops.signed_number(c->max_threads);
        loops.number(string(c->name));
        return loop_count;
    }

    uint32_t format(const Format* f) {
        if (!f) return 0;
        const auto [found, fresh] = ref_ids.emplace(f, format_count + 1);
        if (!fresh) return found->second;
        ++format_count;
        formats.number(f->pieces.size());
        for (const Format::Piece& p : f->pieces) {
            formats.number(string(p.text));
            formats.byte(static_cast<uint8_t>(p.conversion));
        }
        formats.number(string(f->function));
        return format_count;
    }

    void terms(const std::vector<Field::Term>& list) {
        fields.number(list.size());
        for (const Field::Term& t : list) {
            fields.number(static_cast<uint64_t>(t.axis));
            fields.signed_number(t.div), fields.signed_number(t.mod),
                fields.signed_number(t.stride);
        }
    }

    void field(const Field& f) {
        fields.number(string(options.names ? std::string_view(f.name) : std::string_view()));
        fields.number(type(f.elem));
        fields.number(static_cast<uint64_t>(f.ndim));
        for (int k = 0; k < f.ndim; ++k) {
            fields.signed_number(f.shape[k]);
            fields.signed_number(f.offset[k]);
        }
        terms(f.terms);
        fields.number(f.uneven_terms.size());
        for (const auto& list : f.uneven_terms) terms(list);
        fields.number(f.component_offsets.size());
        for (const int64_t c : f.component_offsets) fields.signed_number(c);
        fields.number(f.alias_group);
    }

    uint32_t function_number(Function* f) {
        const auto [found, fresh] = ref_ids.emplace(f, static_cast<uint32_t>(functions.size()));
        if (fresh) functions.push_back(f);
        return found->second;
    }

    void region(const Region& r) {
        code.number(r.params.size());
        for (Value* p : r.params) {
            p->id = next_value++;
            code.number(type(p->type));
        }
        uint32_t count = 0;
        for (const Inst* i = r.first; i; i = i->next) ++count;
        code.number(count);
        for (Inst* i = r.first; i; i = i->next) inst(*i);
    }

    void inst(const Inst& i) {
        const OpInfo& row = info(i.op);
        const Loc* at = options.locations ? i.loc : nullptr;
        const bool same = at == last_loc;
        uint8_t form = (i.flags ? kHasFlags : 0) | (i.imm ? kHasImm : 0);
        form |= same ? kSameLoc : at ? kHasLoc : 0;
        code.byte(static_cast<uint8_t>(i.op));
        code.byte(form);
        if (i.flags) code.byte(i.flags);
        if (i.imm) code.number(i.imm);
        if (!same && at) code.number(loc(at));
        last_loc = at;
        switch (row.refers) {
            case Refers::nothing:
                break;
            case Refers::field: {
                const auto found = ref_ids.find(i.ref);
                QD_CHECK(found != ref_ids.end(), "field not in Module::fields: " + i.field()->name);
                code.number(found->second);
                break;
            }
            case Refers::function:
                code.number(function_number(i.callee()));
                break;
            case Refers::loop:
                code.number(loop_config(i.loop_config()));
                break;
            case Refers::format:
                code.number(format(i.format()));
                break;
        }
        if (row.operands < 0) code.number(i.operand_count);
        for (int k = 0; k < i.operand_count; ++k) code.number(next_value - i.operand(k)->id);
        if (row.rule == Rule::regions) code.number(i.result_count);
        // Results are visible behind the regions only, but numbered before them.
        for (int k = 0; k < i.result_count; ++k) {
            i.results[k].id = next_value++;
            code.number(type(i.results[k].type));
        }
        for (int k = 0; k < i.region_count; ++k) region(*i.regions[k]);
    }

    std::vector<uint8_t> run() {
        string("");
        for (size_t k = 0; k < m.fields.size(); ++k) {
            ref_ids.emplace(m.fields[k], static_cast<uint32_t>(k));
            field(*m.fields[k]);
        }
        Buffer header;
        header.number(string(options.names ? std::string_view(m.name) : std::string_view()));
        header.byte(m.arrays_may_overlap);
        header.number(changes.size());
        for (const Change& c : changes) {
            header.number(string(c.name));
            header.number(string(c.value));
        }
        header.number(m.params.size());
        for (const Param& p : m.params) {
            header.number(type(p.type));
            header.number(p.offset);
            header.byte(p.needs_grad);
            header.number(string(options.names ? std::string_view(p.name) : std::string_view()));
            header.number(p.number);
        }
        header.number(m.results.size());
        for (const Type t : m.results) header.number(type(t));
        // Reachable functions in the order of discovery; the list grows while it is walked.
        function_number(&m.kernel());
        for (size_t k = 0; k < functions.size(); ++k) {
            Function& f = *functions[k];
            const bool named = options.names;
            code.number(string(named ? std::string_view(f.name) : std::string_view()));
            code.byte(static_cast<uint8_t>(f.returns_early | f.never_inline << 1));
            code.number(f.result_types.size());
            for (const Type t : f.result_types) code.number(type(t));
            next_value = 0;
            last_loc = nullptr;
            region(*f.body);
        }
        Buffer out;
        out.raw(&kMagic, 4);
        out.byte(kVersion);
        const auto section = [&](uint64_t count, const Buffer& b) {
            out.number(count);
            out.append(b);
        };
        section(string_ids.size(), strings);
        section(type_ids.size(), types);
        section(loc_ids.size(), locs);
        section(loop_count, loops);
        section(format_count, formats);
        section(m.fields.size(), fields);
        out.append(header);
        section(functions.size(), code);
        out.bytes.resize(out.used);
        return std::move(out.bytes);
    }
};

// --- reading

struct Reader {
    const uint8_t* at;
    const uint8_t* end;
    std::unique_ptr<Module> m = std::make_unique<Module>();
    std::vector<std::string_view> strings;  // into the bytes
    std::vector<Type> types;
    std::vector<const Loc*> locs = {nullptr};
    std::vector<const LoopConfig*> loops = {nullptr};
    std::vector<const Format*> formats = {nullptr};
    std::vector<Value*> values;
    Function* function = nullptr;
    const Loc* last_loc = nullptr;
    int depth = 0;

    [[noreturn]] [[gnu::cold]] static void bad(const char* what) {
        throw support::Error(std::string("unreadable IR: ") + what);
    }
    uint8_t byte() {
        if (at == end) bad("too short");
        return *at++;
    }
    uint64_t number() {
        if (at != end && *at < 128) return *at++;
        uint64_t v = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            const uint8_t b = byte();
            v |= static_cast<uint64_t>(b & 127) << shift;
            if (b < 128) return v;
        }
        bad("number too long");
    }
    int64_t signed_number() {
        const uint64_t v = number();
        return static_cast<int64_t>(v >> 1 ^ (0 - (v & 1)));
    }
    int small() {
        const int64_t v = signed_number();
        if (v < INT32_MIN || v > INT32_MAX) bad("number out of range");
        return static_cast<int>(v);
    }
    // A count of things that take at least one byte each.
    size_t count() {
        const uint64_t n = number();
        if (n > static_cast<uint64_t>(end - at)) bad("count beyond the end");
        return static_cast<size_t>(n);
    }
    template <class T>
    const T& pick(const std::vector<T>& table) {
        const uint64_t k = number();
        if (k >= table.size()) bad("number beyond its table");
        return table[static_cast<size_t>(k)];
    }
    Type type() { return pick(types); }

    Type read_type() {
        if (end - at < 8) bad("too short");
        Type t;
        std::memcpy(&t, at, 8);
        at += 8;
        if (t.prim > Prim::none || t.kind > type::Kind::none || t.rank > 2) bad("unknown type");
        if (t.kind != type::Kind::none && t.prim == Prim::none) bad("unknown type");
        if ((t.rank < 2 && t.m != 1) || (t.rank < 1 && t.n != 1)) bad("unknown type");
        if (int64_t(t.n) * t.m > UINT16_MAX) bad("type too large");
        return t;
    }

    void tables() {
        for (size_t n = count(); n; --n) {
            const size_t length = count();
            strings.emplace_back(reinterpret_cast<const char*>(at), length);
            at += length;
        }
        for (size_t n = count(); n; --n) types.push_back(read_type());
        m->owned.push_back(
            std::make_unique<Function>(""));  // the kernel; its arena keeps the locations
        Function& keeper = *m->owned[0];
        std::vector<std::string_view> kept(strings.size());
        const auto keep = [&]() -> std::string_view {
            const std::string_view& text = pick(strings);
            std::string_view& copy = kept[static_cast<size_t>(&text - strings.data())];
            if (copy.empty()) copy = keeper.new_string(text);
            return copy;
        };
        for (size_t n = count(); n; --n) {
            Loc l;
            l.file = keep();
            l.function = keep();
            l.line = small(), l.col = small(), l.end_line = small(), l.end_col = small();
            l.caller = pick(locs);
            locs.push_back(keeper.new_loc(l));
        }
        for (size_t n = count(); n; --n) {
            auto c = std::make_unique<LoopConfig>();
            const uint8_t bits = byte();
            c->parallel = bits & 1;
            c->strictly_serial = bits & 2;
            c->block_dim = small();
            c->max_threads = small();
            c->name = pick(strings);
            loops.push_back(c.get());
            m->owned_loops.push_back(std::move(c));
        }
        for (size_t n = count(); n; --n) {
            auto f = std::make_unique<Format>();
            f->pieces.resize(count());
            for (Format::Piece& p : f->pieces) {
                p.text = pick(strings);
                p.conversion = static_cast<char>(byte());
            }
            f->function = pick(strings);
            formats.push_back(f.get());
            m->owned_formats.push_back(std::move(f));
        }
        for (size_t n = count(); n; --n) read_field();
    }

    void read_terms(std::vector<Field::Term>& list, uint64_t ndim) {
        list.resize(count());
        for (Field::Term& t : list) {
            const uint64_t axis = number();
            if (axis >= ndim) bad("no such axis");
            t.axis = static_cast<int>(axis);
            t.div = signed_number(), t.mod = signed_number(), t.stride = signed_number();
            if (t.div < 1 || t.mod < 0) bad("bad divisor");
        }
    }

    void read_field() {
        auto f = std::make_unique<Field>();
        f->name = pick(strings);
        f->elem = type();
        const uint64_t ndim = number();
        if (ndim > 12) bad("too many axes");
        f->ndim = static_cast<int>(ndim);
        for (int k = 0; k < f->ndim; ++k) {
            f->shape[k] = signed_number();
            f->offset[k] = signed_number();
        }
        read_terms(f->terms, ndim);
        f->uneven_terms.resize(count());
        for (auto& list : f->uneven_terms) read_terms(list, ndim);
        f->component_offsets.resize(count());
        for (int64_t& c : f->component_offsets) c = signed_number();
        if (!f->uneven_terms.empty() && f->uneven_terms.size() != f->component_offsets.size())
            bad("terms for other components");
        f->alias_group = number();
        m->fields.push_back(f.get());
        m->owned_fields.push_back(std::move(f));
    }

    void header() {
        m->name = pick(strings);
        m->arrays_may_overlap = byte() != 0;
        for (size_t n = count(); n; --n) {
            const std::string name(pick(strings));
            if (!change(m->options, name, pick(strings))) bad("unknown option");
        }
        m->params.resize(count());
        for (Param& p : m->params) {
            p.type = type();
            const uint64_t offset = number();
            if (offset > UINT32_MAX) bad("number out of range");
            p.offset = static_cast<uint32_t>(offset);
            p.needs_grad = byte() != 0;
            p.name = pick(strings);
            const uint64_t place = number();
            if (place > UINT32_MAX) bad("number out of range");
            p.number = static_cast<uint32_t>(place);
        }
        m->results.resize(count());
        for (Type& t : m->results) t = type();
    }
    Prim prim() {
        const uint8_t p = byte();
        if (p >= static_cast<uint8_t>(Prim::none)) bad("unknown type");
        return static_cast<Prim>(p);
    }

    void region(Region& r) {
        if (++depth > kMostNestedRegions) bad("regions nested too deeply");
        for (size_t n = count(); n; --n) values.push_back(function->add_param(r, type()));
        for (size_t n = count(); n; --n) inst(r);
        --depth;
    }

    void inst(Region& r) {
        const uint8_t op_byte = byte(), form = byte();
        if (op_byte >= static_cast<uint8_t>(Op::count_)) bad("unknown operation");
        const Op op = static_cast<Op>(op_byte);
        const OpInfo& row = info(op);
        const uint8_t flags = form & kHasFlags ? byte() : 0;
        const uint64_t imm = form & kHasImm ? number() : 0;
        if (!(form & kSameLoc)) last_loc = form & kHasLoc ? pick(locs) : nullptr;
        const void* ref = nullptr;
        switch (info(op).refers) {
            case Refers::nothing:
                break;
            case Refers::field:
                ref = pick(m->fields);
                break;
            case Refers::function:
                ref = pick(m->functions);
                break;
            case Refers::loop:
                ref = pick(loops);
                break;
            case Refers::format:
                ref = pick(formats);
                break;
        }
        const size_t operands = row.operands < 0 ? count() : static_cast<size_t>(row.operands);
        if (operands > UINT16_MAX || operands > static_cast<size_t>(end - at))
            bad("too many operands");
        const int regions = row.regions;
        // The number of results is known only behind the operands, so those wait in a buffer.
        operand_buffer.clear();
        for (size_t k = 0; k < operands; ++k) {
            const uint64_t back = number();
            if (back == 0 || back > values.size()) bad("operand out of range");
            operand_buffer.push_back(values[values.size() - static_cast<size_t>(back)]);
        }
        size_t results = row.rule == Rule::none ? 0 : 1;
        if (row.rule == Rule::regions) results = count();
        if (results > UINT16_MAX) bad("too many results");
        Inst* i =
            function->new_inst(op, static_cast<int>(operands), static_cast<int>(results), regions);
        if (operands) std::memcpy(i->operands, operand_buffer.data(), operands * sizeof(Value*));
        for (size_t k = 0; k < results; ++k) {
            i->results[k].type = type();
            values.push_back(i->results + k);
        }
        i->flags = flags;
        i->imm = imm;
        i->ref = ref;
        i->loc = last_loc;
        i->append_to(r);
        for (int k = 0; k < regions; ++k) region(*i->regions[k]);
        if (op == Op::for_ && (imm < 1 || imm > 12 || operands < 2 * imm)) bad("bad loop");
    }
    std::vector<Value*> operand_buffer;

    std::unique_ptr<Module> run() {
        uint32_t magic = 0;
        if (end - at < 5) bad("too short");
        std::memcpy(&magic, at, 4);
        at += 4;
        if (magic != kMagic || byte() != kVersion) bad("wrong format version");
        tables();
        header();
        const size_t functions = count();
        if (functions == 0) bad("no function");
        for (size_t k = 0; k < functions; ++k) {
            if (k) m->owned.push_back(std::make_unique<Function>(""));
            m->functions.push_back(m->owned[k].get());
        }
        for (Function* f : m->functions) {
            function = f;
            f->name = pick(strings);
            const uint8_t bits = byte();
            f->returns_early = bits & 1;
            f->never_inline = bits & 2;
            f->result_types.resize(count());
            for (Type& t : f->result_types) t = type();
            values.clear();
            last_loc = nullptr;
            region(*f->body);
        }
        if (at != end) bad("bytes left over");
        if (m->kernel().body->params.size() != m->params.size()) bad("parameters do not match");
        return std::move(m);
    }
};

}  // namespace

std::vector<uint8_t> serialise(const Module& m, SerialiseOptions options) {
    Writer w{.m = m, .options = options};
    return w.run();
}

std::unique_ptr<Module> deserialise(std::span<const uint8_t> bytes) {
    Reader r{.at = bytes.data(), .end = bytes.data() + bytes.size()};
    return r.run();
}

Hash128 content_hash(const Module& m) {
    const bool shown = m.options.check_indices();
    const std::vector<uint8_t> bytes = serialise(m, {.locations = shown, .names = shown});
    const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
    return {h.low64, h.high64};
}

}  // namespace qd::ir
