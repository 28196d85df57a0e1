// Pairs of token and slot by expert, in one workgroup: expert e has pairs[starts[e]] to pairs[starts[e + 1]], ascending.
struct P {
    op: u32,
    zero: u32,
    pairs: u32,
    experts: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> starts: array<u32>;
@group(0) @binding(4) var<storage, read_write> pairs: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) at: u32) {
    for (var e = at; e < p.experts; e += 256u) {
        var n = 0u;
        for (var i = 0u; i < p.pairs; i++) {
            if ids[i] == e {
                n++;
            }
        }
        starts[e + 1u] = n;
    }
    storageBarrier();
    if at == 0u {
        starts[0] = 0u;
        for (var e = 0u; e < p.experts; e++) {
            starts[e + 1u] += starts[e];
        }
    }
    storageBarrier();
    for (var e = at; e < p.experts; e += 256u) {
        var to = starts[e];
        for (var i = 0u; i < p.pairs; i++) {
            if ids[i] == e {
                pairs[to] = i;
                to++;
            }
        }
    }
}
