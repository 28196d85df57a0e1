#pragma METAL fp contract(off)
// language: metal2.4
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size2;
    uint size3;
    uint size4;
    uint size5;
};

typedef metal::atomic_uint type_2[1];
struct P {
    uint op;
    uint zero;
    uint rows;
    uint cols;
    uint stride;
    uint kind;
    uint heads_at;
    uint subs_at;
    uint unit_log;
    uint sub_log;
    uint mins;
    uint vocab;
    uint slab_at;
    uint begin;
    uint end;
    uint opens;
    uint closes;
    uint out_at;
    float by;
    uint rounds;
};
typedef float type_8[1];
typedef uint type_9[1];
struct type_10 {
    float inner[1024];
};
struct type_12 {
    float inner[4];
};
struct type_13 {
    type_12 inner[4];
};
constant uint LANES = 16u;
constant uint INFINITY_BITS = 2139095040u;
constant uint MAGNITUDE = 2147483647u;
constant uint GROUP = 64u;
constant uint STEP = 16u;
constant uint BYTES = 16u;

float flush(
    float x
) {
    return ((as_type<uint>(x) & MAGNITUDE) < 645922816u) ? 0.0 : x;
}

bool is_finite(
    float x_1
) {
    return (as_type<uint>(x_1) & INFINITY_BITS) != INFINITY_BITS;
}

bool is_nan(
    float x_2
) {
    return (as_type<uint>(x_2) & MAGNITUDE) > INFINITY_BITS;
}

float infinity(
    constant P& p
) {
    uint _e3 = p.zero;
    return as_type<float>(INFINITY_BITS | _e3);
}

float nan(
    constant P& p
) {
    uint _e3 = p.zero;
    return as_type<float>(2143289344u | _e3);
}

void note(
    uint i_5,
    float x_3,
    device type_2& status,
    constant P& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool _e2 = is_finite(x_3);
    if (!(_e2)) {
        uint _e7 = p.op;
        bool _e13 = is_nan(x_3);
        uint _e16 = metal::atomic_fetch_min_explicit(&status[_e7], (2u * i_5) + (_e13 ? 1u : 0u), metal::memory_order_relaxed);
        return;
    } else {
        return;
    }
}

float larger(
    float a_1,
    float b_2
) {
    return (a_1 < b_2) ? b_2 : a_1;
}

float o(
    float x_4
) {
    return x_4;
}

int naga_f2i32(float value) {
    return static_cast<int>(metal::clamp(value, -2147483600.0, 2147483500.0));
}

float exponential(
    float x_5,
    constant P& p
) {
    float t = {};
    float y = {};
    float low_1 = as_type<float>(3255476514u);
    float high_1 = as_type<float>(1118925335u);
    t = (x_5 < high_1) ? x_5 : high_1;
    float _e8 = t;
    float _e9 = t;
    t = (low_1 < _e9) ? _e8 : low_1;
    float _e12 = t;
    float _e16 = o(_e12 * as_type<float>(1069066811u));
    float n = metal::floor(_e16 + 0.5);
    float _e20 = t;
    float _e24 = o(n * as_type<float>(1060208640u));
    float _e26 = o(_e20 - _e24);
    float _e30 = o(n * as_type<float>(3109978243u));
    float r_1 = _e26 - _e30;
    y = as_type<float>(961571175u);
    float _e35 = y;
    float _e37 = o(_e35 * r_1);
    y = _e37 + as_type<float>(985088974u);
    float _e41 = y;
    float _e43 = o(_e41 * r_1);
    y = _e43 + as_type<float>(1007192328u);
    float _e47 = y;
    float _e49 = o(_e47 * r_1);
    y = _e49 + as_type<float>(1026206145u);
    float _e53 = y;
    float _e55 = o(_e53 * r_1);
    y = _e55 + as_type<float>(1042983594u);
    float _e59 = y;
    float _e61 = o(_e59 * r_1);
    y = _e61 + 0.5;
    float _e64 = y;
    float _e66 = o(r_1 * r_1);
    float _e68 = o(_e64 * _e66);
    float _e70 = o(r_1 + _e68);
    float q = _e70 + 1.0;
    y = as_type<float>(as_type<uint>(q) + (as_type<uint>(naga_f2i32(n)) << 23u));
    float _e80 = y;
    y = (x_5 < low_1) ? 0.0 : _e80;
    float _e84 = y;
    float _e85 = infinity(p);
    y = (high_1 < x_5) ? _e85 : _e84;
    float _e88 = y;
    bool _e89 = is_nan(x_5);
    return _e89 ? x_5 : _e88;
}

