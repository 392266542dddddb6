//! Hot path. A key with its hash and its shard, computed once per command.

use structures::hash::hash;

use super::SHARDS;

/// Cluster slots, as the cluster specification counts them.
const SLOTS: u16 = 16384;

/// The checksum of the cluster specification: CRC-16/XMODEM.
const SLOT_CHECKSUM: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

/// How a key chooses its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardBy {
    /// The top bits of the keyed hash: spreads any set of keys.
    Hash,
    /// The cluster slot modulo the number of shards: the keys of a slot are together.
    Slot,
}

/// A key's bytes with what the keyspace needs to find it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The name as the client sent it.
    pub bytes: &'a [u8],
    /// The process-wide keyed hash of the name.
    pub hash: u64,
    /// The shard that the key lives in, below [`SHARDS`].
    pub shard: u16,
}

impl ShardBy {
    /// Hashes `bytes` and chooses the shard.
    #[inline]
    pub fn key(self, bytes: &[u8]) -> Key<'_> {
        let hash = hash(bytes);
        let shard = match self {
            ShardBy::Hash => (hash >> 54) as u16,
            ShardBy::Slot => slot(bytes) % SHARDS as u16,
        };
        Key { bytes, hash, shard }
    }
}

/// The cluster slot of a key: the checksum of its hash tag, the part between the first `{` and the
/// next `}` when that is not empty, else of the whole key.
pub fn slot(key: &[u8]) -> u16 {
    SLOT_CHECKSUM.checksum(hash_tag(key)) % SLOTS
}

fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_cluster_specification() {
        assert_eq!(slot(b"123456789"), 12739);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(hash_tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(hash_tag(b"foo{{bar}}zap"), b"{bar");
        assert_eq!(hash_tag(b"foo{bar}{zap}"), b"bar");
    }
}
