// Which CPU levels this machine can run.

#pragma once

#include <string_view>

namespace qd::test {

inline bool machine_runs(std::string_view cpu) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (cpu.empty() || cpu == "x86-64") return true;
    if (cpu == "x86-64-v2") return __builtin_cpu_supports("x86-64-v2");
    if (cpu == "x86-64-v3") return __builtin_cpu_supports("x86-64-v3");
    if (!__builtin_cpu_supports("x86-64-v4")) return false;
    if (cpu == "x86-64-v4") return true;
    const bool common =
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bitalg") &&
        __builtin_cpu_supports("avx512vpopcntdq") && __builtin_cpu_supports("avx512bf16");
    if (cpu == "znver4") return common && __builtin_cpu_is("amd");
    return cpu == "sapphirerapids" && common && __builtin_cpu_supports("avx512fp16");
#else
    return cpu.empty();
#endif
}

}  // namespace qd::test