float logarithm(
    float x_6,
    constant P& p
) {
    float y_1 = {};
    bool local_4 = {};
    int t_1 = as_type<int>(as_type<uint>(as_type<int>(x_6)) + as_type<uint>(4913933));
    float e = static_cast<float>(as_type<int>(as_type<uint>(t_1 >> 23u) - as_type<uint>(127)));
    float f = as_type<float>(as_type<int>(as_type<uint>(t_1 & 8388607) + as_type<uint>(1060439283))) - 1.0;
    float _e17 = o(f * f);
    y_1 = as_type<float>(1032855995u);
    float _e21 = y_1;
    float _e23 = o(_e21 * f);
    y_1 = _e23 + as_type<float>(3186348472u);
    float _e27 = y_1;
    float _e29 = o(_e27 * f);
    y_1 = _e29 + as_type<float>(1039082778u);
    float _e33 = y_1;
    float _e35 = o(_e33 * f);
    y_1 = _e35 + as_type<float>(3187563855u);
    float _e39 = y_1;
    float _e41 = o(_e39 * f);
    y_1 = _e41 + as_type<float>(1041361343u);
    float _e45 = y_1;
    float _e47 = o(_e45 * f);
    y_1 = _e47 + as_type<float>(3190468176u);
    float _e51 = y_1;
    float _e53 = o(_e51 * f);
    y_1 = _e53 + as_type<float>(1045221036u);
    float _e57 = y_1;
    float _e59 = o(_e57 * f);
    y_1 = _e59 + as_type<float>(3196059644u);
    float _e63 = y_1;
    float _e65 = o(_e63 * f);
    y_1 = _e65 + as_type<float>(1051372202u);
    float _e69 = y_1;
    float _e71 = o(f * _e17);
    float _e73 = o(_e69 * _e71);
    y_1 = _e73;
    float _e74 = y_1;
    float _e78 = o(e * as_type<float>(3109978243u));
    float _e80 = o(_e74 + _e78);
    float _e83 = o(_e17 * 0.5);
    y_1 = _e80 - _e83;
    float _e85 = y_1;
    float _e86 = o(_e85);
    float _e88 = o(f + _e86);
    float _e92 = o(e * as_type<float>(1060208640u));
    y_1 = _e88 + _e92;
    int bits_1 = as_type<int>(x_6);
    float _e95 = y_1;
    float _e96 = nan(p);
    if (!((bits_1 < 8388608))) {
        bool _e102 = is_nan(x_6);
        local_4 = _e102;
    } else {
        local_4 = true;
    }
    bool _e104 = local_4;
    y_1 = _e104 ? _e96 : _e95;
    float _e106 = y_1;
    return (bits_1 == 2139095040) ? x_6 : _e106;
}

float reciprocal(
    float x_7
) {
    float y_2 = {};
    y_2 = as_type<float>(2129859015u - as_type<uint>(x_7));
    float _e6 = y_2;
    float _e7 = y_2;
    float _e9 = o(x_7 * _e7);
    float _e12 = o(2.0 - _e9);
    float _e14 = o(_e6 * _e12);
    y_2 = _e14;
    float _e15 = y_2;
    float _e16 = y_2;
    float _e18 = o(x_7 * _e16);
    float _e21 = o(2.0 - _e18);
    float _e23 = o(_e15 * _e21);
    y_2 = _e23;
    float _e24 = y_2;
    float _e25 = y_2;
    float _e27 = o(x_7 * _e25);
    float _e30 = o(2.0 - _e27);
    float _e32 = o(_e24 * _e30);
    y_2 = _e32;
    float _e33 = y_2;
    float _e34 = y_2;
    float _e35 = y_2;
    float _e37 = o(x_7 * _e35);
    float _e40 = o(1.0 - _e37);
    float _e42 = o(_e34 * _e40);
    return _e33 + _e42;
}

