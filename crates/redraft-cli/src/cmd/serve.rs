//! `redraft serve`: answers over HTTP.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::bail;
use redraft::compute::Precision;
use redraft_server::{Config, Server, ServerError};
use serde::Serialize;

use crate::args::model::ModelArgs;
use crate::args::together::TogetherArgs;
use crate::exit::Exit;
use crate::model::Loaded;
use crate::out::Out;
use crate::ui::progress::counted;
use crate::{interrupt, model};

/// Serve a model over HTTP, in the form of OpenAI's API and of Anthropic's.
///
/// Several answers are made together, and each is the one that `redraft run` gives for the same seed. The paths and
/// fields are described in docs/server.md and at /openapi.json; / is a page for people. Ctrl-C lets running answers end
/// first, twice stops at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    redraft serve\n  \
    redraft serve -m model.gguf --port 9000 --parallel 8\n  \
    REDRAFT_API_KEY=secret redraft serve --host 0.0.0.0\n  \
    curl http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json' \\\n    \
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is 7 + 8?\"}]}'")]
pub(crate) struct Args {
    /// Address to listen on; one that others can reach needs --api-key or --no-auth.
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        env = "REDRAFT_HOST",
        help_heading = "Server"
    )]
    host: IpAddr,

    /// Port to listen on; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 8080, env = "REDRAFT_PORT", help_heading = "Server")]
    port: u16,

    /// Answers that wait for their turn at most; who comes then is told to try again (429).
    #[arg(long, value_name = "N", default_value_t = 64, env = "REDRAFT_MAX_QUEUE", help_heading = "Server")]
    max_queue: usize,

    /// Key that clients must show, as in `Authorization: Bearer KEY`. Other users of this machine can read command
    /// lines: the environment is the better place.
    #[arg(
        long,
        value_name = "KEY",
        env = "REDRAFT_API_KEY",
        hide_env_values = true,
        help_heading = "Server"
    )]
    api_key: Option<String>,

    /// Serve an address that others can reach without a key.
    #[arg(long, conflicts_with = "api_key", help_heading = "Server")]
    no_auth: bool,

    /// Seconds that a request may take, waiting included.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..), env = "REDRAFT_TIMEOUT", help_heading = "Server")]
    timeout: u32,

    /// Seconds that running answers have once the server is asked to end.
    #[arg(long, value_name = "S", default_value_t = 30, env = "REDRAFT_GRACE", help_heading = "Server")]
    grace: u32,

    #[command(flatten)]
    together: TogetherArgs,

    #[command(flatten)]
    model: ModelArgs,
}

/// The object of `serve --json`, once the server listens. Field names are part of the program's contract.
#[derive(Debug, Serialize)]
struct Listening {
    url: String,
}

/// Runs the command.
pub(crate) fn main(args: &Args, out: Out) -> anyhow::Result<Exit> {
    let stop = interrupt::flag()?;
    let Loaded { model, .. } = model::open(&args.model, Precision::F32, &stop, out)?;
    let config = Config {
        parallel: args.together.parallel,
        max_queue: args.max_queue,
        api_key: args.api_key.clone(),
        open: args.no_auth,
        timeout: Duration::from_secs(args.timeout.into()),
        grace: Duration::from_secs(args.grace.into()),
        cache_bytes: args.together.cache_bytes,
        context_len: args.together.ctx,
        ..Config::default()
    };
    let open = !args.host.is_loopback() && args.api_key.is_none();
    let server = match Server::bind(model, (args.host, args.port), config) {
        Err(ServerError::Open { address }) => bail!(
            "--host: {} can be reached by others: give clients a key with REDRAFT_API_KEY, or say --no-auth",
            address.ip()
        ),
        server => server?,
    };
    if open {
        out.warn("whoever can reach this address can use the model: there is no key");
    }
    let url = format!("http://{}", server.address());
    match out.json {
        true => out.object(&Listening { url })?,
        false => out.text(&format!("listening on {url}\n"))?,
    }
    out.note(&format!("{} at once, {} may wait", counted(args.together.parallel, "answer"), args.max_queue));
    server.run(stop)?;
    Ok(Exit::Done)
}
