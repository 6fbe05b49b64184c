// The IR as text. parser.cpp reads everything that is written here.
//
//   %3, %4 = op %1, %2 #imm @ref !flag : type, type
//
// Values are numbered in order of definition, parameters first. Constants are written as numbers
// where that is exact, else as their bits in hexadecimal. A function's or field's name that is not
// unique in its module gets a number.

#include <charconv>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "ir/ir.h"

namespace qd::ir {

std::string quote(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        const auto u = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (u < 32 || u == 127) {
            char hex[8];
            std::snprintf(hex, sizeof hex, "\\x%02x", u);
            out += hex;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string constant_text(Type t, uint64_t bits) {
    char text[40];
    if (!type::is_float(t.prim)) {
        const int64_t v = int_of_bits(t.prim, bits);
        const auto end = type::is_signed(t.prim)
                             ? std::to_chars(text, text + sizeof text, v)
                             : std::to_chars(text, text + sizeof text, static_cast<uint64_t>(v));
        return {text, end.ptr};
    }
    const double v = double_of_bits(t.prim, bits);
    if (!std::isfinite(v)) {
        std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(bits));
        return text;
    }
    const auto end = t.prim == Prim::f64
                         ? std::to_chars(text, text + sizeof text, v)
                         : std::to_chars(text, text + sizeof text, static_cast<float>(v));
    std::string out(text, end.ptr);
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
}

namespace {

struct Printer {
    std::string out;
    std::unordered_map<const void*, std::string> names;  // functions and fields
    std::unordered_map<const Value*, uint32_t> numbers;
    int depth = 0;

    template <class T>
    void name_all(const std::vector<T>& things) {
        std::unordered_map<std::string, int> used;
        for (const auto* t : things) {
            std::string name;
            for (const char c : t->name) {
                const bool plain =
                    std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
                name += plain ? c : '_';
            }
            if (name.empty()) name = "anonymous";
            const int count = used[name]++;
            if (count) {
                do name += "." + std::to_string(count);
                while (used[name]++);
            }
            names[t] = name;
        }
    }

    std::string ref_name(const void* thing, std::string_view fallback) {
        const auto found = names.find(thing);
        return "@" + (found == names.end() ? std::string(fallback) : found->second);
    }
    std::string value(const Value* v) {
        v = resolve(const_cast<Value*>(v));
        const auto found = numbers.find(v);
        return found == numbers.end() ? "%undefined" : "%" + std::to_string(found->second);
    }
    std::string define(const Value* v) {
        const auto n = static_cast<uint32_t>(numbers.size());
        numbers[v] = n;
        return "%" + std::to_string(n);
    }
    void indent() { out.append(static_cast<size_t>(2 * depth), ' '); }
    void operands(const Inst& i, int from, int to) {
        for (int k = from; k < to; ++k) out += (k > from ? ", " : " ") + value(i.operand(k));
    }
    void types(std::span<const Value> values) {
        for (size_t k = 0; k < values.size(); ++k) {
            out += (k ? ", " : " : ") + type::to_string(values[k].type);
        }
    }

    void region(const Region& r) {
        out += "{\n";
        ++depth;
        for (Inst& i : r) inst(i);
        --depth;
        indent();
        out += "}";
    }

    void carried(const Inst& i, int first_operand, uint32_t first_param) {
        const Region& body = i.body();
        for (uint32_t k = first_param; k < body.params.size(); ++k) {
            out += k > first_param ? ", " : " carry ";
            const int operand = first_operand + static_cast<int>(k - first_param);
            out += define(body.params[k]) + " = " +
                   (operand < i.operand_count ? value(i.operand(operand)) : "%missing");
        }
    }

    void loop_config(const LoopConfig& c) {
        if (c.parallel) out += " parallel";
        if (c.strictly_serial) out += " strictly_serial";
        if (c.block_dim) out += " block_dim=" + std::to_string(c.block_dim);
        if (c.max_threads) out += " max_threads=" + std::to_string(c.max_threads);
        if (!c.name.empty()) out += " name=" + quote(c.name);
    }

    void format(const Format& f) {
        out += " [";
        for (size_t k = 0; k < f.pieces.size(); ++k) {
            if (k) out += ", ";
            out += quote(f.pieces[k].text);
            if (f.pieces[k].conversion) out += std::string(" ") + f.pieces[k].conversion;
        }
        out += "]";
        if (!f.function.empty()) out += " in " + quote(f.function);
    }

    void inst(const Inst& i) {
        indent();
        // The numbers of results come before those of the regions, as the text shows them.
        for (int k = 0; k < i.result_count; ++k) {
            out += define(i.result(k));
            out += k + 1 < i.result_count ? ", " : " = ";
        }
        out += info(i.op).name;
        if (i.op == Op::for_) {
            const auto dims = static_cast<uint32_t>(i.imm);
            for (uint32_t k = 0; k < dims && k < i.body().params.size(); ++k) {
                out += (k ? ", " : " ") + define(i.body().params[k]);
            }
            out += " =";
            for (int k = 0; k < static_cast<int>(dims) && 2 * k + 1 < i.operand_count; ++k) {
                out += (k ? ", " : " ") + value(i.operand(2 * k)) + " to " +
                       value(i.operand(2 * k + 1));
            }
            carried(i, 2 * static_cast<int>(dims), dims);
            if (i.ref) loop_config(*i.loop_config());
        } else if (i.op == Op::loop) {
            carried(i, 0, 0);
        } else {
            if (i.op == Op::constant) {
                out += " " + constant_text(i.result()->type, i.imm);
            } else {
                const Refers to = info(i.op).refers;
                if (to == Refers::function || to == Refers::field) {
                    const auto& name = to == Refers::field ? i.field()->name : i.callee()->name;
                    out += " " + ref_name(i.ref, name) + (i.operand_count ? "," : "");
                }
                operands(i, 0, i.operand_count);
                if (i.imm) out += " #" + std::to_string(i.imm);
                if (to == Refers::format && i.ref) format(*i.format());
            }
        }
        for (const FlagName& f : kFlagNames)
            if (i.flags & f.flag) out += std::string(" !") + f.name;
        types(i.result_values());
        for (int k = 0; k < i.region_count; ++k) {
            out += k ? " else " : " ";
            region(*i.regions[k]);
        }
        out += "\n";
    }

    void function(const Function& f) {
        numbers.clear();
        out += "func " + ref_name(&f, f.name.empty() ? "anonymous" : f.name) + "(";
        for (uint32_t k = 0; k < f.body->params.size(); ++k) {
            if (k) out += ", ";
            out += define(f.body->params[k]) + ": " + type::to_string(f.body->params[k]->type);
        }
        out += ")";
        for (size_t k = 0; k < f.result_types.size(); ++k) {
            out += (k ? ", " : " -> ") + type::to_string(f.result_types[k]);
        }
        if (f.returns_early) out += " returns_early";
        if (f.never_inline) out += " never_inline";
        out += " ";
        region(*f.body);
        out += "\n";
    }

    void field(const Field& f) {
        const auto list = [&](const char* name, const auto& values, size_t count) {
            out += std::string(" ") + name + " [";
            for (size_t k = 0; k < count; ++k) out += (k ? ", " : "") + std::to_string(values[k]);
            out += "]";
        };
        const auto axes = static_cast<size_t>(f.ndim);
        out +=
            "field " + ref_name(&f, f.name) + " " + quote(f.name) + " : " + type::to_string(f.elem);
        list("shape", f.shape, axes);
        list("offset", f.offset, axes);
        const auto terms = [&](const std::vector<Field::Term>& items) {
            out += " terms [";
            for (size_t k = 0; k < items.size(); ++k) {
                const Field::Term& t = items[k];
                out += (k ? ", " : "") + std::to_string(t.axis) + " / " + std::to_string(t.div) +
                       " % " + std::to_string(t.mod) + " * " + std::to_string(t.stride);
            }
            out += "]";
        };
        terms(f.terms);
        for (const auto& items : f.uneven_terms) terms(items);  // of each component
        list("components", f.component_offsets, f.component_offsets.size());
        out += " group " + std::to_string(f.alias_group) + "\n";
    }

    void module(const Module& m) {
        name_all(m.functions);
        name_all(m.fields);
        out += "module " + quote(m.name);
        for (const Change& c : changes_of(m.options))
            out += " " + std::string(c.name) + "=" + (c.is_text ? quote(c.value) : c.value);
        if (m.arrays_may_overlap) out += " overlap=1";
        out += "\n";
        for (const Param& p : m.params) {
            out += "param " + type::to_string(p.type) + " offset=" + std::to_string(p.offset);
            if (p.needs_grad) out += " grad";
            out += " " + quote(p.name) + "\n";
        }
        if (!m.results.empty()) {
            out += "results ";
            for (size_t k = 0; k < m.results.size(); ++k)
                out += (k ? ", " : "") + type::to_string(m.results[k]);
            out += "\n";
        }
        for (const Field* f : m.fields) field(*f);
        for (const Function* f : m.functions) {
            out += "\n";
            function(*f);
        }
    }
};

}  // namespace

std::string print(const Module& m) {
    Printer p;
    p.module(m);
    return std::move(p.out);
}

std::string print(const Function& f) {
    Printer p;
    p.function(f);
    return std::move(p.out);
}

}  // namespace qd::ir
