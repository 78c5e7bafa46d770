//! Sizes, durations and rates as people write them. Knows nothing of where they stand.

use std::time::Duration;

use super::fault::quoted;

/// Longer than any wait that makes sense; a typo such as `10000000s` is found here.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// `64k`, `256m`, `8g`: bytes, in powers of 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let no_size = || format!("{} is no size such as \"64k\", \"256m\" or \"8g\"", quoted(text));
    let (number, unit) = split(text).ok_or_else(no_size)?;
    let factor: u64 = match unit {
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(no_size()),
    };
    number.checked_mul(factor).filter(|bytes| *bytes > 0).ok_or_else(no_size)
}

/// `1500ms`, `30s`, `10m`, `2h`: from a millisecond to a week.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let no_duration = || format!("{} is no duration such as \"1500ms\", \"30s\", \"10m\" or \"2h\"", quoted(text));
    let (number, unit) = split(text).ok_or_else(no_duration)?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        _ => return Err(no_duration()),
    };
    let duration = number.checked_mul(milliseconds).map(Duration::from_millis).ok_or_else(no_duration)?;
    if duration.is_zero() || duration > LONGEST {
        return Err(format!("{} is not between \"1ms\" and \"168h\"", quoted(text)));
    }
    Ok(duration)
}

/// `2/s`, `120/min`, `600/h`: calls per minute. What is not a whole number per minute is refused, not rounded.
pub(super) fn rate(text: &str) -> Result<u32, String> {
    let no_rate = || format!("{} is no rate such as \"2/s\", \"120/min\" or \"600/h\"", quoted(text));
    let (number, unit) = split(text).ok_or_else(no_rate)?;
    let per_minute = match unit {
        "/s" => number.checked_mul(60).ok_or_else(no_rate)?,
        "/min" => number,
        "/h" if number.is_multiple_of(60) => number / 60,
        "/h" => return Err(format!("{} is not a whole number of calls a minute", quoted(text))),
        _ => return Err(no_rate()),
    };
    u32::try_from(per_minute).ok().filter(|n| *n > 0).ok_or_else(no_rate)
}

/// The digits a text begins with, and the rest.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("64k"), Ok(65536));
        assert_eq!(size("256m"), Ok(256 << 20));
        assert_eq!(size("8g"), Ok(8 << 30));
        for bad in ["", "8", "8G", "8gb", "0m", "-1m", "1.5g", " 1m", "m", "99999999999999999999g", "17179869184g"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_positive_and_sane() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in ["", "0s", "10", "10M", "1 m", "-1s", "169h", "1d", "18446744073709551615h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_whole_calls_per_minute() {
        assert_eq!(rate("2/s"), Ok(120));
        assert_eq!(rate("120/min"), Ok(120));
        assert_eq!(rate("600/h"), Ok(10));
        for bad in ["", "0/s", "120", "120/m", "1/h", "90/h", "1.5/s", "4294967296/min", "/s"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
