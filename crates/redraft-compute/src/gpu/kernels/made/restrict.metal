#pragma METAL fp contract(off)
// language: metal2.4
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size2;
    uint size3;
};

typedef metal::atomic_uint type_2[1];
struct P {
    uint op;
    uint zero;
    uint rows;
    uint cols;
    uint top_k;
    float top_p;
    uint phase;
    float never;
};
typedef float type_8[1];
typedef uint type_9[1];
struct type_10 {
    metal::atomic_uint inner[256];
};
struct type_11 {
    uint inner[1024];
};
struct type_12 {
    float inner[16];
};
struct type_13 {
    uint inner[4];
};
constant uint LANES = 16u;
constant uint INFINITY_BITS = 2139095040u;
constant uint MAGNITUDE = 2147483647u;
constant uint STATE = 8u;
constant uint SIZE = 256u;
constant uint PIECE = 1024u;

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
    uint i,
    float x_3,
    device type_2& status,
    constant P& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool _e2 = is_finite(x_3);
    if (!(_e2)) {
        uint _e7 = p.op;
        bool _e13 = is_nan(x_3);
        uint _e16 = metal::atomic_fetch_min_explicit(&status[_e7], (2u * i) + (_e13 ? 1u : 0u), metal::memory_order_relaxed);
        return;
    } else {
        return;
    }
}

float larger(
    float a,
    float b
) {
    return (a < b) ? b : a;
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
    float n_3 = metal::floor(_e16 + 0.5);
    float _e20 = t;
    float _e24 = o(n_3 * as_type<float>(1060208640u));
    float _e26 = o(_e20 - _e24);
    float _e30 = o(n_3 * as_type<float>(3109978243u));
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
    y = as_type<float>(as_type<uint>(q) + (as_type<uint>(naga_f2i32(n_3)) << 23u));
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
    bool local = {};
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
        local = _e102;
    } else {
        local = true;
    }
    bool _e104 = local;
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
    float a_1 = as_type<float>(as_type<uint>(_e1) & MAGNITUDE);
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
    float c = (10.0 < a_1) ? 10.0 : a_1;
    float _e49 = o(c + c);
    float _e50 = exponential(_e49, p);
    float _e53 = reciprocal(_e50 + 1.0);
    float _e55 = o(_e53 + _e53);
    float large = as_type<float>(as_type<uint>(1.0 - _e55) | sign);
    return (a_1 < 0.625) ? small : large;
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
    uint shift_2 = 126u - exponent;
    return sign_2 | ((((m_1 + (1u << (shift_2 - 1u))) - 1u) + ((m_1 >> shift_2) & 1u)) >> shift_2);
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
    bool local_1 = {};
    float _e4 = flush(peak * as_type<float>(1006699012u));
    bool _e5 = is_nan(_e4);
    if (!(_e5)) {
        local_1 = as_type<float>(1904214016u) < _e4;
    } else {
        local_1 = true;
    }
    bool _e13 = local_1;
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

uint key_of(
    float v_1
) {
    uint bits_4 = as_type<uint>(v_1);
    return bits_4 ^ (((bits_4 >> 31u) == 1u) ? 4294967295u : 2147483648u);
}

float of_key(
    uint key
) {
    return as_type<float>(key ^ (((key >> 31u) == 1u) ? 2147483648u : 4294967295u));
}

bool behind(
    uint k,
    uint v_2,
    uint key_1,
    uint id
) {
    bool local_2 = {};
    bool local_3 = {};
    if (!((k < key_1))) {
        if (k == key_1) {
            local_3 = v_2 > id;
        } else {
            local_3 = false;
        }
        bool _e13 = local_3;
        local_2 = _e13;
    } else {
        local_2 = true;
    }
    bool _e15 = local_2;
    return _e15;
}

