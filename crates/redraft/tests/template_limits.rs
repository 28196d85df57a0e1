//! Templates that want more time or memory than there is: each ends soon, with an error that says where.

#![allow(clippy::unwrap_used)] // helpers of tests fail the test

use std::time::Instant;

use redraft::chat::{ChatError, ChatTemplate, Message, RenderOptions, on_large_stack};
use redraft::compute::cpu::peak::thread_cpu_seconds;

/// Starts two lists that hold themselves twice, sixty times over: 2^60 items to visit, equal ones.
const DOUBLED: &str = "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}\
    {% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}";

/// Ways to look at `ns.l` and `ns.m`.
const LOOKS: [&str; 28] = [
    "{{ ns.l }}",
    "{{ ns.l ~ '' }}",
    "{{ ns.l == ns.m }}",
    "{{ {ns.l: 1} }}",
    "{{ ns.l | tojson }}",
    "{{ [ns.l, ns.m] | sort | length }}",
    "{{ [ns.l, ns.m] | unique | list | length }}",
    "{{ [ns.l, ns.m] | max | length }}",
    "{{ [ns.l].count(ns.m) }}",
    "{{ ns.l in [ns.m] }}",
    "{{ ','.join([ns.l]) | length }}",
    "{{ '{}'.format(ns.l) | length }}",
    "{{ '%s' | format(ns.l) | length }}",
    "{{ ns.l | string | length }}",
    "{{ ns.l | replace('a', 'b') | length }}",
    "{{ ns.l | escape | length }}",
    "{{ raise_exception(ns.l) }}",
    "{{ [ns.l, ns.m] | map('string') | list | length }}",
    "{{ [{'a': ns.l}, {'a': ns.m}] | groupby('a') | length }}",
    "{{ [{'a': ns.l}] | selectattr('a', 'equalto', ns.m) | list }}",
    "{{ ns.l is eq ns.m }}",
    "{{ ns.l is in [ns.m] }}",
    "{{ {'a': ns.l, 'b': ns.m} | dictsort(by='value') | length }}",
    "{% for a in [ns.l, ns.m] %}{{ loop.changed(a) }}{% endfor %}",
    "{% macro f(l) %}{{ l | string }}{% endmacro %}{{ f(ns.l) }}",
    "{% set s %}{{ ns.l }}{% endset %}",
    "{% with l = ns.l + ns.m %}{{ l }}{% endwith %}",
    "{{ (ns.l, ns.m) < (ns.m, ns.l, 1) }}",
];

