// Reads the text that printer.cpp writes, for tests, dumps and replays.
//
// Beyond that it accepts: any value names; `//` comments; no module line, no `param` lines (then
// parameters are laid out from the kernel's signature) and no `yield`/`continue`/`return` without
// operands at the end of a region. Errors are "line:column: what".

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <unordered_map>

#include "ir/ir.h"
#include "support/error.h"

namespace qd::ir {
namespace {

struct Parser {
    std::string_view text;
    size_t at = 0;
    Module* module = nullptr;
    Function* function = nullptr;
    std::unordered_map<std::string, Value*> values;
    std::unordered_map<std::string, Field*> fields;
    std::unordered_map<std::string, Function*> functions;
    std::unordered_map<std::string, bool> defined;

    [[noreturn]] void fail(const std::string& what) const {
        int line = 1, column = 1;
        for (size_t k = 0; k < at && k < text.size(); ++k) {
            if (text[k] == '\n') {
                ++line;
                column = 1;
            } else {
                ++column;
            }
        }
        throw support::Error(std::to_string(line) + ":" + std::to_string(column) + ": " + what);
    }

    // --- tokens
    void skip() {
        while (at < text.size()) {
            if (std::isspace(static_cast<unsigned char>(text[at]))) {
                ++at;
            } else if (text.substr(at, 2) == "//") {
                while (at < text.size() && text[at] != '\n') ++at;
            } else {
                break;
            }
        }
    }
    char peek() {
        skip();
        return at < text.size() ? text[at] : '\0';
    }
    bool accept(char c) {
        if (peek() != c) return false;
        ++at;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) fail(std::string("expected '") + c + "'");
    }
    static bool is_word(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
    }
    std::string_view peek_word() {
        skip();
        size_t end = at;
        while (end < text.size() && is_word(text[end])) ++end;
        return text.substr(at, end - at);
    }
    std::string_view word() {
        const std::string_view w = peek_word();
        if (w.empty()) fail("expected a word");
        at += w.size();
        return w;
    }
    bool accept_word(std::string_view w) {
        if (peek_word() != w) return false;
        at += w.size();
        return true;
    }
    void expect_word(std::string_view w) {
        if (!accept_word(w)) fail("expected '" + std::string(w) + "'");
    }
    template <class T>
    T integer() {
        skip();
        T v{};
        const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), v);
        if (error != std::errc{}) fail("expected an integer");
        at = static_cast<size_t>(end - text.data());
        return v;
    }
    std::string quoted() {
        expect('"');
        std::string out;
        while (at < text.size() && text[at] != '"') {
            char c = text[at++];
            if (c == '\\' && at < text.size()) {
                c = text[at++];
                if (c == 'n') c = '\n';
                if (c == 'x' && at + 2 <= text.size()) {
                    unsigned v = 0;
                    std::from_chars(text.data() + at, text.data() + at + 2, v, 16);
                    at += 2;
                    c = static_cast<char>(v);
                }
            }
            out += c;
        }
        if (at >= text.size()) fail("unterminated string");
        ++at;
        return out;
    }
    bool flag_value() { return integer<int>() != 0; }

    // --- types and constants
    Type parse_type() {
        const size_t start = at;
        const std::string_view w = word();
        if (w == "none") return type::kNone;
        if (Prim p; type::parse_prim(w, p)) return Type::scalar(p);
        const auto dimension = [&] {
            const int n = integer<int>();
            if (n < 0 || n > UINT16_MAX) fail("dimension out of range");
            return n;
        };
        Type t;
        expect('<');
        if (w == "vec" || w == "mat") {
            t = parse_type();
            expect(',');
            const int n = dimension();
            if (w == "vec") {
                t = Type::vector(t.prim, n);
            } else {
                expect(',');
                t = Type::matrix(t.prim, n, dimension());
            }
        } else if (w == "place") {
            t = parse_type().place();
        } else if (w == "array") {
            t = parse_type();
            t = Type::array(t, accept(',') ? dimension() : 1);
        } else {
            at = start;
            fail("unknown type");
        }
        expect('>');
        return t;
    }

    uint64_t constant(Type t) {
        skip();
        if (text.substr(at, 2) == "0x") {
            at += 2;
            uint64_t bits = 0;
            const auto [end, error] =
                std::from_chars(text.data() + at, text.data() + text.size(), bits, 16);
            if (error != std::errc{}) fail("bad hexadecimal constant");
            at = static_cast<size_t>(end - text.data());
            return bits;
        }
        if (type::is_float(t.prim)) {
            double v = 0;
            const auto [end, error] =
                std::from_chars(text.data() + at, text.data() + text.size(), v);
            if (error != std::errc{}) fail("bad constant");
            at = static_cast<size_t>(end - text.data());
            return bits_of_double(t.prim, v);
        }
        uint64_t v;
        if (peek() == '-') {
            v = static_cast<uint64_t>(integer<int64_t>());
        } else {
            v = integer<uint64_t>();
        }
        const int width = type::bits(t.prim);
        return width >= 64 ? v : v & ((uint64_t(1) << width) - 1);
    }
    // The type of a constant stands behind its text, which is read twice.
    uint64_t constant_before_type() {
        const size_t start = at;
        while (at < text.size() && text[at] != ':' && text[at] != '\n') ++at;
        expect(':');
        const Type t = parse_type();
        const size_t end = at;
        at = start;
        const uint64_t bits = constant(t);
        pending_type = t;
        pending_at = end;
        return bits;
    }
    Type pending_type;
    size_t pending_at = 0;

    // --- values
    std::string value_name() {
        expect('%');
        return std::string(word());
    }
    Value* value() {
        skip();
        const size_t start = at;
        const auto found = values.find(value_name());
        if (found == values.end()) {
            at = start;
            fail("unknown value");
        }
        return found->second;
    }
    std::vector<Value*> value_list() {
        std::vector<Value*> list;
        if (peek() != '%') return list;
        do list.push_back(value());
        while (accept(','));
        return list;
    }
    std::string ref_name() {
        expect('@');
        return std::string(word());
    }
    Function* function_named(const std::string& name) {
        Function*& f = functions[name];
        if (!f) {
            module->owned.push_back(std::make_unique<Function>(name));
            f = module->owned.back().get();
        }
        return f;
    }

    Format* format() {
        module->owned_formats.push_back(std::make_unique<Format>());
        Format* f = module->owned_formats.back().get();
        expect('[');
        while (!accept(']')) {
            Format::Piece piece;
            piece.text = quoted();
            if (peek() != ',' && peek() != ']') piece.conversion = text[at++];
            f->pieces.push_back(std::move(piece));
            accept(',');
        }
        if (accept_word("in")) f->function = quoted();
        return f;
    }

    LoopConfig* loop_config() {
        LoopConfig c;
        bool any = false;
        for (;; any = true) {
            const std::string_view w = peek_word();
            if (w != "parallel" && w != "strictly_serial" && w != "block_dim" &&
                w != "max_threads" && w != "name")
                break;
            at += w.size();
            if (w == "parallel") c.parallel = true;
            if (w == "strictly_serial") c.strictly_serial = true;
            if (w == "block_dim") expect('='), c.block_dim = integer<int>();
            if (w == "max_threads") expect('='), c.max_threads = integer<int>();
            if (w == "name") expect('='), c.name = quoted();
        }
        if (!any) return nullptr;
        module->owned_loops.push_back(std::make_unique<LoopConfig>(std::move(c)));
        return module->owned_loops.back().get();
    }

    void region(Region& r) {
        expect('{');
        while (!accept('}')) inst(r);
        if (r.last && info(r.last->op).effect == Effect::terminator) return;
        const Op op = !r.owner ? Op::return_ : r.owner->is_loop() ? Op::continue_ : Op::yield;
        function->new_inst(op, 0, 0, 0)->append_to(r);
    }

    // An instruction as far as it stands in front of its regions.
    struct Head {
        Op op{};
        std::vector<Value*> operands;
        std::vector<std::string> params;  // of its first region
        std::vector<Type> param_types;
        uint64_t imm = 0;
        const void* ref = nullptr;
        uint8_t flags = 0;
        std::vector<Type> types;  // of its results
    };

    std::vector<std::string> parse_results() {
        std::vector<std::string> results;
        if (peek() != '%') return results;
        do results.push_back(value_name());
        while (accept(','));
        expect('=');
        return results;
    }
    Op parse_operation() {
        skip();
        const size_t start = at;
        Op op;
        if (!parse_op(word(), op)) {
            at = start;
            fail("unknown operation");
        }
        return op;
    }

    void parse_ranges(Head& h) {
        do h.params.push_back(value_name());
        while (accept(','));
        expect('=');
        do {
            h.operands.push_back(value());
            h.param_types.push_back(h.operands.back()->type);
            expect_word("to");
            h.operands.push_back(value());
        } while (accept(','));
        h.imm = h.params.size();
        if (h.operands.size() != 2 * h.imm) fail("one range for each index");
    }
    void parse_carried(Head& h) {
        if (!accept_word("carry")) return;
        do {
            h.params.push_back(value_name());
            expect('=');
            h.operands.push_back(value());
            h.param_types.push_back(h.operands.back()->type);
        } while (accept(','));
    }
    void parse_plain_operands(Head& h) {
        // A `%` may open the next line: behind a name only a comma tells.
        bool any = info(h.op).operands != 0;
        const Refers to = info(h.op).refers;
        if (to == Refers::function || to == Refers::field) {
            const std::string name = ref_name();
            any = accept(',');
            if (to == Refers::function) {
                h.ref = function_named(name);
            } else {
                const auto found = fields.find(name);
                if (found == fields.end()) fail("unknown field");
                h.ref = found->second;
            }
        }
        if (any) h.operands = value_list();
        if (accept('#')) h.imm = integer<uint64_t>();
        if (to == Refers::format) h.ref = format();
    }
    void parse_operands(Head& h) {
        if (h.op == Op::for_) {
            parse_ranges(h);
            parse_carried(h);
            h.ref = loop_config();
        } else if (h.op == Op::loop) {
            parse_carried(h);
        } else if (h.op == Op::constant) {
            h.imm = constant_before_type();
        } else {
            parse_plain_operands(h);
        }
    }

    uint8_t parse_flags() {
        uint8_t flags = 0;
        while (accept('!')) {
            const std::string_view w = word();
            const auto known =
                std::ranges::find_if(kFlagNames, [&](const FlagName& f) { return w == f.name; });
            if (known == std::end(kFlagNames)) fail("unknown flag");
            flags |= known->flag;
        }
        return flags;
    }

    void parse_types(Head& h, bool has_results) {
        if (h.op == Op::constant) {
            at = pending_at;
            h.types.push_back(pending_type);
        } else if (accept(':')) {
            do h.types.push_back(parse_type());
            while (accept(','));
        } else if (has_results) {
            const Type t = rule_type(h.op, h.operands);
            if (t.is_none()) fail("this operation needs its result type");
            h.types.push_back(t);
        }
    }

    Inst* append(const Head& h, Region& r) {
        Inst* i = function->new_inst(h.op, static_cast<int>(h.operands.size()),
                                     static_cast<int>(h.types.size()), info(h.op).regions);
        std::copy(h.operands.begin(), h.operands.end(), i->operands);
        for (size_t k = 0; k < h.types.size(); ++k) i->results[k].type = h.types[k];
        i->imm = h.imm;
        i->ref = h.ref;
        i->flags = h.flags;
        i->append_to(r);
        return i;
    }

    void parse_regions(Inst& i, const Head& h) {
        const int count = info(h.op).regions;
        if (count == 1) {
            for (size_t k = 0; k < h.params.size(); ++k)
                values[h.params[k]] = function->add_param(i.body(), h.param_types[k]);
        }
        if (count > 0) region(*i.regions[0]);
        if (count > 1) {
            if (accept_word("else")) {
                region(*i.regions[1]);
            } else {
                function->new_inst(Op::yield, 0, 0, 0)->append_to(*i.regions[1]);
            }
        }
    }

    void inst(Region& r) {
        const std::vector<std::string> results = parse_results();
        Head h{.op = parse_operation()};
        parse_operands(h);
        h.flags = parse_flags();
        parse_types(h, !results.empty());
        if (!results.empty() && results.size() != h.types.size()) fail("as many types as results");
        Inst* i = append(h, r);
        parse_regions(*i, h);
        for (size_t k = 0; k < results.size(); ++k)
            values[results[k]] = i->result(static_cast<int>(k));
    }

    void parse_function() {
        const size_t start = at;
        const std::string name = ref_name();
        if (defined[name]) {
            at = start;
            fail("function defined twice");
        }
        defined[name] = true;
        function = function_named(name);
        module->functions.push_back(function);
        values.clear();
        expect('(');
        while (!accept(')')) {
            const std::string parameter = value_name();
            expect(':');
            values[parameter] = function->add_param(*function->body, parse_type());
            names_of_params.push_back(module->functions.size() == 1 ? parameter : "");
            accept(',');
        }
        if (accept('-')) {
            expect('>');
            do function->result_types.push_back(parse_type());
            while (accept(','));
        }
        for (;;) {
            if (accept_word("returns_early")) {
                function->returns_early = true;
            } else if (accept_word("never_inline")) {
                function->never_inline = true;
            } else {
                break;
            }
        }
        region(*function->body);
    }
    std::vector<std::string> names_of_params;

    std::vector<int64_t> integers() {
        std::vector<int64_t> list;
        expect('[');
        while (!accept(']')) {
            list.push_back(integer<int64_t>());
            accept(',');
        }
        return list;
    }

    void parse_terms(const Field& f, std::vector<Field::Term>& terms) {
        expect_word("terms");
        expect('[');
        while (!accept(']')) {
            Field::Term t{};
            t.axis = integer<int>();
            if (t.axis < 0 || t.axis >= f.ndim) fail("no such axis");
            expect('/'), t.div = integer<int64_t>();
            expect('%'), t.mod = integer<int64_t>();
            expect('*'), t.stride = integer<int64_t>();
            terms.push_back(t);
            accept(',');
        }
    }

    void parse_field() {
        const std::string label = ref_name();
        module->owned_fields.push_back(std::make_unique<Field>());
        Field* f = module->owned_fields.back().get();
        module->fields.push_back(f);
        fields[label] = f;
        f->name = quoted();
        expect(':');
        f->elem = parse_type();
        expect_word("shape");
        const std::vector<int64_t> shape = integers();
        expect_word("offset");
        const std::vector<int64_t> offset = integers();
        if (shape.size() > 12 || offset.size() != shape.size()) fail("bad shape or offset");
        f->ndim = static_cast<int>(shape.size());
        std::copy(shape.begin(), shape.end(), f->shape);
        std::copy(offset.begin(), offset.end(), f->offset);
        parse_terms(*f, f->terms);
        while (peek_word() == "terms") parse_terms(*f, f->uneven_terms.emplace_back());
        expect_word("components");
        f->component_offsets = integers();
        if (!f->uneven_terms.empty() && f->uneven_terms.size() != f->component_offsets.size())
            fail("terms for other components");
        expect_word("group");
        f->alias_group = integer<uint64_t>();
    }

    void parse_module_line() {
        module->name = quoted();
        for (;;) {
            const std::string_view w = peek_word();
            if (w.empty() || w == "param" || w == "results" || w == "field" || w == "func") return;
            at += w.size();
            expect('=');
            if (w == "overlap") {
                module->arrays_may_overlap = flag_value();
                continue;
            }
            std::string value;
            skip();
            if (at < text.size() && text[at] == '"') {
                value = quoted();
            } else {
                if (accept('-')) value = "-";
                value += word();
            }
            if (!change(module->options, w, value))
                fail("no option of a module, or no value of it");
        }
    }

    void parse_param() {
        Param p;
        p.type = parse_type();
        expect_word("offset");
        expect('=');
        p.offset = integer<uint32_t>();
        p.needs_grad = accept_word("grad");
        p.name = quoted();
        module->params.push_back(std::move(p));
    }

    std::unique_ptr<Module> run() {
        auto owner = std::make_unique<Module>();
        module = owner.get();
        while (peek()) {
            const size_t start = at;
            const std::string_view w = word();
            if (w == "module") {
                parse_module_line();
            } else if (w == "param") {
                parse_param();
            } else if (w == "results") {
                do module->results.push_back(parse_type());
                while (accept(','));
            } else if (w == "field") {
                parse_field();
            } else if (w == "func") {
                parse_function();
            } else {
                at = start;
                fail("expected module, param, results, field or func");
            }
        }
        if (module->functions.empty()) fail("no function");
        for (const auto& [name, f] : functions) {
            if (!defined[name]) fail("function @" + name + " is called but not defined");
        }
        if (module->name.empty()) module->name = module->kernel().name;
        if (module->params.empty()) {
            for (uint32_t k = 0; k < module->kernel().body->params.size(); ++k) {
                module->params.push_back(
                    {module->kernel().body->params[k]->type, 0, false, names_of_params[k], k});
            }
            lay_out_params(*module);
        }
        return owner;
    }
};

}  // namespace

std::unique_ptr<Module> parse(std::string_view text) {
    Parser p{.text = text};
    return p.run();
}

}  // namespace qd::ir
