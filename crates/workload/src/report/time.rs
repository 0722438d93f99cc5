//! Dates as C's `ctime` writes them.

/// `Mon Oct  2 15:22:39 2023`, in UTC. The calendar is reckoned in years that start in March, so that the leap day is
/// the last of the year.
pub fn ctime(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    // Days since 1 March of year 0, in eras of 400 years.
    let since = days + 719_468;
    let (era, day_of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let name = ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"][month as usize];
    let year = era * 400 + year_of_era + u64::from(month >= 10);
    format!("{weekday} {name} {day:2} {:02}:{:02}:{:02} {year}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
