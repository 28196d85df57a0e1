//! The program on a terminal.

use std::io::{Read as _, Write as _};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use crate::mini;

/// A program on a terminal of 80 x 24.
struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    fn new(args: &[&str], env: &[(&str, &str)]) -> Terminal {
        Terminal::running(env!("CARGO_BIN_EXE_redraft"), args, env)
    }

    fn running(program: &str, args: &[&str], env: &[(&str, &str)]) -> Terminal {
        let (pty, pts) = pty_process::blocking::open().expect("a pseudo-terminal");
        pty.resize(pty_process::Size::new(24, 80)).expect("a size");
        let command = std::process::Command::new(program);
        let mut command = Command::from(command).args(args).env("TERM", "xterm-256color");
        for (key, _) in crate::own_settings() {
            command = command.env_remove(key);
        }
        let command = command.envs(env.iter().copied());
        let child = command.spawn(pts).expect("the program starts");
        let pty = Arc::new(pty);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (source, sink) = (Arc::clone(&pty), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails when the program has ended.
            while let Ok(n @ 1..) = (&*source).read(&mut buffer) {
                sink.lock().expect("no panic before").extend_from_slice(&buffer[..n]);
            }
        });
        Terminal { pty, child, seen, reader }
    }

    fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic before")).into_owned()
    }

    /// Waits until `text` was written after the first `from` bytes. Returns where it ends.
    fn wait(&self, text: &str, from: usize) -> usize {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let seen = self.seen();
            if let Some(at) = seen.get(from..).and_then(|s| s.find(text)) {
                return from + at + text.len();
            }
            let end: String = seen.chars().rev().take(400).collect::<Vec<_>>().into_iter().rev().collect();
            assert!(Instant::now() < until, "no {text:?}, but in the end {end:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn send(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, signal).expect("the program runs");
    }

    fn echoes(&self) -> bool {
        echoes_on(&self.pty)
    }

    /// Waits for the end. Returns the exit code, and whether the terminal is in order.
    fn end(mut self) -> (Option<i32>, bool, String) {
        let status = self.child.wait().expect("the program ends");
        let (pty, seen) = (Arc::clone(&self.pty), Arc::clone(&self.seen));
        self.reader.join().expect("the reader ends");
        let seen = String::from_utf8_lossy(&seen.lock().expect("no panic before")).into_owned();
        let last = |on: &str, off: &str| seen.rfind(on) >= seen.rfind(off);
        let order = last("\x1b[?25h", "\x1b[?25l")
            && last("\x1b[?2026l", "\x1b[?2026h")
            && last("\x1b[?7h", "\x1b[?7l")
            && last("\x1b[?2004l", "\x1b[?2004h");
        (status.code(), order && echoes_on(&pty), seen)
    }
}

fn echoes_on(pty: &Pty) -> bool {
    tcgetattr(pty).expect("modes").local_modes.contains(LocalModes::ECHO)
}

/// An answer whose canvas never converges, in steps of milliseconds.
const ENDLESS: [&str; 6] = ["-n", "48", "--steps", "4096", "--confidence", "0"];

#[test]
fn every_way_to_end_gives_the_terminal_back() {
    let model = mini();
    for (signal, code) in [
        (Signal::INT, Some(130)),
        (Signal::TERM, Some(130)),
        (Signal::HUP, Some(130)),
        // Ends by the signal itself.
        (Signal::QUIT, None),
    ] {
        let args = [&["run", "-m", &model, "Hello"][..], &ENDLESS].concat();
        let t = Terminal::new(&args, &[]);
        t.wait("canvas 1 step", 0);
        assert!(!t.echoes(), "typed keys would move the picture");
        t.signal(signal);
        let (got, order, seen) = t.end();
        assert_eq!((got, order), (code, true), "{signal:?} {seen:?}");
    }
}

/// Ctrl-Z gives the terminal to the shell; after `fg` the picture is drawn again below.
#[test]
fn a_suspended_answer_goes_on_in_a_terminal_that_is_in_order() {
    let model = mini();
    // A shell with job control, which waits for Enter before it lets the program go on.
    let script = "set -m; \"$0\" \"$@\"; echo back in the shell; read line; fg; echo code $?";
    let redraft = env!("CARGO_BIN_EXE_redraft");
    let args = [&["-c", script, redraft, "run", "-m", &model, "Hello"][..], &ENDLESS].concat();
    let t = Terminal::running("sh", &args, &[]);
    let n = t.wait("canvas 1 step", 0);
    t.send("\x1a");
    let n = t.wait("\x1b[?25h", n);
    let n = t.wait("back in the shell", n);
    assert!(t.echoes());
    t.send("\r");
    let n = t.wait("canvas 1 step", n);
    assert!(!t.echoes());
    t.send("\x03");
    let n = t.wait("error: interrupted", n);
    t.wait("code 130", n);
    let (_, order, seen) = t.end();
    assert!(order, "{seen:?}");
}