void select_key(
    uint begin,
    uint at_2,
    uint wanted,
    uint key_2,
    uint id_1,
    constant P& p,
    device type_8 const& x_16,
    threadgroup type_10& counts,
    threadgroup type_13& told,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint prefix = 0u;
    uint mask = 0u;
    uint n = {};
    uint shift = 24u;
    uint v_3 = {};
    bool local_4 = {};
    uint b_1 = {};
    uint left = {};
    bool local_5 = {};
    n = wanted;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e106 = shift;
            shift = _e106 - 8u;
        }
        loop_init = false;
        {
            metal::atomic_store_explicit(&counts.inner[at_2], 0u, metal::memory_order_relaxed);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            v_3 = at_2;
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e45 = v_3;
                    v_3 = _e45 + SIZE;
                }
                loop_init_1 = false;
                uint _e16 = v_3;
                uint _e19 = p.cols;
                if (_e16 < _e19) {
                } else {
                    break;
                }
                {
                    uint _e22 = v_3;
                    float _e25 = x_16[begin + _e22];
                    uint _e26 = key_of(_e25);
                    uint _e27 = mask;
                    uint _e29 = prefix;
                    if ((_e26 & _e27) == _e29) {
                        uint _e33 = v_3;
                        bool _e34 = behind(_e26, _e33, key_2, id_1);
                        local_4 = _e34;
                    } else {
                        local_4 = false;
                    }
                    bool _e36 = local_4;
                    if (_e36) {
                        uint _e38 = shift;
                        uint _e44 = metal::atomic_fetch_add_explicit(&counts.inner[(_e26 >> _e38) & 255u], 1u, metal::memory_order_relaxed);
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            if (at_2 == 0u) {
                b_1 = 255u;
                uint _e52 = n;
                left = _e52;
                while(true) {
                    uint _e54 = b_1;
                    if (_e54 > 0u) {
                        uint _e60 = b_1;
                        uint _e62 = metal::atomic_load_explicit(&counts.inner[_e60], metal::memory_order_relaxed);
                        uint _e63 = left;
                        local_5 = _e62 < _e63;
                    } else {
                        local_5 = false;
                    }
                    bool _e66 = local_5;
                    if (_e66) {
                    } else {
                        break;
                    }
                    {
                        uint _e67 = left;
                        uint _e69 = b_1;
                        uint _e71 = metal::atomic_load_explicit(&counts.inner[_e69], metal::memory_order_relaxed);
                        left = _e67 - _e71;
                        uint _e74 = b_1;
                        b_1 = _e74 - 1u;
                    }
                }
                uint _e78 = prefix;
                uint _e79 = b_1;
                uint _e80 = shift;
                told.inner[0] = _e78 | (_e79 << _e80);
                uint _e85 = left;
                told.inner[1] = _e85;
                uint _e89 = b_1;
                uint _e91 = metal::atomic_load_explicit(&counts.inner[_e89], metal::memory_order_relaxed);
                told.inner[2] = _e91;
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e94 = told.inner[0];
            prefix = _e94;
            uint _e97 = told.inner[1];
            n = _e97;
            uint _e98 = mask;
            uint _e100 = shift;
            mask = _e98 | (255u << _e100);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e103 = shift;
            if (_e103 == 0u) {
                break;
            }
        }
    }
    return;
}

