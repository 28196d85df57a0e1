// What the kernels are written in, for the compilers of CUDA and HIP, and for C++ on the host, where tests run them.
//
// Each operation on floats rounds once: products and sums are calls that no compiler fuses. Integers wrap, and shifts count
// modulo 32. No kernel divides by zero.
#pragma once

#if defined(__HIP__)
#pragma clang fp contract(off)
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define DEVICE static inline __device__ __attribute__((always_inline))
#define ENTRY(threads) extern "C" __global__ void __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define WORKGROUP static __shared__
#elif defined(__CUDACC__)
#define DEVICE static __device__ __forceinline__
#define ENTRY(threads) extern "C" __global__ void __launch_bounds__(threads, 1)
#define WORKGROUP static __shared__
#else
#define DEVICE static inline
#define ENTRY(threads) static void
// One workgroup runs at a time.
#define WORKGROUP static
#endif
#define RESTRICT __restrict__
#if defined(__HIP__) || defined(__CUDACC__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

template <class T> struct alignas(2 * sizeof(T)) Vec2 { T x, y; };
template <class T> struct alignas(4 * sizeof(T)) Vec3 { T x, y, z; };
template <class T> struct alignas(4 * sizeof(T)) Vec4 { T x, y, z, w; };
template <class T, unsigned N> struct Array { T at[N]; };

