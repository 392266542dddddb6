//! A session: what the server remembers about one connection, without its socket.

pub mod registry;
pub mod transaction;

use resp::Protocol;

use crate::execution::command::TaskSeed;
use crate::execution::task::Running;
use crate::keyspace::locks::Address;
use crate::output::{Output, Reply};
use crate::sync::Arc;
use registry::ClientInfo;
use transaction::{Transaction, Watch};

/// The state of one connection. It is plain data: an idle session may move between workers.
pub struct Session {
    /// Where wake-ups for this session go.
    pub address: Address,
    /// The index of the selected database.
    pub database: u8,
    /// The protocol of replies.
    pub protocol: Protocol,
    /// Replies that wait for the socket.
    pub output: Output,
    /// Set between MULTI and EXEC or DISCARD.
    pub transaction: Option<Box<Transaction>>,
    /// Keys whose change makes the next EXEC fail.
    pub watches: Vec<Watch>,
    /// The command that is not finished. While it is there no further command is begun.
    pub running: Option<Box<Running>>,
    /// Its number among the writes that the worker has not finished.
    pub(crate) unfinished: Option<u64>,
    /// No more commands are read; the connection closes when its replies are sent.
    pub closing: bool,
    /// What other sessions may know of this one.
    pub info: Arc<ClientInfo>,
}

impl Session {
    /// A fresh session.
    pub fn new(address: Address, info: Arc<ClientInfo>) -> Session {
        Session {
            address,
            database: 0,
            protocol: Protocol::Resp2,
            output: Output::default(),
            transaction: None,
            watches: Vec::new(),
            running: None,
            unfinished: None,
            closing: false,
            info,
        }
    }

    /// What a task may know of it.
    pub(crate) fn seed(&self) -> TaskSeed {
        TaskSeed { database: self.database, protocol: self.protocol }
    }

    /// Writes the reply of the current command.
    #[inline]
    pub fn reply(&mut self) -> Reply<'_> {
        self.output.reply(self.protocol)
    }

    /// Whether commands are queued instead of executed.
    #[inline]
    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// A command was refused before it was queued: EXEC will refuse the whole.
    pub fn spoil_transaction(&mut self) {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoiled = true;
        }
    }
}
