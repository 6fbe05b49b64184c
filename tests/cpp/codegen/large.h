// A module that is large enough to be emitted in parts.

#pragma once

#include <string>

namespace qd::test {

// A parallel loop over field @h : i32 [16] that calls `functions` functions of some thousand
// instructions, which call each other.
inline std::string large_module(int functions) {
    std::string text = R"(module "large"
field @h "h" : i32 shape [16] offset [0] terms [0 / 1 % 0 * 4] components [0] group 1
func @all() {
  %zero = constant 0 : i32
  %n = constant 16 : i32
  for %i = %zero to %n parallel {
    %p = field_place @h, %i : place<i32>
    %x = load %p
    %r0 = cast %x : i64
)";
    const auto number = [](int k) { return std::to_string(k); };
    for (int k = 0; k < functions; ++k)
        text +=
            "    %r" + number(k + 1) + " = call @f" + number(k) + ", %r" + number(k) + " : i64\n";
    text += "    %y = cast %r" + number(functions) + " : i32\n    store %p, %y\n  }\n}\n";
    for (int k = 0; k < functions; ++k) {
        text += "func @f" + number(k) + "(%x: i64) -> i64 never_inline {\n  %c = constant " +
                number(2 * k + 3) + " : i64\n  %zero = constant 0 : i64\n" +
                "  %s = constant 7 : i64\n  %a0 = add %x, %c\n";
        constexpr int kSteps = 300;
        for (int j = 0; j < kSteps; ++j) {
            const std::string now = number(j), next = number(j + 1);
            text += "  %m" + now + " = mul %a" + now + ", %c\n  %l" + now + " = lshr %m" + now +
                    ", %s\n  %a" + next + " = sub %l" + now + ", %x\n";
        }
        const std::string end = "%a" + number(kSteps);
        text += "  %f = cast " + end + " : f32\n  %g = sin %f\n  %e = cast %g : i64\n";
        const std::string other = number(k == 0 ? functions - 1 : k - 1);  // round, if need be
        text += "  %less = lt %x, %zero\n  %r = if %less : i64 {\n    %v = call @f" + other +
                ", %s : i64\n    yield %v\n  } else {\n    yield " + end + "\n  }\n" +
                "  %sum = add %r, %e\n  return %sum\n}\n";
    }
    return text;
}

}  // namespace qd::test
