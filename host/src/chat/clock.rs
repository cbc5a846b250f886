//! `strftime_now`: the date, for templates that tell it to the model. Always in UTC.

use minijinja::{Error, ErrorKind, Value};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// The function `strftime_now(format)` at a point in time.
pub(super) fn function(now: SystemTime) -> Value {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = Date::new(seconds);
    Value::from_function(move |format: String| date.format(&format))
}

/// A point in time, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Date {
    year: u64,
    /// From 0.
    month: usize,
    /// From 1.
    day: u64,
    /// Days since a Thursday, below 7.
    weekday: usize,
    /// From 1.
    day_of_year: u64,
    /// Seconds since midnight.
    second: u64,
}

impl Date {
    /// From seconds since 1970, a Thursday.
    fn new(seconds: u64) -> Self {
        let days = seconds / 86_400;
        let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
        while left >= days_in(year) {
            left -= days_in(year);
            year += 1;
        }
        let day_of_year = left + 1;
        let mut month = 0;
        while left >= days_in_month(year, month) {
            left -= days_in_month(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: left + 1,
            weekday: (days % 7) as usize,
            day_of_year,
            second: seconds % 86_400,
        }
    }

    /// C's `strftime` with the conversions that templates use.
    fn format(self, format: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            match (c, chars.as_str().chars().next()) {
                ('%', Some(conversion)) => {
                    chars.next();
                    self.convert(conversion, &mut out)?;
                }
                _ => out.push(c),
            }
        }
        Ok(out)
    }

    fn convert(self, conversion: char, out: &mut String) -> Result<(), Error> {
        let (month, weekday) = (MONTHS[self.month], DAYS[self.weekday]);
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        let hour12 = (hour + 11) % 12 + 1;
        let half = if hour < 12 { "AM" } else { "PM" };
        let written = match conversion {
            'Y' => write!(out, "{}", self.year),
            'y' => write!(out, "{:02}", self.year % 100),
            'm' => write!(out, "{:02}", self.month + 1),
            'd' => write!(out, "{:02}", self.day),
            'j' => write!(out, "{:03}", self.day_of_year),
            'B' => out.write_str(month),
            'b' => out.write_str(&month[..3]),
            'A' => out.write_str(weekday),
            'a' => out.write_str(&weekday[..3]),
            'H' => write!(out, "{hour:02}"),
            'I' => write!(out, "{hour12:02}"),
            'M' => write!(out, "{minute:02}"),
            'S' => write!(out, "{second:02}"),
            'p' => out.write_str(half),
            'Z' => out.write_str("UTC"),
            '%' => out.write_str("%"),
            other => return Err(unknown(other)),
        };
        written.map_err(|_| unknown(conversion))
    }
}

fn unknown(conversion: char) -> Error {
    let problem = format!("strftime_now does not know %{conversion}");
    Error::new(ErrorKind::InvalidOperation, problem)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in_month(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(seconds: u64, format: &str) -> String {
        Date::new(seconds).format(format).unwrap()
    }

    #[test]
    fn dates() {
        assert_eq!(format(0, "%A %d %B %Y, %H:%M:%S"), "Thursday 01 January 1970, 00:00:00");
        assert_eq!(format(951_782_400, "%a %d %b %y %j"), "Tue 29 Feb 00 060");
        assert_eq!(format(951_868_799, "%I:%M:%S %p"), "11:59:59 PM");
        assert_eq!(format(4_107_542_400, "%Y-%m-%d"), "2100-03-01");
        assert_eq!(format(1_796_040_000, "%d %b %Y 100%%"), "30 Nov 2026 100%");
    }

    #[test]
    fn unknown_conversions_and_loose_ends() {
        let problem = Date::new(0).format("%Q").unwrap_err();
        assert!(problem.to_string().contains("%Q"));
        assert_eq!(format(0, "50%"), "50%");
    }

    #[test]
    fn any_time_has_a_date() {
        for seconds in [u64::MAX, u64::MAX / 2, 253_402_300_800] {
            let date = Date::new(seconds);
            assert!(date.month < 12 && date.day <= 31, "{date:?}");
        }
    }
}