#[test]
fn ctrl_c_stops_an_answer_and_keeps_the_conversation() {
    let model = mini();
    let args = [&["chat", "-m", &model][..], &ENDLESS].concat();
    let t = Terminal::new(&args, &[]);
    let n = t.wait("> ", 0);
    t.send("Hello\r");
    let n = t.wait("canvas 1 step", n);
    t.send("\x03");
    let n = t.wait("the question is taken back", n);
    let n = t.wait("> Hello", n);
    // Ctrl-C clears the line; the steps of a canvas can be fewer; what was final is kept.
    t.send("\x03");
    let n = t.wait("Ctrl-C once more", n);
    let n = t.wait("> ", n);
    t.send("/steps 2\r");
    let n = t.wait("steps 2 (", n);
    t.send("/regenerate\r");
    let n = t.wait("nothing was asked yet", n);
    t.send("Hello\r");
    let n = t.wait("tok/s]", n);
    t.send("/history\r");
    let n = t.wait("1 user: Hello", n);
    t.wait("> ", n);
    t.send("\x04");
    let (code, order, seen) = t.end();
    assert_eq!((code, order), (Some(0), true), "{seen:?}");
}

#[test]
fn final_canvases_of_a_stopped_answer_are_kept() {
    let model = mini();
    let args = ["chat", "-m", &model, "-n", "480", "--steps", "60", "--confidence", "0"];
    let t = Terminal::new(&args, &[]);
    let n = t.wait("> ", 0);
    t.send("Hello\r");
    let n = t.wait("canvas 2 step", n);
    t.send("\x03");
    let n = t.wait("what was final is kept as the answer", n);
    let n = t.wait("> ", n);
    t.send("/history\r");
    t.wait("2 assistant (interrupted): ", n);
    t.signal(Signal::TERM);
    let (code, order, seen) = t.end();
    assert_eq!((code, order), (Some(130), true), "{seen:?}");
}

#[test]
fn a_signal_at_the_prompt_gives_the_terminal_back() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let t = Terminal::new(&["chat"], &[]);
        let n = t.wait("> ", 0);
        t.send("half a line");
        t.wait("half a line", n);
        assert!(!t.echoes(), "the line editor is at work");
        t.signal(signal);
        let (code, order, seen) = t.end();
        assert_eq!((code, order), (Some(130), true), "{signal:?} {seen:?}");
    }
}

#[test]
fn without_colours_or_movement_where_they_are_not_wanted() {
    let run = |extra: &[&str], env: &[(&str, &str)]| {
        let model = mini();
        let args = [&["run", "-m", &model, "-n", "20", "--steps", "4", "Hello"][..], extra].concat();
        let (code, order, seen) = Terminal::new(&args, env).end();
        assert_eq!((code, order), (Some(0), true), "{seen:?}");
        seen
    };
    let live = run(&[], &[]);
    for part in ["\x1b[2m", "\x1b[?2026h", "canvas 1 step 4/4", "tok/s]"] {
        assert!(live.contains(part), "{part:?} {live:?}");
    }
    for (extra, env) in
        [(&["--live", "never"][..], &[][..]), (&[], &[("NO_COLOR", "1")]), (&[], &[("TERM", "dumb")])]
    {
        let seen = run(extra, env);
        assert!(!seen.contains('\x1b'), "{env:?} {seen:?}");
    }
    let forced = run(&["--live", "always"], &[("NO_COLOR", "1")]);
    assert!(forced.contains("░") && forced.contains("\x1b[?2026h"));
    for color in ["35m", "36m"] {
        assert!(!forced.contains(color), "{forced:?}");
    }
}

#[test]
fn what_is_taken_back_stands_there_as_it_was_typed() {
    let model = mini();
    let args = [&["chat", "-m", &model][..], &ENDLESS].concat();
    let t = Terminal::new(&args, &[]);
    let mut n = t.wait("> ", 0);
    for (line, shown) in [("/steps 2\r", "steps 2 ("), ("one\r", "tok/s]"), ("/steps 4000\r", "steps 4000 (")]
    {
        t.send(line);
        n = t.wait(shown, n);
        n = t.wait("> ", n);
    }
    // A message that begins with a slash, and a change of a message.
    for line in ["//two", "/edit 1 three"] {
        t.send(&format!("{line}\r"));
        n = t.wait("canvas 1 step", n);
        t.send("\x03");
        n = t.wait("the question is taken back", n);
        n = t.wait(&format!("> {line}"), n);
        t.send("\x03");
        n = t.wait("Ctrl-C once more", n);
        n = t.wait("> ", n);
    }
    t.send("/history\r");
    n = t.wait("1 user: one", n);
    t.wait("> ", n);
    t.send("\x04");
    let (code, order, seen) = t.end();
    assert_eq!((code, order), (Some(0), true), "{seen:?}");
}
