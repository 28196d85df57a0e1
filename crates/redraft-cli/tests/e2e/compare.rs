//! `redraft compare`: rows, limits of one's own, pages, and the commands of `docs/parity.md`.

use redraft::trace::{Elements, TraceFile};
use serde_json::Value;

use crate::{json, ok, redraft, testdata};

/// A folder with a golden of two layers and three rows, and a candidate whose second layer is wrong in the last one.
fn files() -> (tempfile::TempDir, String, String) {
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let mut golden = TraceFile::default();
    for name in ["dec/l_out-0", "dec/l_out-1", "logits"] {
        golden.insert(name, vec![3, 2], Elements::F32([3.0, 4.0].repeat(3)));
    }
    golden.metadata.insert("reference".into(), "</table><script>alert(1)</script>".into());
    let mut candidate = golden.clone();
    candidate.insert("dec/l_out-1", vec![3, 2], Elements::F32(vec![3.0, 4.0, 3.0, 4.0, 3.0, 6.5]));
    let write = |name: &str, file: &TraceFile| {
        let path = dir.path().join(name);
        std::fs::write(&path, file.to_bytes()).expect("a file");
        path.display().to_string()
    };
    let (golden, candidate) = (write("golden.safetensors", &golden), write("<mine>.safetensors", &candidate));
    (dir, candidate, golden)
}