float reciprocal_root(
    float x_8
) {
    float y_3 = {};
    float _e3 = o(0.5 * x_8);
    y_3 = as_type<float>(1597463007u - (as_type<uint>(x_8) >> 1u));
    float _e11 = y_3;
    float _e12 = y_3;
    float _e14 = o(_e3 * _e12);
    float _e15 = y_3;
    float _e17 = o(_e14 * _e15);
    float _e20 = o(1.5 - _e17);
    float _e22 = o(_e11 * _e20);
    y_3 = _e22;
    float _e23 = y_3;
    float _e24 = y_3;
    float _e26 = o(_e3 * _e24);
    float _e27 = y_3;
    float _e29 = o(_e26 * _e27);
    float _e32 = o(1.5 - _e29);
    float _e34 = o(_e23 * _e32);
    y_3 = _e34;
    float _e35 = y_3;
    float _e36 = y_3;
    float _e38 = o(_e3 * _e36);
    float _e39 = y_3;
    float _e41 = o(_e38 * _e39);
    float _e44 = o(1.5 - _e41);
    float _e46 = o(_e35 * _e44);
    y_3 = _e46;
    float _e47 = y_3;
    float _e48 = y_3;
    float _e49 = y_3;
    float _e51 = o(_e3 * _e49);
    float _e52 = y_3;
    float _e54 = o(_e51 * _e52);
    float _e57 = o(0.5 - _e54);
    float _e59 = o(_e48 * _e57);
    return _e47 + _e59;
}

float hyperbolic_tangent(
    float raw,
    constant P& p
) {
    float y_4 = {};
    float _e1 = flush(raw);
    uint sign = as_type<uint>(_e1) & 2147483648u;
    float a_2 = as_type<float>(as_type<uint>(_e1) & MAGNITUDE);
    float _e10 = o(_e1 * _e1);
    y_4 = as_type<float>(3149590762u);
    float _e14 = y_4;
    float _e16 = o(_e14 * _e10);
    y_4 = _e16 + as_type<float>(1017713486u);
    float _e20 = y_4;
    float _e22 = o(_e20 * _e10);
    y_4 = _e22 + as_type<float>(3176930861u);
    float _e26 = y_4;
    float _e28 = o(_e26 * _e10);
    y_4 = _e28 + as_type<float>(1040745363u);
    float _e32 = y_4;
    float _e34 = o(_e32 * _e10);
    y_4 = _e34 + as_type<float>(3198855833u);
    float _e38 = y_4;
    float _e40 = o(_e10 * _e38);
    float _e42 = o(_e1 * _e40);
    float small = _e1 + _e42;
    float c = (10.0 < a_2) ? 10.0 : a_2;
    float _e49 = o(c + c);
    float _e50 = exponential(_e49, p);
    float _e53 = reciprocal(_e50 + 1.0);
    float _e55 = o(_e53 + _e53);
    float large = as_type<float>(as_type<uint>(1.0 - _e55) | sign);
    return (a_2 < 0.625) ? small : large;
}

float sigmoid(
    float x_9,
    constant P& p
) {
    float _e5 = exponential(as_type<float>(as_type<uint>(x_9) | 2147483648u), p);
    float _e8 = reciprocal(1.0 + _e5);
    float _e10 = o(_e5 * _e8);
    return (x_9 < 0.0) ? _e10 : _e8;
}

float silu(
    float raw_1,
    constant P& p
) {
    float _e1 = flush(raw_1);
    float _e2 = sigmoid(_e1, p);
    float _e4 = flush(_e1 * _e2);
    return _e4;
}

float gelu(
    float raw_2,
    constant P& p
) {
    float _e1 = flush(raw_2);
    float _e7 = o(_e1 * _e1);
    float _e9 = o(as_type<float>(1032987257u) * _e7);
    float _e12 = o(_e1 * (as_type<float>(1070350890u) + _e9));
    float _e13 = sigmoid(_e12, p);
    float _e15 = flush(_e1 * _e13);
    return _e15;
}

