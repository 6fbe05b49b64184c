/* Memory runs out: allocations that code between two addresses asks for, from the n-th on, so many
   of them. Preloaded. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);

static uintptr_t from, to;
static long first, last, asked, none;
static long* refused = &none; /* counts in forked children, too */

/* first 0: ends it. Returns how many were refused since the last call. */
long refuse_memory(uintptr_t begin, uintptr_t end, long n, long count) {
    if (refused == &none) {
        void* shared = mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared != MAP_FAILED) refused = shared;
    }
    const long before = __atomic_exchange_n(refused, 0, __ATOMIC_SEQ_CST);
    from = begin, to = end, asked = 0, last = n + count, first = n;
    return before;
}

static int refuses(void* caller) {
    if (!first || (uintptr_t)caller < from || (uintptr_t)caller >= to) return 0;
    const long n = __atomic_add_fetch(&asked, 1, __ATOMIC_SEQ_CST);
    if (n < first || n >= last) return 0;
    __atomic_fetch_add(refused, 1, __ATOMIC_SEQ_CST);
    errno = ENOMEM;
    return 1;
}

void* malloc(size_t size) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
    return refuses(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}
