// The drivers of CUDA and HIP, as far as we ask anything of them, over kernels that were compiled for the host.
//
// Invocations of a workgroup take turns: each runs to the next barrier, or to its end. Every second launch runs them in the opposite order, so
// that a missing barrier shows. New memory holds garbage; addresses and sizes are checked; a barrier that some have left behind
// is an error, as is a call by a thread that has no device.
#include <dlfcn.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

struct alignas(16) Triple { unsigned x, y, z; };
struct Invocation { Triple group, groups, local; };

namespace {

enum Status { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209,
              NOT_FOUND = 500, LAUNCH_FAILED = 719 };

constexpr size_t STACK = 128 << 10;

std::mutex lock;
std::map<uintptr_t, size_t> allocated;
size_t taken = 0;
thread_local bool entered = false;

// Where invocations run: each until it is done or at a barrier; one that is done makes room for the next.
struct Fiber {
    ucontext_t context;
    Invocation* who;
    bool done;
    std::vector<char> stack;
};
std::vector<Fiber> fibers;
std::vector<Invocation> invocations;
ucontext_t scheduler;
Fiber* current;
size_t started, count;
bool backwards;
void (*kernel)(void**);
void** kernel_arguments;
unsigned launches = 0;

void run() {
    while (started < count) {
        current->who = &invocations[backwards ? count - 1 - started : started];
        started++;
        kernel(kernel_arguments);
    }
    current->done = true;
    swapcontext(&current->context, &scheduler);
}

void go(Fiber& fiber) {
    current = &fiber;
    swapcontext(&scheduler, &fiber.context);
}

size_t memory() {
    const char* bytes = getenv("EMULATED_MEMORY");
    return bytes ? strtoull(bytes, nullptr, 10) : size_t(1) << 32;
}

// Whether there are so many bytes at an address.
bool holds(uintptr_t at, size_t bytes) {
    auto after = allocated.upper_bound(at);
    if (after == allocated.begin()) return false;
    --after;
    return at - after->first + bytes <= after->second;
}

Status workgroup() {
    started = 0;
    size_t used = 0, waiting = 0;
    while (started < count) {
        Fiber& fiber = fibers[used++];
        fiber.done = false;
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, run, 0);
        go(fiber);
        waiting += !fiber.done;
    }
    while (waiting != 0) {
        // Those that left before do not count for a barrier of the others on every device.
        if (waiting != count) {
            fprintf(stderr, "a barrier that %zu of %zu invocations reach\n", waiting, count);
            return LAUNCH_FAILED;
        }
        waiting = 0;
        for (size_t i = 0; i < used; i++) {
            go(fibers[i]);
            waiting += !fibers[i].done;
        }
    }
    return OK;
}

}  // namespace

extern "C" Invocation* host_invocation() { return current->who; }
extern "C" void host_barrier() { swapcontext(&current->context, &scheduler); }

namespace {

Status allocate(void** at, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    if (!entered) return INVALID_CONTEXT;
    if (bytes == 0) return INVALID_VALUE;
    if (taken + bytes > memory()) return OUT_OF_MEMORY;
    *at = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(*at, 0xA5, bytes);
    allocated[(uintptr_t)*at] = bytes;
    taken += bytes;
    return OK;
}

Status release(uintptr_t at) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = allocated.find(at);
    if (!entered) return INVALID_CONTEXT;
    if (found == allocated.end()) return INVALID_VALUE;
    taken -= found->second;
    allocated.erase(found);
    free((void*)at);
    return OK;
}

// Moves bytes; those on the device are checked.
Status move(uintptr_t to, bool to_device, uintptr_t from, bool from_device, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    if (!entered) return INVALID_CONTEXT;
    if ((to_device && !holds(to, bytes)) || (from_device && !holds(from, bytes))) return INVALID_VALUE;
    memmove((void*)to, (void*)from, bytes);
    return OK;
}

Status fill(uintptr_t at, int value, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    if (!entered) return INVALID_CONTEXT;
    if (!holds(at, bytes)) return INVALID_VALUE;
    memset((void*)at, value, bytes);
    return OK;
}

// A module is the text or code in which its function must be.
Status find(void** function, void* module, const char* name) {
    const std::string& image = *(std::string*)module;
    if (image.find(name) == std::string::npos) return NOT_FOUND;
    *function = dlsym(RTLD_DEFAULT, (std::string("host_") + name).c_str());
    return *function ? OK : NOT_FOUND;
}

Status launch(void* function, const unsigned* groups, const unsigned* size, void** arguments) {
    std::lock_guard<std::mutex> guard(lock);
    if (!entered) return INVALID_CONTEXT;
    for (int i = 0; i < 3; i++)
        if (groups[i] == 0 || size[i] == 0 || groups[i] > 65535) return INVALID_VALUE;
    const size_t n = size_t(size[0]) * size[1] * size[2];
    if (n > 1024) return INVALID_VALUE;
    if (fibers.size() < n) fibers.resize(n);
    invocations.resize(n);
    for (size_t i = 0; i < n; i++) {
        if (fibers[i].stack.empty()) fibers[i].stack.resize(STACK);
        const unsigned at = unsigned(i);
        invocations[i].local = {at % size[0], at / size[0] % size[1], at / size[0] / size[1]};
        invocations[i].groups = {groups[0], groups[1], groups[2]};
    }
    kernel = (void (*)(void**))function;
    kernel_arguments = arguments;
    count = n;
    backwards = launches++ % 2 == 1;
    for (unsigned z = 0; z < groups[2]; z++)
        for (unsigned y = 0; y < groups[1]; y++)
            for (unsigned x = 0; x < groups[0]; x++) {
                for (Invocation& i : invocations) i.group = {x, y, z};
                if (Status s = workgroup()) return s;
            }
    return OK;
}

