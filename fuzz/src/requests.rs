//! Bodies of requests to the server: a byte for the path, then the body. Read up to the prompt, as the server does;
//! nothing is computed.

use std::sync::{LazyLock, Mutex, PoisonError};

use redraft::{LoadOptions, Model};
use redraft_server::{Config, Reader};

/// Where requests for answers go, in every form.
const PATHS: [&str; 4] = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"];

/// The ids of the vocabulary, and who reads.
static READER: LazyLock<(u32, Mutex<Reader>)> = LazyLock::new(|| {
    let model = Model::embedded(&LoadOptions::default()).expect("it is whole");
    let config = Config { max_body_bytes: 1 << 20, ..Config::default() };
    let reader = Reader::new(&model, config).expect("the demo model answers");
    (model.shape().vocab_len as u32, Mutex::new(reader))
});

/// What is read has prompts of the model's tokens; what is not is the client's fault, and told in the form of errors.
pub fn requests(data: &[u8]) {
    let Some((path, body)) = data.split_first() else { return };
    let path = PATHS[usize::from(*path) % PATHS.len()];
    let (vocab_len, reader) = &*READER;
    let read = reader.lock().unwrap_or_else(PoisonError::into_inner).prompts(path, body.to_vec());
    match read {
        Ok(prompts) => {
            assert!((1..=8).contains(&prompts.len()) && prompts.iter().all(|p| *p == prompts[0]));
            assert!(prompts[0].iter().all(|id| id < vocab_len));
        }
        Err(answer) => {
            assert!((400..500).contains(&answer.status), "{answer:?}");
            assert!(answer.body["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{answer:?}");
        }
    }
}
