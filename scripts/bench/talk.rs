//! A program that speaks MCP on its pipes, timed from its start. Knows nothing of gateways or containers.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long an answer may take: more than a gateway itself would wait for one.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a program may take to end when its input has.
const FAREWELL: Duration = Duration::from_secs(20);

/// The program, and the client's end of its pipes.
pub struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    next: u64,
    began: Instant,
    log: PathBuf,
}

impl Talk {
    /// Starts it. What it writes to standard error goes to the file `log`.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let errors = File::create(log).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let began = Instant::now();
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while output.read_line(&mut line).is_ok_and(|length| length > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Talk { input: child.stdin.take(), child, lines, next: 1, began, log: log.to_owned() }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Since its start.
    pub fn ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    /// The first words of a conversation.
    pub fn hello(&mut self) -> Result<(), String> {
        let info = json!({ "name": "bench", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        self.ask("initialize", &hello)?;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))
    }

    /// The names of its tools, of all pages.
    pub fn tools(&mut self) -> Result<Vec<String>, String> {
        let (mut names, mut page) = (Vec::new(), json!({}));
        loop {
            let result = self.ask("tools/list", &page)?["result"].take();
            let listed = result["tools"].as_array().ok_or("no list of tools")?;
            names.extend(listed.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned)));
            match result.get("nextCursor") {
                Some(cursor) => page = json!({ "cursor": cursor }),
                None => return Ok(names),
            }
        }
    }

    /// What a call is answered with: whether it worked, and the answer.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Result<(bool, Value), String> {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
        Ok((answer.get("result").is_some_and(|result| result["isError"] != json!(true)), answer))
    }

    /// Asks, and waits for the answer. What else it says meanwhile is passed over, and what it asks is declined.
    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let line = self.lines.recv_timeout(PATIENCE).map_err(|_| self.trouble(method))?;
            let message: Value = serde_json::from_str(&line).map_err(|e| format!("{e} in {line:?}"))?;
            let asked = message.get("method").is_some().then(|| message.get("id")).flatten();
            if let Some(asked) = asked {
                let error = json!({ "code": -32601, "message": "not here" });
                self.send(&json!({ "jsonrpc": "2.0", "id": asked, "error": error }))?;
            } else if message["id"] == id {
                return Ok(message);
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{message}\n").as_bytes()).map_err(|_| self.trouble("input"))
    }

    fn trouble(&self, what: &str) -> String {
        let said = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        format!("{what}: no answer; its last words: {last:?}")
    }

    /// Ends its input, and waits until it has ended.
    pub fn end(mut self) {
        drop(self.input.take());
        let end = Instant::now() + FAREWELL;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