template <class T> DEVICE T component_2(Vec2<T> v, unsigned i) { return i == 0 ? v.x : v.y; }
template <class T> DEVICE T component_3(Vec3<T> v, unsigned i) { return i == 0 ? v.x : i == 1 ? v.y : v.z; }
template <class T> DEVICE T component_4(Vec4<T> v, unsigned i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Where an invocation stands, atomics, bits of floats, products of bytes, single roundings.
#if defined(__HIP__)

DEVICE Vec3<unsigned> group_id() {
    return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}
DEVICE Vec3<unsigned> local_id() {
    return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}
// The packet of a dispatch counts invocations.
DEVICE Vec3<unsigned> group_count(unsigned x, unsigned y, unsigned z) {
    return {__builtin_amdgcn_grid_size_x() / x, __builtin_amdgcn_grid_size_y() / y, __builtin_amdgcn_grid_size_z() / z};
}
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define ATOMIC(name) __hip_atomic_fetch_##name(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)
template <class T> DEVICE T atomic_load(const T* p) {
    return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> DEVICE void atomic_store(T* p, T v) {
    __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T> DEVICE T atomic_add(T* p, T v) { return ATOMIC(add); }
template <class T> DEVICE T atomic_and(T* p, T v) { return ATOMIC(and); }
template <class T> DEVICE T atomic_or(T* p, T v) { return ATOMIC(or); }
template <class T> DEVICE T atomic_min(T* p, T v) { return ATOMIC(min); }
template <class T> DEVICE T atomic_max(T* p, T v) { return ATOMIC(max); }
#undef ATOMIC
DEVICE unsigned f_as_u(float x) { return __builtin_bit_cast(unsigned, x); }
DEVICE float u_as_f(unsigned x) { return __builtin_bit_cast(float, x); }
#if defined(__GFX9__)
DEVICE int u_dot4_i8(unsigned a, unsigned b) { return __builtin_amdgcn_sdot4((int)a, (int)b, 0, false); }
#else
DEVICE int u_dot4_i8(unsigned a, unsigned b) {
    return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, 0, false);
}
#endif
DEVICE unsigned u_dot4_u8(unsigned a, unsigned b) { return __builtin_amdgcn_udot4(a, b, 0u, false); }
DEVICE float f_add(float a, float b) { return a + b; }
DEVICE float f_sub(float a, float b) { return a - b; }
DEVICE float f_mul(float a, float b) { return a * b; }
DEVICE float f_div(float a, float b) { return a / b; }

#elif defined(__CUDACC__)

DEVICE Vec3<unsigned> group_id() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
DEVICE Vec3<unsigned> local_id() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
DEVICE Vec3<unsigned> group_count(unsigned, unsigned, unsigned) { return {gridDim.x, gridDim.y, gridDim.z}; }
DEVICE void barrier() { __syncthreads(); }
template <class T> DEVICE T atomic_load(const T* p) { return *(const volatile T*)p; }
template <class T> DEVICE void atomic_store(T* p, T v) { *(volatile T*)p = v; }
template <class T> DEVICE T atomic_add(T* p, T v) { return atomicAdd(p, v); }
template <class T> DEVICE T atomic_and(T* p, T v) { return atomicAnd(p, v); }
template <class T> DEVICE T atomic_or(T* p, T v) { return atomicOr(p, v); }
template <class T> DEVICE T atomic_min(T* p, T v) { return atomicMin(p, v); }
template <class T> DEVICE T atomic_max(T* p, T v) { return atomicMax(p, v); }
DEVICE unsigned f_as_u(float x) { return __float_as_uint(x); }
DEVICE float u_as_f(unsigned x) { return __uint_as_float(x); }
DEVICE int u_dot4_i8(unsigned a, unsigned b) { return __dp4a((int)a, (int)b, 0); }
DEVICE unsigned u_dot4_u8(unsigned a, unsigned b) { return __dp4a(a, b, 0u); }
DEVICE float f_add(float a, float b) { return __fadd_rn(a, b); }
DEVICE float f_sub(float a, float b) { return __fsub_rn(a, b); }
DEVICE float f_mul(float a, float b) { return __fmul_rn(a, b); }
DEVICE float f_div(float a, float b) { return __fdiv_rn(a, b); }

#else

// What runs invocations in turn says which one it is, and goes on with the next at a barrier.
struct Invocation { Vec3<unsigned> group, groups, local; };
extern "C" Invocation* host_invocation();
extern "C" void host_barrier();
DEVICE Vec3<unsigned> group_id() { return host_invocation()->group; }
DEVICE Vec3<unsigned> local_id() { return host_invocation()->local; }
DEVICE Vec3<unsigned> group_count(unsigned, unsigned, unsigned) { return host_invocation()->groups; }
DEVICE void barrier() { host_barrier(); }
template <class T> DEVICE T atomic_load(const T* p) { return *p; }
template <class T> DEVICE void atomic_store(T* p, T v) { *p = v; }
#define ATOMIC(name, value) \
    template <class T> DEVICE T name(T* p, T v) { T old = *p; *p = value; return old; }
ATOMIC(atomic_add, (T)((unsigned)old + (unsigned)v))
ATOMIC(atomic_and, old & v)
ATOMIC(atomic_or, old | v)
ATOMIC(atomic_min, old < v ? old : v)
ATOMIC(atomic_max, old < v ? v : old)
#undef ATOMIC
DEVICE unsigned f_as_u(float x) { unsigned y; __builtin_memcpy(&y, &x, 4); return y; }
DEVICE float u_as_f(unsigned x) { float y; __builtin_memcpy(&y, &x, 4); return y; }
DEVICE int u_dot4_i8(unsigned a, unsigned b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (signed char)(a >> i) * (signed char)(b >> i);
    return sum;
}
DEVICE unsigned u_dot4_u8(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (int i = 0; i < 32; i += 8) sum += (a >> i & 255u) * (b >> i & 255u);
    return sum;
}
DEVICE float f_add(float a, float b) { return a + b; }
DEVICE float f_sub(float a, float b) { return a - b; }
DEVICE float f_mul(float a, float b) { return a * b; }
DEVICE float f_div(float a, float b) { return a / b; }

#endif

DEVICE unsigned local_index(unsigned x, unsigned y) {
    const Vec3<unsigned> at = local_id();
    return (at.z * y + at.y) * x + at.x;
}
DEVICE Vec3<unsigned> global_id(unsigned x, unsigned y, unsigned z) {
    const Vec3<unsigned> group = group_id(), at = local_id();
    return {group.x * x + at.x, group.y * y + at.y, group.z * z + at.z};
}

DEVICE float f_neg(float x) { return u_as_f(f_as_u(x) ^ 0x80000000u); }
DEVICE float f_abs(float x) { return u_as_f(f_as_u(x) & 0x7fffffffu); }
DEVICE float f_floor(float x) { return __builtin_floorf(x); }
DEVICE float f_ceil(float x) { return __builtin_ceilf(x); }
DEVICE float f_trunc(float x) { return __builtin_truncf(x); }

DEVICE int f_as_i(float x) { return (int)f_as_u(x); }
DEVICE float i_as_f(int x) { return u_as_f((unsigned)x); }
DEVICE int u_as_i(unsigned x) { return (int)x; }
DEVICE unsigned i_as_u(int x) { return (unsigned)x; }
DEVICE int u_to_i(unsigned x) { return (int)x; }
DEVICE unsigned i_to_u(int x) { return (unsigned)x; }
DEVICE float i_to_f(int x) { return (float)x; }
DEVICE float u_to_f(unsigned x) { return (float)x; }
// Towards zero, and to the nearest there is where there is none.
DEVICE int f_to_i(float x) {
    return x < 2147483648.0f ? (x >= -2147483648.0f ? (int)x : -2147483647 - 1) : 2147483647;
}
DEVICE unsigned f_to_u(float x) { return x < 4294967296.0f ? (x > 0.0f ? (unsigned)x : 0u) : 0xffffffffu; }
DEVICE int b_to_i(bool x) { return x ? 1 : 0; }
DEVICE unsigned b_to_u(bool x) { return x ? 1u : 0u; }
DEVICE float b_to_f(bool x) { return x ? 1.0f : 0.0f; }
DEVICE bool i_to_b(int x) { return x != 0; }
DEVICE bool u_to_b(unsigned x) { return x != 0u; }
DEVICE bool f_to_b(float x) { return x != 0.0f; }

DEVICE unsigned u_add(unsigned a, unsigned b) { return a + b; }
DEVICE unsigned u_sub(unsigned a, unsigned b) { return a - b; }
DEVICE unsigned u_mul(unsigned a, unsigned b) { return a * b; }
DEVICE unsigned u_div(unsigned a, unsigned b) { return a / b; }
DEVICE unsigned u_rem(unsigned a, unsigned b) { return a % b; }
DEVICE unsigned u_shl(unsigned a, unsigned n) { return a << (n & 31u); }
DEVICE unsigned u_shr(unsigned a, unsigned n) { return a >> (n & 31u); }
DEVICE unsigned u_min(unsigned a, unsigned b) { return a < b ? a : b; }
DEVICE unsigned u_max(unsigned a, unsigned b) { return a < b ? b : a; }
DEVICE unsigned u_clamp(unsigned x, unsigned low, unsigned high) { return u_min(u_max(x, low), high); }
DEVICE int i_neg(int x) { return (int)(0u - (unsigned)x); }
DEVICE int i_abs(int x) { return x < 0 ? i_neg(x) : x; }
DEVICE int i_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
DEVICE int i_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
DEVICE int i_mul(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
DEVICE int i_div(int a, int b) { return b == -1 ? i_neg(a) : a / b; }
DEVICE int i_rem(int a, int b) { return b == -1 ? 0 : a % b; }
DEVICE int i_shl(int a, unsigned n) { return (int)((unsigned)a << (n & 31u)); }
DEVICE int i_shr(int a, unsigned n) { return a >> (n & 31u); }
DEVICE int i_min(int a, int b) { return a < b ? a : b; }
DEVICE int i_max(int a, int b) { return a < b ? b : a; }
DEVICE int i_clamp(int x, int low, int high) { return i_min(i_max(x, low), high); }

// `count` bits from bit `at` on, within 32.
DEVICE unsigned u_extract_bits(unsigned x, unsigned at, unsigned count) {
    const unsigned from = u_min(at, 32u), n = u_min(count, 32u - from);
    return n == 0u ? 0u : x << (32u - n - from) >> (32u - n);
}
DEVICE int i_extract_bits(int x, unsigned at, unsigned count) {
    const unsigned from = u_min(at, 32u), n = u_min(count, 32u - from);
    return n == 0u ? 0 : (int)((unsigned)x << (32u - n - from)) >> (32u - n);
}
DEVICE unsigned u_insert_bits(unsigned x, unsigned bits, unsigned at, unsigned count) {
    const unsigned from = u_min(at, 32u), n = u_min(count, 32u - from);
    const unsigned mask = n == 0u ? 0u : 0xffffffffu >> (32u - n) << from;
    return (x & ~mask) | (n == 0u ? 0u : bits << from & mask);
}
#if defined(__CUDACC__) && !defined(__HIP__)
DEVICE unsigned u_count_one_bits(unsigned x) { return (unsigned)__popc(x); }
DEVICE unsigned u_count_leading_zeros(unsigned x) { return (unsigned)__clz((int)x); }
DEVICE unsigned u_count_trailing_zeros(unsigned x) { return x == 0u ? 32u : (unsigned)__ffs((int)x) - 1u; }
#else
DEVICE unsigned u_count_one_bits(unsigned x) { return (unsigned)__builtin_popcount(x); }
DEVICE unsigned u_count_leading_zeros(unsigned x) { return x == 0u ? 32u : (unsigned)__builtin_clz(x); }
DEVICE unsigned u_count_trailing_zeros(unsigned x) { return x == 0u ? 32u : (unsigned)__builtin_ctz(x); }
#endif

// What calls a kernel on the host with an array of places of its arguments, as drivers are given them.
#if defined(__HIP__) || defined(__CUDACC__)
#define HOST_ENTRY(name, ...)
#else
#define HOST_ENTRY(name, ...) \
    extern "C" void host_##name(void** a) { name(__VA_ARGS__); }
#endif

// A kernel that is made, or what it is made of, for one that is written by hand.
#if defined(PARTS_ONLY)
#define KERNEL(threads) template <class Never> DEVICE void
#define ON_HOST(name, ...)
#else
#define KERNEL(threads) ENTRY(threads)
#define ON_HOST(name, ...) HOST_ENTRY(name, __VA_ARGS__)
#endif
