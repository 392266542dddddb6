//! The clients of the server: what CLIENT and INFO need to know of sessions on other workers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
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
    /// Somebody closes it, which its worker must know if it has not begun to serve it.
    pub killed: AtomicBool,
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
            killed: AtomicBool::new(false),
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

    /// The number of the newest session.
    pub(crate) fn newest(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// At most `count` of the sessions with these numbers, and the number from which on there may be
    /// more.
    pub(crate) fn some(
        &self,
        numbers: RangeInclusive<u64>,
        count: usize,
    ) -> (Vec<Arc<ClientInfo>>, Option<u64>) {
        let mut some = Vec::with_capacity(count);
        let clients = self.clients.lock();
        let mut rest = clients.range(numbers).map(|(_, client)| client);
        some.extend(rest.by_ref().take(count).cloned());
        let next = rest.next().map(|client| client.id);
        (some, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_looked_at_in_pieces() {
        let registry = Registry::default();
        (0..10).for_each(|worker| drop(registry.connect(worker, None, None, 0)));
        registry.disconnect(5);
        let (mut found, mut next) = (Vec::new(), Some(2));
        while let Some(from) = next {
            let (some, rest) = registry.some(from..=9, 3);
            assert!(some.len() <= 3);
            found.extend(some.iter().map(|client| client.id));
            next = rest;
        }
        assert_eq!(found, [2, 3, 4, 6, 7, 8, 9]);
        assert_eq!(registry.newest(), 10);
        assert!(registry.some(11..=11, 3).0.is_empty());
    }
}