void select_id(
    uint begin_1,
    uint at_3,
    uint wanted_1,
    uint border,
    uint key_3,
    uint id_2,
    constant P& p,
    device type_8 const& x_16,
    threadgroup type_10& counts,
    threadgroup type_13& told,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint prefix_1 = 0u;
    uint mask_1 = 0u;
    uint n_1 = {};
    uint shift_1 = 24u;
    uint v_4 = {};
    bool local_6 = {};
    bool local_7 = {};
    uint b_2 = {};
    uint left_1 = {};
    bool local_8 = {};
    n_1 = wanted_1;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e108 = shift_1;
            shift_1 = _e108 - 8u;
        }
        loop_init_2 = false;
        {
            metal::atomic_store_explicit(&counts.inner[at_3], 0u, metal::memory_order_relaxed);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            v_4 = at_3;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e53 = v_4;
                    v_4 = _e53 + SIZE;
                }
                loop_init_3 = false;
                uint _e17 = v_4;
                uint _e20 = p.cols;
                if (_e17 < _e20) {
                } else {
                    break;
                }
                {
                    uint _e22 = v_4;
                    uint _e23 = mask_1;
                    uint _e25 = prefix_1;
                    if ((_e22 & _e23) == _e25) {
                        uint _e30 = v_4;
                        float _e33 = x_16[begin_1 + _e30];
                        uint _e34 = key_of(_e33);
                        local_6 = _e34 == border;
                    } else {
                        local_6 = false;
                    }
                    bool _e37 = local_6;
                    if (_e37) {
                        uint _e40 = v_4;
                        bool _e41 = behind(border, _e40, key_3, id_2);
                        local_7 = _e41;
                    } else {
                        local_7 = false;
                    }
                    bool _e43 = local_7;
                    if (_e43) {
                        uint _e45 = v_4;
                        uint _e46 = shift_1;
                        uint _e52 = metal::atomic_fetch_add_explicit(&counts.inner[(_e45 >> _e46) & 255u], 1u, metal::memory_order_relaxed);
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            if (at_3 == 0u) {
                b_2 = 0u;
                uint _e60 = n_1;
                left_1 = _e60;
                while(true) {
                    uint _e62 = b_2;
                    if (_e62 < 255u) {
                        uint _e68 = b_2;
                        uint _e70 = metal::atomic_load_explicit(&counts.inner[_e68], metal::memory_order_relaxed);
                        uint _e71 = left_1;
                        local_8 = _e70 < _e71;
                    } else {
                        local_8 = false;
                    }
                    bool _e74 = local_8;
                    if (_e74) {
                    } else {
                        break;
                    }
                    {
                        uint _e75 = left_1;
                        uint _e77 = b_2;
                        uint _e79 = metal::atomic_load_explicit(&counts.inner[_e77], metal::memory_order_relaxed);
                        left_1 = _e75 - _e79;
                        uint _e82 = b_2;
                        b_2 = _e82 + 1u;
                    }
                }
                uint _e86 = prefix_1;
                uint _e87 = b_2;
                uint _e88 = shift_1;
                told.inner[3] = _e86 | (_e87 << _e88);
                uint _e93 = left_1;
                told.inner[1] = _e93;
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e96 = told.inner[3];
            prefix_1 = _e96;
            uint _e99 = told.inner[1];
            n_1 = _e99;
            uint _e100 = mask_1;
            uint _e102 = shift_1;
            mask_1 = _e100 | (255u << _e102);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e105 = shift_1;
            if (_e105 == 0u) {
                break;
            }
        }
    }
    return;
}

void largest(
    uint begin_2,
    uint at_4,
    constant P& p,
    device type_8& x_16,
    threadgroup type_10& counts,
    threadgroup type_13& told,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint v_5 = {};
    uint _e4 = p.top_k;
    select_key(begin_2, at_4, _e4, 4294967295u, 0u, p, x_16, counts, told, _buffer_sizes);
    uint _e9 = told.inner[0];
    float _e10 = of_key(_e9);
    v_5 = at_4;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e30 = v_5;
            v_5 = _e30 + SIZE;
        }
        loop_init_4 = false;
        uint _e12 = v_5;
        uint _e15 = p.cols;
        if (_e12 < _e15) {
        } else {
            break;
        }
        {
            uint _e18 = v_5;
            float _e21 = x_16[begin_2 + _e18];
            if (_e21 < _e10) {
                uint _e24 = v_5;
                float _e29 = p.never;
                x_16[begin_2 + _e24] = _e29;
            }
        }
    }
    return;
}

uint naga_div(uint lhs, uint rhs) {
    return lhs / metal::select(rhs, 1u, rhs == 0u);
}

