//! Schemas as languages: what is in them, and what is refused.

use serde_json::json;

use super::super::automaton::{MAX_STATES, MAX_WORK};
use super::*;

#[track_caller]
fn check(schema: Value, within: &[&str], without: &[&str]) {
    let a = Automaton::new(&language(&schema).unwrap()).unwrap();
    within.iter().for_each(|t| assert!(a.contains(t.as_bytes()), "{t} is in"));
    without.iter().for_each(|t| assert!(!a.contains(t.as_bytes()), "{t} is not in"));
}

#[test]
fn objects_have_their_names_in_order() {
    let schema = json!({
        "properties": {"a": {"type": "null"}, "b": {"const": 1}, "c": {"type": "null"}, "d": {"const": 2}},
        "required": ["b"],
    });
    check(
        schema,
        &[
            r#"{"b":1}"#,
            r#"{"a": null, "b": 1}"#,
            r#"{"b":1,"c":null}"#,
            r#"{"b":1, "d":2}"#,
            r#"{"a":null,"b":1,"c":null,"d":2}"#,
        ],
        &[
            "{}",
            r#"{"a":null}"#,
            r#"{"b":1,"a":null}"#,
            r#"{"b":1,}"#,
            r#"{,"b":1}"#,
            r#"{"b":1,"e":3}"#,
            r#"{"b":1,"b":1}"#,
        ],
    );
    let free = json!({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}}});
    check(
        free,
        &["{}", r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a":1,"b":2}"#],
        &[r#"{"b":2,"a":1}"#, r#"{"a":1,}"#],
    );
    let map = json!({"type": "object", "additionalProperties": {"type": "boolean"}});
    check(map, &["{}", r#"{"x": true,"y":false}"#], &[r#"{"x":1}"#]);
    check(json!({"type": "object", "additionalProperties": false}), &["{}"], &[r#"{"a":1}"#]);
}

#[test]
fn lists_have_their_lengths() {
    let first = json!({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 1, "maxItems": 4});
    check(first, &["[1]", "[1,2]", "[1, 2,3]", "[1,2,3,3]"], &["[]", "[2]", "[1,3]", "[1,2,3,3,3]", "[1,]"]);
    let short = json!({"prefixItems": [{"const": 1}, {"const": 2}], "maxItems": 1});
    check(short, &["[]", "[1]"], &["[1,2]"]);
    check(
        json!({"items": {"type": "null"}, "minItems": 2}),
        &["[null,null]", "[null, null, null]"],
        &["[null]", "[]"],
    );
}

#[test]
fn references_end_somewhere() {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {
            "type": "object",
            "properties": {"v": {"const": 1}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"],
        }},
    });
    let nested = |n: usize| r#"{"v":1,"next":"#.repeat(n) + "null" + &"}".repeat(n);
    let all: Vec<String> = (1..8).map(nested).collect();
    let a = Automaton::new(&language(&tree).unwrap()).unwrap();
    let deepest = all.iter().take_while(|t| a.contains(t.as_bytes())).count();
    assert_eq!(deepest, DEPTH as usize + 1);
    // Nothing ends it.
    let endless = json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1});
    assert!(matches!(Automaton::new(&language(&endless).unwrap()), Err(ConstrainError::Empty)));
    // Longer than any schema that is written down.
    let defs: Map<String, Value> = (0..200)
        .map(|i| (format!("d{i}"), json!({"items": {"$ref": format!("#/$defs/d{}", i + 1)}})))
        .collect();
    let long = json!({"$ref": "#/$defs/d0", "$defs": defs});
    assert!(matches!(language(&long), Err(ConstrainError::TooLarge { limit: MAX_NESTING, .. })));
    // Few levels that are written down, each of which refers to many in one another: with what is at the limit all of
    // the way from the schema to the automaton is within the stack of a small thread.
    let defs = |n: usize| -> Map<String, Value> {
        let items =
            |to: String, levels| (0..levels).fold(json!({"$ref": to}), |inner, _| json!({"items": inner}));
        let one = |i: usize| (format!("d{i}"), items(format!("#/$defs/d{}", i + 1), 62));
        (0..n).map(one).chain([(format!("d{n}"), json!({"type": "array", "items": {"const": 1}}))]).collect()
    };
    let chained = move |n| json!({"$ref": "#/$defs/d0", "$defs": defs(n)});
    assert!(matches!(language(&chained(64)), Err(ConstrainError::TooLarge { limit: MAX_NESTING, .. })));
    let compile = move || Automaton::new(&language(&chained(4)).unwrap()).unwrap().len();
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    assert!(thread.spawn(compile).unwrap().join().unwrap() > 250);
    // Each of several references to itself multiplies what there is.
    let member = json!({"$ref": "#"});
    let names: Map<String, Value> = (0..40).map(|i| (format!("n{i}"), member.clone())).collect();
    let wide = json!({"type": "object", "properties": names});
    assert!(matches!(language(&wide), Err(ConstrainError::TooLarge { limit: MAX_SCHEMAS, .. })));
}

/// Each place that refers to a schema does the work that it asks for again.
#[test]
fn work_and_parts_are_counted_over_the_whole_schema() {
    let limit = |schema: Value| match language(&schema) {
        Err(ConstrainError::TooLarge { limit, .. }) => Some(limit),
        other => other.map(|_| None).unwrap(),
    };
    let often = |n: usize, of: Value| {
        let member = json!({"$ref": "#/$defs/it"});
        let names: Map<String, Value> = (0..n).map(|i| (format!("n{i}"), member.clone())).collect();
        json!({"properties": names, "required": names.keys().collect::<Vec<_>>(), "$defs": {"it": of}})
    };
    // The pattern of each has thousands of states.
    let typed = json!({"enum": ["aa", 3], "type": "string", "pattern": "^(.{3}){400}|aa$"});
    assert_eq!(limit(often(3, typed.clone())), None);
    assert_eq!(limit(often(1000, typed)), Some(MAX_WORK));
    let long = json!({"enum": ["x".repeat(2000), "y".repeat(2000)]});
    assert_eq!(limit(often(10, long.clone())), None);
    assert_eq!(limit(often(1000, long)), Some(MAX_PARTS));
    assert_eq!(limit(often(100, json!({"type": "string", "pattern": r"\p{L}+"}))), None);
    assert_eq!(limit(often(1000, json!({"type": "string", "pattern": r"\p{L}+"}))), Some(MAX_PARTS));
    let optional: Map<String, Value> =
        (0..MAX_MEMBERS).map(|i| (format!("n{i}"), json!({"const": 1}))).collect();
    let optional = json!({"properties": optional});
    assert_eq!(limit(optional.clone()), None);
    assert_eq!(limit(often(3, optional)), Some(MAX_PARTS));
    // What cannot be looked at is an error, not a value that does not fit.
    let wide = json!({"enum": ["a"], "type": "string", "pattern": "^(a|b){20000}$"});
    assert_eq!(limit(wide), Some(MAX_STATES));
}

#[test]
fn bounds_that_exclude_each_other_leave_nothing() {
    for schema in [
        json!({"type": "string", "minLength": 3, "maxLength": 2}),
        json!({"items": {"const": 1}, "minItems": 2, "maxItems": 1}),
        json!({"prefixItems": [{"const": 1}, {"const": 1}], "minItems": 2, "maxItems": 1}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"type": "number", "minimum": 3, "exclusiveMaximum": 3}),
        json!({"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3}),
        json!({"type": "array", "items": false, "minItems": 1}),
    ] {
        assert!(
            matches!(Automaton::new(&language(&schema).unwrap()), Err(ConstrainError::Empty)),
            "{schema}"
        );
    }
}

#[test]
fn deep_schemas_take_little_of_the_stack() {
    let mut deep = json!({"type": "null"});
    for _ in 0..60 {
        let mut items = vec![json!({"const": 1}); 16];
        items[16 - 1] = deep;
        deep = json!({"prefixItems": items, "items": false});
    }
    let compile = move || Automaton::new(&language(&deep).unwrap()).unwrap().len();
    let thread = std::thread::Builder::new().stack_size(1 << 20);
    assert!(thread.spawn(compile).unwrap().join().unwrap() > 60);
}

#[test]
fn formats_are_what_they_say() {
    let format = |f: &str| json!({"type": "string", "format": f});
    check(
        format("date"),
        &["\"2024-02-28\"", "\"1999-12-31\""],
        &["\"2024-02-30\"", "\"2024-13-01\"", "\"24-1-1\""],
    );
    check(
        format("date-time"),
        &["\"2024-04-30T23:59:59Z\"", "\"2024-04-30T00:00:00.5+02:00\""],
        &["\"2024-04-31T00:00:00Z\"", "\"2024-04-30\""],
    );
    check(format("uuid"), &["\"123e4567-e89b-12d3-a456-426614174000\""], &["\"123e4567\""]);
    check(format("ipv4"), &["\"127.0.0.1\"", "\"255.255.255.255\""], &["\"256.0.0.1\"", "\"1.2.3\""]);
}

#[test]
fn what_is_not_supported_is_named_with_its_place() {
    let problem = |schema: Value| language(&schema).map(|_| ()).unwrap_err().to_string();
    for (schema, place, what) in [
        (json!({"oneOf": [true]}), "#:", "\"oneOf\" is not supported: use \"anyOf\""),
        (json!({"items": {"not": {}}}), "#/items:", "\"not\""),
        (json!({"properties": {"a/b": {"uniqueItems": true}}}), "#/properties/a~1b:", "\"uniqueItems\""),
        (json!({"anyOf": [true, {"if": true}]}), "#/anyOf/1:", "\"if\""),
        (json!({"anyOf": [true], "type": "null"}), "#:", "\"type\" beside \"anyOf\""),
        (json!({"allOf": [true, true]}), "#:", "\"allOf\" of several"),
        (json!({"$ref": "#/$defs/x"}), "#:", "\"#/$defs/x\""),
        (json!({"$ref": "http://x/y"}), "#:", "expected a place in this schema"),
        (json!({"type": "text"}), "#:", "expected one of object, array"),
        (
            json!({"type": "string", "minLength": -1}),
            "#:",
            "\"minLength\": expected a natural number, found -1",
        ),
        (json!({"type": "string", "minLength": 1, "pattern": "a"}), "#:", "beside each other"),
        (json!({"type": "string", "format": "email"}), "#:", "found \"email\""),
        (json!({"type": "string", "pattern": "a("}), "#:", "unclosed group"),
        (json!({"type": "number", "minimum": 0.5}), "#:", "\"minimum\" of a number: expected an integer"),
        (json!({"required": ["a"]}), "#:", "\"required\" names \"a\""),
        (json!({"required": "a"}), "#:", "\"required\": expected a list"),
        (json!({"properties": [1]}), "#:", "\"properties\": expected an object"),
        (json!({"properties": {"a": 3}}), "#/properties/a:", "expected a schema"),
        (
            json!({"properties": {"a": true}, "additionalProperties": {"not": {}}}),
            "#/additionalProperties:",
            "\"not\"",
        ),
        (json!({"enum": 3}), "#:", "\"enum\": expected a list"),
        (json!({"type": "string", "enum": [1, null]}), "#:", "no value of \"enum\""),
        (json!(7), "#:", "expected a schema"),
    ] {
        let e = problem(schema);
        assert!(e.starts_with(&format!("JSON schema, {place}")) && e.contains(what), "{e}");
    }
    let e = problem(json!({"description": "x".repeat(300_000)}));
    assert!(e.contains("bytes of JSON schema") && e.contains("262144"), "{e}");
    let names: Map<String, Value> = (0..1100).map(|i| (format!("n{i}"), true.into())).collect();
    assert!(problem(json!({"properties": names})).contains("at most 1024 members, found 1100"));
}

#[test]
fn annotations_ask_for_nothing() {
    let schema = json!({"title": "t", "default": 3, "examples": [4], "$schema": "s", "type": ["integer", "null"], "maximum": 3, "minimum": 2});
    check(schema, &["2", "3", "null"], &["4", "1"]);
    check(json!({"enum": [1, 2, 3, "x"], "minimum": 2, "const": 2}), &["2"], &["1", "3", "\"x\""]);
    check(json!({}), &["1", "{}", "[[[1]]]"], &["[[[[1]]]]"]);
}

#[test]
fn references_are_decoded() {
    let schema = json!({
        "anyOf": [{"$ref": "#/$defs/a%20b"}, {"$ref": "#/%24defs/c~1d~0%65"}, {"$ref": "#/$defs/%C3%A9"}],
        "$defs": {"a b": {"const": 1}, "c/d~e": {"const": 2}, "é": {"const": 3}},
    });
    check(schema, &["1", "2", "3"], &["4"]);
    for bad in ["#/$defs/%", "#/$defs/%2", "#/$defs/%zz", "#/$defs/%+1", "#/$defs/%ff", "#/$defs/%é"] {
        let e = language(&json!({"$ref": bad, "$defs": {"%": true, "%2": true}})).unwrap_err().to_string();
        assert!(e.contains("expected a place in this schema"), "{bad}: {e}");
    }
}

/// What nothing refers to asks for nothing.
#[test]
fn definitions_that_nothing_refers_to_are_not_read() {
    let schema = |to: &str| json!({"$ref": to, "$defs": {"good": {"const": 1}, "odd": {"oneOf": [true]}}});
    check(schema("#/$defs/good"), &["1"], &["2"]);
    let e = language(&schema("#/$defs/odd")).unwrap_err().to_string();
    assert!(e.contains("\"oneOf\" is not supported"), "{e}");
}

#[test]
fn numbers_are_exact_or_refused() {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    for exact in ["9007199254740993", "18446744073709551615", "-9223372036854775808", "1e-7", "0.1", "1.5e15"]
    {
        for schema in [
            format!("{{\"const\": {exact}}}"),
            format!("{{\"enum\": [{exact}], \"type\": \"number\", \"maximum\": 18446744073709551615}}"),
            format!("{{\"enum\": [[{exact}]], \"minItems\": 1, \"items\": true}}"),
        ] {
            // The last one is a value of a list, whose numbers are short.
            let node = language(&parse(&schema));
            let Ok(node) = node else {
                assert!(schema.contains("minItems"), "{schema}: {node:?}");
                continue;
            };
            let texts = Automaton::new(&node).unwrap();
            let value = parse(exact).to_string();
            assert!(
                texts.contains(value.as_bytes()) || texts.contains(format!("[{value}]").as_bytes()),
                "{schema}"
            );
            assert_eq!(parse(&value), parse(exact));
        }
    }
    for long in ["18446744073709551616", "-9223372036854775809", "100000000000000000001", "1e300"] {
        for schema in [format!("{{\"const\": {long}}}"), format!("{{\"enum\": [1, {{\"a\": [{long}]}}]}}")] {
            let e = language(&parse(&schema)).unwrap_err().to_string();
            assert!(e.contains("below 2^63"), "{schema}: {e}");
        }
    }
    // Bounds that no number here keeps are said, and those that all keep are none.
    for (key, value) in [("minimum", "1000000000000000"), ("exclusiveMaximum", "-12345678901234567890")] {
        for kind in ["integer", "number"] {
            let e = language(&parse(&format!("{{\"type\": \"{kind}\", \"{key}\": {value}}}")))
                .unwrap_err()
                .to_string();
            assert!(e.contains(key) && e.contains("15 digits"), "{e}");
        }
    }
    check(
        parse("{\"type\": \"integer\", \"maximum\": 9007199254740993}"),
        &["999999999999999", "-999999999999999", "0"],
        &["1000000000000000", "1.5"],
    );
    // Listed numbers are compared as numbers, not as texts.
    check(
        parse(
            "{\"enum\": [9007199254740993, 9007199254740992, 2.0, 0.25, 1e-7, \"x\"], \"exclusiveMinimum\": 9007199254740992}",
        ),
        &["9007199254740993", "\"x\""],
        &["9007199254740992", "2.0"],
    );
    check(
        parse("{\"enum\": [2.0, 2.5, -1], \"type\": \"integer\", \"minimum\": 0}"),
        &["2.0"],
        &["2.5", "-1"],
    );
    check(parse("{\"enum\": [1e-7, 0.75], \"maximum\": 0.5}"), &["1e-7"], &["0.75"]);
    let e = language(&parse("{\"enum\": [1], \"minimum\": \"0\"}")).unwrap_err().to_string();
    assert!(e.contains("\"minimum\": expected a number"), "{e}");
}
