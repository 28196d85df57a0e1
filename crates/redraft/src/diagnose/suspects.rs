//! What is usually wrong where a port leaves the floor first.

use crate::trace::split_layer;

/// Suspects by tap, without its pass and layer.
const SUSPECTS: &[(&str, &str)] = &[
    ("inp_embd", "the embedding table (transposed, another type), token ids"),
    ("inp_scaled", "the factor on embeddings, token ids"),
    (
        "sc_",
        "self-conditioning: temperature of the previous prediction, which logits it is made of, its norm",
    ),
    ("inp_region", "the norm without weight after self-conditioning"),
    ("attn_norm", "the norm before attention: its epsilon, its weight (stored as 1 + w or not), its place"),
    ("Qcur_normed", "the norm of query heads: over a head, not over all of them"),
    ("Kcur_normed", "the norm of key heads: over a head, not over all of them"),
    ("Vcur_normed", "the norm of value heads, which has no weight"),
    ("Qcur_pos", "RoPE: base, style, number of rotated channels, frequency factors, first position"),
    ("Kcur_pos", "RoPE: base, style, number of rotated channels, frequency factors, first position"),
    ("Qcur", "the query projection: its bias, permuted rows (RoPE of another style), transposition"),
    ("Kcur", "the key projection: its bias, permuted rows (RoPE of another style), transposition"),
    (
        "Vcur",
        "the value projection: its bias, heads and channels exchanged; layers whose values are the raw keys",
    ),
    (
        "kqv_out",
        "the mask (causal, block, window), the factor on scores, which key head a query head uses, keys and values exchanged",
    ),
    ("attn_out", "the output projection, the norm after attention"),
    ("attn_post_norm", "the output projection, the norm after attention"),
    ("ffn_inp", "the output projection, the residual"),
    ("ffn_norm", "the norm before the feed-forward block"),
    ("ffn_moe_logits", "what the router reads: the residual stream or a normed one, its scale"),
    ("ffn_moe_probs", "soft-max or sigmoid of the router"),
    (
        "ffn_moe_weights",
        "the division of the experts' weights by their sum, their factor, the choice (bias, groups)",
    ),
    ("ffn_moe", "the experts: gate and up exchanged, the activation, which norm they read"),
    ("ffn_shexp", "the shared expert"),
    ("ffn_mlp", "the dense block: gate and up exchanged, the activation, its norm"),
    ("ffn_out", "the feed-forward block: gate and up exchanged, the activation"),
    ("ffn_post_norm", "the norm after the feed-forward block"),
    (
        "l_out",
        "the residual, the scalar of the layer (prompt and canvas have their own); for the last layer, whether it was taken after the final norm",
    ),
    ("result_norm", "the final norm"),
    ("logits", "the head: tied embedding or not, soft-cap, a shift by one position"),
    ("result_output", "the head: tied embedding or not, soft-cap, a shift by one position"),
];

/// What to look at where a tap is the first to leave the floor.
pub(super) fn of(tap: &str) -> &'static str {
    let (_, bare, _) = split_layer(tap);
    let fits = |(name, _): &&(&str, &str)| bare.starts_with(name);
    SUSPECTS
        .iter()
        .filter(fits)
        .max_by_key(|(name, _)| name.len())
        .map_or("what leads to it", |(_, what)| what)
}
