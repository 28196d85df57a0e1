//! What a checkpoint becomes: metadata and tensors, and everything that stands in the way of it.

use std::collections::{BTreeMap, BTreeSet};

use redraft_gguf::{DType, Metadata, Shown, codec};

use super::ConvertOptions;
use super::folder::{Folder, Source};
use super::hf::{HfSpec, Name, Rows, Setting, Tensor};
use super::rows::{Data, Planned, RowOrder, dims};
use super::tokenizer_json::{TokenizerFiles, Wanted, add_tokenizer};
use crate::arch::{ARCHS, ArchSpec, SHIFT};
use crate::file_type::id_of;

/// Name of the token embedding, whose rows are the vocabulary.
const EMBEDDING: &str = "token_embd.weight";

/// Name of the output head.
const OUTPUT: &str = "output.weight";

/// Lines of one kind of problem that are shown.
const SHOWN: usize = 20;

/// A file to be written.
pub(super) struct Plan<'a> {
    pub(super) arch: &'static ArchSpec,
    pub(super) hf: &'static HfSpec,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<Planned<'a>>,
    /// Tensors of the checkpoint that are left out.
    pub(super) left_out: usize,
    pub(super) notes: Vec<String>,
}

/// A place in the file: layer (0 for none), place in the table; and what comes there: the expert, the tensor, how.
type Places<'a> = BTreeMap<(usize, String), Vec<(Option<usize>, &'a str, &'a Source, Rows)>>;

impl<'a> Plan<'a> {
    /// `tokenizer`: the folder's, which go into the metadata.
    ///
    /// # Errors
    /// Everything that is wrong with the checkpoint.
    pub(super) fn new(
        folder: &'a Folder,
        tokenizer: TokenizerFiles,
        name: &str,
        options: &ConvertOptions,
    ) -> Result<Plan<'a>, Vec<String>> {
        let (arch, hf) = architecture(folder, options)?;
        let mut problems: Vec<String> =
            hf.demands.iter().copied().flatten().filter_map(|d| folder.config.refused(d)).collect();
        let plain = |d: DType| codec(d).is_some_and(|c| c.block_len() == 1 && c.encoder().is_some());
        if let Some(dtype) = options.dtype.filter(|&d| !plain(d)) {
            problems
                .push(format!("{dtype}: matrices become F32, F16 or BF16 here, and block types afterwards"));
        }
        let mut notes = Vec::new();
        let (places, left_out) = places(folder, hf, &mut problems);
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", arch.name);
        metadata.set("general.type", "model");
        metadata.set("general.name", options.name.as_deref().unwrap_or(name));
        let rows = places
            .iter()
            .find(|((_, gguf), _)| gguf == EMBEDDING)
            .and_then(|(_, parts)| embedded(parts[0].2));
        if rows.is_none() {
            let name = hf.tensors().find(|t| t.gguf == EMBEDDING).map_or(EMBEDDING, |t| t.hf);
            problems.push(format!("{name} is missing or has no rows, and with it the vocabulary"));
        }
        let vocab_len = rows.unwrap_or(1) as u32;
        match folder.config.size(&["vocab_size", "text_config.vocab_size"]) {
            Ok(Some(n)) if rows.is_some() && n != vocab_len => {
                problems.push(format!(
                    "config.json: `vocab_size` is {n}, but the embedding has {vocab_len} rows"
                ));
            }
            Ok(_) => {}
            Err(e) => problems.push(e),
        }
        for key in hf.keys.iter().copied().flatten() {
            match folder.config.value(key, vocab_len, options.block_len, &mut notes) {
                Ok(Some(value)) if key.name.starts_with("diffusion.") => metadata.set(key.name, value),
                Ok(Some(value)) => metadata.set(format!("{}.{}", arch.name, key.name), value),
                Ok(None) => {}
                Err(e) => problems.push(e),
            }
        }
        if let Some(shifted) = arch.shifted {
            metadata.set(SHIFT, shifted);
        }
        let block = |k: &&super::Key| matches!(k.from, Setting::Block(..));
        if options.block_len.is_some() && !hf.keys.iter().copied().flatten().any(|k| block(&k)) {
            problems.push(format!("--block-length: {} does not read in blocks", arch.name));
        }
        let mut tensors = Vec::new();
        for (made, values) in hf.made.iter().map(|m| (m, (m.values)(&folder.config))) {
            match values {
                Ok(values) => tensors.push(Planned {
                    name: made.gguf.into(),
                    from: "config.json".into(),
                    dims: vec![values.len() as u64],
                    dtype: DType::F32,
                    data: Data::Made(values),
                }),
                Err(e) => problems.push(e),
            }
        }
        for ((_, gguf), parts) in places {
            match planned(gguf, parts, &metadata, arch.name, options.dtype) {
                Ok(planned) => tensors.push(planned),
                Err(e) => problems.push(e),
            }
        }
        let wanted = Wanted {
            rows: vocab_len as usize,
            pre: arch.pre.unwrap_or_default(),
            forced_pre: options.pre.as_deref(),
            add_bos: hf.add_bos,
        };
        // Without a vocabulary every token would be outside of it.
        if rows.is_some() {
            let added = add_tokenizer(&mut metadata, tokenizer, &folder.config, &wanted, &mut notes);
            problems.extend(added.err().unwrap_or_default());
        }
        let unread = folder.config.unread(hf.inert.iter().copied().flatten().copied());
        if !unread.is_empty() {
            let more = unread.len().saturating_sub(SHOWN);
            let shown: Vec<String> = unread.iter().take(SHOWN).map(|p| format!("`{}`", Shown(p))).collect();
            notes.push(format!(
                "config.json has settings that are not known here: {}{}; if one of them changes what the model computes, \
                 the file computes something else",
                shown.join(", "),
                if more > 0 { format!(" and {more} more") } else { String::new() }
            ));
        }
        metadata.set("general.quantization_version", 2u32);
        if let Some(id) = id_of(most(&tensors)) {
            metadata.set("general.file_type", id);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Plan { arch, hf, metadata, tensors, left_out, notes })
    }

    /// A line about a tensor of the file, with its names in the checkpoint.
    pub(super) fn explain(&self, line: &str) -> String {
        let name = line.split(':').next().unwrap_or(line);
        if let Some(t) = self.tensors.iter().find(|t| t.name == name) {
            return format!("{line} (it is {})", t.from);
        }
        let pattern = Name::new(name);
        let n = pattern.layer.map(|n| n.to_string()).unwrap_or_default();
        match self.hf.tensors().find(|t| t.gguf == pattern.pattern) {
            Some(t) => format!("{line} (it would be {})", t.hf.replace("{N}", &n)),
            None => line.into(),
        }
    }
}

