//! Random schemas on random logits: every reply is valid.

use serde_json::{Map, Value, json};

use super::*;

/// A generator of its own, from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

/// Printable ASCII, pieces of JSON, and characters of two to four bytes in whole and in bytes.
fn vocabulary() -> Vocabulary {
    let mut texts: Vec<Vec<u8>> = (b' '..=b'~').map(|b| vec![b]).collect();
    let more = [
        "{\"", "\": ", "\":", ", \"", "\"}", "[]", "}", "],", "null", "true", "12", "0.", "e1", "\\n", "ab",
        "\",\"", "€", "é\"", "𝄞", "{}", "\\\"", "\": [", "a\": ",
    ];
    texts.extend(more.map(|t| t.as_bytes().to_vec()));
    texts.extend("é€𝄞".bytes().map(|b| vec![b]));
    let end = texts.len() as u32;
    let texts: Vec<_> = (0..).zip(texts).collect();
    Vocabulary {
        len: texts.len() + 3,
        texts,
        end_ids: vec![end, end + 1],
        pad: Some(end + 2),
        strips_space: false,
    }
}

fn schema(r: &mut Random, depth: u32) -> Value {
    let kinds = if depth == 0 { 8 } else { 13 };
    match r.below(kinds) {
        0 => json!({"type": "string"}),
        1 => {
            let min = r.below(3);
            json!({"type": "string", "minLength": min, "maxLength": min + r.below(4), "title": "t"})
        }
        2 => {
            json!({"type": "string", "pattern": r.of(&["^a+b?$", "[0-9]{2}", "^(x|yz)", r"\d€?$", r"^\S\d$", "."])})
        }
        3 => json!({"type": r.of(&["boolean", "null", "number", "integer"])}),
        4 => {
            let lo = r.below(400) as i64 - 200;
            let key = r.of(&["minimum", "exclusiveMinimum"]);
            let other = r.of(&["maximum", "exclusiveMaximum"]);
            json!({"type": "integer", key: lo, other: lo + 2 + r.below(300) as i64})
        }
        5 => {
            let lo = r.below(6) as i64 - 3;
            let key = r.of(&["minimum", "exclusiveMinimum"]);
            json!({"type": "number", key: lo, "exclusiveMaximum": lo + 1 + r.below(20) as i64})
        }
        6 => json!({"enum": [r.below(50), "a\n\u{1}", null, {"k": [1, "é"]}, [true]]}),
        7 => json!({"type": ["string", "null"], "enum": ["on", null, 5], "description": "d"}),
        8 => {
            let min = r.below(3);
            json!({"type": "array", "items": schema(r, depth - 1), "minItems": min, "maxItems": min + r.below(3)})
        }
        9 => json!({
            "type": "array",
            "prefixItems": [schema(r, depth - 1), schema(r, depth - 1)],
            "items": if r.chance(50) { json!(false) } else { schema(r, depth - 1) },
            "minItems": r.below(3),
        }),
        10 => json!({"anyOf": [schema(r, depth - 1), schema(r, depth - 1)]}),
        11 if r.chance(30) => {
            r.of(&[json!({}), json!(true), json!({"type": "object"}), json!({"type": "array"})])
        }
        11 => json!({"type": "object", "additionalProperties": schema(r, depth - 1)}),
        _ => {
            let names = ["a", "b\"", "c d", "é"];
            let mut properties = Map::new();
            let mut required = Vec::new();
            for name in names.iter().take(r.below(5) as usize) {
                properties.insert((*name).into(), schema(r, depth - 1));
                if r.chance(50) {
                    required.push(*name);
                }
            }
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
        }
    }
}

/// What a schema asks for, said again: keyword by keyword, on values.
fn is_valid(s: &Value, v: &Value) -> bool {
    let Value::Object(s) = s else { return s.as_bool().unwrap() };
    s.iter().all(|(key, asked)| match key.as_str() {
        "type" => {
            let is = |t: &Value| match t.as_str().unwrap() {
                "string" => v.is_string(),
                "boolean" => v.is_boolean(),
                "null" => v.is_null(),
                "number" => v.is_number(),
                "integer" => v.is_i64(),
                "array" => v.is_array(),
                "object" => v.is_object(),
                other => panic!("{other}"),
            };
            asked.as_array().map_or_else(|| is(asked), |all| all.iter().any(is))
        }
        "enum" => asked.as_array().unwrap().contains(v),
        "anyOf" => asked.as_array().unwrap().iter().any(|s| is_valid(s, v)),
        "minLength" => v.as_str().is_none_or(|t| t.chars().count() as u64 >= asked.as_u64().unwrap()),
        "maxLength" => v.as_str().is_none_or(|t| t.chars().count() as u64 <= asked.as_u64().unwrap()),
        "pattern" => v.as_str().is_none_or(|t| {
            // An engine of its own; its classes are those of Unicode, which ASCII text does not tell apart.
            regex_automata::meta::Regex::new(asked.as_str().unwrap()).unwrap().is_match(t)
        }),
        "minimum" => v.as_f64().is_none_or(|x| x >= asked.as_f64().unwrap()),
        "maximum" => v.as_f64().is_none_or(|x| x <= asked.as_f64().unwrap()),
        "exclusiveMinimum" => v.as_f64().is_none_or(|x| x > asked.as_f64().unwrap()),
        "exclusiveMaximum" => v.as_f64().is_none_or(|x| x < asked.as_f64().unwrap()),
        "minItems" => v.as_array().is_none_or(|a| a.len() as u64 >= asked.as_u64().unwrap()),
        "maxItems" => v.as_array().is_none_or(|a| a.len() as u64 <= asked.as_u64().unwrap()),
        "prefixItems" => {
            v.as_array().is_none_or(|a| a.iter().zip(asked.as_array().unwrap()).all(|(v, s)| is_valid(s, v)))
        }
        "items" => v.as_array().is_none_or(|a| {
            let first = s.get("prefixItems").map_or(0, |p| p.as_array().unwrap().len());
            a.iter().skip(first).all(|v| is_valid(asked, v))
        }),
        "properties" => v
            .as_object()
            .is_none_or(|o| o.iter().all(|(name, v)| asked.get(name).is_none_or(|s| is_valid(s, v)))),
        "required" => v
            .as_object()
            .is_none_or(|o| asked.as_array().unwrap().iter().all(|n| o.contains_key(n.as_str().unwrap()))),
        "additionalProperties" => v.as_object().is_none_or(|o| {
            let named = |name: &String| s.get("properties").is_some_and(|p| p.get(name).is_some());
            o.iter().all(|(name, v)| named(name) || is_valid(asked, v))
        }),
        "title" | "description" => true,
        other => panic!("{other}"),
    })
}

