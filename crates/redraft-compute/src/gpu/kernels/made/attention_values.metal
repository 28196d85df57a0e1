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
    uint row_at;
    uint keys;
    uint heads;
    uint share;
    uint head;
    uint kv_cols;
    float scale;
    uint scaled;
    uint seen_at;
    uint key_first;
    uint key_end;
};
typedef float type_8[1];
struct type_9 {
    float inner[1024];
};
struct type_10 {
    float inner[4];
};
struct type_11 {
    type_10 inner[4];
};
constant uint LANES = 16u;
constant uint INFINITY_BITS = 2139095040u;
constant uint MAGNITUDE = 2147483647u;
constant uint TILE = 64u;
constant uint STEP = 16u;

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
    uint i_4,
    float x_3,
    device type_2& status,
    constant P& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool _e2 = is_finite(x_3);
    if (!(_e2)) {
        uint _e7 = p.op;
        bool _e13 = is_nan(x_3);
        uint _e16 = metal::atomic_fetch_min_explicit(&status[_e7], (2u * i_4) + (_e13 ? 1u : 0u), metal::memory_order_relaxed);
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
    float low = as_type<float>(3255476514u);
    float high = as_type<float>(1118925335u);
    t = (x_5 < high) ? x_5 : high;
    float _e8 = t;
    float _e9 = t;
    t = (low < _e9) ? _e8 : low;
    float _e12 = t;
    float _e16 = o(_e12 * as_type<float>(1069066811u));
    float n = metal::floor(_e16 + 0.5);
    float _e20 = t;
    float _e24 = o(n * as_type<float>(1060208640u));
    float _e26 = o(_e20 - _e24);
    float _e30 = o(n * as_type<float>(3109978243u));
    float r = _e26 - _e30;
    y = as_type<float>(961571175u);
    float _e35 = y;
    float _e37 = o(_e35 * r);
    y = _e37 + as_type<float>(985088974u);
    float _e41 = y;
    float _e43 = o(_e41 * r);
    y = _e43 + as_type<float>(1007192328u);
    float _e47 = y;
    float _e49 = o(_e47 * r);
    y = _e49 + as_type<float>(1026206145u);
    float _e53 = y;
    float _e55 = o(_e53 * r);
    y = _e55 + as_type<float>(1042983594u);
    float _e59 = y;
    float _e61 = o(_e59 * r);
    y = _e61 + 0.5;
    float _e64 = y;
    float _e66 = o(r * r);
    float _e68 = o(_e64 * _e66);
    float _e70 = o(r + _e68);
    float q = _e70 + 1.0;
    y = as_type<float>(as_type<uint>(q) + (as_type<uint>(naga_f2i32(n)) << 23u));
    float _e80 = y;
    y = (x_5 < low) ? 0.0 : _e80;
    float _e84 = y;
    float _e85 = infinity(p);
    y = (high < x_5) ? _e85 : _e84;
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


struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint at [[thread_index_in_threadgroup]]
, device type_2& status [[buffer(1)]]
, constant P& p [[buffer(0)]]
, device type_8 const& weights [[buffer(2)]]
, device type_8 const& v [[buffer(3)]]
, device type_8 const& inverses [[buffer(4)]]
, device type_8& out [[buffer(5)]]
, threadgroup type_9& es
, threadgroup type_9& vs
, constant _mslBufferSizes& _buffer_sizes [[user(fake0)]]
) {
    type_11 acc = {};
    uint i = 0u;
    uint j = {};
    bool local = {};
    uint j0_ = {};
    uint i_1 = {};
    float a = {};
    bool local_1 = {};
    float b = {};
    bool local_2 = {};
    uint jj = {};
    type_10 b_1 = {};
    uint j_1 = {};
    uint i_2 = {};
    uint j_2 = {};
    uint i_3 = 0u;
    uint j_3 = {};
    bool local_3 = {};
    uint h_1 = group.z;
    uint r0_ = group.y * TILE;
    uint c0_ = group.x * TILE;
    uint _e11 = p.share;
    uint kv_head = naga_div(h_1, _e11);
    uint tx = at & 15u;
    uint ty = at >> 4u;
    uint _e20 = p.key_first;
    if (_e20 != 0u) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e80 = i;
                i = _e80 + 1u;
            }
            loop_init = false;
            uint _e25 = i;
            if (_e25 < 4u) {
            } else {
                break;
            }
            {
                j = 0u;
                bool loop_init_1 = true;
                while(true) {
                    if (!loop_init_1) {
                        uint _e77 = j;
                        j = _e77 + 1u;
                    }
                    loop_init_1 = false;
                    uint _e30 = j;
                    if (_e30 < 4u) {
                    } else {
                        break;
                    }
                    {
                        uint _e36 = i;
                        uint row = (r0_ + (ty * 4u)) + _e36;
                        uint _e41 = j;
                        uint c_1 = (c0_ + (tx * 4u)) + _e41;
                        uint _e45 = p.rows;
                        if (row < _e45) {
                            uint _e51 = p.head;
                            local = c_1 < _e51;
                        } else {
                            local = false;
                        }
                        bool _e54 = local;
                        if (_e54) {
                            uint _e55 = i;
                            uint _e57 = j;
                            uint _e62 = p.row_at;
                            uint _e66 = p.heads;
                            uint _e71 = p.head;
                            float _e75 = out[((((_e62 + row) * _e66) + h_1) * _e71) + c_1];
                            acc.inner[_e55].inner[_e57] = _e75;
                        }
                    }
                }
            }
        }
    }
    uint _e84 = p.key_first;
    j0_ = _e84;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e266 = j0_;
            j0_ = _e266 + STEP;
        }
        loop_init_2 = false;
        uint _e86 = j0_;
        uint _e89 = p.key_end;
        if (_e86 < _e89) {
        } else {
            break;
        }
        {
            i_1 = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e191 = i_1;
                    i_1 = _e191 + 1u;
                }
                loop_init_3 = false;
                uint _e93 = i_1;
                if (_e93 < 4u) {
                } else {
                    break;
                }
                {
                    uint jx = at & 15u;
                    uint _e101 = i_1;
                    uint m_2 = (at >> 4u) + (16u * _e101);
                    a = 0.0;
                    uint _e106 = j0_;
                    uint _e110 = p.key_end;
                    if ((_e106 + jx) < _e110) {
                        uint _e117 = p.rows;
                        local_1 = (r0_ + m_2) < _e117;
                    } else {
                        local_1 = false;
                    }
                    bool _e120 = local_1;
                    if (_e120) {
                        uint _e125 = p.heads;
                        uint _e130 = p.keys;
                        uint _e132 = j0_;
                        float _e136 = weights[(((((r0_ + m_2) * _e125) + h_1) * _e130) + _e132) + jx];
                        a = _e136;
                    }
                    float _e142 = a;
                    es.inner[(jx * TILE) + m_2] = _e142;
                    uint c_2 = at & 63u;
                    uint _e148 = i_1;
                    uint jy = (at >> 6u) + (4u * _e148);
                    b = 0.0;
                    uint _e153 = j0_;
                    uint _e157 = p.key_end;
                    if ((_e153 + jy) < _e157) {
                        uint _e164 = p.head;
                        local_2 = (c0_ + c_2) < _e164;
                    } else {
                        local_2 = false;
                    }
                    bool _e167 = local_2;
                    if (_e167) {
                        uint _e169 = j0_;
                        uint _e173 = p.kv_cols;
                        uint _e177 = p.head;
                        float _e183 = v[((((_e169 + jy) * _e173) + (kv_head * _e177)) + c0_) + c_2];
                        b = _e183;
                    }
                    float _e189 = b;
                    vs.inner[(jy * TILE) + c_2] = _e189;
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            jj = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e264 = jj;
                    jj = _e264 + 1u;
                }
                loop_init_4 = false;
                uint _e195 = jj;
                if (_e195 < STEP) {
                } else {
                    break;
                }
                {
                    b_1 = type_10 {};
                    j_1 = 0u;
                    bool loop_init_5 = true;
                    while(true) {
                        if (!loop_init_5) {
                            uint _e219 = j_1;
                            j_1 = _e219 + 1u;
                        }
                        loop_init_5 = false;
                        uint _e202 = j_1;
                        if (_e202 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e205 = j_1;
                            uint _e208 = jj;
                            uint _e214 = j_1;
                            float _e217 = vs.inner[((_e208 * TILE) + (tx * 4u)) + _e214];
                            b_1.inner[_e205] = _e217;
                        }
                    }
                    i_2 = 0u;
                    bool loop_init_6 = true;
                    while(true) {
                        if (!loop_init_6) {
                            uint _e261 = i_2;
                            i_2 = _e261 + 1u;
                        }
                        loop_init_6 = false;
                        uint _e223 = i_2;
                        if (_e223 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e227 = jj;
                            uint _e233 = i_2;
                            float a_3 = es.inner[((_e227 * TILE) + (ty * 4u)) + _e233];
                            j_2 = 0u;
                            bool loop_init_7 = true;
                            while(true) {
                                if (!loop_init_7) {
                                    uint _e258 = j_2;
                                    j_2 = _e258 + 1u;
                                }
                                loop_init_7 = false;
                                uint _e239 = j_2;
                                if (_e239 < 4u) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e242 = i_2;
                                    uint _e244 = j_2;
                                    uint _e246 = i_2;
                                    uint _e248 = j_2;
                                    float _e250 = acc.inner[_e246].inner[_e248];
                                    uint _e251 = j_2;
                                    float _e253 = b_1.inner[_e251];
                                    float _e255 = o(a_3 * _e253);
                                    acc.inner[_e242].inner[_e244] = _e250 + _e255;
                                }
                            }
                        }
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        }
    }
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e350 = i_3;
            i_3 = _e350 + 1u;
        }
        loop_init_8 = false;
        uint _e271 = i_3;
        if (_e271 < 4u) {
        } else {
            break;
        }
        {
            j_3 = 0u;
            bool loop_init_9 = true;
            while(true) {
                if (!loop_init_9) {
                    uint _e347 = j_3;
                    j_3 = _e347 + 1u;
                }
                loop_init_9 = false;
                uint _e276 = j_3;
                if (_e276 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e282 = i_3;
                    uint row_1 = (r0_ + (ty * 4u)) + _e282;
                    uint _e287 = j_3;
                    uint c_3 = (c0_ + (tx * 4u)) + _e287;
                    uint _e291 = p.rows;
                    if (row_1 < _e291) {
                        uint _e297 = p.head;
                        local_3 = c_3 < _e297;
                    } else {
                        local_3 = false;
                    }
                    bool _e300 = local_3;
                    if (_e300) {
                        uint _e303 = p.row_at;
                        uint _e307 = p.heads;
                        uint _e312 = p.head;
                        uint to = ((((_e303 + row_1) * _e307) + h_1) * _e312) + c_3;
                        uint _e317 = p.key_end;
                        uint _e320 = p.keys;
                        if (_e317 < _e320) {
                            uint _e324 = i_3;
                            uint _e326 = j_3;
                            float _e328 = acc.inner[_e324].inner[_e326];
                            out[to] = _e328;
                        } else {
                            uint _e329 = i_3;
                            uint _e331 = j_3;
                            float _e333 = acc.inner[_e329].inner[_e331];
                            uint _e337 = p.heads;
                            float _e341 = inverses[(row_1 * _e337) + h_1];
                            float _e343 = flush(_e333 * _e341);
                            out[to] = _e343;
                            note(to, _e343, status, p, _buffer_sizes);
                        }
                    }
                }
            }
        }
    }
    return;
}
