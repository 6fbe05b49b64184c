// See print.h. Defaults of spec 10 section 9: integers decimal, u1 as 0/1, f16 and f32 with six
// decimals, f64 with twelve; tensors in brackets, every component by the same rule.

#include "runtime/cpu/print.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "type/type.h"

namespace qd::runtime {
namespace {

using type::Prim;

constexpr int kWidest = 1 << 20;  // bytes of one number

// The fewest digits that give the number back, without an exponent from 1e-4 to 1e16.
std::string shortest(Prim prim, double v) {
    char buffer[32];
    const auto write = [&](std::chars_format form) -> std::string {
        const auto end = prim == Prim::f64
                             ? std::to_chars(buffer, buffer + sizeof buffer, v, form)
                             : std::to_chars(buffer, buffer + sizeof buffer, float(v), form);
        return {buffer, end.ptr};
    };
    const double size = std::fabs(v);
    if (size == 0 || !std::isfinite(v)) return write(std::chars_format::fixed);
    std::string text = write(std::chars_format::scientific);
    if (size < 1e-4 || size >= 1e16) return text;
    const size_t e = text.find('e');
    const size_t power = size >= 1 ? std::strtoul(text.c_str() + e + 1, nullptr, 10) : 0;
    const size_t sign = text[0] == '-';
    text.resize(e);
    std::erase(text, '.');
    if (text.size() - sign > power + 1 || size < 1) return write(std::chars_format::fixed);
    text.append(power + 1 - (text.size() - sign), '0');  // fixed would show digits beyond precision
    return text;
}

void append_scalar(std::string& out, Prim prim, const support::FormatPiece& piece, abi::Cell cell) {
    std::string spec = "%" + piece.text;
    char conversion = piece.conversion;
    const char* known = type::is_float(prim) ? "*rfFeEgGaA" : "*rdiuoxX";
    if (piece.text.find_first_not_of("-+ #0123456789.l") != std::string::npos ||
        !std::strchr(known, conversion)) {
        out += spec + conversion;  // never from our compiler; printf must not see it
        return;
    }
    if (conversion == 'r' && type::is_float(prim)) {
        out += shortest(prim, cell.f);
        return;
    }
    if (conversion == '*' || conversion == 'r')
        conversion = type::is_float(prim) ? 'f' : type::is_signed(prim) ? 'd' : 'u';
    // f64 shows twelve places under every conversion; printf's own six are the narrower floats'.
    if (prim == Prim::f64 && piece.text.find('.') == std::string::npos) spec += ".12";
    char buffer[512];
    auto append = [&](auto value) {
        const int length = std::snprintf(buffer, sizeof buffer, spec.c_str(), value);
        if (length < 0 || length > kWidest) return;
        const auto n = static_cast<size_t>(length), at = out.size();
        if (n < sizeof buffer) {
            out.append(buffer, n);
            return;
        }
        out.resize(at + n + 1);
        std::snprintf(out.data() + at, n + 1, spec.c_str(), value);
        out.resize(at + n);
    };
    if (type::is_float(prim)) {
        spec += conversion;
        append(cell.f);
    } else {
        while (!spec.empty() && spec.back() == 'l') spec.pop_back();
        spec += "ll";
        spec += conversion;
        const int width = type::bits(prim);
        const uint64_t mask = width == 64 ? ~uint64_t(0) : (uint64_t(1) << width) - 1;
        const bool wants_signed = conversion == 'd' || conversion == 'i';
        append(static_cast<long long>(wants_signed ? cell.u : cell.u & mask));
    }
}

void append_operand(std::string& out, const support::FormatOperand& o,
                    const support::FormatPiece& piece, const abi::Cell* cells) {
    const auto prim = static_cast<Prim>(o.prim);
    if (o.rank == 0) return append_scalar(out, prim, piece, cells[0]);
    out += '[';
    for (uint32_t row = 0; row < o.n; ++row) {
        if (row) out += ", ";
        if (o.rank == 1) {
            append_scalar(out, prim, piece, cells[row]);
            continue;
        }
        out += '[';
        for (uint32_t column = 0; column < o.m; ++column) {
            if (column) out += ", ";
            append_scalar(out, prim, piece, cells[row * o.m + column]);
        }
        out += ']';
    }
    out += ']';
}

}  // namespace

std::string format_text(const support::FormatEntry& entry, const abi::Cell* cells) {
    std::string out;
    size_t operand = 0;
    for (const support::FormatPiece& piece : entry.pieces) {
        if (!piece.conversion) {
            out += piece.text;
        } else if (operand < entry.operands.size()) {
            append_operand(out, entry.operands[operand], piece, cells);
            cells += entry.operands[operand].count();
            ++operand;
        }
    }
    return out;
}

std::vector<const support::FormatEntry*> stack_of(std::span<const support::FormatEntry> formats,
                                                  uint32_t format,
                                                  std::span<const uint64_t> sites) {
    std::vector<const support::FormatEntry*> out;
    if (format < formats.size()) out.push_back(&formats[format]);
    for (const uint64_t site : sites)
        if (site < formats.size()) out.push_back(&formats[site]);
    return out;
}

void add_callers(std::string& text, const std::vector<const support::FormatEntry*>& stack) {
    constexpr size_t kShown = 16;
    std::vector<const support::SourceSite*> sites;
    for (const support::FormatEntry* e : stack)
        for (const support::SourceSite& s : e->sites) sites.push_back(&s);
    std::string callers;
    for (size_t k = 1; k < sites.size() && k <= kShown; ++k)
        callers += "called from File \"" + sites[k]->file + "\", line " +
                   std::to_string(sites[k]->line) + ", in " + sites[k]->function + "\n";
    if (sites.size() > kShown + 1)
        callers += "and " + std::to_string(sites.size() - kShown - 1) + " more calls\n";
    text.insert(text.empty() ? 0 : text.size() - 1, callers);
}

}  // namespace qd::runtime
