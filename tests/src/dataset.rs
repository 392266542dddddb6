//! Whether two servers hold the same data, and if not, where.

use crate::client::{Client, show};
use crate::generate::DATABASES;
use crate::reply::Reply;

/// Differences told before the rest is left out.
const DIFFERENCES_MAX: usize = 5;

/// Makes the server drop every key whose deadline has passed: redis-server's digest counts those
/// that nobody has touched. SCAN touches; KEYS does not.
pub fn drop_expired(client: &mut Client) {
    for database in 0..DATABASES {
        client.line(&format!("SELECT {database}"));
        let mut cursor = "0".to_owned();
        loop {
            let reply = client.line(&format!("SCAN {cursor} COUNT 1000"));
            cursor = reply.elements().and_then(|page| page.first()).map_or("0".into(), Reply::text);
            if cursor == "0" {
                break;
            }
        }
    }
    client.line("SELECT 0");
}

/// The digest of the whole data, as a text.
pub fn digest(client: &mut Client) -> String {
    client.line("DEBUG DIGEST").to_string()
}

/// Compares digests, after expired keys are dropped; a difference names keys and values.
pub fn difference(subject: &mut Client, oracle: &mut Client) -> Option<String> {
    drop_expired(subject);
    drop_expired(oracle);
    let (ours, theirs) = (digest(subject), digest(oracle));
    if ours == theirs {
        return None;
    }
    let mut lines = vec![format!("DEBUG DIGEST: subject {ours}, oracle {theirs}")];
    for database in 0..DATABASES {
        compare_database(subject, oracle, database, &mut lines);
    }
    if lines.len() == 1 {
        lines
            .push("keys, values and presence of deadlines are the same: the digest differs".into());
    }
    let left_out = lines.len().saturating_sub(DIFFERENCES_MAX + 1);
    lines.truncate(DIFFERENCES_MAX + 1);
    if left_out > 0 {
        lines.push(format!("and {left_out} more"));
    }
    Some(lines.join("\n"))
}

fn compare_database(
    subject: &mut Client,
    oracle: &mut Client,
    database: u64,
    lines: &mut Vec<String>,
) {
    let select = format!("SELECT {database}");
    subject.line(&select);
    oracle.line(&select);
    let (ours, theirs) = (keys(subject), keys(oracle));
    for key in &ours {
        if !theirs.contains(key) {
            lines.push(format!("db {database}: only the subject has {}", show(&[key])));
        }
    }
    for key in &theirs {
        if !ours.contains(key) {
            lines.push(format!("db {database}: only the oracle has {}", show(&[key])));
            continue;
        }
        let (our_value, their_value) = (value(subject, key), value(oracle, key));
        if our_value != their_value {
            lines.push(format!(
                "db {database}: {}\n  subject {our_value:#}\n  oracle  {their_value:#}",
                show(&[key])
            ));
        }
    }
}

fn keys(client: &mut Client) -> Vec<Vec<u8>> {
    let reply = client.line("KEYS *");
    let mut keys: Vec<Vec<u8>> = reply
        .elements()
        .unwrap_or_default()
        .iter()
        .filter_map(|key| key.bytes().map(<[u8]>::to_vec))
        .collect();
    keys.sort();
    keys
}

/// Type, value and whether there is a deadline, as one reply.
fn value(client: &mut Client, key: &[u8]) -> Reply {
    let kind = client.call(&[b"TYPE", key]);
    let mut value = match kind.text().as_str() {
        "string" => client.call(&[b"GET", key]),
        "list" => client.call(&[&b"LRANGE"[..], key, b"0", b"-1"]),
        "set" => client.call(&[b"SMEMBERS", key]),
        _ => Reply::Missing(b'$'),
    };
    if let Reply::Many(_, elements) = &mut value
        && kind.is_status("set")
    {
        elements.sort();
    }
    let deadline = client.call(&[b"TTL", key]).integer().is_some_and(|seconds| seconds >= 0);
    let deadline = Reply::Line(b'#', vec![if deadline { b't' } else { b'f' }]);
    Reply::Many(b'*', vec![kind, deadline, value])
}