float activation(
    uint act,
    float x_10,
    constant P& p
) {
    if (act == 0u) {
        float _e4 = gelu(x_10, p);
        return _e4;
    }
    float _e5 = silu(x_10, p);
    return _e5;
}

float from_f16_(
    uint h
) {
    uint bits = {};
    uint sign_1 = (h & 32768u) << 16u;
    uint magnitude = h & 32767u;
    bits = (magnitude << 13u) + 939524096u;
    if (magnitude >= 31744u) {
        uint _e14 = bits;
        bits = _e14 + 939524096u;
    }
    if (magnitude < 1024u) {
        bits = as_type<uint>(static_cast<float>(magnitude) * as_type<float>(864026624u));
    }
    uint _e24 = bits;
    return as_type<float>(_e24 | sign_1);
}

uint to_f16_(
    float x_11
) {
    uint bits_2 = as_type<uint>(x_11);
    uint sign_2 = (bits_2 >> 16u) & 32768u;
    uint magnitude_1 = bits_2 & MAGNITUDE;
    uint exponent = magnitude_1 >> 23u;
    if (exponent >= 113u) {
        uint m = magnitude_1 - 939524096u;
        return sign_2 | (((m + 4095u) + ((m >> 13u) & 1u)) >> 13u);
    }
    if (exponent < 102u) {
        return sign_2;
    }
    uint m_1 = (magnitude_1 & 8388607u) | 8388608u;
    uint shift = 126u - exponent;
    return sign_2 | ((((m_1 + (1u << (shift - 1u))) - 1u) + ((m_1 >> shift) & 1u)) >> shift);
}

float clamp_f16_(
    float x_12
) {
    float y_5 = (65504.0 < x_12) ? 65504.0 : x_12;
    return (y_5 < -65504.0) ? -65504.0 : y_5;
}

float round_bf16_(
    float x_13
) {
    uint bits_3 = as_type<uint>(x_13);
    float rounded = as_type<float>(((bits_3 + 32767u) + ((bits_3 >> 16u) & 1u)) & 4294901760u);
    bool _e12 = is_finite(x_13);
    return _e12 ? rounded : x_13;
}

float round_f16_(
    float x_14
) {
    bool _e1 = is_finite(x_14);
    if (!(_e1)) {
        return x_14;
    }
    float _e3 = clamp_f16_(x_14);
    uint _e4 = to_f16_(_e3);
    float _e5 = from_f16_(_e4);
    return _e5;
}

metal::float2 code_scale(
    float peak,
    constant P& p
) {
    bool local_5 = {};
    float _e4 = flush(peak * as_type<float>(1006699012u));
    bool _e5 = is_nan(_e4);
    if (!(_e5)) {
        local_5 = as_type<float>(1904214016u) < _e4;
    } else {
        local_5 = true;
    }
    bool _e13 = local_5;
    if (_e13) {
        float _e14 = infinity(p);
        return metal::float2(_e14, 0.0);
    }
    if (_e4 == 0.0) {
        return metal::float2(0.0, 0.0);
    }
    float _e22 = reciprocal(_e4);
    return metal::float2(_e4, _e22);
}

int code_of(
    float x_15,
    float inverse
) {
    float _e3 = o(x_15 * inverse);
    return as_type<int>(as_type<uint>(as_type<int>(_e3 + 12582912.0)) - as_type<uint>(1262485504));
}

uint linear(
    metal::uint3 group_1,
    metal::uint3 groups,
    uint at_1
) {
    return (((((group_1.z * groups.y) + group_1.y) * groups.x) + group_1.x) * 256u) + at_1;
}

uint naga_div(uint lhs, uint rhs) {
    return lhs / metal::select(rhs, 1u, rhs == 0u);
}

uint below(
    uint list,
    uint count,
    uint id,
    device type_9 const& ids,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint low = 0u;
    uint high = {};
    high = count;
    while(true) {
        uint _e6 = low;
        uint _e7 = high;
        if (_e6 < _e7) {
        } else {
            break;
        }
        {
            uint _e9 = low;
            uint _e10 = high;
            uint middle = naga_div(_e9 + _e10, 2u);
            uint _e17 = ids[list + middle];
            if (_e17 < id) {
                low = middle + 1u;
            } else {
                high = middle;
            }
        }
    }
    uint _e21 = low;
    return _e21;
}