void bound_of(
    uint begin_3,
    uint at_5,
    uint to,
    constant P& p,
    device type_8 const& x_16,
    device type_9& state,
    threadgroup type_10& counts,
    threadgroup type_12& lanes,
    threadgroup type_13& told,
    constant _mslBufferSizes& _buffer_sizes
) {
    float sum = 0.0;
    uint v_6 = {};
    uint half_ = 8u;
    select_key(begin_3, at_5, 1u, 4294967295u, 0u, p, x_16, counts, told, _buffer_sizes);
    uint _e8 = told.inner[0];
    float _e9 = of_key(_e8);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (at_5 < LANES) {
        v_6 = at_5;
        bool loop_init_5 = true;
        while(true) {
            if (!loop_init_5) {
                uint _e30 = v_6;
                v_6 = _e30 + LANES;
            }
            loop_init_5 = false;
            uint _e15 = v_6;
            uint _e18 = p.cols;
            if (_e15 < _e18) {
            } else {
                break;
            }
            {
                float _e20 = sum;
                uint _e22 = v_6;
                float _e25 = x_16[begin_3 + _e22];
                float _e27 = o(_e25 - _e9);
                float _e28 = exponential(_e27, p);
                sum = _e20 + _e28;
            }
        }
        float _e35 = sum;
        lanes.inner[at_5] = _e35;
    }
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e54 = half_;
            half_ = naga_div(_e54, 2u);
        }
        loop_init_6 = false;
        uint _e38 = half_;
        if (_e38 > 0u) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e41 = half_;
            if (at_5 < _e41) {
                float _e47 = lanes.inner[at_5];
                uint _e49 = half_;
                float _e52 = lanes.inner[at_5 + _e49];
                lanes.inner[at_5] = _e47 + _e52;
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (at_5 == 0u) {
        state[to] = 4294967295u;
        state[to + 1u] = 0u;
        uint _e73 = p.cols;
        state[to + 2u] = _e73;
        state[to + 3u] = 0u;
        state[to + 4u] = 0u;
        float _e90 = p.top_p;
        float _e93 = lanes.inner[0];
        state[to + 5u] = as_type<uint>(_e90 * _e93);
        state[to + 6u] = as_type<uint>(_e9);
        return;
    } else {
        return;
    }
}

void walk(
    uint to_1,
    uint n_2,
    constant P& p,
    device type_9& state,
    threadgroup type_11& keys,
    threadgroup type_11& ids,
    constant _mslBufferSizes& _buffer_sizes
) {
    float before = {};
    uint taken = 0u;
    bool local_9 = {};
    uint _e6 = state[to_1 + 6u];
    float most = as_type<float>(_e6);
    uint _e12 = state[to_1 + 5u];
    float bound = as_type<float>(_e12);
    uint _e18 = state[to_1 + 4u];
    before = as_type<float>(_e18);
    while(true) {
        uint _e23 = taken;
        if (_e23 < n_2) {
            float _e27 = before;
            local_9 = _e27 <= bound;
        } else {
            local_9 = false;
        }
        bool _e30 = local_9;
        if (_e30) {
        } else {
            break;
        }
        {
            float _e31 = before;
            uint _e33 = taken;
            uint _e35 = keys.inner[_e33];
            float _e36 = of_key(_e35);
            float _e38 = o(_e36 - most);
            float _e39 = exponential(_e38, p);
            before = _e31 + _e39;
            uint _e42 = taken;
            taken = _e42 + 1u;
        }
    }
    uint _e44 = taken;
    if (_e44 > 0u) {
        uint _e50 = taken;
        uint _e54 = keys.inner[_e50 - 1u];
        state[to_1] = _e54;
        uint _e60 = taken;
        uint _e64 = ids.inner[_e60 - 1u];
        state[to_1 + 1u] = _e64;
    }
    uint _e69 = state[to_1 + 2u];
    uint _e70 = taken;
    state[to_1 + 2u] = _e69 - _e70;
    float _e78 = before;
    state[to_1 + 3u] = (_e78 > bound) ? 1u : 0u;
    float _e85 = before;
    state[to_1 + 4u] = as_type<uint>(_e85);
    return;
}

