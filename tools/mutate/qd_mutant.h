// Included by sources that tools/mutate has rewritten: which change is switched on.
//
// The file named by QD_MUTANT_FILE is shared by every process of a test run: an int, the number of
// the change (0: none), then a byte per change that is set where control comes past it.

#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace qd_mutation {

constexpr int kPage = 8192;

inline volatile char* page() {
    static volatile char* const p = [] {
        static char nothing[kPage];
        const char* path = std::getenv("QD_MUTANT_FILE");
        const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
        if (file < 0) return static_cast<volatile char*>(nothing);
        void* m = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        return m == MAP_FAILED ? static_cast<volatile char*>(nothing)
                               : static_cast<volatile char*>(m);
    }();
    return p;
}

inline bool on(int number) {
    volatile char* p = page();
    p[sizeof(int) + number] = 1;
    return *reinterpret_cast<volatile int*>(p) == number;
}

}  // namespace qd_mutation

constexpr bool qd_mutant(int number) {
    return !std::is_constant_evaluated() && qd_mutation::on(number);
}
