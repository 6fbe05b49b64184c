// A stand-in for NVIDIA's driver: "device" memory that the host must not touch (it lies in pages of
// its own, readable through these functions alone), kernels that do nothing, and a log of what was
// asked, to the file that QD_FAKE_CUDA_LOG names. QD_FAKE_CUDA makes things fail. Code that is loaded
// is kept beside the log, in LOG.ptx.

#define _GNU_SOURCE
#include <time.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef uint64_t Address;
typedef void *Handle;

static FILE *log_file(void) {
    static FILE *file;
    const char *path = getenv("QD_FAKE_CUDA_LOG");
    if (!file) file = fopen(path ? path : "/dev/null", "a");
    return file;
}
#define LOG(...) (fprintf(log_file(), __VA_ARGS__), fflush(log_file()))

static int fails(const char *what) {
    const char *wanted = getenv("QD_FAKE_CUDA");
    return wanted && strcmp(wanted, what) == 0;
}

#define EXPORT __attribute__((visibility("default")))

static int launched;
static int broken;  // an illegal address: everything fails from then on
enum { kInvalid = 1, kNotInitialised = 3, kOutOfMemory = 2, kNoDevice = 100, kIllegalAddress = 700 };

static int process;  // a forked child cannot use its parent's context
EXPORT int cuInit(unsigned flags) { process = getpid(); return fails("init") ? kNoDevice : 0; }
EXPORT int cuDriverGetVersion(int *v) { return *v = fails("old") ? 11080 : 13000, 0; }
EXPORT int cuDeviceGetCount(int *n) { return *n = !fails("none"), 0; }
EXPORT int cuDeviceGet(int *d, int n) { return *d = n, 0; }
EXPORT int cuDeviceGetName(char *name, int size, int d) { return snprintf(name, size, "fake") < 0; }
EXPORT int cuDeviceGetAttribute(int *v, int a, int d) {
    return *v = a == 75 ? (fails("capability") ? 6 : 9) : a == 97 ? 227 << 10 : a == 16 ? 10 : a == 13 ? 1500000 : a == 106 ? 32 : a == 1 ? 1024 : a == 89 ? !fails("pages") : a == 115 ? !fails("pools") : 0, 0;
}
EXPORT int cuDevicePrimaryCtxRetain(Handle *c, int d) { return *c = (Handle)1, 0; }
EXPORT int cuCtxSetCurrent(Handle c) { return getpid() == process ? 0 : kNotInitialised; }
EXPORT int cuCtxGetLimit(size_t *v, int l) { return *v = 1024, 0; }
EXPORT int cuCtxSetLimit(int l, size_t v) { return LOG("limit %d %zu\n", l, v), 0; }
EXPORT int cuMemGetInfo_v2(size_t *f, size_t *t) { return *f = *t = 1 << 30, 0; }