/// The type that most bytes have.
fn most(tensors: &[Planned<'_>]) -> DType {
    let mut sums: BTreeMap<DType, u64> = BTreeMap::new();
    for t in tensors {
        *sums.entry(t.dtype).or_default() += t.elements().unwrap_or(0);
    }
    sums.into_iter().max_by_key(|&(_, n)| n).map_or(DType::F32, |(d, _)| d)
}

/// Rows of an embedding, each of which has bytes.
fn embedded(source: &Source) -> Option<u64> {
    let rows = source.shape.first().copied().filter(|&n| n <= source.bytes.len() as u64);
    rows.filter(|n| (1..1 << 24).contains(n))
}

/// Where each tensor goes, and how many go nowhere.
fn places<'a>(folder: &'a Folder, hf: &HfSpec, problems: &mut Vec<String>) -> (Places<'a>, usize) {
    let tied_paths = &["tie_word_embeddings", "text_config.tie_word_embeddings", "weight_tying"];
    let tied = folder.config.flag(tied_paths).unwrap_or_else(|e| {
        problems.push(e);
        None
    });
    let mut places = Places::new();
    let (mut left_out, mut extra, mut head) = (0, Vec::new(), false);
    for (name, source) in &folder.tensors {
        let own = Name::new(name);
        let mut found = hf.places(&own);
        let other = hf.other_name(name).filter(|_| found.is_empty());
        let mut place = own;
        if let Some(other) = &other {
            if let Some(there) = folder.tensors.get(other) {
                // The same tensor twice: the values must be the same, too.
                if !same_tensor(there, source) {
                    problems.push(format!(
                        "{} is not what {} is, as it should be",
                        Shown(name),
                        Shown(other)
                    ));
                }
                left_out += 1;
                continue;
            }
            place = Name::new(other);
            found = hf.places(&place);
        }
        if found.is_empty() {
            match hf.ignores(name) {
                true => left_out += 1,
                false => extra.push(name.as_str()),
            }
        }
        for (at, t) in found {
            if t.gguf == OUTPUT {
                head = true;
                if tied == Some(true) {
                    let embedding = hf.tensors().find(|t| t.gguf == EMBEDDING).map_or(EMBEDDING, |t| t.hf);
                    if folder.tensors.get(embedding).is_some_and(|e| !same_tensor(e, source)) {
                        problems.push(format!(
                            "{} is not what {embedding} is, though config.json says that they are one \
                             (`tie_word_embeddings`)",
                            Shown(name)
                        ));
                    }
                    left_out += 1;
                    continue;
                }
            }
            // Names in the table come in the order of the file.
            let layer = place.layer.filter(|_| t.hf.contains("{N}"));
            let gguf = layer.map_or_else(|| t.gguf.into(), |n| t.gguf.replace("{N}", &n.to_string()));
            let first = hf.tensors().position(|first| first.gguf == t.gguf).unwrap_or(at);
            let order =
                layer.map_or(0, |n| n.saturating_add(1)).saturating_mul(1 << 10).saturating_add(first);
            let expert = place.expert.filter(|_| t.hf.contains("{E}"));
            places.entry((order, gguf)).or_default().push((expert, name.as_str(), source, t.rows));
        }
    }
    if tied == Some(false) && !head {
        let name = hf.tensors().find(|t| t.gguf == OUTPUT).map_or(OUTPUT, |t| t.hf);
        problems.push(format!(
            "{name} is missing, and config.json says that the embedding does not stand in for it"
        ));
    }
    problems.extend(extra.iter().map(|n| format!("{} is nothing that this architecture has", Shown(n))));
    (places, left_out)
}

