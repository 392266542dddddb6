//! The clients of the server: what CLIENT and INFO need to know of sessions on other workers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex};

/// What other sessions may know of a session.
pub struct ClientInfo {
    /// Unique for the life of the server.
    pub id: u64,
    /// The worker that serves it.
    pub worker: usize,
    /// The client's address; absent for sessions without a socket.
    pub peer: Option<SocketAddr>,
    /// The server's address that the client reached.
    pub local: Option<SocketAddr>,
    /// When it connected, Unix milliseconds.
    pub created_ms: i64,
    /// When its last command began, Unix milliseconds.
    pub active_ms: AtomicI64,
    /// The name that the client gave itself.
    pub name: Mutex<Vec<u8>>,
}

/// All open sessions.
#[derive(Default)]
pub struct Registry {
    next: AtomicU64,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
}

impl Registry {
    /// Adds a client and numbers it.
    pub fn connect(
        &self,
        worker: usize,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
        now_ms: i64,
    ) -> Arc<ClientInfo> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let info = Arc::new(ClientInfo {
            id,
            worker,
            peer,
            local,
            created_ms: now_ms,
            active_ms: AtomicI64::new(now_ms),
            name: Mutex::new(Vec::new()),
        });
        self.clients.lock().insert(id, Arc::clone(&info));
        info
    }

    /// Removes a client.
    pub fn disconnect(&self, id: u64) {
        self.clients.lock().remove(&id);
    }

    /// Number of open sessions.
    pub fn len(&self) -> usize {
        self.clients.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sessions that `matches` accepts.
    pub fn select(&self, matches: impl Fn(&ClientInfo) -> bool) -> Vec<u64> {
        let clients = self.clients.lock();
        clients.values().filter(|client| matches(client)).map(|client| client.id).collect()
    }
}
