//! Active expiry: keys whose time has come leave without anybody looking at them.
//!
//! Every worker cares for its share of the shards. A hold looks at a bounded number of keys of the
//! segment that is due; each removed key is an effect of its own.

use crate::keyspace::SHARDS;
use crate::keyspace::hold::Scope;
use crate::keyspace::locks::NOBODY;
use crate::worker::Worker;

/// Keys with an expiry that one hold looks at.
const KEYS_PER_HOLD: usize = 64;

/// Where a worker's round over its shards stands.
#[derive(Default)]
pub struct Round {
    database: usize,
    shard: usize,
    /// When the next round begins, Unix milliseconds.
    next_ms: i64,
}

/// Time between two rounds.
const ROUND_MS: i64 = 10;

impl Worker {
    /// Takes expired keys out, until `units` units of work are used or none is left. Returns
    /// whether there is more to do at once.
    pub fn expire_some(&mut self, round: &mut Round, units: u64) -> bool {
        if self.now_ms < round.next_ms {
            return false;
        }
        let from = structures::work::counted();
        let engine = self.engine.clone();
        let workers = engine.keyspace.workers();
        let mut removed = Vec::new();
        while round.database < engine.keyspace.databases() {
            let database = round.database as u8;
            let scope = Scope { worker: self.id, database, owner: NOBODY, now_ms: self.now_ms };
            let object = engine.keyspace.current(scope);
            let mut shard = round.shard + (self.id + workers - round.shard % workers) % workers;
            while shard < SHARDS {
                while object.earliest(shard as u16) <= self.now_ms {
                    let ledger = &mut self.ledger;
                    let more =
                        engine.keyspace.hold_shard(&object, scope, shard as u16, ledger, |hold| {
                            let at = shard as u16;
                            let now_ms = hold.now_ms();
                            let part = hold.shard_mut(at);
                            let locks = &part.locks;
                            let keep = |key: &[u8]| !locks.is_empty() && locks.is_locked(key);
                            let step =
                                part.table.take_expired(now_ms, KEYS_PER_HOLD, keep, &mut removed);
                            removed.drain(..).for_each(|entry| hold.expire(entry, at));
                            step.more
                        });
                    self.settle_rest();
                    let _ = more;
                    if structures::work::counted().wrapping_sub(from) > units {
                        round.shard = shard;
                        return true;
                    }
                }
                shard += workers;
            }
            round.database += 1;
            round.shard = 0;
        }
        *round = Round { database: 0, shard: 0, next_ms: self.now_ms + ROUND_MS };
        false
    }
}