#[test]
fn rows_have_figures_worst_first_or_in_order() {
    let (_dir, mine, golden) = files();
    let done = redraft(&["compare", "--rows", "worst", &mine, &golden]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let rows: Vec<&str> = done.out.lines().filter(|l| l.contains('[')).collect();
    assert_eq!(rows.len(), 9, "{}", done.out);
    // 2.5 more of a length of 5.
    assert!(rows[0].contains("DIFFERS  dec/l_out-1[2]") && rows[0].contains(" 2.500e-1 "), "{}", rows[0]);
    assert!(rows[1].contains("dec/l_out-0[0]"), "equal ones in order: {}", rows[1]);
    assert!(done.out.ends_with("1 of 3 tensors differ, first dec/l_out-1\n"), "{}", done.out);
    let args = ["compare", "--json", "--rows", "order", "--only", "l_out", &mine, &golden];
    let v: Value = serde_json::from_str(&redraft(&args).out).expect("stdout is JSON");
    let found: Vec<_> = v["by_row"].as_array().unwrap().iter().map(|r| (&r["row"], &r["ok"])).collect();
    let (yes, no) = (Value::from(true), Value::from(false));
    let numbers = [0, 1, 2].map(Value::from);
    assert_eq!(
        found[..4],
        [(&numbers[0], &yes), (&numbers[1], &yes), (&numbers[2], &yes), (&numbers[0], &yes)]
    );
    assert_eq!((found.len(), found[5]), (6, (&numbers[2], &no)));
    assert_eq!(v["by_row"][5]["nmse"], 0.25);
    assert!(json(&["compare", &golden, &golden]).get("by_row").is_none());
}

#[test]
fn limits_of_ones_own_decide_by_name() {
    let (dir, mine, golden) = files();
    let path = dir.path().join("limits.json");
    let file = path.display().to_string();
    // Of the three rows of 25 the difference is 6.25; the cosine is that of 25 + 25 + 35.
    for (limits, code) in [
        (r#"{"l_out-1": {"nmse": 0.0834, "one_minus_cos": 1}}"#, 0),
        (r#"{"l_out-1": {"nmse": 0.0833, "one_minus_cos": 1}}"#, 1),
        (r#"{"l_out-0": {"nmse": 1, "one_minus_cos": 1}}"#, 1),
        (r#"{"*": {"nmse": 1, "one_minus_cos": 1}, "dec/*": {"max_abs": 2.4}}"#, 1),
        (r#"{"l_out": {"mse": 1}}"#, 2),
    ] {
        std::fs::write(&path, limits).unwrap();
        let done = redraft(&["compare", "--limits", &file, &mine, &golden]);
        assert_eq!(done.code, Some(code), "{limits}: {}{}", done.out, done.err);
    }
    let done = redraft(&["compare", "--limits", &file, &mine, &golden]);
    assert!(done.err.contains("limits.json: l_out: unknown field `mse`"), "{}", done.err);
}

#[test]
fn a_page_shows_pictures_and_tables_and_nothing_of_others() {
    let (dir, mine, golden) = files();
    let page = dir.path().join("page.html").display().to_string();
    let done = redraft(&["compare", "--html", &page, &mine, &golden]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(!done.out.contains('['), "rows are shown when they are asked for");
    let html = std::fs::read_to_string(&page).expect("a page");
    assert_eq!((html.matches("<svg").count(), html.matches("<table>").count()), (2, 3));
    // Nine rows; the scale has one decade (0.5 is between 0.1 and 1), and zero.
    assert_eq!(html.matches("<rect").count(), 9 + 1 + 1, "{html}");
    assert_eq!(html.matches("<circle").count(), 3, "a point for each tensor");
    assert!(html.contains("1 of 3 tensors differ, first dec/l_out-1"), "{html}");
    assert!(!html.contains("<script") && html.contains("&lt;/table&gt;&lt;script&gt;alert(1)"), "{html}");
    assert!(html.contains("&lt;mine&gt;.safetensors") && !html.contains("<mine>"), "{html}");
    // The name of what SVG is is the only address.
    assert_eq!(html.matches("http").count(), 2 + 1, "and the policy's http-equiv: {html}");
    for asked_for in ["src=", "href=", "url(", "@import"] {
        assert!(!html.contains(asked_for), "{asked_for}");
    }
    let all = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(all, 3, "nothing else is left");

    // Neither input is overwritten, and a page is written only where something was compared.
    let before = std::fs::read(&golden).unwrap();
    assert_eq!(redraft(&["compare", "--html", &golden, &mine, &golden]).code, Some(2));
    assert_eq!(std::fs::read(&golden).unwrap(), before);
    let mut other = TraceFile::default();
    other.insert("other", vec![1], Elements::F32(vec![1.0]));
    std::fs::write(&mine, other.to_bytes()).unwrap();
    std::fs::remove_file(&page).unwrap();
    assert_eq!(redraft(&["compare", "--html", &page, &mine, &golden]).code, Some(2));
    assert!(!std::path::Path::new(&page).exists());
}

/// What is between two marks of the page.
fn table<'a>(page: &'a str, name: &str) -> impl Iterator<Item = Vec<&'a str>> {
    let (_, rest) = page.split_once(&format!("<!-- {name} -->\n")).expect("the table begins");
    let (table, _) = rest.split_once("<!-- end -->").expect("the table ends");
    let cells =
        |line: &'a str| line.trim_matches('|').split('|').map(|c| c.trim().trim_matches('`')).collect();
    table.lines().skip(2).map(cells)
}

/// The commands of `docs/parity.md` give its figures.
#[test]
fn the_commands_of_the_page_of_parity_give_its_figures() {
    let page = std::fs::read_to_string(testdata("../docs/parity.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mine = dir.path().join("mine.safetensors").display().to_string();
    let mut seen = 0;
    for model in ["dg-mini.F32", "dream-tiny.F16"] {
        let [_, folder, _, case, _] = table(&page, "models").find(|row| row[2] == model).unwrap()[..] else {
            panic!("five columns")
        };
        let gguf = testdata(&format!("{folder}/models/{model}.gguf")).display().to_string();
        let golden = testdata(&format!("{folder}/cases/{model}.{case}.safetensors")).display().to_string();
        for way in table(&page, "ways") {
            let flags: Vec<&str> = way[1].split(' ').collect();
            let args = [&["trace", "-m", &gguf, "--like", &golden, "-o", &mine], &flags[..]].concat();
            ok(&args);
            let done = redraft(&["compare", "--json", &mine, &golden]);
            let v: Value = serde_json::from_str(&done.out).unwrap();
            let logits = v["rows"].as_array().unwrap().iter().find(|r| r["name"] == "logits").unwrap();
            let row = table(&page, "passes").find(|row| row[..2] == [model, way[0]]).unwrap();
            for (cell, name) in row[2..5].iter().zip(["one_minus_cos", "nmse", "max_abs"]) {
                let x = logits[name].as_f64().unwrap();
                match cell.strip_prefix("< ") {
                    Some(most) => assert!(x < most.parse().unwrap(), "{row:?}: {name} {x}"),
                    None => assert_eq!(format!("{x:.1e}"), *cell, "{row:?}: {name}"),
                }
            }
            let argmax = logits["argmax"].as_array().unwrap();
            assert_eq!(format!("{}/{}", argmax[0], argmax[1]), row[5], "{row:?}");
            seen += 1;
        }
    }
    assert_eq!(seen, 10);
}
