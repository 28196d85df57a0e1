#pragma METAL fp contract(off)
// language: metal2.4
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size2;
};

typedef metal::atomic_uint type_2[1];
struct P {
    uint op;
    uint zero;
    uint rows;
    uint cols;
    uint top_k;
    float top_p;
    uint nucleus;
    float never;
};
typedef float type_8[1];
struct type_9 {
    metal::atomic_uint inner[256];
};
struct type_10 {
    uint inner[1024];
};
struct type_11 {
    float inner[16];
};
struct type_12 {
    uint inner[4];
};
constant uint LANES = 16u;
constant uint INFINITY_BITS = 2139095040u;
constant uint MAGNITUDE = 2147483647u;
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
    uint i_3,
    float x_3,
    device type_2& status,
    constant P& p,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool _e2 = is_finite(x_3);
    if (!(_e2)) {
        uint _e7 = p.op;
        bool _e13 = is_nan(x_3);
        uint _e16 = metal::atomic_fetch_min_explicit(&status[_e7], (2u * i_3) + (_e13 ? 1u : 0u), metal::memory_order_relaxed);
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
    float n_1 = metal::floor(_e16 + 0.5);
    float _e20 = t;
    float _e24 = o(n_1 * as_type<float>(1060208640u));
    float _e26 = o(_e20 - _e24);
    float _e30 = o(n_1 * as_type<float>(3109978243u));
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
    y = as_type<float>(as_type<uint>(q) + (as_type<uint>(naga_f2i32(n_1)) << 23u));
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
    bool local_8 = {};
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
        local_8 = _e102;
    } else {
        local_8 = true;
    }
    bool _e104 = local_8;
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
    uint shift_1 = 126u - exponent;
    return sign_2 | ((((m_1 + (1u << (shift_1 - 1u))) - 1u) + ((m_1 >> shift_1) & 1u)) >> shift_1);
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
    bool local_9 = {};
    float _e4 = flush(peak * as_type<float>(1006699012u));
    bool _e5 = is_nan(_e4);
    if (!(_e5)) {
        local_9 = as_type<float>(1904214016u) < _e4;
    } else {
        local_9 = true;
    }
    bool _e13 = local_9;
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
    float v_5
) {
    uint bits_4 = as_type<uint>(v_5);
    return bits_4 ^ (((bits_4 >> 31u) == 1u) ? 4294967295u : 2147483648u);
}

float of_key(
    uint key_1
) {
    return as_type<float>(key_1 ^ (((key_1 >> 31u) == 1u) ? 2147483648u : 4294967295u));
}

bool behind(
    uint k,
    uint v_6,
    uint key_2,
    uint id_1
) {
    bool local_10 = {};
    bool local_11 = {};
    if (!((k < key_2))) {
        if (k == key_2) {
            local_11 = v_6 > id_1;
        } else {
            local_11 = false;
        }
        bool _e13 = local_11;
        local_10 = _e13;
    } else {
        local_10 = true;
    }
    bool _e15 = local_10;
    return _e15;
}