fn same_tensor(a: &Source, b: &Source) -> bool {
    (a.dtype, &a.shape) == (b.dtype, &b.shape) && a.bytes[..] == b.bytes[..]
}

/// A tensor of the file from its parts; an error is what does not fit.
fn planned<'a>(
    gguf: String,
    mut parts: Vec<(Option<usize>, &'a str, &'a Source, Rows)>,
    metadata: &Metadata,
    arch: &str,
    dtype: Option<DType>,
) -> Result<Planned<'a>, String> {
    parts.sort_by_key(|p| p.0);
    let &(first_expert, name, first, rows) = &parts[0];
    let stacked = first_expert.map(|_| parts.len() as u64);
    match stacked {
        Some(n) => {
            if let Some((i, part)) = parts.iter().enumerate().find(|(i, p)| p.0 != Some(*i)) {
                let found = part.0.map_or("all of them in one".into(), |e| e.to_string());
                return Err(format!("{gguf}: {}: expected expert {i} of {n}, found {found}", Shown(part.1)));
            }
        }
        None if parts.len() > 1 => {
            return Err(format!("{gguf}: both {} and {} are there", Shown(name), Shown(parts[1].1)));
        }
        None => {}
    }
    if let Some(other) = parts.iter().find(|p| p.2.shape != first.shape) {
        return Err(format!(
            "{}: expected the shape {:?} of {}, found {:?}",
            Shown(other.1),
            first.shape,
            Shown(name),
            other.2.shape
        ));
    }
    let odd = |what: String| format!("{gguf}: {} {what}", Shown(name));
    let dims = dims(&first.shape, rows, stacked).map_err(odd)?;
    let order = match rows {
        Rows::Same => RowOrder::Same,
        Rows::Half(part) => RowOrder::Half(part),
        Rows::Paired(key) => {
            let key = format!("{arch}.{key}");
            let heads = metadata.opt_u64(&key).ok().flatten().filter(|&n| n > 0);
            let even = |n: &u64| dims[1].is_multiple_of(n.saturating_mul(2));
            let heads = heads.filter(even).ok_or_else(|| {
                odd(format!("has {} rows, which {key} does not divide into heads with halves", dims[1]))
            })?;
            RowOrder::Paired(heads)
        }
    };
    let mixed = parts.iter().any(|p| p.2.dtype != first.dtype);
    let kept = if mixed { DType::F32 } else { first.dtype };
    // Norms, biases, scales and routers.
    let always_f32 = dims.len() == 1 || gguf.ends_with("ffn_gate_inp.weight");
    let dtype = if always_f32 { DType::F32 } else { dtype.unwrap_or(kept) };
    let from = match stacked {
        Some(n) => format!("{name} and its kind, {n} in all"),
        None => name.to_owned(),
    };
    Ok(Planned {
        name: gguf,
        from,
        dims,
        dtype,
        data: Data::Sources(parts.iter().map(|p| p.2).collect(), order),
    })
}

