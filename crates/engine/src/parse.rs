//! Numbers and options in arguments, as strictly as Redis reads them.

use resp::Args;

use crate::errors::{self, Result};

/// The integer that a text stands for, if it is written exactly as Redis would write it: no sign
/// `+`, no leading zeros, no spaces, within 64 bits.
#[inline]
pub fn canonical_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] => return (!negative).then_some(0),
        [b'0', ..] => return None,
        _ if digits.len() > 19 => return None,
        _ => {}
    }
    let mut value: u64 = 0;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        // 19 digits stay below 10^19, which fits into 64 bits.
        value = value * 10 + u64::from(digit);
    }
    if negative {
        (value <= 1 << 63).then(|| (value as i64).wrapping_neg())
    } else {
        i64::try_from(value).ok()
    }
}

/// An integer argument.
///
/// # Errors
/// The text is not an integer, or does not fit into 64 bits.
#[inline]
pub fn integer(text: &[u8]) -> Result<i64> {
    canonical_integer(text).ok_or(errors::NOT_AN_INTEGER)
}

/// An integer argument that Redis keeps in 32 bits.
///
/// # Errors
/// The text is not an integer, or does not fit into 32 bits.
pub fn small_integer(text: &[u8]) -> Result<i64> {
    match integer(text)? {
        value if i32::try_from(value).is_ok() => Ok(value),
        _ => Err(errors::NOT_32_BITS),
    }
}

/// A cursor of SCAN, as C's `strtoul` reads it: any number of digits of a 64-bit number, with a
/// sign, which turns it round. Nothing at all is 0.
///
/// # Errors
/// There is something else, or the number is too large.
pub fn cursor(text: &[u8]) -> Result<u64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let (negative, digits) = match text {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return Err(errors::INVALID_CURSOR);
    }
    let value = digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    });
    let value = value.ok_or(errors::INVALID_CURSOR)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// Words of a command with options: they are read in one piece, so there must be an end, and nobody
/// needs as many.
const WORDS_MAX: usize = 64;

/// Refuses more options than can be read in one piece.
///
/// # Errors
/// There are more than 64 words.
pub fn check_words(args: Args<'_>, name: &str) -> Result<()> {
    if args.len() > WORDS_MAX { Err(errors::too_many_arguments(name)) } else { Ok(()) }
}

/// Whether an argument is this option, in any case.
#[inline]
pub fn is(text: &[u8], option: &str) -> bool {
    text.eq_ignore_ascii_case(option.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_redis_reads_them() {
        for (text, expected) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("007", Some(7)),
            ("+1", Some(1)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("1\0x", Some(1)),
            ("18446744073709551616", None),
            ("-", None),
            (" 1", None),
            ("1 ", None),
            ("0x10", None),
        ] {
            assert_eq!(cursor(text.as_bytes()).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn only_canonical_integers_are_integers() {
        for good in [0, 1, -1, 10, i64::MAX, i64::MIN, 1_000_000_000_000_000_000] {
            assert_eq!(canonical_integer(good.to_string().as_bytes()), Some(good));
        }
        for bad in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            "1 ",
            " 1",
            "9223372036854775808",
            "-9223372036854775809",
            "99999999999999999999",
            "1a",
            "0x1",
        ] {
            assert_eq!(canonical_integer(bad.as_bytes()), None, "{bad}");
        }
    }
}