/// Random logits, canvas after canvas, the best or a drawn one.
fn reply(c: &Constraint, v: &Vocabulary, r: &mut Random, tokens: usize) -> Vec<u8> {
    let (len, mut state, mut ids) = (1 + r.below(24) as usize, c.start(), Vec::<u32>::new());
    // Some models like some tokens everywhere.
    let liked = r.below(v.len as u64) as usize;
    while ids.len() < tokens && !ids.iter().any(|id| v.end_ids.contains(id)) {
        let mut logits = vec![0f32; len * v.len];
        logits.iter_mut().for_each(|x| *x = r.below(1000) as f32 / 50.0);
        logits.iter_mut().skip(liked).step_by(v.len).for_each(|x| *x += 15.0);
        let span = Span { state, left: tokens - ids.len() };
        let rows: Vec<Row<'_>> = logits.chunks(v.len).map(Row::Logits).collect();
        let uniform: Vec<f64> =
            (0..len).map(|_| (r.below(1 << 20) as f64 + 0.5) / f64::from(1 << 20)).collect();
        let drawing = Drawing { uniform: &uniform, top_k: r.of(&[0, 3]), top_p: r.of(&[1.0, 0.6]) };
        let reading = c.read(&rows, span, Some(drawing), 2).unwrap();
        let canvas = if r.chance(50) { reading.best } else { reading.drawn };
        let text = canvas.iter().position(|id| v.end_ids.contains(id)).unwrap_or(len);
        state = c.after(state, &canvas[..text.min(span.left)]).unwrap();
        ids.extend(canvas);
    }
    ids.truncate(tokens);
    let text = ids.iter().take_while(|id| !v.end_ids.contains(id));
    text.flat_map(|&id| v.texts[id as usize].1.clone()).collect()
}

/// 300 schemas; `REDRAFT_SCHEMAS=10000` takes as many.
#[test]
fn replies_to_random_schemas_are_valid() {
    let n = std::env::var("REDRAFT_SCHEMAS").map_or(300, |n| n.parse().unwrap());
    let v = vocabulary();
    let mut r = Random(11);
    let (mut replies, mut impossible) = (0, 0);
    while replies < n {
        let schema = schema(&mut r, 2);
        let c = match Constraint::new(Language::JsonSchema(schema.clone()), &v) {
            Ok(c) => c,
            Err(ConstrainError::Empty | ConstrainError::Unwritable) => {
                impossible += 1;
                continue;
            }
            Err(e) => panic!("{schema}: {e}"),
        };
        let tokens = c.needed() + r.below(40) as usize;
        if tokens == 0 {
            continue;
        }
        let text = String::from_utf8(reply(&c, &v, &mut r, tokens)).unwrap();
        let value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{schema}: {text:?}: {e}"));
        assert!(is_valid(&schema, &value), "{schema}: {text:?}");
        replies += 1;
    }
    assert!(impossible < n / 10, "{impossible} of the schemas have no reply");
}

#[test]
fn canvases_that_take_too_long_are_refused_with_numbers() {
    let v =
        tokens::tests::vocabulary(&["a", "aa", "aaa", "aaaa", "aaaaa", "aaaaaa", "aaaaaaa", ""], &[7], None);
    let c = Constraint::new(Language::Regex("a{0,8000}".into()), &v).unwrap();
    let f = c.figures();
    assert_eq!((f.states, f.labels), (8002, 8), "each length, and the end; each token, and the end");
    // From each state to the seven after it, as far as there are some, and to the end; one more there.
    let transitions = 7 * 8000 - 21 + 8001 + 1;
    assert_eq!(f.transitions, transitions);
    let rows = MAX_STEP_WORK / (transitions + 8);
    assert_eq!(c.check(9000, rows), Ok(()));
    let Err(ConstrainError::TooLarge { found, limit, .. }) = c.check(9000, rows + 1) else {
        panic!("too long")
    };
    assert_eq!((found, limit), ((rows + 1) * (transitions + 8), MAX_STEP_WORK));
}
