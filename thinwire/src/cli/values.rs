//! What the options' values may be.

use std::time::Duration;

pub(super) fn workers(text: &str) -> Result<usize, String> {
    count(text, "worker")
}

pub(super) fn ranks(text: &str) -> Result<usize, String> {
    count(text, "rank")
}

pub(super) fn hosts(text: &str) -> Result<usize, String> {
    count(text, "host")
}

fn count(text: &str, what: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err(format!("there has to be at least 1 {what}")),
        Ok(count) if count <= MAX_WORKERS => Ok(count),
        Ok(_) => Err(format!("more than {MAX_WORKERS} {what}s do not fit one machine")),
        Err(_) => Err("not a whole number".into()),
    }
}

/// A process each, all on this machine: beyond this it is a mistake.
const MAX_WORKERS: usize = 256;

pub(super) fn simulated_ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("there has to be at least 1 rank".into()),
        Ok(count) if count <= MAX_SIMULATED => Ok(count),
        Ok(_) => Err(format!("more than {MAX_SIMULATED} ranks take too long to simulate")),
        Err(_) => Err("not a whole number".into()),
    }
}

pub(super) fn group(text: &str) -> Result<usize, String> {
    match simulated_ranks(text)? {
        1 => Err("a group has at least 2 ranks; leave --groups out where each rank is alone".into()),
        count => Ok(count),
    }
}

/// Where each rank writes to all, a million messages for each thousand ranks.
const MAX_SIMULATED: usize = 16_384;

pub(super) fn span(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = with_unit(text, &units).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| time.as_secs() < 3600).ok_or_else(|| {
        "not a time of less than an hour: a number and its unit, ns, us, ms or s, such as 50us".into()
    })
}

pub(super) fn burst(text: &str) -> Result<Duration, String> {
    let burst = span(text)?;
    if burst <= LONGEST_BURST { Ok(burst) } else { Err("more than 100ms at once is no link any more".into()) }
}

const LONGEST_BURST: Duration = Duration::from_millis(100);

/// A number that is not negative times what its unit, the first that the text ends with, stands for.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let number = |(unit, times): &(&str, f64)| text.strip_suffix(unit).map(|number| (number, *times));
    let (number, times) = units.iter().find_map(number)?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    number.parse::<f64>().ok().filter(|_| plain).map(|number| number * times)
}

pub(super) fn stragglers(text: &str) -> Result<(f64, f64), String> {
    let parts = text.split_once(':');
    let parts = parts.and_then(|(share, times)| Some((share.parse().ok()?, times.parse().ok()?)));
    parts.filter(|(share, times)| (0.0..=1.0).contains(share) && (1.0..=1e6).contains(times)).ok_or_else(
        || "not a share from 0 to 1, a colon and how many times slower, at least 1, such as 0.01:10".into(),
    )
}

pub(super) fn iterations(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("there has to be at least 1 iteration".into()),
        Ok(count) => Ok(count),
        Err(_) => Err(format!("not a whole number up to {}", u32::MAX)),
    }
}

pub(super) fn dimension(text: &str) -> Result<u64, String> {
    match number(text) {
        None => Err("not a whole number, such as 1000 or, with k, M or G behind it, 14.7M".into()),
        Some(Some(0)) => Err("a vector has to have at least 1 value".into()),
        Some(Some(dim)) if dim <= MAX_DIM => Ok(dim),
        Some(_) => Err(format!("a vector has at most 2^32 = {MAX_DIM} values")),
    }
}

pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let bytes = number(text).flatten().and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "not a whole number of bytes, such as 1000 or, with k, M or G behind it, 1.5M".into())
}

