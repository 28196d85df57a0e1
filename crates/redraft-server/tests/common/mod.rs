//! A server on a free port, and a client that speaks plain HTTP.

#![allow(dead_code, reason = "each suite uses a part")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redraft::{LoadOptions, Model};
use redraft_server::{Config, Server, ServerError};
use serde_json::{Value, json};

/// A server that ends with the test.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

pub(crate) fn model() -> Model {
    Model::embedded(&LoadOptions { threads: Some(2), ..LoadOptions::default() }).unwrap()
}

/// A template that shows tools and all that can be in a message.
const TOOLS: &str = "{{ bos_token }}{% for t in tools %}<|tool>{{ t.function.name }}<tool|>{% endfor %}{% for m in messages %}\
    <|turn>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}\n{{ m.content or '' }}{% for c in m.tool_calls %}\
    <|tool_call>call:{{ c.function.name }}{{ c.function.arguments | tojson }}<tool_call|>{% endfor %}<turn|>\n{% endfor %}\
    {% if add_generation_prompt %}<|turn>model\n{% if enable_thinking %}<|channel>thought\n{% endif %}{% endif %}";

/// A model of random numbers with the vocabulary of one that thinks and calls tools.
pub(crate) fn caller() -> Model {
    let mut plan = redraft::synth::diffusion_gemma_tiny();
    plan.metadata.set("tokenizer.chat_template", TOOLS);
    let name = format!("redraft-caller-{}-{:?}.gguf", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    let file_type = redraft::synth::FILE_TYPES.iter().find(|f| f.name == "f32").unwrap();
    redraft::synth::write(&plan, file_type, 1, &path, false, &mut |_, _| true).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let gguf = redraft::gguf::Gguf::from_bytes(bytes.into()).unwrap();
    Model::from_gguf(gguf, &LoadOptions { threads: Some(2), ..LoadOptions::default() }).unwrap()
}

pub(crate) fn start(config: Config) -> Running {
    start_with(model(), config)
}

pub(crate) fn start_with(model: Model, config: Config) -> Running {
    let server = Server::bind(model, "127.0.0.1:0", config).unwrap();
    let address = server.address();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    Running { address, stop, thread: Some(std::thread::spawn(move || server.run(seen))) }
}

impl Running {
    /// Ends the server and waits for that.
    pub(crate) fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let done = thread.join();
            assert!(std::thread::panicking() || done.is_ok_and(|d| d.is_ok()));
        }
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The data of the events of a stream; the last one must say that it is the last.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut all: Vec<&str> = self.text().split("\n\n").filter_map(|e| e.strip_prefix("data: ")).collect();
        assert_eq!(all.pop(), Some("[DONE]"), "{}", self.text());
        all.iter().map(|e| serde_json::from_str(e).unwrap()).collect()
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

/// Sends these bytes, and reads all that comes back.
pub(crate) fn raw(address: SocketAddr, request: &[u8]) -> Response {
    let mut stream = connect(address);
    // A server that has heard enough may close before all is written.
    let _ = stream.write_all(request);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    parse(&all)
}

pub(crate) fn parse(all: &[u8]) -> Response {
    let at = all.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(all[..at].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    let mut body = all[at + 4..].to_vec();
    if head.to_lowercase().contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    Response { status, head, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(at) = rest.windows(2).position(|w| w == b"\r\n") {
        let len = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
        out.extend_from_slice(&rest[at + 2..at + 2 + len]);
        rest = &rest[at + 4 + len..];
    }
    out
}

pub(crate) fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    raw(address, &request("GET", path, "", b""))
}

pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Response {
    let body = body.to_string();
    raw(address, &request("POST", path, "content-type: application/json\r\n", body.as_bytes()))
}

pub(crate) fn chat(address: SocketAddr, body: &Value) -> Response {
    post(address, "/v1/chat/completions", body)
}

/// A figure of the server; 0 where it has none of that name.
pub(crate) fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = get(address, "/metrics");
    let line = text.text().lines().find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    line.map_or(0.0, |l| l.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Waits until a figure is what it should be.
pub(crate) fn until(address: SocketAddr, name: &str, value: f64) {
    let start = Instant::now();
    while metric(address, name) != value {
        assert!(start.elapsed() < Duration::from_secs(60), "{name} is {}", metric(address, name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A question that all APIs are asked.
pub(crate) const QUESTION: &str = "What is the capital of France?";

/// The chat in which it is asked, with an instruction and the seed 7.
pub(crate) fn brief_chat(address: SocketAddr) -> Value {
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]);
    chat(address, &json!({"messages": messages, "max_tokens": 60, "seed": 7})).json()
}