metal::float2 head(
    uint row,
    uint unit,
    constant P& p,
    device type_9 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.stride;
    uint _e8 = p.heads_at;
    uint _e13 = p.mins;
    uint at_2 = ((row * _e4) + _e8) + (unit * (1u + _e13));
    uint _e19 = p.mins;
    if (_e19 == 0u) {
        uint _e24 = w[at_2];
        return metal::float2(as_type<float>(_e24), 0.0);
    }
    uint _e30 = w[at_2];
    uint _e36 = w[at_2 + 1u];
    return metal::float2(as_type<float>(_e30), as_type<float>(_e36));
}

metal::int2 run(
    uint row_1,
    uint sub,
    constant P& p,
    device type_9 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.stride;
    uint _e9 = p.subs_at;
    uint _e15 = w[((row_1 * _e5) + _e9) + naga_div(sub, 2u)];
    int pair = static_cast<int>(_e15 >> (16u * (sub & 1u)));
    return metal::int2(metal::extract_bits(pair, metal::min(0u, 32u), metal::min(8u, 32u - metal::min(0u, 32u))), (pair >> 8u) & 255);
}

int code(
    uint row_2,
    uint k_1,
    constant P& p,
    device type_9 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.stride;
    uint base = row_2 * _e4;
    uint _e8 = p.kind;
    if (_e8 == BYTES) {
        uint _e16 = w[base + naga_div(k_1, 4u)];
        uint _e21 = 8u * (k_1 & 3u);
        return metal::extract_bits(static_cast<int>(_e16), metal::min(_e21, 32u), metal::min(8u, 32u - metal::min(_e21, 32u)));
    }
    uint at_3 = (8u * (k_1 & 3u)) + (k_1 & 4u);
    uint _e36 = w[base + naga_div(k_1, 8u)];
    uint _e42 = p.kind;
    return as_type<int>(as_type<uint>(static_cast<int>(metal::extract_bits(_e36, metal::min(at_3, 32u), metal::min(4u, 32u - metal::min(at_3, 32u))))) - as_type<uint>(static_cast<int>(_e42)));
}

