//! One call for each server of `examples/twenty.toml`.

use serde_json::Value;

/// A call, and whether it works where there is no network, no browser and no file of the host.
pub struct Call {
    server: &'static str,
    pub tool: &'static str,
    arguments: &'static str,
    pub offline: bool,
}

impl Call {
    /// What the tool is called with.
    pub fn arguments(&self) -> Value {
        self.arguments.parse().unwrap()
    }
}

const fn works(server: &'static str, tool: &'static str, arguments: &'static str) -> Call {
    Call { server, tool, arguments, offline: true }
}

/// The server answers that it could not.
const fn lacks(server: &'static str, tool: &'static str, arguments: &'static str) -> Call {
    Call { server, tool, arguments, offline: false }
}

const CALLS: [Call; 22] = [
    works("everything", "echo", r#"{"message":"ahoy"}"#),
    works("filesystem", "list_allowed_directories", "{}"),
    works("memory", "read_graph", "{}"),
    works(
        "thinking",
        "sequentialthinking",
        r#"{"thought":"one","thoughtNumber":1,"totalThoughts":1,"nextThoughtNeeded":false}"#,
    ),
    lacks("context7", "resolve-library-id", r#"{"query":"how to parse","libraryName":"serde"}"#),
    lacks("playwright", "browser_close", "{}"),
    lacks("notion", "API-get-self", "{}"),
    lacks("tavily", "tavily_search", r#"{"query":"boats"}"#),
    lacks("eslint", "lint-files", r#"{"filePaths":["/tmp/none.js"]}"#),
    works("n8n", "search_nodes", r#"{"query":"http"}"#),
    works("commander", "list_directory", r#"{"path":"/tmp"}"#),
    works("dbhub", "execute_sql", r#"{"sql":"select 6 * 7 as answer"}"#),
    works("time", "get_current_time", r#"{"timezone":"UTC"}"#),
    lacks("fetch", "fetch", r#"{"url":"https://example.org/"}"#),
    works("sqlite", "list_tables", "{}"),
    works("duckdb", "query", r#"{"query":"select 6 * 7"}"#),
    works("interpreter", "run_python_code", r#"{"code":"print(6 * 7)"}"#),
    works("calculator", "calculate", r#"{"expression":"6 * 7"}"#),
    works("excel", "create_workbook", r#"{"path":"/tmp/boats.xlsx"}"#),
    works("word", "create_document", r#"{"filename":"/tmp/boats.docx"}"#),
    works("arxiv", "list_papers", "{}"),
    lacks("aws", "read_documentation", r#"{"url":"https://docs.aws.amazon.com/s3/index.html"}"#),
];

/// The call of a server.
pub fn of(server: &str) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.server == server)
}
