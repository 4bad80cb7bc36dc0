use std::fmt;
use std::str::FromStr;

/// How fast a link is, each way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rate {
    bits_per_second: f64,
}

/// What `tc` calls them, the longer first where one ends as another.
const UNITS: [(&str, f64); 14] = [
    ("kibit", 1_024.0),
    ("mibit", 1_048_576.0),
    ("gibit", 1_073_741_824.0),
    ("kbit", 1e3),
    ("mbit", 1e6),
    ("gbit", 1e9),
    ("bit", 1.0),
    ("kibps", 8.0 * 1_024.0),
    ("mibps", 8.0 * 1_048_576.0),
    ("gibps", 8.0 * 1_073_741_824.0),
    ("kbps", 8e3),
    ("mbps", 8e6),
    ("gbps", 8e9),
    ("bps", 8.0),
];

/// Below, a packet takes seconds; above, nothing is limited.
const RANGE: std::ops::RangeInclusive<f64> = 1e4..=1e12;

impl Rate {
    pub(crate) fn bytes_per_second(self) -> f64 {
        self.bits_per_second / 8.0
    }

    pub(crate) fn seconds_per_byte(self) -> f64 {
        1.0 / self.bytes_per_second()
    }

    /// How many bytes pass in so many seconds.
    pub(crate) fn bytes_in(self, seconds: f64) -> u64 {
        (self.bytes_per_second() * seconds) as u64
    }
}

/// As `tc` reads it.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}bit", self.bits_per_second)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (number, unit) =
            UNITS.iter().find_map(|(name, unit)| Some((lower.strip_suffix(name)?, *unit))).ok_or(
                "a rate has a unit, as in 1gbit or 100mbit (mbps are megabytes a second, as for tc)",
            )?;
        let digits = number.starts_with(|first: char| first.is_ascii_digit() || first == '.');
        let number = number.parse::<f64>().ok().filter(|_| digits).ok_or("not a number before the unit")?;
        let bits_per_second = number * unit;
        if RANGE.contains(&bits_per_second) {
            Ok(Self { bits_per_second })
        } else {
            Err("a link has at least 10kbit and at most 1000gbit".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_tc_reads_them() {
        for (text, bits) in [
            ("1gbit", "1000000000bit"),
            ("100Mbit", "100000000bit"),
            ("2.5gbit", "2500000000bit"),
            ("10kbit", "10000bit"),
            ("1mibit", "1048576bit"),
            ("1mbps", "8000000bit"),
            ("20000bit", "20000bit"),
        ] {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()), Ok(bits.into()), "{text}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused_in_words() {
        for (text, says) in [
            ("0", "unit"),
            ("0gbit", "at least 10kbit"),
            ("1bit", "at least 10kbit"),
            ("2000gbit", "at most 1000gbit"),
            ("-1gbit", "not a number"),
            ("infbit", "not a number"),
            ("nanbit", "not a number"),
            ("gbit", "not a number"),
            ("1 gbit", "not a number"),
            ("", "unit"),
            ("1gb", "unit"),
        ] {
            assert!(text.parse::<Rate>().unwrap_err().contains(says), "{text}");
        }
    }
}