float weight(
    uint row_3,
    uint k_2,
    constant P& p,
    device type_9 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.unit_log;
    metal::float2 _e6 = head(row_3, k_2 >> _e4, p, w, _buffer_sizes);
    uint _e9 = p.sub_log;
    metal::int2 _e11 = run(row_3, k_2 >> _e9, p, w, _buffer_sizes);
    float _e16 = o(_e6.x * static_cast<float>(_e11.x));
    int _e17 = code(row_3, k_2, p, w, _buffer_sizes);
    float _e20 = o(_e16 * static_cast<float>(_e17));
    uint _e23 = p.mins;
    if (_e23 == 0u) {
        float _e26 = flush(_e20);
        return _e26;
    }
    float _e31 = o(_e6.y * static_cast<float>(_e11.y));
    float _e33 = flush(_e20 - _e31);
    return _e33;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint at [[thread_index_in_threadgroup]]
, device type_2& status [[buffer(1)]]
, constant P& p [[buffer(0)]]
, device type_8 const& probabilities [[buffer(2)]]
, device type_9 const& ids [[buffer(3)]]
, device type_9 const& w [[buffer(4)]]
, device type_8& out [[buffer(5)]]
, threadgroup type_10& xs
, threadgroup type_10& ws
, constant _mslBufferSizes& _buffer_sizes [[user(fake0)]]
) {
    type_13 acc = {};
    uint i = 0u;
    uint j = {};
    bool local = {};
    uint k0_ = {};
    uint i_1 = {};
    float a = {};
    bool local_1 = {};
    uint i_2 = {};
    float b = {};
    bool local_2 = {};
    uint k = {};
    type_12 b_1 = {};
    uint j_1 = {};
    uint i_3 = {};
    uint j_2 = {};
    uint i_4 = 0u;
    uint j_3 = {};
    bool local_3 = {};
    float r = {};
    uint _e5 = p.vocab;
    uint list_1 = (group.y * (_e5 + 1u)) + 1u;
    uint count_1 = ids[list_1 - 1u];
    uint _e18 = p.begin;
    uint _e19 = below(list_1, count_1, _e18, ids, _buffer_sizes);
    uint _e22 = p.end;
    uint _e23 = below(list_1, count_1, _e22, ids, _buffer_sizes);
    uint row0_ = group.y * GROUP;
    uint col0_ = group.x * GROUP;
    uint tx = at & 15u;
    uint ty = at >> 4u;
    uint _e37 = p.opens;
    if (_e37 == 0u) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e92 = i;
                i = _e92 + 1u;
            }
            loop_init = false;
            uint _e42 = i;
            if (_e42 < 4u) {
            } else {
                break;
            }
            {
                j = 0u;
                bool loop_init_1 = true;
                while(true) {
                    if (!loop_init_1) {
                        uint _e89 = j;
                        j = _e89 + 1u;
                    }
                    loop_init_1 = false;
                    uint _e47 = j;
                    if (_e47 < 4u) {
                    } else {
                        break;
                    }
                    {
                        uint _e53 = i;
                        uint row_4 = (row0_ + (ty * 4u)) + _e53;
                        uint _e58 = j;
                        uint col = (col0_ + (tx * 4u)) + _e58;
                        uint _e62 = p.rows;
                        if (row_4 < _e62) {
                            uint _e68 = p.cols;
                            local = col < _e68;
                        } else {
                            local = false;
                        }
                        bool _e71 = local;
                        if (_e71) {
                            uint _e72 = i;
                            uint _e74 = j;
                            uint _e79 = p.out_at;
                            uint _e82 = p.cols;
                            float _e87 = out[(_e79 + (row_4 * _e82)) + col];
                            acc.inner[_e72].inner[_e74] = _e87;
                        }
                    }
                }
            }
        }
    }
    k0_ = _e19;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e279 = k0_;
            k0_ = _e279 + STEP;
        }
        loop_init_2 = false;
        uint _e95 = k0_;
        if (_e95 < _e23) {
        } else {
            break;
        }
        {
            i_1 = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e146 = i_1;
                    i_1 = _e146 + 1u;
                }
                loop_init_3 = false;
                uint _e99 = i_1;
                if (_e99 < 4u) {
                } else {
                    break;
                }
                {
                    uint k_3 = at & 15u;
                    uint _e107 = i_1;
                    uint m_2 = (at >> 4u) + (16u * _e107);
                    a = 0.0;
                    uint _e112 = k0_;
                    if ((_e112 + k_3) < _e23) {
                        uint _e120 = p.rows;
                        local_1 = (row0_ + m_2) < _e120;
                    } else {
                        local_1 = false;
                    }
                    bool _e123 = local_1;
                    if (_e123) {
                        uint _e128 = p.vocab;
                        uint _e131 = k0_;
                        uint _e135 = ids[(list_1 + _e131) + k_3];
                        float _e138 = probabilities[((row0_ + m_2) * _e128) + _e135];
                        a = _e138;
                    }
                    float _e144 = a;
                    xs.inner[(k_3 * GROUP) + m_2] = _e144;
                }
            }
            i_2 = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e201 = i_2;
                    i_2 = _e201 + 1u;
                }
                loop_init_4 = false;
                uint _e150 = i_2;
                if (_e150 < 4u) {
                } else {
                    break;
                }
                {
                    uint n_1 = at & 63u;
                    uint _e158 = i_2;
                    uint k_4 = (at >> 6u) + (4u * _e158);
                    b = 0.0;
                    uint _e163 = k0_;
                    if ((_e163 + k_4) < _e23) {
                        uint _e171 = p.cols;
                        local_2 = (col0_ + n_1) < _e171;
                    } else {
                        local_2 = false;
                    }
                    bool _e174 = local_2;
                    if (_e174) {
                        uint _e176 = k0_;
                        uint _e180 = ids[(list_1 + _e176) + k_4];
                        uint _e183 = p.slab_at;
                        float _e186 = weight(_e180 - _e183, col0_ + n_1, p, w, _buffer_sizes);
                        b = _e186;
                        uint _e189 = p.rounds;
                        if (_e189 != 0u) {
                            float _e192 = b;
                            float _e193 = round_bf16_(_e192);
                            b = _e193;
                        }
                    }
                    float _e199 = b;
                    ws.inner[(k_4 * GROUP) + n_1] = _e199;
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            k = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e277 = k;
                    k = _e277 + 1u;
                }
                loop_init_5 = false;
                uint _e205 = k;
                uint _e207 = k0_;
                if (_e205 < metal::min(STEP, _e23 - _e207)) {
                } else {
                    break;
                }
                {
                    b_1 = type_12 {};
                    j_1 = 0u;
                    bool loop_init_6 = true;
                    while(true) {
                        if (!loop_init_6) {
                            uint _e232 = j_1;
                            j_1 = _e232 + 1u;
                        }
                        loop_init_6 = false;
                        uint _e215 = j_1;
                        if (_e215 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e218 = j_1;
                            uint _e221 = k;
                            uint _e227 = j_1;
                            float _e230 = ws.inner[((_e221 * GROUP) + (tx * 4u)) + _e227];
                            b_1.inner[_e218] = _e230;
                        }
                    }
                    i_3 = 0u;
                    bool loop_init_7 = true;
                    while(true) {
                        if (!loop_init_7) {
                            uint _e274 = i_3;
                            i_3 = _e274 + 1u;
                        }
                        loop_init_7 = false;
                        uint _e236 = i_3;
                        if (_e236 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e240 = k;
                            uint _e246 = i_3;
                            float a_3 = xs.inner[((_e240 * GROUP) + (ty * 4u)) + _e246];
                            j_2 = 0u;
                            bool loop_init_8 = true;
                            while(true) {
                                if (!loop_init_8) {
                                    uint _e271 = j_2;
                                    j_2 = _e271 + 1u;
                                }
                                loop_init_8 = false;
                                uint _e252 = j_2;
                                if (_e252 < 4u) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e255 = i_3;
                                    uint _e257 = j_2;
                                    uint _e259 = i_3;
                                    uint _e261 = j_2;
                                    float _e263 = acc.inner[_e259].inner[_e261];
                                    uint _e264 = j_2;
                                    float _e266 = b_1.inner[_e264];
                                    float _e268 = o(a_3 * _e266);
                                    acc.inner[_e255].inner[_e257] = _e263 + _e268;
                                }
                            }
                        }
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        }
    }
    bool loop_init_9 = true;
    while(true) {
        if (!loop_init_9) {
            uint _e353 = i_4;
            i_4 = _e353 + 1u;
        }
        loop_init_9 = false;
        uint _e284 = i_4;
        if (_e284 < 4u) {
        } else {
            break;
        }
        {
            j_3 = 0u;
            bool loop_init_10 = true;
            while(true) {
                if (!loop_init_10) {
                    uint _e350 = j_3;
                    j_3 = _e350 + 1u;
                }
                loop_init_10 = false;
                uint _e289 = j_3;
                if (_e289 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e295 = i_4;
                    uint row_5 = (row0_ + (ty * 4u)) + _e295;
                    uint _e300 = j_3;
                    uint col_1 = (col0_ + (tx * 4u)) + _e300;
                    uint _e304 = p.rows;
                    if (row_5 < _e304) {
                        uint _e310 = p.cols;
                        local_3 = col_1 < _e310;
                    } else {
                        local_3 = false;
                    }
                    bool _e313 = local_3;
                    if (_e313) {
                        uint _e314 = i_4;
                        uint _e316 = j_3;
                        float _e318 = acc.inner[_e314].inner[_e316];
                        r = _e318;
                        uint _e322 = p.closes;
                        if (_e322 != 0u) {
                            float _e325 = r;
                            float _e328 = p.by;
                            float _e330 = flush(_e325 * _e328);
                            r = _e330;
                            uint _e333 = p.cols;
                            float _e336 = r;
                            note((row_5 * _e333) + col_1, _e336, status, p, _buffer_sizes);
                        }
                        uint _e340 = p.out_at;
                        uint _e343 = p.cols;
                        float _e348 = r;
                        out[(_e340 + (row_5 * _e343)) + col_1] = _e348;
                    }
                }
            }
        }
    }
    return;
}
