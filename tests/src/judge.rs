//! How two replies to the same command are compared: most must be the same bytes; the others have
//! a part that may differ, such as the order of a set.

use crate::reply::Reply;

/// What may differ between the two replies.
#[derive(Clone, Debug, PartialEq)]
pub enum Judge {
    /// Nothing.
    Exact,
    /// The order of the elements.
    Unordered,
    /// A remaining time in seconds, by [`SECONDS_APART_MAX`].
    Seconds,
    /// A remaining time in milliseconds, by [`MILLISECONDS_APART_MAX`].
    Milliseconds,
    /// The fields of HELLO that tell the version and the connection.
    Hello,
    /// The elements, each by the judge of the command that EXEC ran there.
    Each(Vec<Judge>),
}

/// Seconds that two answers of TTL may be apart: the servers are asked one after the other.
pub const SECONDS_APART_MAX: u64 = 1;
/// Milliseconds that two answers of PTTL may be apart, on a machine that is busy with other tests.
pub const MILLISECONDS_APART_MAX: u64 = 1500;

impl Judge {
    /// True when the replies may stand for each other.
    pub fn accepts(&self, one: &Reply, other: &Reply) -> bool {
        match self {
            Judge::Exact => one == other,
            Judge::Unordered => sorted(one) == sorted(other),
            Judge::Seconds => close(one, other, SECONDS_APART_MAX),
            Judge::Milliseconds => close(one, other, MILLISECONDS_APART_MAX),
            Judge::Hello => hello_fields(one) == hello_fields(other),
            Judge::Each(judges) => match (one, other) {
                (Reply::Many(kind, ones), Reply::Many(other_kind, others)) => {
                    kind == other_kind
                        && ones.len() == others.len()
                        && judges.len() == ones.len()
                        && judges
                            .iter()
                            .zip(ones.iter().zip(others))
                            .all(|(judge, (one, other))| judge.accepts(one, other))
                }
                _ => one == other,
            },
        }
    }
}

fn sorted(reply: &Reply) -> Reply {
    match reply {
        Reply::Many(kind, elements) => {
            let mut elements = elements.clone();
            elements.sort();
            Reply::Many(*kind, elements)
        }
        other => other.clone(),
    }
}

/// Equal, or two times that are both still to come and at most `apart` from each other.
fn close(one: &Reply, other: &Reply, apart: u64) -> bool {
    match (one.integer(), other.integer()) {
        (Some(one), Some(other)) if one >= 0 && other >= 0 => one.abs_diff(other) <= apart,
        _ => one == other,
    }
}

/// The reply without the values of `version` and `id`, which differ by nature.
fn hello_fields(reply: &Reply) -> Reply {
    let Reply::Many(kind, elements) = reply else { return reply.clone() };
    let mut elements = elements.clone();
    for pair in elements.chunks_exact_mut(2) {
        if matches!(pair[0].bytes(), Some(b"version" | b"id")) {
            pair[1] = Reply::Missing(b'$');
        }
    }
    Reply::Many(*kind, elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn integer(number: i64) -> Reply {
        Reply::Line(b':', number.to_string().into_bytes())
    }

    #[test]
    fn times_may_be_apart_but_absence_may_not() {
        assert!(Judge::Seconds.accepts(&integer(99), &integer(100)));
        assert!(!Judge::Seconds.accepts(&integer(98), &integer(100)));
        assert!(!Judge::Seconds.accepts(&integer(-1), &integer(0)));
    }

    #[test]
    fn order_may_differ_but_not_the_type() {
        let one = Reply::Many(b'~', vec![integer(1), integer(2)]);
        let turned = Reply::Many(b'~', vec![integer(2), integer(1)]);
        let array = Reply::Many(b'*', vec![integer(1), integer(2)]);
        assert!(Judge::Unordered.accepts(&one, &turned));
        assert!(!Judge::Exact.accepts(&one, &turned));
        assert!(!Judge::Unordered.accepts(&one, &array));
    }
}
