// `matmul_int8` with the instructions of matrices that devices from compute capability 8.0 on have for integers. Their sums are
// exact, so that the bits are those of the text, from which everything else is taken.
//
// Eight warps make 64 x 64 products, each 16 x 32: four pieces of 16 x 8, of which an invocation has rows g and g + 8 and
// columns 2 t and 2 t + 1, where its place in the warp is 4 g + t.
#define PARTS_ONLY
#include "matmul_int8.cu"

namespace {

constexpr unsigned TILE = 64, RUN = 16, PIECES = 4;
// Runs of a step, words of its codes, and words from one row of them to the next: no two of a warp meet in a bank.
constexpr unsigned RUNS = 4, WORDS = 16, ROW = 20;

}  // namespace

WORKGROUP Array<unsigned, TILE * ROW> codes_of_x;
WORKGROUP Array<unsigned, TILE * ROW> codes_of_w;
WORKGROUP Array<Vec2<int>, RUNS * TILE> scales_of_w;
WORKGROUP Array<int, RUNS * TILE> sums_of_x;

// Products of a run: of rows g and g + 8 of x with columns of four pieces. `a` and `b` are the codes that the invocation brings:
// four of row g, four of row g + 8, and four of row g of each piece of weights, all from place 4 t on.
#if defined(__CUDACC__)
DEVICE void multiply(Array<Array<int, 4>, PIECES>& c, unsigned a0, unsigned a1, const Array<unsigned, PIECES>& b) {
    UNROLL
    for (unsigned i = 0; i < PIECES; i++) {
        asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
            : "=r"(c.at[i].at[0]), "=r"(c.at[i].at[1]), "=r"(c.at[i].at[2]), "=r"(c.at[i].at[3])
            : "r"(a0), "r"(a1), "r"(b.at[i]), "r"(0));
    }
}
#else
DEVICE void multiply(Array<Array<int, 4>, PIECES>& c, unsigned a0, unsigned a1, const Array<unsigned, PIECES>& b) {
    static unsigned brought[256][2 + PIECES];
    const unsigned at = local_index(256, 1), warp = at & ~31u, lane = at & 31u;
    brought[at][0] = a0;
    brought[at][1] = a1;
    for (unsigned i = 0; i < PIECES; i++) brought[at][2 + i] = b.at[i];
    barrier();
    for (unsigned i = 0; i < PIECES; i++) {
        for (unsigned k = 0; k < 4; k++) {
            const unsigned row = lane / 4, column = 2 * (lane % 4) + k % 2;
            int sum = 0;
            for (unsigned t = 0; t < 4; t++)
                sum += u_dot4_i8(brought[warp + 4 * row + t][k / 2], brought[warp + 4 * column + t][2 + i]);
            c.at[i].at[k] = sum;
        }
    }
    barrier();
}
#endif