enum { kMost = 4096 };
static struct { Address at; size_t bytes; } blocks[kMost];
static int find(Address a) {
    for (int k = 0; k < kMost; ++k)
        if (blocks[k].at && a >= blocks[k].at && a < blocks[k].at + blocks[k].bytes) return k;
    return -1;
}
static void open_block(Address a, size_t bytes, int is_open) {
    const Address page = a & ~(Address)4095;
    if (find(a) >= 0)
        mprotect((void *)page, a + bytes - page, is_open ? PROT_READ | PROT_WRITE : PROT_NONE);
}
static size_t taken(void) {
    size_t all = 0;
    for (int k = 0; k < kMost; ++k) all += blocks[k].at ? blocks[k].bytes : 0;
    return all;
}
static int new_block(Address *a, size_t bytes, const char *kind) {
    if (fails("budget") && taken() + bytes > (size_t)1 << 30) return kOutOfMemory;
    const size_t pages = (bytes + 4095) & ~(size_t)4095;
    void *p = mmap(NULL, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return kOutOfMemory;
    for (int k = 0; k < kMost; ++k)
        if (!blocks[k].at) {
            blocks[k].at = *a = (Address)p, blocks[k].bytes = pages;
            LOG("%s %zu\n", kind, bytes);
            return 0;
        }
    return kOutOfMemory;
}
EXPORT int cuMemAlloc_v2(Address *a, size_t bytes) {
    if (broken) return kIllegalAddress;
    return bytes > (size_t)1 << 30 ? kOutOfMemory : new_block(a, bytes, "alloc");
}
EXPORT int cuMemAllocManaged(Address *a, size_t bytes, unsigned flags) {
    if (broken) return kIllegalAddress;
    return flags == 1 ? new_block(a, bytes, "managed") : 1;
}
EXPORT int cuMemAdvise(Address a, size_t bytes, int advice, int d) {
    return LOG("advise %d\n", advice), 0;
}
EXPORT int cuMemHostAlloc(void **a, size_t bytes, unsigned f) { return *a = calloc(1, bytes), 0; }
EXPORT int cuMemFreeHost(void *a) { return free(a), 0; }
EXPORT int cuMemFree_v2(Address a) {
    const int k = find(a);
    if (k < 0) return 1;
    munmap((void *)blocks[k].at, blocks[k].bytes);
    blocks[k].at = 0;
    LOG("free\n");
    return 0;
}
// Of pinned memory that no other process gets, on device 0.
EXPORT int cuMemPoolCreate(Handle *p, const int *row) {
    return row[0] != 1 || row[1] != 0 || row[2] != 1 || row[3] != 0 ? kInvalid : (*p = (Handle)6, 0);
}
EXPORT int cuMemPoolSetAttribute(Handle p, int attribute, void *v) { return 0; }
EXPORT int cuMemPoolTrimTo(Handle p, size_t n) { return LOG(n ? "trim to %zu\n" : "trim\n", n), 0; }
EXPORT int cuMemAllocFromPoolAsync(Address *a, size_t bytes, Handle p, Handle stream) {
    return cuMemAlloc_v2(a, bytes);
}
EXPORT int cuMemFreeAsync(Address a, Handle stream) { return cuMemFree_v2(a); }
EXPORT int cuCtxSynchronize(void) { return LOG("wait for all\n"), 0; }
EXPORT int cuMemcpyDtoH_v2(void *to, Address from, size_t n) {
    if (broken) return kIllegalAddress;
    LOG("read %zu\n", n);
    open_block(from, n, 1), memcpy(to, (void *)from, n), open_block(from, n, 0);
    return 0;
}
EXPORT int cuMemcpyHtoD_v2(Address to, const void *from, size_t n) {
    if (broken) return kIllegalAddress;
    LOG("write %zu\n", n);
    open_block(to, n, 1), memcpy((void *)to, from, n), open_block(to, n, 0);
    return 0;
}
#define FILL(name, type)                                                   \
    EXPORT int name(Address a, type v, size_t n, Handle s) {               \
        if (broken) return kIllegalAddress;                                \
        open_block(a, n * sizeof(type), 1);                                \
        for (size_t k = 0; k < n; ++k) ((type *)a)[k] = v;                 \
        return open_block(a, n * sizeof(type), 0), 0;                     \
    }
FILL(cuMemsetD8Async, unsigned char)
FILL(cuMemsetD16Async, unsigned short)
FILL(cuMemsetD32Async, unsigned)

EXPORT int cuEventCreate(Handle *e, unsigned flags) { return *e = calloc(1, 8), 0; }
EXPORT int cuEventRecord(Handle e, Handle s) { return LOG(s ? "event of %zu\n" : "event\n", (size_t)s), 0; }
EXPORT int cuEventDestroy_v2(Handle e) { return free(e), 0; }
// "soon": what runs ends once it was asked some times whether it has.
EXPORT int cuEventQuery(Handle e) {
    static int questions;
    if (!e) return 400;
    if (fails("soon") && ++questions > 5) launched = 0;
    return launched && (fails("endless") || fails("soon")) ? 600 : 0;
}
EXPORT int cuEventSynchronize(Handle e) { return 0; }
EXPORT int cuStreamWaitEvent(Handle s, Handle e, unsigned flags) {
    return flags ? kInvalid : (LOG("%zu waits\n", (size_t)s), 0);
}
EXPORT int cuEventElapsedTime(float *ms, Handle a, Handle b) { return *ms = 0.125f, 0; }
EXPORT int cuModuleLoadDataEx(Handle *m, const void *image, unsigned n, int *o, void **v) {
    if (!memcmp(image, "\177ELF", 4)) LOG("cubin %.*s\n", (int)strcspn((const char *)image + 4, "\n"), (const char *)image + 4);
    else LOG("load %d\n", strstr(image, ".entry task0") != NULL);
    char path[4096];
    snprintf(path, sizeof path, "%s.ptx", getenv("QD_FAKE_CUDA_LOG"));
    FILE *file = fopen(path, "a");
    if (file) fputs(image, file), fclose(file);
    return *m = strdup(image), 0;
}
EXPORT int cuModuleUnload(Handle m) { return LOG("unload\n"), 0; }
// A module has the kernels of its PTX, which the assembler's stand-in lists in its machine code.
EXPORT int cuModuleGetFunction(Handle *f, Handle m, const char *name) {
    char wanted[256];
    snprintf(wanted, sizeof wanted, ".entry %s(", name);
    return strstr(m, wanted) ? (*f = strdup(name), 0) : 500;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, Handle f, int threads, size_t b) {
    return *n = 2048 / threads, 0;
}
EXPORT int cuFuncSetAttribute(Handle f, int attribute, int v) {
    return LOG("attribute %s %d %d\n", (char *)f, attribute, v), 0;
}
EXPORT int cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, Handle stream, void **p, void **extra) {
    if (broken) return kIllegalAddress;
    LOG("launch %s %u x %u", (char *)f, gx, bx);
    if (shared) LOG(" + %u", shared);
    if (stream) LOG(" on %zu", (size_t)stream);
    LOG("\n");
    const Address *record = p[0];  // abi::DeviceLaunch: temps, partials, results, report, prints
    if (fails("check") && record[3]) {  // the first check of the kernel
        open_block(record[3], 24, 1);
        ((uint32_t *)record[3])[0] = 1;
        uint32_t *told = (uint32_t *)((Address *)record[3])[2];
        if (told) *told = 1;
        open_block(record[3], 24, 0);
    }
    if (fails("print") && record[4]) {  // twice the first text of the kernel, and one without room
        open_block(record[4], 32, 1);
        uint64_t *prints = (uint64_t *)record[4];
        prints[0] = 4 | (uint64_t)1 << 32;
        prints[1] = prints[3] = (uint64_t)1 << 63;
        open_block(record[4], 32, 0);
    }
    broken = fails("address"), launched = 1;
    return 0;
}