void piece(
    uint begin_4,
    uint at_6,
    uint to_2,
    constant P& p,
    device type_8 const& x_16,
    device type_9& state,
    threadgroup type_10& counts,
    threadgroup type_11& keys,
    threadgroup type_11& ids,
    threadgroup metal::atomic_uint& found,
    threadgroup type_13& told,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_10 = {};
    uint limit = 4294967295u;
    uint i_1 = {};
    uint v_7 = {};
    bool local_11 = {};
    bool local_12 = {};
    bool local_13 = {};
    uint size = 2u;
    uint step = {};
    uint i_2 = {};
    uint key_4 = state[to_2];
    uint id_3 = state[to_2 + 1u];
    uint left_2 = state[to_2 + 2u];
    uint _e20 = state[to_2 + 3u];
    if (!((_e20 != 0u))) {
        local_10 = left_2 == 0u;
    } else {
        local_10 = true;
    }
    bool _e29 = local_10;
    if (_e29) {
        return;
    }
    select_key(begin_4, at_6, metal::min(PIECE, left_2), key_4, id_3, p, x_16, counts, told, _buffer_sizes);
    uint border_1 = told.inner[0];
    uint wanted_2 = told.inner[1];
    uint _e40 = told.inner[2];
    bool all = wanted_2 == _e40;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (!(all)) {
        select_id(begin_4, at_6, wanted_2, border_1, key_4, id_3, p, x_16, counts, told, _buffer_sizes);
        uint _e47 = told.inner[3];
        limit = _e47;
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    }
    if (at_6 == 0u) {
        metal::atomic_store_explicit(&found, 0u, metal::memory_order_relaxed);
    }
    i_1 = at_6;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e64 = i_1;
            i_1 = _e64 + SIZE;
        }
        loop_init_7 = false;
        uint _e53 = i_1;
        if (_e53 < PIECE) {
        } else {
            break;
        }
        {
            uint _e57 = i_1;
            keys.inner[_e57] = 0u;
            uint _e61 = i_1;
            ids.inner[_e61] = 4294967295u;
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    v_7 = at_6;
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e109 = v_7;
            v_7 = _e109 + SIZE;
        }
        loop_init_8 = false;
        uint _e68 = v_7;
        uint _e71 = p.cols;
        if (_e68 < _e71) {
        } else {
            break;
        }
        {
            uint _e74 = v_7;
            float _e77 = x_16[begin_4 + _e74];
            uint _e78 = key_of(_e77);
            uint _e79 = v_7;
            bool _e80 = behind(_e78, _e79, key_4, id_3);
            if (_e80) {
                if (!((_e78 > border_1))) {
                    if (_e78 == border_1) {
                        uint _e90 = v_7;
                        uint _e91 = limit;
                        local_13 = _e90 <= _e91;
                    } else {
                        local_13 = false;
                    }
                    bool _e94 = local_13;
                    local_12 = _e94;
                } else {
                    local_12 = true;
                }
                bool _e96 = local_12;
                local_11 = _e96;
            } else {
                local_11 = false;
            }
            bool _e98 = local_11;
            if (_e98) {
                uint _e101 = metal::atomic_fetch_add_explicit(&found, 1u, metal::memory_order_relaxed);
                if (_e101 < PIECE) {
                    keys.inner[_e101] = _e78;
                    uint _e108 = v_7;
                    ids.inner[_e101] = _e108;
                }
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint _e113 = metal::atomic_load_explicit(&found, metal::memory_order_relaxed);
    uint n_4 = metal::min(_e113, PIECE);
    bool loop_init_9 = true;
    while(true) {
        if (!loop_init_9) {
            uint _e188 = size;
            size = _e188 * 2u;
        }
        loop_init_9 = false;
        uint _e118 = size;
        if (_e118 <= PIECE) {
        } else {
            break;
        }
        {
            uint _e121 = size;
            step = naga_div(_e121, 2u);
            bool loop_init_10 = true;
            while(true) {
                if (!loop_init_10) {
                    uint _e185 = step;
                    step = naga_div(_e185, 2u);
                }
                loop_init_10 = false;
                uint _e125 = step;
                if (_e125 > 0u) {
                } else {
                    break;
                }
                {
                    i_2 = at_6;
                    bool loop_init_11 = true;
                    while(true) {
                        if (!loop_init_11) {
                            uint _e182 = i_2;
                            i_2 = _e182 + SIZE;
                        }
                        loop_init_11 = false;
                        uint _e129 = i_2;
                        if (_e129 < PIECE) {
                        } else {
                            break;
                        }
                        {
                            uint _e132 = i_2;
                            uint _e133 = step;
                            uint j = _e132 ^ _e133;
                            uint _e135 = i_2;
                            if (j > _e135) {
                                uint _e138 = i_2;
                                uint _e140 = keys.inner[_e138];
                                uint _e142 = i_2;
                                uint _e144 = ids.inner[_e142];
                                uint _e147 = keys.inner[j];
                                uint _e150 = ids.inner[j];
                                bool _e151 = behind(_e140, _e144, _e147, _e150);
                                uint _e152 = i_2;
                                uint _e153 = size;
                                if (_e151 == ((_e152 & _e153) == 0u)) {
                                    uint _e159 = i_2;
                                    uint tk = keys.inner[_e159];
                                    uint _e163 = i_2;
                                    uint _e167 = keys.inner[j];
                                    keys.inner[_e163] = _e167;
                                    keys.inner[j] = tk;
                                    uint _e171 = i_2;
                                    uint ti = ids.inner[_e171];
                                    uint _e175 = i_2;
                                    uint _e179 = ids.inner[j];
                                    ids.inner[_e175] = _e179;
                                    ids.inner[j] = ti;
                                }
                            }
                        }
                    }
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                }
            }
        }
    }
    if (at_6 == 0u) {
        walk(to_2, n_4, p, state, keys, ids, _buffer_sizes);
        return;
    } else {
        return;
    }
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint at [[thread_index_in_threadgroup]]
, constant P& p [[buffer(0)]]
, device type_8& x_16 [[buffer(2)]]
, device type_9& state [[buffer(3)]]
, threadgroup type_10& counts
, threadgroup type_11& keys
, threadgroup type_11& ids
, threadgroup type_12& lanes
, threadgroup metal::atomic_uint& found
, threadgroup type_13& told
, constant _mslBufferSizes& _buffer_sizes [[user(fake0)]]
) {
    uint v = {};
    uint _e5 = p.cols;
    uint begin_5 = group.x * _e5;
    uint to_3 = group.x * STATE;
    uint _e12 = p.phase;
    switch(_e12) {
        case 0u: {
            largest(begin_5, at, p, x_16, counts, told, _buffer_sizes);
            return;
        }
        case 1u: {
            bound_of(begin_5, at, to_3, p, x_16, state, counts, lanes, told, _buffer_sizes);
            return;
        }
        case 2u: {
            piece(begin_5, at, to_3, p, x_16, state, counts, keys, ids, found, told, _buffer_sizes);
            return;
        }
        default: {
            v = at;
            bool loop_init_12 = true;
            while(true) {
                if (!loop_init_12) {
                    uint _e42 = v;
                    v = _e42 + SIZE;
                }
                loop_init_12 = false;
                uint _e14 = v;
                uint _e17 = p.cols;
                if (_e14 < _e17) {
                } else {
                    break;
                }
                {
                    uint _e20 = v;
                    float _e23 = x_16[begin_5 + _e20];
                    uint _e24 = key_of(_e23);
                    uint _e25 = v;
                    uint _e28 = state[to_3];
                    uint _e33 = state[to_3 + 1u];
                    bool _e34 = behind(_e24, _e25, _e28, _e33);
                    if (_e34) {
                        uint _e36 = v;
                        float _e41 = p.never;
                        x_16[begin_5 + _e36] = _e41;
                    }
                }
            }
            return;
        }
    }
}