ENTRY(256) redraft_matmul_int8(P_ p, unsigned* RESTRICT status, const unsigned* RESTRICT x, const unsigned* RESTRICT w,
                               const float* RESTRICT bias, const unsigned* RESTRICT pairs,
                               const unsigned* RESTRICT starts, float* RESTRICT y) {
    const Vec3<unsigned> group = group_id();
    const unsigned at = local_index(256, 1);
    const Vec2<unsigned> span = rows_of_(p, starts, group);
    // The same for all invocations.
    if (span.x >= span.y) return;
    const unsigned n0 = group.x * TILE;
    const unsigned g = (at & 31u) >> 2, t = at & 3u;
    const unsigned row0 = 16u * (at >> 5 & 3u) + g, column0 = 32u * (at >> 7);
    const unsigned unit_mask = (1u << p.unit_log_) - 1u;
    Array<Array<float, 4>, PIECES> acc = {};
    Array<Array<int, 4>, PIECES> products = {}, minima = {};
    for (unsigned k0 = 0; k0 < p.cols_; k0 += RUN * RUNS) {
        UNROLL
        for (unsigned i = 0; i < 4; i++) {
            const unsigned quad = at & 15u, m = (at >> 4) + 16u * i;
            unsigned a = 0, b = 0;
            if (k0 + 4u * quad < p.cols_) {
                if (span.x + m < span.y) a = x[x_row_(p, pairs, span.x + m) * p.x_stride_ + k0 / 4u + quad];
                if (n0 + m < p.outs_) b = quad_of_(p, w, w_row_(p, group, n0 + m), k0 / 4u + quad);
            }
            codes_of_x.at[m * ROW + quad] = a;
            codes_of_w.at[m * ROW + quad] = b;
        }
        {
            const unsigned m = at & 63u, r = at >> 6, k = k0 + RUN * r;
            Vec2<int> scale = {0, 0};
            if (k < p.cols_ && n0 + m < p.outs_) scale = run_(p, w, w_row_(p, group, n0 + m), k >> p.sub_log_);
            scales_of_w.at[r * TILE + m] = scale;
            if (p.mins_ != 0u) {
                int sum = 0;
                if (k < p.cols_ && span.x + m < span.y)
                    sum = (int)x[x_row_(p, pairs, span.x + m) * p.x_stride_ + p.x_sums_ + k / RUN];
                sums_of_x.at[r * TILE + m] = sum;
            }
        }
        barrier();
        for (unsigned r = 0; r < RUNS && k0 + RUN * r < p.cols_; r++) {
            Array<unsigned, PIECES> b;
            UNROLL
            for (unsigned i = 0; i < PIECES; i++) b.at[i] = codes_of_w.at[(column0 + 8u * i + g) * ROW + 4u * r + t];
            Array<Array<int, 4>, PIECES> c;
            multiply(c, codes_of_x.at[row0 * ROW + 4u * r + t], codes_of_x.at[(row0 + 8u) * ROW + 4u * r + t], b);
            UNROLL
            for (unsigned i = 0; i < PIECES; i++) {
                UNROLL
                for (unsigned k = 0; k < 4; k++) {
                    const Vec2<int> s = scales_of_w.at[r * TILE + column0 + 8u * i + 2u * t + (k & 1u)];
                    products.at[i].at[k] = i_add(products.at[i].at[k], i_mul(s.x, c.at[i].at[k]));
                    if (p.mins_ != 0u) {
                        const int sum = sums_of_x.at[r * TILE + row0 + 8u * (k >> 1)];
                        minima.at[i].at[k] = i_add(minima.at[i].at[k], i_mul(s.y, sum));
                    }
                }
            }
            const unsigned next = k0 + RUN * (r + 1u);
            if ((next & unit_mask) != 0u) continue;
            const unsigned unit = (next - 1u) >> p.unit_log_;
            Array<float, 2> dx = {};
            UNROLL
            for (unsigned half = 0; half < 2; half++) {
                const unsigned row = span.x + row0 + 8u * half;
                if (row < span.y) dx.at[half] = u_as_f(x[x_row_(p, pairs, row) * p.x_stride_ + p.x_scales_ + unit]);
            }
            UNROLL
            for (unsigned i = 0; i < PIECES; i++) {
                UNROLL
                for (unsigned side = 0; side < 2; side++) {
                    const unsigned n = n0 + column0 + 8u * i + 2u * t + side;
                    Vec2<float> h = {0.0f, 0.0f};
                    if (n < p.outs_) h = head_(p, w, w_row_(p, group, n), unit);
                    UNROLL
                    for (unsigned half = 0; half < 2; half++) {
                        float& sum = acc.at[i].at[2u * half + side];
                        int& product = products.at[i].at[2u * half + side];
                        int& minimum = minima.at[i].at[2u * half + side];
                        sum = f_add(sum, f_mul(f_mul(flush_(h.x), dx.at[half]), i_to_f(product)));
                        if (p.mins_ != 0u) sum = f_sub(sum, f_mul(f_mul(flush_(h.y), dx.at[half]), i_to_f(minimum)));
                        product = 0;
                        minimum = 0;
                    }
                }
            }
        }
        barrier();
    }
    UNROLL
    for (unsigned i = 0; i < PIECES; i++) {
        UNROLL
        for (unsigned k = 0; k < 4; k++) {
            const unsigned row = span.x + row0 + 8u * (k >> 1);
            const unsigned n = n0 + column0 + 8u * i + 2u * t + (k & 1u);
            if (row < span.y && n < p.outs_) put_(p, status, bias, pairs, y, row, n, acc.at[i].at[k]);
        }
    }
}

HOST_ENTRY(redraft_matmul_int8, *(P_*)a[0], *(unsigned**)a[1], *(const unsigned**)a[2], *(const unsigned**)a[3],
           *(const float**)a[4], *(const unsigned**)a[5], *(const unsigned**)a[6], *(float**)a[7])
