//! A gateway that runs, and the client on the other end of its pipe: JSON lines both ways, each wait with a deadline.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{PATIENCE, wait_for};

/// A running `bulkhead serve`.
pub struct Serving {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that came while another was waited for.
    passed: VecDeque<String>,
    stderr: Stderr,
    next: u64,
    /// While this is set, nothing is read of what the gateway writes.
    paused: Arc<AtomicBool>,
}

/// What the gateway says on its standard error, collected as it comes.
struct Stderr {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

/// What tells messages apart. All else in them may be what no general parser takes, such as 1e400.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
}

/// How a gateway ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    /// What it wrote and nobody had read.
    pub lines: Vec<String>,
    pub stderr: String,
}

impl Serving {
    /// Starts a command that serves on its standard input and output.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let stderr = Stderr::collect(child.stderr.take().unwrap());
        let (told, lines) = channel();
        let paused: Arc<AtomicBool> = Arc::default();
        let stays = paused.clone();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).all(|line| {
                while stays.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                told.send(line).is_ok()
            })
        });
        Serving { input: child.stdin.take(), child, lines, passed: VecDeque::new(), stderr, next: 1, paused }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    // === what goes in ===

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).and_then(|()| input.flush()).unwrap();
    }

    /// Sends one line.
    pub fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    /// Sends a request and tells its id; `params` is JSON text, which travels as it is.
    pub fn ask(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next;
        self.next += 1;
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    /// Sends a call and tells its id.
    pub fn ask_tool(&mut self, name: &str, arguments: Value) -> u64 {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments}).to_string())
    }

    // === what comes out ===

    /// The next line, whatever it is.
    pub fn receive(&mut self) -> String {
        self.passed.pop_front().unwrap_or_else(|| self.take("a line"))
    }

    fn take(&mut self, what: &str) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        line.unwrap_or_else(|e| panic!("{what}: {e}; passed: {:?}; said: {}", self.passed, self.stderr.so_far()))
    }

    /// The first line that fits; those before it stay to be received.
    fn line_where(&mut self, what: &str, fits: impl Fn(&Envelope<'_>) -> bool) -> String {
        let fits = |line: &String| fits(&serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
        if let Some(at) = self.passed.iter().position(fits) {
            return self.passed.remove(at).unwrap();
        }
        loop {
            let line = self.take(what);
            if fits(&line) {
                return line;
            }
            self.passed.push_back(line);
        }
    }

    /// The line that answers a request, as it came.
    pub fn answer_line(&mut self, id: u64) -> String {
        let id = id.to_string();
        self.line_where(&format!("the answer to {id}"), |message| {
            message.id.is_some_and(|found| found.get() == id) && message.method.is_none()
        })
    }

    /// The message that answers a request.
    pub fn answer(&mut self, id: u64) -> Value {
        serde_json::from_str(&self.answer_line(id)).unwrap()
    }

    /// The next notification of a method.
    pub fn notification(&mut self, method: &str) -> Value {
        serde_json::from_str(&self.line_where(method, |message| message.method.as_deref() == Some(method))).unwrap()
    }

    /// Everything that came up to now: the gateway answers a ping after it.
    pub fn settled(&mut self) -> Vec<Value> {
        self.request("ping", "{}");
        self.passed.drain(..).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    /// Reads nothing more for now, as a client that hangs.
    pub fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    /// Reads again.
    pub fn resume(&self) {
        self.paused.store(false, Relaxed);
    }

    // === conversations ===

    /// A request with its answer.
    pub fn request(&mut self, method: &str, params: &str) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// The handshake; returns its result.
    pub fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"},
        });
        let answer = self.request("initialize", &params.to_string());
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer["result"].clone()
    }

    /// A call with its result.
    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        let id = self.ask_tool(name, arguments);
        let answer = self.answer(id);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// The text of a call that has to succeed.
    pub fn text(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments);
        assert!(result["isError"] != true, "{result}");
        text_of(&result)
    }

    /// The text of a call that has to fail with a result.
    pub fn failure(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments);
        assert_eq!(result["isError"], true, "{result}");
        text_of(&result)
    }

    /// The message of a call that is refused as one of an unknown tool.
    pub fn unknown(&mut self, name: &str) -> String {
        let id = self.ask_tool(name, json!({}));
        let answer = self.answer(id);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        answer["error"]["message"].as_str().unwrap().to_owned()
    }

    /// The names on the first page of the tools.
    pub fn tools(&mut self) -> Vec<String> {
        #[derive(Deserialize)]
        struct Answer {
            result: Page,
        }
        #[derive(Deserialize)]
        struct Page {
            tools: Vec<Tool>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: String,
        }
        let id = self.ask("tools/list", "{}");
        let line = self.answer_line(id);
        let answer: Answer = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        answer.result.tools.into_iter().map(|tool| tool.name).collect()
    }

    /// Waits until a tool is listed.
    pub fn wait_for_tool(&mut self, name: &str) {
        wait_for(&format!("tool {name}"), PATIENCE, || self.tools().iter().any(|tool| tool == name).then_some(()));
    }

    // === the end ===

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Closes the client's end.
    pub fn shut(&mut self) {
        drop(self.input.take());
    }

    /// Closes the client's end and waits for the gateway's.
    pub fn close(mut self) -> Ended {
        drop(self.input.take());
        self.ended()
    }

    /// Kills it, with no chance to clear up.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn ended(mut self) -> Ended {
        let status = wait_for("the end of the gateway", PATIENCE, || self.child.try_wait().unwrap());
        drop(self.input.take());
        let stderr = self.stderr.whole();
        let lines = self.passed.drain(..).collect::<Vec<_>>().into_iter().chain(self.lines.iter()).collect();
        Ended { status, lines, stderr }
    }
}

impl Stderr {
    fn collect(mut pipe: ChildStderr) -> Self {
        let text: Arc<Mutex<Vec<u8>>> = Arc::default();
        let own = text.clone();
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = pipe.read(&mut piece) {
                own.lock().unwrap().extend_from_slice(&piece[..count]);
            }
        });
        Stderr { text, reader: Some(reader) }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned()
    }

    /// All of it, once the gateway has ended.
    fn whole(&mut self) -> String {
        self.reader.take().unwrap().join().unwrap();
        self.so_far()
    }
}

impl Drop for Serving {
    /// A failed test leaves no gateway; it gets the time to end its servers.
    fn drop(&mut self) {
        self.resume();
        drop(self.input.take());
        for _ in 0..200 {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(50)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The texts of a result.
pub fn text_of(result: &Value) -> String {
    let blocks = result["content"].as_array().unwrap_or_else(|| panic!("{result}"));
    blocks.iter().map(|block| block["text"].as_str().unwrap()).collect()
}
