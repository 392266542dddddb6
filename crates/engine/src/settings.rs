//! The server's parameters.

/// The values of all parameters.
#[derive(Default)]
pub struct Settings {}