/// Templates that end with an error. `\n` in one that expects line 2.
const HOSTILE: &[&str] = &[
    // Too long, one step after the other.
    "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{{ range(99999) | list | tojson | length }}",
    "{% filter upper %}{% for i in range(10**9) %}a{% endfor %}{% endfilter %}",
    // Recursion.
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro g() %}{{ caller() }}{% endmacro %}{% macro h() %}{% call g() %}{{ h() }}{% endcall %}{% endmacro %}{{ h() }}",
    "{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{% extends 'chat' %}",
    "{% include 'chat' %}",
    "{% macro f(l, n) %}{% if n %}{{ f(l + l, n - 1) }}{% else %}{{ l }}{% endif %}{% endmacro %}{{ f([1], 60) }}",
    "{% for l in [[1]] recursive %}{{ loop([l + l]) }}{% endfor %}",
    // Wide fields and long texts.
    "{{ '{:>1000000000}'.format('a') }}",
    "{{ '{:.1000000000f}'.format(1.5) }}",
    "{{ ('{0}' * 5000).format('a' * 1000000) | length }}",
    "{{ '%1000000000s' | format('a') }}",
    "{{ 'a' * 10**9 }}",
    "{{ ('a' * 10**8) | length }}",
    "{{ [1] * 10**9 }}",
    "{{ 'a' | indent(10**9) }}",
    "{{ ('a\\n' * 100000) | indent(100000) | length }}",
    "{{ [1] | batch(10**9, 1) | list | length }}",
    "{{ [1] | slice(10**9) | list | length }}",
    "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) | length }}",
    "{{ ('a' * 1000000).replace('', 'b' * 100) | length }}",
    "{{ ('a' * 1000000).split('a') | length }}",
    "{{ range(10000) | map('string') | list | join('x' * 10000) | length }}",
    "{{ ([1] * 100000) | tojson(separators=['x' * 100000, 'y']) | length }}",
    "{{ strftime_now('%A' * 1000000) | length }}",
    "{{ ('y' * 100000).strip('x' * 1000000) }}",
    "{{ ('y' * 100000) | trim('x' * 1000000) }}",
    "{{ 10**10**10 }}",
    "{{ 99999999999999999999999999999999999999999999999999 }}",
    "{{ debug() }}",
    // Doubling.
    "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% endfor %}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | sum }}",
    "{% set ns = namespace(l=['a']) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | join }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l * 2 %}{% endfor %}{{ ns.l | list | length }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l | length }}",
    "{{ ([1] * 90000 * 90000 * 90000 * 90000 * 90000) | length }}",
    "{{ ([1] * 90000 * 90000 * 90000 + [1] * 90000 * 90000 * 90000 * 40000 + [1] * 90000 * 90000 * 90000 * 40000) | length }}",
    "{% set ns = namespace(l=(1, 2)) %}{% for i in range(60) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(x=0) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
    // A long text, gone through many times without a charge.
    "{% set a = 'x' * 1000000 %}{% for i in range(99999) %}{{ a[-1] }}{% endfor %}",
    "{% for a in ['x' * 1000000] %}{% for i in range(99999) %}{{ a[-1] }}{% endfor %}{% endfor %}",
    "{% macro f(a) %}{% for i in range(99999) %}{{ a[-1] }}{% endfor %}{% endmacro %}{{ f('x' * 1000000) }}",
    "{% set ns = namespace(a='x' * 1000000) %}{% for i in range(99999) %}{{ ns.a[-1] }}{% endfor %}",
    "{% set a = 'x' * 16000 %}{% for i in range(99999) %}{% set b = {a: 1}[a] %}{% endfor %}",
    "{% set a = 'x' * 16000 %}{% for i in range(99999) %}{% if a is lower %}{% endif %}{% endfor %}",
];

fn outcome(source: &str) -> Result<(), ChatError> {
    let template = ChatTemplate::from_source(source)?;
    template.render(&[Message::new("user", "<x>")], &RenderOptions::default()).map(drop)
}

/// Seconds that a template may compute. By the clock a busy machine takes longer, which is no fault of the template.
const LIMIT_S: f64 = 1.0;

/// What becomes of a template, and the seconds that its thread computed.
fn timed(source: &str) -> (Result<(), ChatError>, f64) {
    on_large_stack(|| {
        let clock = Instant::now();
        // Where the system does not tell what a thread computed, the clock has to do.
        let now = || thread_cpu_seconds().unwrap_or_else(|| clock.elapsed().as_secs_f64());
        let before = now();
        let result = outcome(source);
        (result, now() - before)
    })
    .unwrap()
}

/// The most memory that this process has had, in bytes, where the system says it.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()? * 1024)
}

