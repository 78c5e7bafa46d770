//! A gateway that runs, and the client on the other end of its pipe: JSON lines both ways, each wait with a deadline.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{PATIENCE, wait_for};

/// A running `bulkhead serve`.
pub struct Serving {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Lines that came while another was waited for.
    passed: VecDeque<String>,
    stderr: Option<JoinHandle<String>>,
    next: u64,
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
        let mut errors = child.stderr.take().unwrap();
        let (told, lines) = channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| told.send(line).is_ok()));
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Serving { input: child.stdin.take(), child, lines, passed: VecDeque::new(), stderr: Some(stderr), next: 1 }
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
        let line = self.passed.pop_front().or_else(|| self.lines.recv_timeout(PATIENCE).ok());
        line.unwrap_or_else(|| panic!("no line within {PATIENCE:?}"))
    }

    /// The first line that fits; those before it stay to be received.
    pub fn line_where(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> String {
        let parsed = |line: &String| fits(&serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
        if let Some(at) = self.passed.iter().position(parsed) {
            return self.passed.remove(at).unwrap();
        }
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{what}: {e} after {:?}", self.passed));
            if parsed(&line) {
                return line;
            }
            self.passed.push_back(line);
        }
    }

    /// The line that answers a request, as it came.
    pub fn answer_line(&mut self, id: u64) -> String {
        self.line_where(&format!("answer to {id}"), |message| message["id"] == id && message["method"].is_null())
    }

    /// The message that answers a request.
    pub fn answer(&mut self, id: u64) -> Value {
        serde_json::from_str(&self.answer_line(id)).unwrap()
    }

    /// The next notification of a method.
    pub fn notification(&mut self, method: &str) -> Value {
        serde_json::from_str(&self.line_where(method, |message| message["method"] == *method)).unwrap()
    }

    /// Everything that came up to now: the gateway answers a ping after it.
    pub fn settled(&mut self) -> Vec<Value> {
        self.request("ping", "{}");
        self.passed.drain(..).map(|line| serde_json::from_str(&line).unwrap()).collect()
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
        let answer = self.request("tools/list", "{}");
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until a tool is listed.
    pub fn wait_for_tool(&mut self, name: &str) {
        wait_for(&format!("tool {name}"), PATIENCE, || self.tools().iter().any(|tool| tool == name).then_some(()));
    }

    // === the end ===

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
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
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let lines = self.passed.drain(..).collect::<Vec<_>>().into_iter().chain(self.lines.iter()).collect();
        Ended { status, lines, stderr }
    }
}

impl Drop for Serving {
    /// A failed test leaves no gateway; it gets the time to end its servers.
    fn drop(&mut self) {
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
