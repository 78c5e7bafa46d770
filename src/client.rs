//! What faces the client: bytes in, lines out, and who is behind them. Knows no downstream server.

pub mod outbox;
pub mod stdio;