#[test]
fn every_template_ends_within_a_second_and_100_mb() {
    let mut failures = Vec::new();
    let mut check = |source: &str| {
        let (result, took) = timed(source);
        if result.is_ok() || took > LIMIT_S {
            failures.push(format!("{source:.120}: {took} s {result:?}"));
        }
    };
    LOOKS.iter().for_each(|look| check(&format!("{DOUBLED}{look}")));
    HOSTILE.iter().for_each(|source| check(source));
    let mib = 1 << 20;
    for (start, unit, end) in [
        ("{{ ", "-", "1 }}"),
        ("{{ ", "not ", "1 }}"),
        ("{{ a", ".b", " }}"),
        ("{{ 1", "|e", " }}"),
        ("{{ a", "[0]", " }}"),
        ("{{ 1", "+1", " }}"),
        ("{{ 1", "\n~1", " }}"),
        ("{{ 1", " if 1 else 1", " }}"),
        ("{{ ", "[", " }}"),
        ("{{ ", "(", " }}"),
        ("{{ [", "[],", "] }}"),
        ("{% if 1 %}", "{% elif 1 %}", "{% endif %}"),
        ("", "{% if 1 %}", ""),
        ("", "{{ 1 }}", ""),
        ("", "{%", ""),
        ("", "{#\n", ""),
        ("", "{% raw %}\n", ""),
        ("{{ '", "<\n", "' }}"),
    ] {
        let times = (mib - start.len() - end.len()) / unit.len();
        check(&format!("{start}{}{end}", unit.repeat(times)));
    }
    assert!(failures.is_empty(), "{failures:#?}");
    if let Some(peak) = peak_bytes() {
        assert!(peak < 100_000_000, "{peak} bytes");
    }
}

/// As deep and as many as is accepted: the largest expressions are read and rendered without harm.
#[test]
fn templates_at_the_limits_are_harmless() {
    for (start, unit, end, times) in [
        ("{{ ", "-", "1 }}", 1_900),
        ("{{ 1", "+1", " }}", 900),
        ("{{ a", ".b", " }}", 900),
        ("{{ 'a'", "\n~'a'", " }}", 900),
        ("{{ 'a'", "+'a'", " }}", 900),
        ("{{ a", " and a", " }}", 900),
        ("{{ [", "[],", "] }}", 600),
        ("{% if 0 %}", "{% elif 0 %}", "{% endif %}", 4_900),
        ("", "{% set a = [a, a] %}", "{{ a }}", 4_900),
        ("", "{{ 'aaaaaaaaaa' }}", "", 4_900),
    ] {
        // Of the tags that hold all of it, as many as the words in all tags allow.
        let tags = if start.starts_with("{{ ") { 25 } else { 1 };
        let source = format!("{start}{}{end}\n", unit.repeat(times)).repeat(tags);
        let (_, took) = timed(&source);
        assert!(took < LIMIT_S, "{start}{unit}: {took} s");
    }
}

#[test]
fn errors_of_limits_name_the_line() {
    let line = |source: &str| outcome(source).unwrap_err().to_string();
    let budget = line("\n{% for i in range(99999) %}{% for j in range(9) %}{% endfor %}{% endfor %}");
    assert!(budget.contains("line 2: rendering needs more than"), "{budget}");
    let visits = line(&format!("\n\n{DOUBLED}\n{{{{ ns.l == ns.m }}}}"));
    assert!(visits.contains("line 3: rendering needs more than"), "{visits}");
    let text = line("\n{% set a = 'x' * 1000000 %}");
    assert!(text.contains("line 2: ") && text.contains("a text of 1000000 bytes is longer"), "{text}");
    let field = line("\n{{ '{:>10000}'.format(1) }}");
    assert!(field.contains("line 2: ") && field.contains("wider than 999"), "{field}");
}

/// Long conversations have budgets that grow with them.
#[test]
fn long_conversations_render() {
    let source = "{%- macro m(x) -%}{{ x | trim }}{%- endmacro -%}{%- set ns = namespace(all=[], n=0) -%}\
        {%- for message in messages -%}{%- set ns.all = ns.all + [message.role] -%}{%- set ns.n = ns.n + 1 -%}\
        {{- '<|turn>' + message.role + m(message.content) + '<turn|>' -}}{%- endfor -%}{{ ns.n }}";
    let template = ChatTemplate::from_source(source).unwrap();
    let messages: Vec<Message> = (0..2000).map(|i| Message::new("user", format!(" no {i} "))).collect();
    let prompt = template.render(&messages, &RenderOptions::default()).unwrap();
    assert!(prompt.text().starts_with("<|turn>userno 0<turn|>") && prompt.text().ends_with("<turn|>2000"));
    let long = [Message::new("user", "word ".repeat(200_000))];
    assert_eq!(template.render(&long, &RenderOptions::default()).unwrap().text().len(), 999_999 + 19);
}
