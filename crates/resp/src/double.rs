//! The text of a double: what C's `printf("%.17g")` writes, which is what clients see from Redis.

use std::io::Write;

/// Room for the longest text (`-1.7976931348623157e+308` has 24 bytes).
pub type DoubleBuffer = [u8; 32];

/// Significant digits.
const DIGITS: usize = 17;
/// Whole numbers below this are exact and written without exponent: the fast path.
const WHOLE_MAX: f64 = 1e15;

/// Writes `value` into `buffer` and returns the text: 17 significant digits without trailing
/// zeros, with an exponent if that is below -4 or above 16; `inf`, `-inf`, `nan`.
pub fn format_double(value: f64, buffer: &mut DoubleBuffer) -> &[u8] {
    let len = if value.is_nan() {
        copy(b"nan", buffer)
    } else if value.is_infinite() {
        copy(if value > 0.0 { b"inf" } else { b"-inf" }, buffer)
    } else if value == value.trunc() && value.abs() < WHOLE_MAX && !is_negative_zero(value) {
        copy(itoa::Buffer::new().format(value as i64).as_bytes(), buffer)
    } else {
        format_general(value, buffer)
    };
    &buffer[..len]
}

fn is_negative_zero(value: f64) -> bool {
    value == 0.0 && value.is_sign_negative()
}

fn format_general(value: f64, buffer: &mut DoubleBuffer) -> usize {
    // `d.ddddddddddddddddE` with 17 correctly rounded digits, then the digits are set anew.
    let mut scientific = [0; 32];
    let mut unused = scientific.as_mut_slice();
    write!(unused, "{:.*e}", DIGITS - 1, value.abs()).expect("23 bytes fit");
    let len = 32 - unused.len();
    let exponent_start = DIGITS + 2;
    let exponent: i32 = std::str::from_utf8(&scientific[exponent_start..len])
        .ok()
        .and_then(|text| text.parse().ok())
        .expect("an exponent follows the mantissa");
    let mut digits = [0; DIGITS];
    digits[0] = scientific[0];
    digits[1..].copy_from_slice(&scientific[2..DIGITS + 1]);
    let used = digits.iter().rposition(|&digit| digit != b'0').map_or(1, |last| last + 1);
    let digits = &digits[..used];

    let mut out = buffer.as_mut_slice();
    let sign: &[u8] = if value.is_sign_negative() { b"-" } else { b"" };
    let written = out.write_all(sign).and_then(|()| match exponent {
        0..DIGITS_I32 => write_fixed(&mut out, digits, exponent as usize + 1),
        -4..0 => {
            out.write_all(&b"0.000"[..(1 - exponent) as usize])?;
            out.write_all(digits)
        }
        _ => write_scientific(&mut out, digits, exponent),
    });
    written.expect("24 bytes fit");
    let rest = out.len();
    buffer.len() - rest
}

const DIGITS_I32: i32 = DIGITS as i32;

/// Writes digits with `whole` of them before the point.
fn write_fixed(out: &mut &mut [u8], digits: &[u8], whole: usize) -> std::io::Result<()> {
    if digits.len() <= whole {
        out.write_all(digits)?;
        return out.write_all(&[b'0'; DIGITS][..whole - digits.len()]);
    }
    out.write_all(&digits[..whole])?;
    out.write_all(b".")?;
    out.write_all(&digits[whole..])
}

fn write_scientific(out: &mut &mut [u8], digits: &[u8], exponent: i32) -> std::io::Result<()> {
    out.write_all(&digits[..1])?;
    if digits.len() > 1 {
        out.write_all(b".")?;
        out.write_all(&digits[1..])?;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    write!(out, "e{sign}{:02}", exponent.abs())
}

fn copy(text: &[u8], buffer: &mut DoubleBuffer) -> usize {
    buffer[..text.len()].copy_from_slice(text);
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        let mut buffer = [0; 32];
        String::from_utf8(format_double(value, &mut buffer).to_vec()).expect("ASCII")
    }

    #[test]
    fn doubles_read_as_printf_17g_writes_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-3.0, "-3"),
            (0.1, "0.10000000000000001"),
            (-2.5, "-2.5"),
            (1.5e-4, "0.00014999999999999999"),
            (0.0001220703125, "0.0001220703125"),
            (0.00001, "1.0000000000000001e-05"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.25e17, "1.25e+17"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (12345678901234567.0, "12345678901234568"),
            (1e100, "1e+100"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (-5e-324, "-4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (2.3, "2.2999999999999998"),
            (1234.5678, "1234.5678"),
        ];
        for (value, expected) in cases {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn doubles_read_back_as_themselves() {
        let mut state: u64 = 1;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let value = f64::from_bits(state);
            if value.is_finite() {
                assert_eq!(text(value).parse::<f64>().expect("a number"), value);
            }
        }
    }
}