void select_key(
    uint begin,
    uint at_2,
    uint wanted,
    uint key_3,
    uint id_2,
    constant P& p,
    device type_8 const& x_16,
    threadgroup type_9& counts,
    threadgroup type_12& told,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint prefix = 0u;
    uint mask = 0u;
    uint n = {};
    uint shift = 24u;
    uint v_7 = {};
    bool local_12 = {};
    uint b_1 = {};
    uint left_1 = {};
    bool local_13 = {};
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
            v_7 = at_2;
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e45 = v_7;
                    v_7 = _e45 + SIZE;
                }
                loop_init_1 = false;
                uint _e16 = v_7;
                uint _e19 = p.cols;
                if (_e16 < _e19) {
                } else {
                    break;
                }
                {
                    uint _e22 = v_7;
                    float _e25 = x_16[begin + _e22];
                    uint _e26 = key_of(_e25);
                    uint _e27 = mask;
                    uint _e29 = prefix;
                    if ((_e26 & _e27) == _e29) {
                        uint _e33 = v_7;
                        bool _e34 = behind(_e26, _e33, key_3, id_2);
                        local_12 = _e34;
                    } else {
                        local_12 = false;
                    }
                    bool _e36 = local_12;
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
                left_1 = _e52;
                while(true) {
                    uint _e54 = b_1;
                    if (_e54 > 0u) {
                        uint _e60 = b_1;
                        uint _e62 = metal::atomic_load_explicit(&counts.inner[_e60], metal::memory_order_relaxed);
                        uint _e63 = left_1;
                        local_13 = _e62 < _e63;
                    } else {
                        local_13 = false;
                    }
                    bool _e66 = local_13;
                    if (_e66) {
                    } else {
                        break;
                    }
                    {
                        uint _e67 = left_1;
                        uint _e69 = b_1;
                        uint _e71 = metal::atomic_load_explicit(&counts.inner[_e69], metal::memory_order_relaxed);
                        left_1 = _e67 - _e71;
                        uint _e74 = b_1;
                        b_1 = _e74 - 1u;
                    }
                }
                uint _e78 = prefix;
                uint _e79 = b_1;
                uint _e80 = shift;
                told.inner[0] = _e78 | (_e79 << _e80);
                uint _e85 = left_1;
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
uint naga_div(uint lhs, uint rhs) {
    return lhs / metal::select(rhs, 1u, rhs == 0u);
}


struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint at [[thread_index_in_threadgroup]]
, constant P& p [[buffer(0)]]
, device type_8& x_16 [[buffer(2)]]
, threadgroup type_9& counts
, threadgroup type_10& keys
, threadgroup type_10& ids
, threadgroup type_11& lanes
, threadgroup metal::atomic_uint& found
, threadgroup type_12& told
, threadgroup float& before
, constant _mslBufferSizes& _buffer_sizes [[user(fake0)]]
) {
    uint v = {};
    float sum = 0.0;
    uint v_1 = {};
    uint half_ = 8u;
    uint key = 4294967295u;
    uint id = 0u;
    uint left = {};
    bool local = {};
    uint i = {};
    uint v_2 = {};
    bool local_1 = {};
    bool local_2 = {};
    bool local_3 = {};
    uint size = {};
    uint step = {};
    uint i_1 = {};
    uint i_2 = {};
    bool local_4 = {};
    uint taken = {};
    bool local_5 = {};
    uint v_3 = {};
    bool local_6 = {};
    bool local_7 = {};
    uint v_4 = {};
    uint _e5 = p.cols;
    uint begin_1 = group.x * _e5;
    uint _e9 = p.top_k;
    if (_e9 != 0u) {
        uint _e14 = p.top_k;
        select_key(begin_1, at, _e14, 4294967295u, 0u, p, x_16, counts, told, _buffer_sizes);
        uint _e19 = told.inner[0];
        float _e20 = of_key(_e19);
        v = at;
        bool loop_init_2 = true;
        while(true) {
            if (!loop_init_2) {
                uint _e40 = v;
                v = _e40 + SIZE;
            }
            loop_init_2 = false;
            uint _e22 = v;
            uint _e25 = p.cols;
            if (_e22 < _e25) {
            } else {
                break;
            }
            {
                uint _e28 = v;
                float _e31 = x_16[begin_1 + _e28];
                if (_e31 < _e20) {
                    uint _e34 = v;
                    float _e39 = p.never;
                    x_16[begin_1 + _e34] = _e39;
                }
            }
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_device);
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    }
    uint _e45 = p.nucleus;
    if (_e45 == 0u) {
        return;
    }
    select_key(begin_1, at, 1u, 4294967295u, 0u, p, x_16, counts, told, _buffer_sizes);
    uint _e53 = told.inner[0];
    float _e54 = of_key(_e53);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (at < LANES) {
        v_1 = at;
        bool loop_init_3 = true;
        while(true) {
            if (!loop_init_3) {
                uint _e75 = v_1;
                v_1 = _e75 + LANES;
            }
            loop_init_3 = false;
            uint _e60 = v_1;
            uint _e63 = p.cols;
            if (_e60 < _e63) {
            } else {
                break;
            }
            {
                float _e65 = sum;
                uint _e67 = v_1;
                float _e70 = x_16[begin_1 + _e67];
                float _e72 = o(_e70 - _e54);
                float _e73 = exponential(_e72, p);
                sum = _e65 + _e73;
            }
        }
        float _e80 = sum;
        lanes.inner[at] = _e80;
    }
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e99 = half_;
            half_ = naga_div(_e99, 2u);
        }
        loop_init_4 = false;
        uint _e83 = half_;
        if (_e83 > 0u) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e86 = half_;
            if (at < _e86) {
                float _e92 = lanes.inner[at];
                uint _e94 = half_;
                float _e97 = lanes.inner[at + _e94];
                lanes.inner[at] = _e92 + _e97;
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    float _e104 = p.top_p;
    float _e107 = lanes.inner[0];
    float bound = _e104 * _e107;
    if (at == 0u) {
        before = 0.0;
    }
    uint _e119 = p.cols;
    left = _e119;
    while(true) {
        uint _e121 = left;
        if (_e121 == 0u) {
            break;
        }
        uint _e125 = left;
        uint _e127 = key;
        uint _e128 = id;
        select_key(begin_1, at, metal::min(PIECE, _e125), _e127, _e128, p, x_16, counts, told, _buffer_sizes);
        uint border = told.inner[0];
        uint _e134 = told.inner[1];
        uint _e137 = told.inner[2];
        if (!((_e134 == _e137))) {
            uint _e142 = left;
            local = _e142 <= PIECE;
        } else {
            local = true;
        }
        bool all = local;
        bool strict = !(all);
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        if (at == 0u) {
            metal::atomic_store_explicit(&found, 0u, metal::memory_order_relaxed);
        }
        i = at;
        bool loop_init_5 = true;
        while(true) {
            if (!loop_init_5) {
                uint _e164 = i;
                i = _e164 + SIZE;
            }
            loop_init_5 = false;
            uint _e153 = i;
            if (_e153 < PIECE) {
            } else {
                break;
            }
            {
                uint _e157 = i;
                keys.inner[_e157] = 0u;
                uint _e161 = i;
                ids.inner[_e161] = 4294967295u;
            }
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        v_2 = at;
        bool loop_init_6 = true;
        while(true) {
            if (!loop_init_6) {
                uint _e209 = v_2;
                v_2 = _e209 + SIZE;
            }
            loop_init_6 = false;
            uint _e168 = v_2;
            uint _e171 = p.cols;
            if (_e168 < _e171) {
            } else {
                break;
            }
            {
                uint _e174 = v_2;
                float _e177 = x_16[begin_1 + _e174];
                uint _e178 = key_of(_e177);
                uint _e179 = v_2;
                uint _e180 = key;
                uint _e181 = id;
                bool _e182 = behind(_e178, _e179, _e180, _e181);
                if (_e182) {
                    if (!((_e178 > border))) {
                        if (!(strict)) {
                            local_3 = _e178 == border;
                        } else {
                            local_3 = false;
                        }
                        bool _e194 = local_3;
                        local_2 = _e194;
                    } else {
                        local_2 = true;
                    }
                    bool _e196 = local_2;
                    local_1 = _e196;
                } else {
                    local_1 = false;
                }
                bool _e198 = local_1;
                if (_e198) {
                    uint _e201 = metal::atomic_fetch_add_explicit(&found, 1u, metal::memory_order_relaxed);
                    if (_e201 < PIECE) {
                        keys.inner[_e201] = _e178;
                        uint _e208 = v_2;
                        ids.inner[_e201] = _e208;
                    }
                }
            }
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        uint _e213 = metal::atomic_load_explicit(&found, metal::memory_order_relaxed);
        uint n_2 = metal::min(_e213, PIECE);
        size = 2u;
        bool loop_init_7 = true;
        while(true) {
            if (!loop_init_7) {
                uint _e288 = size;
                size = _e288 * 2u;
            }
            loop_init_7 = false;
            uint _e218 = size;
            if (_e218 <= PIECE) {
            } else {
                break;
            }
            {
                uint _e221 = size;
                step = naga_div(_e221, 2u);
                bool loop_init_8 = true;
                while(true) {
                    if (!loop_init_8) {
                        uint _e285 = step;
                        step = naga_div(_e285, 2u);
                    }
                    loop_init_8 = false;
                    uint _e225 = step;
                    if (_e225 > 0u) {
                    } else {
                        break;
                    }
                    {
                        i_1 = at;
                        bool loop_init_9 = true;
                        while(true) {
                            if (!loop_init_9) {
                                uint _e282 = i_1;
                                i_1 = _e282 + SIZE;
                            }
                            loop_init_9 = false;
                            uint _e229 = i_1;
                            if (_e229 < PIECE) {
                            } else {
                                break;
                            }
                            {
                                uint _e232 = i_1;
                                uint _e233 = step;
                                uint j = _e232 ^ _e233;
                                uint _e235 = i_1;
                                if (j > _e235) {
                                    uint _e238 = i_1;
                                    uint _e240 = keys.inner[_e238];
                                    uint _e242 = i_1;
                                    uint _e244 = ids.inner[_e242];
                                    uint _e247 = keys.inner[j];
                                    uint _e250 = ids.inner[j];
                                    bool _e251 = behind(_e240, _e244, _e247, _e250);
                                    uint _e252 = i_1;
                                    uint _e253 = size;
                                    if (_e251 == ((_e252 & _e253) == 0u)) {
                                        uint _e259 = i_1;
                                        uint tk = keys.inner[_e259];
                                        uint _e263 = i_1;
                                        uint _e267 = keys.inner[j];
                                        keys.inner[_e263] = _e267;
                                        keys.inner[j] = tk;
                                        uint _e271 = i_1;
                                        uint ti = ids.inner[_e271];
                                        uint _e275 = i_1;
                                        uint _e279 = ids.inner[j];
                                        ids.inner[_e275] = _e279;
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
        if (at == 0u) {
            i_2 = 0u;
            while(true) {
                uint _e295 = i_2;
                if (_e295 < n_2) {
                    float _e300 = before;
                    local_4 = _e300 <= bound;
                } else {
                    local_4 = false;
                }
                bool _e303 = local_4;
                if (_e303) {
                } else {
                    break;
                }
                {
                    float _e306 = before;
                    uint _e308 = i_2;
                    uint _e310 = keys.inner[_e308];
                    float _e311 = of_key(_e310);
                    float _e313 = o(_e311 - _e54);
                    float _e314 = exponential(_e313, p);
                    before = _e306 + _e314;
                    uint _e317 = i_2;
                    uint _e319 = keys.inner[_e317];
                    key = _e319;
                    uint _e321 = i_2;
                    uint _e323 = ids.inner[_e321];
                    id = _e323;
                    uint _e325 = i_2;
                    i_2 = _e325 + 1u;
                }
            }
            uint _e327 = i_2;
            taken = _e327;
            if (strict) {
                uint _e331 = i_2;
                local_5 = _e331 == n_2;
            } else {
                local_5 = false;
            }
            bool _e334 = local_5;
            if (_e334) {
                float _e335 = of_key(border);
                float _e337 = o(_e335 - _e54);
                float _e338 = exponential(_e337, p);
                v_3 = 0u;
                bool loop_init_10 = true;
                while(true) {
                    if (!loop_init_10) {
                        uint _e377 = v_3;
                        v_3 = _e377 + 1u;
                    }
                    loop_init_10 = false;
                    uint _e341 = v_3;
                    uint _e344 = p.cols;
                    if (_e341 < _e344) {
                        float _e349 = before;
                        local_6 = _e349 <= bound;
                    } else {
                        local_6 = false;
                    }
                    bool _e352 = local_6;
                    if (_e352) {
                    } else {
                        break;
                    }
                    {
                        uint _e354 = v_3;
                        float _e357 = x_16[begin_1 + _e354];
                        uint _e358 = key_of(_e357);
                        if (_e358 == border) {
                            uint _e362 = v_3;
                            uint _e363 = key;
                            uint _e364 = id;
                            bool _e365 = behind(border, _e362, _e363, _e364);
                            local_7 = _e365;
                        } else {
                            local_7 = false;
                        }
                        bool _e367 = local_7;
                        if (_e367) {
                            float _e370 = before;
                            before = _e370 + _e338;
                            key = border;
                            uint _e372 = v_3;
                            id = _e372;
                            uint _e374 = taken;
                            taken = _e374 + 1u;
                        }
                    }
                }
            }
            uint _e381 = key;
            told.inner[0] = _e381;
            uint _e384 = id;
            told.inner[1] = _e384;
            uint _e387 = taken;
            told.inner[2] = _e387;
            float _e393 = before;
            told.inner[3] = (_e393 > bound) ? 1u : 0u;
        }
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        uint _e398 = told.inner[0];
        key = _e398;
        uint _e401 = told.inner[1];
        id = _e401;
        uint _e402 = left;
        uint _e405 = told.inner[2];
        uint _e406 = left;
        left = _e402 - metal::min(_e405, _e406);
        uint _e411 = told.inner[3];
        bool done = _e411 == 1u;
        metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        if (done) {
            break;
        }
    }
    v_4 = at;
    bool loop_init_11 = true;
    while(true) {
        if (!loop_init_11) {
            uint _e437 = v_4;
            v_4 = _e437 + SIZE;
        }
        loop_init_11 = false;
        uint _e415 = v_4;
        uint _e418 = p.cols;
        if (_e415 < _e418) {
        } else {
            break;
        }
        {
            uint _e421 = v_4;
            float _e424 = x_16[begin_1 + _e421];
            uint _e425 = key_of(_e424);
            uint _e426 = v_4;
            uint _e427 = key;
            uint _e428 = id;
            bool _e429 = behind(_e425, _e426, _e427, _e428);
            if (_e429) {
                uint _e431 = v_4;
                float _e436 = p.never;
                x_16[begin_1 + _e431] = _e436;
            }
        }
    }
    return;
}
