//! `strftime` for templates that print the date.

use std::fmt::Write as _;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
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

/// Formats seconds since 1970 (UTC) as C's `strftime` does in the C locale.
///
/// # Errors
///
/// The directive that is not known.
pub(crate) fn strftime(format: &str, unix_seconds: i64) -> Result<String, String> {
    let (days, second_of_day) = (unix_seconds.div_euclid(86_400), unix_seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let (year, month, day) = civil(days);
    let weekday = (days + 4).rem_euclid(7); // 1970-01-01 was a Thursday
    let day_of_year = days - days_from_civil(year, 1, 1) + 1;
    let hour12 = (hour + 11) % 12 + 1;
    let day_name = DAYS[weekday as usize];
    let month_name = MONTHS[(month - 1) as usize];

    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next().unwrap_or('%');
        // `%-d` is `%d` without leading zeros.
        let padded = directive != '-';
        if !padded {
            directive = chars.next().unwrap_or('%');
        }
        let mut number = |value: i64, width: usize| {
            let width = if padded { width } else { 1 };
            // Writing to a string cannot fail.
            let _ = write!(out, "{value:0width$}");
        };
        match directive {
            'd' => number(day, 2),
            'm' => number(month, 2),
            'y' => number(year.rem_euclid(100), 2),
            'Y' => number(year, 4),
            'H' => number(hour, 2),
            'I' => number(hour12, 2),
            'M' => number(minute, 2),
            'S' => number(second, 2),
            'j' => number(day_of_year, 3),
            'w' => number(weekday, 1),
            'u' => number((weekday + 6) % 7 + 1, 1),
            's' => number(unix_seconds, 1),
            'e' => out += &format!("{day:2}"),
            'a' => out += &day_name[..3],
            'A' => out += day_name,
            'b' | 'h' => out += &month_name[..3],
            'B' => out += month_name,
            'p' => out += if hour < 12 { "AM" } else { "PM" },
            'F' => out += &format!("{year:04}-{month:02}-{day:02}"),
            'D' => out += &format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
            'T' => out += &format!("{hour:02}:{minute:02}:{second:02}"),
            'R' => out += &format!("{hour:02}:{minute:02}"),
            'z' => out += "+0000",
            'Z' => out += "UTC",
            'n' => out.push('\n'),
            't' => out.push('\t'),
            '%' => out.push('%'),
            other => return Err(format!("%{other}")),
        }
    }
    Ok(out)
}

/// Days since 1970-01-01 of a date, in the Gregorian calendar extended to all years. Years are counted from
/// March, so that the leap day is the last day of a year; 400 years have 146,097 days.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01: the inverse of [`days_from_civil`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_times() {
        // From Python's datetime.strftime.
        for (seconds, format, expected) in [
            (0, "%Y-%m-%d %H:%M:%S", "1970-01-01 00:00:00"),
            (951_782_399, "%d %b %Y", "28 Feb 2000"),
            (951_782_400, "%A, %B %-d, %Y", "Tuesday, February 29, 2000"),
            (1_767_225_599, "%j %y %I %p %a", "365 25 11 PM Wed"),
            (-1, "%F %T %%", "1969-12-31 23:59:59 %"),
        ] {
            assert_eq!(strftime(format, seconds).as_deref(), Ok(expected), "{seconds} {format}");
        }
        assert_eq!(strftime("%d %Q", 0), Err("%Q".to_owned()));
    }

    #[test]
    fn dates_invert() {
        for days in (-800_000..800_000).step_by(7) {
            let (y, m, d) = civil(days);
            assert_eq!(days_from_civil(y, m, d), days);
        }
    }
}
