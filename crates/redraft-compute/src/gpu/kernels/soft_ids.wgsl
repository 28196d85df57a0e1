// For each group of rows the ids that any of them needs, ascending, after their number. A workgroup makes one list.
struct P {
    op: u32,
    zero: u32,
    vocab: u32,
}

@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(2) var<storage, read> flags: array<u32>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;

var<workgroup> counts: array<u32, 256>;

// Ids that an invocation looks at in one step.
const EACH = 16u;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    let begin = group.x * p.vocab;
    let to = group.x * (p.vocab + 1u);
    var before = 0u;
    for (var start = 0u; start < p.vocab; start += 256u * EACH) {
        let first = start + at * EACH;
        let end = min(first + EACH, p.vocab);
        var count = 0u;
        for (var id = first; id < end; id++) {
            count += flags[begin + id];
        }
        counts[at] = count;
        workgroupBarrier();
        // The sum of all counts up to an invocation's own.
        for (var far = 1u; far < 256u; far *= 2u) {
            var sum = counts[at];
            if at >= far {
                sum += counts[at - far];
            }
            workgroupBarrier();
            counts[at] = sum;
            workgroupBarrier();
        }
        var place = before + counts[at] - count;
        for (var id = first; id < end; id++) {
            if flags[begin + id] != 0u {
                ids[to + 1u + place] = id;
                place++;
            }
        }
        before += counts[255];
        workgroupBarrier();
    }
    if at == 0u {
        ids[to] = before;
    }
}
