//! Values of parameters as Redis reads them: sizes with units, yes and no, numbers in a range.

use crate::errors;

/// Why a value is refused: the end of the error's text.
pub(super) type Parsed<T> = Result<T, String>;

/// Bytes, with a unit if there is one: `b`, `k`, `m`, `g` are powers of 1000, `kb`, `mb`, `gb` of
/// 1024. As in Redis a unit may stand alone, and too many bytes are as many as can be counted.
pub(super) fn size(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits);
    let factor: u64 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1000 * 1000,
        b"mb" => 1 << 20,
        b"g" => 1000 * 1000 * 1000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    let number = digits.iter().fold(0u64, |number, digit| {
        number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    });
    Some(number.saturating_mul(factor))
}

/// Bytes between two limits.
pub(super) fn size_within(text: &[u8], min: u64, max: u64) -> Parsed<u64> {
    let size = size(text).ok_or(errors::SETTING_NOT_A_SIZE)?;
    if (min..=max).contains(&size) { Ok(size) } else { Err(errors::setting_range(min, max)) }
}

/// A whole number between two limits.
pub(super) fn integer_within(text: &[u8], min: u64, max: u64) -> Parsed<u64> {
    let number = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text))
        .ok_or(errors::SETTING_NOT_AN_INTEGER)?;
    u64::try_from(number)
        .ok()
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| errors::setting_range(min, max))
}

/// `yes` or `no`.
pub(super) fn yes_or_no(text: &[u8]) -> Parsed<bool> {
    if text.eq_ignore_ascii_case(b"yes") {
        Ok(true)
    } else if text.eq_ignore_ascii_case(b"no") {
        Ok(false)
    } else {
        Err(errors::SETTING_NOT_YES_OR_NO.into())
    }
}

/// A number of seconds or changes inside a longer value, read as leniently as C's `strtoll` does:
/// a sign and leading zeros may be there.
pub(super) fn count(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    let digits = if digits == b"-0" { b"0" } else { digits };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    // Digits alone are text.
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

/// The words between single spaces, as Redis cuts such values; none in an empty text.
pub(super) fn words(text: &[u8]) -> Vec<&[u8]> {
    if text.is_empty() { Vec::new() } else { text.split(|&byte| byte == b' ').collect() }
}

/// A text of the operator's choice.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
