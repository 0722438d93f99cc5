use super::*;

fn watch(of: SteadyOf, slope: bool, limit: f64, percent: bool) -> Watch {
    let second = Nanos::from_secs(1);
    let mut watch = Watch::new(Steady { of, slope, limit, percent, window: Nanos::from_secs(4), ramp: Nanos::ZERO, interval: second });
    watch.begin(Nanos::ZERO);
    watch
}

/// The second at which a job with these I/Os in each second is found to be steady.
fn found(mut watch: Watch, per_second: &[u64]) -> Option<usize> {
    let mut ios = 0;
    (1..).zip(per_second).find_map(|(at, n): (u64, &u64)| {
        assert_eq!(watch.due(), Nanos::from_secs(at));
        ios += n;
        watch.look(Nanos::from_secs(at), ios, ios * 4096).then_some(at as usize)
    })
}

#[test]
fn it_is_steady_once_no_figure_strays_from_the_mean() {
    let ios = [500, 100, 100, 101, 99, 100, 100];
    assert_eq!(found(watch(SteadyOf::Iops, false, 2.0, true), &ios), Some(5));
    assert_eq!(found(watch(SteadyOf::Iops, false, 0.5, true), &ios), None);
    assert_eq!(found(watch(SteadyOf::Bandwidth, false, 8192.0, false), &ios), Some(5));
}

#[test]
fn a_slope_is_the_one_of_the_best_line() {
    // 10 more in each second, of 115 on average.
    let ios = [100, 110, 120, 130, 130, 130, 130];
    assert_eq!(found(watch(SteadyOf::Iops, true, 9.0, false), &ios), Some(5));
    assert_eq!(found(watch(SteadyOf::Iops, true, 10.1, false), &ios), Some(4));
    assert_eq!(found(watch(SteadyOf::Iops, true, 1.0, true), &ios), Some(7));
}
