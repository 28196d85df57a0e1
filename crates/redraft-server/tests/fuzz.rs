//! Requests of the fuzz target `requests`, kept ones and mutations of them. The long form is in `fuzz/README.md`.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../fuzz/src/mutations.rs"]
#[allow(unreachable_pub, clippy::print_stdout, reason = "shared by suites, which print figures")]
mod mutations;
#[path = "../../../fuzz/src/requests.rs"]
#[allow(unreachable_pub, reason = "the body of a fuzz target")]
mod requests;

use redraft_server::{Config, Reader};

#[test]
fn requests_are_read_up_to_their_prompts() {
    let model = redraft::Model::embedded(&redraft::LoadOptions::default()).unwrap();
    let mut reader = Reader::new(&model, Config::default()).unwrap();
    let chat = br#"{"messages": [{"role": "user", "content": "What is 7 + 8?"}], "n": 3}"#;
    let prompts = reader.prompts("/v1/chat/completions", chat.to_vec()).unwrap();
    assert_eq!(prompts.len(), 3);
    assert!(model.tokenizer().decode(&prompts[0], false).contains("What is 7 + 8?"));
    let text = br#"{"prompt": [5, 6, 7]}"#;
    assert_eq!(reader.prompts("/v1/completions", text.to_vec()), Ok(vec![vec![5, 6, 7]]));
    let refused = reader.prompts("/v1/completions", b"{\"prompt\": 5}".to_vec()).unwrap_err();
    assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &"prompt".into()));
    assert_eq!(reader.prompts("/v2", Vec::new()).unwrap_err().status, 404);
}

#[test]
fn kept_requests_and_their_mutations_are_survived() {
    mutations::run_all("requests", requests::requests, 100_000);
}
