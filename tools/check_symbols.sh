#!/usr/bin/env bash
# The native objects may show the dynamic linker their entry points alone, and may not need a
# shared C++ runtime, LLVM or (for the compiler) Python: else they could not live in one process
# with other packages that bring their own.
#
#   tools/check_symbols.sh python/quadrants/_lib
set -euo pipefail
dir=${1:-python/quadrants/_lib}
failed=0

# check OBJECT EXPORTED FORBIDDEN-NEEDED, the last two as regular expressions
check() {
    local others needed
    others=$(nm -D --defined-only "$1" | awk '{print $NF}' | grep -Ev "^($2)\$" || true)
    needed=$(objdump -p "$1" | awk '$1 == "NEEDED" {print $2}' | grep -E "$3" || true)
    if [ -n "$others" ]; then
        echo "$1: exports more than $2:" && head -20 <<<"$others"
        failed=1
    fi
    if [ -n "$needed" ]; then
        echo "$1: needs ${needed//$'\n'/ }"
        failed=1
    fi
}

[ -e "$dir/libqd_compiler.so" ] || { echo "$dir/libqd_compiler.so: not built"; exit 1; }
check "$dir/libqd_compiler.so" 'qd_compiler_.*' 'libstdc|libgcc|LLVM|python|libz'
check "$dir/libqd_linalg.so" 'qd_linalg_.*' 'libstdc|libgcc|LLVM|python|libz'
for extension in "$dir"/core/quadrants_python*.so; do
    [ -e "$extension" ] || { echo "$extension: not built"; exit 1; }
    check "$extension" 'PyInit_quadrants_python' 'libstdc|libgcc|LLVM|python|qd_compiler'
    if grep -qc 'LLVM_22\|llvm::' "$extension"; then
        echo "$extension: contains LLVM"
        failed=1
    fi
done
exit $failed