/// The architecture of a checkpoint.
fn architecture(
    folder: &Folder,
    options: &ConvertOptions,
) -> Result<(&'static ArchSpec, &'static HfSpec), Vec<String>> {
    let known = || ARCHS.iter().filter_map(|a| Some((a, a.hf?)));
    let names = || known().map(|(a, _)| a.name).collect::<Vec<_>>().join(", ");
    if let Some(asked) = &options.arch {
        let found = known().find(|(a, _)| a.name == asked);
        return found
            .ok_or_else(|| vec![format!("--arch: expected one of {}, found {}", names(), Shown(asked))]);
    }
    let stated =
        folder.config.get(&["architectures"]).and_then(|(_, a)| a.get(0)?.as_str()).unwrap_or_default();
    let kind = folder.config.get(&["model_type"]).and_then(|(_, t)| t.as_str()).unwrap_or_default();
    let by_class = known().find(|(_, hf)| hf.classes.contains(&stated));
    let by_type = || known().find(|(_, hf)| stated.is_empty() && hf.model_types.contains(&kind));
    if let Some(found) = by_class.or_else(by_type) {
        return Ok(found);
    }
    let what = match (stated, kind) {
        ("", "") => "config.json names no architecture".to_owned(),
        _ => {
            format!("config.json: architecture {} (`model_type` {}) is not known", Shown(stated), Shown(kind))
        }
    };
    let lines = vec![format!("{what}; known: {}; `--arch NAME` takes it for one of these", names())];
    // A class is compared with classes, and a kind with kinds.
    let near = |hf: &HfSpec| {
        let classes = hf.classes.iter().map(|c| distance(c, stated)).min();
        let kinds = hf.model_types.iter().map(|t| distance(t, kind)).min();
        classes.unwrap_or(usize::MAX).saturating_add(kinds.unwrap_or(usize::MAX))
    };
    let Some((arch, hf)) = known().min_by_key(|(_, hf)| near(hf)) else { return Err(lines) };
    Err([lines, differences(folder, arch, hf)].concat())
}

/// What is not as the architecture would have it.
fn differences(folder: &Folder, arch: &ArchSpec, hf: &HfSpec) -> Vec<String> {
    let mut lines =
        vec![format!("the nearest is {} ({}), to which this is strange:", arch.name, hf.classes.join(", "))];
    let mut unknown = BTreeSet::new();
    let mut known = BTreeSet::new();
    for name in folder.tensors.keys().filter(|n| !hf.ignores(n)) {
        let pattern = Name::new(name);
        match hf.places(&pattern).is_empty() {
            true => unknown.insert(pattern.pattern),
            false => known.insert(pattern.pattern),
        };
    }
    lines.extend(unknown.iter().take(SHOWN).map(|p| format!("  tensor {}", Shown(p))));
    let missing = hf.tensors().filter(|t: &&Tensor| !known.contains(t.hf) && !t.hf.contains(".experts."));
    lines.extend(missing.take(SHOWN).map(|t| format!("  no tensor {}", t.hf)));
    let settings = hf.keys.iter().copied().flatten();
    let problems = settings.filter_map(|k| folder.config.value(k, 1, Some(1), &mut Vec::new()).err());
    lines.extend(problems.map(|e| format!("  {e}")));
    lines.extend(
        hf.demands.iter().copied().flatten().filter_map(|d| Some(format!("  {}", folder.config.refused(d)?))),
    );
    lines
}

/// How many letters are to be changed, added or taken away; upper and lower case are one.
fn distance(a: &str, b: &str) -> usize {
    let letters = |s: &str| s.chars().take(100).flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_little_are_near() {
        assert_eq!(distance("DreamModel", "dreammodel"), 0);
        assert_eq!(distance("SDARForCausalLM", "SDARV2ForCausalLM"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