const char* words(int status) {
    switch (status) {
        case INVALID_VALUE: return "a value that cannot be";
        case OUT_OF_MEMORY: return "out of memory";
        case INVALID_IMAGE: return "an image that is none";
        case INVALID_CONTEXT: return "a thread without a device";
        case NO_BINARY: return "an image of another device";
        case NOT_FOUND: return "a function that is not there";
        case LAUNCH_FAILED: return "a kernel that failed";
        default: return "something";
    }
}

}  // namespace

#define API extern "C" Status

API cuInit(unsigned) { return OK; }
API cuDriverGetVersion(int* v) { *v = 12020; return OK; }
API cuDeviceGetCount(int* n) { *n = 1; return OK; }
API cuDeviceGet(int* device, int i) { *device = 7; return i == 0 ? OK : INVALID_VALUE; }
API cuDeviceGetName(char* name, int bytes, int) { snprintf(name, bytes, "the host as CUDA"); return OK; }
// Compute capability, major and minor.
API cuDeviceGetAttribute(int* value, int which, int) { *value = which == 75 ? 8 : 0; return OK; }
API cuDeviceTotalMem_v2(size_t* bytes, int) { *bytes = memory(); return OK; }
API cuDevicePrimaryCtxRetain(void** context, int device) { *context = &fibers; return device == 7 ? OK : INVALID_VALUE; }
API cuCtxSetCurrent(void* context) { entered = context == &fibers; return entered ? OK : INVALID_CONTEXT; }
API cuCtxSynchronize() { return entered ? OK : INVALID_CONTEXT; }
API cuMemAlloc_v2(uintptr_t* at, size_t bytes) { return allocate((void**)at, bytes); }
API cuMemFree_v2(uintptr_t at) { return release(at); }
API cuMemsetD8_v2(uintptr_t at, unsigned char value, size_t bytes) { return fill(at, value, bytes); }
API cuMemcpyHtoD_v2(uintptr_t to, const void* from, size_t n) { return move(to, true, (uintptr_t)from, false, n); }
API cuMemcpyDtoH_v2(void* to, uintptr_t from, size_t n) { return move((uintptr_t)to, false, from, true, n); }
API cuMemcpyDtoD_v2(uintptr_t to, uintptr_t from, size_t n) { return move(to, true, from, true, n); }
API cuModuleLoadData(void** module, const void* image) {
    if (strncmp((const char*)image, ".version", 8) != 0) return INVALID_IMAGE;
    *module = new std::string((const char*)image);
    return OK;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
    if (((std::string*)module)->find(".entry " + std::string(name) + "(") == std::string::npos) return NOT_FOUND;
    return find(function, module, name);
}
API cuLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned wx, unsigned wy, unsigned wz, unsigned, void*,
                   void** arguments, void**) {
    const unsigned groups[] = {x, y, z}, size[] = {wx, wy, wz};
    return launch(f, groups, size, arguments);
}
API cuGetErrorName(int status, const char** text) { *text = words(status); return OK; }
API cuGetErrorString(int status, const char** text) { *text = words(status); return OK; }

API hipInit(unsigned) { return OK; }
API hipRuntimeGetVersion(int* v) { *v = 60200000; return OK; }
API hipGetDeviceCount(int* n) { *n = 1; return OK; }
API hipDeviceGetName(char* name, int bytes, int) { snprintf(name, bytes, "the host as HIP"); return OK; }
API hipDeviceTotalMem(size_t* bytes, int) { *bytes = memory(); return OK; }
API hipSetDevice(int i) { entered = i == 0; return entered ? OK : INVALID_VALUE; }
API hipDeviceSynchronize() { return entered ? OK : INVALID_CONTEXT; }
API hipMalloc(void** at, size_t bytes) { return allocate(at, bytes); }
API hipFree(void* at) { return release((uintptr_t)at); }
API hipMemset(void* at, int value, size_t bytes) { return fill((uintptr_t)at, value, bytes); }
API hipMemcpyHtoD(void* to, void* from, size_t n) { return move((uintptr_t)to, true, (uintptr_t)from, false, n); }
API hipMemcpyDtoH(void* to, void* from, size_t n) { return move((uintptr_t)to, false, (uintptr_t)from, true, n); }
API hipMemcpyDtoD(void* to, void* from, size_t n) { return move((uintptr_t)to, true, (uintptr_t)from, true, n); }
// The device is a gfx942: the number of its kind is in the flags of the file's head.
API hipModuleLoadData(void** module, const void* image) {
    const char* head = (const char*)image;
    if (memcmp(head, "\177ELF", 4) != 0) return INVALID_IMAGE;
    if ((unsigned char)head[48] != 0x4c) return NO_BINARY;
    uint64_t sections;
    uint16_t each, count;
    memcpy(&sections, head + 40, 8);
    memcpy(&each, head + 58, 2);
    memcpy(&count, head + 60, 2);
    *module = new std::string(head, sections + size_t(each) * count);
    return OK;
}
API hipModuleGetFunction(void** function, void* module, const char* name) { return find(function, module, name); }
API hipModuleLaunchKernel(void* f, unsigned x, unsigned y, unsigned z, unsigned wx, unsigned wy, unsigned wz, unsigned,
                          void*, void** arguments, void**) {
    const unsigned groups[] = {x, y, z}, size[] = {wx, wy, wz};
    return launch(f, groups, size, arguments);
}
extern "C" const char* hipGetErrorString(int status) { return words(status); }
