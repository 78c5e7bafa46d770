//! Raw JSON-RPC: lines, envelopes and edits that leave every other byte as it came. Pure; knows no method of MCP.

pub mod edit;
pub mod envelope;
pub mod line;
pub mod object;
pub mod reply;
pub mod text;

pub use edit::Edit;
pub use envelope::{Defect, Envelope, Id, Kind};
pub use line::{Line, Lines};
pub use object::Object;