/// A number that with its unit is whole; `Some(None)` if it is one that does not fit.
fn number(text: &str) -> Option<Option<u64>> {
    let (number, zeros) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 3),
        Some((end, 'M')) => (&text[..end], 6),
        Some((end, 'G')) => (&text[..end], 9),
        _ => (text, 0),
    };
    let number = number.replace('_', "");
    let (whole, part) = number.split_once('.').unwrap_or((&number, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let is_number = all_digits(whole) && all_digits(part);
    let part = part.trim_end_matches('0');
    (is_number && part.len() <= zeros).then(|| format!("{whole}{part:0<zeros$}").parse().ok())
}

/// Indices are 32 bits long.
const MAX_DIM: u64 = 1 << 32;

pub(super) fn density(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(density) if density > 0.0 && density <= 1.0 => Ok(density),
        _ => Err("a density is a number above 0 and at most 1".into()),
    }
}

pub(super) fn rate(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(rate),
        _ => Err("a learning rate is a number above 0".into()),
    }
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "not a number of seconds above 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_may_have_underscores_and_a_unit() {
        for (text, dim) in
            [("1", 1), ("16M", 16_000_000), ("1_000", 1_000), ("4k", 4_000), ("4G", 4_000_000_000)]
                .into_iter()
                .chain([("14.7M", 14_700_000), ("0.001k", 1), ("1.50k", 1_500), ("2.0", 2)])
        {
            assert_eq!(dimension(text), Ok(dim), "{text}");
        }
        assert_eq!(dimension("4294967296"), Ok(1 << 32));
        for (text, says) in [
            ("0", "at least 1 value"),
            ("4294967297", "2^32"),
            ("5G", "2^32"),
            ("99999999999999999999G", "2^32"),
            ("", "whole number"),
            ("M", "whole number"),
            ("1.5", "whole number"),
            ("1.0005k", "whole number"),
            (".5M", "whole number"),
            ("1.M", "whole number"),
            ("1.5.0M", "whole number"),
            ("-1", "whole number"),
            ("+1", "whole number"),
            ("1m", "whole number"),
            ("1é", "whole number"),
        ] {
            assert!(dimension(text).unwrap_err().contains(says), "{text}");
        }
    }

    #[test]
    fn bytes_may_be_none_and_have_a_unit() {
        assert_eq!((bytes("0"), bytes("16M"), bytes("1_024")), (Ok(0), Ok(16_000_000), Ok(1024)));
        assert_eq!(bytes("1.5M"), Ok(1_500_000));
        for bad in ["", "1.5", "-1", "M", "99999999999999999999G"] {
            assert!(bytes(bad).unwrap_err().contains("whole number of bytes"), "{bad}");
        }
    }

    #[test]
    fn times_and_rates_have_units() {
        assert_eq!(span("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(span("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!((span("0s"), span("7ns")), (Ok(Duration::ZERO), Ok(Duration::from_nanos(7))));
        for bad in ["", "50", "us", "-1us", "1e3us", "50 us", "50µs", "nans", "infs", "2h", "3601s", "."] {
            assert!(span(bad).unwrap_err().contains("such as 50us"), "{bad}");
        }
        assert_eq!(stragglers("0.01:10"), Ok((0.01, 10.0)));
        for bad in ["", "0.1", "2:1", "0.1:0.5", "NaN:2", "0.1:inf", "0.1:2:3"] {
            assert!(stragglers(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused_in_words() {
        assert_eq!(workers("0").unwrap_err(), "there has to be at least 1 worker");
        assert!(workers("-1").is_err() && workers("257").is_err());
        assert_eq!(workers("256"), Ok(256));
        for bad in ["0", "-0.1", "1.01", "NaN", "inf", "x", ""] {
            assert!(density(bad).unwrap_err().contains("above 0 and at most 1"), "{bad}");
        }
        assert_eq!(density("1"), Ok(1.0));
        assert!(
            group("0").is_err()
                && group("1").unwrap_err().contains("at least 2 ranks")
                && group("2") == Ok(2)
        );
        assert_eq!(ranks("0").unwrap_err(), "there has to be at least 1 rank");
        assert_eq!(iterations("0").unwrap_err(), "there has to be at least 1 iteration");
        assert!(rate("inf").is_err() && rate("0").is_err() && rate("1e-3") == Ok(0.001));
        assert!(seconds("0").is_err() && seconds("1e300").is_err());
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
    }
}