// A graph is a list of kernels; a loop in it is one whose body runs twice.
struct Params { Handle f; unsigned g[3], b[3], shared; void **p, **extra; Handle kernel, context; };
struct Node { struct Params p; uint8_t bytes[4096]; int on; struct Graph *body; struct Node *next; };
struct Graph { struct Node *first, **last; };
EXPORT int cuGraphCreate(Handle *g, unsigned flags) {
    if (fails("graph room")) return kOutOfMemory;
    struct Graph *made = calloc(1, sizeof *made);
    made->last = &made->first;
    return *g = made, 0;
}
EXPORT int cuGraphDestroy(Handle g) { return LOG("destroyed\n"), 0; }
static struct Node *add(struct Graph *g, const Handle *after, size_t count) {
    struct Node *n = calloc(1, sizeof *n);
    struct Node *last = g->last == &g->first ? NULL : (struct Node *)((char *)g->last - __builtin_offsetof(struct Node, next));
    if (count && after[0] != last) abort();
    n->on = 1, *g->last = n, g->last = &n->next;
    return n;
}
static void keep(struct Node *n, const struct Params *p) {
    n->p = *p;
    memcpy(n->bytes, p->p[0], strcmp((char *)p->f, "set_condition") ? 5 * sizeof(Address) : 32);
    n->p.p = NULL;
}
EXPORT int cuGraphAddKernelNode_v2(Handle *n, Handle g, const Handle *after, size_t count, const struct Params *p) {
    if (fails("graph")) return 801;
    struct Node *made = add(g, after, count);
    return keep(made, p), *n = made, 0;
}
EXPORT int cuGraphConditionalHandleCreate(uint64_t *h, Handle g, Handle c, unsigned v, unsigned flags) {
    static uint64_t last = 70;
    return *h = ++last, 0;
}
struct Conditional { int type, reserved[3]; uint64_t handle; unsigned kind, count; Handle *bodies; Handle context; };
EXPORT int cuGraphAddNode(Handle *n, Handle g, const Handle *after, size_t count, struct Conditional *p) {
    struct Node *made = add(g, after, count);
    if (p->type != 13 || p->kind != 1 || p->count != 1) abort();
    p->bodies = malloc(sizeof *p->bodies);
    cuGraphCreate((Handle *)&made->body, 0);
    return p->bodies[0] = made->body, *n = made, 0;
}
EXPORT int cuGraphAddEmptyNode(Handle *n, Handle g, const Handle *after, size_t count) {
    LOG("join of %zu\n", count);
    return *n = add(g, NULL, 0), 0;
}
static int follow(const Handle *from, const Handle *to, size_t count) {
    if (count != 1) abort();
    // One after the other, but where a section begins.
    if (((struct Node *)from[0])->next != to[0]) LOG("beside: %s\n", (char *)((struct Node *)to[0])->p.f);
    return 0;
}
EXPORT int cuGraphAddDependencies(Handle g, const Handle *from, const Handle *to, size_t count) {
    return follow(from, to, count);
}
EXPORT int cuGraphAddDependencies_v2(Handle g, const Handle *from, const Handle *to, const uint8_t *e, size_t count) {
    if (e[0]) LOG("early %s\n", (char *)((struct Node *)to[0])->p.f);
    return follow(from, to, count);
}
EXPORT int cuStreamCreate(Handle *s, unsigned flags) {
    static size_t last = 900;
    return *s = (Handle)(flags ? 9 : ++last), 0;  // blocking ones from 901 on
}
EXPORT int cuStreamDestroy_v2(Handle s) { return LOG("stream %zu destroyed\n", (size_t)s), 0; }
EXPORT int cuGraphInstantiateWithFlags(Handle *e, Handle g, unsigned long long flags) {
    if (fails("instantiate")) return *e = e, kInvalid;  // no handle of anything
    return LOG("instantiate\n"), *e = g, 0;
}
EXPORT int cuGraphExecDestroy(Handle e) {
    if (fails("instantiate")) abort();
    return 0;
}
EXPORT int cuGraphExecKernelNodeSetParams_v2(Handle e, Handle n, const struct Params *p) {
    return LOG("update %s\n", (char *)p->f), keep(n, p), 0;
}
EXPORT int cuGraphNodeSetEnabled(Handle e, Handle n, unsigned on) {
    return ((struct Node *)n)->on = (int)on, LOG("enable %u\n", on), 0;
}
static int play(const struct Graph *g, int depth) {
    for (struct Node *n = g->first; n; n = n->next) {
        if (!n->on || (!n->body && !n->p.f)) continue;
        void *p = n->bytes;
        if (n->body) {
            for (int turn = 0; turn < 2; ++turn) play(n->body, depth + 1);
            continue;
        }
        if (strcmp((char *)n->p.f, "set_condition") == 0)
            LOG("condition %d of %d\n", (int)((uint64_t *)n->bytes)[0] - 70, depth);
        else
            cuLaunchKernel(n->p.f, n->p.g[0], 1, 1, n->p.b[0], 1, 1, n->p.shared, NULL, &p, NULL);
    }
    return broken ? kIllegalAddress : 0;
}
EXPORT int cuGraphLaunch(Handle e, Handle s) {
    if (broken) return kIllegalAddress;
    LOG(s ? "graph on %zu\n" : "graph\n", (size_t)s);
    return play(e, 0);
}
EXPORT int cuStreamQuery(Handle s) {
    enum { kNotReady = 600 };
    if (fails("late")) {  // what is asked for comes after 20 ms
        static long since;
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        const long now = t.tv_sec * 1000 + t.tv_nsec / 1000000;
        if (!since) since = now;
        if (now < since + 20) return kNotReady;
        since = 0;
    }
    return broken ? kIllegalAddress : launched && (fails("endless") || fails("soon")) ? kNotReady : 0;
}
EXPORT int cuStreamSynchronize(Handle s) {
    if (s > (Handle)64) LOG("wait %zu\n", (size_t)s);
    return broken ? kIllegalAddress : 0;
}
EXPORT int cuCtxGetDevice(int *d) { return fails("second") ? (*d = 1, 0) : 201; }  // of a context that is current
EXPORT int cuPointerGetAttributes(unsigned n, int *what, void **values, Address at) {
    if (n != 2 || what[0] != 2 || what[1] != 9) abort();
    const int foreign = at == 0x7000000 || at == 0x8000000;  // the latter of the third device
    *(unsigned *)values[0] = find(at) >= 0 || foreign ? 2 : 0;
    *(int *)values[1] = at == 0x8000000 ? 2 : fails("second");
    return 0;
}
EXPORT int cuGetErrorName(int e, const char **n) {
    *n = e == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_FAKE";
    return 0;
}
EXPORT int cuGetErrorString(int e, const char **t) {
    *t = e == kIllegalAddress ? "an illegal memory access was encountered"
         : e == kNoDevice     ? "no CUDA-capable device is detected"
                              : "the fake's error";
    return 0;
}
